"""Kernels for GPUs, run by the PTX interpreter, against the lane compiler of the CPU, XLA, and exact values."""

import functools
import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from edge_values import DTYPES, assert_same, by_xla, edges, flushed, of_one, of_two, pairs
from mechanisms import double_pendulum
from mixed_mechanisms import every_joint, some_motion
from positions import LONG, in_a_loop, positions_of, reads, writes
from ptx_interpreter import run_kernel
from ptx_runs import by_gpu, executed, kernel_for
from ptx_text import PtxError
from random_programs import inputs, programs, types, wrong_steps
from vector_functions import DTYPES as OF_KIND
from vector_functions import SPECIAL, arguments, evaluated, exactly, names_of_results

import jaxdyn
from jaxdyn.compute import per_sample
from jaxdyn.lanes import gpu, records
from jaxdyn.lanes.ptx_code import LARGEST_LOCAL, Launch
from jaxdyn.lanes.transcendental import _LARGEST_ANGLE, FUNCTIONS, KINDS, ULP

# Shapes are checked by the tests of the functions themselves; here the checks would take most of the time.
pytestmark = pytest.mark.usefixtures("as_a_user")


def lanes(function):
    return jax.vmap(per_sample(function, backend="lanes"))


# ---------------------------------------------------------------- operations


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_operation_gives_at_edge_values_what_it_gives_by_xla(dtype, count):
    every = of_one(dtype) if count == 1 else of_two(dtype)
    args = (edges(dtype),) if count == 1 else pairs(dtype)
    found = by_gpu(lanes(lambda *x: {name: f(*x) for name, f in every.items()}), *args)
    assert_same(found, by_xla(every, *args), args)


def bit_patterns(x) -> np.ndarray:
    """Bits, the same ones for every NaN."""
    x = np.asarray(x)
    return np.where(np.isnan(x), np.nan, x).view(f"u{x.itemsize}")


def operation(name: str):
    """Of `jax.lax`, as a function of numbers that gives a tuple."""
    if name == "sincos":
        return lambda x: (jnp.sin(x), jnp.cos(x))
    return lambda *x: (getattr(jax.lax, name)(*x),)


def by_kernel(function, xs) -> list[np.ndarray]:
    """Results of a function of numbers for each of many."""
    xs = [np.asarray(x) for x in xs]
    kernel = kernel_for(function, xs, Launch(128, 1, -(-len(xs[0]) // 128)), ["rows"] * (len(xs) + 1))
    results = jax.eval_shape(jax.vmap(function), *(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in xs))
    return executed(kernel, xs, results)


def without_subnormals(x: np.ndarray, kind: str) -> np.ndarray:
    return flushed(x) if kind == "f32" else x


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_give_the_bits_of_the_processor(name, kind):
    """But for large angles, and for subnormal numbers, which in float32 are zeros here. Those of special values are exact there."""
    special = [np.array(column, OF_KIND[kind]) for column in zip(*SPECIAL[name], strict=True)][:-1]
    xs = [np.concatenate(both) for both in zip(arguments(name, kind, 3000), special, strict=True)]
    xs = [without_subnormals(x, kind) for x in xs]
    usual = np.ones(len(xs[0]), bool)
    if name in ("sin", "cos", "sincos", "tan"):
        usual = ~(np.abs(xs[0]) > _LARGEST_ANGLE[kind]) | np.isinf(xs[0])
    for y, e in zip(by_kernel(operation(name), xs), evaluated(name, kind, xs, 1), strict=True):
        np.testing.assert_array_equal(bit_patterns(y[usual]), bit_patterns(without_subnormals(e[usual], kind)))


def large_angles(kind: str) -> np.ndarray:
    """Beyond the usual reduction up to the largest number, among them those next to multiples of pi/2."""
    rng = np.random.default_rng(7)
    info, limit = np.finfo(OF_KIND[kind]), _LARGEST_ANGLE[kind]
    drawn = np.exp2(rng.uniform(math.log2(limit), info.maxexp - 1e-9, 400))
    with mpmath.workprec(1200):
        near = [float(int(mpmath.nint(mpmath.mpf(float(x)) * 2 / mpmath.pi)) * mpmath.pi / 2) for x in drawn[:100]]
    # The float64 number nearest to a multiple of pi/2 (Muller), and the float32 one.
    hardest = {"f64": [6381956970095103.0 * 2.0**797], "f32": [16367173.0 * 2.0**72]}[kind]
    ends = [limit, np.nextafter(OF_KIND[kind](limit), OF_KIND[kind](np.inf)), info.max, 2.0 ** (info.maxexp - 1)]
    x = np.array([*drawn, *near, *hardest, *ends], OF_KIND[kind])
    return x * rng.choice(np.array([-1, 1], x.dtype), len(x))


def errors(function: str, xs: np.ndarray, ys: np.ndarray) -> np.ndarray:
    """In units in the last place of the exact value."""
    digits, least = {4: (24, -149), 8: (53, -1074)}[ys.itemsize]
    found = []
    with mpmath.workprec(1200):
        for x, y in zip(xs.tolist(), ys.tolist(), strict=True):
            exact = exactly(function, [x])
            unit = mpmath.ldexp(1, max(mpmath.frexp(exact)[1] - digits, least))
            found.append(float(abs(mpmath.mpf(y) - exact) / unit))
    return np.array(found)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["sincos", "sin", "cos", "tan"])
def test_large_angles_are_reduced_as_precisely_as_small_ones(name, kind):
    x = large_angles(kind)
    for y, function in zip(by_kernel(operation(name), [x]), names_of_results(name), strict=True):
        assert y.dtype == x.dtype
        found = errors(function, x, y)
        worst = np.argmax(np.where(np.isnan(found), np.inf, found))
        assert found[worst] <= min(1.5, ULP[name, kind]), x[worst]


HARD = {
    "f32": [0.0, 1.0, 3.0, 0.1, 7e-30, 2.0**-126, 3.3e38, 2.0**127, 2.0**24 - 1, 2.0**24 + 2, 1e20, 1.1754945e-38],
    "f64": [
        0.0,
        1.0,
        3.0,
        0.1,
        7e-300,
        5e-324,
        1.5e-323,
        2.0**-1022,
        2.0**-1030,
        1.7e308,
        2.0**1023,
        2.0**53 - 1,
        1e22,
    ],
}


@pytest.mark.parametrize("kind", KINDS)
def test_remainders_are_exact(kind):
    """Huge quotients, and subnormal numbers in float64."""
    rng = np.random.default_rng(3)
    numbers = np.array(
        [*HARD[kind], *np.exp2(rng.uniform(-120, 120, 25) * (1 if kind == "f32" else 8)), np.inf, np.nan]
    )
    numbers = np.concatenate([numbers, -numbers]).astype(OF_KIND[kind])
    x, y = (z.ravel() for z in np.meshgrid(numbers, numbers))
    with np.errstate(all="ignore"):
        expected = without_subnormals(np.fmod(x, y), kind)
    found = without_subnormals(by_kernel(operation("rem"), [x, y])[0], kind)
    np.testing.assert_array_equal(bit_patterns(found), bit_patterns(expected))


@pytest.mark.parametrize("kind", KINDS)
def test_whole_multiples_leave_nothing(kind):
    """Where the quotient is rounded up, one multiple too many is taken away at first."""
    rng = np.random.default_rng(4)
    y = rng.uniform(1, 2, 3000).astype(OF_KIND[kind])
    x = (y * np.rint(np.exp2(rng.uniform(0, 60, len(y))))).astype(y.dtype)
    x = np.concatenate([x, np.nextafter(x, y.dtype.type(0)), np.nextafter(x, y.dtype.type(np.inf))])
    y = np.tile(y, 3)
    found = by_kernel(operation("rem"), [x, y])[0]
    np.testing.assert_array_equal(found, np.fmod(x, y))


# ---------------------------------------------------------------- memory


LAUNCHES = {
    "a thread for each sample": lambda batch: Launch(64, 4, -(-batch // 64)),
    "some samples for each thread": lambda batch: Launch(8, 4, 2),
}


def with_records(turns: int):
    """A function of rows, a table, records that are read again, and positions that differ from sample to sample."""
    table = np.linspace(0.0, 1.0, 61).astype(np.float32)

    def function(x, k, weights):
        def turn(carry, t):
            at = (t * k[0] + k[1]) % 61
            y = 0.5 * carry + weights[t % 3] * jnp.asarray(table)[at] * x[at % 4]
            return y, (y, at > 30, at.astype(jnp.int8))

        last, (path, truths, places) = jax.lax.scan(turn, x[:2], jnp.arange(turns, dtype=jnp.int32))
        back, _ = jax.lax.scan(lambda s, p: (0.5 * s + p[0], None), x[0], path, reverse=True)
        return last, path, truths, places, back, path[k[0] % turns], jnp.zeros((0, 3), jnp.float32)

    return function


def test_records_without_entries_are_told_apart_from_others():
    def function(x):
        def turn(carry, t):
            y = 0.5 * carry + x * t
            return y, (y, y[:0], y[1:], y[:0])

        _, (path, *others) = jax.lax.scan(turn, x, jnp.arange(400, dtype=jnp.float32))
        back, empty = jax.lax.scan(lambda s, p: (0.5 * s + p[0] * p[2], p[1]), x[:1], (path[:, :1], *others[:2]))
        return back, empty, others[2]

    x = np.linspace(-1.0, 1.0, 20, dtype=np.float32).reshape(10, 2)
    found, expected = by_gpu(lanes(function), x), jax.device_get(jax.jit(jax.vmap(function))(x))
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-5)


def arranged(x: np.ndarray, layout: str) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(x, 0, -1)) if layout == "columns" else x


SHORT, LONG_RECORDS = 20, 140  # turns whose records fit into the memory of a thread, and whose do not


@functools.cache
def samples(turns: int) -> tuple[tuple, list]:
    """Arguments of 65 samples, and results by XLA."""
    rng = np.random.default_rng(turns)
    x, k = rng.uniform(-1, 1, (65, 4)).astype(np.float32), rng.integers(0, 60, (65, 2)).astype(np.int32)
    args = x, k, rng.uniform(0, 1, 3).astype(np.float32)
    return args, jax.device_get(jax.jit(jax.vmap(with_records(turns), (0, 0, None)))(*args))


@pytest.mark.thorough
@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("launch", LAUNCHES)
@pytest.mark.parametrize("turns", [SHORT, LONG_RECORDS])
def test_layouts_and_launches(turns, launch, layout):
    """Batches around a block; the interpreter refuses whatever goes beyond an array, or is read before it is written."""
    (x, k, weights), expected = samples(turns)
    for batch in (1, 63, 64, 65):
        args = [arranged(x[:batch], layout), k[:batch], weights]
        kernels = kernel_for(with_records(turns), args, LAUNCHES[launch](batch), [layout, "rows", "shared", layout])
        assert any(k.scratch_bytes for k in kernels.launched) == (turns * 8 > LARGEST_LOCAL)
        right = [arranged(e[:batch], layout) for e in expected]
        found = executed(kernels, args, [jax.ShapeDtypeStruct(e.shape, e.dtype) for e in right])
        for y, e in zip(found, right, strict=True):
            np.testing.assert_allclose(y, e, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("function", [reads, writes, in_a_loop])
@pytest.mark.parametrize("dtype", ["int8", "int64", "uint32"])
def test_positions_out_of_bounds_are_what_they_are_in_xla(dtype, function):
    i = positions_of(dtype)
    x, y = np.random.default_rng(0).uniform(0, 1, (len(i), 6)), np.random.default_rng(1).uniform(0, 1, (len(i), LONG))
    found = by_gpu(lanes(function), i, x, y)
    assert_same(found, jax.jit(jax.vmap(function))(i, x, y), (i,))


def test_the_length_of_a_loop_differs_between_threads():
    def function(n, x):
        def again(state):
            n, y, count = state
            return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), 0.5 * jnp.sin(y) + x, count + 1

        return jax.lax.while_loop(lambda state: state[0] != 1, again, (n, x, 0))[1:]

    n, x = np.arange(1, 30, dtype=np.int32), np.random.default_rng(0).uniform(-1, 1, 29)
    found, expected = by_gpu(jax.vmap(per_sample(function, backend="lanes")), n, x), jax.vmap(function)(n, x)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-14)
    np.testing.assert_array_equal(found[1], expected[1])
    assert len(set(found[1].tolist())) > 10


def test_results_without_arguments_that_vary():
    """No arguments at all, one that all samples share, and results that are known."""

    def function(w):
        return {"known": jnp.arange(3.0), "shared": jnp.sin(w), "none": jnp.zeros((2, 0)), "truth": w > 0}

    w = np.array([0.3, -0.2])
    found = by_gpu(jax.vmap(per_sample(function, backend="lanes"), None, axis_size=3), w)
    np.testing.assert_array_equal(found["known"], np.tile(np.arange(3.0), (3, 1)))
    np.testing.assert_allclose(found["shared"], np.tile(np.sin(w), (3, 1)), rtol=1e-15)
    np.testing.assert_array_equal(found["truth"], np.tile(w > 0, (3, 1)))
    assert found["none"].shape == (3, 2, 0)
    (alone,) = executed(
        kernel_for(lambda: (jnp.arange(3.0),), [], Launch(64, 4, 1), ["rows"]), [], [jax.ShapeDtypeStruct((3,), float)]
    )
    np.testing.assert_array_equal(alone, np.arange(3.0))


def test_one_sample_and_a_batch_of_batches():
    def function(x, truths, k):
        return jnp.where(truths, jnp.exp(x), x) * k, ~truths, truths.sum(dtype=jnp.int8)

    rng = np.random.default_rng(0)
    x, truths, k = rng.normal(size=(2, 5, 3)), rng.random((2, 5, 3)) < 0.5, rng.integers(-9, 9, (5,)).astype(np.int16)
    lane = per_sample(lambda x, t, k: function(x, t, k.astype(float)), backend="lanes")
    inner = jax.vmap(lane, (0, 0, 0))
    right = [np.where(truths, np.exp(x), x) * k[:, None], ~truths, truths.sum(-1)]
    for found, e in zip(by_gpu(jax.vmap(inner, (0, 0, None)), x, truths, k), right, strict=True):
        np.testing.assert_allclose(found, e, rtol=1e-15)
    for found, e in zip(by_gpu(lane, x[0, 0], truths[0, 0], k[0]), right, strict=True):
        np.testing.assert_allclose(found, e[0, 0], rtol=1e-15)


def test_the_interpreter_finds_wrong_accesses():
    """So the tests above hold for what a kernel reads and writes besides its results."""
    x, y = np.ones((65, 3)), np.empty((65, 3))
    (kernel,) = kernel_for(lambda x: (2 * x,), [x], Launch(64, 4, 2), ["rows", "rows"]).launched
    run_kernel(kernel.ptx, [x, y], 64, 2, [1])
    np.testing.assert_array_equal(y, 2.0)
    for message, text, result, outputs in (
        ("outside the 1536 bytes of buffer 1", kernel.ptx, y[:64], [1]),
        ("writes buffer 1, which is read-only", kernel.ptx, y, []),
        ("through the read-only cache", kernel.ptx, y, [0, 1]),
        ("reads in buffer 0 what nobody has written", kernel.ptx.replace(".nc", ""), y, [0, 1]),
        ("writes in buffer 1 what another thread writes too", kernel.ptx.replace("%ctaid.x", "0"), y, [1]),
        ("misaligned", kernel.ptx.replace("+-8]", "+-4]"), y, [1]),
    ):
        with pytest.raises(PtxError, match=message):
            run_kernel(text, [x, result], 64, 2, outputs)


# ---------------------------------------------------------------- random programs


def test_random_programs(exhaustive):
    for number in range(3000 if exhaustive else 10):
        rng = np.random.default_rng(number)
        dtypes = types(rng)
        program, args = programs(rng, *dtypes), inputs(rng, (*dtypes, "bool"))
        assert not wrong_steps(program, args, by_gpu(lanes(program), *args)), number


# ---------------------------------------------------------------- mechanics


def relative(found, expected) -> float:
    """Largest difference relative to the largest number of each array."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return max(float(np.max(np.abs(a - np.asarray(e))) / np.max(np.abs(e))) for a, e in pairs)


def compared(make, model, args, allowed: dict[str, float]) -> None:
    """A function of one sample by kernels of each precision, and by the lane compiler of the CPU in float64.

    Single precision gets the same numbers, rounded before.
    """
    args = jaxdyn.as_dtype(args, jnp.float32)
    wide = jax.jit(make(jaxdyn.as_dtype(model, jnp.float64)))(*jaxdyn.as_dtype(args, jnp.float64))
    for dtype, bound in allowed.items():
        before = len(records())
        own = jaxdyn.as_dtype((model, args), jnp.dtype(dtype))
        found = by_gpu(make(own[0]), *own[1])
        assert {r.backend for r in records()[before:]} == {"lanes"}
        assert {r.width for r in records()[before:]} == {1}
        assert relative(found, wide) <= bound, dtype


# Some hundred roundings, times what the mass matrix of the arm does to errors.
ROUNDED = {"float32": 1e-4, "float64": 1e-12}


def motions(n: int, samples: int, count: int = 3) -> list[jax.Array]:
    return list(jnp.asarray(np.random.default_rng(1).normal(size=(count, samples, n))))


def test_forward_dynamics_and_its_products():
    def make(model):
        def function(q, v, tau, w):
            value, pull = jax.vjp(lambda q, v, tau: jaxdyn.forward_dynamics(model, q, v, tau), q, v, tau)
            return value, pull(w)

        return lanes(function)

    compared(make, jaxdyn.library.panda(), motions(7, 65, 4), ROUNDED)


def test_all_joints():
    model = every_joint(armature=True)
    state, _, tau = some_motion(model)
    args = [jnp.stack([x, 0.9 * x]) for x in (state.v, tau)]

    def make(model):
        q = jaxdyn.as_dtype(state.q, model.dtype)

        def function(v, tau):
            moved = jaxdyn.configuration.integrate(model, q, v)
            return jaxdyn.forward_dynamics(model, moved, v, tau), jaxdyn.configuration.difference(model, q, moved)

        return lanes(function)

    compared(make, model, args, {"float64": ROUNDED["float64"]})


def end(model, q, torques, **options):
    """What a rollout of many steps stores and where it ends."""
    moved = jaxdyn.rollout(
        jaxdyn.System(model), jaxdyn.State(q, 0.1 * q), torques, dt=1e-2, steps=torques.shape[0], **options
    )
    return moved.final, moved.saved


def test_rollouts_with_records():
    args = [jnp.asarray(0.4 * np.random.default_rng(2).normal(size=s)) for s in ((65, 2), (65, 30, 2))]
    compared(
        lambda model: jax.vmap(functools.partial(end, model, save_every=5, backend="lanes")),
        double_pendulum(),
        args,
        ROUNDED,
    )


@pytest.mark.thorough
@pytest.mark.parametrize(("multiprocessors", "dtype"), [(1, "float64"), (132, "float32")])
def test_gradients_of_rollouts(multiprocessors, dtype, monkeypatch):
    """By one thread per sample, and by fewer threads, which use their scratch several times."""
    monkeypatch.setattr(gpu, "_multiprocessors", lambda: multiprocessors)
    args = [jnp.asarray(0.4 * np.random.default_rng(3).normal(size=s)) for s in ((300, 2), (300, 60, 2))]

    def make(model):
        def loss(q, torques):
            final, saved = end(model, q, torques, save_every=20, backend="lanes")
            return jnp.sum(final.q**2) + jnp.sum(saved.v**3)

        # One kernel keeps the states of all steps, and reads them in the reverse order.
        return jax.vmap(per_sample(jax.value_and_grad(loss, (0, 1)), backend="lanes"))

    kernels = []
    launched = gpu.Kernels.__init__
    monkeypatch.setattr(gpu.Kernels, "__init__", lambda self, *x, **y: kernels.append(self) or launched(self, *x, **y))
    compared(make, double_pendulum(), args, {dtype: ROUNDED[dtype]})
    with_scratch = [k.launch.threads for each in kernels for k in each.launched if k.scratch_bytes]
    assert with_scratch == [256 if multiprocessors == 1 else 320] * len(with_scratch)
    assert with_scratch
