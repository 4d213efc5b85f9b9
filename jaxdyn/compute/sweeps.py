"""Sweeps over a tree of nodes, which are compositions along paths and recursions from or to the roots.

A tree is given by the index of the parent of each node, -1 for a root; parents come before their children. A scalar program visits
node by node. For XLA, compositions use pointer jumping, whose number of steps is log2 of the depth of the tree, and recursions are
loops over the nodes, so that compile time does not grow with the tree.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree

from jaxdyn.compute.hints import writing_out

_ROOT = -1


def along_paths(parents: Sequence[int], compose: Callable[[PyTree, PyTree], PyTree], own: PyTree) -> PyTree:
    """Compositions x_i = compose(x_parent(i), own_i), and x_i = own_i for roots, of an associative operation.

    Args:
        parents: Parent of each node.
        compose: Composition of the part of a path that is nearer to the root with the part after it.
        own: Part of each node, leading axis n.
    """
    if writing_out():
        composed: list[PyTree] = []
        for i, parent in enumerate(parents):
            part = _node(own, i)
            composed.append(part if parent == _ROOT else compose(composed[parent], part))
        return _stacked(composed)

    def jump(composed, step):
        above, moving = step
        longer = jax.vmap(compose)(jax.tree.map(lambda x: _rows(x, above), composed), composed)
        return jax.tree.map(lambda new, old: jnp.where(_along(moving, old), new, old), longer, composed), None

    return jax.lax.scan(jump, own, _jumps(parents), unroll=True)[0]


def _along(moving: Bool[Array, "n"], x: Array) -> Array:
    return moving.reshape(-1, *[1] * (x.ndim - 1))


def _jumps(parents: Sequence[int]) -> tuple[Int[np.ndarray, "steps n"], Bool[np.ndarray, "steps n"]]:
    """Node just above the part of the path that is already composed, and whether there is one, before each step."""
    above, moving = [], []
    ahead = np.array(parents)
    while np.any(ahead != _ROOT):
        moving.append(ahead != _ROOT)
        above.append(np.where(moving[-1], ahead, 0))
        ahead = np.where(moving[-1], ahead[ahead], _ROOT)
    shape = (len(above), len(parents))
    return np.array(above, np.int32).reshape(shape), np.array(moving, bool).reshape(shape)


def _rows(x: Array, at: Int[Array, "n"]) -> Array:
    """The rows of other nodes at positions that are traced within a step and never negative."""
    return x.at[at].get(mode="promise_in_bounds", wrap_negative_indices=False)


def from_root_to_leaves(
    parents: Sequence[int], visit: Callable[[PyTree, PyTree], PyTree], data: PyTree, ground: PyTree
) -> PyTree:
    """Recursion x_i = visit(x_parent(i), data_i), parents first.

    Args:
        parents: Parent of each node.
        visit: Function of x of the parent and of the data of the node.
        data: Data with leading axis n.
        ground: Value of x above a root.

    Returns:
        Values x with leading axis n.
    """
    if writing_out():
        visited: list[PyTree] = []
        for i, parent in enumerate(parents):
            visited.append(visit(ground if parent == _ROOT else visited[parent], _node(data, i)))
        return _stacked(visited)
    slots = jax.tree.map(lambda g: jnp.zeros((len(parents) + 1, *g.shape), g.dtype).at[_ROOT].set(g), ground)

    def body(slots, inputs):
        index, parent, own = inputs
        x = visit(jax.tree.map(lambda s: s[parent], slots), own)
        return jax.tree.map(lambda s, new: s.at[index].set(new), slots, x), x

    return jax.lax.scan(body, slots, (*_with_slots(parents), data))[1]


def from_leaves_to_root(
    parents: Sequence[int], visit: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]], own: PyTree, data: PyTree
) -> PyTree:
    """Recursion x_i = own_i + sum of messages from the children; (message_i, result_i) = visit(x_i, data_i), leaves first.

    Args:
        parents: Parent of each node.
        visit: Function of x and of the data of the node; it returns the message to the parent and the result.
        own: Summand own_i of each node, leading axis n; messages have the same pytree structure.
        data: Additional data, leading axis n.

    Returns:
        Results with leading axis n.
    """
    if writing_out():
        sums = [_node(own, i) for i in range(len(parents))]
        results: list[PyTree] = [None] * len(parents)
        for i, parent in reversed(list(enumerate(parents))):
            message, results[i] = visit(sums[i], _node(data, i))
            if parent != _ROOT:
                sums[parent] = jax.tree.map(jnp.add, sums[parent], message)
        return _stacked(results)
    slots = jax.tree.map(lambda x: jnp.concatenate([x, jnp.zeros_like(x[:1])]), own)

    def body(slots, inputs):
        index, parent, item = inputs
        message, result = visit(jax.tree.map(lambda s: s[index], slots), item)
        return jax.tree.map(lambda s, m: s.at[parent].add(m), slots, message), result

    return jax.lax.scan(body, slots, (*_with_slots(parents), data), reverse=True)[1]


def _with_slots(parents: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Each node and the slot of its parent; the slot after those of all nodes is that of the ground."""
    return np.arange(len(parents)), np.where(np.array(parents) == _ROOT, len(parents), parents)


def _node(tree: PyTree, i: int) -> PyTree:
    return jax.tree.map(lambda x: x[i], tree)


def _stacked(nodes: list[PyTree]) -> PyTree:
    return jax.tree.map(lambda *parts: jnp.stack(parts), *nodes)
