"""Jacobian and forces of the constraints of a system; theory.md section (n)."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.dynamics import constraint_motion, kinematics
from jaxdyn.dynamics.equations_of_motion import Instant, acceleration_and_multipliers, instant
from jaxdyn.dynamics.system import State, System, Time, dynamic_function, system_function


@system_function
def constraint_jacobian(system: System, state: State, t: Time = 0.0) -> Float[Array, "m nv"]:
    """Jacobian G of all constraint equations, in the order of `System.constraints`: dphi/dt = G v + (terms of prescribed motion).

    Args:
        system: Mechanism with its constraints.
        state: Coordinates and velocities.
        t: Time (s), which matters for joints with prescribed motion.

    Source: theory.md (N4), (N6).
    """
    model = system.model.at(jnp.asarray(t, state.q.dtype))
    return constraint_motion.jacobian(model, system.constraints, state.q, kinematics.placements(model, state.q))


class ConstraintForces(NamedTuple):
    """Forces of one constraint.

    Attributes:
        multipliers: Multipliers lam, one per equation; N where the equation is a length, N m where it is an angle.
        generalized: Covector G' lam, which is added to the generalized forces: M a + h = Q + G' lam; N m or N.
        force: Force on each body, ground axes, N.
        moment: Moment on each body about its origin O'_i, ground axes, N m.
    """

    multipliers: Float[Array, "m"]
    generalized: Float[Array, "nv"]
    force: Float[Array, "nb 3"]
    moment: Float[Array, "nb 3"]


@dynamic_function
def constraint_forces(
    system: System, state: State, u: Float[Array, "nu"] | None = None, t: Time = 0.0
) -> dict[str, ConstraintForces]:
    """Forces of all constraints, by the names of the constraints.

        M a + h = Q + G' lam
        dv^delta/dt + L^delta_{alpha beta} v^alpha v^beta = a^{delta gamma} (Q + G' lam)_gamma      (contravariant)

    If the equations are redundant, a and G' lam are unique but lam is not; the result is then the solution lam of smallest norm.
    `describe_mobility` reports which constraints have redundant equations.

    Args:
        system: Mechanism with its forces, drives and constraints.
        state: Coordinates and velocities.
        u: Controls; zero if None.
        t: Time (s).

    Source: theory.md (N9)-(N11), (N15).
    """
    now = instant(system, state, t)
    return forces_by_constraint(system, now, acceleration_and_multipliers(system, now, u)[1])


def forces_by_constraint(system: System, now: Instant, lam: Float[Array, "m"]) -> dict[str, ConstraintForces]:
    """Result of `constraint_forces` at an instant, from the multipliers of all constraints."""
    model, q, placed = now.model, now.state.q, now.motion.placements
    found, start = {}, 0
    for constraint in system.constraints:
        rows = constraint_motion.jacobian(model, (constraint,), q, placed)
        own = lam[start : start + rows.shape[0]]
        start += rows.shape[0]
        moment, force, _ = constraint_motion.forces(model, (constraint,), q, placed.poses, own)
        found[constraint.name] = ConstraintForces(own, own @ rows, force, moment)
    return found
