"""Mechanism files: a mechanism and the forces on it as readable TOML.

    name = "pendulum"
    source = "weighed on a kitchen scale"
    gravity = [0, 0, -9.81]

    [[body]]
    name = "rod"
    joint = {kind = "revolute", axis = [0, 1, 0], position_limits = ["-90 deg", "90 deg"]}
    mass = "350 g"
    com = [0, 0, -0.5]
    inertia = [0.08, 0.08, 0.001]

    [joint_friction]
    viscous = {rod_joint = 0.01}

Numbers are in SI units unless a text names another one. The other tables are [[frame]], [[spring]], [[damper]],
[[applied_force]], [joint_spring] and [drives]; the dataclasses below list their keys. Points may be given on any body or frame, by
its name.
"""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.dynamics.forces import AppliedForce, Damper, Force, JointDrives, JointFriction, JointSpring, Spring
from jaxdyn.dynamics.system import System
from jaxdyn.io.config import ConfigError, Place, read_value, setting, suggestion
from jaxdyn.io.toml import read_toml, toml_text
from jaxdyn.mechanism.builder import STANDARD_GRAVITY, MechanismBuilder
from jaxdyn.mechanism.checks import MechanismError
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.joints import Prismatic, Revolute, joint_of_kind
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.transform import RigidTransform

# The units of what belongs to a joint, by the kind of joint.
_ROTARY = {"position": "rad", "velocity": "rad/s", "effort": "N m", "armature": "kg m^2"}
_ROTARY |= {"stiffness": "N m/rad", "viscous": "N m s/rad"}
_LINEAR = {"position": "m", "velocity": "m/s", "effort": "N", "armature": "kg", "stiffness": "N/m", "viscous": "N s/m"}
_KINDS: dict[type[Joint], tuple[str, dict[str, str]]] = {
    Revolute: ("revolute", _ROTARY),
    Prismatic: ("prismatic", _LINEAR),
}


@dataclasses.dataclass(frozen=True)
class _JointEntry:
    kind: str
    axis: tuple[float, float, float] | None = None
    name: str | None = None
    position_limits: Any = None
    velocity_limit: Any = None
    effort_limit: Any = None
    armature: Any = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _PlacedEntry:
    name: str
    position: tuple[float, float, float] = setting((0.0, 0.0, 0.0), unit="m")
    orientation: tuple[float, float, float, float] | None = None
    rpy: tuple[float, float, float] | None = setting(None, unit="rad")

    def __post_init__(self):
        if self.orientation is not None and self.rpy is not None:
            raise ValueError("orientation and rpy are both given; remove one")

    @property
    def quaternion(self) -> tuple[float, ...]:
        """Rotation of the frame; rpy are angles about the fixed axes x, y, z, in this order: R = R_z R_y R_x."""
        if self.orientation is not None:
            return self.orientation
        halves = [0.5 * angle for angle in self.rpy or (0.0, 0.0, 0.0)]
        (cr, cp, cy), (sr, sp, sy) = map(math.cos, halves), map(math.sin, halves)
        product = (
            cy * cp * cr + sy * sp * sr,
            cy * cp * sr - sy * sp * cr,
            cy * sp * cr + sy * cp * sr,
            sy * cp * cr - cy * sp * sr,
        )
        # Quarter turns then have equal components and true zeros, which keeps axis-aligned rotation matrices sparse.
        return tuple(round(x, 14) for x in product)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _BodyEntry(_PlacedEntry):
    joint: _JointEntry
    parent: str = "ground"
    mass: float = setting(0.0, unit="kg")
    com: tuple[float, float, float] = setting((0.0, 0.0, 0.0), unit="m")
    inertia: Any = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _FrameEntry(_PlacedEntry):
    body: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class _PairEntry:
    body_a: str
    point_a: tuple[float, float, float] = setting(unit="m")
    body_b: str
    point_b: tuple[float, float, float] = setting(unit="m")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _SpringEntry(_PairEntry):
    stiffness: float = setting(unit="N/m", non_negative=True)
    free_length: float = setting(0.0, unit="m", non_negative=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _DamperEntry(_PairEntry):
    coefficient: float = setting(unit="N s/m", non_negative=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _AppliedForceEntry:
    body: str
    axes: Literal["body", "ground"]
    point: tuple[float, float, float] = setting((0.0, 0.0, 0.0), unit="m")
    force: tuple[float, float, float] = setting((0.0, 0.0, 0.0), unit="N")
    torque: tuple[float, float, float] = setting((0.0, 0.0, 0.0), unit="N m")


@dataclasses.dataclass(frozen=True)
class _JointFrictionEntry:
    viscous: dict[str, Any] = dataclasses.field(default_factory=dict)
    coulomb: dict[str, Any] = dataclasses.field(default_factory=dict)
    velocity_scale: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class _JointSpringEntry:
    stiffness: dict[str, Any]
    rest: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class _DrivesEntry:
    joints: tuple[str, ...]
    gear: tuple[float, ...] | None = None


@dataclasses.dataclass(frozen=True)
class _MechanismEntry:
    name: str
    source: str
    body: tuple[_BodyEntry, ...]
    gravity: tuple[float, float, float] = setting(STANDARD_GRAVITY, unit="m/s^2")
    frame: tuple[_FrameEntry, ...] = ()
    spring: tuple[_SpringEntry, ...] = ()
    damper: tuple[_DamperEntry, ...] = ()
    applied_force: tuple[_AppliedForceEntry, ...] = ()
    joint_friction: _JointFrictionEntry | None = None
    joint_spring: _JointSpringEntry | None = None
    drives: _DrivesEntry | None = None

    def __post_init__(self):
        if not self.source.strip():
            raise ValueError("source is empty; write where the numbers come from")


def load_mechanism(path: Path | str) -> System:
    """System described by a mechanism file, in JAX's default precision.

    Forces come in the order springs, dampers, applied forces, joint friction, joint springs.

    Raises:
        ConfigError: the file, or an entry of it, cannot be used; one line with file, entry and remedy.
        MechanismError: the builder refuses a value; one line with file, body and remedy.
    """
    path = Path(path)
    return _system(read_toml(path), Place(path))


def save_mechanism(system: System, path: Path | str, source: str = "written by jaxdyn.io.save_mechanism") -> None:
    """Write a system as a mechanism file, with merged bodies as frames; `load_mechanism` gives it back leaf by leaf.

    Quaternions come back with norm 1 and a scalar part that is not negative, as the builder makes them. The algorithm
    `system.method` is no property of the mechanism and is not written. Nothing is written if an error is raised.

    Args:
        source: where the numbers come from.

    Raises:
        ConfigError: the system has a joint, a force or a limit that the file cannot express, or is a batch.
        MechanismError: the numbers are none of a real mechanism, so that the file could not be loaded.
    """
    path = Path(path)
    values = _file_values(system, source, Place(path))
    _system(values, Place(path))
    try:
        path.write_text(toml_text(values), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); choose another path") from None


def _system(values: dict[str, Any], file: Place) -> System:
    entry = read_value(_MechanismEntry, values, file)
    try:
        model = _model(entry, file)
    except MechanismError as error:
        raise MechanismError(f"{file.file}: {error}") from None
    forces: list[Force] = []
    for i, spring in enumerate(entry.spring):
        ends = _ends(model, spring, file.key("spring").item(i))
        forces.append(Spring(*ends, spring.stiffness, spring.free_length))
    for i, damper in enumerate(entry.damper):
        forces.append(Damper(*_ends(model, damper, file.key("damper").item(i)), damper.coefficient))
    for i, applied in enumerate(entry.applied_force):
        forces.append(_applied_force(model, applied, file.key("applied_force").item(i)))
    if entry.joint_friction is not None:
        forces.append(_joint_friction(model, entry.joint_friction, file.key("joint_friction")))
    if entry.joint_spring is not None:
        place = file.key("joint_spring")
        stiffness = _per_joint(
            model, entry.joint_spring.stiffness, "stiffness", place.key("stiffness"), non_negative=True
        )
        forces.append(JointSpring(stiffness, _per_joint(model, entry.joint_spring.rest, "position", place.key("rest"))))
    drives = None if entry.drives is None else _drives(model, entry.drives, file.key("drives"))
    return System(model, tuple(forces), drives)


def _model(entry: _MechanismEntry, file: Place) -> Model:
    builder = MechanismBuilder(entry.name, entry.gravity)
    for i, body in enumerate(entry.body):
        place = file.key("body").item(i, body.name)
        builder.add_body(
            body.name,
            joint=_joint(body.joint, place.key("joint")),
            parent=body.parent,
            position=body.position,
            orientation=body.quaternion,
            mass=body.mass,
            com=body.com,
            inertia=_inertia(body.inertia, place.key("inertia")),
            joint_name=body.joint.name,
            **_joint_numbers(body.joint, place.key("joint")),
        )
    for frame in entry.frame:
        builder.add_frame(frame.name, body=frame.body, position=frame.position, orientation=frame.quaternion)
    return builder.build()


def _joint(entry: _JointEntry, place: Place) -> Joint:
    try:
        return joint_of_kind(entry.kind, entry.axis)
    except ValueError as error:
        raise place.error(str(error)) from None


def _joint_numbers(entry: _JointEntry, place: Place) -> dict[str, Any]:
    """What `add_body` wants to know of a joint, as far as it is given."""
    units = next((units for kind, units in _KINDS.values() if kind == entry.kind), None)
    keys = {
        "position_limits": "position",
        "velocity_limit": "velocity",
        "effort_limit": "effort",
        "armature": "armature",
    }
    given = {key: getattr(entry, key) for key in keys if getattr(entry, key) is not None}
    numbers = {}
    for key, value in given.items():
        if units is None:
            raise place.key(key).error(f"a {entry.kind} joint has none; remove it")
        annotation = tuple[float, float] if key == "position_limits" else float
        numbers[key] = read_value(annotation, value, place.key(key), {"unit": units[keys[key]]})
    return numbers


def _inertia(value: Any, place: Place) -> tuple:
    """Rows of a matrix, or a list whose length the builder checks."""
    if value is None:
        return (0.0, 0.0, 0.0)
    row = tuple[float, float, float]
    is_matrix = isinstance(value, list) and any(isinstance(entry, list) for entry in value)
    return read_value(tuple[row, row, row] if is_matrix else tuple[float, ...], value, place, {"unit": "kg m^2"})


def _located(model: Model, name: str, point: tuple[float, float, float], place: Place) -> tuple[int, jax.Array]:
    try:
        return model.locate(name, jnp.asarray(point, float))
    except KeyError as error:
        raise place.error(f"{error.args[0]}; use one of them") from None


def _ends(model: Model, pair: _PairEntry, place: Place) -> tuple[int, jax.Array, int, jax.Array]:
    a = _located(model, pair.body_a, pair.point_a, place.key("body_a"))
    return (*a, *_located(model, pair.body_b, pair.point_b, place.key("body_b")))


def _applied_force(model: Model, entry: _AppliedForceEntry, place: Place) -> AppliedForce:
    body, point = _located(model, entry.body, entry.point, place.key("body"))
    force, torque = jnp.asarray(entry.force, float), jnp.asarray(entry.torque, float)
    fixed = entry.axes == "body"
    if fixed and entry.body in model.topology.frame_names:
        turn = model.frames.quaternion[model.topology.frame_names.index(entry.body)]
        force, torque = quaternion.rotate(turn, force), quaternion.rotate(turn, torque)
    return AppliedForce(body, point, force, torque, fixed)


def _joint_friction(model: Model, entry: _JointFrictionEntry, place: Place) -> JointFriction:
    for joint in entry.coulomb:
        if joint not in entry.velocity_scale:
            raise place.key("velocity_scale").error(f"missing for {joint!r}, which has Coulomb friction; add it")
    return JointFriction(
        _per_joint(model, entry.viscous, "viscous", place.key("viscous"), non_negative=True),
        _per_joint(model, entry.coulomb, "effort", place.key("coulomb"), non_negative=True),
        _per_joint(model, entry.velocity_scale, "velocity", place.key("velocity_scale"), default=1.0, positive=True),
    )


def _per_joint(
    model: Model, table: Mapping[str, Any], what: str, place: Place, default: float = 0.0, **rules: bool
) -> np.ndarray:
    """One number per velocity of a table by joint names."""
    values = np.full(model.nv, default)
    for name, value in table.items():
        body = _joint_index(model, name, place)
        unit = _KINDS[model.topology.joint_classes[body]][1][what]
        values[model.topology.v_starts[body]] = read_value(float, value, place.key(name), {"unit": unit, **rules})
    return values


def _joint_index(model: Model, name: str, place: Place) -> int:
    names = model.topology.joint_names
    if name not in names:
        raise place.error(f"there is no moving joint {name!r}; {suggestion(name, names)}")
    return names.index(name)


def _drives(model: Model, entry: _DrivesEntry, place: Place) -> JointDrives:
    columns = [int(model.topology.v_starts[_joint_index(model, name, place.key("joints"))]) for name in entry.joints]
    gear = (1.0,) * len(columns) if entry.gear is None else entry.gear
    if len(gear) != len(columns):
        raise place.key("gear").error(f"the list has {len(gear)} entries; give {len(columns)}, one per entry of joints")
    return JointDrives(tuple(columns), gear)


def _file_values(system: System, source: str, place: Place) -> dict[str, Any]:
    """What `_system` reads."""
    model, topology = system.model, system.model.topology
    if model.mass.ndim != 1:
        raise place.error(f"the model is a batch of shape {model.mass.shape[:-1]}; save one mechanism per file")
    values: dict[str, Any] = {"name": topology.name, "source": source, "gravity": _plain(model.gravity)}
    for force in system.forces:
        key, entry = _force_values(model, force, place)
        if key.startswith("joint_"):
            if key in values:
                raise place.error(f"the system has two forces {type(force).__name__}; add them up to one")
            values[key] = entry
        else:
            values.setdefault(key, []).append(entry)
    if system.drives is not None:
        names = [topology.joint_names[topology.body_of_column[column]] for column in system.drives.columns]
        values["drives"] = {"joints": names, "gear": _plain(system.drives.gear)}
    values["body"] = [_body_values(model, body, place) for body in range(topology.nb)]
    values["frame"] = [
        {"name": name, "body": _body_name(model, body)} | _placement_values(model.frames, row)
        for row, (name, body) in enumerate(zip(topology.frame_names, topology.frame_bodies, strict=True))
    ]
    return values


def _plain(x: Any) -> Any:
    """Numbers of an array as nested lists."""
    return np.asarray(x, np.float64).tolist()


def _body_name(model: Model, body: int) -> str:
    return "ground" if body == GROUND else model.topology.body_names[body]


def _placement_values(placements: RigidTransform, row: int) -> dict[str, Any]:
    turn = np.asarray(placements.quaternion[row], np.float64)
    return {"position": _plain(placements.translation[row]), "orientation": _plain(turn / np.linalg.norm(turn))}


def _body_values(model: Model, body: int, place: Place) -> dict[str, Any]:
    topology, limits = model.topology, model.limits
    kind = topology.joint_classes[body]
    place = place.key("body").item(body, topology.body_names[body]).key("joint")
    if kind not in _KINDS:
        known = " and ".join(name for name, _ in _KINDS.values())
        raise place.error(f"a joint of class {kind.__name__} has no form in a mechanism file; only {known} joints have")
    carrier: Any = model.joint(body)
    coordinate, column = topology.q_starts[body], topology.v_starts[body]
    joint = {"kind": _KINDS[kind][0], "axis": _plain(carrier.axis), "name": topology.joint_names[body]}
    range_ = [_plain(limits.lower[coordinate]), _plain(limits.upper[coordinate])]
    if np.isfinite(range_).all():
        joint["position_limits"] = range_
    elif range_ != [-math.inf, math.inf]:
        raise place.key("position_limits").error(f"{range_} has one finite limit; give both or none")
    speed, effort = _plain(limits.velocity[column]), _plain(limits.effort[column])
    joint |= {"velocity_limit": speed} if math.isfinite(speed) else {}
    joint |= {"effort_limit": effort} if math.isfinite(effort) else {}
    joint["armature"] = _plain(model.armature[column])
    return {
        "name": topology.body_names[body],
        "parent": _body_name(model, topology.parents[body]),
        "joint": joint,
        **_placement_values(model.placement, body),
        "mass": _plain(model.mass[body]),
        "com": _plain(model.com[body]),
        "inertia": _plain(model.inertia[body]),
    }


def _force_values(model: Model, force: Force, place: Place) -> tuple[str, dict[str, Any]]:
    """Key and content of the table of a force."""
    joints = model.topology.joint_names

    def by_joint(numbers: jax.Array) -> dict[str, float]:
        return dict(zip(joints, _plain(numbers), strict=True))

    match force:
        case Spring() | Damper():
            ends = {"body_a": _body_name(model, force.body_a), "point_a": _plain(force.point_a)}
            ends |= {"body_b": _body_name(model, force.body_b), "point_b": _plain(force.point_b)}
            if isinstance(force, Damper):
                return "damper", ends | {"coefficient": _plain(force.coefficient)}
            numbers = {"stiffness": _plain(force.stiffness), "free_length": _plain(force.free_length)}
            return "spring", ends | numbers
        case AppliedForce():
            axes = {"body": _body_name(model, force.body), "axes": "body" if force.body_fixed else "ground"}
            vectors = {"point": _plain(force.point), "force": _plain(force.force), "torque": _plain(force.torque)}
            return "applied_force", axes | vectors
        case JointFriction():
            friction = {"viscous": by_joint(force.viscous), "coulomb": by_joint(force.coulomb)}
            return "joint_friction", friction | {"velocity_scale": by_joint(force.velocity_scale)}
        case JointSpring():
            return "joint_spring", {"stiffness": by_joint(force.stiffness), "rest": by_joint(force.rest)}
    raise place.error(
        f"a force of class {type(force).__name__} has no form in a mechanism file; leave it out and add it after loading"
    )
