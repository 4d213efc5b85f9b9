"""An error of the lane compiler itself does not end the program of a user: XLA compiles the function, and a record says why."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from jaxdyn.compute import batched, per_sample
from jaxdyn.lanes import CannotFlatten, cpu, flatten, records
from jaxdyn.lanes.liveness import Liveness

X = jnp.linspace(0.1, 0.9, 6).reshape(3, 2)


def failing(*args, **kwargs):
    raise IndexError("a slip")


def rule_fails(monkeypatch):
    monkeypatch.setitem(flatten.RULES, "sin", flatten.Rule(failing))


def text_fails(monkeypatch):
    monkeypatch.setattr(cpu, "compile_program", failing)


def analysis_fails(monkeypatch):
    monkeypatch.setattr(Liveness, "__init__", failing)


@pytest.fixture(params=[rule_fails, text_fails, analysis_fails])
def slip(request, monkeypatch):
    request.param(monkeypatch)
    monkeypatch.setattr(flatten, "UNEXPECTED", (Exception,))  # as for users


def function(x):
    return jnp.sin(x) * x[0]


def test_xla_takes_over_and_the_record_names_the_error(slip):
    before = len(records())
    np.testing.assert_allclose(batched(function, name="slipped")(X), jax.vmap(function)(X), rtol=1e-13)
    (record,) = records()[before:]
    assert (record.name, record.backend) == ("slipped", "xla")
    assert record.reason.startswith("the lane compiler failed by IndexError: a slip")


def test_derivatives_fall_back_too(slip):
    slopes = jax.grad(lambda x: jnp.sum(batched(function)(x)))(X)
    np.testing.assert_allclose(slopes, jax.grad(lambda x: jnp.sum(jax.vmap(function)(x)))(X), rtol=1e-13)


@pytest.mark.parametrize("count", [0, 3])
def test_xla_takes_over_within_shard_map(slip, count):
    """The arguments then vary between devices, and constants in derivatives of the function do not."""

    def with_tangent(x):
        return jnp.sin(x) * jax.jvp(jax.lax.exp2, (x,), (jnp.ones_like(x),))[1]

    def over_devices(function):
        mesh, spec = Mesh(np.array(jax.devices()[:1]), ("lanes",)), PartitionSpec("lanes")
        mapped = jax.shard_map(jax.vmap(function), mesh=mesh, in_specs=spec, out_specs=spec)
        return jax.jit(mapped)(X[:count])

    np.testing.assert_allclose(over_devices(per_sample(with_tangent)), over_devices(with_tangent), rtol=1e-13)


def test_who_requires_lanes_receives_the_error(slip):
    with pytest.raises(CannotFlatten, match="the lane compiler failed by IndexError: a slip"):
        batched(function, backend="lanes")(X)


def test_these_tests_see_every_such_error(monkeypatch):
    rule_fails(monkeypatch)
    assert flatten.UNEXPECTED == ()
    with pytest.raises(IndexError, match="a slip"):
        batched(function)(X)


EMPTY = jnp.ones((3, 0))
ZERO_SIZES = {
    "sort": jnp.sort,
    "argsort": jnp.argsort,
    "solve": lambda x: jnp.linalg.solve(jnp.zeros((0, 0), x.dtype), x),
    "inverse": lambda x: jnp.linalg.inv(x[:, None] * x[None]),
    "triangular solve of no matrix": lambda x: jax.scipy.linalg.solve_triangular(
        jnp.zeros((0, 2, 2), x.dtype), jnp.zeros((0, 2, 1), x.dtype)
    ),
    "Cholesky factor": lambda x: jnp.linalg.cholesky(x[:, None] * x[None]),
    "sums": lambda x: (jnp.sum(x), jnp.cumsum(x), jnp.prod(x), jnp.any(x > 0)),
    "products": lambda x: (x @ x, jnp.outer(x, x), jnp.outer(jnp.ones(2, x.dtype), x)),
    "positions": lambda x: (
        x.at[x.astype(jnp.int32)].add(1.0),
        x[::-1],
        jnp.concatenate([x, x]),
        x.at[:].apply(jnp.sin),
    ),
    "scan": lambda x: jax.lax.scan(lambda c, y: (c + y, y), x.dtype.type(1), x),
    "map": lambda x: jax.vmap(lambda y: jnp.sin(y) + jnp.ones(3, x.dtype))(x),
}


@pytest.mark.parametrize("name", ZERO_SIZES)
def test_arrays_without_elements(name):
    found = jax.jit(jax.vmap(per_sample(ZERO_SIZES[name], backend="lanes")))(EMPTY)
    expected = jax.jit(jax.vmap(ZERO_SIZES[name]))(EMPTY)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
