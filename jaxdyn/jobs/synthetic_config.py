"""Settings of recordings that `jaxdyn identify` makes itself."""

import dataclasses

from jaxdyn.io.config import setting


@dataclasses.dataclass(frozen=True)
class SyntheticConfig:
    """Recordings of a machine that is known: one period each of a motion, sampled every motion.interval, and the forces it needs.

    The truth is the mechanism of the study with the forces of the config; the fit starts from a perturbed one.

    Attributes:
        period: of the motions, which are Fourier series, at rest at their ends and within the limits of the mechanism.
        harmonics: sines and cosines per joint, at least 2.
        starts: random motions, of which those that tell base parameters best are taken.
        steps: of a search from as many motions for one that tells most, D-optimal design, which takes longer; 0 for none.
        noise: standard deviation of the forces in recordings to learn from, one number or one per joint, N m or N. Recordings to be
            judged by have none, so that errors are those of the machine alone.
        repetitions: of the experiment with other noise, to count how often 95 % intervals hold the truth.
        perturbation: standard deviation of the start of the fit about the truth, in the free numbers of the charts: 0.1 is about
            10 % of positive numbers and masses.
        seed: of motions, noise and start.
    """

    period: float = setting(10.0, unit="s", positive=True)
    harmonics: int = setting(5, positive=True)
    starts: int = setting(8, positive=True)
    steps: int = setting(0, non_negative=True)
    noise: tuple[float, ...] = setting((0.1,), positive=True, broadcast=True)
    repetitions: int = setting(400, positive=True)
    perturbation: float = setting(0.2, non_negative=True)
    seed: int = setting(0, non_negative=True)
