"""Where the bodies are and how they move, theory.md section (e).

All 6-vectors here are on **ground axes** about one reference point per tree, the current origin of the tree's root body. That point
moves with the mechanism, so nothing loses digits when a machine stands, or has traveled, far from the ground origin.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.dynamics.doors import model_function
from jaxdyn.mechanism import configuration, tree
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.spatial import quaternion, sixvector
from jaxdyn.spatial.arrays import dot, einsum
from jaxdyn.spatial.inertia import SpatialInertia, planar_from_inertia, symmetric_matrix
from jaxdyn.spatial.transform import RigidTransform

Coordinates = Float[Array, "nq"]
Velocities = Float[Array, "nv"]
Accelerations = Float[Array, "nv"]


class Poses(eqx.Module):
    """Where the bodies are: the part of `Placements` that says how a rigid body lies in space, and nothing of how it can move.

    Attributes:
        orientation: q_WB of each body.
        rotation: R_WB of each body (R_i).
        reference: for each body, the reference point P of its tree in the ground, m.
        offset: P -> O'_i, ground axes, m.
    """

    orientation: Float[Array, "nb 4"]
    rotation: Float[Array, "nb 3 3"]
    reference: Float[Array, "nb 3"]
    offset: Float[Array, "nb 3"]


class Placements(eqx.Module):
    """The mechanism at one configuration: everything that depends on q alone.

    Attributes:
        orientation: q_WB of each body.
        rotation: R_WB of each body (R_i).
        reference: for each body, the reference point P of its tree in the ground, m.
        offset: P -> O'_i, ground axes, m.
        com: P -> C_i, ground axes, m.
        columns: motion column (Omega_alpha; T_alpha) of each velocity component about P, ground axes.
        inertia: inertia of each body about P, ground axes.
    """

    orientation: Float[Array, "nb 4"]
    rotation: Float[Array, "nb 3 3"]
    reference: Float[Array, "nb 3"]
    offset: Float[Array, "nb 3"]
    com: Float[Array, "nb 3"]
    columns: Float[Array, "nv 6"]
    inertia: SpatialInertia

    @property
    def poses(self) -> Poses:
        """Where the bodies are."""
        return Poses(self.orientation, self.rotation, self.reference, self.offset)


class Motion(eqx.Module):
    """The mechanism at one configuration and velocity.

    Attributes:
        q: generalized coordinates.
        placements: the part that depends on q alone.
        v: generalized velocities.
        velocity: (omega_i; velocity of the body point at P), ground axes.
        bias: spatial acceleration of each body at zero generalized acceleration, gravity not included, ground axes about P.
    """

    q: Coordinates
    placements: Placements
    v: Velocities
    velocity: Float[Array, "nb 6"]
    bias: Float[Array, "nb 6"]


def placements(model: Model, q: Coordinates) -> Placements:
    """Placement, motion columns and inertia of every body at q. Source: theory.md (E1)-(E3), (F6)."""
    topology = model.topology
    local = jax.vmap(RigidTransform.compose)(model.placement, configuration.joint_transforms(model, q))
    # The root body's own translation becomes the reference point instead of the first term of every sum.
    is_root = (np.array(topology.parents) < 0)[:, None]
    reference = local.translation[topology.roots]
    from_root = RigidTransform(local.quaternion, jnp.where(is_root, 0.0, local.translation))
    placed = tree.compose_along_paths(topology, from_root)
    rotation = placed.rotation
    com = placed.translation + einsum("bij,bj->bi", rotation, model.com)

    turned, moved = tree.of_columns(topology, (rotation, placed.translation))
    columns = jax.vmap(sixvector.motion_to_outer)(turned, moved, configuration.motion_columns(model, q))
    # The planar tensor turns as the other one does, and on body axes it costs nothing.
    planar = jax.vmap(lambda six: planar_from_inertia(symmetric_matrix(six)))(model.inertia)
    on_ground_axes = einsum("bij,bjk,blk->bil", rotation, planar, rotation)  # (B9), (B10)
    inertia = jax.vmap(SpatialInertia.of_planar)(model.mass, com, on_ground_axes)
    return Placements(placed.quaternion, rotation, reference, placed.translation, com, columns, inertia)


def point_on_body(
    placed: Placements | Poses, body: int, point: Float[Array, "3"]
) -> tuple[Float[Array, "3"], Float[Array, "3"]]:
    """Position of a point given on body axes, in two parts: the reference point of its tree, and from there to the point.

    Differences of points are taken part by part, so that they keep their digits far from the ground origin.
    """
    if body == GROUND:
        return point, jnp.zeros_like(point)
    return placed.reference[body], placed.offset[body] + dot(placed.rotation[body], point)


def motion(model: Model, q: Coordinates, v: Velocities) -> Motion:
    """Velocities of all bodies and the velocity part of their accelerations at (q, v).

    Every motion column moves with its body, d(column)/dt = velocity x column, so the sum of these rates over the
    ancestors is the acceleration at zero qdd. Source: theory.md (E6), (E10)-(E12).
    """
    placed = placements(model, q)
    topology = model.topology
    to_ground = jax.vmap(sixvector.motion_to_outer)
    per_column = placed.columns * v[:, None]
    velocity = tree.sum_over_columns(topology, per_column)  # (E6)
    own_rates = configuration.subspace_rates(model, q, v)
    drift = None
    if configuration.is_prescribed(model):
        in_child, drift_rate = configuration.drifts(model, q, v)
        drift = to_ground(placed.rotation, placed.offset, in_child)
        velocity = velocity + tree.sum_over_ancestors(topology, drift)  # (E15)
        own_rates = drift_rate if own_rates is None else own_rates + drift_rate
    rates = jax.vmap(sixvector.cross_motion)(tree.of_columns(topology, velocity), per_column)
    bias = tree.sum_over_columns(topology, rates)
    if drift is not None:
        bias = bias + tree.sum_over_ancestors(topology, jax.vmap(sixvector.cross_motion)(velocity, drift))
    if own_rates is not None:
        bias = bias + tree.sum_over_ancestors(topology, to_ground(placed.rotation, placed.offset, own_rates))
    return Motion(q, placed, v, velocity, bias)


def accelerations(model: Model, moving: Motion, a: Accelerations) -> Float[Array, "nb 6"]:
    """Spatial accelerations of all bodies about P, ground axes, gravity not included."""
    return moving.bias + tree.sum_over_columns(model.topology, moving.placements.columns * a[:, None])


@model_function
def forward_kinematics(model: Model, q: Coordinates) -> RigidTransform:
    """Placement of every body frame in the ground: R_i and o_i.

    Args:
        q: generalized coordinates.

    Returns:
        `RigidTransform` with leading axis nb: `.quaternion` (nb, 4), `.rotation` (nb, 3, 3) body to ground, `.translation` (nb, 3)
        position of the body origins O'_i in ground axes, m.

    Raises:
        ValueError: q has the wrong shape.

    Source: theory.md (A6), (E1), (E2).
    """
    placed = placements(model, q)
    return RigidTransform(placed.orientation, placed.reference + placed.offset)


@model_function
def frame_placement(model: Model, q: Coordinates, name: str) -> RigidTransform:
    """Placement in the ground of the body or named frame `name`.

    Raises:
        KeyError: no body or frame has that name; the message lists those that exist.
    """
    topology = model.topology
    bodies = forward_kinematics(model, q)
    if name in topology.frame_names:
        index = topology.frame_names.index(name)
        in_body = jax.tree.map(lambda x: x[index], model.frames)
        carrier = topology.frame_bodies[index]
        return in_body if carrier < 0 else jax.tree.map(lambda x: x[carrier], bodies).compose(in_body)
    carrier = topology.body_index(name)
    return RigidTransform.identity(q.dtype) if carrier < 0 else jax.tree.map(lambda x: x[carrier], bodies)


class PartialVelocities(NamedTuple):
    """Partial velocities of all bodies, ground axes; unpacks as T, Omega.

    Attributes:
        linear: T[i, alpha] = d r_i / d q^alpha, of the center of mass of body i, m or 1.
        angular: Omega[i, alpha], omega_i = Omega_alpha(i) v^alpha, 1.
    """

    linear: Float[Array, "nb nv 3"]
    angular: Float[Array, "nb nv 3"]


@model_function
def partial_velocities(model: Model, q: Coordinates) -> PartialVelocities:
    """Partial velocities T and Omega (synonyms: quasi-base vectors, Jacobian columns at the centers of mass).

        v_i = T_alpha(i) v^alpha,  omega_i = Omega_alpha(i) v^alpha

    Columns of joints that do not move a body are zero. Source: theory.md (E4), (E5), (D2).
    """
    placed = placements(model, q)
    return partials_at(model, placed, placed.com)


def partials_at(model: Model, placed: Placements, points: Float[Array, "nb 3"]) -> PartialVelocities:
    """Partial velocities of one point of each body, given from the reference point on ground axes."""
    moves = model.topology.column_moves_body.T[..., None]
    w, nu = placed.columns[:, :3], placed.columns[:, 3:]
    linear = nu[None] + jnp.cross(w[None], points[:, None])  # (E4)
    return PartialVelocities(jnp.where(moves, linear, 0.0), jnp.where(moves, w[None], 0.0))


@model_function
def body_jacobian(model: Model, q: Coordinates) -> Float[Array, "nb 6 nv"]:
    """Jacobians of the body frames: J_i v = (omega_i; velocity of O'_i), ground axes, angular part first.

    Source: theory.md (E4), (E5) at the body origin.
    """
    placed = placements(model, q)
    partials = partials_at(model, placed, placed.offset)
    return jnp.concatenate([partials.angular, partials.linear], axis=-1).swapaxes(1, 2)


class BodyMotion(NamedTuple):
    """Velocities or accelerations of all bodies, ground axes.

    Attributes:
        angular: omega_i (rad/s) or eps_i (rad/s^2).
        linear: of the centers of mass C_i, m/s or m/s^2.
    """

    angular: Float[Array, "nb 3"]
    linear: Float[Array, "nb 3"]


def motion_of_origins(moving: Motion, spatial: Float[Array, "nb 6"]) -> tuple[BodyMotion, BodyMotion]:
    """Velocities and accelerations of all bodies, the linear parts those of the body origins O'_i.

    Args:
        spatial: accelerations of the bodies about P, ground axes.

    Source: theory.md (E12).
    """
    at_origin = jax.vmap(sixvector.velocity_at_point)
    offset, spin = moving.placements.offset, moving.velocity[:, :3]
    velocity = at_origin(moving.velocity, offset)
    return BodyMotion(spin, velocity), BodyMotion(
        spatial[:, :3], at_origin(spatial, offset) + jnp.cross(spin, velocity)
    )


def rate_of_poses(model: Model, poses: Poses, origins: BodyMotion) -> Poses:
    """d(poses)/dt of bodies that move with these angular velocities and velocities of their origins.

    Source: theory.md (A10), (A11), (B8).
    """
    carried = origins.linear[model.topology.roots]  # P is the origin of the root
    return Poses(
        jax.vmap(quaternion.rate_from_outer)(poses.orientation, origins.angular),
        jnp.cross(origins.angular[:, None], poses.rotation.swapaxes(1, 2)).swapaxes(1, 2),
        carried,
        origins.linear - carried,
    )


@model_function
def body_velocities(model: Model, q: Coordinates, v: Velocities) -> BodyMotion:
    """Angular velocities and center-of-mass velocities of all bodies, ground axes. Source: theory.md (E6)."""
    return velocities_of_bodies(motion(model, q, v))


def velocities_of_bodies(moving: Motion) -> BodyMotion:
    """`body_velocities` from a motion that is already computed."""
    return BodyMotion(
        moving.velocity[:, :3], jax.vmap(sixvector.velocity_at_point)(moving.velocity, moving.placements.com)
    )


@model_function
def body_accelerations(model: Model, q: Coordinates, v: Velocities, a: Accelerations) -> BodyMotion:
    """Angular accelerations and center-of-mass accelerations of all bodies, ground axes, gravity not included.

    Source: theory.md (E10), (E11).
    """
    return accelerations_of_bodies(model, motion(model, q, v), a)


def accelerations_of_bodies(model: Model, moving: Motion, a: Accelerations) -> BodyMotion:
    """`body_accelerations` from a motion that is already computed."""
    spatial = accelerations(model, moving, a)
    com = moving.placements.com
    velocity = jax.vmap(sixvector.velocity_at_point)(moving.velocity, com)
    # The acceleration of a body point is that of the spatial field plus omega x v: the field is taken at a fixed place.
    linear = jax.vmap(sixvector.velocity_at_point)(spatial, com) + jnp.cross(moving.velocity[:, :3], velocity)
    return BodyMotion(spatial[:, :3], linear)
