"""Motion and force vectors against the points of a rigid body."""

import jax.numpy as jnp
import numpy as np
from drawn_numbers import draw
from jaxtyping import Array, Float

from jaxdyn.spatial.rotation import rodrigues, skew
from jaxdyn.spatial.sixvector import cross_force, cross_motion, force_at_point, motion_to_outer, velocity_at_point

EPS = np.finfo(np.float64).eps


def close(actual: Array, expected) -> None:
    # Some ten operations on numbers of order one; a wrong sign or order is an error of order one.
    np.testing.assert_allclose(actual, expected, rtol=64 * EPS, atol=64 * EPS)


def twist_matrix(motion: Float[Array, "6"]) -> Float[np.ndarray, "4 4"]:
    """4x4 matrix that takes a point (r, 1) to its velocity."""
    matrix = np.zeros((4, 4))
    matrix[:3, :3], matrix[:3, 3] = skew(motion[:3]), motion[3:]
    return matrix


def test_velocity_of_a_point_is_that_of_the_twist_matrix():
    motion, r = draw(0, 6), draw(1, 3)
    close(velocity_at_point(motion, r), (twist_matrix(motion) @ np.append(r, 1.0))[:3])


def test_cross_product_of_motions_is_the_commutator_of_their_matrices():  # (D3)
    a, b = draw(2, 2, 6)
    commutator = twist_matrix(a) @ twist_matrix(b) - twist_matrix(b) @ twist_matrix(a)
    close(twist_matrix(cross_motion(a, b)), commutator)


def test_cross_product_of_motions_satisfies_jacobis_identity():
    a, b, c = draw(3, 3, 6)
    cyclic = (
        cross_motion(a, cross_motion(b, c)) + cross_motion(b, cross_motion(c, a)) + cross_motion(c, cross_motion(a, b))
    )
    close(cyclic, np.zeros(6))


def test_cross_product_of_forces_is_the_dual_of_that_of_motions():
    """A force carried along does constant work on a motion carried along: (v x m) . f + m . (v x* f) = 0."""
    velocity, motion, force = draw(4, 3, 6)
    close(jnp.sum(cross_motion(velocity, motion) * force), -jnp.sum(motion * cross_force(velocity, force)))


def test_moving_a_motion_to_another_point_and_other_axes_leaves_the_velocities_of_body_points():  # (D2)
    turn, offset, motion, r = (
        rodrigues(jnp.asarray([0.6, 0.0, 0.8]), jnp.asarray(0.9)),
        draw(5, 3),
        draw(6, 6),
        draw(7, 3),
    )
    moved = motion_to_outer(turn, offset, motion)
    close(moved[:3], turn @ motion[:3])
    close(velocity_at_point(moved, offset + turn @ r), turn @ velocity_at_point(motion, r))


def test_rate_of_work_of_a_force_and_a_couple_is_the_inner_product():  # (H1)
    motion, point, force, couple = draw(8, 6), draw(9, 3), draw(10, 3), draw(11, 3)
    work = jnp.sum(force * velocity_at_point(motion, point)) + jnp.sum(couple * motion[:3])
    close(jnp.sum(force_at_point(point, force, couple) * motion), work)
