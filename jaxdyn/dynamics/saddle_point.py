"""Linear systems of mechanics with constraints,

    M x - G' lam = f,   G x = g

with a positive definite M. Equations may repeat one another, so that G loses rank while x and G' lam stay unique; lam is then the
smallest one. Source: theory.md (N9), (N10).

A pseudo-inverse has no derivative where its rank changes, and needs an eigenvalue decomposition. Instead G M^-1 G' is made regular
by a small multiple s of the identity; corrections take out again what that changes where the constraints act, and what it left of
lam where they do not. To an eigenvalue sigma of G M^-1 G' belongs the factor (1 - (s/(sigma + s))^k)^2 / sigma: the inverse far
above s, zero at zero, and smooth and finite between, where a mechanism passes through a singular position.
Source: the corrections, Carpentier, Budhiraja and Mansard, Robotics: Science and Systems 2021.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.spatial import factorizations
from jaxdyn.spatial.arrays import dot

_CORRECTIONS = 3
# Relative to the mean eigenvalue. As small as single precision allows; double precision would allow less, but a step that comes to
# lie next to a singular position would then be thrown off by forces that its own errors call for.
_LEAST_SOFTNESS = 1e-9


class SaddlePoint(NamedTuple):
    """What is needed to solve the equations for any right-hand side.

    Attributes:
        mass_factor: lower Cholesky factor of M.
        rows: G.
        by_force: M^-1 G', what a unit force along each row does.
        softness: s.
        matrix, factor: G M^-1 G', and the lower Cholesky factor of this and s.
    """

    mass_factor: Float[Array, "n n"]
    rows: Float[Array, "m n"]
    by_force: Float[Array, "n m"]
    softness: Float[Array, ""]
    matrix: Float[Array, "m m"]
    factor: Float[Array, "m m"]


def factorize(mass_factor: Float[Array, "n n"], rows: Float[Array, "m n"]) -> SaddlePoint:
    """Prepare the equations.

    Args:
        mass_factor: lower Cholesky factor of M.
        rows: G.
    """
    by_force = factorizations.cholesky_solve(mass_factor, rows.T)
    matrix = dot(rows, by_force)
    count, limits = matrix.shape[0], jnp.finfo(matrix.dtype)
    mean = jnp.trace(matrix) / count + limits.tiny**0.5
    softness = max(limits.eps ** (2 / 3), _LEAST_SOFTNESS) * mean
    factor = factorizations.cholesky(matrix + softness * jnp.identity(count, matrix.dtype))
    return SaddlePoint(mass_factor, rows, by_force, softness, matrix, factor)


def multipliers(system: SaddlePoint, needed: Float[Array, "m"]) -> Float[Array, "m"]:
    """lam of G M^-1 G' lam = needed."""

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
    """(x, lam) for f and g."""
    free = factorizations.cholesky_solve(system.mass_factor, force)
    lam = multipliers(system, needed - dot(system.rows, free))
    return free + dot(system.by_force, lam), lam
