"""The config of `jaxdyn optimize`: mechanism, time, initial state, costs, constraints, solver and initial guesses.

Tables of solvers, costs and constraints are described by the classes that they build (`optimize_kinds`).
"""

import dataclasses
from pathlib import Path
from typing import Literal

from jaxdyn.io.config import Place, setting
from jaxdyn.jobs.built_tables import ConstraintTable, CostTable, SolverTable
from jaxdyn.jobs.choices import BackendName, DeviceChoice, IntegratorName, Precision


@dataclasses.dataclass(frozen=True)
class HorizonConfig:
    """Duration and time steps.

    Attributes:
        duration: The motion lasts this long; this is the initial guess if the duration is free.
        steps: The motion is divided into this many equal time steps; controls are constant in each of them.
        integrator: This one-step method makes each time step.
        shortest: The duration is free if this lower bound and `longest` are given.
        longest: The duration is free if this upper bound and `shortest` are given.
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
        q: The coordinates, rad or m, are the neutral ones if not given.
        v: The velocities, rad/s or m/s, are one value for all or one for each component.
    """

    q: tuple[float, ...] | None = None
    v: tuple[float, ...] = setting((0.0,), broadcast=True)


@dataclasses.dataclass(frozen=True)
class BoundsConfig:
    """Bounds of the controls, which are the effort limits of the mechanism if not given.

    Attributes:
        lower: Lower bounds of the controls, N m or N, are one value for all or one each; -inf stands for no bound.
        upper: Upper bounds of the controls, N m or N, are one value for all or one each; inf stands for no bound.
    """

    lower: tuple[float, ...] | None = setting(None, broadcast=True, infinite=True)
    upper: tuple[float, ...] | None = setting(None, broadcast=True, infinite=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StillStartConfig:
    """One initial guess has constant controls.

    Attributes:
        kind: The kind of the initial guess is "constant".
        controls: The controls, N m or N, are one value for all or one each.
    """

    kind: Literal["constant"] = "constant"
    controls: tuple[float, ...] = setting((0.0,), broadcast=True)

    @property
    def count(self) -> int:
        """The number of initial guesses."""
        return 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class SineStartConfig:
    """One initial guess has the controls amplitude * sin(rate * time).

    Attributes:
        kind: The kind of the initial guess is "sine".
        amplitude: The amplitudes of the controls, N m or N, are one value for all or one each.
        rate: The controls oscillate with this angular frequency.
    """

    kind: Literal["sine"]
    amplitude: tuple[float, ...] = setting((1.0,), broadcast=True)
    rate: float = setting(unit="rad/s", positive=True)

    @property
    def count(self) -> int:
        """The number of initial guesses."""
        return 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomStartConfig:
    """Several initial guesses have normally distributed controls.

    Attributes:
        kind: The kind of the initial guesses is "random".
        count: There are this many initial guesses.
        amplitude: The standard deviations of the controls, N m or N, are one value for all or one each.
        interval: Each random value is held for this long; for one time step if not given.
        seed: The random values follow from this seed.
    """

    kind: Literal["random"]
    count: int = setting(64, positive=True)
    amplitude: tuple[float, ...] = setting((1.0,), broadcast=True, non_negative=True)
    interval: float | None = setting(None, unit="s", positive=True)
    seed: int = setting(0, non_negative=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StatesStartConfig:
    """Initial guesses have a given motion, which need not obey the dynamics, and zero controls.

    Attributes:
        kind: The kind of the initial guesses is "states".
        times: The given configurations have these times, from 0 to the duration.
        q: The motion is linear between these configurations in tangent coordinates.
        count: There are this many initial guesses; all but the first have random configurations between the first and the last.
        spread: Random configurations have this standard deviation about the given ones, rad or m, or this largest distance.
        distribution: The random distances have this distribution; "uniform" ones lie within the spread.
        seed: The random distances follow from this seed.
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


@dataclasses.dataclass(frozen=True)
class OptimizeConfig:
    """Config of `jaxdyn optimize`.

    Attributes:
        mechanism: This mechanism file, .toml, .urdf, .xml (URDF or MJCF) or .json, is optimized; its drives take the controls, or
            every joint does.
        time: This table says how long the motion lasts, and in how many steps.
        initial: The motion begins in this state.
        bounds: The controls stay within these bounds.
        running: These costs are integrated over time.
        final: These costs count at the end.
        condition: These constraints hold along the path.
        final_condition: These constraints hold at the end.
        solver: This method solves the problem.
        iterations: The solver makes at most this many iterations.
        start: The solver begins from all these initial guesses; the best solution is kept.
        alike: Solutions count as one local optimum if the relative difference of their costs is at most this.
        dtype: All computations have this precision.
        backend: "lanes" is the lane compiler, "xla" leaves everything to XLA, "auto" takes lanes on CPUs where they can serve.
        devices: The initial guesses are divided over "one" device, "all" devices of this machine, or those of all "hosts".
        chunk: This many initial guesses are solved and written at once, always one by collocation; an interrupted run loses at most
            one chunk.
        pictures: Pictures are drawn if this is true.
        animation: The file motion.gif is written if this is true.
    """

    mechanism: Path
    time: HorizonConfig
    initial: StateConfig = StateConfig()
    bounds: BoundsConfig = BoundsConfig()
    running: tuple[CostTable, ...] = ()
    final: tuple[CostTable, ...] = ()
    condition: tuple[ConstraintTable, ...] = ()
    final_condition: tuple[ConstraintTable, ...] = ()
    solver: SolverTable = SolverTable.read_toml({"kind": "ddp"}, Place(Path()))  # noqa: RUF009 (it is frozen)
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
        if not self.running and not self.final:
            raise ValueError("there is no cost; write [[running]], [[final]] or both")
        if not self.start:
            raise ValueError("there is no start; write [[start]], or leave it out to start without controls")
