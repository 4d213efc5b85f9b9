"""Inverse dynamics: the generalized forces of a given motion."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, einsum
from jaxdyn.compute.hints import traced_once
from jaxdyn.dynamics import kinematics, metric, rotors
from jaxdyn.dynamics.doors import model_function
from jaxdyn.dynamics.kinematics import Accelerations, Coordinates, Motion, Velocities
from jaxdyn.mechanism import configuration, tree
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial.directions import directional_derivative, stays
from jaxdyn.spatial.rotation import cross
from jaxdyn.spatial.sixvector import cross_force, cross_motion

GeneralizedForces = Float[Array, "nv"]


def covariant_inverse_dynamics(model: Model, q: Coordinates, v: Velocities, a: Accelerations) -> GeneralizedForces:
    """Inverse dynamics by the metric tensor and the connection.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).
        a: Generalized accelerations (rad/s^2 or m/s^2).

    Source: theory.md (I1).
    """
    refuse_prescribed_motion(model, 'method="covariant"')
    symbols = metric.connection_first_kind(model, q)
    return (
        einsum("ag,a->g", metric.mass_matrix(model, q), a)
        + einsum("abg,a,b->g", symbols, v, v)
        - gravity_force(model, q)
    )


def refuse_prescribed_motion(model: Model, what: str) -> None:
    """Raise an error if a joint of the model has prescribed motion, which the metric tensor alone does not describe."""
    if configuration.is_prescribed(model):
        remedy = "use the default method, or make" if "method=" in what else "make"
        raise ValueError(
            f"{what} does not support the prescribed motion in mechanism {model.name!r}; {remedy} its joints ordinary ones with "
            "jaxdyn.release_joints"
        )


@jax.custom_jvp
def recursive_inverse_dynamics(model: Model, q: Coordinates, v: Velocities, a: Accelerations) -> GeneralizedForces:
    """Inverse dynamics by sums over the tree; `_change_with_motion` gives the derivative if the model does not vary.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).
        a: Generalized accelerations (rad/s^2 or m/s^2).
    """
    moving = kinematics.motion(model, q, v)
    return forces_of_motion(model, moving, a)


@functools.partial(recursive_inverse_dynamics.defjvp, symbolic_zeros=True)
def _recursive_inverse_dynamics_jvp(primals, tangents):
    model, q, v, a = primals
    moving = kinematics.motion(model, q, v)
    tau = forces_of_motion(model, moving, a)
    return tau, change_of_forces(model, moving, a, tangents)


def change_of_forces(model: Model, moving: Motion, a: Accelerations, tangents: tuple) -> GeneralizedForces:
    """Derivative of the inverse dynamics along a tangent.

    Args:
        model: Mechanism.
        moving: Motion of the model.
        a: Generalized accelerations (rad/s^2 or m/s^2).
        tangents: Tangents of (model, q, v, a); symbolic zeros for arguments that do not vary.
    """
    d_model, *d_motion = tangents
    columns_are_fixed_in_bodies = configuration.has_constant_subspaces(model) and not configuration.is_prescribed(model)
    at = (moving.q, moving.v, a)
    if columns_are_fixed_in_bodies and stays(d_model):
        dq, dv, da = (jnp.zeros_like(x) if stays(d) else d for x, d in zip(at, d_motion, strict=True))
        dq = configuration.velocity_of_rate(model, moving.q, dq)
        return _change_with_motion(model, moving, a, dq, dv, da)
    return directional_derivative(
        lambda model, q, v, a: forces_of_motion(model, kinematics.motion(model, q, v), a), (model, *at), tangents
    )


@traced_once
def _change_with_motion(
    model: Model, moving: Motion, a: Accelerations, dq: Velocities, dv: Velocities, da: Accelerations
) -> GeneralizedForces:
    """Change of the inverse dynamics when the motion changes by (dq, dv, da), with dq in tangent coordinates.

    A change dq displaces body i by the twist xi_i. It carries all quantities fixed in the body, such as columns: xi x s. The change
    of the inertial force is therefore its change relative to the body, where the inertia is constant, plus its rotation with xi.
    The same holds for the forces of rotors. Source: theory.md (I6), (R3).
    """
    topology, gravity = model.topology, gravity_field(model)
    columns, velocity = moving.placements.columns, moving.velocity

    def rates(xi, column, v, dv):
        d_column = cross_motion(xi, column)
        return d_column, d_column * v + column * dv

    def accelerations(of_body, column, v, a, da, d_column, d_rate):
        velocity, d_velocity = of_body
        own = d_column * a + column * da
        return own + cross_motion(d_velocity, column * v) + cross_motion(velocity, d_rate)

    def forces(inertia, velocity, acceleration, xi, d_velocity, d_acceleration):
        acceleration, momentum = acceleration - gravity, inertia.momentum(velocity)
        force = inertia.momentum(acceleration) + cross_force(velocity, momentum)  # (M1), (M2)
        seen_velocity = d_velocity - cross_motion(xi, velocity)
        seen_acceleration = d_acceleration - cross_motion(xi, acceleration)
        seen = inertia.momentum(seen_acceleration) + cross_force(seen_velocity, momentum)
        return force, seen + cross_force(velocity, inertia.momentum(seen_velocity)), seen_velocity, seen_acceleration

    xi = tree.sum_over_columns(topology, tree.of_columns_alone(topology, jnp.multiply, columns, dq))
    d_columns, d_rate = tree.along_columns(topology, rates, xi, columns, moving.v, dv)
    d_velocity = tree.sum_over_columns(topology, d_rate)
    own = tree.along_columns(
        topology, accelerations, (velocity, d_velocity), columns, moving.v, a, da, d_columns, d_rate
    )
    force, seen, seen_velocity, seen_acceleration = tree.of_bodies(
        topology,
        forces,
        moving.placements.inertia,
        velocity,
        kinematics.accelerations(model, moving, a),
        xi,
        d_velocity,
        tree.sum_over_columns(topology, own),
    )
    d_tau = rotors.reflected_inertia(model) * da
    if model.rotors.count:
        h = rotors.spin_columns(model, moving.placements)
        force = force + rotors.moments_of_motion(h, velocity[:, :3], moving.v, a)
        seen = seen + rotors.moments_of_motion(h, velocity[:, :3], dv, da)
        seen = seen + rotors.moments_of_motion(h, seen_velocity[:, :3], moving.v, jnp.zeros_like(a))
        d_tau = d_tau + rotors.along_columns(h, seen_acceleration[:, :3])  # (R3)
    carried = tree.of_bodies(topology, lambda seen, xi, force: seen + cross_force(xi, force), seen, xi, force)
    beyond = tree.sum_over_descendants(topology, force), tree.sum_over_descendants(topology, carried)

    def of_column(beyond, column, d_column):
        return dot(d_column, beyond[0]) + dot(column, beyond[1])

    return tree.along_columns(topology, of_column, beyond, columns, d_columns) + d_tau


@traced_once
def forces_of_motion(model: Model, moving: Motion, a: Accelerations) -> GeneralizedForces:
    """Inverse dynamics from a precomputed motion.

    Args:
        model: Mechanism.
        moving: Motion of this model.
        a: Generalized accelerations (rad/s^2 or m/s^2).
    """
    acceleration = kinematics.accelerations(model, moving, a)
    tau = project(model, moving.placements, forces_on_bodies(model, moving, acceleration, a))
    tau = tau + rotors.reflected_inertia(model) * a
    if not model.rotors.count:
        return tau
    return tau + rotors.along_columns(rotors.spin_columns(model, moving.placements), acceleration[:, :3])  # (R3)


def forces_on_bodies(
    model: Model, moving: Motion, acceleration: Float[Array, "nb 6"], a: Accelerations
) -> Float[Array, "nb 6"]:
    """Inertial forces of the bodies and of the rotors that they carry, gravity subtracted.

    Args:
        model: Mechanism.
        moving: Motion of the model.
        acceleration: Spatial accelerations of the bodies about the reference point P, ground axes.
        a: Generalized accelerations (rad/s^2 or m/s^2).

    Returns:
        6-vectors (moment about the reference point P; force), ground axes, N m and N.
    """
    force = inertial_forces(model, moving, acceleration)
    if not model.rotors.count:
        return force
    h = rotors.spin_columns(model, moving.placements)
    return force + rotors.moments_of_motion(h, moving.velocity[:, :3], moving.v, a)  # (R3)


def inertial_forces(model: Model, moving: Motion, acceleration: Float[Array, "nb 6"]) -> Float[Array, "nb 6"]:
    """Inertial force (moment about the reference point P; force) of each body, gravity subtracted, ground axes, N m and N.

    Args:
        model: Mechanism.
        moving: Motion of the model.
        acceleration: Spatial accelerations of the bodies about the reference point P, ground axes.

    Source: theory.md (M1), (M2) about the reference point.
    """
    gravity = gravity_field(model)

    def of_body(inertia, velocity, acceleration):
        return inertia.momentum(acceleration - gravity) + cross_force(
            velocity, inertia.momentum(velocity)
        )  # (M1), (M2)

    return tree.of_bodies(model.topology, of_body, moving.placements.inertia, moving.velocity, acceleration)


def gravity_field(model: Model) -> Float[Array, "6"]:
    """Gravity as a spatial acceleration, ground axes."""
    return jnp.concatenate([jnp.zeros_like(model.gravity), model.gravity])


def project(model: Model, placed: kinematics.Placements, body_force: Float[Array, "nb 6"]) -> GeneralizedForces:
    """Convert forces on bodies to generalized forces: Q_alpha is the sum of (motion column alpha) . (force) over the bodies that
    the velocity component alpha moves.

    Args:
        model: Mechanism.
        placed: Placements of the bodies.
        body_force: 6-vector (moment about the reference point P; force) on each body, ground axes, N m and N.

    Source: theory.md (H1).
    """
    beyond = tree.sum_over_descendants(model.topology, body_force)
    return tree.along_columns(model.topology, dot, beyond, placed.columns)  # (H1)


@model_function
def bias_force(model: Model, q: Coordinates, v: Velocities) -> GeneralizedForces:
    """Bias force h(q, v) of the equation M a + h = tau: Coriolis and centrifugal forces minus the gravity force; N m or N.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).

    Source: theory.md (I1).
    """
    return recursive_inverse_dynamics(model, q, v, jnp.zeros_like(v))


@model_function
def gravity_force(model: Model, q: Coordinates) -> GeneralizedForces:
    """Generalized force of gravity Q_alpha = sum m_i g . T_alpha(i) = -dV/dq^alpha; N m or N.

    This force is on the right-hand side of the equation of motion: M a + C v = gravity_force + tau.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).

    Source: theory.md (H2).
    """
    placed = kinematics.placements(model, q)
    weight = placed.inertia.mass[:, None] * model.gravity[None]
    moment = cross(placed.inertia.first_moment, model.gravity[None])
    return project(model, placed, jnp.concatenate([moment, weight], axis=1))  # (H2)
