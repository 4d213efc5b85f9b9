"""Functions that are traced once: their traces, their values, and what they depend on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn.compute.hints import nothing_kept, traced_once, writing_out, written_out


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
