"""Many problems or many starts at once: lanes that have ended are set aside and cost nothing; what was found is counted."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array
from tqdm import tqdm

from jaxdyn.control.plan import Plan
from jaxdyn.control.problem import ControlProblem
from jaxdyn.control.solution import ControlResult, IterativeSolver, Solution, searched
from jaxdyn.lanes.announcements import announced_as
from jaxdyn.lanes.devices import divided, each_on_its_own, whole


@announced_as("the search")
def solve_batch(
    problem: ControlProblem,
    solver: IterativeSolver,
    initial: Plan,
    *,
    max_steps: int = 200,
    every: int = 10,
    progress: bool = True,
    mesh: Mesh | None = None,
) -> Solution:
    """Solve from a batch of plans, or a batch of problems each from its own plan.

    Under `jax.vmap(solve)` all lanes wait for the last one; here those that have ended are taken out after some iterations. This
    function compiles for itself, once for equal problems whose costs are the same functions, and cannot be transformed.

    Args:
        problem: one for all, or a batch of them, every number with a leading axis.
        initial: plans with a leading axis.
        max_steps: largest number of iterations.
        every: number of iterations after which ended lanes are taken out.
        progress: whether to show a progress bar of ended lanes.
        mesh: devices over which the plans are divided (`jaxdyn.lanes.lane_mesh`); None leaves them where they are.

    Returns:
        Solutions with a leading axis; result codes tell how each search ended.
    """
    numbers, structure = eqx.partition(problem, eqx.is_array)
    several = problem.duration.ndim > 0
    begin, some, end = _compiled(_Compared((structure if several else problem, solver)), several, mesh)

    count = initial.controls.shape[0]

    def call(function, rows, tree, limit):
        """What the function makes of these rows and their `tree`, in packs of few sizes, so that little is compiled."""
        results = []
        for pack in _packs(len(rows), min(_LEAST_SIZE, count), mesh):
            batch = (_rows(numbers, rows[pack]), _rows(tree, pack)) if several else (_rows(tree, pack),)
            results.append(whole(mesh, function(divided(mesh, batch), np.asarray(limit))))
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[: len(rows)], *results)

    everyone = np.arange(count)
    search = call(begin, everyone, initial, 0)
    with tqdm(total=count, unit="plan", disable=not progress) as bar:
        for limit in range(every, max_steps + every, every):
            running = np.flatnonzero(np.asarray(search.result) == ControlResult.RUNNING)
            if not len(running):
                break
            after = call(some, running, _rows(search, running), min(limit, max_steps))
            search = jax.tree.map(lambda all, new, running=running: all.at[running].set(new), search, after)
            if progress:
                bar.set_postfix_str(_told(_standing(call(end, everyone, search, 0))), refresh=False)
                bar.update(int(np.sum(np.asarray(search.result) != ControlResult.RUNNING)) - bar.n)
                bar.refresh()
    return call(end, everyone, search, 0)


_LEAST_SIZE, _RATIO = 8, 4  # of the packs of a device: 8, 32, 128, ...
_TOGETHER = 32  # plans that a processor works on at once: what they need stays in its caches


def _packs(count: int, size: int, mesh: Mesh | None) -> np.ndarray:
    """Positions of plans, a row for each pack, filled up with the last one. A device gets `size` of them, or more by a ratio."""
    devices = 1 if mesh is None else mesh.size
    share = -(-count // devices)
    while size < share and not (size >= _TOGETHER and jax.default_backend() == "cpu"):
        size *= _RATIO
    filled = -(-count // (size * devices)) * size * devices
    return np.minimum(np.arange(filled), count - 1).reshape(-1, size * devices)


class _Compared:
    """Modules that are equal if their numbers are, and everything else."""

    def __init__(self, modules):
        leaves, self.structure = jax.tree.flatten(modules)
        self.modules = modules
        self.leaves = tuple(
            (leaf.shape, str(leaf.dtype), np.asarray(leaf).tobytes()) if eqx.is_array(leaf) else leaf for leaf in leaves
        )

    def __hash__(self) -> int:
        return hash((self.structure, self.leaves))

    def __eq__(self, other) -> bool:
        return isinstance(other, _Compared) and (self.structure, self.leaves) == (other.structure, other.leaves)


@functools.lru_cache(maxsize=16)
def _compiled(known: _Compared, several: bool, mesh: Mesh | None) -> tuple[Callable, Callable, Callable]:
    """`begin`, some iterations, and `solution` for batches; with several problems their numbers come first, and a limit last."""
    problem, solver = known.modules

    def of_each(function):
        # One problem for all is a constant of the code, so that its zeros cost nothing.
        def batch(parts, limit):
            if not several:
                return jax.vmap(lambda tree: function(problem, tree, limit))(*parts)
            return jax.vmap(lambda numbers, tree: function(eqx.combine(numbers, problem), tree, limit))(*parts)

        return eqx.filter_jit(each_on_its_own(mesh, batch))

    return (
        of_each(lambda problem, plan, _: solver.begin(problem, plan)),
        of_each(lambda problem, search, limit: searched(problem, solver, search, limit)),
        of_each(lambda problem, search, _: solver.solution(problem, search)),
    )


class Optimum(NamedTuple):
    """Solutions that are alike.

    Attributes:
        cost: the smallest one.
        starts: how many led there.
        best: the number of the best one in the batch.
    """

    cost: float
    starts: int
    best: int


def optima(found: Solution, *, alike: float = 1e-4) -> list[Optimum]:
    """Local optima among a batch of solutions, the cheapest first; costs within a share `alike` of each other are one optimum."""
    cost = np.asarray(found.cost)
    solved = np.flatnonzero(np.asarray(found.result) == ControlResult.SOLVED)
    order = solved[np.argsort(cost[solved])]
    groups: list[Optimum] = []
    for k in order:
        if groups and cost[k] - groups[-1].cost <= alike * abs(groups[-1].cost):
            groups[-1] = groups[-1]._replace(starts=groups[-1].starts + 1)
        else:
            groups.append(Optimum(float(cost[k]), 1, int(k)))
    return groups


def describe_optima(found: Solution, *, alike: float = 1e-4) -> str:
    """The distribution over a batch of starts as text: optima with their shares, and how the others ended."""
    total = len(np.asarray(found.result))
    lines = [f"{group.cost:.6g}  from {group.starts} of {total} starts" for group in optima(found, alike=alike)]
    for code in ControlResult:
        lost = int(np.sum(np.asarray(found.result) == code))
        if code != ControlResult.SOLVED and lost:
            lines.append(f"{lost} of {total}: {code.meaning}")
    return "\n".join(lines)


def best_of(found: Solution) -> int:
    """The number of the cheapest solution in a batch; if none is solved, of the plan that violates least, and then costs least."""
    return _best(_standing(found))


class _Standing(NamedTuple):
    """Where searches stand."""

    cost: Array
    violation: Array
    result: Array
    iterations: Array


def _standing(found: Solution) -> _Standing:
    return _Standing(found.cost, found.violation, found.result, found.iterations)


def _best(standing: _Standing) -> int:
    solved = np.asarray(standing.result) == ControlResult.SOLVED
    cost, violation = (np.nan_to_num(np.asarray(x), nan=np.inf) for x in (standing.cost, standing.violation))
    return int(np.lexsort((cost, np.where(solved, 0.0, violation), ~solved))[0])


def _told(standing: _Standing) -> str:
    best = _best(standing)
    cost, violation = float(standing.cost[best]), float(standing.violation[best])
    return f"iteration {int(np.max(standing.iterations))}, best cost {cost:.6g}, violation {violation:.1e}"


def _rows(tree, rows: np.ndarray):
    return jax.tree.map(lambda leaf: leaf[rows] if eqx.is_array(leaf) else leaf, tree)
