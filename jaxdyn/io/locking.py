"""Systems with locked joints. In files, parts of a system name bodies and joints; by these names they follow the reduced model."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxdyn.constraints.kinds import Coupling
from jaxdyn.dynamics import kinematics
from jaxdyn.dynamics.constraint import Constraint
from jaxdyn.dynamics.drives import Actuators, Drives, JointDrives
from jaxdyn.dynamics.forces import AppliedForce, Force, GravityCompensation, JointForce
from jaxdyn.dynamics.forces.tendons import Tendon
from jaxdyn.dynamics.paths import has_rates
from jaxdyn.dynamics.system import System, checked_system
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.mechanism.parts import part_table, read_parts
from jaxdyn.io.tables import Place
from jaxdyn.mechanism import configuration, transformations
from jaxdyn.mechanism.model import Model, as_dtype
from jaxdyn.mechanism.quantity import quantities
from jaxdyn.mechanism.topology import GROUND

_TOLERANCE = 1e-5  # m or rad, by which positions in files are rounded
Positions = Mapping[str, Array | np.ndarray | Sequence[float] | float]


@checked_system
def lock_joints(system: System, positions: Positions) -> System:
    """Reduced system in which joints are fixed at given positions; `load_system(file, lock=positions)` reads one.

    `mechanism.lock_joints` states the consequences for the model. Forces on bodies, contacts and loops stay where they are, and
    tendons keep the length of their locked joints. Forces and drives in locked joints or on bodies that no longer move are gone,
    and so are constraints within them, which the positions must satisfy. Gravity compensation of a body that has become a part of
    another one, or has gained parts, becomes an `AppliedForce`.

    Args:
        system: The system.
        positions: Coordinates by the name of the joint, rad or m; a list for a joint with several coordinates.

    Raises:
        UnknownName: There is no joint of this name; the message lists the existing names.
        ConfigError: A part of the system needs a locked joint, such as a `Coupling` with another one, the positions violate a
            constraint, or a part is of a class that files cannot contain.
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
    owners = {"coordinate": before.topology.body_of_coordinate, "velocity": before.topology.body_of_column}
    chosen = {along: stays[bodies] for along, bodies in owners.items()}
    carriers = {name: model.locate(name, np.zeros(3))[0] for name in (*before.topology.body_names, "ground")}

    def moves(record: dict[str, Any]) -> bool:
        """Whether the bodies that a table or a part of it names still move relative to each other or to the ground."""
        ends = [record[key] for key in ("body", "body_a", "body_b") if key in record]
        ends += [record[key]["body"] for key in ("a", "b") if key in record]
        return not ends or len({carriers[name] for name in (ends if len(ends) > 1 else [*ends, "ground"])}) > 1

    def moved(part: Force | Constraint) -> Force | Constraint | None:
        if isinstance(part, JointForce):
            declared = {name: found.along for name, found in quantities(type(part)).items() if found.along in chosen}
            values = {name: getattr(part, name) for name in declared}
            return dataclasses.replace(
                part, **{name: x[..., chosen[declared[name]]] for name, x in values.items() if x is not None}
            )
        if isinstance(part, GravityCompensation):
            return _moved_compensation(part, before, model)
        key, table = part_table(before, part, place)
        gone = not moves(table)
        for several in ("points", "pairs"):
            if several in table:
                table[several] = [one for one in table[several] if moves(one)]
                gone = not table[several]
        if isinstance(part, Tendon):
            table["joints"], length = _split(table["joints"], before, positions)
            table["rest"] = [x - length for x in table["rest"]]
            gone = not (table["joints"] or table["path"])
        if isinstance(part, Coupling):
            gone = table["driven"] in positions and table["driver"] in positions
        if gone and isinstance(part, Constraint):
            _check_that_it_holds(part, before, positions, place)
        if gone:
            return None
        forces, constraints = read_parts(model, {key: [table]}, place)
        return as_dtype((*forces, *constraints)[0], model.dtype)

    drives = None if system.drives is None else _moved_drives(system.drives, before, model, positions)
    forces, constraints = (tuple(filter(None, map(moved, parts))) for parts in (system.forces, system.constraints))
    return dataclasses.replace(system, model=model, forces=forces, constraints=constraints, drives=drives)


def _split(arms: Mapping[str, Any], before: Model, positions: Positions) -> tuple[dict[str, Any], float]:
    """The moment arms of the joints that move, by their names, and the length of the locked ones."""
    kinds = dict(zip(before.topology.joint_names, before.topology.joint_classes, strict=True))
    counted = [name for name in arms if name in positions and has_rates(kinds[name])]  # others add no length
    locked = [np.dot(arms[name], np.ravel(np.asarray(positions[name]))) for name in counted]
    return {name: x for name, x in arms.items() if name not in positions}, float(sum(locked))


def _moved_compensation(part: GravityCompensation, before: Model, model: Model) -> Force | None:
    """The same force at the center of mass of the body, which may have become a part of another one."""
    body, point = model.locate(before.topology.body_names[part.body], before.com[part.body])
    if body == GROUND:
        return None
    weight = before.mass[part.body] * before.gravity
    if np.array_equal(model.mass[body] * model.gravity, weight):
        return dataclasses.replace(part, body=body)
    return AppliedForce(body, point, -part.share * weight, jnp.zeros_like(weight), False)


def _check_that_it_holds(constraint: Constraint, model: Model, positions: Positions, place: Place) -> None:
    """Refuse positions that violate a constraint which does not restrict the other joints."""
    q = np.array(configuration.neutral(model))
    for name, position in positions.items():
        q[model.topology.body_of_coordinate == model.topology.joint_names.index(name)] = position
    q = jnp.asarray(q)
    error = jnp.max(jnp.abs(constraint.residual(model, q, kinematics.placements(model, q))))
    if error > _TOLERANCE:
        what = f"constraint {constraint.name!r} is violated by {error:.2g}"
        raise place.error(f"{what} at the positions of the locked joints; correct them")


def _moved_drives(drives: Drives, before: Model, model: Model, positions: Positions) -> Drives:
    """Drives of the joints that move; a fixed tendon keeps the length of its locked joints.

    Raises:
        ConfigError: The drives are of a class of the user, or the stiffness along a locked length depends on the control.
    """
    if isinstance(drives, JointDrives):
        moves = ~np.isin(np.array(before.topology.joint_names)[before.topology.body_of_column], list(positions))
        rows, new = (
            np.flatnonzero(moves[list(drives.columns)]),
            np.cumsum(moves) - 1,
        )  # new index of each velocity component
        columns = tuple(int(new[drives.columns[row]]) for row in rows)
        return dataclasses.replace(drives, columns=columns, gear=drives.gear[rows])
    if not isinstance(drives, Actuators):
        raise ConfigError(
            f"drives of class {type(drives).__name__} cannot be moved to other joints; lock the model, and make new ones"
        )
    actuators = []
    for actuator in drives.descriptions(before):
        joints, length = _split(actuator.joints, before, positions)
        on_ground = bool(actuator.body) and model.locate(actuator.body, np.zeros(3))[0] == GROUND
        if on_ground or (actuator.joints and not joints):
            continue
        locked = [name for name in actuator.joints if name in positions]
        if length and actuator.controlled_stiffness:
            raise ConfigError(
                f"actuator {actuator.name!r}: its stiffness depends on the control, and joint {locked[0]!r} on its "
                "tendon is locked; lock this joint at zero, or leave the actuator out"
            )
        actuators.append(
            dataclasses.replace(actuator, joints=joints, offset=actuator.offset - actuator.stiffness * length)
        )
    bounds = {name: pair for name, pair in drives.effort_ranges(before).items() if name not in positions}
    return as_dtype(Actuators.of(model, actuators, bounds), model.dtype)
