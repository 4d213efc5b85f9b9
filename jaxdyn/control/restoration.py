"""The restoration phase of the interior-point method: where its steps become short, infeasibility alone is reduced for a while.

Newton steps of the barrier problem become very short where linearized dynamics and constraints have no solution within the bounds,
or where they hold only very near the plan. The restoration phase leaves the cost out, and minimizes the squares of the constraint
residuals r = g + s in steps that close the linearized gaps and stay near the plan:

    minimize    1/2 |r + dr|^2 + w (mean of |dx|^2 + mean of |du / span|^2 + |dp / (1 + |p|)|^2) / 2 - w/N (logarithms of distances)
    such that   dx_{k+1} = A dx_k + B du_k + E dp + d_k,     w = (damping) (infeasibility)   (S7)

for steps dx, du and dp of states, controls and design parameters. Because the weight w vanishes with the infeasibility, the method
converges like Newton's method (Levenberg-Marquardt). When the infeasibility has decreased to a tenth, the search begins a second
time from the plan that was found. The phase gives up where no step decreases the infeasibility. The first phase that gives up is
undone: the search begins a second time from the plan at which the phase began, and then tolerates more short steps.

Source: Waechter and Biegler 2006, section 3.3; Fan and Yuan 2005 (weight).
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxdyn.control.interior_point import (
    FARTHEST,
    InteriorSearch,
    first_barrier,
    first_multipliers,
    first_slacks,
    infeasibility,
)
from jaxdyn.control.plan import violation
from jaxdyn.control.problem import ControlProblem

_SHORT, _PATIENCE = 0.02, 3  # step fraction below which a step is short, and short steps in a row that start the phase
_WORTH = 1e-4  # infeasibility, relative to the largest accepted one, below which the phase does not start
_RESTORED = 0.1  # the phase ends when the infeasibility has decreased by this factor
_FIRST_WEIGHT, _MOST_WEIGHT = 1e-2, 1e4  # damping at the start of the phase, and the one at which it gives up
_LONG_PATIENCE = 12  # short steps in a row that start a phase after the first one was undone
_MOST_LOST = 5  # number of phases that give up after which the search ends
_RETURN = 10.0  # factor by which infeasibility may increase again, see `turned`


def proximal_weights(
    problem: ControlProblem, search: InteriorSearch
) -> tuple[Float[Array, ""], Float[Array, "nu"], Float[Array, "P"]]:
    """Weights that the damping adds to the diagonals of the Hessians of a time step, for states, controls and design parameters.

    Outside of the restoration phase, w is the damping: costs are scaled, so it compares with the Hessian of the whole cost.
    """
    weight = search.damping * jnp.where(search.restoring, search.far, 1.0)
    span = problem.upper - problem.lower
    span = jnp.where(jnp.isfinite(span), span, 1.0)
    size = 1.0 + jnp.abs(search.plan.design)
    return weight / problem.steps, weight / problem.steps / span**2, weight / size**2  # (S7)


def turned(
    problem: ControlProblem, search: InteriorSearch, fraction: Float[Array, ""]
) -> tuple[InteriorSearch, Bool[Array, ""]]:
    """Start, end or undo the restoration phase, if that is due after a step.

    The search also forgets plans that are far from the best ones: from a plan with a small infeasibility, it may not return to more
    than ten times this infeasibility, and after the restoration phase, the bound is that of a search that begins.

    Args:
        problem: The control problem.
        search: The state of the search after the step.
        fraction: The accepted fraction of the step, 0 if none was accepted, and NaN if the step is to be disregarded.

    Returns:
        The state of the search, and whether so many phases have given up that the search should end.
    """
    s, restoring = search, search.restoring
    gives_up = restoring & (s.damping > _MOST_WEIGHT) & (fraction == 0.0)
    undone = gives_up & (s.lost == 0)
    there = jax.tree.map(lambda old, new: jnp.where(undone, old, new), s.before, (s.plan, s.found, s.gaps))
    plan, found, gaps = there
    missed = jnp.where(undone, jnp.maximum(violation(problem, found), jnp.max(jnp.abs(gaps))), s.violation)
    far = infeasibility(gaps, found, s.slacks)
    short = jnp.where(restoring | (fraction >= _SHORT), 0, jnp.where(fraction < _SHORT, s.short + 1, s.short))
    patience = jnp.where(s.lost == 1, _LONG_PATIENCE, _PATIENCE)
    starts = ~restoring & (short >= patience) & (far > _WORTH * s.farthest)
    lost = jnp.where(gives_up, s.lost + 1, s.lost)
    ends = gives_up | (restoring & (far <= s.goal))
    anywhere = restoring | starts  # multipliers of a restoration phase are those of a search that begins

    def chosen(new, old):
        return jax.tree.map(lambda a, b: jnp.where(anywhere, a, b), new, old)

    slacks = chosen(first_slacks(problem, found), s.slacks)
    far_after = infeasibility(gaps, found, slacks)
    barrier = jnp.where(ends, first_barrier(problem), s.barrier)
    multipliers = chosen(first_multipliers(problem, plan, slacks, barrier), s.multipliers)
    near = FARTHEST * jnp.maximum(jnp.where(ends, far_after, _RETURN * far), 1.0)
    after = dataclasses.replace(
        search,
        plan=plan,
        found=found,
        gaps=gaps,
        violation=missed,
        before=jax.tree.map(lambda new, old: jnp.where(starts, new, old), there, s.before),
        slacks=slacks,
        multipliers=multipliers,
        far=far_after,
        barrier=barrier,
        filter=jnp.where(ends, jnp.inf, s.filter),
        farthest=jnp.where(undone, near, jnp.minimum(s.farthest, near)),
        damping=jnp.where(starts, _FIRST_WEIGHT, jnp.where(ends, 0.0, s.damping)),
        wait=jnp.where(ends, 0, s.wait),
        last_wait=jnp.where(ends, 0, s.last_wait),
        restoring=(restoring & ~ends) | starts,
        goal=jnp.where(starts, _RESTORED * far, s.goal),
        short=jnp.where(starts, 0, short),
        lost=lost,
    )
    return after, lost >= _MOST_LOST
