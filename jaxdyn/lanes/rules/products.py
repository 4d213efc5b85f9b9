"""Products of matrices."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import lax

from jaxdyn.lanes.deferred import Product, SumOfProducts, has_many_terms, is_worth_vectors
from jaxdyn.lanes.flatten import CannotFlatten, Flattener, Memory, Value, is_known, kind_of, objects, rule, zero_of
from jaxdyn.lanes.folding import converted, flushed
from jaxdyn.lanes.program import Node, Scalar
from jaxdyn.lanes.rules.shapes import view
from jaxdyn.lanes.scalar_types import FLOATS


@rule("dot_general", reads="dimension_numbers precision", ignores="preferred_element_type out_sharding")
def _dot_general(flat: Flattener, equation, args: list[Value]) -> list[Any]:
    # Products are exact to the type of the result, which meets every precision; an algorithm may ask for rounded factors.
    precision = equation.params["precision"]
    if not all(
        p is None or isinstance(p, lax.Precision) for p in (precision if isinstance(precision, tuple) else [precision])
    ):
        raise CannotFlatten(f"'dot_general' by the algorithm {precision} has no scalar form")
    (left_sum, right_sum), (left_batch, right_batch) = equation.params["dimension_numbers"]
    kind, shape = kind_of(equation.outvars[0]), equation.outvars[0].aval.shape
    left = _arranged(flat, args[0], left_batch, left_sum)
    right = _arranged(flat, args[1], right_batch, right_sum)
    deferred = _deferred(flat, left, right, {kind, *map(kind_of, equation.invars)}, shape)
    if deferred is not None:
        return [deferred]
    left, right = (_as_kind(flat, x, kind_of(v), kind) for x, v in zip((left, right), equation.invars, strict=True))
    if is_known(left) and is_known(right):
        with np.errstate(all="ignore"):
            return [flushed(np.einsum("bik,bjk->bij", left, right)).reshape(shape)]
    out = np.empty((left.shape[0], left.shape[1], right.shape[1]), object)
    for k in range(left.shape[0]):
        if _is_mask(left[k]):
            out[k] = _masked_sums(flat, left[k], right[k], kind)
        elif _is_mask(right[k]):
            out[k] = _masked_sums(flat, right[k], left[k], kind).T
        else:
            out[k] = _product(flat, left[k], right[k], kind)
    return [out.reshape(shape)]


def _deferred(
    flat: Flattener, left: Value, right: Value, kinds: set[str], shape: tuple[int, ...]
) -> SumOfProducts | None:
    """A large product as a deferred one, which a loop computes later; None for small products."""
    if len(kinds) > 1 or not kinds <= set(FLOATS) or left.shape[0] != 1 or (is_known(left) and is_known(right)):
        return None
    first, second = (
        view(x, x.shape[:0:-1], x.strides[:0:-1]) if isinstance(x, Memory) else x[0].T for x in (left, right)
    )
    if any(not isinstance(x, Memory) and _is_mask(x) for x in (first, second)):
        return None
    (kind,) = kinds
    product = SumOfProducts(shape, kind, (Product(first, second),))
    for_vectors = is_worth_vectors(product)
    flat.program.has_matrix_products |= for_vectors
    return product if has_many_terms(product.products[0]) or (for_vectors and flat.of_one_sample) else None


def _arranged(flat: Flattener, x: Value, batch: Sequence[int], summed: Sequence[int]) -> Value:
    """The array with axes (batch, rows, summed)."""
    rows = [d for d in range(x.ndim) if d not in batch and d not in summed]
    groups = batch, rows, summed
    shape = [math.prod(x.shape[d] for d in dims) for dims in groups]
    if isinstance(x, Memory):
        strides = [s for s in (_stride(x, dims) for dims in groups) if s is not None]
        if len(strides) == len(groups):
            return view(x, shape, strides)
        x = flat.registers(x)
    return np.transpose(x, [*batch, *rows, *summed]).reshape(shape)


def _stride(x: Memory, dims: Sequence[int]) -> int | None:
    """Stride of several axes that are combined into one; None if it varies."""
    long = [d for d in dims if x.shape[d] != 1]
    if any(x.strides[d] != x.shape[e] * x.strides[e] for d, e in itertools.pairwise(long)):
        return None
    return x.strides[long[-1]] if long else 0


def _as_kind(flat: Flattener, x: Value, source: str, target: str) -> np.ndarray:
    x = flat.registers(x)
    if source == target:
        return x
    return converted(x, target) if is_known(x) else flat.each(lambda s: flat.program.convert(s, source, target), x)


def _sum_and_product(flat: Flattener, kind: str) -> tuple[Callable, Callable]:
    """Sum and product of two scalars of a type; for booleans, their disjunction and conjunction."""
    if kind == "bool":
        apply = flat.program.apply
        return lambda x, y, kind: apply("or", (x, y), kind), lambda x, y, kind: apply("and", (x, y), kind)
    return flat.program.add, flat.program.mul


def _is_mask(x: np.ndarray) -> bool:
    return is_known(x) and bool(np.all((x == 0) | (x == 1)))


def _product(flat: Flattener, left: np.ndarray, right: np.ndarray, kind: str) -> np.ndarray:
    """The product left right^T."""
    add, mul = _sum_and_product(flat, kind)
    zero = zero_of(kind)
    scalars = []
    columns = [(column, _present(column)) for column in right.tolist()]
    for row in left.tolist():
        in_row = _present(row)
        for column, in_column in columns:
            total = zero
            # Known zeros are skipped here, which avoids calls.
            for k in in_row if len(in_row) < len(in_column) else in_column:
                total = add(total, mul(row[k], column[k], kind), kind)
            scalars.append(total)
    return objects(scalars, (left.shape[0], right.shape[0]))


def _present(row: list[Scalar]) -> list[int]:
    """Positions of the entries that are not known to be zero."""
    return [k for k, x in enumerate(row) if type(x) is Node or x != 0]


def _masked_sums(flat: Flattener, mask: np.ndarray, terms: np.ndarray, kind: str) -> np.ndarray:
    """The product mask terms^T for a mask of zeros and ones.

    Each sum starts from the largest other sum over a subset of its terms. Sums over the ancestors or descendants in a
    tree are nested, so this costs one addition per node of the tree, as a recursion would.
    """
    sets = [frozenset(np.nonzero(row)[0].tolist()) for row in mask]
    order = sorted(range(len(sets)), key=lambda i: len(sets[i]))
    plan = []
    for position, i in enumerate(order):
        earlier = [j for j in order[:position] if sets[j] <= sets[i]]
        base = max(earlier, key=lambda j: len(sets[j]), default=None)
        plan.append((i, base, sorted(sets[i] - (sets[base] if base is not None else frozenset()))))
    add, _ = _sum_and_product(flat, kind)
    out = np.empty((mask.shape[0], terms.shape[0]), object)
    for j, column in enumerate(terms.tolist()):
        for i, base, rest in plan:
            total = zero_of(kind) if base is None else out[base, j]
            for k in rest:
                total = add(total, column[k], kind)
            out[i, j] = total
    return out
