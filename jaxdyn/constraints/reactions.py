"""Reaction forces of the joints that close loops; theory.md (N11)."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.constraints.kinds import LoopJoint
from jaxdyn.dynamics import kinematics
from jaxdyn.dynamics.constraint_forces import constraint_forces
from jaxdyn.dynamics.system import State, System, Time, dynamic_function
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.spatial.rotation import cross


class LoopReaction(NamedTuple):
    """Load that body A exerts on body B through a loop joint, ground axes; B exerts the opposite load on A at the same point.

    Attributes:
        force: Force, N.
        moment: Moment about the origin of the marker on A, N m.
    """

    force: Float[Array, "3"]
    moment: Float[Array, "3"]


@dynamic_function
def loop_reactions(
    system: System, state: State, u: Float[Array, "nu"] | None = None, t: Time = 0.0
) -> dict[str, LoopReaction]:
    """Force and moment in every loop joint, by the name of the joint; `joint_reactions` returns the loads in the joints of the
    tree.

    In an overconstrained loop the loads are not unique, because their distribution depends on the elasticity of the bodies. The
    result for such a loop is the solution with the multipliers of smallest norm.

    Args:
        system: Mechanism with its forces, drives and constraints.
        state: State that satisfies the constraints.
        u: Controls; zero if None.
        t: Time (s).

    Example:
        ```python
        import jaxdyn

        system = jaxdyn.library.four_bar()
        loads = jaxdyn.loop_reactions(system, jaxdyn.neutral_state(system))
        forces = {joint: load.force for joint, load in loads.items()}
        ```

    Source: theory.md (N11).
    """
    exerted = constraint_forces(system, state, u, t)
    model = system.model.at(jnp.asarray(t, state.v.dtype))
    placed = kinematics.placements(model, state.q)
    found = {}
    for joint in system.constraints:
        if not isinstance(joint, LoopJoint):
            continue
        own, sign = exerted[joint.name], 1.0
        body = joint.body_b
        if body == GROUND:
            sign, body = -1.0, joint.body_a
        # The load on a body is about its origin; it is moved to the marker on A.
        reference_a, arm_a = kinematics.point_on_body(placed, joint.body_a, joint.frame_a.translation)
        to_marker = (reference_a - placed.reference[body]) + (arm_a - placed.offset[body])
        force = own.force[body]
        found[joint.name] = LoopReaction(sign * force, sign * (own.moment[body] - cross(to_marker, force)))
    return found
