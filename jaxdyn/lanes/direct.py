"""Machine code of a function of one sample that Python calls directly, without XLA; `jaxdyn.kernel` explains for whom."""

import ctypes
import functools
import itertools
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxdyn.compute.hints import written_out
from jaxdyn.lanes import rules as rules  # registers the rules of the primitives
from jaxdyn.lanes.call import check_size
from jaxdyn.lanes.collector import collector_paused
from jaxdyn.lanes.cpu_code import CpuKernel
from jaxdyn.lanes.derived import program_of, program_of_only_sample, pruned_jaxpr
from jaxdyn.lanes.flatten import without_unexpected_errors
from jaxdyn.lanes.llvm_engine import USUAL_EFFORT, key_of_code, loaded, source_of_code
from jaxdyn.lanes.record import Record, note
from jaxdyn.lanes.remembered import SampleJaxpr

# The argument is a list of the addresses of all arrays that the kernel uses, and of its scratch memory.
_ENTRY = """
define void @direct(ptr %arrays) nounwind {{
 %place = getelementptr ptr, ptr %arrays, i64 {count}
 %scratch = load ptr, ptr %place
 call void @kernel(ptr %arrays, i64 0, i64 1, i64 1, ptr %scratch)
 ret void
}}
"""
_ALIGNMENT = 64  # bytes, of the scratch memory
# Python's lock is released during longer calls. To get it back can take milliseconds if another thread of Python works.
_LONG = 100_000  # operations


class OnlySample(NamedTuple):
    """A function of one sample as the code of a kernel.

    Attributes:
        kernel: The code.
        used: Whether the kernel has an input for each input of the function.
        results: Shapes and types of the results.
    """

    kernel: CpuKernel
    used: tuple[bool, ...]
    results: list[jax.ShapeDtypeStruct]


@collector_paused()
def only_sample(function: Callable, inputs: Sequence, backend: str, make: type[CpuKernel] = CpuKernel) -> OnlySample:
    """The code of a function of arrays, whose results are a list of arrays.

    Args:
        function: Function of one sample.
        inputs: Its arguments, arrays or `jax.ShapeDtypeStruct`.
        backend: Backend as in `check_size`.
        make: Class of the kernel.

    Raises:
        CannotFlatten: The function has no scalar form, or its program is too large.
    """
    with written_out():
        whole = SampleJaxpr(jax.make_jaxpr(function)(*map(_shape, inputs)))
    jaxpr, used = pruned_jaxpr(whole, (True,) * len(whole.out_avals))
    check_size(program_of(jaxpr), backend)
    with without_unexpected_errors():
        kernel = make(program_of_only_sample(jaxpr), 1, ["rows"] * sum(used), ["rows"] * len(jaxpr.out_avals))
    return OnlySample(kernel, used, [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in jaxpr.out_avals])


def _shape(x: Any) -> jax.ShapeDtypeStruct:
    """Shape and type of an input; a Python float keeps its weak type."""
    return jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=getattr(x, "weak_type", False))


def direct(function: Callable, inputs: tuple, *, name: str, backend: str) -> Callable[[], "_Frame"]:
    """Machine code of a function of arrays, whose results are a list of arrays.

    Args:
        function: Function of one sample.
        inputs: Arrays like those of later calls.
        name: Name in the record of compilations.
        backend: "lanes", or "auto" to refuse programs that take long to compile.

    Returns:
        A function that makes the memory of a thread, see `jaxdyn.compute.kernels.Frame`.

    Raises:
        CannotFlatten: The function has no scalar form, or its program is too large.
    """
    code = only_sample(function, inputs, backend)
    start = time.thread_time()
    text = code.kernel.text + _ENTRY.format(count=sum(code.used) + len(code.results))
    engine = loaded(source_of_code(key_of_code(text, USUAL_EFFORT), text, USUAL_EFFORT)())
    note(Record(name, "lanes", 1, code.kernel.operations, time.thread_time() - start))
    return functools.partial(_Frame, code, inputs, _Machine(engine))


class _Machine:
    """Machine code in memory, as long as this object exists.

    The engine is closed by this object. If the garbage collector found it, it might destroy the context of the code first.
    """

    def __init__(self, engine: Any):
        self.address = engine.get_function_address("direct")
        weakref.finalize(self, engine.close).atexit = False


class _Frame:
    """The memory of a thread."""

    def __init__(self, code: OnlySample, inputs: Sequence, machine: _Machine):
        self.inputs = [np.array(x) for x in inputs]
        self.outputs = [np.empty(x.shape, x.dtype) for x in code.results]
        memory = np.empty(code.kernel.scratch_bytes + _ALIGNMENT, np.uint8)
        scratch = memory.ctypes.data + -memory.ctypes.data % _ALIGNMENT
        arrays = [*itertools.compress(self.inputs, code.used), *self.outputs]
        addresses = [x.ctypes.data for x in arrays] + [scratch]
        self._held = memory, (ctypes.c_void_p * len(addresses))(*addresses), machine
        make = ctypes.CFUNCTYPE if code.kernel.operations > _LONG else ctypes.PYFUNCTYPE
        self.run = functools.partial(make(None, ctypes.c_void_p)(machine.address), ctypes.addressof(self._held[1]))
