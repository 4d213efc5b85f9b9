"""Accelerations of a mechanism with constraints, and the multipliers of the constraint forces; theory.md (N9).

The derivatives of accelerations and multipliers follow from the equations of motion, not from the algorithm that solves them:

    M da - G' dlam = dtau - d(M a + h - G' lam),   G da = d(wanted) - d(G a + bias)      at constant a and lam

The computation of these derivatives requires one derivative of the inverse dynamics, and one additional solution with the same
matrix factors (N16).
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

import jaxdyn.compute as compute
from jaxdyn.compute.arrays import dot
from jaxdyn.dynamics import constraint_motion, forward, inverse, kinematics, saddle_point
from jaxdyn.dynamics.added_inertia import AddedInertia
from jaxdyn.dynamics.constraint import Constraint
from jaxdyn.dynamics.forward import ForwardMethod
from jaxdyn.dynamics.inverse import GeneralizedForces
from jaxdyn.dynamics.kinematics import Accelerations, Coordinates, Motion, Placements
from jaxdyn.dynamics.saddle_point import SaddlePoint
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial import factorizations
from jaxdyn.spatial.directions import directional_derivative, stays

Multipliers = Float[Array, "m"]


def equations_of_motion(
    model: Model,
    constraints: Sequence[Constraint],
    q: Coordinates,
    placed: Placements,
    added: AddedInertia | None = None,
) -> SaddlePoint:
    """Factorize the equations of motion with mass matrix M and constraint Jacobian G at the configuration q.

    Args:
        model: Mechanism.
        constraints: Constraints of the mechanism.
        q: Generalized coordinates.
        placed: Placements of the bodies at q.
        added: Inertia that is added to M; none if None.
    """
    rows = constraint_motion.jacobian(model, constraints, q, placed)
    residual = constraint_motion.residuals(model, constraints, q, placed.poses)
    return saddle_point.factorize(forward.mass_factor(model, placed, added), rows, residual)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def constrained_acceleration(
    method: ForwardMethod,
    model: Model,
    constraints: tuple[Constraint, ...],
    moving: Motion,
    tau: GeneralizedForces,
    wanted: Multipliers,
    added: AddedInertia | None,
) -> tuple[Accelerations, Multipliers]:
    """Acceleration that satisfies the constraints, and the multipliers lam of the forces G' lam that cause it.

        M a + h = tau + G' lam,   d^2 phi/dt^2 = G a + bias = wanted

    Args:
        method: Algorithm for the acceleration without constraints.
        model: Mechanism.
        constraints: Constraints of the mechanism.
        moving: Motion of the model.
        tau: All generalized forces except gravity (N m or N).
        wanted: Required d^2 phi/dt^2; zero except for stabilization.
        added: Inertia of an implicit step, which is added to M; none if None.

    Source: theory.md (N9).
    """
    q = moving.q
    matrices = equations_of_motion(model, constraints, q, moving.placements, added)
    if method in ("auto", "cholesky"):  # reuses the factor
        bias = inverse.forces_of_motion(model, moving, jnp.zeros_like(tau))
        free = factorizations.cholesky_solve(matrices.mass_factor, tau - bias, lower=False)
    else:
        free = forward.accelerations_from(model, moving, tau, method, added)
    at_rest = constraint_motion.motion(model, constraints, q, moving)
    lam = saddle_point.multipliers(matrices, wanted - at_rest.acceleration - dot(matrices.rows, free))
    return free + dot(matrices.by_force, lam), lam


@functools.partial(constrained_acceleration.defjvp, symbolic_zeros=True)
def _constrained_acceleration_jvp(method, primals, tangents):
    model, constraints, moving, tau, wanted, added = primals
    d_model, d_constraints, d_moving, d_tau, d_wanted, d_added = tangents
    # `change_of_forces` derives the other fields of the motion from the model, q and v.
    q, v, dq, dv = moving.q, moving.v, d_moving.q, d_moving.v
    # Reverse mode may store this solution instead of computing it again.
    a, lam = map(compute.keep, constrained_acceleration(method, *primals))
    force = jnp.zeros_like(tau) if stays(d_tau) else d_tau
    if not stays((d_model, dq, dv)):
        force = force - inverse.change_of_forces(model, moving, a, (d_model, dq, dv, SymbolicZero(jax.typeof(a))))
    if added is not None:
        force = force - forward.change_of_added_force(model, moving, added, a, (d_model, d_moving, d_added))
    needed = jnp.zeros_like(lam) if stays(d_wanted) else d_wanted
    matrices = equations_of_motion(model, constraints, q, moving.placements, added)
    matrices = matrices._replace(
        mass_factor=compute.keep_triangle(matrices.mass_factor, lower=False),
        factor=compute.keep_triangle(matrices.factor, lower=True),
    )
    d_mechanism = (d_model, d_constraints, dq, dv)
    if stays(d_mechanism):
        return (a, lam), saddle_point.solve(matrices, force, needed)

    def constraint_terms(model, constraints, q, v):
        moving = kinematics.motion(model, q, v)
        rows = constraint_motion.jacobian(model, constraints, q, moving.placements)
        return rows, constraint_motion.motion(model, constraints, q, moving, a).acceleration

    d_rows, d_acceleration = directional_derivative(constraint_terms, (model, constraints, q, v), d_mechanism)
    unmet = wanted - constraint_motion.motion(model, constraints, q, moving, a).acceleration
    return (a, lam), saddle_point.change(matrices, lam, unmet, force, needed - d_acceleration, d_rows)
