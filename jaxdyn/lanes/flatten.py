"""Conversion of a per-sample function to a scalar program: it is traced to a jaxpr, whose small arrays are split into scalars.

Arrays are NumPy arrays with known values, NumPy object arrays of scalars (nodes and known values), or `Memory` (long
arrays that stay in memory and are read element by element). Elements are rearranged by NumPy, and arithmetic is a loop over
scalars. An array of random keys is represented by two arrays, one of the first words and one of the second words of the keys; these
are two arguments or results of rules and jaxprs. The rules of the primitives are in `rules`; this module contains the interpreter
and the arrays.
"""

import abc
import contextlib
import dataclasses
import itertools
import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import jax
import numpy as np
from jax.extend import core as jex

from jaxdyn.cache.fingerprint import EXTENSIONS
from jaxdyn.compute.keys import is_key
from jaxdyn.compute.programs import CannotCompile
from jaxdyn.lanes.folding import flushed, fold
from jaxdyn.lanes.keys import WORD, WORDS, arrays_of, is_threefry, words_of
from jaxdyn.lanes.program import Node, Program, Scalar, Stretch
from jaxdyn.lanes.scalar_types import FLOATS, type_of_dtype

# Larger arrays are not split into scalars: a program would become too large for registers and compilers.
LARGEST_ARRAY = 4096
# Inputs, and their rows in loops, with at most this number of elements are split into scalars from the start.
SMALL_INPUT = 512


class CannotFlatten(CannotCompile):
    """A function cannot be converted to a scalar program; the message states the operation, the line, and the remedy.

    Attributes:
        located: True if the message already states the line.
    """

    def __init__(self, message: str, located: bool = False):
        super().__init__(message)
        self.located = located


# Errors of the compiler itself that count as an operation without scalar form, so that they do not end the program of a user. The
# tests of this package empty it, so that no such error stays unseen.
UNEXPECTED: tuple[type[Exception], ...] = (Exception,)


@contextlib.contextmanager
def without_unexpected_errors() -> Iterator[None]:
    """Context in which every error becomes a `CannotFlatten`.

    Raises:
        CannotFlatten: The message states the error, which is the cause.
    """
    try:
        yield
    except CannotFlatten:
        raise
    except UNEXPECTED as error:
        raise CannotFlatten(f"the lane compiler failed by {type(error).__name__}: {error}") from error


@dataclasses.dataclass(frozen=True)
class Memory:
    """A strided view of a region of memory.

    Attributes:
        region: Region node.
        type: Scalar type.
        shape, strides: Shape of the view, and strides in elements.
        offset: Position of the first element.
    """

    region: Node
    type: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: Scalar = 0

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def is_contiguous(self) -> bool:
        return all(s == c or n == 1 for n, s, c in zip(self.shape, self.strides, contiguous(self.shape), strict=True))

    @property
    def stretch(self) -> Stretch:
        return Stretch(self.region, self.offset, self.size)


Value = np.ndarray | Memory


class Deferred(abc.ABC):
    """An array that is not computed before a rule needs its elements.

    Attributes:
        shape: Shape of the array.
    """

    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @abc.abstractmethod
    def settled(self, flat: "Flattener") -> Value:
        """The computed array; it is computed only once, in the current block of the flattener."""

    @abc.abstractmethod
    def stored(self, flat: "Flattener") -> Memory:
        """The array in memory."""


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of an array without gaps."""
    return tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))


def objects(scalars: Sequence[Scalar], shape: Sequence[int]) -> np.ndarray:
    """NumPy object array of scalars."""
    out = np.empty(len(scalars), object)
    out[:] = scalars
    return out.reshape(shape)


def is_known(x: Value) -> TypeGuard[np.ndarray]:
    """True if all elements of an array are known."""
    return isinstance(x, np.ndarray) and x.dtype != object


def scalars_of(x: np.ndarray) -> list[Scalar]:
    return x.ravel().tolist()


def part_of(scalars: list[Scalar]) -> list[Scalar] | Stretch:
    """The stretch from which consecutive values were loaded, so that they are not stored again; otherwise the values themselves."""
    first = scalars[0] if scalars else None
    if type(first) is not Node or first.op != "load" or type(first.args[1]) is Node:
        return scalars
    region, start = first.args
    for k, x in enumerate(scalars):
        if type(x) is not Node or x.op != "load" or x.args[0] is not region or x.args[1] != start + k:
            return scalars
    return Stretch(region, start, len(scalars))


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """The scalar form of a primitive, which is used only if it honors all parameters of an equation.

    Attributes:
        function: Function (flattener, equation, arguments) -> results.
        reads: Names of the parameters of the primitive that the function reads.
        ignores: Names of parameters that do not affect the values of the results.
        of_whole_keys: True if the function uses both words of keys, as separate arguments. All other functions, which can only move
            keys, are applied separately to the first words and to the second words.
        takes_deferred: True if the function accepts `Deferred` arguments, which are computed before other functions are applied.
    """

    function: Callable[["Flattener", Any, list[Any]], list[Any]]
    reads: frozenset[str] = frozenset()
    ignores: frozenset[str] = frozenset()
    of_whole_keys: bool = False
    takes_deferred: bool = False

    def unknown(self, params: Mapping[str, Any]) -> list[str]:
        """Names of the parameters that the rule neither reads nor ignores, and that are set: neither None nor empty."""
        undeclared = params.keys() - self.reads - self.ignores
        return sorted(name for name in undeclared if params[name] is not None and not _is_empty(params[name]))


def _is_empty(value: Any) -> bool:
    return isinstance(value, tuple) and not value


RULES: dict[str, Rule] = {}


def rule(
    *names: str, reads: str = "", ignores: str = "", of_whole_keys: bool = False, takes_deferred: bool = False
) -> Callable[[Callable], Callable]:
    """Decorator that registers a function (flattener, equation, arguments) -> results as the rule of primitives.

    An equation with another parameter than the declared ones has no scalar form, unless the value of the parameter is None or
    empty. So a rule cannot overlook an option that a newer JAX adds.

    Args:
        names: Names of the primitives.
        reads: Names of the parameters that the function reads, with spaces between them.
        ignores: Names of the parameters that do not affect the values of the results, likewise.
        of_whole_keys, takes_deferred: Properties of the function, see `Rule`.
    """

    def register(function: Callable) -> Callable:
        declared = Rule(function, frozenset(reads.split()), frozenset(ignores.split()), of_whole_keys, takes_deferred)
        is_own = function.__module__.startswith(f"{__package__}.")
        # Those of the user may come before those of this package.
        RULES.update({name: declared for name in names if not (is_own and f"rule of {name}" in EXTENSIONS)})
        if not is_own:
            details = f"reads {reads}, ignores {ignores}, {of_whole_keys=}, {takes_deferred=}"
            EXTENSIONS.update({f"rule of {name}": (function, details) for name in names})
            jax.clear_caches()  # functions that were compiled before are compiled again, with the rule
        return function

    return register


@dataclasses.dataclass(frozen=True, slots=True)
class _Operation:
    """An equation of a jaxpr, whose operands and results are positions in a list of arrays.

    Attributes:
        equation: The equation.
        rule: Rule of the primitive; None if the equation cannot be evaluated.
        arguments: Positions of the arguments of each application of the rule. Rules that can only move keys are applied to the
            first words and to the second words, all other rules once.
        outputs: Positions of the results.
        refusal: Reason for which the equation cannot be evaluated.
    """

    equation: Any
    rule: Rule | None
    arguments: tuple[tuple[int, ...], ...]
    outputs: tuple[int, ...]
    refusal: str


class _Prepared:
    """A jaxpr in the form in which it is interpreted, often more than once.

    Attributes:
        literals: List with a place for each array; it contains the literals of the jaxpr.
        inputs: Positions of the constants and of the arguments.
        operations: The equations.
        outputs: Positions of the results.
        rules: All rules at that time.
    """

    def __init__(self, jaxpr, rules: tuple[Rule, ...]):
        self.rules = rules
        self.literals: list[Any] = []
        self._positions: dict[Any, tuple[int, ...]] = {}
        self.inputs = self._places((*jaxpr.constvars, *jaxpr.invars))
        self.operations = [o for equation in jaxpr.eqns if (o := self._operation(equation)) is not None]
        self.outputs = self._places(jaxpr.outvars)

    def _places(self, variables: Sequence[Any]) -> tuple[int, ...]:
        return tuple(itertools.chain.from_iterable(map(self._place, variables)))

    def _place(self, variable) -> tuple[int, ...]:
        """Positions of the arrays of a variable: two for keys, otherwise one."""
        if isinstance(variable, jex.Literal):
            return self._appended(known(variable.val))
        if variable not in self._positions:
            self._positions[variable] = self._appended([None] * len(arrays_of([variable])))
        return self._positions[variable]

    def _appended(self, values: list[Any]) -> tuple[int, ...]:
        start = len(self.literals)
        self.literals += values
        return tuple(range(start, len(self.literals)))

    def _operation(self, equation) -> _Operation | None:
        """The equation as an operation; None if its results are only tangents of integers, which have no values."""
        real = [v for v in equation.outvars if v.aval.dtype != jax.dtypes.float0]
        if not real and equation.outvars:
            for v in equation.outvars:
                self._positions[v] = self._appended([np.zeros(v.aval.shape, bool)])
            return None
        operands, refusal, words = [self._place(v) for v in equation.invars], _refusal(equation, real), 1
        rule = None if refusal else RULES[equation.primitive.name]
        if rule is not None and not rule.of_whole_keys:
            has_keys = any(is_threefry(v.aval.dtype) for v in (*equation.invars, *equation.outvars))
            words = WORDS if has_keys else 1
        arguments = [[p[k % len(p)] for p in operands] for k in range(words)]
        if words == 1:
            arguments = [list(itertools.chain.from_iterable(operands))]
        return _Operation(equation, rule, tuple(map(tuple, arguments)), self._places(equation.outvars), refusal)


# A function is flattened for one sample and for many, and its derivatives contain the same inner functions.
_PREPARED: weakref.WeakKeyDictionary[jex.Jaxpr, _Prepared] = weakref.WeakKeyDictionary()


class Flattener:
    """Interprets jaxprs on arrays of scalars.

    Attributes:
        program: Program under construction.
        block: Current block, in which loops are placed.
        of_one_sample: True for a program of a single sample. Its matrices stay in memory, where vector instructions compute
            products of matrices; in programs of many samples, a vector contains one value of each sample.
    """

    def __init__(self, program: Program, of_one_sample: bool = False):
        self.program = program
        self.of_one_sample = of_one_sample
        self.block = program.block
        self._rules = tuple(RULES.values())

    # -- arrays

    def registers(self, x: Value) -> np.ndarray:
        """The array split into scalars: an object array, or known values."""
        if not isinstance(x, Memory):
            return x
        if x.size > LARGEST_ARRAY:
            raise CannotFlatten(f"an array of shape {x.shape} is too large to be split into scalars")
        at = [sum(i * s for i, s in zip(index, x.strides, strict=True)) for index in np.ndindex(x.shape)]
        load, add = self.program.load, self.program.add
        return objects([load(x.region, add(x.offset, k, "i64")) for k in at], x.shape)

    def arranged(self, x: Memory) -> Value:
        """An input, or a row of one, in the form in which rules use it: in memory if it is large, otherwise split into scalars."""
        is_matrix = self.of_one_sample and x.ndim > 1
        return x if is_matrix or x.size > SMALL_INPUT else self.registers(x)

    def memory(self, x: Value, kind: str, gaps: bool = False) -> Memory:
        """The array in memory, where it is stored if necessary; there are no gaps between its elements unless `gaps` is true."""
        if isinstance(x, Memory):
            if gaps or x.is_contiguous:
                return x
            x = self.registers(x)
        if is_known(x):
            region, offset = self.program.table(x, kind), 0
        else:
            part = part_of(scalars_of(x))
            if isinstance(part, Stretch):
                region, offset = part.region, part.offset
            else:
                region, offset = self.program.pieces([part], kind), 0
        return Memory(region, kind, x.shape, contiguous(x.shape), offset)

    def settled(self, x: "Value | Deferred") -> Value:
        """The array itself or, if it is deferred, its computed form."""
        return x.settled(self) if isinstance(x, Deferred) else x

    def each(self, op: Callable[..., Scalar], *xs: Value) -> np.ndarray:
        """Apply `op` to each element of the operands, which are broadcast; `op` is a function of scalars."""
        columns, shape = self._columns(xs)
        return objects([op(*scalars) for scalars in zip(*columns, strict=True)], shape)

    def _columns(self, xs: Sequence[Value]) -> tuple[list[list[Scalar]], tuple[int, ...]]:
        """The scalars of each operand after broadcasting, and the shape of the result."""
        arrays = [self.registers(x) for x in xs]
        shape = arrays[0].shape
        if any(a.shape != shape for a in arrays):  # NumPy takes longer to find this out
            shape = np.broadcast_shapes(*(a.shape for a in arrays))
        return [scalars_of(a if a.shape == shape else np.broadcast_to(a, shape)) for a in arrays], shape

    def apply(self, op: str, kind: str, *xs: Value) -> np.ndarray:
        """Apply the scalar operation with the name `op` to each element of the operands."""
        known = [x for x in xs if is_known(x)]
        if len(known) == len(xs):
            return fold(op, kind, *known)
        columns, shape = self._columns(xs)
        return objects(self.program.apply_to_each(op, columns, kind), shape)

    # -- interpretation

    def run(self, jaxpr, consts: Sequence[Value], args: Sequence[Any]) -> list[Any]:
        """Results of a jaxpr; arguments and results may be deferred."""
        prepared = _PREPARED.get(jaxpr)
        if prepared is None or prepared.rules != self._rules:
            prepared = _PREPARED[jaxpr] = _Prepared(jaxpr, self._rules)
        values = prepared.literals.copy()
        for position, value in zip(prepared.inputs, (*consts, *args), strict=True):
            values[position] = value
        for operation in prepared.operations:
            try:
                results = self._results(operation, values)
            except CannotFlatten as error:
                # An equation within a function of JAX has no line of user code; the call of that function has one.
                place = "" if error.located else user_line(operation.equation)
                if not place:
                    raise
                advice = "use backend='xla' for this function, or rewrite it"
                raise CannotFlatten(f"{error}{place}; {advice}", located=True) from None
            for position, value in zip(operation.outputs, results, strict=True):
                values[position] = value
        return [values[position] for position in prepared.outputs]

    def _results(self, operation: _Operation, values: list[Any]) -> list[Any]:
        if operation.rule is None:
            raise CannotFlatten(operation.refusal)
        found = []
        for positions in operation.arguments:
            args = [values[position] for position in positions]
            if not operation.rule.takes_deferred:
                args = [x if type(x) is np.ndarray else self.settled(x) for x in args]
            found.append(operation.rule.function(self, operation.equation, args))
        return found[0] if len(found) == 1 else list(itertools.chain.from_iterable(zip(*found, strict=True)))

    def closed(self, closed_jaxpr, args: Sequence[Any]) -> list[Any]:
        """Results of a closed jaxpr; arguments and results may be deferred."""
        consts = list(itertools.chain.from_iterable(known(c) for c in closed_jaxpr.consts))
        return self.run(closed_jaxpr.jaxpr, consts, args)


def _refusal(equation, results: Sequence[Any]) -> str:
    """Reason for which an equation cannot be evaluated; empty if it can.

    Args:
        equation: The equation.
        results: Variables of the results, without tangents of integers.
    """
    name = equation.primitive.name
    for v in results:
        if is_key(v.aval.dtype) and not is_threefry(v.aval.dtype):
            return _of_other_keys(v.aval.dtype)
        if not is_threefry(v.aval.dtype) and type_of_dtype(v.aval.dtype) is None:
            return f"{name!r} has a result of type {v.aval.dtype}"
    if name not in RULES:
        return f"{name!r} has no scalar form"
    if unknown := RULES[name].unknown(equation.params):
        return f"{name!r} with the option {unknown[0]!r} has no scalar form"
    moves_keys = not RULES[name].of_whole_keys and any(is_threefry(v.aval.dtype) for v in equation.invars)
    if moves_keys and not all(is_threefry(v.aval.dtype) for v in equation.outvars):
        return f"{name!r} of keys has no scalar form; use jax.random.key_data"
    return ""


def known(x) -> list[Value]:
    """A constant of a jaxpr as one array, or two arrays for keys; subnormal numbers are set to zero."""
    if isinstance(x, jax.Array) and is_key(x.dtype):
        if not is_threefry(x.dtype):
            raise CannotFlatten(_of_other_keys(x.dtype))
        return list(words_of(x))
    return [flushed(np.asarray(x))]


def _of_other_keys(dtype) -> str:
    return f"random keys of {dtype} have no scalar form; make keys by jax.random.key(seed, impl='threefry2x32')"


def user_line(equation) -> str:
    """Line of user code that made an equation, as ' (file:line in function)'; empty if JAX does not report it."""
    traceback = getattr(equation.source_info, "traceback", None)
    library = str(Path(jax.__file__).parent)
    for frame in getattr(traceback, "frames", ()):
        if not frame.file_name.startswith(library) and not frame.file_name.endswith(
            ("lanes/flatten.py", "lanes/call.py")
        ):
            return f" ({frame.file_name}:{frame.line_num} in {frame.function_name})"
    return ""


def flatten(jaxpr, of_one_sample: bool = False) -> Program:
    """The scalar program of a closed jaxpr.

    Args:
        jaxpr: Closed jaxpr of a function of one sample.
        of_one_sample: True for a program of a single sample, see `Flattener`; False for any number of samples.

    Raises:
        CannotFlatten: An operation has no scalar form, or an array is too large.
    """
    program = Program()
    flattener = Flattener(program, of_one_sample)
    args = []
    for v in jaxpr.jaxpr.invars:
        kind = type_of_dtype(v.aval.dtype)
        if kind is None:
            raise CannotFlatten(f"an input of type {v.aval.dtype} has no scalar form")
        region = program.input(kind, v.aval.size)
        memory = Memory(region, kind, v.aval.shape, contiguous(v.aval.shape))
        args.append(flattener.arranged(memory))
    outputs = flattener.closed(jaxpr, args)
    for v, x in zip(jaxpr.jaxpr.outvars, outputs, strict=True):
        kind = type_of_dtype(v.aval.dtype)
        if kind is None:
            raise CannotFlatten(f"an output of type {v.aval.dtype} has no scalar form")
        program.output_types.append(kind)
        if isinstance(x, Deferred):
            x = x.stored(flattener)
        if isinstance(x, Memory) and not x.is_contiguous:
            x = flattener.registers(x)
        program.outputs.append(x.stretch if isinstance(x, Memory) else typed(scalars_of(x), kind))
    return program


def typed(scalars: list[Scalar], kind: str) -> list[Scalar]:
    """Known values as Python values of the scalar type."""
    python = float if kind in FLOATS else bool if kind == "bool" else int
    return [s if type(s) is Node else python(s) for s in scalars]


def positions(shape: Sequence[int]):
    return itertools.product(*(range(n) for n in shape))


def zero_of(kind: str) -> Scalar:
    return 0.0 if kind in FLOATS else False if kind == "bool" else 0


def kind_of(variable) -> str:
    """Scalar type of a variable of a jaxpr; for random keys, the type of their words.

    Raises:
        CannotFlatten: Programs do not support this type.
    """
    if is_threefry(variable.aval.dtype):
        return WORD
    kind = type_of_dtype(variable.aval.dtype)
    if kind is None:
        raise CannotFlatten(f"values of type {variable.aval.dtype} have no scalar form")
    return kind


def inner_jaxprs(equation) -> Iterator[jex.Jaxpr]:
    """The jaxprs of functions that an equation calls."""
    for parameter in equation.params.values():
        for part in parameter if isinstance(parameter, tuple | list) else (parameter,):
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                yield inner
