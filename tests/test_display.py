"""Objects show themselves in a few lines, whatever their leaves are."""

import re
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import double_pendulum, swinging
from recorded import pendulum_plant
from results_of_searches import ended_fit, unfinished_solution

import jaxdyn
from jaxdyn import JointFriction, State, System
from jaxdyn.control import (
    ControlProblem,
    ControlResult,
    Equality,
    MultibodyDynamics,
)
from jaxdyn.control.verification import Verification
from jaxdyn.identify import FitResult
from jaxdyn.identify.estimates import Uncertainty
from jaxdyn.identify.excitation import Excitation, ExcitationResult, ExcitationStats, Margins
from jaxdyn.identify.fourier_motion import FourierMotion
from jaxdyn.identify.identifiability import BaseParameters

TRAJECTORY = """\
Trajectory('double pendulum', 11 records)
  result   successful
  time     0 to 0.2 s
  steps    20
  dt       0.01 s
  saved    State(q: float64[11,2], v: float64[11,2])
  backend  xla"""


def system() -> System:
    friction = JointFriction([1.0, 2.0], [0.0, 0.0], [1.0, 1.0])
    return System(double_pendulum(), (friction, friction))


SYSTEM = System(double_pendulum())


def moved(state: State) -> jaxdyn.Trajectory:
    return jaxdyn.rollout(SYSTEM, state, dt=0.01, steps=20, save_every=2, backend="xla")


@pytest.fixture(scope="module")
def trajectory() -> jaxdyn.Trajectory:
    return moved(swinging())


def rows(thing) -> dict[str, str]:
    """The rows below the title of a `repr`, which must be short."""
    found = repr(thing).splitlines()
    assert 2 <= len(found) <= 10
    assert all(len(line) <= 120 for line in found)
    return dict(re.fullmatch(r"  (.+?)  +(.*)", line).groups() for line in found[1:])


def title(thing) -> str:
    return repr(thing).splitlines()[0]


def test_a_mechanism_states_its_size_joints_and_type():
    model = jaxdyn.library.stewart_platform().model
    assert title(model) == "Model('stewart_platform', 13 bodies, nq = 25, nv = 24)"
    assert rows(model)["joints"] == "1 free, 6 universal, 6 prismatic"
    assert rows(model)["dtype"] == str(model.dtype)
    assert "batch" not in rows(model)


def test_a_system_states_what_acts_on_it():
    assert title(system()) == "System('double pendulum', 2 bodies, nq = 2, nv = 2)"
    assert rows(system())["forces"] == "2 JointFriction"
    assert rows(system())["controls"] == "2"
    assert rows(jaxdyn.library.stewart_platform())["constraints"] == "head1, head2, head3, head4, head5, head6"


def test_a_batch_of_mechanisms_states_its_shape():
    model = double_pendulum()
    heavier = jax.vmap(lambda mass: eqx.tree_at(lambda m: m.mass, model, mass))(jnp.ones((3, 2)))
    assert rows(heavier)["batch"] == "shape (3,)"
    one_leaf = eqx.tree_at(lambda m: m.mass, model, jnp.ones((5, 4, 2)))
    assert rows(System(one_leaf))["batch"] == "shape (5, 4)"


def test_a_module_that_holds_a_system_shows_its_title():
    shown = repr(MultibodyDynamics(SYSTEM))
    assert shown == "MultibodyDynamics(system=System('double pendulum', 2 bodies, nq = 2, nv = 2))"


def test_a_trajectory_states_how_it_ended_and_what_it_holds(trajectory):
    assert repr(trajectory) == TRAJECTORY


def test_a_batch_of_trajectories_counts_how_they_ended():
    state = swinging()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jaxdyn.simulate.DivergenceWarning)
        found = jax.vmap(lambda k: moved(State(state.q * k, state.v)))(jnp.array([1.0, 2.0, jnp.nan]))
    assert title(found) == "Trajectory('double pendulum', 3 samples, 11 records)"
    assert rows(found)["result"] == "2 successful, 1 diverged"
    assert rows(found)["steps"] == "0 to 20"
    assert rows(found)["dt"] == "0.01 s"


def test_values_that_are_not_known_are_unknown(trajectory):
    shown = []
    jax.jit(lambda state: shown.append(repr(moved(state))))(swinging())
    traced = re.sub("successful|20|0.01 s", "unknown", TRAJECTORY)
    assert shown == [traced]
    assert repr(jax.eval_shape(lambda: trajectory)) == traced.replace("0 to 0.2 s", "unknown")


def test_objects_with_other_leaves_are_shown_too(trajectory):
    things = [trajectory, system(), system().model, swinging(), pendulum_plant()]
    for thing in things:
        for leaf in (None, True, 3, object(), jax.sharding.PartitionSpec("x")):
            shown = repr(jax.tree.map(lambda x, leaf=leaf: leaf, thing))
            assert type(thing).__name__ in shown.splitlines()[0]
            assert shown.count("\n") < 20
    assert repr(eqx.tree_at(lambda s: s.model, system(), 3)).startswith("System(")


def test_arrays_whose_memory_was_given_away_are_unknown(trajectory):
    copy = jax.tree.map(jnp.copy, trajectory)
    copy.steps.delete()
    assert rows(copy)["steps"] == "unknown"


def test_a_search_for_a_plan_states_its_result_and_its_cost():
    dynamics = MultibodyDynamics(SYSTEM)
    effort, still = (lambda d, t, x, u: jnp.sum(u**2)), Equality(lambda d, t, x, u: x.v, "still")
    problem = ControlProblem(dynamics, swinging(), duration=1.0, steps=5, running=effort, final_constraints=still)
    assert title(problem) == "ControlProblem(MultibodyDynamics, nx = 4, nu = 2)"
    assert rows(problem)["system"] == title(dynamics.system)
    assert rows(problem)["duration"] == "1 s in 5 steps"
    assert rows(problem)["final constraints"] == "still"
    found = unfinished_solution()
    assert title(found) == "Solution(out of steps, cost = 1.25)"
    assert rows(found)["result"] == ControlResult.OUT_OF_STEPS.message
    assert rows(found)["violation"] == "0.001"
    assert "controls: float64[5,2]" in rows(found)["value"]
    both = jax.tree.map(lambda x: jnp.stack([x, x + 1]), found)
    assert title(both) == "Solution(2 searches, cost = 1.25 to 2.25)"
    assert rows(both)["result"] == "1 out of steps, 1 successful"
    assert rows(both)["iterations"] == "7 to 8"
    assert repr(both.stats) == "Stats(iterations = 7 to 8, stage = 0 to 1)"


def test_a_check_of_a_plan_states_its_errors_and_whether_the_motion_happens():
    check = Verification(*map(jnp.asarray, (1e-9, 2e-9, 0.0, 1e-3, 0.002)), "RungeKutta4")
    assert title(check) == "Verification(happens)"
    assert rows(check)["miss"] == "0.2 % of the range of the motion"
    assert rows(check)["integration error"] == "0.001"
    both = jax.tree.map(lambda x: jnp.stack([x, x + 1]), check)
    assert title(both) == "Verification(1 happens, 1 does not happen)"
    assert title(jax.eval_shape(lambda: check)) == "Verification(unknown)"


def test_an_exciting_motion_states_its_information_and_its_margins():
    motion = FourierMotion(jnp.zeros(1), jnp.ones((1, 2)), jnp.ones((1, 2)), jnp.asarray(2.0 * jnp.pi))
    margins = Margins(*jnp.array([[0.1], [0.2], [0.0]]))
    base = BaseParameters((), np.zeros(1, int), np.ones((1, 2)), np.ones(2), np.ones(2, bool), np.ones(2, bool))
    stats = ExcitationStats(7)
    found = Excitation(
        motion, jnp.asarray(3.5), margins, base, jnp.array([1.0, 2.0]), ExcitationResult.SUCCESSFUL, stats
    )
    assert title(found) == "Excitation(1 base parameter)"
    assert rows(found)["period"] == "1 s"
    assert rows(found)["of random motions"] == "1 to 2"
    assert rows(found)["margin of effort"] == "0"


def test_a_fit_states_its_result_its_loss_and_its_parameters():
    found = ended_fit()
    assert title(found.parameters) == "Parameters(2 values, 2 unconstrained)"
    assert rows(found.parameters)["subject"] == title(pendulum_plant())
    assert title(found) == "Fit(successful, loss = 2.5)"
    assert rows(found)["result"] == "The fit converged, or took all steps of a solver that has no test of convergence."
    assert rows(found)["iterations"] == "7"
    (mass, _), *_ = found.parameters.labels
    assert rows(found)[mass] == f"{float(found.parameters.values(found.unknowns.x)[0]):.6g} kg"
    several = ended_fit([2.5, jnp.nan], [FitResult.SUCCESSFUL.value, FitResult.STUCK.value])
    assert title(several) == "Fit(2 initial guesses, loss = 2.5)"
    assert rows(several)["result"] == "1 successful, 1 stuck"
    assert rows(jax.eval_shape(lambda: several))["loss"] == "unknown"


def test_an_uncertainty_states_values_with_their_standard_deviations():
    labels = tuple((f"mass [{k}]", "kg") for k in range(30))
    known = Uncertainty(labels, jnp.arange(30.0), 0.01 * jnp.eye(30), jnp.asarray(1.0), ("not identifiable: all",))
    shown = repr(known).splitlines()
    assert shown[0] == "Uncertainty(30 values)"
    assert shown[2].split() == ["warnings", "not", "identifiable:", "all"]
    assert shown[4].split() == ["mass", "[1]", "1", "±", "0.1", "kg"]
    assert shown[9] == "  and 24 more"
    assert len(shown) == 10
    assert rows(jax.eval_shape(lambda: known))["noise scale"] == "unknown"


def test_a_plant_states_its_inputs_and_measurements():
    plant = pendulum_plant()
    assert title(plant) == f"Plant({plant.system.model.name!r}, 1 input, 1 measurement)"
    assert rows(plant)["measured"] == "JointEncoders"
