"""The kinds of joints that jaxdyn provides. No other module depends on specific kinds; the base class `Joint` defines the methods.

A joint has coordinates q and velocities v, which are components of the twist of the child relative to the parent along the columns
of its motion subspace, on **child axes** at the child origin, angular part first.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, floating
from jaxdyn.errors import check_name
from jaxdyn.mechanism.joint import Joint, Scalar
from jaxdyn.mechanism.messages import check_function, check_instance
from jaxdyn.mechanism.prescribed import PrescribedMotion
from jaxdyn.mechanism.quantity import quantity
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.rotation import cross
from jaxdyn.spatial.series import cotangent_remainder_root, sinc_root, versine_root
from jaxdyn.spatial.transform import RigidTransform

_AXIS_TOLERANCE = 1e-6
_PARALLEL_TOLERANCE = 1e-3

Axis = Float[Array, "*batch 3"]


def _unit(axis: Axis) -> Axis:
    """The axis divided by its norm, so that an axis whose length an optimizer has changed still defines a direction."""
    return axis / jnp.sqrt(dot(axis, axis))


def axis_problem(axis: Axis | np.ndarray, called: str = "axis") -> str | None:
    """Error message with a remedy if `axis` is not a unit vector, else None."""
    components = np.asarray(axis, np.float64)
    if components.shape != (3,) or not np.all(np.isfinite(components)):
        return f"its {called} is {components.tolist()}; give three finite components"
    norm = float(np.linalg.norm(components))
    if norm == 0.0:
        return f"its {called} is zero; give a unit vector such as (0, 0, 1)"
    if abs(norm - 1.0) > _AXIS_TOLERANCE:
        unit = tuple(round(float(x), 9) for x in components / norm)
        return f"its {called} has length {norm:.6g}; give the unit vector {unit}"
    return None


class _WithRates(Joint):
    """A joint whose coordinates are scalars and whose velocities are their rates."""

    velocity_is_rate: ClassVar[bool] = True

    def integrate(self, q: Float[Array, "nq"], step: Float[Array, "nv"]) -> Float[Array, "nq"]:
        return q + step

    def difference(self, q0: Float[Array, "nq"], q1: Float[Array, "nq"]) -> Float[Array, "nv"]:
        return q1 - q0

    def neutral(self) -> Float[np.ndarray, "nq"]:
        return np.zeros(self.nq)


class _Axial(_WithRates):
    """A joint with an axis, which has the same components on joint and child axes."""

    axis: eqx.AbstractVar[Axis]

    def validate(self) -> str | None:
        return axis_problem(self.axis)


class Revolute(_Axial):
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
        return RigidTransform(quaternion.from_axis_angle(_unit(self.axis), q[0]), jnp.zeros_like(self.axis))  # (A7)

    def motion_subspace(self, q: Float[Array, "1"]) -> Float[Array, "6 1"]:
        return jnp.concatenate([_unit(self.axis), jnp.zeros_like(self.axis)])[:, None]

    def reversed(self) -> Joint:
        return Revolute(-self.axis)


class Prismatic(_Axial):
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
        return RigidTransform(quaternion.identity(self.axis.dtype), q[0] * _unit(self.axis))  # (E2)

    def motion_subspace(self, q: Float[Array, "1"]) -> Float[Array, "6 1"]:
        return jnp.concatenate([jnp.zeros_like(self.axis), _unit(self.axis)])[:, None]

    def reversed(self) -> Joint:
        return Prismatic(-self.axis)


class Screw(_Axial):
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
        e = _unit(self.axis)
        return RigidTransform(quaternion.from_axis_angle(e, q[0]), self.pitch * q[0] * e)

    def motion_subspace(self, q: Float[Array, "1"]) -> Float[Array, "6 1"]:
        e = _unit(self.axis)
        return jnp.concatenate([e, self.pitch * e])[:, None]

    def drive_columns(self, q: Float[Array, "1"]) -> Float[Array, "6 1"]:
        # A motor exerts a moment on the screw; a force component along the axis would depend on the unit of length.
        return jnp.concatenate([_unit(self.axis), jnp.zeros_like(self.axis)])[:, None]

    def reversed(self) -> Joint:
        return Screw(-self.axis, self.pitch)

    def validate(self) -> str | None:
        pitch = np.asarray(self.pitch)
        if pitch.shape != () or not np.isfinite(pitch):
            return f"its pitch is {pitch.tolist()}; give one finite value, in m/rad"
        return super().validate()


class Cylindrical(_Axial):
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
        e = _unit(self.axis)
        return RigidTransform(quaternion.from_axis_angle(e, q[0]), q[1] * e)

    def motion_subspace(self, q: Float[Array, "2"]) -> Float[Array, "6 2"]:
        e, zero = _unit(self.axis), jnp.zeros_like(self.axis)
        return jnp.stack([jnp.concatenate([e, zero]), jnp.concatenate([zero, e])], axis=1)

    def reversed(self) -> Joint:
        return Cylindrical(-self.axis)

    def primitives(self) -> tuple[Joint, ...]:
        return Prismatic(self.axis), Revolute(self.axis)

    def from_primitives(self, c: Float[Array, "2"]) -> Float[Array, "2"]:
        return c[::-1]

    def to_primitives(self, q: Float[Array, "2"]) -> Float[Array, "2"]:
        return q[::-1]


class Universal(_WithRates):
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
        first = quaternion.from_axis_angle(_unit(self.first_axis), q[0])
        second = quaternion.from_axis_angle(_unit(self.second_axis), q[1])
        return RigidTransform(quaternion.multiply(first, second), jnp.zeros_like(self.first_axis))

    def motion_subspace(self, q: Float[Array, "2"]) -> Float[Array, "6 2"]:
        zero = jnp.zeros_like(self.first_axis)
        columns = [
            jnp.concatenate([self._first_on_child_axes(q), zero]),
            jnp.concatenate([_unit(self.second_axis), zero]),
        ]
        return jnp.stack(columns, axis=1)

    def subspace_rate(self, q: Float[Array, "2"], v: Float[Array, "2"]) -> Float[Array, "6"]:
        turning = cross(self._first_on_child_axes(q), _unit(self.second_axis))
        return jnp.concatenate([v[0] * v[1] * turning, jnp.zeros_like(turning)])

    def _first_on_child_axes(self, q: Float[Array, "2"]) -> Float[Array, "3"]:
        return quaternion.rotate(quaternion.from_axis_angle(_unit(self.second_axis), -q[1]), _unit(self.first_axis))

    def reversed(self) -> Joint:
        return Universal(-self.second_axis, -self.first_axis)

    def reversed_coordinates(self, q: Float[Array, "2"]) -> Float[Array, "2"]:
        return q[::-1]

    def primitives(self) -> tuple[Joint, ...]:
        return Revolute(self.first_axis), Revolute(self.second_axis)

    def validate(self) -> str | None:
        wrong = axis_problem(self.first_axis, "first_axis") or axis_problem(self.second_axis, "second_axis")
        if wrong is None and np.linalg.norm(np.cross(self.first_axis, self.second_axis)) < _PARALLEL_TOLERANCE:
            return "its axes are parallel, so both rotations are the same; use one revolute joint"
        return wrong


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
        z = _unit(self.normal)
        x = _unit(self.direction - dot(self.direction, z) * z)
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
        if wrong is None and abs(float(np.dot(self.normal, self.direction))) > _PARALLEL_TOLERANCE:
            return "its direction does not lie in the plane; give a unit vector normal to `normal`"
        return wrong


def _quarter_turn(r: Float[Array, "2"]) -> Float[Array, "2"]:
    return jnp.stack([-r[1], r[0]])


def _turned(angle: Scalar, r: Float[Array, "2"]) -> Float[Array, "2"]:
    return jnp.cos(angle) * r + jnp.sin(angle) * _quarter_turn(r)


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


class Fixed(_WithRates):
    """Rigid connection. The builder merges the child and its mass into the parent, so no model contains a fixed joint."""

    kind: ClassVar[str] = "fixed"
    nq: ClassVar[int] = 0
    nv: ClassVar[int] = 0
    turns: ClassVar[tuple[bool, ...]] = ()

    def transform(self, q: Float[Array, "0"]) -> RigidTransform:
        return RigidTransform.identity(q.dtype)

    def motion_subspace(self, q: Float[Array, "0"]) -> Float[Array, "6 0"]:
        return jnp.zeros((6, 0), q.dtype)

    def reversed(self) -> Joint:
        return self


class Rheonomic(_WithRates):
    """A joint whose motion is prescribed as a function of time: it adds no degree of freedom and no coordinate.

    The child moves as `joint` does at the coordinates motion(t); `jaxdyn.driving_forces` computes the force that the prescribed
    motion requires. `Model.at` sets the time; the functions of a `System` set it automatically.

        Rheonomic(Revolute((0, 0, 1)), ConstantRate(3.0))      # a crank at 3 rad/s

    Attributes:
        joint: Driven joint.
        motion: Coordinates of the driven joint (rad or m) as a smooth function of time.
        time: Current time, set by `at`.

    Source: theory.md (E15), (I4).
    """

    joint: Joint
    motion: PrescribedMotion
    time: Float[Array, "*batch"] = eqx.field(converter=floating, default=0.0, metadata=quantity("s"))

    nq: ClassVar[int] = 0
    nv: ClassVar[int] = 0
    turns: ClassVar[tuple[bool, ...]] = ()

    def __check_init__(self):
        check_instance("the joint of Rheonomic", self.joint, Joint, "a Joint, Revolute(axis) for instance")
        check_function("the motion of Rheonomic", self.motion, "t")

    def at(self, t: Scalar) -> "Rheonomic":
        return eqx.tree_at(lambda joint: joint.time, self, jnp.full_like(self.time, t))

    def later(self, duration: Scalar) -> "Rheonomic":
        return eqx.tree_at(lambda joint: joint.time, self, self.time + duration)

    def released(self) -> Joint:
        return self.joint

    def reversed(self) -> Joint | None:
        same = type(self.joint).reversed_coordinates is Joint.reversed_coordinates  # then the motion is the same, too
        back = self.joint.reversed() if same else None
        return None if back is None else Rheonomic(back, self.motion, self.time)

    def prescribed(self) -> tuple[Array, Array, Array]:
        def position_and_velocity(time):
            position, rate = jax.jvp(self.motion, (time,), (jnp.ones_like(time),))
            return position, self.joint.velocity_of_rate(position, rate)

        (position, velocity), (_, acceleration) = jax.jvp(
            position_and_velocity, (self.time,), (jnp.ones_like(self.time),)
        )
        return position, velocity, acceleration

    def transform(self, q: Float[Array, "0"]) -> RigidTransform:
        return self.joint.transform(self.motion(self.time))

    def motion_subspace(self, q: Float[Array, "0"]) -> Float[Array, "6 0"]:
        return jnp.zeros((6, 0), q.dtype)

    def driven_columns(self, q: Float[Array, "0"]) -> Float[Array, "6 _"]:
        return self.joint.motion_subspace(self.motion(self.time))

    def drift(self, q: Float[Array, "0"]) -> Float[Array, "6"]:
        position, velocity, _ = self.prescribed()
        return dot(self.joint.motion_subspace(position), velocity)

    def drift_rate(self, q: Float[Array, "0"], v: Float[Array, "0"]) -> Float[Array, "6"]:
        position, velocity, acceleration = self.prescribed()
        return dot(self.joint.motion_subspace(position), acceleration) + self.joint.subspace_rate(position, velocity)

    def validate(self) -> str | None:
        kind = type(self.joint).__name__.lower()
        if isinstance(self.joint, Fixed | Rheonomic):
            return f"it drives a {kind} joint; give a joint that can move"
        shape = jax.eval_shape(self.motion, self.time).shape
        if shape != (self.joint.nq,):
            return f"its motion has values of shape {shape}; a {kind} joint needs shape ({self.joint.nq},)"
        return self.joint.validate()


def joint_of_kind(kind: str, axis=None) -> Joint:
    """Joint of the kind named in a file: "revolute", "prismatic" (both need a unit `axis`) or "fixed".

    Raises:
        UnknownName: There is no such kind.
        ValueError: An axis is missing or not applicable.
    """
    axial: dict[str, type[Revolute | Prismatic]] = {"revolute": Revolute, "prismatic": Prismatic}
    if kind == "fixed":
        if axis is not None:
            raise ValueError("a fixed joint has no axis; remove it")
        return Fixed()
    check_name("kind of joint", kind, [*axial, "fixed"])
    if axis is None:
        raise ValueError(f"a {kind} joint needs an axis; give a unit vector such as (0, 0, 1)")
    return axial[kind](axis)
