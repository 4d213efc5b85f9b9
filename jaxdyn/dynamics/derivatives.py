"""Derivatives of the equations of motion in tangent coordinates, which have nv components also for quaternion joints.

The derivative with respect to q is the derivative with respect to `step` at `configuration.integrate(model, q, step)`, for step = 0
and constant velocity and acceleration components. For revolute and prismatic joints it is the ordinary partial derivative.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import einsum
from jaxdyn.dynamics import forward, inverse, kinematics, metric, response, rotors
from jaxdyn.dynamics.doors import model_function
from jaxdyn.dynamics.forward import ForwardMethod
from jaxdyn.dynamics.inverse import GeneralizedForces
from jaxdyn.dynamics.kinematics import Accelerations, Coordinates, Motion, Velocities
from jaxdyn.mechanism import configuration, tree
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial import factorizations
from jaxdyn.spatial.sixvector import cross_force, cross_motion


class InverseDynamicsDerivatives(NamedTuple):
    """Derivatives of tau = M a + h. Rows are components of tau, and columns are directions of change.

    Attributes:
        dtau_dq: Derivative with respect to q; N m/rad, N/m, ... by the kinds of joints.
        dtau_dv: Derivative with respect to v; N m s/rad, N s/m, ...
        dtau_da: Derivative with respect to a, which is the mass matrix; kg m^2, kg m or kg.
    """

    dtau_dq: Float[Array, "nv nv"]
    dtau_dv: Float[Array, "nv nv"]
    dtau_da: Float[Array, "nv nv"]


class ForwardDynamicsDerivatives(NamedTuple):
    """Derivatives of a = M^-1 (tau - h). Rows are components of a, and columns are directions of change.

    Attributes:
        da_dq: Derivative with respect to q; 1/s^2, rad/(m s^2), ... by the kinds of joints.
        da_dv: Derivative with respect to v; 1/s, rad/(m s), ...
        da_dtau: Derivative with respect to tau, which is the inverse of the mass matrix.
    """

    da_dq: Float[Array, "nv nv"]
    da_dv: Float[Array, "nv nv"]
    da_dtau: Float[Array, "nv nv"]


@model_function
def inverse_dynamics_derivatives(
    model: Model, q: Coordinates, v: Velocities, a: Accelerations
) -> InverseDynamicsDerivatives:
    """Derivatives dtau/dq, dtau/dv, dtau/da of the inverse dynamics in tangent coordinates.

    For each velocity component, s is its motion column, V and A are the spatial velocity and acceleration (gravity subtracted) of
    the parent body of its joint, and V_own is the velocity of the body that this joint moves. The derivatives are the results of
    `response.inertial_response` for these x and y:

        dtau/dv:  x = s,      y = (V + V_own) x s
        dtau/dq:  x = V x s,  y = A x s + V x (V x s),   plus the rotation of the force that the joint transmits

    This closed form has nv^2 terms. The closed form is valid for motion columns that are constant on the axes of their bodies.
    Automatic differentiation is used for other joints (universal joints, some user-defined joints) and for prescribed motion.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).
        a: Generalized accelerations (rad/s^2 or m/s^2).

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        model = jaxdyn.library.double_pendulum()
        q, v, a = jnp.array([0.3, -0.5]), jnp.array([1.0, 0.0]), jnp.zeros(2)
        dtau_dq, dtau_dv, mass = jaxdyn.inverse_dynamics_derivatives(model, q, v, a)
        ```

    Source: theory.md (I6), (I11), (R8).
    """
    if configuration.has_constant_subspaces(model) and not configuration.is_prescribed(model):
        return _of_fixed_columns(model, kinematics.motion(model, q, v), a)

    def needed(step, v):
        return inverse.recursive_inverse_dynamics(model, configuration.integrate(model, q, step), v, a)

    dtau_dq, dtau_dv = jax.jacfwd(needed, argnums=(0, 1))(jnp.zeros_like(v), v)
    return InverseDynamicsDerivatives(dtau_dq, dtau_dv, metric.mass_matrix(model, q))


def _of_fixed_columns(model: Model, moving: Motion, a: Accelerations) -> InverseDynamicsDerivatives:
    """Closed form for motion columns that are constant on the axes of their bodies. Source: theory.md (I11), (R8)."""
    topology, placed = model.topology, moving.placements
    columns, body = placed.columns, topology.body_of_column
    before = np.array(topology.parents)[body]  # index -1, the ground, selects the last row below
    along, across = jax.vmap(cross_motion), jax.vmap(cross_force)
    acceleration = kinematics.accelerations(model, moving, a)
    ground = -inverse.gravity_field(model)[None]
    v_before = jnp.concatenate([moving.velocity, jnp.zeros_like(ground)])[before]
    a_before = jnp.concatenate([acceleration + ground, ground])[before]
    carried = along(v_before, columns)
    turned = along(a_before, columns) + along(v_before, carried)
    rates = carried + along(moving.velocity[body], columns)

    def answer(x, y):
        return response.inertial_response(model, placed, moving.v, moving.velocity, x, y)

    force = tree.sum_over_descendants(topology, inverse.forces_on_bodies(model, moving, acceleration, a))[body]
    pushed = einsum("gc,bc->gb", columns, across(columns, force))
    dtau_dq = answer(carried, turned) + jnp.where(response.strictly_nearer(model), pushed, 0.0)  # (I11)
    dtau_dv = answer(columns, rates)
    if model.rotors.count:
        dtau_dv = dtau_dv + rotors.response_to_rates(model, placed, moving.velocity)  # (R8)
    return InverseDynamicsDerivatives(dtau_dq, dtau_dv, metric.composite_mass_matrix(model, placed))


@model_function
def forward_dynamics_derivatives(
    model: Model, q: Coordinates, v: Velocities, tau: GeneralizedForces, *, method: ForwardMethod = "auto"
) -> ForwardDynamicsDerivatives:
    """Derivatives da/dq, da/dv, da/dtau of the forward dynamics in tangent coordinates.

        da/dtau = M^-1,   da/dq = -M^-1 dtau/dq,   da/dv = -M^-1 dtau/dv   with the derivatives of the inverse dynamics at a

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).
        tau: All generalized forces except gravity (N m or N).
        method: Algorithm for the accelerations a, see `forward_dynamics`; the derivatives always use the
            factor of M, and so does "auto".

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        model = jaxdyn.library.double_pendulum()
        q, v, tau = jnp.array([0.3, -0.5]), jnp.array([1.0, 0.0]), jnp.zeros(2)
        da_dq, da_dv, inverse_mass = jaxdyn.forward_dynamics_derivatives(model, q, v, tau)
        ```

    Source: theory.md (I7).
    """
    moving = kinematics.motion(model, q, v)
    solved = functools.partial(
        factorizations.cholesky_solve, forward.mass_factor(model, moving.placements), lower=False
    )
    if method in ("auto", "cholesky"):
        a = solved(tau - inverse.bias_force(model, q, v))
    else:
        a = forward.accelerations_from(model, moving, tau, method)
    needed = inverse_dynamics_derivatives(model, q, v, a)
    inverse_mass = solved(np.eye(model.nv, dtype=v.dtype))
    right = -jnp.concatenate([needed.dtau_dq, needed.dtau_dv], axis=1)
    # Column by column, which is a loop unless the mechanism is small.
    product = jax.lax.scan(lambda _, column: (None, solved(column)), None, right.T)[1].T
    da_dq, da_dv = jnp.split(product, 2, axis=1)
    return ForwardDynamicsDerivatives(da_dq, da_dv, inverse_mass)  # (I7)
