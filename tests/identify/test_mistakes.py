"""Mistakes at the doors of identification: each is refused in one line that names the remedy, and what is valid is not refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from recorded import STEP, double_pendulum_plant, pendulum_plant

from jaxdyn import RungeKutta4, State, identify
from jaxdyn.dynamics.sensors import JointEncoders
from jaxdyn.identify.output_error import predict
from jaxdyn.mechanism.quantity import quantity

pytestmark = pytest.mark.usefixtures("as_a_user")

PLANT = pendulum_plant()
SYSTEM = PLANT.system
TWO = double_pendulum_plant().system
PARAMETERS = identify.Parameters(PLANT, [identify.Parameter("system.model.mass")])
TIMES = STEP * np.arange(21.0)
RECORDING = identify.Recording("still", TIMES, np.zeros((21, 1)), None, np.zeros((21, 1)))
WINDOWS = identify.cut([RECORDING], duration=0.1, interval=STEP)
BOTH = (JointEncoders(), JointEncoders(velocities=True))
START = State(jnp.zeros(1), jnp.zeros(1))


def plant(observe, count=2, system=TWO):
    return identify.Plant(system, identify.Sensors(np.full(count, 0.1), observe=observe))


MISTAKES = {
    "a negative cutoff": (lambda: identify.Smoothing(cutoff=-1), "cutoff of Smoothing is -1; .* not negative"),
    "text for an order": (lambda: identify.Smoothing(order="4"), "order of Smoothing is '4'; give a number"),
    "a negative lead": (lambda: identify.Processing(lead=-1.0), "lead of Processing is -1.0; .* not negative"),
    "a negative duration": (lambda: identify.WindowsCheck(durations=(-0.5,)), "durations of WindowsCheck .* positive"),
    "a negative threshold": (lambda: identify.ValidTimeCheck(thresholds=[-0.1]), "thresholds of .* positive"),
    "a negative limit": (lambda: identify.ForcesCheck(limits=np.array([-1.0])), "limits of ForcesCheck .* positive"),
    "one coordinate of two": (
        lambda: plant(lambda system, state: state.q[:1]),
        r"observe '<lambda>' returns shape \(1,\), but the noise has 2 values; give one standard deviation per value",
    ),
    "one number for two": (
        lambda: plant(lambda system, state: state.q[0]),
        r"returns shape \(1,\), but the noise has 2",
    ),
    "three standard deviations for two coordinates": (
        lambda: identify.Plant(TWO, identify.Sensors([0.1] * 3)),
        r"observe 'JointEncoders' returns shape \(2,\), but the noise has 3 values",
    ),
    "a tuple of measurements": (lambda: plant(lambda system, state: (state.q,)), "returns a tuple; give an array"),
    "a sensor of one argument": (
        lambda: plant(lambda x: x),
        "observe of Sensors does not take the arguments system, state; define it with these",
    ),
    "readings that were not recorded": (
        lambda: identify.OutputError(
            identify.Parameters(plant(BOTH, 2, SYSTEM), [identify.Parameter("system.model.mass")]), WINDOWS
        ),
        "the windows have 1 measurements, but the sensors read 2; give the `readings` of all sensors to each Recording",
    ),
    "a number for a sensor": (lambda: plant(3), r"observe of Sensors is not a function; .* \(system, state\)"),
    "the class of an integrator": (
        lambda: identify.OutputError(PARAMETERS, WINDOWS, integrator=RungeKutta4),
        r"the integrator is the class RungeKutta4; give an instance, RungeKutta4\(\)",
    ),
    "text for an integrator": (
        lambda: identify.OutputError(PARAMETERS, WINDOWS, integrator="rk4"),
        r"the integrator is a str; give an Integrator, such as RungeKutta4\(\)",
    ),
    "text for an optimizer": (
        lambda: identify.GradientDescent("adam"),
        r"a str; give one of optax, such as optax.adam",
    ),
    "a function for an optimizer": (lambda: identify.GradientDescent(optax.adam), "a function; give one of optax"),
    "regressors of two axes": (
        lambda: identify.weighted_least_squares([[1.0], [2.0]], [1.0, 2.0]),
        r"Y has shape \(2, 1\); give the shape \(samples, channels, parameters\)",
    ),
    "forces of one axis": (
        lambda: identify.weighted_least_squares(np.ones((3, 1, 1)), np.ones(3)),
        r"tau has shape \(3,\); give \(3, 1\)",
    ),
    "a list of plants": (lambda: identify.evaluate([PLANT], [RECORDING]), "plants is a list; give a Plant, or a dict"),
    "a single recording": (
        lambda: identify.evaluate(PLANT, RECORDING),
        r"recordings: a Recording is not a list; give a list, \[load_recording",
    ),
    "the class of a check": (
        lambda: identify.evaluate(PLANT, [RECORDING], [identify.ForcesCheck]),
        r"one of the checks is the class ForcesCheck; give an instance, ForcesCheck\(\)",
    ),
    "text for the processing": (
        lambda: identify.evaluate(PLANT, [RECORDING], processing="raw"),
        r"processing is a str; give Processing\(",
    ),
    "a system for a plant": (
        lambda: identify.predicted_measurements(SYSTEM, WINDOWS),
        r"the plant of predicted_measurements is a System; give Plant\(system, sensors\)",
    ),
    "a recording for windows": (
        lambda: identify.predicted_measurements(PLANT, [RECORDING]),
        r"the data of predicted_measurements is a list; give windows, cut\(",
    ),
    "a system in place of the plant of one window": (
        lambda: predict(SYSTEM, WINDOWS, START),
        "the plant of predict is a System",
    ),
    "several windows for one": (
        lambda: predict(PLANT, WINDOWS, START),
        "there are 2 windows; use predicted_measurements",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_in_one_line_with_the_remedy(mistake):
    call, message = MISTAKES[mistake]
    with pytest.raises((TypeError, ValueError), match=message) as refusal:
        call()
    assert "\n" not in str(refusal.value)


def test_the_checks_of_users_have_their_declared_bounds():
    class Own(identify.Check):
        size: float = eqx.field(static=True, default=1.0, metadata=quantity("m", positive=True))

        def figures(self, plant, parts):
            return {}

    assert Own(2.0).size == 2.0
    with pytest.raises(ValueError, match=r"size of Own is -1.0; give a finite value that is positive"):
        Own(-1.0)


def test_lists_and_arrays_of_settings_are_the_same_as_tuples():
    for durations in ([0.5, 1], np.array([0.5, 1.0]), (0.5, 1.0)):
        assert identify.WindowsCheck(durations=durations) == identify.WindowsCheck(durations=(0.5, 1.0))
    assert hash(identify.Processing(checks=(identify.WindowsCheck(durations=[0.5]),)))


def test_sensors_of_one_number_and_objects_that_are_called_are_functions():
    class Elbow:
        def __call__(self, system, state):
            return state.q[1:]

    assert plant(Elbow(), 1).sensors.noise.shape == (1,)
    assert plant(lambda system, state: state.q[0], 1).sensors.noise.shape == (1,)
    assert plant(JointEncoders(velocities=True)).sensors.noise.shape == (2,)


def test_a_batch_of_plants_is_built_in_one_piece():
    both = jax.tree.map(lambda x: jnp.stack([x, x]), TWO)
    assert identify.Plant(both, identify.Sensors(jnp.ones(2))).system.model.mass.shape == (2, 2)


def test_checks_and_recordings_may_be_iterators():
    check = identify.WindowsCheck(durations=(0.1,), interval=STEP)
    expected = identify.evaluate(PLANT, [RECORDING], [check], intervals=False)
    found = identify.evaluate(PLANT, iter([RECORDING]), iter([check]), intervals=False)
    assert expected.figures == found.figures
    assert expected.figures["plant"]


def test_lists_fit_like_arrays():
    Y, tau, noise = np.array([[[1.0]], [[2.0]], [[3.0]]]), np.array([[1.0], [2.1], [2.9]]), np.array([0.1])
    prior = identify.Prior([0.9], [0.5])
    of_lists = identify.weighted_least_squares(Y.tolist(), tau.tolist(), [0.1], prior=prior)
    of_arrays = identify.weighted_least_squares(Y, tau, noise, prior=identify.Prior(*map(np.asarray, prior)))
    np.testing.assert_array_equal(of_lists.estimate, of_arrays.estimate)
    repeated = [identify.reweighted_least_squares(a, b).estimate for a, b in ((Y, tau), (Y.tolist(), tau.tolist()))]
    np.testing.assert_array_equal(*repeated)
