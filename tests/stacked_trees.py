"""Small random trees stacked along a leading axis, so that one compiled function is tried on many mechanisms and motions."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from random_trees import random_model, random_motion

from jaxdyn import batched, configuration

_FOREST = {"parents": [-1, 0, 0, 1, -1, 4], "kinds": "RRPRPR", "armature": True}


def stacked_trees(count: int = 6) -> tuple[PyTree, ...]:
    """Forests of one topology, q, v and two more vectors (accelerations, forces), all with leading axis `count`.

    The last mechanism is at rest at its neutral configuration, where formulas with norms or quotients of angles break.
    """
    rng = np.random.default_rng([7, 1])
    samples = []
    for _ in range(count):
        model = random_model(rng, 6, name="forest", **_FOREST)
        samples.append((model, *random_motion(rng, model), random_motion(rng, model)[2]))
    model, _, _, *others = samples[-1]
    samples[-1] = (model, configuration.neutral(model), jnp.zeros(model.nv), *others)
    return jax.tree.map(lambda *x: jnp.stack(x), *samples)


def evaluated(function: Callable, *samples: PyTree, in_lanes: bool = False) -> PyTree:
    """Results of a per-sample function on stacked samples, compiled by XLA or by the lane compiler.

    The lane compiler takes about half of the time of XLA for derivatives, and longer for results of hundreds of numbers per sample.
    """
    return batched(function, backend="lanes" if in_lanes else "xla")(*samples)


def numbers(tree: PyTree) -> jax.Array:
    """All results, flat, per sample."""
    return jnp.concatenate([x.reshape(len(x), -1) for x in jax.tree.leaves(tree)], axis=1)


def agree(actual: PyTree, expected: PyTree, tolerance: float = 1e-10) -> None:
    """Equal to `tolerance`, relative to the largest number of each sample, and at least absolutely."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    a, b = np.asarray(numbers(actual), np.float64), np.asarray(numbers(expected), np.float64)
    size = np.maximum(1.0, np.max(np.abs(b), axis=1, keepdims=True))
    assert np.all(np.isfinite(b))
    np.testing.assert_array_less(np.abs(a - b) / size, tolerance)
