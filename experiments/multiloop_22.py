"""A mechanism of 22 bodies with several loops: what is it made of, how does it move, and do its loops stay closed?

Method. The tree is that of the 22-body example in theory.md, section (g). Nothing else of it is recorded there: kinds of joints,
lengths, masses and the joints that close loops are ours, in the config, and make a machine like an excavator: a turret on a slide,
a boom with a hydraulic cylinder (11, 12), an arm, a parallel linkage (13), a side arm with a telescope (14 to 18), a slide (19,
20) and geared jaws (21, 22). All is given in ground axes in the position q = 0, where the frames of all bodies are parallel and all
loops are closed.

The incidence matrix is printed, and which entries of the metric and which Christoffel symbols are not zero, counted on the same
tree with random axes. Then the cylinder pushes, against springs and friction in the joints, and two integrators are compared:
Runge-Kutta 4, which stabilizes the loops, and `jaxdyn.Projected`, which closes them exactly.

Expected. 306 of 484 entries of the metric, whatever the joints; 1314 independent symbols if all joints turn, fewer with slides,
sum over turning k of (d_k + P_k + h_k + h_k d_k) as section (g) says. Planar loops repeat three of their equations. Energy gained
is the work put in, to the order of the integrator; the loops stay closed to that order, or to rounding.

Run time. About 3 min on two cores.

    python experiments/multiloop_22.py [configs/multiloop_22.toml] [--out DIR] [--smoke] [key=value ...]
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.spatial.transform import Rotation
from tqdm import tqdm

import jaxdyn
from jaxdyn.io import RunDirectory, seed_setting, setting
from jaxdyn.jobs import Job, main
from jaxdyn.spatial.transform import RigidTransform
from jaxdyn.view.skeleton import place

PARENTS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 11, 6, 7, 14, 15, 16, 17, 9, 19, 20, 20)
METRIC_ENTRIES, SYMBOLS = 306, 1314  # theory.md, section (g)
INTEGRATORS = {
    "semi-implicit Euler": jaxdyn.SemiImplicitEuler(),
    "Runge-Kutta 4": jaxdyn.RungeKutta4(),
    "projected Runge-Kutta 4": jaxdyn.Projected(),
}


@dataclasses.dataclass(frozen=True)
class Body:
    """A body, a cylinder from its joint to its end.

    Attributes:
        name: Name of the body.
        joint: "revolute" or "prismatic".
        axis: Axis of the joint.
        at: Position of the joint.
        end: Position of the other end of the body.
        mass: Mass of the body.
        stiffness: Stiffness of the spring in the joint, in N m/rad or N/m.
        damping: Viscous friction in the joint, in N m s/rad or N s/m.
    """

    name: str
    joint: Literal["revolute", "prismatic"]
    axis: tuple[float, float, float]
    at: tuple[float, float, float] = setting(unit="m")
    end: tuple[float, float, float] = setting(unit="m")
    mass: float = setting(unit="kg", positive=True)
    stiffness: float = setting(0.0, minimum=0.0)
    damping: float = setting(0.0, minimum=0.0)


@dataclasses.dataclass(frozen=True)
class Loop:
    """A joint that closes a loop.

    Attributes:
        name: Name of the loop.
        joint: Kind of the loop joint.
        bodies: Indices of two bodies, from 1 on.
        at: Position of the loop joint.
        axis: Axis of the loop joint.
    """

    name: str
    joint: Literal["revolute", "prismatic", "cylindrical", "universal", "spherical", "planar", "fixed"]
    bodies: tuple[int, int]
    at: tuple[float, float, float] = setting(unit="m")
    axis: tuple[float, float, float] = (0.0, 0.0, 1.0)


@dataclasses.dataclass(frozen=True)
class Gear:
    """The coordinate of one body's joint as a multiple of that of another.

    Attributes:
        name: Name of the gear.
        bodies: Indices of driven and driving body, from 1 on.
        ratio: Ratio of the coordinates.
    """

    name: str
    bodies: tuple[int, int]
    ratio: float


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        bodies: The 22 bodies of the tree, in order.
        loops: Joints that close loops.
        gears: Couplings of two joints.
        cylinder: Index of the body that is pushed.
        force: Amplitude of the push.
        frequency: Frequency of the push.
        radius: Radius of all bodies.
        duration: Simulated time.
        step: Time step of the integrators.
        integrators: Integrators to compare, of "semi-implicit Euler", "Runge-Kutta 4", "projected Runge-Kutta 4".
        seed: Seed of the random axes.
    """

    bodies: tuple[Body, ...]
    loops: tuple[Loop, ...]
    gears: tuple[Gear, ...]
    cylinder: int = setting(12, positive=True)
    force: float = setting(2e4, unit="N")
    frequency: float = setting(0.5, unit="Hz", positive=True)
    radius: float = setting(0.05, unit="m", positive=True)
    duration: float = setting(4.0, unit="s", positive=True)
    step: float = setting(1e-3, unit="s", positive=True)
    integrators: tuple[Literal["semi-implicit Euler", "Runge-Kutta 4", "projected Runge-Kutta 4"], ...] = (
        "Runge-Kutta 4",
        "projected Runge-Kutta 4",
    )
    seed: int = seed_setting()

    def __post_init__(self):
        if not self.integrators:
            raise ValueError("integrators: the list is empty; name at least one")
        if len(self.bodies) != len(PARENTS):
            raise ValueError(f"bodies: there are {len(self.bodies)}; give {len(PARENTS)}, as the tree has")
        numbers = [n for part in (*self.loops, *self.gears) for n in part.bodies] + [self.cylinder]
        for number in numbers:
            if not 1 <= number <= len(PARENTS):
                raise ValueError(f"there is no body {number}; use 1 to {len(PARENTS)}")


# --- the mechanism ---


def machine(config: Config) -> jaxdyn.System:
    """The mechanism with springs, friction, drive and loops."""
    bodies = config.bodies
    origins = np.array([(0.0, 0.0, 0.0), *(body.at for body in bodies)])
    builder = jaxdyn.MechanismBuilder("multiloop 22")
    for number, (body, parent) in enumerate(zip(bodies, PARENTS, strict=True), start=1):
        kind = {"revolute": jaxdyn.Revolute, "prismatic": jaxdyn.Prismatic}[body.joint]
        along = np.array(body.end) - origins[number]
        builder.add_body(
            body.name,
            parent="ground" if parent == 0 else bodies[parent - 1].name,
            joint=kind(unit(body.axis)),
            position=origins[number] - origins[parent],
            mass=body.mass,
            com=0.5 * along,
            inertia=cylinder_inertia(body.mass, along, config.radius),
        )
        if number not in PARENTS:
            builder.add_frame(f"end of {body.name}", body=body.name, position=along)
    model = builder.build()
    stiffness, damping = (np.array([getattr(body, key) for body in bodies]) for key in ("stiffness", "damping"))
    still = np.zeros(model.nv)
    forces = (jaxdyn.JointSpring(stiffness, still), jaxdyn.JointFriction(damping, still, still + 1.0))
    loops = [loop_joint(loop, origins) for loop in config.loops]
    gears = [
        jaxdyn.Coupling(gear.name, gear.bodies[0] - 1, gear.bodies[1] - 1, [0.0, gear.ratio]) for gear in config.gears
    ]
    drives = jaxdyn.JointDrives((config.cylinder - 1,), [1.0])
    return jaxdyn.System(model, forces, drives, constraints=(*loops, *gears))


def unit(axis: tuple[float, float, float]) -> np.ndarray:
    return np.array(axis) / np.linalg.norm(axis)


def cylinder_inertia(mass: float, along: np.ndarray, radius: float) -> np.ndarray:
    """About the mass center, kg m^2."""
    length = np.linalg.norm(along)
    direction = np.outer(along, along) / length**2
    across = mass * (3.0 * radius**2 + length**2) / 12.0
    return across * (np.eye(3) - direction) + 0.5 * mass * radius**2 * direction


def loop_joint(loop: Loop, origins: np.ndarray) -> jaxdyn.LoopJoint:
    """Markers at one place of the position q = 0, so that the loop is closed there."""
    turn = Rotation.align_vectors([unit(loop.axis)], [(0.0, 0.0, 1.0)])[0].as_quat(scalar_first=True)
    first, second = (
        RigidTransform(jnp.asarray(turn), jnp.asarray(np.array(loop.at) - origins[number])) for number in loop.bodies
    )
    return jaxdyn.LoopJoint(loop.name, loop.joint, loop.bodies[0] - 1, first, loop.bodies[1] - 1, second)


# --- structure ---


def incidence_text(topology: jaxdyn.mechanism.Topology) -> str:
    """The incidence matrix eta, a row per body k, 1 where k precedes i."""
    rows = ["".join(f"{i + 1:>3}" for i in range(topology.nb))]
    rows += ["".join("  1" if x else "  ." for x in row) for row in topology.precedes]
    return "\n".join(f"{'' if k == 0 else k:>3} {row}" for k, row in enumerate(rows))


def symbols_by_formula(precedes: np.ndarray, revolute: np.ndarray) -> int:
    """Sum over turning k of d_k + P_k + h_k + h_k d_k; theory.md, section (g)."""
    strictly = precedes & ~np.eye(len(precedes), dtype=bool)
    total = 0
    for k in np.flatnonzero(revolute):
        below = np.flatnonzero(strictly[k])
        pairs = int(np.sum(strictly[np.ix_(below, below)]))
        above = int(np.sum(strictly[:, k]))
        total += len(below) + pairs + above + above * len(below)
    return total


def counted(revolute: np.ndarray, seed: int) -> tuple[int, int]:
    """Entries of the metric and different Christoffel symbols that are not zero, on the tree with random numbers."""
    rng = np.random.default_rng(seed)
    n = len(PARENTS)
    axes = rng.normal(size=(n, 3))
    model = jaxdyn.mechanism.model_from_arrays(
        PARENTS,
        ["revolute" if turns else "prismatic" for turns in revolute],
        axes / np.linalg.norm(axes, axis=1, keepdims=True),
        rng.normal(size=(n, 3)),
        rng.normal(size=(n, 3)),
        rng.uniform(1.0, 2.0, n),
        rng.uniform(1.0, 1.4, (n, 1)) * np.array([(1.0, 1.2, 1.5, 0.05, 0.1, -0.07)]),
    )
    q = jnp.asarray(rng.normal(size=n))
    metric, symbols = map(
        np.asarray, jax.jit(lambda q: (jaxdyn.mass_matrix(model, q), jaxdyn.christoffel_first_kind(model, q)))(q)
    )
    sizes = np.sort(np.abs(symbols[np.triu_indices(n)]).ravel())
    sizes = sizes[sizes > 1e-10 * sizes[-1]]
    # Equal ones, by (G10) and (G11), agree to rounding; different ones do not come that near.
    different = 1 + int(np.sum(np.diff(sizes) > 1e-9 * sizes[1:]))
    return int(np.sum(np.abs(metric) > 1e-10 * np.max(np.abs(metric)))), different


# --- motion ---


def simulate(system: jaxdyn.System, integrator: jaxdyn.simulate.Integrator, config: Config) -> dict[str, np.ndarray]:
    """From rest at q = 0; the cylinder pushes and pulls."""
    pace = 2.0 * np.pi * config.frequency

    def push(t, state, key):
        return config.force * jnp.sin(pace * t)[None]

    def record(t, state, u):
        errors = jaxdyn.constraints.constraint_errors(system, state)
        residual, rate = (largest(x) for x in errors)
        return {
            "q": state.q,
            "v": state.v,
            "residual": residual,
            "rate": rate,
            "energy": jaxdyn.total_energy(system, state),
        }

    @jax.jit
    def run(state):
        return jaxdyn.rollout(
            system,
            state,
            push,
            dt=config.step,
            steps=max(1, round(config.duration / config.step)),
            integrator=integrator,
            save=record,
            cost=jaxdyn.simulate.work_of_step(system),
        )

    done = run(jaxdyn.neutral_state(system))
    arrays = {"time": done.time, **done.saved, "work": done.cost, "result": done.result}
    return {name: np.asarray(x) for name, x in arrays.items()}


def largest(tree: Any) -> Array:
    return jnp.max(jnp.abs(jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(tree)])))


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    with jax.enable_x64(True):
        system = machine(config)
        start = jaxdyn.neutral_state(system)
        topology = system.model.topology
        revolute = np.array([body.joint == "revolute" for body in config.bodies])
        mobility = jaxdyn.constraints.describe_mobility(system, start)
        found = {
            "all joints turn": (np.ones_like(revolute), METRIC_ENTRIES, SYMBOLS),
            "joints of the config": (revolute, METRIC_ENTRIES, symbols_by_formula(topology.precedes, revolute)),
        }
        counts = {name: counted(kinds, config.seed) for name, (kinds, *_) in found.items()}
        motions = {
            name: simulate(system, INTEGRATORS[name], config) for name in tqdm(config.integrators, unit="integrator")
        }
        draw_machine(directory, system, motions)
    print("Incidence matrix\n" + incidence_text(topology))
    print(mobility)
    expected = {name: tuple(numbers) for name, (_, *numbers) in found.items()}
    slots = topology.nv**2, topology.nv**2 * (topology.nv + 1) // 2
    for name, (entries, symbols) in counts.items():
        print(
            f"{name}: {entries} of {slots[0]} entries of the metric are not zero, {symbols} independent symbols of {slots[1]} "
            f"slots; theory.md: {expected[name][0]} and {expected[name][1]}"
        )
    rows = {name: summary(motion) for name, motion in motions.items()}
    print(table(rows))
    directory.write_mechanism(system)
    for name, motion in motions.items():
        directory.write_arrays(name.replace(" ", "_").replace("-", "_"), **motion)
    last = motions[config.integrators[-1]]
    directory.write_arrays("states", time=last["time"], q=last["q"][None], v=last["v"][None])
    draw_motion(directory, motions)
    return {
        "counts": {name: list(numbers) for name, numbers in counts.items()},
        "as_in_theory": counts == expected,
        "mobility": mobility.splitlines()[0],
        "integrators": rows,
    }


def summary(motion: dict[str, np.ndarray]) -> dict[str, float | str]:
    return {
        "result": jaxdyn.simulate.RolloutResult(int(motion["result"])).message,
        "residual": float(np.max(motion["residual"])),
        "rate": float(np.max(motion["rate"])),
        "work": float(motion["work"]),
        "power_balance_error": float(jaxdyn.simulate.power_balance_error(motion["energy"], motion["work"])),
    }


def table(rows: dict[str, dict[str, float | str]]) -> str:
    lines = [
        "| integrator | residual of the loops (m, 1) | its rate | work put in (J) | power balance off by (J) | |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        numbers = f"{row['residual']:.1e} | {row['rate']:.1e} | {row['work']:.1f} | {row['power_balance_error']:.1e}"
        lines.append(f"| {name} | {numbers} | {row['result']} |")
    return "\n".join(lines)


# --- pictures ---


def draw_machine(directory: RunDirectory, system: jaxdyn.System, motions: dict[str, dict[str, np.ndarray]]) -> None:
    from matplotlib.figure import Figure

    motion = list(motions.values())[-1]
    jaxdyn.view.save(jaxdyn.view.mechanism_picture(system, motion["q"][0]), directory.path("mechanism.png"))
    chosen = np.linspace(0, len(motion["time"]) - 1, 5).round().astype(int)[:4]
    placed = place(system, motion["time"][chosen], motion["q"][None, chosen])
    figure = Figure(figsize=(11.5, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.7, 1.0))
    colors = ("#1f5fa8", "#cbd5e1", "#d9822b", "#94a3b8")
    for lines, origins, color, time in zip(
        placed.lines[0], placed.origins[0], colors, motion["time"][chosen], strict=True
    ):
        # From body to body, broken by points that are not finite, in the plane x, z.
        points = np.concatenate([lines[:, :, ::2], np.full((len(lines), 1, 2), np.nan)], axis=1).reshape(-1, 2)
        left.plot(*points.T, color=color, lw=2.4, solid_capstyle="round", label=f"t = {time:g} s")
        left.plot(*origins[:, ::2].T, "o", color="white", mec=color, ms=4)
    left.set_aspect("equal")
    left.set_xlabel("x (m)")
    left.set_ylabel("z (m)")
    left.legend(frameon=False, fontsize=8)
    for (name, motion), color in zip(motions.items(), ("#d9822b", "#1f5fa8", "#1b8a6b"), strict=False):
        right.semilogy(motion["time"], np.maximum(motion["residual"], 1e-18), color=color, lw=1, label=name)
    right.set_xlabel("time (s)")
    right.set_ylabel("residual of the loops (m, 1)")
    right.legend(frameon=False, fontsize=8)
    for axis in (left, right):
        axis.grid(alpha=0.25)
    figure.suptitle(f"{system.model.nb} bodies, {len(system.constraints)} constraints")
    figure.savefig(directory.path("machine.png"), dpi=90)


def draw_motion(directory: RunDirectory, motions: dict[str, dict[str, np.ndarray]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6.5), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True)
    last = list(motions.values())[-1]
    colors = ("#d9822b", "#1f5fa8", "#1b8a6b")
    for number, color in zip((3, 4, 12), colors, strict=True):
        axes[0, 0].plot(last["time"], last["q"][:, number - 1], color=color, label=f"joint {number}")
    axes[0, 0].set_ylabel("coordinate (rad, m)")
    axes[0, 1].plot(last["time"], last["energy"] - last["energy"][0], color="#1f5fa8")
    axes[0, 1].set_ylabel("energy gained (J)")
    for (name, motion), color in zip(motions.items(), colors, strict=False):
        axes[1, 0].semilogy(motion["time"], np.maximum(motion["residual"], 1e-18), color=color, label=name)
        axes[1, 1].semilogy(motion["time"], np.maximum(motion["rate"], 1e-18), color=color, label=name)
    axes[1, 0].set_ylabel("residual of the loops (m, 1)")
    axes[1, 1].set_ylabel("its rate (m/s, rad/s)")
    for axis in axes.ravel():
        axis.grid(alpha=0.25)
    for axis in axes[1]:
        axis.set_xlabel("time (s)")
    for axis in (axes[0, 0], axes[1, 0]):
        axis.legend(frameon=False, fontsize=8)
    figure.savefig(directory.path("motion.png"), dpi=100)


JOB = Job("multiloop-22", __doc__ or "", Config, work)

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
