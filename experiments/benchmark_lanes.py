"""How fast is the lane compiler, against XLA and against other libraries?

Method. Everything is measured in one run on one machine, because ratios mean more than times. Each function is compiled afresh
(caches cleared, JAX itself warm), run once, compared with XLA's result on a few lanes, and then timed: the routes take turns, every
call blocks on its result, and the median counts. The lanes use `threads` threads, XLA all cores; Pinocchio, MuJoCo and the
libraries that use JAX get `threads` cores too. A rate counts evaluations of one sample, or steps of one sample in rollouts; the
slower routes make fewer steps per rollout. The Panda arm is followed by chains of random bodies. The mass matrix is factorized
(method "cholesky") for up to 7 bodies; longer chains go by "articulated_body".

Peers. Pinocchio and MuJoCo are measured if they are installed here (`pip install pin mujoco`, both in double precision). frax, MJX,
JaxSim, Brax and adam need environments of their own, where each has the version of JAX that it runs fastest on; the table says how
to install those that are absent. They are given as peer_environments.frax=DIR/bin/python and so on.

Device. On a GPU, configs/benchmark_lanes_gpu.toml compares forward dynamics and rollouts of a million samples with jit(vmap(f)) and
says which fraction of the limits of arithmetic and memory is reached. There the operations are those of the lane program, for
both routes; a limit that counts a fused multiply-add as two is reached only by a program of nothing else.

    python experiments/benchmark_lanes.py configs/benchmark_lanes_gpu.toml

Expected. The targets at the end of table.md: about ten times XLA and the peers, and derivatives at a small multiple of the value.

Run time. About 6 min on two cores, and 6 min more with all peers. Leave the machine alone meanwhile.

    python experiments/benchmark_lanes.py [configs/benchmark_lanes.toml] [--out DIR] [--smoke] [key=value ...]
"""

import dataclasses
import functools
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from peers.peer import JAX_PEERS, MuJoCo, Pinocchio
from tqdm import tqdm

import jaxdyn
from jaxdyn.io import RunDirectory, environment, setting
from jaxdyn.jobs import Job, main

Group = Literal["forward", "derivatives", "rollout", "single", "gradient", "chains", "tensors"]
GROUPS: tuple[Group, ...] = ("forward", "derivatives", "rollout", "single", "gradient", "chains", "tensors")
LARGEST_FACTORIZED = 7
CHECKED_LANES = 64
ROUNDS = 5
PEER_LIMIT = 600  # s
INSTALL = {
    "pinocchio": "pip install pin",
    "mujoco": "pip install mujoco",
    "frax": "pip install frax jax==0.6.2 jaxlib==0.6.2",
    "mjx": "pip install mujoco-mjx jax==0.6.2 jaxlib==0.6.2",
    "jaxsim": "pip install jaxsim jax==0.6.2 jaxlib==0.6.2",
    "brax": "pip install brax jax==0.10.2 jaxlib==0.10.2",
    "adam": "pip install adam-robotics[jax] jax==0.6.0 jaxlib==0.6.0",
}


@dataclasses.dataclass(frozen=True)
class PeerEnvironments:
    """Python executables of the environments that hold the peers which use JAX.

    Attributes:
        frax, mjx, jaxsim, brax, adam: path of the executable; the peer is left out without one.
    """

    frax: str | None = None
    mjx: str | None = None
    jaxsim: str | None = None
    brax: str | None = None
    adam: str | None = None


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        groups: what is measured.
        dtypes: precisions of forward dynamics, derivatives and rollouts; the rest is measured in the first one.
        arm: the arm of all groups but the chains: the Panda, or a chain of as many bodies.
        batch: samples of a batch.
        gradient_batch: samples of a batch of rollout gradients.
        dt: length of a step.
        steps: steps of a rollout by lanes, and of a single rollout by every route.
        compared_steps: steps of a rollout by the slower routes; rates are per step.
        gradient_steps: steps of a rollout that is differentiated.
        chains: numbers of bodies of the chains.
        tensor_chain: number of bodies of the chain for mass matrix and Christoffel symbols, besides the arm.
        threads: threads of the lanes and of every peer.
        seconds: least time for the repetitions of each route.
        arithmetic_limit: operations per second of the device; no fraction is given without it.
        memory_limit: bytes per second of the device's memory, likewise.
        peer_environments: where the peers are that use JAX.
    """

    groups: tuple[Group, ...] = setting(GROUPS)
    dtypes: tuple[Literal["float32", "float64"], ...] = setting(("float32", "float64"))
    arm: Literal["panda"] | int = setting("panda", positive=True)
    batch: int = setting(4096, positive=True)
    gradient_batch: int = setting(256, positive=True)
    dt: float = setting(1e-3, unit="s", positive=True)
    steps: int = setting(1000, positive=True)
    compared_steps: int = setting(100, positive=True)
    gradient_steps: int = setting(100, positive=True)
    chains: tuple[int, ...] = setting((2, 7, 16, 32, 64), positive=True)
    tensor_chain: int = setting(20, positive=True)
    threads: int = setting(1, positive=True)
    seconds: float = setting(0.5, unit="s", positive=True)
    arithmetic_limit: float | None = setting(None, positive=True)
    memory_limit: float | None = setting(None, positive=True)
    peer_environments: PeerEnvironments = setting(PeerEnvironments())

    def __post_init__(self):
        if not self.dtypes:
            raise ValueError("dtypes is empty; give float32, float64 or both")
