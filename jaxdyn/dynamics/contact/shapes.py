"""Points, spheres, rims and ellipsoids that represent the shapes of bodies in contacts.

A capsule is represented by the spheres at its ends, a box by its corners, and a cylinder by its two rims. A rim touches the ground
with its lowest point, wherever that is on the body, so a wheel rolls. All functions return a tuple of `ContactPoint`. Where shapes
are given, the tuples of several shapes may be added, or given as a list.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

Point = Sequence[float] | np.ndarray

_ORIGIN = (0.0, 0.0, 0.0)


class ContactPoint(NamedTuple):
    """Sphere on a body, a point if the radius is zero, or an ellipsoid or a rim if there are axes.

    Attributes:
        body: Name of the body or frame.
        center: Center on the axes of the body or frame, relative to its origin, m.
        radius: Radius of the sphere, or distance of the surface from the ellipsoid or rim, m.
        axes: The three semi-axes of an ellipsoid on the axes of the body or frame, m; the last one is zero for a rim.
    """

    body: str
    center: tuple[float, float, float]
    radius: float = 0.0
    axes: tuple[tuple[float, float, float], ...] = ((0.0, 0.0, 0.0),) * 3


# The points of one shape, or of several shapes, each of which is a point or the tuple of its points.
Shapes = Sequence[ContactPoint | Sequence[ContactPoint]]


def contact_points_of(shapes: Shapes) -> list[ContactPoint]:
    """The points of all shapes."""
    return [point for shape in shapes for point in ((shape,) if isinstance(shape, ContactPoint) else shape)]


def contact_sphere(body: str, *, center: Point = _ORIGIN, radius: float = 0.0) -> tuple[ContactPoint, ...]:
    """One sphere; a point if the radius is zero.

    Args:
        body: Name of the body or frame.
        center: Center on the axes of the body or frame, m.
        radius: Radius, m.
    """
    return (ContactPoint(body, _triple(center), float(radius)),)


def contact_capsule(body: str, ends: tuple[Point, Point], radius: float) -> tuple[ContactPoint, ...]:
    """The spheres at both ends of a capsule.

    Args:
        body: Name of the body or frame.
        ends: Centers of the two spheres on the axes of the body or frame, m.
        radius: Radius, m.
    """
    return tuple(ContactPoint(body, _triple(end), float(radius)) for end in ends)


def contact_box(
    body: str, size: Point, *, center: Point = _ORIGIN, rotation: np.ndarray | None = None
) -> tuple[ContactPoint, ...]:
    """The eight corners of a box.

    Args:
        body: Name of the body or frame.
        size: Full lengths of the edges, m.
        center: Center on the axes of the body or frame, m.
        rotation: Rotation matrix from the axes of the box to those of the body or frame; the identity if not given.
    """
    signs = np.stack(np.meshgrid([-0.5, 0.5], [-0.5, 0.5], [-0.5, 0.5], indexing="ij"), axis=-1).reshape(-1, 3)
    return _placed(body, signs * np.asarray(size, float), center, rotation)


def contact_cylinder(
    body: str, radius: float, length: float, *, center: Point = _ORIGIN, rotation: np.ndarray | None = None
) -> tuple[ContactPoint, ...]:
    """Both rims of a cylinder along the z-axis: a wheel, a roller, a coin.

    Args:
        body: Name of the body or frame.
        radius, length: Radius and length, m.
        center: Center on the axes of the body or frame, m.
        rotation: Rotation matrix from the axes of the cylinder to those of the body or frame; the identity if not given.
    """
    ends = _placed(body, np.array([[0.0, 0.0, -0.5], [0.0, 0.0, 0.5]]) * length, center, rotation)
    return tuple(rim for end in ends for rim in contact_torus(body, radius, 0.0, center=end.center, rotation=rotation))


def contact_torus(
    body: str, radius: float, tube_radius: float, *, center: Point = _ORIGIN, rotation: np.ndarray | None = None
) -> tuple[ContactPoint, ...]:
    """Torus about the z-axis, such as a tire.

    Args:
        body: Name of the body or frame.
        radius: Radius of the circle in the middle of the tube, m.
        tube_radius: Radius of the tube, m.
        center: Center on the axes of the body or frame, m.
        rotation: Rotation matrix from the axes of the torus to those of the body or frame; the identity if not given.
    """
    semi_axes = (radius, radius, 0.0)
    return contact_ellipsoid(body, semi_axes, center=center, rotation=rotation, rounding=tube_radius)


def contact_ellipsoid(
    body: str, semi_axes: Point, *, center: Point = _ORIGIN, rotation: np.ndarray | None = None, rounding: float = 0.0
) -> tuple[ContactPoint, ...]:
    """Ellipsoid along the x, y and z-axis.

    Args:
        body: Name of the body or frame.
        semi_axes: The three semi-axes, m; only the last one may be zero, for a disc.
        center: Center on the axes of the body or frame, m.
        rotation: Rotation matrix from the axes of the ellipsoid to those of the body or frame; the identity if not given.
        rounding: Distance of the surface from the ellipsoid, m.
    """
    ends = _placed(body, np.diag(np.asarray(semi_axes, float)), _ORIGIN, rotation)
    return (ContactPoint(body, _triple(center), float(rounding), tuple(end.center for end in ends)),)


def _placed(body: str, points: np.ndarray, center: Point, rotation: np.ndarray | None) -> tuple[ContactPoint, ...]:
    turned = points if rotation is None else points @ np.asarray(rotation, float).T
    return tuple(ContactPoint(body, _triple(point + np.asarray(center, float))) for point in turned)


def _triple(point: Point) -> tuple[float, float, float]:
    x, y, z = (float(value) for value in point)
    return x, y, z
