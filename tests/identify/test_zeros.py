"""Sensors with a zero of their own in each recording: readings, starts, and what a fit makes of them."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from recorded import STEP, pendulum_plant, simulated

import jaxdyn
from jaxdyn.identify.charts import Positive
from jaxdyn.identify.levenberg_marquardt import FitResult, fit
from jaxdyn.identify.measurement import Plant, Sensors, joint_positions_and_velocities, joint_velocities
from jaxdyn.identify.output_error import OutputError
from jaxdyn.identify.parameters import GaussianPrior, Parameter, Parameters
from jaxdyn.identify.recording import cut
from jaxdyn.identify.validation import predicted_readings
from jaxdyn.mechanism.checks import MechanismError

ZEROS = jnp.array([[0.07], [-0.12]])


def with_sensors(plant: Plant, **changes) -> Plant:
    return Plant(plant.system, Sensors(plant.sensors.noise, **changes), plant.inputs)


class TestSensors:
    def test_each_recording_has_its_zero(self):
        plant = with_sensors(pendulum_plant(), scale=[2.0], offset=[0.3], zeros=ZEROS)
        state = jaxdyn.State(jnp.array([0.5]), jnp.array([0.1]))
        readings = [plant.sensors.read(plant.system, state, k)[0] for k in (0, 1)]
        np.testing.assert_allclose(readings, [1.37, 1.18], atol=1e-15)
        np.testing.assert_allclose(plant.sensors.without_zeros.read(plant.system, state), [1.3], atol=1e-15)

    def test_state_behind_readings(self):
        sensors = Sensors([0.1, 0.1], scale=[2.0, 3.0], offset=[0.1, 0.0], zeros=[[0.0, 0.0], [0.2, -0.3]])
        q, v = jnp.array([0.5, -0.4]), jnp.array([1.0, 2.0])
        read = jaxdyn.State(sensors.scale * q + sensors.shift(1), sensors.scale * v)
        for observe in (None, joint_positions_and_velocities):
            both = Sensors([0.1] * 4, scale=[2, 3, 1, 1], offset=[0.1, 0, 0, 0], zeros=[[0] * 4, [0.2, -0.3, 9, 9]])
            chosen = sensors if observe is None else eqx.tree_at(lambda s: s.noise, both, both.noise)
            chosen = chosen if observe is None else Sensors(
                both.noise, scale=both.scale, offset=both.offset, zeros=both.zeros, observe=observe
            )  # fmt: skip
            found = chosen.state_read(read, 1)
            np.testing.assert_allclose(found.q, q, atol=1e-15)
            np.testing.assert_allclose(found.v, v, atol=1e-15)
        blind = Sensors([0.1, 0.1], offset=[0.1, 0.0], observe=joint_velocities)
        assert blind.state_read(read, 0) is read

    def test_refused(self):
        with pytest.raises(MechanismError, match=r"zeros has shape \(2, 1\); give a row of 2 for each recording"):
            Sensors([0.1, 0.1], zeros=ZEROS)


@pytest.fixture(scope="module")
def case():
    truth = with_sensors(pendulum_plant(), zeros=ZEROS)
    recordings = []
    for k, seed in enumerate((1, 2)):
        shifted = with_sensors(pendulum_plant(), offset=ZEROS[k])
        recordings.append(simulated(shifted, 1.2, seed, name=f"run {k}"))
    wrong = eqx.tree_at(lambda p: p.system.model.mass, with_sensors(pendulum_plant(), zeros=jnp.zeros((2, 1))), jnp.ones(1))
    free = [
        Parameter("system.model.mass", chart=Positive()),
        Parameter("sensors.zeros", prior=GaussianPrior(10.0), name="zero", unit="rad"),
    ]
    windows = cut(recordings, duration=0.3, interval=STEP, first=0.1)
    return truth, OutputError(Parameters(wrong, free), windows, free_starts=False, backend="xla"), recordings


class TestZeros:
    def test_names(self, case):
        _, problem, _ = case
        assert [name for name, _ in problem.parameters.labels][1:] == ["zero [recording 0] 0", "zero [recording 1] 0"]

    def test_come_back(self, case):
        """Starts are as measured; low-passed velocities are not exact, so nor is the mass."""
        truth, problem, _ = case
        end = fit(problem, progress=False, max_iterations=20)
        assert int(end.result) == FitResult.CONVERGED
        found = problem.parameters.place(end.unknowns.x)
        np.testing.assert_allclose(found.sensors.zeros, ZEROS, atol=5e-3)
        np.testing.assert_allclose(found.system.model.mass, truth.system.model.mass, rtol=0.05)

    def test_other_recordings_know_none(self, case):
        truth, problem, recordings = case
        more = cut([*recordings, recordings[0]], duration=0.3, interval=STEP)
        message = r"zeros for 2 recordings, and windows of recording 2; use sensors.without_zeros"
        with pytest.raises(MechanismError, match=message):
            predicted_readings(truth, more)
        with pytest.raises(MechanismError, match=message):
            OutputError(problem.parameters, more)
