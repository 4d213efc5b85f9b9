"""What do kernels of the lane compiler cost on a GPU, judged without one?

Method. The forward dynamics, their vector-Jacobian product and the gradient of a rollout become kernels, for chains, the Panda arm
and a tree. NVIDIA's assembler `ptxas` (from the wheel nvidia-cuda-nvcc) compiles them for one processor, and reports how many
registers a thread uses, and how many bytes it writes to and reads from memory because the registers did not suffice. The
instructions are counted in the listing of the machine code that `cuobjdump` makes.

Model. A multiprocessor issues four instructions for 32 threads in each clock, as long as the instructions of a kernel fit its
cache. In a longer kernel each line of eight instructions takes some 150 clocks to arrive, and serves the 256 threads that a
multiprocessor runs. Values for which there is no register go to memory: through the cache while that of all threads fits there, and
through far memory otherwise, like the values that one kernel of a long program leaves to another one. The static rate is that of
the slower of instructions and memory: evaluations per second, or steps for a gradient, whose two loops have about as many
instructions as the kernel. It leaves out waiting for operands. Sixteen of these functions, measured on an H200, reach 0.4 to 1.9 of
it.

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
from peers.jaxdyn_routes import function_of
from peers.mechanisms import mechanism
from peers.task import GRADIENT, Task
from tqdm import tqdm

import jaxdyn
from jaxdyn.io import RunDirectory, RunError, setting
from jaxdyn.jobs import Job, main
from jaxdyn.lanes import gpu
from jaxdyn.lanes.derived import program_of, traced
from jaxdyn.lanes.parts import bytes_of_node
from jaxdyn.lanes.ptx_code import KERNEL

# An H100 or H200 (SXM): multiprocessors, clock in Hz, bytes of the cache, bytes per second from the cache and from far memory.
_MULTIPROCESSORS, _CLOCK = 132, 1.98e9
_CACHE, _CACHE_RATE, _MEMORY_RATE = 50e6, 5.5e12, 3.0e12
_THREADS_OF_MULTIPROCESSOR = 256
# Instructions that fit the cache, instructions of a line, and clocks until a line of a longer kernel arrives.
_CACHED, _LINE, _FETCH = 8200, 8, 150
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
    """Everything about the kernels of one function."""
    row: dict[str, Any] = {"mechanism": name, "function": function, "dtype": dtype}
    start = time.perf_counter()
    own, arguments = function_and_arguments(name, function, dtype)
    program = program_of(traced(lambda *a: jax.tree.leaves(own(*a)), arguments))
    row["trace_s"] = time.perf_counter() - start
    layouts = (["rows"] * len(program.inputs), ["rows"] * len(program.outputs))
    kernels = gpu.Kernels(program, *layouts, _BATCH)
    row |= {"ptx_s": kernels.code_s, "operations": kernels.operations, "kernels": len(kernels.launched)}
    try:
        compiled = [compiled_kernel(config, tools, kernel.ptx) for kernel in kernels.launched]
    except subprocess.TimeoutExpired:
        return row
    row["registers"] = max(kernel["registers"] for kernel in compiled)
    row |= {key: sum(kernel[key] for kernel in compiled) for key in ("spilled", "instructions", "ptxas_s")}
    row["kept"] = sum(kernel.part.kept_bytes for kernel in kernels.launched)
    row["static_rate"] = 1 / sum(map(seconds_of, compiled, kernels.launched))
    return row


def compiled_kernel(config: Config, tools: Path, ptx: str) -> dict[str, Any]:
    """Registers, instructions and spilled bytes of one kernel, and the time of the assembler.

    Raises:
        TimeoutExpired: It takes too long.
    """
    with tempfile.TemporaryDirectory() as folder:
        text, binary = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        text.write_text(ptx)
        command = [tools / "ptxas", f"-arch={config.processor}", "-v", text, "-o", binary]
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, timeout=config.most_time, check=True)
        seconds = time.perf_counter() - start
        listing = subprocess.check_output([tools / "cuobjdump", "-sass", "-fun", KERNEL, binary], text=True)
    said = done.stdout + done.stderr
    own_part = said[said.rindex(f"properties for {KERNEL}\n") :]
    stack, stores, loads = map(int, re.findall(r"(\d+) bytes stack frame, (\d+) .*?, (\d+)", own_part)[0])
    opcodes = re.findall(r"^\s*/\*[0-9a-f]{4,6}\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_]+)", listing, re.MULTILINE)
    return {
        "registers": int(re.findall(r"Used (\d+) registers", said)[-1]),
        "stack": stack,
        "spilled": stores + loads,
        "instructions": sum(op != "NOP" for op in opcodes),
        "ptxas_s": seconds,
    }


def seconds_of(compiled: dict[str, Any], kernel: gpu.Kernel) -> float:
    """Time of a kernel for one evaluation by the model above."""
    fetched = compiled["instructions"] > _CACHED
    clocks = _FETCH / _LINE / _THREADS_OF_MULTIPROCESSOR if fetched else 1 / (4 * 32)
    instructions = compiled["instructions"] * clocks / (_MULTIPROCESSORS * _CLOCK)
    in_cache = compiled["stack"] * _THREADS_OF_MULTIPROCESSOR * _MULTIPROCESSORS < _CACHE
    spilled = compiled["spilled"] / (_CACHE_RATE if in_cache else _MEMORY_RATE)
    exchanged = kernel.part.kept_bytes + sum(bytes_of_node(node) for node in kernel.part.earlier)
    return max(instructions, spilled + exchanged / _MEMORY_RATE)


def report(config: Config, rows: list[dict[str, Any]]) -> str:
    """The rows as a page."""
    lines = [
        "# Kernels judged without a GPU",
        "",
        f"For {config.processor}. Spilled bytes are those written and read per evaluation; exchanged bytes are those that kernels "
        "leave to later ones. Times are those of a CPU.",
        "",
        "| mechanism | function | precision | operations | kernels | registers | spilled bytes | exchanged bytes | instructions | "
        "static rate, 1/s | trace | PTX | ptxas |",
        "|" + "---|" * 13,
    ]
    for row in rows:
        cells = [row["mechanism"], row["function"], row["dtype"], str(row["operations"]), str(row["kernels"])]
        if "registers" in row:
            cells += [str(row[k]) for k in ("registers", "spilled", "kept", "instructions")] + [
                f"{row['static_rate']:.2g}"
            ]
        else:
            cells += [""] * 5
        cells += [f"{row['trace_s']:.1f} s", f"{row['ptx_s']:.2f} s"]
        cells += [f"{row['ptxas_s']:.1f} s" if "ptxas_s" in row else f"more than {config.most_time:g} s"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


JOB = Job("gpu-static", __doc__ or "", Config, work)

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
