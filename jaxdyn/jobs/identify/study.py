"""One study of a run of `jaxdyn identify` or `jaxdyn evaluate`: the config that applies to it, its files, and figures of merit."""

from typing import Any, NamedTuple

from jaxdyn.identify.evaluation import evaluate
from jaxdyn.identify.measurement import Plant
from jaxdyn.identify.recording import Part
from jaxdyn.io.runs import RunDirectory
from jaxdyn.jobs.identify.config import IdentifyConfig, StudyConfig
from jaxdyn.jobs.identify.problem import as_config_errors


class StudyRun(NamedTuple):
    """A study, whose files have names that begin with its name.

    Attributes:
        config: Config of the run.
        study: The study.
        directory: Run directory.
    """

    config: IdentifyConfig
    study: StudyConfig
    directory: RunDirectory

    def write_text(self, name: str, text: str) -> None:
        """Write a text file of the study."""
        self.directory.write_text(f"{self.study.name}_{name}", text)

    def write_arrays(self, name: str, **arrays: Any) -> None:
        """Write a file of arrays of the study."""
        self.directory.write_arrays(f"{self.study.name}_{name}", **arrays)


@as_config_errors()
def figures(config: IdentifyConfig, plant: Plant, parts: list[Part], *, intervals: bool = False) -> dict[str, float]:
    """The figures of merit of all checks of the config, by the names that appear in tables.

    Raises:
        ConfigError: A recording is too short for a check, or does not fit the plant.
    """
    if not config.check:
        return {}
    return evaluate(plant, parts, config.check, intervals=intervals).figures["plant"]
