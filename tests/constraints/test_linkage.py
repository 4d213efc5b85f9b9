"""Linkages described as graphs: any cut gives the same motion, reversed joints are the same joints, and errors say what to do."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from random_trees import random_inertia, random_joint, random_unit
from scipy.spatial.transform import Rotation

import jaxdyn
from jaxdyn import (
    ConstantRate,
    Cylindrical,
    Fixed,
    Free,
    LinkageBuilder,
    MechanismError,
    Planar,
    Prismatic,
    Revolute,
    Rheonomic,
    Screw,
    Spherical,
    State,
    System,
    Universal,
    UnknownName,
)
from jaxdyn.dynamics import kinematics
from jaxdyn.mechanism import Joint
from jaxdyn.spatial.transform import RigidTransform

UNMOVED = RigidTransform(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
HINGE, SLIDE = Revolute((0, 1, 0)), Prismatic((1, 0, 0))


def moving(system: System, names, q, v, t=0.0):
    """Placements in the ground of bodies and frames by name (rows of R, p), and velocities and accelerations of their carriers."""
    model = system.model.at(jnp.asarray(t))
    carriers, frames = zip(*(model.locate_frame(name, UNMOVED) for name in names), strict=True)
    frames = jax.tree.map(lambda *x: jnp.stack(x), *frames)
    bodies = jax.tree.map(lambda x: x[jnp.array(carriers)], jaxdyn.forward_kinematics(model, q))
    placed = jax.vmap(RigidTransform.compose)(bodies, frames)
    a = jaxdyn.acceleration(system, State(q, v), t=t)
    motions = (*jaxdyn.mass_center_velocities(model, q, v), *jaxdyn.dynamics.mass_center_accelerations(model, q, v, a))
    return placed.rotation, placed.translation, *(x[jnp.array(carriers)] for x in motions)


def coordinates(system: System, **values) -> jnp.ndarray:
    """Coordinates (or velocities) of joints of one coordinate by the names of the joints."""
    return jnp.stack([values[name] for name in system.model.topology.joint_names])


def body_values(rng: np.random.Generator, mass: float) -> dict:
    com, inertia = random_inertia(rng, mass, 0.3)
    return {"mass": mass, "com": com, "inertia": inertia}


# --- the same mechanism, cut in different ways ---


def four_bar() -> LinkageBuilder:
    """Crank, coupler of two halves welded together, rocker; every frame of a body somewhere else than at its joints."""
    builder = LinkageBuilder("four-bar")
    builder.add_body("crank", mass=0.5, com=(0.15, 0, 0.1), inertia=(0.0, 0.01, 0.01))
    builder.add_body("left", mass=0.4, com=(0.1, 0, 0), inertia=(0.0, 0.02, 0.02))
    builder.add_body("right", mass=0.6, com=(0, 0, 0.2), inertia=(0.0, 0.02, 0.02))
    builder.add_body("rocker", mass=0.7, com=(0.3, 0, 0), inertia=(0.01, 0.03, 0.02))
    builder.add_joint("bearing", HINGE, "ground", "crank", position_b=(0.05, 0, 0))
    builder.add_joint("crankpin", HINGE, "crank", "left", position_a=(0.35, 0, 0), position_b=(-0.2, 0, 0))
    quarter = Rotation.from_euler("y", 90, degrees=True).as_matrix()
    builder.add_joint("weld", Fixed(), "left", "right", position_a=(0.2, 0, 0), orientation_a=quarter)
    # The frame of the joint on the right half is turned back, so that all angles count from one direction.
    builder.add_joint(
        "pin", HINGE, "right", "rocker", position_a=(0, 0, 0.4), orientation_a=quarter.T, position_b=(0.6, 0, 0.1)
    )
    builder.add_joint("pivot", HINGE, "rocker", "ground", position_a=(0, 0, 0.1), position_b=(1.0, 0, 0))
    builder.add_frame("tip", body="right", position=(0.1, 0.2, 0.3), orientation=(0.6, 0, 0.8, 0))
    return builder


@pytest.mark.thorough
def test_two_cuts_of_a_four_bar_give_the_same_motion():
    names = ("crank", "rocker", "tip", "left", "right")
    chosen = four_bar().build()
    assert [constraint.name for constraint in chosen.constraints] == ["pin"]
    assert chosen.model.topology.joint_names == ("bearing", "crankpin", "pivot")
    start = coordinates(chosen, bearing=jnp.array(-0.7), crankpin=jnp.array(0.1), pivot=jnp.array(2.0))
    found = jax.jit(jaxdyn.assemble)(chosen, chosen.at_rest(start))
    assert bool(found.closed)
    assert int(found.mobility) == 1
    v = jax.jit(jaxdyn.project_velocity)(chosen, State(found.q, jnp.array([2.0, -1.0, 0.5])))
    expected = jax.jit(lambda q, v: moving(chosen, names, q, v))(found.q, v)
    assert np.abs(expected[-1]).max() > 1.0

    # Round the loop all angles add up to nothing: the pin's is known without an equation of its own.
    known = {name: (found.q[i], v[i]) for i, name in enumerate(chosen.model.topology.joint_names)}
    known["pin"] = -found.q.sum(), -v.sum()
    system = four_bar().build(cut=("bearing",))  # the tree meets every joint from its other side
    assert [constraint.name for constraint in system.constraints] == ["bearing"]
    q, v = (coordinates(system, **{name: pair[i] for name, pair in known.items()}) for i in (0, 1))
    actual = jax.jit(lambda q, v: moving(system, names, q, v))(q, v)
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-7)
    assert "bearing: revolute loop joint between ground and crank/crankpin" in system.summary()


def homogeneous(rng: np.random.Generator) -> np.ndarray:
    matrix = np.eye(4)
    matrix[:3, :3] = Rotation.from_quat(random_unit(rng, 4)).as_matrix()
    matrix[:3, 3] = rng.normal(0.0, 0.5, 3)
    return matrix


def placed(matrix: np.ndarray, suffix: str = "") -> dict:
    return {f"position{suffix}": matrix[:3, 3], f"orientation{suffix}": matrix[:3, :3]}


# --- reversed joints ---

REVERSIBLE = ["R", "P", "H", "C", "U", "S", "L", "F", "r", "c"]


@pytest.mark.thorough
def test_reversed_joints_move_as_the_joints_themselves():
    """A chain with a joint of every kind floats by its first body, and by its last: then all its joints are reversed."""
    rng = np.random.default_rng(8)
    joints = [random_joint(rng, kind) for kind in REVERSIBLE]
    names = [f"body {i}" for i in range(len(joints) + 1)]
    bodies = {name: body_values(rng, 1.0) for name in names}
    frames = [(homogeneous(rng), homogeneous(rng)) for _ in joints]

    def chain(held: str) -> System:
        builder = LinkageBuilder()
        for name, values in bodies.items():
            builder.add_body(name, **values)
        builder.add_joint("float", Free(), "ground", held)
        for i, (joint, (a, b)) in enumerate(zip(joints, frames, strict=True)):
            builder.add_joint(str(i), joint, names[i], names[i + 1], **placed(a, "_a"), **placed(b, "_b"))
        return builder.build()

    forward, backward = chain(names[0]), chain(names[-1])
    order = backward.model.topology.joint_names
    starts = dict(zip(forward.model.topology.joint_names, forward.model.topology.q_starts, strict=True))

    def reversed_coordinates(q, t):
        held = jaxdyn.frame_placement(forward.model.at(t), q, names[-1])
        parts = {"float": jnp.concatenate([held.translation, held.quaternion])}
        for i, joint in enumerate(joints):
            parts[str(i)] = joint.reversed_coordinates(q[starts[str(i)] : starts[str(i)] + joint.nq])
        return jnp.concatenate([parts[name] for name in order])

    @jax.jit
    def both(q, v, t):
        along = jaxdyn.configuration.coordinate_rate(forward.model.at(t), q, v), jnp.ones_like(t)
        back_q, rate = jax.jvp(reversed_coordinates, (q, t), along)
        back_v = jaxdyn.configuration.velocity_of_rate(backward.model.at(t), back_q, rate)
        return moving(forward, names, q, v, t), moving(backward, names, back_q, back_v, t)

    q, v = (jnp.asarray(rng.normal(size=n)) for n in (forward.model.nq, forward.model.nv))
    for one, other in zip(*both(q, v, jnp.array(0.3)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("kind", REVERSIBLE)
def test_reverse_of_a_joint_is_the_inverse_placement(kind):
    rng = np.random.default_rng(2)
    joint = random_joint(rng, kind)
    inverse = joint.reversed()
    assert inverse is not None
    q = jnp.asarray(rng.normal(size=joint.nq))

    @jax.jit
    def both(q):
        there, back = joint.transform(q), inverse.transform(joint.reversed_coordinates(q))
        return there.inverse().rotation, there.inverse().translation, back.rotation, back.translation

    expected_turn, expected_shift, turn, shift = both(q)
    np.testing.assert_allclose(turn, expected_turn, atol=1e-13)
    np.testing.assert_allclose(shift, expected_shift, atol=1e-13)


def test_armature_and_limits_go_along_with_the_coordinates_of_a_reversed_joint():
    builder = LinkageBuilder()
    builder.add_body("arm", mass=1.0, inertia=(1, 1, 1))
    builder.add_joint(
        "cross",
        Universal((1, 0, 0), (0, 1, 0)),
        "arm",
        "ground",
        armature=(0.1, 0.2),
        position_limits=((-1, 2), (-3, 4)),
        velocity_limit=(5, 6),
    )
    model = builder.build().model
    np.testing.assert_array_equal(model.armature, [0.2, 0.1])
    np.testing.assert_array_equal(model.limits.lower, [-3, -1])
    np.testing.assert_array_equal(model.limits.upper, [4, 2])
    np.testing.assert_array_equal(model.limits.velocity, [6, 5])
    np.testing.assert_array_equal(model.limits.effort, [np.inf, np.inf])


# --- cut joints ---

slanted = random_unit(np.random.default_rng(0))
across = np.cross(slanted, (0.0, 0.6, 0.8)) / np.linalg.norm(np.cross(slanted, (0.0, 0.6, 0.8)))
CLOSING = [
    Revolute((0, 1, 0)),
    Revolute(slanted),
    Prismatic(slanted),
    Cylindrical((0, 0, -1)),
    Universal(slanted, across),
    Spherical(),
    Planar(slanted, across),
    Fixed(),
]


@pytest.mark.parametrize("joint", CLOSING, ids=lambda joint: type(joint).__name__)
def test_cut_joint_leaves_the_freedom_of_the_joint(joint):
    rng = np.random.default_rng(6)
    frames = homogeneous(rng), homogeneous(rng)
    builder = LinkageBuilder()
    builder.add_body("body", mass=1.0, inertia=(1, 1, 1))
    builder.add_joint("float", Free(), "ground", "body")
    builder.add_joint("closing", joint, "ground", "body", **placed(frames[0], "_a"), **placed(frames[1], "_b"))
    system = builder.build()
    (loop,) = system.constraints
    in_ground, in_body = (
        RigidTransform(jnp.asarray(Rotation.from_matrix(x[:3, :3]).as_quat(scalar_first=True)), jnp.asarray(x[:3, 3]))
        for x in frames
    )

    @jax.jit
    def equations(q):
        pose = in_ground.compose(joint.transform(q)).compose(in_body.inverse())
        pose = jnp.concatenate([pose.translation, pose.quaternion])
        at = kinematics.placements(system.model, pose).poses
        return loop.residual(system.model, pose, at), loop.branches(system.model, pose, at)

    residual, branches = equations(jnp.asarray(rng.normal(size=joint.nq)))
    np.testing.assert_allclose(residual, np.zeros(6 - joint.nv), atol=1e-12)
    if branches is not None:  # cosines of the angles between axes that the joint keeps parallel
        np.testing.assert_allclose(branches, 1.0, atol=1e-12)


def ring(gap: float = 0.0) -> LinkageBuilder:
    """Three plates welded in a ring, the first one on a hinge."""
    builder = LinkageBuilder("ring")
    for name in "abc":
        builder.add_body(name, mass=1.0, inertia=(1, 1, 1))
    builder.add_joint("hinge", HINGE, "ground", "a")
    builder.add_joint("ab", Fixed(), "a", "b", position_a=(1, 0, 0))
    builder.add_joint("bc", Fixed(), "b", "c", position_a=(0, 1, 0))
    builder.add_joint("ca", Fixed(), "c", "a", position_a=(0, 0, 1), position_b=(1, 1, 1 + gap))
    return builder


def test_weld_that_closes_a_ring_is_left_out_if_it_fits():
    system = ring().build()
    assert system.constraints == ()
    assert system.model.topology.body_names == ("a",)
    np.testing.assert_allclose(system.model.mass, [3.0])
    refused(
        lambda: ring(gap=0.01).build(),
        "joint 'bc': 'b' and 'c' are parts of one rigid body, and its frames do not coincide; correct their positions and "
        "orientations, or remove the joint",
    )


class Rail(Joint):
    """A joint of a user, of whose reverse nothing is known."""

    nq: ClassVar[int] = 1
    nv: ClassVar[int] = 1
    velocity_is_rate: ClassVar[bool] = True

    def transform(self, q: Float[Array, "1"]) -> RigidTransform:
        return SLIDE.transform(q)

    def motion_subspace(self, q: Float[Array, "1"]) -> Float[Array, "6 1"]:
        return SLIDE.motion_subspace(q)

    def integrate(self, q: Float[Array, "1"], step: Float[Array, "1"]) -> Float[Array, "1"]:
        return q + step

    def difference(self, q0: Float[Array, "1"], q1: Float[Array, "1"]) -> Float[Array, "1"]:
        return q1 - q0

    def neutral(self) -> Float[np.ndarray, "1"]:
        return np.zeros(1)


# --- the choice ---


def linkage(*joints, **options) -> LinkageBuilder:
    """Bodies of all names that (name, joint, body_a, body_b) mention; options of add_joint by the name of the joint."""
    builder = LinkageBuilder("graph")
    for body in dict.fromkeys(body for joint in joints for body in joint[2:] if body != "ground"):
        builder.add_body(body, mass=1.0, inertia=(1, 1, 1))
    for joint in joints:
        builder.add_joint(*joint, **options.get(joint[0], {}))
    return builder


def loop_of(**joints) -> list:
    """A loop from the ground through bodies x, y, ... and back."""
    bodies = ["ground", *"xyzuvw"[: len(joints) - 1], "ground"]
    return [(name, joint, *bodies[i : i + 2]) for i, (name, joint) in enumerate(joints.items())]


MOTOR = {"armature": 0.1}
FREEST = loop_of(a=HINGE, b=Cylindrical((0, 1, 0)), c=Spherical(), d=Universal((1, 0, 0), (0, 1, 0)))
FREEST[2] = ("c", Spherical(), "z", "y")  # so that the tree need not reverse it, which limits do not allow
HINGES = loop_of(a=HINGE, b=HINGE, c=HINGE, d=HINGE)
TWO_LOOPS = [*HINGES, ("e", SLIDE, "x", "w"), ("f", SLIDE, "w", "z")]
CHOICES = {
    "a tree keeps its joints": (HINGES[:3], {}, []),
    "the joint of the most freedoms is cut": (FREEST, {}, ["c"]),
    "limits keep a joint": (FREEST, {"c": {"velocity_limit": 3.0}}, ["b"]),
    "an armature keeps a joint": (FREEST, {"c": MOTOR, "d": MOTOR}, ["b"]),
    "of equals the shallow tree, then the order": (HINGES, {}, ["c"]),
    "a motor on the ground moves no cut there": (HINGES, {"a": MOTOR}, ["c"]),
    "a motor elsewhere does": (HINGES, {"b": MOTOR, "c": MOTOR}, ["d"]),
    "a screw stays": (loop_of(a=HINGE, b=Screw((1, 0, 0), 0.1), c=HINGE), {}, ["c"]),
    "a joint of a user stays": (loop_of(a=HINGE, b=Rail(), c=HINGE), {}, ["c"]),
    "oblique axes stay": (loop_of(a=Universal((1, 0, 0), (0.6, 0.8, 0)), b=HINGE), {}, ["b"]),
    "a free joint gives coordinates": ([*loop_of(a=HINGE, b=HINGE, c=HINGE), ("float", Free(), "ground", "y")], {}, ["b", "c"]),
    "welds stay": (loop_of(a=HINGE, b=Fixed(), c=HINGE), {}, ["c"]),
    "one cut per loop": (TWO_LOOPS, {}, ["c", "f"]),
    "two joints between two bodies": ([("a", HINGE, "ground", "x"), ("b", Spherical(), "ground", "x")], {}, ["b"]),
}  # fmt: skip


@pytest.mark.parametrize("graph", CHOICES)
def test_joints_that_are_cut(graph):
    joints, options, expected = CHOICES[graph]
    system = linkage(*joints, **options).build()
    assert [constraint.name for constraint in system.constraints] == expected


def test_numbers_have_the_type_that_is_asked_for():
    builder = four_bar()
    system = builder.build(dtype=jnp.float32)
    assert {leaf.dtype for leaf in jax.tree.leaves(system)} == {jnp.dtype("float32")}


# --- errors ---


def refused(call, message: str) -> None:
    with pytest.raises((MechanismError, UnknownName)) as caught:
        call()
    assert str(caught.value) == message


def built(*joints, cut=None, **options):
    return lambda: linkage(*joints, **options).build(cut=cut)


def added(method: str, *arguments, then_build: bool = False, **options):
    def add():
        builder = linkage(*HINGES)
        builder.add_frame("mark", body="y")
        getattr(builder, method)(*arguments, **options)
        if then_build:
            builder.build()

    return add


REFUSALS = [
    (lambda: LinkageBuilder("x", gravity=9.81), "mechanism 'x': gravity has shape (); give 3 values"),
    (added("add_body", "ground"), 'a body or frame cannot be called "ground", which is the fixed world; choose another name'),
    (added("add_body", "x"), "there are two bodies or frames called 'x'; rename one"),
    (added("add_frame", "x", body="y"), "there are two bodies or frames called 'x'; rename one"),
    (added("add_body", "mark"), "there are two bodies or frames called 'mark'; rename one"),
    (added("add_frame", "mark", body="y"), "there are two bodies or frames called 'mark'; rename one"),
    (added("add_body", "heavy", mass=-1.0), "body 'heavy': mass is -1 kg; a mass must be positive or zero"),
    (added("add_joint", "a", HINGE, "x", "y"), "there are two joints called 'a'; rename one"),
    (added("add_joint", "e", HINGE, "x", "x"), "joint 'e' connects 'x' with itself; give two different bodies"),
    (added("add_joint", "e", Revolute((0, 0, 2)), "x", "y"),
     "the revolute joint 'e': its axis has length 2; give the unit vector (0.0, 0.0, 1.0)"),
    (added("add_joint", "e", HINGE, "x", "y", position_b=(1, 2)), "joint 'e' on body_b: position has shape (2,); give 3 values"),
    (
        added("add_joint", "e", HINGE, "x", "y", armature=-1.0),
        "joint 'e': armature is -1.0; a rotor inertia must be positive or zero",
    ),
    (added("add_joint", "e", HINGE, "x", "y", position_limits=(2, 1)),
     "joint 'e': position_limits are (2, 1); give (lower, upper) with lower < upper"),
    (added("add_joint", "e", HINGE, "x", "grund", then_build=True),
     "joint 'e': its body_b: there is no body 'grund' (did you mean 'ground'?); use one of ground, x, y, z"),
    (added("add_frame", "e", body="q", then_build=True), "frame 'e': its body: there is no body 'q'; use one of ground, x, y, z"),
    (added("add_body", "lost", then_build=True),
     "mechanism 'graph': no joints connect 'lost' to the ground; add a joint, for a floating body Free() between "
     "\"ground\" and 'lost'"),
    (built(*HINGES, cut="a"), "mechanism 'graph': cut is 'a'; give a tuple of names, ('a',)"),
    (built(*HINGES, cut=("e",)), "mechanism 'graph': cut: there is no joint 'e'; use one of a, b, c, d"),
    (built(*HINGES, cut=("a",), a=MOTOR),
     "mechanism 'graph': joint 'a' cannot be cut: it has an armature; cut another joint of its loop"),
    (built(*HINGES, cut=("a",), a={"effort_limit": 1.0}),
     "mechanism 'graph': joint 'a' cannot be cut: it has limits; cut another joint of its loop"),
    (built(*loop_of(a=Free(), b=HINGE), cut=("a",)),
     "mechanism 'graph': joint 'a' cannot be cut: it is free and imposes no constraint; cut another joint of its loop"),
    (built(*loop_of(a=Universal((1, 0, 0), (0.6, 0.8, 0)), b=HINGE), cut=("a",)),
     "mechanism 'graph': joint 'a' cannot be cut: loop joints cannot have oblique axes; cut another joint of its loop"),
    (built(*loop_of(a=Rheonomic(HINGE, ConstantRate(1.0)), b=HINGE), cut=("a",)),
     "mechanism 'graph': joint 'a' cannot be cut: there is no loop joint of kind 'rheonomic'; cut another joint of its loop"),
    (built(*HINGES, cut=()), "mechanism 'graph': the loop 'b', 'a', 'd', 'c' is still closed; cut one of its joints"),
    (built(*TWO_LOOPS, cut=("a",)), "mechanism 'graph': the loop 'b', 'c', 'f', 'e' is still closed; cut one of its joints"),
    (built(*HINGES, cut=("a", "c")),
     "mechanism 'graph': with 'a', 'c' cut, no joints connect 'x', 'y' to the ground; cut fewer joints or add some"),
    (built(*loop_of(a=HINGE, b=Screw((1, 0, 0), 0.1), c=HINGE, d=HINGE), a=MOTOR, c={"velocity_limit": 1.0}, d=MOTOR),
     "mechanism 'graph': no joint of the loop 'b', 'a', 'd', 'c' can be cut ('b': there is no loop joint of kind 'screw'; 'a': "
     "it has an armature; 'd': it has an armature; 'c': it has limits); change one of them to a kind that can be cut, without "
     "armature and limits"),
    (built(("rail", Rail(), "x", "ground")),
     "joint 'rail': its parent in the tree is body_b 'ground', so it would have to be reversed, but joints of kind 'rail' cannot "
     "be reversed; exchange body_a and body_b, with their positions and orientations"),
    (built(("ball", Spherical(), "x", "ground"), ball=MOTOR | {"effort_limit": 1.0}),
     "joint 'ball': its parent in the tree is body_b 'ground', so it would have to be reversed, but its armature and effort_limit "
     "would change meaning; exchange body_a and body_b, with their positions and orientations"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), REFUSALS, ids=range(len(REFUSALS)))
def test_refusal_says_what_is_wrong_and_what_to_do(call, message):
    refused(call, message)
