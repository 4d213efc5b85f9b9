"""Plans, and what they cost: states, controls and design together, costs, conditions, and their augmented Lagrangian."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxdyn.control.problem import (
    ControlProblem,
    Point,
    end_conditions,
    final_cost,
    one_sided,
    path_conditions,
    running_cost,
)
from jaxdyn.lanes import Backend, lane_function

_FALL = 0.25  # of the violation; if it falls less, the penalty grows
_GROWTH, _MOST_PENALTY = 10.0, 1e8


class Plan(eqx.Module):
    """What is to be done.

    Attributes:
        states: x_0 to x_N.
        controls: u_0 to u_{N-1}.
        design: the numbers of the design; none without one.
    """

    states: Point
    controls: Float[Array, "N nu"]
    design: Float[Array, "P"]


class Multipliers(eqx.Module):
    """Forces with which conditions pull at a plan.

    Attributes:
        path, end: multipliers of the conditions along the path and at the end.
        penalty: on the squares of conditions.
    """

    path: Float[Array, "N m"]
    end: Float[Array, "e"]
    penalty: Float[Array, ""]


class Outcome(eqx.Module):
    """What a plan comes to.

    Attributes:
        cost: of path and end.
        path, end: values of the conditions.
    """

    cost: Float[Array, ""]
    path: Float[Array, "N m"]
    end: Float[Array, "e"]


def planned(problem: ControlProblem, controls: Float[Array, "N nu"], design: Float[Array, "P"] | None = None) -> Plan:
    """The plan that controls lead to from the initial state, clipped to their bounds.

    Raises:
        ValueError: there is not one row of controls for each step.
    """
    if controls.shape != (problem.steps, problem.dynamics.nu):
        raise ValueError(
            f"controls have shape {controls.shape}; give shape {(problem.steps, problem.dynamics.nu)}: a row for each step"
        )
    design = first_design(problem) if design is None else design
    placed = problem.with_design(design)
    u = jnp.clip(controls, placed.lower[None], placed.upper[None])
    dt = placed.dt

    def step(x, row):
        k, u = row
        return placed.dynamics.next(x, u, k.astype(u.dtype) * dt, dt), x

    end, states = jax.lax.scan(step, placed.initial, (jnp.arange(problem.steps), u))
    return Plan(jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), states, end), u, design)


def gaps(problem: ControlProblem, plan: Plan, *, backend: Backend = "auto") -> Float[Array, "N nx"]:
    """From each state of a plan, x_1 to x_N, to the one that follows from the state before it."""
    placed = problem.with_design(plan.design)
    dt = placed.dt

    def gap(k, x, u, following):
        return placed.dynamics.difference(following, placed.dynamics.next(x, u, k.astype(u.dtype) * dt, dt))

    before, after = (jax.tree.map(lambda a, part=part: a[part], plan.states) for part in (slice(-1), slice(1, None)))
    each = lane_function(gap, backend=backend, name="gaps of a plan")
    return jax.vmap(each)(jnp.arange(problem.steps), before, plan.controls, after)


def first_design(problem: ControlProblem) -> Float[Array, "P"]:
    """Where the design begins."""
    return jnp.zeros(0, problem.lower.dtype) if problem.design is None else problem.design.start


def outcome(problem: ControlProblem, plan: Plan, *, backend: Backend = "auto") -> Outcome:
    """Cost and conditions of a plan, whether or not its states follow from its controls."""
    placed = problem.with_design(plan.design)

    def at(k, x, u):
        return running_cost(placed, k, x, u), path_conditions(placed, k, x, u)

    before, end = jax.tree.map(lambda a: a[:-1], plan.states), jax.tree.map(lambda a: a[-1], plan.states)
    each = lane_function(at, backend=backend, name="costs of a plan")
    costs, path = jax.vmap(each)(jnp.arange(problem.steps), before, plan.controls)
    return Outcome(jnp.sum(costs) + final_cost(placed, end), path, end_conditions(placed, end))


def sides(problem: ControlProblem) -> tuple[np.ndarray, np.ndarray]:
    """Which numbers of the conditions along the path and at the end may be negative."""
    x, u = problem.initial, jnp.zeros_like(problem.lower)
    t = problem.duration

    def of(condition):
        return condition.function(problem.dynamics, t, x, u)

    return one_sided(problem.conditions, of), one_sided(problem.final_conditions, of)


def no_multipliers(problem: ControlProblem, penalty: float) -> Multipliers:
    """Multipliers to begin with."""
    path, end = sides(problem)
    dtype = problem.lower.dtype
    return Multipliers(
        jnp.zeros((problem.steps, len(path)), dtype), jnp.zeros(len(end), dtype), jnp.asarray(penalty, dtype)
    )


def forces(problem: ControlProblem, found: Outcome, multipliers: Multipliers) -> tuple[Array, Array]:
    """Multipliers + penalty * conditions, none where a condition may be negative and is: the next multipliers."""
    path, end = (c + multipliers.penalty * g for c, g in ((multipliers.path, found.path), (multipliers.end, found.end)))
    may_path, may_end = sides(problem)
    return jnp.where(may_path[None], jnp.maximum(path, 0.0), path), jnp.where(may_end, jnp.maximum(end, 0.0), end)


def following(
    problem: ControlProblem,
    found: Outcome,
    multipliers: Multipliers,
    broken: Float[Array, ""],
    broken_before: Float[Array, ""],
    feasibility: float,
) -> tuple[Multipliers, Bool[Array, ""]]:
    """The multipliers after a plan has settled, and whether their penalty cannot grow any more.

    Args:
        broken, broken_before: violation of this plan, and of the one that settled before.
        feasibility: a violation that is small enough.
    """
    harder = broken > jnp.maximum(_FALL * broken_before, feasibility)
    penalty = jnp.where(harder, _GROWTH * multipliers.penalty, multipliers.penalty)
    path, end = forces(problem, found, multipliers)
    return Multipliers(path, end, jnp.minimum(penalty, _MOST_PENALTY)), multipliers.penalty >= _MOST_PENALTY


def merit(problem: ControlProblem, found: Outcome, multipliers: Multipliers) -> Float[Array, ""]:
    """Augmented Lagrangian, cost + sum of (force^2 - multiplier^2) / (2 penalty). Source: Rockafellar 1974."""
    path, end = forces(problem, found, multipliers)
    squares = jnp.sum(path**2 - multipliers.path**2) + jnp.sum(end**2 - multipliers.end**2)
    return found.cost + 0.5 * squares / multipliers.penalty


def regularization(dtype) -> float:
    """By how much conditions give way to their forces within a linear solution, so that dependent conditions do no harm."""
    return float(jnp.finfo(dtype).eps) ** 0.4


def violation(problem: ControlProblem, found: Outcome) -> Float[Array, ""]:
    """Largest amount by which a condition does not hold."""
    worst = jnp.zeros((), problem.lower.dtype)
    for values, may in zip((found.path, found.end[None]), sides(problem), strict=True):
        amounts = jnp.where(may[None], jnp.maximum(values, 0.0), jnp.abs(values))
        worst = jnp.maximum(worst, jnp.max(amounts, initial=0.0))
    return worst
