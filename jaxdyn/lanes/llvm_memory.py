"""Regions of memory in LLVM code: their location, and loading and storing of their values.

Arrays have the layout of JAX, one sample after the other. Short arrays are converted to one vector per value in a scratch area
("staged"); long arrays are read in place, lane by lane. A result that a loop collects is written directly to its output.
"""

from collections.abc import Sequence

from jaxdyn.lanes.liveness import Liveness
from jaxdyn.lanes.llvm_text import FunctionText, bytes_of, literal, scalar_type, stored_type
from jaxdyn.lanes.program import Node, Program, Region, Scalar, Stretch

# Alignment of vectors in scratch memory, the length of a cache line.
ALIGNMENT = 64


# Maximum size of a region that loops read or fill in parts, for it to be converted from or to rows as a whole.
KEPT_WHOLE = 2**16


class Place:
    """Location of a region; `base` is an SSA pointer.

    In the layout "rows", each sample has a contiguous row of `row` values. In "columns", each value is contiguous over `samples`
    samples, which are the whole batch except in scratch memory. In "vectors", each value is a vector over the lanes of a block. In
    "shared", each value is the same for all samples.
    """

    __slots__ = ("base", "layout", "row", "samples")

    def __init__(self, layout: str, base: str, row: int = 0, samples: str = "%batch"):
        self.layout, self.base, self.row, self.samples = layout, base, row, samples


class MemoryText(FunctionText):
    """Lines of a function that reads and writes regions.

    Attributes:
        program, live: Program, and its nodes on which the outputs depend.
        outputs: Layout of each output.
        written: Indices of the outputs that this function writes.
        scratch_bytes: Scratch memory that has been reserved so far.
        functions: Called functions as (name, type, width).
    """

    def __init__(self, program: Program, live: Liveness, width: int, uniform: set[Node], outputs: Sequence[str]):
        super().__init__(width, uniform)
        self.program, self.live, self.outputs = program, live, outputs
        self.written: Sequence[int] = range(len(outputs))
        self.scratch_bytes = 0
        self.functions: set[tuple[str, str, int]] = set()
        self._globals: list[str] = []
        self._places: dict[Node, Place] = {}
        self._loaded = self._regions_read()
        self._in_place: set[tuple[Node, int]] = set()  # pieces that are computed in their final place

    def _regions_read(self) -> set[Node]:
        """Regions that are read element by element or copied, rather than written directly to an output."""
        read = {node.args[0] for node in self.live.nodes if node.op == "load"}
        for node in self.live.nodes:
            if node.op == "loop":
                read.update(a for a in node.args if type(a) is Node and a.op == "region")
                for which in self.live.collected[node.data]:
                    values = node.data.collected[which][1]
                    if isinstance(values, Stretch):
                        read.add(values.region)
        return read

    def _reserve(self, kind: str, size: int) -> str:
        """Part of the scratch memory for `size` vectors."""
        return self._scratch_pointer(self._reserved_bytes(size * self.width * bytes_of(kind)))

    def _reserved_bytes(self, length: int) -> int:
        """Start of a part of the scratch memory of `length` bytes."""
        start = self.scratch_bytes
        self.scratch_bytes += -(-length // ALIGNMENT) * ALIGNMENT
        return start

    def _scratch_pointer(self, start: int) -> str:
        return self._let(f"getelementptr i8, ptr %scratch, i64 {start}")

    def _scratch_place(self, kind: str, size: int) -> Place:
        """Location of a region that is neither an input nor an output."""
        return Place("vectors", self._reserve(kind, size))

    def _assign_places(self) -> None:
        """Assign outputs and the regions that are written directly to them; other regions get scratch memory on first use."""
        for k in self.written:
            output, kind = self.program.outputs[k], self.program.output_types[k]
            if isinstance(output, Stretch) and output.offset == 0 and output.size == output.region.data.size:
                self._hand_out(output.region, self._output_place(k), bytes_of(kind))

    def _output_place(self, k: int) -> Place:
        output = self.program.outputs[k]
        size = output.size if isinstance(output, Stretch) else len(output)
        return Place(self.outputs[k], f"%out{k}", size)

    def _hand_out(self, region: Node, place: Place, item: int) -> bool:
        """Place a region, and the regions that it consists of, in `place`; False if the region must stay elsewhere."""
        data: Region = region.data
        if region in self._places or region in self._loaded or data.kind not in ("loop", "pieces"):
            return False
        if place.layout == "rows" and data.kind == "loop" and self._is_in_small_parts(region):
            return False
        self._places[region] = place
        start = 0
        for piece, part in enumerate(data.pieces):
            size = part.size if isinstance(part, Stretch) else len(part)
            if isinstance(part, Stretch) and part.offset == 0 and part.size == part.region.data.size:
                skipped = str(start * item)
                if place.layout == "columns":
                    skipped = self._let(f"mul i64 %batch, {skipped}")
                base = self._let(f"getelementptr i8, ptr {place.base}, i64 {skipped}")
                if self._hand_out(part.region, Place(place.layout, base, place.row), item):
                    self._in_place.add((region, piece))
            start += size
        return True

    def _is_in_small_parts(self, region: Node) -> bool:
        """True if a loop collects so few values per iteration that they are better converted to rows after the loop."""
        size = region.args[0].data.collected[region.data.which][2]
        return size < self.width and region.data.size <= KEPT_WHOLE

    def _place(self, region: Node) -> Place:
        """Location of a region; scratch memory is reserved on first use."""
        if region not in self._places:
            data: Region = region.data
            if data.kind == "table":
                name = f"@table{len(self._globals)}"
                stored = stored_type(data.type)
                values = ", ".join(f"{stored} {self._table_literal(v, data.type)}" for v in data.values.tolist())
                self._globals.append(f"{name} = internal constant [{data.size} x {stored}] [{values}], align 64")
                self._places[region] = Place("shared", name)
            else:
                self._places[region] = self._scratch_place(data.type, data.size)
        return self._places[region]

    @staticmethod
    def _table_literal(x, kind: str) -> str:
        return str(int(x)) if kind == "bool" else literal(x, kind)

    def _load(self, region: Node, index: str, varying_index: bool, as_vector: bool) -> str:
        """Element `index` (an i64, or a vector of them) of a region."""
        place, kind = self._place(region), region.data.type
        stored, scalar, width = stored_type(kind), scalar_type(kind), self.width
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

    def _lane_pointer(self, place: Place, stored: str, index: str, lane: int) -> str:
        if place.layout == "rows":
            index = self._let(f"add i64 {index}, {lane * place.row}") if lane and place.row else index
        elif place.layout != "shared":
            scaled = self._let(f"mul i64 {index}, {self.width if place.layout == 'vectors' else place.samples}")
            index = self._let(f"add i64 {scaled}, {lane}")
        return self._let(f"getelementptr {stored}, ptr {place.base}, i64 {index}")

    def _vector_pointer(self, place: Place, kind: str, index: str) -> tuple[str, int]:
        """Pointer to element `index` of a block of samples, and its alignment."""
        if place.layout == "columns":
            scaled = self._let(f"mul i64 {index}, {place.samples}")
            return self._let(f"getelementptr {stored_type(kind)}, ptr {place.base}, i64 {scaled}"), bytes_of(kind)
        pointer = self._let(f"getelementptr {self._vector(kind, stored=True)}, ptr {place.base}, i64 {index}")
        return pointer, self._alignment(kind)

    def _alignment(self, kind: str) -> int:
        """Alignment of a vector in scratch memory."""
        return min(ALIGNMENT, self.width * bytes_of(kind))

    def _truth(self, loaded: str, kind: str, width: int) -> str:
        if kind != "bool":
            return loaded
        full = "i8" if width == 1 else f"<{width} x i8>"
        return self._let(f"icmp ne {full} {loaded}, zeroinitializer" if width > 1 else f"icmp ne i8 {loaded}, 0")

    def _store(self, place: Place, kind: str, index: str, value: str) -> None:
        """Store a vector as element `index` of a place that is not in rows, unless there is only one lane."""
        if kind == "bool":
            value = self._let(f"zext {self._vector(kind)} {value} to {self._vector(kind, stored=True)}")
        vector = self._vector(kind, stored=True)
        pointer, aligned = self._vector_pointer(place, kind, index)
        self._emit(f"store {vector} {value}, ptr {pointer}, align {aligned}")

    def _store_many(self, place: Place, kind: str, offset: str, values: Sequence[Scalar]) -> None:
        """Store consecutive values from `offset` on."""
        if not values:
            return
        stage = self._stage(place, kind, len(values))
        for k, x in enumerate(values):
            at = str(k)
            if stage is place:
                at = self._let(f"add i64 {offset}, {k}") if k else offset
            self._store(stage, kind, at, self._ref(x, kind, as_vector=True))
        self._deliver(stage, place, kind, offset, len(values))

    def _stage(self, place: Place, kind: str, count: int) -> Place:
        """Place to store vectors that belong to `place`: the same place, or scratch memory if each sample has a row."""
        return place if place.layout != "rows" or self.width == 1 else Place("vectors", self._reserve(kind, count))

    def _deliver(self, stage: Place, place: Place, kind: str, offset: str, count: int) -> None:
        """Convert staged vectors to rows from `offset` on."""
        if stage is not place:
            pointer = self._let(f"getelementptr {stored_type(kind)}, ptr {place.base}, i64 {offset}")
            self._transposition("put", kind, stage.base, pointer, count, place.row)

    def _transposition(self, name: str, kind: str, vectors: str, rows: str, count: int, row: int) -> None:
        """Convert rows of samples to vectors ("get"), or vectors to rows ("put"), by a function that all arrays of a type share."""
        self.functions.add((name, stored_type(kind), self.width))
        self._emit(f"call void @{name}.{stored_type(kind)}(ptr {vectors}, ptr {rows}, i64 {count}, i64 {row})")

    def _varies(self, index: Scalar) -> bool:
        """True if a position differs between lanes."""
        return type(index) is Node and index not in self.uniform and self.width > 1

    def _copy(self, source: Stretch, place: Place, offset: str) -> None:
        """Copy a part of a region, element by element, in a loop."""
        if not source.size:  # the loop would copy one element
            return
        kind = source.region.data.type
        start, varying = self._index(source.offset), self._varies(source.offset)
        origin = self._place(source.region)
        if place.layout == "rows" and self.width > 1 and origin.layout == "vectors" and not varying:
            vectors = self._vector_pointer(origin, kind, start)[0]
            self._deliver(Place("vectors", vectors), place, kind, offset, source.size)
            return
        label = self._label("copy")
        before = self._block
        self._emit(f"br label %{label}")
        self._start(label)
        k, following = f"%k.{label}", f"%n.{label}"
        self._emit(f"{k} = phi i64 [0, %{before}], [{following}, %{label}]")
        if varying:
            vector = f"<{self.width} x i64>"
            index = self._let(f"add {vector} {start}, {self._splat(k, 'i64')}")
        else:
            index = self._let(f"add i64 {start}, {k}")
        value = self._load(source.region, index, varying, as_vector=True)
        at = self._let(f"add i64 {offset}, {k}")
        if place.layout != "rows" or self.width == 1:
            self._store(place, kind, at, value)
        else:
            if kind == "bool":
                value = self._let(f"zext {self._vector(kind)} {value} to {self._vector(kind, stored=True)}")
            stored = stored_type(kind)
            for lane in range(self.width):
                one = self._let(f"extractelement <{self.width} x {stored}> {value}, i64 {lane}")
                self._emit(f"store {stored} {one}, ptr {self._lane_pointer(place, stored, at, lane)}")
        self._emit(f"{following} = add i64 {k}, 1")
        more = self._let(f"icmp ult i64 {following}, {source.size}")
        self._emit(f"br i1 {more}, label %{label}, label %{label}.end")
        self._start(f"{label}.end")

    def _index(self, x: Scalar) -> str:
        return self._names[x] if type(x) is Node else str(int(x))


def transposition_code(name: str, stored: str, width: int) -> str:
    """Function that converts `count` values from each of `width` rows to vectors, or back; rows are `row` values apart.

    Every `width` values of the `width` rows form a square, which is transposed in registers; remaining values are converted one by
    one.

    Args:
        name: "get" for rows to vectors, "put" for vectors to rows.
        stored: LLVM type of a value in memory.
        width: Number of lanes.
    """
    vector = f"<{width} x {stored}>"
    size = int(stored.lstrip("i")) // 8 if stored[0] == "i" else {"float": 4, "double": 8}[stored]
    lanes = range(width)
    lines = [
        f"define internal void @{name}.{stored}(ptr noalias %vectors, ptr noalias %rows, i64 %count, i64 %row)",
        "noinline nounwind {",
        "entry:",
        *(f" %o{lane} = mul i64 %row, {lane}" for lane in lanes),
        *(f" %r{lane} = getelementptr {stored}, ptr %rows, i64 %o{lane}" for lane in lanes),
        f" %squares = udiv i64 %count, {width}",
        f" %whole = mul i64 %squares, {width}",
        " %some = icmp ne i64 %whole, 0",
        " br i1 %some, label %square, label %rest",
        "square:",
        " %s = phi i64 [0, %entry], [%t, %square]",
        *(f" %sq{lane} = getelementptr {stored}, ptr %r{lane}, i64 %s" for lane in lanes),
        *(f" %sk{lane} = add i64 %s, {lane}" for lane in lanes),
        *(f" %sp{lane} = getelementptr {vector}, ptr %vectors, i64 %sk{lane}" for lane in lanes),
    ]
    source, target = ("sq", "sp") if name == "get" else ("sp", "sq")
    aligned = {"sq": size, "sp": min(ALIGNMENT, size * width)}
    lines += [f" %a{lane} = load {vector}, ptr %{source}{lane}, align {aligned[source]}" for lane in lanes]
    transposing, transposed = _transposed([f"%a{lane}" for lane in lanes], vector)
    lines += transposing
    lines += [f" store {vector} {transposed[lane]}, ptr %{target}{lane}, align {aligned[target]}" for lane in lanes]
    lines += [
        f" %t = add i64 %s, {width}",
        " %again = icmp ult i64 %t, %whole",
        " br i1 %again, label %square, label %rest",
        "rest:",
        " %left = icmp ult i64 %whole, %count",
        " br i1 %left, label %loop, label %end",
        "loop:",
        " %k = phi i64 [%whole, %rest], [%n, %loop]",
        f" %p = getelementptr {vector}, ptr %vectors, i64 %k",
    ]
    lines += [f" %q{lane} = getelementptr {stored}, ptr %r{lane}, i64 %k" for lane in lanes]
    if name == "get":
        before = "poison"
        for lane in lanes:
            lines.append(f" %x{lane} = load {stored}, ptr %q{lane}")
            lines.append(f" %v{lane} = insertelement {vector} {before}, {stored} %x{lane}, i64 {lane}")
            before = f"%v{lane}"
        lines.append(f" store {vector} {before}, ptr %p")
    else:
        lines.append(f" %v = load {vector}, ptr %p")
        for lane in lanes:
            lines.append(f" %x{lane} = extractelement {vector} %v, i64 {lane}")
            lines.append(f" store {stored} %x{lane}, ptr %q{lane}")
    lines += [" %n = add i64 %k, 1", " %m = icmp ult i64 %n, %count", " br i1 %m, label %loop, label %end", "end:"]
    return "\n".join([*lines, " ret void", "}"])


def _transposed(names: list[str], vector: str) -> tuple[list[str], list[str]]:
    """Lines that transpose a square of vectors, and the names of the results: bit by bit, row and lane are exchanged."""
    lines, width, distance = [], len(names), 1
    current = list(names)
    while distance < width:
        following = list(current)
        for row in (r for r in range(width) if not r & distance):
            first, second = current[row], current[row | distance]
            # Lanes without the bit stay in the first row, and come from `distance` lanes further in the second one; and vice versa.
            low = [j if not j & distance else width + j - distance for j in range(width)]
            high = [j + distance if not j & distance else width + j for j in range(width)]
            for place, chosen in ((row, low), (row | distance, high)):
                mask = ", ".join(f"i32 {j}" for j in chosen)
                following[place] = f"%t{distance}.{place}"
                lines.append(
                    f" {following[place]} = shufflevector {vector} {first}, {vector} {second}, <{width} x i32> <{mask}>"
                )
        current, distance = following, 2 * distance
    return lines, current
