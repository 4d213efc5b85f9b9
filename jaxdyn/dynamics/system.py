"""A mechanism together with the forces on it, its state, and the equation of motion that integrators and optimizers use."""

import collections
import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.dynamics import constraint_motion, energy, forward, inverse, kinematics, multipliers
from jaxdyn.dynamics.constraint import Constraint
from jaxdyn.dynamics.doors import check_vectors
from jaxdyn.dynamics.forces import BodyForce, Force, JointDrives, JointForce, Resistance
from jaxdyn.dynamics.joint_limits import JointLimits
from jaxdyn.dynamics.kinematics import Motion
from jaxdyn.lanes import compiled_outside_jit
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.messages import MechanismError
from jaxdyn.mechanism.model import Model

Time = Float[Array, ""] | float

# Errors of constraints decay at this rate per step, to three quarters or less in each. Semi-implicit Euler is stable up to 0.83.
_DECAY_PER_STEP = 0.5


class State(eqx.Module):
    """Configuration and velocity of a mechanism.

    Attributes:
        q: generalized coordinates, rad or m.
        v: generalized velocities, rad/s or m/s.
    """

    q: Float[Array, "*batch nq"]
    v: Float[Array, "*batch nv"]


class System(eqx.Module):
    """A mechanism and everything that acts on it. Every number is a differentiable leaf.

    Attributes:
        model: the mechanism, gravity included.
        forces: springs, dampers, friction, applied forces.
        drives: how controls act; without drives, the control is the generalized force of every velocity component.
        method: algorithm of the forward dynamics, see `forward_dynamics`.
        constraints: what closes loops and couples coordinates.
        stabilization: rate w at which errors of the constraints decay, 1/s (critically damped). None ties it to the step of the
            integrator, w = 1/2 per step.

    Raises:
        MechanismError: a force, drive or constraint names a body or velocity component that the model does not have; two
            constraints have one name; `stabilization` is no rate.
    """

    model: Model
    forces: tuple[Force, ...] = ()
    drives: JointDrives | None = None
    method: forward.ForwardMethod = eqx.field(static=True, default="cholesky")
    constraints: tuple[Constraint, ...] = ()
    stabilization: float | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        counted = collections.Counter(constraint.name for constraint in self.constraints)
        twice = [name for name, count in counted.items() if count > 1]
        if twice:
            raise MechanismError(
                f"mechanism {self.model.name!r} has several constraints {twice[0]!r}; give each a name of its own"
            )
        self.model.topology.check_names(*self.model.rotors.names, *counted)
        if self.stabilization is not None and not 0.0 <= self.stabilization < float("inf"):
            raise MechanismError(f"stabilization is {self.stabilization} 1/s; give a rate from 0 on, or None")
        for part in (*self.forces, *([] if self.drives is None else [self.drives]), *self.constraints):
            problem = part.validate(self.model)
            if problem is not None:
                raise MechanismError(f"{type(part).__name__} on mechanism {self.model.name!r}: {problem}")

    @property
    def nu(self) -> int:
        """Number of controls."""
        return self.model.nv if self.drives is None else len(self.drives.columns)

    def at_rest(self, q: Float[Array, "nq"]) -> State:
        """The state at rest at coordinates q."""
        return State(q, jnp.zeros(self.model.nv, q.dtype))

    def _use_of_limits(self) -> str:
        """Whether joints stop at their limits of position, and how many have some."""
        limits = self.model.limits
        count = int(np.sum(np.isfinite(limits.lower) | np.isfinite(limits.upper)))
        enforced = any(isinstance(force, JointLimits) for force in self.forces)
        return f"{count}, {'enforced' if enforced else 'data only'}" if count else "none"

    def summary(self) -> str:
        """The mechanism, its forces, drives and constraints as text: `Model.summary` and one line for each of these."""
        names = self.model.topology.joint_names
        lines = [self.model.summary(), ""]
        drives = (
            names
            if self.drives is None
            else [names[self.model.topology.body_of_column[c]] for c in self.drives.columns]
        )
        kinds = collections.Counter(type(force).__name__ for force in self.forces)
        lines.append("forces       " + (", ".join(f"{n} {kind}" for kind, n in kinds.items()) or "gravity only"))
        lines.append(f"limits       {self._use_of_limits()}")
        lines.append(f"drives       {self.nu}" + ("" if self.drives is None else f": {', '.join(drives)}"))
        lines.append(f"constraints  {len(self.constraints)}")
        lines += [f"  {constraint.name}: {constraint.describe(self.model)}" for constraint in self.constraints]
        return "\n".join(lines)


def check_system(system: Any, name: str) -> None:
    """Refuse what is no system.

    Raises:
        TypeError: the message says what to pass to the function `name`.
    """
    if not isinstance(system, System):
        remedy = "use System(model)" if isinstance(system, Model) else "give a System, System(model, forces)"
        raise TypeError(f"you passed a {type(system).__name__}; {name} works on a System: {remedy}")


def check_state(system: System, state: Any, name: str) -> None:
    """Refuse what is no state, or one that does not fit the system.

    Raises:
        TypeError: the message says what to pass to the function `name`.
        ValueError: the state has the wrong shape.
    """
    if not isinstance(state, State):
        raise TypeError(f"{name} got a {type(state).__name__} as the state; give State(q, v), with arrays q and v")
    check_vectors(system.model, {"q": state.q, "v": state.v})


def system_function(function: Callable) -> Callable:
    """Decorator of a public function (system, state, ...): its arguments are checked, and outside of `jit` it is one program."""
    return checked_system(compiled_outside_jit(function))


def checked_system(function: Callable) -> Callable:
    """Decorator of a public function (system, state, ...), whose arguments are checked."""
    names = tuple(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*args, **options):
        given = dict(zip(names, args, strict=False)) | options
        if "system" in given:  # else Python says itself what is missing
            check_system(given["system"], function.__name__)
        if {"system", "state"} <= given.keys():
            check_state(given["system"], given["state"], function.__name__)
            check_vectors(given["system"].model, {"a": given.get("a")})
        return function(*args, **options)

    return checked


@system_function
def applied_forces(
    system: System, state: State, u: Float[Array, "nu"] | None = None, t: Time = 0.0
) -> Float[Array, "nv"]:
    """Generalized force of the controls and of all forces of the system, gravity not included; N m, N.

    Args:
        u: controls; None for none.
        t: time, s.

    Raises:
        ValueError: the number of controls is not `system.nu`.

    Source: theory.md (H1)-(H6).
    """
    time = jnp.asarray(t, state.v.dtype)
    model = system.model.at(time)
    tau = _forces_in_joints(system, model, state, u, time)
    if not _pushes_bodies(system):
        return tau
    return tau + _forces_of_bodies(system, model, kinematics.motion(model, state.q, state.v), time)


def _forces_in_joints(system: System, model: Model, state: State, u, t: Float[Array, ""]) -> Float[Array, "nv"]:
    """Generalized force of the controls and of the forces that act in joints."""
    tau = jnp.zeros_like(state.v) if u is None else drive_forces(system, u)
    for force in system.forces:
        if isinstance(force, JointForce):
            tau = tau + force.generalized_forces(model, state.q, state.v, t)
        elif not isinstance(force, BodyForce):
            raise TypeError(
                f"{type(force).__name__} is neither a BodyForce nor a JointForce; derive it from one of them"
            )
    return tau


def _pushes_bodies(system: System) -> bool:
    return any(isinstance(force, BodyForce) for force in system.forces)


def _forces_of_bodies(system: System, model: Model, moving: Motion, t: Float[Array, ""]) -> Float[Array, "nv"]:
    """Generalized force of all forces on bodies."""
    return inverse.project(model, moving.placements, forces_on_bodies(system, model, moving, t))


def forces_on_bodies(system: System, model: Model, moving: Motion, t: Float[Array, ""]) -> Float[Array, "nb 6"]:
    """Sum of all forces on bodies, (moment about P; force), ground axes; gravity and forces in joints not included."""
    total = jnp.zeros_like(moving.velocity)
    for force in system.forces:
        if isinstance(force, BodyForce):
            total = total + force.body_forces(model, moving, t)
    return total


def drive_forces(system: System, u: Float[Array, "nu"]) -> Float[Array, "nv"]:
    """Generalized force of the controls, N m, N. Source: theory.md (H6)."""
    if u.shape != (system.nu,):
        raise ValueError(
            f"control u has shape {u.shape}, but the system on {system.model.name!r} has {system.nu} controls: "
            f"give shape ({system.nu},)"
        )
    return u if system.drives is None else system.drives.generalized_forces(system.model, u)


@system_function
def acceleration(
    system: System,
    state: State,
    u: Float[Array, "nu"] | None = None,
    t: Time = 0.0,
    *,
    correction: Float[Array, "m"] | None = None,
) -> Float[Array, "nv"]:
    """Generalized acceleration of a system: M a + h = (all applied forces); rad/s^2, m/s^2.

    With constraints, M a + h = (all applied forces) + G' lam with the multipliers lam that keep them, d^2 phi/dt^2 = 0.

    Args:
        u: controls; None for none.
        t: time, s.
        correction: d^2 phi/dt^2 instead of zero, from `stabilizing_correction`.

    Source: theory.md (I1), (H1)-(H6), (N9).
    """
    return acceleration_and_multipliers(system, instant(system, state, t), u, correction)[0]


class Instant(NamedTuple):
    """What everything that happens at one instant has in common, so that it is computed once.

    Attributes:
        model: the mechanism at that time.
        state: its state.
        motion: its motion.
        t: time, s.
    """

    model: Model
    state: State
    motion: Motion
    t: Float[Array, ""]


def instant(system: System, state: State, t: Time) -> Instant:
    """The system in a state at time t."""
    time = jnp.asarray(t, state.v.dtype)
    model = system.model.at(time)
    return Instant(model, state, kinematics.motion(model, state.q, state.v), time)


def acceleration_and_multipliers(
    system: System, now: Instant, u: Float[Array, "nu"] | None, correction: Float[Array, "m"] | None = None
) -> tuple[Float[Array, "nv"], Float[Array, "m"]]:
    """`acceleration`, and the multipliers lam of all constraints, one after the other."""
    return _solved(system, now, now.model, _forces(system, now, u), correction)


def _forces(system: System, now: Instant, u: Float[Array, "nu"] | None) -> Float[Array, "nv"]:
    """`applied_forces`."""
    tau = _forces_in_joints(system, now.model, now.state, u, now.t)
    return tau + _forces_of_bodies(system, now.model, now.motion, now.t) if _pushes_bodies(system) else tau


@system_function
def acceleration_over_step(
    system: System,
    state: State,
    u: Float[Array, "nu"] | None,
    t: Time,
    step: Time,
    *,
    correction: Float[Array, "m"] | None = None,
) -> Float[Array, "nv"]:
    """Acceleration over a step at whose end the joint forces that resist motion are taken, those with `JointForce.resistance`.

        (M + dt D + dt^2 K) a + h = (all applied forces at the start) - dt K v,   v' = v + dt a

    All other forces are those at the start. Friction and servos, however strong, then are stable at any length of the step: the
    sum of D and K acts like inertia of rotors, so each step solves one system of equations as before. Without such forces it is
    `acceleration`.

    Args:
        u, t, correction: as for `acceleration`.
        step: length dt of the step, s.

    Source: theory.md (I12); linearly implicit methods: Hairer and Wanner 1996, section IV.7.
    """
    return resisted_acceleration(system, instant(system, state, t), u, step, correction)


def resisted_acceleration(
    system: System, now: Instant, u: Float[Array, "nu"] | None, step: Time, correction: Float[Array, "m"] | None
) -> Float[Array, "nv"]:
    """`acceleration_over_step`."""
    model, tau = now.model, _forces(system, now, u)
    resistance = _joint_resistance(system, now)
    if resistance is not None:
        inertia = step * (resistance.damping + step * resistance.stiffness)
        model = eqx.tree_at(lambda m: m.armature, model, model.armature + inertia)
        tau = tau - step * resistance.stiffness * now.state.v
    return _solved(system, now, model, tau, correction)[0]  # (I12)


def _joint_resistance(system: System, now: Instant) -> Resistance | None:
    """Sum over the forces. Parts of a sum may have negative coefficients, like friction that differs in the two directions."""
    at = (now.model, now.state.q, now.state.v, now.t)
    each = [force.resistance(*at) for force in system.forces if isinstance(force, JointForce)]
    given = [resistance for resistance in each if resistance is not None]
    if not given:
        return None
    damping, stiffness = (jnp.maximum(sum(parts[1:], parts[0]), 0.0) for parts in zip(*given, strict=True))
    return Resistance(damping, stiffness)


def _solved(
    system: System, now: Instant, model: Model, tau: Float[Array, "nv"], correction: Float[Array, "m"] | None
) -> tuple[Float[Array, "nv"], Float[Array, "m"]]:
    """Accelerations and multipliers under given forces; `model` may have more armature than that of the instant."""
    constraints, moving = system.constraints, now.motion
    if not constraints:
        return forward.accelerations_from(model, moving, tau, system.method), jnp.zeros(0, tau.dtype)
    if correction is None:
        correction = jnp.zeros_like(constraint_motion.residuals(model, constraints, moving.q, moving.placements.poses))
    return multipliers.constrained_acceleration(system.method, model, constraints, moving, tau, correction)


class ConstraintErrors(NamedTuple):
    """How well the constraints hold, all equations one after the other.

    Attributes:
        residual: phi, m or 1.
        rate: dphi/dt, m/s or 1/s.
    """

    residual: Float[Array, "m"]
    rate: Float[Array, "m"]


@system_function
def constraint_errors(system: System, state: State, t: Time = 0.0) -> ConstraintErrors:
    """Residuals of the constraints and their rates, zero where the mechanism is assembled and moves as it can.

    Args:
        t: time, s, for joints with prescribed motion.

    Source: theory.md (N7).
    """
    return _errors(system, instant(system, state, t))


def _errors(system: System, now: Instant) -> ConstraintErrors:
    model, moving = now.model, now.motion
    residual = constraint_motion.residuals(model, system.constraints, moving.q, moving.placements.poses)
    return ConstraintErrors(residual, constraint_motion.rates(model, system.constraints, moving.q, moving))


@system_function
def stabilizing_correction(system: System, state: State, t: Time, step: Time) -> Float[Array, "m"] | None:
    """d^2 phi/dt^2 = -2 w dphi/dt - w^2 phi, by which errors of the constraints decay without overshoot; None for none.

    Integrators hold it over a step. Evaluated anew within the step it would answer to the errors of their stages, which are
    larger than those of the step, and take away their order.

    Args:
        t: time, s.
        step: length of the step, s.

    Source: theory.md (N9); Baumgarte 1972.
    """
    return None if _drifts(system) else correction_over_step(system, instant(system, state, t), step)


def _drifts(system: System) -> bool:
    """Whether nothing holds the errors of constraints down, or there are none."""
    return not system.constraints or system.stabilization == 0.0


def correction_over_step(system: System, now: Instant, step: Time) -> Float[Array, "m"] | None:
    """`stabilizing_correction`."""
    if _drifts(system):
        return None
    residual, rate = _errors(system, now)
    w = _DECAY_PER_STEP / step if system.stabilization is None else system.stabilization
    return -2.0 * w * rate - w**2 * residual


@system_function
def total_potential_energy(system: System, state: State, t: Time = 0.0) -> Float[Array, ""]:
    """Potential energy of gravity and of all forces that have one, J; t: time, s. Source: theory.md (H2), (H3)."""
    q = state.q
    model = system.model.at(jnp.asarray(t, q.dtype))
    placed = kinematics.placements(model, q)
    total = energy.potential_energy(model, q)
    for force in system.forces:
        total = total + force.potential_energy(model, q, placed)
    return total


@system_function
def total_energy(system: System, state: State, t: Time = 0.0) -> Float[Array, ""]:
    """Kinetic and potential energy, J; t: time, s. It is constant without controls, friction and prescribed motion."""
    model = system.model.at(jnp.asarray(t, state.v.dtype))
    return energy.kinetic_energy(model, state.q, state.v) + total_potential_energy(system, state, t)


def neutral_state(system: System) -> State:
    """State at rest at the neutral configuration."""
    return system.at_rest(configuration.neutral(system.model))
