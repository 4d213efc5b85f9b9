"""Three-dimensional pictures of a mechanism: sticks, joints colored by their motion, inertia ellipsoids.

Only the object interface of matplotlib is used, so that no windows are opened and no global state is changed.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from mpl_toolkits.mplot3d import proj3d
from mpl_toolkits.mplot3d.art3d import Poly3DCollection

from jaxdyn.dynamics.system import System
from jaxdyn.io.shapes.visuals import Visual, with_fewer_triangles
from jaxdyn.mechanism.model import Model
from jaxdyn.view import contacts, skeleton
from jaxdyn.view.contacts import Ground, Touching
from jaxdyn.view.figure import Figure
from jaxdyn.view.skeleton import Ellipsoids, Mechanism, Placed, Values
from jaxdyn.view.staging import round_length
from jaxdyn.view.style import BLUE, CYAN, GRAY, MOTION_COLORS, RED

_FULL_VIEW = 0.185  # visible width and height of 3-D axes of matplotlib, in projected coordinates
_MOST_TRIANGLES = 8_000
_LIGHT = np.array([0.36, -0.48, 0.8])  # direction of the light, of norm 1
_AXIS_SHARE = 0.13  # length of a joint axis as a fraction of the extent of the picture


class StickFigure:
    """One mechanism in color, or several samples in gray, as a few artists of 3-D axes, which are moved in each frame and not drawn
    again.

    Args:
        axes: 3-D axes.
        model: The mechanism.
        ghost: If true, only thin gray sticks are drawn, without joints.
        axis_length: Length of the joint axes, m; if it is 0, axes are not drawn.
    """

    def __init__(self, axes: Any, model: Model, *, ghost: bool = False, axis_length: float = 0.0):
        width, color, alpha = (1.0, GRAY, 0.45) if ghost else (3.0, BLUE, 1.0)
        style = {"solid_capstyle": "round", "solid_joinstyle": "round", "zorder": 2 if ghost else 3}
        self._sticks = axes.plot([], [], [], color=color, lw=width, alpha=alpha, **style)[0]
        self._joints: list[tuple[Any, list[int]]] = []
        self._axes: list[tuple[Any, np.ndarray, np.ndarray]] = []
        if ghost:
            return
        motions = [skeleton.joint_motion(model, i) for i in range(model.nb)]
        owners = np.array(skeleton.joint_axes(model), dtype=int)
        for motion in sorted(set(motions)):
            color = MOTION_COLORS[motion]
            bodies = [i for i, m in enumerate(motions) if m == motion]
            dots = axes.plot([], [], [], ls="", marker="o", ms=5.5, mec="white", mew=0.6, color=color, zorder=5)[0]
            self._joints.append((dots, bodies))
            shown = np.flatnonzero(np.isin(owners, bodies))
            if axis_length > 0 and len(shown):
                line = axes.plot([], [], [], color=color, lw=1.6, zorder=4)[0]
                self._axes.append((line, shown, owners[shown]))
        self._half = 0.5 * axis_length

    def move(self, placed: Placed, samples: Any, time: int) -> None:
        """Show these samples (an index or a slice) at the record with index `time`."""
        self._sticks.set_data_3d(*_broken(placed.lines[samples, time]))
        for dots, bodies in self._joints:
            dots.set_data_3d(*placed.origins[samples, time][..., bodies, :].reshape(-1, 3).T)
        for line, shown, owners in self._axes:
            center = placed.origins[samples, time][..., owners, :]
            along = self._half * placed.axes[samples, time][..., shown, :]
            line.set_data_3d(*_broken(np.stack([center - along, center + along], axis=-2)))


class ForceLines:
    """Lines along which forces act on one mechanism, as one artist of 3-D axes."""

    def __init__(self, axes: Any):
        self._lines = axes.plot([], [], [], color=CYAN, lw=1.2, zorder=4)[0]

    def move(self, placed: Placed, sample: int, time: int) -> None:
        """Show this sample at the record with index `time`."""
        self._lines.set_data_3d(*_broken(placed.force_lines[sample, time]))


class ShapeFigure:
    """Shapes of the bodies of one mechanism, as one artist of 3-D axes with simple shading.

    Args:
        axes: 3-D axes.
        visuals: Shapes of the bodies; they are simplified, because matplotlib sorts all triangles in each frame.
    """

    def __init__(self, axes: Any, visuals: Sequence[Visual]):
        visuals = with_fewer_triangles(visuals, _MOST_TRIANGLES)
        counts = [len(visual.mesh[1]) for visual in visuals]
        self._bodies = np.repeat([visual.body for visual in visuals], counts)
        self._colors = np.repeat([visual.color for visual in visuals], counts, axis=0)
        self._triangles = np.concatenate([visual.points()[visual.mesh[1]] for visual in visuals])
        self._artist = axes.add_collection3d(Poly3DCollection(self._triangles, zorder=3, lw=0))

    def move(self, placed: Placed, sample: int, time: int) -> None:
        """Show this sample at the record with index `time`."""
        rotations = np.concatenate([placed.rotations[sample, time], np.eye(3)[None]])  # the last one is the ground, -1
        origins = np.concatenate([placed.origins[sample, time], np.zeros((1, 3))])
        turned = np.einsum("tij,tcj->tci", rotations[self._bodies], self._triangles)
        normals = np.cross(turned[:, 1] - turned[:, 0], turned[:, 2] - turned[:, 0])
        length = np.linalg.norm(normals, axis=1)
        light = 0.45 + 0.45 * np.abs(normals @ _LIGHT) / np.where(length > 0, length, 1.0)
        self._artist.set_verts(turned + origins[self._bodies][:, None])
        self._artist.set_facecolor(np.column_stack([self._colors[:, :3] * light[:, None], self._colors[:, 3]]))


class ContactFigure:
    """Contact points and contact forces of one mechanism, as a few artists of 3-D axes.

    Args:
        axes: 3-D axes.
        mechanism: System with contacts.
        size: Longest side of the picture, m.
    """

    def __init__(self, axes: Any, mechanism: Mechanism, size: float):
        self._spheres = contacts.spheres_of(mechanism)
        self._scale = contacts.Arrows.of(mechanism, size)
        dots = {"ls": "", "marker": "o", "mew": 0.0, "zorder": 6}
        self._apart = axes.plot([], [], [], ms=4.5, color=GRAY, **dots)[0]
        self._touching = axes.plot([], [], [], ms=4.5, color=RED, **dots)[0]
        self._arrows = axes.plot([], [], [], color=RED, lw=1.8, zorder=7)[0]
        azimuth, elevation = np.radians([axes.azim, axes.elev])
        self._sight = np.array(
            [np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)]
        )

    @property
    def legend(self) -> str:
        """The scale of the forces."""
        return self._scale.legend

    def show(self, placed: Placed) -> None:
        """Show the centers of the spheres in the first sample at the first record."""
        self._apart.set_data_3d(*contacts.centers_at(self._spheres, placed, 0, 0).T)

    def move(self, touching: Touching, time: int) -> None:
        """Show the contact points and forces at the record with index `time`."""
        positions, seen = touching.positions[time], touching.depths[time] > 0.0
        self._apart.set_data_3d(*positions[~seen].T)
        self._touching.set_data_3d(*positions[seen].T)
        arrows = self._scale.vectors(touching.forces[time])
        shown = np.linalg.norm(arrows, axis=1) > 0.0
        start, along = positions[shown], arrows[shown]
        tip, side = start + along, np.cross(along, self._sight)
        barbs = [np.stack([tip, tip - 0.22 * along + sign * 0.1 * side], axis=1) for sign in (1.0, -1.0)]
        self._arrows.set_data_3d(*_broken(np.concatenate([np.stack([start, tip], axis=1), *barbs])))


def _broken(lines: Float[np.ndarray, "*any 2 3"]) -> Float[np.ndarray, "3 points"]:
    """Join many lines to one, with NaN points between them."""
    gap = np.full((*lines.shape[:-2], 1, 3), np.nan)
    return np.concatenate([lines, gap], axis=-2).reshape(-1, 3).T


def frame_axes(axes: Any, grounds: Sequence[Ground], low: Values, high: Values, *, fill: float = 0.82) -> None:
    """Set limits, labels and equal scales of 3-D axes that show the box between two corners (m), and draw the ground into them.

    Args:
        axes: 3-D axes.
        grounds: The surfaces of the ground.
        low, high: Corners of the box, m.
        fill: Fraction of the width or height of the axes that the box occupies; the rest is for the labels.
    """
    size = np.asarray(high) - np.asarray(low)
    for name, start, end, length in zip("xyz", low, high, size, strict=True):
        getattr(axes, f"set_{name}lim")(start, end)
        getattr(axes, f"set_{name}label")(f"{name} (m)", fontsize=9, labelpad=11 if name == "z" else 8)
        axis = getattr(axes, f"{name}axis")
        axis.set_major_locator(MaxNLocator(max(2, round(6 * length / size.max()))))
        axis.set_pane_color((0.965, 0.97, 0.975, 1.0))
        axis._axinfo["grid"].update(color=(0.85, 0.86, 0.88, 1.0), linewidth=0.7)
    axes.tick_params(labelsize=8, pad=4)
    axes.view_init(elev=18, azim=-60)
    axes.set_box_aspect(size)
    x, y, z = skeleton.corners_of(low, high).T
    across, up, _ = proj3d.proj_transform(x, y, z, axes.get_proj())
    axes.set_box_aspect(size, zoom=fill * _FULL_VIEW / max(np.ptp(across), np.ptp(up)))
    for ground in grounds:
        rows, columns, _ = ground.points.shape
        steps = {"rstride": max(1, rows // 8), "cstride": max(1, columns // 8)}
        x, y, z = np.moveaxis(ground.points, -1, 0)
        axes.plot_surface(x, y, z, color=GRAY, alpha=0.1, lw=0, shade=False, zorder=0)
        axes.plot_wireframe(x, y, z, color=GRAY, alpha=0.35, lw=0.6, zorder=1, **steps)


def scale_bar(axes: Any, low: Values, high: Values) -> None:
    """Draw a vertical bar with a round length at the left edge of 3-D axes, as the scale of a picture without axis lines."""
    length = round_length(0.5 * float(high[2] - low[2]))
    x, y, z = float(low[0]), float(low[1]), float(low[2])
    axes.plot([x, x], [y, y], [z, z + length], color="black", lw=1.5)
    axes.text(x, y, z + length, f"{length:g} m", fontsize=8, ha="left", va="bottom")


def mechanism_picture(mechanism: Mechanism, q: Values, *, time: float = 0.0) -> Figure:
    """A mechanism in one configuration: sticks, joints with their axes, and the inertia ellipsoid of each body, on ground axes.

    Args:
        mechanism: A model, or a system, whose loops, ground and contact points are drawn too.
        q: Coordinates (nq,), rad or m.
        time: Time at which prescribed motions are evaluated, s.
    """
    model = skeleton.model_of(mechanism)
    figure = Figure(figsize=(6.6, 7.0))
    axes: Any = figure.add_axes((0.0, 0.1, 0.96, 0.86), projection="3d", computed_zorder=False)
    draw_mechanism(axes, mechanism, q, time=time)
    handles: list[Any] = [Line2D([], [], color=BLUE, lw=3, label="joint to joint")]
    present = {skeleton.joint_motion(model, i) for i in range(model.nb)}
    handles += [
        Line2D([], [], color=color, marker="o", mec="white", lw=1.6, label=f"joint that {motion}")
        for motion, color in MOTION_COLORS.items()
        if motion in present
    ]
    if np.any(np.asarray(model.mass) > 0):
        handles.append(Patch(color=BLUE, alpha=0.25, lw=0, label="inertia ellipsoid"))
    if contacts.contacts_of(mechanism):
        handles.append(Line2D([], [], color=GRAY, ls="", marker="o", ms=3.5, label="contact"))
    if skeleton.force_paths(mechanism):
        handles.append(Line2D([], [], color=CYAN, lw=1.2, label="line of a force"))
    figure.legend(handles=handles, loc="lower center", ncols=3, frameon=False, fontsize=8.5)
    count = len(mechanism.constraints) if isinstance(mechanism, System) else 0
    size = f"{model.nb} bodies, nv = {model.nv}" + (f", constraints: {count}" if count else "")
    figure.suptitle(f"{model.name}: {size}", fontsize=11, y=0.98)
    return figure


def draw_mechanism(axes: Any, mechanism: Mechanism, q: Values, *, time: float = 0.0, fill: float = 0.82) -> None:
    """Draw sticks, joints, inertia ellipsoids, lines of forces, contact points and the ground into 3-D axes, with limits that show
    the whole mechanism.

    Args:
        axes: 3-D axes.
        mechanism: A model, or a system; the loops of a system are drawn too.
        q: (nq,) coordinates, rad or m.
        time: Time at which prescribed motions are evaluated, s.
        fill: See `frame_axes`.
    """
    placed = skeleton.place(mechanism, np.array([time]), np.asarray(q)[None, None])
    model = skeleton.model_of(mechanism)
    solids = skeleton.inertia_ellipsoids(model)
    grounds, low, high = contacts.with_ground(mechanism, *skeleton.box_around([placed], model))
    frame_axes(axes, grounds, low, high, fill=fill)
    if contacts.contacts_of(mechanism):
        ContactFigure(axes, mechanism, float((high - low).max())).show(placed)
    for surface in _surfaces(placed, solids):
        axes.plot_surface(*np.moveaxis(surface, -1, 0), color=BLUE, alpha=0.13, lw=0, zorder=1)
    StickFigure(axes, model, axis_length=_AXIS_SHARE * float((high - low).max())).move(placed, 0, 0)
    ForceLines(axes).move(placed, 0, 0)


def _surfaces(placed: Placed, solids: Ellipsoids) -> list[np.ndarray]:
    """Points (25, 13, 3) on each ellipsoid at the first record."""
    longitude, latitude = np.meshgrid(np.linspace(0, 2 * np.pi, 25), np.linspace(0, np.pi, 13), indexing="ij")
    sphere = np.stack(
        [np.cos(longitude) * np.sin(latitude), np.sin(longitude) * np.sin(latitude), np.cos(latitude)], axis=-1
    )
    found = []
    for body, center, axes, radii in zip(*solids[:3], skeleton.visible_radii(solids), strict=True):
        on_body = center + (sphere * radii) @ axes.T
        found.append(placed.origins[0, 0, body] + on_body @ placed.rotations[0, 0, body].T)
    return found
