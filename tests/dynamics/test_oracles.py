"""Random trees against two libraries that share no code with this one: Pinocchio and MuJoCo.

Full inertia tensors, random axes and placements, one root or several, rotors in the joints. Both oracles number the joints depth
first and on their own; joints are matched by name.

Pinocchio has or composes all kinds. MuJoCo has hinges, slides, balls and free bodies on the world; other kinds are several joints
in one body, with rates B(q) v. It has no screw.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from first_cases import first
from of_pinocchio import built, depth_first, slices, xyzw
from random_trees import random_model, random_motion, random_parents
from scipy.spatial.transform import Rotation
from stacked_trees import evaluated

from jaxdyn import (
    Cylindrical,
    Free,
    Model,
    Planar,
    Prismatic,
    Revolute,
    Spherical,
    Universal,
    bias_force,
    forward_dynamics,
    inverse_dynamics,
    mass_matrix,
)
from jaxdyn.mechanism.joint import Joint

pinocchio = pytest.importorskip("pinocchio")
mujoco = pytest.importorskip("mujoco")

# Hinges and slides: 11 sizes x 2 topologies x 10 sets of numbers.
SIZES = [3, 6, 2, 4, 5, *range(7, 13)]
TOPOLOGIES, NUMBERS = 2, 10
TREES = {
    "free root": {"parents": [-1, 0, 1, 1, 2, 0, 5], "kinds": "FSLURCP"},
    "free limb": {"parents": [-1, 0, 1, -1, 2, 3, 5], "kinds": "CUSLFRS"},
    "screws": {"parents": [-1, 0, 0, 1, 2, 4], "kinds": "HLSHFU"},
}
COUNT = 70
# Rotors on the other kinds are inertia along velocity components that MuJoCo does not have.
WITH_ROTORS = (Revolute, Prismatic, Cylindrical, Universal, Spherical)
TOLERANCE = 1e-9  # of the largest component: 1e-16 times the condition of the mass matrix, and MuJoCo's principal axes


def samples(name: str):
    """COUNT times a model, q, v, a, tau."""
    rng = np.random.default_rng([17, list(TREES).index(name)])
    drawn = []
    for _ in range(COUNT):
        model = random_model(rng, len(TREES[name]["kinds"]), armature=True, name=name, **TREES[name])
        rotors = np.repeat(
            [kind in WITH_ROTORS for kind in model.topology.joint_classes], [k.nv for k in model.topology.joint_classes]
        )
        armature = jnp.where(rotors | (name == "screws"), model.armature, 0.0)
        model = Model(**{f: getattr(model, f) for f in model.__dataclass_fields__} | {"armature": armature})
        drawn.append((model, *random_motion(rng, model), random_motion(rng, model)[2]))
    return drawn


def mechanics_of_pinocchio(model: Model, q, v, a, tau):
    """Mass matrix, bias force, inverse dynamics of a, forward dynamics of tau."""
    pin, order, their = built(model)
    data, their_q = pin.createData(), their(q)
    v, a, tau = (x[np.argsort(order)] for x in (v, a, tau))
    matrix = np.triu(pinocchio.crba(pin, data, their_q))
    matrix = matrix + np.triu(matrix, 1).T
    return (
        matrix[np.ix_(order, order)],
        pinocchio.nonLinearEffects(pin, data, their_q, v)[order].copy(),
        pinocchio.rnea(pin, data, their_q, v, a)[order].copy(),
        pinocchio.aba(pin, data, their_q, v, tau)[order].copy(),
    )


# --- MuJoCo ---

HINGE, SLIDE = mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE
BALL, FREE = mujoco.mjtJoint.mjJNT_BALL, mujoco.mjtJoint.mjJNT_FREE
ALONG_AXES = [(SLIDE, axis) for axis in np.eye(3)]


def joints_of_mujoco(joint: Joint, is_root: bool):
    """Kinds and axes, the outermost first."""
    if isinstance(joint, Revolute | Prismatic):
        return [(HINGE if isinstance(joint, Revolute) else SLIDE, joint.axis)]
    if isinstance(joint, Cylindrical):
        return [(HINGE, joint.axis), (SLIDE, joint.axis)]
    if isinstance(joint, Universal):
        return [(HINGE, joint.first_axis), (HINGE, joint.second_axis)]
    if isinstance(joint, Planar):
        return [(SLIDE, joint.direction), (SLIDE, np.cross(joint.normal, joint.direction)), (HINGE, joint.normal)]
    if isinstance(joint, Spherical):
        return [(BALL, None)]
    return [(FREE, None)] if is_root else [*ALONG_AXES, (BALL, None)]


def map_of_mujoco(kind: type[Joint], placed: Rotation, q, v):
    """Their coordinates, the matrix B of their velocities B v, and the rest c of their accelerations B a + c.

    `placed` turns joint axes to the axes on which MuJoCo counts the position of a free body, the world's.
    """
    eye, none = np.eye(kind.nv), np.zeros(kind.nv)
    if kind is Spherical:
        return np.roll(xyzw(q), 1), eye, none
    if kind is Free:
        turn = placed * Rotation.from_quat(xyzw(q[3:]))
        linear = turn.as_matrix()
        zero = np.zeros((3, 3))
        position = placed.apply(q[:3])
        quaternion = np.roll(turn.as_quat(), 1)
        return (
            np.concatenate([position, quaternion]),
            np.block([[zero, linear], [eye[:3, :3], zero]]),
            np.concatenate([linear @ np.cross(v[:3], v[3:]), none[:3]]),
        )
    if kind is Planar:
        c, s = np.cos(q[2]), np.sin(q[2])
        B = np.array([[0.0, c, -s], [0.0, s, c], [1.0, 0.0, 0.0]])
        B_rate = v[0] * np.array([[0.0, -s, -c], [0.0, c, -s], [0.0, 0.0, 0.0]])
        return q, B, B_rate @ v
    return q, eye, none


def mechanics_of_mujoco(model: Model, q, v, a, tau):
    """Mass matrix, bias force, inverse dynamics of a, forward dynamics of tau."""
    model = jax.tree.map(np.asarray, model)
    spec = mujoco.MjSpec()
    spec.compiler.inertiafromgeom = mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_FALSE
    spec.compiler.balanceinertia = False
    spec.compiler.autolimits = False
    spec.option.gravity = model.gravity
    carriers = {-1: spec.worldbody}
    for i in depth_first(model.topology.parents):
        parent = model.topology.parents[i]
        carriers[i] = carriers[parent].add_body(
            name=str(i),
            pos=model.placement.translation[i],
            quat=model.placement.quaternion[i],
            explicitinertial=True,
            mass=model.mass[i],
            ipos=model.com[i],
            fullinertia=model.inertia[i],
        )
        for k, (kind, axis) in enumerate(joints_of_mujoco(model.joint(i), parent < 0)):
            numbers = {} if axis is None else {"axis": axis}
            carriers[i].add_joint(
                name=f"{i}.{k}", type=kind, armature=model.armature[slices(model, i)[1]][0], **numbers
            )
    mj = spec.compile()
    data = mujoco.MjData(mj)
    B, c = np.zeros((mj.nv, model.nv)), np.zeros(mj.nv)
    for i, kind in enumerate(model.topology.joint_classes):
        in_q, in_v = slices(model, i)
        first = mj.joint(f"{i}.0")
        is_free_on_the_world = kind is Free and model.topology.parents[i] < 0
        placed = (
            Rotation.from_quat(xyzw(model.placement.quaternion[i])) if is_free_on_the_world else Rotation.identity()
        )
        their_q, B_of_joint, c_of_joint = map_of_mujoco(kind, placed, q[in_q], v[in_v])
        if is_free_on_the_world:
            their_q[:3] += model.placement.translation[i]
        there = slice(first.dofadr[0], first.dofadr[0] + kind.nv)
        data.qpos[first.qposadr[0] : first.qposadr[0] + kind.nq] = their_q
        B[there, in_v], c[there] = B_of_joint, c_of_joint
    data.qvel, data.qacc = B @ v, B @ a + c
    mujoco.mj_inverse(mj, data)
    inverse = B.T @ data.qfrc_inverse
    data.qfrc_applied = np.linalg.solve(B.T, tau)
    mujoco.mj_forward(mj, data)
    matrix = np.zeros((mj.nv, mj.nv))
    for row, unit in zip(matrix, np.eye(mj.nv), strict=True):
        mujoco.mj_mulM(mj, data, row, unit)
    bias = B.T @ (data.qfrc_bias + matrix @ c)
    return B.T @ matrix @ B, bias, inverse, np.linalg.solve(B, data.qacc - c)


def mechanics(model: Model, q, v, a, tau):
    return (
        mass_matrix(model, q),
        bias_force(model, q, v),
        inverse_dynamics(model, q, v, a),
        forward_dynamics(model, q, v, tau),
        forward_dynamics(model, q, v, tau, method="articulated_body"),
    )


def check(drawn, oracles):
    """Every quantity of all (model, q, v, a, tau) to within the tolerance of its largest component."""
    ours = [np.asarray(x) for x in evaluated(mechanics, *jax.tree.map(lambda *x: jnp.stack(x), *drawn))]
    for k, (model, *motion) in enumerate(drawn):
        for oracle in oracles:
            theirs = oracle(model, *map(np.array, motion))
            pairs = zip(ours, (*theirs, theirs[-1]), strict=True)  # forward dynamics by both methods
            found = [float(np.max(np.abs(x[k] - y)) / np.max(np.abs(y))) for x, y in pairs]
            assert max(found) < TOLERANCE, (oracle.__name__, model.topology, found)


@pytest.mark.parametrize("size", first(2, SIZES))
def test_random_trees_of_hinges_and_slides_move_as_in_pinocchio_and_mujoco(size):
    rng = np.random.default_rng(size)
    for _ in range(TOPOLOGIES):
        shape = {"parents": random_parents(rng, size), "kinds": "".join(rng.choice(["R", "P"], size)), "armature": True}
        models = [random_model(rng, size, **shape) for _ in range(NUMBERS)]
        drawn = [(m, *random_motion(rng, m), random_motion(rng, m)[0]) for m in models]
        check(drawn, (mechanics_of_pinocchio, mechanics_of_mujoco))


@pytest.mark.parametrize("name", first(1, TREES))
def test_trees_of_all_kinds_of_joints_move_as_in_pinocchio_and_mujoco(name):
    check(samples(name), [mechanics_of_pinocchio, mechanics_of_mujoco][: 1 if name == "screws" else 2])
