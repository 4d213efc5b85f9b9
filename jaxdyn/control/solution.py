"""Solutions, how they ended, and the call that all solvers share."""

import abc
import enum
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxdyn.control.plan import Multipliers, Plan
from jaxdyn.control.problem import ControlProblem


class ControlResult(enum.IntEnum):
    """How a search for a plan ended; one code per lane of a batch."""

    RUNNING = 0
    SOLVED = 1
    STUCK = 2
    INFEASIBLE = 3
    NOT_FINITE = 4

    @property
    def meaning(self) -> str:
        """One line for a report."""
        return {
            ControlResult.RUNNING: "stopped at the largest number of iterations; allow more with max_steps",
            ControlResult.SOLVED: "solved",
            ControlResult.STUCK: "no step makes the plan better any more, and the slope is not zero",
            ControlResult.INFEASIBLE: "conditions that cannot all hold, as far as the search went; relax one, or start elsewhere",
            ControlResult.NOT_FINITE: "the first plan is not finite; start with smaller controls, or shorten the steps",
        }[self]


class Solution(eqx.Module):
    """The best plan found.

    Attributes:
        plan: states, controls, design.
        feedback: gains K, with which u_k + K_k (x - x_k) keeps near the plan; zero at bounds, and from solvers that know none.
        multipliers: of the conditions; zero from solvers that know none.
        cost: of the plan.
        violation: largest amount by which a condition does not hold, states that do not follow from controls included.
        result: code of `ControlResult`.
        iterations: done.
    """

    plan: Plan
    feedback: Float[Array, "N nu nx"]
    multipliers: Multipliers
    cost: Float[Array, ""]
    violation: Float[Array, ""]
    result: Int[Array, ""]
    iterations: Int[Array, ""]


class Solver(eqx.Module):
    """A method that finds plans."""

    @abc.abstractmethod
    def solve(self, problem: ControlProblem, initial: Plan, max_steps: int) -> Solution:
        """The solution that it reaches from a plan."""


class IterativeSolver(Solver):
    """A method that improves plans, iteration by iteration; it may be transformed by JAX."""

    @abc.abstractmethod
    def begin(self, problem: ControlProblem, initial: Plan) -> Any:
        """The search before its first iteration, a module with `result` and `iterations`."""

    @abc.abstractmethod
    def iterate(self, problem: ControlProblem, search: Any) -> Any:
        """The search after one more iteration."""

    @abc.abstractmethod
    def solution(self, problem: ControlProblem, search: Any) -> Solution:
        """What the search has found."""

    def solve(self, problem: ControlProblem, initial: Plan, max_steps: int) -> Solution:
        return self.solution(problem, searched(problem, self, self.begin(problem, initial), max_steps))


def solve(problem: ControlProblem, solver: Solver, initial: Plan, *, max_steps: int = 200) -> Solution:
    """Solve an optimal-control problem from one plan.

    Under `jax.vmap` a batch of problems or plans is solved at once by every `IterativeSolver`; lanes that have ended wait for the
    others, unlike in `solve_batch`.

    Args:
        initial: where to begin; `planned` makes plans of controls.
        max_steps: largest number of iterations.

    Returns:
        The solution; its result code says how the search ended.
    """
    return solver.solve(problem, initial, max_steps)


def searched(problem: ControlProblem, solver: IterativeSolver, search: Any, max_steps: int | Int[Array, ""]) -> Any:
    """A search that has gone on until it ended, or until so many iterations in all."""

    def running(search):
        return (search.result == ControlResult.RUNNING) & (search.iterations < max_steps)

    dynamic, static = eqx.partition(search, eqx.is_array)

    def body(dynamic):
        search = eqx.combine(dynamic, static)
        after = solver.iterate(problem, search)
        kept = jax.tree.map(lambda new, old: jnp.where(running(search), new, old), after, search)
        return eqx.filter(kept, eqx.is_array)

    dynamic = jax.lax.while_loop(lambda dynamic: running(eqx.combine(dynamic, static)), body, dynamic)
    return eqx.combine(dynamic, static)
