"""Feedback along a plan: time-varying gains, motions under this feedback, and the basin of attraction of the plan."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from jaxdyn.control.linear_quadratic import LinearQuadratic, riccati
from jaxdyn.control.plan import Plan
from jaxdyn.control.problem import AnyState, ControlProblem
from jaxdyn.dynamics.system import State
from jaxdyn.lanes import Backend, lane_function


def tracking_gains(
    problem: ControlProblem,
    plan: Plan,
    Q: Float[Array, "nx nx"],
    R: Float[Array, "nu nu"],
    Q_end: Float[Array, "nx nx"] | None = None,
    *,
    backend: Backend = "auto",
) -> Float[Array, "N nu nx"]:
    """Gains K of the time-varying linear-quadratic regulator along a plan: u = u_k + K_k (x - x_k).

    They minimize the sum of 1/2 (d' Q d h + e' R e h) + 1/2 d_N' Q_end d_N over deviations d of the state, in tangent coordinates,
    and e of the controls, with the dynamics linearized along the plan.

    Args:
        problem: The problem of the plan.
        plan: The plan.
        Q: The cost of deviations of the state per second (nx, nx).
        R: The cost of deviations of the controls per second (nu, nu).
        Q_end: Cost of deviations at the end (nx, nx); Q if not given.
        backend: Compiler of the computation, see `lanes`.

    Source: Anderson and Moore 1990.
    """
    placed = problem.with_design(plan.design)
    dynamics, dt, n = placed.dynamics, placed.dt, placed.dynamics.nx

    def linear(k, x, u):
        time = k.astype(u.dtype) * dt
        reached = dynamics.step(x, u, time, dt)

        def deviation(w):
            there = dynamics.step(dynamics.retract(x, w[:n]), u + w[n:], time, dt)
            return dynamics.difference(reached, there)

        return jax.jacfwd(deviation)(jnp.zeros(n + dynamics.nu, u.dtype))

    before = jax.tree.map(lambda leaf: leaf[:-1], plan.states)
    rows = lane_function(linear, backend=backend, name="dynamics along a plan")
    F = jax.vmap(rows)(jnp.arange(problem.steps), before, plan.controls)
    N, m = plan.controls.shape
    zero = jnp.zeros_like(F[:, :, 0])

    def each(matrix):
        return jnp.broadcast_to(dt * matrix, (N, *matrix.shape))

    model = LinearQuadratic(
        F[:, :, :n],
        F[:, :, n:],
        zero,
        each(Q),
        jnp.zeros((N, m, n), zero.dtype),
        each(R),
        zero,
        jnp.zeros_like(plan.controls),
        Q if Q_end is None else Q_end,
        zero[0],
    )
    return lane_function(riccati, backend=backend, name="Riccati recursion")(model).feedback


def follow(
    problem: ControlProblem,
    plan: Plan,
    feedback: Float[Array, "N nu nx"],
    start: AnyState,
    *,
    backend: Backend = "auto",
) -> Plan:
    """The motion from another initial state under the controls of a plan and feedback of deviations, within bounds."""
    placed = problem.with_design(plan.design)
    dynamics, dt = placed.dynamics, placed.dt

    def moving(start):
        def step(x, row):
            k, wanted, u, K = row
            u = jnp.clip(u + K @ dynamics.difference(wanted, x), placed.lower, placed.upper)
            return dynamics.step(x, u, k.astype(u.dtype) * dt, dt), (x, u)

        before = jax.tree.map(lambda leaf: leaf[:-1], plan.states)
        rows = (jnp.arange(problem.steps), before, plan.controls, feedback)
        end, (states, controls) = jax.lax.scan(step, start, rows)
        return jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), states, end), controls

    states, controls = lane_function(moving, backend=backend, name="motion with feedback")(start)
    return Plan(states, controls, plan.design)


def arrives(
    problem: ControlProblem,
    plan: Plan,
    feedback: Float[Array, "N nu nx"],
    starts: AnyState,
    within: Float[Array, "nx"] | float,
    *,
    backend: Backend = "auto",
) -> Bool[Array, "B"]:
    """Whether feedback leads from each of many initial states to the end of a plan: samples of its basin of attraction.

    Args:
        problem: The problem of the plan.
        plan: The plan.
        feedback: The gains.
        starts: Initial states with a leading axis.
        within: Largest allowed deviation from the end of the plan, for each tangent coordinate or one for all.
        backend: Compiler of the computation, see `lanes`.
    """
    goal = jax.tree.map(lambda leaf: leaf[-1], plan.states)

    def ends_there(start):
        motion = follow(problem, plan, feedback, start, backend=backend)
        off = problem.dynamics.difference(goal, jax.tree.map(lambda leaf: leaf[-1], motion.states))
        return jnp.all(jnp.abs(off) <= within)  # false for NaN

    return jax.vmap(ends_there)(starts)


class Tracker(eqx.Module):
    """A plan with feedback as the policy of a rollout: `rollout(system, state, Tracker(problem, plan, feedback), ...)`.

    Attributes:
        problem: The problem of the plan.
        plan: The plan.
        feedback: The gains K of u_k + K_k (x - x_k).
    """

    problem: ControlProblem
    plan: Plan
    feedback: Float[Array, "N nu nx"]

    def __call__(self, t: Float[Array, ""], state: State, key: PRNGKeyArray | None) -> Float[Array, "nu"]:
        """Controls of the step that t lies in; after the end those of the last step."""
        placed = self.problem.with_design(self.plan.design)
        k = jnp.clip(jnp.floor(t / placed.dt + _ROUNDING).astype(int), 0, self.problem.steps - 1)
        wanted = jax.tree.map(lambda leaf: leaf[k], self.plan.states)
        u = self.plan.controls[k] + self.feedback[k] @ placed.dynamics.difference(wanted, state)
        return jnp.clip(u, placed.lower, placed.upper)


_ROUNDING = 1e-3  # of a step, by which the time of a step may seem to lie before it
