"""Geometry for drawing a mechanism: sticks, joint axes and inertia ellipsoids, and their positions in a motion.

The bodies of a mechanism do not have a shape. Sticks connect joints with each other and with the frames of a body; the mass of a
body is drawn as the uniform solid ellipsoid with the same mass, center of mass and inertia. All results are NumPy arrays.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxdyn.compute import per_sample, stored_jit
from jaxdyn.constraints.kinds import Distance, LoopJoint
from jaxdyn.dynamics.constraint import Constraint
from jaxdyn.dynamics.drives import Actuators
from jaxdyn.dynamics.forces import Damper, Spring
from jaxdyn.dynamics.forces.tendons import Tendon
from jaxdyn.dynamics.kinematics import forward_kinematics
from jaxdyn.dynamics.paths import Path
from jaxdyn.dynamics.system import System
from jaxdyn.io.shapes.visuals import Visual
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.joints import Fixed, Free, Planar, Revolute, Spherical, Universal
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.spatial.inertia import planar_from_inertia, symmetric_matrix

Mechanism = Model | System
Values = Float[Array | np.ndarray, "..."]

_TURNING_IN_PLACE = (Revolute, Universal, Spherical, Fixed)  # the child origin stays at the joint point of the parent
_LOOSE = (Free, Planar)  # such a joint cannot be drawn as a rod


class Sticks(NamedTuple):
    """Straight lines of a mechanism, each between two points on bodies.

    Attributes:
        bodies: Bodies of both ends, -1 for the ground.
        points: Positions of both ends in the frames of their bodies, m.
    """

    bodies: Int[np.ndarray, "sticks 2"]
    points: Float[np.ndarray, "sticks 2 3"]


class Ellipsoids(NamedTuple):
    """Equivalent inertia ellipsoids of the bodies that have mass.

    Attributes:
        bodies: Indices of the bodies.
        centers: Centers of mass on body axes from the body origin, m.
        axes: Principal axes of inertia as columns, right-handed, on body axes.
        radii: Semi-axes along the principal axes, m, ascending; they are zero across a thin rod and for a point mass.
    """

    bodies: Int[np.ndarray, "n"]
    centers: Float[np.ndarray, "n 3"]
    axes: Float[np.ndarray, "n 3 3"]
    radii: Float[np.ndarray, "n 3"]


class Placed(NamedTuple):
    """Positions of the parts of a mechanism on ground axes, for many times and samples.

    Attributes:
        quaternions: Orientation [w, x, y, z] of each body, of norm 1.
        origins: Joint point of each body, m.
        rotations: Rotation matrix of each body.
        lines: Ends of each of the `sticks`, m.
        axes: Unit vectors of the `joint_axes`.
        force_lines: Ends of straight pieces of the `force_paths`, m.
    """

    quaternions: Float[np.ndarray, "samples times nb 4"]
    origins: Float[np.ndarray, "samples times nb 3"]
    rotations: Float[np.ndarray, "samples times nb 3 3"]
    lines: Float[np.ndarray, "samples times sticks 2 3"]
    axes: Float[np.ndarray, "samples times axes 3"]
    force_lines: Float[np.ndarray, "samples times pieces 2 3"]


def model_of(mechanism: Mechanism) -> Model:
    """The mechanism without forces and constraints."""
    return mechanism.model if isinstance(mechanism, System) else mechanism


def sticks(mechanism: Mechanism) -> Sticks:
    """The lines to draw: from the parent to the joint, along a prismatic joint, and from the last joint of a body to its frames.

    A free or planar joint has no line, and a body that carries neither joint nor frame is drawn to its center of mass. The
    constraints of a system add their rods, and lines from the bodies that a loop joint connects to that joint. Lines of length zero
    are omitted.
    """
    model = model_of(mechanism)
    topology, origin = model.topology, np.zeros(3)
    joint_points, com = np.asarray(model.placement.translation), np.asarray(model.com)
    loops = [line for constraint in getattr(mechanism, "constraints", ()) for line in _loop_lines(constraint)]
    rows = []
    for i, parent in enumerate(topology.parents):
        joint = model.joint(i).released()
        if not isinstance(joint, _LOOSE):
            rows.append((parent, origin, parent, joint_points[i]))
        if not isinstance(joint, _LOOSE + _TURNING_IN_PLACE):
            rows.append((parent, joint_points[i], i, origin))
    rows += loops
    for carrier, point in zip(topology.frame_bodies, np.asarray(model.frames.translation), strict=True):
        if carrier != GROUND:
            rows.append((carrier, origin, carrier, point))
    carriers = {*topology.parents, *topology.frame_bodies, *(line[0] for line in loops)}
    for i in sorted(set(range(topology.nb)) - carriers):
        rows.append((i, origin, i, com[i]))
    rows = [row for row in rows if row[0] != row[2] or np.any(row[1] != row[3])]
    return Sticks(
        np.array([(a, b) for a, _, b, _ in rows], dtype=int).reshape(-1, 2),
        np.array([(p, r) for _, p, _, r in rows], dtype=float).reshape(-1, 2, 3),
    )


def _loop_lines(constraint: Constraint) -> list[tuple[int, np.ndarray, int, np.ndarray]]:
    """Lines of a constraint as (body, point, body, point); a coupling has none."""
    if isinstance(constraint, Distance):
        return [(constraint.body_a, np.asarray(constraint.point_a), constraint.body_b, np.asarray(constraint.point_b))]
    if isinstance(constraint, LoopJoint):
        markers = (constraint.body_a, constraint.frame_a), (constraint.body_b, constraint.frame_b)
        return [(body, np.zeros(3), body, np.asarray(frame.translation)) for body, frame in markers]
    return []


def force_paths(mechanism: Mechanism) -> tuple[Path, ...]:
    """The lines along which forces act: paths of tendons and actuators, springs and dampers between points, and an arrow for the
    force of each actuator on a body, half as long as the longest semi-axis of all inertia ellipsoids.
    """
    forces, drives = getattr(mechanism, "forces", ()), getattr(mechanism, "drives", None)
    found = [force.path for force in forces if isinstance(force, Tendon)]
    pairs = [pair for pair in forces if isinstance(pair, Spring | Damper)]
    found += [_straight((pair.body_a, pair.body_b), [pair.point_a, pair.point_b]) for pair in pairs]
    if isinstance(drives, Actuators):
        found += drives.paths
        length = 0.5 * inertia_ellipsoids(model_of(mechanism)).radii.max(initial=0.0)
        for body, start, push in zip(drives.bodies, np.asarray(drives.points), np.asarray(drives.pushes), strict=True):
            along = length * push / (np.linalg.norm(push) or 1.0)
            side = 0.2 * np.cross(along, np.eye(3)[np.abs(push).argmin()])
            ends = [along, np.zeros(3), 0.7 * along + side, 0.7 * along - side]
            found.append(_straight(4 * (body,), [start + end for end in ends]))
    return tuple(path for path in found if path.bodies)


def _straight(bodies: tuple[int, ...], points: Sequence[Values]) -> Path:
    """Straight lines from the first point on a body to each of the other ones."""
    parts = tuple((0, 0, k, -1, -1, -1) for k in range(1, len(bodies)))
    return Path((), np.zeros(0), bodies, np.stack(points), parts, np.zeros(len(parts)), np.ones(1))


def inertia_ellipsoids(model: Model) -> Ellipsoids:
    """The uniform solid ellipsoid with the same mass, center of mass and inertia as each body.

        a_i = sqrt(5/(2m) (J_j + J_k - J_i)) = sqrt(5 Pi_i / m)

    where J_i are the principal moments of the inertia tensor, and Pi_i those of the planar inertia tensor, about the center of
    mass.

    Source: theory.md (B10).
    """
    mass = np.asarray(model.mass, float)
    bodies = np.flatnonzero(mass > 0)
    tensors = (symmetric_matrix(six) for six in np.asarray(model.inertia, float)[bodies])
    planar = np.array([planar_from_inertia(tensor) for tensor in tensors]).reshape(-1, 3, 3)
    moments, axes = np.linalg.eigh(planar)
    axes[:, :, 2] *= np.linalg.det(axes)[:, None]
    # Rounding may result in negative moments for a rod.
    radii = np.sqrt(5.0 * np.maximum(moments, 0.0) / mass[bodies, None])
    return Ellipsoids(bodies, np.asarray(model.com, float)[bodies], axes, radii)


def visible_radii(solids: Ellipsoids) -> Float[np.ndarray, "n 3"]:
    """Semi-axes (m) to draw: at least a twentieth of the longest one, so that thin rods are visible."""
    return np.maximum(solids.radii, 0.05 * solids.radii.max(axis=1, initial=0.0, keepdims=True))


def ellipsoid_corners(placed: Placed, solids: Ellipsoids) -> Float[np.ndarray, "samples times n 2 3"]:
    """Lowest and highest corner (m) of the box around each inertia ellipsoid, on ground axes."""
    rotations = placed.rotations[:, :, solids.bodies]
    center = placed.origins[:, :, solids.bodies] + np.einsum("...nij,nj->...ni", rotations, solids.centers)
    along = np.einsum("...nij,njk->...nik", rotations, solids.axes * visible_radii(solids)[:, None, :])
    half = np.linalg.norm(along, axis=-1)  # support function of the ellipsoid in each direction
    return np.stack([center - half, center + half], axis=-2)


def is_covered(model: Model, visuals: Sequence[Visual]) -> bool:
    """Whether there are visuals and every body with mass has one, so that a picture needs no sticks."""
    heavy = set(np.flatnonzero(np.asarray(model.mass) > 0).tolist())
    return bool(visuals) and heavy <= {visual.body for visual in visuals}


def visual_corners(placed: Placed, visuals: Sequence[Visual]) -> Float[np.ndarray, "samples times corners 3"]:
    """Corners (m) of a box around the shapes of each body, on ground axes; shapes on the ground, such as floors, are left out."""
    bodies = sorted({visual.body for visual in visuals} - {GROUND})
    boxes = np.zeros((len(bodies), 8, 3))
    for corners, body in zip(boxes, bodies, strict=True):
        flat = np.concatenate([visual.points() for visual in visuals if visual.body == body])
        corners[:] = corners_of(flat.min(axis=0), flat.max(axis=0))
    turned = np.einsum("...bij,bcj->...bci", placed.rotations[:, :, bodies], boxes)
    corners = placed.origins[:, :, bodies, None] + turned
    return corners.reshape(*corners.shape[:2], -1, 3)


def box_around(
    motions: Sequence[Placed], solid: Model | None, visuals: Sequence[Visual] = ()
) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3"]]:
    """Corners (m) of a box around all parts of a mechanism, see `box_of`.

    Args:
        motions: Positions of the parts.
        solid: The mechanism, if its inertia ellipsoids are in the picture; they are included unless visuals replace them.
        visuals: Shapes of the bodies.
    """
    parts = [part for placed in motions for part in (placed.lines, placed.origins, placed.force_lines)]
    parts += [visual_corners(placed, visuals) for placed in motions]
    if solid is not None and not is_covered(solid, visuals):
        solids = inertia_ellipsoids(solid)
        parts += [ellipsoid_corners(placed, solids) for placed in motions]
    return box_of(np.concatenate([part.reshape(-1, 3) for part in parts]))


def joint_kind(model: Model, body: int) -> str:
    """Kind of the joint that carries a body, in words: "revolute", "driven prismatic", ..."""
    joint = model.joint(body)
    kind = type(joint.released()).__name__.lower()
    return kind if joint.prescribed() is None else f"driven {kind}"


def joint_motion(model: Model, body: int) -> str:
    """Motion of the joint that carries a body: "turns", "slides", "turns and slides" or "fixed"."""
    joint = model.joint(body).released()
    columns = np.asarray(_motion_subspace(joint, jnp.asarray(joint.neutral(), float)))
    turns, slides = np.any(columns[:3] != 0), np.any(columns[3:] != 0)
    return " and ".join(word for word, holds in (("turns", turns), ("slides", slides)) if holds) or "fixed"


@stored_jit
def _motion_subspace(joint: Joint, q: Array) -> Array:
    return joint.motion_subspace(q)


def joint_axes(model: Model) -> tuple[int, ...]:
    """Index of the body whose joint has the axis, for each axis in `Placed.axes`.

    A joint with one or two velocity components has one or two axes. Axes of other joints are not drawn, because they would not be
    informative.
    """
    counts = [model.joint(i).released().nv for i in range(model.nb)]
    return tuple(i for i, count in enumerate(counts) if count <= 2 for _ in range(count))


def place(mechanism: Mechanism, time: Values, q: Values) -> Placed:
    """Positions of all parts, for all samples and times at once.

    Args:
        mechanism: Model or system.
        time: Times (times,), s, at which prescribed motions are evaluated.
        q: Coordinates (samples, times, nq), rad or m.
    """
    model, lines = model_of(mechanism), sticks(mechanism)
    q = np.asarray(q)
    times = np.broadcast_to(np.asarray(time), q.shape[:2])
    drawn = (tuple(map(tuple, lines.bodies.tolist())), joint_axes(model))
    points, paths = jax.tree.map(lambda x: np.asarray(x, model.dtype), (lines.points, force_paths(mechanism)))
    placed = Placed(*by_rows(_placed, model, (model, drawn, points, paths), times, q))
    norm = np.linalg.norm(placed.quaternions, axis=-1, keepdims=True)
    return placed._replace(quaternions=placed.quaternions / norm)


_LEAST_ROWS, _MORE_ROWS = 1024, 4  # the sizes of batches are 1024, 4096, 16384, ...


def by_rows(function: Callable, model: Model, of_all: tuple, *arrays: np.ndarray) -> list[np.ndarray]:
    """Results of a function for each sample and time of arrays (samples, times, ...), as (samples, times, ...).

    Batches have few sizes, so that all pictures of a mechanism use the same compiled program.
    """
    leading = arrays[0].shape[:2]
    count = leading[0] * leading[1]
    size = _LEAST_ROWS
    while size < count:
        size *= _MORE_ROWS
    repeated = np.minimum(np.arange(size), count - 1)  # the last row fills the batch
    padded = [array.reshape(count, *array.shape[2:]).astype(model.dtype)[repeated] for array in arrays]
    return [np.asarray(result)[:count].reshape(*leading, *result.shape[1:]) for result in function(*of_all, *padded)]


@stored_jit
def _placed(model, drawn, points, paths, time, q):
    return jax.vmap(per_sample(functools.partial(_placed_once, model, drawn, points, paths)))(time, q)


def _placed_once(model, drawn, points, paths, t, q):
    stick_bodies, axis_bodies = drawn
    bodies = np.array(stick_bodies, dtype=int).reshape(-1, 2)
    model = model.at(t)
    poses = forward_kinematics(model, q)
    rotation = jnp.concatenate([poses.rotation, jnp.eye(3, dtype=q.dtype)[None]])  # the last one is the ground, -1
    origin = jnp.concatenate([poses.translation, jnp.zeros((1, 3), q.dtype)])
    lines = origin[bodies] + jnp.einsum("seij,sej->sei", rotation[bodies], points)
    columns = _axis_twists(model, q, axis_bodies)
    direction = jnp.where(jnp.any(columns[:, :3] != 0, axis=1, keepdims=True), columns[:, :3], columns[:, 3:])
    direction = direction / jnp.linalg.norm(direction, axis=1, keepdims=True)
    axes = jnp.einsum("aij,aj->ai", rotation[np.array(axis_bodies, dtype=int)], direction)
    pieces = [jnp.zeros((0, 2, 3), q.dtype)]
    for held, path in ((np.array(path.bodies), path) for path in paths):
        pieces.append(path.pieces(origin[held] + jnp.einsum("pij,pj->pi", rotation[held], path.points)))
    return poses.quaternion, poses.translation, rotation[:-1], lines, axes, jnp.concatenate(pieces)


def _axis_twists(model, q, axis_bodies):
    """Twist along each joint axis in child axes, (axes, 6)."""
    own, driven = configuration.motion_columns(model, q), configuration.driven_columns(model, q)
    starts = model.topology.v_starts
    rows = [jnp.zeros((0, 6), q.dtype)]
    for body in dict.fromkeys(axis_bodies):
        start = starts[body]
        rows.append(driven[body].T if body in driven else own[start : start + axis_bodies.count(body)])
    return jnp.concatenate(rows)


def resampled(model: Model, time: Values, q: Values, instants: Values) -> Float[np.ndarray, "samples instants nq"]:
    """Coordinates at other instants, interpolated between the neighboring records with constant joint velocities.

    Args:
        model: The mechanism.
        time: Times of the records (times,), s, ascending.
        q: Coordinates (samples, times, nq), rad or m.
        instants: Instants (instants,), s, within `time`.
    """
    before, after, share = between_records(time, instants)
    q = np.asarray(q)
    shares = np.broadcast_to(share, (len(q), len(share)))
    return by_rows(_interpolated, model, (model,), q[:, before], q[:, after], shares)[0]


def between_records(
    time: Values, instants: Values
) -> tuple[Int[np.ndarray, "instants"], Int[np.ndarray, "instants"], Float[np.ndarray, "instants"]]:
    """Indices of the records before and after each instant, and the fraction of the time between them that has passed.

    Args:
        time: Times of the records (times,), s, ascending.
        instants: Instants (instants,), s, within `time`.
    """
    time, instants = np.asarray(time, float), np.asarray(instants, float)
    before = np.clip(np.searchsorted(time, instants, side="right") - 1, 0, max(len(time) - 2, 0))
    after = np.minimum(before + 1, len(time) - 1)
    gap = time[after] - time[before]
    share = np.divide(instants - time[before], gap, out=np.zeros_like(gap), where=gap > 0)
    return before, after, share


@stored_jit
def _interpolated(model, q0, q1, share):
    return (jax.vmap(per_sample(functools.partial(configuration.interpolate, model)))(q0, q1, share),)


def corners_of(low: Values, high: Values) -> Float[np.ndarray, "8 3"]:
    """All corners of the box between two of them."""
    return np.stack(np.meshgrid(*zip(low, high, strict=True)), axis=-1).reshape(-1, 3)


def box_of(points: Values) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3"]]:
    """Lowest and highest corner (m) of a box with a margin around points (..., 3); each side is at least half of the longest."""
    flat = np.asarray(points, float).reshape(-1, 3)
    low, high = flat.min(axis=0), flat.max(axis=0)
    longest = max(float((high - low).max()), 1e-3)
    half = 0.53 * np.maximum(high - low, longest / 2)
    return 0.5 * (low + high) - half, 0.5 * (low + high) + half
