"""Compliant contact with friction, theory.md section (t): of points, spheres, rims and ellipsoids with the ground, and of spheres
with each other.

Contacts are forces of a `System`. They have continuous derivatives, never pull, and dissipate energy. The default integrator
evaluates them at the end of its step, so that steps of 2 to 5 ms are stable on stiff ground (`BodyForce.over_step`).

Other shapes are sets of these: see `contact_shapes`.
"""

import abc
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, einsum, floating, zero_safe_norm
from jaxdyn.display import number_text, plural
from jaxdyn.dynamics.added_inertia import AddedInertia
from jaxdyn.dynamics.contact_material import ContactMaterial, Response
from jaxdyn.dynamics.contact_shapes import ContactPoint, Shapes, contact_points_of
from jaxdyn.dynamics.forces import BodyForce, OverStep, Scalar, Slip, Vector3
from jaxdyn.dynamics.kinematics import Motion, Placements
from jaxdyn.dynamics.support import CONTACTS, ON_RIM, support_point
from jaxdyn.dynamics.surfaces import HalfSpace, Surface
from jaxdyn.mechanism import tree
from jaxdyn.mechanism.model import Model, as_dtype
from jaxdyn.mechanism.quantity import plain, quantity
from jaxdyn.mechanism.topology import GROUND
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


class ContactPoints(NamedTuple):
    """Contacts at one instant; vectors are on ground axes.

    Attributes:
        position: Contact points, m.
        normal: Unit vectors along which the first body is pushed.
        depth: Depths of penetration, m; negative without contact.
        velocity: Velocities of the first body relative to the ground or the second body, at the contact points, m/s.
        force: Forces on the first body, N.
    """

    position: Float[Array, "contacts 3"]
    normal: Float[Array, "contacts 3"]
    depth: Float[Array, "contacts"]
    velocity: Float[Array, "contacts 3"]
    force: Float[Array, "contacts 3"]


def _without_drift(response: Response, drift: Vector3, turning: Vector3) -> Response:
    """Response in which the force of the step includes the relative acceleration at zero generalized acceleration.

    The matrices multiply the accelerations that are due to the generalized accelerations. The velocity of the contact point also
    changes with the motion of the columns, for example with the body axes of a free joint.

    Args:
        response: Force and matrices of one contact.
        drift, turning: Change of the relative velocity and angular velocity per time at zero generalized acceleration.

    Source: theory.md (T8).
    """
    return response._replace(
        force=response.force - dot(response.per_linear, drift),
        couple=response.couple - dot(response.per_angular, turning),
    )


def _drift(velocity: Float[Array, "6"], bias: Float[Array, "6"], arm: Vector3, follows: Vector3) -> Vector3:
    """Change of the velocity of a contact point per time at zero generalized acceleration; the normal is constant.

    Args:
        velocity, bias: Spatial velocity of the body, and its spatial acceleration at zero generalized acceleration.
        arm: Contact point from the reference point.
        follows: Velocity with which the contact point moves over the body and in space, that of the center of a sphere.
    """
    return velocity_at_point(bias, arm) + cross(velocity[:3], follows)


class Contact(BodyForce):
    """Contacts of one material."""

    conservative: ClassVar[bool] = False

    @abc.abstractmethod
    def names(self, model: Model) -> tuple[str, ...]:
        """Names of the contacts, from the bodies that take part."""

    @abc.abstractmethod
    def points(self, model: Model, moving: Motion) -> ContactPoints:
        """Contacts at one instant."""

    @abc.abstractmethod
    def describe(self) -> str:
        """Number of contacts, friction and surface in words."""


class _Located(NamedTuple):
    """Geometry of a contact of one body; vectors from the reference point P of its tree to the contact point and to the center of
    the sphere, ground axes."""

    arm: Vector3
    center: Vector3
    gradient: Vector3
    depth: Scalar


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
        contact = GroundContact(*_spheres(model, found), ContactMaterial.of(model, **material), ground, axes)
        return as_dtype(contact, model.dtype)

    def validate(self, model: Model) -> str | None:
        return (
            super().validate(model)
            or _error_with_bodies(model, self.bodies)
            or _error_with_lengths(
                {"bodies": len(self.bodies), "centers": self.centers.shape[-2], "radii": self.radii.shape[-1]}
                | ({} if self.axes is None else {"axes": self.axes.shape[-3]})
            )
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
        velocity, response = jax.vmap(lambda carrier, shape, at: self._response(carrier, shape, at, None))(
            carriers, shapes, at
        )
        return ContactPoints(
            carriers.reference + at.arm, jax.vmap(_unit)(at.gradient), at.depth, velocity, response.force
        )

    def body_forces(self, model: Model, moving: Motion, t: Scalar) -> Float[Array, "nb 6"]:
        return self._sums_over_bodies(model, moving, None)

    def over_step(self, model: Model, moving: Motion, t: Scalar, step: Scalar | float) -> OverStep:
        forces, matrices = jnp.split(self._sums_over_bodies(model, moving, step), [6], axis=1)
        bodies, shapes = self._contacts()
        each = _each_contact(np.bincount(bodies, minlength=1))

        def respond(carrier, shape):
            at = self._located(carrier.reference, carrier.offset, carrier.rotation, shape)
            return at.arm, self._follows(carrier, shape, at), self._response(carrier, shape, at, step)[1]

        arms, follows, response = each(respond)(_Carrier.of(moving, bodies), shapes)
        slip = _slip(model, moving, self.material, response, ((bodies, arms, follows),), each, step)
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

    def _located(self, reference: Vector3, offset: Vector3, rotation: Float[Array, "3 3"], shape: _Shape) -> _Located:
        center = arm = offset + dot(rotation, shape.center)
        if shape.axes is not None:
            # On curved ground, the normal at the contact differs from that at the center.
            for _ in range(self.surface.iterations):
                normal = dot(_unit(self.surface.gap_and_gradient(reference + arm)[1]), rotation)
                arm = center + dot(rotation, support_point(shape.axes, normal, shape.on_rim))
        gap, gradient = self.surface.gap_and_gradient(reference + arm)
        return _Located(arm - shape.radius * _unit(gradient), arm, gradient, shape.radius - gap)  # (T1)

    def _response(
        self, carrier: _Carrier, shape: _Shape, at: _Located, step: Scalar | float | None
    ) -> tuple[Vector3, Response]:
        """Velocity of a contact point, and the response of the contact."""
        velocity, bias = carrier.velocity, carrier.bias
        at_point = velocity_at_point(velocity, at.arm)
        response = self.material.response(at.gradient, at.depth, at_point, velocity[:3], step)
        if step is not None:
            drift = _drift(velocity, bias, at.arm, self._follows(carrier, shape, at))
            response = _without_drift(response, drift, bias[:3])
        if shape.axes is not None:
            response = jax.tree.map(lambda x: x / CONTACTS, response)._replace(normal=response.normal)
        return at_point, response

    def _follows(self, carrier: _Carrier, shape: _Shape, at: _Located) -> Vector3:
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
        _, response = self._response(carrier, shape, at, step)
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


def _slip(
    model: Model,
    moving: Motion,
    material: ContactMaterial,
    response: Response,
    sides: Sequence[tuple[np.ndarray, Float[Array, "contacts 3"], Float[Array, "contacts 3"]]],
    each: Callable,
    step: Scalar | float,
) -> Slip:
    """Friction of contacts at the end of a step.

    Args:
        model: Mechanism.
        moving: Motion of the model.
        material: Parameters of the contact force.
        response: Responses of the contacts over the step.
        sides: Bodies, arms and velocities that the contact points follow, see `_drift`, of the first side, and of the second one if
            it is not the ground.
        each: Transformation of a function of one contact to one of all contacts.
        step: Length of the step (s).
    """
    velocity, columns = _with_ground(moving.velocity), moving.placements.columns

    def of_side(bodies, arms, follows, acceleration):
        def of_one(velocity, arm, follows, gained):
            change = jnp.concatenate([gained[:3], _drift(velocity, gained, arm, follows)])
            return jnp.concatenate([velocity[:3], velocity_at_point(velocity, arm)]) + step * change

        if acceleration is None:
            return jnp.concatenate([velocity[bodies][:, :3], jax.vmap(velocity_at_point)(velocity[bodies], arms)], 1)
        return each(of_one)(velocity[bodies], arms, follows, acceleration[bodies])

    def relative(acceleration):
        of_a, *of_b = (of_side(*side, acceleration) for side in sides)
        return of_a - of_b[0] if of_b else of_a

    def resisted(motion, bound):
        slip = jax.vmap(material.slip)(response.normal, motion[:, 3:], motion[:, :3])
        return slip, jax.vmap(material.resistance)(bound, slip)

    start = relative(None)
    relief = material.friction / step * einsum("ci,cij->cj", response.normal, response.per_linear)

    def at_end(a):
        end = relative(_with_ground(moving.bias + tree.sum_over_columns(model.topology, columns * a[:, None])))
        # The normal force, too, is that at the end of the step.
        bound = response.bound - jnp.sum(relief * (end - start)[:, 3:], axis=1)
        return resisted(end, jnp.where(bound > 0.0, bound, 0.0))

    return Slip(at_end, resisted(start, response.bound)[1])


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
        a, b = (_spheres(model, [pair[side] for pair in spheres]) for side in (0, 1))
        return as_dtype(SphereContact(*a, *b, ContactMaterial.of(model, **material)), model.dtype)

    def validate(self, model: Model) -> str | None:
        lengths = {
            "bodies_a": len(self.bodies_a),
            "centers_a": self.centers_a.shape[-2],
            "radii_a": self.radii_a.shape[-1],
        }
        lengths |= {
            "bodies_b": len(self.bodies_b),
            "centers_b": self.centers_b.shape[-2],
            "radii_b": self.radii_b.shape[-1],
        }
        return (
            super().validate(model)
            or model.topology.error_with_bodies(*self.bodies_a, *self.bodies_b)
            or _error_with_lengths(lengths)
            or self._error_with_pairs(model)
            or self.material.validate()
        )

    def _error_with_pairs(self, model: Model) -> str | None:
        for a, b in zip(self.bodies_a, self.bodies_b, strict=True):
            if a == b:
                return f"both spheres of a pair are on {model.topology.body_name(a)!r}; give spheres of two bodies"
            wrong = _error_with_bodies(model, [body for body in (a, b) if body != GROUND])
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
        velocity, response = self._responses(moving, a, b, None)
        position = _with_ground(moving.placements.reference)[np.array(self.bodies_a, int)] + a.arm
        return ContactPoints(position, a.gradient, a.depth, velocity, response.force)

    def body_forces(self, model: Model, moving: Motion, t: Scalar) -> Float[Array, "nb 6"]:
        a, b = self._located(moving.placements)
        return self._on_bodies(model, a, b, self._responses(moving, a, b, None)[1])

    def over_step(self, model: Model, moving: Motion, t: Scalar, step: Scalar | float) -> OverStep:
        a, b = self._located(moving.placements)
        _, response = self._responses(moving, a, b, step)
        moved = zip(
            self._columns(model, moving, self.bodies_a, a), self._columns(model, moving, self.bodies_b, b), strict=True
        )
        linear, angular = (columns_a - columns_b for columns_a, columns_b in moved)
        added = einsum("cxi,cij,cyj->xy", linear, response.per_linear, linear)
        added = added + einsum("cxi,cij,cyj->xy", angular, response.per_angular, angular)
        sides = [
            (bodies, at.arm, jax.vmap(velocity_at_point)(_with_ground(moving.velocity)[bodies], at.center))
            for bodies, at in ((np.array(self.bodies_a, int), a), (np.array(self.bodies_b, int), b))
        ]
        slip = _slip(model, moving, self.material, response, sides, jax.vmap, step)
        return OverStep(self._on_bodies(model, a, b, response), AddedInertia(None, added), slip)

    def potential_energy(self, model: Model, q: Float[Array, "nq"], placed: Placements) -> Scalar:
        return self.material.energy(self._located(placed)[0].depth)

    def _located(self, placed: Placements) -> tuple[_Located, _Located]:
        """The common contact point of each pair, from the reference points of both bodies."""
        reference, offset = _with_ground(placed.reference), _with_ground(placed.offset)
        rotation = jnp.concatenate([placed.rotation, jnp.asarray(np.eye(3)[None], placed.rotation.dtype)])
        bodies_a, bodies_b = np.array(self.bodies_a, int), np.array(self.bodies_b, int)
        arms_a = offset[bodies_a] + einsum("cij,cj->ci", rotation[bodies_a], self.centers_a)
        arms_b = offset[bodies_b] + einsum("cij,cj->ci", rotation[bodies_b], self.centers_b)

        def locate(between_references, arm_a, radius_a, arm_b, radius_b):
            distance, inverse = zero_safe_norm(between_references + (arm_a - arm_b))
            normal = inverse * (between_references + (arm_a - arm_b))
            depth = radius_a + radius_b - distance  # (T6)
            point_a = arm_a - (radius_a - 0.5 * depth) * normal
            point_b = arm_b + (radius_b - 0.5 * depth) * normal
            return _Located(point_a, arm_a, normal, depth), _Located(point_b, arm_b, -normal, depth)

        return jax.vmap(locate)(reference[bodies_a] - reference[bodies_b], arms_a, self.radii_a, arms_b, self.radii_b)

    def _responses(
        self, moving: Motion, a: _Located, b: _Located, step: Scalar | float | None
    ) -> tuple[Float[Array, "contacts 3"], Response]:
        velocity = _with_ground(moving.velocity)
        of_a, of_b = velocity[np.array(self.bodies_a, int)], velocity[np.array(self.bodies_b, int)]
        at_point = jax.vmap(velocity_at_point)
        relative = at_point(of_a, a.arm) - at_point(of_b, b.arm)

        def respond(gradient, depth, velocity, spin):
            return self.material.response(gradient, depth, velocity, spin, step)

        response = jax.vmap(respond)(a.gradient, a.depth, relative, of_a[:, :3] - of_b[:, :3])
        if step is not None:
            bias, drift = _with_ground(moving.bias), jax.vmap(_drift)
            bias_a, bias_b = bias[np.array(self.bodies_a, int)], bias[np.array(self.bodies_b, int)]
            follows_a, follows_b = at_point(of_a, a.center), at_point(of_b, b.center)
            drifts = drift(of_a, bias_a, a.arm, follows_a) - drift(of_b, bias_b, b.arm, follows_b)
            response = jax.vmap(_without_drift)(response, drifts, bias_a[:, :3] - bias_b[:, :3])
        return relative, response

    def _on_bodies(self, model: Model, a: _Located, b: _Located, response: Response) -> Float[Array, "nb 6"]:
        total = jnp.zeros((model.nb, 6), response.force.dtype)
        for bodies, at, sign in ((self.bodies_a, a, 1.0), (self.bodies_b, b, -1.0)):
            wrenches = sign * jax.vmap(force_at_point)(at.arm, response.force, response.couple)
            carried = (np.arange(model.nb)[:, None] == np.array(bodies, int)).astype(wrenches.dtype)
            total = total + einsum("bc,ck->bk", carried, wrenches)
        return total

    def _columns(
        self, model: Model, moving: Motion, bodies: tuple[int, ...], at: _Located
    ) -> tuple[Float[Array, "contacts nv 3"], Float[Array, "contacts nv 3"]]:
        """Linear and angular velocity of the contact points of bodies per unit of each velocity component."""
        moves = np.concatenate([model.topology.column_moves_body.T, np.zeros((1, model.nv), bool)])[
            np.array(bodies, int)
        ]
        w, nu = moving.placements.columns[:, :3], moving.placements.columns[:, 3:]
        linear = nu[None] + cross(w[None], at.arm[:, None])  # (E4)
        return jnp.where(moves[..., None], linear, 0.0), jnp.where(moves[..., None], w[None], 0.0)


def _spheres(model: Model, points: Sequence[ContactPoint]) -> tuple[tuple[int, ...], Array, Array]:
    """Bodies, centers on their axes, and radii of spheres that are given by the names of bodies and frames."""
    located = [model.locate(point.body, point.center) for point in points]
    centers = jnp.reshape(jnp.asarray([center for _, center in located], model.dtype), (-1, 3))
    return tuple(body for body, _ in located), centers, jnp.asarray([point.radius for point in points], model.dtype)


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


def _unit(x: Vector3) -> Vector3:
    return x / jnp.sqrt(dot(x, x))


def _with_ground(per_body: Float[Array, "nb n"]) -> Float[Array, "nb_and_ground n"]:
    """Values of the bodies, and zeros for the ground, whose index -1 refers to the last row."""
    return jnp.concatenate([per_body, jnp.zeros_like(per_body[:1])])


def _about_reference_point(
    arm: Vector3, per_linear: Float[Array, "3 3"], per_angular: Float[Array, "3 3"]
) -> Float[Array, "6 6"]:
    """Matrix of (moment; force) about P per acceleration (angular; linear) of the body, from those at a point."""
    lever = skew(arm)
    coupling = dot(lever, per_linear)
    top = jnp.concatenate([per_angular - dot(coupling, lever), coupling], axis=1)
    return jnp.concatenate([top, jnp.concatenate([coupling.T, per_linear], axis=1)])


def _error_with_bodies(model: Model, bodies: Sequence[int]) -> str | None:
    """Error message with a remedy if a body cannot have contacts, else None."""
    topology = model.topology
    if GROUND in bodies:
        return "a contact is on the ground itself; give the body that touches the ground"
    wrong = topology.error_with_bodies(*bodies)
    if wrong is not None or isinstance(model.mass, Tracer):
        return wrong
    carried = np.asarray(model.mass).reshape(-1, model.nb) @ topology.precedes.T
    for body in bodies:
        if np.any(carried[:, body] <= 0.0):
            return (
                f"a contact is on {topology.body_name(body)!r}, which has no mass and carries none, so the contact force would "
                "accelerate it without bound; give the body a mass, or put the contact on another body"
            )
    return None


def _error_with_surface(surface: Any) -> str | None:
    if not isinstance(surface, Surface):
        return f"the surface is a {type(surface).__name__}; give a HalfSpace, HeightGrid, HeightFunction or another Surface"
    return surface.validate()


def _error_with_lengths(lengths: dict[str, int]) -> str | None:
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        return f"the fields have different lengths ({listed}); give one entry per contact"
    return None
