"""Functions of one sample for the transformations of a lane call: tangents, transposes, parts of reverse mode, mapped functions.

Each function is a closed jaxpr, derived from the jaxpr of the lane call, which keeps it (`remembered`).
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex

from jaxdyn.compute import internals
from jaxdyn.compute.hints import nothing_kept, written_out
from jaxdyn.compute.keys import without_keys
from jaxdyn.lanes.collector import collector_paused
from jaxdyn.lanes.flatten import CannotFlatten, flatten, inner_jaxprs, without_unexpected_errors
from jaxdyn.lanes.program import Node, Program, Stretch
from jaxdyn.lanes.remembered import SampleJaxpr, remembered


@remembered
def program_of(jaxpr, of_one_sample: bool = False) -> Program:
    """Scalar program of a closed jaxpr, see `flatten`."""
    with without_unexpected_errors():
        return flatten(jaxpr, of_one_sample)


def program_of_only_sample(jaxpr) -> Program:
    """Scalar program of a function that is called with one sample, whose matrix products use vectors where possible."""
    program = program_of(jaxpr)
    if not program.has_matrix_products:
        return program
    try:
        return program_of(jaxpr, of_one_sample=True)
    except CannotFlatten:  # a matrix in memory may be too large for an operation that uses its entries
        return program


def function_of(jaxpr) -> Callable:
    """Function that evaluates a closed jaxpr."""
    return jex.jaxpr_as_fun(jaxpr)


def is_float(aval) -> bool:
    return jnp.issubdtype(aval.dtype, jnp.inexact)


def traced(function: Callable, avals: Sequence):
    with written_out(), collector_paused():
        return SampleJaxpr(jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals)))


@remembered
def pruned_jaxpr(jaxpr, needed: tuple[bool, ...]) -> tuple[SampleJaxpr, tuple[bool, ...]]:
    """Jaxpr of the needed results alone, and for each input whether it has an effect on them.

    The derivative with respect to any other input is a zero that JAX knows, and not a computed one.
    """
    smaller, used = internals.partial_eval.dce_jaxpr(jaxpr.jaxpr, needed)
    is_same = all(needed) and all(used) and len(smaller.eqns) == len(jaxpr.eqns)
    if is_same and isinstance(jaxpr, SampleJaxpr):  # which keeps its program
        return jaxpr, tuple(used)
    return SampleJaxpr(jex.ClosedJaxpr(smaller, jaxpr.consts)), tuple(used)


@remembered
def tangent_jaxpr(jaxpr, active: tuple[bool, ...]):
    """Jaxpr that computes the tangents of floating-point results from all inputs and from the tangents of active inputs.

    Args:
        jaxpr: Closed jaxpr.
        active: True for each input with a tangent.
    """
    n = len(jaxpr.in_avals)

    def tangent(*args):
        inputs, tangents = list(args[:n]), args[n:]
        places = [i for i in range(n) if active[i]]

        def of_active(*values):
            merged = list(inputs)
            for i, x in zip(places, values, strict=True):
                merged[i] = x
            outs = function_of(jaxpr)(*merged)
            return [x for x, a in zip(outs, jaxpr.out_avals, strict=True) if is_float(a)]

        return jax.jvp(of_active, tuple(inputs[i] for i in places), tuple(tangents))[1]

    return traced(tangent, [*jaxpr.in_avals, *(a for a, on in zip(jaxpr.in_avals, active, strict=True) if on)])


@remembered
def transposed_jaxpr(jaxpr, linear: tuple[bool, ...], present: tuple[bool, ...]):
    """Jaxpr that computes the cotangents of linear inputs from the other inputs and the nonzero cotangents of results.

    Args:
        jaxpr: Closed jaxpr.
        linear: True for each linear input.
        present: True for each result whose cotangent is not zero.
    """
    fixed = [a for a, on in zip(jaxpr.in_avals, linear, strict=True) if not on]
    moving = [a for a, on in zip(jaxpr.in_avals, linear, strict=True) if on]
    results = [a for a, on in zip(jaxpr.out_avals, present, strict=True) if on]

    def transposed(*args):
        others, cotangents = args[: len(fixed)], args[len(fixed) :]

        def of_linear(*values):
            rest, own = iter(others), iter(values)
            outs = function_of(jaxpr)(*(next(own) if on else next(rest) for on in linear))
            return [x for x, on in zip(outs, present, strict=True) if on]

        shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in moving]
        return list(jax.linear_transpose(of_linear, *shapes)(list(cotangents)))

    return traced(transposed, [*fixed, *results])


@remembered
def linearized_jaxprs(jaxpr, active: tuple[bool, ...]):
    """Two functions for reverse mode: inputs -> (results, stored values), and (inputs, stored values, tangents) -> tangents.

    The third return value marks the results of the jaxpr that are floating-point numbers.
    """
    n = len(jaxpr.in_avals)
    places = [i for i in range(n) if active[i]]
    floats = [is_float(a) for a in jaxpr.out_avals]
    structure: list = []

    def of_active(inputs, *values):
        merged = list(inputs)
        for i, x in zip(places, values, strict=True):
            merged[i] = x
        return function_of(jaxpr)(*merged)

    def forward(*inputs):
        def split(*values):
            outs = of_active(inputs, *values)
            real = [x for x, on in zip(outs, floats, strict=True) if on]
            return real, [x for x, on in zip(outs, floats, strict=True) if not on]

        if not has_loops(jaxpr.jaxpr):
            split = jax.checkpoint(split)
        real, push, others = jax.linearize(split, *(inputs[i] for i in places), has_aux=True)
        stored, tree = jax.tree.flatten(push)
        stored, with_keys = without_keys(stored)
        structure[:] = [tree, with_keys]
        rest, own = iter(others), iter(real)
        return [*(next(own) if on else next(rest) for on in floats), *stored]

    with nothing_kept():
        first = traced(forward, jaxpr.in_avals)
    tree, with_keys = structure
    # Inputs are available and constants are known, so they are not stored.
    n_out = len(floats)
    sources: list = _inputs_passed_on(first)[n_out:]
    known = known_results(first)[n_out:]
    kept = [i for i, source in enumerate(sources) if source is None and known[i] is None]

    def shorter(*inputs):
        results = function_of(first)(*inputs)
        return [*results[:n_out], *(results[n_out + i] for i in kept)]

    stored_avals = [first.out_avals[n_out + i] for i in kept]

    def tangent(*args):
        inputs, stored, tangents = args[:n], iter(args[n : n + len(kept)]), args[n + len(kept) :]
        leaves = [
            inputs[source].reshape(leaf.shape) if source is not None else next(stored) if value is None else value
            for source, value, leaf in zip(sources, known, first.out_avals[n_out:], strict=True)
        ]
        return jax.tree.unflatten(tree, with_keys(leaves))(*tangents)

    forward_jaxpr = traced(shorter, jaxpr.in_avals) if len(kept) < len(sources) else first
    tangent_avals = [*jaxpr.in_avals, *stored_avals, *(jaxpr.in_avals[i] for i in places)]
    return forward_jaxpr, traced(tangent, tangent_avals), floats


def _results(jaxpr) -> list:
    """Results of the scalar program, or unknown values if it does not exist."""
    try:
        return program_of(jaxpr).outputs
    except CannotFlatten:
        return [None] * len(jaxpr.out_avals)


def known_results(jaxpr) -> list[np.ndarray | None]:
    """Values of the results that do not depend on the inputs; None for each result that does."""
    found = []
    for aval, values in zip(jaxpr.out_avals, _results(jaxpr), strict=True):
        is_known = isinstance(values, list) and not any(type(x) is Node for x in values)
        found.append(np.array(values, aval.dtype).reshape(aval.shape) if is_known else None)
    return found


def _inputs_passed_on(jaxpr) -> list[int | None]:
    """Index of the input for each result that equals an input, possibly in another shape; None for the others."""
    found = []
    for variable, numbers in zip(jaxpr.jaxpr.outvars, _results(jaxpr), strict=True):
        source = next((i for i, v in enumerate(jaxpr.jaxpr.invars) if v is variable), None)
        if isinstance(numbers, Stretch):
            region, whole = numbers.region.data, numbers.offset == 0 and numbers.size == numbers.region.data.size
            source = region.which if region.kind == "input" and whole else source
        elif numbers and all(type(x) is Node and x.op == "load" for x in numbers):
            region = numbers[0].args[0].data
            in_order = [x.args for x in numbers] == [(numbers[0].args[0], k) for k in range(region.size)]
            source = region.which if region.kind == "input" and in_order else source
        found.append(source)
    return found


def has_loops(jaxpr) -> bool:
    """True if a jaxpr contains a scan."""
    return any(e.primitive.name == "scan" or any(map(has_loops, inner_jaxprs(e))) for e in jaxpr.eqns)


@remembered
def vmapped_jaxpr(jaxpr, mapped: tuple[bool, ...], length: int):
    """Jaxpr of the function that is mapped over an additional leading axis.

    Args:
        jaxpr: Closed jaxpr.
        mapped: True for each input that has the additional axis.
        length: Length of the additional axis.
    """
    function = jax.vmap(function_of(jaxpr), [0 if m else None for m in mapped], axis_size=length)
    return traced(function, _with_axis(jaxpr.in_avals, mapped, length))


@remembered
def looped_jaxpr(jaxpr, mapped: tuple[bool, ...], length: int):
    """Jaxpr of the function of `vmapped_jaxpr` that computes one entry of the additional axis after the other, in a loop.

    Args:
        jaxpr: Closed jaxpr.
        mapped: True for each input that has the additional axis.
        length: Length of the additional axis.
    """

    def function(*args):
        def one(_, entries):
            given = iter(entries)
            return None, function_of(jaxpr)(*(next(given) if m else a for a, m in zip(args, mapped, strict=True)))

        return jax.lax.scan(one, None, [a for a, m in zip(args, mapped, strict=True) if m], length=length)[1]

    return traced(function, _with_axis(jaxpr.in_avals, mapped, length))


def _with_axis(avals: Sequence, mapped: tuple[bool, ...], length: int) -> list[jax.ShapeDtypeStruct]:
    """Shapes of inputs, with an additional leading axis for those that are mapped."""
    return [
        jax.ShapeDtypeStruct((length, *a.shape) if m else a.shape, a.dtype) for a, m in zip(avals, mapped, strict=True)
    ]
