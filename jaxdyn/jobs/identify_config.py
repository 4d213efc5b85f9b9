"""The config of `jaxdyn identify`: which machine, which recordings, what is free, how to fit, how to judge."""

import dataclasses
from pathlib import Path
from typing import Literal

from jaxdyn.identify.markers import Markers
from jaxdyn.identify.validation import ForcesCheck, ValidTimeCheck, WindowsCheck
from jaxdyn.io.columns import Columns
from jaxdyn.io.config import setting
from jaxdyn.io.errors import ConfigError
from jaxdyn.jobs.choices import DeviceChoice
from jaxdyn.jobs.parameters_config import ForceConfig, FreeConfig, TieConfig
from jaxdyn.jobs.synthetic_config import SyntheticConfig

_ALWAYS = (0.0, 1e9)  # s


@dataclasses.dataclass(frozen=True)
class StudyConfig:
    """One fit.

    Attributes:
        name: for tables and file names.
        mechanism: start of the fit and center of the priors, .toml, .urdf, .xml or .json.
        mechanism_in_data: such a file in the data folder instead.
        repair: for a URDF file, makes inertias physical that no body has, and takes the first of elements that are there twice.
        train, validation: recordings, file names in the data folder; "runs.npz:run_02" is an array of a file that holds several.
            Any names if recordings are synthetic, each for a motion.
        train_time, validation_time: the parts of them that are used, from the first time stamp on.
    """

    name: str
    train: tuple[str, ...]
    mechanism: Path | None = None
    mechanism_in_data: str = ""
    repair: bool = False
    validation: tuple[str, ...] = ()
    train_time: tuple[float, float] = setting(_ALWAYS, unit="s")
    validation_time: tuple[float, float] = setting(_ALWAYS, unit="s")

    def __post_init__(self):
        if (self.mechanism is None) == (not self.mechanism_in_data):
            raise ValueError("give either mechanism, a file, or mechanism_in_data, a file in the data folder")


@dataclasses.dataclass(frozen=True)
class WindowsConfig:
    """How recordings are cut for output error.

    Attributes:
        duration: of a window.
        interval: step of the simulation.
        stride: from window to window; the duration if not given.
        first: start of the first one.
        lead: how much of the inputs before a window is kept, for delays.
        velocity_cutoff: of the low-pass that guesses initial velocities, Hz.
        free_starts: whether the initial states are unknown; otherwise they are as measured, and the noise of the measurements must
            include what comes of that.
        start_noise: standard deviations of the guessed initial states, coordinates then velocities; none if empty.
        continuity: standard deviations of the jumps between windows that follow each other; free if empty.
    """

    duration: float = setting(0.5, unit="s", positive=True)
    interval: float = setting(0.002, unit="s", positive=True)
    stride: float | None = setting(None, unit="s", positive=True)
    first: float = setting(0.0, unit="s", non_negative=True)
    lead: float = setting(0.0, unit="s", non_negative=True)
    velocity_cutoff: float = setting(20.0, unit="Hz", positive=True)
    free_starts: bool = True
    start_noise: tuple[float, ...] = ()
    continuity: tuple[float, ...] = ()

    def __post_init__(self):
        if not self.free_starts and (self.start_noise or self.continuity):
            raise ValueError("with free_starts = false nothing is guessed; leave out start_noise and continuity")


@dataclasses.dataclass(frozen=True)
class MotionConfig:
    """How recordings are smoothed for inverse dynamics.

    Attributes:
        interval: of the regular grid.
        cutoff: of the zero-phase low-pass of positions, velocities and forces, Hz; 0 leaves them as they are.
        order: of that filter.
        drop: samples left out at both ends.
        decimate: every which sample is used.
    """

    interval: float = setting(0.001, unit="s", positive=True)
    cutoff: float = setting(5.0, unit="Hz", non_negative=True)
    order: int = setting(4, positive=True)
    drop: int = setting(300, non_negative=True)
    decimate: int = setting(5, positive=True)


@dataclasses.dataclass(frozen=True)
class FitConfig:
    """The fit.

    Attributes:
        method: "output_error" simulates windows; "inverse_dynamics" compares forces.
        noise: standard deviation of the measurements (output error) or forces (inverse dynamics), one number or one each; with
            markers, of the angles of the links from the vertical.
        quantization: step of the measurements, for output error.
        rounds: of inverse dynamics after which the noise of each force is set to the RMS of its errors; then one more fit.
        alike: consecutive samples whose errors are alike, so that together they count as one.
        loss: "squares", "huber" or "cauchy".
        threshold: of a robust loss, in standard deviations.
        iterations: at most.
        tolerance: relative decrease of the loss that is not worth another iteration.
        starts: fits at once, from random starts about the first; the best one counts.
        spread: standard deviation of the random starts, in the free numbers of the charts.
        seed: of the random starts.
    """

    method: Literal["output_error", "inverse_dynamics"] = "output_error"
    noise: tuple[float, ...] = setting((1e-2,), positive=True, broadcast=True)
    quantization: tuple[float, ...] = setting((0.0,), non_negative=True, broadcast=True)
    rounds: int = setting(0, non_negative=True)
    alike: int = setting(1, positive=True)
    loss: Literal["squares", "huber", "cauchy"] = "squares"
    threshold: float = setting(2.0, positive=True)
    iterations: int = setting(60, positive=True)
    tolerance: float = setting(1e-7, positive=True)
    starts: int = setting(1, positive=True)
    spread: float = setting(0.3, non_negative=True)
    seed: int = setting(0, non_negative=True)


@dataclasses.dataclass(frozen=True)
class ReferenceConfig:
    """Figures of others, printed beside ours.

    Attributes:
        study: whose table.
        name: who or what.
        split: "train" or "validation".
        figures: by the names that our figures have.
    """

    study: str
    name: str
    split: Literal["train", "validation"]
    figures: dict[str, float]


@dataclasses.dataclass(frozen=True)
class IdentifyConfig:
    """Config of `jaxdyn identify`.

    Attributes:
        data: folder of the recordings.
        source: where to get them, for the message when they are not there.
        synthetic: recordings made here, by the mechanism and the forces of the config, instead of data.
        study: the fits.
        columns: names in the files.
        markers: for recordings of filmed markers.
        force: forces in the joints, in this order; all those of these kinds in the mechanism file, and all friction, give way.
        free: what is free.
        tie: what follows it.
        windows: how recordings are cut, for output error.
        motion: how they are smoothed, for inverse dynamics.
        fit: the fit.
        check: figures of merit.
        reference: figures of others.
        devices: over which windows or samples are divided: "one", "all" of this machine, or those of all "hosts".
        pictures: whether to draw them.
    """

    study: tuple[StudyConfig, ...]
    free: tuple[FreeConfig, ...]
    data: Path | None = None
    source: str = ""
    synthetic: SyntheticConfig | None = None
    columns: Columns = Columns()  # noqa: RUF009 (immutable)
    markers: Markers | None = None
    force: tuple[ForceConfig, ...] = ()
    tie: tuple[TieConfig, ...] = ()
    windows: WindowsConfig = WindowsConfig()
    motion: MotionConfig = MotionConfig()
    fit: FitConfig = FitConfig()
    check: tuple[WindowsCheck | ValidTimeCheck | ForcesCheck, ...] = ()
    reference: tuple[ReferenceConfig, ...] = ()
    devices: DeviceChoice = "all"
    pictures: bool = True

    @property
    def folder(self) -> Path:
        """The data folder.

        Raises:
            ConfigError: there is none.
        """
        if self.data is None:
            raise ConfigError(
                "synthetic recordings have no data folder; give each study a mechanism, not mechanism_in_data"
            )
        return self.data

    def __post_init__(self):
        if (self.data is None) == (self.synthetic is None):
            raise ValueError(
                "give either data, the folder of the recordings, or a table [synthetic], to make recordings"
            )
        if self.synthetic is not None and self.fit.method != "inverse_dynamics":
            raise ValueError('synthetic recordings are forces of motions; set fit.method = "inverse_dynamics"')
        if not self.study:
            raise ValueError("there is no study; write [[study]]")
        names = [study.name for study in self.study]
        if len(set(names)) != len(names):
            raise ValueError("two studies have one name; rename one")
        for reference in self.reference:
            if reference.study not in names:
                raise ValueError(
                    f"reference {reference.name!r}: there is no study {reference.study!r}; use one of {', '.join(names)}"
                )
