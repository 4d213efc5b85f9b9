"""Controls of a rollout: an array, knots, a policy or a controller. All become "the control in force at time t"."""

import abc
from collections.abc import Callable
from typing import Literal, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from jaxdyn.dynamics.system import State, System
from jaxdyn.simulate.integrators import Control
from jaxdyn.spatial.arrays import floating

Policy: TypeAlias = Callable[[Float[Array, ""], State, PRNGKeyArray | None], Float[Array, "nu"]]

# Rounding of t must not delay a held knot by one step: it may come early by this many units in the last place of t, and
# in any case by this fraction of an interval.
_EARLY_ULPS = 8.0
_EARLY = 1e-3


class Controller(eqx.Module):
    """A policy with a memory, such as a plan that it improves or a state that it estimates."""

    @abc.abstractmethod
    def begin(self, state: State) -> PyTree:
        """The memory before the first step."""

    @abc.abstractmethod
    def decide(
        self, t: Float[Array, ""], state: State, memory: PyTree, key: PRNGKeyArray | None
    ) -> tuple[Float[Array, "nu"], PyTree]:
        """The controls of the step that starts at t, held over it, and the memory after it, of unchanged shapes."""


class Knots(eqx.Module):
    """Controls given at equally spaced times.

    Attributes:
        values: controls at start, start + interval, ...; the first and the last one hold outside.
        interval: time between knots, s.
        start: time of the first knot, s; one number, or one per control for controls that act with delays of their own.
        interpolation: "zero_order" holds each value, "linear", or "cubic" (Catmull-Rom: through the knots, continuous rate).
    """

    values: Float[Array, "knots nu"] = eqx.field(converter=floating)
    interval: Float[Array, ""] = eqx.field(converter=floating)
    start: Float[Array, ""] | Float[Array, "nu"] = eqx.field(converter=floating, default=0.0)
    interpolation: Literal["zero_order", "linear", "cubic"] = eqx.field(static=True, default="linear")

    def __check_init__(self):
        if self.interpolation not in ("zero_order", "linear", "cubic"):
            raise ValueError(
                f'unknown interpolation {self.interpolation!r} of Knots; use "zero_order", "linear" or "cubic"'
            )

    def __call__(self, t: Float[Array, ""]) -> Float[Array, "nu"]:
        """Controls at time t (s)."""
        if self.start.ndim:
            columns = range(self.values.shape[1])
            each = [Knots(self.values[:, k : k + 1], self.interval, self.start[k], self.interpolation) for k in columns]
            return jnp.concatenate([knots(t) for knots in each])
        last = self.values.shape[0] - 1
        start, interval = self.start.astype(t.dtype), self.interval.astype(t.dtype)
        x = jnp.clip((t - start) / interval, 0.0, float(last))
        if self.interpolation == "zero_order":
            rounding = _EARLY_ULPS * jnp.finfo(t.dtype).eps * jnp.maximum(jnp.abs(t), jnp.abs(start)) / interval
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

    def _value(self, index: Array) -> Float[Array, "nu"]:
        return self.values[jnp.clip(index, 0, self.values.shape[0] - 1)]


def control_in_force(
    controls: "Knots | Policy | None",
    row: Float[Array, "nu"] | None,
    index: Array,
    t: Float[Array, ""],
    state: State,
    key: PRNGKeyArray | None,
) -> Control:
    """The controls during step `index`, which starts at time t in `state`.

    Rows of an array, outputs of a policy and zero-order knots are held over the step, as a digital controller does; linear
    and cubic knots vary within it.

    Args:
        controls: knots or policy, or None.
        row: of an array of controls, or None if they do not come as an array.
    """
    if row is not None:
        return lambda time: row
    if controls is None:
        return lambda time: None
    if isinstance(controls, Knots) and controls.interpolation != "zero_order":
        return controls
    u = (
        controls(t)
        if isinstance(controls, Knots)
        else controls(t, state, None if key is None else jax.random.fold_in(key, index))
    )
    return lambda time: u


def check_controls(controls, system: System, steps: int) -> None:
    """Refuse an array of the wrong shape.

    Raises:
        ValueError: the message gives the shape that fits.
    """
    if controls is None or callable(controls) or isinstance(controls, Controller):
        values, rows = (controls.values, None) if isinstance(controls, Knots) else (None, None)
    else:
        values, rows = controls, steps
    if values is None:
        return
    expected = f"({rows if rows is not None else 'knots'}, {system.nu})"
    if values.ndim != 2 or values.shape[1] != system.nu or (rows is not None and values.shape[0] != rows):
        hint = "; for a batch, wrap rollout in jax.vmap" if values.ndim == 3 else ""
        raise ValueError(
            f"controls have shape {values.shape}; give shape {expected}: one row per step, one column per control{hint}"
        )
