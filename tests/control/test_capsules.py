"""Capsules on bodies and as obstacles: depths against brute force, and a plan of an arm around a pole."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from control_problems import solved

import jaxdyn
from jaxdyn.control import (
    ControlProblem,
    ControlResult,
    Effort,
    Equality,
    Inequality,
    MultibodyDynamics,
    MultipleShooting,
    Penetration,
    Plan,
    Spheres,
    TargetState,
)

LENGTH = 0.5  # m, of both links
POLE = np.array([[0.7, 0.0, -0.6], [0.7, 0.0, 0.1]])  # m, its axis
RADIUS, POLE_RADIUS, MARGIN = 0.04, 0.06, 0.01  # m
LINKS = np.linspace(0.0, LENGTH, 401)[:, None] * np.array([1.0, 0.0, 0.0])  # points of the axis of a link


def arm() -> jaxdyn.System:
    """A column that turns about the vertical axis, and two links in its plane."""
    builder = jaxdyn.MechanismBuilder("arm", gravity=(0.0, 0.0, 0.0))
    builder.add_body("column", joint=jaxdyn.Revolute((0.0, 0.0, 1.0)), mass=0.5, inertia=(0.01,) * 3 + (0.0,) * 3)
    rod = {"mass": 1.0, "com": (0.25, 0.0, 0.0), "inertia": (0.001, 0.022, 0.022, 0.0, 0.0, 0.0)}
    builder.add_body("upper", parent="column", joint=jaxdyn.Revolute((0.0, 1.0, 0.0)), **rod)
    builder.add_body(
        "lower", parent="upper", joint=jaxdyn.Revolute((0.0, 1.0, 0.0)), position=(LENGTH, 0.0, 0.0), **rod
    )
    return jaxdyn.System(builder.build())


def capsules(**changed) -> Spheres:
    """Both links are capsules; a pole is a capsule, and a ball is a sphere."""
    values = {
        "bodies": ("upper", "lower"),
        "centers": np.zeros((2, 3)),
        "radii": [RADIUS, RADIUS],
        "obstacle_centers": [POLE[0], [0.0, 0.0, 2.0]],
        "obstacle_radii": [POLE_RADIUS, 0.3],
        "margin": MARGIN,
        "ends": [[LENGTH, 0.0, 0.0]] * 2,
        "obstacle_ends": [POLE[1], [0.0, 0.0, 2.0]],
    }
    return Spheres(**(values | changed))


def distances_by_points(system: jaxdyn.System, path) -> np.ndarray:
    """Distances of the axes of both links from the axis of the pole and from the center of the ball, by points of the links."""
    placed = jax.jit(jax.vmap(lambda q: jaxdyn.forward_kinematics(system.model, q)))(jnp.asarray(path))
    origins, axes = np.asarray(placed.translation), np.asarray(placed.rotation)
    points = origins[:, 1:, None] + np.einsum("kbij,pj->kbpi", axes[:, 1:], LINKS)
    along = POLE[1] - POLE[0]
    t = np.clip((points - POLE[0]) @ along / (along @ along), 0.0, 1.0)[..., None]
    closest = (POLE[0] + t * along, np.array([0.0, 0.0, 2.0]))
    return np.stack([np.linalg.norm(points - p, axis=-1).min(axis=-1) for p in closest], axis=-1)


def test_depths_are_those_of_the_distances_and_slopes_are_difference_quotients():
    system = arm()
    dynamics, none, t = MultibodyDynamics(system), jnp.zeros(3), jnp.asarray(0.0)

    def depths(q):
        return capsules()(dynamics, t, jaxdyn.State(q, none), none)

    reach = RADIUS + np.array([POLE_RADIUS, 0.3]) + MARGIN
    draw = jnp.asarray(np.random.default_rng(1).uniform([-0.3, -1.0, -2.0], [0.3, 1.0, 2.0], (20, 3)))
    h = 1e-6 * np.concatenate([np.zeros((1, 3)), np.eye(3), -np.eye(3)])
    at = (np.asarray(draw)[:, None] + h).reshape(-1, 3)
    values, slopes = jax.jit(jax.vmap(lambda q: (depths(q), jax.jacfwd(depths)(q))))(at)
    values, slopes = np.asarray(values).reshape(20, 7, 4), np.asarray(slopes).reshape(20, 7, 4, 3)
    found = values[:, 0]
    D = distances_by_points(system, draw)
    np.testing.assert_allclose(found.reshape(-1, 2, 2), (reach**2 - D**2) / (2.0 * reach), atol=2e-5)
    assert 3 < np.sum(found > 0.0) < 40
    quotients = (values[:, 1:4] - values[:, 4:]) / 2e-6
    np.testing.assert_allclose(slopes[:, 0], np.swapaxes(quotients, 1, 2), rtol=1e-6, atol=1e-8)
    cost = Penetration(capsules(), 3.0)(dynamics, t, jaxdyn.State(draw[0], none), none)
    np.testing.assert_allclose(cost, 1.5 * np.sum(np.maximum(found[0], 0.0) ** 2), rtol=1e-12)


def test_capsules_of_length_zero_are_spheres():
    dynamics, none, t = MultibodyDynamics(arm()), jnp.zeros(3), jnp.asarray(0.0)
    x = jaxdyn.State(jnp.array([0.2, -0.4, 0.9]), none)
    spheres = capsules(ends=None, obstacle_ends=None)
    for changed in ({"obstacle_ends": None}, {"ends": None}, {}):
        points = {"ends": spheres.centers, "obstacle_ends": spheres.obstacle_centers} | changed
        np.testing.assert_allclose(capsules(**points)(dynamics, t, x, none), spheres(dynamics, t, x, none), rtol=1e-12)


def test_ends_of_the_wrong_shape_are_refused():
    with pytest.raises(ValueError, match=r"and 2 obstacles: obstacle_ends has shape \(1, 3\); give shape \(2, 3\)"):
        capsules(obstacle_ends=POLE[1:])


@pytest.mark.thorough
def test_an_arm_passes_a_pole():
    """Points of the links, placed by the motion of a rollout, are just clear of it; straight lines of the angles are not."""
    system, steps = arm(), 16
    start, goal = (jaxdyn.State(jnp.array(q), jnp.zeros(3)) for q in ((-0.8, 0.0, 0.0), (0.8, -0.3, 0.4)))
    pole = capsules(obstacle_centers=POLE[:1], obstacle_ends=POLE[1:], obstacle_radii=[POLE_RADIUS])
    problem = ControlProblem(
        MultibodyDynamics(system, jaxdyn.SemiImplicitEuler()),
        start,
        duration=1.0,
        steps=steps,
        running=Effort(),
        constraints=Inequality(pole, "clear of the pole"),
        final_constraints=Equality(TargetState(goal)),
    )
    share = np.linspace(0.0, 1.0, steps + 1)[:, None]
    line = np.asarray(start.q) + share * np.asarray(goal.q - start.q)
    q = line - 1.2 * share * (1.0 - share) * np.array([0.0, 1.0, 0.0])
    v = np.gradient(q, 1.0 / steps, axis=0) * (share > 0.0)
    guess = Plan(jaxdyn.State(jnp.asarray(q), jnp.asarray(v)), jnp.zeros((steps, 3)), jnp.zeros(0))
    found = solved(problem, MultipleShooting(), guess, throw=False)
    # Steps of 62.5 ms of an integrator of order 1.
    assert int(found.result) == ControlResult.COARSE

    def clearance(path) -> float:
        return np.min(distances_by_points(system, path)[..., 0]) - RADIUS - POLE_RADIUS - MARGIN

    motion = jaxdyn.rollout(
        system, start, found.value.controls, dt=1.0 / steps, steps=steps, integrator=jaxdyn.SemiImplicitEuler()
    )
    assert clearance(line) < -0.01
    assert -1e-6 < clearance(motion.saved.q) < 1e-5  # the points are up to 0.6 mm beside the closest one
    np.testing.assert_allclose(motion.final.q, goal.q, atol=1e-6)
