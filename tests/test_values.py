"""Calls that differ in values share one compiled program: simulations, inverse kinematics and fits."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from compilations import no_compilation
from recorded import double_pendulum_plant

import jaxdyn
from jaxdyn import identify
from jaxdyn.dynamics import FrameTarget
from jaxdyn.identify.inverse_dynamics_error import needed_forces

SYSTEM = jaxdyn.library.system("acrobot")


def heavier(k: int) -> jaxdyn.System:
    return eqx.tree_at(lambda s: s.model.mass, SYSTEM, SYSTEM.model.mass * (1.0 + 0.01 * k))


def test_values_are_arguments_of_a_rollout():
    """Mass, start (at times at rest in q = 0), controls and length of the steps."""

    def end(k):
        start = jaxdyn.State(jnp.array([0.1 * (k % 10), 0.0]), jnp.array([0.0, 0.1 * (k % 3)]))
        u = np.full((5, 1), 0.01 * k)
        return jaxdyn.rollout(heavier(k), start, u, dt=0.01 + 1e-4 * k, steps=5, t0=0.1 * k).final.q

    end(0)
    with no_compilation():
        found = np.array([end(k) for k in range(100)])
    assert len(np.unique(found, axis=0)) == 100


def test_values_are_arguments_of_inverse_kinematics():
    def solution(k):
        q = jnp.array([0.5 + 0.01 * k, -0.3])
        there = jaxdyn.frame_placement(heavier(k).model, q, "tip")
        target = FrameTarget("tip", there, position=1.0 + k, rotation=0.1 * (k % 2))
        return jaxdyn.inverse_kinematics(SYSTEM.model, q + 0.1 * (k % 3), target).q, q

    solution(0)
    with no_compilation():
        found = [solution(k) for k in range(100)]
    for q, wanted in found:
        np.testing.assert_allclose(q, wanted, atol=1e-5)


def test_values_are_arguments_of_a_fit():
    """Recording, initial guess, prior, noise and fixed values, of which some are zero at times."""
    truth = eqx.tree_at(lambda plant: plant.inputs.delay, double_pendulum_plant(), jnp.zeros(2))
    forces = jax.jit(jax.vmap(needed_forces, in_axes=(None, 0)))

    def fitted(k):
        rng = np.random.default_rng(k)
        q, v, a = (jnp.asarray(rng.normal(size=(30, 2))) for _ in range(3))
        motions = identify.Motions(q, v, a, jnp.zeros((30, 2)))
        gain = truth.inputs.gain * (1.0 + 0.01 * k)
        u = (forces(truth, motions) - truth.inputs.offset[None]) / gain[None]
        guess = eqx.tree_at(
            lambda p: (p.system.model.mass, p.inputs.gain, p.inputs.offset),
            truth,
            (jnp.array([1.5, 0.4 + 0.001 * k]), gain, jnp.array([0.1, 0.0]) * (k % 2)),
        )
        prior = identify.GaussianPrior(1e3 + k, 0.1 * (k % 5))
        free = [
            identify.Parameter("system.model.mass", chart=identify.Positive(), prior=prior),
            identify.Parameter("inputs.offset"),
        ]
        data = identify.Motions(q, v, a, u)
        problem = identify.InverseDynamicsError(identify.Parameters(guess, free), data, jnp.full(2, 0.1 + 0.01 * k))
        return identify.fit(problem, progress=False).value

    fitted(0)
    with no_compilation():
        found = [fitted(k) for k in range(30)]
    for plant in found:
        np.testing.assert_allclose(plant.system.model.mass, truth.system.model.mass, rtol=1e-4)
        np.testing.assert_allclose(plant.inputs.offset, truth.inputs.offset, rtol=1e-3)
