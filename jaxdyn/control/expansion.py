"""Second-order expansion of a control problem about a plan: a linear-quadratic problem for a step in tangent coordinates.

The state of the linear-quadratic problem consists of the step of the state x and the step of the design parameters. Gradients,
Jacobians, and the Hessians of costs other than `LeastSquares` are exact. Newton's method uses the second derivatives of dynamics
and constraints, weighted by costates and multipliers, and of the residuals of `LeastSquares` costs; the Gauss-Newton method omits
all these. Penalized constraints with Jacobian J and weights w add J' w J to the Hessian of Newton's and of the Gauss-Newton method.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute import columnwise, operations_of, per_sample
from jaxdyn.compute.arrays import einsum
from jaxdyn.control.linear_quadratic import LinearQuadratic, adjoint
from jaxdyn.control.plan import Multipliers, Outcome, Plan, multiplier_estimates
from jaxdyn.control.problem import (
    ControlProblem,
    SplitCost,
    end_constraints,
    final_cost,
    path_constraints,
    running_cost,
    split_final_cost,
    split_running_cost,
)
from jaxdyn.dynamics.system import System

# Operations of one column of the Jacobian and of the Hessian of a time step, in units of those of dynamics and constraints. Loops
# have equations for their multipliers, whose second derivatives have more operations.
_FIRST_ORDER, _SECOND_ORDER, _SECOND_ORDER_WITH_LOOPS = 1.5, 3.0, 5.5


class ConstraintTerms(eqx.Module):
    """Multipliers y and weights w of constraints with Jacobian J, which add J' y to the gradients and J' w J to the Hessians.

    Attributes:
        path: Multipliers of the constraints along the path.
        end: Multipliers of the constraints at the end.
        path_weight: Weights of the constraints along the path.
        end_weight: Weights of the constraints at the end.
    """

    path: Float[Array, "N m"]
    end: Float[Array, "e"]
    path_weight: Float[Array, "N m"]
    end_weight: Float[Array, "e"]


def penalty_terms(problem: ControlProblem, found: Outcome, multipliers: Multipliers) -> ConstraintTerms:
    """Multipliers and weights of the constraints in the augmented Lagrangian; those of inactive inequality constraints are zero."""
    path, end = multiplier_estimates(problem, found, multipliers)
    weights = [
        jnp.where((multiplier != 0.0) | (values == 0.0), multipliers.penalty, 0.0)
        for multiplier, values in ((path, found.path), (end, found.end))
    ]
    return ConstraintTerms(path, end, *weights)


class Expansion(eqx.Module):
    """The expansion of a problem about a plan.

    Attributes:
        model: Linear-quadratic problem for the steps z of (state, design parameters) and u of the controls.
        path_rows: Jacobians of the path constraints with respect to (state, design parameters, controls).
        end_rows: Jacobian of the final constraints with respect to (final state, design parameters).
    """

    model: LinearQuadratic
    path_rows: Float[Array, "N m n_plus_nu"]
    end_rows: Float[Array, "e n"]


def linearized(problem: ControlProblem, plan: Plan, terms: ConstraintTerms, gaps: Float[Array, "N nx"]) -> Expansion:
    """The first-order expansion of a problem about a plan: gradients and Jacobians, with Hessians equal to zero.

    Args:
        problem: Problem to expand.
        plan: Plan about which the problem is expanded.
        terms: Multipliers and weights of the constraints.
        gaps: Defects of the plan, see `plan.gaps`.
    """

    def first(directions, k, x, following, u):
        return _columns(lambda w: _step_values(problem, plan, k, x, following, u, w), directions)

    rows = _columns_of_steps(first, problem, plan, _FIRST_ORDER, "expansion, first order")
    return _linear_model(problem, plan, terms, gaps, jax.vmap(rows)(*_places(plan), plan.controls))


def _linear_model(
    problem: ControlProblem,
    plan: Plan,
    terms: ConstraintTerms,
    gaps: Float[Array, "N nx"],
    jacobian: Float[Array, "N rows n_plus_nu"],
) -> Expansion:
    """The first-order expansion from the Jacobians of `_step_values`."""
    nx, P, m = problem.dynamics.nx, problem.size, problem.dynamics.nu
    n = nx + P
    one = jnp.asarray(np.eye(n)[nx:], gaps.dtype)
    design_rows = jnp.broadcast_to(
        jnp.concatenate([one, jnp.zeros((P, m), gaps.dtype)], axis=1), (problem.steps, P, n + m)
    )
    F = jnp.concatenate([jacobian[:, :nx], design_rows], axis=1)
    C = jacobian[:, nx + 1 :]
    gradient = jacobian[:, nx] + einsum("kci,kc->ki", C, terms.path)

    def at_end(last):
        def rows(w):
            placed, there = _end_away(problem, plan, last, w)
            return final_cost(placed, there), end_constraints(placed, there)

        return jax.jacfwd(rows)(jnp.zeros(n, gaps.dtype))

    ending = per_sample(at_end, name="expansion of the end, first order")
    end_slope, end_C = ending(_at(plan.states, -1))
    d = jnp.concatenate([gaps, jnp.zeros((problem.steps, P), gaps.dtype)], axis=1)
    flat = jnp.zeros((problem.steps, n + m, n + m), gaps.dtype)
    model = LinearQuadratic(
        F[:, :, :n],
        F[:, :, n:],
        d,
        flat[:, :n, :n],
        flat[:, n:, :n],
        flat[:, n:, n:],
        gradient[:, :n],
        gradient[:, n:],
        flat[0, :n, :n],
        end_slope + end_C.T @ terms.end,
    )
    return Expansion(model, C, end_C)


def expanded(
    problem: ControlProblem,
    plan: Plan,
    terms: ConstraintTerms,
    gaps: Float[Array, "N nx"],
    *,
    costates: Float[Array, "N nx"] | None = None,
    feedback: Float[Array, "N nu nx"] | None = None,
    curvature: Float[Array, ""] | None = None,
) -> Expansion:
    """The second-order expansion of a problem about a plan.

    Args:
        problem: Problem to expand.
        plan: Plan about which the problem is expanded.
        terms: Multipliers and weights of the constraints.
        gaps: Defects of the plan, see `plan.gaps`.
        costates: Costates of x_1 to x_N, which weight the second derivatives of the dynamics; by default they are computed by the
            adjoint recursion if `curvature` is given.
        feedback: Feedback gains in the adjoint recursion: with gains, costates are the derivatives of the cost under feedback;
            without gains, they are the derivatives at fixed controls. At an optimum, costates with and without gains are equal.
            Elsewhere, costates of unstable motions would be very large without gains.
        curvature: Weight of the second derivatives of dynamics and constraints: 1 for Newton's method, 0 or None for Gauss-Newton.
    """
    nx = problem.dynamics.nx
    n = nx + problem.size
    weight = jnp.zeros((), gaps.dtype) if curvature is None else curvature

    def derivatives(equations, directions, k, x, following, u, costate, multiplier, weight):
        def split(w):
            placed, there, held = _step_away(problem, plan, x, u, w)
            return split_running_cost(placed, k, there, held)

        def curved(w):
            placed, there, held = _step_away(problem, plan, x, u, w)
            gap, constraints = _equations(placed, k, there, held, following)
            return gap @ costate + constraints @ multiplier, (gap, constraints)

        return _derivatives(split, curved if equations else None, weight, directions)

    def second(directions, *args):
        return derivatives(curvature is not None, directions, *args)[0]

    def both(directions, *args):
        H, slope, (gap, constraints) = derivatives(True, directions, *args)
        return jnp.concatenate([gap, slope[None], constraints]), H

    def second_at_end(last, multiplier, weight):
        def split(w):
            return split_final_cost(*_end_away(problem, plan, last, w))

        def curved(w):
            return end_constraints(*_end_away(problem, plan, last, w)) @ multiplier, ()

        return _derivatives(split, None if curvature is None else curved, weight, np.eye(n, dtype=gaps.dtype))[0]

    def of_steps(columns, effort: float, name: str, costates):
        found = _columns_of_steps(columns, problem, plan, effort, name)
        along = (*_places(plan), plan.controls, costates, terms.path)
        return jax.vmap(found, in_axes=(*(0 for _ in along), None))(*along, weight)

    effort = _SECOND_ORDER_WITH_LOOPS if _has_loops(problem) else _SECOND_ORDER
    if costates is None:
        flat = linearized(problem, plan, terms, gaps)
        if curvature is None:  # they weight nothing
            costates = jnp.zeros_like(gaps)
        else:
            backward = per_sample(adjoint, name="costates")
            costates = backward(flat.model, feedback)[:, :nx]
        H = of_steps(second, 0.0 if curvature is None else effort, "expansion, second order", costates)
    else:
        # One program is compiled faster than two, and both need the intermediate values of the time step.
        jacobian, H = of_steps(both, effort, "expansion, both orders", costates)
        flat = _linear_model(problem, plan, terms, gaps, jacobian)
    C, end_C = flat.path_rows, flat.end_rows
    H = H + einsum("kci,kc,kcj->kij", C, terms.path_weight, C)
    ending = per_sample(second_at_end, name="expansion of the end, second order")
    Q_end = ending(_at(plan.states, -1), terms.end, weight)
    Q_end = Q_end + einsum("ci,c,cj->ij", end_C, terms.end_weight, end_C)
    model = eqx.tree_at(
        lambda p: (p.Q, p.S, p.R, p.Q_end), flat.model, (H[:, :n, :n], H[:, n:, :n], H[:, n:, n:], Q_end)
    )
    return Expansion(model, C, end_C)


def _derivatives(split, curved, weight: Array, directions: Float[Array, "c n"] | np.ndarray):
    """Derivatives at zero along directions, of the cost that `split` returns and of the equations of `curved`.

    Args:
        split: Function of the step w that returns the cost as a `SplitCost`.
        curved: Function of w that returns the sum of all equations, weighted by costates and multipliers, and the values of the
            equations; None for the Hessian of Gauss-Newton without equations.
        weight: Weight of the second derivatives of the weighted equations and of the residuals of squares; without this weight,
            the Hessian of squares is that of Gauss-Newton, J' w J.
        directions: Directions as rows.

    Returns:
        The products of the Hessian with the directions (n, c), of the gradient of the cost (c,), and of the Jacobians of the
        equations (..., c).
    """
    zero = jnp.zeros(directions.shape[1], directions.dtype)

    def exact(w):
        cost: SplitCost = split(w)
        squares = 0.5 * jnp.sum(cost.weights * cost.residuals**2)
        if curved is None:
            return cost.rest, (cost.weights, cost.rest + squares, ())
        total, values = curved(w)
        return cost.rest + weight * (squares + total), (cost.weights, cost.rest + squares, values)

    def column(direction):
        (_, (weights, _, _)), (change, (_, slope, slopes)) = jax.jvp(
            jax.grad(exact, has_aux=True), (zero,), (direction,)
        )
        return change, slope, slopes, weights

    H, slope, slopes, weights = jax.vmap(column, out_axes=(-1, -1, -1, None))(jnp.asarray(directions))
    if weights.size:
        J = jax.jacfwd(lambda w: split(w).residuals)(zero)
        omitted = 1.0 if curved is None else 1.0 - weight
        H = H + omitted * einsum("ci,c,cj->ij", J, weights, einsum("ci,ki->ck", J, directions))
    return H, slope, slopes


def _columns(function, directions: Float[Array, "c n"] | np.ndarray) -> Float[Array, "rows c"]:
    """Products of the Jacobian of a function at zero with directions."""
    zero = jnp.zeros(directions.shape[1], directions.dtype)
    return jax.vmap(lambda d: jax.jvp(function, (zero,), (d,))[1], out_axes=-1)(jnp.asarray(directions))


def cost_size(problem: ControlProblem, plan: Plan) -> Float[Array, ""]:
    """Magnitude of the derivatives of the cost, for scaling the cost: the largest component of the sum over k of |g_k| + |H_k 1|.

    g_k and H_k are the gradient and the Hessian of the cost of time step k, or of the final cost, with respect to tangent
    coordinates, controls and design parameters, and 1 is the vector of ones. Because of H_k, the result is positive even at the
    minimum of a quadratic cost.
    """
    nx, m = problem.dynamics.nx, problem.dynamics.nu
    n = nx + problem.size

    def derivatives(cost, count: int) -> Array:
        zero = jnp.zeros(count, plan.controls.dtype)
        gradient, change = jax.jvp(jax.grad(cost), (zero,), (jnp.ones_like(zero),))
        return jnp.abs(gradient) + jnp.abs(change)

    def of_step(k, x, u):
        def cost(w):
            placed, there, held = _step_away(problem, plan, x, u, w)
            return running_cost(placed, k, there, held)

        return derivatives(cost, n + m)

    def of_end(last):
        return derivatives(lambda w: final_cost(*_end_away(problem, plan, last, w)), n)

    steps = jax.vmap(per_sample(of_step, name="size of costs"))
    ending = per_sample(of_end, name="size of the cost of the end")
    along = steps(jnp.arange(problem.steps), _at(plan.states, slice(-1)), plan.controls)
    return jnp.maximum(jnp.max(jnp.sum(along, axis=0)), jnp.max(ending(_at(plan.states, -1)), initial=0.0))


def _columns_of_steps(columns, problem: ControlProblem, plan: Plan, effort: float, name: str):
    """Compiled form of a function that computes columns for the variables (state, design parameters, controls) of a time step.

    Args:
        columns: Function of (directions, k, x, following, u, ...).
        problem: The problem.
        plan: Plan about which the problem is expanded.
        effort: Operations of one column, in units of the operations of dynamics and constraints; zero if they are few.
        name: Name in the record of compilations.
    """
    one = np.eye(problem.dynamics.nx + problem.size + problem.dynamics.nu, dtype=plan.controls.dtype)
    zero = jnp.zeros(len(one), plan.controls.dtype)

    def equations(k, x, following, u):
        placed, there, held = _step_away(problem, plan, x, u, zero)
        return _equations(placed, k, there, held, following)

    first_step = jax.tree.map(lambda leaf: leaf[0], (*_places(plan), plan.controls))
    operations = operations_of(equations, first_step) if effort else None
    return columnwise(columns, one, operations=None if operations is None else effort * operations, name=name)


def _step_values(problem: ControlProblem, plan: Plan, k, x, following, u, w) -> Array:
    """Defect, cost and constraint values of a time step after a step w from the plan."""
    placed, there, held = _step_away(problem, plan, x, u, w)
    gap, constraints = _equations(placed, k, there, held, following)
    return jnp.concatenate([gap, running_cost(placed, k, there, held)[None], constraints])


def _step_away(problem: ControlProblem, plan: Plan, x, u, w):
    """Problem, state and controls of a time step after a step w = (x, design, u) from the plan."""
    nx = problem.dynamics.nx
    n = nx + problem.size
    return problem.with_design(plan.design + w[nx:n]), problem.dynamics.retract(x, w[:nx]), u + w[n:]


def _equations(problem: ControlProblem, k, x, u, following):
    """Defect and constraint values of a time step."""
    dt = problem.dt
    after = problem.dynamics.step(x, u, k.astype(u.dtype) * dt, dt)
    return problem.dynamics.difference(following, after), path_constraints(problem, k, x, u)


def _end_away(problem: ControlProblem, plan: Plan, last, w):
    """Problem and final state after a step w = (x, design) from the plan."""
    nx = problem.dynamics.nx
    return problem.with_design(plan.design + w[nx:]), problem.dynamics.retract(last, w[:nx])


def _places(plan: Plan):
    """Indices of the time steps, and the states before and after them."""
    return jnp.arange(len(plan.controls)), _at(plan.states, slice(-1)), _at(plan.states, slice(1, None))


def initial_offset(problem: ControlProblem, plan: Plan, step: Float[Array, "P"]) -> Float[Array, "nx"]:
    """Difference from the first state of a plan to the initial state of the problem, which may depend on the design parameters."""
    return problem.dynamics.difference(_at(plan.states, 0), problem.with_design(plan.design + step).initial)


def initial_jacobian(problem: ControlProblem, plan: Plan) -> Float[Array, "n P"]:
    """Derivative of z_0 = (initial state, design parameters) with respect to the design parameters."""
    one = jnp.asarray(np.eye(problem.size), plan.design.dtype)
    slope = jax.jacfwd(lambda step: initial_offset(problem, plan, step))(jnp.zeros_like(plan.design))
    return jnp.concatenate([slope, one])


def _has_loops(problem: ControlProblem) -> bool:
    """Whether the dynamics contain a mechanism with constraints."""
    parts = jax.tree.leaves(problem.dynamics, is_leaf=lambda part: isinstance(part, System))
    return any(isinstance(part, System) and bool(part.constraints) for part in parts)


def _at(states, index):
    return jax.tree.map(lambda leaf: leaf[index], states)
