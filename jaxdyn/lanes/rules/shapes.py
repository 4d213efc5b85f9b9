"""Operations that rearrange elements without changing them. For arrays in memory, most of these operations are views."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxdyn.lanes.deferred import SumOfProducts
from jaxdyn.lanes.flatten import Flattener, Memory, Value, contiguous, is_known, kind_of, part_of, rule, scalars_of
from jaxdyn.lanes.program import Scalar
from jaxdyn.lanes.scalar_types import dtype_of_type


@rule("broadcast_in_dim", reads="shape broadcast_dimensions", ignores="sharding")
def _broadcast_in_dim(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    x, shape, dims = args[0], equation.params["shape"], equation.params["broadcast_dimensions"]
    if isinstance(x, Memory):
        strides = [0] * len(shape)
        for d, n, s in zip(dims, x.shape, x.strides, strict=True):
            strides[d] = 0 if n == 1 else s
        return [Memory(x.region, x.type, tuple(shape), tuple(strides), x.offset)]
    through = [1] * len(shape)
    for n, d in zip(x.shape, dims, strict=True):
        through[d] = n
    x = x.reshape(through)
    return [x if x.shape == tuple(shape) else np.broadcast_to(x, shape)]


@rule("reshape", reads="new_sizes dimensions", ignores="sharding")
def _reshape(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    x, order = args[0], equation.params["dimensions"]
    return [reshaped(flat, x if order is None else transposed(x, order), equation.params["new_sizes"])]


def reshaped(flat: Flattener, x: Value, shape: Sequence[int]) -> Value:
    """The array in another shape.

    Args:
        flat: Flattener.
        x: Array.
        shape: New shape, of the same size.
    """
    if isinstance(x, Memory):
        if x.is_contiguous:
            return Memory(x.region, x.type, tuple(shape), contiguous(shape), x.offset)
        x = flat.registers(x)
    return x.reshape(shape)


@rule("squeeze", reads="dimensions")
def _squeeze(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    x, dims = args[0], equation.params["dimensions"]
    if isinstance(x, Memory):
        kept = [d for d in range(x.ndim) if d not in dims]
        return [view(x, [x.shape[d] for d in kept], [x.strides[d] for d in kept])]
    return [x.reshape(equation.outvars[0].aval.shape)]


def view(x: Memory, shape: Sequence[int], strides: Sequence[int], offset: Scalar | None = None) -> Memory:
    """Another view of the region of an array.

    Args:
        x: Array in memory.
        shape, strides: Shape and strides of the view, in elements.
        offset: Position of the first element of the view; None for the position of the first element of x.
    """
    return Memory(x.region, x.type, tuple(shape), tuple(strides), x.offset if offset is None else offset)


@rule("transpose", reads="permutation", takes_deferred=True)
def _transpose(flat: Flattener, equation, args: list[Any]) -> list[Any]:
    x, order = args[0], equation.params["permutation"]
    if isinstance(x, SumOfProducts):
        # In a program of one sample, a view of the computed matrix avoids that both are computed.
        in_memory = flat.of_one_sample and x.suits_vectors
        turned = x.transposed() if tuple(order) == (1, 0) and not in_memory else None
        if turned is not None:
            return [turned]
        x = flat.settled(x)
    return [transposed(x, order)]


def transposed(x: Value, order: Sequence[int]) -> Value:
    if isinstance(x, Memory):
        return view(x, [x.shape[d] for d in order], [x.strides[d] for d in order])
    return np.transpose(x, order)


@rule("rev", reads="dimensions")
def _rev(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    x, dims = args[0], equation.params["dimensions"]
    if isinstance(x, Memory):
        start = sum((x.shape[d] - 1) * x.strides[d] for d in dims)
        strides = [-s if d in dims else s for d, s in enumerate(x.strides)]
        return [view(x, x.shape, strides, flat.program.add(x.offset, start, "i64"))]
    return [np.flip(x, dims)]


@rule("slice", reads="start_indices limit_indices strides")
def _slice(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    p, x = equation.params, args[0]
    bounds = (p["start_indices"], p["limit_indices"], p["strides"] or (1,) * x.ndim)
    return [sliced(flat, x, *(tuple(map(int, b)) for b in bounds))]


def sliced(flat: Flattener, x: Value, starts: Sequence[int], limits: Sequence[int], steps: Sequence[int]) -> Value:
    """A strided part of an array.

    Args:
        flat: Flattener.
        x: Array.
        starts, limits, steps: First index, end and step along each axis.
    """
    if isinstance(x, Memory):
        offset = sum(a * s for a, s in zip(starts, x.strides, strict=True))
        shape = [len(range(a, b, k)) for a, b, k in zip(starts, limits, steps, strict=True)]
        strides = [s * k for s, k in zip(x.strides, steps, strict=True)]
        return view(x, shape, strides, flat.program.add(x.offset, offset, "i64"))
    return x[tuple(slice(a, b, k) for a, b, k in zip(starts, limits, steps, strict=True))]


@rule("split", reads="sizes axis")
def _split(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    x, axis, parts, start = args[0], equation.params["axis"], [], 0
    for size in equation.params["sizes"]:
        starts, limits = [0] * x.ndim, list(x.shape)
        starts[axis], limits[axis] = start, start + int(size)
        parts.append(sliced(flat, x, starts, limits, [1] * x.ndim))
        start += int(size)
    return parts


@rule("concatenate", reads="dimension")
def _concatenate(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    axis, shape = equation.params["dimension"], equation.outvars[0].aval.shape
    if any(isinstance(a, Memory) for a in args) and math.prod(shape[:axis]) == 1:
        return [joined(flat, args, kind_of(equation.outvars[0]), shape)]
    return [np.concatenate([flat.registers(a) for a in args], axis)]


def joined(flat: Flattener, args: Sequence[Value], kind: str, shape: Sequence[int]) -> Memory:
    """Concatenation of arrays in memory.

    Args:
        flat: Flattener.
        args: Arrays.
        kind: Scalar type.
        shape: Shape of the result.
    """
    parts = []
    for a in args:
        if isinstance(a, Memory) and a.is_contiguous:
            parts.append(a.stretch)
        else:
            parts.append(part_of(scalars_of(flat.registers(a))))
    return Memory(flat.program.pieces(parts, kind), kind, tuple(shape), contiguous(shape))


@rule("stack", reads="axis")
def _stack(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    return [np.stack([flat.registers(a) for a in args], equation.params["axis"])]


@rule("unstack", reads="axis")
def _unstack(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    axis, x = equation.params["axis"], args[0]
    if isinstance(x, Memory):
        shape = [n for d, n in enumerate(x.shape) if d != axis]
        strides = [s for d, s in enumerate(x.strides) if d != axis]
        offsets = [flat.program.add(x.offset, k * x.strides[axis], "i64") for k in range(x.shape[axis])]
        return [view(x, shape, strides, offset) for offset in offsets]
    return [np.asarray(part) if is_known(x) else as_objects(part) for part in np.moveaxis(x, axis, 0)]


def as_objects(x) -> np.ndarray:
    if isinstance(x, np.ndarray):
        return x
    out = np.empty((), object)
    out[()] = x.item() if isinstance(x, np.generic) else x
    return out


@rule("tile", reads="reps")
def _tile(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    return [np.tile(flat.registers(args[0]), equation.params["reps"])]


@rule("pad", reads="padding_config")
def _pad(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    x, padding = flat.registers(args[0]), flat.registers(args[1])
    config, shape = equation.params["padding_config"], equation.outvars[0].aval.shape
    known = is_known(x) and is_known(padding)
    # Negative padding removes elements, so the array is placed into one that is large enough, of which a part is taken.
    low = [max(lo, 0) for lo, _, _ in config]
    spread = [(n - 1) * (i + 1) + 1 if n else 0 for n, (_, _, i) in zip(x.shape, config, strict=True)]
    whole = [a + s + max(hi, 0) for a, s, (_, hi, _) in zip(low, spread, config, strict=True)]
    out = np.empty(whole, x.dtype if known else object)
    out[...] = padding.item()
    out[tuple(slice(a, a + s, i + 1) for a, s, (_, _, i) in zip(low, spread, config, strict=True))] = x
    cut = [max(-lo, 0) for lo, _, _ in config]
    return [out[tuple(slice(c, c + n) for c, n in zip(cut, shape, strict=True))]]


@rule("iota", reads="shape dimension", ignores="dtype sharding")
def _iota(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    p = equation.params
    shape, dim = p["shape"], p["dimension"]
    through = [1] * len(shape)
    through[dim] = shape[dim]
    counted = np.arange(shape[dim]).astype(dtype_of_type(kind_of(equation.outvars[0])))
    return [np.broadcast_to(counted.reshape(through), shape)]


@rule("empty", "empty2", ignores="shape dtype sharding out_sharding memory_space")
def _empty(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    # Memory for later results, which the transposes of loops and branches request; on CPUs XLA fills it with zeros.
    variable = equation.outvars[0]
    return [np.zeros(variable.aval.shape, dtype_of_type(kind_of(variable)))]
