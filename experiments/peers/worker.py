"""One route of the benchmarks as a separate process: it prepares a task, then calls it as often as it is asked to.

Requests and answers are lines of JSON on standard input and output. A process can be ended when a compilation takes too long, and
runs in the environment of the library that it measures, of which it asks nothing but NumPy:

    python -m peers.worker ROUTE --dtype float32 --threads 1 [--library pinocchio_dynamics.so]

    {"prepare": {task}, "robot": {description}, "most_memory": bytes, "first": file}
    {"seconds": 0.1}

When it has imported its packages, it says so. The first request is answered by times and sizes, with the results of the first
samples in an .npz file, the second by times of calls, each until its result is there.
"""

import argparse
import ctypes
import importlib
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from peers.task import CHECKED, Task

NATIVE = ("pinocchio", "mujoco")
OWN = ("lanes", "xla", "reference")
LIBRARIES = {  # the module imported before any measurement, and the package that it comes from
    **dict.fromkeys(OWN, ("jaxdyn", "jax")),
    "pinocchio": ("peers.native", "pin"),
    "mujoco": ("mujoco.rollout", "mujoco"),
    "frax": ("frax.core.robot", "frax"),
    "mjx": ("mujoco.mjx", "mujoco-mjx"),
    "jaxsim": ("jaxsim.api", "jaxsim"),
    "brax": ("brax.generalized.pipeline", "brax"),
    "adam": ("adam.jax", "adam-robotics"),
}
_PEAK = Path("/proc/self/clear_refs")  # of Linux


class TooLarge(Exception):
    """A call that would need more memory than it may."""


Prepared = tuple[dict[str, Any], Callable[[], Any], list[Any]]
"""A report, the call that is to be timed, and the arrays of a first result that are compared."""


def prepare_native(options: argparse.Namespace, task: Task, robot: dict[str, Any]) -> Prepared:
    """Of a library in C or C++."""
    from peers import native

    if options.library:
        ctypes.CDLL(str(options.library))  # its code does not count as memory of the call
    before = resident("VmRSS")
    if _PEAK.exists():
        _PEAK.write_text("5")  # the peak starts again
    if options.route == "pinocchio":
        call, parts = native.pinocchio(robot, task, options.library, options.threads)
    else:
        call, parts = native.mujoco(robot, task, options.threads)
    begin = time.perf_counter()
    result = call()
    first_s = time.perf_counter() - begin
    report = {"compile_s": 0.0, "first_s": first_s, "memory": resident("VmHWM") - before, "platform": "cpu"}
    return report | {"arrays": result.nbytes + sum(x.nbytes for x in task.arguments())}, call, parts(result)


def resident(entry: str) -> float:
    """Resident memory of this process (VmRSS) or its peak (VmHWM), bytes; nan where the system does not report it."""
    if not _PEAK.exists():
        return float("nan")
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024.0 * next(float(line.split()[1]) for line in lines if line.startswith(entry))


def prepare_jax(options: argparse.Namespace, task: Task, robot: dict[str, Any], most_memory: float) -> Prepared:
    """Of jaxdyn, or of a library that uses JAX."""
    import jax

    jax.clear_caches()
    jax.block_until_ready(
        jax.jit(jax.numpy.negative)(1.0)
    )  # compilers that load themselves at first use are not measured
    arguments = tuple(map(jax.numpy.asarray, task.arguments()))
    operations: Callable[[], float] = lambda: float("nan")  # noqa: E731
    if options.route in OWN:
        from peers import jaxdyn_routes
        from peers.mechanisms import mechanism

        import jaxdyn

        jaxdyn.lanes.set_threads(options.threads)
        backend = "auto" if options.route == "reference" else options.route
        known = len(jaxdyn.lanes.records())
        function = jaxdyn_routes.function_of(mechanism(task.mechanism, task.dtype), task, backend)
        batched: Any = jaxdyn.batched(function, backend=backend)
        operations = lambda: sum(record.operations for record in jaxdyn.lanes.records()[known:]) / task.steps  # noqa: E731
    else:
        from peers import jax_libraries

        library = jax_libraries.LIBRARIES[options.route](robot, task.dt or 1e-3, task.dtype)
        batched = jax.jit(jax.vmap(jax_libraries.function_of(library, task.function)))
    begin = time.perf_counter()
    compiled = batched.lower(*arguments).compile()
    compile_s = time.perf_counter() - begin
    planned = compiled.memory_analysis()
    memory = planned.argument_size_in_bytes + planned.output_size_in_bytes + planned.temp_size_in_bytes
    if memory > most_memory:
        raise TooLarge(f"needs {memory / 1e9:.3g} GB")
    result = jax.block_until_ready(compiled(*arguments))
    first_s = time.perf_counter() - begin
    assert all(x.dtype == task.dtype for x in jax.tree.leaves(result)), "the precision is not the one asked for"
    report = {"compile_s": compile_s, "first_s": first_s, "memory": memory, "operations": operations()}
    report |= {
        "arrays": planned.argument_size_in_bytes + planned.output_size_in_bytes,
        "platform": jax.default_backend(),
    }
    leaves = jax.tree.leaves(result)
    first = leaves[:1] if task.function == "forward kinematics" else leaves  # orientations come in several forms
    return report, lambda: jax.block_until_ready(compiled(*arguments)), first


def times(call: Callable, seconds: float) -> list[float]:
    """Of calls; the first one does not count unless it alone takes longer than `seconds`, for others have used the caches."""
    taken: list[float] = []
    warm = False
    while not warm or not taken or sum(taken) < seconds:
        begin = time.perf_counter()
        call()
        spent = time.perf_counter() - begin
        if warm or spent > seconds:
            taken.append(spent)
        warm = True
    return taken


def versions(route: str) -> str:
    packages = [LIBRARIES[route][1], *(["jax"] if route not in (*NATIVE, *OWN) else [])]
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("route")
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--threads", type=int, required=True, help="processor cores that the process may use")
    parser.add_argument("--library", type=Path, help="pinocchio_dynamics.cpp, compiled")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-options.threads :])
    # jaxdyn needs no switch for its precision, but libraries made for one of the two do. Without Eigen's threads small products are
    # up to three times as fast on one core, and never slower.
    os.environ["JAX_ENABLE_X64"] = str(int(options.dtype == "float64"))
    if options.threads == 1:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # the output of libraries is not an answer
    call: Callable | None = None
    importlib.import_module(LIBRARIES[options.route][0])
    print(json.dumps({"versions": versions(options.route)}), file=answers)
    for line in sys.stdin:
        request = json.loads(line)
        if "seconds" in request:
            answer = {"times": times(call, request["seconds"])} if call else {"problem": "nothing is prepared"}
        else:
            task, robot = Task(**request["prepare"]), request["robot"]
            call = None  # the previous task frees its memory
            try:
                if options.route in NATIVE:
                    report, call, first = prepare_native(options, task, robot)
                else:
                    report, call, first = prepare_jax(options, task, robot, request["most_memory"])
                np.savez(request["first"], *(np.asarray(x[:CHECKED]) for x in first))
                del first
                answer = report | {"versions": versions(options.route)}
            except Exception as error:  # reported, not raised: the next task may succeed
                kind = "" if isinstance(error, TooLarge) else f"failed: {type(error).__name__}: "
                answer = {"problem": " ".join(f"{kind}{error}".split())[:200]}
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
