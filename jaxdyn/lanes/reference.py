"""Evaluation of a scalar program in arithmetic with any number of digits (mpmath): the same formulas, practically without rounding.

The errors of the evaluations on the CPU and on a GPU are measured relative to it. Inputs are exact binary fractions. Constants of a
program, and results that are folded from constants alone, have double precision. Therefore values that must not be rounded have to
be arguments, for example all parameters of a model instead of a model in the closure of the function.
"""

import itertools
import operator
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import mpmath
import numpy as np

from jaxdyn.lanes import rules as rules  # registers the rules of the primitives
from jaxdyn.lanes.derived import traced
from jaxdyn.lanes.flatten import CannotFlatten, flatten
from jaxdyn.lanes.folding import TRANSCENDENTAL
from jaxdyn.lanes.liveness import Liveness
from jaxdyn.lanes.program import Block, Loop, Node, Program, Scalar, Stretch
from jaxdyn.lanes.scalar_types import FLOATS
from jaxdyn.lanes.schedule import Schedule

# Names of functions in mpmath, if they differ.
_MPMATH_NAMES = {"pow": "power", "round_even": "nint"}
# Operations on integers and booleans are those that fold constants.
_FOLDING = Program()
_OF_INTEGERS = frozenset(("not", "and", "or", "xor"))


class Reference:
    """A function of one sample that is evaluated with many digits.

        exact = Reference(f, q, v)
        exact(q, v)  # the results of f(q, v), with arrays as NumPy arrays of mpmath objects

    Attributes:
        context: Context of mpmath with a separate precision, independent of the global precision of mpmath.

    Raises:
        CannotFlatten: The function has an operation without scalar form, such as an eigenvalue; the message states the operation
            and its line.
    """

    def __init__(self, function: Callable, *args: Any, digits: int = 50):
        """Flatten the function.

        Args:
            function: Function of one sample.
            args: Example arguments; their values do not matter, and floats count as double precision.
            digits: Decimal digits of the arithmetic.
        """
        self.context = mpmath.MPContext()
        self.context.dps = digits
        floats, self._rest = eqx.partition(args, eqx.is_inexact_array)
        leaves, self._tree = jax.tree.flatten(floats)

        structure: list = []

        def flat(*leaves):
            out = function(*eqx.combine(jax.tree.unflatten(self._tree, leaves), self._rest))
            results, tree = jax.tree.flatten(out)
            structure.append(tree)
            return results

        with jax.enable_x64(True):
            jaxpr = traced(flat, [jax.ShapeDtypeStruct(x.shape, np.float64) for x in leaves])
            self._program = flatten(jaxpr)
        (self._out_tree,) = structure
        self._shapes = [aval.shape for aval in jaxpr.out_avals]
        self._live = Liveness(self._program)
        self._schedule = Schedule(self._program, self._live)
        self._operations = _operations(self.context)
        unknown = {n.op for n in self._live.nodes} - self._operations.keys() - _OF_INTEGERS - _Evaluation.STRUCTURE
        if unknown:
            raise CannotFlatten(f"{sorted(unknown)} cannot be evaluated in arithmetic of arbitrary precision")

    def __call__(self, *args: Any) -> Any:
        """The results for arguments of the same structure."""
        floats, _ = eqx.partition(args, eqx.is_inexact_array)
        inputs = [[self.context.mpf(x) for x in np.ravel(leaf).tolist()] for leaf in self._tree.flatten_up_to(floats)]
        evaluation = _Evaluation(self._schedule, self._live, self._operations, self.context, inputs)
        results = evaluation.results(self._program)
        arrays = [_array(x, shape) for x, shape in zip(results, self._shapes, strict=True)]
        return jax.tree.unflatten(self._out_tree, arrays)


def _array(numbers: list, shape: tuple[int, ...]) -> np.ndarray:
    out = np.empty(len(numbers), object)
    out[:] = numbers
    return out.reshape(shape)


class _Evaluation:
    """One evaluation of a program.

    Attributes:
        values: Values of the nodes so far; within loops, of the current iteration.
        regions: Contents of memory.
    """

    STRUCTURE = frozenset(("region", "load", "loop", "carry", "counter", "result", "select", "convert", "bitcast"))

    def __init__(
        self, schedule: Schedule, live: Liveness, operations: dict[str, Callable], context, inputs: list[list]
    ):
        self.schedule, self.live, self.operations, self.mpf = schedule, live, operations, context.mpf
        self.inputs = inputs
        self.values: dict[Node, Any] = {}
        self.regions: dict[Node, list] = {}
        self.collected: dict[tuple[Loop, int], list] = {}

    def results(self, program: Program) -> list[list]:
        self.run(program.block)
        typed = zip(program.outputs, program.output_types, strict=True)
        return [self.numbers(output, kind) for output, kind in typed]

    def number(self, x: Scalar, kind: str) -> Any:
        if type(x) is Node:
            return self.values[x]
        return self.mpf(x) if kind in FLOATS else x

    def numbers(self, stretch, kind: str) -> list:
        """Values of a list of scalars, or of a part of memory."""
        if not isinstance(stretch, Stretch):
            return [self.number(x, kind) for x in stretch]
        first = self.number(stretch.offset, "i64")
        return self.regions[stretch.region][first : first + stretch.size]

    def run(self, block: Block) -> None:
        for node in self.schedule.order[block]:
            if node.op == "loop":
                self.loop(node.data)
            elif node.op == "region":
                self.regions[node] = self.region(node)
            elif node.op == "load":
                self.values[node] = self.regions[node.args[0]][self.number(node.args[1], "i64")]
            elif node.op == "select":
                condition, if_true, if_false = node.args
                self.values[node] = self.number(if_true if self.number(condition, "bool") else if_false, node.type)
            elif node.op == "convert":
                self.values[node] = self.converted(self.number(node.args[0], node.data), node.data, node.type)
            elif node.op == "bitcast":
                self.values[node] = self.with_bits_of(self.number(node.args[0], node.data), node.data, node.type)
            elif node.op not in self.STRUCTURE:
                self.values[node] = self.operation(node)

    def converted(self, x, source: str, target: str):
        if target in FLOATS:
            return self.mpf(x)
        return _FOLDING.convert(float(x) if source in FLOATS else x, source, target)

    def with_bits_of(self, x, source: str, target: str):
        """The value with the bits of a value that is rounded to its type."""
        found = _FOLDING.bitcast(float(x) if source in FLOATS else x, source, target)
        return self.mpf(found) if target in FLOATS else found

    def operation(self, node: Node):
        compared = node.op in ("lt", "le", "eq")
        kind = next(a.type for a in node.args if type(a) is Node) if compared else node.type
        operands = [self.number(x, kind) for x in node.args]
        if compared or kind in FLOATS:
            return self.operations[node.op](*operands)
        return _FOLDING.apply(node.op, tuple(operands), kind)

    def region(self, node: Node) -> list:
        region = node.data
        if region.kind == "input":
            return self.inputs[region.which]
        if region.kind == "table":
            return [self.number(x, region.type) for x in region.values.tolist()]
        if region.kind == "loop":
            return self.collected[node.args[0].data, region.which]
        return list(itertools.chain.from_iterable(self.numbers(piece, region.type) for piece in region.pieces))

    def loop(self, loop: Loop) -> None:
        carries = self.live.carries[loop]
        kinds = [loop.carries[i].type for i in carries]
        carried = [self.number(loop.initial[i], kind) for i, kind in zip(carries, kinds, strict=True)]
        for which in self.live.collected[loop]:
            self.collected[loop, which] = [None] * (loop.length * loop.collected[which][2])
        for turn in itertools.count():
            self.values[loop.counter] = turn
            self.values.update(zip((loop.carries[i] for i in carries), carried, strict=True))
            self.run(loop.body)
            for which in self.live.collected[loop]:
                position, values, size, kind = loop.collected[which]
                first = self.number(position, "i64")
                self.collected[loop, which][first : first + size] = self.numbers(values, kind)
            carried = [self.number(loop.following[i], kind) for i, kind in zip(carries, kinds, strict=True)]
            more = turn + 1 < loop.length if loop.condition is None else self.number(loop.condition, "bool")
            if not more:
                break
        final = dict(zip(carries, carried, strict=True))
        for node in self.live.nodes:
            if node.op == "result" and node.args[0].data is loop:
                self.values[node] = final[node.data]


def _operations(context) -> dict[str, Callable]:
    """The operations on real numbers; undefined ones return NaN as in IEEE arithmetic, and zero has no sign."""
    nan, inf = context.nan, context.inf

    def divided(x, y):
        if y != 0:
            return x / y
        return inf if x > 0 else -inf if x < 0 else nan

    def real(name: str) -> Callable:
        function = getattr(context, _MPMATH_NAMES.get(name, name))

        def evaluate(*operands):
            try:
                y = function(*operands)
            except ZeroDivisionError:  # a power of zero
                return inf
            return y if isinstance(y, context.mpf) else nan  # mpmath returns complex numbers outside of the real domain

        return evaluate

    return {
        "add": operator.add,
        "sub": operator.sub,
        "mul": operator.mul,
        "div": divided,
        "rem": lambda x, y: x - y * int(x / y) if y != 0 and context.isfinite(x) else nan,
        "neg": operator.neg,
        "abs": abs,
        "min": lambda x, y: x if x != x or x < y else y,
        "max": lambda x, y: x if x != x or x > y else y,
        "lt": operator.lt,
        "le": operator.le,
        "eq": operator.eq,
        **{name: real(name) for name in (*TRANSCENDENTAL, "sqrt", "floor", "ceil", "round_even")},
    }
