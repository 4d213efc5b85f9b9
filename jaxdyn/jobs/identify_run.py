"""One study of a run of `jaxdyn identify` or `jaxdyn evaluate`, with the config that applies to it and its files."""

from typing import Any, NamedTuple

from jaxdyn.io.runs import RunDirectory
from jaxdyn.jobs.identify_config import IdentifyConfig, StudyConfig


class StudyRun(NamedTuple):
    """A study, whose files have names that begin with its name.

    Attributes:
        config: Config of the run; after a selection by cross-validation, that of the chosen candidate.
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
