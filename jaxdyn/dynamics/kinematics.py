"""Positions and motions of the bodies, theory.md section (e).

All 6-vectors in this module are on **ground axes** about one reference point P per tree, the current origin of the tree's root
body. This point moves with the mechanism, so no digits are lost if a mechanism is far from the ground origin.
"""

from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, einsum, rows_at
from jaxdyn.compute.hints import traced_once
from jaxdyn.dynamics.doors import kinematic_function
from jaxdyn.errors import check_name
from jaxdyn.mechanism import configuration, tree
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.spatial import quaternion, sixvector
from jaxdyn.spatial.inertia import SpatialInertia, planar_from_inertia, symmetric_matrix
from jaxdyn.spatial.rotation import cross
from jaxdyn.spatial.transform import RigidTransform

Coordinates = Float[Array, "nq"]
Velocities = Float[Array, "nv"]
Accelerations = Float[Array, "nv"]
Axes = Literal["local", "world", "mixed"]


class Poses(eqx.Module):
    """Poses of all bodies: the part of `Placements` that describes positions and orientations, without directions of motion.

    Attributes:
        orientation: Unit quaternion q_WB of each body.
        rotation: Rotation matrix R_WB of each body (R_i).
        reference: Position of the reference point P of the tree of each body, ground axes, m.
        offset: Vector from the reference point P to the body origin O'_i, ground axes, m.
    """

    orientation: Float[Array, "nb 4"]
    rotation: Float[Array, "nb 3 3"]
    reference: Float[Array, "nb 3"]
    offset: Float[Array, "nb 3"]


class Placements(Poses):
    """All quantities of the mechanism that depend on q alone.

    Attributes:
        com: Vector from the reference point P to the center of mass C_i, ground axes, m.
        columns: Motion column (Omega_alpha; T_alpha) of each velocity component about the reference point P, ground axes.
        inertia: Inertia of each body about the reference point P, ground axes.
    """

    com: Float[Array, "nb 3"]
    columns: Float[Array, "nv 6"]
    inertia: SpatialInertia

    @property
    def poses(self) -> Poses:
        """Poses of the bodies."""
        return Poses(self.orientation, self.rotation, self.reference, self.offset)


class Motion(eqx.Module):
    """All quantities of the mechanism that depend on q and v.

    Attributes:
        q: Generalized coordinates.
        placements: Quantities that depend on q alone.
        v: Generalized velocities.
        velocity: Spatial velocity of each body (angular velocity omega_i; velocity of the body-fixed point at the reference point
            P), ground axes.
        bias: Spatial acceleration of each body at zero generalized acceleration, gravity not included, ground axes about the
            reference point P.
    """

    q: Coordinates
    placements: Placements
    v: Velocities
    velocity: Float[Array, "nb 6"]
    bias: Float[Array, "nb 6"]


@traced_once
def placements(model: Model, q: Coordinates) -> Placements:
    """Placement, motion columns and inertia of every body at q. Source: theory.md (E1)-(E3), (F6)."""
    topology = model.topology
    in_joint = configuration.joint_transforms(model, q)
    local = tree.of_bodies(topology, RigidTransform.compose, model.placement, in_joint)
    # The translation of the root body is the reference point; otherwise it would be the first term of every sum.
    is_root = (np.array(topology.parents) < 0)[:, None]
    reference = rows_at(local.translation, topology.roots)
    from_root = RigidTransform(local.quaternion, jnp.where(is_root, 0.0, local.translation))
    placed = tree.compose_along_paths(topology, from_root)

    def of_body(placed, mass, com, inertia):
        rotation = placed.rotation
        center = placed.translation + dot(rotation, com)
        # The planar tensor rotates as the inertia tensor does, and its computation on body axes costs nothing.
        planar = planar_from_inertia(symmetric_matrix(inertia))
        on_ground_axes = einsum("ij,jk,lk->il", rotation, planar, rotation)  # (B9), (B10)
        return rotation, center, SpatialInertia.of_planar(mass, center, on_ground_axes)

    rotation, com, inertia = tree.of_bodies(topology, of_body, placed, model.mass, model.com, model.inertia)
    columns = tree.along_columns(
        topology,
        lambda body, column: sixvector.motion_to_outer(body[0], body[1], column),
        (rotation, placed.translation),
        configuration.motion_columns(model, q),
    )
    return Placements(placed.quaternion, rotation, reference, placed.translation, com, columns, inertia)


def point_on_body(placed: Poses, body: int, point: Float[Array, "3"]) -> tuple[Float[Array, "3"], Float[Array, "3"]]:
    """Position of a body-fixed point in two parts: the reference point of its tree, and the vector from the reference point to this
    point. Differences of points are computed separately for the two parts, so they lose no digits far from the ground origin.

    Args:
        placed: Placements or poses of the bodies.
        body: Index of the body, -1 for the ground.
        point: Position of the point on body axes, relative to the body origin O', m.

    Returns:
        Reference point and vector, ground axes, m.
    """
    if body == GROUND:
        return point, jnp.zeros_like(point)
    return placed.reference[body], placed.offset[body] + dot(placed.rotation[body], point)


@traced_once
def motion(model: Model, q: Coordinates, v: Velocities) -> Motion:
    """Velocities of all bodies, and the part of their accelerations that depends on velocities, at (q, v).

    Every motion column moves with its body, d(column)/dt = velocity x column, so the sum of these rates over the ancestors is the
    acceleration at zero generalized acceleration.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).

    Source: theory.md (E6), (E10)-(E12).
    """
    placed = placements(model, q)
    topology = model.topology
    to_ground = jax.vmap(sixvector.motion_to_outer)
    per_column = tree.of_columns_alone(topology, jnp.multiply, placed.columns, v)
    velocity = tree.sum_over_columns(topology, per_column)  # (E6)
    own_rates = configuration.subspace_rates(model, q, v)
    drift = None
    if configuration.is_prescribed(model):
        in_child, drift_rate = configuration.prescribed_twists(model, q, v)
        drift = to_ground(placed.rotation, placed.offset, in_child)
        velocity = velocity + tree.sum_over_ancestors(topology, drift)  # (E15)
        own_rates = drift_rate if own_rates is None else own_rates + drift_rate
    rates = tree.along_columns(topology, sixvector.cross_motion, velocity, per_column)
    bias = tree.sum_over_columns(topology, rates)
    if drift is not None:
        bias = bias + tree.sum_over_ancestors(topology, jax.vmap(sixvector.cross_motion)(velocity, drift))
    if own_rates is not None:
        bias = bias + tree.sum_over_ancestors(topology, to_ground(placed.rotation, placed.offset, own_rates))
    return Motion(q, placed, v, velocity, bias)


def accelerations(model: Model, moving: Motion, a: Accelerations) -> Float[Array, "nb 6"]:
    """Spatial accelerations of all bodies about the reference point P, ground axes, gravity not included.

    Args:
        model: Mechanism.
        moving: Motion of the model.
        a: Generalized accelerations (rad/s^2 or m/s^2).
    """
    topology = model.topology
    per_column = tree.of_columns_alone(topology, jnp.multiply, moving.placements.columns, a)
    return tree.of_bodies(topology, jnp.add, moving.bias, tree.sum_over_columns(topology, per_column))


@kinematic_function
def forward_kinematics(model: Model, q: Coordinates) -> RigidTransform:
    """Placement of every body frame in the ground: R_i and o_i.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).

    Returns:
        `RigidTransform` with leading axis nb: `.quaternion` (nb, 4), `.rotation` (nb, 3, 3) from body to ground axes, and
        `.translation` (nb, 3), the positions of the body origins O'_i, ground axes, m.

    Raises:
        ValueError: q has the wrong shape.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        model = jaxdyn.library.double_pendulum()
        bodies = jaxdyn.forward_kinematics(model, jnp.array([0.3, -0.5]))
        elbow = bodies.translation[1]
        ```

    Source: theory.md (A6), (E1), (E2).
    """
    placed = placements(model, q)
    return RigidTransform(placed.orientation, placed.reference + placed.offset)


@kinematic_function
def frame_placement(model: Model, q: Coordinates, name: str) -> RigidTransform:
    """Placement of a body or of a named frame in the ground.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        name: Name of the body or frame.

    Raises:
        UnknownName: No body or frame has this name; the message lists the existing names.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        model = jaxdyn.library.double_pendulum()
        tip = jaxdyn.frame_placement(model, jnp.array([0.3, -0.5]), "tip").translation
        ```
    """
    return _frame_in_ground(model, forward_kinematics(model, q), name)


def _frame_in_ground(model: Model, bodies: RigidTransform, name: str) -> RigidTransform:
    topology, carrier = model.topology, frame_carrier(model, name)
    body = RigidTransform.identity(model.dtype) if carrier == GROUND else jax.tree.map(lambda x: x[carrier], bodies)
    if name not in topology.frame_names:
        return body
    index = topology.frame_names.index(name)
    in_body = jax.tree.map(lambda x: x[index], model.frames)
    return in_body if carrier == GROUND else body.compose(in_body)


def frame_carrier(model: Model, name: str) -> int:
    """Index of the body that carries a named frame, or of the body with this name; -1 for the ground.

    Args:
        model: Mechanism.
        name: Name of the body or frame.

    Raises:
        UnknownName: No body or frame has this name; the message lists the existing names.
    """
    topology = model.topology
    if name in topology.frame_names:
        return topology.frame_bodies[topology.frame_names.index(name)]
    return topology.body_index(name)


class PartialVelocities(NamedTuple):
    """Partial velocities of all bodies, ground axes; unpacks as T, Omega.

    Attributes:
        linear: T[i, alpha] = d r_i / d q^alpha of the center of mass of body i; m or 1.
        angular: Omega[i, alpha] with omega_i = Omega_alpha(i) v^alpha; 1 or 1/m.
    """

    linear: Float[Array, "nb nv 3"]
    angular: Float[Array, "nb nv 3"]


@kinematic_function
def partial_velocities(model: Model, q: Coordinates) -> PartialVelocities:
    """Partial velocities T and Omega (synonyms: quasi-base vectors, Jacobian columns at the centers of mass).

        v_i = T_alpha(i) v^alpha,  omega_i = Omega_alpha(i) v^alpha

    The columns of joints that do not move a body are zero. Source: theory.md (E4), (E5), (D2).
    """
    placed = placements(model, q)
    return partials_at(model, placed, placed.com)


def partials_at(model: Model, placed: Placements, points: Float[Array, "nb 3"]) -> PartialVelocities:
    """Partial velocities of one point of each body.

    Args:
        model: Mechanism.
        placed: Placements of the bodies.
        points: Vector from the reference point P to the point of each body, ground axes, m.
    """
    moves = model.topology.column_moves_body.T[..., None]
    columns, points = tree.for_pairs(model.topology, (placed.columns, points))
    w, nu = columns[:, :3], columns[:, 3:]
    linear = nu[None] + cross(w[None], points[:, None])  # (E4)
    return PartialVelocities(jnp.where(moves, linear, 0.0), jnp.where(moves, w[None], 0.0))


@kinematic_function
def body_jacobian(model: Model, q: Coordinates) -> Float[Array, "nb 6 nv"]:
    """Jacobians of the body frames: J_i v = (omega_i; velocity of O'_i), ground axes, angular part first.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        model = jaxdyn.library.double_pendulum()
        jacobian = jaxdyn.body_jacobian(model, jnp.array([0.3, -0.5]))
        angular, linear = jacobian[1, :3], jacobian[1, 3:]  # of the second body
        ```

    Source: theory.md (E4), (E5) at the body origin.
    """
    placed = placements(model, q)
    partials = partials_at(model, placed, placed.offset)
    return jnp.concatenate([partials.angular, partials.linear], axis=-1).swapaxes(1, 2)


def jacobian_at(model: Model, placed: Placements, name: str, axes: Axes = "mixed") -> Float[Array, "6 nv"]:
    """Result of `frame_jacobian`, from precomputed placements of the bodies.

    Args:
        model: Mechanism.
        placed: Placements of the bodies.
        name: Name of the body or frame.
        axes: Axes and point, as of `frame_velocity`.
    """
    carrier = frame_carrier(model, name)
    if carrier == GROUND:
        return jnp.zeros((6, model.nv), placed.offset.dtype)
    moves = model.topology.column_moves_body[:, carrier, None]
    return jnp.where(moves, at_frame(model, placed, name, placed.columns, axes), 0.0).T  # (E4), (E5)


def at_frame(
    model: Model, placed: Placements, name: str, motions: Float[Array, "n 6"], axes: Axes
) -> Float[Array, "n 6"]:
    """Motions about the reference point P of the body that carries a frame, on the axes and about the point that `axes` names.

    Args:
        model: Mechanism.
        placed: Placements of the bodies.
        name: Name of the body or frame; the reference point of the ground is its origin.
        motions: Motions (omega; velocity) about P, ground axes.
        axes: Axes and point, as of `frame_velocity`.

    Source: theory.md (E20).
    """
    check_name("axes", axes, ("local", "world", "mixed"))
    carrier, topology = frame_carrier(model, name), model.topology
    frame = topology.frame_names.index(name) if name in topology.frame_names else None
    origin, turned = jnp.zeros(3, placed.offset.dtype), jnp.eye(3, dtype=placed.offset.dtype)
    if carrier != GROUND:
        turned = placed.rotation[carrier]
    if axes == "world":
        point = origin if carrier == GROUND else -placed.reference[carrier]
    else:
        own = origin if carrier == GROUND else placed.offset[carrier]
        point = own if frame is None else own + dot(turned, model.frames.translation[frame])
    w, nu = motions[:, :3], motions[:, 3:]
    nu = nu + cross(w, point[None])
    if axes == "local":
        turned = turned if frame is None else dot(turned, quaternion.to_matrix(model.frames.quaternion[frame]))
        w, nu = dot(w, turned), dot(nu, turned)
    return jnp.concatenate([w, nu], axis=1)  # (E20)


class BodyMotion(NamedTuple):
    """Velocities or accelerations of all bodies, ground axes.

    Attributes:
        angular: Angular velocity omega_i (rad/s) or angular acceleration eps_i (rad/s^2).
        linear: Velocity (m/s) or acceleration (m/s^2) of the center of mass C_i, unless a function names another point.
    """

    angular: Float[Array, "nb 3"]
    linear: Float[Array, "nb 3"]


@kinematic_function
def frame_velocity(model: Model, q: Coordinates, v: Velocities, name: str, *, axes: Axes = "mixed") -> BodyMotion:
    """Angular velocity of a frame (rad/s) and velocity of a point fixed in it (m/s), including prescribed motions of joints.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).
        name: Name of the body or frame.
        axes: "mixed": of the origin of the frame, ground axes; "local": of the origin, on the axes of the frame; "world": of the
            point that is at the ground origin, ground axes (the spatial twist).

    Raises:
        UnknownName: No body or frame has this name, or there are no such axes; the message lists the existing names.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        model = jaxdyn.library.double_pendulum()
        speed = jaxdyn.dynamics.frame_velocity(model, jnp.array([0.3, -0.5]), jnp.array([1.0, 2.0]), "tip").linear
        ```

    Source: theory.md (E6), (E15), (E20).
    """
    carrier = frame_carrier(model, name)
    if carrier == GROUND:
        return BodyMotion(jnp.zeros(3, q.dtype), jnp.zeros(3, q.dtype))
    moving = motion(model, q, v)
    velocity = at_frame(model, moving.placements, name, moving.velocity[carrier][None], axes)[0]
    return BodyMotion(velocity[:3], velocity[3:])


@kinematic_function
def frame_acceleration(
    model: Model,
    q: Coordinates,
    v: Velocities,
    a: Accelerations,
    name: str,
    *,
    axes: Axes = "mixed",
    kind: Literal["classical", "spatial"] = "classical",
) -> BodyMotion:
    """Angular acceleration of a frame (rad/s^2) and acceleration of a point fixed in it (m/s^2), gravity not included.

    With a = 0, this is the rate of the Jacobian times v, dJ/dt v: of the kind "classical" for the "mixed" axes, of the kind
    "spatial" for the "local" and "world" axes.

        spatial linear part = classical linear part - omega x (velocity of the point)

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).
        a: Generalized accelerations (rad/s^2 or m/s^2).
        name: Name of the body or frame.
        axes: Axes and point, as of `frame_velocity`.
        kind: "classical": second derivative of the position of the point, as accelerometers measure it (plus gravity);
            "spatial": rate of the twist, whose linear part belongs to the place and not to a point that moves (Featherstone).

    Raises:
        UnknownName: No body or frame has this name, or there are no such axes or kinds; the message lists the existing names.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        model = jaxdyn.library.double_pendulum()
        q, v = jnp.array([0.3, -0.5]), jnp.array([1.0, 2.0])
        drift = jaxdyn.dynamics.frame_acceleration(model, q, v, jnp.zeros(2), "tip").linear  # dJ/dt v
        ```

    Source: theory.md (E10)-(E12), (E20), (E21); Featherstone 2008, section 2.11.
    """
    check_name("kind", kind, ("classical", "spatial"))
    carrier = frame_carrier(model, name)
    if carrier == GROUND:
        return BodyMotion(jnp.zeros(3, q.dtype), jnp.zeros(3, q.dtype))
    moving = motion(model, q, v)
    both = jnp.stack([moving.velocity[carrier], accelerations(model, moving, a)[carrier]])
    velocity, spatial = at_frame(model, moving.placements, name, both, axes)
    turning = cross(velocity[:3], velocity[3:]) if kind == "classical" else 0.0
    return BodyMotion(spatial[:3], spatial[3:] + turning)  # (E21)


def motion_of_origins(moving: Motion, spatial: Float[Array, "nb 6"]) -> tuple[BodyMotion, BodyMotion]:
    """Velocities and accelerations of all bodies, with linear parts of the body origins O'_i.

    Args:
        moving: Motion of the mechanism.
        spatial: Spatial accelerations of the bodies about the reference point P, ground axes.

    Source: theory.md (E12).
    """
    at_origin = jax.vmap(sixvector.velocity_at_point)
    offset, spin = moving.placements.offset, moving.velocity[:, :3]
    velocity = at_origin(moving.velocity, offset)
    return BodyMotion(spin, velocity), BodyMotion(spatial[:, :3], at_origin(spatial, offset) + cross(spin, velocity))


def rate_of_poses(model: Model, poses: Poses, origins: BodyMotion) -> Poses:
    """Time derivative of the poses for given motions of the body frames.

    Args:
        model: Mechanism.
        poses: Poses of the bodies.
        origins: Angular velocities of the bodies and velocities of their origins O'_i, ground axes.

    Source: theory.md (A10), (A11), (B8).
    """
    carried = rows_at(origins.linear, model.topology.roots)  # P is the origin of the root
    return Poses(
        jax.vmap(quaternion.rate_from_outer)(poses.orientation, origins.angular),
        cross(origins.angular[:, None], poses.rotation.swapaxes(1, 2)).swapaxes(1, 2),
        carried,
        origins.linear - carried,
    )


@kinematic_function
def mass_center_velocities(model: Model, q: Coordinates, v: Velocities) -> BodyMotion:
    """Angular velocities and center-of-mass velocities of all bodies, ground axes.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        model = jaxdyn.library.double_pendulum()
        angular, linear = jaxdyn.mass_center_velocities(model, jnp.array([0.3, -0.5]), jnp.array([1.0, 0.0]))
        ```

    Source: theory.md (E6).
    """
    return velocities_of_bodies(motion(model, q, v))


def velocities_of_bodies(moving: Motion) -> BodyMotion:
    """Result of `mass_center_velocities`, from a precomputed motion."""
    return BodyMotion(
        moving.velocity[:, :3], jax.vmap(sixvector.velocity_at_point)(moving.velocity, moving.placements.com)
    )


@kinematic_function
def mass_center_accelerations(model: Model, q: Coordinates, v: Velocities, a: Accelerations) -> BodyMotion:
    """Angular accelerations and center-of-mass accelerations of all bodies, ground axes, gravity not included.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).
        a: Generalized accelerations (rad/s^2 or m/s^2).

    Source: theory.md (E10), (E11).
    """
    return accelerations_of_bodies(model, motion(model, q, v), a)


def accelerations_of_bodies(model: Model, moving: Motion, a: Accelerations) -> BodyMotion:
    """Result of `mass_center_accelerations`, from a precomputed motion.

    Args:
        model: Mechanism.
        moving: Motion of this model.
        a: Generalized accelerations (rad/s^2 or m/s^2).
    """
    spatial = accelerations(model, moving, a)
    com = moving.placements.com
    velocity = jax.vmap(sixvector.velocity_at_point)(moving.velocity, com)
    # The acceleration of a body point is the spatial acceleration at its place plus omega x v.
    linear = jax.vmap(sixvector.velocity_at_point)(spatial, com) + cross(moving.velocity[:, :3], velocity)
    return BodyMotion(spatial[:, :3], linear)
