"""Compilation of functions that compute the columns of a matrix, such as a Jacobian or a Hessian."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.lanes.batched import Backend, lane_function

# A matrix with more operations is computed in groups of columns with this number of operations. LLVM takes about 4 s for a group.
_MOST_OPERATIONS = 150_000
_OPERATIONS_OF_GROUP = 60_000


def lane_columns(
    function: Callable, directions: np.ndarray, *, operations: float | None, backend: Backend = "auto", name: str
) -> Callable:
    """Compile a function of one sample that computes the columns of a matrix, such as a Jacobian or a Hessian.

    One program computes all columns if it is short enough, so that they share the operations that do not depend on the direction.
    Otherwise, a program computes a few columns, and each group of columns becomes a sample. Such a program has as many operations
    as those columns, and not as the whole matrix, so it is compiled in a fraction of the time.

    Args:
        function: Function of (directions, *args), whose results have the columns for these directions on their last axis.
        directions: The direction of each column (n, n).
        operations: Estimated operations of one column; None if they are not known.
        backend: Backend, as for `lane_function`.
        name: Name in the record of compilations.

    Returns:
        A function of `args`.
    """
    count = len(directions)
    if operations is None or operations * count <= _MOST_OPERATIONS:
        return lane_function(functools.partial(function, directions), backend=backend, name=name)
    groups = -(-count // max(1, int(_OPERATIONS_OF_GROUP / operations)))
    length = -(-count // groups)
    padded = np.concatenate([directions, np.zeros((groups * length - count, *directions.shape[1:]), directions.dtype)])
    several = lane_function(function, backend=backend, name=name)

    def columns(*args):
        grouped = jnp.asarray(padded.reshape(groups, length, *directions.shape[1:]))
        found = jax.vmap(lambda some: several(some, *args), out_axes=-2)(grouped)
        return jax.tree.map(lambda a: a.reshape(*a.shape[:-2], groups * length)[..., :count], found)

    return columns
