"""Laws of the mechanics on random trees: energy, momentum, and what must not matter."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_trees import SAMPLES, close, random_inertia, random_model, random_motion, random_unit, sample_tree

from jaxdyn import (
    AppliedForce,
    Fixed,
    JointFriction,
    MechanismBuilder,
    Model,
    Prismatic,
    Revolute,
    Spring,
    State,
    System,
    acceleration,
    angular_momentum,
    applied_forces,
    as_dtype,
    bias_force,
    center_of_mass,
    christoffel_first_kind,
    forward_dynamics,
    forward_kinematics,
    gravity_force,
    inverse_dynamics,
    kinetic_energy,
    mass_matrix,
    momentum,
    neutral_state,
    potential_energy,
    total_energy,
)
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.transform import RigidTransform

FORWARD_METHODS = ["cholesky", "articulated_body", "contravariant"]


@pytest.fixture(scope="module", params=SAMPLES)
def tree(request) -> Model:
    return sample_tree(request.param)


@pytest.fixture(scope="module")
def motion(tree):
    return random_motion(np.random.default_rng(30), tree)


def test_inverse_dynamics_is_mass_times_acceleration_plus_bias_by_both_methods(tree, motion):
    q, v, a = motion
    tau = mass_matrix(tree, q) @ a + bias_force(tree, q, v)  # (I1)
    for method in ("recursive", "covariant"):
        close(inverse_dynamics(tree, q, v, a, method=method), tau, scale=10.0)


@pytest.mark.parametrize("method", FORWARD_METHODS)
def test_forward_dynamics_undoes_inverse_dynamics(tree, motion, method):
    q, v, a = motion
    tau = inverse_dynamics(tree, q, v, a)
    # Rounding errors of tau, of order ten, are magnified by the inverse of the mass matrix.
    magnified = 10.0 / np.linalg.eigvalsh(mass_matrix(tree, q))[0]
    close(forward_dynamics(tree, q, v, tau, method=method), a, scale=magnified)


def test_power_of_the_drives_is_the_rate_of_the_energy(tree, motion):
    q, v, a = motion

    def energy(q, v):
        return kinetic_energy(tree, q, v) + potential_energy(tree, q)

    _, rate = jax.jvp(energy, (q, v), (v, a))
    close(rate, inverse_dynamics(tree, q, v, a) @ v, scale=100.0)


def test_gravity_force_is_minus_the_gradient_of_the_potential_energy_and_minus_the_bias_at_rest(tree, motion):
    q, v, _ = motion
    close(gravity_force(tree, q), -jax.grad(lambda q: potential_energy(tree, q))(q), scale=10.0)
    close(gravity_force(tree, q), -bias_force(tree, q, jnp.zeros_like(v)), scale=10.0)


def test_potential_energy_is_the_weight_times_the_height_of_the_mass_center(tree, motion):
    q, _, _ = motion
    close(potential_energy(tree, q), -jnp.sum(tree.mass) * tree.gravity @ center_of_mass(tree, q), scale=100.0)


def test_momentum_is_the_mass_times_the_velocity_of_the_mass_center(tree, motion):
    q, v, _ = motion
    _, rate = jax.jvp(lambda q: center_of_mass(tree, q), (q,), (v,))
    close(momentum(tree, q, v), jnp.sum(tree.mass) * rate, scale=10.0)


def test_angular_momentum_about_two_points_differs_by_the_lever_of_the_momentum(tree, motion):
    q, v, _ = motion
    point = jnp.asarray(np.random.default_rng(1).normal(size=3))
    shifted = angular_momentum(tree, q, v) - jnp.cross(point, momentum(tree, q, v))
    close(angular_momentum(tree, q, v, about=point), shifted, scale=10.0)


@pytest.fixture(scope="module")
def floating():
    """A tree carried by three slides and three hinges without mass: free in space, like a satellite with arms and rotors."""
    parents, kinds = [-1, 0, 1, 2, 3, 4, 5, 5, 6], "PPPRRRRPR"
    model = random_model(np.random.default_rng(40), 9, parents=parents, kinds=kinds, massless=5)
    rotors = jnp.where(np.arange(9) < 6, 0.0, jnp.asarray(np.random.default_rng(41).uniform(0.1, 0.5, 9)))
    return eqx.tree_at(lambda m: m.armature, model, rotors)


def rates_of_momentum(system: System, q, v, drives):
    """Momentum and angular momentum about the ground origin, and their rates along the motion."""
    a = acceleration(system, State(q, v), drives)
    model = system.model
    return jax.jvp(lambda q, v: (momentum(model, q, v), angular_momentum(model, q, v)), (q, v), (v, a))[1]


def internal_drives(rng, model) -> jax.Array:
    return jnp.where(np.arange(model.nv) < 6, 0.0, jnp.asarray(rng.normal(size=model.nv)))


def test_without_outer_forces_momentum_and_angular_momentum_stay(floating):
    rng = np.random.default_rng(42)
    q, v, _ = random_motion(rng, floating)
    weightless = eqx.tree_at(lambda m: m.gravity, floating, jnp.zeros(3))
    spring = Spring(
        5, rng.normal(size=3), 8, rng.normal(size=3), 30.0, 0.4
    )  # a force between two bodies is no outer one
    linear, angular = rates_of_momentum(System(weightless, (spring,)), q, v, internal_drives(rng, floating))
    close(linear, 0.0, scale=100.0)
    close(angular, 0.0, scale=100.0)


@pytest.mark.parametrize("body_fixed", [True, False])
def test_rate_of_momentum_is_the_outer_force_and_of_angular_momentum_its_moment(floating, body_fixed):
    rng = np.random.default_rng(43)
    q, v, _ = random_motion(rng, floating)
    point, force, torque = rng.normal(size=(3, 3))
    push = AppliedForce(7, point, force, torque, body_fixed)
    linear, angular = rates_of_momentum(System(floating, (push,)), q, v, internal_drives(rng, floating))
    placed = jax.tree.map(lambda x: x[7], forward_kinematics(floating, q))
    turned = np.asarray(placed.rotation) if body_fixed else np.eye(3)
    where = np.asarray(placed.apply(jnp.asarray(point)))
    weight = np.sum(floating.mass) * np.asarray(floating.gravity)
    close(linear, turned @ force + weight, scale=100.0)
    moment = np.cross(where, turned @ force) + turned @ torque + np.cross(center_of_mass(floating, q), weight)
    close(angular, moment, scale=100.0)


def moved(model: Model, motion: RigidTransform) -> Model:
    """The same mechanism with the ground frame elsewhere: every root and gravity are carried along by `motion`."""
    is_root = np.array(model.topology.parents) < 0
    carried = jax.vmap(motion.compose)(model.placement)
    placement = jax.tree.map(lambda new, old: jnp.where(is_root[:, None], new, old), carried, model.placement)
    gravity = quaternion.rotate(motion.quaternion, model.gravity)
    return eqx.tree_at(lambda m: (m.placement, m.gravity), model, (placement, gravity))


def test_moving_the_world_frame_changes_no_mechanics(tree, motion):
    q, v, a = motion
    rng = np.random.default_rng(3)
    there = RigidTransform(jnp.asarray(random_unit(rng, 4)), jnp.asarray(rng.normal(size=3)))
    other = moved(tree, there)
    close(mass_matrix(other, q), mass_matrix(tree, q))
    close(christoffel_first_kind(other, q), christoffel_first_kind(tree, q))
    close(bias_force(other, q, v), bias_force(tree, q, v), scale=10.0)
    close(inverse_dynamics(other, q, v, a), inverse_dynamics(tree, q, v, a), scale=10.0)
    close(kinetic_energy(other, q, v), kinetic_energy(tree, q, v))
    close(momentum(other, q, v), quaternion.rotate(there.quaternion, momentum(tree, q, v)), scale=10.0)
    origin = angular_momentum(other, q, v, about=there.translation)
    close(origin, quaternion.rotate(there.quaternion, angular_momentum(tree, q, v)), scale=10.0)


def test_standing_a_kilometre_away_changes_no_bit_even_in_single_precision(tree, motion):
    near = as_dtype(tree, jnp.float32)
    q, v, a = as_dtype(motion, jnp.float32)
    far = moved(near, RigidTransform(quaternion.identity(jnp.float32), jnp.array([600.0, -800.0, 50.0], jnp.float32)))
    for function in (mass_matrix, christoffel_first_kind, gravity_force):
        assert np.array_equal(function(near, q), function(far, q))
    for function in (bias_force, kinetic_energy):
        assert np.array_equal(function(near, q, v), function(far, q, v))
    for function in (inverse_dynamics, forward_dynamics):
        assert np.array_equal(function(near, q, v, a), function(far, q, v, a))


def lumped(parts):
    """Mass, center of mass and inertia tensor about it of bodies given as (mass, com, tensor) on common axes."""
    mass = sum(m for m, _, _ in parts)
    com = sum(m * c for m, c, _ in parts) / mass
    levers = [c - com for _, c, _ in parts]
    steiner = [m * (d @ d * np.eye(3) - np.outer(d, d)) for (m, _, _), d in zip(parts, levers, strict=True)]
    return mass, com, sum(tensor for _, _, tensor in parts) + sum(steiner)


def test_a_body_on_a_fixed_joint_is_lumped_with_its_carrier():
    rng = np.random.default_rng(50)
    (arm, tool, tip), axes = (
        [(m, *random_inertia(rng, m, 0.3)) for m in (1.3, 0.7, 0.4)],
        [random_unit(rng) for _ in range(2)],
    )
    tool_at, tip_at = rng.normal(size=(2, 3))
    tool_turn, tip_turn = random_unit(rng, 4), random_unit(rng, 4)
    as_body = lambda x: dict(zip(("mass", "com", "inertia"), x, strict=True))  # noqa: E731

    merged = MechanismBuilder()
    merged.add_body("arm", joint=Revolute(axes[0]), **as_body(arm))
    merged.add_body("tool", parent="arm", joint=Fixed(), position=tool_at, orientation=tool_turn, **as_body(tool))
    merged.add_body(
        "tip", parent="tool", joint=Prismatic(axes[1]), position=tip_at, orientation=tip_turn, **as_body(tip)
    )

    turn = np.asarray(quaternion.to_matrix(jnp.asarray(tool_turn)))
    on_arm = tool[0], tool_at + turn @ tool[1], turn @ tool[2] @ turn.T
    by_hand = MechanismBuilder()
    by_hand.add_body("arm", joint=Revolute(axes[0]), **as_body(lumped([arm, on_arm])))
    by_hand.add_body(
        "tip",
        parent="arm",
        joint=Prismatic(axes[1]),
        position=tool_at + turn @ tip_at,
        orientation=turn @ np.asarray(quaternion.to_matrix(jnp.asarray(tip_turn))),
        **as_body(tip),
    )
    one, other = merged.build(), by_hand.build()
    assert one.topology.body_names == ("arm", "tip")
    q, v, a = random_motion(rng, one)
    close(mass_matrix(one, q), mass_matrix(other, q))
    close(inverse_dynamics(one, q, v, a), inverse_dynamics(other, q, v, a), scale=10.0)
    close(potential_energy(one, q), potential_energy(other, q), scale=10.0)


def test_energy_of_a_system_falls_by_the_power_of_its_friction(tree, motion):
    q, v, _ = motion
    rng = np.random.default_rng(60)
    spring = Spring(1, rng.normal(size=3), 5, rng.normal(size=3), 20.0, 0.5)
    friction = JointFriction(*rng.uniform(0.1, 1.0, (3, tree.nv)))
    system, state = System(tree, (spring, friction)), State(q, v)
    drives = jnp.asarray(rng.normal(size=tree.nv))
    a = acceleration(system, state, drives)
    _, rate = jax.jvp(lambda q, v: total_energy(system, State(q, v)), (q, v), (v, a))
    close(rate, v @ (drives + applied_forces(System(tree, (friction,)), state)), scale=100.0)


@pytest.mark.parametrize("method", FORWARD_METHODS)
def test_acceleration_of_a_system_is_forward_dynamics_of_all_its_forces(tree, motion, method):
    q, v, _ = motion
    rng = np.random.default_rng(61)
    system = System(tree, (JointFriction(*rng.uniform(0.1, 1.0, (3, tree.nv))),), method=method)
    drives = jnp.asarray(rng.normal(size=tree.nv))
    tau = applied_forces(system, State(q, v), drives)
    close(acceleration(system, State(q, v), drives), forward_dynamics(tree, q, v, tau, method=method), scale=1e3)


def test_neutral_state_is_at_rest_where_every_body_frame_is_its_joint_frame(tree):
    state = neutral_state(System(tree))
    assert not np.any(state.v)
    placed = forward_kinematics(tree, state.q)
    for i, parent in enumerate(tree.topology.parents):
        at = jax.tree.map(lambda x: x[i], tree.placement)  # noqa: B023
        carrier = RigidTransform.identity(float) if parent < 0 else jax.tree.map(lambda x: x[parent], placed)  # noqa: B023
        expected = carrier.compose(at)
        close(placed.translation[i], expected.translation)
        close(placed.rotation[i], expected.rotation)


def test_unknown_methods_are_refused_by_name(as_a_user):
    model = sample_tree("chain")
    q, v, a = random_motion(np.random.default_rng(0), model)
    for call, alternatives in [
        (lambda: mass_matrix(model, q, method="fast"), "composite, closed_form"),
        (lambda: christoffel_first_kind(model, q, method="fast"), "closed_form, autodiff"),
        (lambda: inverse_dynamics(model, q, v, a, method="fast"), "recursive, covariant"),
        (lambda: forward_dynamics(model, q, v, a, method="fast"), "auto, cholesky, articulated_body, contravariant"),
    ]:
        with pytest.raises(ValueError, match=f"no method .* 'fast'; use one of {alternatives}"):
            call()
