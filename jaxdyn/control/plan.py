"""Plans (trajectories of states and controls with design parameters), their costs and constraints, and the augmented Lagrangian.

    merit = cost + sum over equality constraints of lam g + mu/2 g^2
                 + sum over inequality constraints of (max(0, lam + mu g)^2 - lam^2) / (2 mu)

with constraint values g, multipliers lam and penalty parameter mu. Source: Rockafellar 1974; Nocedal and Wright 2006, chapter 17.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxdyn.compute import per_sample, stored_outside_jit
from jaxdyn.control.problem import (
    AnyState,
    ControlProblem,
    MultibodyDynamics,
    end_constraints,
    final_cost,
    inequalities,
    path_constraints,
    running_cost,
)
from jaxdyn.display import Display, Displayed, array_text
from jaxdyn.mechanism.components import coordinate_names, velocity_names
from jaxdyn.mechanism.messages import check_instance
from jaxdyn.simulate.trajectory import data_frame

_FALL = 0.25  # ratio of the violations at two successive updates above which the penalty parameter is increased
_GROWTH, _MOST_PENALTY = 10.0, 1e8  # factor of an increase of the penalty parameter, and its maximum


class Plan(Displayed, eqx.Module):
    """A trajectory with its design parameters. A plan may violate the dynamics and the constraints, as initial guesses often do.

    Attributes:
        states: The states x_0 to x_N, with a leading axis of length N + 1.
        controls: The controls u_0 to u_{N-1} (N, nu).
        design: The design parameters (P,); empty for a problem without design parameters.
    """

    states: AnyState
    controls: Float[Array, "N nu"]
    design: Float[Array, "P"]

    def to_dataframe(self, problem: ControlProblem) -> Any:
        """Convert a single plan to a pandas `DataFrame` with one row for each state; `.to_csv(path)` of it writes a file.

        The columns are `time` (s), those of the states of a mechanism as in `Trajectory.to_dataframe`,
        and the controls `u_NAME` that begin at this time, NaN in the last row. States of other dynamics are `x_0`, `x_1`, ...

        Args:
            problem: The problem of the plan, which knows the names and the duration.

        Raises:
            ModuleNotFoundError: pandas is not installed.
            ValueError: There are several plans; take one, `jax.tree.map(lambda x: x[k], plans)`.
        """
        check_problem(problem, "to_dataframe")
        if self.controls.ndim > 2:
            raise ValueError("to_dataframe: there are several plans; take one, jax.tree.map(lambda x: x[k], plans)")
        placed = problem.with_design(self.design)
        columns = {"time": np.asarray(placed.dt) * np.arange(problem.steps + 1)}
        u = np.concatenate([self.controls, np.full_like(self.controls[:1], np.nan)])
        if isinstance(problem.dynamics, MultibodyDynamics):
            model, drives = problem.dynamics.system.model, problem.dynamics.system.drives
            driven = velocity_names(model) if drives is None else drives.control_names(model)
            parts = {"q": (self.states.q, coordinate_names(model)), "v": (self.states.v, velocity_names(model))}
            if self.states.z is not None:
                parts["z"] = self.states.z, tuple(map(str, range(self.states.z.shape[-1])))
        else:
            x = np.concatenate([np.reshape(leaf, (len(u), -1)) for leaf in jax.tree.leaves(self.states)], axis=1)
            driven, parts = range(u.shape[1]), {"x": (x, range(x.shape[1]))}
        for letter, (values, names) in (parts | {"u": (u, driven)}).items():
            columns |= {f"{letter}_{name}": np.asarray(values)[:, k] for k, name in enumerate(names)}
        return data_frame(columns, "Plan")

    def _display(self) -> Display:
        parts = {"states": self.states, "controls": self.controls, "design": self.design}
        return Display(f"Plan({', '.join(f'{name}: {array_text(part)}' for name, part in parts.items())})", {})


def check_problem(problem: Any, name: str, plan: Any = None) -> None:
    """Check the types of a problem and of a plan.

    Args:
        problem: The problem.
        name: Name of the called function, for the message.
        plan: The plan; it is not checked if it is None.

    Raises:
        TypeError: An argument has the wrong type; the message names the right type.
    """
    check_instance(f"{name}: the problem", problem, ControlProblem, "a ControlProblem")
    example = "a Plan, rollout_controls(problem, controls) for instance"
    remedy = "its value" if isinstance(getattr(plan, "value", None), Plan) else example
    check_instance(f"{name}: the plan", plan, Plan | None, remedy)


class Multipliers(eqx.Module):
    """Lagrange multipliers of the constraints, and the penalty parameter of the augmented Lagrangian.

    Attributes:
        path: Multipliers of the path constraints (N, m).
        end: Multipliers of the final constraints (e,).
        penalty: The penalty parameter mu, the weight of 1/2 g^2.
    """

    path: Float[Array, "N m"]
    end: Float[Array, "e"]
    penalty: Float[Array, ""]


class Outcome(eqx.Module):
    """Cost and constraint values of a plan.

    Attributes:
        cost: The total cost: running costs plus final costs.
        path: Values of the path constraints (N, m).
        end: Values of the final constraints (e,).
    """

    cost: Float[Array, ""]
    path: Float[Array, "N m"]
    end: Float[Array, "e"]


def rollout_controls(
    problem: ControlProblem, controls: Float[Array, "N nu"], design: Float[Array, "P"] | None = None
) -> Plan:
    """The plan that results from simulating the dynamics from the initial state with given controls.

    Args:
        problem: The problem.
        controls: The controls u_0 to u_{N-1} (N, nu); values outside their bounds are clipped.
        design: The design parameters (P,); by default their initial guess.

    Raises:
        TypeError: The controls are not an array.
        ValueError: The shape of the controls is not (N, nu).
    """
    check_problem(problem, "rollout_controls")
    check_instance("the argument controls", controls, jax.Array | np.ndarray, "an array, jnp.asarray(controls)")
    if controls.shape != (problem.steps, problem.dynamics.nu):
        raise ValueError(
            f"controls have shape {controls.shape}; give shape {(problem.steps, problem.dynamics.nu)}, "
            "one row for each time step"
        )
    return _rolled_out(problem, controls, initial_design(problem) if design is None else design)


@stored_outside_jit
def _rolled_out(problem: ControlProblem, controls: Float[Array, "N nu"], design: Float[Array, "P"]) -> Plan:
    placed = problem.with_design(design)
    u = jnp.clip(controls, placed.lower[None], placed.upper[None])
    dt = placed.dt

    def step(x, row):
        k, u = row
        return placed.dynamics.step(x, u, k.astype(u.dtype) * dt, dt), x

    end, states = jax.lax.scan(step, placed.initial, (jnp.arange(problem.steps), u))
    return Plan(jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), states, end), u, design)


def closed_loop(
    problem: ControlProblem,
    plan: Plan,
    feedback: Float[Array, "N nu nx"],
    start: AnyState,
    lower: Float[Array, "N nu"],
    upper: Float[Array, "N nu"],
) -> Plan:
    """The simulated motion from an initial state with the controls u = u_k + K_k (x - x_k), clipped to bounds of each time step.

    Args:
        problem: The problem.
        plan: The plan: reference states x_k, feedforward controls u_k and design parameters.
        feedback: The gains K (N, nu, nx).
        start: The initial state.
        lower, upper: Bounds of the controls of each time step.
    """

    def moving(start, states, controls, design, feedback, lower, upper):
        placed = problem.with_design(design)
        dynamics, dt = placed.dynamics, placed.dt

        def step(x, row):
            k, wanted, u, K, low, high = row
            u = jnp.clip(u + K @ dynamics.difference(wanted, x), low, high)
            return dynamics.step(x, u, k.astype(u.dtype) * dt, dt), (x, u)

        before = jax.tree.map(lambda leaf: leaf[:-1], states)
        rows = (jnp.arange(problem.steps), before, controls, feedback, lower, upper)
        end, (states, controls) = jax.lax.scan(step, start, rows)
        return jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), states, end), controls

    simulated = per_sample(moving, name="motion with feedback")
    states, controls = simulated(start, plan.states, plan.controls, plan.design, feedback, lower, upper)
    return Plan(states, controls, plan.design)


def gaps(problem: ControlProblem, plan: Plan) -> Float[Array, "N nx"]:
    """The defects of a plan, difference(x_{k+1}, f(x_k, u_k)) in tangent coordinates; they are zero if it obeys the dynamics."""
    placed = problem.with_design(plan.design)

    def gap(k, x, u, following):
        return _gap(placed, k, x, u, following)

    each = per_sample(gap, name="gaps of a plan")
    before, after = _ends_of_steps(plan)
    return jax.vmap(each)(jnp.arange(problem.steps), before, plan.controls, after)


def _gap(problem: ControlProblem, k, x, u, following) -> Float[Array, "nx"]:
    dt = problem.dt
    return problem.dynamics.difference(following, problem.dynamics.step(x, u, k.astype(u.dtype) * dt, dt))  # (S1)


def _ends_of_steps(plan: Plan) -> tuple[AnyState, AnyState]:
    """The states of a plan at the beginnings and at the ends of all time steps."""
    return tuple(jax.tree.map(lambda a, part=part: a[part], plan.states) for part in (slice(-1), slice(1, None)))


def initial_design(problem: ControlProblem) -> Float[Array, "P"]:
    """The initial guess of the design parameters."""
    return jnp.zeros(0, problem.lower.dtype) if problem.design is None else problem.design.initial


def outcome(problem: ControlProblem, plan: Plan) -> Outcome:
    """Cost and constraint values of a plan, evaluated at its states even if they do not obey the dynamics."""
    placed = problem.with_design(plan.design)

    def at(k, x, u):
        return running_cost(placed, k, x, u), path_constraints(placed, k, x, u)

    before, end = jax.tree.map(lambda a: a[:-1], plan.states), jax.tree.map(lambda a: a[-1], plan.states)
    each = per_sample(at, name="costs of a plan")
    costs, path = jax.vmap(each)(jnp.arange(problem.steps), before, plan.controls)
    return Outcome(jnp.sum(costs) + final_cost(placed, end), path, end_constraints(placed, end))


def outcome_and_gaps(problem: ControlProblem, plan: Plan) -> tuple[Outcome, Float[Array, "N nx"]]:
    """`outcome` and `gaps` of a plan, computed by one kernel."""
    placed = problem.with_design(plan.design)

    def at(k, x, u, following):
        return running_cost(placed, k, x, u), path_constraints(placed, k, x, u), _gap(placed, k, x, u, following)

    each = per_sample(at, name="costs and gaps of a plan")
    before, after = _ends_of_steps(plan)
    costs, path, defects = jax.vmap(each)(jnp.arange(problem.steps), before, plan.controls, after)
    end = jax.tree.map(lambda a: a[-1], plan.states)
    return Outcome(jnp.sum(costs) + final_cost(placed, end), path, end_constraints(placed, end)), defects


def no_multipliers(problem: ControlProblem, penalty: float) -> Multipliers:
    """Multipliers equal to zero, with the initial penalty parameter of a search."""
    path, end = inequalities(problem)
    dtype = problem.lower.dtype
    return Multipliers(
        jnp.zeros((problem.steps, len(path)), dtype), jnp.zeros(len(end), dtype), jnp.asarray(penalty, dtype)
    )


def multiplier_estimates(problem: ControlProblem, found: Outcome, multipliers: Multipliers) -> tuple[Array, Array]:
    """First-order estimates of the multipliers: lam + mu g for equality and max(0, lam + mu g) for inequality constraints."""
    path, end = (c + multipliers.penalty * g for c, g in ((multipliers.path, found.path), (multipliers.end, found.end)))
    inequality_path, inequality_end = inequalities(problem)
    return admitted(path, inequality_path[None]), admitted(end, inequality_end)


def admitted(multiplier: Array, may: np.ndarray) -> Array:
    """Multipliers of constraints; those of inequalities, which are marked in `may`, are not negative."""
    return jnp.where(may, jnp.maximum(multiplier, 0.0), multiplier)


def update_multipliers(
    problem: ControlProblem,
    found: Outcome,
    multipliers: Multipliers,
    violation_now: Float[Array, ""],
    violation_before: Float[Array, ""],
    feasibility: float,
) -> tuple[Multipliers, Bool[Array, ""]]:
    """One outer iteration of the method of multipliers, after the augmented Lagrangian has been minimized.

    The penalty parameter is increased unless the violation has decreased sufficiently since the previous update.

    Args:
        problem: The problem.
        found: Cost and constraint values at the minimizer.
        multipliers: The multipliers and the penalty parameter in the minimized augmented Lagrangian.
        violation_now: The largest violation of a constraint at the minimizer.
        violation_before: The largest violation of a constraint at the previous update.
        feasibility: The largest violation of a constraint that a solution may have.

    Returns:
        The updated multipliers, and whether the penalty parameter had already reached its maximum before this update.
    """
    harder = violation_now > jnp.maximum(_FALL * violation_before, feasibility)
    penalty = jnp.where(harder, _GROWTH * multipliers.penalty, multipliers.penalty)
    path, end = multiplier_estimates(problem, found, multipliers)
    return Multipliers(path, end, jnp.minimum(penalty, _MOST_PENALTY)), multipliers.penalty >= _MOST_PENALTY


def merit(problem: ControlProblem, found: Outcome, multipliers: Multipliers) -> Float[Array, ""]:
    """The augmented Lagrangian of a plan, cost + sum of (lam_new^2 - lam^2) / (2 mu) with updated multipliers lam_new."""
    path, end = multiplier_estimates(problem, found, multipliers)
    squares = jnp.sum(path**2 - multipliers.path**2) + jnp.sum(end**2 - multipliers.end**2)
    return found.cost + 0.5 * squares / multipliers.penalty


def regularization(dtype) -> float:
    """The dual regularization delta: in linear systems, g = delta * multiplier replaces the linearized constraint g = 0.

    Without this regularization, linearly dependent constraints would make the KKT matrix singular.
    """
    return float(jnp.finfo(dtype).eps) ** 0.4


def violation(problem: ControlProblem, found: Outcome) -> Float[Array, ""]:
    """The largest violation of a constraint: |g| for equality constraints, max(0, g) for inequality constraints."""
    worst = jnp.zeros((), problem.lower.dtype)
    for values, may in zip((found.path, found.end[None]), inequalities(problem), strict=True):
        amounts = jnp.where(may[None], jnp.maximum(values, 0.0), jnp.abs(values))
        worst = jnp.maximum(worst, jnp.max(amounts, initial=0.0))
    return worst
