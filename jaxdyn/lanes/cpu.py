"""Machine code of scalar programs on the CPU: compiled once, stored in files, called by XLA, and freed when unused.

Code is in use as long as its `Compiled` object exists in Python, or an executable of XLA calls it. A lowered function refers to the
`Compiled` object until XLA has compiled the function; the handlers count the executables. Unused code is freed when the next
program is compiled. A small function in memory takes about 60 kB and two memory maps; Linux by default allows 65530 memory maps per
process.
"""

import contextlib
import contextvars
import ctypes
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm

from jaxdyn.lanes.cpu_code import CpuKernel
from jaxdyn.lanes.handler import Code, Handlers
from jaxdyn.lanes.llvm_engine import LEAST_EFFORT, code_in_cache, effort_for, kept_object_code, key_of_code, loaded
from jaxdyn.lanes.program import Program

# Number of scalar operations that justify waking another thread, some ten microseconds of work.
_OPERATIONS_PER_TASK = 200_000

# Number of scalar operations of one call, some ten milliseconds of work, beyond which its speed matters more than its compilation.
_LONG = 10_000_000


@dataclass(frozen=True, eq=False)
class Compiled:
    """A compiled program; its code stays in memory at least as long as this object exists.

    Attributes:
        key: Name of the program for the handlers.
        width: Samples per vector.
        operations: Scalar operations per sample, with loops counted by their iterations.
        code_s: Time of code generation by LLVM, s.
    """

    key: str
    width: int
    operations: int
    code_s: float


@dataclass(frozen=True)
class _InMemory:
    """A function in memory.

    Attributes:
        engine: Owner of the memory.
        code: Description for the handlers.
        code_s: Time of code generation, s.
    """

    engine: llvm.ExecutionEngine
    code: Code
    code_s: float


_threads = ctypes.c_int64(0)
_handlers: list[Handlers] = []
_in_memory: dict[str, _InMemory] = {}
_owners: weakref.WeakValueDictionary[str, Compiled] = weakref.WeakValueDictionary()
_lock = threading.Lock()
_collecting: contextvars.ContextVar[list | None] = contextvars.ContextVar("jaxdyn_lanes_collecting", default=None)
_effort: contextvars.ContextVar[int | None] = contextvars.ContextVar("jaxdyn_lanes_effort", default=None)

# Executables may exist and run until the end of the process, so this memory is kept when the interpreter ends.
for _lasting in (_threads, _handlers, _in_memory):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_lasting))


def set_threads(count: int) -> None:
    """Set the maximum number of threads for one call of a compiled program; 0 for the number of threads of XLA."""
    if count < 0:
        raise ValueError(f"the number of threads is {count}; give at least 1, or 0 for all")
    _threads.value = count


@contextlib.contextmanager
def collected() -> Iterator[list[Compiled]]:
    """Context manager that provides a list of the programs that are compiled within it."""
    found: list[Compiled] = []
    token = _collecting.set(found)
    try:
        yield found
    finally:
        _collecting.reset(token)


@contextlib.contextmanager
def least_effort() -> Iterator[None]:
    """Context in which short programs of one sample are compiled ten times as fast, and run at half the speed."""
    token = _effort.set(LEAST_EFFORT)
    try:
        yield
    finally:
        _effort.reset(token)


def compile_program(
    program: Program, inputs: Sequence[str], outputs: Sequence[str], has_lanes: bool, width: int
) -> Compiled:
    """Machine code of a program that XLA can call; without an axis of lanes in the arrays, it processes one sample.

    Args:
        program: Scalar program.
        inputs, outputs: Layout of each array, see `CpuKernel`.
        has_lanes: True if the arrays have an axis of lanes.
        width: Samples per vector.
    """
    kernel = CpuKernel(program, width, inputs, outputs)
    axis = -1 if not has_lanes else 1 if outputs[0] == "columns" else 0
    blocks = max(1, _OPERATIONS_PER_TASK // max(1, kernel.operations * kernel.width))
    chosen = _effort.get()
    if chosen is None or has_lanes or kernel.operations > _LONG:
        chosen = effort_for(kernel.text)
    sizes = (kernel.scratch_bytes, width, blocks, axis)
    key = key_of_code(kernel.text, chosen, *sizes)
    return _owned(key, sizes, kernel.operations, lambda: kept_object_code(key, kernel.text, chosen))


def _owned(key: str, sizes: tuple[int, int, int, int], operations: int, code: Callable[[], bytes]) -> Compiled:
    """The compiled program with this key; its code is loaded if it is not in memory.

    Args:
        key: Name of the program for the handlers.
        sizes: Bytes of scratch memory, samples per vector, blocks per task, and axis of the lanes, see `Code`.
        operations: Scalar operations per sample.
        code: Function that makes or reads the object code.
    """
    with _lock:
        _free_unheld()
        owner = _owners.get(key)
        if owner is None:
            if key not in _in_memory:
                start = time.perf_counter()
                if not _handlers:
                    _handlers.append(Handlers(_threads))
                engine = loaded(code())
                entry = Code(None, 0, key.encode(), engine.get_function_address("kernel"), *sizes)
                _handlers[0].enter(entry)
                _in_memory[key] = _InMemory(engine, entry, time.perf_counter() - start)
            owner = Compiled(key, sizes[1], operations, _in_memory[key].code_s)
            _owners[key] = owner
    collecting = _collecting.get()
    if collecting is not None:
        collecting.append(owner)
    return owner


def stored_form(compiled: Compiled) -> tuple[Any, ...]:
    """Data that another process needs to call the program, in addition to the files of the cache."""
    code = _in_memory[compiled.key].code
    return compiled.key, (code.scratch, code.width, code.blocks_per_task, code.lane_axis), compiled.operations


def from_stored_form(form: tuple[Any, ...]) -> Compiled:
    """Load a program; its machine code stays in memory as long as the result, or an executable that calls it, exists.

    Raises:
        LookupError: The files of the cache do not contain the code of the program.
    """
    key, sizes, operations = form

    def code() -> bytes:
        found = code_in_cache(key)
        if found is None:
            raise LookupError(f"there is no machine code {key}")
        return found

    return _owned(key, sizes, operations, code)


def _free_unheld() -> None:
    for key in [key for key in _in_memory if key not in _owners]:
        if _handlers[0].leave(_in_memory[key].code):
            _in_memory.pop(key).engine.close()
