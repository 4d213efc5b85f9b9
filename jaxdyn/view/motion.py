"""Figures of motion: every coordinate and every velocity over time."""

import numpy as np

from jaxdyn.mechanism import components
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.topology import Topology
from jaxdyn.view.figure import Figure, draw_limits, panels, with_unit
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
    coordinates = zip(components.coordinate_names(mechanism), components.coordinate_units(mechanism), strict=True)
    velocities = zip(components.velocity_names(mechanism), components.velocity_units(mechanism), strict=True)
    names = [with_unit(name, unit) for name, unit in coordinates]
    names += [with_unit(f"velocity of {name}", unit) for name, unit in velocities]
    figure, axes = panels(names, title or mechanism.name)
    values = np.concatenate([q, v], axis=-1)
    for k, axis in enumerate(axes[:, 0]):
        axis.plot(time[1:].T, values[1:, :, k].T, color=GRAY, lw=0.6, alpha=0.6)
        axis.plot(time[0], values[0, :, k], color=BLUE if k < q.shape[-1] else GREEN, lw=1.8)
    if isinstance(mechanism, Model):
        limits = mechanism.limits
        for axis, *bounds in zip(axes[:, 0], np.asarray(limits.lower), np.asarray(limits.upper), strict=False):
            draw_limits(axis, *bounds)
    return figure
