"""Rigid transforms: a rotation and a translation.

`X_AB` places frame B in frame A: a point with components r on B has components R(q_AB) r + p_AB on A.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.rotation import Vector3, cross
from jaxdyn.spatial.series import cotangent_remainder_root, sine_remainder_root, versine_root


class RigidTransform(eqx.Module):
    """Placement of a frame B in a frame A.

    Attributes:
        quaternion: Quaternion q_AB of any nonzero norm.
        translation: Origin of B, on A axes, m.

    A leading axis of both fields makes a batch of transforms. Methods act on one transform; use `jax.vmap` for a batch.
    """

    quaternion: Float[Array, "*batch 4"]
    translation: Float[Array, "*batch 3"]

    @staticmethod
    def identity(dtype=None) -> "RigidTransform":
        """Identity transform."""
        return RigidTransform(quaternion.identity(dtype), jnp.zeros(3, dtype))

    @staticmethod
    def exponential(twist: Float[Array, "6"]) -> "RigidTransform":
        """Displacement after a motion for unit time with the constant twist (w; nu) on the moving axes (rad, m).

            quaternion exp(w),   translation nu + (1 - cos)/|w|^2 w x nu + (|w| - sin)/|w|^3 w x (w x nu)

        The exponential is smooth to all orders, also at zero rotation. Source: theory.md (C2), for an axis through any point.
        """
        w, nu = twist[:3], twist[3:]
        x = dot(w, w)
        across = cross(w, nu)
        translation = nu + versine_root(x) * across + sine_remainder_root(x) * cross(w, across)
        return RigidTransform(quaternion.exponential(w), translation)

    def logarithm(self) -> Float[Array, "6"]:
        """Twist (w; nu), |w| <= pi, whose exponential is this transform; discontinuous at |w| = pi."""
        w = quaternion.logarithm(self.quaternion)
        across = cross(w, self.translation)
        back = self.translation - 0.5 * across + cotangent_remainder_root(dot(w, w)) * cross(w, across)
        return jnp.concatenate([w, back])

    @property
    def rotation(self) -> Float[Array, "*batch 3 3"]:
        """Rotation matrix R_AB, or a batch of them."""
        matrix = quaternion.to_matrix
        for _ in range(self.quaternion.ndim - 1):
            matrix = jax.vmap(matrix)
        return matrix(self.quaternion)

    def compose(self, inner: "RigidTransform") -> "RigidTransform":
        """Transform X_AC = X_AB X_BC. Source: theory.md (A6), (E2)."""
        return RigidTransform(
            quaternion.multiply(self.quaternion, inner.quaternion),
            self.translation + quaternion.rotate(self.quaternion, inner.translation),
        )

    def inverse(self) -> "RigidTransform":
        """Inverse transform X_BA."""
        back = quaternion.inverse(self.quaternion)
        return RigidTransform(back, -quaternion.rotate(back, self.translation))

    def row(self, index: int) -> "RigidTransform":
        """One transform of a batch."""
        return jax.tree.map(lambda x: x[index], self)

    def apply(self, point: Vector3) -> Vector3:
        """Components on A (m) of a point given on B."""
        return self.translation + quaternion.rotate(self.quaternion, point)
