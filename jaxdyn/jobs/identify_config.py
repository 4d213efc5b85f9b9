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
from jaxdyn.jobs.identify_tables import ForceTable, LossName
from jaxdyn.jobs.parameters_config import FreeConfig, TieConfig
from jaxdyn.jobs.synthetic_config import SyntheticConfig

_ALWAYS = (0.0, 1e9)  # s


@dataclasses.dataclass(frozen=True)
class StudyConfig:
    """One fit.

    Attributes:
        name: This name appears in tables and in the names of files.
        train: These recordings are fitted: names of files in the data folder, where "runs.npz:run_02" is an array of a file that
            holds several. If recordings are synthetic, each name stands for a motion.
        mechanism: This mechanism file (.toml, .urdf, .xml or .json) gives the initial guess and the center of the priors.
        mechanism_in_data: Such a file is in the data folder instead.
        repair: If true, inertias of a URDF file that no body can have are made physical, and of repeated elements the first counts.
        validation: These recordings are held out, to judge the fit.
        train_time: This part of the training recordings is used, from the first time stamp on.
        validation_time: This part of the held-out recordings is used, from the first time stamp on.
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
        duration: Windows have this duration.
        interval: This is the step of the simulation.
        stride: This is the time from the start of a window to that of the next; the duration if not given.
        first: The first window of a recording starts at this time.
        lead: Inputs are kept for this time before a window, for input delays.
        velocity_cutoff: A low-pass filter with this cutoff makes the guess of the initial velocities.
        free_starts: If true, the initial states are estimated. Otherwise they are as measured, and the noise of the measurements
            must include the effect of their errors.
        start_noise: The guessed initial states have these standard deviations, coordinates then velocities; unknown if empty.
        continuity: The jumps between consecutive windows have these standard deviations; jumps are free if empty.
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
            raise ValueError("with free_starts = false no state is guessed; leave out start_noise and continuity")


@dataclasses.dataclass(frozen=True)
class MotionConfig:
    """How recordings are smoothed for inverse dynamics.

    Attributes:
        interval: This is the interval of the regular grid.
        cutoff: A zero-phase low-pass filter with this cutoff smooths positions, velocities and forces; 0 for no filter.
        order: The filter has this order.
        drop: This many samples are left out at both ends.
        decimate: Of so many consecutive samples one is used.
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
        method: The method "output_error" simulates windows; "inverse_dynamics" compares forces.
        noise: This is the standard deviation of the measurements (output error) or of the forces (inverse dynamics), one for all or
            one each; with markers, of the angles of the links from the vertical.
        quantization: Measurements are multiples of this step, for output error.
        rounds: After a fit by inverse dynamics, the noise of each force is set to the RMS of its errors and the fit is repeated, so
            many times.
        block_length: The errors of so many consecutive samples are correlated, so that together they count as one.
        loss: The loss of the residuals is "squares", "huber" or "cauchy".
        threshold: This is the threshold of a robust loss, in standard deviations.
        max_steps: This is the largest number of steps of Levenberg-Marquardt.
        tolerance: A fit ends when its next step promises a relative decrease of the loss below this tolerance.
        starts: So many fits run at once, from random initial guesses about the first; the best one counts.
        standard_deviation: The random initial guesses have this standard deviation, in the unconstrained parameters of the charts.
        seed: This is the seed of the random initial guesses.
    """

    method: Literal["output_error", "inverse_dynamics"] = "output_error"
    noise: tuple[float, ...] = setting((1e-2,), positive=True, broadcast=True)
    quantization: tuple[float, ...] = setting((0.0,), non_negative=True, broadcast=True)
    rounds: int = setting(0, non_negative=True)
    block_length: int = setting(1, positive=True, alias="alike")
    loss: LossName = "squares"
    threshold: float = setting(2.0, positive=True)
    max_steps: int = setting(60, positive=True, alias="iterations")
    tolerance: float = setting(1e-7, positive=True)
    starts: int = setting(1, positive=True)
    standard_deviation: float = setting(0.3, non_negative=True, alias="spread")
    seed: int = setting(0, non_negative=True)


@dataclasses.dataclass(frozen=True)
class ReferenceConfig:
    """Figures of others, printed beside ours.

    Attributes:
        study: The figures belong to the table of this study.
        name: This says whose figures they are.
        split: The figures are those of the "train" or of the "validation" recordings.
        figures: These are the figures, by the names that ours have.
    """

    study: str
    name: str
    split: Literal["train", "validation"]
    figures: dict[str, float]


@dataclasses.dataclass(frozen=True)
class IdentifyConfig:
    """Config of `jaxdyn identify`.

    Attributes:
        study: Each of these tables is a fit.
        free: These tables select the free parameters.
        data: This folder holds the recordings.
        source: This says where to get the recordings, for the message when they are missing.
        synthetic: The job makes its own recordings with the mechanism and the forces of the config, in place of data.
        columns: These are the names in the files.
        markers: Recordings are films of markers.
        force: These forces in the joints take the place of all friction in the mechanism file, and of all forces of their kinds.
            They come first among the forces of the system, in this order.
        tie: These values follow a free parameter.
        windows: Recordings are cut so, for output error.
        motion: Recordings are smoothed so, for inverse dynamics.
        fit: This table says how to fit.
        check: These tables give figures of merit, on training and held-out recordings.
        reference: These are figures of others.
        devices: Windows or samples are divided over "one" device, "all" devices of this machine, or those of all "hosts".
        pictures: If true, pictures are drawn.
    """

    study: tuple[StudyConfig, ...]
    free: tuple[FreeConfig, ...]
    data: Path | None = None
    source: str = ""
    synthetic: SyntheticConfig | None = None
    columns: Columns = Columns()  # noqa: RUF009 (immutable)
    markers: Markers | None = None
    force: tuple[ForceTable, ...] = ()
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
            ConfigError: Recordings are synthetic.
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
