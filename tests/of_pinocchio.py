"""A model of Pinocchio with the joints, placements, masses and armatures of one of ours, and the order of its velocities.

Pinocchio has or composes all kinds of joints. It numbers them depth first, with the linear part of a free joint first.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from jaxdyn import Cylindrical, Free, Model, Planar, Prismatic, Revolute, Screw, Spherical
from jaxdyn.mechanism.joint import Joint
from jaxdyn.spatial.inertia import symmetric_matrix

pinocchio = pytest.importorskip("pinocchio")


def depth_first(parents, carrier=-1):
    for i, parent in enumerate(parents):
        if parent == carrier:
            yield i
            yield from depth_first(parents, i)


def slices(model: Model, i: int) -> tuple[slice, slice]:
    """Where the coordinates and the velocities of joint i are."""
    topology = model.topology
    kind, q, v = topology.joint_classes[i], topology.q_starts[i], topology.v_starts[i]
    return slice(q, q + kind.nq), slice(v, v + kind.nv)


def xyzw(quaternion):
    """Unit quaternion with the scalar last."""
    return np.roll(quaternion / np.linalg.norm(quaternion), -1)


def joint_of_pinocchio(joint: Joint):
    """Its model of the joint, and the rotation of its child frame in ours."""
    pin, straight = pinocchio, np.eye(3)
    if isinstance(joint, Revolute | Prismatic):
        kind = pin.JointModelRevoluteUnaligned if isinstance(joint, Revolute) else pin.JointModelPrismaticUnaligned
        return kind(joint.axis), straight
    if isinstance(joint, Screw):
        return pin.JointModelHelicalUnaligned(joint.axis, float(joint.pitch)), straight
    if isinstance(joint, Spherical):
        return pin.JointModelSpherical(), straight
    if isinstance(joint, Free):
        return pin.JointModelFreeFlyer(), straight
    if isinstance(joint, Planar):
        x, z = joint.direction, joint.normal
        return pin.JointModelPlanar(), np.stack([x, np.cross(z, x), z], axis=1)
    if isinstance(joint, Cylindrical):
        first, second = pin.JointModelRevoluteUnaligned(joint.axis), pin.JointModelPrismaticUnaligned(joint.axis)
    else:
        axes = joint.first_axis, joint.second_axis
        first, second = (pin.JointModelRevoluteUnaligned(axis) for axis in axes)
    both = pin.JointModelComposite(first, pin.SE3.Identity())
    both.addJoint(second, pin.SE3.Identity())
    return both, straight


def coordinates_of_pinocchio(kind: type[Joint], q):
    if kind is Spherical:
        return xyzw(q)
    if kind is Free:
        return [*q[:3], *xyzw(q[3:])]
    return [*q[:2], np.cos(q[2]), np.sin(q[2])] if kind is Planar else q


# The place of each of our velocity components among theirs.
ORDER_IN_PINOCCHIO = {Free: [3, 4, 5, 0, 1, 2], Planar: [2, 0, 1]}


def built(model: Model) -> tuple[Any, np.ndarray, Callable]:
    """Its model, the place of each of our velocity components among theirs, and the function of their coordinates of ours.

    Each body is also a frame with the index of the body as its name.
    """
    model = jax.tree.map(np.asarray, model)
    pin = pinocchio.Model()
    pin.gravity.linear = model.gravity
    joint_of, turn_of = {-1: 0}, {-1: np.eye(3)}
    for i in depth_first(model.topology.parents):
        parent = model.topology.parents[i]
        joint, turn = joint_of_pinocchio(model.joint(i))
        into_body = lambda turn: pinocchio.SE3(turn.T, np.zeros(3))  # noqa: E731
        at = pinocchio.SE3(
            Rotation.from_quat(xyzw(model.placement.quaternion[i])).as_matrix(), model.placement.translation[i]
        )
        placement = into_body(turn_of[parent]) * at * pinocchio.SE3(turn, np.zeros(3))
        joint_of[i], turn_of[i] = pin.addJoint(joint_of[parent], joint, placement, str(i)), turn
        tensor = np.asarray(symmetric_matrix(jnp.asarray(model.inertia[i])))
        pin.appendBodyToJoint(joint_of[i], pinocchio.Inertia(model.mass[i], model.com[i], tensor), into_body(turn))
        pin.addFrame(pinocchio.Frame(str(i), joint_of[i], into_body(turn), pinocchio.FrameType.OP_FRAME))
    order = np.zeros(model.nv, int)
    for i, kind in enumerate(model.topology.joint_classes):
        order[slices(model, i)[1]] = pin.joints[joint_of[i]].idx_v + np.array(
            ORDER_IN_PINOCCHIO.get(kind, range(kind.nv))
        )
    armature = np.zeros(model.nv)
    armature[order] = model.armature
    pin.armature = armature

    def coordinates(q):
        theirs = np.zeros(pin.nq)
        for i, kind in enumerate(model.topology.joint_classes):
            place = pin.joints[joint_of[i]]
            theirs[place.idx_q : place.idx_q + place.nq] = coordinates_of_pinocchio(kind, q[slices(model, i)[0]])
        return theirs

    return pin, order, coordinates
