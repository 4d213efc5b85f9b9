"""LLVM for the processor of this process: text to object code, and object code to functions in memory.

These are two steps because compiling takes far more memory than its result. An engine that compiles keeps its module and its
passes, about 800 kB for the smallest function. An engine that loads object code keeps 60 kB, half of it the description of the
target. Both free everything when they are closed. (The libraries of LLVM's ORC engine take 16 kB each, but 8 kB of that are never
freed.)
"""

import llvmlite
import llvmlite.binding as llvm

_OPTIMIZATION = 2


def register_bytes() -> int:
    """Width of the vector registers of the processor."""
    features = llvm.get_host_cpu_features()
    return 64 if features.get("avx512f") else 32 if features.get("avx2") or features.get("avx") else 16


def _processor() -> tuple[str, str]:
    """Name and features."""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def compiler() -> str:
    """All that object code depends on besides the text: LLVM, the processor and its features, the options."""
    return str((llvm.llvm_version_info, llvmlite.__version__, llvm.get_default_triple(), _processor(), _OPTIMIZATION))


def _machine():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features = _processor()
    return llvm.Target.from_default_triple().create_target_machine(cpu=cpu, features=features, opt=_OPTIMIZATION)


def object_code(text: str) -> bytes:
    """Object code of a module. The module has a context of its own, so that its types and constants are freed with it."""
    machine = _machine()
    with llvm.parse_assembly(text, llvm.create_context()) as module:
        return machine.emit_object(module)


def loaded(code: bytes):
    """An engine whose functions can be called until it is closed. Damaged object code ends the process."""
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly("", llvm.create_context()), _machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine
