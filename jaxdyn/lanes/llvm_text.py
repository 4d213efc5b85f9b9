"""Generation of LLVM code: types, constants, and the lines of a function under construction."""

import struct
from collections.abc import Sequence

import numpy as np

from jaxdyn.lanes.program import Node, Scalar
from jaxdyn.lanes.scalar_types import FLOATS, INTEGERS

_BYTES = {"bool": 1, **{kind: int(kind[1:]) // 8 for kind in (*FLOATS, *INTEGERS)}}
_SCALAR_TYPES = {"f32": "float", "f64": "double", "bool": "i1", **{kind: f"i{kind[1:]}" for kind in INTEGERS}}


def bytes_of(kind: str) -> int:
    return _BYTES[kind]


def scalar_type(kind: str) -> str:
    """LLVM type of a value in a register."""
    return _SCALAR_TYPES[kind]


def stored_type(kind: str) -> str:
    """LLVM type of a value in memory."""
    return "i8" if kind == "bool" else scalar_type(kind)


def literal(x, kind: str) -> str:
    if kind in FLOATS:
        with np.errstate(over="ignore"):
            rounded = float(np.float32(x)) if kind == "f32" else float(x)
        return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"
    if kind == "bool":
        return "true" if x else "false"
    return str(int(x))


class FunctionText:
    """Lines of a function, with a vector of `width` lanes or a scalar for each node of a program.

    Attributes:
        width: Samples per vector.
        uniform: Nodes whose values are equal for all samples; these nodes become scalars.
    """

    def __init__(self, width: int, uniform: set[Node]):
        self.width, self.uniform = width, uniform
        self._lines: list[str] = []
        self._declared: set[str] = set()
        self._names: dict[Node, str] = {}
        self._splats: dict[str, str] = {}
        self._block = "entry"
        self._count = 0

    def _emit(self, line: str) -> None:
        self._lines.append(" " + line)

    def _fresh(self) -> str:
        self._count += 1
        return f"%x{self._count}"

    def _label(self, kind: str) -> str:
        """A new name of a block and of the names that belong to it."""
        return kind + self._fresh().removeprefix("%x")

    def _let(self, expression: str) -> str:
        name = self._fresh()
        self._lines.append(f" {name} = {expression}")
        return name

    def _start(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self._block = label
        self._splats = {}

    def _vector(self, kind: str, stored: bool = False) -> str:
        scalar = stored_type(kind) if stored else scalar_type(kind)
        return scalar if self.width == 1 else f"<{self.width} x {scalar}>"

    def _type(self, node: Node) -> str:
        return scalar_type(node.type) if node in self.uniform else self._vector(node.type)

    def _call(self, name: str, kind: str, width: int, operands: Sequence[str]) -> str:
        """Call of an LLVM intrinsic."""
        scalar = scalar_type(kind)
        full = scalar if width == 1 else f"<{width} x {scalar}>"
        suffix = ("" if width == 1 else f"v{width}") + (f"f{kind[1:]}" if kind in FLOATS else f"i{kind[1:]}")
        self._declared.add(f"declare {full} @llvm.{name}.{suffix}({', '.join([full] * len(operands))})")
        return f"call {full} @llvm.{name}.{suffix}({', '.join(f'{full} {o}' for o in operands)})"

    def _scalar_ref(self, x: Scalar, kind: str) -> str:
        return self._names[x] if type(x) is Node else literal(x, kind)

    def _ref(self, x: Scalar, kind: str, as_vector: bool) -> str:
        """Reference to a value, as a vector if required."""
        if type(x) is not Node:
            known = literal(x, kind)
            return known if not as_vector or self.width == 1 else f"splat ({scalar_type(kind)} {known})"
        if as_vector and self.width > 1 and x in self.uniform:
            return self._splat(self._names[x], scalar_type(kind))
        return self._names[x]

    def _splat(self, name: str, scalar: str) -> str:
        if name not in self._splats:
            full = f"<{self.width} x {scalar}>"
            first = self._let(f"insertelement {full} poison, {scalar} {name}, i64 0")
            self._splats[name] = self._let(
                f"shufflevector {full} {first}, {full} poison, <{self.width} x i32> zeroinitializer"
            )
        return self._splats[name]
