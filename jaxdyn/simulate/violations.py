"""Constraints that the initial state of a rollout violates: `rollout` names the worst one in a warning or an error.

The errors are compared with the motion of the joints that would cause them. With the rows G of the equations of a constraint,
|phi| / |G| is about the displacement of the joints (rad or m) that closes it, and |dphi/dt| / (|G| |v|) is the part of the velocity
that the constraint forbids.
"""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jaxdyn.lanes as lanes
from jaxdyn.dynamics import constraint_motion
from jaxdyn.dynamics.equations_of_motion import instant
from jaxdyn.dynamics.system import State, System, Time, system_function

# Displacement of the joints (rad or m), and part of the velocity, from which a violation is named. A loop that is open by more is not
# treated as closed: the softness of its redundant equations is at its bound (`saddle_point`).
_OPEN, _FORBIDDEN = 1e-3, 1e-2
_LEAST_SPEED = 1e-6  # rad/s or m/s
_UNMOVED = 1e-4  # norm of the rows of equations below which no motion changes them; their errors are then not divided by it


class ConstraintWarning(UserWarning):
    """Warning that the initial state of a rollout violates a constraint."""


class StartErrors(NamedTuple):
    """Errors of the constraints in an initial state.

    Attributes:
        speed: Norm of the velocity.
        rate: Rates dphi/dt.
        size: Squared norms of the rows of the Jacobian G.
        residual: Residuals phi of each constraint.
    """

    speed: Float[Array, ""]
    rate: Float[Array, "m"]
    size: Float[Array, "m"]
    residual: tuple[Float[Array, "_"], ...]


Equations = tuple[tuple[str, str], ...]  # name of the constraint and unit of the residual of each equation


def start_errors(system: System, state: State, t: Time | float) -> tuple[Equations, StartErrors | None]:
    """Equations of all constraints and their errors; none without constraints, and within `jit`, where nothing is reported.

    Args:
        system: Mechanism with its constraints.
        state: Initial state.
        t: Time (s).
    """
    if not system.constraints or lanes.within_jit():
        return (), None
    errors = _errors(*jax.lax.stop_gradient((system, state, jnp.asarray(t, state.v.dtype))))
    found = zip(system.constraints, errors.residual, strict=True)
    return tuple((c.name, c.unit(system.model, k)) for c, phi in found for k in range(phi.shape[0])), errors


@system_function
def _errors(system: System, state: State, t: Time) -> StartErrors:
    now = instant(system, state, t)
    model, moving, constraints = now.model, now.motion, system.constraints
    rate = constraint_motion.rates(model, constraints, state.q, moving)
    rows = constraint_motion.jacobian(model, constraints, state.q, moving.placements)
    residual = tuple(constraint.residual(model, state.q, moving.placements.poses) for constraint in constraints)
    return StartErrors(jnp.sqrt(jnp.sum(state.v**2)), rate, jnp.sum(rows**2, axis=1), residual)


def violation_text(equations: Equations, errors: StartErrors, step: Float[np.ndarray, "*batch"], name: str) -> str | None:
    """Sentence that names the constraint that a batch of initial states violates most, and the remedy; None if there is none.

    A step of length h of a method of first order opens loops by about (h |v|)^2. Less is not named, because the start of a rollout
    may be the end of another one.

    Args:
        equations: See `start_errors`.
        errors: Errors with the axes of the batch.
        step: Length of the steps of the integrator (s).
        name: Name of the mechanism.
    """
    count = np.size(errors.speed)
    rate, size, *residual = (np.reshape(x, (count, -1)) for x in (errors.rate, errors.size, *errors.residual))
    groups = [(label, len(list(rows))) for label, rows in itertools.groupby(equations)]
    starts = np.cumsum([0, *(rows for _, rows in groups[:-1])])

    def norms(squares):
        return np.sqrt(np.add.reduceat(squares, starts, axis=1))

    scale = norms(size)
    scale = np.where(scale > _UNMOVED, scale, 1.0)
    speed = np.reshape(errors.speed, (count, 1))
    within = np.abs(np.reshape(step, (-1, 1))) * speed  # displacement of the joints in a step
    gap, forbidden = norms(np.concatenate(residual, axis=1) ** 2), norms(rate**2)
    for error, allowed, over, remedy in (
        (gap, np.maximum(_OPEN, within**2), "", "jaxdyn.assemble(system, state).q is a configuration"),
        (
            forbidden,
            np.maximum(np.maximum(_FORBIDDEN, within) * speed, _LEAST_SPEED),
            "/s",
            "jaxdyn.project_velocity(system, state) is the nearest velocity",
        ),
    ):
        excess = error / (scale * allowed)
        sample, worst = np.unravel_index(np.argmax(excess), excess.shape)
        if excess[sample, worst] > 1.0:
            constraint, unit = groups[worst][0]
            some = f" in sample {sample}, the worst of {np.sum(np.any(excess > 1.0, axis=1))}" if count > 1 else ""
            return (
                f"At the start of the rollout of {name!r}, constraint {constraint!r} is violated by "
                f"{error[sample, worst]:.3g} {unit}{over}{some}; {remedy} that satisfies it."
            )
    return None
