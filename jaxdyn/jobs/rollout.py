"""The job `jaxdyn rollout`: thousands of rollouts of one mechanism at once.

Every lane draws its own initial state and torque sequence from its own random key, so lane k is the same motion whatever the batch.
"""

import contextlib
import dataclasses
import time
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from tqdm import tqdm

import jaxdyn.lanes as lane_compiler
from jaxdyn.constraints.assembly import assemble
from jaxdyn.constraints.projection import project_velocity
from jaxdyn.dynamics.inverse import gravity_force
from jaxdyn.dynamics.system import State, System, total_energy
from jaxdyn.io.config import ConfigError, setting
from jaxdyn.io.runs import RunDirectory
from jaxdyn.io.system_file import load_system
from jaxdyn.jobs.integrators import INTEGRATORS, IntegratorName
from jaxdyn.jobs.job import Job
from jaxdyn.jobs.replay import ReplayedPlan, load_replay
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.model import as_dtype
from jaxdyn.simulate.controls import Knots, Policy
from jaxdyn.simulate.diagnostics import power_balance_error, work_of_step
from jaxdyn.simulate.rollout import Result, rollout

# Beyond this a typing error is likelier than a wish: years of work at a million steps per second.
_MOST_STEPS = 1e14


@dataclasses.dataclass(frozen=True)
class InitialConfig:
    """Initial states.

    Attributes:
        spread: fraction of the range between joint limits that is used, about its middle; where a joint has no limits,
            the standard deviation of its coordinate (rad, m); 0.5 if not given. Of a replay, the standard deviation of all
            coordinates about the start of the plan; none if not given.
        speed: standard deviation of the velocities, of a replay about those of the plan.
    """

    spread: float | None = setting(None, non_negative=True)
    speed: float = setting(0.0, unit="rad/s", non_negative=True)


@dataclasses.dataclass(frozen=True)
class ControlConfig:
    """Joint-space PD control, tau = stiffness (target - q) - damping v, plus a random torque sequence; or the replay of a plan.

    Attributes:
        target: "middle" of the joint limits (neutral where there are none), or each lane's own "initial" configuration.
        stiffness, damping: per velocity component, or one number for all.
        compensate_gravity: adds the torque that holds the mechanism against gravity.
        random_torque: standard deviation per velocity component, N m or N.
        random_interval: time between the knots of the random torque; linear in between.
        replay: plan.npz of a run of jaxdyn optimize, whose controls act on the drives of the mechanism instead of all this.
        replay_feedback: whether its gains act on what is off the plan, within the bounds of its controls.
    """

    target: Literal["middle", "initial"] = "middle"
    stiffness: tuple[float, ...] = setting((0.0,), non_negative=True, broadcast=True)
    damping: tuple[float, ...] = setting((0.0,), non_negative=True, broadcast=True)
    compensate_gravity: bool = False
    random_torque: tuple[float, ...] = setting((0.0,), non_negative=True, broadcast=True)
    random_interval: float = setting(0.05, unit="s", positive=True)
    replay: Path | None = None
    replay_feedback: bool = False

    def __post_init__(self):
        if self.replay is None and self.replay_feedback:
            raise ValueError("replay_feedback is of a replay; give replay, the plan.npz of a run of jaxdyn optimize")
        others = [field for field in dataclasses.fields(self) if not field.name.startswith("replay")]
        changed = [field.name for field in others if getattr(self, field.name) != field.default]
        if self.replay is not None and changed:
            raise ValueError(f"a plan is replayed instead of {', '.join(changed)}; remove one or the other")


@dataclasses.dataclass(frozen=True)
class TimeConfig:
    """Time.

    Attributes:
        duration: simulated time.
        rate: control steps per second.
        substeps: integrator steps per control step.
        save_every: control steps between records.
        integrator: one-step method; "projected" is Runge-Kutta 4 with loops closed exactly after each step.
    """

    duration: float = setting(unit="s", positive=True)
    rate: float = setting(unit="Hz", positive=True)
    substeps: int = setting(1, positive=True)
    save_every: int = setting(1, positive=True)
    integrator: IntegratorName = "semi_implicit_euler"


@dataclasses.dataclass(frozen=True)
class RolloutConfig:
    """Config of `jaxdyn rollout`.

    Attributes:
        mechanism: mechanism file: .toml, .urdf, .xml (URDF or MJCF) or .json.
        batch: number of lanes.
        seed: of all random numbers.
        dtype: precision of everything.
        method: algorithm of the forward dynamics.
        backend: "lanes" is the lane compiler, "xla" leaves everything to XLA, "auto" takes lanes on CPUs where they can serve.
        pictures: whether to draw them.
    """

    mechanism: Path
    time: TimeConfig
    batch: int = setting(positive=True)
    seed: int = setting(0, non_negative=True)
    dtype: Literal["float32", "float64"] = "float32"
    method: Literal["cholesky", "articulated_body"] = "cholesky"
    backend: Literal["auto", "lanes", "xla"] = "auto"
    pictures: bool = True
    initial: InitialConfig = InitialConfig()
    control: ControlConfig = ControlConfig()

    def __post_init__(self):
        steps = self.time.duration * self.time.rate
        if round(steps) < 1:
            raise ValueError(
                f"time.duration = {self.time.duration:g} s is shorter than one step; lengthen it or raise time.rate"
            )
        if self.batch * steps > _MOST_STEPS:
            raise ValueError(
                f"{self.batch} lanes of {self.time.duration:g} s at {self.time.rate:g} Hz are {self.batch * steps:.2g} steps; "
                f"stay below {_MOST_STEPS:.0e}"
            )
        if round(steps) % self.time.save_every:
            raise ValueError(
                f"time.save_every = {self.time.save_every} does not divide the {round(steps)} steps of "
                f"{self.time.duration:g} s at {self.time.rate:g} Hz; choose a divisor"
            )
        if self.control.replay is None and self.time.duration / self.control.random_interval > steps:
            raise ValueError(
                f"control.random_interval = {self.control.random_interval:g} s is shorter than a step; lengthen it"
            )
        if self.seed >= 2**32:
            raise ValueError(f"seed = {self.seed} is too large; stay below 2^32")

    @property
    def steps(self) -> int:
        """Control steps of a lane."""
        return round(self.time.duration * self.time.rate)


class LanePlan(eqx.Module):
    """What one lane is to do.

    Attributes:
        target: configuration that the PD control holds.
        torques: torque sequence added to it.
    """

    target: Float[Array, "*batch nq"]
    torques: Knots


class LaneProgress(eqx.Module):
    """Where one lane has got to.

    Attributes:
        state: current state.
        work: work done by the drives and by dissipative forces so far, J.
        result: code of `Result`.
        steps: steps made.
    """

    state: State
    work: Float[Array, "*batch"]
    result: Int[Array, "*batch"]
    steps: Int[Array, "*batch"]


def _work(config: RolloutConfig, directory: RunDirectory) -> dict[str, Any]:
    steps = config.steps
    records = steps // config.time.save_every
    with jax.enable_x64(True) if config.dtype == "float64" else contextlib.nullcontext():
        system = _system(config)
        replay = _replay(config, system)
        plans, lanes = _lanes(config, system, replay)
        dt = 1.0 / config.time.rate

        def stretch(lane: LaneProgress, plan: LanePlan, t0: Float[Array, ""]) -> tuple[LaneProgress, dict[str, Array]]:
            """One lane from one record to the next; a lane that has ended stays where it is."""
            trajectory = rollout(
                system,
                lane.state,
                _pd_control(config, system, plan) if replay is None else replay.policy(system),
                dt=dt,
                steps=config.time.save_every,
                integrator=INTEGRATORS[config.time.integrator],
                substeps=config.time.substeps,
                save_every=config.time.save_every,
                save=lambda t, state, u: None,
                cost=work_of_step(system),
                t0=t0,
                backend=config.backend,
            )
            after = LaneProgress(
                trajectory.final, lane.work + trajectory.cost, trajectory.result, lane.steps + trajectory.steps
            )
            running = lane.result == Result.COMPLETED
            lane = jax.tree.map(lambda new, old: jnp.where(running, new, old), after, lane)
            return lane, _record(system, lane)

        served = set()

        def compiled(lane: LaneProgress, plan: LanePlan, t0: Float[Array, ""]) -> tuple[LaneProgress, dict[str, Array]]:
            result, backend = lane_compiler.run(stretch, (lane, plan, t0), backend=config.backend, name="rollout")
            served.add(backend)
            return result

        t0 = jnp.zeros((), config.dtype)
        start = time.perf_counter()
        advance = jax.jit(jax.vmap(compiled, in_axes=(0, 0, None))).lower(lanes, plans, t0).compile()
        compile_s = time.perf_counter() - start
        directory.write_mechanism(system)

        first = jax.jit(jax.vmap(lambda lane: _record(system, lane)))(lanes)
        history = [jax.tree.map(np.asarray, first)]
        start = time.perf_counter()
        with tqdm(total=config.batch * steps, unit="step", unit_scale=True, desc=f"{config.batch} rollouts") as bar:
            for k in range(records):
                lanes, record = advance(lanes, plans, jnp.asarray(k * config.time.save_every * dt, config.dtype))
                history.append(jax.tree.map(np.asarray, record))  # waits for the device
                bar.update(config.batch * config.time.save_every)
        run_s = time.perf_counter() - start

        arrays = {name: np.stack([h[name] for h in history], axis=1) for name in history[0]}
        arrays["time"] = np.arange(records + 1) * (config.time.save_every * dt)
        arrays["result"], arrays["steps"] = np.asarray(lanes.result), np.asarray(lanes.steps)
        directory.write_arrays("states", **arrays)
        metrics = _metrics(config, arrays, steps, compile_s, run_s) | {"backend": ", ".join(served)}
        _report(metrics)
        if config.pictures:
            metrics["pictures"] = _draw(system, arrays, directory)
        return metrics


def _system(config: RolloutConfig) -> System:
    loaded = load_system(config.mechanism)
    drives = None if config.control.replay is None else loaded.drives
    if loaded.drives is not drives:
        print(f"{config.mechanism}: its drives are not used, joint-space PD control acts on every joint")
    system = System(loaded.model, loaded.forces, drives, config.method, loaded.constraints)
    return as_dtype(system, config.dtype)


def _replay(config: RolloutConfig, system: System) -> ReplayedPlan | None:
    control, time = config.control, config.time
    if control.replay is None:
        return None
    return load_replay(control.replay, system, rate=time.rate, duration=time.duration, feedback=control.replay_feedback)


def _pd_control(config: RolloutConfig, system: System, plan: LanePlan) -> Policy:
    """PD control about the target plus the torque sequence, clipped at the effort limits."""
    model = system.model
    stiffness, damping = (_per_joint(config, system, name) for name in ("stiffness", "damping"))

    def policy(t: Float[Array, ""], state: State, key: PRNGKeyArray | None) -> Float[Array, "nv"]:
        tau = stiffness * configuration.difference(model, state.q, plan.target) - damping * state.v + plan.torques(t)
        if config.control.compensate_gravity:
            tau = tau - gravity_force(model, state.q)
        return jnp.clip(tau, -model.limits.effort, model.limits.effort)

    return policy


def _lanes(config: RolloutConfig, system: System, replay: ReplayedPlan | None) -> tuple[LanePlan, LaneProgress]:
    """All lanes before the start."""
    model, dtype = system.model, system.model.dtype
    spread = config.initial.spread
    torque = _per_joint(config, system, "random_torque")
    knots = int(np.ceil(config.time.duration / config.control.random_interval)) + 1

    def lane(index):
        key = jax.random.fold_in(jax.random.key(config.seed), index)
        q_key, v_key, torque_key = jax.random.split(key, 3)
        v = config.initial.speed * jax.random.normal(v_key, (model.nv,), dtype)
        if replay is None:
            q = configuration.random(model, q_key, spread=0.5 if spread is None else spread)
        else:
            off = (spread or 0.0) * jax.random.normal(q_key, (model.nv,), dtype)
            q, v = configuration.integrate(model, replay.states.q[0], off), replay.states.v[0] + v
        # One key per knot, so that the torque at a given time does not depend on the duration.
        knot_keys = jax.vmap(lambda k: jax.random.fold_in(torque_key, k))(jnp.arange(knots))
        values = torque[None] * jax.vmap(lambda k: jax.random.normal(k, (model.nv,), dtype))(knot_keys)
        torques = Knots(values, jnp.asarray(config.control.random_interval, dtype), jnp.zeros((), dtype))
        # Without spread, random coordinates are the middle of the limits.
        start = assemble(system, q)  # the same configuration if there are no loops to close
        if config.control.target == "initial":
            target = start.q
        else:
            target = assemble(system, configuration.random(model, q_key, spread=0.0)).q
        state = State(start.q, project_velocity(system, start.q, v))
        zero = jnp.zeros((), jnp.int32)
        return (LanePlan(target, torques), LaneProgress(state, jnp.zeros((), dtype), zero, zero)), start.closed

    lanes, closed = jax.jit(jax.vmap(lane))(jnp.arange(config.batch))
    if not np.all(closed):
        raise ConfigError(
            f"the loops of {config.mechanism} cannot be closed near {np.sum(~closed)} of {config.batch} random configurations; "
            "lower initial.spread"
        )
    return lanes


def _per_joint(config: RolloutConfig, system: System, name: str) -> Float[Array, "nv"]:
    values, count = getattr(config.control, name), system.model.nv
    if len(values) not in (1, count):
        raise ConfigError(f"control.{name} has {len(values)} numbers; give 1, or {count}: one per degree of freedom")
    return jnp.asarray(np.broadcast_to(values, (count,)), system.model.dtype)


def _record(system: System, lane: LaneProgress) -> dict[str, Array]:
    return {"q": lane.state.q, "v": lane.state.v, "energy": total_energy(system, lane.state), "work": lane.work}


def _metrics(
    config: RolloutConfig, arrays: dict[str, np.ndarray], steps: int, compile_s: float, run_s: float
) -> dict[str, Any]:
    energy, work = arrays["energy"].astype(np.float64), arrays["work"].astype(np.float64)
    error = np.abs(power_balance_error(energy, work[:, -1]))
    turnover = np.sum(np.abs(np.diff(work, axis=1)), axis=1) + np.abs(energy[:, -1] - energy[:, 0])
    relative = error / np.maximum(turnover, np.finfo(np.float64).tiny)
    done = arrays["result"] == Result.COMPLETED
    made = int(arrays["steps"].sum())
    return {
        "batch": config.batch,
        "steps": steps,
        "dtype": config.dtype,
        "seed": config.seed,
        "compile_s": compile_s,
        "run_s": run_s,
        "steps_per_s": made / run_s,
        "lanes": {code.name.lower(): int(np.sum(arrays["result"] == code)) for code in Result},
        "energy_initial_mean_J": float(energy[done, 0].mean()) if done.any() else None,
        "energy_final_mean_J": float(energy[done, -1].mean()) if done.any() else None,
        "work_mean_J": float(work[done, -1].mean()) if done.any() else None,
        "power_balance_error_median_J": float(np.median(error[done])) if done.any() else None,
        "power_balance_error_max_J": float(error[done].max()) if done.any() else None,
        "power_balance_error_relative_median": float(np.median(relative[done])) if done.any() else None,
    }


def _report(metrics: dict[str, Any]) -> None:
    ended = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in metrics["lanes"].items() if count)
    times = f"compile {metrics['compile_s']:.1f} s, run {metrics['run_s']:.1f} s, {metrics['steps_per_s']:,.0f} steps/s"
    print(f"{metrics['backend']}: {times}")
    print(f"lanes: {ended}")
    if metrics["power_balance_error_median_J"] is not None:
        print(
            f"power balance error: median {metrics['power_balance_error_median_J']:.2g} J, "
            f"{100 * metrics['power_balance_error_relative_median']:.2g} % of the energy turned over"
        )
    for code in Result:
        if code is not Result.COMPLETED and metrics["lanes"][code.name.lower()]:
            print(f"  {code.name.lower()}: {code.meaning}")


def _draw(system: System, arrays: dict[str, np.ndarray], directory: RunDirectory) -> list[str]:
    try:
        from jaxdyn.view import plots
    except ImportError:
        print('no pictures: matplotlib is not installed; pip install "jaxdyn[pictures]"')
        return []
    good = arrays["result"] == Result.COMPLETED
    shown = good if good.any() else np.ones_like(good)
    time, q = arrays["time"], arrays["q"][shown]
    figures = {
        "joint_fans.png": plots.joint_fans(system.model, time, q),
        "energy_balance.png": plots.energy_balance(time, arrays["energy"][shown], arrays["work"][shown]),
        "stick_figures.png": plots.stick_figure_strip(system, time, q),
    }
    for name, figure in figures.items():
        plots.save(figure, directory.path(name))
    return list(figures)


JOB = Job(
    "rollout",
    "simulate many lanes of one mechanism at once\n\n"
    "Each lane starts from its own random state and is driven by joint-space PD control and random torques. The run directory\n"
    "gets the resolved config, the mechanism (mechanism.json, mechanism.npz), metrics.json, states.npz and pictures.",
    RolloutConfig,
    _work,
)
