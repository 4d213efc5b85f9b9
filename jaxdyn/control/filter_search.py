"""Filter line search of the interior-point method: a step must decrease the infeasibility or the cost of a plan.

Source: Waechter and Biegler 2006, section 2.3.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxdyn.compute.arrays import einsum
from jaxdyn.control.interior_point import (
    FARTHEST,
    DualVariables,
    InteriorSearch,
    InteriorStep,
    Slacks,
    distances_from_bounds,
    first_slacks,
    infeasibility,
    inner_bounds,
    inside,
    inside_design,
    largest,
)
from jaxdyn.control.linear_quadratic import LinearQuadratic
from jaxdyn.control.plan import Outcome, Plan, closed_loop, outcome_and_gaps, violation
from jaxdyn.control.problem import ControlProblem, inequalities

_FRACTIONS = 0.5 ** np.arange(8)  # step fractions, relative to the longest admissible step, evaluated in parallel
_LEAST_FRACTION = 0.99  # smallest value of the fraction to the boundary
_NEARLY_FEASIBLE = 1e-4  # infeasibility, relative to that of the initial guess, below which the cost must decrease
_MARGIN = 1e-5  # margin by which a plan must reduce infeasibility or cost in order to pass the filter, relative to infeasibility
_LEAST_GAIN = 1e-4  # Armijo condition: required decrease of the cost as a fraction of that predicted by its slope


class StepLength(NamedTuple):
    """The length of an accepted step.

    Attributes:
        longest: The largest fraction of the Newton step that slacks and bounds permit.
        share: The accepted share of this fraction, 0 if no step was accepted.
    """

    longest: Float[Array, ""]
    share: Float[Array, ""]


def line_search(
    problem: ControlProblem, search: InteriorSearch, cost_model: LinearQuadratic, step: InteriorStep
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

    Returns:
        The new state of the search, unchanged if no fraction is accepted, and the length of the step.

    Source: Waechter and Biegler 2006, section 2.3.
    """
    direction = _Direction(problem, search, cost_model, step)
    longest = jnp.where(search.restoring, 1.0, direction.longest())
    fractions = longest * jnp.asarray(_FRACTIONS, search.barrier.dtype)
    # Compiled, so that it is traced once for straight and simulated plans.
    cost, slope = direction.cost(search.found, search.plan, search.slacks), direction.slope()
    best_of = jax.jit(lambda plans, is_simulated: direction.best_of(fractions, plans, is_simulated, cost, slope))
    plans = jax.vmap(direction.straight)(fractions)
    first = best_of(plans, jnp.asarray(False))

    def second():  # in a restoration phase, the better one of both
        other = best_of(jax.vmap(direction.simulated)(plans), jnp.asarray(True))
        return jax.tree.map(lambda a, b: jnp.where(first.far <= other.far, a, b), first, other)

    best = jax.lax.cond(first.accepted & ~search.restoring, lambda: first, second)
    share = jnp.where(best.accepted, best.fraction / longest, 0.0)
    return direction.followed(best, longest), StepLength(longest, share)


class _Best(NamedTuple):
    """The best of the plans that were tried.

    Attributes:
        plan, slacks, found, gaps: The plan with its slacks, its cost and constraint values, and its defects.
        fraction: The fraction of the step that leads to it.
        filter: The filter after this step.
        accepted: Whether the plan is accepted.
        far: Its infeasibility, infinite if it is not accepted.
    """

    plan: Plan
    slacks: Slacks
    found: Outcome
    gaps: Float[Array, "N nx"]
    fraction: Float[Array, ""]
    filter: Float[Array, "F 2"]
    accepted: Bool[Array, ""]
    far: Float[Array, ""]


class _Direction(NamedTuple):
    """The direction of a Newton step from the present plan of a search, along which fractions of the step are tried."""

    problem: ControlProblem
    search: InteriorSearch
    cost_model: LinearQuadratic
    step: InteriorStep

    @property
    def kept(self) -> Float[Array, ""]:
        """The largest relative decrease of positive values."""
        return fraction_to_boundary(self.search.barrier)

    def cost(self, found: Outcome, plan: Plan, slacks: Slacks) -> Float[Array, ""]:
        """The cost of a plan in the barrier problem."""
        return found.cost - self.search.barrier * _barrier_of(self.problem, plan, slacks)

    def positive(self) -> list[tuple[Array, Array, Array]]:
        """The values that stay positive, distances from bounds and slacks, with their changes and masks of those that exist."""
        search, step = self.search, self.step
        design = step.z[0, self.problem.dynamics.nx :]
        changes = (jnp.stack([step.u, -step.u]), jnp.stack([design, -design]))
        distances = distances_from_bounds(self.problem, search.plan)
        may_path, may_end = inequalities(self.problem)
        return [
            *((d, c, jnp.isfinite(d)) for d, c in zip(distances, changes, strict=True)),
            (search.slacks.path, step.slacks.path, jnp.broadcast_to(may_path[None], search.slacks.path.shape)),
            (search.slacks.end, step.slacks.end, jnp.asarray(may_end)),
        ]

    def longest(self) -> Float[Array, ""]:
        """The largest fraction of the step, at most 1, that slacks and bounds permit."""
        reached = [
            _reach(jnp.where(counts, value, 1.0), jnp.where(counts, change, 0.0), self.kept)
            for value, change, counts in self.positive()
        ]
        return jnp.min(jnp.stack(reached))

    def slope(self) -> Float[Array, ""]:
        """The derivative of the cost of the barrier problem with respect to the fraction of the step."""
        model, step = self.cost_model, self.step
        slope = einsum("ki,ki->", model.q, step.z[:-1]) + einsum("km,km->", model.r, step.u) + model.q_end @ step.z[-1]
        for value, change, counts in self.positive():
            ratio = jnp.where(counts, change / jnp.where(counts, value, 1.0), 0.0)
            # The logarithm of a slack that grows to many times its size increases far less than its slope at the slack promises,
            # and no step would decrease the cost by as much as the slope demands.
            grown = jnp.where(ratio > 1.0, 1.0 + jnp.log(jnp.maximum(ratio, 1.0)), ratio)
            slope = slope - self.search.barrier * jnp.sum(grown)
        return slope

    def straight(self, fraction: Float[Array, ""]) -> Plan:
        """The plan after a fraction of the step."""
        problem, plan, step, restoring = self.problem, self.search.plan, self.step, self.search.restoring
        nx = problem.dynamics.nx
        design = plan.design + fraction * step.z[0, nx:]
        states = jax.vmap(problem.dynamics.retract)(plan.states, fraction * step.z[:, :nx])
        design = jnp.where(restoring, inside_design(problem, design), design)
        first = problem.with_design(design).initial
        states = jax.tree.map(lambda leaf, first: leaf.at[0].set(first), states, first)
        u = plan.controls + fraction * step.u
        u = jnp.where(restoring, inside(u, problem.lower[None], problem.upper[None]), u)
        return Plan(states, u, design)

    def simulated(self, straight: Plan) -> Plan:
        """The motion that follows a straight plan under the feedback of the step."""
        problem, plan, restoring = self.problem, self.search.plan, self.search.restoring
        first = jax.tree.map(lambda leaf: leaf[0], straight.states)
        below, above = distances_from_bounds(problem, plan)[0]
        low, high = inner_bounds(problem.lower[None], problem.upper[None])
        lower = jnp.where(restoring, low, plan.controls - self.kept * below)
        upper = jnp.where(restoring, high, plan.controls + self.kept * above)
        return closed_loop(problem, straight, self.step.feedback, first, lower, upper)

    def slacks_after(self, fraction: Float[Array, ""], found: Outcome) -> Slacks:
        """The slacks after a fraction of the step."""
        return jax.tree.map(
            lambda s, ds, first: jnp.where(self.search.restoring, first, s + fraction * ds),
            self.search.slacks,
            self.step.slacks,
            first_slacks(self.problem, found),
        )

    def best_of(
        self,
        fractions: Float[Array, "A"],
        plans: Plan,
        is_simulated: Bool[Array, ""],
        cost_now: Float[Array, ""],
        slope: Float[Array, ""],
    ) -> _Best:
        """The plan that is accepted with the largest fraction, and whether there is one.

        Args:
            fractions: Fractions of the step.
            plans: The plans after these fractions.
            is_simulated: Whether the plans are simulated.
            cost_now: The cost of the present plan in the barrier problem.
            slope: The derivative of this cost with respect to the fraction.
        """
        search, far_now, restoring = self.search, self.search.far, self.search.restoring

        def tried(fraction, plan):
            found, defects = outcome_and_gaps(self.problem, plan)
            slacks = self.slacks_after(fraction, found)
            far = infeasibility(defects, found, slacks)
            return slacks, found, defects, far, self.cost(found, plan, slacks)

        slacks, founds, defects, far, costs = jax.vmap(tried)(fractions, plans)
        rounding = 10.0 * jnp.finfo(far.dtype).eps * (1.0 + jnp.abs(cost_now))
        descends = (
            (slope < 0)
            & (fractions * jnp.maximum(-slope, 0.0) ** 2.3 > far_now**1.1)
            & (far_now <= _NEARLY_FEASIBLE * search.farthest / FARTHEST)
        )
        cheaper = costs - cost_now <= _LEAST_GAIN * fractions * slope + rounding
        better = (far <= (1.0 - _MARGIN) * far_now) | (costs - cost_now <= rounding - _MARGIN * far_now)
        far_of_seen, cost_of_seen = jnp.split(search.filter.T, 2)
        new_to_filter = jnp.all((far[:, None] <= far_of_seen) | (costs[:, None] <= cost_of_seen), axis=1)
        good = jnp.where(descends, cheaper, better) & new_to_filter & (far <= search.farthest)
        # Simulated plans have no gaps, so without a limit they would pass the filter at any cost. They must decrease the exact
        # penalty function as well.
        ahead = jax.tree.map(jnp.add, search.multipliers, self.step.multipliers)
        steepest = largest([ahead.costates, ahead.path, ahead.end])
        good = good & (~is_simulated | (costs - cost_now <= steepest * (far_now - far) + rounding))
        good = jnp.where(restoring, far <= (1.0 - _LEAST_GAIN * fractions) * far_now, good)
        good = good & jnp.isfinite(far) & jnp.isfinite(costs)
        best = jnp.argmax(jnp.where(good, jnp.where(restoring, -far, fractions), -jnp.inf))
        entry = jnp.stack([(1.0 - _MARGIN) * far_now, cost_now - _MARGIN * far_now])
        longer = jnp.concatenate([search.filter[1:], entry[None]])
        plan, slack, found, gaps, fraction = jax.tree.map(
            lambda leaf: leaf[best], (plans, slacks, founds, defects, fractions)
        )
        memory = jnp.where(descends[best] & cheaper[best], search.filter, longer)
        farthest = jnp.where(good[best], far[best], jnp.inf)
        return _Best(plan, slack, found, gaps, fraction, memory, good[best], farthest)

    def followed(self, best: _Best, longest: Float[Array, ""]) -> InteriorSearch:
        """The search at the best plan, unchanged if this plan is not accepted."""
        search = self.search

        def moved(new, old):
            return jax.tree.map(lambda new, old: jnp.where(best.accepted, new, old), new, old)

        found, defects = moved((best.found, best.gaps), (search.found, search.gaps))
        fraction, may = moved(best.fraction, longest), inequalities(self.problem)
        multipliers = multipliers_after(search.multipliers, self.step.multipliers, fraction, self.kept, may)
        return dataclasses.replace(
            search,
            plan=moved(best.plan, search.plan),
            slacks=moved(best.slacks, search.slacks),
            multipliers=moved(multipliers, search.multipliers),
            gaps=defects,
            found=found,
            violation=jnp.maximum(violation(self.problem, found), jnp.max(jnp.abs(defects))),
            feedback=moved(self.step.feedback, search.feedback),
            filter=moved(best.filter, search.filter),
        )


def multipliers_after(
    multipliers: DualVariables,
    change: DualVariables,
    fraction: Float[Array, ""],
    kept: Float[Array, ""],
    may: tuple[np.ndarray, np.ndarray],
) -> DualVariables:
    """The multipliers after a step.

    Multipliers of equality constraints use the step fraction of the plan. Multipliers of inequality constraints and bounds, which
    must stay positive, use their own largest admissible fraction.

    Args:
        multipliers: Multipliers before the step.
        change: Their change by the whole step.
        fraction: The step fraction of the plan.
        kept: The largest relative decrease of a positive multiplier.
        may: Masks of the path constraints and of the final constraints that are inequalities.
    """
    f, (may_path, may_end) = multipliers, may
    positive = (
        (f.path, jnp.where(may_path[None], change.path, 0.0)),
        (f.end, jnp.where(may_end, change.end, 0.0)),
        (f.controls, change.controls),
        (f.design, change.design),
    )
    dual = jnp.min(jnp.stack([_reach(value, decrease, kept) for value, decrease in positive]))
    return DualVariables(
        f.costates + fraction * change.costates,
        f.path + jnp.where(may_path[None], dual, fraction) * change.path,
        f.end + jnp.where(may_end, dual, fraction) * change.end,
        f.controls + dual * change.controls,
        f.design + dual * change.design,
    )


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
