"""A study of `jaxdyn identify`: its plant, free parameters, recordings and problem, its figures of merit, and its files."""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxdyn.dynamics.drives import JointDrives
from jaxdyn.dynamics.forces import JointForce, friction
from jaxdyn.dynamics.system import System
from jaxdyn.errors import UnknownName
from jaxdyn.identify import stages
from jaxdyn.identify.charts import Chart, Real
from jaxdyn.identify.evaluation import evaluate
from jaxdyn.identify.inverse_dynamics_error import InverseDynamicsError, Motions
from jaxdyn.identify.least_squares import Problem
from jaxdyn.identify.losses import Loss
from jaxdyn.identify.measurement import MeasurementError, Plant, Sensors
from jaxdyn.identify.output_error import OutputError
from jaxdyn.identify.parameters import (
    DivergencePrior,
    GaussianPrior,
    Parameter,
    ParameterError,
    Parameters,
    Tie,
    body_inertia,
)
from jaxdyn.identify.processing import Processing
from jaxdyn.identify.recording import Part, RecordingError, Windows
from jaxdyn.identify.validation import smoothed_motions
from jaxdyn.io.archive.plant import holds_plant, load_plant
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.recordings import load_recording
from jaxdyn.io.runs.directory import RunDirectory
from jaxdyn.io.system_file import files_of
from jaxdyn.jobs.identify.config import ForceTable, FreeConfig, IdentifyConfig, RecordingConfig, StudyConfig
from jaxdyn.jobs.source import load
from jaxdyn.jobs.tables import each, one_each
from jaxdyn.mechanism.named_classes import named_subclasses
from jaxdyn.mechanism.quantity import quantities

# A value of an earlier fit is at its bound if it is closer than this fraction of the value in the config.
_AT_BOUND = 1e-6
_LIFTED = 0.01  # part of the value in the config, from which such a value starts again
# Distance from the limits, in ranges of a joint, at which recorded coordinates are suspected to have another unit.
_FAR_BEYOND = 3.0
_FRICTION = {cls for cls in vars(friction).values() if isinstance(cls, type) and issubclass(cls, JointForce)}


class StudyRun(NamedTuple):
    """A study, whose files have names that begin with its name.

    Attributes:
        config: Config of the run.
        study: The study.
        directory: Run directory.
    """

    config: IdentifyConfig
    study: StudyConfig
    directory: RunDirectory

    def write_text(self, name: str, text: str) -> None:
        """Write a text file of the study."""
        self.directory.write_text(f"{self.study.name}_{name}", text)


@contextlib.contextmanager
def as_config_errors() -> Iterator[None]:
    """Context, or decorator, in which errors of identification, whose messages state the remedy, become errors of the config."""
    try:
        yield
    except (MeasurementError, ParameterError, RecordingError, UnknownName) as error:
        raise ConfigError(str(error)) from None


def files_of_studies(config: IdentifyConfig) -> list[tuple[str, Path]]:
    """All files that the studies read, as pairs of a role ("mechanism" or "recording") and a path.

    Raises:
        ConfigError: A study requires a data folder, but the recordings are synthetic.
    """
    mechanisms = [("mechanism", file) for study in config.study for file in files_of(_mechanism(config, study))]
    names = [name for study in config.study if config.data for name in (*study.train, *study.validation)]
    return mechanisms + recording_files(config, names)


def recording_files(config: IdentifyConfig, names: Iterable[str]) -> list[tuple[str, Path]]:
    """Files of recordings in the data folder, as pairs of the role "recording" and a path."""
    own = {recording.name: recording.columns for recording in config.recording}
    named = ((own.get(name) or config.columns, config.folder / name) for name in names)
    return [("recording", file) for columns, path in named for file in columns.paths(path)]


def _mechanism(config: IdentifyConfig, study: StudyConfig) -> Path:
    return study.mechanism or config.folder / study.mechanism_in_data


def plant_of(config: IdentifyConfig, study: StudyConfig) -> Plant:
    """The plant from which a fit starts: a mechanism with the forces of the config, or the plant of an earlier run."""
    path = _mechanism(config, study)
    earlier = load_plant(path) if holds_plant(path) else None
    system = earlier.system if earlier else load(path, base=study.base, repair=study.repair, ignore=study.ignore)
    if config.force:
        own = tuple(_force(force, system, k, earlier) for k, force in enumerate(config.force, start=1))
        replaced = {type(force) for force in own} | _FRICTION
        kept = tuple(force for force in system.forces if type(force) not in replaced)
        system = system.changed(forces=(*own, *kept))
    if not config.columns.u:  # the machine has no inputs
        system = system.changed(drives=JointDrives((), jnp.zeros(0, system.model.dtype)))
    unknown = Sensors(np.ones(system.model.nq))
    sensors, inputs = (unknown, None) if earlier is None else (earlier.sensors, earlier.inputs)
    return with_sensors(config, Plant(system, sensors, inputs), len(study.train))


@as_config_errors()
def prepared(config: IdentifyConfig, plant: Plant, parts: Sequence[Part]) -> Plant:
    """The plant with initial guesses and noise that neither the config nor the mechanism states, from its training recordings."""
    if config.synthetic is not None:
        return plant
    if config.fit.method == "stages":
        stages.check_parts(plant, parts)
    if not config.free:
        plant = stages.usual_plant(plant, parts, friction=not config.force)
    noise = config.fit.noise or tuple(stages.measured_noise(parts).tolist())
    return with_sensors(config, plant, len(parts), noise)


def with_sensors(config: IdentifyConfig, plant: Plant, recordings: int, noise: tuple[float, ...] = (1.0,)) -> Plant:
    """The plant with the noise and the resolution of a config, for a number of training recordings.

    Args:
        config: Config of `jaxdyn identify`.
        plant: Plant whose sensors are replaced.
        recordings: Number of recordings, each of which may have separate zeros.
        noise: Noise of the measurements, if the config does not state it.
    """
    ny = plant.system.model.nq
    given = one_each(config.fit.noise or noise, ny, "measurement", "fit.noise")
    deviations = given * np.sqrt(config.fit.block_length)
    each_its_own = any(entry.path == "sensors.zeros" for entry in config.free)
    zeros = np.zeros((recordings if each_its_own else 0, ny))
    quantization = one_each(config.fit.quantization, ny, "measurement", "fit.quantization")
    scale, offset = plant.sensors.scale, plant.sensors.offset
    sensors = Sensors(deviations, scale=scale, offset=offset, quantization=quantization, zeros=zeros)
    return Plant(plant.system, sensors, plant.inputs)


def _force(table: ForceTable, system: System, k: int, earlier: Plant | None) -> JointForce:
    """The force of the earlier plant at this place, or else a new force with the values of the table.

    Values that the earlier fit moved to their lower bound, which no search can leave, start at a small part of those of the table.
    """
    force = table.build(system, f"force {k}:")
    estimated = None if earlier is None or len(earlier.system.forces) < k else earlier.system.forces[k - 1]
    if type(estimated) is not type(force):
        return force
    values = {}
    for name, declared in quantities(type(force)).items():
        given, found = getattr(force, name), getattr(estimated, name)
        if declared.minimum is not None and given is not None and found is not None:
            at_bound = jnp.abs(found - declared.minimum) <= _AT_BOUND * jnp.abs(given)
            found = jnp.where(at_bound, _LIFTED * given, found)
        values[name] = found
    return dataclasses.replace(force, **values)


@as_config_errors()
def parameters_of(config: IdentifyConfig, plant: Plant) -> Parameters:
    """The free parameters of a plant."""
    names = plant.system.model.topology.body_names
    free: list[Parameter] = []
    for entry in config.free:
        if entry.inertia:
            bodies = names if entry.inertia == ("all",) else entry.inertia
            prior = DivergencePrior(entry.divergence) if entry.divergence else None
            free += [body_inertia(body, prior=prior) for body in bodies]
            continue
        parameter = _parameter(entry)
        if entry.start is not None:
            plant = _started(plant, parameter, entry.start)
        free.append(parameter)
    ties = [Tie(tie.path, tie.to, _entries(tie.entries), factor=tie.factor, offset=tie.offset) for tie in config.tie]
    return Parameters(plant, free or stages.usual_parameters(plant), ties)


def _parameter(entry: FreeConfig) -> Parameter:
    prior = None
    if entry.prior_std is not None:
        mean = None if entry.prior_mean is None else _one_or_all(entry.prior_mean)
        prior = GaussianPrior(_one_or_all(entry.prior_std), mean)
    chart = None if entry.chart is None else _object(Chart, entry.chart, entry)
    return Parameter(entry.path, _entries(entry.entries), chart, prior, entry.name, entry.unit)


def _one_or_all(values: tuple[float, ...]) -> float | tuple[float, ...]:
    return values[0] if len(values) == 1 else values


def _entries(entries: tuple[str, ...]) -> tuple[str | int, ...] | None:
    return tuple(int(entry) if entry.isdigit() else entry for entry in entries) or None


def _started(plant: Plant, parameter: Parameter, start: tuple[float, ...]) -> Plant:
    """The plant with other values of a parameter."""
    alone = Parameters(plant, [Parameter(parameter.path, parameter.entries, Real())])
    values = one_each(start, alone.size, "entry", f"start of {parameter.path}")
    return alone.place(jnp.asarray(values, plant.system.model.dtype))


def check_folder(config: IdentifyConfig) -> None:
    """Check that the data folder exists.

    Raises:
        ConfigError: The folder does not exist; the message states where the recordings can be obtained.
    """
    if not config.folder.is_dir():
        source = f" from {config.source}" if config.source else ""
        raise ConfigError(
            f'{config.folder}: there is no such folder; get the recordings{source} and give their folder: "data=FOLDER"'
        )


def recordings_of(config: IdentifyConfig, study: StudyConfig) -> tuple[list[Part], list[Part]]:
    """Recordings for the fit, and recordings for its validation; none if the recordings are synthetic.

    Raises:
        ConfigError: The recordings are missing, or cannot be used.
    """
    if config.synthetic is not None:
        return [], []
    check_folder(config)
    return (
        parts_of(config, study.train, study.train_time),
        parts_of(config, study.validation, study.validation_time),
    )


def note_on_units(plant: Plant, parts: Sequence[Part]) -> str | None:
    """Note on recorded coordinates far beyond the joint limits, which may be in degrees; None if there are no such coordinates."""
    topology, limits = plant.system.model.topology, plant.system.model.limits
    lower, upper = np.asarray(limits.lower), np.asarray(limits.upper)
    for recording in (part.recording for part in parts):
        if recording.q.shape[1:] != lower.shape:
            continue  # the fit reports this
        with np.errstate(invalid="ignore"):
            beyond = np.fmax.reduce(np.maximum(recording.q - upper, lower - recording.q))
        for k in np.flatnonzero(np.isfinite(upper - lower) & (beyond > _FAR_BEYOND * (upper - lower))):
            joint = topology.joint_names[int(np.searchsorted(topology.q_starts, k, side="right")) - 1]
            return (
                f"note: {recording.name}: {joint} is up to {beyond[k]:.3g} rad or m beyond its limits; if the file has degrees, "
                'write the unit into the name of the column, as in q = ["elbow [deg]"]'
            )
    return None


def inputs_in_words(parts: Sequence[Part]) -> str:
    """Whether the inputs of recordings are held or linear between their time stamps; empty without inputs."""
    found = {part.recording.inputs for part in parts if part.recording.u.size}
    return " and ".join(sorted(found))


def parts_of(config: IdentifyConfig, names: Sequence[str], limits: tuple[float, float]) -> list[Part]:
    """Read recordings in the data folder, each with its columns, its time interval and its processing.

    Args:
        config: Config of `jaxdyn identify` or of `jaxdyn evaluate`.
        names: Names of the recordings.
        limits: Time interval of each recording that is used, s.
    """
    own = {recording.name: recording for recording in config.recording}
    parts = []
    for name in names:
        other = own.get(name, RecordingConfig(name))
        recording = load_recording(config.folder / name, other.columns or config.columns)
        parts.append(Part(recording, *limits, processing_of(config, other)))
    return parts


def processing_of(
    config: IdentifyConfig,
    own: RecordingConfig = RecordingConfig(""),  # noqa: B008 (immutable)
) -> Processing:
    """Processing of a recording.

    Args:
        config: Config of `jaxdyn identify` or of `jaxdyn evaluate`.
        own: Settings of the recording that differ from those of the config.
    """
    cutoff = own.velocity_cutoff or config.windows.velocity_cutoff
    return Processing(own.motion or config.motion, config.lead, cutoff, config.check)


@as_config_errors()
def windows_of(config: IdentifyConfig, parts: Sequence[Part], **changes) -> Windows:
    """Windows of recordings with the settings of the config, the longest ones; `changes` replace some of these settings."""
    options = {name: getattr(config.windows, name) for name in ("interval", "stride", "first")}
    return stages.windows_of(parts, **({"duration": config.windows.duration[-1]} | options | changes))


@as_config_errors()
def motions_of(parts: list[Part]) -> Motions:
    """Smoothed motions and forces of all parts in sequence.

    Raises:
        ConfigError: A part is too short: after the processing, no samples remain.
    """
    return smoothed_motions(parts)


def loss_of(config: IdentifyConfig) -> Loss:
    """The loss of a single sample; the threshold is scaled because `block_length` samples count as one."""
    loss = _object(Loss, config.fit.loss, config.fit)
    if not hasattr(loss, "threshold"):
        return loss
    return dataclasses.replace(loss, threshold=float(loss.threshold / np.sqrt(config.fit.block_length)))


@as_config_errors()
def problems_of(config: IdentifyConfig, parameters: Parameters, parts: list[Part]) -> list[Problem]:
    """The least-squares problems of a fit, in the order in which they are solved.

    Raises:
        ConfigError: The recordings or the free parameters do not fit the method.
    """
    plant, settings, loss = parameters.subject, config.fit, loss_of(config)
    if settings.method == "inverse_dynamics":
        motions = motions_of(parts)
        if settings.noise:
            noise = each(settings.noise, "nv", plant.system, "fit.noise") * np.sqrt(settings.block_length)
        else:
            noise = stages.usual_force_noise(plant, motions, parts)
        return [InverseDynamicsError(parameters, motions, noise, loss)]
    w = config.windows
    deviations = {"start_noise": w.start_noise, "continuity": w.continuity}
    given: dict[str, Any] = {
        key: each(values, "nx", plant.system.changed(drives=None), f"windows.{key}")
        for key, values in deviations.items()
        if values
    }
    windows = [windows_of(config, parts, duration=duration) for duration in w.duration]
    options = given | {"free_starts": w.free_starts, "growth_time": w.growth_time}
    if settings.method == "output_error":
        return [OutputError(parameters, one, loss, **options) for one in windows]
    return stages.staged_problems(parameters, parts, windows, loss, **options)


@as_config_errors()
def figures(config: IdentifyConfig, plant: Plant, parts: list[Part], *, intervals: bool = False) -> dict[str, float]:
    """The figures of merit of all checks of the config, by the names that appear in tables.

    Raises:
        ConfigError: A recording is too short for a check, or does not fit the plant.
    """
    if not config.check:
        return {}
    return evaluate(plant, parts, config.check, intervals=intervals).figures["plant"]


def _object(base: Any, name: str, settings: Any) -> Any:
    """Make an object of the class with this name from the attributes of `settings`.

    Fields without such an attribute, or whose attribute is None, have the default of the class.
    """
    cls = named_subclasses(base)[name]
    given = {field.name: getattr(settings, field.name, None) for field in dataclasses.fields(cls)}
    return cls(**{field: value for field, value in given.items() if value is not None})
