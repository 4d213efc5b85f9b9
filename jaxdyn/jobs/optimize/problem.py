"""Construction of an optimal-control problem, its solver and the initial guesses from a config of `jaxdyn optimize`."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxdyn.compute import per_sample, stored_jit
from jaxdyn.compute.announcements import announced_as
from jaxdyn.control import guess
from jaxdyn.control.plan import Plan, rollout_controls
from jaxdyn.control.problem import ControlProblem, MultibodyDynamics, free_duration
from jaxdyn.control.solution import Solver
from jaxdyn.dynamics.drives import JointDrives
from jaxdyn.dynamics.equations_of_motion import constraint_errors
from jaxdyn.dynamics.system import State, System
from jaxdyn.io.errors import ConfigError
from jaxdyn.jobs.integrators import INTEGRATORS
from jaxdyn.jobs.optimize.config import ControlsStartConfig, MixedStartConfig, OptimizeConfig, StatesStartConfig
from jaxdyn.jobs.optimize.terms import ConstraintTable, CostTable
from jaxdyn.jobs.source import load
from jaxdyn.jobs.tables import coordinates, each, for_all, state
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.model import as_dtype

_CLOSED = 1e-6  # m or rad, largest allowed error of the loop constraints in the initial state


def problem_of(config: OptimizeConfig) -> ControlProblem:
    """The optimal-control problem of a config.

    Raises:
        ConfigError: A value does not fit the mechanism; the message names the key.
    """
    options = {"repair": config.repair, "contact": config.contact, "ignore": config.ignore}
    system = as_dtype(load(config.mechanism, base=config.base, **options), config.dtype)
    time = config.time
    lower, upper = _bounds(config, system)
    return ControlProblem(
        MultibodyDynamics(system, None if time.integrator is None else INTEGRATORS[time.integrator]),
        _start(config, system),
        duration=time.duration,
        steps=time.steps,
        running=_terms(config.running, system, "running"),
        final=_terms(config.final, system, "final"),
        lower=lower,
        upper=upper,
        constraints=_terms(config.constraint, system, "constraint"),
        final_constraints=_terms(config.final_constraint, system, "final_constraint"),
        design=None
        if time.shortest is None or time.longest is None
        else free_duration(jnp.asarray(time.duration, config.dtype), time.shortest, time.longest),
    )


def solver_of(config: OptimizeConfig, problem: ControlProblem) -> Solver:
    """The solver of a config.

    Raises:
        ConfigError: The solver cannot solve this problem, or a package that it needs is not installed.
    """
    solver = config.solver.build(None, "solver:")
    try:
        solver.check(problem)
    except (ValueError, ImportError) as error:
        raise ConfigError(f"solver: {error}") from None
    return solver


@announced_as("the starts")
def starts_of(config: OptimizeConfig, problem: ControlProblem) -> Plan:
    """All initial guesses of a config in its order, stacked along a leading axis.

    Raises:
        ConfigError: A value of a table [[start]] does not fit the mechanism.
    """
    parts = []
    for k, entry in enumerate(config.start, start=1):
        key = f"start {k}:"
        match entry:
            case MixedStartConfig():
                deviation = for_all(entry.standard_deviation, _system(problem), f"{key} standard_deviation")
                plans = guess.mixed(problem, entry.count, seed=entry.seed, standard_deviation=deviation)
            case StatesStartConfig():
                plans = _moved_through(entry, problem, key)
            case ControlsStartConfig():
                plans = _simulated(entry, problem, key)
        parts.append(plans)
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)


def _terms(tables: Sequence[CostTable | ConstraintTable], system: System, name: str) -> tuple:
    """The costs or constraints of an array of tables."""
    return tuple(table.build(system, f"{name} {k}:") for k, table in enumerate(tables, start=1))


def _system(problem: ControlProblem) -> System:
    assert isinstance(problem.dynamics, MultibodyDynamics)
    return problem.dynamics.system


def _start(config: OptimizeConfig, system: System) -> State:
    start = state(config.initial.q, config.initial.v, system, "initial.")
    start = dataclasses.replace(start, z=system.at_rest(start.q).z)
    if system.constraints:
        error = float(jnp.max(jnp.abs(constraint_errors(system, start).residual)))
        if error > _CLOSED:
            raise ConfigError(
                f"initial.q: the loop constraints are violated by {error:.2g} m or rad; give a configuration that closes the loops"
            )
    return start


def _bounds(config: OptimizeConfig, system: System) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of the controls; by default the ranges of the drives, or those that follow from the effort limits of the joints."""
    effort = np.asarray(system.model.limits.effort)
    least, most = -effort, effort
    if isinstance(system.drives, JointDrives):
        most = effort[list(system.drives.columns)] / np.abs(np.asarray(system.drives.gear))
        least = -most
    elif system.drives is not None:
        least, most = system.drives.control_bounds or (-np.inf, np.inf)
    lower = each(config.bounds.lower, "nu", system, "bounds.lower", least)
    upper = each(config.bounds.upper, "nu", system, "bounds.upper", most)
    if np.any(lower >= upper):
        k = int(np.argmax(lower >= upper))
        raise ConfigError(f"bounds of control {k}: {lower[k]:g} is not below {upper[k]:g}; exchange lower and upper")
    return lower, upper


def _simulated(entry: ControlsStartConfig, problem: ControlProblem, key: str) -> Plan:
    """Plans with the given controls and random deviations from them."""
    system, (steps, nu) = _system(problem), (problem.steps, problem.dynamics.nu)
    controls = each(entry.controls, "nu", system, f"{key} controls")
    deviation = each(entry.standard_deviation, "nu", system, f"{key} standard_deviation")
    held = 1 if entry.interval is None else max(1, round(entry.interval / float(problem.dt)))
    drawn = np.random.default_rng(entry.seed).normal(size=(entry.count - 1, -(-steps // held), nu))
    off = np.concatenate([np.zeros((1, steps, nu)), deviation * np.repeat(drawn, held, axis=1)[:, :steps]])
    roll = per_sample(lambda u: rollout_controls(problem, u), name="first plans")
    return stored_jit(jax.vmap(roll))(jnp.asarray(controls + off, problem.lower.dtype))


def _moved_through(entry: StatesStartConfig, problem: ControlProblem, key: str) -> Plan:
    """Plans with zero controls whose states follow the given configurations instead of the dynamics."""
    system, duration = _system(problem), float(problem.duration)
    model, ends = system.model, (entry.times[0], entry.times[-1])
    if ends[0] != 0.0 or abs(ends[1] - duration) > 1e-9 * ends[1]:
        raise ConfigError(f"{key} times range from {ends[0]:g} to {ends[1]:g} s; start at 0 and end at {duration:g} s")
    knots = jnp.stack([coordinates(q, model, f"{key} q") for q in entry.q])
    random, size = np.random.default_rng(entry.seed), (entry.count, len(entry.times), model.nv)
    drawn = random.normal(size=size) if entry.distribution == "normal" else random.uniform(-1.0, 1.0, size)
    away = np.zeros(size)  # the first guess, and the ends of the others, are not changed
    away[1:, 1:-1] = for_all(entry.spread, system, f"{key} spread") * drawn[1:, 1:-1]
    time, lengths = np.arange(problem.steps + 1) * float(problem.dt), np.diff(entry.times)
    part = np.clip(np.searchsorted(entry.times, time, side="right") - 1, 0, len(lengths) - 1)
    share = jnp.asarray((time - np.asarray(entry.times)[part]) / lengths[part], model.dtype)

    def plan(away):
        through = jax.vmap(lambda q, step: configuration.integrate(model, q, step))(knots, away)
        steps = jax.vmap(lambda a, b: configuration.difference(model, a, b))(through[:-1], through[1:])
        q = jax.vmap(lambda k, share: configuration.integrate(model, through[k], share * steps[k]))(part, share)
        v = (steps / jnp.asarray(lengths, model.dtype)[:, None])[part]
        z = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(q), *x.shape)), problem.initial.z)
        states = State(q.at[0].set(problem.initial.q), v.at[0].set(problem.initial.v), z)
        return dataclasses.replace(guess.rest(problem), states=states)

    return stored_jit(jax.vmap(plan))(jnp.asarray(away, model.dtype))
