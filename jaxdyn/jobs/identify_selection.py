"""Selection of a candidate of a fit by cross-validation over the training recordings."""

import dataclasses
import functools
import itertools
from collections.abc import Callable

import numpy as np

from jaxdyn.compute.announcements import announced_as
from jaxdyn.identify.cross_validation import CrossValidation, cross_validate
from jaxdyn.identify.fitting import FitError
from jaxdyn.identify.measurement import Plant
from jaxdyn.identify.recording import Part, Recording
from jaxdyn.io.errors import ConfigError
from jaxdyn.jobs.identify_config import SelectConfig
from jaxdyn.jobs.identify_plant import with_sensors
from jaxdyn.jobs.identify_run import StudyRun

# A fit: study with its config, plant, training recordings and the name of its checkpoints to the fitted plant.
Fitted = Callable[[StudyRun, Plant, list[Part], str], Plant]


@announced_as("cross-validation")
def selected(
    run: StudyRun, select: SelectConfig, plant: Plant, train: list[Part], fitted: Fitted
) -> tuple[StudyRun, CrossValidation]:
    """Compare the candidates of a config, print and store their errors, and return the study with the config of the chosen one.

    Each fit stores its own checkpoints, so an interrupted run continues with the fit in which it was interrupted.

    Args:
        run: Study whose recordings are used.
        select: Table [select] of its config.
        plant: Plant from which the fits start.
        train: All training recordings.
        fitted: Function that performs a fit.

    Raises:
        ConfigError: Every candidate fails, a recording is too short, or there is no such figure of merit.
    """
    parts = [piece for part in train for piece in _pieces(part, select.parts)]
    groups = [group for group in select.groups for _ in range(select.parts)] or None
    runs = {one.name: run._replace(config=run.config.of_candidate(one)) for one in select.candidate}

    def fitted_to(k: int, own: StudyRun, seen: list[Recording | Part]) -> Plant:
        chosen = [part for part in parts if any(part is one for one in seen)]
        left_out = "_".join(str(i) for i, part in enumerate(parts) if all(part is not one for one in seen))
        name = f"{run.study.name}_select_{k}_without_{left_out}"
        return fitted(own, with_sensors(own.config, plant, len(chosen)), chosen, name).without_zeros

    candidates = {name: functools.partial(fitted_to, k, own) for k, (name, own) in enumerate(runs.items())}
    try:
        found = cross_validate(candidates, parts, run.config.check, groups=groups, figure=select.figure or None)
    except (FitError, ValueError) as error:
        raise ConfigError(f"select: {run.study.name}: {error}") from None
    print(found.table)
    run.write_text("select.txt", found.table + "\n")
    print(f"chosen: {found.chosen}")
    return runs[found.chosen], found


def metrics_of(found: CrossValidation) -> dict[str, object]:
    """Results of a selection for the metrics of a run."""
    tables = {"errors": found.errors, "mean": found.mean, "standard_error": found.standard_error}
    return {
        "chosen": found.chosen,
        "best": found.best,
        "folds": list(found.folds),
        **{key: dict(zip(found.candidates, table.tolist(), strict=True)) for key, table in tables.items()},
        "failures": [f"{who}, {fold} left out: {reason}" for (who, fold), reason in found.failures.items()],
    }


def _pieces(part: Part, count: int) -> list[Part]:
    """Parts of equal duration."""
    end = min(part.end, part.recording.duration + 1e-9)
    edges = np.linspace(part.start, end, count + 1)
    return [dataclasses.replace(part, start=float(a), end=float(b)) for a, b in itertools.pairwise(edges)]
