"""Charts of a served replay: the coordinates and the energy of a sample."""

from typing import Any

import numpy as np
from jaxtyping import Float

from jaxdyn.mechanism.components import coordinate_names, coordinate_units
from jaxdyn.mechanism.model import Model
from jaxdyn.view.recorded_samples import Sample
from jaxdyn.view.style import BLUE, GREEN, ORANGE, PURPLE

_COLORS = (BLUE, ORANGE, GREEN, PURPLE, "#b23a48", "#0e7c9b", "#8a6d1d")
_POINTS = 500  # points of a curve


class Chart:
    """Curves over time, which `draw` replaces."""

    def __init__(self, gui: Any, folder: Any, instants: Float[np.ndarray, "instants"]):
        self._gui, self._folder, self._handle, self._time = gui, folder, None, instants
        self._thin = np.linspace(0, len(instants) - 1, min(_POINTS, len(instants))).round().astype(int)

    def draw(self, curves: dict[str, np.ndarray], label: str) -> None:
        """Show curves, given by their names at all instants, with a label of the vertical axis."""
        if self._handle is not None:
            self._handle.remove()
        series = [
            {"label": name, "stroke": color, "width": 1.5, "points": {"show": False}}
            for name, color in zip(curves, _COLORS, strict=False)
        ]
        font = {"labelSize": 18}
        with self._folder:
            self._handle = self._gui.add_uplot(
                tuple(values[self._thin] for values in (self._time, *curves.values())),
                ({"label": "time (s)"}, *series),
                scales={"x": {"time": False}},
                axes=({"label": "time (s)", "size": 34, **font}, {"label": label, "size": 52, **font}),
                legend={"live": False},
                height=230,
                order=1.0,
            )


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

    def show(self, sample: Sample) -> None:
        """Show the selected coordinates of a sample."""
        if self._groups:
            chosen, unit = self._groups[self.choice.value]
            curves = {self._names[i]: sample.q[:, i] for i in chosen}
            self.draw(curves, {"1": "quaternion"}.get(unit, f"coordinate ({unit})"))
