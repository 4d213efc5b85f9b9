"""Sensors and inputs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from recorded import STEP, double_pendulum_plant, pendulum_plant, simulated

from jaxdyn.dynamics.sensors import Accelerometer, JointEncoders
from jaxdyn.dynamics.system import State
from jaxdyn.identify.inverse_dynamics_error import InverseDynamicsError, Motions
from jaxdyn.identify.losses import Huber
from jaxdyn.identify.measurement import Inputs, MeasurementError, Plant, Sensors
from jaxdyn.identify.output_error import OutputError
from jaxdyn.identify.parameters import Parameter, Parameters
from jaxdyn.identify.recording import Recording, cut
from jaxdyn.identify.validation import predicted_measurements
from jaxdyn.simulate.controls import Controller, Knots
from jaxdyn.simulate.integrators import RungeKutta4
from jaxdyn.simulate.trajectory import rollout


class TestSensors:
    def test_measurements(self):
        plant = double_pendulum_plant()
        state = State(jnp.array([0.5, -0.7]), jnp.array([0.3, 2.0]))
        sensors = Sensors(
            jnp.full(4, 0.1),
            scale=jnp.array([1.0, 2.0, 3.0, 4.0]),
            offset=jnp.array([0.0, 0.1, 0.2, 0.3]),
            observe=(JointEncoders(), JointEncoders(velocities=True)),
        )
        np.testing.assert_allclose(sensors.read(plant.system, state), [0.5, -1.3, 1.1, 8.3])

    def test_covariance(self):
        rng = np.random.default_rng(0)
        factor = rng.normal(size=(3, 3))
        covariance = factor @ factor.T
        step = np.array([0.5, 0.0, 2.0])
        sensors = Sensors(jnp.asarray(covariance), quantization=jnp.asarray(step))
        error = rng.normal(size=3)
        white = sensors.whitened(jnp.asarray(error))
        total = covariance + np.diag(step**2 / 12)
        np.testing.assert_allclose(white @ white, error @ np.linalg.solve(total, error), rtol=1e-12)

    def test_diagonal_covariance_is_standard_deviations(self):
        std, step, error = (jnp.asarray(x) for x in ([0.1, 2.0], [0.3, 0.0], [1.0, -3.0]))
        expected = error / np.sqrt(np.asarray(std) ** 2 + np.asarray(step) ** 2 / 12)
        for noise in (std, jnp.diag(std**2)):
            np.testing.assert_allclose(Sensors(noise, quantization=step).whitened(error), expected)

    def test_missing_measurements_tell_nothing_about_others(self):
        covariance = jnp.array([[1.0, 0.8, 0.1], [0.8, 2.0, 0.3], [0.1, 0.3, 0.5]])
        known = jnp.array([1.0, 0.0, 1.0])
        sensors = Sensors(covariance)
        white = sensors.whitened(jnp.array([0.3, 1e6, -0.2]), known)
        rest = np.asarray(covariance)[np.ix_([0, 2], [0, 2])]
        error = np.array([0.3, -0.2])
        np.testing.assert_allclose(white @ white, error @ np.linalg.solve(rest, error), rtol=1e-12)
        assert white[1] == 0.0
        slope = jax.grad(lambda e: jnp.sum(sensors.whitened(e, known) ** 2))(jnp.array([0.3, jnp.nan, -0.2]))
        assert slope[1] == 0.0
        assert np.all(np.isfinite(slope))

    def test_rounding_counts_as_noise_of_its_variance(self):
        rng = np.random.default_rng(0)
        sensors = Sensors(jnp.array([1e-3]), quantization=jnp.array([0.02]))
        y = jnp.asarray(rng.uniform(-1.0, 1.0, (20000, 1)))
        read = 0.02 * jnp.round((y + 1e-3 * jnp.asarray(rng.normal(size=y.shape))) / 0.02)
        white = jax.vmap(sensors.whitened)(read - y)
        np.testing.assert_allclose(np.std(white), 1.0, atol=0.02)

    @pytest.mark.parametrize(
        ("noise", "options", "says"),
        [
            ([0.1, 0.0], {}, "positive standard deviations"),
            ([[2.0, 2.0], [2.0, 2.0]], {}, "positive definite"),
            ([[1.0, 0.9], [0.0, 1.0]], {}, "a symmetric, positive definite covariance"),
            ([0.1, 0.1], {"scale": [1.0]}, "scale has shape"),
            ([0.1, 0.1], {"quantization": [0.1, -0.1]}, "quantization"),
        ],
    )
    def test_refused(self, noise, options, says, as_a_user):
        with pytest.raises(MeasurementError, match=says):
            Sensors(noise, **options)


class Counting(Controller):
    """Commands that count the steps."""

    def begin(self, state):
        return jnp.zeros(())

    def decide(self, t, state, memory, key):
        return jnp.full(2, memory), memory + 1.0


class TestControls:
    """Commands of any kind act through the inputs of a plant."""

    def test_a_rollout_with_recorded_inputs_predicts_the_measurements_of_the_fit(self):
        """Gains, offsets and delays of both inputs differ, and the delays are no multiples of the step."""
        plant = double_pendulum_plant()
        recording = simulated(plant, 1.0, 4, irregular=False)
        # The accelerometer depends on the inputs at the time of each sample.
        sensors = Sensors(np.ones(5), offset=[0.03, -0.02, 0, 0, 0], observe=(JointEncoders(), Accelerometer("2")))
        plant = Plant(plant.system, sensors, plant.inputs)
        windows = cut([recording], duration=0.5, interval=STEP, first=0.2, lead=0.03)
        expected = predicted_measurements(plant, windows)
        start = plant.sensors.state_read(jax.tree.map(lambda leaf: leaf[0], windows.starts), 0)
        recorded = Knots(jnp.asarray(recording.u), STEP, -0.2)  # time 0 is the start of the window
        motion = rollout(
            plant.system, start, plant.controls(recorded), dt=STEP, steps=50, integrator=RungeKutta4(), backend="xla",
            save=lambda t, state, u: (state, plant.sensors.read(plant.system, state, u, t)),
        )  # fmt: skip
        states, read = motion.saved
        np.testing.assert_allclose(read[: expected.shape[1]], expected[0], rtol=1e-9, atol=1e-9)
        mechanism = rollout(plant.system, start, recorded, dt=STEP, steps=50, integrator=RungeKutta4(), backend="xla")
        assert np.max(np.abs(mechanism.saved.q - states.q)) > 0.05

    @pytest.mark.parametrize("backend", ["xla", "lanes"])
    def test_arrays_policies_controllers_and_no_commands_have_gain_and_offset(self, backend):
        gain, offset = np.array([1.5, 0.5]), np.array([0.2, -0.1])
        plain = double_pendulum_plant()
        plant = Plant(plain.system, plain.sensors, Inputs(gain, offset, [0.0, 0.0]))
        start = State(jnp.array([0.3, -0.2]), jnp.zeros(2))
        rows = np.random.default_rng(0).normal(size=(5, 2))
        feedback = lambda t, state, key: jnp.sin(t) - 3.0 * state.q  # noqa: E731
        counted = np.arange(5.0)[:, None] * np.ones(2)
        for commands, acting in (
            (rows, gain * rows + offset),
            (feedback, lambda t, state, key: gain * feedback(t, state, key) + offset),
            (Counting(), gain * counted + offset),
            (None, np.tile(offset, (5, 1))),
            (Knots(rows, 0.01), Knots(gain * rows + offset, 0.01)),
        ):
            ends = [
                rollout(plant.system, start, controls, dt=0.01, steps=5, backend=backend).final
                for controls in (plant.controls(commands), acting)
            ]
            np.testing.assert_allclose(ends[0].v, ends[1].v, rtol=1e-12)

    def test_commands_are_checked_as_those_of_any_rollout(self):
        plain = double_pendulum_plant()
        plant = Plant(plain.system, plain.sensors, Inputs([1.5, 0.5], [0.2, 0.0], [0.0, 0.0]))
        start = plant.system.at_rest(jnp.zeros(2))
        for commands, message in (
            (jnp.zeros((5, 3)), r"give shape \(5, 2\)"),
            (lambda t, state, key: jnp.zeros(3), r"shape \(3,\); return"),
            (lambda t, state, key: jax.random.normal(key, (2,)), "give rollout a key"),
        ):
            with pytest.raises(ValueError, match=message):
                rollout(plant.system, start, plant.controls(commands), dt=0.01, steps=5)

    def test_gains_have_derivatives_through_a_policy(self):
        plain = double_pendulum_plant()
        start = State(jnp.array([0.3, -0.2]), jnp.zeros(2))

        def end(gain):
            inputs = Inputs(gain, jnp.zeros(2), np.zeros(2))
            controls = Plant(plain.system, plain.sensors, inputs).controls(lambda t, state, key: -state.q)
            return rollout(plain.system, start, controls, dt=0.01, steps=5).final.v[0]

        slope, step = jax.jit(jax.grad(end))(jnp.ones(2))[0], jnp.array([1e-5, 0.0])
        np.testing.assert_allclose(slope, (end(1.0 + step) - end(1.0 - step)) / 2e-5, rtol=1e-6)

    def test_only_functions_of_time_can_be_delayed(self):
        plant = double_pendulum_plant()
        for commands in (jnp.zeros((5, 2)), lambda t, state, key: -state.q, Counting()):
            with pytest.raises(MeasurementError, match=r"delay is \[0.013, 0.027\], .*give Knots\(values, interval\)"):
                plant.controls(commands)
        with pytest.raises(MeasurementError, match="delay is traced"):
            jax.jit(lambda plant: plant.controls(Counting()).begin(None))(plant)


class TestInputs:
    def test_gain_offset_and_a_delay_for_each(self):
        t = jnp.arange(11) / 10
        recorded = Knots(jnp.stack([t, 10.0 * t], axis=1), 0.1, 0.0)
        inputs = Inputs([2.0, -1.0], [0.5, 0.0], [0.13, 0.27])
        now = jnp.asarray(0.61)
        np.testing.assert_allclose(inputs.acting(recorded)(now), [2.0 * 0.48 + 0.5, -3.4], rtol=1e-12)
        slope = jax.jacfwd(lambda d: Inputs([2.0, -1.0], [0.5, 0.0], d).acting(recorded)(now))(jnp.array([0.13, 0.27]))
        np.testing.assert_allclose(slope, [[-2.0, 0.0], [0.0, 10.0]], atol=1e-12)

    def test_one_start_if_nothing_is_late(self):
        assert Inputs([1.0], [0.0], [0.0]).acting(Knots(jnp.zeros((3, 1)), 0.1)).start.ndim == 0

    def test_as_many_as_controls(self, as_a_user):
        plant = pendulum_plant()
        with pytest.raises(MeasurementError, match="one input per control"):
            Plant(plant.system, plant.sensors, Inputs([1.0, 1.0], [0.0, 0.0], [0.0, 0.0]))


def test_what_makes_no_plant_is_answered_with_the_remedy(as_a_user):
    plant = pendulum_plant()
    attempts = [
        (lambda: Plant(plant.system.model, plant.sensors), TypeError, r"a Model; give System\(model\)"),
        (lambda: Plant(plant, plant.sensors), TypeError, "a Plant; give a System"),
        (lambda: Plant(plant.system, [0.1]), TypeError, r"a list; give Sensors\(noise"),
        (lambda: Plant(plant.system, plant.sensors, [0.1]), TypeError, r"a list; give Inputs\("),
        (lambda: Sensors(0.1), MeasurementError, r"0.1; give one standard deviation per measurement"),
        (lambda: Inputs([1.0], [0.0, 0.0], [0.0]), MeasurementError, "offset has shape"),
    ]
    for attempt, error, remedy in attempts:
        with pytest.raises(error, match=remedy) as caught:
            attempt()
        assert "\n" not in str(caught.value)


def test_what_makes_no_problem_is_answered_with_the_remedy(as_a_user):
    plant = pendulum_plant()
    system = plant.system
    recording = simulated(plant, 0.5, 0)
    windows = cut([recording], duration=0.2, interval=STEP)
    mass, motions = [Parameter("system.model.mass")], Motions([[0.1]], [[0.0]], [[0.0]], [[0.0]])
    parameters = Parameters(plant, mass)
    attempts = [
        (lambda: OutputError(Parameters(system, [Parameter("model.mass")]), windows), r"a System; give Plant\(system"),
        (
            lambda: OutputError(Parameters(system.model, [Parameter("mass")]), windows),
            r"Plant\(System\(model\), sensors",
        ),
        (lambda: OutputError(plant, windows), r"a Plant; give Parameters\(plant"),
        (lambda: OutputError(parameters, [recording]), r"a list; give windows, cut"),
        (lambda: OutputError(parameters, windows, Huber), r"the class Huber; give an instance, Huber\(\)"),
        (lambda: InverseDynamicsError(system, motions, [0.1]), r"a System; give Parameters"),
        (lambda: InverseDynamicsError(parameters, recording, [0.1]), r"a Recording; give Motions"),
        (lambda: cut(recording, duration=0.2, interval=STEP), r"a Recording is not a list; give a list"),
        (
            lambda: cut([recording, windows], duration=0.2, interval=STEP),
            r"one of the recordings is a Windows; give Recording",
        ),
    ]
    for attempt, remedy in attempts:
        with pytest.raises(TypeError, match=remedy) as caught:
            attempt()
        assert "\n" not in str(caught.value)
    for noise in ([0.1, 0.1], [0.0]):
        with pytest.raises(ValueError, match="noise"):
            InverseDynamicsError(parameters, motions, noise)
    with pytest.raises(ValueError, match="start_noise"):
        OutputError(parameters, windows, start_noise=[0.1])


def test_lists_and_numpy_make_the_same_problem():
    """Numbers of users come from files; whole numbers are floating-point values too."""
    lists = Recording("r", [0, 1, 2], [[0], [1], [2]], None, [[0], [0], [0]])
    arrays = Recording("r", np.arange(3.0), np.arange(3.0)[:, None], None, np.zeros((3, 1)))
    for a, b in zip(jax.tree.leaves(lists), jax.tree.leaves(arrays), strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype
    parameters = Parameters(pendulum_plant(), [Parameter("system.model.mass")])
    rows = [[0.1], [0.2]]
    of_lists = InverseDynamicsError(parameters, Motions(rows, rows, rows, rows), [1])
    of_arrays = InverseDynamicsError(parameters, Motions(*[np.array(rows)] * 4), np.ones(1))
    a, b = (eqx.filter_jit(lambda problem: problem.normal(problem.initial).loss)(p) for p in (of_lists, of_arrays))
    assert float(a) == float(b) > 0
