"""Sensors read what those of MuJoCo read, and their readings have derivatives."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from difference_quotients import check_derivatives
from mixed_mechanisms import driven, some_motion

import jaxdyn
from jaxdyn import State
from jaxdyn.control import ControlProblem, MultibodyDynamics
from jaxdyn.control.problem import running_cost
from jaxdyn.dynamics import (
    Accelerometer,
    Actuator,
    Actuators,
    ContactSensors,
    ForceTorqueSensor,
    GroundContact,
    Gyroscope,
    HalfSpace,
    JointEncoders,
    JointTorqueSensors,
    Markers,
    MotorCurrents,
    Sensor,
    contact_forces,
    contact_sphere,
    observe,
)
from jaxdyn.envs import Env
from jaxdyn.io import MujocoOrder, system_from_mujoco
from jaxdyn.simulate import RungeKutta4

# A floating base with two arms: hinges with armature, friction and a spring, a slide behind a gear, and a ball joint.
MACHINE = """
<mujoco><compiler angle="radian"/>
<worldbody>
  <site name="post" pos="1 2 3" euler="0.5 -0.4 0.2"/>
  <body name="base" pos="0.1 0.2 0.5"><freejoint/>
    <inertial pos="0.02 0 0.05" mass="3" fullinertia="0.05 0.06 0.04 0.003 -0.002 0.004"/>
    <site name="imu" pos="0.1 -0.05 0.08" euler="0.3 -0.7 1.1"/>
    <body name="upper" pos="0.1 0.2 0"><joint name="shoulder" axis="0 1 0" armature="0.03" damping="0.4" stiffness="2"/>
      <inertial pos="0.01 0.02 -0.2" mass="0.8" diaginertia="0.01 0.012 0.003"/>
      <site name="at_shoulder"/>
      <body name="lower" pos="0 0 -0.4"><joint name="rail" type="slide" axis="0 0 1" damping="1"/>
        <inertial pos="0 0.01 -0.1" mass="0.4" diaginertia="0.004 0.005 0.001"/>
        <site name="at_rail"/><site name="wrist" pos="0.02 0.03 -0.25" euler="1 0.2 -0.5"/></body></body>
    <body name="bob" pos="-0.2 0 0"><joint type="ball" name="socket" damping="0.05"/>
      <inertial pos="0 0 -0.3" mass="0.5" diaginertia="0.01 0.01 0.002"/><site name="pad" pos="0 0 -0.35"/></body></body>
</worldbody>
<actuator><motor joint="shoulder" gear="3"/><position joint="rail" kp="40" kv="2"/></actuator>
<sensor>
  <accelerometer site="imu"/><gyro site="imu"/><accelerometer site="wrist"/><gyro site="wrist"/><accelerometer site="post"/>
  <force site="wrist"/><torque site="wrist"/><force site="imu"/><torque site="imu"/><force site="pad"/><torque site="pad"/>
  <framepos objtype="site" objname="pad"/><framepos objtype="site" objname="post"/>
  <jointpos joint="rail"/><jointvel joint="shoulder"/><jointvel joint="rail"/>
  <jointactuatorfrc joint="rail"/><jointactuatorfrc joint="shoulder"/>
  <torque site="at_shoulder"/><force site="at_rail"/>
</sensor></mujoco>"""
SENSORS = (
    *(Accelerometer("imu"), Gyroscope("imu"), Accelerometer("wrist"), Gyroscope("wrist"), Accelerometer("post")),
    *(ForceTorqueSensor("wrist"), ForceTorqueSensor("imu"), ForceTorqueSensor("pad"), Markers(("pad", "post"))),
    *(JointEncoders(("rail",)), JointEncoders(("shoulder", "rail"), velocities=True)),
    *(MotorCurrents([1.0, 1.0], ("rail", "shoulder")), JointTorqueSensors(("shoulder", "rail"))),
)
RTOL = 1e-9  # accelerations of bodies are sums with factors up to the velocities squared
# The torque of a hinge is the moment along its axis y, and that of a slide the force along its axis z.
_ALONG = np.array([1, 5])


@pytest.fixture(scope="module")
def machine():
    """The model of MuJoCo, the system, and random instants (q, v, u) with the readings of MuJoCo."""
    theirs = mujoco.MjModel.from_xml_string(MACHINE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        system = system_from_mujoco(theirs)
    order, data, random = MujocoOrder(system.model, theirs), mujoco.MjData(theirs), np.random.default_rng(3)
    instants = []
    for _ in range(4):
        data.qpos[:] = random.normal(size=theirs.nq)
        mujoco.mj_normalizeQuat(theirs, data.qpos)
        data.qvel[:], data.ctrl[:] = random.normal(size=theirs.nv), random.normal(size=theirs.nu)
        mujoco.mj_forward(theirs, data)
        q, v = order.q_from(jnp.array(data.qpos)), order.v_from(jnp.array(data.qpos), jnp.array(data.qvel))
        values = np.array(data.sensordata)
        instants.append((State(q, v), jnp.array(data.ctrl), np.append(values[:-6], values[-6:][_ALONG])))
    return system, instants


def test_readings_are_those_of_mujoco_at_random_states_and_controls(machine):
    system, instants = machine
    states, u, expected = jax.tree.map(lambda *x: jnp.stack(x), *instants)
    found = jax.jit(jax.vmap(lambda state, u: observe(system, SENSORS, state, u)))(states, u)
    scale = np.maximum(1.0, np.max(np.abs(expected), axis=1, keepdims=True))
    np.testing.assert_allclose(found / scale, expected / scale, rtol=RTOL, atol=RTOL)
    labels = [label for sensor in SENSORS for label in sensor.labels(system)]
    assert len(labels) == expected.shape[1]
    assert labels[0] == ("accelerometer imu x", "m/s^2")
    assert labels[-4:] == [("current rail", "A"), ("current shoulder", "A"), ("shoulder", "N m"), ("rail", "N")]


def test_readings_have_derivatives_with_respect_to_states_controls_and_all_parameters(machine):
    system, ((state, u, _), *_) = machine
    place = lambda tree: (tree[0].model.mass, tree[0].model.com, tree[1].v, tree[2], tree[3])  # noqa: E731
    whole = (system, state, u, SENSORS)

    def readings(numbers):
        system, state, u, sensors = eqx.tree_at(place, whole, numbers)
        return observe(system, sensors, state, u)

    check_derivatives(jax.jit(readings), place(whole), orders=1, in_lanes=True)


def test_known_readings_of_a_thrown_stone_with_a_jet_and_of_a_post():
    """On the ground the accelerometer reads the weight; on the stone, gravity is not felt, and no joint carries anything."""
    builder = jaxdyn.MechanismBuilder("stone")
    builder.add_body("stone", joint=jaxdyn.Free(), mass=2.0, inertia=0.1 * jnp.eye(3))
    builder.add_frame("post", body="ground", position=(0.0, 0.0, 1.0))
    model = builder.build()
    system = jaxdyn.System(model, drives=Actuators.of(model, [Actuator("jet", body="stone", force=(0.0, 1.0, 0.0))]))
    skew = np.array([[1.1, 0.0, 0.0], [0.0, 1.0, 0.2], [0.0, 0.0, 0.9]])
    sensors = (
        *(Accelerometer("post"), Accelerometer("post", matrix=skew, bias=[0.3, 0.0, 0.0]), Accelerometer("stone")),
        *(Gyroscope("stone", matrix=skew, bias=[0.1, 0.2, 0.3]), Gyroscope("post"), ForceTorqueSensor("stone")),
    )
    spin = np.array([1.0, 2.0, 3.0])
    state = State(jaxdyn.neutral_state(system).q, jnp.array([*spin, 4.0, 5.0, 6.0]))
    read = observe(system, sensors, state, jnp.array([5.0])).reshape(-1, 3)
    on_ground = np.array([0.0, 0.0, 9.81])
    expected = [on_ground, skew @ on_ground + [0.3, 0.0, 0.0], [0.0, 5.0 / 2.0, 0.0], skew @ spin + [0.1, 0.2, 0.3]]
    np.testing.assert_allclose(read, [*expected, *np.zeros((3, 3))], atol=1e-12)


def test_accelerometers_read_second_derivatives_of_markers_under_prescribed_motion():
    """Central differences over steps of h have errors of h^2/12 times a fourth derivative of some 1000 m/s^4."""
    system = jaxdyn.System(driven())
    state, _, u = some_motion(system.model, 2)
    h, ends = 1e-3, Markers(["body 3"] * 4, np.concatenate([np.zeros((1, 3)), np.eye(3)]))
    motion = jaxdyn.rollout(
        system, state, jnp.tile(u, (4, 1)), dt=h, steps=4, t0=0.4, integrator=RungeKutta4(),
        save=lambda t, state, u: observe(system, (ends, Accelerometer("body 3")), state, u, t),
    )  # fmt: skip
    read = np.asarray(motion.saved)
    before, now, after = read[1:4, :3]
    axes = read[2, 3:12].reshape(3, 3) - now
    gained = (after - 2.0 * now + before) / h**2
    np.testing.assert_allclose(read[2, 12:], axes @ (gained - np.asarray(system.model.gravity)), atol=1e-3)


def test_loads_in_closed_loops_are_those_of_joint_reactions():
    system = jaxdyn.library.system("four_bar")
    state, names = State(jnp.array([0.4, -0.4, 0.2]), jnp.array([1.0, -0.4, 0.3])), system.model.topology.body_names
    sensors = (*map(ForceTorqueSensor, names), JointTorqueSensors())

    @jax.jit
    def both(state, u):
        found = jaxdyn.joint_reactions(system, state, u)
        loads = [found[name] for name in system.model.topology.joint_names]
        turned = jaxdyn.forward_kinematics(system.model, state.q).rotation.swapaxes(1, 2)
        wrenches = [turned[k] @ vector for k, load in enumerate(loads) for vector in (load.force, load.moment)]
        return observe(system, sensors, state, u), jnp.concatenate([*wrenches, *(load.drive for load in loads)])

    np.testing.assert_allclose(*both(state, jnp.ones(system.nu)), atol=1e-11)


def test_contacts_of_one_name_are_summed():
    builder = jaxdyn.MechanismBuilder("table")
    builder.add_body("table", joint=jaxdyn.Free(), mass=4.0, inertia=0.2 * jnp.eye(3))
    builder.add_body("leg", parent="table", joint=jaxdyn.Prismatic((0, 0, 1)), mass=0.5, inertia=0.01 * jnp.eye(3))
    model = builder.build()
    left, right = (contact_sphere("table", center=(x, 0.0, 0.0), radius=0.1) for x in (-0.3, 0.3))
    shapes = left + right + contact_sphere("leg", radius=0.11)
    ground = GroundContact.of(model, shapes, HalfSpace([0.1, 0.0, 1.0]))
    system = jaxdyn.System(model, (ground,))
    state = State(jnp.array([0.0, 0.0, 0.05, 1.0, 0.0, 0.0, 0.0, 0.01]), jnp.linspace(0.1, 0.7, 7))
    points = contact_forces(system, state)
    force, normal = np.asarray(points.force), np.sum(np.asarray(points.force * points.normal), axis=1)
    sums = [force[:2].sum(axis=0), force[2]]
    assert np.all(normal > 1.0)
    every, feet = ContactSensors(), ContactSensors(["leg", "table"], component="normal")
    read = observe(system, (every, feet), state)
    np.testing.assert_allclose(read, [*np.concatenate(sums), normal[2], normal[:2].sum()], rtol=1e-12)
    labels = [name for sensor in (every, feet) for name, _ in sensor.labels(system)]
    assert labels == [f"contact force {name} {axis}" for name in ("table", "leg") for axis in "xyz"] + [
        "normal force leg",
        "normal force table",
    ]


class Odometer(Sensor):
    """Distance of a body from the ground origin, m."""

    body: str = eqx.field(static=True)

    def read(self, driven):
        return jnp.linalg.norm(jaxdyn.frame_placement(driven.now.model, driven.state.q, self.body).translation)[None]

    def labels(self, system):
        return (("distance", "m"),)


MISTAKES = {
    "frame": (lambda: (Accelerometer("imus"),), jaxdyn.UnknownName, "no body or frame 'imus' .did you mean 'imu'"),
    "joint": (lambda: (JointEncoders(["rial"]),), jaxdyn.UnknownName, "no joint 'rial' .did you mean 'rail'"),
    "contact": (lambda: (ContactSensors(["base"]),), ValueError, "has no contacts; add a GroundContact"),
    "ground": (lambda: (ForceTorqueSensor("post"),), ValueError, "'post' is on the ground, .*; give a body"),
    "no list": (lambda: Gyroscope("imu"), TypeError, r"sensors of observe is a Gyroscope; give a tuple, \("),
    "no sensor": (lambda: ("imu",), TypeError, "one of the sensors is a str; give Accelerometer"),
    "one name": (lambda: (JointEncoders("rail"),), TypeError, "'rail' is not a list; give a list"),
    "bias": (lambda: (Gyroscope("imu", bias=[0.1]),), ValueError, r"Gyroscope: bias has shape \(1,\); give 3 values"),
    "points": (lambda: (Markers(["pad"], np.zeros((2, 3))),), ValueError, "there are 2 points; give 1, one per frame"),
    "constants": (lambda: (MotorCurrents([0.1, 0.2], ["rail"]),), ValueError, "there are 2 torque constants; give 1"),
    "sign": (lambda: (MotorCurrents([-0.1], ["rail"]),), ValueError, r"torque_constant .* is \[-0.1\]; .* positive"),
    "component": (lambda: (ContactSensors(component="up"),), ValueError, "no component .*'up'.*normal"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_with_the_remedy(machine, mistake, as_a_user):
    system, ((state, u, _), *_) = machine
    sensors, error, message = MISTAKES[mistake]
    with pytest.raises(error, match=message) as caught:
        observe(system, sensors(), state, u)
    assert "\n" not in str(caught.value)


def test_a_sensor_of_a_user_is_one_class(machine):
    system, ((state, u, _), *_) = machine
    found = observe(system, (Odometer("base"), Markers(["base"])), state, u)
    np.testing.assert_allclose(found[0], np.linalg.norm(found[1:]), rtol=1e-12)


def test_one_call_observes_an_environment_and_is_a_part_of_a_cost():
    """A pendulum at the angle 0.3 whose motor exerts 2 N m."""
    system = jaxdyn.library.system("pendulum")
    sensors, here = (JointEncoders(), Accelerometer("tip")), jnp.array([0.3])
    env = Env(
        system,
        start=lambda system, key: system.at_rest(here),
        observe=lambda system, now: observe(system, sensors, now.state, now.u, now.t),
        reward=lambda system, before, now: now.t,
        act=lambda system, now, action: 2.0 * action,
        dt=0.01,
        actions=1,
    )
    after = env.step(env.reset(jax.random.key(0)), jnp.ones(1))
    expected = observe(system, sensors, after.moment.state, jnp.array([2.0]))
    np.testing.assert_allclose(after.observation, expected, rtol=1e-12)
    shaking = lambda dynamics, t, x, u: jnp.sum(observe(dynamics.system, sensors[1:], x, u, t) ** 2)  # noqa: E731
    problem = ControlProblem(MultibodyDynamics(system), after.moment.state, duration=0.01, steps=1, running=shaking)
    cost = running_cost(problem, jnp.asarray(0), after.moment.state, jnp.array([2.0]))
    np.testing.assert_allclose(cost, 0.01 * np.sum(np.asarray(expected)[1:] ** 2), rtol=1e-12)


def test_the_load_of_a_loop_joint_is_that_of_a_joint():
    """A swinging rod with a bent flange, once on a hinge, and once free with a loop joint instead; the second load is by lam."""

    def rod(cut):
        builder = jaxdyn.LinkageBuilder("rod", gravity=(0, 0, -9.81))
        builder.add_body("rod", mass=2.0, com=(0.3, 0.1, 0.0), inertia=(0.1, 0.2, 0.3))
        builder.add_joint(
            "hinge", jaxdyn.Revolute((0, 1, 0)), "ground", "rod", position_a=(0, 0, 1), position_b=(0.1, 0, 0)
        )
        if cut:
            builder.add_joint("float", jaxdyn.Free(), "ground", "rod")
        builder.add_frame("flange", body="rod", position=(0.2, 0.1, 0.0), orientation=(0.6, 0.0, 0.0, 0.8))
        return builder.build(cut=cut)

    hinged, free = rod([]), rod(["hinge"])
    state = jaxdyn.State(jnp.array([0.4]), jnp.array([1.5]))
    pose = jaxdyn.frame_placement(hinged.model, state.q, "rod")
    v = jaxdyn.dynamics.frame_velocity(hinged.model, state.q, state.v, "rod", axes="local")
    same = jaxdyn.State(jnp.concatenate([pose.translation, pose.quaternion]), jnp.concatenate(v))
    expected = observe(hinged, (ForceTorqueSensor("flange"),), state)
    found = observe(free, (ForceTorqueSensor("flange", constraint="hinge"), ForceTorqueSensor("flange")), same)
    np.testing.assert_allclose(found, jnp.concatenate([expected, jnp.zeros(6)]), atol=1e-6)
    assert jnp.abs(expected[:3]).max() > 10.0
    with pytest.raises(jaxdyn.UnknownName, match="hinge"):
        observe(free, (ForceTorqueSensor("flange", constraint="hnge"),), same)
