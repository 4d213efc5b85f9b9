"""Multiple shooting: states and controls are improved together, by a primal-dual interior-point method whose steps Riccati finds.

    minimize    cost - mu (sum of the logarithms of slacks and of distances from bounds)
    such that   x_{k+1} = f(x_k, u_k),   g = 0,   g + s = 0 with slacks s > 0 where g may be negative

Newton's method on the stationarity of the Lagrangian: conditions and bounds are eliminated, what is left is linear-quadratic. The
plan need not be a motion before the end, so it may start from a guess of states, and nothing has to be integrated through
unstable motions.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxdyn.control.expansion import Expansion, Pull, expanded, start_along
from jaxdyn.control.linear_quadratic import LinearQuadratic, damped, optimum, residual
from jaxdyn.control.plan import Multipliers, Outcome, Plan, gaps, outcome, regularization, sides, violation
from jaxdyn.control.problem import ControlProblem
from jaxdyn.control.solution import ControlResult, IterativeSolver, Solution
from jaxdyn.lanes import Backend
from jaxdyn.spatial.arrays import einsum

_SHARES = 0.5 ** np.arange(8)  # of the longest step that stays within bounds, tried at once
_FIRST_BARRIER, _BARRIER_FACTOR, _BARRIER_POWER = 0.1, 0.2, 1.5
_SOLVED_ENOUGH = 10.0  # error, in units of the barrier, at which the barrier is lowered
_LEAST_KEPT = 0.99  # share of a slack or of a force that a step may use up, or more with a low barrier
_INSIDE = 1e-2  # first distance from bounds
_MARGIN = 1e-5  # by which an accepted plan must be closer or cheaper
_LEAST_GAIN = 1e-4  # of the cost, as a share of what its slope promises
_MEMORY = 16  # plans that later ones must improve on, in distance or in cost
_FIRST_DAMPING, _LEAST_DAMPING, _MOST_DAMPING = 1e-4, 1e-10, 1e10
_LONGEST_WAIT = 16  # iterations without curvature after it has failed several times in a row


class Forces(eqx.Module):
    """Multipliers.

    Attributes:
        costates: of the dynamics, for x_1 to x_N and the design.
        path, end: of conditions.
        controls, design: of lower and upper bounds.
    """

    costates: Float[Array, "N n"]
    path: Float[Array, "N m"]
    end: Float[Array, "e"]
    controls: Float[Array, "2 N nu"]
    design: Float[Array, "2 P"]


class Slacks(eqx.Module):
    """Distances of conditions from zero; zero for conditions that must be zero."""

    path: Float[Array, "N m"]
    end: Float[Array, "e"]


class InteriorSearch(eqx.Module):
    """Where multiple shooting stands.

    Attributes:
        plan, slacks, forces: primal and dual unknowns.
        gaps, found, violation: what the plan comes to.
        feedback: gains of the last policy.
        barrier: mu.
        damping: of the next step.
        wait, last_wait: iterations until curvature counts again, and how many there were last time.
        filter: (distance, cost) of plans that later ones must improve on.
        farthest: distance that no plan may have.
        iterations, result: done, and code of `ControlResult`.
    """

    plan: Plan
    slacks: Slacks
    forces: Forces
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

    @property
    def cost(self) -> Float[Array, ""]:
        """Cost of the plan."""
        return self.found.cost


class _Step(NamedTuple):
    z: Array
    u: Array
    slacks: Slacks
    forces: Forces
    feedback: Array


class MultipleShooting(IterativeSolver):
    """Newton's method on states and controls at once, with an interior-point method for bounds and conditions.

    In a step that has no minimum the curvature of dynamics and conditions rests for some iterations, then damping sets in. The
    first barrier is 0.1, so state costs such that the optimum is not far below 1: a tiny cost is no match for it.

    Attributes:
        parallel: Riccati recursion and steps as associative scans, in log N stretches on machines with many threads.
        tolerance: largest error of the conditions of optimality, scaled, and largest violation in a solution; in single
            precision try 1e-4.
        backend: what runs expansions and recursions, see `lanes`.

    Source: Bock and Plitt 1984; Wachter and Biegler 2006 (interior point, filter); Sarkka and Garcia-Fernandez 2023 (parallel);
    Friedlander and Orban 2012 (dual regularization).
    """

    parallel: bool = eqx.field(static=True, default=False)
    tolerance: float = eqx.field(static=True, default=1e-8)
    backend: Backend = eqx.field(static=True, default="auto")

    def begin(self, problem: ControlProblem, initial: Plan) -> InteriorSearch:
        plan = _inside(problem, initial)
        found, apart, dtype = (
            outcome(problem, plan, backend=self.backend),
            gaps(problem, plan, backend=self.backend),
            problem.lower.dtype,
        )
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves((found, plan, apart))]))
        code = jnp.where(finite, ControlResult.RUNNING.value, ControlResult.NOT_FINITE.value)
        may_path, may_end = sides(problem)
        slacks = Slacks(
            jnp.where(may_path[None], jnp.maximum(-found.path, _INSIDE), 0.0),
            jnp.where(may_end, jnp.maximum(-found.end, _INSIDE), 0.0),
        )
        distances = _distances(problem, plan)
        bounded = jnp.any(jnp.isfinite(distances[0])) | jnp.any(jnp.isfinite(distances[1]))
        barrier = jnp.where(bounded | bool(may_path.any() or may_end.any()), _FIRST_BARRIER, 0.0).astype(dtype)
        forces = Forces(
            jnp.zeros((problem.steps, problem.dynamics.nx + problem.size), dtype),
            jnp.where(may_path[None], barrier / jnp.where(may_path[None], slacks.path, 1.0), 0.0),
            jnp.where(may_end, barrier / jnp.where(may_end, slacks.end, 1.0), 0.0),
            barrier / distances[0],
            barrier / distances[1],
        )
        none, zero = jnp.zeros((), int), jnp.zeros((), dtype)
        distance = _distance(apart, found, slacks)
        return InteriorSearch(
            plan,
            slacks,
            forces,
            apart,
            found,
            jnp.maximum(violation(problem, found), jnp.max(jnp.abs(apart))),
            jnp.zeros((problem.steps, problem.dynamics.nu, problem.dynamics.nx), dtype),
            barrier,
            zero,
            none,
            none,
            jnp.full((_MEMORY, 2), jnp.inf, dtype),
            1e4 * jnp.maximum(distance, 1.0),
            none,
            code.astype(int),
        )

    def iterate(self, problem: ControlProblem, search: InteriorSearch) -> InteriorSearch:
        bent = search.wait == 0
        pull = _pull(problem, search)
        expansion = expanded(
            problem,
            search.plan,
            pull,
            search.gaps,
            costates=search.forces.costates[:, : problem.dynamics.nx],
            curvature=bent.astype(search.damping.dtype),
            backend=self.backend,
        )
        bare = _without(expansion, pull)
        solved = _error(problem, search, bare, expansion, jnp.zeros_like(search.barrier)) <= self.tolerance
        search = self._lowered(search, _error(problem, search, bare, expansion, search.barrier))
        pull = _pull(problem, search)
        step = self._step(problem, search, _with(bare, expansion, pull), expansion, pull)
        after, taken = _accepted(problem, search, bare, step, self.backend)
        after = self._adapted(after, taken, bent)
        code = jnp.where(solved, ControlResult.SOLVED.value, after.result).astype(search.result.dtype)
        search = jax.tree.map(lambda old, new: jnp.where(solved, old, new), search, after)
        return eqx.tree_at(lambda s: (s.result, s.iterations), search, (code, after.iterations))

    def solution(self, problem: ControlProblem, search: InteriorSearch) -> Solution:
        s = search
        one = jnp.ones((), s.barrier.dtype)
        multipliers = Multipliers(s.forces.path, s.forces.end, one)
        return Solution(s.plan, s.feedback, multipliers, s.cost, s.violation, s.result, s.iterations)

    def _lowered(self, search: InteriorSearch, error: Float[Array, ""]) -> InteriorSearch:
        """With a lower barrier where the problem with this one is solved well enough; the filter then forgets."""
        now = search.barrier
        lower = jnp.maximum(0.1 * self.tolerance, jnp.minimum(_BARRIER_FACTOR * now, now**_BARRIER_POWER))
        enough = (error <= _SOLVED_ENOUGH * now) & (lower < now)
        return eqx.tree_at(
            lambda s: (s.barrier, s.filter),
            search,
            (jnp.where(enough, lower, now), jnp.where(enough, jnp.inf, search.filter)),
        )

    def _step(
        self, problem: ControlProblem, search: InteriorSearch, model: LinearQuadratic, expansion: Expansion, pull: Pull
    ) -> "_Step":
        """Newton's step of all unknowns."""
        mu, forces, plan = search.barrier, search.forces, search.plan
        (below, above), (design_below, design_above) = _distances(problem, plan)
        damping = search.damping
        stiff = forces.controls[0] / below + forces.controls[1] / above
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
        along = start_along(problem, plan)
        stiff = forces.design[0] / design_below + forces.design[1] / design_above
        pull_of_design = mu / design_above - mu / design_below

        def solved(model, pull):
            return optimum(
                model, along, jnp.diag(stiff), pull, damping=damping, parallel=self.parallel, backend=self.backend
            )

        policy, *found = solved(model, pull_of_design)
        if self.parallel:
            # Products of many unstable steps lose digits; solving for what is left over brings them back.
            _, *rest = solved(residual(model, *found[1:]), pull_of_design + stiff * found[0])
            found = [a + b for a, b in zip(found, rest, strict=True)]
        design, z, u, pulls = found
        delta = regularization(mu.dtype)
        path_change = einsum("kci,ki->kc", expansion.path_rows, jnp.concatenate([z[:-1], u], axis=1))
        end_change = expansion.end_rows @ z[-1]
        path = pull.path + pull.path_weight * path_change - forces.path
        end = pull.end + pull.end_weight * end_change - forces.end
        may_path, may_end = sides(problem)
        s, c = search.slacks, search.found
        slacks = Slacks(
            jnp.where(may_path[None], delta * path - path_change - c.path - s.path, 0.0),
            jnp.where(may_end, delta * end - end_change - c.end - s.end, 0.0),
        )

        def of_bounds(force, distances, change):
            low, high = (mu / d - f for d, f in zip(distances, force, strict=True))
            return jnp.stack([low - force[0] / distances[0] * change, high + force[1] / distances[1] * change])

        change = Forces(
            pulls - forces.costates,
            path,
            end,
            of_bounds(forces.controls, (below, above), u),
            of_bounds(forces.design, (design_below, design_above), design),
        )
        return _Step(z, u, slacks, change, policy.feedback[:, :, : problem.dynamics.nx])

    def _adapted(self, search: InteriorSearch, taken: Bool[Array, ""], bent: Bool[Array, ""]) -> InteriorSearch:
        """Curvature may make steps without a minimum: then it rests for a while. If that does not help, damping does."""
        wait, last_wait, damping = search.wait, search.last_wait, search.damping
        more = jnp.maximum(10.0 * damping, _FIRST_DAMPING)
        less = jnp.where(damping > _LEAST_DAMPING, 0.1 * damping, 0.0)
        failed = bent & ~taken
        last_wait = jnp.where(failed, jnp.minimum(2 * last_wait + 1, _LONGEST_WAIT), jnp.where(bent, 0, last_wait))
        wait = jnp.where(failed, last_wait, jnp.maximum(wait - 1, 0))
        damping = jnp.where(taken, less, jnp.where(failed, damping, more))
        held = search.violation <= self.tolerance
        lost = jnp.where(held, ControlResult.STUCK.value, ControlResult.INFEASIBLE.value)
        result = jnp.where(damping > _MOST_DAMPING, lost, search.result).astype(search.result.dtype)
        return eqx.tree_at(
            lambda s: (s.wait, s.last_wait, s.damping, s.result, s.iterations),
            search,
            (wait, last_wait, damping, result, search.iterations + 1),
        )


def _inside(problem: ControlProblem, plan: Plan) -> Plan:
    """The plan, from the initial state, with controls and design at some distance from their bounds."""

    def moved(x, lower, upper):
        room = jnp.where(jnp.isfinite(upper - lower), _INSIDE * (upper - lower), _INSIDE)
        return jnp.clip(x, lower + room, upper - room)

    design = plan.design
    if problem.design is not None:
        design = moved(design, problem.design.lower, problem.design.upper)
    placed = problem.with_design(design)
    states = jax.tree.map(lambda leaf, first: leaf.at[0].set(first), plan.states, placed.initial)
    return Plan(states, moved(plan.controls, placed.lower[None], placed.upper[None]), design)


def _distances(problem: ControlProblem, plan: Plan) -> tuple[Float[Array, "2 N nu"], Float[Array, "2 P"]]:
    """How far controls and design are from their lower and upper bounds."""
    controls = jnp.stack([plan.controls - problem.lower[None], problem.upper[None] - plan.controls])
    if problem.design is None:
        return controls, jnp.zeros((2, 0), controls.dtype)
    return controls, jnp.stack([plan.design - problem.design.lower, problem.design.upper - plan.design])


def _pull(problem: ControlProblem, search: InteriorSearch) -> Pull:
    """What is left of the conditions when slacks and forces are eliminated."""
    delta, mu = regularization(search.barrier.dtype), search.barrier

    def of(c, s, y, may):
        soft = jnp.where(may, s + delta * y, 1.0)
        weight = jnp.where(may, y / soft, 1.0 / delta)
        return jnp.where(may, y + (y * c + mu) / soft, y + weight * c), weight

    may_path, may_end = sides(problem)
    path, path_weight = of(search.found.path, search.slacks.path, search.forces.path, may_path[None])
    end, end_weight = of(search.found.end, search.slacks.end, search.forces.end, may_end)
    return Pull(path, end, path_weight, end_weight)


def _without(expansion: Expansion, pull: Pull) -> LinearQuadratic:
    """The expansion with the slopes of the costs alone."""
    model, n = expansion.model, expansion.model.A.shape[1]
    path = einsum("kci,kc->ki", expansion.path_rows, pull.path)
    slopes = (model.q - path[:, :n], model.r - path[:, n:], model.q_end - expansion.end_rows.T @ pull.end)
    return eqx.tree_at(lambda m: (m.q, m.r, m.q_end), model, slopes)


def _with(bare: LinearQuadratic, expansion: Expansion, pull: Pull) -> LinearQuadratic:
    return _without(eqx.tree_at(lambda e: e.model, expansion, bare), jax.tree.map(jnp.negative, pull))


def _distance(apart: Array, found: Outcome, slacks: Slacks) -> Float[Array, ""]:
    """How far a plan is from a motion that meets its conditions."""
    return (
        jnp.sum(jnp.abs(apart)) + jnp.sum(jnp.abs(found.path + slacks.path)) + jnp.sum(jnp.abs(found.end + slacks.end))
    )


def _error(
    problem: ControlProblem,
    search: InteriorSearch,
    bare: LinearQuadratic,
    expansion: Expansion,
    barrier: Float[Array, ""],
) -> Float[Array, ""]:
    """Largest error of the conditions of optimality, scaled as in Ipopt where forces are large."""
    f, n = search.forces, bare.A.shape[1]
    path = einsum("kci,kc->ki", expansion.path_rows, f.path)
    by_z = bare.q + path[:, :n] + einsum("kij,ki->kj", bare.A, f.costates)
    by_u = bare.r + path[:, n:] + einsum("kij,ki->kj", bare.B, f.costates) - f.controls[0] + f.controls[1]
    by_end = bare.q_end + expansion.end_rows.T @ f.end - f.costates[-1]
    slopes = [by_u, by_z[1:] - f.costates[:-1], by_end]
    if problem.design is not None:
        slopes.append(start_along(problem, search.plan).T @ by_z[0] - f.design[0] + f.design[1])
    controls, design = _distances(problem, search.plan)
    may_path, may_end = sides(problem)

    def product(force, distance):
        return jnp.where(jnp.isfinite(distance), force * distance - barrier, 0.0)

    products = [
        product(f.controls, controls),
        product(f.design, design),
        jnp.where(may_path[None], f.path * search.slacks.path - barrier, 0.0),
        jnp.where(may_end, f.end * search.slacks.end - barrier, 0.0),
    ]
    violations = [search.gaps, search.found.path + search.slacks.path, search.found.end + search.slacks.end]
    sizes = jnp.stack(
        [jnp.mean(jnp.abs(force)) if force.size else jnp.zeros((), barrier.dtype) for force in jax.tree.leaves(f)]
    )
    scale = jnp.maximum(jnp.max(sizes) / 100.0, 1.0)
    return jnp.maximum(_largest(slopes + products) / scale, _largest(violations))


def _largest(arrays: list[Array]) -> Float[Array, ""]:
    return jnp.max(jnp.stack([jnp.max(jnp.abs(array), initial=0.0) for array in arrays]))


def _reach(value: Array, change: Array, kept: Float[Array, ""]) -> Float[Array, ""]:
    """Largest share of a change that leaves positive numbers positive; 1 at most."""
    ratio = jnp.where(change < 0, -kept * value / jnp.where(change < 0, change, 1.0), 1.0)
    return jnp.min(jnp.minimum(ratio, 1.0), initial=1.0)


def _barrier_of(problem: ControlProblem, plan: Plan, slacks: Slacks) -> Float[Array, ""]:
    """Sum of the logarithms of slacks and distances."""
    may_path, may_end = sides(problem)

    def logarithms(x, counts):
        return jnp.sum(jnp.log(jnp.where(counts, x, 1.0)))

    total = logarithms(slacks.path, may_path[None]) + logarithms(slacks.end, may_end)
    for distance in _distances(problem, plan):
        total = total + logarithms(distance, jnp.isfinite(distance))
    return total


def _accepted(
    problem: ControlProblem, search: InteriorSearch, bare: LinearQuadratic, step: _Step, backend: Backend
) -> tuple[InteriorSearch, Bool[Array, ""]]:
    """The search after the largest share of a step that comes closer to a motion or is cheaper, and whether there was one."""
    mu, plan, nx = search.barrier, search.plan, problem.dynamics.nx
    kept = jnp.maximum(_LEAST_KEPT, 1.0 - mu)
    design = step.z[0, nx:]
    changes = (jnp.stack([step.u, -step.u]), jnp.stack([design, -design]))
    distances = _distances(problem, plan)
    reaches = [
        _reach(jnp.where(jnp.isfinite(d), d, 1.0), jnp.where(jnp.isfinite(d), c, 0.0), kept)
        for d, c in zip(distances, changes, strict=True)
    ]
    may_path, may_end = sides(problem)
    reaches += [
        _reach(search.slacks.path, jnp.where(may_path[None], step.slacks.path, 0.0), kept),
        _reach(search.slacks.end, jnp.where(may_end, step.slacks.end, 0.0), kept),
    ]
    longest = jnp.min(jnp.stack(reaches))
    shares = longest * jnp.asarray(_SHARES, mu.dtype)

    def tried(share):
        there = plan.design + share * design
        placed = problem.with_design(there)
        states = jax.vmap(problem.dynamics.moved)(plan.states, share * step.z[:, :nx])
        states = jax.tree.map(lambda leaf, first: leaf.at[0].set(first), states, placed.initial)
        new = Plan(states, plan.controls + share * step.u, there)
        slacks = jax.tree.map(lambda s, ds: s + share * ds, search.slacks, step.slacks)
        found, apart = outcome(problem, new, backend=backend), gaps(problem, new, backend=backend)
        return (
            new,
            slacks,
            found,
            apart,
            _distance(apart, found, slacks),
            found.cost - mu * _barrier_of(problem, new, slacks),
        )

    plans, slacks, founds, aparts, far, costs = jax.vmap(tried)(shares)
    far_now = _distance(search.gaps, search.found, search.slacks)
    cost_now = search.found.cost - mu * _barrier_of(problem, plan, search.slacks)
    slope = einsum("ki,ki->", bare.q, step.z[:-1]) + einsum("km,km->", bare.r, step.u) + bare.q_end @ step.z[-1]
    for value, change, counts in (
        *((d, c, jnp.isfinite(d)) for d, c in zip(distances, changes, strict=True)),
        (search.slacks.path, step.slacks.path, jnp.broadcast_to(may_path[None], search.slacks.path.shape)),
        (search.slacks.end, step.slacks.end, jnp.asarray(may_end)),
    ):
        slope = slope - mu * jnp.sum(jnp.where(counts, change / jnp.where(counts, value, 1.0), 0.0))
    rounding = 10.0 * jnp.finfo(mu.dtype).eps * (1.0 + jnp.abs(cost_now))
    descends = (
        (slope < 0)
        & (shares * jnp.maximum(-slope, 0.0) ** 2.3 > far_now**1.1)
        & (far_now <= 1e-4 * search.farthest / 1e4)
    )
    cheaper = costs - cost_now <= _LEAST_GAIN * shares * slope + rounding
    better = (far <= (1.0 - _MARGIN) * far_now) | (costs - cost_now <= rounding - _MARGIN * far_now)
    seen = search.filter
    new_to_filter = jnp.all((far[:, None] <= seen[None, :, 0]) | (costs[:, None] <= seen[None, :, 1]), axis=1)
    good = jnp.where(descends, cheaper, better) & new_to_filter & (far <= search.farthest)
    good = good & jnp.isfinite(far) & jnp.isfinite(costs)
    best = jnp.argmax(good)
    taken = good[best]
    remembered = jnp.stack([(1.0 - _MARGIN) * far_now, cost_now - _MARGIN * far_now])
    keeps = taken & ~(descends[best] & cheaper[best])
    memory = jnp.where(keeps, jnp.concatenate([seen[1:], remembered[None]]), seen)

    def chosen(new, old):
        return jax.tree.map(lambda new, old: jnp.where(taken, new[best], old), new, old)

    forces = _moved_forces(search, step.forces, shares[best], kept, taken, (may_path, may_end))
    there, apart = chosen(founds, search.found), chosen(aparts, search.gaps)
    return eqx.tree_at(
        lambda s: (s.plan, s.slacks, s.forces, s.gaps, s.found, s.violation, s.feedback, s.filter),
        search,
        (
            chosen(plans, plan),
            chosen(slacks, search.slacks),
            forces,
            apart,
            there,
            jnp.maximum(violation(problem, there), jnp.max(jnp.abs(apart))),
            jnp.where(taken, step.feedback, search.feedback),
            memory,
        ),
    ), taken


def _moved_forces(search, change: Forces, share, kept, taken, may) -> Forces:
    """Forces of equations follow the share of the plan; those that must stay positive go as far as they can."""
    f, (may_path, may_end) = search.forces, may
    reaches = [
        _reach(f.path, jnp.where(may_path[None], change.path, 0.0), kept),
        _reach(f.end, jnp.where(may_end, change.end, 0.0), kept),
        _reach(f.controls, change.controls, kept),
        _reach(f.design, change.design, kept),
    ]
    dual = jnp.min(jnp.stack(reaches))
    moved = Forces(
        f.costates + share * change.costates,
        f.path + jnp.where(may_path[None], dual, share) * change.path,
        f.end + jnp.where(may_end, dual, share) * change.end,
        f.controls + dual * change.controls,
        f.design + dual * change.design,
    )
    return jax.tree.map(lambda new, old: jnp.where(taken, new, old), moved, f)
