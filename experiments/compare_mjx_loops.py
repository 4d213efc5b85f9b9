"""What does MuJoCo MJX make of a closed loop and of its derivatives, beside jaxdyn?

Method. A four-bar linkage is written as MJCF, a crank, a coupler and a rocker with an equality `connect` that closes the loop.
MJX steps it; `jaxdyn.io.load_mjcf` reads the same file. Compared are the accelerations at random states that satisfy the loop, at
rest and in motion, how far the loop opens in the course of a motion, and the derivative of a rollout, the sum of the squared angles
at its end with respect to the velocities at its start: in reverse mode, in forward mode, and by central differences of the same
rollout. MJX runs with its own constraints (solref 20 ms) and with stiff ones (solref two steps, solimp near 1), with both solvers
and both kinds of Jacobian, and with a solver of a single iteration, for which it needs no loop of unknown length. Whatever is
raised is put in the table.

Expected. MuJoCo's equality constraints are soft: the loop opens as their constants allow. Its constraint equation G a = ... has no
term for the rate of G, so that accelerations agree at rest, but not in motion. Its Newton and conjugate gradient solvers are
loops of unknown length, which reverse mode of JAX refuses; with a single iteration there is no loop. In jaxdyn constraints are
exact, the loop stays closed to the order of the integrator or, with `jaxdyn.Projected`, to rounding, and reverse mode agrees with
central differences.

MJX is optional: `pip install mujoco-mjx`. Without it the table has the rows of jaxdyn alone.

Run time. A minute without MJX, about 6 min with it, most of which it compiles; two cores.

    python experiments/compare_mjx_loops.py [configs/compare_mjx_loops.toml] [--out DIR] [--smoke] [key=value ...]
"""

import dataclasses
import importlib
import importlib.metadata
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from tqdm import tqdm

import jaxdyn
from jaxdyn.io import ConfigError, RunDirectory, seed_setting, setting
from jaxdyn.jobs import Job, main


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        crank, coupler, rocker: Lengths; initially crank and rocker are upright and the coupler is along x.
        density: Mass of the rods per meter, in kg.
        speed: Speed of the crank at the start.
        step: Time step of all integrators.
        duration: Duration of the motion in which the loop error is measured.
        gradient_steps: Number of steps of the rollout that is differentiated.
        states: Number of random states at which accelerations are compared.
        seed: Seed of these states.
        perturbation: Step of the central differences.
        integrators: Names of the integrators of jaxdyn, "semi-implicit Euler", "Runge-Kutta 4", "projected Runge-Kutta 4".
    """

    crank: float = setting(0.1, unit="m", positive=True)
    coupler: float = setting(0.3, unit="m", positive=True)
    rocker: float = setting(0.25, unit="m", positive=True)
    density: float = setting(1.0, positive=True)
    speed: float = setting(10.0, unit="rad/s")
    step: float = setting(1e-3, unit="s", positive=True)
    duration: float = setting(2.0, unit="s", positive=True)
    gradient_steps: int = setting(200, positive=True)
    states: int = setting(16, positive=True)
    seed: int = seed_setting()
    perturbation: float = setting(1e-5, unit="rad/s", positive=True)
    integrators: tuple[Literal["semi-implicit Euler", "Runge-Kutta 4", "projected Runge-Kutta 4"], ...] = (
        "semi-implicit Euler",
        "Runge-Kutta 4",
        "projected Runge-Kutta 4",
    )

    def __post_init__(self):
        if not self.integrators:
            raise ValueError("integrators: the list is empty; name at least one")


@dataclasses.dataclass(frozen=True)
class Options:
    """How MuJoCo keeps the constraints and solves for them; empty texts leave its defaults."""

    name: str
    solver: str = "Newton"
    jacobian: str = "dense"
    iterations: str = ""
    stiff: bool = False


OPTIONS = (
    Options("Newton, dense"),
    Options("Newton, sparse", jacobian="sparse"),
    Options("CG, dense", solver="CG"),
    Options("CG, sparse", solver="CG", jacobian="sparse"),
    Options("Newton, stiff", stiff=True),
    Options("Newton, 1 iteration", iterations='iterations="1" ls_iterations="1"'),
    Options("Newton, 1 iteration, stiff", iterations='iterations="1" ls_iterations="1"', stiff=True),
)
INTEGRATORS = {
    "semi-implicit Euler": jaxdyn.SemiImplicitEuler(),
    "Runge-Kutta 4": jaxdyn.RungeKutta4(),
    "projected Runge-Kutta 4": jaxdyn.Projected(),
}


@dataclasses.dataclass
class Row:
    """One line of the table; entries that do not apply stay None.

    Attributes:
        at_rest, moving: Largest difference of accelerations from those of jaxdyn, relative to the largest acceleration.
        opening: Largest error of the loop, m.
        reverse, forward: Outcome of a derivative: its error relative to central differences and its times, or the exception.
    """

    library: str
    options: str
    at_rest: float | None = None
    moving: float | None = None
    opening: float | None = None
    reverse: str = ""
    forward: str = ""


def linkage_mjcf(config: Config, options: Options) -> str:
    """The linkage for MuJoCo."""

    def rod(name: str, along: int, length: float) -> str:
        center, moments = np.zeros(3), np.full(3, config.density * length**3 / 12.0)
        center[along], moments[along] = 0.5 * length, 1e-3 * moments[along]  # MuJoCo refuses a rod without thickness
        numbers = f'pos="{spaced(center)}" mass="{config.density * length!r}" diaginertia="{spaced(moments)}"'
        return f'<inertial {numbers}/><joint name="{name}" type="hinge" axis="0 1 0"/>'

    held = f'solref="{2 * config.step!r} 1" solimp="0.9999 0.9999 0.001"' if options.stiff else ""
    how = f'solver="{options.solver}" jacobian="{options.jacobian}" {options.iterations}'
    return f"""<mujoco model="four-bar">
  <option timestep="{config.step!r}" integrator="Euler" {how}>
    <flag contact="disable" eulerdamp="disable"/>
  </option>
  <worldbody>
    <body name="crank">{rod("shaft", 2, config.crank)}
      <body name="coupler" pos="0 0 {config.crank!r}">{rod("crank pin", 0, config.coupler)}</body>
    </body>
    <body name="rocker" pos="{config.coupler!r} 0 {config.crank - config.rocker!r}">{rod("rocker pivot", 2, config.rocker)}</body>
  </worldbody>
  <equality>
    <connect name="rocker pin" body1="coupler" body2="rocker" anchor="{config.coupler!r} 0 0" {held}/>
  </equality>
</mujoco>
"""


def spaced(numbers: np.ndarray) -> str:
    return " ".join(repr(float(x)) for x in numbers)


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    with jax.enable_x64(True):
        path = directory.path("linkage.xml")
        path.write_text(linkage_mjcf(config, OPTIONS[0]), encoding="utf-8")
        try:
            system = jaxdyn.io.load_mjcf(path)
        except ImportError as error:
            raise ConfigError(str(error)) from None
        start = moving_start(system, config)
        states = random_states(system, config)
        rows, openings = [], {}
        for name in tqdm(config.integrators, desc="jaxdyn", unit="integrator"):
            row, opening = measure_jaxdyn(name, INTEGRATORS[name], system, start, config)
            rows.append(row)
            openings[f"jaxdyn, {name}"] = opening
        versions = {name: version(name) for name in ("jax", "mujoco", "mujoco-mjx")}
        mjx = find_mjx()
        if mjx is None:
            print(
                "MuJoCo MJX is not installed; the table has jaxdyn's rows alone. Install it with: pip install mujoco-mjx"
            )
        else:
            for options in tqdm(OPTIONS, desc="MJX", unit="setting"):
                row, opening = measure_mjx(mjx, options, system, start, states, config)
                rows.append(row)
                openings[f"MJX, {options.name}"] = opening
    text = table(rows)
    print(", ".join(f"{name} {number}" for name, number in versions.items()))
    print(text)
    directory.path("table.md").write_text(text + "\n", encoding="utf-8")
    times = config.step * np.arange(1, 1 + len(next(iter(openings.values()))))
    directory.write_arrays("openings", time=times, **{label(name): values for name, values in openings.items()})
    draw(directory, times, openings)
    return {"versions": versions, "rows": [dataclasses.asdict(row) for row in rows]}


def label(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def find_mjx() -> Any:
    try:
        return importlib.import_module("mujoco.mjx")
    except ImportError:
        return None


def moving_start(system: jaxdyn.System, config: Config) -> jaxdyn.State:
    """Closed, the crank turning."""
    q = jnp.zeros(system.model.nq)
    v = minimal_velocity(system, q, jnp.asarray(config.speed))
    return jaxdyn.State(q, v)


def minimal_velocity(system: jaxdyn.System, q: Array, speed: Array) -> Array:
    """Velocities of all joints when the crank turns at a speed."""
    return jaxdyn.constraints.minimal_motion(system, system.at_rest(q), (0,)).basis[:, 0] * speed


def random_states(system: jaxdyn.System, config: Config) -> jaxdyn.State:
    """States that satisfy the loop, at random angles and speeds of the crank."""
    rng = np.random.default_rng(config.seed)
    angles = np.linspace(0.0, rng.uniform(-np.pi, np.pi), 8 * config.states)
    speeds = jnp.asarray(config.speed * rng.normal(size=config.states))

    @jax.jit
    def follow(angles):
        # Along the turn, so that all states belong to one way of putting the linkage together.
        def turn(q, angle):
            guess = q.at[0].set(angle)
            q = jaxdyn.assemble(system, system.at_rest(guess)).q
            return q, q

        return jax.lax.scan(turn, jnp.zeros(system.model.nq), angles)[1]

    q = follow(jnp.asarray(angles))[:: len(angles) // config.states]
    v = jax.jit(jax.vmap(lambda q, speed: minimal_velocity(system, q, speed)))(q, speeds)
    return jaxdyn.State(q, v)


def loop_opening(system: jaxdyn.System, q: Array) -> Array:
    """Distance of the two ends of the loop, m."""
    phi = jaxdyn.constraints.constraint_errors(system, jaxdyn.State(q, jnp.zeros(system.model.nv))).residual
    return jnp.linalg.norm(jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(phi)]))


def derivatives(function: Callable[[Array], Array], v: Array, config: Config) -> tuple[str, str]:
    """Reverse and forward mode of a rollout, beside central differences; or the errors that they raise."""
    run = jax.jit(function)
    h = config.perturbation
    wanted = np.array([(float(run(v + h * e)) - float(run(v - h * e))) / (2.0 * h) for e in jnp.eye(len(v))])
    found = []
    for mode in (jax.grad, jax.jacfwd):
        begin = time.perf_counter()
        try:
            compiled = jax.jit(mode(function)).lower(v).compile()
        except Exception as error:  # any error is the observation
            found.append(f"{type(error).__name__}: {' '.join(str(error).split())}")
            continue
        middle = time.perf_counter()
        value = np.asarray(jax.block_until_ready(compiled(v)))
        end = time.perf_counter()
        error = np.max(np.abs(value - wanted)) / np.max(np.abs(wanted))
        found.append(f"error {error:.0e}; compiled in {middle - begin:.1f} s, ran in {1e3 * (end - middle):.2g} ms")
    return found[0], found[1]


def measure_jaxdyn(
    name: str, integrator: jaxdyn.simulate.Integrator, system: jaxdyn.System, start: jaxdyn.State, config: Config
) -> tuple[Row, np.ndarray]:
    def run(v, steps, save):
        state = jaxdyn.State(start.q, v)
        return jaxdyn.rollout(system, state, dt=config.step, steps=steps, integrator=integrator, save=save)

    watched = jax.jit(lambda v: run(v, watched_steps(config), lambda t, s, u: loop_opening(system, s.q)).saved)
    opening = np.asarray(watched(start.v))[1:]

    def objective(v):
        return jnp.sum(run(v, config.gradient_steps, lambda t, s, u: None).final.q ** 2)

    reverse, forward = derivatives(objective, start.v, config)
    return Row("jaxdyn", name, None, None, float(np.max(opening)), reverse, forward), opening


def measure_mjx(
    mjx: Any,
    options: Options,
    system: jaxdyn.System,
    start: jaxdyn.State,
    states: jaxdyn.State,
    config: Config,
) -> tuple[Row, np.ndarray]:
    mujoco: Any = importlib.import_module("mujoco")
    model = mjx.put_model(mujoco.MjModel.from_xml_string(linkage_mjcf(config, options)))
    rest = mjx.make_data(model)

    def at(q, v):
        return rest.replace(qpos=q, qvel=v)

    def run(v, steps):
        def step(data, _):
            data = mjx.step(model, data)
            return data, data.qpos

        return jax.lax.scan(step, at(start.q, v), None, length=steps)[1]

    theirs = jax.jit(jax.vmap(lambda q, v: mjx.forward(model, at(q, v)).qacc))
    ours = jax.jit(jax.vmap(lambda q, v: jaxdyn.acceleration(system, jaxdyn.State(q, v))))

    def apart(v):
        wanted = np.asarray(ours(states.q, v))
        return float(np.max(np.abs(np.asarray(theirs(states.q, v)) - wanted)) / np.max(np.abs(wanted)))

    at_rest, moving = apart(jnp.zeros_like(states.v)), apart(states.v)
    path = jax.jit(lambda v: run(v, watched_steps(config)))(start.v)
    opening = np.asarray(jax.jit(jax.vmap(lambda q: loop_opening(system, q)))(path))
    reverse, forward = derivatives(lambda v: jnp.sum(run(v, config.gradient_steps)[-1] ** 2), start.v, config)
    return Row("MJX", options.name, at_rest, moving, float(np.max(opening)), reverse, forward), opening


def watched_steps(config: Config) -> int:
    return max(1, round(config.duration / config.step))


def table(rows: list[Row]) -> str:
    """The rows in Markdown."""
    lines = [
        "| library | options | accelerations off at rest | in motion | loop opens (m) | reverse mode | forward mode |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        numbers = ["" if x is None else f"{x:.1e}" for x in (row.at_rest, row.moving, row.opening)]
        texts = [text if len(text) <= 110 else text[:107] + "..." for text in (row.reverse, row.forward)]
        lines.append(f"| {row.library} | {row.options} | {' | '.join(numbers)} | {' | '.join(texts)} |")
    return "\n".join(lines)


def draw(directory: RunDirectory, times: np.ndarray, openings: dict[str, np.ndarray]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.8), layout="constrained")
    axis = figure.subplots()
    for name, values in openings.items():
        axis.semilogy(
            times, np.maximum(values, 1e-18), lw=1.2, ls="-" if name.startswith("jaxdyn") else "--", label=name
        )
    axis.set_xlabel("time (s)")
    axis.set_ylabel("opening of the loop (m)")
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, fontsize=8, ncols=2)
    figure.savefig(directory.path("openings.png"), dpi=100)


JOB = Job("compare-mjx-loops", __doc__ or "", Config, work)

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
