"""Option of file readers: the colliders (collision shapes) of bodies become contacts with the ground.

A sphere or an ellipsoid remains one. A capsule becomes the spheres at its ends, a box its corners, and a cylinder its two rims. A
mesh that is a solid of revolution about the x, y or z-axis becomes its outermost rims, another mesh at most `MOST_POINTS_OF_MESH`
extreme points. On planes, only the outermost points of all colliders of a body are used: points that lie more than 1 mm within the
others are left out. The colliders of two bodies do not touch each other.
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
from jaxdyn.dynamics.contact.material import ContactMaterial
from jaxdyn.dynamics.contact.shapes import (
    ContactPoint,
    contact_box,
    contact_capsule,
    contact_cylinder,
    contact_ellipsoid,
    contact_sphere,
)
from jaxdyn.dynamics.contact.surfaces import HalfSpace, Surface
from jaxdyn.dynamics.system import System
from jaxdyn.errors import check_name
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.shapes.visuals import Omitted, Place
from jaxdyn.mechanism.messages import MechanismError
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial.plain import rotation_matrix

ContactUse = Literal["none", "ground"]

# Eight directions between the axes of a shape, which come first so that a box is represented by its corners, and six along them.
_DIRECTIONS = np.array([*itertools.product((-1.0, 1.0), repeat=3), *np.eye(3), *-np.eye(3)])
_NORMALIZED = _DIRECTIONS / np.linalg.norm(_DIRECTIONS, axis=1, keepdims=True)
MOST_POINTS_OF_MESH = len(_DIRECTIONS)
MOST_POINTS = 5_000  # of all contacts of a file
_SAME = 0.01  # distance of points that count as one, relative to the size of the shape
_PROFILE = np.linspace(-0.5, 0.5, 9) * np.pi  # directions in which the profile of a solid of revolution is searched
_WIDEST_GAP = 2.0 * np.pi / 11.5  # rad; between neighboring vertices of a circle, which has at least 12
_WITHIN = 0.001  # m
_SEARCHED = 150  # further directions in which the outermost points of a body are searched


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
        UnknownName: It is not; the message names the file.
        ConfigError: There are contacts without masses.
    """
    check_name("option contact", contact, get_args(ContactUse), where=str(path))
    if contact != "none" and kinematic:
        raise ConfigError(f"{path}: contacts need masses, which kinematic leaves out; give only one of both options")


def level_ground(model: Model) -> HalfSpace:
    """Plane through the origin of the ground, perpendicular to gravity; z = 0 without gravity."""
    gravity = np.asarray(model.gravity, float)
    is_along_z = not np.any(gravity[:2]) and gravity[2] <= 0.0
    return HalfSpace() if is_along_z else HalfSpace(normal=jnp.asarray(-gravity / np.linalg.norm(gravity), model.dtype))


def extreme_points(vertices: Float[np.ndarray, "vertices 3"]) -> tuple[ContactPoint, ...]:
    """The outermost rims of a solid of revolution about the x, y or z-axis, or the outermost vertices of another shape in
    `MOST_POINTS_OF_MESH` directions, which scale with its size along each axis.

    Vertices that almost coincide are taken once. A shape without vertices has no points.
    """
    if not len(vertices):
        return ()
    for axis in (2, 1, 0):
        rims = _rims_about(axis, vertices)
        if rims:
            return rims
    sizes = np.ptp(vertices, axis=0)
    scaled = (vertices - vertices.min(axis=0)) / np.maximum(sizes, 1e-12)
    kept: list[np.ndarray] = []
    for direction in _DIRECTIONS:
        vertex = vertices[np.argmax(scaled @ direction)]
        if all(np.linalg.norm(vertex - other) > _SAME * np.linalg.norm(sizes) for other in kept) or not kept:
            kept.append(vertex)
    return tuple(ContactPoint("", (float(x), float(y), float(z))) for x, y, z in kept)


def _rims_about(axis: int, vertices: Float[np.ndarray, "vertices 3"]) -> tuple[ContactPoint, ...]:
    """The outermost circles of a solid of revolution about an axis of its mesh; none if the mesh is another shape."""
    middle = 0.5 * (vertices.min(axis=0) + vertices.max(axis=0))
    x, y, height = np.roll(vertices - middle, 2 - axis, axis=1).T
    distance, angle = np.hypot(x, y), np.arctan2(y, x)
    same = _SAME * max(np.ptp(height), distance.max())
    rims: dict[tuple[int, int], ContactPoint] = {}
    for along in _PROFILE:
        outermost = np.argmax(height * np.sin(along) + distance * np.cos(along))
        top, radius = height[outermost], distance[outermost]
        around = np.sort(angle[(np.abs(height - top) < same) & (np.abs(distance - radius) < same)])
        if radius < same:
            radius = 0.0
        elif np.max(np.diff(around, append=around[0] + 2.0 * np.pi)) > _WIDEST_GAP:
            return ()
        center, axes = middle + top * np.eye(3)[axis], radius * np.delete(np.eye(3), axis, axis=0)
        (rim,) = contact_sphere("", center=center)
        found = rim._replace(axes=(*map(tuple, axes.tolist()), (0.0, 0.0, 0.0)))
        rims.setdefault((round(top / same), round(radius / same)), found)
    return tuple(rims.values())


def points_of(kind: str, sizes: Sequence[float] | np.ndarray) -> tuple[ContactPoint, ...] | None:
    """Points and spheres that represent a solid, which is given as in `solids.solid`; None for another kind."""
    match kind:
        case "box":
            return contact_box("", sizes)
        case "sphere":
            return contact_sphere("", radius=sizes[0])
        case "ellipsoid":
            return contact_ellipsoid("", sizes)
        case "cylinder":
            return contact_cylinder("", *sizes)
        case "capsule":
            half = 0.5 * sizes[1]
            return contact_capsule("", ((0.0, 0.0, -half), (0.0, 0.0, half)), sizes[0])
    return None


def with_ground_contact(
    system: System, surfaces: Sequence[Surface], colliders: Sequence[Collider], omitted: Omitted, path: Path | str
) -> System:
    """The system with contacts of the colliders, and a warning that names the ones that are left out.

    Colliders with the same friction and the same surface form one `GroundContact`, rims and ellipsoids another one.

    Raises:
        ConfigError: There is no collider that can be used, or they have too many points.
        MechanismError: A collider is on a body without mass.
    """
    if not colliders:
        raise ConfigError(
            f'{path}: contact is "ground", but it has no collider on a moving body that can be used'
            f"{omitted.listed(': ')}; add collision shapes, or leave contact out"
        )
    # One entry for each sphere, rim or ellipsoid: the index of its collider, its body, surface, center, radius and semi-axes.
    collider_of = np.repeat(np.arange(len(colliders)), [len(collider.points) for collider in colliders])
    bodies = np.array([collider.place.body for collider in colliders])[collider_of]
    of_surface = np.array([collider.surface for collider in colliders])[collider_of]
    centers = np.concatenate([_centers(collider) for collider in colliders])
    radii = np.array([point.radius for collider in colliders for point in collider.points], float)
    axes = np.concatenate([_axes(collider) for collider in colliders])
    used = np.ones(len(radii), bool)
    for body, surface in {(collider.place.body, collider.surface) for collider in colliders}:
        if isinstance(surfaces[surface], HalfSpace):
            members = (bodies == body) & (of_surface == surface)
            used[members] = _outermost(centers[members], radii[members], axes[members])
    if np.sum(used) > MOST_POINTS:
        raise ConfigError(
            f"{path}: its colliders have {np.sum(used)} contact points, but at most {MOST_POINTS} are used; remove colliders"
        )
    kinds = [(c.friction, c.torsion_radius, c.surface, bool(np.any(_axes(c)))) for c in colliders]
    contacts = []
    for kind in dict.fromkeys(kinds[k] for k in collider_of[used]):
        friction, torsion_radius, surface, is_round = kind
        values = {"friction": friction, "torsion_radius": torsion_radius}
        material = {name: value for name, value in values.items() if value is not None}
        members = used & np.array([other == kind for other in kinds])[collider_of]
        contacts.append(
            GroundContact(
                tuple(bodies[members].tolist()),
                jnp.asarray(centers[members], system.model.dtype),
                jnp.asarray(radii[members], system.model.dtype),
                ContactMaterial.of(system.model, **material),
                surfaces[surface],
                jnp.asarray(axes[members], system.model.dtype) if is_round else None,
            )
        )
    try:
        # The constructor checks the contacts.
        complete = dataclasses.replace(system, forces=(*system.forces, *contacts))
    except MechanismError as error:
        raise MechanismError(f"{path}: {error}") from None
    omitted.warn(path)
    return complete


def _centers(collider: Collider) -> Float[np.ndarray, "points 3"]:
    """Centers of the spheres of a collider on the axes of its body."""
    centers = np.array([point.center for point in collider.points]).reshape(-1, 3)
    return collider.place.position + centers @ rotation_matrix(collider.place.quaternion).T


def _axes(collider: Collider) -> Float[np.ndarray, "points 3 3"]:
    """Semi-axes of the shapes of a collider on the axes of its body, as rows."""
    return np.array([point.axes for point in collider.points]) @ rotation_matrix(collider.place.quaternion).T


def _outermost(
    centers: Float[np.ndarray, "points 3"], radii: Float[np.ndarray, "points"], axes: Float[np.ndarray, "points 3 3"]
) -> Bool[np.ndarray, "points"]:
    """Mask of shapes that together extend as far in every direction as all shapes, up to 1 mm."""
    along = np.arange(_SEARCHED) + 0.5
    z, angle = 1.0 - 2.0 * along / _SEARCHED, np.pi * (1.0 + np.sqrt(5.0)) * along
    spiral = np.stack([np.sqrt(1.0 - z**2) * np.cos(angle), np.sqrt(1.0 - z**2) * np.sin(angle), z], axis=1)
    kept = np.zeros(len(radii), bool)
    directions = np.concatenate([_NORMALIZED, spiral])
    for reach in directions @ centers.T + radii + np.linalg.norm(axes @ directions.T, axis=1).T:
        if not np.any(kept) or reach.max() > reach[kept].max() + _WITHIN:
            kept[np.argmax(reach)] = True
    return kept
