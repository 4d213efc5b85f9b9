"""Damped least squares: the laws of its steps, which fits, inverse kinematics and assemblies share."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn.compute.damped import Damped, judged, minimized

TARGET = np.array([3.0, -1.0])
MATRIX = np.array([[2.0, 1.0], [0.0, 1e-1]])


def residuals(x):
    return MATRIX.astype(x.dtype) @ (x - TARGET.astype(x.dtype))


def error(x):
    return jnp.sum(residuals(x) ** 2)


def propose(x, damping):
    """A step of Levenberg, and the loss before it."""
    J = MATRIX.astype(x.dtype)
    return x - jnp.linalg.solve(J.T @ J + damping * jnp.eye(2, dtype=x.dtype), J.T @ residuals(x)), error(x)


def worse(x, damping):
    """A step away from the solution."""
    return x + 1.0 / damping, error(x)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_steps_that_are_taken_end_at_the_minimum_and_others_change_nothing(dtype):
    starts = jnp.zeros((3, 2), dtype).at[1].set(5.0)
    found = jax.jit(jax.vmap(lambda x: minimized(propose, error, x, max_steps=12)))(starts)
    still = jax.jit(lambda x: minimized(worse, error, x, max_steps=4))(starts[1])
    assert found.dtype == dtype
    np.testing.assert_allclose(found, np.tile(TARGET, (3, 1)), rtol=1e-3 if dtype == jnp.float32 else 1e-12)
    np.testing.assert_array_equal(still, starts[1])


@pytest.mark.parametrize(("loss", "factor"), [(0.5, 0.1), (1.0, 10.0), (jnp.nan, 10.0)])
def test_without_predictions_the_damping_changes_tenfold_and_any_decrease_is_taken(loss, factor):
    before = Damped(jnp.zeros(2), jnp.asarray(1.0), jnp.asarray(1e-3))
    after = judged(before, jnp.ones(2), jnp.asarray(loss))
    np.testing.assert_allclose(after.damping, factor * 1e-3)
    np.testing.assert_array_equal(after.point, np.full(2, float(loss < 1.0)))
    least = judged(before._replace(damping=jnp.asarray(1e-12)), jnp.ones(2), jnp.asarray(0.5)).damping
    np.testing.assert_allclose(least, np.finfo(float).eps ** (2 / 3))


@pytest.mark.parametrize(
    ("gain", "taken", "factor", "growth"), [(1.0, 1.0, 1 / 3, 2.0), (0.5, 1.0, 1.0, 2.0), (0.009, 0.0, 4.0, 8.0)]
)
def test_with_predictions_the_damping_changes_by_their_quality(gain, taken, factor, growth):
    before = Damped(jnp.zeros(2), jnp.asarray(1.0), jnp.asarray(1e-3), jnp.asarray(4.0))
    after = judged(before, jnp.ones(2), jnp.asarray(0.9), jnp.asarray(gain))
    np.testing.assert_allclose((after.point[0], after.damping, after.growth), (taken, factor * 1e-3, growth))
