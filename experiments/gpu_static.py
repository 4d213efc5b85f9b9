"""What does a kernel of the lane compiler cost on a GPU, judged without one?

Method. The forward dynamics, their vector-Jacobian product and the gradient of a rollout become kernels, for chains, the Panda arm
and a tree. NVIDIA's assembler `ptxas` (from the wheel nvidia-cuda-nvcc) compiles them for one processor, and reports how many
registers a thread uses, and how many bytes it writes to and reads from memory because the registers did not suffice. The
instructions are counted in the listing of the machine code that `cuobjdump` makes.

Model. A multiprocessor issues four instructions for 32 threads in each clock. Values for which there is no register go to memory:
through the cache while that of all threads fits there, and through far memory otherwise. The static rate is the smaller of both:
of evaluations per second, or of steps for a gradient, whose two loops have about as many instructions as the kernel. It leaves
out waiting for operands and for instructions. Measured on an H100, the forward dynamics of the Panda arm reach 0.65 of it in
float32, and kernels of more than some 4000 instructions less: these no longer fit the cache for instructions.

Run time. About 10 min.

    python experiments/gpu_static.py [configs/gpu_static.toml] [--out DIR] [--smoke] [key=value ...]
"""

import dataclasses
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from peers.jaxdyn_routes import function_of
from peers.mechanisms import mechanism
from peers.task import GRADIENT, Task
from tqdm import tqdm

import jaxdyn
from jaxdyn.io import RunDirectory, RunError, setting
from jaxdyn.jobs import Job, main
from jaxdyn.lanes import gpu
from jaxdyn.lanes.derived import program_of, traced
from jaxdyn.lanes.ptx_code import KERNEL

# An H100 or H200 (SXM): multiprocessors, clock in Hz, bytes of the cache, bytes per second from the cache and from far memory.
_MULTIPROCESSORS, _CLOCK = 132, 1.98e9
_CACHE, _CACHE_RATE, _MEMORY_RATE = 50e6, 5.5e12, 3.0e12
_THREADS = 256 * _MULTIPROCESSORS
_BATCH, _STEPS = 65536, 100

Function = Literal["forward dynamics", "vector-Jacobian product", "rollout gradient"]


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        processor: Processor for which the code is compiled.
        mechanisms: "panda", "chain N" or "tree 27".
        functions: Names of the compiled functions.
        most_time: Maximum time of the assembler for one kernel, s; kernels that take longer are left out.
    """

    processor: str = "sm_90"
    mechanisms: tuple[str, ...] = ("chain 2", "panda", "chain 16", "tree 27", "chain 32", "chain 64")
    functions: tuple[Function, ...] = ("forward dynamics", "vector-Jacobian product", "rollout gradient")
    most_time: float = setting(120.0, unit="s", positive=True)


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    jax.config.update("jax_enable_x64", True)
    tools = folder_of_tools()
    rows: list[dict[str, Any]] = []
    cases = [(m, f, d) for m in config.mechanisms for f in config.functions for d in ("float32", "float64")]
    for name, function, dtype in tqdm(cases, unit="kernel"):
        rows.append(row_of(config, tools, name, function, dtype))
        directory.write_text("gpu_static.json", json.dumps(rows, indent=1) + "\n")
        directory.write_text("table.md", report(config, rows))
    print(report(config, rows))
    return {"rows": rows}


def folder_of_tools() -> Path:
    """Where `ptxas` and `cuobjdump` are.

    Raises:
        RunError: They are not installed.
    """
    found = importlib.util.find_spec("nvidia")
    for home in (found.submodule_search_locations or []) if found else []:
        for path in Path(home).glob("*/bin/ptxas"):
            if (path.parent / "cuobjdump").exists():
                return path.parent
    raise RunError("ptxas and cuobjdump are not there; pip install nvidia-cuda-nvcc nvidia-cuda-cuobjdump")


def function_and_arguments(name: str, function: str, dtype: str) -> tuple[Callable, list[jax.ShapeDtypeStruct]]:
    """Of one sample."""
    model = jaxdyn.as_dtype(jaxdyn.library.panda(), jnp.dtype(dtype)) if name == "panda" else mechanism(name, dtype)
    n = model.nv
    one = jax.ShapeDtypeStruct((n,), dtype)
    if function == "rollout gradient":
        gradient = function_of(model, Task(GRADIENT, name, n, dtype, _BATCH, _STEPS, 1e-3), "lanes")
        return gradient, [one, one, jax.ShapeDtypeStruct((_STEPS, n), dtype)]
    forward = function_of(model, Task("forward dynamics", name, n, dtype, _BATCH), "lanes")
    if function == "forward dynamics":
        return forward, [one] * 3
    return lambda q, v, tau, w: jax.vjp(forward, q, v, tau)[1](w), [one] * 4


def row_of(config: Config, tools: Path, name: str, function: str, dtype: str) -> dict[str, Any]:
    """Everything about one kernel."""
    row: dict[str, Any] = {"mechanism": name, "function": function, "dtype": dtype}
    start = time.perf_counter()
    own, arguments = function_and_arguments(name, function, dtype)
    program = program_of(traced(lambda *a: jax.tree.leaves(own(*a)), arguments))
    row["trace_s"] = time.perf_counter() - start
    layouts = (["rows"] * len(program.inputs), ["rows"] * len(program.outputs))
    kernel = gpu.Kernel(program, *layouts, _BATCH)
    row |= {"ptx_s": kernel.code_s, "operations": kernel.operations, "scratch_bytes": kernel.scratch_bytes}
    with tempfile.TemporaryDirectory() as folder:
        text, binary = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        text.write_text(kernel.ptx)
        command = [tools / "ptxas", f"-arch={config.processor}", "-v", text, "-o", binary]
        start = time.perf_counter()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=config.most_time, check=True)
        except subprocess.TimeoutExpired:
            return row
        row["ptxas_s"] = time.perf_counter() - start
        listing = subprocess.check_output([tools / "cuobjdump", "-sass", "-fun", KERNEL, binary], text=True)
    said = done.stdout + done.stderr
    own_part = said[said.rindex(f"properties for {KERNEL}\n") :]
    stack, stores, loads = map(int, re.findall(r"(\d+) bytes stack frame, (\d+) .*?, (\d+)", own_part)[0])
    row |= {"registers": int(re.findall(r"Used (\d+) registers", said)[-1]), "stack": stack}
    row["spilled"] = stores + loads
    opcodes = re.findall(r"^\s*/\*[0-9a-f]{4,6}\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_]+)", listing, re.MULTILINE)
    row["instructions"] = sum(op != "NOP" for op in opcodes)
    issue = _MULTIPROCESSORS * 4 * 32 * _CLOCK / row["instructions"]
    through = _CACHE_RATE if stack * _THREADS < _CACHE else _MEMORY_RATE
    row["static_rate"] = min(issue, through / row["spilled"] if row["spilled"] else np.inf)
    return row


def report(config: Config, rows: list[dict[str, Any]]) -> str:
    """The rows as a page."""
    lines = [
        "# Kernels judged without a GPU",
        "",
        f"For {config.processor}. Spilled bytes are those written and read per evaluation; times are those of a CPU.",
        "",
        "| mechanism | function | precision | operations | registers | spilled bytes | instructions | static rate, 1/s | "
        "trace | PTX | ptxas |",
        "|" + "---|" * 11,
    ]
    for row in rows:
        cells = [row["mechanism"], row["function"], row["dtype"], str(row["operations"])]
        if "registers" in row:
            cells += [str(row[k]) for k in ("registers", "spilled", "instructions")] + [f"{row['static_rate']:.2g}"]
        else:
            cells += ["", "", "", ""]
        cells += [f"{row['trace_s']:.1f} s", f"{row['ptx_s']:.2f} s"]
        cells += [f"{row['ptxas_s']:.1f} s" if "ptxas_s" in row else f"more than {config.most_time:g} s"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


JOB = Job("gpu-static", __doc__ or "", Config, work)

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
