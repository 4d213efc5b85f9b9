"""Inertia of a body against a cloud of particles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawn_numbers import draw
from jaxtyping import Array

from jaxdyn.spatial.inertia import (
    SpatialInertia,
    inertia_from_planar,
    planar_from_inertia,
    symmetric_entries,
    symmetric_matrix,
)
from jaxdyn.spatial.rotation import rodrigues, skew

EPS = np.finfo(np.float64).eps
PARTICLES = 7


def close(actual: Array, expected) -> None:
    # Sums of seven particles of order one; a wrong sign or factor is an error of order one.
    np.testing.assert_allclose(actual, expected, rtol=256 * EPS, atol=256 * EPS)


class Cloud:
    """Particles of positive mass, and everything about them from the definitions."""

    def __init__(self, masses, points):
        self.masses, self.points = np.asarray(masses), np.asarray(points)

    @staticmethod
    def random(seed: int) -> "Cloud":
        return Cloud(np.random.default_rng(seed).uniform(0.5, 1.5, PARTICLES), draw(seed, PARTICLES, 3))

    @property
    def center(self):
        return self.masses @ self.points / self.masses.sum()

    @property
    def second_moments(self):
        return np.einsum("p,pi,pj->ij", self.masses, self.points, self.points)

    @property
    def inertia(self):
        """J = - sum m S(rho)^2 about the origin (B10)."""
        duals = np.stack([skew(jnp.asarray(p)) for p in self.points])
        return -np.einsum("p,pij,pjk->ik", self.masses, duals, duals)

    def moved(self, rotation, offset) -> "Cloud":
        return Cloud(self.masses, self.points @ np.asarray(rotation).T + np.asarray(offset))

    @property
    def as_body(self) -> SpatialInertia:
        """Through the numbers by which users know a body: mass, center of mass, inertia tensor about it."""
        about_center = self.moved(np.eye(3), -self.center).inertia
        return SpatialInertia.of_body(*map(jnp.asarray, (self.masses.sum(), self.center, about_center)))


def test_fields_are_the_moments_of_the_particles():  # (F5), (F6)
    cloud = Cloud.random(0)
    body = cloud.as_body
    close(body.mass, cloud.masses.sum())
    close(body.first_moment, cloud.masses @ cloud.points)
    close(body.planar, cloud.second_moments)


def test_momentum_is_that_of_the_particles():  # (M7)
    cloud, motion = Cloud.random(1), draw(2, 6)
    velocities = np.asarray(motion[3:]) + np.cross(np.asarray(motion[:3]), cloud.points)
    linear = cloud.masses @ velocities
    angular = np.einsum("p,pi->i", cloud.masses, np.cross(cloud.points, velocities))
    close(cloud.as_body.momentum(motion), np.concatenate([angular, linear]))
    kinetic_energy = 0.5 * cloud.masses @ np.sum(velocities**2, axis=1)
    close(0.5 * motion @ cloud.as_body.matrix @ motion, kinetic_energy)


def test_matrix_is_symmetric_positive_definite_and_takes_motion_to_momentum():
    body, motion = Cloud.random(3).as_body, draw(4, 6)
    close(body.matrix @ motion, body.momentum(motion))
    close(body.matrix, body.matrix.T)
    assert np.min(np.linalg.eigvalsh(body.matrix)) > 0


def test_inertias_about_one_point_add_up_field_by_field():
    one, other = Cloud.random(5), Cloud.random(6)
    together = Cloud(np.concatenate([one.masses, other.masses]), np.concatenate([one.points, other.points])).as_body
    jax.tree.map(close, jax.tree.map(jnp.add, one.as_body, other.as_body), together)


def test_change_of_frame_acts_on_the_pseudo_inertia_by_congruence():  # (F5)
    cloud, turn, offset = Cloud.random(7), rodrigues(jnp.asarray([0.0, 0.6, 0.8]), jnp.asarray(2.0)), draw(8, 3)
    g = np.eye(4)
    g[:3, :3], g[:3, 3] = turn, offset
    close(cloud.moved(turn, offset).as_body.pseudo_inertia, g @ cloud.as_body.pseudo_inertia @ g.T)


def test_pseudo_inertia_of_particles_is_positive_definite_and_of_a_plane_singular():
    assert np.min(np.linalg.eigvalsh(Cloud.random(9).as_body.pseudo_inertia)) > 0
    flat = Cloud.random(10)
    flat.points = flat.points * np.array([1.0, 1.0, 0.0])
    close(np.min(np.linalg.eigvalsh(flat.as_body.pseudo_inertia)), 0.0)


@pytest.mark.parametrize("angle", [0.0, -1.1])
def test_inertia_tensor_and_planar_tensor_are_two_forms_of_one_quantity_on_any_axes(angle):  # (B9), (B10)
    cloud, turn = Cloud.random(11), rodrigues(jnp.asarray([0.6, 0.8, 0.0]), jnp.asarray(angle))
    turned = cloud.moved(turn, np.zeros(3))
    inertia, planar = jnp.asarray(turned.inertia), jnp.asarray(turned.second_moments)
    close(inertia_from_planar(planar), inertia)
    close(planar_from_inertia(inertia), planar)
    close(turn @ cloud.inertia @ turn.T, inertia)
    close(turn @ cloud.second_moments @ turn.T, planar)


def test_off_diagonal_entries_are_tensor_entries_and_minus_the_products_of_inertia():  # (B10)
    cloud = Cloud.random(12)
    x, y, z = cloud.points.T
    m = cloud.masses
    six = [m @ (y**2 + z**2), m @ (x**2 + z**2), m @ (x**2 + y**2), -m @ (x * y), -m @ (x * z), -m @ (y * z)]
    close(symmetric_entries(jnp.asarray(cloud.inertia)), six)
    close(symmetric_matrix(jnp.asarray(six)), cloud.inertia)
