"""Wrong arguments of optimal control: each is refused in one line that names the remedy, and every valid one is accepted."""

import collections
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxdyn import RungeKutta4, State, control, library
from jaxdyn.control import ILQR
from jaxdyn.control.problem import STATE_FIELD
from jaxdyn.control.rates import WithRates
from jaxdyn.mechanism.quantity import quantity
from jaxdyn.results import UnsuccessfulError, UnsuccessfulWarning, raise_unsuccessful

pytestmark = pytest.mark.usefixtures("as_a_user")

SYSTEM = library.system("cart_pole")
MODEL = SYSTEM.model
START = State(jnp.array([0.1, 0.2]), jnp.zeros(2))
PAIR = (START.q, START.v)
DYNAMICS = control.MultibodyDynamics(SYSTEM)


def problem_with(**options: Any) -> control.ControlProblem:
    return control.ControlProblem(
        DYNAMICS, START, **({"duration": 0.4, "steps": 4, "running": control.Effort()} | options)
    )


PROBLEM = problem_with()
PLAN = control.rollout_controls(PROBLEM, jnp.zeros((4, 1)))


class Own(control.CostTerm):
    """A cost of the user with a declared bound."""

    goal: Any = eqx.field(metadata=STATE_FIELD)
    weight: Any = eqx.field(default=1.0, metadata=quantity(minimum=0.0))

    def __call__(self, dynamics, t, x, u):
        return self.weight * jnp.sum(dynamics.difference(self.goal, x))


MISTAKES = {
    "a negative weight": (
        lambda: control.Effort(-1.0),
        r"weights of Effort is -1.0; give values that are not negative",
    ),
    "one negative weight": (
        lambda: control.Effort(np.array([1.0, -1.0])),
        r"is \[1.0, -1.0\]; give values that are not",
    ),
    "a negative radius": (
        lambda: control.Spheres(("pole",), [[0.0, 0.0, 0.0]], [-1.0], [[0.0, 0.0, 0.0]], [1.0]),
        r"Spheres with 1 body and 1 obstacle: radii is \[-1.0\]; give values that are not negative",
    ),
    "a negative weight of a user's cost": (lambda: Own(START, -1.0), r"weight of Own is -1.0; .* not negative"),
    "an unknown optimizer": (
        lambda: control.SingleShooting(optimizer="sgd"),
        r"'sgd'; use one of lbfgs, adam, an instance of GradientTransformation",
    ),
    "a function for an optimizer": (lambda: control.SingleShooting(optax.adam), r"is a function; give 'lbfgs'"),
    "text for a boolean": (lambda: ILQR(second_order="no"), r"second_order of ILQR is 'no'; give True, False or None"),
    "text for parallel": (lambda: control.MultipleShooting(parallel="yes"), r"is 'yes'; give True or False"),
    "a fraction of samples": (
        lambda: control.Sampling("cem", elites=16.5),
        r"elites of Sampling is 16.5; give an integer",
    ),
    "a negative temperature": (
        lambda: control.Sampling("mppi", temperature=-1.0),
        r"temperature of Sampling .* positive",
    ),
    "an unknown rule": (lambda: control.Sampling("mpi"), r"update of Sampling"),
    "a model for a system": (
        lambda: control.MultibodyDynamics(MODEL),
        r"passed a Model; MultibodyDynamics .* System\(model",
    ),
    "a class for an integrator": (
        lambda: control.MultibodyDynamics(SYSTEM, RungeKutta4),
        r"class RungeKutta4; give an instance, RungeKutta4\(\)",
    ),
    "a system for inner dynamics": (lambda: WithRates(SYSTEM), r"is a System; give an instance of Dynamics"),
    "a number for a design": (
        lambda: problem_with(design=3),
        r"design of ControlProblem is an int; give .* Design or None",
    ),
    "a float of steps": (lambda: problem_with(steps=10.0), r"steps is 10.0; give an integer"),
    "a tuple for a target": (
        lambda: problem_with(final=control.Deviation(PAIR)),
        r"Deviation got a tuple .* State\(q, v\)",
    ),
    "a tuple for a target state": (
        lambda: problem_with(final_constraints=control.Equality(control.TargetState(PAIR))),
        r"TargetState got a tuple as the state; give State\(q, v\)",
    ),
    "a tuple for a user's state": (lambda: problem_with(final=Own(PAIR)), r"Own got a tuple as the state"),
    "a position for a pose": (
        lambda: control.FramePose("pole", jnp.zeros(3)),
        r"target of FramePose is .*; give an instance of RigidTransform",
    ),
    "a class for the solver of a controller": (
        lambda: control.RecedingHorizon(PROBLEM, ILQR, PLAN),
        r"solver of RecedingHorizon is the class ILQR; give an instance, ILQR\(\)",
    ),
    "no plan for a controller": (
        lambda: control.RecedingHorizon(PROBLEM, ILQR(), None),
        r"initial .* instance of Plan",
    ),
    "a tuple for the state of a controlled plant": (
        lambda: control.run_receding_horizon(control.RecedingHorizon(PROBLEM, ILQR(), PLAN), PAIR, steps=2),
        r"run_receding_horizon got a tuple as the state",
    ),
    "a problem for a controller": (
        lambda: control.run_receding_horizon(PROBLEM, START, steps=2),
        r"the controller is a ControlProblem; give RecedingHorizon\(",
    ),
    "half an iteration": (lambda: control.solve(PROBLEM, ILQR(), max_steps=1.5), r"max_steps is 1.5; give an integer"),
    "fewer than no iterations": (
        lambda: control.solve(PROBLEM, ILQR(), max_steps=-1),
        r"max_steps is -1; give 0 or more",
    ),
    "half an iteration of a batch": (
        lambda: control.solve_batch(PROBLEM, ILQR(), max_steps=1.5),
        r"max_steps is 1.5; give an integer",
    ),
    "a tuple for the start of a tracked plan": (
        lambda: control.follow(PROBLEM, PLAN, jnp.zeros((4, 1, 4)), PAIR),
        r"follow got a tuple as the state",
    ),
    "no gains": (lambda: control.follow(PROBLEM, PLAN, None, START), r"give gains of shape \(4, 1, 4\)"),
    "controls for a plan": (lambda: control.verify(PROBLEM, PLAN.controls), r"verify: the plan is .*; give a Plan"),
    "a list of controls": (lambda: control.rollout_controls(PROBLEM, [[0.0]] * 4), r"is a list; .* jnp.asarray"),
    "too few centers": (
        lambda: control.Spheres(("pole", "cart"), [[0.0, 0.0, 0.0]], [1.0, 1.0], [[0.0, 0.0, 0.0]], [1.0]),
        r"Spheres with 2 bodies and 1 obstacle: centers has shape \(1, 3\); give shape \(2, 3\)",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_argument_is_refused_in_one_line_with_the_remedy(mistake):
    call, message = MISTAKES[mistake]
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_traced_values_and_scalars_of_numpy_are_accepted():
    assert jax.jit(lambda w: control.Effort(w).weights)(-1.0) == -1.0
    assert problem_with(steps=np.int64(4)).steps == 4
    assert ILQR(second_order=True, penalty=2).penalty == 2
    assert control.SingleShooting(optax.sgd(0.1)).transformation is not None
    similar = collections.namedtuple("Similar", ["init", "update"])(*optax.adam(0.1))
    assert control.SingleShooting(similar).transformation is similar
    points = control.Spheres(("pole",), [[0.0, 0.0, 0.0]], [0.5], [[0.0, 0.0, -1.0]], [0.0])
    assert points.obstacle_radii == 0.0
    assert control.RecedingHorizon(PROBLEM, ILQR(), PLAN, max_steps=np.array(2)).max_steps == 2
    vectors = control.DiscreteDynamics(lambda x, u, t, dt: x + dt * u, 1, 1)
    goal = control.Equality(control.TargetState(jnp.ones(1), of_velocities=True))
    assert control.ControlProblem(vectors, jnp.zeros(1), duration=1.0, steps=2, final_constraints=goal).steps == 2


@pytest.mark.thorough
def test_failures_of_a_mapped_search_are_reported_as_those_of_a_batch_of_rollouts():
    def searched(u, steps):
        return control.solve(PROBLEM, ILQR(), control.rollout_controls(PROBLEM, u), max_steps=steps).result

    far = jnp.stack([jnp.ones((4, 1)), jnp.zeros((4, 1))])
    with pytest.raises(control.UnsolvedError, match=r"2 of 2 failed, .*OUT_OF_STEPS: .* throw=False") as caught:
        jax.vmap(lambda u: searched(u, 0))(far)
    assert caught.value.result == control.ControlResult.OUT_OF_STEPS
    codes = jnp.array([control.ControlResult.SUCCESSFUL, control.ControlResult.OUT_OF_STEPS])
    with pytest.warns(UnsuccessfulWarning, match="1 of 2 failed, the first has index 1"):
        jax.vmap(lambda code: raise_unsuccessful(control.ControlResult, code))(codes)
    with pytest.raises(UnsuccessfulError, match="1 of 2 failed"):
        raise_unsuccessful(control.ControlResult, codes)
    np.testing.assert_array_equal(jax.jit(jax.vmap(lambda u: searched(u, 0)))(far), 0)
