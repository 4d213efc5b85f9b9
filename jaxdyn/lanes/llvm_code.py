"""LLVM code of the operations and loops of a scalar program, independent of the processor: one instruction per operation.

`cpu_code` and `ptx_code` generate a kernel around this code, with one sample per lane of a vector register or one sample per
thread, respectively.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TypeGuard

from jaxdyn.lanes import large_angles, remainder, transcendental
from jaxdyn.lanes.folding import TRANSCENDENTAL, settled
from jaxdyn.lanes.liveness import Liveness, count_operations, scalars_in, uniform_nodes
from jaxdyn.lanes.llvm_memory import MemoryText, Place
from jaxdyn.lanes.llvm_text import bytes_of, scalar_type
from jaxdyn.lanes.program import Block, Loop, Node, Program, Region, Scalar, Stretch, interval
from jaxdyn.lanes.scalar_types import FLOATS
from jaxdyn.lanes.schedule import Schedule
from jaxdyn.lanes.stretches import LONG, Stretches

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
}
_SHIFTS = {"shift_left": "shl", "shift_right_logical": "lshr", "shift_right_arithmetic": "ashr"}
_FLOAT_CALLS = {
    "abs": "fabs",
    "sqrt": "sqrt",
    "floor": "floor",
    "ceil": "ceil",
    "round_even": "roundeven",
    "min": "minimum",
    "max": "maximum",
}


_STORES = 200  # in sequence, which take even longer


class ProgramCode(MemoryText):
    """Lines of LLVM code for the operations and loops of a program; a subclass generates the kernel around them.

    Attributes:
        inputs: Layout of each input.
        operations: Scalar operations per sample, see `count_operations`.
    """

    # See `Schedule`.
    _early: Collection[str] = ()
    _fewest_alive = False
    # Number of operations of a stretch of a long block, see `stretches`.
    _stretch = 1000
    # False if the code may not call functions of libm.
    _has_libm = True

    def __init__(
        self,
        program: Program,
        width: int,
        inputs: Sequence[str],
        outputs: Sequence[str],
        schedule: Schedule | None = None,
    ):
        """Prepare the generation.

        Args:
            program: Scalar program.
            width: Samples per vector.
            inputs: Layout of each input, "rows", "columns" or "shared".
            outputs: Layout of each output, "rows" or "columns".
            schedule: Order of evaluation; planned here if None.
        """
        schedule = schedule or self.planned(program)
        live = schedule.live
        shared = [layout == "shared" for layout in inputs]
        super().__init__(program, live, width, uniform_nodes(program, live, shared), outputs)
        self.inputs = inputs
        self._destinations: dict[Node, list[tuple[Place, str, str]]] = {}
        self._free_slots: dict[str, list[int]] = {}  # places in scratch memory that are not needed any more, by type
        self._filled: dict[Node, set[Scalar]] = {}  # regions that receive these values as soon as they are computed
        self.schedule = schedule
        self.operations = count_operations(program, live)
        self._find_collected_regions()

    @classmethod
    def planned(cls, program: Program) -> Schedule:
        """Order of evaluation that suits the processor."""
        return Schedule(program, Liveness(program), cls._early, cls._fewest_alive)

    def _operation(self, node: Node) -> None:
        op, kind, args = node.op, node.type, node.args
        uniform = node in self.uniform
        width = 1 if uniform else self.width
        names = self._names
        if op == "load":
            region, index = args
            names[node] = self._load(region, self._index(index), self._varies(index), as_vector=not uniform)
            return
        if op in TRANSCENDENTAL:
            names[node] = self._transcendental(node, width)
            return
        source = kind
        if op in ("lt", "le", "eq"):
            source = next((a.type for a in args if type(a) is Node), kind)
        refs = [self._ref(a, source, not uniform) for a in args] if op not in ("select", "convert", "bitcast") else []
        full = scalar_type(source) if width == 1 else f"<{width} x {scalar_type(source)}>"
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
        elif op == "bitcast":
            before = scalar_type(node.data) if width == 1 else f"<{width} x {scalar_type(node.data)}>"
            names[node] = self._let(f"bitcast {before} {self._ref(args[0], node.data, not uniform)} to {full}")
        elif op == "not":
            ones = "true" if kind == "bool" else "-1"
            ones = ones if width == 1 else f"splat ({scalar_type(kind)} {ones})"
            names[node] = self._let(f"xor {full} {refs[0]}, {ones}")
        elif op == "neg":
            zero = "zeroinitializer" if width > 1 else "0"
            text = f"fneg {full} {refs[0]}" if kind in FLOATS else f"sub {full} {zero}, {refs[0]}"
            names[node] = self._let(text)
        elif kind in FLOATS:
            names[node] = self._let(self._float_operation(node, width, refs))
        elif op in _INTEGER_OPS:
            names[node] = self._let(self._integer_operation(node, width, refs))
        elif op in ("min", "max"):
            name = ("u" if kind[0] == "u" else "s") + op
            names[node] = self._let(self._call(name, kind, width, refs))
        elif op == "abs":
            minus = self._let(f"sub {full} {'zeroinitializer' if width > 1 else '0'}, {refs[0]}")
            names[node] = self._let(self._call("smax", kind, width, [refs[0], minus]))
        elif op in _SHIFTS:
            names[node] = self._shift(node, full, width, refs)
        else:  # div and rem of integers
            names[node] = self._division(node, full, width, refs)

    def _float_operation(self, node: Node, width: int, refs: Sequence[str]) -> str:
        op, kind = node.op, node.type
        if op == "rem" and not self._has_libm:
            self.functions.add(("rem", kind, 1))
            full = scalar_type(kind)
            return f"call {full} @{remainder.symbol(kind)}({full} {refs[0]}, {full} {refs[1]})"
        if op in _FLOAT_CALLS:
            return self._call(_FLOAT_CALLS[op], kind, width, refs)
        full = scalar_type(kind) if width == 1 else f"<{width} x {scalar_type(kind)}>"
        return f"{_FLOAT_OPS[op]} {full} {refs[0]}, {refs[1]}"

    def _integer_operation(self, node: Node, width: int, refs: Sequence[str]) -> str:
        full = scalar_type(node.type) if width == 1 else f"<{width} x {scalar_type(node.type)}>"
        return f"{_INTEGER_OPS[node.op]} {full} {refs[0]}, {refs[1]}"

    def _shift(self, node: Node, full: str, width: int, refs: Sequence[str]) -> str:
        """Shift by an unsigned count. LLVM does not define a shift by the width or more; here it shifts out all bits, as in XLA."""
        x, by = refs
        word, bits = _SHIFTS[node.op], int(node.type[1:])
        low, high = interval(node.args[1]) or (0, bits)
        if low >= 0 and high < bits:
            return self._let(f"{word} {full} {x}, {by}")
        last = self._constant(bits - 1, node.type, width)
        # A selection alone would leave the shift to the processor, and a GPU uses only 32 bits of the count.
        within = self._let(self._call("umin", node.type, width, [by, last]))
        shifted = self._let(f"{word} {full} {x}, {within}")
        if node.op == "shift_right_arithmetic":
            return shifted
        inside = self._let(f"icmp ule {full} {by}, {last}")
        return self._choice(inside, full, width, shifted, self._constant(0, node.type, width))

    def _division(self, node: Node, full: str, width: int, refs: Sequence[str]) -> str:
        """LLVM does not define division by zero, and by -1 for the smallest integer; here the results are those of XLA."""
        x, y = refs
        op, kind = node.op, node.type
        signed = kind[0] == "i"
        word = ("s" if signed else "u") + op
        if type(node.args[1]) is not Node:  # neither zero nor -1, which are folded
            return self._let(f"{word} {full} {x}, {y}")
        zero, one, ones = (self._constant(int(settled(k, kind)), kind, width) for k in (0, 1, -1))
        is_zero = self._let(f"icmp eq {full} {y}, {zero}")
        usual = self._choice(is_zero, full, width, one, y)
        is_minus = None
        if signed:
            is_minus = self._let(f"icmp eq {full} {y}, {ones}")
            usual = self._choice(is_minus, full, width, one, usual)
        result = self._let(f"{word} {full} {x}, {usual}")
        if is_minus is not None:
            of_minus = zero if op == "rem" else self._let(f"sub {full} {zero}, {x}")
            result = self._choice(is_minus, full, width, of_minus, result)
        return self._choice(is_zero, full, width, x if op == "rem" else ones, result)

    def _choice(self, condition: str, full: str, width: int, if_true: str, if_false: str) -> str:
        conditions = "i1" if width == 1 else f"<{width} x i1>"
        return self._let(f"select {conditions} {condition}, {full} {if_true}, {full} {if_false}")

    @staticmethod
    def _constant(x: int, kind: str, width: int) -> str:
        return str(x) if width == 1 else f"splat ({scalar_type(kind)} {x})"

    def _conversion(self, source: str, target: str, ref: str, width: int) -> str:
        before, after = (scalar_type(k) if width == 1 else f"<{width} x {scalar_type(k)}>" for k in (source, target))
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
        if node in self._names:  # sine and cosine are computed together
            return self._names[node]
        kind = node.type
        full = scalar_type(kind) if width == 1 else f"<{width} x {scalar_type(kind)}>"
        operands = ", ".join(f"{full} {self._ref(a, kind, width > 1)}" for a in node.args)
        partner = None
        if node.op in ("sin", "cos"):
            other = "cos" if node.op == "sin" else "sin"
            partner = node.block.memo.get((other, kind, None, *node.args))
        if partner is None or partner not in self.live.nodes:
            self.functions.add((node.op, kind, width))
            return self._let(f'call {full} @"{transcendental.symbol(node.op, kind, width)}"({operands})')
        self.functions.add(("sincos", kind, width))
        pair = f"{{ {full}, {full} }}"
        both = self._let(f'call {pair} @"{transcendental.symbol("sincos", kind, width)}"({operands})')
        sine, cosine = (node, partner) if node.op == "sin" else (partner, node)
        self._names[sine] = self._let(f"extractvalue {pair} {both}, 0")
        self._names[cosine] = self._let(f"extractvalue {pair} {both}, 1")
        return self._names[node]

    def _definitions(self) -> list[str]:
        """Definitions of the called functions; those of transcendental functions come first."""
        needed = sorted(f for f in self.functions if f[0] in transcendental.FUNCTIONS)
        if self._has_libm:
            return [transcendental.definitions(needed)]
        has_angles = any(name in ("sin", "cos", "sincos", "tan") for name, *_ in needed)
        remainders = sorted(kind for name, kind, _ in self.functions if name == "rem")
        return [
            transcendental.definitions_without_libm(needed),
            *([large_angles.definitions()] if has_angles else []),
            *(remainder.definition(kind) for kind in remainders),
        ]

    # -- blocks

    def _nodes(self, block: Block, ending: Sequence[Scalar] = ()) -> None:
        """Code of a block; the values in `ending` are needed after it."""
        order, needed_by = self.schedule.order[block], self.schedule.needed_by
        if len(order) <= LONG:
            for node in order:
                self._node(node)
            return
        stretches = Stretches(order, needed_by, ending, self._stretch)
        slots: dict[Node, int] = {}
        for number, part in enumerate(stretches.parts):
            if number:
                self._break_line()
            at_hand: set[Node] = set()
            for node in part:
                self._recall(needed_by(node), slots, at_hand)
                self._node(node)
                if node in stretches.needed_later and self._can_be_kept(node):
                    slots[node] = self._keep(node)
                    at_hand.add(node)
            if number == len(stretches.parts) - 1:
                self._recall([x for x in ending if type(x) is Node], slots, at_hand)
            for node in stretches.last_needed[number]:
                if node in slots:
                    self._free_slots.setdefault(node.type, []).append(slots.pop(node))

    def _can_be_kept(self, node: Node) -> bool:
        """True if a value may be kept in scratch memory until a later stretch needs it."""
        return False

    def _keep(self, node: Node) -> int:
        """Store a value in scratch memory; returns its place there."""
        free = self._free_slots.get(node.type)
        start = free.pop() if free else self._reserved_bytes(self.width * bytes_of(node.type))
        pointer, aligned = self._scratch_pointer(start), self._alignment(node.type)
        self._emit(f"store {self._vector(node.type)} {self._names[node]}, ptr {pointer}, align {aligned}")
        return start

    def _recall(self, nodes: Iterable[Node], slots: dict[Node, int], at_hand: set[Node]) -> None:
        """Load the values that are kept in scratch memory and that this stretch has not used yet."""
        for node in nodes:
            if node in slots and node not in at_hand:
                at_hand.add(node)
                pointer, aligned = self._scratch_pointer(slots[node]), self._alignment(node.type)
                self._names[node] = self._let(f"load {self._vector(node.type)}, ptr {pointer}, align {aligned}")

    def _node(self, node: Node) -> None:
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
        for place, kind, index in self._destinations.pop(node, ()):
            self._store(place, kind, index, self._ref(node, kind, as_vector=True))

    def _break_line(self) -> None:
        """Start a new basic block with a branch whose other target is never taken, which LLVM cannot infer."""
        label = self._label("stretch")
        self._emit(f"br i1 %alive, label %{label}, label %end")
        known = self._splats
        self._start(label)
        self._splats = known

    def _pieces(self, node: Node) -> None:
        data: Region = node.data
        place, start = self._place(node), 0
        for piece, part in enumerate(data.pieces):
            if isinstance(part, Stretch):
                if (node, piece) not in self._in_place:
                    self._copy(part, place, str(start))
                start += part.size
            else:
                if node in self._filled:
                    late = [(k, x) for k, x in enumerate(part, start) if x not in self._filled[node]]
                    for k, x in late:
                        self._store(place, data.type, str(k), self._ref(x, data.type, as_vector=True))
                else:
                    self._store_many(place, data.type, str(start), part)
                start += len(part)

    def _loop(self, loop: Loop) -> None:
        label = self._label("loop")
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
        # The phis refer to the following values, so their text is inserted later.
        phis = len(self._lines)
        counter, following_counter = f"%k.{label}", f"%n.{label}"
        self._names[loop.counter] = counter
        for i in carries:
            self._names[loop.carries[i]] = f"%c{i}.{label}"
        self._nodes(loop.body, self.schedule.wanted_of(loop))
        for which in self.live.collected[loop]:
            position, values, size, kind = loop.collected[which]
            place = self._place(self._region_of(loop, which))
            if isinstance(values, Stretch):
                self._copy(values, place, self._index(position))
            elif size:
                self._store_many(place, kind, self._index(position), values)
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
            text.append(f" %c{i}.{label} = phi {full} [{initial[i]}, %{before}], [{following[i]}, %{latch}]")
        self._lines[phis:phis] = text
        self._emit(f"{following_counter} = add i64 {counter}, 1")
        more = self._let(f"icmp ult i64 {following_counter}, {loop.length}")
        if loop.condition is not None:
            more = self._for_any_sample(loop.condition)
        self._emit(f"br i1 {more}, label %{label}, label %{label}.end")
        kept = dict(self._splats)
        self._start(f"{label}.end")
        self._splats = kept  # splats of the last block of the loop remain valid after it

    def _for_any_sample(self, condition: Scalar) -> str:
        """Boolean that is true if a condition holds for any sample of a vector."""
        truth = self._scalar_ref(condition, "bool")
        if self.width == 1 or type(condition) is not Node or condition in self.uniform:
            return truth
        packed = self._let(f"bitcast <{self.width} x i1> {truth} to i{self.width}")
        return self._let(f"icmp ne i{self.width} {packed}, 0")

    def _region_of(self, loop: Loop, which: int) -> Node:
        return self._collected_regions[loop, which]

    # -- parts of a kernel

    def _find_collected_regions(self) -> None:
        self._collected_regions = {
            (node.args[0].data, node.data.which): node
            for node in self.live.nodes
            if node.op == "region" and node.data.kind == "loop"
        }

    def _input_regions(self) -> list[Node]:
        nodes = self.program.block.nodes
        return [n for n in nodes if n.op == "region" and n.data.kind == "input" and n in self.live.nodes]

    def _rows(self, pointer: str, kind: str, row: int, start: str) -> str:
        """Pointer to the values of the sample at `start`, where each sample has `row` consecutive values."""
        offset = self._let(f"mul i64 {start}, {row * bytes_of(kind)}")
        return self._let(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def _place_outputs(self, start: str) -> None:
        for k in self.written:
            kind = self.program.output_types[k]
            row = 1 if self.outputs[k] == "columns" else self._output_place(k).row
            offset = self._let(f"mul i64 {start}, {row * bytes_of(kind)}")
            self._emit(f"%out{k} = getelementptr i8, ptr %p{len(self.program.inputs) + k}, i64 {offset}")
        self._assign_places()

    def _samples(self) -> None:
        """All code between the inputs of some samples and their outputs."""
        program = self.program
        staged = self._staged_outputs()
        self._fill_regions_early()
        self._nodes(program.block)
        for k in self.written:
            output, kind = program.outputs[k], program.output_types[k]
            if isinstance(output, Stretch):
                self._fetch(scalars_in(output))
                inside = self._places.get(output.region)
                if inside is None or inside.base != f"%out{k}":
                    self._copy(output, self._output_place(k), "0")
            elif output:
                stage, place = staged[k]
                others = [index for index, x in enumerate(output) if not self._is_computed(x)]
                for stored, index in enumerate(others):
                    self._fetch([output[index]])
                    if stored % _STORES == _STORES - 1:
                        self._break_line()
                    self._store(stage, kind, str(index), self._ref(output[index], kind, as_vector=True))
                self._deliver(stage, place, kind, "0", len(output))

    def _staged_outputs(self) -> dict[int, tuple[Place, Place]]:
        """Place where the values of each output are stored as soon as they are computed, and their final place."""
        staged = {}
        for k in self.written:
            output, kind = self.program.outputs[k], self.program.output_types[k]
            if not isinstance(output, Stretch) and output:
                place = self._output_place(k)
                stage = self._stage(place, kind, len(output))
                staged[k] = stage, place
                for index, x in enumerate(output):
                    if self._is_computed(x):
                        self._destinations.setdefault(x, []).append((stage, kind, str(index)))
        return staged

    def _is_computed(self, x: Scalar) -> TypeGuard[Node]:
        """True if an operation of this function computes a value."""
        return type(x) is Node

    def _fetch(self, nodes: Iterable[Scalar]) -> None:
        """Load the values that this function needs and does not compute."""

    def _fill_regions_early(self) -> None:
        """Store values of the outermost regions as soon as they are computed, too."""
        order = self.schedule.order[self.program.block]
        to_come = {node for node in order if node not in self._names}
        for node in order:
            if node.op == "region" and node.data.kind == "pieces":
                place, start = self._place(node), 0
                if place.layout == "rows":
                    continue
                self._filled[node] = set()
                for part in node.data.pieces:
                    if isinstance(part, Stretch):
                        start += part.size
                        continue
                    for k, x in enumerate(part, start):
                        if type(x) is Node and x in to_come:
                            self._destinations.setdefault(x, []).append((place, node.data.type, str(k)))
                            self._filled[node].add(x)
                    start += len(part)


def _comparison(op: str, kind: str) -> str:
    if kind in FLOATS:
        return f"fcmp o{op}" if op != "eq" else "fcmp oeq"
    if op == "eq":
        return "icmp eq"
    return f"icmp {'u' if kind[0] in 'ub' else 's'}{op}"
