"""How fast is one evaluation of the dynamics, in jaxdyn and in other libraries?

Method. Forward dynamics, inverse dynamics, forward kinematics (placements of all bodies), mass matrix, Coriolis matrix, Christoffel
symbols, and the derivatives of the forward dynamics by q and v, of chains of random bodies and of a tree of 27 hinges, for
batches from one sample to 65536, in single and double precision. Routes are jaxdyn's lane compiler, XLA for the
same functions, and every library that is given:

    Pinocchio             C++ compiled for this processor (peers/pinocchio_dynamics.cpp), in both precisions, a loop over samples
    frax, MJX, JaxSim,    jit(vmap(f)), each with the version of JAX that it is fastest on; derivatives by jacfwd, and the symbols
    adam, Brax            from those of the mass matrix

Pinocchio has no Christoffel symbols; the Coriolis matrix is the nearest that it has. MuJoCo C has no batched call for any of these
functions; it is measured in benchmark_rollout.py.

Each route is a separate process on `threads` cores. For every task all of them compile and call once (memory and compile time are
noted, and results are compared with jaxdyn's in float64), then they take turns; every call ends when its result is there, and the
median counts. A peer whose accelerations differ is not timed. A task that takes longer than `most_time` to compile and call, or
more than `most_memory`, is left out, and the table says so.

Rows are kept as they come, the most informative ones first. An interrupted run leaves the table of its
measurements, and is resumed by the same command with --resume.

Peers are optional. table.md names those that are absent and how to install them, each in a separate environment, given as
peer_environments.frax=DIR/bin/python and so on. On a GPU, give arithmetic_limit (operations per second) and memory_limit (bytes
per second) of the device: the table then shows the fraction that is reached. Operations are those of the program of the lane
compiler, for both routes; a limit that counts a fused multiply-add as two is reached only by a program that consists of these
alone.

Run time. About 4 h with all peers. Leave the machine alone meanwhile.

    python experiments/benchmark_dynamics.py [configs/benchmark_dynamics.toml] [--out DIR] [--smoke] [key=value ...]
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any, Literal

from peers.benchmark import Settings, run, sources
from peers.task import DYNAMICS

from jaxdyn.io import RunDirectory
from jaxdyn.jobs import Job, main

Function = Literal[
    "forward dynamics",
    "inverse dynamics",
    "forward kinematics",
    "mass matrix",
    "Coriolis matrix",
    "Christoffel symbols",
    "derivatives of forward dynamics",
]


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """Settings of this benchmark.

    Attributes:
        functions: Names of the measured functions.
    """

    functions: tuple[Function, ...] = tuple(DYNAMICS)  # pyright: ignore[reportAssignmentType]


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    return run(config, directory, config.functions)


JOB = Job("benchmark-dynamics", __doc__ or "", Config, work, sources)

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
