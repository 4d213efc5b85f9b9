"""The config of `jaxdyn optimize`: mechanism, time, initial state, bounds, costs, constraints, solver and initial guesses.

Tables of solvers, costs and constraints are described by the classes that they build (`jaxdyn.jobs.optimize.terms`).
"""

import dataclasses
from pathlib import Path
from typing import Literal

from jaxdyn.control import guess
from jaxdyn.control.batch import optima
from jaxdyn.control.solution import solve
from jaxdyn.io.config import default_of, seed_setting, setting
from jaxdyn.io.tables import Place
from jaxdyn.jobs.choices import BackendName, BaseName, ContactName, DeviceChoice, IntegratorName, Precision
from jaxdyn.jobs.optimize.terms import ConstraintTable, CostTable, SolverTable
from jaxdyn.mechanism.quantity import EFFORT, POSITION, VELOCITY


@dataclasses.dataclass(frozen=True)
class HorizonConfig:
    """Duration and time steps of the motion.

    Attributes:
        duration: Duration of the motion, or its initial guess if the duration is free.
        steps: Number of equal time steps; controls are constant in each step.
        integrator: Integrator of the time steps; by default "runge_kutta_4", or for stiff machines, such as those with dry
            friction, the first of "semi_implicit_euler" and "implicit_midpoint" that is stable for the time step.
        shortest: Lower bound of a free duration; the duration is fixed if `shortest` and `longest` are not given.
        longest: Upper bound of a free duration.
    """

    duration: float = setting(unit="s", positive=True)
    steps: int = setting(positive=True)
    integrator: IntegratorName | None = None
    shortest: float | None = setting(None, unit="s", positive=True)
    longest: float | None = setting(None, unit="s", positive=True)

    def __post_init__(self):
        if (self.shortest is None) != (self.longest is None):
            raise ValueError("a free duration needs both shortest and longest; give both or omit both")
        if self.shortest is not None and self.longest is not None and not self.shortest < self.longest:
            raise ValueError(f"shortest = {self.shortest:g} s is not below longest = {self.longest:g} s; exchange them")


@dataclasses.dataclass(frozen=True)
class StateConfig:
    """A state of the mechanism.

    Attributes:
        q: Coordinates of the state; by default the neutral configuration.
        v: Velocities of the state, one value for all components or one per component.
    """

    q: tuple[float, ...] | None = setting(None, unit=POSITION)
    v: tuple[float, ...] = setting((0.0,), unit=VELOCITY, broadcast=True)


@dataclasses.dataclass(frozen=True)
class BoundsConfig:
    """Bounds of the controls; by default the effort limits of the mechanism.

    Attributes:
        lower: Lower bounds of the controls, one value for all controls or one per control; -inf for no bound.
        upper: Upper bounds of the controls, one value for all controls or one per control; inf for no bound.
    """

    lower: tuple[float, ...] | None = setting(None, unit=EFFORT, broadcast=True, infinite=True)
    upper: tuple[float, ...] | None = setting(None, unit=EFFORT, broadcast=True, infinite=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ControlsStartConfig:
    """Initial guesses with given controls, whose motion is simulated.

    Attributes:
        kind: Kind of the initial guesses, "controls".
        controls: Values of the controls, one value for all controls or one per control.
        count: Number of initial guesses. The first one has the given controls; the controls of the others have random deviations.
        standard_deviation: Standard deviations of the deviations, one value for all controls or one per control.
        interval: Duration for which a control keeps the same deviation; by default one time step.
        seed: Seed of the random deviations.
    """

    kind: Literal["controls"] = "controls"
    controls: tuple[float, ...] = setting((0.0,), unit=EFFORT, broadcast=True)
    count: int = setting(1, positive=True)
    standard_deviation: tuple[float, ...] = setting((1.0,), unit=EFFORT, broadcast=True, minimum=0.0)
    interval: float | None = setting(None, unit="s", positive=True)
    seed: int = seed_setting()


@dataclasses.dataclass(frozen=True, kw_only=True)
class StatesStartConfig:
    """Initial guesses with zero controls and a given motion, which need not satisfy the dynamics.

    Attributes:
        kind: Kind of the initial guesses, "states".
        times: Times of the given configurations, from 0 to the duration.
        q: Configurations at the times `times`; between them, the motion is interpolated linearly in tangent coordinates.
        count: Number of initial guesses. The first one passes through the given configurations; in the others, all configurations
            but the first and the last have random deviations.
        spread: Size of the random deviations: the standard deviation of a "normal" distribution, or the largest
            magnitude of a "uniform" distribution.
        distribution: Distribution of the random deviations, "normal" or "uniform".
        seed: Seed of the random deviations.
    """

    kind: Literal["states"]
    times: tuple[float, ...] = setting(unit="s", minimum=0.0)
    q: tuple[tuple[float, ...], ...] = setting(unit=POSITION)
    count: int = setting(1, positive=True)
    spread: float = setting(0.0, unit=POSITION, minimum=0.0)
    distribution: Literal["normal", "uniform"] = "normal"
    seed: int = seed_setting()

    def __post_init__(self):
        if len(self.times) < 2 or len(self.times) != len(self.q):
            raise ValueError(
                f"there are {len(self.times)} times and {len(self.q)} configurations; give the same number of both, at least 2"
            )
        if any(b <= a for a, b in zip(self.times, self.times[1:], strict=False)):
            raise ValueError("the times are not in ascending order; sort them")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MixedStartConfig:
    """Initial guesses of several kinds: rest, rest held against gravity, a straight line to the goal, and random motions.

    The random guesses are alternately paths and motions under feedback. They are near the straight line to the goal, which is the
    target of a final constraint or cost on the state. Without a goal, there is no straight line, and they are near the initial
    state.

    Attributes:
        kind: Kind of the initial guesses, "mixed".
        count: Number of initial guesses.
        standard_deviation: Standard deviation of the random deviations from the straight line.
        seed: Seed of the random deviations.
    """

    kind: Literal["mixed"]
    count: int = setting(default_of(guess.mixed, "count"), positive=True)
    standard_deviation: float = setting(default_of(guess.mixed, "standard_deviation"), unit=POSITION, minimum=0.0)
    seed: int = seed_setting()


StartConfig = ControlsStartConfig | StatesStartConfig | MixedStartConfig


@dataclasses.dataclass(frozen=True)
class OptimizeConfig:
    """Config of `jaxdyn optimize`.

    Costs, constraints and bounds are given in the config. The searches from all initial guesses run together, and their local
    optima are counted. The run directory contains the best plan (plan.npz: time, q, v, controls, feedback, design), a
    table of the optima (optima.txt), all searches with their histories, pictures, an animation, and replay.toml, a config with
    which `jaxdyn rollout` replays the controls:

      jaxdyn optimize configs/optimize_p1_cartpole.toml --out runs/swing
      jaxdyn rollout runs/swing/replay.toml

    Attributes:
        mechanism: Mechanism file (.toml, .urdf, .xacro, .xml or .json), or the name of a robot of robot_descriptions. The controls
            act on the drives of the mechanism; a mechanism without drives has a control for every velocity component.
        time: Duration and time steps.
        base: Root link of a URDF file: "fixed" to the ground or "free" to move; fixed if not given.
        repair: If true, unphysical inertias of a URDF file are corrected, and of repeated elements only the first is used.
        ignore: Elements of an MJCF file that are left out if they are not supported, by their names or kinds.
        contact: Use of the colliders of a URDF or MJCF file: with "ground" they are contacts with the ground; with "none" they are
            not simulated. Mechanism files of other formats state their contacts.
        initial: Initial state of the motion.
        bounds: Bounds of the controls; by default the effort limits of the mechanism.
        running: Running costs, which are integrated over time.
        final: Final costs, which are evaluated at the end of the motion.
        constraint: Constraints along the path.
        final_constraint: Constraints at the end of the motion.
        solver: Method that solves the problem; by default "auto", which tries several methods and verifies the plan.
        max_steps: Maximum number of iterations of the solver.
        start: Initial guesses of the solver; the result is the best of the solutions.
        alike: Relative difference of costs up to which solutions count as the same local optimum.
        dtype: Precision of all computations.
        backend: Compiler of the computations: "lanes" for the lane compiler, "xla" for XLA, "auto" for the lane compiler where it
            supports the computation.
        devices: Devices over which the initial guesses are divided: "one" device, or "all" devices of this machine.
        chunk: Number of initial guesses per chunk: the searches from a chunk run together, then their results are written.
            Collocation always uses chunks of one. If a run is interrupted, the results of at most one chunk are lost. Several
            processes divide the chunks of a run among themselves (--resume).
        pictures: If true, pictures are drawn.
        animation: If true, the file motion.gif is written.
    """

    mechanism: Path
    time: HorizonConfig
    base: BaseName | None = None
    repair: bool = False
    ignore: tuple[str, ...] = ()
    contact: ContactName = "none"
    initial: StateConfig = StateConfig()
    bounds: BoundsConfig = BoundsConfig()
    running: tuple[CostTable, ...] = ()
    final: tuple[CostTable, ...] = ()
    constraint: tuple[ConstraintTable, ...] = setting(())
    final_constraint: tuple[ConstraintTable, ...] = setting(())
    solver: SolverTable = SolverTable.read_toml({"kind": "auto"}, Place(Path()))  # noqa: RUF009 (it is frozen)
    max_steps: int = setting(default_of(solve, "max_steps"), positive=True)
    start: tuple[StartConfig, ...] = (ControlsStartConfig(),)
    alike: float = setting(default_of(optima, "alike"), positive=True)
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
            raise ValueError("there is no start; write [[start]], or omit start for an initial guess without controls")
