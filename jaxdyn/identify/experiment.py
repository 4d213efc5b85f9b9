"""Synthetic experiments: exciting motions of a machine with known parameters, noisy recordings, and comparison with fits."""

import dataclasses
import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jaxdyn.compute import per_sample, stored_jit
from jaxdyn.dynamics.system import State, System, checked_system
from jaxdyn.identify.excitation import ExcitationError, Margins, design_excitation, random_motions
from jaxdyn.identify.fourier_motion import FourierMotion
from jaxdyn.identify.identifiability import BaseParameters, base_parameters
from jaxdyn.identify.inverse_dynamics_error import Motions, drive_forces
from jaxdyn.identify.linear_fit import LinearFit, weighted_least_squares
from jaxdyn.identify.measurement import MeasurementError, Plant
from jaxdyn.identify.recording import Recording
from jaxdyn.identify.regression import labels, linear_parameters, regressor, with_linear_parameters
from jaxdyn.identify.validation import needed_and_acting

# Errors are relative to the value, or to this fraction of the largest value with the same unit if the value is close to zero.
LEAST_SIZE = 1e-3


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
    max_steps: int = 0,
) -> Excitations:
    """Motions within the limits of a system: either the most informative ones among random motions, or designed motions.

    Args:
        system: Mechanism with its forces and drives.
        key: Random key of the motions.
        training: Number of motions for the fit.
        validation: Number of motions for the validation.
        noise: Standard deviation of each measured force, N m or N.
        period: Period of the motions, s.
        harmonics: Number of harmonics of the Fourier series of each joint, at least 2.
        times: Equidistant samples of one period, s.
        starts: Number of random motions from which the most informative ones are selected, or from which each search starts.
        max_steps: Number of gradient steps of the search (`design_excitation`) for each training motion; 0 for no search.

    Raises:
        ExcitationError: No motion is within the limits.
        ValueError: Too few random motions are within the limits; see also `random_motions`.
    """
    shape = {"period": period, "harmonics": harmonics, "samples": len(times)}
    random_key, *keys = jax.random.split(key, 1 + training)
    drawn = random_motions(system, random_key, count=starts + validation, **shape)
    count = len(drawn[0].offset)
    if count < validation + training:
        raise ValueError(f"only {count} random motions are within the limits; raise starts")
    each = [jax.tree.map(lambda leaf, k=k: np.asarray(leaf)[k], drawn) for k in range(count)]
    rows = [np.asarray(regressor_rows(system, *sampled(motion, times))) for motion, _ in each]
    base = base_parameters(np.stack(rows), labels(system))
    if max_steps:
        search = {"starts": starts, "max_steps": max_steps, "noise": noise, "base": base}
        found = [design_excitation(system, key, **shape, **search, throw=False) for key in keys]
        failed = [one.result for one in found if not one.result.successful]
        if failed:
            raise ExcitationError(failed[0].message, failed[0])
        learned = [ExcitingMotion(one.value, one.margins, float(one.log_determinant)) for one in found]
    else:
        information = [_log_determinant(np.asarray(base.columns(Y)) / np.asarray(noise)[:, None]) for Y in rows]
        best = sorted(range(validation, count), key=lambda k: -information[k])
        learned = [ExcitingMotion(each[k][0], each[k][1], information[k]) for k in best[:training]]
    return Excitations(base, learned, [motion for motion, _ in each[:validation]])


@stored_jit
def sampled(
    motion: FourierMotion, times: Float[np.ndarray, "samples"]
) -> tuple[Float[Array, "samples nv"], Float[Array, "samples nv"], Float[Array, "samples nv"]]:
    """Coordinates, velocities and accelerations of a motion at the given times (s)."""
    return jax.vmap(per_sample(motion, name="motion"))(times)


@stored_jit
def regressor_rows(system: System, q: Array, v: Array, a: Array) -> Float[Array, "samples nv parameters"]:
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
    q, v, a = sampled(motion, times)
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


class BaseComparison(NamedTuple):
    """Comparison of base parameters from linear fits and from a fitted plant with the true ones; from `compare_base_parameters`.

    Attributes:
        truth: True base parameters.
        exact: Linear fit of exact forces.
        measured: Linear fit of measured forces.
        fitted: Base parameters of the fitted plant.
        errors: Errors of `exact`, relative to the size of each parameter, or to the fraction `LEAST_SIZE` of the largest parameter
            with the same unit if this is larger.
        covered: Fraction of repetitions of the experiment in which the 95 % interval of each parameter contains the true value.
        measurements: Number of measured forces.
    """

    truth: Float[np.ndarray, "rank"]
    exact: LinearFit
    measured: LinearFit
    fitted: Float[np.ndarray, "rank"]
    errors: Float[np.ndarray, "rank"]
    covered: Float[np.ndarray, "rank"]
    measurements: int


def compare_base_parameters(
    truth: Plant,
    fitted: Plant,
    base: BaseParameters,
    motions: Motions,
    noise: Float[Array, "nv"],
    *,
    repetitions: int = 400,
    seed: int = 0,
) -> BaseComparison:
    """Compare base parameters from exact forces, from noisy forces and from a fitted plant with the true base parameters.

    Args:
        truth: Machine with the true parameters, which performed the motions.
        fitted: Fitted plant.
        base: Base parameters that the motions determine.
        motions: Samples of the motions of the experiment, with noisy inputs.
        noise: Standard deviation of the noise of each force, N m or N.
        repetitions: Number of simulated repetitions of the experiment with different noise, from which `covered` is computed.
        seed: Random seed of the noise in the repetitions.
    """
    system = truth.system
    Y = jnp.asarray(base.columns(np.asarray(regressor_rows(system, motions.q, motions.v, motions.a))))
    needed, acting = needed_and_acting(truth, motions)
    # Forces at zero linear parameters are not explained by these parameters, so they are subtracted.
    nothing = with_linear_parameters(system, jnp.zeros_like(linear_parameters(system)))
    remaining, _ = needed_and_acting(eqx.tree_at(lambda plant: plant.system, truth, nothing), motions)
    linear_fit = stored_jit(weighted_least_squares)
    exact, measured = (linear_fit(Y, tau - remaining, noise) for tau in (needed, acting))
    repeated = _repeated(Y, needed - remaining, noise, repetitions, seed)
    true = np.asarray(base.values(linear_parameters(system)))
    lower, upper = (np.asarray(bound) for bound in repeated.intervals())
    return BaseComparison(
        true,
        exact,
        measured,
        np.asarray(base.values(linear_parameters(fitted.system))),
        np.abs(np.asarray(exact.estimate) - true) / _sizes(true, base.units),
        np.mean((lower <= true) & (true <= upper), axis=0),
        Y.shape[0] * Y.shape[1],
    )


def _log_determinant(Y: Float[np.ndarray, "samples nv rank"]) -> float:
    """Log determinant of Y'Y."""
    return float(2.0 * np.sum(np.log(np.linalg.svd(Y.reshape(-1, Y.shape[-1]), compute_uv=False))))


def _repeated(Y: Array, tau: Array, noise: Array, count: int, seed: int) -> LinearFit:
    """Linear fits of all repetitions of an experiment, which differ in their noise."""
    drawn = np.random.default_rng((seed, 1)).normal(size=(count, *tau.shape))
    errors = jnp.asarray(np.asarray(noise) * drawn, tau.dtype)
    fits = stored_jit(
        jax.vmap(lambda Y, tau, noise, error: weighted_least_squares(Y, tau + error, noise), (None, None, None, 0))
    )
    return fits(Y, tau, noise, errors)


def _sizes(values: np.ndarray, units: tuple[str, ...]) -> np.ndarray:
    """Reference sizes for relative errors; a value close to zero is compared with the largest value of the same unit."""
    kinds = np.array(units)
    largest = np.array([np.max(np.abs(values[kinds == unit])) for unit in units])
    return np.maximum(np.abs(values), LEAST_SIZE * largest)
