"""Generation of random numbers (`jax.random`) by the generator threefry, with the same bits as in JAX.

The operations on the words of keys are traced from the functions of JAX, so `split`, `fold_in` and the counters depend on the
version of JAX and on its setting `jax_threefry_partitionable`. Only the hash function is written out here: it maps a key and a
counter, two words each, to two words.
"""

import math
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax.extend.random import threefry_prng_impl as threefry

from jaxdyn.lanes.flatten import Flattener, Value, rule
from jaxdyn.lanes.keys import WORD, WORDS
from jaxdyn.lanes.program import Program, Scalar
from jaxdyn.lanes.rules.repeated import several_of_each
from jaxdyn.lanes.scalar_types import dtype_of_type

# Approximate number of operations that convert a counter to two random words.
HASH_OPERATIONS = 110

# Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011), and its implementation Random123.
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_WORDS = dtype_of_type(WORD)


def _hash(program: Program, key: tuple[Scalar, Scalar], counter: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
    """Threefry-2x32: twenty rounds, a word of the key or of their parity added to each word after every four."""

    def op(name: str, x: Scalar, y: Scalar) -> Scalar:
        return program.apply(name, (x, y), WORD)

    parts = (*key, op("xor", op("xor", *key), _PARITY))
    x, y = (op("add", c, k) for c, k in zip(counter, key, strict=True))
    for group in range(5):
        for turn in _ROTATIONS[group % 2]:
            x = op("add", x, y)
            rotated = op("or", op("shift_left", y, turn), op("shift_right_logical", y, 32 - turn))
            y = op("xor", x, rotated)
        x = op("add", x, parts[(group + 1) % 3])
        y = op("add", op("add", y, parts[(group + 2) % 3]), group + 1)
    return x, y


@rule("threefry2x32")
def _threefry2x32(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    arrays = np.broadcast_arrays(*(flat.registers(x) for x in args))
    words = [WORD] * len(arrays)

    def hashed(a: Scalar, b: Scalar, c: Scalar, d: Scalar) -> tuple[Scalar, Scalar]:
        return _hash(flat.program, (a, b), (c, d))

    return several_of_each(flat, hashed, arrays, words, [WORD] * WORDS, HASH_OPERATIONS)


@rule("iota_2x32_shape", reads="shape")
def _iota(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    shape = equation.params["shape"]
    counted = np.arange(math.prod(shape), dtype=np.uint64).reshape(shape)
    return [(counted >> np.uint64(32)).astype(np.uint32), counted.astype(np.uint32)]


def _joined(flat: Flattener, words: Sequence[Value]) -> np.ndarray:
    """Keys in the layout of JAX, with words along the last axis."""
    return np.stack([flat.registers(x) for x in words], -1)


def _parted(data: np.ndarray) -> list[Value]:
    return [data[..., k] for k in range(WORDS)]


def _as_jax_does(flat: Flattener, function: Callable, *operands: tuple[np.ndarray, np.dtype]) -> np.ndarray:
    """Result of function(*operands) for a function of JAX; each operand is an array and its type."""
    shapes = [jax.ShapeDtypeStruct(x.shape, dtype) for x, dtype in operands]
    (result,) = flat.closed(jax.make_jaxpr(function)(*shapes), [x for x, _ in operands])
    return flat.registers(result)


def _for_each(function: Callable, axes: int) -> Callable:
    """A function of one key, or of one key and an integer, mapped over arrays with this number of axes."""
    for _ in range(axes):
        function = jax.vmap(function)
    return function


@rule("random_bits", reads="bit_width shape", of_whole_keys=True)
def _bits(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    p, data = equation.params, _joined(flat, args)
    function = _for_each(lambda key: threefry.random_bits(key, p["bit_width"], p["shape"]), data.ndim - 1)
    return [_as_jax_does(flat, function, (data, _WORDS))]


@rule("random_split", reads="shape", of_whole_keys=True)
def _split(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    data = _joined(flat, args)
    function = _for_each(lambda key: threefry.split(key, equation.params["shape"]), data.ndim - 1)
    return _parted(_as_jax_does(flat, function, (data, _WORDS)))


@rule("random_fold_in", of_whole_keys=True)
def _fold_in(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    *words, numbers = (flat.registers(x) for x in args)
    shape = equation.outvars[0].aval.shape
    data = _joined(flat, [np.broadcast_to(x, shape) for x in words])
    numbers = np.broadcast_to(numbers, shape), equation.invars[1].aval.dtype
    return _parted(_as_jax_does(flat, _for_each(threefry.fold_in, len(shape)), (data, _WORDS), numbers))


@rule("random_seed", ignores="impl", of_whole_keys=True)
def _seed(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    seeds = flat.registers(args[0])
    return _parted(_as_jax_does(flat, _for_each(threefry.seed, seeds.ndim), (seeds, equation.invars[0].aval.dtype)))


@rule("random_wrap", ignores="impl", of_whole_keys=True)
def _wrap(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    return _parted(flat.registers(args[0]))


@rule("random_unwrap", of_whole_keys=True)
def _unwrap(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    return [_joined(flat, args)]


@rule("random_clone")
def _clone(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    return list(args)
