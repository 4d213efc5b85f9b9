"""Forces on single bodies; theory.md (H1)."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, floating
from jaxdyn.dynamics import kinematics
from jaxdyn.dynamics.forces.base import BodyForce, Scalar, Vector3, on_body
from jaxdyn.dynamics.kinematics import Motion, Placements
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import body_index, plain, quantity
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.spatial.sixvector import force_at_point


class AppliedForce(BodyForce):
    """Constant force at a point of a body, and a constant couple.

    Attributes:
        body: Index of the body.
        point: Point of application, on body axes, relative to O'.
        force: Force vector.
        torque: Couple, which acts in addition to the moment of the force.
        body_fixed: True if force and torque are given on body axes and rotate with the body, False if they are on ground axes.

    Source: theory.md (H1).
    """

    conservative: ClassVar[bool] = False
    table_name: ClassVar[str] = "applied_force"

    body: int = eqx.field(static=True, converter=plain, metadata=body_index())
    point: Vector3 = eqx.field(converter=floating, metadata=quantity("m", on="body"))
    force: Vector3 = eqx.field(converter=floating, metadata=quantity("N"))
    torque: Vector3 = eqx.field(converter=floating, metadata=quantity("N m"))
    body_fixed: bool = eqx.field(static=True, converter=plain)

    def validate(self, model: Model) -> str | None:
        if self.body == GROUND:
            return "a force on the ground has no effect; give the index of a body"
        return super().validate(model)

    def body_forces(self, model: Model, moving: Motion, t: Scalar) -> Float[Array, "nb 6"]:
        placed = moving.placements
        force, torque = self.force, self.torque
        if self.body_fixed:
            force, torque = dot(placed.rotation[self.body], force), dot(placed.rotation[self.body], torque)
        _, arm = kinematics.point_on_body(placed, self.body, self.point)
        return on_body(model, self.body, force_at_point(arm, force, torque))  # (H1)


class GravityCompensation(BodyForce):
    """Compensation of a share of the weight of a body at its center of mass: force -share m g.

    Attributes:
        body: Index of the body.
        share: Share of the weight; 1 compensates it, and more lifts the body.

    Source: theory.md (H1).
    """

    conservative: ClassVar[bool] = True
    linear: ClassVar[tuple[str, ...]] = ("share",)
    table_name: ClassVar[str] = "gravity_compensation"

    body: int = eqx.field(static=True, converter=plain, metadata=body_index())
    share: Scalar = eqx.field(converter=floating, metadata=quantity("1"))

    def validate(self, model: Model) -> str | None:
        if self.body == GROUND:
            return "the ground has no weight; give the index of a body"
        return super().validate(model)

    def body_forces(self, model: Model, moving: Motion, t: Scalar) -> Float[Array, "nb 6"]:
        force = -self.share * model.mass[self.body] * model.gravity
        arm = moving.placements.com[self.body]
        return on_body(model, self.body, force_at_point(arm, force, jnp.zeros_like(force)))  # (H1)

    def potential_energy(self, model: Model, q: Float[Array, "nq"], placed: Placements) -> Scalar:
        center = placed.reference[self.body] + placed.com[self.body]
        return self.share * model.mass[self.body] * dot(model.gravity, center)
