"""Batches of problems or of initial guesses: the function `solve_batch`, and the local optima among its solutions."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array
from tqdm import tqdm

from jaxdyn.compute import stored_jit
from jaxdyn.compute.announcements import announced_as
from jaxdyn.compute.constant import Constant, parted, separated
from jaxdyn.compute.devices import divided, each_on_its_own, whole
from jaxdyn.control import guess
from jaxdyn.control.plan import Plan
from jaxdyn.control.problem import ControlProblem
from jaxdyn.control.solution import (
    ControlResult,
    IterativeSolver,
    Search,
    Solution,
    Solver,
    UnsolvedError,
    begun,
    check_arguments,
    continued,
    ended,
    given_anew,
    recordable,
    verified,
)
from jaxdyn.mechanism.messages import checked_count
from jaxdyn.results import raise_unsuccessful


@announced_as("the search")
def solve_batch(
    problem: ControlProblem,
    solver: Solver,
    initial: Plan | None = None,
    *,
    starts: int = 64,
    max_steps: int = 200,
    throw: bool = True,
    history: bool = False,
    every: int = 10,
    progress: bool = True,
    mesh: Mesh | None = None,
) -> Solution:
    """Solve one problem from a batch of initial guesses, or a batch of problems from one initial guess each.

    On CPUs, finished searches are removed from the batch, whereas `jax.vmap(solve)` computes all searches until the last one has
    ended. This function compiles the solver internally and cannot be transformed by JAX (`jit`, `vmap`, `grad`). The compiled code
    is reused for problems with the same cost functions and array shapes.

    Args:
        problem: One problem for all initial guesses, or a batch of problems, whose arrays have a leading axis.
        solver: Solver of the problems.
        initial: Initial guesses (plans with a leading axis); required if `problem` is a batch, otherwise by default
            `guess.mixed(problem, starts)`.
        starts: Number of initial guesses if `initial` is not given.
        max_steps: Maximum number of iterations.
        throw: If true, an error is raised if one problem is not solved from any of its initial guesses, or if a problem of a batch
            is not solved.
        history: If true, the solutions record cost and violation at every iteration.
        every: Number of iterations between two removals of finished searches.
        progress: If true, a progress bar shows the number of finished searches and iterations, and the lowest cost of a solution.
        mesh: Devices over which the plans are distributed, from `jaxdyn.compute.lane_mesh`; None for the default device.

    Returns:
        The solutions, with a leading axis; the result codes state how each search ended.

    Raises:
        UnsolvedError: `throw` is true, and a problem is not solved.
        TypeError: An argument has the wrong type.
        ValueError: `problem` is a batch, and `initial` is not given.
    """
    check_arguments("solve_batch", problem, solver, initial)
    max_steps, every = checked_count("max_steps", max_steps, 0), checked_count("every", every)
    solver.check(problem)
    several = problem.duration.ndim > 0
    if initial is None:
        if several:
            raise ValueError(
                "solve_batch: there are no initial guesses for a batch of problems; give one for each problem"
            )
        initial = guess.mixed(problem, starts)
    found = solve_each(solver, problem, initial, Options(max_steps, history, every, progress, mesh))
    if throw:
        # For several initial guesses of one problem, one solution is sufficient.
        raise_unsuccessful(ControlResult, found.result if several else found.result[best_of(found)], UnsolvedError)
    return found


class Options(NamedTuple):
    """The arguments of the same names of `solve_batch`."""

    max_steps: int
    history: bool
    every: int
    progress: bool
    mesh: Mesh | None


@functools.singledispatch
def solve_each(solver: Solver, problem: ControlProblem, initial: Plan, options: Options) -> Solution:
    """Solutions of one problem, or of a batch of problems, from a batch of initial guesses: the part of `solve_batch` that
    depends on the class of the solver. By default, the searches run one after the other.
    """
    if options.history:
        recordable(solver)
    arrays, structure = eqx.partition(problem, eqx.is_array)
    found = []
    for k in tqdm(range(initial.controls.shape[0]), unit="plan", disable=not options.progress):
        own, plan = jax.tree.map(lambda leaf, k=k: leaf[k], (arrays if problem.duration.ndim else None, initial))
        of_own = problem if own is None else eqx.combine(own, structure)
        one = verified(of_own, solver.solve(of_own, plan, options.max_steps))
        # Collocation adds the motion between the time steps to its solution; only `solve` returns it.
        found.append(Solution(**{field.name: getattr(one, field.name) for field in dataclasses.fields(Solution)}))
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *found)


@solve_each.register
def _(solver: IterativeSolver, problem: ControlProblem, initial: Plan, options: Options) -> Solution:
    """All searches together, in packs; when searches have finished, the remaining ones are packed again."""
    max_steps, history, every, progress, mesh = options
    several = problem.duration.ndim > 0
    structure, arrays = parted(problem) if several else separated(problem, given_anew)
    known = (structure, solver, max_steps if history else None)
    count = initial.controls.shape[0]
    compiled, found, shared = _on_devices(mesh), _Found(count), None if several else arrays

    def results(function, packs, limit=0):
        """Results of the function for each pack."""
        constant = Constant((function, *known))
        return [
            whole(mesh, compiled(constant, divided(mesh, (pack.arrays, pack.tree)), (shared, np.asarray(limit))))
            for pack in packs
        ]

    def following(function, packs, limit=0):
        """Packs with the results of the function."""
        trees = results(function, packs, limit)
        return [pack._replace(tree=tree) for pack, tree in zip(packs, trees, strict=True)]

    rows = _packs(count, count, mesh)
    packs = following(_begin, [_Pack(part, *_taken((arrays if several else None, initial), part)) for part in rows])
    with tqdm(total=count, unit="plan", disable=not progress) as bar:
        for limit in range(every, max_steps + every, every):
            running = [np.asarray(pack.tree.state.result) == ControlResult.OUT_OF_STEPS for pack in packs]
            if not any(np.any(part) for part in running):
                break
            # The last search of a pack may be repeated.
            left = np.unique(np.concatenate([pack.rows[part] for pack, part in zip(packs, running, strict=True)]))
            # Ended searches would cost as much as others, and their line searches more. On a device, copies would cost more still.
            if jax.default_backend() == "cpu" and not all(np.all(part) for part in running):
                found.enter(packs, results(_end, packs))
                packs = _packed_again(packs, [left[part] for part in _packs(len(left), count, mesh)])
            packs = following(_continue, packs, min(limit, max_steps))
            if progress:
                standing = found.all(packs, results(_end, packs))
                bar.set_postfix_str(_progress_text(standing), refresh=False)
                bar.update(int(np.sum(np.asarray(standing.result) != ControlResult.OUT_OF_STEPS)) - bar.n)
                bar.refresh()
    return verified(problem, jax.tree.map(jax.device_put, found.all(packs, results(_end, packs))))


class _Pack(NamedTuple):
    """Searches that are computed together.

    Attributes:
        rows: Their indices in the batch.
        arrays: Arrays of their problems; None if all have the same problem.
        tree: Their initial guesses, then their states.
    """

    rows: np.ndarray
    arrays: Any
    tree: Any


class _Found:
    """Solutions of the searches of a batch."""

    def __init__(self, count: int):
        self._count, self._solutions = count, None

    def enter(self, packs: list[_Pack], parts: list[Solution]) -> Solution:
        """Enter the solutions of packs in their rows; returns the solutions of all searches."""
        if self._solutions is None:
            self._solutions = jax.tree.map(lambda leaf: np.empty((self._count, *leaf.shape[1:]), leaf.dtype), parts[0])
        for pack, part in zip(packs, parts, strict=True):
            for leaf, own in zip(jax.tree.leaves(self._solutions), jax.tree.leaves(part), strict=True):
                leaf[pack.rows] = own
        return self._solutions

    def all(self, packs: list[_Pack], parts: list[Solution]) -> Solution:
        """The solutions of all searches, those of the packs included; a single pack with all of them stays on its device."""
        if self._solutions is None and len(packs) == 1 and len(packs[0].rows) == self._count:
            return parts[0]
        return self.enter(packs, parts)


_TOGETHER = 48  # plans that a processor computes at once, so that their data fit into its caches


def _packs(count: int, most: int, mesh: Mesh | None) -> np.ndarray:
    """Indices of plans, one row for each pack, padded with the last index. The size depends on the largest count only."""
    devices = 1 if mesh is None else mesh.size
    size = -(-most // devices)
    if jax.default_backend() == "cpu":
        size = -(-size // -(-size // _TOGETHER))  # as many packs as necessary, all of nearly the same size
    filled = -(-count // (size * devices)) * size * devices
    return np.minimum(np.arange(filled), count - 1).reshape(-1, size * devices)


def _packed_again(packs: list[_Pack], rows: list[np.ndarray]) -> list[_Pack]:
    """Packs with these rows of the batch, which the given packs contain. Only CPUs have several packs; NumPy compiles nothing."""
    before = np.concatenate([pack.rows for pack in packs])
    where = np.empty(before.max() + 1, int)
    where[before] = np.arange(len(before))
    together = jax.tree.map(lambda *leaves: np.concatenate(leaves), *((pack.arrays, pack.tree) for pack in packs))
    return [_Pack(part, *jax.tree.map(lambda leaf, at=where[part]: leaf[at], together)) for part in rows]


def _taken(tree: Any, rows: np.ndarray) -> Any:
    """These rows of a tree of arrays."""
    count = jax.tree.leaves(tree)[0].shape[0]
    if np.array_equal(rows, np.arange(count)):
        return tree
    return jax.tree.map(lambda leaf: np.asarray(leaf)[rows], tree)


@functools.cache
def _on_devices(mesh: Mesh | None) -> Callable:
    """`_of_each`, compiled; each device of the mesh processes its part of the batch."""

    def over_mesh(known: Constant, batch: tuple, shared: tuple) -> Any:
        return each_on_its_own(mesh, functools.partial(_of_each, known))(batch, shared)

    return stored_jit(over_mesh)


def _of_each(known: Constant, batch: tuple, shared: tuple) -> Any:
    """Apply one of the functions below to a batch of trees, and to the arrays of their problems if they differ."""
    function, structure, solver, length = known.value
    (arrays, trees), (of_all, limit) = batch, shared
    if arrays is None:
        problem = structure.joined(of_all)
        return jax.vmap(lambda tree: function(problem, solver, tree, limit, length))(trees)
    return jax.vmap(lambda arrays, tree: function(structure.joined(arrays), solver, tree, limit, length))(arrays, trees)


def _begin(problem: ControlProblem, solver: IterativeSolver, plan: Plan, limit: Array, length: int | None) -> Search:
    return begun(problem, solver, plan, length)


def _continue(problem: ControlProblem, solver: IterativeSolver, search: Search, limit: Array, length: Any) -> Search:
    return continued(problem, solver, search, limit)


def _end(problem: ControlProblem, solver: IterativeSolver, search: Search, limit: Array, length: Any) -> Solution:
    return ended(problem, solver, search)


class Optimum(NamedTuple):
    """A local optimum: the solutions of a batch that have nearly the same cost.

    Attributes:
        cost: Lowest cost of these solutions.
        starts: Number of initial guesses that led to this optimum.
        best: Index (in the batch) of the solution with the lowest cost.
    """

    cost: float
    starts: int
    best: int


def optima(found: Solution, *, alike: float = 1e-4) -> list[Optimum]:
    """Local optima in a batch of solutions, in ascending order of cost.

    Args:
        found: Batch of solutions, from `solve_batch`.
        alike: Largest relative difference of costs at which two solutions count as the same optimum. Costs below the rounding error
            of 1 count as equal.
    """
    cost = np.asarray(found.cost)
    rounding = float(np.finfo(cost.dtype).eps)
    solved = np.flatnonzero(np.asarray(found.result) == ControlResult.SUCCESSFUL)
    order = solved[np.argsort(cost[solved], kind="stable")]  # of equal ones the first, like `best_of`
    groups: list[Optimum] = []
    for k in order:
        if groups and cost[k] - groups[-1].cost <= max(alike * abs(groups[-1].cost), rounding):
            groups[-1] = groups[-1]._replace(starts=groups[-1].starts + 1)
        else:
            groups.append(Optimum(float(cost[k]), 1, int(k)))
    return groups


def describe_optima(found: Solution, *, alike: float = 1e-4, kinds: Sequence[str] | None = None) -> str:
    """Text that lists each local optimum with the number of initial guesses that led to it, and the messages of failed searches.

    Args:
        found: Batch of solutions, from `solve_batch`.
        alike: Largest relative difference of costs at which two solutions count as the same optimum.
        kinds: Kind of each initial guess, for example `guess.kinds(problem, starts)`; the text then states how many searches of
            each kind were solved.
    """
    total = len(np.asarray(found.result))
    lines = [f"{group.cost:.6g}  from {group.starts} of {total} starts" for group in optima(found, alike=alike)]
    for code in ControlResult:
        lost = int(np.sum(np.asarray(found.result) == code))
        if code != ControlResult.SUCCESSFUL and lost:
            lines.append(f"{lost} of {total}: {code.message}")
    solved = np.asarray(found.result) == ControlResult.SUCCESSFUL
    for kind in dict.fromkeys(kinds or ()):
        of_kind = np.array([other == kind for other in kinds or ()])
        lines.append(f"{kind}: {int(np.sum(solved & of_kind))} of {int(of_kind.sum())} solved")
    return "\n".join(lines)


def best_of(found: Solution) -> int:
    """Index of the solution with the lowest cost in a batch, or of the plan with the smallest violation if no problem is solved."""
    solved = np.asarray(found.result) == ControlResult.SUCCESSFUL
    cost, violation = (np.nan_to_num(np.asarray(x), nan=np.inf) for x in (found.cost, found.violation))
    return int(np.lexsort((cost, np.where(solved, 0.0, violation), ~solved))[0])


def _progress_text(found: Solution) -> str:
    best, done = best_of(found), f"iteration {np.max(np.asarray(found.stats.iterations))}"
    if np.any(np.asarray(found.result) == ControlResult.SUCCESSFUL):
        return f"{done}, best cost {np.asarray(found.cost)[best]:.6g}"
    return f"{done}, none solved yet, least violation {np.asarray(found.violation)[best]:.1e}"
