"""The config of `jaxdyn evaluate`: the keys of `jaxdyn identify`, and the runs whose plants are evaluated."""

import dataclasses
from pathlib import Path

from jaxdyn.jobs.identify.config import IdentifyConfig


@dataclasses.dataclass(frozen=True)
class EvaluateConfig(IdentifyConfig):
    """Config of `jaxdyn evaluate`. Settings that it does not contain are taken from the first of the runs.

    The plant of a run of jaxdyn identify, with its sensors, inputs, friction and filters, predicts recordings. The figures of
    merit, tables and pictures of jaxdyn identify are written to a new run directory. If the plant contains estimates, the
    measurements inside the 95 % prediction intervals are counted. Several runs are compared on the same recordings. The config
    of the first run is used; every setting can be changed. Relative paths are relative to the directory of the first run.

      jaxdyn evaluate runs/arm data=/new/recordings 'study.0.validation=["run_7.csv"]'
      jaxdyn evaluate runs/arm runs/other_arm motion.cutoff=8

    Attributes:
        runs: Run directories of `jaxdyn identify`, or directories of single plants, whose plants are compared on the same
            recordings.
        intervals: If true, the measurements inside the 95 % prediction intervals are counted.
    """

    runs: tuple[Path, ...] = ()
    intervals: bool = True

    def __post_init__(self):
        super().__post_init__()
        if self.synthetic is not None:
            raise ValueError(
                "synthetic recordings cannot be judged again; give data, the folder of recordings, and study"
            )
        if not self.check:
            raise ValueError(
                "there is no check, so there are no figures; give check=[{kind='windows'}] or another kind"
            )
        without = [k for k, study in enumerate(self.study) if not study.validation]
        if without:
            raise ValueError(f"study.{without[0]}.validation is empty; name the recordings to predict")
