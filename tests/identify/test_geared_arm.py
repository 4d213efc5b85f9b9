"""Geared motors with torque-speed curves and delays are identified from commands, motor currents and encoders."""

import mujoco
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from jaxdyn.dynamics import Actuator, Actuators, JointEncoders, MotorCurrents
from jaxdyn.identify import OutputError, Parameter, Parameters, Plant, Positive, Recording, Sensors, cut, fit
from jaxdyn.identify.covariance import uncertainty
from jaxdyn.io import system_from_mujoco

ARM = mujoco.MjModel.from_xml_string("""
<mujoco><worldbody><body name="upper"><joint name="shoulder" axis="0 1 0" armature="0.3" damping="0.8"/>
  <inertial pos="0 0 -0.2" mass="2" diaginertia="0.03 0.03 0.01"/>
  <body name="lower" pos="0 0 -0.4"><joint name="elbow" axis="0 1 0" armature="0.1" damping="0.3"/>
    <inertial pos="0 0 -0.17" mass="1.2" diaginertia="0.015 0.015 0.01"/></body></body></worldbody></mujoco>""")
STEP, NOISE = 0.005, np.array([2e-4, 2e-4, 0.02, 0.02])  # s; rad and A
GEARS, CONSTANT = np.array([80.0, 50.0]), 0.06  # N m/A of the rotors
CURVES = {"stall_force": np.array([0.45, 0.2]), "no_load_speed": np.array([180.0, 260.0])}  # N m, rad/s
DELAY = np.array([0.023, 0.031])  # s
DRIVES = {"stall_force": 1.3, "no_load_speed": 0.8, "delay": 0.5, "gain": 1.1}
FACTORS = {f"system.drives.{name}": factor for name, factor in DRIVES.items()}  # guesses over values
FACTORS |= {"sensors.observe.1.torque_constant": 0.9, "system.forces.0.viscous": 1.5}
FACTORS |= {"system.model.mass": 1.2, "system.model.armature": 0.8}
FREE = [Parameter(path, chart=Positive()) for path in FACTORS]  # logarithms of values


def recorded(seed: int, seconds: float = 2.5) -> Recording:
    """SciPy integrates accelerations of MuJoCo under forces with exact delays of the commands, A."""
    random, times, data = np.random.default_rng(seed), np.arange(0.0, seconds, STEP), mujoco.MjData(ARM)
    frequency, phase, size = random.uniform([[[2.0]], [[0.0]], [[0.5]]], [[[19.0]], [[6.3]], [[1.0]]], (3, 5, 2))
    commands = np.sum([3.0, 1.2] * size * np.sin(frequency * times[:, None, None] + phase), axis=1)

    def currents(t, v):
        late = [np.interp(t - delay, times, u) for delay, u in zip(DELAY, commands.T, strict=True)]
        stall, speed = CURVES["stall_force"] / CONSTANT, GEARS * v / CURVES["no_load_speed"]
        return np.clip(late, -stall * (1.0 + speed), stall * (1.0 - speed))

    def rate(t, x):
        data.qpos[:], data.qvel[:], data.qfrc_applied[:] = x[:2], x[2:], GEARS * CONSTANT * currents(t, x[2:])
        mujoco.mj_forward(ARM, data)
        return np.append(x[2:], data.qacc)

    start = np.append(random.normal(size=2), np.zeros(2))
    q, v = np.split(solve_ivp(rate, times[[0, -1]], start, t_eval=times, max_step=STEP, rtol=1e-8).y.T, 2, axis=1)
    readings = np.hstack([q, [currents(*now) for now in zip(times, v, strict=True)]])
    readings += NOISE * random.normal(size=readings.shape)
    return Recording(f"motion {seed}", times, readings[:, :2], None, commands, readings=readings, inputs="linear")


@pytest.mark.thorough
def test_curves_delays_constants_and_the_mechanism_are_inside_their_intervals():
    system, motors = system_from_mujoco(ARM), []
    for k, joint in enumerate(("shoulder", "elbow")):
        curve = {key: values[k] for key, values in CURVES.items()}
        motors.append(Actuator(joint, {joint: (GEARS[k],)}, gain=CONSTANT, delay=DELAY[k], **curve))
    system = system.changed(drives=Actuators.of(system.model, motors))
    sensors = Sensors(NOISE, observe=(JointEncoders(), MotorCurrents(GEARS * CONSTANT)))
    truth = Plant(system, sensors)
    parameters = Parameters(truth, FREE)
    off = np.log(np.repeat(list(FACTORS.values()), 2))
    parameters = Parameters(parameters.place(parameters.initial + off), FREE)
    expected = parameters.values(parameters.unconstrained(truth))
    windows = cut([recorded(seed) for seed in range(2)], duration=0.25, interval=STEP, lead=0.1, first=0.1)
    problem = OutputError(parameters, windows)
    known = uncertainty(problem, fit(problem, progress=False).unknowns, kind="noise")
    errors = np.abs(np.asarray((known.values - expected) / known.std))
    assert np.sum(errors > 1.96) <= 2  # of 16 intervals of 95 %
    assert np.max(errors) < 3.0
    assert abs(known.noise_scale - 1.0) < 0.05
    assert np.all(np.asarray(known.std)[:6] < 0.006 * expected[:6])  # the guesses are off by 20 to 50 %
