"""Rodrigues matrices and dual objects: the identities of theory.md (b), and the exponential with two derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn_numbers import close, draw
from jaxtyping import Array, Float
from scipy.linalg import expm

from jaxdyn.spatial import quaternion, rotation
from jaxdyn.spatial.rotation import rodrigues, skew, unskew

ANGLES = [0.0, 1e-9, 0.4, -2.7, np.pi, 5.0]
LEVI_CIVITA = np.array([[[(i - j) * (j - k) * (k - i) / 2 for k in range(3)] for j in range(3)] for i in range(3)])
GENERATORS = -LEVI_CIVITA.transpose(
    2, 0, 1
)  # GENERATORS[k] = S(unit vector k), from the definition of the cross product


def unit(seed: int) -> Float[Array, "3"]:
    e = draw(seed, 3)
    return e / jnp.linalg.norm(e)


def jets(functions, x: Float[Array, "batch 3"]):
    """Value, first and second derivative of functions at every row of x."""

    def jet(function):
        first = jax.jacfwd(function)
        return jax.vmap(lambda x: (function(x), first(x), jax.jacfwd(first)(x)))

    return jax.jit(lambda x: [jet(function)(x) for function in functions])(x)


def test_dual_object_is_the_antisymmetric_matrix_of_the_cross_product():  # (B1)
    a, b = draw(0, 2, 3)
    close(skew(a), jnp.einsum("k,kij->ij", a, GENERATORS))
    close(skew(a).T, -skew(a))
    close(skew(a) @ b, jnp.cross(a, b))
    close(skew(a) @ b, -skew(b) @ a)


def test_unskew_inverts_skew_and_ignores_a_symmetric_part():
    a, symmetric = draw(1, 3), draw(2, 3, 3)
    close(unskew(skew(a)), a)
    close(unskew(skew(a) + symmetric + symmetric.T), a)


def test_powers_of_a_dual_object_return_with_alternating_sign():  # (B2)
    a = 0.9 * unit(3)
    s, square = skew(a), float(jnp.sum(a**2))
    close(s @ s, np.outer(a, a) - square * np.eye(3))
    power = s
    for i in range(1, 4):
        close(power, (-1) ** (i - 1) * square ** (i - 1) * s)
        close(power @ s, (-1) ** (i - 1) * square ** (i - 1) * s @ s)
        power = power @ s @ s


def test_dual_object_of_a_rotated_vector_is_the_congruent_matrix():  # (B3)
    turn, a = rodrigues(unit(4), jnp.asarray(1.2)), draw(5, 3)
    close(skew(turn @ a), turn @ skew(a) @ turn.T)


@pytest.mark.parametrize("angle", ANGLES)
def test_rodrigues_matrix_is_the_matrix_exponential_and_a_rotation(angle):  # (B4), (B5)
    e, phi = unit(6), jnp.asarray(angle)
    turn = rodrigues(e, phi)
    close(turn, expm(angle * np.asarray(skew(e))))
    close(rotation.exponential(phi * e), turn)
    close(turn @ turn.T, np.eye(3))
    close(turn.T, rodrigues(e, -phi))
    close(jnp.linalg.det(turn), 1.0)
    close(turn @ e, e)


def test_derivative_of_the_rodrigues_matrix_is_its_product_with_the_axis():  # (B6)
    e = unit(7)
    for angle in ANGLES:
        turn, change = jax.jvp(lambda phi: rodrigues(e, phi), (jnp.asarray(angle),), (jnp.asarray(1.0),))
        close(change, skew(e) @ turn)
        close(change, turn @ skew(e))


def test_matrices_of_a_chain_multiply_as_its_quaternions():  # (B7), (A6)
    turn, q = jnp.eye(3), quaternion.identity(jnp.float64)
    for k, angle in enumerate([0.4, -1.3, 2.2]):
        e, phi = unit(20 + k), jnp.asarray(angle)
        turn, q = turn @ rodrigues(e, phi), quaternion.multiply(q, quaternion.from_axis_angle(e, phi))
        close(quaternion.to_matrix(q), turn)


def test_angular_velocity_and_acceleration_are_in_the_derivatives_of_the_matrix():  # (B8)
    u0, u1, u2 = draw(8, 3, 3)

    def turn(t):
        return rotation.exponential(u0 + t * u1 + t**2 * u2)

    def angular_velocity(t):
        r, rate = jax.jvp(turn, (t,), (jnp.ones_like(t),))
        return unskew(rate @ r.T)

    t = jnp.asarray(0.3)
    (r, rate), (_, second) = jax.jvp(lambda t: jax.jvp(turn, (t,), (jnp.ones_like(t),)), (t,), (jnp.ones_like(t),))
    omega, epsilon = jax.jvp(angular_velocity, (t,), (jnp.ones_like(t),))
    close(rate @ r.T, skew(omega))
    close(r.T @ rate, skew(r.T @ omega))
    close(second @ r.T + rate @ rate.T, skew(epsilon), 256)
    close(rate.T @ rate + r.T @ second, skew(r.T @ epsilon), 256)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_exponential_of_matrices_and_of_quaternions_agree_to_second_order(dtype):
    """The one changes from series to closed form at 1 rad, the other at 2 rad, so each checks the other.

    At zero they are exact: 1, then S_j, then (S_j S_k + S_k S_j)/2.
    """
    angles = np.array([0.0, 1e-30, 1e-9, 1 - 1e-6, 1 + 1e-6, 2 - 1e-6, 2 + 1e-6, np.pi, 6.0])
    u = jnp.asarray(angles[:, None] * np.stack([unit(30 + i) for i in range(len(angles))]), dtype)
    by_matrix, by_quaternion = jets(
        (rotation.exponential, lambda u: quaternion.to_matrix(quaternion.exponential(u))), u
    )
    products = np.einsum("jab,kbc->acjk", GENERATORS, GENERATORS)
    at_zero = np.eye(3), np.moveaxis(GENERATORS, 0, -1), (products + products.swapaxes(-1, -2)) / 2
    for one, other, exact in zip(by_matrix, by_quaternion, at_zero, strict=True):
        assert one.dtype == dtype
        np.testing.assert_array_equal(one[0], exact)
        close(one, other, 128)  # second derivatives of products: sums of some tens of terms of order one
