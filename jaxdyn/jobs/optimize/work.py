"""The job `jaxdyn optimize`: optimal control of a mechanism, from one initial guess or from many at once."""

import dataclasses
import functools
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from tqdm import tqdm

from jaxdyn.compute import per_sample, stored_jit
from jaxdyn.compute.announcements import announced_as
from jaxdyn.compute.arrays import on_device
from jaxdyn.control.auto import Auto
from jaxdyn.control.batch import Optimum, best_of, describe_optima, optima, solve_batch
from jaxdyn.control.plan import Plan, no_multipliers
from jaxdyn.control.problem import ControlProblem, MultibodyDynamics
from jaxdyn.control.solution import ControlResult, History, IterativeSolver, Solution, Solver, Stats
from jaxdyn.control.verification import Verification, integrator_name
from jaxdyn.dynamics.equations_of_motion import total_energy
from jaxdyn.dynamics.system import State, System
from jaxdyn.io.archive.structure import arrays_of, with_arrays
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.runs.directory import Chunks, RunDirectory
from jaxdyn.io.system_file import files_of
from jaxdyn.jobs.hosts import mesh_of
from jaxdyn.jobs.optimize.config import OptimizeConfig
from jaxdyn.jobs.optimize.problem import problem_of, solver_of, starts_of
from jaxdyn.jobs.pictures import draw_pictures
from jaxdyn.jobs.rollout.replay import PLAN, replay_config, saved_plan

_BLOCK = 10  # iterations after which finished searches are removed from a batch
_SHOWN = 12  # optima in tables, pictures and animations


@dataclasses.dataclass(frozen=True)
class Solutions:
    """Solutions of a problem from all initial guesses.

    Attributes:
        problem: The problem.
        found: Solutions, with a leading axis of initial guesses.
        groups: Local optima, from the lowest cost.
        best: Index of the selected plan.
    """

    problem: ControlProblem
    found: Solution
    groups: list[Optimum]
    best: int

    @property
    def system(self) -> System:
        """The mechanism."""
        assert isinstance(self.problem.dynamics, MultibodyDynamics)
        return self.problem.dynamics.system

    @property
    def times(self) -> np.ndarray:
        """Times (N + 1,) of the selected plan, s."""
        placed = self.problem.with_design(self.found.value.design[self.best])
        return np.arange(self.problem.steps + 1) * float(placed.dt)

    @property
    def shown(self) -> list[int]:
        """Indices of the plans in the animation: the selected plan, then the best plan of each other local optimum unless the
        duration is free.
        """
        free = self.problem.design is not None
        return [self.best, *(group.best for group in self.groups if group.best != self.best and not free)]


def work(config: OptimizeConfig, directory: RunDirectory) -> dict[str, Any] | None:
    """Solve the problem of a config from all initial guesses; returns the metrics, or None if another process completes the run."""
    problem = problem_of(config)
    starts = starts_of(config, problem)
    begun = time.perf_counter()
    solver = solver_of(config, problem)
    found = _search(config, problem, solver, starts, directory)
    if found is None:
        return None
    seconds = time.perf_counter() - begun
    best = best_of(found)
    solution = _row(found, best)
    solutions = Solutions(problem, found, optima(found, alike=config.alike)[:_SHOWN], best)
    name, attempts = config.solver.kind, []
    if isinstance(solver, Auto):
        name, attempts = solver.stages(problem)[int(solution.stats.stage)].name, [solver.describe(problem, found)]
    report = _report(config, solutions, attempts)
    print(report)
    directory.write_text("optima.txt", report + "\n")
    _save(solutions, directory)
    results = np.asarray(found.result)
    metrics = {
        "solve_s": seconds,
        "starts": len(results),
        "results": {code.name.lower(): int(np.sum(results == code)) for code in ControlResult},
        "result": ControlResult(int(solution.result)).name.lower(),
        "cost": float(solution.cost),
        "violation": float(solution.violation),
        "iterations": int(solution.stats.iterations),
        "solver": name,
        "verification": vars(solution.verification),
        "duration_s": float(problem.with_design(solution.value.design).duration),
        "best_start": best,
        "optima": [group._asdict() for group in solutions.groups],
    }
    if config.pictures or config.animation:
        metrics["pictures"] = draw_pictures("jaxdyn.jobs.optimize.pictures:draw", config, solutions, directory)
    return metrics


def inputs(config: OptimizeConfig) -> list[tuple[str, Path]]:
    """The files that the optimization of a config reads."""
    return [("mechanism", file) for file in files_of(config.mechanism)]


def _search(
    config: OptimizeConfig, problem: ControlProblem, solver: Solver, starts: Plan, directory: RunDirectory
) -> Solution | None:
    """Solutions from all initial guesses, with histories if the solver records them; None if another process completes the run.

    Raises:
        ConfigError: No initial guess has a finite cost.
    """
    # These solvers make many searches at once, and record their histories.
    together = isinstance(solver, IterativeSolver | Auto)
    chunk = config.chunk if together else 1
    firsts = range(0, starts.controls.shape[0], chunk)
    files = Chunks(directory, "solutions", len(firsts))

    def solved(k: int) -> dict[str, Array]:
        plans = jax.tree.map(lambda leaf: leaf[firsts[k] : firsts[k] + chunk], starts)
        found = solve_batch(
            problem,
            solver,
            plans,
            max_steps=config.max_steps,
            throw=False,
            history=together,
            every=1 if len(plans.controls) == 1 else _BLOCK,
            progress=together,  # otherwise the chunks show the progress
            mesh=mesh_of(config.devices),
        )
        bar.update()
        return arrays_of(found)

    with tqdm(
        total=len(firsts), initial=sum(map(files.exists, range(files.count))), unit="plan", disable=together
    ) as bar:
        if not files.fill(solved):
            return None
    pattern = _pattern(problem, starts, together)
    chunks = [with_arrays(pattern, files.read(k)) for k in range(files.count)]
    found = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *chunks)
    if np.all(np.asarray(found.result) == ControlResult.NOT_FINITE):  # nothing was computed
        files.remove()
        raise ConfigError(f"start: {ControlResult.NOT_FINITE.message}")
    return found


def _pattern(problem: ControlProblem, starts: Plan, has_history: bool) -> Solution:
    """A solution with the tree structure of those that are found."""
    plan = jax.tree.map(lambda leaf: leaf[0], starts)
    number, gains, code = jnp.zeros(()), jnp.zeros((0, 0, 0)), jnp.zeros((), int)
    history = History(number[None], number[None]) if has_history else None
    found = Solution(plan, gains, no_multipliers(problem, 1.0), number, number, code, Stats(code), history=history)
    checked = Verification(number, number, number, number, number, integrator_name(problem.dynamics))
    return dataclasses.replace(found, verification=checked)


def _report(config: OptimizeConfig, solutions: Solutions, attempts: list[str]) -> str:
    """Report on all optima, the attempts of `Auto`, the selected plan, and its check."""
    solution = _row(solutions.found, solutions.best)
    code, checked = ControlResult(int(solution.result)), solution.verification
    kept = f"kept: plan {solutions.best}, cost {float(solution.cost):.8g}, violation {float(solution.violation):.1e}"
    if code == ControlResult.SUCCESSFUL:
        ended = f"solved after {int(solution.stats.iterations)} iterations"
    else:
        ended = f"NOT solved: {code.message}"
    # One line for each optimum, then those about the other searches.
    lines = describe_optima(solutions.found, alike=config.alike).splitlines()
    count = len(optima(solutions.found, alike=config.alike))
    more = [f"and {count - _SHOWN} optima of higher cost"] if count > _SHOWN else []
    shown = ["optima:", *lines[: min(count, _SHOWN)], *more, *lines[count:], *attempts]
    verified = (
        f"checked: gaps of the dynamics {float(checked.gap):.1e}, violation of constraints {float(checked.violation):.1e} and of "
        f"bounds {float(checked.excess):.1e}, error of the time steps about {float(checked.integration_error):.1e} "
        "(rad, m, rad/s or m/s)\n"
        f"simulated: time steps of {checked.integrator}; with steps of a quarter of their length the motion misses the plan by "
        f"{100.0 * float(checked.miss):.2g} % of its range"
    )
    return "\n".join([*shown, "", f"{kept}; {ended}", verified])


def _row(batch: Any, index: int) -> Any:
    """One solution of a batch. The selection by NumPy is not compiled."""
    return jax.tree.map(lambda leaf: on_device(np.asarray(leaf)[index]), batch)


@stored_jit
def _energies(system: System, states: State) -> Float[Array, "plans times"]:
    each = per_sample(functools.partial(total_energy, system), name="energy")
    return jax.vmap(jax.vmap(each))(states)


@announced_as("energies")
def _save(solutions: Solutions, directory: RunDirectory) -> None:
    """Write the mechanism, the best plan with a config for its replay, one plan of each optimum as a run, and all searches."""
    problem, found, best = solutions.problem, solutions.found, solutions.best
    system, shown = solutions.system, np.array(solutions.shown)
    directory.write_mechanism(system)
    directory.write_arrays(PLAN, **saved_plan(problem, _row(found, best)))
    directory.write_text("replay.toml", replay_config(problem, found.value.design[best]))
    states = jax.tree.map(lambda leaf: np.asarray(leaf)[shown], found.value.states)
    energy = _energies(system, states)
    of_drives = {} if states.z is None else {"z": states.z}
    directory.write_arrays(
        "states", time=solutions.times, q=states.q, v=states.v, energy=energy, plan=shown, **of_drives
    )
    searches = {name: getattr(found, name) for name in ("cost", "violation", "result")}
    searches |= {"iterations": found.stats.iterations, "controls": found.value.controls, "design": found.value.design}
    if found.history is not None:
        searches |= {"cost_history": found.history.cost, "violation_history": found.history.violation}
    directory.write_arrays("searches", **searches)
