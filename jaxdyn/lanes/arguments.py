"""Arguments of the calls of stored programs: the arrays that a program takes, and the structure that is compiled into it.

A call from Python takes some microseconds, less than it takes to flatten a model and to hand over each of its arrays. A module is
immutable, so this is done once for it: its structure and its arrays are remembered as long as the module exists.
"""

import functools
import itertools
import weakref
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import numpy as np

from jaxdyn.compute import internals
from jaxdyn.compute.arrays import on_device
from jaxdyn.compute.constant import Argument, combined

# A tuple, since a union of classes is four times as slow.
ARGUMENTS = (jax.Array, np.ndarray, np.generic, float, complex)

# Larger arrays are not copied into one, which would need their memory twice, in bytes.
_MOST_PACKED = 2**20

# A module with fewer leaves, such as a state, is flattened in less time than it takes to remember it.
_FEW_LEAVES = 6


# Whether the objects of a class are arguments. To ask a module for it takes longer than to flatten a state.
_are_arguments: dict[type, bool] = {}


def _is_argument(x: Any) -> bool:
    known = _are_arguments.get(type(x))
    if known is None:
        known = _are_arguments[type(x)] = isinstance(x, ARGUMENTS)
    return known


def partition(leaves: list, arguments: type | tuple[type, ...] = ARGUMENTS) -> tuple[list, tuple]:
    """Arguments of the program, and the remaining leaves, which are part of its structure."""
    which = [_is_argument(x) if arguments is ARGUMENTS else isinstance(x, arguments) for x in leaves]
    rest = tuple(Argument if given else x for x, given in zip(leaves, which, strict=True))
    return list(itertools.compress(leaves, which)), rest


class Structure:
    """A pytree without the values of its arrays.

    Args:
        tree: Structure of the pytree.
        rest: Leaves that are not arguments, with `Argument` in the places of arguments.
        types: Shapes and types of the arguments.
        packed: If true, all arrays of one type are one argument.
    """

    def __init__(self, tree: Any, rest: tuple, types: tuple, *, packed: bool = False):
        self._tree, self._rest, self._types, self.packed = self._content = (tree, rest, types, packed)
        self._hash = hash(self._content)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Structure) and self._content == other._content)

    def restored(self, given: Iterator) -> Any:
        """The pytree with the next arguments of those that are given."""
        arguments = self._unpacked(given) if self.packed else given
        return jax.tree.unflatten(self._tree, combined(self._rest, arguments))

    def _unpacked(self, given: Iterator) -> Iterator:
        flat = {kind: next(given) for kind in dict.fromkeys(kind for _, kind in self._types)}
        starts = dict.fromkeys(flat, 0)
        for shape, kind in self._types:
            start = starts[kind]
            starts[kind] += int(np.prod(shape))
            yield jax.lax.slice(flat[kind], (start,), (starts[kind],)).reshape(shape)


class Part:
    """One argument of a call of a stored program.

    Attributes:
        structure: Its part of the key of the program: a `Structure`, or the type of an array.
        arrays: Its arrays, as a program on the first CPU takes them.
        is_first: True if its arrays are on the first CPU.
        passed: Functions whose checks the values of the argument have passed; None if the argument has no values to check.
        module: Reference to the argument if it is remembered.
    """

    __slots__ = ("arrays", "is_first", "module", "passed", "structure")

    def __init__(self, structure: Any, arrays: list, is_first: bool):
        self.structure, self.arrays, self.is_first = structure, arrays, is_first
        self.passed: set | None = None
        self.module: weakref.ref | None = None


class _Parts:
    """Parts of modules by the identity of the module, the types that JAX admits, and whether arrays are packed."""

    def __init__(self):
        self.table: dict[tuple[int, bool, bool], Part] = {}
        if hasattr(internals.util, "register_cache"):
            internals.util.register_cache(self, "arguments of programs")

    def cache_clear(self) -> None:
        self.table.clear()


_remembered = _Parts()


def part_of(x: Any, packs: bool) -> Part:
    """The part of a call that an argument is.

    Args:
        x: The argument.
        packs: True if the program takes all arrays of one type in a module as one argument.
    """
    place = id(x), packs, internals.config.enable_x64.value
    known = _remembered.table.get(place)
    if known is not None and known.module is not None and known.module() is x:
        return known
    if _is_argument(x):
        return Part(_type(x), [x], _is_on_first_cpu([x]))
    leaves, tree = jax.tree.flatten(x)
    arrays, rest = partition(leaves)
    is_first = _is_on_first_cpu(arrays)
    if len(leaves) < _FEW_LEAVES or not isinstance(x, eqx.Module):
        return Part(Structure(tree, rest, tuple(_type(x) for x in arrays)), arrays, is_first)
    is_fixed = not any(isinstance(x, np.ndarray) for x in arrays) and _is_frozen(tree)
    if packs and is_first and is_fixed and _can_be_packed(arrays):
        part = Part(
            Structure(tree, rest, tuple((x.shape, x.dtype) for x in arrays), packed=True), _packed(arrays), True
        )
    else:
        part = Part(Structure(tree, rest, tuple(_type(x) for x in arrays)), arrays, is_first)
    part.passed = set()
    if is_fixed:
        _remember(part, x, place)
    return part


def _remember(part: Part, module: Any, place: tuple[int, bool, bool]) -> None:
    """Remember the part that a module is as long as the module exists."""
    part.module = weakref.ref(module, lambda _: _remembered.table.pop(place, None))
    _remembered.table[place] = part


def _is_frozen(tree: Any) -> bool:
    """Whether all parts of a structure are known to be immutable."""
    node = tree.node_data()
    fixed = node is None or node[0] is type(None) or issubclass(node[0], (eqx.Module, tuple))
    return fixed and all(map(_is_frozen, tree.children()))


def _can_be_packed(arrays: list) -> bool:
    are_plain = all(
        isinstance(x, jax.Array)
        and isinstance(x.dtype, np.dtype)
        and not x.weak_type
        and jax.dtypes.canonicalize_dtype(x.dtype) == x.dtype
        for x in arrays
    )
    return are_plain and sum(x.nbytes for x in arrays) <= _MOST_PACKED


def _packed(arrays: list[jax.Array]) -> list[jax.Array]:
    """One array for each type, in the order of the first ones."""
    groups: dict[Any, list[np.ndarray]] = {}
    for x in arrays:
        groups.setdefault(x.dtype, []).append(np.asarray(x).ravel())
    return [on_device(np.concatenate(group)) for group in groups.values()]


def _type(x: Any) -> Any:
    """Shape and type of an argument; a program takes NumPy arrays and JAX arrays alike."""
    if isinstance(x, jax.Array):
        return x.aval
    return jax.typeof(x) if isinstance(x, np.ndarray) else (type(x), np.shape(x), getattr(x, "dtype", None))


def _is_on_first_cpu(leaves: list) -> bool:
    """Whether all arrays are on the first CPU."""
    if is_alone():
        return True
    first = jax.devices()[0]
    shardings = (x.sharding for x in leaves if isinstance(x, jax.Array))
    return first.platform == "cpu" and all(x.device_set == {first} for x in shardings)


@functools.cache
def is_alone() -> bool:
    """Whether this process has one device, a CPU. To ask an array where it is takes longer than to find its program."""
    devices = [device for backend in internals.xla_bridge.backends().values() for device in backend.devices()]
    return [device.platform for device in devices] == ["cpu"]


def is_storable(parts: list[Part]) -> bool:
    """True if a program for the first CPU can be used: stored programs are compiled for it."""
    return is_alone() or (
        jax.process_count() == 1
        and internals.config.default_device.value is None
        and jax.devices()[0].platform == "cpu"
        and all(part.is_first for part in parts)
    )


def check_types(arguments: list) -> None:
    """Raise an error for arrays of a type that JAX does not admit now; it would read their bytes as those of another type.

    Raises:
        TypeError: The message names the type and the remedy.
    """
    for x in arguments:
        if (
            isinstance(x, jax.Array)
            and isinstance(x.dtype, np.dtype)
            and jax.dtypes.canonicalize_dtype(x.dtype) != x.dtype
        ):
            raise TypeError(
                f"an argument is an array of {x.dtype}, while jax_enable_x64 is off; set it, or convert with jaxdyn.as_dtype"
            )
