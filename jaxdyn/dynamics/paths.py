"""Paths of tendons, belts and cylinders: lengths that depend on the configuration, and moment arms; theory.md (H18)-(H20).

A path is a linear combination of coordinates of joints, a line through points of bodies, or the sum of both. Springs and actuators
that pull along paths know nothing but the length and its derivatives.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, floating, zero_safe_norm
from jaxdyn.compute.hints import traced_once
from jaxdyn.dynamics import inverse, kinematics
from jaxdyn.dynamics.kinematics import Motion, Placements
from jaxdyn.errors import check_name
from jaxdyn.mechanism.joints.base import Joint
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import invalid, plain, quantity
from jaxdyn.mechanism.topology import GROUND, Topology
from jaxdyn.spatial.rotation import cross
from jaxdyn.spatial.sixvector import velocity_at_point

Scalar = Float[Array, ""]
Vector3 = Float[Array, "3"]
# Moment arms by the names of joints: one value, or one per velocity component.
JointArms = Mapping[str, Sequence[float]]

_ZERO = (0.0, 0.0, 0.0)
_ARC = 13  # points of an arc in a drawing


@dataclasses.dataclass(frozen=True)
class Waypoint:
    """A point of a body through which a line goes, or a sphere or cylinder around which it goes between two such points.

    Attributes:
        body: Name of the body or frame, or "ground".
        point: Position on the axes of this body or frame; the center of a sphere or cylinder.
        radius: Radius of a sphere or cylinder, which the line touches only if it would otherwise penetrate it; zero for a point.
        axis: Direction of the axis of a cylinder, which is infinitely long; zero for a sphere.
        side: Point outside of the sphere or cylinder, on the same axes as `point`. The line goes the longer way around if this
            point is seen from the center between the opposites of the neighbors; it goes the shorter way otherwise.
        factor: Factor of the length from here on; a new line begins here. 1/2 belongs to a line behind a movable pulley, which
            carries half of the force. By default, the line continues, and the first one has the factor 1.

    Source: theory.md (H18).
    """

    body: str
    point: tuple[float, float, float] = dataclasses.field(default=_ZERO, metadata=quantity("m"))
    radius: float = dataclasses.field(default=0.0, metadata=quantity("m", minimum=0.0))
    axis: tuple[float, float, float] = dataclasses.field(default=_ZERO, metadata=quantity("1"))
    side: tuple[float, float, float] | None = dataclasses.field(default=None, metadata=quantity("m"))
    factor: float | None = dataclasses.field(default=None, metadata=quantity("1"))

    def __post_init__(self):
        if not self.radius and (any(self.axis) or self.side is not None):
            raise ValueError(
                f"waypoint on {self.body!r}: a point has no axis and no side; give a radius, or leave them out"
            )
        if self.side is not None and np.linalg.norm(np.subtract(self.side, self.point)) <= self.radius:
            raise ValueError(f"waypoint on {self.body!r}: side is inside; lines inside of obstacles are not supported")


class PathMotion(NamedTuple):
    """Length of a path and its change.

    Attributes:
        length: Length l.
        rate: Its rate.
        drift: Its second derivative with respect to time at zero generalized acceleration.
        arms: Moment arms dl/dq of all velocity components.
        wrench: Part of the moment arms that belongs to the lines: 6-vector (moment about the reference point P; force) on each
            body, ground axes, of a unit of force that lengthens the path.
    """

    length: Scalar
    rate: Scalar
    drift: Scalar
    arms: Float[Array, "nv"]
    wrench: Float[Array, "nb 6"]


class Path(eqx.Module):
    """A length l = arms . q + (sum of factor * length of each line), see `Waypoint`; `Path.of` makes it from names.

    Attributes:
        columns: Index of the velocity component of each moment arm.
        arms: Moment arms of the coordinates.
        bodies: Index of the body of each point, -1 for the ground.
        points: Points on body axes, relative to the body origin O': those of lines, centers of obstacles, points on the axes of
            cylinders, and points beside obstacles.
        parts: Parts of the lines: index of the line, and of the points at both ends; then the center of an obstacle between them, a
            second point of its axis and the point beside it, each of them -1 if there is none.
        radii: Radius of the obstacle of each part.
        factors: Factor of the length of each line.

    Source: theory.md (H18)-(H20).
    """

    columns: tuple[int, ...] = eqx.field(static=True, converter=plain)
    arms: Float[Array, "terms"] = eqx.field(converter=floating, metadata=quantity("1"))
    bodies: tuple[int, ...] = eqx.field(static=True, converter=plain)
    points: Float[Array, "np 3"] = eqx.field(converter=floating, metadata=quantity("m"))
    parts: tuple[tuple[int, ...], ...] = eqx.field(static=True, converter=plain)
    radii: Float[Array, "parts"] = eqx.field(converter=floating, metadata=quantity("m", minimum=0.0))
    factors: Float[Array, "lines"] = eqx.field(converter=floating, metadata=quantity("1"))

    @staticmethod
    def of(model: Model, joints: JointArms, waypoints: Sequence[Waypoint], place: str) -> "Path":
        """The path of joints and waypoints.

        Args:
            model: The mechanism.
            joints: Moment arms by the names of joints.
            waypoints: Waypoints in their order.
            place: Owner of the path, for messages.

        Raises:
            UnknownName: There is no such joint, body or frame.
            ValueError: A joint has another number of velocity components or no coordinates, or an obstacle is not between points.
        """
        held: list[tuple[int, Array]] = []
        parts: list[tuple[int, ...]] = []
        lengths: tuple[list[float], list[float]] = [], []  # radii, factors
        last, obstacle, fits = -1, None, True

        def hold(body: str, point: Sequence[float] | np.ndarray | None) -> int:
            held.extend([] if point is None else [model.locate(body, point)])
            return -1 if point is None else len(held) - 1

        for given in waypoints:
            index, begins = hold(given.body, given.point), last < 0 or given.factor is not None
            fits = fits and sum((begins, given.radius > 0.0, obstacle is not None)) < 2
            if given.radius:
                along = np.array(given.axis) / (np.linalg.norm(given.axis) or 1.0)
                end = hold(given.body, given.point + along if any(given.axis) else None)
                obstacle = given.radius, (index, end, hold(given.body, given.side))
                continue
            if begins:
                lengths[1].append(1.0 if given.factor is None else given.factor)
            else:
                radius, around = obstacle or (0.0, (-1, -1, -1))
                parts.append((len(lengths[1]) - 1, last, index, *around))
                lengths[0].append(radius)
            last, obstacle = index, None
        if not fits or obstacle or len({part[0] for part in parts}) < len(lengths[1]):
            raise ValueError(f"{place}: a line needs two points, and an obstacle a point before and after it")
        terms = arms_of_joints(model.topology, joints, place)
        for column, _ in terms:
            body = model.topology.body_of_column[column]
            if not has_rates(model.topology.joint_classes[body]):
                joint = model.topology.joint_names[body]
                raise ValueError(
                    f"{place}: joint {joint!r} has no coordinates with these rates; give a path of waypoints"
                )
        columns, arms = zip(*terms, strict=True) if terms else ((), ())
        bodies, points = zip(*held, strict=True) if held else ((), ())
        points = jnp.asarray(np.reshape(points, (-1, 3)), float)
        return Path(columns, np.array(arms, float), bodies, points, tuple(parts), *map(np.array, lengths))

    def waypoints(self, model: Model) -> tuple[Waypoint, ...]:
        """The waypoints from which `Path.of` makes this path.

        Args:
            model: The mechanism.
        """
        points, found, begun = np.asarray(self.points), [], -1

        def named(k: int) -> tuple[str, Any]:
            return model.topology.body_name(self.bodies[k]), tuple(points[k].tolist())

        for (line, start, end, center, tip, side), radius in zip(self.parts, np.asarray(self.radii), strict=True):
            if line != begun:
                factor = float(self.factors[line])
                found.append(Waypoint(*named(start), factor=None if line == 0 and factor == 1.0 else factor))
            if center >= 0:
                axis = _ZERO if tip < 0 else tuple((points[tip] - points[center]).tolist())
                found.append(Waypoint(*named(center), float(radius), axis, None if side < 0 else named(side)[1]))
            found.append(Waypoint(*named(end)))
            begun = line
        return tuple(found)

    def validate(self, model: Model) -> str | None:
        """Error message with a remedy if this path does not fit a model, else None."""
        sizes = {"terms": len(self.columns), "np": len(self.bodies), "parts": len(self.parts)}
        sizes["lines"] = len({part[0] for part in self.parts})
        wrong = model.topology.error_with_columns(self.columns) or model.topology.error_with_bodies(*self.bodies)
        least, most = (0, 0, 0, -1, -1, -1), (sizes["lines"], *[len(self.bodies)] * 5)
        known = (len(part) == 6 and np.all(np.less_equal(least, part) & np.less(part, most)) for part in self.parts)
        if wrong is None and not all(known):
            wrong = "a part of its path has no such line or point; make the path by Path.of"
        return wrong or invalid(self, sizes)

    def length(self, model: Model, q: Float[Array, "nq"], placed: Placements) -> Scalar:
        """Length l, m, or rad without waypoints.

        Args:
            model: The mechanism.
            q: Coordinates.
            placed: Placements of the bodies.
        """
        in_joints = dot(self.arms, moved_along_columns(model.topology, q)[np.array(self.columns, int)])
        return in_joints + self._length_of_lines(self._places(placed)[1]) if self.bodies else in_joints

    @traced_once
    def at(self, model: Model, moving: Motion) -> PathMotion:
        """Length, its rates and the moment arms.

        Args:
            model: The mechanism.
            moving: Motion of the model.
        """
        arms, wrench = _sums(self.columns, model.nv, self.arms), jnp.zeros_like(moving.velocity)
        length, rate = self.length(model, moving.q, moving.placements), dot(arms, moving.v)
        if not self.bodies:
            return PathMotion(length, rate, jnp.zeros_like(rate), arms, wrench)
        from_references, x = self._places(moving.placements)
        held = list(zip(self.bodies, from_references, strict=True))
        moves, bends = (jnp.stack([of(moving, *one) for one in held]) for of in (point_velocity, point_drift))
        # The gradient, and its rate along the motion.
        slopes, turning = jax.jvp(jax.grad(self._length_of_lines), (x,), (moves,))
        forces = jnp.concatenate([cross(from_references, slopes), slopes], axis=1)
        wrench = _sums(self.bodies, model.nb, forces)
        arms = arms + inverse.project(model, moving.placements, wrench)
        drift = jnp.sum(slopes * bends) + jnp.sum(turning * moves)
        return PathMotion(length, rate + jnp.sum(slopes * moves), drift, arms, wrench)  # (H19)

    def stiffness_across(self, model: Model, moving: Motion, tension: Scalar) -> Float[Array, "nv nv"]:
        """Positive semidefinite stiffness against transverse motion, of the parts under tension without an obstacle; (I14).

        Args:
            model: The mechanism.
            moving: Motion of the model.
            tension: Force that shortens the path; pressure has no such stiffness.
        """
        total = jnp.zeros((model.nv, model.nv), moving.v.dtype)
        straight = [part[:3] for part in self.parts if part[3] < 0]
        if not straight:
            return total
        from_references, x = self._places(moving.placements)
        w, nu = moving.placements.columns[None, :, :3], moving.placements.columns[None, :, 3:]
        moves = np.stack([moved_columns(model, body) for body in self.bodies])
        rows = jnp.where(moves[..., None], nu + cross(w, from_references[:, None]), 0.0)  # (E4)
        for line, i, j in straight:
            _, per_length = zero_safe_norm(x[i] - x[j])
            # Components that move both ends turn the tension with the line (H5).
            relative = jnp.where((moves[i] ^ moves[j])[:, None], rows[i] - rows[j], 0.0)
            n = per_length * (x[i] - x[j])
            across = relative - jnp.outer(dot(relative, n), n)
            total = total + jnp.maximum(self.factors[line] * tension, 0.0) * per_length * dot(across, across.T)
        return total

    def _places(self, placed: Placements) -> tuple[Float[Array, "np 3"], Float[Array, "np 3"]]:
        """Arms of all points from the reference points of their trees, and positions from one of these points, so that no digits
        are lost far from the ground origin."""
        held = zip(self.bodies, self.points, strict=True)
        both = [kinematics.point_on_body(placed, body, point) for body, point in held]
        first = next((placed.reference[body] for body in self.bodies if body != GROUND), jnp.zeros_like(self.points[0]))
        return jnp.stack([arm for _, arm in both]), jnp.stack([(reference - first) + arm for reference, arm in both])

    def pieces(self, x: Float[Array, "np 3"]) -> Float[Array, "pieces 2 3"]:
        """Ends of straight pieces, of which a drawing of the lines consists; there are several of them along an arc.

        Args:
            x: Positions of all points.
        """
        found = [jnp.zeros((0, 2, 3), x.dtype)]
        for k, (_, i, j, center, *_) in enumerate(self.parts):
            points = x[np.array([i, j])] if center < 0 else x[center][None] + points_around(*self._obstacle(k, x))
            found.append(jnp.stack([points[:-1], points[1:]], axis=1))
        return jnp.concatenate(found)

    def _length_of_lines(self, x: Float[Array, "np 3"]) -> Scalar:
        total = jnp.zeros((), x.dtype)
        for k, (line, i, j, center, *_) in enumerate(self.parts):
            length = zero_safe_norm(x[i] - x[j])[0] if center < 0 else length_around(*self._obstacle(k, x))
            total = total + self.factors[line] * length  # (H18)
        return total

    def _obstacle(self, k: int, x: Float[Array, "np 3"]) -> tuple[Any, ...]:
        """Arguments of `length_around` for a part of a line."""
        _, i, j, center, *more = self.parts[k]
        axis, side = (None if other < 0 else x[other] - x[center] for other in more)
        return x[i] - x[center], x[j] - x[center], self.radii[k], axis, side


@traced_once
def length_around(
    start: Vector3, end: Vector3, radius: Scalar, axis: Vector3 | None = None, side: Vector3 | None = None
) -> Scalar:
    """Length of the taut line between two points that goes around a sphere, or around an infinite cylinder.

    It consists of the tangents from both points and an arc, or is straight if it does not touch, and if a point is inside.

    Args:
        start, end: Points relative to the center.
        radius: Radius of the sphere or cylinder.
        axis: Vector along the axis of a cylinder; None for a sphere.
        side: Point relative to the center. If it is seen from the center between the opposites of both points, the line goes the
            longer way around, on this side; otherwise, and if it is None, the shorter way.

    Source: theory.md (H20).
    """
    height = jnp.zeros_like(radius)
    if axis is not None:
        axis = zero_safe_norm(axis)[1] * axis
        height = dot(axis, end - start)
        start, end = (x - dot(axis, x) * axis for x in (start, end))
    straight = zero_safe_norm(end - start)[0]
    outside = jnp.minimum(dot(start, start), dot(end, end)) > radius**2
    a, b = (jnp.where(outside, x, 2.0 * radius * np.eye(3, dtype=x.dtype)[k]) for k, x in enumerate((start, end)))
    tangents = [jnp.sqrt(dot(x, x) - radius**2) for x in (a, b)]
    turned, touching = cross(a, b), sum(jnp.arctan2(tangent, radius) for tangent in tangents)
    angle = jnp.arctan2(zero_safe_norm(turned)[0], dot(a, b))
    arc = angle - touching
    if side is not None:
        # The long way, if the side is a combination of -start and -end.
        opposite = jnp.maximum(dot(turned, cross(side, b)), dot(turned, cross(a, side))) < 0.0
        arc = jnp.where(opposite, 2.0 * np.pi - angle - touching, arc)
    bent = outside & (arc > 0.0)
    planar = jnp.where(bent, sum(tangents) + radius * arc, straight)
    return planar if axis is None else zero_safe_norm(jnp.stack([planar, height]))[0]  # (H20)


def points_around(
    start: Vector3, end: Vector3, radius: Scalar, axis: Vector3 | None = None, side: Vector3 | None = None
) -> Float[Array, "points 3"]:
    """Points of the line with the length `length_around`, for the same arguments: both ends, and points along the arc.

    The gradients of the length with respect to the ends are the directions of the line there, so a tangent touches at its point
    that is nearest to the axis. If the line is straight, all points of the arc are this one.
    """
    length, slopes = jax.value_and_grad(length_around, (0, 1))(start, end, radius, axis, side)
    axis = jnp.zeros_like(start) if axis is None else zero_safe_norm(axis)[1] * axis
    flat = [x - dot(axis, x) * axis for x in (start, end, *slopes)]
    slope, per_slope = zero_safe_norm(flat[2])  # of the projection along the axis
    reaches = [jnp.clip(dot(flat[k], flat[k + 2]) * per_slope**2, 0.0, length) for k in (0, 1)]
    first, last = start - reaches[0] * slopes[0], end - reaches[1] * slopes[1]
    radial = first - dot(axis, first) * axis
    distance, per_distance = zero_safe_norm(radial)
    share = np.linspace(0.0, 1.0, _ARC, dtype=start.dtype)
    angle = share * (length - sum(reaches)) * slope * per_distance
    arc = jnp.outer(jnp.cos(angle), radial) - jnp.outer(jnp.sin(angle), distance * per_slope * flat[2])
    arc = arc + jnp.outer(dot(axis, first) + share * dot(axis, last - first), axis)
    return jnp.concatenate([start[None], arc, end[None]])


def _sums(owners: Sequence[int], count: int, values: Float[Array, "n *rest"]) -> Float[Array, "count *rest"]:
    """Sum of the values of each owner, of which there are `count`."""
    return dot(np.equal.outer(np.arange(count), np.array(owners, int)).astype(values.dtype), values)


def point_velocity(moving: Motion, body: int, from_reference: Vector3) -> Vector3:
    """Velocity of a point of a body or of the ground.

    Args:
        moving: Motion of the model.
        body: Index of the body, -1 for the ground.
        from_reference: Vector from the reference point of the tree of the body.
    """
    if body == GROUND:
        return jnp.zeros_like(from_reference)
    return velocity_at_point(moving.velocity[body], from_reference)


def point_drift(moving: Motion, body: int, from_reference: Vector3) -> Vector3:
    """Acceleration of a point at zero generalized acceleration; the arguments are those of `point_velocity`."""
    if body == GROUND:
        return jnp.zeros_like(from_reference)
    turned = cross(moving.velocity[body, :3], velocity_at_point(moving.velocity[body], from_reference))
    return velocity_at_point(moving.bias[body], from_reference) + turned


def moved_columns(model: Model, body: int) -> np.ndarray:
    """Mask of the velocity components that move a body, -1 for the ground."""
    return np.zeros(model.nv, bool) if body == GROUND else model.topology.column_moves_body[:, body]


def moved_along_columns(topology: Topology, q: Float[Array, "nq"]) -> Float[Array, "nv"]:
    """Coordinate whose rate is each velocity component; 0 for components of joints without such coordinates."""
    found = np.full(topology.nv, -1)
    for kind, column, coordinate in zip(topology.joint_classes, topology.v_starts, topology.q_starts, strict=False):
        if has_rates(kind):
            found[column : column + kind.nv] = np.arange(coordinate, coordinate + kind.nv)
    return jnp.where(found >= 0, q[np.maximum(found, 0)], 0.0)


def has_rates(kind: type[Joint]) -> bool:
    """True if each velocity component of a joint is the rate of one of its coordinates."""
    return kind.velocity_is_rate and kind.nq == kind.nv


def arms_of_joints(topology: Topology, joints: JointArms, place: str) -> list[tuple[int, float]]:
    """Velocity components and their moment arms.

    Args:
        topology: Topology of the mechanism.
        joints: Moment arms by the names of joints.
        place: Owner of the moment arms, for messages.

    Raises:
        UnknownName: There is no joint of a name.
        ValueError: A joint has another number of velocity components, or its motion is prescribed.
    """
    found: list[tuple[int, float]] = []
    for joint, values in joints.items():
        check_name("joint", joint, topology.joint_names, where=place)
        columns = np.flatnonzero(topology.body_of_column == topology.joint_names.index(joint)).tolist()
        if not columns:
            raise ValueError(f"{place}: the motion of joint {joint!r} is prescribed; leave the joint out")
        if len(values) not in (1, len(columns)):
            raise ValueError(
                f"{place}: joint {joint!r} has {len(columns)} velocity components; give one moment arm for each"
            )
        found += zip(columns, np.broadcast_to(values, len(columns)), strict=True)
    return found


def joints_of_arms(topology: Topology, columns: Sequence[int], arms: Sequence[float]) -> dict[str, tuple[float, ...]]:
    """Moment arms by the names of joints, from which `arms_of_joints` makes these arms.

    Args:
        topology: Topology of the mechanism.
        columns: Velocity components.
        arms: Moment arms.
    """
    joints: dict[str, tuple[float, ...]] = {}
    for column, arm in zip(columns, arms, strict=True):
        body = topology.body_of_column[column]
        own = np.array(joints.get(topology.joint_names[body], np.zeros(topology.joint_classes[body].nv)))
        own[column - topology.v_starts[body]] += arm
        joints[topology.joint_names[body]] = tuple(own.tolist())
    return joints
