"""The double pendulum against its textbook equations (Landau and Lifshitz, Mechanics, section 5), in absolute angles.

Both links swing in the x-z plane about the y axis and hang along -z at q = 0. The textbook angles t1, t2 are both from the
vertical; the coordinates of the mechanism are t1 and t2 - t1, that is q = B t, so velocities are v = B w and forces f = B' tau.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_trees import close

from jaxdyn import (
    MechanismBuilder,
    Revolute,
    bias_force,
    forward_dynamics,
    kinetic_energy,
    mass_matrix,
    potential_energy,
)

B = np.array([[1.0, 0.0], [-1.0, 1.0]])
M1, M2, L1, L2, G = 1.3, 0.8, 0.7, 1.1, 9.81

# Link i has its center of mass at s_i from its upper joint and the moment of inertia J_i about it.
LINKS = {
    "point masses": {"s": (L1, L2), "J": (0.0, 0.0)},
    "uniform rods": {"s": (L1 / 2, L2 / 2), "J": (M1 * L1**2 / 12, M2 * L2**2 / 12)},
}


def textbook(links, t, w):
    """Mass matrix, Coriolis force and gravity force of A dw/dt + c = g + f, energies included, in absolute angles."""
    (s1, s2), (J1, J2) = links["s"], links["J"]
    coupling, difference = M2 * L1 * s2, t[0] - t[1]
    A = np.array(
        [
            [M1 * s1**2 + J1 + M2 * L1**2, coupling * np.cos(difference)],
            [coupling * np.cos(difference), M2 * s2**2 + J2],
        ]
    )
    c = coupling * np.sin(difference) * np.array([w[1] ** 2, -(w[0] ** 2)])
    g = -G * np.array([(M1 * s1 + M2 * L1) * np.sin(t[0]), M2 * s2 * np.sin(t[1])])
    kinetic = 0.5 * w @ A @ w
    potential = -G * ((M1 * s1 + M2 * L1) * np.cos(t[0]) + M2 * s2 * np.cos(t[1]))
    return A, c, g, kinetic, potential


@pytest.fixture(params=LINKS)
def links(request):
    return LINKS[request.param]


@pytest.fixture
def model(links):
    builder = MechanismBuilder("double pendulum")
    (s1, s2), (J1, J2) = links["s"], links["J"]
    rod = np.diag([1.0, 1.0, 0.0])  # a rod along z has no inertia about z
    builder.add_body("upper", joint=Revolute((0, 1, 0)), mass=M1, com=(0, 0, -s1), inertia=J1 * rod)
    builder.add_body(
        "lower",
        parent="upper",
        joint=Revolute((0, 1, 0)),
        position=(0, 0, -L1),
        mass=M2,
        com=(0, 0, -s2),
        inertia=J2 * rod,
    )
    return builder.build()


@pytest.mark.parametrize("seed", range(3))
def test_mechanics_are_those_of_the_textbook(model, links, seed):
    t, w, f = np.random.default_rng(seed).normal(size=(3, 2))
    A, c, g, kinetic, potential = textbook(links, t, w)
    q, v, tau = B @ t, B @ w, np.linalg.solve(B.T, f)
    q, v, tau = map(jnp.asarray, (q, v, tau))
    close(B.T @ mass_matrix(model, q) @ B, A)
    close(B.T @ bias_force(model, q, v), c - g, scale=10.0)
    close(kinetic_energy(model, q, v), kinetic)
    close(potential_energy(model, q), potential, scale=10.0)
    for method in ("cholesky", "articulated_body", "contravariant"):
        acceleration = np.linalg.solve(B, forward_dynamics(model, q, v, tau, method=method))
        close(jnp.asarray(acceleration), np.linalg.solve(A, f + g - c), scale=100.0)


def test_small_oscillations_of_two_equal_point_masses_have_the_textbook_frequencies():
    builder = MechanismBuilder("equal double pendulum")
    point = {"joint": Revolute((0, 1, 0)), "mass": M1, "com": (0, 0, -L1)}
    builder.add_body("upper", **point)
    builder.add_body("lower", parent="upper", position=(0, 0, -L1), **point)
    model = builder.build()
    rest = jnp.zeros(2)
    stiffness = jax.jit(jax.hessian(lambda q: potential_energy(model, q)))(rest)
    squares = np.linalg.eigvals(np.linalg.solve(mass_matrix(model, rest), stiffness))
    close(jnp.sort(jnp.asarray(squares)), G / L1 * np.array([2 - np.sqrt(2), 2 + np.sqrt(2)]), scale=100.0)
