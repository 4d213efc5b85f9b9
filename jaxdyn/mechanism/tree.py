"""Sweeps over the tree. This is the only file that runs along it.

The first four functions have no loop over bodies, so the time to compile them does not grow with the mechanism: composition by
pointer jumping (log2 of the depth many steps) and sums as products with the incidence matrix eta. The last two are true recursions,
as `jax.lax.scan` over bodies. Where the lane compiler writes a function out, all of them run body by body instead.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxdyn.lanes.tracing import writing_out
from jaxdyn.mechanism.topology import GROUND, Topology
from jaxdyn.spatial.arrays import einsum
from jaxdyn.spatial.transform import RigidTransform


def compose_along_paths(topology: Topology, local: RigidTransform) -> RigidTransform:
    """Placements in the ground: product of the local placements along the path from the root to each body.

    Each step doubles the length of path that a placement covers. Source: theory.md (A6), (E1), (E2).

    Args:
        local: (nb,) placement of each body in its parent.
    """
    if writing_out():
        return _composed_one_by_one(topology, local)
    compose = jax.vmap(RigidTransform.compose)
    ahead = np.array(topology.parents)  # the body just above the stretch of path already composed
    placement = local
    while np.any(ahead != GROUND):
        moving = ahead != GROUND
        above = jax.tree.map(lambda x, a=ahead: x[a], placement)
        longer = compose(above, placement)
        placement = jax.tree.map(lambda new, old, m=moving: jnp.where(m[:, None], new, old), longer, placement)
        ahead = np.where(moving, ahead[ahead], GROUND)
    return placement


def _composed_one_by_one(topology: Topology, local: RigidTransform) -> RigidTransform:
    """The same product, one composition per body: fewer operations, more code."""
    placed: list[RigidTransform] = []
    for i, parent in enumerate(topology.parents):
        own = jax.tree.map(lambda x, i=i: x[i], local)
        placed.append(own if parent == GROUND else placed[parent].compose(own))
    return jax.tree.map(lambda *parts: jnp.stack(parts), *placed)


def sum_over_columns(topology: Topology, per_column: Float[Array, "nv *rest"]) -> Float[Array, "nb *rest"]:
    """For each body, the sum of a quantity over all columns (velocity components) that move it."""
    eta = topology.column_moves_body.astype(per_column.dtype)
    return einsum("ai,a...->i...", eta, per_column)


def sum_over_ancestors(topology: Topology, per_body: Float[Array, "nb *rest"]) -> Float[Array, "nb *rest"]:
    """For each body, the sum of a quantity over the bodies on its path from the root, itself included."""
    eta = topology.precedes.astype(per_body.dtype)
    return einsum("ki,k...->i...", eta, per_body)


def sum_over_descendants(topology: Topology, per_body: Float[Array, "nb *rest"]) -> Float[Array, "nb *rest"]:
    """For each body, the sum of a quantity over its subtree, itself included."""
    eta = topology.precedes.astype(per_body.dtype)
    return einsum("ki,i...->k...", eta, per_body)


def from_root_to_leaves(
    topology: Topology, visit: Callable[[PyTree, PyTree], PyTree], per_body: PyTree, ground: PyTree
):
    """Recursion x_i = visit(x_parent(i), data_i), parents first.

    Args:
        per_body: data with leading axis nb.
        ground: value of x for the ground.

    Returns:
        x with leading axis nb.
    """
    if writing_out():
        visited: list[PyTree] = []
        for i, parent in enumerate(topology.parents):
            data = jax.tree.map(lambda x, i=i: x[i], per_body)
            visited.append(visit(ground if parent == GROUND else visited[parent], data))
        return jax.tree.map(lambda *parts: jnp.stack(parts), *visited)
    slots = jax.tree.map(lambda g: jnp.zeros((topology.nb + 1, *g.shape), g.dtype).at[GROUND].set(g), ground)

    def body(slots, inputs):
        index, parent, data = inputs
        x = visit(jax.tree.map(lambda s: s[parent], slots), data)
        return jax.tree.map(lambda s, new: s.at[index].set(new), slots, x), x

    # The ground keeps the last slot, which is where index -1 points.
    parents = np.where(np.array(topology.parents) == GROUND, topology.nb, topology.parents)
    return jax.lax.scan(body, slots, (np.arange(topology.nb), parents, per_body))[1]


def from_leaves_to_root(
    topology: Topology, visit: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]], own: PyTree, data: PyTree
):
    """Recursion x_i = own_i + sum of messages from the children; (message_i, result_i) = visit(x_i, data_i), leaves first.

    Args:
        own: summand of each body, leading axis nb; messages have its structure.
        data: further data, leading axis nb.

    Returns:
        The results, leading axis nb.
    """
    if writing_out():
        sums = [jax.tree.map(lambda x, i=i: x[i], own) for i in range(topology.nb)]
        results: list[PyTree] = [None] * topology.nb
        for i, parent in reversed(list(enumerate(topology.parents))):
            message, results[i] = visit(sums[i], jax.tree.map(lambda x, i=i: x[i], data))
            if parent != GROUND:
                sums[parent] = jax.tree.map(jnp.add, sums[parent], message)
        return jax.tree.map(lambda *parts: jnp.stack(parts), *results)
    slots = jax.tree.map(lambda x: jnp.concatenate([x, jnp.zeros_like(x[:1])]), own)

    def body(slots, inputs):
        index, parent, item = inputs
        message, result = visit(jax.tree.map(lambda s: s[index], slots), item)
        return jax.tree.map(lambda s, m: s.at[parent].add(m), slots, message), result

    parents = np.where(np.array(topology.parents) == GROUND, topology.nb, topology.parents)
    return jax.lax.scan(body, slots, (np.arange(topology.nb), parents, data), reverse=True)[1]
