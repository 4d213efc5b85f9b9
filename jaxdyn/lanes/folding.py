"""Operations on known values, with the same results as the compiled operations, in the precision of their type.

A result must not depend on whether the operands were known, so it equals the result of XLA on the CPU. Integers wrap around.
Integer division by zero, and shifts by at least the number of bits, have the same defined results as in XLA. Floating-point results
are rounded to their type after each operation. Subnormal results become zeros of the same sign, because XLA makes the processor
flush them to zero.
"""

import ctypes
import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxdyn.lanes.scalar_types import FLOATS, INTEGERS, dtype_of_type

Numbers = Any  # arrays, or scalars of NumPy instead of arrays without axes

COMPARISONS: dict[str, Callable] = {
    "lt": operator.lt,
    "le": operator.le,
    "eq": operator.eq,
    "gt": operator.gt,
    "ge": operator.ge,
    "ne": operator.ne,
}


@functools.cache
def _smallest(dtype: np.dtype) -> float:
    """The smallest normal number of a floating-point type."""
    return float(np.finfo(dtype).tiny)


_SMALLEST = {kind: _smallest(dtype_of_type(kind)) for kind in FLOATS}


def fold(op: str, kind: str, *operands: np.ndarray) -> np.ndarray:
    """Apply an operation to each element of arrays of one type, with broadcasting."""
    with np.errstate(all="ignore"):
        if op in COMPARISONS:
            return np.asarray(COMPARISONS[op](*operands))
        if kind == "f32" and op in _OF_DOUBLES:  # rounded once, from double precision
            operands = tuple(x.astype(np.float64) for x in operands)
        return flushed(np.asarray(_FUNCTIONS[op](*operands)).astype(dtype_of_type(kind), copy=False))


def fold_numbers(op: str, kind: str, *operands: float | int) -> float | int:
    """Apply an operation to scalars of one type; returns a Python scalar."""
    if op in COMPARISONS:
        return COMPARISONS[op](*operands)
    if op in ("add", "sub", "mul"):
        return settled(getattr(operator, op)(*operands), kind)
    dtype = dtype_of_type(kind)
    return fold(op, kind, *(np.asarray(x, dtype) for x in operands)).item()


def settled(x, kind: str):
    """A scalar as a value of its type: rounded, with subnormal numbers set to zero, or wrapped around."""
    if kind in INTEGERS:
        x, bits = int(x), int(kind[1:])
        x &= (1 << bits) - 1
        return x - (1 << bits) if kind[0] == "i" and x >> (bits - 1) else x
    if kind == "bool":
        return bool(x)
    x = ctypes.c_float(x).value if kind == "f32" else float(x)
    return x if abs(x) >= _SMALLEST[kind] or x == 0.0 or x != x else math.copysign(0.0, x)


def flushed(x: np.ndarray) -> np.ndarray:
    """Floating-point values with subnormal numbers set to zero."""
    if x.dtype.kind != "f":
        return x
    is_subnormal = (np.abs(x) < _smallest(x.dtype)) & (x != 0)
    return np.where(is_subnormal, np.copysign(x.dtype.type(0), x), x) if np.any(is_subnormal) else x


def converted(x: np.ndarray, target: str) -> np.ndarray:
    """Values converted to another type; floats are truncated and clipped to the range of an integer type, and NaN becomes zero."""
    dtype = dtype_of_type(target)
    with np.errstate(all="ignore"):
        if x.dtype.kind != "f" or target not in INTEGERS:
            return flushed(x.astype(dtype))
        info = np.iinfo(dtype)
        # The limits as floating-point numbers may exceed the type by one, so values at the limits are not cast.
        low, high = x <= float(info.min), x >= float(info.max)
        inside = np.where(low | high | np.isnan(x), 0, x).astype(dtype)
        return np.where(low, dtype.type(info.min), np.where(high, dtype.type(info.max), inside))


def _quotient(x: Numbers, y: Numbers) -> Numbers:
    """Quotient rounded toward zero; -1, all bits set, if the divisor is zero."""
    if x.dtype.kind == "f":
        return np.divide(x, y)
    usual, minus = _usual_divisor(y)
    quotient = np.floor_divide(x, usual)
    cut = (np.remainder(x, usual) != 0) & ((x < 0) != (usual < 0))
    return np.where(y == 0, ~np.zeros_like(y), np.where(minus, np.negative(x), quotient + cut.astype(x.dtype)))


def _remainder(x: Numbers, y: Numbers) -> Numbers:
    """Remainder with the sign of the dividend; the dividend if the divisor is zero."""
    if x.dtype.kind == "f":
        return np.fmod(x, y)
    usual, minus = _usual_divisor(y)
    return np.where(y == 0, x, np.where(minus, np.zeros_like(x), np.fmod(x, usual)))


def _usual_divisor(y: Numbers) -> tuple[Numbers, Numbers]:
    """The divisor with 1 in place of 0 and -1, and a mask of -1, for which the smallest integer would overflow."""
    minus = y == -1 if y.dtype.kind == "i" else np.zeros(y.shape, bool)
    return np.where((y == 0) | minus, np.ones_like(y), y), minus


def _power(x: Numbers, y: Numbers) -> Numbers:
    """Power as in C; NumPy uses the square root for y = 1/2, which differs at -0 and at minus infinity."""
    is_limit = (y == 0.5) & ((x == 0) | np.isinf(x))
    return np.power(np.where(is_limit, np.abs(x), x), y)


def _shifted(function: Callable, fills: bool = False) -> Callable:
    """Shift by an unsigned count; for a count of at least the width, all bits are shifted out."""

    def shift(x: Numbers, by: Numbers) -> Numbers:
        bits, by = 8 * x.dtype.itemsize, by.astype(x.dtype)
        outside = (by < 0) | (by >= bits)
        if fills:
            return function(x, np.where(outside, x.dtype.type(bits - 1), by))
        return np.where(outside, np.zeros_like(x), function(x, np.where(outside, np.zeros_like(by), by)))

    return shift


def _without_sign(x: Numbers, by: Numbers) -> Numbers:
    unsigned = f"u{x.dtype.itemsize}"
    return np.right_shift(x.view(unsigned), by.view(unsigned)).view(x.dtype)


def _with_sign(x: Numbers, by: Numbers) -> Numbers:
    signed = f"i{x.dtype.itemsize}"
    return np.right_shift(x.view(signed), by.view(signed)).view(x.dtype)


def _ordered(function: Callable, prefers_negative: bool) -> Callable:
    """Minimum or maximum, in which -0 is less than 0."""

    def choose(x: Numbers, y: Numbers) -> Numbers:
        if x.dtype.kind != "f":
            return function(x, y)
        first = np.signbit(x) == prefers_negative
        return np.where(x == y, np.where(first, x, y), function(x, y))

    return choose


_FUNCTIONS: dict[str, Callable] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _quotient,
    "rem": _remainder,
    "neg": np.negative,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "round_even": np.rint,
    "min": _ordered(np.minimum, True),
    "max": _ordered(np.maximum, False),
    "not": np.invert,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shift_left": _shifted(np.left_shift),
    "shift_right_logical": _shifted(_without_sign),
    "shift_right_arithmetic": _shifted(_with_sign, fills=True),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "atan": np.arctan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan2": np.arctan2,
    "pow": _power,
}
TRANSCENDENTAL = ("sin", "cos", "tan", "exp", "expm1", "log", "log1p", "tanh", "atan", "asin", "acos", "atan2", "pow")
_OF_DOUBLES = frozenset(TRANSCENDENTAL)
