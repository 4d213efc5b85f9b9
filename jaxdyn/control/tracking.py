"""Tracking of a plan by time-varying linear feedback: LQR gains, closed-loop simulation, and the region of attraction.

The control law is u = u_k + K_k (x - x_k), clipped to the bounds, with the deviation x - x_k in tangent coordinates.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from jaxdyn.compute import per_sample
from jaxdyn.control.linear_quadratic import LinearQuadratic, riccati
from jaxdyn.control.plan import Plan, check_problem, closed_loop
from jaxdyn.control.problem import AnyState, ControlProblem, check_start
from jaxdyn.dynamics.system import State
from jaxdyn.mechanism.quantity import check_settings


def tracking_gains(
    problem: ControlProblem,
    plan: Plan,
    Q: Float[Array, "nx nx"],
    R: Float[Array, "nu nu"],
    Q_end: Float[Array, "nx nx"] | None = None,
) -> Float[Array, "N nu nx"]:
    """Gains K_k of the time-varying linear-quadratic regulator (LQR) along a plan: u = u_k + K_k (x - x_k).

    The gains minimize

        sum over k < N of h/2 (d_k' Q d_k + e_k' R e_k)  +  1/2 d_N' Q_end d_N

    for the dynamics linearized along the plan, where d_k is the deviation of the state in tangent coordinates, and e_k that of the
    controls. The gains follow from the Riccati recursion.

    Args:
        problem: The problem of the plan.
        plan: The plan.
        Q: Weight matrix (nx, nx) of state deviations in the cost per second, positive semidefinite.
        R: Weight matrix (nu, nu) of control deviations in the cost per second, positive definite.
        Q_end: Weight matrix (nx, nx) of the final state deviation; by default Q.

    Returns:
        The gains (N, nu, nx).

    Source: Anderson and Moore 1990.
    """
    check_problem(problem, "tracking_gains", plan)
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
    rows = per_sample(linear, name="dynamics along a plan")
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
    return per_sample(riccati, name="Riccati recursion")(model).feedback


def follow(problem: ControlProblem, plan: Plan, feedback: Float[Array, "N nu nx"], start: AnyState) -> Plan:
    """Simulate the closed loop of a plan with feedback, u = u_k + K_k (x - x_k) clipped to the bounds, from an initial state.

    Args:
        problem: The problem of the plan.
        plan: The plan: reference states x_k and feedforward controls u_k.
        feedback: The gains K (N, nu, nx).
        start: The initial state, which may differ from that of the plan.

    Returns:
        The states and controls of the simulation, as a plan.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: The gains or the initial state have the wrong shape.
    """
    check_problem(problem, "follow", plan)
    check_start(problem.dynamics, start, "follow")
    shape = (*plan.controls.shape, problem.dynamics.nx)
    if np.shape(feedback) != shape:
        raise ValueError(
            f"follow: feedback has shape {np.shape(feedback)}; give gains of shape {shape}, from tracking_gains for instance"
        )
    lower, upper = (jnp.broadcast_to(bound, plan.controls.shape) for bound in (problem.lower, problem.upper))
    return closed_loop(problem, plan, feedback, start, lower, upper)


def arrives(
    problem: ControlProblem,
    plan: Plan,
    feedback: Float[Array, "N nu nx"],
    starts: AnyState,
    within: Float[Array, "nx"] | float,
) -> Bool[Array, "B"]:
    """Sample the region of attraction of a plan: whether the closed loop from each initial state reaches the final state.

    Args:
        problem: The problem of the plan.
        plan: The plan: reference states and feedforward controls.
        feedback: The gains K (N, nu, nx).
        starts: B initial states, with a leading axis.
        within: Largest allowed deviation from the final state of the plan, one value for each tangent coordinate (nx,) or one for
            all.

    Returns:
        True for each initial state from which the closed loop reaches the final state (B,); false also if the simulation diverges.
    """
    check_problem(problem, "arrives", plan)
    goal = jax.tree.map(lambda leaf: leaf[-1], plan.states)

    def ends_there(start):
        motion = follow(problem, plan, feedback, start)
        off = problem.dynamics.difference(goal, jax.tree.map(lambda leaf: leaf[-1], motion.states))
        return jnp.all(jnp.abs(off) <= within)  # false for NaN, that is for a simulation that diverged

    return jax.vmap(ends_there)(starts)


class Tracker(eqx.Module):
    """A controller that tracks a plan in a rollout: `rollout(system, state, Tracker(problem, plan, feedback), ...)`.

    The controller applies u = u_k + K_k (x - x_k), clipped to the bounds.

    Attributes:
        problem: The problem of the plan.
        plan: The plan: reference states x_k and feedforward controls u_k.
        feedback: The gains K (N, nu, nx).
    """

    problem: ControlProblem
    plan: Plan
    feedback: Float[Array, "N nu nx"]

    def __check_init__(self):
        check_settings(self)

    def __call__(self, t: Float[Array, ""], state: State, key: PRNGKeyArray | None) -> Float[Array, "nu"]:
        """The controls in the time step of the plan that contains t; after the end of the plan its last time step is used."""
        placed = self.problem.with_design(self.plan.design)
        k = jnp.clip(jnp.floor(t / placed.dt + _ROUNDING).astype(int), 0, self.problem.steps - 1)
        wanted = jax.tree.map(lambda leaf: leaf[k], self.plan.states)
        u = self.plan.controls[k] + self.feedback[k] @ placed.dynamics.difference(wanted, state)
        return jnp.clip(u, placed.lower, placed.upper)


_ROUNDING = 1e-3  # tolerance, in time steps, for rounding errors of t, which could otherwise select the previous step
