"""Readers of single elements of a URDF file: origins, axes, kinds and limits of joints, inertias. `urdf.reader` builds the tree
of bodies from them.
"""

import math
from typing import Any

import numpy as np

from jaxdyn.io.placements import quaternion_from_rpy
from jaxdyn.io.xml import Element
from jaxdyn.mechanism.checks import has_physical_moments, nearest_physical
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.joints import Fixed, Free, Planar, Prismatic, Revolute, Spherical
from jaxdyn.spatial.inertia import symmetric_entries, symmetric_matrix
from jaxdyn.spatial.plain import rotation_matrix

# Share of the inertia of a rigid body below which the unphysical inertia of one of its links is repaired without being asked.
_NEGLIGIBLE = 1e-3
# Class of the joint of each type; a writer uses the first type of a class.
JOINT_TYPES: dict[str, type[Joint]] = {
    "revolute": Revolute,
    "continuous": Revolute,
    "prismatic": Prismatic,
    "planar": Planar,
    "floating": Free,
    "spherical": Spherical,
    "fixed": Fixed,
}
INERTIA_ENTRIES = ("ixx", "iyy", "izz", "ixy", "ixz", "iyz")
# Attributes with the sizes of each shape, in the order of `solids.solid`; a mesh has others.
SIZES = {
    "mesh": (),
    "box": ("size",),
    "sphere": ("radius",),
    "cylinder": ("radius", "length"),
    "capsule": ("radius", "length"),
}


def origin(element: Element | None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Position and quaternion of an <origin>."""
    if element is None:
        return (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)
    zero = (0.0, 0.0, 0.0)
    return element.vector("xyz", 3, zero), quaternion_from_rpy(element.vector("rpy", 3, zero))


def joint_of(element: Element, kind: str) -> Joint:
    """The joint of a <joint> element of a known kind."""
    joint: Any = JOINT_TYPES[kind]
    if joint in (Fixed, Free, Spherical):
        element.skip("axis")
        return joint()
    given, default = element.optional("axis"), (1.0, 0.0, 0.0)
    axis = np.array(default) if given is None else direction(given, default)
    return Planar(axis, across(axis)) if joint is Planar else joint(axis)


def direction(axis: Element, default: tuple[float, float, float] | None = None) -> np.ndarray:
    """Unit vector along an <axis>, whose components are required if there is no default."""
    given = np.array(axis.vector("xyz", 3, default))
    length = float(np.linalg.norm(given))
    if length < 1e-9:
        raise axis.error("the axis is zero; give a direction such as 0 0 1")
    # A second division removes the rounding error of the first one, so that written axes are read back unchanged.
    unit = given / length
    return given if abs(length - 1.0) < 4e-16 else unit / np.linalg.norm(unit)


def turn_to(normal: np.ndarray) -> np.ndarray:
    """Quaternion of the smallest rotation that turns z into a unit vector."""
    x, y, z = normal
    half = np.array([1.0 + z, -y, x, 0.0]) if z > -1.0 + 1e-9 else np.array([0.0, 1.0, 0.0, 0.0])
    return half / np.linalg.norm(half)


def across(normal: np.ndarray) -> np.ndarray:
    """First direction of a planar joint: the x axis after the smallest rotation that turns z into the normal."""
    return rotation_matrix(turn_to(normal))[:, 0]


def limits(element: Element | None, kind: str) -> dict[str, Any]:
    """Limits from the <limit> of a joint with one coordinate, as arguments of `MechanismBuilder.add_body`."""
    if element is None:
        return {}
    sides = () if kind == "continuous" else ("lower", "upper")  # a continuous joint does not have position limits
    numbers: dict[str, Any] = {}
    if sides and ("lower" in element.attributes or "upper" in element.attributes):
        lower, upper = (element.number(side, 0.0, infinite=True) for side in sides)
        if lower > upper:
            raise element.error(
                f"lower = {lower:g} is above upper = {upper:g}; exchange them, and give both (a missing one is 0)"
            )
        if lower < upper:
            numbers["position_limits"] = (lower, upper)
        else:
            element.ignore("limits that do not allow motion")
    for attribute in ("effort", "velocity"):
        problem = " is negative; give a positive value, or leave it out for no limit"
        value = element.positive(attribute, problem, math.inf, or_zero=True, infinite=True)
        if value > 0.0:
            numbers[f"{attribute}_limit"] = value
        else:
            element.ignore(f"{attribute} limits of 0")
    return numbers


def inertia(link: Element) -> dict[str, Any]:
    """Mass, center of mass and central inertia of a <link> on link axes, as arguments of `MechanismBuilder.add_body`."""
    inertial = link.optional("inertial")
    if inertial is None:
        return {}
    position, turn = origin(inertial.optional("origin"))
    mass, tensor = inertial.required("mass"), inertial.required("inertia")
    entries = [tensor.number(name, None if name in INERTIA_ENTRIES[:3] else 0.0) for name in INERTIA_ENTRIES]
    matrix = symmetric_matrix(np.array(entries))
    kilograms = mass.number("value")
    if turn != (1.0, 0.0, 0.0, 0.0):
        frame = rotation_matrix(np.array(turn))
        matrix = frame @ matrix @ frame.T
        matrix = 0.5 * (matrix + matrix.T)
    return {"mass": kilograms, "com": position if kilograms else (0.0, 0.0, 0.0), "inertia": matrix}


def repair_inertias(
    inertias: dict[str, dict[str, Any]], links: dict[str, Element], body_of: dict[str, str], every: bool
) -> None:
    """Replace the inertias of links that no body can have by the nearest ones that are physical.

    Args:
        inertias: Results of `inertia` by the name of the link, which are changed.
        links: The <link> elements by name.
        body_of: Name of the rigid body of which each link is a part.
        every: If false, only links are changed that have little influence on their body.
    """
    given = {name: found for name, found in inertias.items() if found}
    physical = {name: nearest_physical(found["mass"], found["inertia"]) for name, found in given.items()}
    trace: dict[str, float] = {}  # of the inertia of each body; the distances between its links would add to it
    for name, tensor in physical.items():
        trace[body_of[name]] = trace.get(body_of[name], 0.0) + float(np.trace(tensor))
    for name, found in given.items():
        without_mass = found["mass"] == 0.0 and np.any(found["inertia"])
        if not without_mass and has_physical_moments(found["mass"], found["inertia"]):
            continue
        change = np.abs(physical[name] - found["inertia"]).max()
        if every or change < _NEGLIGIBLE * trace[body_of[name]]:
            inertial = links[name].required("inertial")
            frame = rotation_matrix(np.array(origin(inertial.optional("origin"))[1]))
            element = inertial.required("inertia")
            old = np.array([element.number(entry, 0.0) for entry in INERTIA_ENTRIES])
            new = symmetric_entries(frame.T @ physical[name] @ frame)
            element.ignore(
                f"unphysical part of the inertia of link {name!r}, whose {', '.join(INERTIA_ENTRIES)} were {_listed(old)} and "
                f"became {_listed(new)} kg m^2{_suggestion(found['mass'], old)}"
            )
            found["inertia"] = physical[name]


def _listed(values: np.ndarray) -> str:
    rounding = 1e-9 * np.max(np.abs(values))
    return ", ".join(f"{x if abs(x) > rounding else 0.0:.4g}" for x in values)


def _suggestion(mass: float, entries: np.ndarray) -> str:
    """A simple mistake without which the entries of an unphysical inertia would be physical; empty if there is none."""
    xx, yy, zz, xy, xz, yz = entries
    mended = {"all moments were positive": np.append(np.abs(entries[:3]), entries[3:])}
    for k in range(3, 6):
        mended[f"the sign of {INERTIA_ENTRIES[k]} were opposite"] = np.where(np.arange(6) == k, -entries, entries)
    if yy == xy:
        # The first six of nine values in the places of the upper triangle; a possible zz stands for the one that was lost.
        moment = max(np.linalg.eigvalsh([[xx, xy], [xy, yz]]))
        mended["they were the first six of the nine entries in row-major order"] = np.array(
            [xx, yz, moment, xy, xz, zz]
        )
    for name, candidate in mended.items():
        if mass > 0.0 and np.any(candidate != entries) and has_physical_moments(mass, symmetric_matrix(candidate)):
            return f" (it would be physical if {name}; if so, correct the file)"
    return ""
