"""Gibbs-Appell, Lagrange, Kane and Hamilton against the covariant form where quasi-velocities and explicit time enter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_trees import random_model, random_motion
from stacked_trees import agree, evaluated

from jaxdyn import configuration, forward_dynamics, gravity_force, inverse_dynamics
from jaxdyn.dynamics import generalized_momentum
from jaxdyn.formulations import (
    acceleration_energy,
    acceleration_energy_from_kinetic,
    canonical_rates,
    gibbs_appell_accelerations,
    gibbs_appell_forces,
    kane_forces,
    lagrange_forces,
)

# A Cardan joint with prescribed motion carries a free body, which carries a ball, a planar and a cylindrical joint.
PARENTS, KINDS = [-1, 0, 1, 1, 0], "uFSLC"


def routes(model, q, v, a, tau):
    def momentum(duration, q, v):
        return generalized_momentum(model.later(duration), q, v)

    found = forward_dynamics(model, q, v, tau)
    directions = (jnp.ones(()), configuration.coordinate_rate(model, q, v), found)
    p, p_rate = jax.jvp(momentum, (jnp.zeros(()), q, v), directions)
    rates = canonical_rates(model, q, p, tau)
    kane = kane_forces(model, q, v, found, tau)
    return {
        "needed": inverse_dynamics(model, q, v, a),
        "found": found,
        "gibbs_appell": gibbs_appell_forces(model, q, v, a),
        "gauss": gibbs_appell_accelerations(model, q, v, tau),
        "lagrange": lagrange_forces(model, q, v, a) - gravity_force(model, q),
        "energies": (acceleration_energy(model, q, v, a), acceleration_energy_from_kinetic(model, q, v, a)),
        "kane": (kane.active, -kane.inertia),
        "of_time": kane.time_part.linear,
        "hamilton": (rates.velocity, rates.momentum),
        "bracket": rates.bracket,
        "terms": tau - rates.gradient + rates.bracket,
        "motion": (v, p_rate),
    }


@pytest.fixture(scope="module")
def results():
    rng = np.random.default_rng(17)
    samples = []
    for _ in range(3):
        model = random_model(rng, len(KINDS), parents=PARENTS, kinds=KINDS).at(jnp.asarray(rng.normal()))
        samples.append((model, *random_motion(rng, model), random_motion(rng, model)[2]))
    return evaluated(routes, *jax.tree.map(lambda *x: jnp.stack(x), *samples), in_lanes=True)


@pytest.mark.thorough
def test_forces_are_derivatives_of_the_acceleration_energy_and_of_the_kinetic_energy(results):
    agree(results["gibbs_appell"], results["needed"])
    agree(results["lagrange"], results["needed"])


def test_both_energies_are_linked_by_the_identity_with_explicit_time(results):
    closed, of_kinetic = results["energies"]
    agree(closed[:, None], of_kinetic[:, None])


def test_least_constraint_gives_the_accelerations(results):
    agree(results["gauss"], results["found"])


def test_active_and_inertia_forces_are_in_balance(results):
    agree(*results["kane"])
    assert np.all(np.max(np.abs(results["of_time"]), axis=(1, 2)) > 0.01)  # the prescribed motion moves bodies


def test_canonical_equations_hold_with_brackets_and_explicit_time(results):
    agree(results["hamilton"], results["motion"])
    agree(results["terms"], results["hamilton"][1])
    assert np.all(np.max(np.abs(results["bracket"]), axis=1) > 0.01)
