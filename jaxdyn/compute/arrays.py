"""Small arrays: products at full precision, and conversion of input values to arrays.

On recent GPUs, JAX by default multiplies float32 matrices in TF32 (10-bit mantissa, relative error 1e-3), which is too inexact for
mass matrices. All of jaxdyn multiplies with `einsum` and `dot`; `tests/test_precision.py` checks this.

Sums of few products are written as elementwise operations. In a batch, XLA would call a matrix library for such sums, which is
slower and prevents fusion with the operations before and after.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from jaxdyn.compute import internals
from jaxdyn.compute.hints import writing_out

_FULL = jax.lax.Precision.HIGHEST
_FEW = 6  # products: as many as a 6-vector has components


def einsum(subscripts: str, *operands: Float[Array | np.ndarray, "..."]) -> Float[Array, "..."]:
    """Einstein summation like `jax.numpy.einsum`, at full precision."""
    return jnp.einsum(subscripts, *operands, precision=_FULL, _dot_general=_products())


def dot(a: Float[Array | np.ndarray, "..."], b: Float[Array | np.ndarray, "..."]) -> Float[Array, "..."]:
    """Inner product over the last axis of `a` and the second to last (or only) axis of `b`, at full precision."""
    contracted = ((a.ndim - 1,), (max(b.ndim - 2, 0),))
    return _products()(jnp.asarray(a), jnp.asarray(b), (contracted, ((), ())), _FULL)


def linear(coefficients: Float[np.ndarray, "*rest j"], a: Float[Array, "j"]) -> Float[Array, "*rest"]:
    """Components c_i = sum over j of coefficients[i, j] a_j, where most coefficients are 0, 1 or -1.

    Products with these need no operation in a scalar program. For XLA the sum is written out, so that it becomes a part of the
    operations before and after it.
    """
    coefficients = coefficients.astype(a.dtype)
    if writing_out():
        return jax.lax.dot_general(coefficients, a, (((coefficients.ndim - 1,), (0,)), ((), ())), _FULL)
    return sum((a[j] * coefficients[..., j] for j in range(1, len(a))), a[0] * coefficients[..., 0])


def bilinear(
    coefficients: Float[np.ndarray, "i j k"],
    a: Float[Array | np.ndarray, "*#batch j"],
    b: Float[Array | np.ndarray, "*#batch k"],
) -> Float[Array, "*batch i"]:
    """Components c_i = sum over j and k of coefficients[i, j, k] a_j b_k, with coefficients as in `linear`.

    In a batch, XLA makes one kernel of components that are joined at once.
    """
    if not writing_out():
        entries = [[jax.lax.index_in_dim(x, j, -1, keepdims=False) for j in range(x.shape[-1])] for x in (a, b)]
        return jnp.concatenate([_sum_of_products(rows, *entries)[..., None] for rows in coefficients], axis=-1)
    matrix = jax.lax.dot_general(a, coefficients.astype(a.dtype), (((a.ndim - 1,), (1,)), ((), ())), _FULL)
    shape = np.broadcast_shapes(a.shape[:-1], b.shape[:-1])
    matrix, b = (jnp.broadcast_to(x, (*shape, *x.shape[x.ndim - n :])) for x, n in ((matrix, 2), (b, 1)))
    batch, last = tuple(range(len(shape))), len(shape)
    return jax.lax.dot_general(matrix, b, (((last + 1,), (last,)), (batch, batch)), _FULL)


def _sum_of_products(coefficients: Float[np.ndarray, "j k"], a: Sequence[Any], b: Sequence[Any]) -> Any:
    """Sum over the coefficients other than zero, which are 1 or -1."""
    terms = [(coefficients[j, k], a[j] * b[k]) for j, k in np.argwhere(coefficients)]
    terms.sort(key=lambda term: -term[0])  # a sum does not begin with a minus
    total = terms[0][1] if terms[0][0] > 0 else -terms[0][1]
    for sign, product in terms[1:]:
        total = total + product if sign > 0 else total - product
    return total


def _products() -> Callable[..., Array]:
    """Function for products of arrays in the current context.

    The lane compiler expands all products to scalar operations itself.
    """
    return jax.lax.dot_general if writing_out() else _few_written_out


def _few_written_out(a: Array, b: Array, dimension_numbers: Any, *options: Any, **named_options: Any) -> Array:
    """`jax.lax.dot_general`, with sums of few products as elementwise operations."""
    (along_a, along_b), (batch_a, batch_b) = dimension_numbers
    if math.prod(a.shape[i] for i in along_a) > _FEW:
        return jax.lax.dot_general(a, b, dimension_numbers, *options, **named_options)
    free_a = [i for i in range(a.ndim) if i not in (*along_a, *batch_a)]
    free_b = [i for i in range(b.ndim) if i not in (*along_b, *batch_b)]
    # Axes of the product: batch axes, free axes of a, free axes of b, summed axes.
    n_batch, n_a, n_b = len(batch_a), len(free_a), len(free_b)
    a = jnp.expand_dims(a.transpose(*batch_a, *free_a, *along_a), range(n_batch + n_a, n_batch + n_a + n_b))
    b = jnp.expand_dims(b.transpose(*batch_b, *free_b, *along_b), range(n_batch, n_batch + n_a))
    return jnp.sum(a * b, axis=range(n_batch + n_a + n_b, a.ndim))


def rows_at(x: Float[Array, "n *rest"], positions: Int[np.ndarray, "*shape"]) -> Float[Array, "..."]:
    """The rows x[positions] at known positions; negative positions count from the end, as in NumPy.

    The generic indexing of JAX would convert negative positions by operations of the traced program, and always gather.
    """
    at = np.where(positions < 0, positions + len(x), positions).astype(np.int32)
    step = int(at.flat[1] - at.flat[0]) if at.size > 1 else 1
    if at.size and step > 0 and np.array_equal(at.ravel(), np.arange(at.size) * step + at.flat[0]):
        return x[at.flat[0] : at.flat[-1] + 1 : step].reshape(*at.shape, *x.shape[1:])
    return x.at[at].get(mode="promise_in_bounds", wrap_negative_indices=False)


def zero_safe_norm(d: Float[Array, "n"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Norm |d| and its inverse 1/|d|. At d = 0, norm, inverse and their derivatives are 0, because d has no direction."""
    x = dot(d, d)
    nonzero = x > 0
    length = jnp.sqrt(jnp.where(nonzero, x, 1.0))
    return jnp.where(nonzero, length, 0.0), jnp.where(nonzero, 1.0 / length, 0.0)


def floating(x: Any) -> Array:
    """Convert values to a floating-point array in the default precision of JAX; JAX arrays of floats are returned unchanged."""
    if isinstance(x, jax.Array):
        return x if jnp.issubdtype(x.dtype, jnp.floating) else jnp.asarray(x, float)
    known = isinstance(x, np.ndarray | np.generic | float | int)  # no traced values within
    if not known and isinstance(x, list | tuple):
        known = not any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(x))
    values = np.asarray(x) if known else None
    if values is None or values.dtype.kind not in "fiub":
        return jnp.asarray(x, float)
    return on_device(values.astype(jax.dtypes.canonicalize_dtype(float), copy=False))


def on_device(values: np.ndarray | np.generic) -> Array:
    """A JAX array with the values of a NumPy array, in the precision of JAX; its values are known within transformations, too.

    In contrast, `jnp.asarray` compiles a program for each shape.
    """
    copied = np.array(values)  # because on CPUs the result can share the memory of its argument
    chosen: Any = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    guards: Any = (
        jax.config.jax_transfer_guard,  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.jax_transfer_guard_host_to_device,  # pyright: ignore[reportAttributeAccessIssue]
    )
    if (
        internals.batched_device_put is None
        or chosen is not None
        or any(guard not in (None, "allow") for guard in guards)
    ):
        with jax.ensure_compile_time_eval():
            return jax.device_put(copied)
    # The public function takes 70 us for a small array, and this one 4 us.
    copied = copied.astype(jax.dtypes.canonicalize_dtype(copied.dtype), copy=False)
    device = jax.local_devices()[0]
    place = jax.sharding.SingleDeviceSharding(device)
    return internals.batched_device_put(jax.typeof(copied), place, [copied], [device], False)


def beside(array: Any, values: np.ndarray | np.generic) -> Array:
    """Result of `on_device`, on the device of another array if that is bound to one."""
    is_bound = getattr(array, "committed", False) and len(array.sharding.device_set) == 1
    return jax.device_put(np.array(values), array.sharding if is_bound else None)


def as_numpy(x: Any) -> Any:
    """The values of an array as a NumPy array, with which operations compile no programs; a traced array is returned unchanged."""
    return x if isinstance(x, Tracer) else np.asarray(x)


def floating_or_none(x: Any) -> Array | None:
    """Result of `floating` for a value, or None for None."""
    return None if x is None else floating(x)
