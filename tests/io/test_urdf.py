"""What the URDF reader makes of every feature of the format, against Pinocchio where it reads the same file."""

import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pinocchio
import pytest

import jaxdyn
from jaxdyn import (
    Coupling,
    Distance,
    Free,
    JointDrives,
    JointFriction,
    JointSpring,
    LoopJoint,
    MechanismError,
    Planar,
    Prismatic,
    Revolute,
    Spherical,
)
from jaxdyn.dynamics.forces.friction import HOLDING_SCALE
from jaxdyn.io import ConfigError, IgnoredContent, PinocchioOrder, load_urdf

BODY = '<inertial><mass value="1"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>'


@pytest.fixture
def read(tmp_path):
    """read(text, **options): the system of a URDF file."""

    def load(text: str, **options):
        path = tmp_path / "robot.urdf"
        path.write_text(text)
        return load_urdf(path, **options)

    return load


def robot(*parts: str) -> str:
    return f'<robot name="r">\n<link name="base"/>\n{"".join(parts)}\n</robot>'


def body(name: str, joint: str = "", kind: str = "revolute", parent: str = "base", inertial: str = BODY) -> str:
    """A link and its joint, "<name>_j", with further elements in it."""
    return (
        f'<link name="{name}">{inertial}</link>\n'
        f'<joint name="{name}_j" type="{kind}"><parent link="{parent}"/><child link="{name}"/>{joint}</joint>\n'
    )


# ---------------------------------------------------------------------------------------------------------- against Pinocchio

# Every kind of joint that Pinocchio reads (its planar joints know no axis but z), turned inertial frames, welded links.
EVERY_JOINT = f"""<robot name="every joint">
<link name="hull"><inertial><origin xyz="0.1 -0.2 0.3" rpy="0.4 -0.5 0.6"/><mass value="3"/>
  <inertia ixx="0.3" iyy="0.4" izz="0.5" ixy="0.01" ixz="-0.02" iyz="0.03"/></inertial></link>
<link name="upper"><inertial><origin xyz="0 0.1 -0.2" rpy="-1.1 0.7 2.9"/><mass value="1.2"/>
  <inertia ixx="0.02" iyy="0.03" izz="0.04" ixy="0.002" ixz="0.001" iyz="-0.003"/></inertial></link>
<joint name="shoulder" type="revolute"><origin xyz="0.3 0.1 0.2" rpy="0.5 -1.2 2"/><parent link="hull"/><child link="upper"/>
  <axis xyz="1 -2 2"/><limit lower="-1" upper="2" effort="10" velocity="3"/></joint>
<link name="bracket"><inertial><origin xyz="0.05 0 0" rpy="0 0 0.8"/><mass value="0.4"/>
  <inertia ixx="0.001" iyy="0.002" izz="0.0025" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="weld" type="fixed"><origin xyz="0.2 0.3 -0.1" rpy="0.1 0.2 0.3"/><parent link="upper"/><child link="bracket"/></joint>
<link name="wheel">{BODY}</link>
<joint name="spin" type="continuous"><origin xyz="0 0.4 0" rpy="1 2 3"/><parent link="bracket"/><child link="wheel"/>
  <axis xyz="0.6 0 0.8"/></joint>
<link name="rod"><inertial><origin xyz="0 0 0.3"/><mass value="0.7"/>
  <inertia ixx="0.02" iyy="0.02" izz="0.001" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="slide" type="prismatic"><origin xyz="-0.2 0 0" rpy="0 1 0"/><parent link="hull"/><child link="rod"/><axis xyz="0 3 4"/>
  <limit lower="-1" upper="1" effort="10" velocity="3"/></joint>
<link name="puck">{BODY}</link>
<joint name="glide" type="planar"><origin xyz="0 0 0.5" rpy="0.2 0.1 0"/>
  <parent link="rod"/><child link="puck"/><axis xyz="0 0 1"/></joint>
<link name="drone"><inertial><origin xyz="0.01 0 0.02"/><mass value="0.9"/>
  <inertia ixx="0.1" iyy="0.2" izz="0.15" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="flight" type="floating"><origin xyz="1 0 0" rpy="0 0 1"/><parent link="upper"/><child link="drone"/></joint>
<link name="fin">{BODY}</link>
<joint name="hinge" type="revolute"><parent link="drone"/><child link="fin"/>
  <limit lower="-1" upper="1" effort="10" velocity="3"/></joint>
<link name="camera"/>
<joint name="mount" type="fixed"><origin xyz="0 0 0.1" rpy="0 0.3 0"/><parent link="puck"/><child link="camera"/></joint>
</robot>"""


@jax.jit
def mechanics(model, q, v, tau):
    return jaxdyn.mass_matrix(model, q), jaxdyn.bias_force(model, q, v), jaxdyn.forward_dynamics(model, q, v, tau)


def test_pinocchio_reads_the_same_mechanism(read):
    model = read(EVERY_JOINT, base="free").model
    pin = pinocchio.buildModelFromXML(EVERY_JOINT, pinocchio.JointModelFreeFlyer(), "hull_joint")
    order, data = PinocchioOrder(model, pin), pin.createData()
    rng = np.random.default_rng(4)
    q = jaxdyn.configuration.random(model, jax.random.key(0), spread=0.8)
    v, tau = (jnp.asarray(rng.normal(size=model.nv)) for _ in range(2))
    mass_matrix, bias, a = mechanics(model, q, v, tau)
    assert model.nv == pin.nv

    their_q, their_v = np.asarray(order.q_to(q)), np.asarray(order.v_to(q, v))
    their_bias = pinocchio.nonLinearEffects(pin, data, their_q, their_v).copy()
    zero = jnp.zeros(model.nv)
    # Our bias is what their inverse dynamics gives for our acceleration zero, which moving axes make another one of theirs.
    their_a = np.asarray(order.a_to(q, v, zero))
    their_force = pinocchio.rnea(pin, data, their_q, their_v, their_a)
    np.testing.assert_allclose(order.tau_from(q, jnp.asarray(their_force)), bias, rtol=1e-10, atol=1e-10)
    assert np.abs(their_bias).max() > 1.0
    pinocchio.crba(pin, data, their_q)
    full = np.triu(data.M) + np.triu(data.M, 1).T
    columns = np.stack([np.asarray(order.v_to(q, e)) for e in jnp.eye(model.nv)], axis=1)
    np.testing.assert_allclose(columns.T @ full @ columns, mass_matrix, rtol=1e-10, atol=1e-11)
    their_a = pinocchio.aba(pin, data, their_q, their_v, np.asarray(order.tau_to(q, tau)))
    np.testing.assert_allclose(order.a_from(q, v, jnp.asarray(their_a)), a, rtol=1e-9, atol=1e-9)


def test_limits_are_those_of_pinocchio(read):
    model = read(EVERY_JOINT, base="fixed").model
    pin = pinocchio.buildModelFromXML(EVERY_JOINT)
    for name in ("shoulder", "slide", "hinge"):
        body, joint = model.topology.joint_names.index(name), pin.joints[pin.getJointId(name)]
        q, v = int(model.topology.q_starts[body]), int(model.topology.v_starts[body])
        assert model.limits.lower[q] == pin.lowerPositionLimit[joint.idx_q]
        assert model.limits.upper[q] == pin.upperPositionLimit[joint.idx_q]
        assert model.limits.effort[v] == pin.effortLimit[joint.idx_v]
        assert model.limits.velocity[v] == pin.velocityLimit[joint.idx_v]


# ----------------------------------------------------------------------------------------------------------------- the format


def test_kinds_of_joints_and_their_sizes(read):
    kinds = {
        "revolute": Revolute,
        "continuous": Revolute,
        "prismatic": Prismatic,
        "planar": Planar,
        "floating": Free,
        "spherical": Spherical,
    }
    for kind, joint in kinds.items():
        model = read(robot(body("b", kind=kind))).model
        assert model.topology.joint_classes == (joint,)
        assert model.nq == joint.nq


def test_the_axis_is_x_if_it_is_absent_and_normalized_if_it_is_given(read):
    np.testing.assert_array_equal(read(robot(body("b"))).model.joint(0).axis, [1, 0, 0])
    np.testing.assert_array_equal(read(robot(body("b", "<axis/>"))).model.joint(0).axis, [1, 0, 0])
    axis = read(robot(body("b", '<axis xyz="0 3 -4"/>'))).model.joint(0).axis
    np.testing.assert_allclose(axis, [0, 0.6, -0.8], rtol=1e-15)


def test_roll_pitch_yaw_are_about_fixed_axes(read):
    r, p, y = 0.3, -0.8, 2.1
    rx = np.array([[1, 0, 0], [0, math.cos(r), -math.sin(r)], [0, math.sin(r), math.cos(r)]])
    ry = np.array([[math.cos(p), 0, math.sin(p)], [0, 1, 0], [-math.sin(p), 0, math.cos(p)]])
    rz = np.array([[math.cos(y), -math.sin(y), 0], [math.sin(y), math.cos(y), 0], [0, 0, 1]])
    model = read(robot(body("b", f'<origin xyz="1 2 3" rpy="{r} {p} {y}"/>'))).model
    np.testing.assert_allclose(
        jaxdyn.spatial.quaternion.to_matrix(model.placement.quaternion[0]), rz @ ry @ rx, atol=1e-15
    )
    np.testing.assert_array_equal(model.placement.translation[0], [1, 2, 3])


def test_the_normal_of_a_planar_joint_is_its_axis(read):
    joint = read(robot(body("b", '<axis xyz="1 0 0"/>', "planar"))).model.joint(0)
    np.testing.assert_allclose(joint.normal, [1, 0, 0])
    np.testing.assert_allclose(joint.direction, [0, 0, -1], atol=1e-15)  # x turned as z into x
    down = read(robot(body("b", '<axis xyz="0 0 -1"/>', "planar"))).model.joint(0)
    np.testing.assert_allclose(down.direction, [1, 0, 0])


def test_welded_links_keep_their_mass_and_become_frames(read):
    tool = body("tool", '<origin xyz="0 0 2"/>', "fixed", "arm")
    tip = body("tip", '<origin xyz="0 1 0"/>', "fixed", "tool", inertial="")
    model = read(robot(body("arm"), tool, tip)).model
    assert model.nb == 1
    np.testing.assert_allclose(model.mass, [2.0])
    np.testing.assert_allclose(model.com[0], [0, 0, 1])
    np.testing.assert_allclose(
        model.inertia[0], [2.2, 2.2, 0.2, 0, 0, 0], atol=1e-15
    )  # two masses, 1 m from their center
    assert dict(zip(model.topology.frame_names, model.topology.frame_bodies, strict=True)) == {
        "base": -1,
        "tool": 0,
        "tip": 0,
    }
    np.testing.assert_allclose(model.frames.translation[model.topology.frame_names.index("tip")], [0, 1, 2])


def test_the_base_stands_fixed_or_moves_freely_with_its_inertia(read):
    text = robot(body("arm")).replace('<link name="base"/>', f'<link name="base">{BODY}</link>')
    fixed, free = read(text).model, read(text, base="free").model
    assert (fixed.nv, free.nv) == (1, 7)
    assert free.topology.joint_names == ("base_joint", "arm_j")
    assert free.topology.joint_classes == (Free, Revolute)
    np.testing.assert_array_equal(free.mass, [1, 1])


def test_the_inertia_of_a_fixed_base_is_not_read(read):
    """Many descriptions invent one, which no body has."""
    text = robot(body("arm")).replace(
        '<link name="base"/>',
        '<link name="base"><inertial><mass value="1"/><inertia ixx="9" iyy="1" izz="1"/></inertial></link>',
    )
    assert read(text).model.nb == 1
    with pytest.raises(MechanismError, match=r"line 2: body 'base': principal moments .* triangle"):
        read(text, base="free")


def test_a_robot_is_called_by_its_file_if_it_has_no_name(read):
    assert read(robot(body("b"))).model.name == "r"
    assert read(robot(body("b")).replace(' name="r"', "")).model.name == "robot"


def test_limits(read):
    def limits(text, kind="revolute"):
        limits = read(robot(body("b", text, kind))).model.limits
        return tuple(float(x[0]) for x in (limits.lower, limits.upper, limits.velocity, limits.effort))

    inf = math.inf
    assert limits("") == (-inf, inf, inf, inf)
    assert limits('<limit effort="3" velocity="2"/>') == (-inf, inf, 2, 3)
    assert limits('<limit lower="-1" upper="2" effort="3" velocity="4"/>') == (-1, 2, 4, 3)
    assert limits('<limit upper="2"/>') == (0, 2, inf, inf)  # the format's default of an absent side
    assert limits('<limit lower="-inf" upper="1e30" effort="1e30" velocity="inf"/>', "prismatic") == (
        -inf,
        inf,
        inf,
        inf,
    )


def test_limits_that_say_nothing_are_named(read):
    with pytest.warns(
        IgnoredContent, match=r"limits that do not allow motion \(line 4\); effort limits of 0 \(line 4\)"
    ):
        read(robot(body("b", '<limit lower="0" upper="0" effort="0" velocity="1"/>')))
    with pytest.warns(IgnoredContent, match=r'ignored attribute "lower" of <limit> \(line 4\)$'):
        assert not np.isfinite(read(robot(body("b", '<limit lower="-1"/>', "continuous"))).model.limits.lower).any()
    with pytest.warns(IgnoredContent, match=r"ignored <limit> in <joint> \(line 4\)$"):
        read(robot(body("b", '<limit lower="-1"/>', "planar")))


def test_damping_and_friction_brake_the_joint(read):
    dynamics = '<dynamics damping="0.5" friction="0.3"/>'
    system = read(robot(body("b", dynamics), body("c", dynamics, "planar")))
    (friction,) = system.forces
    assert isinstance(friction, JointFriction)
    v = jnp.array([0.2, -0.3, 1.0, 0.0])
    tau = friction.generalized_forces(system.model, jaxdyn.configuration.neutral(system.model), v, jnp.zeros(()))
    np.testing.assert_allclose(tau, -0.5 * v - 0.3 * np.tanh(v / HOLDING_SCALE), rtol=1e-12)


def test_a_mimic_joint_is_a_coupling(read):
    follower = body("c", '<mimic joint="b_j" multiplier="-2" offset="0.1"/>', "prismatic")
    system = read(robot(body("b"), follower, body("d", '<mimic joint="c_j"/>')))
    first, second = system.constraints
    assert isinstance(first, Coupling)
    assert (first.name, first.driven, first.driver, list(first.coefficients)) == ("c_j", 1, 0, [0.1, -2.0])
    assert (second.name, second.driven, second.driver, list(second.coefficients)) == ("d_j", 2, 1, [0.0, 1.0])


def test_meshes_and_what_is_for_other_tools_do_not_matter(read):
    inertial = BODY + (
        '<visual><geometry><mesh filename="package://nowhere/b.dae"/></geometry><material name="no such"/></visual>'
        '<collision><geometry><mesh filename="file:///does/not/exist.stl"/></geometry></collision>'
    )
    other = '<material name="red"/><transmission name="t"/><gazebo reference="b"><plugin/></gazebo>'
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(robot(body("b", inertial=inertial), other)).model.nb == 1


def test_whatever_is_not_read_is_named_once_with_its_lines(read):
    odd = '<inertial speed="3"><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/><density/></inertial>'
    text = robot(*(body(name, inertial=odd) for name in "bcdefg"), '<sensor name="s"/>')
    with pytest.warns(IgnoredContent) as caught:
        read(text)
    assert len(caught) == 1
    message = str(caught[0].message)
    assert message.split("robot.urdf: ")[1] == (
        "ignored <sensor> in <robot> (line 15); <density> in <inertial> (line 3, 5, 7 and 3 more); "
        'attribute "speed" of <inertial> (line 3, 5, 7 and 3 more)'
    )


def test_unphysical_inertias_are_refused_or_repaired(read):
    text = robot(body("b", inertial='<inertial><mass value="2"/><inertia ixx="9" iyy="1" izz="1"/></inertial>'))
    with pytest.raises(MechanismError, match=r"line 3: body 'b': principal moments .* triangle inequality"):
        read(text)
    with pytest.warns(IgnoredContent, match=r"ignored unphysical part of the inertia of link 'b', .* \(line 3\)"):
        model = read(text, unphysical="repair").model
    xx, yy, zz = np.asarray(model.inertia[0, :3])
    assert xx <= yy + zz + 1e-12
    np.testing.assert_allclose(model.mass, 2.0)
    massless = robot(
        body("b"),
        body(
            "c",
            inertial='<inertial><mass value="0"/><inertia ixx="1" iyy="1" izz="1"/></inertial>',
            kind="fixed",
            parent="b",
        ),
    )
    with pytest.raises(MechanismError, match="'c': it has inertia but mass 0 kg"):
        read(massless)
    with pytest.warns(IgnoredContent, match="link 'c'"):
        np.testing.assert_allclose(read(massless, unphysical="repair").model.inertia[0, :3], 0.1)


def test_elements_that_are_there_twice_are_refused_or_the_first_taken(read):
    inertial = '<inertial><mass value="2"/><mass value="3"/><inertia ixx="1" iyy="1" izz="1"/></inertial>'
    text = robot(body("b", inertial=inertial))
    with pytest.raises(ConfigError, match=r"<inertial> has a second <mass>"):
        read(text)
    with pytest.warns(IgnoredContent, match=r"ignored second <mass> \(line 3\)"):
        np.testing.assert_allclose(read(text, unphysical="repair").model.mass, 2.0)


def test_a_declaration_after_a_blank_line_is_forgiven(read):
    assert read('\n  <?xml version="1.0"?>\n' + robot(body("b"))).model.nb == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base": "floating"}, "no option base 'floating'; use one of fixed, free"),
        ({"unphysical": "ignore"}, "no option unphysical 'ignore'; use one of refuse, repair"),
    ],
)
@pytest.mark.usefixtures("as_a_user")
def test_options_are_checked(read, options, message):
    with pytest.raises(jaxdyn.Error, match=message):
        read(robot(body("b")), **options)


# -------------------------------------------------------------------------------------------------------------- the extension


def test_gravity_armature_springs_and_drives(read):
    extension = """<jaxdyn>
    <gravity xyz="0 0 -1.62"/>
    <joint name="c_j" armature="0.2" stiffness="5" rest="0.3" velocity_scale="0.5"/>
    <drive joint="c_j" gear="100"/>
    </jaxdyn>"""
    system = read(robot(body("b", '<dynamics friction="1"/>'), body("c", '<dynamics friction="1"/>'), extension))
    np.testing.assert_array_equal(system.model.gravity, [0, 0, -1.62])
    np.testing.assert_array_equal(system.model.armature, [0, 0.2])
    friction, spring = system.forces
    assert isinstance(spring, JointSpring)
    np.testing.assert_array_equal(friction.velocity_scale, [5e-6, 0.5])
    np.testing.assert_array_equal(spring.stiffness, [0, 5])
    np.testing.assert_array_equal(spring.rest, [0, 0.3])
    assert isinstance(system.drives, JointDrives)
    assert system.drives.columns == (1,)
    np.testing.assert_array_equal(system.drives.gear, [100])
    assert read(robot(body("b"))).drives is None
    np.testing.assert_array_equal(read(robot(body("b"))).model.gravity, [0, 0, -9.81])


# A crank of 0.3 m, a coupler of 0.8 m and a rocker of 0.6 m on a base of 0.7 m, all hinges about y; the coupler carries its pin
# as a welded link, and a rod of the same length as the rocker stands beside it.
FOUR_BAR = robot(
    body("crank", '<axis xyz="0 1 0"/>'),
    body("coupler", '<origin xyz="0.3 0 0"/><axis xyz="0 1 0"/>', parent="crank"),
    body("eye", '<origin xyz="0.8 0 0" rpy="0.4 0.5 0"/>', "fixed", "coupler", inertial=""),
    body("rocker", '<origin xyz="0.7 0 0"/><axis xyz="0 1 0"/>'),
    """<jaxdyn>
    <loop_joint name="pin" type="KIND"><link1 link="coupler" xyz="0.8 0 0"/><link2 link="rocker" xyz="0.6 0 0"/>
      <axis xyz="0 2 0"/></loop_joint>
    <rod name="tie" length="0.6"><link1 link="eye"/><link2 link="base" xyz="0.7 0.0 0"/></rod>
    <coupling name="gear" joint="rocker_j" driver="crank_j" coefficients="0.1 0.5 0.25"/>
    </jaxdyn>""",
)


def test_a_loop_closes_where_its_links_meet(read):
    text = FOUR_BAR.replace("KIND", "revolute")
    text = text[: text.index("<coupling")] + "</jaxdyn></robot>"
    system = read(text)
    pin, rod = system.constraints
    assert isinstance(pin, LoopJoint)
    assert isinstance(rod, Distance)
    found = jax.jit(jaxdyn.assemble)(system, system.at_rest(jnp.array([-0.9, 0.6, -1.2])))
    assert bool(found.closed)
    assert int(found.mobility) == 1
    crank, coupler, rocker = (float(x) for x in found.q)

    def along(angle):
        """In the plane of x and z, where angles about y turn x into -z."""
        return np.array([math.cos(angle), -math.sin(angle)])

    end = 0.3 * along(crank) + 0.8 * along(crank + coupler)
    np.testing.assert_allclose(end, np.array([0.7, 0]) + 0.6 * along(rocker), atol=1e-9)
    axis = jaxdyn.spatial.quaternion.to_matrix(pin.frame_a.quaternion)[:, 2]
    np.testing.assert_allclose(axis, [0, 1, 0], atol=1e-15)


@pytest.mark.parametrize("kind", ["prismatic", "cylindrical", "universal", "spherical", "planar", "fixed"])
def test_every_kind_of_loop_joint_is_read_in_the_order_of_the_file(read, kind):
    system = read(FOUR_BAR.replace("KIND", kind))
    pin, rod, gear = system.constraints
    assert (pin.kind, pin.name, pin.body_a, pin.body_b) == (kind, "pin", 1, 2)
    assert (rod.body_a, rod.body_b, float(rod.length)) == (1, -1, 0.6)
    np.testing.assert_allclose(rod.point_a, [0.8, 0, 0], atol=1e-15)
    assert (gear.driven, gear.driver, list(gear.coefficients)) == (2, 0, [0.1, 0.5, 0.25])


def test_axes_of_loop_joints(read):
    """z turned into the axis on the shortest way, also where that is not unique, on a frame turned by rpy."""
    for text, axis in (("0 0 -3", [0, 0, -1]), ("1 0 0", [1, 0, 0]), ("0.6 0 0.8", [0.6, 0, 0.8])):
        system = read(FOUR_BAR.replace("KIND", "revolute").replace("0 2 0", text))
        np.testing.assert_allclose(
            jaxdyn.spatial.quaternion.to_matrix(system.constraints[0].frame_b.quaternion)[:, 2], axis, atol=1e-15
        )
    turned = FOUR_BAR.replace("KIND", "revolute").replace('<link1 link="coupler"', '<link1 rpy="0 0 1" link="eye"')
    frame = read(turned).constraints[0].frame_a
    c, s = math.cos(1.0), math.sin(1.0)
    r, p = 0.4, 0.5
    eye = np.array([[math.cos(p), 0, math.sin(p)], [0, 1, 0], [-math.sin(p), 0, math.cos(p)]]) @ np.array(
        [[1, 0, 0], [0, math.cos(r), -math.sin(r)], [0, math.sin(r), math.cos(r)]]
    )
    np.testing.assert_allclose(
        jaxdyn.spatial.quaternion.to_matrix(frame.quaternion)[:, 2], eye @ [-s, c, 0.0], atol=1e-14
    )


# ------------------------------------------------------------------------------------------------------------------- names


def test_a_root_called_ground_is_the_fixed_world(read):
    text = robot(body("b")).replace('"base"', '"ground"')
    model = read(text).model
    assert model.topology.parents == (-1,)
    assert model.topology.frame_names == ()
    with pytest.raises(ConfigError, match='a root link called "ground" is the fixed world; rename it for a free base'):
        read(text, base="free")


def test_links_and_joints_may_share_names(read):
    text = robot(body("b"), body("c", parent="b")).replace('"c_j"', '"b"').replace('"b_j"', '"base_joint"')
    topology = read(text).model.topology
    assert topology.joint_names == ("base_joint", "b")
    free = read(text.replace('<link name="base"/>', f'<link name="base">{BODY}</link>'), base="free").model.topology
    assert free.joint_names == ("base_joint_", "base_joint", "b")  # the one of the free base makes way


def test_a_mimic_of_a_fixed_joint_is_named(read):
    weld = body("c", '<mimic joint="b_j"/><axis xyz="0 0 0"/><limit/><dynamics damping="1"/>', "fixed", "b")
    with pytest.warns(IgnoredContent, match=r"ignored <mimic> in <joint> \(line 6\)$"):
        assert read(robot(body("b"), weld)).constraints == ()


TRANSMISSION = (
    '<transmission><type>interface/{2}</type><joint name="{0}"><hardwareInterface>interface/{3}</hardwareInterface></joint>'
    '<actuator name="{1}"><mechanicalReduction>{4}</mechanicalReduction></actuator></transmission>'
)


def test_transmissions_are_drives_in_their_order(read):
    given = (
        ("c_j", "m2", "SimpleTransmission", "EffortJointInterface", "-50.5"),
        ("b_j", "m1", "SimpleTransmission", "PositionJointInterface", "ratio"),
        ("d_j", "m3", "HalfDifferentialTransmission", "EffortJointInterface", "2"),
        ("e_j", "m4", "SimpleTransmission", "JointStateInterface", "2"),
        ("x_j", "m5", "SimpleTransmission", "EffortJointInterface", "2"),
        ("e_j", "m2", "SimpleTransmission", "EffortJointInterface", "3"),
    )
    parts = [*(body(name) for name in "bcdef"), *(TRANSMISSION.format(*words) for words in given)]
    assert read(robot(*parts[:6], '<jaxdyn><drives joints="none"/></jaxdyn>')).nu == 0
    with pytest.warns(IgnoredContent) as caught:
        system = read(robot(*parts))
    assert system.drives.names == ("m2", "m1", "d_j")
    tau = system.drives.forces(system.model, jnp.zeros(5), jnp.zeros(5), jnp.arange(1.0, 4.0))
    np.testing.assert_array_equal(tau, [2.0, -50.5, 3.0, 0.0, 0.0])
    for said in (
        "/PositionJointInterface, whose",
        "'ratio', which is",
        "/HalfDifferentialTransmission, whose",
        "'x_j', which has",
        "'m2', which is not the first",
    ):
        assert said in str(caught[0].message)
    ratio = "<mechanicalReduction>2</mechanicalReduction>"
    plain = TRANSMISSION.format(*given[0]).replace("<mechanicalReduction>-50.5</mechanicalReduction>", "")
    inside = read(robot(*parts[:5], plain.replace("</joint>", f"{ratio}</joint>")))
    (motor,) = inside.drives.descriptions(inside.model)
    assert motor.joints == {"c_j": (2.0,)}
