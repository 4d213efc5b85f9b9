"""Devices of a job: one device, or all devices of this machine.

Several machines need no connection: independent processes divide the chunks of a run (`io.runs.directory.Chunks`).
"""

import jax
from jax.sharding import Mesh

from jaxdyn.compute.devices import lane_mesh
from jaxdyn.jobs.choices import DeviceChoice


def mesh_of(devices: DeviceChoice) -> Mesh | None:
    """The devices over which a batch is divided; None if the batch is not divided."""
    return None if devices == "one" or jax.device_count() == 1 else lane_mesh()
