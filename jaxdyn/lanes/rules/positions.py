"""Parts of arrays at positions that may be known only at run time."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from jaxdyn.lanes.flatten import Flattener, Memory, Value, is_known, kind_of, known, objects, positions, rule
from jaxdyn.lanes.folding import settled
from jaxdyn.lanes.program import Node, Scalar
from jaxdyn.lanes.rules.shapes import sliced, view


def _slice_at(flat: Flattener, x: Value, starts: Sequence[Scalar], sizes: Sequence[int], kind: str) -> Value:
    """The part of x at `starts`, which must be within bounds."""
    known = [int(s) for s in starts if type(s) is not Node]
    if len(known) == len(starts):
        limits = [s + n for s, n in zip(known, sizes, strict=True)]
        return sliced(flat, x, known, limits, [1] * len(sizes))
    program = flat.program
    if is_known(x) or (isinstance(x, np.ndarray) and x.size > 64):
        x = flat.memory(x, kind)
    if isinstance(x, Memory):
        offset = x.offset
        for start, stride in zip(starts, x.strides, strict=True):
            offset = program.add(offset, program.mul(start, stride, "i64"), "i64")
        return view(x, sizes, x.strides, offset)
    for d, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        candidates = x.shape[d] - size + 1
        pieces = [x[(slice(None),) * d + (slice(c, c + size),)] for c in range(candidates)]
        result = pieces[0] if type(start) is Node else pieces[int(start)]
        if type(start) is Node:
            for c in range(1, candidates):
                here = program.compare("eq", start, c)
                result = flat.each(lambda a, b, h=here: program.select(h, a, b, kind), pieces[c], result)
        x = result
    return x


def _update_at(flat: Flattener, x: np.ndarray, starts: Sequence[Scalar], update: np.ndarray, combine, kind: str):
    """The array x with `update` combined into it at `starts`, which must be within bounds."""
    program = flat.program
    choices = [range(x.shape[d] - update.shape[d] + 1) if type(s) is Node else (int(s),) for d, s in enumerate(starts)]
    for place in positions([len(c) for c in choices]):
        at = [c[k] for c, k in zip(choices, place, strict=True)]
        here: Scalar = True
        for start, k in zip(starts, at, strict=True):
            if type(start) is Node:
                here = program.apply("and", (here, program.compare("eq", start, k)), "bool")
        window = tuple(slice(k, k + n) for k, n in zip(at, update.shape, strict=True))
        x[window] = flat.each(
            lambda old, new, h=here: program.select(h, combine(old, new), old, kind), x[window], update
        )


def _bounded(flat: Flattener, start: Scalar, kind: str, largest: int) -> Scalar:
    """A position clamped to 0 .. largest in its type, without cost if it is within bounds for all inputs."""
    return flat.program.apply("min", (flat.program.apply("max", (start, 0), kind), largest), kind)


def _within(flat: Flattener, start: Scalar, kind: str, largest: int) -> Scalar:
    """A position of any integer type clamped to 0 .. largest, for an address."""
    return flat.program.convert(_bounded(flat, start, kind, largest), kind, "i64")


def _starts(flat: Flattener, variables, args: list[Value], largest: Sequence[int]) -> list[Scalar]:
    return [
        _within(flat, flat.registers(a).item(), kind_of(v), n) for v, a, n in zip(variables, args, largest, strict=True)
    ]


def _differences(shape: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Largest positions at which a part of these sizes is within an array."""
    return [n - k for n, k in zip(shape, sizes, strict=True)]


@rule("dynamic_slice", reads="slice_sizes")
def _dynamic_slice(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    x, sizes = args[0], equation.params["slice_sizes"]
    starts = _starts(flat, equation.invars[1:], args[1:], _differences(x.shape, sizes))
    return [_slice_at(flat, x, starts, sizes, kind_of(equation.outvars[0]))]


@rule("dynamic_update_slice")
def _dynamic_update_slice(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    x, update = (np.array(flat.registers(a), object) for a in args[:2])
    starts = _starts(flat, equation.invars[2:], args[2:], _differences(x.shape, update.shape))
    _update_at(flat, x, starts, update, lambda old, new: new, kind_of(equation.outvars[0]))
    return [x]


@rule("gather", reads="dimension_numbers slice_sizes mode fill_value", ignores="unique_indices indices_are_sorted")
def _gather(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    x, indices = args[0], flat.registers(args[1])
    p, kind, program = equation.params, kind_of(equation.outvars[0]), flat.program
    numbers, sizes = p["dimension_numbers"], p["slice_sizes"]
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    batch_shape = indices.shape[:-1]
    shape = equation.outvars[0].aval.shape
    kept = [n for d, n in enumerate(sizes) if d not in dropped]
    fill, index_kind = "fill" in str(p["mode"]).lower(), kind_of(equation.invars[1])
    largest = _differences(x.shape, sizes)
    rows = np.empty((math.prod(batch_shape), *kept), object)
    for number, place in enumerate(positions(batch_shape)):
        starts: list[Scalar] = [0] * x.ndim
        inside: Scalar = True
        for d, start in zip(numbers.start_index_map, indices[place].tolist(), strict=True):
            # Declared positions within bounds are not trusted: as in XLA, all modes clamp.
            starts[d] = _within(flat, start, index_kind, largest[d])
            if fill:  # XLA compares positions as 32-bit integers
                short = program.convert(start, index_kind, "i32")
                starts[d] = _within(flat, short, "i32", largest[d])
                same = program.compare("eq", short, _bounded(flat, short, "i32", largest[d]))
                inside = program.apply("and", (inside, same), "bool")
        for d, source in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
            starts[d] = place[source]
        part = flat.registers(_slice_at(flat, x, starts, sizes, kind))
        if inside is not True:
            absent = settled(p["fill_value"], kind)
            part = flat.each(lambda s, i=inside, a=absent: program.select(i, s, a, kind), part)
        rows[number, ...] = part.reshape(kept)
    # The kept slice dimensions become offset_dims, the batch dimensions the others, both in order.
    spread = rows.reshape((*batch_shape, *kept))
    others = [d for d in range(len(shape)) if d not in numbers.offset_dims]
    return [np.transpose(spread, np.argsort([*others, *numbers.offset_dims])) if shape else spread.reshape(())]


_COMBINATIONS = {
    "scatter-add": "add",
    "scatter-sub": "sub",
    "scatter-mul": "mul",
    "scatter-min": "min",
    "scatter-max": "max",
}


_READ = "dimension_numbers mode"
_PROMISED = "unique_indices indices_are_sorted"


@rule("scatter", reads=f"{_READ} update_jaxpr update_consts", ignores=_PROMISED)
def _scatter(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    function = equation.params["update_jaxpr"]
    if function is None:
        return _scattered(flat, equation, args, lambda old, new: new)
    consts = [c for x in equation.params["update_consts"] for c in known(x)]

    def combine(old: Scalar, new: Scalar) -> Scalar:
        (result,) = flat.run(function, consts, [objects([old], ()), objects([new], ())])
        return flat.registers(flat.settled(result)).item()

    return _scattered(flat, equation, args, combine)


# Their name states the function in `update_jaxpr`.
@rule(*_COMBINATIONS, reads=_READ, ignores=f"{_PROMISED} update_jaxpr update_consts")
def _scatter_combined(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    op, kind = _COMBINATIONS[equation.primitive.name], kind_of(equation.outvars[0])
    return _scattered(flat, equation, args, lambda old, new: flat.program.apply(op, (old, new), kind))


def _scattered(
    flat: Flattener, equation, args: list[Value], combine: Callable[[Scalar, Scalar], Scalar]
) -> list[Value]:
    """The first argument with updates at positions; `combine` is a function of an old entry and its update."""
    x = np.array(flat.registers(args[0]), object)
    indices, updates = flat.registers(args[1]), flat.registers(args[2])
    p, kind, program = equation.params, kind_of(equation.outvars[0]), flat.program
    numbers = p["dimension_numbers"]
    dropped = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    others = [d for d in range(updates.ndim) if d not in numbers.update_window_dims]
    spread = np.transpose(updates, [*others, *numbers.update_window_dims])
    window = iter([updates.shape[d] for d in numbers.update_window_dims])
    sizes = [1 if d in dropped else next(window) for d in range(x.ndim)]
    index_kind = kind_of(equation.invars[1])
    clip, largest = "clip" in str(p["mode"]).lower(), _differences(x.shape, sizes)
    for place in positions(indices.shape[:-1]):
        starts: list[Scalar] = [0] * x.ndim
        for d, start in zip(numbers.scatter_dims_to_operand_dims, indices[place].tolist(), strict=True):
            starts[d] = program.convert(start, index_kind, "i64")
            if clip:
                starts[d] = _within(flat, start, index_kind, largest[d])
        for d, source in zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True):
            starts[d] = place[source]
        if any(type(s) is not Node and not 0 <= s <= n for s, n in zip(starts, largest, strict=True)):
            continue  # out of bounds: omitted; a run-time position out of bounds equals no candidate
        _update_at(flat, x, starts, spread[(*place, ...)].reshape(sizes), combine, kind)
    return [x]
