"""Rotation about an axis with proportional translation along it."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import floating
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.joints.base import Axial, Axis, unit
from jaxdyn.mechanism.quantity import quantity
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.transform import RigidTransform


class Screw(Axial):
    """Rotation about an axis with proportional translation along it (synonym: helical joint).

    q: angle (rad), unbounded. v: its rate (rad/s).

    Attributes:
        axis: Unit vector of the axis, which has the same components on joint axes and on child axes.
        pitch: Translation along the axis per angle; positive for a right-handed thread.

    Source: theory.md (C1) with v = P x e + pitch e.
    """

    axis: Axis = eqx.field(converter=floating, metadata=quantity("1"))
    pitch: Float[Array, "*batch"] = eqx.field(converter=floating, metadata=quantity("m/rad"))

    kind: ClassVar[str] = "screw"
    nq: ClassVar[int] = 1
    nv: ClassVar[int] = 1
    turns: ClassVar[tuple[bool, ...]] = (True,)

    def transform(self, q: Float[Array, "1"]) -> RigidTransform:
        e = unit(self.axis)
        return RigidTransform(quaternion.from_axis_angle(e, q[0]), self.pitch * q[0] * e)

    def motion_subspace(self, q: Float[Array, "1"]) -> Float[Array, "6 1"]:
        e = unit(self.axis)
        return jnp.concatenate([e, self.pitch * e])[:, None]

    def drive_columns(self, q: Float[Array, "1"]) -> Float[Array, "6 1"]:
        # A motor exerts a moment on the screw; a force component along the axis would depend on the unit of length.
        return jnp.concatenate([unit(self.axis), jnp.zeros_like(self.axis)])[:, None]

    def reversed(self) -> Joint:
        return Screw(-self.axis, self.pitch)

    def validate(self) -> str | None:
        pitch = np.asarray(self.pitch)
        if pitch.shape != () or not np.isfinite(pitch):
            return f"its pitch is {pitch.tolist()}; give one finite value, in m/rad"
        return super().validate()
