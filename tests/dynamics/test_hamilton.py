"""Hamilton's canonical equations against the covariant form, quasi-velocities included."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from random_trees import random_inertia, random_unit
from stacked_trees import agree, evaluated, stacked_trees

from jaxdyn import (
    Joint,
    MechanismBuilder,
    Revolute,
    as_dtype,
    configuration,
    forward_dynamics,
    kinetic_energy,
    mass_matrix,
    potential_energy,
)
from jaxdyn.dynamics.hamilton import canonical_rates, generalized_momentum
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.transform import RigidTransform


def momentum_along_the_motion(model, q, v, tau):
    """p and dp/dt by the covariant form: the momentum along the path whose accelerations are those of forward dynamics."""

    def momentum(time):
        return generalized_momentum(model, configuration.integrate(model, q, time * v), v + time * a)

    a = forward_dynamics(model, q, v, tau)
    return jax.jvp(momentum, (jnp.zeros((), v.dtype),), (jnp.ones((), v.dtype),))


def routes(model, q, v, _, tau):
    """The canonical equations and what they must be equal to."""
    p, rate = momentum_along_the_motion(model, q, v, tau)
    return {
        "rates": canonical_rates(model, q, p, tau),
        "p": p,
        "mass times v": mass_matrix(model, q) @ v,
        "dp/dt": rate,
        "energy": kinetic_energy(model, q, v) + potential_energy(model, q),
    }


@pytest.fixture(scope="module")
def trees():
    samples = stacked_trees("forest")
    return samples, evaluated(routes, *samples)


def check(samples, r):
    """The canonical equations are those of the covariant form."""
    agree(r["p"], r["mass times v"])  # (F2)
    agree(r["rates"].velocity, samples[2])
    agree(r["rates"].momentum, r["dp/dt"])


def test_canonical_equations_are_those_of_the_covariant_form(trees):
    check(*trees)


def test_hamiltonian_is_the_total_energy(trees):
    _, r = trees
    agree(r["rates"].energy, r["energy"])


def check_power(samples, r):
    """dH/dt along the canonical equations is the power of the drives."""
    (_, _, v, _, tau), rates = samples, r["rates"]
    agree(jnp.sum(rates.velocity * (rates.gradient + rates.momentum), axis=1), jnp.sum(tau * v, axis=1))


def test_rate_of_the_hamiltonian_is_the_power_of_the_drives(trees):
    check_power(*trees)


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


def swinging_balls(rng):
    """A model of a ball joint, a hinge and another ball joint, and a motion of it."""
    builder = MechanismBuilder("balls", rng.normal(0.0, 5.0, 3))
    joints = [Ball(), Revolute(random_unit(rng)), Ball()]
    for i, joint in enumerate(joints):
        com, inertia = random_inertia(rng, 1.0 + 0.3 * i, 0.3)
        parent = f"body {i - 1}" if i else "ground"
        where = {"position": rng.normal(0.0, 0.3, 3), "orientation": random_unit(rng, 4)}
        builder.add_body(f"body {i}", parent=parent, joint=joint, mass=1.0 + 0.3 * i, com=com, inertia=inertia, **where)
    model = builder.build()
    q = np.concatenate([random_unit(rng, 4), rng.normal(size=1), random_unit(rng, 4)])
    return model, jnp.asarray(q), *jnp.asarray(rng.normal(size=(3, 7)))


def test_brackets_of_quasi_velocities_enter_the_rate_of_the_momentum(monkeypatch):
    # (D3): two turns about axes of the child have the bracket of their cross product.
    turns = np.zeros((3, 3, 3))
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        turns[i, j, k], turns[j, i, k] = 1.0, -1.0
    structure = np.zeros((7, 7, 7))
    structure[:3, :3, :3] = structure[4:, 4:, 4:] = turns
    monkeypatch.setattr(configuration, "structure_coefficients", lambda model, q: jnp.asarray(structure))
    rng = np.random.default_rng(3)
    samples = jax.tree.map(lambda *x: jnp.stack(x), *(swinging_balls(rng) for _ in range(3)))
    r = evaluated(routes, *samples)
    assert np.all(np.max(np.abs(r["rates"].bracket), axis=1) > 0.01)
    check(samples, r)
    check_power(samples, r)


def test_derivatives_of_the_rates_are_those_of_the_covariant_form_also_at_rest():
    """Forward over reverse mode, in a direction of all numbers of model and motion."""
    model, q, v, _, tau = stacked_trees("forest")
    rng = np.random.default_rng(8)
    point = model, q, v, tau
    direction = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), point)

    def canonical(model, q, v, tau):
        return canonical_rates(model, q, generalized_momentum(model, q, v), tau).momentum

    def covariant(model, q, v, tau):
        return momentum_along_the_motion(model, q, v, tau)[1]

    def change(function):
        return evaluated(lambda point, direction: jax.jvp(function, point, direction)[1], point, direction)

    agree(change(canonical), change(covariant))


def test_single_precision(trees):
    (model, q, _, _, tau), r = trees
    single = evaluated(canonical_rates, *as_dtype((model, q, r["p"], tau), jnp.float32))
    assert {str(x.dtype) for x in jax.tree.leaves(single)} == {"float32"}
    agree(single, r["rates"], 1e-4)
