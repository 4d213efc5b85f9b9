"""Levenberg-Marquardt from one or many initial guesses, step by step, so that a fit can be monitored, saved and resumed."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxdyn.compute.damped import FIRST_DAMPING, FIRST_GROWTH, Damped, judged
from jaxdyn.identify.least_squares import Normal, Problem, Unknowns, gauss_newton_step, predicted_decrease
from jaxdyn.identify.solver import FitResult, NormalSolver, Search
from jaxdyn.mechanism.quantity import plain, quantity

_LEAST_DAMPING, _MOST_DAMPING = 1e-12, 1e12
# A loss has settled when so many accepted steps have decreased it by less than this part.
_STEPS, _LITTLE = 4, 1e-4


class DampedSearch(Search):
    """State of `LevenbergMarquardt` between two steps, with all data that the next step needs.

    Attributes:
        unknowns: Best point so far.
        normal: Loss and normal equations at the best point.
        damping: Relative increase of the diagonal in the next step.
        growth: Factor by which the damping increases if the next step fails.
        iterations: Number of steps taken.
        mark: Loss that later steps have decreased by very little.
        settled: Number of these steps.
        result: Code of `FitResult`.
    """

    unknowns: Unknowns
    normal: Normal
    damping: Float[Array, "*starts"]
    growth: Float[Array, "*starts"]
    iterations: Int[Array, "*starts"]
    mark: Float[Array, "*starts"]
    settled: Int[Array, "*starts"]
    result: Int[Array, "*starts"]

    @property
    def loss(self) -> Float[Array, "*starts"]:
        """Half the sum of squared residuals, including priors."""
        return self.normal.loss


class Trial(NamedTuple):
    """The point after the next step, and the predictions for this step.

    Attributes:
        unknowns: The point.
        decrease: Decrease of the loss.
        rising: Whether a value would rise more without its limit, so that later steps may decrease the loss more. A value that
            falls by its limit tends to zero, which hardly changes the loss.
    """

    unknowns: Unknowns
    decrease: Float[Array, "*starts"]
    rising: Bool[Array, "*starts"]


class LevenbergMarquardt(NormalSolver):
    """Damped Gauss-Newton steps, each of which is accepted if the loss decreases by at least 1 % of the prediction.

    The damping is adapted as in Nielsen 1999. A step changes the values of the chart `Positive` by a factor of at most 4, because
    the linear approximation does not hold farther away. A fit has converged when the damping is at most 1 and the next step is
    predicted to decrease the loss by less than `tolerance` times the loss, or by less than the rounding error. It has also
    converged when the loss has settled: four successive accepted steps have decreased it by less than 1e-4 of the loss in total, as
    along directions that the data hardly determine.

    Attributes:
        tolerance: Predicted relative decrease of the loss in the next step below which the fit has converged.
    """

    # Not static, so that compiled code is valid for any tolerance.
    tolerance: float = eqx.field(converter=plain, default=1e-8, metadata=quantity(minimum=0.0))

    def start(self, initial: Unknowns, normal: Normal) -> DampedSearch:
        dtype = initial.x.dtype
        code = jnp.where(jnp.isfinite(normal.loss), FitResult.OUT_OF_STEPS.value, FitResult.NOT_FINITE.value)
        damping, growth = jnp.asarray(FIRST_DAMPING, dtype), jnp.asarray(FIRST_GROWTH, dtype)
        none = jnp.zeros((), int)
        return DampedSearch(initial, normal, damping, growth, none, normal.loss, none, code.astype(int))

    def propose(self, problem: Problem, search: DampedSearch) -> Trial:
        dx, ds = gauss_newton_step(search.normal, search.damping, problem.longest_steps)
        rising = jnp.any(dx >= problem.longest_steps.astype(dx.dtype))
        return Trial(problem.moved(search.unknowns, dx, ds), predicted_decrease(search.normal, dx, ds), rising)

    def judge(self, search: DampedSearch, trial: Trial, normal: Normal) -> DampedSearch:
        decrease, loss = trial.decrease, search.normal.loss
        gain = jnp.where(decrease > 0, (loss - normal.loss) / decrease, 0.0)
        before = Damped((search.unknowns, search.normal), loss, search.damping, search.growth)
        after = judged(before, (trial.unknowns, normal), normal.loss, gain)
        damping, eps = jnp.clip(after.damping, _LEAST_DAMPING, _MOST_DAMPING), jnp.finfo(loss.dtype).eps
        tolerance = jnp.maximum(jnp.asarray(self.tolerance, loss.dtype), 10.0 * eps)
        small = (decrease <= tolerance * loss + eps) & ~trial.rising
        moved = (after.loss < (1.0 - _LITTLE) * search.mark) | trial.rising
        # A step that is small because of the damping shows nothing, unless one with less damping was refused.
        shows = (normal.loss < loss) & ((search.damping <= 1.0) | (search.growth > FIRST_GROWTH))
        mark = jnp.where(moved, after.loss, search.mark)
        settled = jnp.where(moved, 0, search.settled + shows.astype(search.settled.dtype))
        ended = (small & (search.damping <= 1.0)) | (settled >= _STEPS)
        result = jnp.where(ended, FitResult.SUCCESSFUL.value, FitResult.OUT_OF_STEPS.value)
        stuck = (result == FitResult.OUT_OF_STEPS) & (damping >= _MOST_DAMPING)
        result = jnp.where(stuck, FitResult.STUCK.value, result).astype(search.result.dtype)
        unknowns, best = after.point
        growth, iterations = jnp.asarray(after.growth), search.iterations + 1
        new = DampedSearch(unknowns, best, damping, growth, iterations, mark, settled, result)
        running = search.result == FitResult.OUT_OF_STEPS
        return jax.tree.map(lambda new, old: jnp.where(running, new, old), new, search)
