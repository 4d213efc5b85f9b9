"""Predefined costs of frames: poses, velocities, contact forces and manipulability."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, floating
from jaxdyn.control.cost_terms import CostTerm, LeastSquares, Residuals, multibody
from jaxdyn.control.problem import Controls, Dynamics, Time
from jaxdyn.dynamics.contact.points import contact_forces_on_bodies
from jaxdyn.dynamics.frame_targets import pose_error, three
from jaxdyn.dynamics.kinematics import frame_carrier, frame_placement, frame_velocity, jacobian_at, placements
from jaxdyn.dynamics.system import State
from jaxdyn.mechanism.quantity import quantity
from jaxdyn.spatial import factorizations
from jaxdyn.spatial.transform import RigidTransform


class FramePose(LeastSquares):
    """Quadratic cost 1/2 sum of (position_i (p - p*)_i^2 + rotation_i a_i^2) of the deviation of a frame from a target pose.

    p is the origin of the frame and p* that of the target pose. a is the rotation vector (rad) from the target orientation to that
    of the frame, on the axes of the target.

    Attributes:
        frame: Name of a body or frame.
        target: Target pose in world coordinates.
        position: Weights of the squared distances along the world axes, or one weight for all.
        rotation: Weights of the squared angles about the axes of the target, or one weight for all; the gradient is discontinuous
            at an angle of pi.
    """

    kind: ClassVar[str] = "frame_pose"

    frame: str = eqx.field(static=True)
    target: RigidTransform
    position: Float[Array, "3"] | Float[Array, ""] = eqx.field(
        converter=floating, default=1.0, metadata=quantity("1/m^2", minimum=0.0, broadcast=True)
    )
    rotation: Float[Array, "3"] | Float[Array, ""] = eqx.field(
        converter=floating, default=0.0, metadata=quantity("1/rad^2", minimum=0.0, broadcast=True)
    )

    def residuals(self, dynamics: Dynamics, t: Time, x: State, u: Controls) -> Residuals:
        placed = frame_placement(multibody(dynamics, self).system.model.at(t), x.q, self.frame)
        return pose_error(placed, self.target), _by_axis(self.position, self.rotation)


class FrameVelocity(LeastSquares):
    """Quadratic cost 1/2 sum of (linear_i v_i^2 + angular_i w_i^2) of the velocity of a frame, on world axes.

    v is the velocity of the origin of the frame (m/s) and w its angular velocity (rad/s).

    Attributes:
        frame: Name of a body or frame.
        linear: Weights of the squared components of v, or one weight for all.
        angular: Weights of the squared components of w, or one weight for all.
    """

    kind: ClassVar[str] = "frame_velocity"

    frame: str = eqx.field(static=True)
    linear: Float[Array, "3"] | Float[Array, ""] = eqx.field(
        converter=floating, default=1.0, metadata=quantity("s^2/m^2", minimum=0.0, broadcast=True)
    )
    angular: Float[Array, "3"] | Float[Array, ""] = eqx.field(
        converter=floating, default=0.0, metadata=quantity("s^2/rad^2", minimum=0.0, broadcast=True)
    )

    def residuals(self, dynamics: Dynamics, t: Time, x: State, u: Controls) -> Residuals:
        moving = frame_velocity(multibody(dynamics, self).system.model.at(t), x.q, x.v, self.frame)
        return jnp.concatenate([moving.linear, moving.angular]), _by_axis(self.linear, self.angular)


class ContactForce(LeastSquares):
    """Quadratic cost 1/2 sum of weights_i (f - target)_i^2 of the sum f of all contact forces on a body, on world axes.

    Attributes:
        frame: Name of the body, or of a frame on it.
        target: Target value of the force.
        weights: Weights of the squared components of the difference, or one weight for all.

    Source: theory.md (T2)-(T6).
    """

    kind: ClassVar[str] = "contact_force"

    frame: str = eqx.field(static=True)
    target: Float[Array, "3"] = eqx.field(
        converter=floating, default=(0.0, 0.0, 0.0), metadata=quantity("N", broadcast=True)
    )
    weights: Float[Array, "3"] | Float[Array, ""] = eqx.field(
        converter=floating, default=1.0, metadata=quantity("1/N^2", minimum=0.0, broadcast=True)
    )

    def residuals(self, dynamics: Dynamics, t: Time, x: State, u: Controls) -> Residuals:
        system = multibody(dynamics, self).system
        body = frame_carrier(system.model, self.frame)
        return contact_forces_on_bodies(system, x, t)[body] - self.target, three(self.weights)


class Manipulability(CostTerm):
    """Cost -w log(m) of the manipulability m = sqrt(det(J J')), where J (3, nv) is the Jacobian of the origin of a frame.

    The cost grows without bound toward singular configurations, and therefore repels plans from them.

    Attributes:
        frame: Name of a body or frame.
        weight: Weight w of the logarithm.

    Source: Yoshikawa 1985.
    """

    kind: ClassVar[str] = "manipulability"

    frame: str = eqx.field(static=True)
    weight: Float[Array, ""] = eqx.field(converter=floating, default=1.0, metadata=quantity(minimum=0.0))

    def __call__(self, dynamics: Dynamics, t: Time, x: State, u: Controls) -> Float[Array, ""]:
        model = multibody(dynamics, self).system.model.at(t)
        rows = jacobian_at(model, placements(model, x.q), self.frame)[3:]
        factor = factorizations.cholesky(dot(rows, rows.T))
        return -self.weight * jnp.sum(jnp.log(jnp.diagonal(factor)))


def _by_axis(first: Float[Array, "*axes"], second: Float[Array, "*others"]) -> Float[Array, "6"]:
    """Weights along six axes, from one or three weights for each half."""
    return jnp.concatenate([three(first), three(second)])
