"""Figures that notebooks display, independent of pyplot."""

import io
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


def panels_over_time(count: int) -> tuple[Figure, np.ndarray]:
    """A figure with up to four panels in a row, and its axes (count,)."""
    columns = max(1, min(count, 4))
    rows = max(1, -(-count // columns))
    shown = Figure(figsize=(max(3.4 * columns, 6.5), 2.6 * rows + 0.6), layout="constrained")
    axes = shown.subplots(rows, columns, sharex=True, squeeze=False).ravel()
    for axis in axes[count:]:
        axis.set_axis_off()
    for axis in axes[:count]:
        axis.grid(alpha=0.25)
        axis.tick_params(labelsize=8)
    shown.supxlabel("time (s)")
    return shown, axes
