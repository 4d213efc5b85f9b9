"""Figures that notebooks display, independent of pyplot."""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import figure

from jaxdyn.view.style import BLUE, ORANGE


class Figure(figure.Figure):
    """A figure of matplotlib that notebooks display as a picture."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()


def draw_bands(axis: Any, time: Any, values: np.ndarray) -> None:
    """Draw the middle 90 % and the middle 50 % of values (samples, T), of which some may be NaN."""
    for low, high, alpha in ((5, 95, 0.18), (25, 75, 0.32)):
        axis.fill_between(time, *np.nanpercentile(values, (low, high), axis=0), color=BLUE, alpha=alpha, lw=0)


def draw_limits(axis: Any, *limits: Any) -> None:
    """Draw the finite ones of some limits as dashed lines."""
    for limit in filter(np.isfinite, limits):
        axis.axhline(float(limit), color=ORANGE, lw=1.0, ls="--")


def with_unit(name: str, unit: str) -> str:
    """A name with its unit, if it has one; components of quaternions have the unit "1"."""
    return name if unit in ("", "1") else f"{name} ({unit})"


def panels(
    names: Sequence[str],
    title: str,
    *,
    columns: int = 4,
    size: tuple[float, float] = (3.4, 2.6),
    heights: Sequence[float] = (1.0,),
    along: str = "time (s)",
) -> tuple[Figure, np.ndarray]:
    """A figure with one panel for each name, and its axes (names, heights).

    Args:
        names: Titles of the panels.
        title: Title of the figure.
        columns: Largest number of panels in a row.
        size: Width and height of a panel, inches.
        heights: Relative heights of the axes of a panel, from top to bottom.
        along: Label of the horizontal axis, which all panels share.
    """
    count = len(names)
    columns = max(1, min(count, columns))
    rows = max(1, -(-count // columns))
    shown = Figure(figsize=(max(size[0] * columns, 6.5), size[1] * rows + 0.6), layout="constrained")
    grid = shown.subplots(len(heights) * rows, columns, sharex=True, squeeze=False, height_ratios=[*heights] * rows)
    axes = grid.reshape(rows, len(heights), columns).swapaxes(1, 2).reshape(-1, len(heights))
    for axis in axes[count:].flat:
        axis.set_axis_off()
    axes = axes[:count]
    for axis in axes.flat:
        axis.grid(alpha=0.25)
    for k, name in enumerate(names):
        axes[k, 0].set_title(name, fontsize=9, parse_math=False)
        axes[k, -1].tick_params(labelbottom=k + columns >= count)  # also above a place without a panel
    if count == 1:
        axes[0, -1].set_xlabel(along)
    else:
        shown.supxlabel(along)
        for axis in axes.flat:
            axis.tick_params(labelsize=8)
    shown.suptitle(title, parse_math=False)
    return shown, axes
