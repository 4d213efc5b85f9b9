"""Factorizations and triangular solutions of small matrices, written out in scalars. Matrices are lists of rows."""

from collections.abc import Sequence

from jaxdyn.lanes.program import Node, Program, Scalar

Matrix = list[list[Scalar]]


def cholesky(program: Program, a: Matrix, kind: str) -> Matrix:
    """Lower factor L of a = L L^T, from the lower triangle of a.

    If a is not positive definite, the first invalid pivot is NaN, and so are all entries that depend on it.

    Args:
        program: Program under construction.
        a: Symmetric matrix.
        kind: Scalar type.
    """
    n = len(a)
    out: Matrix = [[0.0] * n for _ in range(n)]

    def rest(i: int, j: int) -> Scalar:
        left = a[i][j]
        for k in range(j):
            left = program.apply("sub", (left, program.mul(out[i][k], out[j][k], kind)), kind)
        return left

    for j in range(n):
        out[j][j] = program.apply("sqrt", (rest(j, j),), kind)
        inverse = program.apply("div", (1.0, out[j][j]), kind)
        for i in range(j + 1, n):
            out[i][j] = program.mul(rest(i, j), inverse, kind)
    return out


def triangular_solve(
    program: Program, a: Matrix, b: Sequence[Scalar], lower: bool, unit_diagonal: bool, kind: str
) -> list[Scalar]:
    """Solution x of a x = b. Divisions by a diagonal entry are products with its reciprocal, computed once for all of b.

    Args:
        program: Program under construction.
        a: Triangular matrix.
        b: Right-hand side.
        lower: True if a is a lower triangular matrix.
        unit_diagonal: True if all diagonal entries of a are one.
        kind: Scalar type.
    """
    n = len(b)
    x: list[Scalar] = [0.0] * n
    for i in range(n) if lower else reversed(range(n)):
        rest = b[i]
        for k in range(i) if lower else range(i + 1, n):
            rest = program.apply("sub", (rest, program.mul(a[i][k], x[k], kind)), kind)
        x[i] = rest if unit_diagonal else program.mul(rest, program.apply("div", (1.0, a[i][i]), kind), kind)
    return x


def lu(program: Program, a: Matrix, kind: str) -> tuple[Matrix, list[Scalar], list[Scalar]]:
    """LU factors in one matrix, pivots and permutation. Rows are exchanged by selections, because pivots differ between lanes.

    Args:
        program: Program under construction.
        a: Matrix.
        kind: Scalar type.
    """
    a = [list(row) for row in a]
    rows, columns = len(a), len(a[0]) if a else 0
    order: list[Scalar] = list(range(rows))
    pivots: list[Scalar] = []
    for k in range(min(rows, columns)):
        largest, where = program.apply("abs", (a[k][k],), kind), k
        for i in range(k + 1, rows):
            size = program.apply("abs", (a[i][k],), kind)
            better = program.compare("gt", size, largest)
            largest = program.select(better, size, largest, kind)
            where = program.select(better, i, where, "i32")
        pivots.append(where)
        for i in range(k + 1, rows):
            here = program.compare("eq", where, i) if type(where) is Node else where == i
            for j in range(columns):
                x, y = a[k][j], a[i][j]
                a[k][j], a[i][j] = program.select(here, y, x, kind), program.select(here, x, y, kind)
            x, y = order[k], order[i]
            order[k], order[i] = program.select(here, y, x, "i32"), program.select(here, x, y, "i32")
        inverse = program.apply("div", (1.0, a[k][k]), kind)
        for i in range(k + 1, rows):
            a[i][k] = program.mul(a[i][k], inverse, kind)
            for j in range(k + 1, columns):
                product = program.mul(a[i][k], a[k][j], kind)
                a[i][j] = program.apply("sub", (a[i][j], product), kind)
    return a, pivots, order
