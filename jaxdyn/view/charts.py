"""Charts of a served replay: the coordinates and the energy of a sample, with a line at the current time."""

import time as clock
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxdyn.mechanism.components import coordinate_names, coordinate_units
from jaxdyn.mechanism.model import Model
from jaxdyn.view.recording import Sample
from jaxdyn.view.style import BLUE, GRAY, GREEN, ORANGE, PURPLE

_COLORS = (BLUE, ORANGE, GREEN, PURPLE, "#b23a48", "#0e7c9b", "#8a6d1d")
_POINTS = 250  # points of a curve; the browser receives all of them again whenever the line at the current time moves
_PAUSE = 0.1  # s, shortest time between two moves of the line at the current time


class _Chart:
    """Curves over time with a vertical line. Curves are drawn again when they change, the line a few times per second."""

    def __init__(self, gui: Any, folder: Any, instants: Float[np.ndarray, "instants"]):
        self._gui, self._folder, self._handle, self._last = gui, folder, None, 0.0
        thin = np.linspace(0, len(instants) - 1, min(_POINTS, len(instants))).round().astype(int)
        self._thin, self._time = thin, instants[thin]
        self._curves: list[np.ndarray] = []

    def _draw(self, curves: dict[str, np.ndarray], unit: str, at: float, *, redraw: bool) -> None:
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
        series: list[Any] = [{"label": "time (s)"}]
        series += [
            {"label": name, "stroke": color, "width": 1.5, "points": {"show": False}}
            for name, color in zip(curves, _COLORS, strict=False)
        ]
        series.append({"label": "now", "stroke": GRAY, "width": 1.0, "points": {"show": False}})
        with self._folder:
            self._handle = self._gui.add_uplot(
                data,
                tuple(series),
                scales={"x": {"time": False}, "y": {"range": (low - margin, high + margin)}},
                axes=({"label": "time (s)", "labelSize": 18, "size": 34}, {"label": unit, "labelSize": 18, "size": 52}),
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


class CoordinateChart(_Chart):
    """Coordinates of a sample; if there are more than fit into a chart, a list selects a group of them."""

    def __init__(self, gui: Any, folder: Any, model: Model, instants: Float[np.ndarray, "instants"]):
        super().__init__(gui, folder, instants)
        names, units = coordinate_names(model), coordinate_units(model)
        self._names, size = names, len(_COLORS)
        self._groups = {}
        for unit in dict.fromkeys(units):
            members = [i for i, u in enumerate(units) if u == unit]
            for part in (members[k : k + size] for k in range(0, len(members), size)):
                first, last = names[part[0]], names[part[-1]]
                self._groups[_span(first, last, unit)] = (part, unit)
        with folder:
            self._choice = gui.add_dropdown("show", list(self._groups) or ["none"], order=0.0)

    def on_choice(self, act: Callable[[], None]) -> None:
        """Register a function that is called when other coordinates are selected."""
        self._choice.on_update(lambda _: act())

    def show(self, sample: Sample, at: float, *, redraw: bool) -> None:
        """Show a sample at a time (s); `redraw` is true if the curves have changed."""
        if self._groups:
            chosen, unit = self._groups[self._choice.value]
            curves = {self._names[i]: sample.q[:, i] for i in chosen}
            self._draw(curves, {"1": "quaternion"}.get(unit, f"coordinate ({unit})"), at, redraw=redraw)


class EnergyChart(_Chart):
    """Energy that a sample has gained since the start and, if known, the work done on it."""

    def show(self, sample: Sample, at: float, *, redraw: bool) -> None:
        """Show a sample at a time (s); `redraw` is true if the curves have changed."""
        curves = {
            "energy gained": None if sample.energy is None else sample.energy - sample.energy[0],
            "work done": sample.work,
        }
        self._draw(
            {name: curve for name, curve in curves.items() if curve is not None}, "energy (J)", at, redraw=redraw
        )


def _span(first: str, last: str, unit: str) -> str:
    return f"{first} ({unit})" if first == last else f"{first} to {last} ({unit})"
