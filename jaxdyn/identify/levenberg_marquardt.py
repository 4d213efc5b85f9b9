"""Levenberg-Marquardt, from one start or from many at once, iteration by iteration: a fit can be watched, saved, resumed."""

import enum
import functools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PyTree
from tqdm import tqdm

from jaxdyn.identify.least_squares import Normal, Problem, Unknowns, gauss_newton_step, predicted_decrease
from jaxdyn.lanes import stored_jit
from jaxdyn.lanes.devices import divided, each_on_its_own, rounded_up, whole

_FIRST_DAMPING, _LEAST_DAMPING, _MOST_DAMPING = 1e-3, 1e-12, 1e12


class FitResult(enum.IntEnum):
    """How a fit stands; one code per start of a batch."""

    RUNNING = 0
    CONVERGED = 1
    STUCK = 2
    NOT_FINITE = 3

    @property
    def meaning(self) -> str:
        """One line for a report."""
        return {
            FitResult.RUNNING: "stopped at the largest number of iterations",
            FitResult.CONVERGED: "converged",
            FitResult.STUCK: "no step lowers the loss any more, and the gradient is not zero",
            FitResult.NOT_FINITE: "the loss is not finite at the start; start nearer, or shorten the windows",
        }[self]


class Fit(eqx.Module):
    """Where a fit stands. Everything that the next iteration needs is here.

    Attributes:
        unknowns: the best point so far.
        normal: loss and normal equations there.
        damping: of the next step.
        growth: factor of the damping if that step fails.
        iterations: done so far.
        result: code of `FitResult`.
    """

    unknowns: Unknowns
    normal: Normal
    damping: Float[Array, "*starts"]
    growth: Float[Array, "*starts"]
    iterations: Int[Array, "*starts"]
    result: Int[Array, "*starts"]


def begin(problem: Problem, unknowns: Unknowns | None = None) -> Fit:
    """A fit before its first iteration."""
    unknowns = problem.start if unknowns is None else unknowns
    return _begun(unknowns, problem.normal(unknowns))


def _begun(unknowns: Unknowns, normal: Normal) -> Fit:
    dtype = unknowns.x.dtype
    code = jnp.where(jnp.isfinite(normal.loss), FitResult.RUNNING.value, FitResult.NOT_FINITE.value)
    return Fit(
        unknowns,
        normal,
        jnp.asarray(_FIRST_DAMPING, dtype),
        jnp.asarray(2.0, dtype),
        jnp.zeros((), int),
        code.astype(int),
    )


def pattern(problem: Problem, unknowns: Unknowns) -> Fit:
    """Shapes and types of a fit from that start, or batch of starts."""
    start = jax.vmap(begin, in_axes=(None, 0)) if unknowns.x.ndim == 2 else begin
    return eqx.filter_eval_shape(start, problem, unknowns)


def iterate(problem: Problem, fit: Fit, tolerance: float | Float[Array, ""]) -> Fit:
    """One iteration: a damped Gauss-Newton step, taken if it lowers the loss. A fit that has ended stays as it is.

    The damping falls and grows as in Nielsen 1999. Converged is a fit whose next step, hardly damped, promises less than
    `tolerance` times the loss, or less than rounding can show.
    """
    trial, promised = _proposed(problem, fit)
    return _judged(fit, trial, promised, problem.normal(trial), tolerance)


def _proposed(problem: Problem, fit: Fit) -> tuple[Unknowns, Float[Array, ""]]:
    """The point that the next step leads to, and by how much it promises to lower the loss."""
    dx, ds = gauss_newton_step(fit.normal, fit.damping)
    return problem.moved(fit.unknowns, dx, ds), predicted_decrease(fit.normal, dx, ds)


def _judged(
    fit: Fit, trial: Unknowns, promised: Float[Array, ""], there: Normal, tolerance: float | Float[Array, ""]
) -> Fit:
    """The fit after a step to `trial`, taken or not."""
    gain = (fit.normal.loss - there.loss) / promised
    better = (promised > 0) & (there.loss < fit.normal.loss) & jnp.isfinite(there.loss)
    running = fit.result == FitResult.RUNNING
    taken = running & better
    unknowns, normal = jax.tree.map(
        lambda new, old: jnp.where(taken, new, old), (trial, there), (fit.unknowns, fit.normal)
    )
    shrink = jnp.maximum(1.0 / 3.0, 1.0 - (2.0 * jnp.where(better, gain, 1.0) - 1.0) ** 3)
    damping = jnp.where(better, fit.damping * shrink, fit.damping * fit.growth)
    damping = jnp.clip(damping, _LEAST_DAMPING, _MOST_DAMPING)
    growth = jnp.where(better, 2.0, 2.0 * fit.growth)
    eps = jnp.finfo(fit.normal.loss.dtype).eps
    small = promised <= jnp.maximum(tolerance, 10.0 * eps) * fit.normal.loss + eps
    result = jnp.where(small & (fit.damping <= 1.0), FitResult.CONVERGED.value, FitResult.RUNNING.value)
    result = jnp.where((result == FitResult.RUNNING) & (damping >= _MOST_DAMPING), FitResult.STUCK.value, result)
    return Fit(
        unknowns,
        normal,
        jnp.where(running, damping, fit.damping),
        jnp.where(running, growth, fit.growth),
        fit.iterations + running.astype(fit.iterations.dtype),
        jnp.where(running, result, fit.result).astype(fit.result.dtype),
    )


def fit(
    problem: Problem,
    unknowns: Unknowns | None = None,
    *,
    max_iterations: int = 100,
    tolerance: float = 1e-8,
    resume: Fit | None = None,
    progress: bool = True,
    after_iteration: Callable[[Fit], None] | None = None,
    mesh: Mesh | None = None,
) -> Fit:
    """Minimize a problem from one start, or from a batch of them.

    Args:
        unknowns: the start, that of the problem if not given; with a leading axis for a batch of starts, which then run at once.
        max_iterations: in all, those of a fit that is resumed included.
        tolerance: relative decrease of the loss that is not worth another iteration.
        resume: a fit to continue, instead of `unknowns`.
        progress: whether to show a progress bar with the loss.
        after_iteration: called after each iteration, to save for instance.
        mesh: devices over which the pieces of data are divided (`jaxdyn.lanes.lane_mesh`); None leaves them alone. No number
            depends on it: what they contribute is added up in one place.

    Returns:
        The fit; `result` says how it ended, per start.
    """
    start = problem.start if unknowns is None else unknowns
    batched = (start.x if resume is None else resume.unknowns.x).ndim == 2
    each_start = jax.vmap if batched else lambda function, in_axes: function
    parts_of = _over_pieces(problem, batched, mesh)

    @stored_jit
    def first(unknowns: Unknowns, parts: PyTree) -> Fit:
        return each_start(lambda u, parts: _begun(u, problem.assembled(u, parts)), in_axes=(0, 1))(unknowns, parts)

    propose = stored_jit(each_start(functools.partial(_proposed, problem), in_axes=(0,)))

    @stored_jit
    def judge(state: Fit, trial: Unknowns, promised: Array, parts: PyTree, limit: Array) -> Fit:
        def judged(state, trial, promised, parts):
            return _judged(state, trial, promised, problem.assembled(trial, parts), limit)

        return each_start(judged, in_axes=(0, 0, 0, 1))(state, trial, promised, parts)

    state = first(start, parts_of(start)) if resume is None else resume
    limit = jnp.asarray(tolerance, state.damping.dtype)
    done = int(np.max(state.iterations))
    with tqdm(total=max_iterations, initial=done, unit="iteration", disable=not progress) as bar:
        while done < max_iterations and np.any(np.asarray(state.result) == FitResult.RUNNING):
            trial, promised = propose(state)
            state = judge(state, trial, promised, parts_of(trial), limit)
            done = int(np.max(state.iterations))
            bar.update(done - bar.n)
            bar.set_postfix(loss=f"{float(np.nanmin(state.normal.loss)):.6g}")
            if after_iteration is not None:
                after_iteration(state)
    return state


def _over_pieces(problem: Problem, batched: bool, mesh: Mesh | None) -> Callable[[Unknowns], PyTree]:
    """`problem.parts`, compiled and over devices; of a batch of starts, the starts follow the pieces.

    Data are inputs of the compiled code; the numbers of the machine that stay are constants, so that their zeros cost nothing.
    """
    count = jax.tree.leaves(problem.pieces)[0].shape[0]
    # Pieces that are only there to fill up the last device repeat the last one.
    rows = np.minimum(np.arange(rounded_up(mesh, count)), count - 1)
    pieces = divided(mesh, jax.tree.map(lambda leaf: leaf[rows], problem.pieces))

    def of_pieces(batch: tuple[PyTree, PyTree], x: Array) -> PyTree:
        def of_piece(own, piece):
            linearized = functools.partial(problem.linearized, piece=piece)
            return jax.vmap(linearized)(x, own) if batched else linearized(x, own)

        return jax.vmap(of_piece)(*batch)

    compiled = stored_jit(each_on_its_own(mesh, of_pieces))

    @stored_jit
    def own(unknowns: Unknowns) -> PyTree:
        found = jax.vmap(problem.own)(unknowns) if batched else problem.own(unknowns)
        return jax.tree.map(lambda leaf: (jnp.moveaxis(leaf, 1, 0) if batched else leaf)[rows], found)

    def parts(unknowns: Unknowns) -> PyTree:
        found = whole(mesh, compiled((divided(mesh, own(unknowns)), pieces), np.asarray(unknowns.x)))
        return jax.tree.map(lambda leaf: leaf[:count], found)

    return parts
