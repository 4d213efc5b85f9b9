"""iLQR and DDP: published optima, bounds, conditions, designs, manifolds, and starts that lead nowhere."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from control_problems import (
    acrobot,
    cart_pole,
    cost_to_go_of_regulator,
    fixed_at,
    regulator,
    searched,
    solved,
    start_of,
    sutton,
)

import jaxdyn
from jaxdyn.control import (
    ILQR,
    ControlProblem,
    ControlResult,
    Design,
    DiscreteDynamics,
    Equality,
    Inequality,
    MultibodyDynamics,
    Plan,
    Solution,
    best_of,
    describe_optima,
    ilqr,
    optima,
    rollout_controls,
    solve,
    solve_batch,
)
from jaxdyn.control.expansion import expanded, penalty_terms
from jaxdyn.control.ilqr import Step, roll_out
from jaxdyn.control.linear_quadratic import Policy
from jaxdyn.control.plan import Multipliers, Outcome, gaps, no_multipliers, outcome
from jaxdyn.control.solution import Stats


@pytest.mark.parametrize("second_order", [False, True])
def test_linear_problem_is_solved_by_one_step(second_order):
    """The policy is that of the Riccati equation, written out here."""
    problem = regulator()
    start = rollout_controls(problem, jnp.ones((30, 1)))
    search = searched(problem, ILQR(second_order=second_order), start)
    one = search(1)
    P, gains = cost_to_go_of_regulator()
    cost_to_go = 0.5 * problem.initial @ P @ problem.initial
    np.testing.assert_allclose(one.cost, cost_to_go, rtol=1e-8)
    np.testing.assert_allclose(one.feedback, gains, rtol=1e-8, atol=1e-9)
    end = search(200)
    assert (int(end.result), int(end.stats.iterations)) == (ControlResult.SUCCESSFUL, 2)


def test_an_optimum_that_an_inactive_inequality_does_not_change_is_solved():
    """The multipliers are updated although no step decreases the cost any more."""
    problem = regulator(constraints=Inequality(lambda dynamics, t, x, u: x[:1] - 9.0))
    found = solved(problem, ILQR(), start_of(problem), throw=False)
    assert int(found.result) == ControlResult.SUCCESSFUL
    np.testing.assert_allclose(found.cost, 0.5 * problem.initial @ cost_to_go_of_regulator()[0] @ problem.initial)


@pytest.mark.thorough
@pytest.mark.parametrize(("second_order", "digits"), [(False, 2e-8), (True, 1.5e-8)])
def test_acrobot_of_trajax(second_order, digits):
    """Published, to six decimals: 4959.476212 without controls, 44.513285 from there, 40.424010 the best of 20 starts."""
    problem = acrobot()
    both = jax.jit(jax.value_and_grad(lambda u: outcome(problem, rollout_controls(problem, u)).cost))
    np.testing.assert_allclose(both(jnp.zeros((50, 1)))[0], 4959.476212, rtol=1e-9)
    starts = (3.0 * jax.random.normal(jax.random.key(0), (24, 50, 1))).at[0].set(0.0)
    batch = eqx.filter_jit(
        jax.vmap(lambda u: solve(problem, ILQR(second_order=second_order), rollout_controls(problem, u), max_steps=300))
    )(starts)
    assert np.all(np.asarray(batch.result) == ControlResult.SUCCESSFUL)
    np.testing.assert_allclose(batch.cost[0], 44.513285, rtol=digits)
    np.testing.assert_allclose(jnp.min(batch.cost), 40.424010, rtol=digits)
    _, slope = both(batch.value.controls[0])
    np.testing.assert_allclose(slope, 0.0, atol=1e-2 if not second_order else 1e-4)


def test_bounds():
    """With 11 N instead of 13.8 N the swing costs more, and controls at a bound are left alone by feedback."""
    problem = cart_pole(50, 11.0)
    tight = solved(problem, ILQR(second_order=True), rollout_controls(problem, jnp.zeros((50, 1))))
    assert int(tight.result) == ControlResult.SUCCESSFUL
    assert float(tight.cost) > 58.5
    np.testing.assert_allclose(jnp.max(jnp.abs(tight.value.controls)), 11.0)
    np.testing.assert_array_equal(tight.feedback[jnp.abs(tight.value.controls[:, 0]) >= 11.0], 0.0)


def test_conditions_that_exclude_each_other():
    here = Equality(lambda dynamics, t, x, u: x - 1.0, name="here")
    there = Equality(lambda dynamics, t, x, u: x + 1.0, name="there")
    problem = regulator(final_constraints=(here, there))
    lost = solved(problem, ILQR(), start_of(problem))
    assert int(lost.result) == ControlResult.INFEASIBLE
    assert "relax one" in ControlResult(int(lost.result)).message
    # The nearest to both.
    np.testing.assert_allclose(lost.value.states[-1], 0.0, atol=1e-5)
    np.testing.assert_allclose(lost.violation, 1.0, atol=1e-5)


def test_design_of_a_linear_problem_is_found_with_its_controls():
    """Where to start, if the first coordinate is free: where the quadratic cost to go is smallest."""
    place = Design(lambda problem, p: eqx.tree_at(lambda x: x.initial, problem, problem.initial.at[0].set(p[0])), [1.0])
    fixed, free = regulator(), regulator(design=place)
    start = rollout_controls(free, jnp.ones((30, 1)))
    found = solved(free, ILQR(), start)
    assert int(found.stats.iterations) == 2
    from_there = eqx.filter_jit(jax.vmap(lambda x: solve(fixed_at(fixed, x), ILQR(), start_of(fixed)).cost))
    *costs, from_bound = from_there(jnp.array([0.0, 1.0, 2.0, 0.5]))
    bend = costs[2] - 2.0 * costs[1] + costs[0]
    best = 1.0 - 0.5 * (costs[2] - costs[0]) / bend
    np.testing.assert_allclose(found.value.design, [best], rtol=1e-9)
    np.testing.assert_allclose(found.value.states[0], [best, -0.5], rtol=1e-9)
    bounded = regulator(design=Design(place.place, [1.0], lower=0.5))
    at_bound = solved(bounded, ILQR(), start)
    np.testing.assert_allclose([at_bound.value.design[0], at_bound.cost], [0.5, from_bound])


@pytest.mark.thorough
def test_ball_joint_is_turned_over_and_gaps_are_closed():
    """Upside down by three torques, from states that do not follow from each other; the slope is zero in the end."""
    builder = jaxdyn.MechanismBuilder("ball pendulum")
    builder.add_body(
        "bob", joint=jaxdyn.Spherical(), mass=1.0, com=(0.02, 0.0, -0.3), inertia=(0.02, 0.03, 0.015, 0.0, 0.002, 0.0)
    )
    system = jaxdyn.System(builder.build())
    start = jaxdyn.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
    over = jaxdyn.State(jnp.array([0.0, 0.6, 0.8, 0.0]), jnp.zeros(3))

    def off(dynamics, t, x, u):
        miss = dynamics.difference(over, x)
        return 50.0 * miss @ miss

    problem = ControlProblem(
        MultibodyDynamics(system, jaxdyn.SemiImplicitEuler()),
        start,
        duration=1.0,
        steps=12,
        running=lambda d, t, x, u: 0.01 * u @ u,
        final=off,
    )
    u = jnp.full((12, 3), 0.1)
    still = jax.jit(lambda u: rollout_controls(problem, u))(u)
    guessed = eqx.tree_at(lambda plan: plan.states.v, still, still.states.v + 0.3)
    found = solved(problem, ILQR(second_order=True), guessed, throw=False)
    assert int(found.result) == ControlResult.COARSE  # steps of 83 ms of an integrator of order 1
    np.testing.assert_allclose(eqx.filter_jit(gaps)(problem, found.value), 0.0, atol=1e-12)
    both = jaxdyn.batched(jax.value_and_grad(lambda u: outcome(problem, rollout_controls(problem, u)).cost))
    (cost, cost_of_still), (slope, _) = both(jnp.stack([found.value.controls, u]))
    np.testing.assert_allclose(slope, 0.0, atol=1e-4)
    np.testing.assert_allclose(cost, found.cost, rtol=1e-9)
    assert float(cost) < 0.05 * float(cost_of_still)


def test_a_share_of_a_step_closes_that_share_of_the_gaps():
    problem, draw = acrobot(), np.random.default_rng(0)
    shape = {"k": (50, 1), "K": (50, 1, 4), "gradients": (51, 4), "hessians": (51, 4, 4)}
    policy = Policy(
        *(jnp.asarray(0.1 * draw.normal(size=size)) for size in shape.values()), jnp.zeros(()), jnp.zeros(())
    )
    states = jnp.asarray(draw.normal(size=(51, 4))).at[0].set(problem.initial)
    plan = Plan(states, jnp.asarray(draw.normal(size=(50, 1))), jnp.zeros(0))
    step = Step(policy, jnp.zeros((51, 4)), jnp.zeros((50, 1)), jnp.zeros(()), jnp.zeros(()))

    @jax.jit
    def before_and_after(share):
        apart = gaps(problem, plan)
        rolled, found = roll_out(problem, plan, step, apart, share)
        return apart, gaps(problem, rolled), found, outcome(problem, rolled)

    before, after, found, expected = before_and_after(jnp.asarray(0.3))
    np.testing.assert_allclose(after, 0.7 * before, atol=1e-12)
    np.testing.assert_allclose(found.cost, expected.cost, rtol=1e-12)


def test_a_step_that_leads_too_far_from_the_plan_has_no_outcome():
    problem = regulator()
    plan = start_of(problem)
    shape = {"K": (problem.steps, 1, 2), "gradients": (problem.steps + 1, 2), "hessians": (problem.steps + 1, 2, 2)}
    rest, zero = [jnp.zeros(size) for size in shape.values()], jnp.zeros(())

    @jax.jit
    def rolled(size):
        policy = Policy(jnp.full((problem.steps, 1), size), *rest, zero, zero)
        step = Step(policy, jnp.zeros((problem.steps + 1, 2)), jnp.zeros((problem.steps, 1)), zero, zero)
        return roll_out(problem, plan, step, gaps(problem, plan), jnp.ones(()))[1].cost

    assert 1e10 < float(rolled(1e6)) < np.inf
    assert np.isnan(rolled(1e14))


def test_damping_grows_tenfold_without_an_accepted_step_and_falls_tenfold_after_a_long_one():
    for damping, accepted, fraction, expected in (
        (0.0, False, 0.0, 1e-3),
        (5e-3, False, 0.0, 5e-2),
        (1e5, False, 0.0, 1e6),
        (1e-2, True, 0.1, 1e-2),
        (1e-2, True, 0.2, 1e-3),
        (1e-8, True, 1.0, 0.0),
    ):
        found = ilqr._next_damping(*map(jnp.asarray, (damping, accepted, fraction)))
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_searches_that_do_not_converge_end_with_the_code_of_their_reason():
    """Too much damping, with and without gaps, and costs that hardly decrease; a converged plan is solved all the same."""
    problem, solver = regulator(), ILQR()

    @jax.jit
    def result(damping, gap, flat, settled):
        search = solver.init(problem, start_of(problem))
        search = eqx.tree_at(
            lambda s: (s.damping, s.gaps, s.flat), search, (damping, jnp.full_like(search.gaps, gap), flat)
        )
        return solver._followed(problem, search, outcome(problem, search.plan), settled).result

    for damping, gap, flat, settled, expected in (
        (1e7, 0.0, 19, False, ControlResult.OUT_OF_STEPS),
        (1e9, 0.0, 19, False, ControlResult.STUCK),
        (1e9, 0.1, 19, False, ControlResult.GAPS),
        (1e7, 0.0, 20, False, ControlResult.SLOW),
        (1e9, 0.0, 20, True, ControlResult.SUCCESSFUL),
    ):
        values = (jnp.asarray(damping), jnp.asarray(gap), jnp.asarray(flat), jnp.asarray(settled))
        assert int(result(*values)) == expected


def test_iterations_in_a_row_that_hardly_decrease_the_cost_are_counted():
    """With much damping a step is short, so the decrease is below the tolerance, although the plan is far from the optimum."""
    problem, solver = regulator(), ILQR(tolerance=1e-3)

    @jax.jit
    def flat(damping, before):
        search = solver.init(problem, rollout_controls(problem, jnp.ones((30, 1))))
        search = eqx.tree_at(lambda s: (s.damping, s.flat), search, (damping, before))
        return solver.step(problem, search).flat

    assert [int(flat(jnp.asarray(damping), jnp.asarray(7))) for damping in (1e6, 0.0)] == [8, 0]


def test_conditions_that_just_hold_are_kept():
    """Without force, an equation that holds pulls by its weight, and so does an inequality at zero, but none that is negative."""
    equation = Equality(lambda dynamics, t, x, u: x)
    inequality = Inequality(lambda dynamics, t, x, u: jnp.concatenate([x, u]))
    problem = regulator(constraints=inequality, final_constraints=(equation, inequality))
    found = Outcome(
        jnp.zeros(()), jnp.zeros((30, 3)).at[:, 1].set(-2.0).at[:, 2].set(0.5), jnp.array([0.0, 2.0, 0.0, -1.0, 3.0])
    )
    pull = penalty_terms(problem, found, no_multipliers(problem, 10.0))
    np.testing.assert_array_equal(pull.path_weight, np.tile([10.0, 0.0, 10.0], (30, 1)))
    np.testing.assert_array_equal(pull.path, np.tile([0.0, 0.0, 5.0], (30, 1)))
    np.testing.assert_array_equal(pull.end_weight, [10.0, 10.0, 10.0, 0.0, 10.0])
    np.testing.assert_array_equal(pull.end, [0.0, 20.0, 0.0, 0.0, 30.0])


@pytest.fixture(scope="module")
def side_by_side():
    """A problem, a solver, plans to begin with and what comes of them in one program."""
    problem, solver = acrobot(), ILQR(second_order=True)
    starts = 3.0 * jax.random.normal(jax.random.key(0), (12, 50, 1))
    starts = starts.at[0].set(0.0).at[1, 7].set(jnp.nan)
    plans = jax.jit(jax.vmap(lambda u: rollout_controls(problem, u)))(starts)
    return (
        problem,
        solver,
        plans,
        eqx.filter_jit(jax.vmap(lambda plan: solve(problem, solver, plan, max_steps=60)))(plans),
    )


@pytest.mark.parametrize("pack", [48, 5])
def test_a_batch_in_which_searches_end_early(pack, side_by_side, monkeypatch):
    """In one pack, or in several ones, which are packed again: as if all had been solved side by side.

    A guess that is no number leaves the others alone.
    """
    monkeypatch.setattr("jaxdyn.control.batch._TOGETHER", pack)
    problem, solver, plans, together = side_by_side
    batch = solve_batch(problem, solver, plans, max_steps=60, every=7, throw=False, progress=False)
    np.testing.assert_array_equal(batch.result, together.result)
    np.testing.assert_array_equal(batch.stats.iterations, together.stats.iterations)
    np.testing.assert_allclose(batch.cost, together.cost, rtol=1e-9)
    assert len(set(np.asarray(batch.stats.iterations).tolist())) > 4
    assert (int(batch.result[1]), int(batch.stats.iterations[1])) == (ControlResult.NOT_FINITE, 0)
    np.testing.assert_allclose(batch.cost[0], 44.513285, rtol=2e-8)
    found = optima(batch)
    assert [group.cost for group in found] == sorted(group.cost for group in found)
    assert sum(group.starts for group in found) == np.sum(np.asarray(batch.result) == ControlResult.SUCCESSFUL)
    np.testing.assert_allclose(float(batch.cost[found[0].best]), found[0].cost)
    text = describe_optima(batch)
    assert "1 of 12: The initial guess is not finite; give smaller controls" in text
    assert f"44.5133  from {next(g.starts for g in found if abs(g.cost - 44.513285) < 1e-3)} of 12 starts" in text


def test_recorded_searches_are_the_same_and_remember_their_costs():
    problem, solver = regulator(upper=0.4), ILQR()
    starts = jnp.stack([jnp.zeros((30, 1)), jnp.linspace(-3.0, 3.0, 30)[:, None]])
    plans = jax.jit(jax.vmap(lambda u: rollout_controls(problem, u)))(starts)
    recorded = solve_batch(problem, solver, plans, max_steps=20, history=True, throw=False, progress=False)
    bare = eqx.filter_jit(jax.vmap(lambda plan: solve(problem, solver, plan, max_steps=20)))(plans)
    np.testing.assert_allclose(recorded.value.controls, bare.value.controls, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(recorded.stats.iterations, bare.stats.iterations)
    assert recorded.history.cost.shape == (2, 21)
    first = jax.jit(jax.vmap(lambda plan: outcome(problem, plan).cost))(plans)
    for k in range(2):
        history, end = np.asarray(recorded.history.cost[k]), int(recorded.stats.iterations[k])
        np.testing.assert_allclose(history[0], first[k])
        np.testing.assert_allclose(history[end], recorded.cost[k], rtol=1e-14)
        assert 1 < end < 20
        assert np.all(np.diff(history[: end + 1]) < 1e-12)
        assert np.all(np.isnan(history[end + 1 :]))
        np.testing.assert_allclose(recorded.history.violation[k, : end + 1], 0.0, atol=1e-13)  # gaps: rounding


DONE, LOST, BROKEN = (int(x) for x in (ControlResult.SUCCESSFUL, ControlResult.INFEASIBLE, ControlResult.NOT_FINITE))


def ended(cost, violation, result) -> Solution:
    """A batch of solutions that came to this."""
    zero, none = jnp.zeros(()), jnp.zeros((1, 0))
    plan, multipliers = Plan(jnp.zeros((2, 1)), jnp.zeros((1, 1)), none[0]), Multipliers(none, none[0], zero)
    one = Solution(plan, jnp.zeros((1, 1, 1)), multipliers, zero, zero, zero.astype(int), Stats(zero.astype(int)))
    several = jax.tree.map(lambda leaf: jnp.stack([leaf] * len(cost)), one)
    parts = (jnp.asarray(cost), jnp.asarray(violation), jnp.asarray(result))
    return eqx.tree_at(lambda s: (s.cost, s.violation, s.result), several, parts)


def test_the_best_of_a_batch_is_solved_if_any_is():
    """Else the one that violates least; what is no number comes last."""
    assert best_of(ended([3.0, 1.0, 2.0, np.nan], [0.0, 0.5, 1e-7, np.nan], [DONE, LOST, DONE, BROKEN])) == 2
    assert best_of(ended([1.0, np.nan, 9.0], [0.5, np.nan, 0.2], [LOST, BROKEN, LOST])) == 2


def test_optima_are_alike_by_shares_of_their_costs():
    """Large costs may differ by more than small ones; each group keeps its cheapest, and what is not solved does not count."""
    cost = [1000.05, 2e-3, 1000.0, 1.9999e-3, 1001.0, 1.0, -5.0, -5.0004]
    found = ended(cost, [0.0] * 8, [DONE] * 5 + [LOST] + [DONE] * 2)
    groups = [(group.starts, group.best) for group in optima(found)]
    assert groups == [(2, 7), (2, 3), (2, 2), (1, 4)]
    assert len(optima(found, alike=1e-6)) == 7


def test_the_best_of_equal_solutions_represents_its_optimum():
    cost = np.random.default_rng(0).integers(0, 20, 100).astype(float)
    found = ended(cost, np.zeros(100), [DONE] * 100)
    assert optima(found)[0].best == best_of(found) == np.argmin(cost)


@pytest.mark.parametrize("together", [48, 2])
def test_a_batch_of_problems(together, monkeypatch):
    """Each with a start of its own; the same as one by one."""
    monkeypatch.setattr("jaxdyn.control.batch._TOGETHER", together)
    values = (0.3, -1.0, 2.0, 0.6, -0.1)
    problems = eqx.filter_vmap(lambda x: fixed_at(regulator(), x))(jnp.array(values))
    plans = eqx.filter_vmap(start_of)(problems)
    batch = solve_batch(problems, ILQR(), plans, every=1, progress=True)
    alone = eqx.filter_jit(jax.vmap(lambda x, plan: solve(fixed_at(regulator(), x), ILQR(), plan).cost))
    np.testing.assert_allclose(batch.cost, alone(jnp.array(values), plans), rtol=1e-10)
    assert np.all(np.diff(np.sort(np.asarray(batch.cost))) > 0.1)


def test_wrong_problems_are_refused(as_a_user):
    with pytest.raises(ValueError, match="steps is 0; give 1 or more"):
        ControlProblem(DiscreteDynamics(sutton, 4, 1), jnp.zeros(4), duration=1.0, steps=0)
    with pytest.raises(ValueError, match="the duration is 0"):
        ControlProblem(DiscreteDynamics(sutton, 4, 1), jnp.zeros(4), duration=0.0, steps=3)
    with pytest.raises(ValueError, match="control 0: the lower bound is not below the upper one"):
        ControlProblem(DiscreteDynamics(sutton, 4, 1), jnp.zeros(4), duration=1.0, steps=3, lower=1.0, upper=-1.0)
    with pytest.raises(ValueError, match=r"a bound has shape \(2,\); give .* shape \(1,\)"):
        ControlProblem(DiscreteDynamics(sutton, 4, 1), jnp.zeros(4), duration=1.0, steps=3, lower=[-1.0, 0.0])
    with pytest.raises(ValueError, match=r"controls have shape \(4, 1\); give shape \(50, 1\)"):
        rollout_controls(acrobot(), jnp.zeros((4, 1)))


def test_predictions_of_a_policy_at_bounds_are_those_of_its_value_function():
    """A pendulum falls faster than its torque can brake; the clipped steps of the linear model diverge, and predict an increase."""

    def falling(x, u, t, dt):
        return jnp.stack([x[0] + 0.1 * x[1], x[1] + 0.1 * (4.0 * jnp.sin(x[0]) + u[0])])

    problem = ControlProblem(
        DiscreteDynamics(falling, 2, 1),
        jnp.array([0.5, 0.0]),
        duration=3.0,
        steps=30,
        running=lambda dynamics, t, x, u: 5.0 * (x @ x) + 0.5 * u @ u,
        final=lambda dynamics, t, x, u: 50.0 * x @ x,
        lower=-2.5,
        upper=2.5,
    )
    plan, solver = rollout_controls(problem, jnp.zeros((30, 1))), ILQR()

    @jax.jit
    def predicted():
        search = solver.init(problem, plan)
        terms = penalty_terms(problem, search.found, search.multipliers)
        model = expanded(problem, plan, terms, search.gaps, feedback=search.feedback).model
        step = ilqr._step_of(problem, plan, model, search.damping)
        return -step.slope - 0.5 * step.curvature, search.cost

    decrease, cost = predicted()
    assert 0.0 < decrease < cost
    found = solved(problem, solver, plan)
    assert int(found.result) == ControlResult.SUCCESSFUL
    assert int(found.stats.iterations) < 30
    np.testing.assert_allclose(found.cost, 532.2596, rtol=1e-6)
