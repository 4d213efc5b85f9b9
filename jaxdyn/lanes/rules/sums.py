"""Products, sums and other operations along an axis."""

import math
from collections.abc import Callable

import numpy as np

from jaxdyn.lanes.flatten import CannotFlatten, Flattener, Value, is_known, kind_of, objects, rule, zero_of
from jaxdyn.lanes.folding import converted, flushed, fold, settled
from jaxdyn.lanes.intervals import whole
from jaxdyn.lanes.program import Node, Scalar
from jaxdyn.lanes.rules.shapes import as_objects
from jaxdyn.lanes.scalar_types import FLOATS, dtype_of_type


@rule("dot_general")
def _dot_general(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    (left_sum, right_sum), (left_batch, right_batch) = equation.params["dimension_numbers"]
    kind = kind_of(equation.outvars[0])
    a, b = (_as_kind(flat, x, kind_of(v), kind) for x, v in zip(args, equation.invars, strict=True))

    def arranged(x, batch, summed):
        """(batch, rows, summed)"""
        rows = [d for d in range(x.ndim) if d not in batch and d not in summed]
        shape = [math.prod(x.shape[d] for d in dims) for dims in (batch, rows, summed)]
        return np.transpose(x, [*batch, *rows, *summed]).reshape(shape)

    shape = equation.outvars[0].aval.shape
    left, right = arranged(a, left_batch, left_sum), arranged(b, right_batch, right_sum)
    if is_known(a) and is_known(b):
        with np.errstate(all="ignore"):
            return [flushed(np.einsum("bik,bjk->bij", left, right)).reshape(shape)]
    out = np.empty((left.shape[0], left.shape[1], right.shape[1]), object)
    for k in range(left.shape[0]):
        if _is_mask(left[k]):
            out[k] = _masked_sums(flat, left[k], right[k], kind)
        elif _is_mask(right[k]):
            out[k] = _masked_sums(flat, right[k], left[k], kind).T
        else:
            out[k] = _product(flat, left[k], right[k], kind)
    return [out.reshape(shape)]


def _as_kind(flat: Flattener, x: Value, source: str, target: str) -> np.ndarray:
    x = flat.registers(x)
    if source == target:
        return x
    return converted(x, target) if is_known(x) else flat.each(lambda s: flat.program.convert(s, source, target), x)


def _sum_and_product(flat: Flattener, kind: str) -> tuple[Callable, Callable]:
    """Functions of two scalars; of truth values, whether any or both hold."""
    program = flat.program
    if kind == "bool":
        return lambda x, y: program.apply("or", (x, y), kind), lambda x, y: program.apply("and", (x, y), kind)
    return lambda x, y: program.add(x, y, kind), lambda x, y: program.mul(x, y, kind)


def _is_mask(x: np.ndarray) -> bool:
    return is_known(x) and bool(np.all((x == 0) | (x == 1)))


def _product(flat: Flattener, left: np.ndarray, right: np.ndarray, kind: str) -> np.ndarray:
    """left right^T"""
    add, mul = _sum_and_product(flat, kind)
    zero = zero_of(kind)
    out = np.empty((left.shape[0], right.shape[0]), object)
    columns = right.tolist()
    for i, row in enumerate(left.tolist()):
        # Known zeros are skipped here, before they cost a call.
        present = [(k, x) for k, x in enumerate(row) if type(x) is Node or x != 0]
        for j, column in enumerate(columns):
            total = zero
            for k, x in present:
                total = add(total, mul(x, column[k]))
            out[i, j] = total
    return out


def _masked_sums(flat: Flattener, mask: np.ndarray, terms: np.ndarray, kind: str) -> np.ndarray:
    """mask terms^T for a mask of zeros and ones.

    Each sum starts from the largest other sum over a subset of its terms. Sums over the ancestors or descendants in a
    tree are nested, so this costs one addition per node of the tree, as a recursion would.
    """
    sets = [frozenset(np.nonzero(row)[0].tolist()) for row in mask]
    order = sorted(range(len(sets)), key=lambda i: len(sets[i]))
    plan = []
    for position, i in enumerate(order):
        earlier = [j for j in order[:position] if sets[j] <= sets[i]]
        base = max(earlier, key=lambda j: len(sets[j]), default=None)
        plan.append((i, base, sorted(sets[i] - (sets[base] if base is not None else frozenset()))))
    add, _ = _sum_and_product(flat, kind)
    out = np.empty((mask.shape[0], terms.shape[0]), object)
    for j, column in enumerate(terms.tolist()):
        for i, base, rest in plan:
            total = zero_of(kind) if base is None else out[base, j]
            for k in rest:
                total = add(total, column[k])
            out[i, j] = total
    return out


_REDUCTIONS = {
    "reduce_sum": "add",
    "reduce_prod": "mul",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_and": "and",
    "reduce_or": "or",
    "reduce_xor": "xor",
}


@rule(*_REDUCTIONS)
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
    """Each row of known numbers put together by an operation, in pairs."""
    while rows.shape[1] > 1:
        half = rows.shape[1] // 2
        pairs = fold(op, kind, rows[:, :half], rows[:, half : 2 * half])
        rows = np.concatenate([pairs, rows[:, 2 * half :]], 1)
    return rows[:, 0]


def _neutral(op: str, kind: str) -> Scalar:
    """The result for no operands."""
    if op in ("min", "max"):
        least, most = (-math.inf, math.inf) if kind in FLOATS else whole(kind)
        return most if op == "min" else least
    return settled({"mul": 1, "and": -1}.get(op, 0), kind)


@rule("argmax", "argmin")
def _argmax(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    program, (axis,) = flat.program, equation.params["axes"]
    kind = kind_of(equation.invars[0])
    index_kind = kind_of(equation.outvars[0])
    x = np.moveaxis(flat.registers(args[0]), axis, -1)
    better = "gt" if equation.primitive.name == "argmax" else "lt"
    out = []
    for row in x.reshape(-1, x.shape[-1]).tolist():
        best, where = row[0], 0
        for k, candidate in enumerate(row[1:], 1):
            # The first undefined number wins, as in NumPy.
            undefined = program.apply("and", (_undefined(flat, candidate), program.compare("eq", best, best)), "bool")
            wins = program.apply("or", (program.compare(better, candidate, best), undefined), "bool")
            best = program.select(wins, candidate, best, kind)
            where = program.select(wins, settled(k, index_kind), where, index_kind)
        out.append(where)
    return [objects(out, x.shape[:-1])]


@rule("cumsum", "cumprod", "cummax", "cummin")
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


@rule("sort")
def _sort(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    dim, keys, program = equation.params["dimension"], equation.params["num_keys"], flat.program
    kinds = [kind_of(v) for v in equation.invars]
    arrays = [np.moveaxis(flat.registers(a), dim, -1) for a in args]
    shape, n = arrays[0].shape, arrays[0].shape[-1]
    if all(is_known(a) for a in arrays) and keys == 1:
        order = np.argsort(arrays[0], axis=-1, kind="stable")
        return [np.moveaxis(np.take_along_axis(a, order, -1), -1, dim) for a in arrays]
    if keys != 1 or n > 32:
        raise CannotFlatten(f"sorting of {n} numbers by {keys} keys has no scalar form")
    rows = [a.reshape(-1, n).tolist() for a in arrays]
    for row in zip(*rows, strict=True):
        for end in range(n - 1, 0, -1):  # exchange neighbours that are out of order; equal ones stay, so it is stable
            for k in range(end):
                left, right = row[0][k], row[0][k + 1]
                undefined = program.apply("and", (_undefined(flat, left), program.compare("eq", right, right)), "bool")
                swap = program.apply("or", (program.compare("lt", right, left), undefined), "bool")
                for numbers, kind in zip(row, kinds, strict=True):
                    a, b = numbers[k], numbers[k + 1]
                    numbers[k], numbers[k + 1] = program.select(swap, b, a, kind), program.select(swap, a, b, kind)
    sorted_arrays = [objects([s for row in r for s in row], shape) for r in rows]
    return [np.moveaxis(a, -1, dim) for a in sorted_arrays]
