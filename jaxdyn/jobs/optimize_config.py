"""The config of `jaxdyn optimize`: which machine, from where to where, at what cost, by which method, from which starts."""

import dataclasses
from pathlib import Path
from typing import Literal

from jaxdyn.io.config import setting
from jaxdyn.io.placements import quaternion_from_rpy
from jaxdyn.jobs.choices import BackendName, CollocationName, DeviceChoice, IntegratorName, Precision

_NOWHERE = (0.0, 0.0, 0.0)


@dataclasses.dataclass(frozen=True)
class HorizonConfig:
    """Time.

    Attributes:
        duration: of the motion; where to begin if it is free.
        steps: of equal length, in each of which the controls are held.
        integrator: one-step method, one step of it for each.
        shortest, longest: bounds of the duration, which is free if they are given.
    """

    duration: float = setting(unit="s", positive=True)
    steps: int = setting(positive=True)
    integrator: IntegratorName = "runge_kutta_4"
    shortest: float | None = setting(None, unit="s", positive=True)
    longest: float | None = setting(None, unit="s", positive=True)

    def __post_init__(self):
        if (self.shortest is None) != (self.longest is None):
            raise ValueError("a free duration needs both shortest and longest; give both, or none")
        if self.shortest is not None and self.longest is not None and not self.shortest < self.longest:
            raise ValueError(f"shortest = {self.shortest:g} s is not below longest = {self.longest:g} s; exchange them")


@dataclasses.dataclass(frozen=True)
class StateConfig:
    """A state.

    Attributes:
        q: coordinates, rad or m; the neutral ones if not given.
        v: velocities, one number for all or one each.
    """

    q: tuple[float, ...] | None = None
    v: tuple[float, ...] = setting((0.0,), broadcast=True)


@dataclasses.dataclass(frozen=True)
class BoundsConfig:
    """Bounds of the controls, one number for all or one each; those of the effort limits of the mechanism if not given.

    Attributes:
        lower, upper: N m or N; inf for none.
    """

    lower: tuple[float, ...] | None = setting(None, broadcast=True, infinite=True)
    upper: tuple[float, ...] | None = setting(None, broadcast=True, infinite=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviationConfig(StateConfig):
    """Weights times squares of the deviation from a state.

    Attributes:
        kind: "deviation", half the sum of weights times squares of the difference to the state q, v.
        weights: one number for all or one for each velocity component, first those of q, then those of v.
        q, v: the state to be in.
    """

    kind: Literal["deviation"]
    weights: tuple[float, ...] = setting((1.0,), broadcast=True, non_negative=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AngularDeviationConfig:
    """Deviation of angles, whole turns not counted.

    Attributes:
        kind: "angular_deviation", sum of weights times (1 - cos of the difference to q).
        q: the configuration to have; the neutral one if not given.
        weights: one number for all or one for each velocity component.
    """

    kind: Literal["angular_deviation"]
    q: tuple[float, ...] | None = None
    weights: tuple[float, ...] = setting((1.0,), broadcast=True, non_negative=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EffortConfig:
    """Weights times squares of the controls.

    Attributes:
        kind: "effort", half the sum of weights times squares of the controls.
        weights: one number for all or one for each control.
    """

    kind: Literal["effort"]
    weights: tuple[float, ...] = setting((1.0,), broadcast=True, non_negative=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FramePoseConfig:
    """A frame that should be somewhere.

    Attributes:
        kind: "frame_pose", half the weighted squares of the distance and of the angle to a pose.
        frame: name of a body or frame.
        position: where its origin should be, in the ground.
        orientation, rpy: its wanted rotation, as a quaternion [w, x, y, z] or as angles.
        position_weight, rotation_weight: 1/m^2, 1/rad^2.
    """

    kind: Literal["frame_pose"]
    frame: str
    position: tuple[float, float, float] = setting(unit="m")
    orientation: tuple[float, float, float, float] | None = None
    rpy: tuple[float, float, float] | None = setting(None, unit="rad")
    position_weight: float = setting(1.0, non_negative=True)
    rotation_weight: float = setting(0.0, non_negative=True)

    def __post_init__(self):
        if self.orientation is not None and self.rpy is not None:
            raise ValueError("orientation and rpy are both given; remove one")

    @property
    def quaternion(self) -> tuple[float, ...]:
        """The wanted rotation."""
        return quaternion_from_rpy(self.rpy or _NOWHERE) if self.orientation is None else self.orientation


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnergyConfig:
    """An energy to have.

    Attributes:
        kind: "energy", half the weight times the square of total energy minus level.
        level: J.
        weight: 1/J^2.
    """

    kind: Literal["energy"]
    level: float
    weight: float = setting(1.0, non_negative=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElapsedTimeConfig:
    """Time.

    Attributes:
        kind: "time", weight times the time that has passed; at the end the duration.
        weight: 1/s.
    """

    kind: Literal["time"]
    weight: float = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class SphereConfig:
    """A sphere on a body.

    Attributes:
        body: its name.
        center: on its axes, from its joint point.
        radius: of the sphere.
    """

    body: str
    center: tuple[float, float, float] = setting(_NOWHERE, unit="m")
    radius: float = setting(unit="m", positive=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObstacleConfig:
    """A sphere in the ground.

    Attributes:
        center: of the sphere.
        radius: of the sphere.
    """

    center: tuple[float, float, float] = setting(unit="m")
    radius: float = setting(unit="m", positive=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpheresConfig:
    """Spheres that keep clear of each other.

    Attributes:
        kind: "spheres", those on bodies do not touch obstacles.
        sphere: on bodies.
        obstacle: in the ground.
        margin: distance to keep.
    """

    kind: Literal["spheres"]
    sphere: tuple[SphereConfig, ...]
    obstacle: tuple[ObstacleConfig, ...]
    margin: float = setting(0.0, unit="m", non_negative=True)

    def __post_init__(self):
        if not self.sphere or not self.obstacle:
            raise ValueError("there is no sphere or no obstacle; give one or more of each")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PenetrationConfig(SpheresConfig):
    """Spheres that had better keep clear of each other.

    Attributes:
        kind: "penetration", half the weight times squares of the depths of spheres on bodies in obstacles.
        sphere, obstacle, margin: as for "spheres".
        weight: 1/m^2.
    """

    kind: Literal["penetration"]  # pyright: ignore[reportIncompatibleVariableOverride]
    weight: float = setting(1.0, non_negative=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StateConditionConfig:
    """A state that is reached.

    Attributes:
        kind: "state", the state has these coordinates and these velocities; what is not given is free.
        q: coordinates.
        v: velocities, one number for all or one each.
    """

    kind: Literal["state"]
    q: tuple[float, ...] | None = None
    v: tuple[float, ...] | None = setting(None, broadcast=True)

    def __post_init__(self):
        if self.q is None and self.v is None:
            raise ValueError("neither q nor v is given; give one of them, or both")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StateBoundsConfig:
    """Bounds of coordinates and velocities.

    Attributes:
        kind: "state_bounds", coordinates and velocities stay between bounds.
        q_lower, q_upper: one number for all coordinates or one each; those of the joints if not given, inf for none.
        v_lower, v_upper: one number for all velocities or one each; those of the joints if not given, inf for none.
    """

    kind: Literal["state_bounds"]
    q_lower: tuple[float, ...] | None = setting(None, broadcast=True, infinite=True)
    q_upper: tuple[float, ...] | None = setting(None, broadcast=True, infinite=True)
    v_lower: tuple[float, ...] | None = setting(None, broadcast=True, infinite=True)
    v_upper: tuple[float, ...] | None = setting(None, broadcast=True, infinite=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorklessConfig:
    """Controls that do no work.

    Attributes:
        kind: "workless", the power of the controls is zero at every time.
    """

    kind: Literal["workless"]


CostConfig = (
    DeviationConfig
    | AngularDeviationConfig
    | EffortConfig
    | FramePoseConfig
    | EnergyConfig
    | ElapsedTimeConfig
    | PenetrationConfig
)
ConditionConfig = StateConditionConfig | StateBoundsConfig | SpheresConfig | WorklessConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class StillStartConfig:
    """One start with controls that do not change.

    Attributes:
        kind: "constant", one start with controls that do not change.
        controls: one number for all or one each.
    """

    kind: Literal["constant"] = "constant"
    controls: tuple[float, ...] = setting((0.0,), broadcast=True)

    @property
    def count(self) -> int:
        """Number of starts."""
        return 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class SineStartConfig:
    """One start with controls that swing.

    Attributes:
        kind: "sine", one start with the controls amplitude * sin(rate * time).
        amplitude: one number for all controls or one each.
        rate: of the angle.
    """

    kind: Literal["sine"]
    amplitude: tuple[float, ...] = setting((1.0,), broadcast=True)
    rate: float = setting(unit="rad/s", positive=True)

    @property
    def count(self) -> int:
        """Number of starts."""
        return 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomStartConfig:
    """Starts with random controls.

    Attributes:
        kind: "random", starts with normally distributed controls.
        count: how many.
        amplitude: standard deviation, one number for all controls or one each.
        interval: for which each is held; one step if not given.
        seed: of the random numbers.
    """

    kind: Literal["random"]
    count: int = setting(64, positive=True)
    amplitude: tuple[float, ...] = setting((1.0,), broadcast=True, non_negative=True)
    interval: float | None = setting(None, unit="s", positive=True)
    seed: int = setting(0, non_negative=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StatesStartConfig:
    """Starts with a guessed motion and no controls.

    Attributes:
        kind: "states", starts with a motion through given configurations, whatever it takes, and controls zero.
        times: of the configurations, the first 0, the last the duration.
        q: the configurations; the motion between two of them is straight in tangent coordinates.
        count: how many starts, the first as given, the others with random configurations in between.
        spread: standard deviation of these about the given ones, or the most that they are off, rad or m.
        distribution: "normal", or "uniform" within the spread.
        seed: of the random numbers.
    """

    kind: Literal["states"]
    times: tuple[float, ...] = setting(unit="s", non_negative=True)
    q: tuple[tuple[float, ...], ...]
    count: int = setting(1, positive=True)
    spread: float = setting(0.0, non_negative=True)
    distribution: Literal["normal", "uniform"] = "normal"
    seed: int = setting(0, non_negative=True)

    def __post_init__(self):
        if len(self.times) < 2 or len(self.times) != len(self.q):
            raise ValueError(
                f"there are {len(self.times)} times and {len(self.q)} configurations; give 2 or more of each"
            )
        if any(b <= a for a, b in zip(self.times, self.times[1:], strict=False)):
            raise ValueError("the times do not ascend; sort them")


StartConfig = StillStartConfig | SineStartConfig | RandomStartConfig | StatesStartConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class NewtonConfig:
    """Solvers by second-order expansions.

    Attributes:
        kind: "ilqr" or "ddp".
        tolerance: relative decrease of the cost that is not worth another iteration; 1e-9, in single precision 1e-5, if not given.
        feasibility: largest violation of conditions in a solution; 1e-6, in single precision 1e-4, if not given.
        penalty: on violations, to begin with.
    """

    kind: Literal["ilqr", "ddp"] = "ddp"
    tolerance: float | None = setting(None, positive=True)
    feasibility: float | None = setting(None, positive=True)
    penalty: float = setting(1.0, positive=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollocationConfig:
    """Direct collocation; the plan has the means of the controls over each step.

    Attributes:
        kind: "collocation", by Ipopt (extra "nlp"); starts are solved and written one by one; steps of the time are its intervals.
        scheme: how states and rates are tied.
        degree: number of points in each interval of "legendre_gauss".
        tolerance: of the optimality conditions, in the scaling of Ipopt.
        feasibility: largest violation of equations and conditions in a solution.
    """

    kind: Literal["collocation"]
    scheme: CollocationName = "legendre_gauss"
    degree: int = setting(3, positive=True)
    tolerance: float = setting(1e-9, positive=True)
    feasibility: float = setting(1e-8, positive=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultipleShootingConfig:
    """Newton's method on states and controls at once.

    Attributes:
        kind: "multiple_shooting", an interior-point method; starts by "states" may be far from any motion.
        tolerance: of the scaled conditions of optimality and of violations; 1e-8, in single precision 1e-4, if not given.
        parallel: whether the steps of the time are worked on at once, on machines with many threads.
    """

    kind: Literal["multiple_shooting"]
    tolerance: float | None = setting(None, positive=True)
    parallel: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class SingleShootingConfig:
    """Gradient descent on the controls.

    Attributes:
        kind: "single_shooting", gradients by the adjoint of the motion.
        optimizer: "lbfgs", which finds the lengths of its steps, or "adam".
        rate: of "adam", as in optax.
        tolerance: relative decrease of the cost over 20 iterations that is not worth as many more; 1e-9, in single precision 1e-5.
        feasibility: largest violation of conditions in a solution; 1e-6, in single precision 1e-4, if not given.
        penalty: on violations, to begin with.
    """

    kind: Literal["single_shooting"]
    optimizer: Literal["lbfgs", "adam"] = "lbfgs"
    rate: float = setting(0.05, positive=True)
    tolerance: float | None = setting(None, positive=True)
    feasibility: float | None = setting(None, positive=True)
    penalty: float = setting(1.0, positive=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """Controls by sampling about those of the start, without gradients.

    Attributes:
        samples: rolled out in each iteration.
        knots: at which controls are drawn, linear in between; one for each step if not given.
        spread: standard deviation at first, N m or N; 0.3 of the distance between the bounds if not given.
        penalty: on the squares of violations.
        tolerance: relative decrease of cost and penalties that is worth going on.
        patience: iterations without it after which the search has ended.
        feasibility: largest violation in a solution.
        seed: of the draws.
    """

    samples: int = setting(256, positive=True)
    knots: int | None = setting(None, positive=True)
    spread: float | None = setting(None, positive=True)
    penalty: float = setting(1e3, positive=True)
    tolerance: float = setting(1e-4, positive=True)
    patience: int = setting(20, positive=True)
    feasibility: float = setting(1e-2, positive=True)
    seed: int = setting(0, non_negative=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictiveSamplingConfig(SamplingConfig):
    """Sampling that follows the best.

    Attributes:
        kind: "predictive", the best sample is the next mean.
        samples, knots, spread, penalty, tolerance, patience, feasibility, seed: of all sampling.
    """

    kind: Literal["predictive"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PathIntegralConfig(SamplingConfig):
    """Sampling that follows all, the better the more.

    Attributes:
        kind: "mppi", the next mean is that of all samples, weighted by exp(-cost / temperature).
        temperature: as a share of the difference between the mean cost and the best.
        samples, knots, spread, penalty, tolerance, patience, feasibility, seed: of all sampling.
    """

    kind: Literal["mppi"]
    temperature: float = setting(0.1, positive=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CrossEntropyConfig(SamplingConfig):
    """Sampling that follows the best few.

    Attributes:
        kind: "cem", the next mean and spread are those of the best samples.
        elites: how many are the best.
        samples, knots, spread, penalty, tolerance, patience, feasibility, seed: of all sampling.
    """

    kind: Literal["cem"]
    elites: int = setting(16, positive=True)

    def __post_init__(self):
        if not 1 < self.elites <= self.samples:
            raise ValueError(
                f"elites = {self.elites} of {self.samples} samples; take 2 or more, and no more than samples"
            )


SolverConfig = (
    NewtonConfig
    | MultipleShootingConfig
    | SingleShootingConfig
    | PathIntegralConfig
    | CrossEntropyConfig
    | PredictiveSamplingConfig
    | CollocationConfig
)


@dataclasses.dataclass(frozen=True)
class OptimizeConfig:
    """Config of `jaxdyn optimize`.

    Attributes:
        mechanism: mechanism file: .toml, .urdf, .xml (URDF or MJCF) or .json; its drives take the controls, or every joint does.
        time: how long, in how many steps.
        initial: where the motion starts.
        bounds: of the controls.
        running: costs along the path, per second.
        final: costs at the end.
        condition: what has to hold along the path.
        final_condition: what has to hold at the end.
        solver: the method.
        iterations: at most.
        start: first plans; all of them are tried at once, and the best result is kept.
        alike: relative difference of costs that are one local optimum.
        dtype: precision of everything.
        backend: "lanes" is the lane compiler, "xla" leaves everything to XLA, "auto" takes lanes on CPUs where they can serve.
        devices: over which the starts are divided: "one", "all" of this machine, or those of all "hosts".
        chunk: starts that are solved and written at once, always one by collocation; what a run that was interrupted loses at most.
        pictures: whether to draw them.
        animation: whether to write motion.gif.
    """

    mechanism: Path
    time: HorizonConfig
    initial: StateConfig = StateConfig()
    bounds: BoundsConfig = BoundsConfig()
    running: tuple[CostConfig, ...] = ()
    final: tuple[CostConfig, ...] = ()
    condition: tuple[ConditionConfig, ...] = ()
    final_condition: tuple[ConditionConfig, ...] = ()
    solver: SolverConfig = NewtonConfig()
    iterations: int = setting(200, positive=True)
    start: tuple[StartConfig, ...] = (StillStartConfig(),)
    alike: float = setting(1e-4, positive=True)
    dtype: Precision = "float64"
    backend: BackendName = "auto"
    devices: DeviceChoice = "all"
    chunk: int = setting(1024, positive=True)
    pictures: bool = True
    animation: bool = True

    def __post_init__(self):
        if isinstance(self.solver, CollocationConfig) and self.dtype != "float64":
            raise ValueError('collocation works in double precision; set dtype = "float64"')
        if not self.running and not self.final:
            raise ValueError("there is no cost; write [[running]], [[final]] or both")
        if not self.start:
            raise ValueError("there is no start; write [[start]], or leave it out to start without controls")
