"""Functions that read and write arrays at positions known at run time, within bounds and beyond."""

import jax.numpy as jnp
import numpy as np
from jax import lax

LONG = 700  # numbers that stay in memory
# Where each array lies: among the constants, in registers, in memory.
PLACES = ("constant", "short", "long")


def positions_of(dtype: str) -> np.ndarray:
    info = np.iinfo(dtype)
    near = [
        -(2**40),
        -(10**9),
        -LONG - 1,
        -LONG,
        -6,
        -5,
        -1,
        0,
        1,
        3,
        4,
        5,
        12,
        LONG - 1,
        LONG,
        10**9,
        2**32 + 2,
        2**40,
    ]
    return np.array(sorted({n for n in (info.min, *near, info.max) if info.min <= n <= info.max}), dtype)


def reads(i, x, y):
    """Parts of arrays at a position, in every mode."""
    constant, row = jnp.arange(12.0).reshape(4, 3), jnp.arange(5, dtype=jnp.int32) * 7
    found = {}
    for place, a in zip(PLACES, (constant, x.reshape(2, 3), y.reshape(-1, 4)), strict=True):
        found[f"indexed {place}"] = a[i]
        found[f"sliced {place}"] = lax.dynamic_slice(a, (i, jnp.zeros_like(i)), (2, 2))
        found[f"sliced inside {place}"] = lax.dynamic_slice(a[1:, 1:][::-1], (i, i), (1, 1))
        for mode in ("promise_in_bounds", "clip", "fill"):
            found[f"{mode} {place}"] = gathered(a, i, mode)
    return found | {"integers": gathered(row[:, None], i, "fill"), "truths": gathered(row[:, None] > 7, i, "fill")}


def gathered(a, i, mode: str):
    """The primitive itself, without the arithmetic on positions that indexing adds."""
    numbers = lax.GatherDimensionNumbers(offset_dims=(0,), collapsed_slice_dims=(0,), start_index_map=(0,))
    return lax.gather(a, i[None], numbers, (1, a.shape[1]), mode=mode)


def writes(i, x, y):
    """Arrays changed at a position, in every mode."""
    found = {"updated": lax.dynamic_update_slice(x.reshape(2, 3), jnp.ones((1, 2)), (i, i))}
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=(0,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
    )
    for name in ("scatter", "scatter_add", "scatter_sub", "scatter_mul", "scatter_min", "scatter_max"):
        for mode in ("promise_in_bounds", "clip", "fill"):
            changed = getattr(lax, name)(x.reshape(2, 3), i[None], jnp.full(3, 0.5), numbers, mode=mode)
            found[f"{name} {mode}"] = changed
    return found


def in_a_loop(i, x, y):
    """Positions that are carried, that count, and that the data move."""

    def turn(carry, k):
        at, total = carry
        step = jnp.asarray(3, at.dtype)
        return (at + step, 0.5 * total + y[at] + y[k] * x[k - 9] + x[jnp.int32(total * 1e9)]), y[at]

    (_, total), path = lax.scan(turn, (i, jnp.sum(x)), jnp.arange(900))
    return {"total": total, "path": path[i], "back": path[-i]}
