"""Products of matrices in programs of one sample, whose vectors contain adjacent columns."""

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn.compute import per_sample
from jaxdyn.lanes import CannotFlatten
from jaxdyn.lanes.cpu_code import CpuKernel
from jaxdyn.lanes.derived import program_of, traced
from jaxdyn.lanes.matrix_code import Blocks


@pytest.mark.parametrize("item", [4, 8])
def test_blocks_cover_the_matrix_and_nothing_else(item):
    for rows, columns in itertools.product(range(1, 20), range(16 // item, 80)):
        blocks = Blocks(rows, columns, item)
        filled = np.zeros((rows, columns), bool)
        for i, j in itertools.product(range(blocks.down), range(blocks.across)):
            first_row = min(i * blocks.rows_each, rows - blocks.rows_each)
            first_column = min(j * blocks.columns_each, columns - blocks.columns_each)
            assert first_row >= 0
            assert first_column >= 0
            for start in blocks.starts:
                assert 0 <= start <= blocks.columns_each - blocks.lanes
                begin = first_column + start
                filled[first_row : first_row + blocks.rows_each, begin : begin + blocks.lanes] = True
        assert filled.all(), (rows, columns)


def looped(x, a, b, rows):
    """A recursion like that of Riccati, with products of carried, constant and given matrices."""

    def step(p, row):
        ahead = p @ row
        p = row.T @ ahead + a.T @ (p @ b)
        p = 0.1 * (p + p.T) / (1.0 + p * p)
        return p, ahead @ b[: ahead.shape[1]]

    return jax.lax.scan(step, x, rows)


def read_before(a, b):
    product = a @ b
    return product[0] + 1.0, product + a, product.T @ b


# Each function of two matrices with the shapes for which it makes sense: (rows, terms, columns).
PRODUCTS = {
    "a b": (lambda a, b: a @ b, lambda m, k, n: ((m, k), (k, n))),
    "a' b": (lambda a, b: a.T @ b, lambda m, k, n: ((k, m), (k, n))),
    "a b'": (lambda a, b: a @ b.T, lambda m, k, n: ((m, k), (n, k))),
    "(a b)'": (lambda a, b: (a @ b).T, lambda m, k, n: ((m, k), (k, n))),
    "a b of computed values": (lambda a, b: jnp.sin(a) @ (b * b), lambda m, k, n: ((m, k), (k, n))),
    "parts": (lambda a, b: a[1:, 1:] @ b[1:, 1:], lambda m, k, n: ((m + 1, k + 1), (k + 1, n + 1))),
    "reversed": (lambda a, b: a[::-1] @ b[::-1, ::-1], lambda m, k, n: ((m, k), (k, n))),
    "sum of products and a matrix": (
        lambda a, b: a @ b + 2.0 * a @ jnp.cos(b) + a[:, :1] * b[:1],
        lambda m, k, n: ((m, k), (k, n)),
    ),
    "matrix and computed vector": (lambda a, b: b.T @ jnp.sin(a[0]), lambda m, k, n: ((m, k), (k, n))),
    "matrix and vector": (lambda a, b: (b.T @ a[0], a @ b[:, 0]), lambda m, k, n: ((m, k), (k, n))),
}
SIZES = [(14, 14, 7), (7, 14, 14), (2, 5, 33), (9, 33, 5), (1, 20, 8), (12, 3, 4), (30, 17, 21), (1, 7, 14)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_one_sample_agree_with_xla(name, dtype):
    function, shapes = PRODUCTS[name]
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        pairs = [[jnp.asarray(rng.normal(size=s), dtype) for s in shapes(*size)] for size in SIZES]
        both = per_sample(function, backend="lanes"), function
        _close(*(jax.jit(lambda pairs, f=f: [f(a, b) for a, b in pairs])(pairs) for f in both), dtype)


def _close(found, expected, dtype):
    bound = 50 * np.finfo(dtype).eps
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert x.shape == y.shape
        np.testing.assert_allclose(x, y, rtol=bound, atol=bound * (1.0 + np.abs(y).max()))


@pytest.mark.parametrize(("dtype", "turns"), [(np.float64, 120), (np.float32, 3)])  # the short loop is written out
def test_products_within_loops_have_the_values_and_derivatives_of_xla(dtype, turns):
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        x, a, b, rows = (jnp.asarray(0.3 * rng.normal(size=s), dtype) for s in (*[(9, 9)] * 3, (turns, 9, 9)))

        def value(function):
            return lambda *args: sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(function(*args)))

        both = per_sample(looped, backend="lanes"), looped
        _close(*[jax.jit(f)(x, a, b, rows) for f in both], dtype)
        _close(*[jax.jit(jax.grad(value(f), argnums=(0, 1, 2, 3)))(x, a, b, rows) for f in both], dtype)
        along = [jax.jit(lambda *v, f=f: jax.jvp(f, v, v)[1])(x, a, b, rows) for f in both]
        _close(*along, dtype)


def test_one_sample_and_a_batch_of_one_use_vectors_and_a_batch_does_not():
    a = jax.ShapeDtypeStruct((9, 9), np.float32)
    jaxpr = traced(lambda a, b: [a @ b], [a, a])
    plain, single = program_of(jaxpr), program_of(jaxpr, of_one_sample=True)
    assert plain.has_matrix_products
    layouts = (["rows", "rows"], ["rows"])
    assert "matrix" in CpuKernel(single, 1, *layouts).text
    assert "matrix" not in CpuKernel(single, 8, *layouts).text
    assert "matrix" not in CpuKernel(single, 1, ["columns", "columns"], ["columns"]).text
    x = jnp.asarray(np.random.default_rng(2).normal(size=(3, 9, 9)), np.float32)
    product = per_sample(lambda a, b: a @ b, backend="lanes")
    for count in (1, 3):
        _close(jax.vmap(product)(x[:count], x[:count]), x[:count] @ x[:count], np.float32)


def test_a_matrix_in_memory_that_is_too_large_to_be_split_leaves_the_usual_program():
    def function(a, b):
        return (2.0 * jnp.concatenate([a] * 80).reshape(1, -1, 8))[0, ::320] + (a @ b)[:2]

    a = jax.ShapeDtypeStruct((8, 8), np.float32)
    jaxpr = traced(lambda *x: [function(*x)], [a, a])
    assert program_of(jaxpr).has_matrix_products
    with pytest.raises(CannotFlatten):
        program_of(jaxpr, of_one_sample=True)
    x, y = jnp.asarray(np.random.default_rng(3).normal(size=(2, 8, 8)), np.float32)
    _close(jax.jit(per_sample(function, backend="lanes"))(x, y), jax.jit(function)(x, y), np.float32)


def test_a_product_is_computed_and_stored_once():
    a = jax.ShapeDtypeStruct((8, 8), np.float32)
    program = program_of(traced(lambda a, b: list(read_before(jnp.sin(a), b)), [a, a]), of_one_sample=True)
    text = CpuKernel(program, 1, ["rows", "rows"], ["rows"] * 3).text
    # The product itself, and its transpose times b.
    assert len(re.findall(r"^matrix\d+:", text, re.MULTILINE)) == 2
