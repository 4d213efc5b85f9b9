"""The config of `jaxdyn rollout`: mechanism, number of samples, initial states, controls and duration."""

import dataclasses
from pathlib import Path
from typing import Literal

from jaxdyn.io.config import seed_setting, setting
from jaxdyn.jobs.choices import BackendName, BaseName, ContactName, DeviceChoice, IntegratorName, MethodName, Precision
from jaxdyn.mechanism.quantity import DAMPING, EFFORT, STIFFNESS, VELOCITY

# A larger number of steps is probably a typing error: it takes years at a million steps per second.
_MOST_STEPS = 1e14


@dataclasses.dataclass(frozen=True)
class InitialConfig:
    """Initial states of the samples.

    Attributes:
        spread: Fraction of the range between the joint limits, around its middle, in which initial coordinates are drawn; the
            default is 0.5. For a joint without limits, `spread` is the standard deviation of its coordinate (rad or m). In a
            replay, `spread` is the standard deviation of all coordinates from the initial state of the plan, with default 0.
        speed: Standard deviations of the initial velocities, one value for all or one per velocity component; in a replay, of their
            deviations from the initial velocities of the plan.
    """

    spread: float | None = setting(None, minimum=0.0)
    speed: tuple[float, ...] = setting((0.0,), unit=VELOCITY, minimum=0.0, broadcast=True)


@dataclasses.dataclass(frozen=True)
class ControlConfig:
    """Joint-space PD control, tau = stiffness (target - q) - damping v, plus a random torque sequence; or the replay of a plan.

    Attributes:
        target: Target of the controller: the "middle" of the joint limits (neutral for joints without limits), or the "initial"
            configuration of each sample.
        stiffness: Proportional gains, one value for all velocity components or one per component.
        damping: Derivative gains, one value for all velocity components or one per component.
        compensate_gravity: If true, the generalized forces that balance gravity are added.
        random_torque: Standard deviation of the random torque, one value for all velocity components or one per
            component.
        random_interval: Time between random torque values; the torque is interpolated linearly between them.
        replay: File plan.npz of a run of jaxdyn optimize; the controls of its plan act on the drives instead of the PD controller.
        replay_feedback: If true, the feedback gains K_k of the plan are used too: u = u_k + K_k (x - x_k), clipped to the bounds of
            the controls.
    """

    target: Literal["middle", "initial"] = "middle"
    stiffness: tuple[float, ...] = setting((0.0,), unit=STIFFNESS, minimum=0.0, broadcast=True)
    damping: tuple[float, ...] = setting((0.0,), unit=DAMPING, minimum=0.0, broadcast=True)
    compensate_gravity: bool = False
    random_torque: tuple[float, ...] = setting((0.0,), unit=EFFORT, minimum=0.0, broadcast=True)
    random_interval: float = setting(0.05, unit="s", positive=True)
    replay: Path | None = None
    replay_feedback: bool = False

    def __post_init__(self):
        if self.replay is None and self.replay_feedback:
            raise ValueError("replay_feedback requires replay; set replay to the plan.npz of a run of jaxdyn optimize")
        others = [field for field in dataclasses.fields(self) if not field.name.startswith("replay")]
        changed = [field.name for field in others if getattr(self, field.name) != field.default]
        if self.replay is not None and changed:
            raise ValueError(f"replay cannot be combined with {', '.join(changed)}; remove one or the other")

    @property
    def depends_on_state(self) -> bool:
        """Whether the controls depend on the state."""
        return self.replay_feedback or self.compensate_gravity or any((*self.stiffness, *self.damping))


@dataclasses.dataclass(frozen=True)
class TimeConfig:
    """Duration, rates and integrator.

    Attributes:
        duration: Duration of the simulated motion.
        rate: Rate of the control steps.
        substeps: Number of integrator steps per control step.
        save_every: Number of control steps from one saved state to the next.
        integrator: One-step method of the simulation; "projected" is Runge-Kutta 4 with a projection onto the loop constraints
            after each step.
    """

    duration: float = setting(unit="s", positive=True)
    rate: float = setting(unit="Hz", positive=True)
    substeps: int = setting(1, positive=True)
    save_every: int = setting(1, positive=True)
    integrator: IntegratorName = "semi_implicit_euler"


@dataclasses.dataclass(frozen=True)
class RolloutConfig:
    """Config of `jaxdyn rollout`.

    Each sample starts from its own random state and is driven by joint-space PD control and random torques. The resolved
    config, the mechanism (mechanism.json, mechanism.npz), metrics.json, states.npz (or, for a batch that is simulated in
    chunks, states-00001-of-00008.npz and so on) and pictures are written to the run directory.

    Attributes:
        mechanism: Mechanism file (.toml, .urdf, .xacro, .xml or .json), the directory of a run, or the name of a robot of
            robot_descriptions. The controls of an identified plant act through the gains, offsets and delays of its inputs.
        base: Root link of a URDF file: "fixed" to the ground or "free" to move; fixed if not given.
        repair: If true, unphysical inertias of a URDF file are corrected, and of repeated elements only the first is used.
        ignore: Elements of an MJCF file that are left out if they are not supported, by their names or kinds.
        batch: Number of samples that are simulated.
        spread: With "posterior", each sample has its own machine, drawn from the covariance of the estimates of the identified
            plant (`jaxdyn.identify.samples`); states.npz contains the estimated values of each machine as `parameters`. Controllers
            know only the estimates. With "none", all samples have the same machine.
        seed: Seed of all random values.
        dtype: Precision of all computations.
        method: Algorithm of the forward dynamics; by default that of the mechanism, see `jaxdyn.forward_dynamics`.
        stabilization: Decay rate of violations of the loop constraints, see `jaxdyn.System`; by default that of the mechanism.
        limits: Effect of the joint position limits: "enforced" adds stops (springs and dampers) at the limits; with "data" the
            limits do not affect the motion.
        contact: Use of the colliders of a URDF or MJCF file: with "ground" they are contacts with the ground; with "none" they are
            not simulated. Mechanism files of other formats state their contacts.
        backend: Compiler of the computations: "lanes" for the lane compiler, "xla" for XLA, "auto" for the lane compiler where it
            supports the computation.
        devices: Devices over which the samples are divided: "one" device, or "all" devices of this machine.
        chunk: Maximum number of samples per chunk, which are written to one file; by default as many as 4 GB hold while they are
            simulated. If a run is interrupted, only the chunk that was being computed is lost. Several processes divide the chunks
            of a run among themselves (--resume).
        memory: Memory of one device that a simulation may use; a larger chunk is simulated in parts.
        most_failed: Largest accepted fraction of samples that diverge or stop at an unsolved step; if it is exceeded, the exit
            status is 3.
        outputs: Further arrays of states.npz: "contact_forces" are the forces of all contacts (N), "position:FRAME" is the position
            of the origin of a body or frame (m), and "velocity:FRAME" is its velocity (m/s); vectors are on world axes.
        pictures: If true, pictures are drawn.
        initial: Random initial states.
        control: Controller, or replay of a plan.
        time: Duration, rates and integrator.
    """

    mechanism: Path
    time: TimeConfig
    batch: int = setting(positive=True)
    spread: Literal["none", "posterior"] = "none"
    base: BaseName | None = None
    repair: bool = False
    ignore: tuple[str, ...] = ()
    seed: int = seed_setting()
    dtype: Precision = "float32"
    method: MethodName | None = None
    stabilization: float | None = setting(None, unit="1/s", minimum=0.0)
    limits: Literal["data", "enforced"] = "data"
    contact: ContactName = "none"
    backend: BackendName = "auto"
    devices: DeviceChoice = "all"
    chunk: int | None = setting(None, positive=True)
    memory: float = setting(4e9, unit="B", positive=True)
    most_failed: float = setting(0.01, minimum=0.0, maximum=1.0)
    outputs: tuple[str, ...] = ()
    pictures: bool = True
    initial: InitialConfig = InitialConfig()
    control: ControlConfig = ControlConfig()

    def __post_init__(self):
        steps = self.time.duration * self.time.rate
        if round(steps) < 1:
            raise ValueError(
                f"time.duration = {self.time.duration:g} s is shorter than one step; increase it or raise time.rate"
            )
        if self.batch * steps > _MOST_STEPS:
            raise ValueError(
                f"{self.batch} samples of {self.time.duration:g} s at {self.time.rate:g} Hz are {self.batch * steps:.2g} steps; "
                f"the limit is {_MOST_STEPS:.0e}"
            )
        if round(steps) % self.time.save_every:
            raise ValueError(
                f"time.save_every = {self.time.save_every} does not divide the {round(steps)} steps of "
                f"{self.time.duration:g} s at {self.time.rate:g} Hz; choose a divisor"
            )
        if self.control.replay is None and self.time.duration / self.control.random_interval > steps:
            raise ValueError(
                f"control.random_interval = {self.control.random_interval:g} s is shorter than a step; increase it"
            )

    @property
    def steps(self) -> int:
        """Number of control steps of a sample."""
        return round(self.time.duration * self.time.rate)

    @property
    def records(self) -> int:
        """Number of records of a sample after the initial state."""
        return self.steps // self.time.save_every
