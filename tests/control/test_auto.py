"""Choice of the solver: the order of attempts, retries, the verification of plans, and batches."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn import control
from jaxdyn.control import ControlResult, guess
from jaxdyn.control.auto import Stage
from jaxdyn.control.plan import no_multipliers
from jaxdyn.control.solution import Stats

STEPS = 20


# Functions of the module, so that problems alike are compiled once.
INTEGRATOR = control.ContinuousDynamics(lambda x, u, t: jnp.array([x[1], u[0]]), 2, 1)
AT_REST = control.Equality(lambda dynamics, t, x, u: x - jnp.array([1.0, 0.0]))


def double_integrator(duration=1.0, **options):
    """A mass moves by 1 m from rest to rest; the least integral of u^2 / 2 is 6 / T^3."""
    given = {"running": control.Effort(), "final_constraints": AT_REST}
    return control.ControlProblem(INTEGRATOR, jnp.zeros(2), duration=duration, steps=STEPS, **given | options)


class Pretending(control.Solver):
    """Returns the initial guess with this result code."""

    code: int = eqx.field(static=True)

    def solve(self, problem, initial, max_steps):
        gains, zero = jnp.zeros((STEPS, 1, 2)), jnp.zeros(())
        multipliers, stats = no_multipliers(problem, 1.0), Stats(jnp.asarray(1))
        return control.Solution(initial, gains, multipliers, zero - 1.0, zero, jnp.asarray(self.code), stats)


class InThisOrder(control.Auto):
    """`Auto` with given attempts."""

    listed: tuple[Stage, ...] = ()

    def stages(self, problem):
        return self.listed


def names(problem):
    return [stage.name for stage in control.Auto().stages(problem)]


def test_order_of_attempts_follows_the_structure_of_the_problem():
    pytest.importorskip("casadi")
    from_collocation = "multiple_shooting from collocation"
    free = {"final_constraints": (), "final": lambda dynamics, t, x, u: jnp.sum((x - 1.0) ** 2)}
    for_constraints = ["multiple_shooting", "ddp", from_collocation, "multiple_shooting from other guesses"]
    without = ["ilqr", "multiple_shooting", "ddp", from_collocation, "ilqr from other guesses"]
    assert names(double_integrator()) == for_constraints
    assert names(double_integrator(**free)) == without
    assert names(double_integrator(**free, design=control.free_duration(1.0, 0.5, 2.0))) == for_constraints
    discrete = control.DiscreteDynamics(lambda x, u, t, dt: x + dt * jnp.array([x[1], u[0]]), 2, 1)
    in_steps = control.ControlProblem(discrete, jnp.zeros(2), duration=1.0, steps=3, running=control.Effort())
    assert from_collocation not in names(in_steps)
    assert from_collocation not in names(control.with_rates(in_steps, 1.0))
    with jax.enable_x64(False):
        assert from_collocation not in names(double_integrator())


def test_first_solver_that_supports_the_problem_solves_it():
    problem = double_integrator()
    found = control.solve(problem, control.Auto())
    assert ControlResult(int(found.result)) == ControlResult.SUCCESSFUL
    assert int(found.stats.stage) == 0
    assert float(found.cost) == pytest.approx(6.0, rel=0.01)
    assert control.Auto().describe(problem, found) == "1 of 1 plans verified: 1 by multiple_shooting"


def test_next_solver_is_tried_after_one_that_fails_and_after_one_whose_plan_is_refuted():
    problem = double_integrator()
    shooting = Stage("shooting", control.MultipleShooting())
    failing, wrong = (
        Stage(code.name, Pretending(code.value)) for code in (ControlResult.STUCK, ControlResult.SUCCESSFUL)
    )
    found = control.solve(problem, InThisOrder(listed=(failing, wrong, shooting)))
    alone = control.solve(problem, InThisOrder(listed=(shooting,)))
    assert int(found.stats.stage) == 2
    assert float(found.cost) == pytest.approx(float(alone.cost), rel=1e-9)
    assert int(found.stats.iterations) == int(alone.stats.iterations) + 2  # `Pretending` makes one iteration
    with pytest.raises(control.UnsolvedError, match="independent check"):
        control.solve(problem, InThisOrder(listed=(wrong, failing)))


def test_last_attempt_starts_from_other_guesses():
    problem = double_integrator()
    first = Stage("first", Pretending(ControlResult.STUCK.value))
    last = Stage("others", control.MultipleShooting(), other_guesses=True)
    not_finite = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), guess.rest(problem))
    two = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), not_finite)
    found = control.solve_batch(problem, InThisOrder(listed=(first, last), starts=3), two, progress=False)
    assert float(found.cost[0]) == pytest.approx(6.0, rel=0.01)
    # The plan counts once, and not as a success of each given guess.
    assert found.result.tolist() == [ControlResult.SUCCESSFUL, ControlResult.STUCK]


def test_collocation_prepares_the_guess_of_multiple_shooting():
    pytest.importorskip("casadi")
    problem = double_integrator()
    (prepared,) = (stage for stage in control.Auto().stages(problem) if stage.prepared is not None)
    found = control.solve(problem, InThisOrder(listed=(prepared,)))
    assert float(control.verify(problem, found.value).gap) < 1e-9
    assert float(found.cost) == pytest.approx(6.0, rel=0.01)


def test_several_guesses_of_one_problem_are_tried_again_only_if_all_fail():
    problem = double_integrator(lower=-50.0, upper=50.0)
    shooting = control.MultipleShooting()
    guesses = jax.tree.map(lambda leaf: jnp.stack([leaf, jnp.nan * leaf]), guess.rest(problem))
    first = InThisOrder(listed=(Stage("a", shooting), Stage("b", Pretending(ControlResult.SUCCESSFUL.value))))
    found = control.solve_batch(problem, first, guesses, progress=False)
    assert found.result.tolist() == [ControlResult.SUCCESSFUL, ControlResult.NOT_FINITE]
    assert found.stats.stage.tolist() == [0, 0]


def test_each_problem_of_a_batch_is_tried_until_it_is_solved():
    problem = double_integrator(lower=-10.0, upper=10.0)
    durations = jnp.array([1.0, 2.0, 0.1])  # 1 m in 0.1 s needs 400 m/s^2
    arrays, functions = eqx.partition(problem, eqx.is_array)
    batch = eqx.combine(jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), arrays), functions)
    batch = eqx.tree_at(lambda p: p.duration, batch, durations)
    guesses = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), guess.rest(problem))
    listed = (Stage("a", control.MultipleShooting()), Stage("b", control.ILQR(second_order=True)))
    found = control.solve_batch(batch, InThisOrder(listed=listed), guesses, throw=False, progress=False, history=True)
    assert found.result.tolist()[:2] == [ControlResult.SUCCESSFUL] * 2
    assert found.result[2] == ControlResult.INFEASIBLE
    np.testing.assert_allclose(found.cost[:2], 6.0 / durations[:2] ** 3, rtol=0.01)
    assert found.history is not None
    assert found.history.cost.shape == (3, 201)


def test_solver_that_is_not_iterative_solves_a_batch_one_after_the_other():
    problem = double_integrator()
    guesses = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), guess.rest(problem))
    found = control.solve_batch(problem, Pretending(ControlResult.SUCCESSFUL.value), guesses, progress=False)
    assert type(found) is control.Solution
    assert found.cost.tolist() == [-1.0, -1.0]


def test_auto_cannot_be_transformed():
    problem = double_integrator()
    with pytest.raises(TypeError, match="MultipleShooting"):
        jax.jit(lambda plan: control.solve(problem, control.Auto(), plan).cost)(guess.rest(problem))


def test_verify_measures_gaps_violations_and_bounds():
    problem = double_integrator(lower=-2.0, upper=2.0)
    plan = guess.rolled_out(problem, jnp.full((STEPS, 1), 2.0))  # ends at x = 1 m, v = 2 m/s
    exact = control.verify(problem, plan)
    assert float(exact.gap) < 1e-14
    assert float(exact.excess) == 0.0
    assert float(exact.violation) == pytest.approx(2.0, abs=1e-12)
    assert float(exact.integration_error) < 1e-14  # the Runge-Kutta method integrates u exactly
    changed = eqx.tree_at(lambda p: p.controls, plan, plan.controls.at[7, 0].add(0.3))
    found = control.verify(problem, changed)
    assert float(found.gap) == pytest.approx(0.3 / STEPS, rel=1e-9)
    assert float(found.excess) == pytest.approx(0.3)
    moved = eqx.tree_at(lambda p: p.states, plan, plan.states.at[0, 0].add(0.1))
    assert float(control.verify(problem, moved).gap) >= 0.1 - 1e-12
    design = double_integrator(design=control.free_duration(1.0, 0.5, 2.0))
    long = eqx.tree_at(lambda p: p.design, guess.rest(design), jnp.array([2.25]))
    assert float(control.verify(design, long).excess) == pytest.approx(0.25)


def test_verify_estimates_the_error_of_the_time_steps():
    decay = control.ContinuousDynamics(lambda x, u, t: -x, 1, 1)
    problem = control.ControlProblem(decay, jnp.ones(1), duration=4.0, steps=8, running=control.Effort())
    plan = guess.rolled_out(problem)
    h = float(problem.dt)
    of_steps = np.abs(1 - h + h**2 / 2 - h**3 / 6 + h**4 / 24 - np.exp(-h)) * np.abs(np.asarray(plan.states[:-1, 0]))
    assert float(control.verify(problem, plan).integration_error) == pytest.approx(np.sum(of_steps), rel=0.01)
    discrete = control.DiscreteDynamics(lambda x, u, t, dt: 0.9 * x, 1, 1)
    problem = control.ControlProblem(discrete, jnp.ones(1), duration=4.0, steps=8, running=control.Effort())
    assert np.isnan(float(control.verify(problem, guess.rolled_out(problem)).integration_error))
