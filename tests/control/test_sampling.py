"""Sampling: how near the rules come to Riccati's optimum, draws that depend on nothing but the seed, and bad input."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from control_problems import acrobot, cost_to_go_of_regulator, regulator, solved, start_of

from jaxdyn.control import ControlResult, Sampling, rollout_controls, solve
from jaxdyn.control.plan import gaps, outcome
from jaxdyn.control.sampling import _between


@pytest.mark.parametrize(
    ("update", "options", "above"),
    [("cem", {"elites": 24}, 0.06), ("mppi", {"temperature": 0.05}, 0.06), ("predictive", {}, 0.1)],
)
def test_linear_problem(update, options, above):
    """Samples do not converge as Riccati does; they come as near as stated, and never below the optimum."""
    problem = regulator(lower=-4.0, upper=4.0)
    spread = None if update == "cem" else 0.15
    found = solved(
        problem,
        Sampling(update, samples=256, standard_deviation=spread, tolerance=1e-3, **options),
        start_of(problem),
        max_steps=300,
    )
    P, _ = cost_to_go_of_regulator()
    best = 0.5 * problem.initial @ P @ problem.initial
    assert 1.0 <= float(found.cost / best) < 1.0 + above
    assert int(found.result) == ControlResult.SUCCESSFUL
    np.testing.assert_allclose(gaps(problem, found.value), 0.0, atol=1e-14)
    np.testing.assert_allclose(outcome(problem, found.value).cost, found.cost, rtol=1e-12)


def test_the_first_sample_is_the_mean_itself():
    """So a single sample stays where it is, and no iteration makes the best plan worse."""
    problem = regulator()
    start = rollout_controls(problem, jnp.sin(jnp.arange(30.0))[:, None])
    found = solved(problem, Sampling("predictive", samples=1, standard_deviation=0.5), start, max_steps=3)
    np.testing.assert_array_equal(found.value.controls, start.controls)


@pytest.mark.parametrize(("knots", "steps"), [(1, 4), (2, 5), (4, 10), (5, 5), (7, 4)])
def test_controls_are_linear_between_knots(knots, steps):
    """The first and the last knot are the first and the last control."""
    values = np.random.default_rng(knots).normal(size=(knots, 2))
    places = np.linspace(0.0, knots - 1.0, steps)
    expected = np.stack([np.interp(places, np.arange(knots), column) for column in values.T], axis=1)
    np.testing.assert_allclose(_between(jnp.asarray(values), steps), expected, rtol=1e-13, atol=1e-15)


def test_swing_up_without_gradients():
    """This seed comes to 161, others to 500 at most. The optimum is 40.42, doing nothing costs 4959. Equal seeds, equal plans."""
    problem = eqx.tree_at(lambda p: (p.lower, p.upper), acrobot(), (jnp.full(1, -20.0), jnp.full(1, 20.0)))
    solver = Sampling("cem", samples=256, knots=12, patience=30, seed=3)
    still = rollout_controls(problem, jnp.zeros((50, 1)))
    found = solved(problem, solver, still, max_steps=60)
    assert 40.42 < float(found.cost) < 180.0
    assert int(found.result) == ControlResult.SUCCESSFUL
    assert bool(jnp.all(jnp.abs(found.value.controls) <= 20.0))
    several = eqx.filter_jit(jax.vmap(lambda u: solve(problem, solver, rollout_controls(problem, u), max_steps=60)))
    both = several(jnp.zeros((2, 50, 1)).at[1].set(jnp.nan))
    np.testing.assert_allclose(both.cost[0], found.cost, rtol=1e-9)
    assert int(both.result[1]) == ControlResult.NOT_FINITE


def test_wrong_solvers_are_refused():
    with pytest.raises(ValueError, match="elites = 300"):
        Sampling("cem", elites=300)
    problem = regulator()
    with pytest.raises(ValueError, match="no bounds; give the standard_deviation"):
        solve(problem, Sampling("mppi"), start_of(problem))
