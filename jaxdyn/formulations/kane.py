"""Kane's form of the equations of motion: forces on bodies, projected on partial velocities.

    v_i = T_alpha(i) v^alpha + T_t(i),   omega_i = Omega_alpha(i) v^alpha + Omega_t(i)               (E15)
    F_gamma + F*_gamma = 0                                                                           (K1)

T_t, Omega_t are the velocities that prescribed motions cause at v = 0. The velocities v may be quasi-velocities, and the method
needs no differentiation. The equations are in theory.md section (k).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import einsum
from jaxdyn.dynamics import kinematics, rotors
from jaxdyn.dynamics.doors import model_function
from jaxdyn.dynamics.inverse import GeneralizedForces
from jaxdyn.dynamics.kinematics import Accelerations, BodyMotion, Coordinates, PartialVelocities, Velocities
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial.inertia import symmetric_matrix
from jaxdyn.spatial.rotation import cross


class KaneForces(NamedTuple):
    """Generalized forces of Kane's equations F + F* = 0, and their terms. Vectors are on ground axes.

    Attributes:
        active: Generalized active forces F, gravity included, N m or N.
        inertia: Generalized inertia forces F*, rotors included, N m or N.
        partials: Partial velocities T and partial angular velocities Omega.
        time_part: Angular velocities Omega_t and center-of-mass velocities T_t that prescribed motions cause at v = 0, rad/s and
            m/s.
        accelerations: Angular accelerations eps and center-of-mass accelerations a_C, rad/s^2 and m/s^2.
        inertia_force: Inertia force -m a_C of each body at its center of mass, N.
        inertia_moment: Inertia moment -(J eps + omega x J omega) of each body, and of the rotors that it carries, N m.
    """

    active: GeneralizedForces
    inertia: GeneralizedForces
    partials: PartialVelocities
    time_part: BodyMotion
    accelerations: BodyMotion
    inertia_force: Float[Array, "nb 3"]
    inertia_moment: Float[Array, "nb 3"]


@model_function
def kane_forces(model: Model, q: Coordinates, v: Velocities, a: Accelerations, tau: GeneralizedForces) -> KaneForces:
    """Generalized active forces F and inertia forces F* of Kane's equations F + F* = 0.

        F_gamma = tau_gamma + sum m_i g . T_gamma(i)
        F*_gamma = - sum [ m_i a_i . T_gamma(i) + (J eps + omega x J omega)_i . Omega_gamma(i) ]
            - (armature * a)_gamma - (rotors)_gamma

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).
        a: Generalized accelerations (rad/s^2 or m/s^2).
        tau: All generalized forces except gravity, N m or N.

    Returns:
        `KaneForces`; `active + inertia` is zero if and only if a is the acceleration caused by tau.

    Raises:
        ValueError: An argument has the wrong shape.

    Source: theory.md (K1), (E15), (R3); Kane and Levinson 1985.
    """
    moving = kinematics.motion(model, q, v)
    placed, w = moving.placements, moving.velocity[:, :3]
    partials = kinematics.partials_at(model, placed, placed.com)
    accelerations = kinematics.accelerations_of_bodies(model, moving, a)
    tensor = jax.vmap(symmetric_matrix)(model.inertia)
    on_ground_axes = einsum("bij,bjk,blk->bil", placed.rotation, tensor, placed.rotation)  # (B9)

    force = -model.mass[:, None] * accelerations.linear
    spin = einsum("bij,bj->bi", on_ground_axes, w)
    moment = -einsum("bij,bj->bi", on_ground_axes, accelerations.angular) - cross(w, spin)
    of_rates = rotors.reflected_inertia(model) * a
    if model.rotors.count:
        h = rotors.spin_columns(model, placed)
        moment = moment - rotors.moments_of_motion(h, w, moving.v, a)[:, :3]
        of_rates = of_rates + rotors.along_columns(h, accelerations.angular)  # (R3)
    weight = model.mass[:, None] * model.gravity[None]
    return KaneForces(
        active=tau + einsum("bi,bgi->g", weight, partials.linear),  # (H2)
        inertia=einsum("bi,bgi->g", force, partials.linear)
        + einsum("bi,bgi->g", moment, partials.angular)
        - of_rates,  # (K1)
        partials=partials,
        time_part=kinematics.mass_center_velocities(model, q, jnp.zeros_like(v)),  # (E15)
        accelerations=accelerations,
        inertia_force=force,
        inertia_moment=moment,
    )
