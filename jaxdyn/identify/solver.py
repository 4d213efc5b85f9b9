"""Solvers of fits: their common interface, their state between two steps, and the result codes of fits."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
from jax.sharding import Mesh

from jaxdyn.identify.least_squares import Problem, Unknowns
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
    """A method that fits the parameters of a `Problem`, step by step."""

    def __check_init__(self):
        check_settings(self)

    @abc.abstractmethod
    def compiled(
        self, problem: Problem, batched: bool, mesh: Mesh | None
    ) -> tuple[Callable[[Unknowns], Any], Callable[[Any], Any]]:
        """Two compiled functions: the first creates a `Search` from an initial guess, the second makes one step of a search.

        Args:
            problem: Problem to solve.
            batched: Whether the unknowns have a leading axis, for several initial guesses.
            mesh: Devices over which the pieces of data are divided; None for one device.

        Raises:
            ValueError: The solver does not support this problem, a batch of initial guesses or several devices.
        """

    @abc.abstractmethod
    def running(self, search: Any) -> bool:
        """Whether another step can improve the search."""
