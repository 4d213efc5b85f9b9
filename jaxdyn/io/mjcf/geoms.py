"""Geoms of MJCF files, as MuJoCo has compiled them: the shapes that are drawn or touch the ground."""

import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxdyn.io.shapes.solids import Mesh
from jaxdyn.io.shapes.visuals import Omitted, Place, Shape, placed
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial.plain import rotation_matrix, rotation_quaternion

# Factors from the sizes of MuJoCo, some of which are half of a length, to those of `solids.solid`.
FACTORS = {
    "box": (2.0, 2.0, 2.0),
    "sphere": (1.0,),
    "ellipsoid": (1.0, 1.0, 1.0),
    "cylinder": (1.0, 2.0),
    "capsule": (1.0, 2.0),
}


class MjcfGeoms(NamedTuple):
    """Geoms of a compiled model.

    Attributes:
        mujoco: The module `mujoco`.
        compiled: The compiled model.
        model: Model of the mechanism, read from the same file.
        carriers: Name of the body or frame of the mechanism that carries each MuJoCo body, and the origin of the MuJoCo body on the
            axes of this body or frame.
        missing: Paths of mesh files that do not exist, by the names of the meshes.
        omitted: Collects the geoms that are left out.
        files: Paths of the mesh files, by their names in the compiled model.
    """

    mujoco: Any
    compiled: Any
    model: Model
    carriers: Mapping[int, tuple[str, np.ndarray]]
    missing: Mapping[str, str]
    omitted: Omitted
    files: Mapping[str, Path] = types.MappingProxyType({})

    def kind(self, geom: int) -> str:
        """Kind of a geom, such as "box"."""
        return self.mujoco.mjtGeom(self.compiled.geom_type[geom]).name.removeprefix("mjGEOM_").lower()

    def sizes(self, geom: int) -> np.ndarray:
        """Sizes of a geom as `solids.solid` takes them; none for a kind that is not a solid."""
        factors = FACTORS.get(self.kind(geom), ())
        return self.compiled.geom_size[geom, : len(factors)] * np.array(factors)

    def mesh_of(self, geom: int) -> int | None:
        """Index of the mesh of a geom; None if its file does not exist, which is noted."""
        index = int(self.compiled.geom_dataid[geom])
        name = self.compiled.mesh(index).name
        if name not in self.missing:
            return index
        self.omitted.add("there is no such file", self.missing[name])
        return None

    def mesh(self, index: int) -> Mesh:
        """Triangles of a mesh, on the axes of a geom: MuJoCo moves meshes to their principal axes."""
        compiled = self.compiled
        first, count = compiled.mesh_vertadr[index], compiled.mesh_vertnum[index]
        points = np.array(compiled.mesh_vert[first : first + count], float)
        first, count = compiled.mesh_faceadr[index], compiled.mesh_facenum[index]
        return points, np.array(compiled.mesh_face[first : first + count], np.int64)

    def place(self, geom: int) -> Place:
        """Placement of a geom on a body of the mechanism.

        Raises:
            UnknownName: The mechanism has no such body.
        """
        name, offset = self.carriers[int(self.compiled.geom_bodyid[geom])]
        return placed(self.model, name, self.compiled.geom_pos[geom] + offset, self.compiled.geom_quat[geom])

    def stated(self, geom: int) -> Shape:
        """Shape of a geom as the file states it."""
        if self.kind(geom) != "mesh":
            return Shape(self.kind(geom), tuple(self.sizes(geom).tolist()))
        index = self.compiled.geom_dataid[geom]
        name = self.compiled.paths[self.compiled.mesh_pathadr[index] :].split(b"\0")[0].decode()
        return Shape("mesh", tuple(self.compiled.mesh_scale[index].tolist()), self.files.get(name))

    def mesh_of_file(self, index: int) -> Mesh:
        """Triangles of a mesh on the axes of its file."""
        points, faces = self.mesh(index)
        turn = rotation_matrix(self.compiled.mesh_quat[index])
        return points @ turn.T + self.compiled.mesh_pos[index], faces

    def place_of_file(self, geom: int) -> Place:
        """Placement of the axes of the file of a mesh; the placement of any other geom."""
        body, position, quaternion = self.place(geom)
        if self.kind(geom) != "mesh":
            return Place(body, position, quaternion)
        index = self.compiled.geom_dataid[geom]
        axes = rotation_matrix(quaternion) @ rotation_matrix(self.compiled.mesh_quat[index]).T
        return Place(body, position - axes @ self.compiled.mesh_pos[index], rotation_quaternion(axes))


def collides(compiled: Any) -> np.ndarray:
    """Whether each geom can make contacts."""
    return (compiled.geom_contype != 0) | (compiled.geom_conaffinity != 0)


def semiaxes(compiled: Any, geom: int) -> np.ndarray:
    """Semiaxes of the ellipsoid that MuJoCo takes for a geom in a medium, m."""
    radius, half, _ = size = compiled.geom_size[geom]
    of_kind = {2: (radius, radius, radius), 3: (radius, radius, radius + half), 5: (radius, radius, half)}
    return np.array(of_kind.get(int(compiled.geom_type[geom]), size))  # spheres, capsules and cylinders; mjtGeom
