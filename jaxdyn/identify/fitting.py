"""Fits: the function `fit`, which all solvers share, and its result."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PyTree
from tqdm import tqdm

from jaxdyn.compute import stored_jit
from jaxdyn.compute.announcements import announced_as
from jaxdyn.compute.arrays import beside
from jaxdyn.compute.constant import Constant
from jaxdyn.display import Display, Displayed, array_text, known, number_text, plural
from jaxdyn.identify.least_squares import (
    Problem,
    Unknowns,
    check_problem,
    check_unknowns,
    compiled_parts,
    separated_values,
)
from jaxdyn.identify.levenberg_marquardt import LevenbergMarquardt
from jaxdyn.identify.parameters import Parameters
from jaxdyn.identify.solver import FitResult, NormalSolver, Search, Solver
from jaxdyn.mechanism.messages import check_count, check_instance
from jaxdyn.results import UnsuccessfulError, message_text, outcome_text, raise_unsuccessful

_LIFTED = 0.01  # part of the first guess of a positive value, from which one that tends to zero continues


class FitError(UnsuccessfulError):
    """Error of a fit that did not succeed. With `throw=False`, `fit` does not raise it; the result code states the failure."""


class FitStats(NamedTuple):
    """Computational effort of a fit.

    Attributes:
        iterations: Number of steps taken.
    """

    iterations: Int[Array, "*starts"]


class Fit(Displayed, eqx.Module):
    """Result of `fit`.

    Attributes:
        parameters: Parameters of the problem.
        search: Last state of the solver, from which `fit(..., resume=search)` continues.
        history: Loss after each step, or None if no history was requested.
    """

    parameters: Parameters
    search: Any
    history: Float[Array, "steps *starts"] | None = None

    @property
    def value(self) -> PyTree:
        """The fitted subject, such as the `Plant`; with a leading axis for a batch of initial guesses."""
        x = self.unknowns.x
        return self.parameters.place(x) if x.ndim == 1 else eqx.filter_vmap(self.parameters.place)(x)

    @property
    def unknowns(self) -> Unknowns:
        """The unconstrained parameters and the local unknowns at the end of the fit."""
        return self.search.unknowns

    @property
    def result(self) -> Any:
        """The `FitResult` of the fit, with a `message`; for a batch, or while JAX traces the fit, an array of result codes."""
        code = self.search.result
        return code if np.ndim(code) or isinstance(code, Tracer) else FitResult(int(code))

    @property
    def loss(self) -> Float[Array, "*starts"]:
        """Half the sum of squared residuals, priors included."""
        return self.search.loss

    @property
    def stats(self) -> FitStats:
        """Computational effort of the fit."""
        return FitStats(self.search.iterations)

    def _display(self) -> Display:
        search, batch = self.search, np.shape(self.search.loss)
        ended = outcome_text(FitResult, search.result)
        rows = {"result": ended if batch else message_text(FitResult, search.result)}
        rows |= {"loss": number_text(search.loss), "iterations": number_text(search.iterations)}
        if self.history is not None:
            rows["history"] = array_text(self.history)
        title = plural(batch[0], "initial guess", "initial guesses") if batch else ended
        x = self.unknowns.x
        values = None if batch or known(x) is None else known(self.parameters.values(x))
        if values is None:
            rows |= self.parameters._display().rows
        else:
            rows |= {
                name: f"{x:.6g} {unit}".rstrip() for (name, unit), x in zip(self.parameters.labels, values, strict=True)
            }
        return Display(f"Fit({title}, loss = {rows['loss']})", rows)


@announced_as("the fit")
def fit(
    problem: Problem | Sequence[Problem],
    solver: Solver = LevenbergMarquardt(),  # noqa: B008 (immutable)
    initial: Unknowns | None = None,
    *,
    max_steps: int = 100,
    throw: bool = True,
    progress: bool = True,
    history: bool = False,
    resume: Search | None = None,
    after_step: Callable[[Any], None] | None = None,
    mesh: Mesh | None = None,
) -> Fit:
    """Fit the parameters of a problem from one initial guess, or from a batch of them.

        found = fit(problem, LevenbergMarquardt(tolerance=1e-6))
        found.value  # the fitted plant

    Args:
        problem: An `OutputError`, an `InverseDynamicsError`, or another `Problem`. Several problems with the same parameters, such
            as those of `recipe`, are fitted in turn, each from the parameters that the one before has found; the result is that of
            the last one, to which `throw`, `history`, `resume` and `after_step` apply.
        solver: `LevenbergMarquardt` or `GradientDescent`.
        initial: Initial guess; by default the initial guess of the problem. An initial guess with a leading axis is a batch, whose
            fits are computed at once.
        max_steps: Maximum number of steps, including the earlier steps of a resumed search.
        throw: If true, an unsuccessful fit raises an error; otherwise only `Fit.result` states how it ended.
        progress: If true, a progress bar shows the loss.
        history: If true, the loss after each step is recorded.
        resume: State of an earlier fit (`Fit.search`) from which to continue; `initial` is then ignored.
        after_step: Function that is called after each step with the state of the search, for example to save it.
        mesh: Devices over which the pieces of data are divided (`jaxdyn.compute.lane_mesh`); None for one device. The results do
            not depend on the number of devices, because the contributions of all pieces are added on one device.

    Returns:
        The fit; its `value` is the fitted subject.

    Raises:
        FitError: The fit did not succeed, and `throw` is true.
        TypeError: An argument has the wrong type.
        ValueError: The solver cannot solve a problem, there is none, or several problems have different parameters.
    """
    problems = list(problem) if isinstance(problem, Sequence) else [problem]
    if not problems:
        raise ValueError("there is no problem; give at least one, such as those of recipe(plant, recordings)")
    for each in problems:
        _check(each, solver, initial, max_steps)
    _check_same_parameters(problems)
    problem, earlier = problems[-1], cast(Any, resume)
    start = problems[0].initial if initial is None else initial
    batched = (start.x if resume is None else earlier.unknowns.x).ndim == 2
    for each in problems:
        solver.check(each, batched, mesh)
    for before, after in itertools.pairwise(problems) if resume is None else ():
        found = fit(before, solver, start, max_steps=max_steps, throw=False, progress=progress, mesh=mesh)
        start = continued(after, found.unknowns)
    init, step = _programs(problem, solver, batched, mesh)
    search: Any = init(start) if resume is None else earlier
    done, losses = int(np.max(np.asarray(search.iterations))), []
    with tqdm(total=max_steps, initial=done, unit="step", disable=not progress) as bar:
        while done < max_steps and (
            not solver.tests_convergence or np.any(np.asarray(search.result) == FitResult.OUT_OF_STEPS)
        ):
            search = step(search)
            done += 1
            if history:
                losses.append(search.loss)
            if progress:
                bar.update()
                bar.set_postfix(loss=f"{float(np.nanmin(search.loss)):.6g}")
            if after_step is not None:
                after_step(search)
    if throw:
        raise_unsuccessful(FitResult, search.result, FitError)
    recorded = beside(search.loss, np.reshape(losses, (len(losses), *search.loss.shape)).astype(search.loss.dtype))
    return Fit(problem.parameters, search, recorded if history else None)


def continued(problem: Problem, earlier: Unknowns) -> Unknowns:
    """Initial guess with the parameters of the fit of an earlier problem with the same parameters.

    In a batch, the local unknowns of all fits start at the initial guess of the problem. Values that the earlier fit moved to their
    lower bound, which no search can leave, start at a small part of their first guess.
    """
    first, away = problem.initial, np.isfinite(problem.longest_steps)
    least = np.where(away, np.asarray(first.x) + np.log(_LIFTED), -np.inf).astype(first.x.dtype)
    batch, local = earlier.x.shape[:-1], first.local
    if batch:
        local = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*batch, *leaf.shape)), local)
    return Unknowns(beside(earlier.x, np.maximum(np.asarray(earlier.x), least)), local)


def _programs(
    problem: Problem, solver: Solver, batched: bool, mesh: Mesh | None
) -> tuple[Callable[[Unknowns], Any], Callable[[Any], Any]]:
    """Compiled `init` and `step` of a solver."""
    if not isinstance(solver, NormalSolver):
        structure, values = separated_values(problem)
        return lambda initial: solver.init(problem, initial), lambda search: _stepped(structure, values, solver, search)
    parts_of = compiled_parts(problem, batched, mesh)
    structure, values = separated_values(problem.without_data)
    known = structure, values, solver, batched

    def step(search: Any) -> Any:
        trial = _proposed(*known, search)
        return _judged(*known, search, trial, parts_of(trial.unknowns))

    return lambda initial: _started(*known, initial, parts_of(initial)), step


@stored_jit
def _stepped(structure: Constant, values: list, solver: Solver, search: Any) -> Any:
    return solver.step(structure.joined(values), search)


@stored_jit
def _started(
    structure: Constant, values: list, solver: NormalSolver, batched: bool, unknowns: Unknowns, parts: PyTree
) -> Any:
    bare = structure.joined(values)

    def started(unknowns, parts):
        return solver.start(unknowns, bare.assembled(unknowns, parts))

    return _each(started, batched, (0, 1))(unknowns, parts)


@stored_jit
def _proposed(structure: Constant, values: list, solver: NormalSolver, batched: bool, search: Any) -> Any:
    bare = structure.joined(values)
    return _each(lambda search: solver.propose(bare, search), batched, (0,))(search)


@stored_jit
def _judged(
    structure: Constant, values: list, solver: NormalSolver, batched: bool, search: Any, trial: Any, parts: PyTree
) -> Any:
    bare = structure.joined(values)

    def judged(search, trial, parts):
        return solver.judge(search, trial, bare.assembled(trial.unknowns, parts))

    return _each(judged, batched, (0, 0, 1))(search, trial, parts)


def _each(function: Callable, batched: bool, in_axes: tuple[int, ...]) -> Callable:
    return jax.vmap(function, in_axes) if batched else function


def pattern(problem: Problem, solver: Solver, initial: Unknowns) -> Any:
    """Shapes and types of the arrays of the `Search` of a fit from this initial guess or batch of initial guesses."""
    init = jax.vmap(solver.init, in_axes=(None, 0)) if initial.x.ndim == 2 else solver.init
    return eqx.filter_eval_shape(init, problem, initial)


def _check_same_parameters(problems: Sequence[Problem]) -> None:
    """Check that all problems have the parameters of the first one, in the same order and with equal charts.

    Raises:
        ValueError: There is a difference, which the message names.
    """
    for number, problem in enumerate(problems[1:], start=2):
        pairs = itertools.zip_longest(_places(problems[0]), _places(problem), fillvalue=("nothing", None))
        for (expected, chart), (found, other) in pairs:
            if expected != found or not eqx.tree_equal(chart, other):
                what = f"{found} instead of {expected}" if expected != found else f"another chart of {found}"
                raise ValueError(f"problem {number} has {what}; make all problems from the same Parameters")


def _places(problem: Problem) -> list[tuple[str, Any]]:
    """Names and place of the values of each parameter of a problem, and their chart."""
    parameters = problem.parameters
    names = iter(name for name, _ in parameters.labels)
    return [
        (f"{', '.join(itertools.islice(names, address.count))} ({', '.join(address.paths)})", chart)
        for address, chart in zip(parameters.addresses, parameters.charts, strict=True)
    ]


def _check(problem: Any, solver: Any, initial: Any, max_steps: Any) -> None:
    """Check the types of the arguments of `fit`; errors are one line and state the remedy."""
    check_problem(problem)
    if isinstance(solver, Unknowns):
        raise TypeError("the second argument is the solver; write fit(problem, LevenbergMarquardt(), initial)")
    example = "LevenbergMarquardt(), or GradientDescent(optimizer, ...) with an optax optimizer"
    check_instance("solver", solver, Solver, example)
    if initial is not None:
        check_unknowns("initial", initial)
    check_count("max_steps", max_steps)
