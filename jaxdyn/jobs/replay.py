"""Plans of controls as files, and as what drives the lanes of a rollout."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jaxdyn.control.plan import Plan, rollout_controls
from jaxdyn.control.problem import ControlProblem
from jaxdyn.control.solution import Solution
from jaxdyn.dynamics.system import State, System
from jaxdyn.io.errors import ConfigError, RunError
from jaxdyn.io.runs import MECHANISM, RunDirectory
from jaxdyn.jobs.integrators import IntegratorName
from jaxdyn.lanes import stored_jit
from jaxdyn.lanes.announcements import announced_as
from jaxdyn.mechanism import configuration
from jaxdyn.simulate.controls import Knots

PLAN = "plan"

_SAME_RATE = 1e-6  # relative difference of rates that is rounding
_SHAPES = {"time": 1, "q": 2, "v": 2, "controls": 2, "feedback": 3, "lower": 1, "upper": 1}


def saved_plan(problem: ControlProblem, found: Solution) -> dict[str, Array | np.ndarray]:
    """The arrays of a plan file: time (N+1), q, v; controls (N, nu), feedback (N, nu, 2 nv), bounds, design."""
    placed = problem.with_design(found.value.design)
    return {
        "time": np.arange(problem.steps + 1) * float(placed.dt),
        "q": found.value.states.q,
        "v": found.value.states.v,
        "controls": found.value.controls,
        "feedback": found.feedback,
        "lower": placed.lower,
        "upper": placed.upper,
        "design": found.value.design,
    }


def replay_config(problem: ControlProblem, design: Float[Array, "P"], integrator: IntegratorName) -> str:
    """A config of `jaxdyn rollout` beside the plan and its mechanism that replays it."""
    placed = problem.with_design(design)
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


@announced_as("the replay")
def open_loop_error(problem: ControlProblem, plan: Plan) -> float:
    """Largest distance, in tangent coordinates, from the end of a plan to where its controls alone lead."""
    end = stored_jit(lambda controls, design: rollout_controls(problem, controls, design).states)(
        plan.controls, plan.design
    )
    last = (jax.tree.map(lambda leaf: leaf[-1], states) for states in (plan.states, end))
    return float(jnp.max(jnp.abs(problem.dynamics.difference(*last))))


class ReplayedPlan(eqx.Module):
    """A plan that drives a rollout: u_k, or with feedback u_k + K_k (x - x_k) within its bounds, held for each step.

    Attributes:
        states: x_0 to x_N.
        controls: u_0 to u_{N-1}.
        feedback: K, or None for none.
        lower, upper: Bounds of the controls.
        interval: Length of a step, s.
    """

    states: State
    controls: Float[Array, "N nu"]
    feedback: Float[Array, "N nu nx"] | None
    lower: Float[Array, "nu"]
    upper: Float[Array, "nu"]
    interval: Float[Array, ""]

    def policy(self, system: System):
        """The controls as a function of time, state and random key."""
        model = system.model
        held = Knots(self.controls, self.interval, interpolation="zero_order")
        if self.feedback is None:
            return held
        gains = Knots(self.feedback.reshape(len(self.controls), -1), self.interval, interpolation="zero_order")
        planned_q, planned_v = (
            Knots(values, self.interval, interpolation="zero_order") for values in (self.states.q, self.states.v)
        )

        def policy(t: Float[Array, ""], state: State, key: PRNGKeyArray | None) -> Float[Array, "nu"]:
            off = jnp.concatenate([configuration.difference(model, planned_q(t), state.q), state.v - planned_v(t)])
            K = gains(t).reshape(system.nu, off.size)
            return jnp.clip(held(t) + jnp.sum(K * off[None], axis=1), self.lower, self.upper)

        return policy


def load_replay(path: Path, system: System, *, rate: float, duration: float, feedback: bool) -> ReplayedPlan:
    """The plan in a file, for rollouts of a system at some rate (Hz) for some duration (s).

    Raises:
        ConfigError: There is no such file or it is damaged, it is of another mechanism, or the times do not fit.
    """
    key = f"control.replay: {path}"
    try:
        arrays = RunDirectory(path.parent).read_arrays(path.stem)
    except RunError as error:
        raise ConfigError(f"control.replay: {error}") from None
    absent = [name for name, axes in _SHAPES.items() if name not in arrays or arrays[name].ndim != axes]
    if absent:
        raise ConfigError(f"{key}: it has no {', '.join(absent)}; name the plan.npz of a run of jaxdyn optimize")
    model, steps = system.model, len(arrays["controls"])
    sizes = {"coordinates": ("q", model.nq), "velocities": ("v", model.nv), "controls": ("controls", system.nu)}
    for what, (name, size) in sizes.items():
        if arrays[name].shape[1] != size:
            raise ConfigError(
                f"{key}: its plan has {arrays[name].shape[1]} {what}, the mechanism has {size}; name the mechanism of the same run"
            )
    interval = float(arrays["time"][-1]) / steps
    multiple = rate * interval
    if abs(multiple - round(multiple)) > _SAME_RATE * multiple or round(multiple) < 1:
        raise ConfigError(
            f"{key}: time.rate = {rate:.10g} Hz is no multiple of the {1 / interval:.10g} Hz of the plan; choose one"
        )
    if feedback and round(multiple) != 1:
        raise ConfigError(
            f"{key}: feedback acts once in each step of the plan; set time.rate = {1 / interval:.10g}, or replay_feedback = false"
        )
    if duration > (1.0 + _SAME_RATE) * steps * interval:
        raise ConfigError(
            f"{key}: the plan ends after {steps * interval:.10g} s, before time.duration = {duration:.10g} s; shorten it"
        )
    numbers = {name: jnp.asarray(arrays[name], model.dtype) for name in _SHAPES}
    return ReplayedPlan(
        State(numbers["q"], numbers["v"]),
        numbers["controls"],
        numbers["feedback"] if feedback else None,
        numbers["lower"],
        numbers["upper"],
        jnp.asarray(interval, model.dtype),
    )
