"""Feedback along plans: Riccati's gains, motions that come back, the basin they come back from, and the same in a rollout."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from control_problems import A, B, pendulum, regulator, solved, start_of

import jaxdyn
from jaxdyn.control import (
    ControlProblem,
    ControlResult,
    Equality,
    MultibodyDynamics,
    MultipleShooting,
    Plan,
    Tracker,
    arrives,
    follow,
    rollout_controls,
    tracking_gains,
)


def test_gains_are_those_of_the_riccati_equation():
    problem = regulator()
    Q, R, Q_end = np.diag([2.0, 1.0]), np.eye(1) * 0.3, np.eye(2) * 4.0
    gains = eqx.filter_jit(tracking_gains)(
        problem, start_of(problem), jnp.asarray(Q), jnp.asarray(R), jnp.asarray(Q_end)
    )
    P, expected = Q_end, []
    for _ in range(30):
        K = -np.linalg.solve(0.2 * R + B.T @ P @ B, B.T @ P @ A)
        P = 0.2 * Q + A.T @ P @ A + A.T @ P @ B @ K
        expected.append(K)
    np.testing.assert_allclose(gains, np.stack(expected[::-1]), rtol=1e-10, atol=1e-12)
    usual = eqx.filter_jit(tracking_gains)(problem, start_of(problem), jnp.asarray(Q_end), jnp.asarray(R))
    np.testing.assert_allclose(usual[-1], expected[0], rtol=1e-10, atol=1e-12)  # the weight of the end is Q


def swing_up() -> ControlProblem:
    """A pendulum whose drive is too weak to lift it at once."""
    goal = jaxdyn.State(jnp.array([jnp.pi]), jnp.zeros(1))
    return ControlProblem(
        MultibodyDynamics(pendulum()),
        jaxdyn.State(jnp.zeros(1), jnp.zeros(1)),
        duration=3.0,
        steps=60,
        running=lambda dynamics, t, x, u: u @ u,
        final_constraints=Equality(lambda dynamics, t, x, u: dynamics.difference(goal, x)),
        lower=-3.0,
        upper=3.0,
    )


def test_motions_come_back_to_the_plan():
    """With feedback from far more starts than without; the policy of a rollout makes the same motion."""
    problem = swing_up()
    found = solved(problem, MultipleShooting(), rollout_controls(problem, jnp.full((60, 1), 0.5)))
    assert int(found.result) == ControlResult.SUCCESSFUL
    gains = eqx.filter_jit(tracking_gains)(problem, found.value, jnp.eye(2) * 10.0, jnp.eye(1), jnp.eye(2) * 100.0)
    grid = jnp.stack(jnp.meshgrid(jnp.linspace(-0.3, 0.3, 9), jnp.linspace(-0.6, 0.6, 9)), axis=-1).reshape(-1, 2)
    starts = jaxdyn.State(grid[:, :1], grid[:, 1:])
    tried = eqx.filter_jit(arrives)
    held = tried(problem, found.value, gains, starts, 0.1)
    loose = tried(problem, found.value, jnp.zeros_like(gains), starts, 0.1)
    assert bool(held[40])
    assert bool(loose[40])  # the start of the plan itself
    assert int(jnp.sum(held)) > 3 * int(jnp.sum(loose))
    assert not bool(
        jnp.any(tried(problem, found.value, gains, jax.tree.map(lambda x: x.at[0].set(jnp.nan), starts), 0.1)[0])
    )

    start = jaxdyn.State(jnp.array([0.1]), jnp.array([-0.2]))
    motion = eqx.filter_jit(follow)(problem, found.value, gains, start)
    tracker = Tracker(problem, found.value, gains)
    trajectory = jax.jit(
        lambda start: jaxdyn.rollout(
            problem.dynamics.system, start, tracker, dt=0.05, steps=60, integrator=jaxdyn.RungeKutta4()
        )
    )(start)
    np.testing.assert_allclose(trajectory.saved.q, motion.states.q, atol=1e-9)
    np.testing.assert_allclose(trajectory.final.q, [jnp.pi], atol=0.1)
    assert bool(jnp.all(jnp.abs(motion.controls) <= 3.0))


def test_a_plan_followed_from_its_start_is_itself():
    problem = regulator()
    plan = rollout_controls(problem, jnp.sin(jnp.arange(30.0))[:, None])
    again = eqx.filter_jit(follow)(problem, plan, jnp.full((30, 1, 2), -0.5), problem.initial)
    assert isinstance(again, Plan)
    np.testing.assert_allclose(again.states, plan.states, atol=1e-12)
    np.testing.assert_allclose(again.controls, plan.controls, atol=1e-12)
