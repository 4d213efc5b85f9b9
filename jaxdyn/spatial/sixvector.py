"""Motion and force 6-vectors (screws), angular part first.

A motion (omega; v) is an angular velocity and the velocity of the body point that coincides with the reference point P; a force (n;
f) is a moment about P and a force. Both parts of a 6-vector are on the same axes. The power of a force on a motion is the inner
product of the two 6-vectors.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import bilinear, dot
from jaxdyn.spatial.rotation import CROSS, Matrix33, Vector3, cross

Motion = Float[Array, "6"]
Force = Float[Array, "6"]

# Coefficients of `cross_motion` and `cross_force`. The first factors mark the products of an angular or linear part of the velocity
# with an angular or linear part of the other vector that each part of the result contains.
_CROSS_MOTION = np.kron([[[1, 0], [0, 0]], [[0, 1], [1, 0]]], CROSS)
_CROSS_FORCE = np.kron([[[1, 0], [0, 1]], [[0, 1], [0, 0]]], CROSS)
# Coefficients of (w; v + r x w) as products of (1; r) and (w; v).
_SHIFTED = np.concatenate([np.eye(6)[:, None], np.kron([[[0, 0]], [[1, 0]]], CROSS)], axis=1)


def cross_motion(velocity: Motion, motion: Motion) -> Motion:
    """Rate of a motion vector that moves with `velocity`: (w x m_w; w x m_v + v x m_w).

    Source: theory.md (D3); Featherstone 2008, (2.31).
    """
    return bilinear(_CROSS_MOTION, velocity, motion)


def cross_force(velocity: Motion, force: Force) -> Force:
    """Rate of a force vector that moves with `velocity`: (w x n + v x f; w x f); the dual of `cross_motion`.

    Source: Featherstone 2008, (2.32).
    """
    return bilinear(_CROSS_FORCE, velocity, force)


def motion_to_outer(rotation: Matrix33, offset: Vector3, motion: Motion) -> Motion:
    """Motion given at the origin of frame B on B axes, converted to the reference point P of A, on A axes.

    Args:
        rotation: Rotation matrix R_AB.
        offset: Vector from P to the origin of B, on A axes, m.
        motion: Motion (omega; v) at the origin of B, on B axes.

    Source: theory.md (D2), (F6).
    """
    on_outer_axes = dot(motion.reshape(2, 3), rotation.T).reshape(6)
    return bilinear(_SHIFTED, jnp.concatenate([np.ones(1, offset.dtype), offset]), on_outer_axes)  # (D2)


def force_at_point(point: Vector3, force: Vector3, couple: Vector3) -> Force:
    """Force 6-vector about P of a force at a point and a couple.

    Args:
        point: Vector from P to the point, m.
        force: Force, N, on the same axes.
        couple: Couple, N m, on the same axes.
    """
    return jnp.concatenate([couple + cross(point, force), force])


def velocity_at_point(motion: Motion, point: Vector3) -> Vector3:
    """Velocity v + omega x r of the body point at r (the vector from P to the point, m), on the axes of `motion`."""
    return motion[3:] + cross(motion[:3], point)
