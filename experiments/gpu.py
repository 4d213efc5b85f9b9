"""What does the lane compiler do on this GPU, and is it right?

Method. First the canary: a kernel with every operation against XLA. Then rates of the Panda arm over batches and precisions, beside
XLA for the same functions, with the time that XLA takes to compile and the first call, in this process and in a second one,
which finds the driver's cache; of forward dynamics and rollouts of the other mechanisms; of the quadrupeds with a noisy network
policy of noisy_policies.py; and over block sizes. Short calls follow one another, the clock stops when the last result is there,
and the median counts. Every function of benchmark_dynamics.py, rollouts and their gradients, for all mechanisms in float32 and
float64, are compared with the lane compiler of the CPU in float64, and the network policies in float32. Every figure is written as
soon as it is there.

The memory limit is measured, by a copy. The arithmetic limit is one operation per clock and lane of 128 lanes per multiprocessor,
at the clock that the driver gives as the highest; operations are those of the lane program.

Run time. At most 8 min. Needs an NVIDIA GPU and the dependencies of jaxdyn only.

    python experiments/gpu.py [configs/gpu.toml] [--out DIR] [--smoke] [key=value ...]
"""

import dataclasses
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# A second process needs memory of the device too.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import noisy_policies
import numpy as np
from peers.jaxdyn_routes import function_of
from peers.mechanisms import mechanism
from peers.task import DYNAMICS, GRADIENT, ROLLOUT, Task, difference
from tqdm import tqdm

import jaxdyn
from jaxdyn.cache.fingerprint import sources_digest
from jaxdyn.io import RunDirectory, RunError, setting
from jaxdyn.jobs import Job, main
from jaxdyn.lanes import gpu
from jaxdyn.lanes import rules as rules  # registers the rules of the primitives
from jaxdyn.lanes.derived import program_of, traced
from jaxdyn.lanes.ptx_code import launch_for

_LANES_OF_MULTIPROCESSOR = 128
# Share of these lanes that compute in double precision: on GPUs for computing, whose compute capability ends with 0, and on others.
_DOUBLES, _FEW_DOUBLES = 1 / 2, 1 / 64
# Calls of a round, and the time that a round should take, s. A single short call would measure how fast Python starts it.
_MOST_CALLS, _ROUND = 200, 0.03
_ARM = "panda"
# Bytes of arguments and results of a call, at most.
_LARGEST_TASK = 1.5e10
_UNITS = 64  # of each layer of a network policy
_TIMED = ("forward dynamics", ROLLOUT, GRADIENT)


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        platform: Platform of the device; "cpu" tries the script without a GPU.
        mechanisms: "panda", "chain N" or "tree 27".
        large: Further mechanisms, of which only the rate of forward dynamics is measured.
        checked: Number of samples of a check, which fill a part of a block.
        batches: Batch sizes of the rates.
        blocks: Threads per block, for rates of forward dynamics and rollouts; may be empty.
        steps: Number of steps of a rollout, and of a gradient.
        policies: Batch sizes of the quadrupeds with a network policy.
        policy_steps: Number of their steps.
        xla_samples: Maximum of samples times steps of a call of XLA.
        rounds: Number of timed calls.
    """

    platform: str = "cuda"
    mechanisms: tuple[str, ...] = (_ARM, "chain 2", "chain 16", "tree 27")
    large: tuple[str, ...] = ("chain 32",)
    checked: int = setting(97, positive=True)
    batches: tuple[int, ...] = setting((4096, 65536, 1_000_000), positive=True)
    blocks: tuple[int, ...] = setting((32, 64, 128, 256), positive=True)
    steps: tuple[int, int] = setting((1000, 100), positive=True)
    policies: tuple[int, ...] = setting((4096, 65536), positive=True)
    policy_steps: int = setting(50, positive=True)
    xla_samples: int = setting(5_000_000, positive=True)
    rounds: int = setting(5, positive=True)


def model_named(name: str, dtype: str) -> jaxdyn.Model:
    if name == _ARM:
        return jaxdyn.as_dtype(jaxdyn.library.panda(), jnp.dtype(dtype))
    return mechanism(name, dtype)


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    try:
        device = jax.local_devices(backend=config.platform)[0]
    except RuntimeError as error:
        raise RunError(f"there is no GPU of NVIDIA that JAX can use; install jaxdyn[gpu] ({error})") from error
    jax.config.update("jax_enable_x64", True)
    found: dict[str, Any] = {"environment": environment(device)}
    print(json.dumps(found["environment"], indent=1))
    found["canary"] = "passed" if gpu.is_usable() else gpu.obstacle() or "not run, for there is no GPU"
    print(f"canary: {found['canary']}")
    parts = {"rates": measured, "policies": policies, "differences": checked, "blocks": over_blocks}
    for name, part in parts.items():
        found[name] = []
        for row in part(config, device):
            found[name].append(row)
            directory.write_text("gpu.json", json.dumps(found, indent=1) + "\n")
            directory.write_text("table.md", report(found))
    print(report(found))
    worst = max(row["difference"] / row["allowed"] for row in found["differences"] + found["policies"])
    if worst > 1 or (found["canary"] != "passed" and config.platform == gpu.PLATFORM):
        raise RunError("the canary failed, or results differ from the CPU by more than allowed; see table.md")
    return found


def environment(device: Any) -> dict[str, Any]:
    """Conditions on which the figures depend."""
    query = ["nvidia-smi", "--query-gpu=driver_version,clocks.max.sm,memory.total", "--format=csv,noheader,nounits"]
    try:
        driver, clock, memory = subprocess.check_output(query, text=True).split("\n")[0].split(", ")
    except (OSError, subprocess.CalledProcessError):
        driver, clock, memory = "unknown", "nan", "nan"
    multiprocessors = getattr(device, "core_count", 0)
    limit = multiprocessors * _LANES_OF_MULTIPROCESSOR * float(clock) * 1e6
    is_for_computing = str(getattr(device, "compute_capability", "")).endswith(".0")
    return jaxdyn.io.environment() | {
        "device": device.device_kind,
        "driver": driver,
        "memory_MiB": float(memory),
        "multiprocessors": multiprocessors,
        "arithmetic_limits": {"float32": limit, "float64": limit * (_DOUBLES if is_for_computing else _FEW_DOUBLES)},
        "memory_limit": copy_rate(device),
        "platform_version": device.client.platform_version.split("\n")[0],
        "lane_compiler": sources_digest("lanes"),
    }


def copy_rate(device: Any) -> float:
    """Bytes read and written per second by a copy of a large array."""
    size = 2**28 if device.platform != "cpu" else 2**22
    x = jax.device_put(np.ones(size, np.float32), device)
    return 2 * x.nbytes / timed(jax.jit(lambda x: x + 1), (x,), 5)


def timed(call: Callable, args: tuple, rounds: int) -> float:
    """Median time of a call, s, where as many calls follow one another as take some hundredths of a second together."""
    jax.block_until_ready(call(*args))
    start = time.perf_counter()
    jax.block_until_ready(call(*args))
    calls = min(_MOST_CALLS, 1 + int(_ROUND / (time.perf_counter() - start)))
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls - 1):
            call(*args)
        jax.block_until_ready(call(*args))
        times.append((time.perf_counter() - start) / calls)
    return statistics.median(times)


def compiled_route(model: jaxdyn.Model, task: Task, backend: jaxdyn.compute.Backend) -> Any:
    function = function_of(model, task, "lanes" if backend == "lanes" else "xla")
    return jax.jit(jax.vmap(jaxdyn.compute.per_sample(function, backend=backend)))


def checked(config: Config, device: Any) -> Iterator[dict[str, Any]]:
    """Differences of the kernels from the lane compiler of the CPU in float64."""
    cpu = jax.local_devices(backend="cpu")[0]
    tasks = [
        (f, m, d) for m in config.mechanisms for f in (*DYNAMICS, ROLLOUT, GRADIENT) for d in ("float32", "float64")
    ]
    for function, name, dtype in tqdm(tasks, unit="check"):
        n = model_named(name, dtype).nv
        if n > 7 and function in ("Christoffel symbols", "derivatives of forward dynamics", GRADIENT):
            continue  # minutes of compilation; the same operations are in the other rows
        # float32 rounds the arguments of the reference too, so that both work on the same samples.
        task = Task(function, name, n, dtype, config.checked, 20 if function in (ROLLOUT, GRADIENT) else 1, 1e-3)
        args = task.arguments()
        wide = jax.device_put(tuple(x.astype(np.float64) for x in args), cpu)
        reference = compiled_route(model_named(name, "float64"), task, "lanes")(*wide)
        start = time.perf_counter()
        actual = compiled_route(model_named(name, dtype), task, "lanes")(*jax.device_put(args, device))
        actual, reference = ([np.asarray(x) for x in jax.tree.leaves(y)] for y in (actual, reference))
        seconds = time.perf_counter() - start
        # Of the largest number of a sample; forward dynamics of random chains loses 3 to 4 digits in its conditioning.
        allowed = {"float32": 5e-3, "float64": 1e-10}[dtype] * (10 if n > 7 else 1)
        worst = difference(actual, reference)
        row = {"function": function, "mechanism": name, "dtype": dtype, "difference": worst, "allowed": allowed}
        yield row | {"first_s": seconds}


def measured(config: Config, device: Any) -> Iterator[dict[str, Any]]:
    """Rates, and times until they are reached."""
    cases = [(_ARM, f, d, b) for d in ("float32", "float64") for f in _TIMED for b in config.batches]
    others, both = config.mechanisms[1:], ("float32", "float64")
    cases += [(m, _TIMED[0], d, config.batches[-1]) for m in (*others, *config.large) for d in both]
    cases += [(m, ROLLOUT, "float32", config.batches[len(config.batches) // 2]) for m in others]
    for name, function, dtype, batch in tqdm(cases, unit="rate"):
        steps = {ROLLOUT: config.steps[0], GRADIENT: config.steps[1]}.get(function, 1)
        few = min(steps, 100)  # for XLA, and for large mechanisms
        steps = steps if name == _ARM else few
        first = name == _ARM and dtype == "float32"
        task = Task(function, name, model_named(name, dtype).nv, dtype, batch, steps, 1e-4)
        if task.bytes > _LARGEST_TASK:
            continue
        try:
            row = rate(task, "lanes", device, config.rounds)
            if first and batch == config.batches[0]:
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    row["second_process_s"] = pool.apply(second_process, (task, config.platform))
            yield row
            if first and batch * few <= config.xla_samples:
                yield rate(dataclasses.replace(task, steps=few), "xla", device, config.rounds)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            tqdm.write(f"left out, too little memory: {function} of {name}, {dtype}, {batch} samples")


def rate(task: Task, backend: jaxdyn.compute.Backend, device: Any, rounds: int) -> dict[str, Any]:
    """One row: evaluations or steps per second, and the compilation time."""
    model = model_named(task.mechanism, task.dtype)
    args = jax.device_put(task.arguments(), device)
    call = compiled_route(model, task, backend)
    start = time.perf_counter()
    compiled = call.lower(*args).compile()
    compile_s = time.perf_counter() - start
    start = time.perf_counter()
    jax.block_until_ready(compiled(*args))
    first_s = time.perf_counter() - start
    seconds = timed(compiled, args, rounds)
    row = {"mechanism": task.mechanism, "function": task.function, "dtype": task.dtype, "batch": task.batch}
    row |= {"steps": task.steps, "backend": backend}
    row |= {"compile_s": compile_s, "first_s": first_s, "seconds": seconds, "rate": task.batch * task.steps / seconds}
    row |= {"bytes_per_s": task.bytes / seconds}
    if backend == "lanes":
        row["operations_per_s"] = jaxdyn.lanes.records()[-1].operations * task.batch / seconds
    return row


def second_process(task: Task, platform: str) -> float:
    """Time from the function to its first result in a process that finds the caches of an earlier one, s."""
    jax.config.update("jax_enable_x64", True)
    device = jax.local_devices(backend=platform)[0]
    gpu.obstacle()
    args = jax.device_put(task.arguments(), device)
    model = model_named(task.mechanism, task.dtype)
    start = time.perf_counter()
    jax.block_until_ready(compiled_route(model, task, "lanes")(*args))
    return time.perf_counter() - start


def policies(config: Config, device: Any) -> Iterator[dict[str, Any]]:
    """Rates of quadrupeds with a noisy network policy, and differences from the CPU."""
    cpu = jax.local_devices(backend="cpu")[0]
    for name in (noisy_policies.ROLLOUT, noisy_policies.GRADIENT):
        call, args = policy(name, config.checked, config.policy_steps)
        found, expected = (jax.tree.leaves(call(*jax.device_put(args, place))) for place in (device, cpu))
        worst = max(
            float(np.max(np.abs(a - b)) / np.max(np.abs(b)))
            for a, b in zip(*jax.device_get((found, expected)), strict=True)
        )
        for batch in config.policies:
            call, args = policy(name, batch, config.policy_steps)
            args = jax.device_put(args, device)
            start = time.perf_counter()
            compiled = call.lower(*args).compile()
            compile_s = time.perf_counter() - start
            start = time.perf_counter()
            jax.block_until_ready(compiled(*args))
            row = {"function": name, "batch": batch, "compile_s": compile_s, "first_s": time.perf_counter() - start}
            row["rate"] = batch * config.policy_steps / timed(compiled, args, config.rounds)
            # Both in float32, after steps that accumulate rounding errors.
            yield row | {"difference": worst, "allowed": 1e-2}


def policy(name: str, batch: int, steps: int) -> tuple[Any, tuple]:
    """A function of noisy_policies.py for the lane compiler, and its arguments."""
    functions, args = noisy_policies.functions_of(batch, steps, _UNITS)
    return jax.jit(lambda *args: functions[name](*args, "lanes")), args


def over_blocks(config: Config, device: Any) -> Iterator[dict[str, Any]]:
    """Rates of kernels with other numbers of threads in a block."""
    if config.platform != gpu.PLATFORM:
        return
    for function, batch, block in tqdm([(f, b, k) for f in _TIMED[:2] for b in config.batches for k in config.blocks]):
        steps = {ROLLOUT: config.steps[0]}.get(function, 1)
        task = Task(function, _ARM, 7, "float32", batch, 100 if steps > 1 else 1, 1e-4)
        args = jax.device_put(task.arguments(), device)
        own = function_of(model_named(_ARM, "float32"), task, "lanes")
        jaxpr = traced(
            lambda *a, f=own: jax.tree.leaves(f(*a)), [jax.ShapeDtypeStruct(a.shape[1:], a.dtype) for a in args]
        )
        shapes = [jax.ShapeDtypeStruct((batch, *a.shape), a.dtype) for a in jaxpr.out_avals]
        rows_of = (["rows"] * len(args), ["rows"] * len(shapes))
        kernels = gpu.Kernels(program_of(jaxpr), *rows_of, batch, launch_for(batch, None, block))
        seconds = timed(jax.jit(lambda *a, k=kernels, s=shapes: k(a, s)), args, config.rounds)
        yield {"function": function, "batch": batch, "block": block, "rate": batch * task.steps / seconds}


def report(found: dict[str, Any]) -> str:
    """The record as a page."""
    about = found["environment"]
    lines = [
        "# The lane compiler on a GPU",
        "",
        f"{about['device']}, driver {about['driver']}, jax {about['jax']}, llvmlite {about['llvmlite']}, commit {about['commit']}. "
        f"Canary: {found['canary']}. A copy moves {about['memory_limit']:.3g} bytes/s; "
        "the arithmetic limits are "
        + " and ".join(f"{limit:.3g} operations/s in {dtype}" for dtype, limit in about["arithmetic_limits"].items())
        + ".",
        "",
    ]
    if "rates" in found:
        lines += ["## Rates", ""]
        lines += [
            "| mechanism | function | precision | batch | steps | backend | evaluations or steps per second | compile |"
        ]
        lines[-1] += " first call | second process | of arithmetic limit | of memory limit |"
        lines += ["|" + "---|" * 12]
        for r in found["rates"]:
            second = f"{r['second_process_s']:.2f} s" if "second_process_s" in r else ""
            done = r.get("operations_per_s", 0) / about["arithmetic_limits"][r["dtype"]]
            cells = [
                r["mechanism"],
                r["function"],
                r["dtype"],
                r["batch"],
                r["steps"],
                r["backend"],
                f"{r['rate']:.3g}",
            ]
            cells += [f"{r['compile_s']:.2f} s", f"{r['first_s']:.2f} s", second, f"{done:.0%}" if done else ""]
            cells += [f"{r['bytes_per_s'] / about['memory_limit']:.0%}"]
            lines += ["| " + " | ".join(map(str, cells)) + " |"]
        lines += [""]
    if found.get("policies"):
        lines += ["## Quadrupeds with a noisy network policy, float32", ""]
        lines += [
            "| | batch | steps per second | compile | first call | difference from the CPU in float32 | allowed |"
        ]
        lines += ["|" + "---|" * 7]
        for r in found["policies"]:
            cells = [r["function"], r["batch"], f"{r['rate']:.3g}", f"{r['compile_s']:.2f} s", f"{r['first_s']:.2f} s"]
            lines += ["| " + " | ".join(map(str, [*cells, f"{r['difference']:.1e}", f"{r['allowed']:.1e}"])) + " |"]
        lines += [""]
    if found.get("blocks"):
        lines += ["## Threads per block, float32, evaluations or steps per second", ""]
        blocks = sorted({r["block"] for r in found["blocks"]})
        lines += ["| function | batch | " + " | ".join(map(str, blocks)) + " |", "|" + "---|" * (2 + len(blocks))]
        for key in dict.fromkeys((r["function"], r["batch"]) for r in found["blocks"]):
            own = {r["block"]: r["rate"] for r in found["blocks"] if (r["function"], r["batch"]) == key}
            lines += [
                f"| {key[0]} | {key[1]} | " + " | ".join(f"{own[k]:.3g}" if k in own else "" for k in blocks) + " |"
            ]
        lines += [""]
    lines += [
        "## Differences from the CPU in float64",
        "",
        "| function | mechanism | precision | difference | allowed |",
    ]
    lines += ["|---|---|---|---|---|"]
    for r in found.get("differences", []):
        cells = (r["function"], r["mechanism"], r["dtype"], f"{r['difference']:.1e}", f"{r['allowed']:.1e}")
        lines += ["| " + " | ".join(cells) + " |"]
    return "\n".join(lines) + "\n"


JOB = Job("gpu", __doc__ or "", Config, work)

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
