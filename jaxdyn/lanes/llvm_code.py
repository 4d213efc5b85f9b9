"""LLVM code of a scalar program: one vector instruction per operation, one sample per vector lane.

The kernel works on blocks of `width` samples. Arrays arrive as JAX lays them out, one sample after the other; short ones are turned
into one vector per number in a scratch area ("staged"), long ones are read where they are, lane by lane. What is the same for
all samples is computed once, as plain numbers. The last block overlaps the one before it where the batch does not divide.
"""

import math
import struct
from collections.abc import Sequence

import numpy as np

from jaxdyn.lanes import transcendental
from jaxdyn.lanes.liveness import Liveness, count_operations, uniform_nodes
from jaxdyn.lanes.program import FLOATS, TRANSCENDENTAL, Block, Loop, Node, Program, Region, Scalar, Stretch
from jaxdyn.lanes.schedule import Schedule

_BYTES = {"f32": 4, "f64": 8, "bool": 1}
_ALIGNMENT = 64


def bytes_of(kind: str) -> int:
    return _BYTES.get(kind) or int(kind[1:]) // 8


def _scalar(kind: str) -> str:
    """LLVM type of a number in a register."""
    return {"f32": "float", "f64": "double", "bool": "i1"}.get(kind) or f"i{kind[1:]}"


def _stored(kind: str) -> str:
    """LLVM type of a number in memory."""
    return "i8" if kind == "bool" else _scalar(kind)


def _literal(x, kind: str) -> str:
    if kind in FLOATS:
        with np.errstate(over="ignore"):
            rounded = float(np.float32(x)) if kind == "f32" else float(x)
        return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"
    if kind == "bool":
        return "true" if x else "false"
    return str(int(x))


class _Place:
    """Where a region lies; `base` is an SSA pointer.

    In "rows" each sample has its own row of `row` numbers; in "columns" each number has those of all samples of the batch; in
    "vectors" each number is a vector over the lanes of a block; in "shared" there is one number for all.
    """

    __slots__ = ("base", "layout", "row")

    def __init__(self, layout: str, base: str, row: int = 0):
        self.layout, self.base, self.row = layout, base, row


_FLOAT_OPS = {
    "add": "fadd contract",
    "sub": "fsub contract",
    "mul": "fmul contract",
    "div": "fdiv contract",
    "rem": "frem",
}
_INTEGER_OPS = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "shift_left": "shl",
    "shift_right_logical": "lshr",
    "shift_right_arithmetic": "ashr",
}
_FLOAT_CALLS = {
    "abs": "fabs",
    "sqrt": "sqrt",
    "floor": "floor",
    "ceil": "ceil",
    "round_even": "roundeven",
    "min": "minimum",
    "max": "maximum",
}


class KernelCode:
    """LLVM text of the kernel of a program.

    Attributes:
        text: the module, with `void @kernel(ptr buffers, i64 first, i64 last, i64 batch, ptr scratch)`.
        scratch_bytes: what a kernel needs.
        operations: scalar operations per sample.
        nodes: operations in the text.
    """

    def __init__(self, program: Program, width: int, inputs: Sequence[str], outputs: Sequence[str]):
        """Args: layout of each input ("rows", "columns" or "shared") and output ("rows" or "columns")."""
        self.program, self.width = program, width
        self.inputs, self.outputs = inputs, outputs
        self.shared_inputs = [layout == "shared" for layout in inputs]
        self.live = Liveness(program)
        self.uniform = uniform_nodes(program, self.live, self.shared_inputs)
        self.schedule = Schedule(program, self.live)
        self.operations = count_operations(program, self.live)
        self.nodes = len(self.live.nodes)
        self.scratch_bytes = 0
        self._lines: list[str] = []
        self._globals: list[str] = []
        self._declared: set[str] = set()
        self._functions: set[tuple[str, str, int]] = set()
        self._names: dict[Node, str] = {}
        self._splats: dict[str, str] = {}
        self._places: dict[Node, _Place] = {}
        self._block = "entry"
        self._count = 0
        self._loaded = self._regions_read()
        self.text = self._kernel()

    # -- text

    def _emit(self, line: str) -> None:
        self._lines.append(" " + line)

    def _fresh(self) -> str:
        self._count += 1
        return f"%x{self._count}"

    def _let(self, expression: str) -> str:
        name = self._fresh()
        self._lines.append(f" {name} = {expression}")
        return name

    def _start(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self._block = label
        self._splats = {}

    def _vector(self, kind: str, stored: bool = False) -> str:
        scalar = _stored(kind) if stored else _scalar(kind)
        return scalar if self.width == 1 else f"<{self.width} x {scalar}>"

    def _type(self, node: Node) -> str:
        return _scalar(node.type) if node in self.uniform else self._vector(node.type)

    def _call(self, name: str, kind: str, width: int, operands: Sequence[str]) -> str:
        """Call of an LLVM intrinsic."""
        scalar = _scalar(kind)
        full = scalar if width == 1 else f"<{width} x {scalar}>"
        suffix = ("" if width == 1 else f"v{width}") + (f"f{kind[1:]}" if kind in FLOATS else f"i{kind[1:]}")
        self._declared.add(f"declare {full} @llvm.{name}.{suffix}({', '.join([full] * len(operands))})")
        return f"call {full} @llvm.{name}.{suffix}({', '.join(f'{full} {o}' for o in operands)})"

    # -- values

    def _scalar_ref(self, x: Scalar, kind: str) -> str:
        return self._names[x] if type(x) is Node else _literal(x, kind)

    def _ref(self, x: Scalar, kind: str, as_vector: bool) -> str:
        """Reference to a number, as a vector if wanted."""
        if type(x) is not Node:
            literal = _literal(x, kind)
            return literal if not as_vector or self.width == 1 else f"splat ({_scalar(kind)} {literal})"
        if as_vector and self.width > 1 and x in self.uniform:
            return self._splat(self._names[x], _scalar(kind))
        return self._names[x]

    def _splat(self, name: str, scalar: str) -> str:
        if name not in self._splats:
            full = f"<{self.width} x {scalar}>"
            first = self._let(f"insertelement {full} poison, {scalar} {name}, i64 0")
            self._splats[name] = self._let(
                f"shufflevector {full} {first}, {full} poison, <{self.width} x i32> zeroinitializer"
            )
        return self._splats[name]

    # -- memory

    def _regions_read(self) -> set[Node]:
        """Regions that are read number by number or copied, rather than handed out whole."""
        read = {node.args[0] for node in self.live.nodes if node.op == "load"}
        for node in self.live.nodes:
            if node.op == "loop":
                for which in self.live.collected[node.data]:
                    numbers = node.data.collected[which][1]
                    if isinstance(numbers, Stretch):
                        read.add(numbers.region)
        return read

    def _reserve(self, kind: str, size: int) -> str:
        """A piece of scratch for `size` vectors."""
        start = self.scratch_bytes
        length = size * self.width * bytes_of(kind)
        self.scratch_bytes += -(-length // _ALIGNMENT) * _ALIGNMENT
        return self._let(f"getelementptr i8, ptr %scratch, i64 {start}")

    def _assign_places(self) -> None:
        """Outputs and what goes into them straight; everything else gets its own piece of scratch when it is made."""
        for k, (output, kind) in enumerate(zip(self.program.outputs, self.program.output_types, strict=True)):
            if isinstance(output, Stretch) and output.offset == 0 and output.size == output.region.data.size:
                self._hand_out(output.region, self._output_place(k), bytes_of(kind))

    def _output_place(self, k: int) -> _Place:
        output = self.program.outputs[k]
        size = output.size if isinstance(output, Stretch) else len(output)
        return _Place(self.outputs[k], f"%out{k}", size)

    def _hand_out(self, region: Node, place: _Place, item: int) -> None:
        data: Region = region.data
        if region in self._places or region in self._loaded or data.kind not in ("loop", "pieces"):
            return
        self._places[region] = place
        start = 0
        for part in data.pieces:
            size = part.size if isinstance(part, Stretch) else len(part)
            if isinstance(part, Stretch) and part.offset == 0 and part.size == part.region.data.size:
                skipped = str(start * item)
                if place.layout == "columns":
                    skipped = self._let(f"mul i64 %batch, {skipped}")
                base = self._let(f"getelementptr i8, ptr {place.base}, i64 {skipped}")
                self._hand_out(part.region, _Place(place.layout, base, place.row), item)
            start += size

    def _place(self, region: Node) -> _Place:
        """Where a region lies; scratch is reserved at the first question."""
        if region not in self._places:
            data: Region = region.data
            if data.kind == "table":
                name = f"@table{len(self._globals)}"
                stored = _stored(data.type)
                numbers = ", ".join(f"{stored} {self._table_literal(v, data.type)}" for v in data.values.tolist())
                self._globals.append(f"{name} = internal constant [{data.size} x {stored}] [{numbers}], align 64")
                self._places[region] = _Place("shared", name)
            else:
                self._places[region] = _Place("vectors", self._reserve(data.type, data.size))
        return self._places[region]

    @staticmethod
    def _table_literal(x, kind: str) -> str:
        return str(int(x)) if kind == "bool" else _literal(x, kind)

    def _load(self, region: Node, index: str, varying_index: bool, as_vector: bool) -> str:
        """Number `index` (an i64, or a vector of them) of a region."""
        place, kind = self._place(region), region.data.type
        stored, scalar, width = _stored(kind), _scalar(kind), self.width
        if place.layout == "shared" and not varying_index:
            pointer = self._let(f"getelementptr {stored}, ptr {place.base}, i64 {index}")
            loaded = self._truth(self._let(f"load {stored}, ptr {pointer}"), kind, 1)
            return self._splat(loaded, scalar) if as_vector and width > 1 else loaded
        if place.layout in ("vectors", "columns") and not varying_index:
            vector = self._vector(kind, stored=True)
            pointer, aligned = self._vector_pointer(place, kind, index)
            return self._truth(self._let(f"load {vector}, ptr {pointer}, align {aligned}"), kind, width)
        if width == 1:
            pointer = self._let(f"getelementptr {stored}, ptr {place.base}, i64 {index}")
            return self._truth(self._let(f"load {stored}, ptr {pointer}"), kind, 1)
        gathered = "poison"
        for lane in range(width):
            at = self._let(f"extractelement <{width} x i64> {index}, i64 {lane}") if varying_index else index
            pointer = self._lane_pointer(place, stored, at, lane)
            one = self._let(f"load {stored}, ptr {pointer}")
            gathered = self._let(f"insertelement <{width} x {stored}> {gathered}, {stored} {one}, i64 {lane}")
        return self._truth(gathered, kind, width)

    def _lane_pointer(self, place: _Place, stored: str, index: str, lane: int) -> str:
        if place.layout == "rows":
            index = self._let(f"add i64 {index}, {lane * place.row}") if lane and place.row else index
        elif place.layout != "shared":
            scaled = self._let(f"mul i64 {index}, {self.width if place.layout == 'vectors' else '%batch'}")
            index = self._let(f"add i64 {scaled}, {lane}")
        return self._let(f"getelementptr {stored}, ptr {place.base}, i64 {index}")

    def _vector_pointer(self, place: _Place, kind: str, index: str) -> tuple[str, int]:
        """Pointer to number `index` of a block of samples, and its alignment."""
        if place.layout == "columns":
            scaled = self._let(f"mul i64 {index}, %batch")
            return self._let(f"getelementptr {_stored(kind)}, ptr {place.base}, i64 {scaled}"), bytes_of(kind)
        pointer = self._let(f"getelementptr {self._vector(kind, stored=True)}, ptr {place.base}, i64 {index}")
        return pointer, min(_ALIGNMENT, self.width * bytes_of(kind)) if self.width > 1 else bytes_of(kind)

    def _truth(self, loaded: str, kind: str, width: int) -> str:
        if kind != "bool":
            return loaded
        full = "i8" if width == 1 else f"<{width} x i8>"
        return self._let(f"icmp ne {full} {loaded}, zeroinitializer" if width > 1 else f"icmp ne i8 {loaded}, 0")

    def _store(self, place: _Place, kind: str, index: str, value: str) -> None:
        """Store a vector as number `index` of a place that is not in rows, unless there is but one lane."""
        if kind == "bool":
            value = self._let(f"zext {self._vector(kind)} {value} to {self._vector(kind, stored=True)}")
        vector = self._vector(kind, stored=True)
        pointer, aligned = self._vector_pointer(place, kind, index)
        self._emit(f"store {vector} {value}, ptr {pointer}, align {aligned}")

    def _store_many(self, place: _Place, kind: str, offset: str, values: Sequence[Scalar]) -> None:
        """Store numbers one after the other from `offset` on."""
        if not values:
            return
        direct = place.layout != "rows" or self.width == 1
        stage = place if direct else _Place("vectors", self._reserve(kind, len(values)))
        for k, x in enumerate(values):
            at = str(k)
            if direct:
                at = self._let(f"add i64 {offset}, {k}") if k else offset
            self._store(stage, kind, at, self._ref(x, kind, as_vector=True))
        if not direct:
            pointer = self._let(f"getelementptr {_stored(kind)}, ptr {place.base}, i64 {offset}")
            self._transposition("put", kind, stage.base, pointer, len(values), place.row)

    def _transposition(self, name: str, kind: str, vectors: str, rows: str, count: int, row: int) -> None:
        """Rows of samples to vectors of numbers ("get"), or back ("put"), by a function that all arrays of a type share."""
        self._functions.add((name, _stored(kind), self.width))
        self._emit(f"call void @{name}.{_stored(kind)}(ptr {vectors}, ptr {rows}, i64 {count}, i64 {row})")

    def _copy(self, source: Stretch, place: _Place, offset: str) -> None:
        """Copy a stretch, number by number, in a loop."""
        kind = source.region.data.type
        start = self._index(source.offset)
        label = f"copy{self._count}"
        before = self._block
        self._emit(f"br label %{label}")
        self._start(label)
        k, following = f"%k.{label}", f"%n.{label}"
        self._emit(f"{k} = phi i64 [0, %{before}], [{following}, %{label}]")
        value = self._load(source.region, self._let(f"add i64 {start}, {k}"), False, as_vector=True)
        at = self._let(f"add i64 {offset}, {k}")
        if place.layout != "rows" or self.width == 1:
            self._store(place, kind, at, value)
        else:
            if kind == "bool":
                value = self._let(f"zext {self._vector(kind)} {value} to {self._vector(kind, stored=True)}")
            stored = _stored(kind)
            for lane in range(self.width):
                one = self._let(f"extractelement <{self.width} x {stored}> {value}, i64 {lane}")
                self._emit(f"store {stored} {one}, ptr {self._lane_pointer(place, stored, at, lane)}")
        self._emit(f"{following} = add i64 {k}, 1")
        more = self._let(f"icmp ult i64 {following}, {source.size}")
        self._emit(f"br i1 {more}, label %{label}, label %{label}.end")
        self._start(f"{label}.end")

    def _index(self, x: Scalar) -> str:
        return self._names[x] if type(x) is Node else str(int(x))

    # -- operations

    def _operation(self, node: Node) -> None:
        op, kind, args = node.op, node.type, node.args
        uniform = node in self.uniform
        width = 1 if uniform else self.width
        names = self._names
        if op == "load":
            region, index = args
            varying_index = type(index) is Node and index not in self.uniform and self.width > 1
            names[node] = self._load(region, self._index(index), varying_index, as_vector=not uniform)
            return
        if op in TRANSCENDENTAL:
            names[node] = self._transcendental(node, width)
            return
        source = kind
        if op in ("lt", "le", "eq"):
            source = next((a.type for a in args if type(a) is Node), kind)
        refs = [self._ref(a, source, not uniform) for a in args] if op not in ("select", "convert") else []
        full = _scalar(source) if width == 1 else f"<{width} x {_scalar(source)}>"
        if op in ("lt", "le", "eq"):
            names[node] = self._let(f"{_comparison(op, source)} {full} {refs[0]}, {refs[1]}")
        elif op == "select":
            condition, if_true, if_false = args
            choice = f"i1 {self._scalar_ref(condition, 'bool')}"
            if not uniform and self.width > 1 and not (type(condition) is Node and condition in self.uniform):
                choice = f"<{width} x i1> {self._ref(condition, 'bool', True)}"
            true, false = (self._ref(x, kind, not uniform) for x in (if_true, if_false))
            names[node] = self._let(f"select {choice}, {full} {true}, {full} {false}")
        elif op == "convert":
            names[node] = self._conversion(node.data, kind, self._ref(args[0], node.data, not uniform), width)
        elif op == "not":
            ones = "true" if kind == "bool" else "-1"
            ones = ones if width == 1 else f"splat ({_scalar(kind)} {ones})"
            names[node] = self._let(f"xor {full} {refs[0]}, {ones}")
        elif op == "neg":
            zero = "zeroinitializer" if width > 1 else "0"
            text = f"fneg {full} {refs[0]}" if kind in FLOATS else f"sub {full} {zero}, {refs[0]}"
            names[node] = self._let(text)
        elif kind in FLOATS and op in _FLOAT_OPS:
            names[node] = self._let(f"{_FLOAT_OPS[op]} {full} {refs[0]}, {refs[1]}")
        elif kind in FLOATS and op in _FLOAT_CALLS:
            names[node] = self._let(self._call(_FLOAT_CALLS[op], kind, width, refs))
        elif op in _INTEGER_OPS:
            names[node] = self._let(f"{_INTEGER_OPS[op]} {full} {refs[0]}, {refs[1]}")
        elif op in ("min", "max"):
            name = ("u" if kind[0] == "u" else "s") + op
            names[node] = self._let(self._call(name, kind, width, refs))
        elif op == "abs":
            minus = self._let(f"sub {full} {'zeroinitializer' if width > 1 else '0'}, {refs[0]}")
            names[node] = self._let(self._call("smax", kind, width, [refs[0], minus]))
        elif op in ("div", "rem") and type(args[1]) is not Node and args[1] != 0:
            name = ("u" if kind[0] == "u" else "s") + op
            names[node] = self._let(f"{name} {full} {refs[0]}, {refs[1]}")
        else:
            raise NotImplementedError(f"{op} of {kind} has no LLVM form")

    def _conversion(self, source: str, target: str, ref: str, width: int) -> str:
        before, after = (_scalar(k) if width == 1 else f"<{width} x {_scalar(k)}>" for k in (source, target))
        if source in FLOATS and target in FLOATS:
            word = "fpext" if target == "f64" else "fptrunc"
        elif source in FLOATS:
            name = "fptoui.sat" if target[0] == "u" else "fptosi.sat"
            suffix = "" if width == 1 else f"v{width}"
            full = f"@llvm.{name}.{suffix}i{target[1:]}.{suffix}f{source[1:]}"
            self._declared.add(f"declare {after} {full}({before})")
            return self._let(f"call {after} {full}({before} {ref})")
        elif target in FLOATS:
            word = "uitofp" if source == "bool" or source[0] == "u" else "sitofp"
        else:
            bits = 1 if source == "bool" else int(source[1:])
            if bits == int(target[1:]):
                return ref
            word = "trunc" if bits > int(target[1:]) else "zext" if source == "bool" or source[0] == "u" else "sext"
        return self._let(f"{word} {before} {ref} to {after}")

    def _transcendental(self, node: Node, width: int) -> str:
        if node in self._names:  # sine and cosine come together
            return self._names[node]
        kind = node.type
        full = _scalar(kind) if width == 1 else f"<{width} x {_scalar(kind)}>"
        operands = ", ".join(f"{full} {self._ref(a, kind, width > 1)}" for a in node.args)
        partner = None
        if node.op in ("sin", "cos"):
            other = "cos" if node.op == "sin" else "sin"
            partner = node.block.memo.get((other, kind, None, *node.args))
        if partner is None or partner not in self.live.nodes:
            self._functions.add((node.op, kind, width))
            return self._let(f'call {full} @"{transcendental.symbol(node.op, kind, width)}"({operands})')
        self._functions.add(("sincos", kind, width))
        pair = f"{{ {full}, {full} }}"
        both = self._let(f'call {pair} @"{transcendental.symbol("sincos", kind, width)}"({operands})')
        sine, cosine = (node, partner) if node.op == "sin" else (partner, node)
        self._names[sine] = self._let(f"extractvalue {pair} {both}, 0")
        self._names[cosine] = self._let(f"extractvalue {pair} {both}, 1")
        return self._names[node]

    # -- blocks

    def _nodes(self, block: Block) -> None:
        for node in self.schedule.order[block]:
            if node.op == "loop":
                self._loop(node.data)
            elif node.op == "result":
                loop: Loop = node.args[0].data
                following = loop.following[node.data]
                as_vector = node not in self.uniform
                self._names[node] = self._ref(following, node.type, as_vector)
            elif node.op == "region":
                if node.data.kind == "pieces":
                    self._pieces(node)
            elif node.op not in ("carry", "counter") and node not in self._names:
                self._operation(node)

    def _pieces(self, node: Node) -> None:
        data: Region = node.data
        place, start = self._place(node), 0
        for part in data.pieces:
            if isinstance(part, Stretch):
                inside = self._places.get(part.region)
                if inside is None or inside.layout != place.layout or inside.layout == "vectors":
                    self._copy(part, place, str(start))
                start += part.size
            else:
                self._store_many(place, data.type, str(start), part)
                start += len(part)

    def _loop(self, loop: Loop) -> None:
        label = f"loop{self._count}"
        self._count += 1
        carries = self.live.carries[loop]
        for which in self.live.collected[loop]:
            self._place(self._region_of(loop, which))  # reserved before the loop, where it dominates every use
        initial = {}
        for i in carries:
            node = loop.carries[i]
            initial[i] = self._ref(loop.initial[i], node.type, node not in self.uniform)
        before = self._block
        self._emit(f"br label %{label}")
        self._start(label)
        # The phis need the names of the following values, so their text is put in afterwards.
        phis = len(self._lines)
        counter, following_counter = f"%k.{label}", f"%n.{label}"
        self._names[loop.counter] = counter
        for i in carries:
            self._names[loop.carries[i]] = f"%c{i}.{label}"
        self._nodes(loop.body)
        for which in self.live.collected[loop]:
            position, numbers, size, kind = loop.collected[which]
            place = self._place(self._region_of(loop, which))
            if isinstance(numbers, Stretch):
                self._copy(numbers, place, self._index(position))
            elif size:
                self._store_many(place, kind, self._index(position), numbers)
        text = []
        following = {}
        for i in carries:
            node = loop.carries[i]
            following[i] = self._ref(loop.following[i], node.type, node not in self.uniform)
        latch = self._block
        text.append(f" {counter} = phi i64 [0, %{before}], [{following_counter}, %{latch}]")
        for i in carries:
            node = loop.carries[i]
            full = self._type(node)
            text.append(f" {self._names[node]} = phi {full} [{initial[i]}, %{before}], [{following[i]}, %{latch}]")
        self._lines[phis:phis] = text
        self._emit(f"{following_counter} = add i64 {counter}, 1")
        more = self._let(f"icmp ult i64 {following_counter}, {loop.length}")
        self._emit(f"br i1 {more}, label %{label}, label %{label}.end")
        kept = dict(self._splats)
        self._start(f"{label}.end")
        self._splats = kept  # what the last block of the loop knew holds after it

    def _region_of(self, loop: Loop, which: int) -> Node:
        return self._collected_regions[loop, which]

    def _kernel(self) -> str:
        program, width = self.program, self.width
        self._collected_regions = {
            (node.args[0].data, node.data.which): node
            for node in self.live.nodes
            if node.op == "region" and node.data.kind == "loop"
        }
        inputs = [
            n for n in program.block.nodes if n.op == "region" and n.data.kind == "input" and n in self.live.nodes
        ]
        for k in range(len(program.inputs) + len(program.outputs)):
            self._emit(f"%pp{k} = getelementptr ptr, ptr %buffers, i64 {k}")
            self._emit(f"%p{k} = load ptr, ptr %pp{k}")
        for node in inputs:
            if self.shared_inputs[node.data.which]:
                self._places[node] = _Place("shared", f"%p{node.data.which}")
        # What is the same for all samples comes first, as far as it needs no loop.
        ahead: set[Node] = set()
        for node in self.schedule.order[program.block]:
            if node in self.uniform and node.op not in ("loop", "result", "region"):
                if all(type(a) is not Node or a in ahead or a.op == "region" for a in node.args):
                    ahead.add(node)
                    if node not in self._names:
                        self._operation(node)
        self._emit("br label %lanes")
        self._start("lanes")
        self._emit("%block = phi i64 [%first, %entry], [%block.next, %lanes.latch]")
        start = self._let(f"mul i64 %block, {width}")
        if width > 1:
            last = self._let(f"sub i64 %batch, {width}")
            start = self._let(self._call("smin", "i64", 1, [start, last]))
        for node in inputs:
            k, size, kind = node.data.which, node.data.size, node.data.type
            if self.shared_inputs[k]:
                continue
            row = 1 if self.inputs[k] == "columns" else size
            offset = self._let(f"mul i64 {start}, {row * bytes_of(kind)}")
            rows = self._let(f"getelementptr i8, ptr %p{k}, i64 {offset}")
            self._places[node] = _Place(self.inputs[k], rows, size)
            if width > 1 and self.inputs[k] == "rows" and self._is_staged(node):
                vectors = self._reserve(kind, size)
                self._transposition("get", kind, vectors, rows, size, size)
                self._places[node] = _Place("vectors", vectors)
        for k, (output, kind) in enumerate(zip(program.outputs, program.output_types, strict=True)):
            row = 1 if self.outputs[k] == "columns" else self._output_place(k).row
            offset = self._let(f"mul i64 {start}, {row * bytes_of(kind)}")
            self._emit(f"%out{k} = getelementptr i8, ptr %p{len(program.inputs) + k}, i64 {offset}")
        self._assign_places()
        self._nodes(program.block)
        for k, (output, kind) in enumerate(zip(program.outputs, program.output_types, strict=True)):
            if isinstance(output, Stretch):
                inside = self._places.get(output.region)
                if inside is None or inside.base != f"%out{k}":
                    self._copy(output, self._output_place(k), "0")
            else:
                self._store_many(self._output_place(k), kind, "0", output)
        self._emit("br label %lanes.latch")
        self._start("lanes.latch")
        self._emit("%block.next = add i64 %block, 1")
        self._emit("%more = icmp ult i64 %block.next, %last")
        self._emit("br i1 %more, label %lanes, label %end")
        self._lines += ["end:", " ret void"]
        head = "define internal void @kernel(ptr noalias %buffers, i64 %first, i64 %last, i64 %batch, ptr noalias %scratch)"
        needed = {f for f in self._functions if f[0] in transcendental.FUNCTIONS}
        moves = [_transposition_code(*f) for f in sorted(self._functions - needed)]
        body = "\n".join([f"{head} nounwind {{", "entry:", *self._lines, "}"])
        parts = [*sorted(self._declared), *self._globals, *moves, transcendental.definitions(sorted(needed)), body]
        return "\n".join(parts)

    def _is_staged(self, node: Node) -> bool:
        """Whether an input is turned into vectors as a whole: short ones, and those read at all known positions."""
        indices = [n.args[1] for n in self.live.nodes if n.op == "load" and n.args[0] is node]
        return len(indices) > 1 and all(type(i) is not Node for i in indices) and node.data.size <= 4 * len(indices)


def _comparison(op: str, kind: str) -> str:
    if kind in FLOATS:
        return f"fcmp o{op}" if op != "eq" else "fcmp oeq"
    if op == "eq":
        return "icmp eq"
    return f"icmp {'u' if kind[0] in 'ub' else 's'}{op}"


def _transposition_code(name: str, stored: str, width: int) -> str:
    """Function that turns `count` numbers of `width` rows, `row` numbers apart, into vectors, or back."""
    vector = f"<{width} x {stored}>"
    lines = [
        f"define internal void @{name}.{stored}(ptr noalias %vectors, ptr noalias %rows, i64 %count, i64 %row) noinline nounwind {{",
        "entry:",
        *(f" %o{lane} = mul i64 %row, {lane}" for lane in range(width)),
        *(f" %r{lane} = getelementptr {stored}, ptr %rows, i64 %o{lane}" for lane in range(width)),
        " br label %loop",
        "loop:",
        " %k = phi i64 [0, %entry], [%n, %loop]",
        f" %p = getelementptr {vector}, ptr %vectors, i64 %k",
    ]
    lines += [f" %q{lane} = getelementptr {stored}, ptr %r{lane}, i64 %k" for lane in range(width)]
    if name == "get":
        before = "poison"
        for lane in range(width):
            lines.append(f" %x{lane} = load {stored}, ptr %q{lane}")
            lines.append(f" %v{lane} = insertelement {vector} {before}, {stored} %x{lane}, i64 {lane}")
            before = f"%v{lane}"
        lines.append(f" store {vector} {before}, ptr %p")
    else:
        lines.append(f" %v = load {vector}, ptr %p")
        for lane in range(width):
            lines.append(f" %x{lane} = extractelement {vector} %v, i64 {lane}")
            lines.append(f" store {stored} %x{lane}, ptr %q{lane}")
    lines += [" %n = add i64 %k, 1", " %m = icmp ult i64 %n, %count", " br i1 %m, label %loop, label %end", "end:"]
    return "\n".join([*lines, " ret void", "}"])


def widest(kinds: Sequence[str], register_bytes: int) -> int:
    """Lanes of a register for the widest floating-point type present."""
    item = max((bytes_of(k) for k in kinds if k in FLOATS), default=4)
    return max(1, register_bytes // item)


def width_for(batch: int, widest_width: int) -> int:
    """The largest power of two that neither a register nor the batch exceeds."""
    return min(widest_width, 2 ** int(math.log2(max(1, batch))))
