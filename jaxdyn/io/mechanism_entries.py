"""Tables of a mechanism file that do not correspond to the fields of one class, as `jaxdyn.io.config` reads them.

`mechanism_parts` reads all other forces and constraints from the declarations of their classes. Fields of type Any depend on the
joint.
"""

import dataclasses
from typing import Any, Literal

from jaxdyn.dynamics.forces import AppliedForce
from jaxdyn.io.config import setting
from jaxdyn.io.placements import quaternion_from_rpy
from jaxdyn.mechanism.builder import STANDARD_GRAVITY
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import metadata, quantities
from jaxdyn.mechanism.rotors import Rotors

_ZERO = (0.0, 0.0, 0.0)


def _like(owner: type, name: str, default: Any = dataclasses.MISSING) -> Any:
    """A field with the unit and the bounds that the class `owner` declares for its field `name`."""
    return dataclasses.field(default=default, metadata=metadata(quantities(owner)[name]))


@dataclasses.dataclass(frozen=True)
class JointEntry:
    """The joint that carries a body, without the geometry of its kind.

    Attributes:
        kind: The kind of the joint, such as "revolute", "prismatic", "spherical", "free" or "fixed".
        motion: The joint moves as this table prescribes.
        name: The name of the joint; the name of the body followed by "_joint" if not given.
        position_limits: The lower and the upper limit of every coordinate.
        velocity_limit: The largest speed of every component.
        effort_limit: The largest torque or force of the drive.
        armature: The inertia of a rotor, reflected to the joint.
    """

    kind: str
    motion: dict[str, Any] | None = None
    name: str | None = None
    position_limits: Any = None
    velocity_limit: Any = None
    effort_limit: Any = None
    armature: Any = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlacementEntry:
    """A position and a rotation, by a quaternion or by angles.

    Attributes:
        position: The coordinates of the origin on the axes of the parent body, or of the body that carries it.
        orientation: The rotation as a unit quaternion [w, x, y, z].
        rpy: The rotation as roll, pitch and yaw about the fixed axes x, y, z, in place of a quaternion.
    """

    position: tuple[float, float, float] = setting((0.0, 0.0, 0.0), unit="m")
    orientation: tuple[float, float, float, float] | None = None
    rpy: tuple[float, float, float] | None = setting(None, unit="rad")

    def __post_init__(self):
        if self.orientation is not None and self.rpy is not None:
            raise ValueError("orientation and rpy are both given; remove one")

    @property
    def quaternion(self) -> tuple[float, ...]:
        """Rotation of the frame as a quaternion (w, x, y, z)."""
        if self.orientation is not None:
            return self.orientation
        return quaternion_from_rpy(self.rpy or (0.0, 0.0, 0.0))


@dataclasses.dataclass(frozen=True, kw_only=True)
class BodyEntry(PlacementEntry):
    """[[body]]: a body; its placement is that of its joint frame in the parent.

    Attributes:
        name: The name of the body.
        joint: The joint that carries the body.
        parent: The name of the body that carries the joint; "ground" is the fixed world.
        mass: The mass of the body.
        com: The coordinates of the center of mass, on the axes of the body and from its joint point.
        inertia: The inertia tensor about the center of mass, on the axes of the body, in kg m^2: [xx, yy, zz],
            [xx, yy, zz, xy, xz, yz] or three rows.
    """

    name: str
    joint: Any
    parent: str = "ground"
    mass: float = _like(Model, "mass", 0.0)
    com: tuple[float, float, float] = _like(Model, "com", _ZERO)
    inertia: Any = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class FrameEntry(PlacementEntry):
    """[[frame]]: a named frame on a body.

    Attributes:
        name: The name of the frame.
        body: The name of the body that carries it.
    """

    name: str
    body: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class RotorEntry:
    """[[rotor]]: The rotor of a geared drive; its ratio is the ratio of rates, in rad/m if the joint is prismatic."""

    name: str
    carrier: str
    joint: str
    inertia: float = _like(Rotors, "inertia")
    ratio: float
    axis: tuple[float, float, float] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class MarkerEntry(PlacementEntry):
    """Frame on a body that marks one side of a loop joint."""

    body: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoopEntry:
    """[[loop]]: A joint that closes a loop; its axis is the z axis of both markers.

    Attributes:
        name: Name of the constraint.
        kind: Kind of the joint that closes the loop, such as "revolute".
        a, b: The two markers, each with the name of a body or frame, a position, and an orientation or rpy.
    """

    name: str
    kind: str
    a: MarkerEntry
    b: MarkerEntry


@dataclasses.dataclass(frozen=True)
class CouplingEntry:
    """[[coupling]]: The coordinate of one joint as a polynomial of the coordinate of another joint.

    Attributes:
        name: Name of the constraint.
        driven, driver: Names of the two joints.
        coefficients: Coefficients of the polynomial, beginning with the constant term.
        driven_component, driver_component: Index of the coordinate, from 0, if the joint has several.
    """

    name: str
    driven: str
    driver: str
    coefficients: tuple[Any, ...]
    driven_component: int | None = setting(None, non_negative=True)
    driver_component: int | None = setting(None, non_negative=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AppliedForceEntry:
    """[[applied_force]]: A constant force and couple on a body.

    Attributes:
        body: Name of a body or frame.
        axes: "body" if force and torque are given on the axes of the body or frame and turn with it, "ground" if on ground axes.
        point: Point where the force acts, on the axes of the body or frame.
        force: Force vector.
        torque: Couple.
    """

    body: str
    axes: Literal["body", "ground"]
    point: tuple[float, float, float] = _like(AppliedForce, "point", _ZERO)
    force: tuple[float, float, float] = _like(AppliedForce, "force", _ZERO)
    torque: tuple[float, float, float] = _like(AppliedForce, "torque", _ZERO)


@dataclasses.dataclass(frozen=True)
class DrivesEntry:
    """[drives]: the driven joint of each control, and which of its velocity components, counted from 0.

    Attributes:
        joints: The name of the driven joint of each control.
        components: The driven velocity component of each of these joints, counted from 0.
        gear: The torque or force of the joint per unit of each control.
    """

    joints: tuple[str, ...]
    components: tuple[int, ...] | None = setting(None, non_negative=True)
    gear: tuple[float, ...] | None = None


@dataclasses.dataclass(frozen=True)
class MechanismEntry:
    """The whole file.

    Attributes:
        name: The name of the mechanism.
        source: The source of the values, in any words.
        body: Each of these tables is a body with the joint that carries it.
        gravity: The gravitational acceleration on the axes of the ground.
        frame: Each of these tables is a named frame on a body, such as a flange or a sensor.
        rotor: Each of these tables is the rotor of a geared drive.
        drives: The joints that the controls drive; every joint is driven if this table is not given.
    """

    name: str
    source: str
    body: tuple[BodyEntry, ...]
    gravity: tuple[float, float, float] = _like(Model, "gravity", STANDARD_GRAVITY)
    frame: tuple[FrameEntry, ...] = ()
    rotor: tuple[RotorEntry, ...] = ()
    drives: DrivesEntry | None = None

    def __post_init__(self):
        if not self.source.strip():
            raise ValueError("source is empty; state where the values come from")
