"""Batches on several devices and hosts: the leading axis is divided over a mesh, and results are gathered in the same order.

With the lane compiler, the results of a sample do not depend on the number of devices.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

_AXIS = "lanes"


def lane_mesh(devices: Sequence[Any] | None = None) -> Mesh:
    """Mesh with one axis over the given devices; by default over all devices of all processes."""
    return Mesh(np.array(jax.devices() if devices is None else devices), (_AXIS,))


def rounded_up(mesh: Mesh | None, count: int) -> int:
    """Smallest multiple of the number of devices of a mesh that is at least `count`."""
    size = 1 if mesh is None else mesh.size
    return -(-count // size) * size


def divided(mesh: Mesh | None, batch: PyTree) -> PyTree:
    """Divide a batch, which every process holds completely, evenly over the devices along the leading axis."""
    return batch if mesh is None else _placed(batch, _over_lanes(mesh))


def whole(mesh: Mesh | None, batch: PyTree) -> PyTree:
    """Gather a divided or replicated batch on the first device of each process."""
    if mesh is None:
        return batch
    arrays, rest = eqx.partition(batch, eqx.is_array)
    return eqx.combine(jax.tree.map(lambda leaf: leaf.addressable_data(0), _gather(mesh)(arrays)), rest)


def each_on_its_own(mesh: Mesh | None, function: Callable) -> Callable:
    """Function that applies function(batch, shared) to `divided` batches: each device processes its part independently.

    Args:
        mesh: Mesh of devices; None for one device.
        function: Function of a batch, whose leaves have a leading axis of samples, and of arrays that all samples share; returns a
            batch.
    """
    if mesh is None:
        return function

    def divided_function(batch: PyTree, shared: PyTree) -> PyTree:
        (arrays, shared_arrays), rest = eqx.partition((batch, shared), eqx.is_array)
        static: list = []

        def part(arrays, shared_arrays):
            results, others = eqx.partition(function(*eqx.combine((arrays, shared_arrays), rest)), eqx.is_array)
            static[:] = [others]
            return results

        lanes = PartitionSpec(mesh.axis_names)
        specs = {"in_specs": (lanes, PartitionSpec()), "out_specs": lanes}
        results = jax.shard_map(part, mesh=mesh, check_vma=False, **specs)(arrays, shared_arrays)
        return eqx.combine(results, static[0])

    return divided_function


def _over_lanes(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec(mesh.axis_names))


def _everywhere(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec())


def _placed(tree: PyTree, sharding: NamedSharding) -> PyTree:
    def place(leaf):
        if not eqx.is_array(leaf):
            return leaf
        if sharding.is_fully_addressable:
            return jax.device_put(leaf, sharding)
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(place(jax.random.key_data(leaf)), impl=jax.random.key_impl(leaf))
        held = np.asarray(leaf)
        return jax.make_array_from_callback(held.shape, sharding, lambda part: held[part])

    return jax.tree.map(place, tree)


@functools.lru_cache
def _gather(mesh: Mesh) -> Callable:
    return jax.jit(lambda batch: batch, out_shardings=_everywhere(mesh))
