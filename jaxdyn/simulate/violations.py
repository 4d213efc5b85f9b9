"""Constraints that the initial state of a rollout violates: `rollout` names the worst one in a warning or an error.

Errors are compared with the motion of the joints that would cause them. With the rows G of the equations of a constraint,
|phi| / |G| is about the displacement of the joints (rad or m) that closes it, and |dphi/dt| / (|G| |v|) is the part of the velocity
that the constraint forbids.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jaxdyn.compute as compute
from jaxdyn.dynamics import constraint_motion
from jaxdyn.dynamics.equations_of_motion import instant
from jaxdyn.dynamics.system import State, System, Time, system_function

# Displacement of the joints (rad or m), and part of the velocity, from which a violation is named. A loop that is open by more is
# not treated as closed: the softness of its redundant equations is at its bound (`saddle_point`).
_OPEN, _FORBIDDEN = 1e-3, 1e-2
_LEAST_SPEED = 1e-6  # rad/s or m/s
# Norm of the rows of equations below which no motion changes them; their errors are then not divided by it.
_UNMOVED = 1e-4
_UNKNOWN = "m or rad"
_REMEDIES = (
    ("", "jaxdyn.assemble(system, state).q is a configuration"),
    ("/s", "jaxdyn.project_velocity(system, state) is the nearest velocity"),
)


class ConstraintWarning(UserWarning):
    """Warning that the initial state of a rollout violates a constraint."""


def equation_groups(system: System) -> tuple[tuple[str, str], ...]:
    """Name and unit of each group of equations of `start_errors`: those of one constraint with the same unit. There is none within
    `jit`, where violations cannot be reported."""
    if compute.within_jit():
        return ()
    units = ((c.name, c.units(system.model) or (_UNKNOWN,)) for c in system.constraints)
    return tuple((name, unit) for name, of_constraint in units for unit in dict.fromkeys(of_constraint))


@system_function
def start_errors(system: System, state: State, t: Time, h: Time) -> Float[Array, "groups 2 2"]:
    """Errors |phi| and |dphi/dt| of each group of equations, and both relative to the largest error that is not named.

    A step of length h (s) of a method of first order opens loops by about (h |v|)^2. Such an error is not named, because the start
    of a rollout may be the end of another one.
    """
    system, state, t, h = jax.lax.stop_gradient((system, state, t, h))
    now, speed, found = instant(system, state, t), jnp.sqrt(jnp.sum(state.v**2)), []
    model, moving = now.model, now.motion
    within = jnp.abs(h) * speed  # displacement of the joints in a step
    slow = jnp.maximum(jnp.maximum(_FORBIDDEN, within) * speed, _LEAST_SPEED)
    allowed = jnp.stack([jnp.maximum(_OPEN, within**2), slow])
    for c in system.constraints:
        phi = c.residual(model, state.q, moving.placements.poses)
        values = jnp.stack([phi, constraint_motion.rates(model, (c,), state.q, moving)])
        rows = constraint_motion.jacobian(model, (c,), state.q, moving.placements)
        units = c.units(model) or (_UNKNOWN,) * phi.shape[0]
        for unit in dict.fromkeys(units):
            own = np.array([k for k, other in enumerate(units) if other == unit])
            error, size = jnp.sqrt(jnp.sum(values[:, own] ** 2, axis=1)), jnp.sqrt(jnp.sum(rows[own] ** 2))
            found.append(jnp.stack([error, error / (jnp.where(size > _UNMOVED, size, 1.0) * allowed)]))
    return jnp.stack(found)


def violation_text(
    groups: tuple[tuple[str, str], ...], errors: Float[np.ndarray, "*batch groups 2 2"], name: str
) -> str | None:
    """Sentence about the worst violation in a batch of initial states, with the remedy; None if there is no violation.

    Args:
        groups: See `equation_groups`.
        errors: Result of `start_errors`.
        name: Name of the mechanism.
    """
    errors = np.nan_to_num(np.reshape(errors, (-1, len(groups), 2, 2)))
    kind = 0 if np.any(errors[..., 1, 0] > 1.0) else 1  # a velocity has no meaning where the loops are open
    error, excess = errors[..., 0, kind], errors[..., 1, kind]
    sample, worst = np.unravel_index(np.argmax(excess), excess.shape)
    if excess[sample, worst] <= 1.0:
        return None
    (constraint, unit), (over, remedy), count = groups[worst], _REMEDIES[kind], np.sum(np.any(excess > 1.0, axis=1))
    which = f" in sample {sample}, the worst of {count}" if len(errors) > 1 else ""
    return (
        f"At the start of the rollout of {name!r}, constraint {constraint!r} is violated by {error[sample, worst]:.3g} {unit}{over}"
        f"{which}; {remedy} that satisfies it."
    )
