"""Steps of dynamics that are given as a flow."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.control import Flow


def test_a_step_of_a_flow_is_exact_for_cubics_of_time():
    """Each stage takes the controls of the step and its own time, as in Simpson's rule."""
    flow = Flow(lambda x, u, t: jnp.stack([4.0 * t**3, u[0] * t]), 2, 1)
    end = jax.jit(flow.next)(jnp.ones(2), jnp.full(1, 3.0), 1.0, 0.5)
    np.testing.assert_allclose(end, [1.0 + 1.5**4 - 1.0, 1.0 + 1.5 * (1.5**2 - 1.0)], rtol=1e-14)


def test_each_stage_of_a_flow_has_its_own_time():
    """x' = t x twists the order of the stages: their times and states enter in products. Four stages, written out."""
    flow, x, t, h = Flow(lambda x, u, t: t * x, 1, 1), 2.0, 1.0, 0.5
    a = t * x
    b = (t + 0.25) * (x + 0.25 * a)
    c = (t + 0.25) * (x + 0.25 * b)
    d = (t + 0.5) * (x + 0.5 * c)
    end = jax.jit(flow.next)(jnp.full(1, x), jnp.zeros(1), t, h)
    np.testing.assert_allclose(end[0], x + h / 6.0 * (a + 2.0 * b + 2.0 * c + d), rtol=1e-14)
