"""Multiple shooting: states and controls are improved together by a primal-dual interior-point method with Riccati recursions.

Newton's method is applied to the KKT conditions of the barrier problem of `interior_point`. After the elimination of slacks and
bounds, each Newton step is the solution of a linear-quadratic problem. Only the final plan of a search satisfies the dynamics.
Therefore states can be guessed freely, and unstable motions are not integrated over the whole duration.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxdyn.control.expansion import ConstraintTerms, Expansion, cost_size, expanded, initial_jacobian
from jaxdyn.control.interior_point import (
    FARTHEST,
    INSIDE,
    DualVariables,
    InteriorSearch,
    InteriorStep,
    Slacks,
    distances_from_bounds,
    eliminate_slacks,
    infeasibility,
    line_search,
    optimality_error,
    push_inside_bounds,
    with_constraint_terms,
    without_constraint_terms,
)
from jaxdyn.control.linear_quadratic import LinearQuadratic, damped, optimum, residual
from jaxdyn.control.plan import Multipliers, Plan, gaps, outcome, regularization, violation
from jaxdyn.control.problem import ControlProblem, inequalities
from jaxdyn.control.solution import ControlResult, IterativeSolver, Solution, Stats, in_precision
from jaxdyn.lanes import Backend
from jaxdyn.mechanism.quantity import quantity
from jaxdyn.spatial.arrays import einsum

_FIRST_BARRIER, _BARRIER_FACTOR, _BARRIER_POWER = 0.1, 0.2, 1.5
_LEAST_COST, _MOST_COST = 0.1, 100.0  # range of magnitudes in which costs are not scaled
_SOLVED_ENOUGH = 10.0  # error, in units of the barrier parameter, below which the barrier parameter is decreased
_MEMORY = 16  # plans in the filter, on which later plans must improve in infeasibility or in cost
_FIRST_DAMPING, _LEAST_DAMPING, _MOST_DAMPING = 1e-4, 1e-10, 1e10
_LONGEST_WAIT = 16  # maximum number of iterations without second derivatives of dynamics and constraints


class MultipleShooting(IterativeSolver):
    """Newton's method for states and controls together, with an interior-point method for bounds and constraints.

    If the line search accepts no step, it tries simulated ones, that is, the motions that follow the steps under the feedback of
    the linear-quadratic problem. If this problem is not convex, the second derivatives of dynamics and constraints are omitted for
    some iterations. If it is not convex even without them, regularization is added. Costs whose derivatives at the initial guess
    are very small or very large are scaled during the search to match the initial barrier parameter of 0.1.

    Attributes:
        parallel: If true, the Riccati recursion is computed by associative scans, in O(log N) parallel rounds instead of N
            sequential steps; this is faster on hardware with many threads, such as GPUs.
        tolerance: Largest violation, and largest scaled residual of the KKT conditions, that a solution may have; None selects 1e-8
            in double and 1e-4 in single precision.
        backend: Compiler of expansions and recursions, see `lanes`.

    Source: Bock and Plitt 1984; Waechter and Biegler 2006 (interior point, filter); Sarkka and Garcia-Fernandez 2023 (parallel);
    Friedlander and Orban 2012 (dual regularization).
    """

    kind: ClassVar[str] = "multiple_shooting"

    parallel: bool = eqx.field(static=True, default=False)
    tolerance: float | None = eqx.field(static=True, default=None, metadata=quantity(positive=True))
    backend: Backend = eqx.field(static=True, default="auto")

    def begin(self, problem: ControlProblem, initial: Plan) -> InteriorSearch:
        plan = push_inside_bounds(problem, initial)
        scale = _scale_of(cost_size(problem, plan, backend=self.backend))
        problem = problem.with_cost_scale(scale)
        found, defects, dtype = (
            outcome(problem, plan, backend=self.backend),
            gaps(problem, plan, backend=self.backend),
            problem.lower.dtype,
        )
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves((found, plan, defects))]))
        code = jnp.where(finite, ControlResult.RUNNING.value, ControlResult.NOT_FINITE.value)
        inequality_path, inequality_end = inequalities(problem)
        slacks = Slacks(
            jnp.where(inequality_path[None], jnp.maximum(-found.path, INSIDE), 0.0),
            jnp.where(inequality_end, jnp.maximum(-found.end, INSIDE), 0.0),
        )
        distances = distances_from_bounds(problem, plan)
        bounded = jnp.any(jnp.isfinite(distances[0])) | jnp.any(jnp.isfinite(distances[1]))
        barrier = jnp.where(bounded | bool(inequality_path.any() or inequality_end.any()), _FIRST_BARRIER, 0.0).astype(
            dtype
        )
        multipliers = DualVariables(
            jnp.zeros((problem.steps, problem.dynamics.nx + problem.size), dtype),
            jnp.where(inequality_path[None], barrier / jnp.where(inequality_path[None], slacks.path, 1.0), 0.0),
            jnp.where(inequality_end, barrier / jnp.where(inequality_end, slacks.end, 1.0), 0.0),
            barrier / distances[0],
            barrier / distances[1],
        )
        none, zero = jnp.zeros((), int), jnp.zeros((), dtype)
        distance = infeasibility(defects, found, slacks)
        return InteriorSearch(
            plan,
            slacks,
            multipliers,
            defects,
            found,
            jnp.maximum(violation(problem, found), jnp.max(jnp.abs(defects))),
            jnp.zeros((problem.steps, problem.dynamics.nu, problem.dynamics.nx), dtype),
            barrier,
            zero,
            none,
            none,
            jnp.full((_MEMORY, 2), jnp.inf, dtype),
            FARTHEST * jnp.maximum(distance, 1.0),
            none,
            code.astype(int),
            scale,
        )

    def iterate(self, problem: ControlProblem, search: InteriorSearch) -> InteriorSearch:
        problem = problem.with_cost_scale(search.scale)
        use_curvature = search.wait == 0
        terms = eliminate_slacks(problem, search)
        expansion = expanded(
            problem,
            search.plan,
            terms,
            search.gaps,
            costates=search.multipliers.costates[:, : problem.dynamics.nx],
            curvature=use_curvature.astype(search.damping.dtype),
            backend=self.backend,
        )
        cost_model = without_constraint_terms(expansion, terms)
        solved = optimality_error(
            problem, search, cost_model, expansion, jnp.zeros_like(search.barrier)
        ) <= self._tolerance(search)
        search = self._lowered(search, optimality_error(problem, search, cost_model, expansion, search.barrier))
        terms = eliminate_slacks(problem, search)
        step = self._step(problem, search, with_constraint_terms(cost_model, expansion, terms), expansion, terms)
        after, accepted = line_search(problem, search, cost_model, step, self.backend)
        after = self._adapted(problem, after, accepted, use_curvature)
        code = jnp.where(solved, ControlResult.SOLVED.value, after.result).astype(search.result.dtype)
        search = jax.tree.map(lambda old, new: jnp.where(solved, old, new), search, after)
        return eqx.tree_at(lambda s: (s.result, s.iterations), search, (code, after.iterations))

    def solution(self, problem: ControlProblem, search: InteriorSearch) -> Solution:
        s = search
        one = jnp.ones((), s.barrier.dtype)
        multipliers = Multipliers(s.multipliers.path / s.scale, s.multipliers.end / s.scale, one)
        return Solution(s.plan, s.feedback, multipliers, s.cost / s.scale, s.violation, s.result, Stats(s.iterations))

    def _tolerance(self, search: InteriorSearch) -> float:
        return in_precision(self.tolerance, search.barrier.dtype, 1e-8, 1e-4)

    def _lowered(self, search: InteriorSearch, error: Float[Array, ""]) -> InteriorSearch:
        """Decrease the barrier parameter and empty the filter if the present barrier problem is solved accurately enough."""
        now = search.barrier
        lower = jnp.maximum(0.1 * self._tolerance(search), jnp.minimum(_BARRIER_FACTOR * now, now**_BARRIER_POWER))
        enough = (error <= _SOLVED_ENOUGH * now) & (lower < now)
        return eqx.tree_at(
            lambda s: (s.barrier, s.filter),
            search,
            (jnp.where(enough, lower, now), jnp.where(enough, jnp.inf, search.filter)),
        )

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
        (below, above), (design_below, design_above) = distances_from_bounds(problem, plan)
        damping = search.damping
        stiff = multipliers.controls[0] / below + multipliers.controls[1] / above
        model = eqx.tree_at(
            lambda m: (m.Q, m.R, m.Q_end, m.r),
            model,
            (
                damped(model.Q, damping),
                damped(model.R + jax.vmap(jnp.diag)(stiff), damping),
                damped(model.Q_end, damping),
                model.r - mu / below + mu / above,
            ),
        )
        along = initial_jacobian(problem, plan)
        stiff = multipliers.design[0] / design_below + multipliers.design[1] / design_above
        design_gradient = mu / design_above - mu / design_below

        def solved(model, terms):
            return optimum(
                model, along, jnp.diag(stiff), terms, damping=damping, parallel=self.parallel, backend=self.backend
            )

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

    def _adapted(
        self,
        problem: ControlProblem,
        search: InteriorSearch,
        accepted: Bool[Array, ""],
        use_curvature: Bool[Array, ""],
    ) -> InteriorSearch:
        """Adapt the regularization to the outcome of the line search.

        After a failure, second derivatives of dynamics and constraints are omitted for some iterations. If the line search fails
        without them too, the damping is increased.
        """
        wait, last_wait, damping = search.wait, search.last_wait, search.damping
        more = jnp.maximum(10.0 * damping, _FIRST_DAMPING)
        less = jnp.where(damping > _LEAST_DAMPING, 0.1 * damping, 0.0)
        failed = use_curvature & ~accepted
        last_wait = jnp.where(
            failed, jnp.minimum(2 * last_wait + 1, _LONGEST_WAIT), jnp.where(use_curvature, 0, last_wait)
        )
        wait = jnp.where(failed, last_wait, jnp.maximum(wait - 1, 0))
        damping = jnp.where(accepted, less, jnp.where(failed, damping, more))
        held = search.violation <= self._tolerance(search)
        constrained = bool(problem.constraints or problem.final_constraints)
        missed = ControlResult.INFEASIBLE if constrained else ControlResult.GAPS
        lost = jnp.where(held, ControlResult.STUCK.value, missed.value)
        result = jnp.where(damping > _MOST_DAMPING, lost, search.result).astype(search.result.dtype)
        return eqx.tree_at(
            lambda s: (s.wait, s.last_wait, s.damping, s.result, s.iterations),
            search,
            (wait, last_wait, damping, result, search.iterations + 1),
        )


def _scale_of(size: Float[Array, ""]) -> Float[Array, ""]:
    """Factor that scales costs to a moderate magnitude; 1 if their magnitude is moderate already, zero, or not finite."""
    known = (size > 0.0) & jnp.isfinite(size)
    size = jnp.where(known, size, 1.0)
    return jnp.clip(size, _LEAST_COST, _MOST_COST) / size
