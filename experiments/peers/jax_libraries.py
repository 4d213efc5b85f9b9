"""frax, MJX, JaxSim, adam and Brax on a tree of hinges, each by its own fastest functions of one sample."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from peers.model_files import Description, mjcf_text, sdf_text, urdf_text


class Library(NamedTuple):
    """A mechanism in a library; every function is of one sample.

    Attributes:
        placements: Function q -> positions of the bodies (n, 3), and their orientations in the form of the library.
        inverse_dynamics: Function q, v, a -> tau.
        mass_matrix: Function q -> M.
        forward_dynamics: Function q, v, tau -> a.
        start: Function q, v -> state.
        step: Function state, tau -> state after a step of semi-implicit Euler.
        coordinates: Function state -> q, v.
    """

    placements: Callable
    inverse_dynamics: Callable
    mass_matrix: Callable
    forward_dynamics: Callable
    start: Callable
    step: Callable
    coordinates: Callable


def semi_implicit_euler(forward_dynamics: Callable, dt: float) -> tuple[Callable, Callable, Callable]:
    """start, step and coordinates for a library that has no integrator."""

    def step(state, tau):
        q, v = state
        v = v + dt * forward_dynamics(q, v, tau)
        return q + dt * v, v

    return lambda q, v: (q, v), step, lambda state: state


def frax(robot: Description, dt: float, dtype: str) -> Library:
    from frax.core.robot import Robot

    assert robot["gravity"] == [0.0, 0.0, -9.81]  # frax knows no other
    with tempfile.NamedTemporaryFile("w", suffix=".urdf") as file:
        file.write(urdf_text(robot))
        file.flush()
        # Its order of joints would be breadth first; of a chain there is only one.
        own = Robot(file.name, joint_ordering=[body["joint"] for body in robot["bodies"]])
    upward = jnp.array([0.0, 0.0, 9.81, 0.0, 0.0, 0.0])

    def placements(q):
        transforms = own.joint_to_world_transforms(q)
        return transforms[:, :3, 3], transforms[:, :3, :3]

    def accelerations(q, v, tau):
        return own.forward_dynamics(q, v, tau, None)

    def forces(q, v, a):
        return own.rnea(q, v, a, upward, None)

    return Library(placements, forces, own.crba, accelerations, *semi_implicit_euler(accelerations, dt))


def jaxsim(robot: Description, dt: float, dtype: str) -> Library:
    import jaxsim.api as js
    from jaxsim import rbda

    model = js.model.JaxSimModel.build_from_model_description(
        sdf_text(robot),
        is_urdf=False,
        gravity=-robot["gravity"][2],  # positive downwards
    )
    order = [model.joint_names().index(body["joint"]) for body in robot["bodies"]]
    back = np.argsort(order)
    links = [model.link_names().index(body["name"]) for body in robot["bodies"]]

    def base(q, v, suffix=""):
        return {
            "base_position": jnp.zeros(3),
            "base_quaternion": jnp.array([1.0, 0.0, 0.0, 0.0]),
            f"base_linear_velocity{suffix}": jnp.zeros(3),
            f"base_angular_velocity{suffix}": jnp.zeros(3),
            "joint_positions": q[back],
            "joint_velocities": v[back],
            "joint_transforms": model.kin_dyn_parameters.joint_transforms(
                joint_positions=q[back], base_transform=jnp.eye(4)
            ),
        }

    def placements(q):
        transforms = rbda.forward_kinematics_model(model, **base(q, jnp.zeros_like(q), "_inertial"))[0][
            jnp.array(links)
        ]
        return transforms[:, :3, 3], transforms[:, :3, :3]

    def forces(q, v, a):
        options = {"joint_accelerations": a[back], "standard_gravity": model.gravity}
        return rbda.rnea(model, **base(q, v), **options)[1][jnp.array(order)]

    def mass_matrix(q):
        joints = 6 + jnp.array(order)
        return rbda.crba(model, joint_positions=q[back])[joints[:, None], joints]

    def accelerations(q, v, tau):
        options = {"joint_forces": tau[back], "standard_gravity": model.gravity}
        return rbda.aba(model, **base(q, v), **options)[1][jnp.array(order)]

    return Library(placements, forces, mass_matrix, accelerations, *semi_implicit_euler(accelerations, dt))


def adam(robot: Description, dt: float, dtype: str) -> Library:
    """adam takes every robot as floating: the joints' block of mass matrix and bias force is the fixed one."""
    import adam.jax

    joints = [body["joint"] for body in robot["bodies"]]
    gravity = jnp.array([*robot["gravity"], 0.0, 0.0, 0.0], dtype)
    own = adam.jax.KinDynComputations(urdf_text(robot), joints, dtype=jnp.dtype(dtype), gravity=gravity)
    ground = jnp.eye(4, dtype=dtype)

    def placements(q):
        transforms = jnp.stack([own.forward_kinematics(body["name"], ground, q) for body in robot["bodies"]])
        return transforms[:, :3, 3], transforms[:, :3, :3]

    def bias(q, v):
        return own.bias_force(ground, q, jnp.zeros(6, dtype), v)[6:]

    def mass_matrix(q):
        return own.mass_matrix(ground, q)[6:, 6:]

    def accelerations(q, v, tau):
        return jax.scipy.linalg.solve(mass_matrix(q), tau - bias(q, v), assume_a="pos")

    def forces(q, v, a):
        return mass_matrix(q) @ a + bias(q, v)

    return Library(placements, forces, mass_matrix, accelerations, *semi_implicit_euler(accelerations, dt))


def mjx(robot: Description, dt: float, dtype: str) -> Library:
    import mujoco
    from mujoco import mjx

    model = mjx.put_model(mujoco.MjModel.from_xml_string(mjcf_text(robot, dt)))
    bodies = 1 + np.array(order_of_bodies(robot))  # the world is body 0
    order, back = bodies - 1, np.argsort(bodies)

    def data(q, v=None, **others):
        state = mjx.make_data(model).replace(qpos=q[back], **others)
        return state if v is None else state.replace(qvel=v[back])

    def placements(q):
        placed = mjx.kinematics(model, data(q))
        return placed.xpos[bodies], placed.xquat[bodies]

    def mass_matrix(q):
        placed = mjx.com_pos(model, mjx.kinematics(model, data(q)))
        return mjx.full_m(model, mjx.crb(model, placed))[order[:, None], order]

    def forces(q, v, a):
        placed = mjx.com_pos(model, mjx.kinematics(model, data(q, v, qacc=a[back])))
        return mjx.rne(model, mjx.com_vel(model, placed), flg_acc=True).qfrc_bias[order]

    def accelerations(q, v, tau):
        return mjx.forward(model, data(q, v, qfrc_applied=tau[back])).qacc[order]

    def step(state, tau):
        return mjx.step(model, state.replace(ctrl=tau))

    return Library(
        placements, forces, mass_matrix, accelerations, data, step, lambda state: (state.qpos[order], state.qvel[order])
    )


def brax(robot: Description, dt: float, dtype: str) -> Library:
    from brax import kinematics
    from brax.generalized import dynamics, mass, pipeline
    from brax.generalized.base import State
    from brax.io import mjcf

    system = mjcf.loads(mjcf_text(robot, dt))
    order = np.array(order_of_bodies(robot))
    back = np.argsort(order)

    def placements(q):
        placed = kinematics.forward(system, q[back], jnp.zeros_like(q))[0]
        return placed.pos[order], placed.rot[order]

    def placed(q, v):
        return dynamics.transform_com(
            system, State.init(q[back], v[back], *kinematics.forward(system, q[back], v[back]))
        )

    def mass_matrix(q):
        return mass.matrix(system, placed(q, jnp.zeros_like(q)))[order[:, None], order]

    def forces(q, v, a):
        state = placed(q, v)
        return (mass.matrix(system, state) @ a[back] + dynamics.inverse(system, state))[order]

    def accelerations(q, v, tau):
        state = placed(q, v)
        right = tau[back] - dynamics.inverse(system, state)
        return jax.scipy.linalg.solve(mass.matrix(system, state), right, assume_a="pos")[order]

    def start(q, v):
        return pipeline.init(system, q[back], v[back])

    def step(state, tau):
        return pipeline.step(system, state, tau)

    return Library(
        placements, forces, mass_matrix, accelerations, start, step, lambda state: (state.q[order], state.qd[order])
    )


def order_of_bodies(robot: Description) -> list[int]:
    """Where each body stands in MuJoCo's order, depth first."""
    visited: list[int] = []

    def visit(parent: int) -> None:
        for i, body in enumerate(robot["bodies"]):
            if body["parent"] == parent:
                visited.append(i)
                visit(i)

    visit(-1)
    return np.argsort(visited).tolist()


LIBRARIES: dict[str, Callable[[Description, float, str], Library]] = {
    "frax": frax,
    "mjx": mjx,
    "jaxsim": jaxsim,
    "brax": brax,
    "adam": adam,
}
"""How each is made, from a description, the length of a step and the precision."""


def function_of(library: Library, name: str) -> Callable[..., Any]:
    """The function of a task on (q, v, last) of one sample."""

    def christoffel_symbols(q, v, last):
        derivative = jax.jacfwd(library.mass_matrix)(q)  # [a, b, c] is dM_ab/dq_c
        return 0.5 * (derivative.transpose(0, 2, 1) + derivative.transpose(2, 0, 1) - derivative)

    def end(q, v, controls):
        state = jax.lax.scan(lambda state, tau: (library.step(state, tau), None), library.start(q, v), controls)[0]
        return library.coordinates(state)

    def loss(q, v, controls):
        return jnp.sum(end(q, v, controls)[0] ** 2)

    return {
        "forward dynamics": library.forward_dynamics,
        "inverse dynamics": library.inverse_dynamics,
        "forward kinematics": lambda q, v, last: library.placements(q),
        "mass matrix": lambda q, v, last: library.mass_matrix(q),
        "Christoffel symbols": christoffel_symbols,
        "derivatives of forward dynamics": jax.jacfwd(library.forward_dynamics, (0, 1)),
        "rollout": end,
        "rollout gradient": jax.value_and_grad(loss, (0, 1, 2)),
    }[name]
