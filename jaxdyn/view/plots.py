"""Figures of batched motion, with matplotlib's object interface: no window, no global state."""

from typing import Any

import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
from jaxtyping import Array, Float
from matplotlib.figure import Figure

from jaxdyn.dynamics.kinematics import forward_kinematics
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.topology import GROUND

Numbers = Float[Array | np.ndarray, "..."]

_BLUE, _ORANGE, _GRAY = "#1f5fa8", "#d9822b", "#6b7280"
_BANDS = ((5, 95, 0.18), (25, 75, 0.32))
_SHOWN_LANES = 12


def joint_fans(model: Model, time: Numbers, q: Numbers, *, title: str = "") -> Figure:
    """Spread of every coordinate over a batch: median, middle half and middle 90 %, a few single lanes, and the joint limits.

    Args:
        time: (T,) s.
        q: (lanes, T, nq) coordinates, rad or m.
    """
    q = np.asarray(q)
    rows = -(-model.nq // 4)
    figure = Figure(figsize=(13, 2.6 * rows + 0.6), layout="constrained")
    axes = figure.subplots(rows, min(4, model.nq), sharex=True, squeeze=False).ravel()
    for index, axis in enumerate(axes):
        if index >= model.nq:
            axis.set_axis_off()
            continue
        lanes = q[:, :, index]
        for low, high, alpha in _BANDS:
            axis.fill_between(time, *np.percentile(lanes, (low, high), axis=0), color=_BLUE, alpha=alpha, lw=0)
        axis.plot(time, lanes[:_SHOWN_LANES].T, color=_GRAY, lw=0.5, alpha=0.6)
        axis.plot(time, np.median(lanes, axis=0), color=_BLUE, lw=2.0)
        for bound in (model.limits.lower[index], model.limits.upper[index]):
            if np.isfinite(bound):
                axis.axhline(float(bound), color=_ORANGE, lw=1.0, ls="--")
        axis.set_title(_coordinate_name(model, index), fontsize=9)
        axis.grid(alpha=0.25)
    figure.supxlabel("time (s)")
    figure.supylabel("coordinate (rad, m)")
    figure.suptitle(title or f"{model.name}: {len(q)} lanes; median, middle half, middle 90 %; limits dashed")
    return figure


def energy_balance(time: Numbers, energy: Numbers, work: Numbers, *, title: str = "") -> Figure:
    """Energy gained against work put in, mean over a batch, and their difference, which mechanics wants to be zero.

    Args:
        time: (T,) s.
        energy: (lanes, T) kinetic and potential energy, J.
        work: (lanes, T) work done up to each time, J.
    """
    gained = np.asarray(energy) - np.asarray(energy)[:, :1]
    work = np.asarray(work)
    figure = Figure(figsize=(9, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    above.plot(time, gained.mean(axis=0), color=_BLUE, lw=2.5, label="energy gained")
    above.plot(time, work.mean(axis=0), color=_ORANGE, lw=1.5, ls="--", label="work put in")
    above.set_ylabel("mean over lanes (J)")
    above.legend(frameon=False)
    error = gained - work
    for low, high, alpha in _BANDS:
        below.fill_between(time, *np.percentile(error, (low, high), axis=0), color=_BLUE, alpha=alpha, lw=0)
    below.plot(time, np.median(error, axis=0), color=_BLUE, lw=1.5)
    below.set_ylabel("difference (J)")
    below.set_xlabel("time (s)")
    for axis in (above, below):
        axis.grid(alpha=0.25)
    figure.suptitle(title or "Power balance: energy gained = work put in")
    return figure


def stick_figure_strip(model: Model, time: Numbers, q: Numbers, *, frames: int = 6, title: str = "") -> Figure:
    """The mechanism at a few times side by side: the first lane in color, some more as ghosts.

    Args:
        time: (T,) s.
        q: (lanes, T, nq) coordinates, rad or m.
        frames: number of pictures.
    """
    chosen = np.unique(np.linspace(0, len(time) - 1, frames).round().astype(int))
    shown = jnp.asarray(np.asarray(q)[:_SHOWN_LANES, chosen])
    lines = np.asarray(
        jax.jit(jax.vmap(jax.vmap(lambda q: _segments(model, q))))(shown)
    )  # (lanes, frames, segments, 2, 3)
    low, high = lines.min(axis=(0, 1, 2, 3)), lines.max(axis=(0, 1, 2, 3))
    middle, reach = 0.5 * (low + high), max(0.5 * float((high - low).max()), 1e-3)
    figure = Figure(figsize=(2.4 * len(chosen), 3.2))
    for column, index in enumerate(chosen):
        axis: Any = figure.add_axes((column / len(chosen), 0.0, 1 / len(chosen), 0.88), projection="3d")
        for lane in reversed(range(lines.shape[0])):
            style = {"color": _BLUE, "lw": 3.0, "zorder": 3} if lane == 0 else {"color": _GRAY, "lw": 0.9, "alpha": 0.5}
            for start, end in lines[lane, column]:
                axis.plot(*np.stack([start, end]).T, **style, solid_capstyle="round")
        axis.scatter(*lines[0, column, :, 0].T, color=_ORANGE, s=14, depthshade=False, zorder=4)
        for setter, center in zip((axis.set_xlim, axis.set_ylim, axis.set_zlim), middle, strict=True):
            setter(center - reach, center + reach)
        axis.set_box_aspect((1, 1, 1), zoom=1.45)
        axis.view_init(elev=15, azim=-60)
        axis.set_axis_off()
        figure.text((column + 0.5) / len(chosen), 0.86, f"t = {float(time[index]):.2f} s", ha="center", fontsize=9)
    figure.suptitle(title or f"{model.name}: one lane in color, {lines.shape[0] - 1} more behind it")
    return figure


def _segments(model: Model, q: Float[Array, "nq"]) -> Float[Array, "segments 2 3"]:
    """Line segments from each joint to the joints and frames that its body carries, ground axes, m."""
    topology = model.topology
    placed = forward_kinematics(model, q)
    origins = jnp.concatenate([placed.translation, jnp.zeros((1, 3), q.dtype)])  # the last one is the ground, index -1
    joints = [jnp.stack([origins[parent], origins[i]]) for i, parent in enumerate(topology.parents)]
    frames = []
    for i, carrier in enumerate(topology.frame_bodies):
        if carrier != GROUND:
            body = jax.tree.map(lambda x, c=carrier: x[c], placed)
            frames.append(jnp.stack([origins[carrier], body.apply(model.frames.translation[i])]))
    leaves = set(range(model.nb)) - set(topology.parents) - set(topology.frame_bodies)
    for i in sorted(leaves):  # a last body without a frame is drawn to its mass centre
        body = jax.tree.map(lambda x, i=i: x[i], placed)
        frames.append(jnp.stack([origins[i], body.apply(model.com[i])]))
    return jnp.stack(joints + frames)


def _coordinate_name(model: Model, index: int) -> str:
    topology = model.topology
    joint = int(np.searchsorted(topology.q_starts, index, side="right")) - 1
    name = topology.joint_names[joint]
    return name if topology.joint_classes[joint].nq == 1 else f"{name}[{index - topology.q_starts[joint]}]"


def save(figure: Figure, path) -> None:
    """Write a figure as PNG."""
    with mpl.rc_context({"font.size": 9}):
        figure.savefig(path, dpi=110)
