"""Projection: the nearest configuration and the nearest velocity that satisfy the constraints, in the norm of the kinetic energy.

The derivatives of the two projections follow from their defining equations and do not depend on the number of iterations.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot
from jaxdyn.dynamics import constraint_motion, kinematics, metric, multipliers, saddle_point
from jaxdyn.dynamics.constraint import Constraint, holonomic
from jaxdyn.dynamics.kinematics import Coordinates, Velocities
from jaxdyn.dynamics.system import State, System, Time, dynamic_function
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial import factorizations
from jaxdyn.spatial.directions import directional_derivative, stays

# The derivative uses the matrix at the start, whose error is proportional to the step; each refinement reduces this error.
_REFINEMENTS = 2


class Projection(NamedTuple):
    """Result of `project_position`.

    Attributes:
        q: Configuration.
        residual: Largest remaining error of a constraint equation, m or 1.
    """

    q: Float[Array, "nq"]
    residual: Float[Array, ""]


@dynamic_function
def project_position(system: System, state: State, t: Time = 0.0, *, iterations: int = 4) -> Projection:
    """Project a configuration that nearly satisfies the constraints onto them: q (+) M^-1 G' lam, with M and G evaluated at q.

    This function corrects the small errors of a time step; `assemble` closes a mechanism from a distant configuration.

    Args:
        system: Mechanism with its constraints.
        state: State whose configuration nearly satisfies the constraints; v has no effect.
        t: Time (s), which matters for joints with prescribed motion.
        iterations: Number of iterations of a simplified Newton method, whose matrix is evaluated at q only. Each iteration
            multiplies the error by a factor of about the length of the correction.

    Source: theory.md (N14).
    """
    q, constraints = state.q, holonomic(system.constraints)
    if not constraints:
        return Projection(q, jnp.zeros((), q.dtype))
    model = system.model.at(jnp.asarray(t, q.dtype))
    moved = follow(model, constraints, q, iterations)
    return Projection(moved, jnp.max(jnp.abs(constraint_motion.residuals_at(model, constraints, moved))))


@dynamic_function
def project_velocity(system: System, state: State, t: Time = 0.0) -> Velocities:
    """Velocity that satisfies the constraints and is nearest to v in the norm of the kinetic energy: v + M^-1 G' lam.

    Args:
        system: Mechanism with its constraints.
        state: State whose configuration satisfies the constraints.
        t: Time (s), which matters for joints with prescribed motion.

    Source: theory.md (N14).
    """
    if not system.constraints:
        return state.v
    model = system.model.at(jnp.asarray(t, state.v.dtype))
    return _nearest_velocity(model, system.constraints, state.q, state.v)[0]


def follow(
    model: Model, constraints: tuple[Constraint, ...], q: Coordinates, iterations: int, held: tuple[int, ...] = ()
) -> Coordinates:
    """Project q onto the constraints as in `project_position`; with 0 iterations the result is q itself, but its derivative is that
    of the projection.

    Args:
        model: Mechanism.
        constraints: Constraints of the mechanism.
        q: Generalized coordinates (rad or m).
        iterations: Number of Newton iterations.
        held: Indices of velocity components along which the configuration remains constant.
    """
    step, _ = _step_to_constraints(iterations, held, model, constraints, q)
    return configuration.integrate(model, q, step)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _step_to_constraints(iterations: int, held: tuple[int, ...], model: Model, constraints, q: Coordinates):
    """Solution (step, lam) of M step = G' lam, phi(q (+) step) = 0."""
    matrices = _matrices(held, model, constraints, q)
    step, lam = jnp.zeros(model.nv, q.dtype), jnp.zeros(matrices.rows.shape[0], q.dtype)

    def improve(carry, _):
        step, lam = carry
        lam = lam - saddle_point.multipliers(matrices, _residual_after(model, constraints, q, step))
        return (dot(matrices.by_force, lam), lam), None

    return jax.lax.scan(improve, (step, lam), None, length=iterations)[0]


@functools.partial(_step_to_constraints.defjvp, symbolic_zeros=True)
def _step_to_constraints_jvp(iterations, held, primals, tangents):
    """M dstep - G' dlam = d(G' lam - M step), (dphi/dstep) dstep = -dphi, all else constant. Source: (N16)."""
    model, constraints, q = primals
    step, lam = _step_to_constraints(iterations, held, *primals)
    force, error = jnp.zeros_like(step), jnp.zeros_like(lam)
    if not stays(tangents):

        def unbalanced(model, constraints, q):
            placed = kinematics.placements(model, q)
            rows = constraint_motion.jacobian(model, constraints, q, placed)
            force = dot(rows.T, lam) - dot(metric.mass_matrix(model, q), step)
            force = force.at[np.array(held)].set(0.0) if held else force
            return force, _residual_after(model, constraints, q, step)

        force, error = directional_derivative(unbalanced, primals, tangents)
    matrices = _matrices(held, model, constraints, q)
    _, change = jax.linearize(lambda step: _residual_after(model, constraints, q, step), step)
    d_step, d_lam = saddle_point.solve(matrices, force, -error)
    for _ in range(_REFINEMENTS):
        correction = saddle_point.multipliers(matrices, -error - change(d_step))
        d_step, d_lam = d_step + dot(matrices.by_force, correction), d_lam + correction
    return (step, lam), (d_step, d_lam)


def _matrices(held: tuple[int, ...], model: Model, constraints, q: Coordinates) -> saddle_point.SaddlePoint:
    """Matrices M and G at q, with infinite inertia along held components."""
    placed = kinematics.placements(model, q)
    if not held:
        return multipliers.equations_of_motion(model, constraints, q, placed)
    moves = jnp.ones(model.nv, q.dtype).at[np.array(held)].set(0.0)
    rows = constraint_motion.jacobian(model, constraints, q, placed) * moves[None]
    inertia = metric.mass_matrix(model, q) * moves[:, None] * moves[None] + jnp.diag(1.0 - moves)
    residual = constraint_motion.residuals(model, constraints, q, placed.poses)
    return saddle_point.factorize(factorizations.upper_factor(inertia), rows, residual)


def _residual_after(model: Model, constraints, q: Coordinates, step: Velocities) -> Float[Array, "m"]:
    return constraint_motion.residuals_at(model, constraints, configuration.integrate(model, q, step))


@jax.custom_jvp
def _nearest_velocity(model: Model, constraints: tuple[Constraint, ...], q: Coordinates, v: Velocities):
    """Solution (nearest, lam) of M (nearest - v) = G' lam, dphi/dt = 0."""
    moving = kinematics.motion(model, q, v)
    matrices = multipliers.equations_of_motion(model, constraints, q, moving.placements)
    lam = saddle_point.multipliers(matrices, -constraint_motion.rates(model, constraints, q, moving))
    return v + dot(matrices.by_force, lam), lam


@functools.partial(_nearest_velocity.defjvp, symbolic_zeros=True)
def _nearest_velocity_jvp(primals, tangents):
    """M dnearest - G' dlam = M dv + d(G' lam - M (nearest - v)), G dnearest = -d(dphi/dt), all else constant. Source: (N16)."""
    model, constraints, q, v = primals
    d_model, d_constraints, dq, dv = tangents
    nearest, lam = _nearest_velocity(*primals)
    change = nearest - v
    force, rate = jnp.zeros_like(v), jnp.zeros_like(lam)
    if not stays(dv):
        force = dot(metric.mass_matrix(model, q), dv)
    if not stays((d_model, d_constraints, dq)):

        def unbalanced(model, constraints, q):
            moving = kinematics.motion(model, q, nearest)
            rows = constraint_motion.jacobian(model, constraints, q, moving.placements)
            force = dot(rows.T, lam) - dot(metric.mass_matrix(model, q), change)
            return force, constraint_motion.rates(model, constraints, q, moving)

        d_force, rate = directional_derivative(unbalanced, (model, constraints, q), (d_model, d_constraints, dq))
        force = force + d_force
    matrices = multipliers.equations_of_motion(model, constraints, q, kinematics.placements(model, q))
    return (nearest, lam), saddle_point.solve(matrices, force, -rate)
