"""MJCF files: what becomes of each part, and the same mechanics as MuJoCo's own."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxdyn
from jaxdyn import JointFriction, JointSpring, MechanismError, State
from jaxdyn.dynamics import constraint_motion
from jaxdyn.io import ConfigError, IgnoredContent, MujocoOrder, load_mjcf, system_from_mujoco

GEOM = '<geom type="box" size="0.1 0.2 0.3" pos="0.1 -0.05 0.2" euler="20 30 40" contype="0" conaffinity="0"/>'
EVERYTHING = f"""
<mujoco model="everything">
  <option gravity="0.3 -0.2 -9.7" density="0" viscosity="0"/>
  <worldbody>
    <body name="cart" pos="0.1 0.2 0.3" euler="10 20 30">
      <joint name="slide" type="slide" axis="1 2 0" ref="0.25" pos="0.1 0 0" limited="true" range="-1 2" armature="0.4"/>
      <joint name="tilt" type="hinge" axis="0 1 1" pos="0.1 0.2 -0.1" ref="20" stiffness="3" springref="10" damping="0.7"/>
      {GEOM}
      <site name="tip" pos="0.3 0 0" euler="0 0 90"/>
      <body pos="0 0.3 0.1">{GEOM}
        <body name="arm" pos="0.2 0.3 0" euler="0 40 0">
          <joint name="ball" type="ball" pos="0.1 0.1 0" armature="0.1" stiffness="2" frictionloss="0.2"/>{GEOM}
          <body name="hand" pos="0 0 0.5">
            <joint name="first" axis="1 0 0" pos="0 0 0.1"/><joint axis="0 1 0" pos="0 0.2 0"/>{GEOM}
          </body>
        </body>
      </body>
    </body>
    <body name="drone" pos="1 2 3" euler="30 0 0"><freejoint name="flight"/>{GEOM}</body>
  </worldbody>
  <actuator><motor joint="tilt" gear="5"/><motor joint="slide" gear="-2"/></actuator>
</mujoco>
"""


def written(tmp_path, text: str):
    path = tmp_path / "machine.xml"
    path.write_text(text)
    return path


def test_every_part_has_the_mechanics_of_mujoco(tmp_path):
    path = written(tmp_path, EVERYTHING)
    system = load_mjcf(path)
    theirs = mujoco.MjModel.from_xml_path(str(path))
    theirs.dof_frictionloss[:] = 0.0  # theirs is a constraint
    order, data, model = MujocoOrder(system.model, theirs), mujoco.MjData(theirs), system.model
    assert (model.nq, model.nv, model.nb) == (theirs.nq, theirs.nv, 6)
    keys = jax.random.split(jax.random.key(0), 3)
    q = jaxdyn.configuration.random(model, keys[0])
    v, u = jax.random.normal(keys[1], (model.nv,)), jax.random.normal(keys[2], (2,))

    # Springs and dampers act through the system, the motors through its drives.
    quiet = jaxdyn.System(model, (JointFriction(system.forces[0].viscous, np.zeros(model.nv), np.ones(model.nv)),))
    without_friction = jaxdyn.System(model, (quiet.forces[0], system.forces[1]), system.drives)

    @jax.jit
    def ours(q, v, u):
        acceleration = jaxdyn.acceleration(without_friction, State(q, v), u)
        matrix, placed = jaxdyn.mass_matrix(model, q), jaxdyn.forward_kinematics(model, q)
        tip = jaxdyn.frame_placement(model, q, "tip").translation
        converted = order.q_to(q), order.v_to(q, v), order.a_to(q, v, acceleration), jax.jacfwd(order.v_to, 1)(q, v)
        return matrix, placed.translation, tip, *converted

    matrix, _, tip, their_q, their_v, their_a, change = ours(q, v, u)
    data.qpos, data.qvel, data.ctrl = np.array(their_q), np.array(their_v), np.array(u)
    mujoco.mj_forward(theirs, data)
    expected = np.array([column_of_mass_matrix(theirs, data, unit) for unit in np.eye(theirs.nv)])
    np.testing.assert_allclose(matrix, change.T @ expected @ change, atol=1e-10)
    np.testing.assert_allclose(their_a, data.qacc, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(tip, data.site("tip").xpos, atol=1e-12)


def column_of_mass_matrix(theirs, data, unit):
    column = np.zeros(theirs.nv)
    mujoco.mj_mulM(theirs, data, column, unit)
    return column


def test_numbers_and_names_arrive(tmp_path):
    system = load_mjcf(written(tmp_path, EVERYTHING))
    model = system.model
    assert model.name == "everything"
    assert model.topology.joint_names == ("slide", "tilt", "ball", "first", "joint 4", "flight")
    assert model.topology.body_names == ("cart/slide", "cart", "arm", "hand/first", "hand", "drone")
    assert "tip" in model.topology.frame_names
    assert np.all(model.mass[jnp.array([0, 3])] == 0)
    np.testing.assert_allclose(model.armature, [0.4, 0, 0.1, 0.1, 0.1, 0, 0, *[0] * 6])
    np.testing.assert_allclose([model.limits.lower[0], model.limits.upper[0]], [-1.25, 1.75])  # from the reference 0.25
    np.testing.assert_allclose(model.gravity, [0.3, -0.2, -9.7])
    friction, spring = system.forces
    assert isinstance(friction, JointFriction)
    assert isinstance(spring, JointSpring)
    np.testing.assert_allclose(friction.viscous[:2], [0.0, 0.7])
    np.testing.assert_allclose(friction.coulomb[2:5], 0.2)
    np.testing.assert_allclose(spring.stiffness[:5], [0, 3, 2, 2, 2])
    np.testing.assert_allclose(spring.rest[1], np.deg2rad(10.0 - 20.0))
    assert system.drives is not None
    assert system.drives.columns == (1, 0)
    np.testing.assert_allclose(system.drives.gear, [5.0, -2.0])


LOOPS = f"""
<mujoco>
  <worldbody>
    <body name="left"><joint name="l" axis="0 1 0" ref="15" pos="0 0 0.1"/>{GEOM}
      <site name="a" pos="0 0 0.4" euler="10 0 0"/></body>
    <body name="right" pos="1 0 0"><joint name="r" axis="0 1 0"/>{GEOM}
      <site name="b" pos="-1 0 0.4" euler="0 10 0"/><body name="plate"/></body>
  </worldbody>
  <equality>
    <connect name="pin" body1="left" body2="right" anchor="0.5 0 0.2"/>
    <joint name="gear" joint1="l" joint2="r" polycoef="0.1 -2 0.3 0.2 0.1"/>
    <connect name="sites" site1="a" site2="b"/>
    <weld name="glue" body1="right" body2="left" relpose="0.2 0.1 0 0.9 0.1 0.2 0.3" anchor="0.1 0.2 0.3"/>
    <joint name="off" joint1="l" active="false"/>
    <weld name="inside" body1="right" body2="plate"/>
    <tendon name="difference" tendon1="difference" polycoef="0.1 1 0 0 0"/>
    <tendon name="both" tendon1="left" tendon2="right" polycoef="0.1 2 3 0.5 0.1"/>
    <joint name="lock" joint1="r" polycoef="0.3 0 0 0 0"/>
  </equality>
  <tendon>
    <fixed name="difference"><joint joint="l" coef="0.4"/><joint joint="r" coef="-3"/></fixed>
    <fixed name="left"><joint joint="l" coef="0.4"/></fixed><fixed name="right"><joint joint="r" coef="-3"/></fixed>
  </tendon>
</mujoco>
"""


def test_equalities_are_constraints_with_the_errors_of_mujoco(tmp_path):
    path = written(tmp_path, LOOPS)
    with pytest.warns(IgnoredContent, match="equality 'off', which is switched off, equality 'inside' within one body"):
        system = load_mjcf(path)
    names = ["pin", "gear", "sites", "glue", "difference", "both", "lock"]
    assert [constraint.name for constraint in system.constraints] == names
    theirs = mujoco.MjModel.from_xml_path(str(path))
    order, data = MujocoOrder(system.model, theirs), mujoco.MjData(theirs)
    q = jnp.array([0.4, -0.7])
    data.qpos = np.array(order.q_to(q))
    mujoco.mj_forward(theirs, data)
    phi = jax.jit(lambda q: constraint_motion.residuals_at(system.model, system.constraints, q))(q)
    # Rows: 3 of the pin, 1 of the gear, 3 of the sites, 3 + 3 of the weld, whose angles MuJoCo weighs differently, 6 of the weld
    # within a body in MuJoCo, 3 of the others.
    np.testing.assert_allclose(phi[:7], data.efc_pos[:7], atol=1e-12)
    np.testing.assert_allclose(phi[7:10], data.efc_pos[7:10], atol=1e-12)
    np.testing.assert_allclose(phi[13:], data.efc_pos[-3:] / [0.4, 0.4, 1.0], atol=1e-12)
    assert np.linalg.norm(phi[10:13]) > 0.1
    np.testing.assert_allclose(np.linalg.norm(phi[10:13]), 2.0 * np.sin(angle_of_weld(theirs, data) / 2), atol=1e-12)


def angle_of_weld(theirs, data) -> float:
    """Between the two bodies of the weld, as MuJoCo's own functions say."""
    relative, goal = np.zeros(4), np.zeros(4)
    mujoco.mju_mulQuat(goal, data.body("right").xquat, theirs.eq_data[3, 6:10])
    mujoco.mju_negQuat(relative, goal)
    mujoco.mju_mulQuat(relative, relative.copy(), data.body("left").xquat)
    return 2.0 * np.arccos(abs(relative[0]) / np.linalg.norm(relative))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("<worldbody><geom size='1'/></worldbody>", "has no moving body"),
        ("<worldbody><body><joint/></body></worldbody>", "MuJoCo refuses it: .*mass and inertia"),
        (
            "<worldbody><body><joint name='j'/><joint name='k' axis='1 0 0'/><joint name='l' axis='0 1 0'/><geom size='1'/></body>"
            "</worldbody><tendon><fixed name='t'><joint joint='j' coef='1'/><joint joint='k' coef='1'/><joint joint='l' coef='1'/>"
            "</fixed></tendon><equality><tendon name='e' tendon1='t'/></equality>",
            "line 1: equality 'e' is not of one or two revolute or prismatic joints, which is not supported",
        ),
        (
            "<worldbody><site name='o'/><body><joint name='j'/><geom size='1'/><site name='p'/></body></worldbody><tendon>"
            "<fixed name='t'><joint joint='j' coef='1'/></fixed><spatial name='s'><site site='o'/><site site='p'/></spatial>"
            "</tendon><equality><tendon name='e' tendon1='t' tendon2='s'/></equality>",
            "line 1: equality 'e' is not of one or two revolute or prismatic joints, which is not supported",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_its_name(tmp_path, body, message):
    with pytest.raises((ConfigError, MechanismError), match=message) as refused:
        load_mjcf(written(tmp_path, f"<mujoco>{body}</mujoco>"))
    assert "machine.xml" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_contacts_are_reported_once_by_count(tmp_path):
    text = """
    <mujoco model="legs"><worldbody><geom type="plane" size="1 1 1"/>
      <body pos="0 0 1"><joint name="j"/><geom size="0.1"/><geom size="0.2"/></body></worldbody>
      <actuator><position joint="j" kp="3"/><motor joint="j"/></actuator></mujoco>"""
    with pytest.warns(IgnoredContent) as said:
        system = load_mjcf(written(tmp_path, text))
    assert len(said) == 1
    assert str(said[0].message) == "legs: ignored 3 geoms with contact"
    assert system.nu == 2


FLOATING = """
<mujoco><compiler angle="radian"/><option {option}/><worldbody>
  <body name="hand" mocap="true" gravcomp="1"><geom size="0.1" contype="0" conaffinity="0"/></body>
  <body name="base" pos="0 1 1" gravcomp="0.3">
  <joint name="j" type="free" armature="0.7" damping="0.3"/><inertial pos="0.1 0.3 -0.2" mass="1" diaginertia="0.2 0.15 0.12"/>
  <body name="load" pos="0 0 1" euler="0.1 0.2 0.3" gravcomp="1">
    <inertial pos="0.1 0 -0.2" euler="0.4 0 0" mass="0.5" diaginertia="0.02 0.015 0.03"/></body>
  <body name="tail" gravcomp="0.5"><joint name="ball" type="ball" pos="0.1 0.2 0.3"/>
    <inertial pos="0.1 0 -0.2" mass="0.5" diaginertia="0.02 0.015 0.03"/>
    <body gravcomp="0.5"><inertial pos="0 0.2 0" mass="0.2" diaginertia="0.02 0.015 0.03"/></body></body></body>
</worldbody></mujoco>"""
MEDIUM = 'density="300" viscosity="2" wind="0.5 0.2 -1"'


SWIMMER = """<mujoco><option density="300" viscosity="2" wind="0.5 0.2 -1"/><worldbody><body pos="0 1 1"><freejoint/>
  <geom type="ellipsoid" size="0.1 0.2 0.3" pos="0.1 0.2 0.1" euler="20 30 40" fluidshape="ellipsoid"/>
  <geom type="box" size="0.1 0.2 0.3" pos="0.4 0.2 0.1" euler="5 3 4" fluidshape="ellipsoid" fluidcoef="0.3 0.1 0.9 0.7 0.4"/>
  <body pos="0 0 1"><joint type="ball"/><geom type="capsule" size="0.1 0.3" fluidshape="ellipsoid"/>
    <body pos="0 1 1"><joint axis="0 1 1"/><geom size="0.15" fluidshape="ellipsoid"/></body>
    <body pos="1 1 1"><joint type="slide" axis="0 1 1"/><geom type="cylinder" size="0.15 0.1" fluidshape="ellipsoid"/>
      <body pos="1 1 1"><joint axis="0 1 1"/><geom type="cylinder" size="0.15 0.1"/></body></body></body></body>
</worldbody></mujoco>"""


@pytest.mark.filterwarnings("ignore::jaxdyn.io.IgnoredContent")
def test_ellipsoids_in_a_medium_are_those_of_mujoco(tmp_path):
    theirs = mujoco.MjModel.from_xml_string(SWIMMER)
    system = system_from_mujoco(theirs)
    jaxdyn.io.save_system(system, tmp_path / "m.toml")
    order, data, rng = MujocoOrder(system.model, theirs), mujoco.MjData(theirs), np.random.default_rng(0)
    ours = jax.jit(
        lambda system, q, v: order.a_to(q, v, jaxdyn.acceleration(system, State(q, v), jnp.zeros(system.nu)))
    )
    for speed in (0.0, 1.0, 3.0):
        mujoco.mj_integratePos(theirs, data.qpos, rng.normal(size=theirs.nv), 1.0)
        data.qvel[:] = speed * rng.normal(size=theirs.nv)
        mujoco.mj_forward(theirs, data)
        q = order.q_from(jnp.array(data.qpos))
        v = order.v_from(q, jnp.array(data.qvel))
        for same in (system, jaxdyn.io.load_system(tmp_path / "m.toml")):
            np.testing.assert_allclose(ours(same, q, v), data.qacc, rtol=1e-10, atol=1e-10)
    for drag in system.forces[1:]:
        potential = drag.with_entrained_medium()
        np.testing.assert_allclose(potential.entrained_volume, drag.entrained_volume, rtol=1e-6)
        np.testing.assert_allclose(potential.entrained_moment, drag.entrained_moment, rtol=1e-6, atol=1e-12)


# Both flags together switch the medium and the compensation off, too.
WITHOUT_PASSIVE_FORCES = f'{MEDIUM}><flag spring="disable" damper="disable"/></option><option'


@pytest.mark.parametrize(
    "option", [MEDIUM, *(pytest.param(x, marks=pytest.mark.thorough) for x in ("", WITHOUT_PASSIVE_FORCES))]
)
def test_medium_gravity_compensation_and_armature_of_free_joints_are_those_of_mujoco(tmp_path, option):
    theirs = mujoco.MjModel.from_xml_string(FLOATING.format(option=option))
    with pytest.warns(IgnoredContent, match="1 mocap bodies"):
        system = system_from_mujoco(theirs)
    jaxdyn.io.save_system(system, tmp_path / "m.toml")
    order, data = MujocoOrder(system.model, theirs), mujoco.MjData(theirs)
    mujoco.mj_integratePos(theirs, data.qpos, np.array([0.3, -0.5, 0.7, 1.0, -0.4, 0.2, 0.9, 0.5, -0.3]), 1.0)
    data.qvel[:] = [0.5, 2.0, -1.0, 0.4, -0.6, 1.5, 0.7, -0.8, 0.9]
    mujoco.mj_forward(theirs, data)
    q = order.q_from(jnp.array(data.qpos))
    v = order.v_from(q, jnp.array(data.qvel))
    ours = jax.jit(lambda system: order.a_to(q, v, jaxdyn.acceleration(system, State(q, v), jnp.zeros(system.nu))))
    for same in (system, jaxdyn.io.load_system(tmp_path / "m.toml")):
        np.testing.assert_allclose(ours(same), data.qacc, rtol=1e-10, atol=1e-10)
