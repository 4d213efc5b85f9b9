"""Synthetic experiments: exciting motions of a machine with known parameters, and noisy recordings of them."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jaxdyn.compute import per_sample, stored_jit
from jaxdyn.dynamics.system import State, System, checked_system
from jaxdyn.identify.excitation import Margins, random_motions
from jaxdyn.identify.fourier_motion import FourierMotion
from jaxdyn.identify.identifiability import BaseParameters, base_parameters
from jaxdyn.identify.inverse_dynamics_error import Motions, drive_forces
from jaxdyn.identify.measurement import MeasurementError, Plant
from jaxdyn.identify.recording import Recording
from jaxdyn.identify.regression import labels, regressor
from jaxdyn.identify.validation import needed_and_acting


class ExcitingMotion(NamedTuple):
    """A motion, its distances from the limits of the machine, and the log determinant of its information on the base parameters."""

    motion: FourierMotion
    margins: Margins
    log_determinant: float


class Excitations(NamedTuple):
    """Motions of an experiment, from `excitations`.

    Attributes:
        base: Base parameters of the machine, found from random motions.
        training: The most informative motions, for the fit.
        validation: Random motions, for the validation of the fit.
    """

    base: BaseParameters
    training: list[ExcitingMotion]
    validation: list[FourierMotion]


@checked_system
def excitations(
    system: System,
    key: PRNGKeyArray,
    *,
    training: int,
    validation: int,
    noise: Float[Array, "nv"],
    period: float = 10.0,
    harmonics: int = 5,
    times: Float[np.ndarray, "samples"],
    starts: int = 8,
) -> Excitations:
    """Random motions within the limits of a system, the most informative of which are for the fit.

    Args:
        system: Mechanism with its forces and drives.
        key: Random key of the motions.
        training: Number of motions for the fit.
        validation: Number of motions for the validation.
        noise: Standard deviation of each measured force, N m or N.
        period: Period of the motions, s.
        harmonics: Number of harmonics of the Fourier series of each joint, at least 2.
        times: Equidistant samples of one period, s.
        starts: Number of random motions from which the most informative ones are selected.

    Raises:
        ExcitationError: No motion is within the limits.
        ValueError: Too few random motions are within the limits; see also `random_motions`.
    """
    options = {"period": period, "harmonics": harmonics, "samples": len(times), "count": starts + validation}
    drawn = random_motions(system, key, **options)
    count = len(drawn[0].offset)
    if count < validation + training:
        raise ValueError(f"only {count} random motions are within the limits; raise starts")
    each = [jax.tree.map(lambda leaf, k=k: np.asarray(leaf)[k], drawn) for k in range(count)]
    rows = [np.asarray(_regressor_rows(system, *_sampled(motion, times))) for motion, _ in each]
    base = base_parameters(np.stack(rows), labels(system))
    information = [_log_determinant(np.asarray(base.columns(Y)) / np.asarray(noise)[:, None]) for Y in rows]
    best = sorted(range(validation, count), key=lambda k: -information[k])
    learned = [ExcitingMotion(each[k][0], each[k][1], information[k]) for k in best[:training]]
    return Excitations(base, learned, [motion for motion, _ in each[:validation]])


@stored_jit
def _sampled(
    motion: FourierMotion, times: Float[np.ndarray, "samples"]
) -> tuple[Float[Array, "samples nv"], Float[Array, "samples nv"], Float[Array, "samples nv"]]:
    """Coordinates, velocities and accelerations of a motion at the given times (s)."""
    return jax.vmap(per_sample(motion, name="motion"))(times)


@stored_jit
def _regressor_rows(system: System, q: Array, v: Array, a: Array) -> Float[Array, "samples nv parameters"]:
    """Regressors of all samples of a motion, stacked along the leading axis."""
    return jax.vmap(per_sample(functools.partial(regressor, system), name="regressor"))(State(q, v), a)


def synthetic_recording(
    plant: Plant,
    name: str,
    motion: FourierMotion,
    times: Float[np.ndarray, "samples"],
    force_errors: Float[np.ndarray, "samples nv"] | None = None,
) -> Recording:
    """A recording of a plant that follows a motion; the recorded inputs make the drives exert the required forces.

    Args:
        plant: Machine that is recorded.
        name: Name of the recording.
        motion: Motion of the machine.
        times: Time stamps, s.
        force_errors: Errors of the measured forces, N m or N; no errors if not given.

    Raises:
        MeasurementError: Not every joint has a drive.
    """
    q, v, a = _sampled(motion, times)
    none = jnp.zeros((len(q), plant.inputs.gain.size), q.dtype)
    needed, idle = (np.asarray(x) for x in needed_and_acting(plant, Motions(q, v, a, none)))
    tau = needed if force_errors is None else needed + force_errors
    effect = np.asarray(_effect(plant, Motions(q[0], v[0], a[0], none[0])))
    if effect.shape[0] != effect.shape[1] or np.linalg.matrix_rank(effect) < len(effect):
        raise MeasurementError(
            f"{name}: not every joint has a drive, so the forces cannot be chosen; add drives to all joints"
        )
    u = np.linalg.solve(effect, (tau - idle).T).T
    return Recording(name, times, np.asarray(q), np.asarray(v), u, np.asarray(a), inputs="linear")


@stored_jit
def _effect(plant: Plant, motion: Motions) -> Float[Array, "nv nu"]:
    """Derivative of the forces of the drives with respect to the inputs."""
    return jax.jacfwd(lambda u: drive_forces(plant, dataclasses.replace(motion, u=u)))(motion.u)


def _log_determinant(Y: Float[np.ndarray, "samples nv rank"]) -> float:
    """Log determinant of Y'Y."""
    return float(2.0 * np.sum(np.log(np.linalg.svd(Y.reshape(-1, Y.shape[-1]), compute_uv=False))))
