"""LLVM code of matrix products in programs of one sample: a vector contains adjacent entries of a row.

A program of one sample would otherwise compute one scalar per instruction. A block of a few rows and columns stays in registers
while the terms are added, so that each loaded value serves several products. Blocks at the end of the rows or columns overlap the
previous blocks instead of being smaller.
"""

from collections.abc import Sequence

from jaxdyn.lanes.llvm_code import ProgramCode
from jaxdyn.lanes.llvm_memory import Place
from jaxdyn.lanes.llvm_text import bytes_of, scalar_type
from jaxdyn.lanes.program import Loop, Matrix, MatrixProduct, SumOfMatrixProducts

# Bytes of a vector, and of the narrowest vector that is used; LLVM divides vectors that are longer than the registers.
_VECTOR_BYTES, _LEAST_BYTES = 32, 16
# Vectors in which sums are added, enough to hide the latency of additions, and the most of them within a row.
_SUMS, _SUMS_PER_ROW = 8, 4
# Number of terms that are added without a loop, and in each iteration of a loop.
_MOST_TERMS, _TERMS = 16, 4


class MatrixCode(ProgramCode):
    """Lines of LLVM code for a program; loops that compute matrix products of one sample use vector instructions."""

    def _loop(self, loop: Loop) -> None:
        total = loop.computes
        if total is None or not self._has_vectors(loop, total):
            super()._loop(loop)
            return
        region = self._region_of(loop, 0)
        kind, target = region.data.type, Matrix(region, 0, (total.columns, 1))
        blocks = Blocks(total.rows, total.columns, bytes_of(kind))
        label = self._label("matrix")
        self._place(region)
        before = self._block
        self._emit(f"br label %{label}")
        self._start(label)
        block, following = f"%k.{label}", f"%n.{label}"
        head = len(self._lines)
        row, column = block, "0"
        if blocks.across > 1:
            row = self._let(f"urem i64 {block}, {blocks.down}")
            column = self._let(f"udiv i64 {block}, {blocks.down}")
            column = self._start_of(column, blocks.columns_each, total.columns)
        row = self._start_of(row, blocks.rows_each, total.rows)
        sums = self._sums(total, blocks, kind, row, column)
        for pointer, value in zip(self._pointers(target, kind, row, column, blocks), sums, strict=True):
            self._emit(f"store {blocks.vector(kind)} {value}, ptr {pointer}, align {bytes_of(kind)}")
        self._lines.insert(head, f" {block} = phi i64 [0, %{before}], [{following}, %{self._block}]")
        self._emit(f"{following} = add i64 {block}, 1")
        more = self._let(f"icmp ult i64 {following}, {blocks.down * blocks.across}")
        self._emit(f"br i1 {more}, label %{label}, label %{label}.end")
        self._start(f"{label}.end")

    def _has_vectors(self, loop: Loop, total: SumOfMatrixProducts) -> bool:
        """True if adjacent columns of all matrices are adjacent in memory, for the only sample."""
        in_rows = [p.right for p in total.products] + ([] if total.base is None else [total.base])
        kind = loop.collected[0][3]
        if self.width > 1 or any(m.strides[1] != 1 for m in in_rows) or total.columns * bytes_of(kind) < _LEAST_BYTES:
            return False
        regions = [m.region for m in in_rows] + [p.left.region for p in total.products]
        return all(self._place(region).layout != "columns" for region in (*regions, self._region_of(loop, 0)))

    def _start_of(self, block: str, length: int, end: int) -> str:
        """First row or column of a block; the last block ends with the matrix."""
        first = self._let(f"mul i64 {block}, {length}")
        return self._let(self._call("umin", "i64", 1, [first, str(end - length)]))

    def _sums(self, total: SumOfMatrixProducts, blocks: "Blocks", kind: str, row: str, column: str) -> list[str]:
        """Vectors with the entries of a block, row by row."""
        vector = blocks.vector(kind)
        sums = ["zeroinitializer"] * (blocks.rows_each * len(blocks.starts))
        if total.base is not None:
            pointers = self._pointers(total.base, kind, row, column, blocks)
            sums = [self._let(f"load {vector}, ptr {p}, align {bytes_of(kind)}") for p in pointers]
        for product in total.products:
            sums = self._added(product, blocks, kind, sums, row, column)
        return sums

    def _added(
        self, product: MatrixProduct, blocks: "Blocks", kind: str, sums: Sequence[str], row: str, column: str
    ) -> list[str]:
        """The sums and all terms of a product; the terms are added in sequence, in a loop if there are many."""
        left = [self._pointer(product.left, kind, "0", self._plus(row, k)) for k in range(blocks.rows_each)]
        right = [self._pointer(product.right, kind, "0", self._plus(column, k)) for k in blocks.starts]
        steps = product.left.strides[0], product.right.strides[0]
        turns = product.terms // _TERMS if product.terms > _MOST_TERMS else 0
        sums = list(sums)
        if turns:
            vector, label = blocks.vector(kind), self._label("terms")
            before = self._block
            self._emit(f"br label %{label}")
            self._start(label)
            head, turn, following = len(self._lines), f"%k.{label}", f"%n.{label}"
            added = [f"%s{i}.{label}" for i in range(len(sums))]
            for k in range(_TERMS):
                term = self._plus(self._let(f"mul i64 {turn}, {_TERMS}"), k)
                added = self._with_term(added, left, right, steps, term, kind, blocks)
            text = [f" {turn} = phi i64 [0, %{before}], [{following}, %{label}]"]
            for i, (first, last) in enumerate(zip(sums, added, strict=True)):
                text.append(f" %s{i}.{label} = phi {vector} [{first}, %{before}], [{last}, %{label}]")
            self._lines[head:head] = text
            self._emit(f"{following} = add i64 {turn}, 1")
            more = self._let(f"icmp ult i64 {following}, {turns}")
            self._emit(f"br i1 {more}, label %{label}, label %{label}.end")
            self._start(f"{label}.end")
            sums = added
        for k in range(turns * _TERMS, product.terms):
            sums = self._with_term(sums, left, right, steps, str(k), kind, blocks)
        return sums

    def _with_term(
        self,
        sums: Sequence[str],
        left: Sequence[str],
        right: Sequence[str],
        steps: tuple[int, int],
        term: str,
        kind: str,
        blocks: "Blocks",
    ) -> list[str]:
        """The sums and the products of a term.

        Args:
            sums: Sums so far, row by row.
            left: Pointers to the first term of each row.
            right: Pointers to the first term of each vector of columns.
            steps: Distances between the terms of both factors.
            term: Index of the term.
            kind: Scalar type.
            blocks: Blocks of the matrix.
        """
        scalar, align, vector = scalar_type(kind), bytes_of(kind), blocks.vector(kind)
        from_left, from_right = (self._times(term, step) for step in steps)
        factors = []
        for p in right:
            pointer = self._let(f"getelementptr {scalar}, ptr {p}, i64 {from_right}")
            factors.append(self._let(f"load {vector}, ptr {pointer}, align {align}"))
        added = []
        for i, p in enumerate(left):
            pointer = self._let(f"getelementptr {scalar}, ptr {p}, i64 {from_left}")
            one = self._let(f"load {scalar}, ptr {pointer}, align {align}")
            first = self._let(f"insertelement {vector} poison, {scalar} {one}, i64 0")
            all_lanes = self._let(
                f"shufflevector {vector} {first}, {vector} poison, <{blocks.lanes} x i32> zeroinitializer"
            )
            for j, factor in enumerate(factors):
                product = self._let(f"fmul contract {vector} {all_lanes}, {factor}")
                added.append(self._let(f"fadd contract {vector} {sums[i * len(factors) + j]}, {product}"))
        return added

    def _pointers(self, x: Matrix, kind: str, row: str, column: str, blocks: "Blocks") -> list[str]:
        """Pointers to all vectors of a block of a matrix, row by row."""
        return [
            self._pointer(x, kind, self._plus(row, i), self._plus(column, k))
            for i in range(blocks.rows_each)
            for k in blocks.starts
        ]

    def _pointer(self, x: Matrix, kind: str, row: str, column: str) -> str:
        """Pointer to an entry of a matrix."""
        place: Place = self._place(x.region)
        position = self._index(x.offset)
        for k, step in ((row, x.strides[0]), (column, x.strides[1])):
            position = self._sum(position, self._times(k, step))
        return self._let(f"getelementptr {scalar_type(kind)}, ptr {place.base}, i64 {position}")

    def _times(self, x: str, by: int) -> str:
        """Product of an index with a known factor."""
        if x.isdigit():
            return str(int(x) * by)
        return x if by == 1 else self._let(f"mul i64 {x}, {by}")

    def _plus(self, x: str, k: int) -> str:
        return self._sum(x, str(k))

    def _sum(self, x: str, y: str) -> str:
        """Sum of two indices, of which both may be known."""
        if x.isdigit() and y.isdigit():
            return str(int(x) + int(y))
        return x if y == "0" else y if x == "0" else self._let(f"add i64 {x}, {y}")


class Blocks:
    """Division of a matrix into blocks whose sums stay in registers.

    Attributes:
        rows_each, columns_each: Number of rows and columns of a block.
        down, across: Number of blocks in a column and in a row of blocks; the last ones may overlap the previous ones.
        lanes: Entries of a vector.
        starts: First column of each vector within a block; the last vector may overlap the previous one.
    """

    def __init__(self, rows: int, columns: int, item: int):
        """Choose the blocks.

        Args:
            rows, columns: Shape of the matrix; a row is at least as long as the narrowest vector.
            item: Bytes of an entry.
        """
        self.lanes = _VECTOR_BYTES // item
        while self.lanes > columns:
            self.lanes //= 2
        self.across = -(-columns // (_SUMS_PER_ROW * self.lanes))
        self.columns_each = -(-columns // self.across)
        self.starts = [min(k, self.columns_each - self.lanes) for k in range(0, self.columns_each, self.lanes)]
        self.rows_each = min(rows, max(1, _SUMS // len(self.starts)))
        self.down = -(-rows // self.rows_each)

    def vector(self, kind: str) -> str:
        return f"<{self.lanes} x {scalar_type(kind)}>"
