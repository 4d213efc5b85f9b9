"""Friction in joints, theory.md section (h): terms that can be summed, each linear in its coefficients.

The friction of a drive at low and high speeds, in both directions and under load is a sum of these terms in `System.forces`:

    JointFriction        viscous and Coulomb friction           -b v - c t
    StribeckFriction     additional friction at low speed       -c_s exp(-(v/v_s)^2) t
    AsymmetricFriction   difference between directions          -c_d t^2 - b_d v t
    LoadFriction         proportional to the gravity load       -mu sqrt(Q_g^2 + Q_0^2) t
    BearingFriction      proportional to the force in motion    -r sqrt(|F|^2 + F_0^2) t
    QuadraticDrag        turbulent flow around the body         -d v |v|

with t = tanh(v / velocity_scale) instead of the sign of v, so that all terms are smooth at rest. Values are given per velocity
component; if a term does not apply to a joint, its coefficient there is 0 and its scales may have any positive values.

Each term has the form -d(q, v) v with a coefficient d that is smooth at rest. An implicit step evaluates the force as -d v' with
the velocity v' at the end of the step. With this evaluation, friction always decelerates a joint, for any step length, and a joint
at rest stays at rest.
"""

import abc
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import floating
from jaxdyn.dynamics import forward, inverse, kinematics
from jaxdyn.dynamics.forces import JointForce, OverStep, Scalar, Slip
from jaxdyn.dynamics.kinematics import Motion
from jaxdyn.mechanism import tree
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import DAMPING, DRAG, EFFORT, LEVER, VELOCITY, ComponentUnit, Quantity, quantity
from jaxdyn.spatial.series import tanh_quotient

# Velocity scale (rad/s, m/s) where a file states none: a joint under 99 % of its friction creeps less than 1e-3 rad in a minute.
HOLDING_SCALE = 5e-6


def _coefficient(unit: str | ComponentUnit) -> dict[str, Quantity]:
    """Declaration of a coefficient per velocity component, which is zero for joints without the term."""
    return quantity(unit, along="velocity", minimum=0.0, missing=0.0)


def _scale(unit: str | ComponentUnit, *needed_by: str) -> dict[str, Quantity]:
    """Declaration of a scale per velocity component, which is required where one of the named coefficients is not zero."""
    return quantity(unit, along="velocity", positive=True, missing=1.0, needed_by=needed_by)


_VELOCITY_SCALE = quantity(VELOCITY, positive=True, missing=HOLDING_SCALE)


def _per_speed(v: Float[Array, "nv"], velocity_scale: Float[Array, "nv"]) -> Float[Array, "nv"]:
    """tanh(v / velocity_scale) / v."""
    return tanh_quotient(v / velocity_scale) / velocity_scale


class _Friction(JointForce):
    """Force -d(q, v) v in each joint."""

    conservative: ClassVar[bool] = False

    @abc.abstractmethod
    def coefficient_at(self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        """Coefficients d, N m s/rad or N s/m."""

    def generalized_forces(
        self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"], t: Scalar
    ) -> Float[Array, "nv"]:
        return -self.coefficient_at(model, q, v) * v

    def coefficient_of_speed(
        self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"]
    ) -> Callable[[Float[Array, "nv"]], Float[Array, "nv"]]:
        """The coefficients d as a function of the velocities near v, under the load at v."""
        # A law of the user may have other fields, and depend on all components.
        if type(self).__module__ != __name__ or not tree.is_looped(model.topology):
            return lambda near: self.coefficient_at(model, q, near)

        def of_column(own, speed):
            one = jax.tree.map(lambda x: x[None], own)
            return one.coefficient_at(model, q, speed[None])[0]

        return lambda near: tree.of_columns_alone(model.topology, of_column, self, near)

    def over_step(self, model: Model, moving: Motion, t: Scalar, step: Scalar | float) -> OverStep:
        v, law = moving.v, self.coefficient_of_speed(model, moving.q, moving.v)
        d = law(v)
        slip = Slip(lambda change: ((v + change)[:, None], law(v + change)), d)
        return OverStep(-d * v, step * d, slip)


class JointFriction(_Friction):
    """Viscous and smooth Coulomb friction in the joints: tau = -viscous v - coulomb tanh(v / velocity_scale).

    Attributes:
        viscous: Coefficients of viscous friction.
        coulomb: Magnitude of the Coulomb friction.
        velocity_scale: Speed at which the smooth Coulomb friction reaches 76 % of its final value.

    Source: theory.md (H8).
    """

    linear: ClassVar[tuple[str, ...]] = ("viscous", "coulomb")
    table_name: ClassVar[str] = "joint_friction"

    viscous: Float[Array, "nv"] = eqx.field(converter=floating, metadata=_coefficient(DAMPING))
    coulomb: Float[Array, "nv"] = eqx.field(converter=floating, metadata=_coefficient(EFFORT))
    velocity_scale: Float[Array, "nv"] = eqx.field(converter=floating, metadata=_VELOCITY_SCALE)

    def coefficient_at(self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        return self.viscous + self.coulomb * _per_speed(v, self.velocity_scale)  # (H8)


class StribeckFriction(_Friction):
    """Additional friction at low speed: tau = -stribeck exp(-(v / stribeck_velocity)^2) tanh(v / velocity_scale).

    Attributes:
        stribeck: Static friction minus Coulomb friction.
        stribeck_velocity: Speed at which the additional friction has decreased to 37 %; choose several times the velocity scale.
        velocity_scale: Speed at which the smooth sign tanh(v / velocity_scale) of the velocity is 0.76.

    Source: theory.md (H9); Stribeck 1902, in the form of Armstrong-Hélouvry, Dupont and Canudas de Wit 1994.
    """

    linear: ClassVar[tuple[str, ...]] = ("stribeck",)
    table_name: ClassVar[str] = "joint_stribeck_friction"

    stribeck: Float[Array, "nv"] = eqx.field(converter=floating, metadata=_coefficient(EFFORT))
    stribeck_velocity: Float[Array, "nv"] = eqx.field(converter=floating, metadata=_scale(VELOCITY, "stribeck"))
    velocity_scale: Float[Array, "nv"] = eqx.field(converter=floating, metadata=_VELOCITY_SCALE)

    def coefficient_at(self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        near_rest = jnp.exp(-((v / self.stribeck_velocity) ** 2))
        return self.stribeck * near_rest * _per_speed(v, self.velocity_scale)  # (H9)


class AsymmetricFriction(_Friction):
    """Friction that depends on the direction: tau = -(coulomb_difference t + viscous_difference v) t, t = tanh(v / velocity_scale).

    This term increases the friction of `JointFriction` in the forward direction and decreases it in the backward direction by the
    same amount. The sum of this term and `JointFriction` dissipates energy if each difference is at most the corresponding
    coefficient of `JointFriction` and the velocity scales are equal. This term alone supplies energy in one direction.

    Attributes:
        coulomb_difference: Half of the difference between forward and backward Coulomb friction; it may be negative.
        viscous_difference: Half of the difference between forward and backward viscous friction; it may be negative.
        velocity_scale: Speed at which the smooth sign tanh(v / velocity_scale) of the velocity is 0.76.

    Source: theory.md (H10).
    """

    linear: ClassVar[tuple[str, ...]] = ("coulomb_difference", "viscous_difference")
    table_name: ClassVar[str] = "joint_asymmetric_friction"

    coulomb_difference: Float[Array, "nv"] = eqx.field(converter=floating, metadata=quantity(EFFORT, missing=0.0))
    viscous_difference: Float[Array, "nv"] = eqx.field(converter=floating, metadata=quantity(DAMPING, missing=0.0))
    velocity_scale: Float[Array, "nv"] = eqx.field(converter=floating, metadata=_VELOCITY_SCALE)

    def coefficient_at(self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        per_speed = _per_speed(v, self.velocity_scale)
        return (self.coulomb_difference * per_speed + self.viscous_difference) * per_speed * v  # (H10)


class _FrictionUnderLoad(_Friction):
    """Friction proportional to a load: tau = -coefficient sqrt(load^2 + load_scale^2) tanh(v / velocity_scale)."""

    coefficient: eqx.AbstractVar[Float[Array, "nv"]]
    velocity_scale: eqx.AbstractVar[Float[Array, "nv"]]
    load_scale: eqx.AbstractVar[Float[Array, "nv"]]

    @abc.abstractmethod
    def squared_load(self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        """Square of the load, per velocity component."""

    def coefficient_at(self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        return self.coefficient_of_speed(model, q, v)(v)

    def coefficient_of_speed(
        self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"]
    ) -> Callable[[Float[Array, "nv"]], Float[Array, "nv"]]:
        load = jnp.sqrt(self.squared_load(model, q, v) + self.load_scale**2)
        return lambda near: self.coefficient * load * _per_speed(near, self.velocity_scale)  # (H11), (H13)


class LoadFriction(_FrictionUnderLoad):
    """Friction proportional to the gravity load Q_g: tau = -coefficient sqrt(Q_g^2 + load_scale^2) tanh(v / velocity_scale).

    Q_g is the generalized force of gravity at q (`gravity_force`). Q_g is not the load of the moving joint, which depends on the
    acceleration and thus on the friction.

    Attributes:
        coefficient: Ratio of friction to load.
        velocity_scale: Speed at which the smooth sign tanh(v / velocity_scale) of the velocity is 0.76.
        load_scale: Load below which friction hardly depends on the load, so that friction is smooth at zero load.

    Source: theory.md (H11), (H2).
    """

    linear: ClassVar[tuple[str, ...]] = ("coefficient",)
    table_name: ClassVar[str] = "joint_load_friction"

    coefficient: Float[Array, "nv"] = eqx.field(converter=floating, metadata=_coefficient("1"))
    velocity_scale: Float[Array, "nv"] = eqx.field(converter=floating, metadata=_VELOCITY_SCALE)
    load_scale: Float[Array, "nv"] = eqx.field(converter=floating, metadata=_scale(EFFORT, "coefficient"))

    def squared_load(self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        return inverse.gravity_force(model, q) ** 2


class BearingFriction(_FrictionUnderLoad):
    """Friction proportional to the bearing force F: tau = -coefficient sqrt(|F|^2 + load_scale^2) tanh(v / velocity_scale).

    F is the force that the joint transmits while the mechanism moves with q and v under gravity alone. F does not include the
    effects of the friction itself, of drives, springs and loop joints. The model suits fast motion, in which centrifugal forces
    dominate the loads of the bearings.

    Attributes:
        coefficient: Friction coefficient times bearing radius; for prismatic joints the friction coefficient alone.
        velocity_scale: Speed at which the smooth sign tanh(v / velocity_scale) of the velocity is 0.76.
        load_scale: Force below which friction hardly depends on the load, so that friction is smooth at zero load.

    Source: theory.md (H13), (M3).
    """

    linear: ClassVar[tuple[str, ...]] = ("coefficient",)
    table_name: ClassVar[str] = "joint_bearing_friction"

    coefficient: Float[Array, "nv"] = eqx.field(converter=floating, metadata=_coefficient(LEVER))
    velocity_scale: Float[Array, "nv"] = eqx.field(converter=floating, metadata=_VELOCITY_SCALE)
    load_scale: Float[Array, "nv"] = eqx.field(converter=floating, metadata=_scale("N", "coefficient"))

    def squared_load(self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        moving = kinematics.motion(model, q, v)
        a = forward.accelerations_from(model, moving, jnp.zeros_like(v), "auto")
        needed = inverse.forces_on_bodies(model, moving, kinematics.accelerations(model, moving, a), a)
        beyond = tree.sum_over_descendants(model.topology, needed)[model.topology.body_of_column, 3:]  # (M3)
        return jnp.sum(beyond**2, axis=1)


class QuadraticDrag(_Friction):
    """Drag of turbulent flow: tau = -coefficient v |v|.

    The first derivative of the drag is continuous. The second derivative jumps at rest, where it is defined as the mean value, 0.

    Attributes:
        coefficient: Drag coefficients.

    Source: theory.md (H12).
    """

    linear: ClassVar[tuple[str, ...]] = ("coefficient",)
    table_name: ClassVar[str] = "joint_quadratic_drag"

    coefficient: Float[Array, "nv"] = eqx.field(converter=floating, metadata=_coefficient(DRAG))

    def coefficient_at(self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        return self.coefficient * v * jnp.sign(v)  # (H12)

    def over_step(self, model: Model, moving: Motion, t: Scalar, step: Scalar | float) -> OverStep:
        return super().over_step(model, moving, t, step)._replace(slip=None)  # not dry
