"""Decomposed and released mechanisms: the same mechanics in other coordinates."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mixed_mechanisms import driven, every_joint, some_motion
from random_trees import close, random_inertia

from jaxdyn import (
    Cylindrical,
    Free,
    MechanismBuilder,
    MechanismError,
    Planar,
    Revolute,
    Spherical,
    as_dtype,
    configuration,
    decompose_joints,
    forward_dynamics,
    forward_kinematics,
    frame_placement,
    kinetic_energy,
    mass_center_velocities,
    mass_matrix,
    potential_energy,
    release_joints,
)
from jaxdyn.dynamics import mass_center_accelerations
from jaxdyn.formulations import screw_poses


@jax.jit
def _compared(model, q, v, tau):
    """Quantities of the mechanism and of its decomposed form in the same motion: name -> (native, decomposed)."""
    chains = decompose_joints(model)
    last = np.cumsum([len(model.joint(body).primitives()) for body in range(model.nb)]) - 1
    c = configuration.to_primitives(model, q)

    def velocities(c):
        """B(c), which takes rates of the primitives to native velocities."""

        def along(unit):
            at, rate = jax.jvp(lambda c: configuration.from_primitives(model, c), (c,), (unit,))
            return configuration.velocity_of_rate(model, at, rate)

        return jax.vmap(along)(jnp.eye(model.nv, dtype=c.dtype)).T

    b = velocities(c)
    rates = jnp.linalg.solve(b, v)
    b_rate = jax.jvp(velocities, (c,), (rates,))[1]
    a = forward_dynamics(model, q, v, tau)
    a_chains = forward_dynamics(chains, c, rates, b.T @ tau)
    placed, placed_chains = forward_kinematics(model, q), forward_kinematics(chains, c)
    moved, moved_chains = mass_center_velocities(model, q, v), mass_center_velocities(chains, c, rates)
    turned, turned_chains = (
        mass_center_accelerations(model, q, v, a),
        mass_center_accelerations(chains, c, rates, a_chains),
    )
    poses = screw_poses(chains, c)
    return {
        "rotation": (placed.rotation, placed_chains.rotation[last]),
        "translation": (placed.translation, placed_chains.translation[last]),
        "velocity": (moved.linear, moved_chains.linear[last]),
        "angular velocity": (moved.angular, moved_chains.angular[last]),
        "acceleration": (turned.linear, turned_chains.linear[last]),
        "angular acceleration": (turned.angular, turned_chains.angular[last]),
        "metric": (b.T @ mass_matrix(model, q) @ b, mass_matrix(chains, c)),  # (D5)
        "generalized acceleration": (a, b @ a_chains + b_rate @ rates),
        "energy": (kinetic_energy(model, q, v), kinetic_energy(chains, c, rates)),
        "potential": (potential_energy(model, q), potential_energy(chains, c)),
        "poses by exponentials, rotation": (placed_chains.rotation, poses[:, :3, :3]),
        "poses by exponentials, translation": (placed_chains.translation, poses[:, :3, 3]),
        "there and back": (
            jnp.zeros_like(v),
            configuration.difference(model, q, configuration.from_primitives(model, c)),
        ),
    }


def _with_middle_angles_below_a_radian(model):
    """Configuration whose decomposition is far from its singular angles, and a motion."""
    state, _, tau = some_motion(model, 4)
    c = jnp.clip(configuration.to_primitives(model, state.q), -0.9, 0.9)
    return configuration.from_primitives(model, c), state.v, tau


@pytest.mark.thorough
def test_decomposed_mechanism_moves_as_the_native_one():
    model = every_joint()
    pairs = _compared(model, *_with_middle_angles_below_a_radian(model))
    for name, (native, chains) in pairs.items():
        # Weights of 10 N act on mass matrices of a condition of about 1e3.
        np.testing.assert_allclose(chains, native, rtol=1e-10, atol=1e-10, err_msg=name)


@pytest.mark.thorough
def test_decomposed_mechanism_in_single_precision():
    builder = MechanismBuilder("floating arm")
    com, inertia = random_inertia(np.random.default_rng(1), 1.0, 0.3)
    builder.add_body("base", joint=Free(), mass=1.0, com=com, inertia=inertia)
    builder.add_body(
        "arm", parent="base", joint=Spherical(), position=(0.1, 0.2, 0.3), mass=1.0, com=com, inertia=inertia
    )
    model = builder.build()
    motion = _with_middle_angles_below_a_radian(model)
    for name, (native, chains) in _compared(*as_dtype((model, *motion), jnp.float32)).items():
        assert native.dtype == chains.dtype == jnp.float32, name
        # Accelerations of up to 1e2 through mass matrices of condition 1e2, roundings of 6e-8.
        np.testing.assert_allclose(chains, native, rtol=1e-3, atol=1e-3, err_msg=name)


def test_metric_of_a_ball_joint_is_singular_where_the_middle_angle_is_a_quarter_turn():  # (D1)
    com, inertia = random_inertia(np.random.default_rng(2), 1.3, 0.3)
    builder = MechanismBuilder("ball")
    builder.add_body("body", joint=Spherical(), mass=1.3, com=com, inertia=inertia)
    chains = decompose_joints(builder.build())
    about_joint = inertia + 1.3 * (com @ com * np.eye(3) - np.outer(com, com))
    middle = np.pi / 2 - np.array([1.5, 1.0, 0.1, 1e-3, 0.0])
    angles = jnp.stack([jnp.full(5, 0.7), jnp.asarray(middle), jnp.full(5, -1.2)], axis=1)
    found = jax.vmap(lambda c: jnp.linalg.det(mass_matrix(chains, c)))(angles)
    # The determinant of a nearly singular matrix of order one is good to a few roundings.
    np.testing.assert_allclose(found, np.linalg.det(about_joint) * np.cos(middle) ** 2, rtol=1e-12, atol=1e-16)


def _named():
    builder = MechanismBuilder("named", (0.0, 1.0, -9.0))
    builder.add_body("base", joint=Free(), mass=1.0, inertia=(0.1, 0.1, 0.1), velocity_limit=3.0)
    builder.add_body(
        "arm",
        parent="base",
        joint=Cylindrical((0.0, 0.0, 1.0)),
        joint_name="shoulder",
        position=(0.1, 0.0, 0.2),
        orientation=(0.8, 0.6, 0.0, 0.0),
        mass=1.0,
        com=(0.1, 0.0, 0.0),
        inertia=(0.1, 0.1, 0.1),
        armature=(0.3, 0.4),
        position_limits=(-1.0, 2.0),
        effort_limit=5.0,
    )
    builder.add_body("hand", parent="arm", joint=Revolute((1.0, 0.0, 0.0)), mass=1.0, inertia=(0.1,) * 3, armature=0.2)
    builder.add_frame("tip", body="hand", position=(0.0, 0.3, 0.1))
    builder.add_frame("mark", body="ground", position=(1.0, 0.0, 0.0))
    return builder.build()


def test_names_frames_limits_and_rotors_are_carried_over():
    model = _named()
    chains = decompose_joints(model)
    base = [f"base/{k}" for k in range(1, 6)] + ["base"]
    assert chains.topology.body_names == (*base, "arm/1", "arm", "hand")
    assert chains.topology.joint_names[-3:] == ("shoulder/1", "shoulder", "hand_joint")
    assert chains.nq == chains.nv == model.nv
    assert all(kind.nv == 1 for kind in chains.topology.joint_classes)
    np.testing.assert_array_equal(chains.armature, [0.0] * 6 + [0.4, 0.3, 0.2])  # slide first, then turn
    np.testing.assert_array_equal(chains.limits.lower, [-np.inf] * 6 + [-1.0, -1.0, -np.inf])
    np.testing.assert_array_equal(chains.limits.upper, [np.inf] * 6 + [2.0, 2.0, np.inf])
    np.testing.assert_array_equal(chains.limits.effort, [np.inf] * 6 + [5.0, 5.0, np.inf])
    np.testing.assert_array_equal(chains.gravity, model.gravity)
    np.testing.assert_array_equal(jnp.sum(chains.mass), jnp.sum(model.mass))
    q = _with_middle_angles_below_a_radian(model)[0]
    c = configuration.to_primitives(model, q)

    @jax.jit
    def frames(model, q):
        return [frame_placement(model, q, name).translation for name in ("tip", "mark", "arm", "hand")]

    for native, other in zip(frames(model, q), frames(chains, c), strict=True):
        close(other, native)


def test_decomposing_once_more_changes_nothing():
    once = decompose_joints(_named())
    assert eqx.tree_equal(decompose_joints(once), once)


@pytest.mark.parametrize("joint", [Spherical(), Planar(), Free()], ids=lambda j: type(j).__name__)
def test_armature_of_quasi_velocities_is_refused_by_the_name_of_its_joint(joint):
    builder = MechanismBuilder("robot")
    builder.add_body("arm", joint=joint, joint_name="shoulder", mass=1.0, inertia=(0.1,) * 3, armature=0.1)
    with pytest.raises(
        MechanismError, match=r"'shoulder' of mechanism 'robot' has armature \[0\.1, .*set it to 0 first"
    ):
        decompose_joints(builder.build())


def test_numbers_of_the_decomposed_mechanism_depend_on_those_of_the_given_one():
    model = _named()
    c = configuration.to_primitives(model, _with_middle_angles_below_a_radian(model)[0])

    def height(model):
        return potential_energy(decompose_joints(model), c)

    gradient = eqx.filter_jit(eqx.filter_grad(height))(model)
    np.testing.assert_allclose(jnp.sum(gradient.mass * model.mass), height(model), rtol=1e-12)
    assert np.all(np.asarray(gradient.placement.translation[1:]) != 0.0)


@jax.jit
def _released(model, q, v, a, t):
    now = model.at(t)
    free = release_joints(now)
    moved = configuration.to_released(now, q, v, a)
    return {
        "coordinates": (free, moved),
        "placement": (forward_kinematics(now, q), forward_kinematics(free, moved[0])),
        "velocity": (mass_center_velocities(now, q, v), mass_center_velocities(free, *moved[:2])),
        "acceleration": (mass_center_accelerations(now, q, v, a), mass_center_accelerations(free, *moved)),
    }


def test_released_mechanism_in_the_prescribed_motion_is_the_driven_one():  # (E15), (I4)
    model = driven()
    state, a, _ = some_motion(model, 5)
    found = _released(model, state.q, state.v, a, jnp.asarray(0.4))
    free, (q, v, acceleration) = found.pop("coordinates")
    assert (free.nq, free.nv) == (13, 11)
    assert q.shape == (13,)
    assert v.shape == acceleration.shape == (11,)
    for name, (prescribed, moved) in found.items():
        for one, other in zip(jax.tree.leaves(prescribed), jax.tree.leaves(moved), strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-12, err_msg=name)
    # The crank by hand: 0.3 + 2 t; the slide 0.1 + 0.2 sin(3 t + 0.4).
    close(q[0], 0.3 + 2.0 * 0.4)
    close(v[0], 2.0)
    close(acceleration[0], 0.0)
    close(q[5], 0.1 + 0.2 * np.sin(1.6))
    close(v[4], 0.6 * np.cos(1.6))
    close(acceleration[4], -1.8 * np.sin(1.6))


def test_released_mechanism_keeps_names_rotors_and_limits():
    model = driven()
    free = release_joints(model)
    assert free.topology.body_names == model.topology.body_names
    assert free.topology.joint_names == model.topology.joint_names
    kept = np.array([1, 2, 3, 5, 9, 10])
    np.testing.assert_array_equal(free.armature[kept], model.armature)
    np.testing.assert_array_equal(np.delete(np.asarray(free.armature), kept), np.zeros(5))
    assert free.limits.lower.shape == (13,)
    assert free.limits.effort.shape == (11,)
    assert eqx.tree_equal(release_joints(free), free)
