"""Validation of an identified machine on held-out recordings: predictions, their errors, and figures of merit."""

import abc
import dataclasses
from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.dynamics.system import State
from jaxdyn.identify.charts import PhysicalInertia
from jaxdyn.identify.estimates import QUANTILE
from jaxdyn.identify.inverse_dynamics_error import Motions, drive_forces, needed_forces
from jaxdyn.identify.measurement import Plant
from jaxdyn.identify.output_error import check_zeros, moved, predict
from jaxdyn.identify.prediction_intervals import force_deviations, start_deviations, window_deviations
from jaxdyn.identify.recording import Part, Recording, RecordingError, Windows, cut
from jaxdyn.identify.zeros import estimated_zeros
from jaxdyn.lanes import Backend, lane_function, stored_jit
from jaxdyn.mechanism.components import component_names
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import EFFORT, Quantity, quantity
from jaxdyn.simulate.integrators import Integrator, RungeKutta4
from jaxdyn.spatial import factorizations


class WindowErrors(NamedTuple):
    """Errors of simulated windows, from `window_errors`.

    Attributes:
        errors: Predicted minus measured values, NaN where nothing was measured or the simulation failed.
        rms: Root mean square error per measurement, over windows and times.
        median_at_end: Median of the absolute error at the end of a window, over windows and measurements.
    """

    errors: Float[np.ndarray, "W M ny"]
    rms: Float[np.ndarray, "ny"]
    median_at_end: float


def predicted_measurements(
    plant: Plant,
    windows: Windows,
    starts: State | None = None,
    *,
    integrator: Integrator = RungeKutta4(),  # noqa: B008 (immutable)
    backend: Backend = "auto",
) -> Float[Array, "W M ny"]:
    """Simulate the measurements in all windows of recordings.

    Args:
        plant: Plant that is simulated.
        windows: Windows, whose inputs and time stamps are used.
        starts: Initial states; by default the guesses in the windows, corrected for offset and scale of the sensors.
        integrator: Integrator of the simulation.
        backend: Compiler of the simulation, see `rollout`.

    Raises:
        MeasurementError: The sensors have zeros, but not one for each recording.
    """
    check_zeros(plant, windows)
    starts = jax.vmap(plant.sensors.state_read)(windows.starts, windows.sources) if starts is None else starts

    def of_window(plant, start, window):
        return predict(plant, start, window, integrator=integrator, backend=backend)[0]

    # The plant is an input of the compiled code, which is valid for all plants of the same structure.
    return stored_jit(jax.vmap(of_window, (None, 0, 0)))(plant.bare, starts, windows)


def end_states(plant: Plant, windows: Windows, starts: State) -> State:
    """Simulated states at the ends of windows."""
    end = jax.vmap(lambda plant, start, window: predict(plant, start, window)[1], (None, 0, 0))
    return stored_jit(end)(plant.bare, starts, windows)


def fitted_starts(plant: Plant, windows: Windows, iterations: int = 15) -> State:
    """Initial states that minimize the errors of each window, by Gauss-Newton steps from the guesses in the windows.

    An iteration that does not decrease the error is undone, and the damping of the next step is increased.

    Args:
        plant: Plant that is simulated.
        windows: Windows with measurements.
        iterations: Number of iterations.
    """

    def of_window(plant, window):
        model = plant.system.model

        def errors(start, step):
            measurements, _ = predict(plant, moved(model, start, step), window)
            return (window.weights * jax.vmap(plant.sensors.whitened)(measurements - window.measurements)).ravel()

        def iteration(carry, _):
            start, damping = carry
            still = jnp.zeros(2 * model.nv, start.v.dtype)
            r, J = errors(start, still), jax.jacfwd(errors, argnums=1)(start, still)
            matrix = J.T @ J
            step = -factorizations.solve(matrix + damping * jnp.diag(jnp.diagonal(matrix)), J.T @ r)
            better = jnp.sum(errors(start, step) ** 2) < jnp.sum(r**2)
            start = jax.tree.map(lambda new, old: jnp.where(better, new, old), moved(model, start, step), start)
            return (start, jnp.where(better, 0.1 * damping, 10.0 * damping)), None

        first = (window.starts, jnp.asarray(1e-3, window.measurements.dtype))
        return jax.lax.scan(iteration, first, None, length=iterations)[0][0]

    return stored_jit(jax.vmap(of_window, (None, 0)))(plant.bare, windows)


def window_errors(windows: Windows, measurements: Float[Array, "W M ny"]) -> WindowErrors:
    """Errors of predicted measurements. The error of a window that diverged is infinite.

    Args:
        windows: Windows with measurements.
        measurements: Predicted measurements, such as those of `predicted_measurements`.
    """
    counted = np.asarray(windows.weights) > 0
    errors = np.where(counted, np.asarray(measurements) - np.asarray(windows.measurements), np.nan)
    broken = counted & ~np.isfinite(errors)
    squares = np.where(broken, np.inf, errors**2)
    rms = np.sqrt(np.sum(np.where(counted, squares, 0.0), axis=(0, 1)) / np.maximum(counted.sum(axis=(0, 1)), 1))
    # The last measurement of each channel of each window; channels without measurements do not count.
    last = counted.shape[1] - 1 - counted[:, ::-1].argmax(axis=1)
    at_end = np.sqrt(np.take_along_axis(squares, last[:, None], axis=1)[:, 0])[counted.any(axis=1)]
    return WindowErrors(np.where(broken, np.nan, errors), rms, float(np.median(at_end)))


def valid_times(windows: Windows, measurements: Float[Array, "W M ny"], threshold: float) -> Float[np.ndarray, "W"]:
    """Time until the largest error of a window exceeds a threshold, s; the duration of the window if no error exceeds it.

    Args:
        windows: Windows with measurements.
        measurements: Predicted measurements, such as those of `predicted_measurements`.
        threshold: Largest allowed error of any measurement, in its unit.
    """
    errors = window_errors(windows, measurements).errors
    beyond = np.nanmax(np.where(np.isnan(errors), 0.0, np.abs(errors)), axis=2) > threshold
    beyond |= (np.asarray(windows.weights).max(axis=2) > 0) & ~np.isfinite(np.asarray(measurements)).all(axis=2)
    times = np.asarray(windows.times)
    first = np.where(beyond.any(axis=1), beyond.argmax(axis=1), times.shape[1] - 1)
    return times[np.arange(len(times)), first]


class ForceErrors(NamedTuple):
    """Errors of predicted forces, from `force_errors`.

    Attributes:
        predicted, measured: Forces of the drives, N m or N.
        rms: Root mean square error per velocity component.
        normalized: Mean square error divided by the variance of the measured force, per velocity component.
        relative: ||measured - predicted|| / ||measured||, in Frobenius norms.
    """

    predicted: Float[np.ndarray, "samples nv"]
    measured: Float[np.ndarray, "samples nv"]
    rms: Float[np.ndarray, "nv"]
    normalized: Float[np.ndarray, "nv"]
    relative: float


@stored_jit
def needed_and_acting(plant: Plant, motions: Motions) -> tuple[Float[Array, "samples nv"], Float[Array, "samples nv"]]:
    """Forces that motions require, and forces that the drives exert with the recorded inputs, N m or N; compiled once per shape."""
    both = lane_function(lambda motion: (needed_forces(plant, motion), drive_forces(plant, motion)), name="forces")
    return jax.vmap(both)(motions)


def force_errors(plant: Plant, motions: Motions) -> ForceErrors:
    """Errors of the forces that a plant predicts for measured motions.

    Args:
        plant: Plant to validate.
        motions: Samples of the motions, with the recorded inputs.
    """
    needed, acting = (np.asarray(x) for x in needed_and_acting(plant, motions))
    # Recorded forces of the drives; their offset and gain are part of the prediction.
    error = needed - acting
    recorded = np.asarray(motions.u) if plant.system.drives is None else acting
    rms = np.sqrt(np.mean(error**2, axis=0))
    normalized = rms**2 / np.var(recorded, axis=0)
    relative = float(np.linalg.norm(error) / np.linalg.norm(recorded))
    return ForceErrors(recorded + error, recorded, rms, normalized, relative)


def unphysical_bodies(model: Model) -> list[str]:
    """Names of bodies that are not physically valid, because their pseudo-inertia is not positive definite.

    Bodies without mass and inertia, which only carry frames, are left out.
    """
    inertial = np.concatenate(
        [np.asarray(x).reshape(model.nb, -1) for x in (model.mass, model.com, model.inertia)], axis=1
    )
    chart = PhysicalInertia()
    return [
        name
        for name, values in zip(model.topology.body_names, inertial, strict=True)
        if np.any(values[[0, 4, 5, 6, 7, 8, 9]]) and chart.validate(values) is not None
    ]


# ---------------------------------------------------------------- figures of merit


class Check(eqx.Module):
    """Figures of merit of a plant on recordings, by their names in tables.

    A name contains everything that the figure depends on besides the recording: durations, filters, the estimator of the initial
    state, and whether the angles of filmed markers are calibrated.

    Attributes:
        larger_is_better: If true, larger figures are better, as for prediction times; otherwise the figures are errors.
    """

    larger_is_better: ClassVar[bool] = False

    @abc.abstractmethod
    def figures(self, plant: Plant, parts: Sequence[Part]) -> dict[str, float]:
        """The figures of merit by their names.

        Args:
            plant: Plant to validate.
            parts: Recordings to predict, or parts of them, each with its processing.
        """

    def calibration(self, plant: Plant, parts: Sequence[Part]) -> dict[str, float]:
        """Percentages of measurements inside the 95 % prediction intervals, by names in tables; empty if there are no intervals.

        Args:
            plant: Plant with its estimates.
            parts: Recordings to predict, or parts of them, each with its processing.
        """
        return {}


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
    durations: tuple[float, ...] = eqx.field(static=True, default=(0.5,), metadata=quantity("s", positive=True))
    interval: float = eqx.field(static=True, default=0.002, metadata=quantity("s", positive=True))
    first: float = eqx.field(static=True, default=0.0, metadata=quantity("s", minimum=0.0))
    zeros_from: float = eqx.field(static=True, default=0.0, metadata=quantity("s", minimum=0.0))

    def figures(self, plant: Plant, parts: Sequence[Part]) -> dict[str, float]:
        found = {}
        names = component_names(plant.system.model, Quantity(along="coordinate"))
        start, plant = self._start_in_words(parts), self._with_zeros(plant, parts)
        for duration in self.durations:
            windows = self._windows(parts, duration)
            errors = window_errors(windows, predicted_measurements(plant, windows))
            found |= {f"rms {name} @{duration:g}s{start}": float(x) for name, x in zip(names, errors.rms, strict=True)}
            found[f"median end @{duration:g}s{start}"] = errors.median_at_end
        return found

    def calibration(self, plant: Plant, parts: Sequence[Part]) -> dict[str, float]:
        if plant.estimates is None:
            return {}
        found, start, plant = {}, self._start_in_words(parts), self._with_zeros(plant, parts)
        for duration in self.durations:
            windows = self._windows(parts, duration)
            deviations = window_deviations(plant, windows, start_deviations(plant, parts))
            if deviations is None:
                continue
            counted = np.asarray(windows.weights) > 0
            errors = np.asarray(predicted_measurements(plant.bare, windows)) - np.asarray(windows.measurements)
            inside = np.abs(errors) <= QUANTILE * deviations
            found[f"inside the 95 % band % @{duration:g}s{start}"] = 100.0 * float(np.mean(inside[counted]))
        return found

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

    larger_is_better: ClassVar[bool] = True

    kind: Literal["valid_time"] = eqx.field(static=True, default="valid_time")
    durations: tuple[float, ...] = eqx.field(static=True, default=(0.5,), metadata=quantity("s", positive=True))
    interval: float = eqx.field(static=True, default=0.002, metadata=quantity("s", positive=True))
    first: float = eqx.field(static=True, default=0.0, metadata=quantity("s", minimum=0.0))
    stride: float = eqx.field(static=True, default=1.0, metadata=quantity("s", positive=True))
    count: int = eqx.field(static=True, default=20, metadata=quantity(positive=True))
    thresholds: tuple[float, ...] = eqx.field(static=True, default=(0.1,), metadata=quantity(positive=True))
    samples: int = eqx.field(static=True, default=15, metadata=quantity(positive=True))
    absolute: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        if len(self.durations) != 1:
            raise ValueError(f"durations has {len(self.durations)} values; give one duration for all predictions")

    def figures(self, plant: Plant, parts: Sequence[Part]) -> dict[str, float]:
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
        found, angles = {}, _angles_in_words(parts)
        for how, starts in (
            (f", polynomial start ({self.samples} samples){angles}", polynomial_states(known, middle)),
            (f", fitted start ({self.samples} samples){angles}", smoothed_states(plant, known, middle)),
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
    limits: tuple[float, ...] = eqx.field(static=True, default=(), metadata=quantity(EFFORT, positive=True))

    def figures(self, plant: Plant, parts: Sequence[Part]) -> dict[str, float]:
        errors = force_errors(plant, smoothed_motions(parts))
        names = component_names(plant.system.model, Quantity(along="velocity"))
        how = _filter_in_words(parts)
        found = {f"relative{how}": errors.relative}
        if self.limits:
            found[f"NRMS %{how}"] = 100.0 * float(np.mean(errors.rms / (2.0 * np.asarray(self.limits))))
        found |= {f"rms {name}{how}": float(x) for name, x in zip(names, errors.rms, strict=True)}
        return found | {f"NMSE {name}{how}": float(x) for name, x in zip(names, errors.normalized, strict=True)}

    def calibration(self, plant: Plant, parts: Sequence[Part]) -> dict[str, float]:
        motions = smoothed_motions(parts)
        deviations, errors = force_deviations(plant, motions), force_errors(plant.bare, motions)
        if deviations is None:
            return {}
        inside = np.abs(errors.predicted - errors.measured) <= QUANTILE * deviations
        names = component_names(plant.system.model, Quantity(along="velocity"))
        how = _filter_in_words(parts)
        found = {f"inside the 95 % band %{how}": 100.0 * float(np.mean(inside))}
        each = zip(names, inside.mean(axis=0), strict=True)
        return found | {f"inside the 95 % band % {name}{how}": 100.0 * float(share) for name, share in each}


def smoothed_motions(parts: Sequence[Part]) -> Motions:
    """Smoothed motions and forces of all parts in sequence.

    Raises:
        RecordingError: No samples of a part are left.
    """
    smoothed = [part.smoothed() for part in parts]
    return Motions(
        *(jnp.asarray(np.concatenate([getattr(r, name) for r in smoothed])) for name in ("q", "v", "a", "u"))
    )


def _filter_in_words(parts: Sequence[Part]) -> str:
    """The filters of the recordings, for the names of figures."""
    words = [part.processed.smoothing.in_words for part in parts]
    return words[0] if len(set(words)) == 1 else ", mixed filters"


def _start_in_words(parts: Sequence[Part]) -> str:
    """The estimator of the initial states of windows, and the camera, for the names of figures."""
    cutoffs = " and ".join(dict.fromkeys(f"{part.processed.velocity_cutoff:g}" for part in parts))
    return f", filtered start ({cutoffs} Hz){_angles_in_words(parts)}"


def _angles_in_words(parts: Sequence[Part]) -> str:
    """Whether the angles of filmed markers are calibrated, for the names of figures."""
    words = {part.processed.angles for part in parts}
    return words.pop() if len(words) == 1 else ", mixed angles"


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
    return Recording(recording.name, recording.time[rows], recording.q[rows], None, recording.u[rows])
