"""Figures of batched motion. The object interface of matplotlib is used, without windows and global state."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.figure
import numpy as np

from jaxdyn.io.errors import ConfigError
from jaxdyn.io.files import write_files, writing
from jaxdyn.mechanism.components import coordinate_names, coordinate_units
from jaxdyn.mechanism.model import Model
from jaxdyn.view import contacts
from jaxdyn.view.figure import Figure, draw_bands, draw_limits, panels, with_unit
from jaxdyn.view.pictures import ForceLines, StickFigure, frame_axes, scale_bar
from jaxdyn.view.skeleton import Mechanism, Values, box_around, model_of, place
from jaxdyn.view.style import BLUE, GRAY, GREEN, ORANGE, PURPLE, RED

_SHOWN_SAMPLES = 12
_SHOWN_CONTACTS = 12
_CONTACT_COLORS = (BLUE, ORANGE, GREEN, PURPLE, RED, GRAY)


def joint_fans(model: Model, time: Values, q: Values) -> Figure:
    """Distribution of every coordinate over a batch: median, middle 50 %, middle 90 %, some single samples, and joint limits.

    Args:
        model: The mechanism.
        time: Times (T,), s.
        q: Coordinates (samples, T, nq), rad or m.
    """
    time, q = np.asarray(time), np.asarray(q)
    columns, size = (4, (3.25, 2.6)) if model.nq <= 12 else (6 if model.nq <= 30 else 8, (2.4, 1.75))
    names = map(with_unit, coordinate_names(model), coordinate_units(model))
    title = f"{model.name}: {len(q)} samples; median, middle 50 %, middle 90 %; limits dashed"
    figure, axes = panels([*names], title, columns=columns, size=size)
    for index, axis in enumerate(axes[:, 0]):
        samples = q[:, :, index]
        draw_bands(axis, time, samples)
        axis.plot(time, samples[:_SHOWN_SAMPLES].T, color=GRAY, lw=0.5, alpha=0.6)
        axis.plot(time, np.median(samples, axis=0), color=BLUE, lw=2.0)
        draw_limits(axis, model.limits.lower[index], model.limits.upper[index])
    figure.supylabel("coordinate")
    return figure


def energy_balance(time: Values, energy: Values, work: Values, *, title: str = "") -> Figure:
    """Energy gained and work done, averaged over a batch, and their difference, which should be zero.

    Args:
        time: Times (T,), s.
        energy: Kinetic and potential energy (samples, T), J.
        work: Work done up to each time (samples, T), J.
        title: Title of the figure.
    """
    gained = np.asarray(energy) - np.asarray(energy)[:, :1]
    work = np.asarray(work)
    title = title or "Power balance: energy gained = work done"
    figure, ((above, below),) = panels([""], title, size=(9, 5.4), heights=(2, 1))
    above.plot(time, gained.mean(axis=0), color=BLUE, lw=2.5, label="energy gained")
    above.plot(time, work.mean(axis=0), color=ORANGE, lw=1.5, ls="--", label="work done")
    above.set_ylabel("mean over samples (J)")
    above.legend(frameon=False)
    error = gained - work
    draw_bands(below, time, error)
    below.plot(time, np.median(error, axis=0), color=BLUE, lw=1.5)
    below.set_ylabel("difference (J)")
    return figure


def normal_forces(names: Sequence[str], time: Values, forces: Values) -> Figure:
    """Normal forces of the contacts of one sample over time; of many contacts, those with the largest forces.

    Args:
        names: Names of the contacts.
        time: Times (T,), s.
        forces: Normal forces (T, contacts), N.
    """
    forces = np.asarray(forces)
    shown = np.sort(np.argsort(-forces.max(axis=0), kind="stable")[:_SHOWN_CONTACTS])
    left = len(names) - len(shown)
    rest = f"; {left} with smaller forces are not shown" if left else ""
    title = f"Normal forces of the contacts of one sample{rest}"
    figure, ((axis,),) = panels([""], title, size=(9, 4.4))
    for k, contact in enumerate(shown):
        line, color = "--" if k >= len(_CONTACT_COLORS) else "-", _CONTACT_COLORS[k % len(_CONTACT_COLORS)]
        axis.plot(np.asarray(time), forces[:, contact], line, color=color, lw=1.4, label=names[contact])
    axis.set_ylabel("normal force (N)")
    figure.legend(frameon=False, fontsize=8, loc="outside right upper")
    return figure


def stick_figure_strip(mechanism: Mechanism, time: Values, q: Values, *, frames: int = 6, title: str = "") -> Figure:
    """The mechanism at several times side by side: the first sample in color, some other samples in gray.

    Args:
        mechanism: A model, or a system, whose loops are drawn too.
        time: Times (T,), s.
        q: Coordinates (samples, T, nq), rad or m.
        frames: Number of pictures.
        title: Title of the figure.
    """
    time = np.asarray(time)
    chosen = np.unique(np.linspace(0, len(time) - 1, frames).round().astype(int))
    model = model_of(mechanism)
    placed = place(mechanism, time[chosen], np.asarray(q)[:_SHOWN_SAMPLES, chosen])
    grounds, low, high = contacts.with_ground(mechanism, *box_around([placed], None))
    figure, width = Figure(figsize=(2.4 * len(chosen), 3.2)), 1 / len(chosen)
    for column, index in enumerate(chosen):
        rectangle = column * width, 0.0, width, 0.88
        axis: Any = figure.add_axes(rectangle, projection="3d", computed_zorder=False)
        frame_axes(axis, grounds, low, high, fill=0.88)
        StickFigure(axis, model, ghost=True).move(placed, slice(1, None), column)
        StickFigure(axis, model).move(placed, 0, column)
        ForceLines(axis).move(placed, 0, column)
        axis.set_axis_off()
        if column == 0:
            scale_bar(axis, low, high)
        figure.text((column + 0.5) * width, 0.86, f"t = {float(time[index]):.2f} s", ha="center", fontsize=9)
    shown = placed.lines.shape[0]
    figure.suptitle(title or f"{model.name}: one sample in color, {shown - 1} more in gray")
    return figure


def save(figure: matplotlib.figure.Figure, path: Path | str) -> None:
    """Write a figure as PNG, or in another format of matplotlib that the suffix of the file name selects.

    Args:
        figure: Figure to write.
        path: Path of the file.

    Raises:
        ConfigError: The format is not supported, or the file cannot be written.
    """
    with writing(path), mpl.rc_context({"font.size": 9}):
        try:
            write_files({Path(path): lambda file: figure.savefig(file, dpi=110, format=Path(path).suffix[1:] or "png")})
        except ValueError:
            raise ConfigError(f"{path}: this format is not supported for pictures; use .png, .pdf or .svg") from None
