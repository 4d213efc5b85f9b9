"""Contacts of points, spheres, rims and ellipsoids with the ground; theory.md section (t)."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, einsum, floating
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
    unit_vector,
    without_drift,
)
from jaxdyn.dynamics.contact.material import ContactMaterial, Response
from jaxdyn.dynamics.contact.shapes import Shapes, contact_points_of
from jaxdyn.dynamics.contact.support import CONTACTS, ON_RIM, support_point
from jaxdyn.dynamics.contact.surfaces import HalfSpace, Surface
from jaxdyn.dynamics.forces import OverStep, Scalar, Vector3
from jaxdyn.dynamics.kinematics import Motion, Placements
from jaxdyn.mechanism.components import error_with_part
from jaxdyn.mechanism.model import Model, as_dtype
from jaxdyn.mechanism.quantity import plain, quantity
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.rotation import cross, skew
from jaxdyn.spatial.sixvector import force_at_point, velocity_at_point
from jaxdyn.spatial.transform import RigidTransform

# Largest number of contacts of a body without a loop in a scalar program; loops compile several times faster.
_MOST_WRITTEN_OUT = 8


# The upper triangle of a symmetric 6x6 matrix, and the position of each entry of the matrix in it.
_UPPER = np.triu_indices(6)


_ENTRY = np.zeros((6, 6), int)


_ENTRY[_UPPER] = _ENTRY.T[_UPPER] = np.arange(len(_UPPER[0]))


class _Shape(NamedTuple):
    """Shape of a contact on body axes: a sphere, or the sphere of a point of an ellipsoid or rim, see `support_point`."""

    center: Vector3
    radius: Scalar
    axes: Float[Array, "3 3"] | None
    on_rim: Float[Array, "2"] | None


class _Carrier(NamedTuple):
    """Placement and motion of the body that carries a contact; see `Placements` and `Motion`."""

    reference: Vector3
    offset: Vector3
    rotation: Float[Array, "3 3"]
    velocity: Float[Array, "6"]
    bias: Float[Array, "6"]

    @staticmethod
    def of(moving: Motion, bodies: np.ndarray) -> "_Carrier":
        """Carriers with a leading axis, one for each of the bodies."""
        placed = moving.placements
        parts = _Carrier(placed.reference, placed.offset, placed.rotation, moving.velocity, moving.bias)
        return jax.tree.map(lambda x: x[bodies], parts)


class GroundContact(Contact):
    """Contacts of points, spheres, rims and ellipsoids of bodies with the ground.

    A sphere touches the ground with its lowest point, along the gradient of the gap of its center; a point is a sphere of radius
    zero. If there are `axes`, the center of the sphere is instead the lowest point of an ellipsoid or, with a last semi-axis of
    zero, of the rim of a disc. Such a shape makes three contacts with a third of the force each, which coincide unless a disc lies
    flat: then they are distributed over its rim and support it. `GroundContact.of` is a constructor with names and default values.

    Attributes:
        bodies: Index of the body of each shape.
        centers: Center of each shape relative to the origin of its body, on body axes.
        radii: Radius of each sphere, or the distance of the surface from the ellipsoid or rim: the radius of the tube of a tire.
        material: Parameters of the contact force.
        surface: Surface of the ground.
        axes: Semi-axes of the ellipsoids as rows, on body axes; zero for spheres. None if there are only spheres.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        builder = jaxdyn.MechanismBuilder("ball")
        builder.add_body("ball", joint=jaxdyn.Free(), mass=1.0, inertia=0.004 * jnp.eye(3))
        model = builder.build()
        contact = jaxdyn.dynamics.GroundContact.of(model, jaxdyn.dynamics.contact_sphere("ball", radius=0.1))
        system = jaxdyn.System(model, forces=(contact,))
        start = system.at_rest(jnp.array([0.0, 0.0, 0.5, 1.0, 0.0, 0.0, 0.0]))
        landed = jaxdyn.rollout(system, start, dt=0.002, steps=1000).final
        ```

    Source: theory.md (T1)-(T5), (T10), (T11).
    """

    bodies: tuple[int, ...] = eqx.field(static=True, converter=plain)
    centers: Float[Array, "contacts 3"] = eqx.field(converter=floating, metadata=quantity("m"))
    radii: Float[Array, "contacts"] = eqx.field(converter=floating, metadata=quantity("m", minimum=0.0))
    material: ContactMaterial
    surface: Surface = eqx.field(default_factory=HalfSpace)
    axes: Float[Array, "contacts 3 3"] | None = eqx.field(
        converter=lambda axes: None if axes is None else floating(axes), default=None, metadata=quantity("m")
    )

    table_name: ClassVar[str] = "ground_contact"

    @staticmethod
    def of(model: Model, points: Shapes, surface: Surface | None = None, **material: Any) -> "GroundContact":
        """Contacts by the names of bodies and frames.

        Args:
            model: Mechanism.
            points: Points and shapes, see `contact_sphere`, `contact_capsule`, `contact_box`, `contact_cylinder`, `contact_torus`
                and `contact_ellipsoid`; several of them as a list, or as the sum of their tuples.
            surface: Surface of the ground; the plane z = 0 if not given.
            material: Fields of `ContactMaterial`, whose default values follow from the mass of the mechanism.

        Raises:
            UnknownName: No body or frame has one of the names; the message lists the existing names.
        """
        ground, found = HalfSpace() if surface is None else surface, contact_points_of(points)
        axes = shape_axes(model, [(point.body, point.axes) for point in found])
        contact = GroundContact(*located_spheres(model, found), ContactMaterial.of(model, **material), ground, axes)
        return as_dtype(contact, model.dtype)

    def validate(self, model: Model) -> str | None:
        return (
            error_with_part(self, model, contacts=len(self.bodies))
            or error_with_bodies(model, self.bodies)
            or self.material.validate()
            or _error_with_surface(self.surface)
        )

    def names(self, model: Model) -> tuple[str, ...]:
        return tuple(model.topology.body_name(body) for body in self.bodies for _ in range(self._contacts_of_each))

    def describe(self) -> str:
        noun = ("point", "points") if self.axes is None else ("shape", "shapes")
        counts = plural(len(self.bodies), *noun), plural(len(set(self.bodies)), "body", "bodies")
        return (
            f"{counts[0]} of {counts[1]} with {self.surface.describe()}, friction {number_text(self.material.friction)}"
        )

    def points(self, model: Model, moving: Motion) -> ContactPoints:
        bodies, shapes = self._contacts()
        carriers = _Carrier.of(moving, bodies)
        at = jax.vmap(self._located)(*carriers[:3], shapes)
        response = jax.vmap(lambda carrier, shape, at: self._response(carrier, shape, at, None))(carriers, shapes, at)
        velocity = response.motion[:, 3:]
        return ContactPoints(
            carriers.reference + at.arm, jax.vmap(unit_vector)(at.gradient), at.depth, velocity, response.force
        )

    def body_forces(self, model: Model, moving: Motion, t: Scalar) -> Float[Array, "nb 6"]:
        return self._sums_over_bodies(model, moving, None)

    def over_step(self, model: Model, moving: Motion, t: Scalar, step: Scalar | float) -> OverStep:
        forces, matrices = jnp.split(self._sums_over_bodies(model, moving, step), [6], axis=1)
        bodies, shapes = self._contacts()
        each = _each_contact(np.bincount(bodies, minlength=1))

        def respond(carrier, shape):
            at = self._located(carrier.reference, carrier.offset, carrier.rotation, shape)
            return at.arm, self._response(carrier, shape, at, step)

        arms, response = each(respond)(_Carrier.of(moving, bodies), shapes)
        slip = slip_over_step(model, moving, self.material, response, ((bodies, arms),), each, step)
        return OverStep(forces, AddedInertia(matrices[:, _ENTRY], None), slip)

    def potential_energy(self, model: Model, q: Float[Array, "nq"], placed: Placements) -> Scalar:
        bodies, shapes = self._contacts()
        placements = placed.reference[bodies], placed.offset[bodies], placed.rotation[bodies]
        depths = jax.vmap(self._located)(*placements, shapes).depth
        return self.material.energy(depths) / self._contacts_of_each

    @property
    def _contacts_of_each(self) -> int:
        return 1 if self.axes is None else CONTACTS

    def _contacts(self) -> tuple[np.ndarray, _Shape]:
        """Body and shape of each contact, with a leading axis."""
        bodies, shapes = np.array(self.bodies, int), _Shape(self.centers, self.radii, self.axes, None)
        if self.axes is None:
            return bodies, shapes
        repeated = jax.tree.map(lambda x: jnp.repeat(x, CONTACTS, axis=0), shapes)
        on_rim = jnp.asarray(np.tile(ON_RIM, (len(bodies), 1)), self.centers.dtype)
        return np.repeat(bodies, CONTACTS), repeated._replace(on_rim=on_rim)

    def _located(self, reference: Vector3, offset: Vector3, rotation: Float[Array, "3 3"], shape: _Shape) -> Located:
        center = arm = offset + dot(rotation, shape.center)
        if shape.axes is not None:
            # On curved ground, the normal at the contact differs from that at the center.
            for _ in range(self.surface.iterations):
                normal = dot(unit_vector(self.surface.gap_and_gradient(reference + arm)[1]), rotation)
                arm = center + dot(rotation, support_point(shape.axes, normal, shape.on_rim))
        gap, gradient = self.surface.gap_and_gradient(reference + arm)
        return Located(arm, -shape.radius * unit_vector(gradient), gradient, shape.radius - gap)  # (T1)

    def _response(self, carrier: _Carrier, shape: _Shape, at: Located, step: Scalar | float | None) -> Response:
        velocity, bias = carrier.velocity, carrier.bias
        # On level ground, the second term is the same for all contacts of a body that have the same radius.
        at_point = velocity_at_point(velocity, at.center) + cross(velocity[:3], at.to_contact)
        response = self.material.response(at.gradient, at.depth, at_point, velocity[:3], step)
        if step is not None:
            drift = drift_of_point(velocity, bias, at.arm, self._follows(carrier, shape, at))
            response = without_drift(response, drift, bias[:3])
        if shape.axes is not None:
            shares = ("force", "couple", "per_linear", "per_angular", "bound")
            response = response._replace(**{name: getattr(response, name) / CONTACTS for name in shares})
        return response

    def _follows(self, carrier: _Carrier, shape: _Shape, at: Located) -> Vector3:
        """Velocity with which the contact point moves over the body and in space."""
        if shape.axes is None:
            return velocity_at_point(carrier.velocity, at.center)

        def arm(offset, rotation):
            return self._located(carrier.reference, offset, rotation, shape).arm

        turning = dot(skew(carrier.velocity[:3]), carrier.rotation)
        along = velocity_at_point(carrier.velocity, carrier.offset), turning
        return jax.jvp(arm, (carrier.offset, carrier.rotation), along)[1]

    def _action(self, carrier: _Carrier, shape: _Shape, step: Scalar | float | None) -> Float[Array, "entries"]:
        """Moment and force of one contact about P, followed by the entries of its matrix if a step is given."""
        at = self._located(*carrier[:3], shape)
        response = self._response(carrier, shape, at, step)
        wrench = force_at_point(at.arm, response.force, response.couple)
        if step is None:
            return wrench
        matrix = _about_reference_point(at.arm, response.per_linear, response.per_angular)
        return jnp.concatenate([wrench, matrix[_UPPER]])

    def _sums_over_bodies(
        self, model: Model, moving: Motion, step: Scalar | float | None
    ) -> Float[Array, "nb entries"]:
        """Sums of `_action` over the contacts of each body; those of bodies with many contacts are loops in a scalar program."""
        bodies, shapes = self._contacts()
        counts = np.bincount(bodies, minlength=model.nb)
        looped = np.flatnonzero(_is_looped(counts))
        apart = ~np.isin(bodies, looped)

        def selected(which):
            return jax.tree.map(lambda x: x[which], shapes)

        def act(carrier, shape):
            return self._action(carrier, shape, step)

        def summed(body):
            carrier = jax.tree.map(lambda x: x[0], _Carrier.of(moving, np.array([body])))
            # The loop of the derivative computes each contact again instead of reading its intermediate values from memory.
            action = jax.checkpoint(act, prevent_cse=False)

            def add(total, shape):
                return total + action(carrier, shape), None

            start = jnp.zeros(6 if step is None else 6 + len(_UPPER[0]), moving.velocity.dtype)
            return jax.lax.scan(add, start, selected(bodies == body))[0][None]

        one_by_one = jax.vmap(act)(_Carrier.of(moving, bodies[apart]), selected(apart))
        actions = jnp.concatenate([one_by_one, *map(summed, looped)])
        owners = np.concatenate([bodies[apart], looped])
        carried = (np.arange(model.nb)[:, None] == owners).astype(actions.dtype)
        return einsum("bc,ck->bk", carried, actions)


def _is_looped(contacts: np.ndarray) -> np.ndarray:
    """Whether the contacts of each body are a loop, from the number of contacts."""
    return contacts > _MOST_WRITTEN_OUT


def _each_contact(contacts: np.ndarray) -> Callable:
    """Transformation of a function of one contact to one of all, by the numbers of contacts of each body."""
    if not np.any(_is_looped(contacts)):
        return jax.vmap
    return lambda function: lambda *each: jax.lax.map(lambda one: function(*one), each)


def shape_axes(model: Model, shapes: Sequence[tuple[str, Any]]) -> Float[Array, "contacts 3 3"] | None:
    """Semi-axes of shapes on the axes of their bodies, as rows; None if all of them are spheres.

    Args:
        model: Mechanism.
        shapes: Name of the body or frame of each shape, and its semi-axes on the axes of this body or frame, as rows.
    """
    if not any(np.any(axes) for _, axes in shapes):
        return None
    frames = [model.locate_frame(name, RigidTransform.identity(model.dtype))[1] for name, _ in shapes]
    turned = zip(frames, shapes, strict=True)
    return jnp.stack(
        [jnp.asarray(axes, model.dtype) @ quaternion.to_matrix(at.quaternion).T for at, (_, axes) in turned]
    )


def _about_reference_point(
    arm: Vector3, per_linear: Float[Array, "3 3"], per_angular: Float[Array, "3 3"]
) -> Float[Array, "6 6"]:
    """Matrix of (moment; force) about P per acceleration (angular; linear) of the body, from those at a point."""
    lever = skew(arm)
    coupling = dot(lever, per_linear)
    top = jnp.concatenate([per_angular - dot(coupling, lever), coupling], axis=1)
    return jnp.concatenate([top, jnp.concatenate([coupling.T, per_linear], axis=1)])


def _error_with_surface(surface: Any) -> str | None:
    if not isinstance(surface, Surface):
        return f"the surface is a {type(surface).__name__}; give a HalfSpace, HeightGrid, HeightFunction or another Surface"
    return surface.validate()
