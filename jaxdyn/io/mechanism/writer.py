"""Conversion of a system to the tables of a mechanism file, as `mechanism.reader` reads them."""

from typing import Any

import jax
import numpy as np

from jaxdyn.dynamics.drives import Actuator, Actuators, JointDrives, drives_of_joints
from jaxdyn.dynamics.forces import JointForce
from jaxdyn.dynamics.system import System
from jaxdyn.io.config import record
from jaxdyn.io.mechanism.joints import joint_limits_table, joint_table
from jaxdyn.io.mechanism.parts import changed_fields, part_table
from jaxdyn.io.placements import placement_table
from jaxdyn.io.tables import Place
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.rotors import Rotors
from jaxdyn.spatial.transform import RigidTransform


def tables_of_system(system: System, source: str, file: Place) -> dict[str, Any]:
    """The tables of a mechanism file that describe a system.

    Args:
        system: System to describe.
        source: Origin of the values.
        file: The place of the whole file, for messages.

    Raises:
        ConfigError: A part of the system cannot be written to a mechanism file.
    """
    model, topology = system.model, system.model.topology
    if model.mass.ndim != 1:
        raise file.error(
            f"the model is a batch of shape {model.mass.shape[:-1]}; save one mechanism per file, or use save_archive"
        )
    tables: dict[str, Any] = {"name": topology.name, "source": source, "gravity": record(model.gravity)}
    for part in (*system.forces, *system.constraints):
        key, entry = part_table(model, part, file)
        if isinstance(part, JointForce):
            if key in tables:
                raise file.error(f"the system has two forces of class {type(part).__name__}; combine them into one")
            tables[key] = entry
        else:
            tables.setdefault(key, []).append(entry)
    tables |= drive_tables(system, file)
    placements, frames = jax.tree.map(np.asarray, (model.placement, model.frames))
    tables["body"] = [_body_table(model, body, placements.row(body), file) for body in range(topology.nb)]
    tables["frame"] = [
        {"name": name, "body": topology.body_name(body)} | placement_table(frames.row(row))
        for row, (name, body) in enumerate(zip(topology.frame_names, topology.frame_bodies, strict=True))
    ]
    tables["rotor"] = rotor_tables(model)
    return tables


def drive_tables(system: System, file: Place) -> dict[str, Any]:
    """The tables that describe the drives of a system; none if it has the drives of a file without them.

    Raises:
        ConfigError: The drives are of a class of the user.
    """
    drives, topology = system.drives, system.model.topology
    if drives is None:
        return {} if drives_of_joints(system.model) is None else {"drives": {"all": True}}
    if type(drives) is Actuators and not drives.count:
        return {"drives": {"joints": []}}
    if type(drives) is Actuators:
        ranges = {name: list(pair) for name, pair in drives.effort_ranges(system.model).items()}
        return {"actuator": list(map(_actuator_table, drives.descriptions(system.model))), "effort_range": ranges}
    if type(drives) is not JointDrives:
        raise file.error(
            f"drives of class {type(drives).__name__} cannot be written to a mechanism file; "
            "set drives=None, and add them after loading"
        )
    bodies = [int(topology.body_of_column[column]) for column in drives.columns]
    components = [int(c - topology.v_starts[body]) for c, body in zip(drives.columns, bodies, strict=True)]
    table = {"joints": [topology.joint_names[body] for body in bodies], "gear": record(drives.gear)}
    is_plain = all(topology.joint_classes[body].nv == 1 for body in bodies)
    return {"drives": table if is_plain else table | {"components": components}}


def rotor_tables(model: Model) -> list[dict[str, Any]]:
    """The tables that describe the rotors of a model."""
    topology, rotors = model.topology, model.rotors
    return [
        {
            "name": name,
            "carrier": topology.body_name(rotors.carriers[row]),
            "joint": topology.joint_names[topology.body_of_column[rotors.columns[row]]],
            **_values(rotors, row, "inertia", "ratio", "axis"),
        }
        for row, name in enumerate(rotors.names)
    ]


def _actuator_table(actuator: Actuator) -> dict[str, Any]:
    """The fields of an actuator that differ from their defaults; each joint with one moment arm has a value instead of a list."""
    table = changed_fields(actuator)
    if actuator.joints:
        table["joints"] = {joint: x[0] if len(x) == 1 else list(x) for joint, x in actuator.joints.items()}
    return table


def _values(part: Model | Rotors, row: int, *names: str) -> dict[str, Any]:
    return {name: record(np.asarray(getattr(part, name))[row]) for name in names}


def _body_table(model: Model, body: int, placement: RigidTransform, file: Place) -> dict[str, Any]:
    topology = model.topology
    place = file.key("body").item(body, topology.body_names[body]).key("joint")
    joint = joint_table(model.joint(body), place) | {"name": topology.joint_names[body]}
    return {
        "name": topology.body_names[body],
        "parent": topology.body_name(topology.parents[body]),
        "joint": joint | joint_limits_table(model, body),
        **placement_table(placement),
        **_values(model, body, "mass", "com", "inertia"),
    }
