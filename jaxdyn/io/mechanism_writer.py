"""From a system to the tables of a mechanism file, as `mechanism_reader` reads them."""

from typing import Any

import jax
import numpy as np

from jaxdyn.constraints.kinds import Coupling, Distance, LoopJoint
from jaxdyn.dynamics.constraint import Constraint
from jaxdyn.dynamics.forces import AppliedForce, Damper, Force, JointServo, JointSpring, Spring
from jaxdyn.dynamics.joint_limits import JointLimits
from jaxdyn.dynamics.system import System
from jaxdyn.io.config import Place
from jaxdyn.io.mechanism_friction import FRICTION_TERMS
from jaxdyn.io.mechanism_joints import joint_values, plain
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial.transform import RigidTransform


def tables_of_system(system: System, source: str, file: Place) -> dict[str, Any]:
    """The tables of a mechanism file that describe a system.

    Args:
        source: where the numbers come from.
        file: the place of the whole file, for messages.

    Raises:
        ConfigError: a mechanism file has no form for a part of the system.
    """
    model, topology = system.model, system.model.topology
    if model.mass.ndim != 1:
        raise file.error(
            f"the model is a batch of shape {model.mass.shape[:-1]}; save one mechanism per file, or use save_archive"
        )
    tables: dict[str, Any] = {"name": topology.name, "source": source, "gravity": plain(model.gravity)}
    for force in system.forces:
        key, entry = _force_table(model, force, file)
        if key.startswith("joint_"):
            if key in tables:
                raise file.error(f"the system has two forces {type(force).__name__}; add them up to one")
            tables[key] = entry
        else:
            tables.setdefault(key, []).append(entry)
    if system.drives is not None:
        bodies = [int(topology.body_of_column[column]) for column in system.drives.columns]
        components = [int(c - topology.v_starts[body]) for c, body in zip(system.drives.columns, bodies, strict=True)]
        drives = {"joints": [topology.joint_names[body] for body in bodies], "gear": plain(system.drives.gear)}
        is_plain = all(topology.joint_classes[body].nv == 1 for body in bodies)
        tables["drives"] = drives if is_plain else drives | {"components": components}
    for constraint in system.constraints:
        key, entry = _constraint_table(model, constraint, file)
        tables.setdefault(key, []).append(entry)
    tables["body"] = [_body_table(model, body, file) for body in range(topology.nb)]
    tables["frame"] = [
        {"name": name, "body": model.topology.body_name(body)} | _placement(_row(model.frames, row))
        for row, (name, body) in enumerate(zip(topology.frame_names, topology.frame_bodies, strict=True))
    ]
    rotors, driven = model.rotors, topology.body_of_column
    tables["rotor"] = [
        {
            "name": name,
            "carrier": topology.body_name(rotors.carriers[row]),
            "joint": topology.joint_names[driven[rotors.columns[row]]],
            "inertia": plain(rotors.inertia[row]),
            "ratio": plain(rotors.ratio[row]),
            "axis": plain(rotors.axis[row]),
        }
        for row, name in enumerate(rotors.names)
    ]
    return tables


def _placement(placement: RigidTransform) -> dict[str, Any]:
    turn = np.asarray(placement.quaternion, np.float64)
    return {"position": plain(placement.translation), "orientation": plain(turn / np.linalg.norm(turn))}


def _row(placements: RigidTransform, row: int) -> RigidTransform:
    return jax.tree.map(lambda x: x[row], placements)


def _body_table(model: Model, body: int, file: Place) -> dict[str, Any]:
    topology = model.topology
    place = file.key("body").item(body, topology.body_names[body]).key("joint")
    joint = joint_values(model.joint(body), place) | {"name": topology.joint_names[body]}
    return {
        "name": topology.body_names[body],
        "parent": model.topology.body_name(topology.parents[body]),
        "joint": joint | _joint_numbers(model, body),
        **_placement(_row(model.placement, body)),
        "mass": plain(model.mass[body]),
        "com": plain(model.com[body]),
        "inertia": plain(model.inertia[body]),
    }


def _joint_numbers(model: Model, body: int) -> dict[str, Any]:
    """Limits and armature of a joint; what is infinite throughout is left out."""
    limits = model.limits
    coordinates, columns = _components(model, body)
    numbers: dict[str, Any] = {}
    pairs = np.stack([np.asarray(limits.lower)[coordinates], np.asarray(limits.upper)[coordinates]], axis=1)
    if not np.all(pairs == (-np.inf, np.inf)):
        numbers["position_limits"] = plain(pairs[0] if len(pairs) == 1 else pairs)
    for key, values in {"velocity_limit": limits.velocity, "effort_limit": limits.effort}.items():
        if not np.all(np.isinf(values[columns])):
            numbers[key] = _number_or_list(values[columns])
    return (
        numbers if columns.stop == columns.start else numbers | {"armature": _number_or_list(model.armature[columns])}
    )


def _components(model: Model, body: int) -> tuple[slice, slice]:
    """Where the coordinates and the velocities of a body's joint are."""
    topology = model.topology
    joint, q, v = topology.joint_classes[body], int(topology.q_starts[body]), int(topology.v_starts[body])
    return slice(q, q + joint.nq), slice(v, v + joint.nv)


def _number_or_list(x: jax.Array) -> Any:
    values = plain(x)
    return values[0] if len(values) == 1 else values


def _force_table(model: Model, force: Force, file: Place) -> tuple[str, dict[str, Any]]:
    """Key and content of the table of a force."""

    def by_joint(numbers: jax.Array, which: int = 1) -> dict[str, Any]:
        names = enumerate(model.topology.joint_names)
        components = {name: _components(model, body) for body, name in names}
        return {
            name: _number_or_list(numbers[part[which]])
            for name, part in components.items()
            if part[1].stop > part[1].start
        }

    match force:
        case Spring() | Damper():
            ends = _ends(model, force)
            if isinstance(force, Damper):
                return "damper", ends | {"coefficient": plain(force.coefficient)}
            numbers = {"stiffness": plain(force.stiffness), "free_length": plain(force.free_length)}
            return "spring", ends | numbers
        case AppliedForce():
            axes = {"body": model.topology.body_name(force.body), "axes": "body" if force.body_fixed else "ground"}
            vectors = {"point": plain(force.point), "force": plain(force.force), "torque": plain(force.torque)}
            return "applied_force", axes | vectors
        case JointSpring():
            return "joint_spring", {"stiffness": by_joint(force.stiffness), "rest": by_joint(force.rest, 0)}
        case JointServo():
            servo = {"stiffness": by_joint(force.stiffness), "damping": by_joint(force.damping)}
            efforts = {} if force.effort is None else by_joint(force.effort)
            bounded = {name: effort for name, effort in efforts.items() if np.any(np.isfinite(effort))}
            for name, effort in bounded.items():
                if not np.all(np.isfinite(effort)):
                    raise file.error(
                        f"the servo of joint {name!r} bounds some of its components only; bound all or none"
                    )
            return "joint_servo", servo | {"target": by_joint(force.target, 0), "effort": bounded}
        case JointLimits():
            return "joint_limits", {key: by_joint(getattr(force, key)) for key in ("stiffness", "damping", "width")}
    for key, term in FRICTION_TERMS.items():
        if type(force) is term.kind:
            return key, {name: by_joint(getattr(force, name)) for name in (*term.coefficients, *term.scales)}
    raise file.error(
        f"a force of class {type(force).__name__} has no form in a mechanism file; leave it out and add it after loading"
    )


def _ends(model: Model, pair: Spring | Damper | Distance) -> dict[str, Any]:
    ends = {"body_a": model.topology.body_name(pair.body_a), "point_a": plain(pair.point_a)}
    return ends | {"body_b": model.topology.body_name(pair.body_b), "point_b": plain(pair.point_b)}


def _constraint_table(model: Model, constraint: Constraint, file: Place) -> tuple[str, dict[str, Any]]:
    """Key and content of the table of a constraint."""
    match constraint:
        case LoopJoint():
            a = {"body": model.topology.body_name(constraint.body_a)} | _placement(constraint.frame_a)
            b = {"body": model.topology.body_name(constraint.body_b)} | _placement(constraint.frame_b)
            return "loop", {"name": constraint.name, "kind": constraint.kind, "a": a, "b": b}
        case Distance():
            return "rod", {"name": constraint.name} | _ends(model, constraint) | {"length": plain(constraint.length)}
        case Coupling():
            entry = {"name": constraint.name, "coefficients": plain(constraint.coefficients)}
            for key, coordinate in {"driven": constraint.driven, "driver": constraint.driver}.items():
                body = model.topology.body_of_coordinate[coordinate]
                entry |= {key: model.topology.joint_names[body]}
                entry |= {f"{key}_component": coordinate - int(model.topology.q_starts[body])}
            return "coupling", entry
    raise file.error(
        f"a constraint of class {type(constraint).__name__} has no form in a mechanism file; leave it out and add it after loading"
    )
