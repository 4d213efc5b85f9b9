"""Springs and dampers between two points; theory.md (H3), (H4), (I14)."""

import abc
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, floating, zero_safe_norm
from jaxdyn.dynamics import kinematics, metric
from jaxdyn.dynamics.added_inertia import AddedInertia
from jaxdyn.dynamics.forces.base import BodyForce, OverStep, Scalar, Vector3, on_body, spring_over_step
from jaxdyn.dynamics.kinematics import Motion, Placements
from jaxdyn.dynamics.paths import moved_columns, point_drift, point_velocity
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import body_index, plain, quantity
from jaxdyn.spatial.rotation import cross
from jaxdyn.spatial.sixvector import force_at_point


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
    """Equal and opposite forces on two points, along the line between them.

    Attributes:
        body_a: Index of the body at the first end, -1 for the ground.
        point_a: First end point A relative to the origin of body_a, on its axes.
        body_b: Index of the body at the second end, -1 for the ground.
        point_b: Second end point B relative to the origin of body_b, on its axes.
    """

    body_a: int = eqx.field(static=True, converter=plain, metadata=body_index())
    point_a: Vector3 = eqx.field(converter=floating, metadata=quantity("m", on="body_a"))
    body_b: int = eqx.field(static=True, converter=plain, metadata=body_index())
    point_b: Vector3 = eqx.field(converter=floating, metadata=quantity("m", on="body_b"))

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
        moves_a, moves_b = moved_columns(model, self.body_a), moved_columns(model, self.body_b)
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
        drift = point_drift(moving, self.body_a, ends.arms[0]) - point_drift(moving, self.body_b, ends.arms[1])
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
        rate = point_velocity(moving, self.body_a, arm_a) - point_velocity(moving, self.body_b, arm_b)
        return _Ends((arm_a, arm_b), (reference_a - reference_b) + (arm_a - arm_b), rate)

    def _on_bodies(self, model: Model, ends: _Ends, force: Vector3) -> Float[Array, "nb 6"]:
        zero = jnp.zeros_like(force)
        return on_body(model, self.body_a, force_at_point(ends.arms[0], force, zero)) + on_body(
            model, self.body_b, force_at_point(ends.arms[1], -force, zero)
        )


class Spring(_PointPair):
    """Linear spring between two points A and B: V = 1/2 k (L - L0)^2, force -k (L - L0) d/L on A, d = x_A - x_B, L = |d|.

    With zero free length the force is smooth also at L = 0. With a positive free length, the direction of the force is undefined at
    L = 0, where the force is set to 0.

    To construct one from the names of bodies: Spring(*model.locate("upper", point_a), *model.locate("ground", point_b), stiffness,
    free_length).

    Attributes:
        stiffness: Spring constant k.
        free_length: Length L0 of the relaxed spring.

    Source: theory.md (H3).
    """

    conservative: ClassVar[bool] = True
    linear: ClassVar[tuple[str, ...]] = ("stiffness",)
    table_name: ClassVar[str] = "spring"

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
        coefficient: Damping coefficient b.

    Source: theory.md (H4).
    """

    conservative: ClassVar[bool] = False
    linear: ClassVar[tuple[str, ...]] = ("coefficient",)
    table_name: ClassVar[str] = "damper"

    coefficient: Scalar = eqx.field(converter=floating, metadata=quantity("N s/m", minimum=0.0))

    def force_on_a(self, d: Vector3, d_rate: Vector3) -> Vector3:
        _, inverse_length = zero_safe_norm(d)
        direction = inverse_length * d
        return -self.coefficient * dot(direction, d_rate) * direction  # (H4)

    def law(self, inverse_length: Scalar) -> _PairLaw:
        zero = jnp.zeros_like(self.coefficient)
        return _PairLaw(zero, zero, self.coefficient)
