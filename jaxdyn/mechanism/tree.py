"""Compositions and sums over the tree of bodies; recursions are in `jaxdyn.compute.sweeps`, and no other module iterates over it.

Sums are products with the incidence matrix eta, so that their compile time does not grow with the mechanism, or recursions where
a scalar program of a long mechanism has loops.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxdyn.compute import sweeps
from jaxdyn.compute.arrays import dot, rows_at
from jaxdyn.mechanism.topology import Topology
from jaxdyn.spatial.transform import RigidTransform


def is_looped(topology: Topology) -> bool:
    """True while a scalar program of a mechanism with a long chain is written, which has loops over the bodies."""
    return sweeps.is_looped(topology.longest_chain)


def compose_along_paths(topology: Topology, local: RigidTransform) -> RigidTransform:
    """Placements in the ground: product of the local placements along the path from the root to each body.

    Source: theory.md (A6), (E1), (E2).

    Args:
        topology: Topology of the mechanism.
        local: Placement of each body in its parent, leading axis nb.
    """

    return sweeps.along_paths(topology.parents, RigidTransform.compose, local, looped=is_looped(topology))


def of_bodies(topology: Topology, function: Callable[..., PyTree], *per_body: PyTree) -> PyTree:
    """Values of a function for each body; its arguments have leading axis nb."""
    return sweeps.of_each(function, *per_body, count=topology.nb, looped=is_looped(topology))


def along_columns(topology: Topology, function: Callable[..., PyTree], per_body: PyTree, *per_column: PyTree) -> PyTree:
    """Values of a function of the body that each velocity component (column) moves directly, and of the column."""
    looped = is_looped(topology)
    return sweeps.of_each_with_shared(function, per_body, topology.body_of_column, *per_column, looped=looped)


def of_columns_alone(topology: Topology, function: Callable[..., PyTree], *per_column: PyTree) -> PyTree:
    """Values of a function for each velocity component (column); its arguments have leading axis nv."""
    return sweeps.of_each(function, *per_column, count=topology.nv, looped=is_looped(topology))


def for_pairs(topology: Topology, rows: PyTree) -> PyTree:
    """Arrays of which a function uses all pairs of rows, such as motion columns in a mass matrix."""
    return jax.tree.map(lambda x: sweeps.separated(x, looped=is_looped(topology)), rows)


def of_columns(topology: Topology, per_body: PyTree) -> PyTree:
    """Data of the body that each velocity component (column) moves directly; arrays (nb, *rest) become (nv, *rest)."""
    return jax.tree.map(lambda x: rows_at(x, topology.body_of_column), per_body)


def sum_over_columns(topology: Topology, per_column: Float[Array, "nv *rest"]) -> Float[Array, "nb *rest"]:
    """Sum of a quantity over all columns (velocity components) that move each body."""
    if not is_looped(topology):
        return _summed(topology.column_moves_body, per_column)
    zero = jnp.zeros_like(per_column[:1])
    sums = sweeps.from_root_to_leaves(topology.column_parents, jnp.add, per_column, zero[0], looped=True)
    return rows_at(jnp.concatenate([sums, zero]) if -1 in topology.last_columns else sums, topology.last_columns)


def sum_over_ancestors(topology: Topology, per_body: Float[Array, "nb *rest"]) -> Float[Array, "nb *rest"]:
    """Sum of a quantity over the bodies on the path from the root to each body, including this body."""
    if is_looped(topology):
        return sweeps.from_root_to_leaves(topology.parents, jnp.add, per_body, jnp.zeros_like(per_body[0]), looped=True)
    return _summed(topology.precedes, per_body)


def sum_over_descendants(topology: Topology, per_body: Float[Array, "nb *rest"]) -> Float[Array, "nb *rest"]:
    """Sum of a quantity over the subtree of each body, including this body."""
    if is_looped(topology):
        return sweeps.from_leaves_to_root(topology.parents, lambda x, _: (x, x), per_body, None, looped=True)
    return _summed(topology.precedes.T, per_body)


def _summed(eta: np.ndarray, x: Float[Array, "n *rest"]) -> Float[Array, "m *rest"]:
    """Sums of those rows of x that the rows of the incidence matrix eta select; its summed axis is the first one.

    With the summed axis of x last, each sample of a batch is contiguous in memory.
    """
    return jnp.moveaxis(dot(jnp.moveaxis(x, 0, -1), eta.astype(x.dtype)), -1, 0)
