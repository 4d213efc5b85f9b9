"""Quaternions: the identities of theory.md (a), and exponential and logarithm with two derivatives at every delicate angle."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn_numbers import close, draw
from jaxtyping import Array, Float

from jaxdyn.spatial import quaternion, rotation

PRECISIONS = [np.float64, np.float32]

# The logarithm changes from its series to its closed form where the vector part is 1/10 of the scalar part, the exponential
# at 2 rad. A distance of 1e-6 from there is more than one rounding in float32.
LOGARITHM_SWITCH = 2 * np.arctan(0.1)
NEAR = 1e-6


def directions(count: int, seed: int, size: int = 3) -> Float[np.ndarray, "count size"]:
    e = np.random.default_rng(seed).normal(size=(count, size))
    return e / np.linalg.norm(e, axis=1, keepdims=True)


def pure(r: Float[Array, "3"]) -> Float[Array, "4"]:
    return jnp.concatenate([jnp.zeros_like(r[:1]), r])


def product(*factors: Float[Array, "4"]) -> Float[Array, "4"]:
    total = factors[0]
    for factor in factors[1:]:
        total = quaternion.multiply(total, factor)
    return total


SMALL = [0.0, 1e-30, 1e-9, 1e-3, LOGARITHM_SWITCH - NEAR, LOGARITHM_SWITCH + NEAR]
ANGLES = {
    "exponential": [0.0, 1e-30, 1e-16, 0.5, 2 - NEAR, 2 + NEAR, np.pi, 5.0],
    "there and back": [*SMALL, 0.3, 0.8, 2 - NEAR, 2 + NEAR, 3.0, np.pi - 1e-5],
    "logarithm": [*SMALL, 2.0, np.pi - 1e-5],
}
SCALARS, HALF_TURN = [1.0, -1.0, 0.5], directions(1, 24)[0]
FUNCTIONS = {
    "exponential": quaternion.exponential,
    "there and back": lambda u: quaternion.logarithm(quaternion.exponential(u)),
    "logarithm": quaternion.logarithm,
}


def delicate() -> dict[str, np.ndarray]:
    """Rotation vectors of these angles, and quaternions of these angles, without and with a vector part only."""
    vectors = {name: np.array(a)[:, None] * directions(len(a), 20) for name, a in ANGLES.items()}
    half = np.array(ANGLES["logarithm"])[:, None] / 2
    turns = np.concatenate([np.cos(half), np.sin(half) * directions(len(half), 23)], axis=1)
    special = [[scalar, 0, 0, 0] for scalar in SCALARS] + [[0, *HALF_TURN]]
    return vectors | {"logarithm": np.concatenate([turns, special])}


@functools.cache
def jets(dtype) -> dict:
    """Arguments, values, first and second derivatives of `FUNCTIONS`, all by one program."""

    def jet(function):
        first = jax.jacfwd(function)
        return jax.vmap(lambda x: (x, function(x), first(x), jax.jacfwd(first)(x)))

    given = {name: jnp.asarray(x, dtype) for name, x in delicate().items()}
    return jax.device_get(jax.jit(lambda given: {name: jet(f)(given[name]) for name, f in FUNCTIONS.items()})(given))


# --- the algebra, (A1) to (A6) ---


def test_units_multiply_as_hamilton_wrote():  # (A1)
    one, i, j, k = jnp.eye(4)
    close(product(i, j, k), -one)
    for a, b, c in [(i, j, k), (j, k, i), (k, i, j)]:
        close(product(a, b), c)
        close(product(b, a), -c)
        close(product(a, a), -one)
        close(product(one, a), a)


def test_product_is_associative_and_bilinear_and_multiplies_norms():  # (A1)
    p, q, r = draw(0, 3, 4)
    close(product(product(p, q), r), product(p, product(q, r)))
    close(product(2 * p + r, q), 2 * product(p, q) + product(r, q))
    close(jnp.linalg.norm(product(p, q)), jnp.linalg.norm(p) * jnp.linalg.norm(q))


def test_conjugate_reverses_products_and_inverse_undoes_them():  # (A2)
    p, q = draw(1, 2, 4)
    close(quaternion.conjugate(product(p, q)), product(quaternion.conjugate(q), quaternion.conjugate(p)))
    close(product(q, quaternion.conjugate(q)), np.array([1.0, 0, 0, 0]) * float(jnp.sum(q**2)))
    close(product(q, quaternion.inverse(q)), quaternion.identity(q.dtype))
    close(product(quaternion.inverse(q), q), quaternion.identity(q.dtype))


def test_commutator_of_pure_quaternions_is_the_cross_product_and_anticommutator_the_scalar_product():  # (A3)
    a, b = draw(2, 2, 3)
    ab, ba = product(pure(a), pure(b)), product(pure(b), pure(a))
    close(0.5 * (ab - ba), pure(jnp.cross(a, b)))
    close(0.5 * (ab + ba), np.array([-float(jnp.sum(a * b)), 0, 0, 0]))


def test_rotation_of_a_vector_is_the_sandwich_product_the_matrix_product_and_rodrigues_formula():  # (A4), (A5), (B4)
    e, r = jnp.asarray(directions(1, 3)[0]), draw(4, 3)
    for angle in [0.0, 0.7, -2.9, 5.0]:
        q = quaternion.from_axis_angle(e, jnp.asarray(angle))
        rotated = quaternion.rotate(q, r)
        close(pure(rotated), product(q, pure(r), quaternion.conjugate(q)))
        close(rotated, quaternion.to_matrix(q) @ r)
        close(rotated, np.cos(angle) * r + np.sin(angle) * jnp.cross(e, r) + (1 - np.cos(angle)) * jnp.sum(e * r) * e)
        close(quaternion.to_matrix(q), rotation.rodrigues(e, jnp.asarray(angle)))


def test_scale_and_sign_of_a_quaternion_change_no_rotation():  # (A5)
    scales = np.array([-1.0, 1e-3, 7.0, -1e3])

    def of(q, r):
        inverted = quaternion.rotate(quaternion.inverse(q), r)
        return (
            quaternion.to_matrix(q),
            quaternion.rotate(q, r),
            inverted,
            quaternion.logarithm(q),
            quaternion.normalize(q),
        )

    @jax.jit
    @jax.vmap
    def both(q, r):
        return jax.vmap(lambda scale: of(scale * q, r))(scales), of(q, r)

    scaled, usual = both(draw(5, 6, 4), draw(6, 6, 3))
    for a, b in zip(scaled[:-1], usual[:-1], strict=True):
        close(a, b[:, None])
    close(scaled[-1], np.sign(scales)[:, None] * np.asarray(usual[-1])[:, None])
    matrices, _, inverted, *_ = usual
    close(inverted, jnp.einsum("bji,bj->bi", matrices, draw(6, 6, 3)))


def test_matrix_of_any_quaternion_is_a_rotation_and_matrices_multiply_as_quaternions():  # (A5), (A6)
    p, q = draw(7, 2, 4)
    matrix = quaternion.to_matrix(q)
    close(matrix @ matrix.T, np.eye(3))
    close(jnp.linalg.det(matrix), 1.0)
    close(quaternion.to_matrix(product(p, q)), quaternion.to_matrix(p) @ matrix)


def test_norm_is_no_degree_of_freedom_of_a_rotation():
    """Derivatives with respect to all four numbers are exact: zero along q, and R S(w) along 1/2 q (0, w)."""
    q, w = draw(8, 4), draw(9, 3)
    _, along_q = jax.jvp(quaternion.to_matrix, (q,), (q,))
    close(along_q, 0.0)
    matrix, turning = jax.jvp(quaternion.to_matrix, (q,), (quaternion.rate(q, w),))
    close(turning, matrix @ rotation.skew(w))


# --- chains, (A7) to (A11) ---

AXES = jnp.asarray(directions(3, 10))
CHAIN = jnp.asarray([0.4, -1.3, 2.2])


def chain_of_three(angles: Float[Array, "3"]) -> Float[Array, "4"]:
    return product(*(quaternion.from_axis_angle(e, phi) for e, phi in zip(AXES, angles, strict=True)))


def test_derivative_of_a_joint_quaternion_is_half_the_product_with_its_axis():  # (A8)
    e, phi = AXES[0], CHAIN[0]
    p, dp = jax.jvp(lambda phi: quaternion.from_axis_angle(e, phi), (phi,), (jnp.ones_like(phi),))
    close(dp, 0.5 * product(pure(e), p))
    close(dp, 0.5 * product(p, pure(e)))


def test_derivatives_of_a_chain_are_products_with_the_axes_on_ground_axes():  # (A9), (A10)
    fixed_in_body = draw(11, 3)
    p = chain_of_three(CHAIN)
    tau = quaternion.rotate(p, fixed_in_body)
    dp = jax.jacfwd(chain_of_three)(CHAIN)
    dtau = jax.jacfwd(lambda angles: quaternion.rotate(chain_of_three(angles), fixed_in_body))(CHAIN)
    for alpha, axis in enumerate(AXES):
        up_to_alpha = chain_of_three(jnp.where(np.arange(3) <= alpha, CHAIN, 0.0))
        e = quaternion.rotate(up_to_alpha, axis)
        close(dp[:, alpha], 0.5 * product(pure(e), p))
        close(quaternion.conjugate(dp[:, alpha]), -0.5 * product(quaternion.conjugate(p), pure(e)))
        close(dtau[:, alpha], jnp.cross(e, tau))


def test_rate_is_the_same_from_rates_on_either_frame_and_keeps_the_norm():  # (A11)
    q, on_body = draw(12, 4), draw(13, 3)
    rate = quaternion.rate(q, on_body)
    close(rate, 0.5 * product(pure(quaternion.rotate(q, on_body)), q))
    close(jnp.sum(q * rate), 0.0)


def test_a_step_from_rest_has_the_derivative_of_the_rate():
    """MJX's quaternion integration has zero gradient at zero velocity."""
    q, h = quaternion.normalize(draw(14, 4)), 0.01

    def step(w):
        return quaternion.multiply(q, quaternion.exponential(h * w))

    at_rest = jnp.zeros(3)
    forward, reverse = jax.jit(lambda w: (jax.jacfwd(step)(w), jax.jacrev(step)(w)))(at_rest)
    expected = h * jnp.stack([quaternion.rate(q, w) for w in jnp.eye(3)], axis=1)
    close(forward, expected)
    close(reverse, expected)


# --- exponential ---


def exact_jet_of_exponential(u: Float[np.ndarray, "3"]):
    """Value and two derivatives of (cos(t/2), u sin(t/2)/t), t = |u|, by calculus; the first terms of its series for tiny u."""
    t, one = np.linalg.norm(u), np.eye(3)
    if t < 1e-6:
        value, first, second = np.zeros(4), np.zeros((4, 3)), np.zeros((4, 3, 3))
        value[0], value[1:], first[0], first[1:], second[0] = 1.0, u / 2, -u / 4, one / 2, -one / 4
        return value, first, second
    n, s, c = u / t, np.sin(t / 2), np.cos(t / 2)
    nn, across = np.outer(n, n), one - np.outer(n, n)
    h, dh, ddh = s / t, c / (2 * t) - s / t**2, -s / (4 * t) - c / t**2 + 2 * s / t**3
    along = np.einsum("ij,k->ijk", one, n)
    second_of_vector = dh * (along + along.swapaxes(1, 2)) + np.einsum("i,jk->ijk", u, ddh * nn + dh / t * across)
    value = np.concatenate([[c], h * u])
    first = np.concatenate([[-s / 2 * n], h * one + dh * np.outer(u, n)])
    second = np.concatenate([[-c / 4 * nn - s / (2 * t) * across], second_of_vector])
    return value, first, second


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_exponential_has_exact_value_and_two_derivatives(dtype):
    """At rest (to the last bit), near it, on both sides of the switch, at half a turn and beyond."""
    u, *computed = jets(dtype)["exponential"]
    for i, row in enumerate(u.astype(np.float64)):
        for part, expected in zip(computed, exact_jet_of_exponential(row), strict=True):
            close(part[i], expected)
    for part, expected in zip(computed, exact_jet_of_exponential(np.zeros(3)), strict=True):
        np.testing.assert_array_equal(part[0], expected)


def test_exponential_is_a_unit_quaternion_of_its_axis_and_angle_and_adds_along_one_axis():
    e = jnp.asarray(directions(1, 21)[0])
    for angle in [0.3, 2.5, 4.0]:
        q = quaternion.exponential(angle * e)
        close(q, quaternion.from_axis_angle(e, jnp.asarray(angle)))
        close(jnp.sum(q**2), 1.0)
        close(product(q, quaternion.exponential(0.7 * e)), quaternion.exponential((angle + 0.7) * e))
        close(quaternion.exponential(-angle * e), quaternion.conjugate(q))


# --- logarithm ---


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_logarithm_undoes_the_exponential_with_two_derivatives(dtype):
    """log(exp(u)) = u below half a turn, so the Jacobian is 1 and the second derivative 0."""
    u, value, first, second = jets(dtype)["there and back"]
    close(value, u)
    close(first, np.eye(3), 128)
    # Just above the switch the second derivative of arctan(y)/y is a difference of terms of order 1/y^2 = 100.
    close(second, 0.0, 2000)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_logarithm_does_not_depend_on_the_norm_to_second_order(dtype):
    """Homogeneous of degree 0 in four numbers: J q = 0 and H q = -J, at the identity, the switch and half a turn."""
    q, _, first, second = (x[:8] for x in jets(dtype)["logarithm"])
    close(jnp.einsum("bij,bj->bi", first, q), 0.0, 128)
    close(jnp.einsum("bijk,bk->bij", second, q), -first, 2000)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_logarithm_at_the_identity_is_twice_the_vector_part_over_the_scalar_part(dtype):
    _, value, first, second = (x[8:-1] for x in jets(dtype)["logarithm"])
    np.testing.assert_array_equal(value, 0.0)
    for i, scalar in enumerate(SCALARS):
        expected_second = np.zeros((3, 4, 4))
        expected_second[:, 0, 1:] = expected_second[:, 1:, 0] = -2 / scalar**2 * np.eye(3)
        close(first[i], np.concatenate([np.zeros((3, 1)), 2 / scalar * np.eye(3)], axis=1))
        close(second[i], expected_second)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_logarithm_of_half_a_turn_is_pi_times_the_axis_with_a_finite_derivative(dtype):
    (_, *n), value, first, _ = (x[-1] for x in jets(dtype)["logarithm"])
    n = np.array(n)
    close(value, np.pi * n)
    close(first, np.concatenate([-2 * n[:, None], np.pi * (np.eye(3) - np.outer(n, n))], axis=1))


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_logarithm_takes_the_short_way_round(dtype):
    """Rotations by just more than half a turn come back as just less, about the opposite axis; q and -q agree."""
    e = directions(1, 25)[0].astype(dtype)
    for angle in [np.pi + 1e-3, 4.0, 2 * np.pi - 1e-3]:
        q = quaternion.exponential(jnp.asarray(angle, dtype) * e)
        close(quaternion.logarithm(q), -(2 * np.pi - angle) * e)
        close(quaternion.logarithm(-q), quaternion.logarithm(q))


# --- from a matrix ---


def with_largest(component: int, count: int) -> Float[np.ndarray, "count 4"]:
    """Unit quaternions whose largest component is the given one, and positive."""
    q = directions(count, 30 + component, size=4)
    for row in q:
        biggest = np.argmax(np.abs(row))
        row[[component, biggest]] = row[[biggest, component]]
        row *= np.sign(row[component])
    return q


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_quaternion_of_a_matrix_and_its_derivative_on_every_branch(dtype):
    """from_matrix(R(q)) = q, and along R S(w) it changes by 1/2 q (0, w)."""
    q = jnp.asarray(np.concatenate([with_largest(component, 8) for component in range(4)]), dtype)
    w = jnp.asarray(draw(40, 32, 3), dtype)

    def turned(q, w):
        matrix = quaternion.to_matrix(q)
        along = jnp.einsum("ij,jk->ik", matrix, rotation.skew(w))
        return jax.jvp(quaternion.from_matrix, (matrix,), (along,)), quaternion.rate(q, w)

    (back, change), rate = jax.jit(jax.vmap(turned))(q, w)
    close(back, q)
    close(change, rate)


def test_quaternion_of_a_matrix_where_branches_meet_and_at_half_turns():
    half = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]) / 2
    q = jnp.asarray([*np.eye(4), *half, np.array([1, 1, 0, 0]) / np.sqrt(2), np.array([0, 1, -1, 0]) / np.sqrt(2)])
    again = jax.jit(jax.vmap(lambda q: quaternion.from_matrix(quaternion.to_matrix(q))))(q)
    close(jnp.abs(jnp.sum(again * q, axis=1)), 1.0)  # the same rotation: q or -q
