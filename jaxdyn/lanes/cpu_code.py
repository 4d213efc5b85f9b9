"""The kernel of a scalar program on a CPU: one vector instruction per operation, one sample per vector lane.

The kernel processes blocks of `width` samples. Values that are equal for all samples are computed once, as scalars. If the batch is
not a multiple of the width, the last block overlaps the previous one and computes some samples twice, with identical bits.
"""

import math
from collections.abc import Sequence

from jaxdyn.lanes.llvm_memory import KEPT_WHOLE, Place, transposition_code
from jaxdyn.lanes.llvm_text import bytes_of
from jaxdyn.lanes.matrix_code import MatrixCode
from jaxdyn.lanes.program import Block, Node, Program, Region
from jaxdyn.lanes.scalar_types import FLOATS

# Operations of a stretch of a long block of vectors, see `stretches`.
_STRETCH = 400


class CpuKernel(MatrixCode):
    """LLVM text of the kernel of a program.

    Attributes:
        text: LLVM module with `void @kernel(ptr buffers, i64 first, i64 last, i64 batch, ptr scratch)`.
    """

    def __init__(self, program: Program, width: int, inputs: Sequence[str], outputs: Sequence[str]):
        """Generate the text.

        Args:
            program: Scalar program.
            width: Samples per vector.
            inputs: Layout of each input, "rows", "columns" or "shared".
            outputs: Layout of each output, "rows" or "columns".
        """
        if width > 1:  # programs of scalars are not compiled faster in shorter stretches
            self._stretch = _STRETCH
        super().__init__(program, width, inputs, outputs)
        self.text = self._kernel()

    def _kernel(self) -> str:
        program, width = self.program, self.width
        inputs = self._input_regions()
        self._emit("%alive = icmp ne i64 %batch, 0")
        for k in range(len(program.inputs) + len(program.outputs)):
            self._emit(f"%pp{k} = getelementptr ptr, ptr %buffers, i64 {k}")
            self._emit(f"%p{k} = load ptr, ptr %pp{k}")
        for node in inputs:
            if self.inputs[node.data.which] == "shared":
                self._places[node] = Place("shared", f"%p{node.data.which}")
        self._compute_ahead()
        self._emit("br label %lanes")
        self._start("lanes")
        self._emit("%block = phi i64 [%first, %entry], [%block.next, %lanes.latch]")
        start = self._let(f"mul i64 %block, {width}")
        if width > 1:
            last = self._let(f"sub i64 %batch, {width}")
            start = self._let(self._call("smin", "i64", 1, [start, last]))
        for node in inputs:
            region: Region = node.data
            k, size, kind = region.which, region.size, region.type
            layout = self.inputs[k]
            if layout == "shared":
                continue
            rows = self._rows(f"%p{k}", kind, 1 if layout == "columns" else size, start)
            self._places[node] = Place(layout, rows, size)
            if width > 1 and layout == "rows" and self._is_staged(node):
                vectors = self._reserve(kind, size)
                self._transposition("get", kind, vectors, rows, size, size)
                self._places[node] = Place("vectors", vectors)
        self._place_outputs(start)
        self._samples()
        self._emit("br label %lanes.latch")
        self._start("lanes.latch")
        self._emit("%block.next = add i64 %block, 1")
        self._emit("%more = icmp ult i64 %block.next, %last")
        self._emit("br i1 %more, label %lanes, label %end")
        self._lines += ["end:", " ret void"]
        head = "define void @kernel(ptr noalias %buffers, i64 %first, i64 %last, i64 %batch, ptr noalias %scratch)"
        moves = [transposition_code(*f) for f in sorted(self.functions) if f[0] in ("get", "put")]
        body = "\n".join([f"{head} nounwind {{", "entry:", *self._lines, "}"])
        parts = [*sorted(self._declared), *self._globals, *moves, *self._definitions(), body]
        return "\n".join(parts)

    def _compute_ahead(self) -> None:
        """Compute values that are equal for all samples and need no loop first."""
        ahead: set[Node] = set()
        for node in self.schedule.order[self.program.block]:
            can_be_ahead = node in self.uniform and node.op not in ("loop", "result", "region")
            if can_be_ahead and all(type(a) is not Node or a in ahead or a.op == "region" for a in node.args):
                ahead.add(node)
                if node not in self._names:
                    self._operation(node)

    def _can_be_kept(self, node: Node) -> bool:
        return self.width > 1 and node.type in FLOATS and node not in self.uniform

    def _is_staged(self, node: Node) -> bool:
        """True if an input is converted to vectors as a whole: if all its positions are read, or loops read it repeatedly."""
        loads = [n for n in self.live.nodes if n.op == "load" and n.args[0] is node]
        if any(self._varies(n.args[1]) for n in loads):
            return False
        if any(type(n.args[1]) is Node for n in loads):
            return node.data.size <= min(KEPT_WHOLE, sum(self._turns(n.block) for n in loads))
        return len(loads) > 1 and node.data.size <= 4 * len(loads)

    def _turns(self, block: Block | None) -> int:
        """Number of evaluations of a block."""
        lengths = {loop.body: loop.length for loop in self.live.collected}
        turns = 1
        while block is not None:
            turns *= lengths.get(block, 1)
            block = block.parent
        return turns


def widest(kinds: Sequence[str], register_bytes: int) -> int:
    """Number of lanes of a register for the widest floating-point type in use."""
    item = max((bytes_of(k) for k in kinds if k in FLOATS), default=4)
    return max(1, register_bytes // item)


def width_for(batch: int, widest_width: int) -> int:
    """Largest power of two that exceeds neither the number of lanes of a register nor the size of the batch."""
    return min(widest_width, 2 ** int(math.log2(max(1, batch))))
