"""PTX kernels executed by NumPy, one vector per register and one element per thread, so that they are tested without a GPU.

Threads may branch as they like. A kernel is cut into blocks of instructions at labels, branches and calls; every thread is at the
start of a block, and the threads in the earliest block execute it together. So threads that went apart meet again.

Every access to memory is checked (`ptx_memory.py`), and integers are not divided by zero. Known are the instructions that the lane
compiler generates (`ptx_instructions.py`).
"""

import dataclasses
from collections.abc import Callable, Collection, Sequence

import numpy as np
from ptx_instructions import Decoder, Threads
from ptx_memory import Memory, Region
from ptx_text import Function, Instruction, call_parts, read_module

_FINISHED = np.iinfo(np.int64).max
_LEAVING = {"bra", "ret", "call"}


@dataclasses.dataclass
class _Block:
    """Instructions that the same threads execute in a row. A guarded instruction is a block of its own."""

    function: Function
    instructions: list[Instruction]
    guard: Callable[[], np.ndarray] | None = None
    steps: list[Callable[[], object]] = dataclasses.field(default_factory=list)
    written: list[np.ndarray] = dataclasses.field(default_factory=list)
    leave: Callable[[], None] = lambda: None


def run_kernel(text: str, buffers: Sequence[np.ndarray], threads_per_block: int, blocks: int, outputs: Collection[int]):
    """Executes the kernel of a PTX module once.

    Args:
        text: the module.
        buffers: arrays for the parameters, in their order, which are pointers; changed in place. C-contiguous.
        threads_per_block: threads along x in each block.
        blocks: blocks along x.
        outputs: numbers of the buffers that the kernel writes, where it may read only what it has written itself.

    Raises: PtxError at an access that is outside all buffers, misaligned, a read of what nobody has written, a write to what is
    read-only, or a race between threads; at an instruction that is not known here, and at a division of integers by zero. It names
    the instruction.
    """
    _Launch(text, buffers, threads_per_block, blocks, outputs).run()


class _Launch:
    def __init__(self, text: str, buffers, threads_per_block: int, blocks: int, outputs: Collection[int]):
        functions, variables = read_module(text)
        (kernel,) = (f for f in functions.values() if f.is_kernel)
        self.threads = Threads(threads_per_block, blocks)
        self.memory = Memory()
        everywhere, each = np.zeros(self.threads.count, np.int64), np.arange(self.threads.count)
        addresses = {}
        for k, (buffer, name) in enumerate(zip(buffers, kernel.parameters, strict=True)):
            data = buffer.reshape(-1).view(np.uint8)
            addresses[name] = self.memory.add(Region(f"buffer {k}", "global", data, everywhere, k in outputs))
        for table in variables:
            data = np.frombuffer(table.initial, np.uint8)
            addresses[table.name] = self.memory.add(Region(table.name, table.space, data, everywhere, False))
        # The functions come first, so that all threads have returned before the kernel goes on.
        ordered = sorted(functions.values(), key=lambda f: f.is_kernel)
        self.blocks: list[_Block] = []
        self.starts: dict[tuple[str, str], int] = {}  # of functions ("") and of their labels
        self.return_to = {f.name: np.full(self.threads.count, -1, np.int64) for f in ordered}
        passed: dict[str, np.ndarray] = {}
        decoders = {}
        for function in ordered:
            self._cut(function)
            own = {}
            for variable in function.variables:
                data = np.zeros((self.threads.count, variable.size), np.uint8)
                own[variable.name] = self.memory.add(Region(variable.name, variable.space, data, each, True))
            decoders[function.name] = Decoder(function, self.threads, self.memory, addresses | own, passed)
        for number, block in enumerate(self.blocks):
            self._decode(block, number, decoders[block.function.name])
        self.at = np.full(self.threads.count, self.starts[kernel.name, ""], np.int64)

    def _cut(self, function: Function) -> None:
        instructions, first = function.instructions, len(self.blocks)
        cuts = {0, *function.labels.values()}
        for k, i in enumerate(instructions):
            cuts |= {k, k + 1} if i.guard else {k + 1} if i.opcode[0] in _LEAVING else set()
        places = sorted(cuts - {len(instructions)})
        ends = [*places[1:], len(instructions)]
        self.blocks += [_Block(function, instructions[a:b]) for a, b in zip(places, ends, strict=True)]
        self.starts[function.name, ""] = first
        for label, k in function.labels.items():
            self.starts[function.name, label] = first + places.index(k) if k < len(instructions) else -1

    def _decode(self, block: _Block, number: int, decoder: Decoder) -> None:
        decoder.steps, decoder.written = block.steps, block.written
        last = block.instructions[-1]
        leaves = last.opcode[0] in _LEAVING
        for instruction in block.instructions[:-1] if leaves else block.instructions:
            decoder.decode(instruction)
        if last.guard:
            predicate = decoder.register(last.guard.lstrip("!"))
            block.guard = (lambda: ~predicate) if last.guard[0] == "!" else (lambda: predicate)
        block.leave = self._way_on(last, number) if leaves else lambda: self._go(number + 1)

    def _go(self, to) -> None:
        self.at[self.threads.active] = to

    def _way_on(self, last: Instruction, number: int) -> Callable[[], None]:
        """What sends the active threads to their next block."""
        function, active = self.blocks[number].function, lambda: self.threads.active
        if last.opcode[0] == "bra":
            target = self.starts[function.name, last.operands[0]]
            return lambda: self._go(target)
        if last.opcode[0] == "call":
            called = call_parts(last)[1]
            start, return_to = self.starts[called, ""], self.return_to[called]

            def call():
                return_to[active()] = number + 1
                self._go(start)

            return call
        if function.is_kernel:
            return lambda: self._go(_FINISHED)
        return lambda: self._go(self.return_to[function.name][active()])

    def run(self) -> None:
        threads, at = self.threads, self.at
        with np.errstate(all="ignore"):
            while (number := int(at.min())) != _FINISHED:
                block = self.blocks[number]
                here = at == number
                if block.guard is not None:
                    guard = block.guard()
                    at[here & ~guard] = number + 1
                    here &= guard
                threads.active = np.flatnonzero(here)
                if not threads.active.size:
                    continue
                # What threads compute that have finished does not matter.
                others = ~here & (at != _FINISHED)
                saved = [(register, register.copy()) for register in block.written] if others.any() else []
                for step in block.steps:
                    step()
                for register, before in saved:
                    np.copyto(register, before, where=others)
                block.leave()
