"""Devices of a job: one device, all devices of this machine, or the devices of several hosts that compute one fit together.

Rollouts and searches need no connection between hosts: independent processes divide their chunks (`io.runs.directory.Chunks`).
Hosts of a fit find each other through the cluster manager, as `jax.distributed` does, or through environment variables:
JAX_COORDINATOR_ADDRESS (host:port of the first host, the same on all hosts), JAX_NUM_PROCESSES and JAX_PROCESS_ID. All hosts run
the same command; the first one writes the run directory.
"""

import contextlib
import io
import os
import re
from collections.abc import Callable, Iterator
from typing import TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from jaxdyn.compute.devices import lane_mesh
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.files import fill_npz
from jaxdyn.jobs.choices import HostChoice
from jaxdyn.jobs.interrupts import handle_signals

T = TypeVar("T")


def join_hosts() -> None:
    """Connect to the other hosts and wait until all of them are connected.

    Raises:
        ConfigError: The hosts are not specified, or one of them does not answer.
    """
    if jax.distributed.is_initialized():
        return
    given = {name: os.environ.get(name) for name in ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID")}
    try:
        count, number = (None if text is None else int(text) for text in given.values())
        jax.distributed.initialize(num_processes=count, process_id=number)
    except (ValueError, RuntimeError, jax.errors.JaxRuntimeError) as error:
        raise ConfigError(
            f"devices = hosts: {' '.join(str(error).split())[:200]}; start one process per host with JAX_COORDINATOR_ADDRESS "
            "(host:port of the first), JAX_NUM_PROCESSES and JAX_PROCESS_ID, or under a cluster manager that JAX knows"
        ) from None
    handle_signals()  # JAX takes SIGTERM for itself
    # Of the GPUs that a task of SLURM sees, JAX takes the one with the index of the task on its host. That leaves the others idle
    # if there is one task per host, and is wrong if each task sees only the GPUs that are bound to it.
    is_alone = re.fullmatch(r"1(\(x\d+\))?", os.environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    if (is_alone or "SLURM_GPUS_PER_TASK" in os.environ) and "JAX_LOCAL_DEVICE_IDS" not in os.environ:
        jax.config.update("jax_cuda_visible_devices", "all")
        jax.config.update("jax_rocm_visible_devices", "all")


def devices_in_words() -> str:
    """Text such as "64 devices on 8 hosts", which states the GPUs of a SLURM job that are idle."""
    hosts, devices = int(os.environ.get("SLURM_STEP_NUM_NODES", "0")), jax.device_count()
    text = f"{devices} devices on {hosts} hosts" if hosts else f"{devices} devices in {jax.process_count()} processes"
    idle = hosts * int(os.environ.get("SLURM_GPUS_ON_NODE", "0")) - devices
    return text if idle <= 0 else f"{text}; {idle} GPUs of these hosts are idle, so start one task per host or per GPU"


def mesh_of(devices: HostChoice) -> Mesh | None:
    """The devices over which a batch is divided; None if the batch is not divided."""
    if devices == "one" or jax.device_count() == 1:
        return None
    return lane_mesh()


def is_first() -> bool:
    """Whether this host writes the results."""
    return jax.process_index() == 0


def agreed(value: T) -> T:
    """Broadcast a value of the first host to all hosts, so that all hosts take the same decisions."""
    if jax.process_count() == 1:
        return value
    said = multihost_utils.broadcast_one_to_all(value)
    return type(value)(said) if isinstance(value, bool | int) else said  # pyright: ignore[reportReturnType]


def agreed_arrays(read: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Broadcast the arrays that the first host reads to all hosts."""
    if jax.process_count() == 1:
        return read()
    content = io.BytesIO()
    if is_first():
        fill_npz(content, read())
    size = agreed(content.getbuffer().nbytes)
    held = np.frombuffer(content.getvalue(), np.uint8) if is_first() else np.zeros(size, np.uint8)
    with np.load(io.BytesIO(np.asarray(agreed(held)).tobytes()), allow_pickle=False) as arrays:
        return dict(arrays)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Context in which nothing is printed, for all hosts except the first one."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        yield
