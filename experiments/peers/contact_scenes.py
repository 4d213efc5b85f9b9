"""Scenes of contact of one body with the ground in MuJoCo, with soft contacts and elliptic friction cones."""

import importlib
from typing import Any

import numpy as np

mujoco: Any = importlib.import_module("mujoco")

SCENE = """
<mujoco>
  <option timestep="{dt}" cone="elliptic" gravity="0 0 {gravity}" impratio="{impratio}" noslip_iterations="{noslip}"/>
  <worldbody>
    <geom name="ground" type="plane" size="50 50 1" quat="{tilt}" condim="3" friction="{friction} 0 0" {soft}/>
    <body><freejoint/>
      <inertial mass="{mass}" pos="0 0 0" diaginertia="{inertia}"/>
      <geom {shape} condim="3" friction="{friction} 0 0" {soft}/>
    </body>
  </worldbody>
</mujoco>
"""


def text(values) -> str:
    return " ".join(f"{value:.12g}" for value in values)


class Motion:
    """Motion of one body: times, coordinates (position; quaternion), velocities (linear; angular).

    Args:
        scene: Values of the description: `gravity` (m/s^2), `tilt` (quaternion of the ground), `friction`, `mass` (kg), `inertia`
            (kg m^2), `shape` (attributes of the geometry), `impratio`, `noslip`, and `soft`, attributes of soft contacts.
        qpos, qvel: Initial coordinates and velocities.
        dt: Length of a step, s.
        duration: Simulated time, s.
    """

    def __init__(self, scene: dict, qpos, qvel, dt: float, duration: float):
        values = {"impratio": 1.0, "noslip": 0, "soft": ""} | scene
        for key in ("tilt", "inertia"):
            values[key] = text(values[key])
        model = mujoco.MjModel.from_xml_string(SCENE.format(dt=dt, **values))
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:] = qpos, qvel
        steps = round(duration / dt)
        self.time, self.q, self.v = dt * np.arange(steps + 1), np.zeros((steps + 1, 7)), np.zeros((steps + 1, 6))
        self.q[0], self.v[0] = qpos, qvel
        for k in range(steps):
            mujoco.mj_step(model, data)
            self.q[k + 1], self.v[k + 1] = data.qpos, data.qvel
