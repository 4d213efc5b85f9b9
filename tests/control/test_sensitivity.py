"""Derivatives of optimal plans: as central differences of plans solved anew, forward and reverse, with all that acts on a plan."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from control_problems import UP, cart_pole, cost_to_go_of_regulator, regulator, solved, start_of

from jaxdyn import JointDrives, JointFriction, MechanismBuilder, Prismatic, Revolute, System
from jaxdyn.control import (
    ILQR,
    ControlProblem,
    ControlResult,
    Design,
    Equality,
    Inequality,
    MultibodyDynamics,
    MultipleShooting,
    Plan,
    free_duration,
    optimal_plan,
    rollout_controls,
    solve,
)
from jaxdyn.control.guess import straight_line


def test_linear_problem():
    """The optimal controls are linear in the initial state, with the gains of Riccati along the closed loop."""
    problem = regulator()
    solution = solved(problem, MultipleShooting(), start_of(problem))

    def first_control(x):
        return optimal_plan(eqx.tree_at(lambda p: p.initial, problem, x), solution).controls[0]

    slope = jax.jit(jax.jacrev(first_control))(problem.initial)
    np.testing.assert_allclose(slope, cost_to_go_of_regulator()[1][0], rtol=1e-9)


def cart_with(p):
    """A cart-pole with goal, bounds of force and speed (both act), and duration in p."""
    goal = jnp.asarray(UP).at[0].set(p[0])
    slow = Inequality(lambda dynamics, t, x, u: jnp.stack([x[2] - p[3], -p[3] - x[2]]), "speed")
    problem = cart_pole(30, p[1], goal)
    return eqx.tree_at(lambda q: (q.duration, q.constraints), problem, (p[2], (*problem.constraints, slow)))


@pytest.mark.thorough
def test_bounds_and_conditions_that_act():
    p = jnp.array([1.0, 11.0, 2.0, 2.2])
    line = jnp.asarray(np.linspace(0.0, 1.0, 31)[:, None] * UP[None])
    guess = Plan(line, jnp.zeros((30, 1)), jnp.zeros(0))
    again = jax.jit(lambda p: solve(cart_with(p), MultipleShooting(tolerance=1e-10), guess))
    solution = again(p)
    assert int(solution.result) == ControlResult.SUCCESSFUL
    np.testing.assert_allclose(jnp.max(jnp.abs(solution.value.controls)), 11.0, rtol=1e-7)
    np.testing.assert_allclose(jnp.max(jnp.abs(solution.value.states[:, 2])), 2.2, rtol=1e-7)

    def numbers(plan):
        return jnp.concatenate([plan.controls.ravel(), plan.states.ravel()])

    def found(p):
        return numbers(optimal_plan(cart_with(p), solution))

    direction, pull = jnp.array([0.3, 1.0, -0.2, 0.4]), jnp.sin(jnp.arange(30.0 + 31 * 4))
    value, forward = jax.jit(lambda p: jax.jvp(found, (p,), (direction,)))(p)
    np.testing.assert_allclose(value, numbers(solution.value), atol=1e-7)
    h = 1e-5
    ends = [again(p + sign * h * direction) for sign in (1.0, -1.0)]
    assert all(int(end.result) == ControlResult.SUCCESSFUL for end in ends)
    quotient = (numbers(ends[0].value) - numbers(ends[1].value)) / (2.0 * h)
    np.testing.assert_allclose(forward, quotient, atol=1e-5 * float(jnp.max(jnp.abs(quotient))))
    backward = jax.jit(jax.grad(lambda p: pull @ found(p)))(p)
    np.testing.assert_allclose(backward @ direction, pull @ forward, rtol=1e-9)


@pytest.mark.thorough
@pytest.mark.parametrize("upper", [10.0, 0.1])
def test_designs_and_solutions_of_ilqr(upper):
    """Where to start, free and at its bound, as the weight of the end grows."""

    def problem(w):
        place = Design(
            lambda problem, p: eqx.tree_at(
                lambda x: x.initial, problem, jnp.stack([jnp.sin(p[0]), problem.initial[1]])
            ),
            [0.05],
            upper=upper * w,
        )
        free = regulator(design=place)
        return eqx.tree_at(lambda q: q.final, free, (lambda dynamics, t, x, u: w * 5.0 * x @ x + 0.3 * x[0] ** 3,))

    again = jax.jit(lambda w: solve(problem(w), ILQR(second_order=True, tolerance=1e-14), start(w)))

    def start(w):
        return rollout_controls(problem(w), jnp.ones((30, 1)), jnp.array([0.05]))

    w = jnp.asarray(1.0)
    solution = again(w)
    assert int(solution.result) == ControlResult.SUCCESSFUL
    assert bool(solution.value.design[0] == 0.1) == (upper == 0.1)
    _, change = jax.jit(lambda w: jax.jvp(lambda w: optimal_plan(problem(w), solution), (w,), (jnp.ones(()),)))(w)
    ends = [again(w + h) for h in (1e-4, -1e-4)]
    quotient = jax.tree.map(lambda a, b: (a - b) / 2e-4, ends[0].value, ends[1].value)
    for ours, theirs in zip(jax.tree.leaves(change), jax.tree.leaves(quotient), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5)


def crane(mass, force):
    """A load below a trolley, which is moved by 2 m in the least time by a bounded force."""
    builder = MechanismBuilder("crane")
    builder.add_body("trolley", joint=Prismatic((1, 0, 0)), mass=2.0)
    builder.add_body("load", parent="trolley", joint=Revolute((0, 1, 0)), mass=1.0, com=(0, 0, -1.0))
    friction = JointFriction([0.5, 0.02], [0.0, 0.0], [0.1, 0.1])
    system = System(builder.build(), (friction,), JointDrives((0,), [1.0]))
    system = eqx.tree_at(lambda s: s.model.mass, system, system.model.mass.at[1].set(mass))
    goal = jnp.array([2.0, 0.0])
    return ControlProblem(
        MultibodyDynamics(system),
        system.at_rest(jnp.zeros(2)),
        duration=2.0,
        steps=20,
        running=lambda dynamics, t, x, u: 1e-5 * u @ u,
        final=lambda dynamics, t, x, u: t,
        lower=-force,
        upper=force,
        final_constraints=Equality(lambda dynamics, t, x, u: dynamics.difference(system.at_rest(goal), x), "goal"),
        design=free_duration(2.0, 0.5, 8.0),
    )


def test_a_plan_of_least_time_with_controls_at_their_bounds():
    """Controls at bounds react to nothing, and those between them move by many times their effort."""
    at, direction = jnp.array([1.0, 10.0]), jnp.array([1.0, 0.5])
    first = crane(*at)
    guess = straight_line(first, first.dynamics.system.at_rest(jnp.array([2.0, 0.0])))
    again = jax.jit(lambda p: solve(crane(*p), MultipleShooting(tolerance=1e-11), guess))
    solution = again(at)
    assert np.sum(np.abs(np.abs(solution.value.controls) - 10.0) < 1e-3) > 10
    h = 1e-3
    ends = [again(at + sign * h * direction) for sign in (1.0, -1.0)]
    assert all(int(end.result) == ControlResult.SUCCESSFUL for end in (solution, *ends))
    plans = jax.jit(lambda p: jax.jvp(lambda p: optimal_plan(crane(*p), solution), (p,), (direction,))[1])(at)
    quotient = jax.tree.map(lambda a, b: (a - b) / (2.0 * h), ends[0].value, ends[1].value)
    for ours, theirs in zip(jax.tree.leaves(plans), jax.tree.leaves(quotient), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4 * np.max(np.abs(theirs)))
    np.testing.assert_allclose(plans.design, quotient.design, rtol=1e-6)


def test_a_plan_that_just_reaches_a_bound_is_told_outside_of_jit():
    problem = regulator()
    within = lambda bound: eqx.tree_at(lambda p: (p.lower, p.upper), problem, (-bound, bound))  # noqa: E731
    again = jax.jit(lambda bound: solve(within(bound), MultipleShooting(), start_of(problem)))
    largest = jnp.max(jnp.abs(again(jnp.full(1, 1e3)).value.controls))
    for bound, kinks in ((largest * (1.0 + 1e-6), 1), (1.5 * largest, 0), (0.5 * largest, 0)):
        bounded, solution = within(jnp.full(1, bound)), again(jnp.full(1, bound))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            optimal_plan(bounded, solution)
        found = [str(warning.message) for warning in said if "just reach a bound" in str(warning.message)]
        assert len(found) == kinks
        assert all(message.startswith("1 controls and 0 design parameters") for message in found)
