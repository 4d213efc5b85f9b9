"""States in the order of Pinocchio and MuJoCo: with them, both libraries compute the same mechanics."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pinocchio
import pytest
from random_trees import random_inertia, random_joint, random_motion, random_unit
from scipy.spatial.transform import Rotation
from stacked_trees import evaluated

from jaxdyn import (
    MechanismBuilder,
    MechanismError,
    Model,
    Planar,
    Revolute,
    forward_dynamics,
    inverse_dynamics,
    kinetic_energy,
)
from jaxdyn.io.mjcf.reader import system_from_mujoco
from jaxdyn.io.state_orders import MujocoOrder, PinocchioOrder, StateOrder
from jaxdyn.spatial.inertia import symmetric_matrix

COUNT = 5


def tree(kinds: str, parents: list[int], seed: int = 0) -> Model:
    """Bodies "0", "1", ... with joints of the given kinds, in random placements; X is revolute about x."""
    special = {"L": Planar(), "X": Revolute((1.0, 0.0, 0.0))}
    rng = np.random.default_rng(seed)
    builder = MechanismBuilder("tree", (0.4, -0.8, -9.7))
    for i, (kind, parent) in enumerate(zip(kinds, parents, strict=True)):
        mass = rng.uniform(0.5, 2.0)
        com, inertia = random_inertia(rng, mass, 0.3)
        builder.add_body(
            str(i),
            joint=special[kind] if kind in special else random_joint(rng, kind),
            parent="ground" if parent < 0 else str(parent),
            position=rng.normal(0.0, 0.3, 3),
            orientation=random_unit(rng, 4),
            mass=mass,
            com=com,
            inertia=inertia,
        )
    return builder.build()


def depth_first(parents, carrier=-1):
    for i, parent in enumerate(parents):
        if parent == carrier:
            yield i
            yield from depth_first(parents, i)


# The last body first, so that the order of the joints differs as well.
PINOCCHIO = {"kinds": "FSLUHPXR", "parents": [-1, 0, 1, 1, 2, 0, 5, -1]}
MUJOCO = {"kinds": "RFSRPSF", "parents": [-1, -1, 1, 2, 1, 0, -1]}
REFERENCE = 0.3


def joint_of_pinocchio(joint):
    pin, name = pinocchio, type(joint).__name__
    if name in ("Revolute", "Prismatic"):
        if joint.axis[0] == 1.0:
            return pin.JointModelRUBX()  # a continuous joint
        return getattr(pin, f"JointModel{name}Unaligned")(np.array(joint.axis))
    if name == "Screw":
        return pin.JointModelHelicalUnaligned(np.array(joint.axis), float(joint.pitch))
    if name == "Universal":
        return pin.JointModelUniversal(np.array(joint.first_axis), np.array(joint.second_axis))
    return {"Spherical": pin.JointModelSpherical, "Planar": pin.JointModelPlanar, "Free": pin.JointModelFreeFlyer}[
        name
    ]()


def in_pinocchio(model: Model, names=None):
    pin = pinocchio.Model()
    pin.gravity.linear = np.array(model.gravity)
    joint_of, parents = {-1: 0}, model.topology.parents
    for i in sorted(depth_first(parents), key=lambda i: parents[i] != -1 or i != model.nb - 1):
        turn = Rotation.from_quat(model.placement.quaternion[i], scalar_first=True).as_matrix()
        placement = pinocchio.SE3(turn, np.array(model.placement.translation[i]))
        joint = joint_of_pinocchio(model.joint(i))
        name = (names or model.topology.joint_names)[i]
        joint_of[i] = pin.addJoint(joint_of[parents[i]], joint, placement, name)
        tensor = np.asarray(symmetric_matrix(model.inertia[i]))
        inertia = pinocchio.Inertia(float(model.mass[i]), np.array(model.com[i]), tensor)
        pin.appendBodyToJoint(joint_of[i], inertia, pinocchio.SE3.Identity())
    return pin


def in_mujoco(model: Model, names=None):
    spec = mujoco.MjSpec()
    spec.compiler.inertiafromgeom = mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_FALSE
    spec.compiler.autolimits = False
    spec.compiler.degree = False
    spec.option.gravity = np.array(model.gravity)
    carriers, parents = {-1: spec.worldbody}, model.topology.parents
    kinds = {"Revolute": "HINGE", "Prismatic": "SLIDE", "Spherical": "BALL", "Free": "FREE"}
    for i in sorted(depth_first(parents), key=lambda i: parents[i] != -1 or i != model.nb - 1):
        carriers[i] = carriers[parents[i]].add_body(
            name=str(i),
            pos=np.array(model.placement.translation[i]),
            quat=np.array(model.placement.quaternion[i]),
            explicitinertial=True,
            mass=float(model.mass[i]),
            ipos=np.array(model.com[i]),
            fullinertia=np.array(model.inertia[i]),
        )
        kind = type(model.joint(i)).__name__
        axis = {"axis": np.array(model.joint(i).axis), "ref": REFERENCE} if kind in ("Revolute", "Prismatic") else {}
        name = (names or model.topology.joint_names)[i]
        carriers[i].add_joint(name=name, type=getattr(mujoco.mjtJoint, f"mjJNT_{kinds[kind]}"), **axis)
    return spec.compile()


def ours_and_converted(model: Model, order: StateOrder, q, v, a, tau):
    """Our mechanics, and the states and forces in the other order."""
    there = (order.q_to(q), order.v_to(q, v), order.a_to(q, v, a), order.tau_to(q, tau))
    forces, accelerations = inverse_dynamics(model, q, v, a), forward_dynamics(model, q, v, tau)
    return kinetic_energy(model, q, v), forces, accelerations, there


def converted_back(order: StateOrder, q, their_q, their_v, their_a, their_tau):
    v = order.v_from(q, their_v)
    return order.q_from(their_q), v, order.a_from(q, v, their_a), order.tau_from(q, their_tau)


def mechanics_of_pinocchio(pin, q, v, a, tau):
    """Kinetic energy, inverse dynamics, forward dynamics."""
    data = pin.createData()
    energy = pinocchio.computeKineticEnergy(pin, data, q, v)
    return energy, pinocchio.rnea(pin, data, q, v, a).copy(), pinocchio.aba(pin, data, q, v, tau).copy()


def mechanics_of_mujoco(mj, q, v, a, tau):
    data = mujoco.MjData(mj)
    data.qpos, data.qvel, data.qacc, data.qfrc_applied = q, v, a, tau
    mujoco.mj_inverse(mj, data)
    forces = data.qfrc_inverse.copy()
    mujoco.mj_forward(mj, data)
    mujoco.mj_energyVel(mj, data)
    return data.energy[1], forces, data.qacc.copy()


@pytest.mark.parametrize("library", ["Pinocchio", "MuJoCo"])
def test_other_library_computes_the_same_mechanics_from_converted_states(library):
    model = tree(**(PINOCCHIO if library == "Pinocchio" else MUJOCO))
    theirs = in_pinocchio(model) if library == "Pinocchio" else in_mujoco(model)
    order = PinocchioOrder(model, theirs) if library == "Pinocchio" else MujocoOrder(model, theirs)
    mechanics = mechanics_of_pinocchio if library == "Pinocchio" else mechanics_of_mujoco
    rng = np.random.default_rng(1)
    drawn = [(*random_motion(rng, model), random_motion(rng, model)[2]) for _ in range(COUNT)]
    motions = [jnp.stack(x) for x in zip(*drawn, strict=True)]
    energy, forces, accelerations, there = evaluated(lambda *x: ours_and_converted(model, order, *x), *motions)
    found = [mechanics(theirs, *(np.array(x[k]) for x in there)) for k in range(COUNT)]
    their_energy, their_forces, their_accelerations = (jnp.asarray(np.array(x)) for x in zip(*found, strict=True))
    np.testing.assert_allclose(energy, their_energy, rtol=1e-12)
    q, v = motions[:2]
    back = evaluated(lambda *x: converted_back(order, *x), q, there[0], there[1], their_accelerations, their_forces)
    for actual, expected in ((back[1], v), (back[2], accelerations), (back[3], forces)):
        scale = np.max(np.abs(expected))
        np.testing.assert_allclose(actual, expected, atol=1e-9 * scale)  # the condition of the mass matrix
    # Their own coordinates and velocities come back as they were; quaternions with norm 1.
    again = evaluated(lambda q, v: (order.q_to(q), order.v_to(q, v)), back[0], back[1])
    np.testing.assert_allclose(again[0], there[0], atol=1e-13)
    np.testing.assert_allclose(again[1], there[1], atol=1e-13)


def test_zero_is_the_pose_of_the_file_and_quaternions_have_the_libraries_order():
    model = tree("SR", [-1, 0])
    q = jnp.array([0.1, 0.7, 0.5, -0.5, 0.2])
    unit = np.array(q[:4]) / np.linalg.norm(q[:4])
    mj, pin = MujocoOrder(model, in_mujoco(model)), PinocchioOrder(model, in_pinocchio(model))
    np.testing.assert_allclose(mj.q_to(q), [*unit, 0.2 + REFERENCE], rtol=1e-15)
    np.testing.assert_allclose(
        pin.q_to(q), [0.2, *np.roll(unit, -1)] if pin.places[1][2][0] == 0 else [*np.roll(unit, -1), 0.2]
    )


SEVERAL_JOINTS = """
<mujoco model="doll">
  <worldbody>
    <body name="trunk" pos="0.1 0.2 0.5" euler="10 20 30">
      <freejoint name="base"/>
      <inertial pos="0.01 0 0.02" mass="2" diaginertia="0.1 0.2 0.15"/>
      <body name="arm" pos="0 0.2 0.3">
        <joint name="lift" axis="0 1 0" pos="0 0.05 0" ref="15"/>
        <joint type="slide" axis="1 0 0" ref="0.1"/>
        <joint name="twist" axis="0 0 1"/>
        <inertial pos="0.1 0 0" mass="1" diaginertia="0.02 0.03 0.03"/>
        <body name="bell" pos="0.3 0 0"><joint name="ball" type="ball"/>
          <inertial pos="0 0 -0.1" mass="0.5" diaginertia="0.01 0.01 0.01"/></body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


def test_mechanism_read_from_mujoco_computes_the_same_with_bodies_of_several_joints():
    mj = mujoco.MjModel.from_xml_string(SEVERAL_JOINTS)
    model = system_from_mujoco(mj).model
    order = MujocoOrder(model, mj)
    assert model.topology.joint_names == ("base", "lift", "joint 2", "twist", "ball")
    rng = np.random.default_rng(2)
    motion = [x[None] for x in (*random_motion(rng, model), random_motion(rng, model)[2])]
    energy, forces, accelerations, there = evaluated(lambda *x: ours_and_converted(model, order, *x), *motion)
    found = mechanics_of_mujoco(mj, *(np.array(x[0]) for x in there))
    their_energy, their_forces, their_accelerations = (jnp.asarray(np.array(x))[None] for x in found)
    np.testing.assert_allclose(energy, their_energy, rtol=1e-12)
    states = motion[0], there[0], there[1], their_accelerations, their_forces
    back = evaluated(lambda *x: converted_back(order, *x), *states)
    np.testing.assert_allclose(back[3], forces, atol=1e-11)
    np.testing.assert_allclose(back[2], accelerations, rtol=1e-9, atol=1e-9)


def test_joints_that_do_not_match_are_named():
    model = tree("SR", [-1, 0])

    def message(build, order, names=None, other=model) -> str:
        with pytest.raises(MechanismError) as caught:
            order(model, build(other, names))
        assert len(str(caught.value).splitlines()) == 1
        return str(caught.value)

    for build, order in ((in_pinocchio, PinocchioOrder), (in_mujoco, MujocoOrder)):
        text = message(build, order, ["hip", "1_joint"])
        assert "it does not have joint 0_joint; its joint hip is not in 'tree'; give the joints equal names" in text
        text = message(build, order, other=tree("RR", [-1, 0]))
        assert "joint '0_joint' is a spherical joint in jaxdyn and a " in text
        assert "use the same kind in both" in text
    pin = pinocchio.Model()
    both = pinocchio.JointModelComposite(pinocchio.JointModelRX(), pinocchio.SE3.Identity())
    parent = pin.addJoint(0, pinocchio.JointModelSpherical(), pinocchio.SE3.Identity(), "0_joint")
    pin.addJoint(parent, both, pinocchio.SE3.Identity(), "1_joint")
    with pytest.raises(MechanismError, match="joint '1_joint' is a revolute joint in jaxdyn and a JointModelComposite"):
        PinocchioOrder(model, pin)
    carried = tree("RF", [-1, 0])
    other = tree("RF", [-1, -1])
    with pytest.raises(MechanismError, match="joint '1_joint' is a free joint in jaxdyn and a free joint in the other"):
        MujocoOrder(carried, in_mujoco(other))


def test_wrong_number_of_their_coordinates_is_named(as_a_user):
    model = tree("SR", [-1, 0])
    order = MujocoOrder(model, in_mujoco(model))
    with pytest.raises(ValueError, match=r"the coordinates have shape \(2, 5\), but the other model of 'tree' has 5"):
        order.q_from(jnp.zeros((2, 5)))
    assert jax.vmap(order.q_from)(jnp.ones((2, 5))).shape == (2, 5)
