"""Rates of controls and bounds of states: the same optimum as written out by hand, and bounds that are kept."""

import jax.numpy as jnp
import numpy as np
from control_problems import A, B, regulator, solved

from jaxdyn.control import (
    Condition,
    ControlProblem,
    ControlResult,
    MultipleShooting,
    StateBounds,
    StepFunction,
    planned,
    with_rates,
    without_rates,
)


def test_rates_cost_what_a_longer_state_would():
    """The regulator with the control as a third coordinate, written out."""
    problem = with_rates(regulator(), 0.3, jnp.array([0.2]))
    byhand = ControlProblem(
        StepFunction(lambda x, r, t, dt: jnp.concatenate([A @ x[:2] + B @ x[2:], x[2:] + dt * r]), 3, 1),
        jnp.array([1.0, -0.5, 0.2]),
        duration=6.0,
        steps=30,
        running=lambda dynamics, t, x, r: (0.5 * x[:2] @ x[:2] + 0.05 * x[2] ** 2) / 0.2 + 0.15 * r @ r,
        final=lambda dynamics, t, x, u: 5.0 * x[:2] @ x[:2],
    )
    ours, theirs = (solved(p, MultipleShooting(), planned(p, jnp.zeros((30, 1)))) for p in (problem, byhand))
    np.testing.assert_allclose(ours.cost, theirs.cost, rtol=1e-10)
    x, u = without_rates(ours.plan.states)
    np.testing.assert_allclose(jnp.concatenate([x[:-1], u], axis=1), theirs.plan.states[:-1], rtol=1e-7, atol=1e-9)


def test_bounds_of_controls_rates_and_states_are_kept():
    """All three act; the control may not jump by more than the rate allows."""
    bounds = StateBounds(jnp.zeros(2), jnp.array([-jnp.inf, -0.52]), jnp.array([0.97, jnp.inf]), nx=2)
    wide = ControlProblem(
        regulator().dynamics,
        jnp.array([0.9, -0.5]),
        duration=6.0,
        steps=30,
        running=regulator().running,
        final=regulator().final,
        conditions=Condition(bounds, "negative", "state"),
        lower=-0.8,
        upper=0.6,
    )
    problem = with_rates(wide, 1e-3, jnp.array([0.1]), lower=-3.0, upper=2.0)
    found = solved(problem, MultipleShooting(), planned(problem, jnp.zeros((30, 1))))
    assert int(found.result) == ControlResult.SOLVED
    x, u = without_rates(found.plan.states)
    assert float(jnp.max(u)) <= 0.6 + 1e-8
    assert float(jnp.min(u)) >= -0.8 - 1e-8
    assert float(jnp.min(x[:-1, 1])) >= -0.52 - 1e-8
    assert float(jnp.max(x[:-1, 0])) <= 0.97 + 1e-8
    jumps = np.diff(np.asarray(u)[:, 0]) / 0.2
    assert jumps.min() >= -3.0 - 1e-8
    assert jumps.max() <= 2.0 + 1e-8
    np.testing.assert_allclose(
        bounds(wide.dynamics, jnp.zeros(()), jnp.array([1.0, -1.0]), u[0]), [0.48, 0.03], atol=1e-12
    )
    # Without bounds each of these would be passed.
    free = solved(regulator(), MultipleShooting(), planned(regulator(), jnp.zeros((30, 1))))
    assert float(jnp.max(jnp.abs(free.plan.controls))) > 0.8
