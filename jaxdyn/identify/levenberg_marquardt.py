"""Levenberg-Marquardt from one or many initial guesses, step by step, so that a fit can be monitored, saved and resumed."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PyTree

from jaxdyn.compute import stored_jit
from jaxdyn.identify.least_squares import (
    Normal,
    Problem,
    Unknowns,
    compiled_parts,
    gauss_newton_step,
    predicted_decrease,
)
from jaxdyn.identify.solver import FitResult, Search, Solver
from jaxdyn.mechanism.quantity import plain, quantity

# Least decrease of the loss in an accepted step, as a fraction of the predicted decrease. A step that decreases the loss much less
# than predicted may end near another local minimum.
_LEAST_GAIN = 0.01
_FIRST_DAMPING, _LEAST_DAMPING, _MOST_DAMPING = 1e-3, 1e-12, 1e12


class DampedSearch(Search):
    """State of `LevenbergMarquardt` between two steps, with all data that the next step needs.

    Attributes:
        unknowns: Best point so far.
        normal: Loss and normal equations at the best point.
        damping: Relative increase of the diagonal in the next step.
        growth: Factor by which the damping increases if the next step fails.
        iterations: Number of steps taken.
        result: Code of `FitResult`.
    """

    unknowns: Unknowns
    normal: Normal
    damping: Float[Array, "*starts"]
    growth: Float[Array, "*starts"]
    iterations: Int[Array, "*starts"]
    result: Int[Array, "*starts"]

    @property
    def loss(self) -> Float[Array, "*starts"]:
        """Half the sum of squared residuals, including priors."""
        return self.normal.loss


class LevenbergMarquardt(Solver):
    """Damped Gauss-Newton steps, each of which is accepted if the loss decreases by at least 1 % of the prediction.

    The damping is adapted as in Nielsen 1999. A step changes the values of the chart `Positive` by a factor of at most 4, because
    the linear approximation does not hold farther away. A fit has converged when the damping is at most 1 and the next step is
    predicted to decrease the loss by less than `tolerance` times the loss, or by less than the rounding error.

    Attributes:
        tolerance: Predicted relative decrease of the loss in the next step below which the fit has converged.
    """

    tolerance: float = eqx.field(static=True, converter=plain, default=1e-8, metadata=quantity(minimum=0.0))

    def begin(self, problem: Problem, initial: Unknowns | None = None) -> DampedSearch:
        """State of the search before its first step; by default it starts from the initial guess of the problem."""
        initial = problem.initial if initial is None else initial
        return _begun(initial, problem.normal(initial))

    def iterate(
        self, problem: Problem, search: DampedSearch, tolerance: Float[Array, ""] | None = None
    ) -> DampedSearch:
        """State of the search after one more step. A search that has ended is not changed.

        Args:
            problem: Problem to solve.
            search: State of the search before the step.
            tolerance: Tolerance instead of that of the solver; as an input, it is not a constant of the compiled code.
        """
        trial, promised = _proposed(problem, search)
        limit = self.tolerance if tolerance is None else tolerance
        return _judged(search, trial, promised, problem.normal(trial), limit)

    def pattern(self, problem: Problem, initial: Unknowns) -> DampedSearch:
        """Shapes and types of the arrays of a search from this initial guess or batch of initial guesses."""
        begin = jax.vmap(self.begin, in_axes=(None, 0)) if initial.x.ndim == 2 else self.begin
        return eqx.filter_eval_shape(begin, problem, initial)

    def running(self, search: DampedSearch) -> bool:
        return bool(np.any(np.asarray(search.result) == FitResult.OUT_OF_STEPS))

    def compiled(
        self, problem: Problem, batched: bool, mesh: Mesh | None
    ) -> tuple[Callable[[Unknowns], Any], Callable[[Any], Any]]:
        each_start = jax.vmap if batched else lambda function, in_axes: function
        parts_of = compiled_parts(problem, batched, mesh)
        # Data are inputs of the compiled code, so that fits of other data with the same shapes share it.
        problem = problem.without_data

        @stored_jit
        def first(unknowns: Unknowns, parts: PyTree) -> DampedSearch:
            return each_start(lambda u, parts: _begun(u, problem.assembled(u, parts)), in_axes=(0, 1))(unknowns, parts)

        propose = stored_jit(each_start(functools.partial(_proposed, problem), in_axes=(0,)))

        @stored_jit
        def judge(
            search: DampedSearch, trial: Unknowns, promised: Promise, parts: PyTree, tolerance: Array
        ) -> DampedSearch:
            def judged(search, trial, promised, parts):
                return _judged(search, trial, promised, problem.assembled(trial, parts), tolerance)

            return each_start(judged, in_axes=(0, 0, 0, 1))(search, trial, promised, parts)

        def step(search: DampedSearch) -> DampedSearch:
            trial, promised = propose(search)
            # The tolerance is an input of the compiled code, so that the code is valid for any tolerance.
            return judge(search, trial, promised, parts_of(trial), jnp.asarray(self.tolerance, search.damping.dtype))

        return lambda initial: first(initial, parts_of(initial)), step


def _begun(unknowns: Unknowns, normal: Normal) -> DampedSearch:
    dtype = unknowns.x.dtype
    code = jnp.where(jnp.isfinite(normal.loss), FitResult.OUT_OF_STEPS.value, FitResult.NOT_FINITE.value)
    return DampedSearch(
        unknowns,
        normal,
        jnp.asarray(_FIRST_DAMPING, dtype),
        jnp.asarray(2.0, dtype),
        jnp.zeros((), int),
        code.astype(int),
    )


class Promise(NamedTuple):
    """Prediction for the next step.

    Attributes:
        decrease: Decrease of the loss.
        rising: Whether a value would rise more without its limit, so that later steps may decrease the loss more. A value that
            falls by its limit tends to zero, which hardly changes the loss.
    """

    decrease: Float[Array, "*starts"]
    rising: Bool[Array, "*starts"]


def _proposed(problem: Problem, search: DampedSearch) -> tuple[Unknowns, Promise]:
    """The point after the next step, and the prediction for this step."""
    dx, ds = gauss_newton_step(search.normal, search.damping, problem.longest_steps)
    promised = Promise(predicted_decrease(search.normal, dx, ds), jnp.any(dx >= problem.longest_steps.astype(dx.dtype)))
    return problem.moved(search.unknowns, dx, ds), promised


def _judged(
    search: DampedSearch,
    trial: Unknowns,
    promised: Promise,
    there: Normal,
    tolerance: float | Float[Array, ""],
) -> DampedSearch:
    """The search after a step to `trial`, which is accepted if the loss decreases by enough of the prediction."""
    gain = (search.normal.loss - there.loss) / promised.decrease
    better = (promised.decrease > 0) & (gain > _LEAST_GAIN) & jnp.isfinite(there.loss)
    running = search.result == FitResult.OUT_OF_STEPS
    taken = running & better
    unknowns, normal = jax.tree.map(
        lambda new, old: jnp.where(taken, new, old), (trial, there), (search.unknowns, search.normal)
    )
    shrink = jnp.maximum(1.0 / 3.0, 1.0 - (2.0 * jnp.where(better, gain, 1.0) - 1.0) ** 3)
    damping = jnp.where(better, search.damping * shrink, search.damping * search.growth)
    damping = jnp.clip(damping, _LEAST_DAMPING, _MOST_DAMPING)
    growth = jnp.where(better, 2.0, 2.0 * search.growth)
    eps = jnp.finfo(search.normal.loss.dtype).eps
    small = (promised.decrease <= jnp.maximum(tolerance, 10.0 * eps) * search.normal.loss + eps) & ~promised.rising
    result = jnp.where(small & (search.damping <= 1.0), FitResult.SUCCESSFUL.value, FitResult.OUT_OF_STEPS.value)
    result = jnp.where((result == FitResult.OUT_OF_STEPS) & (damping >= _MOST_DAMPING), FitResult.STUCK.value, result)
    return DampedSearch(
        unknowns,
        normal,
        jnp.where(running, damping, search.damping),
        jnp.where(running, growth, search.growth),
        search.iterations + running.astype(search.iterations.dtype),
        jnp.where(running, result, search.result).astype(search.result.dtype),
    )
