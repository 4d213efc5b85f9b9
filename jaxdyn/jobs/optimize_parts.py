"""Config keys of costs and constraints that differ from the fields of their classes: states, poses, spheres and bounds.

Each dataclass builds the fields that are listed in its class variable `makes`.
"""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from jaxdyn.control.obstacles import Spheres
from jaxdyn.dynamics.contact_points import contact_names
from jaxdyn.dynamics.system import System
from jaxdyn.io.config import setting, setting_of
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.placements import quaternion_from_rpy
from jaxdyn.jobs.component_values import coordinates, each, state
from jaxdyn.mechanism.model import as_dtype
from jaxdyn.mechanism.quantity import POSITION, VELOCITY
from jaxdyn.spatial.transform import RigidTransform

_ORIGIN = (0.0, 0.0, 0.0)


@dataclasses.dataclass(frozen=True)
class StatePart:
    """Keys of the target state of the cost "deviation".

    Attributes:
        q: Target coordinates; by default the neutral coordinates.
        v: Target velocities, one value for all components or one per component.
    """

    makes: ClassVar[tuple[str, ...]] = ("target",)

    q: tuple[float, ...] | None = setting(None, unit=POSITION)
    v: tuple[float, ...] = setting((0.0,), unit=VELOCITY, broadcast=True)

    def fields(self, system: System, place: str) -> dict[str, Any]:
        return {"target": state(self.q, self.v, system, f"{place} ")}


@dataclasses.dataclass(frozen=True)
class ConfigurationPart:
    """Keys of the target configuration of the cost "angular_deviation".

    Attributes:
        q: Target coordinates; by default the neutral coordinates.
    """

    makes: ClassVar[tuple[str, ...]] = ("target",)

    q: tuple[float, ...] | None = setting(None, unit=POSITION)

    def fields(self, system: System, place: str) -> dict[str, Any]:
        return {"target": coordinates(self.q, system.model, f"{place} q")}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PosePart:
    """Keys of a frame and its target pose.

    Attributes:
        frame: Name of a body or frame.
        position: Target position of the origin of the frame in world coordinates.
        orientation: Target orientation as a quaternion [w, x, y, z].
        rpy: Target orientation as roll, pitch and yaw angles, instead of a quaternion.
    """

    makes: ClassVar[tuple[str, ...]] = ("frame", "target")

    frame: str
    position: tuple[float, float, float] = setting(unit="m")
    orientation: tuple[float, float, float, float] | None = None
    rpy: tuple[float, float, float] | None = setting(None, unit="rad")

    def __post_init__(self):
        if self.orientation is not None and self.rpy is not None:
            raise ValueError("orientation and rpy are both given; remove one")

    def fields(self, system: System, place: str) -> dict[str, Any]:
        quaternion = quaternion_from_rpy(self.rpy or _ORIGIN) if self.orientation is None else self.orientation
        target = RigidTransform(jnp.asarray(quaternion), jnp.asarray(self.position))
        return {
            "frame": known_frame(self.frame, system, place),
            "target": as_dtype(target, system.model.dtype),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class FramePart:
    """Key of a frame.

    Attributes:
        frame: Name of a body or frame.
    """

    makes: ClassVar[tuple[str, ...]] = ("frame",)

    frame: str

    def fields(self, system: System, place: str) -> dict[str, Any]:
        return {"frame": known_frame(self.frame, system, place)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContactPart(FramePart):
    """Key of a body with contacts.

    Attributes:
        frame: Name of the body, or of a frame on it.
    """

    def fields(self, system: System, place: str) -> dict[str, Any]:
        if not contact_names(system):
            raise ConfigError(f"{place} the mechanism has no contacts; add them to its file, or remove this table")
        return super().fields(system, place)


def known_frame(name: str, system: System, place: str) -> str:
    """Return the name if the mechanism has a body or frame of this name.

    Args:
        name: Value of the key.
        system: The mechanism.
        place: Place of the table in messages.

    Raises:
        ConfigError: The mechanism has no body or frame of this name.
    """
    known = (*system.model.topology.body_names, *system.model.topology.frame_names)
    if name not in known:
        raise ConfigError(f"{place} frame: there is no body or frame {name!r}; use one of {', '.join(known)}")
    return name


@dataclasses.dataclass(frozen=True, kw_only=True)
class SphereConfig:
    """A sphere or a capsule that is fixed on a body.

    Attributes:
        body: Name of the body that carries the sphere.
        center: Position of the center of the sphere relative to the origin of the body, on body axes.
        end: Position of the other end of the axis of a capsule, whose axis begins at the center; without this key, it is a sphere.
        radius: Radius of the sphere or the capsule.
    """

    body: str
    center: tuple[float, float, float] = setting_of(Spheres, "centers", _ORIGIN)
    end: tuple[float, float, float] | None = setting_of(Spheres, "ends")
    radius: float = setting_of(Spheres, "radii")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObstacleConfig:
    """A sphere or a capsule that is fixed in the world.

    Attributes:
        center: Position of the center of the obstacle in world coordinates.
        end: Position of the other end of the axis of a capsule, whose axis begins at the center; without this key, it is a sphere.
        radius: Radius of the obstacle.
    """

    center: tuple[float, float, float] = setting_of(Spheres, "obstacle_centers")
    end: tuple[float, float, float] | None = setting_of(Spheres, "obstacle_ends")
    radius: float = setting_of(Spheres, "obstacle_radii")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpheresPart:
    """Keys of the spheres and capsules on bodies and of the obstacles.

    Attributes:
        sphere: Spheres and capsules that are fixed on bodies.
        obstacle: Obstacles: spheres and capsules that are fixed in the world.
    """

    makes: ClassVar[tuple[str, ...]] = (
        *("bodies", "centers", "ends", "radii"),
        *("obstacle_centers", "obstacle_ends", "obstacle_radii"),
    )

    sphere: tuple[SphereConfig, ...]
    obstacle: tuple[ObstacleConfig, ...]

    def __post_init__(self):
        if not self.sphere or not self.obstacle:
            raise ValueError("spheres or obstacles are missing; give at least one of each")

    def fields(self, system: System, place: str) -> dict[str, Any]:
        known = system.model.topology.body_names
        for k, sphere in enumerate(self.sphere, start=1):
            if sphere.body not in known:
                raise ConfigError(
                    f"{place} sphere {k}: body: there is no body {sphere.body!r}; use one of {', '.join(known)}"
                )
        arrays = {
            "centers": [s.center for s in self.sphere],
            "radii": [s.radius for s in self.sphere],
            "obstacle_centers": [s.center for s in self.obstacle],
            "obstacle_radii": [s.radius for s in self.obstacle],
        }
        for name, shapes in (("ends", self.sphere), ("obstacle_ends", self.obstacle)):
            if any(shape.end is not None for shape in shapes):
                arrays[name] = [shape.center if shape.end is None else shape.end for shape in shapes]
        dtype = system.model.dtype
        bodies = tuple(sphere.body for sphere in self.sphere)
        return {"bodies": bodies, **{name: jnp.asarray(values, dtype) for name, values in arrays.items()}}


@dataclasses.dataclass(frozen=True)
class TargetPart:
    """Keys of the target state of the constraint "state".

    Attributes:
        q: Target coordinates; without this key, the coordinates are free.
        v: Target velocities, one value for all components or one per component; without this key, the velocities are
            free.
    """

    makes: ClassVar[tuple[str, ...]] = ("target", "of_configuration", "of_velocities")

    q: tuple[float, ...] | None = setting(None, unit=POSITION)
    v: tuple[float, ...] | None = setting(None, unit=VELOCITY, broadcast=True)

    def __post_init__(self):
        if self.q is None and self.v is None:
            raise ValueError("neither q nor v is given; give at least one of them")

    def fields(self, system: System, place: str) -> dict[str, Any]:
        target = state(self.q, self.v or (0.0,), system, f"{place} ")
        return {"target": target, "of_configuration": self.q is not None, "of_velocities": self.v is not None}


@dataclasses.dataclass(frozen=True)
class JointBoundsPart:
    """Keys of the bounds of coordinates and velocities.

    Attributes:
        q_lower: Lower bounds of the coordinates, one value for all or one per coordinate; by default the limits of the joints.
        q_upper: Upper bounds of the coordinates, one value for all or one per coordinate; by default the limits of the joints.
        v_lower: Lower bounds of the velocities, one value for all or one per component; by default the limits of the joints.
        v_upper: Upper bounds of the velocities, one value for all or one per component; by default the limits of the joints.
    """

    makes: ClassVar[tuple[str, ...]] = ("lower", "upper", "below", "above")

    q_lower: tuple[float, ...] | None = setting(None, unit=POSITION, broadcast=True, infinite=True)
    q_upper: tuple[float, ...] | None = setting(None, unit=POSITION, broadcast=True, infinite=True)
    v_lower: tuple[float, ...] | None = setting(None, unit=VELOCITY, broadcast=True, infinite=True)
    v_upper: tuple[float, ...] | None = setting(None, unit=VELOCITY, broadcast=True, infinite=True)

    def fields(self, system: System, place: str) -> dict[str, Any]:
        limits = system.model.limits

        def bounds(side: str, q_limit: Any, v_limit: Any) -> tuple[Any, tuple[int, ...]]:
            parts = []
            for axis, limit in (("q", q_limit), ("v", v_limit)):
                name = f"{axis}_{side}"
                given = getattr(self, name)
                parts.append(np.asarray(limit if given is None else each(given, f"n{axis}", system, f"{place} {name}")))
            values = np.concatenate(parts)
            rows = np.flatnonzero(np.isfinite(values))
            return jnp.asarray(values[rows], system.model.dtype), tuple(rows.tolist())

        lower, below = bounds("lower", limits.lower, -limits.velocity)
        upper, above = bounds("upper", limits.upper, limits.velocity)
        if not below and not above:
            raise ConfigError(f"{place} there are no bounds, and the joints have no limits; give a bound")
        return {"lower": lower, "upper": upper, "below": below, "above": above}
