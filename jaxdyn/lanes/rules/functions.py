"""Primitives that contain functions: calls, branches and loops."""

import collections
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.extend import core as jex

from jaxdyn.lanes.deferred import LONG, Product, SumOfProducts, merged
from jaxdyn.lanes.derived import traced
from jaxdyn.lanes.flatten import (
    SMALL_INPUT,
    CannotFlatten,
    Flattener,
    Memory,
    Value,
    contiguous,
    inner_jaxprs,
    is_known,
    kind_of,
    objects,
    rule,
    scalars_of,
)
from jaxdyn.lanes.folding import settled
from jaxdyn.lanes.keys import arrays_of
from jaxdyn.lanes.program import Block, Loop, Node, Region, Scalar, Stretch, is_same
from jaxdyn.lanes.rules.random import HASH_OPERATIONS
from jaxdyn.lanes.rules.shapes import joined, reshaped, sliced, view
from jaxdyn.lanes.scalar_types import FLOATS, INTEGERS, dtype_of_type

# Maximum number of values of factors that a loop collects per entry of the matrix; more of them would need slow memory.
_MOST_COLLECTED = 256
# A loop whose unrolled form has at most this many equations is unrolled: positions in arrays become known and are folded.
_UNROLLED_EQUATIONS = 2000
# Longer loops over arrays that are not split into scalars stay loops, however short an iteration is.
_UNROLLED_TURNS = 16
# Largest number of equations of the unrolled form of an iteration of a loop whose length depends on values. Longer ones are
# searches for whole motions, which are as fast as loops of XLA around compiled functions.
_LONGEST_WHILE = 15_000
_USUAL_OPERATIONS = 64  # operations of an equation of usual size


# How XLA compiles a call, and places it on devices.
_OF_COMPILATION = "name inline keep_unused donated_invars compiler_options_kvs"
_OF_DEVICES = "ctx_mesh in_shardings out_shardings in_layouts out_layouts"
# How a call is differentiated, which JAX does before its result is flattened.
_OF_DERIVATIVES = (
    "jvp_jaxpr_fun fwd_jaxpr_thunk bwd out_trees num_consts symbolic_zeros prevent_cse differentiated policy"
)


@rule(
    "jit",
    "remat2",
    "call",
    "closed_call",
    "eval_jaxpr",
    "custom_jvp_call",
    "custom_vjp_call",
    reads="jaxpr call_jaxpr",
    ignores=f"{_OF_COMPILATION} {_OF_DEVICES} {_OF_DERIVATIVES}",
    of_whole_keys=True,
    takes_deferred=True,
)
def _call(flat: Flattener, equation, args: list[Any]) -> list[Any]:
    p = equation.params
    inner = p["jaxpr"] if "jaxpr" in p else p["call_jaxpr"]
    return flat.closed(inner, args) if hasattr(inner, "jaxpr") else flat.run(inner, [], args)


@rule("call_hi_primitive", reads="_prim", of_whole_keys=True)
def _call_of_expansion(flat: Flattener, equation, args: list[Value]) -> list[Any]:
    """Functions with their own derivatives from JAX 0.12 on, such as `custom_root`; they consist of ordinary primitives."""
    expand, prim = equation.primitive.to_lojax, equation.params["_prim"]
    return flat.closed(traced(lambda *xs: expand(*xs, _prim=prim), [v.aval for v in equation.invars]), args)


@rule("platform_index", reads="platforms")
def _platform_index(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    platforms = equation.params["platforms"]
    if None not in platforms:
        raise CannotFlatten("'platform_dependent' without a default has no scalar form")
    # The branches are equivalent; the default is for all platforms.
    return [np.asarray(platforms.index(None), np.int32)]


@rule("cond", reads="branches", ignores="branches_platforms", of_whole_keys=True)
def _cond(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    which, *operands = args
    branches = equation.params["branches"]
    index = flat.registers(which).item()
    if type(index) is not Node:
        return flat.closed(branches[min(max(int(index), 0), len(branches) - 1)], operands)
    program = flat.program
    # All branches are computed, and one is selected per sample.
    results: list[list[Value]] = [list(map(flat.settled, flat.closed(branch, operands))) for branch in branches]
    boolean = equation.invars[0].aval.dtype == bool
    chosen: list[Value] = results[-1]
    for k in range(len(branches) - 2, -1, -1):
        here = program.apply("not", (index,), "bool") if boolean else program.compare("le", index, k)
        chosen = [
            flat.each(lambda a, b, v=v, h=here: program.select(h, a, b, kind_of(v)), one, other)
            for one, other, v in zip(results[k], chosen, arrays_of(equation.outvars), strict=True)
        ]
    return chosen


@rule("while", reads="cond_jaxpr body_jaxpr cond_nconsts body_nconsts", of_whole_keys=True)
def _while(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    """A loop that ends when no sample needs a further iteration; samples that need none keep their values.

    In a function that is mapped over an axis, the condition is an array. Each of its entries then holds for a part of the values.
    """
    p, program, outer = equation.params, flat.program, flat.block
    condition, function = p["cond_jaxpr"], p["body_jaxpr"]
    count = _count_equations(condition.jaxpr) + _count_equations(function.jaxpr)
    if count > _LONGEST_WHILE:
        raise CannotFlatten(f"'while_loop' has an iteration of {count} equations, more than {_LONGEST_WHILE}")
    n_condition = len(arrays_of(equation.invars[: p["cond_nconsts"]]))
    n_const = n_condition + len(arrays_of(equation.invars[p["cond_nconsts"] :][: p["body_nconsts"]]))
    initial = [flat.registers(x) for x in args[n_const:]]

    def is_needed(values: Sequence[Value]) -> np.ndarray:
        (found,) = flat.closed(condition, [*args[:n_condition], *values])
        return flat.registers(flat.settled(found))

    begins = is_needed(initial)
    if not any(type(s) is Node or s for s in scalars_of(begins)):
        return list(initial)
    loop = Loop(1, Block(outer))
    loop.counter = program.node("counter", (), "i64", data=1, block=loop.body, shared=False)
    kinds = [*map(kind_of, arrays_of(equation.outvars)), "bool"]
    carried = [*initial, begins]
    loop.initial = [s for x in carried for s in scalars_of(x)]
    loop.carries = [
        program.node("carry", (), kind, data=(loop, i), block=loop.body, shared=False)
        for i, kind in enumerate(kind for x, kind in zip(carried, kinds, strict=True) for _ in range(x.size))
    ]
    *before, goes_on = _divided(loop.carries, carried)
    flat.block = loop.body
    after = list(map(flat.settled, flat.closed(function, [*args[n_condition:n_const], *before])))
    for new, old, kind in zip(after, before, kinds, strict=False):
        chosen = goes_on.reshape((*goes_on.shape, *(1,) * (old.ndim - goes_on.ndim)))
        following = flat.each(lambda c, a, b, kind=kind: program.select(c, a, b, kind), chosen, new, old)
        loop.following += scalars_of(following)
    needed = scalars_of(flat.apply("and", "bool", goes_on, is_needed(after)))
    loop.following += needed
    loop.condition = functools.reduce(lambda a, b: program.apply("or", (a, b), "bool"), needed)
    flat.block = outer
    node = program.node("loop", (), "loop", data=loop, block=outer, shared=False)
    finals = [program.node("result", (node,), carry.type, data=i) for i, carry in enumerate(loop.carries)]
    return list(_divided(finals, carried)[:-1])


def _divided(scalars: Sequence[Scalar], like: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Arrays with the shapes of other arrays that contain the scalars one after the other."""
    ends = list(itertools.accumulate((x.size for x in like), initial=0))
    return [objects(scalars[a:b], x.shape) for a, b, x in zip(ends, ends[1:], like, strict=False)]


def _count_equations(jaxpr) -> int:
    """Number of equations of the unrolled form; an equation with many operations counts as several equations of usual size."""
    turns = [e.params.get("length", 1) for e in jaxpr.eqns]
    inner = [sum(map(_count_equations, inner_jaxprs(e))) for e in jaxpr.eqns]
    own = [_count_operations(e) // _USUAL_OPERATIONS for e in jaxpr.eqns]
    return len(inner) + sum(own) + sum(n * k for n, k in zip(turns, inner, strict=True))


def _count_operations(equation) -> int:
    """Number of operations of triangular systems, random numbers and large products, of which one equation can have many.

    A large product is a loop, and counts like the longest product that is not a loop.
    """
    name = equation.primitive.name
    if name == "triangular_solve":
        matrix, right = (v.aval for v in equation.invars)
        return matrix.shape[-1] * math.prod(right.shape)
    if name in ("random_bits", "random_split", "random_fold_in"):
        return HASH_OPERATIONS * math.prod(equation.outvars[0].aval.shape)
    if name != "dot_general":
        return 0
    (summed, _), _ = equation.params["dimension_numbers"]
    terms = math.prod(equation.invars[0].aval.shape[d] for d in summed)
    multiplications = terms * equation.outvars[0].aval.size
    return LONG if multiplications > LONG else 0


def _variables_constant_and_carried(equation) -> tuple[int, int]:
    """Numbers of constant and of carried inputs of a scan; the remaining inputs are its sequences."""
    p = equation.params
    if "num_carry" in p:
        return p["num_consts"], p["num_carry"]
    consts, carry, _ = p["ft_in"].unpack()  # JAX 0.11 and newer
    return len(consts), len(carry)


def _constant_and_carried(equation) -> tuple[int, int]:
    """Numbers of constant and of carried arrays of a scan; a key is two arrays."""
    n_const, n_carry = _variables_constant_and_carried(equation)
    kept, changing = equation.invars[:n_const], equation.invars[n_const : n_const + n_carry]
    return len(arrays_of(kept)), len(arrays_of(changing))


@rule(
    "scan",
    reads="jaxpr length reverse unroll num_consts num_carry ft_in",
    ignores="ft_out linear _split_transpose",
    of_whole_keys=True,
    takes_deferred=True,
)
def _scan(flat: Flattener, equation, args: list[Any]) -> list[Any]:
    p, length = equation.params, equation.params["length"]
    n_const, n_carry = _constant_and_carried(equation)
    carry = args[n_const : n_const + n_carry]
    consts, xs = (list(map(flat.settled, part)) for part in (args[:n_const], args[n_const + n_carry :]))
    unrolled = length <= 1 or p["unroll"] >= length
    rows = [v.aval.size for v in (*equation.invars[n_const + n_carry :], *equation.outvars[n_carry:])]
    is_short = length <= _UNROLLED_TURNS or max(rows, default=0) <= SMALL_INPUT
    if unrolled or (is_short and length * _count_equations(p["jaxpr"].jaxpr) <= _UNROLLED_EQUATIONS):
        return _unrolled_scan(flat, equation, consts, carry, xs)
    return _looped_scan(flat, equation, consts, carry, xs)


def _unrolled_scan(flat: Flattener, equation, consts, carry, xs) -> list[Any]:
    p = equation.params
    turns = range(p["length"])[::-1] if p["reverse"] else range(p["length"])
    n_carry = len(carry)
    gathered = arrays_of(equation.outvars)[n_carry:]
    collected: list[list[Value]] = [[] for _ in gathered]
    for k in turns:
        items = []
        for x in xs:
            first = sliced(flat, x, [k] + [0] * (x.ndim - 1), [k + 1, *x.shape[1:]], [1] * x.ndim)
            items.append(reshaped(flat, first, x.shape[1:]))
        results = flat.closed(p["jaxpr"], [*consts, *carry, *items])
        carry = results[:n_carry]
        for column, y in zip(collected, results[n_carry:], strict=True):
            column.append(flat.settled(y))
    stacked: list[Value] = []
    for column, v in zip(collected, gathered, strict=True):
        column = column[::-1] if p["reverse"] else column
        if any(isinstance(y, Memory) for y in column):
            stacked.append(joined(flat, column, kind_of(v), v.aval.shape))
        elif not column:
            stacked.append(np.zeros(v.aval.shape, dtype_of_type(kind_of(v))))
        else:
            stacked.append(np.stack([flat.registers(y) for y in column]))
    return [*carry, *stacked]


def _looped_scan(flat: Flattener, equation, consts, carry, xs) -> list[Any]:
    """A loop in the program. Carried values that are constant, or that count, are recognized and become known outside.

    Large matrices to which each iteration adds products are not carried: the loop collects the factors, whose products are added
    after it.
    """
    p, program = equation.params, flat.program
    n_carry, length = len(carry), p["length"]
    invars, outvars = arrays_of(equation.invars), arrays_of(equation.outvars)
    kinds = [kind_of(v) for v in outvars]
    jaxpr, sums = _without_sums(p["jaxpr"], *_variables_constant_and_carried(equation))
    initial = [np.empty(0) if k in sums else flat.registers(flat.settled(c)) for k, c in enumerate(carry)]
    slots = [(k, s, kinds[k]) for k, c in enumerate(initial) for s in scalars_of(c)]
    rows = [_rows(flat, x, v) for x, v in zip(xs, invars[len(consts) + n_carry :], strict=True)]
    replaced: dict[int, Scalar] = {}  # increment per iteration by the index of the slot; zero for constant values
    outer = flat.block
    while True:
        body = Block(outer)
        loop = Loop(length, body)
        loop.counter = program.node("counter", (), "i64", data=length, block=body, shared=False)
        turn: Scalar = loop.counter
        if p["reverse"]:
            turn = program.apply("sub", (length - 1, turn), "i64")
        loop.carries = [
            program.node("carry", (), kind, data=(loop, i), block=body, shared=False)
            for i, (_, _, kind) in enumerate(slots)
        ]
        loop.initial = [s for _, s, _ in slots]
        current: list[Scalar] = list(loop.carries)
        for i, step in replaced.items():
            kind = slots[i][2]
            if step == 0:
                current[i] = slots[i][1]
            else:
                count = program.convert(loop.counter, "i64", kind)
                current[i] = program.add(slots[i][1], program.mul(count, step, kind), kind)
        taken, args = 0, []
        for c in initial:
            args.append(objects(current[taken : taken + c.size], c.shape))
            taken += c.size
        flat.block = body
        results = flat.closed(jaxpr, [*consts, *args, *(row(turn) for row in rows)])
        results = [r if k in sums else flat.settled(r) for k, r in enumerate(results)]
        flat.block = outer
        carried = [r for k, r in enumerate(results[:n_carry]) if k not in sums]
        following = [s for r in carried for s in scalars_of(flat.registers(r))]
        found = {}
        for i, (old, new) in enumerate(zip(current, following, strict=True)):
            if i in replaced:
                continue
            if old is new:
                found[i] = 0
            elif slots[i][2] in INTEGERS and type(new) is Node and new.op == "add" and new.args[0] is old:
                if type(new.args[1]) is not Node:
                    found[i] = new.args[1]
            elif type(new) is not Node and is_same(new, slots[i][1]):
                found[i] = 0
        if not found:
            break
        replaced.update(found)
    loop.following = [s if i not in replaced else loop.carries[i] for i, s in enumerate(following)]
    after = {k: x for k in sums if (x := _collectable(results[k], length)) is not None}
    for k in (k for k in sums if k not in after):
        # All other sums are carried as usual, entry by entry.
        flat.block = body
        added = scalars_of(flat.registers(flat.settled(results[k])))
        flat.block = outer
        initial[k] = flat.registers(flat.settled(carry[k]))
        for start, x in zip(scalars_of(initial[k]), added, strict=True):
            slots.append((k, start, kinds[k]))
            node = program.node("carry", (), kinds[k], data=(loop, len(loop.carries)), block=body, shared=False)
            loop.carries.append(node)
            loop.initial.append(start)
            loop.following.append(program.add(node, x, kinds[k]))
    node = program.node("loop", (), "loop", data=loop, block=outer, shared=False)
    finals: list[list[Scalar]] = [[] for _ in initial]
    for i, (k, start, kind) in enumerate(slots):
        if i in replaced:
            step = replaced[i]
            finals[k].append(start if step == 0 else program.add(start, settled(step * length, kind), kind))
        else:
            finals[k].append(program.node("result", (node,), kind, data=i))
    out: list[Any] = [objects(scalars, c.shape) for scalars, c in zip(finals, initial, strict=True)]
    for k, added in after.items():
        out[k] = _sum_after_loop(flat, node, added, carry[k])
    for y, v in zip(results[n_carry:], outvars[n_carry:], strict=True):
        out.append(_collected(flat, node, y, turn, v.aval.shape, kind_of(v)))
    return out


def _collected(flat: Flattener, node: Node, y: Value, turn: Scalar, shape: tuple[int, ...], kind: str) -> Memory:
    """Memory with the values that each iteration of a loop collects, at position `turn`.

    Args:
        flat: Flattener.
        node: Node of the loop.
        y: Values of an iteration.
        turn: Index of the iteration.
        shape: Shape of the collected array.
        kind: Scalar type.
    """
    program, loop = flat.program, node.data
    size = math.prod(shape[1:])
    values: Sequence[Scalar] | Stretch
    values = y.stretch if isinstance(y, Memory) and y.is_contiguous else scalars_of(flat.registers(y))
    region = Region("loop", shape[0] * size, kind, which=len(loop.collected))
    loop.collected.append((program.mul(turn, size, "i64"), values, size, kind))
    made = program.node("region", (node,), "region", data=region, shared=False)
    return Memory(made, kind, shape, contiguous(shape))


def _without_sums(closed, n_const: int, n_carry: int) -> tuple[Any, list[int]]:
    """The body of a loop without the sums of large carried arrays, and the indices of these arrays.

    The results in their places are the terms that each iteration adds.

    Args:
        closed: Closed jaxpr of the body.
        n_const, n_carry: Numbers of constant and of carried inputs of the body.
    """
    jaxpr = closed.jaxpr
    read = collections.Counter(v for e in jaxpr.eqns for v in e.invars if not isinstance(v, jex.Literal))
    read.update(v for v in jaxpr.outvars if not isinstance(v, jex.Literal))
    maker = {v: e for e in jaxpr.eqns if e.primitive.name in ("add", "add_any") for v in e.outvars}
    outvars, sums, left_out = list(jaxpr.outvars), [], set()
    place = 0
    for k in range(n_carry):
        carried, following = jaxpr.invars[n_const + k], outvars[k]
        own, place = place, place + len(arrays_of([carried]))
        equation = None if isinstance(following, jex.Literal) else maker.get(following)
        if equation is None or carried.aval.size <= LONG or place != own + 1 or kind_of(carried) not in FLOATS:
            continue
        if read[carried] == read[following] == 1 and carried in equation.invars:
            outvars[k] = equation.invars[1 - equation.invars.index(carried)]
            sums.append(own)
            left_out.add(following)
    eqns = [e for e in jaxpr.eqns if not left_out.intersection(e.outvars)]
    return closed.replace(jaxpr=jaxpr.replace(eqns=eqns, outvars=outvars)), sums


def _collectable(x, turns: int) -> SumOfProducts | None:
    """The products that each iteration adds, if their factors, over all iterations, are small enough to be collected; else None."""
    if not isinstance(x, SumOfProducts) or x.base is not None:
        return None
    collected = turns * sum(p.left.size + p.right.size for p in x.products)
    return x if collected <= _MOST_COLLECTED * x.size else None


def _sum_after_loop(flat: Flattener, node: Node, added: SumOfProducts, start) -> Any:
    """Sum of `start` and the products of all iterations; each pair of factors gives one product, summed over the iterations."""
    kind, length, counter = added.type, node.data.length, node.data.counter

    def of_all_turns(x: Value) -> Memory:
        terms, side = x.shape
        every = _collected(flat, node, x, counter, (length, terms, side), kind)
        return view(every, (length * terms, side), (side, 1))

    products = tuple(Product(of_all_turns(p.left), of_all_turns(p.right)) for p in merged(added.products))
    total = SumOfProducts(added.shape, kind, products)
    both = total.plus(start)
    return total.plus(flat.memory(flat.settled(start), kind)) if both is None else both


def _rows(flat: Flattener, x: Value, variable) -> Callable[[Scalar], Value]:
    """Function turn -> x[turn]; rows that are equal or that count are computed instead of being read."""
    kind, program = kind_of(variable), flat.program
    if is_known(x) and len(x) > 1:
        if np.all(x == x[0]) and (kind not in FLOATS or np.all(np.signbit(x) == np.signbit(x[0]))):
            return lambda turn: np.asarray(x[0])
        if kind in INTEGERS and np.all((steps := np.diff(x, axis=0)) == steps[0]):

            def counted(turn):
                count = program.convert(turn, "i64", kind)
                return flat.each(
                    lambda a, s: program.add(a, program.mul(count, s, kind), kind),
                    np.asarray(x[0]),
                    np.asarray(steps[0]),
                )

            return counted
    memory = flat.memory(x, kind, gaps=True)

    def row(turn):
        offset = program.add(memory.offset, program.mul(turn, memory.strides[0], "i64"), "i64")
        return flat.arranged(view(memory, memory.shape[1:], memory.strides[1:], offset))

    return row
