"""Tables of a mechanism file that do not correspond to the fields of one class, as `jaxdyn.io.tables` reads them.

`mechanism.parts` reads all other forces and constraints from the declarations of their classes. The type of a field is Any if the
form of its value depends on the joint, or if several forms are allowed; `mechanism.joints` and `mechanism.reader` read these
values.
"""

import dataclasses
from typing import Any, Literal

from jaxdyn.constraints.nonholonomic import KnifeEdge
from jaxdyn.dynamics.contact import GroundContact
from jaxdyn.dynamics.contact.material import ContactMaterial
from jaxdyn.dynamics.drives import Actuator, Actuators
from jaxdyn.dynamics.forces import AppliedForce
from jaxdyn.dynamics.forces.tendons import Tendon
from jaxdyn.dynamics.paths import Waypoint
from jaxdyn.io.config import setting, setting_of
from jaxdyn.io.placements import quaternion_from_rpy
from jaxdyn.mechanism.builder import STANDARD_GRAVITY
from jaxdyn.mechanism.model import Limits, Model
from jaxdyn.mechanism.quantity import quantities, quantity
from jaxdyn.mechanism.rotors import Rotors

_ZERO = (0.0, 0.0, 0.0)
_MOST_COEFFICIENTS = 20


@dataclasses.dataclass(frozen=True)
class JointEntry:
    """The joint that connects a body to its parent. All kinds of joints have these keys.

    Attributes:
        kind: Kind of the joint, such as "revolute", "prismatic", "spherical", "free" or "fixed".
        motion: Table of a prescribed motion; the joint is free to move if not given.
        name: Name of the joint; the name of the body followed by "_joint" if not given.
        position_limits: Limits [lower, upper] of all coordinates, or a list with one such pair per coordinate; no limits if not
            given.
        velocity_limit: Largest speed, one value for all velocity components or a list; no limit if not given.
        effort_limit: Largest torque or force of the drive, one value for all velocity components or a list; no limit if not
            given.
        armature: Rotor inertia reflected to the joint, one value for all velocity components or a list; zero if not given.
    """

    kind: str
    motion: dict[str, Any] | None = None
    name: str | None = None
    position_limits: Any = setting_of(Limits, "lower", None)
    velocity_limit: Any = setting_of(Limits, "velocity", None)
    effort_limit: Any = setting_of(Limits, "effort", None)
    armature: Any = setting_of(Model, "armature", None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlacementEntry:
    """The placement of a coordinate frame in a body: a position and a rotation, given by a quaternion or by angles.

    Attributes:
        position: Origin of the frame, on the axes of the body that carries it.
        orientation: Rotation of the frame as a unit quaternion [w, x, y, z]; no rotation if not given.
        rpy: Rotation of the frame as roll, pitch and yaw about the fixed axes x, y, z, instead of a quaternion.
    """

    position: tuple[float, float, float] = setting(_ZERO, unit="m")
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
        return quaternion_from_rpy(self.rpy or _ZERO)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BodyEntry(PlacementEntry):
    """A body, with the position and the rotation of its joint frame in the parent body.

    Attributes:
        position: Origin of the joint frame, on the axes of the parent body.
        orientation: Rotation of the joint frame in the parent body as a unit quaternion [w, x, y, z]; no rotation if not given.
        rpy: Rotation of the joint frame in the parent body as roll, pitch and yaw about the fixed axes x, y, z, instead of a
            quaternion.
        name: Name of the body.
        joint: Table of the joint that connects the body to its parent.
        parent: Name of the parent body; "ground" is the fixed world.
        mass: Mass of the body.
        com: Center of mass relative to the body origin (the joint point), on the axes of the body.
        inertia: Inertia tensor about the center of mass, on the axes of the body: [xx, yy, zz], [xx, yy, zz, xy, xz, yz] with the
            off-diagonal entries of the tensor, or three rows; zero if not given.
    """

    name: str
    joint: Any
    parent: str = "ground"
    mass: float = setting_of(Model, "mass", 0.0)
    com: tuple[float, float, float] = setting_of(Model, "com", _ZERO)
    inertia: Any = setting_of(Model, "inertia", None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FrameEntry(PlacementEntry):
    """A named frame that is fixed in a body.

    Attributes:
        name: Name of the frame.
        body: Name of the body that carries the frame, or "ground".
    """

    name: str
    body: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class RotorEntry:
    """The rotor of a geared drive, which spins faster than the joint that it drives.

    The mass and the inertia of the carrier must include those of the rotor as if it were fixed in the carrier.

    Attributes:
        name: Name of the rotor.
        carrier: Name of the body that carries the rotor, or "ground".
        joint: Name of the driven joint, or of its body; the joint must have one velocity component.
        axis: Unit vector of the axis on the axes of the carrier. It may be omitted if the rotor turns about the axis of a revolute
            joint that is adjacent to the carrier.
    """

    name: str
    carrier: str
    joint: str
    inertia: float = setting_of(Rotors, "inertia")
    ratio: float = setting_of(Rotors, "ratio")
    axis: tuple[float, float, float] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class MarkerEntry(PlacementEntry):
    """A marker: the frame of one of the two bodies that a loop joint connects.

    Attributes:
        body: Name of the body or frame that carries the marker, or "ground".
    """

    body: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoopEntry:
    """A joint that closes a loop; its axis is the z axis of both markers.

    Attributes:
        name: Name of the constraint.
        kind: Kind of the joint that closes the loop, such as "revolute".
        a: Marker on the first body: a table with the keys body (name of a body or frame), position, and orientation or rpy.
        b: Marker on the second body: a table with the same keys as `a`.
    """

    name: str
    kind: str
    a: MarkerEntry
    b: MarkerEntry


@dataclasses.dataclass(frozen=True)
class CouplingEntry:
    """The coordinate of one joint as a polynomial of the coordinate of another joint.

    Attributes:
        name: Name of the constraint.
        driven: Name of the joint whose coordinate is the value of the polynomial.
        driver: Name of the joint whose coordinate is the argument of the polynomial.
        coefficients: Coefficients c0, c1, ... of the polynomial, beginning with the constant term c0, in the units of the joints.
        driven_component: Index of the coordinate of the driven joint, from 0; needed if the joint has several coordinates.
        driver_component: Index of the coordinate of the driver joint, from 0; needed if the joint has several coordinates.
    """

    name: str
    driven: str
    driver: str
    coefficients: tuple[Any, ...]
    driven_component: int | None = setting(None, minimum=0.0)
    driver_component: int | None = setting(None, minimum=0.0)

    def __post_init__(self):
        if not 0 < len(self.coefficients) <= _MOST_COEFFICIENTS:
            raise ValueError(f"it has {len(self.coefficients)} coefficients; give 1 to {_MOST_COEFFICIENTS}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AppliedForceEntry:
    """A constant force and couple on a body.

    Attributes:
        body: Name of the body or frame on which the force acts.
        axes: "body" if force and torque are given on the axes of the body or frame and turn with it, "ground" if they are given on
            ground axes.
        point: Point of application relative to the origin of the body or frame, on its axes.
    """

    body: str
    axes: Literal["body", "ground"]
    point: tuple[float, float, float] = setting_of(AppliedForce, "point", _ZERO)
    force: tuple[float, float, float] = setting_of(AppliedForce, "force", _ZERO)
    torque: tuple[float, float, float] = setting_of(AppliedForce, "torque", _ZERO)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TendonEntry:
    """A spring, damper and dry friction along joints or along a line.

    Attributes:
        joints: Moment arms by the names of joints, one value, or one per velocity component; the length is the sum of moment arm
            times coordinate.
        path: Waypoints of a line: a list of tables with the keys body (name of a body or frame, or "ground"), point (m), radius
            (m) and axis of a sphere or cylinder around which the line goes, side (m) and factor.
        rest: Smallest and largest length at which the spring is relaxed; the length in the neutral configuration if not given.
    """

    joints: dict[str, tuple[float, ...]] = dataclasses.field(
        default_factory=dict, metadata=quantity("1", broadcast=True)
    )
    path: tuple[Waypoint, ...] = ()
    stiffness: float = setting_of(Tendon, "stiffness", 0.0)
    damping: float = setting_of(Tendon, "damping", 0.0)
    rest: tuple[float, float] | None = setting_of(Tendon, "rest", None)
    friction: float | None = setting_of(Tendon, "friction", None)
    velocity_scale: float = setting_of(Tendon, "velocity_scale")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SphereEntry:
    """A sphere on a body, or a point if the radius is zero.

    Attributes:
        body: Name of the body or frame.
        center: Center relative to the origin of the body or frame, on its axes.
        radius: Radius of the sphere.
    """

    body: str
    center: tuple[float, float, float] = setting_of(GroundContact, "centers", _ZERO)
    radius: float = setting_of(GroundContact, "radii", 0.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShapeEntry(SphereEntry):
    """A sphere on a body, a point if the radius is zero, or an ellipsoid or a rim if there are axes.

    Attributes:
        body: Name of the body or frame.
        center: Center relative to the origin of the body or frame, on its axes.
        radius: Radius of the sphere, or distance of the surface from the ellipsoid or rim.
        axes: The three semi-axes of an ellipsoid on the axes of the body or frame; the last one is zero for a rim.
    """

    axes: tuple[tuple[float, float, float], ...] = setting_of(GroundContact, "axes", (_ZERO,) * 3)

    def __post_init__(self):
        if len(self.axes) != 3:
            raise ValueError(f"axes has {len(self.axes)} rows; give three semi-axes, the last one [0, 0, 0] for a rim")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaterialEntry:
    """Parameters of the force in contacts.

    Attributes:
        stiffness: Stiffness of a contact; by default a quarter of the weight of the mechanism sinks 1 mm into the ground.
        damping: Damping coefficient of a contact; by default critical for a quarter of the mass of the mechanism.
    """

    stiffness: float | None = setting_of(ContactMaterial, "stiffness", None)
    damping: float | None = setting_of(ContactMaterial, "damping", None)
    friction: float | None = setting_of(ContactMaterial, "friction", None)
    slip_speed: float | None = setting_of(ContactMaterial, "slip_speed", None)
    onset: float | None = setting_of(ContactMaterial, "onset", None)
    torsion_radius: float | None = setting_of(ContactMaterial, "torsion_radius", None)

    def material(self, model: Model) -> ContactMaterial:
        """The material, with the values of `ContactMaterial.of` for keys that are not given."""
        given = {name: getattr(self, name) for name in quantities(ContactMaterial)}
        return ContactMaterial.of(model, **{name: value for name, value in given.items() if value is not None})


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroundContactEntry(MaterialEntry):
    """Contacts of points, spheres, rims and ellipsoids of bodies with the ground.

    Attributes:
        points: Points and shapes: a list of tables with the keys body (name of a body or frame), center (m), radius (m) and axes
            (m), the three semi-axes of an ellipsoid or, if the last one is zero, of a rim; all are zero if not given.
        surface: Surface of the ground, the plane z = 0 if not given: a table {kind = "plane", normal, height (m)}, or {kind =
            "grid", heights (m), spacing (m), corner (m)} with one list of heights along y for each position along x.
    """

    points: tuple[ShapeEntry, ...]
    surface: dict[str, Any] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RollingEntry(ShapeEntry):
    """A shape of a body that touches a surface, or rolls on it without slip.

    Attributes:
        name: Name of the constraint.
        surface: Surface of the ground, as for ground_contact; the plane z = 0 if not given.
    """

    name: str
    surface: dict[str, Any] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class KnifeEdgeEntry:
    """A point of a body that does not move along a direction of the body.

    Attributes:
        name: Name of the constraint.
        body: Name of the body or frame.
        point: Position of the point relative to the origin of the body or frame, on its axes.
        direction: Unit vector on the axes of the body or frame.
    """

    name: str
    body: str
    point: tuple[float, float, float] = setting_of(KnifeEdge, "point", _ZERO)
    direction: tuple[float, float, float] = setting_of(KnifeEdge, "direction")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairEntry:
    """A pair of spheres.

    Attributes:
        a: Sphere on the first body.
        b: Sphere on the second body.
    """

    a: SphereEntry
    b: SphereEntry


@dataclasses.dataclass(frozen=True, kw_only=True)
class SphereContactEntry(MaterialEntry):
    """Contacts between pairs of spheres of two bodies.

    Attributes:
        pairs: Pairs of spheres: a list of tables {a, b}. Each of both is a table with the keys body (name of a body or frame, or
            "ground"), center (m) and radius (m); center and radius are zero if not given.
    """

    pairs: tuple[PairEntry, ...]


@dataclasses.dataclass(frozen=True)
class DrivesEntry:
    """The joint that each control drives.

    Attributes:
        joints: Names of the driven joints, one for each control.
        components: Index of the driven velocity component of each driven joint, from 0; needed if a joint has several components.
        gear: Torque or force of the joint per unit of each control; 1 if not given.
        all: True if every velocity component is driven, those of free joints too, and no other key is given.
    """

    joints: tuple[str, ...] = ()
    components: tuple[int, ...] | None = setting(None, minimum=0.0)
    gear: tuple[float, ...] | None = None
    all: bool = False


@dataclasses.dataclass(frozen=True)
class MechanismEntry:
    """A mechanism file without its tables of forces and constraints.

    Attributes:
        name: Name of the mechanism.
        source: Source of the values in words, such as a data sheet.
        body: Bodies, one table each, with the joint that connects the body to its parent.
        frame: Named frames that are fixed in bodies, such as a flange or a sensor, one table each.
        rotor: Rotors of geared drives, one table each.
        drives: Joints that the controls drive; if this table is not given, every velocity component is driven, except those of free
            joints, because floating bases have no motors.
        actuator: Actuators with ranges, one table for each control, instead of `drives`.
        effort_range: Bounds of the sum of the torques or forces of all actuators, [lower, upper] by joint names.
    """

    name: str
    source: str
    body: tuple[BodyEntry, ...]
    gravity: tuple[float, float, float] = setting_of(Model, "gravity", STANDARD_GRAVITY)
    frame: tuple[FrameEntry, ...] = ()
    rotor: tuple[RotorEntry, ...] = ()
    drives: DrivesEntry | None = None
    actuator: tuple[Actuator, ...] | None = None
    effort_range: dict[str, tuple[float, float]] = dataclasses.field(
        default_factory=dict,
        metadata=next(f.metadata for f in dataclasses.fields(Actuators) if f.name == "effort_range"),
    )

    def __post_init__(self):
        if not self.source.strip():
            raise ValueError("source is empty; state where the values come from")
