"""Sweeps over the tree of bodies; no other module iterates over the tree.

Composition along paths and sums have no loop over bodies, so their compile time does not grow with the mechanism: composition uses
pointer jumping (the number of steps is log2 of the depth of the tree; short paths are composed in one kernel on GPUs), and sums are
products with the incidence matrix eta. The recursions `from_root_to_leaves` and `from_leaves_to_root` use `jax.lax.scan` over
bodies. When the lane compiler (`jaxdyn.lanes`) unrolls a function, all sweeps are computed body by body instead.
"""

import functools
import operator
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from jaxdyn.compute import by_platform, writing_out
from jaxdyn.mechanism.topology import GROUND, Topology
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.arrays import dot, rows_at
from jaxdyn.spatial.rotation import CROSS
from jaxdyn.spatial.transform import RigidTransform

# Bodies of the longest path that is composed at once on GPUs: shorter ones need a single jump, and longer ones square the work.
_SHORTEST_PATH, _LONGEST_PATH = 3, 8
_LONGEST_SUM = 32  # summands; the work of a plain sum grows with their square


def compose_along_paths(topology: Topology, local: RigidTransform) -> RigidTransform:
    """Placements in the ground: product of the local placements along the path from the root to each body.

    Source: theory.md (A6), (E1), (E2).

    Args:
        topology: Topology of the mechanism.
        local: Placement of each body in its parent, leading axis nb.
    """
    if writing_out():
        return _composed_one_by_one(topology, local)
    jumping = functools.partial(_composed_by_jumps, topology)
    if not _SHORTEST_PATH <= topology.precedes.sum(axis=0).max(initial=0) <= _LONGEST_PATH:
        return jumping(local)
    return by_platform(local, cpu=jumping, default=functools.partial(_composed_at_once, topology))


def _composed_by_jumps(topology: Topology, local: RigidTransform) -> RigidTransform:
    """The result of `compose_along_paths` with quaternion and translation in one array, so that each jump is one kernel."""

    def compose(above: Float[Array, "7"], placement: Float[Array, "7"]) -> Float[Array, "7"]:
        longer = RigidTransform(above[:4], above[4:]).compose(RigidTransform(placement[:4], placement[4:]))
        return jnp.concatenate([longer.quaternion, longer.translation])

    def jump(placement: Float[Array, "nb 7"], above_and_moving: tuple) -> tuple[Float[Array, "nb 7"], None]:
        above, moving = above_and_moving
        longer = jax.vmap(compose)(_rows(placement, above), placement)
        return jnp.where(moving[:, None], longer, placement), None

    placement = jnp.concatenate([local.quaternion, local.translation], axis=1)
    placement, _ = jax.lax.scan(jump, placement, _bodies_above(topology, lambda ahead: ahead[ahead]), unroll=True)
    return RigidTransform(placement[:, :4], placement[:, 4:])


def _bodies_above(
    topology: Topology, next_above: Callable[[np.ndarray], np.ndarray]
) -> tuple[Int[np.ndarray, "steps nb"], Bool[np.ndarray, "steps nb"]]:
    """Body just above the part of the path that is already composed, and whether there is one, before each step.

    Args:
        topology: Topology of the mechanism.
        next_above: The bodies above before the next step, as a function of those before this step.
    """
    above, moving = [], []
    ahead = np.array(topology.parents)
    while np.any(ahead != GROUND):
        moving.append(ahead != GROUND)
        above.append(np.where(moving[-1], ahead, 0))
        ahead = np.where(moving[-1], next_above(ahead), GROUND)
    shape = (len(above), topology.nb)
    return np.array(above, np.int32).reshape(shape), np.array(moving, bool).reshape(shape)


def _rows(x: Float[Array, "nb *rest"], above: Int[Array, "nb"]) -> Float[Array, "nb *rest"]:
    """The rows of other bodies, like `rows_at`, at positions that are traced within a step."""
    return x.at[above].get(mode="promise_in_bounds", wrap_negative_indices=False)


def _composed_at_once(topology: Topology, local: RigidTransform) -> RigidTransform:
    """The result of `compose_along_paths` with all compositions of a path in one kernel of a GPU.

    Every component is a separate array, because XLA puts elementwise operations into one kernel. Each step extends the paths by one
    body.
    """
    parts = [*local.quaternion.T, *local.translation.T]

    def extend(placed: list[Float[Array, "nb"]], above_and_moving: tuple) -> tuple[list[Float[Array, "nb"]], None]:
        above, moving = above_and_moving
        longer = _composed_components([_rows(x, above) for x in parts], placed)
        return [jnp.where(moving, new, old) for new, old in zip(longer, placed, strict=True)], None

    steps = _bodies_above(topology, lambda ahead: np.array(topology.parents)[ahead])
    placed, _ = jax.lax.scan(extend, parts, steps, unroll=True)
    return RigidTransform(jnp.stack(placed[:4], axis=1), jnp.stack(placed[4:], axis=1))


def _composed_components(outer: list[Float[Array, "nb"]], inner: list[Float[Array, "nb"]]) -> list[Float[Array, "nb"]]:
    """`RigidTransform.compose`, given and returned by the four components of quaternions and the three of translations."""
    (q, t), (p, r) = ((x[:4], x[4:]) for x in (outer, inner))
    product = _bilinear(quaternion.PRODUCT, q, p)  # (A1)
    inside = [q[0] * x + y for x, y in zip(r, _bilinear(CROSS, q[1:], r), strict=True)]
    factor = 2.0 / (q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3])
    turned = [x + factor * y for x, y in zip(r, _bilinear(CROSS, q[1:], inside), strict=True)]  # (A4)
    return [*product, *(x + y for x, y in zip(t, turned, strict=True))]


def _bilinear(coefficients: Float[np.ndarray, "i j k"], a: list[Array], b: list[Array]) -> list[Array]:
    """Components c_i = sum over j and k of coefficients[i, j, k] a_j b_k, where all coefficients are 0, 1 or -1."""

    def component(signs: Float[np.ndarray, "j k"]) -> Array:
        products = [(signs[j, k] > 0, a[j] * b[k]) for j, k in np.argwhere(signs)]
        positive, negative = ([x for is_positive, x in products if is_positive == sign] for sign in (True, False))
        return functools.reduce(operator.sub, negative, functools.reduce(operator.add, positive))

    return [component(signs) for signs in coefficients]


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
    return by_platform(x, cpu=as_product, default=as_sum)


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
