"""The equation of motion of a system, which integrators and optimizers use: forces, accelerations, constraint errors, energies."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot
from jaxdyn.dynamics import added_inertia, constraint_motion, energy, forward, inverse, kinematics, multipliers
from jaxdyn.dynamics.added_inertia import AddedInertia
from jaxdyn.dynamics.forces import BodyForce, GeneralizedForce, Slip
from jaxdyn.dynamics.kinematics import Motion
from jaxdyn.dynamics.system import (
    State,
    System,
    Time,
    check_controls,
    check_drive_states,
    dynamic_function,
    system_function,
)
from jaxdyn.dynamics.wrenches import Wrenches, checked_wrenches, with_wrenches
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.model import Model

DriveStates = Float[Array, "nz"] | None

# Errors of constraints decay at this rate per step, by a factor of at most 3/4. Semi-implicit Euler is stable up to a rate of 0.83.
_DECAY_PER_STEP = 0.5
# Relative excess of friction, far above which it is corrected in full.
_LITTLE_EXCESS = 1e-3


@system_function
def applied_forces(
    system: System, state: State, u: Float[Array, "nu"] | None = None, t: Time = 0.0
) -> Float[Array, "nv"]:
    """Generalized force of the controls and of all forces of the system, gravity not included; N m or N.

    Args:
        system: Mechanism with its forces and drives.
        state: Coordinates and velocities.
        u: Controls; zero if None.
        t: Time (s).

    Raises:
        ValueError: The number of controls is not `system.nu`.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        system = jaxdyn.library.system("acrobot")
        tau = jaxdyn.applied_forces(system, jaxdyn.neutral_state(system), u=jnp.array([2.0]))
        ```

    Source: theory.md (H1)-(H6).
    """
    time = jnp.asarray(t, state.v.dtype)
    model = system.model.at(time)
    tau = _forces_in_joints(system, model, state, u, time)
    if not _pushes_bodies(system):
        return tau
    return tau + _forces_of_bodies(system, model, kinematics.motion(model, state.q, state.v), time)


def _forces_in_joints(system: System, model: Model, state: State, u, t: Float[Array, ""]) -> Float[Array, "nv"]:
    """Generalized force of the controls and of the forces in joints."""
    tau = drive_forces(system, state, u)
    for force in system.forces:
        if isinstance(force, GeneralizedForce):
            tau = tau + force.generalized_forces(model, state.q, state.v, t)
    return tau


def _pushes_bodies(system: System) -> bool:
    return any(isinstance(force, BodyForce) for force in system.forces)


def _forces_of_bodies(system: System, model: Model, moving: Motion, t: Float[Array, ""]) -> Float[Array, "nv"]:
    """Generalized force of all forces on bodies."""
    return inverse.project(model, moving.placements, forces_on_bodies(system, model, moving, t))


def forces_on_bodies(system: System, model: Model, moving: Motion, t: Float[Array, ""]) -> Float[Array, "nb 6"]:
    """Sum of all forces on bodies as (moment about the reference point P; force), ground axes, without gravity and forces in
    joints.

    Args:
        system: Mechanism with its forces.
        model: Mechanism at time t.
        moving: Motion of the model.
        t: Time (s).
    """
    total = jnp.zeros_like(moving.velocity)
    for force in system.forces:
        if isinstance(force, BodyForce):
            total = total + force.body_forces(model, moving, t)
    return total


def drive_forces(system: System, state: State, u: Float[Array, "nu"] | None) -> Float[Array, "nv"]:
    """Generalized force of the controls u, or of zero controls if None; N m or N. Source: theory.md (H6)."""
    u = acting_controls(system, state, u)
    if u is None:
        return jnp.zeros_like(state.v)
    return u if system.drives is None else system.drives.forces(system.model, state.q, state.v, u)


def acting_controls(system: System, state: State, u: Float[Array, "nu"] | None) -> Float[Array, "nu"] | None:
    """The controls that determine the forces, see `Drives.acting`; None if they are zero and exert no force."""
    u = _controls(system, state, u)
    if u is None or system.drives is None or state.z is None:
        return u
    return system.drives.acting(state.z, u)


def _controls(system: System, state: State, u: Float[Array, "nu"] | None) -> Float[Array, "nu"] | None:
    """The checked controls; None if they are zero and exert no force."""
    check_controls(system, u)
    check_drive_states(system, state.z)
    if u is None and system.drives is not None and (system.drives.driven is None or system.nz):
        return jnp.zeros(system.nu, state.v.dtype)
    return u


def drive_rates(system: System, state: State, u: Float[Array, "nu"] | None) -> DriveStates:
    """Rates dz/dt of the states of the drives within their bounds, 1/s. Source: theory.md (H22)."""
    u = _controls(system, state, u)
    if u is None or system.drives is None or state.z is None:
        return None
    return system.drives.rates(system.model, state.q, state.v, state.z, u)


def stopped_rates(system: System, state: State, u: Float[Array, "nu"] | None) -> DriveStates:
    """Result of `drive_rates`, zero where a state would leave its bounds; for methods that cannot move a state back."""
    rates, z = drive_rates(system, state, u), state.z
    bounds = None if system.drives is None else system.drives.state_bounds
    if rates is None or z is None or bounds is None:
        return rates
    return jnp.where((z <= bounds[0]) & (rates < 0.0) | (z >= bounds[1]) & (rates > 0.0), 0.0, rates)


def moved_states(system: System, z: DriveStates, step: Time = 0.0, rates: DriveStates = None) -> DriveStates:
    """States of the drives after a step (s) with given rates, moved back to their bounds."""
    if z is None or system.drives is None:
        return None
    z, bounds = z if rates is None else z + step * rates, system.drives.state_bounds
    return z if bounds is None else jnp.clip(z, *bounds)


def drives_over_step(
    system: System, state: State, u: Float[Array, "nu"] | None, step: Time
) -> tuple[State, DriveStates]:
    """The state with the means of the states of the drives over a step, and those states at its end. Source: theory.md (H23)."""
    u = _controls(system, state, u)
    if u is None or system.drives is None or state.z is None:
        return state, None
    mean, end = system.drives.states_over_step(system.model, state.q, state.v, state.z, u, step)
    return State(state.q, state.v, mean), moved_states(system, end)


@dynamic_function
def acceleration(
    system: System,
    state: State,
    u: Float[Array, "nu"] | None = None,
    t: Time = 0.0,
    *,
    correction: Float[Array, "m"] | None = None,
    wrenches: Wrenches | None = None,
) -> Float[Array, "nv"]:
    """Generalized acceleration a of a system: M a + h = (all applied forces); rad/s^2 or m/s^2.

    With constraints, M a + h = (all applied forces) + G' lam, where the multipliers lam satisfy d^2 phi/dt^2 = 0.

    Args:
        system: Mechanism with its forces, drives and constraints.
        state: Coordinates and velocities.
        u: Controls; zero if None.
        t: Time (s).
        correction: Required second time derivatives d^2 phi/dt^2 of the constraint residuals, from `stabilizing_correction`; zero
            if None.
        wrenches: External moments (N m) about the origins of bodies or frames, followed by the forces (N), on ground axes, by the
            names of these bodies or frames.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        system = jaxdyn.library.system("acrobot")
        a = jaxdyn.acceleration(system, system.at_rest(jnp.array([0.3, -0.5])), u=jnp.array([2.0]))
        ```

    Source: theory.md (I1), (H1)-(H6), (N9).
    """
    pushed = with_wrenches(system, checked_wrenches(system, wrenches))
    return acceleration_and_multipliers(pushed, instant(system, state, t), u, correction)[0]


class Instant(NamedTuple):
    """The model and its motion at one instant, which several functions need and which are computed once.

    Attributes:
        model: Mechanism at this time.
        state: Coordinates and velocities.
        motion: Motion of the model.
        t: Time (s).
    """

    model: Model
    state: State
    motion: Motion
    t: Float[Array, ""]


def instant(system: System, state: State, t: Time) -> Instant:
    """System in a given state at time t (s).

    Args:
        system: Mechanism with its forces, drives and constraints.
        state: Coordinates and velocities.
        t: Time (s).
    """
    time = jnp.asarray(t, state.v.dtype)
    model = system.model.at(time)
    return Instant(model, state, kinematics.motion(model, state.q, state.v), time)


def acceleration_and_multipliers(
    system: System, now: Instant, u: Float[Array, "nu"] | None, correction: Float[Array, "m"] | None = None
) -> tuple[Float[Array, "nv"], Float[Array, "m"]]:
    """Result of `acceleration`, and the multipliers lam of all constraints, in the order of `System.constraints`.

    Args:
        system: Mechanism with its forces, drives and constraints.
        now: Instant of the system.
        u: Controls; zero if None.
        correction: Required d^2 phi/dt^2; zero if None.
    """
    return _solved(system, now, now.model, _forces(system, now, u), correction)


def _forces(system: System, now: Instant, u: Float[Array, "nu"] | None) -> Float[Array, "nv"]:
    """Result of `applied_forces` at an instant."""
    tau = _forces_in_joints(system, now.model, now.state, u, now.t)
    return tau + _forces_of_bodies(system, now.model, now.motion, now.t) if _pushes_bodies(system) else tau


@dynamic_function
def acceleration_over_step(
    system: System,
    state: State,
    u: Float[Array, "nu"] | None,
    t: Time,
    step: Time,
    *,
    correction: Float[Array, "m"] | None = None,
) -> Float[Array, "nv"]:
    """Acceleration over a step, with stiff forces evaluated at the end of the step.

        (M + dt D + dt^2 K + A) a + h = (all applied forces) - dt K v,   v' = v + dt a

    D and K are damping and stiffness of the joint forces that have a `JointForce.resistance`, and A is the matrix of the forces on
    bodies that have a linear law `BodyForce.over_step`, such as contacts. All other forces are evaluated at the start of the step.
    The implicit evaluation makes the step stable for friction, servos and contacts of any strength and for any step length. The
    matrices act like additional inertia, so each step solves only one system of equations. If no force is implicit, the result is
    that of `acceleration`.

    Args:
        system: Mechanism with its forces, drives and constraints.
        state: Coordinates and velocities at the start of the step.
        u: Controls; zero if None.
        t: Time at the start of the step (s).
        step: Length dt of the step (s).
        correction: Required d^2 phi/dt^2, as for `acceleration`.

    Source: theory.md (I12), (T8); linearly implicit methods: Hairer and Wanner 1996, section IV.7.
    """
    return resisted_acceleration(system, instant(system, state, t), u, jnp.asarray(step, state.v.dtype), correction)


def resisted_acceleration(
    system: System, now: Instant, u: Float[Array, "nu"] | None, step: Time, correction: Float[Array, "m"] | None
) -> Float[Array, "nv"]:
    """Result of `acceleration_over_step` at an instant.

    Args:
        system: Mechanism with its forces, drives and constraints.
        now: Instant at the start of the step.
        u: Controls; zero if None.
        step: Length dt of the step (s).
        correction: Required d^2 phi/dt^2; zero if None.
    """
    model, drives, acting = now.model, system.drives, acting_controls(system, now.state, u)
    driving = None if drives is None or acting is None else drives.over_step(model, now.motion, acting, step)
    tau = drive_forces(system, now.state, u) if driving is None else driving.force
    known = [force for force in system.forces if isinstance(force, BodyForce | GeneralizedForce)]  # all of them
    laws = [(force, force.over_step(model, now.motion, now.t, step)) for force in known]
    bodies, joints = ([law for force, law in laws if isinstance(force, kind)] for kind in (BodyForce, GeneralizedForce))
    if bodies:
        tau = tau + inverse.project(
            model, now.motion.placements, sum((law.force for law in bodies[1:]), bodies[0].force)
        )
    tau = sum((law.force for law in joints), tau)
    all_laws = [law for _, law in laws] + ([] if driving is None else [driving])
    matrices = [law.added for law in all_laws if law.added is not None]
    added = added_inertia.total([matrix for matrix in matrices if isinstance(matrix, AddedInertia)])
    diagonals = [diagonal for diagonal in matrices if not isinstance(diagonal, AddedInertia)]
    if diagonals:
        # A single term may be negative, for example friction that depends on the direction.
        armature = model.armature + jnp.maximum(sum(diagonals[1:], diagonals[0]), 0.0)
        model = eqx.tree_at(lambda m: m.armature, model, armature)

    a = _solved(system, now, model, tau, correction, added)[0]  # (I12), (T8)
    slips = [law.slip for _, law in laws if law.slip is not None]
    if not slips:
        return a
    weightless = eqx.tree_at(lambda m: m.gravity, model, replace_fn=jnp.zeros_like)
    still = eqx.tree_at(lambda m: (m.v, m.velocity, m.bias), now.motion, replace_fn=jnp.zeros_like)

    def solved(force):
        return _solved(system, now._replace(motion=still), weightless, force, None, added)[0]

    def response(force):
        change = solved(force)
        # The motion `still` has no rates of prescribed motion, but the rule for the derivative takes them from the model.
        return change - solved(jnp.zeros_like(force)) if configuration.is_prescribed(model) else change

    return _with_bounded_friction(slips, response, a, step)


def _with_bounded_friction(
    slips: Sequence[Slip],
    response: Callable[[Float[Array, "nv"]], Float[Array, "nv"]],
    a: Float[Array, "nv"],
    step: Time,
) -> Float[Array, "nv"]:
    """Acceleration of a step with the dry friction of the slip at its end, by one Newton step.

    The linear law takes the coefficients of friction at the start of the step, so the friction is too large where the slip grows.
    The excess is given back along the response of the linear law to it, by the amount that solves the equation of the step for a
    single sliding pair, and not beyond the amount that stops it.

    Args:
        slips: Sliding pairs.
        response: Change of the acceleration of the linear law due to a force.
        a: Acceleration of the linear law.
        step: Length of the step (s).

    Source: theory.md (I15).
    """
    change_of_v = step * a
    excess, power, pairs = jnp.zeros_like(a), 0.0, []
    for slip in slips:
        u, to_forces, after = jax.vjp(slip.at_end, change_of_v, has_aux=True)
        excess = excess + to_forces((slip.resistance - after)[:, None] * u)[0]
        power = power + jnp.sum(slip.resistance * jnp.sum(u**2, axis=1))
        pairs.append((slip.at_end, u, slip.resistance, after))
    change = response(excess)
    # Divided by the root of the power, so that squares and derivatives neither overflow nor underflow in single precision.
    tiny = jnp.finfo(a.dtype).tiny
    acts = (step > 0.0) & (power > tiny ** (1 / 3))  # a step backward has no end of the sliding to predict
    scale = jnp.where(acts, 1.0 / jnp.sqrt(jnp.where(acts, power, 1.0)), 0.0)
    unit = scale * step * change
    # The second term makes the correction differentiable where the excess vanishes, as in steady sliding.
    per_work = 1.0 / (dot(scale * excess, unit) + _LITTLE_EXCESS**2)

    parts = []
    for at_end, u, before, after in pairs:
        _, (gain, stiffening) = jax.jvp(at_end, (change_of_v,), (unit,))
        squared = jnp.sum(gain**2, axis=1)
        parts.append((before * squared, after * squared, stiffening * jnp.sum(u * gain, axis=1)))
    shares = per_work * sum(jnp.sum(before) for before, _, _ in parts)
    # A little before the pairs stop, despite rounding.
    stopped = (1.0 - _LITTLE_EXCESS) / jnp.where(shares > tiny**0.25, shares, 1.0)
    slopes = [
        jnp.sum(jnp.maximum(jnp.maximum(after + tangent, after - stopped * before), 0.0))
        for before, after, tangent in parts
    ]
    amount = 1.0 / (1.0 - shares + per_work * sum(slopes))
    return a + jnp.where(acts, amount, 1.0) * change  # (I15)


def _solved(
    system: System,
    now: Instant,
    model: Model,
    tau: Float[Array, "nv"],
    correction: Float[Array, "m"] | None,
    added: AddedInertia | None = None,
) -> tuple[Float[Array, "nv"], Float[Array, "m"]]:
    """Accelerations and multipliers under given forces. The armature of `model` may be larger than that of the system, and the
    inertia `added` is added to the mass matrix."""
    constraints, moving = system.constraints, now.motion
    if not constraints:
        return forward.accelerations_from(model, moving, tau, system.method, added), jnp.zeros(0, tau.dtype)
    if correction is None:
        correction = jnp.zeros_like(constraint_motion.residuals(model, constraints, moving.q, moving.placements.poses))
    return multipliers.constrained_acceleration(system.method, model, constraints, moving, tau, correction, added)


class ConstraintErrors(NamedTuple):
    """Errors of all constraint equations phi = 0, in the order of `System.constraints`.

    Attributes:
        residual: Residuals phi, m or 1.
        rate: Rates dphi/dt, m/s or 1/s.
    """

    residual: Float[Array, "m"]
    rate: Float[Array, "m"]


@system_function
def constraint_errors(system: System, state: State, t: Time = 0.0) -> ConstraintErrors:
    """Residuals of the constraints and their rates; both are zero if the state satisfies the constraints.

    Args:
        system: Mechanism with its constraints.
        state: Coordinates and velocities.
        t: Time (s), which matters for joints with prescribed motion.

    Source: theory.md (N7).
    """
    return _errors(system, instant(system, state, t))


def _errors(system: System, now: Instant) -> ConstraintErrors:
    model, moving = now.model, now.motion
    residual = constraint_motion.residuals(model, system.constraints, moving.q, moving.placements.poses)
    return ConstraintErrors(residual, constraint_motion.rates(model, system.constraints, moving.q, moving))


@system_function
def stabilizing_correction(system: System, state: State, t: Time, step: Time) -> Float[Array, "m"] | None:
    """Acceleration d^2 phi/dt^2 = -2 w dphi/dt - w^2 phi, with which errors of constraints decay without overshoot.

    Integrators keep this acceleration constant over a step. An evaluation within the step would respond to the errors of the
    stages, which are larger than those of the step, and reduce the order of accuracy.

    Args:
        system: Mechanism with its constraints.
        state: Coordinates and velocities.
        t: Time (s).
        step: Length of the step (s).

    Returns:
        The acceleration, or None if the system has no constraints or no stabilization.

    Source: theory.md (N9); Baumgarte 1972.
    """
    return None if _drifts(system) else correction_over_step(system, instant(system, state, t), step)


def _drifts(system: System) -> bool:
    """True if the system has no constraints or no stabilization."""
    return not system.constraints or system.stabilization == 0.0


def correction_over_step(system: System, now: Instant, step: Time) -> Float[Array, "m"] | None:
    """Result of `stabilizing_correction` at an instant.

    Args:
        system: Mechanism with its constraints.
        now: Instant of the system.
        step: Length of the step (s).
    """
    if _drifts(system):
        return None
    residual, rate = _errors(system, now)
    w = _DECAY_PER_STEP / step if system.stabilization is None else system.stabilization
    return -2.0 * w * rate - w**2 * residual


@system_function
def total_potential_energy(system: System, state: State, t: Time = 0.0) -> Float[Array, ""]:
    """Potential energy of gravity and of all forces that have a potential energy, J.

    Args:
        system: Mechanism with its forces.
        state: Coordinates and velocities.
        t: Time (s).

    Source: theory.md (H2), (H3).
    """
    q = state.q
    model = system.model.at(jnp.asarray(t, q.dtype))
    placed = kinematics.placements(model, q)
    total = energy.potential_energy(model, q)
    for force in system.forces:
        total = total + force.potential_energy(model, q, placed)
    return total


@system_function
def total_energy(system: System, state: State, t: Time = 0.0) -> Float[Array, ""]:
    """Total energy (kinetic and potential), J. The total energy is constant without controls, friction and prescribed motion.

    Args:
        system: Mechanism with its forces.
        state: Coordinates and velocities.
        t: Time (s).

    Example:
        ```python
        import jaxdyn

        system = jaxdyn.library.system("acrobot")
        energy = jaxdyn.total_energy(system, jaxdyn.neutral_state(system))
        ```
    """
    model = system.model.at(jnp.asarray(t, state.v.dtype))
    return energy.kinetic_energy(model, state.q, state.v) + total_potential_energy(system, state, t)
