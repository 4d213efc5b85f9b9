"""Intervals of the integers of a program for all inputs, so that checks that cannot fail are eliminated.

For example, a position that equals a loop counter k needs no clamping, and `k < 0` is known to be false. If an interval may exceed
the range of its type, the interval of all integers of this type is used, because integers wrap around.
"""

import functools

import numpy as np

from jaxdyn.lanes.scalar_types import dtype_of_type

Interval = tuple[int, int]


@functools.cache
def whole(kind: str) -> Interval:
    """Interval of all integers of a type."""
    if kind == "bool":
        return 0, 1
    info = np.iinfo(dtype_of_type(kind))
    return int(info.min), int(info.max)


def interval_of(op: str, kind: str, data, operands: list[Interval | None]) -> Interval:
    """Interval of the result of an integer operation.

    Args:
        op: Name of the operation.
        kind: Scalar type of the result.
        data: Additional data of the operation, such as the length of a loop for "counter".
        operands: Intervals of the operands; None for operands that are not integers.
    """
    rule = _RULES.get(op)
    if op == "counter":
        return 0, max(data - 1, 0)
    if rule is None or any(x is None for x in operands[op == "select" :]):
        return whole(kind)
    found = rule(*operands)
    low, high = whole(kind)
    return found if found is not None and low <= found[0] and found[1] <= high else (low, high)


def decided(op: str, x: Interval, y: Interval) -> bool | None:
    """True or False if lt, le or eq has this result for all values of two intervals; None if it depends on the values.

    Args:
        op: Comparison, "lt", "le" or "eq".
        x, y: Intervals of the operands.
    """
    if op == "lt":
        return True if x[1] < y[0] else False if x[0] >= y[1] else None
    if op == "le":
        return True if x[1] <= y[0] else False if x[0] > y[1] else None
    return False if x[1] < y[0] or y[1] < x[0] else True if x[0] == x[1] == y[0] == y[1] else None


def _product(x: Interval, y: Interval) -> Interval:
    corners = [a * b for a in x for b in y]
    return min(corners), max(corners)


def _quotient(x: Interval, y: Interval) -> Interval | None:
    divisor = y[0]
    if y[1] != divisor or divisor < 1:
        return None
    low, high = (abs(a) // divisor * (-1 if a < 0 else 1) for a in x)
    return low, high


def _remainder(x: Interval, y: Interval) -> Interval | None:
    if y[0] <= 0 <= y[1]:
        return None
    most = max(abs(y[0]), abs(y[1])) - 1
    return max(min(x[0], 0), -most), min(max(x[1], 0), most)


def _bits_in_common(x: Interval, y: Interval) -> Interval | None:
    bounds = [b[1] for b in (x, y) if b[0] >= 0]
    return (0, min(bounds)) if bounds else None


_RULES = {
    "add": lambda x, y: (x[0] + y[0], x[1] + y[1]),
    "sub": lambda x, y: (x[0] - y[1], x[1] - y[0]),
    "neg": lambda x: (-x[1], -x[0]),
    "mul": _product,
    "div": _quotient,
    "rem": _remainder,
    "and": _bits_in_common,
    "min": lambda x, y: (min(x[0], y[0]), min(x[1], y[1])),
    "max": lambda x, y: (max(x[0], y[0]), max(x[1], y[1])),
    "select": lambda _, x, y: (min(x[0], y[0]), max(x[1], y[1])),
    "convert": lambda x: x,
}
