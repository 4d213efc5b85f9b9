"""Forces of constraints, minimal coordinates and independent equations, against printed numbers, other cuts and closed forms."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from first_cases import first
from jaxtyping import Array, Float
from mechanisms import model_from_arrays
from stacked_reactions import stacked

import jaxdyn
from jaxdyn import (
    Free,
    LoopJoint,
    MechanismBuilder,
    Model,
    Prismatic,
    Projected,
    Revolute,
    Spherical,
    State,
    System,
    library,
)
from jaxdyn.constraints import Constraint
from jaxdyn.dynamics.kinematics import point_on_body
from jaxdyn.spatial.transform import RigidTransform


def marker(x: float, y: float) -> RigidTransform:
    return RigidTransform(jnp.asarray([1.0, 0.0, 0.0, 0.0]), jnp.asarray([x, y, 0.0]))


def planar_four_bar(parents, offsets, cut: LoopJoint) -> System:
    """The bodies of theory.md section (p), closed loop, on joints as given."""
    model = model_from_arrays(
        parents=parents,
        kinds=["revolute"] * 3,
        axes=[(0, 0, 1)] * 3,
        joint_offsets=offsets,
        com_offsets=[(0.18, 0.03, 0), (0.5, -0.04, 0), (0.32, 0.02, 0)],
        masses=[1.0, 2.0, 1.5],
        inertias=[
            (0.02, 0.03, 0.04, 0.002, 0.003, -0.001),
            (0.03, 0.2, 0.21, 0.01, 0.004, -0.002),
            (0.02, 0.09, 0.1, -0.004, 0.002, 0.003),
        ],
        gravity=(0.3, -9.81, 0.2),
    )
    return System(model, constraints=(cut,))


CUT_AT_GROUND = planar_four_bar(
    [0, 1, 2],
    [(0, 0, 0), (0.4, 0, 0), (1.0, 0, 0)],
    LoopJoint("cut", "revolute", 2, marker(0.8, 0.0), -1, marker(1.1, 0.1)),
)
Q = jnp.asarray([0.7, -0.003092558337801366, -2.233656793935281])
V = jnp.asarray([2.0, -2.798064692839767, 0.8019880819540066])
TAU = jnp.asarray([1.3, 0.0, 0.0])
# Of the ground on body 3, from the explicit reduction to one coordinate and from Newton-Euler with the closing joint.
FORCE = np.array([-1.06850224803, 26.0291612618])


def test_forces_and_accelerations_of_the_printed_four_bar():
    system, state = CUT_AT_GROUND, State(Q, V)

    @jax.jit
    def found(state):
        a = jaxdyn.acceleration(system, state, TAU)
        forces = jaxdyn.constraint_forces(system, state, TAU)["cut"]
        symbols = jaxdyn.christoffel_second_kind(system.model, state.q)
        force = TAU + jaxdyn.gravity_force(system.model, state.q) + forces.generalized
        contravariant = jnp.linalg.solve(jaxdyn.mass_matrix(system.model, state.q), force) - jnp.einsum(
            "abd,a,b->d", symbols, state.v, state.v
        )
        wrench = jnp.concatenate([forces.moment, forces.force], axis=1)
        by_bodies = jnp.einsum("bcv,bc->v", jaxdyn.body_jacobian(system.model, state.q), wrench)
        reaction = jaxdyn.loop_reactions(system, state, TAU)["cut"]
        return a, forces, contravariant, by_bodies, reaction, jaxdyn.constraints.mobility(system, state)

    a, forces, contravariant, by_bodies, reaction, mobility = found(state)
    np.testing.assert_allclose(a, [-16.3398364774, 24.6112365307, -4.75614328992], rtol=1e-11)
    np.testing.assert_allclose(forces.multipliers[:2], FORCE, rtol=1e-10)
    np.testing.assert_allclose(reaction.force[:2], -FORCE, rtol=1e-10)
    np.testing.assert_allclose(reaction.moment, 0.0, atol=1e-10)  # of a pin in a plane
    np.testing.assert_allclose(contravariant, a, rtol=1e-11)
    np.testing.assert_allclose(by_bodies, forces.generalized, atol=1e-11)
    np.testing.assert_allclose(
        jaxdyn.constraints.constraint_jacobian(system, system.at_rest(Q)).T @ forces.multipliers, by_bodies, atol=1e-11
    )
    assert int(mobility.rank) == 2
    assert int(mobility.degrees_of_freedom) == 1
    assert mobility.independent.sum() == 2
    assert jaxdyn.constraints.describe_mobility(system, system.at_rest(Q)) == (
        "5 equations, 2 independent; 1 degree of freedom of 3 remain\n  cut: 5 equations, 2 independent"
    )


def test_minimal_coordinates_move_as_multipliers_do():
    system, state = CUT_AT_GROUND, State(Q, V)
    chosen = jaxdyn.constraints.independent_velocities(system, system.at_rest(Q))
    assert len(chosen) == 1
    choices = {chosen, (0,) if chosen == (2,) else (2,)}

    @jax.jit
    def found(state):
        minimal = [jaxdyn.constraints.minimal_acceleration(system, state, choice, TAU) for choice in choices]
        motions = [jaxdyn.constraints.minimal_motion(system, system.at_rest(state.q), choice) for choice in choices]
        return jaxdyn.acceleration(system, state, TAU), minimal, motions

    expected, minimal, motions = found(state)
    for independent, a, (basis, offset, _) in zip(choices, minimal, motions, strict=True):
        np.testing.assert_allclose(a, expected, rtol=1e-11)
        np.testing.assert_allclose(basis[:, 0] * V[independent[0]] + offset, V, atol=1e-11)
    with pytest.raises(ValueError, match=r"independent velocities \(0, 0\) of .*: give different indices from 0 to 2"):
        jaxdyn.constraints.minimal_motion(system, system.at_rest(Q), (0, 0))
    with pytest.raises(ValueError, match="has no constraints; all its 3 velocities are independent"):
        jaxdyn.constraints.minimal_motion(System(system.model), System(system.model).at_rest(Q), (0,))


def test_a_loop_joint_bears_the_force_and_the_moment_of_the_same_joint_in_a_tree():
    """A slide on an arm: once in the tree, once between the arm and a free body."""
    place, numbers = (
        jnp.asarray([0.1, -0.2, 0.5]),
        {"mass": 0.7, "com": (0.1, 0.05, -0.1), "inertia": (0.02, 0.03, 0.04)},
    )

    def arm_with(**joint) -> Model:
        builder = MechanismBuilder("arm", gravity=(0.5, 1.0, -9.81))
        builder.add_body("arm", joint=Revolute((0, 0.6, 0.8)), mass=1.0, com=(0, 0.1, 0.3), inertia=(0.1, 0.1, 0.02))
        builder.add_body("slide", **joint, **numbers)
        return builder.build()

    tree = System(arm_with(parent="arm", joint=Prismatic((0, 0, 1)), position=place))
    turn = jnp.asarray([1.0, 0.0, 0.0, 0.0])
    loop = LoopJoint("slide", "prismatic", 0, RigidTransform(turn, place), 1, RigidTransform(turn, jnp.zeros(3)))
    cut = System(arm_with(joint=Free()), constraints=(loop,))
    state = State(jnp.asarray([0.4, 0.3]), jnp.asarray([1.5, -0.7]))

    @jax.jit
    def both(state):
        bodies = jaxdyn.forward_kinematics(tree.model, state.q)
        arm, slide = (jax.tree.map(lambda x, i=i: x[i], bodies) for i in (0, 1))
        angular, linear = jnp.split(jaxdyn.body_jacobian(tree.model, state.q)[1] @ state.v, 2)
        twist = jnp.concatenate([slide.rotation.T @ angular, slide.rotation.T @ linear])
        q = jnp.concatenate([state.q[:1], slide.translation, slide.quaternion])
        of_cut = jaxdyn.loop_reactions(cut, State(q, jnp.concatenate([state.v[:1], twist])))["slide"]
        in_tree = stacked(jaxdyn.joint_reactions(tree, state))
        force = in_tree.force[1]
        return of_cut, force, in_tree.moment[1] + jnp.cross(slide.translation - arm.apply(place), force)

    found, force, moment = both(state)
    np.testing.assert_allclose(found.force, force, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.moment, moment, rtol=1e-9, atol=1e-9)
    assert np.linalg.norm(moment) > 0.1


class Wire(Constraint):
    """A point of a body stays on the parabola z = curvature x^2 / 2."""

    name: str = eqx.field(static=True)
    curvature: Float[Array, ""]

    def residual(self, model, q, poses):
        reference, arm = point_on_body(poses, 1, jnp.zeros(3, q.dtype))
        x, _, z = reference + arm
        return (z - 0.5 * self.curvature * x**2)[None]


def test_a_constraint_of_ones_own_is_its_residual_and_nothing_else():
    builder = MechanismBuilder("bead", gravity=(0, 0, -9.81))
    builder.add_body("slide", joint=Prismatic((1, 0, 0)))
    builder.add_body("bead", parent="slide", joint=Prismatic((0, 0, 1)), mass=0.5)
    system = System(builder.build(), constraints=(Wire("wire", jnp.asarray(1.4)),))
    x, speed, k = 0.6, 2.0, 1.4
    state = State(jnp.asarray([x, 0.5 * k * x**2]), jnp.asarray([speed, k * x * speed]))
    along = -(k**2 * x * speed**2 + 9.81 * k * x) / (1 + (k * x) ** 2)
    a, forces = jax.jit(lambda s: (jaxdyn.acceleration(system, s), jaxdyn.constraint_forces(system, s)["wire"]))(state)
    np.testing.assert_allclose(a, [along, k * x * along + k * speed**2], rtol=1e-12)
    normal = 0.5 * np.array([a[0], a[1] + 9.81])
    np.testing.assert_allclose(forces.force[1, [0, 2]], normal, rtol=1e-12)
    np.testing.assert_allclose(forces.generalized, normal, rtol=1e-12)
    end = jaxdyn.rollout(system, state, dt=1e-3, steps=2000, save_every=2000, integrator=Projected()).final
    assert np.abs(jaxdyn.constraints.constraint_errors(system, end).residual).max() < 1e-13
    np.testing.assert_allclose(jaxdyn.total_energy(system, end), jaxdyn.total_energy(system, state), rtol=1e-8)


def test_errors_decay_at_the_rate_that_was_asked_for():
    system = library.system("slider_crank")
    weightless = eqx.tree_at(lambda m: m.gravity, system.model, jnp.zeros(3))
    system = dataclasses.replace(system, model=weightless, stabilization=20.0)
    closed = jaxdyn.assemble(system, system.at_rest(jaxdyn.configuration.neutral(system.model))).q
    opened = closed + 1e-5 * jnp.ones_like(closed)
    before = jaxdyn.constraints.constraint_errors(system, State(opened, jnp.zeros(system.model.nv))).residual
    run = jaxdyn.rollout(
        system,
        State(opened, jnp.zeros(system.model.nv)),
        dt=1e-3,
        steps=100,
        save_every=100,
        integrator=jaxdyn.RungeKutta4(),
    )
    after = jaxdyn.constraints.constraint_errors(system, run.final).residual
    largest = np.argmax(np.abs(before))
    # phi0 (1 + w t) exp(-w t), less what holding it over a step delays.
    np.testing.assert_allclose(after[largest] / before[largest], 3.0 * np.exp(-2.0), rtol=0.03)


def test_what_is_held_stays_and_what_cannot_be_held_is_refused():
    found = jax.jit(lambda q: jaxdyn.assemble(CUT_AT_GROUND, CUT_AT_GROUND.at_rest(q), held=(0,)))(Q.at[0].add(0.2))
    assert bool(found.closed)
    assert float(found.q[0]) == float(Q[0] + 0.2)
    with pytest.raises(ValueError, match=r"held \(3,\) of 'mechanism': there is no velocity component 3; use 0 to 2"):
        jaxdyn.assemble(CUT_AT_GROUND, CUT_AT_GROUND.at_rest(Q), held=(3,))
    with pytest.raises(ValueError, match="iterations of Projected is 0; give an integer that is 1 or more"):
        Projected(iterations=0)


@pytest.mark.thorough
def test_assembly_follows_its_start_as_far_as_the_constraints_let_it():
    """By the start: the crank's own angle where it is held, and else the velocity nearest in kinetic energy."""

    @jax.jit
    def slopes(q):
        by_start = jax.jacfwd(lambda q: jaxdyn.assemble(CUT_AT_GROUND, CUT_AT_GROUND.at_rest(q)).q)(q)
        by_crank = jax.jacfwd(lambda q: jaxdyn.assemble(CUT_AT_GROUND, CUT_AT_GROUND.at_rest(q), held=(0,)).q)(q)
        return by_start, by_crank, jax.jacfwd(lambda v: jaxdyn.project_velocity(CUT_AT_GROUND, State(q, v)))(V)

    by_start, by_crank, nearest = slopes(Q)
    np.testing.assert_allclose(by_start, nearest, atol=1e-9)
    np.testing.assert_allclose(by_start @ V, V, atol=1e-9)
    np.testing.assert_allclose(by_crank, np.outer(V / V[0], [1.0, 0.0, 0.0]), atol=1e-9)


@pytest.mark.filterwarnings("ignore::jaxdyn.mechanism.messages.ImplausibleInertia")
@pytest.mark.parametrize("dtype", first(1, [jnp.float32, jnp.float64]))
def test_what_is_independent_does_not_depend_on_the_unit_of_length(dtype):
    """A hinge, a ball and a slide, closed by a universal joint whose equations are lengths and an angle: in m, mm, km."""

    def in_unit(length: float) -> tuple[System, State]:
        builder = MechanismBuilder("crank", gravity=(0, 0, 0))
        numbers = {"com": (0.1 * length, 0, 0), "inertia": np.array([0.01, 0.1, 0.1]) * length**2}
        builder.add_body("crank", joint=Revolute((0, 1, 0)), mass=1.0, **numbers)
        builder.add_body("rod", parent="crank", joint=Spherical(), position=(0.3 * length, 0, 0), mass=2.0, **numbers)
        builder.add_body("slide", joint=Prismatic((1, 0, 0)), mass=0.5)
        joint = LoopJoint("joint", "universal", 1, marker(0.8 * length, 0.0), 2, marker(0.0, 0.0))
        system = System(builder.build(), constraints=(joint,))
        return system, system.at_rest(jnp.asarray([0.1, 0.99, 0.02, 0.08, 0.1, 1.05 * length]))

    find = jax.jit(jaxdyn.constraints.mobility)
    systems = [jaxdyn.as_dtype(in_unit(length), dtype) for length in (1.0, 1e3, 1e-3)]
    expected, *found = [find(*system) for system in systems]
    for other in found:
        assert int(other.rank) == int(expected.rank)
        np.testing.assert_allclose(other.smallest, expected.smallest, rtol=1e4 * jnp.finfo(dtype).eps)
    chosen = [jaxdyn.constraints.independent_velocities(*system) for system in systems]
    assert chosen == chosen[:1] * 3
