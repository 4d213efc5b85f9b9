"""Mechanisms with constraints: residuals and their rates, and the forces that keep them; theory.md section (n).

With phi the stacked residuals and G their Jacobian with respect to velocities,

    phi = 0,   dphi/dt = G v + (explicit rate) = 0,   d^2 phi/dt^2 = G a + bias = 0

G and the bias are exact derivatives of the residual functions along the motion, so a constraint states nothing but its residual.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.dynamics import kinematics, metric
from jaxdyn.dynamics.constraint import Constraint
from jaxdyn.dynamics.kinematics import Coordinates, Velocities
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial.arrays import dot

_REFINEMENTS = 2


class ConstraintMotion(NamedTuple):
    """Constraints at one configuration and velocity.

    Attributes:
        residual: phi.
        rate: dphi/dt.
        bias: d^2 phi/dt^2 at zero generalized acceleration.
    """

    residual: Float[Array, "m"]
    rate: Float[Array, "m"]
    bias: Float[Array, "m"]


def residuals(model: Model, constraints: Sequence[Constraint], q: Coordinates) -> Float[Array, "m"]:
    """phi(q) of all constraints, one after the other. Source: theory.md (N7)."""
    placed = kinematics.placements(model, q)
    return jnp.concatenate([constraint.residual(model, q, placed) for constraint in constraints])


def jacobian(model: Model, constraints: Sequence[Constraint], q: Coordinates) -> Float[Array, "m nv"]:
    """G = d phi / d(step of q), in tangent coordinates. Source: theory.md (N4)."""

    def moved(step):
        return residuals(model, constraints, configuration.integrate(model, q, step))

    return jax.jacfwd(moved)(jnp.zeros(model.nv, q.dtype))


def motion(model: Model, constraints: Sequence[Constraint], q: Coordinates, v: Velocities) -> ConstraintMotion:
    """Residuals, their rates and their accelerations at zero generalized acceleration. Source: theory.md (N5), (N7)."""

    def along(function):
        """(value, rate of change) of a function of time and configuration while the mechanism moves with constant v."""

        def value_and_rate(time, q):
            directions = (jnp.ones_like(time), configuration.coordinate_rate(model, q, v))
            return jax.jvp(function, (time, q), directions)

        return value_and_rate

    def phi(time, q):
        return residuals(model.later(time), constraints, q)

    (residual, rate), (_, bias) = along(along(phi))(jnp.zeros((), q.dtype), q)
    return ConstraintMotion(residual, rate, bias)


def multipliers(
    jacobian_: Float[Array, "m nv"], by_force: Float[Array, "nv m"], needed: Float[Array, "m"]
) -> Float[Array, "m"]:
    """lam of G M^-1 G' lam = needed, the smallest one where equations are redundant.

    Redundant rows make the matrix singular, and a pseudo-inverse has no derivative where its rank changes. A small multiple of the
    identity makes it regular, and repeated correction of what that misses takes the error out again.

    Args:
        jacobian_: G.
        by_force: M^-1 G'.
        needed: change of the constraint accelerations that is wanted.

    Source: theory.md (N9), (N10); the method: Carpentier, Budhiraja and Mansard, Robotics: Science and Systems 2021.
    """
    matrix = dot(jacobian_, by_force)
    count = matrix.shape[0]
    softness = jnp.finfo(matrix.dtype).eps ** (2 / 3) * jnp.trace(matrix) / count + jnp.finfo(matrix.dtype).tiny
    factor = jnp.linalg.cholesky(matrix + softness * jnp.identity(count, matrix.dtype))
    solution = jax.scipy.linalg.cho_solve((factor, True), needed)
    for _ in range(_REFINEMENTS):
        solution = solution + jax.scipy.linalg.cho_solve((factor, True), needed - dot(matrix, solution))
    return solution


def velocities_by_impulse(model: Model, q: Coordinates, jacobian_: Float[Array, "m nv"]) -> Float[Array, "nv m"]:
    """M^-1 G': the change of velocity by a unit impulse along each constraint."""
    factor = jnp.linalg.cholesky(metric.mass_matrix(model, q))
    return jax.scipy.linalg.cho_solve((factor, True), jacobian_.T)


def constrained_acceleration(
    model: Model,
    constraints: Sequence[Constraint],
    q: Coordinates,
    v: Velocities,
    free: Float[Array, "nv"],
    stabilization: float,
) -> tuple[Float[Array, "nv"], Float[Array, "m"]]:
    """Acceleration that keeps the constraints, and the multipliers lam whose force G' lam makes it so.

        G a = -bias - 2 w dphi/dt - w^2 phi,   a = free + M^-1 G' lam

    Args:
        free: acceleration without the constraints.
        stabilization: w, 1/s; an error of the constraints decays in the time 1/w.

    Source: theory.md (N9).
    """
    moving = motion(model, constraints, q, v)
    rows = jacobian(model, constraints, q)
    by_force = velocities_by_impulse(model, q, rows)
    wanted = -moving.bias - 2.0 * stabilization * moving.rate - stabilization**2 * moving.residual
    lam = multipliers(rows, by_force, wanted - dot(rows, free))
    return free + dot(by_force, lam), lam
