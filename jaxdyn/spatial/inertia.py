"""Inertia of a rigid body: ten parameters, whose values for several bodies add up.

The parameters about a reference point P are the mass m, the first moment h = m (C - P), and the planar inertia tensor
(second-moment matrix) Pi = integral rho rho^T dm. The usual inertia tensor is J = tr(Pi) 1 - Pi, and [[Pi, h], [h^T, m]] is the 4x4
pseudo-inertia. A body is physically valid if and only if its pseudo-inertia is positive semidefinite.
"""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot
from jaxdyn.spatial.rotation import Matrix33, Vector3, cross
from jaxdyn.spatial.sixvector import Force, Motion

# The conversions between forms of a tensor are used in JAX code and, in NumPy double precision, in the checks of the builder.
T = TypeVar("T", Array, np.ndarray)

# Position of the six entries (xx, yy, zz, xy, xz, yz) of a symmetric tensor in its 3x3 matrix. It is int32, because JAX caches a
# converted copy of an array, and a copy of an int64 array made while `jax_enable_x64` is off would be int32.
_SYMMETRIC = np.array([[0, 3, 4], [3, 1, 5], [4, 5, 2]], np.int32)


def symmetric_matrix(six: T) -> T:
    """Symmetric (3, 3) matrix with the entries (xx, yy, zz, xy, xz, yz)."""
    return six[_SYMMETRIC]


def symmetric_entries(matrix: T) -> T:
    """Entries (xx, yy, zz, xy, xz, yz) of a symmetric (3, 3) matrix."""
    return matrix[np.array([0, 1, 2, 0, 0, 1]), np.array([0, 1, 2, 1, 2, 2])]


def _trace(matrix: Array | np.ndarray) -> Array | np.floating:
    """Sum of the diagonal entries. The function of JAX makes ten operations more."""
    return matrix[0, 0] + matrix[1, 1] + matrix[2, 2]


def planar_from_inertia(inertia: T) -> T:
    """Planar inertia tensor (3, 3) Pi = 1/2 tr(J) 1 - J. Source: theory.md (B10)."""
    return 0.5 * _trace(inertia) * np.eye(3, dtype=inertia.dtype) - inertia  # (B10)  # pyright: ignore[reportReturnType]


def inertia_from_planar(planar: T) -> T:
    """Inertia tensor (3, 3) J = tr(Pi) 1 - Pi. Source: theory.md (B10)."""
    return _trace(planar) * np.eye(3, dtype=planar.dtype) - planar  # (B10)  # pyright: ignore[reportReturnType]


class SpatialInertia(eqx.Module):
    """Inertia of a body, or of a set of bodies, about a reference point P.

    Attributes:
        mass: Mass m, kg.
        first_moment: First moment h = m (C - P), kg m.
        planar: Planar inertia tensor Pi about P, kg m^2, on the axes of `first_moment`.

    Inertias about the same point and on the same axes are summed field by field (`jax.tree.map`).
    """

    mass: Float[Array, "*batch"]
    first_moment: Float[Array, "*batch 3"]
    planar: Float[Array, "*batch 3 3"]

    @staticmethod
    def of_body(mass: Float[Array, ""], com: Vector3, inertia: Matrix33) -> "SpatialInertia":
        """Inertia about P of a body with center of mass at `com` (P -> C, m) and inertia tensor J about C (kg m^2).

        Source: theory.md (F5), (F6).
        """
        return SpatialInertia.of_planar(mass, com, planar_from_inertia(inertia))

    @staticmethod
    def of_planar(mass: Float[Array, ""], com: Vector3, about_com: Matrix33) -> "SpatialInertia":
        """Inertia about P of a body with center of mass at `com` (P -> C, m) and planar inertia tensor Pi about C (kg m^2).

        Source: theory.md (F6).
        """
        first_moment = mass * com
        planar = about_com + jnp.outer(first_moment, com)  # (F6)
        # Exactly symmetric; a scalar program need not compute three of the nine entries.
        return SpatialInertia(mass, first_moment, symmetric_matrix(symmetric_entries(planar)))

    @property
    def pseudo_inertia(self) -> Float[Array, "4 4"]:
        """4x4 pseudo-inertia [[Pi, h], [h^T, m]].

        A change of frame by the 4x4 matrix g transforms it to g [[Pi, h], [h^T, m]] g^T. Source: theory.md (F5).
        """
        top = jnp.concatenate([self.planar, self.first_moment[:, None]], axis=1)
        return jnp.concatenate([top, jnp.concatenate([self.first_moment, self.mass[None]])[None]])

    @property
    def matrix(self) -> Float[Array, "6 6"]:
        """6x6 matrix that converts a motion (omega; v) to the momentum (angular; linear), both about P."""
        return jax.vmap(self.momentum)(jnp.eye(6, dtype=self.planar.dtype)).T

    def momentum(self, motion: Motion) -> Force:
        """Momentum (J omega + h x v; m v - h x omega) about P of the motion (omega; v).

        Source: theory.md (M7) with J omega = tr(Pi) omega - Pi omega (B10).
        """
        w, v = motion[:3], motion[3:]
        angular = _trace(self.planar) * w - dot(self.planar, w) + cross(self.first_moment, v)
        return jnp.concatenate([angular, self.mass * v - cross(self.first_moment, w)])
