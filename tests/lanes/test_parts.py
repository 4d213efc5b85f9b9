"""Long programs as several kernels: what a part contains, and that the parts together compute what the whole program computes."""

import functools
import math
from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ptx_interpreter import run_kernel
from ptx_runs import by_gpu, executed, kernel_for, short  # noqa: F401
from random_programs import SIZE, inputs, pick, programs, types, wrong_steps

import jaxdyn
from jaxdyn.compute import per_sample
from jaxdyn.lanes import gpu, parts
from jaxdyn.lanes.derived import program_of, traced
from jaxdyn.lanes.liveness import scalars_in
from jaxdyn.lanes.llvm_text import bytes_of
from jaxdyn.lanes.parts import Part, bytes_of_node, divided, is_of_loop, is_repeated, whole
from jaxdyn.lanes.program import Node, Program, Scalar
from jaxdyn.lanes.ptx_code import WARP, Launch, PtxKernel
from jaxdyn.lanes.rules import functions
from jaxdyn.lanes.schedule import Schedule

# Shapes are checked by the tests of the functions themselves; here the checks would take most of the time.
pytestmark = pytest.mark.usefixtures("as_a_user")

UNDIVIDED = 10**9
# Iterations of a loop, whose records exceed the memory of a thread.
TURNS = 200
# A part is at most this much longer than asked for, unless it contains a long loop or is only a few operations long.
LONGER, FEW = 1.3, 12


@pytest.fixture(autouse=True)
def _loops_remain(monkeypatch):
    """Loops of few iterations are not written out, which keeps them fast in the interpreter."""
    monkeypatch.setattr(functions, "_UNROLLED_EQUATIONS", 100)


def scalar_program(function, *args) -> Program:
    """Of a function of one sample."""
    shapes = [jax.ShapeDtypeStruct(np.shape(a), a.dtype) for a in args]
    return program_of(traced(lambda *x: jax.tree.leaves(function(*x)), shapes))


def arranged(x: np.ndarray, layout: str) -> np.ndarray:
    """One sample after the other, in columns, or the first sample alone."""
    if layout == "shared":
        return x[0]
    return np.ascontiguousarray(np.moveaxis(x, 0, -1)) if layout == "columns" else x


def in_parts(function, args: Sequence[np.ndarray], layouts: Sequence[str], launch: Launch, longest: int):
    """Kernels, and their results for all samples, in rows."""
    given = [arranged(x, layout) for x, layout in zip(args, layouts[:-1], strict=True)]
    kernels = kernel_for(function, given, launch, layouts, longest)
    axes = [None if layout == "shared" else 0 for layout in layouts[:-1]]
    shapes = jax.eval_shape(
        jax.vmap(lambda *x: jax.tree.leaves(function(*x)), axes, -1 if layouts[-1] == "columns" else 0),
        *(x[0] if layout == "shared" else x for x, layout in zip(args, layouts[:-1], strict=True)),
    )
    found = executed(kernels, given, shapes)
    return kernels, [np.moveaxis(x, -1, 0) if layouts[-1] == "columns" else x for x in found]


# ---------------------------------------------------------------- what a part contains


def own_nodes(program: Program, schedule: Schedule) -> list[Node]:
    """Operations that exactly one part computes."""
    return [node for node in schedule.order[program.block] if not is_repeated(node)]


def length_of(nodes: Sequence[Node], schedule: Schedule) -> float:
    """Length as operations in float32; those of 64 bits count more, and what a loop computes is a part of the loop."""
    total = 0.0
    for node in nodes:
        if node.op == "loop":
            total += length_of(schedule.order[node.data.body], schedule)
        elif not is_of_loop(node):
            total += 1.5 if node.type in ("f64", "i64", "u64") else 1.0
    return total


def item(node: Node) -> int:
    return bytes_of(node.data.type if node.type == "region" else node.type)


def nodes_in(values: Iterable[Scalar]) -> list[Node]:
    return [x for x in values if type(x) is Node]


def check_division(program: Program, longest: int) -> list[Part]:
    """The laws of a division."""
    schedule = PtxKernel.planned(program)
    own = own_nodes(program, schedule)
    parts = divided(program, schedule, longest)
    if len(parts) == 1:
        expected = whole(program, schedule)
        assert parts[0].nodes == expected.nodes == schedule.order[program.block]
        assert (parts[0].inputs, parts[0].outputs) == (expected.inputs, expected.outputs)
        assert (parts[0].kept, parts[0].earlier, parts[0].kept_bytes) == ({}, {}, 0)
    else:
        check_operations(program, schedule, own, parts)
        check_buffers(parts)
    total = length_of(own, schedule)
    assert len(parts) <= max(1, math.ceil(total / longest))
    for part in parts if longest > FEW else []:
        if not any(node.op == "loop" for node in part.nodes):
            computed = [node for node in part.nodes if not is_repeated(node)]
            assert length_of(computed, schedule) <= LONGER * longest + 1e-9
    return parts


def check_operations(program: Program, schedule: Schedule, own: Sequence[Node], parts: Sequence[Part]) -> None:
    """Each operation is in one part, after all that it needs, and each output is written by one part that knows its values."""
    number_of = {node: part.number for part in parts for node in part.nodes}
    assert [part.number for part in parts] == [*range(len(parts))]
    assert sorted((n for part in parts for n in part.nodes), key=id) == sorted(own, key=id)
    assert sorted(k for part in parts for k in part.outputs) == [*range(len(program.outputs))]
    needed_later: dict[int, set[Node]] = {part.number: set() for part in parts}
    for part in parts:
        assert part.nodes
        known: set[Node] = set()
        fetched: set[Node] = set()
        read: set[int] = set()

        def need(nodes: Sequence[Node], part=part, known=known, fetched=fetched, read=read) -> None:
            for a in nodes:
                if is_repeated(a):
                    region = a if a.op == "region" else a.args[0]
                    read.update([region.data.which] if region.data.kind == "input" else [])
                elif a not in known:
                    assert number_of[a] < part.number
                    fetched.update([a] if bytes_of_node(a) else [])

        for node in part.nodes:
            need(schedule.needed_by(node))
            known.add(node)
            if is_of_loop(node):
                assert node.args[0] in known
        for k in part.outputs:
            need(nodes_in(scalars_in(program.outputs[k])))
        assert part.inputs == sorted(read)
        assert set(part.earlier) == fetched
        assert {source.number for source in part.sources} == {number_of[a] for a in fetched}
        for a, source in part.earlier.items():
            assert source is parts[number_of[a]]
            needed_later[source.number].add(a)
    for part in parts:
        assert set(part.kept) == needed_later[part.number]


def check_buffers(parts: Sequence[Part]) -> None:
    """Kept values are aligned, fill the buffer of their part, and do not overlap."""
    for part in parts:
        end = 0
        for node, start in sorted(part.kept.items(), key=lambda entry: entry[1]):
            assert start == end
            assert start % item(node) == 0
            end = start + bytes_of_node(node)
        assert part.kept_bytes == end
        assert (part.kept_bytes > 0) == bool(part.kept)


def empty_records(x):
    """Only an array without entries connects the first loop with the last operations."""

    def turn(c, t):
        y = 0.5 * jnp.sin(c) + 0.001 * t
        return y, y[:0]

    turns = jnp.arange(40.0, dtype=x.dtype)
    c, first = jax.lax.scan(turn, x, turns)
    d, second = jax.lax.scan(turn, x[::-1], turns)
    return c, jnp.tan(jnp.cos(jnp.tan(x[::-1] + d))), jnp.concatenate([first, second])


def many_results(x):
    """The results of a loop are longer than a part."""

    def turn(c, t):
        return 0.5 * jnp.sin(c) + 0.001 * t, None

    x = jnp.tile(x, 10)
    first, _ = jax.lax.scan(turn, x, jnp.arange(40.0, dtype=x.dtype))
    return first, jax.lax.scan(turn, first, jnp.arange(40.0, dtype=x.dtype))[0]


def of_roots(x):
    """Reciprocals of square roots, which one part computes and another one needs."""
    roots = jnp.sqrt(jnp.cumsum(jnp.cos(x) ** 2) + 0.5)
    return jnp.cumprod(jnp.tan(roots)), 1 / roots, 2.5 / roots


def sines_and_cosines(x):
    """Of the same angles, which are computed together if they are in one part."""
    sines = jnp.sin(x)
    angles = jnp.cumsum(sines)
    return jnp.cumsum(jnp.cos(angles)), jnp.cos(x) * jnp.cumsum(jnp.sin(angles))


def sliced(x):
    """A position that an early part computes is that of a slice of records, which a later part returns."""
    at = jnp.floor(20 * jnp.abs(x[0])).astype(jnp.int32)
    table = jnp.arange(120.0, dtype=x.dtype).reshape(40, 3)
    y = jnp.cumsum(jnp.sin(jnp.cumsum(jnp.sin(x + jax.lax.dynamic_slice(table, (at, jnp.int32(0)), (16, 3))[1]))))
    _, path = jax.lax.scan(lambda c, t: (0.5 * c + t, c), y, jnp.arange(40.0, dtype=x.dtype))
    return jax.lax.dynamic_slice(path, (at, jnp.int32(0)), (16, 3)), at


def outputs_of_inputs(x):
    """Results that are inputs, constants, and one value several times, next to long ones."""
    y = jnp.tan(jnp.cumsum(jnp.sin(x)))
    z = jnp.cumsum(jnp.cos(y))
    return x, jnp.stack([x[1], jnp.asarray(2.0, x.dtype), z[1], y[0]]), y, y[::-1], jnp.concatenate([z, x, y]), x[:0]


X = np.random.default_rng(5).uniform(-0.6, 0.6, (45, 3))
FUNCTIONS = [empty_records, many_results, of_roots, sines_and_cosines, sliced, outputs_of_inputs]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_parts_of_peculiar_programs(function, dtype):
    """Division at several places leaves all results within some roundings of those of XLA."""
    x = X.astype(dtype)
    expected = jax.device_get(jax.jit(jax.vmap(function))(x))
    counts = set()
    for longest in (5, 7, 12):
        parts = check_division(scalar_program(function, x[0]), longest)
        kernels, found = in_parts(function, [x], ["rows", "rows"], Launch(32, 8, 1), longest)
        assert len(kernels.launched) == len(parts)
        counts.add(len(parts))
        for a, e in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, e, rtol=200 * np.finfo(dtype).eps, atol=50 * np.finfo(dtype).eps)
    assert max(counts) > 1


def test_random_programs_are_divided_lawfully(exhaustive):
    counts: list[int] = []
    for number in range(1000 if exhaustive else 13):
        rng = np.random.default_rng(number)
        dtypes = types(rng)
        program = programs(rng, *dtypes, length=14)
        args = [np.zeros(SIZE, t) for t in (*dtypes, "bool")]
        for longest in (5, 8, 13, 25, 60, 200, UNDIVIDED):
            counts.append(len(check_division(scalar_program(program, *args), longest)))
        assert counts[-1] == 1
    assert max(counts) > 20


@functools.cache
def panda_program() -> Program:
    model = jaxdyn.as_dtype(jaxdyn.library.panda(), jnp.float32)
    q = jnp.zeros(7, jnp.float32)
    return scalar_program(functools.partial(jaxdyn.forward_dynamics, model), q, q, q)


@pytest.mark.parametrize("longest", [100, 1000, 3000])
def test_a_mechanism_is_divided_lawfully(longest):
    """Into the least number of parts of that length."""
    program = panda_program()
    schedule = PtxKernel.planned(program)
    total = length_of(own_nodes(program, schedule), schedule)
    assert len(check_division(program, longest)) == math.ceil(total / longest) > 1


def test_a_division_keeps_the_fewest_bytes():
    """Of all divisions into two parts near the middle."""

    def kept_bytes(first: set[Node]) -> int:
        kept = set()
        for node in own:
            if node not in first:
                kept.update(a for a in schedule.needed_by(node) if a in first)
        for output in program.outputs:
            needed = [x for x in nodes_in(scalars_in(output)) if not is_repeated(x)]
            if any(x not in first for x in needed):
                kept.update(x for x in needed if x in first)
        return sum(map(bytes_of_node, kept))

    def collected(x):
        """Records are kept whether a division follows the loop directly or some operations later."""
        y = jnp.cumsum(jnp.cumprod(jnp.cumsum(jnp.cumprod(x))))
        last, path = jax.lax.scan(lambda c, t: (0.5 * c + t, c), y[-1], jnp.arange(TURNS, dtype=x.dtype))
        z = jnp.cumsum(jnp.cumprod(jnp.cumsum(jnp.cumprod(x[:9] * last))))
        return jax.lax.scan(lambda c, p: (0.5 * c + p, None), z[-1], path)[0]

    found = []
    dynamics = functools.partial(jaxdyn.forward_dynamics, jaxdyn.library.double_pendulum())
    for function, args in ((sines_and_cosines, X[:1]), (collected, X[:4].reshape(1, 12)), (dynamics, X[:3, :2])):
        program = scalar_program(function, *args)
        schedule = PtxKernel.planned(program)
        own = own_nodes(program, schedule)
        total = length_of(own, schedule)
        parts = divided(program, schedule, math.ceil(total / 2))
        assert len(parts) == 2
        places = [
            k for k in range(len(own)) if abs(length_of(own[: k + 1], schedule) * 2 / total - 1) < LONGER / 2 - 0.5
        ]
        firsts = [{n for n in own if (n.args[0] if is_of_loop(n) else n) in set(own[: k + 1])} for k in places]
        assert parts[0].kept_bytes == min(map(kept_bytes, firsts))
        found.append(len({kept_bytes(first) for first in firsts}))
    assert min(found) > 1


# ---------------------------------------------------------------- results of random programs


LAUNCHES = {
    "a thread for each sample": lambda batch: Launch(64, 4, -(-batch // 64)),
    "fewer threads than samples": lambda batch: Launch(32, 8, 2),
    "blocks less than a warp": lambda batch: Launch(8, 4, 3),
}


def test_random_programs_in_parts(exhaustive):
    """They compute what XLA computes, for any layout, batch and launch."""
    counts: list[int] = []
    kept: set[str] = set()
    for number in range(2000 if exhaustive else 13):
        rng = np.random.default_rng(number)
        dtypes = types(rng)
        program, batch = programs(rng, *dtypes, length=12), pick(rng, [1, 31, 32, 33, 64, 77])
        args = inputs(rng, (*dtypes, "bool"), batch)
        layouts = [pick(rng, ["rows", "columns"])]
        layouts += [pick(rng, ["rows", "columns", "shared"]) for _ in args[1:]]
        layouts.append(pick(rng, ["rows", "columns"]))
        launch = LAUNCHES[pick(rng, sorted(LAUNCHES))](batch)
        kernels, found = in_parts(program, args, layouts, launch, int(rng.integers(5, 60)))
        samples = [
            np.broadcast_to(x[0], x.shape) if layout == "shared" else x
            for x, layout in zip(args, layouts[:-1], strict=True)
        ]
        assert not wrong_steps(program, samples, found), number
        counts.append(len(kernels.launched))
        kept.update(n.data.type if n.type == "region" else n.type for k in kernels.launched for n in k.part.kept)
    assert sum(count > 1 for count in counts) > len(counts) / 2
    assert max(counts) > 10
    # Other types are rare in programs of this length.
    assert kept >= {"f32", "f64", "i32", "bool"}


TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")


def test_values_of_every_type_are_left_to_other_parts(monkeypatch):
    # Results one after the other; an order with fewer alive values would compute the first ones late.
    monkeypatch.setattr(PtxKernel, "_fewest_alive", False)

    def function(k):
        y = jnp.cos(0.1 * k.astype("float32"))
        early = [(9 * jnp.abs(y[0])).astype(t) for t in TYPES]
        truth = y[0] < y[1]
        for _ in range(12):
            y = jnp.sin(y[::-1] + 0.5) * y
        late = [jnp.where(truth, x, x * x) + (9 * jnp.abs(y[0])).astype(x.dtype) for x in early]
        return *early, truth, *late, truth & (y[1] > 0)

    k = np.random.default_rng(4).integers(0, 9, (45, 2)).astype(np.int32)
    kernels, found = in_parts(function, [k], ["rows", "rows"], LAUNCHES["fewer threads than samples"](45), 8)
    kept = {n.type for kernel in kernels.launched for n in kernel.part.kept}
    assert kept >= {"bool", *(t.replace("uint", "u").replace("int", "i").replace("float", "f") for t in TYPES)}
    for a, e in zip(found, jax.jit(jax.vmap(function))(k), strict=True):
        assert a.dtype == e.dtype
        np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------- regions


def with_records(x, k, weights):
    """Parts exchange regions of floats, integers and truth values, and read them at positions that differ between samples."""
    table = jnp.asarray(np.linspace(0.0, 1.0, 61), x.dtype)
    y = jnp.cumsum(jnp.sin(jnp.cumsum(jnp.cos(x))))

    def turn(carry, t):
        at = (t * k[0] + k[1]) % 61
        s = 0.5 * carry + weights[t % 3] * table[at] * y[at % 4]
        return s, (s, at > 30, at.astype(jnp.int8), at.astype(jnp.int64) * 3)

    last, (path, truths, places, longs) = jax.lax.scan(turn, x[:2], jnp.arange(TURNS, dtype=jnp.int32))
    here = k[0] % TURNS
    z = jnp.cumsum(jnp.cos(jnp.cumsum(path[here] + y[:2])))
    pairs = jnp.concatenate([z, y, last])  # a region of pieces
    picked = jnp.where(truths[here], pairs[k[1] % 8], pairs[k[0] % 8])
    back, again = jax.lax.scan(lambda s, p: (0.5 * s + p[0], p[0] > s), picked, path, reverse=True)
    found = jax.lax.dynamic_slice(path, (k[1], jnp.int32(0)), (3, 2))
    counted = places[here].astype(jnp.int64) + longs[k[1]]
    w = jnp.cumsum(jnp.sin(jnp.cumsum(jnp.sin(z + back))))
    return (
        last,
        path,
        truths,
        places,
        longs,
        back,
        again,
        found,
        counted,
        jnp.cumsum(jnp.tan(w)),
        pairs,
        pairs[k[0] % 8],
    )


REGIONS = [("rows", "a thread for each sample"), ("columns", "fewer threads than samples")]
REGIONS += [pytest.param("rows", "blocks less than a warp", marks=pytest.mark.thorough)]


@pytest.mark.parametrize("longest", [12, 30])
@pytest.mark.parametrize(("layout", "launch"), REGIONS)
def test_regions_of_other_parts(monkeypatch, layout, launch, longest):
    """Also of regions that are longer than those which one part usually leaves to another one."""
    monkeypatch.setattr(parts, "LARGEST_KEPT_REGION", 2**20)
    rng = np.random.default_rng(2)
    kept = set()
    for dtype, batch in (("float32", 33), ("float64", 65)):
        x, k = rng.uniform(-1, 1, (batch, 4)).astype(dtype), rng.integers(0, 60, (batch, 2)).astype(np.int32)
        weights = np.broadcast_to(rng.uniform(0, 1, 3).astype(dtype), (batch, 3))
        expected = jax.device_get(jax.jit(jax.vmap(with_records))(x, k, weights))
        layouts = [layout, "rows", "shared", layout]
        kernels, found = in_parts(with_records, [x, k, weights], layouts, LAUNCHES[launch](batch), longest)
        assert len(kernels.launched) > 3
        kept |= {n.data.type for kernel in kernels.launched for n in kernel.part.kept if n.type == "region"}
        for kernel in kernels.launched:
            assert kernel.kept_bytes == kernel.part.kept_bytes * WARP * math.ceil(batch / WARP)
        bound = 1e-5 if dtype == "float32" else 1e-13
        for a, e in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, e, rtol=bound, atol=bound)
    assert kept >= {"f32", "f64", "i8", "i64", "bool"}


@pytest.mark.parametrize("turns", [30, 300])
def test_what_loops_record_stays_in_one_kernel_if_it_is_long(turns):
    """Its memory is that of the threads which run at the same time, and not of all samples."""

    def gradient(x):
        def turn(y, _):
            return jnp.sin(1.5 * y) + jnp.cos(y[::-1] * x), None

        return jax.grad(lambda x: jnp.sum(jax.lax.scan(turn, x, None, length=turns)[0] ** 2))(x)

    program = program_of(traced(lambda x: [gradient(x)], [jax.ShapeDtypeStruct((4,), np.float32)]))
    schedule = PtxKernel.planned(program)
    found = divided(program, schedule, 20)
    records = [bytes_of_node(n) for part in found for n in part.kept if n.type == "region"]
    assert all(size <= parts.LARGEST_KEPT_REGION for size in records)
    is_long = turns * 4 * bytes_of("f32") > parts.LARGEST_KEPT_REGION
    assert is_long != bool(records)


def test_a_program_without_operations_is_one_part():
    program = program_of(traced(lambda x: [jnp.ones(4, x.dtype)], [jax.ShapeDtypeStruct((4,), np.float32)]))
    assert len(check_division(program, 20)) == 1


def with_own_records(x):
    """Records that only the part of their loop reads."""
    y = jnp.cumsum(jnp.sin(jnp.cumsum(jnp.cos(x))))
    _, path = jax.lax.scan(lambda c, t: (0.5 * c + t, c), y[0], jnp.arange(TURNS, dtype=x.dtype))
    back, _ = jax.lax.scan(lambda c, p: (0.5 * c + p, None), y[1], path, reverse=True)
    z = jnp.cumsum(jnp.sin(jnp.cumsum(jnp.cos(back + y))))
    return z * y[::-1], y, jnp.cumsum(jnp.tan(z))


def test_each_launch_gets_its_own_inputs_and_buffers(monkeypatch):
    """`Kernels` passes to each kernel what its parameters are, and returns all outputs in their order."""

    def launched(kernel, given, shapes):
        results = [np.full(s.shape, 77, s.dtype) for s in shapes]
        count = len(given) + len(results)
        buffers = [*map(np.asarray, given), *results]
        run_kernel(kernel.ptx, buffers, kernel.launch.block, kernel.launch.blocks, range(len(given), count))
        return [jnp.asarray(r) for r in results]

    monkeypatch.setattr(gpu, "_launch", launched)
    x = np.random.default_rng(2).uniform(-1, 1, (33, 4))
    kernels, expected = in_parts(with_own_records, [x], ["rows", "rows"], Launch(32, 8, 1), 25)
    assert any(kernel.scratch_bytes for kernel in kernels.launched)
    assert any(len(kernel.part.sources) > 1 for kernel in kernels.launched)
    found = kernels([jnp.asarray(x)], [jax.ShapeDtypeStruct(e.shape, e.dtype) for e in expected])
    for a, e in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, e)
    for a, e in zip(found, jax.jit(jax.vmap(with_own_records))(x), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-13, atol=1e-13)


# ---------------------------------------------------------------- mechanics


def relative(found, expected) -> float:
    """Largest difference relative to the largest number of each array."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return max(float(np.max(np.abs(a - np.asarray(e))) / np.max(np.abs(e))) for a, e in pairs)


# As for one kernel (test_ptx).
ROUNDED = {"float32": 1e-4, "float64": 1e-12}


def test_rollouts_in_parts(short):  # noqa: F811
    """A gradient, whose loop stores states that a loop in a later kernel reads."""
    model = jaxdyn.library.double_pendulum()
    q, torques = (jnp.asarray(0.4 * np.random.default_rng(3).normal(size=s)) for s in ((33, 2), (33, 30, 2)))

    def loss(q, torques):
        start = jaxdyn.State(q, 0.1 * q)
        moved = jaxdyn.rollout(jaxdyn.System(model), start, torques, dt=1e-2, steps=30, save_every=10, backend="lanes")
        return jnp.sum(moved.final.q**2) + jnp.sum(moved.saved.v**3)

    gradient = jax.vmap(per_sample(jax.value_and_grad(loss, (0, 1)), backend="lanes"))
    expected = jax.jit(gradient)(q, torques)
    launched = short(60)
    assert relative(by_gpu(gradient, q, torques), expected) <= ROUNDED["float64"]
    assert len(launched) > 2
    assert any(node.type == "region" for kernel in launched for node in kernel.part.kept)
