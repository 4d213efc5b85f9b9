"""What does it cost to divide a batch over devices?

Method. The same batch of rollouts of the Panda arm, and of their gradients by initial state and torques, is taken to one device,
to two, and so on: the same total work. All devices are there from the start, the divisions take turns, every call blocks on its
result, and the median counts. On a CPU the devices are made of its cores: more devices than cores cannot be faster, and should not
be slower either. Results must be equal bit by bit.

Expected. The time per sample, relative to one device, stays below 1.1 on a CPU, and falls with the number of devices where each
is a separate device.

Run time. About 1 min on two cores.

    python experiments/batch_over_devices.py [configs/batch_over_devices.toml] [--out DIR] [--smoke] [key=value ...]
"""

import dataclasses
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

import jaxdyn
from jaxdyn.compute.devices import divided, whole
from jaxdyn.io import RunDirectory, RunError, setting
from jaxdyn.jobs import Job, main


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        devices: Counts of devices to compare; on a CPU they are emulated, elsewhere they must exist.
        batch: Number of samples, a multiple of each number of devices.
        steps: Number of steps of a rollout.
        rounds: Number of timed calls of each division.
    """

    devices: tuple[int, ...] = setting((1, 2, 4), positive=True)
    batch: int = setting(4096, positive=True)
    steps: int = setting(500, positive=True)
    rounds: int = setting(15, positive=True)

    def __post_init__(self):
        if not self.devices or any(self.batch % count for count in self.devices):
            raise ValueError(
                f"batch = {self.batch} is not a multiple of each of devices = {list(self.devices)}; choose one"
            )


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    jax.config.update("jax_num_cpu_devices", max(config.devices))
    model = jaxdyn.as_dtype(jaxdyn.library.panda(), jnp.float32)
    system = jaxdyn.System(model)

    def last(q, v, u):
        return jaxdyn.rollout(system, jaxdyn.State(q, v), u, dt=1e-3, steps=config.steps, save_every=config.steps).final

    def gradient(q, v, u):
        return jax.grad(lambda *x: jnp.sum(last(*x).q ** 2), (0, 1, 2))(q, v, u)

    keys = jax.random.split(jax.random.key(0), 3)
    shapes = ((model.nv,), (model.nv,), (config.steps, model.nv))
    batch = [jax.random.normal(key, (config.batch, *shape)) for key, shape in zip(keys, shapes, strict=True)]
    few = [x[: config.batch // 8] for x in batch]
    with tqdm(total=2 * (config.rounds + 1) * len(config.devices), unit="call") as bar:
        found = {
            "rollouts": measured(last, batch, config, bar),
            "gradients of rollouts": measured(gradient, few, config, bar),
        }
    lines = ["| | devices | time per sample and step | relative to one |", "|---|---|---|---|"]
    ratios: dict[str, dict[str, float]] = {}
    for name, times in found.items():
        samples = config.batch if name == "rollouts" else config.batch // 8
        ratios[name] = {str(count): t / times[config.devices[0]] for count, t in times.items()}
        for count, t in times.items():
            lines.append(f"| {name} | {count} | {t / samples / config.steps:.3g} s | {ratios[name][str(count)]:.3f} |")
    table = "\n".join(lines)
    print(table)
    directory.write_text("table.md", table + "\n")
    return {"seconds": {name: {str(k): t for k, t in times.items()} for name, times in found.items()}, "ratios": ratios}


def measured(function: Callable, batch: list[jax.Array], config: Config, bar: tqdm) -> dict[int, float]:
    """Median time of a call for each number of devices, s.

    Raises:
        RunError: There are too few devices, or results differ.
    """
    if jax.device_count() < max(config.devices):
        raise RunError(f"there are {jax.device_count()} devices; no entry of devices may exceed that")
    compiled = jax.jit(jax.vmap(jaxdyn.compute.per_sample(function)))
    calls, results = {}, []
    for count in config.devices:
        mesh = jaxdyn.compute.lane_mesh(jax.devices()[:count])
        arguments = divided(mesh, batch)
        calls[count] = lambda arguments=arguments: jax.block_until_ready(compiled(*arguments))
        results.append(jax.tree.map(np.asarray, whole(mesh, calls[count]())))
        bar.update()
    if jax.default_backend() == "cpu" and not all(
        jax.tree.all(jax.tree.map(np.array_equal, results[0], r)) for r in results
    ):
        raise RunError("the results of different numbers of devices are not equal bit by bit")
    times: dict[int, list[float]] = {count: [] for count in calls}
    for _ in range(config.rounds):
        for count, call in calls.items():
            begin = time.perf_counter()
            call()
            times[count].append(time.perf_counter() - begin)
            bar.update()
    return {count: statistics.median(taken) for count, taken in times.items()}


JOB = Job("batch-over-devices", __doc__ or "", Config, work)

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
