"""Factorizations and linear systems of small matrices, as in `jax.numpy.linalg`, but without deadlocks for batches on CPUs.

On CPUs, JAX passes a batch of matrices to LAPACK in one call, which distributes the batch over the threads of XLA and waits for
them. With as many simultaneous calls as there are threads, all threads wait and none computes. For example, two simultaneous calls
cause a deadlock on two cores. Therefore no program of jaxdyn may call LAPACK with a batch. Cholesky factors and triangular
solutions of a batch of matrices with few rows are computed by array code (`elementary`). All other factorizations of a batch are
computed in a loop that calls LAPACK once per matrix; such a call needs no other thread. All of jaxdyn uses this module for
factorizations, as `tests/test_lapack.py` checks.

With 7 rows the array code is 25 times as fast as the loop, which is dominated by the overhead of calls. With 12 rows the array code
is a few times as fast as the loop, but XLA takes seconds to compile it. On other devices, such as GPUs, every call of a solver
launches at least one kernel, so array code is also used for larger matrices than on CPUs.

The primitives below have the same names and parameters as the primitives of JAX, so that the rules of the lane compiler apply to
them. In contrast to JAX, the Cholesky factor has zeros above its diagonal.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, einsum
from jaxdyn.spatial import elementary

# Largest number of rows for elementary operations on other devices, whose compilers fuse them; a solver is at least one kernel.
_MOST_ELEMENTARY = 32

# ---------------------------------------------------------------- functions of one matrix


def cholesky(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Lower factor L of a symmetric matrix L L'; NaN if the matrix is not positive definite."""
    return cholesky_of_lower((matrix + matrix.T) / 2)


def cholesky_of_lower(lower: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """`cholesky` of the symmetric matrix with this lower triangle; entries above the diagonal are not read."""
    return _cholesky_p.bind(lower)


def upper_factor(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Upper factor U of a symmetric matrix U U'; NaN if the matrix is not positive definite."""
    return cholesky(matrix[::-1, ::-1])[::-1, ::-1]


def upper_factor_of_lower(lower: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """`upper_factor` of the symmetric matrix with this lower triangle; entries above the diagonal are not read."""
    return cholesky_of_lower(lower.T[::-1, ::-1])[::-1, ::-1]


def cholesky_solve(
    factor: Float[Array, "n n"], right: Float[Array | np.ndarray, "n *columns"], *, lower: bool = True
) -> Float[Array, "n *columns"]:
    """Solution x of F F' x = right.

    Args:
        factor: Triangular factor F.
        right: Right-hand side, or right-hand sides as columns.
        lower: True for a lower factor, False for an upper factor.
    """
    return solve_triangular(factor, solve_triangular(factor, right, lower=lower), lower=lower, transposed=True)


def solve_triangular(
    matrix: Float[Array, "n n"],
    right: Float[Array | np.ndarray, "n *columns"],
    *,
    lower: bool,
    transposed: bool = False,
    unit_diagonal: bool = False,
) -> Float[Array, "n *columns"]:
    """Solution x of T x = right, or of T' x = right if `transposed`.

    Args:
        matrix: Matrix with T in one triangle. The other triangle is not read.
        right: Right-hand side, or right-hand sides as columns.
        lower: True if T is the lower triangle.
        transposed: True to solve T' x = right.
        unit_diagonal: True if the diagonal of T is one and is not read.
    """
    columns = right[:, None] if right.ndim == 1 else right
    return _triangular_solve(matrix, columns, lower, transposed, unit_diagonal).reshape(right.shape)


def solve(matrix: Float[Array, "n n"], right: Float[Array, "n *columns"]) -> Float[Array, "n *columns"]:
    """Solution x of matrix x = right by Gaussian elimination with row pivoting; not finite if the matrix is singular."""
    factors, _, order = _lu_p.bind(jax.lax.stop_gradient(matrix))

    def solved(_, b):
        y = solve_triangular(factors, b[order], lower=True, unit_diagonal=True)
        return solve_triangular(factors, y, lower=False)

    def solved_transposed(_, b):
        y = solve_triangular(factors, b, lower=False, transposed=True)
        y = solve_triangular(factors, y, lower=True, transposed=True, unit_diagonal=True)
        return y[jnp.argsort(order)]

    # The derivative is that of the equation and uses the same factors.
    return jax.lax.custom_linear_solve(lambda x: dot(matrix, x), right, solved, solved_transposed)


@jax.custom_jvp
def log_determinant(matrix: Float[Array, "n n"]) -> Float[Array, ""]:
    """Logarithm of the absolute value of the determinant."""
    factors, _, _ = _lu_p.bind(matrix)
    return jnp.sum(jnp.log(jnp.abs(jnp.diagonal(factors))))


@log_determinant.defjvp
def _log_determinant_jvp(primals, tangents):
    (matrix,), (change,) = primals, tangents
    return log_determinant(matrix), jnp.trace(solve(matrix, change))


def qr(matrix: Float[Array, "m n"]) -> tuple[Float[Array, "m k"], Float[Array, "k n"]]:
    """Factors Q (orthonormal columns) and R (upper triangular) of matrix = Q R, with k = min(m, n). Derivatives need m >= n."""
    return tuple(_qr_p.bind(matrix, pivoting=False, full_matrices=False, use_magma=None))


# ---------------------------------------------------------------- primitives


def _own(original: jex.Primitive, by_library: Callable, in_elements: Callable | None = None) -> jex.Primitive:
    """A primitive with the same interface, which on CPUs calls the library separately for each matrix of a batch.

    Args:
        original: Primitive of JAX.
        by_library: Implementation by LAPACK or by the library of another device.
        in_elements: Implementation by elementary operations, for small matrices.
    """
    own = jex.Primitive(original.name)
    own.multiple_results = original.multiple_results
    own.abstract_eval = original.abstract_eval

    @functools.lru_cache(maxsize=64)
    def compiled(**params) -> Callable:
        return jax.jit(functools.partial(own.bind, **params))

    @own.def_impl
    def implementation(*operands, **params):
        with jax.disable_jit(False):  # without jit this function would call itself
            return compiled(**params)(*operands)

    def elsewhere(*operands, **params):
        if in_elements is not None and operands[0].shape[-1] <= _MOST_ELEMENTARY:
            return in_elements(*operands, **params)
        return by_library(*operands, **params)

    def on_cpu(*operands, **params):
        batch, rows = operands[0].shape[:-2], operands[0].shape[-1]
        if not batch:
            return by_library(*operands, **params)
        if in_elements is not None and rows <= elementary.MOST_WRITTEN_OUT:
            return in_elements(*operands, **params)
        flat = [x.reshape(math.prod(batch), *x.shape[-2:]) for x in operands]
        results = jax.lax.map(lambda matrices: by_library(*matrices, **params), flat)
        return jax.tree.map(lambda x: x.reshape(*batch, *x.shape[1:]), results)

    mlir.register_lowering(own, mlir.lower_fun(elsewhere, own.multiple_results))
    mlir.register_lowering(own, mlir.lower_fun(on_cpu, own.multiple_results), platform="cpu")
    batching.primitive_batchers[own] = functools.partial(_batched, own)
    return own


def _batched(primitive: jex.Primitive, operands, axes, **params):
    """Batching rule: the batch axis is the first axis of all operands."""
    size = next(x.shape[axis] for x, axis in zip(operands, axes, strict=True) if axis is not None)
    operands = [
        jnp.broadcast_to(x[None], (size, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)
        for x, axis in zip(operands, axes, strict=True)
    ]
    out = primitive.bind(*operands, **params)
    return out, [0] * len(out) if primitive.multiple_results else 0


def _lapack_cholesky(a: Array) -> Array:
    return jnp.tril(jax.lax.linalg.cholesky_p.bind(a))


def _triangular_solve_in_elements(
    a: Array, b: Array, *, lower: bool, transpose_a: bool, unit_diagonal: bool, **_
) -> Array:
    a = _transposed(a) if transpose_a else a
    return elementary.triangular_solve(a, b, lower=lower != transpose_a, unit_diagonal=unit_diagonal)


_cholesky_p = _own(jax.lax.linalg.cholesky_p, _lapack_cholesky, elementary.cholesky)
_triangular_solve_p = _own(
    jax.lax.linalg.triangular_solve_p, jax.lax.linalg.triangular_solve_p.bind, _triangular_solve_in_elements
)
# The decomposition needs no derivative rule: `solve` differentiates its equation.
_lu_p = _own(jax.lax.linalg.lu_p, jax.lax.linalg.lu_p.bind)
_qr_p = _own(jax.lax.linalg.qr_p, jax.lax.linalg.qr_p.bind)


def _transposed(x: Array) -> Array:
    return jnp.swapaxes(x, -1, -2)


def _product(a: Array, b: Array) -> Array:
    return einsum("...ij,...jk->...ik", a, b)


def _triangular_solve(
    a: Array, b: Array | np.ndarray, lower: bool, transposed: bool = False, unit_diagonal: bool = False
) -> Array:
    return _triangular_solve_p.bind(
        a, b, left_side=True, lower=lower, transpose_a=transposed, conjugate_a=False, unit_diagonal=unit_diagonal
    )


def _cholesky_jvp(primals, tangents):
    """dL = L Phi(L^-1 dA L^-T), where Phi selects the lower triangle with half of the diagonal."""
    (a,), (da,) = primals, tangents
    factor = _cholesky_p.bind(a)
    da = jnp.tril(da) + _transposed(jnp.tril(da, -1))  # the triangle above the diagonal is not read
    inner = _triangular_solve(factor, _transposed(_triangular_solve(factor, da, True)), True)  # symmetric, like da
    n = a.shape[-1]
    phi = np.tril(np.ones((n, n)), -1) + 0.5 * np.identity(n)
    return factor, _product(factor, inner * jnp.asarray(phi.reshape((1,) * (a.ndim - 2) + (n, n)), a.dtype))


def _triangular_solve_jvp(da, x, a, b, *, lower, transpose_a, unit_diagonal, **rest):
    """T dx = -dT x."""
    below = 1 if unit_diagonal else 0
    da = jnp.tril(da, -below) if lower else jnp.triu(da, below)
    change = -_product(_transposed(da) if transpose_a else da, x)
    params = {"lower": lower, "transpose_a": transpose_a, "unit_diagonal": unit_diagonal, **rest}
    return _triangular_solve_p.bind(a, change, **params)


def _triangular_solve_along(db, x, a, b, **params):
    return _triangular_solve_p.bind(a, db, **params)


def _triangular_solve_transpose(cotangent, a, b, *, transpose_a, **params):
    if type(cotangent) is ad.Zero:
        return None, ad.Zero(b.aval)
    return None, _triangular_solve_p.bind(a, cotangent, transpose_a=not transpose_a, **params)


def _triangular_solve_batched(operands, axes, **params):
    """Right-hand sides of a batch with a common matrix are columns of one right-hand side."""
    (a, b), (axis_a, axis_b) = operands, axes
    if axis_a is not None or a.ndim > 2:
        return _batched(_triangular_solve_p, operands, axes, **params)
    b = jnp.moveaxis(b, axis_b, -1)
    solution = _triangular_solve_p.bind(a, b.reshape(len(b), -1), **params)
    return solution.reshape(b.shape), b.ndim - 1


def _qr_jvp(primals, tangents, **params):
    """With Z = Q' dA R^-1 and the skew-symmetric W with the lower triangle of Z: dQ = Q (W - Z) + dA R^-1, dR = (Z - W) R."""
    (a,), (da,) = primals, tangents
    if a.shape[-2] < a.shape[-1]:
        raise NotImplementedError("qr has no derivative for matrices with more columns than rows; transpose the matrix")
    q, r = _qr_p.bind(a, **params)
    along = _transposed(_triangular_solve(r, _transposed(da), False, transposed=True))
    z = _product(_transposed(q), along)
    below = jnp.tril(z, -1)
    skew = below - _transposed(below)
    return (q, r), (_product(q, skew - z) + along, _product(z - skew, r))


ad.primitive_jvps[_cholesky_p] = _cholesky_jvp
ad.primitive_jvps[_qr_p] = _qr_jvp
ad.defjvp2(_triangular_solve_p, _triangular_solve_jvp, _triangular_solve_along)
ad.primitive_transposes[_triangular_solve_p] = _triangular_solve_transpose
batching.primitive_batchers[_triangular_solve_p] = _triangular_solve_batched
