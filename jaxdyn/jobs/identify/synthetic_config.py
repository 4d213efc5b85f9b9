"""Settings of synthetic recordings for `jaxdyn identify`."""

import dataclasses

from jaxdyn.identify.experiment import compare_base_parameters, excitations
from jaxdyn.io.config import default_of, seed_setting, setting
from jaxdyn.mechanism.quantity import EFFORT


@dataclasses.dataclass(frozen=True)
class SyntheticConfig:
    """Recordings of a machine with known parameters: each contains one period of a motion and the forces that the motion requires.

    The true machine is the mechanism of the study with the forces of the config; the fit starts from perturbed parameters. The
    motions are Fourier series, at rest at their ends and within the limits of the mechanism, sampled at intervals of
    `motion.interval`.

    Attributes:
        period: Period of the motions.
        harmonics: Number of harmonics of the Fourier series of each joint.
        starts: Number of random candidate motions; the candidates with the most information on the base parameters are used.
        max_steps: Number of gradient steps that improve the selected motions (D-optimal design); 0 for no improvement.
        noise: Standard deviation of the forces in training recordings, one value for all joints or one per joint.
            Held-out recordings have no noise, so that prediction errors are caused by the identified parameters alone.
        repetitions: Number of repetitions of the fit with other random noise; they show how often the 95 % intervals contain the
            true values.
        perturbation: Standard deviation of the errors of the initial guess in the unconstrained parameters; 0.1 changes masses and
            other positive values by about 10 %.
        seed: Seed of the random motions, noise and initial guess.
    """

    period: float = setting(default_of(excitations, "period"), unit="s", positive=True)
    harmonics: int = setting(default_of(excitations, "harmonics"), minimum=2.0)
    starts: int = setting(default_of(excitations, "starts"), positive=True)
    max_steps: int = setting(default_of(excitations, "max_steps"), minimum=0.0)
    noise: tuple[float, ...] = setting((0.1,), unit=EFFORT, positive=True, broadcast=True)
    repetitions: int = setting(default_of(compare_base_parameters, "repetitions"), positive=True)
    perturbation: float = setting(0.2, minimum=0.0)
    seed: int = seed_setting()
