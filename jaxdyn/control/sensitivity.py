"""Derivatives of an optimal plan with respect to the arrays of its problem, by the implicit function theorem.

    K(y; p) = 0 at the optimum,   dy/dp = -(dK/dy)^{-1} dK/dp

K is the vector of the KKT conditions, y the plan with its multipliers, and p the arrays of the problem. The KKT matrix dK/dy is
that of a linear-quadratic problem, so a Riccati recursion and two steps of iterative refinement solve the linear system. The
computation time of derivatives therefore does not depend on the solver that found the plan, nor on the number of iterations of this
solver.
"""

import dataclasses
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from jaxdyn.compute import backend
from jaxdyn.compute.arrays import einsum
from jaxdyn.control.expansion import ConstraintTerms, expanded, initial_jacobian, initial_offset, linearized
from jaxdyn.control.linear_quadratic import LinearQuadratic, adjoint, optimum, residual
from jaxdyn.control.plan import Plan, admitted, gaps, outcome, regularization
from jaxdyn.control.problem import ControlProblem, inequalities
from jaxdyn.control.solution import Solution

_REFINEMENTS = 2  # iterative refinements, which remove the error of the dual regularization from the linear solution
# A component is at a kink if its distance from a bound is below this share of the range, and its multiplier of the slopes. The
# barrier of an interior point keeps both off zero.
_KINK = 1e-3
_NEAR = 1e-3  # share of the range below which a control does not react to the state


def optimal_plan(problem: ControlProblem, solution: Solution) -> Plan:
    """The plan of a solution as a differentiable function of the problem: of its costs, model, bounds and initial state.

        def cost_of_mass(mass):
            problem = with_mass(mass)
            return loss(optimal_plan(problem, jax.lax.stop_gradient(solve(problem, MultipleShooting(), guess))))

    The returned plan is that of the solution, unchanged. Its first derivatives, in forward and in reverse mode, follow from the KKT
    conditions at the optimum, where each bound and inequality obeys the condition s lambda = mu of an interior point with its
    distance s and its multiplier lambda, so that ds = -(s / lambda) dlambda. A bound that acts (s = 0) holds; one that does not
    (lambda = 0) is free; and the solution of `MultipleShooting`, which is such a point, is differentiated as it is. Second
    derivatives are not supported.

    Args:
        problem: The problem; derivatives are taken with respect to its arrays.
        solution: A solution of this problem with result SUCCESSFUL, from a solver that returns multipliers (`MultipleShooting` or
            `ILQR`).

    Returns:
        The plan: states x_0 to x_N, controls (N, nu) and design parameters (P,).

    Warns:
        UserWarning: A bound is just reached, without a multiplier: the plan has another derivative on each side. Within `jit` this
            is not reported.

    Source: Jin, Mou and Pappas 2021; Amos et al. 2018.
    """
    frozen, found = _frozen((problem, solution))
    plan, dynamics = found.value, problem.dynamics
    inequality_path, inequality_end = inequalities(problem)
    values = outcome(frozen, plan)
    path_multipliers = admitted(found.multipliers.path, inequality_path[None])
    end_multipliers = admitted(found.multipliers.end, inequality_end)
    terms = ConstraintTerms(
        path_multipliers, end_multipliers, jnp.zeros_like(path_multipliers), jnp.zeros_like(end_multipliers)
    )
    placed = frozen.with_design(plan.design)
    # The multiplier of a bound is not that of a control that reacts to the state.
    feedback = None
    if found.feedback is not None:
        distance = jnp.minimum(plan.controls - placed.lower[None], placed.upper[None] - plan.controls)
        is_near = distance <= _NEAR * _span(placed.lower[None], placed.upper[None])
        feedback = jnp.where(is_near[:, :, None], 0.0, found.feedback)
    one = jnp.ones((), plan.controls.dtype)
    about = expanded(frozen, plan, terms, gaps(frozen, plan), feedback=feedback, curvature=one)
    base = about.model
    costates = adjoint(base, feedback)
    later = einsum("kij,ki->kj", base.B, costates)
    along = initial_jacobian(frozen, plan)
    at_start = base.q[0] + base.A[0].T @ costates[0]
    size = jnp.max(jnp.abs(base.r) + jnp.abs(later))
    held = _Held.of(plan.controls, placed.lower[None], placed.upper[None], base.r + later, size)
    least, most = frozen.design_bounds
    design_held = _Held.of(plan.design, least, most, along.T @ at_start, jnp.max(jnp.abs(at_start)))
    _warn_of_kinks(held.kinks, design_held.kinks)

    def optimality(problem):
        """The plan with its active components on the bounds of this problem, and the residuals of the KKT conditions there."""
        design = design_held.put(plan.design, *problem.design_bounds)
        placed = problem.with_design(design)
        controls = held.put(plan.controls, placed.lower[None], placed.upper[None])
        states = jax.tree.map(lambda leaf, first: leaf.at[0].set(first), plan.states, placed.initial)
        there = Plan(states, controls, design)
        values, apart = outcome(problem, there), gaps(problem, there)
        model = linearized(problem, there, terms, apart).model
        z = jnp.zeros((problem.steps + 1, costates.shape[1]), costates.dtype)
        rest = residual(model, z, jnp.zeros_like(controls), costates)
        rest = eqx.tree_at(lambda m: m.r, rest, rest.r + held.pull(placed.lower[None], placed.upper[None]))
        slope = initial_jacobian(problem, there).T @ rest.q[0] + design_held.pull(*problem.design_bounds)
        return there, (rest, slope, values.path, values.end)

    there, now = optimality(problem)
    rest, design_rest, path, end = jax.tree.map(lambda a, b: a - b, now, jax.lax.stop_gradient(now))
    stiff = base.R + jax.vmap(jnp.diag)(held.stiffness)
    rest = eqx.tree_at(lambda m: (m.q, m.r, m.d, m.q_end, m.R), base, (rest.q, rest.r, rest.d, rest.q_end, stiff))
    hessian = jax.hessian(lambda step: initial_offset(frozen, plan, step) @ at_start[: dynamics.nx])(
        jnp.zeros_like(plan.design)
    )
    hessian = hessian + jnp.diag(design_held.stiffness)
    linear = _Linear(
        rest, about.path_rows, about.end_rows, path, end, along, hessian, design_rest - along.T @ rest.q[0]
    ).without(~(held.at_lower | held.at_upper), ~(design_held.at_lower | design_held.at_upper))
    compliances = (
        _compliance(path_multipliers, values.path, inequality_path[None]),
        _compliance(end_multipliers, values.end, inequality_end),
    )
    design, z, u = _solved(linear, *compliances)
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
        R = p.R * m[:, None] * m[:, :, None] + jax.vmap(jnp.diag)(1.0 - m)
        problem = dataclasses.replace(p, B=p.B * m[:, None], S=p.S * m[:, :, None], R=R, r=p.r * m)
        columns = jnp.concatenate([jnp.ones((len(m), n), m.dtype), m], axis=1)
        hessian = self.hessian * f[None] * f[:, None] + jnp.diag(1.0 - f)
        return dataclasses.replace(
            self,
            problem=problem,
            path_rows=self.path_rows * columns[:, None],
            along=self.along * f[None],
            hessian=hessian,
            gradient=self.gradient * f,
        )


def _solved(linear: _Linear, soft_path: Float[Array, "N m"], soft_end: Float[Array, "e"]):
    """The changes of design, states and controls that solve the equations with all constraints.

    A constraint with the compliance k and the change l of its multiplier is c = k l; the compliance of one that does not act is
    infinite. Constraints enter as a quadratic penalty |c|^2 / (2 (k + delta)), which keeps the Riccati recursion unchanged and
    dependent constraints harmless. Iterative refinement then removes the error of the regularization delta.
    """
    delta, n = regularization(linear.along.dtype), linear.along.shape[0]
    path_weight, end_weight = 1.0 / (soft_path + delta), 1.0 / (soft_end + delta)
    soft_path, soft_end = (jnp.where(jnp.isfinite(k), k, 0.0) for k in (soft_path, soft_end))
    C, C_end = linear.path_rows, linear.end_rows

    def pulled(problem, path, end):
        slope = einsum("kci,kc->ki", C, path)
        slopes = (problem.q + slope[:, :n], problem.r + slope[:, n:], problem.q_end + C_end.T @ end)
        return eqx.tree_at(lambda p: (p.q, p.r, p.q_end), problem, slopes)

    squares = einsum("kci,kc,kcj->kij", C, path_weight, C)

    def solved(problem, path, end, gradient):
        stiff = pulled(problem, path_weight * path, end_weight * end)
        stiff = dataclasses.replace(
            stiff,
            Q=stiff.Q + squares[:, :n, :n],
            S=stiff.S + squares[:, n:, :n],
            R=stiff.R + squares[:, n:, n:],
            Q_end=stiff.Q_end + einsum("ci,c,cj->ij", C_end, end_weight, C_end),
        )
        # XLA is used because the matrices do not depend on the arrays of the problem, which the lane compiler cannot exploit.
        with backend("xla"):
            _, p, z, u, costates = optimum(stiff, linear.along, linear.hessian, gradient)
        path_multipliers = path_weight * (path + einsum("kci,ki->kc", C, jnp.concatenate([z[:-1], u], axis=1)))
        return p, z, u, costates, path_multipliers, end_weight * (end + C_end @ z[-1])

    def refine(total, _):
        p, z, u, costates, path_multipliers, end_multipliers = total
        left = pulled(residual(linear.problem, z, u, costates), path_multipliers, end_multipliers)
        path = (
            linear.path + einsum("kci,ki->kc", C, jnp.concatenate([z[:-1], u], axis=1)) - soft_path * path_multipliers
        )
        end = linear.end + C_end @ z[-1] - soft_end * end_multipliers
        more = solved(left, path, end, linear.gradient + linear.hessian @ p)
        return jax.tree.map(jnp.add, total, more), None

    shapes = jax.eval_shape(solved, linear.problem, linear.path, linear.end, linear.gradient)
    nothing = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    return jax.lax.scan(refine, nothing, None, length=1 + _REFINEMENTS)[0][:3]


def _frozen(tree):
    return jax.tree.map(lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_array(leaf) else leaf, tree)


def _compliance(multiplier: Array, value: Array, may) -> Array:
    """The compliance s / lambda of constraints with the slack s = -value: zero of those that act, infinite of those that do not."""
    soft = jnp.maximum(-value, 0.0) / jnp.where(multiplier > 0, multiplier, 1.0)
    return jnp.where(may, jnp.where(multiplier > 0, soft, jnp.inf), 0.0)


def _span(lower: Array, upper: Array) -> Array:
    """Distance of two bounds, or one if it is infinite."""
    return jnp.where(jnp.isfinite(upper - lower), upper - lower, 1.0)


class _Held(eqx.Module):
    """How bounds hold variables: some are on a bound, and all others feel a force that grows near it.

    Attributes:
        at_lower, at_upper: Masks of variables on a bound that the cost pushes against it.
        to_lower, to_upper: The stiffness lambda / s of the bounds of the others.
        kinks: Masks of variables whose distance s and multiplier lambda are both nearly zero.
    """

    at_lower: Bool[Array, "..."]
    at_upper: Bool[Array, "..."]
    to_lower: Float[Array, "..."]
    to_upper: Float[Array, "..."]
    kinks: Bool[Array, "..."]

    @staticmethod
    def of(x: Array, lower: Array, upper: Array, slope: Array, size: Array) -> "_Held":
        """From the values of variables, their bounds, the slope of the cost without the bounds, and the size of its parts."""

        def side(distance, multiplier):
            at = (distance <= 0) & (multiplier > 0)
            pushed = jnp.isfinite(distance) & (distance > 0)
            return at, jnp.where(pushed, multiplier, 0.0) / jnp.where(pushed, distance, 1.0)

        at_lower, to_lower = side(x - lower, jnp.maximum(slope, 0.0))
        at_upper, to_upper = side(upper - x, jnp.maximum(-slope, 0.0))
        is_near = jnp.minimum(x - lower, upper - x) <= _KINK * _span(lower, upper)
        return _Held(at_lower, at_upper, to_lower, to_upper, is_near & (jnp.abs(slope) <= _KINK * size))

    @property
    def stiffness(self) -> Array:
        return self.to_lower + self.to_upper

    def put(self, x: Array, lower: Array, upper: Array) -> Array:
        """The variables with those at a bound on these bounds."""
        x = jnp.where(self.at_lower, jnp.broadcast_to(lower, x.shape), x)
        return jnp.where(self.at_upper, jnp.broadcast_to(upper, x.shape), x)

    def pull(self, lower: Array, upper: Array) -> Array:
        """The part of the force of the bounds that changes as they move."""
        at_lower, at_upper = (
            stiff * jnp.where(stiff > 0, bound, 0.0)
            for stiff, bound in ((self.to_lower, lower), (self.to_upper, upper))
        )
        return -at_lower - at_upper


def _warn_of_kinks(*kinks: Bool[Array, "..."]) -> None:
    if any(isinstance(mask, Tracer) for mask in kinks):
        return
    controls, design = (int(np.sum(mask)) for mask in kinks)
    if controls or design:
        warnings.warn(
            f"{controls} controls and {design} design parameters just reach a bound, without a multiplier: the optimal plan has "
            "another derivative on each side; change the bounds or the problem a little, and compare",
            stacklevel=3,
        )
