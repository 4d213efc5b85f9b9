"""Reader of URDF robot descriptions: all elements of the format that describe kinematics and dynamics.

* Optional elements may be absent; axes are normalized; `rpy` are angles about the fixed axes x, y, z; an inertia has its own frame.
* Links on `fixed` joints are merged with their parent; their mass is added to that of the parent, and their frames remain as named
  frames. A `continuous` joint has one coordinate. In addition to the six standard types of joints, `spherical` is supported.
* `mimic` becomes a `Coupling`, `dynamics` becomes `JointFriction`, `limit` becomes `Model.limits`.
* `collision` becomes contacts with the ground on request, see `urdf.colliders`.
* `transmission` becomes a motor of `Actuators`, see `urdf.extension`.
* Meshes, materials and simulator settings (`<gazebo>`) do not affect the dynamics and are not read. One
  `IgnoredContent` warning names all other elements that are not read, with their lines. `load_visuals` reads meshes and materials.
* All other forces, drives, rotors, loops and gravity are children of the extension element `<jaxdyn>`, see `jaxdyn.io.urdf`.
"""

import contextlib
import dataclasses
import warnings
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Literal

from jaxdyn.dynamics.system import System
from jaxdyn.errors import UnknownName, check_name, one_line, suggestion
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.mechanism.reader import build
from jaxdyn.io.reading import MOST_BODIES, calculable
from jaxdyn.io.shapes.colliders import ContactUse, check_contact
from jaxdyn.io.urdf.colliders import urdf_collider_count, with_urdf_contact
from jaxdyn.io.urdf.elements import JOINT_TYPES, inertia, joint_of, limits, origin, repair_inertias
from jaxdyn.io.urdf.extension import joint_extras, joint_numbers, rotors_of, tables_of, with_extension
from jaxdyn.io.xacro import read_robot
from jaxdyn.io.xml import (
    CONVERT_SDF,
    KINEMATIC,
    RENAME_XACRO,
    Element,
    RepeatedElement,
    shortened,
    unused,
    warn_of_unread,
)
from jaxdyn.mechanism.builder import STANDARD_GRAVITY, MechanismBuilder
from jaxdyn.mechanism.joints import Fixed, Free
from jaxdyn.mechanism.messages import MasslessBody, MechanismError, UnphysicalInertia

_OTHER_FORMATS = {
    "mujoco": "a file with <mujoco> is MJCF; read it with jaxdyn.io.load_mjcf",
    "sdf": CONVERT_SDF,
}
_ONLY_ONCE = ("origin", "parent", "child", "axis", "limit", "dynamics", "mimic", "inertial", "mass", "inertia")
_BASES, _UNPHYSICAL = ("fixed", "free"), ("refuse", "repair")
_OF_ONE_COORDINATE = tuple(kind for kind, joint in JOINT_TYPES.items() if joint.nv == 1)
_WORLDS = ("world", "ground", "universe", "map")
_REPAIR = 'read the file with unphysical="repair" (--repair on the command line, repair = true in a config)'
_FURTHER_REMEDIES: dict[type[Exception], str] = {UnphysicalInertia: _REPAIR, MasslessBody: KINEMATIC}
_FREE_BASE = 'read the file with base="free" (--base free on the command line, base = "free" in a config)'


class AssumedBase(UserWarning):
    """Warning that a root link was fixed because `base` was not given, although the file seems to describe a moving base."""


@dataclasses.dataclass(frozen=True)
class _Joint:
    """A joint element with the data from which the tree is built."""

    element: Element
    name: str
    kind: str
    parent: str
    child: str


def load_urdf(
    path: Path | str,
    *,
    base: Literal["fixed", "free"] | None = None,
    unphysical: Literal["refuse", "repair"] = "refuse",
    contact: ContactUse = "none",
    folder: Path | str | None = None,
    kinematic: bool = False,
) -> System:
    """Read the system that a URDF file describes, in JAX's default precision.

    Args:
        path: URDF file, or xacro file whose arguments have their defaults; numbers of lines are then those of its expansion. An
            expression of xacro cannot run programs, but it can take any time and memory.
        base: Whether the root link is fixed to the ground ("fixed", the default) or moves freely with its inertia ("free"). A free
            base has a free joint called "<root>_joint", which is the first of all joints. If the root link carries floating joints
            only, as a link called "world" usually does, the base is already free, and "free" has no effect. If `base` is not given
            and the file looks like a robot that stands on the ground or flies, an `AssumedBase` warning states that the base was
            fixed.
        unphysical: "repair" removes the unphysical part of an inertia (negative principal second moments, or all of it where the
            mass is zero), keeps the first one of repeated elements of a link or joint, as other readers do, and reports these
            changes in the warning, with both tensors; "refuse" raises an error for
            such a file. An unphysical part below 0.1 % of the inertia of the rigid body that fixed joints make of several links,
            as of a small sensor on a trunk, is always removed and reported.
        contact: "ground" turns the colliders of moving links into contacts with the plane through the origin that is perpendicular
            to gravity, see `shapes`. Friction is that of `<contact>` in a link, and 0.8 if the file does not state it. Colliders
            that are left out are named in one `IgnoredContent` warning. With "none", `System.summary` states how many colliders are
            not simulated.
        folder: Folder that must contain the meshes of colliders; the default is that of `load_visuals`.
        kinematic: If true, masses and inertias are not read, so that a file without them can be used for kinematics and pictures.

    Raises:
        UnknownName: An option has another value.
        ConfigError: The file or one of its elements cannot be used; the message is one line with the file, the line, the element
            and the remedy.
        MechanismError: A value is not physically valid; the message is one line with the file, the line, the body and the remedy.
    """
    for option, value, choices in (("base", base or "fixed", _BASES), ("unphysical", unphysical, _UNPHYSICAL)):
        check_name(f"option {option}", value, choices, where=str(path))
    check_contact(contact, kinematic, path)
    robot = read_robot(path)
    system = system_from_robot(robot, base, unphysical == "repair", kinematic)
    if contact == "ground":
        system = with_urdf_contact(robot, system, None if folder is None else Path(folder))
    else:
        system = system.changed(unused_colliders=urdf_collider_count(robot, system.model))
    return system


def system_from_robot(
    robot: Element,
    base: str | None = None,
    repair: bool = False,
    kinematic: bool = False,
) -> System:
    """The system that the outermost element of a URDF file describes; see `load_urdf`. `repair` corresponds to
    `unphysical="repair"`.
    """
    if repair:
        _keep_first(robot)
    try:
        with calculable(robot.file):
            system = _system(robot, base, repair, kinematic)
    except RepeatedElement as error:
        if error.inside not in ("link", "inertial", "joint"):
            raise
        raise ConfigError(f"{error}, or {_REPAIR}") from None
    warn_of_unread(robot)
    return system


def _keep_first(robot: Element) -> None:
    """Remove repeated elements of a link, its inertial or a joint; the first one of each is kept."""
    links = robot.all("link")
    for part in [*links, *(inertial for link in links for inertial in link.all("inertial")), *robot.all("joint")]:
        first = {}
        for child in part.children:
            if child.tag in _ONLY_ONCE and first.setdefault(child.tag, child) is not child:
                robot.ignore(f"second <{child.tag}>", child.line)
        part.children = [child for child in part.children if first.get(child.tag, child) is child]


def _system(robot: Element, base: str | None, repair: bool, kinematic: bool) -> System:
    if robot.tag != "robot":
        hint = _OTHER_FORMATS.get(robot.tag, "check the path")
        raise robot.error(f"the outermost element of a URDF file is <robot>; {hint}")
    for element in robot.below():
        if element.tag.startswith("xacro:"):
            raise element.error(f"this is an instruction of xacro and not URDF; {RENAME_XACRO}")
    robot.skip("name", "version", "material", "transmission", "gazebo")
    links = _links(robot)
    joints = _joints(robot, links)
    extension = robot.optional("jaxdyn") or Element("jaxdyn", {}, robot.line, robot.file)
    moving = [joint.name for joint in joints.values() if joint.kind != "fixed"]
    extras = joint_extras(extension, moving)
    tables = tables_of(extension, extras)
    order, root = _tree(robot, links, joints)
    if base != "free" and not moving:
        raise robot.error(f"no joint moves; add one that is not fixed, or {_FREE_BASE}")

    body_of = {root: root}  # the link that represents the rigid body of each link
    for joint in order:  # parents before children
        body_of[joint.child] = body_of[joint.parent] if joint.kind == "fixed" else joint.child
    rooted = {link for link, body in body_of.items() if body == root}
    carried = [joint for joint in order if joint.kind != "fixed" and joint.parent in rooted]
    if base == "free" and carried and all(joint.kind == "floating" for joint in carried):
        base = "fixed"  # the floating joints make the base free already
    if base is None:
        base = "fixed"
        if _looks_free(root, rooted, links, order):
            warnings.warn(
                one_line(
                    f"{robot.file}: the root link {root!r} is fixed to the ground, although it has mass and several limbs, as in "
                    f'robots that walk or fly; if it moves, {_FREE_BASE}, else base="fixed" confirms that it stands'
                ),
                AssumedBase,
                stacklevel=4,
            )
    # A link that is fixed to the ground needs no inertia, and many files contain an arbitrary one.
    standing = rooted if base == "fixed" else set()
    for name in links if kinematic else standing:
        links[name].skip("inertial")
    inertias = {name: inertia(link) for name, link in links.items() if name not in standing and not kinematic}
    repair_inertias(inertias, links, body_of, repair)

    name = robot.name() if robot.attributes.get("name") else Path(robot.file).stem
    gravity = extension.optional("gravity")
    builder = MechanismBuilder(name, STANDARD_GRAVITY if gravity is None else gravity.vector("xyz", 3))
    if root == "ground":
        # The writer uses this name for the ground itself.
        if base == "free":
            raise links[root].error('a root link called "ground" is the fixed world; rename it for a free base')
    else:
        rigid = Fixed() if base == "fixed" else Free()
        with _errors_at(links[root]):
            builder.add_body(root, joint=rigid, joint_name=unused(f"{root}_joint", joints), **inertias.get(root, {}))
    for joint in joints.values():  # in the order of the file; the builder sorts parents before children
        with _errors_at(links[joint.child]):
            _add_body(builder, joint, inertias.get(joint.child, {}), extras.get(joint.name))
    with _errors_at(robot):
        model = build(builder, *rotors_of(tables, extension), kinematic=kinematic)
        # In the order of the model, which is the order that `save_urdf` uses.
        elements = {name: joints[name].element for name in model.topology.joint_names if name in joints}
        return with_extension(model, elements, extras, tables, robot)


@contextlib.contextmanager
def _errors_at(element: Element) -> Iterator[None]:
    """Add the file and the line of an element to errors that do not name them."""
    try:
        yield
    except (MechanismError, UnknownName) as error:
        if str(error).startswith(f"{element.file}, line "):
            raise
        remedy = _FURTHER_REMEDIES.get(type(error))
        hint = "" if remedy is None else f", or {remedy}"
        raise MechanismError(f"{element.file}, line {element.line}: {error}{hint}") from None


def _looks_free(root: str, rooted: set[str], links: dict[str, Element], order: list[_Joint]) -> bool:
    """Whether a file looks like a robot with a moving base.

    The root link, or a link that is fixed to it, has mass, it is not called "world" or the like, and it carries two or more limbs
    of two or more moving joints, or four or more continuous joints, as of propellers or wheels.
    """
    if root.lower() in _WORLDS or not any(links[name].all("inertial") for name in rooted):
        return False
    limb_of, sizes, rotors = {}, {}, 0
    for joint in order:  # parents before children
        limb = joint.child if joint.parent in rooted else limb_of.get(joint.parent)
        if joint.child in rooted or limb is None:
            continue
        limb_of[joint.child] = limb
        sizes[limb] = sizes.get(limb, 0) + (joint.kind != "fixed")
        rotors += joint.parent in rooted and joint.kind == "continuous"
    return sum(size >= 2 for size in sizes.values()) >= 2 or rotors >= 4


def _named(robot: Element, tag: str) -> dict[str, Element]:
    """The links or the joints of a robot by their names."""
    found: dict[str, Element] = {}
    for element in robot.all(tag):
        name = element.name()
        if name in found:
            raise element.error(f"there is another {tag} with this name on line {found[name].line}; rename one")
        found[name] = element
    return found


def _links(robot: Element) -> dict[str, Element]:
    links = _named(robot, "link")
    if not links:
        raise robot.error("it has no <link>; add one")
    if len(links) > MOST_BODIES:
        raise robot.error(f"it has {len(links)} links, but at most {MOST_BODIES} are read; split the mechanism")
    for element in links.values():
        element.skip("type", "visual", "collision", "contact")
    return links


def _joints(robot: Element, links: dict[str, Element]) -> dict[str, _Joint]:
    joints: dict[str, _Joint] = {}
    for name, element in _named(robot, "joint").items():
        kind = element.text("type")
        if kind not in JOINT_TYPES:
            raise element.error(f"type {shortened(kind)!r} is not a joint of URDF; use one of {', '.join(JOINT_TYPES)}")
        ends = []
        for role in ("parent", "child"):
            end = element.required(role)
            link = end.name("link")
            if link not in links:
                raise end.error(f"there is no link {link!r}; {suggestion(link, list(links))}")
            ends.append(link)
        joints[name] = _Joint(element, name, kind, *ends)
    return joints


def _tree(robot: Element, links: dict[str, Element], joints: dict[str, _Joint]) -> tuple[list[_Joint], str]:
    """Joints with parents before children, and the name of the root link."""
    by_child: dict[str, _Joint] = {}
    for joint in joints.values():
        if joint.child in by_child:
            raise joint.element.error(
                f"link {joint.child!r} is already the child of joint {by_child[joint.child].name!r}; a link has one parent, "
                "so close the loop with a <loop_joint> in <jaxdyn> instead (see jaxdyn.io.urdf)"
            )
        by_child[joint.child] = joint
    roots = [name for name in links if name not in by_child]
    if not roots:
        raise robot.error(
            "every link is the child of a joint, so the joints form a cycle; remove a joint, or make it a <loop_joint> in <jaxdyn>"
        )
    if len(roots) > 1:
        raise links[roots[1]].error(
            f"links {', '.join(map(repr, roots[:6]))} are not children of any joint; only one link may be the root, so "
            "connect the others"
        )
    parents = {joint.child: [joint.parent] for joint in joints.values()}
    try:
        order = [by_child[link] for link in TopologicalSorter(parents).static_order() if link in by_child]
    except CycleError as error:
        lost = next(joint for joint in joints.values() if joint.child in error.args[1])
        raise lost.element.error(
            f"link {lost.child!r} is its own ancestor through a cycle of joints; connect it to {roots[0]!r}"
        ) from None
    return order, roots[0]


def _add_body(builder: MechanismBuilder, joint: _Joint, body: dict[str, Any], extra: Element | None) -> None:
    element = joint.element
    element.skip("calibration", "safety_controller", *(("limit", "dynamics") if joint.kind == "fixed" else ()))
    position, orientation = origin(element.optional("origin"))
    numbers: dict[str, Any] = {}
    if joint.kind in _OF_ONE_COORDINATE:
        numbers = limits(element.optional("limit"), joint.kind)
    if extra is not None and "toml" in extra.attributes:
        if joint.kind in _OF_ONE_COORDINATE:
            raise extra.error(
                f'the joint is {joint.kind}; attribute "toml" is for joints with several coordinates, so write armature="..." here '
                "and <limit> in <robot>"
            )
        numbers |= joint_numbers(extra, joint.kind, joint_of(element, joint.kind))
    if extra is not None and "armature" in extra.attributes:
        if joint.kind not in _OF_ONE_COORDINATE:
            raise extra.error(
                f"the joint is {joint.kind}; write toml='{{armature = [...]}}' with one value for each velocity component"
            )
        numbers["armature"] = extra.positive("armature", "; give a positive value or 0", or_zero=True)
    builder.add_body(
        joint.child,
        joint=joint_of(element, joint.kind),
        parent=joint.parent,
        position=position,
        orientation=orientation,
        joint_name=joint.name,
        **body,
        **numbers,
    )
