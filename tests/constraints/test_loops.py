"""Mechanisms with loops move as the same mechanisms without them, and as closed forms say."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from first_cases import first
from random_trees import random_inertia, random_unit

import jaxdyn
from jaxdyn import (
    Coupling,
    Cylindrical,
    Distance,
    Fixed,
    Free,
    LoopJoint,
    MechanismBuilder,
    MechanismError,
    Planar,
    Prismatic,
    Revolute,
    Spherical,
    State,
    System,
    Universal,
)
from jaxdyn.dynamics import constraint_motion, kinematics
from jaxdyn.spatial.transform import RigidTransform

IDENTITY = RigidTransform(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
JOINTS = {
    "revolute": Revolute((0, 0, 1)),
    "prismatic": Prismatic((0, 0, 1)),
    "cylindrical": Cylindrical((0, 0, 1)),
    "universal": Universal((1, 0, 0), (0, 1, 0)),
    "spherical": Spherical(),
    "planar": Planar((0, 0, 1), (1, 0, 0)),
    "fixed": Fixed(),
}


def chain(joint, parent: str) -> jaxdyn.Model:
    """A swinging body, and a second one on it by a joint or on the ground."""
    rng = np.random.default_rng(3)
    builder = MechanismBuilder("two bodies")
    bodies = [(mass, *random_inertia(rng, mass, 0.3)) for mass in (1.0, 2.0)]
    mass, com, inertia = bodies[0]
    builder.add_body("first", joint=Revolute(random_unit(rng)), mass=mass, com=com, inertia=inertia)
    place = {"position": rng.normal(size=3), "orientation": random_unit(rng, 4)} if parent == "first" else {}
    mass, com, inertia = bodies[1]
    builder.add_body("second", parent=parent, joint=joint, mass=mass, com=com, inertia=inertia, **place)
    return builder.build()


@pytest.mark.parametrize("kind", first(1, JOINTS))
def test_loop_joint_moves_as_the_joint_of_a_tree(kind):
    tree, free = chain(JOINTS[kind], "first"), chain(Free(), "ground")
    placements, row = (tree.frames, 0) if kind == "fixed" else (tree.placement, 1)
    loop = LoopJoint("loop", kind, 0, jax.tree.map(lambda x: x[row], placements), 1, IDENTITY)

    def pose(q):
        if kind == "fixed":  # merged into the first body, of which it is a frame
            return jaxdyn.frame_placement(tree, q, "second")
        return jax.tree.map(lambda x: x[1], jaxdyn.forward_kinematics(tree, q))

    def in_loop(q, v):
        """Coordinates and velocities of the first joint and of the second body, now free, of a motion of the tree."""
        along = (jaxdyn.configuration.coordinate_rate(tree, q, v),)
        placed, moved = jax.jvp(lambda q: (pose(q), pose(q).rotation), (q,), along)
        spin = placed[1].T @ moved[1]
        twist = jnp.stack([spin[2, 1], spin[0, 2], spin[1, 0]]), placed[1].T @ moved[0].translation
        return jnp.concatenate([q[:1], placed[0].translation, placed[0].quaternion]), jnp.concatenate([v[:1], *twist])

    @jax.jit
    def compared(q, v):
        expected = jaxdyn.acceleration(System(tree), State(q, v))
        (loop_q, loop_v), (_, loop_a) = jax.jvp(
            in_loop, (q, v), (jaxdyn.configuration.coordinate_rate(tree, q, v), expected)
        )
        moving = constraint_motion.motion(free, (loop,), loop_q, kinematics.motion(free, loop_q, loop_v))
        actual = jaxdyn.acceleration(System(free, constraints=(loop,), stabilization=0.0), State(loop_q, loop_v))
        return moving.residual, moving.rate, actual, loop_a

    rng = np.random.default_rng(1)
    residual, rate, actual, expected = compared(*(jnp.asarray(rng.normal(size=n)) for n in (tree.nq, tree.nv)))
    np.testing.assert_allclose(residual, 0.0, atol=1e-12)
    np.testing.assert_allclose(rate, 0.0, atol=1e-12)
    np.testing.assert_allclose(actual, expected, atol=1e-9)


CRANK, COUPLER, ROCKER, BASE = 0.3, 0.8, 0.6, 1.0


def pin(coupler) -> LoopJoint:
    """The pin between coupler and rocker, which closes the loop."""
    turn = jnp.array([np.sqrt(0.5), np.sqrt(0.5), 0.0, 0.0])  # z to -y
    ends = [RigidTransform(turn, jnp.stack([x, 0.0 * x, 0.0 * x])) for x in (jnp.asarray(coupler), jnp.asarray(ROCKER))]
    return LoopJoint("pin", "revolute", 1, ends[0], 2, ends[1])


def four_bar() -> System:
    """Crank and rocker on the ground, the coupler on the crank."""
    builder = MechanismBuilder("four-bar")
    for name, parent, x, length, mass in (
        ("crank", "ground", 0.0, CRANK, 0.5),
        ("coupler", "crank", CRANK, COUPLER, 1.0),
        ("rocker", "ground", BASE, ROCKER, 0.7),
    ):
        builder.add_body(
            name,
            parent=parent,
            joint=Revolute((0, -1, 0)),
            position=(x, 0, 0),
            mass=mass,
            com=(length / 2, 0, 0),
            inertia=(0.0, mass * length**2 / 12, mass * length**2 / 12),
        )
    return System(builder.build(), constraints=(pin(COUPLER),))


@pytest.mark.thorough
def test_assembly_reports_a_loop_that_cannot_close_and_has_the_derivative_of_its_equations():
    system, start, step = four_bar(), jnp.array([0.7, 0.5, 1.0]), 1e-5

    def assembled(coupler):
        result = jaxdyn.assemble(eqx.tree_at(lambda s: s.constraints, system, (pin(coupler),)), system.at_rest(start))
        return result.q, result

    both = jax.jit(jax.jacfwd(assembled, has_aux=True))
    slope, found = both(jnp.array(COUPLER))
    placed = kinematics.placements(system.model, found.q)
    rows = constraint_motion.jacobian(system.model, system.constraints, found.q, placed)
    # How the equations change with the length, at rest; the crank is free, so the derivative is not that of the closed form.
    change = constraint_motion.residuals_at(system.model, (pin(COUPLER + step),), found.q) / step
    np.testing.assert_allclose(rows @ slope, -change, atol=1e-8)
    assert np.abs(slope).max() > 0.1
    _, impossible = both(jnp.array(5.0))
    assert bool(found.closed)
    assert not bool(impossible.closed)
    assert float(impossible.residual) > 0.1


def test_a_weld_does_not_depend_on_the_sign_of_a_quaternion():
    builder = MechanismBuilder("welded")
    builder.add_body("free", joint=Free(), mass=1.0, inertia=(0.1, 0.2, 0.3))
    system = System(builder.build(), constraints=(LoopJoint("weld", "fixed", -1, IDENTITY, 0, IDENTITY),))
    errors = jax.jit(lambda q: jaxdyn.constraints.constraint_errors(system, State(q, jnp.zeros(6))).residual)
    turn = np.array([0.9, 0.3, -0.1, 0.2])
    one, other = (errors(jnp.concatenate([jnp.zeros(3), sign * turn])) for sign in (1.0, -1.0))
    np.testing.assert_allclose(one[3:], 2.0 * turn[1:] / np.linalg.norm(turn), rtol=1e-12)
    np.testing.assert_allclose(other, one, rtol=1e-12)


def test_couplings_and_rods_hold_over_a_rollout():
    builder = MechanismBuilder("arms")
    for name, x in (("left", 0.0), ("right", 1.0), ("geared", 2.0)):
        builder.add_body(
            name, joint=Revolute((0, 1, 0)), position=(x, 0, 0), mass=1.0, com=(0, 0, -0.5), inertia=(0.1, 0.1, 0.01)
        )
    rod = Distance("rod", 0, (0, 0, -1.0), 1, (0, 0, -0.5), 1.2)
    gear = Coupling("gear", driven=2, driver=1, coefficients=[0.1, -2.0, 0.3])
    system = System(builder.build(), constraints=(rod, gear))
    start = jax.jit(jaxdyn.assemble)(system, system.at_rest(jnp.array([0.5, 0.3, 0.0])))
    assert bool(start.closed)
    assert int(start.mobility) == 1
    state = State(start.q, jnp.zeros(3))
    end = jaxdyn.rollout(system, state, dt=1e-3, steps=1000, integrator=jaxdyn.RungeKutta4(), save_every=1000).final
    assert np.abs(end.q - start.q).min() > 0.05
    np.testing.assert_allclose(end.q[2], 0.1 - 2.0 * end.q[1] + 0.3 * end.q[1] ** 2, atol=1e-9)
    ends = [
        frame.apply(point)
        for frame, point in zip(
            (jax.tree.map(lambda x, i=i: x[i], jaxdyn.forward_kinematics(system.model, end.q)) for i in (0, 1)),
            (rod.point_a, rod.point_b),
            strict=True,
        )
    ]
    np.testing.assert_allclose(jnp.linalg.norm(ends[0] - ends[1]), 1.2, atol=1e-9)
    np.testing.assert_allclose(jaxdyn.total_energy(system, end), jaxdyn.total_energy(system, state), atol=1e-7)


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        (LoopJoint("pin", "hinge", 0, IDENTITY, 1, IDENTITY), "'pin' is of kind 'hinge'; the kinds are revolute"),
        (LoopJoint("pin", "revolute", 0, IDENTITY, 0, IDENTITY), "connects crank with itself"),
        (LoopJoint("pin", "revolute", 0, IDENTITY, 7, IDENTITY), "there is no body 7"),
        (Distance("rod", 0, (0, 0, 0), 1, (0, 0, 0), 0.0), "'rod': length is 0.0; give values that are positive"),
        (Coupling("gear", 0, 3, [0.0, 1.0]), "there is no coordinate 3; use 0 to 2"),
        (Coupling("gear", 1, 1, [0.0, 1.0]), "couples coordinate 1 with itself"),
    ],
)
def test_constraints_that_do_not_fit_are_refused(constraint, message):
    with pytest.raises(MechanismError, match=message):
        System(four_bar().model, constraints=(constraint,))


def test_what_cannot_be_told_and_what_cannot_be_built_is_refused():
    system = four_bar()
    state = State(jnp.zeros(3), jnp.zeros(3))
    with pytest.raises(ValueError, match=r"'four-bar'.*give controls"):
        jaxdyn.joint_reactions(system, state, a=jnp.zeros(3))
    with pytest.raises(MechanismError, match=r"several constraints 'pin'.*different name"):
        System(system.model, constraints=(pin(COUPLER), pin(COUPLER)))
    with pytest.raises(MechanismError, match=r"stabilization is -1.0 1/s.*None"):
        System(system.model, stabilization=-1.0)


def test_summary_names_the_constraints():
    system = four_bar()
    assert "pin: revolute loop joint between coupler and rocker" in system.summary()


def test_equal_constraints_that_are_evaluated_at_once_are_those_one_by_one(monkeypatch):
    """Rods and loop joints in any order, some at the ground: residuals, rates, accelerations, Jacobian and forces."""
    rng = np.random.default_rng(11)
    builder = MechanismBuilder("five bodies")
    for k in range(5):
        mass, com, inertia = 1.0, *random_inertia(rng, 1.0, 0.3)
        builder.add_body(f"body {k}", joint=Free(), mass=mass, com=com, inertia=inertia)
    model = builder.build()

    def frame():
        return RigidTransform(jnp.asarray(random_unit(rng, 4)), jnp.asarray(rng.normal(size=3)))

    def rod(k, a, b):
        return Distance(f"rod {k}", a, rng.normal(size=3), b, rng.normal(size=3), 1.0 + k)

    def joint(k, kind, a, b):
        return LoopJoint(f"joint {k}", kind, a, frame(), b, frame())

    constraints = (
        joint(0, "revolute", 0, 1),
        rod(1, 2, -1),
        joint(2, "spherical", 1, 3),
        joint(3, "revolute", 4, 2),
        Coupling("gear", 7 * 3 + 4, 7 * 2 + 5, [0.1, 2.0]),
        rod(4, 1, 4),
        joint(5, "revolute", -1, 3),
        rod(6, 4, -1),
        joint(7, "revolute", 3, 0),
        rod(8, 0, 2),
    )
    q = jaxdyn.configuration.integrate(model, jaxdyn.configuration.neutral(model), jnp.asarray(rng.normal(size=30)))
    v, lam = jnp.asarray(rng.normal(size=30)), jnp.asarray(rng.normal(size=28))

    def everything(q, v):
        moving = kinematics.motion(model, q, v)
        placed = moving.placements
        return (
            constraint_motion.motion(model, constraints, q, moving),
            constraint_motion.jacobian(model, constraints, q, placed),
            constraint_motion.forces(model, constraints, q, placed.poses, lam),
        )

    together = jax.jit(everything)(q, v)
    monkeypatch.setattr(LoopJoint, "ends", None)
    monkeypatch.setattr(Distance, "ends", None)
    apart = jax.jit(lambda q, v: everything(q, v))(q, v)
    for one, other in zip(jax.tree.leaves(together), jax.tree.leaves(apart), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-13)
