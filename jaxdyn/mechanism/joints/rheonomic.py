"""Joints whose motion is prescribed as a function of time."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, floating
from jaxdyn.mechanism.joint import Joint, Scalar
from jaxdyn.mechanism.joints.base import WithRates
from jaxdyn.mechanism.joints.fixed import Fixed
from jaxdyn.mechanism.messages import check_function, check_instance
from jaxdyn.mechanism.prescribed import PrescribedMotion
from jaxdyn.mechanism.quantity import quantity
from jaxdyn.spatial.transform import RigidTransform


class Rheonomic(WithRates):
    """A joint whose motion is prescribed as a function of time: it adds no degree of freedom and no coordinate.

    The child moves as `joint` does at the coordinates motion(t); `jaxdyn.driving_forces` computes the force that the prescribed
    motion requires. `Model.at` sets the time; the functions of a `System` set it automatically.

        Rheonomic(Revolute((0, 0, 1)), ConstantRate(3.0))      # a crank at 3 rad/s

    Attributes:
        joint: Driven joint.
        motion: Coordinates of the driven joint (rad or m) as a smooth function of time.
        time: Current time, set by `at`.

    Source: theory.md (E15), (I4).
    """

    joint: Joint
    motion: PrescribedMotion
    time: Float[Array, "*batch"] = eqx.field(converter=floating, default=0.0, metadata=quantity("s"))

    nq: ClassVar[int] = 0
    nv: ClassVar[int] = 0
    turns: ClassVar[tuple[bool, ...]] = ()

    def __check_init__(self):
        check_instance("the joint of Rheonomic", self.joint, Joint, "a Joint, Revolute(axis) for instance")
        check_function("the motion of Rheonomic", self.motion, "t")

    def at(self, t: Scalar) -> "Rheonomic":
        return eqx.tree_at(lambda joint: joint.time, self, jnp.full_like(self.time, t))

    def later(self, duration: Scalar) -> "Rheonomic":
        return eqx.tree_at(lambda joint: joint.time, self, self.time + duration)

    def released(self) -> Joint:
        return self.joint

    def reversed(self) -> Joint | None:
        same = type(self.joint).reversed_coordinates is Joint.reversed_coordinates  # then the motion is the same, too
        back = self.joint.reversed() if same else None
        return None if back is None else Rheonomic(back, self.motion, self.time)

    def prescribed(self) -> tuple[Array, Array, Array]:
        def position_and_velocity(time):
            position, rate = jax.jvp(self.motion, (time,), (jnp.ones_like(time),))
            return position, self.joint.velocity_of_rate(position, rate)

        (position, velocity), (_, acceleration) = jax.jvp(
            position_and_velocity, (self.time,), (jnp.ones_like(self.time),)
        )
        return position, velocity, acceleration

    def transform(self, q: Float[Array, "0"]) -> RigidTransform:
        return self.joint.transform(self.motion(self.time))

    def motion_subspace(self, q: Float[Array, "0"]) -> Float[Array, "6 0"]:
        return jnp.zeros((6, 0), q.dtype)

    def driven_columns(self, q: Float[Array, "0"]) -> Float[Array, "6 _"]:
        return self.joint.motion_subspace(self.motion(self.time))

    def drift(self, q: Float[Array, "0"]) -> Float[Array, "6"]:
        position, velocity, _ = self.prescribed()
        return dot(self.joint.motion_subspace(position), velocity)

    def drift_rate(self, q: Float[Array, "0"], v: Float[Array, "0"]) -> Float[Array, "6"]:
        position, velocity, acceleration = self.prescribed()
        return dot(self.joint.motion_subspace(position), acceleration) + self.joint.subspace_rate(position, velocity)

    def validate(self) -> str | None:
        kind = type(self.joint).__name__.lower()
        if isinstance(self.joint, Fixed | Rheonomic):
            return f"it drives a {kind} joint; give a joint that can move"
        shape = jax.eval_shape(self.motion, self.time).shape
        if shape != (self.joint.nq,):
            return f"its motion has values of shape {shape}; a {kind} joint needs shape ({self.joint.nq},)"
        return self.joint.validate()
