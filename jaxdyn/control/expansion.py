"""Expansion of a problem about a plan, to second order in tangent coordinates: a linear-quadratic problem for the steps to take.

The state of that problem is (step of x, step of the design). Gradients and Jacobians are exact. The curvature of costs is exact;
that of dynamics and conditions, weighted by costates and multipliers, is added for Newton's method and left out for Gauss-Newton,
where conditions count by penalty * (Jacobian)' (Jacobian).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.control.linear_quadratic import LinearQuadratic
from jaxdyn.control.plan import Multipliers, Outcome, Plan, forces, outcome
from jaxdyn.control.problem import ControlProblem, end_conditions, final_cost, path_conditions, running_cost
from jaxdyn.lanes import Backend, lane_function
from jaxdyn.spatial.arrays import einsum


def expanded(
    problem: ControlProblem,
    plan: Plan,
    multipliers: Multipliers,
    feedback: Float[Array, "N nu nx"],
    gaps: Float[Array, "N nx"],
    *,
    curvature: Float[Array, ""] | None = None,
    backend: Backend = "auto",
) -> tuple[LinearQuadratic, Outcome]:
    """The linear-quadratic problem for the step to take, and what the plan comes to.

    Args:
        feedback: gains with which the costates are found: what a deviation costs if it is fed back. They do not matter at a
            solution; away from it, costates of unstable motions would be huge without them.
        gaps: from each state of the plan to the one that follows from the state before it.
        curvature: weight of the curvature of dynamics and conditions, 1 for Newton's method, 0 or None for Gauss-Newton.
    """
    nx, P, m = problem.dynamics.nx, problem.size, problem.dynamics.nu
    n = nx + P
    found = outcome(problem, plan, backend=backend)
    path_force, end_force = forces(problem, found, multipliers)
    path_weight, end_weight = (
        jnp.where((force != 0.0) | (values == 0.0), multipliers.penalty, 0.0)
        for force, values in ((path_force, found.path), (end_force, found.end))
    )

    def local(k, x, following, u, w):
        """Next state, cost and conditions of a step, a step w = (x, design, u) away from the plan."""
        placed = problem.with_design(plan.design + w[nx:n])
        there, held = problem.dynamics.moved(x, w[:nx]), u + w[n:]
        dt = placed.dt
        after = placed.dynamics.next(there, held, k.astype(u.dtype) * dt, dt)
        gap = problem.dynamics.difference(following, after)
        return gap, running_cost(placed, k, there, held), path_conditions(placed, k, there, held)

    def first(k, x, following, u):
        zero = jnp.zeros(n + m, u.dtype)

        def rows(w):
            gap, cost, conditions = local(k, x, following, u, w)
            return jnp.concatenate([gap, cost[None], conditions])

        return jax.jacfwd(rows)(zero)

    def second(k, x, following, u, costate, force, weight):
        def weighted(w):
            gap, cost, conditions = local(k, x, following, u, w)
            return cost if curvature is None else cost + weight * (gap @ costate + conditions @ force)

        return jax.hessian(weighted)(jnp.zeros(n + m, u.dtype))

    def at_end(last, force, weight):
        """Slope of cost and conditions at the end, and the curvature that counts."""

        def end(w):
            placed = problem.with_design(plan.design + w[nx:])
            there = problem.dynamics.moved(last, w[:nx])
            return final_cost(placed, there), end_conditions(placed, there)

        def bent(w):
            cost, conditions = end(w)
            return cost if curvature is None else cost + weight * (conditions @ force)

        zero = jnp.zeros(n, force.dtype)
        return *jax.jacfwd(end)(zero), jax.hessian(bent)(zero)

    numbers = jnp.arange(problem.steps)
    states, following = _at(plan.states, slice(-1)), _at(plan.states, slice(1, None))
    rows = lane_function(first, backend=backend, name="expansion, first order")
    jacobian = jax.vmap(rows)(numbers, states, following, plan.controls)
    one = jnp.asarray(np.eye(n)[nx:], gaps.dtype)
    design_rows = jnp.broadcast_to(
        jnp.concatenate([one, jnp.zeros((P, m), gaps.dtype)], axis=1), (problem.steps, P, n + m)
    )
    F = jnp.concatenate([jacobian[:, :nx], design_rows], axis=1)
    C = jacobian[:, nx + 1 :]
    gradient = jacobian[:, nx] + einsum("kci,kc->ki", C, path_force)

    weight = jnp.ones((), gaps.dtype) if curvature is None else curvature
    ending = lane_function(at_end, backend=backend, name="expansion at the end")
    end_slope, end_C, end_H = ending(_at(plan.states, -1), end_force, weight)
    q_end = end_slope + end_C.T @ end_force
    Q_end = end_H + einsum("ci,c,cj->ij", end_C, end_weight, end_C)

    def fed_back(q_end, F, gradient, feedback):
        def back(costate, row):
            F, gradient, K = row
            pull = gradient + F.T @ costate
            return pull[:n] + jnp.concatenate([K.T @ pull[n:], jnp.zeros(P, pull.dtype)]), costate

        return jax.lax.scan(back, q_end, (F, gradient, feedback), reverse=True)[1]

    costates = lane_function(fed_back, backend=backend, name="costates")(q_end, F, gradient, feedback)
    hessians = lane_function(second, backend=backend, name="expansion, second order")
    H = jax.vmap(hessians, in_axes=(0, 0, 0, 0, 0, 0, None))(
        numbers, states, following, plan.controls, costates[:, :nx], path_force, weight
    )
    H = H + einsum("kci,kc,kcj->kij", C, path_weight, C)
    d = jnp.concatenate([gaps, jnp.zeros((problem.steps, P), gaps.dtype)], axis=1)
    model = LinearQuadratic(
        F[:, :, :n],
        F[:, :, n:],
        d,
        H[:, :n, :n],
        H[:, n:, :n],
        H[:, n:, n:],
        gradient[:, :n],
        gradient[:, n:],
        Q_end,
        q_end,
    )
    return model, found


def _at(states, index):
    return jax.tree.map(lambda leaf: leaf[index], states)
