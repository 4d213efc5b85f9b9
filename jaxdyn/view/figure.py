"""Figures that notebooks display, independent of pyplot."""

import io

import numpy as np
from matplotlib import figure


class Figure(figure.Figure):
    """A figure of matplotlib that notebooks display as a picture."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()


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
