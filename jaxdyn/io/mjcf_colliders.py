"""Colliders of MJCF files: geoms that can touch a plane or a height field of the world, as MuJoCo has compiled them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxdyn.dynamics.contact_shapes import ContactPoint, contact_box, contact_capsule, contact_cylinder, contact_sphere
from jaxdyn.dynamics.surfaces import HalfSpace, HeightGrid, Surface
from jaxdyn.dynamics.system import System
from jaxdyn.io.colliders import Collider, Place, ellipsoid_points, extreme_points, level_ground, with_ground_contact
from jaxdyn.io.visuals import Omitted, placed
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial.plain import rotation_matrix

_MOST_SURFACES = 8
_LEVEL = 1e-9  # components of rotations, and relative differences of spacings


class _Ground(NamedTuple):
    """Surface of the ground, and the index of its geom; None for a surface that is not in the file."""

    surface: Surface
    geom: int | None


def mjcf_collider_count(compiled: Any) -> int:
    """Number of colliders on moving bodies."""
    return int(np.sum(_collides(compiled) & _moves(compiled)))


def with_mjcf_contact(
    mujoco: Any,
    compiled: Any,
    system: System,
    carriers: Mapping[int, tuple[str, np.ndarray]],
    missing: Mapping[str, str],
    path: str,
) -> System:
    """The system with contacts of all geoms that can touch planes or height fields of the world.

    If the world has neither, the ground is the plane through the origin that is perpendicular to gravity. Friction is that of
    MuJoCo for the pair of geoms: the larger value, or that of the geom with the higher priority. Geoms that are left out are named
    in one `IgnoredContent` warning.

    Args:
        mujoco: The module `mujoco`.
        compiled: The compiled model.
        system: System of this model.
        carriers: Name of the body or frame of the system that carries each MuJoCo body, and the origin of the MuJoCo body on the
            axes of this body or frame.
        missing: Paths of mesh files that do not exist, by the names of the meshes.
        path: File of the model, for messages.

    Raises:
        ConfigError: There is no geom that can be used.
        MechanismError: A geom is on a body without mass.
    """
    reader = _Geoms(mujoco, compiled, system.model, carriers, missing, Omitted("contact"))
    grounds = reader.grounds()
    surfaces = [ground.surface for ground in grounds]
    return with_ground_contact(system, surfaces, reader.colliders(grounds), reader.omitted, path)


class _Geoms(NamedTuple):
    mujoco: Any
    compiled: Any
    model: Model
    carriers: Mapping[int, tuple[str, np.ndarray]]
    missing: Mapping[str, str]
    omitted: Omitted

    def grounds(self) -> list[_Ground]:
        compiled, found = self.compiled, []
        for geom in map(int, np.flatnonzero(_collides(compiled) & ~_moves(compiled))):
            surface = self._surface(geom)
            if surface is None:
                self.omitted.add("it does not move; planes and level height fields are the ground", self._name(geom))
            elif len(found) == _MOST_SURFACES:
                self.omitted.add(f"at most {_MOST_SURFACES} surfaces are used", self._name(geom))
            else:
                found.append(_Ground(surface, geom))
        return found or [_Ground(level_ground(self.model), None)]

    def colliders(self, grounds: list[_Ground]) -> list[Collider]:
        colliders = []
        for geom in map(int, np.flatnonzero(_collides(self.compiled) & _moves(self.compiled))):
            touched = [k for k, ground in enumerate(grounds) if self._touch(geom, ground.geom)]
            points = self._points(geom) if touched else None
            if points is not None:
                place = self._place(geom)
                colliders += [Collider(place, points, *self._friction(geom, grounds[k].geom), k) for k in touched]
        return colliders

    def _kind(self, geom: int) -> str:
        return self.mujoco.mjtGeom(self.compiled.geom_type[geom]).name.removeprefix("mjGEOM_").lower()

    def _name(self, geom: int) -> str:
        kind, name = self._kind(geom), self.mujoco.mj_id2name(self.compiled, self.mujoco.mjtObj.mjOBJ_GEOM, geom)
        body = self.mujoco.mj_id2name(self.compiled, self.mujoco.mjtObj.mjOBJ_BODY, self.compiled.geom_bodyid[geom])
        return f"{kind} {name!r}" if name else f"{kind} of body {body!r}"

    def _place(self, geom: int) -> Place:
        name, offset = self.carriers[int(self.compiled.geom_bodyid[geom])]
        return Place(*placed(self.model, name, self.compiled.geom_pos[geom] + offset, self.compiled.geom_quat[geom]))

    def _surface(self, geom: int) -> Surface | None:
        """The surface of a geom that does not move; None if it cannot be the ground."""
        _, position, quaternion = self._place(geom)
        turn, kind = rotation_matrix(quaternion), self._kind(geom)
        if kind == "plane":
            normal = turn[:, 2]
            return HalfSpace(jnp.asarray(normal, self.model.dtype), jnp.asarray(normal @ position, self.model.dtype))
        if kind != "hfield" or not np.allclose(turn, np.eye(3), atol=_LEVEL):
            return None
        compiled, index = self.compiled, self.compiled.geom_dataid[geom]
        half_x, half_y, top, _ = compiled.hfield_size[index]
        rows, columns = int(compiled.hfield_nrow[index]), int(compiled.hfield_ncol[index])
        spacings = 2.0 * half_x / (columns - 1), 2.0 * half_y / (rows - 1)
        if not np.isclose(*spacings, rtol=_LEVEL):
            return None
        start = int(compiled.hfield_adr[index])
        heights = np.array(compiled.hfield_data[start : start + rows * columns], float).reshape(rows, columns).T
        return HeightGrid(
            jnp.asarray(position[2] + top * heights, self.model.dtype),
            jnp.asarray(spacings[0], self.model.dtype),
            jnp.asarray(position[:2] - (half_x, half_y), self.model.dtype),
        )

    def _touch(self, geom: int, ground: int | None) -> bool:
        """Whether MuJoCo makes contacts of a geom with the ground."""
        kinds, affinities = self.compiled.geom_contype, self.compiled.geom_conaffinity
        return ground is None or bool(kinds[geom] & affinities[ground] or kinds[ground] & affinities[geom])

    def _friction(self, geom: int, ground: int | None) -> tuple[float, float]:
        """Friction coefficient and torsion radius of a geom on the ground."""
        compiled = self.compiled
        priorities = compiled.geom_priority
        pair = [geom] if ground is None else [geom, ground]
        stated = [one for one in pair if priorities[one] == max(priorities[other] for other in pair)]
        dimension = max(int(compiled.geom_condim[one]) for one in stated)
        sliding, torsional, rolling = np.max(compiled.geom_friction[stated], axis=0)
        if dimension == 6 and rolling > 0.0:
            self.omitted.add("rolling friction", self._name(geom))
        if dimension == 1 or sliding <= 0.0:
            return 0.0, 0.0
        return float(sliding), float(torsional / sliding) if dimension > 3 else 0.0

    def _points(self, geom: int) -> tuple[ContactPoint, ...] | None:
        """Points and spheres of a geom on its axes; None if it cannot be used."""
        compiled, size = self.compiled, np.array(self.compiled.geom_size[geom])
        match self._kind(geom):
            case "sphere":
                return contact_sphere("", radius=size[0])
            case "capsule":
                return contact_capsule("", ((0.0, 0.0, -size[1]), (0.0, 0.0, size[1])), size[0])
            case "box":
                return contact_box("", 2.0 * size)
            case "cylinder":
                return contact_cylinder("", size[0], 2.0 * size[1])
            case "ellipsoid":
                return ellipsoid_points(size)
            case "mesh":
                return self._mesh_points(int(compiled.geom_dataid[geom]))
        self.omitted.add("shapes of this kind on moving bodies are not used", self._name(geom))
        return None

    def _mesh_points(self, mesh: int) -> tuple[ContactPoint, ...] | None:
        name = self.mujoco.mj_id2name(self.compiled, self.mujoco.mjtObj.mjOBJ_MESH, mesh)
        if name in self.missing:
            self.omitted.add("there is no such file", self.missing[name])
            return None
        first, count = self.compiled.mesh_vertadr[mesh], self.compiled.mesh_vertnum[mesh]
        return extreme_points(np.array(self.compiled.mesh_vert[first : first + count], float))


def _collides(compiled: Any) -> np.ndarray:
    return (compiled.geom_contype != 0) | (compiled.geom_conaffinity != 0)


def _moves(compiled: Any) -> np.ndarray:
    """Whether each geom is on a moving body."""
    return compiled.body_weldid[compiled.geom_bodyid] != 0
