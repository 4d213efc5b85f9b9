"""Forces in joints, couplings, loops and drives of a URDF file, including those of its <jaxdyn> element.

`jaxdyn.io.urdf` describes the elements, and `urdf.reader` builds the tree of bodies.
"""

import contextlib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxdyn.dynamics.drives import Actuator, Actuators, Drives, drives_of_joints
from jaxdyn.dynamics.system import System
from jaxdyn.errors import suggestion
from jaxdyn.io.mechanism.entries import JointEntry, MechanismEntry, RotorEntry
from jaxdyn.io.mechanism.joints import joint_quantities
from jaxdyn.io.mechanism.parts import part_classes, read_parts
from jaxdyn.io.mechanism.reader import read_drives
from jaxdyn.io.tables import Place, keys_of, read_keys, read_value
from jaxdyn.io.toml import parse_toml
from jaxdyn.io.urdf.elements import direction, origin, turn_to
from jaxdyn.io.xml import Element
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import quantities
from jaxdyn.spatial import quaternion

# Tables of the drives.
DRIVES = ("drives", "actuator", "effort_range")
_MOST_ELEMENTS = 2000


_Tables = dict[str, Any]
_Table = tuple[_Tables, Place]  # one table by its name, and the place of its element


def joint_extras(extension: Element, joints: list[str]) -> dict[str, Element]:
    """The <joint> elements of <jaxdyn> by joint name."""
    extras: dict[str, Element] = {}
    if len(extension.children) > _MOST_ELEMENTS:
        raise extension.error(f"it has more than {_MOST_ELEMENTS} elements; split the mechanism")
    known = set(joints)
    for element in extension.all("joint"):
        name = element.name()
        if name not in known:
            raise element.error(f"there is no moving joint {name!r}; {suggestion(name, joints)}")
        if name in extras:
            raise element.error(f"this joint is already given on line {extras[name].line}; combine the two elements")
        extras[name] = element
    return extras


def tables_of(extension: Element, extras: dict[str, Element]) -> list[_Table]:
    """The tables of mechanism files that <jaxdyn> contains: its <table> elements, and its short forms of tables.

    Args:
        extension: The <jaxdyn> element.
        extras: Result of `joint_extras`.
    """
    springs = {name: element for name, element in extras.items() if {"stiffness", "rest"} & element.attributes.keys()}
    problem = "; give a positive value or 0"
    stiffness = {name: element.positive("stiffness", problem, or_zero=True) for name, element in springs.items()}
    rest = {name: element.number("rest", 0.0) for name, element in springs.items()}
    found, known = [], (*DRIVES, "rotor", *part_classes())
    if any(stiffness.values()):
        found.append(({"joint_spring": {"stiffness": stiffness, "rest": rest}}, _place(next(iter(springs.values())))))
    drives = extension.all("drive")
    if drives:
        table = {"joints": [x.name("joint") for x in drives], "gear": [x.number("gear", 1.0) for x in drives]}
        found.append(({"drives": table}, _place(drives[0])))
    for element in extension.all("table", *_SHORT_FORMS):
        if element.tag == "table":
            name = element.name()
            if name not in known:
                raise element.error(f"there is no such table; {suggestion(name, known)}")
            table = {name: toml_of(element)}
        else:
            table = _SHORT_FORMS[element.tag](element)
        if any(name in table and name in other for other, _ in found for name in (*DRIVES, "rotor")):
            raise element.error("there is another table of this kind; combine the two")
        found.append((table, _place(element)))
    return found


def rotors_of(tables: list[_Table], extension: Element) -> tuple[tuple[RotorEntry, ...], Place]:
    """The tables of the rotors, with their place."""
    found = [(table["rotor"], place) for table, place in tables if "rotor" in table]
    value, place = found[0] if found else ([], _place(extension))
    return read_value(tuple[RotorEntry, ...], value, place.key("rotor")), place


def toml_of(element: Element) -> Any:
    """The value in the attribute `toml` of an element."""
    tables = parse_toml(f"value = {element.text('toml')}", _place(element).file)
    if tables.keys() != {"value"}:
        raise element.error('attribute "toml" is not one value of TOML; write a table, {...}, or a list, [...]')
    return tables["value"]


def joint_numbers(element: Element, kind: str, joint: Joint) -> dict[str, Any]:
    """Limits and armature of a joint in the attribute `toml` of a <joint> of <jaxdyn>, as arguments of
    `MechanismBuilder.add_body`.
    """
    keys = {name: key for name, key in keys_of(JointEntry).items() if name in quantities(JointEntry)}
    place = _place(element)
    return joint_quantities(JointEntry(kind, **read_keys(keys, toml_of(element), place)), joint, place)


def _place(element: Element) -> Place:
    return Place(Path(f"{element.file}, line {element.line}"))


def with_extension(
    model: Model,
    joints: dict[str, Element],
    extras: dict[str, Element],
    tables: list[_Table],
    robot: Element,
) -> System:
    """Extend a model to a system with the friction, springs, couplings, loops and drives of the file.

    Args:
        model: Tree of bodies.
        joints: The moving <joint> elements of the robot by name.
        extras: Result of `joint_extras`.
        tables: Result of `tables_of`.
        robot: The outermost element of the file.
    """
    followers = {name: element.required("mimic") for name, element in joints.items() if element.all("mimic")}
    _check_that_none_follows_itself(followers)
    friction = _friction(joints, extras)
    own: list[_Table] = [({"joint_friction": friction}, _place(robot))] if friction else []
    for name, mimic in followers.items():
        coefficients = [mimic.number("offset", 0.0), mimic.number("multiplier", 1.0)]
        ends = {"name": name, "driven": name, "driver": mimic.name("joint")}
        own.append(({"coupling": [ends | {"coefficients": coefficients}]}, _place(mimic)))
    parts = [read_parts(model, table, place) for table, place in (*own, *tables)]
    forces = tuple(force for of_table, _ in parts for force in of_table)
    constraints = tuple(constraint for _, of_table in parts for constraint in of_table)
    return System(model, forces, _drives(model, tables, robot), constraints=constraints)


def _friction(joints: dict[str, Element], extras: dict[str, Element]) -> _Tables:
    """The table of the friction that <dynamics> and <jaxdyn> state; empty if there is none."""
    table: _Tables = {"viscous": {}, "coulomb": {}, "velocity_scale": {}}
    for name, element in joints.items():
        dynamics = element.optional("dynamics") or Element("dynamics", {}, element.line, element.file)
        for key, attribute in (("viscous", "damping"), ("coulomb", "friction")):
            problem = " would add energy; give a positive value or 0"
            table[key][name] = dynamics.positive(attribute, problem, 0.0, or_zero=True)
    for name, element in extras.items():
        if "velocity_scale" in element.attributes:
            problem = "; give a positive value such as 0.01"
            table["velocity_scale"][name] = element.positive("velocity_scale", problem)
    return table if any(any(values.values()) for values in table.values()) else {}


def _check_that_none_follows_itself(followers: dict[str, Element]) -> None:
    """Check the <mimic> elements of all joints that have one, by the names of the joints."""
    try:
        TopologicalSorter({name: [mimic.name("joint")] for name, mimic in followers.items()}).prepare()
    except CycleError as error:
        circle = error.args[1][1:]
        name, others = next(name for name in followers if name in circle), len(circle) - 1
        way = f" through {others} other joint{'s' if others > 1 else ''}" if others else ""
        problem = f"joint {name!r} mimics itself{way}; remove the <mimic> of one of the joints"
        raise followers[name].error(problem) from None


def _coupling(element: Element) -> _Tables:
    coefficients = element.vector("coefficients", len(element.text("coefficients").split()))
    joints = {"driven": element.name("joint"), "driver": element.name("driver")}
    return {"coupling": [joints | {"name": element.name(), "coefficients": list(coefficients)}]}


def _loop_joint(element: Element) -> _Tables:
    axis = element.optional("axis")
    turn = turn_to(np.array([0.0, 0.0, 1.0]) if axis is None else direction(axis))
    ends = {key: _marker(element.required(role), turn) for key, role in (("a", "link1"), ("b", "link2"))}
    return {"loop": [{"name": element.name(), "kind": element.text("type"), **ends}]}


def _rod(element: Element) -> _Tables:
    table: dict[str, Any] = {"name": element.name(), "length": element.number("length")}
    for key, role in (("a", "link1"), ("b", "link2")):
        marker = _marker(element.required(role), np.array([1.0, 0.0, 0.0, 0.0]))
        table |= {f"body_{key}": marker["body"], f"point_{key}": marker["position"]}
    return {"rod": [table]}


def _marker(element: Element, turn: np.ndarray) -> dict[str, Any]:
    """The marker of a loop joint, rotated about its own origin, with a positive first component of its quaternion."""
    position, given = origin(element)
    turned = np.asarray(quaternion.multiply(jnp.asarray(given, float), jnp.asarray(turn, float)))
    first = turned[np.argmax(np.abs(turned) > 1e-12)]
    orientation = np.copysign(1.0, first) * turned
    return {"body": element.name("link"), "position": list(position), "orientation": orientation.tolist()}


def _no_or_all_drives(element: Element) -> _Tables:
    joints = element.text("joints")
    if joints not in ("all", "none"):
        raise element.error('give joints="all" or joints="none"')
    return {"drives": {"all": True} if joints == "all" else {"joints": []}}


def _drives(model: Model, tables: list[_Table], robot: Element) -> Drives | None:
    """Drives of the tables, or else of the elements <transmission>."""
    stated = [(table, place) for table, place in tables if not table.keys().isdisjoint(DRIVES)]
    if stated:
        keys, given = keys_of(MechanismEntry), {name: value for table, _ in stated for name, value in table.items()}
        place = stated[0][1]
        return read_drives(model, place, **read_keys({name: keys[name] for name in DRIVES}, given, place))
    motors: dict[str, Actuator] = {}
    for element in robot.all("transmission"):
        for motor in _motors(model, robot, element):
            if motors.setdefault(motor.name, motor) is not motor:
                robot.ignore(f"<transmission> of {motor.name!r}, which is not the first", element.line)
    return Actuators.of(model, list(motors.values())) if motors else drives_of_joints(model)


def _motors(model: Model, robot: Element, transmission: Element) -> list[Actuator]:
    """Motors of a <transmission> of ROS, with a gear if it is simple; other types and interfaces are named in the warning."""
    joints, actuators = transmission.all("joint"), transmission.all("actuator")
    commands = {joint.name(): [x.content for x in joint.all("hardwareInterface") if x.content] for joint in joints}
    kinds = dict(zip(model.topology.joint_names, model.topology.joint_classes, strict=True))
    driven = [name for name, given in commands.items() if not given or any("State" not in x for x in given)]
    names = [name for name in driven if name in kinds and kinds[name].nv == 1]
    types = [transmission.attributes.get("type", ""), *(x.content for x in transmission.all("type"))]
    ratios = [x.content for place in (*actuators, *joints, transmission) for x in place.all("mechanicalReduction")] or [
        "1"
    ]
    is_simple = len(driven) == len(actuators) == 1 and any(x.endswith("SimpleTransmission") for x in types)
    gear = _ratio(ratios[0]) if is_simple else 1.0
    unused = [
        f"<transmission> of joint {name!r}, which has no single coordinate" for name in driven if name not in names
    ]
    if driven and not is_simple:
        unused.append(f"<transmission> of type {types[-1]}, whose joints have motors without gears")
    if gear is None:
        unused.append(f"<mechanicalReduction> {ratios[0]!r}, which is not a ratio")
    for interface in (x for given in commands.values() for x in given if "Effort" not in x and "State" not in x):
        unused.append(f"{interface}, whose gains are not in the file, so that the control is a torque or force")
    for what in unused:
        robot.ignore(what, transmission.line)
    return [Actuator(actuators[0].name() if is_simple else name, {name: (gear or 1.0,)}) for name in names]


def _ratio(text: str) -> float | None:
    """Value of a text that is a finite number and not zero."""
    with contextlib.suppress(ValueError):
        return float(text) if 0.0 < abs(float(text)) < np.inf else None


_SHORT_FORMS = {"loop_joint": _loop_joint, "rod": _rod, "coupling": _coupling, "drives": _no_or_all_drives}
