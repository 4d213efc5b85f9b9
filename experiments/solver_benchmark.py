"""Which solver solves which optimal-control problem, from how many of 100 default initial guesses, and in what time?

Method. Ten problems from the literature, which peers/control_problems.py states in full, are solved by the solvers of
`jaxdyn.control` with their default settings from the guesses of `control.guess.mixed`. `Collocation` and `Auto` solve one start
after the other here, the other solvers all starts together. `SingleShooting` leaves out the two largest problems, the arm and the
four-bar linkage: of three guesses it solves none in 3000 iterations. The limits of the iterations are so large that few searches
need more. A search succeeds if the solver reports SUCCESSFUL and an independent check confirms it: the gaps between each state and
the step from the one before, all constraints and all bounds, evaluated again without the lane compiler, must be below 1e-5, and the
cost must be the reported one. A reported solution that fails this check counts as refuted. `Collocation` has its own
discretization, in which controls vary within a step; only its constraints and bounds are checked, at its collocation points, and
its costs are compared with each other only.

CasADi with Ipopt solves six of the problems from the same guesses, by multiple shooting with the same Runge-Kutta steps; its plans
pass the same check. It is optional: a separate environment, whose Python is given as peer_python=DIR/bin/python, after

    python -m venv DIR; DIR/bin/pip install casadi

FDDP and Box-FDDP of Crocoddyl know no constraints of the final state, which all ten problems have; compare_crocoddyl.py compares
them with jaxdyn on a problem without such constraints.

Expected. No success is refuted. `MultipleShooting` solves 95 to 100 % of the searches, iLQR 97 to 100 %, DDP and `Auto` all of
them, `Collocation` 54 % of those of the four-bar linkage and 88 to 100 % of the others, CasADi with Ipopt 99 to 100 % of its six
problems. The best costs are those of the exact optima up to the discretization: 2 s of the double integrator, 4.0034 instead of 4
of Bryson and Denham, 3.2445 s instead of 3.2431 s of Bilimoria and Wie. tables/solver_benchmark.md has all results.

Run time. About 32 minutes, in two processes; `Collocation` and `SingleShooting` take most of it.

    python experiments/solver_benchmark.py [configs/solver_benchmark.toml] [--out DIR] [--smoke] [key=value ...]
"""

import dataclasses
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from peers import control_problems
from peers.control_problems import BENCHMARKS, Benchmark
from tqdm import tqdm

import jaxdyn
from jaxdyn import control
from jaxdyn.control import ControlProblem, Plan, guess
from jaxdyn.io import ConfigError, RunDirectory, seed_setting, setting
from jaxdyn.jobs import Job, main

ALLOWED = 1e-5  # largest gap, violation of a constraint, and relative error of the cost, of a success
INSTALL = "python -m venv DIR; DIR/bin/pip install casadi"
CASADI = ("cart-pole", "quadrotor", "unicycle", "double integrator", "Bryson-Denham", "hanging chain")
ALIKE = 1e-3  # relative difference from the best cost at which a start reached it


@dataclasses.dataclass(frozen=True)
class Method:
    """A solver in the benchmark.

    Attributes:
        name: Name in the tables.
        solver: The solver with its default settings.
        max_steps: Maximum number of iterations.
    """

    name: str
    solver: control.Solver
    max_steps: int


METHODS = (
    Method("MultipleShooting", control.MultipleShooting(), 500),
    Method("iLQR", control.ILQR(second_order=False), 1000),
    Method("DDP", control.ILQR(second_order=True), 1000),
    Method("SingleShooting", control.SingleShooting(), 3000),
    Method("Collocation", control.Collocation(), 1000),
    Method("Auto", control.Auto(), 500),
)


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        problems: Names of the problems.
        methods: Names of the solvers.
        starts: Number of initial guesses.
        steps: Largest number of steps of a problem.
        max_steps: Maximum number of iterations of every solver.
        peer_python: Python of an environment with CasADi; empty for none.
        workers: Number of processes, each of which measures one problem after the other.
        seed: Seed of the initial guesses.
    """

    problems: tuple[str, ...] = tuple(problem.name for problem in BENCHMARKS)
    methods: tuple[str, ...] = tuple(method.name for method in METHODS)
    starts: int = setting(100, positive=True)
    steps: int = setting(1000, positive=True)
    max_steps: int = setting(3000, positive=True)
    peer_python: str = ""
    workers: int = setting(2, positive=True)
    seed: int = seed_setting()


@dataclasses.dataclass
class Row:
    """Results of one solver on one problem.

    Attributes:
        problem, method: Names.
        own: Whether the solver discretizes the problem in another way, so that its costs differ from those of the other solvers.
        results: Name of the `ControlResult` of each start.
        cost, iterations: Cost and number of iterations of each start.
        gaps, violation: Largest gap and largest violation of a constraint or bound of each start, by the independent check.
        success: Whether each start is a success.
        refuted: Number of reported solutions that the check refutes.
        compiling: Processor time (s) of the first call.
        seconds: Processor time (s) of all starts after compilation.
    """

    problem: str
    method: str
    own: bool
    results: list[str]
    cost: np.ndarray
    iterations: np.ndarray
    gaps: np.ndarray
    violation: np.ndarray
    success: np.ndarray
    refuted: int
    compiling: float
    seconds: float

    @property
    def best(self) -> float:
        """Lowest cost of a success; infinity if there is none."""
        return float(np.min(self.cost[self.success], initial=np.inf))

    def reached(self, best: float) -> np.ndarray:
        """Which starts reached a cost."""
        return self.success & (self.cost <= best + ALIKE * abs(best))


def largest(values) -> jax.Array:
    """The largest of all values and zero."""
    return jnp.max(jnp.concatenate([jnp.zeros(1), *(jnp.ravel(value) for value in values)]))


def amounts(constraints, problem: ControlProblem, t, x, u) -> list[jax.Array]:
    """Amounts by which constraints are violated, positive where they are."""
    values = [(c, c.function(problem.dynamics, t, x, u)) for c in constraints]
    return [jnp.abs(value) if isinstance(c, control.Equality) else value for c, value in values]


def on_the_way(problem: ControlProblem, t, x, u) -> jax.Array:
    """The largest violation of a path constraint or of a bound of the controls."""
    return largest([*amounts(problem.constraints, problem, t, x, u), problem.lower - u, u - problem.upper])


def at_the_end(problem: ControlProblem, x, design) -> jax.Array:
    """The largest violation of a final constraint or of a bound of the design parameters."""
    broken = amounts(problem.final_constraints, problem, problem.duration, x, jnp.zeros_like(problem.lower))
    free = problem.design
    return largest(broken if free is None else [*broken, free.lower - design, design - free.upper])


def placed(problem: ControlProblem, plan: Plan) -> ControlProblem:
    """The problem with the design parameters of a plan."""
    return problem if problem.design is None else problem.design.place(problem, plan.design)


def checker(problem: ControlProblem) -> Callable[[Plan], tuple[np.ndarray, ...]]:
    """The independent check: a function of a batch of plans that returns their largest gaps, largest violations and costs."""

    def check(plan: Plan):
        there = placed(problem, plan)
        dynamics, h = there.dynamics, there.duration / there.steps
        before, after = (jax.tree.map(lambda x, s=s: x[s], plan.states) for s in (slice(-1), slice(1, None)))
        end, none = jax.tree.map(lambda x: x[-1], plan.states), jnp.zeros_like(there.lower)

        def at(k, x, u, following):
            t = k * h
            gap = jnp.abs(dynamics.difference(dynamics.step(x, u, t, h), following))
            running = sum((cost(dynamics, t, x, u) for cost in there.running), jnp.zeros(()))
            return gap, on_the_way(there, t, x, u), h * running

        gap, broken, running = jax.vmap(at)(jnp.arange(there.steps) * 1.0, before, plan.controls, after)
        start = dynamics.difference(there.initial, jax.tree.map(lambda x: x[0], plan.states))
        final = sum((cost(dynamics, there.duration, end, none) for cost in there.final), jnp.zeros(()))
        return (
            largest([gap, jnp.abs(start)]),
            largest([broken, at_the_end(there, end, plan.design)]),
            running.sum() + final,
        )

    compiled = jax.jit(jax.vmap(check))
    return lambda plans: tuple(np.asarray(part) for part in compiled(plans))


def collocated_violation(problem: ControlProblem, found: control.CollocatedSolution) -> float:
    """The largest violation at the collocation points of all intervals and at the end."""
    there, count = placed(problem, found.value), problem.steps
    fractions = jnp.arange(count)[:, None] + jnp.asarray(found.points)[None]
    times = (fractions * found.duration / count).ravel()
    states = jax.vmap(found.state)(times)
    controls = found.point_controls.reshape(len(times), -1)
    broken = jax.vmap(lambda t, x, u: on_the_way(there, t, x, u))(times, states, controls)
    end = jax.tree.map(lambda leaf: leaf[-1], found.value.states)
    return float(largest([broken, at_the_end(there, end, found.value.design)]))


def row(benchmark: Benchmark, problem: ControlProblem, method: Method, plans: Plan, check, config: Config) -> Row:
    """The results of one solver on one problem from all starts, with the independent check."""
    limit, count = min(method.max_steps, config.max_steps), config.starts
    solver = method.solver
    plans = jax.tree.map(lambda leaf: leaf[:count], plans)
    singles: list[control.Solution] = []

    def solve(limit: int) -> control.Solution:
        if isinstance(solver, control.IterativeSolver):
            return control.solve_batch(problem, solver, plans, max_steps=limit, throw=False, progress=False)
        first = [jax.tree.map(lambda leaf, k=k: leaf[k], plans) for k in range(count if limit > 1 else 1)]
        singles[:] = [control.solve(problem, solver, plan, max_steps=limit, throw=False) for plan in first]
        names = ("value", "feedback", "multipliers", "cost", "violation", "result", "stats")
        found = [control.Solution(*(getattr(one, name) for name in names)) for one in singles]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *found)

    begin = time.process_time()
    jax.block_until_ready(solve(limit if isinstance(solver, control.Auto) else 1))  # Auto compiles the solvers it needs
    between = time.process_time()
    found = jax.block_until_ready(solve(limit))
    end = time.process_time()
    compiling = between - begin - (end - between if isinstance(solver, control.Auto) else 0.0)
    points = [collocated_violation(problem, one) for one in singles if isinstance(one, control.CollocatedSolution)]
    results = [control.ControlResult(int(code)).name for code in found.result]
    effort = (np.asarray(found.stats.iterations), compiling, end - between)
    return judged(benchmark.name, method.name, results, found.value, np.asarray(found.cost), effort, check, points)


def judged(problem: str, method: str, results: list[str], plans: Plan, reported, effort, check, points=()) -> Row:
    """The row of a solver, after the independent check of its plans.

    Args:
        problem, method, results: See `Row`.
        plans: Plan of each start at the end of the search.
        reported: Costs that the solver reports.
        effort: Iterations of each start, and processor times (s) of the compilation and of all starts.
        check: The function of `checker`.
        points: Largest violation of each start, for a solver with another discretization.
    """
    (gaps, violation, cost), own = check(plans), len(points) > 0
    violation = np.array(points) if own else violation
    solved, holds = np.array(results) == "SUCCESSFUL", violation <= ALLOWED
    if not own:
        holds = holds & (gaps <= ALLOWED) & (np.abs(cost - reported) <= ALLOWED * np.maximum(1.0, np.abs(cost)))
    iterations, compiling, seconds = effort
    success, refuted = solved & holds, int(np.sum(solved & ~holds))
    return Row(
        problem, method, own, results, reported, iterations, gaps, violation, success, refuted, compiling, seconds
    )


def casadi(benchmark: Benchmark, problem: ControlProblem, plans: Plan, check, config: Config, folder: Path) -> Row:
    """The row of CasADi with Ipopt, from the same starts.

    Raises:
        ConfigError: The command fails; the message is the last line of its output.
    """

    def flat(states) -> np.ndarray:
        parts = (states.q, states.v) if isinstance(states, jaxdyn.State) else (states,)
        return np.concatenate([np.asarray(part) for part in parts], axis=-1)

    plans = jax.tree.map(lambda leaf: leaf[: config.starts], plans)
    target: Any = problem.final_constraints[0].function
    free = {} if problem.design is None else {"shortest": problem.design.lower[0], "longest": problem.design.upper[0]}
    guesses, answers = (folder / f"{benchmark.name}.{name}.npz" for name in ("guesses", "casadi"))
    arrays = {
        "states": flat(plans.states),
        "controls": plans.controls,
        "design": plans.design,
        "duration": problem.duration,
        "initial": flat(problem.initial),
        "target": flat(target.target),
        "lower": problem.lower,
        "upper": problem.upper,
    }
    arrays = arrays | control_problems.parameters() | free
    np.savez(guesses, allow_pickle=False, **{key: np.asarray(value) for key, value in arrays.items()})
    script = Path(control_problems.__file__).with_name("casadi_control.py")
    words = [config.peer_python, script, benchmark.name, guesses, answers, min(1000, config.max_steps)]
    try:
        single = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False, env=single)
    except OSError as error:
        raise ConfigError(
            f"CasADi: {config.peer_python}: {error.strerror}; make an environment with: {INSTALL}"
        ) from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ConfigError(f"CasADi: {config.peer_python} says {said!r}; make an environment with: {INSTALL}")
    found = np.load(answers)
    states = jnp.asarray(found["states"])
    if isinstance(problem.initial, jaxdyn.State):
        states = jaxdyn.State(*jnp.split(states, [problem.initial.q.shape[0]], axis=2))
    there = Plan(states, jnp.asarray(found["controls"]), jnp.asarray(found["design"]))
    results = [
        "SUCCESSFUL" if ok else str(status) for ok, status in zip(found["success"], found["status"], strict=True)
    ]
    effort = (found["iterations"], float(found["building"]), float(found["seconds"]))
    name = f"CasADi {found['version']}, Ipopt"
    return judged(benchmark.name, name, results, there, found["cost"], effort, check)


def best_cost(rows: list[Row], problem: str, own: bool) -> float:
    """Lowest cost of all successes in the same discretization."""
    return min((row.best for row in rows if row.problem == problem and row.own == own), default=np.inf)


def table(rows: list[Row]) -> list[str]:
    """Lines of the table in Markdown."""
    heads = ["problem", "solver", "starts", "successes (%)", "best cost", "reached the best (%)", "iterations, median"]
    heads += ["processor time per start (ms)", "compilation (s)", "refuted"]
    lines = [f"| {' | '.join(heads)} |", "|" + len(heads) * "---|"]
    for row in rows:
        count, best = len(row.cost), best_cost(rows, row.problem, row.own)
        found = bool(np.any(row.success))
        cells = [row.problem, row.method, f"{count}", f"{100.0 * np.mean(row.success):.0f}"]
        cells += [f"{row.best:.6g}", f"{100.0 * np.mean(row.reached(best)):.0f}"] if found else ["", "0"]
        cells += [f"{np.median(row.iterations[row.success]):.0f}" if found else ""]
        cells += [f"{1e3 * row.seconds / count:.3g}", f"{row.compiling:.1f}", f"{row.refuted}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def compared_with_exact(rows: list[Row], benchmarks: list[Benchmark]) -> list[str]:
    """Best costs beside the exact optima in continuous time."""
    lines = []
    for benchmark in benchmarks:
        if benchmark.exact is None:
            continue
        costs = [(row.method, row.best) for row in rows if row.problem == benchmark.name and np.isfinite(row.best)]
        found = ", ".join(
            f"{name} {cost:.6g} ({100.0 * (cost / benchmark.exact - 1.0):+.2g} %)" for name, cost in costs
        )
        lines.append(
            f"* {benchmark.name}: optimum in continuous time {benchmark.exact:.6g} ({benchmark.origin}); {found or 'no success'}."
        )
    return lines


def ratios(rows: list[Row], methods: list[str], best: bool) -> dict[str, np.ndarray]:
    """Expected processor time until a success, relative to that of the fastest solver of each problem.

    The expected time is that of all starts over the number of successes; infinity without a success.

    Args:
        rows: Results.
        methods: Names of the solvers.
        best: If true, only starts that reached the best cost count.
    """
    problems = list(dict.fromkeys(row.problem for row in rows))
    times = np.full((len(problems), len(methods)), np.inf)
    for row in rows:
        good = row.reached(best_cost(rows, row.problem, row.own)) if best else row.success
        if np.any(good):
            times[problems.index(row.problem), methods.index(row.method)] = row.seconds / np.sum(good)
    fastest = np.min(times, axis=1, keepdims=True)
    shares = np.where(np.isfinite(times), times / np.where(np.isfinite(fastest), fastest, 1.0), np.inf)
    return dict(zip(methods, shares.T, strict=True))


def draw(directory: RunDirectory, rows: list[Row]) -> None:
    """Performance profiles (Dolan and Moré 2002) for any success and for the best cost."""
    from matplotlib.figure import Figure

    methods = list(dict.fromkeys(row.method for row in rows))
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    for axis, best in zip(figure.subplots(1, 2, sharey=True), (False, True), strict=True):
        for name, ratio in ratios(rows, methods, best).items():
            finite = np.sort(ratio[np.isfinite(ratio)])
            x = np.concatenate([[1.0], finite, [1e3]])
            y = np.concatenate([[0.0], np.arange(1, len(finite) + 1), [len(finite)]]) / len(ratio)
            axis.step(x, y, where="post", label=name)
        axis.set_xscale("log")
        axis.set_xlim(1.0, 1e3)
        axis.set_ylim(0.0, 1.02)
        axis.set_xlabel("time until " + ("the best cost" if best else "a success") + " / that of the fastest solver")
        axis.grid(alpha=0.3)
        if not best:
            axis.set_ylabel("fraction of the problems")
    names = figure.axes[0].get_legend_handles_labels()
    figure.legend(*names, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    figure.savefig(directory.path("profile.png"), dpi=100)


def measured(benchmark: Benchmark, config: Config, folder: Path) -> list[Row]:
    """The results of all solvers on one problem."""
    rows: list[Row] = []
    stored = jaxdyn.cache.directory()
    jaxdyn.cache.set_directory(None)  # the compilation is measured
    try:
        with jax.enable_x64(True):
            problem = benchmark.build(min(benchmark.steps, config.steps))
            plans = guess.mixed(problem, config.starts, seed=config.seed)
            check = checker(problem)
            for method in (selected(METHODS, name, "methods") for name in config.methods):
                if not (isinstance(method.solver, control.SingleShooting) and benchmark.large):
                    rows.append(row(benchmark, problem, method, plans, check, config))
                    write(rows, folder)
            if config.peer_python and benchmark.name in CASADI:
                rows.append(casadi(benchmark, problem, plans, check, config, folder))
                write(rows, folder)
    finally:
        jaxdyn.cache.set_directory(stored)
    return rows


def all_measured(benchmarks: list[Benchmark], config: Config, folder: Path) -> Iterator[list[Row]]:
    """The results of each problem as soon as they are known, by several processes."""
    if config.workers == 1:
        yield from (measured(benchmark, config, folder) for benchmark in benchmarks)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(config.workers, mp_context=context) as pool:
        started = [
            pool.submit(measured, benchmark, config, folder) for benchmark in reversed(benchmarks)
        ]  # longest first
        yield from (future.result() for future in as_completed(started))


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    benchmarks = [selected(BENCHMARKS, name, "problems") for name in config.problems]
    for name in config.methods:
        selected(METHODS, name, "methods")
    if not config.peer_python:
        print(f"CasADi is absent; jaxdyn runs alone. Give peer_python=DIR/bin/python after: {INSTALL}")
    folder = directory.path("measured").parent
    parts: dict[str, list[Row]] = {}
    for part in tqdm(all_measured(benchmarks, config, folder), total=len(benchmarks), unit="problem"):
        parts[part[0].problem] = part
    rows = [row for name in config.problems for row in parts[name]]
    text = "\n".join([*table(rows), "", *compared_with_exact(rows, benchmarks)])
    directory.path("table.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    draw(directory, rows)
    return {
        "refuted": sum(row.refuted for row in rows),
        "rows": [plain(row) for row in rows],
    }


def write(rows: list[Row], folder: Path) -> None:
    """Keep the results of a problem in a file, so that an interrupted run is not lost."""
    (folder / f"{rows[0].problem}.json").write_text(json.dumps([plain(row) for row in rows]), encoding="utf-8")


def plain(row: Row) -> dict[str, Any]:
    """The row as a dictionary that JSON can represent."""
    fields = dataclasses.asdict(row)
    return {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in fields.items()}


def selected(entries, name: str, key: str):
    """The entry of a name.

    Raises:
        ConfigError: There is none.
    """
    for entry in entries:
        if entry.name == name:
            return entry
    raise ConfigError(f"{key}: there is no {name!r}; choose from {', '.join(entry.name for entry in entries)}")


JOB = Job("solver-benchmark", __doc__ or "", Config, work)

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
