"""The call that all solvers share: its result, its errors, and its answers to wrong arguments."""

import dataclasses
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from recorded import STEP, double_pendulum_plant, pendulum_plant, simulated

from jaxdyn.dynamics import Tendon, Waypoint
from jaxdyn.identify import fitting
from jaxdyn.identify.charts import Positive, Real
from jaxdyn.identify.covariance import uncertainty
from jaxdyn.identify.fitting import FitError, fit
from jaxdyn.identify.gradient_descent import GradientDescent
from jaxdyn.identify.least_squares import Unknowns
from jaxdyn.identify.levenberg_marquardt import LevenbergMarquardt
from jaxdyn.identify.output_error import OutputError
from jaxdyn.identify.parameters import Parameter, Parameters
from jaxdyn.identify.recording import cut
from jaxdyn.identify.solver import FitResult


@pytest.fixture(scope="module")
def problem():
    """A pendulum whose friction is to be found."""
    windows = cut([simulated(pendulum_plant(), 1.0, seed=1)], duration=0.5, interval=0.02)
    free = [Parameter("system.forces.0.viscous", chart=Positive())]
    parameters = Parameters(pendulum_plant(), free)
    return OutputError(parameters, windows, free_starts=False)


def test_the_value_of_a_fit_is_the_subject_with_the_parameters_that_were_found(problem):
    found = fit(problem, LevenbergMarquardt(tolerance=1e-6), progress=False, history=True)
    assert found.result is FitResult.SUCCESSFUL
    assert found.result.successful
    expected = problem.parameters.place(found.unknowns.x)
    np.testing.assert_array_equal(found.value.system.forces[0].viscous, expected.system.forces[0].viscous)
    assert not np.array_equal(found.unknowns.x, problem.initial.x)
    assert int(found.stats.iterations) == len(found.history)
    assert float(found.history[-1]) == float(found.loss)
    assert np.all(np.diff(found.history) <= 0)
    assert float(found.loss) < float(problem.normal(problem.initial).loss)


def test_a_looser_tolerance_takes_fewer_steps(problem):
    loose, tight = (fit(problem, LevenbergMarquardt(tolerance), progress=False) for tolerance in (0.1, 1e-10))
    assert int(loose.stats.iterations) < int(tight.stats.iterations)
    assert float(loose.loss) >= float(tight.loss)


def test_an_unsuccessful_fit_raises_an_error_that_names_code_and_remedy(problem):
    with pytest.raises(FitError, match=r"FitResult\.OUT_OF_STEPS.*increase max_steps.*throw=False") as caught:
        fit(problem, max_steps=1, progress=False)
    assert caught.value.result is FitResult.OUT_OF_STEPS
    found = fit(problem, max_steps=1, progress=False, throw=False)
    assert found.result is FitResult.OUT_OF_STEPS
    assert found.history is None


def test_messages_of_codes_are_sentences():
    assert len(FitResult) == 4
    for code in FitResult:
        assert code.message[0].isupper()
        assert code.message.endswith(".")
    assert {code for code in FitResult if code.successful} == {FitResult.SUCCESSFUL}


def test_wrong_arguments_are_answered_in_one_line_with_the_remedy(problem, as_a_user):
    x = np.asarray(problem.initial.x)
    attempts = [
        (lambda: fit(problem, max_steps="3"), "max_steps is '3'; give an integer"),
        (lambda: uncertainty(problem, SimpleNamespace(unknowns=problem.initial)), "give its unknowns, fit.unknowns"),
        (lambda: uncertainty(problem.parameters, problem.initial), "give a problem, such as OutputError"),
        (lambda: fit(problem, problem.initial), r"fit\(problem, LevenbergMarquardt\(\), initial\)"),
        (lambda: fit(problem, LevenbergMarquardt), "the class LevenbergMarquardt; give an instance"),
        (lambda: fit(problem, optax.adam(0.1)), r"GradientDescent\(optimizer"),
        (lambda: fit(problem, LevenbergMarquardt(), x), "give Unknowns"),
        (lambda: fit(problem, LevenbergMarquardt(), x.tolist()), "give Unknowns"),
        (lambda: fit(problem.parameters), "give a problem, such as OutputError"),
        (lambda: fit(OutputError), "the class OutputError; give an instance, OutputError"),
    ]
    for attempt, remedy in attempts:
        with pytest.raises(TypeError, match=remedy) as caught:
            attempt()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("steps", [1.5, -1])
def test_a_number_of_steps_is_whole_and_not_negative(problem, steps, as_a_user):
    with pytest.raises(ValueError, match=f"max_steps is {steps}; give an integer that is not negative"):
        fit(problem, max_steps=steps, progress=False)


def test_solvers_of_optax_are_wrapped(problem):
    found = fit(problem, GradientDescent(optax.sgd(1e-9)), max_steps=2, progress=False)
    assert found.result is FitResult.SUCCESSFUL
    assert int(found.stats.iterations) == 2


class TestSeveralProblems:
    """All problems are checked before the first of them is fitted."""

    free = Parameter("system.forces.0.viscous", chart=Positive())

    @pytest.mark.parametrize(
        ("other", "says"),
        [
            (
                [Parameter("system.forces.0.coulomb")],
                r"coulomb \[1_joint\] \(system.forces.0.coulomb\) instead of viscous \[1_joint\]",
            ),
            ([free, Parameter("system.model.mass")], r"mass \[1\] \(system.model.mass\) instead of nothing"),
            ([Parameter("system.forces.0.viscous", chart=Real())], r"another chart of viscous \[1_joint\]"),
        ],
    )
    def test_other_parameters_are_refused(self, problem, other, says, monkeypatch):
        monkeypatch.setattr(fitting, "_programs", lambda *_: pytest.fail("a fit began"))
        later = dataclasses.replace(problem, parameters=Parameters(pendulum_plant(), other))
        with pytest.raises(ValueError, match=rf"^problem 2 has {says}.*; make all problems from the same Parameters$"):
            fit([problem, later], progress=False)

    def test_each_problem_is_checked_first(self, problem, monkeypatch, as_a_user):
        monkeypatch.setattr(fitting, "_programs", lambda *_: pytest.fail("a fit began"))
        with pytest.raises(TypeError, match="give a problem, such as OutputError"):
            fit([problem, problem.parameters], progress=False)

    def test_a_batch_goes_through_all_problems(self, problem):
        """The fits are those from each initial guess alone."""
        x = problem.initial.x[None] + np.array([[0.3], [-0.2]])
        starts = jax.vmap(lambda x: Unknowns(x, problem.initial.local))(x)
        batch = fit([problem, problem], initial=starts, progress=False)
        alone = fit([problem, problem], initial=Unknowns(x[1], problem.initial.local), progress=False)
        assert batch.unknowns.x.shape == (2, 1)
        np.testing.assert_allclose(batch.unknowns.x[1], alone.unknowns.x, atol=1e-6)


@pytest.mark.thorough
def test_a_cable_and_the_length_at_which_it_pulls_are_identified():
    """A cable that a double pendulum pulls taut now and then, with dry friction; all numbers of it are wrong at first."""
    plant = double_pendulum_plant()
    model = plant.system.model
    line = (Waypoint("ground", (0.3, 0.0, 0.2)), Waypoint(model.topology.body_names[-1], (0.0, 0.1, 0.0)))
    cable = Tendon.of(model, path=line, stiffness=8.0, damping=0.3, rest=(0.0, 0.45), friction=0.2)
    plant = eqx.tree_at(lambda p: p.system, plant, plant.system.changed(forces=(*plant.system.forces, cable)))
    free = [Parameter(f"system.forces.1.{name}") for name in ("stiffness", "damping", "friction")]
    free.append(Parameter("system.forces.1.rest", entries=(1,)))
    truth = Parameters(plant, free)
    wrong = truth.place(truth.initial + jnp.array([0.4, -0.5, 0.5, 0.04]))
    windows = cut([simulated(plant, 1.0, seed) for seed in range(3)], duration=0.5, interval=STEP, lead=0.05)
    found = fit(OutputError(Parameters(wrong, free), windows), progress=False)
    np.testing.assert_allclose(truth.values(found.unknowns.x), truth.values(truth.initial), rtol=2e-3)
