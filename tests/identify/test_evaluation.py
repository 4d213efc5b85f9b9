"""Judgment of plants on recordings without a fit, and prediction intervals."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from recorded import STEP, pendulum_plant, simulated

from jaxdyn.dynamics import JointEncoders
from jaxdyn.identify import ForcesCheck, Part, Plant, Processing, Sensors, Smoothing, WindowsCheck, evaluate
from jaxdyn.identify.estimates import Address, Uncertainty
from jaxdyn.identify.prediction_intervals import moved_values, prediction_deviations, start_deviations
from jaxdyn.identify.validation import force_errors, smoothed_motions

RAW = Processing(Smoothing(STEP, 0.0, drop=1, decimate=1), checks=(ForcesCheck(),))


def with_offset(offset: float, std: float = 0.1, noise: float = 0.02) -> Plant:
    """A pendulum whose torque offset was estimated."""
    plant = pendulum_plant()
    inputs = dataclasses.replace(plant.inputs, offset=jnp.array([offset]))
    known = Uncertainty(
        (("torque offset", "N m"),),
        jnp.array([offset]),
        jnp.array([[std**2]]),
        jnp.asarray(1.0),
        (),
        jnp.array([[std**2]]),
        jnp.array([noise]),
        "forces",
        (Address(("inputs.offset",), None, 1),),
    )
    return Plant(plant.system, plant.sensors, inputs, RAW, known)


@pytest.fixture(scope="module")
def recording():
    return simulated(pendulum_plant(), 1.0, 3, irregular=False)


def test_several_plants_are_judged_by_their_own_checks_on_the_same_recordings(recording):
    found = evaluate({"true": with_offset(0.0), "other": with_offset(0.3)}, [recording]).figures
    assert list(found) == ["true", "other"]
    true, other = (found[name]["rms 1_joint"] for name in ("true", "other"))
    assert true < 0.15  # accelerations are second differences
    np.testing.assert_allclose(other, 0.3, atol=0.05)
    assert found["true"]["inside the 95 % band %"] > 90.0
    assert found["other"]["inside the 95 % band %"] < 1.0


def test_each_recording_has_its_own_sample_rate_and_filter(recording):
    own = Processing(Smoothing(2 * STEP, 10.0, drop=2, decimate=1))
    parts = [Part(recording, 0.0, 0.5), Part(recording, 0.5, 1.0, own)]
    found = evaluate(with_offset(0.0), parts, intervals=False).figures["plant"]
    assert "relative, mixed filters" in found
    motions = smoothed_motions([dataclasses.replace(parts[0], processing=RAW), parts[1]])
    assert (
        len(motions.q) == 49 + 24
    )  # one sample at the start of the first part, and two at the end of the second one, are removed
    assert "relative, filter 10 Hz" in evaluate(with_offset(0.0), parts[1:], intervals=False).figures["plant"]


def test_names_of_figures_contain_the_initial_state_estimator(recording):
    check = WindowsCheck(durations=(0.2,), interval=STEP)
    found = evaluate(pendulum_plant(), [recording], [check], processing=Processing(velocity_cutoff=30.0)).figures[
        "plant"
    ]
    assert "median end @0.2s, filtered start (30 Hz)" in found


def test_each_measurement_has_a_name_of_its_own():
    def both(system, state):
        return jnp.concatenate([state.q, state.v])

    plant = pendulum_plant()
    sensors = Sensors(jnp.full(3, 0.01), observe=(JointEncoders(velocities=True), both))
    (joint,) = plant.system.model.topology.joint_names
    assert dataclasses.replace(plant, sensors=sensors).measurement_names == (joint, "both [1]", "both [2]")


@pytest.mark.parametrize("offset", [0.1, 0.0, 1e-12, 1e-25])
def test_the_deviation_of_a_prediction_adds_the_covariance_of_the_estimates_and_the_noise(recording, offset):
    plant = with_offset(offset)
    motions = smoothed_motions([Part(recording, processing=RAW)])
    # Beside an estimate near zero the step of the differences is a tenth as long, so that rounding counts ten times as much.
    rounding = 1e-9 if offset == 0.1 else 1e-8
    np.testing.assert_allclose(prediction_deviations(plant, motions), np.hypot(0.1, 0.02), rtol=rounding)
    moved = moved_values(plant, plant.estimates, jnp.array([0.25]))
    np.testing.assert_allclose(moved.inputs.offset, [0.25 + offset])
    errors = [force_errors(each.bare, motions) for each in (plant, moved)]
    np.testing.assert_allclose(errors[0].predicted - errors[1].predicted, 0.25)
    assert prediction_deviations(pendulum_plant(), motions) is None


def test_deviations_of_initial_states_are_those_of_white_noise_and_its_rate_below_the_cutoff(recording):
    std, cutoff, count = 0.1, 20.0, 2**17
    part = Part(recording, processing=Processing(velocity_cutoff=cutoff))
    noise = np.random.default_rng(0).normal(0.0, std, count)
    frequency = np.fft.rfftfreq(count, STEP)
    rate = np.fft.irfft(np.where(frequency < cutoff, 2j * np.pi * frequency, 0.0) * np.fft.rfft(noise))
    # About 5e4 independent values remain below the cutoff, so the drawn deviations are right to half a percent.
    np.testing.assert_allclose(start_deviations(pendulum_plant(std), [part]), [std, np.std(rate)], rtol=0.02)
