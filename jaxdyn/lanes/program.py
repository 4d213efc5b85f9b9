"""Scalar programs: per-sample functions whose small arrays have been split into scalars.

A program is a graph of scalar operations (`Node`) in nested blocks: one block for the whole program and one for the body of each
loop. Known values are Python scalars, never nodes, so that every operation can be folded when it is created:
constants are computed, x*0, x*1 and x+0 are eliminated, equal operations are shared, and an operation is placed in the outermost
block that contains its operands, which moves loop-invariant operations out of loops. Two foldings deviate from IEEE arithmetic: x*0
is 0, so that an infinite or undefined x does not affect a product with a known zero; and x+0 is x, also for x = -0, as in XLA.

Memory is functional: a region (input, table, collected results of a loop, concatenated pieces) is a node too, so
a load depends on the nodes that fill the region, and no order of side effects is needed. A position in memory is within its region
for all inputs, which follows from the intervals of its operands; a program that could read outside of a region is rejected when it
is built.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, final

import numpy as np

from jaxdyn.lanes.folding import converted, fold_numbers, settled
from jaxdyn.lanes.intervals import Interval, decided, interval_of
from jaxdyn.lanes.scalar_types import FLOATS, INTEGERS, dtype_of_type


class Block:
    """A sequence of operations without branches; `parent` is the enclosing block."""

    __slots__ = ("depth", "memo", "nodes", "parent")

    def __init__(self, parent: "Block | None" = None):
        self.parent = parent
        self.depth = 0 if parent is None else parent.depth + 1
        self.nodes: list[Node] = []
        self.memo: dict[tuple, Node] = {}


@final
class Node:
    """One scalar operation, or a region of memory (type "region").

    Attributes:
        op: Name of the operation.
        args: Operands: nodes or known values.
        type: Scalar type, "region" or "loop".
        block: Block that contains the node.
        data: Additional data of the operation: a `Region`, a `Loop`, or a value.
        serial: Index in order of creation, so that equal functions become equal programs.
        interval: Smallest and largest value of an integer for all inputs; None for other types.
    """

    __slots__ = ("args", "block", "data", "interval", "op", "serial", "type")

    def __init__(self, op: str, args: tuple, kind: str, block: Block, data, serial: int):
        self.op, self.args, self.type, self.block, self.data, self.serial = op, args, kind, block, data, serial
        self.interval: Interval | None = None
        if kind in INTEGERS:
            self.interval = interval_of(op, kind, data, [interval(a) for a in args])

    def __repr__(self) -> str:
        return f"{self.op}:{self.type}"


Scalar = Node | float | int | bool


def interval(x: Scalar) -> Interval | None:
    """Interval of an integer or a boolean; None for other types."""
    if type(x) is Node:
        return (0, 1) if x.type == "bool" else x.interval
    return None if type(x) is float else (int(x), int(x))


class Region:
    """A part of memory with `size` values of one type per sample.

    Attributes:
        kind: "input" (input array with index `which`), "table" (constants `values`, which all samples share), "loop" (result with
            index `which` among the arrays that a loop collects), or "pieces" (concatenation of `pieces`).
    """

    __slots__ = ("kind", "pieces", "size", "type", "values", "which")

    def __init__(self, kind: str, size: int, scalar_type: str, which: int = 0, values=None, pieces=()):
        self.kind, self.size, self.type = kind, size, scalar_type
        self.which, self.pieces = which, pieces
        self.values: np.ndarray = np.zeros(0) if values is None else values


class Stretch:
    """`size` consecutive values within a region, from the position `offset` (an integer or an integer node) on."""

    __slots__ = ("offset", "region", "size")

    def __init__(self, region: Node, offset: Scalar, size: int):
        _check_within(region.data, offset, size)
        self.region, self.offset, self.size = region, offset, size


def _check_within(region: Region, offset: Scalar, size: int) -> None:
    """Raise an error for a program that could read beyond a region; the rules of the primitives must bound their positions."""
    bounds = interval(offset)
    if bounds is None or bounds[0] < 0 or bounds[1] + size > region.size:
        raise IndexError(f"positions {bounds} and {size - 1} more may lie outside a region of {region.size} values")


class Matrix(NamedTuple):
    """A matrix in memory, whose entry (i, j) is at the position `offset + i strides[0] + j strides[1]` of a region."""

    region: Node
    offset: Scalar
    strides: tuple[int, int]


class MatrixProduct(NamedTuple):
    """The product left^T right of matrices with `terms` rows."""

    terms: int
    left: Matrix
    right: Matrix


class SumOfMatrixProducts(NamedTuple):
    """The matrix base + sum of products, with its entries row by row; `base` is None for zero."""

    rows: int
    columns: int
    products: tuple[MatrixProduct, ...]
    base: Matrix | None


class Loop:
    """A loop of at least one iteration.

    Attributes:
        length: Number of iterations; 1 if it depends on values.
        condition: Boolean after an iteration that is true for each sample that needs a further iteration; None for a loop of a
            known length. Samples that need none keep their carried values during the iterations of the others.
        body: Block of one iteration.
        counter: Index of the iteration, 0 .. length-1, as a node in the body.
        carries: Carried values at the start of an iteration, as nodes in the body.
        initial: Carried values before the first iteration.
        following: Carried values after an iteration.
        collected: Collected arrays, each with the position of the first value of an iteration, its values or a `Stretch`, the
            number of values per iteration, and the scalar type.
        computes: Matrix that is the only collected array of the loop, so that a code generator may compute it in another way;
            the factors in memory are operands of the node of the loop. None for other loops.
    """

    __slots__ = ("body", "carries", "collected", "computes", "condition", "counter", "following", "initial", "length")

    def __init__(self, length: int, body: Block):
        self.length, self.body = length, body
        self.condition: Scalar | None = None
        self.counter: Node = None  # type: ignore[assignment]
        self.carries: list[Node] = []
        self.initial: list[Scalar] = []
        self.following: list[Scalar] = []
        self.collected: list[tuple] = []
        self.computes: SumOfMatrixProducts | None = None


_COMMUTATIVE = {"add", "mul", "min", "max", "and", "or", "xor", "eq"}


class Program:
    """A scalar program, also while it is under construction.

    Attributes:
        block: Outermost block.
        inputs: Type and size of each input array.
        outputs: Values of each output array, or a `Stretch`.
        output_types: Scalar type of each output array.
        has_matrix_products: True if vectors of adjacent columns could compute matrix products of one sample.
    """

    def __init__(self):
        self.block = Block()
        self.has_matrix_products = False
        self._made = 0
        self._stored: dict[tuple, Node] = {}
        self.inputs: list[tuple[str, int]] = []
        self.outputs: list[Sequence[Scalar] | Stretch] = []
        self.output_types: list[str] = []

    # -- making nodes

    def node(self, op: str, args: tuple, kind: str, data=None, block: Block | None = None, shared: bool = True) -> Node:
        """Node of an operation in the outermost block that contains its operands; an equal existing node is used again."""
        home = self.block if block is None else block
        for a in args:
            if type(a) is Node and a.block.depth > home.depth:
                home = a.block
        key = (op, kind, data, *args)
        if shared:
            # 0.0 and -0.0, and 1 and 1.0 and True, are equal as keys but not as values; the type distinguishes the latter.
            found = home.memo.get(key)
            if found is not None and all(map(_same_zeros, found.args, args)):
                return found
        self._made += 1
        made = Node(op, args, kind, home, data, self._made)
        home.nodes.append(made)
        if shared:
            home.memo[key] = made
        return made

    def input(self, scalar_type: str, size: int) -> Node:
        """Region of an additional input array."""
        self.inputs.append((scalar_type, size))
        region = Region("input", size, scalar_type, which=len(self.inputs) - 1)
        return self.node("region", (), "region", region, shared=False)

    def table(self, values: np.ndarray, scalar_type: str) -> Node:
        """Region of constants that can be read at positions known only at run time."""
        values = np.ascontiguousarray(values).reshape(-1)
        key = ("table", scalar_type, values.tobytes())
        if key not in self.block.memo:
            region = Region("table", values.size, scalar_type, values=values)
            self.block.memo[key] = self.node("region", (), "region", region, shared=False)
        return self.block.memo[key]

    def pieces(self, parts: Sequence[Sequence[Scalar] | Stretch], scalar_type: str) -> Node:
        """A region that concatenates values and parts of other regions; equal computed values are stored once."""
        if len(parts) == 1 and not isinstance(parts[0], Stretch) and all(type(x) is Node for x in parts[0]):
            key = (scalar_type, *parts[0])
            if key not in self._stored:
                self._stored[key] = self._concatenated(parts, scalar_type)
            return self._stored[key]
        return self._concatenated(parts, scalar_type)

    def _concatenated(self, parts: Sequence[Sequence[Scalar] | Stretch], scalar_type: str) -> Node:
        size = sum(p.size if isinstance(p, Stretch) else len(p) for p in parts)
        needs = []
        for part in parts:
            needs += [part.region, part.offset] if isinstance(part, Stretch) else list(part)
        args = tuple(n for n in needs if type(n) is Node)
        return self.node(
            "region", args, "region", Region("pieces", size, scalar_type, pieces=tuple(parts)), shared=False
        )

    def load(self, region: Node, index: Scalar) -> Scalar:
        data: Region = region.data
        _check_within(data, index, 1)
        if type(index) is not Node:
            if data.kind == "table":
                return data.values[int(index)].item()
            if data.kind == "pieces":
                for part in data.pieces:
                    size = part.size if isinstance(part, Stretch) else len(part)
                    if index < size:
                        if isinstance(part, Stretch):
                            return self.load(part.region, self.add(part.offset, index, "i64"))
                        return part[index]
                    index -= size
        return self.node("load", (region, index), data.type)

    # -- arithmetic; operands are nodes or known values of the given type

    def apply(self, op: str, args: tuple, kind: str) -> Scalar:
        """Result of the operation `op`, of the type `kind`; the operation is folded where possible."""
        rule = getattr(self, f"_{op}", None)
        if rule is not None:
            return rule(*args, kind)
        return self._plain(op, args, kind)

    def apply_to_each(self, op: str, columns: Sequence[Sequence[Scalar]], kind: str) -> list[Scalar]:
        """Results of the operation `op` for the operands at each position of the columns."""
        rule = getattr(self, f"_{op}", None)
        if rule is None:
            return [self._plain(op, args, kind) for args in zip(*columns, strict=True)]
        return [rule(*args, kind) for args in zip(*columns, strict=True)]

    def _plain(self, op: str, args: tuple, kind: str) -> Scalar:
        for a in args:
            if type(a) is Node:
                break
        else:
            return fold_numbers(op, kind, *args)
        if op in _COMMUTATIVE and (
            type(args[0]) is not Node or (type(args[1]) is Node and args[1].serial < args[0].serial)
        ):
            args = args[::-1]
        return self.node(op, args, kind)

    def add(self, x: Scalar, y: Scalar, kind: str) -> Scalar:
        if type(x) is not Node:
            if type(y) is not Node:
                return settled(x + y, kind)
            if x == 0:
                return y
        elif type(y) is not Node:
            if y == 0:
                return x
        elif y.op == "neg":
            return self.sub(x, y.args[0], kind)
        elif x.op == "neg":
            return self.sub(y, x.args[0], kind)
        return self._plain("add", (x, y), kind)

    _add = add

    def sub(self, x: Scalar, y: Scalar, kind: str) -> Scalar:
        if type(y) is not Node:
            if type(x) is not Node:
                return settled(x - y, kind)
            if y == 0:
                return x
        elif x is y and kind not in FLOATS:
            return 0
        elif y.op == "neg":
            return self.add(x, y.args[0], kind)
        return self._plain("sub", (x, y), kind)

    _sub = sub

    def mul(self, x: Scalar, y: Scalar, kind: str) -> Scalar:
        if type(x) is not Node:
            if type(y) is not Node:
                return settled(x * y, kind)
            x, y = y, x
        if type(y) is not Node:
            if y == 0:
                return 0.0 if kind in FLOATS else 0
            if y == 1:
                return x
            if y == -1:
                return self.neg(x, kind)
            if x.op == "neg":
                return self.mul(x.args[0], -y, kind)
        elif x.op == "neg":
            if y.op == "neg":
                return self.mul(x.args[0], y.args[0], kind)
            return self.neg(self.mul(x.args[0], y, kind), kind)
        elif y.op == "neg":
            return self.neg(self.mul(x, y.args[0], kind), kind)
        return self._plain("mul", (x, y), kind)

    _mul = mul

    def neg(self, x: Scalar, kind: str) -> Scalar:
        if type(x) is Node:
            if x.op == "neg":
                return x.args[0]
            if x.op == "sub" and kind not in FLOATS:  # the sign of a zero would change
                return self.sub(x.args[1], x.args[0], kind)
        return self._plain("neg", (x,), kind)

    _neg = neg

    def _div(self, x: Scalar, y: Scalar, kind: str) -> Scalar:
        if type(y) is not Node and type(x) is Node:
            if kind in FLOATS:
                # Division by a power of two equals multiplication by its reciprocal, unless the reciprocal is subnormal.
                if y != 0 and math.isfinite(y) and abs(math.frexp(y)[0]) == 0.5 and settled(1 / y, kind):
                    return self.mul(x, 1 / y, kind)
            elif y in (0, 1, -1):
                return settled(-1, kind) if y == 0 else self.mul(x, y, kind)
        return self._plain("div", (x, y), kind)

    def _rem(self, x: Scalar, y: Scalar, kind: str) -> Scalar:
        if kind not in FLOATS and type(x) is Node and type(y) is not Node and y in (0, 1, -1):
            return x if y == 0 else 0
        return self._plain("rem", (x, y), kind)

    def _shift_left(self, x: Scalar, by: Scalar, kind: str) -> Scalar:
        return self._shift("shift_left", x, by, kind)

    def _shift_right_logical(self, x: Scalar, by: Scalar, kind: str) -> Scalar:
        return self._shift("shift_right_logical", x, by, kind)

    def _shift_right_arithmetic(self, x: Scalar, by: Scalar, kind: str) -> Scalar:
        return self._shift("shift_right_arithmetic", x, by, kind)

    def _shift(self, op: str, x: Scalar, by: Scalar, kind: str) -> Scalar:
        """Shift by an unsigned count; a known count is limited to less than the width."""
        bits = int(kind[1:])
        if type(by) is not Node and not 0 <= by < bits:
            if op != "shift_right_arithmetic":
                return 0
            by = bits - 1
        return self._plain(op, (x, by), kind)

    def _pow(self, x: Scalar, y: Scalar, kind: str) -> Scalar:
        if type(y) is not Node and math.isfinite(y) and y == int(y) and abs(y) <= 64:
            return self.integer_pow(x, int(y), kind)
        return self._plain("pow", (x, y), kind)

    def integer_pow(self, x: Scalar, exponent: int, kind: str) -> Scalar:
        """x^exponent by repeated squaring."""
        if exponent < 0:
            return self._div(1.0, self.integer_pow(x, -exponent, kind), kind)
        result: Scalar = 1.0 if kind in FLOATS else 1
        while exponent:
            if exponent & 1:
                result = self.mul(result, x, kind)
            exponent >>= 1
            if exponent:
                x = self.mul(x, x, kind)
        return result

    def _abs(self, x: Scalar, kind: str) -> Scalar:
        if type(x) is Node and x.op == "neg":
            x = x.args[0]
        return x if type(x) is Node and x.op == "abs" else self._plain("abs", (x,), kind)

    def _and(self, x: Scalar, y: Scalar, kind: str) -> Scalar:
        for a, b in ((x, y), (y, x)):
            if kind == "bool" and type(a) is not Node:
                return b if a else False
        return x if x is y else self._plain("and", (x, y), kind)

    def _or(self, x: Scalar, y: Scalar, kind: str) -> Scalar:
        for a, b in ((x, y), (y, x)):
            if kind == "bool" and type(a) is not Node:
                return True if a else b
        return x if x is y else self._plain("or", (x, y), kind)

    def _min(self, x: Scalar, y: Scalar, kind: str) -> Scalar:
        if kind == "bool":
            return self._and(x, y, kind)
        return x if _never_exceeds(x, y) else y if _never_exceeds(y, x) else self._plain("min", (x, y), kind)

    def _max(self, x: Scalar, y: Scalar, kind: str) -> Scalar:
        if kind == "bool":
            return self._or(x, y, kind)
        return y if _never_exceeds(x, y) else x if _never_exceeds(y, x) else self._plain("max", (x, y), kind)

    def _not(self, x: Scalar, kind: str) -> Scalar:
        return x.args[0] if type(x) is Node and x.op == "not" else self._plain("not", (x,), kind)

    def compare(self, op: str, x: Scalar, y: Scalar) -> Scalar:
        """Result of the comparison `op` (lt, le, eq, gt, ge or ne); NaN compares as in IEEE arithmetic."""
        if op in ("gt", "ge"):
            return self.compare({"gt": "lt", "ge": "le"}[op], y, x)
        if op == "ne":
            return self.apply("not", (self.compare("eq", x, y),), "bool")
        known = _decided(op, x, y)
        return self._plain(op, (x, y), "bool") if known is None else known

    def select(self, condition: Scalar, if_true: Scalar, if_false: Scalar, kind: str) -> Scalar:
        if type(condition) is not Node:
            return if_true if condition else if_false
        if if_true is if_false:
            return if_true
        true_known, false_known = type(if_true) is not Node, type(if_false) is not Node
        if true_known and false_known:
            if is_same(if_true, if_false):
                return if_true
            if kind == "bool":
                return condition if if_true else self.apply("not", (condition,), "bool")
        if kind == "bool":
            if true_known:
                other = if_false if if_true else self._and(self._not(condition, kind), if_false, kind)
                return self._or(condition, other, kind) if if_true else other
            if false_known:
                masked = self._and(condition, if_true, kind)
                return self._or(self._not(condition, kind), masked, kind) if if_false else masked
        if condition.op == "not":
            return self.select(condition.args[0], if_false, if_true, kind)
        return self.node("select", (condition, if_true, if_false), kind)

    def convert(self, x: Scalar, source: str, target: str) -> Scalar:
        """A value of type `source` converted to type `target`, rounded as in JAX."""
        if source == target:
            return x
        if type(x) is not Node:
            return converted(np.asarray(x, dtype_of_type(source)), target).item()
        if target == "bool":
            return self.compare("ne", x, 0.0 if source in FLOATS else 0)
        return self.node("convert", (x,), target, source)

    def bitcast(self, x: Scalar, source: str, target: str) -> Scalar:
        """The value of type `target` with the bits of a value of type `source`, which has the same width."""
        if source == target:
            return x
        if type(x) is not Node:
            return settled(np.asarray(x, dtype_of_type(source)).view(dtype_of_type(target)).item(), target)
        return self.node("bitcast", (x,), target, source)


def _decided(op: str, x: Scalar, y: Scalar) -> bool | None:
    """Result of a comparison of integers if it is the same for all inputs, else None."""
    first, second = interval(x), interval(y)
    if x is y and first is not None:
        return op != "lt"
    return None if first is None or second is None else decided(op, first, second)


def _never_exceeds(x: Scalar, y: Scalar) -> bool:
    return _decided("le", x, y) is True


def is_same(x: Scalar, y: Scalar) -> bool:
    """True if two values of a type, one of which is known, are known to be equal; 0.0 and -0.0 are not equal."""
    return x == y and _same_zeros(x, y)


def _same_zeros(x: Scalar, y: Scalar) -> bool:
    return type(x) is not float or type(y) is not float or x != 0.0 or math.copysign(1.0, x) == math.copysign(1.0, y)
