"""Scalar form of each JAX primitive. A rule gets the flattener, the equation, and the argument arrays, and returns the results."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from jaxdyn.lanes import linear_algebra
from jaxdyn.lanes.flatten import (
    CannotFlatten,
    Flattener,
    Memory,
    Value,
    contiguous,
    is_known,
    known_dtype,
    objects,
    positions,
    rule,
    scalars_of,
    zero_of,
)
from jaxdyn.lanes.program import FLOATS, INTEGERS, Block, Loop, Node, Region, Scalar, Stretch, type_of_dtype

# A loop whose unrolled form has at most this many equations is unrolled: positions in arrays become known and fold.
_UNROLLED_EQUATIONS = 2000


def _kind(variable) -> str:
    kind = type_of_dtype(variable.aval.dtype)
    if kind is None:
        raise CannotFlatten(f"numbers of type {variable.aval.dtype} have no scalar form")
    return kind


# ---------------------------------------------------------------- arithmetic on each element

# name: (operation of the program, NumPy function for known arrays)
_ELEMENTWISE: dict[str, tuple[str, Callable]] = {
    "add": ("add", np.add),
    "add_any": ("add", np.add),
    "sub": ("sub", np.subtract),
    "mul": ("mul", np.multiply),
    "neg": ("neg", np.negative),
    "abs": ("abs", np.abs),
    "sqrt": ("sqrt", np.sqrt),
    "floor": ("floor", np.floor),
    "ceil": ("ceil", np.ceil),
    "sin": ("sin", np.sin),
    "cos": ("cos", np.cos),
    "tan": ("tan", np.tan),
    "exp": ("exp", np.exp),
    "expm1": ("expm1", np.expm1),
    "log": ("log", np.log),
    "log1p": ("log1p", np.log1p),
    "tanh": ("tanh", np.tanh),
    "atan": ("atan", np.arctan),
    "asin": ("asin", np.arcsin),
    "acos": ("acos", np.arccos),
    "atan2": ("atan2", np.arctan2),
    "pow": ("pow", np.power),
    "min": ("min", np.minimum),
    "max": ("max", np.maximum),
    "and": ("and", np.bitwise_and),
    "or": ("or", np.bitwise_or),
    "xor": ("xor", np.bitwise_xor),
    "not": ("not", np.invert),
}


def _elementwise(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    op, function = _ELEMENTWISE[equation.primitive.name]
    kind = _kind(equation.outvars[0])
    if all(is_known(a) for a in args):
        with np.errstate(all="ignore"):
            return [np.asarray(function(*args)).astype(known_dtype(kind), copy=False)]
    return [flat.apply(op, kind, *args)]


for _name in _ELEMENTWISE:
    rule(_name)(_elementwise)


@rule("div")
def _div(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    return [flat.apply("div", _kind(equation.outvars[0]), *args)]


@rule("rem")
def _rem(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    return [flat.apply("rem", _kind(equation.outvars[0]), *args)]


@rule("lt", "le", "eq", "gt", "ge", "ne")
def _compare(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    name = equation.primitive.name
    if all(is_known(a) for a in args):
        function = {
            "lt": np.less,
            "le": np.less_equal,
            "eq": np.equal,
            "gt": np.greater,
            "ge": np.greater_equal,
            "ne": np.not_equal,
        }
        return [np.asarray(function[name](*args))]
    return [flat.each(lambda x, y: flat.program.compare(name, x, y), *args)]


@rule("select_n")
def _select(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    which, *cases = args
    kind, program = _kind(equation.outvars[0]), flat.program
    boolean = equation.invars[0].aval.dtype == bool
    if is_known(which) and which.ndim == 0:
        return [cases[int(which)]]
    if all(is_known(a) for a in args):
        return [np.choose(which.astype(int), cases)]
    if boolean:
        return [flat.each(lambda c, x, y: program.select(c, y, x, kind), *args)]

    def choose(index, *options):
        result = options[-1]
        for k in range(len(options) - 2, -1, -1):
            result = program.select(program.compare("eq", index, k), options[k], result, kind)
        return result

    return [flat.each(choose, *args)]


@rule("clamp")
def _clamp(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    low, x, high = args
    kind = _kind(equation.outvars[0])
    return [flat.apply("min", kind, flat.apply("max", kind, x, low), high)]


@rule("sign")
def _sign(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    kind, program = _kind(equation.outvars[0]), flat.program
    one = 1.0 if kind in FLOATS else 1

    def sign(x):
        negative = program.select(program.compare("lt", x, zero_of(kind)), -one, x, kind)
        return program.select(program.compare("gt", x, zero_of(kind)), one, negative, kind)

    return [flat.each(sign, args[0])]


@rule("is_finite")
def _is_finite(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    kind, program = _kind(equation.invars[0]), flat.program
    return [flat.each(lambda x: program.compare("lt", program.apply("abs", (x,), kind), math.inf), args[0])]


@rule("round")
def _round(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    kind, program = _kind(equation.outvars[0]), flat.program
    if int(equation.params["rounding_method"]) == 1:  # to even
        return [flat.apply("round_even", kind, args[0])]

    def away_from_zero(x):
        size = program.apply("abs", (x,), kind)
        whole = program.apply("floor", (size,), kind)
        up = program.compare("ge", program.apply("sub", (size, whole), kind), 0.5)
        rounded = program.add(whole, program.select(up, 1.0, 0.0, kind), kind)
        return program.select(program.compare("lt", x, 0.0), program.neg(rounded, kind), rounded, kind)

    return [flat.each(away_from_zero, args[0])]


@rule("integer_pow")
def _integer_pow(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    kind, exponent = _kind(equation.outvars[0]), equation.params["y"]
    return [flat.each(lambda x: flat.program.integer_pow(x, exponent, kind), args[0])]


@rule("square")
def _square(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    return [flat.apply("mul", _kind(equation.outvars[0]), args[0], args[0])]


def _composed(formula: Callable) -> Callable:
    """Rule of a function that is a formula of others; formula(op, x) with op(name, *operands)."""

    def apply(flat: Flattener, equation, args: list[Value]) -> list[Value]:
        kind = _kind(equation.outvars[0])
        return [flat.each(lambda *xs: formula(lambda op, *a: flat.program.apply(op, a, kind), *xs), *args)]

    return apply


def _sinh(op, x):
    # (e^x - e^-x)/2 from u = e^|x| - 1, without cancellation near zero; halves before it multiplies, to overflow late.
    u = op("expm1", op("abs", x))
    half = op("mul", op("mul", 0.5, u), op("add", 1.0, op("div", 1.0, op("add", u, 1.0))))
    return op("copysign", half, x)


def _cosh(op, x):
    half = op("mul", 0.5, op("exp", op("abs", x)))
    return op("add", half, op("div", 0.25, half))


def _asinh(op, x):
    # log(|x| + sqrt(x^2 + 1)) by log1p, so that small x lose nothing; for large x, x^2 would overflow.
    size = op("abs", x)
    square = op("mul", size, size)
    small = op("log1p", op("add", size, op("div", square, op("add", 1.0, op("sqrt", op("add", square, 1.0))))))
    large = op("add", op("log", size), math.log(2.0))
    return op("copysign", op("select", op("lt", size, 1e8), small, large), x)


rule("rsqrt")(_composed(lambda op, x: op("div", 1.0, op("sqrt", x))))
rule("logistic")(_composed(lambda op, x: op("div", 1.0, op("add", 1.0, op("exp", op("neg", x))))))
rule("exp2")(_composed(lambda op, x: op("pow", 2.0, x)))
rule("cosh")(_composed(_cosh))


@rule("sinh", "asinh")
def _odd(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    kind, program = _kind(equation.outvars[0]), flat.program

    def op(name, *xs):
        if name == "lt":
            return program.compare("lt", *xs)
        if name == "select":
            return program.select(*xs, kind)
        if name == "copysign":
            return program.select(program.compare("lt", xs[1], 0.0), program.neg(xs[0], kind), xs[0], kind)
        return program.apply(name, xs, kind)

    return [flat.each(lambda x: (_sinh if equation.primitive.name == "sinh" else _asinh)(op, x), args[0])]


@rule("acosh")
def _acosh(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    # log(x + sqrt(x^2 - 1)) with t = x - 1
    def formula(op, x):
        t = op("sub", x, 1.0)
        return op("log1p", op("add", t, op("sqrt", op("mul", t, op("add", t, 2.0)))))

    return _composed(formula)(flat, equation, args)


rule("atanh")(_composed(lambda op, x: op("mul", 0.5, op("sub", op("log1p", x), op("log1p", op("neg", x))))))


@rule("shift_left", "shift_right_logical", "shift_right_arithmetic")
def _shift(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    kind = _kind(equation.outvars[0])
    if all(is_known(a) for a in args):
        x, by = args
        if equation.primitive.name == "shift_left":
            return [np.left_shift(x, by)]
        unsigned = x.view(f"u{x.dtype.itemsize}") if "logical" in equation.primitive.name else x
        return [np.right_shift(unsigned, by.astype(unsigned.dtype)).view(x.dtype)]
    return [flat.each(lambda x, by: flat.program.node(equation.primitive.name, (x, by), kind), *args)]


@rule("convert_element_type", "reduce_precision")
def _convert(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    source, target = _kind(equation.invars[0]), _kind(equation.outvars[0])
    if source == target:
        return [args[0]]
    if is_known(args[0]):
        return [args[0].astype(known_dtype(target))]
    return [flat.each(lambda x: flat.program.convert(x, source, target), args[0])]


@rule("copy", "copy_p", "stop_gradient", "name", "device_put", "optimization_barrier", "pvary")
def _identity(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    return list(args)


# ---------------------------------------------------------------- shapes


@rule("broadcast_in_dim")
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
    return [np.broadcast_to(x.reshape(through), shape)]


@rule("reshape")
def _reshape(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    return [_reshaped(flat, args[0], equation.params["new_sizes"])]


def _reshaped(flat: Flattener, x: Value, shape: Sequence[int]) -> Value:
    if isinstance(x, Memory):
        if x.is_contiguous:
            return Memory(x.region, x.type, tuple(shape), contiguous(shape), x.offset)
        x = flat.registers(x)
    return x.reshape(shape)


@rule("squeeze")
def _squeeze(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    x, dims = args[0], equation.params["dimensions"]
    if isinstance(x, Memory):
        kept = [d for d in range(x.ndim) if d not in dims]
        return [_view(x, [x.shape[d] for d in kept], [x.strides[d] for d in kept])]
    return [np.squeeze(x, tuple(dims))]


def _view(x: Memory, shape: Sequence[int], strides: Sequence[int], offset: Scalar | None = None) -> Memory:
    return Memory(x.region, x.type, tuple(shape), tuple(strides), x.offset if offset is None else offset)


@rule("expand_dims")
def _expand_dims(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    return [_reshaped(flat, args[0], equation.outvars[0].aval.shape)]


@rule("transpose")
def _transpose(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    x, order = args[0], equation.params["permutation"]
    if isinstance(x, Memory):
        return [_view(x, [x.shape[d] for d in order], [x.strides[d] for d in order])]
    return [np.transpose(x, order)]


@rule("rev")
def _rev(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    x, dims = args[0], equation.params["dimensions"]
    if isinstance(x, Memory):
        start = sum((x.shape[d] - 1) * x.strides[d] for d in dims)
        strides = [-s if d in dims else s for d, s in enumerate(x.strides)]
        return [_view(x, x.shape, strides, flat.program.add(x.offset, start, "i64"))]
    return [np.flip(x, dims)]


@rule("slice")
def _slice(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    p = equation.params
    steps = p["strides"] or [1] * args[0].ndim
    return [_sliced(flat, args[0], p["start_indices"], p["limit_indices"], steps)]


def _sliced(flat: Flattener, x: Value, starts: Sequence[int], limits: Sequence[int], steps: Sequence[int]) -> Value:
    if isinstance(x, Memory):
        offset = sum(a * s for a, s in zip(starts, x.strides, strict=True))
        shape = [len(range(a, b, k)) for a, b, k in zip(starts, limits, steps, strict=True)]
        strides = [s * k for s, k in zip(x.strides, steps, strict=True)]
        return _view(x, shape, strides, flat.program.add(x.offset, offset, "i64"))
    return x[tuple(slice(*s) for s in zip(starts, limits, steps, strict=True))]


@rule("split")
def _split(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    x, axis, parts, start = args[0], equation.params["axis"], [], 0
    for size in equation.params["sizes"]:
        starts, limits = [0] * x.ndim, list(x.shape)
        starts[axis], limits[axis] = start, start + int(size)
        parts.append(_sliced(flat, x, starts, limits, [1] * x.ndim))
        start += int(size)
    return parts


@rule("concatenate")
def _concatenate(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    axis, shape = equation.params["dimension"], equation.outvars[0].aval.shape
    if any(isinstance(a, Memory) for a in args) and math.prod(shape[:axis]) == 1:
        return [_joined(flat, args, _kind(equation.outvars[0]), shape)]
    return [np.concatenate([flat.registers(a) for a in args], axis)]


def _joined(flat: Flattener, args: Sequence[Value], kind: str, shape: Sequence[int]) -> Memory:
    """Arrays one after the other in memory."""
    parts = []
    for a in args:
        if isinstance(a, Memory) and a.is_contiguous:
            parts.append(a.stretch)
        else:
            parts.append(scalars_of(flat.registers(a)))
    return Memory(flat.program.pieces(parts, kind), kind, tuple(shape), contiguous(shape))


@rule("stack")
def _stack(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    return [np.stack([flat.registers(a) for a in args], equation.params["axis"])]


@rule("unstack")
def _unstack(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    axis, x = equation.params["axis"], args[0]
    if isinstance(x, Memory):
        shape = [n for d, n in enumerate(x.shape) if d != axis]
        strides = [s for d, s in enumerate(x.strides) if d != axis]
        offsets = [flat.program.add(x.offset, k * x.strides[axis], "i64") for k in range(x.shape[axis])]
        return [_view(x, shape, strides, offset) for offset in offsets]
    return [np.asarray(part) if is_known(x) else _as_objects(part) for part in np.moveaxis(x, axis, 0)]


def _as_objects(x) -> np.ndarray:
    if isinstance(x, np.ndarray):
        return x
    out = np.empty((), object)
    out[()] = x
    return out


@rule("pad")
def _pad(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    x, padding = flat.registers(args[0]), flat.registers(args[1])
    config, shape = equation.params["padding_config"], equation.outvars[0].aval.shape
    known = is_known(x) and is_known(padding)
    # Negative padding cuts; so place into an array that is large enough, then cut.
    low = [max(lo, 0) for lo, _, _ in config]
    spread = [(n - 1) * (i + 1) + 1 if n else 0 for n, (_, _, i) in zip(x.shape, config, strict=True)]
    whole = [a + s + max(hi, 0) for a, s, (_, hi, _) in zip(low, spread, config, strict=True)]
    out = np.empty(whole, x.dtype if known else object)
    out[...] = padding.item()
    out[tuple(slice(a, a + s, i + 1) for a, s, (_, _, i) in zip(low, spread, config, strict=True))] = x
    cut = [max(-lo, 0) for lo, _, _ in config]
    return [out[tuple(slice(c, c + n) for c, n in zip(cut, shape, strict=True))]]


@rule("iota")
def _iota(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    p = equation.params
    shape, dim = p["shape"], p["dimension"]
    through = [1] * len(shape)
    through[dim] = shape[dim]
    counted = np.arange(shape[dim]).astype(known_dtype(_kind(equation.outvars[0])))
    return [np.broadcast_to(counted.reshape(through), shape)]


# ---------------------------------------------------------------- sums and products


@rule("dot_general")
def _dot_general(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    (left_sum, right_sum), (left_batch, right_batch) = equation.params["dimension_numbers"]
    kind = _kind(equation.outvars[0])
    a, b = (flat.registers(x) for x in args)

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
    "reduce_and": ("and", np.all),
    "reduce_or": ("or", np.any),
}


@rule(*_REDUCTIONS)
def _reduce(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    op, function = _REDUCTIONS[equation.primitive.name]
    x, axes, kind = flat.registers(args[0]), equation.params["axes"], _kind(equation.outvars[0])
    if is_known(x):
        return [np.asarray(function(x, axis=tuple(axes))).astype(known_dtype(kind))]
    kept = [d for d in range(x.ndim) if d not in axes]
    shape = [x.shape[d] for d in kept]
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
    kind = _kind(equation.invars[0])
    index_kind = _kind(equation.outvars[0])
    x = np.moveaxis(flat.registers(args[0]), axis, -1)
    better = "gt" if equation.primitive.name == "argmax" else "lt"
    out = []
    for row in x.reshape(-1, x.shape[-1]).tolist():
        best, where = row[0], 0
        for k, candidate in enumerate(row[1:], 1):
            wins = program.compare(better, candidate, best)
            best = program.select(wins, candidate, best, kind)
            where = program.select(wins, k, where, index_kind)
        out.append(where)
    return [objects(out, x.shape[:-1])]


@rule("cumsum", "cumprod", "cummax", "cummin")
def _cumulative(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    op = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}[equation.primitive.name]
    kind, axis = _kind(equation.outvars[0]), equation.params["axis"]
    x = np.moveaxis(flat.registers(args[0]), axis, 0)
    order = range(x.shape[0])[::-1] if equation.params["reverse"] else range(x.shape[0])
    out, total = np.empty(x.shape, object), None
    for k in order:
        total = _as_objects(x[k]) if total is None else flat.apply(op, kind, total, _as_objects(x[k]))
        out[k, ...] = total
    return [np.moveaxis(out, 0, axis)]


@rule("sort")
def _sort(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    dim, keys, program = equation.params["dimension"], equation.params["num_keys"], flat.program
    kinds = [_kind(v) for v in equation.invars]
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
                swap = program.compare("lt", row[0][k + 1], row[0][k])
                for numbers, kind in zip(row, kinds, strict=True):
                    a, b = numbers[k], numbers[k + 1]
                    numbers[k], numbers[k + 1] = program.select(swap, b, a, kind), program.select(swap, a, b, kind)
    sorted_arrays = [objects([s for row in r for s in row], shape) for r in rows]
    return [np.moveaxis(a, -1, dim) for a in sorted_arrays]


# ---------------------------------------------------------------- positions known only at run time


def _slice_at(flat: Flattener, x: Value, starts: Sequence[Scalar], sizes: Sequence[int]) -> Value:
    """The part of x at `starts`, which lie within bounds."""
    if all(type(s) is not Node for s in starts):
        limits = [int(s) + n for s, n in zip(starts, sizes, strict=True)]
        return _sliced(flat, x, [int(s) for s in starts], limits, [1] * len(sizes))
    program = flat.program
    if is_known(x) or (isinstance(x, np.ndarray) and x.size > 64):
        x = flat.memory(x, _kind_of(x))
    if isinstance(x, Memory):
        offset = x.offset
        for start, stride in zip(starts, x.strides, strict=True):
            offset = program.add(offset, program.mul(start, stride, "i64"), "i64")
        return _view(x, sizes, x.strides, offset)
    kind = _kind_of(x)
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


def _kind_of(x: Value) -> str:
    if isinstance(x, Memory):
        return x.type
    if is_known(x):
        return type_of_dtype(x.dtype) if x.dtype != np.float64 else "f64"
    return next((s.type for s in scalars_of(x) if type(s) is Node), "f64")


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
    return [flat.index(flat.registers(a).item(), _kind(v)) for v, a in zip(variables, args, strict=True)]


@rule("dynamic_slice")
def _dynamic_slice(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    x, sizes = args[0], equation.params["slice_sizes"]
    starts = _starts(flat, equation.invars[1:], args[1:])
    starts = [_within(flat, s, n - k) for s, n, k in zip(starts, x.shape, sizes, strict=True)]
    return [_retyped(_slice_at(flat, x, starts, sizes), equation)]


def _retyped(x: Value, equation) -> Value:
    """Known floating-point numbers are kept in double precision; once in memory they have the type of the result."""
    kind = _kind(equation.outvars[0])
    if isinstance(x, Memory) and x.type != kind and x.region.data.kind == "table":
        x.region.data.type = kind
        return Memory(x.region, kind, x.shape, x.strides, x.offset)
    return x


@rule("dynamic_update_slice")
def _dynamic_update_slice(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    x, update = (np.array(flat.registers(a), object) for a in args[:2])
    starts = _starts(flat, equation.invars[2:], args[2:])
    starts = [_within(flat, s, n - k) for s, n, k in zip(starts, x.shape, update.shape, strict=True)]
    _update_at(flat, x, starts, update, lambda old, new: new, _kind(equation.outvars[0]))
    return [x]


@rule("gather")
def _gather(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    x, indices = args[0], flat.registers(args[1])
    p, kind = equation.params, _kind(equation.outvars[0])
    numbers, sizes = p["dimension_numbers"], p["slice_sizes"]
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    batch_shape = indices.shape[:-1]
    shape = equation.outvars[0].aval.shape
    kept = [n for d, n in enumerate(sizes) if d not in dropped]
    clip, fill = "clip" in str(p["mode"]).lower(), "fill" in str(p["mode"]).lower()
    rows = np.empty((math.prod(batch_shape), *kept), object)
    index_kind = _kind(equation.invars[1])
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
        part = flat.registers(_retyped(_slice_at(flat, x, safe, sizes), equation))
        if fill and inside is not True:
            given = p["fill_value"]
            absent = given if given is not None else math.nan if kind in FLOATS else zero_of(kind)
            if kind in INTEGERS and given is None:
                info = np.iinfo(known_dtype(kind))
                absent = int(info.max if kind[0] == "u" else info.min)
            part = flat.each(lambda s, i=inside, a=absent: flat.program.select(i, s, a, kind), part)
        rows[number, ...] = part.reshape(kept)
    # The kept slice dimensions go to offset_dims, the batch dimensions to the others, both in order.
    spread = rows.reshape(*batch_shape, *kept)
    others = [d for d in range(len(shape)) if d not in numbers.offset_dims]
    return [np.transpose(spread, np.argsort([*others, *numbers.offset_dims])) if shape else spread.reshape(())]


@rule("scatter", "scatter-add", "scatter_add", "scatter_mul", "scatter-mul")
def _scatter(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    x = np.array(flat.registers(args[0]), object)
    indices, updates = flat.registers(args[1]), flat.registers(args[2])
    p, kind, program = equation.params, _kind(equation.outvars[0]), flat.program
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
    index_kind = _kind(equation.invars[1])
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


# ---------------------------------------------------------------- linear algebra of small matrices


def _matrices(flat: Flattener, x: Value) -> tuple[np.ndarray, tuple[int, ...]]:
    x = flat.registers(x)
    return x.reshape(-1, *x.shape[-2:]), x.shape[:-2]


@rule("cholesky")
def _cholesky(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    matrices, batch = _matrices(flat, args[0])
    kind = _kind(equation.outvars[0])
    factors = [linear_algebra.cholesky(flat.program, m.tolist(), kind) for m in matrices]
    return [objects([s for f in factors for row in f for s in row], (*batch, *matrices.shape[1:]))]


@rule("triangular_solve")
def _triangular_solve(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    p, kind = equation.params, _kind(equation.outvars[0])
    (a, batch), (b, _) = _matrices(flat, args[0]), _matrices(flat, args[1])
    solutions = []
    for matrix, right in zip(a, b, strict=True):
        transposed = p["transpose_a"] == p["left_side"]
        matrix = matrix.T if transposed else matrix
        lower = p["lower"] != transposed
        # x A = b is A^T x^T = b^T
        columns = right.T if p["left_side"] else right
        solved = [
            linear_algebra.triangular_solve(flat.program, matrix.tolist(), c, lower, p["unit_diagonal"], kind)
            for c in columns.tolist()
        ]
        solution = objects([s for c in solved for s in c], columns.shape)
        solutions.append(solution.T if p["left_side"] else solution)
    return [np.stack(solutions).reshape(*batch, *b.shape[1:])]


@rule("lu")
def _lu(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    matrices, batch = _matrices(flat, args[0])
    kind = _kind(equation.outvars[0])
    results = [linear_algebra.lu(flat.program, m.tolist(), kind) for m in matrices]
    shapes = [v.aval.shape for v in equation.outvars]
    factors = [s for r in results for row in r[0] for s in row]
    return [
        objects(factors, shapes[0]),
        objects([s for r in results for s in r[1]], shapes[1]),
        objects([s for r in results for s in r[2]], shapes[2]),
    ]


@rule("lu_pivots_to_permutation")
def _pivots_to_permutation(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    pivots, program = flat.registers(args[0]), flat.program
    size = equation.params["permutation_size"]
    out = []
    for row in pivots.reshape(-1, pivots.shape[-1]).tolist():
        order: list[Scalar] = list(range(size))
        for k, pivot in enumerate(row):
            for i in range(k + 1, size):
                here = program.compare("eq", pivot, i) if type(pivot) is Node else pivot == i
                order[k], order[i] = (
                    program.select(here, order[i], order[k], "i32"),
                    program.select(here, order[k], order[i], "i32"),
                )
        out += order
    return [objects(out, (*pivots.shape[:-1], size))]


@rule("custom_linear_solve")
def _custom_linear_solve(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    lengths, jaxprs = equation.params["const_lengths"], equation.params["jaxprs"]
    before = lengths.matvec + lengths.vecmat
    consts = args[before : before + lengths.solve]
    return flat.closed(jaxprs.solve, [*consts, *args[sum(lengths) :]])


# ---------------------------------------------------------------- functions within functions


@rule(
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "remat2",
    "remat",
    "checkpoint",
    "custom_jvp_call",
    "custom_vjp_call",
    "call",
)
def _call(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
    if hasattr(inner, "jaxpr"):
        return flat.closed(inner, args)
    return flat.run(inner, [], args)


@rule("custom_vjp_call_jaxpr")
def _custom_vjp_call(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    return flat.closed(equation.params["fun_jaxpr"], args)


@rule("platform_index")
def _platform_index(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    # The branches of `platform_dependent` agree; the last one is the default, which holds everywhere.
    return [np.asarray(len(equation.params["platforms"]) - 1, np.int32)]


@rule("cond")
def _cond(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    which, *operands = args
    branches = equation.params["branches"]
    index = flat.registers(which).item()
    if type(index) is not Node:
        return flat.closed(branches[min(max(int(index), 0), len(branches) - 1)], operands)
    program = flat.program
    # All branches are computed, and one is selected per sample.
    results = [flat.closed(branch, operands) for branch in branches]
    boolean = equation.invars[0].aval.dtype == bool
    chosen = results[-1]
    for k in range(len(branches) - 2, -1, -1):
        here = program.apply("not", (index,), "bool") if boolean else program.compare("le", index, k)
        chosen = [
            flat.each(lambda a, b, v=v, h=here: program.select(h, a, b, _kind(v)), one, other)
            for one, other, v in zip(results[k], chosen, equation.outvars, strict=True)
        ]
    return chosen


@rule("while")
def _while(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    raise CannotFlatten("'while_loop' stops at a time that depends on the data, which differs from lane to lane")


def _count_equations(jaxpr) -> int:
    total = 0
    for equation in jaxpr.eqns:
        total += 1
        for parameter in equation.params.values():
            for part in parameter if isinstance(parameter, tuple | list) else (parameter,):
                if hasattr(part, "jaxpr"):
                    total += _count_equations(part.jaxpr) * equation.params.get("length", 1)
                elif hasattr(part, "eqns"):
                    total += _count_equations(part) * equation.params.get("length", 1)
    return total


@rule("scan")
def _scan(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    p = equation.params
    n_const, n_carry, length = p["num_consts"], p["num_carry"], p["length"]
    consts, carry, xs = args[:n_const], args[n_const : n_const + n_carry], args[n_const + n_carry :]
    unrolled = length <= 1 or p["unroll"] >= length
    if unrolled or length * _count_equations(p["jaxpr"].jaxpr) <= _UNROLLED_EQUATIONS:
        return _unrolled_scan(flat, equation, consts, carry, xs)
    return _looped_scan(flat, equation, consts, carry, xs)


def _unrolled_scan(flat: Flattener, equation, consts, carry, xs) -> list[Value]:
    p = equation.params
    turns = range(p["length"])[::-1] if p["reverse"] else range(p["length"])
    n_carry = p["num_carry"]
    collected: list[list[Value]] = [[] for _ in equation.outvars[n_carry:]]
    for k in turns:
        items = []
        for x in xs:
            first = _sliced(flat, x, [k] + [0] * (x.ndim - 1), [k + 1, *x.shape[1:]], [1] * x.ndim)
            items.append(_reshaped(flat, first, x.shape[1:]))
        results = flat.closed(p["jaxpr"], [*consts, *carry, *items])
        carry = results[:n_carry]
        for column, y in zip(collected, results[n_carry:], strict=True):
            column.append(y)
    stacked: list[Value] = []
    for column, v in zip(collected, equation.outvars[n_carry:], strict=True):
        column = column[::-1] if p["reverse"] else column
        if any(isinstance(y, Memory) for y in column):
            stacked.append(_joined(flat, column, _kind(v), v.aval.shape))
        elif not column:
            stacked.append(np.zeros(v.aval.shape, known_dtype(_kind(v))))
        else:
            stacked.append(np.stack(column))
    return [*carry, *stacked]


def _looped_scan(flat: Flattener, equation, consts, carry, xs) -> list[Value]:
    """A loop in the program. Carried numbers that stay, or that count, are recognized and become known outside."""
    p, program = equation.params, flat.program
    n_carry, length = p["num_carry"], p["length"]
    kinds = [_kind(v) for v in equation.outvars]
    initial = [flat.registers(c) for c in carry]
    slots = [(k, s, kinds[k]) for k, c in enumerate(initial) for s in scalars_of(c)]
    rows = [_rows(flat, x, v) for x, v in zip(xs, equation.invars[len(consts) + n_carry :], strict=True)]
    replaced: dict[int, Scalar] = {}  # known by number of the slot: a step per turn; zero for those that stay
    outer = flat.block
    while True:
        body = Block(outer)
        loop = Loop(length, body)
        loop.counter = program.node("counter", (), "i64", block=body, shared=False)
        turn: Scalar = loop.counter
        if p["reverse"]:
            turn = program.apply("sub", (length - 1, turn), "i64")
        loop.carries = [
            program.node("carry", (), kind, data=(loop, i), block=body, shared=False)
            for i, (_, _, kind) in enumerate(slots)
        ]
        loop.initial = [s for _, s, _ in slots]
        current: list[Scalar] = list(loop.carries)
        for i, step in replaced.items():
            kind = slots[i][2]
            if step == 0:
                current[i] = slots[i][1]
            else:
                count = program.convert(loop.counter, "i64", kind)
                current[i] = program.add(slots[i][1], program.mul(count, step, kind), kind)
        taken, args = 0, []
        for c in initial:
            args.append(objects(current[taken : taken + c.size], c.shape))
            taken += c.size
        flat.block = body
        results = flat.closed(p["jaxpr"], [*consts, *args, *(row(turn) for row in rows)])
        flat.block = outer
        following = [s for r in results[:n_carry] for s in scalars_of(flat.registers(r))]
        found = {}
        for i, (old, new) in enumerate(zip(current, following, strict=True)):
            if i in replaced:
                continue
            if old is new:
                found[i] = 0
            elif slots[i][2] in INTEGERS and type(new) is Node and new.op == "add" and new.args[0] is old:
                if type(new.args[1]) is not Node:
                    found[i] = new.args[1]
            elif type(new) is not Node and type(slots[i][1]) is not Node and new == slots[i][1]:
                found[i] = 0
        if not found:
            break
        replaced.update(found)
    loop.following = [s if i not in replaced else loop.carries[i] for i, s in enumerate(following)]
    node = program.node("loop", (), "loop", data=loop, block=outer, shared=False)
    finals: list[Scalar] = []
    for i, (_, start, kind) in enumerate(slots):
        if i in replaced:
            step = replaced[i]
            finals.append(start if step == 0 else program.add(start, step * length, kind))
        else:
            finals.append(program.node("result", (node,), kind, data=i))
    out: list[Value] = []
    taken = 0
    for c in initial:
        out.append(objects(finals[taken : taken + c.size], c.shape))
        taken += c.size
    for which, (y, v) in enumerate(zip(results[n_carry:], equation.outvars[n_carry:], strict=True)):
        kind = _kind(v)
        size = math.prod(v.aval.shape[1:])
        numbers: Sequence[Scalar] | Stretch
        numbers = y.stretch if isinstance(y, Memory) and y.is_contiguous else scalars_of(flat.registers(y))
        loop.collected.append((program.mul(turn, size, "i64"), numbers, size, kind))
        region = Region("loop", length * size, kind, which=which)
        made = program.node("region", (node,), "region", data=region, shared=False)
        out.append(Memory(made, kind, v.aval.shape, contiguous(v.aval.shape)))
    return out


def _rows(flat: Flattener, x: Value, variable) -> Callable[[Scalar], Value]:
    """turn -> x[turn]; rows that are equal or that count are computed rather than read."""
    kind, program = _kind(variable), flat.program
    if is_known(x) and len(x) > 1:
        steps = np.diff(x, axis=0)
        if np.all(steps == 0):
            return lambda turn: x[0]
        if kind in INTEGERS and np.all(steps == steps[0]):

            def counted(turn):
                count = program.convert(turn, "i64", kind)
                return flat.each(lambda a, s: program.add(a, program.mul(count, s, kind), kind), x[0], steps[0])

            return counted
    memory = flat.memory(x, kind)

    def row(turn):
        offset = program.add(memory.offset, program.mul(turn, memory.strides[0], "i64"), "i64")
        part = _view(memory, memory.shape[1:], memory.strides[1:], offset)
        return part if part.size > 512 else flat.registers(part)

    return row
