"""Sweeps over a tree of nodes, which are compositions along paths and recursions from or to the roots.

A tree is given by the index of the parent of each node, -1 for a root; parents come before their children. A scalar program visits
node by node, or has loops along the chains of a long tree. For XLA, compositions use pointer jumping, whose number of steps is log2
of the depth of the tree, and recursions are loops over the nodes, so that compile time does not grow with the tree.
"""

import itertools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree

from jaxdyn.compute.arrays import rows_at
from jaxdyn.compute.hints import may_loop, writing_out

_ROOT = -1
# Longer chains, in degrees of freedom, become loops: their code would take the compiler too long. The code of each node is up to
# twice as fast as a loop, where the axes of neighboring joints are parallel.
_LONGEST_WRITTEN_OUT = 64
_SHORTEST_LOOP = 8  # shorter parts of chains are not worth a loop


def is_looped(length: int) -> bool:
    """True while a scalar program is written, which has loops along chains with so many degrees of freedom."""
    looped = may_loop() and length > _LONGEST_WRITTEN_OUT
    if looped:
        _looped_lengths.add(length)
    return looped


_looped_lengths: set[int] = set()  # of this process


def has_made_loops() -> bool:
    """Whether any scalar program of this process may have loops over nodes."""
    return bool(_looped_lengths)


def separated(x: Array, *, looped: bool) -> Array:
    """The array, whose entries are separate values of a scalar program also if loops have stored them in memory.

    Products of all pairs of rows need this: their results are too large to be in memory.
    """
    return _rows(x, jnp.arange(len(x))) if looped else x


def of_each(function: Callable[..., PyTree], *data: PyTree, count: int, looped: bool) -> PyTree:
    """Values of a function for each of several nodes, as by `jax.vmap`.

    Args:
        function: Function of the data of one node.
        data: Arguments of the function, with leading axis `count`.
        count: Number of nodes.
        looped: True for a loop over the nodes.
    """
    if count == 1:  # `jax.vmap` would trace the function and then its batch
        own = jax.tree.map(lambda x: jnp.asarray(x[0]), data)
        return jax.tree.map(lambda x: jnp.asarray(x)[None], function(*own))
    if not looped:
        return jax.vmap(function, axis_size=count)(*data)
    return jax.lax.scan(lambda _, own: (None, function(*own)), None, data, length=count)[1]


def of_each_with_shared(
    function: Callable[..., PyTree], shared: PyTree, rows: Int[np.ndarray, "n"], *data: PyTree, looped: bool
) -> PyTree:
    """Values of a function of a row of arrays that several nodes share, and of the data of each node.

    Args:
        function: Function of a row of `shared` and of the data of one node.
        shared: Arrays whose rows the nodes share.
        rows: Row of each node.
        data: Further arguments of the function, leading axis n.
        looped: True for a loop over the nodes.
    """
    if not looped:
        return jax.vmap(function)(jax.tree.map(lambda x: rows_at(x, rows), shared), *data)

    def visit(_, node):
        row, own = node
        return None, function(jax.tree.map(lambda x: _rows(x, row), shared), *own)

    return jax.lax.scan(visit, None, (rows.astype(np.int32), data))[1]


def along_paths(
    parents: Sequence[int], compose: Callable[[PyTree, PyTree], PyTree], own: PyTree, *, looped: bool
) -> PyTree:
    """Compositions x_i = compose(x_parent(i), own_i), and x_i = own_i for roots, of an associative operation.

    Args:
        parents: Parent of each node.
        compose: Composition of the part of a path that is nearer to the root with the part after it.
        own: Part of each node, leading axis n.
        looped: True for loops along chains in a scalar program.
    """
    if writing_out():
        return _visited(parents, lambda above, part: part if above is None else compose(above, part), own, None, looped)

    # XLA makes one kernel of each composition of single arrays.
    count, (leaves, structure) = len(parents), jax.tree.flatten(own)
    shapes = [x.shape[1:] for x in leaves]
    ends = np.cumsum([math.prod(shape) for shape in shapes])

    def taken_apart(row):
        parts = jnp.split(row, ends[:-1])
        return jax.tree.unflatten(structure, [x.reshape(shape) for x, shape in zip(parts, shapes, strict=True)])

    def together(part):
        return jnp.concatenate([x.ravel() for x in jax.tree.leaves(part)])

    def jump(composed, step):
        above, moving = step
        longer = jax.vmap(lambda a, b: together(compose(taken_apart(a), taken_apart(b))))(
            _rows(composed, above), composed
        )
        return jnp.where(moving[:, None], longer, composed), None

    single = jnp.concatenate([x.reshape(count, -1) for x in leaves], axis=1)
    composed = jax.lax.scan(jump, single, _jumps(parents), unroll=True)[0]
    return jax.vmap(taken_apart)(composed)


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


def _rows(x: Array, at: Int[Array, "*n"]) -> Array:
    """The rows of other nodes at positions that are traced within a step and never negative."""
    return x.at[at].get(mode="promise_in_bounds", wrap_negative_indices=False)


def from_root_to_leaves(
    parents: Sequence[int], visit: Callable[[PyTree, PyTree], PyTree], data: PyTree, ground: PyTree, *, looped: bool
) -> PyTree:
    """Recursion x_i = visit(x_parent(i), data_i), parents first.

    Args:
        parents: Parent of each node.
        visit: Function of x of the parent and of the data of the node.
        data: Data with leading axis n.
        ground: Value of x above a root.
        looped: True for loops along chains in a scalar program.

    Returns:
        Values x with leading axis n.
    """
    if writing_out():
        return _visited(parents, visit, data, ground, looped)
    slots = jax.tree.map(lambda g: jnp.zeros((len(parents) + 1, *g.shape), g.dtype).at[_ROOT].set(g), ground)

    def body(slots, inputs):
        index, parent, own = inputs
        x = visit(jax.tree.map(lambda s: s[parent], slots), own)
        return jax.tree.map(lambda s, new: s.at[index].set(new), slots, x), x

    return jax.lax.scan(body, slots, (*_with_slots(parents), data))[1]


def from_leaves_to_root(
    parents: Sequence[int],
    visit: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    own: PyTree,
    data: PyTree,
    *,
    looped: bool,
) -> PyTree:
    """Recursion x_i = own_i + sum of messages from the children; (message_i, result_i) = visit(x_i, data_i), leaves first.

    Args:
        parents: Parent of each node.
        visit: Function of x and of the data of the node; it returns the message to the parent and the result.
        own: Summand own_i of each node, leading axis n; messages have the same pytree structure.
        data: Additional data, leading axis n.
        looped: True for loops along chains in a scalar program.

    Returns:
        Results with leading axis n.
    """
    if writing_out():
        return _summed_up(parents, visit, own, data, looped)
    slots = jax.tree.map(lambda x: jnp.concatenate([x, jnp.zeros_like(x[:1])]), own)

    def body(slots, inputs):
        index, parent, item = inputs
        message, result = visit(jax.tree.map(lambda s: s[index], slots), item)
        return jax.tree.map(lambda s, m: s.at[parent].add(m), slots, message), result

    return jax.lax.scan(body, slots, (*_with_slots(parents), data), reverse=True)[1]


def _with_slots(parents: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Each node and the slot of its parent; the slot after those of all nodes is that of the ground."""
    return np.arange(len(parents)), np.where(np.array(parents) == _ROOT, len(parents), parents)


def _visited(
    parents: Sequence[int], visit: Callable[[PyTree, PyTree], PyTree], data: PyTree, ground: PyTree, looped: bool
) -> PyTree:
    """The recursion from the roots in a scalar program."""
    parts: list[PyTree] = []
    last: dict[int, PyTree] = {_ROOT: ground}  # values of nodes that have children in later chains

    def step(above, own):
        x = visit(above, own)
        return x, x

    for nodes in _chains(parents, looped):
        first, following = nodes[0], nodes[1:]
        x = visit(last[parents[first]], _node(data, first))
        parts.append(_rows_of(x))
        last[first] = x
        if following:
            last[nodes[-1]], rest = jax.lax.scan(step, x, _nodes(data, following))
            parts.append(rest)
            needed = {parents[k] for k in range(nodes[-1] + 1, len(parents))}
            last |= {k: _node(rest, k - following[0]) for k in following[:-1] if k in needed}
    return _joined(parts)


def _summed_up(parents: Sequence[int], visit: Callable, own: PyTree, data: PyTree, looped: bool) -> PyTree:
    """The recursion to the roots in a scalar program."""
    parts: list[PyTree] = []
    messages: dict[int, list[PyTree]] = {k: [] for k in range(len(parents))}

    def total(i):
        x = _node(own, i)
        for message in messages[i]:
            x = jax.tree.map(jnp.add, x, message)
        return x

    def step(message, of_node):
        x, rest = of_node
        return visit(jax.tree.map(jnp.add, x, message), rest)

    for nodes in reversed(_chains(parents, looped)):
        before, last = nodes[:-1], nodes[-1]
        message, result = visit(total(last), _node(data, last))
        parts.append(_rows_of(result))
        if before:
            sums = _nodes(own, before)
            for place, k in enumerate(before):
                for other in messages[k]:
                    sums = jax.tree.map(lambda s, m, place=place: s.at[place].add(m), sums, other)
            message, rest = jax.lax.scan(step, message, (sums, _nodes(data, before)), reverse=True)
            parts.append(rest)
        if parents[nodes[0]] != _ROOT:
            messages[parents[nodes[0]]].append(message)
    return _joined(parts[::-1])


def _chains(parents: Sequence[int], looped: bool) -> list[range]:
    """The nodes in order, divided into long chains, in which each node is the parent of the next one, and single nodes."""
    starts = [i for i, parent in enumerate(parents) if not (looped and i and parent == i - 1)]
    chains = [range(a, b) for a, b in itertools.pairwise([*starts, len(parents)])]
    singles = [[chain] if len(chain) >= _SHORTEST_LOOP else [range(i, i + 1) for i in chain] for chain in chains]
    return list(itertools.chain.from_iterable(singles))


def _node(tree: PyTree, i: int) -> PyTree:
    return jax.tree.map(lambda x: x[i], tree)


def _nodes(tree: PyTree, part: range) -> PyTree:
    return jax.tree.map(lambda x: x[part.start : part.stop], tree)


def _rows_of(x: PyTree) -> PyTree:
    """Arrays with one row."""
    return jax.tree.map(lambda leaf: leaf[None], x)


def _joined(parts: list[PyTree]) -> PyTree:
    return jax.tree.map(lambda *rows: jnp.concatenate(rows), *parts)
