"""Forces other than gravity, theory.md section (h).

There are two families of forces. A `BodyForce` acts on bodies: it returns a 6-vector (moment about the reference point P; force) on
ground axes for each body, which `inverse.project` converts to generalized forces. A `JointForce` returns generalized forces
directly. A force may have a potential energy, may be non-conservative, or both.

Points are given on body axes, relative to the body origin O'. The body index -1 denotes the ground.
"""

import abc
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, floating, floating_or_none, zero_safe_norm
from jaxdyn.dynamics import kinematics, metric
from jaxdyn.dynamics.added_inertia import AddedInertia
from jaxdyn.dynamics.kinematics import Motion, Placements
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.components import error_with_part
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import DAMPING, EFFORT, POSITION, STIFFNESS, body_index, plain, quantity
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.spatial.rotation import cross
from jaxdyn.spatial.sixvector import force_at_point, velocity_at_point

Vector3 = Float[Array, "3"]
Scalar = Float[Array, ""]


class Force(eqx.Module):
    """Force of a `System`; concrete forces derive from `BodyForce` or `JointForce`.

    Class attributes:
        conservative: True if the force is minus the gradient of its potential energy, False if it has a non-conservative part.
        linear: Names of fields such that the force is a linear function of all of them together.
        table_name: Name of the table of a mechanism file that describes this force; None if files cannot contain it. In a file, a
            force in joints is one table, whose fields are tables from names of joints to values, and forces on bodies are a list of
            tables. `quantity` declares the units, bounds and defaults of the fields.
    """

    conservative: eqx.AbstractClassVar[bool]
    linear: ClassVar[tuple[str, ...]] = ()
    table_name: ClassVar[str | None] = None

    def validate(self, model: Model) -> str | None:
        """Error message with a remedy if this force does not fit a model, else None. `System` calls this method once."""
        return error_with_part(self, model)

    def potential_energy(self, model: Model, q: Float[Array, "nq"], placed: Placements) -> Scalar:
        """Potential energy, J; zero for forces without potential energy."""
        return jnp.zeros((), q.dtype)


class Slip(NamedTuple):
    """Sliding pairs with dry friction -d(u) u at the slip velocity u, of which an implicit step takes d at its start.

    Attributes:
        at_end: Function of the generalized acceleration over the step that returns the slip velocities at the end of the step,
            m/s or rad/s, which are affine, and the coefficient d of each pair, N s/m or N m s/rad.
        resistance: The coefficients at the start of the step.

    Source: theory.md (I15).
    """

    at_end: Callable[[Float[Array, "nv"]], tuple[Float[Array, "pairs n"], Float[Array, "pairs"]]]
    resistance: Float[Array, "pairs"]


class OverStep(NamedTuple):
    """Linear law of a force over an implicit step, for the acceleration a over the step: Q - A a.

    Attributes:
        force: Force for a = 0, N m and N: of a `BodyForce` a 6-vector (moment about the reference point P; force) on every body,
            ground axes, of a `JointForce` the generalized force.
        added: Positive semidefinite matrices A, or the diagonal of A of a `JointForce`; None if the force does not depend on a.
        slip: Dry friction within the law, which `acceleration_over_step` bounds at the end of the step; None without dry friction.

    Source: theory.md (I12), (I14), (T8).
    """

    force: Float[Array, "nb 6"] | Float[Array, "nv"]
    added: AddedInertia | Float[Array, "nv"] | None = None
    slip: Slip | None = None


def spring_over_step(squared_frequency: Array, step: Scalar | float) -> tuple[Array, Array]:
    """Times over which an implicit step advances the displacement of a spring of stiffness k: Q' = Q - k (delay v + square a).

    Up to the frequency 2/step, at which an explicit step becomes unstable, the delay is zero and the square is step^2/4: no energy
    is lost. For stiffer springs, both approach those of the implicit Euler method, step and step^2, which dissipates. The step is
    stable at any frequency.

    Args:
        squared_frequency: Stiffness over the inertia that the spring moves, 1/s^2.
        step: Length of the step (s).

    Returns:
        The delay (s) and the square (s^2).

    Source: theory.md (I14).
    """
    excess = squared_frequency * step**2 - 4.0
    stiff = excess > 0.0
    share = jnp.where(stiff, excess / jnp.where(stiff, excess + 4.0, 1.0), 0.0) ** 2
    return share * step, (0.5 * (1.0 + share) * step) ** 2


class BodyForce(Force):
    """Force on bodies."""

    @abc.abstractmethod
    def body_forces(self, model: Model, moving: Motion, t: Scalar) -> Float[Array, "nb 6"]:
        """6-vector (moment about the reference point P; force) on every body, ground axes, N m and N."""

    def over_step(self, model: Model, moving: Motion, t: Scalar, step: Scalar | float) -> OverStep:
        """Linear law with which implicit integrators evaluate this force at the end of a step of length `step` (s); by default the
        force at the start."""
        return OverStep(self.body_forces(model, moving, t))


class Resistance(NamedTuple):
    """Linear law for the change of each component of a force in joints with a step s of the coordinates and a change w of the
    velocities:

        Q(q (+) s, v + w) = Q(q, v) - stiffness s - damping w

    An implicit integrator evaluates the force at the end of its step by this linear law. The coefficients need not be exact
    derivatives of the force: a step has the same order of accuracy with any coefficients, and it does not overshoot with
    nonnegative coefficients.

    Attributes:
        damping: Nonnegative damping coefficients, N m s/rad or N s/m.
        stiffness: Nonnegative stiffness coefficients, N m/rad or N/m.

    Source: theory.md (I12).
    """

    damping: Float[Array, "nv"]
    stiffness: Float[Array, "nv"]


class JointForce(Force):
    """Force along the generalized velocity components."""

    @abc.abstractmethod
    def generalized_forces(
        self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"], t: Scalar
    ) -> Float[Array, "nv"]:
        """Generalized force, N m or N by the kinds of joints."""

    def resistance(self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"], t: Scalar) -> Resistance | None:
        """Linear law of this force for all lengths of a step; None if implicit integrators evaluate it at the start."""
        return None

    def over_step(self, model: Model, moving: Motion, t: Scalar, step: Scalar | float) -> OverStep:
        """Linear law with which implicit integrators evaluate this force at the end of a step of length `step` (s); by default
        that of `resistance`."""
        now = self.generalized_forces(model, moving.q, moving.v, t)
        law = self.resistance(model, moving.q, moving.v, t)
        if law is None:
            return OverStep(now)
        return OverStep(now - step * law.stiffness * moving.v, step * (law.damping + step * law.stiffness))  # (I12)


class _Ends(NamedTuple):
    """The end points A and B of a pair: arms from the reference points of their trees, d = x_A - x_B (m) and its rate (m/s)."""

    arms: tuple[Vector3, Vector3]
    d: Vector3
    d_rate: Vector3


class _PairLaw(NamedTuple):
    """Coefficients of the force of a pair along and across its line: stiffness (N/m), and damping along the line (N s/m)."""

    along: Scalar
    across: Scalar
    damping: Scalar


class _PointPair(BodyForce):
    """Equal and opposite forces on two points, along the line between them."""

    body_a: eqx.AbstractVar[int]
    point_a: eqx.AbstractVar[Vector3]
    body_b: eqx.AbstractVar[int]
    point_b: eqx.AbstractVar[Vector3]

    @abc.abstractmethod
    def force_on_a(self, d: Vector3, d_rate: Vector3) -> Vector3:
        """Force on A, ground axes, N; d = x_A - x_B (m) and its rate (m/s)."""

    @abc.abstractmethod
    def law(self, inverse_length: Scalar) -> _PairLaw:
        """Nonnegative coefficients of the linear law at a given inverse of the length."""

    def body_forces(self, model: Model, moving: Motion, t: Scalar) -> Float[Array, "nb 6"]:
        ends = self._ends(moving)
        return self._on_bodies(model, ends, self.force_on_a(ends.d, ends.d_rate))

    def over_step(self, model: Model, moving: Motion, t: Scalar, step: Scalar | float) -> OverStep:
        # Motion of A relative to B per velocity component, nonzero for those that move only one of both bodies (H5).
        moves_a, moves_b = _moves(model, self.body_a), _moves(model, self.body_b)
        columns = np.flatnonzero(moves_a ^ moves_b)
        if not columns.size:
            return OverStep(self.body_forces(model, moving, t))
        ends, of_a = self._ends(moving), moves_a[columns, None]
        w, nu = moving.placements.columns[columns, :3], moving.placements.columns[columns, 3:]
        relative = nu + cross(w, jnp.where(of_a, ends.arms[0][None], ends.arms[1][None]))  # (E4)
        relative = jnp.where(of_a, relative, -relative)

        _, inverse = zero_safe_norm(ends.d)
        n, law = inverse * ends.d, self.law(inverse)
        line, unit = jnp.outer(n, n), jnp.asarray(np.eye(3), n.dtype)
        stiffness = law.across * unit + (law.along - law.across) * line
        inertia = jnp.diagonal(metric.lower_mass_matrix(model, moving.placements))[columns]
        squared_frequency = jnp.sum(jnp.sum(dot(relative, stiffness) * relative, axis=1) / inertia)
        delay, square = spring_over_step(squared_frequency, step)

        added = step * law.damping * line + square * stiffness
        drift = _point_drift(moving, self.body_a, ends.arms[0]) - _point_drift(moving, self.body_b, ends.arms[1])
        bent = (step * law.damping + square * (law.along - law.across)) * inverse  # force of a line that turns
        turning = dot(ends.d_rate, ends.d_rate) - dot(n, ends.d_rate) ** 2
        force = self.force_on_a(ends.d, ends.d_rate) - delay * dot(stiffness, ends.d_rate)
        force = force - dot(added, drift) - bent * turning * n  # (I14)
        matrix = dot(dot(relative, added), relative.T)
        whole = jnp.zeros((model.nv, model.nv), matrix.dtype).at[np.ix_(columns, columns)].set(matrix)
        return OverStep(self._on_bodies(model, ends, force), AddedInertia(None, whole))

    def _ends(self, moving: Motion) -> _Ends:
        reference_a, arm_a = kinematics.point_on_body(moving.placements, self.body_a, self.point_a)
        reference_b, arm_b = kinematics.point_on_body(moving.placements, self.body_b, self.point_b)
        rate = _point_velocity(moving, self.body_a, arm_a) - _point_velocity(moving, self.body_b, arm_b)
        return _Ends((arm_a, arm_b), (reference_a - reference_b) + (arm_a - arm_b), rate)

    def _on_bodies(self, model: Model, ends: _Ends, force: Vector3) -> Float[Array, "nb 6"]:
        zero = jnp.zeros_like(force)
        return _on_body(model, self.body_a, force_at_point(ends.arms[0], force, zero)) + _on_body(
            model, self.body_b, force_at_point(ends.arms[1], -force, zero)
        )


def _point_velocity(moving: Motion, body: int, from_reference: Vector3) -> Vector3:
    if body == GROUND:
        return jnp.zeros_like(from_reference)
    return velocity_at_point(moving.velocity[body], from_reference)


def _point_drift(moving: Motion, body: int, from_reference: Vector3) -> Vector3:
    """Acceleration of a point of a body at zero generalized acceleration."""
    if body == GROUND:
        return jnp.zeros_like(from_reference)
    turned = cross(moving.velocity[body, :3], velocity_at_point(moving.velocity[body], from_reference))
    return velocity_at_point(moving.bias[body], from_reference) + turned


def _moves(model: Model, body: int) -> np.ndarray:
    """Mask of the velocity components that move a body."""
    return np.zeros(model.nv, bool) if body == GROUND else model.topology.column_moves_body[:, body]


def _on_body(model: Model, body: int, force: Float[Array, "6"]) -> Float[Array, "nb 6"]:
    selected = np.arange(model.nb) == body  # nowhere True for the ground
    return jnp.where(selected[:, None], force[None], 0.0)


class Spring(_PointPair):
    """Linear spring between two points A and B: V = 1/2 k (L - L0)^2, force -k (L - L0) d/L on A, d = x_A - x_B, L = |d|.

    With zero free length the force is smooth also at L = 0. With a positive free length, the direction of the force is undefined at
    L = 0, where the force is set to 0.

    To construct one from the names of bodies: Spring(*model.locate("upper", point_a), *model.locate("ground", point_b), stiffness,
    free_length).

    Attributes:
        body_a: Index of the body at the first end, -1 for the ground.
        point_a: First end point A relative to the origin of body_a, on its axes.
        body_b: Index of the body at the second end, -1 for the ground.
        point_b: Second end point B relative to the origin of body_b, on its axes.
        stiffness: Spring constant k.
        free_length: Length L0 of the relaxed spring.

    Source: theory.md (H3).
    """

    conservative: ClassVar[bool] = True
    linear: ClassVar[tuple[str, ...]] = ("stiffness",)
    table_name: ClassVar[str] = "spring"

    body_a: int = eqx.field(static=True, converter=plain, metadata=body_index())
    point_a: Vector3 = eqx.field(converter=floating, metadata=quantity("m", on="body_a"))
    body_b: int = eqx.field(static=True, converter=plain, metadata=body_index())
    point_b: Vector3 = eqx.field(converter=floating, metadata=quantity("m", on="body_b"))
    stiffness: Scalar = eqx.field(converter=floating, metadata=quantity("N/m", minimum=0.0))
    free_length: Scalar = eqx.field(converter=floating, default=0.0, metadata=quantity("m", minimum=0.0))

    def force_on_a(self, d: Vector3, d_rate: Vector3) -> Vector3:
        _, inverse_length = zero_safe_norm(d)
        return -self.stiffness * (d - self.free_length * inverse_length * d)  # (H3)

    def law(self, inverse_length: Scalar) -> _PairLaw:
        # Compressed springs have a negative stiffness across the line, which stays explicit.
        across = self.stiffness * jnp.maximum(1.0 - self.free_length * inverse_length, 0.0)
        return _PairLaw(self.stiffness, across, jnp.zeros_like(across))

    def potential_energy(self, model: Model, q: Float[Array, "nq"], placed: Placements) -> Scalar:
        reference_a, arm_a = kinematics.point_on_body(placed, self.body_a, self.point_a)
        reference_b, arm_b = kinematics.point_on_body(placed, self.body_b, self.point_b)
        d = (reference_a - reference_b) + (arm_a - arm_b)
        length, inverse_length = zero_safe_norm(d)
        # Where the ends coincide, L^2 is computed from d directly, so that the energy is smooth there for zero free length.
        stretch_squared = jnp.where(
            inverse_length > 0, (length - self.free_length) ** 2, dot(d, d) + self.free_length**2
        )
        return 0.5 * self.stiffness * stretch_squared  # (H3)


class Damper(_PointPair):
    """Linear viscous damper between two points A and B: force -b (dL/dt) d/L on A, d = x_A - x_B, L = |d|; 0 at L = 0.

    Attributes:
        body_a: Index of the body at the first end, -1 for the ground.
        point_a: First end point A relative to the origin of body_a, on its axes.
        body_b: Index of the body at the second end, -1 for the ground.
        point_b: Second end point B relative to the origin of body_b, on its axes.
        coefficient: Damping coefficient b.

    Source: theory.md (H4).
    """

    conservative: ClassVar[bool] = False
    linear: ClassVar[tuple[str, ...]] = ("coefficient",)
    table_name: ClassVar[str] = "damper"

    body_a: int = eqx.field(static=True, converter=plain, metadata=body_index())
    point_a: Vector3 = eqx.field(converter=floating, metadata=quantity("m", on="body_a"))
    body_b: int = eqx.field(static=True, converter=plain, metadata=body_index())
    point_b: Vector3 = eqx.field(converter=floating, metadata=quantity("m", on="body_b"))
    coefficient: Scalar = eqx.field(converter=floating, metadata=quantity("N s/m", minimum=0.0))

    def force_on_a(self, d: Vector3, d_rate: Vector3) -> Vector3:
        _, inverse_length = zero_safe_norm(d)
        direction = inverse_length * d
        return -self.coefficient * dot(direction, d_rate) * direction  # (H4)

    def law(self, inverse_length: Scalar) -> _PairLaw:
        zero = jnp.zeros_like(self.coefficient)
        return _PairLaw(zero, zero, self.coefficient)


class AppliedForce(BodyForce):
    """Constant force at a point of a body, and a constant couple.

    Attributes:
        body: Index of the body.
        point: Point of application, on body axes, relative to O'.
        force: Force vector.
        torque: Couple, which acts in addition to the moment of the force.
        body_fixed: True if force and torque are given on body axes and rotate with the body, False if they are on ground axes.

    Source: theory.md (H1).
    """

    conservative: ClassVar[bool] = False
    table_name: ClassVar[str] = "applied_force"

    body: int = eqx.field(static=True, converter=plain, metadata=body_index())
    point: Vector3 = eqx.field(converter=floating, metadata=quantity("m", on="body"))
    force: Vector3 = eqx.field(converter=floating, metadata=quantity("N"))
    torque: Vector3 = eqx.field(converter=floating, metadata=quantity("N m"))
    body_fixed: bool = eqx.field(static=True, converter=plain)

    def validate(self, model: Model) -> str | None:
        if self.body == GROUND:
            return "a force on the ground has no effect; give the index of a body"
        return super().validate(model)

    def body_forces(self, model: Model, moving: Motion, t: Scalar) -> Float[Array, "nb 6"]:
        placed = moving.placements
        force, torque = self.force, self.torque
        if self.body_fixed:
            force, torque = dot(placed.rotation[self.body], force), dot(placed.rotation[self.body], torque)
        _, arm = kinematics.point_on_body(placed, self.body, self.point)
        return _on_body(model, self.body, force_at_point(arm, force, torque))  # (H1)


class GravityCompensation(BodyForce):
    """Compensation of a share of the weight of a body at its center of mass: force -share m g.

    Attributes:
        body: Index of the body.
        share: Share of the weight; 1 compensates it, and more lifts the body.

    Source: theory.md (H1).
    """

    conservative: ClassVar[bool] = True
    linear: ClassVar[tuple[str, ...]] = ("share",)
    table_name: ClassVar[str] = "gravity_compensation"

    body: int = eqx.field(static=True, converter=plain, metadata=body_index())
    share: Scalar = eqx.field(converter=floating, metadata=quantity("1"))

    def validate(self, model: Model) -> str | None:
        if self.body == GROUND:
            return "the ground has no weight; give the index of a body"
        return super().validate(model)

    def body_forces(self, model: Model, moving: Motion, t: Scalar) -> Float[Array, "nb 6"]:
        force = -self.share * model.mass[self.body] * model.gravity
        arm = moving.placements.com[self.body]
        return _on_body(model, self.body, force_at_point(arm, force, jnp.zeros_like(force)))  # (H1)

    def potential_energy(self, model: Model, q: Float[Array, "nq"], placed: Placements) -> Scalar:
        center = placed.reference[self.body] + placed.com[self.body]
        return self.share * model.mass[self.body] * dot(model.gravity, center)


class JointSpring(JointForce):
    """Springs in the joints: V = 1/2 k (q - rest)^2 with the difference in tangent coordinates, tau = -dV = -k (q - rest).

    Attributes:
        stiffness: Spring constants k.
        rest: Coordinates at which the springs are relaxed.
    """

    conservative: ClassVar[bool] = True
    linear: ClassVar[tuple[str, ...]] = ("stiffness",)
    table_name: ClassVar[str] = "joint_spring"

    stiffness: Float[Array, "nv"] = eqx.field(
        converter=floating, metadata=quantity(STIFFNESS, minimum=0.0, missing=0.0)
    )
    rest: Float[Array, "nq"] = eqx.field(converter=floating, metadata=quantity(POSITION, along="coordinate"))

    def generalized_forces(
        self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"], t: Scalar
    ) -> Float[Array, "nv"]:
        def energy(step):
            return self._energy(model, configuration.integrate(model, q, step))

        return -jax.grad(energy)(jnp.zeros_like(v))  # (H7) in tangent coordinates

    def over_step(self, model: Model, moving: Motion, t: Scalar, step: Scalar | float) -> OverStep:
        q, v, k = moving.q, moving.v, self.stiffness
        force = self.generalized_forces(model, q, v, t)
        inertia = jnp.diagonal(metric.lower_mass_matrix(model, moving.placements))
        if all(kind.velocity_is_rate for kind in model.topology.joint_classes):
            delay, square = spring_over_step(k / inertia, step)
            return OverStep(force - delay * k * v, square * k)  # (I14)

        def stretch(moved):
            return configuration.difference(model, self.rest, configuration.integrate(model, q, moved))

        rows = jax.jacfwd(stretch)(jnp.zeros_like(v))
        delay, square = spring_over_step(k * dot(rows**2, 1.0 / inertia), step)
        added = dot(rows.T, (square * k)[:, None] * rows)
        return OverStep(force - dot(rows.T, delay * k * dot(rows, v)), AddedInertia(None, added))  # (I14)

    def potential_energy(self, model: Model, q: Float[Array, "nq"], placed: Placements) -> Scalar:
        return self._energy(model, q)

    def _energy(self, model: Model, q: Float[Array, "nq"]) -> Scalar:
        stretch = configuration.difference(model, self.rest, q)
        return 0.5 * dot(self.stiffness * stretch, stretch)


class JointServo(JointForce):
    """PD controllers of the joints as a part of the system: tau = stiffness (target - q) - damping v, bounded by `effort`.

    The difference target - q is taken in tangent coordinates. The default integrator evaluates this force at the end of the step,
    so the step is stable with gains of any size. In contrast, `rollout` keeps the controls of a policy constant during a step, as
    for a digital controller.

    Attributes:
        stiffness: Proportional gains k.
        damping: Derivative gains d.
        target: Desired coordinates.
        effort: Bound on the magnitude of each component; no bound by default.

    Source: theory.md (H14).
    """

    conservative: ClassVar[bool] = False
    table_name: ClassVar[str] = "joint_servo"

    stiffness: Float[Array, "nv"] = eqx.field(
        converter=floating, metadata=quantity(STIFFNESS, minimum=0.0, missing=0.0)
    )
    damping: Float[Array, "nv"] = eqx.field(converter=floating, metadata=quantity(DAMPING, minimum=0.0, missing=0.0))
    target: Float[Array, "nq"] = eqx.field(converter=floating, metadata=quantity(POSITION, along="coordinate"))
    effort: Float[Array, "nv"] | None = eqx.field(
        converter=floating_or_none,
        default=None,
        metadata=quantity(EFFORT, minimum=0.0, infinite=True, missing=np.inf),
    )

    def generalized_forces(
        self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"], t: Scalar
    ) -> Float[Array, "nv"]:
        wanted = self._unbounded(model, q, v)
        return wanted if self.effort is None else jnp.clip(wanted, -self.effort, self.effort)  # (H14)

    def resistance(self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"], t: Scalar) -> Resistance | None:
        if self.effort is None:
            return Resistance(self.damping, self.stiffness)
        free = jnp.abs(self._unbounded(model, q, v)) < self.effort  # at the bound the force is constant
        return Resistance(jnp.where(free, self.damping, 0.0), jnp.where(free, self.stiffness, 0.0))

    def _unbounded(self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"]) -> Float[Array, "nv"]:
        return self.stiffness * configuration.difference(model, q, self.target) - self.damping * v
