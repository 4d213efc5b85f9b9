"""The two-link arm that theory.md follows through its sections: its closed forms, and the values stated there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import dynamics, formulations

X, Y, Z = np.eye(3)
PIVOT = jnp.array([1 + np.sqrt(0.75), 1.3, 0.0])
STATED = (jnp.array([np.pi / 6, np.pi / 3]), jnp.array([2.0, -1.0]), jnp.zeros(2))
OTHER = (jnp.array([-0.7, 2.3]), jnp.array([0.9, 1.6]), jnp.array([-1.3, 0.4]))


def arm(*, geared=False) -> jaxdyn.Model:
    builder = jaxdyn.MechanismBuilder("two-link arm", gravity=-9.81 * Y)
    joint = jaxdyn.Revolute(Z)
    builder.add_body("1", joint=joint, mass=2.0, com=0.5 * X, inertia=(0.0, 0.2, 0.2))
    builder.add_body("2", parent="1", joint=joint, position=X, mass=1.0, com=0.4 * X, inertia=(0.0, 0.04, 0.04))
    if geared:
        builder.add_rotor("motor", carrier="1", joint="2", inertia=1e-4, ratio=20.0)
    return builder.build()


@jax.jit
def computed(q, v, a):
    model, none, tip = arm(), jnp.zeros(2), jnp.array(0.8 * X)
    material = dynamics.ContactMaterial(1e4, 100.0, friction=0.5, slip_speed=0.01)
    table = dynamics.GroundContact((1,), tip[None], jnp.zeros(1), material, dynamics.HalfSpace(Y, 1.302))
    rod = jaxdyn.Distance("rod", 1, tip, -1, PIVOT, 1.0)
    closed = jaxdyn.System(model, constraints=(rod,), stabilization=0.0)

    p = dynamics.generalized_momentum(model, q, v)
    return {
        "acceleration": jaxdyn.dynamics.mass_center_accelerations(model, q, v, a).linear[1],
        "metric": jaxdyn.mass_matrix(model, q),
        "geared": jaxdyn.mass_matrix(arm(geared=True), q),
        "energies": jnp.stack([jaxdyn.kinetic_energy(model, q, v), jaxdyn.potential_energy(model, q)]),
        "symbols": jaxdyn.christoffel_first_kind(model, q),
        "inverse": jaxdyn.inverse_dynamics(model, q, v, a),
        "forward": jaxdyn.forward_dynamics(model, q, v, none),
        "momenta": p,
        "momentum rates": formulations.canonical_rates(model, q, p, none).momentum,
        "E_A0": formulations.acceleration_energy_of_velocity(model, q, v),
        "K": jaxdyn.momentum(model, q, v),
        "joint force": jaxdyn.joint_reactions(jaxdyn.System(model), jaxdyn.State(q, v), a=a)["2_joint"].force,
        "G": jaxdyn.constraints.constraint_jacobian(closed, jaxdyn.State(q, none))[0],
        "closed": jaxdyn.acceleration(closed, jaxdyn.State(q, none)),
        "contact": jaxdyn.applied_forces(jaxdyn.System(model, forces=(table,)), jaxdyn.State(q, v)),
    }


def closed_forms(q, v, a):
    """The same by the formulas of the example, with k = I_12 sin q^2, the directions u of the links and w across them."""
    (v1, v2), theta, omega, k, c = v, q[0] + q[1], v[0] + v[1], 0.4 * np.sin(q[1]), np.cos(q[1])
    u1, u2 = (np.array([np.cos(x), np.sin(x), 0.0]) for x in (q[0], theta))
    w1, w2 = np.cross(Z, u1), np.cross(Z, u2)
    metric = np.array([[1.9 + 0.8 * c, 0.2 + 0.4 * c], [0.2 + 0.4 * c, 0.2]])
    bias = k * np.array([-v2 * (2 * v1 + v2), v1**2])
    gravity = -9.81 * np.array([2 * u1[0] + 0.4 * u2[0], 0.4 * u2[0]])
    T = np.stack([w1 + 0.4 * w2, 0.4 * w2], axis=1)
    acceleration = T @ a - v1**2 * u1 - 0.4 * omega**2 * u2
    T_tip = np.stack([w1 + 0.8 * w2, 0.8 * w2], axis=1)
    tip, speed = u1 + 0.8 * u2, T_tip @ v
    S, D = 1e4 * (1.302 - tip[1] - 0.0005), -100 * speed[1]
    N = D + np.hypot(S, D)
    return {
        "acceleration": acceleration,
        "metric": metric,
        "geared": metric + np.array([[0.0, 0.002], [0.002, 0.04]]),
        "energies": np.array([v @ metric @ v / 2, 9.81 * (2 * u1[1] + 0.4 * u2[1])]),
        "symbols": k * np.array([[[0, 1], [-1, 0]], [[-1, 0], [-1, 0]]]),
        "inverse": metric @ a + bias - gravity,
        "momenta": metric @ v,
        "momentum rates": gravity - [0.0, k * v1 * omega],
        "E_A0": (1.7 * v1**4 + 0.2 * omega**4 + 0.8 * c * v1**2 * omega**2) / 2,
        "K": 2 * v1 * w1 + 0.4 * omega * w2,
        "joint force": acceleration + 9.81 * Y,
        "G": (tip - PIVOT) @ T_tip,
        "contact": N * np.array([-0.5 * speed[0] / np.hypot(speed[0], 0.01), 1.0, 0.0]) @ T_tip,
    }


@pytest.mark.parametrize("motion", [STATED, OTHER], ids=["stated", "other"])
def test_closed_forms_of_the_example(motion):
    found = computed(*motion)
    for name, expected in closed_forms(*map(np.asarray, motion)).items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-10, atol=1e-12, err_msg=name)


def test_values_that_the_text_states():
    values = {
        "forward": [-10.1729, 13.4176],
        "joint force": [-3.4641, 7.41, 0.0],
        "closed": [-11.1191, 18.0686],
        "contact": [0.1401, -0.2593],
    }
    found = computed(*STATED)
    for name, stated in values.items():
        np.testing.assert_allclose(found[name], stated, atol=6e-5, err_msg=name)
