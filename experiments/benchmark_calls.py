"""How long does one call from Python take, in jaxdyn and in other libraries?

Method. A control loop calls one function for one state at a time. Ways of jaxdyn are the function itself, the function in a `jit`
of the user, and a `kernel`; of a step, `rollout(steps=1)`, the same in `jit`, and a `stepper`. Pinocchio and MuJoCo are called by
their Python packages. All ways run in one process and take turns; every call ends when its result is there. The table states
processor time per call, the median of the rounds. "Cold" are calls after other work that has replaced the contents of the caches,
as in a loop that also processes images.

Peers are optional (pip install pin mujoco); their columns are empty without them. They compute in double precision, as do the rows
of jaxdyn unless dtype="float32".

Run time. About 2 min. Leave the machine alone meanwhile.

    python experiments/benchmark_calls.py [configs/benchmark_calls.toml] [--out DIR] [--smoke] [key=value ...]
"""

import dataclasses
import importlib
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from peers import walker
from peers.mechanisms import described, mechanism
from peers.model_files import mjcf_text, urdf_text

import jaxdyn
from jaxdyn.io import RunDirectory, setting
from jaxdyn.jobs import Job, main

_FEET = "quadruped on its feet"
_ROUND = 0.02  # s of calls of one way in a round
_OTHER_WORK = 48_000_000  # bytes, more than the caches
_WAYS = ("function", "jit", "kernel", "kernel, cold", "Pinocchio", "Pinocchio, cold", "MuJoCo")


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        mechanisms: "chain N" or "tree 27" of random bodies, or "quadruped on its feet" for a step alone.
        dtype: Precision of jaxdyn.
        dt: Length of a step.
        rounds: Number of turns of each way.
    """

    mechanisms: tuple[str, ...] = ("chain 7", "tree 27", _FEET)
    dtype: Literal["float32", "float64"] = "float64"
    dt: float = setting(1e-3, unit="s", positive=True)
    rounds: int = setting(7, positive=True)


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    rows = []
    with jax.enable_x64(config.dtype == "float64"):
        for name in config.mechanisms:
            for function, ways in ways_of(name, config).items():
                rows.append({"function": function, "mechanism": name, "us": measured(ways, config.rounds)})
                directory.write_text("table.md", table(rows) + "\n")
    print(table(rows))
    return {"rows": rows, "versions": jaxdyn.io.environment()}


def ways_of(name: str, config: Config) -> dict[str, dict[str, Callable[[], Any]]]:
    """Calls by the name of the function and the way."""
    found = {"step": step_of(name, config)}
    if name == _FEET:
        return found
    model = mechanism(name, config.dtype)
    rng = np.random.default_rng(0)
    q, v, tau = (rng.uniform(-1.0, 1.0, model.nv).astype(config.dtype) for _ in range(3))
    functions: dict[str, tuple[Callable, tuple]] = {
        "forward dynamics": (jaxdyn.forward_dynamics, (q, v, tau)),
        "inverse dynamics": (jaxdyn.inverse_dynamics, (q, v, tau)),
        "mass matrix": (jaxdyn.mass_matrix, (q,)),
        "forward kinematics": (jaxdyn.forward_kinematics, (q,)),
        "derivatives": (jaxdyn.forward_dynamics_derivatives, (q, v, tau)),
    }
    of_pinocchio = pinocchio_calls(model, q, v, tau)
    for label, (function, given) in functions.items():

        def of_state(*arguments: Any, function: Callable = function) -> Any:
            return function(model, *arguments)

        arrays, kernel = [jnp.asarray(x) for x in given], jaxdyn.kernel(of_state, *given)
        jitted = jax.jit(of_state)
        found[label] = {
            "function": lambda f=of_state, a=arrays: jax.block_until_ready(f(*a)),
            "jit": lambda f=jitted, a=arrays: jax.block_until_ready(f(*a)),
            "kernel": lambda f=kernel, a=given: f(*a),
            "kernel, cold": lambda f=kernel, a=given: f(*a),
        }
        if label in of_pinocchio:
            found[label] |= {"Pinocchio": of_pinocchio[label], "Pinocchio, cold": of_pinocchio[label]}
    return found


def step_of(name: str, config: Config) -> dict[str, Callable[[], Any]]:
    if name == _FEET:
        system = walker.standing(len(walker.FEET), config.dtype)
        q, text = walker.posture().astype(config.dtype), walker.mjcf(len(walker.FEET), config.dt)
    else:
        model = mechanism(name, config.dtype)
        system, q = jaxdyn.System(model), np.full(model.nq, 0.3, config.dtype)
        text = mjcf_text(described(model), config.dt)
    v, step = np.zeros(system.model.nv, config.dtype), jaxdyn.stepper(system, config.dt)
    state = jaxdyn.State(jnp.asarray(q), jnp.asarray(v))

    def rolled(state: jaxdyn.State) -> jaxdyn.State:
        return jaxdyn.rollout(system, state, dt=config.dt, steps=1).final

    jitted = jax.jit(rolled)
    ways: dict[str, Callable[[], Any]] = {
        "function": lambda: jax.block_until_ready(rolled(state)),
        "jit": lambda: jax.block_until_ready(jitted(state)),
        "kernel": lambda: step(q, v),
        "kernel, cold": lambda: step(q, v),
    }
    mujoco = optional("mujoco")
    if mujoco is not None:
        scene = mujoco.MjModel.from_xml_string(text)
        data = mujoco.MjData(scene)
        data.qpos[:] = q
        ways["MuJoCo"] = lambda: mujoco.mj_step(scene, data)
    return ways


def optional(package: str) -> Any:
    """A package, or None if it is not installed."""
    try:
        return importlib.import_module(package)
    except ImportError:
        return None


def pinocchio_calls(model: jaxdyn.Model, *arrays: np.ndarray) -> dict[str, Callable[[], Any]]:
    pinocchio = optional("pinocchio")
    if pinocchio is None:
        return {}
    robot = pinocchio.buildModelFromXML(urdf_text(described(model)))
    data = robot.createData()
    # Pinocchio sorts joints by their names.
    places = [robot.joints[robot.getJointId(name)].idx_v for name in model.topology.joint_names]
    q, v, tau = (x.astype(float)[np.argsort(places)] for x in arrays)
    found, ours = (
        pinocchio.aba(robot, data, q, v, tau)[places],
        jaxdyn.forward_dynamics(model, *map(jnp.asarray, arrays)),
    )
    np.testing.assert_allclose(ours, found, atol=1e-2 * np.abs(found).max())
    return {
        "forward dynamics": lambda: pinocchio.aba(robot, data, q, v, tau),
        "inverse dynamics": lambda: pinocchio.rnea(robot, data, q, v, tau),
        "mass matrix": lambda: pinocchio.crba(robot, data, q),
        "forward kinematics": lambda: pinocchio.forwardKinematics(robot, data, q),
        "derivatives": lambda: pinocchio.computeABADerivatives(robot, data, q, v, tau),
    }


def measured(ways: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median processor time of a call of each way, microseconds."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    other = np.zeros(_OTHER_WORK // 8)
    for _ in range(rounds):
        for way, call in ways.items():
            call()
            spent, calls = 0.0, 0
            while spent < _ROUND:
                if way.endswith("cold"):
                    other += 1.0
                count = 1 if way.endswith("cold") else 20
                start = time.process_time()
                for _ in range(count):
                    call()
                spent, calls = spent + time.process_time() - start, calls + count
            times[way].append(1e6 * spent / calls)
    return {way: statistics.median(found) for way, found in times.items()}


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["Processor time of a call from Python, microseconds:", ""]
    lines += [f"| | mechanism | {' | '.join(_WAYS)} |", "|" + "---|" * (len(_WAYS) + 2)]
    for row in rows:
        cells = [f"{row['us'][way]:.3g}" if way in row["us"] else "" for way in _WAYS]
        lines.append(f"| {row['function']} | {row['mechanism']} | {' | '.join(cells)} |")
    return "\n".join(lines)


JOB = Job("benchmark-calls", __doc__ or "", Config, work)

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
