"""Forces other than gravity, theory.md section (h).

Two families. A `BodyForce` acts on bodies: it returns, for each body, a force vector (moment about the reference point P;
force) on ground axes, which `inverse.project` turns into generalized forces. A `JointForce` acts along the velocity
components directly. A force has a potential energy, or does work, or both.

Points are given on body axes from the body origin O'; body -1 is the ground.
"""

import abc
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.dynamics import kinematics
from jaxdyn.dynamics.kinematics import Motion, Placements
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.spatial.arrays import dot, floating, zero_safe_norm
from jaxdyn.spatial.sixvector import force_at_point, velocity_at_point

Vector3 = Float[Array, "3"]
Scalar = Float[Array, ""]


class Force(eqx.Module):
    """A force of a `System`; subclasses are `BodyForce` or `JointForce`.

    Class attributes:
        conservative: True if the force is minus the gradient of its potential energy, False if it does work besides.
        linear: names of the fields in all of which together the force is linear, each with its unit. For numbers per velocity
            component the unit is "force", "force/speed", "force/speed^2", "force/distance" or "lever", by the kind of joint.
    """

    conservative: eqx.AbstractClassVar[bool]
    linear: ClassVar[Mapping[str, str]] = {}

    def problem(self, model: Model) -> str | None:
        """Why this force does not fit a model and how to mend it, or None. Called once, by `System`."""
        return None

    def potential_energy(self, model: Model, q: Float[Array, "nq"], placed: Placements) -> Scalar:
        """Potential energy, J; zero for forces without one."""
        return jnp.zeros((), q.dtype)


class BodyForce(Force):
    """A force on bodies."""

    @abc.abstractmethod
    def body_forces(self, model: Model, moving: Motion, t: Scalar) -> Float[Array, "nb 6"]:
        """(moment about P; force) on every body, ground axes, N m and N."""


class Resistance(NamedTuple):
    """How a force in joints resists a step s of the coordinates and a change w of the velocities, each component on its own:

        Q(q (+) s, v + w) = Q(q, v) - stiffness s - damping w

    An implicit integrator takes the force at the end of its step by this linear law. It needs no exact derivatives: with any
    coefficients the step has the same order of accuracy, and with coefficients that are not negative it cannot overshoot.

    Attributes:
        damping: not negative, N m s/rad or N s/m.
        stiffness: not negative, N m/rad or N/m.

    Source: theory.md (I12).
    """

    damping: Float[Array, "nv"]
    stiffness: Float[Array, "nv"]


class JointForce(Force):
    """A force along the generalized velocities."""

    @abc.abstractmethod
    def generalized_forces(
        self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"], t: Scalar
    ) -> Float[Array, "nv"]:
        """N m or N by the kinds of joints."""

    def resistance(self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"], t: Scalar) -> Resistance | None:
        """How the force resists a step, for integrators that take it at the end of the step; None if they take it at the start."""
        return None


def length_problem(expected: int, **arrays: Array) -> str | None:
    """What is wrong with the number of entries of arrays, each given by its name, and how to mend it; or None."""
    for name, array in arrays.items():
        if array.ndim == 0 or array.shape[-1] != expected:
            return f"{name} has shape {array.shape}; give {expected} numbers"
    return None


def _point_velocity(moving: Motion, body: int, from_reference: Vector3) -> Vector3:
    if body == GROUND:
        return jnp.zeros_like(from_reference)
    return velocity_at_point(moving.velocity[body], from_reference)


class _PointPair(BodyForce):
    """Equal and opposite forces on two points, along the line between them."""

    body_a: eqx.AbstractVar[int]
    point_a: eqx.AbstractVar[Vector3]
    body_b: eqx.AbstractVar[int]
    point_b: eqx.AbstractVar[Vector3]

    @abc.abstractmethod
    def force_on_a(self, d: Vector3, d_rate: Vector3) -> Vector3:
        """Force on A, ground axes, N; d = x_A - x_B (m) and its rate (m/s)."""

    def problem(self, model: Model) -> str | None:
        wrong_point = length_problem(3, point_a=self.point_a, point_b=self.point_b)
        return model.topology.problem_with_bodies(self.body_a, self.body_b) or wrong_point

    def body_forces(self, model: Model, moving: Motion, t: Scalar) -> Float[Array, "nb 6"]:
        placed = moving.placements
        reference_a, arm_a = kinematics.point_on_body(placed, self.body_a, self.point_a)
        reference_b, arm_b = kinematics.point_on_body(placed, self.body_b, self.point_b)
        d = (reference_a - reference_b) + (arm_a - arm_b)
        d_rate = _point_velocity(moving, self.body_a, arm_a) - _point_velocity(moving, self.body_b, arm_b)
        force = self.force_on_a(d, d_rate)
        zero = jnp.zeros_like(force)
        return _on_body(model, self.body_a, force_at_point(arm_a, force, zero)) + _on_body(
            model, self.body_b, force_at_point(arm_b, -force, zero)
        )


def _on_body(model: Model, body: int, force: Float[Array, "6"]) -> Float[Array, "nb 6"]:
    selected = np.arange(model.nb) == body  # nowhere True for the ground
    return jnp.where(selected[:, None], force[None], 0.0)


class Spring(_PointPair):
    """Linear spring between two points: V = 1/2 k (L - L0)^2, force -k (L - L0) d/L on A, d = x_A - x_B, L = |d|.

    With zero free length it is smooth at L = 0 too; with another one the direction is undefined there and the force is 0.

    With names: Spring(*model.locate("upper", point_a), *model.locate("ground", point_b), stiffness, free_length).

    Attributes:
        body_a, body_b: body numbers, -1 for the ground.
        point_a, point_b: ends, on the axes of their bodies from O', m.
        stiffness: k, N/m.
        free_length: L0, m.

    Source: theory.md (H3).
    """

    conservative: ClassVar[bool] = True
    linear: ClassVar[Mapping[str, str]] = {"stiffness": "N/m"}

    body_a: int = eqx.field(static=True)
    point_a: Vector3 = eqx.field(converter=floating)
    body_b: int = eqx.field(static=True)
    point_b: Vector3 = eqx.field(converter=floating)
    stiffness: Scalar = eqx.field(converter=floating)
    free_length: Scalar = eqx.field(converter=floating, default=0.0)

    def force_on_a(self, d: Vector3, d_rate: Vector3) -> Vector3:
        _, inverse_length = zero_safe_norm(d)
        return -self.stiffness * (d - self.free_length * inverse_length * d)  # (H3)

    def potential_energy(self, model: Model, q: Float[Array, "nq"], placed: Placements) -> Scalar:
        reference_a, arm_a = kinematics.point_on_body(placed, self.body_a, self.point_a)
        reference_b, arm_b = kinematics.point_on_body(placed, self.body_b, self.point_b)
        d = (reference_a - reference_b) + (arm_a - arm_b)
        length, inverse_length = zero_safe_norm(d)
        # Where the ends meet, L^2 comes from d itself: with zero free length the energy is smooth there.
        stretch_squared = jnp.where(
            inverse_length > 0, (length - self.free_length) ** 2, dot(d, d) + self.free_length**2
        )
        return 0.5 * self.stiffness * stretch_squared  # (H3)


class Damper(_PointPair):
    """Linear viscous damper between two points: force -b (dL/dt) d/L on A, d = x_A - x_B, L = |d|; 0 at L = 0.

    Attributes:
        body_a, body_b: body numbers, -1 for the ground.
        point_a, point_b: ends, on the axes of their bodies from O', m.
        coefficient: b, N s/m.

    Source: theory.md (H4).
    """

    conservative: ClassVar[bool] = False
    linear: ClassVar[Mapping[str, str]] = {"coefficient": "N s/m"}

    body_a: int = eqx.field(static=True)
    point_a: Vector3 = eqx.field(converter=floating)
    body_b: int = eqx.field(static=True)
    point_b: Vector3 = eqx.field(converter=floating)
    coefficient: Scalar = eqx.field(converter=floating)

    def force_on_a(self, d: Vector3, d_rate: Vector3) -> Vector3:
        _, inverse_length = zero_safe_norm(d)
        direction = inverse_length * d
        return -self.coefficient * dot(direction, d_rate) * direction  # (H4)


class AppliedForce(BodyForce):
    """A constant force at a point of a body together with a couple.

    Attributes:
        body: body number.
        point: where the force acts, body axes from O', m.
        force: N.
        torque: couple, N m.
        body_fixed: True if force and torque are given on body axes and turn with the body, False for ground axes.

    Source: theory.md (H1).
    """

    conservative: ClassVar[bool] = False

    body: int = eqx.field(static=True)
    point: Vector3 = eqx.field(converter=floating)
    force: Vector3 = eqx.field(converter=floating)
    torque: Vector3 = eqx.field(converter=floating)
    body_fixed: bool = eqx.field(static=True)

    def problem(self, model: Model) -> str | None:
        if self.body == GROUND:
            return "a force on the ground does nothing; give the number of a body"
        wrong_vector = length_problem(3, point=self.point, force=self.force, torque=self.torque)
        return model.topology.problem_with_bodies(self.body) or wrong_vector

    def body_forces(self, model: Model, moving: Motion, t: Scalar) -> Float[Array, "nb 6"]:
        placed = moving.placements
        force, torque = self.force, self.torque
        if self.body_fixed:
            force, torque = dot(placed.rotation[self.body], force), dot(placed.rotation[self.body], torque)
        _, arm = kinematics.point_on_body(placed, self.body, self.point)
        return _on_body(model, self.body, force_at_point(arm, force, torque))  # (H1)


class JointSpring(JointForce):
    """Springs in the joints: V = 1/2 k (q - rest)^2 with the difference in tangent coordinates, tau = -dV = -k (q - rest).

    Attributes:
        stiffness: k per velocity component, N m/rad or N/m.
        rest: coordinates at which the springs are relaxed, rad or m.
    """

    conservative: ClassVar[bool] = True
    linear: ClassVar[Mapping[str, str]] = {"stiffness": "force/distance"}

    stiffness: Float[Array, "nv"] = eqx.field(converter=floating)
    rest: Float[Array, "nq"] = eqx.field(converter=floating)

    def generalized_forces(
        self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"], t: Scalar
    ) -> Float[Array, "nv"]:
        def energy(step):
            return self._energy(model, configuration.integrate(model, q, step))

        return -jax.grad(energy)(jnp.zeros_like(v))  # (H7) in tangent coordinates

    def problem(self, model: Model) -> str | None:
        return length_problem(model.nv, stiffness=self.stiffness) or length_problem(model.nq, rest=self.rest)

    def potential_energy(self, model: Model, q: Float[Array, "nq"], placed: Placements) -> Scalar:
        return self._energy(model, q)

    def _energy(self, model: Model, q: Float[Array, "nq"]) -> Scalar:
        stretch = configuration.difference(model, self.rest, q)
        return 0.5 * dot(self.stiffness * stretch, stretch)


class JointServo(JointForce):
    """PD control of the joints as part of the system: tau = stiffness (target - q) - damping v, at most `effort` in size.

    The difference is taken in tangent coordinates. Unlike a policy of `rollout`, which holds its controls over a step as a digital
    controller does, the default integrator takes this force at the end of the step, so that no gains are too high for a step.

    Attributes:
        stiffness: k per velocity component, N m/rad or N/m.
        damping: d per velocity component, N m s/rad or N s/m.
        target: coordinates that the servo holds, rad or m.
        effort: largest force per velocity component, N m or N; None for no bound.

    Source: theory.md (H14).
    """

    conservative: ClassVar[bool] = False

    stiffness: Float[Array, "nv"] = eqx.field(converter=floating)
    damping: Float[Array, "nv"] = eqx.field(converter=floating)
    target: Float[Array, "nq"] = eqx.field(converter=floating)
    effort: Float[Array, "nv"] | None = eqx.field(default=None, converter=lambda x: None if x is None else floating(x))

    def generalized_forces(
        self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"], t: Scalar
    ) -> Float[Array, "nv"]:
        wanted = self._unbounded(model, q, v)
        return wanted if self.effort is None else jnp.clip(wanted, -self.effort, self.effort)  # (H14)

    def resistance(self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"], t: Scalar) -> Resistance | None:
        if self.effort is None:
            return Resistance(self.damping, self.stiffness)
        free = jnp.abs(self._unbounded(model, q, v)) < self.effort  # at the bound the force is constant
        return Resistance(jnp.where(free, self.damping, 0.0), jnp.where(free, self.stiffness, 0.0))

    def problem(self, model: Model) -> str | None:
        bounds = {} if self.effort is None else {"effort": self.effort}
        wrong = length_problem(model.nv, stiffness=self.stiffness, damping=self.damping, **bounds)
        return wrong or length_problem(model.nq, target=self.target)

    def _unbounded(self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        return self.stiffness * configuration.difference(model, q, self.target) - self.damping * v


class JointDrives(eqx.Module):
    """Motors in some of the joints: tau = gear * u on the driven velocity components, 0 elsewhere (underactuation).

    Attributes:
        columns: the driven velocity component of each control.
        gear: generalized force per unit of control.

    Source: theory.md (H6).
    """

    columns: tuple[int, ...] = eqx.field(static=True)
    gear: Float[Array, "nu"] = eqx.field(converter=floating)

    def problem(self, model: Model) -> str | None:
        """Why these drives do not fit a model and how to mend it, or None. Called once, by `System`."""
        for column in self.columns:
            if not 0 <= column < model.nv:
                return f"there is no velocity component {column}; use 0 to {model.nv - 1}"
        return length_problem(len(self.columns), gear=self.gear)

    def generalized_forces(self, model: Model, u: Float[Array, "nu"]) -> Float[Array, "nv"]:
        """N m or N by the kinds of joints."""
        selection = np.equal.outer(np.arange(model.nv), np.array(self.columns)).astype(u.dtype)
        return dot(selection, self.gear * u)  # (H6)
