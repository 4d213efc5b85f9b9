"""From the config of `jaxdyn optimize` to an optimal-control problem, its solver and the plans to start from."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from jaxdyn.control import costs
from jaxdyn.control.collocation import Collocation
from jaxdyn.control.ilqr import ILQR
from jaxdyn.control.multiple_shooting import MultipleShooting
from jaxdyn.control.plan import Plan, initial_design, rollout_controls
from jaxdyn.control.problem import ControlProblem, Cost, Design, Equality, Inequality, MultibodyDynamics
from jaxdyn.control.sampling import CrossEntropy, PathIntegral, PredictiveSampling, Sampling, SamplingRule
from jaxdyn.control.single_shooting import SingleShooting
from jaxdyn.control.solution import Solver
from jaxdyn.control.workless import Workless
from jaxdyn.dynamics.system import State, System, constraint_errors
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.system_file import load_system
from jaxdyn.jobs.command import needs
from jaxdyn.jobs.integrators import INTEGRATORS
from jaxdyn.jobs.optimize_config import (
    AngularDeviationConfig,
    CollocationConfig,
    ConditionConfig,
    CostConfig,
    CrossEntropyConfig,
    DeviationConfig,
    EffortConfig,
    ElapsedTimeConfig,
    EnergyConfig,
    FramePoseConfig,
    MultipleShootingConfig,
    NewtonConfig,
    OptimizeConfig,
    PathIntegralConfig,
    PenetrationConfig,
    PredictiveSamplingConfig,
    RandomStartConfig,
    SineStartConfig,
    SingleShootingConfig,
    SpheresConfig,
    StartConfig,
    StateBoundsConfig,
    StateConditionConfig,
    StateConfig,
    StatesStartConfig,
    StillStartConfig,
    WorklessConfig,
)
from jaxdyn.lanes import lane_function, stored_jit
from jaxdyn.lanes.announcements import announced_as
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.model import Model, as_dtype
from jaxdyn.spatial.transform import RigidTransform

_CLOSED = 1e-6  # m or 1, of loops at the start


def problem_of(config: OptimizeConfig) -> ControlProblem:
    """The problem that a config states.

    Raises:
        ConfigError: something in it does not fit the mechanism; the message names the key.
    """
    system = as_dtype(load_system(config.mechanism), config.dtype)
    time = config.time
    free = time.shortest is not None
    lower, upper = _bounds(config, system)
    return ControlProblem(
        MultibodyDynamics(system, INTEGRATORS[time.integrator]),
        _start(config, system),
        duration=time.duration,
        steps=time.steps,
        running=tuple(_cost(entry, system, f"running {k}:") for k, entry in enumerate(config.running, start=1)),
        final=tuple(_cost(entry, system, f"final {k}:") for k, entry in enumerate(config.final, start=1)),
        lower=lower,
        upper=upper,
        constraints=tuple(_condition(e, system, f"condition {k}:") for k, e in enumerate(config.condition, start=1)),
        final_constraints=tuple(
            _condition(e, system, f"final_condition {k}:") for k, e in enumerate(config.final_condition, start=1)
        ),
        design=Design(_lasting, jnp.full(1, time.duration, config.dtype), time.shortest, time.longest)
        if free
        else None,
    )


def solver_of(config: OptimizeConfig, problem: ControlProblem) -> Solver:
    """The method that a config chooses.

    Raises:
        ConfigError: a package that it needs is not installed; it cannot know how widely to draw controls.
    """
    single, solver = config.dtype == "float32", config.solver
    tolerance, feasibility = (1e-5, 1e-4) if single else (1e-9, 1e-6)
    match solver:
        case NewtonConfig():
            return ILQR(
                second_order=solver.kind == "ddp",
                tolerance=solver.tolerance or tolerance,
                feasibility=solver.feasibility or feasibility,
                penalty=solver.penalty,
                backend=config.backend,
            )
        case MultipleShootingConfig():
            return MultipleShooting(
                parallel=solver.parallel,
                tolerance=solver.tolerance or (1e-4 if single else 1e-8),
                backend=config.backend,
            )
        case SingleShootingConfig():
            return SingleShooting(
                optax.lbfgs() if solver.optimizer == "lbfgs" else optax.adam(solver.rate),
                tolerance=solver.tolerance or tolerance,
                feasibility=solver.feasibility or feasibility,
                penalty=solver.penalty,
                backend=config.backend,
            )
        case PredictiveSamplingConfig() | PathIntegralConfig() | CrossEntropyConfig():
            if solver.spread is None and not np.all(np.isfinite([problem.lower, problem.upper])):
                raise ConfigError("solver.spread: missing, and a control has no bounds; give one or the other")
            return Sampling(
                _rule(solver),
                samples=solver.samples,
                knots=solver.knots,
                spread=solver.spread,
                penalty=solver.penalty,
                tolerance=solver.tolerance,
                patience=solver.patience,
                feasibility=solver.feasibility,
                seed=solver.seed,
                backend=config.backend,
            )
        case CollocationConfig():
            with needs("nlp"):
                import ipyopt  # noqa: F401 (better to fail now than after compilation)
            return Collocation(
                scheme=solver.scheme,
                degree=solver.degree,
                tolerance=solver.tolerance,
                feasibility=solver.feasibility,
                backend=config.backend,
            )


def _rule(solver: PredictiveSamplingConfig | PathIntegralConfig | CrossEntropyConfig) -> SamplingRule:
    match solver:
        case PredictiveSamplingConfig():
            return PredictiveSampling()
        case PathIntegralConfig():
            return PathIntegral(solver.temperature)
        case CrossEntropyConfig():
            return CrossEntropy(solver.elites)


@announced_as("the starts")
def starts_of(config: OptimizeConfig, problem: ControlProblem) -> Plan:
    """The plans to start from, with a leading axis; those of one entry follow those of the entry before it.

    Raises:
        ConfigError: something in an entry does not fit the mechanism.
    """
    roll = lane_function(lambda u: rollout_controls(problem, u), backend=config.backend, name="first plans")
    rolled = stored_jit(jax.vmap(roll))
    parts = []
    for k, entry in enumerate(config.start, start=1):
        if isinstance(entry, StatesStartConfig):
            parts.append(_moved_through(entry, problem, f"start {k}:"))
        else:
            parts.append(rolled(jnp.asarray(_controls(entry, problem, f"start {k}:"), config.dtype)))
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)


def _lasting(problem: ControlProblem, design: Float[Array, "1"]) -> ControlProblem:
    return eqx.tree_at(lambda x: x.duration, problem, design[0])


def _start(config: OptimizeConfig, system: System) -> State:
    start = _state(config.initial, system.model, "initial.")
    if system.constraints:
        error = float(jnp.max(jnp.abs(constraint_errors(system, start).residual)))
        if error > _CLOSED:
            raise ConfigError(
                f"initial.q: the loops are open there by {error:.2g} m or rad; give a closed configuration"
            )
    return start


def _state(entry: StateConfig, model: Model, key: str) -> State:
    return State(_coordinates(entry.q, model, f"{key}q"), _velocities(entry.v, model, f"{key}v"))


def _coordinates(values: Sequence[float] | None, model: Model, key: str) -> Float[Array, "nq"]:
    """Coordinates of that many numbers, quaternions of norm 1."""
    if values is None:
        return configuration.neutral(model)
    if len(values) != model.nq:
        raise ConfigError(f"{key} has {len(values)} numbers; give {model.nq}: one per coordinate")
    return configuration.normalize(model, jnp.asarray(values, model.dtype))


def _velocities(values: Sequence[float], model: Model, key: str) -> Float[Array, "nv"]:
    return jnp.asarray(_each(values, model.nv, key, "velocity component"), model.dtype)


def _each(values: Sequence[float], count: int, key: str, what: str) -> np.ndarray:
    if len(values) not in (1, count):
        raise ConfigError(f"{key} has {len(values)} numbers; give 1, or {count}: one per {what}")
    return np.broadcast_to(np.asarray(values, float), (count,))


def _bounds(config: OptimizeConfig, system: System) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of the controls, those that the joints bear where none are given."""
    effort = np.asarray(system.model.limits.effort)
    if system.drives is not None:
        effort = effort[list(system.drives.columns)] / np.abs(np.asarray(system.drives.gear))
    given = (config.bounds.lower, config.bounds.upper)
    lower, upper = (
        limit if values is None else _each(values, system.nu, f"bounds.{name}", "control")
        for values, limit, name in zip(given, (-effort, effort), ("lower", "upper"), strict=True)
    )
    if np.any(lower >= upper):
        k = int(np.argmax(lower >= upper))
        raise ConfigError(f"bounds of control {k}: {lower[k]:g} is not below {upper[k]:g}; exchange lower and upper")
    return lower, upper


def _cost(entry: CostConfig, system: System, key: str) -> Cost:
    model, dtype = system.model, system.model.dtype

    def weights(values: Sequence[float], count: int, what: str) -> Array:
        return jnp.asarray(_each(values, count, f"{key} weights", what), dtype)

    match entry:
        case DeviationConfig():
            target = _state(entry, model, f"{key} ")
            return costs.Deviation(target, weights(entry.weights, 2 * model.nv, "coordinate and velocity component"))
        case AngularDeviationConfig():
            target = _coordinates(entry.q, model, f"{key} q")
            return costs.AngularDeviation(target, weights(entry.weights, model.nv, "velocity component"))
        case EffortConfig():
            return costs.Effort(weights(entry.weights, system.nu, "control"))
        case FramePoseConfig():
            _known(model, entry.frame, f"{key} frame")
            target = as_dtype(RigidTransform(jnp.asarray(entry.quaternion), jnp.asarray(entry.position)), dtype)
            numbers = (jnp.asarray(x, dtype) for x in (entry.position_weight, entry.rotation_weight))
            return costs.FramePose(entry.frame, target, *numbers)
        case EnergyConfig():
            return costs.EnergyLevel(jnp.asarray(entry.level, dtype), jnp.asarray(entry.weight, dtype))
        case ElapsedTimeConfig():
            return costs.ElapsedTime(jnp.asarray(entry.weight, dtype))
        case PenetrationConfig():
            return costs.Penetration(_spheres(entry, model, key), jnp.asarray(entry.weight, dtype))


def _condition(entry: ConditionConfig, system: System, key: str) -> Equality | Inequality:
    model = system.model
    match entry:
        case StateConditionConfig():
            target = State(_coordinates(entry.q, model, f"{key} q"), _velocities(entry.v or (0.0,), model, f"{key} v"))
            first = 0 if entry.q is not None else model.nv
            last = 2 * model.nv if entry.v is not None else model.nv
            return Equality(lambda dynamics, t, x, u: dynamics.difference(target, x)[first:last], key)
        case StateBoundsConfig():
            return Inequality(_outside(entry, model, key), key)
        case SpheresConfig():
            return Inequality(_spheres(entry, model, key), key)
        case WorklessConfig():
            return Equality(Workless(), key)


def _outside(entry: StateBoundsConfig, model: Model, key: str):
    """By how much coordinates and velocities are outside their bounds, for the bounds that there are."""
    limits = model.limits
    sides = []
    for name, q_limit, v_limit in (("lower", limits.lower, -limits.velocity), ("upper", limits.upper, limits.velocity)):
        of_q, of_v = getattr(entry, f"q_{name}"), getattr(entry, f"v_{name}")
        q_bound = q_limit if of_q is None else _each(of_q, model.nq, f"{key} q_{name}", "coordinate")
        v_bound = v_limit if of_v is None else _each(of_v, model.nv, f"{key} v_{name}", "velocity component")
        sides.append(np.concatenate([np.asarray(q_bound), np.asarray(v_bound)]))
    below, above = (np.flatnonzero(np.isfinite(side)) for side in sides)
    if not len(below) and not len(above):
        raise ConfigError(f"{key} nothing is bounded, and the joints have no limits; give a bound")
    lower, upper = (jnp.asarray(side[rows], model.dtype) for side, rows in zip(sides, (below, above), strict=True))

    def outside(dynamics, t, x: State, u):
        values = jnp.concatenate([x.q, x.v])
        return jnp.concatenate([lower - values[below], values[above] - upper])

    return outside


def _spheres(entry: SpheresConfig, model: Model, key: str) -> costs.Spheres:
    for k, sphere in enumerate(entry.sphere, start=1):
        if sphere.body not in model.topology.body_names:
            raise ConfigError(
                f"{key} sphere {k}: body: there is no body {sphere.body!r}; use one of {', '.join(model.topology.body_names)}"
            )
    numbers = ([s.center for s in entry.sphere], [s.radius for s in entry.sphere])
    obstacles = ([s.center for s in entry.obstacle], [s.radius for s in entry.obstacle])
    arrays = (jnp.asarray(x, model.dtype) for x in (*numbers, *obstacles, entry.margin))
    return costs.Spheres(tuple(sphere.body for sphere in entry.sphere), *arrays)


def _known(model: Model, name: str, key: str) -> None:
    known = (*model.topology.body_names, *model.topology.frame_names)
    if name not in known:
        raise ConfigError(f"{key}: there is no body or frame {name!r}; use one of {', '.join(known)}")


def _controls(entry: StartConfig, problem: ControlProblem, key: str) -> np.ndarray:
    """Controls of the starts of an entry, (count, steps, nu)."""
    steps, nu = problem.steps, problem.dynamics.nu
    match entry:
        case StillStartConfig():
            return np.broadcast_to(_each(entry.controls, nu, f"{key} controls", "control"), (1, steps, nu))
        case SineStartConfig():
            time = np.arange(steps) * float(problem.dt)
            amplitude = _each(entry.amplitude, nu, f"{key} amplitude", "control")
            return np.sin(entry.rate * time)[None, :, None] * amplitude
        case RandomStartConfig():
            amplitude = _each(entry.amplitude, nu, f"{key} amplitude", "control")
            held = 1 if entry.interval is None else max(1, round(entry.interval / float(problem.dt)))
            drawn = np.random.default_rng(entry.seed).normal(size=(entry.count, -(-steps // held), nu))
            return amplitude * np.repeat(drawn, held, axis=1)[:, :steps]
    raise TypeError(f"{type(entry).__name__} has no controls")


def _moved_through(entry: StatesStartConfig, problem: ControlProblem, key: str) -> Plan:
    """Plans with controls zero, whose states follow the given configurations and not from each other."""
    assert isinstance(problem.dynamics, MultibodyDynamics)
    model, steps = problem.dynamics.system.model, problem.steps
    if entry.times[0] != 0.0 or abs(entry.times[-1] - float(problem.duration)) > 1e-9 * entry.times[-1]:
        raise ConfigError(
            f"{key} times go from {entry.times[0]:g} to {entry.times[-1]:g} s; begin at 0 and end at {float(problem.duration):g} s"
        )
    knots = jnp.stack([_coordinates(q, model, f"{key} q") for q in entry.q])
    inner = np.zeros((len(entry.times), 1))
    inner[1:-1] = entry.spread
    random, size = np.random.default_rng(entry.seed), (entry.count, len(entry.times), model.nv)
    drawn = random.normal(size=size) if entry.distribution == "normal" else random.uniform(-1.0, 1.0, size)
    away = inner * drawn
    away[0] = 0.0
    time = np.arange(steps + 1) * float(problem.dt)
    part = np.clip(np.searchsorted(entry.times, time, side="right") - 1, 0, len(entry.times) - 2)
    lengths = np.diff(entry.times)
    share = jnp.asarray((time - np.asarray(entry.times)[part]) / lengths[part], model.dtype)

    def plan(away):
        through = jax.vmap(lambda q, step: configuration.integrate(model, q, step))(knots, away)
        steps = jax.vmap(lambda a, b: configuration.difference(model, a, b))(through[:-1], through[1:])
        q = jax.vmap(lambda k, share: configuration.integrate(model, through[k], share * steps[k]))(part, share)
        v = (steps / jnp.asarray(lengths, model.dtype)[:, None])[part]
        return Plan(
            State(q.at[0].set(problem.initial.q), v.at[0].set(problem.initial.v)),
            jnp.zeros((problem.steps, problem.dynamics.nu), model.dtype),
            initial_design(problem),
        )

    return stored_jit(jax.vmap(plan))(jnp.asarray(away, model.dtype))
