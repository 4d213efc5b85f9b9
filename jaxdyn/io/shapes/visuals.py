"""Visual geometry of the bodies of a mechanism, for pictures; `visual_files` reads it.

Visuals are not a part of a `Model`. They refer to the bodies of a model that was read from the same file, and have no influence on
the dynamics.
"""

import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxdyn.errors import one_line
from jaxdyn.io.shapes.mesh_files import Color
from jaxdyn.io.shapes.solids import Mesh, simplified, with_sharp_edges
from jaxdyn.io.xml import IgnoredContent, some
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial.plain import rotation_matrix, rotation_quaternion

_FEWEST_TRIANGLES = 12  # of a visual, those of a box
_MOST_SHOWN = 6  # files that a message names
_LONGEST_SHOWN = 60  # characters of such a name, its end


class Place(NamedTuple):
    """Body of a shape, and position (m) and orientation [w, x, y, z] of the shape on the axes of this body."""

    body: int
    position: Float[np.ndarray, "3"]
    quaternion: Float[np.ndarray, "4"]


class Shape(NamedTuple):
    """A shape as a robot file states it, for files that refer to it.

    Attributes:
        kind: "mesh", or the kind of a solid, see `solids.solid`.
        sizes: Sizes of a solid as `solids.solid` takes them, or scale factors of a mesh.
        file: Path of the file of a mesh.
    """

    kind: str
    sizes: tuple[float, ...]
    file: Path | None = None


class Visual(NamedTuple):
    """One shape of one color on a body.

    Attributes:
        body: Index of the body that carries the shape, -1 for the ground.
        position: Origin of the shape in the frame of the body, m.
        quaternion: Orientation [w, x, y, z] of the shape in the frame of the body, of norm 1.
        mesh: Triangles of the shape. Visuals of the same mesh file share this object.
        scale: Scale factors of the three coordinates of the mesh.
        color: Red, green, blue and opacity, 0 to 1.
        shape: The shape as its file states it, in the same place; None for triangles of a program.
    """

    body: int
    position: Float[np.ndarray, "3"]
    quaternion: Float[np.ndarray, "4"]
    mesh: Mesh
    scale: Float[np.ndarray, "3"]
    color: Color
    shape: Shape | None = None

    def points(self) -> Float[np.ndarray, "vertices 3"]:
        """Vertices of the mesh in the frame of the body, m."""
        return (self.mesh[0] * self.scale) @ rotation_matrix(self.quaternion).T + self.position


@dataclasses.dataclass
class Omitted:
    """Collects the shapes that are not used as a file describes them, for one warning at the end.

    Attributes:
        purpose: Use of the shapes, with which the message begins.
        reasons: Names of the shapes by the reason.
    """

    purpose: str = "visual geometry"
    reasons: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    def add(self, reason: str, shape: str) -> None:
        """Add a shape, usually by the name of its file, with the reason and the remedy."""
        shapes = self.reasons.setdefault(reason, [])
        if shape not in shapes:
            shapes.append(shape)

    def listed(self, before: str = "") -> str:
        """All shapes with the reasons, after the text `before`; empty if no shape has been added."""
        parts = [f"{_some(shapes)}: {reason}" for reason, shapes in self.reasons.items()]
        return one_line(f"{before}{'; '.join(parts)}") if parts else ""

    def warn(self, path: Path | str) -> None:
        """Issue one `IgnoredContent` warning, if a shape has been added."""
        if self.reasons:
            warnings.warn(one_line(f"{path}: {self.purpose}: {self.listed()}"), IgnoredContent, stacklevel=3)


def placed(
    model: Model, name: str, position: Sequence[float] | np.ndarray, quaternion: Sequence[float] | np.ndarray
) -> Place:
    """Convert the pose of a shape in a body or frame to its pose in the body that carries the frame.

    Raises:
        UnknownName: No body or frame has this name.
    """
    point, turn = np.asarray(position, float), rotation_matrix(np.asarray(quaternion, float))
    if name not in model.topology.frame_names:
        return Place(model.topology.body_index(name), point, rotation_quaternion(turn))
    index = model.topology.frame_names.index(name)
    frame = rotation_matrix(np.asarray(model.frames.quaternion[index], float))
    point = np.asarray(model.frames.translation[index], float) + frame @ point
    return Place(model.topology.frame_bodies[index], point, rotation_quaternion(frame @ turn))


def with_fewer_triangles(visuals: Sequence[Visual], most: int) -> tuple[Visual, ...]:
    """Simplify the finest visuals so that all together have at most `most` triangles; none is reduced to fewer than 12."""
    counts = [len(visual.mesh[1]) for visual in visuals]
    largest, left = most, most
    for position, count in enumerate(sorted(counts)):
        largest = left // (len(counts) - position)
        if count > largest:
            break
        left -= count
    if max(counts, default=0) <= largest:
        return tuple(visuals)
    most_of_one = max(largest, _FEWEST_TRIANGLES)
    fine = {id(visual.mesh): visual.mesh for visual in visuals if len(visual.mesh[1]) > most_of_one}
    coarse = {key: with_sharp_edges(simplified(mesh, most_of_one)) for key, mesh in fine.items()}
    return tuple(visual._replace(mesh=coarse.get(id(visual.mesh), visual.mesh)) for visual in visuals)


def _some(shapes: list[str]) -> str:
    ends = [shape if len(shape) <= _LONGEST_SHOWN else f"...{shape[3 - _LONGEST_SHOWN :]}" for shape in shapes]
    return some(ends, _MOST_SHOWN)
