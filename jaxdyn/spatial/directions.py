"""Directional derivatives for `jax.custom_jvp` rules with symbolic zeros, which mark inputs that do not vary."""

from collections.abc import Callable, Sequence

import jax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import PyTree


def stays(direction: PyTree) -> bool:
    """True if a direction consists of symbolic zeros only, so that its input does not vary."""
    return all(_is_zero(d) for d in jax.tree.leaves(direction, is_leaf=_is_zero))


def _is_zero(direction) -> bool:
    return isinstance(direction, SymbolicZero)


def directional_derivative(function: Callable, primals: Sequence[PyTree], directions: Sequence[PyTree]) -> PyTree:
    """Derivative of function(*primals) along `directions`, without computations for inputs that do not vary.

    Args:
        function: Function to differentiate.
        primals: Arguments of the function.
        directions: Tangents of the arguments, or symbolic zeros.
    """
    leaves, structure = jax.tree.flatten(tuple(primals))
    steps = jax.tree.leaves(tuple(directions), is_leaf=_is_zero)
    moving = [i for i, step in enumerate(steps) if not _is_zero(step)]

    def of_moving(*values):
        merged = list(leaves)
        for i, value in zip(moving, values, strict=True):
            merged[i] = value
        return function(*jax.tree.unflatten(structure, merged))

    return jax.jvp(of_moving, [leaves[i] for i in moving], [steps[i] for i in moving])[1]
