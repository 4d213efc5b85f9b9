"""Errors of left-out training data: they equal those of fits without these data, and periods of a motion are not left out alone."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from recorded import STEP, pendulum_plant, simulated, with_noise

from jaxdyn.identify import OutputError, Parameter, Parameters, Plant, cut, fit, uncertainty
from jaxdyn.identify.charts import Real
from jaxdyn.identify.estimates import QUANTILE
from jaxdyn.identify.held_out import groups_of
from jaxdyn.identify.inverse_dynamics_error import InverseDynamicsError, Motions
from jaxdyn.identify.prediction_intervals import prediction_deviations
from jaxdyn.identify.validation import predicted_measurements, window_errors

OFFSETS = (0.12, -0.1, 0.05, -0.15)  # N m, of the torques of each recording
FREE = (Parameter("system.forces.0.viscous", chart=Real()), Parameter("inputs.offset"))


def periodic(periods: int, samples: int = 60) -> Motions:
    """A motion that repeats itself, with random torques."""
    t = 2 * np.pi * np.arange(periods * samples) / samples
    u = np.random.default_rng(0).normal(size=len(t))
    return Motions(*(jnp.asarray(x)[:, None] for x in (np.sin(t) + 0.3 * np.cos(2 * t), np.cos(t), -np.sin(t), u)))


def test_the_errors_are_those_of_fits_without_each_group():
    """Forces are linear in these parameters, so that least squares without a group of samples give its errors exactly."""
    motions = periodic(3)
    problem = InverseDynamicsError(Parameters(pendulum_plant(), FREE), motions, jnp.array([0.1]))
    found = uncertainty(problem, fit(problem, progress=False).unknowns).held_out
    plant, v = pendulum_plant(), np.asarray(motions.v[:, 0])
    g, design = 9.81, np.stack([v, -np.ones(len(v))], axis=1)
    known = 1.2 * g * 0.4 * np.sin(motions.q[:, 0]) + (0.03 + 1.2 * 0.4**2) * motions.a[:, 0]
    rest = np.asarray(motions.u[:, 0] - known)
    assert float(plant.system.model.gravity[2]) == -g
    errors = np.empty(len(v))
    for group in groups_of(motions):
        inside = np.isin(np.arange(len(v)), group)
        errors[inside] = (design @ np.linalg.lstsq(design[~inside], rest[~inside], rcond=None)[0] - rest)[inside]
    expected = np.quantile(np.abs(errors), 0.95) / QUANTILE
    np.testing.assert_allclose(found.deviations, [[expected]], rtol=1e-6)
    np.testing.assert_array_equal(found.times, [0.0])


def test_all_periods_of_a_state_are_in_one_group():
    found = groups_of(periodic(3))
    assert [len(group) for group in found] == [45] * 4
    groups = np.empty(180, int)
    for k, group in enumerate(found):
        groups[group] = k
    groups = groups.reshape(3, -1)
    assert np.mean(groups == groups[0]) > 0.95  # a group that ends between equal states divides them
    assert np.sum(np.diff(groups[0]) != 0) < 12


@pytest.fixture(scope="module")
def recordings():
    """Recordings of a pendulum whose torques have another offset in each of them."""
    found = []
    for k, offset in enumerate(OFFSETS):
        plant = pendulum_plant()
        plant = eqx.tree_at(lambda plant: plant.inputs.offset, plant, jnp.array([offset]))
        found.append(with_noise(simulated(plant, 4.0, k, irregular=False), 1e-3, k))
    return found


def fitted(recordings):
    """Problem and fit."""
    windows = cut(recordings, duration=0.5, interval=STEP)
    problem = OutputError(Parameters(pendulum_plant(), FREE), windows, free_starts=False)
    return problem, fit(problem, progress=False)


@pytest.fixture(scope="module")
def identified(recordings) -> tuple[OutputError, Plant]:
    problem, found = fitted(recordings)
    known = uncertainty(problem, found.unknowns)
    return problem, eqx.tree_at(lambda plant: plant.estimates, found.value, known, is_leaf=lambda x: x is None)


def test_a_recording_is_left_out_as_a_whole(recordings, identified):
    problem, plant = identified
    windows, held_out = problem.windows, plant.estimates.held_out
    for k, group in enumerate(groups_of(windows)):
        np.testing.assert_array_equal(group, np.flatnonzero(windows.sources == k))
    errors = []
    for k in range(4):
        without = fitted(recordings[:k] + recordings[k + 1 :])[1].value
        left_out = windows.select(np.asarray(windows.sources) == k)
        errors.append(window_errors(left_out, predicted_measurements(without.bare, left_out)).errors)
    errors, spacing = np.concatenate(errors)[:, :, 0], 0.05
    nearest = np.rint(np.asarray(windows.times) / spacing)
    for k in range(1, 11):
        expected = np.nanquantile(np.abs(errors[nearest == k]), 0.95) / QUANTILE
        np.testing.assert_allclose(held_out.deviations[k], expected, rtol=0.05)
    np.testing.assert_allclose(held_out.times, spacing * np.arange(11), atol=1e-12)


def test_the_band_of_a_prediction_grows_as_the_errors_of_left_out_recordings(identified):
    problem, plant = identified
    known, times = plant.estimates, np.asarray(problem.windows.times)
    deviations = np.asarray(known.held_out.deviations)
    assert deviations[-1, 0] > 4.0 * deviations[2, 0]
    np.testing.assert_allclose(
        known.noise_after(np.array([0.05, 0.125, 0.5, 9.0])),
        deviations[[1, 2, 10, 10]] + [[0.0], 0.5 * (deviations[3] - deviations[2]), [0.0], [0.0]],
    )
    exact = dataclasses.replace(known, determined=jnp.zeros_like(known.determined))
    found = prediction_deviations(dataclasses.replace(plant, estimates=exact), problem.windows, np.zeros(2))
    np.testing.assert_allclose(found, known.noise_after(times))
    observed = dataclasses.replace(known, held_out=None)
    np.testing.assert_allclose(observed.noise_after(np.array([0.0, 1.0])), np.tile(known.noise, (2, 1)))


def test_problems_without_groups_have_no_left_out_errors(identified):
    problem, _ = identified
    few = dataclasses.replace(problem, windows=problem.windows.select(slice(0, 3)))
    joined = dataclasses.replace(problem, free_starts=True, continuity=jnp.array([0.01, 0.01]))
    for other in (few, joined):
        assert uncertainty(other, other.initial).held_out is None
    assert uncertainty(problem, problem.initial, kind="noise").held_out is None
