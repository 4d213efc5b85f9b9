"""Joints in mechanism files: their kinds, their prescribed motions, and the values of their components.

    joint = {kind = "cylindrical", axis = [0, 0, 1], velocity_limit = ["60 rpm", "0.2 m/s"]}
    joint = {kind = "revolute", axis = [0, 1, 0], motion = {kind = "sinusoid", amplitude = "20 deg", angular_frequency = 3}}

A quantity of a joint is one value, which holds for every component, or a list with one value per component. Units and bounds are
declared by the classes of joints, motions, limits and forces.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxdyn.io.mechanism_entries import JointEntry
from jaxdyn.io.tables import Place, keys_of, read_keys, read_kind, read_value, suggestion, table_of
from jaxdyn.mechanism.components import AnyJoint, component_units, joint_of
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.joints import Rheonomic
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.named_classes import named_subclasses
from jaxdyn.mechanism.prescribed import PrescribedMotion
from jaxdyn.mechanism.quantity import Quantity, dimensions, quantities, quantity_of


def component_values(value: Any, joint: AnyJoint, declared: Quantity, place: Place) -> float | tuple[float, ...]:
    """Read one value, or a list with one value per component of a joint, in SI units.

    Raises:
        ConfigError: The value has a wrong type, unit or number of entries, or violates the bounds of the quantity.
    """
    units = component_units(joint, declared)
    given = value if isinstance(value, list) else [value] * len(units)
    if len(given) != len(units):
        raise place.error(f"the list has {len(given)} entries; give {len(units)}, one per component of the joint")
    rules = [dataclasses.replace(declared, unit=unit) for unit in units]
    values = tuple(read_value(float, x, place, rule) for x, rule in zip(given, rules, strict=True))
    return values if isinstance(value, list) else values[0]


def read_joint(value: Any, place: Place) -> tuple[JointEntry, Joint]:
    """Read the table of a joint; returns a `JointEntry` with the keys that all kinds have in common, and the joint itself.

    Raises:
        ConfigError: The kind or the motion is unknown, a key is missing, or a given key does not belong to the kind of the joint.
    """
    table = table_of(value, place)
    common = [field.name for field in dataclasses.fields(JointEntry)]
    entry = read_value(JointEntry, {key: table[key] for key in table if key in common}, place)
    geometry, kinds = {key: table[key] for key in table if key not in common}, named_subclasses(Joint)
    if entry.kind not in kinds:
        raise place.error(f"unknown joint kind {entry.kind!r}; use one of {', '.join(kinds)}")
    keys = keys_of(kinds[entry.kind])
    for key in geometry:
        if key not in keys:
            if any(key == field.name for kind in kinds.values() for field in dataclasses.fields(kind)):
                raise place.error(f"a {entry.kind} joint has no {key}; remove it")
            raise place.key(key).error(f"unknown key; {suggestion(key, (*keys, *common))}")
    for name, key in keys.items():
        if name not in geometry and key.default is dataclasses.MISSING:
            is_vector = key.annotation == tuple[float, float, float]
            wanted = "a unit vector such as [0, 0, 1]" if is_vector else f"a value in {key.rules.unit}"
            raise place.error(f"a {entry.kind} joint needs {name}; give {wanted}")
    return entry, _with_motion(entry, kinds[entry.kind](**read_keys(keys, geometry, place)), place)


def _with_motion(entry: JointEntry, joint: Joint, place: Place) -> Joint:
    if entry.motion is None:
        return joint
    if joint.nq == 0:
        raise place.key("motion").error(f"a {entry.kind} joint does not move; remove it")
    return Rheonomic(joint, _motion(entry.motion, joint, place.key("motion")))


def joint_quantities(entry: JointEntry, joint: Joint, place: Place) -> dict[str, Any]:
    """Read the limits and the armature of an entry; the keys are arguments of `MechanismBuilder.add_body`.

    Raises:
        ConfigError: A value is not valid, or the joint does not have this quantity.
    """
    values: dict[str, Any] = {}
    for key, declared in quantities(JointEntry).items():
        value = getattr(entry, key)
        if value is None:
            continue
        if not component_units(joint, declared):
            which = "joint with prescribed motion" if isinstance(joint, Rheonomic) else f"{entry.kind} joint"
            raise place.key(key).error(f"a {which} does not have this quantity; remove it")
        read = _position_limits if key == "position_limits" else component_values
        values[key] = read(value, joint, declared, place.key(key))
    return values


def _position_limits(value: Any, joint: Joint, declared: Quantity, place: Place) -> tuple[tuple[float, float], ...]:
    """Read (lower, upper) of every coordinate from one pair for all coordinates or from a list of pairs."""
    units = component_units(joint, declared)
    is_list_of_pairs = isinstance(value, list) and any(isinstance(entry, list) for entry in value)
    pairs = value if is_list_of_pairs else [value] * len(units)
    if len(pairs) != len(units):
        raise place.error(f"the list has {len(pairs)} pairs; give {len(units)}, one [lower, upper] per coordinate")
    rules = [dataclasses.replace(declared, unit=unit) for unit in units]
    return tuple(read_value(tuple[float, float], x, place, rule) for x, rule in zip(pairs, rules, strict=True))


def _motion(table: dict[str, Any], joint: Joint, place: Place) -> PrescribedMotion:
    kinds = named_subclasses(PrescribedMotion)
    cls = kinds[read_kind(kinds, table, place)]
    # The values along components of the joint are read below, because their form and their units depend on the joint.
    keys = {
        name: dataclasses.replace(key, annotation=Any) if key.rules.along else key for name, key in keys_of(cls).items()
    }
    values = read_keys(keys, {name: value for name, value in table.items() if name != "kind"}, place)
    for field in dataclasses.fields(cls):
        if field.name in values and keys[field.name].rules.along:
            values[field.name] = _motion_values(values[field.name], joint, field, place.key(field.name))
    try:
        return cls(**values)
    except ValueError as error:  # for example a spline with too few knots
        raise place.error(str(error)) from None


def _motion_values(value: Any, joint: Joint, field: dataclasses.Field, place: Place) -> Any:
    declared = quantity_of(field)
    if dimensions(field) != ("knots", "n"):
        return component_values(value, joint, declared, place)
    if not isinstance(value, list):
        raise place.error("it is not a list; give one entry per knot")
    rows = [row if isinstance(row, list) or joint.nq > 1 else [row] for row in value]
    for row in rows:
        if not isinstance(row, list):
            raise place.error(f"{row!r} is not a list; give a list of {joint.nq} values per knot")
    return [component_values(row, joint, declared, place) for row in rows]


def values_by_joint(
    model: Model, table: Mapping[str, Any], declared: Quantity, default: np.ndarray, place: Place
) -> np.ndarray:
    """Values of a quantity for every velocity component or coordinate, from a table by joint names.

    Args:
        model: The mechanism.
        table: Values by the names of joints.
        declared: Declaration of the quantity, which states whether it belongs to velocity components or to coordinates.
        default: Values of joints that the table does not contain.
        place: Location of the table, for messages.

    Raises:
        ConfigError: A joint is unknown, or a value is not valid for its joint.
    """
    topology, values = model.topology, default.copy()
    starts = topology.q_starts if declared.along == "coordinate" else topology.v_starts
    for name, value in table.items():
        body = joint_index(model, name, place)
        joint = joint_of(model, body)
        units = component_units(joint, declared)
        if declared.along == "coordinate" and "1" in units and not isinstance(value, list):
            raise place.key(name).error(f"the joint has a quaternion; give a list of {len(units)} coordinates")
        values[starts[body] : starts[body] + len(units)] = component_values(value, joint, declared, place.key(name))
    return values


def table_by_joint(model: Model, values: Any, declared: Quantity) -> dict[str, Any]:
    """Convert the values of all velocity components or coordinates to a table by the names of the moving joints."""
    topology, along = model.topology, declared.along
    table = {}
    for body, (name, joint) in enumerate(zip(topology.joint_names, topology.joint_classes, strict=True)):
        start, count = (
            (topology.q_starts[body], joint.nq) if along == "coordinate" else (topology.v_starts[body], joint.nv)
        )
        if joint.nv:
            table[name] = _value_or_list(values[int(start) : int(start) + count])
    return table


def joint_index(model: Model, name: str, place: Place) -> int:
    """Index of the body that the moving joint with this name carries.

    Raises:
        ConfigError: There is no such joint.
    """
    topology = model.topology
    moving = [name for name, joint in zip(topology.joint_names, topology.joint_classes, strict=True) if joint.nv]
    if name not in moving:
        raise place.error(f"there is no moving joint {name!r}; {suggestion(name, moving)}")
    return topology.joint_names.index(name)


def joint_table(joint: Joint, place: Place) -> dict[str, Any]:
    """Table with the kind, the geometry and the motion of a joint, as `read_joint` reads it.

    Raises:
        ConfigError: The joint cannot be written to a mechanism file.
    """
    if isinstance(joint, Rheonomic):
        if joint.time != 0.0:
            raise place.error(
                f"its prescribed motion is evaluated at the time {float(joint.time):g} s; save the model at time 0 (Model.at)"
            )
        motion = _table_of_kind(joint.motion, PrescribedMotion, "motion", place.key("motion"))
        return joint_table(joint.joint, place) | {
            "motion": {key: _without_rows_of_one(value) for key, value in motion.items()}
        }
    return _table_of_kind(joint, Joint, "joint", place)


def _table_of_kind(part: Any, base: type, what: str, place: Place) -> dict[str, Any]:
    kinds = named_subclasses(base)
    name = next((name for name, kind in kinds.items() if type(part) is kind), None)
    if name is None:
        raise place.error(
            f"a {what} of class {type(part).__name__} cannot be written to a mechanism file; the kinds are {', '.join(kinds)}"
        )
    return {"kind": name} | {field.name: plain(getattr(part, field.name)) for field in dataclasses.fields(part)}


def joint_limits_table(model: Model, body: int) -> dict[str, Any]:
    """Table with the limits and the armature of a joint, as `joint_quantities` reads it, without infinite limits."""
    topology, limits = model.topology, model.limits
    joint, q, v = topology.joint_classes[body], int(topology.q_starts[body]), int(topology.v_starts[body])
    coordinates, columns = slice(q, q + joint.nq), slice(v, v + joint.nv)
    table: dict[str, Any] = {}
    pairs = np.stack([np.asarray(limits.lower)[coordinates], np.asarray(limits.upper)[coordinates]], axis=1)
    if not np.all(pairs == (-np.inf, np.inf)):
        table["position_limits"] = plain(pairs[0] if len(pairs) == 1 else pairs)
    for key, values in {"velocity_limit": limits.velocity, "effort_limit": limits.effort}.items():
        if not np.all(np.isinf(values[columns])):
            table[key] = _value_or_list(values[columns])
    return table | {"armature": _value_or_list(model.armature[columns])} if joint.nv else table


def _value_or_list(x: Any) -> Any:
    values = plain(x)
    return values[0] if len(values) == 1 else values


def _without_rows_of_one(x: Any) -> Any:
    """Replace a list of one entry by the entry, also within a list of such lists."""
    if isinstance(x, list) and x and isinstance(x[0], list):
        return [_without_rows_of_one(row) for row in x]
    return x[0] if isinstance(x, list) and len(x) == 1 else x


def plain(x: Any) -> Any:
    """Entries of an array as nested lists."""
    return np.asarray(x, np.float64).tolist()
