"""Entry points of the lane compiler, which convert functions of one sample to fast batched functions."""

import functools
import itertools
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import core as jax_core

from jaxdyn.lanes import call, gpu
from jaxdyn.lanes.collector import collector_paused
from jaxdyn.lanes.derived import known_results, program_of
from jaxdyn.lanes.flatten import CannotFlatten
from jaxdyn.lanes.forked import check_not_forked, refused_if_forked
from jaxdyn.lanes.keys import without_keys
from jaxdyn.lanes.liveness import Liveness
from jaxdyn.lanes.record import Record, note
from jaxdyn.lanes.remembered import SampleJaxpr
from jaxdyn.lanes.tracing import writing_out, written_out

Backend = Literal["auto", "lanes", "xla"]


def check_backend(backend: str) -> None:
    """Raise an error for an unknown backend.

    Raises:
        ValueError: The message lists the known backends.
    """
    if backend not in ("auto", "lanes", "xla"):
        raise ValueError(f'unknown backend {backend!r}; use "auto", "lanes" or "xla"')


def choose(backend: Backend) -> bool:
    """Whether the lane compiler is tried; "auto" tries it on CPUs, and on NVIDIA GPUs that pass the self-test (`canary`)."""
    if backend != "auto":
        return backend == "lanes"
    platform = jax.default_backend()
    return platform == "cpu" or (platform == "gpu" and gpu.is_usable())


def lane_function(function: Callable, *, backend: Backend = "auto", name: str | None = None) -> Callable:
    """Compile a function of one sample by the lane compiler; under `jax.vmap` each SIMD lane computes one sample.

        fast = jax.jit(jax.vmap(lane_function(f)))

    Args:
        function: Pure function of pytrees of small arrays and random keys. Known values in its closure become constants of the
            code, so operations with the zeros of a model in the closure are removed. Arguments do not become constants.
        backend: "lanes" requires the lane compiler, "xla" leaves the function to XLA, "auto" uses the lane compiler if it supports
            the function. On a GPU whose kernels fail the self-test, XLA is used in any case, with a warning.
        name: Name in the record of compilations.

    Raises:
        CannotFlatten: In a call of the compiled function: backend is "lanes", and the lane compiler does not support the
            function. The message states the unsupported operation and its line.
    """
    check_backend(backend)
    label = name or getattr(function, "__name__", type(function).__name__)

    @functools.wraps(function)
    def lane(*args, **options) -> Any:
        out, _ = run(lambda *a: function(*a, **options), args, backend=backend, name=label)
        return out

    return lane


def batched(
    function: Callable, in_axes: Any = 0, out_axes: Any = 0, *, backend: Backend = "auto", name: str | None = None
) -> Callable:
    """Compile a batched version of a function of one sample, like `jax.jit(jax.vmap(function))`, with one sample per SIMD lane.

    Args:
        function: Pure function of one sample, as for `lane_function`.
        in_axes, out_axes: Batch axes as in `jax.vmap`; None for arguments that all samples share.
        backend: Backend, as for `lane_function`.
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
    return refused_if_forked(jax.jit(jax.vmap(lane_function(function, backend=backend, name=name), in_axes, out_axes)))


@collector_paused()
def run(function: Callable, args: tuple, *, backend: Backend, name: str) -> tuple[Any, str]:
    """Compute function(*args) for one sample; returns the results and the name of the backend.

    Args:
        function: Function of one sample.
        args: Arguments of the function.
        backend: Backend, as for `lane_function`.
        name: Name in the record of compilations.
    """
    check_not_forked()
    if writing_out():  # the call is a part of a function that is being compiled
        return function(*args), "lanes"
    if not choose(backend):
        return function(*args), "xla"
    try:
        jaxpr, operands, structure = _of_one_sample(function, args)
        call.check_size(program_of(jaxpr), backend)
    except CannotFlatten as error:
        if backend == "lanes":
            raise
        note(Record(name, "xla", reason=str(error)))
        return function(*args), "xla"
    out_tree, static, results_with_keys = structure
    results = call.bind(
        *operands,
        jaxpr=jaxpr,
        batched=(False,) * len(operands),
        size=None,
        linear=(False,) * len(operands),
        lanes_last=(False,) * len(operands),
        results_last=(False,) * len(jaxpr.out_avals),
        backend=backend,
        name=name,
    )
    # A constant is not batched for `out_axes` either.
    known = known_results(jaxpr)
    results = [x if value is None else jnp.asarray(value) for x, value in zip(results, known, strict=True)]
    return eqx.combine(jax.tree.unflatten(out_tree, results_with_keys(results)), static), "lanes"


@collector_paused()
def operations_of(function: Callable, args: tuple, *, backend: Backend = "auto") -> int | None:
    """Number of operations of a function of one sample; None if the lane compiler would not be used for it."""
    if writing_out() or not choose(backend):
        return None
    try:
        jaxpr, _, _ = _of_one_sample(function, args)
        return len(Liveness(program_of(jaxpr)).nodes)
    except CannotFlatten:
        return None


def _of_one_sample(function: Callable, args: tuple) -> tuple[Any, tuple, list]:
    """Jaxpr of a function of one sample, its operands, and the structure of its results.

    The structure consists of the tree of the arrays, the other parts, and a function that restores random keys.
    """
    # Python scalars are constants of the code, arrays are its inputs.
    arrays, rest = eqx.partition(args, lambda x: isinstance(x, jax.Array | np.ndarray))
    leaves, tree = jax.tree.flatten(arrays)
    leaves, with_keys = without_keys([jnp.asarray(x) for x in leaves])
    structure: list = []

    def flat(*values):
        out = function(*eqx.combine(jax.tree.unflatten(tree, with_keys(values)), rest))
        dynamic, static = eqx.partition(out, eqx.is_array_like)
        results, out_tree = jax.tree.flatten(dynamic)
        results, results_with_keys = without_keys(results)
        structure[:] = [out_tree, static, results_with_keys]
        return results

    jaxpr, captured = _closed(flat, leaves)
    return jaxpr, (*captured, *leaves), structure


def _closed(flat: Callable, leaves: list) -> tuple[Any, list]:
    """Jaxpr of one sample, and the traced arrays in its closure, which become its first inputs, with keys as their words.

    Arrays with known values remain constants of the jaxpr.
    """
    with written_out():
        closed = jax.make_jaxpr(flat)(*(_shape(x) for x in leaves))
    captured = [c for c in closed.consts if isinstance(c, jax_core.Tracer)]
    if not captured:
        return SampleJaxpr(closed), []
    captured, with_keys = without_keys(captured)

    def opened(*operands):
        given = itertools.chain(with_keys(operands[: len(captured)]), operands[len(captured) :])
        consts = [next(given) if isinstance(c, jax_core.Tracer) else c for c in closed.consts]
        return jax_core.eval_jaxpr(closed.jaxpr, consts, *given)

    with written_out():
        return SampleJaxpr(jax.make_jaxpr(opened)(*(_shape(x) for x in (*captured, *leaves)))), captured


def _shape(x) -> jax.ShapeDtypeStruct:
    """Shape and type of an argument; a Python scalar under `jit` keeps its weak type."""
    return jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=jax.typeof(x).weak_type)
