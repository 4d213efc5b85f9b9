"""Synthetic identification: recordings of a machine with known parameters, and a perturbed machine from which a fit starts."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.compute.announcements import announced_as
from jaxdyn.identify.experiment import excitations, synthetic_recording
from jaxdyn.identify.measurement import Plant
from jaxdyn.identify.recording import Part
from jaxdyn.io.errors import ConfigError
from jaxdyn.jobs.identify.config import SyntheticConfig
from jaxdyn.jobs.identify.study import StudyRun, parameters_of, processing_of
from jaxdyn.jobs.tables import each


@announced_as("the recordings")
def experiment_of(run: StudyRun, settings: SyntheticConfig, truth: Plant) -> tuple[Plant, list[Part], list[Part]]:
    """A machine with perturbed parameters for the initial guess of the fit, and recordings of motions that excite the true machine.

    The forces in the recordings of the fit have noise, and those in the recordings for the validation have none.

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
    return parameters.place(parameters.initial + off), train, validation
