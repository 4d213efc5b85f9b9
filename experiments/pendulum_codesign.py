"""Which pendulum lifts a load best, if its length, the time and the torque are chosen together?

Method. A load on a rod of length L hangs at rest and is to stand upright at rest after the time T; the torque is bounded, too weak
to hold a long rod out. The cost is

    integral of u^2 dt + price T - value 2 L,

effort and time, less the value of the height. L and T are design parameters beside the controls, and iLQR with second-order
dynamics (DDP) finds all of them at once, from several random torques. The answer is checked against a scan: the best of the same
starts for each of several fixed lengths, T still free, and a parabola through the three best.

Expected. All starts end at a length of 0.52112 m and a duration of 2.7466 s with a cost of -4.985707, below the smallest of the
scan; the length lies between the neighbors of the best one of the scan.

Run time. A minute on two busy cores.

    python experiments/pendulum_codesign.py [configs/pendulum_codesign.toml] [--out DIR] [--smoke] [key=value ...]
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn
from jaxdyn import control
from jaxdyn.io import RunDirectory, seed_setting, setting
from jaxdyn.jobs import Job, main

SHORTEST_TIME, FIRST_TIME, LONGEST_TIME = 0.5, 2.0, 6.0  # s


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        mass: Mass of the load.
        torque: Bound of the torque.
        value: Reward of a meter of height.
        price: Cost of a second.
        steps: Number of steps of the trajectory.
        shortest, longest: Bounds of the length.
        lengths: Number of lengths of the scan.
        starts: Number of random initial guesses of the torques.
        max_steps: Maximum number of iterations.
        seed: Seed of the initial guesses.
    """

    mass: float = setting(1.0, unit="kg", positive=True)
    torque: float = setting(3.0, unit="N m", positive=True)
    value: float = setting(15.0, positive=True)
    price: float = setting(2.0, positive=True)
    steps: int = setting(60, positive=True)
    shortest: float = setting(0.2, unit="m", positive=True)
    longest: float = setting(0.8, unit="m", positive=True)
    lengths: int = setting(7, positive=True)
    starts: int = setting(3, positive=True)
    max_steps: int = setting(300, positive=True)
    seed: int = seed_setting()

    def __post_init__(self):
        if self.shortest >= self.longest:
            raise ValueError("shortest: give less than the longest length")


def with_length(problem: control.ControlProblem, length) -> control.ControlProblem:
    return eqx.tree_at(lambda p: p.dynamics.system.model.com, problem, jnp.append(jnp.zeros(2), -length)[None])


def swing_up(config: Config) -> control.ControlProblem:
    """The problem for a rod of half a meter, without a design."""
    builder = jaxdyn.MechanismBuilder("pendulum")
    builder.add_body("rod", joint=jaxdyn.Revolute((0, 1, 0)), mass=config.mass, com=(0, 0, -0.5))
    upright = jaxdyn.State(jnp.array([jnp.pi]), jnp.zeros(1))

    def worth(dynamics, t, x, u):
        return config.price * t + 2.0 * config.value * dynamics.system.model.com[0, 2]

    return control.ControlProblem(
        control.MultibodyDynamics(jaxdyn.System(builder.build())),
        jaxdyn.State(jnp.zeros(1), jnp.zeros(1)),
        duration=FIRST_TIME,
        steps=config.steps,
        running=control.Effort(2.0),
        final=worth,
        lower=-config.torque,
        upper=config.torque,
        final_constraints=control.Equality(lambda dynamics, t, x, u: dynamics.difference(upright, x), "upright"),
    )


def designed(problem: control.ControlProblem, config: Config, free_length: bool) -> control.ControlProblem:
    """The problem with the duration to choose, and the length too if it is free."""

    def place(problem, numbers):
        problem = eqx.tree_at(lambda p: p.duration, problem, numbers[0])
        return with_length(problem, numbers[1:]) if free_length else problem

    middle = 0.5 * (config.shortest + config.longest)
    numbers = [(FIRST_TIME, SHORTEST_TIME, LONGEST_TIME), (middle, config.shortest, config.longest)]
    start, lower, upper = zip(*numbers[: 1 + free_length], strict=True)
    return eqx.tree_at(
        lambda p: p.design, problem, control.Design(place, start, lower, upper), is_leaf=lambda leaf: leaf is None
    )


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    rng = np.random.default_rng(config.seed)
    wave = np.sin(np.linspace(0.0, 2.0 * np.pi, config.steps))[None, :, None]
    torques = (
        0.5 * config.torque * (rng.normal(size=(config.starts, 1, 1)) * wave + rng.normal(size=(config.starts, 1, 1)))
    )
    solver = control.ILQR(second_order=True, tolerance=1e-8, penalty=1000.0)
    lengths = np.linspace(config.shortest, config.longest, config.lengths)
    with jax.enable_x64(True):
        problem = swing_up(config)

        def solution(problem, u):
            return control.solve(problem, solver, control.rollout_controls(problem, u), max_steps=config.max_steps)

        together = designed(problem, config, True)
        found = jax.jit(jax.vmap(lambda u: solution(together, u)))(jnp.asarray(torques))

        def fixed(length, u):
            return solution(designed(with_length(problem, length[None]), config, False), u)

        scan = jax.jit(jax.vmap(jax.vmap(fixed, (None, 0)), (0, None)))(jnp.asarray(lengths), jnp.asarray(torques))
    cost, scanned = (only_solved(solutions) for solutions in (found, scan))
    best = int(np.argmin(cost))
    if not np.isfinite(cost[best]):
        print("no start led to a solution; the plan shown is the first one, as far as it came")
    duration, length = (float(x) for x in found.value.design[best])
    print(control.describe_optima(found))
    least = np.min(scanned, axis=1)
    k = int(np.argmin(least))
    lines = [
        f"together: length {length:.5f} m, duration {duration:.5f} s, cost {float(found.cost[best]):.6f}",
        f"scan: length {lengths[k]:.5f} m, cost {least[k]:.6f}",
    ]
    if 0 < k < len(lengths) - 1 and np.all(np.isfinite(least[k - 1 : k + 2])):
        bend, slope, _ = np.polyfit(lengths[k - 1 : k + 2], least[k - 1 : k + 2], 2)
        lines.append(f"parabola through the three best of the scan: length {-0.5 * slope / bend:.5f} m")
    print("\n".join(lines))
    times = np.linspace(0.0, duration, config.steps + 1)
    angle, torque = np.asarray(found.value.states.q[best, :, 0]), np.asarray(found.value.controls[best, :, 0])
    directory.write_arrays(
        "plans", time=times, angle=angle, torque=torque, lengths=lengths, scan=np.asarray(scan.cost), together=cost
    )
    draw(directory, config, lengths, scanned, (length, float(found.cost[best])), times, angle, torque)
    return {
        "length": length,
        "duration": duration,
        "cost": np.asarray(found.cost).tolist(),
        "results": [control.ControlResult(int(code)).name for code in found.result],
        "scan_length": float(lengths[k]),
        "scan_cost": least.tolist(),
        "lines": lines,
    }


def only_solved(solutions: control.Solution) -> np.ndarray:
    """Costs; infinite where there is no solution."""
    solved = np.asarray(solutions.result) == control.ControlResult.SUCCESSFUL
    return np.where(solved, np.asarray(solutions.cost), np.inf)


def draw(directory, config, lengths, scanned, found, times, angle, torque) -> None:
    """Cost against length with the answer, and the swing."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    axis, motion = figure.subplots(1, 2)
    for start in scanned.T:
        axis.plot(lengths, np.where(np.isfinite(start), start, np.nan), "o", ms=4, color="#9aa5b1")
    least = np.min(scanned, axis=1)
    axis.plot(lengths, np.where(np.isfinite(least), least, np.nan), color="#1f5fa8", label="best of a scan")
    axis.plot(*found, "*", ms=14, color="#c2410c", label="found together")
    axis.set_xlabel("length (m)")
    axis.set_ylabel("cost")
    motion.plot(times, angle, color="#1f5fa8", label="angle (rad)")
    motion.step(times[:-1], torque, where="post", color="#c2410c", label="torque (N m)")
    for bound in (-config.torque, config.torque):
        motion.axhline(bound, color="0.4", lw=0.8, ls="--")
    motion.set_xlabel("time (s)")
    for part in (axis, motion):
        part.grid(alpha=0.3)
        part.legend(frameon=False)
    figure.savefig(directory.path("codesign.png"), dpi=100)


JOB = Job("pendulum-codesign", __doc__ or "", Config, work)

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
