"""Linear systems of constrained mechanics,

    M x - G' lam = f,   G x = g

with a positive definite M. If equations are redundant, G loses rank while x and G' lam stay unique; lam is then the solution of
smallest norm. Source: theory.md (N9), (N10).

A pseudo-inverse is not differentiable where its rank changes, and requires an eigenvalue decomposition. Instead of using it, a
small multiple s of the identity is added to G M^-1 G', which makes this matrix regular. Corrections then remove the error that s
causes in the range of G M^-1 G', and the part of lam in its null space. The result contains the factor
(1 - (s/(sigma + s))^k)^2 / sigma for each eigenvalue sigma of G M^-1 G'. This factor is 1/sigma if sigma is far above s, zero at
zero, and smooth and finite in between, where a mechanism passes through a singular position.

Source of the corrections: Carpentier, Budhiraja and Mansard, Robotics: Science and Systems 2021.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.spatial import factorizations
from jaxdyn.spatial.arrays import dot

_CORRECTIONS = 3
# Relative to the mean eigenvalue; the smallest value that single precision allows. Double precision would allow a smaller one, but
# then rounding errors of a step near a singular position would cause large forces.
_LEAST_SOFTNESS = 1e-9


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


def factorize(mass_factor: Float[Array, "n n"], rows: Float[Array, "m n"]) -> SaddlePoint:
    """Factorize the matrices of the linear system.

    Args:
        mass_factor: Upper triangular factor U of M = U U'.
        rows: Matrix G.
    """
    by_force = factorizations.cholesky_solve(mass_factor, rows.T, lower=False)
    matrix = dot(rows, by_force)
    count, limits = matrix.shape[0], jnp.finfo(matrix.dtype)
    mean = jnp.trace(matrix) / count + limits.tiny**0.5
    softness = max(limits.eps ** (2 / 3), _LEAST_SOFTNESS) * mean
    factor = factorizations.cholesky(matrix + softness * jnp.identity(count, matrix.dtype))
    return SaddlePoint(mass_factor, rows, by_force, softness, matrix, factor)


def multipliers(system: SaddlePoint, needed: Float[Array, "m"]) -> Float[Array, "m"]:
    """Multipliers lam that solve G M^-1 G' lam = needed."""

    def softened(right):
        return factorizations.cholesky_solve(system.factor, right)

    solution = softened(needed)
    for _ in range(_CORRECTIONS):
        solution = solution + softened(needed - dot(system.matrix, solution))
    idle = solution
    for _ in range(1 + _CORRECTIONS):
        idle = system.softness * softened(idle)
    return solution - idle


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
