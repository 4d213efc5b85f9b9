"""Initial guesses of plans: at rest, held against gravity, straight lines, random motions under feedback, and a mixture of them.

By default `solve` starts from the guess `simplest`, and `solve_batch` from the guesses `mixed`. A guess may violate the dynamics.
`SingleShooting` and `Sampling` use only the controls of a guess; all other solvers use its states too. For a problem with rates
(`with_rates`), guesses of equilibria, straight lines and random motions are those of the original problem; the rates are the slopes
of their controls.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jaxdyn.compute import per_sample, stored_jit, stored_outside_jit
from jaxdyn.compute.arrays import dot
from jaxdyn.control.constraint_terms import TargetState
from jaxdyn.control.costs import Deviation
from jaxdyn.control.plan import Plan, initial_design, rollout_controls
from jaxdyn.control.problem import AnyState, ControlProblem, Controls, Dynamics, MultibodyDynamics
from jaxdyn.control.rates import WithRates, original_problem, plan_with_rates
from jaxdyn.control.tracking import follow, tracking_gains
from jaxdyn.dynamics.equations_of_motion import acceleration
from jaxdyn.dynamics.system import State
from jaxdyn.mechanism import configuration
from jaxdyn.spatial import factorizations

Kind = Literal["rest", "held", "straight line", "random path", "random motion"]
"""Kinds of guesses in `mixed`, which `kinds` lists."""

_WAVES = 3  # half sine waves of a random path
_DIVERGED = 1e6  # values of states and controls (in their units) beyond which a simulated guess counts as diverged
_EFFORT = 1e-2  # weight of the controls in the feedback of random motions, where they have no bounds


def _of_original(guess: Callable[..., Plan]) -> Callable[..., Plan]:
    """Decorator of a guess: for a problem with rates, it is made for the original problem."""

    @functools.wraps(guess)
    def of_any(problem: ControlProblem, *args: Any, **options: Any) -> Plan:
        if not isinstance(problem.dynamics, WithRates):
            return guess(problem, *args, **options)
        return plan_with_rates(problem, guess(original_problem(problem), *args, **options))

    return of_any


@stored_outside_jit
def rolled_out(problem: ControlProblem, controls: Float[Array, "N nu"] | Float[Array, "nu"] | None = None) -> Plan:
    """The plan that results from simulating the dynamics under given controls, or under zero controls.

    Args:
        problem: The problem.
        controls: One control vector for each time step (N, nu), or one for all time steps (nu,); by default zero.
    """
    shape = (problem.steps, problem.dynamics.nu)
    if controls is None:
        controls = jnp.zeros(shape, problem.lower.dtype)
    controls = jnp.broadcast_to(controls, shape) if controls.ndim == 1 else controls
    moved = per_sample(lambda u: rollout_controls(problem, u), name="motion of controls")
    return moved(jnp.asarray(controls))


def rest(problem: ControlProblem) -> Plan:
    """The plan that stays in the initial state, with zero controls. It obeys the dynamics only if this state is an equilibrium."""
    states = jax.tree.map(lambda leaf: jnp.stack([leaf] * (problem.steps + 1)), problem.initial)
    return Plan(states, jnp.zeros((problem.steps, problem.dynamics.nu), problem.lower.dtype), initial_design(problem))


@stored_outside_jit
@_of_original
def gravity_compensated(problem: ControlProblem, states: AnyState | None = None) -> Plan:
    """A plan whose controls hold the system still in each of its states, as far as the bounds of the controls permit.

        u_k minimizes |a(q_k, 0, u)| for a mechanism, and |f(x_k, u) - x_k| for other dynamics,

    where a(q, v, u) is the acceleration of the mechanism and f the time step of the dynamics.

    Args:
        problem: The problem.
        states: States x_0 to x_N, for a problem with rates those of the original problem; by default all are the initial state.
    """
    states = rest(problem).states if states is None else states
    placed = problem.with_design(initial_design(problem))
    before = jax.tree.map(lambda leaf: leaf[:-1], states)
    # In lanes: XLA takes seconds to compile the derivative, and a mixture of guesses contains it four times.
    holding = per_sample(lambda x: _holding(placed, x), name="controls at rest")
    controls = jax.vmap(holding)(before)
    return Plan(states, controls, initial_design(problem))


@stored_outside_jit
@_of_original
def straight_line(problem: ControlProblem, goal: AnyState | None = None) -> Plan:
    """The plan along the straight line in tangent coordinates from the initial state to a goal, at constant speed.

    The controls are computed by `gravity_compensated`.

    Args:
        problem: The problem.
        goal: Final state, for a problem with rates that of the original problem; by default the target of a `TargetState` among the
            final constraints, or of a `Deviation` among the final costs.

    Raises:
        ValueError: No goal is given, and no constraint or cost of the problem has a target.
    """
    goal = goal_of(problem) if goal is None else goal
    if goal is None:
        raise ValueError(
            "straight_line: the problem has no TargetState among its final constraints and no Deviation among its final costs; "
            "give the goal"
        )
    return gravity_compensated(
        problem, _path(problem, goal, jnp.zeros((_WAVES, _width(problem.dynamics)), problem.lower.dtype))
    )


def simplest(problem: ControlProblem) -> Plan:
    """The straight line to the goal of the problem, or the motion with zero controls if it has no goal.

    Args:
        problem: The problem.
    """
    return rolled_out(problem) if goal_of(problem) is None else straight_line(problem)


@_of_original
def random(
    problem: ControlProblem,
    key: PRNGKeyArray,
    *,
    standard_deviation: float | Float[Array, ""] = 1.0,
    motion: bool = True,
) -> Plan:
    """A random plan, near the straight line to the goal of the problem, or near its initial state if it has no goal.

        q(t) = q_line(t) (+) sum over n of a_n sin(n pi t / T) / n,   a_n normally distributed

    If `motion` is true, the plan is a simulation that tracks the path q(t) by LQR feedback, so that it does not diverge at unstable
    equilibria. If it diverges nevertheless, the plan is that of `motion=False`.

    Args:
        problem: The problem.
        key: Random key; `jax.vmap` over keys makes several plans.
        standard_deviation: Standard deviation of the amplitudes a_n (rad or m).
        motion: If true, the plan obeys the dynamics unless the simulation diverges; if false, its states lie on the path q(t), and
            its controls are those of `gravity_compensated`.
    """
    goal = goal_of(problem)
    dtype = problem.lower.dtype
    amplitudes = standard_deviation * jax.random.normal(key, (_WAVES, _width(problem.dynamics)), dtype)
    path = gravity_compensated(problem, _path(problem, problem.initial if goal is None else goal, amplitudes))
    if not motion:
        return path
    bound = jnp.minimum(jnp.abs(problem.lower), jnp.abs(problem.upper))
    effort = jnp.where(jnp.isfinite(bound) & (bound > 0.0), 1.0 / jnp.where(bound > 0.0, bound, 1.0) ** 2, _EFFORT)
    gains = tracking_gains(problem, path, jnp.identity(problem.dynamics.nx, dtype), jnp.diag(effort))
    simulated = follow(problem, path, gains, problem.with_design(path.design).initial)
    bounded = jnp.all(jnp.stack([jnp.all(jnp.abs(leaf) < _DIVERGED) for leaf in jax.tree.leaves(simulated)]))  # not NaN
    return jax.tree.map(lambda moved, drawn: jnp.where(bounded, moved, drawn), simulated, path)


def mixed(problem: ControlProblem, count: int = 64, *, seed: int = 0, standard_deviation: float = 1.0) -> Plan:
    """A batch of initial guesses of several kinds; the function `kinds` returns the kind of each guess.

    Args:
        problem: The problem.
        count: Number of guesses.
        seed: Seed of the random guesses.
        standard_deviation: Standard deviation of the amplitudes of random guesses (rad or m), see `random`.
    """
    scale = jnp.asarray(standard_deviation, problem.lower.dtype)
    return _mixed(problem, kinds(problem, count), jax.random.key(seed), scale)


def kinds(problem: ControlProblem, count: int) -> tuple[Kind, ...]:
    """The kind of each guess of `mixed`: one guess of each deterministic kind, then random paths and random motions alternately.

    Args:
        problem: The problem.
        count: Number of guesses.

    Raises:
        ValueError: `count` is not a positive integer.
    """
    if not isinstance(count, int) or count < 1:
        raise ValueError(f"the number of guesses is {count!r}; give a positive integer")
    rest_kind, held, line, path, motion = get_args(Kind)
    first = [rest_kind, held] + ([line] if goal_of(problem) is not None else [])
    return tuple([*first, *([path, motion] * count)][:count])


@stored_jit
def _mixed(problem: ControlProblem, kinds: tuple[Kind, ...], key: PRNGKeyArray, scale: Float[Array, ""]) -> Plan:
    makers = {"rest": rest, "held": gravity_compensated, "straight line": straight_line}
    single = [makers[kind](problem) for kind in kinds if kind in makers]
    plans = [jax.tree.map(lambda leaf: leaf[None], plan) for plan in single]
    for kind in ("random path", "random motion"):
        number = kinds.count(kind)
        if number:
            keys = jax.random.split(jax.random.fold_in(key, kind == "random motion"), number)
            plans.append(
                jax.vmap(
                    lambda key, kind=kind: random(
                        problem, key, standard_deviation=scale, motion=kind == "random motion"
                    )
                )(keys)
            )
    joined = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *plans)
    # In the order of the kinds: the random ones alternate.
    order = sorted(range(len(kinds)), key=lambda k: (kinds[k] not in makers, kinds[k] == "random motion"))
    return jax.tree.map(lambda leaf: leaf[np.argsort(order)], joined)


def goal_of(problem: ControlProblem) -> AnyState | None:
    """The goal of a problem: the state in which plans should end; None if the problem has no goal.

    The goal is the target of a `TargetState` that constrains the configuration, among the final constraints, or else of a
    `Deviation` among the final costs. For a problem with rates, it is the goal of the original problem.

    Args:
        problem: The problem.
    """
    if isinstance(problem.dynamics, WithRates):
        return goal_of(original_problem(problem))
    for constraint in problem.final_constraints:
        term = constraint.function
        if isinstance(term, TargetState) and term.of_configuration:
            return term.target
    return next((cost.target for cost in problem.final if isinstance(cost, Deviation)), None)


def _width(dynamics: Dynamics) -> int:
    """Number of tangent coordinates along which random paths differ: those of the configuration of a mechanism, or all."""
    return dynamics.system.model.nv if isinstance(dynamics, MultibodyDynamics) else dynamics.nx


def _path(problem: ControlProblem, goal: AnyState, amplitudes: Float[Array, "waves width"]) -> AnyState:
    """States from the initial state to the goal on a line with waves, which begins and ends in these two states."""
    dynamics, dtype = problem.dynamics, problem.lower.dtype
    placed = problem.with_design(initial_design(problem))
    share = jnp.arange(problem.steps + 1, dtype=dtype) / problem.steps
    number = jnp.arange(1, amplitudes.shape[0] + 1, dtype=dtype)
    phase = jnp.pi * share[:, None] * number[None]
    waves = dot(jnp.sin(phase) / number[None], amplitudes)
    if not isinstance(dynamics, MultibodyDynamics):
        away = dynamics.difference(placed.initial, goal)
        return jax.vmap(lambda s, wave: dynamics.retract(placed.initial, s * away + wave))(share, waves)
    model = dynamics.system.model
    away = configuration.difference(model, placed.initial.q, goal.q)
    rate = (away[None] + dot(jnp.pi * jnp.cos(phase), amplitudes)) / placed.duration
    q = jax.vmap(lambda s, wave: configuration.integrate(model, placed.initial.q, s * away + wave))(share, waves)
    ends = State(q.at[-1].set(goal.q), rate.at[0].set(placed.initial.v).at[-1].set(goal.v))
    z = placed.initial.z
    held = None if z is None else jnp.broadcast_to(z, (problem.steps + 1, *z.shape))
    return State(ends.q.at[0].set(placed.initial.q), ends.v, held)


def _holding(problem: ControlProblem, x: AnyState) -> Controls:
    """The controls that minimize the acceleration, or the change of a state in one time step, within their bounds. States of drives
    are steady."""
    dynamics, zero = problem.dynamics, jnp.zeros_like(problem.lower)
    start = jnp.zeros_like(problem.dt)

    def change(u: Controls) -> Float[Array, "n"]:
        if isinstance(dynamics, MultibodyDynamics):
            drives = dynamics.system.drives
            steady = None if x.z is None or drives is None else drives.steady_states(u)
            z = x.z if steady is None else steady
            return acceleration(dynamics.system, State(x.q, jnp.zeros_like(x.v), z), u, start)
        return dynamics.difference(x, dynamics.step(x, u, start, problem.dt))

    B = jax.jacfwd(change)(zero)
    square = dot(B.T, B)
    soft = jnp.finfo(zero.dtype).eps * jnp.trace(square) + jnp.finfo(zero.dtype).tiny ** 0.5
    held = -factorizations.solve(square + soft * jnp.identity(zero.shape[0], zero.dtype), dot(B.T, change(zero)))
    return jnp.clip(held, problem.lower, problem.upper)
