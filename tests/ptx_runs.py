"""Kernels of the lane compiler for GPUs, run by the PTX interpreter: with a given launch, or as what JAX calls on this CPU."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.interpreters import mlir
from ptx_interpreter import run_kernel

from jaxdyn.lanes import call, gpu
from jaxdyn.lanes.derived import program_of, traced
from jaxdyn.lanes.parts import LONGEST
from jaxdyn.lanes.ptx_code import Launch

_GARBAGE = 0xA5  # in each byte of results, so that what no thread writes is seen


def kernel_for(
    function: Callable,
    args: Sequence[np.ndarray],
    launch: Launch,
    layouts: Sequence[str],
    longest: int = LONGEST,
) -> gpu.Kernels:
    """Kernels, of a certain length at most, of a function of one sample: layout of each argument, then one of all results."""
    axes = [{"rows": 0, "columns": -1, "shared": None}[x] for x in layouts[:-1]]
    sizes = {a.shape[axis] for a, axis in zip(args, axes, strict=True) if axis is not None}
    shapes = [
        jax.ShapeDtypeStruct(a.shape if axis is None else np.moveaxis(a, axis, 0).shape[1:], a.dtype)
        for a, axis in zip(args, axes, strict=True)
    ]
    program = program_of(traced(lambda *x: jax.tree.leaves(function(*x)), shapes))
    batch = sizes.pop() if sizes else 1
    return gpu.Kernels(program, layouts[:-1], [layouts[-1]] * len(program.outputs), batch, launch, longest)


def executed(kernels: gpu.Kernels, args: Sequence, shapes: Sequence) -> list[np.ndarray]:
    """Results of kernels. Each may read its arguments and what it has written itself, and nothing outside these arrays."""
    args = [np.ascontiguousarray(a) for a in args]
    results = [np.full(int(np.prod(s.shape)) * s.dtype.itemsize, _GARBAGE, np.uint8) for s in shapes]
    kept = {kernel.part.number: np.full(kernel.kept_bytes, _GARBAGE, np.uint8) for kernel in kernels.launched}
    for kernel in kernels.launched:
        part = kernel.part
        given = [args[k] for k in part.inputs] + [kept[source.number] for source in part.sources]
        buffers = [*given, *(results[k] for k in part.outputs), *([kept[part.number]] if kernel.kept_bytes else [])]
        buffers += [np.empty(kernel.scratch_bytes, np.uint8)] if kernel.scratch_bytes else []
        run_kernel(kernel.ptx, buffers, kernel.launch.block, kernel.launch.blocks, range(len(given), len(buffers)))
    return [x.view(s.dtype).reshape(s.shape) for x, s in zip(results, shapes, strict=True)]


def _called_back(kernels: gpu.Kernels, args: Sequence, shapes: Sequence) -> list[jax.Array]:
    """In place of `gpu.Kernels.__call__`."""
    run = lambda *arrays: executed(kernels, [np.asarray(a) for a in arrays], shapes)  # noqa: E731
    return list(jax.pure_callback(run, list(shapes), *map(jnp.asarray, args)))


@pytest.fixture
def interpreted(monkeypatch) -> None:
    """Launched kernels run in the interpreter."""
    monkeypatch.setattr(gpu.Kernels, "__call__", _called_back)


@pytest.fixture
def short(monkeypatch) -> Callable[[int], list[gpu.Kernel]]:
    """short(longest): from then on kernels have at most this length; returns a list of what is generated, in order."""

    def limited(longest: int) -> list[gpu.Kernel]:
        generated: list[gpu.Kernel] = []
        usual = gpu.Kernels.__init__

        def init(self, *args, **options):
            usual(self, *args, **options, longest=longest)
            generated.extend(self.launched)

        monkeypatch.setattr(gpu.Kernels, "__init__", init)
        return generated

    return limited


@contextlib.contextmanager
def lanes_on_gpu() -> Iterator[None]:
    """Lane calls that are lowered within take the route of a GPU, and their kernels run in the interpreter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu.Kernels, "__call__", _called_back)
        try:
            _route(call._on_gpu)
            yield
        finally:
            _route(call._on_cpu)


def _route(lowered: Callable) -> None:
    mlir.register_lowering(call.lane_call_p, mlir.lower_fun(lowered, multiple_results=True), platform="cpu")


def by_gpu(function: Callable, *args):
    """`jax.jit(function)(*args)` on that route."""
    with lanes_on_gpu():
        return jax.device_get(
            jax.jit(lambda *x: function(*x))(*args)
        )  # a function of its own, so that nothing is remembered
