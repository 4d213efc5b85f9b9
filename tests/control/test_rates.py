"""Rates of controls and bounds of states: the same optimum as written out by hand, and bounds that are kept."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from control_problems import A, B, regulator, solved

from jaxdyn.control import (
    ControlProblem,
    ControlResult,
    Deviation,
    DiscreteDynamics,
    Equality,
    Inequality,
    MultipleShooting,
    StateBounds,
    free_duration,
    guess,
    rollout_controls,
    with_rates,
    without_rates,
)
from jaxdyn.control.plan import gaps
from jaxdyn.control.problem import end_constraints, final_cost, path_constraints, running_cost
from jaxdyn.control.rates import original_problem


@pytest.mark.thorough
def test_rates_cost_what_a_longer_state_would():
    """The regulator with the control as a third coordinate, written out."""
    problem = with_rates(regulator(), 0.3, jnp.array([0.2]))
    byhand = ControlProblem(
        DiscreteDynamics(lambda x, r, t, dt: jnp.concatenate([A @ x[:2] + B @ x[2:], x[2:] + dt * r]), 3, 1),
        jnp.array([1.0, -0.5, 0.2]),
        duration=6.0,
        steps=30,
        running=lambda dynamics, t, x, r: (0.5 * x[:2] @ x[:2] + 0.05 * x[2] ** 2) / 0.2 + 0.15 * r @ r,
        final=lambda dynamics, t, x, u: 5.0 * x[:2] @ x[:2],
    )
    ours, theirs = (solved(p, MultipleShooting(), rollout_controls(p, jnp.zeros((30, 1)))) for p in (problem, byhand))
    np.testing.assert_allclose(ours.cost, theirs.cost, rtol=1e-10)
    x, u = without_rates(ours.value.states)
    np.testing.assert_allclose(jnp.concatenate([x[:-1], u], axis=1), theirs.value.states[:-1], rtol=1e-7, atol=1e-9)


def test_conditions_of_the_inner_problem_hold_for_its_states_and_controls():
    path = Inequality(lambda dynamics, t, x, u: jnp.stack([x[0] + 2.0 * u[0], t * x[1]]), "path")
    end = Equality(lambda dynamics, t, x, u: jnp.stack([x[1] - t, dynamics.nx + u[0]]), "end")
    problem = with_rates(regulator(constraints=path, final_constraints=end, lower=-0.5), 0.3)
    x, rate = (jnp.array([0.3, -0.4]), jnp.array([0.7])), jnp.array([5.0])
    at_step = path_constraints(problem, jnp.asarray(4), x, rate)
    np.testing.assert_allclose(at_step, [0.3 + 1.4, 4 * 0.2 * -0.4, -0.5 - 0.7], rtol=1e-12)
    np.testing.assert_allclose(end_constraints(problem, x), [-0.4 - 6.0, 2.0], rtol=1e-12)
    assert [type(c) for c in (*problem.constraints, *problem.final_constraints)] == [Inequality, Inequality, Equality]


@pytest.mark.thorough
def test_bounds_of_controls_rates_and_states_are_kept():
    """All three act; without them each would be passed."""
    free = with_rates(regulator(), 1e-3, jnp.array([-1.0]))
    bounds = StateBounds(jnp.zeros(2), jnp.array([-0.55, -jnp.inf]), jnp.array([0.96, jnp.inf]), nx=2)
    tight = ControlProblem(
        regulator().dynamics,
        regulator().initial,
        duration=6.0,
        steps=30,
        running=regulator().running,
        final=regulator().final,
        constraints=Inequality(StateBounds(jnp.zeros(2), jnp.array([-jnp.inf, -0.54]), nx=2), "state"),
        lower=-2.0,
        upper=0.6,
    )
    tight = with_rates(tight, 1e-3, jnp.array([-1.0]), lower=-4.5, upper=1.2)
    ends = []
    for problem in (free, tight):
        found = solved(problem, MultipleShooting(), rollout_controls(problem, jnp.zeros((30, 1))))
        assert int(found.result) == ControlResult.SUCCESSFUL
        x, u = without_rates(found.value.states)
        jumps = np.diff(np.asarray(u)[:, 0]) / 0.2
        ends.append((float(jnp.min(x[:-1, 1])), float(jnp.min(u)), jumps.min(), jumps.max()))
    limits = (-0.54, -2.0, -4.5, 1.2)
    for passed, kept, limit in zip(*ends, limits, strict=True):
        assert abs(passed) > abs(limit) + 1e-3
        np.testing.assert_allclose(kept, limit, atol=1e-6)
    outside = bounds(regulator().dynamics, jnp.zeros(()), jnp.array([1.0, -1.0]), jnp.zeros(1))
    np.testing.assert_allclose(outside, [-1.55, 0.04], atol=1e-12)


def reaching(**options) -> ControlProblem:
    """The regulator with a goal at the end, with a bound on one side and a constraint."""
    plain = regulator()
    return ControlProblem(
        plain.dynamics,
        plain.initial,
        duration=6.0,
        steps=30,
        running=plain.running,
        final=Deviation(jnp.array([-0.4, 0.3]), 5.0),
        constraints=Inequality(lambda dynamics, t, x, u: x[:1] - 3.0, "position"),
        upper=0.6,
        **options,
    )


def test_the_original_problem_is_found_in_the_problem_with_rates():
    problem = reaching(design=free_duration(6.0, 3.0, 9.0))
    found = original_problem(with_rates(problem, 0.3, lower=-2.0))
    k, x, u = jnp.asarray(4), jnp.array([0.3, -0.4]), jnp.array([0.7])
    for function in (running_cost, path_constraints):
        np.testing.assert_array_equal(function(found, k, x, u), function(problem, k, x, u))
    np.testing.assert_array_equal(final_cost(found, x), final_cost(problem, x))
    for name in ("initial", "lower", "upper"):
        np.testing.assert_array_equal(getattr(found, name), getattr(problem, name))
    assert [c.name for c in found.constraints] == ["position"]
    np.testing.assert_array_equal(found.with_design(jnp.array([4.0])).dt, problem.with_design(jnp.array([4.0])).dt)


def test_guesses_of_a_problem_with_rates_follow_those_of_the_original_problem():
    problem = reaching()
    rated = with_rates(problem, 0.3, jnp.array([0.2]), lower=-0.5, upper=0.5)
    np.testing.assert_array_equal(guess.goal_of(rated), [-0.4, 0.3])
    for make in (guess.straight_line, guess.gravity_compensated, lambda p: guess.random(p, jax.random.key(3))):
        plain, plan = make(problem), make(rated)
        x, u = plan.states
        np.testing.assert_array_equal(x, plain.states)
        # The controls obey their dynamics and the bounds of the rates, and reach those of the original guess where these allow it.
        np.testing.assert_allclose(gaps(rated, plan)[:, 2], 0.0, atol=1e-14)
        assert np.all(np.abs(plan.controls) <= 0.5)
        assert u[0, 0] == 0.2
        slow = np.abs(np.diff(plain.controls[:, 0])) < 0.5 * 0.2 - 1e-9
        reached = np.abs(u[:-1, 0] - plain.controls[:, 0]) < 1e-12
        np.testing.assert_array_equal(reached[1:] | ~(slow & reached[:-1]), True)
    assert guess.kinds(rated, 3) == guess.kinds(problem, 3)
    assert jax.tree.leaves(guess.mixed(rated, 6))[0].shape[0] == 6


@pytest.mark.thorough
def test_a_problem_with_rates_is_solved_from_its_own_guess():
    problem = with_rates(reaching(), 0.3, lower=-1.0, upper=1.0)
    found = solved(problem, MultipleShooting(), guess.simplest(problem))
    assert int(found.result) == ControlResult.SUCCESSFUL
