"""Colliders of MJCF files: geoms that can touch a plane or a height field of the world, as MuJoCo has compiled them."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxdyn.dynamics.contact.shapes import ContactPoint
from jaxdyn.dynamics.contact.surfaces import HalfSpace, HeightGrid, Surface
from jaxdyn.dynamics.system import System
from jaxdyn.io.mjcf.geoms import MjcfGeoms, collides
from jaxdyn.io.shapes.colliders import Collider, extreme_points, level_ground, points_of, with_ground_contact
from jaxdyn.io.shapes.visuals import Omitted
from jaxdyn.spatial.plain import rotation_matrix

_MOST_SURFACES = 8
_LEVEL = 1e-9  # components of rotations, and relative differences of spacings


def mjcf_collider_count(compiled: Any) -> int:
    """Number of colliders on moving bodies."""
    return int(np.sum(collides(compiled) & _moves(compiled)))


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
    geoms = _Colliders(mujoco, compiled, system.model, carriers, missing, Omitted("contact"))
    grounds = geoms.grounds()
    return with_ground_contact(system, list(grounds.values()), geoms.colliders(list(grounds)), geoms.omitted, path)


class _Colliders(MjcfGeoms):
    def grounds(self) -> dict[int | None, Surface]:
        """Surfaces of the ground by the indices of their geoms; None for a surface that is not in the file."""
        found: dict[int | None, Surface] = {}
        for geom in map(int, np.flatnonzero(collides(self.compiled) & ~_moves(self.compiled))):
            surface = self._surface(geom)
            if surface is None:
                self.omitted.add("it does not move; planes and level height fields are the ground", self._name(geom))
            elif len(found) == _MOST_SURFACES:
                self.omitted.add(f"at most {_MOST_SURFACES} surfaces are used", self._name(geom))
            else:
                found[geom] = surface
        return found or {None: level_ground(self.model)}

    def colliders(self, grounds: list[int | None]) -> list[Collider]:
        colliders = []
        for geom in map(int, np.flatnonzero(collides(self.compiled) & _moves(self.compiled))):
            touched = [k for k, ground in enumerate(grounds) if self._touch(geom, ground)]
            points = self._points(geom) if touched else None
            if points is not None:
                place = self.place(geom)
                colliders += [Collider(place, points, *self._friction(geom, grounds[k]), k) for k in touched]
        return colliders

    def _name(self, geom: int) -> str:
        kind, name = self.kind(geom), self.compiled.geom(geom).name
        body = self.compiled.body(self.compiled.geom_bodyid[geom]).name
        return f"{kind} {name!r}" if name else f"{kind} of body {body!r}"

    def _surface(self, geom: int) -> Surface | None:
        """The surface of a geom that does not move; None if it cannot be the ground."""
        _, position, quaternion = self.place(geom)
        turn, kind = rotation_matrix(quaternion), self.kind(geom)
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
        points = points_of(self.kind(geom), self.sizes(geom))
        if points is not None:
            return points
        if self.kind(geom) == "mesh":
            index = self.mesh_of(geom)
            return None if index is None else extreme_points(self.mesh(index)[0])
        self.omitted.add("shapes of this kind on moving bodies are not used", self._name(geom))
        return None


def _moves(compiled: Any) -> np.ndarray:
    """Whether each geom is on a moving body."""
    return compiled.body_weldid[compiled.geom_bodyid] != 0
