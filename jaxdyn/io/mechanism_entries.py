"""The tables of a mechanism file that are not the fields of one class, as `jaxdyn.io.config` reads them.

`mechanism_parts` reads all other forces and constraints by what their classes declare. Fields of type Any depend on the joint.
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
    """A field with the unit and the bounds that a class declares of its own."""
    return dataclasses.field(default=default, metadata=metadata(quantities(owner)[name]))


@dataclasses.dataclass(frozen=True)
class JointEntry:
    """The joint that carries a body, without the geometry of its kind."""

    kind: str
    motion: dict[str, Any] | None = None
    name: str | None = None
    position_limits: Any = None
    velocity_limit: Any = None
    effort_limit: Any = None
    armature: Any = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlacementEntry:
    """A position and a rotation, by a quaternion or by angles."""

    position: tuple[float, float, float] = setting((0.0, 0.0, 0.0), unit="m")
    orientation: tuple[float, float, float, float] | None = None
    rpy: tuple[float, float, float] | None = setting(None, unit="rad")

    def __post_init__(self):
        if self.orientation is not None and self.rpy is not None:
            raise ValueError("orientation and rpy are both given; remove one")

    @property
    def quaternion(self) -> tuple[float, ...]:
        """Rotation of the frame."""
        if self.orientation is not None:
            return self.orientation
        return quaternion_from_rpy(self.rpy or (0.0, 0.0, 0.0))


@dataclasses.dataclass(frozen=True, kw_only=True)
class BodyEntry(PlacementEntry):
    """[[body]]: a body; its placement is that of its joint frame in the parent."""

    name: str
    joint: Any
    parent: str = "ground"
    mass: float = _like(Model, "mass", 0.0)
    com: tuple[float, float, float] = _like(Model, "com", _ZERO)
    inertia: Any = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class FrameEntry(PlacementEntry):
    """[[frame]]: a named frame on a body."""

    name: str
    body: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class RotorEntry:
    """[[rotor]]: the rotor of a geared drive; its ratio is that of rates, in rad/m if the joint is prismatic."""

    name: str
    carrier: str
    joint: str
    inertia: float = _like(Rotors, "inertia")
    ratio: float
    axis: tuple[float, float, float] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class MarkerEntry(PlacementEntry):
    """One side of a loop joint: a frame on a body."""

    body: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoopEntry:
    """[[loop]]: a joint that closes a loop; its axis is z of both markers.

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
    """[[coupling]]: the coordinate of one joint as a polynomial of the coordinate of another.

    Attributes:
        name: Name of the constraint.
        driven, driver: Names of the two joints.
        coefficients: Coefficients of the polynomial, the constant one first.
        driven_component, driver_component: Index of the coordinate of a joint that has several, from 0.
    """

    name: str
    driven: str
    driver: str
    coefficients: tuple[Any, ...]
    driven_component: int | None = setting(None, non_negative=True)
    driver_component: int | None = setting(None, non_negative=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AppliedForceEntry:
    """[[applied_force]]: a constant force and couple on a body.

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
    """[drives]: the driven joint of each control, and which of its velocity components, counted from 0."""

    joints: tuple[str, ...]
    components: tuple[int, ...] | None = setting(None, non_negative=True)
    gear: tuple[float, ...] | None = None


@dataclasses.dataclass(frozen=True)
class MechanismEntry:
    """The whole file."""

    name: str
    source: str
    body: tuple[BodyEntry, ...]
    gravity: tuple[float, float, float] = _like(Model, "gravity", STANDARD_GRAVITY)
    frame: tuple[FrameEntry, ...] = ()
    rotor: tuple[RotorEntry, ...] = ()
    drives: DrivesEntry | None = None

    def __post_init__(self):
        if not self.source.strip():
            raise ValueError("source is empty; write where the numbers come from")
