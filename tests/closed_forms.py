"""Dynamics of mechanisms whose places are known in closed form, for tests: the principle of virtual work and nothing else.

A body is placed by X = [R | o], 3 x 4. With its pseudo-inertia P, the integral of (r, 1)(r, 1)' dm, its particles obey, all
bodies together,

    sum tr( dX/ds P (d^2 X/dt^2 - [0 | g])' ) = 0

for independent coordinates s. There is no joint in it, no angular velocity and no multiplier.
"""

import jax
import jax.numpy as jnp
import numpy as np
from random_trees import random_inertia

import jaxdyn
from jaxdyn import MechanismBuilder, Model
from jaxdyn.spatial.transform import RigidTransform

UNTURNED = jnp.array([1.0, 0.0, 0.0, 0.0])


def pose(rotation, origin):
    """X = [R | o]."""
    return jnp.concatenate([rotation, origin[:, None]], axis=1)


def about_x(angle):
    c, s, one, zero = jnp.cos(angle), jnp.sin(angle), jnp.ones_like(angle), jnp.zeros_like(angle)
    return jnp.stack([jnp.stack([one, zero, zero]), jnp.stack([zero, c, -s]), jnp.stack([zero, s, c])])


def about_y(angle):
    return jnp.roll(about_x(angle), (1, 1), (0, 1))


def about_z(angle):
    return jnp.roll(about_x(angle), (-1, -1), (0, 1))


def angle_about_z(X):
    return jnp.arctan2(X[1, 0], X[0, 0])


def marker(x=0.0, y=0.0, z=0.0) -> RigidTransform:
    """A frame with the axes of its body."""
    return RigidTransform(UNTURNED, jnp.array([x, y, z]))


def add_body(builder: MechanismBuilder, name: str, joint, **place) -> None:
    """A body of about a kilogram whose mass center and moments of inertia prefer no direction."""
    rng = np.random.default_rng(sum(map(ord, name)))
    mass = rng.uniform(0.5, 2.0)
    com, inertia = random_inertia(rng, mass, 0.3)
    builder.add_body(name, joint=joint, mass=mass, com=com, inertia=inertia, **place)


def motion_of_bodies(model: Model, q, v, a):
    """X, dX/dt and d^2 X/dt^2 of all bodies."""

    def placed(q):
        X = jaxdyn.forward_kinematics(model, q)
        return jnp.concatenate([X.rotation, X.translation[:, :, None]], axis=2)

    def moved(q, v):
        return jax.jvp(placed, (q,), (jaxdyn.configuration.coordinate_rate(model, q, v),))

    (X, Xd), (_, Xdd) = jax.jvp(moved, (q, v), (jaxdyn.configuration.coordinate_rate(model, q, v), a))
    return X, Xd, Xdd


def motion_by_virtual_work(model: Model, poses, s, s_rate):
    """The same from X(s); of the model only masses and gravity are used."""
    J = jax.jacfwd(poses)(s)
    bias = jax.jvp(lambda s: jax.jvp(poses, (s,), (s_rate,))[1], (s,), (s_rate,))[1]
    work = jnp.einsum("brik,bij->brjk", J, _pseudo_inertias(model))
    weight = jnp.zeros((3, 4)).at[:, 3].set(model.gravity)
    inertia, force = jnp.einsum("brjk,brjl->kl", work, J), jnp.einsum("brjk,brj->k", work, weight[None] - bias)
    return poses(s), J @ s_rate, J @ jnp.linalg.solve(inertia, force) + bias


def _pseudo_inertias(model: Model):
    xx, yy, zz, xy, xz, yz = model.inertia.T
    tensor = jnp.stack([jnp.stack(row, -1) for row in ((xx, xy, xz), (xy, yy, yz), (xz, yz, zz))], 1)
    mass, com = model.mass[:, None, None], model.com[:, :, None]
    second = 0.5 * (xx + yy + zz)[:, None, None] * jnp.eye(3)[None] - tensor + mass * com * com.mT
    return jnp.block([[second, mass * com], [mass * com.mT, mass]])
