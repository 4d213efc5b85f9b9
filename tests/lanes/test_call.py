"""The door and the primitive of the lane compiler: transformations, batch sizes, threads, fallback, errors and the disk cache."""

import collections
import time

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jaxprs import equations

import jaxdyn
from jaxdyn.compute import batched, per_sample
from jaxdyn.lanes import CannotFlatten, record, records, set_threads
from jaxdyn.lanes.record import Record, note

SIZES = (1, 2, 15, 16, 17, 1000, 4097)


def f(x, w):
    """Three numbers from three and two, with no symmetry between any of them."""
    return jnp.stack([jnp.sin(x[0] * w[0]) * x[2], jnp.exp(-x[1] * x[1]) + w[1] ** 3, x[2] * x[0] / (2 + x[1] ** 2)])


def scalar(x, w):
    return f(x, w) @ jnp.asarray([1.0, -0.5, 0.25], x.dtype)


def looped(x, w):
    """With a loop that stays a loop, so that reverse mode stores its states."""

    def turn(c, k):
        return 0.9 * jnp.sin(c + 0.01 * w[0]) - 0.05 * c * jnp.cos(c) + 0.02 * x[1] * w[1], c

    end, path = lax.scan(jax.checkpoint(turn), x[0], jnp.arange(300))
    return jnp.stack([end, path[5] * x[2]])


def lanes(function):
    return per_sample(function, backend="lanes")


def numbers(*shape: int, seed: int = 0, dtype=jnp.float64) -> jax.Array:
    return jnp.asarray(np.random.default_rng([seed, *shape]).uniform(-1.5, 1.5, shape), dtype)


def close(actual, expected, roundings: float = 200.0) -> None:
    """Equal but for roundings: values and derivatives of the functions here are sums of some ten products of order one."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        if a.dtype == jax.dtypes.float0 or not jnp.issubdtype(a.dtype, jnp.floating):
            np.testing.assert_array_equal(a, b)
        else:
            tolerance = roundings * np.finfo(a.dtype).eps
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def has_lanes(function, *args) -> bool:
    """Whether lanes are there at all: a test of a function that fell back would compare XLA with XLA."""
    return any(e.primitive.name == "lane_call" for e in equations(jax.make_jaxpr(function)(*args).jaxpr))


# ---------------------------------------------------------------- batch sizes, types, threads


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_batches_of_every_size(dtype):
    x, w = numbers(SIZES[-1], 3, dtype=dtype), numbers(SIZES[-1], 2, dtype=dtype)
    expected = jax.vmap(f)(x, w)
    run = jax.jit(lambda parts: [jax.vmap(lanes(f))(*p) for p in parts])
    for n, y in zip(SIZES, run([(x[:n], w[:n]) for n in SIZES]), strict=True):
        close(y, expected[:n])


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_threads_change_no_bit(dtype):
    # Enough work per lane for several threads; the tail belongs to whichever thread comes to it.
    x, w = numbers(4097, 3, dtype=dtype), numbers(4097, 2, dtype=dtype)
    run = jax.jit(jax.value_and_grad(lambda x, w: jnp.sum(jax.vmap(lanes(looped))(x, w) ** 2), (0, 1)))
    results = []
    try:
        for threads in (1, 2, 4, 0):
            set_threads(threads)
            results += [jax.device_get(run(x, w)) for _ in range(2)]
    finally:
        set_threads(0)
    for other in results[1:]:
        jax.tree.map(np.testing.assert_array_equal, other, results[0])


def test_a_number_of_threads_below_zero_is_refused():
    with pytest.raises(ValueError, match="-1"):
        set_threads(-1)


def test_one_lane_gives_what_many_lanes_give():
    """The width of vectors does not change a bit: all functions of the machine code are the same for each."""
    x, w = numbers(40, 3, dtype=jnp.float32), numbers(40, 2, dtype=jnp.float32)
    many = jax.jit(jax.vmap(lanes(f)))(x, w)
    for n in (1, 2, 4, 7):
        np.testing.assert_array_equal(jax.jit(jax.vmap(lanes(f)))(x[:n], w[:n]), many[:n])
    np.testing.assert_array_equal(jax.jit(lanes(f))(x[3], w[3]), many[3])


def test_empty_batches_and_arrays():
    assert jax.vmap(lanes(f))(numbers(0, 3), numbers(0, 2)).shape == (0, 3)
    shared = jnp.array([4, 0], jnp.uint8)  # XLA would divide by zero while it compiles, and the process would end
    remainders = jax.vmap(lanes(lambda x: x[:2] + jax.lax.rem(shared, shared).astype(x.dtype)))
    assert remainders(numbers(0, 3)).shape == (0, 2)
    x = numbers(5, 3)
    y, z = jax.jit(jax.vmap(lanes(lambda x: (x[:0], jnp.sum(x[:0]) + x))))(x)
    assert y.shape == (5, 0)
    close(z, x)
    close(jax.vmap(lanes(lambda x, e: x * (1 + jnp.sum(e))))(x, numbers(5, 0)), x)
    close(jax.vmap(lanes(lambda x: jnp.zeros((0, 2))))(x), jnp.zeros((5, 0, 2)))
    gradient = jax.grad(lambda x: jnp.sum(jax.vmap(lanes(scalar))(x, numbers(0, 2))))(numbers(0, 3))
    assert gradient.shape == (0, 3)


def test_scalars_and_numbers_that_do_not_depend_on_inputs():
    x = numbers(20)
    g = lanes(lambda x: (x * x, 1.5, 2, jnp.asarray([1.0, 2.0]), True))
    squares, a, b, c, d = jax.jit(jax.vmap(g))(x)
    close(squares, x * x)
    for actual, expected in ((a, 1.5), (b, 2), (d, True)):
        np.testing.assert_array_equal(actual, np.full(20, expected))
    np.testing.assert_array_equal(c, np.tile([1.0, 2.0], (20, 1)))
    close(g(x[0])[0], x[0] ** 2)
    assert g(x[0])[3].shape == (2,)


# ---------------------------------------------------------------- forms of arguments and results


class Pair(eqx.Module):
    a: jax.Array
    b: jax.Array | None
    label: str = eqx.field(static=True)


def of_pytrees(pair: Pair, options: dict, count: int):
    """Arrays, None, texts and plain numbers on both sides."""
    x = pair.a * (count if pair.b is None else pair.b) * options["scale"]
    return {"x": x, "none": None, "pair": Pair(x[:1], None, "out"), "name": options["name"]}


@pytest.mark.parametrize(("in_axes", "out_axes"), [(0, 0), (1, 1)])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_results_of_all_kinds_in_one_array(dtype, in_axes, out_axes):
    """Many results: known ones, repeated ones, sine without and with its cosine, the same for all lanes, arguments themselves."""
    known = np.linspace(-1, 1, 500).astype(dtype)

    def many(x, shared):
        turned = jnp.concatenate([jnp.sin(x), jnp.cos(x[:1]), jnp.sin(x[1:]), jnp.cos(shared)])
        products = jnp.outer(turned, turned).ravel()
        pairs = jnp.stack([products, jnp.zeros_like(products)], axis=1).ravel()
        return jnp.concatenate([known, x, pairs, shared, products[::-1], x, jnp.zeros(450, dtype)]), jnp.ones(3, dtype)

    x, shared = numbers(35, 12, dtype=dtype), numbers(2, dtype=dtype)
    x = x if in_axes == 0 else x.T
    for batch in (1, 17, 35):
        part = lax.slice_in_dim(x, 0, batch, axis=in_axes)
        axes = {"in_axes": (in_axes, None), "out_axes": out_axes}
        found = jax.jit(jax.vmap(lanes(many), **axes))(part, shared)
        close(found, jax.vmap(many, **axes)(part, shared))


def test_many_columns_of_a_large_triangular_system_are_solved_in_a_loop():
    """What the loop reads is stored as it comes: computed, known, and repeated numbers."""

    def solved(x):
        matrix = jnp.outer(x, x) + np.diag(np.arange(1.0, 25.0))
        right = jnp.concatenate([jnp.outer(jnp.arange(1.0, 81.0), jnp.sin(x)), np.eye(24), jnp.stack([x, x])])
        factor = jnp.linalg.cholesky(matrix)
        return lax.scan(lambda _, column: (None, jax.scipy.linalg.cho_solve((factor, True), column)), None, right)[1]

    x = numbers(17, 24)
    close(jax.jit(jax.vmap(lanes(solved)))(x), jax.vmap(solved)(x))


def test_pytrees_with_none_and_static_leaves():
    x, scale = numbers(9, 3), numbers(9)
    for pair in (Pair(x, None, "in"), Pair(x, 3 * x, "in")):
        for g in (of_pytrees, lanes(of_pytrees)):
            run = eqx.filter_vmap(lambda p, s, g=g: {**g(p, {"scale": s, "name": "mine"}, 4), "name": None})
            expected = x * (4 if pair.b is None else 3 * x) * scale[:, None]
            close(
                run(pair, scale),
                {"x": expected, "none": None, "pair": Pair(expected[:, :1], None, "out"), "name": None},
            )
    assert lanes(of_pytrees)(Pair(x[0], None, "in"), {"scale": 2.0, "name": "mine"}, 4)["name"] == "mine"


def test_integers_and_truth_values_in_and_out():
    def g(x, n, b, wide):
        return jnp.where(b, x, -x) * n.astype(x.dtype), n * 3, ~b, x > 0, wide + n.astype(wide.dtype)

    rng = np.random.default_rng(0)
    x, n = numbers(33, 2), jnp.asarray(rng.integers(-5, 5, 33), jnp.int32)
    b, wide = jnp.asarray(rng.random((33, 2)) < 0.5), jnp.asarray(rng.integers(0, 2**40, (33, 2)), jnp.int64)
    close(jax.jit(jax.vmap(lanes(g)))(x, n, b, wide), jax.vmap(g)(x, n, b, wide))

    def through(function):
        def value(x):
            y, m, c, d, _ = jax.vmap(function)(x, n, b, wide)
            return jnp.sum(jnp.where(d, y, 2 * y)), (m, c)

        return jax.jit(jax.value_and_grad(value, has_aux=True))(x)

    close(through(lanes(g)), through(g))
    forward = [jax.jvp(lambda x, h=h: jax.vmap(h)(x, n, b, wide), (x,), (x,)) for h in (lanes(g), g)]
    close(*forward)
    gradients = [
        jax.grad(lambda x, n, h=h: h(x, n, b[0], wide[0])[0][0], allow_int=True, argnums=(0, 1))(x[0], n[0])
        for h in (lanes(g), g)
    ]
    close(*gradients)


def test_keyword_arguments_and_plain_numbers():
    def g(x, power, *, shift):
        return x**power + shift

    x = numbers(5)
    close(jax.vmap(lambda x: lanes(g)(x, 3, shift=2.0))(x), x**3 + 2)
    close(jax.vmap(lambda x, s: lanes(g)(x, 3, shift=s))(x, 2 * x), x**3 + 2 * x)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_python_numbers_stay_weak(dtype):
    """A plain number that becomes an argument of compiled code does not decide the precision."""
    x = numbers(5, 3, dtype=dtype)
    y = batched(lambda x, s: s * x, (0, None), backend="lanes")(x, 2.0)
    assert y.dtype == dtype
    close(y, 2 * x)


# ---------------------------------------------------------------- vmap


AXES = [
    ((0, 0), 0),
    ((1, 0), 1),
    ((-1, -2), -1),
    ((0, None), 0),
    ((None, 1), -2),
]


@pytest.mark.parametrize(("in_axes", "out_axes"), AXES)
def test_vmap_over_any_axes(in_axes, out_axes):
    shapes = [(7, 3) if a in (0, -2) else (3, 7) if a is not None else (3,) for a in in_axes[:1]]
    shapes += [(7, 2) if a in (0, -2) else (2, 7) if a is not None else (2,) for a in in_axes[1:]]
    args = [numbers(*s) for s in shapes]
    close(jax.vmap(lanes(f), in_axes, out_axes)(*args), jax.vmap(f, in_axes, out_axes)(*args))


def test_nested_vmap():
    x, w = numbers(4, 5, 3), numbers(4, 5, 2)

    def maps(f):
        return [
            jax.vmap(jax.vmap(f))(x, w),
            jax.vmap(jax.vmap(f, (0, None)), (0, None))(x, w[0, 0]),
            jax.vmap(jax.vmap(f, (0, None)), (0, 0))(x, w[:, 0]),
            jax.vmap(jax.vmap(f, (None, 0)), (0, 0))(x[:, 0], w),
            jax.vmap(jax.vmap(f, (None, 0)), (0, None))(x[:, 0], w[0]),
            jax.vmap(jax.vmap(f, (1, 0), 1), (None, 1), 2)(x[0].T, w.swapaxes(0, 1)),
            jax.vmap(jax.vmap(jax.vmap(f, (None, 0)), (0, None)), (0, 0))(x, w),
        ]

    close(maps(lanes(f)), maps(f))


@pytest.mark.parametrize("outer", [64, 3])
def test_inner_samples_of_a_large_batch_share_arguments_without_copies(outer):
    lengths, x, w = numbers(6), numbers(outer, 40), numbers(outer, 2)

    def batch(f):
        return jax.vmap(jax.vmap(f, (0, None, None)), (None, 0, 0))

    def search(length, x, w):
        return jnp.sum(jnp.sin(length * x)) * w, length * x[0]

    def slopes(f):
        return jax.grad(lambda *x: sum(jnp.sum(y**2) for y in batch(f)(*x)), (0, 1, 2))

    close(jax.jit(batch(lanes(search)))(lengths, x, w), batch(search)(lengths, x, w))
    close(jax.jit(slopes(lanes(search)))(lengths, x, w), slopes(search)(lengths, x, w), 2000)
    copies = f"[{6 * outer},40]" in str(jax.make_jaxpr(batch(lanes(search)))(lengths, x, w))
    assert copies == (outer == 3)  # too few samples to fill the vectors


@pytest.mark.parametrize("function", [f, looped])
def test_nested_vmap_of_derivatives(function):
    """What reverse mode stores has its axis of lanes at the end; every kind of further axis meets it here."""
    x, w = numbers(4, 5, 3), numbers(4, 5, 2)

    def results(g):
        def pull(x, w, y):
            return jax.vjp(g, x, w)[1](y)

        y = jax.vmap(jax.vmap(g))(x, w)
        value, back = jax.vjp(jax.vmap(g), x[0], w[0])
        several = jnp.stack([value, 2 * value, value**2])
        shared, back_shared = jax.vjp(jax.vmap(g, (0, None)), x[0], w[0, 0])
        nested, back_nested = jax.vjp(jax.vmap(jax.vmap(g, (None, 0)), (0, None)), x[0], w[0])
        return [
            jax.vmap(jax.vmap(pull))(x, w, y),
            jax.vmap(jax.vmap(pull, (0, None, 0)), (0, 0, 0))(x, w[:, 0], y),
            jax.vmap(back)(several),
            jax.vmap(back, 2, 1)(jnp.moveaxis(several, 0, 2)),
            jax.vmap(back_shared)(jnp.stack([shared, 3 * shared])),
            back_nested(nested),
            jax.vmap(jax.vmap(back_nested))(nested[None, None] * numbers(2, 3, 1, 1, 1)),
            jax.vmap(back)(jnp.stack([value] * 70)),  # more directions than become an axis of the function
        ]

    close(jax.jit(lambda: results(lanes(function)))(), jax.jit(lambda: results(function))(), 2000)


# ---------------------------------------------------------------- derivatives


@pytest.mark.parametrize("function", [f, looped])
def test_first_derivatives(function):
    x, w, dx = numbers(3), numbers(2), numbers(3, seed=1)

    def results(g):
        y, push = jax.linearize(g, x, w)
        z, pull = jax.vjp(g, x, w)
        return [
            jax.jvp(g, (x, w), (dx, w)),
            jax.jvp(lambda x: g(x, w), (x,), (dx,)),
            (y, push(dx, w)),
            jax.vmap(push)(jnp.stack([dx, 2 * dx]), jnp.stack([w, -w])),
            (z, pull(y)),
            jax.jacfwd(g, (0, 1))(x, w),
            jax.jacrev(g, (0, 1))(x, w),
            jax.jacfwd(jax.vmap(g, (0, None)))(jnp.stack([x, dx]), w),
            jax.jacrev(jax.vmap(g, (0, None)), 1)(jnp.stack([x, dx]), w),
            jax.vmap(jax.jacfwd(g), (0, None))(jnp.stack([x, dx]), w),
            jax.linear_transpose(push, x, w)(y),
        ]

    close(jax.jit(lambda: results(lanes(function)))(), jax.jit(lambda: results(function))(), 2000)


@pytest.mark.thorough
@pytest.mark.parametrize("function", [f, looped])
def test_second_derivatives(function, exhaustive):
    """Of the loop one order of modes each way, and one that is batched; the others take as long again."""
    x, w, dx = numbers(3), numbers(2), numbers(3, seed=1)

    def results(g):
        def total(x, w):
            return jnp.sum(g(x, w) ** 2)

        def weighted(x, w):
            return jnp.sum(jax.grad(total)(x, w) * dx)

        ways = [
            lambda: jax.hessian(total)(x, w),
            lambda: jax.jacrev(jax.jacfwd(total, 1))(x, w),
            lambda: jax.jacrev(jax.grad(total))(x, w),
            lambda: jax.jacfwd(jax.jacfwd(g))(x, w),
            lambda: jax.vmap(jax.hessian(total), (0, None))(jnp.stack([x, dx]), w),
            lambda: jax.grad(weighted, (0, 1))(x, w),
            lambda: jax.jvp(jax.grad(total, (0, 1)), (x, w), (dx, w)),
            lambda: jax.grad(lambda x: jax.jvp(total, (x, w), (dx, w))[1])(x),
            lambda: jax.hessian(lambda w: jnp.sum(jax.vmap(total, (0, None))(jnp.stack([x, dx]), w)))(w),
        ]
        return [way() for way in (ways if exhaustive or function is f else ways[:5])]

    close(jax.jit(lambda: results(lanes(function)))(), jax.jit(lambda: results(function))(), 1e4)


def test_parts_of_inputs_and_turned_inputs_are_stored_where_reverse_mode_needs_them():
    """Reverse mode does not store an input that it needs as a whole. It stores a part of an input, and one in another order."""
    x, table, weights = numbers(3), numbers(700), jnp.linspace(-1.0, 1.0, 600)

    def total(g):
        return lambda x, table: jnp.sum(jax.vmap(g, (0, None))(jnp.stack([x, 2 * x]), table))

    def g(x, table):
        end, _ = lax.scan(lambda c, _: (0.9 * jnp.sin(c) + 0.02 * x[1], None), x[0], None, length=700)
        return end * (table[:600] @ (x[0] * weights)) + x[::-1] @ (x * end)

    by_lanes, by_xla = (jax.jit(jax.grad(total(h), (0, 1)))(x, table) for h in (lanes(g), g))
    close(by_lanes, by_xla, 2000)


def test_gradient_of_shared_arguments_is_the_sum_over_lanes():
    x, w = numbers(50, 3), numbers(2)
    for g in (scalar, lambda x, w: jnp.sum(looped(x, w))):
        shared = jax.jit(jax.grad(lambda w, g=g: jnp.sum(jax.vmap(lanes(g), (0, None))(x, w))))(w)
        each = jax.jit(jax.vmap(jax.grad(lanes(g), 1), (0, None)))(x, w)
        assert each.shape == (50, 2)
        close(shared, each.sum(0), 2000)
        close(shared, jax.jit(jax.grad(lambda w, g=g: jnp.sum(jax.vmap(g, (0, None))(x, w))))(w), 2000)


def test_derivatives_of_the_user_are_used():
    @jax.custom_jvp
    def g(x):
        return x * x

    g.defjvp(lambda p, t: (g(*p), 7 * t[0]))  # not the true one, so that it cannot be missed

    @jax.custom_vjp
    def h(x):
        return x * x

    h.defvjp(lambda x: (h(x), x), lambda x, y: (5 * y,))
    x = numbers(6)
    sevens, fives = jnp.full(6, 7.0), jnp.full(6, 5.0)
    close(jax.vmap(jax.grad(lanes(g)))(x), sevens)
    close(jax.jvp(jax.vmap(lanes(g)), (x,), (jnp.ones(6),))[1], sevens)
    close(jax.vmap(jax.grad(lanes(h)))(x), fives)
    close(jax.grad(lambda x: jnp.sum(jax.vmap(lanes(h))(x)))(x), fives)
    close(jax.vmap(jax.grad(jax.checkpoint(lanes(h))))(x), fives)
    in_scan = jax.grad(lambda x: lax.scan(lambda c, _: (lanes(h)(c), None), x, None, length=2)[0])
    close(in_scan(x[0]), jnp.asarray(25.0))


def test_known_zeros_do_not_spoil_derivatives():
    """The derivative of where(x > 0, sqrt(x), 0) at negative x: XLA gives NaN, lanes may give zero, and nothing else."""
    y = jax.vmap(jax.grad(lanes(lambda x: jnp.where(x > 0, x, 0.0) * 2)))(jnp.asarray([-1.0, 4.0]))
    close(y, jnp.asarray([0.0, 2.0]))


def test_unused_and_repeated_arguments():
    def g(x, unused):
        return x * x, x

    x = numbers(4)
    close(jax.vmap(jax.grad(lambda x, u: lanes(g)(x, u)[0], (0, 1)))(x, x), (2 * x, 0 * x))
    _, pull = jax.vjp(jax.vmap(lanes(g)), x, x)
    close(pull((x, jnp.zeros(4))), (2 * x * x, 0 * x))


# ---------------------------------------------------------------- within and around other code


@pytest.mark.parametrize("axis", [0, None])
def test_a_constant_result_is_the_same_for_all_lanes(axis):
    def f(x):
        return x, 3.0, jnp.arange(2.0) * 2

    found = batched(f, out_axes=(0, axis, axis), backend="lanes")(numbers(5))
    expected = jax.vmap(f, out_axes=(0, axis, axis))(numbers(5))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_search_for_nans_names_the_function():
    def logarithms(x):
        return jnp.log(x)

    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="logarithms"):
        batched(logarithms, backend="lanes")(jnp.asarray([1.0, -1.0]))
    with jax.debug_infs(True), pytest.raises(FloatingPointError, match=r"inf.*logarithms"):
        batched(logarithms, backend="lanes")(jnp.asarray([1.0, 0.0]))
    with jax.debug_nans(True), jax.debug_infs(True):
        np.testing.assert_array_equal(batched(logarithms, backend="lanes")(jnp.ones(2)), 0)


def test_within_equinox():
    class Net(eqx.Module):
        w: jax.Array
        name: str

        def __call__(self, x):
            return lanes(f)(x, self.w)

    net, x = Net(numbers(2), "net"), numbers(8, 3)
    value = eqx.filter_jit(lambda net, x: jnp.sum(eqx.filter_vmap(net)(x) ** 2))
    gradient = eqx.filter_grad(lambda net, x: jnp.sum(jax.vmap(net)(x) ** 2))(net, x)
    expected = jax.value_and_grad(lambda w: jnp.sum(jax.vmap(f, (0, None))(x, w) ** 2))(net.w)
    close((value(net, x), gradient.w), expected)
    close(eqx.filter_vmap(lanes(f), in_axes=(0, None))(x, net.w), jax.vmap(f, (0, None))(x, net.w))


def test_scan_over_time_around_lanes():
    x, w = numbers(6, 3), numbers(2)

    def results(g):
        def end(x, w):
            step = jax.vmap(g, (0, None))
            return lax.scan(lambda x, _: ((y := 0.5 * step(x, w)), jnp.sum(y)), x, None, length=12)

        def total(x, w):
            return jnp.sum(end(x, w)[1] ** 2)

        return end(x, w), jax.grad(total, (0, 1))(x, w), jax.jvp(jax.grad(total), (x, w), (x, w))[1]

    close(jax.jit(lambda: results(lanes(f)))(), jax.jit(lambda: results(f))(), 2000)


def test_conditions_checkpoints_maps_and_donation_around_lanes():
    x, w = numbers(6, 3), numbers(2)

    def results(g):
        def chosen(x):
            return jnp.sum(lax.cond(x[0] > 0, lambda x: g(x, w), lambda x: 2 * x, x))

        return [
            jax.vmap(jax.value_and_grad(chosen))(x),
            jax.lax.map(chosen, x),
            jax.value_and_grad(jax.checkpoint(chosen))(x[0]),
            jax.grad(lambda w: jnp.sum(jax.checkpoint(jax.vmap(g, (0, None)))(x, w)))(w),
            jax.vmap(lambda x: jnp.sum(jax.vmap(lambda s: g(s * x, w))(jnp.arange(3.0))))(x),
        ]

    close(jax.jit(lambda: results(lanes(f)))(), jax.jit(lambda: results(f))(), 500)
    expected = jax.vmap(lambda x: 2 * x)(x)
    close(jax.jit(jax.vmap(lanes(lambda x: 2 * x)), donate_argnums=0)(x + 0), expected)


def test_arrays_that_are_closed_over():
    x, w = numbers(6, 3), numbers(2)

    def results(wrap):
        def of_parameter(w, x):
            return jnp.sum(jax.vmap(wrap(lambda x: f(x, w)))(x) ** 2)

        def of_mapped(w):
            return wrap(lambda x: f(x, w) * w[0])(x[0])

        return [
            jax.value_and_grad(of_parameter, (0, 1))(w, x),
            jax.jacfwd(jax.grad(of_parameter))(w, x),
            jax.vmap(of_mapped)(numbers(4, 2)),
            jax.vmap(wrap(lambda x: f(x, jnp.asarray([0.5, 0.0])) @ np.arange(3.0)))(x),
        ]

    close(jax.jit(lambda: results(lanes))(), jax.jit(lambda: results(lambda g: g))(), 500)


def test_lanes_within_lanes_are_one_call():
    def g(x, w):
        return lanes(f)(x, w) + jax.vmap(lanes(lambda a: a * a))(x)

    x, w = numbers(6, 3), numbers(6, 2)
    calls = [e for e in equations(jax.make_jaxpr(jax.vmap(lanes(g)))(x, w).jaxpr) if e.primitive.name == "lane_call"]
    assert len(calls) == 1
    close(jax.vmap(lanes(g))(x, w), jax.vmap(f)(x, w) + x * x)


def test_concurrent_calls_of_one_kernel():
    """Two calls of the same machine code within one program, which XLA may run at the same time."""
    x, w = numbers(4097, 3), numbers(2)
    run = jax.jit(lambda x, w: [jax.vmap(lanes(looped), (0, None))(s * x, w) for s in (1.0, 0.5, 0.25, -1.0)])
    expected = [jax.jit(jax.vmap(lanes(looped), (0, None)))(s * x, w) for s in (1.0, 0.5, 0.25, -1.0)]
    for actual, right in zip(run(x, w), expected, strict=True):
        np.testing.assert_array_equal(actual, right)


def test_batched_is_jit_of_vmap():
    x, w = numbers(9, 3), numbers(2)
    run = jaxdyn.batched(f, (1, None), 1, backend="lanes")
    assert has_lanes(run, x.T, w)
    close(run(x.T, w), jax.vmap(f, (1, None), 1)(x.T, w))
    close(jaxdyn.batched(jax.jacfwd(f), (0, None))(x, w), jax.vmap(jax.jacfwd(f), (0, None))(x, w))
    close(jax.grad(lambda w: jnp.sum(run(x.T, w)))(w), jax.grad(lambda w: jnp.sum(jax.vmap(f, (0, None))(x, w)))(w))


# ---------------------------------------------------------------- backends, errors, records


def refused(x):
    return lax.reduce_precision(x, 5, 4)  # this line is named


def line_of(text: str) -> int:
    with open(__file__) as file:
        return next(k for k, line in enumerate(file, 1) if text in line)


REFUSED = {
    "reduce_precision": (refused, 1, line_of("# this line " + "is named")),
    "fft": (lambda x: jnp.fft.fft(x * jnp.ones(4)).real, 1, None),
    "eigh": (lambda x: jnp.linalg.eigvalsh(x * jnp.eye(3)), 1, None),
    "half precision": (lambda x: x.astype(jnp.float16) * 2, 1, None),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_flattened_is_named_with_its_line_and_falls_back(name):
    function, x, line = REFUSED[name]
    x = jnp.asarray([1.5, 3.0])
    with pytest.raises(CannotFlatten) as caught:
        jax.jit(jax.vmap(lanes(function)))(x)
    message = str(caught.value)
    assert __file__ in message
    assert "xla" in message
    if line is not None:
        assert f"{name}" in message
        assert f"{__file__}:{line}" in message
    actual = jax.jit(jax.vmap(per_sample(function, name=f"fallback {name}")))(x)
    np.testing.assert_array_equal(actual, jax.vmap(function)(x))
    (record,) = [r for r in records() if r.name == f"fallback {name}"]
    assert record.backend == "xla"
    assert str(caught.value).split(" (")[0] in record.reason


def test_large_arrays_are_refused():
    with pytest.raises(CannotFlatten, match="too large"):
        jax.vmap(lanes(lambda x: jnp.sum(x)))(jnp.ones((2, 5000)))
    close(jax.vmap(per_sample(lambda x: jnp.sum(x)))(jnp.ones((2, 5000))), jnp.full(2, 5000.0))


def test_unsupported_inputs_and_outputs():
    for bad in (jnp.ones(3, jnp.complex64), jnp.ones(3, jnp.bfloat16)):
        with pytest.raises(CannotFlatten, match=str(bad.dtype)):
            jax.vmap(lanes(lambda x: x))(bad)
        np.testing.assert_array_equal(jax.vmap(per_sample(lambda x: x))(bad), bad)
    with pytest.raises(CannotFlatten, match="key<rbg>"):
        jax.vmap(lanes(lambda k: k))(jax.random.split(jax.random.key(0, impl="rbg"), 3))


def test_unknown_backends_are_refused(as_a_user):
    for door in (per_sample, batched):
        with pytest.raises(ValueError, match="'gpu'; use one of auto, lanes, xla"):
            door(f, backend="gpu")
    assert not has_lanes(per_sample(f, backend="xla"), numbers(3), numbers(2))
    assert has_lanes(per_sample(f), numbers(3), numbers(2))


def test_errors_of_the_user_stay_what_they_are():
    def wrong(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        per_sample(wrong)(1.0)
    with pytest.raises(TypeError):
        per_sample(lambda x: jnp.zeros(3) @ jnp.zeros(4))(numbers(3))


def test_records_say_what_was_compiled():
    x, w = numbers(33, 3), numbers(33, 2)

    def own(x, w):  # whose code no other test has made
        return 1.0625 * f(x, w)

    started = time.perf_counter()
    jax.jit(jax.grad(lambda x: jnp.sum(jax.vmap(per_sample(own, name="recorded"))(x, w))))(x)
    taken = time.perf_counter() - started
    found = [r for r in records() if r.name.startswith("recorded")]
    assert {r.backend for r in found} == {"lanes"}
    assert any(r.name.startswith("recorded.") for r in found)  # a derivative
    for r in found:
        assert r.operations > 0
        assert r.width in (2, 4, 8)
        assert 1e-4 < r.code_s < taken
        assert r.reason == ""


def test_only_the_latest_records_are_kept(monkeypatch):
    most = record._ENTRIES.maxlen
    assert most is not None
    monkeypatch.setattr(record, "_ENTRIES", collections.deque(maxlen=most))  # others still need theirs
    for k in range(most + 500):
        note(Record(f"number {k}", "lanes"))
    names = [r.name for r in records()]
    assert names == [f"number {k}" for k in range(500, most + 500)]


# ---------------------------------------------------------------- caches


def test_equal_programs_share_their_code():
    """Traced twice, compiled once: functions are told apart by what they compute."""
    from jaxdyn.lanes import cpu

    x, w = numbers(33, 3), numbers(33, 2)
    first = jax.jit(jax.vmap(lanes(lambda x, w: 1.25 * f(x, w))))(x, w)
    before = set(cpu._in_memory)
    np.testing.assert_array_equal(jax.jit(jax.vmap(lanes(lambda x, w: f(x, w) * 1.25)))(x, w), first)
    assert set(cpu._in_memory) <= before
    jax.jit(jax.vmap(lanes(lambda x, w: 1.5 * f(x, w))))(x, w)
    assert not set(cpu._in_memory) <= before
