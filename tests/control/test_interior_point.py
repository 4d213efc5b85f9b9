"""Parts of the interior-point method: an error in any unknown is seen, and how far multipliers may go."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from control_problems import acrobot, regulator, start_of

from jaxdyn.control import ControlResult, Design, Equality, Inequality, MultipleShooting, Plan, rollout_controls
from jaxdyn.control.expansion import expanded
from jaxdyn.control.filter_search import fraction_to_boundary, line_search, multipliers_after
from jaxdyn.control.interior_point import DualVariables, eliminate_slacks, optimality_error, without_constraint_terms
from jaxdyn.control.solution import begun, continued


def test_an_error_in_any_unknown_is_an_error_of_optimality():
    """In any multiplier, slack, gap or control; multipliers of opposite bounds that cancel are not complementary to distances."""
    place = Design(
        lambda problem, p: eqx.tree_at(lambda x: x.initial, problem, problem.initial.at[0].set(p[0])),
        [1.0],
        lower=0.5,
        upper=2.0,
    )
    within = Inequality(lambda dynamics, t, x, u: jnp.stack([x[1] - 0.6, -0.8 - x[1]]))
    near = Inequality(lambda dynamics, t, x, u: jnp.stack([x[1] - 0.05, -1.0 - x[1]]))
    there = Equality(lambda dynamics, t, x, u: x[:1] - 0.1)
    problem_given = regulator(design=place, lower=-4.0, upper=4.0, constraints=within, final_constraints=(near, there))
    solver, nx = MultipleShooting(), problem_given.dynamics.nx

    def error(search):
        problem = problem_given.with_cost_scale(search.scale)  # as the search sees it
        pull = eliminate_slacks(problem, search)
        costates = search.multipliers.costates[:, :nx]
        expansion = expanded(problem, search.plan, pull, search.gaps, costates=costates, curvature=jnp.ones(()))
        return optimality_error(problem, search, without_constraint_terms(expansion, pull), expansion, search.barrier)

    def single(part):
        return jnp.eye(part.size).reshape(-1, *part.shape)

    def opposite(part):
        return jnp.ones((1, *part.shape))

    changes = {
        "costates": (lambda s: s.multipliers.costates, single),
        "multipliers along the path": (lambda s: s.multipliers.path, single),
        "multipliers at the end": (lambda s: s.multipliers.end, single),
        "multipliers of bounds of controls": (lambda s: s.multipliers.controls, single),
        "multipliers of bounds of the design": (lambda s: s.multipliers.design, single),
        "slacks along the path": (lambda s: s.slacks.path, single),
        "slacks at the end": (lambda s: s.slacks.end, single),
        "gaps": (lambda s: s.gaps, single),
        "controls": (lambda s: s.plan.controls, single),
        "opposite multipliers along the path": (lambda s: s.multipliers.path, opposite),
        "opposite multipliers at the end": (lambda s: s.multipliers.end, lambda part: jnp.array([[1.0, 1.0, 0.0]])),
        "opposite multipliers of bounds of controls": (lambda s: s.multipliers.controls, opposite),
        "opposite multipliers of bounds of the design": (lambda s: s.multipliers.design, opposite),
    }

    @jax.jit
    def errors():
        search = continued(problem_given, solver, begun(problem_given, solver, start_of(problem_given)), 100).state
        found = {}
        for name, (part, kind) in changes.items():
            several = kind(part(search))
            found[name] = jax.vmap(lambda c, part=part: error(eqx.tree_at(part, search, part(search) + 0.01 * c)))(
                several
            )
        return search.result, error(search), found

    result, none, found = errors()
    assert int(result) == ControlResult.SUCCESSFUL
    assert float(none) < 1e-7
    for name, values in found.items():
        assert float(jnp.min(values)) > 1e-4, name


def test_multipliers_that_must_stay_positive_go_as_far_as_they_can_and_others_with_the_plan():
    """A multiplier of a bound uses up 0.9 of 1 with a step of -3: all multipliers that must stay positive go 0.3 of their ways."""
    f = DualVariables(jnp.ones((1, 2)), jnp.ones((1, 2)), jnp.ones(2), jnp.ones((2, 1, 1)), jnp.ones((2, 1)))
    change = DualVariables(
        jnp.array([[-9.0, 9.0]]),
        jnp.array([[-1.0, -8.0]]),
        jnp.array([-2.0, -7.0]),
        jnp.array([[[5.0]], [[-3.0]]]),
        jnp.array([[-0.5], [4.0]]),
    )
    may = (np.array([True, False]), np.array([True, False]))
    moved = multipliers_after(f, change, jnp.asarray(0.5), jnp.asarray(0.9), may)
    shares = (0.5, np.array([[0.3, 0.5]]), np.array([0.3, 0.5]), 0.3, 0.3)
    for new, old, step, share in zip(*map(jax.tree.leaves, (moved, f, change)), shares, strict=True):
        np.testing.assert_allclose(new, old + share * step, rtol=1e-14)


def test_a_step_may_come_the_closer_to_the_boundary_the_lower_the_barrier_is():
    barriers = jnp.array([0.5, 1e-2, 1e-3, 1e-8])
    np.testing.assert_allclose(jax.vmap(fraction_to_boundary)(barriers), [0.99, 0.99, 0.999, 1 - 1e-8], rtol=1e-15)


def test_where_straight_steps_are_refused_the_motion_that_follows_them_is_tried():
    """It has no gaps and stays inside the bounds, but it is not accepted at any cost: one with huge torques is refused."""
    solver, given = MultipleShooting(), acrobot()
    waves = 0.1 * jnp.sin(jnp.arange(given.steps + 1))
    states = start_of(given).states + waves[:, None]  # with gaps

    @jax.jit
    def searched(bound, share, factor):
        problem = eqx.tree_at(lambda p: (p.lower, p.upper), given, (-bound[None], bound[None]))
        search = solver.init(problem, Plan(states, jnp.zeros((given.steps, 1)), jnp.zeros(0)))
        problem = problem.with_cost_scale(search.scale)
        search = eqx.tree_at(lambda s: s.farthest, search, share * search.farthest)
        terms = eliminate_slacks(problem, search)
        expansion = expanded(problem, search.plan, terms, search.gaps)
        step = solver._step(problem, search, expansion.model, expansion, terms)
        step = step._replace(u=factor * step.u, feedback=jnp.where(factor == 1.0, step.feedback, 0.0))
        after, length = line_search(problem, search, without_constraint_terms(expansion, terms), step)
        return after, length.share > 0.0, rollout_controls(problem, after.plan.controls).states

    all_of_it, hardly_any = (
        jnp.asarray(1.0),
        jnp.asarray(1e-12),
    )  # of the largest infeasibility that is accepted otherwise
    after, accepted, _ = searched(jnp.asarray(8.0), all_of_it, jnp.asarray(1.0))
    assert accepted
    assert float(jnp.max(jnp.abs(after.gaps))) > 1e-3
    after, accepted, motion = searched(jnp.asarray(8.0), hardly_any, jnp.asarray(1.0))
    assert accepted
    np.testing.assert_allclose(after.plan.states, motion, atol=1e-9)
    assert 0.0 < float(jnp.max(jnp.abs(after.plan.controls))) < 8.0
    _, accepted, _ = searched(jnp.asarray(1e9), hardly_any, jnp.asarray(1e3))
    assert not accepted
