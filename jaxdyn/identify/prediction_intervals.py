"""Standard deviations of predictions, from the covariance of the estimates and the errors of left-out training data.

A prediction is linearized in the estimated values. The 95 % interval is the prediction +- 1.96 standard deviations;
`Check.calibration` counts how often measurements are inside this interval.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute import per_sample, stored_jit
from jaxdyn.identify.addresses import gather, scatter
from jaxdyn.identify.estimates import Uncertainty
from jaxdyn.identify.inverse_dynamics_error import Motions, drive_forces, needed_forces
from jaxdyn.identify.measurement import Plant
from jaxdyn.identify.output_error import moved, predict
from jaxdyn.identify.recording import Part, Windows

# A direction of the covariance below this fraction of the largest one is a rounding error.
_LEAST = 1e-14


def moved_values(plant: Plant, estimates: Uncertainty, step: Float[Array, "values"]) -> Plant:
    """The plant after a step of the estimated values; values that depend on them by ties change, too.

    Args:
        plant: Plant with its values.
        estimates: Estimates, with the places of the estimated values in the plant.
        step: Change of each estimated value.
    """
    ends = np.cumsum([address.count for address in estimates.addresses])
    steps = jnp.split(step, ends[:-1])
    changes = [*zip(estimates.addresses, steps, strict=True)]
    changes += [(follower.address, follower.factor * steps[follower.leader]) for follower in estimates.followers]
    for address, change in changes:
        values = gather(plant, address.leaves, address.rows)
        plant = scatter(plant, address.leaves, address.rows, values + change.astype(values.dtype))
    return plant


def force_deviations(plant: Plant, motions: Motions) -> Float[np.ndarray, "samples nv"] | None:
    """Standard deviations of predicted minus measured forces of the drives.

    Args:
        plant: Plant with its estimates.
        motions: Samples of the motions, with the recorded inputs.

    Returns:
        The standard deviations, or None if the plant has no estimates from a fit of forces.
    """
    known = plant.estimates
    if known is None or known.noise is None or known.noise_of != "forces":
        return None

    def change_of(plant, direction, motion):
        """Change of the errors by a step of the estimated values along one direction."""

        def of_step(z):
            changed = moved_values(plant, known, z * direction)
            return needed_forces(changed, motion) - drive_forces(changed, motion)

        none = jnp.zeros((), direction.dtype)
        return jax.jvp(of_step, (none,), (none + 1.0,))[1]

    def variance_of(plant, directions, motion):
        change = per_sample(change_of, name="change of forces")
        return jnp.sum(jax.vmap(change, (None, 0, None))(plant, directions, motion) ** 2, axis=0)

    directions = root_of_covariance(known).T
    variance = stored_jit(jax.vmap(variance_of, (None, None, 0)))(plant.bare, directions, motions)
    return np.sqrt(np.asarray(variance) + known.noise_after(np.zeros(len(variance))) ** 2)


def window_deviations(
    plant: Plant, windows: Windows, start_noise: Float[np.ndarray, "L"]
) -> Float[np.ndarray, "W M ny"] | None:
    """Standard deviations of simulated minus measured values of windows, with the effect of errors of the initial states.

    Args:
        plant: Plant with its estimates.
        windows: Windows to predict.
        start_noise: Standard deviations of the initial states, coordinates then velocities, see `start_deviations`.

    Returns:
        The standard deviations, or None if the plant has no estimates from a fit of measurements.
    """
    known = plant.estimates
    if known is None or known.noise is None or known.noise_of != "measurements":
        return None
    starts = jax.vmap(plant.sensors.state_read)(windows.starts, windows.sources)

    def variance_of(plant, root, start_noise, start, window):
        rank = root.shape[1]

        def of_step(z):
            changed = moved_values(plant, known, root @ z[:rank])
            return predict(changed, window, moved(plant.system.model, start, start_noise * z[rank:]))[0]

        return jnp.sum(jax.jacfwd(of_step)(jnp.zeros(rank + start_noise.size, root.dtype)) ** 2, axis=-1)

    compiled = stored_jit(jax.vmap(variance_of, (None, None, None, 0, 0)))
    variance = compiled(plant.bare, root_of_covariance(known), jnp.asarray(start_noise), starts, windows)
    return np.sqrt(np.asarray(variance) + known.noise_after(windows.times) ** 2)


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
    eigenvalues, vectors = np.linalg.eigh(np.asarray(estimates.determined, np.float64))
    kept = eigenvalues > _LEAST * eigenvalues.max(initial=0.0)
    return jnp.asarray(vectors[:, kept] * np.sqrt(eigenvalues[kept]), estimates.values.dtype)
