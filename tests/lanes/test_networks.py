"""Small neural networks in lanes: products with large matrices become loops, gradients with respect to weights sums after loops."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxdyn
from jaxdyn.compute import per_sample
from jaxdyn.lanes import records
from jaxdyn.lanes.derived import program_of
from jaxdyn.lanes.liveness import Liveness

LANES = 5  # a vector of four and a lane again


def compare(function, args, in_axes: int | tuple = 0, rtol: float = 1e-12):
    """Lanes against XLA, to some thousand roundings of the largest number, for sums of as many terms of either sign."""
    found = jax.jit(jax.vmap(per_sample(function, backend="lanes"), in_axes))(*args)
    expected = jax.jit(jax.vmap(function, in_axes))(*args)
    for a, e in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.shape == e.shape
        np.testing.assert_allclose(a, e, rtol=rtol, atol=rtol * max(1.0, np.abs(e).max()))


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def outer(y, x):
    """As derivatives make it, a product without a sum."""
    return jnp.tensordot(y, x, 0)


def network(sizes=(30, 24, 2), depth=1, activation=jnp.tanh, dtype=jnp.float64):
    """Weights, and the network as a function of weights and input."""
    inside, units, outside = sizes
    net = eqx.nn.MLP(inside, outside, units, depth, activation, dtype=dtype, key=jax.random.key(0))
    weights, rest = eqx.partition(net, eqx.is_array)
    return weights, lambda weights, x: eqx.combine(weights, rest)(x)


def nodes(function, *args) -> int:
    """Operations of the program that are written down, however often loops repeat them."""
    return len(Liveness(program_of(jax.make_jaxpr(function)(*args))).nodes)


@pytest.mark.parametrize("name", ["tanh", "relu", "elu", "silu", "gelu", "softplus", "sigmoid"])
def test_values_and_derivatives_of_networks(name):
    weights, call = network(activation=getattr(jax.nn, name))

    def results(weights, x, dx, dy):
        y, tangent = jax.jvp(lambda x: call(weights, x), (x,), (dx,))
        _, pull = jax.vjp(call, weights, x)
        return y, tangent, pull(dy)

    args = normal(1, LANES, 30), normal(2, LANES, 30), normal(3, LANES, 2)
    compare(results, (weights, *args), (None, 0, 0, 0))


@pytest.mark.parametrize(
    ("rows", "columns"), [(1, 1), (16, 32), (19, 27), (17, 33), (33, 17), (2, 300), (300, 2), (1, 600), (600, 1)]
)
def test_products_of_all_sizes(rows, columns):
    """Around the size that becomes a loop (512 multiplications), thin ones, and those that tiles do not divide."""

    def products(w, x, y, several, points):
        return w @ x, y @ w, w @ several, (w @ several).T, points @ w.T, jnp.tensordot(y, x, 0) @ x

    args = normal(0, rows, columns), normal(1, LANES, columns), normal(2, LANES, rows), normal(3, LANES, columns, 3)
    compare(products, (*args, normal(4, LANES, 2, columns)), (None, 0, 0, 0, 0))


def test_matrices_of_each_lane_and_known_ones():
    w = normal(0, 27, 25)
    sparse = np.where(np.arange(25) % 9 == 0, w, 0.0)
    mask = np.tril(np.ones((40, 25)))

    def products(own, x):
        return own @ x, w @ x, sparse @ x, mask @ x, x @ w.T @ own

    compare(products, (normal(1, LANES, 27, 25), normal(2, LANES, 25)))


def test_jacobians_of_networks():
    weights, call = network()

    def jacobians(weights, x):
        return jax.jacfwd(call, 1)(weights, x), jax.jacrev(call, 1)(weights, x)

    compare(jacobians, (weights, normal(1, LANES, 30)), (None, 0))


@pytest.mark.parametrize("turns", [3, 150, 4000])
def test_sums_of_outer_products_over_the_turns_of_a_loop(turns):
    """Few turns are written out, many become one product after the loop, and still more would collect too much for that."""

    def sums(start, x, y):
        def turn(carry, k):
            total, turned, both, dense, s = carry
            step = outer(y * s, x)
            total, turned = total + step, turned + ((x[:, None] * s) @ y[None] + step.T)
            both, dense = both + (step + outer(jnp.cos(y), s * x)), dense + jnp.sin(step)
            return (total, turned, both, dense, jnp.sin(s + k)), jnp.sum(x) * s

        first = (start, start.T, jnp.zeros_like(start), start, jnp.ones(()))
        return lax.scan(turn, first, jnp.arange(turns, dtype=start.dtype), reverse=True)

    compare(sums, (normal(0, 24, 25), normal(1, LANES, 25), normal(2, LANES, 24)), (None, 0, 0))


def test_sums_of_loops_within_loops():
    def sums(x, y):
        def inner(carry, k):
            total, s = carry
            return (total + outer(y * s, x), jnp.cos(s * k)), None

        def around(carry, k):
            total, s = carry
            own, s = lax.scan(inner, (jnp.zeros((24, 25)), s), jnp.arange(40.0))[0]
            return (total + own, s + k), None

        return lax.scan(around, (jnp.ones((24, 25)), jnp.ones(())), jnp.arange(60.0))[0]

    compare(sums, (normal(1, LANES, 25), normal(2, LANES, 24)))


def test_layers_are_loops_whose_code_does_not_grow_with_the_units():
    """Products, biases, activations and random numbers: only the few inputs and results are separate scalars."""

    def operations(units: int) -> tuple[int, int]:
        weights, call = network((30, units, 30), depth=2)

        def noisy(weights, x, seed):
            y = call(weights, x)
            return y[:1] * jnp.sum(jax.random.normal(jax.random.key(seed), (units,)))

        return nodes(call, weights, jnp.ones(30)), nodes(noisy, weights, jnp.ones(30), jnp.uint32(1))

    (few, few_random), (many, many_random) = operations(64), operations(192)
    assert many == few
    # Some conversions and stores per random number instead of more than two hundred operations.
    assert many_random - few_random < 128 * 20


@pytest.mark.parametrize("units", [3, 24, 40])
def test_functions_of_each_element_in_loops(units):
    """The transcendental functions and those composed of them, of arrays with and without known elements, and their derivatives."""
    unary = (jnp.tanh, jnp.exp, jnp.expm1, jnp.arctan, jax.nn.sigmoid, jnp.sinh, jnp.arcsinh, jax.lax.erf)
    positive = (jnp.log, jnp.log1p, jnp.log2, jax.lax.rsqrt)
    within_one = (jnp.arcsin, jnp.arccos, jnp.arctanh, jax.lax.erf_inv)

    def results(x, dx):
        def every(x):
            size, small = jnp.abs(x) + 0.1, x / (1.0 + jnp.abs(x))
            of_all = [*(f(x) for f in unary), *(f(size) for f in positive), *(f(small) for f in within_one)]
            matrix = jnp.exp(jnp.stack([x, x[::-1]])).T
            return *of_all, matrix, jnp.tanh(x.at[units // 2].set(0.5)), jnp.tanh(jnp.full(units, 0.3)) * x

        values, tangents = jax.jvp(every, (x,), (dx,))
        return values, tangents, jax.grad(lambda x: sum(jnp.sum(y**2) for y in every(x)))(x)

    compare(results, (normal(0, LANES, units), normal(1, LANES, units)), 0, 1e-11)


def test_programs_grow_with_the_units_and_not_with_their_square():
    def size(units: int) -> int:
        weights, call = network((30, units, 12), depth=2)

        def loss(weights, x):
            def turn(x, _):
                return x + 0.1 * jnp.tile(call(weights, x), 3)[:30], None

            return jnp.sum(lax.scan(jax.checkpoint(turn), x, None, length=300)[0] ** 2)

        return nodes(jax.grad(loss), weights, jnp.ones(30))

    small, large = size(32), size(96)
    assert large < 3 * small
    assert large < 8000  # written out, the 13248 weights alone would take three multiplications each


@pytest.mark.thorough
@pytest.mark.parametrize(("dtype", "rtol"), [(jnp.float64, 1e-10), (jnp.float32, 2e-4)])
def test_rollouts_with_a_noisy_network_as_policy(dtype, rtol):
    """The gradient of 24 steps in single precision keeps what rounding leaves of numbers that cancel."""
    system = jaxdyn.as_dtype(jaxdyn.System(jaxdyn.library.double_pendulum()), dtype)
    weights, call = network((4, 24, 2), depth=2, dtype=dtype)

    def final(weights, q, v, key, backend):
        def policy(t, state, key):
            return call(weights, jnp.concatenate([state.q, state.v])) + 0.1 * jax.random.normal(key, (2,), dtype)

        options = {"dt": 0.01, "steps": 24, "save_every": 12, "backend": backend}
        trajectory = jaxdyn.rollout(system, jaxdyn.State(q, v), policy, key=key, **options)
        return trajectory.final.q, trajectory.final.v

    def results(backend):
        def loss(weights):
            q, v = jax.vmap(lambda q, v, key: final(weights, q, v, key, backend))(*states, keys)
            return jnp.sum(q**2) + jnp.sum(v**2), (q, v)

        return jax.jit(jax.value_and_grad(loss, has_aux=True))(weights)

    states = [jnp.asarray(normal(k, LANES, 2), dtype) for k in (1, 2)]
    keys = jax.random.split(jax.random.key(0), LANES)
    before = len(records())
    found = results("lanes")
    served = {r.name: r.backend for r in records()[before:]}
    assert set(served.values()) == {"lanes"}
    assert "rollout.tangent.transpose" in served
    for a, e in zip(jax.tree.leaves(found), jax.tree.leaves(results("xla")), strict=True):
        np.testing.assert_allclose(a, e, rtol=rtol, atol=rtol * np.abs(e).max())
