"""Structures and arguments of compiled programs.

A program serves all values of its arguments. Its structure is compiled into it: operations with the zeros of an axis vanish. Which
arrays of a tree are arguments is decided by their values, and by the earlier calls for trees of this structure (`separated`).
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np


class Argument:
    """Marks the place of an argument in a structure."""


def combined(structure: Iterable, arguments: Iterable) -> list:
    """The leaves of a structure, with arguments in the places that `Argument` marks."""
    given = iter(arguments)
    return [next(given) if x is Argument else x for x in structure]


# Packages whose code depends on nothing but its arguments.
_WITHOUT_STATE = ("builtins", "equinox", "jax", "jaxdyn", "jaxlib", "numpy")


def identity(tree: Any, rest: Iterable) -> tuple:
    """Key of the code of a structure and its leaves. Equal numbers of two types, such as 1, 1.0 and True, have two keys.

    Raises:
        TypeError: A part has no key: an array, or code of users, which may read variables that change.
    """
    found = (tree, *_typed(rest), *_static(tree))
    hash(found)
    return found


def _static(tree: Any) -> Iterator:
    """The static parts: JAX does not include them in the hash of a structure."""
    node = tree.node_data()
    if node is not None:
        yield _typed(node)
    for child in tree.children():
        yield from _static(child)


def _typed(x: Any) -> Any:
    if isinstance(x, tuple | list):
        return type(x), *map(_typed, x)
    if isinstance(x, int | float | complex | np.generic):
        return repr(x)
    origin = getattr(x, "__module__", None) or type(x).__module__
    if origin.split(".")[0] not in _WITHOUT_STATE:
        raise TypeError(f"{x!r} may be code with state")
    return x


@jax.tree_util.register_static
class Constant:
    """A module that is part of the structure of a program instead of its arguments.

    A separate program is compiled for each `Constant` with different values.
    """

    def __init__(self, value: Any):
        self.value = value
        leaves, tree = jax.tree.flatten(value)
        self._content = (
            tree,
            *((x.shape, str(x.dtype), np.asarray(x).tobytes()) if eqx.is_array(x) else x for x in leaves),
        )
        self._hash = hash(self._content)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Constant) and self._content == other._content)

    def joined(self, arguments: Iterable) -> Any:
        """The value, with arguments in the places that `Argument` marks."""
        leaves, tree = jax.tree.flatten(self.value)
        return jax.tree.unflatten(tree, combined(leaves, arguments))


def separated(tree: Any, always: Callable[[Any], Any] = lambda tree: ()) -> tuple[Constant, list]:
    """The arrays of a tree that are arguments of a program, and the rest, which is a part of the program.

    Trees that differ in arguments share a program. An array with zeros, such as an axis, is a part of the program, which omits
    operations with them, until a tree of the same structure has other values there; such an array is an argument from then on. An
    array with infinite elements, such as bounds that are absent, is a part of the program unless it was finite before. If an array
    of the program gets another shape or type, only the values of this tree decide. Programs round differently, so the last digits
    of results may depend on the trees before.

    Args:
        tree: The tree.
        always: Function of the tree that returns those parts of it whose arrays are arguments, whatever their values are.
    """
    leaves, structure = jax.tree.flatten(tree)
    memory = _memory(structure)
    chosen, known = None, memory[0] if memory else None
    if known is not None:
        pairs = list(zip(leaves, known.rest, strict=True))
        same = [eqx.is_array(leaf) if old is Argument else _equal(leaf, old) for leaf, old in pairs]
        if all(same):
            return known.constant, _arguments(leaves, known.rest)
        if all(old is Argument or _type(leaf) == _type(old) for leaf, old in pairs):
            chosen = [
                old is Argument or _varies(leaf, zeros=not equal)
                for (leaf, old), equal in zip(pairs, same, strict=True)
            ]
    if chosen is None:
        named = {id(leaf) for leaf in jax.tree.leaves(always(tree)) if eqx.is_array(leaf)}
        chosen = [id(leaf) in named or _varies(leaf, zeros=False) for leaf in leaves]
    found = _divided(leaves, structure, chosen)
    memory[:] = [found]
    return found.constant, _arguments(leaves, found.rest)


def parted(tree: Any) -> tuple[Constant, list]:
    """All arrays of a tree, which are arguments of a program, and the rest."""
    leaves, structure = jax.tree.flatten(tree)
    found = _divided(leaves, structure, [eqx.is_array(leaf) for leaf in leaves])
    return found.constant, _arguments(leaves, found.rest)


class _Division(NamedTuple):
    """A tree without its arguments, and the leaves of this rest."""

    constant: Constant
    rest: list


def _divided(leaves: list, structure: Any, chosen: list[bool]) -> _Division:
    # Arrays of NumPy may change later.
    held = [leaf.copy() if isinstance(leaf, np.ndarray) else leaf for leaf in leaves]
    rest = [Argument if own else leaf for leaf, own in zip(held, chosen, strict=True)]
    return _Division(Constant(jax.tree.unflatten(structure, rest)), rest)


def _arguments(leaves: list, rest: list) -> list:
    return [leaf for leaf, old in zip(leaves, rest, strict=True) if old is Argument]


@functools.lru_cache(maxsize=64)
def _memory(structure: Any) -> list[_Division]:
    """The division of the latest tree of this structure by `separated`; empty before the first one."""
    return []


def _varies(leaf: Any, *, zeros: bool) -> bool:
    """Whether a leaf is an argument: a finite array, without zeros unless they are admitted."""
    if not eqx.is_inexact_array(leaf):
        return False
    values = np.asarray(leaf)
    return bool(np.isfinite(values).all() and (zeros or values.ndim == 0 or values.all()))


def _equal(leaf: Any, old: Any) -> bool:
    if eqx.is_array(leaf) and eqx.is_array(old):
        return (leaf is old and isinstance(leaf, jax.Array)) or (
            _type(leaf) == _type(old) and np.array_equal(np.asarray(leaf), np.asarray(old))
        )
    return leaf is old or (not eqx.is_array(leaf) and not eqx.is_array(old) and bool(leaf == old))


def _type(leaf: Any) -> tuple:
    return (leaf.shape, leaf.dtype) if eqx.is_array(leaf) else ()
