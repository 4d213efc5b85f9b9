"""The JAX primitive `lane_call`: a per-sample function on one sample, or on a batch with one sample per lane.

The primitive contains the jaxpr of one sample. Every transformation of JAX acts on this jaxpr, so its result consists of lane calls
again:

    jvp         the call itself, and a call of the tangent function f'(x) dx;
    transpose   a call of the transposed tangent function; it recomputes intermediate values of f, so only inputs are stored;
    linearize   (reverse mode) like jvp; a function with loops stores the values of its checkpoints, such as the states of a
                rollout;
    vmap        an additional axis of lanes; if only tangents are mapped, an additional axis of the function, so that the
                columns of a Jacobian share the operations that do not depend on the direction.

Lowering selects machine code on the CPU, a kernel on NVIDIA GPUs, and the code of XLA elsewhere and for functions that cannot be
written in scalars.
"""

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import core as jax_core
from jax.extend import core as jex
from jax.interpreters import ad, batching, mlir
from jax.sharding import AxisType, PartitionSpec

from jaxdyn.compute import internals
from jaxdyn.lanes import cpu, gpu
from jaxdyn.lanes.collector import collector_paused
from jaxdyn.lanes.cpu_code import widest, width_for
from jaxdyn.lanes.derived import (
    function_of,
    is_float,
    linearized_jaxprs,
    looped_jaxpr,
    program_of,
    program_of_only_sample,
    pruned_jaxpr,
    tangent_jaxpr,
    traced,
    transposed_jaxpr,
    vmapped_jaxpr,
)
from jaxdyn.lanes.flatten import CannotFlatten, rule, without_unexpected_errors
from jaxdyn.lanes.handler import TARGET
from jaxdyn.lanes.liveness import Liveness
from jaxdyn.lanes.llvm_engine import register_bytes
from jaxdyn.lanes.program import Program
from jaxdyn.lanes.record import Record, note
from jaxdyn.lanes.sharding import over_lanes

# Up to this number of mapped tangents become an axis of the function; more of them become lanes.
_MOST_DIRECTIONS = 64
# An outer batch of so many samples keeps all cores and their vectors busy. Arguments that inner samples share are expensive to copy
# if they have so many times as many values as the arguments of one inner sample.
_MANY_SAMPLES, _MUCH_SHARED = 32, 4
# Larger programs take LLVM so long that XLA is used unless lanes are requested.
_LARGEST_PROGRAM = 150_000
# Each thread stores the values that the loops of a block of samples collect; this number of values is about a gigabyte.
_LARGEST_MEMORY = 2**24
lane_call_p = jex.Primitive("lane_call")
lane_call_p.multiple_results = True


def _with_plain_primitives(*args, jaxpr, **params) -> list:
    """The call without functions like `custom_root`, which JAX 0.12 keeps as they are until their derivatives are taken."""
    plain = traced(function_of(internals.partial_eval.lower_jaxpr2(jaxpr)), jaxpr.in_avals)
    return lane_call_p.bind(*args, jaxpr=plain, **params)


# JAX has no public name for this. Older versions need no such step.
if hasattr(internals.partial_eval, "lower_jaxpr2"):
    lane_call_p.to_lojax = _with_plain_primitives


def bind(
    *args,
    jaxpr,
    batched: tuple[bool, ...],
    size: int | None,
    linear: tuple[bool, ...],
    lanes_last: tuple[bool, ...],
    results_last: tuple[bool, ...],
    backend: str,
    name: str,
):
    """Call a jaxpr by the primitive `lane_call`; the arguments are all inputs of the jaxpr.

    Args:
        args: Arrays; those marked in `batched` have a leading axis of lanes.
        jaxpr: Closed jaxpr of one sample.
        batched: True for each argument with an axis of lanes.
        size: Number of lanes, or None for a single sample without an axis of lanes.
        linear: True for each argument in which the function is known to be linear.
        lanes_last: True for each argument whose axis of lanes is the last one instead of the first. Reverse mode stores values with
            this axis last: the values of all samples are then contiguous, so that vector instructions can load and store them.
        results_last: True for each result whose axis of lanes is the last one instead of the first.
        backend: "lanes" to require the lane compiler, "auto" to let XLA compile functions that cannot be flattened.
        name: Name in the record of compilations.
    """
    return lane_call_p.bind(
        *_of_one_manual_type(args),
        jaxpr=jaxpr,
        batched=batched,
        size=size,
        linear=linear,
        lanes_last=lanes_last,
        results_last=results_last,
        backend=backend,
        name=name,
    )


def _of_one_manual_type(args: Sequence) -> Sequence:
    """Within `shard_map`, mark an argument that all devices share as varying if another one varies between devices."""
    axes = [jax.typeof(x).manual_axis_type.varying for x in args]
    every = frozenset().union(*axes)
    return [
        x if own == every else jax.lax.pcast(x, tuple(sorted(every - own)), to="varying")
        for x, own in zip(args, axes, strict=True)
    ]


@lane_call_p.def_impl
def _implementation(*args, **params):
    # Without jit this function would call itself, also when JAX finds a NaN in the result and runs it again without jit.
    with jax.disable_jit(False), jax.debug_nans(False), jax.debug_infs(False):
        results = _jitted(**params)(*args)
    _check_numbers(results, params["name"])
    return results


def _check_numbers(results: Sequence[jax.Array], name: str) -> None:
    """Check the results if `jax_debug_nans` or `jax_debug_infs` is set.

    Raises:
        FloatingPointError: A result is NaN or infinite.
    """
    for setting, sort, found in (("jax_debug_nans", "nan", jnp.isnan), ("jax_debug_infs", "inf", jnp.isinf)):
        if getattr(jax.config, setting) and any(is_float(x) and found(x).any() for x in results):
            raise FloatingPointError(
                f"invalid value ({sort}) encountered in the lanes of {name!r}; use backend='xla' to find the operation"
            )


# A call of a function outlives it here, because the caches of JAX lead from the call to the function: so few calls are kept.
@functools.lru_cache(maxsize=16)
def _jitted(**params):
    return jax.jit(lambda *args: lane_call_p.bind(*args, **params))


@lane_call_p.def_abstract_eval
def _abstract(*args, jaxpr, size, results_last, **_):
    shapes = _result_shapes(jaxpr, size, results_last)
    if not args or not args[0].manual_axis_type.varying:
        return [jax_core.ShapedArray(s.shape, s.dtype) for s in shapes]
    whole = [args[0].sharding.update(spec=PartitionSpec(*[None] * len(s.shape))) for s in shapes]
    return [
        args[0].update(shape=s.shape, dtype=s.dtype, weak_type=False, sharding=sharding)
        for s, sharding in zip(shapes, whole, strict=True)
    ]


def _result_shapes(jaxpr, size: int | None, results_last: tuple[bool, ...]) -> list[jax.ShapeDtypeStruct]:
    lanes = () if size is None else (size,)
    return [
        jax.ShapeDtypeStruct((*a.shape, *lanes) if last else (*lanes, *a.shape), a.dtype)
        for a, last in zip(jaxpr.out_avals, results_last, strict=True)
    ]


def _prune(used_results: list[bool], *rest: Any) -> tuple[list[bool], Any]:
    """Equation of a call without the results that the program around it does not use, and the inputs that remain.

    JAX 0.12 gives one argument more before the equation, about references, which calls do not have.
    """
    equation, needed = rest[-1], tuple(used_results)
    p = equation.params
    if not any(needed):
        return [False] * len(equation.invars), None
    jaxpr, used = pruned_jaxpr(p["jaxpr"], needed)
    kept = {name: tuple(_chosen(p[name], used)) for name in ("batched", "linear", "lanes_last")}
    kept["results_last"] = tuple(_chosen(p["results_last"], needed))
    smaller = equation.replace(
        invars=_chosen(equation.invars, used),
        outvars=_chosen(equation.outvars, needed),
        params=p | kept | {"jaxpr": jaxpr},
    )
    return list(used), smaller


internals.partial_eval.dce_rules[lane_call_p] = _prune


# ---------------------------------------------------------------- derivatives


def _no_tangent(x) -> ad.Zero:
    """The tangent of integers and booleans, which is zero and has the type float0."""
    return ad.Zero(jax_core.ShapedArray(x.shape, jax.dtypes.float0))


def _chosen(items: Sequence, flags: Sequence[bool]) -> list:
    return [x for x, on in zip(items, flags, strict=True) if on]


def _jvp(primals, tangents, **params):
    jaxpr, batched, lanes_last = params["jaxpr"], params["batched"], params["lanes_last"]
    out = lane_call_p.bind(*primals, **params)
    active = tuple(type(t) is not ad.Zero for t in tangents)
    floats = [is_float(a) for a in jaxpr.out_avals]
    moving = _chosen(tangents, active)
    changed = {
        "jaxpr": tangent_jaxpr(jaxpr, active),
        "batched": (*batched, *_chosen(batched, active)),
        "lanes_last": (*lanes_last, *_chosen(lanes_last, active)),
        "results_last": tuple(_chosen(params["results_last"], floats)),
        "linear": (False,) * len(primals) + (True,) * len(moving),
        "name": f"{params['name']}.jvp",
    }
    return out, _spread(bind(*primals, *moving, **params | changed), floats, out)


def _spread(tangents: Sequence, floats: Sequence[bool], out: Sequence) -> list:
    """Tangents of all results, with zero tangents for results that are not floating-point numbers."""
    found = iter(tangents)
    return [next(found) if on else _no_tangent(x) for x, on in zip(out, floats, strict=True)]


ad.primitive_jvps[lane_call_p] = _jvp


def _transpose(cotangents, *args, jaxpr, batched, size, lanes_last, results_last, linear, name, **rest):
    unknown = tuple(ad.is_undefined_primal(a) for a in args)
    given = [not u for u in unknown]
    present = tuple(type(c) is not ad.Zero for c in cotangents)
    if not any(present):
        return [ad.Zero(a.aval) if u else None for a, u in zip(args, unknown, strict=True)]
    incoming = _chosen(cotangents, present)
    results = iter(
        bind(
            *_chosen(args, given),
            *incoming,
            jaxpr=transposed_jaxpr(jaxpr, unknown, present),
            batched=(*_chosen(batched, given), *(size is not None for _ in incoming)),
            size=size,
            lanes_last=(*_chosen(lanes_last, given), *_chosen(results_last, present)),
            results_last=tuple(_chosen(lanes_last, unknown)),
            linear=(False,) * sum(given) + (True,) * len(incoming),
            name=f"{name}.transpose",
            **rest,
        )
    )
    out = []
    for is_unknown, has_lanes, last in zip(unknown, batched, lanes_last, strict=True):
        cotangent = next(results) if is_unknown else None
        if cotangent is not None and size is not None and not has_lanes:
            # The cotangent of an argument that all lanes share is the sum over the lanes.
            cotangent = cotangent.sum(-1 if last else 0)
        out.append(cotangent)
    return out


ad.primitive_transposes[lane_call_p] = _transpose


def _linearize(is_vjp, active, *primals, jaxpr, batched, size, lanes_last, results_last, linear, name, **rest):
    active = tuple(active)
    forward, derivative, floats = linearized_jaxprs(jaxpr, active)
    n_stored = len(forward.out_avals) - len(floats)
    results = bind(
        *primals,
        jaxpr=forward,
        batched=batched,
        size=size,
        lanes_last=lanes_last,
        results_last=(*results_last, *(True,) * n_stored),
        linear=(False,) * len(primals),
        name=name,
        **rest,
    )
    out, stored = results[: len(floats)], results[len(floats) :]

    def linearized(residuals, *tangents):
        moving = [ad.instantiate_zeros(t) for t in _chosen(tangents, active)]
        found = bind(
            *residuals,
            *moving,
            jaxpr=derivative,
            batched=(*batched, *(size is not None,) * n_stored, *_chosen(batched, active)),
            size=size,
            lanes_last=(*lanes_last, *(True,) * n_stored, *_chosen(lanes_last, active)),
            results_last=tuple(_chosen(results_last, floats)),
            linear=(False,) * len(residuals) + (True,) * len(moving),
            name=f"{name}.tangent",
            **rest,
        )
        return _spread(found, floats, out)

    return out, floats, [*primals, *stored], linearized


def _linearize_with_structure(*args, **params):
    """The rule in the form of JAX 0.11 and newer, which also allows residuals with a structure; none are used."""
    out, floats, residuals, linearized = _linearize(*args, **params)
    return out, floats, residuals, None, lambda residuals, structured, *tangents: linearized(residuals, *tangents)


# JAX has no public name for this rule yet. Without it, reverse mode uses jvp and transpose, which recompute loops from their start:
# slower, with the same results.
_linearizations = getattr(internals.ad, "primitive_linearizations", None)
if _linearizations is not None:
    _linearizations[lane_call_p] = _linearize if jax.__version_info__ < (0, 11) else _linearize_with_structure


# ---------------------------------------------------------------- batches


def _flattens(jaxpr) -> bool:
    try:
        program_of(jaxpr)
    except CannotFlatten:
        return False
    return True


def _compiles(jaxpr, backend: str) -> bool:
    """Whether the lane compiler accepts a function and the size of its program."""
    try:
        check_size(program_of(jaxpr), backend)
    except CannotFlatten:
        return False
    return True


def _batch(args, dims, *, jaxpr, batched, size, linear, lanes_last, results_last, **rest):
    mapped = [d is not None for d in dims]
    (length,) = {a.shape[d] for a, d in zip(args, dims, strict=True) if d is not None}
    options = dict(linear=linear, lanes_last=lanes_last, results_last=results_last, **rest)
    if any(linear) and all(_chosen(linear, mapped)) and length <= _MOST_DIRECTIONS:
        # The mapped axis becomes the first axis of the function of one sample.
        before = [0 if size is None or last or not b else 1 for b, last in zip(batched, lanes_last, strict=True)]
        moved = [jnp.moveaxis(a, d, p) if m else a for a, d, p, m in zip(args, dims, before, mapped, strict=True)]
        wider = vmapped_jaxpr(jaxpr, tuple(mapped), length)
        if _flattens(wider):  # not the case for many directions of long records, which become separate lanes
            out = bind(*moved, jaxpr=wider, batched=batched, size=size, **options)
            return out, [0 if size is None or last else 1 for last in results_last]
    plain = not any((*linear, *lanes_last, *results_last))
    if size is not None and plain and _copies_much(args, mapped, batched, length, size):
        looped = looped_jaxpr(jaxpr, batched, size)
        if _compiles(looped, rest["backend"]):
            moved = [jnp.moveaxis(a, d, 0) if m else a for a, d, m in zip(args, dims, mapped, strict=True)]
            out = bind(*moved, jaxpr=looped, batched=tuple(mapped), size=length, **options)
            return out, [0] * len(out)
    lanes = length if size is None else length * size
    moved = [
        _more_lanes(a, d, length, b, size, last) if b or m else a
        for a, d, b, m, last in zip(args, dims, batched, mapped, lanes_last, strict=True)
    ]
    flags = tuple(b or m for b, m in zip(batched, mapped, strict=True))
    out = bind(*moved, jaxpr=jaxpr, batched=flags, size=lanes, **options)
    if size is not None:
        shapes = [
            (*x.shape[:-1], length, size) if last else (length, size, *x.shape[1:])
            for x, last in zip(out, results_last, strict=True)
        ]
        out = [x.reshape(s) for x, s in zip(out, shapes, strict=True)]
    return out, [
        (x.ndim - (1 if size is None else 2)) if last else 0 for x, last in zip(out, results_last, strict=True)
    ]


def _copies_much(args, mapped: list[bool], batched: tuple[bool, ...], length: int, size: int) -> bool:
    """True if a batch of batches would mostly copy arguments that all samples of an inner batch share.

    An example is a search of steps of several lengths for each of many plans. On a CPU each sample of the outer batch then computes
    its inner batch in a loop. On a GPU, copies are cheaper than fewer threads, and so they are for a small outer batch.
    """
    if length < _MANY_SAMPLES or jax.default_backend() != "cpu":
        return False
    shared = sum(a.size // length for a, m, b in zip(args, mapped, batched, strict=True) if m and not b)
    own = sum(a.size // (size * length if m else size) for a, m, b in zip(args, mapped, batched, strict=True) if b)
    return shared > _MUCH_SHARED * own


def _more_lanes(a, d, length: int, batched: bool, size: int | None, last: bool):
    """An argument with `length` times as many lanes.

    Args:
        a: Argument.
        d: Axis that becomes lanes; None if it is not mapped.
        length: Length of the mapped axis.
        batched: True if the argument already has an axis of lanes.
        size: Number of lanes so far, or None.
        last: True if the axis of lanes is the last one.
    """
    axis = -1 if last else 0
    if size is None:
        return jnp.moveaxis(a, d, axis)
    inner = a.ndim - 1 if last else 1  # position of the axis of lanes when the new axis is in front of it
    if d is None:
        a = jnp.broadcast_to(
            jnp.expand_dims(a, inner - 1 if not last else a.ndim - 1), _inserted(a.shape, length, last)
        )
    elif batched:
        a = jnp.moveaxis(a, d, -2 if last else 0)
    else:
        a = jnp.moveaxis(a, d, axis)
        a = jnp.broadcast_to(a[..., None] if last else a[:, None], _followed(a.shape, size, last))
    return a.reshape((*a.shape[:-2], length * size) if last else (length * size, *a.shape[2:]))


def _inserted(shape: tuple[int, ...], length: int, last: bool) -> tuple[int, ...]:
    return (*shape[:-1], length, shape[-1]) if last else (length, *shape)


def _followed(shape: tuple[int, ...], size: int, last: bool) -> tuple[int, ...]:
    return (*shape, size) if last else (shape[0], size, *shape[1:])


batching.primitive_batchers[lane_call_p] = _batch


# ---------------------------------------------------------------- execution


def on_xla(*args, jaxpr, batched, size, lanes_last, results_last, **_):
    """Evaluate a lane call by operations of XLA instead of generated machine code.

    Args:
        args: Arguments of the call.
        jaxpr: Closed jaxpr of one sample.
        batched: True for each argument with an axis of lanes.
        size: Number of lanes, or None for a single sample.
        lanes_last: True for each argument whose axis of lanes is the last one instead of the first.
        results_last: True for each result whose axis of lanes is the last one instead of the first.
    """
    function = function_of(jaxpr)
    # The jaxpr of one sample knows no axes of devices, along which the arguments vary within `shard_map`.
    with internals.config._check_vma(False):
        if size is None:
            return function(*args)
        inward = _lane_axes(batched, lanes_last)
        outward = [-1 if last else 0 for last in results_last]
        return jax.vmap(function, inward, outward, axis_size=size)(*args)


def _program_or_reason(params: dict) -> tuple[Program | None, str]:
    """Scalar program of a call; or None, and the reason for which XLA is used.

    The function was flattened before, or it is a derivative of such a function, so an operation without scalar form is unexpected
    here and causes a warning. A derivative that is too large does not, because its limits are documented.
    """
    jaxpr = params["jaxpr"]
    if params["size"] == 0 or not jaxpr.out_avals:
        return None, "the call has no results"
    try:
        program = program_of(jaxpr)
    except CannotFlatten as error:
        if params["backend"] == "lanes":
            raise
        warnings.warn(
            f"XLA compiles {params['name']!r} instead of the lane compiler, and is slower: {error}",
            RuntimeWarning,
            stacklevel=2,
        )
        return None, str(error)
    try:
        check_size(program, params["backend"])
    except CannotFlatten as error:
        if params["backend"] == "lanes":
            raise
        return None, str(error)
    return program, ""


def check_size(program: Program, backend: str) -> None:
    """Raise an error if a program needs too much memory per sample or, unless backend is "lanes", a long compilation.

    Raises:
        CannotFlatten: The message states the size and the limit.
    """
    with without_unexpected_errors():
        live = Liveness(program)
    if len(live.nodes) > _LARGEST_PROGRAM and backend == "auto":
        raise CannotFlatten(f"the program has {len(live.nodes)} operations, more than {_LARGEST_PROGRAM}")
    memory = sum(n.data.size for n in live.nodes if n.op == "region" and n.data.kind in ("loop", "pieces"))
    if memory > _LARGEST_MEMORY:
        raise CannotFlatten(f"the loops of one sample collect {memory} values, more than {_LARGEST_MEMORY}")


@collector_paused()
def _on_cpu(*args, **params):
    program, reason = _program_or_reason(params)
    if program is None:
        return _left_to_xla(params, reason, args)
    if params["size"] in (None, 1):
        program = program_of_only_sample(params["jaxpr"])
    return _divided(functools.partial(_compiled_call, program, params, []), params, args)(*args)


def _left_to_xla(params: dict, reason: str, args: Sequence) -> Any:
    """Results of operations of XLA, which are recorded with the reason.

    A batch without samples computes nothing: XLA would fold operations of shared values, and die of a division of integers by zero.
    """
    note(Record(params["name"], "xla", reason=reason))
    if params["size"] == 0:
        return [jnp.zeros(s.shape, s.dtype) for s in _result_shapes(params["jaxpr"], 0, params["results_last"])]
    return on_xla(*args, **params)


def _generated(make: Callable, params: dict) -> Any:
    """Code of a call; or, unless the lane compiler is required, the reason for which it cannot be generated."""
    try:
        with without_unexpected_errors():
            return make()
    except CannotFlatten as error:
        if params["backend"] == "lanes":
            raise
        return str(error)


def _divided(call: Callable, params: dict, args: Sequence) -> Callable:
    """The call as a function of any number of lanes, which XLA may divide over devices; `shard_map` has divided them already."""
    axes = {axis for x in args for axis in jax.typeof(x).sharding.mesh.axis_types}
    if params["size"] is None or _asks_for_devices is None or axes == {AxisType.Manual}:
        return call
    axes = _lane_axes(params["batched"], params["lanes_last"])
    outward = [-1 if last else 0 for last in params["results_last"]]
    ranks = [a.ndim + 1 for a in params["jaxpr"].out_avals]
    return over_lanes(call, args, axes, outward, ranks)


def _lanes_held(params: dict, args: Sequence) -> int | None:
    """Number of lanes in the arguments; None if they have no axis of lanes."""
    if params["size"] is None:
        return None
    axes = _lane_axes(params["batched"], params["lanes_last"])
    return next((a.shape[axis] for a, axis in zip(args, axes, strict=True) if axis is not None), params["size"])


def _layouts(params: dict) -> tuple[list[str], list[str]]:
    """Layouts of arguments and results."""
    inputs = [
        "shared" if params["size"] is not None and not b else "columns" if last else "rows"
        for b, last in zip(params["batched"], params["lanes_last"], strict=True)
    ]
    return inputs, ["columns" if last else "rows" for last in params["results_last"]]


def _lane_axes(batched: Sequence[bool], lanes_last: Sequence[bool]) -> list[int | None]:
    return [(-1 if last else 0) if b else None for b, last in zip(batched, lanes_last, strict=True)]


def _compiled_call(program: Program, params: dict, held: list, *args):
    """Call of the machine code for the lanes in the arguments.

    Args:
        program: Scalar program.
        params: Parameters of the lane call.
        held: List that keeps the code alive. XLA divides lanes over devices during compilation, by functions that it holds until
            then.
        args: Arguments of the call.
    """
    size = _lanes_held(params, args)
    kinds = [kind for kind, _ in program.inputs] + program.output_types
    width = width_for(1 if size is None else size, widest(kinds, register_bytes()))
    compiled = _generated(lambda: cpu.compile_program(program, *_layouts(params), size is not None, width), params)
    if isinstance(compiled, str):
        return _left_to_xla(params | {"size": size}, compiled, args)
    held.append(compiled)
    note(Record(params["name"], "lanes", compiled.width, compiled.operations), compiled.made)
    shapes = _result_shapes(params["jaxpr"], size, params["results_last"])
    return machine_code_p.bind(*args, compiled=compiled, shapes=tuple((s.shape, s.dtype) for s in shapes))


# A call of machine code like `jax.ffi.ffi_call`, except that the lowered call keeps the code alive until XLA does.
machine_code_p = jex.Primitive("machine_code")
machine_code_p.multiple_results = True


@machine_code_p.def_abstract_eval
def _of_shapes(*args, compiled, shapes):
    return [jax_core.ShapedArray(shape, dtype) for shape, dtype in shapes]


def _lower_machine_code(ctx, *args, compiled: cpu.Compiled, shapes):
    ctx.module_context.add_keepalive(compiled)
    return jax.ffi.ffi_lowering(TARGET)(ctx, *args, code=compiled.key)


mlir.register_lowering(machine_code_p, _lower_machine_code, platform="cpu")


@collector_paused()
def _on_gpu(*args, **params):
    """One sample per thread. XLA is used if a function has no kernel, or kernels cannot be used."""
    program, reason = _program_or_reason(params)
    if program is not None:
        reason = gpu.obstacle() or gpu.refusal(program, params["backend"])
    if program is None or reason:
        return _left_to_xla(params, reason, args)
    return _divided(functools.partial(_launched, program, params), params, args)(*args)


def _launched(program: Program, params: dict, *args):
    """Call of the GPU kernels for the lanes in the arguments."""
    size = _lanes_held(params, args)
    kernels = _generated(lambda: gpu.Kernels(program, *_layouts(params), 1 if size is None else size), params)
    if isinstance(kernels, str):
        return _left_to_xla(params | {"size": size}, kernels, args)
    note(Record(params["name"], "lanes", 1, kernels.operations, kernels.code_s))
    return kernels(args, _result_shapes(params["jaxpr"], size, params["results_last"]))


# Dividing the lanes over devices requires the devices while lowering, which JAX has no public way to declare. Without it, a batch
# on several devices is gathered on each of them: slower, with the same results.
_asks_for_devices = getattr(internals.dispatch, "prim_requires_devices_during_lowering", None)
if _asks_for_devices is not None:
    _asks_for_devices.add(lane_call_p)


def _lowering(function: Callable) -> Callable:
    """Lowering of a call; `jax.export` cannot write machine code into a file, so a program for it consists of operations of XLA."""
    compiled, exported = (mlir.lower_fun(way, multiple_results=True) for way in (function, on_xla))

    def lower(ctx, *args, **params):
        return (exported if ctx.module_context.lowering_parameters.for_export else compiled)(ctx, *args, **params)

    return lower


mlir.register_lowering(lane_call_p, _lowering(on_xla))
mlir.register_lowering(lane_call_p, _lowering(_on_cpu), platform="cpu")
mlir.register_lowering(lane_call_p, _lowering(_on_gpu), platform=gpu.PLATFORM)


@rule("lane_call", reads="jaxpr size batched lanes_last results_last", ignores="linear backend name")
def _inline(flat, equation, args):
    """Rule for a lane call inside of a function that is being flattened: its jaxpr becomes a part of the program."""
    p = equation.params
    if p["size"] is None:
        return flat.closed(p["jaxpr"], args)
    avals = [v.aval for v in equation.invars]
    return flat.closed(traced(lambda *args: on_xla(*args, **p), avals), args)
