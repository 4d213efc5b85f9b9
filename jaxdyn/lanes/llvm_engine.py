"""LLVM for the processor of this process: compilation of text to object code, and loading of object code into memory.

Compilation and loading are separate steps, because compilation takes far more memory than the resulting code. An engine that
compiles keeps its module and its passes, about 800 kB for the smallest function. An engine that loads object code keeps 60 kB, of
which the description of the target takes half. Both kinds of engines free all memory when they are closed. (A library of LLVM's ORC
engine takes only 16 kB, but 8 kB of it are never freed.)
"""

import functools
import hashlib
from collections.abc import Callable

import llvmlite
import llvmlite.binding as llvm

from jaxdyn.cache import location

# Optimization levels of LLVM. The lowest takes a tenth of the compile time, and its code runs two to three times as long. A higher
# level takes up to a quarter more time, which grows with the square of the length of a block, and its code is not faster.
LEAST_EFFORT, USUAL_EFFORT = 0, 1


# A call of llvmlite waits until calls of other threads have returned, also for a compilation of some seconds. Therefore the facts
# about the processor are kept.
@functools.cache
def register_bytes() -> int:
    """Width of the vector registers of the processor."""
    features = llvm.get_host_cpu_features()
    return 64 if features.get("avx512f") else 32 if features.get("avx2") or features.get("avx") else 16


@functools.cache
def _processor() -> tuple[str, str, str]:
    """Name and features of the processor, and the target of LLVM."""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), llvm.get_default_triple()


def key_of_code(text: str, effort: int, *more: int) -> str:
    """Key of 32 characters for the object code of a module: a hash of its text, the compiler, the processor and the options."""
    compiler = (llvm.llvm_version_info, llvmlite.__version__, _processor(), effort)
    return hashlib.sha256(f"{text}\n{compiler}\n{more}".encode()).hexdigest()[:32]


def _machine(effort: int):
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features, _ = _processor()
    return llvm.Target.from_default_triple().create_target_machine(cpu=cpu, features=features, opt=effort)


def object_code(text: str, effort: int) -> bytes:
    """Object code of a module. A separate context for each module lets its types and constants be freed with it."""
    machine = _machine(effort)
    with llvm.parse_assembly(text, llvm.create_context()) as module:
        return machine.emit_object(module)


def source_of_code(key: str, text: str, effort: int) -> Callable[[], bytes]:
    """Function that returns the object code of a module from the cache, or compiles and stores it.

    Args:
        key: Key of the code, see `key_of_code`.
        text: LLVM module.
        effort: Optimization level.
    """
    files = location.files()  # the folder that is selected now
    if files is None:
        return lambda: object_code(text, effort)
    return lambda: files.content(_file(key), lambda: object_code(text, effort))


def code_in_cache(key: str) -> bytes | None:
    """Object code from the cache, or None if the cache does not contain it."""
    files = location.files()
    return None if files is None else files.read(_file(key))


def _file(key: str) -> str:
    return f"{key}.code"


def loaded(code: bytes):
    """Engine that contains object code, whose functions can be called until the engine is closed.

    Damaged object code terminates the process.
    """
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly("", llvm.create_context()), _machine(USUAL_EFFORT))
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine
