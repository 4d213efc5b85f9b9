"""Contacts of spheres with each other; theory.md section (t)."""

from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import einsum, floating, zero_safe_norm
from jaxdyn.display import number_text, plural
from jaxdyn.dynamics.added_inertia import AddedInertia
from jaxdyn.dynamics.contact.base import (
    Contact,
    ContactPoints,
    Located,
    drift_of_point,
    error_with_bodies,
    located_spheres,
    slip_over_step,
    with_ground,
    without_drift,
)
from jaxdyn.dynamics.contact.material import ContactMaterial, Response
from jaxdyn.dynamics.contact.shapes import Shapes, contact_points_of
from jaxdyn.dynamics.forces import OverStep, Scalar
from jaxdyn.dynamics.kinematics import Motion, Placements
from jaxdyn.mechanism.components import error_with_part
from jaxdyn.mechanism.model import Model, as_dtype
from jaxdyn.mechanism.quantity import plain, quantity
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.spatial.rotation import cross
from jaxdyn.spatial.sixvector import force_at_point, velocity_at_point


class SphereContact(Contact):
    """Contacts between pairs of spheres of two bodies, A and B; body -1 is the ground.

    Attributes:
        bodies_a: Index of the body of sphere A of each pair.
        centers_a: Center of each sphere A relative to the origin of its body, on body axes.
        radii_a: Radius of each sphere A.
        bodies_b: Index of the body of sphere B of each pair.
        centers_b: Center of each sphere B relative to the origin of its body, on body axes.
        radii_b: Radius of each sphere B.
        material: Parameters of the contact force.

    Source: theory.md (T2)-(T6).
    """

    bodies_a: tuple[int, ...] = eqx.field(static=True, converter=plain)
    centers_a: Float[Array, "contacts 3"] = eqx.field(converter=floating, metadata=quantity("m"))
    radii_a: Float[Array, "contacts"] = eqx.field(converter=floating, metadata=quantity("m", minimum=0.0))
    bodies_b: tuple[int, ...] = eqx.field(static=True, converter=plain)
    centers_b: Float[Array, "contacts 3"] = eqx.field(converter=floating, metadata=quantity("m"))
    radii_b: Float[Array, "contacts"] = eqx.field(converter=floating, metadata=quantity("m", minimum=0.0))
    material: ContactMaterial

    table_name: ClassVar[str] = "sphere_contact"

    @staticmethod
    def of(model: Model, pairs: Sequence[Shapes], **material: Any) -> "SphereContact":
        """Contacts by the names of bodies and frames; `contact_sphere` describes one sphere.

        Args:
            model: Mechanism.
            pairs: Pairs of spheres (A, B), for example (contact_sphere("left"), contact_sphere("right")).
            material: Fields of `ContactMaterial`, whose default values follow from the mass of the mechanism.

        Raises:
            UnknownName: No body or frame has one of the names; the message lists the existing names.
            ValueError: A pair is not one of two spheres.
        """
        spheres = [contact_points_of(pair) for pair in pairs]
        if any(len(pair) != 2 or np.any([point.axes for point in pair]) for pair in spheres):
            raise ValueError(
                "a SphereContact has a rim, an ellipsoid, or not two spheres; give pairs of spheres, or contacts with the ground"
            )
        a, b = (located_spheres(model, [pair[side] for pair in spheres]) for side in (0, 1))
        return as_dtype(SphereContact(*a, *b, ContactMaterial.of(model, **material)), model.dtype)

    def validate(self, model: Model) -> str | None:
        count = len(self.bodies_a)
        if len(self.bodies_b) != count:
            return f"bodies_b has {len(self.bodies_b)} entries, but bodies_a has {count}; give one entry per contact"
        return (
            error_with_part(self, model, contacts=count)
            or model.topology.error_with_bodies(*self.bodies_a, *self.bodies_b)
            or self._error_with_pairs(model)
            or self.material.validate()
        )

    def _error_with_pairs(self, model: Model) -> str | None:
        for a, b in zip(self.bodies_a, self.bodies_b, strict=True):
            if a == b:
                return f"both spheres of a pair are on {model.topology.body_name(a)!r}; give spheres of two bodies"
            wrong = error_with_bodies(model, [body for body in (a, b) if body != GROUND])
            if wrong is not None:
                return wrong
        return None

    def names(self, model: Model) -> tuple[str, ...]:
        name = model.topology.body_name
        return tuple(f"{name(a)} and {name(b)}" for a, b in zip(self.bodies_a, self.bodies_b, strict=True))

    def describe(self) -> str:
        return (
            f"{plural(len(self.bodies_a), 'pair', 'pairs')} of spheres, friction {number_text(self.material.friction)}"
        )

    def points(self, model: Model, moving: Motion) -> ContactPoints:
        a, b = self._located(moving.placements)
        response = self._responses(moving, a, b, None)
        position = with_ground(moving.placements.reference)[np.array(self.bodies_a, int)] + a.arm
        return ContactPoints(position, a.gradient, a.depth, response.motion[:, 3:], response.force)

    def body_forces(self, model: Model, moving: Motion, t: Scalar) -> Float[Array, "nb 6"]:
        a, b = self._located(moving.placements)
        return self._on_bodies(model, a, b, self._responses(moving, a, b, None))

    def over_step(self, model: Model, moving: Motion, t: Scalar, step: Scalar | float) -> OverStep:
        a, b = self._located(moving.placements)
        response = self._responses(moving, a, b, step)
        moved = zip(
            self._columns(model, moving, self.bodies_a, a), self._columns(model, moving, self.bodies_b, b), strict=True
        )
        linear, angular = (columns_a - columns_b for columns_a, columns_b in moved)
        added = einsum("cxi,cij,cyj->xy", linear, response.per_linear, linear)
        added = added + einsum("cxi,cij,cyj->xy", angular, response.per_angular, angular)
        sides = (np.array(self.bodies_a, int), a.arm), (np.array(self.bodies_b, int), b.arm)
        slip = slip_over_step(model, moving, self.material, response, sides, jax.vmap, step)
        return OverStep(self._on_bodies(model, a, b, response), AddedInertia(None, added), slip)

    def potential_energy(self, model: Model, q: Float[Array, "nq"], placed: Placements) -> Scalar:
        return self.material.energy(self._located(placed)[0].depth)

    def _located(self, placed: Placements) -> tuple[Located, Located]:
        """The common contact point of each pair, from the reference points of both bodies."""
        reference, offset = with_ground(placed.reference), with_ground(placed.offset)
        rotation = jnp.concatenate([placed.rotation, jnp.asarray(np.eye(3)[None], placed.rotation.dtype)])
        bodies_a, bodies_b = np.array(self.bodies_a, int), np.array(self.bodies_b, int)
        arms_a = offset[bodies_a] + einsum("cij,cj->ci", rotation[bodies_a], self.centers_a)
        arms_b = offset[bodies_b] + einsum("cij,cj->ci", rotation[bodies_b], self.centers_b)

        def locate(between_references, arm_a, radius_a, arm_b, radius_b):
            distance, inverse = zero_safe_norm(between_references + (arm_a - arm_b))
            normal = inverse * (between_references + (arm_a - arm_b))
            depth = radius_a + radius_b - distance  # (T6)
            a = Located(arm_a, -(radius_a - 0.5 * depth) * normal, normal, depth)
            return a, Located(arm_b, (radius_b - 0.5 * depth) * normal, -normal, depth)

        return jax.vmap(locate)(reference[bodies_a] - reference[bodies_b], arms_a, self.radii_a, arms_b, self.radii_b)

    def _responses(self, moving: Motion, a: Located, b: Located, step: Scalar | float | None) -> Response:
        velocity = with_ground(moving.velocity)
        of_a, of_b = velocity[np.array(self.bodies_a, int)], velocity[np.array(self.bodies_b, int)]
        at_point = jax.vmap(velocity_at_point)
        relative = at_point(of_a, a.arm) - at_point(of_b, b.arm)

        def respond(gradient, depth, velocity, spin):
            return self.material.response(gradient, depth, velocity, spin, step)

        response = jax.vmap(respond)(a.gradient, a.depth, relative, of_a[:, :3] - of_b[:, :3])
        if step is not None:
            bias, drift = with_ground(moving.bias), jax.vmap(drift_of_point)
            bias_a, bias_b = bias[np.array(self.bodies_a, int)], bias[np.array(self.bodies_b, int)]
            follows_a, follows_b = at_point(of_a, a.center), at_point(of_b, b.center)
            drifts = drift(of_a, bias_a, a.arm, follows_a) - drift(of_b, bias_b, b.arm, follows_b)
            response = jax.vmap(without_drift)(response, drifts, bias_a[:, :3] - bias_b[:, :3])
        return response

    def _on_bodies(self, model: Model, a: Located, b: Located, response: Response) -> Float[Array, "nb 6"]:
        total = jnp.zeros((model.nb, 6), response.force.dtype)
        for bodies, at, sign in ((self.bodies_a, a, 1.0), (self.bodies_b, b, -1.0)):
            wrenches = sign * jax.vmap(force_at_point)(at.arm, response.force, response.couple)
            carried = (np.arange(model.nb)[:, None] == np.array(bodies, int)).astype(wrenches.dtype)
            total = total + einsum("bc,ck->bk", carried, wrenches)
        return total

    def _columns(
        self, model: Model, moving: Motion, bodies: tuple[int, ...], at: Located
    ) -> tuple[Float[Array, "contacts nv 3"], Float[Array, "contacts nv 3"]]:
        """Linear and angular velocity of the contact points of bodies per unit of each velocity component."""
        moves = np.concatenate([model.topology.column_moves_body.T, np.zeros((1, model.nv), bool)])[
            np.array(bodies, int)
        ]
        w, nu = moving.placements.columns[:, :3], moving.placements.columns[:, 3:]
        linear = nu[None] + cross(w[None], at.arm[:, None])  # (E4)
        return jnp.where(moves[..., None], linear, 0.0), jnp.where(moves[..., None], w[None], 0.0)
