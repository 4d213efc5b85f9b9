"""Kinds of constraints: joints that close a loop, rods, and couplings of coordinates; theory.md section (n).

Markers are frames fixed in bodies and given on body axes, relative to the body origin O'; the body index -1 denotes the ground.
"""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, floating
from jaxdyn.dynamics.constraint import Constraint
from jaxdyn.dynamics.kinematics import Coordinates, Poses, point_on_body
from jaxdyn.mechanism.components import coordinate_units
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.joints import Cylindrical, Fixed, Planar, Prismatic, Revolute, Spherical, Universal
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import body_index, plain, quantity
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.transform import RigidTransform

LOOP_KINDS = ("revolute", "prismatic", "cylindrical", "universal", "spherical", "planar", "fixed")
# Numbers of equations between lengths and between angles.
_COUNTS = (3, 2), (2, 3), (2, 2), (3, 1), (3, 0), (1, 2), (3, 3)
_EQUATIONS: dict[str, tuple[int, int]] = dict(zip(LOOP_KINDS, _COUNTS, strict=True))
_RIGHT_ANGLE_TOLERANCE = 1e-6


class _Marker:
    """A frame fixed in a body, placed in the ground.

    Attributes:
        reference, arm: Position of its origin, in the two parts of `point_on_body`, m.
        orientation: Quaternion of the frame.
        axes: Axes x, y, z of the frame as rows.
    """

    def __init__(self, poses: Poses, body: int, frame: RigidTransform):
        self.reference, self.arm = point_on_body(poses, body, frame.translation)
        turn = frame.quaternion
        self.orientation = turn if body == GROUND else quaternion.multiply(poses.orientation[body], turn)
        self.axes = quaternion.to_matrix(self.orientation).T

    def to(self, other: "_Marker") -> Float[Array, "3"]:
        """Vector from the origin of the other marker to that of this one, ground axes, m."""
        return (self.reference - other.reference) + (self.arm - other.arm)


class LoopJoint(Constraint):
    """A joint that closes a loop: it constrains the motion of body B relative to body A. The joint axis is the axis z of both
    markers.

    D is the vector from marker B to marker A on ground axes; x, y, z are the axes of marker A, and x', y', z' those of marker B.
    The constraint equations set these expressions to zero:

        revolute      D, z.x', z.y'                    fixed       D, 2 sgn(q0) q_vec of the relative rotation
        prismatic     x'.D, y'.D, z.x', z.y', x.y'     universal   D, x.y'   (axes x of A and y of B)
        cylindrical   x'.D, y'.D, z.x', z.y'           planar      z.D, z.x', z.y'   (normal z)
        spherical     D

    Attributes:
        name: Name of the constraint in messages and files.
        kind: Kind of the joint, one of `LOOP_KINDS`.
        body_a, body_b: Indices of the two bodies, -1 for the ground.
        frame_a, frame_b: Placements of the markers in their bodies.

    Source: theory.md (N1), (N2), (N8).
    """

    table_name: ClassVar[str] = "loop"
    ends: ClassVar[tuple[str, ...]] = ("body_a", "body_b")

    name: str = eqx.field(static=True)
    kind: str = eqx.field(static=True)
    body_a: int = eqx.field(static=True, converter=plain, metadata=body_index())
    frame_a: RigidTransform
    body_b: int = eqx.field(static=True, converter=plain, metadata=body_index())
    frame_b: RigidTransform

    def residual(self, model: Model, q: Coordinates, poses: Poses) -> Float[Array, "m"]:
        a, b = self._markers(poses)
        d = a.to(b)
        aligned = jnp.stack([dot(a.axes[2], b.axes[0]), dot(a.axes[2], b.axes[1])])
        along = [dot(b.axes[0], d), dot(b.axes[1], d)]
        match self.kind:
            case "spherical":
                rows = [d]
            case "revolute":
                rows = [d, aligned]
            case "universal":
                rows = [d, dot(a.axes[0], b.axes[1])]
            case "fixed":
                relative = quaternion.multiply(quaternion.conjugate(a.orientation), b.orientation)
                unit = relative / jnp.sqrt(dot(relative, relative))
                rows = [d, 2.0 * jnp.where(unit[0] < 0, -1.0, 1.0) * unit[1:]]  # (N8)
            case "prismatic":
                rows = [*along, aligned, dot(a.axes[0], b.axes[1])]
            case "cylindrical":
                rows = [*along, aligned]
            case _:  # planar
                rows = [dot(a.axes[2], d), aligned]
        return jnp.concatenate([jnp.atleast_1d(row) for row in rows])  # (N1), (N2)

    def branches(self, model: Model, q: Coordinates, poses: Poses) -> Float[Array, "_"] | None:
        if self.kind in ("spherical", "universal", "fixed"):
            return None
        a, b = self._markers(poses)
        cosines = [dot(a.axes[2], b.axes[2])]
        if self.kind == "prismatic":
            cosines.append(dot(a.axes[0], b.axes[0]))
        return jnp.stack(cosines)

    def units(self, model: Model) -> tuple[str, ...]:
        lengths, angles = _EQUATIONS[self.kind]
        return ("m",) * lengths + ("rad",) * angles

    def _markers(self, poses: Poses) -> tuple[_Marker, _Marker]:
        return _Marker(poses, self.body_a, self.frame_a), _Marker(poses, self.body_b, self.frame_b)

    def describe(self, model: Model) -> str:
        return f"{self.kind} loop joint between {model.topology.body_name(self.body_a)} and {model.topology.body_name(self.body_b)}"

    def validate(self, model: Model) -> str | None:
        if self.kind not in LOOP_KINDS:
            return f"{self.name!r} is of kind {self.kind!r}; the kinds are {', '.join(LOOP_KINDS)}"
        return super().validate(model)


def loop_kind(joint: Joint) -> tuple[str, Float[np.ndarray, "3 3"]] | None:
    """Kind of the `LoopJoint` equivalent to a joint, and the axes x, y, z of its markers as columns on the axes of the joint frame.

    None if there is no equivalent: screws, free joints, prescribed motions, universal joints with oblique axes, user-defined
        joints.
    """
    match joint:
        case Revolute() | Prismatic() | Cylindrical():
            axes = _axes_about(joint.axis)
        case Planar():
            axes = _axes_about(joint.normal)
        case Universal() if abs(np.dot(joint.first_axis, joint.second_axis)) < _RIGHT_ANGLE_TOLERANCE:
            x, y = np.asarray(joint.first_axis, np.float64), np.asarray(joint.second_axis, np.float64)
            axes = np.stack([x, y, np.cross(x, y)], axis=1)
        case Spherical() | Fixed():
            axes = np.eye(3)
        case _:
            return None
    return type(joint).__name__.lower(), axes


def _axes_about(axis: Float[Array, "3"]) -> Float[np.ndarray, "3 3"]:
    """Rotation matrix whose third column is the axis; the identity for the axis z."""
    z = np.asarray(axis, np.float64)
    x = np.cross(np.eye(3)[1 - int(np.argmax(np.abs(z)) == 1)], z)
    x = x / np.linalg.norm(x)
    return np.stack([x, np.cross(z, x), z], axis=1)


class Distance(Constraint):
    """Massless rod with spherical joints at its ends: (|D|^2 - L^2) / (2 L) = 0 with the vector D from point B to point A.

    Attributes:
        name: Name of the constraint in messages and files.
        body_a: Index of the body at the first end, -1 for the ground.
        point_a: Position of the first end point A relative to the origin of body_a, on the axes of body_a.
        body_b: Index of the body at the second end, -1 for the ground.
        point_b: Position of the second end point B relative to the origin of body_b, on the axes of body_b.
        length: Length L of the rod.
    """

    table_name: ClassVar[str] = "rod"
    ends: ClassVar[tuple[str, ...]] = ("body_a", "body_b")

    name: str = eqx.field(static=True)
    body_a: int = eqx.field(static=True, converter=plain, metadata=body_index())
    point_a: Float[Array, "3"] = eqx.field(converter=floating, metadata=quantity("m", on="body_a"))
    body_b: int = eqx.field(static=True, converter=plain, metadata=body_index())
    point_b: Float[Array, "3"] = eqx.field(converter=floating, metadata=quantity("m", on="body_b"))
    length: Float[Array, ""] = eqx.field(converter=floating, metadata=quantity("m", positive=True))

    def residual(self, model: Model, q: Coordinates, poses: Poses) -> Float[Array, "m"]:
        reference_a, arm_a = point_on_body(poses, self.body_a, self.point_a)
        reference_b, arm_b = point_on_body(poses, self.body_b, self.point_b)
        d = (reference_a - reference_b) + (arm_a - arm_b)
        # The square is smooth where |D| is not; the quotient makes it the error of the length near the solution.
        return ((dot(d, d) - self.length**2) / (2.0 * self.length))[None]

    def units(self, model: Model) -> tuple[str, ...]:
        return ("m",)

    def describe(self, model: Model) -> str:
        return f"rod between {model.topology.body_name(self.body_a)} and {model.topology.body_name(self.body_b)}"


class Coupling(Constraint):
    """Gear or mimic joint: a coordinate is a polynomial of another one, q[driven] = c0 + c1 q[driver] + c2 q[driver]^2 + ...

    Attributes:
        name: Name of the constraint in messages and files.
        driven, driver: Indices of the two coordinates, which must belong to joints whose velocities are coordinate rates. They may
            be equal if c0 is the only coefficient, which locks the joint.
        coefficients: Coefficients c0, c1, ... of the polynomial, in the units of `coefficient_units`.
    """

    table_name: ClassVar[str] = "coupling"

    name: str = eqx.field(static=True)
    driven: int = eqx.field(static=True, converter=plain)
    driver: int = eqx.field(static=True, converter=plain)
    coefficients: Float[Array, "_"] = eqx.field(converter=floating)

    def residual(self, model: Model, q: Coordinates, poses: Poses) -> Float[Array, "m"]:
        value = jnp.zeros((), q.dtype)
        for k in reversed(range(self.coefficients.shape[0])):
            value = value * q[self.driver] + self.coefficients[k]
        return (q[self.driven] - value)[None]

    def units(self, model: Model) -> tuple[str, ...]:
        return (coordinate_units(model)[self.driven],)

    def coefficient_units(self, model: Model) -> list[str]:
        """Unit of each coefficient, such as "m", "m/rad", "m/rad^2" if a revolute joint drives a prismatic one.

        Args:
            model: Model whose coordinates are coupled.
        """
        driven, driver = (coordinate_units(model)[i] for i in (self.driven, self.driver))
        # With equal units, one power of the unit cancels.
        powers = range(self.coefficients.shape[0]) if driven != driver else range(-1, self.coefficients.shape[0] - 1)
        over = ["" if power == 0 else f"/{driver}" if power == 1 else f"/{driver}^{power}" for power in powers[1:]]
        return [driven, *(("1" if driven == driver else driven) + text for text in over)]

    def describe(self, model: Model) -> str:
        names = model.topology.joint_names
        driven, driver = (names[model.topology.body_of_coordinate[i]] for i in (self.driven, self.driver))
        return f"{driven} is locked" if self.driven == self.driver else f"{driven} follows {driver}"

    def validate(self, model: Model) -> str | None:
        wrong = model.topology.error_with_columns((self.driven, self.driver), "coordinate")
        if wrong is not None:
            return wrong
        for coordinate in (self.driven, self.driver):
            body = model.topology.body_of_coordinate[coordinate]
            if not model.topology.joint_classes[body].velocity_is_rate:
                kind = model.topology.joint_classes[body].__name__.lower()
                joint = f"the {kind} joint {model.topology.joint_names[body]!r}"
                return f"coordinate {coordinate} belongs to {joint}; couple angles or displacements"
        if self.driven == self.driver and self.coefficients.shape[-1] > 1:
            return f"{self.name!r} couples coordinate {self.driven} with itself; give two different coordinates"
        return super().validate(model)
