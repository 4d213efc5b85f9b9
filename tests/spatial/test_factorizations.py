"""Factorizations: values and derivatives are those of `jax.numpy.linalg`, one by one and in batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn.spatial import factorizations

FUNCTIONS = {
    "cholesky": (factorizations.cholesky, jnp.linalg.cholesky),
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
    count = 1 if name in ("cholesky", "log_determinant", "qr") else 2
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
