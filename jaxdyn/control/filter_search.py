"""Filter line search of the interior-point method: a step must decrease the infeasibility or the cost of a plan.

Source: Waechter and Biegler 2006, section 2.3.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

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
from jaxdyn.control.plan import Plan, closed_loop, outcome_and_gaps, violation
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
    steepest = largest([ahead.costates, ahead.path, ahead.end])

    @jax.vmap
    def straight(fraction):
        there = plan.design + fraction * design
        states = jax.vmap(problem.dynamics.retract)(plan.states, fraction * step.z[:, :nx])
        there = jnp.where(restoring, inside_design(problem, there), there)
        first = problem.with_design(there).initial
        states = jax.tree.map(lambda leaf, first: leaf.at[0].set(first), states, first)
        u = plan.controls + fraction * step.u
        u = jnp.where(restoring, inside(u, problem.lower[None], problem.upper[None]), u)
        return Plan(states, u, there)

    @jax.vmap
    def simulated(straight):
        first = jax.tree.map(lambda leaf: leaf[0], straight.states)
        below, above = distances[0]
        low, high = inner_bounds(problem.lower[None], problem.upper[None])
        bounds = (
            jnp.where(restoring, low, plan.controls - kept * below),
            jnp.where(restoring, high, plan.controls + kept * above),
        )
        return closed_loop(problem, straight, step.feedback, first, *bounds)

    @jax.jit  # traced once, for straight and simulated plans
    def best_of(plans, is_simulated):
        """The plan that is accepted with the largest fraction, and whether there is one."""

        def tried(fraction, new):
            found, defects = outcome_and_gaps(problem, new)
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
        far_of_seen, cost_of_seen = jnp.split(seen.T, 2)
        new_to_filter = jnp.all((far[:, None] <= far_of_seen) | (costs[:, None] <= cost_of_seen), axis=1)
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
