"""A replay as one HTML page: the player of viser in a frame, a list to select samples, and charts that follow the player."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxdyn.mechanism.components import coordinate_names, coordinate_units
from jaxdyn.view.recorded_samples import RecordedSamples, Sample

_TEMPLATE = Path(__file__).with_name("page.html")
_MARK = "@@recording@@"
_MOST_POINTS = 400  # points of a curve


def page_of(recording: RecordedSamples, players: Mapping[int, str], legend: str = "") -> str:
    """HTML text of a self-contained page.

    Args:
        recording: Recorded motions.
        players: Page that viser makes of the motion of each sample, by index of the sample. The pages of the samples differ in the
            recorded data only, so the result contains the player once.
        legend: Scale of the contact forces.

    Raises:
        RuntimeError: The pages of this version of viser have another format.
    """
    scenes, player = {}, ""
    for number, text in players.items():
        found = re.fullmatch(r'(.*__VISER_EMBED_DATA__=")([A-Za-z0-9+/=]*)(".*)', text, re.DOTALL)
        if found is None:
            raise RuntimeError("this version of viser writes recordings in another format; install viser 1.1")
        scenes[number], player = found[2], found[1] + _MARK + found[3]
    thin = np.linspace(0, len(recording.instants) - 1, min(_MOST_POINTS, len(recording.instants))).round().astype(int)
    content = {
        "title": f"{recording.model.name}: {len(scenes)} of {recording.samples} samples",
        "legend": f"{legend}; the list at the lower right of the scene hides them" if legend else "",
        "start": float(recording.instants[0]),
        "time": _rounded(recording.instants[thin]),
        "mark": _MARK,
        "player": player,
        "samples": [
            {"number": number, "scene": scene, "charts": _charts(recording, recording.sample(number), thin)}
            for number, scene in scenes.items()
        ],
    }
    return filled(_TEMPLATE, content)


def filled(template: Path, content: dict[str, Any]) -> str:
    """HTML text of a template whose script shows the content.

    Names in the content come from untrusted files. As JSON without "<" they cannot end the script, which shows them as text only.
    """
    text = json.dumps(content, default=np.ndarray.tolist).replace("<", "\\u003c")
    return template.read_text(encoding="utf-8").replace("@@content@@", text)


def _charts(recording: RecordedSamples, sample: Sample, thin: np.ndarray) -> list[dict[str, Any]]:
    """Charts of a sample, each with a title, a unit, and one or two curves."""
    names, units = coordinate_names(recording.model), coordinate_units(recording.model)
    charts = [(name, unit, {"": sample.q[:, i]}) for i, (name, unit) in enumerate(zip(names, units, strict=True))]
    if sample.energy is not None:
        work = {} if sample.work is None else {"work done": sample.work}
        charts.insert(0, ("energy", "J", {"gained": sample.energy - sample.energy[0], **work}))
    return [
        {
            "title": title,
            "unit": unit,
            "curves": [{"name": name, "values": _rounded(curve[thin])} for name, curve in curves.items()],
        }
        for title, unit, curves in charts
    ]


def _rounded(values: np.ndarray) -> list[float | None]:
    """Values with six digits, more than a screen resolves; values that JSON does not support become null."""
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in values]
