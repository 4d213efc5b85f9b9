"""A mechanism as nodes of a viser scene that are moved from frame to frame. Needs viser: `pip install "jaxdyn[view]"`."""

from typing import Any

import numpy as np
import viser
from jaxtyping import Float, Int

from jaxdyn.mechanism.model import Model
from jaxdyn.view import skeleton
from jaxdyn.view.skeleton import Placed
from jaxdyn.view.style import BLUE, GRAY, MOTION_COLORS, rgb

Mesh = tuple[Float[np.ndarray, "vertices 3"], Int[np.ndarray, "faces 3"]]

# Sizes as fractions of the longest side of the box around the motion.
_STICK, _GHOST, _JOINT, _AXIS, _AXIS_LENGTH, _FRAME_LENGTH = 0.010, 0.005, 0.017, 0.006, 0.11, 0.09


class Scene:
    """One mechanism in color, and other samples of it in gray.

    Args:
        server: Server to which the nodes are added.
        model: The mechanism.
        placed: Positions of the mechanism in one sample.
        low, high: Corners of the box around the motion, m; they determine the camera, the floor and the thickness of the sticks.
    """

    def __init__(
        self,
        server: viser.ViserServer,
        model: Model,
        placed: Placed,
        low: Float[np.ndarray, "3"],
        high: Float[np.ndarray, "3"],
    ):
        self._scene = scene = server.scene
        self._size = size = float((high - low).max())
        self._stick_count = placed.lines.shape[2]
        self._cylinder, sphere = _cylinder(), _sphere()
        self._solids = solids = skeleton.inertia_ellipsoids(model)
        self._solid_axes = _quaternions_of(solids.axes)
        self._axis_bodies = np.array(skeleton.joint_axes(model), dtype=int)
        colors = np.array([rgb(MOTION_COLORS[skeleton.joint_motion(model, i)]) for i in range(model.nb)], np.uint8)

        up = -np.asarray(model.gravity, float)
        up = up / np.linalg.norm(up) if np.any(up) else np.array([0.0, 0.0, 1.0])
        scene.set_up_direction(tuple(up))
        middle = 0.5 * (low + high)
        floor = middle - up * 0.5 * float(np.abs(up) @ (high - low))
        scene.add_grid(
            "/floor",
            width=2.4 * size,
            height=2.4 * size,
            cell_size=_round_length(size / 5),
            cell_color=(228, 231, 236),
            section_size=5 * _round_length(size / 5),
            section_color=(200, 205, 212),
            shadow_opacity=0.08,
            wxyz=_quaternions_to(up),
            position=tuple(floor),
            plane="xy",
        )
        server.initial_camera.look_at = tuple(middle)
        server.initial_camera.position = tuple(middle + 1.25 * size * _direction_of_view(up))
        server.initial_camera.up = tuple(up)

        def solid(name: str, mesh: Mesh, count: int, scales: Any, color: Any, **more: Any) -> Any:
            at = np.zeros((count, 3)), np.tile([1.0, 0.0, 0.0, 0.0], (count, 1))
            scales = np.broadcast_to(scales, (count, 3))
            options = {"batched_scales": scales, "batched_colors": color, "lod": "off", **more}
            return scene.add_batched_meshes_simple(name, *mesh, at[1], at[0], **options)

        self._solid = solid
        self.sticks = solid("/sticks", self._cylinder, self._stick_count, 1.0, rgb(BLUE))
        self.joints = solid("/joints", sphere, model.nb, _JOINT * size, colors)
        axis_scale = (_AXIS * size, _AXIS * size, _AXIS_LENGTH * size)
        self.axes = solid("/axes", self._cylinder, len(self._axis_bodies), axis_scale, colors[self._axis_bodies])
        radii = skeleton.visible_radii(solids)
        self.ellipsoids = solid("/ellipsoids", sphere, len(radii), radii, rgb(BLUE), opacity=0.22, cast_shadow=False)
        at = np.zeros((model.nb, 3)), np.tile([1.0, 0.0, 0.0, 0.0], (model.nb, 1))
        length = _FRAME_LENGTH * size
        self.frames = scene.add_batched_axes("/frames", at[1], at[0], axes_length=length, axes_radius=0.04 * length)
        self.frames.visible = False
        self._ghosts: Any = None
        self._ghost_count = 0

    def show(self, placed: Placed, ghosts: list[Placed], time: int) -> None:
        """Move the mechanism to the first sample of `placed` at the record `time`, and the gray samples likewise."""
        origins, quaternions = placed.origins[0, time], placed.quaternions[0, time]
        self._move_sticks(self.sticks, placed.lines[0, time], _STICK)
        self.joints.batched_positions = origins.astype(np.float32)
        self.axes.batched_positions = origins[self._axis_bodies].astype(np.float32)
        self.axes.batched_wxyzs = _quaternions_to(placed.axes[0, time]).astype(np.float32)
        on = self._solids.bodies
        centers = np.einsum("nij,nj->ni", placed.rotations[0, time, on], self._solids.centers)
        self.ellipsoids.batched_positions = (origins[on] + centers).astype(np.float32)
        self.ellipsoids.batched_wxyzs = _product(quaternions[on], self._solid_axes).astype(np.float32)
        self.frames.batched_positions = origins.astype(np.float32)
        self.frames.batched_wxyzs = quaternions.astype(np.float32)
        if len(ghosts) != self._ghost_count:
            if self._ghosts is not None:
                self._ghosts.remove()
            self._ghost_count = len(ghosts)
            count = self._stick_count * len(ghosts)
            options = {"opacity": 0.6, "cast_shadow": False}
            self._ghosts = self._solid("/ghosts", self._cylinder, count, 1.0, rgb(GRAY), **options) if ghosts else None
        if ghosts:
            self._move_sticks(self._ghosts, np.concatenate([ghost.lines[0, time] for ghost in ghosts]), _GHOST)

    def _move_sticks(self, handle: Any, lines: Float[np.ndarray, "n 2 3"], share: float) -> None:
        along = lines[:, 1] - lines[:, 0]
        length = np.linalg.norm(along, axis=1, keepdims=True)
        direction = np.divide(along, length, out=np.tile([0.0, 0.0, 1.0], (len(along), 1)), where=length > 0)
        thickness = np.full((len(along), 2), share * self._size)
        handle.batched_positions = lines.mean(axis=1).astype(np.float32)
        handle.batched_wxyzs = _quaternions_to(direction).astype(np.float32)
        handle.batched_scales = np.concatenate([thickness, length], axis=1).astype(np.float32)


def _quaternions_to(direction: Float[np.ndarray, "*n 3"]) -> Float[np.ndarray, "*n 4"]:
    """Rotations that take the z axis to unit vectors, about an axis perpendicular to both."""
    x, y, z = np.moveaxis(direction, -1, 0)
    w = 1.0 + z
    opposite = w < 1e-9  # any half turn about a horizontal axis is a solution
    found = np.stack([np.where(opposite, 0.0, w), np.where(opposite, 1.0, -y), np.where(opposite, 0.0, x), 0.0 * z], -1)
    return found / np.linalg.norm(found, axis=-1, keepdims=True)


def _quaternions_of(rotations: Float[np.ndarray, "n 3 3"]) -> Float[np.ndarray, "n 4"]:
    """Unit quaternions of rotation matrices: the eigenvector of the largest eigenvalue of the matrix K with q'Kq = tr(R' R(q))."""
    r = rotations
    k = np.zeros((len(r), 4, 4))
    k[:, 0, 0] = np.trace(r, axis1=1, axis2=2)
    k[:, 1:, 1:] = r + r.transpose(0, 2, 1) - k[:, 0, 0, None, None] * np.eye(3)
    k[:, 0, 1:] = np.stack([r[:, 2, 1] - r[:, 1, 2], r[:, 0, 2] - r[:, 2, 0], r[:, 1, 0] - r[:, 0, 1]], axis=1)
    k[:, 1:, 0] = k[:, 0, 1:]
    return np.linalg.eigh(k)[1][:, :, -1]


def _product(a: Float[np.ndarray, "n 4"], b: Float[np.ndarray, "n 4"]) -> Float[np.ndarray, "n 4"]:
    """Quaternion products a b."""
    scalar = a[:, :1] * b[:, :1] - np.sum(a[:, 1:] * b[:, 1:], axis=1, keepdims=True)
    vector = a[:, :1] * b[:, 1:] + b[:, :1] * a[:, 1:] + np.cross(a[:, 1:], b[:, 1:])
    return np.concatenate([scalar, vector], axis=1)


def _direction_of_view(up: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3"]:
    """Unit vector from the middle of the scene to the camera: from the front, the side and slightly above, for any direction up."""
    side = np.cross(up, [0.0, 1.0, 0.0] if abs(up[1]) < 0.9 else [0.0, 0.0, 1.0])
    side /= np.linalg.norm(side)
    view = 0.45 * side + 0.8 * np.cross(side, up) + 0.35 * up
    return view / np.linalg.norm(view)


def _round_length(length: float) -> float:
    """The largest length of 1, 2 or 5 times a power of ten that does not exceed the given one."""
    decade = 10.0 ** np.floor(np.log10(length))
    return float(max(step * decade for step in (1, 2, 5) if step * decade <= length))


def _cylinder(sides: int = 16) -> Mesh:
    """Cylinder of radius 1 and length 1 about the z axis, with flat ends."""
    angle = 2 * np.pi * np.arange(sides) / sides
    ring = np.stack([np.cos(angle), np.sin(angle), np.zeros(sides)], axis=1)
    half = np.array([0.0, 0.0, 0.5])
    low, high = ring - half, ring + half
    vertices = np.concatenate([low, high, low, high])  # the ends have separate vertices, for sharp edges
    i = np.arange(sides)
    j = (i + 1) % sides
    walls = [np.stack([i, j, j + sides], 1), np.stack([i, j + sides, i + sides], 1)]
    fan = np.arange(1, sides - 1)
    ends = [np.stack([0 * fan, fan + 1, fan], 1) + 2 * sides, np.stack([0 * fan, fan, fan + 1], 1) + 3 * sides]
    return vertices, np.concatenate(walls + ends)


def _sphere(rings: int = 16, sides: int = 24) -> Mesh:
    """Sphere of radius 1."""
    latitude, longitude = np.meshgrid(
        np.linspace(0, np.pi, rings + 1), 2 * np.pi * np.arange(sides) / sides, indexing="ij"
    )
    x, y = np.sin(latitude) * np.cos(longitude), np.sin(latitude) * np.sin(longitude)
    vertices = np.stack([x, y, np.cos(latitude)], axis=-1).reshape(-1, 3)
    row, column = (index.ravel() for index in np.meshgrid(np.arange(rings), np.arange(sides), indexing="ij"))
    a, b = row * sides + column, row * sides + (column + 1) % sides
    return vertices, np.concatenate([np.stack([a, a + sides, b + sides], 1), np.stack([a, b + sides, b], 1)])
