"""Every elementwise primitive at the edges of every scalar type: lanes give what XLA gives, at run time and for known operands.

XLA flushes subnormal numbers in nearly all of its operations; here they count as zeros in all of them.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from edge_values import DTYPES, FLOATS, assert_same, by_xla, edges, of_one, of_two, pairs
from jax import lax
from positions import LONG, in_a_loop, positions_of, reads, writes

from jaxdyn.compute import per_sample
from jaxdyn.lanes.derived import program_of, traced
from jaxdyn.lanes.liveness import Liveness
from jaxdyn.lanes.program import Program, Stretch


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
    lane = per_sample(lambda *x: {name: f(*x) for name, f in every.items()}, backend="lanes")
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


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_known_operand_changes_nothing(dtype):
    """But for two foldings: a product with a known zero is zero, and adding zero leaves the sign of the other zero."""
    every = of_two(dtype)
    numbers = edges(dtype)
    known = numbers[:: 1 if dtype == "bool" else 6]

    def both_ways(x, y):
        return {
            f"{name} {side}": f(*xs)
            for name, f in every.items()
            for side, xs in {"left": (y, x), "right": (x, y)}.items()
        }

    lane = per_sample(lambda x: [both_ways(x, jnp.asarray(y)) for y in known], backend="lanes")
    for y, found in zip(known, jax.jit(jax.vmap(lane))(numbers), strict=True):
        reference = reference_with_known(dtype, y)
        if dtype in FLOATS and np.abs(y) < np.finfo(dtype).tiny:
            for name in ("mul left", "mul right", "add left", "add right", "sub right"):
                found[name] = np.where(unusual(found[name], reference[name]), reference[name], found[name])
        assert_same(found, reference, (numbers, np.full_like(numbers, y)))


def unusual(found, expected):
    """Zeros whose sign differs, or that stand where the other result is not a number."""
    return (found == 0) & ((expected == 0) | np.isnan(expected))


def reference_with_known(dtype: str, y) -> dict:
    """What XLA gives where both operands are unknown, of all pairs those with `y` on one side."""
    n = len(edges(dtype))
    k = np.flatnonzero(pairs(dtype)[1][::n].view(np.uint8 if dtype == "bool" else f"u{y.nbytes}") == bits(y))[0]
    table = {name: np.asarray(z).reshape(n, n, *z.shape[1:]) for name, z in expected(dtype, 2).items()}
    return {
        f"{name} {side}": (z[:, k] if side == "left" else z[k])
        for name, z in table.items()
        for side in ("left", "right")
    }


def bits(y):
    return y.view(np.uint8 if y.dtype == bool else f"u{y.nbytes}")


# ---------------------------------------------------------------- positions


@pytest.mark.parametrize("function", [reads, writes, in_a_loop])
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint32", "uint64"])
def test_positions_out_of_bounds_are_what_they_are_in_xla(dtype, function):
    i = positions_of(dtype)
    x = np.random.default_rng(0).uniform(0, 1, (len(i), 6))
    y = np.random.default_rng(1).uniform(0, 1, (len(i), LONG))
    every = jax.vmap(function)
    assert_same(jax.jit(jax.vmap(per_sample(function, backend="lanes")))(i, x, y), jax.jit(every)(i, x, y), (i,))


def test_known_positions_out_of_bounds_are_what_they_are_in_xla():
    x, y = jnp.linspace(0, 1, 6), jnp.linspace(0, 1, LONG)
    at = positions_of("int64")[::2]

    def every(i, x, y):
        return reads(i, x, y) | writes(i, x, y)

    lane = per_sample(lambda x, y: [every(jnp.asarray(i), x, y) for i in at], backend="lanes")
    found = jax.tree.map(lambda *results: jnp.stack(results), *jax.jit(lane)(x, y))
    assert_same(found, jax.jit(jax.vmap(every, (0, None, None)))(at, x, y), (at,))


def test_a_position_that_could_leave_its_region_is_refused():
    """The last line of defense: a rule that forgot to bound a position makes no program."""
    program = Program()
    region, index = program.input("f64", 4), program.load(program.input("i64", 1), 0)
    with pytest.raises(IndexError, match="outside a region of 4"):
        program.load(region, index)
    with pytest.raises(IndexError, match="outside a region of 4"):
        Stretch(region, program.apply("max", (index, 0), "i64"), 2)
    bounded = program.apply("min", (program.apply("max", (index, 0), "i64"), 3), "i64")
    assert program.load(region, bounded).op == "load"


def test_a_position_that_counts_turns_is_not_clamped():
    def f(y):
        return lax.fori_loop(0, LONG, lambda k, total: 0.5 * total + y[k] + y[LONG - 1 - k], 0.0)

    program = program_of(traced(f, [jax.ShapeDtypeStruct((LONG,), np.float64)]))
    assert not {"min", "max", "select", "lt"} & {node.op for node in Liveness(program).nodes}


# ---------------------------------------------------------------- examples of the defects these tables were made for


def test_constants_keep_the_precision_of_their_type():
    def f(x):
        wide, short = jnp.asarray(2**60 + 1, jnp.int64), jnp.full(2, 100, jnp.int8)
        single = jnp.float32(1e30)
        return (
            lax.div(wide, jnp.int64(1))
            + lax.div(-wide, jnp.int64(3))
            + lax.rem(wide, jnp.int64(1000))
            + x.astype(jnp.int64),
            lax.dot(short, short, preferred_element_type=jnp.int32) + x.astype(jnp.int32),
            jnp.sqrt(single * single) + x.astype(jnp.float32),
            (jnp.float32(2**24) + jnp.float32(1)) + x.astype(jnp.float32),
            0.0 / x,
            jnp.asarray(2**24 + 2**0 + 2**30, jnp.int64).astype(jnp.float32) * x.astype(jnp.float32),
        )

    x = jnp.asarray([0.0, 1.0, -0.0])
    found, expected = (jax.jit(jax.vmap(g))(x) for g in (per_sample(f, backend="lanes"), f))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
