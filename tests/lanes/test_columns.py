"""Matrices whose columns are computed in groups equal those that one program computes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from control_problems import cart_pole, solved, start_of

from jaxdyn.compute import backend, columnwise, operations_of
from jaxdyn.compute import programs as grouping
from jaxdyn.control import MultipleShooting

MIXING = np.random.default_rng(0).normal(size=(7, 7))


def waves(q, v):
    return jnp.sin(MIXING @ q) * v + v**3


def columns(directions, q, v):
    products = [
        jax.vmap(lambda d: jax.jvp(lambda x: waves(x, v), (q,), (d,))[1], out_axes=-1)(jnp.asarray(directions)),
        jax.vmap(lambda d: jax.jvp(lambda x: waves(q, x), (v,), (d,))[1], out_axes=-1)(jnp.asarray(directions)),
    ]
    return tuple(products)


@pytest.mark.parametrize("groups", [1, 2, 3, 7])
def test_groups_give_the_jacobian(groups, monkeypatch):
    """Also if the last group is not full, and under vmap and grad."""
    monkeypatch.setattr(grouping, "_MOST_OPERATIONS", 0)
    monkeypatch.setattr(grouping, "_OPERATIONS_OF_GROUP", -(-7 // groups))
    q, v = jax.random.normal(jax.random.key(0), (2, 5, 7))
    grouped = columnwise(columns, np.eye(7), operations=1.0, name="columns")
    expected = jax.vmap(jax.jacfwd(waves, (0, 1)))(q, v)
    for a, b in zip(jax.jit(jax.vmap(grouped))(q, v), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    slope = jax.grad(lambda q: jnp.sum(grouped(q, v[0])[0] ** 2))(q[0])
    wanted = jax.grad(lambda q: jnp.sum(jax.jacfwd(waves)(q, v[0]) ** 2))(q[0])
    np.testing.assert_allclose(slope, wanted, rtol=1e-9, atol=1e-11)


def test_a_short_program_computes_all_columns(monkeypatch):
    monkeypatch.setattr(grouping, "_MOST_OPERATIONS", 7_000)
    q = jnp.zeros(7)
    for operations, lanes in ((1_000.0, 1), (1_001.0, 7), (None, 1)):
        monkeypatch.setattr(grouping, "_OPERATIONS_OF_GROUP", 1_000)
        traced = jax.make_jaxpr(columnwise(columns, np.eye(7), operations=operations, name="a"))(q, q)
        (call,) = [e for e in traced.eqns if e.primitive.name == "lane_call"]
        assert (call.params["size"] or 1) == lanes


def test_operations_are_counted_for_the_lane_compiler_only():
    q = jnp.zeros(7)
    assert 90 < operations_of(waves, (q, q)) < 200
    with backend("xla"):
        assert operations_of(waves, (q, q)) is None
    assert operations_of(lambda x: jax.lax.reduce_precision(x, 5, 4), (q[0],)) is None


def test_a_search_with_grouped_columns_takes_the_same_steps(monkeypatch):
    problem = cart_pole(20, 20.0)
    usual = solved(problem, MultipleShooting(), start_of(problem), max_steps=8)
    monkeypatch.setattr(grouping, "_MOST_OPERATIONS", 0)
    monkeypatch.setattr(grouping, "_OPERATIONS_OF_GROUP", 1)
    grouped = solved(problem, MultipleShooting(), start_of(problem), max_steps=8)
    np.testing.assert_allclose(grouped.value.controls, usual.value.controls, rtol=1e-6, atol=1e-8)
