"""Forces other than gravity, theory.md section (h).

Two families. A `BodyForce` acts on bodies: it returns, for each body, a force vector (moment about the reference point P;
force) on ground axes, which `inverse.project` turns into generalized forces. A `JointForce` acts along the velocity
components directly. A force has a potential energy, or does work, or both.

Points are given on body axes from the body origin O'; body -1 is the ground.
"""

import abc
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.dynamics import kinematics
from jaxdyn.dynamics.kinematics import Motion, Placements
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.components import error_with_part
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import DAMPING, EFFORT, POSITION, STIFFNESS, body_index, invalid, quantity
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.spatial.arrays import dot, floating, floating_or_none, zero_safe_norm
from jaxdyn.spatial.sixvector import force_at_point, velocity_at_point

Vector3 = Float[Array, "3"]
Scalar = Float[Array, ""]


class Force(eqx.Module):
    """A force of a `System`; subclasses are `BodyForce` or `JointForce`.

    Class attributes:
        conservative: True if the force is minus the gradient of its potential energy, False if it does work besides.
        linear: names of the fields in all of which together the force is linear.
        table_name: name of the table of a mechanism file that describes such a force; None if files have none. Of a force in the
            joints a file has one table, in which every field is a table by the names of joints; of a force on bodies it has a list
            of tables. `quantity` declares the units, bounds and defaults of the fields.
    """

    conservative: eqx.AbstractClassVar[bool]
    linear: ClassVar[tuple[str, ...]] = ()
    table_name: ClassVar[str | None] = None

    def validate(self, model: Model) -> str | None:
        """Why this force does not fit a model and how to mend it, or None. Called once, by `System`."""
        return error_with_part(self, model)

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
        body_a, body_b: indices of the bodies, -1 for the ground.
        point_a, point_b: ends of the spring, on the axes of their bodies from O'.
        stiffness: spring constant k.
        free_length: length L0 at which the spring is relaxed.

    Source: theory.md (H3).
    """

    conservative: ClassVar[bool] = True
    linear: ClassVar[tuple[str, ...]] = ("stiffness",)
    table_name: ClassVar[str] = "spring"

    body_a: int = eqx.field(static=True, metadata=body_index())
    point_a: Vector3 = eqx.field(converter=floating, metadata=quantity("m", on="body_a"))
    body_b: int = eqx.field(static=True, metadata=body_index())
    point_b: Vector3 = eqx.field(converter=floating, metadata=quantity("m", on="body_b"))
    stiffness: Scalar = eqx.field(converter=floating, metadata=quantity("N/m", minimum=0.0))
    free_length: Scalar = eqx.field(converter=floating, default=0.0, metadata=quantity("m", minimum=0.0))

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
        body_a, body_b: indices of the bodies, -1 for the ground.
        point_a, point_b: ends of the damper, on the axes of their bodies from O'.
        coefficient: damping coefficient b.

    Source: theory.md (H4).
    """

    conservative: ClassVar[bool] = False
    linear: ClassVar[tuple[str, ...]] = ("coefficient",)
    table_name: ClassVar[str] = "damper"

    body_a: int = eqx.field(static=True, metadata=body_index())
    point_a: Vector3 = eqx.field(converter=floating, metadata=quantity("m", on="body_a"))
    body_b: int = eqx.field(static=True, metadata=body_index())
    point_b: Vector3 = eqx.field(converter=floating, metadata=quantity("m", on="body_b"))
    coefficient: Scalar = eqx.field(converter=floating, metadata=quantity("N s/m", minimum=0.0))

    def force_on_a(self, d: Vector3, d_rate: Vector3) -> Vector3:
        _, inverse_length = zero_safe_norm(d)
        direction = inverse_length * d
        return -self.coefficient * dot(direction, d_rate) * direction  # (H4)


class AppliedForce(BodyForce):
    """A constant force at a point of a body together with a couple.

    Attributes:
        body: index of the body.
        point: where the force acts, body axes from O'.
        force: force vector.
        torque: couple.
        body_fixed: True if force and torque are given on body axes and turn with the body, False for ground axes.

    Source: theory.md (H1).
    """

    conservative: ClassVar[bool] = False
    table_name: ClassVar[str] = "applied_force"

    body: int = eqx.field(static=True, metadata=body_index())
    point: Vector3 = eqx.field(converter=floating, metadata=quantity("m", on="body"))
    force: Vector3 = eqx.field(converter=floating, metadata=quantity("N"))
    torque: Vector3 = eqx.field(converter=floating, metadata=quantity("N m"))
    body_fixed: bool = eqx.field(static=True)

    def validate(self, model: Model) -> str | None:
        if self.body == GROUND:
            return "a force on the ground does nothing; give the index of a body"
        return super().validate(model)

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
        stiffness: spring constant k.
        rest: coordinates at which the springs are relaxed.
    """

    conservative: ClassVar[bool] = True
    linear: ClassVar[tuple[str, ...]] = ("stiffness",)
    table_name: ClassVar[str] = "joint_spring"

    stiffness: Float[Array, "nv"] = eqx.field(
        converter=floating, metadata=quantity(STIFFNESS, minimum=0.0, missing=0.0)
    )
    rest: Float[Array, "nq"] = eqx.field(converter=floating, metadata=quantity(POSITION, along="coordinate"))

    def generalized_forces(
        self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"], t: Scalar
    ) -> Float[Array, "nv"]:
        def energy(step):
            return self._energy(model, configuration.integrate(model, q, step))

        return -jax.grad(energy)(jnp.zeros_like(v))  # (H7) in tangent coordinates

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
        stiffness: proportional gain k.
        damping: derivative gain d.
        target: coordinates that the servo holds.
        effort: largest force in size; None for no bound.

    Source: theory.md (H14).
    """

    conservative: ClassVar[bool] = False
    table_name: ClassVar[str] = "joint_servo"

    stiffness: Float[Array, "nv"] = eqx.field(
        converter=floating, metadata=quantity(STIFFNESS, minimum=0.0, missing=0.0)
    )
    damping: Float[Array, "nv"] = eqx.field(converter=floating, metadata=quantity(DAMPING, minimum=0.0, missing=0.0))
    target: Float[Array, "nq"] = eqx.field(converter=floating, metadata=quantity(POSITION, along="coordinate"))
    effort: Float[Array, "nv"] | None = eqx.field(
        converter=floating_or_none,
        default=None,
        metadata=quantity(EFFORT, minimum=0.0, infinite=True, missing=np.inf),
    )

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
    gear: Float[Array, "nu"] = eqx.field(converter=floating, metadata=quantity("1"))

    def validate(self, model: Model) -> str | None:
        """Why these drives do not fit a model and how to mend it, or None. Called once, by `System`."""
        for column in self.columns:
            if not 0 <= column < model.nv:
                return f"there is no velocity component {column}; use 0 to {model.nv - 1}"
        return invalid(self, {"nu": len(self.columns)})

    def generalized_forces(self, model: Model, u: Float[Array, "nu"]) -> Float[Array, "nv"]:
        """N m or N by the kinds of joints."""
        selection = np.equal.outer(np.arange(model.nv), np.array(self.columns)).astype(u.dtype)
        return dot(selection, self.gear * u)  # (H6)
