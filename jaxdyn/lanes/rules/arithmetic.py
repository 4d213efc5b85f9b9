"""Arithmetic on each element of arrays."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax

from jaxdyn.lanes.deferred import SumOfProducts
from jaxdyn.lanes.flatten import CannotFlatten, Flattener, Value, is_known, kind_of, rule, zero_of
from jaxdyn.lanes.folding import COMPARISONS, TRANSCENDENTAL, converted
from jaxdyn.lanes.program import Program, Scalar
from jaxdyn.lanes.rules.repeated import of_each
from jaxdyn.lanes.scalar_types import FLOATS, dtype_of_type

# Operations of a transcendental function, approximately.
_LENGTH = 30
_ELEMENTWISE = (
    "sub",
    "mul",
    "div",
    "rem",
    "neg",
    "abs",
    "sqrt",
    "floor",
    "ceil",
    "sin",
    "cos",
    "tan",
    "atan2",
    "min",
    "max",
    "and",
    "or",
    "xor",
    "not",
    "shift_left",
    "shift_right_logical",
    "shift_right_arithmetic",
)


def _check_accuracy(equation) -> None:
    """Raise an error if a function must have an accuracy that the user states; the modes of JAX ask for no more than the usual one.

    Raises:
        CannotFlatten: The message names the function.
    """
    if isinstance(equation.params.get("accuracy"), lax.Tolerance):
        raise CannotFlatten(f"{equation.primitive.name!r} of a given accuracy has no scalar form")


@rule(*_ELEMENTWISE, reads="accuracy")
def _elementwise(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    _check_accuracy(equation)
    return [flat.apply(equation.primitive.name, kind_of(equation.outvars[0]), *args)]


# Sine and cosine are not among them: they share their arguments, and often have known values.
@rule(*(name for name in TRANSCENDENTAL if name not in ("sin", "cos", "tan", "atan2", "pow")), reads="accuracy")
def _transcendental(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    _check_accuracy(equation)
    name, kind = equation.primitive.name, kind_of(equation.outvars[0])
    if is_known(args[0]):
        return [flat.apply(name, kind, *args)]
    return [of_each(flat, lambda x: flat.program.apply(name, (x,), kind), args[0], kind, _LENGTH)]


@rule("add", "add_any", takes_deferred=True)
def _add(flat: Flattener, equation, args: list[Any]) -> list[Any]:
    args = [x.computed if isinstance(x, SumOfProducts) else x for x in args]
    for one, other in (args, args[::-1]):
        if isinstance(one, SumOfProducts) and one.shape == other.shape and (both := one.plus(other)) is not None:
            return [both]
    return [flat.apply("add", kind_of(equation.outvars[0]), *(flat.settled(x) for x in args))]


@rule("pow")
def _pow(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    kind, exponent_kind = kind_of(equation.outvars[0]), kind_of(equation.invars[1])
    exponent = flat.each(lambda y: flat.program.convert(y, exponent_kind, kind), args[1])
    return [flat.apply("pow", kind, args[0], exponent)]


@rule(*COMPARISONS)
def _compare(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    name = equation.primitive.name
    if all(is_known(a) for a in args):
        return [flat.apply(name, "bool", *args)]
    return [flat.each(lambda x, y: flat.program.compare(name, x, y), *args)]


@rule("select_n")
def _select(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    which, *cases = args
    kind, program = kind_of(equation.outvars[0]), flat.program
    boolean = equation.invars[0].aval.dtype == bool
    # An index outside of the cases selects the nearest case.
    if is_known(which):
        which = np.clip(which.astype(np.int64), 0, len(cases) - 1)
        if which.ndim == 0:
            return [cases[which.item()]]
        return [flat.each(lambda index, *options: options[index], which, *cases)]
    if boolean:
        return [flat.each(lambda c, x, y: program.select(c, y, x, kind), which, *cases)]

    def choose(index, *options):
        result = options[-1]
        for k in range(len(options) - 2, -1, -1):
            result = program.select(program.compare("le", index, k), options[k], result, kind)
        return result

    return [flat.each(choose, which, *cases)]


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


@rule("round", reads="rounding_method")
def _round(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    kind, program = kind_of(equation.outvars[0]), flat.program
    if int(equation.params["rounding_method"]) == 1:  # to even
        return [flat.apply("round_even", kind, args[0])]

    def away_from_zero(x):
        size = program.apply("abs", (x,), kind)
        below = program.apply("floor", (size,), kind)
        up = program.compare("ge", program.apply("sub", (size, below), kind), 0.5)
        rounded = program.add(below, program.select(up, 1.0, 0.0, kind), kind)
        return _with_sign_of(program, rounded, x, kind)

    return [flat.each(away_from_zero, args[0])]


@rule("integer_pow", reads="y")
def _integer_pow(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    kind, exponent = kind_of(equation.outvars[0]), equation.params["y"]
    return [flat.each(lambda x: flat.program.integer_pow(x, exponent, kind), args[0])]


@rule("polynomial", ignores="unroll")
def _polynomial(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    """Horner's scheme; the arguments are the variable and the coefficients, the constant one first."""
    kind, (x, *coefficients) = kind_of(equation.outvars[0]), args
    total = coefficients.pop()
    while coefficients:
        total = flat.apply("add", kind, flat.apply("mul", kind, total, x), coefficients.pop())
    return [np.broadcast_to(flat.registers(total), equation.outvars[0].aval.shape)]


@rule("square")
def _square(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    return [flat.apply("mul", kind_of(equation.outvars[0]), args[0], args[0])]


def _with_sign_of(program: Program, size: Scalar, x: Scalar, kind: str) -> Scalar:
    """A value of the given size with the sign of x; x itself if it is a zero of either sign, for which the size is 0."""
    signed = program.select(program.compare("lt", x, 0.0), program.neg(size, kind), size, kind)
    return program.select(program.compare("eq", x, 0.0), x, signed, kind)


def _composed(name: str, formula: Callable[..., Scalar]) -> None:
    """Register the rule of a function that is a formula of other operations: formula(op, x) with op(name, *operands)."""

    @rule(name, reads="accuracy")
    def apply(flat: Flattener, equation, args: list[Value]) -> list[Value]:
        _check_accuracy(equation)
        kind, program = kind_of(equation.outvars[0]), flat.program

        def op(name, *xs):
            if name == "lt":
                return program.compare("lt", *xs)
            if name == "select":
                condition, if_true, if_false = xs
                return program.select(condition, if_true, if_false, kind)
            if name == "copysign":
                size, sign = xs
                return _with_sign_of(program, size, sign, kind)
            return program.apply(name, xs, kind)

        return [of_each(flat, lambda x: formula(op, x), args[0], kind, _LENGTH)]


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
    # log(|x| + sqrt(x^2 + 1)) by log1p, which is exact for small x; for large x, x^2 would overflow.
    size = op("abs", x)
    square = op("mul", size, size)
    small = op("log1p", op("add", size, op("div", square, op("add", 1.0, op("sqrt", op("add", square, 1.0))))))
    large = op("add", op("log", size), math.log(2.0))
    return op("copysign", op("select", op("lt", size, 1e8), small, large), x)


def _acosh(op, x):
    # log(x + sqrt(x^2 - 1)) with t = x - 1; the root of the product is computed in two factors, because the product
    # would overflow, as would the sum for large x.
    t = op("sub", x, 1.0)
    small = op("log1p", op("add", t, op("mul", op("sqrt", t), op("sqrt", op("add", t, 2.0)))))
    return op("select", op("lt", x, 1e18), small, op("add", op("log", x), math.log(2.0)))


_composed("rsqrt", lambda op, x: op("div", 1.0, op("sqrt", x)))
_composed("logistic", lambda op, x: op("div", 1.0, op("add", 1.0, op("exp", op("neg", x)))))
_composed("exp2", lambda op, x: op("pow", 2.0, x))
_composed("log2", lambda op, x: op("mul", op("log", x), 1.0 / math.log(2.0)))
_composed("one_minus_square", lambda op, x: op("mul", op("add", 1.0, x), op("sub", 1.0, x)))
_composed("cosh", _cosh)
_composed("sinh", _sinh)
_composed("asinh", _asinh)
_composed("acosh", _acosh)
_composed("atanh", lambda op, x: op("mul", 0.5, op("sub", op("log1p", x), op("log1p", op("neg", x)))))


@rule("reduce_precision", reads="exponent_bits mantissa_bits")
def _reduce_precision(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    info = np.finfo(dtype_of_type(kind_of(equation.outvars[0])))
    if (equation.params["exponent_bits"], equation.params["mantissa_bits"]) != (info.iexp, info.nmant):
        raise CannotFlatten("'reduce_precision' to fewer bits has no scalar form")
    return [args[0]]


@rule("convert_element_type", ignores="new_dtype weak_type sharding")
def _convert(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    source, target = kind_of(equation.invars[0]), kind_of(equation.outvars[0])
    if source == target:
        return [args[0]]
    if is_known(args[0]):
        return [converted(args[0], target)]
    return [flat.each(lambda x: flat.program.convert(x, source, target), args[0])]


@rule("bitcast_convert_type", ignores="new_dtype")
def _bitcast(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    source, target = kind_of(equation.invars[0]), kind_of(equation.outvars[0])
    if dtype_of_type(source).itemsize != dtype_of_type(target).itemsize or "bool" in (source, target):
        raise CannotFlatten(f"a bitcast from {source} to {target} has no scalar form")
    return [flat.each(lambda x: flat.program.bitcast(x, source, target), args[0])]


@rule("nextafter")
def _nextafter(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    """The float next to x: its bits, which are ordered like its size, plus or minus one; next to zero, the smallest value."""
    kind, program = kind_of(equation.outvars[0]), flat.program
    bits = f"i{kind[1:]}"

    def following(x: Scalar, y: Scalar) -> Scalar:
        away = program.compare("lt", x, y)
        grows = program.compare("eq", away, program.compare("lt", 0.0, x))
        code = program.bitcast(x, kind, bits)
        moved = program.bitcast(program.add(code, program.select(grows, 1, -1, bits), bits), bits, kind)
        least = float(np.finfo(dtype_of_type(kind)).smallest_subnormal)
        moved = program.select(program.compare("eq", x, 0.0), program.select(away, least, -least, kind), moved, kind)
        numbers = program.apply("and", (program.compare("eq", x, x), program.compare("eq", y, y)), "bool")
        same = program.compare("eq", x, y)
        return program.select(same, y, program.select(numbers, moved, math.nan, kind), kind)

    return [flat.each(following, *args)]


# They name values, or place them on devices.
@rule(
    "copy",
    "stop_gradient",
    "name",
    "device_put",
    "optimization_barrier",
    "pvary",
    "reshard",
    ignores="name devices srcs copy_semantics axes dst_sharding concrete_mesh",
    takes_deferred=True,
)
def _identity(flat: Flattener, equation, args: list[Any]) -> list[Any]:
    return list(args)
