"""Inverse dynamics: the generalized forces that a motion needs."""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.dynamics import kinematics, metric
from jaxdyn.dynamics.kinematics import Accelerations, Coordinates, Motion, Velocities
from jaxdyn.mechanism import configuration, tree
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial.arrays import einsum
from jaxdyn.spatial.inertia import SpatialInertia
from jaxdyn.spatial.sixvector import cross_force

GeneralizedForces = Float[Array, "nv"]


def inverse_dynamics(
    model: Model,
    q: Coordinates,
    v: Velocities,
    a: Accelerations,
    *,
    method: Literal["recursive", "covariant"] = "recursive",
) -> GeneralizedForces:
    """Generalized forces tau of the motion (q, v, a) under gravity: tau = M a + h.

        tau_gamma = a_{alpha gamma} a^alpha + Gamma_{alpha beta, gamma} v^alpha v^beta - (gravity force)_gamma

    Args:
        q, v, a: generalized coordinates, velocities, accelerations.
        method: "recursive" (Newton-Euler sums over the tree), or "covariant" (metric tensor and Christoffel symbols, as printed).

    Returns:
        N m for angles, N for displacements. Forces other than gravity are not included: see `System`.

    Raises:
        ValueError: wrong shapes, or an unknown method.

    Source: theory.md (I1), (I5), (M3), (M4); recursion: Luh, Walker and Paul 1980.
    """
    configuration.check_velocities(model, v=v, a=a)
    if method == "recursive":
        return recursive_inverse_dynamics(model, kinematics.motion(model, q, v), a)
    if method != "covariant":
        raise ValueError(f'unknown method {method!r} of inverse_dynamics; use "recursive" or "covariant"')
    symbols = metric.christoffel_first_kind(model, q)
    return (
        einsum("ag,a->g", metric.mass_matrix(model, q), a)
        + einsum("abg,a,b->g", symbols, v, v)
        - gravity_force(model, q)
    )


def recursive_inverse_dynamics(model: Model, moving: Motion, a: Accelerations) -> GeneralizedForces:
    """Inverse dynamics from a motion already at hand."""
    body_force = inertial_forces(model, moving, kinematics.accelerations(model, moving, a))
    return project(model, moving.placements, body_force) + model.armature * a


def inertial_forces(model: Model, moving: Motion, acceleration: Float[Array, "nb 6"]) -> Float[Array, "nb 6"]:
    """Force (moment about P; force) that each body needs for its spatial acceleration, gravity subtracted, ground axes.

    Source: theory.md (M1), (M2) about the reference point.
    """
    momentum = jax.vmap(SpatialInertia.momentum)
    gravity = jnp.concatenate([jnp.zeros_like(model.gravity), model.gravity])
    inertia = moving.placements.inertia
    bias = jax.vmap(cross_force)(moving.velocity, momentum(inertia, moving.velocity))
    return momentum(inertia, acceleration - gravity[None]) + bias


def project(model: Model, placed: kinematics.Placements, body_force: Float[Array, "nb 6"]) -> GeneralizedForces:
    """Generalized forces of forces on bodies: Q_alpha = sum over the bodies that alpha moves of column . force.

    Source: theory.md (H1).
    """
    beyond = tree.sum_over_descendants(model.topology, body_force)
    return einsum("ac,ac->a", placed.columns, beyond[model.topology.body_of_column])  # (H1)


def bias_force(model: Model, q: Coordinates, v: Velocities) -> GeneralizedForces:
    """Bias force h(q, v) of the equation M a + h = tau: Coriolis and centrifugal forces minus the gravity force; N m, N.

    Source: theory.md (I1).
    """
    return recursive_inverse_dynamics(model, kinematics.motion(model, q, v), jnp.zeros_like(v))


def gravity_force(model: Model, q: Coordinates) -> GeneralizedForces:
    """Generalized force of gravity Q_alpha = sum m_i g . T_alpha(i) = -dV/dq^alpha; N m, N.

    It stands on the right-hand side, M a + C v = gravity_force + tau. Source: theory.md (H2).
    """
    placed = kinematics.placements(model, q)
    weight = placed.inertia.mass[:, None] * model.gravity[None]
    moment = jnp.cross(placed.inertia.first_moment, model.gravity[None])
    return project(model, placed, jnp.concatenate([moment, weight], axis=1))  # (H2)
