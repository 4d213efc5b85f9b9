"""Attitude in s-parameters (modified Rodrigues-Hamilton parameters), theory.md section (o): three parameters, no trigonometry.

The s-parameters are the stereographic projection of the unit quaternion lam = (l0, lv) from l0 = +1. The quaternion converts
components on body axes to components on reference axes. Every attitude has two sets of s-parameters: s of lam, and its shadow
-s/|s|^2 of -lam. The identity is s = 0 (lam = -1); its shadow is the pole, |s| = infinity (lam = +1), which `switch` avoids.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.quaternion import Quaternion
from jaxdyn.spatial.rotation import Matrix33, Vector3, cross, skew

SParameters = Float[Array, "3"]


def to_quaternion(s: SParameters) -> Quaternion:
    """Unit quaternion lam = (|s|^2 - 1, 2 s)/(|s|^2 + 1) of s-parameters; (-1, 0, 0, 0) at s = 0. Source: theory.md (O1)."""
    x = dot(s, s)
    return jnp.concatenate([(x - 1.0)[None], 2.0 * s]) / (x + 1.0)  # (O1)


def from_quaternion(q: Quaternion) -> SParameters:
    """S-parameters s = lv/(1 - l0) of a quaternion of any norm; infinite or NaN at the pole (1, 0, 0, 0).

    q and -q are the same rotation but give two sets, s and its shadow; the quaternion with q[0] <= 0 gives the set with |s| <= 1.
    Near the pole, the relative error increases with |s|^2.

    Source: theory.md (O1).
    """
    return q[1:] / (jnp.sqrt(dot(q, q)) - q[0])  # (O1)


def to_matrix(s: SParameters) -> Matrix33:
    """Direction cosines N(s) = 1 + (4 u1 S(s) + 8 S(s)^2)/u0, body to reference components, u0 = (|s|^2+1)^2, u1 = |s|^2-1.

    Source: theory.md (O3).
    """
    x, dual = dot(s, s), skew(s)
    return (4.0 * (x - 1.0) * dual + 8.0 * dot(dual, dual)) / (x + 1.0) ** 2 + np.eye(3, dtype=s.dtype)  # (O3)


def from_matrix(rotation: Matrix33) -> SParameters:
    """S-parameters with |s| <= 1 of a matrix of direction cosines from body to reference components.

    The result is smooth except at half turns (|s| = 1), where it changes from one set of s-parameters to the other. Source:
    theory.md (O1), (A5).
    """
    q = quaternion.from_matrix(rotation)
    return from_quaternion(jnp.where(q[0] > 0, -q, q))


def rate_matrix(s: SParameters) -> Matrix33:
    """Matrix B(s) = -1/4 [(1 - |s|^2) 1 - 2 S(s) + 2 s s^T] of the kinematics ds/dt = B(s) w_body = B(s)^T w_ref.

    Its inverse is 16 B^T/(|s|^2 + 1)^2. Source: theory.md (O4).
    """
    isotropic = (1.0 - dot(s, s)) * np.eye(3, dtype=s.dtype)
    return -0.25 * (isotropic - 2.0 * skew(s) + 2.0 * s[:, None] * s[None])  # (O4)


def rate(s: SParameters, body_rates: Vector3) -> SParameters:
    """Time derivative B(s) w of s-parameters with the angular velocity w on body axes, rad/s.

    If w is on reference axes, the derivative is `rate(-s, w)`, because B(s)^T = B(-s). Source: theory.md (O4).
    """
    w = body_rates
    return -0.25 * ((1.0 - dot(s, s)) * w - 2.0 * cross(s, w) + 2.0 * dot(s, w) * s)  # (O4)


def standard(s: SParameters) -> SParameters:
    """Convert s-parameters to standard modified Rodrigues parameters e tan(th/4) = -s of the same rotation by th about e.

    The same function converts back. The other set of standard parameters of this rotation is s/|s|^2. Source: theory.md (O2).
    """
    return -s  # (O2)


def shadow(s: SParameters) -> SParameters:
    """The shadow -s/|s|^2: the other set of s-parameters of the same attitude.

    The result is infinite or NaN at s = 0, whose shadow is the pole. Source: theory.md (O6).
    """
    return -s / dot(s, s)  # (O6)


def switch(s: SParameters) -> SParameters:
    """S-parameters of the same attitude with |s| <= 1: s itself, or its shadow if |s| > 1.

    Applied after every step of an integration, it keeps s away from the pole. Source: theory.md (O6).
    """
    outside = dot(s, s) > 1.0
    # The unused branch gets a vector of length one; otherwise its derivative at s = 0 would make the result NaN.
    far = jnp.where(outside, s, np.array([1.0, 0.0, 0.0], s.dtype))
    return jnp.where(outside, shadow(far), s)
