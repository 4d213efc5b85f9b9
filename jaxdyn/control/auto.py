"""Choice of a solver by the structure of the problem; the next solver is tried where one fails, and every plan is verified."""

from collections import Counter
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer

from jaxdyn.compute.arrays import beside
from jaxdyn.control import guess
from jaxdyn.control.batch import Options, best_of, solve_batch, solve_each
from jaxdyn.control.collocation import Collocation
from jaxdyn.control.ilqr import ILQR
from jaxdyn.control.multiple_shooting import MultipleShooting
from jaxdyn.control.plan import Plan
from jaxdyn.control.problem import ControlProblem
from jaxdyn.control.solution import ControlResult, Solution, Solver, allowed_violation
from jaxdyn.mechanism.quantity import POSITIVE, plain

_REFUTED = 10.0  # factor of the allowed violation; a plan with a larger violation is refused


class Stage(NamedTuple):
    """One attempt of `Auto`.

    Attributes:
        name: Name of the attempt in reports.
        solver: Solver of the attempt.
        prepared: Solver that computes the initial guess of `solver` from the given initial guess, or None.
        other_guesses: If true, the attempt replaces the given initial guesses by those of `guess.mixed`.
    """

    name: str
    solver: Solver
    prepared: Solver | None = None
    other_guesses: bool = False


class Auto(Solver):
    """Choice of the solver: solvers are tried one after the other until one of them succeeds, and its plan is verified.

    The structure of the problem determines the order. With constraints or design parameters, `MultipleShooting` is the first
    solver and DDP (`ILQR(second_order=True)`) the second one. Without them, iLQR is the first, `MultipleShooting` the second and
    DDP the third one. If all fail, `MultipleShooting` starts from the plan of `Collocation`, if Ipopt is installed, the dynamics
    are continuous in time and the precision is double. The last attempt is the first solver with other initial guesses. If
    `solve_batch` solves one problem from several initial guesses, the next solver is tried only if all of them fail, and a plan
    from other guesses replaces the first solution only.

    `verify` checks every plan. If a plan violates dynamics, constraints or bounds, its result code is REFUTED, and the next solver
    is tried. If the motion of a plan does not happen because the time steps are too long, the code is COARSE, as with every solver;
    then no other solver helps. `Stats.stage` of a solution is the index of the attempt in `stages`, and `describe` states how many
    plans were found by which solver.

    Attributes:
        feasibility: Largest violation of a constraint that a solution may have; by default 1e-6 in double and 1e-4 in single
            precision.
        starts: Number of other initial guesses for the last attempt.
    """

    kind: ClassVar[str] = "auto"

    feasibility: float | None = eqx.field(static=True, converter=plain, kw_only=True, default=None, metadata=POSITIVE)
    starts: int = eqx.field(static=True, converter=plain, kw_only=True, default=16, metadata=POSITIVE)

    def stages(self, problem: ControlProblem) -> tuple[Stage, ...]:
        """The attempts for a problem, in their order."""
        shooting = MultipleShooting()
        ilqr, ddp = (ILQR(second_order=second, feasibility=self.feasibility) for second in (False, True))
        if problem.constraints or problem.final_constraints or problem.size:
            listed = [Stage("multiple_shooting", shooting), Stage("ddp", ddp)]
        else:
            listed = [Stage("ilqr", ilqr), Stage("multiple_shooting", shooting), Stage("ddp", ddp)]
        collocation = Collocation(feasibility=1e-6, tolerance=1e-6)
        if _supports(collocation, problem):
            listed.append(Stage("multiple_shooting from collocation", shooting, prepared=collocation))
        first = listed[0]
        return *listed, Stage(f"{first.name} from other guesses", first.solver, other_guesses=True)

    def describe(self, problem: ControlProblem, found: Solution) -> str:
        """Text that states how many plans of a solution, or of a batch of solutions, each solver found."""
        names = [stage.name for stage in self.stages(problem)]
        solved = np.atleast_1d(np.asarray(found.result) == ControlResult.SUCCESSFUL)
        counts = Counter(np.atleast_1d(np.asarray(found.stats.stage))[solved].tolist())
        parts = [f"{counts[k]} by {name}" for k, name in enumerate(names) if counts[k]]
        return f"{int(solved.sum())} of {solved.size} plans verified" + (": " + ", ".join(parts) if parts else "")

    def solve(self, problem: ControlProblem, initial: Plan, max_steps: int) -> Solution:
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((problem, initial))):
            raise TypeError(
                "Auto chooses solvers by their results and cannot be transformed by jit, vmap or grad; pass a solver such as "
                "MultipleShooting(), or use solve_batch"
            )
        batch = jax.tree.map(lambda leaf: beside(leaf, np.asarray(leaf)[None]), initial)
        found = solve_batch(problem, self, batch, max_steps=max_steps, throw=False, progress=False)
        return jax.tree.map(lambda leaf: beside(leaf, np.asarray(leaf)[0]), found)


def _supports(collocation: Collocation, problem: ControlProblem) -> bool:
    """Whether the problem is continuous in time and in double precision, and Ipopt is installed."""
    try:
        collocation.check(problem)
    except (ValueError, ImportError):
        return False
    return problem.dynamics.continuous


@solve_each.register
def _(solver: Auto, problem: ControlProblem, initial: Plan, options: Options) -> Solution:
    """One problem is solved as soon as it is solved from one of its initial guesses; each problem of a batch must be solved."""
    several = problem.duration.ndim > 0
    first, *others = solver.stages(problem)
    found = _attempt(solver, first, problem, initial, options)
    for index, stage in enumerate(others, start=1):
        results = np.asarray(found.result)
        solved = results == ControlResult.SUCCESSFUL
        failed = np.flatnonzero(~solved & (results != ControlResult.COARSE))  # the time steps are those of all solvers
        if not len(failed) or (several and stage.other_guesses) or (not several and np.any(solved)):
            break
        if np.all(results == ControlResult.NOT_FINITE) and not stage.other_guesses:
            continue  # the guesses are not finite for other solvers either
        if stage.other_guesses:
            failed = failed[:1]  # the plan found is not a success of every given guess
        part = _rows(problem, failed) if several else problem
        found = _replaced(found, _attempt(solver, stage, part, _rows(initial, failed), options), failed, index)
    return found


def _attempt(solver: Auto, stage: Stage, problem: ControlProblem, plans: Plan, options: Options) -> Solution:
    """Verified solutions of one attempt."""
    if stage.other_guesses:
        plans = guess.mixed(problem, solver.starts)
    if stage.prepared is not None:
        plans = solve_each(stage.prepared, problem, plans, options._replace(history=False)).value
    found = solve_each(stage.solver, problem, plans, options)
    checked = found.verification
    assert checked is not None  # `solve_each` verifies
    worst = np.max([np.asarray(error) for error in (checked.gap, checked.violation, checked.excess)], axis=0)
    right = worst <= _REFUTED * allowed_violation(solver, problem.lower.dtype)  # false for NaN
    before = np.asarray(found.result)
    wrong = ~right & (before == ControlResult.SUCCESSFUL)
    result = beside(found.result, np.where(wrong, np.asarray(ControlResult.REFUTED.value, before.dtype), before))
    found = eqx.tree_at(lambda f: f.result, found, result)
    return _rows(found, np.array([best_of(found)])) if stage.other_guesses else found


def _rows(tree, rows: np.ndarray):
    return jax.tree.map(lambda leaf: leaf[rows] if eqx.is_array(leaf) else leaf, tree)


def _replaced(found: Solution, attempt: Solution, rows: np.ndarray, index: int) -> Solution:
    """The solutions, with those rows replaced that the attempt has solved; iterations of all attempts are added."""
    iterations = found.stats.iterations.at[rows].add(attempt.stats.iterations)
    better = np.asarray(attempt.result) == ControlResult.SUCCESSFUL
    kept = jax.tree.map(lambda old, new: old.at[rows[better]].set(new[better]), found, attempt)
    stage = found.stats.stage.at[rows[better]].set(index)
    return eqx.tree_at(lambda f: (f.stats.iterations, f.stats.stage), kept, (iterations, stage))
