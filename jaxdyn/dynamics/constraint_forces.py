"""Constraints of a system: their Jacobian, and the forces that keep them; theory.md section (n)."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.dynamics import constraint_motion, kinematics
from jaxdyn.dynamics.system import State, System, Time, acceleration_and_multipliers, instant, system_function


@system_function
def constraint_jacobian(system: System, state: State, t: Time = 0.0) -> Float[Array, "m nv"]:
    """G of dphi/dt = G v + (what prescribed motion adds), all equations one after the other.

    Args:
        t: time, s, for joints with prescribed motion.

    Source: theory.md (N4), (N6).
    """
    model = system.model.at(jnp.asarray(t, state.q.dtype))
    return constraint_motion.jacobian(model, system.constraints, state.q, kinematics.placements(model, state.q))


class ConstraintForces(NamedTuple):
    """What one constraint does.

    Attributes:
        multipliers: lam, one for each equation; N where the equation is a length, N m where it is an angle.
        generalized: G' lam, the covector that stands beside the generalized forces in M a + h = Q + G' lam; N m, N.
        force: on each body, ground axes, N.
        moment: on each body, ground axes, about its origin O'_i, N m.
    """

    multipliers: Float[Array, "m"]
    generalized: Float[Array, "nv"]
    force: Float[Array, "nb 3"]
    moment: Float[Array, "nb 3"]


@system_function
def constraint_forces(
    system: System, state: State, u: Float[Array, "nu"] | None = None, t: Time = 0.0
) -> dict[str, ConstraintForces]:
    """Forces of all constraints by their names.

        M a + h = Q + G' lam
        dv^delta/dt + L^delta_{alpha beta} v^alpha v^beta = a^{delta gamma} (Q + G' lam)_gamma      (contravariant)

    Where equations repeat one another, a and the sum of G' lam are unique and lam is not; this is the smallest one.
    `describe_mobility` tells which constraints have such equations.

    Args:
        u: controls; None for none.
        t: time, s.

    Source: theory.md (N9)-(N11), (N15).
    """
    now = instant(system, state, t)
    _, lam = acceleration_and_multipliers(system, now, u)
    model, q, placed = now.model, state.q, now.motion.placements
    found, start = {}, 0
    for constraint in system.constraints:
        rows = constraint_motion.jacobian(model, (constraint,), q, placed)
        own = lam[start : start + rows.shape[0]]
        start += rows.shape[0]
        moment, force, _ = constraint_motion.forces(model, (constraint,), q, placed.poses, own)
        found[constraint.name] = ConstraintForces(own, own @ rows, force, moment)
    return found
