"""Forces on single bodies; theory.md (H1), (H26) to (H28)."""

import abc
import dataclasses
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, floating, zero_safe_norm
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


class _Drag(BodyForce):
    """Resistance of a medium against the motion of one body, by the velocities along three perpendicular axes."""

    conservative: ClassVar[bool] = False
    linear: ClassVar[tuple[str, ...]] = ("density", "viscosity")

    body: int = eqx.field(static=True, converter=plain, metadata=body_index())
    center: Vector3 = eqx.field(converter=floating, metadata=quantity("m", on="body"))
    edges: Float[Array, "3 3"] = eqx.field(converter=floating, metadata=quantity("m", axes="body"))
    density: Scalar = eqx.field(converter=floating, metadata=quantity("kg/m^3", minimum=0.0))
    viscosity: Scalar = eqx.field(converter=floating, metadata=quantity("N s/m^2", minimum=0.0))
    wind: Vector3 = eqx.field(converter=floating, default=(0.0, 0.0, 0.0), metadata=quantity("m/s"))

    @abc.abstractmethod
    def resistance(self, lengths: Vector3, speeds: Float[Array, "6"]) -> tuple[Float[Array, "6"], Float[Array, "6"]]:
        """Moments about the edges and forces along them, and how they decrease with the speeds.

        Args:
            lengths: Lengths of the edges.
            speeds: Angular velocities about the edges, velocities along them relative to the medium.
        """

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
        lines, forces, _ = self._along_edges(moving)
        return on_body(model, self.body, dot(lines.T, forces))

    def over_step(self, model: Model, moving: Motion, t: Scalar, step: Scalar | float) -> OverStep:
        lines, forces, slopes = self._along_edges(moving)
        added = dot(lines.T, step * slopes[:, None] * lines)
        drift = dot(added, moving.bias[self.body])
        selected = (np.arange(model.nb) == self.body)[:, None, None]
        return OverStep(
            on_body(model, self.body, dot(lines.T, forces) - drift),
            AddedInertia(jnp.where(selected, added[None], 0.0), None),
        )

    def _along_edges(self, moving: Motion) -> tuple[Float[Array, "6 6"], Float[Array, "6"], Float[Array, "6"]]:
        """6-vectors of unit moments about the edges and of unit forces along them, ground axes, and the resistance along them."""
        placed, velocity = moving.placements, moving.velocity[self.body]
        lengths = jnp.sqrt(jnp.sum(self.edges**2, axis=1))
        rows = dot(self.edges / lengths[:, None], placed.rotation[self.body].T)
        _, arm = kinematics.point_on_body(placed, self.body, self.center)
        lines = jnp.block([[rows, jnp.zeros_like(rows)], [cross(arm[None], rows), rows]])
        return lines, *self.resistance(lengths, dot(lines, velocity).at[3:].add(-dot(rows, self.wind)))


class BoxDrag(_Drag):
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

    table_name: ClassVar[str] = "box_drag"

    def resistance(self, lengths: Vector3, speeds: Float[Array, "6"]) -> tuple[Float[Array, "6"], Float[Array, "6"]]:
        d, b, c = jnp.mean(lengths), jnp.roll(lengths, 1), jnp.roll(lengths, 2)
        viscous = self.viscosity * np.pi * jnp.repeat(jnp.stack([d**3, 3.0 * d]), 3)
        quadratic = self.density * jnp.concatenate([lengths * (b**4 + c**4) / 64.0, 0.5 * b * c])
        drag = quadratic * jnp.abs(speeds)
        return -(viscous + drag) * speeds, viscous + 2.0 * drag  # (H26)


class EllipsoidDrag(_Drag):
    """Forces of a medium, such as air or water, on an ellipsoid: drag, lift, and the momentum of the medium that it entrains.

    Drag is viscous and quadratic in the speed; a blunt and a slender part depend on the area that the body shows to the flow. The
    lift of Kutta and Joukowski acts on an inclined body, that of Magnus on a spinning one. The entrained medium has the momentum
    rho V v along the axes and rho U w about them, which turn with the body; the change of v and w does not act on it. It is the
    model of MuJoCo for ellipsoids. Buoyancy is a `GravityCompensation`.

    Attributes:
        body: Index of the body.
        center: Center of the ellipsoid, on body axes, relative to O'.
        edges: The three axes of the ellipsoid, in full length, as vectors on body axes, perpendicular to one another.
        density: Density rho of the medium.
        viscosity: Viscosity eta of the medium.
        wind: Velocity of the medium, on ground axes.
        blunt: Drag coefficient of the area that the body shows to the flow.
        slender: Drag coefficient of the rest of its largest area.
        angular: Drag coefficient of rotation.
        kutta: Coefficient of the lift on an inclined body.
        magnus: Coefficient of the lift on a spinning body.
        entrained_volume: Volumes V of the medium that the body entrains along its axes, see `with_entrained_medium`.
        entrained_moment: Moments of inertia U of the entrained medium per density, about the axes.

    Example:
        ```python
        import jax.numpy as jnp
        import jaxdyn

        model = jaxdyn.library.double_pendulum()
        axes = jnp.diag(jnp.array([0.1, 0.1, 0.5]))
        drag = jaxdyn.dynamics.EllipsoidDrag(1, model.com[1], axes, density=1000.0, viscosity=0.001)
        system = jaxdyn.System(model, (drag.with_entrained_medium(),))
        ```

    Source: theory.md (H27), (H28).
    """

    table_name: ClassVar[str] = "ellipsoid_drag"

    blunt: Scalar = eqx.field(converter=floating, default=0.5, metadata=quantity("1", minimum=0.0))
    slender: Scalar = eqx.field(converter=floating, default=0.25, metadata=quantity("1", minimum=0.0))
    angular: Scalar = eqx.field(converter=floating, default=1.5, metadata=quantity("1", minimum=0.0))
    kutta: Scalar = eqx.field(converter=floating, default=1.0, metadata=quantity("1"))
    magnus: Scalar = eqx.field(converter=floating, default=1.0, metadata=quantity("1"))
    entrained_volume: Vector3 = eqx.field(
        converter=floating, default=(0.0, 0.0, 0.0), metadata=quantity("m^3", minimum=0.0)
    )
    entrained_moment: Vector3 = eqx.field(
        converter=floating, default=(0.0, 0.0, 0.0), metadata=quantity("m^5", minimum=0.0)
    )

    def with_entrained_medium(self) -> "EllipsoidDrag":
        """Copy that entrains the medium of a potential flow. Source: theory.md (H28), Lamb 1932."""
        from scipy.special import elliprd  # this import takes 0.2 s

        s = 0.25 * np.sum(np.asarray(self.edges, float) ** 2, axis=1)  # squares of the semiaxes
        volume = 4.0 / 3.0 * np.pi * np.sqrt(np.prod(s))
        others = [np.roll(s, -1), np.roll(s, -2)]
        share = 2.0 / 3.0 * np.sqrt(np.prod(s)) * elliprd(*others, s)
        difference, rise = others[0] - others[1], np.roll(share, -2) - np.roll(share, -1)
        opposed = 2.0 * difference - (others[0] + others[1]) * rise
        sphere = np.abs(difference) < _RIGHT_ANGLE * (others[0] + others[1])  # entrains nothing about this axis
        moment = np.where(sphere, 0.0, difference**2 * rise / np.where(sphere, 1.0, opposed))
        return dataclasses.replace(
            self, entrained_volume=volume * share / (2.0 - share), entrained_moment=0.2 * volume * moment
        )

    def resistance(self, lengths: Vector3, speeds: Float[Array, "6"]) -> tuple[Float[Array, "6"], Float[Array, "6"]]:
        w, v = speeds[:3], speeds[3:]
        s, d = 0.5 * lengths, jnp.mean(lengths)
        small, large = jnp.min(s), jnp.max(s)
        middle = jnp.sum(s) - small - large
        first, second = jnp.roll(s, 1), jnp.roll(s, 2)
        speed, inverse = zero_safe_norm(v)
        along = jnp.where(speed > 0.0, v * inverse, jnp.asarray([1.0, 0.0, 0.0], v.dtype))
        normal = (first * second) ** 2 * along  # of the area that the flow meets
        steep, shown = jnp.sqrt(dot(normal, normal)), jnp.sqrt(dot(normal, along))
        area = np.pi * steep / shown
        largest = np.pi * large * middle
        drag = self.density * speed * (self.blunt * area + self.slender * (largest - area))
        lift = self.kutta * np.pi * shown / steep * (speed**2 * cross(cross(normal, along), along))
        spun = self.magnus * jnp.prod(s) * 4.0 / 3.0 * np.pi * cross(w, v)
        about = 8.0 / 15.0 * np.pi * s * jnp.maximum(first, second) ** 4
        most = 8.0 / 15.0 * np.pi * middle * large**4
        braked, _ = zero_safe_norm(w * (self.angular * about + self.slender * (most - about)))
        viscous = self.viscosity * np.pi * jnp.stack([d**3, 3.0 * d])
        momentum, spin = self.entrained_volume * v, self.entrained_moment * w
        entrained = jnp.concatenate([cross(momentum, v) + cross(spin, w), cross(momentum, w)])
        against = jnp.repeat(viscous + jnp.stack([self.density * braked, drag]), 3)
        forces = self.density * entrained.at[3:].add(lift + spun) - against * speeds  # (H27)
        return forces, 2.0 * against - jnp.repeat(viscous, 3)
