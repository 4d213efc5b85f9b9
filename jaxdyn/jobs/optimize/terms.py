"""The tables of costs, constraints and solvers in configs of `jaxdyn optimize`.

States, poses, spheres and bounds have other keys than the fields of their classes; a dataclass below has these keys and builds the
fields that are listed in its class variable `makes`.
"""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

# Kinds are found among the classes of these modules and of all other imported modules.
from jaxdyn.control import (  # noqa: F401
    auto,
    collocation,
    constraint_terms,
    cost_terms,
    costs,
    frame_costs,
    ilqr,
    multiple_shooting,
    obstacles,
    sampling,
    single_shooting,
)
from jaxdyn.control.obstacles import Spheres
from jaxdyn.control.solution import Solver
from jaxdyn.dynamics.contact.points import contact_names
from jaxdyn.dynamics.system import System
from jaxdyn.errors import UnknownName
from jaxdyn.io.config import setting, setting_of
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.mechanism.entries import PlacementEntry
from jaxdyn.jobs.tables import Table, coordinates, each, state
from jaxdyn.mechanism.model import as_dtype
from jaxdyn.mechanism.quantity import POSITION, VELOCITY
from jaxdyn.spatial.transform import RigidTransform

_ORIGIN = (0.0, 0.0, 0.0)


@dataclasses.dataclass(frozen=True)
class ConfigurationKeys:
    """Keys of the target configuration of the cost "angular_deviation".

    Attributes:
        q: Target coordinates; by default the neutral coordinates.
    """

    makes: ClassVar[tuple[str, ...]] = ("target",)

    q: tuple[float, ...] | None = setting(None, unit=POSITION)

    def fields(self, system: System, place: str) -> dict[str, Any]:
        return {"target": coordinates(self.q, system.model, f"{place} q")}


@dataclasses.dataclass(frozen=True)
class StateKeys(ConfigurationKeys):
    """Keys of the target state of the cost "deviation".

    Attributes:
        q: Target coordinates; by default the neutral coordinates.
        v: Target velocities, one value for all components or one per component.
    """

    v: tuple[float, ...] = setting((0.0,), unit=VELOCITY, broadcast=True)

    def fields(self, system: System, place: str) -> dict[str, Any]:
        return {"target": state(self.q, self.v, system, f"{place} ")}


@dataclasses.dataclass(frozen=True)
class TargetKeys:
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class PoseKeys(PlacementEntry):
    """Keys of a target pose.

    Attributes:
        position: Target position of the origin of the frame in world coordinates.
        orientation: Target orientation as a quaternion [w, x, y, z].
        rpy: Target orientation as roll, pitch and yaw angles, instead of a quaternion.
    """

    makes: ClassVar[tuple[str, ...]] = ("target",)

    position: tuple[float, float, float] = setting(unit="m")

    def fields(self, system: System, place: str) -> dict[str, Any]:
        target = RigidTransform(jnp.asarray(self.quaternion), jnp.asarray(self.position))
        return {"target": as_dtype(target, system.model.dtype)}


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
class SpheresKeys:
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
        for k, sphere in enumerate(self.sphere, start=1):
            _check_name(sphere.body, system.model.topology.body_names, "body", f"{place} sphere {k}: body")
        found: dict[str, Any] = {"bodies": tuple(sphere.body for sphere in self.sphere)}
        for prefix, shapes in (("", self.sphere), ("obstacle_", self.obstacle)):
            arrays = {"centers": [s.center for s in shapes], "radii": [s.radius for s in shapes]}
            if any(s.end is not None for s in shapes):
                arrays["ends"] = [s.center if s.end is None else s.end for s in shapes]
            found |= {f"{prefix}{name}": jnp.asarray(values, system.model.dtype) for name, values in arrays.items()}
        return found


@dataclasses.dataclass(frozen=True)
class JointBoundsKeys:
    """Keys of the bounds of coordinates and velocities.

    Attributes:
        q_lower: Lower bounds of the coordinates, one value for all or one per coordinate; by default the limits of the joints.
        q_upper: Upper bounds of the coordinates, one value for all or one per coordinate; by default the limits of the joints.
        v_lower: Lower bounds of the velocities, one value for all or one per component; by default the limits of the joints.
        v_upper: Upper bounds of the velocities, one value for all or one per component; by default the limits of the joints.
    """

    makes: ClassVar[tuple[str, ...]] = ("origin", "lower", "upper", "nx", "below", "above")

    q_lower: tuple[float, ...] | None = setting(None, unit=POSITION, broadcast=True, infinite=True)
    q_upper: tuple[float, ...] | None = setting(None, unit=POSITION, broadcast=True, infinite=True)
    v_lower: tuple[float, ...] | None = setting(None, unit=VELOCITY, broadcast=True, infinite=True)
    v_upper: tuple[float, ...] | None = setting(None, unit=VELOCITY, broadcast=True, infinite=True)

    def fields(self, system: System, place: str) -> dict[str, Any]:
        limits = system.model.limits

        def bounds(side: str, of_q: Array, of_v: Array) -> np.ndarray:
            q = each(getattr(self, f"q_{side}"), "nq", system, f"{place} q_{side}", of_q)
            v = each(getattr(self, f"v_{side}"), "nv", system, f"{place} v_{side}", of_v)
            return np.concatenate([q, v, np.full(system.nz, np.inf if side == "upper" else -np.inf)])

        lower = bounds("lower", limits.lower, -limits.velocity)
        upper = bounds("upper", limits.upper, limits.velocity)
        if not np.isfinite([lower, upper]).any():
            raise ConfigError(f"{place} there are no bounds, and the joints have no limits; give a bound")
        return {"origin": None, "lower": lower, "upper": upper, "nx": len(lower)}


class SolverTable(Table):
    """The table [solver] of a config."""

    base = Solver

    def check(self) -> None:
        super().check()
        self.build(None, "solver:")


class TermTable(Table):
    """A table that builds a cost or a constraint of a mechanism."""

    parts: ClassVar[dict[type, Any]] = {
        costs.Deviation: StateKeys,
        costs.AngularDeviation: ConfigurationKeys,
        frame_costs.FramePose: PoseKeys,
        obstacles.Spheres: SpheresKeys,
        constraint_terms.TargetState: TargetKeys,
        constraint_terms.StateBounds: JointBoundsKeys,
    }
    # The weights of a pose, whose position is another key.
    names: ClassVar[dict[tuple[type, str], str]] = {
        (frame_costs.FramePose, name): f"{name}_weight" for name in ("position", "rotation")
    }

    def build(self, system: System | None, place: str) -> Any:
        assert system is not None  # terms belong to a mechanism
        if isinstance(self.values.get("frame"), str):
            topology = system.model.topology
            known = (*topology.body_names, *topology.frame_names)
            _check_name(self.values["frame"], known, "body or frame", f"{place} frame")
        term = super().build(system, place)
        if isinstance(term, frame_costs.ContactForce) and not contact_names(system):
            raise ConfigError(f"{place} the mechanism has no contacts; add them to its file, or remove this table")
        return term


class CostTable(TermTable):
    """A table [[running]] or [[final]] of a config, which builds a cost."""

    base = cost_terms.CostTerm


class ConstraintTable(TermTable):
    """A table [[constraint]] or [[final_constraint]] of a config, which builds a constraint."""

    base = cost_terms.ConstraintTerm

    def build(self, system: System | None, place: str) -> Any:
        term = super().build(system, place)
        return term.relation(term, place)


def _check_name(name: str, known: tuple[str, ...], noun: str, place: str) -> None:
    """Refuse a name that the mechanism does not have."""
    if name not in known:
        raise ConfigError(str(UnknownName(noun, name, known, place)))
