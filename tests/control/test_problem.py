"""Steps of dynamics that are given as a flow, and the times at which costs and conditions count."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from control_problems import pendulum

import jaxdyn
from jaxdyn.control import (
    ContinuousDynamics,
    ControlProblem,
    DiscreteDynamics,
    Effort,
    Equality,
    Inequality,
    MultibodyDynamics,
    expansion,
    guess,
)
from jaxdyn.control.problem import end_constraints, final_cost, path_constraints, running_cost


def test_a_step_of_a_flow_is_exact_for_cubics_of_time():
    """Each stage takes the controls of the step and its own time, as in Simpson's rule."""
    flow = ContinuousDynamics(lambda x, u, t: jnp.stack([4.0 * t**3, u[0] * t]), 2, 1)
    end = jax.jit(flow.step)(jnp.ones(2), jnp.full(1, 3.0), 1.0, 0.5)
    np.testing.assert_allclose(end, [1.0 + 1.5**4 - 1.0, 1.0 + 1.5 * (1.5**2 - 1.0)], rtol=1e-14)


def test_each_stage_of_a_flow_has_its_own_time():
    """x' = t x twists the order of the stages: their times and states enter in products. Four stages, written out."""
    flow, x, t, h = ContinuousDynamics(lambda x, u, t: t * x, 1, 1), 2.0, 1.0, 0.5
    a = t * x
    b = (t + 0.25) * (x + 0.25 * a)
    c = (t + 0.25) * (x + 0.25 * b)
    d = (t + 0.5) * (x + 0.5 * c)
    end = jax.jit(flow.step)(jnp.full(1, x), jnp.zeros(1), t, h)
    np.testing.assert_allclose(end[0], x + h / 6.0 * (a + 2.0 * b + 2.0 * c + d), rtol=1e-14)


def test_costs_and_conditions_count_at_the_start_of_their_steps_and_at_the_end():
    """Those of step 3 of 10 at 0.6 s if the duration is 2 s; costs of the path by the length of the step."""
    by_time = lambda dynamics, t, x, u: (1.0 + t) * x[0] + u[0]  # noqa: E731
    condition = Equality(lambda dynamics, t, x, u: jnp.stack([t, x[0] + u[0]]))
    problem = ControlProblem(
        ContinuousDynamics(lambda x, u, t: x, 1, 1),
        jnp.zeros(1),
        duration=2.0,
        steps=10,
        running=(by_time, by_time),
        final=by_time,
        constraints=condition,
        final_constraints=condition,
    )
    k, x, u = jnp.asarray(3), jnp.full(1, 5.0), jnp.full(1, 0.5)
    np.testing.assert_allclose(running_cost(problem, k, x, u), 0.2 * 2.0 * (1.6 * 5.0 + 0.5), rtol=1e-14)
    np.testing.assert_allclose(path_constraints(problem, k, x, u), [0.6, 5.5], rtol=1e-14)
    np.testing.assert_allclose(final_cost(problem, x), 3.0 * 5.0, rtol=1e-14)
    np.testing.assert_allclose(end_constraints(problem, x), [2.0, 5.0], rtol=1e-14)


def double_integrator(**options) -> ControlProblem:
    dynamics = ContinuousDynamics(lambda x, u, t: jnp.stack([x[1], u[0]]), 2, 1)
    return ControlProblem(dynamics, jnp.zeros(2), **({"duration": 1.0, "steps": 5} | options))


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"running": lambda x, u: u @ u}, TypeError, "running cost 1.*does not take the arguments dynamics, t, x, u"),
        ({"final": [Effort]}, TypeError, "final cost 1, the class Effort, is a class; pass an instance"),
        ({"running": 3.0}, TypeError, "running cost 1.*is not a function"),
        ({"running": lambda d, t, x, u: x}, ValueError, r"running cost 1.*shape \(2,\); return a scalar"),
        ({"final": lambda d, t, x, u: (x[0], 1.0)}, TypeError, "final cost 1.*returns tuple; return one array"),
        ({"constraints": lambda d, t, x, u: x}, TypeError, "constraint 1 is .*wrap the function in Equality"),
        ({"constraints": Inequality(lambda d, t, x, u: x[0], "track")}, ValueError, "'track'.*return a vector"),
        ({"final_constraints": Equality(lambda x: x, "end")}, TypeError, "final constraint 1, 'end'.*arguments"),
    ],
)
def test_functions_that_do_not_fit_are_answered_when_the_problem_is_built(options, error, said, as_a_user):
    with pytest.raises(error, match=said):
        double_integrator(**options)


def test_dynamics_and_states_that_do_not_fit_are_answered_when_the_problem_is_built(as_a_user):
    system = pendulum()
    x, time = jaxdyn.State(jnp.zeros(1), jnp.zeros(1)), {"duration": 1.0, "steps": 5}
    with pytest.raises(TypeError, match=r"dynamics is System; pass MultibodyDynamics\(system\)"):
        ControlProblem(system, x, **time)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"dynamics is Model; pass MultibodyDynamics\(System\(model\)\)"):
        ControlProblem(system.model, x, **time)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="dynamics is the class MultibodyDynamics"):
        ControlProblem(MultibodyDynamics, x, **time)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"initial is a tuple; give State\(q, v\)"):
        ControlProblem(MultibodyDynamics(system), (jnp.zeros(1), jnp.zeros(1)), **time)
    with pytest.raises(ValueError, match=r"q and v of initial have shapes"):
        ControlProblem(MultibodyDynamics(system), jaxdyn.State(jnp.zeros(2), jnp.zeros(1)), **time)
    with pytest.raises(ValueError, match=r"initial has shape \(3,\); give \(2,\)"):
        ControlProblem(ContinuousDynamics(lambda x, u, t: x, 2, 1), jnp.zeros(3), **time)
    with pytest.raises(TypeError, match="function of DiscreteDynamics does not take the arguments x, u, t, dt"):
        ControlProblem(DiscreteDynamics(lambda x, u: x, 2, 1), jnp.zeros(2), **time)
    with pytest.raises(ValueError, match=r"returns shape \(1,\); return \(2,\)"):
        ControlProblem(ContinuousDynamics(lambda x, u, t: u, 2, 1), jnp.zeros(2), **time)
    listed = ControlProblem(ContinuousDynamics(lambda x, u, t: x, 2, 1), [0.0, 1.0], **time)
    np.testing.assert_array_equal(listed.initial, [0.0, 1.0])


def test_costs_are_in_the_precision_of_the_problem():
    """Weights that were made in double precision, and a mechanism in single precision."""
    with jax.enable_x64(True):
        system = jaxdyn.mechanism.model.as_dtype(pendulum(), jnp.float32)
        effort = Effort(jnp.ones(1, jnp.float64))
        start = jaxdyn.State(jnp.zeros(1, jnp.float32), jnp.zeros(1, jnp.float32))
        problem = ControlProblem(MultibodyDynamics(system), start, duration=1.0, steps=4, running=effort, final=effort)
        assert problem.lower.dtype == problem.running[0].weights.dtype == problem.final[0].weights.dtype == jnp.float32
        cost = running_cost(problem, jnp.asarray(0), start, jnp.full(1, 2.0, jnp.float32))
        assert cost.dtype == jnp.float32
        np.testing.assert_allclose(cost, 0.25 * 0.5 * 4.0, rtol=1e-6)


def test_the_size_of_second_derivatives_of_steps_with_loops_is_that_of_all_columns(monkeypatch):
    """By this size, columns are computed at once or in groups."""
    system = jaxdyn.library.four_bar()
    dynamics = MultibodyDynamics(dataclasses.replace(system, drives=jaxdyn.JointDrives((0,), [1.0])))
    start = dynamics.system.at_rest(jnp.zeros(3))
    problem = ControlProblem(dynamics, start, duration=0.5, steps=10, running=Effort(1.0), lower=-1.0, upper=1.0)
    plan, sizes = guess.rest(problem), {}

    def counted(columns, directions, *, operations, name):
        sizes[name] = operations * len(directions)
        return lambda *args: jax.tree.map(jnp.zeros_like, jax.eval_shape(columns, jnp.asarray(directions), *args))

    monkeypatch.setattr(expansion, "columnwise", counted)
    gaps, none = jnp.zeros((10, 6)), jnp.zeros((10, 0))
    terms = expansion.ConstraintTerms(none, jnp.zeros(0), none, jnp.zeros(0))
    jax.eval_shape(
        lambda plan: expansion.expanded(problem, plan, terms, gaps, costates=gaps, curvature=jnp.ones(())), plan
    )
    assert sizes["expansion, both orders"] > 50_000
