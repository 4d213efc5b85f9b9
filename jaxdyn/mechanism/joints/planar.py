"""Motion in a plane."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, floating
from jaxdyn.mechanism.joint import Joint, Scalar
from jaxdyn.mechanism.joints.base import PARALLEL_TOLERANCE, Axis, axis_problem, unit
from jaxdyn.mechanism.joints.prismatic import Prismatic
from jaxdyn.mechanism.joints.revolute import Revolute
from jaxdyn.mechanism.quantity import quantity
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.rotation import cross
from jaxdyn.spatial.series import cotangent_remainder_root, sinc_root, versine_root
from jaxdyn.spatial.transform import RigidTransform


class Planar(Joint):
    """Motion in a plane.

    q: displacements along the two directions x and y of the plane on joint axes (m), then the angle about the normal of the plane
    (rad), unbounded. v: angular velocity about the normal (rad/s), then velocity of the child origin along the directions x and y
    that turn with the child (m/s).

    Attributes:
        normal: Unit vector z of the normal, which has the same components on joint axes and on child axes.
        direction: Unit vector x of the first direction in the plane; the second direction is y = z x x.

    Source: theory.md section (d).
    """

    normal: Axis = eqx.field(converter=floating, default=(0.0, 0.0, 1.0), metadata=quantity("1"))
    direction: Axis = eqx.field(converter=floating, default=(1.0, 0.0, 0.0), metadata=quantity("1"))

    kind: ClassVar[str] = "planar"
    nq: ClassVar[int] = 3
    nv: ClassVar[int] = 3
    turns: ClassVar[tuple[bool, ...]] = (True, False, False)
    coordinate_units: ClassVar[tuple[str, ...]] = ("m", "m", "rad")
    velocity_is_rate: ClassVar[bool] = False

    def _axes(self) -> tuple[Axis, Axis, Axis]:
        z = unit(self.normal)
        x = unit(self.direction - dot(self.direction, z) * z)
        return x, cross(z, x), z

    def transform(self, q: Float[Array, "3"]) -> RigidTransform:
        x, y, z = self._axes()
        return RigidTransform(quaternion.from_axis_angle(z, q[2]), q[0] * x + q[1] * y)

    def motion_subspace(self, q: Float[Array, "3"]) -> Float[Array, "6 3"]:
        x, y, z = self._axes()
        zero = jnp.zeros_like(z)
        return jnp.stack([jnp.concatenate(column) for column in ((z, zero), (zero, x), (zero, y))], axis=1)

    def integrate(self, q: Float[Array, "3"], step: Float[Array, "3"]) -> Float[Array, "3"]:
        angle, shift = step[0], step[1:]
        # Exponential of a planar twist: the path of the origin is an arc.
        arc = sinc_root(angle**2) * shift + angle * versine_root(angle**2) * _quarter_turn(shift)
        return jnp.concatenate([q[:2] + _turned(q[2], arc), (q[2] + angle)[None]])

    def advance(
        self, q: Float[Array, "3"], v: Float[Array, "3"], a: Float[Array, "3"], dt: Scalar
    ) -> tuple[Float[Array, "3"], Float[Array, "3"]]:
        spin = v[0] + dt * a[0]
        later = v[1:] + dt * (a[1:] + v[0] * _quarter_turn(v[1:]))  # on the axes of the start
        moved = q + dt * jnp.concatenate([_turned(q[2], later), spin[None]])
        return moved, jnp.concatenate([spin[None], _turned(-dt * spin, later)])

    def difference(self, q0: Float[Array, "3"], q1: Float[Array, "3"]) -> Float[Array, "3"]:
        angle = q1[2] - q0[2]
        chord = _turned(-q0[2], q1[:2] - q0[:2])
        # Inverse of the arc; it is meaningless beyond a full turn.
        along = 1.0 - angle**2 * cotangent_remainder_root(angle**2)
        return jnp.concatenate([angle[None], along * chord - 0.5 * angle * _quarter_turn(chord)])

    def neutral(self) -> Float[np.ndarray, "3"]:
        return np.zeros(3)

    def coordinate_rate(self, q: Float[Array, "3"], v: Float[Array, "3"]) -> Float[Array, "3"]:
        return jnp.concatenate([_turned(q[2], v[1:]), v[:1]])

    def velocity_of_rate(self, q: Float[Array, "3"], rate: Float[Array, "3"]) -> Float[Array, "3"]:
        return jnp.concatenate([rate[2:], _turned(-q[2], rate[:2])])

    def reversed(self) -> Joint:
        return Planar(-self.normal, self.direction)

    def reversed_coordinates(self, q: Float[Array, "3"]) -> Float[Array, "3"]:
        # The angle is unchanged; with the opposite normal, the axis y is opposite too.
        back = -_turned(-q[2], q[:2])
        return jnp.stack([back[0], -back[1], q[2]])

    def primitives(self) -> tuple[Joint, ...]:
        x, y, z = self._axes()
        return Prismatic(x), Prismatic(y), Revolute(z)

    def validate(self) -> str | None:
        wrong = axis_problem(self.normal, "normal") or axis_problem(self.direction, "direction")
        if wrong is None and abs(float(np.dot(self.normal, self.direction))) > PARALLEL_TOLERANCE:
            return "its direction does not lie in the plane; give a unit vector normal to `normal`"
        return wrong


def _quarter_turn(r: Float[Array, "2"]) -> Float[Array, "2"]:
    return jnp.stack([-r[1], r[0]])


def _turned(angle: Scalar, r: Float[Array, "2"]) -> Float[Array, "2"]:
    return jnp.cos(angle) * r + jnp.sin(angle) * _quarter_turn(r)
