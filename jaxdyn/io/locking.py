"""Systems with locked joints. In files, parts of a system name bodies and joints; by these names they follow the reduced model."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Array

from jaxdyn.dynamics.drives import Actuators, Drives, JointDrives
from jaxdyn.dynamics.forces import JointForce
from jaxdyn.dynamics.system import System, checked_system
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.mechanism.parts import part_table, read_parts
from jaxdyn.io.tables import Place
from jaxdyn.mechanism import transformations
from jaxdyn.mechanism.model import Model, as_dtype
from jaxdyn.mechanism.quantity import quantities

Positions = Mapping[str, Array | np.ndarray | Sequence[float] | float]


@checked_system
def lock_joints(system: System, positions: Positions) -> System:
    """Reduced system in which joints are fixed at given positions; `load_system(file, lock=positions)` reads one.

    `mechanism.lock_joints` states the consequences for the model. Forces on bodies, contacts and loops stay where they are. Forces
    and drives in locked joints are gone, since they move nothing.

    Args:
        system: The system.
        positions: Coordinates by the name of the joint, rad or m; a list for a joint with several coordinates.

    Raises:
        UnknownName: There is no joint of this name; the message lists the existing names.
        ConfigError: A part of the system needs a locked joint, such as a `Coupling`, or is of a class that files cannot contain.
        MechanismError: See `mechanism.lock_joints`.

    Example:
        ```python
        import jaxdyn

        arm = jaxdyn.library.system("panda")
        planar = jaxdyn.io.lock_joints(arm, {"joint1": 0.0, "joint3": 0.0, "joint5": 0.0, "joint7": 0.0})
        ```
    """
    before, model = system.model, transformations.lock_joints(system.model, positions)
    place = Place(Path(f"{before.name} with locked joints"))
    stays = ~np.isin(np.array(before.topology.joint_names), list(positions))
    chosen = {
        "coordinate": stays[before.topology.body_of_coordinate],
        "velocity": stays[before.topology.body_of_column],
    }

    def moved(part):
        if isinstance(part, JointForce):
            declared = {name: found.along for name, found in quantities(type(part)).items() if found.along in chosen}
            values = {name: getattr(part, name) for name in declared}
            return dataclasses.replace(
                part, **{name: x[..., chosen[declared[name]]] for name, x in values.items() if x is not None}
            )
        key, table = part_table(before, part, place)
        forces, constraints = read_parts(model, {key: [table]}, place)
        return as_dtype((*forces, *constraints)[0], model.dtype)

    return dataclasses.replace(
        system,
        model=model,
        forces=tuple(map(moved, system.forces)),
        constraints=tuple(map(moved, system.constraints)),
        drives=None if system.drives is None else _moved_drives(system.drives, before, model, positions),
    )


def _moved_drives(drives: Drives, before: Model, model: Model, positions: Positions) -> Drives:
    """Drives of the joints that move; a fixed tendon keeps the length of its locked joints.

    Raises:
        ConfigError: The drives are of a class of the user, or the stiffness along a locked length depends on the control.
    """
    if isinstance(drives, JointDrives):
        names = [before.topology.joint_names[before.topology.body_of_column[column]] for column in drives.columns]
        kept = [row for row, name in enumerate(names) if name not in positions]
        stays = [
            name not in positions for name in np.array(before.topology.joint_names)[before.topology.body_of_column]
        ]
        new = np.cumsum(stays) - 1  # index of each velocity component that stays
        columns = tuple(int(new[drives.columns[row]]) for row in kept)
        return dataclasses.replace(drives, columns=columns, gear=drives.gear[np.array(kept, int)])
    if not isinstance(drives, Actuators):
        raise ConfigError(
            f"drives of class {type(drives).__name__} cannot be moved to other joints; lock the model, and make new ones"
        )
    actuators = []
    for actuator in drives.descriptions(before):
        locked_joints = {name: arms for name, arms in actuator.joints.items() if name in positions}
        joints = {name: arms for name, arms in actuator.joints.items() if name not in positions}
        if actuator.joints and not joints:
            continue
        length = sum(float(np.dot(arms, np.ravel(np.asarray(positions[name])))) for name, arms in locked_joints.items())
        if length and actuator.controlled_stiffness:
            raise ConfigError(
                f"actuator {actuator.name!r}: its stiffness depends on the control, and joint {next(iter(locked_joints))!r} on its "
                "tendon is locked; lock this joint at zero, or leave the actuator out"
            )
        actuators.append(
            dataclasses.replace(actuator, joints=joints, offset=actuator.offset - actuator.stiffness * length)
        )
    bounds = {name: pair for name, pair in drives.effort_ranges(before).items() if name not in positions}
    return as_dtype(Actuators.of(model, actuators, bounds), model.dtype)
