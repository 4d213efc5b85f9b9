"""Mechanism files: what is read is what was meant, what is written reads back, and every mistake is named."""

import re
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_trees import ALL_KINDS, random_model, random_motion

from jaxdyn import (
    AppliedForce,
    ConstantRate,
    Damper,
    Fixed,
    JointDrives,
    JointForce,
    JointFriction,
    JointServo,
    JointSpring,
    MechanismBuilder,
    MechanismError,
    Model,
    Prismatic,
    Revolute,
    Rheonomic,
    Spherical,
    Spline,
    Spring,
    State,
    System,
    applied_forces,
)
from jaxdyn.io.config import ConfigError
from jaxdyn.io.mechanism.file import load_mechanism, save_mechanism
from jaxdyn.mechanism import Limits, PrescribedMotion
from jaxdyn.spatial import rotation

SLIDER_CRANE = """
name = "crane"
source = "invented for this test"
gravity = [0, 0, "-9.81 m/s^2"]

[[body]]
name = "jib"
parent = "trolley"
position = [0, 0, "-20 cm"]
rpy = ["90 deg", 0, 0]
mass = "500 g"
com = [0, 0, -0.3]
inertia = ["0.02 kg m^2", 0.02, 0.001]
[body.joint]
kind = "revolute"
axis = [0, 1, 0]
name = "hinge"
position_limits = ["-90 deg", "60 deg"]
velocity_limit = "60 rpm"
effort_limit = "1000 N m"

[[body]]
name = "trolley"
joint = {kind = "prismatic", axis = [1, 0, 0], position_limits = ["-5 cm", 0.5], armature = 0.1}
mass = 2
inertia = [[0.1, 0.01, 0], [0.01, 0.1, 0], [0, 0, 0.1]]

[[body]]
name = "lamp"
parent = "jib"
joint = {kind = "fixed"}
position = [0, 0, -0.6]
mass = 0.1

[[frame]]
name = "hook"
body = "jib"
position = [0, 0, -0.5]
rpy = ["20 deg", 0.3, "-1 rad"]

[[spring]]
body_a = "ground"
point_a = [0, 0, 1]
body_b = "hook"
point_b = [0, 0, "-10 cm"]
stiffness = 40
free_length = 0.4

[[damper]]
body_a = "trolley"
point_a = [0, 0, 0]
body_b = "lamp"
point_b = [0, 0, 0]
coefficient = "3 N s/m"

[[applied_force]]
body = "hook"
axes = "body"
point = [0.1, 0, 0]
force = [1, 2, "3 N"]
torque = [0, 0.5, 0]

[joint_friction]
viscous = {hinge = 0.1, trolley_joint = "0.2 N s/m"}
coulomb = {hinge = "0.3 N m"}
velocity_scale = {hinge = "1 deg/s"}

[joint_spring]
stiffness = {hinge = "5 N m/rad"}
rest = {hinge = "30 deg"}

[drives]
joints = ["hinge"]
gear = [50]
"""


@pytest.fixture
def write(tmp_path):
    def write(text: str):
        path = tmp_path / "crane.toml"
        path.write_text(text)
        return path

    return write


def crane_in_code() -> System:
    builder = MechanismBuilder("crane", (0.0, 0.0, -9.81))
    half = np.sqrt(0.5)
    builder.add_body(
        "jib",
        parent="trolley",
        joint=Revolute((0.0, 1.0, 0.0)),
        joint_name="hinge",
        position_limits=(-np.pi / 2, np.pi / 3),
        velocity_limit=2 * np.pi,
        effort_limit=1000.0,
        position=(0, 0, -0.2),
        orientation=(half, half, 0, 0),
        mass=0.5,
        com=(0, 0, -0.3),
        inertia=(0.02, 0.02, 0.001),
    )
    builder.add_body(
        "trolley",
        joint=Prismatic((1.0, 0.0, 0.0)),
        position_limits=(-0.05, 0.5),
        armature=0.1,
        mass=2,
        inertia=(0.1, 0.1, 0.1, 0.01, 0, 0),
    )
    builder.add_body("lamp", parent="jib", joint=Fixed(), position=(0, 0, -0.6), mass=0.1)
    angles = np.radians(20), 0.3, -1.0  # about the fixed axes x, y, z, one after the other
    turns = [rotation.exponential(jnp.asarray(a * np.eye(3)[i])) for i, a in enumerate(angles)]
    hook = turns[2] @ turns[1] @ turns[0]
    builder.add_frame("hook", body="jib", position=(0, 0, -0.5), orientation=hook)
    model = builder.build()
    trolley, jib, at = 0, 1, jnp.array([0.0, 0.0, -0.5])
    forces = (
        Spring(-1, (0.0, 0.0, 1.0), jib, at + hook @ jnp.array([0.0, 0.0, -0.1]), 40.0, 0.4),
        Damper(trolley, (0.0, 0.0, 0.0), jib, (0.0, 0.0, -0.6), 3.0),
        AppliedForce(
            jib,
            at + hook @ jnp.array([0.1, 0.0, 0.0]),
            hook @ jnp.array([1.0, 2.0, 3.0]),
            hook @ jnp.array([0.0, 0.5, 0.0]),
            True,
        ),
        JointFriction([0.2, 0.1], [0.0, 0.3], [5e-6, np.pi / 180]),
        JointSpring([0.0, 5.0], [0.0, np.pi / 6]),
    )
    return System(model, forces, JointDrives((1,), [50.0]))


def assert_same(actual: System, expected: System, tolerance: float) -> None:
    """Equal structure and names, and every leaf within `tolerance` of its size (or of 1 where it is smaller)."""
    assert actual.model.topology == expected.model.topology
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for (path, a), (_, b) in zip(*(jax.tree.leaves_with_path(system) for system in (actual, expected)), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=jax.tree_util.keystr(path))


def test_file_is_the_mechanism_built_in_code(write):
    # A few roundings of numbers of order 1, and the 14 decimals to which a quaternion of rpy angles is given.
    assert_same(load_mechanism(write(SLIDER_CRANE)), crane_in_code(), 1e-13)


def test_quarter_turns_by_rpy_are_exact(write):
    model = load_mechanism(write(SLIDER_CRANE)).model
    np.testing.assert_array_equal(model.placement.rotation[1], [[1, 0, 0], [0, 0, -1], [0, 1, 0]])


def test_saved_file_gives_every_leaf_back(write, tmp_path):
    system = load_mechanism(write(SLIDER_CRANE))
    save_mechanism(system, tmp_path / "copy.toml")
    assert_same(load_mechanism(tmp_path / "copy.toml"), system, 1e-12)


def test_saved_tree_of_every_kind_of_joint_gives_every_leaf_back(tmp_path):
    """All kinds, each also with prescribed motion by all kinds of motions, one-sided limits, and numbers per component."""
    rng = np.random.default_rng(3)
    kinds = ALL_KINDS + ALL_KINDS.lower()
    model = random_model(rng, len(kinds), kinds=kinds, armature=True)
    n = model.nv
    has_quaternion = np.repeat(
        [j.nq > j.nv for j in model.topology.joint_classes], [j.nq for j in model.topology.joint_classes]
    )
    limits = Limits(
        lower=jnp.where(has_quaternion | (rng.random(model.nq) < 0.3), -jnp.inf, rng.uniform(-2, -1, model.nq)),
        upper=jnp.where(has_quaternion | (rng.random(model.nq) < 0.3), jnp.inf, rng.uniform(1, 2, model.nq)),
        velocity=jnp.where(rng.random(n) < 0.3, jnp.inf, rng.uniform(1, 2, n)),
        effort=jnp.where(rng.random(n) < 0.3, jnp.inf, rng.uniform(1, 2, n)),
    )
    model = eqx.tree_at(lambda m: (m.limits, m.armature), model, (limits, jnp.asarray(rng.uniform(size=n))))
    friction = JointFriction(rng.uniform(size=n), rng.uniform(size=n), rng.uniform(0.1, 1.0, n))
    bound = jnp.where(rng.random(model.nb)[model.topology.body_of_column] < 0.3, jnp.inf, rng.uniform(1, 2, n))
    servo = JointServo(rng.uniform(size=n), rng.uniform(size=n), random_motion(rng, model)[0], bound)
    forces = (friction, JointSpring(rng.uniform(size=n), random_motion(rng, model)[0]), servo)
    system = System(model, forces, JointDrives((n - 1, 0, n - 3), rng.normal(size=3)))
    save_mechanism(system, tmp_path / "tree.toml")
    assert_same(load_mechanism(tmp_path / "tree.toml"), system, 1e-12)
    for motion in (ConstantRate(2.0), Spline(rng.normal(size=(4, 1)), 0.5, -1.0)):
        system = System(bell(motion))
        save_mechanism(system, tmp_path / "bell.toml")
        assert_same(load_mechanism(tmp_path / "bell.toml"), system, 1e-12)
    (values,) = re.findall(r"values = (.*?\]),", (tmp_path / "bell.toml").read_text())
    assert values.count("[") == 1  # of one coordinate, values are a list of numbers


KINDS = """
name = "kinds"
source = "invented for this test"
[[body]]
name = "sled"
joint = {kind = "planar", position_limits = [[-1, "50 cm"], [-inf, 2], ["-90 deg", inf]], velocity_limit = 3}
mass = 1
inertia = [1, 1, 1]
[[body]]
name = "nut"
parent = "sled"
joint = {kind = "screw", axis = [0, 0, 1], pitch = "5 mm/rad"}
mass = 1
[[body]]
name = "piston"
parent = "nut"
joint = {kind = "cylindrical", axis = [0, 0, 1], effort_limit = ["3 N m", "2 kN"], armature = [0.1, "200 g"]}
mass = 1
[[body]]
name = "ball"
parent = "piston"
joint = {kind = "spherical"}
mass = 1
[[body]]
name = "crank"
parent = "ball"
joint = {kind = "revolute", axis = [1, 0, 0], motion = {kind = "sinusoid", amplitude = "20 deg", angular_frequency = "60 rpm"}}
mass = 1
[[body]]
name = "valve"
parent = "crank"
joint = {kind = "cylindrical", axis = [1, 0, 0], motion = {kind = "spline", values = [["90 deg", 0], [0, "1 cm"]], interval = 2}}
mass = 1
[joint_friction]
viscous = {sled_joint = ["1 N m s/rad", "2 N s/m", 3]}
[joint_spring]
stiffness = {ball_joint = 5}
rest = {piston_joint = ["30 deg", "1 cm"]}
[drives]
joints = ["sled_joint", "sled_joint"]
components = [2, 0]
"""


def test_numbers_of_joints_with_several_components_are_read_with_their_units(write):
    system = load_mechanism(write(KINDS))
    model, inf = system.model, np.inf
    assert [kind.__name__ for kind in model.topology.joint_classes[:4]] == [
        "Planar",
        "Screw",
        "Cylindrical",
        "Spherical",
    ]
    neutral = [0.0] * 4 + [np.pi / 6, 0.01, 1.0, 0.0, 0.0, 0.0]
    for actual, expected in [
        (model.limits.lower, [-1, -inf, -np.pi / 2] + [-inf] * 7),
        (model.limits.upper, [0.5, 2, inf] + [inf] * 7),
        (model.limits.velocity, [3, 3, 3] + [inf] * 6),
        (model.limits.effort, [inf] * 4 + [3, 2000] + [inf] * 3),
        (model.armature, [0] * 4 + [0.1, 0.2] + [0] * 3),
        (model.joint(1).pitch, 0.005),
        (model.joint(4).motion.amplitude, [np.pi / 9]),
        (model.joint(4).motion.angular_frequency, [2 * np.pi]),
        (model.joint(5).motion.values, [[np.pi / 2, 0], [0, 0.01]]),
        (system.forces[0].viscous, [1, 2, 3] + [0] * 6),
        (system.forces[1].stiffness, [0] * 6 + [5] * 3),
        (system.forces[1].rest, neutral),
    ]:
        np.testing.assert_allclose(actual, expected, rtol=1e-15)
    assert system.drives.columns == (2, 0)


LOOPS = """
name = "press"
source = "invented for this test"
[[body]]
name = "crank"
joint = {kind = "revolute", axis = [0, 1, 0]}
mass = 1
inertia = [1, 1, 1]
[[body]]
name = "slide"
joint = {kind = "cylindrical", axis = [1, 0, 0]}
mass = 1
inertia = [1, 1, 1]
[[frame]]
name = "pin"
body = "slide"
position = [0, 0, 0.1]
rpy = ["90 deg", 0, 0]
[[loop]]
name = "key"
kind = "prismatic"
a = {body = "pin", position = [0, "1 cm", 0], rpy = [0, 0, "90 deg"]}
b = {body = "ground", orientation = [0, 1, 0, 0]}
[[rod]]
name = "connecting rod"
body_a = "crank"
point_a = [0.1, 0, 0]
body_b = "pin"
point_b = [0, 0, 0]
length = "50 cm"
[[coupling]]
name = "cam"
driven = "slide_joint"
driven_component = 1
driver = "crank_joint"
coefficients = ["3 mm", 0, "0.5 m/rad^2"]
"""


def test_loops_rods_and_couplings_are_read_and_written(write, tmp_path):
    system = load_mechanism(write(LOOPS))
    loop, rod, cam = system.constraints
    assert (loop.name, loop.kind, loop.body_a, loop.body_b) == ("key", "prismatic", 1, -1)
    np.testing.assert_allclose(loop.frame_a.translation, [0, 0, 0.11], atol=1e-15)
    turn = rotation.exponential(jnp.array([np.pi / 2, 0, 0])) @ rotation.exponential(jnp.array([0, 0, np.pi / 2]))
    np.testing.assert_allclose(loop.frame_a.rotation, turn, atol=1e-13)
    np.testing.assert_array_equal(loop.frame_b.quaternion, [0, 1, 0, 0])
    assert (rod.body_a, rod.body_b, float(rod.length)) == (0, 1, 0.5)
    np.testing.assert_allclose(rod.point_b, [0, 0, 0.1])
    assert (cam.driven, cam.driver, cam.coefficients.tolist()) == (2, 0, [0.003, 0.0, 0.5])
    save_mechanism(system, tmp_path / "copy.toml")
    assert_same(load_mechanism(tmp_path / "copy.toml"), system, 1e-13)


def test_force_on_axes_of_a_frame_turns_with_it_and_force_on_ground_axes_does_not(write):
    """A force along the axes of a frame is the same force written on the axes of the body that carries it."""
    with_frame = load_mechanism(write(SLIDER_CRANE))
    state = State(*random_motion(np.random.default_rng(3), with_frame.model)[:2])

    def force_of(text: str):
        system = load_mechanism(write(text))
        return jax.jit(lambda state: applied_forces(System(system.model, (system.forces[2],)), state))(state)

    frame = with_frame.model.frames
    turn = frame.rotation[with_frame.model.topology.frame_names.index("hook")]
    on_body = SLIDER_CRANE.replace('body = "hook"\naxes', 'body = "jib"\naxes')
    point = (np.array([0, 0, -0.5]) + turn @ np.array([0.1, 0, 0])).tolist()
    for name, old, new in (("force", '[1, 2, "3 N"]', [1.0, 2.0, 3.0]), ("torque", "[0, 0.5, 0]", [0.0, 0.5, 0.0])):
        on_body = on_body.replace(f"{name} = {old}", f"{name} = {np.asarray(turn @ np.array(new)).tolist()}")
    on_body = on_body.replace("point = [0.1, 0, 0]", f"point = {point}")
    np.testing.assert_allclose(force_of(on_body), force_of(SLIDER_CRANE), atol=1e-13)  # of numbers of order 1
    on_ground = load_mechanism(write(SLIDER_CRANE.replace('axes = "body"', 'axes = "ground"')))
    np.testing.assert_array_equal(on_ground.forces[2].force, [1.0, 2.0, 3.0])


# Parts of a file, their replacements, and fragments of the message.
MISTAKES = {
    KINDS: [
        (", pitch =", ", pich =", ['body "nut": joint.pich: unknown key; did you mean \'pitch\'?']),
        (', pitch = "5 mm/rad"', "", ['body "nut": joint.pitch: missing; add this key (in m/rad)']),
        ('"5 mm/rad"', '"5 mm"', ['body "nut": joint.pitch:', "the unit 'mm' does not fit"]),
        ('{kind = "spherical"}', '{kind = "spherical", axis = [0, 0, 1]}', ["a spherical joint has no axis; remove it"]),
        ('{kind = "spherical"}', '{kind = "spherical", position_limits = [-1, 1]}', ["body 'ball'", "quaternion", "remove them"]),
        ('{kind = "spherical"}', '{kind = "fixed", motion = {}}', ["joint.motion: a fixed joint does not move; remove it"]),
        ("[-inf, 2], ", "", ['"sled": joint.position_limits: the list has 2 pairs; give 3, one [lower, upper]']),
        ('["-90 deg", inf]', '["-90 deg", "inf rad"]', ["position_limits: 'inf rad' is not a quantity"]),
        ('"3 N m", "2 kN"', '"2 kN", "3 N m"', ["\"piston\": joint.effort_limit: '2 kN'", "N m"]),
        ('kind = "sinusoid"', 'kind = "sine"', ["joint.motion.kind: 'sine' is unknown; did you mean 'spline'?"]),
        ("amplitude =", "amplitudes =", ["\"crank\": joint.motion.amplitudes: unknown key; did you mean 'amplitude'?"]),
        ('"20 deg", angular', '"20 mm", angular', ["joint.motion.amplitude: '20 mm'", "rad or deg"]),
        ('[["90 deg", 0], ', "[", ["joint.motion: the values of a Spline have shape (1, 2); give one row per knot"]),
        ('[["90 deg", 0], ', "[1, ", ["joint.motion.values: 1 is not a list; give a list of 2 values per knot"]),
        ("interval = 2}}", "interval = 2}, armature = 1}", ["armature: a joint with prescribed motion does not have"]),
        ("3]}\n[joint_spring]", "3], crank_joint = 1}\n[joint_spring]", ["there is no moving joint 'crank_joint'"]),
        ("rest = {", "rest = {ball_joint = 1, ", ["joint_spring.rest.ball_joint: the joint has a quaternion; give a list of 4"]),
        ("components = [2, 0]", "", ["drives.components: missing; joint 'sled_joint' has 3 velocity components"]),
        ("components = [2, 0]", "components = [3, 0]", ["drives.components: joint 'sled_joint' has no component 3; use 0 to 2"]),
    ],
    LOOPS: [
        ('"prismatic"', '"slot"', ["LoopJoint: 'key' is of kind 'slot'; the kinds are revolute, prismatic"]),
        ('"pin", position', '"pan", position', ['loop "key": a.body:', "no body or frame 'pan' (did you mean 'pin'?)"]),
        ("orientation = [0, 1, 0, 0]", "orientation = [0, 1, 1, 0]", ['loop "key": b: orientation quaternion has norm 1.41']),
        ('b = {body = "ground"', 'b = {body = "slide"', ["LoopJoint: 'key' connects slide with itself"]),
        ('"50 cm"', "0", ['rod "connecting rod": length: 0 is out of range; give a value that is positive']),
        ('m/rad^2"', 'm/rad"', ["coefficients: '0.5 m/rad': the unit 'm/rad' does not fit; give a value in m/rad^2"]),
        ("driven_component = 1\n", "", ['coupling "cam": driven_component: missing; joint \'slide_joint\' has 2 coordinates']),
        ("driven_component = 1\n", "driven_component = 2\n", ["driven_component: joint 'slide_joint' has no coordinate 2; use"]),
        ('driver = "crank_joint"', 'driver = "crank"', ['coupling "cam": driver: there is no moving joint \'crank\'; did you']),
    ],
    SLIDER_CRANE: [
        ('name = "crane"', "", ["name: missing; add this key"]),
        ('source = "invented for this test"', "", ["source: missing; add this key"]),
        ("invented for this test", " ", ["source is empty; state where the values come from"]),
        ('"-9.81 m/s^2"', '"-9.81 m"', ["gravity: '-9.81 m': the unit 'm' does not fit", "m/s^2"]),
        ("mass = 2", 'mass = "2 m"', ["body \"trolley\": mass: '2 m'", "kg or g"]),
        ('["0.02 kg m^2", 0.02, 0.001]', '["0.02 kg", 1, 1]', ["body \"jib\": inertia: '0.02 kg'", "kg m^2"]),
        ('["0.02 kg m^2", 0.02, 0.001]', "[[1, 2], 3]", ['body "jib": inertia: the list has 2 entries; give 3']),
        ('["0.02 kg m^2", 0.02, 0.001]', "[1, 1]", ["body 'jib': inertia has shape (2,); give 3 x 3 values"]),
        ('name = "lamp"', 'name = "jib"', ["two bodies or frames called 'jib'; rename one"]),
        ('parent = "trolley"', 'parent = "troley"', ["'jib': its parent: there is no body 'troley' (did you mean 'trolley'?)"]),
        ('\nbody = "jib"', '\nbody = "jb"', ["'hook': its body: there is no body 'jb' (did you mean 'jib'?)"]),
        ('rpy = ["90 deg", 0, 0]', "rpy = [1, 0, 0]\norientation = [1, 0, 0, 0]", ['"jib"', "remove one"]),
        ('rpy = ["90 deg", 0, 0]', "orientation = [1, 1, 0, 0]", ["body 'jib': orientation", "divide it by its norm"]),
        ('rpy = ["90 deg", 0, 0]', 'rpy = ["90 m", 0, 0]', ['body "jib": rpy', "rad or deg"]),
        ('kind = "revolute"', 'kind = "hinge"', ["body \"jib\": joint: unknown joint kind 'hinge'; use one of revolute"]),
        ('kind = "revolute"\n', "", ['body "jib": joint.kind: missing']),
        ("axis = [0, 1, 0]\n", "", ['body "jib": joint.axis: missing; add this key']),
        ("axis = [0, 1, 0]", "axis = [0, 2, 0]", ["revolute joint of body 'jib'", "give the unit vector (0.0, 1.0, 0.0)"]),
        ("axis = [0, 1, 0]", "axes = [0, 1, 0]", ['body "jib": joint.axes: unknown key; did you mean \'axis\'?']),
        ('["-90 deg", "60 deg"]', "[1, 0]", ["body 'jib': position_limits are (1, 0)", "lower < upper"]),
        ('["-90 deg", "60 deg"]', '[0, "1 m"]', ["body \"jib\": joint.position_limits: '1 m'", "rad or deg"]),
        ('"-5 cm"', '"-5 deg"', ["body \"trolley\": joint.position_limits: '-5 deg'", "m or cm or mm"]),
        ('"60 rpm"', "[1, 2]", ['body "jib": joint.velocity_limit: the list has 2 entries; give 1, one per']),
        ('kind = "fixed"', 'kind = "fixed", axis = [0, 0, 1]', ['body "lamp": joint: a fixed joint has no axis; remove it']),
        ('kind = "fixed"', 'kind = "fixed", armature = 1', ['"lamp": joint.armature: a fixed joint does not have']),
        ('name = "hinge"', 'name = "trolley_joint"', ["two joints called 'trolley_joint'; rename one"]),
        ('body_b = "hook"', 'body_b = "hok"', ["spring 1: body_b:", "no body or frame 'hok' (did you mean 'hook'?)"]),
        ('"3 N s/m"', '"3 N"', ["damper 1: coefficient: '3 N'", "N s/m"]),
        ('axes = "body"', 'axes = "bdy"', ["applied_force 1: axes: 'bdy' is unknown; did you mean 'body'?"]),
        ('body = "hook"\naxes', 'body = "hok"\naxes', ["applied_force 1: body:", "no body or frame 'hok'"]),
        ("{hinge = 0.1", "{hing = 0.1", ["joint_friction.viscous: there is no moving joint 'hing'; did you mean 'hinge'?"]),
        ('"0.2 N s/m"', '"0.2 N m s/rad"', ["joint_friction.viscous.trolley_joint:", "N s/m"]),
        ('"1 deg/s"', "0", ["joint_friction.velocity_scale.hinge: 0 is out of range; give a value that is positive"]),
        ("rest = {hinge", "rest = {lamp", ["joint_spring.rest: there is no moving joint 'lamp'; use one of trolley_joint, hinge"]),
        ('joints = ["hinge"]', 'joints = ["hing"]', ["drives.joints: there is no moving joint 'hing'; did you mean 'hinge'?"]),
        ("gear = [50]", "gear = [50, 1]", ["drives.gear: the list has 2 entries; give 1, one per entry of joints"]),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("sound", "old", "new", "fragments"), [(sound, *row) for sound, rows in MISTAKES.items() for row in rows]
)
def test_refusal_names_file_entry_and_remedy(write, refusal, sound, old, new, fragments):
    assert old in sound
    path = write(sound.replace(old, new, 1))
    message = refusal((ConfigError, MechanismError), load_mechanism, path)
    assert message.startswith(f"{path}: ")
    assert all(fragment in message for fragment in fragments), message


class Breeze(JointForce):
    """A force of the user's own."""

    conservative: ClassVar[bool] = False

    def generalized_forces(self, model, q, v, t):
        return jnp.zeros_like(v)


class Worm(Revolute):
    """A joint of the user's own."""


class Beat(ConstantRate):
    """A motion of the user's own."""


def small_model() -> Model:
    builder = MechanismBuilder("small")
    builder.add_body("rod", joint=Revolute((0.0, 0.0, 1.0)), mass=1.0, inertia=(0.1, 0.1, 0.1))
    return builder.build()


def bell(motion: PrescribedMotion) -> Model:
    builder = MechanismBuilder("bell")
    builder.add_body("bell", joint=Rheonomic(Revolute((0.0, 0.0, 1.0)), motion), mass=1.0)
    builder.add_body("clapper", parent="bell", joint=Revolute((1.0, 0.0, 0.0)), mass=1.0, inertia=(0.1, 0.1, 0.1))
    return builder.build()


def test_refusal_to_save_names_the_remedy_and_leaves_no_file(tmp_path, refusal):
    model = small_model()
    friction = JointFriction([1.0], [0.0], [1.0])
    batch = jax.vmap(lambda mass: eqx.tree_at(lambda m: m.mass, model, mass))(jnp.ones((3, 1)))
    swinging, driven = bell(Beat(1.0)), bell(ConstantRate(1.0))
    heavy_rotor = eqx.tree_at(lambda m: m.inertia, model, jnp.array([[9.0, 1.0, 1.0, 0.0, 0.0, 0.0]]))
    builder = MechanismBuilder("worm")
    builder.add_body("nut", joint=Worm((0.0, 0.0, 1.0)), mass=1.0, inertia=(0.1, 0.1, 0.1))
    for system, fragments in [
        (System(model, (Breeze(),)), ["force of class Breeze", "remove it and add it after loading"]),
        (
            System(builder.build()),
            ['body "nut": joint: a joint of class Worm', "the kinds are revolute, prismatic, screw"],
        ),
        (
            System(swinging),
            ['body "bell": joint.motion: a motion of class Beat', "the kinds are constant_rate, sinusoid"],
        ),
        (
            System(driven.at(jnp.asarray(2.0))),
            ['body "bell": joint:', "at the time 2 s; save the model at time 0"],
        ),
        (System(model, (friction, friction)), ["two forces of class JointFriction; combine them into one"]),
        (System(batch), ["the model is a batch of shape (3,); save one mechanism per file"]),
        (System(heavy_rotor), ["body 'rod': principal moments", "triangle inequality"]),
    ]:
        path = tmp_path / "refused.toml"
        message = refusal((ConfigError, MechanismError), save_mechanism, system, path)
        assert message.startswith(f"{path}: ")
        assert all(fragment in message for fragment in fragments), message
        assert not path.exists()
    assert "cannot be written (Is a directory)" in refusal(ConfigError, save_mechanism, System(model), tmp_path)


def test_source_is_written_and_must_not_be_empty(tmp_path, refusal):
    system = System(small_model())
    save_mechanism(system, tmp_path / "small.toml", source="a scale")
    assert re.search('^source = "a scale"$', (tmp_path / "small.toml").read_text(), re.MULTILINE)
    assert "source is empty" in refusal(ConfigError, save_mechanism, system, tmp_path / "other.toml", source="")


def test_a_servo_that_bounds_some_components_of_a_joint_has_no_form_in_a_file(tmp_path, refusal):
    builder = MechanismBuilder("ball")
    builder.add_body("ball", joint=Spherical(), mass=1.0, inertia=(0.1, 0.1, 0.1))
    servo = JointServo([1.0] * 3, [1.0] * 3, [1.0, 0.0, 0.0, 0.0], [1.0, 1.0, np.inf])
    message = refusal(ConfigError, save_mechanism, System(builder.build(), (servo,)), tmp_path / "ball.toml")
    assert "joint 'ball_joint'" in message
    assert "for no component" in message
    assert not (tmp_path / "ball.toml").exists()


ROTOR = """
name = "geared"
source = "invented for this test"
[[body]]
name = "slide"
joint = {kind = "prismatic", axis = [1, 0, 0]}
mass = 1
[[rotor]]
name = "motor"
carrier = "ground"
joint = "slide"
inertia = "2 kg m^2"
ratio = "50 rad/m"
axis = [0, 0, 1]
"""


def test_the_ratio_of_a_rotor_has_the_unit_of_its_joint(write, refusal):
    assert load_mechanism(write(ROTOR)).model.rotors.ratio.tolist() == [50.0]
    message = refusal(ConfigError, load_mechanism, write(ROTOR.replace("prismatic", "revolute")))
    assert "rotor \"motor\": ratio: the unit 'rad/m' does not fit joint 'slide'; give a value in 1" in message
    message = refusal(ConfigError, load_mechanism, write(ROTOR.replace("50 rad/m", "50 rad")))
    assert "'rad' does not fit; give a value in 1 or rad/m" in message
