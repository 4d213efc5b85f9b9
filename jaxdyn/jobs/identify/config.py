"""The config of `jaxdyn identify`: machines, recordings, free parameters, fit and validation."""

import dataclasses
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Literal

# Forces are found among the classes of these modules and of all other imported modules.
from jaxdyn.dynamics.forces import JointForce, friction, joint_limits  # noqa: F401
from jaxdyn.errors import check_name
from jaxdyn.identify.charts import Chart
from jaxdyn.identify.checks import ForcesCheck, ValidTimeCheck, WindowsCheck
from jaxdyn.identify.excitation import random_motions
from jaxdyn.identify.fitting import fit
from jaxdyn.identify.levenberg_marquardt import LevenbergMarquardt
from jaxdyn.identify.losses import Loss
from jaxdyn.identify.output_error import OutputError
from jaxdyn.identify.parameters import Tie
from jaxdyn.identify.processing import Processing, Smoothing
from jaxdyn.identify.recording import cut
from jaxdyn.identify.stages import DURATIONS, LEAD
from jaxdyn.io.config import default_of, seed_setting, setting, setting_of
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.recording_columns import Columns
from jaxdyn.jobs.choices import BaseName, HostChoice
from jaxdyn.jobs.tables import FieldKey, Table
from jaxdyn.mechanism.named_classes import named_subclasses
from jaxdyn.mechanism.quantity import EFFORT

_ALWAYS = (0.0, 1e9)  # s

if TYPE_CHECKING:
    LossName = str
    ChartName = str
else:
    LossName, ChartName = (Literal[tuple(named_subclasses(base))] for base in (Loss, Chart))


class ForceTable(Table):
    """A table [[force]]: a force in all joints, with one value for all joints or one per component; `kind` names its class."""

    base = JointForce

    @classmethod
    def kinds(cls) -> dict[str, tuple[type, dict[str, type]]]:
        return {force.__name__: (force, {}) for force in named_subclasses(cls.base, "table_name").values()}

    @classmethod
    def keys(cls, kind: str) -> dict[str, FieldKey]:
        found = {}
        for name, key in super().keys(kind).items():
            # The unit depends on the components of the mechanism, which is not known here; so text with a unit is refused.
            unit = key.rules.unit_text or key.rules.unit
            found[name] = dataclasses.replace(key, rules=dataclasses.replace(key.rules, unit=unit, broadcast=True))
        return found


@dataclasses.dataclass(frozen=True)
class StudyConfig:
    """One fit.

    Attributes:
        name: Name of the fit in tables and in file names.
        train: Recordings for the fit, as names of files in the data folder. For synthetic recordings, each name is a free choice
            and denotes a separate motion.
        mechanism: Mechanism file (.toml, .urdf, .xacro, .xml or .json), or name of a robot of robot_descriptions, with the initial
            guess and the center of the priors, or the directory of an earlier run, whose sensors, inputs and forces are then taken
            as well.
        mechanism_in_data: Mechanism file in the data folder, given instead of `mechanism`.
        base: Root link of a URDF file: "fixed" to the ground or "free" to move; fixed if not given.
        repair: If true, unphysical inertias of a URDF file are corrected, and of repeated elements only the first is used.
        ignore: Elements of an MJCF file that are left out if they are not supported, by their names or kinds.
        validation: Held-out recordings for the validation of the fit.
        train_time: Time interval [start, end] of the training recordings that is used, measured from the first time stamp.
        validation_time: Time interval [start, end] of the held-out recordings that is used, measured from the first time stamp.
    """

    name: str
    train: tuple[str, ...]
    mechanism: Path | None = None
    mechanism_in_data: str = ""
    base: BaseName | None = None
    repair: bool = False
    ignore: tuple[str, ...] = ()
    validation: tuple[str, ...] = ()
    train_time: tuple[float, float] = setting(_ALWAYS, unit="s")
    validation_time: tuple[float, float] = setting(_ALWAYS, unit="s")

    def __post_init__(self):
        if (self.mechanism is None) == (not self.mechanism_in_data):
            raise ValueError("give either mechanism (a file) or mechanism_in_data (a file in the data folder)")
        for name in ("train_time", "validation_time"):
            start, end = getattr(self, name)
            if not start < end:
                raise ValueError(f"{name} is [{start:g}, {end:g}]; give the start before the end")


@dataclasses.dataclass(frozen=True)
class FreeConfig:
    """Free parameters: the inertia of bodies, or an array of the plant.

    Attributes:
        inertia: Names of the bodies whose mass, center of mass and inertia tensor are free; ["all"] for all bodies.
        divergence: Weight of the log-det divergence of the inertial parameters from their initial values, a regularization; 0 for
            no regularization.
        path: Path of the free array of the plant, such as "system.model.armature", "system.forces.0.viscous", "inputs.delay" or
            "sensors.offset"; "sensors.zeros" is a separate offset for each recording.
        entries: Rows of the array that are free, by the names of bodies or joints or by index; by default all rows.
        chart: Parametrization of the values: "real" (any), "positive", "bounded", "unit_vector" or "rotation" (a quaternion); by
            default, the values stay within the bounds that the class of the array declares if the initial values are inside them.
        lower: Lower bound of the chart "bounded".
        upper: Upper bound of the chart "bounded".
        start: Initial guess of the values; by default the values of the mechanism.
        prior_std: Standard deviation of a Gaussian prior; without this key there is no prior.
        prior_mean: Mean of the Gaussian prior; by default the initial guess.
        name: Name that appears in tables; by default the last part of the path.
        unit: Unit that appears in tables; by default the unit that the class of the array declares.
    """

    inertia: tuple[str, ...] = ()
    divergence: float = setting(0.0, minimum=0.0)
    path: str = ""
    entries: tuple[str, ...] = ()
    chart: ChartName | None = None
    lower: float = 0.0
    upper: float = 1.0
    start: tuple[float, ...] | None = setting(None, broadcast=True)
    prior_std: tuple[float, ...] | None = setting(None, positive=True, broadcast=True)
    prior_mean: tuple[float, ...] | None = setting(None, broadcast=True)
    name: str | None = None
    unit: str | None = None

    def __post_init__(self):
        if bool(self.inertia) == bool(self.path):
            raise ValueError("give either inertia (names of bodies) or path (an array of the plant)")
        if self.chart != "bounded" and (self.lower, self.upper) != (FreeConfig.lower, FreeConfig.upper):
            raise ValueError('lower and upper are the bounds of chart = "bounded"; add this key, or remove the bounds')


@dataclasses.dataclass(frozen=True)
class TieConfig:
    """Parameters that depend linearly on a free parameter: value = factor * parameter + offset.

    Attributes:
        path: Path, in the plant, of the array whose values depend on the parameter.
        to: Name of the free parameter.
        entries: Rows of the array that depend on the parameter, by names or by index; by default all rows.
        factor: Factor of the free parameter.
        offset: Constant term.
    """

    path: str
    to: str
    entries: tuple[str, ...] = ()
    factor: float = setting_of(Tie, "factor")
    offset: float = setting_of(Tie, "offset")


@dataclasses.dataclass(frozen=True)
class WindowsConfig:
    """Windows into which recordings are cut for output error.

    Attributes:
        duration: Duration of each window; if there are several, there is a fit for each of them, from short to long windows.
        interval: Time step of the simulation.
        stride: Time from the start of a window to the start of the next one; by default the duration.
        first: Start time of the first window of a recording.
        lead: Duration by which the inputs of each window or sample begin before it and end after it; at least the largest input
            delay. By default it is 0.05 s if delays are free, and otherwise 0.
        velocity_cutoff: Cutoff frequency of the low-pass filter with which the initial guess of the velocities is computed.
        free_starts: If true, the initial states of the windows are estimated. Otherwise the measured states are used, and
            `fit.noise` must include the effect of errors in the initial states.
        growth_time: Time after which the standard deviation of the errors of a prediction is twice `fit.noise`; it grows linearly
            along a window. By default it is constant. With growing errors, predictions over all times up to `duration` have similar
            weights, and `stride` may be shorter than `duration`.
        start_noise: Standard deviations of the errors of the guessed initial states (coordinates, then velocities); if empty,
            deviations from the guesses do not enter the loss, or by little with `fit.method` "stages".
        continuity: Standard deviations of the jumps of the state from the end of a window to the start of the next one
            (coordinates, then velocities); if empty, jumps do not enter the loss.
    """

    duration: tuple[float, ...] = setting(DURATIONS, unit="s", positive=True, broadcast=True)
    interval: float = setting(0.002, unit="s", positive=True)
    stride: float | None = setting(default_of(cut, "stride"), unit="s", positive=True)
    first: float = setting(default_of(cut, "first"), unit="s", minimum=0.0)
    lead: float | None = setting_of(Processing, "lead", None)
    velocity_cutoff: float = setting_of(Processing, "velocity_cutoff")
    free_starts: bool = setting_of(OutputError, "free_starts")
    growth_time: float | None = setting_of(OutputError, "growth_time")
    start_noise: tuple[float, ...] = setting_of(OutputError, "start_noise", ())
    continuity: tuple[float, ...] = setting_of(OutputError, "continuity", ())

    def __post_init__(self):
        if not self.duration:
            raise ValueError("duration is empty; give the duration of the windows")
        if not self.free_starts and (self.start_noise or self.continuity):
            raise ValueError(
                "with free_starts = false initial states are not estimated; remove start_noise and continuity"
            )


@dataclasses.dataclass(frozen=True)
class RecordingConfig:
    """A recording whose columns, sample rate or filters differ from those of the other recordings.

    Attributes:
        name: Name of the recording, as in `train` or `validation` of a study.
        columns: Names of the columns or arrays of this recording, instead of the table [columns].
        motion: Smoothing of this recording for inverse dynamics, instead of the table [motion].
        velocity_cutoff: Cutoff frequency of the low-pass filter for the initial velocities, instead of `windows.velocity_cutoff`.
    """

    name: str
    columns: Columns | None = None
    motion: Smoothing | None = None
    velocity_cutoff: float | None = setting_of(Processing, "velocity_cutoff", None)


@dataclasses.dataclass(frozen=True)
class FitConfig:
    """Method and settings of the fit.

    Attributes:
        method: Method of the fit: "output_error" minimizes the errors of simulated motions, "inverse_dynamics" the errors of
            computed forces, and "stages" does both, first inverse dynamics, then output error with the windows of each duration.
        noise: Standard deviation of the measurements or, for "inverse_dynamics", of the forces, one value for all components or one
            per component; if empty, that of the recordings, or 5 % of the typical forces.
        quantization: Resolution of the measurements, for output error.
        rounds: Number of repetitions of a fit by inverse dynamics; in each of them, the noise of each force is its RMS error in the
            previous fit.
        block_length: Number of consecutive samples with correlated errors, which together count as one sample.
        loss: Loss of the residuals, "squares", "huber" or "cauchy".
        threshold: Threshold of a robust loss, in standard deviations; by default that of the class of the loss.
        max_steps: Maximum number of Levenberg-Marquardt steps.
        starts: Number of fits: the first starts from the given initial guess, the others start from random initial guesses around
            it. The best fit is used.
        standard_deviation: Standard deviation of the random initial guesses, in the unconstrained parameters of the charts.
        seed: Seed of the random initial guesses.
    """

    method: Literal["stages", "output_error", "inverse_dynamics"] = "stages"
    noise: tuple[float, ...] = setting((), positive=True, broadcast=True)
    quantization: tuple[float, ...] = setting((0.0,), minimum=0.0, broadcast=True)
    rounds: int = setting(0, minimum=0.0)
    block_length: int = setting(1, positive=True)
    loss: LossName = default_of(OutputError, "loss").kind
    threshold: float | None = setting(None, positive=True)
    max_steps: int = setting(default_of(fit, "max_steps"), positive=True)
    tolerance: float = setting_of(LevenbergMarquardt, "tolerance")
    starts: int = setting(1, positive=True)
    standard_deviation: float = setting(0.3, minimum=0.0)
    seed: int = seed_setting()

    def __post_init__(self):
        if self.rounds and self.method != "inverse_dynamics":
            raise ValueError('rounds are for method = "inverse_dynamics"; set rounds = 0')
        losses = named_subclasses(Loss).items()
        robust = [name for name, cls in losses if "threshold" in {field.name for field in dataclasses.fields(cls)}]
        if self.threshold is not None and self.loss not in robust:
            warnings.warn(
                f'fit.threshold is not used, because the loss "{self.loss}" has none; choose the loss {" or ".join(robust)}',
                stacklevel=2,
            )


@dataclasses.dataclass(frozen=True)
class SyntheticConfig:
    """Recordings of a machine with known parameters: each contains one period of a motion and the forces that the motion requires.

    The true machine is the mechanism of the study with the forces of the config; the fit starts from perturbed parameters. The
    motions are Fourier series, at rest at their ends and within the limits of the mechanism, sampled at intervals of
    `motion.interval`.

    Attributes:
        period: Period of the motions.
        harmonics: Number of harmonics of the Fourier series of each joint.
        starts: Number of random candidate motions; the candidates with the most information on the base parameters are used.
        noise: Standard deviation of the forces in training recordings, one value for all joints or one per joint.
            Held-out recordings have no noise, so that prediction errors are caused by the identified parameters alone.
        perturbation: Standard deviation of the errors of the initial guess in the unconstrained parameters; 0.1 changes masses and
            other positive values by about 10 %.
        seed: Seed of the random motions, noise and initial guess.
    """

    period: float = setting(default_of(random_motions, "period"), unit="s", positive=True)
    harmonics: int = setting(default_of(random_motions, "harmonics"), minimum=2.0)
    starts: int = setting(default_of(random_motions, "count"), positive=True)
    noise: tuple[float, ...] = setting((0.1,), unit=EFFORT, positive=True, broadcast=True)
    perturbation: float = setting(0.2, minimum=0.0)
    seed: int = seed_setting()


@dataclasses.dataclass(frozen=True)
class ReferenceConfig:
    """Figures of merit from other sources, for comparison.

    Attributes:
        study: Name of the study; the figures are added to its table.
        name: Name of the source of the figures.
        split: Recordings for which the figures hold, "train" or "validation".
        figures: Values of the figures of merit, by their names in the table.
    """

    study: str
    name: str
    split: Literal["train", "validation"]
    figures: dict[str, float]


@dataclasses.dataclass(frozen=True)
class IdentifyConfig:
    """Config of `jaxdyn identify`.

    The shortest config names a mechanism, its recordings and their columns. Its inertias, armature, friction and the delays of its
    inputs are then identified in stages, first by inverse dynamics, then by output error with short and with longer windows.

    The Levenberg-Marquardt method with exact derivatives minimizes the errors of simulated motions in windows of the recordings
    (output error) or of computed forces (inverse dynamics). Inertial parameters remain physically valid. For each study the run
    directory contains a table of parameters with 95 % intervals, figures of merit on training and held-out recordings beside
    given reference values, pictures, and the identified plant (plant.toml, plant.json, plant.npz): mechanism, sensors, inputs,
    filters and estimates. The commands evaluate, rollout, view and check accept this plant, and so does another fit as its
    mechanism.

    Attributes:
        study: Fits; each table describes one fit.
        free: Free parameters; each table selects the inertia of some bodies, or one array. Without these tables, inertias,
            armature, friction and the delays of inputs are free, and start at values of the order of magnitude of the recordings;
            without tables [[force]] too, all joints have viscous, Coulomb and Stribeck friction.
        data: Folder of the recordings.
        source: Address from which the recordings can be obtained; the error message for missing recordings states it.
        synthetic: Synthetic recordings instead of `data`; they are simulated with the mechanism and the forces of the config.
        columns: Names of the columns (CSV) or arrays (NPZ) of the recordings.
        force: Joint forces. These forces replace all friction of the mechanism file, and its forces of the same kinds. In the given
            order, they are the first forces of the system; the path of the first one is "system.forces.0".
        tie: Parameters that depend linearly on a free parameter: value = factor * parameter + offset.
        windows: Windows into which recordings are cut, for output error.
        motion: Smoothing of recordings, for inverse dynamics.
        recording: Tables of recordings with other columns, sample rates or filters.
        fit: Method and settings of the fit.
        check: Figures of merit that are computed on training and held-out recordings.
        reference: Figures of merit from other sources, for comparison.
        devices: Devices over which windows or samples are divided: "one" device, "all" devices of this machine, or the devices of
            all "hosts".
        pictures: If true, pictures are drawn.
    """

    study: tuple[StudyConfig, ...]
    free: tuple[FreeConfig, ...] = ()
    data: Path | None = None
    source: str = ""
    synthetic: SyntheticConfig | None = None
    columns: Columns = Columns()  # noqa: RUF009 (immutable)
    force: tuple[ForceTable, ...] = ()
    tie: tuple[TieConfig, ...] = ()
    windows: WindowsConfig = WindowsConfig()
    motion: Smoothing = Smoothing()  # noqa: RUF009 (immutable)
    recording: tuple[RecordingConfig, ...] = ()
    fit: FitConfig = FitConfig()
    check: tuple[WindowsCheck | ValidTimeCheck | ForcesCheck, ...] = ()
    reference: tuple[ReferenceConfig, ...] = ()
    devices: HostChoice = "all"
    pictures: bool = True

    @property
    def lead(self) -> float:
        """Duration of the inputs before and after each piece of data, s."""
        delayed = not self.free or any(entry.path == "inputs.delay" for entry in self.free)
        return self.windows.lead if self.windows.lead is not None else LEAD if delayed else 0.0

    @property
    def folder(self) -> Path:
        """The data folder.

        Raises:
            ConfigError: The recordings are synthetic.
        """
        if self.data is None:
            raise ConfigError(
                "there is no data folder for synthetic recordings; give each study mechanism instead of mechanism_in_data"
            )
        return self.data

    def __post_init__(self):
        if (self.data is None) == (self.synthetic is None):
            raise ValueError(
                "give either data, the folder of the recordings, or a table [synthetic] for synthetic recordings"
            )
        if self.synthetic is not None and self.fit.method != "inverse_dynamics":
            raise ValueError('synthetic recordings contain forces only; set fit.method = "inverse_dynamics"')
        if self.synthetic is not None and not self.free:
            raise ValueError("nothing is free; write [[free]]")
        if not self.study:
            raise ValueError("there is no study; write [[study]]")
        names = [study.name for study in self.study]
        if len(set(names)) != len(names):
            raise ValueError("two studies have the same name; rename one")
        for reference in self.reference:
            check_name("study", reference.study, names, where=f"reference {reference.name!r}")
