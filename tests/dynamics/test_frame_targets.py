"""Jacobians and velocities of frames, and inverse kinematics: against forward kinematics, closed forms and difference quotients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn.constraints import Coupling
from jaxdyn.dynamics import FrameTarget, InverseKinematicsResult
from jaxdyn.mechanism.model import as_dtype
from jaxdyn.results import UnsuccessfulError
from jaxdyn.spatial.transform import RigidTransform

ORIGIN = RigidTransform(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))


def planar_arm(limits=None, bars: int = 2) -> jaxdyn.Model:
    """Bars of 1 m in the plane of x and z, with a frame at the tip; without masses."""
    builder = jaxdyn.MechanismBuilder("arm")
    along = {"joint": jaxdyn.Revolute((0.0, 1.0, 0.0))}
    builder.add_body("bar 1", **along, position_limits=limits)
    for k in range(2, bars + 1):
        builder.add_body(f"bar {k}", **along, parent=f"bar {k - 1}", position=(1.0, 0.0, 0.0))
    builder.add_frame("tip", body=f"bar {bars}", position=(1.0, 0.0, 0.0))
    return builder.build(kinematic=True)


def place(x: float, z: float) -> FrameTarget:
    return FrameTarget("tip", RigidTransform(ORIGIN.quaternion, jnp.array([x, 0.0, z])), rotation=0.0)


def test_jacobians_and_velocities_of_frames_are_rates_of_their_placements():
    model = jaxdyn.library.panda()
    q = jaxdyn.configuration.random(model, jax.random.key(0))
    v = jnp.linspace(-1.0, 2.0, 7)

    @jax.jit
    def both(q, v):
        def placed(s):
            there = jaxdyn.frame_placement(model, jaxdyn.configuration.integrate(model, q, s * v), "flange")
            return there.rotation, there.translation

        (rotation, _), (rotation_rate, rate) = jax.jvp(placed, (jnp.zeros(()),), (jnp.ones(()),))
        return rotation_rate @ rotation.T, rate, jaxdyn.dynamics.frame_jacobian(model, q, "flange") @ v

    spin, rate, product = both(q, v)
    moving = jaxdyn.dynamics.frame_velocity(model, q, v, "flange")
    np.testing.assert_allclose(moving.linear, rate, atol=1e-13)
    np.testing.assert_allclose(moving.angular, [spin[2, 1], spin[0, 2], spin[1, 0]], atol=1e-13)
    np.testing.assert_allclose(product, jnp.concatenate([moving.angular, moving.linear]), atol=1e-13)


def test_a_two_bar_arm_reaches_a_point_as_the_law_of_cosines_says():
    model = planar_arm()
    found = jaxdyn.inverse_kinematics(model, jnp.array([0.1, 0.3]), place(1.2, -0.4))
    assert found.reached
    elbow = np.arccos((1.2**2 + 0.4**2 - 2.0) / 2.0)
    np.testing.assert_allclose(np.abs(found.q[1]), elbow, rtol=1e-12)
    np.testing.assert_allclose(jaxdyn.frame_placement(model, found.q, "tip").translation, [1.2, 0.0, -0.4], atol=1e-12)


def test_single_precision_in_gives_single_precision_out():
    model, target = (as_dtype(tree, jnp.float32) for tree in (planar_arm(), place(1.2, -0.4)))
    found = jaxdyn.inverse_kinematics(model, jnp.array([0.1, 0.3], jnp.float32), target)
    assert found.reached
    assert found.q.dtype == found.error.dtype == jnp.float32


def test_a_point_out_of_reach_gives_the_nearest_point_and_its_derivative():
    model = planar_arm()

    def of(p):
        target = place(0.0, 0.0)
        target = eqx.tree_at(lambda x: x.pose.translation, target, p)
        return jaxdyn.inverse_kinematics(model, jnp.array([0.1, 0.3]), target, throw=False)

    point = jnp.array([3.0, 0.0, -4.0])
    found = of(point)
    assert not found.reached
    assert found.result == InverseKinematicsResult.NOT_REACHED
    assert found.stats.error == found.error
    with pytest.raises(UnsuccessfulError, match=r"NOT_REACHED: .* out of reach"):
        jaxdyn.inverse_kinematics(model, jnp.array([0.1, 0.3]), place(3.0, -4.0))
    np.testing.assert_allclose(jaxdyn.frame_placement(model, found.q, "tip").translation, 0.4 * point, atol=1e-6)
    # The stretched arm turns with the direction of the point, by -0.8 dx / 5 - 0.6 dz / 5.
    slope = jax.jit(jax.jacfwd(lambda p: of(p).q))(point)
    np.testing.assert_allclose(slope, [[-0.8 / 5, 0.0, -0.6 / 5], [0.0, 0.0, 0.0]], atol=1e-5)


def test_the_nearest_point_that_a_coupling_allows_is_found():
    model = planar_arm()
    system = jaxdyn.System(model, constraints=(Coupling("mimic", 1, 0, jnp.array([0.1, 1.0, 0.5])),))
    solve = jax.jit(lambda x, z: jaxdyn.inverse_kinematics(system, system.at_rest(jnp.zeros(2)), place(x, z)))
    there = jaxdyn.frame_placement(model, jnp.array([0.4, 0.58]), "tip").translation
    found = solve(there[0], there[2])
    assert bool(found.reached)
    np.testing.assert_allclose(found.q, [0.4, 0.58], atol=1e-9)
    missed = solve(1.0, -1.0)
    assert not bool(missed.reached)
    first, second = map(float, missed.q)
    np.testing.assert_allclose(second, 0.1 + first + 0.5 * first**2, atol=1e-12)

    def distance(first):
        both = 2.0 * first + 0.1 + 0.5 * first**2
        return np.hypot(np.cos(first) + np.cos(both) - 1.0, np.sin(first) + np.sin(both) - 1.0)

    np.testing.assert_array_less(distance(first), distance(first + np.array([-1e-4, 1e-4])))


def test_joint_limits_hold_and_an_arm_at_a_limit_reaches_with_the_other_joint():
    model = planar_arm(limits=(-0.2, 0.2))
    found = jaxdyn.inverse_kinematics(model, jnp.zeros(2), place(0.5, -1.2), throw=False)
    assert not found.reached
    assert abs(float(found.q[0])) == 0.2
    # The other joint points at the target from the end of the first bar.
    end = np.array([np.cos(found.q[0]), -np.sin(found.q[0])])
    tip = np.asarray(jaxdyn.frame_placement(model, found.q, "tip").translation)[[0, 2]]
    toward = (np.array([0.5, -1.2]) - end) / np.hypot(*(np.array([0.5, -1.2]) - end))
    np.testing.assert_allclose(tip - end, toward, atol=1e-6)
    assert jaxdyn.inverse_kinematics(model, jnp.zeros(2), place(0.5, -1.2), limits=False).reached


def test_random_poses_of_a_panda_are_reached_in_batches_within_its_limits():
    model = jaxdyn.library.panda()
    lower, upper = model.limits.lower, model.limits.upper
    there = jax.vmap(lambda key: jaxdyn.configuration.random(model, key))(jax.random.split(jax.random.key(1), 200))

    def reach(q):
        target = FrameTarget("flange", jaxdyn.frame_placement(model, q, "flange"))
        return jaxdyn.inverse_kinematics(model, 0.5 * (lower + upper), target)

    found = jax.jit(jaxdyn.batched(reach))(there)
    assert float(jnp.mean(found.reached)) > 0.97
    assert bool(jnp.all((found.q >= lower[None]) & (found.q <= upper[None])))
    reached = jax.vmap(lambda q: jaxdyn.frame_placement(model, q, "flange"))(found.q)
    wanted = jax.vmap(lambda q: jaxdyn.frame_placement(model, q, "flange"))(there)
    off = jnp.abs(reached.translation - wanted.translation).max(axis=1)
    np.testing.assert_array_less(off[found.reached], 1e-6)


@pytest.mark.thorough
def test_the_derivative_moves_a_redundant_arm_with_its_target_and_agrees_in_both_modes():
    model, start = planar_arm(bars=3), jnp.array([0.3, 0.5, 0.8])
    target = place(*np.asarray(jaxdyn.frame_placement(model, start + 0.1, "tip").translation)[[0, 2]])

    def posture(p):
        there = eqx.tree_at(lambda x: x.pose.translation, target, p)
        return jaxdyn.inverse_kinematics(model, start, there, restarts=0, max_steps=20).q

    q, forward, reverse = jax.jit(lambda p: (posture(p), jax.jacfwd(posture)(p), jax.jacrev(posture)(p)))(
        target.pose.translation
    )
    np.testing.assert_allclose(forward, reverse, atol=1e-7)
    jacobian = np.asarray(jaxdyn.dynamics.frame_jacobian(model, q, "tip"))[[3, 5]]
    np.testing.assert_allclose(jacobian @ forward, [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], atol=1e-6)
    null = np.linalg.svd(jacobian)[2][2:]
    np.testing.assert_allclose(null @ np.asarray(forward), 0.0, atol=1e-6)


def test_a_search_ends_when_its_error_is_at_rounding_or_when_no_step_decreases_it():
    """With all of these steps, a search would take hours."""
    model = planar_arm()
    points = jnp.array([[1.2, -0.4], [0.3, 0.9], [3.0, -4.0]])

    def tip(p):
        q = jaxdyn.inverse_kinematics(model, jnp.array([0.1, 0.3]), place(*p), max_steps=10**9).q
        return jaxdyn.frame_placement(model, q, "tip").translation[::2], q

    (reached, _), (slopes, _), (back, _) = jax.jit(
        jaxdyn.batched(lambda p: (tip(p), jax.jacfwd(tip)(p), jax.jacrev(tip)(p)))
    )(points)
    np.testing.assert_allclose(reached, [*points[:2], 0.4 * points[2]], atol=1e-14, rtol=1e-7)
    np.testing.assert_allclose(slopes[:2], np.broadcast_to(np.identity(2), (2, 2, 2)), atol=1e-7)
    np.testing.assert_allclose(slopes, back, atol=1e-7)


def test_several_frames_on_a_spherical_joint_are_placed_together():
    builder = jaxdyn.MechanismBuilder("fork")
    builder.add_body("stem", joint=jaxdyn.Spherical())
    builder.add_body("left", parent="stem", joint=jaxdyn.Revolute((0.0, 1.0, 0.0)), position=(0.0, 0.2, 0.5))
    builder.add_body("right", parent="stem", joint=jaxdyn.Prismatic((1.0, 0.0, 0.0)), position=(0.0, -0.2, 0.5))
    model = builder.build(kinematic=True)
    goal = jaxdyn.configuration.random(model, jax.random.key(2), spread=0.5)
    targets = [FrameTarget(name, jaxdyn.frame_placement(model, goal, name)) for name in ("left", "right")]
    found = jaxdyn.inverse_kinematics(model, jaxdyn.configuration.neutral(model), targets, restarts=0, max_steps=30)
    assert found.reached
    np.testing.assert_allclose(jaxdyn.configuration.difference(model, goal, found.q), 0.0, atol=1e-6)


@pytest.mark.parametrize(
    ("targets", "error", "word"),
    [
        ([], ValueError, "FrameTarget"),
        ([ORIGIN], TypeError, "RigidTransform"),
        (FrameTarget("hand", ORIGIN), jaxdyn.UnknownName, "hand"),
    ],
)
def test_bad_targets_are_refused(targets, error, word, refusal, as_a_user):
    assert word in refusal(error, jaxdyn.inverse_kinematics, planar_arm(), jnp.zeros(2), targets)
