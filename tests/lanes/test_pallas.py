"""The GPU route without a GPU: Pallas kernels in JAX's interpreter compute what XLA computes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn.lanes.call import in_pallas
from jaxdyn.lanes.derived import program_of, traced

MODEL = jaxdyn.library.double_pendulum()
TABLE = np.array([[1.0, 2.0], [3.0, 5.0], [7.0, 11.0]])


def rollout_and_gradient(q, u):
    """A looped rollout (a loop of blocks of steps) and its reverse pass, records and controls in memory."""
    system = jaxdyn.System(MODEL)

    def loss(q, u):
        state = jaxdyn.State(q, q)
        return jnp.sum(jaxdyn.rollout(system, state, u, dt=1e-2, steps=60, save_every=5).saved.q ** 2)

    return jax.value_and_grad(loss, (0, 1))(q, u)


def at_positions(x, index):
    """Reads at positions that differ from sample to sample: from a table, from a short and from a long input."""
    long = jnp.tile(x, 400)
    return jnp.asarray(TABLE, x.dtype)[index], x[index], jax.lax.dynamic_slice(long, (index,), (3,))


CASES = {
    "forward dynamics": (lambda q, v, tau: jaxdyn.forward_dynamics(MODEL, q, v, tau), ((2,), (2,), (2,))),
    "rollout and gradient": (rollout_and_gradient, ((2,), (60, 2))),
    "truth values and integers": (
        lambda x: (x > 0, jnp.argmax(x), jnp.where(x > 0, jnp.sqrt(jnp.abs(x)), jnp.floor(x)), jnp.sort(x)),
        ((3,),),
    ),
    "transcendental functions": (lambda x: (jnp.sin(x), jnp.exp(x), jnp.arctan2(x, x + 2.0), jnp.tanh(x)), ((3,),)),
}


def run(function, arguments, axes):
    """Results of the interpreted kernel."""
    samples = [a if axis is None else a[0] for a, axis in zip(arguments, axes, strict=True)]
    program = program_of(traced(lambda *a: jax.tree.leaves(function(*a)), samples))
    inward = [0 if axis == 0 else None for axis in axes]
    shapes = jax.eval_shape(lambda *a: jax.tree.leaves(jax.vmap(function, inward)(*a)), *arguments)
    return in_pallas(program, arguments, axes, shapes, [False] * len(shapes), interpret=True)


def assert_agree(actual, expected, factor=100):
    for a, e in zip(actual, expected, strict=True):
        assert a.dtype == e.dtype
        assert a.shape == e.shape
        if jnp.issubdtype(e.dtype, jnp.inexact):
            # Rounding of a sum of terms as large as the largest number, in another order.
            scale = float(jnp.max(jnp.abs(e))) + 1.0
            np.testing.assert_allclose(a, e, rtol=0, atol=factor * jnp.finfo(e.dtype).eps * scale)
        else:
            np.testing.assert_array_equal(a, e)


# The library's model has double precision.
@pytest.mark.parametrize(
    ("name", "dtype"), [(n, jnp.float64) for n in CASES] + [(n, jnp.float32) for n in list(CASES)[2:]]
)
def test_interpreted_kernel_agrees_with_xla_for_batches_that_do_not_fill_a_block(name, dtype):
    function, shapes = CASES[name]
    keys = jax.random.split(jax.random.key(0), len(shapes))
    arguments = [0.3 * jax.random.normal(k, (130, *s), dtype) for k, s in zip(keys, shapes, strict=True)]
    expected = jax.tree.leaves(jax.jit(jax.vmap(function))(*arguments))
    assert_agree(run(function, arguments, [0] * len(arguments)), expected)


def test_positions_that_differ_from_sample_to_sample():
    x = jax.random.normal(jax.random.key(1), (5, 3))
    index = jnp.array([0, 2, 1, 2, 0], jnp.int32)
    expected = jax.tree.leaves(jax.vmap(at_positions)(x, index))
    assert_agree(run(at_positions, [x, index], [0, 0]), expected)


def test_shared_arguments_are_read_by_all_samples():
    x, shared = jax.random.normal(jax.random.key(2), (7, 3)), jnp.arange(3.0)

    def function(x, s):
        return x * s, jnp.dot(x, s)

    expected = jax.vmap(function, (0, None))(x, shared)
    assert_agree(run(function, [x, shared], [0, None]), expected)
