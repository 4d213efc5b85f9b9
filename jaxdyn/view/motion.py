"""Figures of motion: every coordinate and every velocity over time."""

from collections.abc import Sequence

import numpy as np

from jaxdyn.mechanism import components
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.topology import Topology
from jaxdyn.view.figure import Figure, draw_limits, panels_over_time
from jaxdyn.view.skeleton import Values
from jaxdyn.view.style import BLUE, GRAY, GREEN


def motion_plot(mechanism: Model | Topology, time: Values, q: Values, v: Values, *, title: str = "") -> Figure:
    """Coordinates and velocities over time, one panel each: the first sample in color, the other samples in gray.

    Args:
        mechanism: A model, whose joint limits are drawn as dashed lines, or the topology of a model.
        time: Times (T,) or (samples, T), s.
        q: Coordinates (samples, T, nq), rad or m.
        v: Velocities (samples, T, nv), rad/s or m/s.
        title: Title of the figure.
    """
    time, q, v = np.asarray(time), np.asarray(q), np.asarray(v)
    time = np.broadcast_to(time, q.shape[:2])
    coordinates = components.coordinate_names(mechanism), components.coordinate_units(mechanism)
    velocities = [f"velocity of {name}" for name in components.velocity_names(mechanism)]
    count = q.shape[-1]
    figure, axes = panels_over_time(count + v.shape[-1])
    _draw(axes[:count], *coordinates, time, q, BLUE)
    _draw(axes[count:], velocities, components.velocity_units(mechanism), time, v, GREEN)
    if isinstance(mechanism, Model):
        limits = mechanism.limits
        for axis, *bounds in zip(axes, np.asarray(limits.lower), np.asarray(limits.upper), strict=False):
            draw_limits(axis, *bounds)
    figure.suptitle(title or mechanism.name, parse_math=False)
    return figure


def _draw(
    axes: np.ndarray, names: Sequence[str], units: Sequence[str], time: np.ndarray, values: np.ndarray, color: str
) -> None:
    """Draw one component of the values in each panel."""
    for k, (axis, name, unit) in enumerate(zip(axes, names, units, strict=False)):
        axis.plot(time[1:].T, values[1:, :, k].T, color=GRAY, lw=0.6, alpha=0.6)
        axis.plot(time[0], values[0, :, k], color=color, lw=1.8)
        axis.set_title(name if unit in ("", "1") else f"{name} ({unit})", fontsize=9, parse_math=False)
