"""From the config of `jaxdyn identify` to a plant, its free parameters, its recordings and the problem to solve."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jaxdyn.dynamics.friction as friction_terms
from jaxdyn.dynamics.forces import JointForce
from jaxdyn.dynamics.system import System
from jaxdyn.identify.charts import Bounded, Chart, Positive, Real, Rotation, UnitVector
from jaxdyn.identify.inverse_dynamics_error import InverseDynamicsError, Motions
from jaxdyn.identify.least_squares import Problem
from jaxdyn.identify.losses import Cauchy, Huber, Loss, Squares
from jaxdyn.identify.measurement import Plant, Sensors
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
from jaxdyn.identify.recording import Recording, RecordingError, Windows, cut, low_passed
from jaxdyn.io.config import ConfigError
from jaxdyn.io.recordings import load_recording
from jaxdyn.io.system_file import load_system
from jaxdyn.jobs.identify_config import FreeConfig, FrictionConfig, IdentifyConfig, StudyConfig
from jaxdyn.jobs.source import said_in_one_line


def plant_of(config: IdentifyConfig, study: StudyConfig) -> Plant:
    """The plant where a fit starts."""
    path = study.mechanism or config.data / study.mechanism_in_data
    with said_in_one_line():
        system = load_system(path, unphysical="repair" if study.repair else "refuse")
    if config.friction:
        terms = {getattr(friction_terms, term.kind) for term in config.friction} | {friction_terms.JointFriction}
        kept = tuple(force for force in system.forces if type(force) not in terms)
        forces = (*kept, *(_friction(term, system) for term in config.friction))
        system = eqx.tree_at(lambda s: s.forces, system, forces, is_leaf=lambda x: isinstance(x, tuple))
    noise = _spread(config.fit.noise, system.model.nq, "fit.noise")
    return Plant(
        system, Sensors(noise, quantization=_spread(config.fit.quantization, system.model.nq, "fit.quantization"))
    )


def _friction(term: FrictionConfig, system: System) -> JointForce:
    kind = getattr(friction_terms, term.kind)
    fields = [field.name for field in dataclasses.fields(kind)]
    given = {name: value for name, value in vars(term).items() if name != "kind" and value is not None}
    for name in given:
        if name not in fields:
            raise ConfigError(f"friction: {term.kind} has no {name}; it has {', '.join(fields)}")
    for name in fields:
        if name not in given:
            raise ConfigError(f"friction: {term.kind} needs {name}; give one number, or one per velocity component")
    return kind(**{name: _spread(value, system.model.nv, f"friction.{name}") for name, value in given.items()})


def _spread(values: tuple[float, ...], count: int, name: str) -> Float[Array, "count"]:
    if len(values) not in (1, count):
        raise ConfigError(f"{name} has {len(values)} numbers; give 1 or {count}")
    return jnp.asarray(np.broadcast_to(np.asarray(values, float), (count,)))


def parameters_of(config: IdentifyConfig, plant: Plant) -> Parameters:
    """What is free in a plant."""
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
    charts: dict[str, Chart] = {
        "real": Real(),
        "positive": Positive(),
        "bounded": Bounded(entry.lower, entry.upper),
        "unit_vector": UnitVector(),
        "rotation": Rotation(),
    }
    prior = None
    if entry.prior_std is not None:
        prior = GaussianPrior(
            _one_or_all(entry.prior_std), None if entry.prior_mean is None else _one_or_all(entry.prior_mean)
        )
    return Parameter(entry.path, _entries(entry.entries), charts[entry.chart], prior, entry.name, entry.unit)


def _one_or_all(values: tuple[float, ...]) -> float | tuple[float, ...]:
    return values[0] if len(values) == 1 else values


def _entries(entries: tuple[str, ...]) -> tuple[str | int, ...] | None:
    return tuple(int(entry) if entry.isdigit() else entry for entry in entries) or None


def _started(plant: Plant, parameter: Parameter, start: tuple[float, ...]) -> Plant:
    """The plant with other numbers where a parameter is."""
    alone = Parameters(plant, [Parameter(parameter.path, parameter.entries)])
    return alone.place(_spread(start, alone.size, f"start of {parameter.path}").astype(plant.system.model.dtype))


def recordings_of(config: IdentifyConfig, study: StudyConfig) -> tuple[list[Recording], list[Recording]]:
    """Recordings to learn from, and those to be judged by.

    Raises:
        ConfigError: they are not there; the message says where to get them.
    """
    if not config.data.is_dir():
        source = f" from {config.source}" if config.source else ""
        raise ConfigError(
            f'{config.data}: there is no such folder; get the recordings{source} and say where: "data=FOLDER"'
        )
    parts = []
    for names, (start, end) in ((study.train, study.train_time), (study.validation, study.validation_time)):
        part = [load_recording(config.data / name, config.columns, config.markers) for name in names]
        parts.append([_between(recording, start, end) for recording in part])
    return parts[0], parts[1]


def _between(recording: Recording, start: float, end: float) -> Recording:
    first = float(recording.time[0])
    try:
        return recording.between(first + start, first + end)
    except RecordingError:
        raise ConfigError(
            f"{recording.name}: nothing lies between {start:g} and {end:g} s; it has {recording.duration:g} s"
        ) from None


def windows_of(config: IdentifyConfig, recordings: list[Recording], **changes) -> Windows:
    """Windows of recordings as the config cuts them, or with other durations and starts."""
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


def motions_of(config: IdentifyConfig, recordings: list[Recording]) -> Motions:
    """Smoothed motions and forces of recordings, one after the other."""
    m = config.motion
    parts = []
    for recording in recordings:
        grid = recording.resampled(m.interval)

        def smooth(x):
            return low_passed(x, m.interval, m.cutoff, m.order) if m.cutoff else x

        q, u = smooth(grid.q), smooth(grid.u)
        v = np.gradient(q, m.interval, axis=0) if grid.v is None else smooth(grid.v)
        a = np.gradient(v, m.interval, axis=0) if grid.a is None else smooth(grid.a)
        kept = slice(m.drop, len(q) - m.drop, m.decimate)
        if len(q[kept]) < 2:
            raise ConfigError(
                f"{recording.name}: nothing is left after dropping {m.drop} samples at both ends; drop fewer"
            )
        parts.append(Motions(*(jnp.asarray(x[kept]) for x in (q, v, a, u))))
    return jax.tree.map(lambda *x: jnp.concatenate(x), *parts)


def loss_of(config: IdentifyConfig) -> Loss:
    """The loss by its name."""
    threshold = config.fit.threshold
    return {"squares": Squares(), "huber": Huber(threshold), "cauchy": Cauchy(threshold)}[config.fit.loss]


def problem_of(config: IdentifyConfig, parameters: Parameters, recordings: list[Recording]) -> Problem:
    """What is to be minimized."""
    model = parameters.subject.system.model
    if config.fit.method == "inverse_dynamics":
        noise = _spread(config.fit.noise, model.nv, "fit.noise")
        return InverseDynamicsError(parameters, motions_of(config, recordings), noise, loss_of(config))
    w = config.windows
    start_noise = _spread(w.start_noise, 2 * model.nv, "windows.start_noise") if w.start_noise else None
    continuity = _spread(w.continuity, 2 * model.nv, "windows.continuity") if w.continuity else None
    return OutputError(
        parameters,
        windows_of(config, recordings),
        loss_of(config),
        start_noise=start_noise,
        continuity=continuity,
    )
