"""Small pictures of objects, for their views in notebooks."""

import functools
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from jaxdyn.constraints.assembly import assemble
from jaxdyn.control.batch import best_of
from jaxdyn.control.solution import Solution
from jaxdyn.dynamics.system import State, System
from jaxdyn.io.runs.loaded import Run
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.components import coordinate_units, velocity_units
from jaxdyn.mechanism.model import Model
from jaxdyn.simulate.trajectory import Trajectory
from jaxdyn.view.figure import Figure
from jaxdyn.view.pictures import draw_mechanism
from jaxdyn.view.skeleton import Mechanism, model_of
from jaxdyn.view.style import GRAY

_HEIGHT = 2.6  # inches
_MOST_POINTS = 500  # of a curve


def thumbnail(shown: Any) -> Figure | None:
    """A small picture of an object, or None if it cannot be drawn, for instance because its values are not known."""
    known = not any(isinstance(leaf, Tracer | jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(shown))
    return _drawn(shown) if known else None


@functools.singledispatch
def _drawn(shown: Any) -> Figure | None:
    return None


@_drawn.register(Model)
@_drawn.register(System)
def _(mechanism: Mechanism) -> Figure | None:
    """A mechanism in the middle of its joint limits, with its loops closed."""
    model = model_of(mechanism)
    if model._batch_shape():
        return None
    q = configuration.random(model, jax.random.key(0), spread=0.0)
    if isinstance(mechanism, System) and mechanism.constraints:
        # Loops close from somewhere that is not straight.
        start = mechanism.at_rest(configuration.random(model, jax.random.key(0), spread=0.5))
        q = assemble(mechanism, start, throw=False).q
    figure = Figure(figsize=(_HEIGHT, _HEIGHT))
    axes: Any = figure.add_axes((0.0, 0.0, 1.0, 1.0), projection="3d", computed_zorder=False)
    draw_mechanism(axes, mechanism, np.asarray(q), fill=0.95)
    axes.set_axis_off()
    return figure


@_drawn.register
def _(trajectory: Trajectory) -> Figure | None:
    """Coordinates and velocities of the first sample."""
    if not isinstance(trajectory.saved, State):
        return None
    time, q, v = (x[0] for x in trajectory._records([0], None))
    topology = trajectory.topology
    coordinates = _labelled("coordinates", coordinate_units(topology))
    velocities = _labelled("velocities", velocity_units(topology))
    return _curves("time (s)", {coordinates: (time, q), velocities: (time, v)})


@_drawn.register
def _(run: Run) -> Figure | None:
    """The first sample of a run that recorded states over time."""
    return _drawn(run.trajectory) if {"time", "q", "v"} <= run.arrays.keys() else None


@_drawn.register
def _(found: Solution) -> Figure | None:
    """States and controls of the plan, the best one of a batch."""
    plan = found.value if not np.ndim(found.cost) else jax.tree.map(lambda x: x[best_of(found)], found.value)
    if np.ndim(plan.controls) != 2:
        return None
    title, states = ("coordinates", plan.states.q) if isinstance(plan.states, State) else ("states", plan.states)
    shown = {title: np.asarray(states), "controls": np.asarray(plan.controls)}
    return _curves("time step", {title: (np.arange(len(values)), values) for title, values in shown.items()})


def _curves(label: str, shown: dict[str, tuple[np.ndarray, np.ndarray]]) -> Figure:
    """Two panels with titles, each with one line for each component of values (x, components) over x."""
    figure = Figure(figsize=(2.2 * _HEIGHT, _HEIGHT), layout="constrained")
    for axis, (title, (x, values)) in zip(figure.subplots(1, 2), shown.items(), strict=True):
        axis.set_xlabel(label, fontsize=8)
        axis.tick_params(labelsize=7, which="both")
        axis.grid(color=GRAY, alpha=0.2)
        thin = np.unique(np.linspace(0, len(x) - 1, min(_MOST_POINTS, len(x))).round().astype(int))
        axis.plot(x[thin], values[thin], lw=1.0)
        axis.set_title(title, fontsize=8)
    return figure


def _labelled(title: str, units: tuple[str, ...]) -> str:
    """The title with the unit that all values have, if they have one."""
    return f"{title} ({units[0]})" if len(set(units)) == 1 and units[0] else title
