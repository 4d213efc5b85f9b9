"""Reaction forces in the joints from the balance of momentum of the bodies beyond each joint; theory.md section (m)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, einsum
from jaxdyn.dynamics import constraint_motion, inverse, kinematics
from jaxdyn.dynamics.equations_of_motion import (
    Instant,
    acceleration_and_multipliers,
    acting_controls,
    forces_on_bodies,
    instant,
)
from jaxdyn.dynamics.forces import GeneralizedForce
from jaxdyn.dynamics.kinematics import Accelerations
from jaxdyn.dynamics.system import State, System, Time, dynamic_function
from jaxdyn.mechanism import configuration, tree
from jaxdyn.spatial.rotation import cross
from jaxdyn.spatial.sixvector import force_at_point, motion_to_outer


class JointReaction(NamedTuple):
    """Load that a joint transmits from the parent body to the child body; ground axes, moments about the origin O'_i of the child
    body, N and N m.

    Attributes:
        force, moment: Total load of constraints, drive, friction and springs in the joint.
        constraint_force, constraint_moment: Load without the part along the motion of the joint; the power of this load in the
            joint is zero.
        drive: Generalized force along the motion of the joint, S'(moment; force) with the motion columns S. This force is the sum
            of controls, friction, springs and couplings in the joint, minus armature times a and minus the forces of the rotors of
            the joint (R3).
    """

    force: Float[Array, "3"]
    moment: Float[Array, "3"]
    constraint_force: Float[Array, "3"]
    constraint_moment: Float[Array, "3"]
    drive: Float[Array, "_"]


@dynamic_function
def joint_reactions(
    system: System,
    state: State,
    u: Float[Array, "nu"] | None = None,
    t: Time = 0.0,
    *,
    a: Accelerations | None = None,
) -> dict[str, JointReaction]:
    """Force and moment in every joint of the tree, by the names of the joints.

    The parent body exerts the returned loads on the child body, which exerts the opposite loads on the parent body.

        f_i = sum over the bodies beyond of m (acc - g) - (applied forces);   n_i likewise about O'_i

    The split between constraint and drive depends on how a drive exerts its force within the joint. Each drive is assumed to act as
    a (moment; force) in the span of the motion columns of its joint; for a screw, the moment is about its axis. `constraint_forces`
    returns the loads of loop joints. A rotor belongs to the body that carries it. If a more distant body carries the rotor, the
    load that the drive train transmits past the joints in between is part of the loads of these joints.

    Args:
        system: Mechanism with its forces, drives and constraints.
        state: Coordinates and velocities.
        u: Controls; zero if None.
        t: Time (s).
        a: Generalized accelerations; computed from the forces if None.

    Raises:
        ValueError: Accelerations are given for a system with constraints.

    Example:
        ```python
        import jaxdyn

        system = jaxdyn.library.system("acrobot")
        loads = jaxdyn.joint_reactions(system, jaxdyn.neutral_state(system))
        forces = {joint: load.force for joint, load in loads.items()}
        ```

    Source: theory.md (M1)-(M5), (R3).
    """
    now, wrench = _wrenches(system, state, u, t, a)
    model, placed = now.model, now.motion.placements
    body = model.topology.body_of_column
    drive = drives_of_loads(now, wrench)
    to_ground = jax.vmap(motion_to_outer)
    columns = configuration.drive_columns(model, state.q)
    # Only the axes are rotated: the columns remain about the body origin.
    turned = to_ground(placed.rotation[body], jnp.zeros_like(placed.offset)[body], columns)
    moves_directly = (jnp.arange(model.nb)[:, None] == body[None]).astype(drive.dtype)
    own = einsum("ba,ac->bc", moves_directly, turned * drive[:, None])
    force = wrench[:, 3:]
    moment = wrench[:, :3] - cross(placed.offset, force)
    constraint_force, constraint_moment = force - own[:, 3:], moment - own[:, :3]
    return {
        name: JointReaction(force[i], moment[i], constraint_force[i], constraint_moment[i], drive[body == i])
        for i, name in enumerate(model.topology.joint_names)
    }


@dynamic_function
def driving_forces(
    system: System,
    state: State,
    u: Float[Array, "nu"] | None = None,
    t: Time = 0.0,
) -> dict[str, Float[Array, "_"]]:
    """Generalized forces that impose prescribed motions, by the names of their joints.

    Args:
        system: Mechanism with its forces, drives and constraints.
        state: Coordinates and velocities.
        u: Controls; zero if None.
        t: Time (s).

    Returns:
        Forces along the velocity components of each driven joint, N m or N.

    Source: theory.md (I4), (M5).
    """
    now, wrench = _wrenches(system, state, u, t)
    model, placed = now.model, now.motion.placements
    forces = {}
    for i, columns in configuration.driven_columns(model, state.q).items():
        force = wrench[i, 3:]
        moment = wrench[i, :3] - cross(placed.offset[i], force)
        on_child_axes = jnp.concatenate([dot(placed.rotation[i].T, moment), dot(placed.rotation[i].T, force)])
        forces[model.topology.joint_names[i]] = dot(columns.T, on_child_axes)  # (M5)
    return forces


@dynamic_function
def driving_power(
    system: System,
    state: State,
    u: Float[Array, "nu"] | None = None,
    t: Time = 0.0,
) -> Float[Array, ""]:
    """Power that prescribed motions supply, W.

    The rate of the total energy is the power of the prescribed motions plus the power of all other forces. The power of a force on
    a body that prescribed motion carries is not only Q . v, because the force acts on the whole velocity of the body.

    Args:
        system: Mechanism with its forces, drives and constraints.
        state: Coordinates and velocities.
        u: Controls; zero if None.
        t: Time (s).

    Source: theory.md (E19), (G7).
    """
    now, wrench = _wrenches(system, state, u, t)
    model, moving = now.model, now.motion
    if not configuration.is_prescribed(model):
        return jnp.zeros((), state.v.dtype)
    placed = moving.placements
    drift, _ = configuration.prescribed_twists(model, state.q, state.v)
    on_ground = jax.vmap(motion_to_outer)(placed.rotation, placed.offset, drift)
    return einsum("bc,bc->", on_ground, wrench)


def _wrenches(
    system: System, state: State, u: Float[Array, "nu"] | None, t: Time, a: Accelerations | None = None
) -> tuple[Instant, Float[Array, "nb 6"]]:
    """The instant, and the loads in all joints."""
    if system.constraints and a is not None:
        raise ValueError(
            f"accelerations alone do not determine how the constraints and the drives of {system.model.name!r} share the load; "
            "give controls instead"
        )
    now, lam = instant(system, state, t), jnp.zeros(0, state.v.dtype)
    if a is None:
        a, lam = acceleration_and_multipliers(system, now, u)
    return now, loads_in_joints(system, now, u, a, lam)


def loads_in_joints(
    system: System, now: Instant, u: Float[Array, "nu"] | None, a: Accelerations, lam: Float[Array, "m"]
) -> Float[Array, "nb 6"]:
    """Load that each joint transmits to its body: (moment about the reference point P; force), ground axes.

    Args:
        system: Mechanism with its forces, drives and constraints.
        now: Instant of the system.
        u: Controls; zero if None.
        a: Generalized accelerations.
        lam: Multipliers of the constraints.

    Source: theory.md (M3), (M4).
    """
    model, moving = now.model, now.motion
    needed = inverse.forces_on_bodies(model, moving, kinematics.accelerations(model, moving, a), a)
    missing = needed - forces_on_bodies(system, model, moving, now.t)
    for force in (force for force in system.forces if isinstance(force, GeneralizedForce)):
        missing = missing - force.body_forces(model, moving, now.t)
    if system.drives is not None:
        acting = acting_controls(system, now.state, u)
        acting = jnp.zeros(system.nu, a.dtype) if acting is None else acting
        missing = missing - system.drives.body_forces(model, moving, acting)
    if system.constraints:
        placed = moving.placements
        moment, force, _ = constraint_motion.forces(model, system.constraints, moving.q, placed.poses, lam)
        missing = missing - jax.vmap(force_at_point)(placed.offset, force, moment)
    return tree.sum_over_descendants(model.topology, missing)  # (M3), (M4)


def drives_of_loads(now: Instant, loads: Float[Array, "nb 6"]) -> Float[Array, "nv"]:
    """Generalized forces along the motions of the joints, from the loads in the joints.

    Args:
        now: Instant of the system.
        loads: Result of `loads_in_joints`.

    Source: theory.md (M5).
    """
    return einsum("ac,ac->a", now.motion.placements.columns, loads[now.model.topology.body_of_column])  # (M5)
