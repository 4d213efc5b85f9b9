"""Assembly: a configuration that satisfies the constraints, starting from a configuration that may be far from it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from jaxdyn.compute.arrays import dot
from jaxdyn.compute.damped import minimized
from jaxdyn.constraints.independence import mobility
from jaxdyn.constraints.projection import follow
from jaxdyn.dynamics import constraint_motion, kinematics
from jaxdyn.dynamics.constraint import holonomic
from jaxdyn.dynamics.system import State, System, Time, system_function
from jaxdyn.mechanism import configuration
from jaxdyn.results import ResultCode, raising
from jaxdyn.spatial import factorizations


class AssemblyResult(ResultCode):
    """Outcome of `assemble` and `random_closed`."""

    SUCCESSFUL = 0, "Every constraint is satisfied.", True
    NOT_CLOSED = (
        1,
        "The constraints are not satisfied, or not by the desired one of their solutions; start from another configuration, hold "
        "fewer components, or increase max_steps.",
    )


class AssemblyStats(NamedTuple):
    """Quality of an assembly.

    Attributes:
        residual: Largest error of a constraint equation, m or 1.
        mobility: Number of remaining degrees of freedom.
    """

    residual: Float[Array, ""]
    mobility: Int[Array, ""]


class Assembly(NamedTuple):
    """Result of `assemble`.

    Attributes:
        q: Configuration.
        residual: Largest error of a constraint equation, m or 1.
        closed: True if every constraint is satisfied by the desired one of its solutions (`Constraint.branches`).
        mobility: Number of remaining degrees of freedom, which is larger at a singular configuration than near it.
    """

    q: Float[Array, "nq"]
    residual: Float[Array, ""]
    closed: Bool[Array, ""]
    mobility: Int[Array, ""]

    @property
    def value(self) -> Float[Array, "nq"]:
        """The configuration, `q`, under the name that the results of fits and of solvers also have."""
        return self.q

    @property
    def result(self) -> Int[Array, ""]:
        """Code of `AssemblyResult`."""
        return jnp.where(self.closed, AssemblyResult.SUCCESSFUL.value, AssemblyResult.NOT_CLOSED.value).astype(
            jnp.int32
        )

    @property
    def stats(self) -> AssemblyStats:
        """Quality of the assembly."""
        return AssemblyStats(self.residual, self.mobility)


@raising(AssemblyResult)
@system_function
def assemble(
    system: System,
    state: State,
    t: Time = 0.0,
    *,
    held: tuple[int, ...] = (),
    max_steps: int = 60,
    throw: bool = True,
) -> Assembly:
    """Configuration near q that satisfies the constraints, by damped Gauss-Newton steps on the configuration manifold.

        step = -(G'G + mu 1)^-1 G' phi,   q <- q (+) step

    mu is the damping of Levenberg and Marquardt, which decreases after a successful step and increases after an unsuccessful one.
    If there are several assembly modes, the initial guess determines which one is found. If the mechanism cannot close, the result
    is the configuration of smallest error.

    Derivatives of the result follow from phi = 0 by the implicit function theorem. If as many velocity components are held as the
    mechanism has degrees of freedom, the constraints determine the result, and its derivatives are complete. With fewer held
    components, the displacement along the free directions depends on the search, which is not differentiated; the derivative is
    then that of `project_position` at the result.

    Args:
        system: Mechanism with its constraints.
        state: Initial guess q; v has no effect.
        t: Time (s), which matters for joints with prescribed motion.
        held: Indices of velocity components along which q does not change, for example the index of a crank whose angle is given.
        max_steps: Number of steps; all of them are executed, so that the samples of a batch take the same time.
        throw: If true, an error is raised outside of `jit` if the mechanism does not close; if false, the result is the
            configuration of smallest error, and `Assembly.closed` is false.

    Raises:
        UnsuccessfulError: `throw` is true, and the mechanism does not close.
        ValueError: An index in `held` is not that of a velocity component.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        system = jaxdyn.library.four_bar()
        guess = system.at_rest(jnp.array([0.4, 0.0, 0.0]))
        found = jaxdyn.assemble(system, guess, held=(0,))  # with a crank angle of 0.4 rad
        assert found.closed
        ```

    Source: theory.md (N7), (N14).
    """
    wrong = system.model.topology.error_with_columns(held)
    if wrong is not None:
        raise ValueError(f"held {held} of {system.model.name!r}: {wrong}")
    q, constraints = state.q, holonomic(system.constraints)
    model = system.model.at(jnp.asarray(t, q.dtype))
    if not constraints:
        zero = jnp.zeros((), q.dtype)
        return Assembly(q, zero, jnp.asarray(True), mobility(system, state, t).degrees_of_freedom)

    def error(q):
        phi = constraint_motion.residuals_at(model, constraints, q)
        return dot(phi, phi)

    def jacobian(q):
        rows = constraint_motion.jacobian(model, constraints, q, kinematics.placements(model, q))
        return rows.at[:, np.array(held, int)].set(0.0)

    def propose(q, damping):
        rows, phi = jacobian(q), constraint_motion.residuals_at(model, constraints, q)
        # On the smaller side of G; the damping is relative to the size of G, so that units do not matter.
        softened = dot(rows, rows.T) + damping * jnp.trace(dot(rows, rows.T)) * jnp.identity(len(phi), q.dtype)
        step = -dot(rows.T, factorizations.solve(softened, phi))
        return configuration.normalize(model, configuration.integrate(model, q, step)), dot(phi, phi)

    # The search is not differentiated: the projection at its end provides the derivative.
    start, (model, constraints, q) = q, jax.lax.stop_gradient((model, constraints, q))
    found = minimized(propose, error, q, max_steps=max_steps)
    shift = configuration.difference(model, q, start)  # zero, but its derivative is that of the initial guess
    found = configuration.integrate(model, found, shift)
    model, constraints = system.model.at(jnp.asarray(t, q.dtype)), holonomic(system.constraints)
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


@raising(AssemblyResult)
@system_function
def random_closed(
    system: System,
    key: PRNGKeyArray,
    t: Time = 0.0,
    *,
    spread: float | Float[Array, ""] = 1.0,
    tries: int = 16,
    throw: bool = True,
) -> Assembly:
    """Random configuration that satisfies the constraints: `assemble` starts from random configurations until it succeeds.

    If `assemble` never succeeds, the result is the configuration of smallest error. Without constraints, the result is that of
    `configuration.random`.

    Args:
        system: Mechanism with its constraints.
        key: Random key.
        t: Time (s), which matters for joints with prescribed motion.
        spread: Spread of the random configurations, as in `configuration.random`.
        tries: Maximum number of random configurations.
        throw: If true, an error is raised outside of `jit` if no configuration closes; if false, the result is the configuration of
            smallest error, and `Assembly.closed` is false.

    Raises:
        UnsuccessfulError: `throw` is true, and no configuration closes.
    """

    def drawn(key: PRNGKeyArray) -> Assembly:
        start = system.at_rest(configuration.random(system.model, key, spread=spread))
        return assemble(system, start, t, throw=False)

    if not system.constraints:
        return drawn(key)

    def attempt(best: Assembly, key: PRNGKeyArray) -> tuple[Assembly, None]:
        found = jax.lax.cond(best.closed, lambda key: best, drawn, key)
        better = found.closed | (found.residual < best.residual)
        return jax.tree.map(lambda new, old: jnp.where(better, new, old), found, best), None

    # One after the other, because the first one usually succeeds, and because a batch of them takes longer to compile.
    q = configuration.neutral(system.model)
    nothing = Assembly(q, jnp.asarray(jnp.inf, q.dtype), jnp.asarray(False), jnp.asarray(system.model.nv))
    return jax.lax.scan(attempt, nothing, jax.random.split(key, tries))[0]
