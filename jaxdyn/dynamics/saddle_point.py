"""Linear systems of constrained mechanics,

    M x - G' lam = f,   G x = g

with a positive definite M. If equations are redundant, G loses rank while x and G' lam stay unique; lam is then the solution of
smallest norm. Source: theory.md (N9), (N10).

A pseudo-inverse is not differentiable where its rank changes, and requires an eigenvalue decomposition. Instead of using it, a
small multiple s of the identity is added to A = G M^-1 G', which makes this matrix regular. A polynomial of T = s (A + s 1)^-1 then
removes the error that s causes in the range of A, and the part of lam in its null space:

    lam = (1 - T)^2 (1 + 3 T + 6 T^2 + 10 T^3) (A + s 1)^-1 (...)

For an eigenvalue sigma of A far above s, the factor of the result is (1 - 15 (s/sigma)^4) / sigma, far below it 20 sigma^2 / s^3.
In between, where a mechanism passes through a singular position, it is smooth and finite.

The equations of many spatial loops, such as Bennett's, are redundant in closed configurations only. If such a loop is open by a
small angle e, which happens within each step of an integrator, eigenvalues that belong to zero are of order e^2. Therefore s
contains a term that grows with e^2, so that the rank is that of the closed loop.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot
from jaxdyn.spatial import factorizations

# The polynomial of lowest degree (Bernstein) whose error is of order 4 at T = 0, and whose value is of order 3 at T = 1.
_COEFFICIENTS = (10.0, 6.0, 3.0, 1.0)
_REMOVALS = 2
# Relative to the mean eigenvalue; the smallest value that single precision allows. Double precision would allow a smaller one, but
# then rounding errors of a step near a singular position would cause large forces.
_LEAST_SOFTNESS = 1e-9
# Softness of an open loop relative to the mean eigenvalue, divided by e^2; eigenvalues of redundant equations are up to 0.03 e^2 of
# the largest one. Its bound, relative to the harmonic mean of the diagonal, preserves the other equations of a loop that is wide
# open.
_PER_SQUARED_ERROR = 1e3
_MOST_SOFTNESS = 1e-3
_LEAST_DIAGONAL = 1e-3  # relative to the mean, for rows that vanish
_UNMOVED = 1e-6  # squared norm of a row, relative to the mean, below which no motion changes its residual


class SaddlePoint(NamedTuple):
    """Factorized matrices of the equations, for any right-hand side.

    Attributes:
        mass_factor: Upper triangular factor U of M = U U'.
        rows: Matrix G.
        by_force: Matrix M^-1 G', the response to a unit force along each row.
        softness: Multiple s of the identity.
        matrix, factor: Matrix G M^-1 G', and the lower Cholesky factor of G M^-1 G' + s 1.
    """

    mass_factor: Float[Array, "n n"]
    rows: Float[Array, "m n"]
    by_force: Float[Array, "n m"]
    softness: Float[Array, ""]
    matrix: Float[Array, "m m"]
    factor: Float[Array, "m m"]


def factorize(
    mass_factor: Float[Array, "n n"], rows: Float[Array, "m n"], residual: Float[Array, "m"] | None = None
) -> SaddlePoint:
    """Factorize the matrices of the linear system.

    Args:
        mass_factor: Upper triangular factor U of M = U U'.
        rows: Matrix G.
        residual: Errors phi of constraints with the Jacobian G; zero if None.
    """
    by_force = factorizations.cholesky_solve(mass_factor, rows.T, lower=False)
    matrix = dot(rows, by_force)
    count, limits = matrix.shape[0], jnp.finfo(matrix.dtype)
    mean = jnp.trace(matrix) / count + limits.tiny**0.5
    softness = max(limits.eps ** (2 / 3), _LEAST_SOFTNESS) * mean
    if residual is not None:
        softness = softness + jax.lax.stop_gradient(_softness_of_open(rows, residual, jnp.diagonal(matrix), mean))
    factor = factorizations.cholesky(matrix + softness * jnp.identity(count, matrix.dtype))
    return SaddlePoint(mass_factor, rows, by_force, softness, matrix, factor)


def _softness_of_open(rows, residual, diagonal, mean) -> Float[Array, ""]:
    """Part of s that grows with the closure error. It has no derivative, because the solution does not depend on it."""
    size = jnp.sum(rows**2, axis=1)
    displacement = residual / (size + _UNMOVED * jnp.mean(size) + jnp.finfo(size.dtype).tiny ** 0.5)
    opened = dot(displacement**2, size)  # e^2, independent of the units of the equations
    # In a mechanism of 100 m, the redundant equation may be one of lengths, with a large diagonal, and a needed one of angles.
    typical = 1.0 / jnp.mean(1.0 / jnp.maximum(diagonal, _LEAST_DIAGONAL * mean))
    return jnp.minimum(_PER_SQUARED_ERROR * opened * mean, _MOST_SOFTNESS * typical)


def multipliers(system: SaddlePoint, needed: Float[Array, "m"]) -> Float[Array, "m"]:
    """Multipliers lam that solve G M^-1 G' lam = needed."""

    def softened(right):
        return factorizations.cholesky_solve(system.factor, right)

    first = softened(needed)
    solution = _COEFFICIENTS[0] * first
    for coefficient in _COEFFICIENTS[1:]:
        solution = coefficient * first + softened(system.softness * solution)
    for _ in range(_REMOVALS):
        solution = solution - softened(system.softness * solution)
    return solution


def solve(
    system: SaddlePoint, force: Float[Array, "n"], needed: Float[Array, "m"]
) -> tuple[Float[Array, "n"], Float[Array, "m"]]:
    """Solution (x, lam) of M x - G' lam = f, G x = g.

    Args:
        system: Factorized equations.
        force: Right-hand side f.
        needed: Right-hand side g.
    """
    free = factorizations.cholesky_solve(system.mass_factor, force, lower=False)
    lam = multipliers(system, needed - dot(system.rows, free))
    return free + dot(system.by_force, lam), lam


@jax.custom_jvp
def least_squares(matrix: Float[Array, "n k"], right: Float[Array, "n"]) -> Float[Array, "k"]:
    """Vector u of smallest norm that minimizes |matrix u - right|^2.

    The equations F' x = 0 and x - F u = -right of the minimum are a saddle point with M = 1, G = F' and the multipliers u.

    Args:
        matrix: Matrix F, of any rank.
        right: Right-hand side.
    """
    system = _of_least_squares(matrix)
    nothing = jnp.zeros(matrix.shape[1], matrix.dtype)
    u = solve(system, -right, nothing)[1]
    return u + solve(system, dot(matrix, u) - right, nothing)[1]


@least_squares.defjvp
def _least_squares_jvp(primals, tangents):
    (matrix, right), (d_matrix, d_right) = primals, tangents
    u = least_squares(matrix, right)
    rest = dot(matrix, u) - right
    rows = d_matrix.T
    return u, change(_of_least_squares(matrix), u, -dot(matrix.T, rest), -d_right, -dot(rows, rest), rows)[1]


def _of_least_squares(matrix: Float[Array, "n k"]) -> SaddlePoint:
    return factorize(jnp.identity(matrix.shape[0], matrix.dtype), matrix.T)


def change(
    system: SaddlePoint,
    lam: Float[Array, "m"],
    unmet: Float[Array, "m"],
    force: Float[Array, "n"],
    needed: Float[Array, "m"],
    rows: Float[Array, "m n"],
) -> tuple[Float[Array, "n"], Float[Array, "m"]]:
    """Derivative (dx, dlam) of the solution along a change of the equations.

        dlam = A^+ (dg - dG x - G M^-1 (df - dM x + dG' lam)) + A^+ A^+ dA unmet + (1 - A^+ A) dA A^+ lam,   A = G M^-1 G'

    The last two terms are the rotation of the range of A (Golub and Pereyra 1973). They contribute to dx only where redundant
    equations contradict each other, in a loop that is slightly open. Therefore dA omits the terms of dM, which are smaller by
    another factor of that opening.

    Args:
        system: Factorized equations.
        lam: Solution.
        unmet: Part g - G x of the right-hand side that the solution does not satisfy.
        force: Change df - dM x.
        needed: Change dg - dG x.
        rows: Change dG.
    """

    free = factorizations.cholesky_solve(system.mass_factor, force + dot(rows.T, lam), lower=False)

    def turned(x):
        return dot(rows, dot(system.by_force, x)) + dot(dot(rows.T, x), system.by_force)

    idle = turned(multipliers(system, lam))
    needed = needed - dot(system.rows, free) + multipliers(system, turned(unmet)) - dot(system.matrix, idle)
    d_lam = multipliers(system, needed) + idle
    return free + dot(system.by_force, d_lam), d_lam
