"""One route of the contact benchmark as a separate process on one processor core.

    python -m peers.contact_worker ROUTE FOLDER POINTS DTYPE SECONDS

FOLDER has `quadruped_POINTS.xml` and `start.npz` (states and targets of the controllers, see `benchmark_contact.py`). The process
prints one line of JSON with the time of the first call and the rate of the next ones. It runs in the environment of the measured
library, and imports no other library.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PACKAGES = {"jaxdyn": "jax", "gradient": "jax", "mujoco": "mujoco", "mjx": "mujoco-mjx", "brax": "brax"}


def one_core() -> None:
    """Use one core and one thread; this must precede the import of JAX."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()


def own(start: dict[str, Any], points: int, dtype: str, gradient: bool) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp
    from peers import walker

    import jaxdyn

    jaxdyn.lanes.set_threads(1)
    system, steps = walker.standing(points, dtype), int(start["steps"])
    states = jaxdyn.State(jnp.asarray(start["q"], dtype), jnp.asarray(start["v"], dtype))

    def final(state):
        return jaxdyn.rollout(system, state, dt=float(start["dt"]), steps=steps, save_every=steps).final

    function = jax.grad(lambda state: jnp.sum(final(state).q[:3])) if gradient else final
    compiled = jax.jit(jax.vmap(function))
    return lambda: jax.block_until_ready(compiled(states)).q


def mujoco(start: dict[str, Any], xml: str) -> Callable[[], Any]:
    import mujoco
    import mujoco.rollout

    model = mujoco.MjModel.from_xml_string(xml)
    data, runner = mujoco.MjData(model), mujoco.rollout.Rollout(nthread=0)
    count, steps = len(start["q"]), int(start["steps"])
    initial = np.concatenate([np.zeros((count, 1)), start["q"], start["v_ground"]], axis=1)  # time first
    controls = np.tile(start["target"], (count, steps, 1))
    states = np.empty((count, steps, initial.shape[1]))

    def call():
        runner.rollout(model, data, initial, controls, nstep=steps, state=states)
        return states[:, -1]

    return call


def mjx(start: dict[str, Any], xml: str) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp
    import mujoco
    from mujoco import mjx

    compiled = mujoco.MjModel.from_xml_string(xml)
    model = mjx.put_model(compiled)
    empty = mjx.make_data(compiled).replace(ctrl=jnp.asarray(start["target"]))

    def final(q, v):
        data = jax.lax.fori_loop(0, int(start["steps"]), lambda _, d: mjx.step(model, d), empty.replace(qpos=q, qvel=v))
        return data.qpos

    run = jax.jit(jax.vmap(final))
    return lambda: jax.block_until_ready(run(start["q"], start["v_ground"]))


def brax(start: dict[str, Any], xml: str) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp
    from brax.generalized import pipeline
    from brax.io import mjcf

    # Brax supports this integrator only.
    system = mjcf.loads(xml.replace('integrator="implicitfast"', 'integrator="Euler"'))
    target = jnp.asarray(start["target"])

    def final(q, v):
        state = pipeline.init(system, q, v)
        return jax.lax.fori_loop(0, int(start["steps"]), lambda _, s: pipeline.step(system, s, target), state).q

    run = jax.jit(jax.vmap(final))
    return lambda: jax.block_until_ready(run(start["q"], start["v_ground"]))


def main(route: str, folder: str, points: str, dtype: str, seconds: str) -> None:
    one_core()
    os.environ["JAX_ENABLE_X64"] = str(int(dtype == "float64"))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the output of libraries is not an answer
    start = dict(np.load(Path(folder) / "start.npz"))
    xml = (Path(folder) / f"quadruped_{points}.xml").read_text(encoding="utf-8")
    if route in ("jaxdyn", "gradient"):
        call = own(start, int(points), dtype, route == "gradient")
    else:
        for name in ("q", "v_ground", "target"):
            start[name] = start[name].astype(dtype if route != "mujoco" else np.float64)
        call = {"mujoco": mujoco, "mjx": mjx, "brax": brax}[route](start, xml)
    begin = time.perf_counter()
    result = np.asarray(call())
    first = time.perf_counter() - begin
    assert np.all(np.isfinite(result)), "the motion is not finite"
    taken: list[float] = []
    while not taken or sum(taken) < float(seconds):
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    answer = {"first_s": first, "call_s": float(np.median(taken)), "calls": len(taken)}
    answer["rate"] = len(start["q"]) * int(start["steps"]) / answer["call_s"]
    answer["version"] = f"{PACKAGES[route]} {importlib.metadata.version(PACKAGES[route])}"
    print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main(*sys.argv[1:])
