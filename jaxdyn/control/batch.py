"""Many problems or many starts at once: lanes that have ended are set aside and cost nothing; what was found is counted."""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from tqdm import tqdm

from jaxdyn.control.plan import Plan
from jaxdyn.control.problem import ControlProblem
from jaxdyn.control.solution import ControlResult, IterativeSolver, Solution, searched


def solve_batch(
    problem: ControlProblem,
    solver: IterativeSolver,
    initial: Plan,
    *,
    max_steps: int = 200,
    every: int = 10,
    progress: bool = True,
) -> Solution:
    """Solve from a batch of plans, or a batch of problems each from its own plan.

    Under `jax.vmap(solve)` all lanes wait for the last one; here those that have ended are taken out after some iterations. This
    function compiles for itself and cannot be transformed.

    Args:
        problem: one for all, or a batch of them, every number with a leading axis.
        initial: plans with a leading axis.
        max_steps: largest number of iterations.
        every: number of iterations after which ended lanes are taken out.
        progress: whether to show a progress bar of ended lanes.

    Returns:
        Solutions with a leading axis; result codes tell how each search ended.
    """
    axes = 0 if problem.duration.ndim else None
    count = initial.controls.shape[0]
    numbers, structure = eqx.partition(problem, eqx.is_array)

    # One problem for all is a constant of the code, so that its zeros cost nothing.
    def of_each(function):
        def each(numbers, rest):
            return function(eqx.combine(numbers, structure), rest)

        if axes is None:
            return eqx.filter_jit(jax.vmap(lambda rest: each(numbers, rest)))
        return eqx.filter_jit(lambda rest, chosen: jax.vmap(each)(chosen, rest))

    def call(function, rest, chosen):
        return function(rest) if axes is None else function(rest, _rows(numbers, chosen))

    begin = of_each(solver.begin)
    some = of_each(lambda problem, pair: searched(problem, solver, pair[0], jnp.minimum(pair[1], max_steps)))
    end = of_each(solver.solution)
    standing = of_each(lambda problem, search: _standing(solver.solution(problem, search)))
    everyone = np.arange(count)
    search = call(begin, initial, everyone)
    with tqdm(total=count, unit="plan", disable=not progress) as bar:
        for limit in range(every, max_steps + every, every):
            running = np.flatnonzero(np.asarray(search.result) == ControlResult.RUNNING)
            if not len(running):
                break
            # Only few sizes are compiled; the last plan fills up.
            size = min(count, _LEAST_SIZE * _RATIO ** math.ceil(math.log(max(len(running) / _LEAST_SIZE, 1.0), _RATIO)))
            chosen = np.concatenate([running, np.full(size - len(running), running[-1])])
            part = call(some, (_rows(search, chosen), jnp.full(size, limit)), chosen)
            search = jax.tree.map(lambda all, new, chosen=chosen: all.at[chosen].set(new), search, part)
            if progress:
                bar.set_postfix_str(_told(call(standing, search, everyone)), refresh=False)
                bar.update(int(np.sum(np.asarray(search.result) != ControlResult.RUNNING)) - bar.n)
                bar.refresh()
    return call(end, search, everyone)


_LEAST_SIZE, _RATIO = 8, 4  # of the batches that go on: 8, 32, 128, ...


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
