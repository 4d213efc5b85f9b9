"""Functions within functions: calls, branches and loops."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from jaxdyn.lanes.flatten import (
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

# A loop whose unrolled form has at most this many equations is unrolled: positions in arrays become known and fold.
_UNROLLED_EQUATIONS = 2000
_USUAL_OPERATIONS = 64  # of an equation


@rule(
    "jit",
    "pjit",
    "closed_call",
    "eval_jaxpr",
    "core_call",
    "remat2",
    "remat",
    "checkpoint",
    "custom_jvp_call",
    "custom_vjp_call",
    "call",
    of_whole_keys=True,
)
def _call(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
    if hasattr(inner, "jaxpr"):
        return flat.closed(inner, args)
    return flat.run(inner, [], args)


@rule("custom_vjp_call_jaxpr", of_whole_keys=True)
def _custom_vjp_call(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    return flat.closed(equation.params["fun_jaxpr"], args)


@rule("platform_index")
def _platform_index(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    # The branches of `platform_dependent` agree; the last one is the default, which holds everywhere.
    return [np.asarray(len(equation.params["platforms"]) - 1, np.int32)]


@rule("cond", of_whole_keys=True)
def _cond(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    which, *operands = args
    branches = equation.params["branches"]
    index = flat.registers(which).item()
    if type(index) is not Node:
        return flat.closed(branches[min(max(int(index), 0), len(branches) - 1)], operands)
    program = flat.program
    # All branches are computed, and one is selected per sample.
    results: list[list[Value]] = [flat.closed(branch, operands) for branch in branches]
    boolean = equation.invars[0].aval.dtype == bool
    chosen: list[Value] = results[-1]
    for k in range(len(branches) - 2, -1, -1):
        here = program.apply("not", (index,), "bool") if boolean else program.compare("le", index, k)
        chosen = [
            flat.each(lambda a, b, v=v, h=here: program.select(h, a, b, kind_of(v)), one, other)
            for one, other, v in zip(results[k], chosen, arrays_of(equation.outvars), strict=True)
        ]
    return chosen


@rule("while")
def _while(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    raise CannotFlatten("'while_loop' stops at a time that depends on the data, which differs from lane to lane")


def _count_equations(jaxpr) -> int:
    """Equations of the unrolled form; one with many operations counts as that many equations of usual size."""
    turns = [e.params.get("length", 1) for e in jaxpr.eqns]
    inner = [sum(map(_count_equations, inner_jaxprs(e))) for e in jaxpr.eqns]
    own = [_count_operations(e) // _USUAL_OPERATIONS for e in jaxpr.eqns]
    return len(inner) + sum(own) + sum(n * k for n, k in zip(turns, inner, strict=True))


def _count_operations(equation) -> int:
    """Operations of triangular systems and of random numbers, of which a single equation can have many."""
    if equation.primitive.name == "triangular_solve":
        matrix, right = (v.aval for v in equation.invars)
        return matrix.shape[-1] * math.prod(right.shape)
    if equation.primitive.name in ("random_bits", "random_split", "random_fold_in"):
        return HASH_OPERATIONS * math.prod(equation.outvars[0].aval.shape)
    return 0


def _constant_and_carried(equation) -> tuple[int, int]:
    """How many input arrays of a scan stay and how many are carried; the others are its sequences."""
    p = equation.params
    if "num_carry" in p:
        n_const, n_carry = p["num_consts"], p["num_carry"]
    else:
        consts, carry, _ = p["ft_in"].unpack()  # JAX from version 0.11 on
        n_const, n_carry = len(consts), len(carry)
    kept, changing = equation.invars[:n_const], equation.invars[n_const : n_const + n_carry]
    return len(arrays_of(kept)), len(arrays_of(changing))


@rule("scan", of_whole_keys=True)
def _scan(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    p, length = equation.params, equation.params["length"]
    n_const, n_carry = _constant_and_carried(equation)
    consts, carry, xs = args[:n_const], args[n_const : n_const + n_carry], args[n_const + n_carry :]
    unrolled = length <= 1 or p["unroll"] >= length
    if unrolled or length * _count_equations(p["jaxpr"].jaxpr) <= _UNROLLED_EQUATIONS:
        return _unrolled_scan(flat, equation, consts, carry, xs)
    return _looped_scan(flat, equation, consts, carry, xs)


def _unrolled_scan(flat: Flattener, equation, consts, carry, xs) -> list[Value]:
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
            column.append(y)
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


def _looped_scan(flat: Flattener, equation, consts, carry, xs) -> list[Value]:
    """A loop in the program. Carried numbers that stay, or that count, are recognized and become known outside."""
    p, program = equation.params, flat.program
    n_carry, length = len(carry), p["length"]
    invars, outvars = arrays_of(equation.invars), arrays_of(equation.outvars)
    kinds = [kind_of(v) for v in outvars]
    initial = [flat.registers(c) for c in carry]
    slots = [(k, s, kinds[k]) for k, c in enumerate(initial) for s in scalars_of(c)]
    rows = [_rows(flat, x, v) for x, v in zip(xs, invars[len(consts) + n_carry :], strict=True)]
    replaced: dict[int, Scalar] = {}  # known by number of the slot: a step per turn; zero for those that stay
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
        results = flat.closed(p["jaxpr"], [*consts, *args, *(row(turn) for row in rows)])
        flat.block = outer
        following = [s for r in results[:n_carry] for s in scalars_of(flat.registers(r))]
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
    node = program.node("loop", (), "loop", data=loop, block=outer, shared=False)
    finals: list[Scalar] = []
    for i, (_, start, kind) in enumerate(slots):
        if i in replaced:
            step = replaced[i]
            finals.append(start if step == 0 else program.add(start, settled(step * length, kind), kind))
        else:
            finals.append(program.node("result", (node,), kind, data=i))
    out: list[Value] = []
    taken = 0
    for c in initial:
        out.append(objects(finals[taken : taken + c.size], c.shape))
        taken += c.size
    for which, (y, v) in enumerate(zip(results[n_carry:], outvars[n_carry:], strict=True)):
        kind = kind_of(v)
        size = math.prod(v.aval.shape[1:])
        numbers: Sequence[Scalar] | Stretch
        numbers = y.stretch if isinstance(y, Memory) and y.is_contiguous else scalars_of(flat.registers(y))
        loop.collected.append((program.mul(turn, size, "i64"), numbers, size, kind))
        region = Region("loop", length * size, kind, which=which)
        made = program.node("region", (node,), "region", data=region, shared=False)
        out.append(Memory(made, kind, v.aval.shape, contiguous(v.aval.shape)))
    return out


def _rows(flat: Flattener, x: Value, variable) -> Callable[[Scalar], Value]:
    """turn -> x[turn]; rows that are equal or that count are computed rather than read."""
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
    memory = flat.memory(x, kind)

    def row(turn):
        offset = program.add(memory.offset, program.mul(turn, memory.strides[0], "i64"), "i64")
        part = view(memory, memory.shape[1:], memory.strides[1:], offset)
        return part if part.size > 512 else flat.registers(part)

    return row
