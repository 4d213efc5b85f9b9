"""Inverse-dynamics error: forces of measured motions give the parameters back."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from recorded import double_pendulum_plant, normal_of

from jaxdyn.constraints.kinds import Distance
from jaxdyn.identify.charts import Positive
from jaxdyn.identify.fitting import fit
from jaxdyn.identify.inverse_dynamics_error import InverseDynamicsError, Motions, needed_forces
from jaxdyn.identify.losses import Cauchy
from jaxdyn.identify.measurement import MeasurementError
from jaxdyn.identify.parameters import GaussianPrior, Parameter, Parameters
from jaxdyn.identify.processing import Processing, Smoothing
from jaxdyn.identify.recording import Part, Recording
from jaxdyn.identify.solver import FitResult
from jaxdyn.identify.validation import smoothed_motions


@jax.jit
@functools.partial(jax.vmap, in_axes=(None, 0))
def forces_of(plant, motion):
    return needed_forces(plant, motion)


def test_recovery_gradient_and_scores():
    truth = eqx.tree_at(lambda p: p.inputs.delay, double_pendulum_plant(), jnp.zeros(2))
    rng = np.random.default_rng(0)
    q, v, a = (jnp.asarray(rng.normal(size=(60, 2))) for _ in range(3))
    zero = jnp.zeros((60, 2))
    needed = forces_of(truth, Motions(q, v, a, zero))
    motions = Motions(q, v, a, (needed - truth.inputs.offset[None]) / truth.inputs.gain[None])
    wrong = eqx.tree_at(lambda p: (p.system.model.mass, p.inputs.offset), truth, (jnp.array([1.5, 0.4]), jnp.zeros(2)))
    free = [
        Parameter("system.model.mass", chart=Positive(), prior=GaussianPrior(1e6)),
        Parameter("inputs.offset"),
        Parameter("inputs.gain"),
    ]
    problem = InverseDynamicsError(Parameters(wrong, free), motions, jnp.array([0.1, 0.2]), Cauchy(), block=25)
    normal = normal_of(problem, problem.initial)

    def loss(x):
        return problem.normal(problem.moved(problem.initial, x, jnp.zeros((0, 0)))).loss

    slope = jax.jit(jax.grad(loss))(jnp.zeros(6))
    np.testing.assert_allclose(normal.shared_gradient, slope, rtol=1e-9, atol=1e-9)
    scores = eqx.filter_jit(lambda: problem.scores(problem.initial, problem.parts(problem.initial)))()
    assert scores.shape == (3, 6)
    np.testing.assert_allclose(jnp.sum(scores, axis=0), slope, rtol=1e-6, atol=1e-6)
    assert problem.count == 120
    end = fit(problem, progress=False)
    assert int(end.result) == FitResult.SUCCESSFUL
    expected = problem.parameters.values(problem.parameters.unconstrained(truth))
    np.testing.assert_allclose(problem.parameters.values(end.unknowns.x), expected, atol=1e-8)


def test_loops_are_refused():
    """The motion of a closed loop does not tell which drive does what."""
    plant = double_pendulum_plant()
    rod = Distance("rod", 1, [0.0, 0.0, -0.5], -1, [0.3, 0.0, -1.0], 0.5)
    closed = eqx.tree_at(lambda p: p.system, plant, dataclasses.replace(plant.system, constraints=(rod,)))
    motions = Motions(*(jnp.zeros((3, 2)) for _ in range(4)))
    with pytest.raises(ValueError, match=r"'double pendulum' has closed loops .* OutputError"):
        InverseDynamicsError(Parameters(closed, [Parameter("system.model.mass")]), motions, jnp.ones(2))


def test_delays_are_estimated_and_need_inputs_around_the_samples():
    """A smooth motion, whose torques are recorded earlier or later than they act."""
    delays, t = np.array([0.012, -0.017]), 0.005 * np.arange(1200)
    phases = (2.0 * t[:, None] + np.array([0.0, 1.0]), 5.3 * t[:, None] + np.array([2.0, 0.5]))
    q = sum(np.sin(x) for x in phases)
    plant = double_pendulum_plant()

    def needed(late):
        """Torques at times that are later by `late`, which act in the motion."""
        x, y = (phase + rate * late for phase, rate in zip(phases, (2.0, 5.3), strict=True))
        q, v, a = np.sin(x) + np.sin(y), 2.0 * np.cos(x) + 5.3 * np.cos(y), -4.0 * np.sin(x) - 5.3**2 * np.sin(y)
        tau = forces_of(plant, Motions(q, v, a, np.zeros_like(q)))
        return (np.asarray(tau) - np.asarray(plant.inputs.offset)) / np.asarray(plant.inputs.gain)

    u = np.stack([needed(late)[:, k] for k, late in enumerate(delays)], axis=1)
    recording = Recording("late", t, q, None, u, inputs="linear")
    free = [Parameter("inputs.delay"), Parameter("system.forces.0.viscous"), Parameter("system.model.mass")]
    start = eqx.tree_at(lambda p: (p.inputs.delay, p.system.model.mass), plant, (jnp.zeros(2), jnp.ones(2)))
    smoothing = Smoothing(interval=0.005, cutoff=0.0, drop=20, decimate=5)
    at_once, around = (
        smoothed_motions([Part(recording, processing=Processing(smoothing, lead))]) for lead in (0.0, 0.03)
    )
    for known in (plant, start):
        with pytest.raises(MeasurementError, match="0 s of inputs before and after them; give a larger lead"):
            InverseDynamicsError(Parameters(known, free), at_once, jnp.ones(2))
    found = fit(InverseDynamicsError(Parameters(start, free), around, jnp.ones(2)), progress=False).value
    np.testing.assert_allclose(found.inputs.delay, delays, atol=1e-4)  # errors of differences of second order: 1e-4
    np.testing.assert_allclose(found.system.model.mass, plant.system.model.mass, rtol=1e-3)
    np.testing.assert_allclose(found.system.forces[0].viscous, plant.system.forces[0].viscous, atol=3e-3)


def test_inputs_around_samples_of_several_grids():
    """A ramp of time and a sine; grids and leads differ, and inputs are spaced as widely as their filter allows."""
    t = 0.001 * np.arange(3000)
    u = np.stack([t, np.sin(2 * np.pi * t)], axis=1)
    recording = Recording("run", t, u, None, u, inputs="linear")
    parts = [
        Part(recording, processing=Processing(Smoothing(0.001, 10.0, drop=300, decimate=50), 0.03)),
        Part(recording, processing=Processing(Smoothing(0.004, 0.0, drop=75, decimate=20), 0.05)),
    ]
    motions = smoothed_motions(parts)
    assert motions.around.values.shape[1] == 2 * 15 + 1  # 0.03 s in steps of 0.002 s
    for late in (-0.03, -0.013, 0.0, 0.03):
        times = motions.u[:, 0] + late
        found = jax.vmap(lambda knots, late: knots(late), (0, None))(motions.around, jnp.asarray(late))
        np.testing.assert_allclose(found, np.stack([times, np.sin(2 * np.pi * times)], axis=1), atol=2e-4)
    assert smoothed_motions(parts, delays=False).around is None
