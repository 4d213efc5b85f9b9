"""Small functions that hold every operation of scalar programs, with arguments: what a new device has to get right first."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

_SAMPLES = 97  # no multiple of a block
_TURNS = 80  # what they record is too long for the memory of a thread


def cases(with_float64: bool) -> Iterator[tuple[Callable, list[np.ndarray]]]:
    """Functions of one sample, and arguments for many."""
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float64) if with_float64 else (np.float32,):
        x = rng.uniform(0.1, 0.9, (_SAMPLES, 4)).astype(dtype) * rng.choice([-1, 1], (_SAMPLES, 4)).astype(dtype)
        k = rng.integers(-50, 50, (_SAMPLES, 2)).astype(np.int32)
        yield functions_of_numbers, [x]
        yield whole_numbers, [k]
        yield loops_and_positions, [x, k]


def functions_of_numbers(x):
    """Arithmetic and transcendental functions; the angles reach beyond the usual reduction."""
    a, b, c, d = x
    size = jnp.abs(x) + 0.05
    angle = x * jnp.array([1.0, 100.0, 1e7, 1e12], x.dtype)
    return (
        jnp.stack([a + b, a - b, a * b + c, a / b, jax.lax.rem(100 * a, b), -a, jnp.minimum(a, b), jnp.maximum(c, d)]),
        jnp.stack([jnp.sin(angle), jnp.cos(angle)]),
        jnp.tan(x),
        jnp.stack([jnp.sqrt(size), 1 / jnp.sqrt(size), jnp.exp(x), jnp.expm1(x), jnp.log(size), jnp.log1p(size)]),
        jnp.stack([jnp.arcsin(x), jnp.arccos(x), jnp.arctan(x), jnp.arctan2(x, x[::-1]), jnp.tanh(x), size**x]),
        jnp.stack([jnp.floor(9 * x), jnp.ceil(9 * x), jnp.round(9 * x)]),
    )


def whole_numbers(k):
    """Integers and truth values."""
    i, j = k
    unsigned = k.astype(jnp.uint32)
    by = jnp.abs(j) % 32
    truth = (i < j) & ~(i == 7) | (j <= 3)
    return (
        jnp.stack([i + j, i - j, i * j, jax.lax.div(i, j), jax.lax.rem(i, j), jnp.abs(i), jnp.minimum(i, j), -i]),
        jnp.stack([i & j, i | j, i ^ j, ~i, i << by, i >> by, jax.lax.shift_right_logical(i, by)]),
        jnp.stack([unsigned[0] * unsigned[1], unsigned[0] >> 3, jnp.maximum(unsigned[0], unsigned[1])]),
        truth,
        jnp.where(truth, i, j).astype(jnp.int8),
        jnp.stack([i.astype(jnp.float32) * 0.3, j.astype(jnp.uint8).astype(jnp.float32)]).astype(jnp.int32),
    )


def loops_and_positions(x, k):
    """A loop that carries and records, a record that is read again, and reads at positions known only at run time."""
    table = jnp.asarray(np.linspace(0.0, 1.0, 60).reshape(15, 4), x.dtype)
    at = jnp.abs(k[0]) % 15

    def turn(carry, t):
        y = jnp.sin(carry) * 0.9 + table[(at + t) % 15] * x
        return y, (y, t * k[1])

    last, (path, counts) = jax.lax.scan(turn, x, jnp.arange(_TURNS, dtype=jnp.int32))
    back, _ = jax.lax.scan(lambda s, p: (s * 0.5 + p**2, None), last, path, reverse=True)
    return last, path, counts, back, path[at % _TURNS], x[at % 4]


def agree(actual: np.ndarray, expected: np.ndarray) -> bool:
    """Equal integers; numbers equal up to rounding, which leaves room for cos of large angles in the wrong hands."""
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    if not np.issubdtype(actual.dtype, np.floating):
        return bool(np.array_equal(actual, expected))
    # Some units in the last place, of numbers of size one or of their own size.
    return bool(np.all(np.abs(actual - expected) <= 64 * np.finfo(actual.dtype).eps * (1 + np.abs(expected))))
