"""Free motion, as of a floating body."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.mechanism.joint import Joint, Scalar
from jaxdyn.mechanism.joints.prismatic import Prismatic
from jaxdyn.mechanism.joints.revolute import Revolute
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.rotation import cross
from jaxdyn.spatial.transform import RigidTransform


class Free(Joint):
    """Free relative motion, for example of a floating body.

    q: position of the child origin on joint axes (m), then quaternion [w, x, y, z] from child axes to joint axes, of any nonzero
    norm. v: twist of the child relative to the parent on child axes, angular part first (rad/s, m/s).
    Source: theory.md section (d).
    """

    kind: ClassVar[str] = "free"
    nq: ClassVar[int] = 7
    nv: ClassVar[int] = 6
    turns: ClassVar[tuple[bool, ...]] = (True, True, True, False, False, False)
    coordinate_units: ClassVar[tuple[str, ...]] = ("m", "m", "m", "1", "1", "1", "1")
    coordinate_labels: ClassVar[tuple[str, ...]] = ("x", "y", "z", "qw", "qx", "qy", "qz")
    velocity_labels: ClassVar[tuple[str, ...]] = ("wx", "wy", "wz", "vx", "vy", "vz")
    velocity_is_rate: ClassVar[bool] = False

    def transform(self, q: Float[Array, "7"]) -> RigidTransform:
        return RigidTransform(q[3:], q[:3])

    def motion_subspace(self, q: Float[Array, "7"]) -> Float[Array, "6 6"]:
        return jnp.asarray(np.eye(6), q.dtype)

    def integrate(self, q: Float[Array, "7"], step: Float[Array, "6"]) -> Float[Array, "7"]:
        moved = self.transform(q).compose(RigidTransform.exponential(step))
        return jnp.concatenate([moved.translation, moved.quaternion])

    def advance(
        self, q: Float[Array, "7"], v: Float[Array, "6"], a: Float[Array, "6"], dt: Scalar
    ) -> tuple[Float[Array, "7"], Float[Array, "6"]]:
        spin = v[:3] + dt * a[:3]
        later = v[3:] + dt * (a[3:] + cross(v[:3], v[3:]))  # on the axes of the start
        turn = quaternion.exponential(dt * spin)
        moved = jnp.concatenate([q[:3] + dt * quaternion.rotate(q[3:], later), quaternion.multiply(q[3:], turn)])
        return moved, jnp.concatenate([spin, quaternion.rotate(quaternion.inverse(turn), later)])

    def difference(self, q0: Float[Array, "7"], q1: Float[Array, "7"]) -> Float[Array, "6"]:
        return self.transform(q0).inverse().compose(self.transform(q1)).logarithm()

    def neutral(self) -> Float[np.ndarray, "7"]:
        return np.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0])

    def normalize(self, q: Float[Array, "7"]) -> Float[Array, "7"]:
        return jnp.concatenate([q[:3], quaternion.normalize(q[3:])])

    def coordinate_rate(self, q: Float[Array, "7"], v: Float[Array, "6"]) -> Float[Array, "7"]:
        return jnp.concatenate([quaternion.rotate(q[3:], v[3:]), quaternion.rate(q[3:], v[:3])])

    def velocity_of_rate(self, q: Float[Array, "7"], rate: Float[Array, "7"]) -> Float[Array, "6"]:
        back = quaternion.inverse(q[3:])
        return jnp.concatenate([quaternion.body_rates(q[3:], rate[3:]), quaternion.rotate(back, rate[:3])])

    def reversed(self) -> Joint:
        return Free()

    def reversed_coordinates(self, q: Float[Array, "7"]) -> Float[Array, "7"]:
        back = self.transform(q).inverse()
        return jnp.concatenate([back.translation, back.quaternion])

    def primitives(self) -> tuple[Joint, ...]:
        return (*(Prismatic(axis) for axis in np.eye(3)), *(Revolute(axis) for axis in np.eye(3)))

    def from_primitives(self, c: Float[Array, "6"]) -> Float[Array, "7"]:
        return jnp.concatenate([c[:3], quaternion.from_angles_xyz(c[3:])])

    def to_primitives(self, q: Float[Array, "7"]) -> Float[Array, "6"]:
        return jnp.concatenate([q[:3], quaternion.to_angles_xyz(q[3:])])
