"""Option of file readers: the colliders (collision shapes) of bodies become contacts with the ground.

A sphere remains a sphere. A capsule becomes the spheres at its ends, a box its corners, a cylinder 16 points on its rims, a mesh or
an ellipsoid at most `MOST_POINTS_OF_MESH` extreme points. The colliders of two bodies do not touch each other.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxdyn.dynamics.contact import ContactMaterial, GroundContact
from jaxdyn.dynamics.contact_shapes import ContactPoint
from jaxdyn.dynamics.surfaces import HalfSpace, Surface
from jaxdyn.dynamics.system import System
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.visuals import Omitted
from jaxdyn.mechanism.messages import MechanismError
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial.plain import rotation_matrix

ContactUse = Literal["none", "ground"]

# Six directions along the axes of a shape, and eight between them.
_DIRECTIONS = np.array([d for d in itertools.product((-1.0, 0.0, 1.0), repeat=3) if sum(map(abs, d)) in (1.0, 3.0)])
MOST_POINTS_OF_MESH = len(_DIRECTIONS)
MOST_POINTS = 5_000  # of all contacts of a file
_SAME = 0.01  # distance of points that count as one, relative to the size of the shape


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
    # The directions between the axes come first, so that a box is represented by its corners.
    for direction in _DIRECTIONS[np.argsort(-np.abs(_DIRECTIONS).sum(axis=1), kind="stable")]:
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
    count = sum(len(collider.points) for collider in colliders)
    if count > MOST_POINTS:
        raise ConfigError(
            f"{path}: its colliders have {count} contact points, but at most {MOST_POINTS} are used; remove colliders"
        )
    groups: dict[tuple[float | None, float | None, int], list[Collider]] = {}
    for collider in colliders:
        groups.setdefault((collider.friction, collider.torsion_radius, collider.surface), []).append(collider)
    contacts = []
    for (friction, torsion_radius, surface), members in groups.items():
        values = {"friction": friction, "torsion_radius": torsion_radius}
        material = {name: value for name, value in values.items() if value is not None}
        contacts.append(_ground_contact(system.model, members, surfaces[surface], material))
    try:
        # The constructor checks the contacts.
        complete = System(
            system.model,
            (*system.forces, *contacts),
            system.drives,
            system.method,
            system.constraints,
            system.stabilization,
        )
    except MechanismError as error:
        raise MechanismError(f"{path}: {error}") from None
    omitted.warn(path)
    return complete


def _ground_contact(
    model: Model, colliders: Sequence[Collider], surface: Surface, material: dict[str, float]
) -> GroundContact:
    bodies, centers, radii = [], [], []
    for place, points, *_ in colliders:
        turn = rotation_matrix(place.quaternion)
        for point in points:
            bodies.append(place.body)
            centers.append(place.position + turn @ np.asarray(point.center))
            radii.append(point.radius)
    return GroundContact(
        tuple(bodies),
        jnp.asarray(np.array(centers), model.dtype),
        jnp.asarray(radii, model.dtype),
        ContactMaterial.of(model, **material),
        surface,
    )
