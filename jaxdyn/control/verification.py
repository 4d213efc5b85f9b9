"""Check of a plan that does not depend on the solver that found it."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.control.plan import Plan, check_problem, gaps, outcome, violation
from jaxdyn.control.problem import ControlProblem, DiscreteDynamics
from jaxdyn.control.rates import WithRates
from jaxdyn.lanes import Backend, lane_function, stored_outside_jit

_PARTS = 4  # of a time step that is integrated again


class Verification(eqx.Module):
    """How well a plan satisfies its problem.

    Attributes:
        gap: The largest component of difference(x_{k+1}, f(x_k, u_k)) in tangent coordinates, including the initial state.
        violation: The largest violation of an equality or inequality constraint.
        excess: The largest distance of a control or design parameter from its bounds.
        integration_error: Estimate of the error that the time steps cause. For each time step, the error is the difference from
            four steps of a quarter of its length. The errors of all time steps are added for each tangent coordinate, and the
            largest sum is the estimate. It is NaN for `DiscreteDynamics`, whose time steps approximate nothing.
    """

    gap: Float[Array, ""]
    violation: Float[Array, ""]
    excess: Float[Array, ""]
    integration_error: Float[Array, ""]


@stored_outside_jit
def verify(problem: ControlProblem, plan: Plan, *, backend: Backend = "auto") -> Verification:
    """Check a plan against its problem: dynamics, constraints, bounds, and the accuracy of the time steps.

    Args:
        problem: The problem.
        plan: The plan, for example the `value` of a `Solution`.
        backend: Compiler of the computation, see `lanes`.

    Example:
        >>> import jaxdyn, jax.numpy as jnp
        >>> from jaxdyn import control
        >>> system = jaxdyn.library.system("pendulum")
        >>> start = system.at_rest(jnp.array([0.1]))
        >>> problem = control.ControlProblem(
        ...     control.MultibodyDynamics(system), start, duration=1.0, steps=20, running=control.Effort()
        ... )
        >>> checked = control.verify(problem, control.guess.rolled_out(problem))
        >>> bool(checked.gap < 1e-5), bool(checked.integration_error < 1e-3)
        (True, True)
    """
    check_problem(problem, "verify", plan)
    placed = problem.with_design(plan.design)
    off = placed.dynamics.difference(placed.initial, jax.tree.map(lambda leaf: leaf[0], plan.states))
    gap = jnp.maximum(jnp.max(jnp.abs(off)), jnp.max(jnp.abs(gaps(problem, plan, backend=backend))))
    beyond = [placed.lower[None] - plan.controls, plan.controls - placed.upper[None]]
    if problem.design is not None:
        beyond += [problem.design.lower - plan.design, plan.design - problem.design.upper]
    excess = jnp.maximum(jnp.max(jnp.stack([jnp.max(amount) for amount in beyond])), 0.0)
    found = violation(problem, outcome(problem, plan, backend=backend))
    return Verification(gap, found, excess, _integration_error(placed, plan, backend))


def _integration_error(problem: ControlProblem, plan: Plan, backend: Backend) -> Float[Array, ""]:
    dynamics, dt, controls = problem.dynamics, problem.dt, plan.controls
    before = jax.tree.map(lambda leaf: leaf[:-1], plan.states)
    if isinstance(dynamics, WithRates):  # rates change the controls at the ends of the time steps only
        (before, controls), dynamics = before, dynamics.inner
    if isinstance(dynamics, DiscreteDynamics):
        return jnp.full_like(dt, jnp.nan)

    def error(k, x, u):
        t = k.astype(u.dtype) * dt
        whole = dynamics.step(x, u, t, dt)
        part = dt / _PARTS
        fine, _ = jax.lax.scan(
            lambda x, n: (dynamics.step(x, u, t + n.astype(u.dtype) * part, part), None), x, jnp.arange(_PARTS)
        )
        return jnp.abs(dynamics.difference(whole, fine))

    each = lane_function(error, backend=backend, name="errors of time steps")
    return jnp.max(jnp.sum(jax.vmap(each)(jnp.arange(problem.steps), before, controls), axis=0))
