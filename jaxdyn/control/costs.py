"""Predefined costs and constraints of mechanisms: deviations from states and tool poses, effort, energy, bounds, and collisions.

A cost is a function cost(dynamics, t, x, u). The values of running costs are integrated over time; the values of final costs are
added once, at the end. A subclass of `CostTerm` or `ConstraintTerm` with a class variable `kind` can be selected in configs of
`jaxdyn optimize` by a table with the same `kind`. The fields of the class are the other keys of the table; `quantity` declares
their units and bounds. Arrays with the annotation "nq", "nv", "nx" or "nu" have one value for each coordinate, velocity component,
tangent coordinate of the state, or control, respectively.
"""

import abc
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxdyn.control.problem import AnyState, Controls, Dynamics, Equality, Inequality, MultibodyDynamics, Time
from jaxdyn.dynamics.contact_points import contact_forces_on_bodies
from jaxdyn.dynamics.frame_targets import pose_error, three
from jaxdyn.dynamics.kinematics import (
    forward_kinematics,
    frame_carrier,
    frame_jacobian,
    frame_placement,
    frame_velocity,
)
from jaxdyn.dynamics.system import State, drive_forces, total_energy
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.quantity import quantity
from jaxdyn.spatial import factorizations
from jaxdyn.spatial.arrays import dot, floating, floating_or_none
from jaxdyn.spatial.segments import squared_distance
from jaxdyn.spatial.transform import RigidTransform

_WEIGHTS = quantity(minimum=0.0, broadcast=True)  # one for each component, or one for all


class CostTerm(eqx.Module):
    """Base of predefined costs."""

    @abc.abstractmethod
    def __call__(self, dynamics: Dynamics, t: Time, x: AnyState, u: Controls) -> Float[Array, ""]:
        """The cost at time t, s, in state x under controls u."""


class LeastSquares(CostTerm):
    """Base of least-squares costs 1/2 sum of w_i r_i^2 with residuals r and weights w.

    Solvers of Gauss-Newton type approximate the Hessian by J' w J, where J is the Jacobian of r; this matrix is positive
    semidefinite.

    Source: theory.md (S6).
    """

    @abc.abstractmethod
    def residuals(
        self, dynamics: Dynamics, t: Time, x: AnyState, u: Controls
    ) -> tuple[Float[Array, "m"], Float[Array, "m"]]:
        """The residuals r and their weights w at time t (s), in state x, under controls u."""

    def __call__(self, dynamics: Dynamics, t: Time, x: AnyState, u: Controls) -> Float[Array, ""]:
        residuals, weights = self.residuals(dynamics, t, x, u)
        return 0.5 * jnp.sum(weights * residuals**2)


class ConstraintTerm(eqx.Module):
    """Base of predefined constraint functions, which return m values.

    `relation(term)` is the constraint on these values: `Equality` (values = 0) or `Inequality` (values <= 0).
    """

    relation: ClassVar[type[Equality] | type[Inequality]] = Equality

    @abc.abstractmethod
    def __call__(self, dynamics: Dynamics, t: Time, x: AnyState, u: Controls) -> Float[Array, "m"]:
        """The values at time t, s, in state x under controls u."""


class Deviation(LeastSquares):
    """Quadratic cost 1/2 sum of w_i d_i^2 of the deviation d = difference(target, x) from a target state, in tangent coordinates.

    Attributes:
        target: Target state of the mechanism.
        weights: Weights w of the tangent coordinates: first those of the configuration, then those of the velocities.
    """

    kind: ClassVar[str] = "deviation"

    target: AnyState
    weights: Float[Array, "nx"] | Float[Array, ""] = eqx.field(
        converter=floating, default=1.0, metadata=quantity(minimum=0.0, broadcast=True)
    )

    def residuals(
        self, dynamics: Dynamics, t: Time, x: AnyState, u: Controls
    ) -> tuple[Float[Array, "nx"], Float[Array, "nx"]]:
        off = dynamics.difference(self.target, x)
        return off, jnp.broadcast_to(self.weights, off.shape)


class AngularDeviation(CostTerm):
    """Cost sum of w_i (1 - cos d_i) of the deviation d from a target configuration; full turns of an angle do not affect it.

    Each term is 1/2 w_i times the squared length of the chord (sin d_i, 1 - cos d_i) on the unit circle; near the target it is
    1/2 w_i d_i^2.

    Attributes:
        target: Coordinates of the target configuration.
        weights: Weights w_i, one for each velocity component; they should be zero for components that are not angles.
    """

    kind: ClassVar[str] = "angular_deviation"

    target: Float[Array, "nq"] = eqx.field(converter=floating)
    weights: Float[Array, "nv"] | Float[Array, ""] = eqx.field(
        converter=floating, default=1.0, metadata=quantity(minimum=0.0, broadcast=True)
    )

    def __call__(self, dynamics: Dynamics, t: Time, x: State, u: Controls) -> Float[Array, ""]:
        off = configuration.difference(_multibody(dynamics, self).system.model, self.target, x.q)
        return jnp.sum(self.weights * (1.0 - jnp.cos(off)))


class Effort(LeastSquares):
    """Control effort, 1/2 sum of w_i u_i^2.

    Attributes:
        weights: Weights w of the controls.
    """

    kind: ClassVar[str] = "effort"

    weights: Float[Array, "nu"] | Float[Array, ""] = eqx.field(
        converter=floating, default=1.0, metadata=quantity(minimum=0.0, broadcast=True)
    )

    def residuals(
        self, dynamics: Dynamics, t: Time, x: AnyState, u: Controls
    ) -> tuple[Float[Array, "nu"], Float[Array, "nu"]]:
        return u, jnp.broadcast_to(self.weights, u.shape)


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

    def residuals(
        self, dynamics: Dynamics, t: Time, x: State, u: Controls
    ) -> tuple[Float[Array, "6"], Float[Array, "6"]]:
        placed = frame_placement(_multibody(dynamics, self).system.model.at(t), x.q, self.frame)
        return pose_error(placed, self.target), _by_axis(self.position, self.rotation)


class FrameDisplacement(LeastSquares):
    """Cost 1/2 sum of (angular_i w_i^2 + linear_i n_i^2), where (w; n) = log(T*^-1 T) is the twist from a target T* to a frame T.

    T* is the target pose, T the pose of the frame, and log the logarithm of SE(3); w and n have components along the axes of the
    target. In contrast to `FramePose`, translation and rotation are those of one screw motion from the target to the frame.

    Attributes:
        frame: Name of a body or frame.
        target: Target pose T* in world coordinates.
        linear: Weights of the squared translations n_i, or one weight for all.
        angular: Weights of the squared rotations w_i, or one weight for all; the gradient is discontinuous at an angle of pi.
    """

    kind: ClassVar[str] = "frame_displacement"

    frame: str = eqx.field(static=True)
    target: RigidTransform
    linear: Float[Array, "3"] | Float[Array, ""] = eqx.field(
        converter=floating, default=1.0, metadata=quantity("1/m^2", minimum=0.0, broadcast=True)
    )
    angular: Float[Array, "3"] | Float[Array, ""] = eqx.field(
        converter=floating, default=1.0, metadata=quantity("1/rad^2", minimum=0.0, broadcast=True)
    )

    def residuals(
        self, dynamics: Dynamics, t: Time, x: State, u: Controls
    ) -> tuple[Float[Array, "6"], Float[Array, "6"]]:
        placed = frame_placement(_multibody(dynamics, self).system.model.at(t), x.q, self.frame)
        return self.target.inverse().compose(placed).logarithm(), _by_axis(self.angular, self.linear)


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

    def residuals(
        self, dynamics: Dynamics, t: Time, x: State, u: Controls
    ) -> tuple[Float[Array, "6"], Float[Array, "6"]]:
        moving = frame_velocity(_multibody(dynamics, self).system.model.at(t), x.q, x.v, self.frame)
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

    def residuals(
        self, dynamics: Dynamics, t: Time, x: State, u: Controls
    ) -> tuple[Float[Array, "3"], Float[Array, "3"]]:
        system = _multibody(dynamics, self).system
        body = frame_carrier(system.model, self.frame)
        return contact_forces_on_bodies(system, x, t)[body] - self.target, three(self.weights)


class JointRange(LeastSquares):
    """Quadratic cost 1/2 w sum of e_i^2, where e_i is the excess of coordinate i beyond its position limits, narrowed by a margin.

    Attributes:
        weight: Weight w of the squares e_i^2 (1/rad^2 or 1/m^2).
        margin: Distance from the limits (rad or m) at which the cost begins.
    """

    kind: ClassVar[str] = "joint_range"

    weight: Float[Array, ""] = eqx.field(converter=floating, default=1.0, metadata=quantity(minimum=0.0))
    margin: Float[Array, ""] = eqx.field(converter=floating, default=0.0, metadata=quantity(minimum=0.0))

    def residuals(
        self, dynamics: Dynamics, t: Time, x: State, u: Controls
    ) -> tuple[Float[Array, "nq"], Float[Array, "nq"]]:
        limits = _multibody(dynamics, self).system.model.limits
        above, below = x.q - (limits.upper - self.margin), (limits.lower + self.margin) - x.q
        return jnp.maximum(above, 0.0) + jnp.maximum(below, 0.0), jnp.broadcast_to(self.weight, x.q.shape)


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
        rows = frame_jacobian(_multibody(dynamics, self).system.model.at(t), x.q, self.frame)[3:]
        factor = factorizations.cholesky(dot(rows, rows.T))
        return -self.weight * jnp.sum(jnp.log(jnp.diagonal(factor)))


class EnergyLevel(LeastSquares):
    """Quadratic cost 1/2 w (E - E*)^2 of the total energy E of the system, for example for a swing-up.

    Attributes:
        level: Target value E* of the energy.
        weight: Weight w of the squared difference of energies.
    """

    kind: ClassVar[str] = "energy"

    level: Float[Array, ""] = eqx.field(converter=floating, metadata=quantity("J"))
    weight: Float[Array, ""] = eqx.field(converter=floating, default=1.0, metadata=quantity("1/J^2", minimum=0.0))

    def residuals(
        self, dynamics: Dynamics, t: Time, x: State, u: Controls
    ) -> tuple[Float[Array, "1"], Float[Array, "1"]]:
        return (total_energy(_multibody(dynamics, self).system, x, t) - self.level)[None], self.weight[None]


class ElapsedTime(CostTerm):
    """Cost w t, proportional to the time t; as a final cost it penalizes the duration of a problem with free duration.

    Attributes:
        weight: Weight w of the elapsed time.
    """

    kind: ClassVar[str] = "time"

    weight: Float[Array, ""] = eqx.field(converter=floating, default=1.0, metadata=quantity("1/s"))

    def __call__(self, dynamics: Dynamics, t: Time, x: AnyState, u: Controls) -> Float[Array, ""]:
        return self.weight * t


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
        centers: Centers of the spheres relative to the joint points of their bodies, on body axes, m.
        radii: Radii of the spheres, m.
        obstacle_centers: Centers of the obstacles in world coordinates, m.
        obstacle_radii: Radii of the obstacles, m.
        margin: Minimum distance between spheres and obstacles.
        ends: Other ends of the segments of capsules, like `centers`; the end of a sphere equals its center. None if there are only
            spheres on bodies.
        obstacle_ends: Other ends of the segments of obstacles that are capsules, like `obstacle_centers`. None if all obstacles are
            spheres.

    Raises:
        ValueError: The numbers of bodies, centers, ends or radii differ.
    """

    kind: ClassVar[str] = "spheres"
    relation = Inequality

    bodies: tuple[str, ...] = eqx.field(static=True)
    centers: Float[Array, "spheres 3"] = eqx.field(converter=floating)
    radii: Float[Array, "spheres"] = eqx.field(converter=floating)
    obstacle_centers: Float[Array, "obstacles 3"] = eqx.field(converter=floating)
    obstacle_radii: Float[Array, "obstacles"] = eqx.field(converter=floating)
    margin: Float[Array, ""] = eqx.field(converter=floating, default=0.0, metadata=quantity("m", minimum=0.0))
    ends: Float[Array, "spheres 3"] | None = eqx.field(converter=floating_or_none, default=None)
    obstacle_ends: Float[Array, "obstacles 3"] | None = eqx.field(converter=floating_or_none, default=None)

    def __check_init__(self):
        if self.centers.shape[0] != len(self.bodies) or self.radii.shape[0] != len(self.bodies):
            raise ValueError(
                f"spheres: {len(self.bodies)} bodies, {self.centers.shape[0]} centers and {self.radii.shape[0]} radii; "
                "give one of each per sphere"
            )
        for name, ends, centers in (
            ("ends", self.ends, self.centers),
            ("obstacle_ends", self.obstacle_ends, self.obstacle_centers),
        ):
            if ends is not None and ends.shape != centers.shape:
                raise ValueError(
                    f"spheres: {name} has shape {ends.shape}; give shape {centers.shape}, one end for each center"
                )

    def __call__(self, dynamics: Dynamics, t: Time, x: State, u: Controls) -> Float[Array, "pairs"]:
        model = _multibody(dynamics, self).system.model.at(t)
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


class StateBounds(ConstraintTerm):
    """Bounds lower <= d <= upper of d = difference(origin, x) in tangent coordinates, such as joint angles and velocities.

    `Inequality(StateBounds(origin, lower, upper, nx=nx))` is the constraint; infinite bounds are left out.

    Attributes:
        origin: State from which d is measured.
        lower: Lower bounds of the difference d (nx,); the constraint is differentiable with respect to finite bounds.
        upper: Upper bounds of the difference d (nx,); the constraint is differentiable with respect to finite bounds.
        below: Indices of finite lower bounds.
        above: Indices of finite upper bounds.
    """

    relation = Inequality

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


class TargetState(ConstraintTerm):
    """Constraint difference(target, x) = 0: the configuration, the velocities or both equal those of a target state.

    Attributes:
        target: State to reach.
        of_configuration: If true, the configuration is constrained.
        of_velocities: If true, the velocities are constrained.
    """

    kind: ClassVar[str] = "state"

    target: State
    of_configuration: bool = eqx.field(static=True, default=True)
    of_velocities: bool = eqx.field(static=True, default=True)

    def __call__(self, dynamics: Dynamics, t: Time, x: State, u: Controls) -> Float[Array, "m"]:
        first = 0 if self.of_configuration else dynamics.nx // 2
        last = dynamics.nx if self.of_velocities else dynamics.nx // 2
        return dynamics.difference(self.target, x)[first:last]


class JointBounds(ConstraintTerm):
    """Bounds lower <= (q, v) <= upper of coordinates and velocities; infinite bounds are left out.

    Attributes:
        lower: Finite lower bounds.
        upper: Finite upper bounds.
        below: Indices in (q, v) of the finite lower bounds.
        above: Indices in (q, v) of the finite upper bounds.
    """

    kind: ClassVar[str] = "state_bounds"
    relation = Inequality

    lower: Float[Array, "below"]
    upper: Float[Array, "above"]
    below: tuple[int, ...] = eqx.field(static=True)
    above: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, dynamics: Dynamics, t: Time, x: State, u: Controls) -> Float[Array, "m"]:
        values, below, above = jnp.concatenate([x.q, x.v]), np.array(self.below, int), np.array(self.above, int)
        return jnp.concatenate([self.lower - values[below], values[above] - self.upper])


class Workless(ConstraintTerm):
    """Constraint that the controls do no work: their power (W) is zero at all times.

    Motions of minimum time under this constraint are brachistochrones: geodesics of the metric M / (E - V), with mass matrix M,
    potential energy V and constant total energy E.
    """

    kind: ClassVar[str] = "workless"

    def __call__(self, dynamics: Dynamics, t: Time, x: State, u: Controls) -> Float[Array, "1"]:
        return dot(drive_forces(_multibody(dynamics, self).system, u), x.v)[None]


class Penetration(LeastSquares):
    """Quadratic cost 1/2 w sum of d_i^2 of the depths d_i by which spheres and capsules penetrate obstacles, enlarged by a margin.

    Attributes:
        spheres: Spheres and capsules, obstacles and margin.
        weight: Weight w of the squared depths d_i^2.
    """

    kind: ClassVar[str] = "penetration"

    spheres: Spheres
    weight: Float[Array, ""] = eqx.field(converter=floating, default=1.0, metadata=quantity("1/m^2", minimum=0.0))

    def residuals(
        self, dynamics: Dynamics, t: Time, x: State, u: Controls
    ) -> tuple[Float[Array, "pairs"], Float[Array, "pairs"]]:
        depths = jnp.maximum(self.spheres(dynamics, t, x, u), 0.0)
        return depths, jnp.broadcast_to(self.weight, depths.shape)


def _by_axis(first: Float[Array, "*axes"], second: Float[Array, "*others"]) -> Float[Array, "6"]:
    """Weights along six axes, from one or three weights for each half."""
    return jnp.concatenate([three(first), three(second)])


def _multibody(dynamics: Dynamics, term: eqx.Module) -> MultibodyDynamics:
    if not isinstance(dynamics, MultibodyDynamics):
        raise TypeError(f"{type(term).__name__} needs MultibodyDynamics; it was called with {type(dynamics).__name__}")
    return dynamics
