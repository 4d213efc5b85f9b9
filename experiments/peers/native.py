"""Pinocchio in C++ and MuJoCo in C: batches without Python inside."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import ctypes
from collections.abc import Callable
from pathlib import Path

import numpy as np
from peers.model_files import Description, mjcf_text
from peers.task import ROLLOUT, Task

PINOCCHIO_FUNCTIONS = (  # in the order of pinocchio_dynamics.cpp
    "forward kinematics",
    "inverse dynamics",
    "mass matrix",
    "forward dynamics",
    "Coriolis matrix",
    "derivatives of forward dynamics",
)


def pinocchio(robot: Description, task: Task, library: Path, threads: int) -> tuple[Callable, Callable]:
    """One call of Pinocchio's loop over a batch, and the meaning of its result.

    Args:
        library: Shared library compiled from pinocchio_dynamics.cpp.

    Returns:
        call() -> an array that is overwritten every time, and parts(array) -> list of arrays to be compared.
    """
    compiled = ctypes.CDLL(str(library))
    create, evaluate = getattr(compiled, f"create_{task.dtype}"), getattr(compiled, f"evaluate_{task.dtype}")
    create.restype = ctypes.c_void_p
    bodies = robot["bodies"]
    assert all(body["axis"] == [0.0, 0.0, 1.0] for body in bodies)
    parents = np.array([body["parent"] for body in bodies], np.int32)
    numbers = np.array(
        [
            [
                *np.ravel(rotation(body["quaternion_wxyz"])),
                *body["translation"],
                body["mass"],
                *body["com"],
                *np.ravel(body["inertia"]),
            ]
            for body in bodies
        ]
    )
    n = task.n
    width = {"forward kinematics": 12 * n, "inverse dynamics": n, "forward dynamics": n}.get(task.function, n * n)
    width *= 2 if task.function.startswith("derivatives") else 1
    arguments, result = task.arguments(), np.empty((task.batch, width), task.dtype)
    arrays = (parents, numbers, np.array(robot["gravity"]), *arguments, result)
    at = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
    model = ctypes.c_void_p(create(len(bodies), *at[:3], threads))
    sizes = (PINOCCHIO_FUNCTIONS.index(task.function), ctypes.c_long(task.batch), ctypes.c_long(width))

    def call():
        evaluate(model, *sizes, *at[3:])
        return arrays[-1]  # which keeps all of them alive

    def parts(array):
        if task.function == "forward kinematics":
            return [array.reshape(-1, n, 12)[:, :, 9:]]
        if task.function.startswith("derivatives"):
            return [array[:, : n * n], array[:, n * n :]]
        return [array]

    return call, parts


def rotation(quaternion) -> np.ndarray:
    """Matrix of a unit quaternion."""
    w, x, y, z = quaternion
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + 2 * (w * cross + cross @ cross)


def mujoco(robot: Description, task: Task, threads: int) -> tuple[Callable, Callable]:
    """Motion of a batch by `mujoco.rollout`, or accelerations one sample after the other, for the check; see `pinocchio`."""
    import mujoco
    import mujoco.rollout

    model = mujoco.MjModel.from_xml_string(mjcf_text(robot, task.dt or 1e-3))
    order = [model.joint(body["joint"]).qposadr[0] for body in robot["bodies"]]
    back = np.argsort(order)
    q, v, last = (np.ascontiguousarray(x[..., back], np.float64) for x in task.arguments())
    data = [mujoco.MjData(model) for _ in range(threads)]
    if task.function != ROLLOUT:

        def accelerations():
            result = np.empty_like(q)
            for i in range(len(q)):
                data[0].qpos, data[0].qvel, data[0].ctrl = q[i], v[i], last[i]
                mujoco.mj_forward(model, data[0])
                result[i] = data[0].qacc
            return result

        return accelerations, lambda array: [array[:, order]]
    runner = mujoco.rollout.Rollout(nthread=0 if threads == 1 else threads)
    initial = np.concatenate([np.zeros((len(q), 1)), q, v], axis=1)  # time first
    states = np.empty((task.batch, task.steps, initial.shape[1]))

    def call():
        runner.rollout(model, data if threads > 1 else data[0], initial, last, nstep=task.steps, state=states)
        return states[:, -1, 1:]

    return call, lambda array: [array[:, : task.n][:, order], array[:, task.n :][:, order]]
