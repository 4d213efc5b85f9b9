"""Files of optimized plans, and their use as controls of a rollout."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jaxdyn.control.problem import ControlProblem, MultibodyDynamics
from jaxdyn.control.solution import Solution
from jaxdyn.dynamics.system import State, System
from jaxdyn.io.errors import ConfigError, RunError
from jaxdyn.io.runs.directory import MECHANISM, RunDirectory
from jaxdyn.jobs.integrators import INTEGRATORS
from jaxdyn.jobs.rollout.config import RolloutConfig
from jaxdyn.simulate.controls import Knots

PLAN = "plan"

_SAME_RATE = 1e-6  # relative difference of rates that is attributed to rounding
_SHAPES = {"time": 1, "q": 2, "v": 2, "controls": 2, "feedback": 3, "lower": 1, "upper": 1}


def saved_plan(problem: ControlProblem, found: Solution) -> dict[str, Array | np.ndarray]:
    """The arrays of a plan file: time (N+1), q, v, perhaps z; controls (N, nu), feedback (N, nu, nx), bounds, design."""
    placed = problem.with_design(found.value.design)
    return {
        "time": np.arange(problem.steps + 1) * float(placed.dt),
        "q": found.value.states.q,
        "v": found.value.states.v,
        **({} if found.value.states.z is None else {"z": found.value.states.z}),
        "controls": found.value.controls,
        "feedback": found.feedback,
        "lower": placed.lower,
        "upper": placed.upper,
        "design": found.value.design,
    }


def replay_config(problem: ControlProblem, design: Float[Array, "P"]) -> str:
    """Text of a config of `jaxdyn rollout` that replays the plan in the directory of the config, with the mechanism there."""
    placed = problem.with_design(design)
    assert isinstance(problem.dynamics, MultibodyDynamics)
    integrator = next(name for name, integrator in INTEGRATORS.items() if integrator == problem.dynamics.method)
    lines = [
        "# Replays the plan of this directory; jaxdyn rollout replay.toml",
        f'mechanism = "{MECHANISM}.json"',
        "batch = 1",
        f'dtype = "{placed.lower.dtype}"',
        "",
        "[time]",
        f"duration = {float(placed.duration)!r} # s",
        f"rate = {problem.steps / float(placed.duration)!r} # Hz",
        f'integrator = "{integrator}"',
        "",
        "[control]",
        f'replay = "{PLAN}.npz"',
    ]
    return "\n".join(lines) + "\n"


class ReplayedPlan(eqx.Module):
    """A plan as controls of a rollout: u_k, or with feedback u_k + K_k (x - x_k) within the bounds, constant in each step.

    Attributes:
        states: States x_0 to x_N of the plan.
        controls: Controls u_0 to u_{N-1} of the plan.
        feedback: Feedback gains K_k, or None for open-loop controls.
        lower, upper: Bounds of the controls.
        interval: Duration of a time step of the plan, s.
    """

    states: State
    controls: Float[Array, "N nu"]
    feedback: Float[Array, "N nu nx"] | None
    lower: Float[Array, "nu"]
    upper: Float[Array, "nu"]
    interval: Float[Array, ""]

    def policy(self, system: System):
        """The controls as a function of time, state and random key."""

        def held(values: Array) -> Knots:
            return Knots(values.reshape(len(values), -1), self.interval, interpolation="zero_order")

        u = held(self.controls)
        if self.feedback is None:
            return u
        gains, reference = held(self.feedback), [held(x) for x in jax.tree.leaves(self.states)]

        def policy(t: Float[Array, ""], state: State, key: PRNGKeyArray | None) -> Float[Array, "nu"]:
            off = MultibodyDynamics(system).difference(State(*(x(t) for x in reference)), state)
            K = gains(t).reshape(system.nu, off.size)
            return jnp.clip(u(t) + jnp.sum(K * off[None], axis=1), self.lower, self.upper)

        return policy


def load_replay(config: RolloutConfig, system: System) -> ReplayedPlan | None:
    """Read the plan that the config of rollouts of a system replays; None if it replays none.

    Raises:
        ConfigError: The file does not exist or is damaged, belongs to another mechanism, or its times do not fit; or the plan
            has no feedback gains.
    """
    path, feedback, time = config.control.replay, config.control.replay_feedback, config.time
    if path is None:
        return None
    key = f"control.replay: {path}"
    try:
        arrays = {"z": np.zeros((1, 0))} | RunDirectory(path.parent).read_arrays(path.stem)
    except RunError as error:
        raise ConfigError(f"control.replay: {error}") from None
    absent = [name for name, axes in _SHAPES.items() if name not in arrays or arrays[name].ndim != axes]
    if absent:
        raise ConfigError(
            f"{key}: arrays {', '.join(absent)} are missing; give the plan.npz of a run of jaxdyn optimize"
        )
    model, steps = system.model, len(arrays["controls"])
    sizes = {"coordinates": ("q", model.nq), "velocities": ("v", model.nv), "controls": ("controls", system.nu)}
    sizes["states of drives"] = "z", system.nz
    for what, (name, size) in sizes.items():
        if arrays[name].shape[1] != size:
            raise ConfigError(
                f"{key}: its plan has {arrays[name].shape[1]} {what}, but the mechanism has {size}; give the "
                "mechanism of the same run"
            )
    if feedback and not np.any(arrays["feedback"]):
        raise ConfigError(
            f"{key}: its plan has no feedback gains, because its solver computes none; set "
            "control.replay_feedback = false"
        )
    interval = float(arrays["time"][-1]) / steps
    multiple = time.rate * interval
    if abs(multiple - round(multiple)) > _SAME_RATE * multiple or round(multiple) < 1:
        raise ConfigError(
            f"{key}: time.rate = {time.rate:.10g} Hz is not a multiple of the {1 / interval:.10g} Hz of the plan; choose a multiple"
        )
    if feedback and round(multiple) != 1:
        raise ConfigError(
            f"{key}: feedback acts once in each step of the plan; set time.rate = {1 / interval:.10g}, or replay_feedback = false"
        )
    if time.duration > (1.0 + _SAME_RATE) * steps * interval:
        raise ConfigError(
            f"{key}: the plan ends after {steps * interval:.10g} s, before time.duration = {time.duration:.10g} s; shorten it"
        )
    _, q, v, controls, gains, lower, upper = (jnp.asarray(arrays[name], model.dtype) for name in _SHAPES)
    step = jnp.asarray(interval, model.dtype)
    z = jnp.asarray(arrays["z"], model.dtype) if system.nz else None
    return ReplayedPlan(State(q, v, z), controls, gains if feedback else None, lower, upper, step)
