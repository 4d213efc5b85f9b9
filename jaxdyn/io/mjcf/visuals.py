"""Visual geometry of MJCF files: geoms of the groups that MuJoCo draws by default, with meshes as MuJoCo has compiled them."""

import functools
from pathlib import Path
from typing import Any

import numpy as np

from jaxdyn.errors import UnknownName
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.mjcf.geoms import MjcfGeoms, collides
from jaxdyn.io.mjcf.reader import compiled_geoms
from jaxdyn.io.shapes.mesh_files import Color
from jaxdyn.io.shapes.solids import solid, with_sharp_edges
from jaxdyn.io.shapes.visuals import Omitted, Visual
from jaxdyn.mechanism.model import Model

_DRAWN_GROUPS = 3  # MuJoCo draws groups 0 to 2; collision shapes are by convention in higher ones


def mjcf_visuals(path: Path, model: Model, folder: Path | None, omitted: Omitted) -> list[Visual]:
    """Visuals of an MJCF file; see `load_visuals`. Shapes that cannot be read are added to `omitted`."""
    try:
        geoms = compiled_geoms(path, model, folder, omitted)
    except ImportError:
        omitted.add('drawing shapes of MJCF files needs mujoco; pip install "jaxdyn[mjcf]"', "all shapes")
        return []
    with_edges = functools.cache(lambda index: with_sharp_edges(geoms.mesh_of_file(index)))
    visuals = []
    for geom in _drawn(geoms):
        if geoms.kind(geom) == "mesh":
            index = geoms.mesh_of(geom)
            shape = None if index is None else (with_edges(index), np.ones(3))
        else:
            shape = solid(geoms.kind(geom), geoms.sizes(geom))
        if shape is None:
            continue
        try:
            place = geoms.place_of_file(geom)
        except UnknownName as error:
            raise ConfigError(f"{path}: {error}; give the mechanism of this file") from None
        visuals.append(Visual(*place, *shape, _color(geoms.compiled, geom), geoms.stated(geom)))
    return visuals


def _drawn(geoms: MjcfGeoms) -> list[int]:
    """Indices of the geoms to draw. A body with meshes that do not collide is drawn without its shapes that do."""
    compiled, colliding = geoms.compiled, collides(geoms.compiled)
    detailed = {
        int(compiled.geom_bodyid[geom]) for geom in np.flatnonzero(~colliding).tolist() if geoms.kind(geom) == "mesh"
    }
    return [
        geom
        for geom in range(compiled.ngeom)
        if compiled.geom_group[geom] < _DRAWN_GROUPS
        and _color(compiled, geom)[3] > 0.0
        and not (colliding[geom] and int(compiled.geom_bodyid[geom]) in detailed)
    ]


def _color(compiled: Any, geom: int) -> Color:
    material = compiled.geom_matid[geom]
    rgba = compiled.geom_rgba[geom] if material < 0 else compiled.mat_rgba[material]
    red, green, blue, opacity = (min(max(float(part), 0.0), 1.0) for part in rgba)
    return red, green, blue, opacity
