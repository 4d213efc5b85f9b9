"""How well an identified machine predicts recordings that it has not seen: predictions, their errors, and figures of merit."""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.dynamics.system import State
from jaxdyn.identify.charts import PhysicalInertia
from jaxdyn.identify.inverse_dynamics_error import Motions, drive_forces, needed_forces
from jaxdyn.identify.measurement import Plant
from jaxdyn.identify.output_error import check_zeros, moved, predict
from jaxdyn.identify.recording import Recording, RecordingError, Windows, cut
from jaxdyn.lanes import Backend, stored_jit
from jaxdyn.mechanism.components import component_names
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import EFFORT, Quantity, quantity
from jaxdyn.simulate.integrators import Integrator, RungeKutta4
from jaxdyn.spatial import factorizations


class WindowErrors(NamedTuple):
    """Errors of simulated windows, from `window_errors`.

    Attributes:
        errors: Predicted minus measured measurements, NaN where nothing was measured or the simulation failed.
        rms: Root mean square per reading, over windows and times.
        median_at_end: Median of the absolute error of the last reading, over windows and measurements.
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
    """Simulated measurements of all windows.

    Args:
        plant: The plant that is simulated.
        windows: The windows, whose inputs and time stamps are used.
        starts: Initial states; if not given, the guesses of the windows, with offset and scale of the sensors undone.
        integrator: Integrator of the simulation.
        backend: As in `rollout`.

    Raises:
        MeasurementError: The sensors have zeros, but not one for each recording.
    """
    check_zeros(plant, windows)
    starts = jax.vmap(plant.sensors.state_read)(windows.starts, windows.sources) if starts is None else starts

    def of_window(start, window):
        return predict(plant, start, window, integrator=integrator, backend=backend)[0]

    return stored_jit(jax.vmap(of_window))(starts, windows)


def end_states(plant: Plant, windows: Windows, starts: State) -> State:
    """Simulated states at the ends of windows."""
    return stored_jit(jax.vmap(lambda start, window: predict(plant, start, window)[1]))(starts, windows)


def fitted_starts(plant: Plant, windows: Windows, iterations: int = 15) -> State:
    """Initial states with which a plant fits the measurements of each window best: Gauss-Newton from the guesses of the windows.

    An iteration that does not lower the error is undone, and the next step damped more.
    """
    model = plant.system.model

    def of_window(window):
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

    return stored_jit(jax.vmap(of_window))(windows)


def window_errors(windows: Windows, measurements: Float[Array, "W M ny"]) -> WindowErrors:
    """Errors of predicted measurements. A window that diverged counts with infinite error.

    Args:
        windows: The windows with what was measured.
        measurements: Predicted measurements, such as those of `predicted_measurements`.
    """
    counted = np.asarray(windows.weights) > 0
    errors = np.where(counted, np.asarray(measurements) - np.asarray(windows.measurements), np.nan)
    broken = counted & ~np.isfinite(errors)
    squares = np.where(broken, np.inf, errors**2)
    rms = np.sqrt(np.sum(np.where(counted, squares, 0.0), axis=(0, 1)) / np.maximum(counted.sum(axis=(0, 1)), 1))
    # The last reading of each channel of each window; channels that were never read do not count.
    last = counted.shape[1] - 1 - counted[:, ::-1].argmax(axis=1)
    at_end = np.sqrt(np.take_along_axis(squares, last[:, None], axis=1)[:, 0])[counted.any(axis=1)]
    return WindowErrors(np.where(broken, np.nan, errors), rms, float(np.median(at_end)))


def valid_times(windows: Windows, measurements: Float[Array, "W M ny"], threshold: float) -> Float[np.ndarray, "W"]:
    """Time for which the largest error of a window stays within a threshold, s; the whole window if it never leaves.

    Args:
        windows: The windows with what was measured.
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
        normalized: Mean square error by the variance of the measured force, per velocity component.
        relative: ||measured - predicted|| / ||measured||, Frobenius norms.
    """

    predicted: Float[np.ndarray, "samples nv"]
    measured: Float[np.ndarray, "samples nv"]
    rms: Float[np.ndarray, "nv"]
    normalized: Float[np.ndarray, "nv"]
    relative: float


@stored_jit
def needed_and_acting(plant: Plant, motions: Motions) -> tuple[Float[Array, "samples nv"], Float[Array, "samples nv"]]:
    """Forces that motions need, and those that the drives exert with the recorded inputs, N m or N; compiled once per shape."""
    both = jax.vmap(lambda motion: (needed_forces(plant, motion), drive_forces(plant, motion)))
    return both(motions)


def force_errors(plant: Plant, motions: Motions) -> ForceErrors:
    """Errors of the forces that a plant predicts for measured motions.

    Args:
        plant: The plant to judge.
        motions: Samples of the motions, with the recorded inputs.
    """
    needed, acting = (np.asarray(x) for x in needed_and_acting(plant, motions))
    # What the drives are recorded to do, offset and gain of the record on the side of the prediction.
    error = needed - acting
    recorded = np.asarray(motions.u) if plant.system.drives is None else acting
    rms = np.sqrt(np.mean(error**2, axis=0))
    normalized = rms**2 / np.var(recorded, axis=0)
    relative = float(np.linalg.norm(error) / np.linalg.norm(recorded))
    return ForceErrors(recorded + error, recorded, rms, normalized, relative)


def unphysical_bodies(model: Model) -> list[str]:
    """Names of bodies that no distribution of mass can have: their pseudo-inertia is not positive definite. Bodies without mass and
    inertia, which only carry frames, are left out.
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
    """Figures of merit of a plant on recordings, by names for tables."""

    @abc.abstractmethod
    def figures(
        self, plant: Plant, recordings: Sequence[Recording], motions: Callable[[], Motions], **options: Any
    ) -> dict[str, float]:
        """The figures by their names.

        Args:
            plant: The plant to judge.
            recordings: The recordings that it should predict.
            motions: Makes the smoothed motions of these recordings; called only if they are needed.
            options: Options of `cut`, such as `lead` and `velocity_cutoff`.
        """


class WindowsCheck(Check):
    """RMS errors and median final errors of simulated windows that do not overlap.

    Attributes:
        kind: The name of this kind of check is "windows".
        durations: The windows have these durations; each gives its own figures.
        interval: This is the step of the simulation.
        first: The first window starts at this time.
    """

    kind: Literal["windows"] = eqx.field(static=True, default="windows")
    durations: tuple[float, ...] = eqx.field(static=True, default=(0.5,), metadata=quantity("s", positive=True))
    interval: float = eqx.field(static=True, default=0.002, metadata=quantity("s", positive=True))
    first: float = eqx.field(static=True, default=0.0, metadata=quantity("s", minimum=0.0))

    def figures(
        self, plant: Plant, recordings: Sequence[Recording], motions: Callable[[], Motions], **options: Any
    ) -> dict[str, float]:
        found = {}
        names = component_names(plant.system.model, Quantity(along="coordinate"))
        regular = [recording.resampled(self.interval) for recording in recordings]
        for duration in self.durations:
            grid: dict[str, Any] = {
                "duration": duration,
                "interval": self.interval,
                "first": self.first,
                "stride": duration,
            }
            windows = cut(regular, **(options | grid), both_ends=True)
            errors = window_errors(windows, predicted_measurements(plant, windows))
            found |= {f"rms {name} @{duration:g}s": float(x) for name, x in zip(names, errors.rms, strict=True)}
            found[f"median end @{duration:g}s"] = errors.median_at_end
        return found


class ValidTimeCheck(Check):
    """Time for which predictions stay within thresholds: median and lower quartile over all predictions.

    A prediction starts in the middle of a few samples and uses nothing else of the recording. The state there is found by a
    polynomial of degree 4 and, as a second figure, by the plant itself.

    Attributes:
        kind: The name of this kind of check is "valid_time".
        durations: Predictions have this duration; give one.
        interval: This is the step of the simulation and of the samples.
        first: The samples of the first prediction start at this time.
        stride: This is the time from the start of a prediction to that of the next.
        count: This many predictions are made of each recording.
        thresholds: The largest error of any measurement is compared with these thresholds, each of which gives its own figures.
        samples: The initial state is estimated from this many samples.
        absolute: If true, errors are those of sums along the chain, which are angles from the vertical.
    """

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
            raise ValueError(f"durations has {len(self.durations)} values; give the one duration of all predictions")

    def figures(
        self, plant: Plant, recordings: Sequence[Recording], motions: Callable[[], Motions], **options: Any
    ) -> dict[str, float]:
        h, middle = self.interval, self.samples // 2
        predicted, seen = [], []
        for recording in recordings:
            for start in range(self.count):
                first = round((self.first + start * self.stride) / h)
                seen.append(_rows(recording, first, self.samples))
                predicted.append(_rows(recording, first + middle, round(self.durations[0] / h) + 1))
        known = cut(seen, duration=(self.samples - 1) * h, interval=h)
        ahead = cut(predicted, duration=self.durations[0], interval=h)
        found = {}
        for how, starts in (
            ("", polynomial_states(known, middle)),
            (" smoothed", smoothed_states(plant, known, middle)),
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
        kind: The name of this kind of check is "forces".
        limits: The full ranges of the forces, one per joint, normalize the RMS errors; without them, this figure is left out.
    """

    kind: Literal["forces"] = eqx.field(static=True, default="forces")
    limits: tuple[float, ...] = eqx.field(static=True, default=(), metadata=quantity(EFFORT, positive=True))

    def figures(
        self, plant: Plant, recordings: Sequence[Recording], motions: Callable[[], Motions], **options: Any
    ) -> dict[str, float]:
        errors = force_errors(plant, motions())
        names = component_names(plant.system.model, Quantity(along="velocity"))
        found = {"relative": errors.relative}
        if self.limits:
            found["NRMS %"] = 100.0 * float(np.mean(errors.rms / (2.0 * np.asarray(self.limits))))
        found |= {f"rms {name}": float(x) for name, x in zip(names, errors.rms, strict=True)}
        return found | {f"NMSE {name}": float(x) for name, x in zip(names, errors.normalized, strict=True)}


def polynomial_states(windows: Windows, sample: int) -> State:
    """States at a sample of each window, from polynomials of degree 4 through all samples of the window."""
    times = np.asarray(windows.times[0]) - sample * windows.interval
    weights = np.linalg.pinv(np.vander(times, 5, increasing=True))
    q, v = (jnp.asarray(np.einsum("m,wmc->wc", weights[k], np.asarray(windows.measurements))) for k in (0, 1))
    return State(q, v)


def smoothed_states(plant: Plant, windows: Windows, sample: int) -> State:
    """States at a sample of each window, from the motion of the plant that fits all samples of the window best."""
    guess = eqx.tree_at(lambda windows: windows.starts, windows, polynomial_states(windows, 0))
    return end_states(plant, dataclasses.replace(guess, steps=sample), fitted_starts(plant, guess))


def _rows(recording: Recording, first: int, count: int) -> Recording:
    if first + count > len(recording.time):
        raise RecordingError(
            f"{recording.name}: a prediction would end after the recording; reduce count, stride or durations"
        )
    rows = slice(first, first + count)
    return Recording(recording.name, recording.time[rows], recording.q[rows], None, recording.u[rows])
