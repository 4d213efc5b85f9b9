"""Derivatives of what constraints do, in every number of the mechanism, against difference quotients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from difference_quotients import check_derivatives, flat
from first_cases import first
from random_trees import random_model

import jaxdyn
from jaxdyn import Distance, LoopJoint, State, System, library
from jaxdyn.compute import per_sample
from jaxdyn.dynamics.equations_of_motion import acceleration_and_multipliers, instant
from jaxdyn.spatial.transform import RigidTransform

# Shapes are checked by the tests of the functions themselves; here the checks would take a third of the time.
pytestmark = pytest.mark.usefixtures("as_a_user")


def spatial_loop() -> tuple[System, jax.Array, jax.Array]:
    """Five revolute joints in a chain, a ball that closes it and a rod: one degree of freedom; nearly assembled, moving anyhow."""
    rng = np.random.default_rng(11)  # far from singular positions
    model = random_model(rng, 5, parents=range(-1, 4), kinds="RRRRR")
    q, v = (jnp.asarray(rng.normal(size=5)) for _ in range(2))
    tip = jnp.asarray([0.2, -0.1, 0.3])
    bodies = jaxdyn.forward_kinematics(model, q)
    last, middle = (jax.tree.map(lambda x, i=i: x[i], bodies) for i in (4, 2))
    turn = jnp.asarray([1.0, 0.0, 0.0, 0.0])
    ball = LoopJoint(
        "ball", "spherical", -1, RigidTransform(turn, last.apply(tip) + 1e-4), 4, RigidTransform(turn, tip)
    )
    length = jnp.linalg.norm(middle.translation - 1.0)
    rod = Distance("rod", -1, jnp.ones(3), 2, jnp.zeros(3), length + 1e-4)
    return System(model, constraints=(ball, rod)), q, v


SYSTEM, Q, V = spatial_loop()
INDEPENDENT = jaxdyn.constraints.independent_velocities(SYSTEM, SYSTEM.at_rest(Q))

FUNCTIONS = {
    "project_position": lambda s, q, v: jaxdyn.constraints.project_position(s, s.at_rest(q)).q,
    "project_velocity": lambda s, q, v: jaxdyn.project_velocity(s, State(q, v)),
    # One program takes hardly longer than the accelerations alone.
    "minimal_motion, minimal_acceleration": lambda s, q, v: (
        jaxdyn.constraints.minimal_motion(s, s.at_rest(q), INDEPENDENT),
        jaxdyn.constraints.minimal_acceleration(s, State(q, v), INDEPENDENT),
    ),
    "loop_reactions": lambda s, q, v: jaxdyn.loop_reactions(s, State(q, v)),
    "joint_reactions": lambda s, q, v: jaxdyn.joint_reactions(s, State(q, v)),
}


@pytest.mark.parametrize("name", first(2, FUNCTIONS))
def test_derivatives_are_difference_quotients(name):
    bare = eqx.tree_at(lambda s: s.model.limits, SYSTEM, None)
    numbers, static = eqx.partition((bare, Q, V), eqx.is_inexact_array)
    f = jax.jit(lambda numbers: flat(FUNCTIONS[name](*eqx.combine(numbers, static))))
    check_derivatives(
        f, numbers, orders=1, in_lanes=True
    )  # of second order: accelerations in test_transforms, projection below


def test_derivatives_of_accelerations_with_a_constraint_are_difference_quotients():
    """Of two joints and a rod, which keep the program small."""
    start = jnp.asarray([0.3, -0.8])
    model = random_model(np.random.default_rng(11), 2, parents=range(-1, 1), kinds="RR")
    tip = jaxdyn.forward_kinematics(model, start).translation[1]
    system = System(model, constraints=(Distance("rod", -1, jnp.ones(3), 1, jnp.zeros(3), jnp.linalg.norm(tip - 1.0)),))
    bare = eqx.tree_at(lambda s: s.model.limits, system, None)
    numbers, static = eqx.partition(
        (bare, start, jnp.asarray([0.7, -0.4]), jnp.asarray([0.2, 0.5])), eqx.is_inexact_array
    )

    def f(numbers):
        changed, q, v, tau = eqx.combine(numbers, static)
        return flat(acceleration_and_multipliers(changed, instant(changed, State(q, v), 0.0), tau))

    check_derivatives(jax.jit(f), numbers, orders=1, in_lanes=True)


@pytest.mark.thorough
def test_second_derivative_of_assembly_keeps_the_constraints():
    """Twice differentiated, phi(q(x), x) = 0 stays zero: along any change of all numbers of the mechanism.

    Of three joints and two rods: the size of the program, by which the time goes, is that of the mechanism.
    """
    start = jnp.asarray([0.3, -0.8, 0.5])
    model = random_model(np.random.default_rng(11), 3, parents=range(-1, 2), kinds="RRR")
    ends = jaxdyn.forward_kinematics(model, start).translation
    rods = (
        Distance("rod", -1, jnp.ones(3), 2, jnp.zeros(3), jnp.linalg.norm(ends[2] - 1.0) + 1e-4),
        Distance("other", -1, jnp.arange(3.0), 1, jnp.zeros(3), jnp.linalg.norm(ends[1] - jnp.arange(3.0)) - 1e-4),
    )
    arrays, static = eqx.partition(System(model, constraints=rods), eqx.is_inexact_array)
    rng = np.random.default_rng(1)
    change = jax.tree.map(lambda x: jnp.asarray(0.1 * rng.normal(size=x.shape)), arrays)
    unlimited = eqx.tree_at(lambda s: s.model.limits, change, replace_fn=lambda x: jax.tree.map(jnp.zeros_like, x))

    def error(x):
        moved = eqx.combine(jax.tree.map(lambda a, d: a + x * d, arrays, unlimited), static)
        q = jaxdyn.assemble(moved, moved.at_rest(start)).q
        return jaxdyn.constraints.constraint_errors(moved, moved.at_rest(q)).residual, q

    def rate(x):
        return jax.jvp(error, (x,), (jnp.ones_like(x),))[1]

    twice = jax.jit(per_sample(lambda x: jax.jvp(rate, (x,), (jnp.ones_like(x),)), backend="lanes"))
    (first, q_rate), (second, q_second) = twice(jnp.zeros(()))
    np.testing.assert_allclose(first, 0.0, atol=1e-9)
    np.testing.assert_allclose(second, 0.0, atol=1e-7)
    assert np.abs(q_rate).max() > 0.01
    assert np.abs(q_second).max() > 0.01


@pytest.mark.thorough
def test_derivatives_of_a_planar_four_bar_at_rest_whose_equations_repeat_one_another():
    """Five equations of which two are independent, in numbers that keep the plane."""
    system = library.system("four_bar")
    q = jax.jit(jaxdyn.assemble)(system, system.at_rest(jnp.asarray([0.4, -0.4, 0.0]))).q

    def f(numbers):
        length, masses, q, v = numbers
        pin = system.constraints[0]
        frame = RigidTransform(pin.frame_a.quaternion, pin.frame_a.translation * length)
        changed = eqx.tree_at(
            lambda s: (s.model.mass, s.constraints[0].frame_a), system, (system.model.mass * masses, frame)
        )
        # The moments that would hold the axes parallel are zero but for rounding, which a difference quotient blows up.
        # What `acceleration` and `constraint_forces` return, from one solution of their equations.
        a, multipliers = acceleration_and_multipliers(changed, instant(changed, State(q, v), 0.0), None)
        return flat((a, multipliers[:3]))

    check_derivatives(jax.jit(f), (jnp.ones(()), jnp.ones(3), q, jnp.zeros(3)), orders=1, in_lanes=True)
