"""LLVM for the processor of this process: text to object code, and object code to functions in memory.

The two steps are apart because compiling needs a hundred times the memory of its result: an engine that compiles keeps its module and
its passes, about 800 kB for the smallest function, where one that has loaded object code keeps 60 kB, most of it the description of
the target. Both give all of it back when they are closed.
"""

import llvmlite
import llvmlite.binding as llvm

_OPTIMIZATION = 2


def register_bytes() -> int:
    """Width of the vector registers of the processor."""
    features = llvm.get_host_cpu_features()
    return 64 if features.get("avx512f") else 32 if features.get("avx2") or features.get("avx") else 16


def _processor() -> dict[str, str]:
    return {"cpu": llvm.get_host_cpu_name(), "features": llvm.get_host_cpu_features().flatten()}


def compiler() -> str:
    """All that object code depends on besides the text: LLVM, the processor and its features, the options."""
    return str((llvm.llvm_version_info, llvmlite.__version__, llvm.get_default_triple(), _processor(), _OPTIMIZATION))


def _machine():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(**_processor(), opt=_OPTIMIZATION)


def object_code(text: str) -> bytes:
    """Object code of a module. Its types and constants live in a context of their own, which goes with it."""
    machine = _machine()
    with llvm.parse_assembly(text, llvm.create_context()) as module:
        return machine.emit_object(module)


def loaded(code: bytes):
    """An engine whose functions can be called until it is closed. Damaged object code ends the process."""
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly("", llvm.create_context()), _machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine
