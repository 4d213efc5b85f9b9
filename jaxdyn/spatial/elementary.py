"""Cholesky factors and triangular solutions of many small matrices in elementary operations, which compilers fuse.

Each entry of a matrix becomes an array over the batch, which is contiguous in memory. Up to `MOST_WRITTEN_OUT` rows every entry is
a separate array; larger matrices are processed column by column in a loop.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

MOST_WRITTEN_OUT = 8
"""Number of rows. The operation count and the compile time increase with its third power."""


def cholesky(matrix: Float[Array, "*batch n n"]) -> Float[Array, "*batch n n"]:
    """Lower factor L of a matrix L L', from the lower triangle of the matrix; NaN if the matrix is not positive definite."""
    n = matrix.shape[-1]
    a = _entries_first(matrix)
    factor = _written_out_factor(a) if n <= MOST_WRITTEN_OUT else _factor_by_columns(a)
    return _entries_last(factor)


def _written_out_factor(a: Float[Array, "n n *batch"]) -> Float[Array, "n n *batch"]:
    n = len(a)
    zero = jnp.zeros(a.shape[2:], a.dtype)
    rows = [[zero] * n for _ in range(n)]
    for j in range(n):
        rows[j][j] = jnp.sqrt(_less_products(a[j, j], rows[j][:j], rows[j][:j]))
        for i in range(j + 1, n):
            rows[i][j] = _less_products(a[i, j], rows[i][:j], rows[j][:j]) / rows[j][j]
    return jnp.stack([jnp.stack(row) for row in rows]) if n else a


def _factor_by_columns(a: Float[Array, "n n *batch"]) -> Float[Array, "n n *batch"]:
    position = _along_first(np.arange(len(a)), a.ndim - 1)

    def with_column(j, factor):
        column = a[:, j] - jnp.sum(factor * factor[j][None], axis=1)
        column = jnp.where(position < j, 0, column / jnp.sqrt(column[j])[None])
        return jax.lax.dynamic_update_index_in_dim(factor, column, j, 1)

    return jax.lax.fori_loop(0, len(a), with_column, jnp.zeros_like(a))


def triangular_solve(
    matrix: Float[Array, "*batch n n"], right: Float[Array, "*batch n m"], *, lower: bool, unit_diagonal: bool
) -> Float[Array, "*batch n m"]:
    """Solution x of T x = right, where T is a triangle of the matrix; the other triangle is not read.

    Args:
        matrix: Matrix that contains T.
        right: Right-hand sides, as columns.
        lower: True if T is the lower triangle.
        unit_diagonal: True if the diagonal of T is one and is not read.
    """
    n = matrix.shape[-1]
    t, b = _entries_first(matrix), _entries_first(right)
    solve = _written_out_solution if n <= MOST_WRITTEN_OUT else _solution_by_rows
    return _entries_last(solve(t, b, lower, unit_diagonal))


def _written_out_solution(t, b: Float[Array, "n m *batch"], lower: bool, unit_diagonal: bool):
    n = len(b)
    x = list(b)
    for i in range(n) if lower else reversed(range(n)):
        known = range(i) if lower else range(i + 1, n)
        x[i] = _less_products(b[i], [t[i, k][None] for k in known], [x[k] for k in known])
        if not unit_diagonal:
            x[i] = x[i] / t[i, i][None]
    return jnp.stack(x) if n else b


def _solution_by_rows(t, b: Float[Array, "n m *batch"], lower: bool, unit_diagonal: bool):
    n = len(b)
    position = _along_first(np.arange(n), t.ndim - 1)

    def with_row(turn, x):
        i = turn if lower else n - 1 - turn
        row = jnp.where(position < i if lower else position > i, t[i], 0)
        rest = b[i] - jnp.sum(row[:, None] * x, axis=0)
        return x.at[i].set(rest if unit_diagonal else rest / t[i, i][None])

    return jax.lax.fori_loop(0, n, with_row, jnp.zeros_like(b))


def _less_products(start: Array, left: list[Array], right: list[Array]) -> Array:
    return functools.reduce(lambda rest, pair: rest - pair[0] * pair[1], zip(left, right, strict=True), start)


def _along_first(x: np.ndarray, rank: int) -> np.ndarray:
    return x.reshape(-1, *[1] * (rank - 1))


def _entries_first(x: Float[Array, "*batch n m"]) -> Float[Array, "n m *batch"]:
    return jnp.moveaxis(x, (-2, -1), (0, 1))


def _entries_last(x: Float[Array, "n m *batch"]) -> Float[Array, "*batch n m"]:
    return jnp.moveaxis(x, (0, 1), (-2, -1))
