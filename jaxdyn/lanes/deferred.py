"""Large matrices that are sums of products, stored as factors until their entries are needed.

    S_ij = B_ij + sum_p sum_k L_p,ki R_p,kj

A product of a large matrix and a vector becomes a loop over parts of the result instead of thousands of operations. If each
iteration of a loop adds an outer product to the gradient with respect to a matrix, the gradient is computed as one matrix product
after the loop. The loop then only stores two vectors per iteration, not a matrix.

In a program of one sample, products of smaller matrices become loops, too, which `matrix_code` compiles to vector instructions.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from jaxdyn.lanes.flatten import (
    LARGEST_ARRAY,
    Deferred,
    Flattener,
    Memory,
    Value,
    contiguous,
    is_known,
    objects,
    part_of,
    scalars_of,
)
from jaxdyn.lanes.program import (
    Block,
    Loop,
    Matrix,
    MatrixProduct,
    Node,
    Program,
    Region,
    Scalar,
    Stretch,
    SumOfMatrixProducts,
)

# Number of results per iteration of the loop, with one accumulator each: enough to hide the latency of additions, and few enough
# for the registers.
_TILE = 8
# Number of terms of each result that one iteration of the inner loop adds; up to twice as many need no loop.
_TERMS = 4
# Products of matrices with more multiplications than this become loops.
LONG = 512
# The same for products that vectors of at least so many adjacent columns can compute.
_LONG_FOR_VECTORS, _LEAST_VECTOR = 64, 4
# Number of multiplications that justify storing a scalar in memory, from where a vector can be loaded.
_MULTIPLICATIONS_PER_STORE = 4


@dataclasses.dataclass(frozen=True, eq=False)
class Product:
    """The matrix left^T right.

    Attributes:
        left, right: Factors of shapes (terms, rows) and (terms, columns).
    """

    left: Value
    right: Value

    @property
    def transposed(self) -> "Product":
        return Product(self.right, self.left)

    @property
    def apart(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The two factors, if all of their entries are separate scalars that are neither in memory nor known; otherwise None."""
        left, right = self.left, self.right
        if isinstance(left, Memory) or isinstance(right, Memory) or is_known(left) or is_known(right):
            return None
        return left, right


@dataclasses.dataclass(eq=False)
class SumOfProducts(Deferred):
    """A sum of products that has not been computed yet.

    Attributes:
        shape: Shape of the array, whose entries are those of the matrix, row by row.
        type: Scalar type.
        products: Products to add; at least one, all of the same shape.
        base: Matrix to which the products are added, or None.
    """

    shape: tuple[int, ...]
    type: str
    products: tuple[Product, ...]
    base: Memory | None = None

    def __post_init__(self):
        self._settled: Value | None = None

    @property
    def computed(self) -> "SumOfProducts | Value":
        """The array in memory if it has been computed there, otherwise the sum itself."""
        return self._settled if isinstance(self._settled, Memory) else self

    @property
    def sides(self) -> tuple[int, int]:
        return self.products[0].left.shape[1], self.products[0].right.shape[1]

    def plus(self, other) -> "SumOfProducts | None":
        """Sum with another array of the same shape; None if the sum must be computed entry by entry."""
        base, products = self.base, self.products
        other = _in_memory(other, self.type)
        if isinstance(other, SumOfProducts):
            if other.sides != self.sides or (base is not None and other.base is not None):
                return None
            base, products = other.base if base is None else base, products + other.products
        elif isinstance(other, Memory):
            if base is not None or (self.shape != self.sides and not other.is_contiguous):
                return None
            base = other
            if self.shape != self.sides:
                base = dataclasses.replace(other, shape=self.sides, strides=contiguous(self.sides))
        elif not is_known(other) or other.any():
            return None
        return SumOfProducts(self.shape, self.type, products, base)

    def transposed(self) -> "SumOfProducts | None":
        """The transposed matrix; None if the array is not a matrix."""
        if self.shape != self.sides:
            return None
        return self._turned

    @property
    def _is_for_vectors(self) -> bool:
        """True if a vector instruction can compute adjacent columns of the sum."""
        in_rows = self.base is None or _is_in_rows(self.base)
        return in_rows and self.sides[1] >= _LEAST_VECTOR and all(_is_in_rows(p.right) for p in self.products)

    @property
    def _turned(self) -> "SumOfProducts":
        """The transposed matrix."""
        base = None if self.base is None else _transposed(self.base)
        return SumOfProducts(self.sides[::-1], self.type, tuple(p.transposed for p in self.products), base)

    @property
    def suits_vectors(self) -> bool:
        """True if vectors of adjacent columns can compute the sum or its transpose."""
        return self._is_for_vectors or (self._can_be_turned and self._turned._is_for_vectors)

    @property
    def _can_be_turned(self) -> bool:
        """True if the array can be a view of the transposed matrix in memory."""
        return self.sides[1] == 1 or self.shape == self.sides

    def _is_better_turned(self, flat: Flattener) -> bool:
        rows, columns = self.sides
        if not self._can_be_turned:
            return False
        if flat.of_one_sample and self.suits_vectors:
            return not self._is_for_vectors
        return columns < min(rows, _TILE)

    def settled(self, flat: Flattener) -> Value:
        if self._settled is None:
            apart = [p.apart for p in self.products]
            if self.base is not None or None in apart or (flat.of_one_sample and self.suits_vectors):
                self._settled = self.stored(flat)
            else:
                self._settled = self._written_out(flat, [pair for pair in apart if pair is not None])
        return self._settled

    def _written_out(self, flat: Flattener, factors: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """Compute the entries by separate operations, without a loop.

        A loop would first have to store all entries of the factors in memory.
        """
        program, kind = flat.program, self.type
        rows, columns = self.sides
        pairs = [(left.T.tolist(), right.T.tolist()) for left, right in factors]
        out: list[Scalar] = []
        for i in range(rows):
            for j in range(columns):
                total: Scalar = 0.0
                for left, right in pairs:
                    for x, y in zip(left[i], right[j], strict=True):
                        total = program.add(total, program.mul(x, y, kind), kind)
                out.append(total)
        return objects(out, self.shape)

    def stored(self, flat: Flattener) -> Memory:
        """Compute the entries by a loop that stores them in memory."""
        rows, columns = self.sides
        if self._is_better_turned(flat):
            region = _filled(flat, self._turned)
            return Memory(region, self.type, self.shape, contiguous(self.shape) if columns == 1 else (1, rows))
        region = _filled(flat, self)
        return Memory(region, self.type, self.shape, contiguous(self.shape))


def _in_memory(x, kind: str):
    """An array whose elements were loaded one after the other, such as the bias of a network, as the memory that contains them."""
    if isinstance(x, np.ndarray) and not is_known(x):
        part = part_of(scalars_of(x))
        if isinstance(part, Stretch):
            return Memory(part.region, kind, x.shape, contiguous(x.shape), part.offset)
    return x


def _transposed(x: Memory) -> Memory:
    return dataclasses.replace(x, shape=x.shape[::-1], strides=x.strides[::-1])


def _is_in_rows(x: Value) -> bool:
    """True if the entries of a row are adjacent in memory, or will be when the matrix is stored."""
    return not isinstance(x, Memory) or x.strides[1] == 1


def _filled(flat: Flattener, total: SumOfProducts) -> Node:
    """Region with the entries of a sum of products, row by row.

    Each iteration of a loop computes some adjacent entries of a row. The last ones of a row may overlap the previous ones.
    """
    program, (rows, columns), kind, base = flat.program, total.sides, total.type, total.base
    factors = [
        (flat.memory(p.left, kind, gaps=True), flat.memory(p.right, kind, gaps=True)) for p in merged(total.products)
    ]
    tiles = -(-columns // _TILE)
    width = -(-columns // tiles)
    loop = Loop(rows * tiles, Block(flat.block))
    loop.counter = program.node("counter", (), "i64", data=loop.length, block=loop.body, shared=False)
    # All rows of a tile precede the next tile, so that its columns of the right factor stay in the cache.
    tile = program.apply("div", (loop.counter, rows), "i64")
    row = program.apply("rem", (loop.counter, rows), "i64")
    first = program.apply("min", (program.mul(tile, width, "i64"), columns - width), "i64")
    places = [program.add(first, k, "i64") for k in range(width)]
    totals: list[Scalar] = [0.0] * width
    if base is not None:
        totals = [_number(program, base, row, place) for place in places]
    for left, right in factors:
        totals = _added(program, loop.body, totals, left, right, row, places, kind)
    position = program.add(program.mul(row, columns, "i64"), first, "i64")
    loop.collected = [(position, totals, width, kind)]
    needs: list[Scalar] = []
    if flat.of_one_sample:
        products = tuple(MatrixProduct(left.shape[0], _matrix(left), _matrix(right)) for left, right in factors)
        loop.computes = SumOfMatrixProducts(rows, columns, products, None if base is None else _matrix(base))
        # The operations of the loop may use the entries instead of the memory where they are stored.
        stored = [x for pair in factors for x in pair] + ([] if base is None else [base])
        needs = [s for x in stored for s in (x.region, x.offset) if type(s) is Node]
    node = program.node("loop", tuple(needs), "loop", data=loop, block=flat.block, shared=False)
    return program.node("region", (node,), "region", data=Region("loop", rows * columns, kind), shared=False)


def _matrix(x: Memory) -> Matrix:
    by_row, by_column = x.strides
    return Matrix(x.region, x.offset, (by_row, by_column))


def merged(products: Sequence[Product]) -> list[Product]:
    """The same sum of products, in which all products whose factors are separate scalars are concatenated to one product."""
    found = [p for p in products if p.apart is None]
    apart = [p.apart for p in products if p.apart is not None]
    if apart:
        found.append(Product(*(np.concatenate(factors) for factors in zip(*apart, strict=True))))
    return found


def _added(
    program: Program,
    block: Block,
    totals: list[Scalar],
    left: Memory,
    right: Memory,
    row: Scalar,
    places: Sequence[Scalar],
    kind: str,
) -> list[Scalar]:
    """totals + left[:, row] right[:, places]; the terms are added in sequence, in a loop if there are many."""

    def with_term(totals: list[Scalar], term: Scalar) -> list[Scalar]:
        x = _number(program, left, term, row)
        factors = [_number(program, right, term, place) for place in places]
        return [program.add(s, program.mul(x, y, kind), kind) for s, y in zip(totals, factors, strict=True)]

    terms = left.shape[0]
    turns = terms // _TERMS if terms > 2 * _TERMS else 0
    if turns:
        loop = Loop(turns, Block(block))
        loop.counter = program.node("counter", (), "i64", data=turns, block=loop.body, shared=False)
        loop.carries = [
            program.node("carry", (), kind, data=(loop, i), block=loop.body, shared=False) for i in range(len(totals))
        ]
        loop.initial, loop.following = totals, list(loop.carries)
        for k in range(_TERMS):
            term = program.add(program.mul(loop.counter, _TERMS, "i64"), k, "i64")
            loop.following = with_term(loop.following, term)
        node = program.node("loop", (), "loop", data=loop, block=block, shared=False)
        totals = [program.node("result", (node,), kind, data=i) for i in range(len(totals))]
    for term in range(turns * _TERMS, terms):
        totals = with_term(totals, term)
    return totals


def _number(program: Program, x: Memory, row: Scalar, column: Scalar) -> Scalar:
    index = x.offset
    for k, stride in ((column, x.strides[1]), (row, x.strides[0])):  # the slowest index is added first
        index = program.add(index, program.mul(k, stride, "i64"), "i64")
    return program.load(x.region, index)


def has_many_terms(product: Product, least: int = LONG) -> bool:
    """True if a product has so many products of scalars without a known zero factor that a loop is worthwhile.

    Args:
        product: Product of matrices.
        least: Number of products of scalars, of which a loop must have more.
    """
    left, right = product.left, product.right
    multiplications = sum(a * b for a, b in zip(_present(left), _present(right), strict=True))
    return multiplications > max(least, math.prod((*left.shape, right.shape[1])) // 2)


def is_worth_vectors(total: SumOfProducts) -> bool:
    """True if vectors of adjacent columns compute a product in a program of one sample faster than separate operations."""
    (product,) = total.products
    stored = _computed(product.left) + _computed(product.right)
    least = max(_LONG_FOR_VECTORS, _MULTIPLICATIONS_PER_STORE * stored)
    # The entries of a larger result could not be used one by one any more.
    return total.size <= LARGEST_ARRAY and total.suits_vectors and has_many_terms(product, least)


def _computed(x: Value) -> int:
    """Number of scalars that have been computed, and would have to be stored in memory."""
    return 0 if isinstance(x, Memory) else sum(type(s) is Node and s.op != "load" for s in x.ravel().tolist())


def _present(x: Value) -> list[int]:
    """Number of entries of each row that are not known to be zero."""
    if isinstance(x, Memory):
        return [x.shape[1]] * x.shape[0]
    return [sum(type(s) is Node or s != 0 for s in row) for row in x.tolist()]
