"""Sums and other operations along an axis."""

import math

import numpy as np

from jaxdyn.lanes.flatten import CannotFlatten, Flattener, Value, is_known, kind_of, objects, rule
from jaxdyn.lanes.folding import fold, settled
from jaxdyn.lanes.intervals import whole
from jaxdyn.lanes.program import Scalar
from jaxdyn.lanes.rules.shapes import as_objects
from jaxdyn.lanes.scalar_types import FLOATS, dtype_of_type

_REDUCTIONS = {
    "reduce_sum": "add",
    "reduce_prod": "mul",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_and": "and",
    "reduce_or": "or",
    "reduce_xor": "xor",
}


@rule(*_REDUCTIONS, reads="axes", ignores="out_sharding")
def _reduce(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    op = _REDUCTIONS[equation.primitive.name]
    x, axes, kind = flat.registers(args[0]), equation.params["axes"], kind_of(equation.outvars[0])
    kept = [d for d in range(x.ndim) if d not in axes]
    shape = [x.shape[d] for d in kept]
    if not all(x.shape[d] for d in axes):
        return [np.full(shape, _neutral(op, kind), dtype_of_type(kind))]
    rows = np.transpose(x, [*kept, *axes]).reshape(math.prod(shape), math.prod(x.shape[d] for d in axes))
    if is_known(rows):
        return [_folded(op, kind, rows).reshape(shape)]
    out = []
    for row in rows.tolist():
        total = row[0]
        for term in row[1:]:
            total = flat.program.apply(op, (total, term), kind)
        out.append(total)
    return [objects(out, shape)]


def _folded(op: str, kind: str, rows: np.ndarray) -> np.ndarray:
    """Reduction of each row of known values by an operation, in pairs."""
    while rows.shape[1] > 1:
        half = rows.shape[1] // 2
        pairs = fold(op, kind, rows[:, :half], rows[:, half : 2 * half])
        rows = np.concatenate([pairs, rows[:, 2 * half :]], 1)
    return rows[:, 0]


def _neutral(op: str, kind: str) -> Scalar:
    """The result without operands."""
    if op in ("min", "max"):
        least, most = (-math.inf, math.inf) if kind in FLOATS else whole(kind)
        return most if op == "min" else least
    return settled({"mul": 1, "and": -1}.get(op, 0), kind)


@rule("argmax", "argmin", reads="axes", ignores="index_dtype")
def _argmax(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    program, (axis,) = flat.program, equation.params["axes"]
    kind = kind_of(equation.invars[0])
    index_kind = kind_of(equation.outvars[0])
    x = np.moveaxis(flat.registers(args[0]), axis, -1)
    better = "gt" if equation.primitive.name == "argmax" else "lt"
    out = []
    for row in x.reshape(math.prod(x.shape[:-1]), x.shape[-1]).tolist():
        best, where = row[0], 0
        for k, candidate in enumerate(row[1:], 1):
            # The first NaN is selected, as in NumPy.
            undefined = program.apply("and", (_undefined(flat, candidate), program.compare("eq", best, best)), "bool")
            wins = program.apply("or", (program.compare(better, candidate, best), undefined), "bool")
            best = program.select(wins, candidate, best, kind)
            where = program.select(wins, settled(k, index_kind), where, index_kind)
        out.append(where)
    return [objects(out, x.shape[:-1])]


@rule("cumsum", "cumprod", "cummax", "cummin", reads="axis reverse")
def _cumulative(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    op = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}[equation.primitive.name]
    kind, axis = kind_of(equation.outvars[0]), equation.params["axis"]
    x = np.moveaxis(flat.registers(args[0]), axis, 0)
    order = range(x.shape[0])[::-1] if equation.params["reverse"] else range(x.shape[0])
    out, total = np.empty(x.shape, object), None
    for k in order:
        total = as_objects(x[k]) if total is None else flat.apply(op, kind, total, as_objects(x[k]))
        out[k, ...] = total
    return [np.moveaxis(out, 0, axis)]


def _undefined(flat: Flattener, x: Scalar) -> Scalar:
    return flat.program.compare("ne", x, x)


@rule("sort", reads="dimension num_keys", ignores="is_stable")  # it is stable in any case
def _sort(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    dim, keys, program = equation.params["dimension"], equation.params["num_keys"], flat.program
    kinds = [kind_of(v) for v in equation.invars]
    arrays = [np.moveaxis(flat.registers(a), dim, -1) for a in args]
    shape, n = arrays[0].shape, arrays[0].shape[-1]
    if arrays[0].size == 0:
        return args
    if all(is_known(a) for a in arrays) and keys == 1:
        order = np.argsort(arrays[0], axis=-1, kind="stable")
        return [np.moveaxis(np.take_along_axis(a, order, -1), -1, dim) for a in arrays]
    if keys != 1 or n > 32:
        raise CannotFlatten(f"sorting of {n} values by {keys} keys has no scalar form")
    rows = [a.reshape(-1, n).tolist() for a in arrays]
    for row in zip(*rows, strict=True):
        for end in range(
            n - 1, 0, -1
        ):  # exchanges neighbors in wrong order; equal ones are kept, so the sort is stable
            for k in range(end):
                left, right = row[0][k], row[0][k + 1]
                undefined = program.apply("and", (_undefined(flat, left), program.compare("eq", right, right)), "bool")
                swap = program.apply("or", (program.compare("lt", right, left), undefined), "bool")
                for numbers, kind in zip(row, kinds, strict=True):
                    a, b = numbers[k], numbers[k + 1]
                    numbers[k], numbers[k + 1] = program.select(swap, b, a, kind), program.select(swap, a, b, kind)
    sorted_arrays = [objects([s for row in r for s in row], shape) for r in rows]
    return [np.moveaxis(a, -1, dim) for a in sorted_arrays]
