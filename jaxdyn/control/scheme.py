"""Collocation schemes: collocation points in the interval [0, 1], and polynomials that interpolate values at these points.

A scheme is defined by its points c. Let l_j be the Lagrange polynomials of the points, and I_j(s) the integral of l_j from 0 to s.
If F_j are the time derivatives at the points c_j, the state changes by xi(s) = sum of F_j I_j(s) from 0 to s. The scheme is a
Runge-Kutta method with matrix A_ij = I_j(c_i) and weights I_j(1). The points (0, 1) define the trapezoidal rule, (0, 1/2, 1) the
Hermite-Simpson method, and roots of Legendre polynomials the Gauss methods.
"""

from functools import lru_cache
from typing import Literal, NamedTuple, get_args

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.errors import check_name

SchemeName = Literal["trapezoid", "hermite_simpson", "legendre_gauss"]


def collocation_points(scheme: SchemeName, degree: int) -> tuple[float, ...]:
    """The collocation points of a scheme in the interval [0, 1].

    Args:
        degree: Number of points of "legendre_gauss"; ignored for the other schemes, whose number of points is fixed.

    Raises:
        UnknownName: There is no such scheme.
        ValueError: The degree is less than 1.
    """
    if scheme == "trapezoid":
        return 0.0, 1.0
    if scheme == "hermite_simpson":
        return 0.0, 0.5, 1.0
    check_name("scheme", scheme, get_args(SchemeName))
    if degree < 1:
        raise ValueError(f"the degree is {degree}; give 1 or more points for each interval")
    return tuple(float(c) for c in 0.5 * (np.polynomial.legendre.leggauss(degree)[0] + 1.0))


class Scheme(NamedTuple):
    """Matrices and weights of a collocation scheme with s points.

    Attributes:
        points: Collocation points c.
        places: Positions in (0, 1] of the unknown states of an interval: collocation points after the start, and the end of the
            interval.
        steps, rates: Matrices of the collocation equations steps @ xi = rates @ F, one row for each entry of `places`.
        weights: Weights I_j(1) of the quadrature.
        values, integrals: Coefficients of the polynomials l_j and I_j in row j, in ascending powers.
    """

    points: tuple[float, ...]
    places: tuple[float, ...]
    steps: np.ndarray
    rates: np.ndarray
    weights: np.ndarray
    values: np.ndarray
    integrals: np.ndarray

    @property
    def at_nodes(self) -> bool:
        """Whether both ends of an interval are collocation points, so that adjacent intervals share a point."""
        return self.points[0] == 0.0


@lru_cache
def scheme_of(points: tuple[float, ...]) -> Scheme:
    """The scheme with the given collocation points."""
    c = np.array(points)
    s = len(c)
    values = np.linalg.inv(np.vander(c, increasing=True)).T
    integrals = np.concatenate([np.zeros((s, 1)), values / np.arange(1, s + 1)], axis=1)
    A = np.vander(c, s + 1, increasing=True) @ integrals.T
    weights = integrals.sum(axis=1)
    if points[0] == 0.0:
        return Scheme(points, points[1:], np.eye(s - 1), A[1:], weights, values, integrals)
    # After multiplication by the inverse of A each row contains the time derivative at one point only, which keeps the
    # Jacobian sparse. The last row extrapolates the polynomial to the end of the interval.
    derivative = np.linalg.inv(A)
    steps = np.block([[derivative, np.zeros((s, 1))], [-(weights @ derivative)[None], np.ones((1, 1))]])
    rates = np.concatenate([np.eye(s), np.zeros((1, s))])
    return Scheme(points, (*points, 1.0), steps, rates, weights, values, integrals)


def polynomial(coefficients: np.ndarray, where: Float[Array, ""], values: Float[Array, "s n"]) -> Float[Array, "n"]:
    """Sum over j of values_j p_j(where), where row j of the coefficients defines the polynomial p_j."""
    powers = where ** np.arange(coefficients.shape[1]).astype(where.dtype)
    return jnp.asarray(coefficients, where.dtype) @ powers @ values
