"""Rotation about an axis."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import floating
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.joints.base import Axial, Axis, unit
from jaxdyn.mechanism.quantity import quantity
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.transform import RigidTransform


class Revolute(Axial):
    """Rotation about an axis (synonym: hinge). q: angle (rad), unbounded. v: its rate (rad/s). Source: theory.md (A7), (E1).

    Attributes:
        axis: Unit vector of the axis, which has the same components on joint axes and on child axes.
    """

    axis: Axis = eqx.field(converter=floating, metadata=quantity("1"))

    kind: ClassVar[str] = "revolute"
    nq: ClassVar[int] = 1
    nv: ClassVar[int] = 1
    turns: ClassVar[tuple[bool, ...]] = (True,)

    def transform(self, q: Float[Array, "1"]) -> RigidTransform:
        return RigidTransform(quaternion.from_axis_angle(unit(self.axis), q[0]), jnp.zeros_like(self.axis))  # (A7)

    def motion_subspace(self, q: Float[Array, "1"]) -> Float[Array, "6 1"]:
        return jnp.concatenate([unit(self.axis), jnp.zeros_like(self.axis)])[:, None]

    def reversed(self) -> Joint:
        return Revolute(-self.axis)
