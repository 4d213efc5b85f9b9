"""Machine code of scalar programs on the CPU: compiled once, stored in files, called by XLA, freed when it is not needed.

Code is needed by the `Compiled` that stands for it in Python, which a lowered function keeps until it is compiled, and by every
executable of XLA that calls it, which the handlers count. Code that nothing needs is freed when the next program is compiled. A
small function in memory takes about 60 kB and two memory maps, of which Linux allows a process 65530 by default.
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
from jaxdyn.lanes.llvm_engine import LEAST_EFFORT, MOST_EFFORT, code_in_cache, kept_object_code, key_of_code, loaded
from jaxdyn.lanes.program import Program

# Scalar operations that are worth waking another thread for: some ten microseconds of work.
_OPERATIONS_PER_TASK = 200_000

# Scalar operations of one call, some ten milliseconds of work, from which on its speed counts for more than its compilation.
_LONG = 10_000_000


@dataclass(frozen=True, eq=False)
class Compiled:
    """A compiled program; its code is there as long as this object is.

    Attributes:
        key: Name under which the handlers know it.
        width: Samples per vector.
        operations: Scalar operations per sample, loops counted turn by turn.
        code_s: Time LLVM took when the code was made.
    """

    key: str
    width: int
    operations: int
    code_s: float


@dataclass(frozen=True)
class _InMemory:
    """A function in memory.

    Attributes:
        engine: Owns the memory.
        code: What the handlers know of it.
        code_s: Time that making it took.
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
_effort: contextvars.ContextVar[int] = contextvars.ContextVar("jaxdyn_lanes_effort", default=MOST_EFFORT)

# Executables may live, and run, until the very end of the process. So this memory is kept when the interpreter ends.
for _lasting in (_threads, _handlers, _in_memory):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_lasting))


def set_threads(count: int) -> None:
    """Number of threads that one call of a compiled program uses at most; 0 for as many as XLA has."""
    if count < 0:
        raise ValueError(f"the number of threads is {count}; give at least 1, or 0 for all")
    _threads.value = count


@contextlib.contextmanager
def collected() -> Iterator[list[Compiled]]:
    """A list of the programs that are compiled within."""
    found: list[Compiled] = []
    token = _collecting.set(found)
    try:
        yield found
    finally:
        _collecting.reset(token)


@contextlib.contextmanager
def least_effort() -> Iterator[None]:
    """Short programs of one sample are compiled within in a tenth of the time, and run at half the speed."""
    token = _effort.set(LEAST_EFFORT)
    try:
        yield
    finally:
        _effort.reset(token)


def compile_program(
    program: Program, inputs: Sequence[str], outputs: Sequence[str], has_lanes: bool, width: int
) -> Compiled:
    """Machine code of a program, which XLA can call; without lanes it serves one sample, whose arrays have no axis of lanes.

    Args:
        inputs, outputs: Layout of each array, see `CpuKernel`.
        width: Samples per vector.
    """
    kernel = CpuKernel(program, width, inputs, outputs)
    axis = -1 if not has_lanes else 1 if outputs[0] == "columns" else 0
    blocks = max(1, _OPERATIONS_PER_TASK // max(1, kernel.operations * kernel.width))
    effort = MOST_EFFORT if has_lanes or kernel.operations > _LONG else _effort.get()
    numbers = (kernel.scratch_bytes, width, blocks, axis)
    key = key_of_code(kernel.text, effort, *numbers)
    return _owned(key, numbers, kernel.operations, lambda: kept_object_code(key, kernel.text, effort))


def _owned(key: str, numbers: tuple[int, int, int, int], operations: int, code: Callable[[], bytes]) -> Compiled:
    """The compiled program of this key, whose code is loaded if it is not in memory.

    Args:
        numbers: Bytes of scratch memory, samples per vector, blocks per task, and axis of the lanes, see `Code`.
        code: Makes or reads the object code.
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
                entry = Code(None, 0, key.encode(), engine.get_function_address("kernel"), *numbers)
                _handlers[0].enter(entry)
                _in_memory[key] = _InMemory(engine, entry, time.perf_counter() - start)
            owner = Compiled(key, numbers[1], operations, _in_memory[key].code_s)
            _owners[key] = owner
    collecting = _collecting.get()
    if collecting is not None:
        collecting.append(owner)
    return owner


def stored_form(compiled: Compiled) -> tuple[Any, ...]:
    """What another process needs to call the program, if it has the same files."""
    code = _in_memory[compiled.key].code
    return compiled.key, (code.scratch, code.width, code.blocks_per_task, code.lane_axis), compiled.operations


def from_stored_form(form: tuple[Any, ...]) -> Compiled:
    """The program, ready to be called as long as the result is held or an executable calls it.

    Raises:
        LookupError: Its code is not in the files.
    """
    key, numbers, operations = form

    def code() -> bytes:
        found = code_in_cache(key)
        if found is None:
            raise LookupError(f"there is no machine code {key}")
        return found

    return _owned(key, numbers, operations, code)


def _free_unheld() -> None:
    for key in [key for key in _in_memory if key not in _owners]:
        if _handlers[0].leave(_in_memory[key].code):
            _in_memory.pop(key).engine.close()
