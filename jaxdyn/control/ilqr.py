"""iLQR and DDP: a plan is improved by simulating the optimal feedback policy of its linear-quadratic expansion.

The Riccati recursion enforces the bounds of the controls in every time step. Constraints are included by an augmented Lagrangian,
whose multipliers are updated whenever its minimization has converged.
"""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from jaxdyn.compute import per_sample
from jaxdyn.control.expansion import expanded, initial_jacobian, initial_offset, penalty_terms
from jaxdyn.control.linear_quadratic import LinearQuadratic, Policy, box_minimum, change, damped, riccati, steps_of
from jaxdyn.control.plan import (
    Multipliers,
    Outcome,
    Plan,
    merit,
    no_multipliers,
    outcome_and_gaps,
    update_multipliers,
    violation,
)
from jaxdyn.control.problem import ControlProblem, end_constraints, final_cost, path_constraints, running_cost
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

_FRACTIONS = (1.0, 0.5, 0.2, 0.05, 0.01, 1e-3)  # step fractions that are tried at once
_LEAST_GAIN = 1e-4  # required decrease of the merit as a fraction of the decrease predicted by the expansion
_FIRST_DAMPING, _LEAST_DAMPING, _MOST_DAMPING = 1e-3, 1e-7, 1e8
_LONGEST_WAIT = 16  # iterations without curvature after several failures in a row
_COARSE, _FINER = 1e-3, 0.1  # tolerance before the first update of the multipliers, and its factor at each update
_MOST_FLAT = 20  # iterations in a row with a decrease below the tolerance after which a search ends
_MOST_RISE = 2.0  # largest increase of the merit in units of the predicted one, where closing gaps increases it
_FARTHEST = 1e10  # distance from the plan (rad, m, rad/s, m/s) beyond which a simulation is given up


class PolicySearch(eqx.Module):
    """The state of a search, with all data that the next iteration needs.

    Attributes:
        plan, feedback: Best plan so far, and the feedback gains of the policy that led to this plan.
        found, violation: Cost and constraint values of the plan, and its largest violation.
        multipliers: Multipliers of the constraints.
        damping: Regularization of the next step.
        wait, last_wait: Number of iterations until second derivatives of the dynamics are used again, and the value of `wait` after
            the last failure.
        settled: Predicted relative decrease of the merit below which the multipliers are updated.
        violation_before: Violation at the last update of the multipliers.
        gaps: Defects of the plan, see `plan.gaps`.
        flat: Number of successive iterations whose decrease of the merit was below the tolerance.
        iterations, result: Number of iterations, and code of a `ControlResult`.
    """

    plan: Plan
    feedback: Float[Array, "N nu nx"]
    found: Outcome
    violation: Float[Array, ""]
    multipliers: Multipliers
    damping: Float[Array, ""]
    wait: Int[Array, ""]
    last_wait: Int[Array, ""]
    settled: Float[Array, ""]
    violation_before: Float[Array, ""]
    gaps: Float[Array, "N nx"]
    flat: Int[Array, ""]
    iterations: Int[Array, ""]
    result: Int[Array, ""]

    @property
    def cost(self) -> Float[Array, ""]:
        return self.found.cost


class Step(eqx.Module):
    """The solution of the linear-quadratic model.

    Attributes:
        policy: Feedforward and feedback.
        z, u: Steps of (state, design parameters), and steps of the controls.
        slope, curvature: Slope a and curvature b of the model: the step alpha (z, u) changes the cost by alpha a + alpha^2 b/2.
    """

    policy: Policy
    z: Float[Array, "N_1 n"]
    u: Float[Array, "N nu"]
    slope: Float[Array, ""]
    curvature: Float[Array, ""]


class ILQR(IterativeSolver):
    """Iterative linear-quadratic regulator (iLQR), or differential dynamic programming (DDP) with second derivatives of dynamics.

    Each iteration expands the problem about the plan, solves the resulting linear-quadratic problem with the bounds of the
    controls, and simulates its optimal policy with several step fractions at once. The largest fraction that decreases the cost
    sufficiently is accepted. An initial guess may violate the dynamics: the search closes the gaps between its states, and the cost
    may increase until they are closed. iLQR uses the Gauss-Newton Hessian of `LeastSquares` costs. DDP adds the second derivatives
    of residuals and dynamics, and converges quadratically close to a solution. If the linear-quadratic problem is not convex, these
    second derivatives are omitted for some iterations. Constraints are included by an augmented Lagrangian.

    Attributes:
        second_order: If true, second derivatives of the dynamics are used (DDP); if false, they are omitted (iLQR). By default, DDP
            is used for problems with design parameters and iLQR for all others.
        tolerance: Expected relative decrease of the cost below which the search ends; by default 1e-9 in double and 1e-5 in
            single precision.
        feasibility: Largest violation of a constraint that a solution may have; by default 1e-6 in double and 1e-4 in single
            precision.
        penalty: Initial weight of the quadratic penalty on constraint violations.

    Source: Li and Todorov 2004; Jacobson and Mayne 1970; Tassa, Mansard and Todorov 2014; Howell, Jackson and Manchester 2019;
    Mastalli et al. 2020; theory.md (S1)-(S6).
    """

    kind: ClassVar[str] = "ilqr"

    second_order: bool | None = eqx.field(static=True, converter=plain, kw_only=True, default=None)
    tolerance: float | None = eqx.field(static=True, converter=plain, kw_only=True, default=None, metadata=POSITIVE)
    feasibility: float | None = eqx.field(static=True, converter=plain, kw_only=True, default=None, metadata=POSITIVE)
    penalty: float = eqx.field(static=True, converter=plain, kw_only=True, default=1.0, metadata=POSITIVE)

    def uses_curvature(self, problem: ControlProblem) -> bool:
        """Whether second derivatives of the dynamics are used for a problem.

        By default second derivatives are used if the problem has design parameters: a time step depends on the product of a free
        duration and the controls, and the Gauss-Newton method omits the second derivatives of this product.
        """
        return problem.design is not None if self.second_order is None else self.second_order

    def init(self, problem: ControlProblem, initial: Plan) -> PolicySearch:
        initial = _from_initial_state(problem, initial)
        (found, defects), dtype = outcome_and_gaps(problem, initial), problem.lower.dtype
        infeasible_by = jnp.maximum(violation(problem, found), jnp.max(jnp.abs(defects)))
        constrained = bool(problem.constraints or problem.final_constraints)
        zero, none = jnp.zeros((), dtype), jnp.zeros((), int)
        return PolicySearch(
            initial,
            jnp.zeros((problem.steps, problem.dynamics.nu, problem.dynamics.nx), dtype),
            found,
            infeasible_by,
            no_multipliers(problem, self.penalty),
            zero,
            none,
            none,
            jnp.asarray(_COARSE if constrained else decrease_tolerance(self, dtype), dtype),
            infeasible_by,
            defects,
            none,
            none,
            first_result((found, initial)),
        )

    def step(self, problem: ControlProblem, search: PolicySearch) -> PolicySearch:
        plan, multipliers = search.plan, search.multipliers
        use_curvature = search.wait == 0 if self.uses_curvature(problem) else None
        curvature = None if use_curvature is None else use_curvature.astype(search.cost.dtype)
        found = search.found
        model = expanded(
            problem,
            plan,
            penalty_terms(problem, found, multipliers),
            search.gaps,
            feedback=search.feedback,
            curvature=curvature,
        ).model
        step = _step_of(problem, plan, model, search.damping)
        fractions = jnp.asarray(_FRACTIONS, search.cost.dtype)
        plans, outcomes = _rolled_out(problem, plan, step, search.gaps, fractions)
        moves = jnp.max(jnp.abs(search.gaps)) <= allowed_violation(self, search.cost.dtype)
        before = merit(problem, found, multipliers)
        after = jax.vmap(lambda found: merit(problem, found, multipliers))(outcomes)
        expected = -fractions * step.slope - 0.5 * fractions**2 * step.curvature  # (S5)
        least = jnp.where(expected > 0, _LEAST_GAIN, _MOST_RISE) * expected
        good = jnp.isfinite(after) & (before - after >= least) & ((expected > 0) | ~moves)
        best = jnp.argmax(good)
        accepted = good[best]

        def chosen(new, old):
            return jnp.where(accepted, new[best], old)

        next_plan = jax.tree.map(chosen, plans, plan)
        there = jax.tree.map(chosen, outcomes, found)
        closed = jnp.where(accepted, fractions[best], 0.0)
        # If the undamped expansion predicts almost no decrease, the plan has converged for these multipliers.
        eps = jnp.finfo(before.dtype).eps
        # At an optimum, rounding may make the prediction negative.
        rounding = 20.0 * eps * jnp.abs(before) + eps
        worth = jnp.maximum(search.settled, 20.0 * eps) * jnp.abs(before) + eps
        settled = moves & (expected[0] >= -rounding) & (expected[0] <= worth) & (search.damping <= _FIRST_DAMPING)
        damping = _next_damping(search.damping, accepted, fractions[best])
        # A converged plan may reject a step because of rounding. More damping would then prevent that it counts as converged.
        damping = jnp.where(settled & ~accepted, search.damping, damping)
        wait, last_wait = search.wait, search.last_wait
        if use_curvature is not None:
            # With curvature the model may be nonconvex. Then curvature is omitted for a while, and the step is first tried without
            # it.
            failed = use_curvature & ~accepted & ~settled
            last_wait = jnp.where(failed, jnp.minimum(2 * last_wait + 1, _LONGEST_WAIT), last_wait)
            last_wait = jnp.where(use_curvature & accepted, 0, last_wait)
            wait = jnp.where(failed, last_wait, jnp.maximum(wait - 1, 0))
            damping = jnp.where(failed, search.damping, damping)
        small = (before - after[best] <= decrease_tolerance(self, before.dtype) * jnp.abs(before)) & moves & ~settled
        flat = jnp.where(accepted, jnp.where(small, search.flat + 1, 0), search.flat)
        feedback = step.policy.feedback[:, :, : problem.dynamics.nx]
        search = dataclasses.replace(
            search,
            plan=next_plan,
            gaps=(1.0 - closed) * search.gaps,
            feedback=jnp.where(accepted | settled, feedback, search.feedback),
            damping=damping,
            wait=wait,
            last_wait=last_wait,
            flat=flat,
            iterations=search.iterations + 1,
        )
        return self._followed(problem, search, there, settled)

    def solution(self, problem: ControlProblem, search: PolicySearch) -> Solution:
        s = search
        return Solution(s.plan, s.feedback, s.multipliers, s.cost, s.violation, s.result, Stats(s.iterations))

    def _followed(self, problem: ControlProblem, search: PolicySearch, there: Outcome, settled: Array) -> PolicySearch:
        """The search with the outcome of its plan; the multipliers are updated if the plan has converged."""
        multipliers, dtype = search.multipliers, search.cost.dtype
        tolerance, feasibility = decrease_tolerance(self, dtype), allowed_violation(self, dtype)
        infeasible_by = jnp.maximum(violation(problem, there), jnp.max(jnp.abs(search.gaps)))
        held = infeasible_by <= feasibility
        last = search.settled <= tolerance
        result = jnp.where(settled & held & last, ControlResult.SUCCESSFUL.value, ControlResult.OUT_OF_STEPS.value)
        next_multipliers, hopeless = update_multipliers(
            problem, there, multipliers, infeasible_by, search.violation_before, feasibility
        )
        result = jnp.where(settled & ~held & hopeless, ControlResult.INFEASIBLE.value, result)
        lost = jnp.where(
            jnp.max(jnp.abs(search.gaps)) > feasibility, ControlResult.GAPS.value, ControlResult.STUCK.value
        )
        result = jnp.where((search.damping > _MOST_DAMPING) & ~settled, lost, result)
        running = result == ControlResult.OUT_OF_STEPS
        result = jnp.where(running & (search.flat >= _MOST_FLAT), ControlResult.SLOW.value, result)

        def follow(new, old):
            return jnp.where(settled, new, old)

        return dataclasses.replace(
            search,
            found=there,
            violation=infeasible_by,
            multipliers=jax.tree.map(follow, next_multipliers, multipliers),
            settled=follow(jnp.maximum(_FINER * search.settled, tolerance), search.settled),
            violation_before=follow(infeasible_by, search.violation_before),
            result=result.astype(search.result.dtype),
        )


def _step_of(problem: ControlProblem, plan: Plan, model: LinearQuadratic, damping: Float[Array, ""]) -> Step:
    """The step: the policy, and the changes of states and controls for the best initial state and design."""
    backward = per_sample(riccati, name="Riccati recursion")
    policy, design = backward(model, *bounds_of_steps(problem, plan), damping), problem.design
    off = initial_offset(problem, plan, jnp.zeros_like(plan.design))
    if design is not None:
        along, nx = initial_jacobian(problem, plan), problem.dynamics.nx
        gradient = along.T @ (policy.gradients[0] + policy.hessians[0][:, :nx] @ off)
        hessian = along.T @ policy.hessians[0] @ along
        # Where the model is nearly linear in a design parameter, its step is limited instead.
        least = jnp.diag(jnp.abs(gradient) / (1.0 + jnp.abs(plan.design)))
        hessian = damped(jnp.where(np.eye(problem.size, dtype=bool), jnp.maximum(hessian, least), hessian), damping)
        none = jnp.zeros((problem.size, 0), off.dtype)
        step, _ = box_minimum(hessian, gradient, none, design.lower - plan.design, design.upper - plan.design)
        off = jnp.concatenate([off, jnp.zeros_like(step)]) + along @ step

    def steps(model, policy, start):
        # Feedback is not clipped at the bounds here, as in the value function of the policy: clipped steps may diverge.
        z, u = steps_of(model, policy, start)
        return z, u, *change(model, z, u)

    forward = per_sample(steps, name="steps of a policy")
    return Step(policy, *forward(model, policy, off))


def _rolled_out(
    problem: ControlProblem, plan: Plan, step: Step, gaps: Float[Array, "N nx"], fractions: Float[Array, "A"]
) -> tuple[Plan, Outcome]:
    """The plan after each fraction of a step, and its outcome."""

    def rolled(fraction, plan, step, gaps):
        return roll_out(problem, plan, step, gaps, fraction)

    rolling = per_sample(rolled, name="roll-out of a policy")
    return jax.vmap(rolling, in_axes=(0, None, None, None))(fractions, plan, step, gaps)


def roll_out(
    problem: ControlProblem, plan: Plan, step: Step, gaps: Float[Array, "N nx"], fraction: Float[Array, ""]
) -> tuple[Plan, Outcome]:
    """The plan that results from simulating a policy with a fraction of its feedforward and its full feedback, and its outcome.

    The simulation closes the same fraction of the gaps of the plan. Source: theory.md (S4); Mastalli et al. 2020.

    Args:
        problem: Problem to solve.
        plan: Plan before the step.
        step: Solution of the linear-quadratic model.
        gaps: Defects of the plan, see `plan.gaps`.
        fraction: Fraction of the feedforward.
    """
    moved = fraction * step.z[0, problem.dynamics.nx :]
    placed = problem.with_design(plan.design + moved)
    dynamics, dt = placed.dynamics, placed.dt

    def forward(x_and_cost, row):
        x, cost = x_and_cost
        k, before, u, gap, feedforward, feedback = row
        off = jnp.concatenate([dynamics.difference(before, x), moved])
        # A simulation that diverges is rejected; functions of huge angles would take several times as long as others.
        off = jnp.where(jnp.max(jnp.abs(off), initial=0.0) < _FARTHEST, off, jnp.nan)
        u = jnp.clip(u + fraction * feedforward + feedback @ off, placed.lower, placed.upper)
        after = dynamics.retract(dynamics.step(x, u, k.astype(u.dtype) * dt, dt), (fraction - 1.0) * gap)  # (S4)
        # Costs need the positions of bodies, like dynamics, which the lane compiler computes once for both.
        return (after, cost + running_cost(placed, k, x, u)), (x, u, path_constraints(placed, k, x, u))

    before = jax.tree.map(lambda leaf: leaf[:-1], plan.states)
    policy = step.policy
    rows = (jnp.arange(problem.steps), before, plan.controls, gaps, policy.feedforward, policy.feedback)
    begin = (placed.initial, jnp.zeros((), plan.controls.dtype))
    (end, cost), (states, controls, path) = jax.lax.scan(forward, begin, rows)
    states = jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), states, end)
    found = Outcome(cost + final_cost(placed, end), path, end_constraints(placed, end))
    return Plan(states, controls, plan.design + moved), found


def _from_initial_state(problem: ControlProblem, plan: Plan) -> Plan:
    """The plan that begins at the initial state of the problem, which opens a gap after it if it is another one."""
    first = problem.with_design(plan.design).initial
    return eqx.tree_at(
        lambda plan: plan.states, plan, jax.tree.map(lambda leaf, x: leaf.at[0].set(x), plan.states, first)
    )


def bounds_of_steps(
    problem: ControlProblem, plan: Plan
) -> tuple[Float[Array, "N m"] | None, Float[Array, "N m"] | None]:
    """Lower and upper bounds of the steps of the controls; (None, None) if the controls are known to be unbounded."""
    bounds = (problem.lower, problem.upper)
    known = not any(isinstance(bound, Tracer) for bound in bounds)
    if known and np.all(np.isneginf(bounds[0])) and np.all(np.isposinf(bounds[1])):
        return None, None
    return problem.lower[None] - plan.controls, problem.upper[None] - plan.controls


def _next_damping(damping: Array, accepted: Array, fraction: Array) -> Array:
    more = jnp.maximum(10.0 * damping, _FIRST_DAMPING)
    less = jnp.where(damping > _LEAST_DAMPING, damping / 10.0, 0.0)
    return jnp.where(accepted, jnp.where(fraction >= 0.2, less, damping), more)
