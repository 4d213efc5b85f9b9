"""Compiled programs that outlive the process: a function of this package is compiled only once per structure of its arguments.

`jax.jit` identifies a function by tracing it, which takes most of the time before a first result. A stored function identifies its
calls by their `fingerprint`, and finds the executable of XLA and the machine code of the lanes in the cache without tracing.
The functions of `jaxdyn.compute` with the same names state the purpose of the three kinds of programs.
"""

import contextlib
import functools
import io
import logging
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.monitoring
import numpy as np
from jax import core as jax_core
from jax.experimental.serialize_executable import deserialize_and_load, serialize

from jaxdyn.cache import location
from jaxdyn.cache.fingerprint import HasNoName, fingerprint
from jaxdyn.compute import internals
from jaxdyn.compute.constant import Argument, combined, identity
from jaxdyn.compute.forked import check_not_forked
from jaxdyn.compute.hints import writing_out
from jaxdyn.compute.programs import surrounding_traces, within_jit
from jaxdyn.lanes import cpu
from jaxdyn.lanes.arguments import ARGUMENTS, Structure, check_types, is_storable, part_of, partition
from jaxdyn.lanes.collector import collector_paused
from jaxdyn.lanes.remembered import Programs

# A setting that affects the code but is not a part of the context of a trace.
_EFFORT_OF_XLA = "jax_disable_most_optimizations"

_LOGGER = logging.getLogger("jaxdyn")
_lock = threading.RLock()


class _Program(NamedTuple):
    """A compiled program as a function of the array arguments, with the structure of its results.

    Attributes:
        executable: Executable for the first CPU; for other devices, a function of `jax.jit`, which uses the device of its
            arguments.
        out_tree: Structure of the results.
        rest: Results that are not arrays, which are the same for all arguments.
    """

    executable: Any
    out_tree: Any
    rest: tuple

    def results(self, found: list) -> Any:
        """Results of a call from the arrays that the executable returns."""
        if self.out_tree == _ONE_ARRAY:
            return found[0]
        return jax.tree.unflatten(self.out_tree, combined(self.rest, found))


_ONE_ARRAY = jax.tree.structure(0)


class _Compilations(threading.local):
    """Counts of this thread.

    Attributes:
        all: Programs that XLA has compiled, or that JAX has found.
        found: Programs that JAX has read from its own cache on disk; XLA cannot store these once more.
    """

    all = 0
    found = 0

    def note_duration(self, event: str, *_: Any, **__: Any) -> None:
        self.all += event == "/jax/core/compile/backend_compile_duration"

    def note_event(self, event: str, **_: Any) -> None:
        self.found += event == "/jax/compilation_cache/cache_hits"


_compilations = _Compilations()
jax.monitoring.register_event_duration_secs_listener(_compilations.note_duration)
jax.monitoring.register_event_listener(_compilations.note_event)


# Programs of this process by fingerprint, and by function and structure of the arguments.
_named, _programs = Programs("named programs"), Programs("programs")


class stored_jit:
    """The program of `jaxdyn.compute.stored_jit` by this compiler."""

    def __init__(self, function: Callable):
        functools.update_wrapper(self, function)
        self._function = function
        self._stored, self._ordinary = _Stored(function), eqx.filter_jit(function)

    def __call__(self, *args, **options):
        if surrounding_traces() or internals.config.disable_jit.value:
            return self._ordinary(*args, **options)
        return self._stored(args, options)

    def prepared(self, *args: Any) -> Callable:
        """Result of the method of `jaxdyn.compute.stored_jit`."""
        program, arguments = self._stored.program(args, {})
        if isinstance(program.executable, jax.stages.Compiled):
            return self
        with cpu.least_effort():
            executable = program.executable.lower(*arguments).compile()
        return lambda *args: program.results(executable(*partition(jax.tree.leaves(args))[0]))


def stored_outside_jit(function: Callable, check: Callable[[tuple, dict], None], of_one_sample: bool) -> Callable:
    """Result of `jaxdyn.compute.stored_outside_jit`."""
    stored = _Stored(function, check, in_lanes=of_one_sample)

    @functools.wraps(function)
    def call(*args, **options):
        if not internals.config.disable_jit.value and not surrounding_traces():
            return stored(args, options)
        check(args, options)
        return function(*args, **options)

    return call


def kernel_function(function: Callable, check: Callable[[tuple, dict], None]) -> Callable:
    """Result of `jaxdyn.compute.kernel_function`."""
    # Within `jit`, a known model is a constant: the operations with its zeros vanish. Outside, one program serves all models.
    stored, batched = _Stored(function, check, in_lanes=True), _Batched(_in_lanes(function, ARGUMENTS))
    traced = _in_lanes(function, jax_core.Tracer)

    @functools.wraps(function)
    def call(*args, **options):
        check_not_forked()
        is_written = internals.config.disable_jit.value or writing_out()
        if not is_written and not surrounding_traces():
            return stored(args, options)
        check(args, options)
        return (function if is_written else traced if within_jit() else batched)(*args, **options)

    return call


def _label(function: Callable) -> str:
    """Name of a function in records and messages."""
    return getattr(function, "__name__", type(function).__name__).lstrip("_")


def _by_lanes(function: Callable, arguments: Sequence, name: str, key: Any = None) -> Any:
    """Results of a function of one sample that the lane compiler compiles, if it can."""
    from jaxdyn.lanes.entry import run  # a process that finds all its programs does not need it

    return run(function, tuple(arguments), name=name, key=key)[0]


def _in_lanes(function: Callable, operands: type | tuple[type, ...]) -> Callable:
    """The function of one sample by the lane compiler.

    Args:
        function: Function of one sample.
        operands: Types of the leaves of the arguments that are inputs of the program; all others are constants.
    """

    @functools.wraps(function)
    def call(*args, **options):
        leaves, tree = jax.tree.flatten((args, options))
        given, rest = partition(leaves, operands)

        def of_operands(*given):
            args, options = jax.tree.unflatten(tree, combined(rest, given))
            return function(*args, **options)

        if not given:
            return function(*args, **options)
        try:
            key = function, identity(tree, rest)
        except TypeError:  # a known array
            key = None
        return _by_lanes(of_operands, given, _label(function), key)

    return call


class _Batched:
    """A function like that of `equinox.filter_jit`, for calls under `jax.vmap` or derivatives without `jit`.

    JAX compiles a program for each shape of a batch, and keeps it as long as the function exists. The programs are freed when there
    are too many of all these functions.
    """

    _functions: ClassVar[list["_Batched"]] = []
    _programs: ClassVar[int] = 0

    def __init__(self, function: Callable):
        self._jitted: Any = eqx.filter_jit(function)
        self._functions.append(self)

    def __call__(self, *args, **options):
        before = _compilations.all
        results = self._jitted(*args, **options)
        _Batched._programs += _compilations.all - before
        if _Batched._programs > Programs.most:
            _Batched._programs = 0
            for function in self._functions:
                function._jitted._cached.clear_cache()
        return results


class _Stored:
    """Programs of one function.

    Args:
        function: Function to compile, which also identifies its programs.
        check: Function of the arguments and the options that raises an error for wrong ones. It is not called again for arguments
            of the same structure, but for each module with values.
        in_lanes: True for a function of one sample, whose machine code takes all arrays of one type in a module as one.
    """

    def __init__(
        self,
        function: Callable,
        check: Callable[[tuple, dict], None] = lambda args, options: None,
        *,
        in_lanes: bool = False,
    ):
        self._function, self._check, self._in_lanes = function, check, in_lanes
        self._label = _label(function)

    def __call__(self, args: tuple, options: dict) -> Any:
        program, arguments = self.program(args, options)
        if isinstance(program.executable, jax.stages.Compiled):
            return program.results(program.executable(*arguments))
        with cpu.least_effort():  # as for a stored program, so that results on hosts and devices are identical
            return program.results(program.executable(*arguments))

    def program(self, args: tuple, options: dict) -> tuple[_Program, list]:
        """Program of a call, and its arguments."""
        check_not_forked()
        try:
            parts = [part_of(x, self._in_lanes) for x in (*args, *options.values())]
            arguments = [x for part in parts for x in part.arrays]
            storable = is_storable(parts)
            key = (
                self,
                *options,
                *(part.structure for part in parts),
                internals.config.trace_context(),
                jax.config.read(_EFFORT_OF_XLA),
                storable,
            )
            program = _programs.get(key)
        except TypeError:  # an object that cannot be an argument; the check may explain more
            self._check(args, options)
            raise
        unchecked = [part.passed for part in parts if part.passed is not None and self not in part.passed]
        if program is None or unchecked:
            self._check(args, options)
            for passed in unchecked:
                passed.add(self)
        if program is None:
            check_types(arguments)
            structures = [part.structure for part in parts]
            with _lock, collector_paused():
                if storable:
                    program = self._found(args, options, arguments, structures)
                else:
                    program = self._of_any_device(arguments, structures, tuple(options))
                _programs.put(key, program)
        return program, arguments

    def _found(self, args: tuple, options: dict, arguments: list, structures: list) -> _Program:
        """Program of this process or of an earlier one, or a new one, which is stored."""
        try:
            packed = tuple(isinstance(part, Structure) and part.packed for part in structures)
            name = fingerprint(self._function, (args, options, packed))
        except HasNoName as error:
            _LOGGER.debug("%s is compiled for this process only: %s", self._label, error)
            return self._made(arguments, structures, tuple(options))[0]
        program = _named.get(name) or self._read_or_made(f"{name}.program", arguments, structures, tuple(options))
        _named.put(name, program)
        return program

    def _read_or_made(self, name: str, arguments: list, structures: list, options: tuple[str, ...]) -> _Program:
        files = location.files()
        content = None if files is None else files.read(name)
        if content is not None:
            try:
                return _loaded(content)
            except Exception as error:  # of any kind: the errors of loading are not documented
                _LOGGER.info("%s is compiled again: %s", self._label, error)
        program, codes = self._made(arguments, structures, options)
        if files is not None and codes is not None:
            try:
                files.write(name, _serialized(program, codes))
            except (ValueError, NotImplementedError, TypeError, AttributeError, pickle.PicklingError) as error:
                _LOGGER.info("%s cannot be stored: %s", self._label, error)
        return program

    def _made(
        self, arguments: list, structures: list, options: tuple[str, ...]
    ) -> tuple[_Program, list[cpu.Compiled] | None]:
        """Compile a new program; returns it with the machine code that it calls, or with None if it must not be stored."""
        _, traced, structure = self._traced(arguments, structures, options)
        found_before = _compilations.found
        with cpu.collected() as codes, cpu.least_effort():
            executable = traced.lower().compile()
        for code in codes:
            code.made.result()  # raises the error of code that could not be made
        is_storable = not traced.jaxpr.effects and _compilations.found == found_before
        return _Program(executable, *structure), codes if is_storable else None

    def _of_any_device(self, arguments: list, structures: list, options: tuple[str, ...]) -> _Program:
        jitted, _, structure = self._traced(arguments, structures, options)
        return _Program(jitted, *structure)

    def _traced(
        self, arguments: list, structures: list, options: tuple[str, ...]
    ) -> tuple[Any, jax.stages.Traced, tuple]:
        """Function of the arguments alone, its trace, and the structure of its results (see `_Program`).

        Args:
            arguments: Arrays.
            structures: Structures of the arguments of a call, of which those with these names are the last ones.
            options: Names.
        """
        structure = []

        def called(*arguments):
            given = iter(arguments)
            every = [part.restored(given) if isinstance(part, Structure) else next(given) for part in structures]
            first = len(every) - len(options)
            return self._function(*every[:first], **dict(zip(options, every[first:], strict=True)))

        def of_arguments(*arguments):
            is_kernel = self._in_lanes and arguments
            found = _by_lanes(called, arguments, self._label) if is_kernel else called(*arguments)
            leaves, out_tree = jax.tree.flatten(found)
            structure[:] = [out_tree, tuple(Argument if eqx.is_array_like(x) else x for x in leaves)]
            return [x for x in leaves if eqx.is_array_like(x)]

        of_arguments.__name__ = self._label
        jitted = jax.jit(of_arguments, compiler_options=_options_of_xla())
        with _without_notes_of_jax():
            traced = jitted.trace(*arguments)
        return jitted, traced, tuple(structure)


def _options_of_xla() -> dict[str, Any] | None:
    """Options with which XLA compiles many small loops in few pieces.

    Its older emitters of loops, which compile faster, are not used: jaxlib 0.10.1 computes wrong gradients of loops that update one
    element in each round with them.
    """
    if jax.default_backend() != "cpu" or jax.__version_info__ >= (0, 11):  # newer versions do not know them
        return None
    return {"xla_cpu_parallel_codegen_split_count": 4}


@contextlib.contextmanager
def _without_notes_of_jax() -> Iterator[None]:
    """Errors of the function are those without `jit`, for which JAX adds no note about internal frames."""
    try:
        yield
    except Exception as error:
        notes = getattr(error, "__notes__", [])
        notes[:] = [note for note in notes if "JAX has removed its internal frames" not in note]
        raise


# ---------------------------------------------------------------- files


def _serialized(program: _Program, codes: list[cpu.Compiled]) -> bytes:
    """Pickle of a program. It contains machine code, so a pickle gives whoever could write the file no further possibilities."""
    executable, in_tree, out_tree = serialize(program.executable)
    content = io.BytesIO()
    _Pickler(content).dump(
        (executable, in_tree, out_tree, program.out_tree, program.rest, [cpu.stored_form(code) for code in codes])
    )
    return content.getvalue()


class _Pickler(pickle.Pickler):
    """Equinox marks missing fields by an object that is compared by identity, so this pickler stores its name."""

    def persistent_id(self, obj: Any) -> tuple[str, str] | None:
        module = type(obj).__module__
        if module.split(".")[0] != "equinox":
            return None
        return next(((module, name) for name, value in vars(sys.modules[module]).items() if value is obj), None)


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, pid: tuple[str, str]) -> Any:
        return getattr(sys.modules[pid[0]], pid[1])


def _loaded(content: bytes) -> _Program:
    executable, in_tree, out_tree, results, rest, codes = _Unpickler(io.BytesIO(content)).load()
    held = [cpu.from_stored_form(code) for code in codes]  # while the executable is created
    if b"lapack_" in executable:
        _prepare_lapack()
    with _quiet():
        program = deserialize_and_load(executable, in_tree, out_tree, execution_devices=jax.devices()[:1])
    del held
    return _Program(program, results, rest)


@functools.cache
def _prepare_lapack() -> None:
    """Load the functions of LAPACK, as JAX does when it lowers a call; otherwise a loaded program would jump to address 0."""
    internals.lib.lapack.prepare_lapack_call("potrf_ffi", np.dtype(np.float32))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the error that XLA logs for each program it loads, because it lists tuning options as features of the processor."""
    usual = int(os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1"))
    internals.lib.utils.absl_set_min_log_level(3)
    try:
        yield
    finally:
        internals.lib.utils.absl_set_min_log_level(usual)
