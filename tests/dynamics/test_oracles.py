"""Two hundred random trees against two libraries that share no code with this one: Pinocchio and MuJoCo.

Full inertia tensors, random axes and placements, one root or several, rotors in the joints. Both oracles number the joints depth
first and on their own; joints are matched by name.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from first_cases import first
from random_trees import random_model, random_motion, random_parents

from jaxdyn import Model, Revolute, bias_force, forward_dynamics, inverse_dynamics, mass_matrix
from jaxdyn.spatial.inertia import symmetric_matrix

pinocchio = pytest.importorskip("pinocchio")
mujoco = pytest.importorskip("mujoco")

# 11 sizes x 2 topologies x 10 sets of numbers at once through `vmap`: most of the time goes into compiling for another size.
SIZES = range(2, 13)
TOPOLOGIES, NUMBERS = 2, 10

TOLERANCE = 1e-9  # of the largest component: 1e-16 times the condition of the mass matrix, and MuJoCo's principal axes


def depth_first(parents, carrier=-1):
    for i, parent in enumerate(parents):
        if parent == carrier:
            yield i
            yield from depth_first(parents, i)


def bodies(model: Model):
    """Numbers of each body as NumPy arrays, parents first and depth first."""
    numbers = jax.tree.map(np.asarray, model)
    for i in depth_first(model.topology.parents):
        yield {
            "index": i,
            "parent": model.topology.parents[i],
            "revolute": model.topology.joint_classes[i] is Revolute,
            "axis": numbers.joint(i).axis,
            "position": numbers.placement.translation[i],
            "quaternion": numbers.placement.quaternion[i],
            "mass": numbers.mass[i],
            "com": numbers.com[i],
            "inertia": numbers.inertia[i],
            "armature": numbers.armature[i],
        }


def mechanics_of_pinocchio(model: Model, q, v, a, tau):
    """Mass matrix, bias force, inverse dynamics of a, forward dynamics of tau."""
    pin = pinocchio.Model()
    pin.gravity.linear = np.asarray(model.gravity)
    joint_of = {-1: 0}
    for body in bodies(model):
        kind = pinocchio.JointModelRevoluteUnaligned if body["revolute"] else pinocchio.JointModelPrismaticUnaligned
        w, x, y, z = body["quaternion"]
        placement = pinocchio.SE3(pinocchio.Quaternion(w, x, y, z).matrix(), body["position"])
        joint = pin.addJoint(joint_of[body["parent"]], kind(body["axis"]), placement, str(body["index"]))
        inertia = pinocchio.Inertia(body["mass"], body["com"], symmetric_matrix(body["inertia"]))
        pin.appendBodyToJoint(joint, inertia, pinocchio.SE3.Identity())
        joint_of[body["index"]] = joint
    order = np.array([pin.joints[joint_of[i]].idx_v for i in range(model.nb)])  # ours -> theirs
    armature = np.zeros(model.nv)
    armature[order] = model.armature
    pin.armature = armature
    data = pin.createData()
    q, v, a, tau = (x[np.argsort(order)] for x in (q, v, a, tau))
    matrix = np.triu(pinocchio.crba(pin, data, q))
    matrix = matrix + np.triu(matrix, 1).T
    return (
        matrix[np.ix_(order, order)],
        pinocchio.nonLinearEffects(pin, data, q, v)[order].copy(),
        pinocchio.rnea(pin, data, q, v, a)[order].copy(),
        pinocchio.aba(pin, data, q, v, tau)[order].copy(),
    )


def mechanics_of_mujoco(model: Model, q, v, a, tau):
    """Mass matrix, bias force, inverse dynamics of a, forward dynamics of tau."""
    spec = mujoco.MjSpec()
    spec.compiler.inertiafromgeom = mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_FALSE
    spec.compiler.balanceinertia = False
    spec.compiler.autolimits = False
    spec.option.gravity = np.asarray(model.gravity)
    carriers = {-1: spec.worldbody}
    for body in bodies(model):
        carriers[body["index"]] = carrier = carriers[body["parent"]].add_body(
            name=str(body["index"]),
            pos=body["position"],
            quat=body["quaternion"],
            explicitinertial=True,
            mass=body["mass"],
            ipos=body["com"],
            fullinertia=body["inertia"],
        )
        carrier.add_joint(
            name=str(body["index"]),
            type=mujoco.mjtJoint.mjJNT_HINGE if body["revolute"] else mujoco.mjtJoint.mjJNT_SLIDE,
            axis=body["axis"],
            armature=body["armature"],
        )
    mj = spec.compile()
    order = np.array([mj.joint(str(i)).dofadr[0] for i in range(model.nb)])
    data = mujoco.MjData(mj)
    data.qpos[order], data.qvel[order], data.qacc[order] = q, v, a
    mujoco.mj_inverse(mj, data)
    inverse = data.qfrc_inverse[order].copy()
    data.qfrc_applied[order] = tau
    mujoco.mj_forward(mj, data)
    matrix = np.zeros((mj.nv, mj.nv))
    for row, unit in zip(matrix, np.eye(mj.nv), strict=True):
        mujoco.mj_mulM(mj, data, row, unit)
    return matrix[np.ix_(order, order)], data.qfrc_bias[order].copy(), inverse, data.qacc[order].copy()


@jax.jit
@jax.vmap
def mechanics(model: Model, q, v, a, tau):
    return (
        mass_matrix(model, q),
        bias_force(model, q, v),
        inverse_dynamics(model, q, v, a),
        forward_dynamics(model, q, v, tau),
        forward_dynamics(model, q, v, tau, method="articulated_body"),
    )


def agree(ours, theirs):
    """Every quantity to within the tolerance of its largest component; returns the errors for the message."""
    theirs = [*theirs, theirs[-1]]  # forward dynamics by both methods
    return [float(np.max(np.abs(x - y)) / np.max(np.abs(y))) for x, y in zip(ours, theirs, strict=True)]


@pytest.mark.parametrize("size", first(5, SIZES))
def test_random_trees_move_as_in_pinocchio_and_mujoco(size):
    rng = np.random.default_rng(size)
    for _ in range(TOPOLOGIES):
        shape = {"parents": random_parents(rng, size), "kinds": "".join(rng.choice(["R", "P"], size)), "armature": True}
        models = [random_model(rng, size, **shape) for _ in range(NUMBERS)]
        motions = [(*random_motion(rng, m), random_motion(rng, m)[0]) for m in models]
        stacked = jax.tree.map(lambda *x: jnp.stack(x), *zip(models, *zip(*motions, strict=True), strict=True))
        ours = [np.asarray(x) for x in mechanics(*stacked)]
        for k, (model, motion) in enumerate(zip(models, motions, strict=True)):
            numbers = [np.asarray(x) for x in motion]
            for oracle in (mechanics_of_pinocchio, mechanics_of_mujoco):
                errors = agree([x[k] for x in ours], oracle(model, *numbers))
                assert max(errors) < TOLERANCE, (oracle.__name__, shape, errors)
