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
    """Joint that carries a body, without the geometry that depends on its kind."""

    kind: str
    motion: dict[str, Any] | None = None
    name: str | None = None
    position_limits: Any = None
    velocity_limit: Any = None
    effort_limit: Any = None
    armature: Any = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlacementEntry:
    """A position (m) and a rotation, given by a quaternion (w, x, y, z) or by roll, pitch and yaw (rad)."""

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
    """[[body]]: A body; its placement is the placement of its joint frame in the parent."""

    name: str
    joint: Any
    parent: str = "ground"
    mass: float = _like(Model, "mass", 0.0)
    com: tuple[float, float, float] = _like(Model, "com", _ZERO)
    inertia: Any = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class FrameEntry(PlacementEntry):
    """[[frame]]: A named frame on a body."""

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
    """[drives]: The driven joint of each control, and the index of the driven velocity component, from 0."""

    joints: tuple[str, ...]
    components: tuple[int, ...] | None = setting(None, non_negative=True)
    gear: tuple[float, ...] | None = None


@dataclasses.dataclass(frozen=True)
class MechanismEntry:
    """The complete mechanism file."""

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
