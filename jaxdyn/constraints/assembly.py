"""Assembly: a configuration and a velocity that satisfy the constraints, from ones that nearly do."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxdyn.dynamics import kinematics, multipliers
from jaxdyn.dynamics.kinematics import Coordinates, Velocities
from jaxdyn.dynamics.system import System, Time
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial.arrays import dot


class Assembly(NamedTuple):
    """What `assemble` found.

    Attributes:
        q: the configuration.
        residual: largest error of a constraint equation, m or 1.
        closed: whether the constraints hold, on the right branch of each.
        mobility: degrees of freedom that remain there; more than elsewhere at a singular configuration.
    """

    q: Float[Array, "nq"]
    residual: Float[Array, ""]
    closed: Bool[Array, ""]
    mobility: Int[Array, ""]


def assemble(system: System, q: Coordinates, t: Time = 0.0, *, iterations: int = 60) -> Assembly:
    """Configuration near q that satisfies the constraints, by damped Gauss-Newton steps on the manifold of configurations.

        step = -(G'G + mu 1)^-1 G' phi,   q <- q (+) step

    with the damping mu of Levenberg and Marquardt, smaller after a step that helped and larger after one that did not. Which of
    several assembly modes comes out depends on the start. If the mechanism cannot close, the result is as near as it gets.

    Derivatives with respect to the numbers of the mechanism follow from phi = 0 and keep to the directions that the constraints
    forbid; those with respect to the start keep to the directions that they leave free.

    Args:
        q: start.
        t: time, s, for joints with prescribed motion.
        iterations: number of steps; always all of them, so that a batch runs in step.

    Source: theory.md (N7), (N14).
    """
    model = system.model.at(jnp.asarray(t, q.dtype))
    constraints = system.constraints
    if not constraints:
        zero = jnp.zeros((), q.dtype)
        return Assembly(q, zero, jnp.asarray(True), jnp.asarray(model.nv))

    def error(q):
        phi = multipliers.residuals(model, constraints, q)
        return dot(phi, phi)

    def improve(carry, _):
        q, damping = carry
        rows = multipliers.jacobian(model, constraints, q)
        phi = multipliers.residuals(model, constraints, q)
        # On the smaller side of G; relative to its size, so that units do not matter.
        softened = dot(rows, rows.T) + damping * jnp.trace(dot(rows, rows.T)) * jnp.identity(len(phi), q.dtype)
        step = -dot(rows.T, jnp.linalg.solve(softened, phi))
        candidate = configuration.normalize(model, configuration.integrate(model, q, step))
        better = error(candidate) < dot(phi, phi)
        floor = jnp.finfo(q.dtype).eps ** (2 / 3)
        damping = jnp.where(better, jnp.maximum(0.1 * damping, floor), 10.0 * damping)
        return (jnp.where(better, candidate, q), damping), None

    # The search itself is not differentiated: at its end the implicit function theorem gives the derivative.
    start, fixed = q, jax.lax.stop_gradient((model, constraints, q))
    model, constraints, q = fixed
    (q, _), _ = jax.lax.scan(improve, (q, jnp.asarray(1e-3, q.dtype)), None, length=iterations)
    model, constraints = system.model.at(jnp.asarray(t, q.dtype)), system.constraints
    q = _with_derivative(fixed, model, constraints, start, q)
    residual = jnp.max(jnp.abs(multipliers.residuals(model, constraints, q)))
    tolerance = jnp.sqrt(jnp.finfo(q.dtype).eps)
    placed = kinematics.placements(model, q)
    closed = residual < tolerance
    for constraint in constraints:
        branches = constraint.branches(model, q, placed)
        if branches is not None:
            closed = closed & jnp.all(branches > 0)
    sizes = jnp.linalg.svd(multipliers.jacobian(model, constraints, q), compute_uv=False)
    rank = jnp.sum(sizes > tolerance * sizes[0])
    return Assembly(q, residual, closed, model.nv - rank)


def project_velocity(system: System, q: Coordinates, v: Velocities, t: Time = 0.0) -> Velocities:
    """Velocity that satisfies the constraints, nearest to v in kinetic energy: v + M^-1 G' lam.

    Args:
        q: configuration that satisfies them.
        t: time, s, for joints with prescribed motion.

    Source: theory.md (N14).
    """
    if not system.constraints:
        return v
    model = system.model.at(jnp.asarray(t, q.dtype))
    rows = multipliers.jacobian(model, system.constraints, q)
    by_force = multipliers.velocities_by_impulse(model, q, rows)
    rate = multipliers.motion(model, system.constraints, q, v).rate
    return v + dot(by_force, multipliers.multipliers(rows, by_force, -rate))


def _with_derivative(fixed, model: Model, constraints, start: Coordinates, solution: Coordinates) -> Coordinates:
    """The solution with d(step) = -G^+ d phi + (1 - G^+ G) d(start); `fixed` are the same things without derivative."""
    still, still_constraints, still_start = fixed
    rows = multipliers.jacobian(still, still_constraints, solution)
    back = jax.lax.stop_gradient(jnp.linalg.pinv(rows, rtol=jnp.sqrt(jnp.finfo(rows.dtype).eps)))
    shift = configuration.difference(still, still_start, start)  # zero, but it changes with the start
    moved = configuration.integrate(still, solution, shift)
    phi = multipliers.residuals(model, constraints, moved)
    return configuration.integrate(still, moved, -dot(back, phi))
