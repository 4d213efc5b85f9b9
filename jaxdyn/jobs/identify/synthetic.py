"""Synthetic identification: recordings of a machine with known parameters, and comparison of a fit with the true parameters."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.announcements import announced_as
from jaxdyn.display import aligned
from jaxdyn.identify.experiment import LEAST_SIZE, compare_base_parameters, excitations, synthetic_recording
from jaxdyn.identify.identifiability import BaseParameters
from jaxdyn.identify.measurement import Plant
from jaxdyn.identify.recording import Part
from jaxdyn.io.errors import ConfigError
from jaxdyn.jobs.identify.config import SyntheticConfig
from jaxdyn.jobs.identify.study import StudyRun, motions_of, parameters_of, processing_of
from jaxdyn.jobs.tables import each


class Experiment(NamedTuple):
    """An experiment on a machine with known parameters.

    Attributes:
        settings: Settings of the experiment.
        noise: Standard deviation of each force.
        truth: Machine with the true parameters.
        start: Machine with perturbed parameters, the initial guess of the fit.
        base: Base parameters of the machine.
        train: Recordings with noise in the forces.
        validation: Recordings of other motions, without noise.
    """

    settings: SyntheticConfig
    noise: Float[Array, "nv"]
    truth: Plant
    start: Plant
    base: BaseParameters
    train: list[Part]
    validation: list[Part]


@announced_as("the recordings")
def experiment_of(run: StudyRun, settings: SyntheticConfig, truth: Plant) -> Experiment:
    """Compute motions that excite the machine, their recordings, and a machine with perturbed parameters.

    Raises:
        ConfigError: The machine cannot follow the motions within its limits, or has joints without drives.
    """
    config, study, _ = run
    parameters, samples = parameters_of(config, truth), round(settings.period / config.motion.interval)
    noise = jnp.asarray(each(settings.noise, "nv", truth.system, "synthetic.noise"))
    rng = np.random.default_rng(settings.seed)
    off = settings.perturbation * jnp.asarray(rng.normal(size=parameters.size), truth.system.model.dtype)
    times = config.motion.interval * np.arange(samples)

    def part(name, motion, errors):
        return Part(synthetic_recording(truth, name, motion, times, errors), processing=processing_of(config))

    try:
        found = excitations(
            truth.system,
            jax.random.key(settings.seed),
            training=len(study.train),
            validation=len(study.validation),
            noise=noise,
            period=settings.period,
            harmonics=settings.harmonics,
            times=times,
            starts=settings.starts,
            max_steps=settings.max_steps,
        )
        train = []
        for name, (motion, margins, information) in zip(study.train, found.training, strict=True):
            used = (100.0 * (1.0 - float(jnp.min(part))) for part in margins)
            print("{}: at most {:.0f} % of position, {:.0f} % of speed, {:.0f} % of force limits".format(name, *used))
            print(f"{name}: log determinant {information:.5g} of the information on {found.base.rank} base parameters")
            train.append(part(name, motion, np.asarray(noise) * rng.normal(size=(samples, len(noise)))))
        validation = [part(*which, None) for which in zip(study.validation, found.validation, strict=True)]
    except ValueError as error:
        raise ConfigError(f"{study.name}: {error}") from None
    start = parameters.place(parameters.initial + off)
    return Experiment(settings, noise, truth, start, found.base, train, validation)


@announced_as("the judgment")
def compare_with_truth(run: StudyRun, made: Experiment, fitted: Plant) -> dict[str, Any]:
    """Compare a fit, and linear fits of base parameters, with the true parameters; writes tables and files and returns metrics."""
    base, motions, repetitions = made.base, motions_of(made.train), made.settings.repetitions
    found = compare_base_parameters(
        made.truth, fitted, base, motions, made.noise, repetitions=repetitions, seed=made.settings.seed
    )
    estimate, covered = np.asarray(found.measured.estimate), 100.0 * found.covered
    half = np.asarray(found.measured.intervals()[1]) - estimate
    rows = [
        ("base parameter", "unit", "truth", "exact data", "noisy data", "95 % interval", "covered", "fit of bodies")
    ]
    for k, index in enumerate(base.independent):
        more = " + ..." if np.count_nonzero(base.combination[k]) > 1 else ""
        name, values = f"{base.labels[index].name}{more}", (f"{found.truth[k]:.5g}", f"{found.errors[k]:.0e}")
        noisy = (f"{estimate[k]:.5g}", f"+- {half[k]:.2g}", f"{covered[k]:.1f} %", f"{found.fitted[k]:.5g}")
        rows.append((name, base.units[k], *values, *noisy))
    metrics = {
        "count": base.rank,
        "parameters": len(base.labels),
        "condition": float(found.exact.condition),
        "exact_largest_relative_error": float(np.max(found.errors)),
        "repetitions": repetitions,
        "coverage_mean_percent": float(np.mean(covered)),
        "coverage_min_percent": float(np.min(covered)),
        "coverage_max_percent": float(np.max(covered)),
    }
    table = "\n".join(
        [
            aligned(rows, left=(0, 1)),
            "exact data: errors relative to the base parameter, or to {:g} of the largest one with the same unit, at most {:.1e}"
            "".format(LEAST_SIZE, metrics["exact_largest_relative_error"]),
            "covered: 95 % intervals that contain the true value, {:.2f} % of {} repetitions".format(
                metrics["coverage_mean_percent"], repetitions
            ),
        ]
    )
    print(table)
    run.write_text("base_parameters.txt", f"{base.report()}\n\n{table}\n")
    run.write_arrays(
        "base_parameters",
        truth=found.truth,
        exact=found.exact.estimate,
        estimate=found.measured.estimate,
        covariance=found.measured.covariance,
        fit_of_bodies=found.fitted,
        combination=base.combination,
    )
    return metrics
