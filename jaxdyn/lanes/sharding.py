"""Lane calls on several devices: each device processes its part of the lanes, independent of the rest of the program."""

import itertools
from collections.abc import Callable, Sequence

import jax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

# Position of the axis of lanes of an array: first, last, or none.
LaneAxis = int | None


def over_lanes(
    function: Callable,
    arguments: Sequence[jax.Array],
    inward: Sequence[LaneAxis],
    outward: Sequence[LaneAxis],
    result_ranks: Sequence[int],
) -> Callable:
    """The same function of the arguments; where XLA divides the lanes over devices, each device computes its part of them.

    Args:
        function: Function of arrays with any number of lanes.
        arguments: Arguments of the function.
        inward, outward: Axis of lanes of each argument and result: 0, -1, or None for arrays without lanes.
        result_ranks: Number of axes of each result.
    """
    ranks = [a.ndim for a in arguments]
    names = (f"x{k}" for k in itertools.count())
    fixed: list[str] = []

    def letters(rank: int, axis: LaneAxis) -> str:
        other = [next(names) for _ in range(rank if axis is None else rank - 1)]
        fixed.extend(other)
        return " ".join(other if axis is None else ["lanes", *other] if axis == 0 else [*other, "lanes"])

    left = ", ".join(letters(r, axis) for r, axis in zip(ranks, inward, strict=True))
    right = ", ".join(letters(r, axis) for r, axis in zip(result_ranks, outward, strict=True))

    def shardings(mesh, part, all_ranks: Sequence[int], axes: Sequence[LaneAxis]) -> list[NamedSharding]:
        specs = []
        for rank, axis in zip(all_ranks, axes, strict=True):
            spec: list = [None] * rank
            if axis is not None:
                spec[axis] = part
            specs.append(NamedSharding(mesh, PartitionSpec(*spec)))
        return specs

    def part_of(shapes) -> tuple | str | None:
        """Mesh axes that divide the lanes of the first argument with lanes."""
        for shape, axis in zip(shapes, inward, strict=True):
            spec = getattr(shape.sharding, "spec", ())
            if axis is not None and len(spec) == len(shape.shape) and spec[axis] is not None:
                return spec[axis]
        return None

    def infer(mesh, shapes, results):
        return shardings(mesh, part_of(shapes), result_ranks, outward)

    def partition(mesh, shapes, results):
        part = part_of(shapes)
        return (
            mesh,
            function,
            shardings(mesh, part, result_ranks, outward),
            tuple(shardings(mesh, part, ranks, inward)),
        )

    divided = custom_partitioning(function)
    divided.def_partition(
        partition=partition,
        infer_sharding_from_operands=infer,
        sharding_rule=f"{left} -> {right}",
        need_replication_factors=tuple(fixed),
    )
    return divided
