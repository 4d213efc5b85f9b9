"""Functions of the elements of an array, which become a loop if they would be long code: activations of networks, random numbers."""

from collections.abc import Callable

from jaxdyn.lanes.flatten import Flattener, Memory, Value, contiguous, is_known
from jaxdyn.lanes.program import Block, Loop, Node, Region, Scalar

# Minimum length of the code of all elements, in instructions, for a loop to be worthwhile: it stores arguments and results in memory.
_LONG = 600


def of_each(flat: Flattener, function: Callable[[Scalar], Scalar], x: Value, kind: str, length: int) -> Value:
    """Value of a function for each element of an array.

    Args:
        flat: The interpreter.
        function: Function of a scalar.
        x: Array.
        kind: Scalar type of the array and of the result.
        length: Approximate number of instructions of the function for one element.
    """
    if is_known(x) or x.size * length < _LONG or not _is_computed(x):
        return flat.each(function, x)
    program, stored = flat.program, flat.memory(x, kind)
    loop = Loop(x.size, Block(flat.block))
    loop.counter = program.node("counter", (), "i64", data=x.size, block=loop.body, shared=False)
    value = function(program.load(stored.region, program.add(stored.offset, loop.counter, "i64")))
    loop.collected = [(loop.counter, [value], 1, kind)]
    node = program.node("loop", (), "loop", data=loop, block=flat.block, shared=False)
    region = program.node("region", (node,), "region", data=Region("loop", x.size, kind), shared=False)
    return Memory(region, kind, x.shape, contiguous(x.shape))


def _is_computed(x: Value) -> bool:
    """True if no element of an array is known, which would be computed once."""
    return isinstance(x, Memory) or all(type(s) is Node for s in x.ravel().tolist())
