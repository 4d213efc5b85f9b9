"""Sampling-based optimization: controls are drawn from a normal distribution, which is updated from the samples of low cost.

Sampling needs no gradients; if the gradients exist, other solvers usually converge faster.
"""

from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from jaxdyn.compute import per_sample
from jaxdyn.compute.arrays import einsum
from jaxdyn.control.plan import Plan, merit, no_multipliers, outcome, rollout_controls, violation
from jaxdyn.control.problem import ControlProblem
from jaxdyn.control.solution import ControlResult, IterativeSolver, Solution, Stats
from jaxdyn.mechanism.quantity import EFFORT, POSITIVE, plain, quantity

_SPREAD_FRACTION = 0.3  # default of the standard deviation as a fraction of the distance between bounds
_LEAST_SPREAD = 1e-3  # smallest standard deviation as a fraction of the initial one


class SampleSearch(eqx.Module):
    """The state of a search by sampling.

    Attributes:
        mean, spread: Mean and standard deviation of the controls at knots.
        first_spread: The initial standard deviation.
        plan, cost, violation, merit: The best plan so far, with its cost, largest violation and merit.
        waited: The number of successive iterations without progress.
        iterations, result: The number of iterations, and the code of a `ControlResult`.
    """

    mean: Float[Array, "K nu"]
    spread: Float[Array, "K nu"]
    first_spread: Float[Array, "K nu"]
    plan: Plan
    cost: Float[Array, ""]
    violation: Float[Array, ""]
    merit: Float[Array, ""]
    waited: Int[Array, ""]
    iterations: Int[Array, ""]
    result: Int[Array, ""]


class Sampling(IterativeSolver):
    """Optimization of the controls by sampling, without gradients; design parameters keep their initial guess.

        Sampling("cem", samples=512, knots=12)

    The merit of a sample is its cost including penalties, infinite if its simulation diverged.

    Attributes:
        update: Rule of the next mean and standard deviation. "predictive": the best sample is the next mean. "mppi": the next mean
            is that of all samples with weights exp(-merit / temperature). "cem", the cross-entropy method: the best samples
            (elites) determine mean and standard deviation.
        temperature: Temperature of "mppi", relative to the difference between the mean merit and the lowest merit of the samples.
        elites: Number of best samples of "cem" that count as elites.
        samples: Number of samples that are rolled out in each iteration.
        knots: Number of knots at which controls are drawn; between knots, controls are interpolated linearly. By default, there is
            one knot for each time step.
        standard_deviation: Initial standard deviation of the controls; by default 0.3 times the distance between the bounds of
            each control.
        penalty: Weight of the quadratic penalty on constraint violations.
        tolerance: Relative decrease of the penalized cost above which an iteration counts as progress.
        patience: Number of iterations without progress after which the search ends.
        feasibility: Largest violation of a constraint that a solution may have.
        seed: Seed of the random samples; iteration k draws from fold_in(key(seed), k).

    Raises:
        ValueError: Neither the standard deviation nor bounds of all controls are given, or there are fewer than 2 elites or more
            elites than samples.

    Source: Howell et al. 2022 (predictive); Williams, Aldrich and Theodorou 2017 (mppi); Rubinstein 1999 and Kobilarov 2012 (cem).
    """

    kind: ClassVar[str] = "sampling"

    update: Literal["predictive", "mppi", "cem"] = eqx.field(static=True)
    temperature: float = eqx.field(static=True, converter=plain, kw_only=True, default=0.1, metadata=POSITIVE)
    elites: int = eqx.field(static=True, converter=plain, kw_only=True, default=16, metadata=POSITIVE)
    samples: int = eqx.field(static=True, converter=plain, kw_only=True, default=256, metadata=POSITIVE)
    knots: int | None = eqx.field(static=True, converter=plain, kw_only=True, default=None, metadata=POSITIVE)
    standard_deviation: float | None = eqx.field(
        static=True, converter=plain, kw_only=True, default=None, metadata=quantity(EFFORT, positive=True)
    )
    penalty: float = eqx.field(static=True, converter=plain, kw_only=True, default=1e3, metadata=POSITIVE)
    tolerance: float = eqx.field(static=True, converter=plain, kw_only=True, default=1e-4, metadata=POSITIVE)
    patience: int = eqx.field(static=True, converter=plain, kw_only=True, default=20, metadata=POSITIVE)
    feasibility: float = eqx.field(static=True, converter=plain, kw_only=True, default=1e-2, metadata=POSITIVE)
    seed: int = eqx.field(static=True, converter=plain, kw_only=True, default=0, metadata=quantity(minimum=0.0))

    def __check_init__(self):
        if self.update == "cem" and not 1 < self.elites <= self.samples:
            raise ValueError(
                f"elites = {self.elites} with samples = {self.samples}; give 2 or more elites, at most as many as samples"
            )

    def check(self, problem: ControlProblem) -> None:
        bounds = (problem.lower, problem.upper)
        known = self.standard_deviation is None and not any(isinstance(bound, Tracer) for bound in bounds)
        if known and not all(np.all(np.isfinite(np.asarray(bound))) for bound in bounds):
            raise ValueError(
                "a control has no bounds; give the standard_deviation of the samples, or bounds of all controls"
            )

    def init(self, problem: ControlProblem, initial: Plan) -> SampleSearch:
        plan = rollout_controls(problem, initial.controls, initial.design)
        found = outcome(problem, plan)
        count = problem.steps if self.knots is None else self.knots
        rows = np.round(np.linspace(0.0, problem.steps - 1.0, count)).astype(int)
        if self.standard_deviation is None:
            spread = _SPREAD_FRACTION * (problem.upper - problem.lower)
        else:
            spread = jnp.full_like(problem.lower, self.standard_deviation)
        spread = jnp.broadcast_to(spread, (count, problem.dynamics.nu))
        now = merit(problem, found, no_multipliers(problem, self.penalty))
        code = jnp.where(jnp.isfinite(now), ControlResult.OUT_OF_STEPS.value, ControlResult.NOT_FINITE.value)
        none = jnp.zeros((), int)
        infeasible_by = violation(problem, found)
        return SampleSearch(
            plan.controls[rows], spread, spread, plan, found.cost, infeasible_by, now, none, none, code.astype(int)
        )

    def step(self, problem: ControlProblem, search: SampleSearch) -> SampleSearch:
        key = jax.random.fold_in(jax.random.key(self.seed), search.iterations)
        shape = (self.samples, *search.mean.shape)
        noise = jax.random.normal(key, shape, search.mean.dtype).at[0].set(0.0)
        drawn = search.mean[None] + search.spread[None] * noise
        drawn = jnp.clip(drawn, problem.lower[None, None], problem.upper[None, None])

        def moving(knots):
            return rollout_controls(problem, _between(knots, problem.steps), search.plan.design)

        plans = jax.vmap(per_sample(moving, name="motion of samples"))(drawn)
        founds = jax.vmap(lambda plan: outcome(problem, plan))(plans)
        multipliers = no_multipliers(problem, self.penalty)
        merits = jax.vmap(lambda found: merit(problem, found, multipliers))(founds)
        merits = jnp.where(jnp.isfinite(merits), merits, jnp.inf)
        best = jnp.argmin(merits)
        better = merits[best] < search.merit
        mean, spread = self._updated(search.spread, drawn, merits)
        spread = jnp.maximum(spread, _LEAST_SPREAD * search.first_spread)

        def chosen(new, old):
            return jax.tree.map(lambda new, old: jnp.where(better, new[best], old), new, old)

        there = chosen(founds, outcome(problem, search.plan))
        gain = search.merit - jnp.minimum(merits[best], search.merit)
        waited = jnp.where(gain > self.tolerance * jnp.abs(search.merit), 0, search.waited + 1)
        infeasible_by = violation(problem, there)
        end = jnp.where(
            infeasible_by <= self.feasibility, ControlResult.SUCCESSFUL.value, ControlResult.INFEASIBLE.value
        )
        return SampleSearch(
            mean,
            spread,
            search.first_spread,
            chosen(plans, search.plan),
            there.cost,
            infeasible_by,
            search.merit - gain,
            waited,
            search.iterations + 1,
            jnp.where(waited >= self.patience, end, search.result).astype(search.result.dtype),
        )

    def _updated(
        self, spread: Float[Array, "K nu"], drawn: Float[Array, "S K nu"], merits: Float[Array, "S"]
    ) -> tuple[Float[Array, "K nu"], Float[Array, "K nu"]]:
        """The mean and standard deviation of the controls at knots for the next iteration."""
        if self.update == "predictive":
            return drawn[jnp.argmin(merits)], spread
        if self.update == "cem":
            best = drawn[jnp.argsort(merits)[: self.elites]]
            return jnp.mean(best, axis=0), jnp.std(best, axis=0)
        finite = jnp.isfinite(merits)
        above = jnp.where(finite, merits - jnp.min(merits), 0.0)
        usual = jnp.sum(above) / jnp.maximum(jnp.sum(finite), 1).astype(above.dtype)
        weights = jnp.where(finite, jnp.exp(-above / (self.temperature * usual + jnp.finfo(above.dtype).tiny)), 0.0)
        return einsum("s,skm->km", weights / jnp.sum(weights), drawn), spread

    def solution(self, problem: ControlProblem, search: SampleSearch) -> Solution:
        s = search
        feedback = jnp.zeros((problem.steps, problem.dynamics.nu, problem.dynamics.nx), s.cost.dtype)
        multipliers = no_multipliers(problem, self.penalty)
        return Solution(s.plan, feedback, multipliers, s.cost, s.violation, s.result, Stats(s.iterations))


def _between(knots: Float[Array, "K nu"], steps: int) -> Float[Array, "N nu"]:
    """Controls of all steps, linear between knots."""
    if knots.shape[0] == steps:
        return knots
    at = np.linspace(0.0, knots.shape[0] - 1.0, steps)
    left = np.minimum(at.astype(int), max(knots.shape[0] - 2, 0))
    right = np.minimum(left + 1, knots.shape[0] - 1)
    fraction = jnp.asarray((at - left)[:, None], knots.dtype)
    return (1.0 - fraction) * knots[left] + fraction * knots[right]
