"""Option of file readers: the colliders (collision shapes) of bodies become contacts with the ground.

A sphere remains a sphere. A capsule becomes the spheres at its ends, a box its corners, a cylinder 16 points on its rims, a mesh or
an ellipsoid at most `MOST_POINTS_OF_MESH` extreme points. On planes, only the outermost points of all colliders of a body are used:
points that lie more than 1 mm within the others are left out. The colliders of two bodies do not touch each other.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from jaxdyn.dynamics.contact import GroundContact
from jaxdyn.dynamics.contact_material import ContactMaterial
from jaxdyn.dynamics.contact_shapes import ContactPoint
from jaxdyn.dynamics.surfaces import HalfSpace, Surface
from jaxdyn.dynamics.system import System
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.visuals import Omitted
from jaxdyn.mechanism.messages import MechanismError
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial.plain import rotation_matrix

ContactUse = Literal["none", "ground"]

# Eight directions between the axes of a shape, which come first so that a box is represented by its corners, and six along them.
_DIRECTIONS = np.array([*itertools.product((-1.0, 1.0), repeat=3), *np.eye(3), *-np.eye(3)])
MOST_POINTS_OF_MESH = len(_DIRECTIONS)
MOST_POINTS = 5_000  # of all contacts of a file
_SAME = 0.01  # distance of points that count as one, relative to the size of the shape
_WITHIN = 0.001  # m
_SEARCHED = 150  # further directions in which the outermost points of a body are searched


class Place(NamedTuple):
    """Body of a shape, and position (m) and orientation [w, x, y, z] of the shape on the axes of this body."""

    body: int
    position: Float[np.ndarray, "3"]
    quaternion: Float[np.ndarray, "4"]


class Collider(NamedTuple):
    """Points and spheres that represent one collision shape.

    Attributes:
        place: Placement of the shape.
        points: Points and spheres on the axes of the shape.
        friction, torsion_radius: Values of the contact material that the file states; None for the defaults.
        surface: Index of the surface that the shape touches.
    """

    place: Place
    points: Sequence[ContactPoint]
    friction: float | None = None
    torsion_radius: float | None = None
    surface: int = 0


def check_contact(contact: str, kinematic: bool, path: Path | str) -> None:
    """Check that a value is one of the options in `ContactUse`, and that masses are read if there are contacts.

    Raises:
        ConfigError: The value is not allowed; the message names the file and the allowed values.
    """
    if contact not in get_args(ContactUse):
        raise ConfigError(f"{path}: contact is {contact!r}; use one of {', '.join(get_args(ContactUse))}")
    if contact != "none" and kinematic:
        raise ConfigError(f"{path}: contacts need masses, which kinematic leaves out; give only one of both options")


def level_ground(model: Model) -> HalfSpace:
    """Plane through the origin of the ground, perpendicular to gravity; z = 0 without gravity."""
    gravity = np.asarray(model.gravity, float)
    is_along_z = not np.any(gravity[:2]) and gravity[2] <= 0.0
    return HalfSpace() if is_along_z else HalfSpace(normal=jnp.asarray(-gravity / np.linalg.norm(gravity), model.dtype))


def extreme_points(vertices: Float[np.ndarray, "vertices 3"]) -> tuple[ContactPoint, ...]:
    """The outermost vertices of a shape in `MOST_POINTS_OF_MESH` directions, which scale with its size along each axis.

    Vertices that almost coincide are taken once. A shape without vertices has no points.
    """
    if not len(vertices):
        return ()
    sizes = np.ptp(vertices, axis=0)
    scaled = (vertices - vertices.min(axis=0)) / np.maximum(sizes, 1e-12)
    kept: list[np.ndarray] = []
    for direction in _DIRECTIONS:
        vertex = vertices[np.argmax(scaled @ direction)]
        if all(np.linalg.norm(vertex - other) > _SAME * np.linalg.norm(sizes) for other in kept) or not kept:
            kept.append(vertex)
    return tuple(ContactPoint("", (float(x), float(y), float(z))) for x, y, z in kept)


def ellipsoid_points(size: Float[np.ndarray, "3"]) -> tuple[ContactPoint, ...]:
    """Points of an ellipsoid with these semi-axes."""
    return extreme_points(_DIRECTIONS / np.linalg.norm(_DIRECTIONS, axis=1, keepdims=True) * size)


def with_ground_contact(
    system: System, surfaces: Sequence[Surface], colliders: Sequence[Collider], omitted: Omitted, path: Path | str
) -> System:
    """The system with contacts of the colliders, and a warning that names the ones that are left out.

    Colliders with the same friction and the same surface form one `GroundContact`.

    Raises:
        ConfigError: There is no collider that can be used, or they have too many points.
        MechanismError: A collider is on a body without mass.
    """
    if not colliders:
        raise ConfigError(
            f'{path}: contact is "ground", but it has no collider on a moving body that can be used'
            f"{omitted.listed(': ')}; add collision shapes, or leave contact out"
        )
    spheres = [_spheres(collider) for collider in colliders]
    used = _used(colliders, spheres, surfaces)
    count = sum(map(np.sum, used))
    if count > MOST_POINTS:
        raise ConfigError(
            f"{path}: its colliders have {count} contact points, but at most {MOST_POINTS} are used; remove colliders"
        )
    groups: dict[tuple[float | None, float | None, int], list[int]] = {}
    for k, collider in enumerate(colliders):
        if np.any(used[k]):
            groups.setdefault((collider.friction, collider.torsion_radius, collider.surface), []).append(k)
    contacts = []
    for (friction, torsion_radius, surface), members in groups.items():
        values = {"friction": friction, "torsion_radius": torsion_radius}
        material = {name: value for name, value in values.items() if value is not None}
        contacts.append(
            GroundContact(
                tuple(colliders[k].place.body for k in members for _ in range(np.sum(used[k]))),
                jnp.asarray(np.concatenate([spheres[k].centers[used[k]] for k in members]), system.model.dtype),
                jnp.asarray(np.concatenate([spheres[k].radii[used[k]] for k in members]), system.model.dtype),
                ContactMaterial.of(system.model, **material),
                surfaces[surface],
            )
        )
    try:
        # The constructor checks the contacts.
        complete = dataclasses.replace(system, forces=(*system.forces, *contacts))
    except MechanismError as error:
        raise MechanismError(f"{path}: {error}") from None
    omitted.warn(path)
    return complete


class _Spheres(NamedTuple):
    """Spheres of a collider on the axes of its body."""

    centers: Float[np.ndarray, "points 3"]
    radii: Float[np.ndarray, "points"]


def _spheres(collider: Collider) -> _Spheres:
    place = collider.place
    centers = np.array([point.center for point in collider.points]).reshape(-1, 3)
    radii = np.array([point.radius for point in collider.points], float)
    return _Spheres(place.position + centers @ rotation_matrix(place.quaternion).T, radii)


def _used(
    colliders: Sequence[Collider], spheres: Sequence[_Spheres], surfaces: Sequence[Surface]
) -> list[Bool[np.ndarray, "_"]]:
    """Mask of the spheres of each collider that are used: on planes the outermost spheres of each body, otherwise all."""
    used = [np.ones(len(one.radii), bool) for one in spheres]
    members: dict[tuple[int, int], list[int]] = {}
    for k, collider in enumerate(colliders):
        if isinstance(surfaces[collider.surface], HalfSpace):
            members.setdefault((collider.place.body, collider.surface), []).append(k)
    for of_body in members.values():
        centers = np.concatenate([spheres[k].centers for k in of_body])
        radii = np.concatenate([spheres[k].radii for k in of_body])
        ends = np.cumsum([len(used[k]) for k in of_body])
        for k, mask in zip(of_body, np.split(_outermost(centers, radii), ends[:-1]), strict=True):
            used[k] = mask
    return used


def _outermost(
    centers: Float[np.ndarray, "points 3"], radii: Float[np.ndarray, "points"]
) -> Bool[np.ndarray, "points"]:
    """Mask of spheres that together extend as far in every direction as all spheres, up to 1 mm."""
    along = np.arange(_SEARCHED) + 0.5
    z, angle = 1.0 - 2.0 * along / _SEARCHED, np.pi * (1.0 + np.sqrt(5.0)) * along
    spiral = np.stack([np.sqrt(1.0 - z**2) * np.cos(angle), np.sqrt(1.0 - z**2) * np.sin(angle), z], axis=1)
    first = _DIRECTIONS / np.linalg.norm(_DIRECTIONS, axis=1, keepdims=True)
    kept = np.zeros(len(radii), bool)
    for reach in np.concatenate([first, spiral]) @ centers.T + radii:
        if not np.any(kept) or reach.max() > reach[kept].max() + _WITHIN:
            kept[np.argmax(reach)] = True
    return kept
