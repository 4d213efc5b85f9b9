"""Parts of arrays at positions that may be known only at run time."""

import math
from collections.abc import Sequence

import numpy as np

from jaxdyn.lanes.flatten import Flattener, Memory, Value, is_known, kind_of, known_dtype, positions, rule, zero_of
from jaxdyn.lanes.program import FLOATS, INTEGERS, Node, Scalar
from jaxdyn.lanes.rules.shapes import sliced, view


def _slice_at(flat: Flattener, x: Value, starts: Sequence[Scalar], sizes: Sequence[int], kind: str) -> Value:
    """The part of x at `starts`, which lie within bounds."""
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
    """x with `update` combined into it at `starts`, in place; starts lie within bounds."""
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


def _within(flat: Flattener, start: Scalar, largest: int) -> Scalar:
    """A position clamped to 0 .. largest."""
    return flat.program.apply("min", (flat.program.apply("max", (start, 0), "i64"), largest), "i64")


def _starts(flat: Flattener, variables, args: list[Value]) -> list[Scalar]:
    return [flat.index(flat.registers(a).item(), kind_of(v)) for v, a in zip(variables, args, strict=True)]


@rule("dynamic_slice")
def _dynamic_slice(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    x, sizes = args[0], equation.params["slice_sizes"]
    starts = _starts(flat, equation.invars[1:], args[1:])
    starts = [_within(flat, s, n - k) for s, n, k in zip(starts, x.shape, sizes, strict=True)]
    return [_slice_at(flat, x, starts, sizes, kind_of(equation.outvars[0]))]


@rule("dynamic_update_slice")
def _dynamic_update_slice(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    x, update = (np.array(flat.registers(a), object) for a in args[:2])
    starts = _starts(flat, equation.invars[2:], args[2:])
    starts = [_within(flat, s, n - k) for s, n, k in zip(starts, x.shape, update.shape, strict=True)]
    _update_at(flat, x, starts, update, lambda old, new: new, kind_of(equation.outvars[0]))
    return [x]


@rule("gather")
def _gather(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    x, indices = args[0], flat.registers(args[1])
    p, kind = equation.params, kind_of(equation.outvars[0])
    numbers, sizes = p["dimension_numbers"], p["slice_sizes"]
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    batch_shape = indices.shape[:-1]
    shape = equation.outvars[0].aval.shape
    kept = [n for d, n in enumerate(sizes) if d not in dropped]
    clip, fill = "clip" in str(p["mode"]).lower(), "fill" in str(p["mode"]).lower()
    rows = np.empty((math.prod(batch_shape), *kept), object)
    index_kind = kind_of(equation.invars[1])
    for number, place in enumerate(positions(batch_shape)):
        starts: list[Scalar] = [0] * x.ndim
        for d, start in zip(numbers.start_index_map, indices[place].tolist(), strict=True):
            starts[d] = flat.index(start, index_kind)
        for d, source in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
            starts[d] = place[source]
        bounded = [_within(flat, s, n - k) for s, n, k in zip(starts, x.shape, sizes, strict=True)]
        inside: Scalar = True
        for s, b in zip(starts, bounded, strict=True):
            same = s == b if type(s) is not Node and type(b) is not Node else flat.program.compare("eq", s, b)
            inside = flat.program.apply("and", (inside, same), "bool")
        safe = bounded if clip or fill or any(type(s) is not Node for s in starts) else starts
        part = flat.registers(_slice_at(flat, x, safe, sizes, kind))
        if fill and inside is not True:
            given = p["fill_value"]
            absent = given if given is not None else math.nan if kind in FLOATS else zero_of(kind)
            if kind in INTEGERS and given is None:
                info = np.iinfo(known_dtype(kind))
                absent = int(info.max if kind[0] == "u" else info.min)
            part = flat.each(lambda s, i=inside, a=absent: flat.program.select(i, s, a, kind), part)
        rows[number, ...] = part.reshape(kept)
    # The kept slice dimensions go to offset_dims, the batch dimensions to the others, both in order.
    spread = rows.reshape((*batch_shape, *kept))
    others = [d for d in range(len(shape)) if d not in numbers.offset_dims]
    return [np.transpose(spread, np.argsort([*others, *numbers.offset_dims])) if shape else spread.reshape(())]


@rule("scatter", "scatter-add", "scatter_add", "scatter_mul", "scatter-mul")
def _scatter(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    x = np.array(flat.registers(args[0]), object)
    indices, updates = flat.registers(args[1]), flat.registers(args[2])
    p, kind, program = equation.params, kind_of(equation.outvars[0]), flat.program
    numbers = p["dimension_numbers"]
    name = equation.primitive.name.replace("-", "_")
    combine = {
        "scatter": lambda old, new: new,
        "scatter_add": lambda old, new: program.add(old, new, kind),
        "scatter_mul": lambda old, new: program.mul(old, new, kind),
    }[name]
    dropped = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    others = [d for d in range(updates.ndim) if d not in numbers.update_window_dims]
    spread = np.transpose(updates, [*others, *numbers.update_window_dims])
    window = iter([updates.shape[d] for d in numbers.update_window_dims])
    sizes = [1 if d in dropped else next(window) for d in range(x.ndim)]
    index_kind = kind_of(equation.invars[1])
    clip = "clip" in str(p["mode"]).lower()
    for place in positions(indices.shape[:-1]):
        starts: list[Scalar] = [0] * x.ndim
        for d, start in zip(numbers.scatter_dims_to_operand_dims, indices[place].tolist(), strict=True):
            starts[d] = flat.index(start, index_kind)
        for d, source in zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True):
            starts[d] = place[source]
        largest = [n - k for n, k in zip(x.shape, sizes, strict=True)]
        if clip:
            starts = [_within(flat, s, n) for s, n in zip(starts, largest, strict=True)]
        elif any(type(s) is not Node and not 0 <= s <= n for s, n in zip(starts, largest, strict=True)):
            continue  # out of bounds: dropped; a position unknown until run time that lies outside meets no candidate
        _update_at(flat, x, starts, spread[(*place, ...)].reshape(sizes), combine, kind)
    return [x]
