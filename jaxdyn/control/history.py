"""Searches that remember how cost and violation went."""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxdyn.control.plan import Plan
from jaxdyn.control.problem import ControlProblem
from jaxdyn.control.solution import IterativeSolver, Solution


class History(eqx.Module):
    """How a search went; NaN after its end.

    Attributes:
        cost, violation: of the best plan at the start and after each iteration.
    """

    cost: Float[Array, "iterations"]
    violation: Float[Array, "iterations"]


class RecordedSolution(Solution):
    """A solution and how it was reached.

    Attributes:
        history: costs and violations.
    """

    history: History


class RecordedSearch(eqx.Module):
    """A search and its history so far."""

    search: Any
    history: History

    @property
    def iterations(self) -> Int[Array, "*batch"]:
        """Done."""
        return self.search.iterations

    @property
    def result(self) -> Int[Array, "*batch"]:
        """Code of `ControlResult`."""
        return self.search.result


class Recorded(IterativeSolver):
    """Another solver, whose solutions come with their history.

    Attributes:
        solver: finds the plans.
        length: largest number of iterations that are recorded.
    """

    solver: IterativeSolver
    length: int = eqx.field(static=True, default=200)

    def begin(self, problem: ControlProblem, initial: Plan) -> RecordedSearch:
        search = self.solver.begin(problem, initial)
        empty = jnp.full(self.length + 1, jnp.nan, problem.lower.dtype)
        return self._with(problem, search, History(empty, empty))

    def iterate(self, problem: ControlProblem, search: RecordedSearch) -> RecordedSearch:
        return self._with(problem, self.solver.iterate(problem, search.search), search.history)

    def solution(self, problem: ControlProblem, search: RecordedSearch) -> RecordedSolution:
        found = self.solver.solution(problem, search.search)
        common = {field.name: getattr(found, field.name) for field in dataclasses.fields(Solution)}
        return RecordedSolution(**common, history=search.history)

    def _with(self, problem: ControlProblem, search: Any, history: History) -> RecordedSearch:
        found = self.solver.solution(problem, search)
        at = found.iterations
        history = History(history.cost.at[at].set(found.cost), history.violation.at[at].set(found.violation))
        return RecordedSearch(search, history)
