"""Small arrays: products at full precision, and numbers from users as arrays.

On recent GPUs JAX multiplies float32 matrices in TF32 (10-bit mantissa, relative error 1e-3) unless told otherwise, which would
ruin every mass matrix. All of jaxdyn multiplies through `einsum` and `dot`; `tests/test_precision.py` checks that none slips by.

Sums of few products are written as such. In a batch XLA would call a matrix library for them, which takes longer than the sums
and keeps them from being part of what is computed before and after.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.lanes.tracing import writing_out

_FULL = jax.lax.Precision.HIGHEST
_FEW = 6  # products: as many as a 6-vector has components


def einsum(subscripts: str, *operands: Float[Array | np.ndarray, "..."]) -> Float[Array, "..."]:
    """Einstein summation, as `jax.numpy.einsum`, at full precision."""
    return jnp.einsum(subscripts, *operands, precision=_FULL, _dot_general=_products())


def dot(a: Float[Array | np.ndarray, "..."], b: Float[Array | np.ndarray, "..."]) -> Float[Array, "..."]:
    """Inner product over the last axis of `a` and the last but one (or only) axis of `b`, at full precision."""
    contracted = ((a.ndim - 1,), (max(b.ndim - 2, 0),))
    return _products()(jnp.asarray(a), jnp.asarray(b), (contracted, ((), ())), _FULL)


def _products() -> Callable[..., Array]:
    """What multiplies arrays now. The lane compiler writes all products out by itself."""
    return jax.lax.dot_general if writing_out() else _few_written_out


def _few_written_out(a: Array, b: Array, dimension_numbers: Any, *options: Any, **named_options: Any) -> Array:
    """`jax.lax.dot_general`, but sums of few products as such."""
    (along_a, along_b), (batch_a, batch_b) = dimension_numbers
    if math.prod(a.shape[i] for i in along_a) > _FEW:
        return jax.lax.dot_general(a, b, dimension_numbers, *options, **named_options)
    free_a = [i for i in range(a.ndim) if i not in (*along_a, *batch_a)]
    free_b = [i for i in range(b.ndim) if i not in (*along_b, *batch_b)]
    # Axes of the product: those of the batch, the free ones of a, the free ones of b, those summed over.
    n_batch, n_a, n_b = len(batch_a), len(free_a), len(free_b)
    a = jnp.expand_dims(a.transpose(*batch_a, *free_a, *along_a), range(n_batch + n_a, n_batch + n_a + n_b))
    b = jnp.expand_dims(b.transpose(*batch_b, *free_b, *along_b), range(n_batch, n_batch + n_a))
    return jnp.sum(a * b, axis=range(n_batch + n_a + n_b, a.ndim))


def zero_safe_norm(d: Float[Array, "n"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """|d| and 1/|d|; both 0, with zero derivatives, at d = 0, where the direction of d is undefined."""
    x = dot(d, d)
    apart = x > 0
    length = jnp.sqrt(jnp.where(apart, x, 1.0))
    return jnp.where(apart, length, 0.0), jnp.where(apart, 1.0 / length, 0.0)


def floating(x: Any) -> Array:
    """Numbers as a floating-point array: a JAX array of floats unchanged, anything else in JAX's default precision."""
    return x if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.floating) else jnp.asarray(x, float)


def floating_or_none(x: Any) -> Array | None:
    """`floating`, for values that may be left out."""
    return None if x is None else floating(x)
