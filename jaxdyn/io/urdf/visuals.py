"""Visual geometry of URDF files: `<visual>` elements with meshes, boxes, spheres, cylinders and capsules."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from jaxdyn.errors import UnknownName
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.packages import packages, reached, tree_of
from jaxdyn.io.shapes.mesh_files import MESH_FILES, Color, MeshPart, missing_package, read_mesh_file
from jaxdyn.io.shapes.solids import solid
from jaxdyn.io.shapes.visuals import Omitted, Shape, Visual, placed
from jaxdyn.io.urdf.elements import SIZES, origin
from jaxdyn.io.xacro import read_robot
from jaxdyn.io.xml import Element
from jaxdyn.mechanism.model import Model

GRAY: Color = (0.72, 0.74, 0.77, 1.0)  # of shapes whose color the file does not state
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+)://(.*)", re.DOTALL | re.IGNORECASE)
_MOST_BYTES = 2**28  # of all mesh files of a robot


def urdf_visuals(path: Path, model: Model, folder: Path | None, omitted: Omitted) -> list[Visual]:
    """Visuals of a URDF file; see `load_visuals`. Shapes that cannot be read are added to `omitted`."""
    robot = read_robot(path)
    files = UrdfMeshes(path, folder, omitted)
    materials = {element.attributes.get("name"): element for element in robot.all("material")}
    visuals = []
    for link in robot.all("link"):
        for element in link.all("visual"):
            try:
                parts, scale, shape = _shape(element, files)
                pose = origin(next(iter(element.all("origin")), None))
                color = _color(element, materials) or GRAY
            except ConfigError as error:  # a wrong value of a shape does not spoil the mechanism
                omitted.add("left out", str(error).removeprefix(f"{path}, "))
                continue
            if not parts:
                continue
            try:
                place = placed(model, link.name(), *pose)
            except UnknownName:
                raise link.error(
                    f"mechanism {model.name!r} has no such body; give the mechanism of this file"
                ) from None
            visuals += [Visual(*place, part.mesh, scale, part.color or color, shape) for part in parts]
    return visuals


def _shape(visual: Element, files: "UrdfMeshes") -> tuple[list[MeshPart], np.ndarray, Shape | None]:
    """Triangles of a <visual>, none if it cannot be read, their scale factors, and the shape as it is stated."""
    shape = geometry_of(visual)
    if shape is None:
        return [], np.ones(3), None
    sizes = sizes_of(shape)
    drawn = solid(shape.tag, sizes)
    if drawn is not None:
        return [MeshPart(drawn[0], None)], drawn[1], Shape(shape.tag, tuple(sizes))
    name, scale = shape.text("filename"), mesh_scale(shape)
    return files.parts(name) or [], scale, Shape("mesh", tuple(scale.tolist()), files.found(name))


def geometry_of(element: Element) -> Element | None:
    """The shape of a <visual> or a <collision>: the first one of a known kind, or None."""
    shapes = (shape for geometry in element.all("geometry") for shape in geometry.children)
    return next((shape for shape in shapes if shape.tag in SIZES), None)


def sizes_of(shape: Element) -> list[float]:
    """Sizes of a shape as `solids.solid` takes them; empty for a mesh."""
    sizes: list[float] = []
    for name in SIZES[shape.tag]:
        values = shape.vector(name, 3) if name == "size" else (shape.number(name),)
        if min(values) < 0.0:
            raise shape.error(f"{name} = {min(values):g} is negative; give a positive value")
        sizes += values
    return sizes


def mesh_scale(shape: Element) -> np.ndarray:
    """Scale factors of the coordinates of a mesh."""
    return np.array(shape.vector("scale", 3, (1.0, 1.0, 1.0)))


def _color(visual: Element, materials: dict[str | None, Element]) -> Color | None:
    """Color of a <visual>, stated there or in a material of the robot; None if it is stated nowhere."""
    for material in visual.all("material"):
        for element in (material, materials.get(material.attributes.get("name"), material)):
            for color in element.all("color"):
                red, green, blue, opacity = (min(max(part, 0.0), 1.0) for part in color.vector("rgba", 4))
                return red, green, blue, opacity
    return None


class UrdfMeshes:
    """Mesh files of a robot. Each is read once.

    Args:
        path: URDF file.
        folder: Folder that must contain all of them, or None for the default of `load_visuals`.
        omitted: Collects the files that cannot be read.
    """

    def __init__(self, path: Path, folder: Path | None, omitted: Omitted):
        self._home = Path(os.path.realpath(path)).parent
        self._folder = tree_of(path) if folder is None else Path(os.path.realpath(folder))
        self._omitted = omitted
        self._read: dict[Path, list[MeshPart] | None] = {}
        self._left = _MOST_BYTES

    def parts(self, name: str) -> list[MeshPart] | None:
        """Parts of a mesh file by its name in the URDF file; None if it cannot be read."""
        ending = Path(name).suffix.lower()
        if ending not in MESH_FILES:
            self._omitted.add(f"not a mesh file of a kind that is read ({', '.join(MESH_FILES)})", name)
            return None
        package = missing_package(ending)
        if package is not None:
            self._omitted.add(f'mesh files need {package}; pip install "jaxdyn[view]"', name)
            return None
        path = self._found(name, [self._home], report=True)
        if path is not None and path not in self._read:
            self._read[path] = self._parts(path, name)
        return None if path is None else self._read[path]

    def found(self, name: str) -> Path | None:
        """Path of a mesh file by its name in the URDF file; None if it is not in the folder."""
        return self._found(name, [self._home], report=False)

    def _parts(self, path: Path, name: str) -> list[MeshPart] | None:
        self._left -= path.stat().st_size
        if self._left < 0:
            self._omitted.add(f"the mesh files have more than {_MOST_BYTES >> 20} MiB together", name)
            return None
        try:
            return read_mesh_file(path, lambda name: self._found(name, [path.parent], report=False))
        except ConfigError as error:
            self._omitted.add(str(error).removeprefix(f"{path}: "), name)
            return None

    def _found(self, name: str, folders: list[Path], *, report: bool) -> Path | None:
        """Path of a file in the folder of the robot; None if there is none, which is reported."""
        candidates = self._candidates(name.replace("\\", "/"), folders)
        inside = [path for path in (reached(path, self._folder) for path in candidates) if path is not None]
        found = next((path for path in inside if os.path.isfile(path)), None)
        if found is None and report:
            reason = "there is no such file" if inside else "the path leads elsewhere"
            advice = "folder=... (--folder on the command line) or ROS_PACKAGE_PATH names another folder"
            self._omitted.add(f"{reason} in {self._folder}; {advice}", name)
        return found

    def _candidates(self, name: str, folders: list[Path]) -> Iterator[Path]:
        """Paths that a name can stand for. The folder of the robot can be the package of any name."""
        if "\0" in name:
            return
        address = _ADDRESS.fullmatch(name)
        if address is None:
            yield from (folder / name for folder in folders)
        elif address[1].lower() == "file":
            yield Path(address[2])
        elif address[1].lower() in ("package", "model"):
            package, _, rest = address[2].lstrip("/").partition("/")
            yield from (folder / rest for folder in packages(package, self._home, self._folder))
            yield self._folder / rest
