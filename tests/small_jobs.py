"""Configs of the jobs in small, for tests of the command line, of interrupted runs and of several devices."""

import dataclasses
import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from recorded import STEP, pendulum_plant, simulated

from jaxdyn.io.archive.plant import save_plant
from jaxdyn.io.runs.directory import RunDirectory

CONFIGS = Path(__file__).parents[1] / "configs"

ROLLOUT = f"""
mechanism = "{CONFIGS / "mechanisms" / "double_pendulum.toml"}"
batch = 3
dtype = "float64"
pictures = false
[time]
duration = "20 ms"
rate = "1 kHz"
save_every = 5
"""

ARM = """
name = "arm"
source = "invented for this test"
[[body]]
name = "upper"
joint = {kind = "revolute", axis = [0, 1, 0], name = "shoulder", position_limits = [-2, 2], velocity_limit = 4}
mass = 1
com = [0, 0, -0.5]
inertia = [0.09, 0.08, 0.02]
[[body]]
name = "lower"
parent = "upper"
position = [0, 0, -1]
joint = {kind = "revolute", axis = [1, 0, 0], name = "elbow", position_limits = [-2, 2], velocity_limit = 4}
mass = 0.5
com = [0, 0.1, -0.25]
inertia = [0.012, 0.011, 0.005]
"""

# Of the mechanism arm.toml beside it.
IDENTIFY = """
[synthetic]
period = "4 s"
harmonics = 3
starts = 3
noise = 0.05
perturbation = 0.5
[[study]]
name = "arm"
mechanism = "arm.toml"
train = ["swing"]
[[force]]
kind = "JointFriction"
viscous = 0.2
coulomb = 0.1
velocity_scale = 0.05
[[free]]
inertia = ["all"]
divergence = 0.1
[[free]]
path = "system.forces.0.viscous"
chart = "positive"
[fit]
method = "inverse_dynamics"
noise = 0.05
tolerance = 1e-12
[motion]
interval = 0.1
cutoff = 0
drop = 0
decimate = 1
"""

OPTIMIZE = f"""
mechanism = "{CONFIGS / "mechanisms" / "pendulum.toml"}"
pictures = false
animation = false
[time]
duration = "1 s"
steps = 12
integrator = "runge_kutta_4"
[initial]
q = [0.1]
[bounds]
lower = -4
upper = 3.5
[[running]]
kind = "effort"
weights = 0.2
[[running]]
kind = "deviation"
q = [1.5]
weights = [0.5, 0.1]
[[final]]
kind = "deviation"
q = [1.5]
weights = 20.0
[[start]]
kind = "controls"
controls = 0.5
count = 4
interval = "250 ms"
[[start]]
kind = "states"
times = [0, 0.5, 1]
q = [[0.1], [1.0], [1.5]]
count = 2
spread = 0.3
"""


# Of a run whose plant is evaluated.
PLANTS = f"""
data = "recordings"
pictures = false
[[study]]
name = "weight"
mechanism = "left_out.toml"
train = ["old.npz"]
validation = ["old.npz"]
[[free]]
path = "inputs.offset"
[fit]
method = "inverse_dynamics"
[motion]
interval = {STEP}
cutoff = 0
drop = 1
decimate = 1
[[check]]
kind = "forces"
"""


def interrupt_at_arrays(patch, when: int) -> list[str]:
    """Interrupt a job in this process when it has written `when` files of arrays; the names of those it wrote, and the next."""
    write, written = RunDirectory.write_arrays, []

    def interrupted(directory, name, **arrays):
        written.append(name)
        if len(written) > when:
            raise KeyboardInterrupt
        return write(directory, name, **arrays)

    patch.setattr(RunDirectory, "write_arrays", interrupted)
    return written


def write_configs(folder: Path) -> None:
    """rollout.toml, identify.toml with arm.toml, and optimize.toml."""
    for name, text in (("rollout", ROLLOUT), ("arm", ARM), ("identify", IDENTIFY), ("optimize", OPTIMIZE)):
        (folder / f"{name}.toml").write_text(text)


def write_plants(folder: Path) -> None:
    """Two runs, "one" and "two", whose plants differ in the offset of their input, and two recordings in "new" with other names."""
    plant = pendulum_plant()
    for name, offset in (("one", 0.0), ("two", 0.3)):
        run = folder / name
        (run / "recordings").mkdir(parents=True)
        (run / "config.toml").write_text(PLANTS)
        inputs = dataclasses.replace(plant.inputs, offset=jnp.array([offset]))
        save_plant(dataclasses.replace(plant, inputs=inputs), run)
    (folder / "new").mkdir()
    for name, torque in (("old", "tau"), ("other", "current")):
        recording = simulated(plant, 1.0, 3, irregular=False)
        arrays = {"t": recording.time, "q": recording.q, torque: recording.u}
        np.savez(folder / "new" / f"{name}.npz", **arrays)


def without_digests(archive: Path) -> None:
    """Write the npz file of an archive as jaxdyn did before it added digests."""
    with np.load(archive) as arrays:
        np.savez(archive, **arrays)


def contents(out: Path) -> dict[str, bytes]:
    """The files of a run that are the same, to the last bit, however often it was interrupted."""
    return {
        path.name: path.read_bytes() for path in out.iterdir() if path.name not in ("metrics.json", "provenance.json")
    }


def numbers(out: Path) -> dict:
    """The metrics of a run that are the same however often it was interrupted."""

    def kept(value):
        if not isinstance(value, dict):
            return value
        # What ran and how long it took is of the last process alone.
        names = [key for key in value if not key.endswith("_s") and key not in ("environment", "backend", "seal")]
        return {key: kept(value[key]) for key in names}

    return kept(json.loads((out / "metrics.json").read_text()))
