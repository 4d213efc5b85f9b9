"""The builder: bodies in any order, fixed joints merged, and every wrong value refused with its name and a remedy."""

import inspect

import jax.numpy as jnp
import numpy as np
import pytest
from random_trees import random_inertia, random_unit

import jaxdyn
from jaxdyn import (
    Fixed,
    Free,
    MechanismBuilder,
    MechanismError,
    Model,
    Planar,
    Prismatic,
    Revolute,
    Spherical,
    Universal,
    UnknownName,
)
from jaxdyn.mechanism import Joint
from jaxdyn.spatial import quaternion

HINGE = Revolute((0.0, 0.0, 1.0))
ROD = {"joint": HINGE, "mass": 1.0, "inertia": (0.1, 0.1, 0.1)}


def with_rod(**changes) -> MechanismBuilder:
    builder = MechanismBuilder("arm")
    builder.add_body("rod", **(ROD | changes))
    return builder


def assert_refused(call, *fragments: str) -> None:
    with pytest.raises((MechanismError, UnknownName)) as caught:
        call()
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert all(fragment in message for fragment in fragments), message


def test_bodies_may_come_in_any_order():
    names = ["hand", "arm", "finger", "base"]
    parents = {"hand": "arm", "arm": "base", "finger": "hand", "base": "ground"}
    builder = MechanismBuilder()
    for i, name in enumerate(names):
        builder.add_body(name, parent=parents[name], **(ROD | {"mass": float(i + 1)}))
    model = builder.build()
    assert model.topology.body_names == ("base", "arm", "hand", "finger")
    assert model.topology.parents == (-1, 0, 1, 2)
    np.testing.assert_array_equal(model.mass, [4.0, 2.0, 1.0, 3.0])


def test_bodies_keep_the_order_in_which_they_are_added_where_parents_allow():
    builder = MechanismBuilder()
    for name, parent in [("a", "ground"), ("b", "d"), ("c", "a"), ("d", "ground"), ("e", "ground")]:
        builder.add_body(name, parent=parent, **ROD)
    assert builder.build().topology.body_names == ("a", "c", "d", "b", "e")


def test_fixed_joint_merges_mass_and_inertia_by_the_parallel_axis_theorem():
    """Three parts, two of them welded on one after the other: mass, first moment and inertia about the hinge add up."""
    rng = np.random.default_rng(1)
    builder = MechanismBuilder()
    mass, moment, tensor = 0.0, np.zeros(3), np.zeros((3, 3))
    rotation, origin, parent = np.eye(3), np.zeros(3), "ground"
    for name in ("base", "plate", "screw"):
        m = rng.uniform(1.0, 2.0)
        com, inertia = random_inertia(rng, m, 0.3)
        at, turn = (np.zeros(3), np.eye(3)) if name == "base" else (rng.normal(size=3), None)
        if turn is None:
            unit = random_unit(rng, 4)
            turn = np.asarray(quaternion.to_matrix(jnp.asarray(unit)))
        joint = HINGE if name == "base" else Fixed()
        builder.add_body(
            name, parent=parent, joint=joint, position=at, orientation=turn, mass=m, com=com, inertia=inertia
        )
        origin, rotation, parent = origin + rotation @ at, rotation @ turn, name
        c = origin + rotation @ com
        mass, moment = mass + m, moment + m * c
        tensor = tensor + rotation @ inertia @ rotation.T + m * (c @ c * np.eye(3) - np.outer(c, c))
    model = builder.build()
    com = moment / mass
    about_com = tensor - mass * (com @ com * np.eye(3) - np.outer(com, com))
    six = about_com[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
    # Sums of a handful of numbers of order 1.
    np.testing.assert_allclose(model.mass, [mass], rtol=1e-14)
    np.testing.assert_allclose(model.com, [com], rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(model.inertia, [six], rtol=1e-13, atol=1e-13)
    assert model.topology.body_names == ("base",)
    assert model.topology.frame_names == ("plate", "screw")
    np.testing.assert_allclose(model.frames.translation[1], origin, atol=1e-13)
    np.testing.assert_allclose(model.frames.rotation[1], rotation, atol=1e-13)


def test_what_is_welded_to_a_welded_body_moves_with_its_carrier():
    builder = MechanismBuilder()
    builder.add_body("rod", **ROD)
    builder.add_body("bracket", parent="rod", joint=Fixed(), position=(0, 0, 1), orientation=(0, 1, 0, 0))
    builder.add_body("wheel", parent="bracket", position=(0, 0, 1), **ROD)
    builder.add_body("stand", joint=Fixed(), position=(5, 0, 0), mass=3.0)  # in the ground: its mass moves nothing
    builder.add_frame("rim", body="bracket", position=(1, 2, 3))
    builder.add_frame("lamp", body="stand", position=(0, 1, 0))
    model = builder.build()
    assert model.topology.parents == (-1, 0)
    assert model.topology.frame_bodies == (0, -1, 0, -1)
    # Half a turn about x: (x, y, z) of the bracket is (x, -y, 1 - z) of the rod.
    np.testing.assert_allclose(model.placement.translation[1], [0, 0, 0], atol=1e-15)
    for name, point, body, expected in [
        ("rim", (0, 0, 0), 0, (1, -2, -2)),
        ("bracket", (1, 1, 1), 0, (1, -1, 0)),
        ("lamp", (0, 0, 1), -1, (5, 1, 1)),
        ("ground", (1, 2, 3), -1, (1, 2, 3)),
        ("wheel", (1, 2, 3), 1, (1, 2, 3)),
    ]:
        carrier, located = model.locate(name, jnp.asarray(point, float))
        assert carrier == body
        np.testing.assert_allclose(located, expected, atol=1e-15)
    np.testing.assert_array_equal(model.mass, [1.0, 1.0])


def test_three_ways_to_write_inertia_and_two_ways_to_write_orientation_agree():
    def model(inertia, orientation) -> Model:
        return with_rod(inertia=inertia, orientation=orientation).build()

    half = np.sqrt(0.5)
    turned = model((0.1, 0.2, 0.25), (half, 0, 0, half))
    by_matrix = model(np.diag([0.1, 0.2, 0.25]), [[0, -1, 0], [1, 0, 0], [0, 0, 1]])
    np.testing.assert_allclose(turned.inertia, by_matrix.inertia, rtol=1e-15)
    np.testing.assert_allclose(turned.placement.rotation, by_matrix.placement.rotation, atol=1e-15)
    full = model((0.1, 0.2, 0.25, 0.01, 0.02, 0.03), (1, 0, 0, 0))
    as_matrix = model([[0.1, 0.01, 0.02], [0.01, 0.2, 0.03], [0.02, 0.03, 0.25]], (1, 0, 0, 0))
    np.testing.assert_array_equal(full.inertia, as_matrix.inertia)


def test_numbers_have_the_type_that_is_asked_for():
    builder = with_rod()
    assert builder.build().dtype == jnp.float64  # the default, as conftest.py sets it
    model = builder.build(dtype=jnp.float32)
    assert {x.dtype for x in (model.mass, model.placement.quaternion, model.joints[0].axis, model.gravity)} == {
        jnp.dtype("float32")
    }


def test_limits_and_armature_are_per_joint_and_infinite_or_zero_if_not_given():
    builder = with_rod(armature=0.5, position_limits=(-1, 2), velocity_limit=3.0, effort_limit=4.0)
    builder.add_body("slide", joint=Prismatic((1.0, 0.0, 0.0)), mass=1.0)
    model = builder.build()
    np.testing.assert_array_equal(model.armature, [0.5, 0.0])
    np.testing.assert_array_equal(model.limits.lower, [-1, -np.inf])
    np.testing.assert_array_equal(model.limits.upper, [2, np.inf])
    np.testing.assert_array_equal(model.limits.velocity, [3, np.inf])
    np.testing.assert_array_equal(model.limits.effort, [4, np.inf])


def test_planar_and_point_bodies_are_physical():
    """Equality in the triangle inequality is a flat body, and no inertia at all is a particle."""
    with_rod(com=(0.1, 0.0, 0.0), inertia=(0.1, 0.2, 0.3)).build()
    with_rod(com=(0.1, 0.0, 0.0), inertia=(0.1, 0.1, 0.0)).build()
    with_rod(com=(0.1, 0.0, 0.0), inertia=(0.0, 0.0, 0.0)).build()


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"mass": -2.0}, ["body 'rod': mass is -2 kg; a mass must be"]),
        ({"mass": np.nan}, ["body 'rod': mass is nan; give finite values"]),
        ({"mass": "heavy"}, ["body 'rod': mass is 'heavy'; give numeric values"]),
        ({"mass": [1.0, 2.0]}, ["body 'rod': mass has shape (2,); give one value"]),
        ({"com": (0, 0)}, ["body 'rod': com has shape (2,); give 3 values"]),
        ({"com": (0, 0, np.inf)}, ["body 'rod': com is [0.0, 0.0, inf]; give finite values"]),
        ({"position": (1, 2)}, ["body 'rod': position has shape (2,); give 3 values"]),
        ({"position": None}, ["body 'rod': position", "give"]),
        ({"orientation": (1, 1, 0, 0)}, ["body 'rod': orientation quaternion has norm 1.41421; divide it by its norm"]),
        ({"orientation": (0, 0, 0, 0)}, ["body 'rod': orientation quaternion has norm 0"]),
        ({"orientation": (1, 0, 0)}, ["body 'rod': orientation has shape (3,); give 4 values"]),
        ({"orientation": -np.eye(3)}, ["body 'rod': orientation is not a rotation matrix", "check its signs"]),
        ({"orientation": 2 * np.eye(3)}, ["body 'rod': orientation is not a rotation matrix"]),
        ({"inertia": (1, 2)}, ["body 'rod': inertia has shape (2,); give 3 x 3 values"]),
        ({"inertia": (1, 1, np.nan)}, ["body 'rod': inertia is [1.0, 1.0, nan]; give finite values"]),
        ({"inertia": (1, 1, 1, 0, 0, "x")}, ["body 'rod': inertia is", "give numeric values"]),
        (
            {"inertia": [[1, 0.1, 0], [0, 1, 0], [0, 0, 1]]},
            ["body 'rod': inertia matrix is not symmetric; give 6 entries (xx, yy, zz, xy, xz, yz)"],
        ),
        ({"inertia": (1, 1, 3)}, ["body 'rod': principal moments of inertia 1, 1, 3 kg m^2", "check units"]),
        ({"inertia": (1, 1, 1, 0, 0, 0.9)}, ["body 'rod': principal moments of inertia 0.1, 1, 1.9 kg m^2"]),
        ({"inertia": (-0.1, 0.1, 0.1)}, ["body 'rod': principal moments of inertia -0.1", "none negative"]),
        ({"mass": 0.0}, ["body 'rod': it has inertia but mass 0 kg; give its mass, or use armature for a rotor"]),
        ({"armature": -1.0}, ["body 'rod': armature is -1.0; a rotor inertia must be"]),
        ({"armature": np.nan}, ["body 'rod': armature is nan; give finite values"]),
        ({"position_limits": (1, 1)}, ["body 'rod': position_limits are (1, 1); give (lower, upper) with lower < upper"]),
        ({"position_limits": (2, -2)}, ["body 'rod': position_limits are (2, -2)"]),
        ({"position_limits": 1.0}, ["body 'rod': position_limits has shape (); give 2 values"]),
        ({"velocity_limit": 0.0}, ["body 'rod': velocity_limit is 0.0; give a positive value"]),
        ({"effort_limit": -1.0}, ["body 'rod': effort_limit is -1.0; give a positive value"]),
        ({"effort_limit": float("nan")}, ["body 'rod': effort_limit is nan; give a positive value"]),
        ({"joint": Revolute((0.0, 0.0, 0.0))}, ["the revolute joint of body 'rod': its axis is zero; give a unit vector"]),
        ({"joint": Prismatic((0.0, 3.0, 4.0))}, ["prismatic joint of body 'rod': its axis has length 5", "(0.0, 0.6, 0.8)"]),
        ({"joint": Revolute((0.0, jnp.nan, 0.0))}, ["its axis is [0.0, nan, 0.0]; give three finite components"]),
        ({"joint": Revolute(jnp.eye(3))}, ["its axis is [[1.0, 0.0, 0.0],", "three finite components"]),
    ],
)  # fmt: skip
def test_refusal_of_a_value_names_the_body_and_the_remedy(changes, fragments):
    assert_refused(lambda: with_rod(**changes), *fragments)


@pytest.mark.filterwarnings("ignore::jaxdyn.mechanism.messages.ImplausibleInertia")
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_whether_an_inertia_is_symmetric_does_not_depend_on_its_size(unit):
    inertia = np.array([[1.0, 0.1, 0.0], [0.1, 1.0, 0.0], [0.0, 0.0, 1.0]])
    with_rod(inertia=unit * (inertia + 1e-10 * np.eye(3, k=2))).build()
    assert_refused(
        lambda: with_rod(inertia=unit * (inertia + 1e-8 * np.eye(3, k=2))), "inertia matrix is not symmetric"
    )


@pytest.mark.parametrize("name", ["rod\x1b[2J\n", 10_000 * "rod"])
def test_a_message_that_quotes_any_name_is_one_short_line(name):
    with pytest.raises(MechanismError) as caught:
        MechanismBuilder("arm").add_body(name, **(ROD | {"mass": -2.0}))
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 5000


def test_refusal_of_something_else_than_a_joint():
    # The annotation of `joint` is checked in tests only, so the check of the builder itself is called without it.
    add_body = inspect.unwrap(MechanismBuilder.add_body)
    builder = MechanismBuilder("arm")
    assert_refused(lambda: add_body(builder, "rod", joint="revolute"), "body 'rod': joint is 'revolute'; give a Joint")


def test_refusal_of_names_names_both_and_the_remedy():
    builder = with_rod()
    builder.add_frame("tip", body="rod")
    for name in ("rod", "tip"):
        assert_refused(
            lambda name=name: builder.add_body(name, **ROD), f"two bodies or frames called '{name}'; rename one"
        )
        assert_refused(lambda name=name: builder.add_frame(name, body="rod"), f"called '{name}'; rename one")
    assert_refused(
        lambda: builder.add_body("ground", **ROD), 'a body or frame cannot be called "ground"', "choose another name"
    )
    assert_refused(lambda: builder.add_frame("ground", body="rod"), 'a body or frame cannot be called "ground"')
    assert_refused(
        lambda: builder.add_body("other", joint_name="rod_joint", **ROD),
        "body 'other': there are two joints called 'rod_joint'; rename one",
    )
    assert_refused(
        lambda: builder.add_frame("eye", body="rod", position=(1, 2)), "frame 'eye': position has shape (2,)"
    )


def test_refusal_of_gravity_names_the_mechanism():
    assert_refused(
        lambda: MechanismBuilder("arm", gravity=9.81), "mechanism 'arm': gravity has shape (); give 3 values"
    )


def test_refusal_of_the_tree_names_the_bodies_and_the_remedy():
    builder = with_rod()
    builder.add_body("hand", parent="rodd", **ROD)
    assert_refused(builder.build, "'hand': its parent: there is no body 'rodd' (did you mean 'rod'?)")

    builder = with_rod()
    builder.add_frame("tip", body="xyz")
    assert_refused(builder.build, "'tip': its body: there is no body 'xyz'; use one of ground, rod")


def test_a_parent_that_is_a_number_is_refused(as_a_user):
    builder = with_rod(parent=3)
    assert_refused(builder.build, "'rod': its parent: there is no body 3; use one of ground, rod")

    builder = with_rod()
    builder.add_body("a", parent="b", **ROD)
    builder.add_body("b", parent="a", **ROD)
    assert_refused(builder.build, "mechanism 'arm': bodies a, b are their own ancestors", "leads to the ground")

    assert_refused(MechanismBuilder("arm").build, "mechanism 'arm' has no moving body; add a body with a joint")
    builder = MechanismBuilder("arm")
    builder.add_body("post", joint=Fixed(), mass=1.0)
    assert_refused(builder.build, "mechanism 'arm' has no moving body")


def test_joint_that_moves_nothing_is_refused_and_each_remedy_helps():
    def chain(**last) -> MechanismBuilder:
        builder = with_rod()
        builder.add_body("wrist", parent="rod", joint=HINGE)
        builder.add_body("finger", parent="wrist", **({"joint": HINGE} | last))
        return builder

    assert_refused(chain().build, "body 'wrist': no body beyond its joint has mass", "give the body a mass")
    assert_refused(chain(armature=1.0).build, "body 'wrist'")
    assert_refused(chain(joint=Fixed()).build, "body 'wrist'")
    assert_refused(chain(mass=1.0).build, "body 'wrist'")  # its axis is that of the finger
    beyond = chain(mass=1.0, com=(0.1, 0.0, 0.0), position=(0.2, 0.0, 0.0))
    assert beyond.build().nb == 3  # a massless body may carry others


def test_joint_of_the_user_may_state_its_own_problem():
    class Stiff(Revolute):
        def validate(self):
            return "it is rusty; oil it"

    assert issubclass(Stiff, Joint)
    assert_refused(lambda: with_rod(joint=Stiff((0.0, 0.0, 1.0))), "the stiff joint of body 'rod': it is rusty; oil it")


def test_limits_and_armature_of_a_joint_with_several_coordinates_are_given_one_by_one_or_for_all():
    builder = MechanismBuilder()
    joint = jaxdyn.Cylindrical((0.0, 0.0, 1.0))
    limits = {"position_limits": [(-1.0, 1.0), (0.0, 0.3)], "velocity_limit": 2.0, "effort_limit": (5.0, 40.0)}
    builder.add_body("rod", joint=joint, mass=1.0, inertia=(0.1, 0.1, 0.1), armature=(0.01, 0.2), **limits)
    model = builder.build()
    assert model.limits.lower.tolist() == [-1.0, 0.0]
    assert model.limits.upper.tolist() == [1.0, 0.3]
    assert model.limits.velocity.tolist() == [2.0, 2.0]
    assert model.limits.effort.tolist() == [5.0, 40.0]
    assert model.armature.tolist() == [0.01, 0.2]


@pytest.mark.parametrize(
    ("joint", "limits", "message"),
    [
        (
            jaxdyn.Spherical(),
            {"position_limits": (-1, 1)},
            "body 'ball': position_limits do not apply to the quaternion",
        ),
        (jaxdyn.Free(), {"effort_limit": (1.0, 2.0)}, r"body 'ball': effort_limit has shape \(2,\); give 6 values"),
        (jaxdyn.Planar(), {"position_limits": [(0, 1), (0, 1), (1, 0)]}, r"position_limits are \(1, 0\); give \(lower"),
    ],
)
def test_limits_that_do_not_fit_the_joint_are_refused(joint, limits, message):
    with pytest.raises(MechanismError, match=message):
        MechanismBuilder().add_body("ball", joint=joint, mass=1.0, inertia=(0.1, 0.1, 0.1), **limits)


def chain_of(*bodies) -> MechanismBuilder:
    """A chain of bodies "0", "1", ..., each given by its joint and the options of `add_body`."""
    builder, parent = MechanismBuilder("chain"), "ground"
    for number, (joint, options) in enumerate(bodies):
        builder.add_body(str(number), parent=parent, joint=joint, **options)
        parent = str(number)
    return builder


X, Y, Z = np.eye(3)
POINT, BODY = {"mass": 1.0, "com": (0.0, 0.0, -0.3)}, {"mass": 1.0, "inertia": (0.1, 0.2, 0.3)}


@pytest.mark.parametrize(
    ("bodies", "motion"),
    [
        ([(Spherical(), POINT)], "of joint '0_joint' about (0, 0, 1)"),
        ([(Free(), {"mass": 1.0})], "of joint '0_joint' about"),
        ([(Revolute(Y), {"mass": 1.0, "com": (0.0, 0.3, 0.0)})], "of joint '0_joint' about (0, 1, 0)"),
        ([(Planar(), {"mass": 1.0})], "of joint '0_joint' about (0, 0, 1)"),
        ([(Revolute(X), {}), (Revolute(Y), {}), (Revolute(Z), POINT)], "of joint '2_joint' about (0, 0, 1)"),
        (
            [(Prismatic(X), {}), (Prismatic(X), BODY)],
            "of joint '0_joint' along (1, 0, 0) together with the motion of joint '1_joint' along (-1, 0, 0)",
        ),
        (
            [(Prismatic(X), {}), (Prismatic(Y), {}), (Prismatic(Z), {}), (Prismatic((0.6, 0.8, 0.0)), BODY)],
            "of joint '0_joint' along",
        ),
    ],
)
def test_motion_that_no_inertia_resists_is_refused_by_joint_and_direction(bodies, motion):
    assert_refused(chain_of(*bodies).build, f"no inertia resists the motion {motion}", "armature")


@pytest.mark.parametrize(
    "bodies",
    [
        [(Revolute(X), {}), (Revolute(Y), BODY), (Revolute(Z), {}), (Revolute(X), BODY)],
        [(Revolute(X), BODY), (Revolute(Y), {}), (Revolute(X), BODY)],  # a cross without mass between two shafts
        [(Universal(X, Y), POINT)],
        [(Spherical(), POINT | {"armature": (0.0, 0.0, 1e-3)})],
        [(Spherical(), POINT | {"inertia": (1e-9, 1e-9, 1e-9)})],
        [(Revolute(Y), {"mass": 1.0, "com": (0.0, 0.0, -1e-4), "position": (1000.0, 0.0, 0.0)})],
    ],
)
def test_bodies_without_inertia_are_accepted_where_all_motions_are_resisted(bodies):
    model = chain_of(*bodies).build(dtype=np.float64)
    q = jaxdyn.configuration.integrate(model, jaxdyn.configuration.neutral(model), 0.7 * jnp.ones(model.nv))
    assert np.all(np.isfinite(jaxdyn.forward_dynamics(model, q, jnp.zeros(model.nv), jnp.ones(model.nv))))
