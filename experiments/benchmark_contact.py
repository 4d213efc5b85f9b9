"""How fast is a walking robot with its feet on the ground, in jaxdyn and in other simulators?

Method. The quadruped of the library stands under PD control of its joints, with one or with four contact points at each foot. A
batch of it starts with random velocities and makes `steps` steps. Routes are jaxdyn's lane compiler, forward and with the reverse
gradient by the initial state, MuJoCo in C (`mujoco.rollout`), MJX and Brax, each in a separate process on one core. The peers read
the same robot, with contacts of the feet with the ground only, and keep their own contact model and solver. jaxdyn's contact is
compliant: it solves one system of equations per step, where MuJoCo iterates. So the table compares two models of contact of similar
softness, not two implementations of one.

Expected. jaxdyn in float32 makes at least 20 times as many steps per second as MuJoCo C, and 50 times as many as MJX and Brax on a
CPU; the gradient takes at most four times as long as the rollout; compilation takes less than 6 s.

MJX and Brax run in their own environments, which `[peer_environments]` of the config names; without them they are left out.
MuJoCo is optional: `pip install mujoco`.

Run time. About 2 min for jaxdyn and MuJoCo; MJX and Brax add several minutes. Leave the machine alone meanwhile.

    python experiments/benchmark_contact.py [configs/benchmark_contact.toml] [--out DIR] [--smoke] [key=value ...]
"""

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from peers import walker
from tqdm import tqdm

import jaxdyn
from jaxdyn.io import ConfigError, RunDirectory, setting
from jaxdyn.jobs import Job, main


@dataclasses.dataclass(frozen=True)
class PeerEnvironments:
    """Python executables of the environments that hold the peers.

    Attributes:
        mjx, brax: Path of the executable; the peer is left out without one.
    """

    mjx: str | None = None
    brax: str | None = None


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        points: Numbers of contact points of the robot, 4 or 16.
        dtypes: Precisions of jaxdyn, MJX and Brax; MuJoCo computes in double precision.
        batch: Number of samples.
        steps: Number of steps of a call.
        dt: Length of a step.
        speed: Standard deviation of the velocities at the start, rad/s and m/s.
        seconds: Minimum time for the calls of each route.
        most_time: Maximum time of each route; a route that takes longer is ended.
        peer_environments: Python of the environment of each peer.
    """

    points: tuple[Literal[4, 16], ...] = (4, 16)
    dtypes: tuple[Literal["float32", "float64"], ...] = ("float32", "float64")
    batch: int = setting(4096, positive=True)
    steps: int = setting(50, positive=True)
    dt: float = setting(0.002, unit="s", positive=True)
    speed: float = setting(0.1, minimum=0.0)
    seconds: float = setting(3.0, unit="s", positive=True)
    most_time: float = setting(900.0, unit="s", positive=True)
    peer_environments: PeerEnvironments = PeerEnvironments()


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    folder = directory.path("robots")
    folder.mkdir(exist_ok=True)
    for points in config.points:
        (folder / f"quadruped_{points}.xml").write_text(walker.mjcf(points, config.dt), encoding="utf-8")
    np.savez(folder / "start.npz", **start(config))
    routes = {"jaxdyn": sys.executable, "gradient": sys.executable}
    if importlib.util.find_spec("mujoco") is not None:
        routes["mujoco"] = sys.executable
    routes |= {name: path for name, path in dataclasses.asdict(config.peer_environments).items() if path}
    tasks = [
        (route, points, dtype)
        for points in config.points
        for route in routes
        for dtype in (("float64",) if route == "mujoco" else config.dtypes)
    ]
    rows = []
    for route, points, dtype in tqdm(tasks, unit="route"):
        answer = measured(routes[route], route, folder, points, dtype, config)
        rows.append({"route": route, "points": points, "dtype": dtype, **answer})
    text = table(rows, config)
    print(text)
    directory.write_text("table.md", text + "\n")
    return {"rows": rows, "jax": jax.__version__, "jaxdyn": jaxdyn.__version__}


def start(config: Config) -> dict[str, Any]:
    """States with random velocities about the robot at rest on its feet, and the targets of the controllers."""
    system = walker.standing(4, "float32")
    settled = jaxdyn.rollout(system, system.at_rest(jnp.asarray(walker.posture(), "float32")), dt=config.dt, steps=2000)
    v = config.speed * np.random.default_rng(0).normal(size=(config.batch, system.model.nv))
    q = np.tile(np.asarray(settled.final.q, float), (config.batch, 1))
    # The peers have the linear velocity of the trunk first, on ground axes; the trunk is level.
    ground = np.concatenate([v[:, 3:6], v[:, :3], v[:, 6:]], axis=1)
    return {
        "q": q,
        "v": v,
        "v_ground": ground,
        "target": walker.posture()[7:],
        "steps": np.array(config.steps),
        "dt": np.array(config.dt),
    }


def measured(python: str, route: str, folder: Path, points: int, dtype: str, config: Config) -> dict[str, Any]:
    """Answer of one route, or a problem in one line."""
    command = [python, "-m", "peers.contact_worker", route, str(folder), str(points), dtype, str(config.seconds)]
    here = Path(__file__).parent
    paths = os.pathsep.join(str(p) for p in (here, here.parent, os.environ.get("PYTHONPATH")) if p)
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=config.most_time,
            check=False,
            env={**os.environ, "PYTHONPATH": paths},
        )
    except subprocess.TimeoutExpired:
        return {"problem": f"took longer than {config.most_time:g} s"}
    except FileNotFoundError:
        raise ConfigError(f"peer_environments.{route}: there is no file {python}; give a Python executable") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "Error" in line] or ["no message"]
        return {"problem": lines[-1][:200]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def table(rows: list[dict[str, Any]], config: Config) -> str:
    """Rates of all routes, and their ratios to jaxdyn's rate in float32."""
    names = {
        "jaxdyn": "jaxdyn",
        "gradient": "jaxdyn, value and gradient",
        "mujoco": "MuJoCo C",
        "mjx": "MJX",
        "brax": "Brax",
    }
    lines = [
        f"Steps per second of one core, batch {config.batch}, dt = {1000 * config.dt:g} ms; `ratio` is the rate of jaxdyn in the "
        "first precision over that of the route.",
        "",
        "| contact points | route | precision | steps/s | ratio | first call (s) | version |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        head = f"| {row['points']} | {names[row['route']]} | {row['dtype']} |"
        if "problem" in row:
            lines.append(f"{head} {row['problem']} | | | |")
            continue
        same = [r for r in rows if r["route"] == "jaxdyn" and r["points"] == row["points"] and "rate" in r]
        ratio = f"{same[0]['rate'] / row['rate']:.3g}" if same else ""
        lines.append(f"{head} {row['rate']:.3g} | {ratio} | {row['first_s']:.2f} | {row['version']} |")
    return "\n".join(lines)


JOB = Job("benchmark-contact", __doc__ or "", Config, work)

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
