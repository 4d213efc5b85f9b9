"""Entry points of the lane compiler: a function of one sample becomes a `lane_call`, which every transformation of JAX accepts."""

import contextvars
import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import core as jax_core
from jax.extend import core as jex

from jaxdyn.compute import internals
from jaxdyn.compute.hints import nothing_looped, written_out
from jaxdyn.compute.keys import without_keys
from jaxdyn.compute.sweeps import has_made_loops
from jaxdyn.compute.switch import chosen_backend
from jaxdyn.lanes import call, gpu
from jaxdyn.lanes import rules as rules  # registers the rules of the primitives
from jaxdyn.lanes.collector import collector_paused
from jaxdyn.lanes.derived import known_results, program_of, pruned_jaxpr
from jaxdyn.lanes.flatten import CannotFlatten
from jaxdyn.lanes.liveness import Liveness
from jaxdyn.lanes.program import Program
from jaxdyn.lanes.record import Record, note
from jaxdyn.lanes.remembered import Programs, SampleJaxpr

# Names of the functions that are refused and so evaluated now; the same function within them is not flattened again.
_refused: contextvars.ContextVar[frozenset[str]] = contextvars.ContextVar("jaxdyn_lanes_refused", default=frozenset())

# Functions of one sample whose calls have a key, as pruned jaxprs with the operands that they use and the structure of the results.
_shared = Programs("shared functions")


def choose() -> bool:
    """Whether the lane compiler is tried; "auto" tries it on CPUs, and on NVIDIA GPUs that pass the self-test (`canary`)."""
    backend = chosen_backend()
    if backend != "auto":
        return backend == "lanes"
    platform = jax.default_backend()
    return platform == "cpu" or (platform == "gpu" and gpu.is_usable())


@collector_paused()
def run(function: Callable, args: tuple, *, name: str, key: Any = None) -> tuple[Any, str]:
    """Results and backend of `jaxdyn.compute.run`.

    Args:
        function, args, name: As there.
        key: Identifies the function; calls with the same key share their programs, unless the function takes traced arrays from
            its closure.
    """
    if not choose() or name in _refused.get():
        return function(*args), "xla"
    backend = chosen_backend()
    try:
        (jaxpr, operands, structure), program = _flattened(function, args, key)
        call.check_size(program, backend)
    except CannotFlatten as error:
        if backend == "lanes":
            raise
        note(Record(name, "xla", reason=str(error)))
        token = _refused.set(
            _refused.get() | ({name} if name.isidentifier() else set())
        )  # a lambda may be any function
        try:
            return function(*args), "xla"
        finally:
            _refused.reset(token)
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
def operations_of(function: Callable, args: tuple) -> int | None:
    """Result of `jaxdyn.compute.operations_of`."""
    if not choose():
        return None
    try:
        return len(Liveness(_flattened(function, args)[1]).nodes)
    except CannotFlatten:
        return None


def _flattened(function: Callable, args: tuple, key: Any = None) -> tuple[tuple, Program]:
    """Result of `_of_one_sample`, and the scalar program. Loops over bodies are written out if the function takes the whole arrays
    that they store."""
    found = _of_one_sample(function, args, key)
    try:
        return found, program_of(found[0])
    except CannotFlatten:
        if not has_made_loops():
            raise
    with nothing_looped():
        found = _of_one_sample(function, args)
    return found, program_of(found[0])


def _of_one_sample(function: Callable, args: tuple, key: Any = None) -> tuple[Any, tuple, list]:
    """Jaxpr of a function of one sample, its operands, and the structure of its results.

    The structure consists of the tree of the arrays, the other parts, and a function that restores random keys.
    """
    # Python scalars are constants of the code, arrays are its inputs.
    arrays, rest = eqx.partition(args, lambda x: isinstance(x, jax.Array | np.ndarray))
    leaves, tree = jax.tree.flatten(arrays)
    leaves = [jnp.asarray(x) for x in leaves]
    key = None if key is None else (key, tree, *map(_shape, leaves), internals.config.trace_context(), has_made_loops())
    leaves, with_keys = without_keys(leaves)
    shared = None if key is None else _shared.get(key)
    if shared is not None:
        jaxpr, used, structure = shared
        return jaxpr, tuple(itertools.compress(leaves, used)), structure
    structure: list = []

    def flat(*values):
        out = function(*eqx.combine(jax.tree.unflatten(tree, with_keys(values)), rest))
        dynamic, static = eqx.partition(out, eqx.is_array_like)
        results, out_tree = jax.tree.flatten(dynamic)
        results, results_with_keys = without_keys(results)
        structure[:] = [out_tree, static, results_with_keys]
        return results

    jaxpr, captured = _closed(flat, leaves)
    jaxpr, used = pruned_jaxpr(jaxpr, (True,) * len(jaxpr.out_avals))
    if key is not None and not captured:
        _shared.put(key, (jaxpr, used, structure))
    return jaxpr, tuple(itertools.compress((*captured, *leaves), used)), structure


def _closed(flat: Callable, leaves: list) -> tuple[Any, list]:
    """Jaxpr of one sample, and the traced arrays in its closure, which become its first inputs, with keys as their words.

    Arrays with known values remain constants of the jaxpr.
    """
    with written_out():
        closed = jax.make_jaxpr(flat)(*(_shape(x) for x in leaves))
    is_captured = [isinstance(c, jax_core.Tracer) for c in closed.consts]
    if not any(is_captured):
        return SampleJaxpr(closed), []
    captured, with_keys = without_keys(list(itertools.compress(closed.consts, is_captured)))
    known = [c for c, is_operand in zip(closed.consts, is_captured, strict=True) if not is_operand]
    variables = [[v for v, x in zip(closed.jaxpr.constvars, is_captured, strict=True) if x is y] for y in (False, True)]
    opened = jex.ClosedJaxpr(
        closed.jaxpr.replace(
            constvars=variables[0],
            invars=[*variables[1], *closed.jaxpr.invars],
            debug_info=closed.jaxpr.debug_info.with_unknown_names(),
        ),
        known,
    )
    if all(v.aval.dtype == x.dtype for v, x in zip(variables[1], captured, strict=True)):
        return SampleJaxpr(opened), captured

    def of_words(*operands):
        return jex.jaxpr_as_fun(opened)(*with_keys(operands[: len(captured)]), *operands[len(captured) :])

    with written_out():
        return SampleJaxpr(jax.make_jaxpr(of_words)(*(_shape(x) for x in (*captured, *leaves)))), captured


def _shape(x) -> jax.ShapeDtypeStruct:
    """Shape and type of an argument; a Python scalar under `jit` keeps its weak type."""
    return jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=jax.typeof(x).weak_type)
