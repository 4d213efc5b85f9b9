"""Joints in mechanism files: their kinds, their prescribed motions, and the values of their components.

    joint = {kind = "cylindrical", axis = [0, 0, 1], velocity_limit = ["60 rpm", "0.2 m/s"]}
    joint = {kind = "revolute", axis = [0, 1, 0], motion = {kind = "sinusoid", amplitude = "20 deg", angular_frequency = 3}}

A quantity of a joint is one value, which holds for every component, or a list with one value per component. Units and bounds are
declared by the classes of joints, motions, limits and forces.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from jaxdyn.errors import suggestion
from jaxdyn.io.config import record
from jaxdyn.io.mechanism.entries import JointEntry
from jaxdyn.io.tables import Place, check_keys, keys_of, made, read_keys, read_kind, read_value, table_of
from jaxdyn.mechanism.components import AnyJoint, component_units, joint_of
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.joints import Rheonomic
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.named_classes import named_subclasses
from jaxdyn.mechanism.prescribed import PrescribedMotion
from jaxdyn.mechanism.quantity import Quantity, dimensions, quantities, quantity_of


def component_values(value: Any, joint: AnyJoint, declared: Quantity, place: Place, *, pairs: bool = False) -> Any:
    """Read one value, or a list with one value per component of a joint, in SI units.

    Args:
        value: TOML value.
        joint: Joint or class of joints.
        declared: Declaration of the quantity.
        place: Location of the value, for messages.
        pairs: If true, each value is a pair [lower, upper].

    Raises:
        ConfigError: The value has a wrong type, unit or number of entries, or violates the bounds of the quantity.
    """
    units = component_units(joint, declared)
    is_list = isinstance(value, list) and (not pairs or any(isinstance(entry, list) for entry in value))
    given = value if is_list else [value] * len(units)
    if len(given) != len(units):
        entries, each = (
            ("pairs", "[lower, upper] per coordinate") if pairs else ("entries", "per component of the joint")
        )
        raise place.error(f"the list has {len(given)} {entries}; give {len(units)}, one {each}")
    rules = [dataclasses.replace(declared, unit=unit) for unit in units]
    kind = tuple[float, float] if pairs else float
    values = tuple(read_value(kind, x, place, rule) for x, rule in zip(given, rules, strict=True))
    return values if is_list else values[0]


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
        raise place.error(f"unknown joint kind {entry.kind!r}; {suggestion(entry.kind, kinds)}")
    keys = keys_of(kinds[entry.kind])
    for key in geometry:
        if key not in keys and any(key == field.name for kind in kinds.values() for field in dataclasses.fields(kind)):
            raise place.error(f"a {entry.kind} joint has no {key}; remove it")
    check_keys(geometry, (*keys, *common), place)
    joint = kinds[entry.kind](**read_keys(keys, geometry, place))
    if entry.motion is None:
        return entry, joint
    if joint.nq == 0:
        raise place.key("motion").error(f"a {entry.kind} joint does not move; remove it")
    return entry, Rheonomic(joint, _motion(entry.motion, joint, place.key("motion")))


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
        pairs = key == "position_limits"
        values[key] = component_values(value, joint, declared, place.key(key), pairs=pairs)
    return values


def _motion(table: dict[str, Any], joint: Joint, place: Place) -> PrescribedMotion:
    kinds = named_subclasses(PrescribedMotion)
    kind, given = read_kind(kinds, table, place)
    cls = kinds[kind]
    # The values along components of the joint are read below, because their form and their units depend on the joint.
    keys = {
        name: dataclasses.replace(key, annotation=Any) if key.rules.along else key for name, key in keys_of(cls).items()
    }
    values = read_keys(keys, given, place)
    for field in dataclasses.fields(cls):
        if field.name in values and keys[field.name].rules.along:
            values[field.name] = _motion_values(values[field.name], joint, field, place.key(field.name))
    return made(cls, values, place)  # refuses for example a spline with too few knots


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
    values, owners = default.copy(), _owners(model, declared)
    for name, value in table.items():
        body = joint_index(model, name, place)
        joint = joint_of(model, body)
        units = component_units(joint, declared)
        if declared.along == "coordinate" and "1" in units and not isinstance(value, list):
            raise place.key(name).error(f"the joint has a quaternion; give a list of {len(units)} coordinates")
        values[owners == body] = component_values(value, joint, declared, place.key(name))
    return values


def table_by_joint(model: Model, values: Any, declared: Quantity) -> dict[str, Any]:
    """Convert the values of all velocity components or coordinates to a table by the names of the moving joints."""
    topology, array, owners = model.topology, np.asarray(values), _owners(model, declared)
    joints = enumerate(zip(topology.joint_names, topology.joint_classes, strict=True))
    return {name: _value_or_list(array[owners == body]) for body, (name, joint) in joints if joint.nv}


def _owners(model: Model, declared: Quantity) -> np.ndarray:
    """Index of the body to whose joint each value of a quantity belongs."""
    topology = model.topology
    return topology.body_of_coordinate if declared.along == "coordinate" else topology.body_of_column


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


def component_index(joint: str, count: int, given: int | None, place: Place, noun: str, several: str) -> int:
    """Index of a component of a joint, which may be omitted if the joint has only one.

    Args:
        joint: Name of the joint.
        count: Number of its components.
        given: Index from a file, from 0; None if the file does not give it.
        place: Location of the index, for messages.
        noun: The component in words, such as "coordinate".
        several: Several components in words, with advice for a missing index.

    Raises:
        ConfigError: The index is missing, or there is no such component.
    """
    if given is None and count > 1:
        raise place.error(f"missing; joint {joint!r} has {count} {several}")
    if given is not None and given >= count:
        raise place.error(f"joint {joint!r} has no {noun} {given}; use 0 to {count - 1}")
    return given or 0


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
        motion = table_of_kind(joint.motion, PrescribedMotion, "motion", place.key("motion"), form=_value_or_list)
        return joint_table(joint.joint, place) | {"motion": motion}
    return table_of_kind(joint, Joint, "joint", place)


def table_of_kind(
    part: Any, base: type, noun: str, place: Place, *, remedy: str = "", form: Callable[[Any], Any] = record
) -> dict[str, Any]:
    """Table with the key `kind` and the fields of an object.

    Args:
        part: Object to describe.
        base: Class whose subclasses are the kinds.
        noun: The base class in words.
        place: Location of the table, for messages.
        remedy: Advice for an object of a class without a kind; by default, the kinds.
        form: Function that converts an array to a TOML value.

    Raises:
        ConfigError: The class of the object is not one of the kinds.
    """
    kinds = {cls: kind for kind, cls in named_subclasses(base).items()}
    if type(part) not in kinds:
        advice = remedy or f"the kinds are {', '.join(kinds.values())}"
        raise place.error(f"a {noun} of class {type(part).__name__} cannot be written to a mechanism file; {advice}")
    values = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    is_array = jax.Array | np.ndarray | np.generic
    return {"kind": kinds[type(part)]} | {k: form(x) if isinstance(x, is_array) else x for k, x in values.items()}


def joint_limits_table(model: Model, body: int) -> dict[str, Any]:
    """Table with the limits and the armature of a joint, as `joint_quantities` reads it, without infinite limits."""
    topology, limits = model.topology, model.limits
    coordinates, columns = topology.body_of_coordinate == body, topology.body_of_column == body
    table: dict[str, Any] = {}
    pairs = np.stack([limits.lower, limits.upper], axis=1)[coordinates]
    if not np.all(pairs == (-np.inf, np.inf)):
        table["position_limits"] = record(pairs[0] if len(pairs) == 1 else pairs)
    drive = {"velocity_limit": limits.velocity, "effort_limit": limits.effort, "armature": model.armature}
    for key, values in drive.items():
        own = np.asarray(values)[columns]
        if not np.all(np.isinf(own)):
            table[key] = _value_or_list(own)
    return table


def _value_or_list(x: Any) -> Any:
    """Entries of an array as nested lists; one entry along the last axis stands for the list of this entry."""
    values = np.asarray(x)
    return record(values[..., 0] if values.shape[-1:] == (1,) else values)
