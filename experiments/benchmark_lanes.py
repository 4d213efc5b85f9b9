"""How fast is the lane compiler, against XLA and against other libraries?

Method. Everything is measured in one run on one machine, because ratios mean more than times. Each function is compiled afresh
(caches cleared, JAX itself warm), run once, compared with XLA's result on a few lanes, and then timed: the routes take turns, every
call blocks on its result, and the median counts. The lanes use `threads` threads, XLA all cores; Pinocchio, MuJoCo and the
libraries that use JAX get `threads` cores too. A rate counts evaluations of one sample, or steps of one sample in rollouts; the
slower routes make fewer steps per rollout. The Panda arm is followed by chains of random bodies. The mass matrix is factorized
(method "cholesky") for up to 7 bodies; longer chains go by "articulated_body".

Peers. Pinocchio and MuJoCo are measured if they are installed here (`pip install pin mujoco`, both in double precision). frax, MJX,
JaxSim, Brax and adam need environments of their own, where each has the version of JAX that it runs fastest on; the table says how
to install those that are absent. They are given as peer_environments.frax=DIR/bin/python and so on.

Device. On a GPU, configs/benchmark_lanes_gpu.toml compares forward dynamics and rollouts of a million samples with jit(vmap(f)) and
says which fraction of the limits of arithmetic and memory is reached. There the operations are those of the lane program, for
both routes; a limit that counts a fused multiply-add as two is reached only by a program of nothing else.

    python experiments/benchmark_lanes.py configs/benchmark_lanes_gpu.toml

Expected. The targets at the end of table.md: at least ten times XLA and the peers, derivatives at a small multiple of the
value, and compile times that grow linearly with the number of bodies.

Run time. About 5 min on two cores, and 4 min more with all peers. Leave the machine alone meanwhile.

    python experiments/benchmark_lanes.py [configs/benchmark_lanes.toml] [--out DIR] [--smoke] [key=value ...]
"""

import dataclasses
import functools
import importlib.util
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from peers.peer import JAX_PEERS, MuJoCo, Pinocchio
from tqdm import tqdm

import jaxdyn
from jaxdyn.io import RunDirectory, environment, setting
from jaxdyn.jobs import Job, main

Group = Literal["forward", "derivatives", "rollout", "single", "gradient", "chains", "tensors"]
GROUPS: tuple[Group, ...] = ("forward", "derivatives", "rollout", "single", "gradient", "chains", "tensors")
LARGEST_FACTORIZED = 7
CHECKED_LANES = 64
ROUNDS = 5
PEER_LIMIT = 600  # s
LINEAR = 1.2  # exponent that passes for linear growth
GROWTH = {"operations": "operations", "first_s": "first result", "run_s": "time"}
NATIVE_PEERS = ("pinocchio", "mujoco")
ROUTES = {
    "lanes, jit(vmap)": ("lanes by jit(vmap(f))", "#8fb8de"),
    "xla": ("XLA, all cores", "#6b7280"),
    "pinocchio": ("Pinocchio", "#d9822b"),
    "mujoco": ("MuJoCo", "#b23a48"),
    "frax": ("frax", "#2a9d8f"),
    "mjx": ("MJX", "#8a5a9e"),
    "jaxsim": ("JaxSim", "#c9a227"),
    "brax": ("Brax", "#5b8c3a"),
    "adam": ("adam", "#d46ba3"),
}
INSTALL = {
    "pinocchio": "pip install pin",
    "mujoco": "pip install mujoco",
    "frax": "pip install frax jax==0.6.2 jaxlib==0.6.2",
    "mjx": "pip install mujoco-mjx jax==0.6.2 jaxlib==0.6.2",
    "jaxsim": "pip install jaxsim jax==0.6.2 jaxlib==0.6.2",
    "brax": "pip install brax jax==0.10.2 jaxlib==0.10.2",
    "adam": "pip install adam-robotics[jax] jax==0.6.0 jaxlib==0.6.0",
}


@dataclasses.dataclass(frozen=True)
class PeerEnvironments:
    """Python executables of the environments that hold the peers which use JAX.

    Attributes:
        frax, mjx, jaxsim, brax, adam: path of the executable; the peer is left out without one.
    """

    frax: str | None = None
    mjx: str | None = None
    jaxsim: str | None = None
    brax: str | None = None
    adam: str | None = None


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        groups: what is measured.
        dtypes: precisions of forward dynamics, derivatives and rollouts; the rest is measured in the first one.
        arm_bodies: the arm of all groups but the chains is the Panda if this is 0, else a chain of as many bodies.
        batch: samples of a batch.
        gradient_batch: samples of a batch of rollout gradients.
        dt: length of a step.
        steps: steps of a rollout by lanes, and of a single rollout by every route.
        compared_steps: steps of a rollout by the slower routes; rates are per step.
        gradient_steps: steps of a rollout that is differentiated.
        chains: numbers of bodies of the chains.
        tensor_chain: number of bodies of the chain for mass matrix and Christoffel symbols, besides the arm.
        threads: threads of the lanes and of every peer.
        seconds: least time for the repetitions of each route.
        arithmetic_limit: operations per second of the device; no fraction is given without it.
        memory_limit: bytes per second of the device's memory, likewise.
        peer_environments: where the peers are that use JAX.
    """

    groups: tuple[Group, ...] = setting(GROUPS)
    dtypes: tuple[Literal["float32", "float64"], ...] = setting(("float32", "float64"))
    arm_bodies: int = setting(0, non_negative=True)
    batch: int = setting(4096, positive=True)
    gradient_batch: int = setting(256, positive=True)
    dt: float = setting(1e-3, unit="s", positive=True)
    steps: int = setting(1000, positive=True)
    compared_steps: int = setting(100, positive=True)
    gradient_steps: int = setting(100, positive=True)
    chains: tuple[int, ...] = setting((2, 7, 16, 32, 64), positive=True)
    tensor_chain: int = setting(20, positive=True)
    threads: int = setting(1, positive=True)
    seconds: float = setting(0.5, unit="s", positive=True)
    arithmetic_limit: float | None = setting(None, positive=True)
    memory_limit: float | None = setting(None, positive=True)
    peer_environments: PeerEnvironments = dataclasses.field(default_factory=PeerEnvironments)

    def __post_init__(self):
        if not self.dtypes:
            raise ValueError("dtypes is empty; give float32, float64 or both")


@dataclasses.dataclass(frozen=True)
class Case:
    """A function to be measured by several routes.

    Attributes:
        name: of the function.
        model: the mechanism.
        routes: for each route, make(steps) -> the compiled function of `arguments`, made anew.
        arguments: arrays, the batch first.
        samples: size of the batch.
        steps: steps of one call by lanes; 1 if there are none.
        compared_steps: steps of one call by other routes.
        peers: for each peer in this process, one call of `compared_steps`.
    """

    name: str
    model: jaxdyn.Model
    routes: dict[str, Callable[[int], Any]]
    arguments: tuple[jax.Array, ...]
    samples: int
    steps: int = 1
    compared_steps: int = 1
    peers: dict[str, Callable[[], Any]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Row:
    """What was measured of one function by one route; nan where nothing was.

    Attributes:
        steps: steps of one call; 1 if there are none.
        compile_s: tracing, code generation and XLA's compilation.
        first_s: from the function to the first result.
        run_s: median time of a call.
        difference: largest difference from XLA's result, relative to the largest number of each lane.
        operations: scalar operations of the lane program per evaluation or step.
        bytes: arguments and results per evaluation or step.
        note: versions of a peer, or why the route failed.
    """

    case: str
    mechanism: str
    n: int
    dtype: str
    samples: int
    steps: int
    route: str
    compile_s: float = math.nan
    first_s: float = math.nan
    run_s: float = math.nan
    difference: float = math.nan
    operations: float = math.nan
    bytes: float = math.nan
    note: str = ""

    @property
    def rate(self) -> float:
        """Evaluations or steps of one sample per second."""
        return self.samples * self.steps / self.run_s


@dataclasses.dataclass(frozen=True)
class Target:
    """A number to be reached; its value is nan if it was not measured."""

    text: str
    value: float
    bound: float
    at_least: bool = True

    @property
    def met(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    environments = {name: path for name, path in dataclasses.asdict(config.peer_environments).items() if path}
    # Precision is never switched: JAX 0.10.1 remembers NumPy indices with their type in the mode of their first use.
    with jax.enable_x64("float64" in config.dtypes):
        rows = measure_all(config, environments, directory)
    there = {*filter(at_hand, NATIVE_PEERS), *environments}
    absent = {name: command for name, command in INSTALL.items() if name not in there}
    goals = targets(rows, arm(config, "float32").topology.name)
    table = report(config, rows, goals, absent)
    directory.path("table.md").write_text(table)
    draw_ratios(directory, rows)
    if "chains" in config.groups:
        draw_growth(directory, rows)
    print(table[table.index("## Targets") :])
    failed = [f"{r.case} by {r.route}: {r.note}" for r in rows if math.isnan(r.run_s) and r.route not in JAX_PEERS]
    if failed:
        raise RuntimeError(f"{len(failed)} measurements failed, {directory.root} has the others: {'; '.join(failed)}")
    return {
        "targets": [dataclasses.asdict(goal) | {"met": goal.met} for goal in goals],
        "rows": [dataclasses.asdict(row) | {"rate": row.rate} for row in rows],
        "absent_peers": absent,
        "cores": cores(),
    }


def measure_all(config: Config, environments: dict[str, str], directory: RunDirectory) -> list[Row]:
    jaxdyn.lanes.set_threads(config.threads)
    groups = list(plan(config))
    rows: list[Row] = []
    with tqdm(total=len(groups) + len(environments), unit="group") as bar:
        for make_cases in groups:
            rows += measure(make_cases(), config.seconds)
            bar.update()
        if environments:
            write_peer_inputs(config, directory)
        for name, python in environments.items():
            rows += measure_peer(name, python, config, directory)
            bar.update()
    return rows


# ---------------------------------------------------------------- what is measured


def plan(config: Config) -> Iterator[Callable[[], list[Case]]]:
    """Functions that make groups of cases which take turns."""
    wanted, first = config.groups, config.dtypes[0]
    for group, cases in (("forward", forward_cases), ("rollout", rollout_cases), ("single", single_cases)):
        if group in wanted:
            yield from (functools.partial(cases, config, arm(config, dtype)) for dtype in config.dtypes)
    if "gradient" in wanted:
        yield functools.partial(gradient_cases, config, arm(config, first))
    if "tensors" in wanted:
        yield functools.partial(tensor_cases, config, arm(config, first))
        yield functools.partial(tensor_cases, config, chain(config.tensor_chain, first))
    if "chains" in wanted:
        yield from (functools.partial(value_cases, config, chain(n, first)) for n in config.chains)


def forward_cases(config: Config, model: jaxdyn.Model) -> list[Case]:
    """Forward dynamics of the arm, with Pinocchio beside it, and its derivatives."""
    value, value_vjp = value_cases(config, model)
    if at_hand("pinocchio"):
        peer = Pinocchio(described(model), config.threads)
        arguments = [np.asarray(x, np.float64) for x in value.arguments]
        value = dataclasses.replace(value, peers={"pinocchio": lambda: peer.accelerations(*arguments)})
    if "derivatives" not in config.groups:
        return [value]
    jacobian = jax.jacfwd(forward_dynamics(model), (0, 1))
    derivatives = Case("Jacobian to q and v", model, evaluations(jacobian), value.arguments, config.batch)
    return [value, value_vjp, derivatives]


def value_cases(config: Config, model: jaxdyn.Model) -> list[Case]:
    """Forward dynamics, and its value with one vector-Jacobian product."""
    f = forward_dynamics(model)
    q, v, tau, cotangent = inputs(model, config.batch, model.nv, model.nv, model.nv, model.nv)

    def value_vjp(q, v, tau, cotangent):
        a, pull_back = jax.vjp(f, q, v, tau)
        return a, pull_back(cotangent)

    return [
        Case("forward dynamics", model, evaluations(f), (q, v, tau), config.batch),
        Case("value + vjp", model, evaluations(value_vjp), (q, v, tau, cotangent), config.batch),
    ]


def rollout_cases(config: Config, model: jaxdyn.Model) -> list[Case]:
    """Passive rollouts of a batch."""
    q, v = inputs(model, config.batch, model.nv, model.nv)

    def make(backend, steps):
        return jax.jit(jax.vmap(lambda q, v: last_state(config, model, q, v, None, steps, backend)))

    peers = mujoco_rollout(config, model, q, v, config.compared_steps)
    return [Case("rollout", model, both(make), (q, v), config.batch, config.steps, config.compared_steps, peers)]


def single_cases(config: Config, model: jaxdyn.Model) -> list[Case]:
    """One rollout alone."""
    q, v = inputs(model, 1, model.nv, model.nv)

    def make(backend, steps):
        def last(q, v):
            state = last_state(config, model, q[0], v[0], None, steps, backend)
            return jax.tree.map(lambda x: x[None], state)

        return jax.jit(last)

    peers = mujoco_rollout(config, model, q, v, config.steps)
    return [Case("single rollout", model, both(make), (q, v), 1, config.steps, config.steps, peers)]


def gradient_cases(config: Config, model: jaxdyn.Model) -> list[Case]:
    """A rollout with controls, and its reverse gradient with respect to initial state and controls."""
    steps = config.gradient_steps
    arguments = inputs(model, config.gradient_batch, model.nv, model.nv, (steps, model.nv))

    def loss(backend):
        return lambda q, v, u: jnp.sum(last_state(config, model, q, v, u, steps, backend)[0] ** 2)

    def gradient(backend, _):
        return jaxdyn.batched(jax.value_and_grad(loss(backend), (0, 1, 2)), backend=backend)

    def plain_gradient(_):
        return jax.jit(jax.vmap(jax.value_and_grad(loss("lanes"), (0, 1, 2))))

    def value(backend, _):
        return jaxdyn.batched(loss(backend), backend=backend)

    routes = both(gradient) | {"lanes, jit(vmap)": plain_gradient}
    return [
        Case("rollout with controls", model, both(value), arguments, config.gradient_batch),
        Case("rollout gradient", model, routes, arguments, config.gradient_batch),
    ]


def tensor_cases(config: Config, model: jaxdyn.Model) -> list[Case]:
    """Mass matrix, inverse dynamics, Christoffel symbols and their contraction with velocities."""
    q, v, a = inputs(model, config.batch, model.nv, model.nv, model.nv)
    weightless = dataclasses.replace(model, gravity=jnp.zeros_like(model.gravity))

    def christoffel(q):
        return jaxdyn.christoffel_first_kind(model, q)

    def contraction(q, v):
        return jnp.einsum("abc,a,b->c", christoffel(q), v, v)

    def recursive_contraction(q, v):
        return jaxdyn.bias_force(weightless, q, v)

    functions = {
        "mass matrix": (lambda q: jaxdyn.mass_matrix(model, q), (q,)),
        "inverse dynamics": (lambda q, v, a: jaxdyn.inverse_dynamics(model, q, v, a), (q, v, a)),
        "Christoffel symbols": (christoffel, (q,)),
        "contraction of the symbols": (contraction, (q, v)),
        "contraction by recursion": (recursive_contraction, (q, v)),
    }
    return [Case(name, model, evaluations(f), args, config.batch) for name, (f, args) in functions.items()]


def forward_dynamics(model: jaxdyn.Model) -> Callable:
    method = "cholesky" if model.nv <= LARGEST_FACTORIZED else "articulated_body"
    return lambda q, v, tau: jaxdyn.forward_dynamics(model, q, v, tau, method=method)


def evaluations(function: Callable) -> dict[str, Callable[[int], Any]]:
    """Routes of a function of one sample that makes no steps."""
    return both(lambda backend, _: jaxdyn.batched(function, backend=backend))


def both(make: Callable) -> dict[str, Callable[[int], Any]]:
    """Routes of make(backend, steps)."""
    return {backend: functools.partial(make, backend) for backend in ("lanes", "xla")}


def last_state(config: Config, model: jaxdyn.Model, q, v, controls, steps: int, backend) -> tuple[jax.Array, jax.Array]:
    system, start = jaxdyn.System(model), jaxdyn.State(q, v)
    end = jaxdyn.rollout(system, start, controls, dt=config.dt, steps=steps, save_every=steps, backend=backend).final
    return end.q, end.v


def mujoco_rollout(config: Config, model: jaxdyn.Model, q, v, steps: int) -> dict[str, Callable[[], Any]]:
    if not at_hand("mujoco"):
        return {}
    peer = MuJoCo(described(model), config.dt, config.threads)
    q, v = np.asarray(q, np.float64), np.asarray(v, np.float64)
    return {"mujoco": lambda: peer.rollout(q, v, steps)}


def at_hand(package: str) -> bool:
    """Whether a peer is installed here; none of them is compared with a GPU."""
    return jax.default_backend() == "cpu" and importlib.util.find_spec(package) is not None


def inputs(model: jaxdyn.Model, samples: int, *shapes: int | tuple[int, ...]) -> tuple[jax.Array, ...]:
    """Random arrays in the precision of a model, otherwise the same in all."""
    rng = np.random.default_rng(0)
    return tuple(jnp.asarray(rng.normal(size=(samples, *np.atleast_1d(s))), model.mass.dtype) for s in shapes)


# ---------------------------------------------------------------- mechanisms


def arm(config: Config, dtype: str) -> jaxdyn.Model:
    return chain(config.arm_bodies, dtype) if config.arm_bodies else jaxdyn.as_dtype(jaxdyn.library.panda(), dtype)


def chain(n: int, dtype: str) -> jaxdyn.Model:
    """Open chain of n random cuboids that turn about the z axes of their joint frames."""
    rng = np.random.default_rng(n)
    builder = jaxdyn.MechanismBuilder(f"chain of {n}")
    for i in range(n):
        mass, sides = rng.uniform(0.5, 2.0), rng.uniform(0.1, 0.3, 3)
        axes = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        orientation = rng.normal(size=4)
        builder.add_body(
            f"body{i}",
            parent=f"body{i - 1}" if i else "ground",
            joint=jaxdyn.Revolute((0, 0, 1)),
            position=rng.uniform(-0.2, 0.2, 3),
            orientation=orientation / np.linalg.norm(orientation),
            mass=mass,
            com=rng.uniform(-0.1, 0.1, 3),
            inertia=axes @ np.diag(mass / 12 * (np.sum(sides**2) - sides**2)) @ axes.T,
        )
    return builder.build(dtype)


def described(model: jaxdyn.Model) -> dict[str, Any]:
    """An open chain of revolute joints as the peers read it."""
    numbers = jax.tree.map(lambda x: np.asarray(x, np.float64), model)
    topology = model.topology
    bodies = []
    for i in range(model.nb):
        xx, yy, zz, xy, xz, yz = numbers.inertia[i].tolist()
        bodies.append(
            {
                "name": topology.body_names[i],
                "joint": topology.joint_names[i],
                "parent": topology.parents[i],
                "axis": numbers.joints[0].axis[i].tolist(),
                "quaternion_wxyz": numbers.placement.quaternion[i].tolist(),
                "translation": numbers.placement.translation[i].tolist(),
                "mass": float(numbers.mass[i]),
                "com": numbers.com[i].tolist(),
                "inertia": [[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]],
            }
        )
    return {"name": topology.name, "gravity": numbers.gravity.tolist(), "bodies": bodies}


# ---------------------------------------------------------------- measuring


def measure(cases: Sequence[Case], seconds: float) -> list[Row]:
    """First results of all routes of some cases, then times of all of them in turns."""
    rows: list[Row] = []
    runs: list[Callable[[], Any]] = []
    for case in cases:
        name, n, dtype = case.model.topology.name, case.model.nv, str(case.model.mass.dtype)
        blank = Row(case.name, name, n, dtype, case.samples, case.compared_steps, "")
        done = []
        for route, make in case.routes.items():
            steps = case.steps if route.startswith("lanes") else case.compared_steps
            row = dataclasses.replace(blank, route=route, steps=steps)
            try:
                done.append(first_result(row, case, make))
            except Exception as error:  # the other routes are measured all the same; `work` raises in the end
                rows.append(dataclasses.replace(row, note=f"{type(error).__name__}: {error}"[:300]))
        done += [(dataclasses.replace(blank, route=peer), first_lanes(run()), run) for peer, run in case.peers.items()]
        expected = next((result for row, result, _ in done if row.route == "xla"), None)
        operations = next((row.operations for row, *_ in done if row.operations > 0), math.nan)
        for row, result, run in done:
            if expected is not None:
                row = dataclasses.replace(row, difference=relative_difference(result, expected))
            if row.route == "xla":
                row = dataclasses.replace(row, operations=operations)
            rows.append(row)
            runs.append(run)
    times = iter(times_in_turns(runs, seconds))
    return [row if row.note else dataclasses.replace(row, run_s=next(times)) for row in rows]


def first_result(row: Row, case: Case, make: Callable[[int], Any]) -> tuple[Row, list[np.ndarray], Callable[[], Any]]:
    """The row with compile time and sizes, the first lanes of the result after `compared_steps`, and a call to be timed."""
    jax.clear_caches()
    jax.block_until_ready(jax.jit(jnp.negative)(1.0))
    known = len(jaxdyn.lanes.records())
    begin = time.perf_counter()
    compiled = make(row.steps).lower(*case.arguments).compile()
    compile_s = time.perf_counter() - begin
    result = jax.block_until_ready(compiled(*case.arguments))
    row = dataclasses.replace(
        row,
        compile_s=compile_s,
        first_s=time.perf_counter() - begin,
        operations=sum(record.operations for record in jaxdyn.lanes.records()[known:]) / row.steps,
        bytes=sum(x.nbytes for x in jax.tree.leaves((case.arguments, result))) / (row.samples * row.steps),
    )
    if row.steps != case.compared_steps:
        result = make(case.compared_steps)(*case.arguments)
    return row, first_lanes(result), lambda: jax.block_until_ready(compiled(*case.arguments))


def times_in_turns(runs: Sequence[Callable[[], Any]], seconds: float) -> list[float]:
    """Median time of each call; all take turns, so that a busy moment of the machine meets all of them.

    Short calls begin their turn with one that does not count, for others have used caches and memory in between.
    """
    times: list[list[float]] = [[] for _ in runs]
    for turn in range(ROUNDS):
        for run, taken in zip(runs, times, strict=True):
            if not taken or taken[-1] < seconds / ROUNDS:
                run()
            while len(taken) <= turn or sum(taken) < seconds * (turn + 1) / ROUNDS:
                begin = time.perf_counter()
                run()
                taken.append(time.perf_counter() - begin)
    return [statistics.median(taken) for taken in times]


def first_lanes(result: Any) -> list[np.ndarray]:
    return [np.asarray(x[:CHECKED_LANES], np.float64) for x in jax.tree.leaves(result)]


def relative_difference(actual: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """Largest difference relative to the largest number of each lane."""
    worst = 0.0
    for a, b in zip(actual, expected, strict=True):
        axes = tuple(range(1, b.ndim))
        scale = np.maximum(np.max(np.abs(b), axis=axes), np.finfo(np.float64).tiny)
        worst = max(worst, float(np.max(np.max(np.abs(a - b), axis=axes) / scale)))
    return worst


# ---------------------------------------------------------------- peers in environments of their own


def write_peer_inputs(config: Config, directory: RunDirectory) -> None:
    """The arm, inputs, and the results expected of them, in the finest precision of this run."""
    model = arm(config, max(config.dtypes))
    directory.path("arm.json").write_text(json.dumps(described(model), indent=1))
    q, v, controls = inputs(model, config.batch, model.nv, model.nv, (config.gradient_steps, model.nv))
    few = config.gradient_batch

    def loss(q, v, u):
        return jnp.sum(last_state(config, model, q, v, u, config.gradient_steps, "lanes")[0] ** 2)

    def last(q, v):
        return last_state(config, model, q, v, None, config.compared_steps, "lanes")[0]

    directory.write_arrays(
        "peer_inputs",
        q=q,
        v=v,
        controls=controls[:few],
        last_q=jaxdyn.batched(last)(q, v),
        gradient_controls=jaxdyn.batched(jax.grad(loss, 2))(q[:few], v[:few], controls[:few]),
    )


def measure_peer(name: str, python: str, config: Config, directory: RunDirectory) -> list[Row]:
    """Rollouts and their gradients by a peer in its own environment."""
    script = Path(__file__).parent / "peers" / "peer.py"
    command = [python, "-W", "ignore", script, name, directory.path("arm.json"), directory.path("peer_inputs.npz")]
    command += ["--dt", config.dt, "--steps", config.compared_steps]
    command += ["--threads", config.threads, "--seconds", config.seconds]
    model = arm(config, "float32")
    rollout = Row("rollout", model.topology.name, model.nv, "float32", config.batch, config.compared_steps, name)
    gradient = dataclasses.replace(rollout, case="rollout gradient", samples=config.gradient_batch, steps=1)
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PEER_LIMIT, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        reason = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1]
        return [dataclasses.replace(rollout, note=reason)]
    reports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [dataclasses.replace(row, **found) for row, found in zip((rollout, gradient), reports, strict=True)]


# ---------------------------------------------------------------- targets and report


def targets(rows: Sequence[Row], arm_name: str) -> list[Target]:
    """The numbers to be reached on this device."""

    def row(case: str, route: str = "lanes", dtype: str = "float32", mechanism: str = arm_name) -> Row:
        found = [r for r in rows if (r.case, r.route, r.dtype, r.mechanism) == (case, route, dtype, mechanism)]
        return found[0] if found else Row(case, mechanism, 0, dtype, 0, 0, route)

    def speedup(case: str, route: str, dtype: str = "float32") -> float:
        return row(case, "lanes", dtype).rate / row(case, route, dtype).rate

    def cost(case: str, value: str, route: str = "lanes") -> float:
        return row(case, route).run_s / row(value).run_s

    def fastest_peer(case: str) -> str:
        return max(JAX_PEERS, key=lambda peer: np.nan_to_num(row(case, peer).rate))

    def growth(case: str, what: str) -> float:
        """Exponent of the growth with the number of bodies, by one method."""
        long = [r for r in rows if r.case == case and r.route == "lanes" and r.n > LARGEST_FACTORIZED]
        if len(long) < 2:
            return math.nan
        return float(np.polyfit(np.log([r.n for r in long]), np.log([getattr(r, what) for r in long]), 1)[0])

    value, derivative, gradient = "forward dynamics", "value + vjp", "rollout gradient"
    if jax.default_backend() != "cpu":
        return [
            Target("forward dynamics per second", row(value).rate, 2e9),
            Target("rollout steps per second", row("rollout").rate, 1e9),
        ]
    listed = []
    for dtype, over_pinocchio in (("float32", 15), ("float64", 8)):
        listed += [
            Target(f"forward dynamics, {dtype}: lanes / XLA with all cores", speedup(value, "xla", dtype), 10),
            Target(f"forward dynamics, {dtype}: lanes / Pinocchio", speedup(value, "pinocchio", dtype), over_pinocchio),
            Target(f"rollouts, {dtype}: lanes / MuJoCo", speedup("rollout", "mujoco", dtype), 10),
            Target(f"single rollout, {dtype}: lanes / MuJoCo", speedup("single rollout", "mujoco", dtype), 1),
        ]
    for case, text, bound in (("rollout", "rollouts", 10), (gradient, "rollout gradients", 20)):
        peer = fastest_peer(case)
        listed.append(Target(f"{text}: lanes / fastest JAX peer, {peer}", speedup(case, peer), bound))
    plain = "lanes, jit(vmap)"
    at_most = {
        "value + vjp: time / value": (cost(derivative, value), 2.5),
        "Jacobian: time / value": (cost("Jacobian to q and v", value), 8),
        "rollout gradient: time / value": (cost(gradient, "rollout with controls"), 3),
        "rollout gradient by jit(vmap): time / value": (cost(gradient, "rollout with controls", plain), 3),
        "rollout gradient: first result, s": (row(gradient).first_s, 3),
        "rollout gradient by jit(vmap): first result, s": (row(gradient, plain).first_s, 3),
        "forward dynamics: first result, s": (row(value).first_s, 0.5),
        "value + vjp: first result, s": (row(derivative).first_s, 1.5),
        "forward dynamics, 32 bodies: first result, s": (row(value, mechanism="chain of 32").first_s, 3),
    }
    for case, (what, text) in itertools.product((value, derivative), GROWTH.items()):
        at_most[f"{case}, long chains: exponent of {text}"] = growth(case, what), LINEAR
    return listed + [Target(text, found, bound, at_least=False) for text, (found, bound) in at_most.items()]


def report(config: Config, rows: Sequence[Row], goals: Sequence[Target], absent: dict[str, str]) -> str:
    """The run as a Markdown text."""
    about = environment()
    facts = [f"{key} {about[key]}" for key in ("jaxdyn", "commit", "jax", "jaxlib", "numpy", "python", "platform")]
    limits = {"arithmetic": (config.arithmetic_limit, "operations"), "memory": (config.memory_limit, "bytes")}
    limits = {name: limit for name, limit in limits.items() if limit[0] is not None}

    def cells(row: Row) -> list[str]:
        own = (r for r in rows if (r.case, r.mechanism, r.dtype) == (row.case, row.mechanism, row.dtype))
        lanes = next((r.rate for r in own if r.route == "lanes"), math.nan)
        fractions = [f"{row.rate * getattr(row, size) / limit:.2g}" for limit, size in limits.values()]
        numbers = [row.compile_s, row.first_s, 1e3 * row.run_s, row.rate, lanes / row.rate, row.difference]
        numbers = [*(f"{x:.3g}" for x in numbers), f"{row.operations:.0f}", *fractions]
        return [row.case, row.mechanism, row.dtype, str(row.samples), str(row.steps), row.route, *numbers, row.note]

    head = ["function", "mechanism", "dtype", "batch", "steps", "route", "compile s", "first result s", "run ms"]
    head += ["per s", "lanes / this", "difference", "operations", *limits, "note"]
    verdicts = [
        [g.text, f"{g.value:.3g}", f"{'at least' if g.at_least else 'at most'} {g.bound:g}", verdict(g)] for g in goals
    ]
    missing = [f"* {name}: `{command}`" for name, command in absent.items()]
    return "\n".join(
        [
            "# Lane compiler",
            "",
            f"{about['device']}, {cores()} cores; lanes and peers on {config.threads}, XLA on all. {', '.join(facts)}.",
            "",
            *markdown(head, map(cells, rows)),
            "",
            *(["Peers that are absent, and how to install them:", "", *missing, ""] if missing else []),
            "## Targets",
            "",
            *markdown(["target", "value", "wanted", "met"], verdicts),
            "",
        ]
    )


def verdict(goal: Target) -> str:
    return "not measured" if math.isnan(goal.value) else "yes" if goal.met else "no"


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table; numbers that were not measured are left empty."""
    cells = [["" if cell == "nan" else cell.replace("|", "/").replace("\n", " ") for cell in line] for line in lines]
    return [f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *cells)]


def cores() -> int | None:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def draw_ratios(directory: RunDirectory, rows: Sequence[Row]) -> None:
    """How many times as fast as each other route the lanes are."""
    from matplotlib.figure import Figure

    lanes = {(r.case, r.mechanism, r.dtype): r for r in rows if r.route == "lanes" and r.rate > 0}
    figure = Figure(figsize=(9, 1.5 + 0.42 * len(lanes)), layout="constrained")
    axis = figure.subplots()
    heights = {key: -place for place, key in enumerate(lanes)}
    for route, (label, color) in ROUTES.items():
        others = {(r.case, r.mechanism, r.dtype): r for r in rows if r.route == route and r.rate > 0}
        shown = [key for key in lanes if key in others]
        if shown:
            ratios = [lanes[key].rate / others[key].rate for key in shown]
            axis.scatter(ratios, [heights[key] for key in shown], s=48, color=color, label=label, zorder=3)
    axis.axvline(1.0, color="black", lw=1.0)
    axis.set_xscale("log")
    axis.set_yticks(list(heights.values()), [f"{case}\n{mechanism}, {dtype}" for case, mechanism, dtype in heights])
    axis.tick_params(axis="y", labelsize=8)
    axis.margins(y=0.02)
    axis.set_xlabel("rate of the lanes / rate of the other")
    axis.grid(alpha=0.25, which="both")
    figure.legend(frameon=False, loc="outside upper center", ncols=5)
    figure.savefig(directory.path("ratios.png"), dpi=110)


def draw_growth(directory: RunDirectory, rows: Sequence[Row]) -> None:
    """First result and time of a batch against the number of bodies, for chains."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.5), layout="constrained")
    axes = figure.subplots(1, 2, sharex=True)
    chains = [r for r in rows if r.mechanism.startswith("chain")]
    lengths = sorted({r.n for r in chains if r.case == "forward dynamics"})
    for axis, field, label in zip(axes, ("first_s", "run_s"), ("first result (s)", "time of a batch (s)"), strict=True):
        for (route, color), (case, style) in itertools.product(
            (("lanes", "#1f5fa8"), ("xla", "#6b7280")), (("forward dynamics", "o-"), ("value + vjp", "s--"))
        ):
            points = [(r.n, getattr(r, field)) for r in chains if (r.route, r.case) == (route, case)]
            axis.loglog(*np.array(points).T, style, color=color, label=f"{case}, {route}")
        axis.set_xticks(lengths, [str(n) for n in lengths])
        axis.set_xticks([], minor=True)
        axis.set_xlabel("bodies")
        axis.set_ylabel(label)
        axis.grid(alpha=0.25, which="both")
    axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(directory.path("growth.png"), dpi=110)


JOB = Job("benchmark-lanes", __doc__ or "", Config, work)

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
