"""Constrained motion in minimal coordinates: as many velocities as there are degrees of freedom, and no multipliers.

    v = N y + v_0,   G N = 0,   N' (M a + h - Q) = 0,   a = N dy/dt + a_0

y are the velocity components chosen by `independent_velocities`. Each column of N is the velocity for a unit value of one component
of y, without prescribed motion. The velocity v_0 results from prescribed motion, and the acceleration a_0 from prescribed motion
and the curvature of the constraints. Source: theory.md (N13).
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot
from jaxdyn.dynamics import constraint_motion, inverse, kinematics, metric
from jaxdyn.dynamics.equations_of_motion import applied_forces
from jaxdyn.dynamics.kinematics import Accelerations, Coordinates, Velocities
from jaxdyn.dynamics.system import State, System, Time, dynamic_function, system_function
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial import factorizations


class MinimalMotion(NamedTuple):
    """Motion of the mechanism as a function of the independent velocities.

    Attributes:
        basis: Matrix N; each column is the velocity for a unit value of one independent velocity, without prescribed motion.
        offset: Velocity v_0 that results from prescribed motion if all independent velocities are zero.
        bias: Acceleration a_0 at the velocity of the state if all independent velocities are constant.
    """

    basis: Float[Array, "nv f"]
    offset: Velocities
    bias: Accelerations


@system_function
def minimal_motion(system: System, state: State, independent: tuple[int, ...], t: Time = 0.0) -> MinimalMotion:
    """Matrix N and vectors v_0, a_0 of v = N y + v_0, a = N dy/dt + a_0.

    Args:
        system: Mechanism with its constraints.
        state: State that satisfies the constraints; v affects only a_0.
        independent: Indices of the velocity components y, from `independent_velocities`.
        t: Time (s), which matters for joints with prescribed motion.

    Raises:
        ValueError: An index in `independent` is not that of a velocity component, or occurs twice.

    Source: theory.md (N13).
    """
    _check(system, independent)
    q = state.q
    model = system.model.at(jnp.asarray(t, q.dtype))
    moving = kinematics.motion(model, q, state.v)
    rows, scale = _rows(system, model, q, moving.placements)
    drift = constraint_motion.rates(model, system.constraints, q, kinematics.motion(model, q, jnp.zeros_like(state.v)))
    curvature = constraint_motion.motion(model, system.constraints, q, moving).acceleration
    own = jnp.asarray(np.eye(model.nv)[:, list(independent)], q.dtype)
    right = jnp.concatenate([dot(rows, own), drift[:, None], curvature[:, None]], axis=1)
    found = _dependent(rows, scale, independent, -right)
    return MinimalMotion(own + found[:, :-2], found[:, -2], found[:, -1])


@dynamic_function
def minimal_acceleration(
    system: System,
    state: State,
    independent: tuple[int, ...],
    u: Float[Array, "nu"] | None = None,
    t: Time = 0.0,
) -> Float[Array, "nv"]:
    """Generalized acceleration from the equations of motion in minimal coordinates y; its components with indices `independent` are
    dy/dt.

        N' M N dy/dt = N' (Q - h - M a_0)

    Args:
        system: Mechanism with its forces, drives and constraints.
        state: State that satisfies the constraints.
        independent: Indices of the velocity components y, as for `minimal_motion`.
        u: Controls; zero if None.
        t: Time (s).

    Raises:
        ValueError: An index in `independent` is not that of a velocity component, or occurs twice.

    Source: theory.md (N13).
    """
    tau = applied_forces(system, state, u, t)
    model, q = system.model.at(jnp.asarray(t, state.v.dtype)), state.q
    basis, _, start = minimal_motion(system, state, independent, t)
    missing = tau - inverse.recursive_inverse_dynamics(model, q, state.v, start)
    inertia = dot(basis.T, dot(metric.mass_matrix(model, q), basis))
    rate = factorizations.solve(inertia, dot(basis.T, missing))
    return start + dot(basis, rate)


def _rows(system: System, model: Model, q: Coordinates, placed: kinematics.Placements):
    """Jacobian G, and a scale that gives its rows equal weight but does not amplify the rounding errors of a nearly zero row."""
    rows = constraint_motion.jacobian(model, system.constraints, q, placed)
    squares = jnp.sum(rows * rows, axis=1)
    return rows, 1.0 / jnp.sqrt(squares + jnp.finfo(q.dtype).eps ** 0.5 * jnp.max(squares))


def _dependent(rows, scale, independent: tuple[int, ...], right: Float[Array, "m k"]) -> Float[Array, "nv k"]:
    """Solve G x = right for the dependent components of x; the independent ones are zero. G may have redundant rows."""
    dependent = np.setdiff1d(np.arange(rows.shape[1]), independent)
    if not dependent.size:
        return jnp.zeros((rows.shape[1], right.shape[1]), rows.dtype)
    orthogonal, triangle = factorizations.qr(scale[:, None] * rows[:, dependent])
    found = factorizations.solve_triangular(triangle, dot(orthogonal.T, scale[:, None] * right), lower=False)
    return jnp.zeros((rows.shape[1], right.shape[1]), rows.dtype).at[dependent].set(found)


def _check(system: System, independent: tuple[int, ...]) -> None:
    nv = system.model.nv
    wrong = system.model.topology.error_with_columns(independent)
    if wrong is not None or len(set(independent)) != len(independent):
        raise ValueError(
            f"independent velocities {independent} of {system.model.name!r}: {f'{wrong}; ' if wrong else ''}"
            f"give different indices from 0 to {nv - 1}, for example those of independent_velocities"
        )
    if not system.constraints and len(independent) != nv:
        raise ValueError(f"{system.model.name!r} has no constraints; all its {nv} velocities are independent")
