"""Rotation about and translation along one axis."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import floating
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.joints.base import Axial, Axis, unit
from jaxdyn.mechanism.joints.prismatic import Prismatic
from jaxdyn.mechanism.joints.revolute import Revolute
from jaxdyn.mechanism.quantity import quantity
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.transform import RigidTransform


class Cylindrical(Axial):
    """Rotation about and translation along one axis. q: angle (rad), unbounded, then displacement (m). v: their rates.

    Attributes:
        axis: Unit vector of the axis, which has the same components on joint axes and on child axes.

    Source: theory.md section (d).
    """

    axis: Axis = eqx.field(converter=floating, metadata=quantity("1"))

    kind: ClassVar[str] = "cylindrical"
    nq: ClassVar[int] = 2
    nv: ClassVar[int] = 2
    turns: ClassVar[tuple[bool, ...]] = (True, False)

    def transform(self, q: Float[Array, "2"]) -> RigidTransform:
        e = unit(self.axis)
        return RigidTransform(quaternion.from_axis_angle(e, q[0]), q[1] * e)

    def motion_subspace(self, q: Float[Array, "2"]) -> Float[Array, "6 2"]:
        e, zero = unit(self.axis), jnp.zeros_like(self.axis)
        return jnp.stack([jnp.concatenate([e, zero]), jnp.concatenate([zero, e])], axis=1)

    def reversed(self) -> Joint:
        return Cylindrical(-self.axis)

    def primitives(self) -> tuple[Joint, ...]:
        return Prismatic(self.axis), Revolute(self.axis)

    def from_primitives(self, c: Float[Array, "2"]) -> Float[Array, "2"]:
        return c[::-1]

    def to_primitives(self, q: Float[Array, "2"]) -> Float[Array, "2"]:
        return q[::-1]
