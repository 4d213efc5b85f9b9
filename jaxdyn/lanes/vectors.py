"""Functions of vectors as text of LLVM IR, written with the operators of Python."""

import struct
from collections.abc import Callable, Sequence

import numpy as np


class Value:
    """A vector of floats ("float"), of integers of the same size ("int"), or of booleans ("bool").

    Operators append lines to the function under construction. Comparisons with NaN are false; shifts treat integers as unsigned.
    """

    __slots__ = ("function", "sort", "text")

    def __init__(self, function: "Function", sort: str, text: str):
        self.function, self.sort, self.text = function, sort, text

    def _binary(self, operation: str, other: "Operand", sort: str | None = None) -> "Value":
        f = self.function
        right = f.value(other, self.sort).text
        return f.emit(sort or self.sort, f"{operation} {f.types[self.sort]} {self.text}, {right}")

    def _compare(self, relation: str, other: "Operand") -> "Value":
        operation = {"float": "fcmp o", "int": "icmp " if relation == "eq" else "icmp s"}[self.sort]
        return self._binary(operation + relation, other, "bool")

    def __add__(self, other: "Operand") -> "Value":
        return self._binary("fadd" if self.sort == "float" else "add", other)

    def __sub__(self, other: "Operand") -> "Value":
        return self._binary("fsub" if self.sort == "float" else "sub", other)

    def __rsub__(self, other: float | int) -> "Value":
        return self.function.value(other, self.sort) - self

    def __mul__(self, other: "Operand") -> "Value":
        return self._binary("fmul", other)

    def __truediv__(self, other: "Operand") -> "Value":
        return self._binary("fdiv", other)

    def __rtruediv__(self, other: float | int) -> "Value":
        return self.function.value(other, self.sort) / self

    def __neg__(self) -> "Value":
        return self.function.emit("float", f"fneg {self.function.types['float']} {self.text}")

    def __and__(self, other: "Operand") -> "Value":
        return self._binary("and", other)

    def __or__(self, other: "Operand") -> "Value":
        return self._binary("or", other)

    def __xor__(self, other: "Operand") -> "Value":
        return self._binary("xor", other)

    def __lshift__(self, other: "Operand") -> "Value":
        return self._binary("shl", other)

    def __rshift__(self, other: "Operand") -> "Value":
        return self._binary("lshr", other)

    def __lt__(self, other: "Operand") -> "Value":
        return self._compare("lt", other)

    def __gt__(self, other: "Operand") -> "Value":
        return self._compare("gt", other)

    def equals(self, other: "Operand") -> "Value":
        return self._compare("eq", other)

    @property
    def bits(self) -> "Value":
        """The bits of floats as integers."""
        return self._cast("int")

    @property
    def number(self) -> "Value":
        """The floats whose bits are these integers; the inverse of `bits`."""
        return self._cast("float")

    def _cast(self, sort: str) -> "Value":
        types = self.function.types
        return self.function.emit(sort, f"bitcast {types[self.sort]} {self.text} to {types[sort]}")


Operand = Value | float | int


class Function:
    """A function under construction: operands, constants and intrinsics of one kind and width, and the lines so far.

    Attributes:
        kind, width: Type "f32" or "f64", and number of lanes; a single lane is a scalar.
        bits, mantissa, bias: Width, mantissa bits and exponent bias of the floating-point format.
        scalar, types: Type of one float; types of the vectors.
        x: Operands.
        has_libm: True if the processor has the functions of libm; a GPU does not.
        helpers: Definitions of called functions.
        libm: Names of called functions of libm, which take and return a double.
    """

    def __init__(self, name: str, kind: str, width: int, operands: int, has_libm: bool = True):
        self.name, self.kind, self.width = name, kind, width
        self.bits, self.mantissa = {"f32": (32, 23), "f64": (64, 52)}[kind]
        self.bias = (1 << self.bits - self.mantissa - 2) - 1
        self.scalar = {"f32": "float", "f64": "double"}[kind]
        scalars = {"float": self.scalar, "int": f"i{self.bits}", "bool": "i1"}
        self.types = {sort: t if width == 1 else f"<{width} x {t}>" for sort, t in scalars.items()}
        self.x = [Value(self, "float", f"%x{i}") for i in range(operands)]
        self.has_libm = has_libm
        self.helpers: dict[str, str] = {}
        self.libm: list[str] = []
        self._lines: list[str] = []
        self._count = 0

    def _line(self, operation: str) -> str:
        self._count += 1
        self._lines.append(f"  %t{self._count} = {operation}")
        return f"%t{self._count}"

    def let(self, operation: str) -> str:
        """Name of the result of an operation whose result is not a `Value`."""
        return self._line(operation)

    def emit(self, sort: str, operation: str) -> Value:
        return Value(self, sort, self._line(operation))

    def value(self, x: Operand, sort: str = "float") -> Value:
        """A constant in every lane, rounded to the working precision; a `Value` is returned unchanged."""
        return x if isinstance(x, Value) else Value(self, sort, self._constant(x, sort))

    def _constant(self, x: float | int, sort: str) -> str:
        kind, text = f"i{self.bits}", f"{int(x)}" if sort == "int" else ""
        if sort == "float":
            # A hexadecimal constant has the format of a double, also for a float.
            kind, text = self.scalar, f"0x{struct.pack('>d', np.float32(x) if self.kind == 'f32' else x).hex().upper()}"
        return text if self.width == 1 else f"splat ({kind} {text})"

    def select(self, condition: Value, a: Operand, b: Operand) -> Value:
        sort = next((x.sort for x in (a, b) if isinstance(x, Value)), "float")
        t, a, b = self.types[sort], self.value(a, sort), self.value(b, sort)
        return self.emit(sort, f"select {self.types['bool']} {condition.text}, {t} {a.text}, {t} {b.text}")

    def intrinsic(self, name: str, *operands: Operand) -> Value:
        t = self.types["float"]
        listed = ", ".join(f"{t} {self.value(x).text}" for x in operands)
        suffix = self.kind if self.width == 1 else f"v{self.width}{self.kind}"
        return self.emit("float", f"call {t} @llvm.{name}.{suffix}({listed})")

    def fma(self, a: Operand, b: Operand, c: Operand) -> Value:
        return self.intrinsic("fma", a, b, c)

    def abs(self, x: Value) -> Value:
        return self.intrinsic("fabs", x)

    def copysign(self, size: Value, sign: Value) -> Value:
        return self.intrinsic("copysign", size, sign)

    def at_most(self, x: Value, bound: float) -> Value:
        """The smaller of two values; NaN if x is NaN."""
        return self.select(x > bound, bound, x)

    def at_least(self, x: Value, bound: float) -> Value:
        """The larger of two values; NaN if x is NaN."""
        return self.select(x < bound, bound, x)

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Horner's rule, lowest power first; long polynomials are divided into independent parts (Estrin)."""
        powers = [x]

        def part(c: Sequence[float]) -> Value:
            if len(c) <= 4:
                out = self.value(c[-1])
                for coefficient in reversed(c[:-1]):
                    out = self.fma(out, x, coefficient)
                return out
            level = (len(c) - 1).bit_length() - 1
            while len(powers) <= level:
                powers.append(powers[-1] * powers[-1])
            return self.fma(part(c[1 << level :]), powers[level], part(c[: 1 << level]))

        return part(coefficients)

    def replaced_by_libm(self, size: Value, limit: float, names: Sequence[str], near: Sequence[Value]) -> list[Value]:
        """`near`, or the result of libm in lanes where `size`, the absolute value of the operand, exceeds a limit (one branch)."""
        far = (size > limit).text
        if self.width > 1:
            packed = self._line(f"bitcast {self.types['bool']} {far} to i{self.width}")
            far = self._line(f"icmp ne i{self.width} {packed}, 0")
        return self.replaced(far, near, lambda: self._by_libm(limit, names, near))

    def replaced(self, condition: str, near: Sequence[Value], other: Callable[[], Sequence[Value]]) -> list[Value]:
        """The values `near` or, if a rare condition holds, the results of a branch."""
        self._lines += [f"  br i1 {condition}, label %far, label %done", "far:"]
        far = other()
        self._lines += ["  br label %done", "done:"]
        pairs = zip(near, far, strict=True)
        return [self.emit(a.sort, f"phi {self.types[a.sort]} [{a.text}, %entry], [{b.text}, %far]") for a, b in pairs]

    def _by_libm(self, limit: float, names: Sequence[str], near: Sequence[Value]) -> list[Value]:
        t = self.types["float"]
        replaced: list[Value] = []
        for name, y in zip(names, near, strict=True):
            helper = f"lanes.libm.{name}.{self.kind}.v{self.width}"
            self.helpers[helper] = self._lane_by_lane(helper, name, limit)
            self.libm.append(name)
            replaced.append(self.emit("float", f"call {t} @{helper}({t} {self.x[0].text}, {t} {y.text})"))
        return replaced

    def _lane_by_lane(self, helper: str, name: str, limit: float) -> str:
        """Definition of a function of (x, y): y, but libm of x if x is beyond the limit."""
        t, one = self.types["float"], self.scalar
        if self.kind == "f32":
            call = [
                "%d = fpext float %e to double",
                f"%b = call double @{name}(double %d)",
                "%r = fptrunc double %b to float",
            ]
        else:
            call = [f"%r = call double @{name}(double %e)"]
        if self.width == 1:
            lines = [*call, f"ret {t} %r"]
        else:
            bound = f"0x{struct.pack('>d', limit).hex().upper()}"
            lines = [
                "br label %lane",
                "lane:",
                "%i = phi i32 [0, %entry], [%next, %skip]",
                f"%before = phi {t} [%y, %entry], [%after, %skip]",
                f"%e = extractelement {t} %x, i32 %i",
                f"%size = call {one} @llvm.fabs.{self.kind}({one} %e)",
                f"%is_far = fcmp ogt {one} %size, {bound}",
                "br i1 %is_far, label %far, label %skip",
                "far:",
                *call,
                f"%replaced = insertelement {t} %before, {one} %r, i32 %i",
                "br label %skip",
                "skip:",
                f"%after = phi {t} [%before, %lane], [%replaced, %far]",
                "%next = add i32 %i, 1",
                f"%more = icmp ult i32 %next, {self.width}",
                "br i1 %more, label %lane, label %done",
                "done:",
                f"ret {t} %after",
            ]
        x = "%e" if self.width == 1 else "%x"
        body = "\n".join(line if line.endswith(":") else f"  {line}" for line in lines)
        return f"define internal {t} @{helper}({t} {x}, {t} %y) noinline nounwind cold {{\nentry:\n{body}\n}}"

    def returning(self, results: Sequence[Value]) -> str:
        """Definition of the whole function; several results are returned as a structure."""
        t = self.types["float"]
        kinds = [self.types[result.sort] for result in results]
        kind, last = kinds[0], results[0].text
        if len(results) > 1:
            kind, last = f"{{{', '.join(kinds)}}}", "poison"
            for i, result in enumerate(results):
                last = self._line(f"insertvalue {kind} {last}, {kinds[i]} {result.text}, {i}")
        operands = ", ".join(f"{t} {x.text}" for x in self.x)
        head = f"define internal {kind} @{self.name}({operands}) noinline nounwind {{"
        return "\n".join([head, "entry:", *self._lines, f"  ret {kind} {last}", "}"])
