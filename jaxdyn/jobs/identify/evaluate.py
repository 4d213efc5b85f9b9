"""The job `jaxdyn evaluate`: figures of merit of already identified plants on recordings, without a fit."""

import dataclasses
from pathlib import Path
from typing import Any

from jaxdyn.compute.announcements import announced_as
from jaxdyn.identify.measurement import Plant
from jaxdyn.identify.recording import Part
from jaxdyn.io.archive.plant import PLANT, load_plant, plant_archive
from jaxdyn.io.runs.directory import RunDirectory
from jaxdyn.io.system_file import files_of
from jaxdyn.jobs.identify.config import IdentifyConfig, StudyConfig
from jaxdyn.jobs.identify.study import StudyRun, check_folder, figures, inputs_in_words, parts_of, recording_files
from jaxdyn.jobs.identify.work import merit_table
from jaxdyn.jobs.pictures import draw_pictures


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


def work(config: EvaluateConfig, directory: RunDirectory) -> dict[str, Any]:
    """Evaluate all plants on the held-out recordings of each study; returns the figures of merit."""
    check_folder(config)
    judged = [{name: load_plant(path) for name, path in _archives(config, study).items()} for study in config.study]
    recorded = [parts_of(config, study.validation, study.validation_time) for study in config.study]
    return {
        study.name: _evaluate(StudyRun(config, study, directory), plants, parts, config.intervals)
        for study, plants, parts in zip(config.study, judged, recorded, strict=True)
    }


def inputs(config: EvaluateConfig) -> list[tuple[str, Path]]:
    """All files that the evaluation reads, as pairs of a role ("plant" or "recording") and a path."""
    archives = [archive for study in config.study for archive in _archives(config, study).values()]
    plants = [("plant", file) for archive in archives for file in files_of(archive)]
    return plants + recording_files(config, [name for study in config.study for name in study.validation])


def _archives(config: EvaluateConfig, study: StudyConfig) -> dict[str, Path]:
    """The archive of the plant of a study in each run, by the name of the run."""
    found = {}
    for run in config.runs:
        own = run / study.name / f"{PLANT}.json"
        name = run.name if run.name not in found else str(run)
        found[name] = own if own.is_file() else plant_archive(run)
    return found


@announced_as("the judgment")
def _evaluate(run: StudyRun, plants: dict[str, Plant], parts: list[Part], intervals: bool) -> dict[str, Any]:
    """Judge all plants on the recordings of a study; writes the table and pictures, and returns the metrics."""
    merit: dict[tuple[str, str], dict[str, float]] = {
        (name, "validation"): figures(run.config, plant, parts, intervals=intervals) for name, plant in plants.items()
    }
    table = merit_table(merit)
    if inputs := inputs_in_words(parts):
        table = f"{table}\nrecorded inputs between time stamps: {inputs}"
    print(f"\n{run.study.name}: {', '.join(run.study.validation)}\n{table}")
    run.write_text("figures.txt", table + "\n")
    metrics: dict[str, Any] = {"figures": {f"{name}, {split}": row for (name, split), row in merit.items()}}
    metrics["inputs"] = inputs
    if run.config.pictures:
        metrics["pictures"] = []
        for name, plant in plants.items():
            title = run.study.name if len(plants) == 1 else f"{run.study.name}_{name}"
            of_plant = run._replace(study=dataclasses.replace(run.study, name=title))
            shown = plant.without_zeros if intervals else plant.without_zeros.bare
            metrics["pictures"] += draw_pictures("jaxdyn.jobs.identify.pictures:draw", of_plant, shown, None, parts)
    return metrics
