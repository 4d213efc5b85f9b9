"""Rates of controls: a problem whose controls are the rates of those of another one, so that rates can cost and be bounded."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.control.costs import Effort
from jaxdyn.control.problem import AnyState, ControlProblem, Controls, Dynamics, Equality, Inequality, Tangent, Time


class WithRates(Dynamics):
    """Dynamics whose state is (x, u) and whose controls are the rates of u: u is constant in a step and changes at its end.

    Attributes:
        inner: Dynamics of x with controls u.
    """

    inner: Dynamics

    @property
    def nx(self) -> int:
        return self.inner.nx + self.inner.nu

    @property
    def nu(self) -> int:
        return self.inner.nu

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
    """A cost or constraint of the inner problem."""

    function: object

    def __call__(self, dynamics: WithRates, t: Time, x: AnyState, u: Controls) -> Array:
        return self.function(dynamics.inner, t, x[0], x[1])  # pyright: ignore[reportCallIssue]


class _OfInnerAtEnd(eqx.Module):
    """The same at the end, where there are no controls."""

    function: object

    def __call__(self, dynamics: WithRates, t: Time, x: AnyState, u: Controls) -> Array:
        return self.function(dynamics.inner, t, x[0], u)  # pyright: ignore[reportCallIssue]


def with_rates(
    problem: ControlProblem,
    weights: Float[Array, "nu"] | float,
    controls: Float[Array, "nu"] | float = 0.0,
    *,
    lower: Float[Array, "nu"] | float | None = None,
    upper: Float[Array, "nu"] | float | None = None,
) -> ControlProblem:
    """The problem in which the rates r of the controls are chosen and cost 1/2 sum of w_i r_i^2 per second.

    Bounds of the controls become inequality constraints along the path.

    Args:
        weights: The weights w, one for each control or one for all.
        controls: The controls of the first time step.
        lower: Lower bounds of the rates; -inf if not given.
        upper: Upper bounds of the rates; inf if not given.
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
        running=(*map(_OfInner, problem.running), Effort(weights)),
        final=tuple(map(_OfInnerAtEnd, problem.final)),
        lower=lower,
        upper=upper,
        constraints=(*wrapped(problem.constraints, _OfInner), *bounds),
        final_constraints=wrapped(problem.final_constraints, _OfInnerAtEnd),
        design=problem.design,
    )


class _Beyond(eqx.Module):
    """The amounts by which controls exceed a bound."""

    bound: Float[Array, "nu"]
    sign: float = eqx.field(static=True)
    rows: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, dynamics: Dynamics, t: Time, x: AnyState, u: Controls) -> Array:
        return (self.sign * (x[1] - self.bound))[jnp.array(self.rows)]


def without_rates(states: AnyState) -> tuple[AnyState, Float[Array, "N nu"]]:
    """States of the inner problem, x_0 to x_N, and its controls, from the states of a problem `with_rates`."""
    x, u = states
    return x, jax.tree.map(lambda leaf: leaf[:-1], u)
