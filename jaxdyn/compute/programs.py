"""Programs: the one place that decides how a function of one sample becomes code.

The lane compiler (`jaxdyn.lanes`) is a guest: it is imported at the first call, and compiles the functions that it supports. XLA
compiles everything else, and everything if the guest is not installed or does not support the installed JAX.

    per_sample, batched      functions of one sample, of which `jax.vmap` makes batches;
    stored_jit               a function of whole arrays, whose compiled program later processes find;
    stored_outside_jit       the same, which within `jit` is a part of the surrounding program;
    kernel_function          a function that users call: one kernel within their programs, one program outside of `jit`.
"""

import functools
import importlib
import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.compute import internals
from jaxdyn.compute.forked import check_not_forked, refused_if_forked
from jaxdyn.compute.hints import writing_out
from jaxdyn.compute.switch import Backend, CannotCompile, check_backend, chosen_backend
from jaxdyn.compute.switch import backend as chosen

_GUEST = "jaxdyn.lanes.guest"
# A matrix with more operations is computed in groups of columns with this number of operations. LLVM takes about 4 s for a group.
_MOST_OPERATIONS = 150_000
_OPERATIONS_OF_GROUP = 60_000


class Served(eqx.Module):
    """The backend that runs a program, "lanes" or "xla", as a static part of the results of the program."""

    backend: str = eqx.field(static=True)


@functools.cache
def compiler() -> Any:
    """The lane compiler, or None if it cannot be used here, of which one warning says why.

    The compiler is a module with functions of the same names and meanings as those here that call it.
    """
    try:
        return importlib.import_module(_GUEST)
    except ImportError as error:
        warnings.warn(
            f"jaxdyn runs on XLA alone, whose batches on CPUs are ten to fifty times slower: {_reason(error)}",
            stacklevel=2,
        )
        return None


def _reason(error: ImportError) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name is not None and error.name.split(".")[0] == "llvmlite":
        return "its compiler needs llvmlite; install it with pip install llvmlite"
    return str(error)


# Transformations of JAX that act immediately if no trace surrounds them.
_EAGER_TRACES = ("BatchTrace", "JVPTrace", "LinearizeTrace")


def within_jit() -> bool:
    """True within `jit`, and wherever else JAX traces a program instead of acting immediately."""
    return not all(name in _EAGER_TRACES for name in surrounding_traces())


def surrounding_traces() -> list[str]:
    """Kinds of the traces around a call, the outermost first; empty if it is evaluated immediately."""
    if not hasattr(internals.core, "trace_ctx"):
        return []
    trace, found = internals.core.trace_ctx.trace, []
    while hasattr(trace, "parent_trace"):
        found.append(type(trace).__name__)
        trace = trace.parent_trace
    if type(trace).__name__ != "EvalTrace":
        found.append(type(trace).__name__)
    return found[::-1]


def per_sample(function: Callable, *, backend: Backend | None = None, name: str | None = None) -> Callable:
    """Compile a function of one sample; under `jax.vmap` each SIMD lane computes one sample.

        fast = jax.jit(jax.vmap(per_sample(f)))

    Args:
        function: Pure function of pytrees of small arrays and random keys. Known values in its closure become constants of the
            code, so operations with the zeros of a model in the closure are removed. Arguments do not become constants.
        backend: Backend of the function and of all that it calls, see `jaxdyn.backend`; by default the one of the context.
        name: Name in the record of compilations.

    Raises:
        CannotCompile: In a call of the compiled function: the backend is "lanes", and the lane compiler does not support the
            function. The message states the unsupported operation and its line.
    """
    check_backend(backend)
    label = name or getattr(function, "__name__", type(function).__name__)

    @functools.wraps(function)
    def sample(*args, **options) -> Any:
        with chosen(backend):
            return run(lambda *a: function(*a, **options), args, name=label)[0]

    return sample


def batched(
    function: Callable, in_axes: Any = 0, out_axes: Any = 0, *, backend: Backend | None = None, name: str | None = None
) -> Callable:
    """Compile a batched version of a function of one sample, like `jax.jit(jax.vmap(function))`, with one sample per SIMD lane.

    Args:
        function: Pure function of one sample, as for `per_sample`.
        in_axes, out_axes: Batch axes as in `jax.vmap`; None for arguments that all samples share.
        backend: Backend, as for `per_sample`.
        name: Name in the record of compilations.

    Returns:
        A function that can be transformed further by `jax.grad`, `jax.vmap` and `jax.jit`. For Jacobians, apply `batched` to the
        Jacobian, `batched(jax.jacfwd(f))`, so that all columns share one program.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        model = jaxdyn.library.double_pendulum()
        acceleration = jaxdyn.batched(lambda q, v, tau: jaxdyn.forward_dynamics(model, q, v, tau))
        a = acceleration(jnp.ones((1000, 2)), jnp.zeros((1000, 2)), jnp.zeros((1000, 2)))
        ```
    """
    return refused_if_forked(jax.jit(jax.vmap(per_sample(function, backend=backend, name=name), in_axes, out_axes)))


def run(function: Callable, args: tuple, *, name: str) -> tuple[Any, str]:
    """Compute function(*args) for one sample; returns the results and the name of the backend.

    Args:
        function: Function of one sample.
        args: Arguments of the function.
        name: Name in the record of compilations.
    """
    check_not_forked()
    if writing_out():  # the call is a part of a function that is being compiled
        return function(*args), "lanes"
    guest = None if chosen_backend() == "xla" else compiler()
    if guest is not None:
        return guest.run(function, args, name=name)
    if chosen_backend() == "lanes":
        raise CannotCompile(f'backend "lanes" of {name}: the lane compiler cannot be used here; use "auto" or "xla"')
    return function(*args), "xla"


def operations_of(function: Callable, args: tuple) -> int | None:
    """Number of operations of a function of one sample; None if the lane compiler would not be used for it."""
    guest = None if chosen_backend() == "xla" or writing_out() else compiler()
    return None if guest is None else guest.operations_of(function, args)


def reference(function: Callable, *args: Any, digits: int = 50) -> Any:
    """A function of one sample that is evaluated with many digits, for arguments like the given ones.

    Raises:
        CannotCompile: The function has an operation without scalar form, or the lane compiler cannot be used.
    """
    guest = compiler()
    if guest is None:
        raise CannotCompile(
            "a computation with many digits: the lane compiler, which writes it in scalars, cannot be used here"
        )
    return guest.Reference(function, *args, digits=digits)


def machine_code(function: Callable, args: tuple, *, name: str, target: str) -> tuple[bytes, int, Any]:
    """Object file of a C function that computes a function of one sample, see `jaxdyn.io.export_c`.

    Args:
        function: Function of one sample.
        args: Arguments of the function, with an array or a `jax.ShapeDtypeStruct` for each array.
        name: Name of the C function, which takes pointers to the arrays in `args`, to those of the results, and to the workspace.
        target: Processor, "x86-64", "aarch64" or "native".

    Returns:
        The object file, the size of the workspace in bytes, and the results of the function with a `jax.ShapeDtypeStruct` for
        each array.

    Raises:
        CannotCompile: The function has an operation without scalar form, or the lane compiler cannot be used.
    """
    guest = compiler()
    if guest is None:
        raise CannotCompile(f"machine code of {name}: the lane compiler cannot be used here")
    return guest.machine_code(function, args, name=name, target=target)


def columnwise(function: Callable, directions: np.ndarray, *, operations: float | None, name: str) -> Callable:
    """Compile a function of one sample that computes the columns of a matrix, such as a Jacobian or a Hessian.

    One program computes all columns if it is short enough, so that they share the operations that do not depend on the direction.
    Otherwise, a program computes a few columns, and each group of columns becomes a sample. Such a program has as many operations
    as those columns, and not as the whole matrix, so it is compiled in a fraction of the time.

    Args:
        function: Function of (directions, *args), whose results have the columns for these directions on their last axis.
        directions: The direction of each column (n, n).
        operations: Estimated operations of one column; None if they are not known.
        name: Name in the record of compilations.

    Returns:
        A function of `args`.
    """
    count = len(directions)
    if operations is None or operations * count <= _MOST_OPERATIONS:
        return per_sample(functools.partial(function, directions), name=name)
    groups = -(-count // max(1, int(_OPERATIONS_OF_GROUP / operations)))
    length = -(-count // groups)
    padded = np.concatenate([directions, np.zeros((groups * length - count, *directions.shape[1:]), directions.dtype)])
    several = per_sample(function, name=name)

    def columns(*args):
        grouped = jnp.asarray(padded.reshape(groups, length, *directions.shape[1:]))
        found = jax.vmap(lambda some: several(some, *args), out_axes=-2)(grouped)
        return jax.tree.map(lambda a: a.reshape(*a.shape[:-2], groups * length)[..., :count], found)

    return columns


class stored_jit:
    """Replacement of `equinox.filter_jit` for a function of this package; later processes can use its compiled programs.

    Two functions are equal if their code and the values in their closures are equal, so an inner function is compiled once
    for equal values. Python floats in the arguments are inputs of the program, like arrays; all other plain values
    are part of its structure. On devices other than the first CPU, and if a function or class of the user is involved, the program
    is not stored. Within a trace, `stored_jit` acts like `equinox.filter_jit`. Side effects of the function occur only when it is
    traced.
    """

    def __init__(self, function: Callable):
        functools.update_wrapper(self, function)
        self._function = function

    @functools.cached_property
    def _program(self) -> Callable:
        guest = compiler()
        return eqx.filter_jit(self._function) if guest is None else guest.stored_jit(self._function)

    def __call__(self, *args, **options):
        return self._program(*args, **options)

    def prepared(self, *args: Any) -> Callable:
        """Program for arguments of this structure, compiled by this method instead of in the first call."""
        prepare = getattr(self._program, "prepared", None)
        return self._program if prepare is None else prepare(*args)


def _unchecked(args: tuple, options: dict) -> None:
    """The check of a function whose arguments are checked elsewhere."""


def stored_outside_jit(
    function: Callable, *, check: Callable[[tuple, dict], None] = _unchecked, of_one_sample: bool = False
) -> Callable:
    """Decorator of a function that uses `per_sample` internally: outside of `jit` and derivatives, it is a stored program.

    Args:
        function: Function to compile.
        check: Check of the arguments as in `kernel_function`.
        of_one_sample: True if the whole function is one of a sample, so that the stored program can be one kernel.
    """
    return _compiled_by_guest(function, "stored_outside_jit", check, of_one_sample)


def kernel_function(function: Callable, *, check: Callable[[tuple, dict], None] = _unchecked) -> Callable:
    """Decorator of a function of one sample that users call: the lane compiler compiles it, where possible, wherever it is called.

    Within `jit`, and in loops, batches and derivatives there, a call is one kernel in the program of the user; within a function
    that the lane compiler compiles as a whole, it is a part of that function. Outside of `jit`, a call is one stored program
    instead of hundreds of operations.

    Args:
        function: Function of one sample.
        check: Function of the arguments and the options of a call that raises an error for wrong ones. Of arrays it must check only
            shapes and types: it is not called again for others of the same ones. The values in an immutable module are checked
            once.
    """
    return _compiled_by_guest(function, "kernel_function", check)


def _compiled_by_guest(function: Callable, maker: str, check: Callable[[tuple, dict], None], *options: Any) -> Callable:
    """The function as the guest compiles it from its first call on; without a guest, one program of XLA outside of traces."""

    @functools.cache
    def made() -> Callable:
        guest = compiler()
        if guest is not None:
            return getattr(guest, maker)(function, check, *options)
        jitted = eqx.filter_jit(function)

        def checked(*args, **options):
            check(args, options)
            return (function if within_jit() else jitted)(*args, **options)

        return checked

    @functools.wraps(function)
    def call(*args, **options):
        return made()(*args, **options)

    return call
