"""Rigid transforms against 4x4 matrices."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.spatial import quaternion
from jaxdyn.spatial.transform import RigidTransform

EPS = np.finfo(np.float64).eps


def close(actual: Array, expected) -> None:
    # Some ten operations on numbers of order one; a wrong sign or order is an error of order one.
    np.testing.assert_allclose(actual, expected, rtol=64 * EPS, atol=64 * EPS)


def draw(seed: int, *shape: int) -> Float[Array, "..."]:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


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
