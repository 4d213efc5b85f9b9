"""Kernel of a scalar program on an NVIDIA GPU: one sample per thread, as PTX, the assembly language that every driver compiles.

LLVM generates PTX without CUDA. The code that the driver compiles from it depends on these properties of the PTX:

    registers   blocks of `BLOCK` threads; as many blocks per multiprocessor as leave every thread all 255 registers;
    memory      arrays are read and written in their layout. Values that loops collect and later read, and other regions of more
                than `LARGEST_LOCAL` bytes, are in a buffer in which each value is contiguous over all samples, so that the threads
                of a warp access adjacent values, and no memory is reserved for threads that might run;
    float32     subnormal numbers are zeros, as on the CPU. A square root is within 1 unit in the last place and a quotient
                within 2, but a known value c over x may become 0 if it is less than c 2^-126. Quotients and roots within sine,
                logarithm and similar functions are rounded correctly;
    float64     as in IEEE 754.
    length      a long program consists of several kernels, see `parts`. Values that one kernel computes and another one needs are
                in a buffer, in which each value is contiguous over 32 samples, the threads of a warp.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import llvmlite.binding as llvm

from jaxdyn.lanes.llvm_code import ProgramCode
from jaxdyn.lanes.llvm_memory import Place
from jaxdyn.lanes.llvm_text import bytes_of, stored_type
from jaxdyn.lanes.parts import Part, is_repeated, whole
from jaxdyn.lanes.program import Node, Program, Region, Scalar
from jaxdyn.lanes.schedule import Schedule

KERNEL = "lanes"
# Threads per block. Blocks of two warps leave few registers unused, and spread a small batch over all multiprocessors.
BLOCK = 64
# Maximum number of bytes of the regions of one sample in memory of the thread.
LARGEST_LOCAL = 1024
# Number of samples over which each value is contiguous in the buffer of a part.
WARP = 32

# Every driver of CUDA 12 or later supports PTX version 8.0, for any processor of compute capability 8.0 or higher.
_PROCESSOR, _VERSION = "sm_80", "+ptx80"
_REGISTERS_OF_MULTIPROCESSOR, _REGISTERS_OF_THREAD = 65536, 256
# Known numerators up to this value are multiplied by a reciprocal.
_LARGEST_NUMERATOR = 4.0
_TRIPLE = "nvptx64-nvidia-cuda"


@dataclass(frozen=True)
class Launch:
    """Threads of a launch. If there are fewer threads than samples, each thread processes several samples in sequence.

    Attributes:
        block: Number of threads of a block.
        resident: Number of blocks that a multiprocessor runs at the same time.
        blocks: Number of blocks of the grid.
    """

    block: int
    resident: int
    blocks: int

    @property
    def threads(self) -> int:
        return self.block * self.blocks


def launch_for(batch: int, multiprocessors: int | None, block: int = BLOCK) -> Launch:
    """Launch with one thread per sample, or with at most as many threads as the given multiprocessors run at the same time.

    Args:
        batch: Number of samples.
        multiprocessors: Number of multiprocessors; None for one thread per sample.
        block: Number of threads of a block.
    """
    resident = max(1, _REGISTERS_OF_MULTIPROCESSOR // (block * _REGISTERS_OF_THREAD))
    blocks = -(-batch // block)
    return Launch(block, resident, blocks if multiprocessors is None else min(blocks, multiprocessors * resident))


class PtxKernel(ProgramCode):
    """LLVM text of the kernel of a program, or of a part of it, for a batch of a certain size.

    Attributes:
        text: LLVM module; the parameters of the kernel are the inputs, the buffers of earlier parts, the outputs, the buffer of
            this part if later parts need it, and the scratch buffer if needed.
        part: The part of the program.
        scratch_bytes: Size of the scratch buffer for regions, per thread.
    """

    # These contain a branch to a function, which costs fewer registers the fewer values are alive there.
    _early = ("sin", "cos", "tan")
    _fewest_alive = True
    _has_libm = False

    def __init__(
        self,
        program: Program,
        batch: int,
        inputs: Sequence[str],
        outputs: Sequence[str],
        launch: Launch,
        schedule: Schedule | None = None,
        part: Part | None = None,
    ):
        """Generate the text.

        Args:
            program: Scalar program.
            batch: Number of samples.
            inputs: Layout of each input, "rows", "columns" or "shared".
            outputs: Layout of each output, "rows" or "columns".
            launch: Threads and blocks.
            schedule: Order of evaluation; planned here if None.
            part: A part of the program, see `parts.divided`; the whole program if None.
        """
        schedule = schedule or self.planned(program)
        self.part = part or whole(program, schedule)
        super().__init__(program, 1, inputs, outputs, schedule.with_order(program.block, self.part.nodes))
        self.written = self.part.outputs
        self._own = set(self.part.nodes)
        self._is_whole = part is None
        self.batch, self.launch = batch, launch
        self._local_bytes = 0
        self.text = self._kernel()

    # -- values of other parts

    def _is_computed(self, x: Scalar) -> TypeGuard[Node]:
        return type(x) is Node and x in self._own

    def _node(self, node: Node) -> None:
        if not self._is_whole:
            self._fetch(self.schedule.needed_by(node))
        super()._node(node)
        if node in self.part.kept and node.type != "region":
            place = self._place_in_buffer(node, self.part)
            self._store(place, node.type, "0", self._ref(node, node.type, as_vector=True))

    def _fetch(self, nodes: Iterable[Scalar]) -> None:
        for a in nodes:
            if type(a) is not Node or a in self._names or a.type == "region":
                continue
            if a in self.part.earlier:
                pointer = self._place_in_buffer(a, self.part.earlier[a]).base
                self._names[a] = self._truth(self._let(f"load {stored_type(a.type)}, ptr {pointer}"), a.type, 1)
            elif is_repeated(a):
                self._operation(a)

    def _place_in_buffer(self, node: Node, part: Part) -> Place:
        """Location of a value or a region in the buffer of a part."""
        size = bytes_of(node.data.type if node.type == "region" else node.type)
        pointer = self._let(f"getelementptr i8, ptr %kept{part.number}.{size}, i64 {part.kept[node] * WARP}")
        return Place("columns", pointer, samples=str(WARP))

    def _place_buffers(self) -> None:
        """Pointers to the values of the sample, and places of regions, in the buffers of parts."""
        own = [self.part] if self.part.kept else []
        for part in [*self.part.sources, *own]:
            self._emit(f"%warp{part.number} = mul i64 %warp, {part.kept_bytes * WARP}")
            self._emit(f"%row{part.number} = getelementptr i8, ptr %b{part.number}, i64 %warp{part.number}")
            for size in (1, 2, 4, 8):
                self._emit(f"%kept{part.number}.{size} = getelementptr i8, ptr %row{part.number}, i64 %lane{size}")
        for node, part in [*self.part.earlier.items(), *((node, self.part) for node in self.part.kept)]:
            if node.type == "region":
                self._places[node] = self._place_in_buffer(node, part)

    def _scratch_place(self, kind: str, size: int) -> Place:
        length = -(-size * bytes_of(kind) // 8) * 8
        if self._local_bytes + length <= LARGEST_LOCAL:
            self._local_bytes += length
            name = f"%local{len(self._allocations)}"
            self._allocations.append(f" {name} = alloca [{length} x i8], align 8")
            return Place("vectors", name)
        threads = self.launch.threads
        start = self.scratch_bytes * threads
        self.scratch_bytes += length
        column = self._let(f"mul i64 %slot, {bytes_of(kind)}")
        own = self._let(f"add i64 {column}, {start}")
        return Place("columns", self._let(f"getelementptr i8, ptr %scratch, i64 {own}"), samples=str(threads))

    def _integer_operation(self, node: Node, width: int, refs: Sequence[str]) -> str:
        if node.op == "add" and node.type == "u32":
            # For long sequences of such sums, as in random numbers, a pass of LLVM takes seconds to look for common terms.
            return f'call i32 asm "add.u32 $0, $1, $2;", "=r,r,r"(i32 {refs[0]}, i32 {refs[1]})'
        return super()._integer_operation(node, width, refs)

    def _float_operation(self, node: Node, width: int, refs: Sequence[str]) -> str:
        op, kind = node.op, node.type
        if kind == "f32" and op == "sqrt":
            return self._approximate("sqrt", refs[0])
        if kind == "f32" and op == "div":
            return self._quotient(node, refs)
        return super()._float_operation(node, width, refs)

    def _quotient(self, node: Node, refs: Sequence[str]) -> str:
        """Quotient of float32 values."""
        numerator, denominator = node.args
        if type(numerator) is Node or abs(numerator) > _LARGEST_NUMERATOR:
            # LLVM has no intrinsic for this division, whose operands may have any size.
            return f'call float asm "div.full.ftz.f32 $0, $1, $2;", "=f,f,f"(float {refs[0]}, float {refs[1]})'
        is_root = type(denominator) is Node and denominator.op == "sqrt"
        if is_root and denominator.args[0] in self._names:  # an earlier part may have computed the root
            inverse = self._approximate("rsqrt", self._ref(denominator.args[0], "f32", as_vector=False))
        else:
            inverse = self._approximate("rcp", refs[1])
        return inverse if numerator == 1 else f"fmul float {refs[0]}, {self._let(inverse)}"

    def _approximate(self, name: str, operand: str) -> str:
        self._declared.add(f"declare float @llvm.nvvm.{name}.approx.ftz.f(float)")
        return f"call float @llvm.nvvm.{name}.approx.ftz.f(float {operand})"

    def _kernel(self) -> str:
        program = self.program
        self._allocations: list[str] = []
        self._emit("%first = phi i64 [%slot, %start], [%following, %latch]")
        first_output = len(program.inputs)
        if not self._is_whole:
            self._emit(f"%warp = udiv i64 %first, {WARP}")
            self._emit(f"%lane1 = urem i64 %first, {WARP}")
            for size in (2, 4, 8):
                self._emit(f"%lane{size} = mul i64 %lane1, {size}")
            self._place_buffers()
        for node in self._input_regions():
            region: Region = node.data
            k, size, kind = region.which, region.size, region.type
            if k not in self.part.inputs:
                continue
            layout = self.inputs[k]
            row = 1 if layout == "columns" else size
            pointer = f"%p{k}" if layout == "shared" else self._rows(f"%p{k}", kind, row, "%first")
            self._places[node] = Place(layout, pointer, size)
        self._place_outputs("%first")
        self._samples()
        self._emit("br label %latch")
        self._start("latch")
        self._emit(f"%following = add i64 %first, {self.launch.threads}")
        self._emit("%more = icmp ult i64 %following, %batch")
        self._emit("br i1 %more, label %entry, label %end")
        arrays = [f"p{k}" for k in self.part.inputs] + [f"b{part.number}" for part in self.part.sources]
        constant = len(arrays)
        arrays += [f"p{first_output + k}" for k in self.part.outputs] + (
            [f"b{self.part.number}"] if self.part.kept else []
        )
        arrays += ["scratch"] if self.scratch_bytes else []
        kinds = ["noalias readonly"] * constant + ["noalias"] * (len(arrays) - constant)
        parameters = [f"ptr addrspace(1) {kind} %g.{name}" for kind, name in zip(kinds, arrays, strict=True)]
        head = [
            f"define ptx_kernel void @{KERNEL}({', '.join(parameters)}) #0 {{",
            "start:",
            " %thread = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()",
            " %block = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()",
            " %thread64 = zext i32 %thread to i64",
            " %block64 = zext i32 %block to i64",
            f" %before = mul i64 %block64, {self.launch.block}",
            " %slot = add i64 %before, %thread64",
            f" %batch = add i64 0, {self.batch}",
            " %alive = icmp ult i64 %slot, %batch",
            *(f" %{name} = addrspacecast ptr addrspace(1) %g.{name} to ptr" for name in arrays),
            *self._allocations,
            " br i1 %alive, label %entry, label %end",
            "entry:",
        ]
        inlined, *others = self._definitions()
        attributes = f'"nvvm.maxntid"="{self.launch.block}" "nvvm.minctasm"="{self.launch.resident}"'
        return "\n".join(
            [
                f'target triple = "{_TRIPLE}"',
                *sorted(self._declared),
                *self._globals,
                # Calls cost registers. The reduction of large angles, which is rarely called, remains a function.
                inlined.replace(" noinline ", " alwaysinline "),
                *others,
                *head,
                *self._lines,
                "end:",
                " ret void",
                "}",
                f'attributes #0 = {{ nounwind {attributes} "denormal-fp-math-f32"="preserve-sign,preserve-sign" }}',
            ]
        )


def ptx(text: str) -> str:
    """PTX of an LLVM module."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(_TRIPLE).create_target_machine(cpu=_PROCESSOR, features=_VERSION, opt=3)
    # The layout determines the alignments that the text omits, so it must be known when the text is parsed.
    layout = f'target datalayout = "{machine.target_data}"'
    with llvm.parse_assembly(f"{layout}\n{text}", llvm.create_context()) as module:
        # Operations are already shared and folded. Other passes extend the lifetime of values, which costs registers.
        passes = llvm.create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        passes.add_sroa_pass()
        passes.add_simplify_cfg_pass()
        passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
        return machine.emit_assembly(module)
