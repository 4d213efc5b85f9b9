"""Parts of a primal-dual interior-point method for optimal control: unknowns, slack elimination, KKT error, filter line search.

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
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxdyn.control.expansion import ConstraintTerms, Expansion, initial_jacobian
from jaxdyn.control.linear_quadratic import LinearQuadratic
from jaxdyn.control.plan import Outcome, Plan, closed_loop, outcome_and_gaps, regularization, violation
from jaxdyn.control.problem import ControlProblem, inequalities
from jaxdyn.lanes import Backend
from jaxdyn.spatial.arrays import einsum

_FIRST_BARRIER = 0.1
_FRACTIONS = 0.5 ** np.arange(8)  # step fractions, relative to the longest admissible step, evaluated in parallel
_LEAST_FRACTION = 0.99  # smallest value of the fraction to the boundary
INSIDE = 1e-2  # least initial distance from bounds, relative to upper - lower, or absolute if a bound is infinite
# Largest infeasibility that the line search accepts, relative to that of the initial guess. With 1e4, plans of low cost that are
# far from any motion are accepted, from which Newton's method seldom returns: it then finds 3 swing-ups of a double pendulum from
# 24 initial guesses, instead of 12.
FARTHEST = 1.2
_NEARLY_FEASIBLE = 1e-4  # infeasibility, relative to that of the initial guess, below which the cost must decrease
_MARGIN = 1e-5  # margin by which a plan must reduce infeasibility or cost in order to pass the filter, relative to infeasibility
_LEAST_GAIN = 1e-4  # Armijo condition: required decrease of the cost as a fraction of that predicted by its slope


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
    flat: Int[Array, ""]

    @property
    def cost(self) -> Float[Array, ""]:
        """Cost of the plan."""
        return self.found.cost


class StepLength(NamedTuple):
    """The length of an accepted step.

    Attributes:
        longest: The largest fraction of the Newton step that slacks and bounds permit.
        share: The accepted share of this fraction, 0 if no step was accepted.
    """

    longest: Float[Array, ""]
    share: Float[Array, ""]


class InteriorStep(NamedTuple):
    """A Newton step for the KKT conditions of the barrier problem: changes of all unknowns, and feedback gains.

    Each row of z holds nx changes of the state and P changes of the design parameters; u holds the changes of the controls.
    """

    z: Array
    u: Array
    slacks: Slacks
    multipliers: DualVariables
    feedback: Array


def push_inside_bounds(problem: ControlProblem, plan: Plan) -> Plan:
    """The plan with the initial state of the problem, and with controls and design parameters strictly inside their bounds."""

    design = _inside_design(problem, plan.design)
    placed = problem.with_design(design)
    states = jax.tree.map(lambda leaf, first: leaf.at[0].set(first), plan.states, placed.initial)
    return Plan(states, _inside(plan.controls, placed.lower[None], placed.upper[None]), design)


def _inner(lower: Array, upper: Array) -> tuple[Array, Array]:
    """Bounds of values that are strictly inside the given bounds."""
    room = jnp.where(jnp.isfinite(upper - lower), INSIDE * (upper - lower), INSIDE)
    return lower + room, upper - room


def _inside(x: Array, lower: Array, upper: Array) -> Array:
    return jnp.clip(x, *_inner(lower, upper))


def _inside_design(problem: ControlProblem, design: Float[Array, "P"]) -> Float[Array, "P"]:
    return design if problem.design is None else _inside(design, problem.design.lower, problem.design.upper)


def first_barrier(problem: ControlProblem) -> Float[Array, ""]:
    """The barrier parameter where a search begins, zero for a problem without bounds and inequality constraints."""
    bounds = [problem.lower, problem.upper]
    if problem.design is not None:
        bounds += [problem.design.lower, problem.design.upper]
    bounded = jnp.any(jnp.isfinite(jnp.concatenate(bounds)))
    inequality_path, inequality_end = inequalities(problem)
    limited = bool(inequality_path.any() or inequality_end.any())
    return jnp.where(bounded | limited, _FIRST_BARRIER, 0.0).astype(problem.lower.dtype)


def first_slacks(problem: ControlProblem, found: Outcome) -> Slacks:
    """Slacks of the inequality constraints of a plan where a search begins."""
    inequality_path, inequality_end = inequalities(problem)
    return Slacks(
        jnp.where(inequality_path[None], jnp.maximum(-found.path, INSIDE), 0.0),
        jnp.where(inequality_end, jnp.maximum(-found.end, INSIDE), 0.0),
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
    if problem.design is None:
        return controls, jnp.zeros((2, 0), controls.dtype)
    return controls, jnp.stack([plan.design - problem.design.lower, problem.design.upper - plan.design])


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
        return jnp.where(search.restoring, off, pull), jnp.where(
            search.restoring, jnp.where(off != 0.0, 1.0, 0.0), weight
        )

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
    sizes = jnp.stack(
        [
            jnp.mean(jnp.abs(multiplier)) if multiplier.size else jnp.zeros((), barrier.dtype)
            for multiplier in jax.tree.leaves(f)
        ]
    )
    scale = jnp.maximum(jnp.max(sizes) / 100.0, 1.0)
    return jnp.maximum(_largest(slopes + products) / scale, _largest(violations))


def _largest(arrays: list[Array]) -> Float[Array, ""]:
    return jnp.max(jnp.stack([jnp.max(jnp.abs(array), initial=0.0) for array in arrays]))


def fraction_to_boundary(barrier: Float[Array, ""]) -> Float[Array, ""]:
    """The largest relative decrease of a slack, a distance from a bound or a positive multiplier in one step.

    This fraction tends to 1 as the barrier parameter tends to zero; with a constant fraction, convergence would be at most linear.
    Source: Waechter and Biegler 2006 (8).
    """
    return jnp.maximum(_LEAST_FRACTION, 1.0 - barrier)


def _reach(value: Array, change: Array, kept: Float[Array, ""]) -> Float[Array, ""]:
    """The largest step fraction, at most 1, that decreases no positive value by more than the fraction `kept`."""
    ratio = jnp.where(change < 0, -kept * value / jnp.where(change < 0, change, 1.0), 1.0)
    return jnp.min(jnp.minimum(ratio, 1.0), initial=1.0)


def _barrier_of(problem: ControlProblem, plan: Plan, slacks: Slacks) -> Float[Array, ""]:
    """The sum of the logarithms of slacks and of distances from finite bounds."""
    inequality_path, inequality_end = inequalities(problem)

    def logarithms(x, counts):
        return jnp.sum(jnp.log(jnp.where(counts, x, 1.0)))

    total = logarithms(slacks.path, inequality_path[None]) + logarithms(slacks.end, inequality_end)
    for distance in distances_from_bounds(problem, plan):
        total = total + logarithms(distance, jnp.isfinite(distance))
    return total


def line_search(
    problem: ControlProblem, search: InteriorSearch, cost_model: LinearQuadratic, step: InteriorStep, backend: Backend
) -> tuple[InteriorSearch, StepLength]:
    """Filter line search: apply the largest step fraction that the filter accepts.

    If the plan is nearly feasible and the cost decreases along the step, the Armijo condition on the cost is required. Otherwise
    infeasibility or cost must decrease, and the present plan is added to the filter. If no fraction of the straight step is
    accepted, the same fractions are tried with simulated states, that is, with the motion that follows the straight plan under the
    feedback of the step. Such a plan has no gaps, so its constraints and its cost alone decide; it must also decrease the exact
    penalty function cost + (largest multiplier) infeasibility.

    In a restoration phase, all fractions of straight and of simulated steps are tried, and the plan of the smallest infeasibility
    is taken. Controls and design parameters are clipped to values that are as far inside their bounds as those of an initial guess,
    and slacks follow from the constraint values, so that a search can begin from every plan of the phase.

    Args:
        problem: The control problem.
        search: The present state of the search.
        cost_model: The linear-quadratic model of the costs, without constraint terms.
        step: The Newton step.
        backend: Compiler of the computation, see `lanes`.

    Returns:
        The new state of the search, unchanged if no fraction is accepted, and the length of the step.

    Source: Waechter and Biegler 2006, section 2.3.
    """
    mu, plan, nx = search.barrier, search.plan, problem.dynamics.nx
    kept = fraction_to_boundary(mu)
    design = step.z[0, nx:]
    changes = (jnp.stack([step.u, -step.u]), jnp.stack([design, -design]))
    distances = distances_from_bounds(problem, plan)
    reaches = [
        _reach(jnp.where(jnp.isfinite(d), d, 1.0), jnp.where(jnp.isfinite(d), c, 0.0), kept)
        for d, c in zip(distances, changes, strict=True)
    ]
    inequality_path, inequality_end = inequalities(problem)
    reaches += [
        _reach(search.slacks.path, jnp.where(inequality_path[None], step.slacks.path, 0.0), kept),
        _reach(search.slacks.end, jnp.where(inequality_end, step.slacks.end, 0.0), kept),
    ]
    restoring = search.restoring
    longest = jnp.where(restoring, 1.0, jnp.min(jnp.stack(reaches)))
    fractions = longest * jnp.asarray(_FRACTIONS, mu.dtype)
    far_now = search.far
    cost_now = search.found.cost - mu * _barrier_of(problem, plan, search.slacks)
    slope = (
        einsum("ki,ki->", cost_model.q, step.z[:-1])
        + einsum("km,km->", cost_model.r, step.u)
        + cost_model.q_end @ step.z[-1]
    )
    for value, change, counts in (
        *((d, c, jnp.isfinite(d)) for d, c in zip(distances, changes, strict=True)),
        (search.slacks.path, step.slacks.path, jnp.broadcast_to(inequality_path[None], search.slacks.path.shape)),
        (search.slacks.end, step.slacks.end, jnp.asarray(inequality_end)),
    ):
        ratio = jnp.where(counts, change / jnp.where(counts, value, 1.0), 0.0)
        # The logarithm of a slack that grows to many times its size increases far less than its slope at the slack promises, and
        # no step would decrease the cost by as much as the slope demands.
        slope = slope - mu * jnp.sum(jnp.where(ratio > 1.0, 1.0 + jnp.log(jnp.maximum(ratio, 1.0)), ratio))
    rounding = 10.0 * jnp.finfo(mu.dtype).eps * (1.0 + jnp.abs(cost_now))
    descends = (
        (slope < 0)
        & (fractions * jnp.maximum(-slope, 0.0) ** 2.3 > far_now**1.1)
        & (far_now <= _NEARLY_FEASIBLE * search.farthest / FARTHEST)
    )

    # Simulated plans have no gaps, so without a limit they would pass the filter at any cost. They must decrease the exact penalty
    # function as well, cost + (largest multiplier) infeasibility.
    ahead = jax.tree.map(jnp.add, search.multipliers, step.multipliers)
    steepest = _largest([ahead.costates, ahead.path, ahead.end])

    @jax.vmap
    def straight(fraction):
        there = plan.design + fraction * design
        states = jax.vmap(problem.dynamics.retract)(plan.states, fraction * step.z[:, :nx])
        there = jnp.where(restoring, _inside_design(problem, there), there)
        first = problem.with_design(there).initial
        states = jax.tree.map(lambda leaf, first: leaf.at[0].set(first), states, first)
        u = plan.controls + fraction * step.u
        u = jnp.where(restoring, _inside(u, problem.lower[None], problem.upper[None]), u)
        return Plan(states, u, there)

    @jax.vmap
    def simulated(straight):
        first = jax.tree.map(lambda leaf: leaf[0], straight.states)
        below, above = distances[0]
        low, high = _inner(problem.lower[None], problem.upper[None])
        bounds = (
            jnp.where(restoring, low, plan.controls - kept * below),
            jnp.where(restoring, high, plan.controls + kept * above),
        )
        return closed_loop(problem, straight, step.feedback, first, *bounds, backend=backend)

    @jax.jit  # traced once, for straight and simulated plans
    def best_of(plans, is_simulated):
        """The plan that is accepted with the largest fraction, and whether there is one."""

        def tried(fraction, new):
            found, defects = outcome_and_gaps(problem, new, backend=backend)
            slacks = jax.tree.map(
                lambda s, ds, first: jnp.where(restoring, first, s + fraction * ds),
                search.slacks,
                step.slacks,
                first_slacks(problem, found),
            )
            far = infeasibility(defects, found, slacks)
            return slacks, found, defects, far, found.cost - mu * _barrier_of(problem, new, slacks)

        slacks, founds, defects, far, costs = jax.vmap(tried)(fractions, plans)
        cheaper = costs - cost_now <= _LEAST_GAIN * fractions * slope + rounding
        better = (far <= (1.0 - _MARGIN) * far_now) | (costs - cost_now <= rounding - _MARGIN * far_now)
        seen = search.filter
        new_to_filter = jnp.all((far[:, None] <= seen[None, :, 0]) | (costs[:, None] <= seen[None, :, 1]), axis=1)
        good = jnp.where(descends, cheaper, better) & new_to_filter & (far <= search.farthest)
        good = good & (~is_simulated | (costs - cost_now <= steepest * (far_now - far) + rounding))
        good = jnp.where(restoring, far <= (1.0 - _LEAST_GAIN * fractions) * far_now, good)
        good = good & jnp.isfinite(far) & jnp.isfinite(costs)
        best = jnp.argmax(jnp.where(good, jnp.where(restoring, -far, fractions), -jnp.inf))
        entry = jnp.stack([(1.0 - _MARGIN) * far_now, cost_now - _MARGIN * far_now])
        memory = jnp.where(descends[best] & cheaper[best], seen, jnp.concatenate([seen[1:], entry[None]]))
        chosen = jax.tree.map(lambda leaf: leaf[best], (plans, slacks, founds, defects, fractions))
        return (*chosen, memory), good[best], jnp.where(good[best], far[best], jnp.inf)

    plans = straight(fractions)
    first = best_of(plans, jnp.asarray(False))

    def second():  # in a restoration phase, the better one of both
        other = best_of(simulated(plans), jnp.asarray(True))
        return jax.tree.map(lambda a, b: jnp.where(first[2] <= other[2], a, b), first, other)

    found, accepted, _ = jax.lax.cond(first[1] & ~restoring, lambda: first, second)
    now = (plan, search.slacks, search.found, search.gaps, longest, search.filter)
    plan, slacks, there, defects, fraction, memory = jax.tree.map(
        lambda new, old: jnp.where(accepted, new, old), found, now
    )
    multipliers = _moved_multipliers(
        search, step.multipliers, fraction, kept, accepted, (inequality_path, inequality_end)
    )
    return eqx.tree_at(
        lambda s: (s.plan, s.slacks, s.multipliers, s.gaps, s.found, s.violation, s.feedback, s.filter),
        search,
        (
            plan,
            slacks,
            multipliers,
            defects,
            there,
            jnp.maximum(violation(problem, there), jnp.max(jnp.abs(defects))),
            jnp.where(accepted, step.feedback, search.feedback),
            memory,
        ),
    ), StepLength(longest, jnp.where(accepted, fraction / longest, 0.0))


def _moved_multipliers(search, change: DualVariables, fraction, kept, accepted, may) -> DualVariables:
    """The multipliers after a step.

    Multipliers of equality constraints use the step fraction of the plan. Multipliers of inequality constraints and bounds, which
    must stay positive, use their own largest admissible fraction.
    """
    f, (inequality_path, inequality_end) = search.multipliers, may
    reaches = [
        _reach(f.path, jnp.where(inequality_path[None], change.path, 0.0), kept),
        _reach(f.end, jnp.where(inequality_end, change.end, 0.0), kept),
        _reach(f.controls, change.controls, kept),
        _reach(f.design, change.design, kept),
    ]
    dual = jnp.min(jnp.stack(reaches))
    moved = DualVariables(
        f.costates + fraction * change.costates,
        f.path + jnp.where(inequality_path[None], dual, fraction) * change.path,
        f.end + jnp.where(inequality_end, dual, fraction) * change.end,
        f.controls + dual * change.controls,
        f.design + dual * change.design,
    )
    return jax.tree.map(lambda new, old: jnp.where(accepted, new, old), moved, f)
