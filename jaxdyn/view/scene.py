"""A mechanism as nodes of a viser scene that are moved from frame to frame. Needs viser: `pip install "jaxdyn[view]"`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import viser
from jaxtyping import Float

from jaxdyn.io.shapes.solids import Mesh, cylinder, faces_of, sphere
from jaxdyn.io.shapes.visuals import Visual
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.view import contacts, skeleton, staging
from jaxdyn.view.contacts import Ground, Touching
from jaxdyn.view.skeleton import Mechanism, Placed
from jaxdyn.view.style import BLUE, GRAY, MOTION_COLORS, RED, rgb

# Sizes as fractions of the longest side of the box around the motion.
_STICK, _GHOST, _JOINT, _AXIS, _AXIS_LENGTH, _FRAME_LENGTH = 0.010, 0.005, 0.017, 0.006, 0.11, 0.09
_CONTACT, _ARROW_WIDTH = 0.009, 0.005
_FLOOR = ((228, 231, 236), (200, 205, 212))  # cells, and every fifth line


class Scene:
    """One mechanism in color, and other samples of it in gray.

    Args:
        server: Server to which the nodes are added.
        mechanism: The mechanism; the ground and the contacts of a system are drawn too.
        low, high: Corners of the box around the motion, m; they determine the camera, the floor and the thickness of the sticks.
        visuals: Shapes of the bodies. Sticks, joint axes and inertia ellipsoids are hidden at first if every body with mass has a
            shape.
    """

    def __init__(
        self,
        server: viser.ViserServer,
        mechanism: Mechanism,
        low: Float[np.ndarray, "3"],
        high: Float[np.ndarray, "3"],
        visuals: Sequence[Visual] = (),
    ):
        self._scene = scene = server.scene
        model = skeleton.model_of(mechanism)
        grounds, low, high = contacts.with_ground(mechanism, low, high)
        self._size = size = float((high - low).max())
        self._stick_count = len(skeleton.sticks(mechanism).bodies)
        self._cylinder, ball = cylinder(), sphere()
        self._solids = solids = skeleton.inertia_ellipsoids(model)
        self._solid_axes = staging.quaternions_of(solids.axes)
        self._axis_bodies = np.array(skeleton.joint_axes(model), dtype=int)
        colors = np.array([rgb(MOTION_COLORS[skeleton.joint_motion(model, i)]) for i in range(model.nb)], np.uint8)

        up = staging.upward(model)
        scene.set_up_direction(tuple(up))
        middle = 0.5 * (low + high)
        self._add_floors(grounds, up, low, high)
        server.initial_camera.look_at = tuple(middle)
        server.initial_camera.position = tuple(middle + 1.25 * size * staging.direction_of_view(up))
        server.initial_camera.up = tuple(up)

        self.skeleton = scene.add_frame("/skeleton", show_axes=False)
        self.sticks = self._add("/skeleton/sticks", self._cylinder, self._stick_count, 1.0, rgb(BLUE))
        self.joints = self._add("/skeleton/joints", ball, model.nb, _JOINT * size, colors)
        axis_scale = (_AXIS * size, _AXIS * size, _AXIS_LENGTH * size)
        self.axes = self._add("/axes", self._cylinder, len(self._axis_bodies), axis_scale, colors[self._axis_bodies])
        radii = skeleton.visible_radii(solids)
        self.ellipsoids = self._add("/ellipsoids", ball, len(radii), radii, rgb(BLUE), opacity=0.22, cast_shadow=False)
        length = _FRAME_LENGTH * size
        self.frames = scene.add_batched_axes(
            "/frames", *_at_origin(model.nb), axes_length=length, axes_radius=0.04 * length, visible=False
        )
        self._add_contacts(mechanism)
        self._add_visuals(visuals)
        if skeleton.is_covered(model, visuals):
            for part in (self.skeleton, self.axes, self.ellipsoids):
                part.visible = False
        self._ghosts: Any = None

    def _add(self, name: str, mesh: Mesh, count: int, scales: Any, color: Any, **options: Any) -> Any:
        """Add copies of a mesh, of which `show` sets the positions."""
        scales = np.broadcast_to(scales, (count, 3))
        options |= {"batched_scales": scales, "batched_colors": color, "lod": "off"}
        return self._scene.add_batched_meshes_simple(name, *mesh, *_at_origin(count), **options)

    def _add_floors(self, grounds: list[Ground], up: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
        """Add the surfaces of the ground, or without contacts with the ground a floor under the motion."""
        scene, size = self._scene, self._size
        planes = [(ground.points.mean(axis=(0, 1)), ground.normal) for ground in grounds if ground.normal is not None]
        self.floors = [
            scene.add_grid(
                f"/floor{k or ''}",
                width=2.4 * size,
                height=2.4 * size,
                cell_size=staging.round_length(size / 5),
                section_size=5 * staging.round_length(size / 5),
                shadow_opacity=0.08,
                wxyz=staging.quaternions_to(normal),
                position=tuple(middle),
                plane="xy",
                cell_color=_FLOOR[0],
                section_color=_FLOOR[1],
            )
            for k, (middle, normal) in enumerate(planes if grounds else [(staging.floor_under(up, low, high), up)])
        ]
        for k, ground in enumerate(ground for ground in grounds if ground.normal is None):
            points = ground.points.reshape(-1, 3).astype(np.float32)
            faces = faces_of(*ground.points.shape[:2]).astype(np.uint32)
            scene.add_mesh_simple(f"/ground{k or ''}", points, faces, color=_FLOOR[0], side="double")
            lines, color = contacts.lines_of(ground).astype(np.float32), _FLOOR[1]
            scene.add_line_segments(f"/ground{k or ''}/lines", lines, color, thickness=0.002 * size)

    def _add_contacts(self, mechanism: Mechanism) -> None:
        """Add the spheres of the contacts and the arrows of their forces."""
        self._spheres = spheres = contacts.spheres_of(mechanism)
        self._arrow_scale = contacts.Arrows.of(mechanism, self._size)
        self.contacts: Any = None
        self.forces: Any = None
        self._seen = np.zeros(len(spheres.radii), bool)
        if len(spheres.radii):
            radii = np.maximum(spheres.radii, _CONTACT * self._size)[:, None]
            options = {"opacity": 0.55, "cast_shadow": False}
            self.contacts = self._add("/contacts", sphere(), len(radii), radii, rgb(GRAY), **options)
            count = int(spheres.contacts.max()) + 1
            self.forces = self._add("/contact forces", contacts.arrow(), count, 1e-6, rgb(RED), cast_shadow=False)

    @property
    def legend(self) -> str:
        """The scale of the contact forces; empty for a mechanism without contacts."""
        return self._arrow_scale.legend if self.contacts is not None else ""

    def _move_contacts(self, placed: Placed, time: int, touching: Touching | None) -> None:
        if self.contacts is None:
            return
        _move(self.contacts, contacts.centers_at(self._spheres, placed, 0, time))
        if touching is None or self.forces is None:
            return
        seen = touching.depths[time, self._spheres.contacts] > 0.0
        if np.any(seen != self._seen):
            self.contacts.batched_colors = np.where(seen[:, None], rgb(RED), rgb(GRAY)).astype(np.uint8)
            self._seen = seen
        length, direction = _polar(self._arrow_scale.vectors(touching.forces[time]))
        width = np.where(length > 0.0, _ARROW_WIDTH * self._size, 0.0)
        _move(
            self.forces, touching.positions[time], staging.quaternions_to(direction), np.hstack([width, width, length])
        )

    def _add_visuals(self, visuals: Sequence[Visual]) -> None:
        """Add the shapes of each body below a node that moves with it."""
        scene = self._scene
        self.visuals = scene.add_frame("/visuals", show_axes=False) if visuals else None
        bodies = sorted({visual.body for visual in visuals})
        self._carriers = {body: scene.add_frame(f"/visuals/{body}", show_axes=False) for body in bodies}
        for k, visual in enumerate(visuals):
            points, faces = visual.mesh
            *color, opacity = visual.color
            scene.add_mesh_simple(
                f"/visuals/{visual.body}/{k}",
                (points * visual.scale).astype(np.float32),
                faces.astype(np.uint32),
                color=np.round(255 * np.array(color)).astype(np.uint8),
                opacity=opacity if opacity < 1.0 else None,
                side="double",
                position=visual.position,
                wxyz=visual.quaternion,
            )

    def moving_parts(self, ghosts: int) -> int:
        """Number of parts that move from frame to frame, with this number of gray samples."""
        bodies = 3 * len(self.joints.batched_positions) + len(self._axis_bodies)
        arrows = 0 if self.forces is None else len(self.forces.batched_positions)
        return self._stick_count * (1 + ghosts) + bodies + len(self._spheres.radii) + arrows

    def show(self, placed: Placed, ghosts: list[Placed], time: int, touching: Touching | None = None) -> None:
        """Move the mechanism to the first sample of `placed`, and the gray samples to `ghosts`, at the record with index `time`;
        `touching` has the contacts of the first sample. All calls have the same number of ghosts.
        """
        self._move_contacts(placed, time, touching)
        origins, quaternions = placed.origins[0, time], placed.quaternions[0, time]
        self._move_sticks(self.sticks, placed.lines[0, time], _STICK)
        _move(self.joints, origins)
        _move(self.axes, origins[self._axis_bodies], staging.quaternions_to(placed.axes[0, time]))
        on = self._solids.bodies
        centers = np.einsum("nij,nj->ni", placed.rotations[0, time, on], self._solids.centers)
        _move(self.ellipsoids, origins[on] + centers, staging.product(quaternions[on], self._solid_axes))
        _move(self.frames, origins, quaternions)
        for body, carrier in self._carriers.items():
            if body != GROUND:
                carrier.position, carrier.wxyz = origins[body], quaternions[body]
        if ghosts:
            if self._ghosts is None:
                count, options = self._stick_count * len(ghosts), {"opacity": 0.6, "cast_shadow": False}
                self._ghosts = self._add("/ghosts", self._cylinder, count, 1.0, rgb(GRAY), **options)
            self._move_sticks(self._ghosts, np.concatenate([ghost.lines[0, time] for ghost in ghosts]), _GHOST)

    def _move_sticks(self, handle: Any, lines: Float[np.ndarray, "n 2 3"], share: float) -> None:
        length, direction = _polar(lines[:, 1] - lines[:, 0])
        thickness = np.full((len(lines), 2), share * self._size)
        _move(handle, lines.mean(axis=1), staging.quaternions_to(direction), np.hstack([thickness, length]))


def _at_origin(count: int) -> tuple[Float[np.ndarray, "n 4"], Float[np.ndarray, "n 3"]]:
    """Orientations and positions of parts that have not been moved."""
    return np.tile([1.0, 0.0, 0.0, 0.0], (count, 1)), np.zeros((count, 3))


def _move(
    handle: Any, positions: np.ndarray, quaternions: np.ndarray | None = None, scales: np.ndarray | None = None
) -> None:
    """Set the positions of the parts of a node and, if they change, the orientations and the scales."""
    for name, values in (("positions", positions), ("wxyzs", quaternions), ("scales", scales)):
        if values is not None:
            setattr(handle, f"batched_{name}", values.astype(np.float32))


def _polar(vectors: Float[np.ndarray, "n 3"]) -> tuple[Float[np.ndarray, "n 1"], Float[np.ndarray, "n 3"]]:
    """Lengths and directions of vectors; the direction of a zero vector is z."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return length, np.divide(vectors, length, out=np.tile([0.0, 0.0, 1.0], (len(vectors), 1)), where=length > 0)
