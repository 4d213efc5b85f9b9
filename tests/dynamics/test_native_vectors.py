"""The theory's numeric vector for joints on their manifolds: a free body, a ball joint and a hinge, falling."""

import json
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stacked_reactions import stacked

from jaxdyn import (
    Free,
    MechanismBuilder,
    Revolute,
    Spherical,
    State,
    System,
    acceleration,
    as_dtype,
    forward_kinematics,
    inverse_dynamics,
    joint_reactions,
    kinetic_energy,
    mass_center_velocities,
    mass_matrix,
)
from jaxdyn.dynamics import mass_center_accelerations
from jaxdyn.spatial import quaternion

_SHARED = Path(os.environ.get("JAXDYN_SHARED", Path(__file__).parents[3] / "shared"))
_FILE = _SHARED / "theory_vectors.json"
_VECTOR = json.loads(_FILE.read_text())["native_joints"]["free_ball_revolute"] if _FILE.exists() else {}

pytestmark = [
    pytest.mark.skipif(not _VECTOR, reason=f"{_FILE} is not there"),
]


def _mechanism():
    """The system of the vector and its state; quaternions are left as long as they are given."""
    given, results = _VECTOR["inputs"], _VECTOR["results"]
    free, ball, hinge = given["free"], given["ball"], given["revolute"]
    axis = np.array(hinge["axis"]) / np.linalg.norm(hinge["axis"])
    builder = MechanismBuilder("free, ball, revolute", given["gravity"])
    parent = "ground"
    joints = {"free": Free(), "ball": Spherical(), "revolute": Revolute(axis)}
    for name, joint in joints.items():
        body = given[name]
        builder.add_body(
            name,
            parent=parent,
            joint=joint,
            position=body.get("joint_offset", (0.0, 0.0, 0.0)),
            mass=body["mass"],
            com=body["com"],
            inertia=body["inertia"],
        )
        parent = name
    q = jnp.asarray([*free["position"], *free["quaternion"], *ball["quaternion"], hinge["q"]])
    v = jnp.asarray([*results["velocity_free_twist_child"], *ball["body_rates"], hinge["qd"]])
    return System(builder.build()), State(q, v)


def _expected():
    r = _VECTOR["results"]
    a = [*r["udot_free_twist_child"], *r["udot_ball"], r["qdd_revolute"]]
    forces = [[0.0] * 3, r["ball_force_on_child"], r["revolute_force_on_child"]]
    moments = [[0.0] * 3, [0.0] * 3, r["revolute_moment_on_child"]]
    values = {"a": a, "com": r["r_com"], "a_com": r["a_com"], "eps": r["eps"], "force": forces, "moment": moments}
    return {k: np.array(x) for k, x in values.items()} | {
        "energy": np.array(r["kinetic_energy"]),
        "free fall": np.zeros(10),
    }


def _in_order_of_joints(model, reactions):
    return stacked({name: reactions[name] for name in model.topology.joint_names})


@jax.jit
def _routes(system, state, a):
    model = system.model
    moved = mass_center_accelerations(model, state.q, state.v, a)
    placed = forward_kinematics(model, state.q)
    reactions = _in_order_of_joints(model, joint_reactions(system, state))
    of_given = _in_order_of_joints(model, joint_reactions(system, state, a=a))
    articulated = acceleration(System(model, method="articulated_body"), state)
    return {
        "a": [acceleration(system, state), articulated],
        "com": [placed.translation + jnp.einsum("bij,bj->bi", placed.rotation, model.com)],
        "a_com": [moved.linear],
        "eps": [moved.angular],
        "force": [reactions.force, of_given.force, reactions.constraint_force],
        "moment": [reactions.moment, of_given.moment, reactions.constraint_moment],
        "free fall": [inverse_dynamics(model, state.q, state.v, a, method=k) for k in ("recursive", "covariant")],
        "energy": [
            kinetic_energy(model, state.q, state.v),
            0.5 * state.v @ mass_matrix(model, state.q) @ state.v,
        ],
    }


# The vectors have 16 digits; largest terms are the weights (10 N) and the centrifugal accelerations, and mass matrices of a free
# mechanism with light limbs have a condition of some hundreds.
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-4)])
def test_every_route_gives_the_vector(dtype, tolerance):
    expected = _expected()
    system, state, a = as_dtype((*_mechanism(), jnp.asarray(expected["a"])), dtype)
    for quantity, routes in _routes(system, state, a).items():
        for route in routes:
            assert route.dtype == dtype
            np.testing.assert_allclose(route, expected[quantity], rtol=0, atol=10.0 * tolerance, err_msg=quantity)


def test_twist_of_the_free_body_has_the_velocity_of_the_vector():
    system, state = _mechanism()
    free = _VECTOR["inputs"]["free"]
    turned = quaternion.rotate(jnp.asarray(free["quaternion"]), state.v[3:6])
    np.testing.assert_allclose(turned, free["velocity"], atol=1e-15)
    rates = mass_center_velocities(system.model, state.q, state.v)
    rotation = forward_kinematics(system.model, state.q).rotation[0]
    np.testing.assert_allclose(rotation.T @ rates.angular[0], free["body_rates"], atol=1e-15)
    np.testing.assert_allclose(
        rates.linear[0],
        np.array(free["velocity"]) + np.cross(rates.angular[0], rotation @ np.array(free["com"])),
        atol=1e-14,
    )
