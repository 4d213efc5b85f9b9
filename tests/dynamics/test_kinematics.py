"""Laws of the kinematics on random trees: velocities are rates of placements, accelerations rates of velocities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_trees import TREE_NAMES, close, random_motion, random_unit, sample_tree

from jaxdyn import (
    Fixed,
    MechanismBuilder,
    Model,
    Revolute,
    UnknownName,
    body_jacobian,
    center_of_mass,
    forward_kinematics,
    frame_placement,
    mass_center_velocities,
    partial_velocities,
)
from jaxdyn.dynamics import kinematics
from jaxdyn.spatial import quaternion, rotation


@pytest.fixture(scope="module", params=TREE_NAMES)
def tree(request) -> Model:
    return sample_tree(request.param)


@pytest.fixture(scope="module")
def motion(tree):
    return random_motion(np.random.default_rng(10), tree)


def with_rate(function, q, v):
    """Value and rate of a function of the coordinates when they move with velocities v."""
    return jax.jvp(function, (q,), (v,))


def frames(model, q):
    placed = forward_kinematics(model, q)
    return placed.rotation, placed.translation


def mass_centers(model, q):
    placed = kinematics.placements(model, q)
    return placed.reference + placed.com


def angular_velocity(turning, turning_rate):
    """omega of (dR/dt) R^T = S(omega). Source: theory.md (B8)."""
    return jax.vmap(rotation.unskew)(turning_rate @ turning.swapaxes(1, 2))


def axes_by_joint(model: Model) -> np.ndarray:
    return np.stack([model.joint(i).axis for i in range(model.nb)])


def test_placements_follow_the_recursion_from_parent_to_child(tree, motion):
    q, axes = np.asarray(motion[0]), axes_by_joint(tree)
    turned, origin = {-1: np.eye(3)}, {-1: np.zeros(3)}
    for i, parent in enumerate(tree.topology.parents):
        fixed = turned[parent] @ np.asarray(quaternion.to_matrix(tree.placement.quaternion[i]))
        revolute = tree.topology.joint_classes[i] is Revolute
        turned[i] = fixed @ np.asarray(
            rotation.rodrigues(jnp.asarray(axes[i]), jnp.asarray(revolute * q[i]))
        )  # (E1), (E3)
        slide = 0.0 if revolute else q[i]
        offset = np.asarray(tree.placement.translation[i])
        origin[i] = origin[parent] + turned[parent] @ offset + slide * fixed @ axes[i]  # (E2)
    rotations, translations = frames(tree, motion[0])
    bodies = range(tree.nb)
    close(rotations, np.array([turned[i] for i in bodies]))
    close(translations, np.array([origin[i] for i in bodies]))
    com = np.array([origin[i] + turned[i] @ np.asarray(tree.com[i]) for i in bodies])
    close(mass_centers(tree, motion[0]), com)
    close(center_of_mass(tree, motion[0]), np.average(com, axis=0, weights=tree.mass))


def test_partial_velocities_times_velocity_is_the_motion_of_the_mass_centers(tree, motion):
    q, v, _ = motion
    (turned, _), (turned_rate, _) = with_rate(lambda q: frames(tree, q), q, v)
    _, com_rate = with_rate(lambda q: mass_centers(tree, q), q, v)
    T, Omega = partial_velocities(tree, q)
    moving = mass_center_velocities(tree, q, v)
    for linear, angular in [
        (jnp.einsum("bac,a->bc", T, v), jnp.einsum("bac,a->bc", Omega, v)),
        (moving.linear, moving.angular),
    ]:
        close(linear, com_rate)
        close(angular, angular_velocity(turned, turned_rate))


def test_a_column_is_zero_unless_its_joint_moves_the_body(tree, motion):
    moves = np.zeros((tree.nb, tree.nv), bool)
    for i in range(tree.nb):
        k = i
        while k >= 0:
            moves[i, k] = True  # one column per body here
            k = tree.topology.parents[k]
    T, Omega = partial_velocities(tree, motion[0])
    jacobian = body_jacobian(tree, motion[0])
    assert np.array_equal(np.any(np.concatenate([T, Omega], axis=-1), axis=-1), moves)
    assert np.array_equal(np.any(jacobian, axis=1), moves)


def test_frames_ride_on_their_bodies():
    rng = np.random.default_rng(0)
    position, orientation = rng.normal(size=(3, 3)), [random_unit(rng, 4) for _ in range(3)]
    builder = MechanismBuilder()
    builder.add_body("arm", joint=Revolute((0, 0, 1)), mass=1.0, inertia=(1, 1, 1), position=(0.1, 0.2, 0.3))
    builder.add_body("hand", parent="arm", joint=Fixed(), position=position[0], orientation=orientation[0])
    builder.add_frame("finger", body="hand", position=position[1], orientation=orientation[1])
    builder.add_frame("camera", body="ground", position=position[2], orientation=orientation[2])
    model = builder.build()
    q = jnp.array([0.7])
    matrix = [np.asarray(quaternion.to_matrix(jnp.asarray(x))) for x in orientation]
    arm = np.asarray(rotation.rodrigues(jnp.array([0.0, 0, 1]), q[0])), np.array([0.1, 0.2, 0.3])
    hand = arm[0] @ matrix[0], arm[1] + arm[0] @ position[0]
    finger = hand[0] @ matrix[1], hand[1] + hand[0] @ position[1]
    expected = {"arm": arm, "hand": hand, "finger": finger, "camera": (matrix[2], position[2])}
    expected["ground"] = np.eye(3), np.zeros(3)
    for name, (turned, origin) in expected.items():
        placed = frame_placement(model, q, name)
        close(placed.rotation, turned)
        close(placed.translation, origin)
    with pytest.raises(UnknownName, match="hand, finger, camera"):
        frame_placement(model, q, "foot")
