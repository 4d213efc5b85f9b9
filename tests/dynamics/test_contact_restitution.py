"""The restitution of contacts against simulations, and its inverse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from jaxdyn.dynamics import damping_ratio, restitution


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


@pytest.mark.parametrize("wrong", [0.0, 1.1, float("nan")])
def test_a_restitution_that_no_damping_reaches_is_refused(wrong):
    with pytest.raises(ValueError, match="restitution"):
        damping_ratio(wrong)
