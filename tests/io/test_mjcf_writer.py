"""Systems written as MJCF: MuJoCo computes the same, they come back, and what MJCF lacks is refused by name."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import (
    Free,
    JointFriction,
    JointSpring,
    MechanismBuilder,
    Planar,
    Prismatic,
    Revolute,
    Spherical,
    State,
    System,
)
from jaxdyn.cli import main
from jaxdyn.constraints.kinds import Coupling, LoopJoint
from jaxdyn.dynamics import Actuator, Actuators, GravityCompensation, GroundContact, HalfSpace, JointDrives
from jaxdyn.dynamics.contact.shapes import (
    contact_box,
    contact_capsule,
    contact_cylinder,
    contact_ellipsoid,
    contact_sphere,
    contact_torus,
)
from jaxdyn.dynamics.forces import AppliedForce
from jaxdyn.dynamics.forces.friction import HOLDING_SCALE
from jaxdyn.dynamics.forces.joint_limits import JointLimits
from jaxdyn.io import ConfigError, IgnoredContent, MujocoOrder, load_system, load_visuals, save_system
from jaxdyn.io.mjcf import writer
from jaxdyn.spatial.transform import RigidTransform

mujoco = pytest.importorskip("mujoco")

TURN = (0.1, 0.7, -0.5, 0.5)
SOLID = {"mass": 2.0, "com": (0.1, -0.2, 0.3), "inertia": [[0.5, 0.02, 0.03], [0.02, 0.6, 0.04], [0.03, 0.04, 0.7]]}


def machine() -> System:
    """All joints of MJCF; a body without mass between two joints; children that are not next to their parents."""
    builder = MechanismBuilder("machine", gravity=(0.3, -0.2, -9.7))
    limits = {"position_limits": (-1.0, 2.0), "effort_limit": 900.0, "armature": 0.3}
    builder.add_body("base", joint=Free(), position=(1, 2, 3), orientation=TURN, **SOLID)
    builder.add_body("cart", joint=Prismatic((0.6, 0.8, 0)), orientation=TURN, **limits, **SOLID)
    builder.add_body("leg", parent="base", joint=Revolute((0, 0.6, 0.8)), position=(0.1, 0.2, 0.3), **SOLID)
    builder.add_body("fork", parent="cart", joint=Revolute((0, 0, 1)), position=(0.3, 0, 0.1), orientation=TURN)
    builder.add_body("hand", parent="fork", joint=Revolute((1, 0, 0)), position=(0, 0.2, 0), orientation=TURN, **SOLID)
    builder.add_body("ball", parent="hand", joint=Spherical(), position=(0, 0, 0.5), armature=(0.1,) * 3, **SOLID)
    builder.add_frame("tip", body="hand", position=(0.1, 0, 0), orientation=TURN)
    model = builder.build()
    viscous = model.topology.body_of_column != 0
    rest = np.array(jaxdyn.configuration.neutral(model))
    rest[[7, 8]] = 0.2, -0.1
    forces = (
        JointFriction(0.3 * viscous, np.zeros(model.nv), np.ones(model.nv)),
        JointSpring(np.where(viscous, 2.0, 0.0), rest),
        GravityCompensation(model.topology.body_index("hand"), 0.6),
    )
    actuators = (
        Actuator("motor", {"leg_joint": (30.0,)}, control_range=(-0.5, 1.0)),
        Actuator.position_servo("hand_joint", 80.0, 4.0, force_range=(-20.0, 90.0)),
        Actuator.velocity_servo("cart_joint", 5.0),
        Actuator("lag", {"fork_joint": (2.0,)}, time_constant=0.1, state_range=(-2.0, 2.0), controlled_stiffness=0.4),
        Actuator("integral", {"fork_joint": (2.0,)}, time_constant=1.0, integrates=True),
        Actuator("both", {"fork_joint": (2.0,), "hand_joint": (-1.0,)}, stiffness=0.7, offset=0.2),
        Actuator("turn", {"ball_joint": (1.0, 2.0, 3.0)}),
        Actuator("thruster", body="tip", point=(0.1, 0.2, 0.3), force=(1.0, 2.0, 3.0), torque=(-1.0, 0.0, 0.5)),
    )
    return System(model, forces, Actuators.of(model, actuators, {"leg_joint": (-9.0, 8.0)}))


def test_mujoco_has_the_same_accelerations(tmp_path):
    system, path = machine(), tmp_path / "machine.xml"
    save_system(system, path)
    theirs = mujoco.MjModel.from_xml_path(str(path))
    order, data = MujocoOrder(system.model, theirs), mujoco.MjData(theirs)
    theirs.opt.disableflags = mujoco.mjtDisableBit.mjDSBL_LIMIT

    @jax.jit
    def ours(key):
        q = jaxdyn.configuration.random(system.model, key)
        v, u, z = (jax.random.normal(key, (n,)) for n in (system.model.nv, system.nu, system.nz))
        a = jaxdyn.acceleration(system, State(q, v, z), u)
        tip = jaxdyn.frame_placement(system.model, q, "tip").translation
        return order.q_to(q), order.v_to(q, v), u, z, order.a_to(q, v, a), tip

    for key in jax.random.split(jax.random.key(0), 5):
        data.qpos, data.qvel, data.ctrl, data.act, expected, tip = map(np.array, ours(key))
        mujoco.mj_forward(theirs, data)
        np.testing.assert_allclose(data.qacc, expected, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(data.site("tip").xpos, tip, atol=1e-12)
    back = load_system(path)
    assert back.model.name == "machine"
    assert isinstance(back.drives, Actuators)
    assert back.drives.names == ("motor", "hand_joint", "cart_joint", "lag", "integral", "both", "turn", "thruster")
    assert back.drives.effort_ranges(back.model) == {"cart_joint": (-900.0, 900.0), "leg_joint": (-9.0, 8.0)}
    start = back.model.topology.q_starts[back.model.topology.joint_names.index("cart_joint")]
    assert (back.model.limits.lower[start], back.model.limits.upper[start]) == (-1.0, 2.0)


def test_equalities_and_dry_friction_come_back(tmp_path):
    model, path = jaxdyn.library.double_pendulum(), tmp_path / "loops.xml"
    frames = [RigidTransform(jnp.array(TURN), jnp.array([0.1, k, 0.3])) for k in (0.2, 0.4)]
    loops = tuple(LoopJoint(kind, kind, 1, frames[0], -1, frames[1]) for kind in ("spherical", "fixed"))
    constraints = (*loops, Coupling("gear", 1, 0, [0.1, -2.0, 0.3]), Coupling("lock", 0, 0, [0.2]))
    with pytest.warns(IgnoredContent, match="left out velocity_scale of dry friction$"):
        save_system(System(model, (JointFriction([0.1, 0.2], [0.3, 0.4], [1.0, 1.0]),), constraints=constraints), path)
    back = load_system(path)
    assert [(type(part), part.name) for part in back.constraints] == [(type(part), part.name) for part in constraints]
    (friction,), (_, weld, gear, _) = back.forces, back.constraints
    assert isinstance(friction, JointFriction)
    assert isinstance(weld, LoopJoint)
    assert isinstance(gear, Coupling)
    np.testing.assert_array_equal(friction.coulomb, [0.3, 0.4])
    np.testing.assert_array_equal(friction.velocity_scale, HOLDING_SCALE)
    np.testing.assert_allclose(weld.frame_b.translation, [0.1, 0.4, 0.3], atol=1e-15)
    np.testing.assert_array_equal(gear.coefficients, [0.1, -2.0, 0.3])
    save_system(back, tmp_path / "again.xml")
    assert (tmp_path / "again.xml").read_text().count("<site") == 3


def lander(*points, **options) -> System:
    builder = MechanismBuilder("lander")
    builder.add_body("hull", joint=Free(), mass=3.0, inertia=(0.1, 0.1, 0.1))
    model = builder.build()
    return System(model, (GroundContact.of(model, points, **options),))


def test_contacts_come_back_and_hold_in_mujoco(tmp_path):
    turn = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    shapes = (
        *contact_box("hull", (0.6, 0.6, 0.2)),
        *contact_capsule("hull", ((-0.5, 0.0, 0.0), (0.5, 0.0, 0.0)), 0.08),
        *contact_cylinder("hull", 0.15, 0.9, rotation=turn),
        *contact_ellipsoid("hull", (0.05, 0.1, 0.2), center=(0.0, 0.0, 0.3), rotation=turn),
    )
    system, path = lander(*shapes, friction=0.7, surface=HalfSpace(height=0.5)), tmp_path / "lander.xml"
    save_system(system, path)
    points, rounds = load_system(path, contact="ground").forces
    assert isinstance(points, GroundContact)
    assert isinstance(rounds, GroundContact)
    assert rounds.axes is not None
    shaped = (
        (points.centers, points.radii, np.zeros((len(points.bodies), 3, 3))),
        (rounds.centers, rounds.radii, rounds.axes),
    )
    found = [each for shapes in shaped for each in zip(*map(np.asarray, shapes), strict=True)]
    known = jax.tree.map(np.asarray, system.forces[0])
    for center, radius, axes in found:  # of several shapes of one body, only the outermost points are read
        near = np.linalg.norm(known.centers - center, axis=1) + abs(known.radii - radius)
        gram = np.einsum("ija,ijb->iab", known.axes, known.axes) - np.einsum("ja,jb->ab", axes, axes)
        assert np.min(near + np.linalg.norm(gram, axis=(1, 2))) < 1e-7
    assert len(points.bodies) + len(rounds.bodies) >= 8
    assert {float(part.material.friction) for part in (points, rounds)} == {0.7}
    theirs = mujoco.MjModel.from_xml_path(str(path))
    moving = theirs.geom_bodyid > 0
    assert not np.bitwise_or.outer(
        theirs.geom_contype[moving], theirs.geom_conaffinity[~moving]
    ).any()  # only the plane touches
    data = mujoco.MjData(theirs)
    data.qpos[2] = 0.8
    for _ in range(1000):
        mujoco.mj_step(theirs, data)
    assert data.qpos[2] == pytest.approx(0.65, abs=2e-3)  # on the cylinder
    assert np.linalg.norm(data.qvel) < 1e-2


def test_visuals_refer_to_mesh_files(tmp_path):
    trimesh = pytest.importorskip("trimesh")
    (tmp_path / "meshes").mkdir()
    trimesh.creation.box((0.1, 0.2, 0.3)).apply_translation((0.3, 0, 0)).export(tmp_path / "meshes" / "part.stl")
    shape = '<visual><origin xyz="0 0 1" rpy="1 2 3"/><geometry>{}</geometry></visual>'
    shapes = ('<mesh filename="meshes/part.stl" scale="2 2 2"/>', '<cylinder radius="0.1" length="0.4"/>')
    inertial = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/></inertial>'
    joint = '<joint name="j" type="revolute"><parent link="base"/><child link="arm"/><limit velocity="2"/></joint>'
    link = f'<link name="arm">{inertial}{"".join(map(shape.format, shapes))}</link>'
    source, target = tmp_path / "arm.urdf", tmp_path / "arm.xml"
    source.write_text(f'<robot name="arm"><link name="base"/>{link}{joint}</robot>')
    assert main(["convert", str(source), str(target)]) == 0
    before, after = (load_visuals(path, load_system(path)) for path in (source, target))
    for old, new in zip(before, after, strict=True):
        np.testing.assert_allclose(np.ptp(new.points(), axis=0), np.ptp(old.points(), axis=0), atol=1e-6)
        np.testing.assert_allclose(new.points().mean(axis=0), old.points().mean(axis=0), atol=1e-6)
    assert mujoco.MjModel.from_xml_path(str(target)).ngeom == 2


def one(joint=None, **parts) -> System:
    builder = MechanismBuilder("one")
    builder.add_body("b", joint=joint or Revolute((0, 0, 1)), mass=1.0, inertia=(1, 1, 1), **parts.pop("numbers", {}))
    model = builder.build()
    return System(model, **{name: make(model) for name, make in parts.items()})


def with_rotor() -> System:
    builder = MechanismBuilder("rotor")
    builder.add_body("b", joint=Revolute((0, 0, 1)), mass=1.0, inertia=(1, 1, 1))
    builder.add_rotor("spin", carrier="ground", joint="b_joint", inertia=0.01, ratio=50.0, axis=(0, 0, 1))
    return System(builder.build())


def motor(**values):
    return lambda model: Actuators.of(model, (Actuator("m", {"b_joint": (1.0,)}, **values),))


def pin() -> LoopJoint:
    return LoopJoint("pin", "revolute", 0, RigidTransform.identity(), -1, RigidTransform.identity())


def push() -> AppliedForce:
    return AppliedForce(0, np.zeros(3), np.ones(3), np.zeros(3), body_fixed=False)


def limited_ball() -> System:
    return one(Spherical(), drives=lambda model: Actuators.of(model, (), {"b_joint": (-100.0, 100.0)}))


LIMITED = {"position_limits": (-1, 1)}
LACKING = {
    "joint_limits": (lambda: one(forces=lambda model: (JointLimits.of(model),), numbers=LIMITED), ""),
    "applied_force": (lambda: one(forces=lambda _: (push(),)), ""),
    "armature": (
        lambda: one(Free(), numbers={"armature": (1, 0, 0, 0, 0, 0)}),
        " [1.0, 0.0, 0.0, 0.0, 0.0, 0.0] of joint 'b_joint'",
    ),
    "rotor": (with_rotor, " 'spin'"),
    "effort_range": (limited_ball, " of joint 'b_joint'"),
    "joint_friction": (
        lambda: one(Free(), forces=lambda _: (JointFriction(np.ones(6), np.arange(6.0), np.ones(6)),)),
        " [0.0, 1.0, 2.0, 3.0, 4.0, 5.0] of joint 'b_joint'",
    ),
    "actuator": (lambda: one(drives=motor(delay=0.1)), " 'm' with a delay"),
    "ground_contact": (
        lambda: lander(*contact_ellipsoid("hull", (0.1, 0.2, 0.3)), *contact_torus("hull", 0.3, 0.1)),
        " with a tire on body 'hull'",
    ),
    "loop": (lambda: one(constraints=lambda _: (pin(),)), " 'pin' of kind revolute"),
}


@pytest.mark.parametrize("name", LACKING)
def test_what_mjcf_lacks_is_refused_or_dropped_by_name(tmp_path, refusal, name):
    make, what = LACKING[name]
    system, path = make(), tmp_path / "refused.xml"
    assert refusal(ConfigError, save_system, system, path) == (
        f"{path}: MJCF has no counterpart of {name}{what}; leave it out with drop=({name!r},), on the command line --drop {name}"
    )
    assert not path.exists()
    with pytest.warns(IgnoredContent, match=f"(out|,) {name}$"):
        save_system(system, path, drop=(name,))
    left = mujoco.MjModel.from_xml_path(str(path))
    assert (left.nv, left.ngeom, np.any(left.dof_damping)) == (system.model.nv, 0, False)


def test_bounds_on_one_side_and_two_motors_of_one_joint_come_back(tmp_path):
    low, high = (-np.inf, 1.0), (0.0, np.inf)
    joints = {"b_joint": (1.0,)}
    actuator = Actuator("a", joints, control_range=low, force_range=high, time_constant=0.5, state_range=low)
    numbers, path = {"position_limits": (-1.0, np.inf)}, tmp_path / "bounds.xml"
    save_system(
        one(drives=lambda model: Actuators.of(model, (actuator,), {"b_joint": (-np.inf, 5.0)}), numbers=numbers), path
    )
    back = load_system(path)
    assert (back.model.limits.lower[0], back.model.limits.upper[0]) == (-1.0, np.inf)
    assert isinstance(back.drives, Actuators)
    assert back.drives.descriptions(back.model) == [actuator]
    assert back.drives.effort_ranges(back.model) == {"b_joint": (-np.inf, 5.0)}
    save_system(one(drives=lambda _: JointDrives((0, 0), [2.0, 3.0])), path)
    drives = load_system(path).drives
    assert isinstance(drives, Actuators)
    assert (drives.names, drives.columns, drives.arms.tolist()) == (("b_joint", "b_joint_"), (0, 0), [2.0, 3.0])


def test_what_mjcf_lacks_of_contacts_and_drives_is_named(tmp_path):
    make, path = (
        lambda body: GroundContact.of(body, contact_sphere("b", radius=0.1), stiffness=123.0),
        tmp_path / "c.xml",
    )
    body = one(Free()).model
    with pytest.warns(
        IgnoredContent, match="stiffness, damping, onset and slip speed of contacts, that no joint is driven$"
    ):
        save_system(System(body, (make(body),), Actuators.of(body, ())), path)


def test_effort_limits_that_mjcf_lacks_are_named(tmp_path):
    with pytest.warns(IgnoredContent, match="left out effort limits of spherical and free joints$"):
        save_system(one(Spherical(), numbers={"effort_limit": (5.0,) * 3}), tmp_path / "ball.xml")


def test_joints_and_mechanisms_that_mujoco_lacks(tmp_path, refusal):
    path = tmp_path / "refused.xml"
    message = refusal(ConfigError, save_system, one(Planar()), path)
    assert "joint 'b_joint' is of class Planar, which MJCF does not support" in message
    builder = MechanismBuilder("massless")
    builder.add_body("b", joint=Revolute((0, 0, 1)), armature=1.0)
    assert "MuJoCo refuses it" in refusal(ConfigError, save_system, System(builder.build()), path)
    assert not path.exists()


def test_a_file_with_another_motion_is_not_written(tmp_path, refusal, monkeypatch):
    monkeypatch.setattr(writer, "symmetric_matrix", lambda _: 2.0 * np.eye(3))
    path = tmp_path / "wrong.xml"
    assert "accelerations in MuJoCo differ by" in refusal(ConfigError, save_system, one(), path)
    assert not path.exists()
