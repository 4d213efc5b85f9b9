"""Parts of a primal-dual interior-point method for optimal control: unknowns, slack elimination, KKT error.

Barrier problem with barrier parameter mu > 0:

    minimize    cost - mu (sum of the logarithms of slacks and of distances from bounds)
    such that   x_{k+1} = f(x_k, u_k),   g = 0 (equality constraints),   g + s = 0 with slacks s > 0 (inequality constraints)

As mu tends to zero, solutions of the barrier problem tend to a solution of the control problem. The solver `MultipleShooting`
combines the functions of this module.
Source: Waechter and Biegler 2006.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxdyn.compute.arrays import einsum
from jaxdyn.control.expansion import ConstraintTerms, Expansion, initial_jacobian
from jaxdyn.control.linear_quadratic import LinearQuadratic
from jaxdyn.control.plan import Outcome, Plan, regularization
from jaxdyn.control.problem import ControlProblem, inequalities

FIRST_BARRIER = 0.1
_ROUNDED = 64.0  # least distance from a bound, in rounding errors of the bound
INSIDE = 1e-2  # least initial distance from bounds, relative to upper - lower, or absolute if a bound is infinite
# Largest infeasibility that the line search accepts, relative to that of the initial guess. With 1e4, plans of low cost that are
# far from any motion are accepted, from which Newton's method seldom returns: it then finds 3 swing-ups of a double pendulum from
# 24 initial guesses, instead of 12.
FARTHEST = 1.2


class DualVariables(eqx.Module):
    """The dual variables: multipliers of dynamics, constraints and bounds.

    Attributes:
        costates: Multipliers of the dynamics (N, n) for each of x_1 to x_N: nx for the state, followed by P for the design
            parameters.
        path: Multipliers of the path constraints (N, m).
        end: Multipliers of the final constraints (e,).
        controls: Multipliers of the lower and of the upper bounds of the controls (2, N, nu).
        design: Multipliers of the lower and of the upper bounds of the design parameters (2, P).
    """

    costates: Float[Array, "N n"]
    path: Float[Array, "N m"]
    end: Float[Array, "e"]
    controls: Float[Array, "2 N nu"]
    design: Float[Array, "2 P"]


class Slacks(eqx.Module):
    """Slack variables s > 0, which turn inequality constraints g <= 0 into g + s = 0; those of equality constraints are zero."""

    path: Float[Array, "N m"]
    end: Float[Array, "e"]


class InteriorSearch(eqx.Module):
    """The state of a search by multiple shooting.

    Attributes:
        plan: Primal variables: states, controls and design parameters.
        slacks: Slack variables of the inequality constraints.
        multipliers: Dual variables.
        gaps: Defects of the dynamics at the plan.
        found: Cost and constraint values of the plan.
        violation: Largest violation of the dynamics or of a constraint.
        far: The infeasibility, see `infeasibility`.
        feedback: Feedback gains of the last accepted step.
        barrier: Barrier parameter mu.
        damping: Regularization of the Hessian in the next step.
        wait: Number of iterations for which second derivatives of dynamics and constraints are still omitted.
        last_wait: Value to which `wait` was set at the last failure.
        filter: Pairs (infeasibility, cost) of earlier plans; compared with each pair, a new plan must have a smaller infeasibility
            or a lower cost.
        farthest: Largest infeasibility that the line search accepts.
        iterations: Number of iterations.
        result: Code of a `ControlResult`.
        scale: Factor by which costs, and therefore multipliers, are multiplied during the search.
        restoring: Whether the search is in a restoration phase.
        goal: Infeasibility at which the restoration phase ends.
        short: Number of short steps in a row.
        lost: Number of restoration phases that gave up.
        before: Plan at which the last restoration phase began, with its cost, constraint values and defects.
        flat: Number of accepted steps in a row that hardly changed the cost of a plan without violation.
    """

    plan: Plan
    slacks: Slacks
    multipliers: DualVariables
    gaps: Float[Array, "N nx"]
    found: Outcome
    violation: Float[Array, ""]
    far: Float[Array, ""]
    feedback: Float[Array, "N nu nx"]
    barrier: Float[Array, ""]
    damping: Float[Array, ""]
    wait: Int[Array, ""]
    last_wait: Int[Array, ""]
    filter: Float[Array, "F 2"]
    farthest: Float[Array, ""]
    iterations: Int[Array, ""]
    result: Int[Array, ""]
    scale: Float[Array, ""]
    restoring: Bool[Array, ""]
    goal: Float[Array, ""]
    short: Int[Array, ""]
    lost: Int[Array, ""]
    before: tuple[Plan, Outcome, Float[Array, "N nx"]]
    flat: Int[Array, ""]

    @property
    def cost(self) -> Float[Array, ""]:
        """Cost of the plan."""
        return self.found.cost


class InteriorStep(NamedTuple):
    """A Newton step for the KKT conditions of the barrier problem: changes of all unknowns, and feedback gains.

    Each row of z holds nx changes of the state and P changes of the design parameters; u holds the changes of the controls.
    """

    z: Array
    u: Array
    slacks: Slacks
    multipliers: DualVariables
    feedback: Array


def push_inside_bounds(problem: ControlProblem, plan: Plan, distance: float = INSIDE) -> Plan:
    """The plan with the initial state of the problem, and with controls and design parameters strictly inside their bounds."""
    design = inside_design(problem, plan.design, distance)
    placed = problem.with_design(design)
    states = jax.tree.map(lambda leaf, first: leaf.at[0].set(first), plan.states, placed.initial)
    return Plan(states, inside(plan.controls, placed.lower[None], placed.upper[None], distance), design)


def inner_bounds(lower: Array, upper: Array, distance: float = INSIDE) -> tuple[Array, Array]:
    """Bounds of values that are strictly inside the given bounds, also after rounding."""
    room = jnp.where(jnp.isfinite(upper - lower), distance * (upper - lower), distance)
    largest = jnp.maximum(*(jnp.where(jnp.isfinite(bound), jnp.abs(bound), 0.0) for bound in (lower, upper)))
    room = jnp.maximum(room, _ROUNDED * jnp.finfo(lower.dtype).eps * largest)
    return lower + room, upper - room


def inside(x: Array, lower: Array, upper: Array, distance: float = INSIDE) -> Array:
    return jnp.clip(x, *inner_bounds(lower, upper, distance))


def inside_design(problem: ControlProblem, design: Float[Array, "P"], distance: float = INSIDE) -> Float[Array, "P"]:
    return inside(design, *problem.design_bounds, distance)


def first_barrier(problem: ControlProblem, value: float = FIRST_BARRIER) -> Float[Array, ""]:
    """The barrier parameter where a search begins, zero for a problem without bounds and inequality constraints."""
    bounded = jnp.any(jnp.isfinite(jnp.concatenate([problem.lower, problem.upper, *problem.design_bounds])))
    inequality_path, inequality_end = inequalities(problem)
    limited = bool(inequality_path.any() or inequality_end.any())
    return jnp.where(bounded | limited, value, 0.0).astype(problem.lower.dtype)


def inequality_count(problem: ControlProblem) -> Float[Array, ""]:
    """Number of inequalities of a problem, bounds included."""
    path, end = inequalities(problem)
    of_controls, of_design = (
        jnp.sum(jnp.isfinite(jnp.concatenate(bounds)))
        for bounds in ((problem.lower, problem.upper), problem.design_bounds)
    )
    return (problem.steps * (of_controls + path.sum()) + of_design + end.sum()).astype(problem.lower.dtype)


def first_slacks(problem: ControlProblem, found: Outcome, distance: float = INSIDE) -> Slacks:
    """Slacks of the inequality constraints of a plan where a search begins."""
    inequality_path, inequality_end = inequalities(problem)
    return Slacks(
        jnp.where(inequality_path[None], jnp.maximum(-found.path, distance), 0.0),
        jnp.where(inequality_end, jnp.maximum(-found.end, distance), 0.0),
    )


def first_multipliers(problem: ControlProblem, plan: Plan, slacks: Slacks, barrier: Float[Array, ""]) -> DualVariables:
    """Multipliers where a search begins: complementary to slacks and distances from bounds, and zero for equality constraints."""
    inequality_path, inequality_end = inequalities(problem)
    distances = distances_from_bounds(problem, plan)
    return DualVariables(
        jnp.zeros((problem.steps, problem.dynamics.nx + problem.size), barrier.dtype),
        jnp.where(inequality_path[None], barrier / jnp.where(inequality_path[None], slacks.path, 1.0), 0.0),
        jnp.where(inequality_end, barrier / jnp.where(inequality_end, slacks.end, 1.0), 0.0),
        barrier / distances[0],
        barrier / distances[1],
    )


def distances_from_bounds(problem: ControlProblem, plan: Plan) -> tuple[Float[Array, "2 N nu"], Float[Array, "2 P"]]:
    """Distances of controls and design parameters from their lower (first) and upper (second) bounds."""
    controls = jnp.stack([plan.controls - problem.lower[None], problem.upper[None] - plan.controls])
    lower, upper = problem.design_bounds
    return controls, jnp.stack([plan.design - lower, upper - plan.design])


def eliminate_slacks(problem: ControlProblem, search: InteriorSearch) -> ConstraintTerms:
    """Constraint terms of the Newton system after the steps of slacks and multipliers have been eliminated from it.

    The remaining system belongs to a linear-quadratic problem. A constraint with linearized change dg adds y' dg + 1/2 w dg^2 to
    the cost of this problem; the function returns the multipliers y and weights w. In a restoration phase they are those of half
    the sum of the squared residuals g + s.
    """
    delta, mu = regularization(search.barrier.dtype), search.barrier

    def of(c, s, y, may):
        soft = jnp.where(may, s + delta * y, 1.0)
        weight = jnp.where(may, y / soft, 1.0 / delta)
        pull = jnp.where(may, y + (y * c + mu) / soft, y + weight * c)
        off = c + s
        violated = jnp.where(off != 0.0, 1.0, 0.0)
        return jnp.where(search.restoring, off, pull), jnp.where(search.restoring, violated, weight)

    inequality_path, inequality_end = inequalities(problem)
    path, path_weight = of(search.found.path, search.slacks.path, search.multipliers.path, inequality_path[None])
    end, end_weight = of(search.found.end, search.slacks.end, search.multipliers.end, inequality_end)
    return ConstraintTerms(path, end, path_weight, end_weight)


def without_constraint_terms(expansion: Expansion, terms: ConstraintTerms) -> LinearQuadratic:
    """The linear-quadratic model whose gradients are those of the costs only, without the constraint terms."""
    model, n = expansion.model, expansion.model.A.shape[1]
    path = einsum("kci,kc->ki", expansion.path_rows, terms.path)
    slopes = (model.q - path[:, :n], model.r - path[:, n:], model.q_end - expansion.end_rows.T @ terms.end)
    return eqx.tree_at(lambda m: (m.q, m.r, m.q_end), model, slopes)


def with_constraint_terms(cost_model: LinearQuadratic, expansion: Expansion, terms: ConstraintTerms) -> LinearQuadratic:
    """The linear-quadratic model with the gradients of the constraint terms added to those of the costs."""
    return without_constraint_terms(
        eqx.tree_at(lambda e: e.model, expansion, cost_model), jax.tree.map(jnp.negative, terms)
    )


def infeasibility(defects: Array, found: Outcome, slacks: Slacks) -> Float[Array, ""]:
    """The infeasibility of a plan: the 1-norm of the defects of the dynamics and of the residuals g + s of the constraints."""
    return (
        jnp.sum(jnp.abs(defects))
        + jnp.sum(jnp.abs(found.path + slacks.path))
        + jnp.sum(jnp.abs(found.end + slacks.end))
    )


def optimality_error(
    problem: ControlProblem,
    search: InteriorSearch,
    cost_model: LinearQuadratic,
    expansion: Expansion,
    barrier: Float[Array, ""],
) -> Float[Array, ""]:
    """The largest residual of the KKT conditions of the barrier problem, or of the control problem if barrier = 0.

    The conditions are stationarity of the Lagrangian, complementarity (multiplier times distance from the bound equals the barrier
    parameter), and primal feasibility. As in Ipopt, residuals of stationarity and complementarity are divided by a scale that grows
    with the mean of the multipliers.
    """
    f, n = search.multipliers, cost_model.A.shape[1]
    path = einsum("kci,kc->ki", expansion.path_rows, f.path)
    by_z = cost_model.q + path[:, :n] + einsum("kij,ki->kj", cost_model.A, f.costates)
    by_u = cost_model.r + path[:, n:] + einsum("kij,ki->kj", cost_model.B, f.costates) - f.controls[0] + f.controls[1]
    by_end = cost_model.q_end + expansion.end_rows.T @ f.end - f.costates[-1]
    slopes = [by_u, by_z[1:] - f.costates[:-1], by_end]
    if problem.design is not None:
        slopes.append(initial_jacobian(problem, search.plan).T @ by_z[0] - f.design[0] + f.design[1])
    controls, design = distances_from_bounds(problem, search.plan)
    inequality_path, inequality_end = inequalities(problem)

    def product(multiplier, distance):
        return jnp.where(jnp.isfinite(distance), multiplier * distance - barrier, 0.0)

    products = [
        product(f.controls, controls),
        product(f.design, design),
        jnp.where(inequality_path[None], f.path * search.slacks.path - barrier, 0.0),
        jnp.where(inequality_end, f.end * search.slacks.end - barrier, 0.0),
    ]
    violations = [search.gaps, search.found.path + search.slacks.path, search.found.end + search.slacks.end]
    sizes = [jnp.mean(jnp.abs(multiplier)) for multiplier in jax.tree.leaves(f) if multiplier.size]
    scale = jnp.maximum(jnp.max(jnp.stack(sizes)) / 100.0, 1.0)
    return jnp.maximum(largest(slopes + products) / scale, largest(violations))


def largest(arrays: list[Array]) -> Float[Array, ""]:
    return jnp.max(jnp.stack([jnp.max(jnp.abs(array), initial=0.0) for array in arrays]))
