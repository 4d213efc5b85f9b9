"""Functions of one sample as C functions, for robot controllers: an object file with machine code, and a header."""

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from jaxdyn.compute import CannotCompile, machine_code, within_jit
from jaxdyn.errors import check_name
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.files import write_files, writing
from jaxdyn.version import __version__

_TARGETS = {
    "x86-64": "x86-64-v3 (AVX2 and FMA), ELF",
    "aarch64": "Armv8-A, ELF",
    "native": "the processor that wrote it",
}
_ALIGNMENT = 64  # bytes, a cache line
_TYPES = {"float32": "float", "float64": "double", "bool": "bool"}
_TYPES |= {f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)}
# Words of C and C++ that cannot be names, macros of compilers, and the name of the last argument.
_WORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class
    co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype
    default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int
    long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
    reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast struct switch
    template this thread_local throw true try typedef typeid typename typeof union unsigned using virtual void
    volatile wchar_t while workspace xor xor_eq linux unix
"""
_RESERVED = {*re.findall(r"\w+", _WORDS), *_TYPES.values()}
# Functions of every C program, which the code would replace, with those for other precisions.
_LIBRARY = """
    main exit abort malloc calloc realloc free memcpy memmove memset memcmp printf strlen strcpy abs sin cos tan asin acos atan
    atan2 sinh cosh tanh asinh acosh atanh exp exp2 expm1 log log2 log10 log1p pow sqrt cbrt hypot fabs fmod remainder fma fmin
    fmax floor ceil round trunc rint erf erfc tgamma lgamma copysign ldexp frexp modf
"""
_OF_LIBRARY = {name + ending for name in _LIBRARY.split() for ending in ("", "f", "l")}


def export_c(
    function: Callable,
    specs: Sequence[Any],
    path: Path | str,
    *,
    target: Literal["x86-64", "aarch64", "native"] = "x86-64",
) -> None:
    """Write a function of one sample as a C function: an object file `path.o` with machine code, and a header `path.h`.

    The code is made from the same scalar program as that of `jaxdyn.batched`, for any function that the lane compiler supports:
    derivatives, loops of a mechanism, contacts, whole rollouts. It allocates no memory, calls no library (not even libm), and has
    no state, so that threads may call it at the same time, each with a separate workspace. Intermediate values are on the stack:
    0.9 kB for the forward dynamics of a Panda, and 13.5 kB for its derivatives of a humanoid.

    Args:
        function: Pure function of pytrees of arrays. Values in its closure, such as a model, are constants of the code.
        specs: Array, `jax.ShapeDtypeStruct` or pytree of these for each argument of the function; only shapes and types matter.
        path: Folder and name of the files, without a suffix. The name is that of the C function.
        target: Processor. "x86-64" is any with AVX2 and FMA, "aarch64" any with 64-bit Arm code; both for Linux and other systems
            with ELF files. "native" is the processor of this process, and its system.

    The C function has a pointer to each array of the arguments, in the order of the Python function, to each array of the result,
    and to the workspace. The names are those of the Python arguments, with paths in pytrees: `state.q` is `state_q`, and those of
    a result begin with `result`. Arrays are row-major; a scalar is an array of length one. The header defines the size of the
    workspace, `NAME_WORKSPACE_BYTES`, and its alignment, `NAME_WORKSPACE_ALIGNMENT`, with the name in capital letters.

    Results are bitwise those of the compiled Python function on the same kind of processor, and otherwise agree to rounding. Angles
    above 2^30 (2^17 in float32) are reduced without libm, to the same accuracy, and subnormal numbers are treated as the calling
    thread has set its processor.

    Raises:
        CannotCompile: The function has an operation without scalar form, or the lane compiler cannot be used.
        UnknownName: The target is unknown.
        ConfigError: The name cannot be that of a C function, or the files cannot be written.
        TypeError: The specs do not match the arguments of the function, or one of them is not an array.

    Example:
        ```python
        import jax, jax.numpy as jnp, jaxdyn

        model = jaxdyn.library.double_pendulum()
        rows = jax.ShapeDtypeStruct((2,), jnp.float32)
        jaxdyn.io.export_c(lambda q, v, tau: jaxdyn.forward_dynamics(model, q, v, tau), (rows, rows, rows), "pendulum")
        # void pendulum(const float q[2], const float v[2], const float tau[2], float result[2], void *workspace);
        ```
    """
    path = Path(path)
    name = path.name
    check_name("target", target, _TARGETS)
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or name in _RESERVED | _OF_LIBRARY:
        raise ConfigError(
            f"{path}: {name!r} cannot be the name of a C function; use letters, digits and _, as in 'arm'"
        )
    if within_jit():
        raise CannotCompile(
            "export_c writes files, so it cannot be a part of a compiled function; call it outside of jit"
        )
    given = inspect.signature(function).bind(*specs).arguments
    for where, leaf in arrays_of(given, every=True):
        _check(where, leaf)
    code, workspace, results = machine_code(function, tuple(specs), name=name, target=target)
    arguments, results = list(arrays_of(given)), list(arrays_of({"result": results}))
    if not results:
        raise TypeError(f"{path}: the function returns no array; return the arrays that C needs")
    header = _header(name, target, arguments, results, workspace)
    with writing(path):
        write_files(
            {
                path.with_name(f"{name}.o"): lambda f: f.write(code),
                path.with_name(f"{name}.h"): lambda f: f.write(header.encode()),
            }
        )


def arrays_of(trees: dict[str, Any], every: bool = False) -> Iterable[tuple[str, Any]]:
    """Paths and values of the arrays in named pytrees, in their order; of all leaves if `every`."""
    for name, tree in trees.items():
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            if every or hasattr(leaf, "dtype"):
                yield "_".join([name, jax.tree_util.keystr(path, simple=True, separator="_")][: 1 + bool(path)]), leaf


def _check(where: str, leaf: Any) -> None:
    """Raise an error for a leaf of the specs that C cannot give."""
    if isinstance(leaf, bool | int | float | complex):
        raise TypeError(
            f"{where} is {leaf}, which C could not change; give jax.ShapeDtypeStruct((), float) for an argument, "
            f"or a constant in the closure of the function"
        )
    if not hasattr(leaf, "dtype"):
        return
    if not isinstance(leaf.dtype, np.dtype):
        raise TypeError(
            f"{where} is a random key; let the function take its words, jax.random.key_data(key), and call jax.random.wrap_key_data"
        )
    if jax.dtypes.canonicalize_dtype(leaf.dtype) != leaf.dtype:
        raise TypeError(
            f'{where} is {leaf.dtype}, which needs jax.config.update("jax_enable_x64", True); or give 32 bits'
        )


def _header(name: str, target: str, arguments: list, results: list, workspace: int) -> str:
    taken = {*_RESERVED, f"{name}_WORKSPACE_BYTES".upper(), f"{name}_WORKSPACE_ALIGNMENT".upper()}
    declared = []
    for is_argument, (path, leaf) in [*((True, a) for a in arguments), *((False, r) for r in results)]:
        own = re.sub(r"\W", "_", path, flags=re.ASCII)
        while own in taken:
            own += "_"
        taken.add(own)
        size, kind = int(np.prod(leaf.shape)), f"{'const ' * is_argument}{_TYPES[leaf.dtype.name]} "
        shape = f" /* {leaf.shape} */" if len(leaf.shape) > 1 else ""
        declared.append(f"{kind}{own}[{size}],{shape}" if size else f"{kind}*{own}, /* {leaf.shape}, not used */")
    capital = name.upper()
    lines = "\n    ".join(declared)
    return f"""/* Written by jaxdyn {__version__}; the code is in {name}.o, for {_TARGETS[target]}.
 *
 * Arrays are contiguous and row-major. A result must not overlap with any other array. The function allocates no memory, calls no
 * library and keeps no state: threads may call it at the same time, each with its own workspace, whose content does not matter.
 */
#ifndef JAXDYN_{capital}_H
#define JAXDYN_{capital}_H

#include <stdbool.h>
#include <stdint.h>

#define {capital}_WORKSPACE_BYTES {max(workspace, _ALIGNMENT)}
#define {capital}_WORKSPACE_ALIGNMENT {_ALIGNMENT}

#ifdef __cplusplus
extern "C" {{
#endif

void {name}(
    {lines}
    void *workspace);

#ifdef __cplusplus
}}
#endif

#endif
"""
