"""Steps of dynamics that are given as a flow, and the times at which costs and conditions count."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.control import Condition, ControlProblem, Flow
from jaxdyn.control.problem import end_conditions, final_cost, path_conditions, running_cost


def test_a_step_of_a_flow_is_exact_for_cubics_of_time():
    """Each stage takes the controls of the step and its own time, as in Simpson's rule."""
    flow = Flow(lambda x, u, t: jnp.stack([4.0 * t**3, u[0] * t]), 2, 1)
    end = jax.jit(flow.next)(jnp.ones(2), jnp.full(1, 3.0), 1.0, 0.5)
    np.testing.assert_allclose(end, [1.0 + 1.5**4 - 1.0, 1.0 + 1.5 * (1.5**2 - 1.0)], rtol=1e-14)


def test_each_stage_of_a_flow_has_its_own_time():
    """x' = t x twists the order of the stages: their times and states enter in products. Four stages, written out."""
    flow, x, t, h = Flow(lambda x, u, t: t * x, 1, 1), 2.0, 1.0, 0.5
    a = t * x
    b = (t + 0.25) * (x + 0.25 * a)
    c = (t + 0.25) * (x + 0.25 * b)
    d = (t + 0.5) * (x + 0.5 * c)
    end = jax.jit(flow.next)(jnp.full(1, x), jnp.zeros(1), t, h)
    np.testing.assert_allclose(end[0], x + h / 6.0 * (a + 2.0 * b + 2.0 * c + d), rtol=1e-14)


def test_costs_and_conditions_count_at_the_start_of_their_steps_and_at_the_end():
    """Those of step 3 of 10 at 0.6 s if the duration is 2 s; costs of the path by the length of the step."""
    by_time = lambda dynamics, t, x, u: (1.0 + t) * x[0] + u[0]  # noqa: E731
    condition = Condition(lambda dynamics, t, x, u: jnp.stack([t, x[0] + u[0]]))
    problem = ControlProblem(
        Flow(lambda x, u, t: x, 1, 1),
        jnp.zeros(1),
        duration=2.0,
        steps=10,
        running=(by_time, by_time),
        final=by_time,
        conditions=condition,
        final_conditions=condition,
    )
    k, x, u = jnp.asarray(3), jnp.full(1, 5.0), jnp.full(1, 0.5)
    np.testing.assert_allclose(running_cost(problem, k, x, u), 0.2 * 2.0 * (1.6 * 5.0 + 0.5), rtol=1e-14)
    np.testing.assert_allclose(path_conditions(problem, k, x, u), [0.6, 5.5], rtol=1e-14)
    np.testing.assert_allclose(final_cost(problem, x), 3.0 * 5.0, rtol=1e-14)
    np.testing.assert_allclose(end_conditions(problem, x), [2.0, 5.0], rtol=1e-14)
