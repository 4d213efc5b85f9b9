"""Contacts for drawing: the ground under a motion, the spheres that touch it, and the contact forces."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from jaxdyn.compute import stored_jit
from jaxdyn.dynamics.contact import Contact, GroundContact, SphereContact
from jaxdyn.dynamics.contact.points import contact_forces
from jaxdyn.dynamics.contact.surfaces import HalfSpace, Surface
from jaxdyn.dynamics.system import State
from jaxdyn.io.shapes.solids import Mesh, revolved
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.view.skeleton import Mechanism, Placed, Values, between_records, by_rows, model_of
from jaxdyn.view.staging import horizontal_axes, round_length

_CELLS = 24  # along each side of the drawn part of a surface
_NEWTON_STEPS = 3  # of the height of a surface; one is enough for planes and height fields
_REACH = 2.0  # of the picture below or above the motion, as a multiple of its size
_ARROW = 0.3  # length of the arrow of the weight, as a fraction of the size of the picture
_MOST_WEIGHTS = 3.0  # the longest arrow
_STANDARD_GRAVITY = 9.81  # m/s^2, for mechanisms without gravity


class Ground(NamedTuple):
    """Part of a surface of the ground under a motion.

    Attributes:
        points: Points of the surface in rows and columns, ground axes, m.
        normal: Normal of a plane; None for another surface.
    """

    points: Float[np.ndarray, "rows columns 3"]
    normal: Float[np.ndarray, "3"] | None


class Spheres(NamedTuple):
    """Spheres of all contacts; a pair of spheres has two of them.

    Attributes:
        bodies: Index of the body of each sphere, -1 for the ground.
        centers: Centers on body axes, m.
        radii: Radii, m; zero for a point.
        contacts: Index of the contact of each sphere, in the order of `jaxdyn.dynamics.contact_forces`.
    """

    bodies: Int[np.ndarray, "n"]
    centers: Float[np.ndarray, "n 3"]
    radii: Float[np.ndarray, "n"]
    contacts: Int[np.ndarray, "n"]


class Touching(NamedTuple):
    """Contacts of one sample at the instants of a motion.

    Attributes:
        positions: Contact points, ground axes, m.
        forces: Forces on the first body of each contact, N; zero if the velocities are not known.
        depths: Depths of penetration, m; negative without contact.
    """

    positions: Float[np.ndarray, "instants contacts 3"]
    forces: Float[np.ndarray, "instants contacts 3"]
    depths: Float[np.ndarray, "instants contacts"]


def contacts_of(mechanism: Mechanism) -> list[Contact]:
    """The contacts among the forces of a system; a model has none."""
    return [force for force in getattr(mechanism, "forces", ()) if isinstance(force, Contact)]


def spheres_of(mechanism: Mechanism) -> Spheres:
    """The spheres of all contacts of a system."""
    rows, first = [(np.zeros(0, int), np.zeros((0, 3)), np.zeros(0), np.zeros(0, int))], 0
    for force in contacts_of(mechanism):
        if isinstance(force, GroundContact):
            sides = [(force.bodies, force.centers, force.radii)]
        elif isinstance(force, SphereContact):
            sides = [
                (force.bodies_a, force.centers_a, force.radii_a),
                (force.bodies_b, force.centers_b, force.radii_b),
            ]
        else:  # the geometry of other kinds of contact is not known
            sides = []
        rows += [(*map(np.asarray, side), first + np.arange(len(side[0]))) for side in sides]
        first += len(force.names(model_of(mechanism)))
    return Spheres(*(np.concatenate(column) for column in zip(*rows, strict=True)))


def centers_at(spheres: Spheres, placed: Placed, sample: int, time: int) -> Float[np.ndarray, "n 3"]:
    """Centers (m) of spheres on ground axes, at one record of one sample."""
    carried = spheres.bodies != GROUND
    turned = np.einsum("nij,nj->ni", placed.rotations[sample, time, spheres.bodies], spheres.centers)
    moved = placed.origins[sample, time, spheres.bodies] + turned
    return np.where(carried[:, None], moved, spheres.centers)


def grounds_under(mechanism: Mechanism, low: Float[np.ndarray, "3"], high: Float[np.ndarray, "3"]) -> list[Ground]:
    """The surfaces of the ground of a system under a box, each of them once.

    Args:
        mechanism: A system; a model has no ground.
        low, high: Corners of the box around the motion, m.
    """
    surfaces = [force.surface for force in contacts_of(mechanism) if isinstance(force, GroundContact)]
    dtype = model_of(mechanism).dtype
    with jax.enable_x64(dtype == np.float64):
        grounds = [_ground(surface, low, high, dtype) for surface in surfaces]
    different = {ground.points.tobytes(): ground for ground in grounds if np.all(np.isfinite(ground.points))}
    return list(different.values())


def with_ground(
    mechanism: Mechanism, low: Float[np.ndarray, "3"], high: Float[np.ndarray, "3"]
) -> tuple[list[Ground], Float[np.ndarray, "3"], Float[np.ndarray, "3"]]:
    """The surfaces of the ground of a system under a motion, and the corners (m) of the box around both.

    Args:
        mechanism: A system; a model has no ground.
        low, high: Corners of the box around the motion, m; the part of the ground that is far away from it is left out.
    """
    reach = _REACH * float((high - low).max())
    lowest, highest = low - reach, high + reach
    grounds: list[Ground] = []
    for _ in range(2):  # ground far below a motion makes the box higher, and thereby wider
        grounds = grounds_under(mechanism, low, high)
        if not grounds:
            break
        points = np.concatenate([np.stack([low, high]), *(ground.points.reshape(-1, 3) for ground in grounds)])
        low, high = np.maximum(points.min(axis=0), lowest), np.minimum(points.max(axis=0), highest)
        middle, half = 0.5 * (low + high), 0.5 * (high - low)
        half = np.maximum(half, 0.5 * half.max())
        low, high = middle - half, middle + half
    return grounds, low, high


def touching(
    mechanism: Mechanism, time: Values, q: Values, v: Values | None, instants: Values, between: Values
) -> Touching | None:
    """Contacts of one sample at the instants of an animation; None for a mechanism without contacts.

    Forces and depths are those of the records, interpolated linearly. The forces of interpolated states would be wrong while a body
    strikes the ground.

    Args:
        mechanism: A system; a model has no contacts.
        time: Times (T,) of the records, s.
        q, v: Coordinates (T, nq) and velocities (T, nv) of the records; forces are zero without velocities.
        instants: Instants (instants,), s.
        between: Coordinates (instants, nq) at the instants.
    """
    if not contacts_of(mechanism):
        return None
    before, after, share = between_records(time, instants)
    ends, model = np.stack([before, after]), model_of(mechanism)
    speeds = np.zeros((*ends.shape, model.nv)) if v is None else np.asarray(v)[ends]
    still = np.zeros((1, len(before), model.nv))
    with jax.enable_x64(model.dtype == np.float64):
        _, forces, depths = by_rows(_points, model, (mechanism,), np.asarray(time)[ends], np.asarray(q)[ends], speeds)
        (positions,), *_ = by_rows(
            _points, model, (mechanism,), np.asarray(instants)[None], np.asarray(between)[None], still
        )
    share = share[:, None]
    mixed = (1.0 - share[..., None]) * forces[0] + share[..., None] * forces[1]
    deep = (1.0 - share) * depths[0] + share * depths[1]
    return Touching(positions, np.zeros_like(mixed) if v is None else mixed, deep)


@stored_jit
def _points(system, time, q, v):
    points = jax.vmap(lambda t, q, v: contact_forces(system, State(q, v), t))(time, q, v)
    return points.position, points.force, points.depth


class Arrows(NamedTuple):
    """Scale of the arrows of contact forces.

    Attributes:
        length: Length of the arrow of the weight, m.
        weight: Weight of the mechanism, N.
    """

    length: float
    weight: float

    @staticmethod
    def of(mechanism: Mechanism, size: float) -> "Arrows":
        """The scale in a picture whose longest side is `size` (m)."""
        model = model_of(mechanism)
        gravity = float(np.linalg.norm(np.asarray(model.gravity))) or _STANDARD_GRAVITY
        return Arrows(round_length(_ARROW * size), max(float(np.sum(np.asarray(model.mass))) * gravity, 1e-9))

    @property
    def legend(self) -> str:
        """The scale in words."""
        return f"contact forces: {self.length:g} m is {self.weight:.3g} N, the weight; longest arrow {_MOST_WEIGHTS:g} weights"

    def vectors(self, forces: Float[np.ndarray, "*n 3"]) -> Float[np.ndarray, "*n 3"]:
        """Arrows (m) of forces (N); forces above three times the weight have the longest arrow."""
        forces = np.nan_to_num(forces)
        size = np.linalg.norm(forces, axis=-1, keepdims=True)
        most = _MOST_WEIGHTS * self.weight
        return forces * (self.length / self.weight) * np.minimum(1.0, most / np.maximum(size, 1e-30))


def arrow() -> Mesh:
    """Arrow of length 1 along the z-axis around the origin, with a shaft of radius 1."""
    profile = np.array([[0.0, -0.5], [1.0, -0.5], [1.0, 0.22], [2.6, 0.22], [0.0, 0.5]])
    return revolved(profile, sides=12)


def lines_of(ground: Ground) -> Float[np.ndarray, "lines 2 3"]:
    """The lines between neighboring points of a ground."""
    points = ground.points
    along = np.stack([points[:-1], points[1:]], axis=-2), np.stack([points[:, :-1], points[:, 1:]], axis=-2)
    return np.concatenate([part.reshape(-1, 2, 3) for part in along])


def _ground(surface: Surface, low: np.ndarray, high: np.ndarray, dtype: np.dtype) -> Ground:
    middle, half = 0.5 * (low + high), 0.5 * (high - low)
    steps = np.linspace(-1.0, 1.0, _CELLS + 1)
    if isinstance(surface, HalfSpace):
        normal = np.asarray(surface.normal, float)
        normal = normal / np.linalg.norm(normal)
        side, front = horizontal_axes(normal)
        origin = middle - (normal @ middle - float(surface.height)) * normal
        across = np.multiply.outer(steps * float(np.abs(side) @ half), side)
        along = np.multiply.outer(steps * float(np.abs(front) @ half), front)
        return Ground(origin + across[:, None] + along[None], normal)
    x, y = np.meshgrid(middle[0] + steps * half[0], middle[1] + steps * half[1], indexing="ij")
    z = _heights(surface, jnp.asarray(np.stack([x, y], axis=-1).reshape(-1, 2), dtype))
    return Ground(np.stack([x, y, np.asarray(z, float).reshape(x.shape)], axis=-1), None)


@stored_jit
def _heights(surface, points):
    """Heights z at which the gap of a surface is zero, by Newton's method."""

    def height(xy):
        z = jnp.zeros_like(xy[0])
        for _ in range(_NEWTON_STEPS):
            gap, slope = jax.value_and_grad(lambda z: surface.gap(jnp.append(xy, z)))(z)
            z = z - gap / slope
        return z

    return jax.vmap(height)(points)
