"""The tables of a mechanism file, as `jaxdyn.io.config` reads them.

Fields of type Any hold numbers whose units depend on the joint.
"""

import dataclasses
from typing import Any, Literal

from jaxdyn.io.config import setting
from jaxdyn.io.placements import quaternion_from_rpy
from jaxdyn.mechanism.builder import STANDARD_GRAVITY


@dataclasses.dataclass(frozen=True)
class JointEntry:
    """The joint that carries a body: its kind, the geometry that this kind has, and numbers per component."""

    kind: str
    axis: tuple[float, float, float] | None = None
    pitch: float | None = setting(None, unit="m/rad")
    first_axis: tuple[float, float, float] | None = None
    second_axis: tuple[float, float, float] | None = None
    normal: tuple[float, float, float] | None = None
    direction: tuple[float, float, float] | None = None
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
    joint: JointEntry
    parent: str = "ground"
    mass: float = setting(0.0, unit="kg")
    com: tuple[float, float, float] = setting((0.0, 0.0, 0.0), unit="m")
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
    inertia: float = setting(unit="kg m^2", positive=True)
    ratio: float
    axis: tuple[float, float, float] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class MarkerEntry(PlacementEntry):
    """One side of a loop joint: a frame on a body."""

    body: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoopEntry:
    """[[loop]]: a joint that closes a loop; its axis is z of both markers."""

    name: str
    kind: str
    a: MarkerEntry
    b: MarkerEntry


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairEntry:
    """Two points, each on a body or frame."""

    body_a: str
    point_a: tuple[float, float, float] = setting(unit="m")
    body_b: str
    point_b: tuple[float, float, float] = setting(unit="m")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpringEntry(PairEntry):
    """[[spring]]: a spring between two points."""

    stiffness: float = setting(unit="N/m", non_negative=True)
    free_length: float = setting(0.0, unit="m", non_negative=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DamperEntry(PairEntry):
    """[[damper]]: a damper between two points."""

    coefficient: float = setting(unit="N s/m", non_negative=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RodEntry(PairEntry):
    """[[rod]]: a constant distance between two points."""

    name: str
    length: float = setting(unit="m", positive=True)


@dataclasses.dataclass(frozen=True)
class CouplingEntry:
    """[[coupling]]: the coordinate of one joint as a polynomial of that of another; components if a joint has several."""

    name: str
    driven: str
    driver: str
    coefficients: tuple[Any, ...]
    driven_component: int | None = setting(None, non_negative=True)
    driver_component: int | None = setting(None, non_negative=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AppliedForceEntry:
    """[[applied_force]]: a constant force and couple on a body."""

    body: str
    axes: Literal["body", "ground"]
    point: tuple[float, float, float] = setting((0.0, 0.0, 0.0), unit="m")
    force: tuple[float, float, float] = setting((0.0, 0.0, 0.0), unit="N")
    torque: tuple[float, float, float] = setting((0.0, 0.0, 0.0), unit="N m")


@dataclasses.dataclass(frozen=True)
class JointFrictionEntry:
    """[joint_friction]: tables by the names of joints."""

    viscous: dict[str, Any] = dataclasses.field(default_factory=dict)
    coulomb: dict[str, Any] = dataclasses.field(default_factory=dict)
    velocity_scale: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class StribeckFrictionEntry:
    """[joint_stribeck_friction]: tables by the names of joints."""

    stribeck: dict[str, Any] = dataclasses.field(default_factory=dict)
    stribeck_velocity: dict[str, Any] = dataclasses.field(default_factory=dict)
    velocity_scale: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class AsymmetricFrictionEntry:
    """[joint_asymmetric_friction]: tables by the names of joints."""

    coulomb_difference: dict[str, Any] = dataclasses.field(default_factory=dict)
    viscous_difference: dict[str, Any] = dataclasses.field(default_factory=dict)
    velocity_scale: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class LoadFrictionEntry:
    """[joint_load_friction]: tables by the names of joints."""

    coefficient: dict[str, Any] = dataclasses.field(default_factory=dict)
    velocity_scale: dict[str, Any] = dataclasses.field(default_factory=dict)
    load_scale: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class BearingFrictionEntry:
    """[joint_bearing_friction]: tables by the names of joints."""

    coefficient: dict[str, Any] = dataclasses.field(default_factory=dict)
    velocity_scale: dict[str, Any] = dataclasses.field(default_factory=dict)
    load_scale: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class QuadraticDragEntry:
    """[joint_quadratic_drag]: a table by the names of joints."""

    coefficient: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class JointSpringEntry:
    """[joint_spring]: tables by the names of joints."""

    stiffness: dict[str, Any]
    rest: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class JointServoEntry:
    """[joint_servo]: tables by the names of joints; a joint without `effort` has no bound."""

    stiffness: dict[str, Any] = dataclasses.field(default_factory=dict)
    damping: dict[str, Any] = dataclasses.field(default_factory=dict)
    target: dict[str, Any] = dataclasses.field(default_factory=dict)
    effort: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class JointLimitsEntry:
    """[joint_limits]: tables by the names of joints; numbers that are not given come from the mechanism."""

    stiffness: dict[str, Any] = dataclasses.field(default_factory=dict)
    damping: dict[str, Any] = dataclasses.field(default_factory=dict)
    width: dict[str, Any] = dataclasses.field(default_factory=dict)


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
    gravity: tuple[float, float, float] = setting(STANDARD_GRAVITY, unit="m/s^2")
    frame: tuple[FrameEntry, ...] = ()
    rotor: tuple[RotorEntry, ...] = ()
    spring: tuple[SpringEntry, ...] = ()
    damper: tuple[DamperEntry, ...] = ()
    applied_force: tuple[AppliedForceEntry, ...] = ()
    joint_friction: JointFrictionEntry | None = None
    joint_stribeck_friction: StribeckFrictionEntry | None = None
    joint_asymmetric_friction: AsymmetricFrictionEntry | None = None
    joint_load_friction: LoadFrictionEntry | None = None
    joint_bearing_friction: BearingFrictionEntry | None = None
    joint_quadratic_drag: QuadraticDragEntry | None = None
    joint_spring: JointSpringEntry | None = None
    joint_limits: JointLimitsEntry | None = None
    joint_servo: JointServoEntry | None = None
    drives: DrivesEntry | None = None
    loop: tuple[LoopEntry, ...] = ()
    rod: tuple[RodEntry, ...] = ()
    coupling: tuple[CouplingEntry, ...] = ()

    def __post_init__(self):
        if not self.source.strip():
            raise ValueError("source is empty; write where the numbers come from")
