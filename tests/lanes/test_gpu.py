"""Calls on GPUs, as far as that needs none: what is lowered for them, and what happens where something is missing or wrong."""

import os
import re
import runpy
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from first_cases import first
from mechanisms import double_pendulum
from ptx_instructions import Decoder
from ptx_runs import by_gpu, interpreted, short  # noqa: F401

import jaxdyn
from jaxdyn.compute import per_sample
from jaxdyn.io import RunDirectory, RunError
from jaxdyn.lanes import canary, folding, gpu, llvm_code, records
from jaxdyn.lanes.derived import program_of, traced
from jaxdyn.lanes.entry import choose
from jaxdyn.lanes.liveness import Liveness
from jaxdyn.lanes.program import Node
from jaxdyn.lanes.ptx_code import Launch
from jaxdyn.lanes.scalar_types import FLOATS

MODEL = double_pendulum()
TARGET = "stablehlo.custom_call @__gpu$xla.gpu.ptx"


def lowered(function, *args) -> list[str]:
    """Operations of a function that is lowered for GPUs, but constants."""
    text = jax.jit(function).trace(*args).lower(lowering_platforms=(gpu.PLATFORM,)).as_text()
    operations = re.findall(r"^ +%\w+(?::\d+)? = (.*)$", text, re.MULTILINE)
    return [line for line in operations if not line.startswith("stablehlo.constant")]


def calls(operations: list[str]) -> list[str]:
    return [line for line in operations if line.startswith(TARGET)]


def grid(line: str) -> tuple[int, int]:
    """Blocks, and threads of each."""
    return tuple(int(re.findall(rf"{name} = (\d+) : i32", line)[0]) for name in ("grid_x", "block_x"))


def dynamics(backend="lanes"):
    return per_sample(lambda q, v, tau: jaxdyn.forward_dynamics(MODEL, q, v, tau), backend=backend)


def end(q, torques):
    moved = jaxdyn.rollout(
        jaxdyn.System(MODEL), jaxdyn.State(q, q), torques, dt=1e-2, steps=40, save_every=40, backend="lanes"
    )
    return moved.final.q


X = jnp.ones((130, 2))
TORQUES = jnp.ones((130, 40, 2))


def total(function):
    return lambda *x: jnp.sum(jax.vmap(function)(*x))


def steps(q):
    """Lanes within a loop of XLA."""
    return jax.lax.scan(lambda q, _: (jax.vmap(dynamics())(q, q, q), None), q, None, 3)[0]


# Function, arguments, calls of kernels, other operations on arrays of all samples.
LOWERED = {
    "forward dynamics": (jax.vmap(dynamics()), (X, X, X), 1, []),
    "shared argument": (jax.vmap(dynamics(), (0, 0, None)), (X, X, X[0]), 1, []),
    "rollout": (jax.vmap(end), (X, TORQUES), 1, []),
    "jvp": (lambda *x: jax.jvp(jax.vmap(dynamics()), x, x), (X, X, X), 2, []),
    "tangents": (lambda *x: jax.jvp(jax.vmap(dynamics()), x, x)[1], (X, X, X), 1, []),
    "cotangents": (lambda *x: jax.vjp(jax.vmap(dynamics()), *x)[1](x[0]), (X, X, X), 1, []),
    # The cotangent of the sum, and the two of q, which is the velocity too.
    "gradient of a rollout": (jax.grad(total(end), (0, 1)), (X, TORQUES), 2, ["broadcast_in_dim", "add"]),
    "Jacobian": (jax.vmap(jax.jacfwd(dynamics())), (X, X, X), 1, ["transpose", "slice"]),
    "batch of batches": (
        jax.vmap(jax.vmap(dynamics(), (0, 0, None)), (0, 0, None)),
        (X[None], X[None], X[0]),
        1,
        ["reshape"],
    ),
    "scan": (steps, (X,), 1, ["while", "func.call"]),
}


@pytest.mark.parametrize("name", LOWERED)
def test_calls_are_lowered_to_kernels_and_move_no_arrays(name):
    function, args, expected, allowed = LOWERED[name]
    before = len(records())
    operations = lowered(function, *args)
    found = calls(operations)
    others = [line for line in operations if line not in found and "130x" in line]
    assert len(found) == expected
    assert {line.split()[0].split("(")[0].removeprefix("stablehlo.") for line in others} <= set(allowed), others
    assert {grid(line) for line in found} == {(3, 64)}
    assert {(r.backend, r.width) for r in records()[before:]} == {("lanes", 1)}


# Most operations of a rollout are in its loop, which is not divided.
@pytest.mark.parametrize("name", [name for name in LOWERED if "rollout" not in name])
def test_calls_of_divided_programs_are_kernels_and_move_no_arrays(short, name):  # noqa: F811
    """One call of a kernel for each part, which exchange buffers and nothing else."""
    function, args, count, allowed = LOWERED[name]
    generated = short(100)
    operations = lowered(lambda *x: function(*x), *args)  # a function of its own, so that nothing is remembered
    found = calls(operations)
    others = [line for line in operations if line not in found and ("130x" in line or "ui8" in line)]
    assert len(found) == len(generated) > count
    assert {line.split()[0].split("(")[0].removeprefix("stablehlo.") for line in others} <= set(allowed), others
    results = [line.split(" -> ")[-1] for line in found]
    sizes = [[int(n) for n in re.findall(r"tensor<(\d+)xui8>", line)] for line in results]
    assert sizes == [[n for n in (kernel.kept_bytes, kernel.scratch_bytes) if n] for kernel in generated]


def test_a_single_sample_is_one_thread():
    (call_of_kernel,) = lowered(dynamics(), X[0], X[0], X[0])
    assert grid(call_of_kernel) == (1, 64)


@pytest.mark.parametrize("last", [False, True])
def test_arrays_beyond_2_to_the_31_elements(last):
    """Positions in such arrays are counted with 64 bits, and so are threads."""
    batch, n = 2**31 + 65, 3
    shape = jax.ShapeDtypeStruct((n, batch) if last else (batch, n), np.float32)
    function = jax.vmap(per_sample(jnp.negative, backend="lanes"), -1 if last else 0, -1 if last else 0)
    (kernel,) = calls(lowered(function, shape))
    assert grid(kernel) == (2**25 + 2, 64)
    assert f"{batch - 1};" in kernel
    assert re.findall(r"(?:add|shl|mad\.lo|mul\.lo)\.[bsu]32", kernel) == []


DEVICES = """
import jax, jax.numpy as jnp, numpy as np, sys
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jaxdyn.compute import per_sample

lane = jax.vmap(per_sample(lambda x, w: jnp.sin(x) * w, backend="lanes"), (0, None))
mesh = Mesh(np.array(jax.devices()), ("lanes",))
x = jax.ShapeDtypeStruct((512, 3), np.float32, sharding=NamedSharding(mesh, P("lanes")))
w = jax.ShapeDtypeStruct((3,), np.float32, sharding=NamedSharding(mesh, P()))
mapped = jax.shard_map(lane, mesh=mesh, in_specs=(P("lanes"), P()), out_specs=P("lanes"))
for function in (mapped, lane):
    print(jax.jit(function).trace(x, w).lower(lowering_platforms=("cuda",)).as_text())
"""


def test_lanes_are_divided_among_devices():
    """Under `shard_map` the kernel is one for the lanes of a device; elsewhere XLA asks how many these are when it compiles."""
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", DEVICES], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    mapped, divided = done.stdout.split("module @")[1:]
    assert re.findall(rf"{re.escape(TARGET)}.*grid_x = (\d+)", mapped) == ["2"]
    assert "CustomSPMDPartitioning" in divided


# ---------------------------------------------------------------- what is chosen


class Device:
    """In place of a GPU."""

    core_count = 7
    platform = "gpu"

    def __init__(self, memory: float = 2.0**30):
        self.memory = memory

    def memory_stats(self):
        return {"bytes_limit": self.memory}


def failure(run) -> str:
    """What the canary finds, in the precisions that tests use."""
    return gpu.failure(run, bool(jax.config.read("jax_enable_x64")))


@pytest.fixture(autouse=True)
def _no_memory_of_obstacles():
    gpu._obstacle.cache_clear()
    yield
    gpu._obstacle.cache_clear()


def with_gpu(monkeypatch, reason: str = "", device: Device | None = None) -> None:
    """A process that has a GPU, and what the canary says of it."""
    monkeypatch.setattr(gpu, "_devices", lambda: [device or Device()])
    monkeypatch.setattr(gpu, "failure", lambda run, with_float64, each: reason)
    monkeypatch.setattr(gpu, "_on_device", lambda device: None)


@pytest.mark.parametrize(
    ("platform", "has_gpu", "reason", "chosen"),
    [
        ("cpu", False, "", True),
        ("gpu", True, "", True),
        ("gpu", False, "", False),  # of another vendor
        ("tpu", False, "", False),
    ],
)
def test_what_auto_chooses(monkeypatch, platform, has_gpu, reason, chosen):
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    if has_gpu:
        with_gpu(monkeypatch, reason)
    assert choose() is chosen
    with jaxdyn.backend("lanes"):
        assert choose()
    with jaxdyn.backend("xla"):
        assert not choose()


def test_an_obstacle_leaves_everything_to_xla_with_one_warning(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with_gpu(monkeypatch, "a kernel computes wrong values")
    with warnings.catch_warnings(record=True, action="always") as warned:
        assert not choose()
        assert not choose()
        assert calls(lowered(jax.vmap(per_sample(jnp.sin, backend="lanes", name="left over")), X)) == []
    assert re.findall("XLA is used.*a kernel computes wrong values", "".join(str(w.message) for w in warned))
    assert len(warned) == 1
    assert (records()[-1].name, records()[-1].backend) == ("left over", "xla")
    assert records()[-1].reason == "a kernel computes wrong values"


def refused(error: Exception):
    """Runs nothing but functions of XLA."""

    def run(function, arrays):
        if function.__name__ == "<lambda>":
            raise error
        return [np.asarray(x) for x in jax.jit(function)(*arrays)]

    return run


REFUSALS = {
    "driver": "CUDA_ERROR_UNSUPPORTED_PTX_VERSION: the provided PTX was compiled with an unsupported toolchain.",
    "target": "UNIMPLEMENTED: No registered implementation for custom call to __gpu$xla.gpu.ptx for platform CUDA",
}


@pytest.mark.parametrize("name", REFUSALS)
def test_kernels_that_cannot_be_run_are_an_obstacle(monkeypatch, name):
    monkeypatch.setattr(gpu, "_devices", lambda: [Device()])
    monkeypatch.setattr(gpu, "_on_device", lambda device: refused(jax.errors.JaxRuntimeError(REFUSALS[name])))
    with warnings.catch_warnings(record=True, action="always") as warned:
        lowered(jax.vmap(per_sample(jnp.sin, backend="lanes")), X)
        assert not gpu.is_usable()
    assert len(warned) == 1
    assert REFUSALS[name] in gpu.obstacle()
    assert "cannot be loaded or run" in gpu.obstacle()
    assert records()[-1].reason == gpu.obstacle()


def test_a_platform_without_the_custom_call_is_found():
    """This CPU is one."""
    reason = failure(gpu._on_device(jax.local_devices(backend="cpu")[0]))
    assert "cannot be loaded or run" in reason
    assert "xla.gpu.ptx" in reason


def test_too_many_arrays_go_to_xla():
    few, many = ([jnp.ones(3)] * n for n in (gpu._MOST_ARRAYS - 1, gpu._MOST_ARRAYS))
    function = per_sample(lambda xs: sum(jnp.sum(x) for x in xs), backend="lanes", name="of many arrays")
    assert len(calls(lowered(function, few))) == 1
    assert calls(lowered(function, many)) == []
    assert records()[-1].backend == "xla"
    assert f"{gpu._MOST_ARRAYS + 1} arrays" in records()[-1].reason


def operations_of(function, *args) -> tuple[int, int]:
    """Number of operations of a function of one sample, and of those in its loops."""
    nodes = Liveness(program_of_case(function, args)).nodes
    return len(nodes), sum(node.block.depth > 0 for node in nodes)


@pytest.mark.parametrize(("limit", "words"), [("_LARGEST_PROGRAM", ""), ("_LARGEST_LOOPS", " in loops")])
def test_programs_for_which_the_driver_takes_long_go_to_xla(monkeypatch, limit, words):
    """Unless lanes are requested; a program of exactly the largest size has kernels."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with_gpu(monkeypatch)

    def looped(x):
        return jax.lax.scan(lambda c, t: (jnp.sin(c) + t * c[::-1], c), x, jnp.arange(3000.0, dtype=x.dtype))

    found = operations_of(looped, X)[bool(words)]
    for largest, backend, is_refused in (
        (found, "auto", False),
        (found - 1, "auto", True),
        (found - 1, "lanes", False),
    ):
        monkeypatch.setattr(gpu, limit, largest)
        named = per_sample(looped, backend=backend, name="of many operations")
        assert bool(calls(lowered(jax.vmap(named), X))) is not is_refused
        reason = f"the program has {found} operations{words}, more than {largest}" if is_refused else ""
        assert (records()[-1].backend, records()[-1].reason) == ("xla" if is_refused else "lanes", reason)


def test_an_empty_batch_needs_no_kernel():
    assert calls(lowered(jax.vmap(dynamics()), *[jnp.ones((0, 2))] * 3)) == []
    assert by_gpu(jax.vmap(dynamics()), *[jnp.ones((0, 2))] * 3).shape == (0, 2)


def gradient_of_one():
    """A gradient whose kernel keeps the states of all steps in scratch memory, and reads them in the reverse order."""
    return jax.vmap(per_sample(jax.grad(lambda q, torques: jnp.sum(end(q, torques)), (0, 1)), backend="lanes"))


def test_records_that_no_memory_holds_are_refused(monkeypatch):
    with_gpu(monkeypatch, device=Device(memory=1e5))
    with pytest.raises(MemoryError, match=r"save_every.*checkpoints"):
        lowered(gradient_of_one(), X, TORQUES)


def test_exchanged_values_that_no_memory_holds_are_refused(monkeypatch, short):  # noqa: F811
    """Together, since the buffers of all parts may be alive at a time."""
    generated = short(25)
    lowered(jax.vmap(dynamics()), X, X, X)
    kept = sum(kernel.kept_bytes for kernel in generated)
    assert max(kernel.kept_bytes for kernel in generated) < kept
    with_gpu(monkeypatch, device=Device(memory=float(kept)))
    lowered(jax.vmap(dynamics()), X, X, X)
    with_gpu(monkeypatch, device=Device(memory=kept - 1.0))
    count = len(generated) // 2
    with pytest.raises(
        MemoryError, match=rf"that {count} kernels exchange take .* GiB.*; call the function with a smaller batch"
    ):
        lowered(jax.vmap(dynamics()), X, X, X)


def test_scratch_is_for_the_threads_that_a_device_works_on(monkeypatch):
    with_gpu(monkeypatch)
    shapes = [jax.ShapeDtypeStruct((100_000, *x.shape[1:]), x.dtype) for x in (X, TORQUES)]
    for call in calls(lowered(jax.grad(total(end)), *shapes)):
        assert grid(call) == (
            1563,
            64,
        )  # both kernels need no scratch: arrays between them are read and written in place
    (both,) = calls(lowered(gradient_of_one(), *shapes))
    assert grid(both) == (Device.core_count * 4, 64)


# ---------------------------------------------------------------- canary


def own_run(function, arrays):
    return [np.asarray(x) for x in jax.jit(function)(*arrays)]


CASES = {f"{f.__name__} {arrays[0].dtype}": (f, arrays) for f, arrays in canary.cases(True)}


@pytest.mark.usefixtures("interpreted")
def test_kernels_that_are_right_pass_the_canary():
    assert failure(own_run) == ""


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("name", CASES)
def test_a_wrong_result_is_an_obstacle(monkeypatch, name):
    """By some roundings in one number of one sample, or by one."""
    function, arrays = CASES[name]
    monkeypatch.setattr(canary, "cases", lambda with_float64: [(function, arrays)])

    def run(f, arrays):
        results = own_run(f, arrays)
        if f is not function and f.__name__ == "<lambda>":
            last = results[-1].copy()
            last.flat[-1] += (
                last.dtype.type(1)
                if last.dtype.kind in "iu"
                else 1000 * np.finfo(last.dtype).eps * (1 + abs(last.flat[-1]))
            )
            results[-1] = last
        return results

    assert "wrong values" in failure(run)
    assert function.__name__ in failure(run)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("with_float64", [False, True])
def test_the_canary_in_threads(monkeypatch, with_float64):
    """They work in the precision of the caller, and keep their own afterwards."""
    cases = [c for c in canary.cases(with_float64) if c[0] is canary.integer_functions]
    monkeypatch.setattr(canary, "cases", lambda with_float64: cases)
    seen = []

    def run(function, arrays):
        seen.append((threading.current_thread() is threading.main_thread(), jax.config.read("jax_enable_x64")))
        return own_run(function, arrays)

    with ThreadPoolExecutor(2) as pool:
        with jax.enable_x64(with_float64):
            assert gpu.failure(run, with_float64, pool.map) == ""
        assert seen == [(False, with_float64)] * 2
        usual = bool(jax.config.read("jax_enable_x64"))
        assert pool.submit(jax.config.read, "jax_enable_x64").result() == usual


def test_errors_in_threads(monkeypatch):
    """Those of kernels are a reason to use XLA, those of XLA are raised, whichever come first."""
    cases = [c for c in canary.cases(True) if c[0] is canary.integer_functions]
    monkeypatch.setattr(canary, "cases", lambda with_float64: cases)

    def broken(function, arrays):
        raise OSError("kernel" if function.__name__ == "<lambda>" else "reference")

    with ThreadPoolExecutor(2) as pool:
        reason = gpu.failure(refused(ValueError("no such instruction\nand more")), True, pool.map)
        assert reason == "a kernel cannot be loaded or run (ValueError: no such instruction)"
        with pytest.raises(OSError, match=r"^reference$"):
            gpu.failure(broken, True, pool.map)


INTEGERS = ("i8", "i32", "i64", "u8", "u32", "u64")
ONLY_WITH_SIGN = {"abs", "neg"}
# Operations that do with unsigned integers what they do with others.
AS_WITH_SIGN = {"add", "sub", "mul", "and", "or", "xor", "not", "shift_left", "shift_right_logical"}
AS_WITH_SIGN |= {"shift_right_arithmetic", "select"}
BOTH = {"lt", "le", "eq", "select"}
OF_FLOATS = {*llvm_code._FLOAT_OPS, *llvm_code._FLOAT_CALLS, *folding.TRANSCENDENTAL, "neg", *BOTH}
OF_INTEGERS = {*llvm_code._INTEGER_OPS, *llvm_code._SHIFTS, "div", "rem", "min", "max", "abs", "neg", "not", *BOTH}
VOCABULARY = {(op, kind) for op in OF_FLOATS for kind in FLOATS}
VOCABULARY |= {
    (op, kind) for op in OF_INTEGERS for kind in INTEGERS if kind[0] == "i" or op not in AS_WITH_SIGN | ONLY_WITH_SIGN
}
VOCABULARY |= {(op, "bool") for op in ("and", "or", "xor", "not", "eq", "select")}
VOCABULARY |= {(f"to {kind}", "bool") for kind in ("f32", "f64", "i32")}
VOCABULARY |= {(f"to {target}", source) for source, target in (("f32", "f64"), ("f64", "f32"))}
VOCABULARY |= {(f"to {target}", source) for source in FLOATS for target in ("i8", "i16", "i32", "u8", "u32")}
VOCABULARY |= {("to f32", source) for source in INTEGERS}
VOCABULARY |= {("load", f"{place} {kind}") for place in ("input", "loop", "table") for kind in FLOATS}
VOCABULARY |= {("load", f"loop {kind}") for kind in ("i32", "bool")}
VOCABULARY |= {("region", "pieces"), ("loop", "loop")}


def operation(node: Node) -> tuple[str, str]:
    if node.op == "convert":
        return f"to {node.type}", node.data
    if node.op == "load":
        return "load", f"{node.args[0].data.kind} {node.args[0].data.type}"
    if node.op == "region":
        return "region", node.data.kind
    if node.op in ("lt", "le", "eq"):
        return node.op, next(a.type for a in node.args if isinstance(a, Node))
    return node.op, node.type


def program_of_case(function, arrays):
    return program_of(traced(function, [jax.ShapeDtypeStruct(a.shape[1:], a.dtype) for a in arrays]))


def test_the_canary_holds_every_operation():
    """What operations of the lane compiler exist is what `folding` computes; the sorts of numbers are listed here."""
    found = {operation(node) for case in CASES.values() for node in Liveness(program_of_case(*case)).nodes}
    assert VOCABULARY - found == set()
    assert {*folding._FUNCTIONS, "lt", "le", "eq"} <= {op for op, _ in VOCABULARY}


def test_the_canary_uses_all_memory():
    kernels = []
    for function, arrays in CASES.values():
        program = program_of_case(function, arrays)
        layouts = ["rows"] * len(arrays), ["rows"] * len(program.outputs)
        kernels += gpu.Kernels(program, *layouts, len(arrays[0]), Launch(32, 8, 2)).launched
    assert any(k.scratch_bytes and ".local" in k.ptx for k in kernels)
    assert any("call.uni" in k.ptx for k in kernels)  # of the function for large angles


# Instructions for which the canary is tried by default; all of its arithmetic takes minutes.
TRIED = ["fma.rn.ftz.f32", "div.full.ftz.f32", "sqrt.approx.ftz.f32", "max.ftz.NaN.f32", "addc.cc.s64", "mul.hi.u64"]
TRIED += ["cvt.rni.f64.f64", "setp.lt.s64", "min.u32", "shr.s64", "xor.b32", "copysign.f64"]
CONTROL = ("bra", "call", "ret", "ld", "st", "mov", "cvta")


def broken(opcode: str):
    """The interpreter's decoder, but with wrong results of one instruction."""
    decode = Decoder.decode

    def wrong(self, instruction):
        before = len(self.written)
        decode(self, instruction)
        if ".".join(instruction.opcode) == opcode:
            for register in self.written[before:]:
                self.steps.append(lambda r=register: np.invert(r, r))

    return wrong


def canary_finds(opcode: str, monkeypatch) -> bool:
    monkeypatch.setattr(Decoder, "decode", broken(opcode))
    return failure(remembering_xla) != ""


_KNOWN: dict = {}


def remembering_xla(function, arrays):
    """Runs kernels each time, and functions of XLA once."""
    if function.__name__ == "<lambda>":
        return own_run(function, arrays)
    key = function.__name__, arrays[0].dtype
    if key not in _KNOWN:
        _KNOWN[key] = own_run(function, arrays)
    return _KNOWN[key]


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("opcode", first(1, TRIED))
def test_the_canary_finds_a_wrong_instruction(opcode, monkeypatch):
    assert canary_finds(opcode, monkeypatch)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("interpreted")
def test_the_canary_finds_every_wrong_instruction(monkeypatch):
    """Of its own arithmetic, but for what it cannot show: a product whose highest bits alone count, say."""
    texts = []
    for function, arrays in CASES.values():
        program = program_of_case(function, arrays)
        layouts = ["rows"] * len(arrays), ["rows"] * len(program.outputs)
        texts += [k.ptx for k in gpu.Kernels(program, *layouts, len(arrays[0]), Launch(32, 8, 2)).launched]
    opcodes = {
        found for text in texts for found in re.findall(r"^\s+(?:@!?%p\d+\s+)?([a-z][\w.]+)\s", text, re.MULTILINE)
    }
    arithmetic = sorted(x for x in opcodes if x.split(".")[0] not in CONTROL)
    assert len(arithmetic) > 80
    missed = [opcode for opcode in arithmetic if not canary_finds(opcode, monkeypatch)]
    assert missed == []


def test_this_process_has_no_gpu_and_nothing_to_warn_of():
    if jax.default_backend() != "cpu":
        pytest.skip("there is an accelerator here")
    assert gpu._devices() == []
    assert gpu.obstacle() == ""
    assert not gpu.is_usable()


def test_the_experiment_on_a_gpu_says_that_there_is_none(monkeypatch, tmp_path):
    if jax.default_backend() != "cpu":
        pytest.skip("there is an accelerator here")
    script = Path(__file__).parents[2] / "experiments" / "gpu.py"
    monkeypatch.syspath_prepend(script.parent)
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # which the script would set
    job = runpy.run_path(str(script))["JOB"]
    with pytest.raises(RunError, match=r"no GPU of NVIDIA that JAX can use; install jaxdyn\[gpu\]"):
        job.work(job.config(), RunDirectory(tmp_path))
