"""iLQR and DDP: plans are improved by a rollout with feedback under the policy of their expansion."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.control.linear_quadratic import LinearQuadratic
from jaxdyn.control.newton import NewtonSolver, Step
from jaxdyn.control.plan import Plan
from jaxdyn.control.problem import ControlProblem
from jaxdyn.lanes import Backend, lane_function
from jaxdyn.mechanism.quantity import quantity


class ILQR(NewtonSolver):
    """Iterative linear-quadratic regulator; with second-order dynamics, differential dynamic programming.

    Each iteration expands costs and dynamics about the plan to second order, solves the linear-quadratic problem with the bounds
    of the controls, and rolls its policy out with several step fractions at once; the largest fraction with a sufficient decrease
    is accepted. An initial guess may violate the dynamics: its gaps are closed along the search, and while they are open, the cost
    may increase. Costs that are `LeastSquares` have the Hessian of Gauss-Newton. DDP adds the curvature of residuals
    and dynamics, weighted by the costates, and converges quadratically close to a solution.
    If the model is not convex, this curvature is omitted for some iterations. Constraints are included by an augmented Lagrangian.

    Attributes:
        second_order: Whether the curvature of the dynamics is used (DDP) or not (iLQR). None for iLQR, but DDP for problems with
            design parameters; `uses_curvature(problem)` states the choice.
        tolerance: Expected relative decrease of the cost below which the search ends; None for 1e-9, or 1e-5 in single precision.
        feasibility: Largest violation of a constraint in a solution; None for 1e-6, or 1e-4 in single precision.
        penalty: Initial weight of the quadratic penalty on constraint violations.
        backend: Compiler of expansions, recursions and rollouts, see `lanes`.

    Source: Li and Todorov 2004; Jacobson and Mayne 1970; Tassa, Mansard and Todorov 2014; Howell, Jackson and Manchester 2019;
    Mastalli et al. 2020; theory.md (S1)-(S6).
    """

    kind: ClassVar[str] = "ilqr"

    second_order: bool | None = eqx.field(static=True, default=None)
    tolerance: float | None = eqx.field(static=True, default=None, metadata=quantity(positive=True))
    feasibility: float | None = eqx.field(static=True, default=None, metadata=quantity(positive=True))
    penalty: float = eqx.field(static=True, default=1.0, metadata=quantity(positive=True))
    backend: Backend = eqx.field(static=True, default="auto")

    def tried(
        self, problem: ControlProblem, plan: Plan, model: LinearQuadratic, step: Step, fractions: Float[Array, "A"]
    ) -> tuple[Plan, Float[Array, "A N nx"]]:
        gaps = model.d[:, : problem.dynamics.nx]

        def rolled(fraction, plan, step, gaps):
            return roll_out(problem, plan, step, gaps, fraction)

        rolling = lane_function(rolled, backend=self.backend, name="roll-out of a policy")
        plans = jax.vmap(rolling, in_axes=(0, None, None, None))(fractions, plan, step, gaps)
        return plans, (1.0 - fractions)[:, None, None] * gaps[None]


def roll_out(
    problem: ControlProblem, plan: Plan, step: Step, gaps: Float[Array, "N nx"], fraction: Float[Array, ""]
) -> Plan:
    """The plan after a fraction of the feedforward and the full feedback of a policy.

    The same fraction of the gaps between the states of the plan is closed. Source: theory.md (S4); Mastalli et al. 2020.

    Args:
        problem: Problem to solve.
        plan: Plan before the step.
        step: Solution of the linear-quadratic model.
        gaps: Gaps between the states of the plan.
        fraction: Fraction of the feedforward.
    """
    moved = fraction * step.z[0, problem.dynamics.nx :]
    placed = problem.with_design(plan.design + moved)
    dynamics, dt = placed.dynamics, placed.dt

    def forward(x, row):
        k, before, u, gap, feedforward, feedback = row
        off = jnp.concatenate([dynamics.difference(before, x), moved])
        u = jnp.clip(u + fraction * feedforward + feedback @ off, placed.lower, placed.upper)
        after = dynamics.step(x, u, k.astype(u.dtype) * dt, dt)
        return dynamics.retract(after, (fraction - 1.0) * gap), (x, u)  # (S4)

    before = jax.tree.map(lambda leaf: leaf[:-1], plan.states)
    policy = step.policy
    rows = (jnp.arange(problem.steps), before, plan.controls, gaps, policy.feedforward, policy.feedback)
    end, (states, controls) = jax.lax.scan(forward, placed.initial, rows)
    states = jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), states, end)
    return Plan(states, controls, plan.design + moved)
