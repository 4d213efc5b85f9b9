"""Forces in the joints, by the laws of momentum and of angular momentum for everything beyond each joint; theory.md section (m)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.dynamics import constraint_motion, inverse, kinematics
from jaxdyn.dynamics.kinematics import Accelerations
from jaxdyn.dynamics.system import (
    State,
    System,
    Time,
    acceleration_and_multipliers,
    forces_on_bodies,
    instant,
    system_function,
)
from jaxdyn.mechanism import configuration, tree
from jaxdyn.spatial.arrays import dot, einsum
from jaxdyn.spatial.sixvector import force_at_point, motion_to_outer


class JointReaction(NamedTuple):
    """What a joint transmits from the parent to its body, ground axes, moments about the body origin O'_i; N and N m.

    Attributes:
        force, moment: everything: constraints, drive, friction and springs in the joint.
        constraint_force, constraint_moment: without what acts along the joint's own motion; they do no work on it.
        drive: generalized force that acts along it, S'(moment; force): control, friction, springs and couplings in the joint less
            armature a and what its rotors take (R3).
    """

    force: Float[Array, "3"]
    moment: Float[Array, "3"]
    constraint_force: Float[Array, "3"]
    constraint_moment: Float[Array, "3"]
    drive: Float[Array, "_"]


@system_function
def joint_reactions(
    system: System,
    state: State,
    u: Float[Array, "nu"] | None = None,
    t: Time = 0.0,
    *,
    a: Accelerations | None = None,
) -> dict[str, JointReaction]:
    """Force and moment in every joint of the tree, by the names of the joints: the parent acts on the body with these, and the body
    on the parent with the opposite.

        f_i = sum over the bodies beyond of m (acc - g) - (applied forces);   n_i likewise about O'_i

    How a drive exerts its force within the joint settles what of it counts as constraint: as (moment; force) in the span of the
    joint's motion, about the axis of a screw. What loop joints transmit is told by `constraint_forces`. A rotor belongs to the
    body that carries it; what a drive train transmits past joints, from a rotor that a body further away carries, is part of what
    these joints transmit.

    Args:
        u: controls; None for none.
        t: time, s.
        a: accelerations; those that the forces cause if not given.

    Raises:
        ValueError: accelerations are given for a system with constraints.

    Source: theory.md (M1)-(M5), (R3).
    """
    model, moving, wrench = _wrenches(system, state, u, t, a)
    placed = moving.placements
    body = model.topology.body_of_column
    drive = einsum("ac,ac->a", placed.columns, wrench[body])  # (M5)
    to_ground = jax.vmap(motion_to_outer)
    columns = configuration.drive_columns(model, state.q)
    # Both halves only turn: the columns stay at the body origin.
    turned = to_ground(placed.rotation[body], jnp.zeros_like(placed.offset)[body], columns)
    moves_directly = (jnp.arange(model.nb)[:, None] == body[None]).astype(drive.dtype)
    own = einsum("ba,ac->bc", moves_directly, turned * drive[:, None])
    force = wrench[:, 3:]
    moment = wrench[:, :3] - jnp.cross(placed.offset, force)
    constraint_force, constraint_moment = force - own[:, 3:], moment - own[:, :3]
    return {
        name: JointReaction(force[i], moment[i], constraint_force[i], constraint_moment[i], drive[body == i])
        for i, name in enumerate(model.topology.joint_names)
    }


@system_function
def driving_forces(
    system: System,
    state: State,
    u: Float[Array, "nu"] | None = None,
    t: Time = 0.0,
    *,
    a: Accelerations | None = None,
) -> dict[str, Float[Array, "_"]]:
    """Generalized forces that prescribed motions take, by the names of their joints; N m, N by the velocities of the driven joints.

    Arguments as for `joint_reactions`. Source: theory.md (I4), (M5).
    """
    model, moving, wrench = _wrenches(system, state, u, t, a)
    placed = moving.placements
    forces = {}
    for i, columns in configuration.driven_columns(model, state.q).items():
        force = wrench[i, 3:]
        moment = wrench[i, :3] - jnp.cross(placed.offset[i], force)
        on_child_axes = jnp.concatenate([dot(placed.rotation[i].T, moment), dot(placed.rotation[i].T, force)])
        forces[model.topology.joint_names[i]] = dot(columns.T, on_child_axes)  # (M5)
    return forces


@system_function
def driving_power(
    system: System,
    state: State,
    u: Float[Array, "nu"] | None = None,
    t: Time = 0.0,
    *,
    a: Accelerations | None = None,
) -> Float[Array, ""]:
    """Power that prescribed motions put in, W: the rate of the total energy is this and the power of all other forces.

    The power of a force on a body that prescribed motion carries is not only Q . v: it acts on the whole velocity of the body.

    Arguments as for `joint_reactions`. Source: theory.md (E19), (G7).
    """
    model, moving, wrench = _wrenches(system, state, u, t, a)
    if not configuration.is_prescribed(model):
        return jnp.zeros((), state.v.dtype)
    placed = moving.placements
    drift, _ = configuration.drifts(model, state.q, state.v)
    on_ground = jax.vmap(motion_to_outer)(placed.rotation, placed.offset, drift)
    return einsum("bc,bc->", on_ground, wrench)


def _wrenches(system: System, state: State, u, t: Time, a: Accelerations | None):
    """The model at time t, its motion, and (moment about P; force) in every joint, ground axes."""
    if system.constraints and a is not None:
        raise ValueError(
            f"accelerations alone do not tell what the constraints of {system.model.name!r} bear and what its drives; "
            "give controls instead"
        )
    now = instant(system, state, t)
    model, moving, lam = now.model, now.motion, jnp.zeros(0, state.v.dtype)
    if a is None:
        a, lam = acceleration_and_multipliers(system, now, u)
    needed = inverse.forces_on_bodies(model, moving, kinematics.accelerations(model, moving, a), a)
    missing = needed - forces_on_bodies(system, model, moving, now.t)
    if system.constraints:
        placed = moving.placements
        moment, force, _ = constraint_motion.forces(model, system.constraints, state.q, placed.poses, lam)
        missing = missing - jax.vmap(force_at_point)(placed.offset, force, moment)
    return model, moving, tree.sum_over_descendants(model.topology, missing)  # (M3), (M4)
