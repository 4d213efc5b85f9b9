"""Construction of the plant, its free parameters, its recordings and the fitting problem from a config of `jaxdyn identify`."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.dynamics import friction
from jaxdyn.dynamics.forces import JointDrives, JointForce
from jaxdyn.identify.charts import Chart
from jaxdyn.identify.inverse_dynamics_error import InverseDynamicsError, Motions
from jaxdyn.identify.least_squares import Problem
from jaxdyn.identify.losses import Loss
from jaxdyn.identify.markers import calibrated
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
from jaxdyn.identify.recording import Recording, RecordingError, Windows, cut
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.recordings import load_film, load_recording
from jaxdyn.io.system_file import files_of
from jaxdyn.jobs.identify_config import IdentifyConfig, StudyConfig
from jaxdyn.jobs.identify_tables import made
from jaxdyn.jobs.parameters_config import FreeConfig
from jaxdyn.jobs.source import load

_FRICTION = {cls for cls in vars(friction).values() if isinstance(cls, type) and issubclass(cls, JointForce)}


def files_of_studies(config: IdentifyConfig) -> list[tuple[str, Path]]:
    """All files that the studies read, each with its role.

    Raises:
        ConfigError: A study needs a data folder, and there is none.
    """
    mechanisms = [file for study in config.study for file in files_of(_mechanism(config, study))]
    names = [name for study in config.study if config.data for name in (*study.train, *study.validation)]
    recordings = [config.folder / re.sub(r"\.npz:.*", ".npz", name) for name in names]
    return [*(("mechanism", file) for file in mechanisms), *(("recording", file) for file in recordings)]


def _mechanism(config: IdentifyConfig, study: StudyConfig) -> Path:
    return study.mechanism or config.folder / study.mechanism_in_data


def plant_of(config: IdentifyConfig, study: StudyConfig) -> Plant:
    """The plant with the initial guess of a fit."""
    system = load(_mechanism(config, study), base=study.base, repair=study.repair)
    if config.force:
        own = tuple(force.build(system, f"force {k}:") for k, force in enumerate(config.force, start=1))
        replaced = {type(force) for force in own} | _FRICTION
        kept = tuple(force for force in system.forces if type(force) not in replaced)
        system = dataclasses.replace(system, forces=(*own, *kept))
    if config.markers is not None or not config.columns.u:  # the machine has no inputs
        nothing = JointDrives((), jnp.zeros(0, system.model.dtype))
        system = eqx.tree_at(lambda s: s.drives, system, nothing, is_leaf=lambda x: x is None)
    ny = system.model.nq
    noise = one_each(config.fit.noise, ny, "fit.noise") * np.sqrt(config.fit.block_length)
    if config.markers is not None:  # measurements are angles of links, whose differences are the coordinates
        to_coordinates = np.eye(ny) - np.eye(ny, k=-1)
        noise = to_coordinates @ np.diag(noise**2) @ to_coordinates.T
    each_its_own = any(entry.path == "sensors.zeros" for entry in config.free)
    zeros = jnp.zeros((len(study.train) if each_its_own else 0, ny))
    return Plant(
        system, Sensors(noise, quantization=one_each(config.fit.quantization, ny, "fit.quantization"), zeros=zeros)
    )


def one_each(values: tuple[float, ...], count: int, name: str) -> Float[Array, "count"]:
    """Values of a config, one for each component.

    Args:
        values: One value, which holds for all components, or one value per component.
        count: Number of components.
        name: Key of the values, for the message.

    Raises:
        ConfigError: The number of values is neither 1 nor the number of components.
    """
    if len(values) not in (1, count):
        raise ConfigError(f"{name} has {len(values)} values; give 1 or {count}")
    return jnp.asarray(np.broadcast_to(np.asarray(values, float), (count,)))


def parameters_of(config: IdentifyConfig, plant: Plant) -> Parameters:
    """The free parameters of a plant."""
    names = plant.system.model.topology.body_names
    free: list[Parameter] = []
    try:
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
        ties = [
            Tie(tie.path, tie.to, _entries(tie.entries), factor=tie.factor, offset=tie.offset) for tie in config.tie
        ]
        return Parameters(plant, free, ties)
    except ParameterError as error:
        raise ConfigError(str(error)) from None


def _parameter(entry: FreeConfig) -> Parameter:
    prior = None
    if entry.prior_std is not None:
        mean = None if entry.prior_mean is None else _one_or_all(entry.prior_mean)
        prior = GaussianPrior(_one_or_all(entry.prior_std), mean)
    return Parameter(
        entry.path, _entries(entry.entries), made(Chart, entry.chart, entry), prior, entry.name, entry.unit
    )


def _one_or_all(values: tuple[float, ...]) -> float | tuple[float, ...]:
    return values[0] if len(values) == 1 else values


def _entries(entries: tuple[str, ...]) -> tuple[str | int, ...] | None:
    return tuple(int(entry) if entry.isdigit() else entry for entry in entries) or None


def _started(plant: Plant, parameter: Parameter, start: tuple[float, ...]) -> Plant:
    """The plant with other values of a parameter."""
    alone = Parameters(plant, [Parameter(parameter.path, parameter.entries)])
    return alone.place(one_each(start, alone.size, f"start of {parameter.path}").astype(plant.system.model.dtype))


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a recording.

    Attributes:
        recording: Complete recording, because filters need the surrounding samples.
        start, end: Interval of the part, measured from the first time stamp, s.
    """

    recording: Recording
    start: float
    end: float

    @property
    def alone(self) -> Recording:
        """The part as a separate recording."""
        first, name = float(self.recording.time[0]), self.recording.name
        try:
            return self.recording.between(first + self.start, first + self.end)
        except RecordingError:
            raise ConfigError(
                f"{name}: no samples between {self.start:g} and {self.end:g} s; its duration is {self.recording.duration:g} s"
            ) from None


def recordings_of(config: IdentifyConfig, study: StudyConfig) -> tuple[list[Part], list[Part]]:
    """Recordings for the fit, and recordings for its validation.

    Raises:
        ConfigError: The recordings are missing; the message states where they can be obtained.
    """
    if not config.folder.is_dir():
        source = f" from {config.source}" if config.source else ""
        raise ConfigError(
            f'{config.folder}: there is no such folder; get the recordings{source} and give their folder: "data=FOLDER"'
        )
    markers = config.markers
    if markers is not None and markers.calibrate:
        markers = calibrated(markers, [load_film(config.folder / name, markers) for name in study.train])
    train, validation = (
        [Part(load_recording(config.folder / name, config.columns, markers), *limits) for name in names]
        for names, limits in ((study.train, study.train_time), (study.validation, study.validation_time))
    )
    return train, validation


def windows_of(config: IdentifyConfig, recordings: Sequence[Recording], **changes) -> Windows:
    """Windows of recordings with the settings of the config, or with other durations and starts."""
    w = config.windows
    options = {
        "duration": w.duration,
        "interval": w.interval,
        "stride": w.stride,
        "first": w.first,
        "lead": w.lead,
        "velocity_cutoff": w.velocity_cutoff,
    }
    try:
        return cut(recordings, **(options | changes))
    except RecordingError as error:
        raise ConfigError(str(error)) from None


def motions_of(config: IdentifyConfig, parts: list[Part]) -> Motions:
    """Smoothed motions and forces of all parts in sequence. Each recording is smoothed as a whole."""
    m = config.motion
    found = []
    for part in parts:
        grid = part.recording.smoothed(m.interval, m.cutoff or None, m.order)
        since = grid.time - grid.time[0]
        kept = np.arange(m.drop, len(since) - m.drop, m.decimate)
        kept = kept[(since[kept] >= part.start) & (since[kept] < part.end)]
        if len(kept) < 2:
            raise ConfigError(
                f"{grid.name}: no samples are left after removing {m.drop} at both ends; lower motion.drop, or use a longer part"
            )
        found.append(Motions(*(jnp.asarray(x[kept]) for x in (grid.q, grid.v, grid.a, grid.u) if x is not None)))
    return jax.tree.map(lambda *x: jnp.concatenate(x), *found)


def loss_of(config: IdentifyConfig) -> Loss:
    """The loss of single samples, of which `block_length` count as one; the threshold is scaled accordingly."""
    threshold = float(config.fit.threshold / np.sqrt(config.fit.block_length))
    return made(Loss, config.fit.loss, dataclasses.replace(config.fit, threshold=threshold))


def problem_of(config: IdentifyConfig, parameters: Parameters, parts: list[Part]) -> Problem:
    """The least-squares problem of a fit.

    Raises:
        ConfigError: The recordings or the free parameters do not fit the method.
    """
    try:
        return _problem_of(config, parameters, parts)
    except (MeasurementError, ParameterError) as error:
        raise ConfigError(str(error)) from None


def _problem_of(config: IdentifyConfig, parameters: Parameters, parts: list[Part]) -> Problem:
    model = parameters.subject.system.model
    if config.fit.method == "inverse_dynamics":
        noise = one_each(config.fit.noise, model.nv, "fit.noise") * np.sqrt(config.fit.block_length)
        return InverseDynamicsError(parameters, motions_of(config, parts), noise, loss_of(config))
    w = config.windows
    start_noise = one_each(w.start_noise, 2 * model.nv, "windows.start_noise") if w.start_noise else None
    continuity = one_each(w.continuity, 2 * model.nv, "windows.continuity") if w.continuity else None
    return OutputError(
        parameters,
        windows_of(config, [part.alone for part in parts]),
        loss_of(config),
        free_starts=w.free_starts,
        start_noise=start_noise,
        continuity=continuity,
    )
