"""Single shooting: optax optimizes the controls and design parameters; the gradients are computed by the adjoint method."""

from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from jaxdyn.compute import per_sample
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
from jaxdyn.control.solution import (
    ControlResult,
    IterativeSolver,
    Solution,
    Stats,
    allowed_violation,
    decrease_tolerance,
    first_result,
)
from jaxdyn.mechanism.quantity import POSITIVE, plain

_WINDOW = 20  # iterations between two tests of convergence


class DescentSearch(eqx.Module):
    """The state of a search by single shooting.

    Attributes:
        unknowns: Controls and design parameters.
        memory: The state of the optimizer.
        plan, cost, violation: The plan that results from the unknowns, with its cost and largest violation.
        multipliers: The multipliers of the constraints.
        merit_before, violation_before: Merit and violation at the last test of convergence.
        iterations, result: The number of iterations, and the code of a `ControlResult`.
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
    """Gradient-based optimization of the controls; reverse-mode differentiation of the simulation computes the gradient.

        SingleShooting(optax.lbfgs())

    The method is simple and needs little memory. It fails for motions that are unstable over several seconds, because the
    sensitivity of the final state to the first controls then exceeds the floating-point precision. Controls and design parameters
    are clipped to their bounds; constraints are included by an augmented Lagrangian.

    Attributes:
        optimizer: The optimizer "lbfgs" (with a line search) or "adam"; in Python also any optimizer of optax, which receives the
            augmented Lagrangian as `value_fn`.
        rate: Learning rate of "adam"; other optimizers do not use it.
        tolerance: Relative decrease of the augmented Lagrangian over 20 iterations below which the search has converged; by
            default 1e-9 in double and 1e-5 in single precision.
        feasibility: Largest violation of a constraint that a solution may have; by default 1e-6 in double and 1e-4 in single
            precision.
        penalty: Initial weight of the quadratic penalty on constraint violations.
    """

    kind: ClassVar[str] = "single_shooting"

    optimizer: Literal["lbfgs", "adam"] | optax.GradientTransformation = eqx.field(static=True, default="lbfgs")
    rate: float = eqx.field(static=True, converter=plain, kw_only=True, default=0.05, metadata=POSITIVE)
    tolerance: float | None = eqx.field(static=True, converter=plain, kw_only=True, default=None, metadata=POSITIVE)
    feasibility: float | None = eqx.field(static=True, converter=plain, kw_only=True, default=None, metadata=POSITIVE)
    penalty: float = eqx.field(static=True, converter=plain, kw_only=True, default=1.0, metadata=POSITIVE)

    def init(self, problem: ControlProblem, initial: Plan) -> DescentSearch:
        unknowns = _within(problem, (initial.controls, initial.design))
        plan = self._plan(problem, unknowns)
        found, multipliers = outcome(problem, plan), no_multipliers(problem, self.penalty)
        infeasible_by = violation(problem, found)
        return DescentSearch(
            unknowns,
            self.transformation.init(unknowns),
            plan,
            found.cost,
            infeasible_by,
            multipliers,
            jnp.full_like(found.cost, jnp.inf),
            infeasible_by,
            jnp.zeros((), int),
            first_result((found, plan)),
        )

    def step(self, problem: ControlProblem, search: DescentSearch) -> DescentSearch:
        def value(unknowns):
            plan = self._plan(problem, _within(problem, unknowns))
            return merit(problem, outcome(problem, plan), search.multipliers)

        optimizer = optax.with_extra_args_support(self.transformation)
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # optax mixes both
            here, gradient = jax.value_and_grad(value)(search.unknowns)
            step, memory = optimizer.update(
                gradient, search.memory, search.unknowns, value=here, grad=gradient, value_fn=value
            )
            unknowns = _within(problem, optax.apply_updates(search.unknowns, step))
        plan = self._plan(problem, unknowns)
        found = outcome(problem, plan)
        finite = jnp.isfinite(found.cost)
        looks = (search.iterations + 1) % _WINDOW == 0
        now = merit(problem, found, search.multipliers)
        tolerance, feasibility = decrease_tolerance(self, now.dtype), allowed_violation(self, now.dtype)
        settled = looks & (search.merit_before - now <= tolerance * jnp.abs(now))
        infeasible_by = violation(problem, found)
        held = infeasible_by <= feasibility
        result = jnp.where(settled & held, ControlResult.SUCCESSFUL.value, search.result)
        result = jnp.where(finite, result, ControlResult.STUCK.value).astype(search.result.dtype)
        multipliers, hopeless = update_multipliers(
            problem, found, search.multipliers, infeasible_by, search.violation_before, feasibility
        )
        result = jnp.where(settled & ~held & hopeless, ControlResult.INFEASIBLE.value, result).astype(result.dtype)

        def kept(new, old):
            return jax.tree.map(lambda new, old: jnp.where(finite, new, old), new, old)

        def followed(new, old):
            return jax.tree.map(lambda new, old: jnp.where(settled, new, old), new, old)

        s = search
        best: Any = kept(
            (unknowns, memory, plan, found.cost, infeasible_by), (s.unknowns, s.memory, s.plan, s.cost, s.violation)
        )
        reset = (multipliers, jnp.full_like(now, jnp.inf), infeasible_by)
        merit_before = jnp.where(looks, now, s.merit_before)
        outer: Any = followed(reset, (s.multipliers, merit_before, s.violation_before))
        return DescentSearch(*best, *outer, iterations=s.iterations + 1, result=result)

    def solution(self, problem: ControlProblem, search: DescentSearch) -> Solution:
        s = search
        feedback = jnp.zeros((problem.steps, problem.dynamics.nu, problem.dynamics.nx), s.cost.dtype)
        return Solution(s.plan, feedback, s.multipliers, s.cost, s.violation, s.result, Stats(s.iterations))

    @property
    def transformation(self) -> optax.GradientTransformation:
        """The optimizer as an object of optax."""
        if isinstance(self.optimizer, str):
            return optax.lbfgs() if self.optimizer == "lbfgs" else optax.adam(self.rate)
        return self.optimizer

    def _plan(self, problem: ControlProblem, unknowns) -> Plan:
        def moving(unknowns):
            return rollout_controls(problem, *unknowns)

        return per_sample(moving, name="motion of controls")(unknowns)


def _within(problem: ControlProblem, unknowns):
    """Controls and design within their bounds."""
    controls, design = unknowns
    design = jnp.clip(design, *problem.design_bounds)
    placed = problem.with_design(design)
    return jnp.clip(controls, placed.lower[None], placed.upper[None]), design
