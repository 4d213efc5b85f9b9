"""Conversion of the tables of a mechanism file to a system."""

import dataclasses
import types
from collections.abc import Mapping, Sequence
from typing import Any

from jaxdyn.dynamics.drives import Actuator, Actuators, Drives, JointDrives, drives_of_joints
from jaxdyn.dynamics.system import System
from jaxdyn.errors import UnknownName
from jaxdyn.io.mechanism.entries import DrivesEntry, MechanismEntry, RotorEntry
from jaxdyn.io.mechanism.joints import component_index, joint_index, joint_quantities, read_joint
from jaxdyn.io.mechanism.parts import part_classes, read_parts
from jaxdyn.io.reading import MOST_BODIES
from jaxdyn.io.tables import Place, check_keys, read_value
from jaxdyn.io.units import ComponentValue
from jaxdyn.mechanism.builder import MechanismBuilder
from jaxdyn.mechanism.components import component_units, joint_of
from jaxdyn.mechanism.messages import MechanismError
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import quantities
from jaxdyn.mechanism.rotors import Rotors

_RATIO = quantities(Rotors)["ratio"]


def system_from_tables(tables: dict[str, Any], file: Place) -> System:
    """The system that the tables of a mechanism file describe, in JAX's default precision.

    Args:
        tables: Tables of the file by name.
        file: The place of the whole file, for messages.

    Raises:
        ConfigError, MechanismError: See `load_mechanism`.
    """
    parts, known = part_classes(), [field.name for field in dataclasses.fields(MechanismEntry)]
    check_keys(tables, (*known, *parts), file)
    entry = read_value(MechanismEntry, {key: tables[key] for key in tables if key in known}, file)
    if len(entry.body) > MOST_BODIES:
        raise file.error(f"it has {len(entry.body)} bodies, but at most {MOST_BODIES} are read; split the mechanism")
    try:
        model = _model(entry, file)
    except (MechanismError, UnknownName) as error:
        raise MechanismError(f"{file.file}: {error}") from None
    forces, constraints = read_parts(model, tables, file)
    drives = read_drives(model, file, entry.drives, entry.actuator, entry.effort_range)
    return System(model, forces, drives, constraints=constraints)


def read_drives(
    model: Model,
    file: Place,
    drives: DrivesEntry | None = None,
    actuator: Sequence[Actuator] | None = None,
    effort_range: Mapping[str, tuple[float, float]] = types.MappingProxyType({}),
) -> Drives | None:
    """The drives that the tables of a file describe.

    Args:
        model: The mechanism.
        file: The place of the whole file, for messages.
        drives, actuator, effort_range: The tables of these names.

    Raises:
        ConfigError: A joint or body is unknown, or the tables do not fit together.
    """
    if effort_range and not actuator:
        problem = "it bounds the sum of the forces of actuators, but there are none; add [[actuator]] or remove it"
        raise file.key("effort_range").error(problem)
    if actuator is None:
        return drives_of_joints(model) if drives is None else _drives(model, drives, file.key("drives"))
    if drives is not None:
        raise file.key("drives").error("the file has tables [[actuator]] too; remove the table or the others")
    try:
        return Actuators.of(model, actuator, effort_range)
    except (UnknownName, ValueError) as error:
        raise file.key("actuator").error(str(error)) from None


def _model(entry: MechanismEntry, file: Place) -> Model:
    builder = MechanismBuilder(entry.name, entry.gravity)
    for i, body in enumerate(entry.body):
        place = file.key("body").item(i, body.name)
        joint_entry, joint = read_joint(body.joint, place.key("joint"))
        builder.add_body(
            body.name,
            joint=joint,
            parent=body.parent,
            position=body.position,
            orientation=body.quaternion,
            mass=body.mass,
            com=body.com,
            inertia=_inertia(body.inertia, place.key("inertia")),
            joint_name=joint_entry.name,
            **joint_quantities(joint_entry, joint, place.key("joint")),
        )
    for frame in entry.frame:
        builder.add_frame(frame.name, body=frame.body, position=frame.position, orientation=frame.quaternion)
    return build(builder, entry.rotor, file)


def build(builder: MechanismBuilder, rotors: Sequence[RotorEntry], file: Place, *, kinematic: bool = False) -> Model:
    """The model with the rotors of a file.

    Args:
        builder: Builder with all bodies.
        rotors: Tables of the rotors.
        file: The place of the whole file, for messages.
        kinematic: Option of `MechanismBuilder.build`.

    Raises:
        ConfigError: The unit of a ratio does not fit the joint.
        MechanismError: See `MechanismBuilder.build`.
    """
    for rotor in rotors:
        builder.add_rotor(**dataclasses.asdict(rotor))
    model = builder.build(kinematic=kinematic)
    for row, rotor in enumerate(rotors):
        driven = int(model.topology.body_of_column[model.rotors.columns[row]])
        (unit,) = component_units(joint_of(model, driven), _RATIO)
        if isinstance(rotor.ratio, ComponentValue) and rotor.ratio.unit != unit:
            place = file.key("rotor").item(row, rotor.name).key("ratio")
            raise place.error(
                f"the unit {rotor.ratio.unit!r} does not fit joint {rotor.joint!r}; give a value in {unit}"
            )
    return model


def _inertia(value: Any, place: Place) -> tuple:
    """Read the rows of a matrix, or a list whose length the builder checks."""
    if value is None:
        return (0.0, 0.0, 0.0)
    row = tuple[float, float, float]
    is_matrix = isinstance(value, list) and any(isinstance(entry, list) for entry in value)
    return read_value(
        tuple[row, row, row] if is_matrix else tuple[float, ...], value, place, quantities(Model)["inertia"]
    )


def _drives(model: Model, entry: DrivesEntry, place: Place) -> JointDrives | None:
    if entry.all:
        if entry.joints:
            raise place.key("joints").error(
                "every velocity component is driven because of all = true; remove one of both"
            )
        return None
    bodies = [joint_index(model, name, place.key("joints")) for name in entry.joints]
    components = (None,) * len(bodies) if entry.components is None else entry.components
    gear = (1.0,) * len(bodies) if entry.gear is None else entry.gear
    for key, values in (("components", components), ("gear", gear)):
        if len(values) != len(bodies):
            raise place.key(key).error(
                f"the list has {len(values)} entries; give {len(bodies)}, one per entry of joints"
            )
    several = "velocity components: give the index of the driven one, from 0, for every entry of joints"
    columns = []
    for name, body, given in zip(entry.joints, bodies, components, strict=True):
        count = model.topology.joint_classes[body].nv
        index = component_index(name, count, given, place.key("components"), "component", several)
        columns.append(int(model.topology.v_starts[body]) + index)
    return JointDrives(tuple(columns), gear)
