"""Synthetic identification: recordings of a machine that is known, and what its truth says about a fit."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.dynamics.system import System
from jaxdyn.identify.excitation import design_excitation, random_motions
from jaxdyn.identify.fourier_motion import FourierMotion
from jaxdyn.identify.identifiability import BaseParameters, base_parameters
from jaxdyn.identify.inverse_dynamics_error import Motions, drive_forces
from jaxdyn.identify.linear_fit import LinearFit, weighted_least_squares
from jaxdyn.identify.measurement import Plant
from jaxdyn.identify.recording import Recording
from jaxdyn.identify.regressor import labels, linear_parameters, regressor, with_linear_parameters
from jaxdyn.identify.validation import needed_and_acting, unphysical_bodies
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.runs import RunDirectory
from jaxdyn.jobs.identify_config import IdentifyConfig, StudyConfig
from jaxdyn.jobs.identify_plant import Part, motions_of, one_each, parameters_of
from jaxdyn.jobs.synthetic_config import SyntheticConfig
from jaxdyn.jobs.tables import aligned
from jaxdyn.lanes import stored_jit
from jaxdyn.lanes.announcements import announced_as

_LEAST_SIZE = 1e-3  # of the largest value of the same unit: numbers are compared with their size, but zero has none


@dataclasses.dataclass(frozen=True)
class Experiment:
    """An experiment on a machine that is known.

    Attributes:
        truth: the machine.
        start: the perturbed machine where the fit starts.
        base: the base parameters of the machine.
        train: recordings with noise in the forces.
        validation: recordings of other motions, without noise.
    """

    truth: Plant
    start: Plant
    base: BaseParameters
    train: list[Part]
    validation: list[Part]


@announced_as("the recordings")
def experiment_of(config: IdentifyConfig, study: StudyConfig, truth: Plant) -> Experiment:
    """Motions that excite the machine, their recordings, and a start that is off.

    Raises:
        ConfigError: the machine cannot follow such motions, or has joints without drives.
    """
    settings = _settings(config)
    model = truth.system.model
    parameters = parameters_of(config, truth)
    base, learned, judging = _motions(config, study, truth)
    rng = np.random.default_rng(settings.seed)
    off = settings.perturbation * jnp.asarray(rng.normal(size=parameters.size), model.dtype)
    return Experiment(
        truth,
        parameters.place(parameters.initial + off),
        base,
        [_recorded(config, truth, *which, rng) for which in zip(study.train, learned, strict=True)],
        [_recorded(config, truth, *which, None) for which in zip(study.validation, judging, strict=True)],
    )


def _settings(config: IdentifyConfig) -> SyntheticConfig:
    if config.synthetic is None:
        raise ConfigError("there is no table [synthetic]; write one")
    return config.synthetic


def _samples(config: IdentifyConfig) -> int:
    return round(_settings(config).period / config.motion.interval)


def _noise(config: IdentifyConfig, plant: Plant) -> Float[Array, "nv"]:
    return one_each(_settings(config).noise, plant.system.model.nv, "synthetic.noise")


def _motions(
    config: IdentifyConfig, study: StudyConfig, truth: Plant
) -> tuple[BaseParameters, list[FourierMotion], list[FourierMotion]]:
    """Base parameters that random motions tell; motions to learn from, which tell them best, and some to be judged by."""
    settings, system, noise = _settings(config), truth.system, _noise(config, truth)
    shape = {"period": settings.period, "harmonics": settings.harmonics, "samples": _samples(config)}
    random_key, *keys = jax.random.split(jax.random.key(settings.seed), 1 + len(study.train))
    judging = len(study.validation)
    with _in_one_line(study):
        drawn = random_motions(system, random_key, count=settings.starts + judging, **shape)
    count = len(drawn[0].offset)
    if count < judging + len(study.train):
        raise ConfigError(f"{study.name}: only {count} random motions stay within limits; raise synthetic.starts")
    each = [jax.tree.map(lambda leaf, k=k: np.asarray(leaf)[k], drawn) for k in range(count)]
    rows = [_rows(system, *_sampled(config, motion)) for motion, _ in each]
    with _in_one_line(study):
        base = base_parameters(np.stack(rows), labels(system))
    if settings.steps:
        search = {"starts": settings.starts, "max_steps": settings.steps, "noise": noise, "base": base}
        with _in_one_line(study):
            found = [design_excitation(system, key, **shape, **search) for key in keys]
        learned = [(one.motion, one.margins, float(one.log_determinant)) for one in found]
    else:
        tell = [_log_determinant(base.columns(Y) / noise[None, :, None]) for Y in rows]
        best = sorted(range(judging, count), key=lambda k: -tell[k])
        learned = [(*each[k], tell[k]) for k in best[: len(study.train)]]
    for name, (_, margins, told) in zip(study.train, learned, strict=True):
        shares = (100.0 * (1.0 - float(jnp.min(part))) for part in margins)
        print("{}: at most {:.0f} % of position, {:.0f} % of speed, {:.0f} % of force limits".format(name, *shares))
        print(f"{name}: log determinant {told:.5g} of the information on {base.rank} base parameters")
    return base, [motion for motion, *_ in learned], [motion for motion, _ in each[:judging]]


@contextlib.contextmanager
def _in_one_line(study: StudyConfig) -> Iterator[None]:
    """What the library refuses, as an error in a config."""
    try:
        yield
    except ValueError as error:
        raise ConfigError(f"{study.name}: {error}") from None


def _times(config: IdentifyConfig) -> np.ndarray:
    return config.motion.interval * np.arange(_samples(config))


def _sampled(config: IdentifyConfig, motion: FourierMotion) -> tuple[Array, Array, Array]:
    return stored_jit(jax.vmap(lambda motion, t: motion(t), (None, 0)))(motion, jnp.asarray(_times(config)))


def _log_determinant(Y: Float[Array, "samples nv rank"]) -> float:
    """Log determinant of Y'Y."""
    return float(2.0 * np.sum(np.log(np.linalg.svd(np.asarray(Y).reshape(-1, Y.shape[-1]), compute_uv=False))))


@stored_jit
def _rows(system: System, q: Array, v: Array, a: Array) -> Float[Array, "samples nv parameters"]:
    return jax.vmap(regressor, (None, 0, 0, 0))(system, q, v, a)


@stored_jit
def _effect(plant: Plant, motion: Motions) -> Float[Array, "nv nu"]:
    """Derivative of the forces of the drives by the inputs."""
    return jax.jacfwd(lambda u: drive_forces(plant, dataclasses.replace(motion, u=u)))(motion.u)


def _recorded(
    config: IdentifyConfig, truth: Plant, name: str, motion: FourierMotion, rng: np.random.Generator | None
) -> Part:
    """A recording of one period; forces with noise if there is a generator for it."""
    q, v, a = _sampled(config, motion)
    none = jnp.zeros((len(q), truth.inputs.gain.size), q.dtype)
    needed, idle = (np.asarray(x) for x in needed_and_acting(truth, Motions(q, v, a, none)))
    tau = needed if rng is None else needed + np.asarray(_noise(config, truth)) * rng.normal(size=needed.shape)
    # Inputs that make the drives exert these forces.
    still = Motions(q[0], v[0], a[0], none[0])
    effect = np.asarray(_effect(truth, still))
    if effect.shape[0] != effect.shape[1] or np.linalg.matrix_rank(effect) < len(effect):
        raise ConfigError(f"{name}: not every joint has a drive, so that its forces cannot be chosen; drive them all")
    u = np.linalg.solve(effect, (tau - idle).T).T
    recording = Recording(name, _times(config), np.asarray(q), np.asarray(v), u, np.asarray(a))
    return Part(recording, 0.0, np.inf)


@announced_as("the judgment")
def judged_by_truth(
    config: IdentifyConfig, study: StudyConfig, made: Experiment, fitted: Plant, directory: RunDirectory
) -> dict[str, Any]:
    """What a fit and linear fits of base parameters find of the truth: tables, files and metrics."""
    settings, system, base = _settings(config), made.truth.system, made.base
    motions = motions_of(config, made.train)
    Y = base.columns(_rows(system, motions.q, motions.v, motions.a))
    needed, acting = needed_and_acting(made.truth, motions)
    # What remains without the linear parameters is no part of what they explain.
    nothing = with_linear_parameters(system, jnp.zeros_like(linear_parameters(system)))
    remaining, _ = needed_and_acting(eqx.tree_at(lambda plant: plant.system, made.truth, nothing), motions)
    noise = _noise(config, made.truth)
    linear_fit = stored_jit(weighted_least_squares)
    exact, measured = (linear_fit(Y, tau - remaining, noise) for tau in (needed, acting))
    repeated = _repeated(Y, needed - remaining, noise, settings.repetitions, settings.seed)
    truth = np.asarray(base.values(linear_parameters(system)))
    lower, upper = (np.asarray(bound) for bound in repeated.intervals())
    estimate, half = np.asarray(measured.estimate), np.asarray(measured.intervals()[1] - measured.estimate)
    covered = 100.0 * np.mean((lower <= truth) & (truth <= upper), axis=0)
    size = _sizes(truth, base.units)
    off = np.abs(np.asarray(exact.estimate) - truth) / size
    physical = np.asarray(base.values(linear_parameters(fitted.system)))
    rows = [
        ("base parameter", "unit", "truth", "exact data", "noisy data", "95 % interval", "covered", "fit of bodies")
    ]
    for k, index in enumerate(base.independent):
        more = " + ..." if np.count_nonzero(base.combination[k]) > 1 else ""
        rows.append(
            (
                f"{base.labels[index].name}{more}",
                base.units[k],
                f"{truth[k]:.5g}",
                f"{off[k]:.0e}",
                f"{estimate[k]:.5g}",
                f"+- {half[k]:.2g}",
                f"{covered[k]:.1f} %",
                f"{physical[k]:.5g}",
            )
        )
    table = aligned(rows, left=(0, 1))
    unphysical = unphysical_bodies(fitted.system.model)
    bodies = fitted.system.model.nb
    said = [
        f"{base.rank} base parameters of {len(base.labels)} parameters; {Y.shape[0] * Y.shape[1]} measured forces, "
        f"condition {float(exact.condition):.3g}",
        f"exact data: largest error {np.max(off):.1e} of the size of a base parameter, or of {_LEAST_SIZE:g} of the largest "
        "of its unit",
        f"noisy data: 95 % intervals hold the truth in {np.mean(covered):.2f} % of {settings.repetitions} repetitions, "
        f"{np.min(covered):.2f} to {np.max(covered):.2f} % by parameter",
        f"fit of bodies: {bodies - len(unphysical)} of {bodies} bodies are physical"
        + (f", not {', '.join(unphysical)}" if unphysical else ""),
    ]
    print(table, *said, sep="\n")
    directory.write_text(f"{study.name}_base_parameters.txt", "\n".join([base.report(), "", table, *said]) + "\n")
    directory.write_arrays(
        f"{study.name}_base_parameters",
        truth=truth,
        exact=exact.estimate,
        estimate=measured.estimate,
        covariance=measured.covariance,
        fit_of_bodies=physical,
        combination=base.combination,
    )
    return {
        "count": base.rank,
        "parameters": len(base.labels),
        "condition": float(exact.condition),
        "exact_largest_relative_error": float(np.max(off)),
        "repetitions": settings.repetitions,
        "coverage_mean_percent": float(np.mean(covered)),
        "coverage_min_percent": float(np.min(covered)),
        "coverage_max_percent": float(np.max(covered)),
    }


def _repeated(Y: Array, tau: Array, noise: Array, count: int, seed: int) -> LinearFit:
    """Fits of repetitions of an experiment with other noise, all at once."""
    drawn = np.random.default_rng((seed, 1)).normal(size=(count, *tau.shape))
    errors = noise[None, None] * jnp.asarray(drawn, tau.dtype)
    return stored_jit(jax.vmap(lambda error: weighted_least_squares(Y, tau + error, noise)))(errors)


def _sizes(values: np.ndarray, units: tuple[str, ...]) -> np.ndarray:
    """Sizes with which errors are compared, so that a value that happens to be zero is compared with its like."""
    kinds = np.array(units)
    largest = np.array([np.max(np.abs(values[kinds == unit])) for unit in units])
    return np.maximum(np.abs(values), _LEAST_SIZE * largest)
