"""Kernels of scalar programs on NVIDIA GPUs: PTX that is generated while JAX lowers a function, and launched by XLA.

XLA has a custom call whose parameters are the PTX of a kernel and its grid. XLA loads the kernel, passes the buffers, and may
record the kernel together with other kernels in one CUDA graph. The custom call is an internal interface of XLA, so the first use
in a process runs a self-test (`canary`): kernels with every operation are compared with XLA on the same device. If the self-test
fails, XLA is used for all functions.
"""

import functools
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxdyn.lanes import canary
from jaxdyn.lanes.derived import program_of, traced
from jaxdyn.lanes.liveness import Liveness
from jaxdyn.lanes.parts import LONGEST, Part, divided
from jaxdyn.lanes.program import Program
from jaxdyn.lanes.ptx_code import KERNEL, WARP, Launch, PtxKernel, launch_for, ptx

PLATFORM = "cuda"
_TARGET = "__gpu$xla.gpu.ptx"
# Value of an H100 or H200, for code that is lowered on a machine without GPU.
_MULTIPROCESSORS = 132
# Functions of the self-test that are compiled at the same time, and the length of their kernels, so that some consist of several.
_COMPILED_AT_ONCE, _LONGEST_OF_CANARY = 10, 100
# Maximum number of parameters of a kernel, of 8 bytes each; PTX 8.0 allows 4352 bytes.
_MOST_ARRAYS = 500
# The driver takes longer than half a minute for larger programs, which are therefore used only if lanes are requested. Loops are
# not divided into several kernels, and the time for one kernel grows faster than its length.
_LARGEST_PROGRAM, _LARGEST_LOOPS = 120_000, 30_000


class Kernel(NamedTuple):
    """One launch.

    Attributes:
        ptx: Code, which the driver compiles when XLA loads it.
        part: The part of the program that the kernel computes.
        launch: Threads and blocks.
        kept_bytes: Size of the buffer of the values that later kernels need, for all samples.
        scratch_bytes: Size of the buffer, for all threads, of the values that loops store and read again.
    """

    ptx: str
    part: Part
    launch: Launch
    kept_bytes: int
    scratch_bytes: int


class Kernels:
    """The kernels of a program for a batch of a certain size: a long program has several, which run one after the other.

    Attributes:
        launched: The kernels in their order.
        operations: Scalar operations per sample, see `count_operations`.
        code_s: Time of code generation, s.
    """

    def __init__(
        self,
        program: Program,
        inputs: Sequence[str],
        outputs: Sequence[str],
        batch: int,
        launch: Launch | None = None,
        longest: int = LONGEST,
    ):
        """Generate the code.

        Args:
            program: Scalar program.
            inputs, outputs: Layout of each input and output, see `PtxKernel`.
            batch: Number of samples.
            launch: Threads and blocks; the best known ones if None.
            longest: Length that a kernel should not exceed, see `parts.divided`.
        """
        start = time.perf_counter()
        schedule = PtxKernel.planned(program)
        parts = divided(program, schedule, longest)
        self.launched, self.operations = [], 0
        for part in parts:
            common = schedule, part if len(parts) > 1 else None
            code = PtxKernel(program, batch, inputs, outputs, launch or launch_for(batch, None), *common)
            if code.scratch_bytes and not launch:
                # With one thread per sample, scratch would grow with the batch.
                code = PtxKernel(program, batch, inputs, outputs, launch_for(batch, _multiprocessors()), *common)
            kept = part.kept_bytes * WARP * -(-batch // WARP)
            self.launched.append(
                Kernel(ptx(code.text), part, code.launch, kept, code.scratch_bytes * code.launch.threads)
            )
            self.operations = code.operations
        self.code_s = time.perf_counter() - start

    def __call__(self, args: Sequence[jax.Array], shapes: Sequence[jax.ShapeDtypeStruct]) -> list[jax.Array]:
        """Results of given shapes.

        Raises:
            MemoryError: The scratch buffer, or the values that the kernels exchange, alone exceed the memory of the device.
        """
        self._check_memory()
        results: dict[int, jax.Array] = {}
        buffers: dict[int, jax.Array] = {}
        for kernel in self.launched:
            part = kernel.part
            sizes = [size for size in (kernel.kept_bytes, kernel.scratch_bytes) if size]
            own = [shapes[k] for k in part.outputs] + [jax.ShapeDtypeStruct((size,), np.uint8) for size in sizes]
            given = [args[k] for k in part.inputs] + [buffers[source.number] for source in part.sources]
            found = _launch(kernel, given, own)
            results.update(zip(part.outputs, found, strict=False))
            if kernel.kept_bytes:
                buffers[part.number] = found[len(part.outputs)]
        return [results[k] for k in range(len(shapes))]

    def _check_memory(self) -> None:
        limit = _memory_of_device()
        for kernel in self.launched:
            if kernel.scratch_bytes > limit:
                raise MemoryError(
                    f"the values that the loops of {kernel.launch.threads} threads store take {kernel.scratch_bytes / 2**30:.1f} "
                    f"GiB, and the GPU has {limit / 2**30:.1f} GiB; save fewer states of a rollout (a larger save_every), or let "
                    "reverse mode store fewer (longer segments between checkpoints)"
                )
        kept = sum(kernel.kept_bytes for kernel in self.launched)
        if kept > limit:
            raise MemoryError(
                f"the values that {len(self.launched)} kernels exchange take {kept / 2**30:.1f} GiB, and the GPU has "
                f"{limit / 2**30:.1f} GiB; call the function with a smaller batch"
            )


def _launch(kernel: Kernel, args: Sequence[jax.Array], shapes: Sequence[jax.ShapeDtypeStruct]) -> list[jax.Array]:
    """Call of one kernel by XLA."""
    sizes = {"grid_x": kernel.launch.blocks, "grid_y": 1, "grid_z": 1}
    sizes |= {"block_x": kernel.launch.block, "block_y": 1, "block_z": 1, "shared_mem_bytes": 0}
    attributes: dict[str, Any] = {name: np.int32(size) for name, size in sizes.items()}
    call = jax.ffi.ffi_call(_TARGET, list(shapes))
    return list(call(*args, name=KERNEL, kernel_type="ptx", kernel_data=kernel.ptx, **attributes))


def refusal(program: Program, backend: str) -> str:
    """Reason for which no kernel is generated for a program; empty if one is generated."""
    arrays = len(program.inputs) + len(program.outputs)
    if arrays > _MOST_ARRAYS:
        return f"the function has {arrays} arrays, and a kernel supports {_MOST_ARRAYS}"
    nodes = Liveness(program).nodes
    for found, limit, where in (
        (len(nodes), _LARGEST_PROGRAM, ""),
        (sum(node.block.depth > 0 for node in nodes), _LARGEST_LOOPS, " in loops"),
    ):
        if found > limit and backend == "auto":
            return f"the program has {found} operations{where}, more than {limit}"
    return ""


def _devices() -> list[Any]:
    """GPUs of this process."""
    try:
        return jax.local_devices(backend=PLATFORM)
    except RuntimeError:
        return []


def _memory_of_device() -> float:
    """Bytes of memory of the smallest GPU; infinite without a GPU here, or if none reports its memory."""
    stats = [device.memory_stats() for device in _devices()]
    return min((s["bytes_limit"] for s in stats if s and "bytes_limit" in s), default=float("inf"))


def _multiprocessors() -> int:
    """Number of multiprocessors of a GPU of this process, or a default."""
    counts = [getattr(device, "core_count", _MULTIPROCESSORS) for device in _devices()]
    return min(counts, default=_MULTIPROCESSORS)


def is_usable() -> bool:
    """True if this process has GPUs whose kernels passed the self-test."""
    return bool(_devices()) and not obstacle()


def obstacle() -> str:
    """Reason why kernels cannot be used on the GPUs of this process; empty if they can be used, or if the process has no GPUs."""
    return _obstacle(bool(jax.config.read("jax_enable_x64")))


@functools.cache
def _obstacle(with_float64: bool) -> str:
    devices = _devices()
    reason = ""
    if devices:
        # XLA and the driver take seconds to compile one after the other.
        with ThreadPoolExecutor(_COMPILED_AT_ONCE) as pool:
            reason = failure(_on_device(devices[0]), with_float64, pool.map)
    if reason:
        warnings.warn(
            f"on GPUs, XLA is used instead of the lane compiler, and is slower: {reason}", RuntimeWarning, stacklevel=2
        )
    return reason


def _on_device(device: Any) -> Callable[[Callable, Sequence[np.ndarray]], list[np.ndarray]]:
    """Function that runs functions of arrays on a device, also while another function is traced."""

    def run(function: Callable, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        with jax.ensure_compile_time_eval(), jax.disable_jit(False), jax.transfer_guard("allow"):
            return [np.asarray(x) for x in jax.jit(function)(*jax.device_put(list(arrays), device))]

    return run


def failure(
    run: Callable[[Callable, Sequence[np.ndarray]], list[np.ndarray]],
    with_float64: bool,
    each: Callable[[Callable, Sequence], Iterable] = map,
) -> str:
    """Run the self-test (`canary`) on a device; returns a description of the failure, or an empty text if kernels agree with XLA.

    Args:
        run: Runs a function of arrays on the device.
        with_float64: True to test float64, too.
        each: Calls a function for every element of a sequence, like `map`, possibly at the same time.
    """
    tasks: list[tuple[Callable, Sequence[np.ndarray]]] = []
    names = []
    for function, arrays in canary.cases(with_float64):
        shapes = [jax.ShapeDtypeStruct(a.shape[1:], a.dtype) for a in arrays]
        program = program_of(traced(function, shapes))
        results = jax.eval_shape(jax.vmap(function), *(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays))
        batch, layouts = len(arrays[0]), (["rows"] * len(arrays), ["rows"] * len(results))
        # With fewer threads than samples, so that some threads process several samples, and in several kernels per function.
        kernels = Kernels(program, *layouts, batch, Launch(32, 8, 2), longest=_LONGEST_OF_CANARY)
        tasks += [(lambda *a, k=kernels, r=results: k(a, r), arrays), (jax.vmap(function), arrays)]
        names.append(function.__name__)

    def attempt(task: tuple) -> list[np.ndarray] | Exception:
        try:
            with jax.enable_x64(with_float64):  # also in another thread
                return run(*task)
        except Exception as error:
            return error

    found = list(each(attempt, tasks))
    for name, actual, expected in zip(names, found[::2], found[1::2], strict=True):
        if isinstance(expected, Exception):
            raise expected
        if isinstance(actual, Exception):
            first = str(actual).strip().split("\n")[0]
            return f"a kernel cannot be loaded or run ({type(actual).__name__}: {first})"
        for number, (a, e) in enumerate(zip(actual, expected, strict=True)):
            if not canary.agree(a, e):
                return f"a kernel computes wrong values (result {number} of {name!r})"
    return ""
