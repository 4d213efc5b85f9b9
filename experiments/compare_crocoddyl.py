"""How long does an iteration of trajectory optimization take, in jaxdyn and in Crocoddyl?

Method. The double pendulum of Crocoddyl's example double_pendulum_fwddyn.py is swung up in 1 s by a torque on its first joint:
100 steps of semi-implicit Euler, weights of the example. jaxdyn solves it by iLQR and by DDP, Crocoddyl by FDDP. Before anything is
timed both have to compute the same acceleration and the same cost of the same controls.

In the example Crocoddyl's cost and drive are written in Python, which takes most of its time. Here they are in C++, in a program
that is compiled for the purpose, peers/crocoddyl_double_pendulum.cpp, with exact derivatives as in the example.

Same starts. "as shipped": all states and controls zero, so that the states do not follow from each other; "let go": no torque, and
the states that follow. The batch has random torques and the states that follow. Crocoddyl solves the batch one after the other,
with one thread and with several, each with its own solver; jaxdyn with `solve_batch`.

Same end. Both stop when a full step promises to lower the cost by less than `tolerance`: FDDP when |expected decrease| is below it
and the gaps are closed; jaxdyn when the undamped step promises less than `tolerance / 0.0206` of the cost, that is the same at the
cost that the example reaches and stricter below it. The problem has many optima, and the libraries do not reach the same ones from
the same start, so times are reported per iteration and per solution, and costs beside them.

Repetitions alternate; medians are reported. Processor time, of all threads, is the measure that other work on the machine
disturbs least.

Expected. FDDP as shipped: 54 iterations to 0.02059. The same accelerations and costs to 1e-14. Ratios of times per problem and
iteration, Crocoddyl 3.1.0 divided by jaxdyn, in one run on two idle cores; other work on the machine makes them smaller:

    one problem                           7.7 to 9.6
    1000 starts, Crocoddyl in 1 thread    20 to 24
    1000 starts, Crocoddyl in 2 threads   10 to 12
    1000 starts, processor time           11 to 13

jaxdyn uses both cores. The batch reaches the same best cost, 0.00367357, and the same median, in 92 iterations by FDDP, 109 by DDP
and 120 by iLQR, so that the ratios per solution are smaller: 16 to 17 against one thread, 8 against two. FDDP solves all problems,
DDP 99 % and iLQR 98 % of them. Compilation takes 4 s for a batch.

With torque_limit=2 (N m), Crocoddyl needs Box-FDDP. Of 64 starts, iLQR solves 92 % and DDP 98 % in 300 iterations, Box-FDDP all,
at the same best and median cost; a solution takes Box-FDDP in one thread ten times as long. From the start as shipped, iLQR reaches
the cost 0.00368, DDP 0.0129 and Box-FDDP 0.0500.

The mass centers of the example lie 2e-6 m and 2e-10 m beside the plane through the axes. Leave that out, as a model written by hand
might, and the acceleration at the check point is 350.736 instead of 350.733 rad/s^2.

Crocoddyl is optional: a separate environment, whose Python is given as peer_python=DIR/bin/python, and a C++ compiler.

Run time. About 5 min on two cores. Leave the machine alone meanwhile.

    python experiments/compare_crocoddyl.py [configs/compare_crocoddyl.toml] [--out DIR] [--smoke] [key=value ...]
"""

import dataclasses
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

import jaxdyn
from jaxdyn import control
from jaxdyn.io import ConfigError, RunDirectory, seed_setting, setting
from jaxdyn.jobs import Job, main

INSTALL = (
    "python -m venv DIR; DIR/bin/pip install crocoddyl==3.1.0 pin==3.8.0 libpinocchio==3.8.0 "
    '"cmeel-urdfdom<5" "cmeel-tinyxml2<11" "cmeel-eigen<4" numpy'
)
STEPS, DT = 100, 0.01
START = (3.14, 0.0)  # rad, 0 is upright
CONTROL_WEIGHT, STATE_WEIGHT, FINAL_WEIGHT = 1e-4 / DT, 1e-5 / DT, 100.0
SHIPPED_COST = 0.0206
CHECK = (0.3, -0.2, 1.0, -2.0, 0.5)  # q, v, torque
CHECK_ACCELERATION = (350.7332, -596.2607)
SAME = 1e-9


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        peer_python: Python of an environment with Crocoddyl; empty for none.
        compiler: Command of the C++ compiler, for the program that uses Crocoddyl.
        starts: Number of initial guesses of the batch.
        standard_deviation: Standard deviation of the torques of the initial guesses.
        tolerance: Decrease of the cost below which the iteration ends.
        max_steps: Maximum number of iterations.
        methods: Names of the methods of jaxdyn, "iLQR" and "DDP".
        repeats, batch_repeats: Number of repetitions of single solutions and of batches.
        threads: Number of threads of Crocoddyl in the row with several threads.
        torque_limit: Largest magnitude of the torque, for which Crocoddyl needs Box-FDDP; inf for no limit.
        seed: Seed of the torques.
    """

    peer_python: str = ""
    compiler: str = "g++"
    starts: int = setting(1000, positive=True)
    standard_deviation: float = setting(0.3, unit="N m", positive=True)
    tolerance: float = setting(1e-9, positive=True)
    max_steps: int = setting(300, positive=True)
    methods: tuple[Literal["iLQR", "DDP"], ...] = ("iLQR", "DDP")
    repeats: int = setting(5, positive=True)
    batch_repeats: int = setting(3, positive=True)
    threads: int = setting(2, positive=True)
    torque_limit: float = setting(math.inf, unit="N m", positive=True, infinite=True)
    seed: int = seed_setting()


@dataclasses.dataclass
class Row:
    """A solver on a set of starts.

    Attributes:
        seconds, processor: Wall time and processor time of each repetition.
        iterations, cost, solved: Number of iterations, cost and success of each start.
        compile: Compilation time, s; None where it is not measured separately.
    """

    starts: str
    solver: str
    run: Callable[[], tuple[float, float, np.ndarray, np.ndarray, np.ndarray]]
    compile: float | None = None
    seconds: list[float] = dataclasses.field(default_factory=list)
    processor: list[float] = dataclasses.field(default_factory=list)
    iterations: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    cost: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    solved: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))

    def measure(self) -> None:
        seconds, processor, self.iterations, self.cost, self.solved = self.run()
        self.seconds.append(seconds)
        self.processor.append(processor)

    @property
    def per_iteration(self) -> float:
        """Time per problem and iteration, microseconds."""
        return 1e6 * float(np.median(self.seconds)) / float(np.sum(self.iterations))

    @property
    def processor_per_iteration(self) -> float:
        return 1e6 * float(np.median(self.processor)) / float(np.sum(self.iterations))

    @property
    def per_problem(self) -> float:
        """Milliseconds."""
        return 1e3 * float(np.median(self.seconds)) / len(self.iterations)


def pendulum(torque_limit: float) -> control.ControlProblem:
    """The problem in jaxdyn."""
    system = jaxdyn.library.system("double_pendulum_crocoddyl")

    def away(dynamics, t, x, u):
        """Half the square of the distance from upright and at rest."""
        return 0.5 * (jnp.sum(jnp.sin(x.q) ** 2 + (1.0 - jnp.cos(x.q)) ** 2) + 0.1 * jnp.sum(x.v**2))

    return control.ControlProblem(
        control.MultibodyDynamics(system, jaxdyn.SemiImplicitEuler()),
        jaxdyn.State(jnp.array(START), jnp.zeros(2)),
        duration=STEPS * DT,
        steps=STEPS,
        running=(control.Effort(CONTROL_WEIGHT), lambda *now: STATE_WEIGHT * away(*now)),
        final=lambda *now: FINAL_WEIGHT * away(*now),
        lower=-torque_limit,
        upper=torque_limit,
    )


class Crocoddyl:
    """Crocoddyl's side, a program that runs and answers.

    Raises:
        ConfigError: It cannot be compiled.
    """

    def __init__(self, config: Config, directory: RunDirectory):
        self.directory = directory
        where = "import crocoddyl, pathlib; print(pathlib.Path(crocoddyl.__file__).parents[4], crocoddyl.__version__)"
        prefix, self.version = answer([config.peer_python, "-c", where]).split()
        program, model = directory.path("crocoddyl_double_pendulum"), directory.path("double_pendulum.urdf")
        jaxdyn.io.save_system(jaxdyn.library.system("double_pendulum_crocoddyl"), model)
        # Pinocchio has two coordinates for a joint without limits.
        model.write_text(model.read_text().replace('type="continuous"', 'type="revolute"'))
        source = Path(__file__).parent / "peers" / "crocoddyl_double_pendulum.cpp"
        folders = [f"{prefix}/lib", f"{prefix}/lib64"]
        libraries = ("crocoddyl", "pinocchio_parsers", "pinocchio_default", "boost_filesystem", "boost_serialization")
        begin = time.perf_counter()
        answer(
            [
                *(config.compiler, "-O3", "-DNDEBUG", "-std=c++17", "-w", "-pthread", source, "-o", program),
                *("-DPINOCCHIO_ENABLE_COMPATIBILITY_WITH_VERSION_2", "-DPINOCCHIO_ENABLE_TEMPLATE_INSTANTIATION"),
                *(f"-I{prefix}/include", f"-I{prefix}/include/eigen3", f"-L{folders[0]}"),
                *(f"-Wl,-rpath,{folder},-rpath-link,{folder}" for folder in folders),
                "-Wl,--disable-new-dtags",
                *(f"-l{library}" for library in libraries),
            ]
        )
        self.compile = time.perf_counter() - begin
        self.method = "FDDP" if math.isinf(config.torque_limit) else "Box-FDDP"
        numbers = [*START, STEPS, DT, CONTROL_WEIGHT, STATE_WEIGHT, FINAL_WEIGHT, config.tolerance, config.max_steps]
        numbers += [config.torque_limit]
        self.process = subprocess.Popen(
            [str(program), str(model), *map(str, numbers)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, *words) -> np.ndarray:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(*words, file=self.process.stdin, flush=True)
        return np.array([float(number) for number in self.process.stdout.readline().split()])

    def file(self, name: str, plans: control.Plan) -> Path:
        """Plans, batched, as the program reads them."""
        count = plans.controls.shape[0]
        states = np.concatenate([plans.states.q, plans.states.v], axis=2)
        rows = np.concatenate([plans.controls.reshape(count, -1), states.reshape(count, -1)], axis=1)
        path = self.directory.path(f"{name}.bin")
        path.write_bytes(np.ascontiguousarray(rows, np.float64).tobytes())
        return path

    def solver(self, path: Path, count: int, threads: int):
        def run():
            seconds, processor, *found = self.ask("solve", path, count, threads)
            iterations, cost, solved = np.array(found).reshape(count, 3).T
            return seconds, processor, iterations, cost, solved

        return run

    def end(self) -> None:
        self.process.communicate()


def answer(command: list) -> str:
    """Output of a command.

    Raises:
        ConfigError: The command fails; the message is the last line of its output.
    """
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    except OSError as error:
        raise ConfigError(f"Crocoddyl: {command[0]}: {error.strerror}; make an environment with: {INSTALL}") from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ConfigError(f"Crocoddyl: {command[0]} says {said!r}; make an environment with: {INSTALL}")
    return done.stdout


def single(problem: control.ControlProblem, solver: control.ILQR, plan: control.Plan, limit: int) -> tuple[Any, float]:
    """One solution in jaxdyn, to be run, and the time of its compilation, s."""
    begin = time.perf_counter()
    jitted: Any = eqx.filter_jit(lambda plan: control.solve(problem, solver, plan, max_steps=limit))
    compiled = jitted.lower(plan).compile()
    return (lambda: timed(lambda: compiled(plan))), time.perf_counter() - begin


def batch(problem: control.ControlProblem, solver: control.ILQR, plans: control.Plan, limit: int) -> tuple[Any, float]:
    """The same of many solutions; the time of compilation is by how much the first run takes longer than the second."""

    def run():
        return timed(lambda: control.solve_batch(problem, solver, plans, max_steps=limit, throw=False, progress=False))

    first, second = run(), run()
    return run, max(first[0] - second[0], 0.0)


def timed(solve: Callable[[], control.Solution]) -> tuple[float, float, np.ndarray, np.ndarray, np.ndarray]:
    begin, processor = time.perf_counter(), time.process_time()
    found = jax.block_until_ready(solve())
    seconds, processor = time.perf_counter() - begin, time.process_time() - processor
    iterations, cost, result = (
        np.atleast_1d(np.asarray(x)) for x in (found.stats.iterations, found.cost, found.result)
    )
    return seconds, processor, iterations, cost, result == control.ControlResult.SUCCESSFUL


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    if not config.peer_python:
        print(f"Crocoddyl is absent; jaxdyn runs alone. Give peer_python=DIR/bin/python after: {INSTALL}")
    with jax.enable_x64(True):
        peer = Crocoddyl(config, directory) if config.peer_python else None
        problem = pendulum(config.torque_limit)
        let_go = control.rollout_controls(problem, jnp.zeros((STEPS, 1)))
        torques = config.standard_deviation * np.random.default_rng(config.seed).normal(size=(config.starts, STEPS, 1))
        plans = jax.jit(jax.vmap(lambda u: control.rollout_controls(problem, u)))(jnp.asarray(torques))
        agreement = check_agreement(problem, peer, plans)
        print("\n".join(agreement))
        singles = {"as shipped": jax.tree.map(jnp.zeros_like, let_go), "let go": let_go}
        rows = []
        for method in config.methods:
            name = f"jaxdyn {method}"
            solver = control.ILQR(second_order=method == "DDP", tolerance=config.tolerance / SHIPPED_COST)
            for start, plan in singles.items():
                rows.append(Row(start, name, *single(problem, solver, plan, config.max_steps)))
            rows.append(Row("batch", name, *batch(problem, solver, plans, config.max_steps)))
        if peer is not None:
            name = f"Crocoddyl {peer.version} {peer.method}"
            for start, plan in singles.items():
                path = peer.file(start.replace(" ", "_"), jax.tree.map(lambda leaf: leaf[None], plan))
                rows.append(Row(start, name, peer.solver(path, 1, 1)))
            path = peer.file("batch", plans)
            for threads in sorted({1, config.threads}):
                rows.append(Row("batch", f"{name}, {threads} threads", peer.solver(path, config.starts, threads)))
        for start, repeats in (
            ("as shipped", config.repeats),
            ("let go", config.repeats),
            ("batch", config.batch_repeats),
        ):
            for _ in tqdm(range(repeats), desc=start, unit="round"):
                for row in rows:
                    if row.starts == start:
                        row.measure()
    if peer is not None:
        peer.end()
    compared = ratios(rows)
    text = "\n\n".join([table(rows), "\n".join(f"- {line}" for line in compared)])
    print(text)
    directory.path("table.md").write_text("\n\n".join([*agreement, text]) + "\n", encoding="utf-8")
    directory.write_arrays("costs", **{f"row_{k}": row.cost for k, row in enumerate(rows)})
    draw(directory, rows)
    described = [
        {"starts": row.starts, "solver": row.solver, "compile": row.compile, "seconds": row.seconds}
        | {"processor": row.processor, "iterations": float(np.sum(row.iterations)), "per_iteration": row.per_iteration}
        | {"best_cost": float(np.min(row.cost)), "solved": float(np.mean(row.solved))}
        for row in rows
    ]
    return {"agreement": agreement, "rows": described, "ratios": compared, "cores": len(os.sched_getaffinity(0))}


def check_agreement(problem: control.ControlProblem, peer: Crocoddyl | None, plans: control.Plan) -> list[str]:
    """Both have the same accelerations and costs, or there is nothing to compare.

    Raises:
        RuntimeError: They differ.
    """
    q, v, u = np.array(CHECK[:2]), np.array(CHECK[2:4]), np.array(CHECK[4:])
    state = jaxdyn.State(jnp.asarray(q), jnp.asarray(v))
    mechanics = problem.dynamics
    assert isinstance(mechanics, control.MultibodyDynamics)
    ours = np.asarray(jaxdyn.acceleration(mechanics.system, state, jnp.asarray(u)))
    if np.max(np.abs(ours - CHECK_ACCELERATION)) > 1e-4:
        raise RuntimeError(f"the acceleration at the check point is {ours} instead of {CHECK_ACCELERATION}")
    lines = [f"Acceleration at the check point: {ours[0]:.6f}, {ours[1]:.6f} rad/s^2."]
    if peer is None:
        return lines
    cost = float(cost_of(problem, plans))
    theirs, other = peer.ask("acceleration", *CHECK), float(peer.ask("cost", peer.file("check", plans))[0])
    lines.append(
        f"Crocoddyl's differs by {np.max(np.abs(theirs / ours - 1.0)):.1e} of it, "
        f"its cost of the first random plan, {cost:.9g}, by {abs(other / cost - 1.0):.1e} of it."
    )
    if np.max(np.abs(theirs / ours - 1.0)) > SAME or abs(other / cost - 1.0) > SAME:
        raise RuntimeError(f"the libraries do not agree: {lines[-1]}")
    return lines


def cost_of(problem: control.ControlProblem, plans: control.Plan):
    """Of the first plan."""
    first = jax.tree.map(lambda leaf: leaf[0], plans)
    return control.solve(problem, control.ILQR(), first, max_steps=0, throw=False).cost


def ratios(rows: list[Row]) -> list[str]:
    """How many times faster jaxdyn is."""
    lines = []
    for ours in (row for row in rows if row.solver.startswith("jaxdyn")):
        for theirs in (row for row in rows if row.starts == ours.starts and not row.solver.startswith("jaxdyn")):
            each = theirs.per_iteration / ours.per_iteration
            processor = theirs.processor_per_iteration / ours.processor_per_iteration
            lines.append(
                f"{ours.starts}: {ours.solver} takes {ours.per_iteration:.1f} us per problem and iteration, "
                f"{theirs.solver} {theirs.per_iteration:.1f} us: {each:.2g} times faster "
                f"({processor:.2g} in processor time); per solution {theirs.per_problem / ours.per_problem:.2g} times"
            )
    return lines


def table(rows: list[Row]) -> str:
    """All measurements in Markdown."""
    heads = ["start", "solver", "compile (s)", "iterations", "solved", "cost, median", "cost, best"]
    heads += ["time per problem and iteration (us)", "processor (us)", "time per solution (ms)"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in sorted(rows, key=lambda row: ["as shipped", "let go", "batch"].index(row.starts)):
        compiled = "" if row.compile is None else f"{row.compile:.1f}"
        numbers = [f"{np.median(row.iterations):.0f}", f"{100 * np.mean(row.solved):.1f} %"]
        numbers += [f"{np.median(row.cost):.6g}", f"{np.min(row.cost):.6g}"]
        numbers += [f"{row.per_iteration:.1f}", f"{row.processor_per_iteration:.1f}", f"{row.per_problem:.3g}"]
        lines.append(f"| {row.starts} | {row.solver} | {compiled} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def draw(directory: RunDirectory, rows: list[Row]) -> None:
    """Which costs the solvers reach from the batch of starts."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axis = figure.subplots()
    for row in rows:
        if row.starts == "batch":
            share = np.arange(1, len(row.cost) + 1) / len(row.cost)
            axis.semilogx(np.sort(row.cost), share, label=row.solver)
    axis.set_xlabel("cost")
    axis.set_ylabel("share of the starts that reach it or less")
    axis.grid(alpha=0.3)
    axis.legend(frameon=False)
    figure.savefig(directory.path("costs.png"), dpi=100)


JOB = Job("compare-crocoddyl", __doc__ or "", Config, work)

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
