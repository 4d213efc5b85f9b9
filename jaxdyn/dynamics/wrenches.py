"""External moments and forces on bodies, which change from step to step and are given beside the system; theory.md (H1)."""

from collections.abc import Mapping
from typing import ClassVar, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.dynamics import kinematics
from jaxdyn.dynamics.forces import BodyForce, Scalar, Vector3
from jaxdyn.dynamics.forces.base import on_body
from jaxdyn.dynamics.kinematics import Motion
from jaxdyn.dynamics.system import System
from jaxdyn.mechanism.messages import check_instance
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import quantity
from jaxdyn.spatial.sixvector import force_at_point

# Moment (N m) about the origin of each named body or frame, followed by the force (N), on ground axes.
Wrenches: TypeAlias = Mapping[str, Float[Array, "*steps 6"]]


class ExternalWrenches(BodyForce):
    """Moments about points of bodies, and forces at these points, on ground axes.

    Attributes:
        bodies: Index of the body of each point; -1 is the ground.
        points: The points on the axes of their bodies.
        moments: Moments about the points.
        forces: Forces at the points.
    """

    conservative: ClassVar[bool] = False

    bodies: tuple[int, ...] = eqx.field(static=True)
    points: Float[Array, "n 3"] = eqx.field(metadata=quantity("m", on="body"))
    moments: Float[Array, "n 3"] = eqx.field(metadata=quantity("N m"))
    forces: Float[Array, "n 3"] = eqx.field(metadata=quantity("N"))

    def body_forces(self, model: Model, moving: Motion, t: Scalar) -> Float[Array, "nb 6"]:
        def acting(body: int, point: Vector3, moment: Vector3, force: Vector3) -> Float[Array, "nb 6"]:
            _, arm = kinematics.point_on_body(moving.placements, body, point)
            return on_body(model, body, force_at_point(arm, force, moment))  # (H1)

        each = zip(self.bodies, self.points, self.moments, self.forces, strict=True)
        return sum((acting(*one) for one in each if one[0] >= 0), jnp.zeros((model.nb, 6), moving.v.dtype))


def with_wrenches(system: System, wrenches: Wrenches | None) -> System:
    """The system, pushed by the wrenches of one instant."""
    if not wrenches:
        return system
    origin = jnp.zeros(3, system.model.dtype)
    bodies, points = zip(*(system.model.locate(name, origin) for name in wrenches), strict=True)
    moments, forces = jnp.split(jnp.stack(list(wrenches.values())), 2, axis=1)
    pushes = ExternalWrenches(bodies, jnp.stack(points), moments, forces)
    return system.changed(forces=(*system.forces, pushes))


def checked_wrenches(system: System, wrenches: Wrenches | None, *steps: int) -> Wrenches | None:
    """Wrenches of one instant, or of each step, in the precision of the system.

    Raises:
        UnknownName: The system has no such body or frame.
        TypeError: The argument is not a dictionary of arrays.
        ValueError: An array has another shape; the message states the right one.
    """
    if wrenches is None:
        return None
    check_instance("wrenches", wrenches, Mapping, 'a dictionary such as {"hand": array}')
    for name, wrench in wrenches.items():
        system.model.locate(name, jnp.zeros(3))
        check_instance(f"the wrench of {name!r}", wrench, jax.Array | np.ndarray, "an array of moment and force")
        if wrench.shape != (*steps, 6):
            each = ", in one row for each step" if steps else ""
            raise ValueError(
                f"the wrench of {name!r} has shape {wrench.shape}; give moment and force{each}: shape {(*steps, 6)}"
            )
    return {name: jnp.asarray(wrench, system.model.dtype) for name, wrench in wrenches.items()}
