"""The call that all solvers share: what it returns, and what it says about a problem that is not solved."""

from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from control_problems import regulator, start_of
from results_of_searches import unfinished_solution

import jaxdyn
from jaxdyn import control
from jaxdyn.control import (
    ILQR,
    Collocation,
    ControlResult,
    UnsolvedError,
    batch,
    optima,
    rollout_controls,
    solve,
    solve_batch,
)
from jaxdyn.results import UnsuccessfulError


def test_messages_of_result_codes_are_sentences_and_only_a_solved_problem_is_successful():
    for code in ControlResult:
        assert code.message[0].isupper()
        assert code.message.endswith(".")
        assert code.successful == (code is ControlResult.SUCCESSFUL)
        assert ControlResult(int(code)) is code


def test_an_unsolved_problem_is_an_error_with_code_and_remedy_unless_codes_are_asked_for():
    problem = regulator()
    initial = start_of(problem)
    with pytest.raises(UnsolvedError, match=r"OUT_OF_STEPS.*max_steps.*throw=False") as caught:
        solve(problem, ILQR(), initial, max_steps=0)
    assert caught.value.result is ControlResult.OUT_OF_STEPS
    assert isinstance(caught.value, UnsuccessfulError)
    assert int(solve(problem, ILQR(), initial, max_steps=0, throw=False).result) == ControlResult.OUT_OF_STEPS
    traced = jax.jit(lambda plan: solve(problem, ILQR(), plan, max_steps=0).result)(initial)
    assert int(traced) == ControlResult.OUT_OF_STEPS
    assert int(solve(problem, ILQR(), initial).result) == ControlResult.SUCCESSFUL


def test_of_several_initial_guesses_one_that_solves_the_problem_is_enough():
    problem = regulator()
    good, bad = start_of(problem), rollout_controls(problem, jnp.full((30, 1), jnp.nan))
    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), bad, good)
    found = solve_batch(problem, ILQR(), both, progress=False)
    assert found.result.tolist() == [ControlResult.NOT_FINITE, ControlResult.SUCCESSFUL]
    with pytest.raises(UnsolvedError, match="NOT_FINITE"):
        solve_batch(problem, ILQR(), jax.tree.map(lambda leaf: leaf[:1], both), progress=False)


def test_a_history_is_recorded_on_request_and_ends_with_the_solution():
    problem = regulator()
    found = solve(problem, ILQR(), start_of(problem), max_steps=10, history=True)
    assert found.history is not None
    end = int(found.stats.iterations)
    np.testing.assert_allclose(found.history.cost[end], found.cost, rtol=1e-15)
    np.testing.assert_allclose(found.history.violation[end], found.violation, rtol=1e-15)
    assert np.all(np.isfinite(found.history.cost[: end + 1]))
    assert np.all(np.isnan(found.history.cost[end + 1 :]))
    assert solve(problem, ILQR(), start_of(problem)).history is None
    with pytest.raises(TypeError, match="cannot record a history"):
        solve(problem, Collocation(), start_of(problem), history=True)


def test_arguments_of_the_wrong_kind_are_answered_at_the_door(as_a_user):
    problem = regulator()
    with pytest.raises(TypeError, match=r"the class ILQR; give an instance, ILQR\(\)"):
        solve(problem, ILQR, start_of(problem))  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="rollout_controls"):
        solve(problem, ILQR(), jnp.zeros((30, 1)))  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="give a ControlProblem"):
        solve(problem.dynamics, ILQR(), start_of(problem))  # pyright: ignore[reportArgumentType]


def test_attributes_of_the_plan_are_named_where_they_are():
    found = solve(regulator(), ILQR(), start_of(regulator()))
    with pytest.raises(AttributeError, match=r"the plan has it, value\.controls"):
        _ = found.controls  # pyright: ignore[reportAttributeAccessIssue]


def test_result_codes_speak_of_constraints_only_where_there_are_some_and_name_a_remedy():
    assert [code for code in ControlResult if "constraint" in code.message] == [ControlResult.INFEASIBLE]
    for code in set(ControlResult) - {ControlResult.SUCCESSFUL}:
        remedy = code.message.split("; ", 1)[1]
        assert remedy.split()[0] in ("increase", "try", "relax", "give", "start", "use"), code


def test_optima_whose_costs_differ_by_rounding_are_one(as_a_user):
    costs = jnp.array([0.0, 1e-30, 1.7e-43, 1.0, 1.00005, 1.2])
    found = SimpleNamespace(cost=costs, result=jnp.full(6, ControlResult.SUCCESSFUL.value))
    assert [(group.cost, group.starts) for group in optima(found)] == [(0.0, 3), (1.0, 2), (1.2, 1)]


def test_a_plan_is_a_table():
    """Names of joints and drives of a mechanism; the controls of the last row do not exist. Other states have numbers."""
    system = jaxdyn.library.system("acrobot")
    start = system.at_rest(jnp.array([0.1, 0.2]))
    problem = control.ControlProblem(
        control.MultibodyDynamics(system), start, duration=1.0, steps=4, running=control.Effort()
    )
    plan = control.guess.rest(problem)
    table = plan.to_dataframe(problem)
    assert list(table) == ["time", "q_shoulder", "q_elbow", "v_shoulder", "v_elbow", "u_elbow"]
    np.testing.assert_allclose(table.to_numpy()[:4], [[0.25 * k, 0.1, 0.2, 0.0, 0.0, 0.0] for k in range(4)])
    assert table["time"].iloc[4] == 1.0
    assert np.isnan(table["u_elbow"].iloc[4])
    rates = control.with_rates(problem, 0.1)
    assert list(control.guess.rest(rates).to_dataframe(rates)) == ["time", "x_0", "x_1", "x_2", "x_3", "x_4", "u_0"]
    with pytest.raises(ValueError, match="several plans"):
        jax.tree.map(lambda x: x[None], plan).to_dataframe(problem)


def test_progress_of_a_batch_has_no_cost_of_plans_that_are_no_solutions():
    ended = ControlResult.OUT_OF_STEPS.value, ControlResult.SUCCESSFUL.value
    one = unfinished_solution()
    found = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), one)
    assert batch._progress_text(found) == "iteration 7, none solved yet, least violation 1.0e-03"
    found = eqx.tree_at(lambda f: (f.result, f.cost), found, (jnp.array(ended), jnp.array([1.0, 2.0])))
    assert batch._progress_text(found) == "iteration 7, best cost 2"
