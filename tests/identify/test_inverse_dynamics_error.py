"""Inverse-dynamics error: forces of measured motions give the parameters back."""

import dataclasses

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
from jaxdyn.identify.parameters import GaussianPrior, Parameter, Parameters
from jaxdyn.identify.solver import FitResult


def test_recovery_gradient_and_scores():
    truth = double_pendulum_plant()
    rng = np.random.default_rng(0)
    q, v, a = (jnp.asarray(rng.normal(size=(60, 2))) for _ in range(3))
    zero = jnp.zeros((60, 2))
    needed = jax.jit(jax.vmap(lambda m: needed_forces(truth, m)))(Motions(q, v, a, zero))
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
