"""Optimal-control problems: dynamics in time steps, costs, bounds, constraints, and design parameters.

    minimize    sum over k < N of h l(t_k, x_k, u_k) + phi(T, x_N),    t_k = k h,  h = T / N
    subject to  x_{k+1} = f(x_k, u_k, t_k, h),   x_0 given,   lower <= u_k <= upper,
                equality constraints g = 0 and inequality constraints g <= 0, along the path and at the end.

States may lie on manifolds: solvers change them only by `Dynamics.retract` and compare them only by `Dynamics.difference`, both
in tangent coordinates. Design parameters, such as a length, a mass or the duration T, may be optimized together with the controls.
"""

import abc
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PyTree

from jaxdyn.deprecated import refuse_renamed
from jaxdyn.display import Display, Displayed, number_text, plural
from jaxdyn.dynamics.system import State, System, acceleration
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.model import Model
from jaxdyn.simulate.integrators import Integrator, RungeKutta4
from jaxdyn.spatial.arrays import floating

AnyState = PyTree  # `State` of a mechanism, or an array
Tangent = Float[Array, "nx"]
Controls = Float[Array, "nu"]
Time = Float[Array, ""]


class Dynamics(eqx.Module):
    """Dynamics in time steps, whose states are changed and compared in tangent coordinates.

    Attributes:
        nx: The number of tangent coordinates of a state.
        nu: The number of controls.
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
    def step(self, x: AnyState, u: Controls, t: Time, dt: Time) -> AnyState:
        """The state after a step from x at time t, s, of length dt, s, during which the controls u are constant."""

    @abc.abstractmethod
    def retract(self, x: AnyState, step: Tangent) -> AnyState:
        """The state that is reached from x by a step in tangent coordinates."""

    @abc.abstractmethod
    def difference(self, a: AnyState, b: AnyState) -> Tangent:
        """The step from a to b in tangent coordinates: retract(a, difference(a, b)) = b."""

    def rate(self, x: AnyState, u: Controls, t: Time) -> Tangent:
        """The time derivative of the state in tangent coordinates at x, per second; collocation needs it.

        Raises:
            TypeError: These dynamics are known in time steps only.
        """
        raise TypeError(
            f"{type(self).__name__} has steps and no rates; use ContinuousDynamics or MultibodyDynamics with this solver"
        )


class MultibodyDynamics(Dynamics):
    """Time steps of a mechanism. A state is a `State`; its tangent coordinates are those of the configuration, then the velocities.

    Attributes:
        system: The mechanism with its forces and drives.
        integrator: The one-step method that makes each time step.
    """

    system: System
    integrator: Integrator = RungeKutta4()

    @property
    def nx(self) -> int:
        return 2 * self.system.model.nv

    @property
    def nu(self) -> int:
        return self.system.nu

    def step(self, x: State, u: Controls, t: Time, dt: Time) -> State:
        return self.integrator.step(self.system, x, lambda time: u, t, dt)[0]

    def retract(self, x: State, step: Tangent) -> State:
        nv = self.system.model.nv
        return State(configuration.integrate(self.system.model, x.q, step[:nv]), x.v + step[nv:])

    def difference(self, a: State, b: State) -> Tangent:
        return jnp.concatenate([configuration.difference(self.system.model, a.q, b.q), b.v - a.v])

    def rate(self, x: State, u: Controls, t: Time) -> Tangent:
        return jnp.concatenate([x.v, acceleration(self.system, x, u, t)])


class _VectorDynamics(Dynamics):
    """Dynamics whose states are arrays (nx,)."""

    def retract(self, x, step: Tangent):
        return x + step

    def difference(self, a, b) -> Tangent:
        return b - a


class DiscreteDynamics(_VectorDynamics):
    """Dynamics x_{k+1} = function(x_k, u_k, t_k, dt) whose states are arrays.

    Attributes:
        function: A function of (x, u, t, dt) that returns the next state (nx,), or a module whose arrays are differentiable.
        nx: The length of x.
        nu: The length of u.
    """

    function: Callable[[Float[Array, "nx"], Controls, Time, Time], Float[Array, "nx"]]
    nx: int = eqx.field(static=True)  # pyright: ignore[reportIncompatibleMethodOverride]
    nu: int = eqx.field(static=True)  # pyright: ignore[reportIncompatibleMethodOverride]

    def step(self, x, u: Controls, t: Time, dt: Time):
        return self.function(x, u, t, dt)


class ContinuousDynamics(_VectorDynamics):
    """Dynamics dx/dt = function(x, u, t) whose states are arrays; each time step is one step of the classical Runge-Kutta method.

    Attributes:
        function: A function of (x, u, t) that returns dx/dt (nx,), or a module whose arrays are differentiable.
        nx: The length of x.
        nu: The length of u.
    """

    function: Callable[[Float[Array, "nx"], Controls, Time], Float[Array, "nx"]]
    nx: int = eqx.field(static=True)  # pyright: ignore[reportIncompatibleMethodOverride]
    nu: int = eqx.field(static=True)  # pyright: ignore[reportIncompatibleMethodOverride]

    def rate(self, x, u: Controls, t: Time) -> Tangent:
        return self.function(x, u, t)

    def step(self, x, u: Controls, t: Time, dt: Time):
        a = self.function(x, u, t)
        b = self.function(x + 0.5 * dt * a, u, t + 0.5 * dt)
        c = self.function(x + 0.5 * dt * b, u, t + 0.5 * dt)
        d = self.function(x + dt * c, u, t + dt)
        return x + dt / 6.0 * (a + 2.0 * b + 2.0 * c + d)


Cost = Callable[[Dynamics, Time, AnyState, Controls], Float[Array, ""]]
"""cost(dynamics, t, x, u) per second along the path, with u constant over the step; at the end u is zero."""


class Equality(eqx.Module):
    """The constraint function(dynamics, t, x, u) = 0, along the path or at the end.

    Attributes:
        function: It returns the values of the constraint, an array (m,).
        name: The name of the constraint in messages.
    """

    function: Callable[[Dynamics, Time, AnyState, Controls], Float[Array, "m"]]
    name: str = eqx.field(static=True, default="equality")


class Inequality(eqx.Module):
    """The constraint function(dynamics, t, x, u) <= 0 in every component, along the path or at the end.

    Attributes:
        function: It returns the values of the constraint, an array (m,).
        name: The name of the constraint in messages.
    """

    function: Callable[[Dynamics, Time, AnyState, Controls], Float[Array, "m"]]
    name: str = eqx.field(static=True, default="inequality")


class Design(eqx.Module):
    """Design parameters, which are optimized together with the controls.

    Attributes:
        place: place(problem, parameters) returns the problem with these parameters, such as a length or the duration.
        initial: The initial guess of the parameters (P,).
        lower: Lower bounds of the parameters (P,); -inf if not given.
        upper: Upper bounds of the parameters (P,); inf if not given.
    """

    place: Callable[["ControlProblem", Float[Array, "P"]], "ControlProblem"] = eqx.field(static=True)
    initial: Float[Array, "P"] = eqx.field(converter=floating)
    lower: Float[Array, "P"] = eqx.field(converter=floating, default=None)
    upper: Float[Array, "P"] = eqx.field(converter=floating, default=None)

    def __init__(self, place, initial, lower=None, upper=None):
        self.place, self.initial = place, jnp.atleast_1d(floating(initial))
        self.lower = _bound(lower, self.initial.shape, self.initial.dtype, -np.inf)
        self.upper = _bound(upper, self.initial.shape, self.initial.dtype, np.inf)


class ControlProblem(Displayed, eqx.Module):
    """An optimal-control problem. All its arrays are differentiable.

    Attributes:
        dynamics: The dynamics in time steps.
        initial: The initial state x_0.
        duration: The duration T, s.
        steps: Number of time steps N.
        running: Costs l per second along the path; their sum counts.
        final: Costs phi at the end; their sum counts.
        lower: Lower bounds of the controls (nu,); -inf if not given.
        upper: Upper bounds of the controls (nu,); inf if not given.
        constraints: Constraints along the path, at t_0 to t_{N-1}.
        final_constraints: Constraints at the end.
        design: Design parameters, or None.
        cost_scale: The factor by which a solver multiplies all costs; None for no factor.

    Raises:
        TypeError: An argument has the wrong type, such as a `System` instead of `MultibodyDynamics`, or a cost takes other
            arguments than (dynamics, t, x, u).
        ValueError: A bound, a state, a cost or a constraint has the wrong shape; lower bounds are not below upper ones; there is
            no step, or the duration is not positive.
    """

    dynamics: Dynamics
    initial: AnyState
    duration: Float[Array, ""]
    steps: int = eqx.field(static=True)
    running: tuple[Cost, ...]
    final: tuple[Cost, ...]
    lower: Float[Array, "nu"]
    upper: Float[Array, "nu"]
    constraints: tuple[Equality | Inequality, ...]
    final_constraints: tuple[Equality | Inequality, ...]
    design: Design | None
    cost_scale: Float[Array, ""] | None

    def __init__(
        self,
        dynamics: Dynamics,
        initial: AnyState,
        *,
        duration,
        steps: int,
        running=(),
        final=(),
        lower=None,
        upper=None,
        constraints=(),
        final_constraints=(),
        design: Design | None = None,
        **renamed,
    ):
        refuse_renamed("ControlProblem", renamed, conditions="constraints", final_conditions="final_constraints")
        check_dynamics(dynamics, "ControlProblem")
        if isinstance(initial, list):
            initial = floating(initial)
        self.dynamics, self.initial, self.steps = dynamics, jax.tree.map(floating, initial), steps
        dtype = jax.tree.leaves(self.initial)[0].dtype
        self.duration = jnp.asarray(duration, dtype)
        self.running, self.final = _several(running), _several(final)
        self.constraints, self.final_constraints = _several(constraints), _several(final_constraints)
        self.lower = _bound(lower, (dynamics.nu,), dtype, -np.inf)
        self.upper = _bound(upper, (dynamics.nu,), dtype, np.inf)
        self.design, self.cost_scale = design, None

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
        _check_functions(self)

    def _display(self) -> Display:
        dynamics = self.dynamics
        rows = {"duration": f"{number_text(self.duration, 's')} in {plural(self.steps, 'step', 'steps')}"}
        for label, parts in (("running", self.running), ("final", self.final)):
            rows[f"{label} costs"] = ", ".join(_name(cost) for cost in parts) or "none"
        for label, parts in (("constraints", self.constraints), ("final constraints", self.final_constraints)):
            rows[label] = ", ".join(constraint.name for constraint in parts) or "none"
        if self.size:
            rows["design"] = plural(self.size, "parameter", "parameters")
        if isinstance(dynamics, MultibodyDynamics):
            rows = {"system": dynamics.system._display().title, "integrator": repr(dynamics.integrator)} | rows
        return Display(f"ControlProblem({type(dynamics).__name__}, nx = {dynamics.nx}, nu = {dynamics.nu})", rows)

    @property
    def dt(self) -> Float[Array, ""]:
        """The length of a time step, s."""
        return self.duration / self.steps

    @property
    def size(self) -> int:
        """The number of design parameters."""
        return 0 if self.design is None else self.design.initial.shape[-1]

    def with_design(self, design: Float[Array, "P"]) -> "ControlProblem":
        """The problem with these values of its design parameters (P,)."""
        return self if self.design is None else self.design.place(self, design).with_cost_scale(self.cost_scale)

    def with_cost_scale(self, scale: Float[Array, ""] | None) -> "ControlProblem":
        """The problem whose costs are multiplied by a factor."""
        return eqx.tree_at(lambda problem: problem.cost_scale, self, scale, is_leaf=lambda leaf: leaf is None)


def running_cost(problem: ControlProblem, k: Array, x: AnyState, u: Controls) -> Float[Array, ""]:
    """The cost h l(t_k, x, u) of time step k."""
    t = k.astype(u.dtype) * problem.dt
    return _scaled(problem, problem.dt * _sum([cost(problem.dynamics, t, x, u) for cost in problem.running], u))


def final_cost(problem: ControlProblem, x: AnyState) -> Float[Array, ""]:
    """The cost phi(T, x) at the end."""
    none = jnp.zeros_like(problem.lower)
    return _scaled(problem, _sum([cost(problem.dynamics, problem.duration, x, none) for cost in problem.final], none))


def path_constraints(problem: ControlProblem, k: Array, x: AnyState, u: Controls) -> Float[Array, "m"]:
    """The values of all constraints along the path at t_k."""
    t = k.astype(u.dtype) * problem.dt
    return _joined([constraint.function(problem.dynamics, t, x, u) for constraint in problem.constraints], u)


def end_constraints(problem: ControlProblem, x: AnyState) -> Float[Array, "m"]:
    """The values of all constraints at the end."""
    none = jnp.zeros_like(problem.lower)
    values = [c.function(problem.dynamics, problem.duration, x, none) for c in problem.final_constraints]
    return _joined(values, none)


def inequalities(problem: ControlProblem) -> tuple[np.ndarray, np.ndarray]:
    """Which components of the constraints along the path (m,) and at the end (e,) belong to inequalities."""
    u = jnp.zeros_like(problem.lower)

    def mask(constraints) -> np.ndarray:
        shapes = [
            eqx.filter_eval_shape(c.function, problem.dynamics, problem.duration, problem.initial, u).shape
            for c in constraints
        ]
        parts = [np.full(shape, isinstance(c, Inequality)) for c, shape in zip(constraints, shapes, strict=True)]
        return np.concatenate([np.zeros(0, bool), *parts])

    return mask(problem.constraints), mask(problem.final_constraints)


def check_dynamics(dynamics: Any, where: str) -> None:
    """Refuse an argument that is not an instance of `Dynamics`.

    Raises:
        TypeError: The argument has another type; the message states how to make dynamics from it.
    """
    if isinstance(dynamics, Dynamics):
        return
    what = "the class " + dynamics.__name__ if isinstance(dynamics, type) else type(dynamics).__name__
    remedy = {System: "MultibodyDynamics(system)", Model: "MultibodyDynamics(System(model))"}.get(
        type(dynamics), "an instance of MultibodyDynamics, ContinuousDynamics or DiscreteDynamics"
    )
    raise TypeError(f"{where}: dynamics is {what}; pass {remedy}")


def _check_functions(problem: ControlProblem) -> None:
    """Refuse an initial state, costs and constraints that do not fit the dynamics, without computing anything."""
    dynamics, x, u = problem.dynamics, problem.initial, jnp.zeros_like(problem.lower)
    if isinstance(dynamics, MultibodyDynamics):
        if not isinstance(x, State):
            raise TypeError(f"initial is {type(x).__name__}; pass State(q, v)")
        shapes, wanted = (x.q.shape, x.v.shape), ((dynamics.system.model.nq,), (dynamics.system.model.nv,))
        if shapes != wanted:
            raise ValueError(f"q and v of initial have shapes {shapes}; give {wanted}")
    elif isinstance(dynamics, _VectorDynamics):
        if jnp.shape(x) != (dynamics.nx,):
            raise ValueError(f"initial has shape {jnp.shape(x)}; give ({dynamics.nx},), the length nx of a state")
        arguments = (x, u, problem.duration) + ((problem.dt,) if isinstance(dynamics, DiscreteDynamics) else ())
        names = "x, u, t, dt" if isinstance(dynamics, DiscreteDynamics) else "x, u, t"
        function = dynamics.function  # pyright: ignore[reportAttributeAccessIssue]
        shape = _shape(f"function of {type(dynamics).__name__}", function, names, arguments)
        if shape != (dynamics.nx,):
            raise ValueError(f"function of {type(dynamics).__name__} returns shape {shape}; return ({dynamics.nx},)")
    for where, costs in (("running", problem.running), ("final", problem.final)):
        for k, cost in enumerate(costs, start=1):
            what = f"{where} cost {k}, {_name(cost)},"
            shape = _shape(what, cost, _ARGUMENTS, (dynamics, problem.duration, x, u))
            if shape != ():
                raise ValueError(f"{what} returns shape {shape}; return a scalar, for example by jnp.sum")
    for where, constraints in (("constraint", problem.constraints), ("final constraint", problem.final_constraints)):
        for k, constraint in enumerate(constraints, start=1):
            if not isinstance(constraint, Equality | Inequality):
                raise TypeError(f"{where} {k} is {_name(constraint)}; wrap the function in Equality or Inequality")
            what = f"{where} {k}, {constraint.name!r},"
            shape = _shape(what, constraint.function, _ARGUMENTS, (dynamics, problem.duration, x, u))
            if len(shape) != 1:
                raise ValueError(f"{what} returns shape {shape}; return a vector, for example by jnp.stack")


_ARGUMENTS = "dynamics, t, x, u"


def _name(function: Any) -> str:
    named = function if inspect.isroutine(function) or isinstance(function, type) else type(function)
    return f"{'the class ' if isinstance(function, type) else ''}{named.__name__}"


def _shape(what: str, function: Any, names: str, arguments: tuple) -> tuple[int, ...]:
    """The shape that a user's function returns; errors name the function and say how it is called."""
    if isinstance(function, type):
        raise TypeError(f"{what} is a class; pass an instance")
    if not callable(function):
        raise TypeError(f"{what} is not a function; pass a function of ({names})")
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        raise TypeError(f"{what} does not take the arguments {names}; define it with these") from None
    except ValueError:  # functions of other languages have no signature
        pass
    found = eqx.filter_eval_shape(function, *arguments)
    if not hasattr(found, "shape"):
        raise TypeError(f"{what} returns {type(found).__name__}; return one array")
    return found.shape


def _several(parts) -> tuple:
    return tuple(parts) if isinstance(parts, tuple | list) else (parts,)


def _bound(values, shape, dtype, default: float) -> Array:
    array = jnp.asarray(np.full(shape, default) if values is None else values, dtype)
    if array.ndim == 0:
        array = jnp.broadcast_to(array, shape)
    if array.shape[-1:] != shape[-1:]:
        raise ValueError(f"a bound has shape {array.shape}; give a scalar, or shape {shape}")
    return array


def _scaled(problem: ControlProblem, cost: Array) -> Array:
    return cost if problem.cost_scale is None else problem.cost_scale * cost


def _sum(values: list[Array], like: Array) -> Array:
    total = jnp.zeros((), like.dtype)
    for value in values:
        total = total + value
    return total


def _joined(values: list[Array], like: Array) -> Array:
    return jnp.concatenate([jnp.zeros(0, like.dtype), *values])
