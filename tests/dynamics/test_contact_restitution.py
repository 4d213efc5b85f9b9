"""The restitution of contacts against simulations, and its inverse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import jaxdyn
from jaxdyn.dynamics import GroundContact, contact_sphere, damping_ratio, restitution


@pytest.mark.parametrize("ratio", [0.01, 0.3, 1.0, 5.0])
def test_restitution_is_the_speed_ratio_of_a_fine_simulation_of_the_law(ratio):
    def rates(t, state):
        depth, speed = state
        return [speed, -(2.0 * ratio * speed + np.sqrt(depth**2 + 4.0 * ratio**2 * speed**2))]

    def leaves(t, state):
        return state[0]

    leaves.terminal, leaves.direction = True, -1
    end = solve_ivp(rates, (0.0, 50.0), [1e-12, 1.0], rtol=1e-11, atol=1e-15, events=leaves)
    np.testing.assert_allclose(restitution(ratio), -end.y[1, -1], rtol=1e-9)


def test_damping_ratio_is_the_inverse_of_restitution_with_its_derivative_from_1_to_small_values():
    wanted = jnp.array([1e-3, 0.1, 0.5, 0.9, 1.0])
    ratios = damping_ratio(wanted)
    np.testing.assert_allclose(restitution(ratios), wanted, rtol=1e-12)
    ones = jnp.ones_like(wanted)
    slopes = jax.jvp(damping_ratio, (wanted,), (ones,))[1]
    inverse_slopes = jax.jvp(restitution, (ratios,), (ones,))[1]
    np.testing.assert_allclose(slopes * inverse_slopes, 1.0, rtol=1e-9)
    np.testing.assert_allclose(slopes[-1], -1.0 / np.pi, rtol=1e-5)


def test_restitution_keeps_single_precision():
    value = damping_ratio(jnp.float32(0.5))
    assert value.dtype == jnp.float32
    np.testing.assert_allclose(restitution(value), 0.5, rtol=1e-5)


def test_a_ball_rebounds_with_the_wanted_restitution_in_steps_of_any_angle_that_admits_it():
    builder = jaxdyn.MechanismBuilder("ball", gravity=(0.0, 0.0, 0.0))
    builder.add_body("ball", joint=jaxdyn.Prismatic((0, 0, 1)), mass=1.0)
    model = builder.build()
    wanted = np.repeat([0.95, 0.9, 0.8, 0.6, 0.4], 2)
    angles = 2.0 * np.asarray(damping_ratio(wanted)) * np.tile([1.0, 0.3], 5)
    ratios = damping_ratio(wanted, step_angle=angles)
    np.testing.assert_allclose(ratios[::2], 0.0, atol=1e-15)
    np.testing.assert_allclose(restitution(ratios, step_angle=angles), wanted, rtol=1e-9)

    def rebound(ratio, angle, phase):
        frequency, speed = 400.0, 4.0
        dt = angle / frequency
        material = {"stiffness": frequency**2, "damping": 2.0 * ratio * frequency, "onset": 1e-5}
        contact = GroundContact.of(model, contact_sphere("ball", radius=0.0), **material)
        start = jaxdyn.State((speed * dt * (2.0 + phase))[None], jnp.full(1, -speed))
        # Steps after the rebound do not change the speed.
        end = jaxdyn.rollout(jaxdyn.System(model, (contact,)), start, dt=dt, steps=500, save_every=500).final
        return (end.v[0] / speed) ** 2

    phases = jnp.arange(8) / 8
    over_phases = jax.vmap(rebound, (None, None, 0))
    heights = np.asarray(jax.jit(jax.vmap(over_phases, (0, 0, None)))(ratios, jnp.asarray(angles), phases))
    np.testing.assert_allclose(np.mean(heights, axis=1), wanted**2, atol=0.04)
    np.testing.assert_allclose(heights, np.tile(wanted[:, None] ** 2, 8), atol=0.07)
    np.testing.assert_allclose(np.mean(heights, axis=1)[:4], wanted[:4] ** 2, rtol=0.002)


def test_a_restitution_that_steps_cannot_give_is_refused_with_the_largest_angle():
    with pytest.raises(ValueError, match=r"0\.9; it is too large for steps of this angle; .* at most 0\.0672\d* rad"):
        damping_ratio(0.9, step_angle=0.9)
    with pytest.raises(ValueError, match="the angle of a step is -1"):
        restitution(0.1, step_angle=-1.0)


@pytest.mark.parametrize("wrong", [0.0, 1.1, float("nan")])
def test_a_restitution_that_no_damping_reaches_is_refused(wrong):
    with pytest.raises(ValueError, match="restitution"):
        damping_ratio(wrong)
