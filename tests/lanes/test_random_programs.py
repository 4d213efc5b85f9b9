"""Random programs over all primitives, at edge values, by lanes and by XLA; and their transformations."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from edge_values import assert_same
from hypothesis import strategies as st
from jax.sharding import Mesh, PartitionSpec
from random_programs import LANES, SIZE, Program, inputs, programs, random, types

from jaxdyn.lanes import lane_function


def test_what_xla_answers_otherwise_of_known_operands_is_left_out():
    names = ["asinh", "cummax", "i div", "i rem", "index f", "slice i", "rolled f", "rolled i"]

    def test(data):
        program = data.draw(programs("float64", "uint16", names=names))
        known = [False] * 3 + [True] * 3
        for name, operands in program.steps:
            among = [known[k] for k in operands]
            assert not (all(among) and name in names[:4]), program
            assert not (among[-1] and name in names[4:6]), program
            met[name] += 1
            known.append(all(among))

    met: Counter[str] = Counter()
    random(test, 20)
    assert set(met) == set(names)


def test_values_agree(exhaustive):
    def test(data):
        dtypes = types(data)
        program = data.draw(programs(*dtypes))
        args = inputs(data.draw(st.integers(0, 999)), (*dtypes, "bool"))
        found = jax.jit(jax.vmap(lane_function(program, backend="lanes")))(*args)
        expected = jax.jit(jax.vmap(program))(*args)
        names = [f"{k + 6} {name} of {operands}" for k, (name, operands) in enumerate(program.steps)]
        assert_same(dict(zip(names, found, strict=True)), dict(zip(names, expected, strict=True)), args, 1000)

    random(test, 3000 if exhaustive else 30)


def transformations_agree(program: Program, seed: int) -> None:
    """Derivatives at moderate numbers, where no infinite factor meets a zero; with one more axis of lanes, and over a mesh."""
    mesh = Mesh(np.array(jax.devices()[:1]), ("lanes",))
    rng = np.random.default_rng(seed)
    x, dx = rng.uniform(0.3, 0.9, (2, 3, LANES, SIZE))
    i, b = rng.integers(-6, 6, (3, LANES, SIZE), np.int32), rng.random((3, LANES, SIZE)) < 0.5

    def results(function):
        def floats(x, i, b):
            return [y for y in function(x, i, b) if y.dtype == x.dtype]

        def derivatives(x, dx, i, b):
            y, tangents = jax.jvp(lambda x: floats(x, i, b), (x,), (dx,))
            _, pull = jax.vjp(lambda x: floats(x, i, b), x)
            return y, tangents, pull(jax.tree.map(jnp.ones_like, y))

        spec = PartitionSpec(None, "lanes")
        over_mesh = jax.shard_map(jax.vmap(jax.vmap(derivatives)), mesh=mesh, in_specs=spec, out_specs=spec)
        return jax.jit(over_mesh)(x, dx, i, b)

    found, expected = results(lane_function(program, backend="lanes")), results(program)
    for a, e in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        # A known zero times an infinite factor is zero by lanes, and not a number by XLA.
        a, e = (np.where(np.isfinite(e), z, 0.0) for z in (a, e))
        np.testing.assert_allclose(a, e, rtol=1e-9, atol=1e-9, err_msg=repr(program))


def test_transformations_agree(exhaustive):
    def test(data):
        transformations_agree(data.draw(programs("float64", "int32", length=5)), data.draw(st.integers(0, 999)))

    random(test, 600 if exhaustive else 10)


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([("loop of 3 f", (3, 1))], id="loop along a known array"),
        pytest.param([("ceil", (0,)), ("add", (0, 6))], id="derivative that is known in part"),
    ],
)
def test_transformations_agree_where_operands_are_placed_differently(steps):
    constants = [np.array([0.5, 2.5, 1e-3, -88.9]), np.array([7, -3, 31, 9], np.int32), np.array([True, False] * 2)]
    transformations_agree(Program(constants, steps), seed=0)
