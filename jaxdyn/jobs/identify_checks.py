"""Figures of merit of a plant on recordings, by names that go into tables."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from jaxdyn.dynamics.system import State
from jaxdyn.identify.measurement import Plant
from jaxdyn.identify.recording import Recording, Windows, cut
from jaxdyn.identify.validation import (
    end_states,
    fitted_starts,
    force_errors,
    predicted_measurements,
    valid_times,
    window_errors,
)
from jaxdyn.io.errors import ConfigError
from jaxdyn.jobs.identify_config import CheckConfig, IdentifyConfig
from jaxdyn.jobs.identify_plant import Part, motions_of, windows_of


def figures(config: IdentifyConfig, plant: Plant, parts: list[Part]) -> dict[str, float]:
    """All checks of the config."""
    found: dict[str, float] = {}
    for check in config.check:
        if check.kind == "windows":
            found |= _windows(config, check, plant, parts)
        elif check.kind == "valid_time":
            found |= _valid_time(check, plant, parts)
        else:
            found |= _forces(config, check, plant, parts)
    return found


def _windows(config: IdentifyConfig, check: CheckConfig, plant: Plant, parts: list[Part]) -> dict[str, float]:
    found = {}
    names = plant.system.model.topology.joint_names
    regular = [part.alone.resampled(check.interval) for part in parts]
    for duration in check.durations:
        windows = windows_of(
            config,
            regular,
            duration=duration,
            interval=check.interval,
            first=check.first,
            stride=duration,
            both_ends=True,
        )
        errors = window_errors(windows, predicted_measurements(plant, windows))
        found |= {f"rms {name} @{duration:g}s": float(x) for name, x in zip(names, errors.rms, strict=True)}
        found[f"median end @{duration:g}s"] = errors.median_at_end
    return found


def _valid_time(check: CheckConfig, plant: Plant, parts: list[Part]) -> dict[str, float]:
    """Predictions start in the middle of a few samples, and know nothing else of the recording."""
    h, n = check.interval, check.samples
    middle = n // 2
    (duration,) = check.durations
    predicted, seen = [], []
    for recording in (part.alone for part in parts):
        for start in range(check.count):
            first = round((check.first + start * check.stride) / h)
            seen.append(_slice(recording, first, n))
            predicted.append(_slice(recording, first + middle, round(duration / h) + 1))
    known = cut(seen, duration=(n - 1) * h, interval=h)
    ahead = cut(predicted, duration=duration, interval=h)
    found = {}
    for how, starts in (("", _polynomial(known, middle, h)), (" smoothed", _smoothed(plant, known, middle, h))):
        measurements, measured = predicted_measurements(plant, ahead, starts), ahead
        if check.absolute:
            measurements = jnp.cumsum(measurements, axis=2)
            measured = eqx.tree_at(lambda w: w.measurements, ahead, jnp.cumsum(ahead.measurements, axis=2))
        for threshold in check.thresholds:
            times = valid_times(measured, measurements, threshold)
            found[f"valid time >{threshold:g}{how}"] = float(np.median(times))
            found[f"valid time >{threshold:g}{how}, 25 %"] = float(np.quantile(times, 0.25))
    return found


def _slice(recording: Recording, first: int, count: int) -> Recording:
    rows = slice(first, first + count)
    if first + count > len(recording.time):
        raise ConfigError(
            f"{recording.name}: a prediction would end after the recording; lower count, stride or durations"
        )
    return Recording(recording.name, recording.time[rows], recording.q[rows], None, recording.u[rows])


def _polynomial(known: Windows, middle: int, h: float) -> State:
    """States from polynomials of degree 4 through the samples."""
    times = np.asarray(known.times[0]) - middle * h
    weights = np.linalg.pinv(np.vander(times, 5, increasing=True))
    q, v = (jnp.asarray(np.einsum("m,wmc->wc", weights[k], np.asarray(known.measurements))) for k in (0, 1))
    return State(q, v)


def _smoothed(plant: Plant, known: Windows, middle: int, h: float) -> State:
    """States from the motion of the plant that fits the samples best."""
    guess = eqx.tree_at(lambda windows: windows.starts, known, _polynomial(known, 0, h))
    starts = fitted_starts(plant, guess)
    return end_states(plant, dataclasses.replace(guess, steps=middle), starts)


def _forces(config: IdentifyConfig, check: CheckConfig, plant: Plant, parts: list[Part]) -> dict[str, float]:
    errors = force_errors(plant, motions_of(config, parts))
    names = plant.system.model.topology.joint_names
    found = {"relative": errors.relative}
    if check.limits:
        found["NRMS %"] = 100.0 * float(np.mean(errors.rms / (2.0 * np.asarray(check.limits))))
    found |= {f"rms {name}": float(x) for name, x in zip(names, errors.rms, strict=True)}
    return found | {f"NMSE {name}": float(x) for name, x in zip(names, errors.normalized, strict=True)}
