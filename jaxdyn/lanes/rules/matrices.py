"""Factorizations and solutions of small matrices."""

import math

import numpy as np

from jaxdyn.lanes import linear_algebra
from jaxdyn.lanes.flatten import Flattener, Value, kind_of, objects, rule, scalars_of
from jaxdyn.lanes.program import Node, Scalar


def _matrices(flat: Flattener, x: Value) -> tuple[np.ndarray, tuple[int, ...]]:
    x = flat.registers(x)
    return x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:]), x.shape[:-2]  # a matrix may have no rows


@rule("cholesky")
def _cholesky(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    matrices, batch = _matrices(flat, args[0])
    kind = kind_of(equation.outvars[0])
    factors = [linear_algebra.cholesky(flat.program, m.tolist(), kind) for m in matrices]
    return [objects([s for f in factors for row in f for s in row], (*batch, *matrices.shape[1:]))]


@rule("triangular_solve", reads="left_side lower transpose_a unit_diagonal", ignores="conjugate_a")
def _triangular_solve(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    p, kind = equation.params, kind_of(equation.outvars[0])
    (a, batch), (b, _) = _matrices(flat, args[0]), _matrices(flat, args[1])
    solutions = []
    for matrix, right in zip(a, b, strict=True):
        transposed = p["transpose_a"] == p["left_side"]
        matrix = matrix.T if transposed else matrix
        lower = p["lower"] != transposed
        # x A = b is A^T x^T = b^T
        columns = right.T if p["left_side"] else right
        solved = [
            linear_algebra.triangular_solve(flat.program, matrix.tolist(), c, lower, p["unit_diagonal"], kind)
            for c in columns.tolist()
        ]
        solution = objects([s for c in solved for s in c], columns.shape)
        solutions.append(solution.T if p["left_side"] else solution)
    return [objects([s for x in solutions for s in scalars_of(x)], (*batch, *b.shape[1:]))]


@rule("lu")
def _lu(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    matrices, _ = _matrices(flat, args[0])
    kind = kind_of(equation.outvars[0])
    results = [linear_algebra.lu(flat.program, m.tolist(), kind) for m in matrices]
    shapes = [v.aval.shape for v in equation.outvars]
    factors = [s for r in results for row in r[0] for s in row]
    return [
        objects(factors, shapes[0]),
        objects([s for r in results for s in r[1]], shapes[1]),
        objects([s for r in results for s in r[2]], shapes[2]),
    ]


@rule("lu_pivots_to_permutation", reads="permutation_size")
def _pivots_to_permutation(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    pivots, program = flat.registers(args[0]), flat.program
    size = equation.params["permutation_size"]
    out = []
    for row in pivots.reshape(math.prod(pivots.shape[:-1]), pivots.shape[-1]).tolist():
        order: list[Scalar] = list(range(size))
        for k, pivot in enumerate(row):
            for i in range(k + 1, size):
                here = program.compare("eq", pivot, i) if type(pivot) is Node else pivot == i
                order[k], order[i] = (
                    program.select(here, order[i], order[k], "i32"),
                    program.select(here, order[k], order[i], "i32"),
                )
        out += order
    return [objects(out, (*pivots.shape[:-1], size))]


@rule("custom_linear_solve", reads="const_lengths jaxprs")
def _custom_linear_solve(flat: Flattener, equation, args: list[Value]) -> list[Value]:
    lengths, jaxprs = equation.params["const_lengths"], equation.params["jaxprs"]
    before = lengths.matvec + lengths.vecmat
    consts = args[before : before + lengths.solve]
    return flat.closed(jaxprs.solve, [*consts, *args[sum(lengths) :]])
