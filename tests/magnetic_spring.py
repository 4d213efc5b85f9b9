"""A force of a user's own in one file: a magnet on a body that a magnet at the origin of the ground repels."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn import BodyForce
from jaxdyn.dynamics.kinematics import point_on_body
from jaxdyn.mechanism.quantity import body_index, quantity


class MagneticSpring(BodyForce):
    """Repulsion of two magnets at the distance L: V = force reach exp(-L / reach).

    Attributes:
        body: body that carries the magnet.
        point: the magnet, on the axes of the body from O'.
        force: repulsion of magnets that touch.
        reach: distance over which the repulsion falls to 37 %.
    """

    conservative: ClassVar[bool] = True
    table_name: ClassVar[str] = "magnetic_spring"

    body: int = body_index()
    point: Float[Array, "3"] = quantity("m", on="body")
    force: Float[Array, ""] = quantity("N", minimum=0.0)
    reach: Float[Array, ""] = quantity("m", positive=True, default=0.1)

    def body_forces(self, model, moving, t):
        reference, arm = point_on_body(moving.placements, self.body, self.point)
        distance = jnp.linalg.norm(reference + arm)
        push = self.force * jnp.exp(-distance / self.reach) * (reference + arm) / distance
        return jnp.zeros((model.nb, 6)).at[self.body].set(jnp.concatenate([jnp.cross(arm, push), push]))

    def potential_energy(self, model, q, placed):
        reference, arm = point_on_body(placed, self.body, self.point)
        return self.force * self.reach * jnp.exp(-jnp.linalg.norm(reference + arm) / self.reach)
