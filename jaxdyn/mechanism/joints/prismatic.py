"""Translation along an axis."""

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


class Prismatic(Axial):
    """Translation along an axis (synonym: slider). q: displacement (m). v: its rate (m/s). Source: theory.md (A7), (E2).

    Attributes:
        axis: Unit vector of the axis, which has the same components on joint axes and on child axes.
    """

    axis: Axis = eqx.field(converter=floating, metadata=quantity("1"))

    kind: ClassVar[str] = "prismatic"
    nq: ClassVar[int] = 1
    nv: ClassVar[int] = 1
    turns: ClassVar[tuple[bool, ...]] = (False,)

    def transform(self, q: Float[Array, "1"]) -> RigidTransform:
        return RigidTransform(quaternion.identity(self.axis.dtype), q[0] * unit(self.axis))  # (E2)

    def motion_subspace(self, q: Float[Array, "1"]) -> Float[Array, "6 1"]:
        return jnp.concatenate([jnp.zeros_like(self.axis), unit(self.axis)])[:, None]

    def reversed(self) -> Joint:
        return Prismatic(-self.axis)
