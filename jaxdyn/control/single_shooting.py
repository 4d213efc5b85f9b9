"""Single shooting: only the controls are unknown, gradients come from the adjoint of the motion, and optax follows them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from jaxdyn.control.plan import (
    Multipliers,
    Plan,
    merit,
    no_multipliers,
    outcome,
    rollout_controls,
    update_multipliers,
    violation,
)
from jaxdyn.control.problem import ControlProblem
from jaxdyn.control.solution import ControlResult, IterativeSolver, Solution, Stats
from jaxdyn.lanes import Backend, lane_function


class DescentSearch(eqx.Module):
    """Where single shooting stands.

    Attributes:
        unknowns: controls and design.
        memory: of the optimizer.
        best, cost, violation: the plan of the unknowns, and what it comes to.
        multipliers: of the conditions.
        merit_before, violation_before: when it was last looked whether the search has settled.
        iterations, result: done, and code of `ControlResult`.
    """

    unknowns: tuple[Float[Array, "N nu"], Float[Array, "P"]]
    memory: Any
    plan: Plan
    cost: Float[Array, ""]
    violation: Float[Array, ""]
    multipliers: Multipliers
    merit_before: Float[Array, ""]
    violation_before: Float[Array, ""]
    iterations: Int[Array, ""]
    result: Int[Array, ""]


class SingleShooting(IterativeSolver):
    """Gradient descent on the controls, with any optimizer of optax.

        SingleShooting(optax.lbfgs())

    Hopeless through several seconds of unstable motion, where the end depends on the first controls by factors beyond all digits;
    simple, and cheap in memory, elsewhere. Controls and design are kept within bounds, conditions by an augmented Lagrangian.

    Attributes:
        optimizer: one that needs a line search gets the merit as `value_fn`.
        tolerance: relative decrease of the merit over `window` iterations that is not worth as many more.
        feasibility: largest violation of conditions in a solution.
        penalty: on violations, to begin with.
        window: iterations between looks at the decrease.
        backend: what runs the motion, see `lanes`.
    """

    optimizer: optax.GradientTransformation = eqx.field(static=True)
    tolerance: float = eqx.field(static=True, default=1e-9)
    feasibility: float = eqx.field(static=True, default=1e-6)
    penalty: float = eqx.field(static=True, default=1.0)
    window: int = eqx.field(static=True, default=20)
    backend: Backend = eqx.field(static=True, default="auto")

    def begin(self, problem: ControlProblem, initial: Plan) -> DescentSearch:
        unknowns = _within(problem, (initial.controls, initial.design))
        plan = self._plan(problem, unknowns)
        found, multipliers = outcome(problem, plan, backend=self.backend), no_multipliers(problem, self.penalty)
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves((found, plan))]))
        code = jnp.where(finite, ControlResult.RUNNING.value, ControlResult.NOT_FINITE.value)
        infeasible_by = violation(problem, found)
        return DescentSearch(
            unknowns,
            self.optimizer.init(unknowns),
            plan,
            found.cost,
            infeasible_by,
            multipliers,
            jnp.full_like(found.cost, jnp.inf),
            infeasible_by,
            jnp.zeros((), int),
            code.astype(int),
        )

    def iterate(self, problem: ControlProblem, search: DescentSearch) -> DescentSearch:
        def value(unknowns):
            plan = self._plan(problem, _within(problem, unknowns))
            return merit(problem, outcome(problem, plan, backend=self.backend), search.multipliers)

        optimizer = optax.with_extra_args_support(self.optimizer)
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # optax mixes both
            here, gradient = jax.value_and_grad(value)(search.unknowns)
            step, memory = optimizer.update(
                gradient, search.memory, search.unknowns, value=here, grad=gradient, value_fn=value
            )
            unknowns = _within(problem, optax.apply_updates(search.unknowns, step))
        plan = self._plan(problem, unknowns)
        found = outcome(problem, plan, backend=self.backend)
        finite = jnp.isfinite(found.cost)
        looks = (search.iterations + 1) % self.window == 0
        now = merit(problem, found, search.multipliers)
        settled = looks & (search.merit_before - now <= self.tolerance * jnp.abs(now))
        infeasible_by = violation(problem, found)
        held = infeasible_by <= self.feasibility
        result = jnp.where(settled & held, ControlResult.SOLVED.value, search.result)
        result = jnp.where(finite, result, ControlResult.STUCK.value).astype(search.result.dtype)
        multipliers, hopeless = update_multipliers(
            problem, found, search.multipliers, infeasible_by, search.violation_before, self.feasibility
        )
        result = jnp.where(settled & ~held & hopeless, ControlResult.INFEASIBLE.value, result).astype(result.dtype)

        def kept(new, old):
            return jax.tree.map(lambda new, old: jnp.where(finite, new, old), new, old)

        def followed(new, old):
            return jax.tree.map(lambda new, old: jnp.where(settled, new, old), new, old)

        return DescentSearch(
            kept(unknowns, search.unknowns),
            kept(memory, search.memory),
            kept(plan, search.plan),
            kept(found.cost, search.cost),
            kept(infeasible_by, search.violation),
            followed(multipliers, search.multipliers),
            followed(jnp.full_like(now, jnp.inf), jnp.where(looks, now, search.merit_before)),
            followed(infeasible_by, search.violation_before),
            search.iterations + 1,
            result,
        )

    def solution(self, problem: ControlProblem, search: DescentSearch) -> Solution:
        s = search
        feedback = jnp.zeros((problem.steps, problem.dynamics.nu, problem.dynamics.nx), s.cost.dtype)
        return Solution(s.plan, feedback, s.multipliers, s.cost, s.violation, s.result, Stats(s.iterations))

    def _plan(self, problem: ControlProblem, unknowns) -> Plan:
        def moving(unknowns):
            return rollout_controls(problem, *unknowns)

        return lane_function(moving, backend=self.backend, name="motion of controls")(unknowns)


def _within(problem: ControlProblem, unknowns):
    """Controls and design within their bounds."""
    controls, design = unknowns
    if problem.design is not None:
        design = jnp.clip(design, problem.design.lower, problem.design.upper)
    placed = problem.with_design(design)
    return jnp.clip(controls, placed.lower[None], placed.upper[None]), design
