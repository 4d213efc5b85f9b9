"""Rigid connection."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.joints.base import WithRates
from jaxdyn.spatial.transform import RigidTransform


class Fixed(WithRates):
    """Rigid connection. The builder merges the child and its mass into the parent, so no model contains a fixed joint."""

    kind: ClassVar[str] = "fixed"
    nq: ClassVar[int] = 0
    nv: ClassVar[int] = 0
    turns: ClassVar[tuple[bool, ...]] = ()

    def transform(self, q: Float[Array, "0"]) -> RigidTransform:
        return RigidTransform.identity(q.dtype)

    def motion_subspace(self, q: Float[Array, "0"]) -> Float[Array, "6 0"]:
        return jnp.zeros((6, 0), q.dtype)

    def reversed(self) -> Joint:
        return self
