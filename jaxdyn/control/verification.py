"""Check of a plan that does not depend on the solver that found it: constraints, bounds, and a simulation with shorter steps.

A plan may satisfy its time steps although no motion follows from its controls, because the time steps are too long for the machine.
The check therefore simulates every time step in four parts, which the steps of a right plan resemble, and asks whether the rest
matters. Distances are measured by the ranges of the motion, one for each unit of tangent coordinates (rad, m, rad/s, m/s).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from jaxdyn.compute import stored_outside_jit
from jaxdyn.compute.arrays import as_numpy
from jaxdyn.control.plan import Outcome, Plan, check_problem, closed_loop, gaps, outcome, outcome_and_gaps, violation
from jaxdyn.control.problem import (
    AnyState,
    ControlProblem,
    Controls,
    Dynamics,
    MultibodyDynamics,
    Tangent,
    Time,
    inequalities,
)
from jaxdyn.control.rates import WithRates
from jaxdyn.display import Display, Displayed, counted, known, number_text

PARTS = 4
"""Number of parts in which the check integrates a time step."""
TOLERANCE = 0.05
"""Largest `Verification.miss` of a plan whose motion happens, as a fraction of the range of the motion."""
_CLEAR = 0.2  # fraction of the tolerance up to which errors of single time steps prove that the motion happens
_AMPLIFIED = 10.0  # a motion that amplifies these errors by more needs feedback


class Verification(Displayed, eqx.Module):
    """How well a plan satisfies its problem.

    Attributes:
        gap: The largest component of difference(x_{k+1}, f(x_k, u_k)) in tangent coordinates, including the initial state.
        violation: The largest violation of an equality or inequality constraint.
        excess: The largest distance of a control or design parameter from its bounds.
        integration_error: Estimate of the error that the time steps cause. For each time step, the error is the difference from
            four steps of a quarter of its length. The errors of all time steps are added for each tangent coordinate, and the
            largest sum is the estimate. It is NaN for dynamics in discrete time, whose time steps approximate nothing.
        miss: Miss of the motion against the cost and the constraints of the plan, as a fraction of the range of the motion; 0 for
            dynamics in discrete time. See `verify`.
        integrator: Name of the integrator of the time steps of a mechanism, which `ControlProblem` chooses if it is not given;
            empty for other dynamics.
    """

    gap: Float[Array, "*batch"]
    violation: Float[Array, "*batch"]
    excess: Float[Array, "*batch"]
    integration_error: Float[Array, "*batch"]
    miss: Float[Array, "*batch"]
    integrator: str = eqx.field(static=True, default="")

    @property
    def happens(self) -> Bool[Array, "*batch"]:
        """Whether the motion of the plan happens, that is, `miss` is at most `TOLERANCE`."""
        return happens(self.miss)

    def _display(self) -> Display:
        names = ("gap", "violation", "excess", "integration_error")
        rows = {name.replace("_", " "): number_text(getattr(self, name)) for name in names}
        miss = known(self.miss)
        rows["miss"] = "unknown" if miss is None else f"{number_text(100.0 * miss)} % of the range of the motion"
        if self.integrator:
            rows["integrator"] = self.integrator
        ends = [] if miss is None else ["happens" if x <= TOLERANCE else "does not happen" for x in miss.ravel()]
        return Display(f"Verification({'unknown' if miss is None else counted(ends) if miss.ndim else ends[0]})", rows)


def verify(problem: ControlProblem, plan: Plan, *, feedback: Float[Array, "N nu nx"] | None = None) -> Verification:
    """Check a plan against its problem: dynamics, constraints, bounds, and whether the motion of the plan happens.

    Each time step is integrated again in four parts, from the state of the plan at its beginning. Let e_k be the difference between
    the state of the plan at the end of step k and the result. If the sum of all |e_k| is at most 1 % of the range of the motion in
    every tangent coordinate, the motion happens; this holds for unstable motions too, whose simulation would amplify every error.
    The range is the largest distance from the initial state, of all coordinates with the same unit.

    Otherwise the whole motion is simulated in such parts, with the controls of the plan. The motion happens if the simulation is as
    good as a plan whose states or controls are displaced: its cost, and its violation of each constraint, may exceed those of the
    plan by no more than the largest change that a displacement causes, of one coordinate of all states or of one control by 5 % of
    its range. Thus the tolerance has no unit, and deviations count as far as costs and constraints depend on them: a link may
    arrive although an undamped vibration of its drive has another phase. If the motion is unstable, so that the simulation
    amplifies the sum of |e_k| more than tenfold, it may use the given feedback.

    Args:
        problem: The problem.
        plan: The plan, for example the `value` of a `Solution`.
        feedback: Gains K (N, nu, nx) of feedback u = u_k + K_k (x - x_k), such as those of a `Solution`; none by default.

    Example:
        >>> import jaxdyn, jax.numpy as jnp
        >>> from jaxdyn import control
        >>> system = jaxdyn.library.system("pendulum")
        >>> start = system.at_rest(jnp.array([0.1]))
        >>> problem = control.ControlProblem(
        ...     control.MultibodyDynamics(system), start, duration=1.0, steps=20, running=control.Effort()
        ... )
        >>> checked = control.verify(problem, control.guess.rolled_out(problem))
        >>> bool(checked.gap < 1e-5), bool(checked.integration_error < 1e-3), bool(checked.happens)
        (True, True, True)
    """
    check_problem(problem, "verify", plan)
    return verify_each(problem, plan, feedback, np.array(True))


def verify_each(
    problem: ControlProblem,
    plans: Plan,
    feedback: Float[Array, "*batch N nu nx"] | None,
    solved: Bool[Array | np.ndarray, "*batch"] | np.bool_,
    checked: Verification | None = None,
) -> Verification:
    """`verify` for one plan, for a batch of plans of one problem, or for a batch of problems with one plan each.

    The motions are simulated only if that is necessary: outside of `jit` the simulation is not even compiled otherwise.

    Args:
        solved: Which plans obey their time steps. The miss of other plans is that of the first part of the check.
        checked: The first part of the check, `of_time_steps`, if it has been made.
    """
    batch = plans.controls.ndim > 2
    several = (problem.duration.ndim > 0) if batch else None
    checked = of_time_steps(problem, plans, several) if checked is None else checked
    clear = is_clear(as_numpy(checked.miss)) | ~solved
    traced = isinstance(clear, Tracer)
    if not traced and np.all(clear):
        return checked

    def simulated():
        return jnp.where(clear, checked.miss, _of_motion(problem, plans, feedback, checked.miss, several))

    miss = jax.lax.cond(jnp.all(clear), lambda: checked.miss, simulated) if traced else simulated()
    return eqx.tree_at(lambda c: c.miss, checked, miss)


def _mapped(function: Callable, several: bool | None) -> Callable:
    """A function of a problem and of plans, for one plan (None), or for several plans of one problem or of one problem each."""
    if several is None:
        return function
    return lambda problem, *plans: eqx.filter_vmap(
        function, in_axes=(eqx.if_array(0) if several else None, *[0] * len(plans))
    )(problem, *plans)


def happens(miss: Any) -> Any:
    """Whether a motion with this miss happens; not for NaN."""
    return miss <= TOLERANCE


def is_clear(miss: Any) -> Any:
    """Whether the miss of `of_time_steps` is so small that the motion happens, or would miss as little."""
    return miss <= _CLEAR * TOLERANCE


@stored_outside_jit
def of_time_steps(problem: ControlProblem, plans: Plan, several: bool | None) -> Verification:
    """The first part of the check, from each time step alone."""

    def each(problem: ControlProblem, plan: Plan) -> Verification:
        placed = problem.with_design(plan.design)
        off = jnp.abs(placed.dynamics.difference(placed.initial, jax.tree.map(lambda leaf: leaf[0], plan.states)))
        planned, defects = outcome_and_gaps(problem, plan)
        gap = jnp.maximum(jnp.max(off), jnp.max(jnp.abs(defects)))
        least, most = problem.design_bounds
        beyond = [placed.lower[None] - plan.controls, plan.controls - placed.upper[None]]
        beyond += [least - plan.design, plan.design - most]
        excess = jnp.max(jnp.stack([jnp.max(amount, initial=0.0) for amount in beyond]))
        error, miss = jnp.full_like(gap, jnp.nan), jnp.zeros_like(gap)
        if placed.dynamics.continuous:
            of_parts = gaps(_in_parts(placed), plan)
            error = jnp.max(jnp.sum(jnp.abs(of_parts - defects), axis=0))
            miss = TOLERANCE * jnp.max((jnp.sum(jnp.abs(of_parts), axis=0) + off) / _allowed(placed, plan.states)[0])
        return Verification(gap, violation(problem, planned), excess, error, miss, integrator_name(placed.dynamics))

    return _mapped(each, several)(problem, plans)


class _InParts(Dynamics):
    """Dynamics whose time steps are made in `PARTS` steps of the given dynamics."""

    inner: Dynamics

    @property
    def nx(self) -> int:
        return self.inner.nx

    @property
    def nu(self) -> int:
        return self.inner.nu

    def step(self, x: AnyState, u: Controls, t: Time, dt: Time) -> AnyState:
        part = dt / PARTS

        def one(x, n):
            return self.inner.step(x, u, t + n.astype(u.dtype) * part, part), None

        return jax.lax.scan(one, x, jnp.arange(PARTS))[0]

    def retract(self, x: AnyState, step: Tangent) -> AnyState:
        return self.inner.retract(x, step)

    def difference(self, a: AnyState, b: AnyState) -> Tangent:
        return self.inner.difference(a, b)


def integrator_name(dynamics: Dynamics) -> str:
    """The class of the integrator of a mechanism; empty for other dynamics."""
    dynamics = dynamics.inner if isinstance(dynamics, WithRates) else dynamics
    return type(dynamics.method).__name__ if isinstance(dynamics, MultibodyDynamics) else ""


def _in_parts(placed: ControlProblem) -> ControlProblem:
    """A problem with placed design whose time steps are made in parts."""
    dynamics = placed.dynamics
    # Rates change the controls at the ends of the time steps only.
    fine = WithRates(_InParts(dynamics.inner)) if isinstance(dynamics, WithRates) else _InParts(dynamics)
    return eqx.tree_at(lambda p: (p.dynamics, p.design), placed, (fine, None), is_leaf=lambda leaf: leaf is None)


def _allowed(problem: ControlProblem, *motions: AnyState) -> Float[Array, "motions nx"]:
    """The tolerance of each tangent coordinate along motions: a fraction of the range of all coordinates with the same unit."""
    dynamics = problem.dynamics
    alike = jnp.array([[a == b for b in dynamics.units] for a in dynamics.units])

    def of(states):
        away = jnp.max(jnp.abs(jax.vmap(lambda x: dynamics.difference(problem.initial, x))(states)), axis=0)
        return jnp.max(jnp.where(alike, away[None], 0.0), axis=1)

    ranges = jnp.stack([of(states) for states in motions])
    rounding = jnp.sqrt(jnp.finfo(ranges.dtype).eps)  # by which coordinates that stand still may be off
    return TOLERANCE * ranges + rounding


@stored_outside_jit
def _of_motion(
    problem: ControlProblem,
    plans: Plan,
    feedback: Float[Array, "*batch N nu nx"] | None,
    of_steps: Float[Array, "*batch"],
    several: bool | None,
) -> Float[Array, "*batch"]:
    """The miss of the simulated motion, given that of the single steps."""

    def each(problem: ControlProblem, plan: Plan, feedback: Array | None, of_steps: Array) -> Array:
        placed, nx = problem.with_design(plan.design), problem.dynamics.nx
        fine = _in_parts(placed)
        none = jnp.zeros((*plan.controls.shape, nx), plan.controls.dtype)
        lower, upper = (jnp.broadcast_to(bound, plan.controls.shape) for bound in (placed.lower, placed.upper))
        planned = outcome(problem, plan)

        def miss(gains: Array) -> tuple[Array, Array]:
            moved = closed_loop(fine, plan, gains, placed.initial, lower, upper)
            allowed = jnp.min(_allowed(placed, plan.states, moved.states), axis=0)
            steps = jnp.diag(jnp.concatenate([allowed, TOLERANCE * jnp.max(jnp.abs(plan.controls), axis=0)]))

            def displaced(step: Array) -> Outcome:
                states = jax.vmap(lambda x: placed.dynamics.retract(x, step[:nx]))(plan.states)
                return outcome(problem, Plan(states, plan.controls + step[None, nx:], plan.design))

            others = jax.vmap(displaced)(jnp.concatenate([steps, -steps]))
            away = jnp.max(jnp.abs(jax.vmap(placed.dynamics.difference)(plan.states, moved.states)), axis=0)
            worse = _worse(problem, planned, outcome(problem, moved), others)
            return TOLERANCE * worse, TOLERANCE * jnp.max(away / allowed)

        found, away = jax.vmap(miss)(jnp.stack([none] if feedback is None else [none, feedback]))
        found = jnp.where(jnp.isnan(found), jnp.inf, found)
        return jnp.where(away[0] <= _AMPLIFIED * of_steps, found[0], jnp.min(found))

    return _mapped(each, several)(problem, plans, feedback, of_steps)


def _worse(problem: ControlProblem, planned: Outcome, found: Outcome, displaced: Outcome) -> Float[Array, ""]:
    """How much the cost and the violations of a motion exceed those of its plan, relative to the changes by displacements."""
    ratios = []
    for name, may in zip(("cost", "path", "end"), (None, *inequalities(problem)), strict=True):
        here, there, others = (getattr(part, name) for part in (planned, found, displaced))
        change = jnp.max(jnp.abs(others - here[None]), axis=0)
        rounding = jnp.sqrt(jnp.finfo(change.dtype).eps)
        amount = partial(_amount, None if may is None else np.broadcast_to(may, here.shape))
        ratio = (amount(there) - amount(here)) / (change + rounding * (jnp.abs(here) + rounding))
        ratios.append(jnp.max(ratio, initial=0.0))
    return jnp.max(jnp.stack(ratios))


def _amount(may: np.ndarray | None, values: Array) -> Array:
    """A cost itself; the violations of constraints, of which some may be negative."""
    return values if may is None else jnp.where(may, jnp.maximum(values, 0.0), jnp.abs(values))
