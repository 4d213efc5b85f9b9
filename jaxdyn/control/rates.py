"""Problems whose controls are the rates of change of the original controls, so that costs and bounds can apply to these rates.

The state is augmented by the original controls: (x, u) with u_{k+1} = u_k + h r_k, and the rates r are the new controls.
"""

import dataclasses
from collections.abc import Hashable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.control.costs import Effort
from jaxdyn.control.plan import Plan
from jaxdyn.control.problem import (
    AnyState,
    ControlProblem,
    Controls,
    Dynamics,
    Equality,
    ExtendedDynamics,
    Inequality,
    Tangent,
    Time,
)
from jaxdyn.mechanism.quantity import check_settings


class WithRates(ExtendedDynamics):
    """Dynamics with the augmented state (x, u), whose controls are the rates r of u.

    In discrete time u is constant during a step and jumps by dt r at the end of the step. In continuous time du/dt = r.

    Attributes:
        inner: The original dynamics of x with controls u.
    """

    def __check_init__(self):
        check_settings(self)

    @property
    def nx(self) -> int:
        return self.inner.nx + self.inner.nu

    @property
    def continuous(self) -> bool:
        return self.inner.continuous

    @property
    def units(self) -> tuple[Hashable, ...]:
        return *self.inner.units, *(("control", k) for k in range(self.nu))

    def step(self, x: AnyState, u: Controls, t: Time, dt: Time) -> AnyState:
        state, held = x
        return self.inner.step(state, held, t, dt), held + dt * u

    def rate(self, x: AnyState, u: Controls, t: Time) -> Tangent:
        return jnp.concatenate([self.inner.rate(x[0], x[1], t), u])


class _OfInner(eqx.Module):
    """A cost or constraint of the original problem as a function of the augmented state; controls are zero at the end."""

    function: Any
    at_end: bool = eqx.field(static=True)

    def _arguments(self, dynamics: WithRates, t: Time, x: AnyState, u: Controls):
        return dynamics.inner, t, x[0], u if self.at_end else x[1]

    def __call__(self, dynamics: WithRates, t: Time, x: AnyState, u: Controls) -> Array:
        return self.function(*self._arguments(dynamics, t, x, u))


class _SquaresOfInner(_OfInner):
    """A cost of the original problem with its residuals."""

    def residuals(self, dynamics: WithRates, t: Time, x: AnyState, u: Controls) -> tuple[Array, Array]:
        return self.function.residuals(*self._arguments(dynamics, t, x, u))


def _costs_of_inner(costs: tuple[Any, ...], at_end: bool) -> tuple[_OfInner, ...]:
    return tuple((_SquaresOfInner if hasattr(cost, "residuals") else _OfInner)(cost, at_end) for cost in costs)


def _constraints_of_inner(
    constraints: tuple[Equality | Inequality, ...], at_end: bool
) -> tuple[Equality | Inequality, ...]:
    return tuple(type(c)(cast(Any, _OfInner(c.function, at_end)), c.name) for c in constraints)


def with_rates(
    problem: ControlProblem,
    weights: Float[Array, "nu"] | float,
    controls: Float[Array, "nu"] | float = 0.0,
    *,
    lower: Float[Array, "nu"] | float | None = None,
    upper: Float[Array, "nu"] | float | None = None,
) -> ControlProblem:
    """The problem with the rates r = du/dt of the controls as new controls, and the additional running cost 1/2 sum of w_i r_i^2.

    The state of the new problem is (x, u). Bounds of the original controls become inequality constraints along the path.

    Args:
        problem: The original problem.
        weights: The weights w, one for each control (nu,) or one value for all.
        controls: The original controls u_0 of the first time step, one for each control (nu,) or one value for all.
        lower: Lower bounds of the rates, one for each control (nu,) or one value for all; -inf if not given.
        upper: Upper bounds of the rates, one for each control (nu,) or one value for all; inf if not given.

    Returns:
        The new problem. From the states of the new problem, `without_rates` extracts the original states and controls.
    """
    nu, dtype = problem.dynamics.nu, problem.lower.dtype
    bounds = ()
    for bound, sign in ((problem.lower, -1.0), (problem.upper, 1.0)):
        rows = tuple(np.flatnonzero(np.isfinite(bound)).tolist())
        if rows:
            bounds = (*bounds, Inequality(_Beyond(bound, sign, rows), "bounds of controls"))
    return dataclasses.replace(
        problem,
        dynamics=WithRates(problem.dynamics),
        initial=(problem.initial, jnp.broadcast_to(jnp.asarray(controls, dtype), (nu,))),
        running=(*_costs_of_inner(problem.running, at_end=False), Effort(weights)),
        final=_costs_of_inner(problem.final, at_end=True),
        lower=lower,
        upper=upper,
        constraints=(*_constraints_of_inner(problem.constraints, at_end=False), *bounds),
        final_constraints=_constraints_of_inner(problem.final_constraints, at_end=True),
    )


class _Beyond(eqx.Module):
    """Values of the inequality constraints that keep the original controls within a bound; positive outside of it."""

    bound: Float[Array, "nu"]
    sign: float = eqx.field(static=True)
    rows: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, dynamics: Dynamics, t: Time, x: AnyState, u: Controls) -> Array:
        return (self.sign * (x[1] - self.bound))[jnp.array(self.rows)]


def without_rates(states: AnyState) -> tuple[AnyState, Float[Array, "N nu"]]:
    """The states x_0 to x_N and controls u_0 to u_{N-1} of the original problem, from the states (x, u) after `with_rates`."""
    x, u = states
    return x, jax.tree.map(lambda leaf: leaf[:-1], u)


def original_problem(problem: ControlProblem) -> ControlProblem:
    """The problem from which `with_rates` made a problem."""
    assert isinstance(problem.dynamics, WithRates)
    bounds = {c.function.sign: c.function.bound for c in problem.constraints if isinstance(c.function, _Beyond)}

    def unwrapped(parts: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(part.function for part in parts if isinstance(part, _OfInner))

    def constraints(parts: tuple[Equality | Inequality, ...]) -> tuple[Equality | Inequality, ...]:
        return tuple(type(c)(c.function.function, c.name) for c in parts if isinstance(c.function, _OfInner))

    return dataclasses.replace(
        problem,
        dynamics=problem.dynamics.inner,
        initial=problem.initial[0],
        running=unwrapped(problem.running),
        final=unwrapped(problem.final),
        lower=bounds.get(-1.0),
        upper=bounds.get(1.0),
        constraints=constraints(problem.constraints),
        final_constraints=constraints(problem.final_constraints),
    )


def plan_with_rates(problem: ControlProblem, plan: Plan) -> Plan:
    """The plan of a problem made by `with_rates`, from a plan of the original problem.

    The controls begin with the initial controls of the problem. They follow those of the plan as fast as the bounds of the rates
    allow, and are constant at the end.

    Args:
        problem: Problem with rates.
        plan: Plan of the original problem.
    """
    dt = problem.with_design(plan.design).dt

    def following(u: Controls, wanted: Controls) -> tuple[Controls, tuple[Controls, Controls]]:
        rate = jnp.clip((wanted - u) / dt, problem.lower, problem.upper)
        return u + dt * rate, (u, rate)

    wanted = jnp.concatenate([plan.controls[1:], plan.controls[-1:]])
    last, (u, rates) = jax.lax.scan(following, problem.initial[1], wanted)
    return Plan((plan.states, jnp.concatenate([u, last[None]])), rates, plan.design)
