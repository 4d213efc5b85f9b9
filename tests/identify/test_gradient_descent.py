"""First-order fits: the gradient of a batch is the adjoint's, and random batches lead to the minimum."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from recorded import pendulum_plant, simulated

from jaxdyn.identify.charts import Positive
from jaxdyn.identify.fitting import fit
from jaxdyn.identify.gradient_descent import GradientDescent, batch_loss
from jaxdyn.identify.least_squares import Unknowns
from jaxdyn.identify.output_error import OutputError
from jaxdyn.identify.parameters import Parameter, Parameters
from jaxdyn.identify.recording import cut
from jaxdyn.identify.solver import FitResult
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

    value, gradient = eqx.filter_jit(jax.value_and_grad(loss))(problem.initial.x)
    normal = eqx.filter_jit(lambda: problem.normal(problem.initial))()
    np.testing.assert_allclose(value, normal.loss, rtol=1e-10)
    np.testing.assert_allclose(gradient, normal.shared_gradient, rtol=1e-8)


def test_random_batches_find_the_truth(problem):
    solver = GradientDescent(optax.adam(optax.exponential_decay(0.1, 40, 0.6)), batch=4, key=jax.random.key(0))
    found = fit(problem, solver, max_steps=400, progress=False, history=True)
    truth = pendulum_plant().system
    mass, viscous = found.value.system.model.mass[0], found.value.system.forces[0].viscous[0]
    losses = found.history
    assert found.result is FitResult.SUCCESSFUL
    assert losses.shape == (400,)
    assert np.mean(losses[-20:]) < 0.05 * np.mean(losses[:20])
    # Both start 30 % off. Mass and the initial velocities make a valley, along which first-order steps are slow.
    assert abs(mass - truth.model.mass[0]) < 0.15 * truth.model.mass[0]
    assert abs(viscous - truth.forces[0].viscous[0]) < 0.15 * truth.forces[0].viscous[0]


def test_a_resumed_fit_draws_the_batches_that_an_uninterrupted_one_draws(problem):
    solver = GradientDescent(optax.adam(0.01), batch=3, key=jax.random.key(1))
    whole = fit(problem, solver, max_steps=4, progress=False)
    half = fit(problem, solver, max_steps=2, progress=False)
    resumed = fit(problem, solver, max_steps=4, progress=False, resume=half.search)
    assert not np.array_equal(half.unknowns.x, whole.unknowns.x)
    for a, b in zip(jax.tree.leaves(resumed.search), jax.tree.leaves(whole.search), strict=True):
        np.testing.assert_array_equal(a, b)


def test_without_a_batch_a_step_follows_the_gradient_of_all_windows(problem):
    found = fit(problem, GradientDescent(optax.sgd(1e-6)), max_steps=1, progress=False)
    normal = eqx.filter_jit(lambda: problem.normal(problem.initial))()
    np.testing.assert_allclose(found.loss, normal.loss, rtol=1e-10)
    step = found.unknowns.x - problem.initial.x
    np.testing.assert_allclose(step, -1e-6 * normal.shared_gradient, rtol=1e-6, atol=1e-12)


def test_what_gradient_descent_cannot_do_is_refused(problem):
    def attempt(batch=1, initial=None, of=problem):
        solver = GradientDescent(optax.sgd(0.1), batch=batch, key=jax.random.key(0))
        return fit(of, solver, initial, max_steps=1, progress=False)

    with pytest.raises(ValueError, match="11 windows cannot be drawn from 10"):
        attempt(batch=11)
    with pytest.raises(ValueError, match="one initial guess"):
        attempt(initial=jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), problem.initial))
    with pytest.raises(ValueError, match="give a key"):
        GradientDescent(optax.sgd(0.1), batch=4)
