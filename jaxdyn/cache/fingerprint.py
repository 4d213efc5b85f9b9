"""Fingerprints: names of function calls, where the same call has the same name in all processes.

The name of a call covers everything that decides the code:

    the function                 its name and, if it has a closure, its code and the values in the closure;
    the arguments                structure, shapes, types, and the values of constants (arrays in static fields, plain values);
    packages                     versions of Python and of `_PACKAGES`, and the sources of this package;
    the processor                and the operating system;
    settings                     of JAX, those of the thread included, and XLA_FLAGS;
    extensions                   of the lane compiler by the user (`EXTENSIONS`): their names, declarations and code.

A call has a name only if every function and class involved belongs to a package whose version is part of the name. Functions and
classes of the user can change from one process to the next, so calls with them have no name. Only extensions are described by their
code. A function of a package that is replaced while a process runs is not noticed.
"""

import contextvars
import dataclasses
import enum
import functools
import hashlib
import importlib.metadata
import inspect
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NoReturn

import equinox as eqx
import jax
import numpy as np

from jaxdyn.compute import internals
from jaxdyn.compute.constant import Constant
from jaxdyn.errors import Error

# Packages whose functions and classes are identified by name, because their versions are part of each fingerprint.
_PACKAGES = ("jaxdyn", "jax", "jaxlib", "equinox", "llvmlite", "numpy", "optax", "scipy")
# Functions of the user that take part in the compilation of every function, by name, with further facts about them.
EXTENSIONS: dict[str, tuple[Callable, str]] = {}
# Modules of Python, whose version is part of each fingerprint, too.
_STANDARD = sys.stdlib_module_names
# Settings of JAX that do not affect programs.
_IRRELEVANT = ("jax_compilation_cache", "jax_persistent_cache", "jax_log", "jax_traceback", "jax_dump")


class HasNoName(Error):
    """Error of a function call that has no name, because an object in the call could differ undetected between processes."""


def fingerprint(function: Any, arguments: Any) -> str:
    """Name of a function call.

    Args:
        function: A function of `jaxdyn` or of one of the packages it depends on; the values in its closure are constants.
        arguments: Pytree of arrays, plain values, and objects of the same packages as the function.

    Raises:
        HasNoName: The message states which object cannot be named.
    """
    found = hashlib.sha256()
    for part in (*_described(function, True), *_described(arguments, False), *_surroundings()):
        found.update(part.encode() + b"\0")
    return found.hexdigest()[:40]


def _described(x: Any, is_static: bool) -> Iterator[str]:
    """Description in pieces. An array is described by its shape if it is an argument, and by its values if it is static."""
    match x:
        case None | bool() | int() | str() | bytes():
            yield f"{type(x).__name__} {x!r}"
        case float() | complex():
            yield f"{type(x).__name__} {x!r}" if is_static else type(x).__name__
        case enum.Enum():
            yield f"{_name(type(x))} {x.name}"
        case jax.Array():
            yield str(x.aval)
            if is_static:
                values = jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x
                yield hashlib.sha256(np.asarray(values).tobytes()).hexdigest()
        case np.ndarray() | np.generic():
            if x.dtype == object:
                raise HasNoName("an array of objects")
            # A program takes arrays of NumPy and of JAX alike; in a closure their operations may differ.
            is_argument = isinstance(x, np.ndarray) and not is_static
            yield str(jax.typeof(x)) if is_argument else f"numpy {x.dtype} {x.shape}"
            if is_static:
                yield hashlib.sha256(np.ascontiguousarray(x).tobytes()).hexdigest()
        case PurePath():
            yield f"path {x}"
        case np.dtype():
            yield f"dtype {x}"
        case tuple() | list():
            yield f"{_name(type(x))} {len(x)}"
            for part in x:
                yield from _described(part, is_static)
        case dict():
            yield f"dict {len(x)}"
            for key, value in x.items():
                yield from _described(key, True)
                yield from _described(value, is_static)
        case frozenset() | set():
            yield f"{type(x).__name__} {sorted(' '.join(_described(part, True)) for part in x)}"
        case slice():
            yield f"slice {x!r}"
        case ModuleType():
            yield f"module {x.__name__}"
        case FunctionType():
            if (name := _name_or_none(x)) is not None:
                yield name
            else:
                yield from _described_closure(x)
        case type() | BuiltinFunctionType() | np.ufunc():
            yield _name(x)
        case functools.partial():
            yield "partial"
            yield from _described((x.func, x.args, x.keywords), is_static)
        case MethodType():
            yield f"method {x.__func__.__name__}"
            yield from _described(x.__self__, is_static)
        case _ if dataclasses.is_dataclass(x):
            yield _name(type(x))
            for field in dataclasses.fields(x):
                yield field.name
                # Fields of other dataclasses are not arguments: such an object is a leaf, or the content of a static field.
                inner = is_static or not isinstance(x, eqx.Module) or bool(field.metadata.get("static", False))
                yield from _described(getattr(x, field.name, None), inner)
        case _ if type(x) is object:  # `jax.vmap` marks an axis without a name by an object of JAX
            yield next((name for name, value in vars(internals.core).items() if value is x), "") or _refused(x)
        case Constant():
            yield "constant"
            yield from _described(x.value, True)
        case _ if callable(x):  # objects that wrap a function, such as `jax.jit` makes
            yield type(x).__name__
            if (name := _name_or_none(x)) is not None:
                yield name
            elif isinstance(wrapped := getattr(x, "__wrapped__", None), FunctionType):
                yield from _described(wrapped, True)
            else:
                _refused(x)
        case _:
            _refused(x)


def _refused(x: Any) -> NoReturn:
    raise HasNoName(f"an object of {type(x).__module__}.{type(x).__qualname__}")


def _described_closure(function: FunctionType) -> Iterator[str]:
    """A function within a function: the location of its code, and the values in its closure."""
    module = function.__globals__["__name__"]  # a decorator may have changed `function.__module__`
    if module.startswith("jaxtyping."):  # a type check, which does not change results
        yield from _described_closure(inspect.unwrap(function))
        return
    if module.split(".")[0] not in _PACKAGES:
        raise HasNoName(f"{module}.{function.__qualname__}")
    if function in (open_functions := _within.get()):  # it calls itself
        yield f"again {open_functions.index(function)}"
        return
    token = _within.set((*open_functions, function))
    try:
        code = function.__code__
        yield f"{module}.{code.co_qualname} {code.co_firstlineno} {hashlib.sha256(code.co_code).hexdigest()}"
        yield from _described((function.__defaults__, function.__kwdefaults__), True)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            yield name
            try:
                content = cell.cell_contents
            except ValueError:
                yield "empty"
            else:
                yield from _described(content, True)
    finally:
        _within.reset(token)


# The functions that are being described, the outermost first.
_within: contextvars.ContextVar[tuple[FunctionType, ...]] = contextvars.ContextVar("jaxdyn_cache_within", default=())


def _name(x: Any) -> str:
    """Dotted name under which each process finds the same object.

    Raises:
        HasNoName: The object does not belong to a known package, or cannot be found by its name (lambdas, inner functions).
    """
    module, path = getattr(x, "__module__", None) or "builtins", getattr(x, "__qualname__", None)
    if path is None:
        _refused(x)
    if module.split(".")[0] not in (*_PACKAGES, "builtins", "functools"):
        raise HasNoName(f"{module}.{path}")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if found is None or isinstance(found, ModuleType) or not _is_same(found, x):
        raise HasNoName(f"{module}.{path}, which cannot be found by its name")
    return f"{module}.{path}"


def _name_or_none(x: Any) -> str | None:
    try:
        return _name(x)
    except HasNoName:
        return None


def _is_same(found: Any, x: Any) -> bool:
    """True if both are the same object, or if one of them is a decorated form of the other."""
    return any(a is b for a in _unwrapped(found) for b in _unwrapped(x))


def _unwrapped(x: Any) -> Iterator[Any]:
    while x is not None:
        yield x
        x = getattr(x, "__wrapped__", None)


def _surroundings() -> Iterator[str]:
    """All conditions that affect the code besides the function and its arguments."""
    yield versions()
    yield os.environ.get("XLA_FLAGS", "")
    yield str(sorted((name, str(x)) for name, x in jax.config.values.items() if not name.startswith(_IRRELEVANT)))
    # Settings of this thread. Values without a meaningful text, such as the names of mapped axes, are empty outside of traces.
    yield str([x for x in internals.config.trace_context() if " object at " not in repr(x)])
    for name, (function, details) in sorted(EXTENSIONS.items()):
        yield f"{name} {details}"
        yield from _described_by_code(function, ())


def _described_by_code(function: Any, within: tuple[Any, ...]) -> Iterator[str]:
    """An extension, or a function that it calls: the code, and all values that the code can reach by a name.

    Args:
        function: The function.
        within: The functions that call it, which may call themselves.

    Raises:
        HasNoName: The code reaches an object that cannot be described.
    """
    if not isinstance(function, FunctionType):
        _refused(function)
    if function in within:
        yield f"again {within.index(function)}"
        return
    cells = zip(function.__code__.co_freevars, (cell.cell_contents for cell in function.__closure__ or ()), strict=True)
    codes = [function.__code__]
    reached: dict[str, Any] = dict(cells)
    for code in codes:  # functions within the function append their codes
        yield hashlib.sha256(code.co_code).hexdigest()
        yield from (repr(x) for x in code.co_consts if not isinstance(x, CodeType))
        yield str(code.co_names)
        codes += [x for x in code.co_consts if isinstance(x, CodeType)]
        reached |= {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
    reached |= {"defaults": function.__defaults__, "keywords": function.__kwdefaults__}
    for name, value in reached.items():
        yield name
        if isinstance(value, FunctionType) and value.__module__.split(".")[0] not in _PACKAGES:
            yield from _described_by_code(value, (*within, function))
        elif isinstance(value, ModuleType) and value.__name__.split(".")[0] not in (*_PACKAGES, *_STANDARD):
            raise HasNoName(f"a function that uses the module {value.__name__}")
        else:
            yield from _described(value, True)


@functools.cache
def versions() -> str:
    """Versions of the packages, with the sources of this one, and of the processor.

    Raises:
        HasNoName: A source file is newer than this process, which therefore may have imported another version.
    """
    for path in _HOME.rglob("*.py"):
        if path.stat().st_mtime > _IMPORTED:
            raise HasNoName(f"{path} was changed while this process was running")
    try:
        versions = {name: importlib.metadata.version(name) for name in _PACKAGES if name != "jaxdyn"}
    except importlib.metadata.PackageNotFoundError as error:
        raise HasNoName(f"the version of {error.name} is not known") from error
    import llvmlite.binding as llvm  # only here, since programs are stored by the lane compiler alone

    processor = (llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())
    return str((sys.version, platform.platform(), sorted(versions.items()), processor, sources_digest()))


_IMPORTED = time.time()
_HOME = Path(__file__).resolve().parents[1]


def sources_digest(folder: str = "") -> str:
    """Digest of all source files of this package, or of one of its folders; it detects changes of files within one version."""
    home, found = _HOME / folder, hashlib.sha256()
    for path in sorted(home.rglob("*.py")):
        content = path.read_bytes()
        found.update(f"{path.relative_to(home).as_posix()}\0{len(content)}\0".encode() + content)
    return found.hexdigest()[:16]
