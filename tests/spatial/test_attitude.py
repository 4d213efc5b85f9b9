"""S-parameters: the identities of theory.md (O1) to (O6), and every map with two derivatives at no rotation and elsewhere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn_numbers import draw
from jaxtyping import Array, Float
from scipy.spatial.transform import Rotation

from jaxdyn.spatial import attitude, quaternion, rotation

PRECISIONS = [np.float64, np.float32]
ONE = np.eye(3)

# Lengths of s: no rotation, next to it, well inside, on both sides of half a turn (|s| = 1), outside.
LENGTHS = np.array([0.0, 1e-20, 1e-3, 0.5, 1 - 1e-5, 1 + 1e-5, 1.5, 2.5])
INSIDE = LENGTHS <= 1


def close(actual: Array, expected, roundings: float = 64) -> None:
    """Equal but for some roundings of numbers of order one; a wrong sign or factor is an error of order one."""
    tolerance = roundings * np.finfo(actual.dtype).eps
    np.testing.assert_allclose(actual, np.broadcast_to(expected, actual.shape), rtol=tolerance, atol=tolerance)


def sets(seed: int) -> Float[Array, "lengths 3"]:
    """One set of s-parameters of every length."""
    e = np.random.default_rng(seed).normal(size=(len(LENGTHS), 3))
    return jnp.asarray(LENGTHS[:, None] * e / np.linalg.norm(e, axis=1, keepdims=True))


def each(function, *batches):
    """The function at every row; compiled without optimization, for it runs once."""
    return jax.jit(jax.vmap(function))(*batches)


def jet(function, x):
    """Value, first and second derivative at every row of x."""
    first = jax.jacfwd(function)
    return each(lambda x: (function(x), first(x), jax.jacfwd(first)(x)), x)


def along(function):
    """Derivative of a function of s as the body turns: (s, body rates) -> rate of the function."""
    return lambda s, w: jax.jvp(function, (s,), (attitude.rate(s, w),))[1]


# --- maps to and from quaternions and direction cosines, (O1) to (O3) ---


def test_projection_has_the_lengths_and_angles_of_the_stereographic_projection():  # (O1)
    s = sets(0)
    lam = each(attitude.to_quaternion, s)
    close(jnp.sum(lam**2, axis=1), 1.0)
    turned = s[LENGTHS > 0]
    angle = 2 * np.arccos(lam[LENGTHS > 0, 0])
    close(
        jnp.linalg.norm(turned, axis=1), np.abs(1 / np.tan(angle / 4)), 1e4
    )  # arccos loses half the digits at its ends
    close(each(lambda s: jnp.cross(s, attitude.to_quaternion(s)[1:]), s), 0.0)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_projection_and_its_inverse_undo_each_other_with_two_derivatives(dtype):  # (O1)
    s = sets(1).astype(dtype)
    value, first, second = jet(lambda s: attitude.from_quaternion(attitude.to_quaternion(s)), s)
    close(value, s)
    close(first, ONE)
    close(second, 0.0, 256)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_projection_does_not_depend_on_the_norm_to_second_order(dtype):
    """Homogeneous of degree 0 in four numbers: J q = 0 and H q = -J."""
    q = 3 * each(attitude.to_quaternion, sets(2).astype(dtype))
    _, first, second = jet(attitude.from_quaternion, q)
    close(jnp.einsum("bij,bj->bi", first, q), 0.0, 256)
    close(jnp.einsum("bijk,bk->bij", second, q), -first, 256)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_direction_cosines_are_those_of_the_quaternion_with_two_derivatives(dtype):  # (O3)
    s = sets(3).astype(dtype)
    expected = jet(lambda s: quaternion.to_matrix(attitude.to_quaternion(s)), s)
    for actual, part in zip(jet(attitude.to_matrix, s), expected, strict=True):
        close(actual, part, 256)


def test_direction_cosines_are_a_rotation():  # (O3)
    cosines = each(attitude.to_matrix, sets(4))
    close(jnp.einsum("bij,bkj->bik", cosines, cosines), ONE)
    close(jnp.linalg.det(cosines), 1.0)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_parameters_of_direction_cosines_are_the_inner_set(dtype):  # (O1), (O6)
    s = sets(5).astype(dtype)
    close(each(lambda s: attitude.from_matrix(attitude.to_matrix(s)), s), each(attitude.switch, s))


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_parameters_of_a_rotation_vector_are_minus_its_axis_times_tan_of_a_quarter_of_its_angle(dtype):
    """By matrix and by quaternion; at no rotation the first derivative is -1/4 and the second 0."""
    angles = np.array([0.0, 1e-20, 1e-4, 1.0, 2.0, 3.1])
    e = np.random.default_rng(6).normal(size=(len(angles), 3))
    e /= np.linalg.norm(e, axis=1, keepdims=True)
    u = (angles[:, None] * e).astype(dtype)
    for function in (
        lambda u: attitude.from_matrix(rotation.exponential(u)),
        lambda u: attitude.from_quaternion(-quaternion.exponential(u)),
    ):
        value, first, second = jet(function, u)
        close(value, -np.tan(angles / 4)[:, None] * e)
        close(first[0], -ONE / 4)
        close(second[0], 0.0)
        close(jnp.einsum("bij,bj->bi", first, e.astype(dtype)), -e / (4 * np.cos(angles / 4)[:, None] ** 2))
        along_axis = jnp.einsum("bijk,bj,bk->bi", second, e.astype(dtype), e.astype(dtype))
        close(along_axis, -e * (np.tan(angles / 4) / (8 * np.cos(angles / 4) ** 2))[:, None], 256)


# --- at no rotation, to the last bit ---


def jets_at_zero():
    """Function of s and its exact value, first and second derivative at s = 0."""
    w = np.array([0.5, -1.0, 2.0])
    dual = np.stack([np.cross(axis, ONE).T for axis in ONE], axis=-1)  # dual[i, j, k] = dS(s)_ij/ds_k
    products = np.einsum("ik,jl->ijkl", ONE, ONE) + np.einsum("il,jk->ijkl", ONE, ONE)  # of s s^T
    squares = 2 * np.einsum("ij,kl->ijkl", ONE, ONE)  # of |s|^2 1
    scalar, none = np.zeros((4, 3, 3)), np.zeros((3, 3, 3))
    scalar[0] = 4 * ONE
    return {
        "to_quaternion": (
            attitude.to_quaternion,
            (np.array([-1.0, 0, 0, 0]), np.concatenate([np.zeros((1, 3)), 2 * ONE]), scalar),
        ),
        "to_matrix": (attitude.to_matrix, (ONE, -4 * dual, 8 * (products - squares))),
        "rate_matrix": (attitude.rate_matrix, (-ONE / 4, dual / 2, squares / 4 - products / 2)),
        "rate": (
            lambda s: attitude.rate(s, jnp.asarray(w, s.dtype)),
            (
                -w / 4,
                np.einsum("ijk,j->ik", dual, w) / 2,
                np.einsum("ijkl,j->ikl", squares / 4 - products / 2, w),
            ),
        ),
        "standard": (attitude.standard, (np.zeros(3), -ONE, none)),
        "switch": (attitude.switch, (np.zeros(3), ONE, none)),
    }


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("name", jets_at_zero())
def test_maps_at_zero_are_exact_to_the_last_bit(name, dtype):
    function, expected = jets_at_zero()[name]
    zero = jnp.zeros((1, 3), dtype)
    for actual, part in zip(jet(function, zero), expected, strict=True):
        assert actual.dtype == dtype
        np.testing.assert_array_equal(actual[0], part)
    np.testing.assert_array_equal(each(jax.jacrev(function), zero)[0], expected[1])


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_projection_at_no_rotation_is_exact_to_the_last_bit(dtype):  # (O1)
    value, first, second = jet(attitude.from_quaternion, jnp.array([[-1, 0, 0, 0]], dtype))
    expected = np.zeros((3, 4, 4))
    expected[:, 0, 1:] = expected[:, 1:, 0] = ONE / 2
    np.testing.assert_array_equal(value[0], 0.0)
    np.testing.assert_array_equal(first[0], np.concatenate([np.zeros((3, 1)), ONE / 2], axis=1))
    np.testing.assert_array_equal(second[0], expected)


# --- the standard set, (O2), (O5) ---


def test_standard_set_is_that_of_an_independent_library():  # (O2)
    s = sets(7)
    ours = Rotation.from_matrix(np.asarray(each(attitude.to_matrix, s)))
    close(each(attitude.standard, s[INSIDE]), ours[INSIDE].as_mrp())
    close(each(lambda s: attitude.standard(attitude.shadow(s)), s[~INSIDE]), ours[~INSIDE].as_mrp())
    drawn = Rotation.random(20, random_state=8)
    close(each(lambda r: attitude.standard(attitude.from_matrix(r)), drawn.as_matrix()), drawn.as_mrp())


def test_erratum_s_is_neither_the_standard_set_nor_of_the_inverse_rotation():  # (O2)
    s = np.array(sets(9)[3])
    ours = np.asarray(attitude.to_matrix(jnp.asarray(s)))
    assert np.abs(Rotation.from_mrp(s).as_matrix() - ours).max() > 0.1
    close(attitude.to_matrix(attitude.standard(jnp.asarray(s))), ours.T)
    close(
        jnp.asarray(Rotation.from_mrp(s / np.sum(s**2)).as_matrix()), ours
    )  # sigma/|sigma|^2 of the other standard set


def test_standard_set_moves_by_its_own_equation():  # (O5)
    s, w = sets(10), draw(11, len(LENGTHS), 3)

    def published(sigma, w):
        x = jnp.sum(sigma**2)
        return 0.25 * ((1 - x) * w + 2 * jnp.cross(sigma, w) + 2 * sigma * jnp.sum(sigma * w))

    close(each(along(attitude.standard), s, w), each(lambda s, w: published(attitude.standard(s), w), s, w))


# --- kinematics, (O4) ---


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_matrix_and_quaternion_turn_with_the_body_rates(dtype):  # (O4)
    s, w = sets(12).astype(dtype), draw(13, len(LENGTHS), 3).astype(dtype)
    turning = each(lambda s, w: jnp.einsum("ij,jk->ik", attitude.to_matrix(s), rotation.skew(w)), s, w)
    close(each(along(attitude.to_matrix), s, w), turning, 256)
    changing = each(lambda s, w: quaternion.rate(attitude.to_quaternion(s), w), s, w)
    close(each(along(attitude.to_quaternion), s, w), changing, 256)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_rate_is_the_product_with_its_matrix_on_body_and_on_reference_axes(dtype):  # (O4)
    s, w = sets(14).astype(dtype), draw(15, len(LENGTHS), 3).astype(dtype)
    rate, matrix, cosines = each(attitude.rate, s, w), each(attitude.rate_matrix, s), each(attitude.to_matrix, s)
    close(jnp.einsum("bij,bj->bi", matrix, w), rate)
    close(each(attitude.rate, -s, jnp.einsum("bij,bj->bi", cosines, w)), rate, 256)
    close(jnp.einsum("bij,bkj->bik", matrix, cosines), jnp.swapaxes(matrix, 1, 2), 256)
    scale = (jnp.sum(s**2, axis=1) + 1) ** 2 / 16
    close(jnp.einsum("bij,bkj->bik", matrix, matrix), np.asarray(scale)[:, None, None] * ONE)


# --- shadow sets, (O6) ---


def test_shadow_has_the_same_attitude_and_the_other_quaternion_and_is_its_own_inverse():  # (O6)
    s = sets(16)[2:]
    other = each(attitude.shadow, s)
    close(each(attitude.to_matrix, other), each(attitude.to_matrix, s))
    close(each(attitude.to_quaternion, other), -each(attitude.to_quaternion, s))
    close(each(attitude.shadow, other), s)


def test_shadow_moves_by_the_same_equation():  # (O6)
    s, w = sets(17)[3:], draw(18, 5, 3)
    close(each(along(attitude.shadow), s, w), each(lambda s, w: attitude.rate(attitude.shadow(s), w), s, w))


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_switch_keeps_the_attitude_and_two_derivatives_within_the_unit_ball(dtype):  # (O6)
    s = sets(19).astype(dtype)
    switched = jet(attitude.switch, s)
    assert np.all(np.linalg.norm(switched[0], axis=1) <= 1)
    close(switched[0][INSIDE], s[INSIDE])
    for actual, expected in zip(switched, jet(attitude.shadow, s[~INSIDE]), strict=True):
        close(actual[~INSIDE], expected)
    close(each(attitude.to_matrix, switched[0]), each(attitude.to_matrix, s))


# --- transformations ---


def test_reverse_mode_agrees_with_forward_mode():
    s, w = sets(20)[3:], draw(21, 5, 3)
    for function in (
        lambda s, w: attitude.from_quaternion(attitude.to_quaternion(s) * (1 + w[0] ** 2)),
        lambda s, w: attitude.from_matrix(attitude.to_matrix(attitude.switch(s))) + attitude.rate(s, w),
        lambda s, w: attitude.rate_matrix(attitude.standard(s)) @ w,
    ):
        forward, reverse = each(lambda s, w, f=function: (jax.jacfwd(f)(s, w), jax.jacrev(f)(s, w)), s, w)
        close(reverse, forward, 1024)
