"""Machine code of scalar programs on the CPU: compiled once, stored in files if wished, called by XLA, freed when it is not
needed.

Code is needed by the `Compiled` that stands for it in Python, which a lowered function keeps until it is compiled, and by every
executable of XLA that calls it, which the handlers count. Code that nothing needs is freed when the next program is compiled. A
small function in memory takes about 60 kB and two memory maps, of which Linux allows a process 65530 by default.
"""

import ctypes
import hashlib
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import llvmlite.binding as llvm

from jaxdyn.lanes.code_files import CodeFiles
from jaxdyn.lanes.cpu_code import CpuKernel
from jaxdyn.lanes.handler import Code, Handlers
from jaxdyn.lanes.llvm_engine import compiler, loaded, object_code
from jaxdyn.lanes.program import Program

# Scalar operations that are worth waking another thread for: some ten microseconds of work.
_OPERATIONS_PER_TASK = 200_000


@dataclass(frozen=True, eq=False)
class Compiled:
    """A compiled program; its code is there as long as this object is.

    Attributes:
        key: name under which the handlers know it.
        width: samples per vector.
        operations: scalar operations per sample, loops counted turn by turn.
        code_s: time LLVM took when the code was made.
    """

    key: str
    width: int
    operations: int
    code_s: float


@dataclass(frozen=True)
class _InMemory:
    """A function in memory.

    Attributes:
        engine: owns the memory.
        code: what the handlers know of it.
        code_s: time that making it took.
    """

    engine: llvm.ExecutionEngine
    code: Code
    code_s: float


_threads = ctypes.c_int64(0)
_handlers: list[Handlers] = []
_in_memory: dict[str, _InMemory] = {}
_owners: weakref.WeakValueDictionary[str, Compiled] = weakref.WeakValueDictionary()
_lock = threading.Lock()
_files: list[CodeFiles | None] = [None]

# Executables may live, and run, until the very end of the process. So this memory is kept when the interpreter ends.
for _lasting in (_threads, _handlers, _in_memory):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_lasting))


def set_threads(count: int) -> None:
    """Number of threads that one call of a compiled program uses at most; 0 for as many as XLA has."""
    if count < 0:
        raise ValueError(f"the number of threads is {count}; give at least 1, or 0 for all")
    _threads.value = count


def set_cache_directory(path: Path | str | None) -> None:
    """Keep machine code in a folder, so that later processes find it; None keeps it in memory only.

    A file is used only if it belongs to the user, nobody else may write to it, and its checksum is right. Other files are removed
    and compiled again. This protects from damage and from other users, but not from programs that run as the same user.

    Raises:
        ValueError: others may write to the folder, or replace it. What lies there is run, so it has to be the user's own.
    """
    _files[0] = None if path is None else CodeFiles(Path(path))


def compile_program(
    program: Program, inputs: Sequence[str], outputs: Sequence[str], has_lanes: bool, width: int
) -> Compiled:
    """Machine code of a program, which XLA can call; without lanes it serves one sample, whose arrays have no axis of lanes.

    Args:
        inputs, outputs: layout of each array, see `CpuKernel`.
        width: samples per vector.
    """
    kernel = CpuKernel(program, width, inputs, outputs)
    axis = -1 if not has_lanes else 1 if outputs[0] == "columns" else 0
    blocks = max(1, _OPERATIONS_PER_TASK // max(1, kernel.operations * kernel.width))
    # Another version of this library that makes other code makes another text.
    name = [kernel.text, compiler(), str((kernel.scratch_bytes, width, blocks, axis))]
    key = hashlib.sha256("\n".join(name).encode()).hexdigest()[:32]
    with _lock:
        _free_unheld()
        owner = _owners.get(key)
        if owner is None:
            if key not in _in_memory:
                code = Code(None, 0, key.encode(), None, kernel.scratch_bytes, width, blocks, axis)
                _in_memory[key] = _loaded(kernel.text, code)
            owner = Compiled(key, width, kernel.operations, _in_memory[key].code_s)
            _owners[key] = owner
        return owner


def _loaded(text: str, code: Code) -> _InMemory:
    """The code in memory, entered in the list of the handlers."""
    start = time.perf_counter()
    if not _handlers:
        _handlers.append(Handlers(_threads))
    files = _files[0]
    engine = loaded(object_code(text) if files is None else files.code(code.key.decode(), lambda: object_code(text)))
    code.kernel = engine.get_function_address("kernel")
    _handlers[0].enter(code)
    return _InMemory(engine, code, time.perf_counter() - start)


def _free_unheld() -> None:
    for key in [key for key in _in_memory if key not in _owners]:
        if _handlers[0].leave(_in_memory[key].code):
            _in_memory.pop(key).engine.close()
