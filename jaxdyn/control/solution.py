"""Solutions of optimal-control problems, result codes of searches, and the function `solve`, which all solvers share."""

import abc
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from jaxdyn.compute import stored_outside_jit
from jaxdyn.compute.arrays import as_numpy, beside
from jaxdyn.compute.constant import Constant, separated
from jaxdyn.compute.programs import surrounding_traces
from jaxdyn.control import guess
from jaxdyn.control.plan import Multipliers, Plan, check_problem
from jaxdyn.control.problem import ControlProblem
from jaxdyn.control.verification import Verification, happens, is_clear, of_time_steps, verify_each
from jaxdyn.display import Display, Displayed, array_text, number_text, plural
from jaxdyn.mechanism.messages import check_instance, checked_count
from jaxdyn.mechanism.quantity import check_settings
from jaxdyn.results import ResultCode, UnsuccessfulError, message_text, outcome_text, raise_unsuccessful


class ControlResult(ResultCode):
    """Result codes of a search for a plan; a batch of searches has one code for each search."""

    OUT_OF_STEPS = 0, "The search made max_steps iterations before it converged; increase max_steps."  # or it continues
    SUCCESSFUL = 1, "The problem is solved.", True
    STUCK = (
        2,
        "The search stopped before it converged, because no step improves the plan; try another initial guess or solver.",
    )
    INFEASIBLE = (
        3,
        "The search found no plan that meets all constraints; relax one of them, or try another initial guess.",
    )
    NOT_FINITE = 4, "The initial guess is not finite; give smaller controls, or shorten the time steps."
    GAPS = (
        5,
        "The states of the plan do not follow from its controls, and no step closes the gaps; start from rollout_controls, or "
        "shorten the time steps.",
    )
    SLOW = (
        6,
        "The cost has converged, but the optimality condition is not satisfied; use another solver, "
        "ILQR with second_order=True or MultipleShooting, or increase the tolerance.",
    )
    REFUTED = (
        7,
        "The solver ended as solved, but an independent check finds that the plan violates the problem; try another solver, or "
        "shorten the time steps.",
    )
    COARSE = (
        8,
        "The plan satisfies its time steps, but they are too long: a simulation of its controls with shorter steps does not keep "
        "its promise; give more steps, or if the machine is stiff (friction, springs, contacts) an implicit integrator, "
        "MultibodyDynamics(system, SemiImplicitEuler()) or ImplicitMidpoint(). The function verify states the size of the miss.",
    )


class UnsolvedError(UnsuccessfulError):
    """A solver did not solve an optimal-control problem; the message names the `ControlResult` and the remedy."""


class Stats(Displayed, eqx.Module):
    """Computational effort of a search.

    Attributes:
        iterations: The number of iterations that were made.
        stage: The index of the attempt of `Auto` that found the plan, see `Auto.stages`; 0 for other solvers.
    """

    iterations: Int[Array, "*batch"]
    stage: Int[Array, "*batch"] = eqx.field(default=0, converter=lambda stage: jnp.asarray(stage, int))

    def _display(self) -> Display:
        return Display(f"Stats(iterations = {number_text(self.iterations)}, stage = {number_text(self.stage)})", {})


class History(eqx.Module):
    """Cost and constraint violation at each iteration of a search; NaN after the last iteration.

    Attributes:
        cost: The cost at the initial guess and after each iteration.
        violation: The violation at the initial guess and after each iteration.
    """

    cost: Float[Array, "iterations"]
    violation: Float[Array, "iterations"]


class Solution(Displayed, eqx.Module):
    """The best plan that a solver found, with its multipliers and feedback gains.

    Attributes:
        value: The plan: states, controls and design parameters.
        feedback: Gains K (N, nu, nx) of the locally optimal feedback u = u_k + K_k (x - x_k). Rows of K for controls at active
            bounds are zero; all gains are zero if the solver does not compute gains.
        multipliers: Lagrange multipliers of the constraints; zero if the solver does not compute multipliers.
        cost: The cost of the plan.
        violation: The largest violation of a constraint or of the dynamics.
        result: The `ControlResult` code, which states how the search ended.
        stats: Computational effort of the search.
        history: Cost and violation at each iteration, or None if the history was not requested.
        verification: Check of the plan that does not depend on the solver, see `verify`. If its motion does not happen, `solve`
            and `solve_batch` replace the code SUCCESSFUL by COARSE.
    """

    value: Plan
    feedback: Float[Array, "N nu nx"]
    multipliers: Multipliers
    cost: Float[Array, ""]
    violation: Float[Array, ""]
    result: Int[Array, ""]
    stats: Stats
    history: History | None = eqx.field(default=None, kw_only=True)
    verification: Verification | None = eqx.field(default=None, kw_only=True)

    def motion(self, problem: ControlProblem) -> tuple[ControlProblem, Plan, Float[Array, "*batch N nu nx"]]:
        """The problem, plan and feedback gains by which `solve` checks whether the motion of the solution happens."""
        return problem, self.value, self.feedback

    def _display(self) -> Display:
        batch = np.shape(self.cost)
        ended = outcome_text(ControlResult, self.result)
        rows = {"result": ended if batch else message_text(ControlResult, self.result)}
        rows |= {"cost": number_text(self.cost), "violation": number_text(self.violation)}
        if self.verification is not None:
            rows["time steps"] = self.verification.integrator or "of the dynamics"
            rows["simulated motion"] = (
                f"misses the plan by {number_text(100.0 * self.verification.miss)} % of its range"
            )
        rows |= {"iterations": number_text(self.stats.iterations), "value": self.value._display().title}
        if self.history is not None:
            rows["history"] = array_text(self.history.cost)
        title = plural(batch[0], "search", "searches") if batch else ended
        return Display(f"Solution({title}, cost = {rows['cost']})", rows)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            remedy = f"; the plan has it, value.{name}" if name in Plan.__dataclass_fields__ else ""
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{remedy}")


class Solver(eqx.Module):
    """A method that solves optimal-control problems.

    A subclass with a class variable `kind` can be selected in configs of `jaxdyn optimize` by a table `[solver]` with the same
    `kind`. The fields of the class are the other keys of the table; `quantity` declares their units and bounds.

    Raises:
        TypeError: A setting has the wrong type.
        ValueError: A setting is out of its bounds.
    """

    def __check_init__(self):
        check_settings(self)

    def check(self, problem: ControlProblem) -> None:
        """Check that the method supports a problem.

        Raises:
            ValueError: The method does not support the problem; the message names the remedy.
        """

    @abc.abstractmethod
    def solve(self, problem: ControlProblem, initial: Plan, max_steps: int) -> Solution:
        """Search for a solution from an initial guess, with at most `max_steps` iterations."""


class IterativeSolver(Solver):
    """A method whose iterations are pure JAX functions, so that searches can be compiled, batched (`vmap`) and recorded.

    The functions `solve` and `solve_batch` run the iterations; they alone compile, record the history, and resume batches.
    """

    @abc.abstractmethod
    def init(self, problem: ControlProblem, initial: Plan) -> Any:
        """The state of a search before its first iteration, a module with the attributes `result` and `iterations`."""

    @abc.abstractmethod
    def step(self, problem: ControlProblem, search: Any) -> Any:
        """The state of a search after one more iteration."""

    @abc.abstractmethod
    def solution(self, problem: ControlProblem, search: Any) -> Solution:
        """The best plan that the search has found so far."""

    def solve(self, problem: ControlProblem, initial: Plan, max_steps: int) -> Solution:
        return _searched(problem, self, initial, max_steps, None, checks=False)


class Search(NamedTuple):
    """The state of a search, and its history.

    Attributes:
        state: State of the solver.
        history: Cost and violation up to the present iteration, or None.
    """

    state: Any
    history: History | None


def begun(problem: ControlProblem, solver: IterativeSolver, initial: Plan, length: int | None = None) -> Search:
    """A search before its first iteration, which records the history of at most `length` iterations unless `length` is None."""
    state = solver.init(problem, initial)
    if length is None:
        return Search(state, None)
    empty = jnp.full(length + 1, jnp.nan, problem.lower.dtype)
    return _recorded(problem, solver, state, History(empty, empty))


def _recorded(problem: ControlProblem, solver: IterativeSolver, state: Any, history: History) -> Search:
    found = solver.solution(problem, state)
    at = found.stats.iterations
    return Search(state, History(history.cost.at[at].set(found.cost), history.violation.at[at].set(found.violation)))


def continued(
    problem: ControlProblem, solver: IterativeSolver, search: Search, max_steps: int | Int[Array | np.ndarray, ""]
) -> Search:
    """The search after it has ended or made `max_steps` iterations in total; finished searches of a batch are not changed."""
    dynamic, static = eqx.partition(search, eqx.is_array)

    def running(dynamic):
        state = eqx.combine(dynamic, static).state
        return (state.result == ControlResult.OUT_OF_STEPS) & (state.iterations < max_steps)

    def body(dynamic):
        # In a batch, `jax.vmap` of the loop keeps the searches that have finished.
        search = eqx.combine(dynamic, static)
        state, history = solver.step(problem, search.state), search.history
        after = Search(state, None) if history is None else _recorded(problem, solver, state, history)
        return eqx.filter(after, eqx.is_array)

    return eqx.combine(jax.lax.while_loop(running, body, dynamic), static)


def ended(problem: ControlProblem, solver: IterativeSolver, search: Search) -> Solution:
    """The solution of a search, with its history."""
    found = solver.solution(problem, search.state)
    return eqx.tree_at(lambda s: s.history, found, search.history, is_leaf=lambda leaf: leaf is None)


def _searched(
    problem: ControlProblem, solver: IterativeSolver, initial: Plan, max_steps: int, length: int | None, checks: bool
) -> Solution:
    """The solution of a search, outside of traces with its verification if `checks`; there nothing happens between programs."""
    if surrounding_traces():
        return _search(problem, solver, initial, max_steps, length)
    structure, arguments = separated(problem, given_anew)
    known = Constant((solver, length, checks))
    found = _stored_search(structure, known, arguments, initial, np.asarray(max_steps))
    first = found.verification
    if first is None or int(found.result) != ControlResult.SUCCESSFUL or is_clear(np.asarray(first.miss)):
        return found
    return _stored_check(structure, arguments, found)


def _search(problem, solver, initial, max_steps, length):
    return ended(problem, solver, continued(problem, solver, begun(problem, solver, initial, length), max_steps))


def given_anew(problem: ControlProblem) -> Any:
    """The values that differ between the problems of a controller: the initial state, the duration, and the target states."""
    return problem.initial, problem.duration, problem.targets


@stored_outside_jit
def _stored_search(
    structure: Constant, known: Constant, arguments: list, initial: Plan, max_steps: Int[Array | np.ndarray, ""]
) -> Solution:
    problem, (solver, length, checks) = structure.joined(arguments), known.value
    found = _search(problem, solver, initial, max_steps, length)
    if not checks:
        return found
    first = of_time_steps(problem, found.value, None)
    return eqx.tree_at(lambda f: f.verification, found, first, is_leaf=lambda leaf: leaf is None)


@stored_outside_jit
def _stored_check(structure: Constant, arguments: list, found: Solution) -> Solution:
    return verified(structure.joined(arguments), found)


def solve(
    problem: ControlProblem,
    solver: Solver,
    initial: Plan | None = None,
    *,
    max_steps: int = 200,
    throw: bool = True,
    history: bool = False,
) -> Solution:
    """Solve an optimal-control problem from one initial guess.

    With an `IterativeSolver`, `jax.vmap` of this function solves a batch of problems or initial guesses at once. `jax.vmap`
    continues all searches of the batch until the slowest one has ended, whereas `solve_batch` removes finished searches.

    Args:
        problem: The problem.
        solver: The solver, such as `Auto()` or `MultipleShooting()`.
        initial: The initial guess of the plan, see `guess`; by default `guess.simplest(problem)`.
        max_steps: Maximum number of iterations.
        throw: If true, an error is raised if the search does not find a solution. Under `vmap`, the error is raised if no search of
            the batch does, and a warning is issued if some do not. Inside `jit`, only the result code states how the search ended.
        history: If true, the solution records cost and violation at every iteration; this requires an `IterativeSolver`.

    Returns:
        The solution; its result code states how the search ended.

    Raises:
        UnsolvedError: `throw` is true, and the search did not find a solution.
        TypeError: An argument has the wrong type.
        ValueError: The solver does not support the problem, or `max_steps` is negative.
    """
    check_arguments("solve", problem, solver, initial)
    max_steps = max_steps if isinstance(max_steps, Tracer) else checked_count("max_steps", max_steps, 0)
    solver.check(problem)
    initial = guess.simplest(problem) if initial is None else initial
    length = max_steps if history else None
    solver = recordable(solver) if history else solver
    if isinstance(solver, IterativeSolver):
        found = _searched(problem, solver, initial, max_steps, length, checks=True)
    else:
        found = solver.solve(problem, initial, max_steps)
    if found.verification is None:
        found = verified(problem, found)
    if throw:
        raise_unsuccessful(ControlResult, found.result, UnsolvedError)
    return found


def verified(problem: ControlProblem, found: Solution) -> Solution:
    """The solution, or the batch of solutions, with its verification; the result is COARSE where the motion does not happen.

    A verification that the solution has is that of its time steps.
    """
    problem, plans, feedback = motion = found.motion(problem)
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(motion)):  # the check has no derivative
        arrays, rest = eqx.partition(motion, eqx.is_array)
        problem, plans, feedback = eqx.combine(jax.lax.stop_gradient(arrays), rest)
    before = as_numpy(found.result)
    solved = before == ControlResult.SUCCESSFUL
    checked = verify_each(problem, plans, feedback, solved, found.verification)
    wrong = solved & ~happens(as_numpy(checked.miss))
    coarse = np.asarray(ControlResult.COARSE.value, before.dtype)
    traced = any(isinstance(x, Tracer) for x in (wrong, before))
    result = jnp.where(wrong, coarse, before) if traced else beside(found.result, np.where(wrong, coarse, before))
    return eqx.tree_at(
        lambda f: (f.result, f.verification), found, (result, checked), is_leaf=lambda leaf: leaf is None
    )


def first_result(values: Any) -> Int[Array, ""]:
    """The result code of a search before its first iteration; NOT_FINITE unless all values of its initial guess are finite."""
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(values)]))
    return jnp.where(finite, ControlResult.OUT_OF_STEPS.value, ControlResult.NOT_FINITE.value).astype(int)


def in_precision(value: float | None, dtype: Any, double: float, single: float) -> float:
    """The value of a tolerance; if the value is None, the default for double or single precision."""
    return value if value is not None else double if dtype == jnp.float64 else single


def decrease_tolerance(solver: Any, dtype: Any) -> float:
    """The relative decrease of the cost below which a search has converged."""
    return in_precision(solver.tolerance, dtype, 1e-9, 1e-5)


def allowed_violation(solver: Any, dtype: Any) -> float:
    """The largest violation of a constraint that a solution may have."""
    return in_precision(solver.feasibility, dtype, 1e-6, 1e-4)


def recordable(solver: Solver) -> IterativeSolver:
    """The solver, if it can record a history.

    Raises:
        TypeError: The solver is not an `IterativeSolver`.
    """
    if not isinstance(solver, IterativeSolver):
        raise TypeError(f"{type(solver).__name__} cannot record a history; use history=False")
    return solver


def check_arguments(name: str, problem: Any, solver: Any, initial: Any) -> None:
    """Check the types of the arguments of the function called `name`.

    Raises:
        TypeError: A problem, solver or initial guess has the wrong type.
    """
    check_problem(problem, name, initial)
    check_instance(f"{name}: the solver", solver, Solver, "a solver, Auto() for instance")
