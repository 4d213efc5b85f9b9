"""The five basic problems of the IFToMM library of multibody benchmarks: how exact and how fast are their motions?

Method. Each problem is stated with bodies and joints; cut joints close the loops. A rollout is compared with an independent
reference: A01 a pendulum, by a fine integration of its equation; A02 four-bar linkages in a row, which pass through singular
positions and remain parallelograms with one degree of freedom; A03 Andrews' squeezer, by the published solution of the IVP test set
(Mazzia and Magherini 2008); A04 Bricard's mechanism with a redundant equation, by its energy; A05 a stiff flyball governor, by the
implicit midpoint rule at a tenth of the step. Processor times are those of one simulation, after compilation and with it.

Expected. Errors below 1e-5; the default integrator, which is of first order, is 1.3 cm off in the swings of the governor at 1 ms.
Each second of a motion takes a few milliseconds. OpenSim 3.2 needed 0.2 to 0.7 s for these motions on an Intel i5-4570
(rehabenggroup.github.io/MBSbenchmarksInOpenSim), with two windows in A02; the official size is 40 windows.

Run time. About 10 min on two cores; most of it is the compilation of 40 windows. `windows=[2]` leaves them out.

    python experiments/iftomm_benchmark.py [configs/iftomm_benchmark.toml] [--out DIR] [--smoke] [key=value ...]
"""

import dataclasses
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp
from tqdm import tqdm

import jaxdyn
from jaxdyn import LinkageBuilder, MechanismBuilder, Projected, Revolute, State, System
from jaxdyn.io import RunDirectory, setting
from jaxdyn.jobs import Job, main

G = 9.81
DOWN = (0.0, -G, 0.0)
Z = Revolute((0, 0, 1))
# Andrews' squeezer at 0.03 s: angles of the bodies K1 to K7, rad (IVP test set).
SQUEEZED = {
    "K1": 15.81077119629904,
    "K2": -15.75637105984298,
    "K3": 0.04082224013073101,
    "K4": -0.5347301163226948,
    "K5": 0.5244099658805304,
    "K6": 0.5347301163226948,
    "K7": 1.048080741042263,
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        duration: Duration of all motions but A03, which takes 0.03 s.
        windows: Numbers of four-bar linkages in A02.
    """

    duration: float = setting(10.0, unit="s", positive=True)
    windows: tuple[int, ...] = setting((2, 40), positive=True)


class Problem(NamedTuple):
    """A motion and its reference.

    Attributes:
        name: Name of the problem, with its size.
        system: The machine.
        start: Its initial state.
        dt: Time step, s.
        duration: Duration, s.
        error: Function of the times and states of the motion.
        unit: Unit of the error.
        published_s: Time that OpenSim 3.2 needed for 10 s (A03: 0.05 s) of the motion; None for another size.
        u: Constant controls.
        integrator: Integrator of the rollout.
    """

    name: str
    system: System
    start: State
    dt: float
    duration: float
    error: Callable[[np.ndarray, State], float]
    unit: str
    published_s: float | None = None
    u: tuple[float, ...] | None = None
    integrator: jaxdyn.simulate.Integrator = Projected()


def by_equation(slope: Callable, start: list[float], times: np.ndarray) -> np.ndarray:
    """First component of the solution of an ordinary differential equation."""
    return solve_ivp(slope, times[[0, -1]], start, "DOP853", times, rtol=1e-13, atol=1e-13).y[0]


def pendulum(duration: float) -> Problem:
    builder = MechanismBuilder("A01", gravity=DOWN)
    builder.add_body("bob", joint=Z, mass=1.0, com=(1.0, 0, 0))
    system = System(builder.build())

    def error(times, states):
        angle = by_equation(lambda t, x: [x[1], -G * np.cos(x[0])], [np.pi, 0.0], times)
        return np.abs(np.asarray(states.q)[:, 0] - angle).max()

    return Problem("A01", system, system.at_rest(jnp.array([np.pi])), 0.01, duration, error, "rad", 0.637)


def windows(count: int, duration: float) -> Problem:
    builder = LinkageBuilder("A02", gravity=DOWN)
    rod = {"mass": 1.0, "com": (0.5, 0, 0), "inertia": (0.0, 1 / 12, 1 / 12)}
    for k in range(count + 1):
        builder.add_body(f"upright {k}", **rod)
        builder.add_joint(f"foot {k}", Z, "ground", f"upright {k}", position_a=(k, 0, 0))
    for k in range(count):
        builder.add_body(f"bar {k}", **rod)
        builder.add_joint(f"left {k}", Z, f"upright {k}", f"bar {k}", position_a=(1, 0, 0))
        ends = {"position_a": (1, 0, 0), "position_b": (1, 0, 0)}
        builder.add_joint(f"right {k}", Z, f"bar {k}", f"upright {k + 1}", **ends)
    system = builder.build(cut=[f"right {k}" for k in range(count)])
    names = system.model.topology.body_names
    sign = jnp.array([1.0 if name.startswith("upright") else -1.0 for name in names])
    inertia, moment = (count + 1) / 3 + count, G * ((count + 1) / 2 + count)

    def error(times, states):
        angle = by_equation(lambda t, x: [x[1], -moment * np.cos(x[0]) / inertia], [np.pi / 2, -1.0], times)
        return np.abs(np.asarray(states.q)[:, names.index("upright 0")] - angle).max()

    start = State(sign * np.pi / 2, -sign)
    return Problem(f"A02, {count} windows", system, start, 0.01, duration, error, "rad", 0.455 if count == 2 else None)


def squeezer() -> Problem:
    builder = LinkageBuilder("A03", gravity=(0, 0, 0))
    bodies = {  # mass (kg), inertia (kg m^2), center of mass (m), angle at the start (rad)
        "K1": (0.04325, 2.194e-6, (0.00092, 0), -0.0617138900142764496),
        "K2": (0.00365, 4.410e-7, (-0.0115, 0), 0.0),
        "K3": (0.02373, 5.255e-6, (0.01043, -0.01874), 0.455279819163070380),
        "K4": (0.00706, 5.667e-7, (0, -(0.02 - 0.01421)), 0.222668390165885885),
        "K5": (0.07050, 1.169e-5, (0.02308, 0.00916), 0.487364979543842550),
        "K6": (0.00706, 5.667e-7, (0.02 - 0.01421, 0), -0.222668390165885885),
        "K7": (0.05498, 1.912e-5, (-0.00449, -0.01228), 1.230547444549821192),
    }
    for name, (mass, inertia, com, _) in bodies.items():
        builder.add_body(name, mass=mass, com=(*com, 0), inertia=(inertia / 2, inertia / 2, inertia))
    a, b = (-0.06934, -0.00227, 0), (-0.03635, 0.03273, 0)
    for name, first, second, at in (
        ("O", "ground", "K1", (0, 0, 0)),
        ("F", "K1", "K2", (0.007, 0, 0)),
        ("B", "ground", "K3", b),
        ("A left", "ground", "K5", a),
        ("G", "K5", "K4", (0.04, 0, 0)),
        ("A right", "ground", "K7", a),
        ("H", "K7", "K6", (0, -0.04, 0)),
    ):
        builder.add_joint(name, Z, first, second, position_a=at)
    ends = {"K3": (0, -0.035, 0), "K4": (0, -0.02, 0), "K6": (0.02, 0, 0)}
    for body, at in ends.items():
        builder.add_joint(f"E {body}", Z, "K2", body, position_a=(-0.028, 0, 0), position_b=at)
    linkage = builder.build(cut=[f"E {body}" for body in ends])
    model, names = linkage.model, linkage.model.topology.body_names
    spring = jaxdyn.Spring(
        *model.locate("ground", (0.014, 0.072, 0)), *model.locate("K3", (0.02, -0.018, 0)), 4530.0, 0.07785
    )
    drives = jaxdyn.JointDrives((model.topology.v_starts[names.index("K1")],), jnp.ones(1))
    system = dataclasses.replace(linkage, forces=(spring,), drives=drives)

    def error(times, states):
        return np.abs(np.asarray(states.q)[-1] - [SQUEEZED[name] for name in names]).max()

    start = system.at_rest(jnp.array([bodies[name][3] for name in names]))
    return Problem("A03", system, start, 3e-5, 0.03, error, "rad", 0.384, (0.033,))


def bricard(duration: float) -> Problem:
    builder = LinkageBuilder("A04", gravity=DOWN)
    corners = np.array([(0, 0, 0), (1, 0, 0), (1, -1, 0), (1, -1, 1), (0, -1, 1), (0, 0, 1)], float)
    axes = [(0, -1, 0), (0, 0, 1), (1, 0, 0), (0, -1, 0), (0, 0, 1), (1, 0, 0)]
    for k, along in enumerate(np.diff(corners, axis=0)):
        across = (1 + 0.1**2) / 12  # a square section of 0.1 m
        inertia = across + (0.1**2 / 6 - across) * np.abs(along)
        builder.add_body(f"rod {k}", mass=1.0, com=along / 2, inertia=inertia)
        before = "ground" if k == 0 else f"rod {k - 1}"
        at = (0, 0, 0) if k == 0 else corners[k] - corners[k - 1]
        builder.add_joint(f"joint {k}", Revolute(axes[k]), before, f"rod {k}", position_a=at)
    at = {"position_a": corners[5] - corners[4], "position_b": corners[5]}
    builder.add_joint("joint 5", Revolute(axes[5]), "rod 4", "ground", **at)
    system = builder.build()

    def error(times, states):
        energies = jax.vmap(lambda state: jaxdyn.total_energy(system, state))(states)
        return float(np.ptp(np.asarray(energies)))

    return Problem("A04", system, system.at_rest(jnp.zeros(system.model.nq)), 0.01, duration, error, "J", 0.258)


def governor(integrator: jaxdyn.simulate.Integrator, duration: float) -> Problem:
    builder, rod, ball, block = MechanismBuilder("A05"), 3000.0 * 0.01**2, 5.0, 3000.0 * 0.1**3
    across, along, middle = rod * (1 + 0.01**2) / 12, rod * 0.01**2 / 6, (0.5 * rod + ball) / (rod + ball)
    builder.add_body("shaft", joint=Z, mass=rod, com=(0, 0, 0.5), inertia=(across, across, along))
    slide = jaxdyn.Prismatic((0, 0, 1))
    builder.add_body(
        "slider", parent="shaft", joint=slide, mass=block, com=(0, 0, 0), inertia=3 * (block * 0.1**2 / 6,)
    )
    arm = across + rod * (0.5 - middle) ** 2 + ball * (1 - middle) ** 2
    for side in (1, -1):
        hinge = {"joint": Revolute((0, -1, 0)), "position": (0.05 * side, 0, 1.0)}
        inertia = (arm, arm, along)
        builder.add_body(f"arm {side}", parent="shaft", **hinge, mass=rod + ball, com=(0, 0, middle), inertia=inertia)
    model, forces = builder.build(), []
    for side in (1, -1):
        ends = *model.locate("slider", (0.05 * side, 0, 0)), *model.locate(f"arm {side}", (0, 0, 0.5))
        forces += [jaxdyn.Spring(*ends, 8e5, 0.5), jaxdyn.Damper(*ends, 4e4)]
    system = System(model, tuple(forces))
    start = State(jnp.array([0, 0.5, -2 * np.pi / 3, 2 * np.pi / 3]), jnp.array([2 * np.pi, 0, 0, 0]))

    def error(times, states):
        options = {"steps": 10 * (len(times) - 1), "save_every": 10, "integrator": jaxdyn.ImplicitMidpoint()}
        exact = jaxdyn.rollout(system, start, dt=times[1] / 10, **options).saved
        return float(np.abs(np.asarray(states.q - exact.q)[:, 1]).max())

    name = f"A05, {type(integrator).__name__}"
    return Problem(name, system, start, 1e-3, duration, error, "m", 0.233, integrator=integrator)


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    with jax.enable_x64(True):
        problems = [
            pendulum(config.duration),
            *(windows(count, config.duration) for count in config.windows),
            squeezer(),
            bricard(config.duration),
            *(governor(each, config.duration) for each in (jaxdyn.SemiImplicitEuler(), jaxdyn.ImplicitMidpoint())),
        ]
        rows = [measured(problem) for problem in tqdm(problems, unit="problem")]
    lines = [
        "| problem | velocities | equations | step (ms) | largest error | s of processor time | with compilation | OpenSim 3.2 |",
        "|---|---|---|---|---|---|---|---|",
        *(
            f"| {r['name']} | {r['nv']} | {r['equations']} | {1e3 * r['dt']:g} | {r['error']:.1e} {r['unit']} | {r['run_s']:.3f} "
            f"| {r['first_s']:.1f} | {'' if r['published_s'] is None else r['published_s']} |"
            for r in rows
        ),
    ]
    directory.write_text("iftomm_benchmark.md", "\n".join(lines) + "\n")
    print("\n".join(lines))
    return {"problems": rows}


def measured(problem: Problem) -> dict[str, Any]:
    """Error and processor times of a problem."""
    steps = round(problem.duration / problem.dt)
    controls = None if problem.u is None else jnp.tile(jnp.array(problem.u), (steps, 1))
    # Without "lanes", XLA would run 40 windows, whose program is large.
    options = {"dt": problem.dt, "steps": steps, "integrator": problem.integrator, "backend": "lanes"}

    def run():
        start = time.process_time()
        found = jax.block_until_ready(jaxdyn.rollout(problem.system, problem.start, controls, **options))
        return found, time.process_time() - start

    _, first = run()
    found, again = run()
    names = ("name", "dt", "unit", "published_s")
    return {name: getattr(problem, name) for name in names} | {
        "nv": problem.system.model.nv,
        "equations": len(jaxdyn.constraints.constraint_errors(problem.system, problem.start).residual),
        "error": float(problem.error(np.asarray(found.time), found.saved)),
        "run_s": again,
        "first_s": first,
    }


JOB = Job("iftomm-benchmark", __doc__ or "", Config, work)

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
