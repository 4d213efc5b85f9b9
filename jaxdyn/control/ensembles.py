"""One plan for several machines: problems whose state consists of the states of all machines, which receive the same controls.

    minimize    mean over i, or maximum over i, of the cost of x^i
    subject to  x^i_{k+1} = f^i(x^i_k, u^i_k),   u^i_k = u_k + K_k (x^i_k - x^0_k)  within the bounds

Machine 0 is that of the original problem, and the others are samples, for example of the posterior of a fit. Without feedback all
machines receive the controls u_k of the plan. With gains K_k, the samples are held near the motion x^0 of machine 0, so that x^0,
u and K are the plan that a real machine follows. Source: Mordatch, Lowrey and Todorov 2015.
"""

from collections.abc import Callable, Hashable
from typing import Any, Literal, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.control.plan import Plan, check_problem
from jaxdyn.control.problem import (
    AnyState,
    ControlProblem,
    Controls,
    Cost,
    Design,
    Dynamics,
    Equality,
    ExtendedDynamics,
    Inequality,
    MultibodyDynamics,
    Tangent,
    Time,
)
from jaxdyn.dynamics.system import State, System
from jaxdyn.errors import check_name
from jaxdyn.identify.measurement import Inputs, Plant
from jaxdyn.mechanism.messages import check_instance
from jaxdyn.simulate.controls import Knots
from jaxdyn.simulate.integrators import Integrator


class Ensemble(Dynamics):
    """Dynamics of several machines with common controls. A state is a `State` with a leading axis of the machines.

    Attributes:
        systems: The mechanisms, with a leading axis.
        inputs: Gains and offsets through which the controls act on each machine.
        integrator: One-step method of the time steps.
        lower, upper: Bounds of the controls of each machine.
        feedback: Gains K as a function of time, one row for each time step, or None.
    """

    systems: System
    inputs: Inputs
    integrator: Integrator | None
    lower: Float[Array, "nu"]
    upper: Float[Array, "nu"]
    feedback: Knots | None

    @property
    def count(self) -> int:
        """Number of machines."""
        return self.inputs.gain.shape[0]

    @property
    def nx(self) -> int:
        return MultibodyDynamics(self.systems).nx * self.count

    @property
    def nu(self) -> int:
        return self.systems.nu

    @property
    def units(self) -> tuple[Hashable, ...]:
        return MultibodyDynamics(self.systems).units * self.count

    def of_each(self, function: Callable[..., Any], *args: Any) -> Any:
        """Values of a function of (dynamics of a machine, arguments) for all machines; arguments have a leading axis."""
        return jax.vmap(lambda system, *own: function(MultibodyDynamics(system, self.integrator), *own))(
            self.systems, *args
        )

    def controls(self, x: State, u: Controls, t: Time) -> Float[Array, "machines nu"]:
        """The controls of each machine, before its inputs."""
        if self.feedback is None:
            return jnp.broadcast_to(u, (self.count, self.nu))
        first = jax.tree.map(lambda leaf: leaf[:1], x)
        reference = jax.tree.map(lambda leaf, all: jnp.broadcast_to(leaf, all.shape), first, x)
        away = self.of_each(lambda dynamics, a, b: dynamics.difference(a, b), reference, x)
        K = self.feedback(t).reshape(self.nu, -1)
        return jnp.clip(u[None] + away @ K.T, self.lower[None], self.upper[None])

    def _acting(self, x: State, u: Controls, t: Time) -> Float[Array, "machines nu"]:
        return self.inputs.gain * self.controls(x, u, t) + self.inputs.offset

    def step(self, x: State, u: Controls, t: Time, dt: Time) -> State:
        return self.of_each(lambda dynamics, x, u: dynamics.step(x, u, t, dt), x, self._acting(x, u, t))

    def rate(self, x: State, u: Controls, t: Time) -> Tangent:
        return self.of_each(lambda dynamics, x, u: dynamics.rate(x, u, t), x, self._acting(x, u, t)).ravel()

    def retract(self, x: State, step: Tangent) -> State:
        return self.of_each(lambda dynamics, x, s: dynamics.retract(x, s), x, step.reshape(self.count, -1))

    def difference(self, a: State, b: State) -> Tangent:
        return self.of_each(lambda dynamics, a, b: dynamics.difference(a, b), a, b).ravel()


class _WithCosts(ExtendedDynamics):
    """Dynamics of an ensemble with the state (x, J), where J are the running costs of each machine so far.

    Attributes:
        inner: The ensemble.
        running: Running costs of a machine.
        level: Bound of the cost of each machine, a design parameter.
    """

    inner: Ensemble
    running: tuple[Cost, ...]
    level: Float[Array, ""]

    @property
    def nx(self) -> int:
        return self.inner.nx + self.inner.count

    @property
    def units(self) -> tuple[Hashable, ...]:
        return *self.inner.units, *(("cost",) * self.inner.count)

    def step(self, x: AnyState, u: Controls, t: Time, dt: Time) -> AnyState:
        return self.inner.step(x[0], u, t, dt), x[1] + dt * self._costs(x[0], u, t)

    def rate(self, x: AnyState, u: Controls, t: Time) -> Tangent:
        return jnp.concatenate([self.inner.rate(x[0], u, t), self._costs(x[0], u, t)])

    def _costs(self, x: State, u: Controls, t: Time) -> Float[Array, "machines"]:
        return sum((_OfEach(cost, False).values(self.inner, t, x, u) for cost in self.running), jnp.zeros_like(u[:1]))


class _OfEach(eqx.Module):
    """A cost or constraint of one machine as a function of the ensemble; controls are zero at the end."""

    function: Any
    at_end: bool = eqx.field(static=True)

    def values(self, dynamics: Dynamics, t: Time, x: AnyState, u: Controls) -> Any:
        """The values of all machines, with a leading axis."""
        each, x = (dynamics.inner, x[0]) if isinstance(dynamics, _WithCosts) else (cast(Ensemble, dynamics), x)
        own = jnp.broadcast_to(u, (each.count, each.nu)) if self.at_end else each.controls(x, u, t)
        return each.of_each(lambda dynamics, x, u: self.function(dynamics, t, x, u), x, own)


class _Mean(_OfEach):
    """The mean over all machines."""

    def __call__(self, dynamics: Dynamics, t: Time, x: AnyState, u: Controls) -> Array:
        return jnp.mean(self.values(dynamics, t, x, u), axis=0)


class _MeanOfSquares(_Mean):
    """The mean of a cost with residuals."""

    def residuals(self, dynamics: Dynamics, t: Time, x: AnyState, u: Controls) -> tuple[Array, Array]:
        r, weights = _OfEach(self.function.residuals, self.at_end).values(dynamics, t, x, u)
        return r.ravel(), weights.ravel() / len(r)


class _All(_OfEach):
    """The values of all machines in one vector."""

    def __call__(self, dynamics: Dynamics, t: Time, x: AnyState, u: Controls) -> Array:
        return self.values(dynamics, t, x, u).ravel()


class _Above(eqx.Module):
    """Cost of each machine minus the level; positive for a machine whose cost is larger."""

    final: tuple[Cost, ...]

    def __call__(self, dynamics: _WithCosts, t: Time, x: AnyState, u: Controls) -> Array:
        return sum((_OfEach(cost, True).values(dynamics, t, x, u) for cost in self.final), x[1]) - dynamics.level


def _level(dynamics: _WithCosts, t: Time, x: AnyState, u: Controls) -> Array:
    return dynamics.level


def _with_level(problem: ControlProblem, design: Float[Array, "1"]) -> ControlProblem:
    return eqx.tree_at(lambda problem: problem.dynamics.level, problem, design[0])


def ensemble(
    problem: ControlProblem,
    plants: Plant,
    *,
    feedback: Float[Array, "N nu nx"] | None = None,
    of: Literal["mean", "worst"] = "mean",
) -> ControlProblem:
    """The problem of one plan for a machine and for samples of it, for all solvers.

    The machines are that of the problem and the samples. The cost is the mean or the largest of their costs. Inequality constraints
    hold for each machine, and equality constraints in the mean of all machines, because one plan cannot bring different machines to
    the same state.

    Args:
        problem: Problem of one machine, without design parameters.
        plants: Samples of the machine, as one plant with a leading axis, from `jaxdyn.identify.samples`. The controls act through
            their gains and offsets.
        feedback: Gains K_k of feedback u_k + K_k (x - x_k), within the bounds, by which the machines follow the motion x_k of the
            machine of the problem; such as `tracking_gains` of a plan. None for open-loop control.
        of: Cost of the plan: the "mean" of the costs of all machines, or that of the "worst" one. For the latter, the running costs
            of each machine are additional states, and the only design parameter bounds all costs.

    Returns:
        The problem. `nominal_plan` extracts the motion of the machine of the original problem from a plan.

    Raises:
        TypeError: An argument has the wrong type.
        UnknownName: `of` has another value.
        ValueError: The problem has design parameters, its dynamics are not those of a mechanism, the plants have no leading axis or
            delays, or the gains have the wrong shape.
    """
    check_problem(problem, "ensemble")
    check_name("cost of an ensemble", of, ("mean", "worst"))
    dynamics = _checked(problem, plants)
    wanted = (problem.steps, problem.dynamics.nu, problem.dynamics.nx)
    if feedback is not None and np.shape(feedback) != wanted:
        raise ValueError(f"ensemble: feedback has shape {np.shape(feedback)}; give gains of shape {wanted}")
    one = Inputs(*(jnp.full_like(problem.lower, value) for value in (1.0, 0.0, 0.0)))
    stack = jax.tree.map(
        lambda a, b: jnp.concatenate([a[None], b.astype(a.dtype)]),
        (dynamics.system, one),
        (plants.system, plants.inputs),
    )
    gains = None
    if feedback is not None:
        gains = Knots(jnp.asarray(feedback).reshape(problem.steps, -1), problem.dt, interpolation="zero_order")
    each = Ensemble(stack[0], stack[1], dynamics.method, problem.lower, problem.upper, gains)
    x = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (each.count, *leaf.shape)), problem.initial)

    def costs(parts: tuple[Cost, ...], at_end: bool) -> tuple[Cost, ...]:
        return tuple((_MeanOfSquares if hasattr(part, "residuals") else _Mean)(part, at_end) for part in parts)

    def constraints(parts: tuple[Equality | Inequality, ...], at_end: bool) -> tuple[Equality | Inequality, ...]:
        kinds = {Equality: _Mean, Inequality: _All}
        return tuple(type(part)(kinds[type(part)](part.function, at_end), part.name) for part in parts)

    parts: dict[str, Any] = {"running": costs(problem.running, False), "final": costs(problem.final, True)}
    of_all, ends, design = each, constraints(problem.final_constraints, True), None
    if of == "worst":
        zero = jnp.zeros_like(problem.dt)
        of_all, x = _WithCosts(each, problem.running, zero), (x, jnp.zeros(each.count, zero.dtype))
        parts, ends = {"final": _level}, (*ends, Inequality(cast(Any, _Above(problem.final)), "costs of the machines"))
        design = Design(_with_level, zero)
    return ControlProblem(
        of_all,
        x,
        duration=problem.duration,
        steps=problem.steps,
        lower=problem.lower,
        upper=problem.upper,
        constraints=constraints(problem.constraints, False),
        final_constraints=ends,
        design=design,
        **parts,
    )


def nominal_plan(plan: Plan) -> Plan:
    """The motion of the machine of the original problem, from a plan of `ensemble`; with the gains, real machines follow it."""
    x = plan.states[0] if isinstance(plan.states, tuple) else plan.states
    return Plan(jax.tree.map(lambda leaf: leaf[:, 0], x), plan.controls, plan.design[:0])


def _checked(problem: ControlProblem, plants: Any) -> MultibodyDynamics:
    """The dynamics of the problem of an ensemble, after a check of the arguments."""
    check_instance("ensemble: the argument plants", plants, Plant, "identify.samples(plant, key, count)")
    if not isinstance(problem.dynamics, MultibodyDynamics):
        raise ValueError("ensemble: the dynamics of the problem are not those of a mechanism; give MultibodyDynamics")
    if problem.design is not None:
        raise ValueError(
            "ensemble: the problem has design parameters; fix them first, problem.with_design(plan.design)"
        )
    if plants.inputs.gain.ndim != 2:
        raise ValueError("ensemble: the plants are one machine without a leading axis; give identify.samples(...)")
    if plants.inputs.delayed:
        raise ValueError("ensemble: the inputs of the plants have delays, and a plan acts at once; give plants without")
    if jax.tree.structure(plants.system) != jax.tree.structure(problem.dynamics.system):
        raise ValueError(
            "ensemble: the plants have another structure than the system of the problem; give samples of its plant"
        )
    return problem.dynamics
