"""Controls of a rollout: an array, knots, a policy or a controller. `rollout` converts all of them to `Controls`."""

import abc
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from jaxdyn.compute.arrays import floating, on_device
from jaxdyn.dynamics.system import State, System
from jaxdyn.errors import check_name
from jaxdyn.mechanism.messages import check_function, check_instance, described
from jaxdyn.mechanism.quantity import EFFORT, quantity
from jaxdyn.simulate.integrators import Control

Policy: TypeAlias = Callable[[Float[Array, ""], State, PRNGKeyArray | None], Float[Array, "nu"]]

# Rounding of t must not delay a held knot by one step: it may be early by this number of units in the last place of t, and, where
# no step is known, always by this fraction of an interval.
_EARLY_ULPS = 8.0
_EARLY = 1e-3


class Step(NamedTuple):
    """The data of a control step that are known at its start.

    Attributes:
        number: Index of the step, counted from 0.
        t: Time at the start of the step, s.
        row: Row for this step of the arrays that `Controls.rows` returns.
        key: Random key of the rollout, or None.
        dt: Duration of the step, s; None for methods without fixed steps, which evaluate the controls at single times.
        order: Order of the integrator; methods of order 1 evaluate the controls only at the start of the step.
    """

    number: Int[Array, ""]
    t: Float[Array, ""]
    row: PyTree
    key: PRNGKeyArray | None
    dt: Float[Array, ""] | None = None
    order: int = 1

    def own_key(self) -> PRNGKeyArray | None:
        """The random key of this step."""
        return None if self.key is None else jax.random.fold_in(self.key, self.number)


class Controls(eqx.Module):
    """Base class of the controls of a rollout, whose methods `rollout` calls."""

    def begin(self, state: State) -> PyTree:
        """The memory of the controls before the first step; None if the controls need no memory."""
        return None

    def rows(self) -> PyTree:
        """Arrays with one row per step, which are passed to the steps as `Step.row`; None if there are no arrays."""
        return None

    @abc.abstractmethod
    def in_force(self, step: Step, state: State, memory: PyTree) -> tuple[Control, PyTree]:
        """The controls as a function of time within a step that starts in `state`, and the memory after the step."""


class Controller(Controls):
    """Base class of policies with a memory, for example of a plan that is improved in each step, or of an estimate of the state."""

    @abc.abstractmethod
    def begin(self, state: State) -> PyTree:
        """The memory before the first step."""

    @abc.abstractmethod
    def decide(
        self, t: Float[Array, ""], state: State, memory: PyTree, key: PRNGKeyArray | None
    ) -> tuple[Float[Array, "nu"], PyTree]:
        """The constant controls of the step that starts at t, and the memory after the step, whose arrays keep their shapes."""

    def in_force(self, step: Step, state: State, memory: PyTree) -> tuple[Control, PyTree]:
        u, memory = self.decide(step.t, state, memory, step.own_key())
        return _held(u), memory


def _held(u: Float[Array, "nu"] | None) -> Control:
    return lambda time: u


class NoControls(Controls):
    """No controls."""

    def in_force(self, step: Step, state: State, memory: None) -> tuple[Control, None]:
        return _held(None), memory


class Rows(Controls):
    """Controls in an array; each row is constant during its step, as for a digital controller.

    Attributes:
        values: One row per step.
    """

    values: Float[Array, "steps nu"]

    def rows(self) -> Float[Array, "steps nu"]:
        return self.values

    def in_force(self, step: Step, state: State, memory: None) -> tuple[Control, None]:
        return _held(step.row), memory


class Feedback(Controls):
    """The controls of a policy, evaluated at the start of each step and constant during the step.

    Attributes:
        policy: Function of time, state and random key.
    """

    policy: Policy

    def in_force(self, step: Step, state: State, memory: None) -> tuple[Control, None]:
        return _held(self.policy(step.t, state, step.own_key())), memory


class Changed(Controls):
    """Commands, and a function that turns them into the controls that act, for example with the gains of a machine.

    Attributes:
        commands: Commands in any form of the argument `controls` of `rollout`.
        change: Function from a command, or from None for no commands, to the controls that act.
    """

    commands: Any
    change: Callable[[Float[Array, "nu"] | None], Float[Array, "nu"]]

    def begin(self, state: State) -> PyTree:
        return self.commands.begin(state)

    def rows(self) -> PyTree:
        return self.commands.rows()

    def in_force(self, step: Step, state: State, memory: PyTree) -> tuple[Control, PyTree]:
        command, memory = self.commands.in_force(step, state, memory)
        return lambda time: self.change(command(time)), memory


def _interval(interval: Any) -> Float[Array, ""]:
    """Array of the time between knots; numbers of Python and NumPy are checked."""
    if isinstance(interval, int | float | np.number) and not interval > 0.0:
        raise ValueError(f"the interval of Knots is {interval} s; give a positive time")
    return floating(interval)


class Knots(Controls):
    """Controls given at equidistant times.

    Because of a delay, a held control may jump between the steps of a rollout, from a to b after the fraction s of a step h. An
    integrator of order 1 then receives its mean, so that the impulse is exact. Other integrators receive the linear function with
    the same impulse and the same first moment, so that a position is exact, too (longer steps than `interval` see one jump only):

        u(t + x h) = s a + (1 - s) b + 6 s (1 - s) (b - a) (x - 1/2),   0 <= x <= 1.

    A held control is piecewise constant in time, so its derivative with respect to `start` is zero or does not exist. Those of its
    impulse and of its moment exist, and the derivatives of a rollout contain them: exactly where no jump is on the boundary of a
    step, and there from the side of earlier knots.

    Attributes:
        values: Controls at the times start, start + interval, ...; the first and the last value apply outside of this range.
        interval: Time between knots, s.
        start: Time of the first knot, s; one value, or one per control if the controls act with different delays.
        interpolation: "zero_order" (each value is held until the next knot), "linear", or "cubic" (Catmull-Rom spline).
    """

    values: Float[Array, "knots nu"] = eqx.field(converter=floating, metadata=quantity(EFFORT, along="input"))
    interval: Float[Array, ""] = eqx.field(converter=_interval, metadata=quantity("s", positive=True))
    start: Float[Array, ""] | Float[Array, "nu"] = eqx.field(converter=floating, default=0.0, metadata=quantity("s"))
    interpolation: Literal["zero_order", "linear", "cubic"] = eqx.field(static=True, default="linear")

    def __check_init__(self):
        check_name("interpolation of Knots", self.interpolation, ("zero_order", "linear", "cubic"))

    def in_force(self, step: Step, state: State, memory: None) -> tuple[Control, None]:
        if self.interpolation != "zero_order" or step.dt is None:
            return self, memory  # linear and cubic knots vary within the step
        start, dt = step.t, step.dt
        mean, rise = self._over(start, start + dt)
        if step.order < 2:
            return _held(mean), memory
        return lambda t: mean + rise * ((t - start) / dt - 0.5), memory

    def __call__(self, t: Float[Array, ""]) -> Float[Array, "nu"]:
        """Controls at time t (s)."""
        if self.start.ndim:
            return jnp.concatenate([knots(t) for knots in self._columns()])
        last = self.values.shape[0] - 1
        x, rounding = self._place(t)
        x = jnp.clip(x, 0.0, float(last))
        if self.interpolation == "zero_order":
            return self._value(jnp.floor(x + jnp.maximum(_EARLY, rounding)).astype(int))
        left = jnp.minimum(jnp.floor(x), max(last - 1, 0)).astype(int)
        fraction = x - left.astype(x.dtype)
        a, b = self._value(left), self._value(left + 1)
        if self.interpolation == "linear":
            return a + fraction * (b - a)
        slope_a = 0.5 * (b - self._value(left - 1))
        slope_b = 0.5 * (self._value(left + 2) - a)
        curve = (2.0 * (a - b) + slope_a + slope_b) * fraction + (3.0 * (b - a) - 2.0 * slope_a - slope_b)
        return a + fraction * (slope_a + fraction * curve)

    def _over(self, t: Float[Array, ""], end: Float[Array, ""]) -> tuple[Float[Array, "nu"], Float[Array, "nu"]]:
        """Mean of held knots from t to `end`, and the rise of the linear function with the same mean and the same first moment."""
        if self.start.ndim:
            mean, rise = zip(*(knots._over(t, end) for knots in self._columns()), strict=True)
            return jnp.concatenate(mean), jnp.concatenate(rise)

        def on_knot(x: Float[Array, ""], rounding: Float[Array, ""]) -> Float[Array, ""]:
            """The place x, moved onto a knot from which it differs by rounding; its derivative is kept."""
            away = jnp.floor(x + 0.5) - x
            return x + jax.lax.stop_gradient(jnp.where(jnp.abs(away) <= rounding, away, 0.0))

        places = on_knot(*self._place(t)), on_knot(*self._place(end))
        first = jnp.minimum(*places)
        last = jnp.minimum(jnp.maximum(*places), first + 1.0)
        left = jnp.floor(first)
        beyond = last - left - 1.0
        # The derivative at a jump on the boundary is that from one side; those of `maximum` and `clip` would mix both.
        share = jnp.where(beyond >= 0.0, beyond, 0.0) / (last - first)
        a, b = self._value(left.astype(int)), self._value(left.astype(int) + 1)
        return a + share * (b - a), 6.0 * share * (1.0 - share) * (b - a)

    def _columns(self) -> list["Knots"]:
        """Knots of single controls, each with its own start."""
        columns = range(self.values.shape[1])
        return [Knots(self.values[:, k : k + 1], self.interval, self.start[k], self.interpolation) for k in columns]

    def _place(self, t: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Time t (s), counted in intervals from the first knot, and its error by rounding."""
        start, interval = self.start.astype(t.dtype), self.interval.astype(t.dtype)
        rounding = _EARLY_ULPS * jnp.finfo(t.dtype).eps * jnp.maximum(jnp.abs(t), jnp.abs(start)) / interval
        return (t - start) / interval, rounding

    def _value(self, index: Array) -> Float[Array, "nu"]:
        return self.values[jnp.clip(index, 0, self.values.shape[0] - 1)]


def as_controls(
    controls: Any, system: System, state: State, steps: int | None, key: PRNGKeyArray | None = None
) -> Controls:
    """Convert the `controls` argument of a rollout to `Controls`.

    Args:
        controls: None, an array, `Knots`, a policy or a controller.
        system: Mechanism with its forces and drives.
        state: Initial state.
        steps: Number of rows that an array must have; None if arrays are not supported.
        key: Random key with which a policy is called.

    Raises:
        TypeError: `controls` has an unsupported type, or a policy does not take (t, state, key).
        ValueError: The shape is wrong, or a policy needs a key but no key is given; the message states the remedy.
    """
    if controls is None:
        return NoControls()
    if isinstance(controls, type):
        raise TypeError(f"controls are the class {controls.__name__}; give an instance, {controls.__name__}(...)")
    if isinstance(controls, Knots):
        _check_shape(controls.values, system, "knots")
        return controls
    if isinstance(controls, Changed):
        return Changed(as_controls(controls.commands, system, state, steps, key), controls.change)
    if isinstance(controls, Controls):
        return controls
    if callable(controls):
        _check_policy(controls, system, state, key)
        return Feedback(cast(Policy, controls))
    remedy = "an array, jnp.asarray(controls), or a policy"
    check_instance("the argument controls", controls, jax.Array | np.ndarray, remedy)
    if steps is None:
        raise TypeError("controls are an array, whose rows belong to steps of one length; give Knots(array, interval)")
    _check_shape(controls, system, steps)
    return Rows(on_device(controls) if isinstance(controls, np.ndarray) else controls)


def _check_shape(values: Array | np.ndarray, system: System, rows: int | str) -> None:
    if values.ndim != 2 or values.shape[1] != system.nu or rows not in ("knots", values.shape[0]):
        hint = "; for a batch, wrap rollout in jax.vmap" if values.ndim == 3 else ""
        raise ValueError(
            f"controls have shape {values.shape}; give shape ({rows}, {system.nu}): one row per "
            f"{'knot' if rows == 'knots' else 'step'}, one column per control{hint}"
        )


def _check_policy(policy: Callable, system: System, state: State, key: PRNGKeyArray | None) -> None:
    name = getattr(policy, "__name__", type(policy).__name__)
    check_function(f"policy {name!r}", policy, "t, state, key")
    t = jax.ShapeDtypeStruct((), state.v.dtype)
    try:
        u = jax.eval_shape(policy, t, state, key)
    except Exception:
        # The policy is code of the user and may fail in any way. Without the remedy below its own error is raised.
        if key is None and _has_shape(policy, t, state, jax.random.key(0)):
            raise ValueError(f"policy {name!r} uses its key; give rollout a key, key=jax.random.key(0)") from None
        raise
    if getattr(u, "shape", None) != (system.nu,):
        given = f"shape {u.shape}" if hasattr(u, "shape") else described(u)
        raise ValueError(
            f"policy {name!r} returns {given}; return an array of shape ({system.nu},), one value per control"
        )


def _has_shape(policy: Callable, *arguments) -> bool:
    """Whether a function can be traced with these arguments."""
    try:
        jax.eval_shape(policy, *arguments)
    except Exception:  # the caller then raises the first error of the user's code
        return False
    return True
