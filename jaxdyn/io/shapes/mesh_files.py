"""Mesh files (.stl, .obj, .dae), read with trimesh: `pip install "jaxdyn[view]"`.

The files are untrusted: jaxdyn opens them and passes only their content to trimesh, which opens neither files nor addresses.
Textures are not read.
"""

import importlib
import importlib.util
import io
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxdyn.io.errors import ConfigError
from jaxdyn.io.reading import content
from jaxdyn.io.shapes.solids import Mesh, with_sharp_edges
from jaxdyn.io.xml import parse_xml

MESH_FILES = (".stl", ".obj", ".dae")
LARGEST_MESH_FILE = 2**26  # bytes
_LARGEST_EXPANDED = 2**28  # bytes of a COLLADA file, if every geometry were written out where it is used
_LARGEST_COORDINATE = 1e9
_MOST_PARTS = 10_000
_MOST_CHANGES = 2_000  # of the material in an .obj file; the time that trimesh needs grows with their square
_MATERIALS = re.compile(rb"^[ \t]*mtllib[ \t]+(\S[^\r\n]*?)[ \t]*$", re.MULTILINE)
_BOUND_MATERIALS = re.compile(rb"<bind_material>.*?</bind_material>", re.DOTALL)
_DEFAULT = (102, 102, 102)  # color of trimesh where a file states none

Color = tuple[float, float, float, float]


class MeshPart(NamedTuple):
    """All triangles of one color in a mesh file.

    Attributes:
        mesh: Triangles, with lengths in m.
        color: Red, green, blue and opacity, 0 to 1; None if the file does not state it.
    """

    mesh: Mesh
    color: Color | None


def missing_package(ending: str) -> str | None:
    """Name of a package that is needed for mesh files with this ending and is not installed, or None."""
    needed = ("trimesh", "collada") if ending == ".dae" else ("trimesh",)
    return next((name for name in needed if importlib.util.find_spec(name) is None), None)


def read_mesh_file(path: Path, find: Callable[[str], Path | None]) -> list[MeshPart]:
    """The triangles of a mesh file, one part for each color.

    Args:
        path: Mesh file.
        find: Function that returns the path of a file of colors that the mesh file names, or None if this file may not be opened.

    Raises:
        ConfigError: The file is too large, or cannot be read.
    """
    ending = path.suffix.lower()
    data = content(path, LARGEST_MESH_FILE, "reduce its triangles")
    unit, expected = _checked_collada(data, path) if ending == ".dae" else (1.0, 0)
    if ending == ".obj" and data.count(b"usemtl") > _MOST_CHANGES:
        raise ConfigError(
            f"{path}: it has more than {_MOST_CHANGES} lines with usemtl; join the faces of each material, or export it as .stl"
        )
    colors = _material_files(data, find) if ending == ".obj" else None
    trimesh: Any = importlib.import_module("trimesh")
    try:
        pieces = _pieces(trimesh.load_scene(io.BytesIO(data), file_type=ending[1:], resolver=colors, process=False))
        # Shapes are lost if their materials are damaged, for example if a texture is missing.
        if len(pieces) < expected:
            plain = _BOUND_MATERIALS.sub(b"", data)
            shapes = _pieces(trimesh.load_scene(io.BytesIO(plain), file_type="dae", process=False))
            pieces = shapes if len(shapes) > len(pieces) else pieces
        return _by_color(pieces, unit)
    except Exception as error:  # readers of damaged files raise errors of all kinds
        raise ConfigError(f"{path}: it is not a mesh that trimesh reads ({type(error).__name__}: {error})") from None


def _pieces(scene: Any) -> list[MeshPart]:
    """The pieces of a scene of trimesh that have triangles, unlike points and curves."""
    pieces = []
    for node in scene.graph.nodes_geometry[:_MOST_PARTS]:
        transform, name = scene.graph[node]
        geometry = scene.geometry[name]
        if not hasattr(geometry, "faces"):
            continue
        points, faces = np.asarray(geometry.vertices, float), np.asarray(geometry.faces, np.int64)
        points = points @ transform[:3, :3].T + transform[:3, 3]
        usable = np.all(np.abs(points) < _LARGEST_COORDINATE, axis=1)  # NaN is not
        mesh = np.where(usable[:, None], points, 0.0), faces[np.all(usable[faces], axis=1)]
        pieces.append(MeshPart(mesh, _color(geometry.visual)))
    return pieces


def _color(visual: Any) -> Color | None:
    if not visual.defined:
        return None
    color = visual.material.main_color if visual.kind == "texture" else visual.main_color
    if tuple(color[:3]) == _DEFAULT:
        return None
    red, green, blue, opacity = (float(part) / 255 for part in color)
    return red, green, blue, opacity


def _by_color(pieces: list[MeshPart], unit: float) -> list[MeshPart]:
    parts, by_color = [], defaultdict(list)
    for piece in pieces:
        by_color[piece.color].append(piece.mesh)
    for color, meshes in by_color.items():
        starts = np.cumsum([0, *(len(points) for points, _ in meshes)])
        points = unit * np.concatenate([points for points, _ in meshes])
        faces = np.concatenate([faces + start for (_, faces), start in zip(meshes, starts, strict=False)])
        mesh = with_sharp_edges((points, faces))
        if len(mesh[1]):
            parts.append(MeshPart(mesh, color))
    if not parts:
        raise ValueError("it has no triangles")
    return parts


def _material_files(data: bytes, find: Callable[[str], Path | None]) -> dict[str, bytes]:
    """Contents of the .mtl files that an .obj file names. trimesh looks for names of further files here, and does not find them."""
    found = {}
    for name in dict.fromkeys(match.decode(errors="replace") for match in _MATERIALS.findall(data)[:10]):
        path = find(name)
        if path is not None and path.suffix.lower() == ".mtl":
            found[name] = content(path, LARGEST_MESH_FILE, "reduce its materials")
    return found


def _checked_collada(data: bytes, path: Path) -> tuple[float, int]:
    """Length (m) of the unit of a COLLADA file, and the number of times that it uses geometries.

    Raises:
        ConfigError: The file is not XML, declares entities, or would be much larger with all repetitions written out.
    """
    elements = [(element.tag.rpartition(":")[2], element) for element in parse_xml(data, path).below()]
    used = Counter(element.attributes.get("url", "") for tag, element in elements if tag == "instance_geometry")
    if any(tag == "instance_node" for tag, _ in elements):
        raise ConfigError(
            f"{path}: it repeats parts (<instance_node>), which is not supported; export it as .stl or .obj"
        )
    if max(used.values(), default=0) * len(data) > _LARGEST_EXPANDED:
        raise ConfigError(f"{path}: it repeats a part too often; export it as .stl or .obj")
    units = [element.number("meter", 1.0) for tag, element in elements if tag == "unit"]
    return units[0] if units and units[0] > 0 else 1.0, used.total()
