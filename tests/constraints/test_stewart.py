"""The platform on six legs of the library: closed-form inverse kinematics, and the motion that follows from it by virtual work.

The six coordinates s are x, y, z of the platform and three angles. The line of a leg gives the two angles of its foot and its
stroke.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed_forms import about_x, about_y, about_z, motion_by_virtual_work, motion_of_bodies, pose

import jaxdyn
from jaxdyn import State
from jaxdyn.library import stewart_platform

# Shapes are checked by the tests of the functions themselves; here the checks would take a third of the time.
pytestmark = pytest.mark.usefixtures("as_a_user")

HEIGHT = 0.6


def joints(radius: float, from_middle: float) -> np.ndarray:
    """Three pairs of joints on a circle."""
    angles = np.repeat(np.arange(3), 2) * 2.0 * np.pi / 3.0 + np.tile([-from_middle, from_middle], 3)
    return radius * np.stack([np.cos(angles), np.sin(angles), 0.0 * angles], axis=1)


FEET, HEADS = joints(0.5, 0.2), joints(0.3, np.pi / 3.0 - 0.2)


def leg(foot, head, frame, platform):
    """X of cylinder and rod; `frame` is the orientation of the foot in the ground."""
    line = platform @ jnp.append(head, 1.0) - foot
    u = frame.T @ line / jnp.sqrt(line @ line)
    turn = frame @ about_x(jnp.arctan2(-u[1], u[2])) @ about_y(jnp.arcsin(u[0]))
    return jnp.stack([pose(turn, foot), pose(turn, foot + line)])


def read(X):
    """s of the placements."""
    R = X[0]
    angles = jnp.arctan2(R[2, 1], R[2, 2]), jnp.arcsin(-R[2, 0]), jnp.arctan2(R[1, 0], R[0, 0])
    return jnp.concatenate([R[:, 3], jnp.stack(angles)])


def poses(model: jaxdyn.Model, s):
    """X of platform, cylinders and rods."""
    platform = pose(about_z(s[5]) @ about_y(s[4]) @ about_x(s[3]), s[:3])
    frames = model.placement.rotation[1::2]
    legs = jax.vmap(leg, (0, 0, 0, None))(jnp.asarray(FEET), jnp.asarray(HEADS), frames, platform)
    return jnp.concatenate([platform[None], legs.reshape(12, 3, 4)])


@pytest.mark.thorough
def test_legs_have_the_lengths_of_inverse_kinematics_and_all_bodies_move_by_virtual_work():
    system = stewart_platform(base_radius=0.5, platform_radius=0.3, height=HEIGHT, spread=0.2)
    system = jaxdyn.System(system.model, constraints=system.constraints, stabilization=0.0)
    model = system.model

    @jax.jit
    def compared(place, v):
        """From a pose of the platform with legs as they stand at the neutral configuration."""
        found = jaxdyn.assemble(system, system.at_rest(jnp.concatenate([place, jnp.zeros(18)])))
        v = jaxdyn.project_velocity(system, State(found.q, v))
        ours = motion_of_bodies(model, found.q, v, jaxdyn.acceleration(system, State(found.q, v)))
        s, s_rate = jax.jvp(read, ours[:1], ours[1:2])
        return found, ours, motion_by_virtual_work(model, functools.partial(poses, model), s, s_rate)

    rng = np.random.default_rng(5)
    nominal = np.linalg.norm(HEADS + np.array([0.0, 0.0, HEIGHT]) - FEET, axis=1)
    for _ in range(5):
        place = np.concatenate([rng.uniform(-0.2, 0.2, 3), [1.0], rng.uniform(-0.25, 0.25, 3)])
        found, ours, expected = compared(jnp.asarray(place), jnp.asarray(rng.normal(size=model.nv)))
        assert bool(found.closed)
        assert int(found.mobility) == 6
        platform, strokes = np.asarray(ours[0][0]), np.asarray(found.q)[9::3]
        lengths = np.linalg.norm(HEADS @ platform[:, :3].T + platform[:, 3] - FEET, axis=1)
        np.testing.assert_allclose(nominal + strokes, lengths, rtol=1e-12)
        assert np.abs(strokes).max() > 0.02
        for actual, desired in zip(ours, expected, strict=True):
            assert np.abs(actual - desired).max() / np.abs(desired).max() < 1e-9
