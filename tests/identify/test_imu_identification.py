"""A free-flying machine is identified from its inertial measurement unit and joint encoders, in recordings of MuJoCo."""

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxdyn
from jaxdyn.dynamics import Accelerometer, Gyroscope, JointEncoders, Markers, MotorCurrents
from jaxdyn.identify import OutputError, Parameter, Parameters, Plant, Recording, Sensors, body_inertia, cut, fit
from jaxdyn.identify.covariance import uncertainty
from jaxdyn.io import MujocoOrder, system_from_mujoco

FLYER = """
<mujoco><compiler angle="radian"/><option timestep="0.001" integrator="RK4"/>
<worldbody><body name="hub"><freejoint/>
  <inertial pos="0.01 0 0.02" mass="2" diaginertia="0.02 0.025 0.015"/>
  <site name="imu" pos="0.05 -0.03 0.04" euler="0.3 -0.2 0.5"/>
  <body name="left" pos="0 0.1 0"><joint name="roll" axis="1 0 0" damping="0.02"/>
    <inertial pos="0.02 0.1 -0.15" mass="0.7" fullinertia="0.007 0.006 0.003 0.0005 -0.0004 0.0003"/></body>
  <body name="right" pos="0 -0.1 0.05"><joint name="pitch" axis="0 1 0" damping="0.03"/>
    <inertial pos="0.05 -0.05 0.2" mass="0.5" fullinertia="0.005 0.006 0.002 0.0003 0.0002 -0.0005"/></body></body>
</worldbody>
<actuator><motor joint="roll"/><motor joint="pitch"/></actuator>
<sensor><accelerometer site="imu"/><gyro site="imu"/><jointpos joint="roll"/><jointpos joint="pitch"/></sensor></mujoco>"""
SENSORS = (Accelerometer("imu"), Gyroscope("imu"), JointEncoders(("roll", "pitch")))
NOISE = np.repeat([0.05, 0.005, 0.0005], [3, 3, 2])  # m/s^2, rad/s, rad
BIAS = jnp.array([[0.3, -0.2, 0.4], [0.02, -0.03, 0.01]])  # m/s^2, rad/s
STEP = 0.01


def recorded(theirs, order, seed: int, seconds: float = 1.2) -> Recording:
    """Readings with noise and biases, and the states of an observer, which are off by some 0.1 in each coordinate and velocity."""
    random, data = np.random.default_rng(seed), mujoco.MjData(theirs)
    data.qpos[3:7] = random.normal(size=4)
    mujoco.mj_normalizeQuat(theirs, data.qpos)
    data.qvel[:] = random.normal(size=theirs.nv)
    t = STEP * np.arange(round(seconds / STEP) + 1)
    frequency, phase = random.uniform(0.8, 5.0, (2, 3, 2))
    u = 0.15 * np.sum(np.sin(2 * np.pi * frequency * t[:, None, None] + 6.0 * phase), axis=1)
    rows = []
    for command in u:
        data.ctrl[:] = command
        mujoco.mj_forward(theirs, data)
        rows.append((data.qpos.copy(), data.qvel.copy(), data.sensordata.copy()))
        for _ in range(round(STEP / theirs.opt.timestep)):
            mujoco.mj_step(theirs, data)
    qpos, qvel, read = map(np.array, zip(*rows, strict=True))
    q = jax.vmap(order.q_from)(jnp.array(qpos))
    v = jax.vmap(order.v_from)(jnp.array(qpos), jnp.array(qvel))
    off = jnp.array(0.1 * random.normal(size=theirs.nv))
    q = jax.vmap(lambda q: jaxdyn.configuration.integrate(order.model, q, off))(q)
    v = np.asarray(v) + 0.1 * random.normal(size=theirs.nv)
    read = read + np.append(BIAS, np.zeros(2)) + NOISE * random.normal(size=read.shape)
    return Recording(f"flight {seed}", t, q, v, u, readings=read)


FREE = [
    body_inertia("left"),
    body_inertia("right"),
    Parameter("system.forces.0.viscous", ["roll", "pitch"]),
    Parameter("sensors.observe.0.bias", name="accelerometer bias"),
    Parameter("sensors.observe.1.bias", name="gyroscope bias"),
]


def test_parameters_of_sensors_have_names_and_units():
    theirs = mujoco.MjModel.from_xml_string(FLYER)
    own = (*SENSORS, Markers(["left", "imu"]), MotorCurrents([0.1, 0.2], ["roll", "pitch"]))
    plant = Plant(system_from_mujoco(theirs), Sensors(np.ones(16), observe=own))
    places = ("0.bias", "1.matrix", "3.points", "4.torque_constant")
    free = [Parameter(f"sensors.observe.{place}") for place in places] + [Parameter("sensors.offset")]
    assert Parameters(plant, free).labels == (
        *((f"bias [{axis}]", "m/s^2") for axis in "xyz"),
        *((f"matrix [{row}] {axis}", "1") for row in "xyz" for axis in "xyz"),
        *((f"points [{body}] {axis}", "m") for body in ("left", "imu") for axis in "xyz"),
        *((f"torque_constant [{joint}]", "N m/A") for joint in ("roll", "pitch")),
        *(
            (f"offset [{k}]", u)
            for k, u in enumerate(["m/s^2"] * 3 + ["rad/s"] * 3 + ["rad"] * 2 + ["m"] * 6 + ["A"] * 2)
        ),
    )
    assert plant.sensors.measured == "Accelerometer, Gyroscope, JointEncoders, Markers, MotorCurrents"


@pytest.mark.thorough
def test_inertial_parameters_friction_and_biases_are_inside_their_intervals():
    theirs = mujoco.MjModel.from_xml_string(FLYER)
    truth = system_from_mujoco(theirs)
    order = MujocoOrder(truth.model, theirs)
    place = lambda system: (system.model.mass, system.model.inertia, system.forces[0].viscous)  # noqa: E731
    factors = jnp.array([1.0, 1.2, 0.8])
    mass, inertia, viscous = place(truth)
    wrong = eqx.tree_at(place, truth, (mass * factors, inertia * factors[:, None], 1.5 * viscous))
    plant = Plant(wrong, Sensors(NOISE, observe=SENSORS))
    parameters = Parameters(plant, FREE)
    windows = cut([recorded(theirs, order, seed) for seed in range(4)], duration=0.2, interval=STEP)
    # The readings do not depend on the position and the orientation in free fall: there, only the guesses count.
    problem = OutputError(parameters, windows, start_noise=np.full(2 * theirs.nv, 0.2))
    found = fit(problem, progress=False)
    estimates = uncertainty(problem, found.unknowns, kind="noise")
    place = lambda plant: (plant.system, *(sensor.bias for sensor in plant.sensors.observe[:2]))  # noqa: E731
    expected = parameters.values(parameters.unconstrained(eqx.tree_at(place, plant, (truth, *BIAS))))
    lower, upper = np.asarray(estimates.intervals).T
    errors = np.asarray((estimates.values - expected) / estimates.std)
    # With the right probability, 95 of 100 values are inside; of these 28, three may be outside, but not far.
    assert np.sum((lower < expected) & (expected < upper)) >= 25
    assert np.max(np.abs(errors)) < 3.0
    assert abs(estimates.noise_scale - 1.0) < 0.05
    # The recordings tell far more than the guesses.
    guess = dict(
        zip(
            estimates.labels,
            np.asarray((parameters.values(parameters.initial) - expected) / estimates.std),
            strict=True,
        )
    )
    assert all(abs(guess[f"viscous [{joint}]", "N m s/rad"]) > 50.0 for joint in ("roll", "pitch"))
    assert all(abs(guess[f"accelerometer bias [{axis}]", "m/s^2"]) > 50.0 for axis in "xyz")
    assert abs(guess["mass [left]", "kg"]) > 5.0
