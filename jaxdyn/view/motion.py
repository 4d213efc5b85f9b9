"""Figures of motion: every coordinate and every velocity over time."""

from typing import NamedTuple

import numpy as np

from jaxdyn.mechanism import components
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.topology import GROUND, Topology
from jaxdyn.view.figure import Figure, draw_limits, panels, with_unit
from jaxdyn.view.skeleton import Values
from jaxdyn.view.style import BLUE, GRAY, GREEN

_MOST_PANELS = 12  # coordinates; a figure of more has one panel for each limb


class _Panel(NamedTuple):
    title: str
    curves: tuple[int, ...]  # components of coordinates, followed by velocities
    labels: tuple[str, ...]
    color: str


def motion_plot(mechanism: Model | Topology, time: Values, q: Values, v: Values, *, title: str = "") -> Figure:
    """Coordinates and velocities over time: the first sample in color, the other samples in gray.

    There is a panel for each coordinate and velocity. If there are more than 12 coordinates, there is one for each limb, which is a
    chain of bodies without branches.

    Args:
        mechanism: A model, whose joint limits are dashed lines in panels of one coordinate, or the topology of a model.
        time: Times (T,) or (samples, T), s.
        q: Coordinates (samples, T, nq), rad or m.
        v: Velocities (samples, T, nv), rad/s or m/s.
        title: Title of the figure.
    """
    time, q, v = np.asarray(time), np.asarray(q), np.asarray(v)
    time = np.broadcast_to(time, q.shape[:2])
    shown = _panels(mechanism)
    figure, axes = panels([panel.title for panel in shown], title or mechanism.name)
    values = np.concatenate([q, v], axis=-1)
    for panel, axis in zip(shown, axes[:, 0], strict=True):
        several = len(panel.curves) > 1
        for k, label in zip(panel.curves, panel.labels, strict=True):
            axis.plot(time[1:].T, values[1:, :, k].T, color=GRAY, lw=0.6, alpha=0.6)
            axis.plot(time[0], values[0, :, k], color=None if several else panel.color, lw=1.8, label=label)
        if several:
            axis.legend(frameon=False, fontsize=7)
        elif isinstance(mechanism, Model) and panel.curves[0] < q.shape[-1]:
            draw_limits(
                axis, *(np.asarray(x)[panel.curves[0]] for x in (mechanism.limits.lower, mechanism.limits.upper))
            )
    return figure


def _panels(mechanism: Model | Topology) -> list[_Panel]:
    """The panels of a figure."""
    topology = components.topology_of(mechanism)
    limb: list[int] = []
    for body, parent in enumerate(topology.parents):
        goes_on = parent != GROUND and topology.parents.count(parent) == 1
        same = goes_on and topology.joint_classes[parent].nv == topology.joint_classes[body].nv == 1
        limb.append(limb[parent] if same else body)
    coordinates = topology.body_of_coordinate, components.coordinate_names, components.coordinate_units
    velocities = topology.body_of_column, components.velocity_names, components.velocity_units
    found: list[_Panel] = []
    for before, color, first, (bodies, names_of, units_of) in (
        ("", BLUE, 0, coordinates),
        ("velocity of ", GREEN, topology.nq, velocities),
    ):
        names, units, together = names_of(mechanism), units_of(mechanism), {}
        for k, (body, unit) in enumerate(zip(bodies.tolist(), units, strict=True)):
            together.setdefault((limb[body], unit) if topology.nq > _MOST_PANELS else k, []).append(k)
        for own in together.values():
            labels = tuple(names[k] for k in own)
            name = labels[0] if len(own) == 1 else f"{labels[0]} to {labels[-1]}"
            found.append(_Panel(with_unit(before + name, units[own[0]]), tuple(first + k for k in own), labels, color))
    return found
