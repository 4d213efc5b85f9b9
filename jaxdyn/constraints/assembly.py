"""Assembly: a configuration that satisfies the constraints, from one that may be far from it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from jaxdyn.constraints.independence import mobility
from jaxdyn.constraints.projection import follow
from jaxdyn.dynamics import constraint_motion, kinematics
from jaxdyn.dynamics.system import State, System, Time, checked_system, system_function
from jaxdyn.mechanism import configuration
from jaxdyn.spatial import factorizations
from jaxdyn.spatial.arrays import dot


class Assembly(NamedTuple):
    """What `assemble` found.

    Attributes:
        q: The configuration.
        residual: Largest error of a constraint equation, m or 1.
        closed: Whether the constraints hold, on the right branch of each.
        mobility: Degrees of freedom that remain there; more than elsewhere at a singular configuration.
    """

    q: Float[Array, "nq"]
    residual: Float[Array, ""]
    closed: Bool[Array, ""]
    mobility: Int[Array, ""]


@system_function
def assemble(
    system: System, state: State, t: Time = 0.0, *, held: tuple[int, ...] = (), iterations: int = 60
) -> Assembly:
    """Configuration near q that satisfies the constraints, by damped Gauss-Newton steps on the manifold of configurations.

        step = -(G'G + mu 1)^-1 G' phi,   q <- q (+) step

    with the damping mu of Levenberg and Marquardt, smaller after a step that helped and larger after one that did not. Which of
    several assembly modes comes out depends on the start. If the mechanism cannot close, the result is as near as it gets.

    Derivatives follow from phi = 0. They are complete where as many coordinates are held as the mechanism has degrees of freedom:
    then the result is all that the constraints allow. Otherwise how far it is carried along the free directions depends on the
    search, of which the derivative knows nothing: it is that of `project_position` at the result.

    Args:
        state: q is the initial guess; v does not matter.
        t: Time, s, for joints with prescribed motion.
        held: Numbers of velocity components that stay as they are, such as the one of a crank whose angle is given.
        iterations: Number of steps; always all of them, so that a batch runs in step.

    Raises:
        ValueError: `held` holds what is no velocity component.

    Source: theory.md (N7), (N14).
    """
    if not all(0 <= i < system.model.nv for i in held):
        raise ValueError(f"held {held} of {system.model.name!r}: give numbers from 0 to {system.model.nv - 1}")
    q, constraints = state.q, system.constraints
    model = system.model.at(jnp.asarray(t, q.dtype))
    if not constraints:
        zero = jnp.zeros((), q.dtype)
        return Assembly(q, zero, jnp.asarray(True), jnp.asarray(model.nv))

    def error(q):
        phi = constraint_motion.residuals_at(model, constraints, q)
        return dot(phi, phi)

    def jacobian(q):
        rows = constraint_motion.jacobian(model, constraints, q, kinematics.placements(model, q))
        return rows.at[:, np.array(held, int)].set(0.0)

    def improve(carry, _):
        q, damping = carry
        rows, phi = jacobian(q), constraint_motion.residuals_at(model, constraints, q)
        # On the smaller side of G; relative to its size, so that units do not matter.
        softened = dot(rows, rows.T) + damping * jnp.trace(dot(rows, rows.T)) * jnp.identity(len(phi), q.dtype)
        step = -dot(rows.T, factorizations.solve(softened, phi))
        candidate = configuration.normalize(model, configuration.integrate(model, q, step))
        better = error(candidate) < dot(phi, phi)
        floor = jnp.finfo(q.dtype).eps ** (2 / 3)
        damping = jnp.where(better, jnp.maximum(0.1 * damping, floor), 10.0 * damping)
        return (jnp.where(better, candidate, q), damping), None

    # The search itself is not differentiated: at its end the projection has the derivative.
    start, (model, constraints, q) = q, jax.lax.stop_gradient((model, constraints, q))
    (found, _), _ = jax.lax.scan(improve, (q, jnp.asarray(1e-3, q.dtype)), None, length=iterations)
    shift = configuration.difference(model, q, start)  # zero, but it changes with the start
    found = configuration.integrate(model, found, shift)
    model, constraints = system.model.at(jnp.asarray(t, q.dtype)), system.constraints
    q = follow(model, constraints, found, iterations=0, held=held)
    residual = jnp.max(jnp.abs(constraint_motion.residuals_at(model, constraints, q)))
    tolerance = jnp.sqrt(jnp.finfo(q.dtype).eps)
    poses = kinematics.placements(model, q).poses
    closed = residual < tolerance
    for constraint in constraints:
        branches = constraint.branches(model, q, poses)
        if branches is not None:
            closed = closed & jnp.all(branches > 0)
    return Assembly(
        q, residual, closed, mobility(system, State(jax.lax.stop_gradient(q), state.v), t).degrees_of_freedom
    )


@checked_system
def random_closed(
    system: System, key: PRNGKeyArray, t: Time = 0.0, *, spread: float | Float[Array, ""] = 1.0, tries: int = 16
) -> Assembly:
    """A random configuration that satisfies the constraints: the first of a few random ones from which `assemble` closes them.

    If none closes, it is the one that comes closest. Without constraints it is `configuration.random`.

    Args:
        t: Time, s, for joints with prescribed motion.
        spread: As for `configuration.random`.
        tries: Number of random configurations.
    """

    def drawn(key: PRNGKeyArray) -> Assembly:
        return assemble(system, system.at_rest(configuration.random(system.model, key, spread=spread)), t)

    if not system.constraints:
        return drawn(key)
    found = jax.vmap(drawn)(jax.random.split(key, tries))
    best = jnp.where(jnp.any(found.closed), jnp.argmax(found.closed), jnp.argmin(found.residual))
    return jax.tree.map(lambda x: x[best], found)
