"""Derivatives of the equations of motion in tangent coordinates: nv numbers per direction, quaternions or not.

"With respect to q" means along `configuration.integrate(model, q, step)` at step = 0, velocity and acceleration components held.
For revolute and prismatic joints that is the plain partial derivative.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.dynamics import forward, inverse, kinematics, metric, response, rotors
from jaxdyn.dynamics.doors import model_function
from jaxdyn.dynamics.forward import ForwardMethod
from jaxdyn.dynamics.inverse import GeneralizedForces
from jaxdyn.dynamics.kinematics import Accelerations, Coordinates, Motion, Velocities
from jaxdyn.lanes.tracing import writing_out
from jaxdyn.mechanism import configuration, tree
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial import factorizations
from jaxdyn.spatial.arrays import dot, einsum
from jaxdyn.spatial.sixvector import cross_force, cross_motion


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


@model_function
def inverse_dynamics_derivatives(
    model: Model, q: Coordinates, v: Velocities, a: Accelerations
) -> InverseDynamicsDerivatives:
    """dtau/dq, dtau/dv, dtau/da of the inverse dynamics in tangent coordinates.

    With s the columns, V and A the velocity and acceleration (less gravity) of the body before the joint of a column, and the
    answers of subtrees of `response.inertial_response`:

        dtau/dv:  x = s,      y = (V + V_own) x s
        dtau/dq:  x = V x s,  y = A x s + V x (V x s),   and the force beyond the joint, carried along

    In closed form, of nv^2 terms, where columns are fixed in their bodies; by autodiff where they are not (universal joints, some
    joints of your own) and for prescribed motion.

    Source: theory.md (I6), (I11), (R8).
    """
    if configuration.has_constant_subspaces(model) and not configuration.is_prescribed(model):
        return _of_fixed_columns(model, kinematics.motion(model, q, v), a)

    def needed(step, v):
        return inverse.recursive_inverse_dynamics(model, configuration.integrate(model, q, step), v, a)

    dtau_dq, dtau_dv = jax.jacfwd(needed, argnums=(0, 1))(jnp.zeros_like(v), v)
    return InverseDynamicsDerivatives(dtau_dq, dtau_dv, metric.mass_matrix(model, q))


def _of_fixed_columns(model: Model, moving: Motion, a: Accelerations) -> InverseDynamicsDerivatives:
    """The closed form. Source: theory.md (I11), (R8)."""
    topology, placed = model.topology, moving.placements
    columns, body = placed.columns, topology.body_of_column
    before = np.array(topology.parents)[body]  # the ground is the last one
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
    model: Model, q: Coordinates, v: Velocities, tau: GeneralizedForces, *, method: ForwardMethod = "cholesky"
) -> ForwardDynamicsDerivatives:
    """da/dq, da/dv, da/dtau of the forward dynamics in tangent coordinates.

        da/dtau = M^-1,   da/dq = -M^-1 dtau/dq,   da/dv = -M^-1 dtau/dv   with those of the inverse dynamics at a

    Args:
        tau: all generalized forces but gravity, N m or N.
        method: how the accelerations a are computed, see `forward_dynamics`; the derivatives always need the factor of M.

    Source: theory.md (I7).
    """
    # Rows and columns from the leaves on: zeros of M, between branches of the tree, are zeros of the factor.
    factor = factorizations.cholesky(metric.mass_matrix(model, q)[::-1, ::-1])

    def solved(right):
        return factorizations.cholesky_solve(factor, right[::-1])[::-1]

    if method == "cholesky":
        a = solved(tau - inverse.bias_force(model, q, v))
    else:
        a = forward.accelerations_from(model, kinematics.motion(model, q, v), tau, method)
    needed = inverse_dynamics_derivatives(model, q, v, a)
    inverse_mass = solved(np.eye(model.nv, dtype=v.dtype))
    right = -jnp.concatenate([needed.dtau_dq, needed.dtau_dv], axis=1)
    if writing_out():  # column by column, in a loop unless the mechanism is small
        product = jax.lax.scan(lambda _, column: (None, solved(column)), None, right.T)[1].T
    else:
        product = dot(inverse_mass, right)
    da_dq, da_dv = jnp.split(product, 2, axis=1)
    return ForwardDynamicsDerivatives(da_dq, da_dv, inverse_mass)  # (I7)


@model_function
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


@model_function
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

    def weighted(step, v, last):
        return dot(weights, function(model, configuration.integrate(model, q, step), v, last))

    at = (jnp.zeros_like(others[0]), *others)
    return TangentProduct(*jax.jvp(jax.grad(weighted, argnums=(0, 1, 2)), at, tuple(direction))[1])
