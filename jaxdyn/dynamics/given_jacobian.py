"""Dynamics with a given Jacobian J of contacts or constraints: forces J' f that produce given accelerations J a, and impulses that
produce given velocities after an impact; theory.md (N21), (N22).

The rows of J are in any units, and they may depend on one another: the motion is unique, and f is the solution of smallest norm.
The equations hold with forces of both signs: a foot neither slips nor detaches, as it may with `GroundContact`.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot
from jaxdyn.dynamics import inverse, metric, saddle_point
from jaxdyn.dynamics.doors import model_function
from jaxdyn.dynamics.inverse import GeneralizedForces
from jaxdyn.dynamics.kinematics import Accelerations, Coordinates, Velocities
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial import factorizations

Rows = Float[Array, "m nv"]


@model_function
def constrained_dynamics(
    model: Model, q: Coordinates, v: Velocities, tau: GeneralizedForces, jacobian: Rows, gamma: Float[Array, "m"]
) -> tuple[Accelerations, Float[Array, "m"]]:
    """Accelerations a and forces f along the rows of a given Jacobian, with which J a = gamma.

        M a + h = tau + J' f,   J a = gamma

    A contact point at rest has gamma = -dJ/dt v, which is minus `frame_acceleration` with a = 0.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).
        tau: All generalized forces except gravity and J' f (N m or N).
        jacobian: Matrix J; some rows of a `frame_jacobian`, for example.
        gamma: Accelerations along the rows, m/s^2 or rad/s^2.

    Returns:
        Generalized accelerations (rad/s^2 or m/s^2), and forces f along the rows (N or N m).

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn
        from jaxdyn.dynamics import constrained_dynamics, frame_acceleration, frame_jacobian

        model = jaxdyn.library.double_pendulum()
        q, v, zero = jnp.array([0.3, -0.5]), jnp.array([1.0, 2.0]), jnp.zeros(2)
        height = frame_jacobian(model, q, "tip")[5:]  # the tip slides on a plane
        drift = frame_acceleration(model, q, v, zero, "tip").linear[2:]
        a, force = constrained_dynamics(model, q, v, zero, height, -drift)
        ```

    Source: theory.md (N21).
    """
    return _solution(metric.mass_matrix(model, q), jacobian, tau - inverse.bias_force(model, q, v), gamma)  # (N21)


@model_function
def impulse_dynamics(
    model: Model,
    q: Coordinates,
    v: Velocities,
    jacobian: Rows,
    *,
    restitution: Float[Array, "m"] | Float[Array, ""] | float = 0.0,
) -> tuple[Velocities, Float[Array, "m"]]:
    """Velocities after an impact along the rows of a given Jacobian (Newton's law of restitution), and its impulses.

        M (v+ - v) = J' p,   J v+ = -e J v

    Rows of constraints that hold before and after the impact, as those of closed loops (`constraints.constraint_jacobian`), have
    e = 0. With e = 0 the kinetic energy decreases by that of v+ - v (Carnot).

    Args:
        model: Mechanism without prescribed motion, which would add to J v.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities before the impact (rad/s or m/s).
        jacobian: Matrix J; some rows of a `frame_jacobian`, for example.
        restitution: Coefficient e from 0 (plastic) to 1 (elastic); one value, or one per row.

    Returns:
        Generalized velocities v+ after the impact (rad/s or m/s), and impulses p along the rows (N s or N m s).

    Raises:
        ValueError: The model has prescribed motion, or an argument has the wrong shape.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn
        from jaxdyn.dynamics import frame_jacobian, impulse_dynamics

        model = jaxdyn.library.double_pendulum()
        q, v = jnp.array([0.3, -0.5]), jnp.array([1.0, 2.0])
        after, impulse = impulse_dynamics(model, q, v, frame_jacobian(model, q, "tip")[5:], restitution=0.5)
        ```

    Source: theory.md (N22).
    """
    inverse.refuse_prescribed_motion(model, "impulse_dynamics")
    approach = dot(jacobian, v)
    change, impulse = _solution(
        metric.mass_matrix(model, q), jacobian, jnp.zeros_like(v), -(1.0 + restitution) * approach
    )
    return v + change, impulse  # (N22)


@jax.custom_jvp
def _solution(
    mass: Float[Array, "nv nv"], rows: Rows, force: GeneralizedForces, needed: Float[Array, "m"]
) -> tuple[Float[Array, "nv"], Float[Array, "m"]]:
    """Solution (x, f) of M x - J' f = force, J x = needed, with the derivative of the solution and not of the algorithm."""
    return saddle_point.solve(_factorized(mass, rows), force, needed)


@_solution.defjvp
def _solution_jvp(primals, tangents):
    mass, rows, _, needed = primals
    d_mass, d_rows, d_force, d_needed = tangents
    x, f = _solution(*primals)
    changes = d_force - dot(d_mass, x), d_needed - dot(d_rows, x), d_rows
    return (x, f), saddle_point.change(_factorized(mass, rows), f, needed - dot(rows, x), *changes)


def _factorized(mass: Float[Array, "nv nv"], rows: Rows) -> saddle_point.SaddlePoint:
    return saddle_point.factorize(factorizations.upper_factor_of_lower(jnp.tril(mass)), rows)
