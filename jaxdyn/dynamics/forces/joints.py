"""Springs and servos in joints; theory.md (H7), (I12), (I14)."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, floating, floating_or_none
from jaxdyn.dynamics import metric
from jaxdyn.dynamics.added_inertia import AddedInertia
from jaxdyn.dynamics.forces.base import JointForce, OverStep, Resistance, Scalar, spring_over_step
from jaxdyn.dynamics.kinematics import Motion, Placements
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import DAMPING, EFFORT, POSITION, STIFFNESS, quantity


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
