"""The tree of a mechanism as a layered diagram: bodies in boxes, joints on the lines between them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch

from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.view.figure import Figure
from jaxdyn.view.skeleton import joint_kind, joint_motion
from jaxdyn.view.style import BLUE, GRAY, MOTION_COLORS
from jaxdyn.view.tree import children_of

_FONT = 8.5  # points
_CHARACTER = 0.072  # inches, approximate width of a character in this size
_LONGEST = 26  # characters; longer names are shortened
_HEIGHT = 0.4  # inches, height of a box
_MARGIN = 0.25  # inches


def tree_diagram(model: Model) -> Figure:
    """Draw the tree of bodies of a mechanism. Each box is a body with its mass; each line is a joint with its name and kind,
    colored by its motion.

    Layers are arranged from left to right, or from top to bottom if this results in a smaller picture (for example for a chain).
    """
    bodies = [
        "ground",
        *(f"{_cut(n)}\n{float(m):.3g} kg" for n, m in zip(model.topology.body_names, model.mass, strict=True)),
    ]
    joints = [f"{_cut(name)}\n{joint_kind(model, i)}" for i, name in enumerate(model.topology.joint_names)]
    motions = [joint_motion(model, i) for i in range(model.nb)]
    title = f"{model.name}: tree of {model.nb} bodies"
    box, label = _width(bodies) + 0.16, _width(joints) + 0.1
    x, y, to_the_right = _positions(model, box, label)

    present = [motion for motion in MOTION_COLORS if motion in motions]
    needed = max(1.1 * _CHARACTER * len(title) + 0.5, sum(_CHARACTER * len(motion) + 1.3 for motion in present))
    right = max(x.max() + 0.5 * box + (0.0 if to_the_right else label) + _MARGIN, needed)
    bottom, top = y.min() - 0.5 * _HEIGHT - 0.5, y.max() + 0.5 * _HEIGHT + 0.55
    figure = Figure(figsize=(right, top - bottom))
    axes: Any = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, right)
    axes.set_ylim(bottom, top)  # one unit is one inch, so that text fits its box in trees of any size
    axes.set_axis_off()

    for body, parent in enumerate(model.topology.parents):
        a, b, color = parent + 1, body + 1, MOTION_COLORS[motions[body]]
        style = {"color": color, "fontsize": _FONT}
        if to_the_right:
            bend = x[a] + 0.5 * box + 0.12
            axes.plot([x[a], bend, bend], [y[a], y[a], y[b]], color=GRAY, lw=1.0, zorder=1)
            axes.plot([bend, x[b]], [y[b], y[b]], color=color, lw=1.8, zorder=1)
            name, kind = joints[body].split("\n")
            middle = 0.5 * (bend + x[b] - 0.5 * box)
            axes.text(middle, y[b] + 0.03, name, va="bottom", ha="center", **style)
            axes.text(middle, y[b] - 0.04, kind, va="top", ha="center", **style)
        else:
            bend = y[a] - 0.5 * _HEIGHT - 0.1
            axes.plot([x[a], x[a], x[b]], [y[a], bend, bend], color=GRAY, lw=1.0, zorder=1)
            axes.plot([x[b], x[b]], [bend, y[b]], color=color, lw=1.8, zorder=1)
            axes.text(x[b] + 0.08, 0.5 * (bend + y[b] + 0.5 * _HEIGHT), joints[body], va="center", **style)
    for i, text in enumerate(bodies):
        edge, face = (GRAY, "#e5e7eb") if i == 0 else (BLUE, "#eef4fb")
        corner = x[i] - 0.5 * box, y[i] - 0.5 * _HEIGHT
        rounded = {"boxstyle": "round,pad=0,rounding_size=0.06", "fc": face, "ec": edge, "lw": 1.1, "zorder": 2}
        axes.add_patch(FancyBboxPatch(corner, box, _HEIGHT, **rounded))
        axes.text(x[i], y[i], text, ha="center", va="center", fontsize=_FONT, zorder=3)
    handles = [Line2D([], [], color=MOTION_COLORS[motion], lw=1.8, label=f"joint that {motion}") for motion in present]
    axes.legend(handles=handles, loc="lower left", ncols=len(handles), frameon=False, fontsize=_FONT)
    axes.text(_MARGIN, top - 0.12, title, va="top", fontsize=11)
    return figure


def _positions(model: Model, box: float, label: float) -> tuple[np.ndarray, np.ndarray, bool]:
    """Centers of the boxes of the ground and of every body (inches), and whether layers are arranged from left to right.

    Args:
        model: The mechanism.
        box, label: Widths of the boxes and of the labels of joints, inches.
    """
    layers, slots = _layout(model)
    wide = (box + label + 0.3) * layers.max(), 1.4 * _HEIGHT * slots.max()
    tall = (box + label) * slots.max(), 2.3 * _HEIGHT * layers.max()
    start = _MARGIN + 0.5 * box
    if max(wide) <= max(tall):
        return start + (box + label + 0.3) * layers, -1.4 * _HEIGHT * slots, True
    return start + (box + label) * slots, -2.3 * _HEIGHT * layers, False


def _layout(model: Model) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """Layer and position within it of the ground and every body: leaves are adjacent, parents are centered above their children."""
    children, parents = children_of(model), model.topology.parents
    layers, slots = np.zeros(model.nb + 1), np.zeros(model.nb + 1)
    for body, parent in enumerate(parents):
        layers[body + 1] = layers[parent + 1] + 1
    order, waiting = [], [GROUND]
    while waiting:
        order.append(waiting.pop())
        waiting += reversed(children[order[-1]])
    leaves = [body for body in order if not children[body]]
    for place, body in enumerate(leaves):
        slots[body + 1] = place
    for body in reversed(order):
        if children[body]:
            slots[body + 1] = 0.5 * (slots[children[body][0] + 1] + slots[children[body][-1] + 1])
    return layers, slots


def _width(texts: Sequence[str]) -> float:
    return _CHARACTER * max(len(line) for text in texts for line in text.splitlines())


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"
