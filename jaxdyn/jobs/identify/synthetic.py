"""Synthetic identification: recordings of a machine with known parameters, and a perturbed machine from which a fit starts."""

import dataclasses
import functools

import jax
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute import per_sample, stored_jit
from jaxdyn.compute.announcements import announced_as
from jaxdyn.compute.arrays import on_device
from jaxdyn.dynamics.system import State, System
from jaxdyn.identify.excitation import random_motions
from jaxdyn.identify.fourier_motion import FourierMotion
from jaxdyn.identify.identifiability import base_parameters
from jaxdyn.identify.inverse_dynamics_error import Motions, drive_forces
from jaxdyn.identify.measurement import MeasurementError, Plant
from jaxdyn.identify.recording import Part, Recording
from jaxdyn.identify.regression import labels, regressor
from jaxdyn.identify.validation import needed_and_acting
from jaxdyn.io.errors import ConfigError
from jaxdyn.jobs.identify.config import SyntheticConfig
from jaxdyn.jobs.identify.study import StudyRun, parameters_of, processing_of
from jaxdyn.jobs.tables import each


@announced_as("the recordings")
def experiment_of(run: StudyRun, settings: SyntheticConfig, truth: Plant) -> tuple[Plant, list[Part], list[Part]]:
    """A machine with perturbed parameters for the initial guess of the fit, and recordings of motions that excite the true machine.

    The most informative ones of several random motions are for the fit; the forces in their recordings have noise. Those in the
    recordings for the validation have none.

    Raises:
        ConfigError: The machine cannot follow the motions within its limits, or has joints without drives.
    """
    config, study, _ = run
    system, held_out = truth.system, len(study.validation)
    parameters, samples = parameters_of(config, truth), round(settings.period / config.motion.interval)
    noise = each(settings.noise, "nv", system, "synthetic.noise")
    rng = np.random.default_rng(settings.seed)
    off = (settings.perturbation * rng.normal(size=parameters.size)).astype(system.model.dtype)
    times = config.motion.interval * np.arange(samples)
    options = {name: getattr(settings, name) for name in ("period", "harmonics")}

    def part(name: str, motion: FourierMotion, errors: Float[np.ndarray, "samples nv"] | float) -> Part:
        return Part(_recording(truth, name, motion, times, errors), processing=processing_of(config))

    try:
        drawn, margins = random_motions(
            system, jax.random.key(settings.seed), samples=samples, count=settings.starts + held_out, **options
        )
        count = len(drawn.offset)
        if count < len(study.train) + held_out:
            raise ValueError(f"only {count} random motions are within the limits; raise starts")
        motions = [jax.tree.map(lambda leaf, k=k: np.asarray(leaf)[k], drawn) for k in range(count)]
        rows = np.stack([np.asarray(_regressor_rows(system, *_sampled(motion, times))) for motion in motions])
        base = base_parameters(rows, labels(system))
        information = [_log_determinant(np.asarray(base.columns(Y)) / noise[:, None]) for Y in rows]
        train = []
        for name, k in zip(study.train, sorted(range(held_out, count), key=lambda k: -information[k]), strict=False):
            used = (100.0 * (1.0 - float(np.min(np.asarray(margin)[k]))) for margin in margins)
            print("{}: at most {:.0f} % of position, {:.0f} % of speed, {:.0f} % of force limits".format(name, *used))
            print(f"{name}: log determinant {information[k]:.5g} of the information on {base.rank} base parameters")
            train.append(part(name, motions[k], noise * rng.normal(size=(samples, len(noise)))))
        validation = [part(name, motion, 0.0) for name, motion in zip(study.validation, motions, strict=False)]
    except ValueError as error:
        raise ConfigError(f"{study.name}: {error}") from None
    return parameters.place(on_device(np.asarray(parameters.initial) + off)), train, validation


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


def _recording(
    plant: Plant, name: str, motion: FourierMotion, times: Float[np.ndarray, "samples"], errors: np.ndarray | float
) -> Recording:
    """A recording of a plant that follows a motion, with errors of the measured forces (N m or N).

    The recorded inputs make the drives exert the required forces.
    """
    q, v, a = _sampled(motion, times)
    none = on_device(np.zeros((len(q), plant.inputs.gain.size), q.dtype))
    needed, idle = (np.asarray(x) for x in needed_and_acting(plant, Motions(q, v, a, none)))
    first = Motions(*(on_device(np.asarray(x)[0]) for x in (q, v, a, none)))
    effect = np.asarray(_effect(plant, first))
    if effect.shape[0] != effect.shape[1] or np.linalg.matrix_rank(effect) < len(effect):
        raise MeasurementError(
            f"{name}: not every joint has a drive, so the forces cannot be chosen; add drives to all joints"
        )
    u = np.linalg.solve(effect, (needed + errors - idle).T).T
    return Recording(name, times, np.asarray(q), np.asarray(v), u, np.asarray(a), inputs="linear")


@stored_jit
def _effect(plant: Plant, motion: Motions) -> Float[Array, "nv nu"]:
    """Derivative of the forces of the drives with respect to the inputs."""
    return jax.jacfwd(lambda u: drive_forces(plant, dataclasses.replace(motion, u=u)))(motion.u)


def _log_determinant(Y: Float[np.ndarray, "samples nv rank"]) -> float:
    """Log determinant of Y'Y."""
    return float(2.0 * np.sum(np.log(np.linalg.svd(Y.reshape(-1, Y.shape[-1]), compute_uv=False))))
