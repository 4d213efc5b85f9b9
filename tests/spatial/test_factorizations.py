"""Factorizations: values and derivatives are those of `jax.numpy.linalg`, one by one and in batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn.spatial import elementary, factorizations

FUNCTIONS = {
    "cholesky": (factorizations.cholesky, jnp.linalg.cholesky),
    "cholesky_of_lower": (lambda a: factorizations.cholesky_of_lower(jnp.tril(a + a.T) / 2), jnp.linalg.cholesky),
    "cholesky_solve": (
        lambda a, b: factorizations.cholesky_solve(factorizations.cholesky(a), b),
        lambda a, b: jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(a), True), b),
    ),
    "solve": (lambda a, b: factorizations.solve(a - 2.0, b), lambda a, b: jnp.linalg.solve(a - 2.0, b)),
    "log_determinant": (factorizations.log_determinant, lambda a: jnp.linalg.slogdet(a)[1]),
    "qr": (lambda a: factorizations.qr(a[:, :3]), lambda a: tuple(jnp.linalg.qr(a[:, :3]))),
}
for transposed in (False, True):
    for lower in (False, True):
        for unit in (False, True):
            options = {"lower": lower, "unit_diagonal": unit}
            FUNCTIONS[f"solve_triangular {transposed} {lower} {unit}"] = (
                lambda a, b, o=options, t=transposed: factorizations.solve_triangular(a, b, transposed=t, **o),
                lambda a, b, o=options, t=transposed: jax.scipy.linalg.solve_triangular(a, b, trans=int(t), **o),
            )


def arguments(name: str, seed: int, *batch: int):
    """A positive definite matrix and, where there is one, a right side."""
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(*batch, 5, 8))
    count = 1 if name in ("cholesky", "cholesky_of_lower", "log_determinant", "qr") else 2
    return (jnp.asarray(roots @ np.swapaxes(roots, -1, -2)), jnp.asarray(rng.normal(size=(*batch, 5, 2))))[:count]


def derivatives(function):
    """Value, directional derivative, and the derivative of a gradient."""

    def of(args, changes):
        def gradient(*args):
            return jax.grad(lambda *x: sum(jnp.sum(jnp.sin(y)) for y in jax.tree.leaves(function(*x))))(*args)

        return jax.jvp(function, args, changes), jax.jvp(gradient, args, changes)

    return of


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_two_derivatives_are_those_of_jax_in_a_batch(name):
    """The derivative is taken of each sample and of the whole batch, which are different rules."""
    ours, theirs = FUNCTIONS[name]
    args, changes = arguments(name, 0, 3), arguments(name, 1, 3)
    expected = jax.jit(jax.vmap(derivatives(theirs)))(args, changes)
    each, whole = jax.jit(lambda *x: (jax.vmap(derivatives(ours))(*x), derivatives(jax.vmap(ours))(*x)))(args, changes)
    for found in (each, whole):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-10), found, expected)


def test_right_sides_of_a_batch_share_one_factor():
    """They are columns of one solution, without a loop."""
    (a, _), (_, b) = arguments("solve", 0), arguments("solve", 2, 3)
    solved = jax.vmap(factorizations.cholesky_solve, (None, 0))
    factor = jnp.linalg.cholesky(a)
    np.testing.assert_allclose(solved(factor, b), np.linalg.solve(a, b), rtol=1e-10)
    assert "while" not in jax.jit(solved).lower(factor, b).as_text()


def test_what_is_not_positive_definite_is_not_a_number():
    matrices = jnp.stack([jnp.identity(3), -jnp.identity(3)])
    factors = jax.jit(jax.vmap(factorizations.cholesky))(matrices)
    np.testing.assert_array_equal(factors[0], jnp.identity(3))
    assert np.all(np.isnan(np.diagonal(factors[1])))


def test_batches_and_matrices_may_be_empty():
    assert jax.vmap(factorizations.solve)(jnp.zeros((0, 3, 3)), jnp.zeros((0, 3))).shape == (0, 3)
    assert jax.vmap(factorizations.cholesky_solve)(jnp.zeros((0, 0, 0)), jnp.zeros((0, 0, 2))).shape == (0, 0, 2)


def test_qr_of_a_wide_matrix_has_no_derivative():
    with pytest.raises(NotImplementedError, match="more columns than rows; transpose"):
        jax.jvp(factorizations.qr, (jnp.ones((2, 3)),), (jnp.ones((2, 3)),))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("rows", [1, elementary.MOST_WRITTEN_OUT, 12])
@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_elementary_operations_solve_the_equations(batch, rows, dtype):
    """Written out and in a loop. Which triangle is read shows by not-a-numbers in the other one."""
    rng = np.random.default_rng(rows)
    roots = rng.normal(size=(*batch, rows, rows + 3))
    a = roots @ np.swapaxes(roots, -1, -2)
    b = rng.normal(size=(*batch, rows, 2))
    above, below = np.triu(np.full((rows, rows), np.nan), 1), np.tril(np.full((rows, rows), np.nan), -1)

    @jax.jit
    def solved(a, b):
        lower = elementary.cholesky(a + above.astype(dtype)[(None,) * len(batch)])
        hidden = above.astype(dtype)[(None,) * len(batch)], below.astype(dtype)[(None,) * len(batch)]
        upper = jnp.swapaxes(lower, -1, -2)
        y = elementary.triangular_solve(lower + hidden[0], b, lower=True, unit_diagonal=False)
        unit = elementary.triangular_solve(upper + hidden[1], b, lower=False, unit_diagonal=True)
        return lower, elementary.triangular_solve(upper + hidden[1], y, lower=False, unit_diagonal=False), unit

    lower, x, unit = solved(jnp.asarray(a, dtype), jnp.asarray(b, dtype))
    precise = np.asarray(lower, np.float64)
    assert lower.dtype == dtype
    np.testing.assert_array_equal(lower, np.tril(lower))
    # Backward errors: rounding of sums of as many terms as there are rows, of the size of the largest one.
    tolerance = 10 * rows * jnp.finfo(dtype).eps * np.max(np.abs(a))
    np.testing.assert_allclose(precise @ np.swapaxes(precise, -1, -2), a, rtol=0, atol=tolerance)
    np.testing.assert_allclose(a @ np.asarray(x), b, rtol=0, atol=tolerance * max(1.0, float(np.max(np.abs(x)))))
    ones = np.swapaxes(np.tril(precise, -1), -1, -2) + np.identity(rows)
    largest = max(1.0, float(np.max(np.abs(unit)))) * float(np.max(np.abs(ones)))
    residual = 10 * rows * jnp.finfo(dtype).eps * largest
    np.testing.assert_allclose(ones @ np.asarray(unit), b, rtol=0, atol=residual)
