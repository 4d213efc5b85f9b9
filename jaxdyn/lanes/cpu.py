"""Machine code of scalar programs on the CPU: compiled by LLVM, remembered, kept in files if wished, and made known to XLA."""

import ctypes
import hashlib
import os
import stat
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import llvmlite.binding as llvm

from jaxdyn.lanes.handler import handler_code
from jaxdyn.lanes.llvm_code import KernelCode
from jaxdyn.lanes.program import Program


@dataclass(frozen=True)
class Compiled:
    """A compiled program.

    Attributes:
        target: name under which XLA knows it.
        width: samples per vector.
        operations: scalar operations per sample, loops counted turn by turn.
        code_s: time LLVM took when the code was made.
    """

    target: str
    width: int
    operations: int
    code_s: float


_threads = ctypes.c_int64(0)
_engines: dict[str, tuple[object, Compiled]] = {}
_lock = threading.Lock()
_directory: list[Path | None] = [None]


def set_threads(count: int) -> None:
    """Number of threads that one call of a compiled program uses at most; 0 for as many as XLA has."""
    if count < 0:
        raise ValueError(f"the number of threads is {count}; give at least 1, or 0 for all")
    _threads.value = count


def set_cache_directory(path: Path | str | None) -> None:
    """Keep machine code in a folder, so that later processes find it; None keeps it in memory only.

    Raises:
        ValueError: others may write to the folder. What lies there is run, so it has to be the user's own.
    """
    if path is None:
        _directory[0] = None
        return
    folder = Path(path)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if (hasattr(os, "getuid") and status.st_uid != os.getuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ValueError(f"others may write to {folder}, and code from it would be run; choose a folder of your own")
    _directory[0] = folder


def _host() -> tuple[str, str]:
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def register_bytes() -> int:
    """Width of the vector registers of the host."""
    features = llvm.get_host_cpu_features()
    return 64 if features.get("avx512f") else 32 if features.get("avx2") or features.get("avx") else 16


def compile_program(
    program: Program, inputs: Sequence[str], outputs: Sequence[str], has_lanes: bool, width: int
) -> Compiled:
    """Machine code of a program, known to XLA; without lanes it serves one sample, whose arrays have no axis of lanes.

    Args:
        inputs, outputs: layout of each array, see `KernelCode`.
        width: samples per vector.
    """
    kernel = KernelCode(program, width, inputs, outputs)
    text = kernel.text + handler_code(kernel, len(inputs), outputs, has_lanes)
    return _compiled(text, kernel)


def _compiled(text: str, kernel: KernelCode) -> Compiled:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features = _host()
    key = hashlib.sha256("\n".join([text, cpu, features, str(llvm.llvm_version_info)]).encode()).hexdigest()[:32]
    with _lock:
        if key in _engines:
            return _engines[key][1]
        start = time.perf_counter()
        llvm.add_symbol("jaxdyn_lanes_threads", ctypes.addressof(_threads))
        machine = llvm.Target.from_default_triple().create_target_machine(cpu=cpu, features=features, opt=2)
        module = llvm.parse_assembly(text)
        module.name = key
        engine = llvm.create_mcjit_compiler(module, machine)
        if _directory[0] is not None:
            _use_files(engine, _directory[0])
        engine.finalize_object()
        address = engine.get_function_address("handler")
        compiled = Compiled(f"jaxdyn_lanes_{key}", kernel.width, kernel.operations, time.perf_counter() - start)
        jax.ffi.register_ffi_target(compiled.target, jax.ffi.pycapsule(ctypes.c_void_p(address)), platform="cpu")
        _engines[key] = (engine, compiled)  # the engine owns the code and must outlive it
        return compiled


def _use_files(engine, folder: Path) -> None:
    def store(module, code: bytes) -> None:
        unfinished = folder / f"{module.name}.{os.getpid()}.tmp"
        unfinished.write_bytes(code)
        unfinished.replace(folder / f"{module.name}.o")

    def fetch(module) -> bytes | None:
        path = folder / f"{module.name}.o"
        return path.read_bytes() if path.exists() else None

    engine.set_object_cache(store, fetch)
