"""Costs of mechanisms, ready to use: of states and tool poses that are off, effort, energy, and bodies that come too close.

A cost is called as cost(dynamics, t, x, u), per second along the path and as it is at the end; its numbers are differentiable.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxdyn.control.problem import AnyState, Controls, Dynamics, MultibodyDynamics, Time
from jaxdyn.dynamics.kinematics import forward_kinematics, frame_placement
from jaxdyn.dynamics.system import State, total_energy
from jaxdyn.mechanism import configuration
from jaxdyn.spatial import quaternion
from jaxdyn.spatial.arrays import dot, floating
from jaxdyn.spatial.transform import RigidTransform


class Deviation(eqx.Module):
    """1/2 sum of w_i d_i^2, with d the difference between the state and another one, in tangent coordinates.

    Attributes:
        target: the state to be in.
        weights: w, one number for each tangent coordinate or one for all.
    """

    target: AnyState
    weights: Float[Array, "nx"] | Float[Array, ""] = eqx.field(converter=floating)

    def __call__(self, dynamics: Dynamics, t: Time, x: AnyState, u: Controls) -> Float[Array, ""]:
        off = dynamics.difference(self.target, x)
        return 0.5 * jnp.sum(self.weights * off**2)


class AngularDeviation(eqx.Module):
    """Sum of w_i (1 - cos d_i), with d the difference between the configuration and another one: whole turns do not count.

    It is 1/2 w_i times the square of the chord (sin d_i, 1 - cos d_i) on the unit circle, near the target 1/2 w_i d_i^2.

    Attributes:
        target: the coordinates to have.
        weights: w, one number for each velocity component or one for all; zero for those that are no angles.
    """

    target: Float[Array, "nq"] = eqx.field(converter=floating)
    weights: Float[Array, "nv"] | Float[Array, ""] = eqx.field(converter=floating)

    def __call__(self, dynamics: Dynamics, t: Time, x: State, u: Controls) -> Float[Array, ""]:
        off = configuration.difference(_mechanics(dynamics, self).system.model, self.target, x.q)
        return jnp.sum(self.weights * (1.0 - jnp.cos(off)))


class ElapsedTime(eqx.Module):
    """w t: at the end the duration, where that is free.

    Attributes:
        weight: w, 1/s.
    """

    weight: Float[Array, ""] = eqx.field(converter=floating, default=1.0)

    def __call__(self, dynamics: Dynamics, t: Time, x: AnyState, u: Controls) -> Float[Array, ""]:
        return self.weight * t


class Effort(eqx.Module):
    """1/2 sum of w_i u_i^2.

    Attributes:
        weights: w, one number for each control or one for all.
    """

    weights: Float[Array, "nu"] | Float[Array, ""] = eqx.field(converter=floating)

    def __call__(self, dynamics: Dynamics, t: Time, x: AnyState, u: Controls) -> Float[Array, ""]:
        return 0.5 * jnp.sum(self.weights * u**2)


class FramePose(eqx.Module):
    """1/2 (position |p - p*|^2 + rotation |a|^2), with p the origin of a frame and a the angle to its wanted rotation.

    Attributes:
        frame: name of a body or frame.
        target: where it should be, in the ground.
        position: weight, 1/m^2.
        rotation: weight, 1/rad^2; its slope jumps where the frame is turned by pi.
    """

    frame: str = eqx.field(static=True)
    target: RigidTransform
    position: Float[Array, ""] = eqx.field(converter=floating, default=1.0)
    rotation: Float[Array, ""] = eqx.field(converter=floating, default=0.0)

    def __call__(self, dynamics: Dynamics, t: Time, x: State, u: Controls) -> Float[Array, ""]:
        placed = frame_placement(_mechanics(dynamics, self).system.model.at(t), x.q, self.frame)
        off = placed.translation - self.target.translation
        angle = quaternion.logarithm(quaternion.multiply(quaternion.inverse(self.target.quaternion), placed.quaternion))
        return 0.5 * (self.position * dot(off, off) + self.rotation * dot(angle, angle))


class EnergyLevel(eqx.Module):
    """1/2 w (E - E*)^2, with E the total energy of the system: swings it up without saying how.

    Attributes:
        level: E*, J.
        weight: w, 1/J^2.
    """

    level: Float[Array, ""] = eqx.field(converter=floating)
    weight: Float[Array, ""] = eqx.field(converter=floating, default=1.0)

    def __call__(self, dynamics: Dynamics, t: Time, x: State, u: Controls) -> Float[Array, ""]:
        return 0.5 * self.weight * (total_energy(_mechanics(dynamics, self).system, x, t) - self.level) ** 2


class Spheres(eqx.Module):
    """Spheres on bodies that should keep away from spheres in the ground.

    Called like a cost, it tells for each pair (R^2 - D^2) / (2 R), negative where they are clear, with D the distance of the
    centers and R the sum of the radii and the margin: near contact, how deep they are in each other. It is smooth everywhere.
    As a constraint, `Inequality(spheres)`; as a cost, `Penetration(spheres)`.

    Attributes:
        bodies: name of the body of each sphere.
        centers: on the axes of their bodies from O', m.
        radii: m.
        obstacle_centers, obstacle_radii: those in the ground, m.
        margin: distance to keep, m.
    """

    bodies: tuple[str, ...] = eqx.field(static=True)
    centers: Float[Array, "spheres 3"] = eqx.field(converter=floating)
    radii: Float[Array, "spheres"] = eqx.field(converter=floating)
    obstacle_centers: Float[Array, "obstacles 3"] = eqx.field(converter=floating)
    obstacle_radii: Float[Array, "obstacles"] = eqx.field(converter=floating)
    margin: Float[Array, ""] = eqx.field(converter=floating, default=0.0)

    def __check_init__(self):
        if self.centers.shape[0] != len(self.bodies) or self.radii.shape[0] != len(self.bodies):
            raise ValueError(
                f"spheres: {len(self.bodies)} bodies, {self.centers.shape[0]} centers and {self.radii.shape[0]} radii; "
                "give one of each per sphere"
            )

    def __call__(self, dynamics: Dynamics, t: Time, x: State, u: Controls) -> Float[Array, "pairs"]:
        model = _mechanics(dynamics, self).system.model.at(t)
        placed = forward_kinematics(model, x.q)
        carriers = np.array([model.topology.body_index(name) for name in self.bodies])
        there = jax.vmap(RigidTransform.apply)(jax.tree.map(lambda leaf: leaf[carriers], placed), self.centers)
        apart = there[:, None] - self.obstacle_centers[None]
        reach = self.radii[:, None] + self.obstacle_radii[None] + self.margin
        return ((reach**2 - jnp.sum(apart**2, axis=2)) / (2.0 * reach)).ravel()


class StateBounds(eqx.Module):
    """lower <= d <= upper, with d the difference from a state in tangent coordinates: the angles of joints, and velocities.

    `Inequality(StateBounds(origin, lower, upper))`; infinite bounds are left out.

    Attributes:
        origin: the state from which bounds are measured.
        lower, upper: one number for each tangent coordinate or one for all; their finite entries are differentiable.
        below, above: which are finite.
    """

    origin: AnyState
    lower: Float[Array, "nx"]
    upper: Float[Array, "nx"]
    below: tuple[int, ...] = eqx.field(static=True)
    above: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, origin: AnyState, lower: ArrayLike = -np.inf, upper: ArrayLike = np.inf, *, nx: int):
        self.origin = jax.tree.map(floating, origin)
        dtype = jax.tree.leaves(self.origin)[0].dtype
        self.lower, self.upper = (jnp.broadcast_to(jnp.asarray(bound, dtype), (nx,)) for bound in (lower, upper))
        self.below, self.above = (
            tuple(np.flatnonzero(np.isfinite(np.broadcast_to(bound, (nx,)))).tolist()) for bound in (lower, upper)
        )

    def __call__(self, dynamics: Dynamics, t: Time, x: AnyState, u: Controls) -> Float[Array, "bounds"]:
        off, below, above = dynamics.difference(self.origin, x), np.array(self.below, int), np.array(self.above, int)
        return jnp.concatenate([(self.lower - off)[below], (off - self.upper)[above]])


class Penetration(eqx.Module):
    """1/2 w sum of the squares of the depths to which spheres are in each other, margin included.

    Attributes:
        spheres: which.
        weight: w, 1/m^2.
    """

    spheres: Spheres
    weight: Float[Array, ""] = eqx.field(converter=floating, default=1.0)

    def __call__(self, dynamics: Dynamics, t: Time, x: State, u: Controls) -> Float[Array, ""]:
        return 0.5 * self.weight * jnp.sum(jnp.maximum(self.spheres(dynamics, t, x, u), 0.0) ** 2)


def _mechanics(dynamics: Dynamics, cost: eqx.Module) -> MultibodyDynamics:
    if not isinstance(dynamics, MultibodyDynamics):
        raise TypeError(f"{type(cost).__name__} needs MultibodyDynamics; it was called with {type(dynamics).__name__}")
    return dynamics
