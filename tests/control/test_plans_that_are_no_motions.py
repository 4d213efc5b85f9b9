"""Searches of ILQR from states that do not follow from each other: gaps close along the search, and motions come out."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from control_problems import cost_to_go_of_regulator, regulator, solved, start_of

import jaxdyn
from jaxdyn.control import (
    ILQR,
    ContinuousDynamics,
    ControlProblem,
    ControlResult,
    Design,
    Deviation,
    DiscreteDynamics,
    Effort,
    ElapsedTime,
    Equality,
    FramePose,
    MultibodyDynamics,
    Plan,
    with_rates,
)
from jaxdyn.control.plan import gaps, outcome
from jaxdyn.control.problem import running_cost, split_running_cost
from jaxdyn.spatial.transform import RigidTransform

DRAW = np.random.default_rng(0)


def largest_gap(problem: ControlProblem, plan: Plan) -> float:
    return float(jnp.max(jnp.abs(eqx.filter_jit(gaps)(problem, plan))))


def test_a_linear_problem_is_solved_by_one_step_from_states_that_are_no_motion():
    """Also if the plan begins elsewhere; the cost is that of the Riccati equation, although random states cost less or more."""
    problem = regulator()
    plan = Plan(jnp.asarray(DRAW.normal(size=(31, 2))), jnp.asarray(DRAW.normal(size=(30, 1))), jnp.zeros(0))
    one = solved(problem, ILQR(), plan, max_steps=1)
    P, _ = cost_to_go_of_regulator()
    np.testing.assert_allclose(one.cost, 0.5 * problem.initial @ P @ problem.initial, rtol=1e-9)
    np.testing.assert_array_equal(one.value.states[0], problem.initial)
    assert float(one.violation) < 1e-12
    free = Plan(
        jnp.zeros((31, 2)), jnp.zeros((30, 1)), jnp.zeros(0)
    )  # costs next to nothing, so that the cost has to rise
    assert float(outcome(problem, free).cost) == 0.0
    np.testing.assert_allclose(solved(problem, ILQR(), free).cost, one.cost, rtol=1e-9)


def swing(**options) -> ControlProblem:
    """A damped pendulum that is turned by 2 rad."""
    return ControlProblem(
        ContinuousDynamics(lambda x, u, t: jnp.stack([x[1], u[0] - 4.0 * jnp.sin(x[0]) - 0.2 * x[1]]), 2, 1),
        jnp.zeros(2),
        duration=2.0,
        steps=40,
        running=Effort(0.1),
        final=Deviation(jnp.array([2.0, 0.0]), 50.0),
        **options,
    )


def test_the_optimum_is_that_from_a_motion_and_gaps_are_closed_within_bounds_of_the_controls():
    problem = swing(lower=-4.0, upper=4.0)
    line = jnp.stack([jnp.linspace(0.0, 2.0, 41), jnp.ones(41)], axis=1)
    jump = Plan(line, jnp.zeros((40, 1)), jnp.zeros(0))
    assert largest_gap(problem, jump) > 0.1
    found, from_motion = (solved(problem, ILQR(), plan) for plan in (jump, start_of(problem)))
    assert (int(found.result), int(from_motion.result)) == (ControlResult.SUCCESSFUL, ControlResult.SUCCESSFUL)
    np.testing.assert_allclose(found.cost, from_motion.cost, rtol=1e-8)
    assert largest_gap(problem, found.value) < 1e-6
    assert float(jnp.max(jnp.abs(found.value.controls))) == 4.0


ARM = (  # joint at, quarter turn about y, axis, mass, mass center, moments; measures and masses of a UR5
    ((0.0, 0.0, 0.089159), 0, (0.0, 0.0, 1.0), 3.7, (0.0, 0.0, 0.0), (0.010267, 0.010267, 0.00666)),
    ((0.0, 0.13585, 0.0), 1, (0.0, 1.0, 0.0), 8.393, (0.0, 0.0, 0.28), (0.22689, 0.22689, 0.0151074)),
    ((0.0, -0.1197, 0.425), 0, (0.0, 1.0, 0.0), 2.275, (0.0, 0.0, 0.196125), (0.049443, 0.049443, 0.004095)),
    ((0.0, 0.0, 0.39225), 1, (0.0, 1.0, 0.0), 1.219, (0.0, 0.093, 0.0), (0.0025599, 0.0025599, 0.0021942)),
    ((0.0, 0.093, 0.0), 0, (0.0, 0.0, 1.0), 1.219, (0.0, 0.0, 0.09465), (0.0025599, 0.0025599, 0.0021942)),
    ((0.0, 0.0, 0.09465), 0, (0.0, 1.0, 0.0), 0.1879, (0.0, 0.0823, 0.0), (8.46e-5, 8.46e-5, 0.000132)),
)


def reach() -> ControlProblem:
    """The last joint of the arm goes to a point in 1 s, 100 steps of semi-implicit Euler, with costs as in the arm example of
    Crocoddyl: distance 1 along the path and 1000 at the end, state 0.01 and 0.1, torques 1e-4."""
    builder, parent = jaxdyn.MechanismBuilder("arm"), {}
    for k, (at, quarter, axis, mass, com, moments) in enumerate(ARM):
        turn = (np.sqrt(0.5), 0.0, np.sqrt(0.5), 0.0) if quarter else (1.0, 0.0, 0.0, 0.0)
        inertia = (*moments, 0.0, 0.0, 0.0)
        joint = jaxdyn.Revolute(axis)
        builder.add_body(
            f"link{k}",
            joint=joint,
            position=at,
            orientation=turn,
            mass=mass,
            com=com,
            inertia=inertia,
            armature=0.1,
            **parent,
        )
        parent = {"parent": f"link{k}"}
    start = jaxdyn.State(jnp.array([0.0, -1.2, 1.2, -1.5, -1.57, 0.0]), jnp.zeros(6))
    target = RigidTransform(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([-0.3, 0.4, 0.5]))
    return ControlProblem(
        MultibodyDynamics(jaxdyn.System(builder.build()), jaxdyn.SemiImplicitEuler()),
        start,
        duration=1.0,
        steps=100,
        running=(FramePose("link5", target), Deviation(start, 1e-2), Effort(1e-4)),
        final=(FramePose("link5", target, 1e3), Deviation(start, 0.1)),
    )


@pytest.mark.thorough
def test_an_arm_with_six_joints_reaches_from_its_initial_state_without_torques():
    """FDDP of Crocoddyl 3.1.0 takes 47 iterations to 4.264 without torques. From the torques that carry the weight, 38 iterations,
    and from noise of 1 N m about them, 22 to 38, to 3.7783263; its DDP from the motion without torques finds 1.3465362."""
    problem = reach()
    model = problem.dynamics.system.model
    weight = jaxdyn.inverse_dynamics(model, problem.initial.q, problem.initial.v, jnp.zeros(6))
    noisy = weight[None] + jnp.asarray(np.random.default_rng(0).normal(size=(100, 6)))
    still = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (101, 6)), problem.initial)
    search = eqx.filter_jit(lambda u: jaxdyn.control.solve(problem, ILQR(), Plan(still, u, jnp.zeros(0)), max_steps=40))
    for controls, cost in ((jnp.zeros((100, 6)), 1.3864527), (noisy, 3.7783263)):
        found = search(controls)
        assert int(found.result) == ControlResult.SUCCESSFUL
        np.testing.assert_allclose(found.cost, cost, rtol=1e-7)
        assert float(found.violation) < 1e-10


def free_duration(running) -> ControlProblem:
    """From rest to rest over 1 m; the integral of u^2 plus the time is smallest at T = sqrt(6) s, but for held controls."""
    return ControlProblem(
        DiscreteDynamics(lambda x, u, t, h: jnp.stack([x[0] + h * x[1] + 0.5 * h**2 * u[0], x[1] + h * u[0]]), 2, 1),
        jnp.zeros(2),
        duration=1.0,
        steps=40,
        running=running,
        final=ElapsedTime(),
        final_constraints=Equality(lambda dynamics, t, x, u: x - jnp.array([1.0, 0.0])),
        design=Design(lambda p, T: eqx.tree_at(lambda x: x.duration, p, T[0]), [1.0], lower=0.1, upper=10.0),
    )


def test_free_duration_is_found_without_second_order_dynamics():
    """At the start nothing moves, so that the model is linear in the duration."""
    problem = free_duration(Effort(2.0))
    found = solved(problem, ILQR(second_order=False, penalty=100.0), start_of(problem))
    assert int(found.result) == ControlResult.SUCCESSFUL
    T = (36.0 / (1.0 - 1.0 / 40**2)) ** 0.25
    np.testing.assert_allclose(found.value.design, [T], rtol=1e-5)


def test_with_design_parameters_second_order_is_chosen_and_stated():
    free = free_duration(Effort(2.0))
    assert [ILQR(second_order=choice).uses_curvature(free) for choice in (None, False, True)] == [True, False, True]
    assert [ILQR(second_order=choice).uses_curvature(swing()) for choice in (None, False, True)] == [False, False, True]


def test_residuals_are_parts_of_their_costs():
    """1/2 w r^2 and the rest are the cost, also of a problem with rates and with a factor of the costs."""
    problem = swing().with_cost_scale(jnp.asarray(3.0))
    mixed = eqx.tree_at(lambda p: p.running, problem, (Effort(0.1), lambda dynamics, t, x, u: x[0] ** 4))
    x, u = jnp.array([0.7, -0.2]), jnp.array([1.3])
    for of, state in ((mixed, x), (with_rates(mixed, 0.5), (x, u))):
        split = split_running_cost(of, jnp.asarray(3), state, u)
        whole = split.rest + 0.5 * jnp.sum(split.weights * split.residuals**2)
        np.testing.assert_allclose(whole, running_cost(of, jnp.asarray(3), state, u), rtol=1e-14)
        assert 0.0 < float(split.rest) < float(whole)
