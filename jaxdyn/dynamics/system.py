"""A mechanism together with the forces on it, its state, and the equation of motion that integrators and optimizers use."""

import collections

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.dynamics import energy, forward, inverse, kinematics, multipliers
from jaxdyn.dynamics.constraint import Constraint
from jaxdyn.dynamics.forces import BodyForce, Force, JointDrives, JointForce
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.checks import MechanismError
from jaxdyn.mechanism.model import Model

Time = Float[Array, ""] | float

# Errors of constraints decay this much per step. Semi-implicit Euler is stable up to 0.83, the other integrators beyond.
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
            integrator, w = 1/2 per step; where there is no step, there is no such term then.

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
        if self.stabilization is not None and not 0.0 <= self.stabilization < float("inf"):
            raise MechanismError(f"stabilization is {self.stabilization} 1/s; give a rate from 0 on, or None")
        for part in (*self.forces, *([] if self.drives is None else [self.drives]), *self.constraints):
            problem = part.problem(self.model)
            if problem is not None:
                raise MechanismError(f"{type(part).__name__} on mechanism {self.model.name!r}: {problem}")

    @property
    def nu(self) -> int:
        """Number of controls."""
        return self.model.nv if self.drives is None else len(self.drives.columns)

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
        lines.append(f"drives       {self.nu}" + ("" if self.drives is None else f": {', '.join(drives)}"))
        lines.append(f"constraints  {len(self.constraints)}")
        lines += [f"  {constraint.name}: {constraint.describe(self.model)}" for constraint in self.constraints]
        return "\n".join(lines)


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
    tau = jnp.zeros_like(state.v) if u is None else _drive_forces(system, u)
    for force in system.forces:
        if isinstance(force, JointForce):
            tau = tau + force.generalized_forces(model, state.q, state.v, time)
        elif not isinstance(force, BodyForce):
            raise TypeError(
                f"{type(force).__name__} is neither a BodyForce nor a JointForce; derive it from one of them"
            )
    if not any(isinstance(force, BodyForce) for force in system.forces):
        return tau
    moving = kinematics.motion(model, state.q, state.v)
    return tau + inverse.project(model, moving.placements, forces_on_bodies(system, moving, time))


def forces_on_bodies(system: System, moving: kinematics.Motion, t: Float[Array, ""]) -> Float[Array, "nb 6"]:
    """Sum of all forces on bodies, (moment about P; force), ground axes; gravity and forces in joints not included."""
    total, model = jnp.zeros_like(moving.velocity), system.model.at(t)
    for force in system.forces:
        if isinstance(force, BodyForce):
            total = total + force.body_forces(model, moving, t)
    return total


def _drive_forces(system: System, u: Float[Array, "nu"]) -> Float[Array, "nv"]:
    if u.shape != (system.nu,):
        raise ValueError(
            f"control u has shape {u.shape}, but the system on {system.model.name!r} has {system.nu} controls: "
            f"give shape ({system.nu},)"
        )
    return u if system.drives is None else system.drives.generalized_forces(system.model, u)


def acceleration(
    system: System, state: State, u: Float[Array, "nu"] | None = None, t: Time = 0.0, step: Time | None = None
) -> Float[Array, "nv"]:
    """Generalized acceleration of a system: M a + h = (all applied forces); rad/s^2, m/s^2.

    With constraints, M a + h = (all applied forces) + G' lam with the multipliers lam that keep them,

        G a + bias + 2 w dphi/dt + w^2 phi = 0

    Args:
        u: controls; None for none.
        t: time, s.
        step: length of the step for which an integrator asks, s; it sets w unless `System.stabilization` does.

    Source: theory.md (I1), (H1)-(H6), (N9).
    """
    return acceleration_and_multipliers(system, state, u, t, step)[0]


def acceleration_and_multipliers(
    system: System, state: State, u: Float[Array, "nu"] | None = None, t: Time = 0.0, step: Time | None = None
) -> tuple[Float[Array, "nv"], Float[Array, "m"]]:
    """`acceleration`, and the multipliers lam of all constraints, one after the other."""
    tau = applied_forces(system, state, u, t)
    model = system.model.at(jnp.asarray(t, state.v.dtype))
    if not system.constraints:
        return forward.accelerations_from(model, state.q, state.v, tau, system.method), jnp.zeros(0, state.v.dtype)
    configuration.check_velocities(model, v=state.v)
    decay_rate = system.stabilization
    if decay_rate is None:
        decay_rate = 0.0 if step is None else _DECAY_PER_STEP / step
    return multipliers.constrained_acceleration(
        system.method, model, system.constraints, state.q, state.v, tau, jnp.asarray(decay_rate, state.v.dtype)
    )


def total_potential_energy(system: System, q: Float[Array, "nq"], t: Time = 0.0) -> Float[Array, ""]:
    """Potential energy of gravity and of all forces that have one, J; t: time, s. Source: theory.md (H2), (H3)."""
    model = system.model.at(jnp.asarray(t, q.dtype))
    placed = kinematics.placements(model, q)
    total = energy.potential_energy(model, q)
    for force in system.forces:
        total = total + force.potential_energy(model, q, placed)
    return total


def total_energy(system: System, state: State, t: Time = 0.0) -> Float[Array, ""]:
    """Kinetic and potential energy, J; t: time, s. It is constant without controls, friction and prescribed motion."""
    model = system.model.at(jnp.asarray(t, state.v.dtype))
    return energy.kinetic_energy(model, state.q, state.v) + total_potential_energy(system, state.q, t)


def neutral_state(system: System) -> State:
    """State at rest at the neutral configuration."""
    q = configuration.neutral(system.model)
    return State(q, jnp.zeros(system.model.nv, q.dtype))
