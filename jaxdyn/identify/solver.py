"""Solvers of fits: their common interface, their state between two steps, and the result codes of fits."""

import abc
from typing import Any, ClassVar

import equinox as eqx
from jax.sharding import Mesh

from jaxdyn.identify.least_squares import Normal, Problem, Unknowns
from jaxdyn.mechanism.quantity import check_settings
from jaxdyn.results import ResultCode


class FitResult(ResultCode):
    """Outcome of a fit; one code per initial guess of a batch."""

    OUT_OF_STEPS = 0, "The fit made max_steps steps before it converged; increase max_steps."  # or it continues
    SUCCESSFUL = 1, "The fit converged, or took all steps of a solver that has no test of convergence.", True
    STUCK = (
        2,
        "No step decreases the loss, although its gradient is not zero; start from another initial guess, or compute in "
        "double precision.",
    )
    NOT_FINITE = 3, "The loss is not finite; give a better initial guess, or shorten the windows."


class Search(eqx.Module):
    """State of a solver between two steps, with all data that the next step needs.

    Every search has the following fields or properties: `unknowns`, the best point so far; `loss`, the loss at this point or an
    estimate of it; `iterations`, the number of steps taken; and `result`, the code of a `FitResult`.
    """


class Solver(eqx.Module):
    """A method that fits the parameters of a `Problem`: pure functions, which `fit` compiles, batches and divides over devices.

    Attributes:
        tests_convergence: If false, `fit` takes all steps.
    """

    tests_convergence: ClassVar[bool] = True

    def __check_init__(self):
        check_settings(self)

    def check(self, problem: Problem, batched: bool, mesh: Mesh | None) -> None:
        """Check that the solver supports a problem.

        Args:
            problem: Problem to solve.
            batched: Whether there are several initial guesses.
            mesh: Devices over which the pieces of data are divided; None for one device.

        Raises:
            ValueError: The solver does not support this problem, a batch of initial guesses or several devices.
        """

    @abc.abstractmethod
    def init(self, problem: Problem, initial: Unknowns) -> Any:
        """The `Search` before its first step."""

    @abc.abstractmethod
    def step(self, problem: Problem, search: Any) -> Any:
        """The `Search` after one more step; one that has ended is not changed."""


class NormalSolver(Solver):
    """A solver whose steps compare the best point with one other point, at which the normal equations are known.

    So `fit` can compute the contributions of the pieces of data, which it divides over devices, between two parts of a step.
    """

    @abc.abstractmethod
    def start(self, initial: Unknowns, normal: Normal) -> Any:
        """The `Search` before its first step.

        Args:
            initial: Initial guess.
            normal: Loss and normal equations there.
        """

    @abc.abstractmethod
    def propose(self, problem: Problem, search: Any) -> Any:
        """The point after the next step, in a structure with the attribute `unknowns`."""

    @abc.abstractmethod
    def judge(self, search: Any, trial: Any, normal: Normal) -> Any:
        """The `Search` after this step.

        Args:
            search: State before the step.
            trial: Point after the step, from `propose`.
            normal: Loss and normal equations there.
        """

    def init(self, problem: Problem, initial: Unknowns) -> Any:
        return self.start(initial, problem.normal(initial))

    def step(self, problem: Problem, search: Any) -> Any:
        trial = self.propose(problem, search)
        return self.judge(search, trial, problem.normal(trial.unknowns))
