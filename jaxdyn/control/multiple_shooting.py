"""Multiple shooting: states and controls are improved together by a primal-dual interior-point method with Riccati recursions.

Newton's method is applied to the KKT conditions of the barrier problem of `interior_point`. After the elimination of slacks and
bounds, each Newton step is the solution of a linear-quadratic problem. Only the final plan of a search satisfies the dynamics.
Therefore states can be guessed freely, and unstable motions are not integrated over the whole duration.
"""

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxdyn.compute.arrays import einsum
from jaxdyn.control.expansion import ConstraintTerms, Expansion, cost_size, expanded, initial_jacobian
from jaxdyn.control.filter_search import StepLength, line_search
from jaxdyn.control.interior_point import (
    FARTHEST,
    FIRST_BARRIER,
    INSIDE,
    DualVariables,
    InteriorSearch,
    InteriorStep,
    Slacks,
    distances_from_bounds,
    eliminate_slacks,
    first_barrier,
    first_multipliers,
    first_slacks,
    inequality_count,
    infeasibility,
    optimality_error,
    push_inside_bounds,
    with_constraint_terms,
    without_constraint_terms,
)
from jaxdyn.control.linear_quadratic import LinearQuadratic, damped, optimum, residual
from jaxdyn.control.plan import Multipliers, Plan, outcome_and_gaps, regularization, violation
from jaxdyn.control.problem import ControlProblem, inequalities
from jaxdyn.control.restoration import proximal_weights, turned
from jaxdyn.control.solution import (
    ControlResult,
    IterativeSolver,
    Solution,
    Stats,
    first_result,
    in_precision,
)
from jaxdyn.mechanism.quantity import POSITIVE, plain

_BARRIER_FACTOR, _BARRIER_POWER = 0.2, 1.5
_LEAST_COST, _MOST_COST = 0.1, 100.0  # range of magnitudes in which costs are not scaled
_LEAST_BARRIER, _SMALLEST_BARRIER = 0.1, 1e-4  # in units of the tolerance: usually, and where costs are small
_GAP = 1e3  # largest duality gap of a solution relative to its cost, in units of the tolerance
_SOLVED_ENOUGH = 10.0  # error, in units of the barrier parameter, below which the barrier parameter is decreased
_MEMORY = 16  # plans in the filter, on which later plans must improve in infeasibility or in cost
_FIRST_DAMPING, _LEAST_DAMPING, _MOST_DAMPING = 1e-4, 1e-6, 1e10
_SHARE_DAMPING = 1e-2  # least damping after a step of which a small share was accepted
# Steps in a row with nearly the same cost, after which a larger error suffices, and after which a search ends.
_FLAT, _MOST_FLAT = 5, 20
_LESS_EXACT = 100.0  # factor of the tolerance of the error after these steps
_LONGEST_WAIT = 16  # maximum number of iterations without second derivatives of dynamics and constraints


class MultipleShooting(IterativeSolver):
    """Newton's method for states and controls together, with an interior-point method for bounds and constraints.

    If the line search accepts no step, it tries simulated ones, that is, the motions that follow the steps under the feedback of
    the linear-quadratic problem. If this problem is not convex, the second derivatives of dynamics and constraints are omitted for
    some iterations. If it is not convex even without them, or only a small share of a step is accepted, steps are damped. If steps
    stay short far from feasibility, a restoration phase reduces the infeasibility alone. A search also ends as solved if cost and
    violation have converged and the KKT residual is at most 100 times the tolerance, which rounding permits for long motions.
    Otherwise the duality gap of a solution is at most 1e-5, or 0.1 in single precision, of its cost, unless the cost is almost
    zero. Costs whose derivatives at the initial guess are very small or very large are scaled during the search to match the
    initial barrier parameter of 0.1.

    Attributes:
        parallel: If true, the Riccati recursion is computed by associative scans, in O(log N) parallel rounds instead of N
            sequential steps; this is faster on hardware with many threads, such as GPUs.
        tolerance: Largest violation, and largest scaled residual of the KKT conditions, that a solution may have; by default 1e-8
            in double and 1e-4 in single precision.
        barrier: Barrier parameter at the initial guess. With a small value, such as 1e-4, a search from nearly optimal states and
            controls takes fewer iterations (warm start); from other guesses it may fail.

    Source: Bock and Plitt 1984; Waechter and Biegler 2006 (interior point, filter); Sarkka and Garcia-Fernandez 2023 (parallel);
    Friedlander and Orban 2012 (dual regularization).
    """

    kind: ClassVar[str] = "multiple_shooting"

    parallel: bool = eqx.field(static=True, converter=plain, kw_only=True, default=False)
    tolerance: float | None = eqx.field(static=True, converter=plain, kw_only=True, default=None, metadata=POSITIVE)
    barrier: float = eqx.field(static=True, converter=plain, kw_only=True, default=FIRST_BARRIER, metadata=POSITIVE)

    def init(self, problem: ControlProblem, initial: Plan) -> InteriorSearch:
        # Close to a bound, multipliers barrier / distance are as large as with the default values.
        least = _LEAST_BARRIER * self._tolerance(problem.lower.dtype)
        start = max(self.barrier, least)
        distance = INSIDE * min(1.0, start / FIRST_BARRIER)
        plan = push_inside_bounds(problem, initial, distance)
        scale = _scale_of(cost_size(problem, plan))
        problem = problem.with_cost_scale(scale)
        (found, defects), dtype = outcome_and_gaps(problem, plan), problem.lower.dtype
        slacks = first_slacks(problem, found, distance)
        barrier = first_barrier(problem, start)
        none, zero = jnp.zeros((), int), jnp.zeros((), dtype)
        far = infeasibility(defects, found, slacks)
        return InteriorSearch(
            plan,
            slacks,
            first_multipliers(problem, plan, slacks, barrier),
            defects,
            found,
            jnp.maximum(violation(problem, found), jnp.max(jnp.abs(defects))),
            far,
            jnp.zeros((problem.steps, problem.dynamics.nu, problem.dynamics.nx), dtype),
            barrier,
            zero,
            none,
            none,
            jnp.full((_MEMORY, 2), jnp.inf, dtype),
            FARTHEST * jnp.maximum(far, 1.0),
            none,
            first_result((found, plan, defects)),
            scale,
            jnp.zeros((), bool),
            zero,
            none,
            none,
            (plan, found, defects),
            none,
        )

    def step(self, problem: ControlProblem, search: InteriorSearch) -> InteriorSearch:
        restoring = search.restoring
        # A restoration phase does not see the costs.
        modeled = problem.with_cost_scale(jnp.where(restoring, 0.0, search.scale))
        problem = problem.with_cost_scale(search.scale)
        use_curvature = (search.wait == 0) & ~restoring
        terms = eliminate_slacks(problem, search)
        expansion = expanded(
            modeled,
            search.plan,
            terms,
            search.gaps,
            costates=search.multipliers.costates[:, : problem.dynamics.nx],
            curvature=use_curvature.astype(search.damping.dtype),
        )
        cost_model = without_constraint_terms(expansion, terms)
        error = optimality_error(problem, search, cost_model, expansion, jnp.zeros_like(search.barrier))
        # Rounding may prevent a smaller error in long motions, where cost and violation have converged.
        enough = jnp.where(search.flat >= _FLAT, _LESS_EXACT, 1.0) * self._tolerance(search.barrier.dtype)
        least = self._least_barrier(problem, search)
        solved = (error <= enough) & ((search.barrier <= least) | (search.flat >= _FLAT)) & ~restoring
        search = self._lowered(search, least, optimality_error(problem, search, cost_model, expansion, search.barrier))
        terms = eliminate_slacks(problem, search)
        step = self._step(problem, search, with_constraint_terms(cost_model, expansion, terms), expansion, terms)
        after, length = line_search(problem, search, cost_model, step)
        after = self._adapted(problem, self._counted(search, after, length), length, use_curvature)
        code = jnp.where(solved, ControlResult.SUCCESSFUL.value, after.result).astype(search.result.dtype)
        search = jax.tree.map(lambda old, new: jnp.where(solved, old, new), search, after)
        return dataclasses.replace(search, result=code, iterations=after.iterations)

    def solution(self, problem: ControlProblem, search: InteriorSearch) -> Solution:
        s = search
        one = jnp.ones((), s.barrier.dtype)
        multipliers = Multipliers(s.multipliers.path / s.scale, s.multipliers.end / s.scale, one)
        return Solution(s.plan, s.feedback, multipliers, s.cost / s.scale, s.violation, s.result, Stats(s.iterations))

    def _tolerance(self, dtype: Any) -> float:
        return in_precision(self.tolerance, dtype, 1e-8, 1e-4)

    def _least_barrier(self, problem: ControlProblem, search: InteriorSearch) -> Float[Array, ""]:
        """The barrier parameter of a solution. Each inequality adds as much to the duality gap, which bounds the excess cost."""
        tolerance = self._tolerance(search.barrier.dtype)
        allowed = _GAP * jnp.abs(search.cost) / jnp.maximum(inequality_count(problem), 1.0)
        return tolerance * jnp.clip(allowed, _SMALLEST_BARRIER, _LEAST_BARRIER)

    def _lowered(self, search: InteriorSearch, least: Float[Array, ""], error: Float[Array, ""]) -> InteriorSearch:
        """Decrease the barrier parameter and empty the filter if the present barrier problem is solved accurately enough."""
        now = search.barrier
        lower = jnp.maximum(least, jnp.minimum(_BARRIER_FACTOR * now, now**_BARRIER_POWER))
        enough = (error <= _SOLVED_ENOUGH * now) & (lower < now) & ~search.restoring
        memory = jnp.where(enough, jnp.inf, search.filter)
        return dataclasses.replace(search, barrier=jnp.where(enough, lower, now), filter=memory)

    def _step(
        self,
        problem: ControlProblem,
        search: InteriorSearch,
        model: LinearQuadratic,
        expansion: Expansion,
        terms: ConstraintTerms,
    ) -> "InteriorStep":
        """The Newton step of all unknowns of the barrier problem."""
        mu, multipliers, plan = search.barrier, search.multipliers, search.plan
        distances = distances_from_bounds(problem, plan)
        (below, above), (design_below, design_above) = distances
        damping = search.damping
        near, near_controls, near_design = proximal_weights(problem, search)
        mu = jnp.where(search.restoring, near, mu)
        primal = tuple(mu / distance for distance in distances)
        controls, of_design = (
            jnp.where(search.restoring, new, old)
            for new, old in zip(primal, (multipliers.controls, multipliers.design), strict=True)
        )
        multipliers = dataclasses.replace(multipliers, controls=controls, design=of_design)
        stiff = multipliers.controls[0] / below + multipliers.controls[1] / above
        model = dataclasses.replace(
            model,
            Q=damped(model.Q, damping, near),
            R=damped(model.R + jax.vmap(jnp.diag)(stiff), damping, near_controls),
            Q_end=damped(model.Q_end, damping, near),
            r=model.r - mu / below + mu / above,
        )
        along = initial_jacobian(problem, plan)
        stiff = multipliers.design[0] / design_below + multipliers.design[1] / design_above + near_design
        design_gradient = mu / design_above - mu / design_below

        def solved(model, terms):
            return optimum(model, along, jnp.diag(stiff), terms, damping=damping, parallel=self.parallel)

        policy, *found = solved(model, design_gradient)
        if self.parallel:
            # Products of the matrices of many unstable steps lose accuracy, which one iterative refinement restores.
            _, *rest = solved(residual(model, *found[1:]), design_gradient + stiff * found[0])
            found = [a + b for a, b in zip(found, rest, strict=True)]
        design, z, u, costates = found
        delta = regularization(mu.dtype)
        path_change = einsum("kci,ki->kc", expansion.path_rows, jnp.concatenate([z[:-1], u], axis=1))
        end_change = expansion.end_rows @ z[-1]
        path = terms.path + terms.path_weight * path_change - multipliers.path
        end = terms.end + terms.end_weight * end_change - multipliers.end
        inequality_path, inequality_end = inequalities(problem)
        s, c = search.slacks, search.found
        slacks = Slacks(
            jnp.where(inequality_path[None], delta * path - path_change - c.path - s.path, 0.0),
            jnp.where(inequality_end, delta * end - end_change - c.end - s.end, 0.0),
        )

        def of_bounds(multiplier, distances, change):
            low, high = (mu / d - f for d, f in zip(distances, multiplier, strict=True))
            return jnp.stack(
                [low - multiplier[0] / distances[0] * change, high + multiplier[1] / distances[1] * change]
            )

        change = DualVariables(
            costates - multipliers.costates,
            path,
            end,
            of_bounds(multipliers.controls, (below, above), u),
            of_bounds(multipliers.design, (design_below, design_above), design),
        )
        return InteriorStep(z, u, slacks, change, policy.feedback[:, :, : problem.dynamics.nx])

    def _counted(self, before: InteriorSearch, after: InteriorSearch, length: StepLength) -> InteriorSearch:
        """Count accepted steps in a row that hardly change the cost of a plan without violation."""
        tolerance = self._tolerance(after.barrier.dtype)
        change = jnp.abs(after.cost - before.cost) <= tolerance * jnp.abs(before.cost)
        held = (jnp.maximum(before.violation, after.violation) <= tolerance) & ~after.restoring
        flat = jnp.where(change & held, after.flat + 1, 0)
        return dataclasses.replace(after, flat=jnp.where(length.share > 0.0, flat, after.flat))

    def _adapted(
        self, problem: ControlProblem, search: InteriorSearch, length: StepLength, use_curvature: Bool[Array, ""]
    ) -> InteriorSearch:
        """Adapt the regularization to the outcome of the line search.

        After a failure, second derivatives of dynamics and constraints are omitted for some iterations. If the line search fails
        without them too, or accepts a small share of the step only, the damping is increased. Short steps lead to the restoration
        phase.
        """
        share, restoring = length.share, search.restoring
        accepted = share > 0.0
        wait, last_wait, damping = search.wait, search.last_wait, search.damping
        more = jnp.maximum(10.0 * damping, _FIRST_DAMPING)
        usual = jnp.where(share < 0.1, jnp.maximum(4.0 * damping, _SHARE_DAMPING), damping)
        usual = jnp.where(share > 0.4, jnp.where(damping > _LEAST_DAMPING, 0.1 * damping, 0.0), usual)
        restored = jnp.where(share > 0.3, 0.3 * damping, jnp.where(share > 0.1, damping, 3.0 * damping))
        failed = use_curvature & ~accepted
        last_wait = jnp.where(
            failed, jnp.minimum(2 * last_wait + 1, _LONGEST_WAIT), jnp.where(use_curvature, 0, last_wait)
        )
        wait = jnp.where(failed, last_wait, jnp.maximum(wait - 1, 0))
        damping = jnp.where(accepted, jnp.where(restoring, restored, usual), jnp.where(failed, damping, more))
        held = search.violation <= self._tolerance(search.barrier.dtype)
        constrained = bool(problem.constraints or problem.final_constraints)
        missed = ControlResult.INFEASIBLE if constrained else ControlResult.GAPS
        lost = jnp.where(held, ControlResult.STUCK.value, missed.value)
        search = dataclasses.replace(
            search, wait=wait, last_wait=last_wait, damping=damping, iterations=search.iterations + 1
        )
        after, hopeless = turned(problem, search, jnp.where(failed, jnp.nan, length.longest * share))
        result = jnp.where(search.flat >= _MOST_FLAT, ControlResult.SLOW.value, search.result)
        gave_up = ((damping > _MOST_DAMPING) & ~restoring) | hopeless
        result = jnp.where(gave_up, lost, result).astype(search.result.dtype)
        return dataclasses.replace(after, result=result)


def _scale_of(size: Float[Array, ""]) -> Float[Array, ""]:
    """Factor that scales costs to a moderate magnitude; 1 if their magnitude is moderate already, zero, or not finite."""
    known = (size > 0.0) & jnp.isfinite(size)
    size = jnp.where(known, size, 1.0)
    return jnp.clip(size, _LEAST_COST, _MOST_COST) / size
