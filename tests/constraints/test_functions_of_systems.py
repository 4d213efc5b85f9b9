"""Inverse kinematics, inverse dynamics and Jacobians of machines with closed loops, against closed forms and virtual work."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import JointDrives, LinkageBuilder, Prismatic, Revolute, State
from jaxdyn.constraints import Distance, constraint_errors, minimal_motion
from jaxdyn.dynamics import FrameTarget, frame_jacobian
from jaxdyn.results import UnsuccessfulWarning
from jaxdyn.spatial.transform import RigidTransform

# Shapes are checked by the tests of the functions themselves; here the checks would take a third of the time.
pytestmark = pytest.mark.usefixtures("as_a_user")

AXIS, UNIT = Revolute((0.0, -1.0, 0.0)), jnp.array([1.0, 0.0, 0.0, 0.0])
G = 9.81


def driven(system: jaxdyn.System, *joints: str) -> jaxdyn.System:
    """The system with drives of gear 1 in some of the joints, each with one velocity component."""
    topology = system.model.topology
    columns = tuple(list(topology.body_of_column).index(topology.joint_names.index(joint)) for joint in joints)
    return dataclasses.replace(system, drives=JointDrives(columns, jnp.ones(len(columns))))


def place(frame: str, x: float, y: float, z: float) -> FrameTarget:
    return FrameTarget(frame, RigidTransform(UNIT, jnp.array([x, y, z])), rotation=0.0)


def five_bar() -> jaxdyn.System:
    builder = LinkageBuilder("five_bar")
    for name, length, mass in (("a1", 0.12, 0.3), ("b1", 0.2, 0.2), ("a2", 0.12, 0.3), ("b2", 0.2, 0.2)):
        inertia = mass * length**2 / 12
        builder.add_body(name, mass=mass, com=(length / 2, 0, 0), inertia=(1e-5, inertia, inertia))
    for side, x in ((1, -0.05), (2, 0.05)):
        builder.add_joint(f"m{side}", AXIS, "ground", f"a{side}", position_a=(x, 0, 0))
        builder.add_joint(f"k{side}", AXIS, f"a{side}", f"b{side}", position_a=(0.12, 0, 0))
    builder.add_joint("tip", AXIS, "b1", "b2", position_a=(0.2, 0, 0), position_b=(0.2, 0, 0))
    builder.add_frame("foot", body="b1", position=(0.2, 0, 0))
    return driven(builder.build(cut=["tip"]), "m1", "m2")


FIVE_BAR = five_bar()


def posture(m1: float, m2: float) -> jax.Array:
    """Closed coordinates m1, k1, m2, k2 of the five-bar with the foot below its motors, by the law of cosines."""
    elbows = np.array([[x + 0.12 * np.cos(m), 0.12 * np.sin(m)] for x, m in ((-0.05, m1), (0.05, m2))])
    across = elbows[1] - elbows[0]
    half = np.linalg.norm(across) / 2
    foot = elbows.mean(axis=0) + np.sqrt(0.2**2 - half**2) / (2 * half) * np.array([across[1], -across[0]])
    turned = [np.arctan2(*(foot - elbow)[::-1]) for elbow in elbows]
    return jnp.array([m1, turned[0] - m1, m2, turned[1] - m2])


REST = posture(-2.4, -0.7)


@pytest.mark.thorough
def test_a_five_bar_reaches_a_point_with_closed_loop_as_two_triangles_say():
    solve = jax.jit(lambda q, x: jaxdyn.inverse_kinematics(FIVE_BAR, State(q, 0 * q), place("foot", *x)))
    found = solve(REST, jnp.array([0.05, 0.0, -0.24]))
    assert bool(found.reached)
    np.testing.assert_allclose(found.q[jnp.array([0, 2])], [-2.00844018, -0.58903097], atol=1e-7)
    assert np.abs(constraint_errors(FIVE_BAR, State(found.q, 0 * found.q)).residual).max() < 1e-12

    far = solve(REST, jnp.array([0.05, 0.0, -0.44]))
    assert not bool(far.reached)
    assert np.abs(constraint_errors(FIVE_BAR, State(far.q, 0 * far.q)).residual).max() < 1e-12
    # One leg is stretched, since the other one reaches farther, and points at the target.
    foot = jaxdyn.frame_placement(FIVE_BAR.model, far.q, "foot").translation
    along = np.array([0.05, -0.44]) - np.array([-0.05, 0.0])
    expected = np.array([-0.05, 0.0]) + 0.32 * along / np.linalg.norm(along)
    np.testing.assert_allclose(foot[jnp.array([0, 2])], expected, atol=1e-6)

    at = jnp.array([0.05, 0.0, -0.24])
    derivative = jax.jit(jax.jacrev(lambda x: solve(REST, x).q))(at)
    for axis in (0, 2):
        step = 1e-5 * np.eye(3)[axis]
        quotient = (solve(REST, at + step).q - solve(REST, at - step).q) / 2e-5
        np.testing.assert_allclose(derivative[:, axis], quotient, atol=1e-7)


@pytest.mark.thorough
def test_motors_of_a_five_bar_hold_it_as_virtual_work_says_and_produce_each_motion():
    needed = jax.jit(jaxdyn.inverse_dynamics)

    def energy(m1, m2):
        return float(jaxdyn.potential_energy(FIVE_BAR.model, posture(m1, m2)))

    h = 1e-5
    work = [
        (energy(-2.4 + h, -0.7) - energy(-2.4 - h, -0.7)) / (2 * h),
        (energy(-2.4, -0.7 + h) - energy(-2.4, -0.7 - h)) / (2 * h),
    ]
    held = needed(FIVE_BAR, FIVE_BAR.at_rest(REST), jnp.zeros(4))
    np.testing.assert_allclose(held, work, atol=1e-8)
    np.testing.assert_allclose(held, [-0.37957111, 0.39200053], atol=1e-7)

    motion = minimal_motion(FIVE_BAR, FIVE_BAR.at_rest(REST), (0, 2))
    state = State(REST, motion.basis @ jnp.array([3.0, -2.0]))
    motion = minimal_motion(FIVE_BAR, state, (0, 2))
    a = motion.basis @ jnp.array([5.0, 7.0]) + motion.bias
    u = needed(FIVE_BAR, state, a)
    np.testing.assert_allclose(jaxdyn.acceleration(FIVE_BAR, state, u), a, rtol=1e-10)
    # The rows of the regressor along the independent velocities contain no constraint forces.
    rows = jaxdyn.identify.regressor(FIVE_BAR, state, a)
    theta = jaxdyn.identify.linear_parameters(FIVE_BAR)
    np.testing.assert_allclose(motion.basis.T @ rows @ theta, motion.basis.T @ jnp.array([u[0], 0.0, u[1], 0.0]))
    speed = jaxdyn.dynamics.frame_velocity(FIVE_BAR.model, REST, state.v, "foot")
    jacobian = frame_jacobian(FIVE_BAR, state, "foot", (0, 2)) @ jnp.array([3.0, -2.0])
    np.testing.assert_allclose(jacobian, jnp.concatenate([speed.angular, speed.linear]), atol=1e-12)

    everywhere = dataclasses.replace(FIVE_BAR, drives=None)
    tau = jaxdyn.inverse_dynamics(FIVE_BAR.model, REST, state.v, a)
    expected = np.linalg.lstsq(motion.basis.T, motion.basis.T @ tau, rcond=None)[0]
    np.testing.assert_allclose(needed(everywhere, state, a), expected, atol=1e-10)

    def total(mass, q):
        model = dataclasses.replace(FIVE_BAR.model, mass=mass)
        return jnp.sin(jaxdyn.inverse_dynamics(FIVE_BAR.changed(model=model), State(q, state.v), a)).sum()

    at, direction = (FIVE_BAR.model.mass, REST), (jnp.arange(4.0), jnp.array([0.3, -1.0, 0.5, 2.0]))
    forward = jax.jit(lambda: jax.jvp(total, at, direction)[1])()
    backward = jax.jit(jax.grad(total, argnums=(0, 1)))(*at)
    moved = jax.jit(lambda s: total(at[0] + s * direction[0], at[1] + s * direction[1]))
    np.testing.assert_allclose(forward, (moved(1e-5) - moved(-1e-5)) / 2e-5, rtol=1e-7)
    np.testing.assert_allclose(sum(map(jnp.vdot, backward, direction)), forward, rtol=1e-10)


def test_accelerations_that_no_drives_produce_are_reported():
    with pytest.warns(UnsuccessfulWarning, match="five_bar.*too few, or the accelerations violate the constraints"):
        jaxdyn.inverse_dynamics(FIVE_BAR, FIVE_BAR.at_rest(REST), jnp.ones(4))
    acrobot = jaxdyn.library.system("acrobot")
    state = State(jnp.array([0.3, 0.4]), jnp.array([1.0, -2.0]))
    with pytest.warns(UnsuccessfulWarning, match=r"acrobot.*'elbow' is .* instead of 0: the drives are too few$"):
        jaxdyn.inverse_dynamics(acrobot, state, jnp.zeros(2))
    a = jaxdyn.acceleration(acrobot, state, jnp.array([0.7]))
    np.testing.assert_allclose(jaxdyn.inverse_dynamics(acrobot, state, a), [0.7], rtol=1e-5)


def test_the_drive_forces_are_those_at_time_zero_unless_a_time_is_given():
    builder = jaxdyn.MechanismBuilder("turntable")
    turning = jaxdyn.Rheonomic(jaxdyn.Revolute((0, 0, 1)), jaxdyn.Sinusoid([0.4], [2.0], [0.3]))
    builder.add_body("table", joint=turning, mass=1.0, inertia=(0.1, 0.1, 0.1))
    builder.add_body("slider", parent="table", joint=jaxdyn.Prismatic((1, 0, 0)), mass=2.0)
    system = jaxdyn.System(builder.build(), drives=jaxdyn.JointDrives((0,), [1.0]))
    state, a = State(jnp.array([0.5]), jnp.array([0.2])), jnp.array([0.1])
    for times in ((), (0.0,), (1.0,)):
        rate = 0.8 * np.cos(2.0 * sum(times) + 0.3)
        found = jaxdyn.inverse_dynamics(system, state, a, *times)
        np.testing.assert_allclose(found, [2.0 * (0.1 - rate**2 * 0.5)], rtol=1e-5)


def test_a_cylinder_bears_the_boom_of_an_excavator_as_virtual_work_says():
    builder = LinkageBuilder("excavator")
    builder.add_body("boom", mass=800.0, com=(2.0, 0, 0.3), inertia=(100.0, 900.0, 900.0))
    builder.add_body("barrel", mass=60.0, inertia=(1.0, 5.0, 5.0))
    builder.add_body("rod", mass=40.0, inertia=(1.0, 5.0, 5.0))
    builder.add_joint("pivot", AXIS, "ground", "boom")
    builder.add_joint("eye", AXIS, "ground", "barrel", position_a=(0.5, 0, -0.8))
    builder.add_joint("cylinder", Prismatic((1, 0, 0)), "barrel", "rod")
    builder.add_joint("pin", AXIS, "boom", "rod", position_a=(1.5, 0, 0.2))
    system = driven(builder.build(cut=["pin"]), "cylinder")
    angle = 0.6
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    pin, com, eye = turn @ [1.5, 0.2], turn @ [2.0, 0.3], np.array([0.5, -0.8])
    line = pin - eye
    length = np.linalg.norm(line)
    # Rates with respect to the angle of the boom; the center of the rod is on the pin.
    rise, height = 800.0 * com[0] + 40.0 * pin[0], (line @ [-pin[1], pin[0]]) / length
    values = {"pivot": angle, "eye": np.arctan2(*line[::-1]), "cylinder": length}
    q = jnp.array([values[joint] for joint in system.model.topology.joint_names])
    force = jax.jit(jaxdyn.inverse_dynamics)(system, system.at_rest(q), jnp.zeros(3))
    np.testing.assert_allclose(force, [G * rise / height], rtol=1e-9)


def test_a_scissor_lift_needs_the_load_times_the_cotangent():
    builder, length, angle = LinkageBuilder("scissor"), 2.0, 0.5
    half, end = length / 2, (length, 0, 0)
    for name, mass in (("foot", 1.0), ("bar", 30.0), ("other bar", 30.0), ("platform", 500.0), ("runner", 1.0)):
        com = (half if "bar" in name else 0.0, 0, 0)
        builder.add_body(name, mass=mass, com=com, inertia=(1.0, 10.0, 10.0))
    slide = Prismatic((1, 0, 0))
    builder.add_joint("drive", slide, "ground", "foot")
    builder.add_joint("hinge", AXIS, "ground", "bar")
    builder.add_joint("ankle", AXIS, "foot", "other bar")
    builder.add_joint("middle", AXIS, "bar", "other bar", position_a=(half, 0, 0), position_b=(half, 0, 0))
    builder.add_joint("top", AXIS, "other bar", "platform", position_a=end)
    builder.add_joint("slot", slide, "platform", "runner")
    builder.add_joint("roller", AXIS, "bar", "runner", position_a=end)
    system = driven(builder.build(cut=["middle", "roller"]), "drive")
    x = length * np.cos(angle)
    values = {"drive": x, "hinge": angle, "ankle": np.pi - angle, "top": angle - np.pi, "slot": x}
    q = jnp.array([values[joint] for joint in system.model.topology.joint_names])
    assert np.abs(constraint_errors(system, system.at_rest(q)).residual).max() < 1e-12
    force = jax.jit(jaxdyn.inverse_dynamics)(system, system.at_rest(q), jnp.zeros(5))
    # Both bars carry half of their weights to the height of the platform.
    np.testing.assert_allclose(force, [-(500.0 + 1.0 + 30.0) * G / np.tan(angle)], rtol=1e-9)


@pytest.mark.thorough
def test_a_delta_robot_reaches_points_and_holds_its_platform_by_the_closed_forms():
    arm, rod, radius, mass = 0.2, 0.45, 0.1, 0.8
    builder = jaxdyn.MechanismBuilder("delta")
    turns = [2.0 * np.pi * k / 3.0 for k in range(3)]
    for k, turn in enumerate(turns):
        out = (np.cos(turn), np.sin(turn), 0.0)
        builder.add_body(
            f"arm {k}",
            joint=Revolute((-out[1], out[0], 0.0)),
            position=tuple(radius * x for x in out),
            mass=0.1,
            com=tuple(arm / 2 * x for x in out),
            inertia=(1e-3, 1e-3, 1e-3),
        )
    for k, axis in enumerate(np.eye(3)):
        heavy = {"mass": mass, "inertia": (1e-3, 1e-3, 1e-3)} if k == 2 else {}
        parent = {"parent": "xyz"[k - 1]} if k else {}
        builder.add_body("xyz"[k], joint=Prismatic(tuple(axis)), **parent, **heavy)
    model = builder.build()
    rods = tuple(
        Distance(f"rod {k}", k, jnp.array([arm * np.cos(t), arm * np.sin(t), 0.0]), 5, jnp.zeros(3), rod)
        for k, t in enumerate(turns)
    )
    system = driven(jaxdyn.System(model, constraints=rods), *model.topology.joint_names[:3])
    there = np.array([0.05, -0.08, -0.4])

    def angle(turn):
        """Downward angle of an arm: |p - elbow| = rod in the plane of the arm."""
        along, height = there @ [np.cos(turn), np.sin(turn), 0.0] - radius, -there[2]
        c = (there @ there - 2 * radius * (along + radius) + radius**2 + arm**2 - rod**2) / (2 * arm)
        return np.arctan2(height, along) - np.arccos(c / np.hypot(along, height))

    angles = np.array([angle(turn) for turn in turns])
    guess = jnp.array([0.3, 0.3, 0.3, 0.0, 0.0, -0.42])
    solve = jax.jit(jax.vmap(lambda p: jaxdyn.inverse_kinematics(system, system.at_rest(guess), place("z", *p))))
    found = jax.tree.map(lambda x: x[0], solve(jnp.stack([there, there + 0.01])))
    assert bool(found.reached)
    np.testing.assert_allclose(found.q, [*angles, *there], atol=1e-9)

    # Virtual work: (rod vector) . (dp - d elbow) = 0 gives d angles = rates dp.
    elbows, rates = [], []
    for turn, a in zip(turns, angles, strict=True):
        out = np.array([np.cos(turn), np.sin(turn), 0.0])
        elbow, tangent = (
            out * (radius + arm * np.cos(a)) - [0, 0, arm * np.sin(a)],
            -out * np.sin(a) - [0, 0, np.cos(a)],
        )
        line = there - elbow
        rates.append(line / (arm * line @ tangent))
        elbows.append(elbow)
    torques = np.linalg.solve(np.array(rates).T, [0, 0, mass * G]) - 0.1 * G * arm / 2 * np.cos(angles)
    held = jax.jit(jaxdyn.inverse_dynamics)(system, system.at_rest(found.q), jnp.zeros(6))
    np.testing.assert_allclose(held, torques, rtol=1e-8)


@pytest.mark.parametrize(
    ("function", "remedy"),
    [
        (jaxdyn.forward_kinematics, r"use system.model, which leaves out 1 LoopJoint, 1 JointDrives; .*assemble"),
        (jaxdyn.forward_dynamics, r"use acceleration\(system, state, u\), since system.model leaves out 1 LoopJoint"),
        (jaxdyn.body_jacobian, r"use dynamics.frame_jacobian\(system, state, name, independent\)"),
    ],
)
def test_functions_of_a_model_name_the_parts_of_a_system_that_they_leave_out(function, remedy):
    with pytest.raises(TypeError, match=remedy):
        function(FIVE_BAR, REST)


@pytest.mark.parametrize("function", [jaxdyn.inverse_dynamics, jaxdyn.inverse_kinematics])
def test_functions_of_systems_ask_for_a_state(function):
    with pytest.raises(TypeError, match=rf"{function.__name__} got an? .* as the state; .* or system.at_rest\(q\)"):
        function(FIVE_BAR, REST, jnp.zeros(4))
