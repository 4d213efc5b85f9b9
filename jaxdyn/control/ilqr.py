"""iLQR and DDP: a plan is improved by simulating the optimal feedback policy of its linear-quadratic expansion."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.compute import per_sample
from jaxdyn.control.linear_quadratic import LinearQuadratic
from jaxdyn.control.newton import NewtonSolver, Step
from jaxdyn.control.plan import Outcome, Plan
from jaxdyn.control.problem import ControlProblem, end_constraints, final_cost, path_constraints, running_cost
from jaxdyn.mechanism.quantity import plain, quantity

_FARTHEST = 1e10  # distance from the plan (rad, m, rad/s, m/s) beyond which a simulation is given up


class ILQR(NewtonSolver):
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
    tolerance: float | None = eqx.field(
        static=True, converter=plain, kw_only=True, default=None, metadata=quantity(positive=True)
    )
    feasibility: float | None = eqx.field(
        static=True, converter=plain, kw_only=True, default=None, metadata=quantity(positive=True)
    )
    penalty: float = eqx.field(
        static=True, converter=plain, kw_only=True, default=1.0, metadata=quantity(positive=True)
    )

    def tried(
        self, problem: ControlProblem, plan: Plan, model: LinearQuadratic, step: Step, fractions: Float[Array, "A"]
    ) -> tuple[Plan, Outcome]:
        gaps = model.d[:, : problem.dynamics.nx]

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
