"""Receding horizon: Riccati's feedback where the problem is linear, swing-ups, disturbances, and the same inside a rollout."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from control_problems import cost_to_go_of_regulator, pendulum, regulator, start_of

import jaxdyn
from jaxdyn.control import (
    ILQR,
    ContinuousDynamics,
    ControlProblem,
    ControlResult,
    Deviation,
    Effort,
    MultibodyDynamics,
    RecedingHorizon,
    rollout_controls,
    run_receding_horizon,
)
from jaxdyn.control.receding_horizon import moved_on
from jaxdyn.control.solution import IterativeSolver
from jaxdyn.simulate.controls import Controller


def test_linear_problem():
    """Each plan is the optimum from where the machine is: the first gain of Riccati, again and again."""
    problem = regulator()
    controller = RecedingHorizon(problem, ILQR(), start_of(problem), max_steps=1)
    run = run_receding_horizon(controller, problem.initial, steps=4, progress=False)
    gain = cost_to_go_of_regulator()[1][0]
    np.testing.assert_allclose(run.controls, run.states[:-1] @ gain.T, rtol=1e-8, atol=1e-10)
    np.testing.assert_array_equal(run.iterations, [1, 1, 1, 1])
    np.testing.assert_array_equal(run.results, [ControlResult.OUT_OF_STEPS] * 4)
    assert run.seconds.shape == (4,)
    assert run.rate > 1.0


def lift() -> ControlProblem:
    """To be lifted by a drive that is too weak to do it at once, seen 1.2 s ahead."""
    up = jaxdyn.State(jnp.array([jnp.pi]), jnp.zeros(1))
    return ControlProblem(
        MultibodyDynamics(pendulum()),
        jaxdyn.State(jnp.zeros(1), jnp.zeros(1)),
        duration=1.2,
        steps=24,
        running=(Deviation(up, jnp.array([1.0, 0.1])), Effort(0.02)),
        final=Deviation(up, jnp.array([30.0, 3.0])),
        lower=-3.5,
        upper=3.5,
    )


@pytest.mark.thorough
def test_swing_up_inside_a_rollout():
    """The motion of the compiled rollout is that of the loop which takes the time; both end upright."""
    problem = lift()
    first = jax.jit(lambda: rollout_controls(problem, jnp.full((24, 1), 1.0)))()
    controller = RecedingHorizon(problem, ILQR(), first, max_steps=3)
    run = run_receding_horizon(controller, problem.initial, steps=80, progress=False)
    trajectory = jax.jit(
        lambda start: jaxdyn.rollout(
            problem.dynamics.system,
            start,
            controller,
            dt=0.05,
            steps=80,
            integrator=jaxdyn.RungeKutta4(),
            save=lambda t, state, u: (state, u),
        )
    )(problem.initial)
    states, controls = trajectory.saved
    np.testing.assert_allclose(states.q, run.states.q, atol=1e-6)
    np.testing.assert_allclose(controls[:-1], run.controls, atol=1e-6)
    np.testing.assert_allclose(jnp.abs(trajectory.final.q), [jnp.pi], atol=1e-2)
    np.testing.assert_allclose(trajectory.final.v, [0.0], atol=1e-2)
    assert float(np.max(np.abs(run.controls))) <= 3.5


def test_a_plan_moves_on_by_one_step_at_the_time_of_its_end():
    """x' = t u: the last controls are held from 3 s to 3.5 s."""
    problem = ControlProblem(ContinuousDynamics(lambda x, u, t: t * u, 1, 1), jnp.ones(1), duration=3.0, steps=6)
    plan = rollout_controls(problem, jnp.arange(6.0)[:, None])
    after = jax.jit(lambda plan: moved_on(problem, plan))(plan)
    np.testing.assert_array_equal(after.states[:-1], plan.states[1:])
    np.testing.assert_allclose(after.states[-1], plan.states[-1] + 5.0 * 0.5 * (3.5**2 - 3.0**2), rtol=1e-14)
    np.testing.assert_array_equal(after.controls[:, 0], [1.0, 2.0, 3.0, 4.0, 5.0, 5.0])


class Lost(IterativeSolver):
    """Finds nothing but numbers that are none."""

    def init(self, problem, initial):
        return eqx.tree_at(lambda s: s.plan.controls, ILQR().init(problem, initial), initial.controls * jnp.nan)

    def step(self, problem, search):
        return eqx.tree_at(lambda s: s.iterations, search, search.iterations + 1)

    def solution(self, problem, search):
        return ILQR().solution(problem, search)


def test_a_plan_that_is_no_number_is_not_followed():
    """The last one is, from where the machine is now."""
    problem = regulator()
    guess = rollout_controls(problem, jnp.sin(jnp.arange(30.0))[:, None])
    controller, here = RecedingHorizon(problem, Lost(), guess, max_steps=1), jnp.array([0.7, 0.1])
    plan, _, _ = jax.jit(lambda here: controller.replan(here, guess))(here)
    np.testing.assert_array_equal(plan.controls, guess.controls)
    np.testing.assert_array_equal(plan.states, guess.states.at[0].set(here))


class Integral(Controller):
    """u = - gain * (integral of q), the memory being the integral."""

    gain: float
    dt: float

    def begin(self, state):
        return jnp.zeros_like(state.q)

    def decide(self, t, state, memory, key):
        memory = memory + self.dt * state.q
        return -self.gain * memory, memory


def test_controllers_keep_their_memory_and_are_differentiable():
    """A block with integral feedback, summed up by hand; the slope in the gain as by differences."""
    builder = jaxdyn.MechanismBuilder("block")
    builder.add_body(
        "block",
        joint=jaxdyn.Prismatic((1.0, 0.0, 0.0)),
        mass=2.0,
        com=(0.0, 0.0, 0.0),
        inertia=(0.1, 0.1, 0.1, 0.0, 0.0, 0.0),
    )
    system = jaxdyn.System(builder.build())
    start = jaxdyn.State(jnp.array([1.0]), jnp.array([0.5]))

    def end(gain):
        controller = Integral(gain, 0.1)
        return jaxdyn.rollout(system, start, controller, dt=0.1, steps=30, save_every=5).final.q[0]

    q, v, total = 1.0, 0.5, 0.0
    for _ in range(30):
        total += 0.1 * q
        v += 0.1 * (-3.0 * total) / 2.0
        q += 0.1 * v
    value, slope = jax.jit(jax.value_and_grad(end))(jnp.asarray(3.0))
    np.testing.assert_allclose(value, q, rtol=1e-12)
    h = 1e-6
    compiled = jax.jit(end)
    np.testing.assert_allclose(slope, (compiled(3.0 + h) - compiled(3.0 - h)) / (2 * h), rtol=1e-7)
    several = eqx.filter_jit(jax.vmap(end))(jnp.array([3.0, 1.0]))
    np.testing.assert_allclose(several[0], q, rtol=1e-12)
