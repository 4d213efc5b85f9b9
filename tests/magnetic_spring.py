"""A force of a user's own in one file: a magnet on a body that a magnet at the origin of the ground repels."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn import BodyForce
from jaxdyn.compute.arrays import floating
from jaxdyn.dynamics.kinematics import point_on_body
from jaxdyn.mechanism.quantity import body_index, quantity


class MagneticSpring(BodyForce):
    """V = force reach exp(-L / reach) at the distance L of the magnets.

    Attributes:
        body, point: body that carries the magnet, and the magnet on its axes from O'.
        force: repulsion of magnets that touch.
        reach: distance over which the repulsion falls to 37 %.
    """

    conservative: ClassVar[bool] = True
    table_name: ClassVar[str] = "magnetic_spring"

    body: int = eqx.field(static=True, metadata=body_index())
    point: Float[Array, "3"] = eqx.field(converter=floating, metadata=quantity("m", on="body"))
    force: Float[Array, ""] = eqx.field(converter=floating, metadata=quantity("N", minimum=0.0))
    reach: Float[Array, ""] = eqx.field(converter=floating, default=0.1, metadata=quantity("m", positive=True))

    def body_forces(self, model, moving, t):
        reference, arm = point_on_body(moving.placements, self.body, self.point)
        distance = jnp.linalg.norm(reference + arm)
        push = self.force * jnp.exp(-distance / self.reach) / distance * (reference + arm)
        return jnp.zeros((model.nb, 6)).at[self.body].set(jnp.concatenate([jnp.cross(arm, push), push]))

    def potential_energy(self, model, q, placed):
        distance = jnp.linalg.norm(sum(point_on_body(placed, self.body, self.point)))
        return self.force * self.reach * jnp.exp(-distance / self.reach)
