"""Machine code of a function of one sample that runs without Python: an object file with one C function.

The code calls no other function, so it needs no library, and it writes only to its results, its workspace and the stack. It
assumes fused multiply-add and rounding instructions, which a processor must have: otherwise LLVM would call libm.
"""

import struct
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import llvmlite.binding as llvm

from jaxdyn.lanes.cpu_code import CpuKernel
from jaxdyn.lanes.direct import only_sample
from jaxdyn.lanes.flatten import CannotFlatten
from jaxdyn.lanes.llvm_engine import USUAL_EFFORT

# Triple and processor of LLVM. The level v3 of x86-64 has AVX2 and fused multiply-add; every aarch64 processor has the latter.
_TARGETS = {
    "x86-64": ("x86_64-unknown-linux-gnu", "x86-64-v3"),
    "aarch64": ("aarch64-unknown-linux-gnu", "generic"),
}
# Entries of 64-bit ELF files: of the table of sections (name, kind, flags, address, start in the file, size, linked section ...),
# of which one kind has symbols, and of the table of symbols (name, kind, visibility, section, which is 0 if undefined ...).
_SECTION, _SYMBOL, _SYMBOLS = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ"), 2


class _Kernel(CpuKernel):
    """Kernel of one sample that calls no library."""

    _has_libm = False


def machine_code(function: Callable, args: tuple, *, name: str, target: str) -> tuple[bytes, int, Any]:
    """Result of `jaxdyn.compute.machine_code`."""
    arrays, rest = eqx.partition(args, lambda x: hasattr(x, "dtype"))
    leaves, tree = jax.tree.flatten(arrays)
    structure: list = []

    def flat(*values):
        out = function(*eqx.combine(jax.tree.unflatten(tree, values), rest))
        results, out_tree = jax.tree.flatten(eqx.filter(out, eqx.is_array_like))
        structure[:] = [out_tree]
        return results

    kernel, used, results = only_sample(flat, leaves, "lanes", _Kernel)
    text = kernel.text.replace("void @kernel(", "internal void @jaxdyn.kernel(", 1)
    code = _object_file(f"{text}\n{_entry(name, [*used, *(True for _ in results)])}", target)
    if missing := _undefined_symbols(code):
        raise CannotFlatten(f"{name}: the processor lacks instructions, so the code would call {', '.join(missing)}")
    return code, kernel.scratch_bytes, jax.tree.unflatten(structure[0], results)


def _entry(name: str, used: list[bool]) -> str:
    """The C function: it calls the kernel with a list of those of its arrays that the kernel uses."""
    arrays = [f"%array{k}" for k in range(len(used))]
    lines = []
    for place, array in enumerate(array for array, on in zip(arrays, used, strict=True) if on):
        lines += [
            f" %place{place} = getelementptr ptr, ptr %buffers, i64 {place}",
            f" store ptr {array}, ptr %place{place}",
        ]
    return "\n".join(
        [
            f"define void @{name}({', '.join(f'ptr {array}' for array in arrays)}, ptr %workspace) nounwind {{",
            f" %buffers = alloca [{len(used)} x ptr]",
            *lines,
            " call void @jaxdyn.kernel(ptr %buffers, i64 0, i64 1, i64 1, ptr %workspace)",
            " ret void",
            "}",
        ]
    )


def _object_file(text: str, target: str) -> bytes:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    if target == "native":
        triple, processor = llvm.get_default_triple(), llvm.get_host_cpu_name()
        features = llvm.get_host_cpu_features().flatten()
    else:
        (triple, processor), features = _TARGETS[target], ""
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=processor, features=features, opt=USUAL_EFFORT, reloc="pic", codemodel="default"
    )
    # The layout determines the alignments that the text omits, so it must be known when the text is parsed.
    head = f'target datalayout = "{machine.target_data}"\ntarget triple = "{triple}"\n'
    with llvm.parse_assembly(head + text, llvm.create_context()) as module:
        return machine.emit_object(module)


def _undefined_symbols(code: bytes) -> list[str]:
    """Names in an ELF file that another file would have to define."""
    if not code.startswith(b"\x7fELF"):  # "native" on another system
        return []
    (start,), (count,) = struct.unpack_from("<Q", code, 40), struct.unpack_from("<H", code, 60)
    sections = list(_SECTION.iter_unpack(code[start : start + count * _SECTION.size]))
    missing = []
    for _, kind, _, _, start, size, link, *_ in sections:
        if kind == _SYMBOLS:
            symbols = _SYMBOL.iter_unpack(code[start : start + size])
            names = [sections[link][4] + name for name, _, _, section, _, _ in symbols if name and not section]
            missing += [code[name : code.index(b"\0", name)].decode() for name in names]
    return missing
