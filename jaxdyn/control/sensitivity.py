"""Derivatives of an optimal plan with respect to the arrays of its problem, by the implicit function theorem.

    K(y; p) = 0 at the optimum,   dy/dp = -(dK/dy)^{-1} dK/dp

K is the vector of the KKT conditions, y the plan with its multipliers, and p the arrays of the problem. The KKT matrix dK/dy is
that of a linear-quadratic problem, so a Riccati recursion and two steps of iterative refinement solve the linear system. The
computation time of derivatives therefore does not depend on the solver that found the plan, nor on the number of iterations of this
solver.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxdyn.compute import backend
from jaxdyn.control.expansion import ConstraintTerms, expanded, initial_jacobian, initial_offset, linearized
from jaxdyn.control.linear_quadratic import LinearQuadratic, adjoint, optimum, residual
from jaxdyn.control.plan import Plan, gaps, outcome, regularization
from jaxdyn.control.problem import ControlProblem, inequalities
from jaxdyn.control.solution import Solution
from jaxdyn.spatial.arrays import einsum

_REFINEMENTS = 2  # iterative refinements, which remove the error of the dual regularization from the linear solution
_AT_BOUND = 1e-5  # distance up to which a component is at its bound, relative to upper - lower, or absolute if infinite


def optimal_plan(problem: ControlProblem, solution: Solution) -> Plan:
    """The plan of a solution as a differentiable function of the problem: of its costs, model, bounds and initial state.

        def cost_of_mass(mass):
            problem = with_mass(mass)
            return loss(optimal_plan(problem, jax.lax.stop_gradient(solve(problem, MultipleShooting(), guess))))

    The returned plan is that of the solution, unchanged. Its first derivatives, in forward and in reverse mode, follow from the KKT
    conditions at the optimum. They are valid if the set of active constraints and bounds does not change. Second derivatives are
    not supported.

    Args:
        problem: The problem; derivatives are taken with respect to its arrays.
        solution: A solution of this problem with result SOLVED, from a solver that returns multipliers (`MultipleShooting` or
            `ILQR`).

    Returns:
        The plan: states x_0 to x_N, controls (N, nu) and design parameters (P,).

    Source: Jin, Mou and Pappas 2021; Amos et al. 2018.
    """
    frozen, found = _frozen((problem, solution))
    plan, dynamics = found.value, problem.dynamics
    inequality_path, inequality_end = inequalities(problem)
    values = outcome(frozen, plan)
    acts_path = _acts(found.multipliers.path, values.path, inequality_path[None])
    acts_end = _acts(found.multipliers.end, values.end, inequality_end)
    path_multipliers = jnp.where(acts_path, found.multipliers.path, 0.0)
    end_multipliers = jnp.where(acts_end, found.multipliers.end, 0.0)
    terms = ConstraintTerms(
        path_multipliers, end_multipliers, jnp.zeros_like(path_multipliers), jnp.zeros_like(end_multipliers)
    )
    one = jnp.ones((), plan.controls.dtype)
    about = expanded(
        frozen,
        plan,
        terms,
        gaps(frozen, plan),
        feedback=found.feedback,
        curvature=one,
    )
    base = about.model
    costates = adjoint(base, found.feedback)
    placed = frozen.with_design(plan.design)
    by_u = base.r + einsum("kij,ki->kj", base.B, costates)
    along = initial_jacobian(frozen, plan)
    at_start = base.q[0] + base.A[0].T @ costates[0]
    at = _at_bounds(plan.controls, placed.lower[None], placed.upper[None], by_u)
    if frozen.design is None:
        design_at = (jnp.zeros(0, bool), jnp.zeros(0, bool))
    else:
        design_at = _at_bounds(plan.design, frozen.design.lower, frozen.design.upper, along.T @ at_start)

    def optimality(problem):
        """The plan with its active components on the bounds of this problem, and the residuals of the KKT conditions there."""
        design = plan.design
        if problem.design is not None:
            design = _put(design, design_at, problem.design.lower, problem.design.upper)
        placed = problem.with_design(design)
        controls = _put(plan.controls, at, placed.lower[None], placed.upper[None])
        states = jax.tree.map(lambda leaf, first: leaf.at[0].set(first), plan.states, placed.initial)
        there = Plan(states, controls, design)
        values, apart = outcome(problem, there), gaps(problem, there)
        model = linearized(problem, there, terms, apart).model
        z = jnp.zeros((problem.steps + 1, costates.shape[1]), costates.dtype)
        rest = residual(model, z, jnp.zeros_like(controls), costates)
        return there, (rest, initial_jacobian(problem, there).T @ rest.q[0], values.path, values.end)

    there, now = optimality(problem)
    rest, design_rest, path, end = jax.tree.map(lambda a, b: a - b, now, jax.lax.stop_gradient(now))
    rest = eqx.tree_at(lambda m: (m.q, m.r, m.d, m.q_end), base, (rest.q, rest.r, rest.d, rest.q_end))
    hessian = jax.hessian(lambda step: initial_offset(frozen, plan, step) @ at_start[: dynamics.nx])(
        jnp.zeros_like(plan.design)
    )
    linear = _Linear(
        rest, about.path_rows, about.end_rows, path, end, along, hessian, design_rest - along.T @ rest.q[0]
    ).without(~(at[0] | at[1]), ~(design_at[0] | design_at[1]))
    design, z, u = _solved(linear, acts_path, acts_end)
    first = problem.with_design(there.design + design).initial
    states = jax.vmap(dynamics.retract)(there.states, z[:, : dynamics.nx])
    states = jax.tree.map(lambda leaf, first: leaf.at[0].set(first), states, first)
    return Plan(states, there.controls + u, there.design + design)


class _Linear(eqx.Module):
    """The linear equations for the change of a plan: a linear-quadratic problem with constraints and design parameters.

    The unknowns are the changes z_k of the states, u_k of the controls and p of the design parameters.

    Attributes:
        problem: The linear-quadratic problem.
        path_rows, path: Linearized path constraints, path_rows (z_k, u_k) + path = 0.
        end_rows, end: Linearized final constraints, end_rows z_N + end = 0.
        along: The initial condition z_0 = along p.
        hessian, gradient: The cost of the design parameters, 1/2 p' hessian p + gradient' p.
    """

    problem: LinearQuadratic
    path_rows: Float[Array, "N m n_plus_nu"]
    end_rows: Float[Array, "e n"]
    path: Float[Array, "N m"]
    end: Float[Array, "e"]
    along: Float[Array, "n P"]
    hessian: Float[Array, "P P"]
    gradient: Float[Array, "P"]

    def without(self, free: Bool[Array, "N nu"], free_design: Bool[Array, "P"]) -> "_Linear":
        """The equations in which only the free controls and design parameters change; the others are at active bounds."""
        p, n = self.problem, self.problem.A.shape[1]
        m, f = free.astype(p.q.dtype), free_design.astype(p.q.dtype)
        problem = eqx.tree_at(
            lambda p: (p.B, p.S, p.R, p.r),
            p,
            (
                p.B * m[:, None],
                p.S * m[:, :, None],
                p.R * m[:, None] * m[:, :, None] + jax.vmap(jnp.diag)(1.0 - m),
                p.r * m,
            ),
        )
        columns = jnp.concatenate([jnp.ones((len(m), n), m.dtype), m], axis=1)
        hessian = self.hessian * f[None] * f[:, None] + jnp.diag(1.0 - f)
        return _Linear(
            problem,
            self.path_rows * columns[:, None],
            self.end_rows,
            self.path,
            self.end,
            self.along * f[None],
            hessian,
            self.gradient * f,
        )


def _solved(linear: _Linear, acts_path: Bool[Array, "N m"], acts_end: Bool[Array, "e"]):
    """The changes of design, states and controls that solve the equations with all active constraints.

    Constraints enter as a quadratic penalty 1/(2 delta) |c|^2, which keeps the Riccati recursion unchanged and dependent
    constraints harmless. Iterative refinement then removes the error of this regularization.
    """
    delta, n = regularization(linear.along.dtype), linear.along.shape[0]
    path_weight, end_weight = jnp.where(acts_path, 1.0 / delta, 0.0), jnp.where(acts_end, 1.0 / delta, 0.0)
    C, C_end = linear.path_rows, linear.end_rows

    def pulled(problem, path, end):
        slope = einsum("kci,kc->ki", C, path)
        slopes = (problem.q + slope[:, :n], problem.r + slope[:, n:], problem.q_end + C_end.T @ end)
        return eqx.tree_at(lambda p: (p.q, p.r, p.q_end), problem, slopes)

    squares = einsum("kci,kc,kcj->kij", C, path_weight, C)

    def solved(problem, path, end, gradient):
        stiff = pulled(problem, path_weight * path, end_weight * end)
        stiff = eqx.tree_at(
            lambda p: (p.Q, p.S, p.R, p.Q_end),
            stiff,
            (
                stiff.Q + squares[:, :n, :n],
                stiff.S + squares[:, n:, :n],
                stiff.R + squares[:, n:, n:],
                stiff.Q_end + einsum("ci,c,cj->ij", C_end, end_weight, C_end),
            ),
        )
        # XLA is used because the matrices do not depend on the arrays of the problem, which the lane compiler cannot exploit.
        with backend("xla"):
            _, p, z, u, costates = optimum(stiff, linear.along, linear.hessian, gradient)
        path_multipliers = path_weight * (path + einsum("kci,ki->kc", C, jnp.concatenate([z[:-1], u], axis=1)))
        return p, z, u, costates, path_multipliers, end_weight * (end + C_end @ z[-1])

    def refine(total, _):
        p, z, u, costates, path_multipliers, end_multipliers = total
        left = pulled(residual(linear.problem, z, u, costates), path_multipliers, end_multipliers)
        path = linear.path + einsum("kci,ki->kc", C, jnp.concatenate([z[:-1], u], axis=1))
        more = solved(left, path, linear.end + C_end @ z[-1], linear.gradient + linear.hessian @ p)
        return jax.tree.map(jnp.add, total, more), None

    shapes = jax.eval_shape(solved, linear.problem, linear.path, linear.end, linear.gradient)
    nothing = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    return jax.lax.scan(refine, nothing, None, length=1 + _REFINEMENTS)[0][:3]


def _frozen(tree):
    return jax.tree.map(lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_array(leaf) else leaf, tree)


def _acts(multiplier: Array, value: Array, may) -> Bool[Array, "..."]:
    """Whether a constraint is active. An inequality constraint is active if its multiplier exceeds its slack -value."""
    return jnp.where(may, multiplier > jnp.maximum(-value, 0.0), True)


def _at_bounds(x: Array, lower: Array, upper: Array, slope: Array) -> tuple[Bool[Array, "..."], Bool[Array, "..."]]:
    """Masks of active lower and upper bounds: the component is near the bound, and the cost would decrease beyond it."""
    near = _AT_BOUND * jnp.where(jnp.isfinite(upper - lower), upper - lower, 1.0)
    return (x - lower <= near) & (slope > 0), (upper - x <= near) & (slope < 0)


def _put(x: Array, at, lower: Array, upper: Array) -> Array:
    x = jnp.where(at[0], jnp.broadcast_to(lower, x.shape), x)
    return jnp.where(at[1], jnp.broadcast_to(upper, x.shape), x)
