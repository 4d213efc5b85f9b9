"""Can a motor turn a linkage over that is too weak to lift it?

Method. In a four-bar linkage the crank carries a load at its end and has a motor, whose torque is bounded by `share` of the largest
torque that turning it slowly would take. The linkage hangs where its potential energy is smallest and is to come to rest where it
is largest. The loop is a constraint; states are the joint angles and velocities of the tree. Multiple shooting starts from guesses
that are not motions: the crank turns from the lowest to the highest position, with random swings on top, the loop closed and no
torque. Its short steps are those of a plain Euler method that leaves the loop by a little; the best plan is then carried out with
exactly closed loops by `jaxdyn.Projected`, and with the feedback of the plan, within the same bound.

Expected. With a little more than a third of that torque all starts are solved, by two different ways to swing; the torque reaches
its bound. In the plan the loop opens by some millimeters, and carried out with a closed loop the crank still comes to rest within a
tenth of a degree of the top.

Run time. Two to three minutes on two cores, nearly all of which it compiles.

    python experiments/fourbar_swing_up.py [configs/fourbar_swing_up.toml] [--out DIR] [--smoke] [key=value ...]
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn
from jaxdyn import control, view
from jaxdyn.io import RunDirectory, seed_setting, setting
from jaxdyn.jobs import Job, main

POSITIONS = 720  # of the crank, over a turn
EFFORT = 100.0  # weight of (torque / bound)^2
TOLERANCE = 1e-6


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        crank, coupler, rocker: Lengths; initially crank and rocker are upright and the coupler is along x.
        density: Mass of the rods per meter, in kg.
        load: Mass at the end of the crank.
        share: Maximum torque of the motor, as a fraction of the largest torque of a slow turn.
        duration: Duration of the motion.
        steps: Number of steps of the trajectory.
        starts: Number of initial guesses.
        swing: Maximum amplitude of the swings in all guesses but the first.
        max_steps: Maximum number of iterations.
        seed: Seed of the initial guesses.
    """

    crank: float = setting(0.1, unit="m", positive=True)
    coupler: float = setting(0.3, unit="m", positive=True)
    rocker: float = setting(0.25, unit="m", positive=True)
    density: float = setting(1.0, positive=True)
    load: float = setting(1.0, unit="kg", positive=True)
    share: float = setting(0.35, positive=True)
    duration: float = setting(1.5, unit="s", positive=True)
    steps: int = setting(150, positive=True)
    starts: int = setting(6, positive=True)
    swing: float = setting(1.5, unit="rad", minimum=0.0)
    max_steps: int = setting(200, positive=True)
    seed: int = seed_setting()


def linkage(config: Config) -> jaxdyn.System:
    """With a motor in the shaft of the crank."""
    builder = jaxdyn.LinkageBuilder("four-bar")

    def rod(name: str, along: int, length: float, load: float = 0.0) -> None:
        mass, end = config.density * length, np.eye(3)[along] * length
        com = (0.5 * mass + load) / (mass + load) * end
        about = mass * length**2 / 12.0 + mass * load / (mass + load) * (0.5 * length) ** 2
        moments = about * (1.0 - np.eye(3)[along])
        builder.add_body(name, mass=mass + load, com=tuple(com), inertia=tuple(moments))

    hinge = jaxdyn.Revolute((0, 1, 0))
    rod("crank", 2, config.crank, config.load)
    rod("coupler", 0, config.coupler)
    rod("rocker", 2, config.rocker)
    pivot = (config.coupler, 0.0, config.crank - config.rocker)
    builder.add_joint("shaft", hinge, "ground", "crank")
    builder.add_joint("crank pin", hinge, "crank", "coupler", position_a=(0.0, 0.0, config.crank))
    builder.add_joint("rocker pivot", hinge, "ground", "rocker", position_a=pivot)
    end = (config.coupler, 0.0, 0.0)
    builder.add_joint("rocker pin", hinge, "coupler", "rocker", position_a=end, position_b=(0.0, 0.0, config.rocker))
    return dataclasses.replace(builder.build(), drives=jaxdyn.JointDrives((0,), [1.0]))


def slow_turn(system: jaxdyn.System) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coordinates over a turn of the crank, potential energy (J), and the torque that turns it slowly (N m)."""

    @jax.jit
    def follow(angles):
        def turn(q, angle):
            q = jaxdyn.assemble(system, system.at_rest(q.at[0].set(angle))).q
            return q, (q, jaxdyn.potential_energy(system.model, q))

        return jax.lax.scan(turn, jnp.zeros(system.model.nq), angles)[1]

    angles = np.linspace(0.0, 2.0 * np.pi, POSITIONS + 1)
    q, energy = (np.asarray(values) for values in follow(jnp.asarray(angles)))
    return q, energy, np.gradient(energy, angles)


def swing_up(config: Config, system: jaxdyn.System) -> tuple[control.ControlProblem, float]:
    """The problem, and the largest torque of a slow turn, N m."""
    q, energy, torque = slow_turn(system)
    lowest, highest = int(np.argmin(energy)), int(np.argmax(energy))
    needed, top = float(np.max(np.abs(torque))), 2.0 * np.pi * highest / POSITIONS

    def at_the_top(dynamics, t, x, u):
        return jnp.stack([x.q[0] - top, x.v[0]])

    bound = config.share * needed
    problem = control.ControlProblem(
        control.MultibodyDynamics(system, jaxdyn.SemiImplicitEuler()),
        jaxdyn.State(jnp.asarray(q[lowest]), jnp.zeros(system.model.nv)),
        duration=config.duration,
        steps=config.steps,
        running=control.Effort(EFFORT / bound**2),
        lower=-bound,
        upper=bound,
        final_constraints=control.Equality(at_the_top, "at rest at the top"),
    )
    return problem, needed


def guesses(config: Config, system: jaxdyn.System) -> control.Plan:
    """The crank turned from the lowest to the highest position, with random swings but in the first guess, and no torque."""
    rng = np.random.default_rng(config.seed)
    positions, energy, _ = slow_turn(system)
    lowest, highest = (2.0 * np.pi * int(place(energy)) / POSITIONS for place in (np.argmin, np.argmax))
    share = np.linspace(0.0, 1.0, config.steps + 1)
    swings = config.swing * rng.uniform(-1.0, 1.0, (config.starts, 1))
    swings[0] = 0.0
    waves = np.sin(2.0 * np.pi * rng.integers(1, 4, (config.starts, 1)) * share)
    crank = lowest + share**3 * (10.0 - 15.0 * share + 6.0 * share**2) * (highest - lowest)
    crank = crank + swings * 4.0 * share * (1.0 - share) * waves
    turns = np.floor(crank / (2.0 * np.pi))
    grid = np.linspace(0.0, 2.0 * np.pi, POSITIONS + 1)
    within = [np.interp(crank - 2.0 * np.pi * turns, grid, column) for column in positions.T]
    q = np.stack(within, axis=-1) + turns[..., None] * 2.0 * np.pi * np.round(
        (positions[-1] - positions[0]) / (2.0 * np.pi)
    )
    v = np.gradient(q, config.duration / config.steps, axis=1)
    torque = jnp.zeros((config.starts, config.steps, 1))
    return control.Plan(jaxdyn.State(jnp.asarray(q), jnp.asarray(v)), torque, jnp.zeros((config.starts, 0)))


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    with jax.enable_x64(True):
        system = linkage(config)
        problem, needed = swing_up(config, system)
        solver = control.MultipleShooting(tolerance=TOLERANCE)
        found = control.solve_batch(problem, solver, guesses(config, system), max_steps=config.max_steps, throw=False)
        best = control.best_of(found)
        states = found.value.states
        errors = jax.jit(
            jax.vmap(jax.vmap(lambda q, v: jaxdyn.constraints.constraint_errors(system, jaxdyn.State(q, v))))
        )(states.q, states.v)
        tracker = control.Tracker(problem, jax.tree.map(lambda x: x[best], found.value), found.feedback[best])
        exact = jax.jit(
            lambda start: jaxdyn.rollout(
                system,
                start,
                tracker,
                dt=config.duration / config.steps,
                steps=config.steps,
                integrator=jaxdyn.Projected(),
                save=lambda t, state, u: (state.q, u, jaxdyn.constraints.constraint_errors(system, state).residual),
            )
        )(problem.initial)
        carried, applied, residual = (np.asarray(part) for part in exact.saved)
        opened = [float(np.max(np.abs(np.asarray(part[best])))) for part in (errors.residual, errors.rate)]
        _, energy, _ = slow_turn(system)
        q, torque = np.asarray(states.q[best]), np.asarray(found.value.controls[best, :, 0])
        bound = float(problem.upper[0])
        times = np.linspace(0.0, config.duration, config.steps + 1)
        missed = np.rad2deg(carried[-1, 0] - q[-1, 0])
        directory.write_arrays(
            "plan", time=times, q=q, v=np.asarray(states.v[best]), torque=torque, carried_out=carried, applied=applied
        )
        at_bound = np.mean(np.abs(torque) >= 0.999 * bound)
        print(control.describe_optima(found))
        lines = [
            f"a slow turn takes up to {needed:.4f} N m, the motor has {bound:.4f} N m",
            f"best cost {float(found.cost[best]):.6g}, conditions hold to {float(found.violation[best]):.1e}",
            f"largest torque {np.max(np.abs(torque)):.4f} N m, at its bound in {100 * at_bound:.0f} % of the steps",
            f"in the plan the loop opens by {opened[0]:.1e} m at most, its rate is {opened[1]:.1e} m/s at most",
            f"carried out with a closed loop ({np.max(np.abs(residual)):.1e} m) and feedback, the crank ends {missed:.2f} deg "
            f"from the top, with {np.max(np.abs(applied)):.4f} N m at most",
        ]
        print("\n".join(lines))
        draw(directory, times, q, carried, torque, bound, energy)
        drawn = {"title": "Four-bar linkage, swung up", "frames": 8}
        view.save(view.stick_figure_strip(system, times, q[None], **drawn), directory.path("strip.png"))
        view.animate(system, times, q[None], directory.path("motion.gif"), fps=20, speed=0.5, size=400, progress=False)
    return {
        "results": [control.ControlResult(int(code)).name for code in found.result],
        "cost": np.asarray(found.cost).tolist(),
        "iterations": np.asarray(found.stats.iterations).tolist(),
        "needed_torque": needed,
        "bound": bound,
        "loop_error": opened[0],
        "loop_rate": opened[1],
        "carried_out_missed_deg": float(missed),
        "carried_out_loop_error": float(np.max(np.abs(residual))),
    }


def draw(directory, times, q, carried, torque, bound, energy) -> None:
    """Crank angle, torque within its bounds, and where the potential energy has its valley and its top."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 6.5), layout="constrained")
    angle, motor = figure.subplots(2, 1, sharex=True)
    angle.plot(times, np.rad2deg(q[:, 0]), color="#1f5fa8", label="plan")
    angle.plot(times, np.rad2deg(carried[:, 0]), color="#1f5fa8", ls=":", label="carried out, loop closed")
    angle.legend(frameon=False)
    for place, name in ((np.argmin(energy), "lowest"), (np.argmax(energy), "highest")):
        angle.axhline(360.0 * place / POSITIONS, color="0.4", lw=0.8, ls="--")
        angle.annotate(name, (times[-1], 360.0 * place / POSITIONS), ha="right", va="bottom")
    angle.set_ylabel("crank (deg)")
    motor.step(times[:-1], torque, where="post", color="#c2410c")
    for value in (-bound, bound):
        motor.axhline(value, color="0.4", lw=0.8)
    motor.set_ylabel("torque (N m)")
    motor.set_xlabel("time (s)")
    for axis in (angle, motor):
        axis.grid(alpha=0.3)
    figure.savefig(directory.path("swing.png"), dpi=100)


JOB = Job("fourbar-swing-up", __doc__ or "", Config, work)

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
