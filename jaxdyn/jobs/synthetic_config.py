"""Settings of synthetic recordings for `jaxdyn identify`."""

import dataclasses

from jaxdyn.io.config import setting


@dataclasses.dataclass(frozen=True)
class SyntheticConfig:
    """Recordings of a machine with known parameters: one period each of a motion, with the forces that it requires.

    The true machine is the mechanism of the study with the forces of the config; the fit starts from perturbed parameters. The
    motions are Fourier series, at rest at their ends and within the limits of the mechanism, sampled every motion.interval.

    Attributes:
        period: Period of the motions.
        harmonics: Number of sines and cosines per joint, at least 2.
        starts: Number of random motions, of which those with most information on the base parameters are used.
        steps: Number of gradient steps of a search (D-optimal design) from these motions; 0 for no search.
        noise: Standard deviation of the forces in training recordings (N m or N), one value for all joints or one each. Held-out
            recordings have no noise, so that their errors are those of the identified machine alone.
        repetitions: Number of repetitions with other noise, to count how often 95 % intervals contain the true values.
        perturbation: Standard deviation of the errors of the initial guess in the unconstrained parameters; 0.1 is about 10 % of
            positive values and masses.
        seed: Seed of motions, noise and initial guess.
    """

    period: float = setting(10.0, unit="s", positive=True)
    harmonics: int = setting(5, positive=True)
    starts: int = setting(8, positive=True)
    steps: int = setting(0, non_negative=True)
    noise: tuple[float, ...] = setting((0.1,), positive=True, broadcast=True)
    repetitions: int = setting(400, positive=True)
    perturbation: float = setting(0.2, non_negative=True)
    seed: int = setting(0, non_negative=True)
