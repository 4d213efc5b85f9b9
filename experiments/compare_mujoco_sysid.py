"""How long does one identification take, in jaxdyn and in mujoco.sysid?

Method. Hanging chains of links, whose revolute joints turn alternately about y and x, are driven by torques and recorded:
positions and velocities with noise, in several windows with known starts. Free are the mass and the mass center (x, y, z) of
every link but the first, and the damping and the armature of every joint, all as unconstrained scalars; they start off by up to
`offset`. Both libraries integrate with semi-implicit Euler at the same step, in double precision, and minimize the same sum of
squares; before anything is timed the experiment checks that they simulate the same motion and have the same residuals, entry by
entry.

MuJoCo is used in two ways, with every solver of `solvers`. "as documented": `ModelSequences`, `build_residual_fn` with our
residual as `modify_residual`, `optimize`; it compiles a model per window and perturbed parameter. "by hand": the same `optimize`
with a residual written for speed, which compiles nothing; it writes values into ready models and simulates all windows with all
perturbed parameters in one call of the threaded rollout. Both have as many threads as there are cores. jaxdyn has
`LevenbergMarquardt`, whose derivatives are exact, and simulates on lanes. Times run from the first evaluation until the loss is
within 1 % and 0.01 % of the smallest final loss of all; best of `repeats`, the solvers taking turns. Beside them is the processor
time of all threads, which other work on the machine disturbs less. The compilation time of jaxdyn is reported separately, and
ratios are given with and without it.

Expected. The same parameters from both, and residuals that agree to 1e-12. Ratios of times without compilation, jax 0.10.1 and
mujoco 4.0.0 on two busy cores, to within 0.01 % of the smallest loss, two full runs, the fastest solver:

    joints  parameters  as documented    by hand
    2        8          66 to 99         18 to 35
    3       14          18 to 21         10 to 11
    4       20           5 to 9           3 to 7     (single fits, other numbers of windows)

So jaxdyn is ten times faster up to three joints, and not with four: the cost of its derivatives grows faster than that of finite
differences cost. Compilation takes 11 to 27 s on the same cores, so that with it one fit of this size is slower than MuJoCo's by
factors of 2 to 35; it pays off in long recordings and many starts.

mujoco.sysid is optional: `pip install "mujoco[sysid]>=4"`. Without it the table has the row of jaxdyn alone.

Run time. About 5 min on two busy cores. Leave the machine alone meanwhile.

    python experiments/compare_mujoco_sysid.py [configs/compare_mujoco_sysid.toml] [--out DIR] [--smoke] [key=value ...]
"""

import contextlib
import dataclasses
import functools
import importlib
import importlib.metadata
import io
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

import jaxdyn
from jaxdyn import identify
from jaxdyn.identify.measurement import joint_positions_and_velocities
from jaxdyn.io import ConfigError, RunDirectory, seed_setting, setting
from jaxdyn.jobs import Job, main

Solver = Literal["mujoco", "mujoco, scaled", "scipy", "scipy, scaled"]
SOLVERS: dict[Solver, dict[str, Any]] = {
    "mujoco": {"optimizer": "mujoco"},
    "mujoco, scaled": {"optimizer": "mujoco", "x_scale": "jac"},
    "scipy": {"optimizer": "scipy_parallel_fd"},
    "scipy, scaled": {"optimizer": "scipy_parallel_fd", "x_scale": "jac"},
}
WITHIN = (0.01, 0.0001)
SAME_MOTION = 1e-9  # rad and rad/s
SAME_RESIDUALS = 1e-6  # of the largest one


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        joints: Number of joints of each chain, whose first link is known.
        length: Length of a link.
        mass: Mass of a link.
        damping: Damping of a joint, N m s/rad.
        armature: Armature of a joint, kg m^2.
        torque: Torque amplitude at the first joint; those of the others are proportional to the number of links that they carry.
        windows: Number of windows of motion.
        duration: Duration of a window.
        step: Time step of both simulators.
        noise_position, noise_velocity: Standard deviations of the measurements.
        offset: Maximum initial error of the parameters, as a fraction of their true values; mass centers by that fraction of
            half the length.
        seed: Seed of the motions, the noise and the initial guess.
        solvers: Names of the solvers of mujoco.sysid, "mujoco", "mujoco, scaled", "scipy", "scipy, scaled".
        max_steps: Maximum number of iterations.
        repeats: Number of repetitions of each fit; the fastest counts.
        threads: Number of threads of MuJoCo; 0 for as many as there are cores.
    """

    joints: tuple[int, ...] = setting((2, 3, 4), minimum=2.0)
    length: float = setting(0.3, unit="m", positive=True)
    mass: float = setting(1.0, unit="kg", positive=True)
    damping: float = setting(0.1, positive=True)
    armature: float = setting(0.02, positive=True)
    torque: float = setting(4.0, unit="N m")
    windows: int = setting(32, positive=True)
    duration: float = setting(0.5, unit="s", positive=True)
    step: float = setting(2e-3, unit="s", positive=True)
    noise_position: float = setting(1e-3, unit="rad", positive=True)
    noise_velocity: float = setting(1e-2, unit="rad/s", positive=True)
    offset: float = setting(0.3, positive=True)
    seed: int = seed_setting()
    solvers: tuple[Solver, ...] = ("mujoco", "mujoco, scaled")
    max_steps: int = setting(100, positive=True)
    repeats: int = setting(3, positive=True)
    threads: int = setting(0, minimum=0.0)

    def __post_init__(self):
        if not self.joints:
            raise ValueError("joints: the list is empty; give at least one number of joints")
        if self.offset >= 1:
            raise ValueError("offset: give less than 1, so that all parameters start positive")
        if not self.solvers:
            raise ValueError("solvers: the list is empty; name at least one")

    @property
    def steps(self) -> int:
        return max(1, round(self.duration / self.step))


@dataclasses.dataclass(frozen=True)
class Data:
    """The recordings, as plain arrays.

    Attributes:
        start: True initial states, (windows, 2 joints), coordinates then velocities.
        torque: Torques, constant over each step, (windows, steps, joints).
        readings: Measurements after each step, (windows, steps, 2 joints).
        noise: Standard deviations of the measurements, (2 joints,).
        true, first: True parameters and initial guess, in the order of `parameter_names`.
    """

    start: np.ndarray
    torque: np.ndarray
    readings: np.ndarray
    noise: np.ndarray
    true: np.ndarray
    first: np.ndarray

    @property
    def joints(self) -> int:
        return self.torque.shape[2]


class Reached(NamedTuple):
    """A moment of a fit.

    Attributes:
        time: Wall time since the start of the fit, s.
        processor: Processor time of all threads since the start of the fit, s.
        evaluations: Number of evaluations of the residuals.
        derivatives: Number of evaluations of the Jacobian matrix.
        loss: Smallest loss so far.
    """

    time: float
    processor: float
    evaluations: int
    derivatives: int
    loss: float


@dataclasses.dataclass
class Trace:
    """A fit as it went.

    Attributes:
        moments: Progress at the end of each evaluation.
        final: Fitted parameters.
        compile: Time spent before the fit, s.
    """

    name: str
    moments: list[Reached] = dataclasses.field(default_factory=list)
    final: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))
    compile: float = 0.0
    since: tuple[float, float] = (0.0, 0.0)

    def begin(self) -> None:
        self.since = time.perf_counter(), time.process_time()

    def add(self, derivatives: int, loss: float) -> None:
        seconds, processor = time.perf_counter() - self.since[0], time.process_time() - self.since[1]
        least = min([loss, *(moment.loss for moment in self.moments[-1:])])
        self.moments.append(Reached(seconds, processor, len(self.moments) + 1, derivatives, least))

    @property
    def loss(self) -> float:
        """At the end."""
        return self.moments[-1].loss

    def reached(self, loss: float) -> Reached | None:
        """The first moment when the loss was no more than this; None if it never was."""
        return next((moment for moment in self.moments if moment.loss <= loss), None)


def parameter_names(count: int) -> list[str]:
    """Of a chain with so many joints."""
    links, joints = range(1, count), range(count)
    return [
        *(f"mass {k + 1}" for k in links),
        *(f"com {axis} {k + 1}" for k in links for axis in "xyz"),
        *(f"damping {k + 1}" for k in joints),
        *(f"armature {k + 1}" for k in joints),
    ]


def split(x: np.ndarray, joints: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Mass (joints - 1,), com (joints - 1, 3), damping and armature (joints,) of a vector of parameters."""
    free = joints - 1
    return x[:free], x[free : 4 * free].reshape(free, 3), x[4 * free : 4 * free + joints], x[4 * free + joints :]


def chain_mjcf(config: Config, joints: int, x: np.ndarray) -> str:
    """A chain for MuJoCo."""
    mass, com, damping, armature = split(x, joints)
    mass, com = np.concatenate([[config.mass], mass]), np.concatenate([[[0.0, 0.0, -0.5 * config.length]], com])
    long, thin = config.mass * config.length**2 / 12.0, config.mass * config.length**2 / 120.0
    bodies, ends = "", ""
    for k in range(joints):
        place = "" if k == 0 else f' pos="0 0 {-config.length!r}"'
        axis = "0 1 0" if k % 2 == 0 else "1 0 0"
        bodies += f"""
    <body name="link{k + 1}"{place}>
      <inertial pos="{spaced(com[k])}" mass="{float(mass[k])!r}" diaginertia="{long!r} {long!r} {thin!r}"/>
      <joint name="joint{k + 1}" type="hinge" axis="{axis}" damping="{float(damping[k])!r}" armature="{float(armature[k])!r}"/>"""
        ends += "</body>"
    names = [f"joint{k + 1}" for k in range(joints)]
    motors = "".join(f'<motor name="{name}" joint="{name}"/>' for name in names)
    sensors = "".join(
        f'<joint{kind} name="{kind}_{name}" joint="{name}"/>' for kind in ("pos", "vel") for name in names
    )
    return f"""<mujoco model="chain">
  <option timestep="{config.step!r}" integrator="Euler">
    <flag contact="disable" constraint="disable" eulerdamp="disable" sensor="disable"/>
  </option>
  <worldbody>{bodies}
    {ends}
  </worldbody>
  <actuator>{motors}</actuator>
  <sensor>{sensors}</sensor>
</mujoco>
"""


def spaced(numbers: np.ndarray) -> str:
    return " ".join(repr(float(x)) for x in numbers)


def make_data(mujoco: Any, config: Config, n: int) -> Data:
    """Recordings of a chain with n joints, simulated by MuJoCo."""
    rng = np.random.default_rng(config.seed)
    free = n - 1
    com = np.stack([0.05 * rng.normal(size=free), 0.05 * rng.normal(size=free), np.full(free, -0.5)], axis=1)
    true = np.concatenate(
        [
            config.mass * rng.uniform(0.7, 1.3, free),
            (config.length * com).ravel(),
            config.damping * rng.uniform(0.7, 1.3, n),
            config.armature * rng.uniform(0.7, 1.3, n),
        ]
    )
    sizes = np.concatenate([true[:free], np.full(3 * free, 0.5 * config.length), true[4 * free :]])
    first = true + config.offset * sizes * rng.uniform(-1.0, 1.0, true.size)
    times = config.step * np.arange(config.steps)
    frequency = rng.uniform(0.5, 4.0, (config.windows, 3, 1, n))
    phase = rng.uniform(0.0, 2.0 * np.pi, frequency.shape)
    waves = np.sum(np.sin(2.0 * np.pi * frequency * times[:, None] + phase), axis=1) / 3.0
    torque = config.torque * waves * (1.0 - np.arange(n) / n)
    start = np.concatenate(
        [rng.uniform(-1.0, 1.0, (config.windows, n)), rng.uniform(-2.0, 2.0, (config.windows, n))], axis=1
    )
    noise = np.repeat([config.noise_position, config.noise_velocity], n)
    model = mujoco.MjModel.from_xml_string(chain_mjcf(config, n, true))
    exact = simulated(mujoco, model, start, torque)
    return Data(start, torque, exact + noise * rng.normal(size=exact.shape), noise, true, first)


def full_states(mujoco: Any, model: Any, start: np.ndarray) -> np.ndarray:
    """Starts as MuJoCo's rollout wants them: time, coordinates, velocities, and nothing else in this model."""
    size = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS)
    assert size == 1 + start.shape[1]
    return np.concatenate([np.zeros((len(start), 1)), start], axis=1)


def simulated(mujoco: Any, model: Any, start: np.ndarray, torque: np.ndarray) -> np.ndarray:
    """Coordinates and velocities after each step, (windows, steps, 2 joints)."""
    rollout: Any = importlib.import_module("mujoco.rollout")
    states, _ = rollout.rollout(model, mujoco.MjData(model), full_states(mujoco, model, start), torque)
    return states[:, :, 1:]


class Jaxdyn:
    """The problem in jaxdyn."""

    def __init__(self, path: Path, config: Config, data: Data):
        self.config, self.data = config, data
        system = jaxdyn.io.load_mjcf(path)
        n, steps = data.joints, config.steps
        links = tuple(f"link{k + 1}" for k in range(1, n))
        sensors = identify.Sensors(data.noise, observe=joint_positions_and_velocities)
        free = [
            identify.Parameter("system.model.mass", links),
            identify.Parameter("system.model.com", links),
            identify.Parameter("system.forces.0.viscous"),
            identify.Parameter("system.model.armature"),
        ]
        parameters = identify.Parameters(identify.Plant(system, sensors), free)
        count = len(data.start)

        def knots(values):
            return jaxdyn.Knots(values, config.step, interpolation="zero_order")

        windows = identify.Windows(
            jax.vmap(knots)(jnp.asarray(data.torque)),
            jnp.asarray(np.tile(config.step * np.arange(1, steps + 1), (count, 1))),
            jnp.asarray(data.readings),
            jnp.ones(data.readings.shape),
            jaxdyn.State(jnp.asarray(data.start[:, :n]), jnp.asarray(data.start[:, n:])),
            jnp.zeros(count),
            jnp.zeros(count),
            config.step,
            steps,
        )
        self.problem = identify.OutputError(
            parameters, windows, free_starts=False, integrator=jaxdyn.SemiImplicitEuler()
        )

    def residuals(self, x: np.ndarray) -> np.ndarray:
        """Errors of all readings in standard deviations, (windows, steps, 2 joints)."""
        problem = self.problem
        each = jax.vmap(lambda start, window: problem.residuals(jnp.asarray(x), start, window)[0])
        return np.asarray(eqx.filter_jit(each)(problem.windows.starts, problem.windows))

    @functools.cached_property
    def compiled(self) -> tuple[Callable, Callable, float]:
        """`begin` and `iterate` of `LevenbergMarquardt`, and how long their compilation took, s. As `fit` does, data are inputs."""
        parameters, data = self.problem.parameters, eqx.tree_at(lambda p: p.parameters, self.problem, None)

        def whole(data):
            return eqx.tree_at(lambda p: p.parameters, data, parameters, is_leaf=lambda x: x is None)

        solver = identify.LevenbergMarquardt()
        before = time.perf_counter()
        jitted: Any = eqx.filter_jit(lambda data: solver.begin(whole(data)))
        begin = jitted.lower(data).compile()
        first = begin(data)
        limit = jnp.asarray(1e-10)
        jitted = eqx.filter_jit(lambda data, fit: solver.iterate(whole(data), fit, limit))
        iterate = jitted.lower(data, first).compile()
        jax.block_until_ready(iterate(data, first))
        seconds = time.perf_counter() - before
        return functools.partial(begin, data), functools.partial(iterate, data), seconds

    def fit(self) -> Trace:
        begin, iterate, seconds = self.compiled
        trace = Trace("jaxdyn", compile=seconds)
        trace.begin()
        fit = begin()
        trace.add(1, float(fit.normal.loss))
        while int(fit.result) == identify.FitResult.OUT_OF_STEPS and int(fit.iterations) < self.config.max_steps:
            fit = iterate(fit)
            trace.add(len(trace.moments) + 1, float(fit.normal.loss))
        trace.final = np.asarray(self.problem.parameters.values(fit.unknowns.x))
        return trace


class Sysid:
    """The problem in mujoco.sysid, as its documentation has it."""

    name = "as documented"

    def __init__(self, mujoco: Any, sysid: Any, config: Config, data: Data):
        self.mujoco, self.sysid, self.config, self.data = mujoco, sysid, config, data
        self.threads = config.threads or len(os.sched_getaffinity(0))
        self.spec = mujoco.MjSpec.from_string(chain_mjcf(config, data.joints, data.first))
        self.model = self.spec.compile()
        self.residual = self.make_residual()

    def make_residual(self) -> Callable:
        """The residual function that `optimize` takes."""
        data, sysid, times = self.data, self.sysid, self.config.step * np.arange(self.config.steps + 1)
        starts = full_states(self.mujoco, self.model, data.start)
        # The first reading and the last torque are not used: the start is known, and nothing follows the end.
        controls = [sysid.TimeSeries(times, np.concatenate([u, u[-1:]])) for u in data.torque]
        readings = [
            sysid.TimeSeries.from_names(times, np.concatenate([start[None], y]), self.model)
            for start, y in zip(data.start, data.readings, strict=True)
        ]
        names = [f"window {k}" for k in range(len(starts))]
        sequences = sysid.ModelSequences("chain", self.spec, names, list(starts), controls, readings)

        def errors(parameters, predicted, measured, model, return_all, state, **_):
            return (state[:, 1:] - measured.data[1:]) / data.noise, measured, measured

        return sysid.build_residual_fn(
            models_sequences=[sequences], modify_residual=errors, n_threads=self.threads, resample_true=False
        )

    def parameters(self) -> Any:
        """Free parameters, with bounds that exclude no solution."""
        sysid, n, first = self.sysid, self.data.joints, self.data.first
        found = sysid.ParameterDict()

        def add(name: str, value: float, lowest: float, highest: float, write: Callable) -> None:
            found.add(
                sysid.Parameter(name, value, lowest, highest, modifier=lambda spec, p: write(spec, float(p.value[0])))
            )

        def mass(spec, value, link):
            spec.body(link).mass = value

        def com(spec, value, link, axis):
            spec.body(link).ipos[axis] = value

        def damping(spec, value, joint):
            spec.joint(joint).damping[0] = value

        def armature(spec, value, joint):
            spec.joint(joint).armature = value

        links, joints = range(1, n), range(n)
        writers = [
            *((0.01, 20.0, functools.partial(mass, link=f"link{k + 1}")) for k in links),
            *((-2.0, 2.0, functools.partial(com, link=f"link{k + 1}", axis=i)) for k in links for i in range(3)),
            *((1e-4, 5.0, functools.partial(damping, joint=f"joint{k + 1}")) for k in joints),
            *((1e-4, 1.0, functools.partial(armature, joint=f"joint{k + 1}")) for k in joints),
        ]
        for name, value, (lowest, highest, write) in zip(parameter_names(n), first, writers, strict=True):
            add(name, float(value), lowest, highest, write)
        return found

    def residuals(self, x: np.ndarray) -> np.ndarray:
        """Errors of all readings in standard deviations, (windows, steps, 2 joints)."""
        return np.concatenate(self.residual(x, self.parameters())[0]).reshape(self.data.readings.shape)

    def fit(self, solver: Solver) -> Trace:
        trace = Trace(f"mujoco.sysid {self.name}, {solver}")
        count, derivatives = self.data.first.size, 0

        def watched(x, parameters):
            nonlocal derivatives
            found = self.residual(x, parameters)
            if x.size == count:
                r = np.concatenate(found[0]).ravel()
                trace.add(derivatives, 0.5 * float(r @ r))
            else:
                derivatives += 1
            return found

        parameters = self.parameters()
        trace.begin()
        with contextlib.redirect_stdout(io.StringIO()):  # it reports each iteration
            fitted, _ = self.sysid.optimize(
                parameters, watched, verbose=False, max_iters=self.config.max_steps, **SOLVERS[solver]
            )
        trace.final = fitted.as_vector()
        return trace


class SysidByHand(Sysid):
    """The problem in mujoco.sysid with a residual written for speed."""

    name = "by hand"

    def make_residual(self) -> Callable:
        mujoco, data, n = self.mujoco, self.data, self.data.joints
        windows, steps, width = data.readings.shape
        most = data.first.size
        models = [self.spec.compile() for _ in range(most)]
        scratch = [mujoco.MjData(models[0]) for _ in range(self.threads)]
        pool = importlib.import_module("mujoco.rollout").Rollout(nthread=self.threads)
        starts = np.tile(full_states(mujoco, self.model, data.start), (most, 1))
        torque = np.tile(data.torque, (most, 1, 1))
        states = np.zeros((most * windows, steps, 1 + width))
        sensors = np.zeros((most * windows, steps, self.model.nsensordata))

        def residual(x, parameters):
            columns = x.reshape(most, -1).T
            for model, column in zip(models, columns, strict=False):
                mass, com, damping, armature = split(column, n)
                model.body_mass[2:], model.body_ipos[2:] = mass, com
                model.dof_damping[:], model.dof_armature[:] = damping, armature
                mujoco.mj_setConst(model, scratch[0])
            rows = len(columns) * windows
            pool.rollout(
                [model for model in models[: len(columns)] for _ in range(windows)],
                scratch,
                starts[:rows],
                torque[:rows],
                nstep=steps,
                skip_checks=True,
                state=states[:rows],
                sensordata=sensors[:rows],
            )
            found = (states[:rows, :, 1:].reshape(len(columns), *data.readings.shape) - data.readings) / data.noise
            found = found.reshape(len(columns), -1)
            return [found[0] if x.ndim == 1 else found.T], None, None

        return residual


KINDS = {kind.name: kind for kind in (Sysid, SysidByHand)}


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    mujoco, sysid = find_mujoco(), find_sysid()
    if sysid is None:
        print('mujoco.sysid is not installed; jaxdyn runs alone. Install it with: pip install "mujoco[sysid]>=4"')
    texts, chains = [], []
    with jax.enable_x64(True):
        for joints in config.joints:
            data = make_data(mujoco, config, joints)
            path = directory.path(f"chain_{joints}.xml")
            path.write_text(chain_mjcf(config, joints, data.first), encoding="utf-8")
            ours = Jaxdyn(path, config, data)
            theirs = [] if sysid is None else [kind(mujoco, sysid, config, data) for kind in KINDS.values()]
            agreement = check_agreement(ours, theirs)
            traces, least = measure(ours, theirs, config)
            compared = ratios(traces, least)
            title = f"## {joints} joints, {data.first.size} parameters, {data.readings.size} readings"
            lists = ["\n".join(f"- {line}" for line in lines) for lines in (agreement, compared) if lines]
            texts.append("\n\n".join([title, *lists, table(traces, least), values(traces, data)]))
            print(texts[-1], flush=True)
            chains.append({"joints": joints, "rows": [row(trace, least) for trace in traces], "ratios": compared})
            save(directory, joints, traces, least)
    versions = {name: importlib.metadata.version(name) for name in ("jax", "mujoco")}
    versions["cores"] = str(len(os.sched_getaffinity(0)))
    text = "\n\n".join([", ".join(f"{name} {number}" for name, number in versions.items()), *texts])
    print(", ".join(f"{name} {number}" for name, number in versions.items()))
    directory.path("table.md").write_text(text + "\n", encoding="utf-8")
    return {"versions": versions, "chains": chains}


def find_mujoco() -> Any:
    try:
        return importlib.import_module("mujoco")
    except ImportError:
        raise ConfigError("mujoco is not installed; install it with: pip install mujoco") from None


def find_sysid() -> Any:
    try:
        sysid = importlib.import_module("mujoco.sysid")
    except ImportError:
        return None
    return (
        sysid if hasattr(sysid, "optimize") else None
    )  # without its own dependencies the package is importable but empty


def check_agreement(ours: Jaxdyn, theirs: list[Sysid]) -> list[str]:
    """Both simulate the same motion and have the same residuals, or there is nothing to compare.

    Raises:
        RuntimeError: They differ.
    """
    data, lines = ours.data, []
    for where, x in (("true parameters", data.true), ("start", data.first)):
        wanted = ours.residuals(x)
        largest = np.max(np.abs(wanted))
        for their in theirs:
            off = np.abs(their.residuals(x) - wanted)
            motion, residual = float(np.max(off * data.noise)), float(np.max(off) / largest)
            lines.append(
                f"{where}, mujoco.sysid {their.name}: motion differs by {motion:.1e} rad or rad/s at most, "
                f"residuals by {residual:.1e} of the largest one ({largest:.3g})"
            )
            if motion > SAME_MOTION or residual > SAME_RESIDUALS:
                raise RuntimeError(f"the simulators do not agree: {lines[-1]}")
    return lines


def measure(ours: Jaxdyn, theirs: list[Sysid], config: Config) -> tuple[list[Trace], float]:
    """The fastest of several fits by each solver, jaxdyn first, and the smallest loss of all."""
    fits = [ours.fit, *(functools.partial(their.fit, solver) for their in theirs for solver in config.solvers)]
    rounds = tqdm(range(config.repeats), desc=f"{ours.data.joints} joints", unit="round")
    runs = [[fit() for fit in fits] for _ in rounds]
    least = min(trace.loss for run in runs for trace in run)

    def arrival(trace: Trace) -> float:
        reached = trace.reached((1.0 + WITHIN[-1]) * least)
        return np.inf if reached is None else reached.time

    return [min(same, key=arrival) for same in zip(*runs, strict=True)], least


def row(trace: Trace, least: float) -> dict[str, Any]:
    """Record of a fit."""
    reached = [trace.reached((1.0 + part) * least) for part in WITHIN]
    return {
        "solver": trace.name,
        "compile": trace.compile,
        "reached": [None if moment is None else moment._asdict() for moment in reached],
        "final_loss": trace.loss,
    }


def table(traces: list[Trace], least: float) -> str:
    """The fits in Markdown."""
    heads = ["solver", "compile (s)", "evaluations", "Jacobians", "time per Jacobian (ms)"]
    heads += [f"to {100 * part:g} % (s)" for part in WITHIN] + ["processor (s)", "final loss"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for trace in traces:
        first, last = (trace.reached((1.0 + part) * least) for part in WITHIN)
        to_first = "never" if first is None else f"{first.time:.3f}"
        if last is None:
            counts = ["", "", "", to_first, "never", ""]
        else:
            each = 1e3 * last.time / max(last.derivatives, 1)
            counts = [str(last.evaluations), str(last.derivatives), f"{each:.1f}", to_first, f"{last.time:.3f}"]
            counts.append(f"{last.processor:.3f}")
        lines.append(f"| {trace.name} | {trace.compile:.1f} | {' | '.join(counts)} | {trace.loss:.6g} |")
    return "\n".join(lines)


def ratios(traces: list[Trace], least: float) -> list[str]:
    """How many times faster jaxdyn is than the fastest solver of each kind."""
    lines = []
    own = traces[0]
    kinds = {name: [t for t in traces[1:] if t.name.startswith(f"mujoco.sysid {name}")] for name in KINDS}
    for part in WITHIN:
        mine = own.reached((1.0 + part) * least)
        for kind, fits in kinds.items():
            moments = [moment for fit in fits if (moment := fit.reached((1.0 + part) * least)) is not None]
            if not fits:
                continue
            what = f"to {100 * part:g} %, mujoco.sysid {kind}"
            if mine is None or not moments:
                lines.append(f"{what}: no ratio, one of the two never got there")
                continue
            seconds, processor = min(m.time for m in moments), min(m.processor for m in moments)
            lines.append(
                f"{what}, fastest solver: jaxdyn takes {mine.time:.3f} s instead of {seconds:.3f} s, "
                f"{seconds / mine.time:.1f} times faster ({processor / mine.processor:.1f} in processor time); "
                f"with compilation {seconds / (mine.time + own.compile):.2g} times"
            )
    return lines


def values(traces: list[Trace], data: Data) -> str:
    """Parameters at the ends of the fits in Markdown."""
    lines = [f"| parameter | true | start | {' | '.join(trace.name for trace in traces)} |"]
    lines.append("|---" * (3 + len(traces)) + "|")
    for k, name in enumerate(parameter_names(data.joints)):
        numbers = [data.true[k], data.first[k], *(trace.final[k] for trace in traces)]
        lines.append(f"| {name} | {' | '.join(f'{number:.5g}' for number in numbers)} |")
    return "\n".join(lines)


def save(directory: RunDirectory, joints: int, traces: list[Trace], least: float) -> None:
    """Losses over time, as values and as a picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.8), layout="constrained")
    axis = figure.subplots()
    for k, trace in enumerate(traces):
        times, losses = (np.array([getattr(moment, what) for moment in trace.moments]) for what in ("time", "loss"))
        directory.write_arrays(f"losses_{joints}_{k}", time=times, loss=losses)
        style = "-" if k == 0 else "--" if SysidByHand.name in trace.name else ":"
        above = np.maximum(losses / least - 1.0, 1e-9)
        axis.loglog(times, above, style, marker=".", lw=2.0 if k == 0 else 1.0, label=trace.name)
    for part in WITHIN:
        axis.axhline(part, color="0.7", lw=0.8)
    axis.set_title(f"{joints} joints", loc="left", fontsize=10)
    axis.set_xlabel("time, compilation left out (s)")
    axis.set_ylabel("loss above the smallest one, relative")
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, fontsize=8)
    figure.savefig(directory.path(f"losses_{joints}.png"), dpi=100)


JOB = Job("compare-mujoco-sysid", __doc__ or "", Config, work)

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
