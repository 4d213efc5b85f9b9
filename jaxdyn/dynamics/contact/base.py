"""Base class of contacts, and the parts that all of them have in common; theory.md section (t)."""

import abc
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, einsum
from jaxdyn.dynamics.contact.material import ContactMaterial, Response
from jaxdyn.dynamics.contact.shapes import ContactPoint
from jaxdyn.dynamics.forces import BodyForce, Scalar, Slip, Vector3
from jaxdyn.dynamics.kinematics import Motion
from jaxdyn.mechanism import tree
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.spatial.rotation import cross
from jaxdyn.spatial.sixvector import velocity_at_point


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


def without_drift(response: Response, drift: Vector3, turning: Vector3) -> Response:
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
        drift=jnp.concatenate([turning, drift]),
    )


def drift_of_point(velocity: Float[Array, "6"], bias: Float[Array, "6"], arm: Vector3, follows: Vector3) -> Vector3:
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


class Located(NamedTuple):
    """Geometry of a contact of one body; vectors are on ground axes.

    Attributes:
        center: Center of the sphere, or lowest point of the ellipsoid or rim, from the reference point P of the tree of the body.
        to_contact: Vector from the center to the contact point.
        gradient: Derivative of the gap with respect to the position of the body.
        depth: Depth of penetration, m.
    """

    center: Vector3
    to_contact: Vector3
    gradient: Vector3
    depth: Scalar

    @property
    def arm(self) -> Float[Array, "*contacts 3"]:
        """Contact point from P."""
        return self.center + self.to_contact


def slip_over_step(
    model: Model,
    moving: Motion,
    material: ContactMaterial,
    response: Response,
    sides: Sequence[tuple[np.ndarray, Float[Array, "contacts 3"]]],
    each: Callable,
    step: Scalar | float,
) -> Slip:
    """Friction of contacts at the end of a step.

    Args:
        model: Mechanism.
        moving: Motion of the model.
        material: Parameters of the contact force.
        response: Responses of the contacts over the step.
        sides: Bodies and arms of the first side, and of the second one if it is not the ground.
        each: Transformation of a function of one contact to one of all contacts.
        step: Length of the step (s).
    """
    columns, drifted = moving.placements.columns, step * response.drift
    relief = material.friction / step * einsum("ci,cij->cj", response.normal, response.per_linear)

    def resisted(motion, bound):
        slip = jax.vmap(material.slip)(response.normal, motion[:, 3:], motion[:, :3])
        return slip, jax.vmap(material.resistance)(bound, slip)

    def at_end(change):
        gained = with_ground(tree.sum_over_columns(model.topology, columns * change[:, None]))

        def of_one(gained, arm):
            return jnp.concatenate([gained[:3], velocity_at_point(gained, arm)])

        of_a, *of_b = (each(of_one)(gained[bodies], arms) for bodies, arms in sides)
        change_of_motion = drifted + (of_a - of_b[0] if of_b else of_a)
        # The normal force, too, is that at the end of the step.
        bound = response.bound - jnp.sum(relief * change_of_motion[:, 3:], axis=1)
        return resisted(response.motion + change_of_motion, jnp.where(bound > 0.0, bound, 0.0))

    return Slip(at_end, resisted(response.motion, response.bound)[1])


def located_spheres(model: Model, points: Sequence[ContactPoint]) -> tuple[tuple[int, ...], Array, Array]:
    """Bodies, centers on their axes, and radii of spheres that are given by the names of bodies and frames."""
    located = [model.locate(point.body, point.center) for point in points]
    centers = jnp.reshape(jnp.asarray([center for _, center in located], model.dtype), (-1, 3))
    return tuple(body for body, _ in located), centers, jnp.asarray([point.radius for point in points], model.dtype)


def unit_vector(x: Vector3) -> Vector3:
    return x / jnp.sqrt(dot(x, x))


def with_ground(per_body: Float[Array, "nb n"]) -> Float[Array, "nb_and_ground n"]:
    """Values of the bodies, and zeros for the ground, whose index -1 refers to the last row."""
    return jnp.concatenate([per_body, jnp.zeros_like(per_body[:1])])


def error_with_bodies(model: Model, bodies: Sequence[int]) -> str | None:
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
