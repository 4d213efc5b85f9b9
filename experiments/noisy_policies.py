"""How fast are rollouts of quadrupeds whose policy is a small neural network with noise, and gradients by its weights?

Method. A network of two hidden layers takes the state of a quadruped to the torques of its twelve joints, and normal noise is
added in every step. A batch of rollouts, and the gradient of the mean squared speed at their ends by all weights, run in the lane
compiler and as jit(vmap(f)) of the same functions. Both are compiled and called once, and compared; then they take turns, every
call blocks on its result, and the median counts. Operations are those of one step of one quadruped, as the lane compiler counts
them.

Expected. Each is served by lanes, the gradient by a forward and a backward kernel, and results agree to rounding.

Run time. About 1 min on two cores.

    python experiments/noisy_policies.py [configs/noisy_policies.toml] [--out DIR] [--smoke] [key=value ...]
"""

import dataclasses
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

import jaxdyn
from jaxdyn.io import RunDirectory, RunError, setting
from jaxdyn.jobs import Job, main

ROLLOUT, GRADIENT = "rollout", "gradient by the weights"
_DT = 1e-3
_NOISE = 0.1  # standard deviation, N m
# Relative to the largest value, after steps in float32 that accumulate rounding errors.
_MOST_DIFFERENCE = 1e-2


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        batch: Number of quadrupeds.
        steps: Number of steps of a rollout, of 1 ms.
        units: Number of units of each of the two hidden layers.
        rounds: Number of timed calls.
    """

    batch: int = setting(4096, positive=True)
    steps: int = setting(50, positive=True)
    units: int = setting(64, positive=True)
    rounds: int = setting(3, positive=True)


def functions_of(batch: int, steps: int, units: int) -> tuple[dict[str, Callable], tuple]:
    """Functions of arguments and of a backend, by their names, and the arguments: weights, and q, v and a key of each quadruped."""
    system = jaxdyn.as_dtype(jaxdyn.System(jaxdyn.library.quadruped()), jnp.float32)
    model = system.model
    joints = model.nv - 6
    network = eqx.nn.MLP(model.nq + model.nv, joints, units, 2, jnp.tanh, dtype=jnp.float32, key=jax.random.key(0))
    weights, rest = eqx.partition(network, eqx.is_array)
    q = jnp.tile(jaxdyn.configuration.neutral(model), (batch, 1))
    v = 0.1 * jax.random.normal(jax.random.key(1), (batch, model.nv), jnp.float32)
    keys = jax.random.split(jax.random.key(2), batch)

    def speeds(weights, q, v, key, backend):
        def policy(t, state, key):
            torques = eqx.combine(weights, rest)(jnp.concatenate([state.q, state.v]))
            noise = _NOISE * jax.random.normal(key, (joints,), jnp.float32)
            return jnp.concatenate([jnp.zeros(6, jnp.float32), torques + noise])

        options = {"dt": _DT, "steps": steps, "save_every": steps, "backend": backend}
        return jaxdyn.rollout(system, jaxdyn.State(q, v), policy, key=key, **options).final.v

    def forward(weights, q, v, keys, backend):
        return jax.vmap(lambda q, v, key: speeds(weights, q, v, key, backend))(q, v, keys)

    functions = {
        ROLLOUT: forward,
        GRADIENT: jax.grad(lambda weights, *rest: jnp.mean(forward(weights, *rest) ** 2)),
    }
    return functions, (weights, q, v, keys)


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    functions, args = functions_of(config.batch, config.steps, config.units)
    rows = []
    with tqdm(total=2 * len(functions) * (1 + config.rounds), unit="call") as bar:
        for name, function in functions.items():
            rows += measured(name, function, args, config, bar)
    lines = ["| | backend | operations per step | steps per second | first call |", "|---|---|---|---|---|"]
    for row in rows:
        count = f"{row['operations']:.0f}" if row["operations"] else ""
        lines.append(f"| {row['name']} | {row['backend']} | {count} | {row['rate']:.3g} | {row['first_s']:.1f} s |")
    table = "\n".join(lines)
    print(table)
    directory.write_text("table.md", table + "\n")
    return {"rows": rows}


def measured(name: str, function: Callable, args: tuple, config: Config, bar: tqdm) -> list[dict[str, Any]]:
    """Rates of both backends.

    Raises:
        RunError: Lanes did not serve, or results differ.
    """
    rows, calls, results = [], {}, []
    for backend in ("lanes", "xla"):
        call = eqx.filter_jit(function)
        before, start = len(jaxdyn.lanes.records()), time.perf_counter()
        results.append(jax.block_until_ready(call(*args, backend)))
        row = {"name": name, "backend": backend, "first_s": time.perf_counter() - start, "operations": 0.0}
        served = jaxdyn.lanes.records()[before:]
        if backend == "lanes":
            if not served or any(record.backend != "lanes" for record in served):
                raise RunError(f"lanes did not serve all of the {name}: {served}")
            row["operations"] = sum(record.operations for record in served) / config.steps
        rows.append(row)
        calls[backend] = lambda call=call, backend=backend: jax.block_until_ready(call(*args, backend))
        bar.update()
    for a, b in zip(*map(jax.tree.leaves, results), strict=True):
        worst = float(np.max(np.abs(a - b)) / np.max(np.abs(b)))
        if not worst < _MOST_DIFFERENCE:
            raise RunError(f"results of the {name} differ by {worst:.1g} of the largest value")
    times: dict[str, list[float]] = {backend: [] for backend in calls}
    for _ in range(config.rounds):
        for backend, call in calls.items():
            start = time.perf_counter()
            call()
            times[backend].append(time.perf_counter() - start)
            bar.update()
    for row in rows:
        row["rate"] = config.batch * config.steps / statistics.median(times[row["backend"]])
    return rows


JOB = Job("noisy-policies", __doc__ or "", Config, work)

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
