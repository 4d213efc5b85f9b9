"""Products, sums and other operations along an axis."""

import math

import numpy as np

from jaxdyn.lanes.flatten import CannotFlatten, Flattener, Value, is_known, kind_of, known_dtype, objects, rule, zero_of
from jaxdyn.lanes.program import FLOATS, Node, Scalar
from jaxdyn.lanes.rules.shapes import as_objects


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
        return [np.einsum("bik,bjk->bij", left, right).astype(known_dtype(kind)).reshape(shape)]
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
    return x if source == target or is_known(x) else flat.each(lambda s: flat.program.convert(s, source, target), x)


def _is_mask(x: np.ndarray) -> bool:
    return is_known(x) and bool(np.all((x == 0) | (x == 1)))


def _product(flat: Flattener, left: np.ndarray, right: np.ndarray, kind: str) -> np.ndarray:
    """left right^T"""
    add, mul = flat.program.add, flat.program.mul
    zero = zero_of(kind)
    out = np.empty((left.shape[0], right.shape[0]), object)
    columns = right.tolist()
    for i, row in enumerate(left.tolist()):
        # Known zeros are skipped here, before they cost a call.
        present = [(k, x) for k, x in enumerate(row) if type(x) is Node or x != 0]
        for j, column in enumerate(columns):
            total = zero
            for k, x in present:
                total = add(total, mul(x, column[k], kind), kind)
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
    out = np.empty((mask.shape[0], terms.shape[0]), object)
    for j, column in enumerate(terms.tolist()):
        for i, base, rest in plan:
            total = zero_of(kind) if base is None else out[base, j]
            for k in rest:
                total = flat.program.add(total, column[k], kind)
            out[i, j] = total
    return out


_REDUCTIONS = {
    "reduce_sum": ("add", np.sum),
    "reduce_prod": ("mul", np.prod),
    "reduce_max": ("max", np.max),
    "reduce_min": ("min", np.min),
    "reduce_and": ("and", np.bitwise_and.reduce),
    "reduce_or": ("or", np.bitwise_or.reduce),
}


@rule(*_REDUCTIONS)
def _reduce(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    op, function = _REDUCTIONS[equation.primitive.name]
    x, axes, kind = flat.registers(args[0]), equation.params["axes"], kind_of(equation.outvars[0])
    kept = [d for d in range(x.ndim) if d not in axes]
    shape = [x.shape[d] for d in kept]
    if is_known(x):
        if not x.size and op in ("max", "min"):
            return [np.full(shape, -np.inf if op == "max" else np.inf).astype(known_dtype(kind))]
        return [np.asarray(function(x, axis=tuple(axes))).astype(known_dtype(kind))]
    rows = np.transpose(x, [*kept, *axes]).reshape(math.prod(shape), -1).tolist()
    neutral = {"add": zero_of(kind), "mul": 1.0 if kind in FLOATS else 1, "and": True, "or": False}
    out = []
    for row in rows:
        total = neutral.get(op, -math.inf if op == "max" else math.inf) if not row else row[0]
        for term in row[1:]:
            total = flat.program.apply(op, (total, term), kind)
        out.append(total)
    return [objects(out, shape)]


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
            where = program.select(wins, k, where, index_kind)
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
