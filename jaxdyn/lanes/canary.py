"""Self-test of a new device: small functions that together contain every operation of scalar programs, and arguments for them."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

_SAMPLES = 97  # not a multiple of a block
_TURNS = 80  # their recorded floats exceed the memory of a thread, their integers do not
_REPEATED = 8  # short loops would be written out


def cases(with_float64: bool) -> Iterator[tuple[Callable, list[np.ndarray]]]:
    """Functions of one sample for the self-test, each with its arguments for many samples."""
    rng = np.random.default_rng(0)
    k = rng.integers(-50, 50, (_SAMPLES, 2)).astype(np.int32)
    yield integer_functions, [k]
    for dtype in (np.float32, np.float64) if with_float64 else (np.float32,):
        x = rng.uniform(0.1, 0.9, (_SAMPLES, 4)).astype(dtype) * rng.choice([-1, 1], (_SAMPLES, 4)).astype(dtype)
        yield float_functions, [x]
        yield loops_and_positions, [x, k]


def float_functions(x):
    """Arithmetic and transcendental functions; some angles are too large for the usual argument reduction."""
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
        jnp.stack([a < b, c <= d, a == jnp.abs(a), (a < c) ^ (b < d), jnp.where(a < d, b < c, b <= d)]),
        *((60 * x).astype(t) for t in ("int8", "uint8", "int16", "int32", "uint32", "float32")),
        jax.lax.bitcast_convert_type(x, f"int{8 * x.dtype.itemsize}"),
        # Of integral values, because XLA on GPUs omits a conversion to lower precision and back.
        (x < 0).astype(x.dtype) + jnp.floor(60 * x).astype("float32").astype(x.dtype),
    )


def integer_functions(k):
    """Operations on booleans and on integers of one, four and eight bytes.

    Unsigned types are tested only where their results differ from those of signed types.
    """
    widths = ("int8", "int32", *(["int64"] if jax.config.read("jax_enable_x64") else []))
    return [y for name in widths for y in _of_width(k.astype(name), f"u{name}")]


def _of_width(i, unsigned_name: str):
    j = i[::-1]
    u, w = i.astype(unsigned_name), j.astype(unsigned_name)
    bits = jnp.iinfo(i.dtype).bits
    truth = (i < j) & ~(i == 7) | (j <= 3)
    both = (jnp.add, jnp.subtract, jnp.multiply, jnp.bitwise_and, jnp.bitwise_or, jnp.bitwise_xor)
    sign_counts = (jax.lax.div, jax.lax.rem, jnp.minimum, jnp.maximum, jnp.less, jnp.less_equal)
    shifts = (jax.lax.shift_left, jax.lax.shift_right_logical, jax.lax.shift_right_arithmetic)
    return [
        *(f(i, j) for f in both + sign_counts),
        *(f(u, w) for f in sign_counts),
        *(f(i, n) for f in shifts for n in (jnp.abs(j) % bits, j + bits - 20)),
        *(jnp.abs(i), -i, ~i, u == w, truth ^ (u < w), jnp.where(truth, i, j).astype("int8")),
        *(u.astype("uint32"), i.astype("float32") * 0.3, u.astype("float32"), truth.astype(i.dtype)),
    ]


def loops_and_positions(x, k):
    """Loops, and reads at positions known only at run time.

    The first loop carries and records values, the second one reads them, and the number of iterations of the third one differs
    between samples.
    """
    table = jnp.asarray(np.linspace(0.0, 1.0, 60).reshape(15, 4), x.dtype)
    at = jnp.abs(k[0]) % 15

    def turn(carry, t):
        y, place = carry
        y = jnp.sin(y) * 0.9 + table[(at + t) % 15] * x
        return (y, (5 * place + t) % 15), (y, t * k[1] + place, place < 7)

    (last, _), (path, counts, truths) = jax.lax.scan(turn, (x, at), jnp.arange(_TURNS, dtype=jnp.int32))

    def turn_back(carry, recorded):
        (y, whole), (p, count, truth) = carry, recorded
        for _ in range(_REPEATED):
            y, whole = 0.5 * jnp.sin(y) + jnp.where(truth, p, -p), 3 * whole + count
        return (y, whole), None

    (back, whole), _ = jax.lax.scan(turn_back, (last, at), (path, counts, truths), reverse=True)
    joined = jnp.concatenate([last[None], path])

    def halved_or_more(state):
        number, y = state
        return jnp.where(number % 2 == 0, number // 2, 3 * number + 1), 0.5 * jnp.sin(y) + x

    ended = jax.lax.while_loop(lambda state: state[0] != 1, halved_or_more, (at + 1, last))[1]
    return last, path, counts, truths, back, whole, path[at % _TURNS], x[at % 4], joined[3 * at], ended


def agree(actual: np.ndarray, expected: np.ndarray) -> bool:
    """True if results agree: integers exactly, and floats up to some rounding errors of the larger of 1 and the value."""
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    if not np.issubdtype(actual.dtype, np.floating):
        return bool(np.array_equal(actual, expected))
    # Some units in the last place, relative to the larger of one and the value.
    return bool(np.all(np.abs(actual - expected) <= 64 * np.finfo(actual.dtype).eps * (1 + np.abs(expected))))
