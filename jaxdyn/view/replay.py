"""Replay of recorded motions as one file for the browser.

replay = Replay(system, time, q, energy=energy)
replay.write_html("replay.html")  # opens in any browser, without a server or network
"""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxdyn.mechanism.components import coordinate_names, coordinate_units
from jaxdyn.view import contacts, skeleton
from jaxdyn.view.page import color_of, encoded, poses_of, scene_of, write_page
from jaxdyn.view.recorded_samples import RecordedSamples, check_samples
from jaxdyn.view.style import MOTION_COLORS

_MOST_NUMBERS = 850_000  # in all frames of a page, about 5.3 B each: less than 5 MB without shapes


class Replay(RecordedSamples):
    """Recorded motions of one mechanism for interactive viewing in three dimensions."""

    def write_html(self, path: Path | str, *, samples: Sequence[int] | None = None, overlay: int = 3) -> None:
        """Write the replay as one HTML file that opens without a server or network.

        The page contains the 3-D scene with play, pause, speed and a time slider; a list to select one of the samples in the file,
        each with other samples drawn in gray; and charts of all coordinates and of the energy with a line at the current time.
        Switches hide and show parts of the scene (ellipsoids, gray samples, ...). The file contains only the selected samples and
        those in gray. If the selected motions are long, it contains fewer frames per second, so that a page without shapes has less
        than 5 MB, and one with shapes less than 10 MB.

        Args:
            path: Path of the file.
            samples: Indices of the samples to include; by default the first eight.
            overlay: Number of other samples that are drawn in gray.

        Raises:
            ConfigError: There is no such sample, or the file cannot be written.
        """
        chosen = check_samples(range(min(8, self.samples)) if samples is None else samples, self.samples)
        others = {number: self.others(number, overlay) for number in chosen}
        scene = scene_of(self.mechanism, *self.box(self.visuals), self.visuals, range(self.model.nb))
        arrows = contacts.Arrows.of(self.mechanism, scene["size"])
        motions = {number: self._arrays(number, arrows) for number in {*chosen, *itertools.chain(*others.values())}}
        width = sum(values[0].size for motion in motions.values() for values in motion.values())
        count = min(len(self.instants), max(2, _MOST_NUMBERS // width))
        frames = np.linspace(0, len(self.instants) - 1, count).round().astype(int)
        touches = bool(scene["contacts"])
        content = {
            "title": f"{self.model.name}: {len(chosen)} of {self.samples} samples",
            "note": arrows.legend if touches else "",
            "sliders": [
                {"name": "time", "unit": "s", "low": self.instants[0], "high": self.instants[-1], "limited": True}
            ],
            "independent": [0],
            "random": [],
            "start": self.instants[:1],
            "postures": {},
            "tables": None,
            "instants": self.instants[frames],
            "samples": [*others.items()],
            "motions": {
                number: {name: encoded(values[frames]) for name, values in motion.items()}
                for number, motion in motions.items()
            },
            "charts": self._charts(),
            "axes": [
                [body, None, color_of(MOTION_COLORS[skeleton.joint_motion(self.model, body)])]
                for body in skeleton.joint_axes(self.model)
            ],
        }
        scene["switches"] += [["contact forces", True]] * touches + [["other samples", True]] * any(others.values())
        write_page(path, content | scene)

    def _arrays(self, number: int, arrows: contacts.Arrows) -> dict[str, np.ndarray]:
        """Moving parts of a sample, for each instant: poses, joint axes, contacts [position, arrow, depth] and curves of charts."""
        placed, q, energy, work, touching = self.sample(number)
        energies = [] if energy is None else [energy - energy[0], *([] if work is None else [work])]
        arrays = {"poses": poses_of(placed), "axes": placed.axes[0], "curves": np.column_stack([*energies, q])}
        if touching is not None:
            parts = touching.positions, arrows.vectors(touching.forces), touching.depths[..., None]
            arrays["contacts"] = np.concatenate(parts, axis=-1)
        return arrays

    def _charts(self) -> list[dict[str, Any]]:
        """Charts, each with a title, a unit, and names of one or two curves."""
        names = [] if self._energy is None else ["gained"] if self._work is None else ["gained", "work done"]
        energies = [{"title": "energy", "unit": "J", "curves": names}] if names else []
        coordinates = zip(coordinate_names(self.model), coordinate_units(self.model), strict=True)
        return energies + [{"title": title, "unit": unit, "curves": [""]} for title, unit in coordinates]
