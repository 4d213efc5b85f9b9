"""Laws of the forces, theory.md section (h): potentials, dissipation, Newton's third law, and what happens at zero length."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_trees import close, random_motion, sample_tree

import jaxdyn
from jaxdyn import (
    AppliedForce,
    Damper,
    JointDrives,
    JointFriction,
    JointSpring,
    MechanismBuilder,
    Prismatic,
    Spring,
    State,
    System,
    applied_forces,
    forward_kinematics,
    mass_center_velocities,
    partial_velocities,
)
from jaxdyn.dynamics import BoxDrag, EllipsoidDrag, added_inertia, inverse, kinematics
from jaxdyn.dynamics.forces import Force

GROUND = -1
# Ends of springs and dampers on the tree called "two roots", whose paths are 0-1-5 and 2-(3, 4).
ENDS = {
    "two trees": (5, 4),
    "one path": (0, 5),
    "siblings": (3, 4),
    "ground to body": (GROUND, 1),
    "body to ground": (3, GROUND),
}


@pytest.fixture(scope="module")
def tree():
    return sample_tree("two roots")


@pytest.fixture(scope="module")
def motion(tree):
    return random_motion(np.random.default_rng(70), tree)


@pytest.fixture(params=ENDS)
def ends(request):
    """Arguments (body_a, point_a, body_b, point_b)."""
    a, b = ENDS[request.param]
    points = np.random.default_rng(71).normal(size=(2, 3))
    return a, points[0], b, points[1]


def generalized(tree, force: Force, q, v):
    return applied_forces(System(tree, (force,)), State(q, v))


def potential(tree, force: Force, q):
    """Potential energy of the force alone."""
    return force.potential_energy(tree, q, kinematics.placements(tree, q))


def position(tree, q, body, point):
    if body == GROUND:
        return jnp.asarray(point)
    return jax.tree.map(lambda x: x[body], forward_kinematics(tree, q)).apply(jnp.asarray(point))


def length(tree, q, ends):
    a, point_a, b, point_b = ends
    return jnp.linalg.norm(position(tree, q, a, point_a) - position(tree, q, b, point_b))


def test_spring_has_the_energy_of_its_stretch_and_its_force_is_minus_the_gradient(tree, motion, ends):
    q, v, _ = motion
    spring = Spring(*ends, stiffness=30.0, free_length=0.7)
    close(potential(tree, spring, q), 0.5 * 30.0 * (length(tree, q, ends) - 0.7) ** 2, scale=100.0)  # (H3)
    gradient = jax.grad(lambda q: potential(tree, spring, q))(q)
    close(generalized(tree, spring, q, v), -gradient, scale=100.0)
    assert np.any(np.abs(gradient) > 1.0)


def test_damper_force_is_minus_the_gradient_of_the_rayleigh_function(tree, motion, ends):
    q, v, _ = motion
    damper = Damper(*ends, coefficient=3.0)

    def rayleigh(v):
        _, rate = jax.jvp(lambda q: length(tree, q, ends), (q,), (v,))
        return 0.5 * 3.0 * rate**2

    gradient = jax.grad(rayleigh)(v)
    close(generalized(tree, damper, q, v), -gradient, scale=10.0)  # (H4)
    assert np.any(np.abs(gradient) > 0.01)
    close(generalized(tree, damper, q, jnp.zeros_like(v)), 0.0)


def test_joints_that_move_both_ends_or_neither_do_not_feel_a_spring_or_damper(tree, motion, ends):
    q, v, _ = motion
    moves = np.vstack([tree.topology.column_moves_body.T, np.zeros(tree.nv, bool)])  # last row: the ground
    a, _, b, _ = ends
    one_end = moves[a] != moves[b]
    for force in (Spring(*ends, stiffness=30.0, free_length=0.7), Damper(*ends, coefficient=3.0)):
        felt = np.abs(generalized(tree, force, q, v))
        assert np.all(felt[~one_end] < 1e-12)  # (H5), by cancellation of terms of order 30
        assert np.all(felt[one_end] > 1e-3)


def test_spring_and_damper_between_bodies_exert_no_total_force_and_no_total_moment(tree, motion):
    q, v, _ = motion
    moving = kinematics.motion(tree, q, v)
    time = jnp.zeros(())
    reference = moving.placements.reference
    points = np.random.default_rng(72).normal(size=(2, 3))
    for force in (Spring(5, points[0], 4, points[1], 30.0, 0.7), Damper(5, points[0], 4, points[1], 3.0)):
        on_bodies = force.body_forces(tree, moving, time)
        close(jnp.sum(on_bodies[:, 3:], axis=0), 0.0, scale=100.0)
        # Moments are about the reference point of each tree, and these two bodies stand on two trees.
        about_origin = on_bodies[:, :3] + jnp.cross(reference, on_bodies[:, 3:])
        close(jnp.sum(about_origin, axis=0), 0.0, scale=100.0)
        assert np.any(np.abs(on_bodies[4]) > 0.1)


@pytest.mark.parametrize("body_fixed", [True, False])
def test_applied_force_does_the_work_of_its_force_and_couple(tree, motion, body_fixed):
    q, v, _ = motion
    point, force, torque = np.random.default_rng(73).normal(size=(3, 3))
    push = AppliedForce(5, point, force, torque, body_fixed)
    turned = np.asarray(forward_kinematics(tree, q).rotation[5]) if body_fixed else np.eye(3)
    _, velocity = jax.jvp(lambda q: position(tree, q, 5, point), (q,), (v,))
    power = turned @ force @ velocity + turned @ torque @ mass_center_velocities(tree, q, v).angular[5]
    tau = generalized(tree, push, q, v)
    close(tau @ v, power, scale=10.0)
    # Component by component (H1), with the force moved to the center of mass.
    T, Omega = partial_velocities(tree, q)
    arm = position(tree, q, 5, point) - position(tree, q, 5, tree.com[5])
    moment = jnp.cross(arm, turned @ force) + turned @ torque
    close(tau, T[5] @ (turned @ force) + Omega[5] @ moment, scale=10.0)


def test_joint_spring_force_is_minus_the_gradient_of_its_energy(tree, motion):
    q, v, rest = motion
    stiffness = jnp.asarray(np.random.default_rng(74).uniform(1.0, 5.0, tree.nv))
    spring = JointSpring(stiffness, rest)
    close(potential(tree, spring, q), 0.5 * jnp.sum(stiffness * (q - rest) ** 2), scale=10.0)
    close(generalized(tree, spring, q, v), -jax.grad(lambda q: potential(tree, spring, q))(q), scale=10.0)
    close(generalized(tree, spring, rest, v), 0.0)


def test_joint_friction_is_linear_when_slow_and_coulomb_when_fast(tree, motion):
    q, v, _ = motion
    viscous, coulomb = np.random.default_rng(75).uniform(0.5, 2.0, (2, tree.nv))
    friction = JointFriction(viscous, coulomb, np.full(tree.nv, 1e-3))
    close(generalized(tree, friction, q, v), -viscous * v - coulomb * np.sign(v))  # every |v| here exceeds 19 scales
    assert np.min(np.abs(v)) > 0.019
    slope = jax.jvp(lambda v: generalized(tree, friction, q, v), (jnp.zeros_like(v),), (v,))[1]
    close(slope, -(viscous + coulomb / 1e-3) * v, scale=1e3)
    assert generalized(tree, friction, q, v) @ v < 0


def test_drives_act_on_their_columns_alone_and_their_power_is_gear_times_control_times_velocity(tree, motion):
    q, v, _ = motion
    drives = JointDrives(columns=(4, 1), gear=(2.0, -0.5))
    system = System(tree, drives=drives)
    assert system.nu == 2
    tau = applied_forces(system, State(q, v), jnp.array([3.0, 7.0]))
    assert np.array_equal(tau, [0, -3.5, 0, 0, 6.0, 0])  # (H6)
    with pytest.raises(ValueError, match=r"2 controls: give shape \(2,\)"):
        applied_forces(system, State(q, v), jnp.zeros(6))


def test_without_drives_the_control_is_the_generalized_force_and_none_is_zero(tree, motion):
    q, v, u = motion
    assert np.array_equal(applied_forces(System(tree), State(q, v), u), u)
    assert np.array_equal(applied_forces(System(tree), State(q, v)), np.zeros(6))


def test_generalized_forces_and_energies_of_several_forces_add_up(tree, motion):
    q, v, _ = motion
    points = np.random.default_rng(76).normal(size=(6, 3))
    forces = (
        Spring(5, points[0], 4, points[1], 30.0, 0.7),
        Damper(3, points[2], GROUND, points[3], 3.0),
        AppliedForce(1, points[4], points[5], points[0], True),
        JointSpring(np.ones(6), np.zeros(6)),
        JointFriction(np.ones(6), np.ones(6), np.ones(6)),
    )
    together = applied_forces(System(tree, forces), State(q, v))
    close(together, sum(generalized(tree, f, q, v) for f in forces), scale=100.0)
    system, alone = System(tree, forces), System(tree)
    state = alone.at_rest(q)
    energy = jaxdyn.potential_energy(system, state) - jaxdyn.potential_energy(alone, state)
    close(energy, sum(potential(tree, f, q) for f in forces), scale=100.0)


def test_every_force_says_whether_it_is_conservative_and_only_those_have_a_potential(tree, motion):
    q, _, _ = motion
    for force, conservative in [
        (Spring(5, (0, 0, 0), 4, (0, 0, 1), 30.0, 0.7), True),
        (JointSpring(np.ones(6), np.ones(6)), True),
        (Damper(5, (0, 0, 0), 4, (0, 0, 1), 3.0), False),
        (AppliedForce(5, (0, 0, 0), (1, 0, 0), (0, 0, 0), False), False),
        (JointFriction(np.ones(6), np.ones(6), np.ones(6)), False),
    ]:
        assert force.conservative is conservative
        assert (potential(tree, force, q) != 0) == conservative


@pytest.fixture
def cart():
    """A body on three slides from the ground, whose origin meets the ground origin at q = 0."""
    builder = MechanismBuilder("cart", gravity=(0, 0, 0))
    for name, parent, axis in [("x", "ground", (1, 0, 0)), ("y", "x", (0, 1, 0)), ("z", "y", (0, 0, 1))]:
        builder.add_body(name, parent=parent, joint=Prismatic(axis), mass=1.0)
    return builder.build()


def between_origins(kind, **numbers):
    return kind(2, (0.0, 0.0, 0.0), GROUND, (0.0, 0.0, 0.0), **numbers)


def test_a_spring_without_free_length_is_smooth_where_its_ends_meet(cart):
    spring = between_origins(Spring, stiffness=30.0)
    origin, v = jnp.zeros(3), jnp.array([0.3, -0.2, 0.5])

    @jax.jit
    def derivatives(q):
        def energy(q):
            return potential(cart, spring, q)

        def force(q):
            return generalized(cart, spring, q, v)

        forces = force(q), jax.jacfwd(force)(q), jax.jacfwd(jax.jacfwd(force))(q)
        return energy(q), jax.grad(energy)(q), jax.hessian(energy)(q), *forces

    energy, slope, curvature, force, stiffness, third = derivatives(origin)
    assert energy == 0
    assert not np.any(slope)
    assert not np.any(force)
    close(curvature, 30.0 * np.eye(3))
    close(stiffness, -30.0 * np.eye(3))
    assert not np.any(third)


# The direction of the line is undefined there, so no derivative is right; but one bad sample must not stop a batch.
@pytest.mark.parametrize(
    "force",
    [between_origins(Spring, stiffness=30.0, free_length=0.2), between_origins(Damper, coefficient=3.0)],
    ids=["spring", "damper"],
)
def test_a_spring_with_free_length_or_a_damper_exerts_nothing_where_its_ends_meet(cart, force):
    inputs, static = eqx.partition((force, jnp.zeros(3), jnp.array([0.3, -0.2, 0.5])), eqx.is_inexact_array)

    def pushed(inputs):
        force, q, v = eqx.combine(inputs, static)
        return generalized(cart, force, q, v)

    value, derivatives = jax.jit(lambda x: (pushed(x), jax.jacrev(pushed)(x)))(inputs)
    assert not np.any(value)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(derivatives))


def test_a_spring_and_a_damper_a_hair_longer_than_nothing_already_push_along_their_line(cart):
    q, v, direction = jnp.array([3e-8, 0.0, 4e-8]), jnp.array([0.3, -0.2, 0.5]), np.array([0.6, 0.0, 0.8])
    damper = between_origins(Damper, coefficient=3.0)
    close(generalized(cart, damper, q, v), -3.0 * (direction @ v) * direction)
    spring = between_origins(Spring, stiffness=30.0, free_length=0.2)
    close(generalized(cart, spring, q, v), -30.0 * (5e-8 - 0.2) * direction)


def test_a_force_of_neither_family_is_refused(tree):
    class Odd(Force):
        conservative = True

    with pytest.raises(TypeError, match="one of the forces is an Odd; give a BodyForce or a GeneralizedForce"):
        jaxdyn.System(tree, (Odd(),))


def test_the_drag_of_a_box_dissipates_and_an_implicit_step_takes_its_derivative(tree, motion):
    """The matrix of a step is -step dQ/dv, so that steps in thick oil are stable."""
    q, v, _ = motion
    edges = np.linalg.qr(np.random.default_rng(5).normal(size=(3, 3)))[0] * [[0.1], [0.3], [0.7]]
    drag = BoxDrag(5, np.array([0.1, -0.2, 0.3]), edges, density=1.2, viscosity=0.4)

    @jax.jit
    def laws(v):
        moving = kinematics.motion(tree, q, v)
        tau = inverse.project(tree, moving.placements, drag.body_forces(tree, moving, jnp.zeros(())))
        added = drag.over_step(tree, moving, jnp.zeros(()), 0.01).added
        return tau, jax.vmap(lambda a: added_inertia.force(tree, moving.placements, added, a))(jnp.eye(tree.nv))

    tau, matrix = laws(v)
    assert tau @ v < 0.0
    close(matrix, -0.01 * jax.jit(jax.jacfwd(laws))(v)[0].T)
    with pytest.raises(jaxdyn.MechanismError, match="its edges are not perpendicular to one another"):
        System(tree, (dataclasses.replace(drag, edges=drag.edges + 0.1),))


def test_only_the_drag_of_an_ellipsoid_works_and_all_its_forces_have_derivatives_at_rest(tree, motion):
    q, v, _ = motion
    axes = np.linalg.qr(np.random.default_rng(6).normal(size=(3, 3)))[0] * [[0.1], [0.3], [0.7]]
    with_drag = EllipsoidDrag(5, np.array([0.1, -0.2, 0.3]), axes, 900.0, 0.4).with_entrained_medium()
    without = EllipsoidDrag(5, with_drag.center, axes, 900.0, 0.0, blunt=0.0, slender=0.0, angular=0.0, kutta=2.0)

    @jax.jit
    def tau(drag, v):
        moving = kinematics.motion(tree, q, v)
        return inverse.project(tree, moving.placements, drag.body_forces(tree, moving, jnp.zeros(())))

    lifts = tau(without.with_entrained_medium(), v)
    assert np.max(np.abs(lifts - tau(without, v))) > 1e-2 * np.max(np.abs(lifts)) > 0.0
    assert abs(lifts @ v) < 1e-13 * np.sum(np.abs(lifts * v))
    assert tau(with_drag, v) @ v < 0.0
    slope = jax.jit(jax.jacfwd(tau, 1))(with_drag, jnp.zeros(tree.nv))  # viscous drag alone
    np.testing.assert_allclose(slope @ v, 1e12 * tau(with_drag, 1e-12 * v), rtol=1e-6)


def test_an_ellipsoid_in_thick_oil_stops_within_one_step(tree, motion):
    q, v, _ = motion
    drag = EllipsoidDrag(5, np.zeros(3), 0.3 * np.eye(3), density=1e3, viscosity=1e6)
    still = dataclasses.replace(tree, gravity=jnp.zeros(3))
    end = jaxdyn.rollout(System(still, (drag,)), State(q, v), dt=1e-2, steps=5).final
    moving = jax.jit(kinematics.motion)(still, end.q, end.v)
    assert np.max(np.abs(moving.velocity[5])) < 1e-3 * np.max(np.abs(v))
