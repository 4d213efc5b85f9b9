"""Every rule of the lane compiler: small functions of one sample, run by lanes and by XLA, in both precisions.

XLA is the reference, for it is what lanes replace; where the two differ by intention (a known zero times infinity is zero), there
is no row. Functions of single numbers are in `edge_values`; a rule without a row in either table fails a test.
"""

import functools
from collections import UserDict, defaultdict

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from edge_values import of_one, of_two
from jax import lax
from jax.extend.random import threefry_prng_impl
from jaxprs import equations

from jaxdyn.compute import per_sample
from jaxdyn.lanes import CannotFlatten
from jaxdyn.lanes.flatten import RULES, _Prepared, flatten

LANES = 19  # a whole vector of every width up to 16, and a tail
SIZES = (1, 3, LANES)  # a single lane, less than a vector, a tail

SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, np.inf, -np.inf, np.nan, 1e-3, 7e4, 88.9, -88.9)


# ---------------------------------------------------------------- arguments: functions of (generator, dtype) -> a batch


def reals(*shape: int, low: float = -2.0, high: float = 2.0):
    return lambda rng, dtype: rng.uniform(low, high, (LANES, *shape)).astype(dtype)


def integers(*shape: int, low: int = -9, high: int = 9, dtype=np.int32):
    return lambda rng, _: rng.integers(low, high, (LANES, *shape), endpoint=True).astype(dtype)


def words(*shape: int):
    return integers(*shape, low=0, high=2**32 - 1, dtype=np.uint32)


def truths(*shape: int):
    return lambda rng, _: rng.random((LANES, *shape)) < 0.5


def special(_, dtype):
    """All special numbers in every sample."""
    return np.tile(np.array(SPECIAL, dtype), (LANES, 1))


def pairs(_, dtype):
    """Two arguments that meet in all pairs of special numbers."""
    x, y = np.meshgrid(SPECIAL[:10], SPECIAL[:10])
    return np.tile(np.stack([x.ravel(), y.ravel()]).astype(dtype), (LANES, 1, 1))


def definite(n: int, *batch: int):
    """Symmetric positive definite matrices with a condition of about ten."""

    def draw(rng, dtype):
        a = rng.normal(size=(LANES, *batch, n, n))
        return (a @ a.swapaxes(-1, -2) + n * np.eye(n)).astype(dtype)

    return draw


def regular(n: int, *batch: int):
    """Matrices that need row exchanges: the large entries stand beside the diagonal."""

    def draw(rng, dtype):
        return (0.5 * rng.normal(size=(LANES, *batch, n, n)) + 4 * np.roll(np.eye(n), 1, 0)).astype(dtype)

    return draw


# ---------------------------------------------------------------- functions with more than one line


def like(x, numbers):
    """Known numbers of the type of x."""
    return jnp.asarray(numbers, x.dtype)


def three_ways(x):
    def positive(x):
        return jnp.sin(x), jnp.int32(1)

    def negative(x):
        return x * x, jnp.int32(2)

    return lax.cond(x > 0, positive, negative, x)


def scanned(turns: int, **options):
    """A recurrence with two carries and a collected array; 1500 turns are a loop, 5 are written out."""

    def function(x, y):
        def body(carry, k):
            a, b = carry
            a, b = 0.5 * jnp.sin(a + b) + 0.1 * y, 0.5 * b + 0.1 * a * k.astype(x.dtype) / turns
            return (a, b), a * b

        (a, b), products = lax.scan(body, (x, y), jnp.arange(turns), **options)
        return a, b, products[::97], jnp.sum(products[:7])

    return function


def scan_over_arrays(x, rows):
    """Rows of an argument in memory, and collected rows that are read in the reverse loop which follows."""
    total, kept = lax.scan(lambda c, row: (0.5 * c + row[0], c * row), x, rows)
    back, _ = lax.scan(lambda c, row: (0.5 * c + row[1] * row[0], None), total, kept, reverse=True)
    return total, back, kept[-1]


def steps_of_collatz(n):
    """Samples need between 0 and 111 iterations."""

    def again(state):
        n, count = state
        return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1

    return lax.while_loop(lambda state: state[0] != 1, again, (n, 0))


def root_by_newton(x):
    return lax.while_loop(lambda y: jnp.abs(y * y - x) > 1e-3, lambda y: 0.5 * (y + x / y), x)


def while_of_arrays(x, n):
    """An iteration with a loop, values of all types, and a value that stays."""

    def again(state):
        k, y, z, found = state
        total, rows = lax.scan(lambda c, r: (0.9 * c + r, c), y[0], jnp.tile(y, 700))
        return k + 1, jnp.sin(y) + 0.1 * rows[-1], z, found | (total > 1)

    return lax.while_loop(lambda state: (state[0] < n) & ~state[3], again, (0, x, 2 * x, jnp.asarray(False)))


def while_in_a_loop(x):
    def outer(c, k):
        c = lax.while_loop(lambda c: jnp.abs(c) > 0.5, lambda c: 0.7 * c, c + 0.001 * k.astype(x.dtype))
        return c + 1, c

    return lax.scan(outer, x, jnp.arange(1200))


def first_large_draw(words):
    """Rejection sampling: the first of a sequence of draws beyond a threshold, and the key after it."""

    def again(state):
        key, _ = state
        key, draw = jax.random.split(key)
        return key, jax.random.bits(draw, dtype=jnp.uint32)

    key, found = lax.while_loop(lambda s: s[1] < 3 << 30, again, (jax.random.wrap_key_data(words), jnp.uint32(0)))
    return jax.random.key_data(key), found


def scan_of_scans(x):
    def outer(c, k):
        def inner(d, j):
            return 0.9 * d + 0.1 * jnp.cos(c + j.astype(x.dtype)), d

        end, path = lax.scan(inner, c, jnp.arange(80))
        return end + 0.01 * k.astype(x.dtype), path[3]

    return lax.scan(outer, x, jnp.arange(60))


def carry_known_from_the_second_turn_on(x):
    def body(carry, _):
        x, known = carry
        return (0.5 * jnp.sin(x) + known, jnp.ones_like(known)), known

    carry, collected = lax.scan(body, (x, jnp.zeros_like(x)), None, length=900)
    return carry, collected[:2]


def carries_that_stay_or_count(x, start):
    def body(carry, _):
        x, still, up, down, number = carry
        x = 0.99 * jnp.sin(x) + 0.001 * still + 0.01 * jnp.cos(up.astype(x.dtype)) * number
        return (x, still, up + 3, down - 2, jnp.zeros_like(number)), up * down

    first = (x, x + 1, start, jnp.int32(5), jnp.zeros_like(x))
    carry, products = lax.scan(body, first, None, length=900)
    return carry, products[::101]


def carries_change_places(x, y):
    return lax.fori_loop(0, 901, lambda _, p: (p[1], 0.5 * p[0] + 0.1 * jnp.cos(p[1])), (x, y))


def truth_carried(x):
    def body(carry, k):
        x, seen = carry
        x = 0.9 * x + 0.3 * jnp.sin(k.astype(x.dtype))
        return (x, seen | (x > 0.9)), x < 0

    return lax.scan(body, (x, False), jnp.arange(700))


def small_integers_wrap_in_a_loop(x, n):
    def body(carry, _):
        x, count = carry
        return (0.5 * jnp.sin(x) + 0.01 * count.astype(x.dtype), count + jnp.int8(7)), count

    (x, count), counts = lax.scan(body, (x, n), None, length=900)
    return x, count, counts[::100]


def known_rows(x):
    """Known arrays as xs: equal rows, counting rows, tables of reals and of integers, and infinities."""
    turns = 800
    same, count = jnp.full((turns, 2), 0.25, x.dtype), jnp.arange(turns, dtype=jnp.int32) * 3 - 5
    table, inf = jnp.asarray(np.sin(np.arange(turns) ** 2), x.dtype), jnp.full(turns, jnp.inf, x.dtype)

    squares = jnp.asarray(np.arange(turns) ** 2 % 7, jnp.int32)

    def body(c, row):
        s, k, t, i, n = row
        c = 0.5 * c + s[0] * t + 1e-4 * k.astype(x.dtype) + 0.1 * n.astype(x.dtype)
        return jnp.minimum(c, i), c - s[1]

    total, path = lax.scan(body, x, (same, count, table, inf, squares))
    return total, path[::99]


def in_loop_positions(x, table):
    """Positions that count are known relative to the loop, also backward."""

    def body(k, total):
        return 0.5 * total + table[k] * table[-1 - k] + lax.dynamic_slice(table, (k,), (2,))[1]

    return lax.fori_loop(0, 600, body, x)


def update_in_loop(x):
    def body(k, a):
        return a.at[k % 5].add(0.01 * jnp.sin(x + a[(k + 1) % 5]))

    return lax.fori_loop(0, 700, body, jnp.zeros(5, x.dtype))


def tables(i, x):
    """The same numbers as tables of both precisions, of integers and of truth values."""
    numbers = np.float32([0.1, 0.2, 0.3, 1.0])
    return (
        jnp.asarray(numbers)[i] + x[0].astype(jnp.float32),
        jnp.asarray(numbers, jnp.float64)[i] * x[1].astype(jnp.float64),
        jnp.asarray([5, 3, 2, 1], jnp.int32)[i] - 1,
        jnp.asarray([True, False, True, True])[i] & (x[0] > 0),
    )


def partly_known(i, x):
    """Arrays of known numbers which no NumPy array holds any more, read at a run-time position."""
    counts = jnp.arange(4, dtype=jnp.int32).at[1].set(9)
    masks = jnp.zeros(4, bool).at[2].set(True)
    return like(x, np.zeros(4)).at[1].set(2.0)[i] * x[0], counts[i] + 1, masks[i], jnp.cumsum(counts)[i]


@jax.custom_jvp
def cube(x):
    return x**3


cube.defjvp(lambda p, t: (cube(p[0]), 3 * p[0] ** 2 * t[0]))


@jax.custom_vjp
def halved(x):
    return 0.5 * x


halved.defvjp(lambda x: (halved(x), None), lambda _, g: (0.5 * g,))


def unary(f, argument=special):
    return f, argument


# name -> (function of one sample, arguments)
TABLE = {
    # what the tables of edge values lack
    "abs of integers": (lambda n: jnp.abs(n), integers(4)),
    "pow by known": unary(
        lambda x: (jnp.abs(x) ** 0.5, x**3, x**-2, jnp.abs(x) ** 1.5, x**0, x**1, jnp.abs(x) ** jnp.inf)
    ),
    "pow by integers": (lambda x, n: lax.pow(x, n), reals(3, low=0.5), integers(3)),
    "truths": (lambda a, b: (jnp.max(a), jnp.min(b), a & True, b | False, a ^ True), truths(4), truths(4)),
    "reduce_precision": unary(lambda x: lax.reduce_precision(x, *((8, 23) if x.dtype == jnp.float32 else (11, 52)))),
    "error functions": unary(lambda x: (jax.scipy.special.erf(x), jax.scipy.special.erfinv(x))),
    "inverse error function inside": (jax.scipy.special.erfinv, reals(9, low=-0.9, high=0.9)),
    "nextafter": (lambda p: jnp.nextafter(p[0], p[1]) / 2, pairs),
    "bits": (
        lambda x, n: (
            lax.bitcast_convert_type(x, jnp.int32 if x.dtype == jnp.float32 else jnp.uint64) ^ 5,
            lax.bitcast_convert_type(lax.shift_right_logical(n, jnp.uint32(9)) | jnp.uint32(0x3F800000), jnp.float32),
            x + like(x, lax.bitcast_convert_type(jnp.uint32(0x40490FDB), jnp.float32)),
        ),
        reals(4),
        words(4),
    ),
    # random numbers; keys themselves are in test_random.py
    "random keys": (
        lambda w, n: [
            jax.random.key_data(k)
            for k in (
                *jax.random.split(jax.random.wrap_key_data(w), 2),
                jax.random.fold_in(jax.random.wrap_key_data(w), n),
                jax.random.clone(jax.random.key(n)),
            )
        ],
        words(2),
        integers(low=0),
    ),
    "random bits": (lambda w: jax.random.bits(w, (3,)), words(2)),
    "random bits of words": (lambda w: threefry_prng_impl.random_bits(w, 32, (2, 3)), words(2)),
    # choice
    "select": (
        lambda b, x, y: (
            jnp.where(b, x, y),
            jnp.where(b[0], x, y),
            jnp.where(~b, x, 2),
            jnp.where(b, 1, 0) + 1,
            jnp.where(b, b, x > y),
            jnp.where(b, True, x > y),
            jnp.where(b, False, x > y),
            jnp.where(b, x > y, True),
            jnp.where(b, x > y, False),
            jnp.where(np.array([True, False, True]), x, y),
            jnp.where(b, 0.0, -0.0),
        ),
        truths(3),
        reals(3),
        reals(3),
    ),
    "select_n": (lambda n, x: lax.select_n(n, x, 2 * x, x * x), integers(4, low=0, high=2), reals(4)),
    "select_n of one": (lambda n, x: lax.select_n(n, x, 2 * x, x * x), integers(low=0, high=2), reals(4)),
    "cond": (three_ways, reals()),
    "cond of known": (lambda x: lax.cond(jnp.asarray(True), jnp.sin, jnp.cos, x), reals()),
    "switch": (lambda n, x: lax.switch(n, [jnp.sin, jnp.cos, lambda x: x * x], x), integers(low=-2, high=5), reals(2)),
    "switch of known": (lambda x: lax.switch(jnp.int32(7), [jnp.sin, jnp.cos], x), reals(2)),
    # shapes
    "shapes": (
        lambda x: (
            x.reshape(3, 4).T,
            lax.reshape(x.reshape(3, 4), (2, 6), dimensions=(1, 0)),
            x[None, :, None],
            jnp.broadcast_to(x[:3, None], (3, 2)),
            x[::-1],
            x[2:9:3],
            jnp.squeeze(x[:1]),
            jnp.expand_dims(x, 1),
            jnp.split(x, [2, 7]),
            jnp.stack([x, 2 * x], axis=1),
            jnp.concatenate([x, 3 * x]),
            jnp.arange(12, dtype=x.dtype) + x,
            jnp.eye(3, dtype=x.dtype) * x[None, :3],
        ),
        reals(12),
    ),
    "shapes in memory": (
        lambda x: (
            x[::-1, ::2][3],
            x.T[5],
            x.T.reshape(-1)[7:9],
            lax.reshape(x, (1200,), dimensions=(1, 0))[38:43],
            x[:, None, 3:9][11],
            jnp.broadcast_to(x[3][None], (4, 40))[2, 7],
            jnp.squeeze(x[5:6, 2:3]),
            *jnp.split(x, [3, 5])[1],
            lax.expand_dims(x, (1,))[0, 0, 4],
            jnp.stack([x[0], x[7]])[1],
        ),
        reals(30, 40),
    ),
    "whole arrays out": (lambda x: (x, x[1:], x[::-1], x.reshape(-1), x.T), reals(19, 27)),
    "tile": (lambda x, y: (jnp.tile(x, (2, 3)), jnp.tile(y, 2)[700:705]), reals(2, 3), reals(700)),
    "unstack": (lambda x, y: (*jnp.unstack(x), *jnp.unstack(y, axis=1)[:3]), reals(3), reals(20, 40)),
    "unstack known": (lambda x: [a * b for a, b in zip(jnp.unstack(like(x, [1, 2, 3])), x, strict=True)], reals(3)),
    "pad": (
        lambda x: (
            jnp.pad(x, 2),
            lax.pad(x, like(x, 7), [(1, 2, 1)]),
            lax.pad(x, like(x, 7), [(-1, 2, 0)]),
            lax.pad(x, like(x, 7), [(2, -3, 2)]),
            lax.pad(x, x[0], [(-2, -1, 1)]),
            lax.pad(like(x, [1, 2, 3]), like(x, 4), [(-1, 1, 1)]) * x[0],
        ),
        reals(4),
    ),
    "long concatenation": (lambda x, y: jnp.concatenate([x, y[:3], x[::2], y])[::37], reals(700), reals(600)),
    "long concatenation out": (lambda x, y: (jnp.concatenate([x, y[:3], 2 * y[:2], x]), x), reals(700), reals(5)),
    "long concatenation of columns": (lambda x, y: jnp.concatenate([x, y], 1)[1, 18:22], reals(30, 20), reals(30, 2)),
    "broadcast of memory": (lambda x: jnp.broadcast_to(x, (3, 700))[:, ::123], reals(1, 700)),
    "scan of a long concatenation": (
        lambda x, y: lax.scan(lambda c, r: (0.5 * c + r, None), y[0], jnp.concatenate([x, 2 * y]))[0],
        reals(1500),
        reals(20),
    ),
    "empty": (lambda x: (x[:0], jnp.sum(x[:0]), jnp.prod(x[:0]), jnp.concatenate([x[:0], x])), reals(3)),
    "truths and integers out": (lambda b, n: (b, ~b, n, n.T, b[:, 0]), truths(3, 2), integers(2, 3)),
    # sums and products
    "dot": (
        lambda a, b, x: (a @ b, a @ x, x @ x, jnp.einsum("ij,kj->ik", a, b), jnp.einsum("ij,ij->i", a, b)),
        reals(3, 3),
        reals(3, 3),
        reals(3),
    ),
    "dot batched": (lambda a, b: (a @ b, jnp.einsum("bij,bkj->bki", a, b)), reals(2, 3, 3), reals(2, 3, 3)),
    "dot with known": (
        lambda x: (
            x @ like(x, [[1, 0, 1], [1, 1, 1], [0, 0, 0]]),
            like(x, [[1, 0, 1], [1, 1, 1], [0, 0, 0]]) @ x,
            like(x, [[2, 0, 3], [0, -1, 0]]) @ x,
            like(x, [[1, 0, -1], [0, -1, 1]]) @ x,
            x[0] * (like(x, [1.5, 2]) @ like(x, [3, 4])),
        ),
        reals(3),
    ),
    "dot in other types": (
        lambda x, n: (
            lax.dot(x, x, preferred_element_type=jnp.float64),
            lax.dot(n, n, preferred_element_type="int32"),
            jnp.int32(n[0]) + lax.dot(like(n, [100, 100]), like(n, [100, 100]), preferred_element_type="int32"),
            (n > 100) @ (n > 100),
        ),
        reals(3),
        integers(3, low=90, high=120, dtype=np.int8),
    ),
    "reductions": (
        lambda x, b: (
            jnp.sum(x),
            jnp.sum(x, 0),
            jnp.prod(x, 1),
            jnp.max(x, 0),
            jnp.min(x),
            jnp.all(b),
            jnp.any(b, 0),
            jnp.sum(b),
            x * jnp.sum(like(x, [1, 2])) * jnp.max(like(x, [3, 2])),
        ),
        reals(3, 4),
        truths(3, 4),
    ),
    "largest of nothing": unary(
        lambda x: x * jnp.max(np.zeros((0, 2), x.dtype), initial=0.5) + jnp.max(x[:0], initial=1.5)
    ),
    "truths of nothing": (lambda b: (b, jnp.all(b[:0]), jnp.any(b[:0]), jnp.all(b), jnp.any(b)), truths(2)),
    "reductions with nan": unary(lambda x: (jnp.max(x), jnp.min(x), jnp.max(x[:4]), jnp.min(x[:4]))),
    "reductions of integer bits": (
        lambda n: (
            *(f(n, (0,)) for f in (lax.reduce_and, lax.reduce_or, lax.reduce_xor)),
            n + lax.reduce_and(like(n, [6, 3]), (0,)),
            *(f(n[:0], (0,)) for f in (lax.reduce_and, lax.reduce_or, lax.reduce_max, lax.reduce_min)),
        ),
        integers(3),
    ),
    "cumulative": (
        lambda x: (
            jnp.cumsum(x, 0),
            jnp.cumprod(x, 1),
            lax.cummax(x, 1),
            lax.cummin(x),
            lax.cumsum(x, 1, reverse=True),
            x[0] * jnp.cumsum(like(x, [1, 2, 3, 4])),
        ),
        reals(3, 4),
    ),
    "argmax": (lambda x: (jnp.argmax(x), jnp.argmin(x, 1), jnp.argmax(x > 0, 0)), reals(3, 4)),
    "argmax of equals": (lambda n: (jnp.argmax(n), jnp.argmin(n)), integers(9, low=0, high=2)),
    "argmax with nan": unary(lambda x: (jnp.argmax(x), jnp.argmin(x), jnp.argmax(x[:4]))),
    "sort": (lambda x: (jnp.sort(x), jnp.argsort(x, 0), lax.sort((x, 2 * x), dimension=0)[1]), reals(3, 4)),
    "sort of equals": (lambda n: (jnp.sort(n), jnp.argsort(n)), integers(9, low=0, high=2)),
    "sort with nan": unary(lambda x: jnp.sort(x)),
    "sort of known": (lambda x: x[0] * jnp.sort(like(x, [3, 1, 2])), reals(1)),
    # positions
    "gather of known positions": (
        lambda x: (x[np.array([2, 0, -1])], x[:, np.array([1, 1])], x[np.array([0, 1]), np.array([2, 0])], x[1, -1]),
        reals(3, 4),
    ),
    "gather": (
        lambda x, i, j: (x[i], x[:, i], x[j], x[j, i], x[j][:, j], jnp.take_along_axis(x, j[:, None], 1)),
        reals(3, 3),
        integers(low=0, high=2),
        integers(3, low=0, high=2),
    ),
    "gather out of bounds": (
        lambda x, n, i: (
            x.at[i].get(mode="clip"),
            x.at[i].get(mode="fill"),
            x.at[i].get(mode="fill", fill_value=7),
            x.at[i, 0].get(mode="fill"),
            n.at[i].get(mode="fill"),
            x.at[np.array([0, 5])].get(mode="fill", fill_value=2),
            x.at[np.array([0, 5])].get(mode="clip"),
        ),
        reals(3, 2),
        integers(3),
        integers(low=-5, high=6),
    ),
    "gather of one number": (
        lambda x, i: (x.at[i].get(mode="clip"), x.at[i].get(mode="fill"), x[i]),
        reals(5),
        integers(low=-7, high=7),
    ),
    "gather from memory": (
        lambda x, i, j: (x[i], x[j], x[j, i], x[:, i][7], x.at[i + 38].get(mode="clip")[3]),
        reals(40, 30),
        integers(low=0, high=29),
        integers(3, low=0, high=39),
    ),
    "gather from tables": (tables, integers(low=0, high=3), reals(2)),
    "table as result": (lambda i: like(jnp.float64(0), [1, 2, 3, 4])[i], integers(low=0, high=3)),
    "gather from partly known": (partly_known, integers(low=0, high=3), reals(2)),
    "dynamic_slice": (
        lambda x, i: (
            lax.dynamic_slice(x, (i, jnp.int32(0)), (2, 3)),
            lax.dynamic_slice(x, (i, i), (1, 2)),
            lax.dynamic_index_in_dim(x, i, 1),
            lax.dynamic_slice(x, (jnp.int32(7), i), (2, 2)),
        ),
        reals(4, 5),
        integers(low=-3, high=8),
    ),
    "dynamic_slice of memory": (
        lambda x, i: (lax.dynamic_slice(x, (i,), (3,)), lax.dynamic_slice(x, (i * 100,), (2,))),
        reals(700),
        integers(),
    ),
    "long dynamic_slice out": (
        lambda x, i: (lax.dynamic_slice(x, (i,), (600,)), jnp.concatenate([lax.dynamic_slice(x, (i,), (600,)), x])),
        reals(700),
        integers(low=0, high=100),
    ),
    "dynamic_update_slice": (
        lambda x, i: (
            lax.dynamic_update_slice(x, 2 * x[:2, :2], (i, jnp.int32(1))),
            lax.dynamic_update_slice(x, x[:1, :1], (jnp.int32(9), i)),
            x.at[1].set(0),
        ),
        reals(4, 5),
        integers(low=-3, high=8),
    ),
    "scatter": (
        lambda x, i, j: (
            x.at[i].set(7),
            x.at[i].add(x[0]),
            x.at[j, 0].mul(3),
            x.at[j].add(1),
            x.at[np.array([0, 0, 2])].add(x),
            x.at[np.array([0, 7])].set(1, mode="drop"),
            x.at[j + 2].set(2, mode="clip"),
            x.at[i, i].set(x[1, 1]),
            x.at[j].subtract(x[1]),
            x.at[j, 1].min(0.5),
            x.at[j, 1].max(0.5),
            x.at[j].apply(jnp.sin),
            x.at[1, i].apply(lambda e: 2 * e + 1, mode="clip"),
            jnp.zeros_like(x).at[np.arange(3), np.arange(3)].set(x[0]),
        ),
        reals(3, 3),
        integers(low=-4, high=4),
        integers(2, low=-3, high=3),
    ),
    # linear algebra
    "cholesky": (
        lambda a, b: (jnp.linalg.cholesky(a), jnp.linalg.cholesky(b), jnp.linalg.cholesky(a + a, upper=True)),
        definite(4),
        definite(3, 2),
    ),
    "cholesky of the lower triangle": (
        lambda a, upper: lax.linalg.cholesky(a + jnp.triu(upper, 1), symmetrize_input=False),
        definite(3),
        reals(3, 3),
    ),
    "cholesky of diagonal": (lambda x: jnp.linalg.cholesky(jnp.diag(1 + x * x)), reals(3)),
    "triangular_solve": (
        lambda a, b: [
            lax.linalg.triangular_solve(a, b, left_side=left, lower=low, transpose_a=turned, unit_diagonal=unit)
            for left in (True, False)
            for low in (True, False)
            for turned in (True, False)
            for unit in (True, False)
        ],
        definite(3),
        reals(3, 3),
    ),
    "solve": (
        lambda a, b, x: (jnp.linalg.solve(a, x), jnp.linalg.solve(b, jnp.stack([x, x])[..., None]), jnp.linalg.inv(a)),
        regular(3),
        regular(3, 2),
        reals(3),
    ),
    "solve the other way": (lambda a, x: jax.vjp(lambda b: jnp.linalg.solve(a, b), x)[1](x), regular(3), reals(3)),
    "lu": (lambda a, b: (lax.linalg.lu(a), lax.linalg.lu(b[:, :2]), lax.linalg.lu(b[:2])), regular(3), regular(3)),
    "lu of equals": (lambda x: lax.linalg.lu(x * like(x, [[1, 2, 0.1], [-1, 1, 3], [1, 0.5, -2]])), reals(low=0.5)),
    "lu of negatives": (lambda x: lax.linalg.lu(x * like(x, [[1, 2, 0.1], [-3, 1, 3], [1, 0.5, -2]])), reals(low=0.5)),
    "pivots": (
        lambda a: [lax.linalg.lu_pivots_to_permutation(lax.linalg.lu(m)[1], 3) for m in (a, a[:, :2])],
        regular(3),
    ),
    "det": (lambda a: (jnp.linalg.det(a), jnp.linalg.slogdet(a)), regular(4)),
    "cho_solve": (lambda a, x: jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(a), True), x), definite(3), reals(3)),
    # functions within functions
    "jit": (lambda x: jax.jit(jnp.sin)(x), reals()),
    "closed_call": (lambda x: jax.checkpoint(jnp.sin)(x) * jax.ad_checkpoint.checkpoint_name(x, "x"), reals()),
    "custom derivatives": (lambda x: (cube(x), jax.grad(cube)(x), halved(x), jax.grad(halved)(x)), reals()),
    "derivatives within": (
        lambda x: (jax.grad(lambda y: jnp.sum(jnp.sin(y) * y + y * y[0]))(x), jax.jacfwd(jnp.cumsum)(x)),
        reals(3),
    ),
    "custom_vjp": (lambda x: halved(x), reals(3)),
    "lanes within lanes": (lambda x: per_sample(jnp.sin)(x) + per_sample(lambda y: y * y)(x), reals(2)),
    "vmap within": (lambda x: jax.vmap(per_sample(lambda y: y @ y))(x), reals(3, 2)),
    "stop_gradient": (lambda x: x * lax.stop_gradient(x) + lax.optimization_barrier(x), reals(2)),
    "device_put": (lambda x: jax.device_put(x) + jnp.copy(x) + jnp.array(x, copy=True), reals(2)),
    "platform_dependent": (lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=jnp.sin), reals()),
    # loops
    "scan unrolled": (scanned(5), reals(), reals()),
    "scan unrolled backward": (scanned(5, reverse=True), reals(), reals()),
    "scan as asked": (scanned(60, unroll=60), reals(), reals()),
    "scan": (scanned(1500), reals(), reals()),
    "scan backward": (scanned(1500, reverse=True), reals(), reals()),
    "scan of nothing": (lambda x: lax.scan(lambda c, k: (c * k, k), x, jnp.zeros((0, 2), x.dtype)), reals(2)),
    "scan of rows": (scan_over_arrays, reals(), reals(1200, 2)),
    "scan of rows unrolled": (scan_over_arrays, reals(), reals(3, 2)),
    "scan of long rows": (
        lambda x, rows: lax.scan(lambda c, r: (0.5 * jnp.sin(c) + r[0] * r[599], r[5:8]), x, rows),
        reals(),
        reals(3, 600),
    ),
    "scan of long rows in a loop": (
        lambda x, rows: lax.scan(
            lambda c, r: (0.5 * jnp.sin(c) + r[0] * r[519], r[5:8]), x, jnp.concatenate([rows] * 40)
        ),
        reals(),
        reals(3, 520),
    ),
    "scan of scans": (scan_of_scans, reals()),
    "fori_loop": (lambda x: lax.fori_loop(0, 7, lambda k, c: jnp.sin(c) + k.astype(x.dtype), x), reals()),
    "carries that stay or count": (carries_that_stay_or_count, reals(), integers()),
    "carry known from the second turn on": (carry_known_from_the_second_turn_on, reals()),
    "carries change places": (carries_change_places, reals(), reals()),
    "truth carried": (truth_carried, reals()),
    "small integers wrap in a loop": (small_integers_wrap_in_a_loop, reals(), integers(dtype=np.int8)),
    "known rows": (known_rows, reals()),
    "positions in a loop": (in_loop_positions, reals(), reals(700)),
    "update in a loop": (update_in_loop, reals()),
    "while": (steps_of_collatz, integers(low=1, high=40)),
    "while of floats": (root_by_newton, reals(low=0.1)),
    "while of nothing": (lambda x: lax.while_loop(lambda c: c > 9, lambda c: c * jnp.nan, x), reals()),
    "while that is known": (lambda x: lax.while_loop(lambda c: False, lambda c: c * c, x), reals()),
    "while of arrays": (while_of_arrays, reals(3), integers(low=-2, high=60)),
    "while in a loop": (while_in_a_loop, reals()),
    "while with keys": (first_large_draw, words(2)),
    "while of known length": (
        lambda x, n: lax.fori_loop(0, n, lambda k, c: jnp.sin(c) + k.astype(x.dtype), x),
        reals(),
        integers(),
    ),
    "while of a vector": (
        lambda x: jax.vmap(lambda y: lax.while_loop(lambda c: c < 5, lambda c: c * c + 1.5, y))(x),
        reals(4),
    ),
    "while of an empty vector": (
        lambda x: jax.vmap(lambda y: lax.while_loop(lambda c: c < 5, lambda c: c * c + 1.5, y))(x[:0]),
        reals(4),
    ),
    "cond in a loop": (
        lambda x: lax.fori_loop(0, 800, lambda k, c: lax.cond(c > 0, lambda c: c - 0.3, lambda c: c + 0.7, c), x),
        reals(),
    ),
}

# Largest difference in units of rounding. Functions of libraries differ by a few; sums in another order, or with fused products,
# by one per term; a solution loses the condition of its matrix (about ten); an angle of 3000 has lost nothing (it is exact).
ROUNDINGS = 64


def arguments(name: str, dtype) -> tuple:
    rng = np.random.default_rng(sorted(TABLE).index(name))
    return tuple(draw(rng, dtype) for draw in TABLE[name][1:])


def assert_same(actual, expected, name: str) -> None:
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        if jnp.issubdtype(a.dtype, jnp.floating):
            eps = np.finfo(a.dtype).eps
            # Numbers of the table are of order one; what is much smaller than its neighbors is a difference of them.
            np.testing.assert_allclose(a, b, rtol=ROUNDINGS * eps, atol=ROUNDINGS * eps, err_msg=name)
        else:
            np.testing.assert_array_equal(a, b, err_msg=name)


@functools.cache
def reference(name: str):
    """Results of XLA in both precisions, without optimizations, which would only take time."""
    function = jax.vmap(TABLE[name][0])
    both = tuple(arguments(name, t) for t in (np.float32, np.float64))
    compiled = jax.jit(lambda both: [function(*a) for a in both]).lower(both)
    return jax.device_get(compiled.compile({"xla_disable_hlo_passes": "", "xla_backend_optimization_level": 0})(both))


@pytest.mark.parametrize("name", TABLE)
def test_lanes_and_xla_agree(name):
    function = jax.vmap(per_sample(TABLE[name][0], backend="lanes"))
    both = [arguments(name, t) for t in (np.float32, np.float64)]
    parts = [[jax.tree.map(lambda x, n=n: x[:n], a) for n in SIZES] for a in both]
    found = jax.device_get(jax.jit(lambda parts: [[function(*a) for a in p] for p in parts])(parts))
    for results, expected in zip(found, reference(name), strict=True):
        for size, result in zip(SIZES, results, strict=True):
            assert_same(result, jax.tree.map(lambda x, n=size: x[:n], expected), f"{name}, {size} lanes")


# Primitives of other releases of JAX, or that only appear inside of other transformations.
OF_OTHER_RELEASES = {
    "call",
    "call_hi_primitive",
    "closed_call",
    "pvary",
    "reshard",
    "log2",
    "one_minus_square",
    "polynomial",
}
OF_OTHER_RELEASES |= {"eval_jaxpr", "empty", "empty2"}


@functools.cache
def traced_rows() -> dict:
    def one_sample(name):
        return jax.tree.map(lambda x: x[0], arguments(name, np.float32))

    rows = {name: jax.make_jaxpr(function)(*one_sample(name)) for name, (function, *_) in TABLE.items()}
    for dtype in ("float32", "int32", "bool"):
        for count, functions in enumerate((of_one(dtype), of_two(dtype)), 1):
            rows[dtype, count] = jax.make_jaxpr(lambda *x, fs=functions: [f(*x) for f in fs.values()])(
                *jnp.ones(count, dtype)
            )
    return rows


def test_every_rule_has_a_row():
    used = {e.primitive.name for row in traced_rows().values() for e in equations(row.jaxpr)}
    assert set(RULES) - used - OF_OTHER_RELEASES == set()
    assert not used & OF_OTHER_RELEASES
    assert used - set(RULES) == set()


class Observed(UserDict):
    """Parameters of an equation that note which of them are read."""

    def __init__(self, params: dict, read: set):
        super().__init__(params)
        self.read = read

    def __getitem__(self, name):
        self.read.add(name)
        return super().__getitem__(name)


def test_rules_read_every_parameter_that_they_say_they_read(monkeypatch):
    """A parameter that a rule neither reads nor ignores is refused (below), so no parameter is overlooked."""
    given, read = defaultdict(set), defaultdict(set)
    prepared = _Prepared._operation

    def observed(self, equation):
        name = equation.primitive.name
        given[name] |= equation.params.keys()
        return prepared(self, equation.replace(params=Observed(equation.params, read[name])))

    monkeypatch.setattr(_Prepared, "_operation", observed)
    for row in traced_rows().values():
        flatten(row)
    assert set(given) == set(RULES) - OF_OTHER_RELEASES
    assert not {name: unread for name in given if (unread := (RULES[name].reads & given[name]) - read[name])}


def test_a_parameter_that_no_rule_knows_is_refused():
    """As if a newer JAX gave an option to a primitive."""
    first = {}
    for row in traced_rows().values():
        for k, equation in enumerate(row.eqns):
            first.setdefault(equation.primitive.name, (row, k))
    for name, (row, k) in first.items():
        changed = list(row.eqns)
        changed[k] = changed[k].replace(params={**changed[k].params, "an_option": True})
        with pytest.raises(CannotFlatten, match=f"'{name}' with the option 'an_option' has no scalar form"):
            flatten(row.replace(jaxpr=row.jaxpr.replace(eqns=changed)))


REFUSED = {
    "while_loop": lambda x: lax.while_loop(
        lambda c: c > 1, lambda c: lax.fori_loop(0, 20_000, lambda _, y: halved(y), c), x
    ),
    "reduce_precision": lambda x: lax.reduce_precision(x, 5, 4),
    "sort": lambda x: lax.sort((x * jnp.arange(3.0), x * jnp.arange(3.0)), num_keys=2),
    "lgamma": jax.scipy.special.gammaln,
    "'exp' of a given accuracy": lambda x: lax.exp(x, accuracy=lax.Tolerance(atol=1e-9, rtol=0.0, ulps=0)),
    "'dot_general' by the algorithm": lambda x: lax.dot(
        x * jnp.ones(3, x.dtype), x * jnp.ones(3, x.dtype), precision=lax.DotAlgorithmPreset.F32_F32_F32
    ),
    "'platform_dependent' without a default": lambda x: lax.platform_dependent(x, cpu=jnp.sin, cuda=jnp.cos),
    "'mul' with the option 'out_dtype'": lambda x: lax.mul(x, x, out_dtype=jnp.float64),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_scalar_form_is_refused(name):
    with pytest.raises(CannotFlatten, match=name):
        jax.vmap(per_sample(REFUSED[name], backend="lanes"))(jnp.ones(3))
