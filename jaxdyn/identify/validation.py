"""Predictions of recordings by an identified machine, and their errors."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute import per_sample, stored_jit
from jaxdyn.compute.damped import minimized
from jaxdyn.dynamics.doors import checked_model
from jaxdyn.dynamics.system import State
from jaxdyn.identify.charts import PhysicalInertia
from jaxdyn.identify.inverse_dynamics_error import Motions, drive_forces, needed_forces
from jaxdyn.identify.measurement import Plant
from jaxdyn.identify.output_error import check_prediction, check_zeros, moved, predict
from jaxdyn.identify.recording import Part, Windows
from jaxdyn.mechanism.model import Model
from jaxdyn.simulate.controls import Knots
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
) -> Float[Array, "W M ny"]:
    """Simulate the measurements in all windows of recordings.

    Args:
        plant: Plant that is simulated.
        windows: Windows, whose inputs and time stamps are used.
        starts: Initial states; by default the guesses in the windows, corrected for offset and scale of the sensors.
        integrator: Integrator of the simulation.

    Raises:
        MeasurementError: The sensors have zeros, but not one for each recording.
        TypeError: An argument has the wrong type.
        ValueError: There is one window without a leading axis.
    """
    check_prediction("predicted_measurements", plant, windows)
    if windows.times.ndim != 2:
        raise ValueError("predicted_measurements: there is one window without a leading axis; use predict")
    check_zeros(plant, windows)
    starts = jax.vmap(plant.sensors.state_read)(windows.starts, windows.sources) if starts is None else starts

    def of_window(plant, start, window):
        return predict(plant, window, start, integrator=integrator)[0]

    # The plant is an input of the compiled code, which is valid for all plants of the same structure.
    return stored_jit(jax.vmap(of_window, (None, 0, 0)))(plant.bare, starts, windows)


def moved_starts(model: Model, starts: State, step: Float[Array, "*windows L"]) -> State:
    """Initial states of windows after one step, or one for each: tangent coordinates, then changes of velocities."""
    step = jnp.broadcast_to(step, (len(starts.v), 2 * model.nv))
    return jax.vmap(lambda start, step: moved(model, start, step))(starts, step)


def prediction_errors(
    plant: Plant,
    data: Windows | Motions,
    starts: State | None = None,
    *,
    integrator: Integrator = RungeKutta4(),  # noqa: B008 (immutable)
) -> Float[np.ndarray, "*rows channels"]:
    """Predicted minus measured values of windows (W, M, ny), or needed minus acting forces of motions (samples, nv).

    Args:
        plant: Plant that predicts.
        data: Windows or motions.
        starts: Initial states of windows, as for `predicted_measurements`.
        integrator: Integrator of the simulation of windows.
    """
    if isinstance(data, Motions):
        needed, acting = needed_and_acting(plant, data)
        return np.asarray(needed) - np.asarray(acting)
    predicted = predicted_measurements(plant, data, starts, integrator=integrator)
    return np.asarray(predicted) - np.asarray(data.measurements)


def step_of_differences(dtype: Any) -> float:
    """Step of central differences, relative to the size of the argument, with the smallest error in this precision."""
    return float(np.cbrt(jnp.finfo(dtype).eps))


def end_states(plant: Plant, windows: Windows, starts: State) -> State:
    """Simulated states at the ends of windows."""
    end = jax.vmap(lambda plant, start, window: predict(plant, window, start)[1], (None, 0, 0))
    return stored_jit(end)(plant.bare, starts, windows)


def fitted_starts(plant: Plant, windows: Windows, max_steps: int = 15) -> State:
    """Initial states that minimize the errors of each window, by Gauss-Newton steps from the guesses in the windows.

    Args:
        plant: Plant that is simulated.
        windows: Windows with measurements.
        max_steps: Number of steps.
    """

    def of_window(plant, window):
        model = plant.system.model

        def errors(start):
            measurements, _ = predict(plant, window, start)
            return (window.weights * jax.vmap(plant.sensors.whitened)(measurements - window.measurements)).ravel()

        def propose(start, damping):
            r, still = errors(start), jnp.zeros(2 * model.nv, start.v.dtype)
            J = jax.jacfwd(lambda step: errors(moved(model, start, step)))(still)
            matrix = J.T @ J
            step = -factorizations.solve(matrix + damping * jnp.diag(jnp.diagonal(matrix)), J.T @ r)
            return moved(model, start, step), jnp.sum(r**2)

        return minimized(propose, lambda start: jnp.sum(errors(start) ** 2), window.starts, max_steps=max_steps)

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
    both = per_sample(lambda motion: (needed_forces(plant, motion), drive_forces(plant, motion)), name="forces")
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


def smoothed_motions(parts: Sequence[Part], *, delays: bool = True) -> Motions:
    """Smoothed motions and forces of all parts in sequence, with the inputs around each sample if the parts have a `lead`.

    Args:
        parts: Parts of recordings.
        delays: If false, inputs act at once, and those around the samples, which need memory, are left out.

    Raises:
        RecordingError: No samples of a part are left.
    """
    spacings = [part.input_spacing * part.processed.smoothing.interval for part in parts]
    leads = [part.processed.lead / spacing for part, spacing in zip(parts, spacings, strict=True)]
    ahead = int(np.ceil(max(leads) - 1e-9)) if delays else 0  # all samples have the same number of inputs
    smoothed, around = zip(*(part.smoothed_with_inputs(ahead) for part in parts), strict=True)
    columns = [np.concatenate([getattr(r, name) for r in smoothed]) for name in ("q", "v", "a", "u")]
    if not ahead:
        return Motions(*columns)
    every = np.repeat(spacings, [len(r.time) for r in smoothed])
    return Motions(*columns, around=jax.vmap(Knots)(jnp.asarray(np.concatenate(around)), every, -ahead * every))


@checked_model
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
