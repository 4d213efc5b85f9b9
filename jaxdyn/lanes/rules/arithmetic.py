"""Arithmetic on each element of arrays."""

import math
from collections.abc import Callable

import numpy as np

from jaxdyn.lanes.flatten import (
    CannotFlatten,
    Flattener,
    Value,
    is_known,
    kind_of,
    known_dtype,
    rule,
    scalars_of,
    zero_of,
)
from jaxdyn.lanes.program import FLOATS, INTEGERS, Node, Scalar, dtype_of_type

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
    "min": ("min", np.minimum),
    "max": ("max", np.maximum),
    "and": ("and", np.bitwise_and),
    "or": ("or", np.bitwise_or),
    "xor": ("xor", np.bitwise_xor),
    "not": ("not", np.invert),
}


def _elementwise(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    op, function = _ELEMENTWISE[equation.primitive.name]
    kind = kind_of(equation.outvars[0])
    if all(is_known(a) for a in args):
        with np.errstate(all="ignore"):
            return [np.asarray(function(*args)).astype(known_dtype(kind), copy=False)]
    return [flat.apply(op, kind, *args)]


for _name in _ELEMENTWISE:
    rule(_name)(_elementwise)


@rule("div", "rem")
def _divide(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    name, kind = equation.primitive.name, kind_of(equation.outvars[0])
    if kind in INTEGERS and not (is_known(args[1]) and np.all(args[1] != 0)):
        raise CannotFlatten(f"{name!r} of integers by a divisor that is not known")
    return [flat.apply(name, kind, *args)]


@rule("pow")
def _pow(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    kind, exponent_kind, program = kind_of(equation.outvars[0]), kind_of(equation.invars[1]), flat.program

    def power(x, y):
        if exponent_kind in INTEGERS and type(y) is not Node:
            return program.integer_pow(x, y, kind)
        return program.apply("pow", (x, program.convert(y, exponent_kind, kind)), kind)

    return [flat.each(power, *args)]


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
    kind, program = kind_of(equation.outvars[0]), flat.program
    boolean = equation.invars[0].aval.dtype == bool
    if is_known(which) and which.ndim == 0:
        return [cases[int(which)]]
    known = [a for a in args if is_known(a)]
    if len(known) == len(args):
        return [np.choose(known[0].astype(int), known[1:])]
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
    kind = kind_of(equation.outvars[0])
    return [flat.apply("min", kind, flat.apply("max", kind, x, low), high)]


@rule("sign")
def _sign(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    kind, program = kind_of(equation.outvars[0]), flat.program
    one = 1.0 if kind in FLOATS else 1

    def sign(x):
        negative = program.select(program.compare("lt", x, zero_of(kind)), -one, x, kind)
        return program.select(program.compare("gt", x, zero_of(kind)), one, negative, kind)

    return [flat.each(sign, args[0])]


@rule("is_finite")
def _is_finite(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    kind, program = kind_of(equation.invars[0]), flat.program
    return [flat.each(lambda x: program.compare("lt", program.apply("abs", (x,), kind), math.inf), args[0])]


@rule("round")
def _round(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    kind, program = kind_of(equation.outvars[0]), flat.program
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
    kind, exponent = kind_of(equation.outvars[0]), equation.params["y"]
    return [flat.each(lambda x: flat.program.integer_pow(x, exponent, kind), args[0])]


@rule("square")
def _square(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    return [flat.apply("mul", kind_of(equation.outvars[0]), args[0], args[0])]


def _composed(formula: Callable[..., Scalar]) -> Callable:
    """Rule of a function that is a formula of others; formula(op, x) with op(name, *operands)."""

    def apply(flat: Flattener, equation, args: list[Value]) -> list[Value]:
        kind = kind_of(equation.outvars[0])
        return [flat.each(lambda *xs: formula(lambda op, *a: flat.program.apply(op, a, kind), *xs), *args)]

    return apply


def _exponential_halves(op, size):
    """e^|x| / 2 and e^-|x| / 2, the first from the root of e^|x|, which overflows late."""
    root = op("exp", op("mul", 0.5, size))
    return op("mul", op("mul", 0.5, root), root), op("div", op("div", 0.5, root), root)


def _sinh(op, x):
    # For small x from u = e^|x| - 1, without cancellation.
    size = op("abs", x)
    u = op("expm1", size)
    small = op("mul", op("mul", 0.5, u), op("add", 1.0, op("div", 1.0, op("add", u, 1.0))))
    large = op("sub", *_exponential_halves(op, size))
    return op("copysign", op("select", op("lt", size, 1.0), small, large), x)


def _cosh(op, x):
    return op("add", *_exponential_halves(op, op("abs", x)))


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
    kind, program = kind_of(equation.outvars[0]), flat.program

    def op(name, *xs):
        if name == "lt":
            return program.compare("lt", *xs)
        if name == "select":
            condition, if_true, if_false = xs
            return program.select(condition, if_true, if_false, kind)
        if name == "copysign":
            return program.select(program.compare("lt", xs[1], 0.0), program.neg(xs[0], kind), xs[0], kind)
        return program.apply(name, xs, kind)

    return [flat.each(lambda x: (_sinh if equation.primitive.name == "sinh" else _asinh)(op, x), args[0])]


def _acosh(op, x):
    # log(x + sqrt(x^2 - 1)) with t = x - 1; the root of the product is taken in two factors, for the product would overflow.
    t = op("sub", x, 1.0)
    return op("log1p", op("add", t, op("mul", op("sqrt", t), op("sqrt", op("add", t, 2.0)))))


rule("acosh")(_composed(_acosh))


rule("atanh")(_composed(lambda op, x: op("mul", 0.5, op("sub", op("log1p", x), op("log1p", op("neg", x))))))


@rule("shift_left", "shift_right_logical", "shift_right_arithmetic")
def _shift(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    kind = kind_of(equation.outvars[0])
    known = [a for a in args if is_known(a)]
    if len(known) == 2:
        x, by = known
        if equation.primitive.name == "shift_left":
            return [np.asarray(np.left_shift(x, by))]
        unsigned = x.view(f"u{x.dtype.itemsize}") if "logical" in equation.primitive.name else x
        return [np.asarray(np.right_shift(unsigned, by.astype(unsigned.dtype))).view(x.dtype)]
    return [flat.each(lambda x, by: flat.program.node(equation.primitive.name, (x, by), kind), *args)]


@rule("reduce_precision")
def _reduce_precision(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    info = np.finfo(dtype_of_type(kind_of(equation.outvars[0])))
    if (equation.params["exponent_bits"], equation.params["mantissa_bits"]) != (info.iexp, info.nmant):
        raise CannotFlatten("'reduce_precision' to fewer bits has no scalar form")
    return [args[0]]


@rule("convert_element_type")
def _convert(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    source, target = kind_of(equation.invars[0]), kind_of(equation.outvars[0])
    if source == target:
        return [args[0]]
    x = args[0]
    if is_known(x) and (source not in FLOATS or target in (*FLOATS, "bool")):
        return [x.astype(known_dtype(target))]
    if is_known(x):
        numbers = [flat.program.convert(s, source, target) for s in scalars_of(x)]
        return [np.array(numbers, known_dtype(target)).reshape(x.shape)]
    return [flat.each(lambda x: flat.program.convert(x, source, target), args[0])]


@rule("copy", "copy_p", "stop_gradient", "name", "device_put", "optimization_barrier", "pvary")
def _identity(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    return list(args)
