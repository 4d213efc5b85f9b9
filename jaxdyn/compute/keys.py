"""Random keys (`jax.random.key`) as the integers that machine code takes."""

from collections.abc import Callable, Sequence

import jax
import numpy as np


def is_key(dtype) -> bool:
    """True if arrays of this type contain keys of any generator."""
    return not isinstance(dtype, np.dtype) and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)


def without_keys(arrays: Sequence) -> tuple[list, Callable[[Sequence], list]]:
    """The arrays with the words of keys in place of keys, and the inverse function, which restores the keys."""
    generators = [jax.random.key_impl(x) if is_key(getattr(x, "dtype", np.dtype(bool))) else None for x in arrays]

    def with_keys(plain: Sequence) -> list:
        return [
            x if generator is None else jax.random.wrap_key_data(x, impl=generator)
            for x, generator in zip(plain, generators, strict=True)
        ]

    return [x if g is None else jax.random.key_data(x) for x, g in zip(arrays, generators, strict=True)], with_keys
