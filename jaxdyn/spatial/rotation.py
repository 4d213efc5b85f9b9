"""Rodrigues (rotation) matrices and dual objects (skew matrices), theory.md section (b).

A rotation matrix R_AB converts the components of a vector on frame B to its components on frame A.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import bilinear, dot, linear
from jaxdyn.spatial.series import sinc_root, versine_root

Vector3 = Float[Array, "3"]
Matrix33 = Float[Array, "3 3"]


# Coefficients of the vector product, (a x b)_i = sum of CROSS[i, j, k] a_j b_k.
CROSS = np.cross(np.eye(3)[:, None], np.eye(3)).transpose(2, 0, 1)


def cross(
    a: Float[Array | np.ndarray, "*#batch 3"], b: Float[Array | np.ndarray, "*#batch 3"]
) -> Float[Array, "*batch 3"]:
    """Vector product a x b over the last axis."""
    return bilinear(CROSS, a, b)


def skew(a: Vector3) -> Matrix33:
    """Dual object S(a) of a vector, S(a) b = a x b (synonyms: hat matrix, cross-product matrix).

    Source: theory.md (B1).
    """
    return linear(CROSS.transpose(0, 2, 1), a)  # (B1)


def unskew(matrix: Matrix33) -> Vector3:
    """Vector a of the antisymmetric part of `matrix`, the inverse of `skew` (synonym: vee)."""
    return 0.5 * jnp.stack([matrix[2, 1] - matrix[1, 2], matrix[0, 2] - matrix[2, 0], matrix[1, 0] - matrix[0, 1]])


def rodrigues(axis: Vector3, angle: Float[Array, ""]) -> Matrix33:
    """Rodrigues matrix A(e, phi) = 1 + sin(phi) S(e) + (1 - cos(phi)) S(e)^2 of a rotation about the unit vector e.

    Args:
        axis: Unit vector e, with the same components on the frames before and after the rotation.
        angle: Angle phi, rad.

    Source: theory.md (B4), Rodrigues 1840.
    """
    s = skew(axis)
    return jnp.sin(angle) * s + (1.0 - jnp.cos(angle)) * dot(s, s) + np.eye(3, dtype=s.dtype)  # (B4)


def exponential(rotation_vector: Vector3) -> Matrix33:
    """Rotation matrix expm(S(u)) of the rotation vector u = phi e (rad); it is smooth to all orders, also at u = 0.

    Source: theory.md (B4) written in powers of |u|^2.
    """
    s = skew(rotation_vector)
    x = dot(rotation_vector, rotation_vector)
    return sinc_root(x) * s + versine_root(x) * dot(s, s) + np.eye(3, dtype=s.dtype)
