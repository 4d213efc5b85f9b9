"""The door of the lane compiler: functions of one sample in, fast batched functions out."""

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
from jaxdyn.lanes.derived import known_results, program_of
from jaxdyn.lanes.flatten import CannotFlatten
from jaxdyn.lanes.keys import without_keys
from jaxdyn.lanes.record import Record, note
from jaxdyn.lanes.tracing import writing_out, written_out

Backend = Literal["auto", "lanes", "xla"]


def check_backend(backend: str) -> None:
    """Refuse an unknown backend.

    Raises:
        ValueError: The message lists those that exist.
    """
    if backend not in ("auto", "lanes", "xla"):
        raise ValueError(f'unknown backend {backend!r}; use "auto", "lanes" or "xla"')


def choose(backend: Backend) -> bool:
    """Whether to try lanes for what is traced now: "auto" does on CPUs, and on NVIDIA GPUs that pass the canary."""
    if backend != "auto":
        return backend == "lanes"
    platform = jax.default_backend()
    return platform == "cpu" or (platform == "gpu" and gpu.is_usable())


def lane_function(function: Callable, *, backend: Backend = "auto", name: str | None = None) -> Callable:
    """The same function of one sample, run by the lane compiler: under `jax.vmap`, one sample per SIMD lane.

        fast = jax.jit(jax.vmap(lane_function(f)))

    Args:
        function: Pure function of pytrees of small arrays and keys of random numbers. What it closes over is built into the
            code if its value is known, so that zeros among the numbers of a model cost nothing; arguments are not.
        backend: "lanes" insists, "xla" leaves the function as it is, "auto" takes lanes where that is possible. On a GPU whose
            kernels fail their first test XLA takes over in any case, with a warning.
        name: For the record of what was compiled.

    Raises:
        CannotFlatten: With backend="lanes", at the call; the message names the operation and the line.
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
    """A compiled batch of a per-sample function: `jax.jit(jax.vmap(...))` with one sample per SIMD lane.

        accelerations = jaxdyn.batched(lambda q, v, tau: jaxdyn.forward_dynamics(model, q, v, tau))(qs, vs, taus)

    Args:
        function, backend, name: See `lane_function`.
        in_axes, out_axes: As in `jax.vmap`; None for arguments that all samples share.

    Returns:
        A function that can be differentiated, vmapped and jitted further. For Jacobians, batch the Jacobian,
        `batched(jax.jacfwd(f))`, so that all columns share one program.
    """
    return jax.jit(jax.vmap(lane_function(function, backend=backend, name=name), in_axes, out_axes))


def run(function: Callable, args: tuple, *, backend: Backend, name: str) -> tuple[Any, str]:
    """function(*args) on one sample, and the backend that serves it."""
    if writing_out():  # a part of what is being compiled
        return function(*args), "lanes"
    if not choose(backend):
        return function(*args), "xla"
    # Plain numbers are constants of the code, arrays are its inputs.
    arrays, rest = eqx.partition(args, lambda x: isinstance(x, jax.Array | np.ndarray))
    leaves, tree = jax.tree.flatten(arrays)
    leaves, with_keys = without_keys([jnp.asarray(x) for x in leaves])
    structure: list = []

    def flat(*numbers):
        out = function(*eqx.combine(jax.tree.unflatten(tree, with_keys(numbers)), rest))
        dynamic, static = eqx.partition(out, eqx.is_array_like)
        results, out_tree = jax.tree.flatten(dynamic)
        results, results_with_keys = without_keys(results)
        structure[:] = [out_tree, static, results_with_keys]
        return results

    try:
        jaxpr, captured = _closed(flat, leaves)
        call.check_size(program_of(jaxpr), backend)
    except CannotFlatten as error:
        if backend == "lanes":
            raise
        note(Record(name, "xla", reason=str(error)))
        return function(*args), "xla"
    operands = (*captured, *leaves)
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
    # A constant is the same for every lane also to `out_axes`.
    known = known_results(jaxpr)
    results = [x if value is None else jnp.asarray(value) for x, value in zip(results, known, strict=True)]
    return eqx.combine(jax.tree.unflatten(out_tree, results_with_keys(results)), static), "lanes"


def _closed(flat: Callable, leaves: list) -> tuple[Any, list]:
    """The jaxpr of one sample, and the traced arrays it closes over, which become its first inputs, keys as their words.

    Arrays of known value stay inside as constants.
    """
    with written_out():
        closed = jax.make_jaxpr(flat)(*(_shape(x) for x in leaves))
    captured = [c for c in closed.consts if isinstance(c, jax_core.Tracer)]
    if not captured:
        return closed, []
    captured, with_keys = without_keys(captured)

    def opened(*operands):
        given = itertools.chain(with_keys(operands[: len(captured)]), operands[len(captured) :])
        consts = [next(given) if isinstance(c, jax_core.Tracer) else c for c in closed.consts]
        return jax_core.eval_jaxpr(closed.jaxpr, consts, *given)

    with written_out():
        return jax.make_jaxpr(opened)(*(_shape(x) for x in (*captured, *leaves))), captured


def _shape(x) -> jax.ShapeDtypeStruct:
    """Shape and type; a Python number under `jit` keeps the weak type that lets arrays decide."""
    return jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=jax.typeof(x).weak_type)
