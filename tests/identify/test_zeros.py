"""Sensors with a zero of their own in each recording: measurements, starts, and what a fit makes of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from recorded import STEP, lively, pendulum_plant

import jaxdyn
from jaxdyn.dynamics.sensors import JointEncoders
from jaxdyn.identify.checks import WindowsCheck
from jaxdyn.identify.least_squares import Unknowns
from jaxdyn.identify.measurement import (
    MeasurementError,
    Plant,
    Sensors,
)
from jaxdyn.identify.output_error import OutputError
from jaxdyn.identify.parameters import GaussianPrior, Parameter, Parameters
from jaxdyn.identify.recording import Part, Recording, cut
from jaxdyn.identify.validation import predicted_measurements
from jaxdyn.identify.zeros import estimated_zeros
from jaxdyn.simulate.controls import Knots
from jaxdyn.simulate.trajectory import rollout

ZEROS = jnp.array([[0.07], [-0.12]])


def with_sensors(plant: Plant, **changes) -> Plant:
    return Plant(plant.system, Sensors(plant.sensors.noise, **changes), plant.inputs)


class TestSensors:
    def test_each_recording_has_its_zero(self):
        plant = with_sensors(pendulum_plant(), scale=[2.0], offset=[0.3], zeros=ZEROS)
        state = jaxdyn.State(jnp.array([0.5]), jnp.array([0.1]))
        measurements = [plant.sensors.read(plant.system, state, recording=k)[0] for k in (0, 1)]
        np.testing.assert_allclose(measurements, [1.37, 1.18], atol=1e-15)
        np.testing.assert_allclose(plant.sensors.without_zeros.read(plant.system, state), [1.3], atol=1e-15)

    def test_state_behind_measurements(self):
        q, v = jnp.array([0.5, -0.4]), jnp.array([1.0, 2.0])
        scale, zeros = [2.0, 3.0], [[0.0, 0.0], [0.2, -0.3]]
        sensors = Sensors([0.1, 0.1], scale=scale, offset=[0.1, 0.0], zeros=zeros)
        read = jaxdyn.State(sensors.scale * q + sensors.shift(1), sensors.scale * v)
        with_velocities = Sensors(
            [0.1] * 4,
            scale=[*scale, 1.0, 1.0],
            offset=[0.1, 0.0, 5.0, 5.0],
            zeros=[[*zero, 9.0, 9.0] for zero in zeros],
            observe=(JointEncoders(), JointEncoders(velocities=True)),
        )
        for found in (sensors.state_read(read, 1), with_velocities.state_read(read, 1)):
            np.testing.assert_allclose(found.q, q, atol=1e-15)
            np.testing.assert_allclose(found.v, v, atol=1e-15)
        blind = Sensors([0.1, 0.1], offset=[0.1, 0.0], observe=JointEncoders(velocities=True))
        assert blind.state_read(read, 0) is read

    def test_refused(self):
        with pytest.raises(MeasurementError, match=r"zeros has shape \(2, 1\)"):
            Sensors([0.1, 0.1], zeros=ZEROS)


def recorded(plant: Plant, seed: int, number: int) -> Recording:
    """A noiseless recording of some number."""
    steps = 60
    time = STEP * np.arange(steps + 1)
    u = lively(time, 1, seed)
    start = jaxdyn.State(jnp.array([0.4]), jnp.array([0.8]))
    states = rollout(plant.system, start, Knots(jnp.asarray(u), STEP, 0.0), dt=STEP, steps=steps, backend="xla").saved
    return Recording(
        f"run {number}", time, np.asarray(states.q) + np.asarray(plant.sensors.shift(number)), None, u, inputs="linear"
    )


@pytest.fixture(scope="module")
def case():
    truth = with_sensors(pendulum_plant(), zeros=ZEROS)
    recordings = [recorded(truth, seed=k + 1, number=k) for k in (0, 1)]
    wrong = with_sensors(pendulum_plant(), zeros=jnp.zeros((2, 1)))
    free = [Parameter("sensors.zeros", prior=GaussianPrior(10.0), name="zero", unit="rad")]
    windows = cut(recordings, duration=0.2, interval=STEP, first=0.1)
    return truth, OutputError(Parameters(wrong, free), windows, free_starts=False), recordings


@pytest.mark.usefixtures("by_xla")
class TestZeros:
    def test_names(self, case):
        _, problem, _ = case
        assert problem.parameters.labels == (("zero [recording 0] 0", "rad"), ("zero [recording 1] 0", "rad"))

    def test_come_back(self, case):
        """Starts are as measured; their velocities, from low-passed measurements, are not exact."""
        truth, problem, _ = case

        @jax.jit
        def step(x):
            normal = problem.normal(Unknowns(x, problem.initial.local))
            return x - jnp.linalg.solve(normal.shared, normal.shared_gradient)

        x = problem.parameters.initial
        for _ in range(5):
            x = step(x)
        np.testing.assert_allclose(problem.parameters.place(x).sensors.zeros, truth.sensors.zeros, atol=5e-3)

    def test_other_recordings_know_none(self, case):
        truth, problem, recordings = case
        more = cut([*recordings, recordings[0]], duration=0.2, interval=STEP)
        message = r"zeros for 2 recordings, but windows of recording 2; use sensors.without_zeros"
        with pytest.raises(MeasurementError, match=message):
            predicted_measurements(truth, more)
        with pytest.raises(MeasurementError, match=message):
            OutputError(problem.parameters, more)


@pytest.mark.usefixtures("by_xla")
class TestZerosOfOtherRecordings:
    """Zeros of recordings that the fit has not seen; the velocities of windows are low-passed, so zeros are not exact."""

    def test_are_estimated_for_each_recording(self, case):
        truth, _, recordings = case
        windows = cut(recordings, duration=0.2, interval=STEP, first=0.1)
        found = estimated_zeros(truth.without_zeros, windows)
        np.testing.assert_allclose(found.sensors.zeros, truth.sensors.zeros, atol=5e-3)
        assert jnp.array_equal(found.system.model.mass, truth.system.model.mass)

    def test_are_zero_where_nothing_moves(self):
        time = STEP * np.arange(61)
        still = Recording("still", time, np.zeros((61, 1)), None, np.zeros((61, 1)))
        found = estimated_zeros(pendulum_plant(), cut([still], duration=0.2, interval=STEP))
        np.testing.assert_allclose(found.sensors.zeros, 0.0, atol=1e-12)

    def test_make_predictions_of_the_rest_better(self, case):
        truth, _, recordings = case
        known, unknown = (
            WindowsCheck(durations=(0.2,), interval=STEP, first=0.1, zeros_from=zeros_from).figures(
                truth.without_zeros, [Part(recording) for recording in recordings]
            )
            for zeros_from in (0.2, 0.0)
        )
        assert list(known) == [f"{name}, zeros from 0.2 s" for name in unknown]
        assert all(10.0 * mine < other for mine, other in zip(known.values(), unknown.values(), strict=True))

    def test_are_estimated_from_the_beginning_alone(self, case):
        """Measurements after the beginning change the errors there, not the zeros: the errors move by the change itself."""
        truth, _, recordings = case
        check = WindowsCheck(durations=(0.1,), interval=STEP, zeros_from=0.3)
        part = Part(recordings[0])
        late = recordings[0].q + np.where(recordings[0].time > 0.345, 0.02, 0.0)[:, None]
        moved = Part(Recording("moved", recordings[0].time, late, None, recordings[0].u, inputs="linear"))
        zeros = [check._with_zeros(truth.without_zeros, [each]).sensors.zeros for each in (part, moved)]
        np.testing.assert_array_equal(*zeros)
        assert check.figures(truth.without_zeros, [part]) != check.figures(truth.without_zeros, [moved])
