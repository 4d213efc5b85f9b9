"""Rotation about a point."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.joints.revolute import Revolute
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.transform import RigidTransform


class Spherical(Joint):
    """Rotation about a point (synonym: ball joint).

    q: quaternion [w, x, y, z] from child axes to joint axes, of any nonzero norm. v: angular velocity of the child relative to the
    parent, on child axes (rad/s). Source: theory.md section (d), (A11).
    """

    kind: ClassVar[str] = "spherical"
    nq: ClassVar[int] = 4
    nv: ClassVar[int] = 3
    turns: ClassVar[tuple[bool, ...]] = (True, True, True)
    coordinate_units: ClassVar[tuple[str, ...]] = ("1", "1", "1", "1")
    coordinate_labels: ClassVar[tuple[str, ...]] = ("qw", "qx", "qy", "qz")
    velocity_labels: ClassVar[tuple[str, ...]] = ("wx", "wy", "wz")
    velocity_is_rate: ClassVar[bool] = False

    def transform(self, q: Float[Array, "4"]) -> RigidTransform:
        return RigidTransform(q, jnp.zeros_like(q[1:]))

    def motion_subspace(self, q: Float[Array, "4"]) -> Float[Array, "6 3"]:
        return jnp.asarray(np.eye(6, 3), q.dtype)

    def integrate(self, q: Float[Array, "4"], step: Float[Array, "3"]) -> Float[Array, "4"]:
        return quaternion.multiply(q, quaternion.exponential(step))

    def difference(self, q0: Float[Array, "4"], q1: Float[Array, "4"]) -> Float[Array, "3"]:
        return quaternion.logarithm(quaternion.multiply(quaternion.inverse(q0), q1))

    def neutral(self) -> Float[np.ndarray, "4"]:
        return np.array([1.0, 0.0, 0.0, 0.0])

    def normalize(self, q: Float[Array, "4"]) -> Float[Array, "4"]:
        return quaternion.normalize(q)

    def coordinate_rate(self, q: Float[Array, "4"], v: Float[Array, "3"]) -> Float[Array, "4"]:
        return quaternion.rate(q, v)  # (A11)

    def velocity_of_rate(self, q: Float[Array, "4"], rate: Float[Array, "4"]) -> Float[Array, "3"]:
        return quaternion.body_rates(q, rate)

    def reversed(self) -> Joint:
        return Spherical()

    def reversed_coordinates(self, q: Float[Array, "4"]) -> Float[Array, "4"]:
        return quaternion.inverse(q)

    def primitives(self) -> tuple[Joint, ...]:
        return tuple(Revolute(axis) for axis in np.eye(3))

    def from_primitives(self, c: Float[Array, "3"]) -> Float[Array, "4"]:
        return quaternion.from_angles_xyz(c)

    def to_primitives(self, q: Float[Array, "4"]) -> Float[Array, "3"]:
        return quaternion.to_angles_xyz(q)
