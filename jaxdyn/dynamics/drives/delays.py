"""Delays of controls as linear systems, theory.md (H24), (H25).

A delayed control is a wave that runs from s = 0 to s = 1 in the time tau: tau dw/dt = -dw/ds, w(0) = u. Collocation at the Radau
points s_1 < ... < s_n = 1 makes it a linear system with states z_i, about u(t - s_i tau), and the matrix D of derivatives at
these points: tau dz/dt = D (u - z). The transfer function of z_n is the Padé approximation [n-1/n] of a delay.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot
from jaxdyn.dynamics.forces import Scalar

POINTS = 4  # of collocation, the states of one delay; an even number, for which D has no real eigenvalue


_S = 0.5 + 0.5 * np.sort(np.polynomial.legendre.legroots([*np.zeros(POINTS - 1), -1.0, 1.0]))[:, None]
_INTEGRATION = _S ** np.arange(1, POINTS + 1) / np.arange(1, POINTS + 1) @ np.linalg.inv(_S ** np.arange(POINTS))
_D = np.linalg.inv(_INTEGRATION)


_ROOTS, _VECTORS = np.linalg.eig(_D)
_MODES = [
    (root, 2.0 * np.outer(right, left))
    for root, right, left in zip(_ROOTS.tolist(), _VECTORS.T, np.linalg.inv(_VECTORS), strict=True)
    if root.imag > 0.0
]  # exp(-D x) is the sum of the real parts of exp(-root x) times these matrices


_SHORT, _TERMS = 0.05, 14  # step over delay below which a series has all digits, and its number of terms
_DECAYED = 250.0  # step over delay after which no digit of the states before remains


def rates(z: Float[Array, "points"], u: Scalar, delay: Scalar) -> Float[Array, "points"]:
    """Rates of the states of a delay with the input u."""
    return dot(_D.astype(z.dtype), u - z) / delay  # (H24)


def over_step(
    z: Float[Array, "points"], u: Scalar, delay: Scalar, step: Scalar | float
) -> tuple[Float[Array, "points"], Float[Array, "points"]]:
    """Means of the states over a step with a constant input u, and the states at its end, both exact."""
    x, away, dtype = step / delay, u - z, z.dtype
    late, left = jnp.minimum(x, _DECAYED), jnp.zeros_like(z)  # exp(-D x) (u - z)
    for root, part in _MODES:
        cosines, sines = (dot(matrix.astype(dtype), away) for matrix in (part.real, part.imag))
        waves = jnp.cos(root.imag * late) * cosines + jnp.sin(root.imag * late) * sines
        left = left + jnp.exp(-root.real * late) * waves
    # The quotient cancels in short steps, and is 0/0 in a step of length zero.
    series, short = away, jnp.abs(x) < _SHORT
    for k in range(_TERMS, 1, -1):
        series = away - jnp.where(short, x, 0.0) / k * dot(_D.astype(dtype), series)
    quotient = dot(_INTEGRATION.astype(dtype), away - left) / jnp.where(short, 1.0, x)
    return u - jnp.where(short, series, quotient), u - left  # (H25)
