"""Optimal-control problems: discrete-time dynamics, costs, bounds, constraints, and design parameters.

    minimize    sum over k < N of h l(t_k, x_k, u_k) + phi(T, x_N),    t_k = k h,  h = T / N
    subject to  x_{k+1} = f(x_k, u_k, t_k, h),   x_0 given,   lower <= u_k <= upper,
                equality constraints g = 0 and inequality constraints g <= 0, along the path and at the end.

The control u_k is constant during time step k. States may lie on manifolds: solvers change them only by `Dynamics.retract` and
compare them only by `Dynamics.difference`, both in tangent coordinates. Design parameters, such as a length, a mass or the duration
T, may be optimized together with the controls.
"""

import abc
import dataclasses
import inspect
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PyTree

from jaxdyn.compute import per_sample, stored_jit, traced_once
from jaxdyn.compute.arrays import floating, on_device
from jaxdyn.display import Display, Displayed, number_text, plural
from jaxdyn.dynamics.equations_of_motion import acceleration, stopped_rates
from jaxdyn.dynamics.system import State, System, check_drive_states, check_state, check_system
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.components import velocity_units
from jaxdyn.mechanism.messages import check_function, check_instance, checked_count, described
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import check_settings, plain
from jaxdyn.simulate.integrators import ImplicitMidpoint, Integrator, RungeKutta4, SemiImplicitEuler

AnyState = PyTree  # `State` of a mechanism, or an array
Tangent = Float[Array, "nx"]
Controls = Float[Array, "nu"]
Time = Float[Array, ""]
STATE_FIELD = {"state": True}
"""Metadata of a field of a cost or constraint that is a state of the dynamics; `ControlProblem` checks its type and shape."""


class Dynamics(eqx.Module):
    """Discrete-time dynamics x_{k+1} = f(x_k, u_k, t_k, dt) on vectors or manifolds.

    Solvers change and compare states only in tangent coordinates, by `retract` and `difference`.

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
        """The state at time t + dt (s), if the state at time t is x and the controls u are constant from t to t + dt."""

    @abc.abstractmethod
    def retract(self, x: AnyState, step: Tangent) -> AnyState:
        """The state that a step in tangent coordinates reaches from x; a zero step returns x."""

    @abc.abstractmethod
    def difference(self, a: AnyState, b: AnyState) -> Tangent:
        """The step from a to b in tangent coordinates, the inverse of `retract`: retract(a, difference(a, b)) = b."""

    @property
    def continuous(self) -> bool:
        """Whether time steps approximate a motion in continuous time, whose `rate` is defined."""
        return type(self).rate is not Dynamics.rate

    @property
    def units(self) -> tuple[Hashable, ...]:
        """A label of each tangent coordinate; coordinates with the same label have the same unit and may be compared."""
        return tuple(range(self.nx))

    @property
    def control_bounds(self) -> tuple[Controls, Controls] | None:
        """Lower and upper bounds beyond which the controls have no effect; None if there are none."""
        return None

    def rate(self, x: AnyState, u: Controls, t: Time) -> Tangent:
        """The time derivative of the state in tangent coordinates at x (1/s), which direct collocation requires.

        Raises:
            TypeError: The dynamics are defined in discrete time only.
        """
        raise TypeError(
            f"{type(self).__name__} has no time derivative of the state, which this solver requires; "
            "use ContinuousDynamics or MultibodyDynamics"
        )


class MultibodyDynamics(Dynamics):
    """Discrete-time dynamics of a mechanism: each time step is one step of an integrator.

    States are instances of `State`. The tangent coordinates of a state are the nv tangent coordinates of the configuration followed
    by the nv velocity components and the nz states of the drives, so nx = 2 nv + nz. The controls are the inputs of the drives of
    the system. A target State(q, v) leaves the states of the drives free.

    Attributes:
        system: The mechanism with its forces, constraints and drives.
        integrator: The one-step method that computes each time step. If it is None, `ControlProblem` chooses it by the length of a
            time step and the stiffness of the system, see `stable_integrator`; elsewhere None means `RungeKutta4()`.
    """

    system: System
    integrator: Integrator | None = None

    def __check_init__(self):
        check_system(self.system, type(self).__name__)
        check_settings(self)

    @property
    def nx(self) -> int:
        return 2 * self.system.model.nv + self.system.nz

    @property
    def nu(self) -> int:
        return self.system.nu

    @property
    def control_bounds(self) -> tuple[Controls, Controls] | None:
        return None if self.system.drives is None else self.system.drives.control_bounds

    def step(self, x: State, u: Controls, t: Time, dt: Time) -> State:
        return _stepped(self.method, self.system, x, u, t, dt)

    def retract(self, x: State, step: Tangent) -> State:
        nv = self.system.model.nv
        z = None if x.z is None else x.z + step[2 * nv :]
        return State(configuration.integrate(self.system.model, x.q, step[:nv]), x.v + step[nv : 2 * nv], z)

    def difference(self, a: State, b: State) -> Tangent:
        off = [configuration.difference(self.system.model, a.q, b.q), b.v - a.v]
        if b.z is not None:
            off.append(jnp.zeros_like(b.z) if a.z is None else b.z - a.z)
        return jnp.concatenate(off)

    @property
    def method(self) -> Integrator:
        """The integrator of the time steps."""
        return RungeKutta4() if self.integrator is None else self.integrator

    @property
    def units(self) -> tuple[Hashable, ...]:
        of_velocities = velocity_units(self.system.model)
        of_drives = tuple(("state of drive", k) for k in range(self.system.nz))
        return tuple(("position", unit) for unit in of_velocities) + of_velocities + of_drives

    def rate(self, x: State, u: Controls, t: Time) -> Tangent:
        rates = stopped_rates(self.system, x, u)
        return jnp.concatenate([x.v, acceleration(self.system, x, u, t), *([] if rates is None else [rates])])


@traced_once
def _stepped(method: Integrator, system: System, x: State, u: Controls, t: Time, dt: Time) -> State:
    """State after one time step with constant controls."""
    return method.step(system, x, lambda time: u, t, dt)[0]


# Growth of an error in one time step, beyond that of the motion, from which an integrator counts as unstable.
_GROWTH = 1.01


def stable_integrator(system: System, states: Sequence[State], dt: float | Float[Array | np.ndarray, ""]) -> Integrator:
    """The first of `RungeKutta4`, `SemiImplicitEuler` and `ImplicitMidpoint` that is stable for a system and a time step.

    The eigenvalues lambda of the linearized equations of motion decide. `RungeKutta4` is stable if
    |1 + z + z^2/2 + z^3/6 + z^4/24| <= max(1, |exp(z)|) for all z = lambda dt, and `SemiImplicitEuler` if no eigenvalue of a
    linearized time step is larger than the largest growth max(1, |exp(z)|) of the motion. Both comparisons allow for 1 %.

    Args:
        system: The mechanism.
        states: States at which the equations are linearized, with zero controls.
        dt: The length of a time step (s).
    """
    stacked = jax.tree.map(lambda *leaves: on_device(np.stack(leaves)), *states)

    def eigenvalues(integrator: Integrator | None) -> np.ndarray:
        dynamics = MultibodyDynamics(system, integrator)
        found = np.asarray(_linearized(dynamics, stacked, on_device(np.asarray(dt, stacked.q.dtype))))
        return np.linalg.eigvals(found[np.isfinite(found).all(axis=(1, 2))])

    z = eigenvalues(None) * float(dt)
    growth = _GROWTH * np.maximum(1.0, np.exp(z.real))
    if np.all(np.abs(1.0 + z * (1.0 + z / 2.0 * (1.0 + z / 3.0 * (1.0 + z / 4.0)))) <= growth):
        return RungeKutta4()
    of_steps = np.abs(eigenvalues(SemiImplicitEuler()))
    return SemiImplicitEuler() if np.max(of_steps, initial=0.0) <= np.max(growth) else ImplicitMidpoint()


@stored_jit
def _linearized(dynamics: MultibodyDynamics, states: State, dt: Time) -> Float[Array, "states nx nx"]:
    """Matrices of the linearized equations of motion, or of the linearized time step if the dynamics have an integrator."""
    u, t = jnp.zeros(dynamics.nu, dt.dtype), jnp.zeros_like(dt)

    def each(x: State) -> Array:
        def change(away: Tangent) -> Tangent:
            there = dynamics.retract(x, away)
            if dynamics.integrator is None:
                return dynamics.rate(there, u, t)
            return dynamics.difference(dynamics.step(x, u, t, dt), dynamics.step(there, u, t, dt))

        return jax.jacfwd(change)(jnp.zeros(dynamics.nx, dt.dtype))

    return jax.vmap(per_sample(each, name="linearized motion"))(states)


class _VectorDynamics(Dynamics):
    """Dynamics whose states are arrays (nx,)."""

    def retract(self, x, step: Tangent):
        return x + step

    def difference(self, a, b) -> Tangent:
        return b - a


class ExtendedDynamics(Dynamics):
    """Dynamics whose states (x, y) consist of the state x of other dynamics and a vector y of further quantities.

    Attributes:
        inner: The dynamics of x, which have the same controls.
    """

    inner: Dynamics

    @property
    def nu(self) -> int:
        return self.inner.nu

    def retract(self, x: AnyState, step: Tangent) -> AnyState:
        return self.inner.retract(x[0], step[: self.inner.nx]), x[1] + step[self.inner.nx :]

    def difference(self, a: AnyState, b: AnyState) -> Tangent:
        return jnp.concatenate([self.inner.difference(a[0], b[0]), b[1] - a[1]])


class DiscreteDynamics(_VectorDynamics):
    """Discrete-time dynamics x_{k+1} = function(x_k, u_k, t_k, dt) whose states are vectors (nx,).

    Attributes:
        function: A function of (x, u, t, dt) that returns the next state (nx,). If this function is an `equinox.Module`, the
            problem is differentiable with respect to the arrays of the function.
        nx: The length of x.
        nu: The length of u.
    """

    function: Callable[[Float[Array, "nx"], Controls, Time, Time], Float[Array, "nx"]]
    nx: int = eqx.field(static=True, converter=plain)  # pyright: ignore[reportIncompatibleMethodOverride]
    nu: int = eqx.field(static=True, converter=plain)  # pyright: ignore[reportIncompatibleMethodOverride]

    def step(self, x, u: Controls, t: Time, dt: Time):
        return self.function(x, u, t, dt)


class ContinuousDynamics(_VectorDynamics):
    """Continuous-time dynamics dx/dt = function(x, u, t) whose states are vectors (nx,).

    Each time step is one step of the classical Runge-Kutta method of order 4.

    Attributes:
        function: A function of (x, u, t) that returns dx/dt (nx,). If this function is an `equinox.Module`, the problem is
            differentiable with respect to the arrays of the function.
        nx: The length of x.
        nu: The length of u.
    """

    function: Callable[[Float[Array, "nx"], Controls, Time], Float[Array, "nx"]]
    nx: int = eqx.field(static=True, converter=plain)  # pyright: ignore[reportIncompatibleMethodOverride]
    nu: int = eqx.field(static=True, converter=plain)  # pyright: ignore[reportIncompatibleMethodOverride]

    def rate(self, x, u: Controls, t: Time) -> Tangent:
        return self.function(x, u, t)

    def step(self, x, u: Controls, t: Time, dt: Time):
        a = self.function(x, u, t)
        b = self.function(x + 0.5 * dt * a, u, t + 0.5 * dt)
        c = self.function(x + 0.5 * dt * b, u, t + 0.5 * dt)
        d = self.function(x + dt * c, u, t + dt)
        return x + dt / 6.0 * (a + 2.0 * b + 2.0 * c + d)


Cost = Callable[[Dynamics, Time, AnyState, Controls], Float[Array, ""]]
"""cost(dynamics, t, x, u): the cost per second along the path, or the cost at the end, where u = 0."""


class Equality(eqx.Module):
    """The constraint function(dynamics, t, x, u) = 0, along the path or at the end (where u = 0).

    Attributes:
        function: Function that returns the values of the constraint (m,).
        name: The name of the constraint in messages.
    """

    function: Callable[[Dynamics, Time, AnyState, Controls], Float[Array, "m"]]
    name: str = eqx.field(static=True, default="equality")


class Inequality(eqx.Module):
    """The constraint function(dynamics, t, x, u) <= 0 in every component, along the path or at the end (where u = 0).

    Attributes:
        function: Function that returns the values of the constraint (m,).
        name: The name of the constraint in messages.
    """

    function: Callable[[Dynamics, Time, AnyState, Controls], Float[Array, "m"]]
    name: str = eqx.field(static=True, default="inequality")


class Design(eqx.Module):
    """Design parameters, which are optimized together with the controls.

    Attributes:
        place: Function place(problem, parameters) that returns the problem with the given values of its design parameters, for
            example with another length or duration.
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


def free_duration(
    initial: float | Float[Array, ""], shortest: float | Float[Array, ""], longest: float | Float[Array, ""]
) -> Design:
    """A design whose only parameter is the duration of the problem.

    Args:
        initial: Initial guess of the duration (s).
        shortest: Lower bound of the duration (s).
        longest: Upper bound of the duration (s).

    Raises:
        ValueError: A bound is not positive, or the bounds are not in ascending order.
    """
    if not isinstance(shortest, Tracer) and not isinstance(longest, Tracer) and not 0.0 < shortest < longest:
        raise ValueError(
            f"free_duration: the bounds are {shortest} s and {longest} s; give positive bounds in ascending order"
        )
    return Design(_with_duration, initial, shortest, longest)


def _with_duration(problem: "ControlProblem", design: Float[Array, "1"]) -> "ControlProblem":
    return eqx.tree_at(lambda problem: problem.duration, problem, design[0])


class ControlProblem(Displayed, eqx.Module):
    """An optimal-control problem. Solutions are differentiable with respect to all arrays of the problem, see `optimal_plan`.

    Attributes:
        dynamics: The discrete-time dynamics f.
        initial: The initial state x_0.
        duration: The duration T (s).
        steps: The number of time steps N.
        running: Running costs (per second along the path); their sum is l.
        final: Final costs; their sum is phi.
        lower: Lower bounds of the controls (nu,); if not given, those at which the drives clip the controls, or else -inf.
        upper: Upper bounds of the controls (nu,); if not given, those at which the drives clip the controls, or else inf.
        constraints: Constraints along the path, at t_0 to t_{N-1}.
        final_constraints: Constraints at the end.
        design: Design parameters, or None.
        cost_scale: Factor by which solvers scale all costs; None for no scaling.

    Raises:
        TypeError: An argument has the wrong type, such as a `System` instead of `MultibodyDynamics`, or a cost does not take the
            arguments (dynamics, t, x, u).
        ValueError: A bound, a state, a cost or a constraint has the wrong shape; a lower bound is not below its upper bound; the
            number of steps is less than 1, or the duration is not positive.
    """

    dynamics: Dynamics
    initial: AnyState
    duration: Float[Array, ""]
    steps: int = eqx.field(static=True, converter=plain)
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
        cost_scale=None,
    ):
        check_dynamics(dynamics, "ControlProblem")
        if isinstance(initial, list):
            initial = floating(initial)
        self.dynamics, self.steps = dynamics, checked_count("steps", steps)
        self.initial = jax.tree.map(floating, initial)
        dtype = jax.tree.leaves(self.initial)[0].dtype
        self.duration = floating(duration).astype(dtype)
        parts = (running, final, constraints, final_constraints)
        self.running, self.final, self.constraints, self.final_constraints = (
            jax.tree.map(lambda leaf: _in_precision(leaf, dtype), _several(part)) for part in parts
        )
        self.dynamics = self._with_integrator()
        least, most = dynamics.control_bounds or (-np.inf, np.inf)
        self.lower = _bound(lower, (dynamics.nu,), dtype, least)
        self.upper = _bound(upper, (dynamics.nu,), dtype, most)
        self.design = design
        self.cost_scale = None if cost_scale is None else floating(cost_scale).astype(dtype)

    def __check_init__(self):
        check_settings(self)
        if not isinstance(self.duration, Tracer) and not np.all(np.asarray(self.duration) > 0):
            raise ValueError(f"the duration is {self.duration} s; give a positive one")
        if not isinstance(self.lower, Tracer) and not isinstance(self.upper, Tracer):
            wrong = np.asarray(self.lower) >= np.asarray(self.upper)
            if wrong.any():
                k = int(np.argmax(wrong.reshape(-1, self.lower.shape[-1]).any(axis=0)))
                raise ValueError(f"control {k}: the lower bound is not below the upper one; exchange them")
        _check_functions(self)

    def _with_integrator(self) -> Dynamics:
        """The dynamics with a stable integrator, if they are those of a mechanism and do not state one.

        The initial state and the targets of costs and constraints decide, between which plans usually begin and end.
        """
        dynamics = self.dynamics
        if not isinstance(dynamics, MultibodyDynamics) or dynamics.integrator is not None:
            return dynamics
        shapes = (dynamics.system.model.nq,), (dynamics.system.model.nv,)
        states = [
            State(x.q, x.v, self.initial.z if x.z is None else x.z)
            for x in (self.initial, *self.targets)
            if isinstance(x, State) and (np.shape(x.q), np.shape(x.v)) == shapes
        ]
        if not states or any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((dynamics, states, self.duration))):
            return dynamics
        return MultibodyDynamics(
            dynamics.system, stable_integrator(dynamics.system, states, float(self.duration) / self.steps)
        )

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
            rows = {"system": dynamics.system._display().title, "integrator": repr(dynamics.method)} | rows
        return Display(f"ControlProblem({type(dynamics).__name__}, nx = {dynamics.nx}, nu = {dynamics.nu})", rows)

    @property
    def dt(self) -> Float[Array, ""]:
        """The length h of a time step (s)."""
        return self.duration / self.steps

    @property
    def targets(self) -> list[AnyState]:
        """The states that costs and constraints contain as fields, such as those that the plan should reach."""
        terms = (*self.running, *self.final, *(c.function for c in (*self.constraints, *self.final_constraints)))
        return [getattr(term, field) for term in terms for field in _state_fields(term)]

    @property
    def size(self) -> int:
        """The number of design parameters."""
        return 0 if self.design is None else self.design.initial.shape[-1]

    @property
    def design_bounds(self) -> tuple[Float[Array, "P"], Float[Array, "P"]]:
        """Lower and upper bounds of the design parameters; empty if there are none."""
        none = jnp.zeros(0, self.lower.dtype)
        return (none, none) if self.design is None else (self.design.lower, self.design.upper)

    def with_design(self, design: Float[Array, "P"]) -> "ControlProblem":
        """The problem with the given values of its design parameters (P,)."""
        return self if self.design is None else self.design.place(self, design).with_cost_scale(self.cost_scale)

    def with_cost_scale(self, scale: Float[Array, ""] | None) -> "ControlProblem":
        """The problem with all costs multiplied by a factor; None removes the factor."""
        return eqx.tree_at(lambda problem: problem.cost_scale, self, scale, is_leaf=lambda leaf: leaf is None)


def _in_precision(leaf: Any, dtype: np.dtype) -> Any:
    """An array of a cost or of a constraint in the precision of the problem; other leaves as they are."""
    return leaf.astype(dtype) if eqx.is_inexact_array(leaf) and leaf.dtype != dtype else leaf


def running_cost(problem: ControlProblem, k: Array, x: AnyState, u: Controls) -> Float[Array, ""]:
    """The cost h l(t_k, x, u) of time step k."""
    t = k.astype(u.dtype) * problem.dt
    return _scaled(problem, problem.dt * _sum([cost(problem.dynamics, t, x, u) for cost in problem.running], u))


def final_cost(problem: ControlProblem, x: AnyState) -> Float[Array, ""]:
    """The cost phi(T, x) at the end."""
    none = jnp.zeros_like(problem.lower)
    return _scaled(problem, _sum([cost(problem.dynamics, problem.duration, x, none) for cost in problem.final], none))


class SplitCost(NamedTuple):
    """A cost, split into rest + 1/2 sum of w_i r_i^2.

    Attributes:
        rest: Sum of the costs that are not sums of squares.
        residuals: Residuals r of the costs that are sums of squares (`LeastSquares`).
        weights: Weights w of the residuals.
    """

    rest: Float[Array, ""]
    residuals: Float[Array, "m"]
    weights: Float[Array, "m"]


def split_running_cost(problem: ControlProblem, k: Array, x: AnyState, u: Controls) -> SplitCost:
    """The cost of time step k, `running_cost`, split into residuals and rest."""
    return _split(problem, problem.running, k.astype(u.dtype) * problem.dt, x, u, problem.dt)


def split_final_cost(problem: ControlProblem, x: AnyState) -> SplitCost:
    """The cost at the end, `final_cost`, split into residuals and rest."""
    none = jnp.zeros_like(problem.lower)
    return _split(problem, problem.final, problem.duration, x, none, jnp.ones_like(problem.dt))


def _split(problem: ControlProblem, costs, t: Array, x: AnyState, u: Controls, factor: Array) -> SplitCost:
    """The residuals of costs that have any; the factor of all costs is part of the residuals, since it may be a design."""
    squares = [cost.residuals(problem.dynamics, t, x, u) for cost in costs if hasattr(cost, "residuals")]
    rest = _sum([cost(problem.dynamics, t, x, u) for cost in costs if not hasattr(cost, "residuals")], u)
    root = jnp.sqrt(_scaled(problem, factor))
    residuals, weights = (_joined([pair[k] for pair in squares], u) for k in (0, 1))
    return SplitCost(_scaled(problem, factor * rest), root * residuals, weights)


def path_constraints(problem: ControlProblem, k: Array, x: AnyState, u: Controls) -> Float[Array, "m"]:
    """The values of all path constraints at t_k, in one vector (m,)."""
    t = k.astype(u.dtype) * problem.dt
    return _joined([constraint.function(problem.dynamics, t, x, u) for constraint in problem.constraints], u)


def end_constraints(problem: ControlProblem, x: AnyState) -> Float[Array, "m"]:
    """The values of all final constraints, in one vector (e,)."""
    none = jnp.zeros_like(problem.lower)
    values = [c.function(problem.dynamics, problem.duration, x, none) for c in problem.final_constraints]
    return _joined(values, none)


def inequalities(problem: ControlProblem) -> tuple[np.ndarray, np.ndarray]:
    """Masks of the components of the path constraints (m,) and of the final constraints (e,) that belong to inequalities."""
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
    """Check that an argument is an instance of `Dynamics`.

    Raises:
        TypeError: The argument has another type; the message states how to construct dynamics from it.
    """
    if isinstance(dynamics, Dynamics):
        return
    remedy = {System: "MultibodyDynamics(system)", Model: "MultibodyDynamics(System(model))"}.get(
        type(dynamics), "an instance of MultibodyDynamics, ContinuousDynamics or DiscreteDynamics"
    )
    what = described(dynamics) if isinstance(dynamics, type) else type(dynamics).__name__
    raise TypeError(f"{where}: dynamics is {what}; pass {remedy}")


def check_start(dynamics: Dynamics, state: Any, name: str, *, target: bool = False) -> None:
    """Check the type and shape of a state of a mechanism; states of other dynamics are not checked.

    Args:
        dynamics: Dynamics to which the state belongs.
        state: The state to check.
        name: Name of the called function or of the cost, for the message.
        target: Whether the state may lack states of drives.

    Raises:
        TypeError: The state of a mechanism is not a `State`.
        ValueError: The state has the wrong shape.
    """
    if isinstance(dynamics, MultibodyDynamics):
        check_state(dynamics.system, state, name)
        if not target:
            check_drive_states(dynamics.system, state.z)


def _state_fields(function: Any) -> list[str]:
    """Names of the fields of a cost or constraint that are states."""
    fields = dataclasses.fields(function) if dataclasses.is_dataclass(function) else ()
    return [field.name for field in fields if field.metadata.get("state") and getattr(function, field.name) is not None]


def _check_functions(problem: ControlProblem) -> None:
    """Check types and shapes of the initial state, costs and constraints by abstract evaluation, without computing values."""
    dynamics, x, u = problem.dynamics, problem.initial, jax.ShapeDtypeStruct(problem.lower.shape, problem.lower.dtype)
    if isinstance(dynamics, MultibodyDynamics):
        check_instance("initial", x, State, "State(q, v)")
        shapes, wanted = (x.q.shape, x.v.shape), ((dynamics.system.model.nq,), (dynamics.system.model.nv,))
        if shapes != wanted:
            raise ValueError(f"q and v of initial have shapes {shapes}; give {wanted}")
        check_start(dynamics, x, "initial")
    elif isinstance(dynamics, _VectorDynamics):
        if jnp.shape(x) != (dynamics.nx,):
            raise ValueError(f"initial has shape {jnp.shape(x)}; give ({dynamics.nx},), the length nx of a state")
        arguments = (x, u, *[problem.duration] * (2 if isinstance(dynamics, DiscreteDynamics) else 1))
        names = "x, u, t, dt" if isinstance(dynamics, DiscreteDynamics) else "x, u, t"
        function = dynamics.function  # pyright: ignore[reportAttributeAccessIssue]
        shape = _shape(f"function of {type(dynamics).__name__}", function, names, arguments)
        if shape != (dynamics.nx,):
            raise ValueError(f"function of {type(dynamics).__name__} returns shape {shape}; return ({dynamics.nx},)")
    parts = {"running cost": problem.running, "final cost": problem.final}
    parts |= {"constraint": problem.constraints, "final constraint": problem.final_constraints}
    for where, functions in parts.items():
        is_cost = where.endswith("cost")
        part: Any
        for k, part in enumerate(functions, start=1):
            if not is_cost and not isinstance(part, Equality | Inequality):
                raise TypeError(f"{where} {k} is {_name(part)}; wrap the function in Equality or Inequality")
            function = part if is_cost else part.function
            what = f"{where} {k}, {_name(part) if is_cost else repr(part.name)},"
            for name in _state_fields(function):
                check_start(dynamics, getattr(function, name), _name(function), target=True)
            shape = _shape(what, function, _ARGUMENTS, (dynamics, problem.duration, x, u))
            if len(shape) != (0 if is_cost else 1):
                wanted = "a scalar, for example by jnp.sum" if is_cost else "a vector, for example by jnp.stack"
                raise ValueError(f"{what} returns shape {shape}; return {wanted}")


_ARGUMENTS = "dynamics, t, x, u"


def _name(function: Any) -> str:
    named = function if inspect.isroutine(function) or isinstance(function, type) else type(function)
    return f"{'the class ' if isinstance(function, type) else ''}{named.__name__}"


def _shape(what: str, function: Any, names: str, arguments: tuple) -> tuple[int, ...]:
    """The shape of the array that a function of the user returns; errors name the function and its required arguments."""
    check_function(what, function, names)
    found = eqx.filter_eval_shape(function, *arguments)
    if not hasattr(found, "shape"):
        raise TypeError(f"{what} returns {type(found).__name__}; return one array")
    return found.shape


def _several(parts) -> tuple:
    return tuple(parts) if isinstance(parts, tuple | list) else (parts,)


def _bound(values, shape, dtype, default: float | Array) -> Array:
    given: Any = default if values is None else values
    array = floating(np.full(shape, given) if isinstance(given, int | float) else given).astype(dtype)
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
