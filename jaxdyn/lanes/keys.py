"""Random keys (`jax.random.key`) as integers of lane programs.

A key of the generator threefry, the default of JAX, consists of two words of 32 bits. At the boundary of a lane call, an array of
keys becomes the array of its words, with one additional axis; within a program, one array contains the first words and another
array the second words.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

# Type of a word, and number of words of a key.
WORD, WORDS = "u32", 2


def is_threefry(dtype) -> bool:
    """True if arrays of this type contain keys that have a scalar form."""
    return not isinstance(dtype, np.dtype) and getattr(dtype, "name", "") == "key<fry>"


def words_of(keys: jax.Array) -> list[np.ndarray]:
    """First and second words of known keys, also while a function is traced."""
    with jax.ensure_compile_time_eval():
        data = np.asarray(jax.random.key_data(keys))
    return [data[..., k] for k in range(WORDS)]


def arrays_of(variables: Sequence) -> list[Any]:
    """The variables of a jaxpr, each repeated as often as there are arrays for it: keys twice, other variables once."""
    return [v for v in variables for _ in range(WORDS if is_threefry(v.aval.dtype) else 1)]
