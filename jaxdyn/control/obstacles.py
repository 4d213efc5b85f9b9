"""Collision avoidance: spheres and capsules on bodies, and obstacles in the world."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import floating, floating_or_none
from jaxdyn.control.cost_terms import ConstraintTerm, LeastSquares, Residuals, multibody
from jaxdyn.control.problem import Controls, Dynamics, Inequality, Time
from jaxdyn.display import plural
from jaxdyn.dynamics.kinematics import forward_kinematics
from jaxdyn.dynamics.system import State
from jaxdyn.mechanism.quantity import invalid, quantity
from jaxdyn.spatial.segments import squared_distance
from jaxdyn.spatial.transform import RigidTransform


class Spheres(ConstraintTerm):
    """Collision avoidance: spheres and capsules on bodies do not touch those that are fixed in the world (obstacles).

    A capsule is a sphere that is swept along a line segment from its center to its end. The value for a pair is
    (R^2 - D^2) / (2 R), where D is the distance between the two centers or segments, and R the sum of the radii and the margin.
    This value is negative if D > R, and approximates the penetration depth near contact. For spheres, it is smooth everywhere. For
    capsules, its first derivatives are continuous except for parallel segments that overlap, see `segments.squared_distance`. Its
    gradient is zero where centers coincide or segments intersect; an initial guess should avoid such states.
    `Inequality(spheres)` is the constraint that no pair touches, and `Penetration(spheres)` is a cost.

    Attributes:
        bodies: Name of the body of each sphere.
        centers: Centers of the spheres relative to the joint points of their bodies, on body axes.
        radii: Radii of the spheres.
        obstacle_centers: Centers of the obstacles in world coordinates.
        obstacle_radii: Radii of the obstacles.
        margin: Minimum distance between spheres and obstacles.
        ends: Other ends of the segments of capsules, like `centers`; the end of a sphere equals its center. None if there are only
            spheres on bodies.
        obstacle_ends: Other ends of the segments of obstacles that are capsules, like `obstacle_centers`. None if all obstacles are
            spheres.

    Raises:
        ValueError: The number of centers, ends or radii is not that of the bodies.
    """

    kind: ClassVar[str] = "spheres"
    relation = Inequality

    bodies: tuple[str, ...] = eqx.field(static=True)
    centers: Float[Array, "spheres 3"] = eqx.field(converter=floating, metadata=quantity("m"))
    radii: Float[Array, "spheres"] = eqx.field(converter=floating, metadata=quantity("m", minimum=0.0))
    obstacle_centers: Float[Array, "obstacles 3"] = eqx.field(converter=floating, metadata=quantity("m"))
    obstacle_radii: Float[Array, "obstacles"] = eqx.field(converter=floating, metadata=quantity("m", minimum=0.0))
    margin: Float[Array, ""] = eqx.field(converter=floating, default=0.0, metadata=quantity("m", minimum=0.0))
    ends: Float[Array, "spheres 3"] | None = eqx.field(converter=floating_or_none, default=None, metadata=quantity("m"))
    obstacle_ends: Float[Array, "obstacles 3"] | None = eqx.field(
        converter=floating_or_none, default=None, metadata=quantity("m")
    )

    def __check_init__(self):
        wrong = invalid(self, {"spheres": len(self.bodies), "obstacles": len(self.obstacle_centers)})
        if wrong is not None:
            obstacles = plural(len(self.obstacle_centers), "obstacle", "obstacles")
            counts = f"{plural(len(self.bodies), 'body', 'bodies')} and {obstacles}"
            raise ValueError(f"Spheres with {counts}: {wrong}")

    def __call__(self, dynamics: Dynamics, t: Time, x: State, u: Controls) -> Float[Array, "pairs"]:
        model = multibody(dynamics, self).system.model.at(t)
        placed = forward_kinematics(model, x.q)
        carriers = np.array([model.topology.body_index(name) for name in self.bodies])
        poses = jax.tree.map(lambda leaf: leaf[carriers], placed)
        place = jax.vmap(RigidTransform.apply)
        there = place(poses, self.centers)
        reach = self.radii[:, None] + self.obstacle_radii[None] + self.margin
        if self.ends is None and self.obstacle_ends is None:
            apart = there[:, None] - self.obstacle_centers[None]
            squares = jnp.sum(apart**2, axis=2)
        else:
            ends = there if self.ends is None else place(poses, self.ends)
            obstacle_ends = self.obstacle_centers if self.obstacle_ends is None else self.obstacle_ends
            to_all = jax.vmap(squared_distance, (None, None, 0, 0))
            squares = jax.vmap(to_all, (0, 0, None, None))(there, ends, self.obstacle_centers, obstacle_ends)
        return ((reach**2 - squares) / (2.0 * reach)).ravel()


class Penetration(LeastSquares):
    """Quadratic cost 1/2 w sum of d_i^2 of the depths d_i by which spheres and capsules penetrate obstacles, enlarged by a margin.

    Attributes:
        spheres: Spheres and capsules, obstacles and margin.
        weight: Weight w of the squared depths d_i^2.
    """

    kind: ClassVar[str] = "penetration"

    spheres: Spheres
    weight: Float[Array, ""] = eqx.field(converter=floating, default=1.0, metadata=quantity("1/m^2", minimum=0.0))

    def residuals(self, dynamics: Dynamics, t: Time, x: State, u: Controls) -> Residuals:
        depths = jnp.maximum(self.spheres(dynamics, t, x, u), 0.0)
        return depths, jnp.broadcast_to(self.weight, depths.shape)
