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
from jaxdyn.control.plan import Outcome, Plan, closed_loop, gaps, outcome, regularization, violation
from jaxdyn.control.problem import ControlProblem, inequalities
from jaxdyn.lanes import Backend
from jaxdyn.spatial.arrays import einsum

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
    """

    plan: Plan
    slacks: Slacks
    multipliers: DualVariables
    gaps: Float[Array, "N nx"]
    found: Outcome
    violation: Float[Array, ""]
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


def push_inside_bounds(problem: ControlProblem, plan: Plan) -> Plan:
    """The plan with the initial state of the problem, and with controls and design parameters strictly inside their bounds."""

    def moved(x, lower, upper):
        room = jnp.where(jnp.isfinite(upper - lower), INSIDE * (upper - lower), INSIDE)
        return jnp.clip(x, lower + room, upper - room)

    design = plan.design
    if problem.design is not None:
        design = moved(design, problem.design.lower, problem.design.upper)
    placed = problem.with_design(design)
    states = jax.tree.map(lambda leaf, first: leaf.at[0].set(first), plan.states, placed.initial)
    return Plan(states, moved(plan.controls, placed.lower[None], placed.upper[None]), design)


def distances_from_bounds(problem: ControlProblem, plan: Plan) -> tuple[Float[Array, "2 N nu"], Float[Array, "2 P"]]:
    """Distances of controls and design parameters from their lower (first) and upper (second) bounds."""
    controls = jnp.stack([plan.controls - problem.lower[None], problem.upper[None] - plan.controls])
    if problem.design is None:
        return controls, jnp.zeros((2, 0), controls.dtype)
    return controls, jnp.stack([plan.design - problem.design.lower, problem.design.upper - plan.design])


def eliminate_slacks(problem: ControlProblem, search: InteriorSearch) -> ConstraintTerms:
    """Constraint terms of the Newton system after the steps of slacks and multipliers have been eliminated from it.

    The remaining system belongs to a linear-quadratic problem. A constraint with linearized change dg adds y' dg + 1/2 w dg^2 to
    the cost of this problem; the function returns the multipliers y and weights w.
    """
    delta, mu = regularization(search.barrier.dtype), search.barrier

    def of(c, s, y, may):
        soft = jnp.where(may, s + delta * y, 1.0)
        weight = jnp.where(may, y / soft, 1.0 / delta)
        return jnp.where(may, y + (y * c + mu) / soft, y + weight * c), weight

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
) -> tuple[InteriorSearch, Bool[Array, ""]]:
    """Filter line search: apply the largest step fraction that the filter accepts.

    If the plan is nearly feasible and the cost decreases along the step, the Armijo condition on the cost is required. Otherwise
    infeasibility or cost must decrease, and the present plan is added to the filter. If no fraction of the straight step is
    accepted, the same fractions are tried with simulated states, that is, with the motion that follows the straight plan under the
    feedback of the step. Such a plan has no gaps, so its constraints and its cost alone decide; it must also decrease the exact
    penalty function cost + (largest multiplier) infeasibility.

    Args:
        problem: The control problem.
        search: The present state of the search.
        cost_model: The linear-quadratic model of the costs, without constraint terms.
        step: The Newton step.
        backend: Compiler of the computation, see `lanes`.

    Returns:
        The new state of the search, unchanged if no fraction is accepted, and whether a fraction was accepted.

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
    longest = jnp.min(jnp.stack(reaches))
    fractions = longest * jnp.asarray(_FRACTIONS, mu.dtype)
    far_now = infeasibility(search.gaps, search.found, search.slacks)
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
        first = problem.with_design(there).initial
        states = jax.tree.map(lambda leaf, first: leaf.at[0].set(first), states, first)
        return Plan(states, plan.controls + fraction * step.u, there)

    @jax.vmap
    def simulated(straight):
        first = jax.tree.map(lambda leaf: leaf[0], straight.states)
        below, above = distances[0]
        bounds = plan.controls - kept * below, plan.controls + kept * above
        return closed_loop(problem, straight, step.feedback, first, *bounds, backend=backend)

    @jax.jit  # traced once, for straight and simulated plans
    def best_of(plans, is_simulated):
        """The plan that is accepted with the largest fraction, and whether there is one."""

        def tried(fraction, new):
            slacks = jax.tree.map(lambda s, ds: s + fraction * ds, search.slacks, step.slacks)
            found, defects = outcome(problem, new, backend=backend), gaps(problem, new, backend=backend)
            far = infeasibility(defects, found, slacks)
            return slacks, found, defects, far, found.cost - mu * _barrier_of(problem, new, slacks)

        slacks, founds, defects, far, costs = jax.vmap(tried)(fractions, plans)
        cheaper = costs - cost_now <= _LEAST_GAIN * fractions * slope + rounding
        better = (far <= (1.0 - _MARGIN) * far_now) | (costs - cost_now <= rounding - _MARGIN * far_now)
        seen = search.filter
        new_to_filter = jnp.all((far[:, None] <= seen[None, :, 0]) | (costs[:, None] <= seen[None, :, 1]), axis=1)
        good = jnp.where(descends, cheaper, better) & new_to_filter & (far <= search.farthest)
        good = good & (~is_simulated | (costs - cost_now <= steepest * (far_now - far) + rounding))
        good = good & jnp.isfinite(far) & jnp.isfinite(costs)
        best = jnp.argmax(good)
        entry = jnp.stack([(1.0 - _MARGIN) * far_now, cost_now - _MARGIN * far_now])
        memory = jnp.where(descends[best] & cheaper[best], seen, jnp.concatenate([seen[1:], entry[None]]))
        chosen = jax.tree.map(lambda leaf: leaf[best], (plans, slacks, founds, defects, fractions))
        return (*chosen, memory), good[best]

    plans = straight(fractions)
    first = best_of(plans, jnp.asarray(False))
    found, accepted = jax.lax.cond(first[1], lambda: first, lambda: best_of(simulated(plans), jnp.asarray(True)))
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
    ), accepted


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
