"""Rigid transforms against 4x4 matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from drawn_numbers import draw
from jaxtyping import Array, Float

from jaxdyn.spatial import quaternion
from jaxdyn.spatial.rotation import skew
from jaxdyn.spatial.transform import RigidTransform


def close(actual: Array, expected) -> None:
    # Some ten operations on numbers of order one; a wrong sign or order is an error of order one.
    rounding = 64 * np.finfo(np.asarray(actual).dtype).eps
    np.testing.assert_allclose(actual, expected, rtol=rounding, atol=rounding)


def transforms(count: int, seed: int) -> list[RigidTransform]:
    """Random placements, their quaternions of any norm."""
    return [RigidTransform(q, p) for q, p in zip(draw(seed, count, 4), draw(seed + 100, count, 3), strict=True)]


def homogeneous(x: RigidTransform) -> Float[np.ndarray, "4 4"]:
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = x.rotation, x.translation
    return matrix


def test_transforms_compose_invert_and_act_as_4x4_matrices():
    a, b = transforms(2, 0)
    point = draw(1, 3)
    close(homogeneous(a.compose(b)), homogeneous(a) @ homogeneous(b))
    close(homogeneous(a.inverse()), np.linalg.inv(homogeneous(a)))
    close(a.apply(point), (homogeneous(a) @ np.append(point, 1.0))[:3])


def test_transforms_are_a_group():
    a, b, c = transforms(3, 2)
    one = RigidTransform.identity(jnp.float64)
    close(homogeneous(one), np.eye(4))
    close(homogeneous(a.compose(b).compose(c)), homogeneous(a.compose(b.compose(c))))
    close(homogeneous(a.compose(a.inverse())), np.eye(4))
    close(homogeneous(a.inverse().compose(a)), np.eye(4))
    close(homogeneous(one.compose(a)), homogeneous(a.compose(one)))


def test_norm_of_the_quaternion_moves_no_point():
    (a,), point = transforms(1, 3), draw(4, 3)
    unit = RigidTransform(quaternion.normalize(a.quaternion), a.translation)
    close(a.apply(point), unit.apply(point))
    close(a.inverse().apply(point), unit.inverse().apply(point))


def test_rotation_of_a_batch_is_the_batch_of_rotations():
    batch = RigidTransform(draw(5, 2, 5, 4), draw(6, 2, 5, 3))
    each = [[quaternion.to_matrix(q) for q in row] for row in batch.quaternion]
    close(batch.rotation, np.array(each))
    close(jax.vmap(jax.vmap(lambda x: x.rotation))(batch), np.array(each))


@pytest.mark.parametrize("angle", [0.0, 1e-9, 0.3, 0.999, 1.001, 2.0, 3.1])
def test_exponential_is_the_matrix_exponential_of_the_twist_and_the_logarithm_takes_it_back(angle):
    w, nu = np.asarray(draw(7, 3)), np.asarray(draw(8, 3))
    w = angle * w / np.linalg.norm(w)
    twist = jnp.asarray(np.concatenate([w, nu]))
    generator = np.zeros((4, 4))
    generator[:3, :3], generator[:3, 3] = skew(twist[:3]), nu
    moved = RigidTransform.exponential(twist)
    close(homogeneous(moved), scipy.linalg.expm(generator))
    # Near half a turn the quaternion's scalar part, of which little is left, decides on the angle.
    np.testing.assert_allclose(moved.logarithm(), twist, rtol=0, atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_exponential_and_logarithm_have_their_derivatives_at_rest(dtype):
    twist = draw(9, 6).astype(dtype)
    zero = jnp.zeros(6, dtype)

    def action(step):
        moved = RigidTransform.exponential(step)
        return jnp.concatenate([2.0 * moved.quaternion[1:], moved.translation])

    def along(s):
        return action(s * twist)

    def roundtrip(s):
        return RigidTransform.exponential(s * twist).logarithm()

    origin, one = jnp.zeros((), dtype), jnp.ones((), dtype)
    for function in (along, roundtrip):
        first, second = jax.jvp(lambda s, f=function: jax.jvp(f, (s,), (one,))[1], (origin,), (one,))
        assert first.dtype == dtype
        close(function(origin), zero)
        close(first, twist)
        # d^2/ds^2 of nu s + (w s) x (nu s)/2: the path of a screw starts straight, with curvature w x nu.
        curvature = jnp.concatenate([zero[:3], jnp.cross(twist[:3], twist[3:])]) if function is along else zero
        close(second, curvature)
