"""Evaluation of plants on recordings, without a fit."""

import dataclasses
from collections.abc import Mapping, Sequence

from jaxdyn.display import Display, Displayed
from jaxdyn.identify.checks import Check, WindowsCheck
from jaxdyn.identify.measurement import Plant
from jaxdyn.identify.processing import Processing
from jaxdyn.identify.recording import Part, Recording
from jaxdyn.mechanism.messages import check_instance, checked_list


@dataclasses.dataclass(frozen=True, repr=False)
class Evaluation(Displayed):
    """Figures of merit of several plants on the same recordings, from `evaluate`.

    Attributes:
        figures: Figures of merit of each plant, by the name of the plant and the name of the figure in tables.
    """

    figures: dict[str, dict[str, float]]

    def _display(self) -> Display:
        names = dict.fromkeys(name for row in self.figures.values() for name in row)
        rows = {
            name: ", ".join(f"{who} {row[name]:.4g}" for who, row in self.figures.items() if name in row)
            for name in names
        }
        return Display(f"Evaluation({', '.join(self.figures)})", rows)


def evaluate(
    plants: Plant | Mapping[str, Plant],
    recordings: Sequence[Recording | Part],
    checks: Sequence[Check] = (),
    *,
    processing: Processing | None = None,
    intervals: bool = True,
) -> Evaluation:
    """Evaluate one or several plants on recordings, which need not be those of their fits. No parameter is fitted.

        plant = jaxdyn.io.load_plant("runs/arm")
        identify.evaluate(plant, [recording]).figures["plant"]

    Args:
        plants: A plant, or a dictionary of plants by the names that appear in tables.
        recordings: Recordings, or parts of them with their own processing (`Part`).
        checks: Checks that compute the figures; by default the checks of each plant, or `WindowsCheck()` for a plant without
            checks.
        processing: Grids and filters of all recordings without separate processing; by default those of each plant.
        intervals: If true, the measurements inside the 95 % prediction intervals are counted for plants with estimates.

    Raises:
        TypeError: An argument has the wrong type.
        RecordingError: A recording is too short for a check.
    """
    named = {"plant": plants} if isinstance(plants, Plant) else plants
    check_instance("plants", named, Mapping, 'a Plant, or a dictionary such as {"name": plant}')
    recordings = checked_list("recordings", recordings, Recording | Part, "load_recording(path)")
    checks = checked_list("checks", checks, Check, "WindowsCheck()")
    for name, plant in named.items():
        check_instance(f"the plant {name!r}", plant, Plant, "a Plant, such as jaxdyn.io.load_plant(path)")
    check_instance("processing", processing, Processing | None, "Processing(smoothing, ...)")
    return Evaluation(
        {name: _figures(plant, recordings, checks, processing, intervals) for name, plant in named.items()}
    )


def _figures(
    plant: Plant,
    recordings: Sequence[Recording | Part],
    checks: Sequence[Check],
    processing: Processing | None,
    intervals: bool,
) -> dict[str, float]:
    default, plant = processing or plant.processing, plant.without_zeros
    parts = [entry if isinstance(entry, Part) else Part(entry) for entry in recordings]
    parts = [part if part.processing else dataclasses.replace(part, processing=default) for part in parts]
    found: dict[str, float] = {}
    for check in checks or plant.processing.checks or (WindowsCheck(),):
        found |= check.figures(plant if intervals else plant.bare, parts)
    return found
