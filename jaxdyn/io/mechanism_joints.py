"""How mechanism files write joints: their kinds, their prescribed motions, and the units of every component.

    joint = {kind = "cylindrical", axis = [0, 0, 1], velocity_limit = ["60 rpm", "0.2 m/s"]}
    joint = {kind = "revolute", axis = [0, 1, 0], motion = {kind = "sinusoid", amplitude = "20 deg", angular_frequency = 3}}

A quantity of a joint is one number, which stands for every component, or a list with one number per component.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxdyn.io.config import Place, read_value, suggestion
from jaxdyn.io.mechanism_entries import JointEntry
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.joints import (
    Cylindrical,
    Fixed,
    Free,
    Planar,
    Prismatic,
    Revolute,
    Rheonomic,
    Screw,
    Spherical,
    Universal,
)
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.prescribed import ConstantRate, PrescribedMotion, Sinusoid, Spline
from jaxdyn.mechanism.quantity import Quantity

UNBOUNDED = Quantity()
_TURN, _SHIFT, _QUATERNION = ("rad",) * 3, ("m",) * 3, ("1",) * 4


@dataclasses.dataclass(frozen=True)
class _Kind:
    """A kind of joint: the units of its coordinates, and whether each velocity component turns (rad) or shifts (m)."""

    joint: type[Joint]
    coordinates: tuple[str, ...]
    velocities: tuple[str, ...]


_KINDS = {
    "revolute": _Kind(Revolute, ("rad",), ("rad",)),
    "prismatic": _Kind(Prismatic, ("m",), ("m",)),
    "screw": _Kind(Screw, ("rad",), ("rad",)),
    "cylindrical": _Kind(Cylindrical, ("rad", "m"), ("rad", "m")),
    "universal": _Kind(Universal, ("rad", "rad"), ("rad", "rad")),
    "spherical": _Kind(Spherical, _QUATERNION, _TURN),
    "planar": _Kind(Planar, ("m", "m", "rad"), ("rad", "m", "m")),
    "free": _Kind(Free, _SHIFT + _QUATERNION, _TURN + _SHIFT),
    "fixed": _Kind(Fixed, (), ()),
}
_NAMES = {kind.joint: name for name, kind in _KINDS.items()}
_GEOMETRY = {
    field.name: "a unit vector such as [0, 0, 1]" for k in _KINDS.values() for field in dataclasses.fields(k.joint)
}
_GEOMETRY["pitch"] = "an advance per angle such as 0.001, in m/rad"

# The unit of a quantity along a velocity component, by whether that turns or shifts.
_UNITS = {
    "rad": {
        "velocity": "rad/s",
        "effort": "N m",
        "armature": "kg m^2",
        "stiffness": "N m/rad",
        "viscous": "N m s/rad",
        "drag": "N m s^2/rad^2",
        "ratio": "1",
        "lever": "m",
        "load": "N",
        "displacement": "rad",
    },
    "m": {
        "velocity": "m/s",
        "effort": "N",
        "armature": "kg",
        "stiffness": "N/m",
        "viscous": "N s/m",
        "drag": "N s^2/m^2",
        "ratio": "1",
        "lever": "1",
        "load": "N",
        "displacement": "m",
    },
}

# What the numbers of a motion are: per coordinate in its unit, or that per second, or in another unit; or rows of coordinates.
_MOTIONS: dict[str, tuple[type[PrescribedMotion], dict[str, str]]] = {
    "constant_rate": (ConstantRate, {"rate": "rates", "start": "coordinates"}),
    "sinusoid": (
        Sinusoid,
        {"amplitude": "coordinates", "angular_frequency": "rad/s", "phase": "rad", "offset": "coordinates"},
    ),
    "spline": (Spline, {"values": "knots", "interval": "s", "start": "s"}),
}
_RATES = {"rad": "rad/s", "m": "m/s", "1": "1/s"}


def component_units(joint: type[Joint], what: str) -> tuple[str, ...]:
    """Units of a quantity per component of a joint: "position" per coordinate; "velocity", "effort", "armature", "stiffness",
    "viscous", "drag", "ratio" (a plain number), "lever" (effort per force), "load" (a force) or "displacement" per velocity
    component. A joint with prescribed motion has no components.
    """
    if joint is Rheonomic:
        return ()
    kind = _KINDS[_NAMES[joint]]
    return kind.coordinates if what == "position" else tuple(_UNITS[unit][what] for unit in kind.velocities)


def component_numbers(
    value: Any, units: tuple[str, ...], place: Place, bounds: Quantity = UNBOUNDED
) -> float | tuple[float, ...]:
    """One number, or a list of one per component, in SI units.

    Raises:
        ConfigError: the value does not fit all components.
    """
    given = value if isinstance(value, list) else [value] * len(units)
    if len(given) != len(units):
        raise place.error(f"the list has {len(given)} entries; give {len(units)}, one per component of the joint")
    numbers = tuple(
        read_value(float, x, place, dataclasses.replace(bounds, unit=unit))
        for x, unit in zip(given, units, strict=True)
    )
    return numbers if isinstance(value, list) else numbers[0]


def joint_from_entry(entry: JointEntry, place: Place) -> Joint:
    """The joint of an entry.

    Raises:
        ConfigError: unknown kind or motion; a key missing or given in vain.
    """
    if entry.kind not in _KINDS:
        raise place.error(f"unknown joint kind {entry.kind!r}; use one of {', '.join(_KINDS)}")
    kind = _KINDS[entry.kind]
    fields = {field.name: field for field in dataclasses.fields(kind.joint)}
    given = {key: getattr(entry, key) for key in _GEOMETRY if getattr(entry, key) is not None}
    for key in given.keys() - fields.keys():
        raise place.error(f"a {entry.kind} joint has no {key}; remove it")
    for key, field in fields.items():
        if key not in given and field.default is dataclasses.MISSING:
            raise place.error(f"a {entry.kind} joint needs {key}; give {_GEOMETRY[key]}")
    joint = kind.joint(**given)
    if entry.motion is None:
        return joint
    if not kind.coordinates:
        raise place.key("motion").error(f"a {entry.kind} joint does not move; remove it")
    return Rheonomic(joint, _motion(entry.motion, kind, place.key("motion")))


def joint_numbers(entry: JointEntry, joint: Joint, place: Place) -> dict[str, Any]:
    """The limits and the armature of an entry, as far as they are given, under the names that `MechanismBuilder.add_body` has.

    Raises:
        ConfigError: a number does not fit, or the joint has no such number.
    """
    quantities = {"velocity_limit": "velocity", "effort_limit": "effort", "armature": "armature"}
    quantities["position_limits"] = "position"
    numbers: dict[str, Any] = {}
    for key, what in quantities.items():
        value = getattr(entry, key)
        if value is None:
            continue
        units = component_units(type(joint), what)
        if not units:
            which = "joint with prescribed motion" if isinstance(joint, Rheonomic) else f"{entry.kind} joint"
            raise place.key(key).error(f"a {which} has none; remove it")
        if key == "position_limits":
            numbers[key] = _position_limits(value, units, place.key(key))
        else:
            numbers[key] = component_numbers(value, units, place.key(key), Quantity(infinite=key != "armature"))
    return numbers


def _position_limits(value: Any, units: tuple[str, ...], place: Place) -> tuple[tuple[float, float], ...]:
    """(lower, upper) of every coordinate, from one pair for all or a list of pairs."""
    is_list_of_pairs = isinstance(value, list) and any(isinstance(entry, list) for entry in value)
    pairs = value if is_list_of_pairs else [value] * len(units)
    if len(pairs) != len(units):
        raise place.error(f"the list has {len(pairs)} pairs; give {len(units)}, one [lower, upper] per coordinate")
    rules = [Quantity(unit, infinite=True) for unit in units]
    return tuple(read_value(tuple[float, float], x, place, rule) for x, rule in zip(pairs, rules, strict=True))


def _motion(table: dict[str, Any], kind: _Kind, place: Place) -> PrescribedMotion:
    values = dict(table)
    name = read_value(str, values.pop("kind", ""), place.key("kind"))
    if name not in _MOTIONS:
        raise place.key("kind").error(f"unknown kind of motion {name!r}; use one of {', '.join(_MOTIONS)}")
    motion, meanings = _MOTIONS[name]
    for key in values:
        if key not in meanings:
            raise place.key(key).error(f"unknown key; {suggestion(key, meanings)}")
    for field in dataclasses.fields(motion):
        if field.name not in values and field.default is dataclasses.MISSING:
            raise place.key(field.name).error(f"missing; a {name} motion needs it")
    numbers = {key: _motion_numbers(value, meanings[key], kind, place.key(key)) for key, value in values.items()}
    try:
        return motion(**numbers)
    except ValueError as error:  # a spline of too few knots
        raise place.error(str(error)) from None


def _motion_numbers(value: Any, meaning: str, kind: _Kind, place: Place) -> Any:
    coordinates = kind.coordinates
    if meaning == "s":
        return read_value(
            float,
            value,
            place,
            Quantity("s", minimum=0.0, exclusive=True) if place.entry.endswith("interval") else Quantity("s"),
        )
    if meaning == "knots":
        if not isinstance(value, list):
            raise place.error("it is no list; give one entry per knot")
        rows = [row if isinstance(row, list) or len(coordinates) > 1 else [row] for row in value]
        for row in rows:
            if not isinstance(row, list):
                raise place.error(f"{row!r} is no list; give a list of {len(coordinates)} numbers per knot")
        return [component_numbers(row, coordinates, place) for row in rows]
    units = {"coordinates": coordinates, "rates": tuple(_RATES[unit] for unit in coordinates)}
    return component_numbers(value, units.get(meaning, (meaning,) * len(coordinates)), place)


def numbers_per_joint(
    model: Model, table: Mapping[str, Any], what: str, default: np.ndarray, place: Place, bounds: Quantity = UNBOUNDED
) -> np.ndarray:
    """A quantity per velocity component, or per coordinate if it is the position, of a table by the names of joints.

    Args:
        what: see `component_units`.
        default: the numbers of joints that the table does not name.

    Raises:
        ConfigError: an unknown joint, or a number that does not fit.
    """
    topology, values = model.topology, default.copy()
    starts = topology.q_starts if what == "position" else topology.v_starts
    for name, value in table.items():
        body = joint_index(model, name, place)
        units = component_units(topology.joint_classes[body], what)
        if what == "position" and "1" in units and not isinstance(value, list):
            raise place.key(name).error(f"the joint has a quaternion; give a list of {len(units)} coordinates")
        numbers = component_numbers(value, units, place.key(name), bounds)
        values[starts[body] : starts[body] + len(units)] = numbers
    return values


def joint_index(model: Model, name: str, place: Place) -> int:
    """The body that a moving joint carries.

    Raises:
        ConfigError: there is no such joint.
    """
    topology = model.topology
    moving = [name for name, joint in zip(topology.joint_names, topology.joint_classes, strict=True) if joint.nv]
    if name not in moving:
        raise place.error(f"there is no moving joint {name!r}; {suggestion(name, moving)}")
    return topology.joint_names.index(name)


def joint_values(joint: Joint, place: Place) -> dict[str, Any]:
    """Kind, geometry and motion of a joint as `joint_from_entry` reads them.

    Raises:
        ConfigError: a mechanism file has no form for the joint.
    """
    if isinstance(joint, Rheonomic):
        if joint.time != 0.0:
            raise place.error(
                f"its prescribed motion stands at the time {float(joint.time):g} s; save the model at time 0 (Model.at)"
            )
        return joint_values(joint.joint, place) | {"motion": _motion_values(joint.motion, place.key("motion"))}
    if type(joint) not in _NAMES:
        raise place.error(
            f"a joint of class {type(joint).__name__} has no form in a mechanism file; the kinds are {', '.join(_KINDS)}"
        )
    return {"kind": _NAMES[type(joint)]} | {
        field.name: plain(getattr(joint, field.name)) for field in dataclasses.fields(joint)
    }


def _motion_values(motion: PrescribedMotion, place: Place) -> dict[str, Any]:
    for name, (kind, meanings) in _MOTIONS.items():
        if type(motion) is kind:
            return {"kind": name} | {key: _without_rows_of_one(plain(getattr(motion, key))) for key in meanings}
    raise place.error(
        f"a motion of class {type(motion).__name__} has no form in a mechanism file; the kinds are {', '.join(_MOTIONS)}"
    )


def _without_rows_of_one(x: Any) -> Any:
    """One number for a list of one; a list of numbers for a list of such lists."""
    if isinstance(x, list) and isinstance(x[0], list):
        return [_without_rows_of_one(row) for row in x]
    return x[0] if isinstance(x, list) and len(x) == 1 else x


def plain(x: Any) -> Any:
    """Numbers of an array as nested lists."""
    return np.asarray(x, np.float64).tolist()
