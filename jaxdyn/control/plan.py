"""Plans: states, controls and design parameters, their costs and constraint values, and the augmented Lagrangian."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxdyn.control.problem import (
    AnyState,
    ControlProblem,
    end_constraints,
    final_cost,
    inequalities,
    path_constraints,
    running_cost,
)
from jaxdyn.display import Display, Displayed, array_text
from jaxdyn.lanes import Backend, lane_function

_FALL = 0.25  # largest ratio of violations in two successive updates for which the penalty is not increased
_GROWTH, _MOST_PENALTY = 10.0, 1e8


class Plan(Displayed, eqx.Module):
    """A trajectory: states, controls and design parameters.

    Attributes:
        states: The states x_0 to x_N.
        controls: The controls u_0 to u_{N-1}.
        design: The design parameters; empty for a problem without any.
    """

    states: AnyState
    controls: Float[Array, "N nu"]
    design: Float[Array, "P"]

    def _display(self) -> Display:
        parts = {"states": self.states, "controls": self.controls, "design": self.design}
        return Display(f"Plan({', '.join(f'{name}: {array_text(part)}' for name, part in parts.items())})", {})


class Multipliers(eqx.Module):
    """Lagrange multipliers of the constraints, and the penalty of the augmented Lagrangian.

    Attributes:
        path: Multipliers of the constraints along the path.
        end: Multipliers of the constraints at the end.
        penalty: The penalty mu of the squares of constraint values.
    """

    path: Float[Array, "N m"]
    end: Float[Array, "e"]
    penalty: Float[Array, ""]


class Outcome(eqx.Module):
    """Cost and constraint values of a plan.

    Attributes:
        cost: The cost of the path and of the end together.
        path: Values of the constraints along the path.
        end: Values of the constraints at the end.
    """

    cost: Float[Array, ""]
    path: Float[Array, "N m"]
    end: Float[Array, "e"]


def rollout_controls(
    problem: ControlProblem, controls: Float[Array, "N nu"], design: Float[Array, "P"] | None = None
) -> Plan:
    """The plan that follows from the initial state under controls (N, nu), which are clipped to their bounds.

    Raises:
        ValueError: There is not one row of controls for each time step.
    """
    if controls.shape != (problem.steps, problem.dynamics.nu):
        raise ValueError(
            f"controls have shape {controls.shape}; give shape {(problem.steps, problem.dynamics.nu)}: a row for each step"
        )
    design = initial_design(problem) if design is None else design
    placed = problem.with_design(design)
    u = jnp.clip(controls, placed.lower[None], placed.upper[None])
    dt = placed.dt

    def step(x, row):
        k, u = row
        return placed.dynamics.step(x, u, k.astype(u.dtype) * dt, dt), x

    end, states = jax.lax.scan(step, placed.initial, (jnp.arange(problem.steps), u))
    return Plan(jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), states, end), u, design)


def gaps(problem: ControlProblem, plan: Plan, *, backend: Backend = "auto") -> Float[Array, "N nx"]:
    """The steps from x_{k+1} of a plan to f(x_k, u_k), in tangent coordinates; zero where the plan obeys the dynamics."""
    placed = problem.with_design(plan.design)
    dt = placed.dt

    def gap(k, x, u, following):
        return placed.dynamics.difference(following, placed.dynamics.step(x, u, k.astype(u.dtype) * dt, dt))

    before, after = (jax.tree.map(lambda a, part=part: a[part], plan.states) for part in (slice(-1), slice(1, None)))
    each = lane_function(gap, backend=backend, name="gaps of a plan")
    return jax.vmap(each)(jnp.arange(problem.steps), before, plan.controls, after)


def initial_design(problem: ControlProblem) -> Float[Array, "P"]:
    """The initial guess of the design parameters."""
    return jnp.zeros(0, problem.lower.dtype) if problem.design is None else problem.design.initial


def outcome(problem: ControlProblem, plan: Plan, *, backend: Backend = "auto") -> Outcome:
    """Cost and constraint values of a plan, whether or not its states follow from its controls."""
    placed = problem.with_design(plan.design)

    def at(k, x, u):
        return running_cost(placed, k, x, u), path_constraints(placed, k, x, u)

    before, end = jax.tree.map(lambda a: a[:-1], plan.states), jax.tree.map(lambda a: a[-1], plan.states)
    each = lane_function(at, backend=backend, name="costs of a plan")
    costs, path = jax.vmap(each)(jnp.arange(problem.steps), before, plan.controls)
    return Outcome(jnp.sum(costs) + final_cost(placed, end), path, end_constraints(placed, end))


def no_multipliers(problem: ControlProblem, penalty: float) -> Multipliers:
    """Zero multipliers, with which a solver begins."""
    path, end = inequalities(problem)
    dtype = problem.lower.dtype
    return Multipliers(
        jnp.zeros((problem.steps, len(path)), dtype), jnp.zeros(len(end), dtype), jnp.asarray(penalty, dtype)
    )


def multiplier_estimates(problem: ControlProblem, found: Outcome, multipliers: Multipliers) -> tuple[Array, Array]:
    """First-order update of the multipliers: lam + mu g for equalities, max(0, lam + mu g) for inequalities."""
    path, end = (c + multipliers.penalty * g for c, g in ((multipliers.path, found.path), (multipliers.end, found.end)))
    inequality_path, inequality_end = inequalities(problem)
    return jnp.where(inequality_path[None], jnp.maximum(path, 0.0), path), jnp.where(
        inequality_end, jnp.maximum(end, 0.0), end
    )


def update_multipliers(
    problem: ControlProblem,
    found: Outcome,
    multipliers: Multipliers,
    violation_now: Float[Array, ""],
    violation_before: Float[Array, ""],
    feasibility: float,
) -> tuple[Multipliers, Bool[Array, ""]]:
    """The multipliers after the minimization for the previous ones converged, and whether the penalty has reached its maximum.

    Args:
        violation_now: The violation of this plan.
        violation_before: The violation of the plan at the previous update.
        feasibility: The violation that is allowed in a solution.
    """
    harder = violation_now > jnp.maximum(_FALL * violation_before, feasibility)
    penalty = jnp.where(harder, _GROWTH * multipliers.penalty, multipliers.penalty)
    path, end = multiplier_estimates(problem, found, multipliers)
    return Multipliers(path, end, jnp.minimum(penalty, _MOST_PENALTY)), multipliers.penalty >= _MOST_PENALTY


def merit(problem: ControlProblem, found: Outcome, multipliers: Multipliers) -> Float[Array, ""]:
    """Augmented Lagrangian, cost + sum of (updated multiplier^2 - multiplier^2) / (2 penalty). Source: Rockafellar 1974."""
    path, end = multiplier_estimates(problem, found, multipliers)
    squares = jnp.sum(path**2 - multipliers.path**2) + jnp.sum(end**2 - multipliers.end**2)
    return found.cost + 0.5 * squares / multipliers.penalty


def regularization(dtype) -> float:
    """The dual regularization delta in g = delta * multiplier, with which dependent constraints leave linear systems solvable."""
    return float(jnp.finfo(dtype).eps) ** 0.4


def violation(problem: ControlProblem, found: Outcome) -> Float[Array, ""]:
    """The largest amount by which a constraint is violated."""
    worst = jnp.zeros((), problem.lower.dtype)
    for values, may in zip((found.path, found.end[None]), inequalities(problem), strict=True):
        amounts = jnp.where(may[None], jnp.maximum(values, 0.0), jnp.abs(values))
        worst = jnp.maximum(worst, jnp.max(amounts, initial=0.0))
    return worst
