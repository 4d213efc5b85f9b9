"""The config of `jaxdyn rollout`: which mechanism, how many samples, from where, driven by what, for how long."""

import dataclasses
from pathlib import Path
from typing import Literal

from jaxdyn.io.config import setting
from jaxdyn.jobs.choices import BackendName, DeviceChoice, IntegratorName, Precision

# Beyond this a typing error is likelier than a wish: years of work at a million steps per second.
_MOST_STEPS = 1e14


@dataclasses.dataclass(frozen=True)
class InitialConfig:
    """Initial states.

    Attributes:
        spread: Initial coordinates are drawn from this fraction of the range between the joint limits, about its middle. Where a
            joint has no limits, this is the standard deviation of its coordinate (rad, m). It is 0.5 if not given. In a replay it
            is the standard deviation of all coordinates about the initial state of the plan, and 0 if not given.
        speed: Initial velocities have this standard deviation, in a replay about those of the plan.
    """

    spread: float | None = setting(None, non_negative=True)
    speed: float = setting(0.0, unit="rad/s", non_negative=True)


@dataclasses.dataclass(frozen=True)
class ControlConfig:
    """Joint-space PD control, tau = stiffness (target - q) - damping v, plus a random torque sequence; or the replay of a plan.

    Attributes:
        target: The controller holds the "middle" of the joint limits (neutral where there are none), or the "initial"
            configuration of each sample.
        stiffness: The proportional gains are one value for all velocity components or one each.
        damping: The derivative gains are one value for all velocity components or one each.
        compensate_gravity: If true, the torque that holds the mechanism against gravity is added.
        random_torque: The random torque has this standard deviation, N m or N, one value for all velocity components or one each.
        random_interval: The random torque is linear between knots that are this far apart in time.
        replay: The controls of this plan.npz, from a run of jaxdyn optimize, act on the drives instead of the controller.
        replay_feedback: If true, the feedback gains of the plan act on deviations from it, within the bounds of its controls.
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
        duration: The motion is simulated for this time.
        rate: The controller acts this many times per second.
        substeps: The integrator makes this many steps per control step.
        save_every: A state is saved after each such number of control steps.
        integrator: This one-step method is used; "projected" is Runge-Kutta 4 with loops closed exactly after each step.
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
        mechanism: This mechanism file, .toml, .urdf, .xml (URDF or MJCF) or .json, is simulated.
        batch: This many samples are simulated.
        seed: All random values follow from this seed.
        dtype: All computations have this precision.
        method: The forward dynamics use this algorithm; it is the one of the mechanism if not given.
        stabilization: Errors of loops decay at this rate, see `jaxdyn.System`; it is the one of the mechanism if not given.
        limits: "enforced" stops joints at their limits of position by springs and dampers; "data" lets them pass.
        backend: "lanes" is the lane compiler, "xla" leaves everything to XLA, "auto" takes lanes on CPUs where they can serve.
        devices: The samples are divided over "one" device, over "all" of this machine, or over those of all "hosts".
        memory: A batch that needs more memory than this is simulated in chunks.
        chunk: At most this many samples are simulated and written at once; as many as fit into the memory if not given. An
            interrupted run that is resumed loses the chunk it was working on.
        most_failed: If a larger fraction of the samples diverges or stops at an unsolved step, the exit status is 3.
        pictures: If true, pictures are drawn.
    """

    mechanism: Path
    time: TimeConfig
    batch: int = setting(positive=True)
    seed: int = setting(0, non_negative=True)
    dtype: Precision = "float32"
    method: Literal["cholesky", "articulated_body"] | None = None
    stabilization: float | None = setting(None, unit="1/s", non_negative=True)
    limits: Literal["data", "enforced"] = "data"
    backend: BackendName = "auto"
    devices: DeviceChoice = "all"
    memory: float = setting(4e9, unit="B", positive=True)
    chunk: int | None = setting(None, positive=True)
    most_failed: float = setting(0.01, non_negative=True)
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
                f"{self.batch} samples of {self.time.duration:g} s at {self.time.rate:g} Hz are {self.batch * steps:.2g} steps; "
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
        """Control steps of a sample."""
        return round(self.time.duration * self.time.rate)

    @property
    def records(self) -> int:
        """Records of a sample after the start."""
        return self.steps // self.time.save_every
