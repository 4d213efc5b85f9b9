"""First-order fits: the gradient of a batch is the adjoint's, and random batches lead to the minimum."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from recorded import pendulum_plant, simulated

from jaxdyn.identify.charts import Positive
from jaxdyn.identify.gradient_descent import batch_loss, descend
from jaxdyn.identify.least_squares import Unknowns
from jaxdyn.identify.output_error import OutputError
from jaxdyn.identify.parameters import Parameter, Parameters
from jaxdyn.identify.recording import cut
from jaxdyn.simulate.integrators import SemiImplicitEuler


@pytest.fixture(scope="module")
def problem():
    """A pendulum whose mass and friction are 30 % off."""
    truth = pendulum_plant()
    windows = cut([simulated(truth, 3.0, seed=1)], duration=0.3, interval=0.01)
    start = eqx.tree_at(
        lambda p: (p.system.model.mass, p.system.forces[0].viscous),
        truth,
        (1.3 * truth.system.model.mass, 0.7 * truth.system.forces[0].viscous),
    )
    free = [Parameter(path, chart=Positive()) for path in ("system.model.mass", "system.forces.0.viscous")]
    return OutputError(
        Parameters(start, free), windows, start_noise=jnp.array([0.01, 0.1]), integrator=SemiImplicitEuler()
    )


def test_gradient_of_all_windows_is_that_of_the_normal_equations(problem):
    every = np.arange(problem.windows.count)

    def loss(x):
        return batch_loss(problem, Unknowns(x, problem.windows.starts), every)

    value, gradient = eqx.filter_jit(jax.value_and_grad(loss))(problem.start.x)
    normal = eqx.filter_jit(lambda: problem.normal(problem.start))()
    np.testing.assert_allclose(value, normal.loss, rtol=1e-10)
    np.testing.assert_allclose(gradient, normal.shared_gradient, rtol=1e-8)


def test_random_batches_find_the_truth(problem):
    unknowns, losses = descend(
        problem,
        optax.adam(optax.exponential_decay(0.1, 40, 0.6)),
        steps=400,
        batch=4,
        key=jax.random.key(0),
        progress=False,
    )
    truth = pendulum_plant().system
    mass, viscous = problem.parameters.values(unknowns.x)
    assert losses.shape == (400,)
    assert np.mean(losses[-20:]) < 0.05 * np.mean(losses[:20])
    # Both start 30 % off. Mass and the initial velocities make a valley, along which first-order steps are slow.
    assert abs(mass - truth.model.mass[0]) < 0.15 * truth.model.mass[0]
    assert abs(viscous - truth.forces[0].viscous[0]) < 0.15 * truth.forces[0].viscous[0]


def test_more_windows_than_there_are_is_refused(problem):
    with pytest.raises(ValueError, match="a batch of 11 windows cannot be drawn from 10"):
        descend(problem, optax.sgd(0.1), steps=1, batch=11, key=jax.random.key(0))
