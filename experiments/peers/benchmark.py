"""The common parts of both benchmarks: their settings, and the run from the plan to table and pictures."""

import dataclasses
import datetime
import hashlib
import importlib.util
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
from peers.measuring import OWN, REFERENCE, ROWS, Bench, Row, read_rows
from peers.mechanisms import described, mechanism
from peers.pictures import draw_batches, draw_history, draw_lengths
from peers.report import device, report
from peers.task import DYNAMICS, ROLLOUT, Task
from tqdm import tqdm

from jaxdyn.io import ConfigError, RunDirectory, RunError, environment, setting

JAX_PEERS = ("frax", "mjx", "jaxsim", "brax", "adam")
INSTALL = {
    "pinocchio": "pip install pin cmeel-eigen",
    "mujoco": "pip install mujoco (in jaxdyn's own environment)",
    "frax": "pip install frax jax==0.6.2 jaxlib==0.6.2",
    "mjx": "pip install mujoco-mjx jax==0.6.2 jaxlib==0.6.2",
    "jaxsim": "pip install jaxsim jax==0.6.2 jaxlib==0.6.2",
    "brax": "pip install brax jax==0.10.2 jaxlib==0.10.2",
    "adam": "pip install adam-robotics[jax] jax==0.6.0 jaxlib==0.6.0",
}
"""Each peer with the version of JAX that it is fastest on."""


@dataclasses.dataclass(frozen=True)
class PeerEnvironments:
    """Python executables of the environments that hold the peers.

    Attributes:
        pinocchio, frax, mjx, jaxsim, brax, adam: Path of the executable; the peer is left out without one.
    """

    pinocchio: str | None = None
    frax: str | None = None
    mjx: str | None = None
    jaxsim: str | None = None
    brax: str | None = None
    adam: str | None = None


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of both benchmarks.

    Attributes:
        mechanisms: Names of mechanisms: "chain N" of N random bodies on revolute joints, and "tree 27".
        batches: Batch sizes. All functions of all mechanisms are measured with the first one, then with the next.
        dtypes: Precisions; the first one with all batches, then the next.
        threads: Processor cores of every route.
        seconds: Minimum time for the calls of each route.
        most_time: Maximum time to compile and call once; a task that takes longer is ended.
        most_memory: Maximum memory of a call, in bytes; tasks that need more are not tried.
        arithmetic_limit: Operations per second of the device; without this value no fraction is reported.
        memory_limit: Bytes per second of the memory of the device; without this value no fraction is reported.
        compiler: Command of the C++ compiler, for Pinocchio.
        history: File of JSON lines to which the rates of jaxdyn are appended, with date, commit and processor; a picture of all of
            its rates over the dates is drawn beside it. Record on a machine that has no other work.
        peer_environments: Python of the environment of each peer.
    """

    mechanisms: tuple[str, ...] = ("chain 2", "chain 7", "chain 16", "tree 27", "chain 32", "chain 64")
    batches: tuple[int, ...] = setting((4096, 1, 65536, 64), positive=True)
    dtypes: tuple[Literal["float32", "float64"], ...] = ("float32", "float64")
    threads: int = setting(1, positive=True)
    seconds: float = setting(0.3, unit="s", positive=True)
    most_time: float = setting(30.0, unit="s", positive=True)
    most_memory: float = setting(8e9, positive=True)
    arithmetic_limit: float | None = setting(None, positive=True)
    memory_limit: float | None = setting(None, positive=True)
    compiler: str = "g++"
    history: Path | None = None
    peer_environments: PeerEnvironments = dataclasses.field(default_factory=PeerEnvironments)

    def __post_init__(self):
        known = [f"chain {n}" for n in range(1, 1000)] + ["tree 27"]
        unknown = [name for name in self.mechanisms if name not in known]
        if not (self.mechanisms and self.batches and self.dtypes):
            raise ValueError("mechanisms, batches or dtypes is empty; give at least one of each")
        if unknown:
            raise ValueError(f'there is no mechanism {unknown[0]!r}; give "chain N" with an integer N, or "tree 27"')


def offers(route: str, function: str) -> bool:
    """Whether a route has a function."""
    if route == "mujoco":
        return function == ROLLOUT
    if route == "pinocchio":
        return function in DYNAMICS and function != "Christoffel symbols"
    return function != "Coriolis matrix" or route in OWN


def sources(config: Settings) -> list[tuple[str, Path]]:
    """The code of the benchmarks, which a run that is resumed must have in common with its start."""
    here = Path(__file__).parent
    return [("benchmark source", path) for path in sorted([*here.parent.glob("benchmark*.py"), *here.glob("*.py")])]


def run(config: Settings, directory: RunDirectory, functions: Sequence[str], **of_rollouts: Any) -> dict[str, Any]:
    """Measure all functions, and leave rows.jsonl, table.md and pictures.

    Args:
        of_rollouts: Dt, and most_steps: samples times steps of a call.

    Returns:
        metrics.
    """
    # Several processes share the device.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    about = environment()
    with jax.enable_x64(True):
        descriptions = {name: described(mechanism(name, "float64")) for name in config.mechanisms}
    folder = directory.path(ROWS).parent
    libraries = {}
    concerned = [peer for peer in INSTALL if any(offers(peer, function) for function in functions)]
    if config.peer_environments.pinocchio and "pinocchio" in concerned and about["device_platform"] == "cpu":
        libraries["pinocchio"] = pinocchio_library(config.compiler, config.peer_environments.pinocchio)
    commands = {
        **commands_of(config, about["device_platform"], libraries),
        REFERENCE: [sys.executable, "-W", "ignore"],
    }
    routes = [route for route in commands if route != REFERENCE]
    bench = Bench(
        commands,
        descriptions,
        folder,
        options={route: ["--library", str(path)] for route, path in libraries.items()},
        threads=config.threads,
        seconds=config.seconds,
        most_time=config.most_time,
        most_memory=config.most_memory,
        platform=about["device_platform"],
    )
    limits = {"threads": config.threads, "most_time": config.most_time, "most_memory": config.most_memory}
    conditions = {"device": device(about), "jax": about["jax"], **limits, **of_rollouts}
    bench.take(left(directory, conditions))
    directory.write_text("conditions.json", json.dumps(conditions))
    tasks = list(plan(config, functions, descriptions, **of_rollouts))
    wanted = {task: [route for route in routes if offers(route, task.function)] for task in tasks}
    absent = {name: INSTALL[name] for name in concerned if name not in routes}
    rows: list[Row] = []
    try:
        with tqdm(total=sum(map(len, wanted.values())), unit="row") as bar:
            for task, offering in wanted.items():
                bar.set_description(f"{task.function}, {task.mechanism}, {task.dtype}, {task.batch}")
                bench.measure(task, offering)
                bar.update(len(offering))
    finally:  # also when interrupted: the measured rows can be read
        bench.end()
        rows = [bench.row(task, route) for task, offering in wanted.items() for route in offering]
        table = report(config, about, rows, bench.checks(), absent)
        directory.write_text("table.md", table)
        pictured = "chain 7" if "chain 7" in config.mechanisms else config.mechanisms[0]
        draw_batches(directory.path("batches.png"), rows, functions, pictured, config.dtypes)
        draw_lengths(directory.path("lengths.png"), rows, functions, config.batches, config.dtypes[0])
    if config.history is not None:
        draw_history(config.history.with_suffix(".png"), recorded(config.history, rows, about))
    print(table)
    failed = [row for row in rows if row.route in OWN and row.note.startswith("failed")]
    if failed:
        raise RuntimeError(f"{failed[0].function} of {failed[0].mechanism} by {failed[0].route} {failed[0].note}")
    return {
        "rows": [dataclasses.asdict(row) | {"rate": row.rate} for row in rows],
        "checks": [dataclasses.asdict(row) for row in bench.checks()],
        "absent_peers": absent,
    }


def recorded(path: Path, rows: Sequence[Row], about: dict[str, Any]) -> list[dict[str, Any]]:
    """The rates of all runs in a file, to which those of this run are appended."""
    run = {"date": str(datetime.date.today()), "commit": about["commit"], "device": device(about)}
    lines = [run | {"row": " ".join(map(str, row.key)), "rate": row.rate} for row in rows if row.route in OWN]
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines if not math.isnan(line["rate"]))
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def left(directory: RunDirectory, conditions: dict[str, Any]) -> list[Row]:
    """Rows that an interrupted run left in this directory.

    Args:
        conditions: Settings that must be the same in both.

    Raises:
        RunError: It has not.
    """
    if not directory.path(ROWS).exists():
        return []
    before = json.loads(directory.path("conditions.json").read_text())
    if before != conditions:
        raise RunError(f"{directory.root}: it ran with {before}, this one has {conditions}; begin a new run elsewhere")
    return read_rows(directory.path(ROWS))


def plan(
    config: Settings, functions: Sequence[str], descriptions: dict[str, Any], dt: float = 0.0, most_steps: int = 0
) -> Iterator[Task]:
    """All tasks in the order in which they are measured."""
    for dtype in config.dtypes:
        for batch in config.batches:
            steps = min(100, max(1, most_steps // batch))
            for name in config.mechanisms:
                n = len(descriptions[name]["bodies"])
                yield from (Task(function, name, n, dtype, batch, steps, dt) for function in functions)


def commands_of(config: Settings, platform: str, libraries: dict[str, Path]) -> dict[str, list[str]]:
    """How to start the process of each route that is there; libraries in C and C++ are not compared with a GPU."""
    commands = {route: [sys.executable, "-W", "ignore"] for route in OWN}
    if platform == "cpu" and importlib.util.find_spec("mujoco") is not None:
        commands["mujoco"] = [sys.executable, "-W", "ignore"]
    pythons = dataclasses.asdict(config.peer_environments)
    there = [route for route in (*libraries, *JAX_PEERS) if pythons[route]]
    return commands | {route: [os.path.abspath(pythons[route]), "-W", "ignore"] for route in there}


def pinocchio_library(compiler: str, python: str) -> Path:
    """pinocchio_dynamics.cpp, compiled once for this processor and kept in Pinocchio's environment.

    Raises:
        ConfigError: It cannot be compiled.
    """
    source = Path(__file__).with_name("pinocchio_dynamics.cpp")
    where = "import pinocchio, pathlib; print(pathlib.Path(pinocchio.__file__).parents[4])"
    prefix = answer([python, "-c", where]).strip()
    native = answer([compiler, "-march=native", "-Q", "--help=target"])  # the environment may move to another processor
    name = hashlib.sha256((source.read_text() + native).encode()).hexdigest()[:16]
    library = Path(prefix) / f"jaxdyn_pinocchio_{name}.so"
    if not library.exists():
        print("compiling Pinocchio's loop, once; this takes some minutes")
        options = ["-O3", "-march=native", "-DNDEBUG", "-std=c++17", "-w", "-pthread", "-shared", "-fPIC"]
        unfinished = library.with_suffix(f".{os.getpid()}")
        folders = [f"-I{prefix}/include", f"-I{prefix}/include/eigen3"]
        answer([compiler, *options, *folders, str(source), "-o", str(unfinished)])
        unfinished.replace(library)
    return library


def answer(command: list[str]) -> str:
    """Output of a command.

    Raises:
        ConfigError: The command fails; the message is the last line of its output.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ConfigError(f"Pinocchio: {command[0]}: {error.strerror}; {INSTALL['pinocchio']}") from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ConfigError(f"Pinocchio: {command[0]} says {said!r}; {INSTALL['pinocchio']}")
    return done.stdout
