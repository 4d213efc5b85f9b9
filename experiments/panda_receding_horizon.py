"""How often can a reach of a Panda arm be planned again while the arm moves, and what is that good for?

Method. Over a horizon of 1 s, torques of the seven joints within their limits are chosen so that the hand gets to a pose and
stays there: the first plan by multiple shooting from an arm that stands still. Every 20 ms the plan is computed again from where
the arm is, by two iterations of iLQR from the last plan moved on by a step. The arm that is controlled is not quite that of the
plan: for a while a torque pushes it that the plan does not know. For comparison the first plan is carried out as it is, and with
the feedback of the gains of the plan.

Expected. A plan takes half a millisecond on one core of an AMD EPYC, so that plans could be made at 2 kHz, where the steps ask for
50 Hz. With new plans the hand ends 0.5 mm from its target; with the feedback of the first plan it ends 0.9 m from it, and without
any feedback the arm diverges.

Run time. About a minute on two cores, most of which it compiles.

    python experiments/panda_receding_horizon.py [configs/panda_receding_horizon.toml] [--out DIR] [--smoke] [key=value ...]
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
from jaxdyn import control, view
from jaxdyn.io import RunDirectory, setting
from jaxdyn.jobs import Job, main

HAND = "link7"


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        mechanism: File of the arm.
        start: Initial joint angles.
        goal: Joint angles at which the hand has the target pose; any posture with this pose is accepted.
        horizon: Duration of each planned trajectory.
        steps: Number of steps of each plan.
        run: Number of executed steps.
        max_steps: Number of iterations of iLQR for each plan.
        push: Torque on the first joints that the controller does not predict.
        push_start, push_end: Start and end of the push.
    """

    mechanism: Path
    start: tuple[float, ...] = setting((-0.8, 0.2, 0.0, -2.0, 0.0, 2.2, 0.785), unit="rad")
    goal: tuple[float, ...] = setting((0.8, 0.4, 0.0, -1.6, 0.0, 2.2, 0.785), unit="rad")
    horizon: float = setting(1.0, unit="s", positive=True)
    steps: int = setting(50, positive=True)
    run: int = setting(100, positive=True)
    max_steps: int = setting(2, positive=True)
    push: tuple[float, ...] = setting((15.0, 15.0, 0.0, 0.0, 0.0, 0.0, 0.0), unit="N m")
    push_start: float = setting(0.4, unit="s", minimum=0.0)
    push_end: float = setting(0.7, unit="s", minimum=0.0)


class Pushed(control.Dynamics):
    """A machine that is pushed for a while.

    Attributes:
        inner: Dynamics of the robot without the push.
        torque: Torque of the push.
        start, end: Start and end of the push, s.
    """

    inner: control.Dynamics
    torque: jax.Array
    start: float
    end: float

    @property
    def nx(self) -> int:
        return self.inner.nx

    @property
    def nu(self) -> int:
        return self.inner.nu

    def step(self, x, u, t, dt):
        pushes = (t >= self.start) & (t < self.end)
        return self.inner.step(x, u + jnp.where(pushes, self.torque, 0.0), t, dt)

    def retract(self, x, step):
        return self.inner.retract(x, step)

    def difference(self, a, b):
        return self.inner.difference(a, b)


def reaching(config: Config, system: jaxdyn.System) -> control.ControlProblem:
    """The problem over one horizon."""
    model, limits = system.model, system.model.limits.effort
    target = jaxdyn.frame_placement(model, jnp.asarray(config.goal), HAND)
    start = jaxdyn.State(jnp.asarray(config.start), jnp.zeros(model.nv))
    still = jnp.concatenate([jnp.zeros(model.nv), jnp.full(model.nv, 1.0)])
    return control.ControlProblem(
        control.MultibodyDynamics(system, jaxdyn.SemiImplicitEuler()),
        start,
        duration=config.horizon,
        steps=config.steps,
        running=(
            control.FramePose(HAND, target, position=100.0, rotation=20.0),
            control.Deviation(start, 0.2 * still),
            control.Effort(0.1 / limits**2),
        ),
        final=(control.FramePose(HAND, target, position=1000.0, rotation=200.0), control.Deviation(start, 2.0 * still)),
        lower=-limits,
        upper=limits,
    )


def miss(system: jaxdyn.System, config: Config, q: np.ndarray) -> np.ndarray:
    """Distances of the hand from its target, m."""
    target = jaxdyn.frame_placement(system.model, jnp.asarray(config.goal), HAND).translation
    placed = jax.jit(jax.vmap(lambda q: jaxdyn.frame_placement(system.model, q, HAND).translation))(jnp.asarray(q))
    return np.linalg.norm(np.asarray(placed - target[None]), axis=1)


def carried_out(
    plant: control.Dynamics, problem: control.ControlProblem, solution: control.Solution, steps: int, feedback
):
    """The states that the first plan leads to on the pushed machine, its last controls held after its end."""

    def step(x, k):
        row = jnp.minimum(k, problem.steps - 1)
        wanted = jax.tree.map(lambda leaf: leaf[row], solution.value.states)
        u = solution.value.controls[row] + feedback[row] @ problem.dynamics.difference(wanted, x)
        u = jnp.clip(u, problem.lower, problem.upper)
        return plant.step(x, u, k.astype(u.dtype) * problem.dt, problem.dt), x

    return jax.jit(lambda x: jax.lax.scan(step, x, jnp.arange(steps + 1))[1])(problem.initial)


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    with jax.enable_x64(True):
        system = jaxdyn.io.load_system(config.mechanism)
        problem = reaching(config, system)
        plant = Pushed(problem.dynamics, jnp.asarray(config.push), config.push_start, config.push_end)
        holding = jaxdyn.bias_force(system.model, problem.initial.q, problem.initial.v)
        start = control.rollout_controls(problem, jnp.broadcast_to(holding, (config.steps, system.model.nv)))
        first = control.MultipleShooting(tolerance=1e-6)
        solution = eqx.filter_jit(lambda plan: control.solve(problem, first, plan))(start)
        print(
            f"first plan: {control.ControlResult(int(solution.result)).message}, {int(solution.stats.iterations)} iterations"
        )
        controller = control.RecedingHorizon(
            problem, control.ILQR(tolerance=1e-5), solution.value, max_steps=config.max_steps
        )
        run = control.run_receding_horizon(controller, problem.initial, steps=config.run, plant=plant)
        none = jnp.zeros_like(solution.feedback)
        motions = {
            "planned anew": run.states.q,
            "first plan with feedback": carried_out(plant, problem, solution, config.run, solution.feedback).q,
            "first plan": carried_out(plant, problem, solution, config.run, none).q,
        }
        misses = {name: miss(system, config, q) for name, q in motions.items()}
        milliseconds = 1e3 * np.percentile(run.seconds, [50, 95, 100])
        print(
            f"{run.rate:.0f} Hz: a plan of {config.steps} steps takes {milliseconds[0]:.2f} ms (median), {milliseconds[1]:.2f} ms "
            f"(95 %), {milliseconds[2]:.2f} ms (longest); the control step is {1e3 * float(problem.dt):.0f} ms"
        )
        for name, distances in misses.items():
            end = (
                f"ends {1e3 * distances[-1]:.2f} mm from its target"
                if np.isfinite(distances[-1])
                else "is lost, the arm diverges"
            )
            print(f"{name}: the hand {end}")
        times = np.arange(config.run + 1) * float(problem.dt)
        directory.write_arrays(
            "run", time=times, q=run.states.q, v=run.states.v, torque=run.controls, seconds=run.seconds
        )
        draw(directory, config, times, misses, run, np.asarray(problem.upper))
        view.animate(system, times, run.states.q[None], directory.path("motion.gif"), progress=False)
    return {
        "rate_Hz": run.rate,
        "milliseconds_median_95_longest": milliseconds.tolist(),
        "misses_m": {name: float(d[-1]) if np.isfinite(d[-1]) else None for name, d in misses.items()},
        "largest_torque_share": float(np.max(np.abs(run.controls) / np.asarray(problem.upper))),
    }


def draw(directory: RunDirectory, config: Config, times, misses, run, limits) -> None:
    """Distance of the hand from its target, torques, and the time that plans took."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 9), layout="constrained")
    far, torques, taken = figure.subplots(3, 1)
    for name, distances in misses.items():
        far.semilogy(times, 1e3 * distances, label=name)
    far.axvspan(config.push_start, config.push_end, color="0.9", label="push")
    far.set(ylabel="hand from target (mm)", xlabel="time (s)")
    far.legend(frameon=False, fontsize=8)
    torques.step(times[:-1], run.controls / limits, where="post")
    torques.set(ylabel="torque / limit", xlabel="time (s)", ylim=(-1.05, 1.05))
    taken.hist(1e3 * run.seconds, bins=40, color="#1f5fa8")
    taken.set(xlabel="time for a plan (ms)", ylabel="plans")
    for axis in (far, torques, taken):
        axis.grid(alpha=0.3)
    view.save(figure, directory.path("receding_horizon.png"))


JOB = Job("panda-receding-horizon", __doc__ or "", Config, work)

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
