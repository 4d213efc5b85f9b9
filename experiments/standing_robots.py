"""Do quadrupeds and humanoids stand as soon as their files are read with contact="ground"?

Method. `load_urdf` reads each robot with a free base and with its colliders as contacts with the ground. The robot starts at rest
in the first posture of an SRDF file beside it (or with all coordinates zero, or as near as its limits allow), with its lowest
contact point on the ground. PD control of all joints holds this posture, and the default integrator simulates five seconds in
steps of 2 ms. The stiffness of all joints is a multiple of m g h, where m is the mass of the robot and h the height of its base,
because a robot on elastic ankles falls if their stiffness is below m g h. Limits of torques are not enforced, and nothing balances
the robot: if the center of mass of the posture is not above the feet, it must fall. The margin in the table is the distance of the
center from the edge of the support. A file that is refused for an unphysical inertia is read again with `unphysical="repair"`.

Expected. A robot stands if, in the end, its base is tilted by less than `largest_tilt` and has lost less than a tenth of its
height, and the ground carries its weight to 1 %. tables/standing_robots.md has the results.

Packages with such files: example-robot-data, mani-skill, genesis-world. Nothing of them needs to be installed:

    pip download --no-deps example-robot-data mani-skill genesis-world
    for wheel in *.whl; do unzip -q "$wheel" -d robots; done

Without a folder, the robot is the quadruped of the library.

Run time. Three seconds for a robot, most of it compilation.

    python experiments/standing_robots.py [configs/standing_robots.toml] [--out DIR] [--smoke] [folder=robots] ...
"""

import dataclasses
import sys
import time
import warnings
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial import ConvexHull
from tqdm import tqdm

import jaxdyn
from jaxdyn.dynamics import GroundContact, JointServo, contact_forces, contact_sphere
from jaxdyn.io import ConfigError, IgnoredContent, RunDirectory, setting
from jaxdyn.jobs import Job, main
from jaxdyn.spatial import quaternion

FREE = 6  # velocity components of a free base
SUPPORT = 0.01  # m; lower points of the posture count as supports
LARGEST_LOSS = 0.1  # of height, relative
LARGEST_DIFFERENCE = 0.01  # of the carried weight, relative


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        folder: Folder of the robots; without it, the quadruped of the library is used.
        robots: Path patterns below the folder, with * and **; the first file that matches each pattern is used.
        duration: Simulated time.
        step: Time step.
        stiffness: Stiffness of each joint, as a multiple of m g h.
        damping: Ratio of damping and stiffness of each joint.
        largest_tilt: Largest tilt of the base of a robot that stands.
    """

    folder: Path | None = None
    robots: tuple[str, ...] = ()
    duration: float = setting(5.0, unit="s", positive=True)
    step: float = setting(2e-3, unit="s", positive=True)
    stiffness: float = setting(10.0, positive=True)
    damping: float = setting(0.05, unit="s", positive=True)
    largest_tilt: float = setting(0.1, unit="rad", positive=True)


@dataclasses.dataclass(frozen=True)
class Row:
    """One robot after the simulation.

    Attributes:
        repaired: Whether the file was refused without `unphysical="repair"`.
        posture: Name of the posture, "zero" without one.
        margin: Distance (m) by which the center of mass lies inside of the convex hull of the supports, in the horizontal plane.
        lost_height: Height that the base lost, relative.
        tilt: Angle (rad) between the vertical axis of the base and the vertical.
        drift: Horizontal distance (m) that the base moved.
        carried: Sum of the vertical contact forces over the weight.
        compiling, running: Times (s) of the first call beyond the second, and of the second call.
    """

    robot: str
    nv: int
    points: int
    repaired: bool
    posture: str
    margin: float
    stands: bool
    lost_height: float
    tilt: float
    drift: float
    carried: float
    compiling: float
    running: float


def robots(config: Config) -> list[Path | None]:
    """The files of the config; None stands for the quadruped of the library."""
    if config.folder is None:
        return [None]
    found = [next(iter(sorted(config.folder.glob(pattern))), None) for pattern in config.robots]
    if None in found:
        missing = config.robots[found.index(None)]
        raise ConfigError(f"{config.folder}: there is no {missing}; download the packages that the experiment names")
    return found


def loaded(path: Path | None, folder: Path | None) -> tuple[jaxdyn.System, bool]:
    """The robot on the ground, and whether its file needed repair. Meshes may lie anywhere in the folder of all robots."""
    if path is None:
        model = jaxdyn.library.quadruped()
        feet = [contact_sphere(f"{leg}_foot", radius=0.02) for leg in ("fl", "fr", "rl", "rr")]
        return jaxdyn.System(model, (GroundContact.of(model, feet),)), False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IgnoredContent)
        try:
            return jaxdyn.io.load_urdf(path, base="free", contact="ground", folder=folder), False
        except jaxdyn.MechanismError:
            return jaxdyn.io.load_urdf(path, base="free", contact="ground", folder=folder, unphysical="repair"), True


def posture(system: jaxdyn.System, path: Path | None) -> tuple[str, np.ndarray]:
    """Name and coordinates of the first posture in the SRDF files of the folder of the robot; zero where it states nothing."""
    model = system.model
    q = np.array(jaxdyn.configuration.neutral(model))
    name = "zero"
    if path is None:
        return name, q
    first = model.topology.joint_classes[0].nq
    folder = next((parent / "srdf" for parent in path.parents[:2] if (parent / "srdf").is_dir()), None)
    angles = {}
    files = sorted(folder.glob(f"{path.stem.split('_')[0]}*.srdf"), key=lambda file: len(file.name)) if folder else ()
    for file in files:
        state = ET.parse(file).getroot().find("group_state")
        if state is not None:
            name = state.get("name", "")
            angles = {joint.get("name"): joint.get("value", "0") for joint in state.iter("joint")}
            break
    topology = model.topology
    for body, joint in enumerate(topology.joint_names):
        columns = np.flatnonzero(np.asarray(topology.body_of_coordinate) == body)
        if joint in angles and len(columns) == 1:
            q[columns] = float(angles[joint].split()[0])
    q[first:] = np.clip(q[first:], np.asarray(model.limits.lower)[first:], np.asarray(model.limits.upper)[first:])
    return name, q


def margin(center: Any, points: Any) -> float:
    """Distance by which a center lies inside of the convex hull of the supports; negative outside."""
    points = np.asarray(points)
    supports = points[points[:, 2] < np.min(points[:, 2]) + SUPPORT, :2]
    edges = ConvexHull(supports, qhull_options="QJ").equations  # normals point outward; QJ accepts supports on a line
    return float(-np.max(edges[:, :2] @ np.asarray(center) + edges[:, 2]))


def examine(path: Path | None, config: Config) -> Row:
    system, repaired = loaded(path, config.folder)
    model = system.model
    name, q = posture(system, path)
    q = jaxdyn.assemble(system, system.at_rest(jnp.asarray(q)), throw=False).q if system.constraints else jnp.asarray(q)
    points = contact_forces(system, system.at_rest(q)).position
    q = q.at[2].add(-jnp.min(points[:, 2]))
    weight = float(jnp.sum(model.mass) * jnp.linalg.norm(model.gravity))
    stiffness = jnp.full(model.nv, config.stiffness * weight * float(q[2])).at[:FREE].set(0.0)
    standing = system.changed(forces=(*system.forces, JointServo(stiffness, config.damping * stiffness, q)))
    steps = round(config.duration / config.step)

    @jax.jit
    def simulated(state: jaxdyn.State) -> jaxdyn.State:
        return jaxdyn.rollout(standing, state, dt=config.step, steps=steps, save_every=steps).final

    begun = time.perf_counter()
    jax.block_until_ready(simulated(standing.at_rest(q)))
    compiled = time.perf_counter()
    final = jax.block_until_ready(simulated(standing.at_rest(q)))
    second = time.perf_counter() - compiled
    first = compiled - begun
    carried = float(jnp.sum(contact_forces(standing, final).force[:, 2])) / weight
    up = quaternion.rotate(final.q[3:7], jnp.asarray([0.0, 0.0, 1.0]))
    started = quaternion.rotate(q[3:7], jnp.asarray([0.0, 0.0, 1.0]))
    tilt = float(jnp.arccos(jnp.clip(jnp.dot(up, started), -1.0, 1.0)))
    lost = float(1.0 - final.q[2] / q[2])
    stands = tilt < config.largest_tilt and abs(lost) < LARGEST_LOSS and abs(carried - 1.0) < LARGEST_DIFFERENCE
    return Row(
        "quadruped of the library" if path is None else path.stem,
        model.nv,
        len(points),
        repaired,
        name,
        margin(jaxdyn.center_of_mass(model, q)[:2], points),
        stands,
        lost,
        tilt,
        float(jnp.linalg.norm(final.q[:2] - q[:2])),
        carried,
        first - second,
        second,
    )


def table(rows: list[Row], config: Config) -> list[str]:
    """Lines of the table in Markdown."""
    lines = [
        f"{sum(row.stands for row in rows)} of {len(rows)} robots stand after {config.duration:g} s in steps of "
        f"{1e3 * config.step:g} ms.",
        "",
        "| robot | nv | contact points | posture | margin (mm) | stands | lost height (%) | tilt (deg) | drift (mm) "
        "| carried weight (%) | compilation (s) | run (s) | remark |",
        "|" + 13 * "---|",
    ]
    for row in rows:
        lines.append(
            f"| {row.robot} | {row.nv} | {row.points} | {row.posture} "
            f"| {1e3 * row.margin:.0f} | {'yes' if row.stands else 'no'} "
            f"| {100.0 * row.lost_height:.2f} | {np.degrees(row.tilt):.2f} | {1e3 * row.drift:.1f} "
            f"| {100.0 * row.carried:.2f} | {row.compiling:.1f} | {row.running:.2f} | {'repaired' if row.repaired else ''} |"
        )
    return lines


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    rows: list[Row] = []
    refused: list[str] = []
    with jax.enable_x64(True):
        for path in tqdm(robots(config), desc="robots", unit="robot"):
            try:
                rows.append(examine(path, config))
            except (ConfigError, jaxdyn.MechanismError) as error:
                refused.append(f"* {str(error).removeprefix(f'{path.parent}/' if path else '')}")
    text = "\n".join([*table(rows, config), *(["", "Files that are refused:", "", *refused] if refused else [])])
    directory.path("table.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    return {
        "robots": [dataclasses.asdict(row) for row in rows],
        "standing": sum(row.stands for row in rows),
        "refused": refused,
    }


JOB = Job("standing-robots", __doc__ or "", Config, work)

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
