"""Paths of the tendons of a compiled MJCF model.

A fixed tendon is a linear combination of joint coordinates, a spatial one a line through sites, around geoms and over pulleys.
"""

from typing import Any

import numpy as np

from jaxdyn.dynamics.paths import Waypoint
from jaxdyn.spatial.plain import rotation_matrix

Carriers = dict[int, tuple[str, np.ndarray]]


class TendonReader:
    """Reader of the tendons of one compiled model.

    Args:
        mujoco: The `mujoco` package.
        compiled: The compiled model.
        carriers: Name of the body that represents each MuJoCo body, and the origin on it.
    """

    def __init__(self, mujoco: Any, compiled: Any, carriers: Carriers):
        self.mujoco, self.compiled, self.carriers = mujoco, compiled, carriers

    def problem(self, tendon: int) -> str:
        """Reason why a path has no counterpart; empty if it has one."""
        try:
            self.waypoints(tendon)
        except ValueError as error:
            return f"has a path without a counterpart ({error})"
        return ""

    def joints(self, tendon: int) -> list[tuple[int, float]]:
        """The joints of a fixed tendon, and their coefficients; empty for a spatial one."""
        return [(index, value) for kind, index, value in self._elements(tendon) if kind == "joint"]

    def waypoints(self, tendon: int, gear: float = 1.0) -> tuple[Waypoint, ...]:
        """The path of a spatial tendon, whose length is multiplied by a gear; empty for a fixed one."""
        found: list[Waypoint] = []
        factor: float | None = gear
        for kind, index, value in self._elements(tendon):
            if kind == "pulley":
                factor = gear / value
            elif kind == "site":
                found.append(Waypoint(*self._point("site", index), factor=factor))
                factor = None
            elif kind != "joint":
                found.append(self._obstacle(kind, index, int(value)))
        return tuple(found)

    def _elements(self, tendon: int) -> list[tuple[str, int, float]]:
        """Kind, index and parameter of each element."""
        compiled, first = self.compiled, int(self.compiled.tendon_adr[tendon])
        within = slice(first, first + int(compiled.tendon_num[tendon]))
        names = [self.mujoco.mjtWrap(kind).name for kind in compiled.wrap_type[within]]
        values = (compiled.wrap_objid[within].tolist(), compiled.wrap_prm[within].tolist())
        return list(zip([name.removeprefix("mjWRAP_").lower() for name in names], *values, strict=True))

    def _obstacle(self, kind: str, geom: int, site: int) -> Waypoint:
        axis = (
            rotation_matrix(np.array(self.compiled.geom_quat[geom]))[:, 2].tolist() if kind == "cylinder" else [0.0] * 3
        )
        body, center = self._point("geom", geom)
        beside, side = self._point("site", site) if site >= 0 else (body, None)
        if beside != body:
            raise ValueError(f"the sidesite of geom {self.compiled.geom(geom).name!r} is on another body")
        return Waypoint(body, center, float(self.compiled.geom_size[geom, 0]), (axis[0], axis[1], axis[2]), side)

    def _point(self, what: str, index: int) -> tuple[str, Any]:
        """Body and position of a site or a geom."""
        carrier, origin = self.carriers[int(getattr(self.compiled, f"{what}_bodyid")[index])]
        return carrier, tuple((getattr(self.compiled, f"{what}_pos")[index] + origin).tolist())
