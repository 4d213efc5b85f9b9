"""Linkages described as graphs: any cut gives the same motion, reversed joints are the same joints, and errors say what to do."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_trees import random_inertia, random_joint, random_unit
from scipy.spatial.transform import Rotation

import jaxdyn
from jaxdyn import (
    ConstantRate,
    Coupling,
    Cylindrical,
    Distance,
    Fixed,
    Free,
    LinkageBuilder,
    LoopJoint,
    MechanismBuilder,
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
)
from jaxdyn.dynamics import multipliers
from jaxdyn.mechanism.joints import _WithRates
from jaxdyn.spatial.transform import RigidTransform

pytestmark = pytest.mark.usefixtures("fast_compilation")

HINGE, SLIDE = Revolute((0, 1, 0)), Prismatic((1, 0, 0))


def moving(system: System, names, q, v, t=0.0):
    """Placements (rows of R, p) in the ground of bodies and frames by name, their rates and their accelerations."""
    time = jnp.asarray(t)

    def placements(q, t):
        placed = [jaxdyn.frame_placement(system.model.at(t), q, name) for name in names]
        return jnp.stack([jnp.concatenate([x.rotation, x.translation[None]]) for x in placed])

    def rates(q, v, t):
        along = jaxdyn.configuration.coordinate_rate(system.model.at(t), q, v), jnp.ones_like(t)
        return jax.jvp(placements, (q, t), along)

    a = jaxdyn.acceleration(system, State(q, v), t=time)
    along = jaxdyn.configuration.coordinate_rate(system.model.at(time), q, v), a, jnp.ones_like(time)
    (placed, rate), (_, second) = jax.jvp(rates, (q, v, time), along)
    return placed, rate, second


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


def test_every_cut_of_a_four_bar_gives_the_same_motion():
    names = ("crank", "left", "right", "rocker", "tip")
    chosen = four_bar().build()
    assert [constraint.name for constraint in chosen.constraints] == ["pin"]
    assert chosen.model.topology.joint_names == ("bearing", "crankpin", "pivot")
    start = coordinates(chosen, bearing=jnp.array(-0.7), crankpin=jnp.array(0.1), pivot=jnp.array(2.0))
    found = jax.jit(jaxdyn.assemble)(chosen, start)
    assert bool(found.closed)
    assert int(found.mobility) == 1
    v = jax.jit(jaxdyn.project_velocity)(chosen, found.q, jnp.array([2.0, -1.0, 0.5]))
    expected = jax.jit(lambda q, v: moving(chosen, names, q, v))(found.q, v)
    assert np.abs(expected[2]).max() > 1.0

    # Round the loop all angles add up to nothing: the pin's is known without an equation of its own.
    known = {name: (found.q[i], v[i]) for i, name in enumerate(chosen.model.topology.joint_names)}
    known["pin"] = -found.q.sum(), -v.sum()
    for cut, kind in (("bearing", "revolute"), ("weld", "fixed")):
        system = four_bar().build(cut=(cut,))
        assert [(c.name, c.kind) for c in system.constraints] == [(cut, kind)]
        q, v = (coordinates(system, **{name: pair[i] for name, pair in known.items()}) for i in (0, 1))
        actual = jax.jit(lambda q, v, system=system: moving(system, names, q, v))(q, v)
        for one, other in zip(actual, expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-8)


def homogeneous(rng: np.random.Generator) -> np.ndarray:
    matrix = np.eye(4)
    matrix[:3, :3] = Rotation.from_quat(random_unit(rng, 4)).as_matrix()
    matrix[:3, 3] = rng.normal(0.0, 0.5, 3)
    return matrix


def placed(matrix: np.ndarray, suffix: str = "") -> dict:
    return {f"position{suffix}": matrix[:3, 3], f"orientation{suffix}": matrix[:3, :3]}


def test_spatial_linkage_against_the_same_built_by_hand():
    """Crank and rocker on skew axes, a coupler between them by a universal and a ball joint."""
    rng = np.random.default_rng(4)
    bodies = {name: body_values(rng, mass) for name, mass in (("crank", 1.0), ("coupler", 2.0), ("rocker", 1.5))}
    in_ground = {name: homogeneous(rng) for name in bodies} | {"ground": np.eye(4)}  # where all coordinates are zero
    axes = random_unit(rng), random_unit(rng)
    first = random_unit(rng)
    second = np.cross(first, random_unit(rng))
    universal = Universal(first, second / np.linalg.norm(second))
    joints = {
        "a": (Revolute(axes[0]), "ground", "crank"),
        "b": (universal, "crank", "coupler"),
        "c": (Spherical(), "coupler", "rocker"),
        "d": (Revolute(axes[1]), "rocker", "ground"),
    }
    joint_frames = {name: homogeneous(rng) for name in joints}
    builder = LinkageBuilder()
    for name, values in bodies.items():
        builder.add_body(name, **values)
    for name, (joint, *ends) in joints.items():
        frames = [np.linalg.inv(in_ground[end]) @ joint_frames[name] for end in ends]
        builder.add_joint(name, joint, *ends, **placed(frames[0], "_a"), **placed(frames[1], "_b"))
    system = builder.build()

    by_hand = MechanismBuilder()
    for name, carrier, parent, kind in (
        ("crank", "a", None, Revolute(axes[0])),
        ("coupler", "b", "a", universal),
        ("rocker", "d", None, Revolute(-axes[1])),
    ):
        frame = joint_frames[carrier]
        into = np.linalg.inv(frame) @ in_ground[name]  # from the frame of the description to the one at the joint
        turn = into[:3, :3]
        mass, com, inertia = bodies[name].values()
        by_hand.add_body(
            name,
            joint=kind,
            parent="ground" if parent is None else "crank",
            **placed(frame if parent is None else np.linalg.inv(joint_frames[parent]) @ frame),
            mass=mass,
            com=turn @ com + into[:3, 3],
            inertia=turn @ inertia @ turn.T,
        )
    ends = [np.linalg.inv(joint_frames[carrier]) @ joint_frames["c"] for carrier in ("b", "d")]
    unturned = jnp.array([1.0, 0.0, 0.0, 0.0])  # a ball has no axes
    ball = [RigidTransform(unturned, jnp.asarray(end[:3, 3])) for end in ends]
    expected = System(by_hand.build(), constraints=(LoopJoint("c", "spherical", 1, ball[0], 2, ball[1]),))

    found = jax.jit(jaxdyn.assemble)(system, jnp.asarray(rng.normal(0.0, 0.3, 4)))
    assert bool(found.closed)
    assert int(found.mobility) == 1
    assert np.abs(found.q).max() > 0.1
    v = jax.jit(jaxdyn.project_velocity)(system, found.q, jnp.ones(4))
    state = State(found.q, v)
    compute = jax.jit(jaxdyn.acceleration)
    np.testing.assert_allclose(compute(system, state), compute(expected, state), rtol=1e-8)


# --- reversed joints ---

REVERSIBLE = ["R", "P", "H", "C", "U", "S", "L", "F", "r", "c"]


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
    q = jnp.asarray(rng.normal(size=joint.nq))

    @jax.jit
    def both(q):
        there, back = joint.transform(q), joint.reversed().transform(joint.reversed_coordinates(q))
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
def test_cut_joint_leaves_the_freedom_of_the_joint_and_takes_the_rest(joint):
    rng = np.random.default_rng(6)
    builder = LinkageBuilder()
    frames = homogeneous(rng), homogeneous(rng)
    for name in "ab":
        builder.add_body(name, mass=1.0, inertia=(1, 1, 1))
        builder.add_joint(f"float {name}", Free(), "ground", name)
    builder.add_joint("closing", joint, "a", "b", **placed(frames[0], "_a"), **placed(frames[1], "_b"))
    system = builder.build()
    (loop,) = system.constraints
    in_a, in_b = (
        RigidTransform(jnp.asarray(Rotation.from_matrix(x[:3, :3]).as_quat(scalar_first=True)), jnp.asarray(x[:3, 3]))
        for x in frames
    )

    @jax.jit
    def at(pose, q):
        a = RigidTransform(pose[3:], pose[:3])
        b = a.compose(in_a).compose(joint.transform(q)).compose(in_b.inverse())
        both = jnp.concatenate([pose, b.translation, b.quaternion])
        ends = jaxdyn.forward_kinematics(system.model, both)
        branches = loop.branches(system.model, both, jaxdyn.dynamics.kinematics.placements(system.model, both))
        residual = multipliers.residuals(system.model, (loop,), both)
        return residual, multipliers.jacobian(system.model, (loop,), both), branches, ends

    residual, rows, branches, _ = at(jnp.asarray(rng.normal(size=7)), jnp.asarray(rng.normal(size=joint.nq)))
    np.testing.assert_allclose(residual, 0.0, atol=1e-12)
    assert np.linalg.matrix_rank(rows) == 6 - joint.nv
    assert branches is None or np.all(np.asarray(branches) > 0)
