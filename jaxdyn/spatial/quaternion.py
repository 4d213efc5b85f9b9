"""Unit quaternions, theory.md section (a): scalar first [w, x, y, z], Hamilton product i j k = -1.

The quaternion q_AB converts components on frame B to components on frame A. A quaternion need not be normalized: every
rotation formula divides by |q|^2, so derivatives with respect to all four components are exact.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import bilinear, dot, linear
from jaxdyn.spatial.rotation import Matrix33, Vector3, cross
from jaxdyn.spatial.series import arctan_quotient, cos_root, sinc_root

Quaternion = Float[Array, "4"]

# Below this squared ratio of vector to scalar part the logarithm uses its series (10 terms, exact to 1e-21).
_LOGARITHM_SWITCH = 0.01


# Coefficients of the product, (p q)_i = sum of PRODUCT[i, j, k] p_j q_k.
PRODUCT = np.array(
    [
        np.diag([1.0, -1.0, -1.0, -1.0]),
        [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, -1, 0]],
        [[0, 0, 1, 0], [0, 0, 0, -1], [1, 0, 0, 0], [0, 1, 0, 0]],
        [[0, 0, 0, 1], [0, 0, 1, 0], [0, -1, 0, 0], [1, 0, 0, 0]],
    ]
)
# Coefficients of the matrix q0 1 + S(qv), whose product with r is the vector part of q (0, r).
_PRODUCT_WITH_VECTOR = PRODUCT[1:, :, 1:].transpose(0, 2, 1)


def identity(dtype=None) -> Quaternion:
    """Quaternion (1, 0, 0, 0) of the identity."""
    return jnp.array([1.0, 0.0, 0.0, 0.0], dtype)


def multiply(p: Quaternion, q: Quaternion) -> Quaternion:
    """Hamilton product p q = (p0 q0 - pv.qv, p0 qv + q0 pv + pv x qv); R(p q) = R(p) R(q).

    Source: theory.md (A1), (A6).
    """
    return bilinear(PRODUCT, p, q)  # (A1)


def conjugate(q: Quaternion) -> Quaternion:
    """Conjugate q* = (q0, -qv), (p q)* = q* p*. Source: theory.md (A2)."""
    return q * np.array([1.0, -1.0, -1.0, -1.0], q.dtype)


def inverse(q: Quaternion) -> Quaternion:
    """Inverse q^-1 = q*/|q|^2. Source: theory.md (A2)."""
    return conjugate(q) / dot(q, q)


def normalize(q: Quaternion) -> Quaternion:
    """Unit quaternion q/|q|; NaN for q = 0, which does not define a rotation."""
    return q / jnp.sqrt(dot(q, q))


def rotate(q: Quaternion, r: Vector3) -> Vector3:
    """Vector R(q) r = q (0, r) q^-1: components of r on the outer frame. Source: theory.md (A4)."""
    qv = q[1:]
    return r + 2.0 / dot(q, q) * cross(qv, q[0] * r + cross(qv, r))


def to_matrix(q: Quaternion) -> Matrix33:
    """Rotation matrix R(q) = 1 + (2 q0 S(qv) + 2 S(qv)^2)/|q|^2, for any nonzero norm. Source: theory.md (A5).

    With S(qv)^2 = qv qv^T - |qv|^2 1 it is R(q) = 2/|q|^2 (q0 (q0 1 + S(qv)) + qv qv^T) - 1.
    """
    qv, product = q[1:], linear(_PRODUCT_WITH_VECTOR, q)
    squared_norm = bilinear(np.eye(4)[None], q, q)[0]  # a reduction would be a separate kernel of XLA
    return 2.0 / squared_norm * (q[0] * product + qv[:, None] * qv[None]) - np.eye(3, dtype=q.dtype)  # (A5)


def from_matrix(rotation: Matrix33) -> Quaternion:
    """Unit quaternion of a rotation matrix, with a positive largest component.

    All entries of 4 q q^T are linear in R (A5); q is the row of 4 q q^T with the largest diagonal entry, normalized. The norm of
    this row is at least 1, so no division is inaccurate.
    """
    r = rotation
    xx, yy, zz = r[0, 0], r[1, 1], r[2, 2]
    wx, wy, wz = r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1]
    xy, xz, yz = r[0, 1] + r[1, 0], r[0, 2] + r[2, 0], r[1, 2] + r[2, 1]
    outer = jnp.stack(
        [
            jnp.stack([1 + xx + yy + zz, wx, wy, wz]),
            jnp.stack([wx, 1 + xx - yy - zz, xy, xz]),
            jnp.stack([wy, xy, 1 - xx + yy - zz, yz]),
            jnp.stack([wz, xz, yz, 1 - xx - yy + zz]),
        ]
    )
    return normalize(outer[jnp.argmax(jnp.diagonal(outer))])


def from_axis_angle(axis: Vector3, angle: Float[Array, ""]) -> Quaternion:
    """Quaternion (cos(phi/2), e sin(phi/2)) of a rotation by phi (rad) about the unit vector e. Source: theory.md (A4)."""
    return jnp.concatenate([jnp.cos(0.5 * angle)[None], jnp.sin(0.5 * angle) * axis])  # (A4)


def exponential(rotation_vector: Vector3) -> Quaternion:
    """Unit quaternion of the rotation vector u = phi e (rad): (cos(|u|/2), u/2 sinc(|u|/2)).

    The exponential is smooth to all orders; at u = 0 its first derivative along u is (0, u/2), and its second is (-|u|^2/4, 0).

    Source: theory.md after (A11).
    """
    half = 0.5 * rotation_vector
    x = dot(half, half)
    return jnp.concatenate([cos_root(x)[None], sinc_root(x) * half])


def logarithm(q: Quaternion) -> Vector3:
    """Rotation vector u = phi e (rad), |u| <= pi, of a quaternion of any nonzero norm; q and -q have the same u.

    u = 2 arctan(|qv|/|q0|) qv/|qv|, with a power series in (|qv|/q0)^2 near the identity, where the first derivative is 2 dqv. The
    logarithm is discontinuous, like every logarithm of rotations, at |u| = pi.
    """
    q = jnp.where(q[0] < 0, -q, q)
    x = dot(q[1:], q[1:])
    small = x < _LOGARITHM_SWITCH * q[0] ** 2
    scalar = jnp.where(small, q[0], 1.0)
    near = arctan_quotient(jnp.where(small, x, 0.0) / scalar**2) / scalar
    norm = jnp.sqrt(jnp.where(small, 1.0, x))
    far = jnp.arctan2(norm, q[0]) / norm
    return 2.0 * jnp.where(small, near, far) * q[1:]


def rate(q: Quaternion, body_rates: Vector3) -> Quaternion:
    """Time derivative 1/2 q (0, omega) of a quaternion with the angular velocity omega on inner (body) axes, rad/s.

    Source: theory.md (A11).
    """
    return 0.5 * multiply(q, jnp.concatenate([jnp.zeros_like(body_rates[:1]), body_rates]))  # (A11)


def rate_from_outer(q: Quaternion, outer_rates: Vector3) -> Quaternion:
    """Time derivative 1/2 (0, omega) q of a quaternion with the angular velocity omega on outer (ground) axes, rad/s.

    Source: theory.md (A11).
    """
    return 0.5 * multiply(jnp.concatenate([jnp.zeros_like(outer_rates[:1]), outer_rates]), q)


def body_rates(q: Quaternion, rate: Quaternion) -> Vector3:
    """Angular velocity omega on inner (body) axes, rad/s, of a quaternion with time derivative `rate`; changes of norm are ignored.

    Source: theory.md (A11).
    """
    return 2.0 * multiply(inverse(q), rate)[1:]  # (A11)


def from_angles_xyz(angles: Vector3) -> Quaternion:
    """Quaternion of rotations by three angles (rad) about x, the rotated y and the rotated z: R = R_x R_y R_z."""
    axes = jnp.asarray(np.eye(3), angles.dtype)
    turns = [from_axis_angle(axis, angle) for axis, angle in zip(axes, angles, strict=True)]
    return multiply(multiply(turns[0], turns[1]), turns[2])  # (A6)


def to_angles_xyz(q: Quaternion) -> Vector3:
    """Angles (rad) about x, the rotated y and the rotated z; the second angle is within +-pi/2.

    If the second angle is +-pi/2, the other two are undefined.
    """
    r = to_matrix(q)
    outer = jnp.arctan2(-r[1, 2], r[2, 2])
    middle = jnp.arctan2(r[0, 2], jnp.sqrt(r[0, 0] ** 2 + r[0, 1] ** 2))
    return jnp.stack([outer, middle, jnp.arctan2(-r[0, 1], r[0, 0])])
