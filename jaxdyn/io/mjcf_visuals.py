"""Visual geometry of MJCF files: geoms of the groups that MuJoCo draws by default, with meshes as MuJoCo has compiled them."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from jaxdyn.io.errors import ConfigError
from jaxdyn.io.mesh_files import Color
from jaxdyn.io.mjcf import compiled_with_places
from jaxdyn.io.shapes import Mesh, box, capsule, cylinder, sphere, with_sharp_edges
from jaxdyn.io.visuals import Omitted, Visual, placed
from jaxdyn.mechanism.model import Model

_DRAWN_GROUPS = 3  # MuJoCo draws groups 0 to 2; collision shapes are by convention in higher ones


def mjcf_visuals(path: Path, model: Model, folder: Path | None, omitted: Omitted) -> list[Visual]:
    """Visuals of an MJCF file; see `load_visuals`. Shapes that cannot be read are added to `omitted`."""
    try:
        mujoco: Any = importlib.import_module("mujoco")
    except ImportError:
        omitted.add('drawing shapes of MJCF files needs mujoco; pip install "jaxdyn[mjcf]"', "all shapes")
        return []
    compiled, files, places = compiled_with_places(path, folder)
    meshes = [_mesh(compiled, index) for index in range(compiled.nmesh)]
    visuals = []
    for geom in _drawn(compiled, mujoco.mjtGeom.mjGEOM_MESH):
        kind = mujoco.mjtGeom(compiled.geom_type[geom])
        if kind == mujoco.mjtGeom.mjGEOM_MESH:
            index = compiled.geom_dataid[geom]
            name = mujoco.mj_id2name(compiled, mujoco.mjtObj.mjOBJ_MESH, index)
            if name in files.missing:
                omitted.add("there is no such file", files.missing[name])
                continue
            mesh, scale = meshes[index], np.ones(3)
        else:
            shape = _primitive(kind.name.removeprefix("mjGEOM_").lower(), np.array(compiled.geom_size[geom]))
            if shape is None:
                continue
            mesh, scale = shape
        name, offset = places[int(compiled.geom_bodyid[geom])]
        try:
            place = placed(model, name, compiled.geom_pos[geom] + offset, compiled.geom_quat[geom])
        except KeyError as error:
            raise ConfigError(f"{path}: {error.args[0]}; give the mechanism of this file") from None
        visuals.append(Visual(*place, mesh, scale, _color(compiled, geom)))
    return visuals


def _drawn(compiled: Any, mesh: Any) -> list[int]:
    """Indices of the geoms to draw. A body with meshes that do not collide is drawn without its shapes that do."""
    collides = (compiled.geom_contype != 0) | (compiled.geom_conaffinity != 0)
    detailed = set(compiled.geom_bodyid[~collides & (compiled.geom_type == mesh)].tolist())
    return [
        geom
        for geom in range(compiled.ngeom)
        if compiled.geom_group[geom] < _DRAWN_GROUPS
        and _color(compiled, geom)[3] > 0.0
        and not (collides[geom] and int(compiled.geom_bodyid[geom]) in detailed)
    ]


def _color(compiled: Any, geom: int) -> Color:
    material = compiled.geom_matid[geom]
    rgba = compiled.geom_rgba[geom] if material < 0 else compiled.mat_rgba[material]
    red, green, blue, opacity = (min(max(float(part), 0.0), 1.0) for part in rgba)
    return red, green, blue, opacity


def _mesh(compiled: Any, index: int) -> Mesh:
    first, count = compiled.mesh_vertadr[index], compiled.mesh_vertnum[index]
    points = np.array(compiled.mesh_vert[first : first + count], float)
    first, count = compiled.mesh_faceadr[index], compiled.mesh_facenum[index]
    return with_sharp_edges((points, np.array(compiled.mesh_face[first : first + count], np.int64)))


def _primitive(kind: str, size: np.ndarray) -> tuple[Mesh, np.ndarray] | None:
    """Triangles of a geom and their scale; None for planes, height fields and other shapes that are not drawn."""
    match kind:
        case "box":
            return box(), 2.0 * size
        case "sphere":
            return sphere(), np.full(3, size[0])
        case "ellipsoid":
            return sphere(), size
        case "cylinder":
            return cylinder(32), np.array([size[0], size[0], 2.0 * size[1]])
        case "capsule":
            return capsule(size[0], 2.0 * size[1]), np.ones(3)
    return None
