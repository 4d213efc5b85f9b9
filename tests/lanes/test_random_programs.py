"""Random programs over all primitives, at edge values, by lanes and by XLA; and their transformations."""

import jax
import jax.numpy as jnp
import numpy as np
from edge_values import assert_same
from hypothesis import strategies as st
from jax.sharding import Mesh, PartitionSpec
from random_programs import LANES, SIZE, inputs, programs, random, types

from jaxdyn.lanes import lane_function


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


def test_transformations_agree(exhaustive):
    """Derivatives at moderate numbers, where no infinite factor meets a zero; with one more axis of lanes, and over a mesh."""
    mesh = Mesh(np.array(jax.devices()[:1]), ("lanes",))

    def test(data):
        program = data.draw(programs("float64", "int32", length=5))
        rng = np.random.default_rng(data.draw(st.integers(0, 999)))
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

    random(test, 600 if exhaustive else 10)
