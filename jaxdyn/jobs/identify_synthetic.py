"""Synthetic identification: recordings of a machine that is known, and what its truth says about a fit."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jaxdyn.dynamics.system import System
from jaxdyn.identify.base_parameters import BaseParameters, base_parameters, identifying_motions
from jaxdyn.identify.charts import PhysicalInertia
from jaxdyn.identify.excitation import FourierMotion, Margins, design_excitation, random_motions
from jaxdyn.identify.inverse_dynamics_error import Motions, drive_forces, needed_forces
from jaxdyn.identify.linear_fit import LinearFit, weighted_least_squares
from jaxdyn.identify.measurement import Plant
from jaxdyn.identify.recording import Recording
from jaxdyn.identify.regressor import labels, linear_parameters, regressor, remaining_forces
from jaxdyn.io.config import ConfigError
from jaxdyn.io.runs import RunDirectory
from jaxdyn.jobs.identify_config import IdentifyConfig, StudyConfig
from jaxdyn.jobs.identify_plant import Part, motions_of, one_each, parameters_of
from jaxdyn.jobs.synthetic_config import SyntheticConfig
from jaxdyn.jobs.tables import aligned
from jaxdyn.mechanism.model import Model

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


def experiment_of(config: IdentifyConfig, study: StudyConfig, truth: Plant) -> Experiment:
    """Motions that excite the machine, their recordings, and a start that is off.

    Raises:
        ConfigError: the machine cannot follow such motions, or has joints without drives.
    """
    settings = _settings(config)
    model = truth.system.model
    noise = _noise(config, truth)
    base_key, start_key, train_key, validation_key, noise_key = jax.random.split(jax.random.key(settings.seed), 5)
    samples = _samples(config)
    try:
        base = base_parameters(
            _rows(truth.system, *identifying_motions(truth.system, base_key, samples)), labels(truth.system)
        )
        learned, margins = _excitations(config, truth.system, base, noise, train_key, len(study.train))
        judging = random_motions(
            truth.system,
            validation_key,
            period=settings.period,
            harmonics=settings.harmonics,
            samples=samples,
            count=max(len(study.validation), 1),
        )[0]
    except ValueError as error:
        raise ConfigError(f"{study.name}: {error}") from None
    for name, margin in zip(study.train, margins, strict=True):
        shares = (100.0 * (1.0 - float(jnp.min(part))) for part in margin)
        print("{}: at most {:.0f} % of position, {:.0f} % of speed, {:.0f} % of force limits".format(name, *shares))
    validation = [jax.tree.map(lambda leaf, k=k: leaf[k], judging) for k in range(len(study.validation))]
    keys = jax.random.split(noise_key, len(study.train))
    parameters = parameters_of(config, truth)
    off = settings.perturbation * jax.random.normal(start_key, (parameters.size,), model.dtype)
    return Experiment(
        truth,
        parameters.place(parameters.start + off),
        base,
        [_recorded(config, truth, *which) for which in zip(study.train, learned, keys, strict=True)],
        [_recorded(config, truth, *which, None) for which in zip(study.validation, validation, strict=True)],
    )


def _settings(config: IdentifyConfig) -> SyntheticConfig:
    if config.synthetic is None:
        raise ConfigError("there is no table [synthetic]; write one")
    return config.synthetic


def _samples(config: IdentifyConfig) -> int:
    return round(_settings(config).period / config.motion.interval)


def _noise(config: IdentifyConfig, plant: Plant) -> Float[Array, "nv"]:
    return one_each(_settings(config).noise, plant.system.model.nv, "synthetic.noise")


def _excitations(
    config: IdentifyConfig, system: System, base: BaseParameters, noise, key: PRNGKeyArray, count: int
) -> tuple[list[FourierMotion], list[Margins]]:
    """Motions that tell base parameters, and what they leave of the limits."""
    settings, samples = _settings(config), _samples(config)
    found = []
    for one in jax.random.split(key, count):
        if settings.steps:
            best = design_excitation(
                system,
                one,
                period=settings.period,
                harmonics=settings.harmonics,
                samples=samples,
                noise=noise,
                starts=settings.starts,
                steps=settings.steps,
                base=base,
            )
            found.append((best.motion, best.margins))
            continue
        several = random_motions(
            system,
            one,
            period=settings.period,
            harmonics=settings.harmonics,
            samples=samples,
            count=settings.starts,
        )
        each = [jax.tree.map(lambda leaf, k=k: leaf[k], several) for k in range(settings.starts)]
        told = [_log_determinant(base.columns(_rows(system, *_sampled(config, motion))), noise) for motion, _ in each]
        found.append(each[int(np.argmax(told))])
    return [motion for motion, _ in found], [margins for _, margins in found]


def _times(config: IdentifyConfig) -> np.ndarray:
    return config.motion.interval * np.arange(_samples(config))


def _sampled(config: IdentifyConfig, motion: FourierMotion) -> tuple[Array, Array, Array]:
    return jax.jit(jax.vmap(lambda motion, t: motion(t), (None, 0)))(motion, jnp.asarray(_times(config)))


def _log_determinant(Y: Float[Array, "samples nv rank"], noise: Float[Array, "nv"]) -> float:
    """Of the information on base parameters."""
    rows = np.asarray(Y / noise[:, None]).reshape(-1, Y.shape[-1])
    return float(2.0 * np.sum(np.log(np.linalg.svd(rows, compute_uv=False))))


@eqx.filter_jit
def _rows(system: System, q: Array, v: Array, a: Array) -> Float[Array, "samples nv parameters"]:
    return jax.vmap(regressor, (None, 0, 0, 0))(system, q, v, a)


@eqx.filter_jit
def _needed(plant: Plant, motions: Motions) -> Float[Array, "samples nv"]:
    return jax.vmap(needed_forces, (None, 0))(plant, motions)


def _recorded(
    config: IdentifyConfig, truth: Plant, name: str, motion: FourierMotion, key: PRNGKeyArray | None
) -> Part:
    """A recording of one period; forces with noise if there is a key for it."""
    q, v, a = _sampled(config, motion)
    none = jnp.zeros((len(q), truth.inputs.gain.size), q.dtype)
    tau = _needed(truth, Motions(q, v, a, none))
    if key is not None:
        tau = tau + _noise(config, truth) * jax.random.normal(key, tau.shape, tau.dtype)
    # Inputs that make the drives exert these forces.
    still = Motions(q[0], v[0], a[0], none[0])
    effect = np.asarray(jax.jacfwd(lambda u: drive_forces(truth, dataclasses.replace(still, u=u)))(still.u))
    if effect.shape[0] != effect.shape[1] or np.linalg.matrix_rank(effect) < len(effect):
        raise ConfigError(f"{name}: not every joint has a drive, so that its forces cannot be chosen; drive them all")
    idle = np.asarray(drive_forces(truth, still))
    u = np.linalg.solve(effect, (np.asarray(tau) - idle).T).T
    recording = Recording(name, _times(config), np.asarray(q), np.asarray(v), u, np.asarray(a))
    return Part(recording, 0.0, np.inf)


def judged_by_truth(
    config: IdentifyConfig, study: StudyConfig, made: Experiment, fitted: Plant, directory: RunDirectory
) -> dict[str, Any]:
    """What a fit and linear fits of base parameters find of the truth: tables, files and metrics."""
    settings, system, base = _settings(config), made.truth.system, made.base
    motions = motions_of(config, made.train)
    Y = base.columns(_rows(system, motions.q, motions.v, motions.a))
    tau = _needed(made.truth, motions) - _remaining(system, motions)
    noise = _noise(config, made.truth)
    exact = eqx.filter_jit(weighted_least_squares)(Y, tau, noise)
    repeated = _repeated(Y, tau, noise, jax.random.key(settings.seed + 1), settings.repetitions)
    truth = np.asarray(base.values(linear_parameters(system)))
    lower, upper = (np.asarray(bound) for bound in repeated.intervals())
    covered = 100.0 * np.mean((lower <= truth) & (truth <= upper), axis=0)
    size = _sizes(truth, base.units)
    off = np.abs(np.asarray(exact.estimate) - truth) / size
    physical = np.asarray(base.values(linear_parameters(fitted.system)))
    rows = [("base parameter", "unit", "truth", "exact data", "noisy data", "95 % interval", "covered", "fit of bodies")]
    for k, index in enumerate(base.independent):
        more = " + ..." if np.count_nonzero(base.combination[k]) > 1 else ""
        estimate, half = float(repeated.estimate[0, k]), 0.5 * (upper[0, k] - lower[0, k])
        rows.append(
            (
                f"{base.labels[index].name}{more}",
                base.units[k],
                f"{truth[k]:.5g}",
                f"{off[k]:.0e}",
                f"{estimate:.5g}",
                f"+- {half:.2g}",
                f"{covered[k]:.1f} %",
                f"{physical[k]:.5g}",
            )
        )
    table = aligned(rows, left=(0, 1))
    unphysical = _unphysical(fitted.system.model)
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
        estimates=repeated.estimate,
        lower=lower,
        upper=upper,
        fit_of_bodies=physical,
        combination=base.combination,
    )
    return {
        "base_parameters": {
            "count": base.rank,
            "parameters": len(base.labels),
            "condition": float(exact.condition),
            "exact_largest_relative_error": float(np.max(off)),
            "repetitions": settings.repetitions,
            "coverage_mean_percent": float(np.mean(covered)),
            "coverage_min_percent": float(np.min(covered)),
            "coverage_max_percent": float(np.max(covered)),
        },
        "bodies": bodies,
        "unphysical_bodies": unphysical,
    }


@eqx.filter_jit
def _remaining(system: System, motions: Motions) -> Float[Array, "samples nv"]:
    return jax.vmap(remaining_forces, (None, 0, 0, 0))(system, motions.q, motions.v, motions.a)


@eqx.filter_jit
def _repeated(Y: Array, tau: Array, noise: Array, key: PRNGKeyArray, count: int) -> LinearFit:
    """Fits of repetitions of an experiment, all at once."""

    def of_one(key):
        return weighted_least_squares(Y, tau + noise * jax.random.normal(key, tau.shape, tau.dtype), noise)

    return jax.vmap(of_one)(jax.random.split(key, count))


def _sizes(values: np.ndarray, units: tuple[str, ...]) -> np.ndarray:
    """Sizes with which errors are compared, so that a value that happens to be zero is compared with its like."""
    kinds = np.array(units)
    largest = np.array([np.max(np.abs(values[kinds == unit])) for unit in units])
    return np.maximum(np.abs(values), _LEAST_SIZE * largest)


def _unphysical(model: Model) -> list[str]:
    """Bodies whose pseudo-inertia is not positive definite."""
    chart = PhysicalInertia()
    numbers = np.concatenate([np.asarray(model.mass)[:, None], np.asarray(model.com), np.asarray(model.inertia)], axis=1)
    return [
        name
        for name, values in zip(model.topology.body_names, numbers, strict=True)
        if chart.problem(values) is not None
    ]
