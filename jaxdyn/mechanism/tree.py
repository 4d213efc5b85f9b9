"""Compositions and sums over the tree of bodies; recursions are in `jaxdyn.compute.sweeps`, and no other module iterates over it.

Sums are products with the incidence matrix eta, so that their compile time does not grow with the mechanism.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxdyn.compute import sweeps
from jaxdyn.compute.arrays import dot, rows_at
from jaxdyn.mechanism.topology import Topology
from jaxdyn.spatial.transform import RigidTransform


def compose_along_paths(topology: Topology, local: RigidTransform) -> RigidTransform:
    """Placements in the ground: product of the local placements along the path from the root to each body.

    Source: theory.md (A6), (E1), (E2).

    Args:
        topology: Topology of the mechanism.
        local: Placement of each body in its parent, leading axis nb.
    """

    def compose(above: Float[Array, "7"], placement: Float[Array, "7"]) -> Float[Array, "7"]:
        longer = RigidTransform(above[:4], above[4:]).compose(RigidTransform(placement[:4], placement[4:]))
        return jnp.concatenate([longer.quaternion, longer.translation])

    # XLA makes one kernel of each composition of single arrays.
    own = jnp.concatenate([local.quaternion, local.translation], axis=1)
    placed = sweeps.along_paths(topology.parents, compose, own)
    return RigidTransform(placed[:, :4], placed[:, 4:])


def of_columns(topology: Topology, per_body: PyTree) -> PyTree:
    """Data of the body that each velocity component (column) moves directly; arrays (nb, *rest) become (nv, *rest)."""
    return jax.tree.map(lambda x: rows_at(x, topology.body_of_column), per_body)


def sum_over_columns(topology: Topology, per_column: Float[Array, "nv *rest"]) -> Float[Array, "nb *rest"]:
    """Sum of a quantity over all columns (velocity components) that move each body."""
    return _summed(topology.column_moves_body, per_column)


def sum_over_ancestors(topology: Topology, per_body: Float[Array, "nb *rest"]) -> Float[Array, "nb *rest"]:
    """Sum of a quantity over the bodies on the path from the root to each body, including this body."""
    return _summed(topology.precedes, per_body)


def sum_over_descendants(topology: Topology, per_body: Float[Array, "nb *rest"]) -> Float[Array, "nb *rest"]:
    """Sum of a quantity over the subtree of each body, including this body."""
    return _summed(topology.precedes.T, per_body)


def _summed(eta: np.ndarray, x: Float[Array, "n *rest"]) -> Float[Array, "m *rest"]:
    """Sums of those rows of x that the rows of the incidence matrix eta select; its summed axis is the first one.

    With the summed axis of x last, each sample of a batch is contiguous in memory.
    """
    return jnp.moveaxis(dot(jnp.moveaxis(x, 0, -1), eta.astype(x.dtype)), -1, 0)
