"""Small arrays: products at full precision, and numbers from users as arrays.

On recent GPUs JAX multiplies float32 matrices in TF32 (10-bit mantissa, relative error 1e-3) unless told otherwise, which would
ruin every mass matrix. All of jaxdyn multiplies through `einsum` and `dot`; `tests/test_precision.py` checks that none slips by.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_FULL = jax.lax.Precision.HIGHEST


def einsum(subscripts: str, *operands: Float[Array | np.ndarray, "..."]) -> Float[Array, "..."]:
    """Einstein summation, as `jax.numpy.einsum`, at full precision."""
    return jnp.einsum(subscripts, *operands, precision=_FULL)


def dot(a: Float[Array | np.ndarray, "..."], b: Float[Array | np.ndarray, "..."]) -> Float[Array, "..."]:
    """Inner product over the last axis of `a` and the last but one (or only) axis of `b`, at full precision."""
    return jnp.dot(a, b, precision=_FULL)


def zero_safe_norm(d: Float[Array, "n"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """|d| and 1/|d|; both 0, with zero derivatives, at d = 0, where the direction of d is undefined."""
    x = dot(d, d)
    apart = x > 0
    length = jnp.sqrt(jnp.where(apart, x, 1.0))
    return jnp.where(apart, length, 0.0), jnp.where(apart, 1.0 / length, 0.0)


def floating(x: Any) -> Array:
    """Numbers as a floating-point array: a JAX array of floats unchanged, anything else in JAX's default precision."""
    return x if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.floating) else jnp.asarray(x, float)
