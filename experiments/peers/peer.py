"""Other libraries on an open chain of revolute joints without contacts, friction and limits; for benchmark_lanes.py.

Pinocchio and MuJoCo are classes to import. Libraries that use JAX are measured in environments of their own, each with the
version of JAX that it runs fastest on. This file needs nothing else there, checks their numbers and prints a line of JSON for each
of rollouts without drive torques, and value and reverse gradient of sum(q_last^2) with respect to initial state and controls:

    python peer.py frax arm.json peer_inputs.npz --dt 1e-3 --steps 100 --threads 1 --seconds 0.5

MJX and Brax make their own steps; frax, JaxSim and adam give accelerations to the two lines of semi-implicit Euler here.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import argparse
import importlib.metadata
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Arm = dict[str, Any]
"""name, gravity, bodies: name, joint, parent (-1 is the ground), axis, quaternion_wxyz, translation, mass, com, inertia."""

_INERTIA = {"ixx": (0, 0), "ixy": (0, 1), "ixz": (0, 2), "iyy": (1, 1), "iyz": (1, 2), "izz": (2, 2)}
_UNIT_INERTIA = {name: float(i == j) for name, (i, j) in _INERTIA.items()}


# ---------------------------------------------------------------- file formats


def _text(numbers) -> str:
    """Numbers as XML holds them, without loss."""
    return " ".join(repr(float(x)) for x in numbers)


def _inertia(body: dict[str, Any]) -> dict[str, float]:
    return {name: body["inertia"][i][j] for name, (i, j) in _INERTIA.items()}


def _roll_pitch_yaw(quaternion) -> tuple[float, float, float]:
    """Angles of R = Rz(yaw) Ry(pitch) Rx(roll)."""
    w, x, y, z = quaternion
    roll = math.atan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    pitch = math.asin(max(-1.0, min(1.0, 2 * (w * y - z * x))))
    yaw = math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return roll, pitch, yaw


def _parent(arm: Arm, body: dict[str, Any]) -> str:
    return "base" if body["parent"] < 0 else arm["bodies"][body["parent"]]["name"]


def mjcf_text(arm: Arm, dt: float) -> str:
    """The arm for MuJoCo, MJX and Brax: motors of gear 1, semi-implicit Euler, and a geometry on the ground, which Brax needs."""
    inside = ""
    for body in reversed(arm["bodies"]):  # a chain: every body lies inside the one before
        moments = _inertia(body)
        full = _text(moments[name] for name in ("ixx", "iyy", "izz", "ixy", "ixz", "iyz"))
        inside = (
            f'<body name="{body["name"]}" pos="{_text(body["translation"])}" quat="{_text(body["quaternion_wxyz"])}">'
            f'<inertial pos="{_text(body["com"])}" mass="{body["mass"]!r}" fullinertia="{full}"/>'
            f'<joint name="{body["joint"]}" type="hinge" axis="{_text(body["axis"])}"/>{inside}</body>'
        )
    motors = "".join(f'<motor joint="{body["joint"]}"/>' for body in arm["bodies"])
    return (
        f'<mujoco model="{arm["name"]}"><compiler autolimits="false" balanceinertia="false"/>'
        f'<option gravity="{_text(arm["gravity"])}" timestep="{dt!r}" integrator="Euler">'
        '<flag contact="disable" constraint="disable" eulerdamp="disable"/></option>'
        '<custom><numeric name="matrix_inv_iterations" data="0"/></custom>'  # Brax: exact inverse of the mass matrix
        '<worldbody><geom size="0.01" contype="0" conaffinity="0"/>'
        f"{inside}</worldbody><actuator>{motors}</actuator></mujoco>"
    )


def urdf_text(arm: Arm) -> str:
    """The arm for Pinocchio, frax and adam, on a link "base" that never moves, whose inertia frax asks for."""

    def link(name, com, mass, inertia):
        moments = " ".join(f'{key}="{value!r}"' for key, value in inertia.items())
        return (
            f'<link name="{name}"><inertial><origin xyz="{_text(com)}" rpy="0 0 0"/><mass value="{mass!r}"/>'
            f"<inertia {moments}/></inertial></link>"
        )

    parts = [link("base", (0, 0, 0), 1.0, _UNIT_INERTIA)]
    for body in arm["bodies"]:
        parts.append(link(body["name"], body["com"], body["mass"], _inertia(body)))
        parts.append(
            f'<joint name="{body["joint"]}" type="revolute"><parent link="{_parent(arm, body)}"/>'
            f'<child link="{body["name"]}"/><origin xyz="{_text(body["translation"])}" '
            f'rpy="{_text(_roll_pitch_yaw(body["quaternion_wxyz"]))}"/><axis xyz="{_text(body["axis"])}"/>'
            '<limit lower="-1e6" upper="1e6" effort="1e6" velocity="1e6"/></joint>'
        )
    return f'<robot name="{arm["name"]}">{"".join(parts)}</robot>'


def sdf_text(arm: Arm) -> str:
    """The arm for JaxSim, which reads URDF only by a program of its own, on a link "base" fixed to the world."""

    def link(name, pose, com, mass, inertia):
        moments = "".join(f"<{key}>{value!r}</{key}>" for key, value in inertia.items())
        return (
            f'<link name="{name}">{pose}<inertial><pose>{_text(com)} 0 0 0</pose><mass>{mass!r}</mass>'
            f"<inertia>{moments}</inertia></inertial></link>"
        )

    parts = [
        link("base", "", (0, 0, 0), 1.0, _UNIT_INERTIA),
        '<joint name="base_fixed" type="fixed"><parent>world</parent><child>base</child></joint>',
    ]
    for body in arm["bodies"]:
        parent, joint = _parent(arm, body), body["joint"]
        placement = _text((*body["translation"], *_roll_pitch_yaw(body["quaternion_wxyz"])))
        parts.append(
            f'<joint name="{joint}" type="revolute"><parent>{parent}</parent><child>{body["name"]}</child>'
            f'<pose relative_to="{parent}">{placement}</pose><axis><xyz>{_text(body["axis"])}</xyz>'
            "<limit><lower>-1e6</lower><upper>1e6</upper></limit></axis></joint>"
        )
        pose = f'<pose relative_to="{joint}">0 0 0 0 0 0</pose>'
        parts.append(link(body["name"], pose, body["com"], body["mass"], _inertia(body)))
    return f'<sdf version="1.7"><model name="{arm["name"]}">{"".join(parts)}</model></sdf>'


# ---------------------------------------------------------------- libraries in C++ and C, double precision


class Pinocchio:
    """The articulated-body algorithm by Pinocchio's own batched call."""

    def __init__(self, arm: Arm, threads: int):
        import pinocchio

        self.pinocchio, self.threads = pinocchio, threads
        model = pinocchio.buildModelFromXML(urdf_text(arm))
        model.gravity.linear = np.array(arm["gravity"])
        assert list(model.names)[1:] == [body["joint"] for body in arm["bodies"]]
        self.pool = pinocchio.ModelPool(model, threads)

    def accelerations(self, q: np.ndarray, v: np.ndarray, tau: np.ndarray) -> np.ndarray:
        """(batch, n), rows contiguous as Pinocchio wants its columns, so nothing is copied."""
        result = np.empty_like(q)
        self.pinocchio.abaInParallel(self.threads, self.pool, q.T, v.T, tau.T, result.T)
        return result


class MuJoCo:
    """Passive motion by `mujoco.rollout`, with arrays made once."""

    def __init__(self, arm: Arm, dt: float, threads: int):
        import mujoco
        import mujoco.rollout

        self.model = mujoco.MjModel.from_xml_string(mjcf_text(arm, dt))
        self.data = [mujoco.MjData(self.model) for _ in range(threads)]
        self.runner = mujoco.rollout.Rollout(nthread=0 if threads == 1 else threads)
        self.states = np.empty((0, 0, 0))

    def rollout(self, q: np.ndarray, v: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Last coordinates and velocities of a batch of states."""
        initial = np.concatenate([np.zeros((len(q), 1)), q, v], axis=1)  # time first
        if self.states.shape[:2] != (len(q), steps):
            self.states = np.empty((len(q), steps, initial.shape[1]))
        data = self.data if len(self.data) > 1 else self.data[0]
        self.runner.rollout(self.model, data, initial, nstep=steps, state=self.states)
        n = q.shape[1]
        return self.states[:, -1, 1 : n + 1], self.states[:, -1, n + 1 :]


# ---------------------------------------------------------------- libraries that use JAX


class Stepper(NamedTuple):
    """start(q, v) -> state, advance(state, tau) -> state, coordinates(state) -> q, all for one sample."""

    start: Callable
    advance: Callable
    coordinates: Callable


def euler(accelerations: Callable, dt: float) -> Stepper:
    def advance(state, tau):
        q, v = state
        v = v + dt * accelerations(q, v, tau)
        return q + dt * v, v

    return Stepper(lambda q, v: (q, v), advance, lambda state: state[0])


def frax(arm: Arm, dt: float) -> Stepper:
    import frax

    assert arm["gravity"] == [0.0, 0.0, -9.81]  # frax knows no other
    with tempfile.NamedTemporaryFile("w", suffix=".urdf") as file:
        file.write(urdf_text(arm))
        file.flush()
        robot = frax.Manipulator(file.name)
    return euler(lambda q, v, tau: robot.forward_dynamics(q, v, tau, None), dt)


def jaxsim(arm: Arm, dt: float) -> Stepper:
    import jax.numpy as jnp
    import jaxsim
    import jaxsim.api as js

    model = js.model.JaxSimModel.build_from_model_description(
        sdf_text(arm),
        is_urdf=False,
        gravity=-arm["gravity"][2],  # positive downwards
    )
    base = {
        "base_position": jnp.zeros(3),
        "base_quaternion": jnp.array([1.0, 0.0, 0.0, 0.0]),
        "base_linear_velocity": jnp.zeros(3),
        "base_angular_velocity": jnp.zeros(3),
    }

    def accelerations(q, v, tau):
        transforms = model.kin_dyn_parameters.joint_transforms(joint_positions=q, base_transform=jnp.eye(4))
        return jaxsim.rbda.aba(
            model,
            **base,
            joint_positions=q,
            joint_velocities=v,
            joint_transforms=transforms,
            joint_forces=tau,
            standard_gravity=model.gravity,
        )[1]

    return euler(accelerations, dt)


def adam(arm: Arm, dt: float) -> Stepper:
    """adam takes every robot as floating: the joints' block of mass matrix and bias force is the fixed arm."""
    import adam.jax
    import jax
    import jax.numpy as jnp

    joints = [body["joint"] for body in arm["bodies"]]
    gravity = jnp.array([*arm["gravity"], 0.0, 0.0, 0.0], jnp.float32)
    library = adam.jax.KinDynComputations(urdf_text(arm), joints, dtype=jnp.dtype("float32"), gravity=gravity)

    def accelerations(q, v, tau):
        ground = jnp.eye(4)
        mass_matrix = library.mass_matrix(ground, q)[6:, 6:]
        bias_force = library.bias_force(ground, q, jnp.zeros(6), v)[6:]
        return jax.scipy.linalg.solve(mass_matrix, tau - bias_force, assume_a="pos")

    return euler(accelerations, dt)


def mjx(arm: Arm, dt: float) -> Stepper:
    import mujoco
    from mujoco import mjx

    model = mjx.put_model(mujoco.MjModel.from_xml_string(mjcf_text(arm, dt)))
    return Stepper(
        lambda q, v: mjx.make_data(model).replace(qpos=q, qvel=v),
        lambda state, tau: mjx.step(model, state.replace(ctrl=tau)),
        lambda state: state.qpos,
    )


def brax(arm: Arm, dt: float) -> Stepper:
    from brax.generalized import pipeline
    from brax.io import mjcf

    system = mjcf.loads(mjcf_text(arm, dt))
    return Stepper(
        lambda q, v: pipeline.init(system, q, v),
        lambda state, tau: pipeline.step(system, state, tau),
        lambda state: state.q,
    )


JAX_PEERS = {"frax": frax, "mjx": mjx, "jaxsim": jaxsim, "brax": brax, "adam": adam}
PACKAGES = {"frax": "frax", "mjx": "mujoco-mjx", "jaxsim": "jaxsim", "brax": "brax", "adam": "adam-robotics"}


# ---------------------------------------------------------------- measuring, in an environment of a JAX peer


def measure(function: Callable, arguments: tuple, seconds: float) -> tuple[Any, dict[str, Any]]:
    """The result of a batch, and its times in s: to compile (tracing included), to the first result, median of runs."""
    import jax

    begin = time.perf_counter()
    compiled = jax.jit(jax.vmap(function)).lower(*arguments).compile()
    compile_s = time.perf_counter() - begin
    result = jax.block_until_ready(compiled(*arguments))
    first_s = time.perf_counter() - begin
    times = []
    while len(times) < 3 or sum(times) < seconds:
        begin = time.perf_counter()
        jax.block_until_ready(compiled(*arguments))
        times.append(time.perf_counter() - begin)
    return result, {"compile_s": compile_s, "first_s": first_s, "run_s": statistics.median(times)}


def difference(actual, expected: np.ndarray) -> float:
    """Largest difference relative to the largest number of each lane."""
    axes = tuple(range(1, expected.ndim))
    error = np.max(np.abs(np.asarray(actual, np.float64) - expected), axis=axes)
    return float(np.max(error / np.max(np.abs(expected), axis=axes)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=JAX_PEERS)
    parser.add_argument("arm", type=Path)
    parser.add_argument("inputs", type=Path)
    parser.add_argument("--dt", type=float, required=True, help="s")
    parser.add_argument("--steps", type=int, required=True, help="of the rollouts")
    parser.add_argument("--threads", type=int, default=1, help="processor cores that the process may use")
    parser.add_argument("--seconds", type=float, default=0.5, help="time for the repetitions")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-options.threads :])
    os.environ |= {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "0", "JAX_TRACEBACK_FILTERING": "off"}
    # Small matrix products are up to three times as fast without Eigen's threads, and never slower.
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    import jax
    import jax.numpy as jnp

    stepper = JAX_PEERS[options.peer](json.loads(options.arm.read_text()), options.dt)

    def last_coordinates(q, v, controls, steps=None):
        def advance(state, tau):
            return stepper.advance(state, jnp.zeros_like(v) if tau is None else tau), None

        return stepper.coordinates(jax.lax.scan(advance, stepper.start(q, v), controls, steps)[0])

    def loss(q, v, controls):
        return jnp.sum(last_coordinates(q, v, controls) ** 2)

    with np.load(options.inputs) as inputs:
        q, v, controls = (jnp.asarray(inputs[name], jnp.float32) for name in ("q", "v", "controls"))
        last_q, gradient_controls = inputs["last_q"], inputs["gradient_controls"]
    few = len(controls)
    note = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in (PACKAGES[options.peer], "jax"))
    result, times = measure(lambda q, v: last_coordinates(q, v, None, options.steps), (q, v), options.seconds)
    print(json.dumps({"difference": difference(result, last_q), "note": note, **times}), flush=True)
    gradient = jax.value_and_grad(loss, argnums=(0, 1, 2))
    (_, result), times = measure(gradient, (q[:few], v[:few], controls), options.seconds)
    print(json.dumps({"difference": difference(result[2], gradient_controls), "note": note, **times}))


if __name__ == "__main__":
    main()
