"""Sweeps over the tree of bodies; no other module iterates over the tree.

Composition along paths and sums have no loop over bodies, so their compile time does not grow with the mechanism: composition uses
pointer jumping (the number of steps is log2 of the depth of the tree), and sums are products with the incidence matrix eta. The
recursions `from_root_to_leaves` and `from_leaves_to_root` use `jax.lax.scan` over bodies. When the lane compiler (`jaxdyn.lanes`)
unrolls a function, all sweeps are computed body by body instead.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxdyn.lanes.tracing import writing_out
from jaxdyn.mechanism.topology import GROUND, Topology
from jaxdyn.spatial.arrays import dot, rows_at
from jaxdyn.spatial.transform import RigidTransform

_LONGEST_SUM = 32  # summands; the work of a plain sum grows with their square


def compose_along_paths(topology: Topology, local: RigidTransform) -> RigidTransform:
    """Placements in the ground: product of the local placements along the path from the root to each body.

    Each step of pointer jumping doubles the length of the path that a placement covers. Source: theory.md (A6), (E1), (E2).

    Args:
        topology: Topology of the mechanism.
        local: Placement of each body in its parent, leading axis nb.
    """
    if writing_out():
        return _composed_one_by_one(topology, local)

    def compose(above: Float[Array, "7"], placement: Float[Array, "7"]) -> Float[Array, "7"]:
        longer = RigidTransform(above[:4], above[4:]).compose(RigidTransform(placement[:4], placement[4:]))
        return jnp.concatenate([longer.quaternion, longer.translation])

    ahead = np.array(topology.parents)  # the body just above the part of the path that is already composed
    # With quaternion and translation in one array, each step is one kernel.
    placement = jnp.concatenate([local.quaternion, local.translation], axis=1)
    while np.any(ahead != GROUND):
        moving = ahead != GROUND
        placement = jnp.where(moving[:, None], jax.vmap(compose)(rows_at(placement, ahead), placement), placement)
        ahead = np.where(moving, ahead[ahead], GROUND)
    return RigidTransform(placement[:, :4], placement[:, 4:])


def _composed_one_by_one(topology: Topology, local: RigidTransform) -> RigidTransform:
    """The result of `compose_along_paths` with one composition per body: fewer operations, but more code."""
    placed: list[RigidTransform] = []
    for i, parent in enumerate(topology.parents):
        own = jax.tree.map(lambda x, i=i: x[i], local)
        placed.append(own if parent == GROUND else placed[parent].compose(own))
    return jax.tree.map(lambda *parts: jnp.stack(parts), *placed)


def of_columns(topology: Topology, per_body: PyTree) -> PyTree:
    """Data of the body that each velocity component (column) moves directly; arrays (nb, *rest) become (nv, *rest)."""
    return jax.tree.map(lambda x: rows_at(x, topology.body_of_column), per_body)


def sum_over_columns(topology: Topology, per_column: Float[Array, "nv *rest"]) -> Float[Array, "nb *rest"]:
    """Sum of a quantity over all columns (velocity components) that move each body."""
    eta = topology.column_moves_body.astype(per_column.dtype)
    return _summed(eta, per_column)


def sum_over_ancestors(topology: Topology, per_body: Float[Array, "nb *rest"]) -> Float[Array, "nb *rest"]:
    """Sum of a quantity over the bodies on the path from the root to each body, including this body."""
    eta = topology.precedes.astype(per_body.dtype)
    return _summed(eta, per_body)


def sum_over_descendants(topology: Topology, per_body: Float[Array, "nb *rest"]) -> Float[Array, "nb *rest"]:
    """Sum of a quantity over the subtree of each body, including this body."""
    eta = topology.precedes.astype(per_body.dtype)
    return _summed(eta.T, per_body)


def _summed(eta: Float[np.ndarray, "n m"], x: Float[Array, "n *rest"]) -> Float[Array, "m *rest"]:
    """Sums of those rows of x that the rows of the incidence matrix eta select."""

    def as_product(x):
        # With the summed axis last, each sample of a batch is contiguous in memory.
        return jnp.moveaxis(dot(jnp.moveaxis(x, 0, -1), eta), -1, 0)

    def as_sum(x):
        # A call of a matrix library would be a separate kernel, with additional ones to reorder its operands.
        return jnp.sum(eta.reshape(*eta.shape, *[1] * (x.ndim - 1)) * x[:, None], axis=0)

    if writing_out() or len(x) > _LONGEST_SUM:
        return as_product(x)
    return jax.lax.platform_dependent(x, cpu=as_product, default=as_sum)


def from_root_to_leaves(
    topology: Topology, visit: Callable[[PyTree, PyTree], PyTree], per_body: PyTree, ground: PyTree
):
    """Recursion x_i = visit(x_parent(i), data_i), parents first.

    Args:
        topology: Topology of the mechanism.
        visit: Function of x of the parent and of the data of the body.
        per_body: Data with leading axis nb.
        ground: Value of x for the ground.

    Returns:
        Values x with leading axis nb.
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

    # The ground uses the last slot, to which the index -1 refers.
    parents = np.where(np.array(topology.parents) == GROUND, topology.nb, topology.parents)
    return jax.lax.scan(body, slots, (np.arange(topology.nb), parents, per_body))[1]


def from_leaves_to_root(
    topology: Topology, visit: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]], own: PyTree, data: PyTree
):
    """Recursion x_i = own_i + sum of messages from the children; (message_i, result_i) = visit(x_i, data_i), leaves first.

    Args:
        topology: Topology of the mechanism.
        visit: Function of x and of the data of the body; it returns the message to the parent and the result.
        own: Summand own_i of each body, leading axis nb; messages have the same pytree structure.
        data: Additional data, leading axis nb.

    Returns:
        Results with leading axis nb.
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
