"""Machine code of scalar programs on the CPU: compiled once, stored in files, called by XLA, and freed when unused.

LLVM compiles a program in a separate thread, while Python lowers the rest of the function that calls it and XLA compiles that
function. The function counts as compiled when the code is made, too (`announcements`); a call would wait for it.

Code is in use as long as its `Compiled` object exists in Python, or an executable of XLA calls it. A lowered function refers to the
`Compiled` object until XLA has compiled the function; the handlers count the executables. Unused code is freed when the next
program is compiled. A small function in memory takes about 60 kB and two memory maps; Linux by default allows 65530 memory maps per
process.
"""

import contextlib
import contextvars
import ctypes
import itertools
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm

from jaxdyn.lanes.handler import Code, Handlers
from jaxdyn.lanes.llvm_engine import LEAST_EFFORT, USUAL_EFFORT, code_in_cache, key_of_code, loaded, source_of_code
from jaxdyn.lanes.remembered import referred_to_weakly

if TYPE_CHECKING:
    from jaxdyn.lanes.program import Program

# Number of scalar operations that justify waking another thread, some ten microseconds of work.
_OPERATIONS_PER_TASK = 200_000

# Number of scalar operations of one call, some ten milliseconds of work, beyond which its speed matters more than its compilation.
_LONG = 10_000_000


@referred_to_weakly
@dataclass(frozen=True, eq=False)
class Compiled:
    """A compiled program; its code stays in memory at least as long as this object exists.

    Attributes:
        key: Name of the program for the handlers.
        width: Samples per vector.
        operations: Scalar operations per sample, see `count_operations`.
        made: Completed when the code is in memory. The result is the time of code generation, s.
    """

    key: str
    width: int
    operations: int
    made: Future[float]

    def __getstate__(self) -> dict[str, Any]:
        """A stored executable contains this object, but not the state of its compilation."""
        return {name: value for name, value in vars(self).items() if name != "made"}


@dataclass(eq=False)
class _InMemory:
    """A function in memory.

    Attributes:
        code: Description for the handlers.
        made: As in `Compiled`.
        engine: Owner of the memory; None until the code is made.
    """

    code: Code
    made: Future[float]
    engine: llvm.ExecutionEngine | None = None

    def make(self, source: Callable[[], bytes]) -> None:
        """Make the code, or let its calls fail; for a separate thread, in which nobody receives an error."""
        start = time.thread_time()  # without the time in which LLVM compiles other programs
        try:
            self.provide(loaded(source()), start)
        except BaseException as error:
            _LOGGER.error("the machine code of a function could not be made: %s", error)
            _handlers[0].publish(self.code, None)
            self.made.set_exception(error)
        _return_memory()

    def provide(self, engine: llvm.ExecutionEngine, start: float) -> None:
        """Let executables call the code of an engine; `start` is the processor time at which this thread began to make it."""
        address = engine.get_function_address("kernel")
        self.engine = engine
        _handlers[0].publish(self.code, address)
        self.made.set_result(time.thread_time() - start)


# glibc keeps the memory that compilations have freed, some megabytes for each, unless it is asked to return it to the system.
_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
_COMPILATIONS_PER_TRIM = 8
_compilations = itertools.count(1)


def _return_memory() -> None:
    if _malloc_trim is not None and next(_compilations) % _COMPILATIONS_PER_TRIM == 0:
        _malloc_trim(0)


_LOGGER = logging.getLogger("jaxdyn")
_threads = ctypes.c_int64(0)
_handlers: list[Handlers] = []
_in_memory: dict[str, _InMemory] = {}
_owners: weakref.WeakValueDictionary[str, Compiled] = weakref.WeakValueDictionary()
_lock = threading.Lock()


class _Thread(threading.local):
    """State of a thread that compiles functions: the code that they need and that may still be in the making."""

    def __init__(self):
        self.begun: list[Future[float]] = []


_thread = _Thread()
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
    program: "Program", inputs: Sequence[str], outputs: Sequence[str], has_lanes: bool, width: int
) -> Compiled:
    """Machine code of a program that XLA can call; without an axis of lanes in the arrays, it processes one sample.

    Args:
        program: Scalar program.
        inputs, outputs: Layout of each array, see `CpuKernel`.
        has_lanes: True if the arrays have an axis of lanes.
        width: Samples per vector.
    """
    from jaxdyn.lanes.cpu_code import CpuKernel  # a process that finds all its programs does not need it

    kernel = CpuKernel(program, width, inputs, outputs)
    axis = -1 if not has_lanes else 1 if outputs[0] == "columns" else 0
    blocks = max(1, _OPERATIONS_PER_TASK // max(1, kernel.operations * kernel.width))
    effort = _effort.get()
    if effort is None or has_lanes or kernel.operations > _LONG:
        effort = USUAL_EFFORT
    sizes = (kernel.scratch_bytes, width, blocks, axis)
    key = key_of_code(kernel.text, effort, *sizes)
    return _owned(key, sizes, kernel.operations, source_of_code(key, kernel.text, effort), in_background=True)


def _owned(
    key: str,
    sizes: tuple[int, int, int, int],
    operations: int,
    source: Callable[[], bytes],
    *,
    in_background: bool,
) -> Compiled:
    """The compiled program with this key; its code is made if it is not in memory.

    Args:
        key: Name of the program for the handlers.
        sizes: Bytes of scratch memory, samples per vector, blocks per task, and axis of the lanes, see `Code`.
        operations: Scalar operations per sample.
        source: Function that makes or reads the object code.
        in_background: True to make the code in a separate thread.
    """
    with _lock:
        _free_unheld()
        owner = _owners.get(key)
        if owner is None:
            entry = _in_memory.get(key)
            if entry is None:
                if not _handlers:
                    _handlers.append(Handlers(_threads))
                start = time.thread_time()
                engine = None if in_background else loaded(source())  # an error leaves no entry
                entry = _InMemory(Code(None, 0, key.encode(), 0, *sizes), Future())
                _handlers[0].enter(entry.code)
                _in_memory[key] = entry
                if engine is None:
                    _thread.begun.append(entry.made)
                    _start(entry.make, source)
                else:
                    entry.provide(engine, start)
            owner = Compiled(key, sizes[1], operations, entry.made)
            _owners[key] = owner
    collecting = _collecting.get()
    if collecting is not None:
        collecting.append(owner)
    return owner


def _start(function: Callable, *args: Any) -> None:
    """Call a function in a separate thread; in this one if the interpreter ends, which then starts no thread."""
    try:
        threading.Thread(target=function, args=args).start()
    except RuntimeError:
        function(*args)


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

    def source() -> bytes:
        found = code_in_cache(key)
        if found is None:
            raise LookupError(f"there is no machine code {key}")
        return found

    return _owned(key, sizes, operations, source, in_background=False)


def wait_for_code() -> None:
    """Wait until the machine code of all programs that this thread has compiled is made."""
    wait(_thread.begun)
    _thread.begun.clear()


def _free_unheld() -> None:
    for key in [key for key in _in_memory if key not in _owners]:
        entry = _in_memory[key]
        if entry.code.kernel and _handlers[0].leave(entry.code):  # not while its code is being made
            del _in_memory[key]
            if entry.engine is not None:
                entry.engine.close()
