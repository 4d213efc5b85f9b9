"""Figures of merit of an identified machine on recordings, by their names in tables."""

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from jaxdyn.dynamics.system import State
from jaxdyn.identify.estimates import QUANTILE
from jaxdyn.identify.measurement import MeasurementError, Plant, check_lead
from jaxdyn.identify.prediction_intervals import prediction_deviations, start_deviations
from jaxdyn.identify.recording import Part, Recording, RecordingError, Windows, cut
from jaxdyn.identify.validation import (
    end_states,
    fitted_starts,
    force_errors,
    predicted_measurements,
    smoothed_motions,
    valid_times,
    window_errors,
)
from jaxdyn.identify.zeros import estimated_zeros
from jaxdyn.mechanism.components import component_names
from jaxdyn.mechanism.quantity import EFFORT, Quantity, check_settings, plain, quantity


def _values(given: Any) -> tuple[Any, ...]:
    """Values of a list or an array, or one value, as a tuple."""
    return tuple(np.ravel(given).tolist())


class Check(eqx.Module):
    """Figures of merit of a plant on recordings, by their names in tables.

    A name contains everything that the figure depends on besides the recording: durations, filters and the estimator of the
    initial state.

    Raises:
        ValueError: A setting that is declared with `quantity` is out of its bounds.
    """

    def __check_init__(self):
        check_settings(self)

    @abc.abstractmethod
    def figures(self, plant: Plant, parts: Sequence[Part]) -> dict[str, float]:
        """The figures of merit by their names, with the percentages of measurements inside the 95 % prediction intervals.

        Args:
            plant: Plant to validate; without estimates of the predicted quantities, it has no prediction intervals.
            parts: Recordings to predict, or parts of them, each with its processing.
        """


class WindowsCheck(Check):
    """RMS errors and median final errors of simulated windows that do not overlap.

    Attributes:
        kind: Name of this kind of check, "windows".
        durations: Durations of the windows; figures are computed for each of them.
        interval: Time step of the simulation.
        first: Start time of the first window.
        zeros_from: Duration at the beginning of each recording, after `first`, from which the zeros of its sensors are estimated;
            the windows of the figures follow it. With 0, the zeros of all recordings are the `offset` of the sensors.
    """

    kind: Literal["windows"] = eqx.field(static=True, default="windows")
    durations: tuple[float, ...] = eqx.field(
        static=True, converter=_values, default=(0.5,), metadata=quantity("s", positive=True)
    )
    interval: float = eqx.field(static=True, converter=plain, default=0.002, metadata=quantity("s", positive=True))
    first: float = eqx.field(static=True, converter=plain, default=0.0, metadata=quantity("s", minimum=0.0))
    zeros_from: float = eqx.field(static=True, converter=plain, default=0.0, metadata=quantity("s", minimum=0.0))

    def figures(self, plant: Plant, parts: Sequence[Part]) -> dict[str, float]:
        found, bands = {}, {}
        names = plant.measurement_names
        start, plant = self._start_in_words(parts), self._with_zeros(plant, parts)
        for duration in self.durations:
            windows, how = self._windows(parts, duration), f" @{duration:g}s{start}"
            check_lead(plant, False, windows.controls)
            predicted = predicted_measurements(plant, windows)
            errors = window_errors(windows, predicted)
            found |= {f"rms {name}{how}": float(x) for name, x in zip(names, errors.rms, strict=True)}
            found[f"median end{how}"] = errors.median_at_end
            deviations = prediction_deviations(plant, windows, start_deviations(plant, parts))
            if deviations is not None:
                inside = np.abs(np.asarray(predicted - windows.measurements)) <= QUANTILE * deviations
                counted = np.asarray(windows.weights) > 0
                bands[f"inside the 95 % band %{how}"] = 100.0 * float(np.mean(inside[counted]))
        return found | bands

    def _with_zeros(self, plant: Plant, parts: Sequence[Part]) -> Plant:
        """The plant with the zeros of the recordings, from windows of a quarter of `zeros_from`."""
        if not self.zeros_from:
            return plant
        duration = self.interval * max(1, round(self.zeros_from / self.interval) // 4)
        end = self.first + self.zeros_from + 0.5 * self.interval
        beginnings = [dataclasses.replace(part, end=min(part.end, part.start + end)) for part in parts]
        return estimated_zeros(plant, self._windows(beginnings, duration, self.first))

    def _start_in_words(self, parts: Sequence[Part]) -> str:
        zeros = f", zeros from {self.zeros_from:g} s" if self.zeros_from else ""
        return f"{_start_in_words(parts)}{zeros}"

    def _windows(self, parts: Sequence[Part], duration: float, first: float | None = None) -> Windows:
        regular = [part.alone.resampled(self.interval) for part in parts]
        return cut(
            regular,
            duration=duration,
            interval=self.interval,
            first=self.first + self.zeros_from if first is None else first,
            lead=max(part.processed.lead for part in parts),
            velocity_cutoff=[part.processed.velocity_cutoff for part in parts],
            both_ends=True,
        )


class ValidTimeCheck(Check):
    """Time until the errors of predictions exceed thresholds: median and lower quartile over all predictions.

    The initial state of a prediction is estimated from a few samples around its start; no other samples of the recording are used.
    The state is estimated from a polynomial of degree 4 and, for a second figure of merit, from a fitted motion of the plant.

    Attributes:
        kind: Name of this kind of check, "valid_time".
        durations: Duration of all predictions, as a list of one value.
        interval: Time step of the simulation and of the samples.
        first: Start time of the samples of the first prediction.
        stride: Time from the start of a prediction to the start of the next one.
        count: Number of predictions per recording.
        thresholds: Thresholds for the largest error of any measurement; figures are computed for each of them.
        samples: Number of samples from which the initial state is estimated.
        absolute: If true, errors are computed for the sums of the coordinates along the chain, which are the angles of the links
            from the vertical.
    """

    kind: Literal["valid_time"] = eqx.field(static=True, default="valid_time")
    durations: tuple[float, ...] = eqx.field(
        static=True, converter=_values, default=(0.5,), metadata=quantity("s", positive=True)
    )
    interval: float = eqx.field(static=True, converter=plain, default=0.002, metadata=quantity("s", positive=True))
    first: float = eqx.field(static=True, converter=plain, default=0.0, metadata=quantity("s", minimum=0.0))
    stride: float = eqx.field(static=True, converter=plain, default=1.0, metadata=quantity("s", positive=True))
    count: int = eqx.field(static=True, converter=plain, default=20, metadata=quantity(positive=True))
    thresholds: tuple[float, ...] = eqx.field(
        static=True, converter=_values, default=(0.1,), metadata=quantity(positive=True)
    )
    samples: int = eqx.field(static=True, converter=plain, default=15, metadata=quantity(positive=True))
    absolute: bool = eqx.field(static=True, converter=plain, default=False)

    def __check_init__(self):
        if len(self.durations) != 1:
            raise ValueError(f"durations has {len(self.durations)} values; give one duration for all predictions")

    def figures(self, plant: Plant, parts: Sequence[Part]) -> dict[str, float]:
        if not plant.sensors.reads_coordinates_only or plant.system.nz:
            raise MeasurementError(
                'check "valid_time": it begins at measured coordinates without earlier inputs, so that the sensors must be '
                'JointEncoders() alone, and the drives have no states; use the check "windows"'
            )
        h, middle = self.interval, self.samples // 2
        predicted, seen = [], []
        for part in parts:
            recording = part.alone
            for start in range(self.count):
                first = round((self.first + start * self.stride) / h)
                seen.append(_rows(recording, first, self.samples))
                predicted.append(_rows(recording, first + middle, round(self.durations[0] / h) + 1))
        known = cut(seen, duration=(self.samples - 1) * h, interval=h)
        ahead = cut(predicted, duration=self.durations[0], interval=h)
        found = {}
        for how, starts in (
            (f", polynomial start ({self.samples} samples)", polynomial_states(known, middle)),
            (f", fitted start ({self.samples} samples)", smoothed_states(plant, known, middle)),
        ):
            values, measured = predicted_measurements(plant, ahead, starts), ahead
            if self.absolute:
                values = jnp.cumsum(values, axis=2)
                measured = eqx.tree_at(lambda w: w.measurements, ahead, jnp.cumsum(ahead.measurements, axis=2))
            for threshold in self.thresholds:
                times = valid_times(measured, values, threshold)
                found[f"valid time >{threshold:g}{how}"] = float(np.median(times))
                found[f"valid time >{threshold:g}{how}, 25 %"] = float(np.quantile(times, 0.25))
        return found


class ForcesCheck(Check):
    """Errors of inverse dynamics: relative, RMS and normalized mean square errors of the forces of the drives.

    Attributes:
        kind: Name of this kind of check, "forces".
        limits: Force limits, one per joint; RMS errors are divided by twice the limit for a further figure, which is omitted
            without limits.
    """

    kind: Literal["forces"] = eqx.field(static=True, default="forces")
    limits: tuple[float, ...] = eqx.field(
        static=True, converter=_values, default=(), metadata=quantity(EFFORT, positive=True)
    )

    def figures(self, plant: Plant, parts: Sequence[Part]) -> dict[str, float]:
        motions, how = smoothed_motions(parts, delays=plant.inputs.delayed), _filter_in_words(parts)
        check_lead(plant, False, motions.around)
        errors, deviations = force_errors(plant.bare, motions), prediction_deviations(plant, motions)
        names = component_names(plant.system.model, Quantity(along="velocity"))
        found = {f"relative{how}": errors.relative}
        if self.limits:
            found[f"NRMS %{how}"] = 100.0 * float(np.mean(errors.rms / (2.0 * np.asarray(self.limits))))
        found |= {f"rms {name}{how}": float(x) for name, x in zip(names, errors.rms, strict=True)}
        found |= {f"NMSE {name}{how}": float(x) for name, x in zip(names, errors.normalized, strict=True)}
        if deviations is None:
            return found
        inside = np.abs(errors.predicted - errors.measured) <= QUANTILE * deviations
        found[f"inside the 95 % band %{how}"] = 100.0 * float(np.mean(inside))
        each = zip(names, inside.mean(axis=0), strict=True)
        return found | {f"inside the 95 % band % {name}{how}": 100.0 * float(share) for name, share in each}


def _filter_in_words(parts: Sequence[Part]) -> str:
    """The filters of the recordings, for the names of figures."""
    words = [part.processed.smoothing.in_words for part in parts]
    return words[0] if len(set(words)) == 1 else ", mixed filters"


def _start_in_words(parts: Sequence[Part]) -> str:
    """The estimator of the initial states of windows, for the names of figures."""
    cutoffs = " and ".join(dict.fromkeys(f"{part.processed.velocity_cutoff:g}" for part in parts))
    return f", filtered start ({cutoffs} Hz)"


def polynomial_states(windows: Windows, sample: int) -> State:
    """States at a sample of each window, from polynomials of degree 4 that are fitted to all samples of the window."""
    times = np.asarray(windows.times[0]) - sample * windows.interval
    weights = np.linalg.pinv(np.vander(times, 5, increasing=True))
    q, v = (jnp.asarray(np.einsum("m,wmc->wc", weights[k], np.asarray(windows.measurements))) for k in (0, 1))
    return State(q, v)


def smoothed_states(plant: Plant, windows: Windows, sample: int) -> State:
    """States at a sample of each window, from the motion of the plant that is fitted to all samples of the window."""
    guess = eqx.tree_at(lambda windows: windows.starts, windows, polynomial_states(windows, 0))
    return end_states(plant, dataclasses.replace(guess, steps=sample), fitted_starts(plant, guess))


def _rows(recording: Recording, first: int, count: int) -> Recording:
    if first + count > len(recording.time):
        raise RecordingError(
            f"{recording.name}: a prediction would end after the recording; reduce count, stride or durations"
        )
    rows = slice(first, first + count)
    time, q, u = (table[rows] for table in (recording.time, recording.q, recording.u))
    return Recording(recording.name, time, q, None, u, inputs=recording.inputs)
