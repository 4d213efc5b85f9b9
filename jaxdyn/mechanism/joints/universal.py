"""Rotation about two axes that intersect."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import floating
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.joints.base import PARALLEL_TOLERANCE, Axis, WithRates, axis_problem, unit
from jaxdyn.mechanism.joints.revolute import Revolute
from jaxdyn.mechanism.quantity import quantity
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.rotation import cross
from jaxdyn.spatial.transform import RigidTransform


class Universal(WithRates):
    """Rotation about an axis fixed in the parent, then about an axis fixed in the child (synonym: Cardan joint).

    The axes intersect. q: the two angles (rad), unbounded. v: their rates (rad/s). On child axes, the first column of the motion
    subspace depends on the second angle.

    Attributes:
        first_axis: Unit vector of the axis that is fixed in the parent, on joint axes.
        second_axis: Unit vector of the axis that is fixed in the child, on child axes; usually normal to the first axis, never
            parallel to it.

    Source: theory.md section (d).
    """

    first_axis: Axis = eqx.field(converter=floating, metadata=quantity("1"))
    second_axis: Axis = eqx.field(converter=floating, metadata=quantity("1"))

    kind: ClassVar[str] = "universal"
    nq: ClassVar[int] = 2
    nv: ClassVar[int] = 2
    turns: ClassVar[tuple[bool, ...]] = (True, True)

    def transform(self, q: Float[Array, "2"]) -> RigidTransform:
        first = quaternion.from_axis_angle(unit(self.first_axis), q[0])
        second = quaternion.from_axis_angle(unit(self.second_axis), q[1])
        return RigidTransform(quaternion.multiply(first, second), jnp.zeros_like(self.first_axis))

    def motion_subspace(self, q: Float[Array, "2"]) -> Float[Array, "6 2"]:
        zero = jnp.zeros_like(self.first_axis)
        columns = [
            jnp.concatenate([self._first_on_child_axes(q), zero]),
            jnp.concatenate([unit(self.second_axis), zero]),
        ]
        return jnp.stack(columns, axis=1)

    def subspace_rate(self, q: Float[Array, "2"], v: Float[Array, "2"]) -> Float[Array, "6"]:
        turning = cross(self._first_on_child_axes(q), unit(self.second_axis))
        return jnp.concatenate([v[0] * v[1] * turning, jnp.zeros_like(turning)])

    def _first_on_child_axes(self, q: Float[Array, "2"]) -> Float[Array, "3"]:
        return quaternion.rotate(quaternion.from_axis_angle(unit(self.second_axis), -q[1]), unit(self.first_axis))

    def reversed(self) -> Joint:
        return Universal(-self.second_axis, -self.first_axis)

    def reversed_coordinates(self, q: Float[Array, "2"]) -> Float[Array, "2"]:
        return q[::-1]

    def primitives(self) -> tuple[Joint, ...]:
        return Revolute(self.first_axis), Revolute(self.second_axis)

    def validate(self) -> str | None:
        wrong = axis_problem(self.first_axis, "first_axis") or axis_problem(self.second_axis, "second_axis")
        if wrong is None and np.linalg.norm(np.cross(self.first_axis, self.second_axis)) < PARALLEL_TOLERANCE:
            return "its axes are parallel, so both rotations are the same; use one revolute joint"
        return wrong
