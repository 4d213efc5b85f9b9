"""Laws of scalar programs: what folds, what is shared, where an operation is placed, what is live, in which order it runs."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from random_trees import random_parents

import jaxdyn
from jaxdyn.lanes.flatten import flatten
from jaxdyn.lanes.liveness import Liveness, count_operations, scalars_in, uniform_nodes
from jaxdyn.lanes.program import Block, Loop, Node, Program, Stretch
from jaxdyn.lanes.schedule import Schedule


@pytest.fixture
def program():
    return Program()


def variables(program: Program, count: int, kind: str = "f64") -> list[Node]:
    """Numbers that are known at run time only."""
    region = program.input(kind, count)
    return [program.load(region, k) for k in range(count)]


def made(function, *shapes, dtype=jnp.float64) -> Program:
    """The program of a function of arrays."""
    return flatten(jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(s, dtype) for s in shapes)))


def operations(program: Program) -> dict[str, int]:
    """Number of live operations of each name, without reading and memory."""
    live = Liveness(program)
    found: dict[str, int] = {}
    for node in live.nodes:
        if node.op not in ("load", "region"):
            found[node.op] = found.get(node.op, 0) + 1
    return found


def is_positive_zero(x) -> bool:
    return type(x) is float and x == 0.0 and math.copysign(1.0, x) == 1.0


# ---------------------------------------------------------------- folding


@pytest.mark.parametrize("kind", ["f32", "f64", "i32", "u8"])
def test_zeros_and_ones_vanish(program, kind):
    (x,) = variables(program, 1, kind)
    zero, one = (0.0, 1.0) if kind[0] == "f" else (0, 1)
    for a, b in ((x, zero), (zero, x)):
        assert program.mul(a, b, kind) == 0
        assert type(program.mul(a, b, kind)) is type(zero)
        assert program.add(a, b, kind) is x
    assert program.mul(x, one, kind) is x
    assert program.mul(one, x, kind) is x
    assert program.apply("sub", (x, zero), kind) is x
    assert program.apply("div", (x, one), kind) is x


def test_a_product_with_a_known_zero_is_zero_without_sign(program):
    (x,) = variables(program, 1)
    assert is_positive_zero(program.mul(x, 0.0, "f64"))
    assert is_positive_zero(program.mul(x, -0.0, "f64"))
    assert type(program.apply("div", (0.0, x), "f64")) is Node  # not a number where x is zero


def test_zeros_of_both_signs_are_different_numbers(program):
    (x,) = variables(program, 1)
    condition = program.compare("lt", x, 1.0)
    positive, negative = (program.select(condition, x, zero, "f64") for zero in (0.0, -0.0))
    assert positive is not negative
    assert program.select(condition, x, 0.0, "f64").args[2] == 0.0
    mixed = program.select(condition, 0.0, -0.0, "f64")
    assert type(mixed) is Node
    assert program.select(condition, -0.0, -0.0, "f64") == 0.0


def test_one_and_true_and_one_point_zero_are_different_numbers(program):
    (x,) = variables(program, 1, "bool")
    chosen = [program.select(x, value, other, kind) for value, other, kind in [(1, 2, "i32"), (1.0, 2.0, "f64")]]
    assert [n.type for n in chosen] == ["i32", "f64"]
    assert chosen[0] is not chosen[1]


def test_differences_of_a_number_and_itself(program):
    (x,) = variables(program, 1)
    (n,) = variables(program, 1, "i32")
    assert program.apply("sub", (n, n), "i32") == 0
    assert type(program.apply("sub", (x, x), "f64")) is Node  # it may be infinite or undefined
    assert type(program.apply("div", (x, x), "f64")) is Node
    assert type(program.compare("eq", x, x)) is Node


def test_negations_move_outward_and_meet(program):
    x, y = variables(program, 2)
    add, mul, neg = program.add, program.mul, program.neg
    minus_x, minus_y = neg(x, "f64"), neg(y, "f64")
    assert neg(minus_x, "f64") is x
    assert mul(minus_x, minus_y, "f64") is mul(x, y, "f64")
    assert mul(minus_x, y, "f64") is neg(mul(x, y, "f64"), "f64")
    assert mul(x, -1.0, "f64") is minus_x
    assert mul(minus_x, 3.0, "f64") is mul(x, -3.0, "f64")
    difference = program.apply("sub", (x, y), "f64")
    assert add(x, minus_y, "f64") is difference
    assert add(minus_y, x, "f64") is difference
    assert neg(difference, "f64").op == "neg"  # the zero of equal numbers is negative then
    assert program.apply("sub", (x, minus_y), "f64") is add(x, y, "f64")
    assert program.apply("sub", (0.0, x), "f64") is not minus_x  # 0 - 0 is 0, and not -0
    assert program.apply("abs", (minus_x,), "f64") is program.apply("abs", (x,), "f64")


def test_equal_operations_are_one(program):
    x, y = variables(program, 2)
    for op in ("add", "mul", "min", "max"):
        assert program.apply(op, (x, y), "f64") is program.apply(op, (y, x), "f64")
    for op in ("sub", "div", "atan2", "pow", "rem"):
        assert program.apply(op, (x, y), "f64") is program.apply(op, (x, y), "f64")
        assert program.apply(op, (x, y), "f64") is not program.apply(op, (y, x), "f64")
    assert program.compare("gt", x, y) is program.compare("lt", y, x)
    assert program.compare("ne", x, y).args[0] is program.compare("eq", x, y)
    assert program.mul(x, 0.5, "f64") is program.apply("div", (x, 2.0), "f64")  # exact
    assert program.apply("div", (x, 3.0), "f64").op == "div"  # a product with 1/3 would not be
    table = program.table(np.array([1.0, 2.0]), "f64")
    assert program.table(np.array([1.0, 2.0]), "f64") is table
    assert program.table(np.array([1.0, 2.0]), "f32") is not table


def test_selections(program):
    (x, y), (a, b) = variables(program, 2), variables(program, 2, "bool")
    select = program.select
    assert select(True, x, y, "f64") is x
    assert select(False, x, y, "f64") is y
    assert select(a, x, x, "f64") is x
    assert select(a, 2.0, 2.0, "f64") == 2.0
    assert select(program.apply("not", (a,), "bool"), x, y, "f64") is select(a, y, x, "f64")
    assert select(a, True, False, "bool") is a
    assert select(a, False, True, "bool") is program.apply("not", (a,), "bool")
    truth_tables = {
        select(a, True, b, "bool"): lambda a, b: True if a else b,
        select(a, False, b, "bool"): lambda a, b: False if a else b,
        select(a, b, True, "bool"): lambda a, b: b if a else True,
        select(a, b, False, "bool"): lambda a, b: b if a else False,
    }
    for node, expected in truth_tables.items():
        for p in (False, True):
            for q in (False, True):
                assert evaluated(node, {a: p, b: q}) is expected(p, q)


def evaluated(x, values: dict) -> bool:
    """Truth value of a node, given those of the variables."""
    if type(x) is not Node:
        return x
    if x in values:
        return values[x]
    args = [evaluated(y, values) for y in x.args]
    return {"and": lambda: args[0] and args[1], "or": lambda: args[0] or args[1], "not": lambda: not args[0]}[x.op]()


def test_truth_values_fold(program):
    (a,) = variables(program, 1, "bool")
    both, either, invert = (lambda *x, op=op: program.apply(op, x, "bool") for op in ("and", "or", "not"))
    assert both(a, True) is a
    assert both(False, a) is False
    assert either(a, False) is a
    assert either(True, a) is True
    assert both(a, a) is a
    assert either(a, a) is a
    assert invert(invert(a)) is a
    assert invert(True) is False


@pytest.mark.parametrize(("exponent", "products"), [(0, 0), (1, 0), (2, 1), (3, 2), (8, 3), (15, 6)])
def test_integer_powers_are_repeated_squares(program, exponent, products):
    (x,) = variables(program, 1)
    program.outputs.append([program.integer_pow(x, exponent, "f64")])
    assert operations(program).get("mul", 0) == products
    assert program.apply("pow", (x, float(exponent)), "f64") is program.integer_pow(x, exponent, "f64") or exponent == 0


def test_powers_of_special_exponents(program):
    (x,) = variables(program, 1)
    assert program.apply("pow", (x, math.inf), "f64").op == "pow"
    assert program.apply("pow", (x, math.nan), "f64").op == "pow"
    assert program.apply("pow", (x, 1.5), "f64").op == "pow"
    assert program.apply("pow", (x, -1.0), "f64") is program.apply("div", (1.0, x), "f64")


# ---------------------------------------------------------------- memory


def test_reading_at_a_known_position_finds_the_number(program):
    x, y, z = variables(program, 3)
    region = x.args[0]
    pieces = program.pieces([[z, 2.0], Stretch(region, 1, 2), [x]], "f64")
    assert pieces.data.size == 5
    assert [program.load(pieces, k) for k in range(5)] == [z, 2.0, y, z, x]
    table = program.table(np.array([3.0, 4.0]), "f64")
    assert program.load(table, 1) == 4.0
    (k,) = variables(program, 1, "i64")
    bounded = program.apply("min", (program.apply("max", (k, 0), "i64"), 1), "i64")
    assert program.load(table, bounded).op == "load"


# ---------------------------------------------------------------- loops


def test_what_does_not_change_within_a_loop_is_outside():
    def function(x, y):
        return lax.fori_loop(0, 3000, lambda k, c: 0.5 * c * jnp.sin(x) + jnp.exp(y) * k.astype(x.dtype), y)

    program = made(function, (), ())
    (loop,) = (n for n in program.block.nodes if n.op == "loop")
    inside = {n.op for n in loop.data.body.nodes}
    outside = {n.op for n in program.block.nodes}
    assert {"sin", "exp"} <= outside
    assert not {"sin", "exp"} & inside
    assert {"mul", "convert"} <= inside


def test_invariants_of_nested_loops_go_as_far_out_as_they_can():
    def function(x):
        def outer(c, k):
            def inner(d, j):
                return d * jnp.cos(c) + jnp.sin(x) + jnp.exp(x * k.astype(x.dtype)), None

            return lax.scan(inner, c, jnp.arange(80))[0], None

        return lax.scan(outer, x, jnp.arange(60))[0]

    program = made(function, ())
    depth = {n.op: n.block.depth for n in Liveness(program).nodes}
    assert depth["sin"] == 0
    assert depth["cos"] == 1
    assert depth["exp"] == 1


def test_carries_that_stay_or_count_are_no_carries():
    def function(x, n):
        def body(carry, _):
            x, still, count, zero = carry
            return (jnp.sin(x) * still + count.astype(x.dtype), still, count + 2, jnp.zeros_like(zero)), None

        (x, still, count, _), _ = lax.scan(body, (x, x, n.astype(int), jnp.zeros_like(x)), None, length=3000)
        return x, still, count

    program = made(function, (), ())
    live = Liveness(program)
    (carries,) = live.carries.values()
    assert len(carries) == 1
    (_, (still,), (count,)) = program.outputs
    assert still.op == "load"
    assert count.op == "add"
    assert count.args[1] == 6000


def test_carries_and_collected_arrays_that_nobody_reads_vanish():
    def body(carry, _):
        a, b, c, d = carry
        return (jnp.sin(a), jnp.cos(b), jnp.tanh(c) + jnp.exp(d), jnp.log(d)), (a, b * c)

    def function(x, keep):
        carry, collected = lax.scan(body, (x, x, x, x), None, length=3000)
        return keep(carry, collected)

    def kept(choose):
        live = Liveness(made(lambda x: function(x, choose), ()))
        (carries,), (collected,) = live.carries.values(), live.collected.values()
        return carries, collected, {n.op for n in live.nodes}

    carries, collected, ops = kept(lambda carry, ys: carry[0])
    assert (carries, collected) == ([0], [])
    assert not {"cos", "tanh", "exp", "log"} & ops
    carries, collected, ops = kept(lambda carry, ys: carry[2])
    assert (carries, collected) == ([2, 3], [])  # the third needs the fourth
    assert {"tanh", "exp", "log"} <= ops
    carries, collected, ops = kept(lambda carry, ys: ys[0][17])
    assert (carries, collected) == ([0], [0])
    carries, collected, ops = kept(lambda carry, ys: ys[1])
    assert (carries, collected) == ([1, 2, 3], [1])


def test_a_loop_whose_result_is_not_read_vanishes():
    program = made(lambda x: x + 0 * lax.fori_loop(0, 3000, lambda _, c: jnp.sin(c), x), ())
    assert operations(program) == {}


def test_operations_count_the_turns():
    turns = 3000
    program = made(lambda x: jnp.sin(lax.fori_loop(0, turns, lambda _, c: jnp.sin(c) * c, x)), ())
    count = count_operations(program, Liveness(program))
    assert 2 * turns < count < 5 * turns  # two operations, the carry, and a counter perhaps


def test_uniform_numbers_depend_on_shared_inputs_only():
    def function(shared, own):
        def body(carry, k):
            a, b, c = carry
            return (jnp.sin(a), jnp.cos(b) + jnp.tanh(own), jnp.exp(c) * k.astype(a.dtype)), None

        (a, b, c), _ = lax.scan(body, (shared, shared, own), jnp.arange(3000))
        return a, b, c, jnp.sqrt(shared), jnp.floor(own)

    program = made(function, (), ())
    uniform = {n.op for n in uniform_nodes(program, Liveness(program), [True, False])}
    assert {"sin", "sqrt", "counter"} <= uniform
    assert not {"cos", "tanh", "exp", "floor"} & uniform
    assert "floor" in {n.op for n in uniform_nodes(program, Liveness(program), [True, True])}


# ---------------------------------------------------------------- order


def rich(x):
    """Loops within loops, collected arrays, tables, and sums over everything."""

    def outer(c, k):
        def inner(d, j):
            return jnp.sin(d) + jnp.asarray(np.cos(np.arange(80.0) ** 2))[j] * x[1], d * x[2]

        end, path = lax.scan(inner, c + jnp.exp(x[0]), jnp.arange(80))
        return 0.5 * end, path[k] * jnp.tanh(c)

    end, rows = lax.scan(outer, x[3], jnp.arange(60))
    back, _ = lax.scan(lambda c, r: (c * 0.5 + r * end, None), end, rows, reverse=True)
    back = lax.while_loop(lambda c: c[0] > x[1], lambda c: (c[0] * 0.5, c[0] + end), (back, end))[1]
    return back, rows, jnp.stack([jnp.sin(x), jnp.cos(x) * end])


def test_every_operation_comes_after_what_it_needs():
    program = made(rich, (4,))
    live = Liveness(program)
    schedule = Schedule(program, live)
    scheduled = [n for order in schedule.order.values() for n in order]
    assert len(scheduled) == len(set(scheduled))
    assert set(scheduled) == {n for n in live.nodes if n.block in schedule.order}
    assert live.nodes == set(scheduled)

    def run(block: Block, known: set[Node]) -> None:
        """Walk through a block as the code does."""
        for node in schedule.order[block]:
            if node.op == "loop":
                loop: Loop = node.data
                needs(known, [loop.initial[i] for i in live.carries[loop]])
                run(loop.body, known)
                needs(known, [loop.following[i] for i in live.carries[loop]] + [loop.condition])
                for which in live.collected[loop]:
                    needs(known, [loop.collected[which][0], *scalars_in(loop.collected[which][1])])
            needs(known, node.args)
            known.add(node)

    def needs(known: set[Node], scalars) -> None:
        assert all(x in known for x in scalars if type(x) is Node)

    known: set[Node] = set()
    run(program.block, known)
    needs(known, [x for output in program.outputs for x in scalars_in(output)])


def test_results_are_computed_one_after_the_other():
    """Depth first: what one result needs is done before the next one is begun."""
    program = made(lambda x: jnp.tan(jnp.sin(jnp.cos(x))), (50,))
    order = Schedule(program, Liveness(program)).order[program.block]
    ops = [n.op for n in order if n.op not in ("load", "region")]
    assert ops == ["cos", "sin", "tan"] * 50


# ---------------------------------------------------------------- sums with masks


@pytest.mark.parametrize("over", ["ancestors", "descendants"])
@pytest.mark.parametrize("seed", range(4))
def test_sums_over_a_tree_cost_one_addition_per_body(over, seed):
    bodies = 24
    parents = [i - 1 for i in range(bodies)] if seed == 0 else random_parents(np.random.default_rng(seed), bodies)
    precedes = np.eye(bodies)
    for i, parent in enumerate(parents):
        if parent >= 0:
            precedes[:, i] += precedes[:, parent]
    mask = precedes if over == "ancestors" else precedes.T
    program = made(lambda x: x @ mask, (bodies,))
    counts = operations(program)
    assert set(counts) == {"add"}
    # Descendants of a body with several children are not all a subset of one another, but each child is counted once.
    assert counts["add"] == sum(p >= 0 for p in parents) if over == "ancestors" else counts["add"] <= bodies * 3
    if seed == 0:
        assert counts["add"] == bodies - 1


def test_equal_functions_are_equal_programs():
    """Numbers are named in order of creation, so that equal functions share their machine code."""
    first, second = (made(rich, (4,)) for _ in range(2))
    assert [(n.op, n.type, n.serial) for n in first.block.nodes] == [
        (n.op, n.type, n.serial) for n in second.block.nodes
    ]


# ---------------------------------------------------------------- memory


def copied(program: Program) -> int:
    """Number of values that are stored into memory one by one."""
    regions = [node.data for node in Liveness(program).nodes if node.op == "region" and node.data.kind == "pieces"]
    return sum(len(part) for region in regions for part in region.pieces if not isinstance(part, Stretch))


def running_sum(xs):
    """A scan that is too long to be unrolled."""

    def body(total, x):
        for _ in range(50):
            x = 0.5 * x + 0.1
        return total + x @ x, total

    return lax.scan(body, 0.0, xs)


@pytest.mark.parametrize(
    ("prepared", "copies"),
    [
        (lambda xs: xs, 0),
        (lambda xs: xs[5:25], 0),
        (lambda xs: jnp.concatenate([xs[:15], xs[15:]]), 0),
        (lambda xs: jnp.reshape(xs, (20, 4, 3))[:, 0], 20 * 3),
        (lambda xs: xs[::-1], 30 * 8),
        (lambda xs: xs.at[7, 2].set(0.5), 30 * 8),
        (lambda xs: jnp.concatenate([xs[15:], xs[:15]]), 30 * 8),
        (lambda xs: jnp.concatenate([xs, xs[:1]]), 31 * 8),
    ],
)
def test_loops_read_inputs_in_place_unless_the_order_of_their_values_changes(prepared, copies):
    """An input of 240 values is split into scalars, which would otherwise be stored again for the loop."""
    xs = jnp.asarray(np.random.default_rng(0).normal(size=(30, 8)))
    program = flatten(jax.make_jaxpr(lambda xs: running_sum(prepared(xs)))(xs))
    assert copied(program) == copies
    found = jaxdyn.batched(lambda xs: running_sum(prepared(xs)), backend="lanes")(xs[None])
    for ours, theirs in zip(found, jax.jit(lambda xs: running_sum(prepared(xs)))(xs), strict=True):
        np.testing.assert_allclose(ours[0], theirs, rtol=1e-12)
