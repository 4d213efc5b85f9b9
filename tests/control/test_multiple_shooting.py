"""Multiple shooting: published optima from guesses that are no motions, bounds, conditions, designs, manifolds, and dead ends."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from control_problems import (
    UP,
    cart_pole,
    cost_to_go_of_regulator,
    folded_acrobot,
    regulator,
    searched,
    solved,
    start_of,
)

import jaxdyn
from jaxdyn import control
from jaxdyn.control import (
    ILQR,
    ContinuousDynamics,
    ControlProblem,
    ControlResult,
    Design,
    DiscreteDynamics,
    Equality,
    Inequality,
    MultibodyDynamics,
    MultipleShooting,
    Plan,
    rollout_controls,
    solve,
    solve_batch,
)
from jaxdyn.control.expansion import cost_size, expanded
from jaxdyn.control.filter_search import StepLength
from jaxdyn.control.interior_point import eliminate_slacks
from jaxdyn.control.multiple_shooting import _scale_of
from jaxdyn.control.plan import gaps, outcome


def test_a_small_barrier_keeps_a_warm_start():
    """The next problem of a sequence: bounds that are active, and an initial state that has moved a little."""
    slow = Inequality(lambda dynamics, t, x, u: -0.58 - x[1:], "rate")
    problem = regulator(lower=-2.0, upper=2.0, constraints=slow)
    first = searched(problem, MultipleShooting(), start_of(problem))(200)
    assert int(first.result) == ControlResult.SUCCESSFUL
    assert np.min(first.value.controls) < -2.0 + 1e-6
    assert np.sum(first.value.states[:, 1] < -0.58 + 1e-6) > 1
    moved = eqx.tree_at(lambda p: p.initial, problem, problem.initial * 1.001)
    cold, warm = (
        searched(moved, MultipleShooting(tolerance=1e-11, **given), first.value)(200)
        for given in ({}, {"barrier": 1e-4})
    )
    assert int(cold.result) == int(warm.result) == ControlResult.SUCCESSFUL
    np.testing.assert_allclose(warm.value.controls, cold.value.controls, atol=1e-6)
    assert int(warm.stats.iterations) < int(cold.stats.iterations) - 2


@pytest.mark.parametrize("bad", [0, -1.0, np.nan, np.inf, "text", True])
def test_settings_out_of_their_bounds_are_refused(bad, as_a_user):
    with pytest.raises((TypeError, ValueError), match=f"barrier of MultipleShooting is {bad!r}; give a"):
        MultipleShooting(barrier=bad)
    with pytest.raises((TypeError, ValueError), match="tolerance of ILQR is"):
        ILQR(tolerance=bad)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_tiny_barrier_leaves_room_within_rounding(dtype):
    """Controls lie exactly on a bound that is large compared with their range."""
    with jax.enable_x64(dtype == jnp.float64):
        A, B = jnp.array([[1.0, 0.1], [0.0, 1.0]], dtype), jnp.array([0.0, 0.1], dtype)
        problem = ControlProblem(
            DiscreteDynamics(lambda x, u, t, dt: A @ x + B * (u[0] - 100.0), 2, 1),
            jnp.array([0.5, 0.0], dtype),
            duration=1.0,
            steps=8,
            running=lambda dynamics, t, x, u: x @ x + 0.1 * (u[0] - 100.0),
            lower=100.0,
            upper=100.5,
        )
        on_bound = rollout_controls(problem, jnp.full((8, 1), 100.0, dtype))
        found = searched(problem, MultipleShooting(barrier=1e-20), on_bound)(60)
        assert int(found.result) == ControlResult.SUCCESSFUL
        np.testing.assert_allclose(found.value.controls, 100.0, atol=5e-3)


@pytest.mark.parametrize("parallel", [False, True])
def test_linear_problem_is_solved_by_one_step(parallel):
    """From states that do not follow from the controls."""
    problem = regulator()
    guess = Plan(jnp.ones((31, 2)), jnp.full((30, 1), 0.3), jnp.zeros(0))
    search = searched(problem, MultipleShooting(parallel=parallel), guess)
    one = search(1)
    P, gains = cost_to_go_of_regulator()
    np.testing.assert_allclose(one.cost, 0.5 * problem.initial @ P @ problem.initial, rtol=1e-8)
    np.testing.assert_allclose(one.feedback, gains, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(gaps(problem, one.value), 0.0, atol=1e-13)
    end = search(200)
    assert (int(end.result), int(end.stats.iterations)) == (ControlResult.SUCCESSFUL, 2)


def straight(problem: ControlProblem, end) -> Plan:
    """From the initial state to another one in a straight line."""
    share = jnp.linspace(0.0, 1.0, problem.steps + 1)[:, None]
    return Plan(share * end[None] + (1.0 - share) * problem.initial[None], jnp.zeros((problem.steps, 1)), jnp.zeros(0))


@pytest.mark.parametrize(
    ("parallel", "steps", "cost"),
    [
        # That its steps are those of the other recursion is tested below; XLA takes long to compile it.
        pytest.param(True, 100, 58.88834, marks=pytest.mark.exhaustive),
        (False, 100, 58.88834),
        pytest.param(False, 200, 58.82783, marks=pytest.mark.exhaustive),
    ],
)
def test_cart_pole_of_kelly(parallel, steps, cost):
    """Published, with bounds of force and track and with the goal as a condition."""
    problem = cart_pole(steps, 20.0)
    found = solved(problem, MultipleShooting(parallel=parallel), straight(problem, UP))
    assert int(found.result) == ControlResult.SUCCESSFUL
    assert int(found.stats.iterations) < 20
    np.testing.assert_allclose(found.cost, cost, rtol=1e-7)
    assert float(found.violation) <= 1e-8


@pytest.mark.thorough
def test_acrobot_of_optimtraj():
    """Published: 34.9188 in continuous time, from the published guess. Held controls cost more, by h^2 and a little by h^4."""
    costs = []
    for steps in (100, 200):
        problem, guess = folded_acrobot(steps)
        found = solved(problem, MultipleShooting(), guess)
        assert int(found.result) == ControlResult.SUCCESSFUL
        costs.append(float(found.cost))
    np.testing.assert_allclose((4.0 * costs[1] - costs[0]) / 3.0, 34.91878, rtol=4e-5)


def test_bounds_and_conditions_that_act():
    """The same optimum as with iLQR: 11 N where 13.8 N would be used, a shorter track, a cart that is not to be fast."""
    slow = Inequality(lambda dynamics, t, x, u: jnp.stack([x[2] - 2.2, -2.2 - x[2]]), "speed")
    problem = cart_pole(50, 11.0)
    problem = eqx.tree_at(lambda p: p.constraints, problem, (*problem.constraints, slow))
    guess = straight(problem, UP)
    found = solved(problem, MultipleShooting(), guess)
    assert int(found.result) == ControlResult.SUCCESSFUL
    np.testing.assert_allclose(jnp.max(jnp.abs(found.value.controls)), 11.0, rtol=1e-8)
    np.testing.assert_allclose(jnp.max(jnp.abs(found.value.states[:-1, 2])), 2.2, rtol=1e-7)
    theirs = solved(problem, ILQR(second_order=True, penalty=1e3), rollout_controls(problem, found.value.controls))
    assert int(theirs.result) == ControlResult.SUCCESSFUL
    np.testing.assert_allclose(found.cost, theirs.cost, rtol=1e-6)
    np.testing.assert_allclose(found.multipliers.path, theirs.multipliers.path, atol=1e-3)


def test_the_unit_of_the_cost_does_not_matter():
    """The same plan in about as many iterations with a cost that is a million times smaller or larger; bounds and track act."""
    problem = cart_pole(40, 11.0)
    guess = straight(problem, UP)

    @jax.jit
    def scaled(factor):
        costs = (lambda dynamics, t, x, u: factor * u @ u,)
        return solve(eqx.tree_at(lambda p: p.running, problem, costs), MultipleShooting(), guess)

    usual, small, large = (scaled(factor) for factor in (1.0, 1e-6, 1e6))
    assert int(usual.result) == ControlResult.SUCCESSFUL
    np.testing.assert_allclose(jnp.max(jnp.abs(usual.value.controls)), 11.0, rtol=1e-8)
    for found, factor in ((small, 1e-6), (large, 1e6)):
        assert int(found.result) == ControlResult.SUCCESSFUL
        assert int(found.stats.iterations) <= 1.5 * int(usual.stats.iterations)
        np.testing.assert_allclose(found.cost, factor * usual.cost, rtol=1e-7)
        np.testing.assert_allclose(found.value.controls, usual.value.controls, atol=1e-4)
        np.testing.assert_allclose(found.multipliers.end, factor * usual.multipliers.end, rtol=1e-4)


def test_costs_of_usual_size_are_not_scaled():
    """Neither is a cost of size zero; the factor of another one brings its size to the nearest usual one."""
    sizes = jnp.array([0.0, jnp.nan, 1e-6, 0.2, 50.0, 1e8])
    np.testing.assert_allclose(jax.jit(jax.vmap(_scale_of))(sizes), [1.0, 1.0, 1e5, 1.0, 1.0, 1e-6], rtol=1e-12)
    problem = regulator()
    start = rollout_controls(problem, jnp.zeros((30, 1)))
    # |g| + |H 1| by hand: running (x + 1) along x, 0.1 u + 0.1 along u, each for 1 s per step; the end 10 x + 10.
    along = np.abs(np.asarray(start.states[:-1])) + 1.0
    expected = max(along.sum(axis=0).max(), 30 * 0.1, (10.0 * np.abs(np.asarray(start.states[-1])) + 10.0).max())
    np.testing.assert_allclose(jax.jit(lambda plan: cost_size(problem, plan))(start), expected, rtol=1e-12)


def test_conditions_that_exclude_each_other():
    here = Equality(lambda dynamics, t, x, u: x - 1.0, name="here")
    there = Equality(lambda dynamics, t, x, u: x + 1.0, name="there")
    problem = regulator(final_constraints=(here, there))
    lost = solved(problem, MultipleShooting(), start_of(problem), max_steps=300)
    assert int(lost.result) == ControlResult.INFEASIBLE
    assert float(lost.violation) > 0.9


def test_free_duration():
    """From rest to rest over 1 m with the integral of u^2 plus the time as cost: 12 / T^3 + T is smallest at T = sqrt(6) s."""

    def problem(upper):
        return ControlProblem(
            ContinuousDynamics(lambda x, u, t: jnp.stack([x[1], u[0]]), 2, 1),
            jnp.zeros(2),
            duration=1.0,
            steps=40,
            running=lambda dynamics, t, x, u: u @ u,
            final=lambda dynamics, t, x, u: t,
            final_constraints=Equality(lambda dynamics, t, x, u: x - jnp.array([1.0, 0.0])),
            design=Design(lambda p, T: eqx.tree_at(lambda x: x.duration, p, T[0]), [1.0], lower=0.1, upper=upper),
        )

    search = jax.jit(lambda upper: solve(problem(upper), MultipleShooting(), start_of(problem(upper))))
    found = [search(upper) for upper in (10.0, 2.0)]
    held = 12.0 / (1.0 - 1.0 / 40**2)  # held controls cost that much more
    for one, T in zip(found, ((3.0 * held) ** 0.25, 2.0), strict=True):
        assert int(one.result) == ControlResult.SUCCESSFUL
        np.testing.assert_allclose(one.value.design, [T], rtol=1e-7)
        np.testing.assert_allclose(one.cost, held / T**3 + T, rtol=1e-7)


def test_initial_state_to_choose():
    """As iLQR finds it: where to start, if the first coordinate is free."""
    place = Design(lambda problem, p: eqx.tree_at(lambda x: x.initial, problem, problem.initial.at[0].set(p[0])), [1.0])
    problem = regulator(design=place)
    start = rollout_controls(problem, jnp.ones((30, 1)))
    found, theirs = (solved(problem, solver, start) for solver in (MultipleShooting(), ILQR()))
    assert int(found.stats.iterations) == 2
    np.testing.assert_allclose(found.value.design, theirs.value.design, rtol=1e-9)
    np.testing.assert_allclose(found.cost, theirs.cost, rtol=1e-12)


def test_steps_of_both_recursions_are_the_same():
    """Also those of a design between bounds, from where no bound is near."""
    place = Design(
        lambda problem, p: eqx.tree_at(lambda x: x.initial, problem, problem.initial.at[0].set(p[0])),
        [1.0],
        lower=0.8,
        upper=2.0,
    )
    problem = regulator(design=place, lower=-2.0, upper=2.0)

    @jax.jit
    def steps():
        search = MultipleShooting().init(problem, rollout_controls(problem, jnp.ones((30, 1))))
        pull = eliminate_slacks(problem, search)
        expansion = expanded(problem, search.plan, pull, search.gaps, costates=search.multipliers.costates[:, :2])
        model = expansion.model
        return [MultipleShooting(parallel=p)._step(problem, search, model, expansion, pull) for p in (True, False)]

    ours, theirs = steps()
    assert abs(float(theirs.z[0, 2])) > 0.01
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


def test_searches_that_get_nowhere_rest_curvature_then_damp_and_then_give_up():
    """Curvature rests for 1, 3, 7, 15, 16 iterations; damping grows while it rests. Where conditions hold, the end is STUCK."""
    problem, solver = regulator(), MultipleShooting()
    search = solver.init(problem, start_of(problem))
    adapted = jax.jit(functools.partial(solver._adapted, problem))
    no, yes = jnp.asarray(False), jnp.asarray(True)
    refused, whole = (StepLength(jnp.asarray(1.0), jnp.asarray(share)) for share in (0.0, 1.0))
    waits = []
    for _ in range(5):
        search = adapted(search, refused, yes)
        waits.append(int(search.wait))
    assert waits == [1, 3, 7, 15, 16]
    assert (float(search.damping), int(search.result)) == (0.0, ControlResult.OUT_OF_STEPS)
    back = adapted(search, whole, no)
    assert (int(back.wait), int(back.last_wait)) == (15, 16)
    assert int(adapted(search, whole, yes).last_wait) == 0
    sizes = []
    for _ in range(16):
        search = adapted(search, refused, no)
        sizes.append(float(search.damping))
    np.testing.assert_allclose(sizes, 1e-4 * 10.0 ** np.arange(16), rtol=1e-12)
    assert (int(search.wait), int(search.result)) == (0, ControlResult.STUCK)
    missed = eqx.tree_at(lambda s: (s.violation, s.result), search, (jnp.asarray(1e-3), jnp.asarray(0)))
    assert int(adapted(missed, refused, no).result) == ControlResult.GAPS  # there are no constraints
    constrained = regulator(final_constraints=Equality(lambda dynamics, t, x, u: x))
    ended = eqx.tree_at(
        lambda s: (s.violation, s.damping),
        solver.init(constrained, start_of(constrained)),
        (jnp.asarray(1e-3), jnp.asarray(1e11)),
    )
    after = jax.jit(functools.partial(solver._adapted, constrained))(ended, refused, no)
    assert int(after.result) == ControlResult.INFEASIBLE
    np.testing.assert_allclose(adapted(search, whole, no).damping, 1e10, rtol=1e-12)


@pytest.mark.thorough
def test_ball_joint_is_turned_over():
    """Upside down by three torques, at rest, from a guess that stays where it is; the slope is zero in the end."""
    builder = jaxdyn.MechanismBuilder("ball pendulum")
    builder.add_body(
        "bob", joint=jaxdyn.Spherical(), mass=1.0, com=(0.02, 0.0, -0.3), inertia=(0.02, 0.03, 0.015, 0.0, 0.002, 0.0)
    )
    over = jaxdyn.State(jnp.array([0.0, 0.6, 0.8, 0.0]), jnp.zeros(3))
    problem = ControlProblem(
        MultibodyDynamics(jaxdyn.System(builder.build()), jaxdyn.SemiImplicitEuler()),
        jaxdyn.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3)),
        duration=1.0,
        steps=25,
        running=lambda d, t, x, u: 0.01 * u @ u,
        final_constraints=Equality(lambda dynamics, t, x, u: dynamics.difference(over, x)),
    )
    found = solved(problem, MultipleShooting(), rollout_controls(problem, jnp.full((25, 3), 0.1)), throw=False)
    assert int(found.result) == ControlResult.COARSE  # steps of 40 ms of an integrator of order 1
    np.testing.assert_allclose(eqx.filter_jit(gaps)(problem, found.value), 0.0, atol=1e-8)
    np.testing.assert_allclose(jnp.linalg.norm(found.value.states.q, axis=1), 1.0, rtol=1e-12)

    def lagrangian(u):
        reached = outcome(problem, rollout_controls(problem, u))
        return reached.cost + found.multipliers.end @ reached.end

    slope = jaxdyn.batched(jax.grad(lagrangian))(found.value.controls[None])
    np.testing.assert_allclose(slope, 0.0, atol=1e-6)


@pytest.mark.thorough
def test_samples_that_are_not_finite_leave_the_others_alone():
    """Under vmap and in a batch that sets ended searches aside."""
    problem, solver = cart_pole(40, 20.0), MultipleShooting()
    good = straight(problem, UP)
    bad = eqx.tree_at(lambda plan: plan.states, good, good.states.at[7].set(jnp.nan))
    plans = jax.tree.map(lambda *leaves: jnp.stack(leaves), good, bad, good)
    batch = solve_batch(problem, solver, plans, every=5, progress=False)
    together = eqx.filter_jit(jax.vmap(lambda plan: solve(problem, solver, plan)))(plans)
    for found in (batch, together):
        assert found.result.tolist() == [ControlResult.SUCCESSFUL, ControlResult.NOT_FINITE, ControlResult.SUCCESSFUL]
        np.testing.assert_allclose(found.cost[jnp.array([0, 2])], 59.31718, rtol=1e-6)


@pytest.mark.thorough
def test_a_batch_of_models():
    """Pendulums of different masses, each lifted by its own least effort, which grows as the square of its weight."""

    def lifted(mass):
        builder = jaxdyn.MechanismBuilder("pendulum")
        moment = 0.1 * mass
        builder.add_body(
            "rod",
            joint=jaxdyn.Revolute((0.0, 1.0, 0.0)),
            mass=mass,
            com=(0.0, 0.0, -0.5),
            inertia=(moment, moment, 0.1 * moment, 0.0, 0.0, 0.0),
        )
        side = jaxdyn.State(jnp.array([1.5]), jnp.zeros(1))
        return ControlProblem(
            MultibodyDynamics(jaxdyn.System(builder.build()), jaxdyn.SemiImplicitEuler()),
            jaxdyn.State(jnp.zeros(1), jnp.zeros(1)),
            duration=1.0,
            steps=20,
            running=lambda dynamics, t, x, u: u @ u,
            final_constraints=Equality(lambda dynamics, t, x, u: dynamics.difference(side, x)),
        )

    masses = (0.5, 1.0, 2.0)
    problems = [lifted(mass) for mass in masses]
    rest = Plan(jaxdyn.State(jnp.zeros((21, 1)), jnp.zeros((21, 1))), jnp.ones((20, 1)), jnp.zeros(0))
    stack = lambda *leaves: jnp.stack(leaves)  # noqa: E731
    numbers = [eqx.filter(problem, eqx.is_array) for problem in problems]
    several = eqx.combine(jax.tree.map(stack, *numbers), problems[0])
    found = solve_batch(several, MultipleShooting(), jax.tree.map(stack, rest, rest, rest), progress=False)
    assert found.result.tolist() == [ControlResult.SUCCESSFUL] * 3
    np.testing.assert_allclose(found.cost / found.cost[1], np.square(masses), rtol=1e-8)


def test_bounded_mass_is_solved_from_every_mixed_guess():
    """A slack that is almost zero must not make every step look too small. Source: Bryson, Denham and Dreyfus 1963."""
    problem = control.ControlProblem(
        control.ContinuousDynamics(lambda x, u, t: jnp.array([x[1], u[0]]), 2, 1),
        jnp.array([0.0, 1.0]),
        duration=1.0,
        steps=50,
        running=control.Effort(),
        constraints=control.Inequality(lambda dynamics, t, x, u: x[:1] - 1.0 / 9.0),
        final_constraints=control.Equality(lambda dynamics, t, x, u: x - jnp.array([0.0, -1.0])),
    )
    found = control.solve_batch(problem, control.MultipleShooting(), starts=40, progress=False)
    assert np.all(found.result == control.ControlResult.SUCCESSFUL)
    np.testing.assert_allclose(found.cost, found.cost[0], rtol=1e-6)
    assert float(found.cost[0]) == pytest.approx(4.0, rel=1e-3)


def test_small_costs_are_as_exact_as_large_ones():
    """The cost of a motion in millimeters is a millionth of that in meters, so that a barrier of fixed size counts for more."""

    def relative_cost(unit):
        problem = control.ControlProblem(
            control.ContinuousDynamics(lambda x, u, t: jnp.array([x[1], u[0]]), 2, 1),
            jnp.array([0.0, unit]),
            duration=1.0,
            steps=50,
            running=control.Effort(),
            constraints=control.Inequality(
                control.StateBounds(jnp.zeros(2), upper=np.array([unit / 9.0, np.inf]), nx=2)
            ),
            final_constraints=control.Equality(lambda dynamics, t, x, u: x - jnp.array([0.0, -unit])),
        )
        start = rollout_controls(problem, jnp.zeros((50, 1)))
        return float(solved(problem, MultipleShooting(), start).cost) / unit**2

    np.testing.assert_allclose([relative_cost(1e-2), relative_cost(1e-3)], relative_cost(1.0), rtol=2e-5)


def test_least_time_is_solved_from_every_mixed_guess():
    """First steps shorten the free duration so much that no plan arrives; the restoration phase lengthens it again."""
    problem = control.ControlProblem(
        control.ContinuousDynamics(lambda x, u, t: jnp.array([x[1], u[0]]), 2, 1),
        jnp.zeros(2),
        duration=3.0,
        steps=20,
        final=control.ElapsedTime(),
        lower=-1.0,
        upper=1.0,
        final_constraints=control.Equality(lambda dynamics, t, x, u: x - jnp.array([1.0, 0.0])),
        design=control.free_duration(3.0, 0.5, 10.0),
    )
    found = control.solve_batch(problem, control.MultipleShooting(), starts=40, progress=False)
    assert np.all(found.result == control.ControlResult.SUCCESSFUL)
    np.testing.assert_allclose(found.cost, 2.0, rtol=1e-6)


@pytest.mark.thorough
def test_a_restoration_phase_that_fails_is_undone():
    """From a straight line without torques, the phase leads to a plan that is stationary, but not feasible."""
    system = jaxdyn.library.system("acrobot_point_masses")
    upright = jaxdyn.State(jnp.array([jnp.pi, 0.0]), jnp.zeros(2))
    problem = control.ControlProblem(
        control.MultibodyDynamics(system),
        system.at_rest(jnp.zeros(2)),
        duration=2.0,
        steps=50,
        running=lambda dynamics, t, x, u: u @ u,
        lower=-20.0,
        upper=20.0,
        final_constraints=control.Equality(lambda dynamics, t, x, u: dynamics.difference(upright, x)),
    )
    share = jnp.linspace(0.0, 1.0, 51)[:, None]
    line = control.Plan(
        jaxdyn.State(share * upright.q[None], jnp.zeros((51, 2))), jnp.zeros((50, 1)), design=jnp.zeros(0)
    )
    solver = MultipleShooting()
    search = jax.jit(lambda plan: solver.init(problem, plan))(line)
    iterate, lost = jax.jit(lambda search: solver.step(problem, search)), []
    while search.result == control.ControlResult.OUT_OF_STEPS and len(lost) < 400:
        search = iterate(search)
        lost.append(int(search.lost))
    assert search.result == control.ControlResult.SUCCESSFUL
    assert lost[-1] == 1
    found = solver.solution(problem, search)
    assert float(found.violation) < 1e-8
    assert 17.6533 - 1e-4 < float(found.cost) < 100.0  # the least cost of all known optima, and a moderate one


def test_searches_whose_cost_stays_the_same_end_as_slow():
    """Twenty accepted steps in a row without a change of cost or violation, from which the KKT error is still too large."""
    problem, solver = regulator(), MultipleShooting()
    refused, whole = (StepLength(jnp.asarray(1.0), jnp.asarray(share)) for share in (0.0, 1.0))
    before = eqx.tree_at(
        lambda s: (s.flat, s.violation), solver.init(problem, start_of(problem)), (jnp.asarray(19), jnp.asarray(0.0))
    )

    @jax.jit
    def counted(after, length):
        after = solver._counted(before, after, length)
        return after.flat, solver._adapted(problem, after, length, jnp.asarray(True)).result

    cheaper = eqx.tree_at(lambda s: s.found.cost, before, 0.9 * before.cost)
    violated = eqx.tree_at(lambda s: s.violation, before, jnp.asarray(1e-3))
    assert [int(x) for x in counted(before, whole)] == [20, ControlResult.SLOW]
    assert [int(x) for x in counted(before, refused)] == [19, ControlResult.OUT_OF_STEPS]
    for other in (cheaper, violated):
        assert [int(x) for x in counted(other, whole)] == [0, ControlResult.OUT_OF_STEPS]


@pytest.mark.thorough
@pytest.mark.parametrize("straight_line", [False, True])
def test_long_swing_up_of_an_acrobot(straight_line):
    """In 6000 steps of 1 ms, from guesses that are no motions; at the end, the plan obeys dynamics and bounds and is upright."""
    problem = eqx.tree_at(lambda p: p.duration, folded_acrobot(6000)[0], jnp.asarray(6.0))
    up = jnp.array([np.pi, np.pi, 0.0, 0.0])
    guess = straight(problem, up) if straight_line else control.guess.rest(problem)
    found = solved(problem, MultipleShooting(), guess, max_steps=1000)
    assert int(found.result) == ControlResult.SUCCESSFUL
    checked = control.verify(problem, found.value)
    assert max(float(checked.gap), float(checked.violation), float(checked.excess)) < 1e-7
