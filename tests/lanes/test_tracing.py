"""Functions that are traced once: their traces, their values, and what they depend on."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn.compute import kernel_function
from jaxdyn.compute.hints import nothing_kept, traced_once, writing_out, written_out
from jaxdyn.compute.sweeps import of_each


@pytest.fixture
def counted():
    """A function that is traced once, and a list with one entry per trace."""
    traces = []

    @traced_once
    def work(pair, scale):
        traces.append(writing_out())
        x, y = pair
        return {"sum": scale * (x @ y), "sine": jnp.sin(x)}

    return work, traces


def pair(n: int):
    rng = np.random.default_rng(n)
    return tuple(jnp.asarray(rng.normal(size=n)) for _ in range(2))


def test_programs_with_derivatives_and_batches_share_one_trace(counted):
    work, traces = counted
    one, scale = pair(3), jnp.asarray(2.0)
    many = jax.tree.map(lambda x: jnp.stack([x, -x]), one)
    direct = work.__wrapped__(one, scale)
    traces.clear()

    def loss(pair, scale):
        found = work(pair, scale)
        return found["sum"] + jnp.sum(found["sine"])

    np.testing.assert_array_equal(jax.jit(lambda p: work(p, scale))(one)["sum"], direct["sum"])
    slope = jax.jit(jax.grad(loss))(one, scale)
    curvature = jax.jit(jax.jacfwd(jax.grad(loss)))(one, scale)
    batch = jax.jit(jax.vmap(loss, (0, None)))(many, scale)
    assert len(traces) == 1
    np.testing.assert_allclose(slope[0], scale * one[1] + jnp.cos(one[0]), rtol=1e-14)
    np.testing.assert_allclose(curvature[0][0], -jnp.diag(jnp.sin(one[0])), rtol=1e-14)
    np.testing.assert_allclose(batch[1], scale * (one[0] @ one[1]) - jnp.sum(jnp.sin(one[0])), rtol=1e-14)


def test_other_shapes_types_and_forms_of_code_are_traced_again(counted):
    work, traces = counted
    scale = jnp.asarray(2.0)

    def trace(*arguments):
        jax.make_jaxpr(lambda *x: work(*x))(*arguments)  # JAX has not traced this function before

    trace(pair(3), scale)
    trace(pair(4), scale)
    trace(*jax.tree.map(lambda x: x.astype(jnp.float32), (pair(3), scale)))
    assert traces == [False, False, False]
    for _ in range(2):
        with written_out():
            trace(pair(3), scale)
        with written_out(), nothing_kept():
            trace(pair(3), scale)
    assert traces == [False, False, False, True, True]


def test_equations_are_those_of_the_function(counted):
    """No call is left in the program, which could hide what its parts have in common."""
    work, _ = counted
    names = [[e.primitive.name for e in jax.make_jaxpr(f)(pair(3), 1.0).eqns] for f in (work, work.__wrapped__)]
    assert names[0] == names[1]


@pytest.mark.parametrize("shared", [traced_once, kernel_function])
def test_equal_numbers_of_other_types_and_other_static_parts_are_traced_again(shared):
    class Part(eqx.Module):
        __module__ = "jaxdyn.parts"  # else it is code of users
        x: jax.Array
        static: object = eqx.field(static=True)

    def work(part, number):
        known = min(part.static) if isinstance(part.static, list | set) else part.static
        return jnp.asarray(known), jnp.asarray(number), part.x

    def on(function, static, number, x):
        return function(Part(x, static), number)

    traced_before, x = shared(work), jnp.ones(2, jnp.float32)
    changed = [1.0]
    for static, number in [(1, 1), (1, True), (1, 1.0), (1, np.float32(1.0)), (1, 0.0), (1, -0.0), (1.0, 1), (True, 1)]:
        found, expected = (jax.jit(partial(on, f, static, number))(x) for f in (traced_before, work))
        assert [x.dtype for x in found] == [x.dtype for x in expected]
        np.testing.assert_array_equal(np.signbit(found[1]), np.signbit(expected[1]))
    for values in (3.0, 4.0, {1.0}, {2.0}):  # lists and sets have no hash
        changed[:] = [values]
        static = values if isinstance(values, set) else changed
        found = jax.jit(partial(on, traced_before, static, 1))(x)
        assert found[0] == next(iter(static))


def test_calls_share_programs_only_if_closures_hold_no_traced_arrays_and_keys_are_of_one_kind():
    @kernel_function
    def applied(function, x):
        return function(x)

    def twice(p, x):
        def scaled(x):
            return p * x

        return jnp.sum(applied(scaled, x) + applied(scaled, 2.0 * x))

    assert jax.jit(jax.grad(twice))(3.0, jnp.ones(2)) == 6.0

    @kernel_function
    def drawn(key, x):
        return jax.random.split(key)[0], x

    for key in (
        jax.random.PRNGKey(0),
        *(jax.random.key(0, impl=kind) for kind in ("threefry2x32", "rbg", "unsafe_rbg")),
    ):
        assert jax.jit(lambda key: drawn(key, 1.0 * jnp.ones(1)))(key)[0].dtype == key.dtype


def test_one_node_is_as_a_batch_of_nodes():
    def visit(row, own):
        return 0.0, own.at[0].add(row[0])  # data of NumPy are arrays of JAX

    one, two = (of_each(visit, jnp.ones((n, 2)), np.ones((n, 2)), count=n, looped=False) for n in (1, 2))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b[:1])


def test_the_values_of_floats_do_not_make_new_traces(counted):
    work, traces = counted
    sums = [work(pair(3), scale)["sum"] for scale in (2.0, 4.0, np.float64(8.0))]
    np.testing.assert_allclose(sums, np.multiply(sums[0], [1.0, 2.0, 4.0]), rtol=1e-14)
    assert len(traces) == 2  # a number of NumPy has a fixed type


@pytest.mark.parametrize("shared", [traced_once, kernel_function])
def test_code_of_users_is_traced_in_each_call(shared):
    gain = 1.0

    class Mine(eqx.Module):
        x: jax.Array

        def scaled(self):
            return gain * self.x

    scaled = shared(lambda mine: mine.scaled())

    def call(x):
        return scaled(Mine(x))

    assert jax.jit(lambda x: call(x))(1.0) == 1.0
    gain = 5.0
    assert jax.jit(lambda x: call(x))(1.0) == 5.0
