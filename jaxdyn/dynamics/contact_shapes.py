"""Points and spheres that represent the shapes of bodies in contacts.

A contact takes place at spheres and points of bodies. A capsule is represented by the spheres at its ends, a box by its corners,
and a cylinder by points on its rims. All functions return a tuple of `ContactPoint`, so that the tuples of several shapes can be
added.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

Point = Sequence[float] | np.ndarray

_ORIGIN = (0.0, 0.0, 0.0)


class ContactPoint(NamedTuple):
    """Sphere on a body, or a point if the radius is zero.

    Attributes:
        body: Name of the body or frame.
        center: Center on the axes of the body or frame, relative to its origin, m.
        radius: Radius, m.
    """

    body: str
    center: tuple[float, float, float]
    radius: float = 0.0


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
    body: str,
    radius: float,
    length: float,
    *,
    center: Point = _ORIGIN,
    rotation: np.ndarray | None = None,
    points_per_rim: int = 8,
) -> tuple[ContactPoint, ...]:
    """Points on both rims of a cylinder along the z-axis.

    Args:
        body: Name of the body or frame.
        radius, length: Radius and length, m.
        center: Center on the axes of the body or frame, m.
        rotation: Rotation matrix from the axes of the cylinder to those of the body or frame; the identity if not given.
        points_per_rim: Number of points on each rim.
    """
    angles = 2.0 * np.pi * np.arange(points_per_rim) / points_per_rim
    rim = np.stack([radius * np.cos(angles), radius * np.sin(angles), np.zeros(points_per_rim)], axis=1)
    half = np.array([0.0, 0.0, 0.5 * length])
    return _placed(body, np.concatenate([rim - half, rim + half]), center, rotation)


def _placed(body: str, points: np.ndarray, center: Point, rotation: np.ndarray | None) -> tuple[ContactPoint, ...]:
    turned = points if rotation is None else points @ np.asarray(rotation, float).T
    return tuple(ContactPoint(body, _triple(point + np.asarray(center, float))) for point in turned)


def _triple(point: Point) -> tuple[float, float, float]:
    x, y, z = (float(value) for value in point)
    return x, y, z
