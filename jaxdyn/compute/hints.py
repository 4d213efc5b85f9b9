"""State that shows whether the traced code becomes a scalar program.

Code that has two equivalent forms, a short one for XLA and one that is cheap as a scalar program, can query `writing_out()`.
"""

import contextlib
import contextvars
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from jaxdyn.compute.constant import identity

# Values of this name are stored for reverse mode, within a kernel, instead of being recomputed.
_KEPT = "jaxdyn.kept"
# Policy of `jax.checkpoint` that stores only these values.
KEEPS = jax.checkpoint_policies.save_only_these_names(_KEPT)

_KEEPING = contextvars.ContextVar("jaxdyn_keeping", default=True)
_WRITING_OUT = contextvars.ContextVar("jaxdyn_writing_out", default=False)
_LOOPING = contextvars.ContextVar("jaxdyn_looping", default=True)


def writing_out() -> bool:
    """True while a function is traced for the lane compiler, for which loops over known positions cost nothing."""
    return _WRITING_OUT.get()


def may_loop() -> bool:
    """True while a function is traced for the lane compiler, and long recursions may be loops."""
    return writing_out() and _LOOPING.get()


def nothing_looped() -> contextlib.AbstractContextManager[None]:
    """Context in which all recursions are written out, for functions that take whole arrays of the results of loops."""
    return _during(_LOOPING, False)


@contextlib.contextmanager
def _during(variable: contextvars.ContextVar[bool], value: bool) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def written_out() -> contextlib.AbstractContextManager[None]:
    """Context in which traced functions become scalar programs."""
    return _during(_WRITING_OUT, True)


def traced_once(function: Callable) -> Callable:
    """A function of pytrees that is traced once for each structure of its arguments.

    Further traces, also of its derivatives and batches, copy the equations of the first one, which takes a tenth of the time. The
    result must depend on nothing but the arguments and the state of this module.
    """

    @functools.wraps(function)
    def call(*arguments):
        leaves, tree = jax.tree.flatten(arguments)
        is_array = [isinstance(x, jax.Array | np.ndarray | np.generic | float | complex) for x in leaves]
        rest = tuple(None if given else x for x, given in zip(leaves, is_array, strict=True))
        try:
            known = identity(tree, rest)
        except TypeError:
            known = None
        if known is None:  # outside of the handler, which would be named in errors of the function
            return function(*arguments)
        context = _WRITING_OUT.get(), _KEEPING.get(), _LOOPING.get()
        return _with_cached_traces(function, context, known, tree, rest)(list(itertools.compress(leaves, is_array)))

    return call


# JAX caches the traces as long as the function exists, so mechanisms that are no longer used must not keep theirs.
@functools.lru_cache(maxsize=256)
def _with_cached_traces(function: Callable, _context: tuple, _known: tuple, tree: Any, rest: tuple) -> Callable:
    """The function of arrays for one structure of the arguments and one state of this module."""

    def of_arrays(arrays):
        given = iter(arrays)
        return function(*jax.tree.unflatten(tree, [next(given) if x is None else x for x in rest]))

    of_arrays.__name__ = function.__name__
    return jax.jit(of_arrays, inline=True)


def keep(x: jax.Array) -> jax.Array:
    """Mark a value to be stored between the forward and the backward part of one kernel.

    Values that one kernel stores for another one need slow memory, so their recomputation can be faster; XLA decides which of them
    to recompute.
    """
    return checkpoint_name(x, _KEPT) if writing_out() and _KEEPING.get() else x


def keep_triangle(factor: jax.Array, *, lower: bool) -> jax.Array:
    """A triangular matrix whose entries in the lower or upper triangle are marked by `keep`."""
    rows, columns = (np.tril_indices if lower else np.triu_indices)(factor.shape[0])
    return jnp.zeros_like(factor).at[rows, columns].set(keep(factor[rows, columns]))


def nothing_kept() -> contextlib.AbstractContextManager[None]:
    """Context in which differentiated functions store only the values that their loops carry."""
    return _during(_KEEPING, False)
