"""Derivatives of the equations of motion in tangent coordinates: nv numbers per direction, quaternions or not.

"With respect to q" means along `configuration.integrate(model, q, step)` at step = 0, velocity and acceleration components held.
For revolute and prismatic joints that is the plain partial derivative.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.dynamics import forward, inverse, metric
from jaxdyn.dynamics.forward import ForwardMethod
from jaxdyn.dynamics.inverse import GeneralizedForces
from jaxdyn.dynamics.kinematics import Accelerations, Coordinates, Velocities
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial.arrays import dot


class InverseDynamicsDerivatives(NamedTuple):
    """Derivatives of tau = M a + h; row: component of tau, column: direction.

    Attributes:
        dtau_dq: N m/rad, N/m, ... by the kinds of joints.
        dtau_dv: N m s/rad, N s/m, ...
        dtau_da: the mass matrix, kg m^2, kg m, kg.
    """

    dtau_dq: Float[Array, "nv nv"]
    dtau_dv: Float[Array, "nv nv"]
    dtau_da: Float[Array, "nv nv"]


class ForwardDynamicsDerivatives(NamedTuple):
    """Derivatives of a = M^-1 (tau - h); row: component of a, column: direction.

    Attributes:
        da_dq: 1/s^2 and the like by the kinds of joints.
        da_dv: 1/s.
        da_dtau: the inverse of the mass matrix.
    """

    da_dq: Float[Array, "nv nv"]
    da_dv: Float[Array, "nv nv"]
    da_dtau: Float[Array, "nv nv"]


class TangentProduct(NamedTuple):
    """Product of a Hessian in tangent coordinates with a direction, by the blocks of the arguments.

    Attributes:
        q, v: along configuration and velocity.
        last: along the acceleration (inverse dynamics) or the generalized force (forward dynamics).
    """

    q: Float[Array, "nv"]
    v: Float[Array, "nv"]
    last: Float[Array, "nv"]


def inverse_dynamics_derivatives(
    model: Model, q: Coordinates, v: Velocities, a: Accelerations
) -> InverseDynamicsDerivatives:
    """dtau/dq, dtau/dv, dtau/da of the inverse dynamics in tangent coordinates.

    Source: theory.md (I6).
    """
    configuration.check_velocities(model, v=v, a=a)

    def needed(step, v):
        return inverse.recursive_inverse_dynamics(model, configuration.integrate(model, q, step), v, a)

    dtau_dq, dtau_dv = jax.jacfwd(needed, argnums=(0, 1))(jnp.zeros_like(v), v)
    return InverseDynamicsDerivatives(dtau_dq, dtau_dv, metric.mass_matrix(model, q))


def forward_dynamics_derivatives(
    model: Model, q: Coordinates, v: Velocities, tau: GeneralizedForces, *, method: ForwardMethod = "cholesky"
) -> ForwardDynamicsDerivatives:
    """da/dq, da/dv, da/dtau of the forward dynamics in tangent coordinates.

        da/dtau = M^-1,   da/dq = -M^-1 dtau/dq,   da/dv = -M^-1 dtau/dv   with those of the inverse dynamics at a

    Args:
        tau: all generalized forces but gravity, N m or N.
        method: how the accelerations a are computed, see `forward_dynamics`.

    Source: theory.md (I7).
    """
    a = forward.forward_dynamics(model, q, v, tau, method=method)
    needed = inverse_dynamics_derivatives(model, q, v, a)
    factor = (jnp.linalg.cholesky(needed.dtau_da), True)
    inverse_mass = jax.scipy.linalg.cho_solve(factor, jnp.eye(model.nv, dtype=v.dtype))
    return ForwardDynamicsDerivatives(
        -dot(inverse_mass, needed.dtau_dq), -dot(inverse_mass, needed.dtau_dv), inverse_mass
    )


def inverse_dynamics_hessian_product(
    model: Model,
    q: Coordinates,
    v: Velocities,
    a: Accelerations,
    weights: Float[Array, "nv"],
    direction: tuple[Velocities, Velocities, Accelerations],
) -> TangentProduct:
    """Hessian of weights . tau(q, v, a) times a direction (dq, dv, da) in tangent coordinates, in one sweep forward over reverse.

    Args:
        weights: one per component of tau, as multipliers of the equations of motion are.
    """
    return _hessian_product(inverse.recursive_inverse_dynamics, model, q, (v, a), weights, direction)


def forward_dynamics_hessian_product(
    model: Model,
    q: Coordinates,
    v: Velocities,
    tau: GeneralizedForces,
    weights: Float[Array, "nv"],
    direction: tuple[Velocities, Velocities, GeneralizedForces],
) -> TangentProduct:
    """Hessian of weights . a(q, v, tau) times a direction (dq, dv, dtau) in tangent coordinates, in one sweep forward over reverse.

    Args:
        weights: one per component of a, as the costates of optimal control are.
    """
    return _hessian_product(forward.forward_dynamics, model, q, (v, tau), weights, direction)


def _hessian_product(function, model: Model, q: Coordinates, others, weights, direction) -> TangentProduct:
    configuration.check_velocities(model, weights=weights)

    def weighted(step, v, last):
        return dot(weights, function(model, configuration.integrate(model, q, step), v, last))

    at = (jnp.zeros_like(others[0]), *others)
    return TangentProduct(*jax.jvp(jax.grad(weighted, argnums=(0, 1, 2)), at, tuple(direction))[1])
