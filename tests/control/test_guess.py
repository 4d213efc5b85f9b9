"""Initial guesses: where they begin and end, whether they obey the dynamics, and that searches succeed from them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import control
from jaxdyn.control import guess
from jaxdyn.control.plan import gaps

COUNT = 7


def arm(**changed) -> control.ControlProblem:
    """A double pendulum with motors, that moves from hanging to an angle of 0.8 rad."""
    system = jaxdyn.library.system("double_pendulum")
    parts = {
        "duration": 1.0,
        "steps": 20,
        "running": control.Effort(),
        "lower": -30.0,
        "upper": 30.0,
        "final_constraints": control.Equality(control.TargetState(system.at_rest(jnp.array([0.8, 0.0])))),
    }
    dynamics = control.MultibodyDynamics(system)
    return control.ControlProblem(dynamics, system.at_rest(jnp.array([0.2, 0.1])), **parts | changed)


@pytest.fixture(scope="module")
def problem():
    return arm()


@pytest.fixture(scope="module")
def plans(problem):
    return guess.mixed(problem, COUNT, standard_deviation=0.3)


def largest_gaps(problem, plans):
    return np.asarray(jax.jit(jax.vmap(lambda plan: jnp.max(jnp.abs(gaps(problem, plan)))))(plans))


def test_guesses_begin_in_the_initial_state_and_have_the_kinds_that_are_listed(problem, plans):
    kinds = guess.kinds(problem, COUNT)
    assert kinds == ("rest", "held", "straight line", *(2 * ["random path", "random motion"]))
    np.testing.assert_array_equal(plans.states.q[:, 0], np.broadcast_to(problem.initial.q, (COUNT, 2)))
    ends = np.abs(np.asarray(plans.states.q)[:, -1] - [0.8, 0.0]).max(axis=1)
    obeys = largest_gaps(problem, plans) < 1e-9
    for kind, end, motion in zip(kinds, ends, obeys, strict=True):
        if kind in ("straight line", "random path"):
            assert end == 0.0
        assert motion == (kind in ("held", "random motion")), kind
    assert len(np.unique(np.asarray(plans.states.q)[:, 10, 0])) == COUNT - 1  # all but rest and held differ


def test_held_states_stay_and_their_controls_are_those_of_inverse_dynamics(problem, plans):
    system = problem.dynamics.system
    wanted = -jaxdyn.gravity_force(system.model, problem.initial.q)
    np.testing.assert_allclose(plans.controls[1], np.broadcast_to(wanted, (20, 2)), rtol=1e-9)
    line = plans.states.q[2]
    np.testing.assert_allclose(np.diff(line, axis=0), np.broadcast_to([0.03, -0.005], (20, 2)), atol=1e-12)
    np.testing.assert_allclose(plans.states.v[2][1:-1], np.broadcast_to([0.6, -0.1], (19, 2)), atol=1e-12)


def test_bounds_hold_and_random_motions_under_feedback_end_near_their_goal(problem, plans):
    assert np.abs(plans.controls).max() <= 30.0
    np.testing.assert_allclose(plans.states.q[4, -1], [0.8, 0.0], atol=0.5)


@pytest.mark.thorough
def test_searches_need_no_guess_and_report_the_share_of_success_by_kind(problem):
    found = control.solve(problem, control.ILQR())
    batch = control.solve_batch(problem, control.ILQR(), starts=4, progress=False)
    np.testing.assert_allclose(batch.cost, found.cost, rtol=1e-6)
    text = control.describe_optima(batch, kinds=guess.kinds(problem, 4))
    assert "held: 1 of 1 solved" in text
    assert "random path: 1 of 1 solved" in text


def test_without_a_goal_the_simplest_guess_is_the_motion_without_controls():
    free = arm(final_constraints=())
    assert guess.goal_of(free) is None
    simplest = guess.simplest(free)
    np.testing.assert_array_equal(simplest.controls, 0.0)
    assert largest_gaps(free, jax.tree.map(lambda leaf: leaf[None], simplest)) < 1e-12
    with pytest.raises(ValueError, match="goal"):
        guess.straight_line(free)
    assert guess.goal_of(arm(final_constraints=(), final=control.Deviation(free.initial))) is not None


def test_a_free_duration_scales_the_time_steps_and_refuses_reversed_bounds():
    free = arm(design=control.free_duration(1.0, 0.5, 2.0))
    np.testing.assert_allclose(free.with_design(jnp.array([1.5])).dt, 0.075)
    with pytest.raises(ValueError, match="ascending"):
        control.free_duration(1.0, 2.0, 0.5)


def test_random_motion_that_diverges_is_replaced_by_its_path():
    """Time steps of 0.1 s are far too long for these dynamics away from their equilibrium."""
    wild = control.ContinuousDynamics(lambda x, u, t: 300.0 * x**3 + u, 1, 1)
    goal = control.Deviation(jnp.zeros(1), 1.0)
    problem = control.ControlProblem(
        wild, jnp.zeros(1), duration=2.0, steps=20, running=control.Effort(), final=goal, lower=-1.0, upper=1.0
    )
    keys = jax.random.split(jax.random.key(0), 8)
    moved, drawn = (
        jax.jit(jax.vmap(lambda key, motion=motion: guess.random(problem, key, motion=motion)))(keys)
        for motion in (True, False)
    )
    assert np.all(np.isfinite(moved.states))
    replaced = np.all(np.asarray(moved.states == drawn.states), axis=(1, 2))
    assert replaced.any()
    largest = np.max(np.abs(jax.vmap(lambda plan: gaps(problem, plan))(moved)), axis=(1, 2))
    np.testing.assert_array_equal(largest < 1e-9, ~replaced)


@pytest.mark.parametrize("count", [0, -1, 2.5])
def test_a_wrong_number_of_guesses_is_refused(problem, count, as_a_user):
    with pytest.raises(ValueError, match=f"the number of guesses is {count}; give a positive integer"):
        guess.mixed(problem, count)
