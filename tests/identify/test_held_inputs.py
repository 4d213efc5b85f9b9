"""Fits to recordings with held commands: the 95 % intervals hold the truth, and a delay of the commands is found."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import identify
from jaxdyn.dynamics.forces.friction import JointFriction
from jaxdyn.identify.charts import Positive, Real
from jaxdyn.identify.parameters import Parameter

SAMPLE = 0.01  # s, of the commands and of the encoders
FINE = 10  # steps of the true motion in a sample
NOISE = 1e-3
MASS = Parameter("system.model.mass", chart=Positive())
VISCOUS = Parameter("system.forces.0.viscous", chart=Positive())
DELAY = Parameter("inputs.delay", chart=Real())


def cart() -> jaxdyn.System:
    builder = jaxdyn.MechanismBuilder("cart")
    builder.add_body("cart", joint=jaxdyn.Prismatic((1, 0, 0)), mass=2.0, inertia=(0.01, 0.01, 0.01))
    return jaxdyn.System(builder.build(), (JointFriction([1.0], [0.0], [0.1]),))


def cart_with_pole() -> jaxdyn.System:
    builder = jaxdyn.MechanismBuilder("cart with pole")
    builder.add_body("cart", joint=jaxdyn.Prismatic((1, 0, 0)), mass=1.5, inertia=(0.01, 0.01, 0.01))
    pole = {"mass": 0.4, "com": (0, 0, -0.35), "inertia": (0.01, 0.01, 0.001)}
    builder.add_body("pole", parent="cart", joint=jaxdyn.Revolute((0, -1, 0)), **pole)
    drives = jaxdyn.JointDrives((0,), jnp.ones(1))
    return jaxdyn.System(builder.build(), (JointFriction([0.8, 0.01], [0.0, 0.0], [0.1, 0.1]),), drives=drives)


def arm() -> jaxdyn.System:
    builder, link = jaxdyn.MechanismBuilder("arm"), {"com": (0, 0, -0.15), "inertia": (0.02, 0.02, 0.002)}
    builder.add_body("upper", joint=jaxdyn.Revolute((0, 1, 0)), mass=1.2, **link)
    builder.add_body("lower", parent="upper", joint=jaxdyn.Revolute((0, 1, 0)), position=(0, 0, -0.3), mass=0.7, **link)
    return jaxdyn.System(builder.build(), (JointFriction([0.3, 0.15], [0.0, 0.0], [0.1, 0.1]),))


@functools.cache
def commanded(machine, delay: float = 0.0) -> list[identify.Recording]:
    """Two recordings without noise. The commands act until the next one comes, and the steps of the motion end at all jumps."""
    system, found = machine(), []
    t = SAMPLE * np.arange(1001)
    options = {"dt": SAMPLE / FINE, "steps": 1000 * FINE, "integrator": jaxdyn.RungeKutta4()}
    run = jax.jit(lambda start, knots: jaxdyn.rollout(system, start, knots, **options).saved.q)
    for seed in (0, 1):
        phase = np.random.default_rng(seed).uniform(0.0, 2.0 * np.pi, (4, system.nu))
        u = np.sum(2.0 * np.sin(2 * np.pi * np.array([0.4, 0.9, 1.6, 2.7])[:, None] * t[:, None, None] + phase), axis=1)
        start = system.at_rest(0.2 * jnp.arange(float(system.model.nq)))
        q = run(start, jaxdyn.Knots(u, SAMPLE, delay, "zero_order"))
        found.append(identify.Recording(f"run {seed}", t, np.asarray(q)[::FINE], None, u))
    return found


def fitted(
    machine, seed: int, *free: Parameter, delay: float = 0.0, interval: float = SAMPLE, duration: float = 0.5, **changes
):
    """Estimates with their intervals, from noisy recordings and a distant guess; and the true values."""
    rng, system = np.random.default_rng(100 + seed), machine()
    noisy = [
        identify.Recording(r.name, r.time, r.q + NOISE * rng.normal(size=r.q.shape), None, r.u, **changes)
        for r in commanded(machine, delay)
    ]
    inputs = identify.Inputs(np.ones(system.nu), np.zeros(system.nu), np.full(system.nu, delay))
    truth = identify.Plant(system, identify.Sensors(np.full(system.model.nq, NOISE)), inputs)
    true = identify.Parameters(truth, free)
    away = 0.3 * rng.normal(size=true.size) * np.array([name.startswith("mass") for name, _ in true.labels])
    guess = true.place(true.initial + jnp.asarray(away))
    if DELAY in free:
        guess = identify.Plant(guess.system, guess.sensors)
    windows = identify.cut(noisy, duration=duration, interval=interval, lead=0.05)
    problem = identify.OutputError(identify.Parameters(guess, free), windows)
    found = identify.fit(problem, progress=False)
    return identify.uncertainty(problem, found.unknowns), np.asarray(true.values(true.initial))


def contained(known, true) -> np.ndarray:
    lower, upper = np.asarray(known.intervals).T
    return (lower <= true) & (true <= upper)


def test_held_commands_give_the_right_friction_and_linear_ones_a_wrong_one():
    known, true = fitted(cart, 0, MASS, VISCOUS)
    assert np.all(contained(known, true))
    known, true = fitted(cart, 0, MASS, VISCOUS, inputs="linear")
    assert not contained(known, true)[1]


def test_a_delay_between_samples_is_found_from_none():
    known, true = fitted(cart, 0, MASS, VISCOUS, DELAY, delay=0.023)
    np.testing.assert_allclose(
        known.values[2], 0.023, atol=5e-4
    )  # a twentieth of a sample, and about the standard deviation
    assert np.all(contained(known, true))


@pytest.mark.thorough
def test_the_intervals_of_three_machines_hold_the_truth():
    """95 % intervals, over 12 seeds of the noise."""
    inside = [
        contained(*fitted(machine, seed, *free, delay=delay))
        for machine, free, delay in (
            (cart, (MASS, VISCOUS), 0.0),
            (cart_with_pole, (MASS, VISCOUS), 0.0),
            (arm, (MASS, VISCOUS, DELAY), 0.023),
        )
        for seed in range(12)
    ]
    assert np.mean(np.concatenate(inside)) >= 0.93
