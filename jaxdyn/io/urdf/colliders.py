"""Colliders of URDF files: `<collision>` elements with meshes, boxes, spheres, cylinders and capsules.

The friction is that of the element `<contact>` of a link, an extension of Bullet:

    <contact><lateral_friction value="0.9"/></contact>
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from jaxdyn.dynamics.contact.shapes import ContactPoint
from jaxdyn.dynamics.system import System
from jaxdyn.io.shapes.colliders import Collider, extreme_points, level_ground, points_of, with_ground_contact
from jaxdyn.io.shapes.visuals import Omitted, placed
from jaxdyn.io.urdf.elements import origin
from jaxdyn.io.urdf.visuals import UrdfMeshes, geometry_of, mesh_scale, sizes_of
from jaxdyn.io.xml import Element, shortened
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.topology import GROUND

_FRICTION = "lateral_friction"


def urdf_collider_count(robot: Element, model: Model) -> int:
    """Number of colliders on moving links."""
    return sum(body != GROUND for body, _, _ in _collisions(robot, model))


def with_urdf_contact(robot: Element, system: System, folder: Path | None) -> System:
    """The system with contacts of all colliders of a URDF file with the plane through the origin that is perpendicular to gravity.

    Colliders that are left out are named in one `IgnoredContent` warning.

    Raises:
        ConfigError: A value of a collider is wrong, or there is no collider that can be used.
        MechanismError: A collider is on a body without mass.
    """
    path, model = Path(robot.file), system.model
    omitted = Omitted("contact")
    meshes = UrdfMeshes(path, folder, omitted)
    colliders = []
    for body, link, element in _collisions(robot, model):
        name = shortened(link.name())
        if body == GROUND:
            omitted.add("the link is fixed to the ground", name)
            continue
        shape = geometry_of(element)
        if shape is None:
            omitted.add("the collider has no shape of a known kind", name)
            continue
        points = _points(shape, meshes)
        if points is not None:
            pose = origin(next(iter(element.all("origin")), None))
            place = placed(model, link.name(), *pose)
            colliders.append(Collider(place, points, _friction(link, omitted)))
    return with_ground_contact(system, (level_ground(model),), colliders, omitted, path)


def _collisions(robot: Element, model: Model) -> Iterator[tuple[int, Element, Element]]:
    """Index of the body, link and <collision> of each collider."""
    topology = model.topology
    carriers = dict(zip(topology.frame_names, topology.frame_bodies, strict=True))
    for link in robot.all("link"):
        for element in link.all("collision"):
            name = link.name()
            yield carriers[name] if name in carriers else topology.body_index(name), link, element


def _points(shape: Element, meshes: UrdfMeshes) -> Sequence[ContactPoint] | None:
    """Points and spheres of a shape on its axes; None if its mesh cannot be read."""
    points = points_of(shape.tag, sizes_of(shape))
    if points is not None:
        return points
    parts = meshes.parts(shape.text("filename"))
    if parts is None:
        return None
    return extreme_points(np.concatenate([vertices for (vertices, _), _ in parts]) * mesh_scale(shape))


def _friction(link: Element, omitted: Omitted) -> float | None:
    """Friction coefficient of a link; None if the file does not state it."""
    friction = None
    for element in (inner for contact in link.all("contact") for inner in contact.children):
        if element.tag != _FRICTION:
            omitted.add("properties of contacts other than friction", f"<{shortened(element.tag)}>")
            continue
        friction = element.number("value")
        if friction < 0.0:
            raise element.error(f"the friction coefficient {friction:g} is negative; give a positive value or 0")
    return friction
