"""Linear systems of constrained mechanics: redundant equations, any units, and what happens as the rank is lost."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn.dynamics import saddle_point
from jaxdyn.spatial import factorizations


def drawn(rng: np.random.Generator, dtype=np.float64, unit: float = 1.0):
    """M, and five equations of which the first two come three times over: as they are, scaled by a unit, and mixed."""
    root = rng.normal(size=(6, 6))
    mass = root @ root.T + np.eye(6)
    two = rng.normal(size=(2, 6))
    rows = np.concatenate([two, unit * two[:1], two[:1] - 2 * two[1:], rng.normal(size=(1, 6))])
    return tuple(jnp.asarray(x, dtype) for x in (mass, rows))


@pytest.mark.parametrize("unit", [1.0, 1e-3])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-13), (np.float32, 1e-5)], ids=["double", "single"])
def test_solution_with_redundant_equations_and_the_smallest_multipliers(dtype, tolerance, unit):
    rng = np.random.default_rng(0)
    mass, rows = drawn(rng, dtype, unit)
    force = jnp.asarray(rng.normal(size=6), dtype)
    needed = jnp.asarray(np.asarray(rows) @ rng.normal(size=6), dtype)  # equations that repeat agree
    system = saddle_point.factorize(factorizations.upper_factor(mass), rows)
    x, lam = jax.jit(saddle_point.solve)(system, force, needed)
    mass, rows, force, needed, x, lam = (np.asarray(a, np.float64) for a in (mass, rows, force, needed, x, lam))
    np.testing.assert_allclose(rows @ x, needed, atol=tolerance * np.abs(needed).max())
    np.testing.assert_allclose(mass @ x - rows.T @ lam, force, atol=100 * tolerance)
    inverse = np.linalg.pinv(rows @ np.linalg.solve(mass, rows.T), rcond=1e-5)
    smallest = inverse @ (needed - rows @ np.linalg.solve(mass, force))
    np.testing.assert_allclose(lam, smallest, atol=1e3 * tolerance * np.abs(smallest).max())


def test_a_row_that_vanishes_bears_nothing_and_has_a_finite_derivative():
    """One equation x . (size, 0) = size: as its size falls through zero the force that it takes stays finite and falls to zero."""

    def multiplier(size):
        rows = jnp.stack([jnp.stack([size, 0.0 * size]), jnp.asarray([0.0, 1.0])])
        system = saddle_point.factorize(jnp.eye(2), rows)
        return saddle_point.solve(system, jnp.zeros(2), jnp.asarray([0.0, 1.0]) + rows[:, 0])[1] @ rows

    value, slope = (jax.jit(jax.vmap(f)) for f in (multiplier, jax.jacfwd(multiplier)))
    sizes = jnp.asarray([1.0, 1e-2, 1e-4, 1e-8, 0.0, -1e-8, -1e-4])
    forces, slopes = value(sizes), slope(sizes)
    assert np.all(np.isfinite(forces))
    assert np.all(np.isfinite(slopes))
    np.testing.assert_allclose(forces[:2], 1.0, rtol=1e-10)
    np.testing.assert_allclose(forces[:, 1], 1.0, rtol=1e-10)
    assert np.abs(forces[4, 0]) < 1e-12
    assert np.abs(forces[:, 0]).max() < 1.0 + 1e-6


def test_weak_equations_are_let_go_by_the_stated_factor():
    """An eigenvalue sigma of G M^-1 G' gives (1 - T)^3 (1 + 3 T + 6 T^2 + 10 T^3) / sigma with T = s / (sigma + s)."""
    sigma = 1e-9 * np.array([0.01, 0.1, 1.0, 10.0, 100.0, 1e9])
    system = saddle_point.factorize(jnp.eye(6), jnp.diag(jnp.sqrt(jnp.asarray(sigma))))
    s = float(system.softness)
    assert sigma[1] < s < sigma[3]
    needed = np.linspace(1.0, 2.0, 6)
    t = s / (sigma + s)
    expected = needed * (1.0 - t) ** 3 * (1.0 + 3.0 * t + 6.0 * t**2 + 10.0 * t**3) / sigma
    np.testing.assert_allclose(jax.jit(saddle_point.multipliers)(system, jnp.asarray(needed)), expected, rtol=1e-10)
