"""Forces on single bodies; theory.md (H1), (H26)."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, floating
from jaxdyn.dynamics import kinematics
from jaxdyn.dynamics.added_inertia import AddedInertia
from jaxdyn.dynamics.forces.base import BodyForce, OverStep, Scalar, Vector3, on_body
from jaxdyn.dynamics.kinematics import Motion, Placements
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import body_index, plain, quantity
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.spatial.rotation import cross
from jaxdyn.spatial.sixvector import force_at_point

_RIGHT_ANGLE = 1e-4  # cosine


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


class BoxDrag(BodyForce):
    """Resistance of a medium, such as air or water, against the motion of a box: viscous, and quadratic in the speed.

    The force along each edge is -3 pi d eta v - 1/2 rho (b c) v |v|, and the moment about it is
    -pi d^3 eta w - 1/64 rho a (b^4 + c^4) w |w|, with the velocity v of the center relative to the medium along this edge, the
    angular velocity w about it, its length a, the other lengths b and c, and the mean d of all three. Displaced and entrained
    masses are neglected. It is the model of MuJoCo for a body whose box has the same inertia.

    Attributes:
        body: Index of the body.
        center: Center of the box, on body axes, relative to O'.
        edges: The three edges of the box as vectors on body axes, perpendicular to one another.
        density: Density rho of the medium.
        viscosity: Viscosity eta of the medium.
        wind: Velocity of the medium, on ground axes.

    Example:
        ```python
        import jax.numpy as jnp
        import jaxdyn

        model = jaxdyn.library.double_pendulum()
        edges = jnp.diag(jnp.array([0.1, 0.1, 0.5]))
        drag = jaxdyn.dynamics.BoxDrag(1, model.com[1], edges, density=1000.0, viscosity=0.001)
        system = jaxdyn.System(model, (drag,))
        ```

    Source: theory.md (H26).
    """

    conservative: ClassVar[bool] = False
    linear: ClassVar[tuple[str, ...]] = ("density", "viscosity")
    table_name: ClassVar[str] = "box_drag"

    body: int = eqx.field(static=True, converter=plain, metadata=body_index())
    center: Vector3 = eqx.field(converter=floating, metadata=quantity("m", on="body"))
    edges: Float[Array, "3 3"] = eqx.field(converter=floating, metadata=quantity("m", axes="body"))
    density: Scalar = eqx.field(converter=floating, metadata=quantity("kg/m^3", minimum=0.0))
    viscosity: Scalar = eqx.field(converter=floating, metadata=quantity("N s/m^2", minimum=0.0))
    wind: Vector3 = eqx.field(converter=floating, default=(0.0, 0.0, 0.0), metadata=quantity("m/s"))

    def validate(self, model: Model) -> str | None:
        if self.body == GROUND:
            return "the ground does not move; give the index of a body"
        if not isinstance(self.edges, Tracer) and self.edges.shape == (3, 3):
            products = np.asarray(self.edges @ self.edges.T)
            lengths = np.sqrt(np.diagonal(products))
            if not np.all(np.abs(products - np.diag(lengths**2)) < _RIGHT_ANGLE * np.outer(lengths, lengths)):
                return (
                    "its edges are not perpendicular to one another, or have no length; give the three edges of a box"
                )
        return super().validate(model)

    def body_forces(self, model: Model, moving: Motion, t: Scalar) -> Float[Array, "nb 6"]:
        lines, speeds, viscous, quadratic = self._along_edges(moving)
        return on_body(model, self.body, -dot(lines.T, (viscous + quadratic * jnp.abs(speeds)) * speeds))  # (H26)

    def over_step(self, model: Model, moving: Motion, t: Scalar, step: Scalar | float) -> OverStep:
        lines, speeds, viscous, quadratic = self._along_edges(moving)
        added = dot(lines.T, step * (viscous + 2.0 * quadratic * jnp.abs(speeds))[:, None] * lines)
        drift = on_body(model, self.body, dot(added, moving.bias[self.body]))
        selected = (np.arange(model.nb) == self.body)[:, None, None]
        return OverStep(
            self.body_forces(model, moving, t) - drift, AddedInertia(jnp.where(selected, added[None], 0.0), None)
        )

    def _along_edges(self, moving: Motion) -> tuple[Float[Array, "6 6"], *tuple[Float[Array, "6"], ...]]:
        """6-vectors of unit moments about the edges and of unit forces along them, ground axes, the velocities that belong to them,
        and the coefficients of the resistance."""
        placed, velocity = moving.placements, moving.velocity[self.body]
        lengths = jnp.sqrt(jnp.sum(self.edges**2, axis=1))
        rows = dot(self.edges / lengths[:, None], placed.rotation[self.body].T)
        _, arm = kinematics.point_on_body(placed, self.body, self.center)
        lines = jnp.block([[rows, jnp.zeros_like(rows)], [cross(arm[None], rows), rows]])
        speeds = dot(lines, velocity).at[3:].add(-dot(rows, self.wind))
        d, b, c = jnp.mean(lengths), jnp.roll(lengths, 1), jnp.roll(lengths, 2)
        viscous = self.viscosity * np.pi * jnp.repeat(jnp.stack([d**3, 3.0 * d]), 3)
        quadratic = self.density * jnp.concatenate([lengths * (b**4 + c**4) / 64.0, 0.5 * b * c])
        return lines, speeds, viscous, quadratic
