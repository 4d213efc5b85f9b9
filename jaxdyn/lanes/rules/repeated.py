"""Functions of the elements of arrays, which become loops if they would be long code: activations of networks, random numbers."""

from collections.abc import Callable, Sequence

import numpy as np

from jaxdyn.lanes.flatten import Flattener, Memory, Value, contiguous, is_known, objects, scalars_of
from jaxdyn.lanes.program import Block, Loop, Node, Region, Scalar

# Minimum length of the code of all elements, in operations, for a loop to be worthwhile: it stores arguments and results in memory.
_LONG = 1000


def of_each(flat: Flattener, function: Callable[[Scalar], Scalar], x: Value, kind: str, length: int) -> Value:
    """Value of a function for each element of an array.

    Args:
        flat: The interpreter.
        function: Function of a scalar.
        x: Array.
        kind: Scalar type of the array and of the result.
        length: Approximate number of operations of the function.
    """
    if is_known(x) or _has_known(x):  # functions of known values cost nothing
        return flat.each(function, x)
    return several_of_each(flat, lambda s: (function(s),), [x], [kind], [kind], length)[0]


def several_of_each(
    flat: Flattener,
    function: Callable[..., Sequence[Scalar]],
    xs: Sequence[Value],
    kinds: Sequence[str],
    results: Sequence[str],
    length: int,
) -> list[Value]:
    """Values of a function for the corresponding elements of several arrays.

    Args:
        flat: The interpreter.
        function: Function of one scalar of each array.
        xs: Arrays of the same shape, not all of which are known.
        kinds: Scalar types of the arrays.
        results: Scalar types of the values.
        length: Approximate number of operations of the function.
    """
    shape, size = xs[0].shape, xs[0].size
    if size * length < _LONG:
        found = [function(*scalars) for scalars in zip(*(scalars_of(flat.registers(x)) for x in xs), strict=True)]
        return [objects([values[k] for values in found], shape) for k in range(len(results))]
    program = flat.program
    loop = Loop(size, Block(flat.block))
    loop.counter = program.node("counter", (), "i64", data=size, block=loop.body, shared=False)
    arguments: list[Scalar] = []
    for x, kind in zip(xs, kinds, strict=True):
        same = _same(x)
        if same is None:
            stored = flat.memory(x, kind)
            same = program.load(stored.region, program.add(stored.offset, loop.counter, "i64"))
        arguments.append(same)
    values = function(*arguments)
    loop.collected = [(loop.counter, [value], 1, kind) for value, kind in zip(values, results, strict=True)]
    node = program.node("loop", (), "loop", data=loop, block=flat.block, shared=False)
    regions = [
        program.node("region", (node,), "region", data=Region("loop", size, kind, which=k), shared=False)
        for k, kind in enumerate(results)
    ]
    return [Memory(r, kind, shape, contiguous(shape)) for r, kind in zip(regions, results, strict=True)]


def _has_known(x: Value) -> bool:
    return not isinstance(x, Memory) and any(type(s) is not Node for s in scalars_of(x))


def _same(x: Value) -> Scalar | None:
    """The value of all elements of an array, if they are one scalar; otherwise None."""
    if isinstance(x, Memory):
        return None
    if is_known(x):
        return x.flat[0].item() if np.all(x == x.flat[0]) else None
    first, *others = scalars_of(x)
    return first if type(first) is Node and all(s is first for s in others) else None
