"""Joints written by a user: a ball joint and a free joint on quaternions, and one whose motion subspace moves.

Nothing in the library knows these classes. The protocol must be enough for kinematics, dynamics, integration and gradients.
"""

import json
import os
from pathlib import Path
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from random_trees import close, random_inertia, random_unit

from jaxdyn import (
    Joint,
    MechanismBuilder,
    Model,
    Prismatic,
    Revolute,
    angular_momentum,
    bias_force,
    body_accelerations,
    body_jacobian,
    body_velocities,
    christoffel_first_kind,
    configuration,
    coriolis_matrix,
    forward_dynamics,
    forward_kinematics,
    gravity_force,
    inverse_dynamics,
    kinetic_energy,
    mass_matrix,
    momentum,
    potential_energy,
)
from jaxdyn.spatial import quaternion, rotation
from jaxdyn.spatial.transform import RigidTransform


class Ball(Joint):
    """Rotation about a point. q: quaternion. v: angular velocity of the child relative to the parent, child axes."""

    nq: ClassVar[int] = 4
    nv: ClassVar[int] = 3
    velocity_is_rate: ClassVar[bool] = False

    def transform(self, q: Float[Array, "4"]) -> RigidTransform:
        return RigidTransform(q, jnp.zeros(3, q.dtype))

    def motion_subspace(self, q: Float[Array, "4"]) -> Float[Array, "6 3"]:
        return jnp.eye(6, 3, dtype=q.dtype)

    def integrate(self, q: Float[Array, "4"], step: Float[Array, "3"]) -> Float[Array, "4"]:
        return quaternion.multiply(q, quaternion.exponential(step))

    def difference(self, q0: Float[Array, "4"], q1: Float[Array, "4"]) -> Float[Array, "3"]:
        return quaternion.logarithm(quaternion.multiply(quaternion.inverse(q0), q1))

    def neutral(self) -> Float[Array, "4"]:
        return quaternion.identity()


class Free(Joint):
    """No constraint. q: position in the parent, m, and quaternion. v: twist in child axes, angular part first."""

    nq: ClassVar[int] = 7
    nv: ClassVar[int] = 6
    velocity_is_rate: ClassVar[bool] = False

    def transform(self, q: Float[Array, "7"]) -> RigidTransform:
        return RigidTransform(q[3:], q[:3])

    def motion_subspace(self, q: Float[Array, "7"]) -> Float[Array, "6 6"]:
        return jnp.eye(6, dtype=q.dtype)

    def integrate(self, q: Float[Array, "7"], step: Float[Array, "6"]) -> Float[Array, "7"]:
        return jnp.concatenate([q[:3] + quaternion.rotate(q[3:], step[3:]), ])

    def difference(self, q0: Float[Array, "7"], q1: Float[Array, "7"]) -> Float[Array, "6"]:
        raise NotImplementedError

    def neutral(self) -> Float[Array, "7"]:
        return jnp.zeros(7).at[3].set(1.0)
