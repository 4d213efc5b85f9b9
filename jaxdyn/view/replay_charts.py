"""Charts of a served replay: the coordinates and the energy of a sample, with a line at the current time."""

import time as clock
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxdyn.mechanism.components import coordinate_names, coordinate_units
from jaxdyn.mechanism.model import Model
from jaxdyn.view.recorded_samples import Sample
from jaxdyn.view.style import BLUE, GRAY, GREEN, ORANGE, PURPLE

_COLORS = (BLUE, ORANGE, GREEN, PURPLE, "#b23a48", "#0e7c9b", "#8a6d1d")
_POINTS = 250  # points of a curve; the browser receives all of them again whenever the line at the current time moves
_PAUSE = 0.1  # s, shortest time between two moves of the line at the current time


class Chart:
    """Curves over time with a vertical line. Curves are drawn again when they change, the line a few times per second."""

    def __init__(self, gui: Any, folder: Any, instants: Float[np.ndarray, "instants"]):
        self._gui, self._folder, self._handle, self._last = gui, folder, None, 0.0
        thin = np.linspace(0, len(instants) - 1, min(_POINTS, len(instants))).round().astype(int)
        self._thin, self._time = thin, instants[thin]
        self._curves: list[np.ndarray] = []

    def draw(self, curves: dict[str, np.ndarray], label: str, at: float, *, redraw: bool) -> None:
        """Show curves at a time (s).

        Args:
            curves: The curves by their names, at all instants.
            label: Label of the vertical axis.
            at: Time of the vertical line, s.
            redraw: Whether the curves have changed.
        """
        now = clock.monotonic()
        if not redraw and now - self._last < _PAUSE:
            return
        self._last = now
        if redraw:
            self._curves = [curve[self._thin] for curve in curves.values()]
        finite = np.concatenate([curve[np.isfinite(curve)] for curve in self._curves] or [np.zeros(1)])
        low, high = float(finite.min(initial=0.0)), float(finite.max(initial=0.0))
        margin = 0.05 * (high - low) or 1.0
        data = self._with_line(at, low - margin, high + margin)
        if not redraw and self._handle is not None:
            self._handle.data = data
            return
        if self._handle is not None:
            self._handle.remove()
        lines = [*((name, color, 1.5) for name, color in zip(curves, _COLORS, strict=False)), ("now", GRAY, 1.0)]
        series = [
            {"label": name, "stroke": color, "width": width, "points": {"show": False}} for name, color, width in lines
        ]
        font = {"labelSize": 18}
        with self._folder:
            self._handle = self._gui.add_uplot(
                data,
                ({"label": "time (s)"}, *series),
                scales={"x": {"time": False}, "y": {"range": (low - margin, high + margin)}},
                axes=({"label": "time (s)", "size": 34, **font}, {"label": label, "size": 52, **font}),
                legend={"live": False},
                height=230,
                order=1.0,
            )

    def _with_line(self, at: float, low: float, high: float) -> tuple[np.ndarray, ...]:
        """The curves with two additional points at the current time, and the line through these two points."""
        k = int(np.searchsorted(self._time, at))
        time = np.insert(self._time, k, [at, at])
        curves = [np.interp(time, self._time, curve) for curve in self._curves]
        line = np.full(len(time), np.nan)
        line[k : k + 2] = low, high
        return (time, *curves, line)


class CoordinateChart(Chart):
    """Coordinates of a sample; if there are more than fit into a chart, a list selects a group of them.

    Attributes:
        choice: The list.
    """

    def __init__(self, gui: Any, folder: Any, model: Model, instants: Float[np.ndarray, "instants"]):
        super().__init__(gui, folder, instants)
        names, units = coordinate_names(model), coordinate_units(model)
        self._names, size = names, len(_COLORS)
        self._groups = {}
        for unit in dict.fromkeys(units):
            members = [i for i, u in enumerate(units) if u == unit]
            for part in (members[k : k + size] for k in range(0, len(members), size)):
                ends = dict.fromkeys((names[part[0]], names[part[-1]]))
                self._groups[f"{' to '.join(ends)} ({unit})"] = (part, unit)
        with folder:
            self.choice = gui.add_dropdown("show", list(self._groups) or ["none"], order=0.0)

    def show(self, sample: Sample, at: float, *, redraw: bool) -> None:
        """Show a sample at a time (s); `redraw` is true if the curves have changed."""
        if self._groups:
            chosen, unit = self._groups[self.choice.value]
            curves = {self._names[i]: sample.q[:, i] for i in chosen}
            self.draw(curves, {"1": "quaternion"}.get(unit, f"coordinate ({unit})"), at, redraw=redraw)
