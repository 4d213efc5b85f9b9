"""How fast are rollouts and their gradients, in jaxdyn and in other libraries?

Method. Rollouts by semi-implicit Euler with given torques in every step, and value with reverse gradient of sum(q_last^2) by
initial state and all torques, for the mechanisms, batches and precisions of benchmark_dynamics.py. Routes are the lane compiler,
XLA for the same rollout, and every library that is given:

    MuJoCo                        `mujoco.rollout`, in C, always in double precision; it has no reverse gradient
    MJX, Brax                     their own steps in a scan
    frax, JaxSim, adam            their own accelerations, and the two lines of semi-implicit Euler, in a scan

A call makes 100 steps, or fewer so that a batch makes at most `most_steps` steps together; rates are per step. Rules, limits,
peers, the use of a GPU and how to resume an interrupted run are those of benchmark_dynamics.py. Before a peer makes a
rollout, its accelerations are compared with jaxdyn's in float64. Differences of the rollouts are reported too.

Run time. About 2 h with all peers. Leave the machine alone meanwhile.

    python experiments/benchmark_rollout.py [configs/benchmark_rollout.toml] [--out DIR] [--smoke] [key=value ...]
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any, Literal

from peers.benchmark import Settings, run, sources
from peers.task import GRADIENT, ROLLOUT

from jaxdyn.io import RunDirectory, setting
from jaxdyn.jobs import Job, main


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """Settings of this benchmark.

    Attributes:
        functions: Names of the measured functions.
        dt: Length of a step.
        most_steps: Maximum of samples times steps of a call.
    """

    functions: tuple[Literal["rollout", "rollout gradient"], ...] = (ROLLOUT, GRADIENT)
    dt: float = setting(1e-4, unit="s", positive=True)
    most_steps: int = setting(409600, positive=True)


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    return run(config, directory, config.functions, dt=config.dt, most_steps=config.most_steps)


JOB = Job("benchmark-rollout", __doc__ or "", Config, work, sources)

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
