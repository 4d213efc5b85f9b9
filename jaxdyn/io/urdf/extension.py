"""Forces in joints, couplings, loops and drives of a URDF file, including those of its <jaxdyn> element.

`jaxdyn.io.urdf` describes the elements, and `urdf.reader` builds the tree of bodies.
"""

from graphlib import CycleError, TopologicalSorter

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxdyn.constraints.kinds import LOOP_KINDS, Coupling, Distance, LoopJoint
from jaxdyn.dynamics.constraint import Constraint
from jaxdyn.dynamics.drives import JointDrives, drives_of_joints
from jaxdyn.dynamics.forces import Force, JointSpring
from jaxdyn.dynamics.forces.friction import HOLDING_SCALE, JointFriction
from jaxdyn.dynamics.system import System
from jaxdyn.errors import UnknownName, suggestion
from jaxdyn.io.placements import quaternion_from_rpy
from jaxdyn.io.urdf.elements import direction, turn_to
from jaxdyn.io.xml import Element, shortened
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.joints import Prismatic, Revolute
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.transform import RigidTransform

_MOST_ELEMENTS = 2000
_MOST_COEFFICIENTS = 20


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


def with_extension(
    model: Model,
    joints: dict[str, Element],
    extension: Element,
    extras: dict[str, Element],
) -> System:
    """Extend a model to a system with the friction, springs, couplings, loops and drives of the file.

    Args:
        model: Tree of bodies.
        joints: The moving <joint> elements of the robot by name.
        extension: The <jaxdyn> element.
        extras: Result of `joint_extras`.
    """
    followers = {name: element.required("mimic") for name, element in joints.items() if element.all("mimic")}
    _check_that_none_follows_itself(followers)
    constraints: list[Constraint] = [_mimic(model, name, mimic) for name, mimic in followers.items()]
    constraints += [_CONSTRAINTS[element.tag](model, element) for element in extension.all(*_CONSTRAINTS)]
    forces = [_friction(model, joints, extras), _springs(model, extras)]
    given = tuple(force for force in forces if force is not None)
    return System(model, given, _drives(model, extension), constraints=tuple(constraints))


def _friction(model: Model, joints: dict[str, Element], extras: dict[str, Element]) -> Force | None:
    viscous, coulomb, scale = np.zeros(model.nv), np.zeros(model.nv), np.full(model.nv, HOLDING_SCALE)
    for name, element in joints.items():
        dynamics = element.optional("dynamics")
        if dynamics is None:
            continue
        for numbers, attribute in ((viscous, "damping"), (coulomb, "friction")):
            problem = " would add energy; give a positive value or 0"
            numbers[_columns(model, name)] = dynamics.positive(attribute, problem, 0.0, or_zero=True)
    for name, element in extras.items():
        if "velocity_scale" in element.attributes:
            scale[_columns(model, name)] = element.positive("velocity_scale", "; give a positive value such as 0.01")
    return JointFriction(viscous, coulomb, scale) if viscous.any() or coulomb.any() else None


def _springs(model: Model, extras: dict[str, Element]) -> Force | None:
    # A quaternion of norm zero would not be a valid rest position.
    stiffness, rest = np.zeros(model.nv), np.array(configuration.neutral(model), float)
    for name, element in extras.items():
        if "stiffness" not in element.attributes and "rest" not in element.attributes:
            continue
        coordinate, column = _coordinate(model, element, name), _columns(model, name)
        stiffness[column] = element.positive("stiffness", "; give a positive value or 0", or_zero=True)
        rest[coordinate] = element.number("rest", 0.0)
    return JointSpring(stiffness, rest) if stiffness.any() else None


def _columns(model: Model, joint: str) -> slice:
    """Range of the velocity components of a joint."""
    body = model.topology.joint_names.index(joint)
    start = int(model.topology.v_starts[body])
    return slice(start, start + model.topology.joint_classes[body].nv)


def _coordinate(model: Model, element: Element, joint: str) -> int:
    """Index of the only coordinate of a joint."""
    names = model.topology.joint_names
    if joint not in names:
        raise element.error(f"there is no moving joint {joint!r}; {suggestion(joint, names)}")
    body = names.index(joint)
    if model.topology.joint_classes[body] not in (Revolute, Prismatic):
        kind = model.topology.joint_classes[body].__name__.lower()
        raise element.error(f"joint {joint!r} is {kind} and has no single coordinate; name a revolute or prismatic one")
    return int(model.topology.q_starts[body])


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


def _mimic(model: Model, name: str, mimic: Element) -> Constraint:
    """q = multiplier q_driver + offset."""
    driven, driver = _coordinate(model, mimic, name), _coordinate(model, mimic, mimic.name("joint"))
    return Coupling(name, driven, driver, [mimic.number("offset", 0.0), mimic.number("multiplier", 1.0)])


def _coupling(model: Model, element: Element) -> Constraint:
    driven, driver = (_coordinate(model, element, element.name(role)) for role in ("joint", "driver"))
    count = len(element.text("coefficients").split())
    if driven == driver and count > 1:
        raise element.error("it couples a joint with itself; name two joints")
    if not 0 < count <= _MOST_COEFFICIENTS:
        raise element.error(f"it has {count} coefficients; give 1 to {_MOST_COEFFICIENTS} values separated by spaces")
    return Coupling(element.name(), driven, driver, list(element.vector("coefficients", count)))


def _loop_joint(model: Model, element: Element) -> Constraint:
    kind = element.text("type")
    if kind not in LOOP_KINDS:
        raise element.error(f"type {shortened(kind)!r} is not a type of loop joint; use one of {', '.join(LOOP_KINDS)}")
    axis = element.optional("axis")
    turn = jnp.asarray(turn_to(np.array([0.0, 0.0, 1.0]) if axis is None else direction(axis)), float)
    (body_a, frame_a), (body_b, frame_b) = _ends(model, element)
    return LoopJoint(element.name(), kind, body_a, _turned(frame_a, turn), body_b, _turned(frame_b, turn))


def _rod(model: Model, element: Element) -> Constraint:
    problem = "; give a positive length, or use a spherical loop joint instead"
    length = element.positive("length", problem)
    (body_a, frame_a), (body_b, frame_b) = _ends(model, element)
    return Distance(element.name(), body_a, frame_a.translation, body_b, frame_b.translation, length)


def _ends(model: Model, element: Element) -> list[tuple[int, RigidTransform]]:
    """Bodies and frames given by <link1> and <link2>."""
    ends = [_frame(model, element.required(role)) for role in ("link1", "link2")]
    if ends[0][0] == ends[1][0]:
        raise element.error("its two links do not move relative to each other; name two others or remove it")
    return ends


def _frame(model: Model, element: Element) -> tuple[int, RigidTransform]:
    """Body that carries a frame given on a link, and the placement of the frame on this body."""
    name, zero = element.name("link"), (0.0, 0.0, 0.0)
    turn = quaternion_from_rpy(element.vector("rpy", 3, zero))
    frame = RigidTransform(jnp.asarray(turn, float), jnp.asarray(element.vector("xyz", 3, zero), float))
    try:
        return model.locate_frame(name, frame)
    except UnknownName:
        known = [*model.topology.body_names, *model.topology.frame_names]
        raise element.error(f"there is no link {name!r}; {suggestion(name, known)}") from None


def _turned(frame: RigidTransform, turn: Array) -> RigidTransform:
    """A frame rotated about its own origin, with the sign of the quaternion that `save_urdf` writes: positive first component."""
    turned = np.asarray(quaternion.multiply(frame.quaternion, turn))
    first = turned[np.argmax(np.abs(turned) > 1e-12)]
    return RigidTransform(jnp.asarray(np.copysign(1.0, first) * turned, float), frame.translation)


def _drives(model: Model, extension: Element) -> JointDrives | None:
    columns, gear = [], []
    every = extension.optional("drives")
    if every is not None:
        joints = every.text("joints")
        if joints not in ("all", "none") or extension.all("drive"):
            raise every.error('give joints="all" or joints="none" without elements <drive>, or elements <drive> alone')
        return None if joints == "all" else JointDrives((), [])
    for element in extension.all("drive"):
        name = element.name("joint")
        _coordinate(model, element, name)
        columns.append(_columns(model, name).start)
        gear.append(element.number("gear", 1.0))
    return JointDrives(tuple(columns), gear) if columns else drives_of_joints(model)


_CONSTRAINTS = {"loop_joint": _loop_joint, "rod": _rod, "coupling": _coupling}
