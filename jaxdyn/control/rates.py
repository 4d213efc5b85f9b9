"""Problems whose controls are the rates of change of the original controls, so that costs and bounds can apply to these rates.

The state is augmented by the original controls: (x, u) with u_{k+1} = u_k + h r_k, and the rates r are the new controls.
"""

from collections.abc import Hashable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.control.costs import Effort
from jaxdyn.control.plan import Plan
from jaxdyn.control.problem import AnyState, ControlProblem, Controls, Dynamics, Equality, Inequality, Tangent, Time
from jaxdyn.mechanism.quantity import check_settings


class WithRates(Dynamics):
    """Dynamics with the augmented state (x, u), whose controls are the rates r of u.

    In discrete time u is constant during a step and jumps by dt r at the end of the step. In continuous time du/dt = r.

    Attributes:
        inner: The original dynamics of x with controls u.
    """

    inner: Dynamics

    def __check_init__(self):
        check_settings(self)

    @property
    def nx(self) -> int:
        return self.inner.nx + self.inner.nu

    @property
    def nu(self) -> int:
        return self.inner.nu

    @property
    def continuous(self) -> bool:
        return self.inner.continuous

    @property
    def units(self) -> tuple[Hashable, ...]:
        return *self.inner.units, *(("control", k) for k in range(self.nu))

    def step(self, x: AnyState, u: Controls, t: Time, dt: Time) -> AnyState:
        state, held = x
        return self.inner.step(state, held, t, dt), held + dt * u

    def retract(self, x: AnyState, step: Tangent) -> AnyState:
        state, held = x
        return self.inner.retract(state, step[: self.inner.nx]), held + step[self.inner.nx :]

    def difference(self, a: AnyState, b: AnyState) -> Tangent:
        return jnp.concatenate([self.inner.difference(a[0], b[0]), b[1] - a[1]])

    def rate(self, x: AnyState, u: Controls, t: Time) -> Tangent:
        return jnp.concatenate([self.inner.rate(x[0], x[1], t), u])


class _OfInner(eqx.Module):
    """A running cost or path constraint of the original problem as a function of the augmented state."""

    function: object

    def __call__(self, dynamics: WithRates, t: Time, x: AnyState, u: Controls) -> Array:
        return self.function(dynamics.inner, t, x[0], x[1])  # pyright: ignore[reportCallIssue]


class _SquaresOfInner(_OfInner):
    """A running cost of the original problem with its residuals."""

    def residuals(self, dynamics: WithRates, t: Time, x: AnyState, u: Controls) -> tuple[Array, Array]:
        return self.function.residuals(dynamics.inner, t, x[0], x[1])  # pyright: ignore[reportAttributeAccessIssue]


class _OfInnerAtEnd(eqx.Module):
    """A final cost or final constraint of the original problem as a function of the augmented state."""

    function: object

    def __call__(self, dynamics: WithRates, t: Time, x: AnyState, u: Controls) -> Array:
        return self.function(dynamics.inner, t, x[0], u)  # pyright: ignore[reportCallIssue]


class _SquaresOfInnerAtEnd(_OfInnerAtEnd):
    """A final cost of the original problem with its residuals."""

    def residuals(self, dynamics: WithRates, t: Time, x: AnyState, u: Controls) -> tuple[Array, Array]:
        return self.function.residuals(dynamics.inner, t, x[0], u)  # pyright: ignore[reportAttributeAccessIssue]


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
    below, above = problem.lower, problem.upper
    for bound, sign in ((below, -1.0), (above, 1.0)):
        rows = [k for k in range(nu) if bool(jnp.isfinite(bound[k]))]
        if rows:
            bounds = (*bounds, Inequality(_Beyond(bound, sign, tuple(rows)), "bounds of controls"))

    def wrapped(constraints: tuple[Equality | Inequality, ...], kind) -> tuple[Equality | Inequality, ...]:
        return tuple(type(c)(kind(c.function), c.name) for c in constraints)

    return ControlProblem(
        WithRates(problem.dynamics),
        (problem.initial, jnp.broadcast_to(jnp.asarray(controls, dtype), (nu,))),
        duration=problem.duration,
        steps=problem.steps,
        running=(
            *((_SquaresOfInner if hasattr(cost, "residuals") else _OfInner)(cost) for cost in problem.running),
            Effort(weights),
        ),
        final=tuple(
            (_SquaresOfInnerAtEnd if hasattr(cost, "residuals") else _OfInnerAtEnd)(cost) for cost in problem.final
        ),
        lower=lower,
        upper=upper,
        constraints=(*wrapped(problem.constraints, _OfInner), *bounds),
        final_constraints=wrapped(problem.final_constraints, _OfInnerAtEnd),
        design=problem.design,
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

    def unwrapped(constraints: tuple[Equality | Inequality, ...]) -> tuple[Equality | Inequality, ...]:
        return tuple(
            type(c)(of_inner.function, c.name)  # pyright: ignore[reportArgumentType]
            for c in constraints
            if isinstance(of_inner := c.function, _OfInner | _OfInnerAtEnd)
        )

    return ControlProblem(
        problem.dynamics.inner,
        problem.initial[0],
        duration=problem.duration,
        steps=problem.steps,
        running=tuple(cost.function for cost in problem.running if isinstance(cost, _OfInner)),
        final=tuple(cost.function for cost in problem.final if isinstance(cost, _OfInnerAtEnd)),
        lower=bounds.get(-1.0),
        upper=bounds.get(1.0),
        constraints=unwrapped(problem.constraints),
        final_constraints=unwrapped(problem.final_constraints),
        design=problem.design,
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
