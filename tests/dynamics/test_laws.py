"""Laws of the mechanics on random trees: energy, momentum, and what must not matter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_trees import TREE_NAMES, close, moved, random_inertia, random_motion, random_unit, sample_tree
from stacked_trees import evaluated

from jaxdyn import (
    Fixed,
    JointFriction,
    MechanismBuilder,
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


THERE = RigidTransform(jnp.array([0.5, -0.1, 0.7, 0.5]), jnp.array([0.3, -1.2, 0.7]))


def laws(model, q, v, a):
    """Pairs of results that are equal, by the size of the terms in them."""
    rng = np.random.default_rng(60)
    matrix, tau = mass_matrix(model, q), inverse_dynamics(model, q, v, a)
    other = moved(model, THERE)
    spring = Spring(1, rng.normal(size=3), 5, rng.normal(size=3), 20.0, 0.5)
    friction = JointFriction(*rng.uniform(0.1, 1.0, (3, model.nv)))
    system, state, drives = System(model, (spring, friction)), State(q, v), jnp.asarray(rng.normal(size=model.nv))
    _, loss = jax.jvp(lambda q, v: total_energy(system, State(q, v)), (q, v), (v, acceleration(system, state, drives)))
    braked = {method: System(model, (friction,), method=method) for method in FORWARD_METHODS}
    pushed = applied_forces(braked["cholesky"], state, drives)
    return (
        {
            1.0: {
                "symbols from elsewhere": (christoffel_first_kind(other, q), christoffel_first_kind(model, q)),
                "kinetic energy from elsewhere": (kinetic_energy(other, q, v), kinetic_energy(model, q, v)),
            },
            10.0: {
                "covariant inverse dynamics": (inverse_dynamics(model, q, v, a, method="covariant"), tau),
                "gravity force is minus the bias at rest": (
                    gravity_force(model, q),
                    -bias_force(model, q, jnp.zeros_like(v)),
                ),
                "angular momentum about another point": (
                    angular_momentum(model, q, v, about=THERE.translation),
                    angular_momentum(model, q, v) - jnp.cross(THERE.translation, momentum(model, q, v)),
                ),
                "bias from elsewhere": (bias_force(other, q, v), bias_force(model, q, v)),
            },
            100.0: {
                "potential energy is weight times height": (
                    potential_energy(model, q),
                    -jnp.sum(model.mass) * model.gravity @ center_of_mass(model, q),
                ),
                "energy falls by the power of the friction": (
                    loss,
                    v @ (drives + applied_forces(System(model, (friction,)), state)),
                ),
            },
            1000.0: {
                f"acceleration of a system, {method}": (
                    acceleration(system, state, drives),
                    forward_dynamics(model, q, v, pushed, method=method),
                )
                for method, system in braked.items()
            },
        },
        {method: (forward_dynamics(model, q, v, tau, method=method), a) for method in FORWARD_METHODS},
        matrix,
    )


@pytest.mark.parametrize("name", TREE_NAMES)
def test_laws_of_trees_of_hinges_and_slides(name):
    model = sample_tree(name)
    sample = jax.tree.map(lambda x: x[None], (model, *random_motion(np.random.default_rng(30), model)))
    found, accelerations, matrix = jax.tree.map(lambda x: x[0], evaluated(laws, *sample, in_lanes=True))
    # Rounding errors of forces, of order ten, are magnified by the inverse of the mass matrix.
    magnified = 10.0 / float(np.linalg.eigvalsh(matrix)[0])
    for scale, pairs in (found | {magnified: accelerations}).items():
        for law, (one, other) in pairs.items():
            close(one, other, scale=scale, law=law)


@pytest.mark.parametrize("name", TREE_NAMES)
def test_standing_a_kilometre_away_changes_no_bit_even_in_single_precision(name):
    def everything(model, q, v, a):
        return (
            [function(model, q) for function in (mass_matrix, christoffel_first_kind, gravity_force)],
            [function(model, q, v) for function in (bias_force, kinetic_energy)],
            [function(model, q, v, a) for function in (inverse_dynamics, forward_dynamics)],
        )

    near = as_dtype(sample_tree(name), jnp.float32)
    motion = as_dtype(random_motion(np.random.default_rng(30), near), jnp.float32)
    far = moved(near, RigidTransform(quaternion.identity(jnp.float32), jnp.array([600.0, -800.0, 50.0], jnp.float32)))
    for here, there in zip(*(jax.tree.leaves(everything(model, *motion)) for model in (near, far)), strict=True):
        np.testing.assert_array_equal(here, there)


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


def test_neutral_state_is_at_rest_where_every_body_frame_is_its_joint_frame():
    tree = sample_tree("two roots")
    state = neutral_state(System(tree))
    assert not np.any(state.v)
    placed = forward_kinematics(tree, state.q)
    for i, parent in enumerate(tree.topology.parents):
        at = jax.tree.map(lambda x: x[i], tree.placement)  # noqa: B023
        carrier = RigidTransform.identity(float) if parent < 0 else jax.tree.map(lambda x: x[parent], placed)  # noqa: B023
        expected = carrier.compose(at)
        close(placed.translation[i], expected.translation)
        close(placed.rotation[i], expected.rotation)
