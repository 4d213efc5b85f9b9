"""Settings of recordings that `jaxdyn identify` makes itself."""

import dataclasses

from jaxdyn.io.config import setting


@dataclasses.dataclass(frozen=True)
class SyntheticConfig:
    """Recordings of a machine whose parameters are known: one period each of a motion, with the forces that it needs.

    The truth is the mechanism of the study with the forces of the config; the fit starts from a perturbed one. The motions are
    Fourier series, at rest at their ends and within the limits of the mechanism, sampled every motion.interval.

    Attributes:
        period: Motions have this period.
        harmonics: Motions have so many sines and cosines per joint, at least 2.
        starts: Of so many random motions the most informative on the base parameters are used.
        steps: A search (D-optimal design) takes so many gradient steps from as many motions; 0 for no search.
        noise: The forces in training recordings have this standard deviation, N m or N, one for all joints or one each. Held-out
            recordings have no noise, so that their errors are those of the machine alone.
        repetitions: The experiment is repeated so many times with other noise, to count how often 95 % intervals hold the truth.
        perturbation: The fit starts from the truth with errors of this standard deviation in the unconstrained parameters; 0.1 is
            about 10 % of positive values and masses.
        seed: This is the seed of motions, noise and initial guess.
    """

    period: float = setting(10.0, unit="s", positive=True)
    harmonics: int = setting(5, positive=True)
    starts: int = setting(8, positive=True)
    steps: int = setting(0, non_negative=True)
    noise: tuple[float, ...] = setting((0.1,), positive=True, broadcast=True)
    repetitions: int = setting(400, positive=True)
    perturbation: float = setting(0.2, non_negative=True)
    seed: int = setting(0, non_negative=True)
