"""Hamilton's canonical equations against the covariant form, quasi-velocities included."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stacked_trees import agree, evaluated, stacked_trees

from jaxdyn import (
    as_dtype,
    configuration,
    forward_dynamics,
    kinetic_energy,
    mass_matrix,
    potential_energy,
)
from jaxdyn.dynamics.energy import generalized_momentum
from jaxdyn.formulations.hamilton import canonical_rates


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
    samples = stacked_trees()
    return samples, evaluated(routes, *samples, in_lanes=True)


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


@pytest.mark.thorough
def test_derivatives_of_the_rates_are_those_of_the_covariant_form_also_at_rest():
    """Forward over reverse mode, in a direction of all numbers of model and motion."""
    model, q, v, _, tau = stacked_trees()
    rng = np.random.default_rng(8)
    point = model, q, v, tau
    direction = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), point)

    def canonical(model, q, v, tau):
        return canonical_rates(model, q, generalized_momentum(model, q, v), tau).momentum

    def covariant(model, q, v, tau):
        return momentum_along_the_motion(model, q, v, tau)[1]

    def change(function):
        return evaluated(
            lambda point, direction: jax.jvp(function, point, direction)[1], point, direction, in_lanes=True
        )

    agree(change(canonical), change(covariant))


def test_single_precision(trees):
    (model, q, _, _, tau), r = trees
    single = evaluated(canonical_rates, *as_dtype((model, q, r["p"], tau), jnp.float32), in_lanes=True)
    assert {str(x.dtype) for x in jax.tree.leaves(single)} == {"float32"}
    agree(single, r["rates"], 1e-4)
