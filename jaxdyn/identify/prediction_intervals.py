"""Standard deviations of predictions, from the covariance of the estimates and the errors of left-out training data.

A prediction is linearized in the estimated values. The 95 % interval is the prediction +- 1.96 standard deviations;
`Check.figures` counts how often measurements are inside this interval.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute import per_sample, stored_jit
from jaxdyn.identify.addresses import gather, scatter
from jaxdyn.identify.estimates import Uncertainty
from jaxdyn.identify.inverse_dynamics_error import Motions
from jaxdyn.identify.measurement import Plant
from jaxdyn.identify.recording import Part, Windows
from jaxdyn.identify.validation import moved_starts, prediction_errors, step_of_differences

# A direction of the covariance below this fraction of the largest one is a rounding error.
_LEAST = 1e-14


@stored_jit
def moved_values(plant: Plant, estimates: Uncertainty, step: Float[Array, "values"]) -> Plant:
    """The plant after a step of the estimated values; values that depend on them by ties change, too.

    Args:
        plant: Plant with its values.
        estimates: Estimates, with the places of the estimated values in the plant.
        step: Change of each estimated value.
    """
    return per_sample(_moved, name="change of values")(plant, estimates, step)


def _moved(plant: Plant, estimates: Uncertainty, step: Float[Array, "values"]) -> Plant:
    now = [gather(plant, address.leaves, address.rows) for address in estimates.addresses]
    return with_values(plant, estimates, jnp.concatenate(now) + step.astype(now[0].dtype))


def with_values(plant: Plant, estimates: Uncertainty, values: Float[Array, "values"]) -> Plant:
    """The plant with other values of its estimates; values that depend on them by ties change, too."""
    each = jnp.split(values, np.cumsum([address.count for address in estimates.addresses])[:-1])
    placed = [*zip(estimates.addresses, each, strict=True)]
    for follower in estimates.followers:
        leader, address = estimates.addresses[follower.leader], follower.address
        change = follower.factor * (each[follower.leader] - gather(plant, leader.leaves, leader.rows))
        placed.append((address, gather(plant, address.leaves, address.rows) + change))
    for address, part in placed:
        plant = scatter(plant, address.leaves, address.rows, part)
    return plant


def sensitivity(
    plant: Plant, estimates: Uncertainty, data: Windows | Motions
) -> Float[np.ndarray, "*rows channels values"]:
    """Derivatives of the predictions of windows or of forces with respect to the estimated values.

    They are central differences, because the predictions of all plants share compiled code, and the compilation of exact
    derivatives takes longer than a fit.

    Args:
        plant: Plant with its values.
        estimates: Estimates, with the places of the estimated values in the plant.
        data: Windows or motions to predict.
    """
    # Steps are a small part of the value and of its standard deviation; those of a value near zero do not vanish in rounding.
    values = np.abs(np.asarray(estimates.values, np.float64))
    deviations = np.sqrt(np.maximum(np.diag(np.asarray(estimates.determined, np.float64)), 0.0))
    sizes = np.where(deviations > 0.0, np.minimum(np.maximum(values, 0.1 * deviations), deviations), values)
    sizes = np.where(sizes > 0.0, sizes, 1.0)

    def errors(step: Array) -> np.ndarray:
        return prediction_errors(moved_values(plant, estimates, step), data)

    return _changes(errors, sizes, estimates.values.dtype) / sizes


def _changes(errors: Callable[[Array], np.ndarray], sizes: np.ndarray, dtype: Any) -> np.ndarray:
    """Changes of errors, by central differences, if each argument changes by its size; the arguments are on the last axis."""
    fraction, columns = step_of_differences(dtype), []
    for direction in np.diag(sizes):
        ahead, behind = (errors(jnp.asarray(sign * fraction * direction, dtype)) for sign in (1.0, -1.0))
        with np.errstate(invalid="ignore"):
            columns.append((ahead - behind) / (2.0 * fraction))
    return np.stack(columns, axis=-1)


def prediction_deviations(
    plant: Plant, data: Windows | Motions, start_noise: Float[np.ndarray, "L"] | None = None
) -> Float[np.ndarray, "*rows channels"] | None:
    """Standard deviations of predicted minus measured values of windows, or of forces of the drives.

    Args:
        plant: Plant with its estimates.
        data: Windows or motions to predict.
        start_noise: Standard deviations of the initial states, which windows need, coordinates then velocities, see
            `start_deviations`.

    Returns:
        The standard deviations, or None if the plant has no estimates from a fit of such values.
    """
    known, kind = plant.estimates, "measurements" if isinstance(data, Windows) else "forces"
    if known is None or known.noise is None or known.noise_of != kind:
        return None
    plant = plant.bare
    variance = np.sum((sensitivity(plant, known, data) @ np.asarray(root_of_covariance(known))) ** 2, axis=-1)
    if not isinstance(data, Windows):
        return np.sqrt(variance + known.noise_after(np.zeros(len(variance))) ** 2)
    starts = jax.vmap(plant.sensors.state_read)(data.starts, data.sources)

    def errors(step: Array) -> np.ndarray:
        return prediction_errors(plant, data, moved_starts(plant.system.model, starts, step))

    variance = variance + np.sum(_changes(errors, np.asarray(start_noise), starts.v.dtype) ** 2, axis=-1)
    return np.sqrt(variance + known.noise_after(data.times) ** 2)


def start_deviations(plant: Plant, parts: Sequence[Part]) -> Float[np.ndarray, "L"]:
    """Standard deviations of initial states of windows, that is, of measured coordinates and of their low-pass filtered rates.

    White noise of standard deviation s, sampled at the interval h, has the spectral density 2 h s^2 up to the Nyquist frequency. So
    the variance of the rate of this noise below the cutoff frequency c is 2 h s^2 (2 pi)^2 c^3 / 3.

    Args:
        plant: Plant whose sensors measure the coordinates first.
        parts: Recordings with their processing.
    """
    interval = float(np.median(np.concatenate([np.diff(part.recording.time) for part in parts])))
    cutoff = min(max(part.processed.velocity_cutoff for part in parts), 0.5 / interval)
    known = plant.estimates
    noise = np.asarray(
        plant.sensors.deviations if known is None or known.noise is None else known.noise_after(np.zeros(()))
    )
    q = np.resize(noise, plant.system.model.nv)
    return np.concatenate([q, q * 2.0 * np.pi * np.sqrt(2.0 * interval * cutoff**3 / 3.0)])


def root_of_covariance(estimates: Uncertainty) -> Float[Array, "values rank"]:
    """Matrix L with L L' = covariance along the directions that data or priors determine."""
    covariance = np.asarray(estimates.determined, np.float64)
    deviations = np.sqrt(np.maximum(np.diag(covariance), np.finfo(float).tiny))  # values of all units count alike
    eigenvalues, vectors = np.linalg.eigh(covariance / np.outer(deviations, deviations))
    kept = eigenvalues > _LEAST * eigenvalues.max(initial=0.0)
    return jnp.asarray(deviations[:, None] * vectors[:, kept] * np.sqrt(eigenvalues[kept]), estimates.values.dtype)
