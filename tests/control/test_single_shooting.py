"""Single shooting: the same optimum as Riccati's, conditions, bounds, designs, and descents that come to nothing."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from control_problems import cost_to_go_of_regulator, regulator, solved, start_of

from jaxdyn.control import (
    ILQR,
    ContinuousDynamics,
    ControlProblem,
    ControlResult,
    Design,
    DiscreteDynamics,
    Equality,
    MultipleShooting,
    SingleShooting,
    rollout_controls,
    solve,
    solve_batch,
)
from jaxdyn.control.single_shooting import _within


def test_linear_problem():
    """A gradient knows no curvature, so that one iteration is not enough; the optimum is the same."""
    problem = regulator()
    found = solved(problem, SingleShooting(optax.lbfgs(), tolerance=1e-13), start_of(problem), max_steps=400)
    P, _ = cost_to_go_of_regulator()
    assert int(found.result) == ControlResult.SUCCESSFUL
    np.testing.assert_allclose(found.cost, 0.5 * problem.initial @ P @ problem.initial, rtol=1e-8)


def test_a_batch_that_is_cut_off_has_made_all_its_iterations():
    """Whether or not they are a multiple of those after which ended searches are taken out."""
    problem, solver = regulator(), SingleShooting(optax.adam(1e-3))
    plans = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), start_of(problem))
    for max_steps in (5, 10, 14):
        found = solve_batch(problem, solver, plans, max_steps=max_steps, every=7, throw=False, progress=False)
        np.testing.assert_array_equal(found.stats.iterations, max_steps)
        np.testing.assert_array_equal(found.result, ControlResult.OUT_OF_STEPS)


def pendulum(**options) -> ControlProblem:
    """A pendulum that is to swing out by 2 rad, and be at rest there."""
    goal = np.array([2.0, 0.0])
    return ControlProblem(
        ContinuousDynamics(lambda x, u, t: jnp.stack([x[1], u[0] - 9.81 * jnp.sin(x[0])]), 2, 1),
        jnp.zeros(2),
        duration=1.5,
        steps=30,
        running=lambda dynamics, t, x, u: 0.5 * u @ u,
        final_constraints=Equality(lambda dynamics, t, x, u: x - goal, name="out"),
        **options,
    )


def test_bounds_and_conditions():
    """As multiple shooting finds it."""
    problem = pendulum(lower=-7.0, upper=7.0)
    start = rollout_controls(problem, jnp.full((30, 1), 1.0))
    found = solved(problem, SingleShooting(optax.adam(0.2), penalty=30.0), start, max_steps=6000)
    theirs = solved(problem, MultipleShooting(), start)
    assert int(found.result) == ControlResult.SUCCESSFUL
    assert int(theirs.result) == ControlResult.SUCCESSFUL
    assert float(found.violation) <= 1e-6
    np.testing.assert_allclose(found.cost, theirs.cost, rtol=1e-5)
    np.testing.assert_allclose(found.multipliers.end, theirs.multipliers.end, rtol=1e-2)


def test_initial_state_to_choose():
    place = Design(lambda problem, p: eqx.tree_at(lambda x: x.initial, problem, problem.initial.at[0].set(p[0])), [1.0])
    problem = regulator(design=place)
    start = rollout_controls(problem, jnp.ones((30, 1)))
    found = solved(problem, SingleShooting(optax.lbfgs(), tolerance=1e-13), start, max_steps=400)
    np.testing.assert_allclose(found.value.design, solved(problem, ILQR(), start).value.design, rtol=1e-5)


def test_unknowns_are_kept_within_bounds_also_those_that_depend_on_the_design():
    place = Design(lambda problem, p: eqx.tree_at(lambda x: x.upper, problem, p), [1.0], lower=0.5, upper=2.0)
    problem = regulator(design=place, lower=-3.0)
    draw = jnp.linspace(-5.0, 5.0, 30)[:, None]
    for given, kept in ((0.1, 0.5), (1.5, 1.5), (9.0, 2.0)):
        controls, design = _within(problem, (draw, jnp.full(1, given)))
        np.testing.assert_array_equal(design, [kept])
        np.testing.assert_array_equal(controls, np.clip(draw, -3.0, kept))


def test_how_searches_end():
    """A sample that is not finite, one that diverges, constraints that exclude each other, too few iterations; the others go on."""
    here = Equality(lambda dynamics, t, x, u: x[:1] - 1.0, name="here")
    there = Equality(lambda dynamics, t, x, u: x[:1] + 1.0, name="there")
    problem = regulator(final_constraints=(here, there))
    lost = solved(problem, SingleShooting(optax.lbfgs(), tolerance=1e-3), start_of(problem), max_steps=3000)
    assert int(lost.result) == ControlResult.INFEASIBLE
    cubic = ControlProblem(
        DiscreteDynamics(lambda x, u, t, dt: x + dt * (u - x**3), 1, 1),
        jnp.ones(1),
        duration=2.0,
        steps=10,
        running=lambda dynamics, t, x, u: u @ u + x @ x,
    )
    starts = jnp.stack([jnp.zeros((10, 1)), jnp.full((10, 1), jnp.nan), jnp.full((10, 1), 50.0)])
    solver = SingleShooting(optax.sgd(0.1))
    found = eqx.filter_jit(jax.vmap(lambda u: solve(cubic, solver, rollout_controls(cubic, u), max_steps=60)))(starts)
    assert int(found.result[1]) == ControlResult.NOT_FINITE
    assert int(found.result[2]) in (ControlResult.NOT_FINITE, ControlResult.STUCK)
    alone = solved(cubic, solver, rollout_controls(cubic, starts[0]), max_steps=60)
    np.testing.assert_allclose(found.cost[0], alone.cost, rtol=1e-12)
    assert int(alone.result) in (ControlResult.SUCCESSFUL, ControlResult.OUT_OF_STEPS)
