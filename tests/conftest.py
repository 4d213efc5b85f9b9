"""Test conventions: double precision available, strict promotion, every annotated shape checked at run time."""

import ctypes
import dataclasses
import functools
import gc
import itertools
import os
import shutil
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import jax
import jaxtyping
import numpy as np
import pytest
from deep_calls import with_room
from jax._src import util as _util
from jax._src.interpreters import mlir as _mlir
from jaxtyping import install_import_hook

# Compiling takes most of the time of these tests, and what is compiled runs for a moment. So XLA leaves out most optimizations, and
# emits loops plainly and all of them in one piece, which takes less than half of the time. Tests that run long use `optimized`.
# Processes that tests start leave out no optimization unless they are told to.
_PLAIN = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
if jax.__version_info__ < (0, 11):  # newer ones end the process at a flag that they no longer know
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_PLAIN}"
# The workers of a run, and the processes that tests start, share what they compile; nothing of it outlives the run.
_OWN_FOLDER = None if "JAXDYN_CACHE_DIR" in os.environ else tempfile.mkdtemp(prefix="jaxdyn-tests-")
if _OWN_FOLDER is not None:
    os.environ["JAXDYN_CACHE_DIR"] = _OWN_FOLDER
jax.config.update("jax_disable_most_optimizations", True)
if _OWN_FOLDER is not None:
    jax.config.update("jax_compilation_cache_dir", f"{_OWN_FOLDER}/xla")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
jax.config.update("jax_traceback_in_locations_limit", 0)  # nobody reads the code that XLA is given
jax.config.update("jax_enable_x64", True)  # float32 tests cast explicitly; strict promotion then catches every leak
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

_new_context = _mlir.make_ir_context
_contexts = threading.local()


def _kept_context() -> Any:
    """A context of MLIR, which serves 200 programs of one thread, and is left before the constants that it keeps fill the memory.

    JAX 0.10 loads the dialects of MLIR again for each program that it lowers, which takes a twentieth of the time of all tests.
    """
    if not hasattr(_contexts, "of_this_thread"):
        repeated = (itertools.repeat(_new_context(), 200) for _ in itertools.count())
        _contexts.of_this_thread = itertools.chain.from_iterable(repeated)
    return next(_contexts.of_this_thread)


_mlir.make_ir_context = _kept_context
with_room(pytest.CallInfo.from_call.__func__)  # it calls the tests

_jaxtyped = jaxtyping.jaxtyped


def _checked(typechecker: Callable) -> Callable:
    """The decorator that the import hook gives to functions and classes; what it leaves out would take a quarter of the time.

    Functions inside of others are defined at each call, and arrays reach them through functions that are checked. The lane compiler
    handles millions of scalars and annotates no shapes: its types are checked by basedpyright. All other functions are checked once
    for all arguments of the same classes, shapes and types of numbers.
    """
    with_shapes = _jaxtyped(typechecker=typechecker)

    def decorate(item: Any) -> Any:
        is_inner = item.__module__.startswith("jaxdyn.lanes.")
        is_plain = isinstance(item, FunctionType) and (not item.__annotations__ or "<locals>" in item.__qualname__)
        if is_inner or is_plain:
            return item
        if isinstance(item, FunctionType):
            return _once_for_each_shape(item, with_shapes)
        if isinstance(item, type) and dataclasses.is_dataclass(item):
            if item.__init__.__globals__ is not globals():  # a method, which is decorated already
                item.__init__ = _once_for_each_shape(item.__init__, with_shapes)
            return item
        return with_shapes(item)

    return decorate


def _once_for_each_shape(function: Callable, with_shapes: Callable) -> Callable:
    known: set[Any] = set()

    @functools.cache  # a check is made when it is needed first, as most functions are not called in a process
    def checked() -> Callable:
        return with_shapes(function)

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **options)
        key = _shape(args), _shape(options)
        if key in known:
            return function(*args, **options)
        result = checked()(*args, **options)
        known.add(key)
        return result

    # Warnings are located at the first frame outside of jaxdyn.
    call.__code__ = call.__code__.replace(co_filename=function.__code__.co_filename)
    return call


_MOST_COMPARED = 32  # entries of a list or a dictionary; the checks of long ones look at a random entry, too


def _shape(x: Any) -> Any:
    """All of x that the check of an annotation may depend on."""
    if isinstance(x, tuple | list):
        return type(x), len(x), *map(_shape, x[:_MOST_COMPARED])
    if isinstance(x, dict):
        first = list(x.items())[:_MOST_COMPARED]
        return type(x), len(x), *((name, _shape(value)) for name, value in first)
    if isinstance(x, jax.Array | np.ndarray | np.generic):
        return type(x), x.shape, x.dtype
    if isinstance(x, str):
        return x if len(x) < 100 else len(x)
    return x if isinstance(x, type) else type(x)


jaxtyping.jaxtyped = _checked
with install_import_hook("jaxdyn", "beartype.beartype"):
    import jaxdyn
    from jaxdyn.compute.programs import compiler

    with warnings.catch_warnings(action="ignore"):  # that XLA compiles everything
        _COMPILES = compiler() is not None
    for _name in (*dir(jaxdyn), "envs"):  # which is at the top level, but not among its names
        if _name == "lanes" and not _COMPILES:
            continue
        _package = getattr(jaxdyn, _name)
        for _inner in dir(_package) if isinstance(_package, ModuleType) and _name != "view" else ():
            getattr(_package, _inner)  # imports its module, while the hook is there

from jaxdyn.compute import hints  # noqa: E402 (they are hooked)
from jaxdyn.compute.switch import CannotCompile  # noqa: E402

if _COMPILES:
    from jaxdyn.lanes import flatten, rules, stored  # noqa: F401 (the rules are there before a process needs them)

    flatten.UNEXPECTED = ()  # errors of the lane compiler itself end a test, while XLA takes over for users
else:
    collect_ignore = ["lanes"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    return (yield from _skipped_without_compiler())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    return (yield from _skipped_without_compiler())


def _skipped_without_compiler():
    """Without the lane compiler, tests of it are skipped."""
    try:
        return (yield)
    except (CannotCompile, ImportError) as error:
        if not _COMPILES and ("lane compiler cannot be used" in str(error) or "llvmlite" in str(error)):
            pytest.skip("the lane compiler cannot be used")
        raise


_WITH_PROCESSES = ("jobs", "view", "tests")  # folders of tests that start commands, browsers or tools


def pytest_addoption(parser):
    parser.addoption(
        "--exhaustive",
        action="store_true",
        help="draw many more cases where tests draw some, and run all tests; those marked exhaustive take minutes to an hour each",
    )
    parser.addoption(
        "--thorough",
        action="store_true",
        help="run the tests marked thorough, too, which repeat laws for more cases and take longer; .ci/run --thorough runs them",
    )


@pytest.hookimpl(tryfirst=True)  # -m selects by the markers that are added here
def pytest_collection_modifyitems(config, items):
    slow = ("thorough", "exhaustive", "long", "alone")
    ordinary = [item for item in items if not any(item.get_closest_marker(marker) for marker in slow)]
    for item in {item.path: item for item in reversed(ordinary)}.values():  # the first one of each module
        if item.path.parent.name not in _WITH_PROCESSES:
            item.add_marker("quick")
    whole = config.getoption("--exhaustive")
    # A test that is named runs.
    more = whole or config.getoption("--thorough") or any("::" in argument for argument in config.args)
    omitted = [marker for marker, run in (("exhaustive", whole), ("thorough", more)) if not run]
    left_out = [item for item in items if any(item.get_closest_marker(marker) for marker in omitted)]
    config.hook.pytest_deselected(items=left_out)
    left = set(left_out)
    items[:] = [item for item in items if item not in left]
    # Long ones first, whole modules, so that no worker is left alone with one at the end.
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(scope="session")
def exhaustive(request) -> bool:
    """Whether to draw many more cases than an ordinary run of the tests has time for."""
    return request.config.getoption("--exhaustive")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """A test marked `alone`, which reads the clock, waits for the tests of the other workers to end and keeps new ones waiting."""
    if "PYTEST_XDIST_TESTRUNUID" not in os.environ or os.name != "posix":
        return (yield)
    import fcntl

    folder = Path(item.config._tmp_path_factory.getbasetemp()).parent
    with (folder / "door").open("w") as door, (folder / "room").open("w") as room:
        # Who waits for the room stands in the door, so that nobody overtakes.
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if item.get_closest_marker("alone") else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        return (yield)


def pytest_collection_finish():
    """Tracing makes objects by the million, nearly all of which reference counts free: looking for cycles seldom saves a tenth."""
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def pytest_unconfigure():
    """The process that made the folder of compiled programs removes it, after its workers have ended."""
    if _OWN_FOLDER is not None:
        shutil.rmtree(_OWN_FOLDER, ignore_errors=True)


def _memory() -> int:
    """Resident memory of this process in bytes."""
    if not Path("/proc/self/statm").exists():
        return 2**63
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(autouse=True, scope="module")
def _clear_compilation_caches():
    """Thousands of compiled functions would otherwise stay in memory until the end of the run.

    What they leave is given back. Memory that is free but still resident would have the caches cleared after every module from then
    on, and each module would trace and compile again what all of them use.
    """
    yield
    if _memory() > 2 * 2**30:
        jax.clear_caches()
        if sys.platform == "linux":
            ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(autouse=True)
def _patched_functions_are_traced(request):
    """A test that replaces a function wants it to be traced, where a program of another test would serve."""
    if "monkeypatch" not in request.fixturenames:
        yield
        return
    usual = jaxdyn.cache.directory()
    _forget_programs()
    jaxdyn.cache.set_directory(None)
    yield
    _forget_programs()
    jaxdyn.cache.set_directory(usual)


def _forget_programs() -> None:
    for known in [cache for cache in _util._caches if _COMPILES and isinstance(cache, stored.Programs)]:
        known.cache_clear()
    hints._with_cached_traces.cache_clear()


@pytest.fixture(scope="module")
def optimized():
    """Programs are compiled with all optimizations, for tests that run long or ask what a compiler makes of a program."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture
def by_xla():
    """Everything is left to XLA."""
    with jaxdyn.backend("xla"):
        yield


@pytest.fixture
def as_a_user():
    """No shape hook: the messages are those that a user sees."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def refusal() -> Callable[..., str]:
    """refusal(error, function, *arguments): the message with which a call is refused, which must be one line."""

    def message(error: type[Exception], function: Callable, *arguments: Any, **options: Any) -> str:
        with pytest.raises(error) as caught:
            function(*arguments, **options)
        text = str(caught.value)
        assert len(text.splitlines()) == 1
        return text

    return message
