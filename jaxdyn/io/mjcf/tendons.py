"""Tendons of a compiled MJCF model: their paths, springs, dampers and dry friction.

A fixed tendon is a linear combination of joint coordinates, a spatial one a line through sites, around geoms and over pulleys.
"""

from typing import Any

import numpy as np

from jaxdyn.dynamics.paths import Waypoint
from jaxdyn.spatial.plain import rotation_matrix

Carriers = dict[int, tuple[str, np.ndarray]]
_OFF = {"stiffness": "SPRING", "damping": "DAMPER", "frictionloss": "FRICTIONLOSS"}  # flags of the file, mjDSBL_...


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
        for kind, index, value in self._elements(tendon):
            if kind in ("sphere", "cylinder") and value >= 0:
                site, geom = int(value), self.compiled.geom(index).name or f"geom {index}"
                if self._place(index, "geom")[0] != self._place(site, "site")[0]:
                    return f"has a sidesite that is not on the body of {geom!r}"
                distance = self._place(index, "geom")[1] - self._place(site, "site")[1]
                if np.linalg.norm(distance) <= self.compiled.geom_size[index, 0]:
                    return f"goes through the inside of {geom!r}"
        return ""

    def joints(self, tendon: int) -> list[tuple[int, float]]:
        """The joints of a fixed tendon, and their coefficients; empty for a spatial one."""
        return [(index, value) for kind, index, value in self._elements(tendon) if kind == "joint"]

    def waypoints(self, tendon: int, gear: float = 1.0) -> tuple[Waypoint, ...]:
        """The path of a spatial tendon, whose length is multiplied by a gear; empty for a fixed one."""
        found: list[Waypoint] = []
        factor = None if gear == 1.0 else gear
        for kind, index, value in self._elements(tendon):
            if kind == "pulley":
                factor = gear / value
            elif kind == "site":
                found.append(Waypoint(*self._vector(index, "site"), factor=factor))
                factor = None
            elif kind != "joint":
                found.append(self._obstacle(kind, index, int(value)))
        return tuple(found)

    def passive(self, tendon: int) -> dict[str, Any]:
        """Values of the spring, the damper and the dry friction by the arguments of `Tendon.of`; empty without them.

        Lengths at rest are measured from the neutral configuration of a fixed tendon.
        """
        compiled, disable = self.compiled, self.mujoco.mjtDisableBit
        values = {
            name: float(getattr(compiled, f"tendon_{name}")[tendon])
            * (not compiled.opt.disableflags & getattr(disable, f"mjDSBL_{flag}", 0))
            for name, flag in _OFF.items()
        }
        if not any(values.values()):
            return {}
        neutral = sum(x * compiled.qpos0[compiled.jnt_qposadr[joint]] for joint, x in self.joints(tendon))
        rest = tuple((compiled.tendon_lengthspring[tendon] - neutral).tolist())
        return {"friction": values.pop("frictionloss") or None, "rest": rest} | values

    def _elements(self, tendon: int) -> list[tuple[str, int, float]]:
        """Kind, index and parameter of each element."""
        compiled, start = self.compiled, int(self.compiled.tendon_adr[tendon])
        return [
            (
                self.mujoco.mjtWrap(compiled.wrap_type[k]).name.removeprefix("mjWRAP_").lower(),
                int(compiled.wrap_objid[k]),
                float(compiled.wrap_prm[k]),
            )
            for k in range(start, start + int(compiled.tendon_num[tendon]))
        ]

    def _obstacle(self, kind: str, geom: int, site: int) -> Waypoint:
        compiled = self.compiled
        axis = rotation_matrix(np.array(compiled.geom_quat[geom]))[:, 2] if kind == "cylinder" else np.zeros(3)
        side = self._vector(site, "site")[1] if site >= 0 else None
        radius = float(compiled.geom_size[geom, 0])
        return Waypoint(*self._vector(geom, "geom"), radius, tuple(axis.tolist()), side)

    def _place(self, index: int, what: str) -> tuple[str, np.ndarray]:
        carrier, origin = self.carriers[int(getattr(self.compiled, f"{what}_bodyid")[index])]
        return carrier, np.array(getattr(self.compiled, f"{what}_pos")[index]) + origin

    def _vector(self, index: int, what: str) -> tuple[str, Any]:
        """Body and position of a site or a geom."""
        carrier, position = self._place(index, what)
        return carrier, tuple(position.tolist())
