"""What an optimal-control problem is: dynamics in steps of time, costs, bounds, conditions, and numbers of the machine to choose.

    minimize    sum over k < N of h l(t_k, x_k, u_k) + phi(T, x_N),    t_k = k h,  h = T / N
    such that   x_{k+1} = f(x_k, u_k, t_k, h),   x_0 given,   lower <= u_k <= upper,
                path and final conditions g = 0 or g <= 0.

States may live on manifolds: they are only moved by steps in tangent coordinates and compared by differences in these. A design,
numbers such as a length, a mass or the duration T itself, may be chosen together with the controls.
"""

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PyTree

from jaxdyn.dynamics.system import State, System, acceleration
from jaxdyn.mechanism import configuration
from jaxdyn.simulate.integrators import Integrator, RungeKutta4
from jaxdyn.spatial.arrays import floating

Point = PyTree  # a state: `State`, or an array
Tangent = Float[Array, "nx"]
Controls = Float[Array, "nu"]
Time = Float[Array, ""]


class Dynamics(eqx.Module):
    """Motion in steps of time, of states that can be moved and compared in tangent coordinates.

    Attributes:
        nx: number of tangent coordinates of a state.
        nu: number of controls.
    """

    if TYPE_CHECKING:  # type checkers would take abstract variables for arguments of the constructor

        @property
        def nx(self) -> int: ...
        @property
        def nu(self) -> int: ...
    else:
        nx: eqx.AbstractVar[int]
        nu: eqx.AbstractVar[int]

    @abc.abstractmethod
    def next(self, x: Point, u: Controls, t: Time, dt: Time) -> Point:
        """State after a step with controls that are held."""

    @abc.abstractmethod
    def moved(self, x: Point, step: Tangent) -> Point:
        """State a step in tangent coordinates away."""

    @abc.abstractmethod
    def difference(self, a: Point, b: Point) -> Tangent:
        """The step from a to b: moved(a, difference(a, b)) = b."""

    def rate(self, x: Point, u: Controls, t: Time) -> Tangent:
        """Rate of the state, in tangent coordinates at x; what collocation works with.

        Raises:
            TypeError: these dynamics are known in steps only.
        """
        raise TypeError(f"{type(self).__name__} knows steps and no rates; use Flow or Mechanics")


class Mechanics(Dynamics):
    """Steps of a mechanism. States are `State`; tangent coordinates are those of the configuration, then velocities.

    Attributes:
        system: mechanism, forces, drives.
        integrator: of each step.
    """

    system: System
    integrator: Integrator = RungeKutta4()

    @property
    def nx(self) -> int:
        return 2 * self.system.model.nv

    @property
    def nu(self) -> int:
        return self.system.nu

    def next(self, x: State, u: Controls, t: Time, dt: Time) -> State:
        return self.integrator.step(self.system, x, lambda time: u, t, dt)[0]

    def moved(self, x: State, step: Tangent) -> State:
        nv = self.system.model.nv
        return State(configuration.integrate(self.system.model, x.q, step[:nv]), x.v + step[nv:])

    def difference(self, a: State, b: State) -> Tangent:
        return jnp.concatenate([configuration.difference(self.system.model, a.q, b.q), b.v - a.v])

    def rate(self, x: State, u: Controls, t: Time) -> Tangent:
        return jnp.concatenate([x.v, acceleration(self.system, x, u, t)])


class StepFunction(Dynamics):
    """Any step x' = step(x, u, t, dt) of states that are arrays.

    Attributes:
        step: a function, or a module whose numbers are differentiable.
        nx, nu: lengths of x and u.
    """

    step: Callable[[Float[Array, "nx"], Controls, Time, Time], Float[Array, "nx"]]
    nx: int = eqx.field(static=True)  # pyright: ignore[reportIncompatibleMethodOverride]
    nu: int = eqx.field(static=True)  # pyright: ignore[reportIncompatibleMethodOverride]

    def next(self, x, u: Controls, t: Time, dt: Time):
        return self.step(x, u, t, dt)

    def moved(self, x, step: Tangent):
        return x + step

    def difference(self, a, b) -> Tangent:
        return b - a


class Flow(Dynamics):
    """Any x' = velocity(x, u, t) of states that are arrays; a step is one of Runge-Kutta's of fourth order.

    Attributes:
        velocity: a function, or a module whose numbers are differentiable.
        nx, nu: lengths of x and u.
    """

    velocity: Callable[[Float[Array, "nx"], Controls, Time], Float[Array, "nx"]]
    nx: int = eqx.field(static=True)  # pyright: ignore[reportIncompatibleMethodOverride]
    nu: int = eqx.field(static=True)  # pyright: ignore[reportIncompatibleMethodOverride]

    def rate(self, x, u: Controls, t: Time) -> Tangent:
        return self.velocity(x, u, t)

    def next(self, x, u: Controls, t: Time, dt: Time):
        a = self.velocity(x, u, t)
        b = self.velocity(x + 0.5 * dt * a, u, t + 0.5 * dt)
        c = self.velocity(x + 0.5 * dt * b, u, t + 0.5 * dt)
        d = self.velocity(x + dt * c, u, t + dt)
        return x + dt / 6.0 * (a + 2.0 * b + 2.0 * c + d)

    def moved(self, x, step: Tangent):
        return x + step

    def difference(self, a, b) -> Tangent:
        return b - a


Cost = Callable[[Dynamics, Time, Point, Controls], Float[Array, ""]]
"""cost(dynamics, t, x, u): per second along the path, u held; at the end without u, which is then all zero."""


class Condition(eqx.Module):
    """Something that has to hold along the path or at its end.

    Attributes:
        function: function(dynamics, t, x, u) -> numbers (m,).
        kind: "zero" for function = 0, "negative" for function <= 0.
        name: for messages.
    """

    function: Callable[[Dynamics, Time, Point, Controls], Float[Array, "m"]]
    kind: Literal["zero", "negative"] = eqx.field(static=True, default="zero")
    name: str = eqx.field(static=True, default="condition")

    def __check_init__(self):
        if self.kind not in ("zero", "negative"):
            raise ValueError(f'condition {self.name!r}: kind is {self.kind!r}; use "zero" or "negative"')


class Design(eqx.Module):
    """Numbers that are chosen together with the controls.

    Attributes:
        place: place(problem, numbers) -> problem with these numbers, such as a length or the duration.
        start: where to begin.
        lower, upper: bounds; none if not given.
    """

    place: Callable[["ControlProblem", Float[Array, "P"]], "ControlProblem"] = eqx.field(static=True)
    start: Float[Array, "P"] = eqx.field(converter=floating)
    lower: Float[Array, "P"] = eqx.field(converter=floating, default=None)
    upper: Float[Array, "P"] = eqx.field(converter=floating, default=None)

    def __init__(self, place, start, lower=None, upper=None):
        self.place, self.start = place, jnp.atleast_1d(floating(start))
        self.lower = _bound(lower, self.start.shape, self.start.dtype, -np.inf)
        self.upper = _bound(upper, self.start.shape, self.start.dtype, np.inf)


class ControlProblem(eqx.Module):
    """An optimal-control problem. Every number is a differentiable leaf.

    Attributes:
        dynamics: the steps.
        initial: x_0.
        duration: T, s.
        steps: N.
        running: costs l per second; their sum counts.
        final: costs phi at the end.
        lower, upper: bounds of the controls; none if not given.
        conditions: along the path, at t_0 to t_{N-1}.
        final_conditions: at the end.
        design: numbers to choose, or None.

    Raises:
        ValueError: a bound has the wrong shape, or lies on the wrong side of the other; there is no step, or no positive duration.
    """

    dynamics: Dynamics
    initial: Point
    duration: Float[Array, ""]
    steps: int = eqx.field(static=True)
    running: tuple[Cost, ...]
    final: tuple[Cost, ...]
    lower: Float[Array, "nu"]
    upper: Float[Array, "nu"]
    conditions: tuple[Condition, ...]
    final_conditions: tuple[Condition, ...]
    design: Design | None

    def __init__(
        self,
        dynamics: Dynamics,
        initial: Point,
        *,
        duration,
        steps: int,
        running=(),
        final=(),
        lower=None,
        upper=None,
        conditions=(),
        final_conditions=(),
        design: Design | None = None,
    ):
        self.dynamics, self.initial, self.steps = dynamics, jax.tree.map(floating, initial), steps
        dtype = jax.tree.leaves(self.initial)[0].dtype
        self.duration = jnp.asarray(duration, dtype)
        self.running, self.final = _several(running), _several(final)
        self.conditions, self.final_conditions = _several(conditions), _several(final_conditions)
        self.lower = _bound(lower, (dynamics.nu,), dtype, -np.inf)
        self.upper = _bound(upper, (dynamics.nu,), dtype, np.inf)
        self.design = design

    def __check_init__(self):
        if self.steps < 1:
            raise ValueError(f"the problem has {self.steps} steps; give 1 or more")
        if not isinstance(self.duration, Tracer) and not np.all(np.asarray(self.duration) > 0):
            raise ValueError(f"the duration is {self.duration} s; give a positive one")
        if not isinstance(self.lower, Tracer) and not isinstance(self.upper, Tracer):
            wrong = np.asarray(self.lower) >= np.asarray(self.upper)
            if wrong.any():
                k = int(np.argmax(wrong.reshape(-1, self.lower.shape[-1]).any(axis=0)))
                raise ValueError(f"control {k}: the lower bound is not below the upper one; exchange them")

    @property
    def dt(self) -> Float[Array, ""]:
        """Length of a step, s."""
        return self.duration / self.steps

    @property
    def size(self) -> int:
        """Number of numbers to design."""
        return 0 if self.design is None else self.design.start.shape[-1]

    def with_design(self, design: Float[Array, "P"]) -> "ControlProblem":
        """The problem with numbers of the design in their places."""
        return self if self.design is None else self.design.place(self, design)


def running_cost(problem: ControlProblem, k: Array, x: Point, u: Controls) -> Float[Array, ""]:
    """h l(t_k, x, u)."""
    t = k.astype(u.dtype) * problem.dt
    return problem.dt * _sum([cost(problem.dynamics, t, x, u) for cost in problem.running], u)


def final_cost(problem: ControlProblem, x: Point) -> Float[Array, ""]:
    """phi(T, x)."""
    none = jnp.zeros_like(problem.lower)
    return _sum([cost(problem.dynamics, problem.duration, x, none) for cost in problem.final], none)


def path_conditions(problem: ControlProblem, k: Array, x: Point, u: Controls) -> Float[Array, "m"]:
    """Numbers that have to be zero or negative at t_k, those of all conditions."""
    t = k.astype(u.dtype) * problem.dt
    return _joined([condition.function(problem.dynamics, t, x, u) for condition in problem.conditions], u)


def end_conditions(problem: ControlProblem, x: Point) -> Float[Array, "m"]:
    """Numbers that have to be zero or negative at the end."""
    none = jnp.zeros_like(problem.lower)
    values = [c.function(problem.dynamics, problem.duration, x, none) for c in problem.final_conditions]
    return _joined(values, none)


def one_sided(conditions: tuple[Condition, ...], evaluate: Callable[[Condition], Any]) -> np.ndarray:
    """Which numbers of conditions may be negative; `evaluate` tells the shapes."""
    kinds = [np.full(eqx.filter_eval_shape(evaluate, c).shape, c.kind == "negative") for c in conditions]
    return np.concatenate([np.zeros(0, bool), *kinds])


def _several(parts) -> tuple:
    return tuple(parts) if isinstance(parts, tuple | list) else (parts,)


def _bound(values, shape, dtype, default: float) -> Array:
    array = jnp.asarray(np.full(shape, default) if values is None else values, dtype)
    if array.ndim == 0:
        array = jnp.broadcast_to(array, shape)
    if array.shape[-1:] != shape[-1:]:
        raise ValueError(f"a bound has shape {array.shape}; give one number, or shape {shape}")
    return array


def _sum(values: list[Array], like: Array) -> Array:
    total = jnp.zeros((), like.dtype)
    for value in values:
        total = total + value
    return total


def _joined(values: list[Array], like: Array) -> Array:
    return jnp.concatenate([jnp.zeros(0, like.dtype), *values])
