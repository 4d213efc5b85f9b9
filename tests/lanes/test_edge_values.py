"""Every elementwise primitive at the edges of every scalar type: lanes give what XLA gives, at run time and for known operands.

XLA flushes subnormal numbers in nearly all of its operations; here they count as zeros in all of them.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from edge_values import DTYPES, INTEGERS, assert_same, by_xla, edges, of_one, of_two, pairs

from jaxdyn.lanes import lane_function
from jaxdyn.lanes.derived import program_of, traced
from jaxdyn.lanes.flatten import RULES


def operands(dtype: str, count: int) -> tuple[np.ndarray, ...]:
    return (edges(dtype),) if count == 1 else pairs(dtype)


def functions(dtype: str, count: int) -> dict:
    return of_one(dtype) if count == 1 else of_two(dtype)


@functools.cache
def expected(dtype: str, count: int) -> dict:
    return by_xla(functions(dtype, count), *operands(dtype, count))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_lanes_and_xla_agree_at_run_time(dtype, count):
    every = functions(dtype, count)
    lane = lane_function(lambda *x: {name: f(*x) for name, f in every.items()}, backend="lanes")
    args = operands(dtype, count)
    assert_same(jax.jit(jax.vmap(lane))(*args), expected(dtype, count), args)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_known_operands_fold_to_what_xla_gives(dtype, count):
    """The program of a function without inputs consists of its results."""
    args = operands(dtype, count)
    every = {name: jax.vmap(f) for name, f in functions(dtype, count).items()}
    jaxpr = traced(lambda: [f(*map(jnp.asarray, args)) for f in every.values()], [])
    results = [
        np.array(numbers, aval.dtype).reshape(aval.shape)
        for numbers, aval in zip(program_of(jaxpr).outputs, jaxpr.out_avals, strict=True)
    ]
    assert_same(dict(zip(every, results, strict=True)), expected(dtype, count), args)
