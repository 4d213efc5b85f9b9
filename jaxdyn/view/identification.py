"""Figures of identification: predictions and measurements, growth of prediction errors, correlations of estimates."""

from collections.abc import Sequence

import numpy as np

from jaxdyn.view.figure import Figure, draw_bands, panels, with_unit
from jaxdyn.view.skeleton import Values
from jaxdyn.view.style import BLUE, GRAY, ORANGE


def predictions(
    names: Sequence[str],
    time: Values,
    measured: Values,
    predicted: Values,
    *,
    units: Sequence[str],
    half_widths: Values | None = None,
    breaks: Sequence[float] = (),
    title: str = "",
) -> Figure:
    """Measured and predicted curves of each channel, and their difference below them, both with the 95 % band of the predictions.

    Args:
        names: Name of each channel.
        time: Time stamps (T,), s.
        measured: Measured values (T, channels).
        predicted: Predicted values (T, channels).
        units: Unit of each channel.
        half_widths: Half-widths of the 95 % intervals (T, channels); None for no band.
        breaks: Start times of the prediction windows, s.
        title: Title of the figure.
    """
    time, measured, predicted = (np.asarray(x) for x in (time, measured, predicted))
    columns = 2 if len(names) < 7 else 4
    figure, axes = panels(names, title, columns=columns, size=(5.5, 3.1), heights=(2.2, 1.0))
    for k, (above, below) in enumerate(axes):
        if half_widths is not None:
            half, shade = np.asarray(half_widths)[:, k], {"color": BLUE, "alpha": 0.2, "lw": 0}
            above.fill_between(
                time, predicted[:, k] - half, predicted[:, k] + half, label="95 % band of this machine", **shade
            )
            below.fill_between(time, -half, half, **shade)
        above.plot(time, measured[:, k], color=GRAY, lw=2.2, alpha=0.7, label="measured")
        above.plot(time, predicted[:, k], color=BLUE, lw=1.1, label="predicted")
        below.plot(time, predicted[:, k] - measured[:, k], color=ORANGE, lw=0.8)
        for axis in (above, below):
            for instant in breaks:
                axis.axvline(instant, color=GRAY, lw=0.6, ls=":")
        above.set_ylabel(units[k], fontsize=8)
        below.set_ylabel(with_unit("error", units[k]), fontsize=8)
        if k == 0:
            above.legend(frameon=False, fontsize=8)
    return figure


def growing_errors(
    names: Sequence[str], time: Values, errors: Values, *, units: Sequence[str], title: str = ""
) -> Figure:
    """Growth of errors after the start of a prediction: median, middle 50 % and middle 90 % of absolute errors over all windows.

    Args:
        names: Name of each channel.
        time: Time since the start of the prediction (T,), s.
        errors: Errors (windows, T, channels); NaN where nothing was measured.
        units: Unit of each channel.
        title: Title of the figure.
    """
    size = np.abs(np.asarray(errors))
    along = "time since the start of the prediction (s)"
    figure, axes = panels([*map(with_unit, names, units)], title, size=(4.2, 3.0), along=along)
    for k, axis in enumerate(axes[:, 0]):
        sizes = np.maximum(np.where(np.isfinite(size[:, :, k]), size[:, :, k], np.nan), 1e-6)
        draw_bands(axis, time, sizes)
        axis.plot(time, np.nanmedian(sizes, axis=0), color=BLUE, lw=2)
        axis.set_yscale("log")
    figure.supylabel("absolute error")
    return figure


def correlations(names: Sequence[str], correlation: Values) -> Figure:
    """Correlation matrix of estimates, drawn in colors. Dark entries off the diagonal mean that the data hardly distinguish two
    parameters.

    Args:
        names: Name of each parameter.
        correlation: Correlation matrix (parameters, parameters).
    """
    matrix = np.asarray(correlation)
    size = 2.5 + 0.2 * len(names)
    figure = Figure(figsize=(size + 1.5, size), layout="constrained")
    axis = figure.subplots()
    image = axis.imshow(matrix, vmin=-1, vmax=1, cmap="RdBu_r")
    axis.set_xticks(range(len(names)), names, rotation=90, fontsize=6)
    axis.set_yticks(range(len(names)), names, fontsize=6)
    figure.colorbar(image, ax=axis, shrink=0.8)
    figure.suptitle("Correlation of the estimates")
    return figure
