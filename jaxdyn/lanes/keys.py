"""Random keys (`jax.random.key`) as integers of lane programs.

A key of the generator threefry, the default of JAX, consists of two words of 32 bits. At the boundary of a lane call, an array of
keys becomes the array of its words, with one additional axis; within a program, one array contains the first words and another
array the second words.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

# Type of a word, and number of words of a key.
WORD, WORDS = "u32", 2


def is_key(dtype) -> bool:
    """True if arrays of this type contain keys of any generator."""
    return not isinstance(dtype, np.dtype) and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)


def is_threefry(dtype) -> bool:
    """True if arrays of this type contain keys that have a scalar form."""
    return not isinstance(dtype, np.dtype) and getattr(dtype, "name", "") == "key<fry>"


def without_keys(arrays: Sequence) -> tuple[list, Callable[[Sequence], list]]:
    """The arrays with the words of keys in place of keys, and the inverse function, which restores the keys."""
    generators = [jax.random.key_impl(x) if is_key(getattr(x, "dtype", np.dtype(bool))) else None for x in arrays]

    def with_keys(plain: Sequence) -> list:
        return [
            x if generator is None else jax.random.wrap_key_data(x, impl=generator)
            for x, generator in zip(plain, generators, strict=True)
        ]

    return [x if g is None else jax.random.key_data(x) for x, g in zip(arrays, generators, strict=True)], with_keys


def words_of(keys: jax.Array) -> list[np.ndarray]:
    """First and second words of known keys, also while a function is traced."""
    with jax.ensure_compile_time_eval():
        data = np.asarray(jax.random.key_data(keys))
    return [data[..., k] for k in range(WORDS)]


def arrays_of(variables: Sequence) -> list[Any]:
    """The variables of a jaxpr, each repeated as often as there are arrays for it: keys twice, other variables once."""
    return [v for v in variables for _ in range(WORDS if is_threefry(v.aval.dtype) else 1)]
