"""Functions of a model that also take a system, whose forces, drives and constraints they then include: inverse dynamics, potential
energy and Jacobians of frames. `inverse_kinematics` is another one."""

import functools
import warnings
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot
from jaxdyn.display import known
from jaxdyn.dynamics import constraint_motion, energy, inverse, kinematics, multipliers, saddle_point
from jaxdyn.dynamics.doors import kinematic_function, model_function
from jaxdyn.dynamics.equations_of_motion import (
    acceleration,
    applied_forces,
    drive_forces,
    instant,
    total_potential_energy,
)
from jaxdyn.dynamics.inverse import GeneralizedForces
from jaxdyn.dynamics.kinematics import Accelerations, Coordinates, Velocities
from jaxdyn.dynamics.minimal import minimal_motion
from jaxdyn.dynamics.system import State, System, Time, dynamic_function, or_system, system_function
from jaxdyn.errors import check_name
from jaxdyn.mechanism.components import component_names
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import Quantity
from jaxdyn.results import UnsuccessfulWarning


def _checked_by_acceleration(function: Callable) -> Callable:
    """Decorator of the inverse dynamics of a system, which warns outside of `jit` if the drives do not produce the motion."""

    @functools.wraps(function)
    def checked(system: System, state: State, a: Accelerations, t: Time = 0.0) -> Float[Array, "nu"]:
        u = function(system, state, a, t)
        if system.drives is None and not system.constraints:
            return u
        found = known(jnp.stack([a, *(acceleration(system, state, x, t) for x in (u, jnp.zeros_like(u)))]))
        if found is None or np.ptp(found[:2], 0).max() <= np.finfo(found.dtype).eps ** 0.5 * np.abs(found).max():
            return u
        worst = int(np.argmax(np.ptp(found[:2], 0)))
        name = component_names(system.model, Quantity(along="velocity"))[worst]
        text = (
            f"no controls of {system.model.name!r} produce these accelerations; with the returned ones, that of {name!r} is "
            f"{found[1, worst]:.4g} instead of {found[0, worst]:.4g}: the drives are too few"
        )
        if system.drives is not None and system.drives.driven is None:
            text += ", or their bounds too tight"
        if system.constraints:
            text += (
                ", or the accelerations violate the constraints; basis @ rates + bias of minimal_motion satisfies them"
            )
        warnings.warn(text, UnsuccessfulWarning, stacklevel=3)
        return u

    return checked


@_checked_by_acceleration
@dynamic_function
def _inverse_dynamics_of_system(system: System, state: State, a: Accelerations, t: Time = 0.0) -> Float[Array, "nu"]:
    """Result of `inverse_dynamics` for a system.

    With E = (generalized forces of unit controls), E u = M a + h - Q + G' lam is solved for u. Its columns, less the constraint
    forces that balance them, F = (1 - G' A^-1 G M^-1) E with A = G M^-1 G', have F u = (1 - G' A^-1 G M^-1) (M a + h - Q).
    """
    if system.nz:
        raise ValueError(
            f"the drives of {system.model.name!r} have states, so that no controls determine the accelerations at the same time; "
            "give system.changed(drives=None) and State(q, v), for the generalized forces"
        )
    now, unit, drives = instant(system, state, t), jnp.asarray(np.eye(system.nu), state.v.dtype), system.drives
    unbounded = system if drives is None else system.changed(drives=drives.unbounded)
    needed = inverse.recursive_inverse_dynamics(now.model, state.q, state.v, a) - applied_forces(unbounded, state, t=t)
    if system.nu == 0 or (system.drives is None and not system.constraints):
        return needed[: system.nu]

    def effect(u):
        tau = drive_forces(unbounded, state, u)
        return tau if drives is None or drives.driven is not None else tau - drive_forces(unbounded, state, None)

    columns = jnp.concatenate([jax.vmap(effect)(unit), needed[None]])
    if system.constraints:
        rows = constraint_motion.jacobian(now.model, system.constraints, state.q, now.motion.placements)

        def balance(tau):
            wanted = jnp.zeros(rows.shape[0], tau.dtype)
            arguments = now.model, system.constraints, now.motion, tau, wanted, None
            return multipliers.constrained_acceleration(system.method, *arguments)[1]

        lam = jax.vmap(balance)(jnp.concatenate([columns, jnp.zeros_like(needed)[None]]))
        columns = columns + dot(lam[:-1] - lam[-1:], rows)
    # Rows of equal size, so that the units of forces and moments do not matter.
    sizes = jnp.sum(columns[:-1] ** 2, axis=0)
    scale = 1.0 / jnp.sqrt(sizes + jnp.finfo(sizes.dtype).eps * jnp.max(sizes) + jnp.finfo(sizes.dtype).tiny)
    return saddle_point.least_squares((columns[:-1] * scale[None]).T, columns[-1] * scale)


@or_system(_inverse_dynamics_of_system)
@model_function
def inverse_dynamics(
    model: Model,
    q: Coordinates,
    v: Velocities,
    a: Accelerations,
    *,
    method: Literal["recursive", "covariant"] = "recursive",
) -> GeneralizedForces:
    """Generalized forces tau of the motion (q, v, a) of a model under gravity, tau = M a + h; or drive forces u of a system.

        tau_gamma = a_{alpha gamma} a^alpha + L_{alpha beta, gamma} v^alpha v^beta - (gravity force)_gamma

    L are the Christoffel symbols, or their generalization to spherical, planar and free joints (`connection_first_kind`).

    For a `System`, inverse_dynamics(system, state, a, t=0.0) returns the controls u, with which the drives, together with the
    forces and the constraints of the system, produce the acceleration a. It is the inverse of `acceleration`:

        M a + h = Q(q, v, t) + E u + G' lam,   of all solutions u that of smallest norm

    E are the generalized forces of unit controls. Bounds of controls and drives are left out of Q and E, and a warning follows if
    they prevent the motion. With constraints, basis @ rates + bias of `minimal_motion` is the acceleration for given rates of the
    independent velocities. Other accelerations count as the nearest one, in the norm of the kinetic energy, that satisfies the
    constraints. If the drives do not produce a motion, u minimizes the unbalanced forces, each
    relative to those of unit controls; outside of `jit`, a warning then names the component. At rest, with a = 0, the controls
    compensate gravity.

    Args:
        model: Mechanism, or a `System`, whose other arguments are state, a, t.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).
        a: Generalized accelerations (rad/s^2 or m/s^2).
        method: "recursive" (Newton-Euler sums over the tree), or "covariant" (metric tensor and connection L; it does not support
            prescribed motion).

    Returns:
        Generalized forces; N m for angles, N for displacements. For a model, forces other than gravity are not included. For a
        system, the controls, shape (nu,).

    Raises:
        ValueError: An argument has the wrong shape, there is no such method, or the drives of the system have states.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        model = jaxdyn.library.double_pendulum()
        q, v, a = jnp.array([0.3, -0.5]), jnp.array([1.0, 0.0]), jnp.zeros(2)
        tau = jaxdyn.inverse_dynamics(model, q, v, a)

        spring = jaxdyn.JointSpring(stiffness=[5.0, 5.0], rest=[0.0, 0.0])
        u = jaxdyn.inverse_dynamics(jaxdyn.System(model, (spring,)), jaxdyn.State(q, v), a)
        ```

    Source: theory.md (I1), (I5), (M3), (M4), (R3), (N9); recursion: Luh, Walker and Paul 1980.
    """
    check_name("method of inverse_dynamics", method, ("recursive", "covariant"))
    if method == "recursive":
        return inverse.recursive_inverse_dynamics(model, q, v, a)
    return inverse.covariant_inverse_dynamics(model, q, v, a)


@system_function
def _frame_jacobian_of_system(
    system: System,
    state: State,
    name: str,
    independent: tuple[int, ...],
    t: Time = 0.0,
    *,
    axes: kinematics.Axes = "mixed",
) -> Float[Array, "6 f"]:
    """Result of `frame_jacobian` for a system."""
    model = system.model.at(jnp.asarray(t, state.q.dtype))
    rows = kinematics.jacobian_at(model, kinematics.placements(model, state.q), name, axes)
    return dot(rows, minimal_motion(system, state, independent, t).basis)


@or_system(_frame_jacobian_of_system)
@kinematic_function
def frame_jacobian(model: Model, q: Coordinates, name: str, *, axes: kinematics.Axes = "mixed") -> Float[Array, "6 nv"]:
    """Jacobian of a frame: J v = (omega; velocity of its origin), ground axes, angular part first; `frame_velocity` defines other
    `axes`. The rate of the Jacobian times v is `frame_acceleration` with a = 0.

    For a `System`, frame_jacobian(system, state, name, independent, t=0.0) is the Jacobian J N with respect to the independent
    velocities y of `minimal_motion`, of shape (6, f).

    Args:
        model: Mechanism, or a `System`.
        q: Generalized coordinates (rad or m); for a system, a `State` whose configuration satisfies the constraints.
        name: Name of the body or frame.
        axes: Axes and point, as of `frame_velocity`: "mixed", "local" or "world".

    Raises:
        UnknownName: No body or frame has this name, or there are no such axes; the message lists the existing names.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        model = jaxdyn.library.double_pendulum()
        linear = jaxdyn.dynamics.frame_jacobian(model, jnp.array([0.3, -0.5]), "tip")[3:]
        ```

    Source: theory.md (E4), (E5) at the origin of the frame, (E20); (N13) for a system.
    """
    return kinematics.jacobian_at(model, kinematics.placements(model, q), name, axes)


potential_energy = or_system(total_potential_energy)(energy.potential_energy)
