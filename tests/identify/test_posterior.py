"""Machines drawn from the posterior of a fit: their distribution, their validity, and what they keep."""

import dataclasses
import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from recorded import double_pendulum_plant

from jaxdyn import identify, io
from jaxdyn.identify.estimates import Uncertainty
from jaxdyn.identify.validation import unphysical_bodies

COUNT = 4000


def fitted(deviation: float = 0.3):
    """A plant with estimates of a body, of friction and of a direction of gravity; an offset follows the friction."""
    plant = double_pendulum_plant()
    name = plant.system.model.topology.body_names[1]
    free = [
        identify.body_inertia(name),
        identify.Parameter("system.forces.0.viscous", chart=identify.Positive()),
        identify.Parameter("inputs.gain", chart=identify.Bounded([0.0, 0.0], [2.0, 2.0])),
    ]
    tie = identify.Tie("inputs.offset", to="viscous", factor=0.5)
    parameters = identify.Parameters(plant, free, [tie])
    x = parameters.initial
    plant = parameters.place(x)
    rng = np.random.default_rng(0)
    L = deviation * (np.eye(x.size) + 0.3 * rng.normal(size=(x.size, x.size)) / np.sqrt(x.size))
    G = jax.jacfwd(parameters.values)(x)
    known = Uncertainty(
        parameters.labels,
        parameters.values(x),
        G @ L @ L.T @ G.T,
        jnp.asarray(1.0),
        (),
        G @ L @ L.T @ G.T,
        addresses=parameters.addresses,
        followers=parameters.followers,
        charts=parameters.charts,
    )
    return dataclasses.replace(plant, estimates=known), parameters, L


def test_unconstrained_parameters_have_the_covariance_of_the_fit_and_every_body_is_physical(tmp_path):
    plant, parameters, L = fitted()
    io.save_plant(plant, tmp_path)
    machines = identify.samples(io.load_plant(tmp_path), jax.random.key(1), COUNT)
    assert machines.estimates is None
    x = np.asarray(eqx.filter_jit(eqx.filter_vmap(parameters.unconstrained))(machines))
    # The standard error of a covariance of n samples is about its size times sqrt(2/n) = 0.022.
    scale = np.sqrt(np.diag(L @ L.T))
    np.testing.assert_allclose(np.cov(x.T) / np.outer(scale, scale), L @ L.T / np.outer(scale, scale), atol=0.1)
    np.testing.assert_allclose((x.mean(axis=0) - np.asarray(parameters.initial)) / scale, 0.0, atol=0.08)
    friction: Any = machines.system.forces[0]
    follows = 0.5 * (friction.viscous - parameters.values(parameters.initial)[None, 10:12])
    np.testing.assert_allclose(machines.inputs.offset - plant.inputs.offset[None], follows, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(machines.sensors.noise, np.tile(plant.sensors.noise, (COUNT, 1)))


def test_machines_are_physically_valid_however_uncertain_the_fit_is():
    """A warning names the positive values whose logarithms are so uncertain that samples have long tails."""
    plant, _, _ = fitted(2.0)
    names = ", ".join(name for name, _ in plant.estimates.labels[10:12])
    with pytest.warns(UserWarning, match=re.escape(f"of the logarithm of {names} is larger than 1;")):
        machines = identify.samples(plant, jax.random.key(2), 64)
    for k in range(64):
        assert unphysical_bodies(jax.tree.map(lambda leaf, k=k: leaf[k], machines.system.model)) == []
    friction: Any = machines.system.forces[0]
    assert np.all(np.asarray(friction.viscous) > 0.0)


def test_values_without_information_keep_their_estimates_with_a_warning():
    plant, _, _ = fitted()
    known = plant.estimates
    rows = np.arange(len(known.labels)) < len(known.labels) - 1
    blind = dataclasses.replace(
        known,
        covariance=known.covariance.at[-1, -1].set(np.inf),
        determined=known.determined * np.outer(rows, rows).astype(float),
    )
    with pytest.warns(UserWarning, match="neither the data nor priors determine gain"):
        machines = identify.samples(dataclasses.replace(plant, estimates=blind), jax.random.key(3), 8)
    np.testing.assert_array_equal(machines.inputs.gain[:, 1], np.tile(plant.inputs.gain[1], 8))
    assert np.ptp(machines.inputs.gain[:, 0]) > 0.1


def test_a_plant_without_estimates_is_refused():
    with pytest.raises(ValueError, match="the plant has no estimates of a fit; give Plant"):
        identify.samples(double_pendulum_plant(), jax.random.key(0), 2)
