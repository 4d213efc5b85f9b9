"""PTX kernels executed by NumPy, one vector per register and one element per thread, so that they are tested without a GPU.

Threads may branch as they like. A kernel is cut into blocks of instructions at labels, branches, calls and barriers; every thread
is at the start of a block, and the threads in the earliest block execute it together. So threads that went apart meet again.

Every access to memory is checked (`ptx_memory.py`), integers are not divided by zero, and all threads of a block must come to a
barrier together. `ptx_instructions.py` says which instructions are exact.
"""

import collections
import dataclasses
from collections.abc import Callable, Collection, Sequence

import numpy as np
from ptx_instructions import Decoder, Threads
from ptx_memory import Memory, Region
from ptx_text import TYPES, Function, Instruction, PtxError, call_parts, read_module

_FINISHED = np.iinfo(np.int64).max


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Instructions executed, by opcode and type ("fma.f32") or by space ("ld.local"): how often a warp executed one.

    A warp of which some threads branch one way and some the other executes the instructions of both.
    """

    counts: collections.Counter[str]

    @property
    def instructions(self) -> int:
        return self.counts.total()


@dataclasses.dataclass
class _Block:
    """Instructions that the same threads execute in a row. A guarded instruction is a block of its own."""

    function: Function
    instructions: list[Instruction]
    guard: Callable[[], np.ndarray] | None = None
    steps: list[Callable[[], object]] = dataclasses.field(default_factory=list)
    written: list[np.ndarray] = dataclasses.field(default_factory=list)
    leave: Callable[[], None] = lambda: None


_LEAVING = {"bra", "brx", "ret", "exit", "call", "bar", "barrier", "trap"}


class PtxKernel:
    """The kernel of a PTX module.

    Raises: PtxError if the text cannot be read, or holds no kernel or several.
    """

    def __init__(self, text: str):
        self._functions, self._variables = read_module(text)
        kernels = [f for f in self._functions.values() if f.is_kernel]
        if len(kernels) != 1:
            raise PtxError(f"there are {len(kernels)} kernels in this module")
        self._kernel = kernels[0]
        self.name = self._kernel.name

    def run(
        self,
        buffers: Sequence[np.ndarray],
        threads_per_block: int,
        blocks: int,
        outputs: Collection[int] | None = None,
    ) -> Statistics:
        """Executes the kernel once.

        Args:
            buffers: arrays for the parameters, in their order, which are pointers; changed in place. C-contiguous.
            threads_per_block: threads along x in each block.
            blocks: blocks along x.
            outputs: numbers of the buffers that the kernel writes. Then it may read there only what it has written itself, and must
                not write the others. Where this is not given, it may write all buffers and read what was there.

        Raises: MemoryFault at an access that is outside all buffers, misaligned, a read of what nobody has written, a write to what
        is read-only, or a race between threads. PtxError at an instruction that is not known here, at a division of integers by
        zero, and at a barrier that some threads of a block do not come to. Both name the instruction.
        """
        return _Launch(
            self._functions, self._variables, self._kernel, buffers, threads_per_block, blocks, outputs
        ).run()


class _Launch:
    def __init__(self, functions, variables, kernel: Function, buffers, threads_per_block: int, blocks: int, outputs):
        for word, n in kernel.limits.items():
            if threads_per_block > n or (word == "reqntid" and threads_per_block != n):
                raise PtxError(f"{threads_per_block} threads in a block, but the kernel says .{word} {n}")
        if len(buffers) != len(kernel.parameters):
            raise PtxError(f"{len(buffers)} buffers for {len(kernel.parameters)} parameters")
        self.functions, self.kernel = functions, kernel
        self.threads = Threads(threads_per_block, blocks)
        self.memory = Memory()
        everywhere = np.zeros(self.threads.count, np.int64)
        self.addresses = {}
        for k, (buffer, (kind, name)) in enumerate(zip(buffers, kernel.parameters, strict=True)):
            if kind[1:] != "64":
                raise PtxError(f"the parameter {name} is not a pointer")
            if not buffer.flags.c_contiguous:
                raise PtxError(f"buffer {k} is not contiguous")
            data = buffer.reshape(-1).view(np.uint8)
            is_output = outputs is None or k in outputs
            region = Region(f"buffer {k}", "global", data, everywhere, is_output, outputs is None or not is_output)
            self.addresses[name] = self.memory.add(region)
        self._place_variables(variables, blocks, everywhere)
        # The functions come first, so that all threads have returned before the kernel goes on.
        ordered = sorted(functions.values(), key=lambda f: f.is_kernel)
        self.blocks: list[_Block] = []
        self.starts: dict[tuple[str, str], int] = {}  # of functions ("") and of their labels
        for function in ordered:
            self._cut(function)
        self.return_to = {f.name: np.full(self.threads.count, -1, np.int64) for f in ordered}
        passed: dict[str, np.ndarray] = {}
        self.decoders = {
            f.name: Decoder(f, self.threads, self.memory, self.addresses | self.own[f.name], passed) for f in ordered
        }
        for number, block in enumerate(self.blocks):
            self._decode(block, number)
        self.at = np.full(self.threads.count, self.starts[kernel.name, ""], np.int64)

    def _place_variables(self, variables, blocks: int, everywhere: np.ndarray) -> None:
        """Tables of the module, variables of blocks and of threads."""
        self.own: dict[str, dict[str, int]] = {name: {} for name in self.functions}
        for owner, variable in [("", v) for v in variables] + [
            (f.name, v) for f in self.functions.values() for v in f.variables
        ]:
            shared, local = variable.space == "shared", variable.space == "local"
            copies = blocks if shared else self.threads.count if local else 1
            copy = self.threads.block if shared else np.arange(self.threads.count) if local else everywhere
            data = np.zeros((copies, variable.size), np.uint8)
            if variable.initial is not None:
                data[:] = np.frombuffer(variable.initial, np.uint8)
            own = shared or local
            address = self.memory.add(Region(variable.name, variable.space, data, copy, own, not own))
            (self.own[owner] if owner else self.addresses)[variable.name] = address

    def _cut(self, function: Function) -> None:
        instructions, first = function.instructions, len(self.blocks)
        if (
            not instructions
            or instructions[-1].guard
            or instructions[-1].opcode[0] not in _LEAVING - {"call", "bar", "barrier"}
        ):
            raise PtxError(f"{function.name} does not end with a jump or a return")
        cuts = {0, *function.labels.values()}
        for k, i in enumerate(instructions):
            cuts |= {k, k + 1} if i.guard else {k + 1} if i.opcode[0] in _LEAVING else set()
        places = sorted(cuts - {len(instructions)})
        ends = [*places[1:], len(instructions)]
        self.blocks += [_Block(function, instructions[a:b]) for a, b in zip(places, ends, strict=True)]
        self.starts[function.name, ""] = first
        for label, k in function.labels.items():
            self.starts[function.name, label] = first + places.index(k) if k < len(instructions) else -1

    def _decode(self, block: _Block, number: int) -> None:
        decoder = self.decoders[block.function.name]
        decoder.steps, decoder.written = block.steps, block.written
        last = block.instructions[-1]
        leaves = last.opcode[0] in _LEAVING
        for instruction in block.instructions[:-1] if leaves else block.instructions:
            decoder.decode(instruction)
        try:
            if last.guard:
                predicate = decoder.register(last.guard.lstrip("!"))
                block.guard = (lambda: ~predicate) if last.guard[0] == "!" else (lambda: predicate)
            block.leave = self._way_on(last, number, decoder) if leaves else lambda: self._go(number + 1)
        except (KeyError, ValueError, IndexError) as problem:
            raise last.error(f"cannot be decoded: {problem!r}") from problem

    def _go(self, to) -> None:
        self.at[self.threads.active] = to

    def _way_on(self, last: Instruction, number: int, decoder: Decoder) -> Callable[[], None]:
        """What sends the active threads to their next block."""
        function, threads, name = self.blocks[number].function, self.threads, last.opcode[0]
        if name == "bra":
            target = self.starts[function.name, last.operands[0]]
            return lambda: self._go(target)
        if name == "brx":
            index = decoder.read(last.operands[0], np.dtype(np.uint32))
            targets = np.array([self.starts[function.name, label] for label in function.jump_tables[last.operands[1]]])

            def jump():
                chosen = index[threads.active]
                if (chosen >= targets.size).any():
                    raise last.error(f"jumps by {chosen.max()}, but there are {targets.size} labels")
                self._go(targets[chosen])

            return jump
        if name == "call":
            called = call_parts(last)[1]
            if (called, "") not in self.starts:
                raise last.error(f"there is no function {called} in this module")
            start, return_to = self.starts[called, ""], self.return_to[called]

            def call():
                if (return_to[threads.active] >= 0).any():
                    raise last.error(f"{called} calls itself, which is not known here")
                return_to[threads.active] = number + 1
                self._go(start)

            return call
        if name == "ret" and not function.is_kernel:
            return_to = self.return_to[function.name]

            def come_back():
                self._go(return_to[threads.active])
                return_to[threads.active] = -1

            return come_back
        if name in ("ret", "exit"):
            return lambda: self._go(_FINISHED)
        if name == "trap":

            def trap():
                raise last.error("is executed")

            return trap
        if last.opcode not in (
            ("bar", "sync"),
            ("barrier", "sync"),
            ("barrier", "sync", "aligned"),
        ) or last.operands != ("0",):
            raise last.error("only bar.sync 0 is known here")

        def barrier():
            blocks = np.unique(threads.block[threads.active])
            waiting = np.isin(threads.block, blocks) & (self.at != _FINISHED)
            missing = np.setdiff1d(np.flatnonzero(waiting), threads.active)
            if missing.size:
                raise last.error(f"thread {missing[0]} of the launch is elsewhere, while others of its block wait here")
            self.memory.barrier(blocks)
            self._go(number + 1)

        return barrier

    def run(self) -> Statistics:
        issued = [0] * len(self.blocks)
        threads, at = self.threads, self.at
        all_warps = int(threads.warp[-1]) + 1
        with np.errstate(all="ignore"):
            while (number := int(at.min())) != _FINISHED:
                block = self.blocks[number]
                here = at == number
                alone = here.all()
                issued[number] += all_warps if alone else np.unique(threads.warp[here]).size
                if block.guard is not None:
                    guard = block.guard()
                    at[here & ~guard] = number + 1
                    here &= guard
                    alone = False
                threads.active = np.flatnonzero(here)
                if not threads.active.size:
                    continue
                # What threads compute that have finished does not matter.
                others = np.zeros_like(here) if alone else ~here & (at != _FINISHED)
                saved = [(register, register.copy()) for register in block.written] if others.any() else []
                for step in block.steps:
                    step()
                for register, before in saved:
                    np.copyto(register, before, where=others)
                block.leave()
        counts = collections.Counter()
        for block, times in zip(self.blocks, issued, strict=True):
            for instruction in block.instructions:
                counts[_class(instruction)] += times
        return Statistics(counts)


def _class(instruction: Instruction) -> str:
    name, *words = instruction.opcode
    if name in ("ld", "st"):
        return f"{name}.{next((w for w in words if w in ('param', 'global', 'shared', 'local', 'const')), 'generic')}"
    return f"{name}.{words[-1]}" if words and words[-1] in TYPES else name
