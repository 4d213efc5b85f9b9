"""Base classes of forces, and the linear laws with which implicit integrators evaluate them; theory.md section (h)."""

import abc
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.dynamics.added_inertia import AddedInertia
from jaxdyn.dynamics.kinematics import Motion, Placements
from jaxdyn.mechanism.components import error_with_part
from jaxdyn.mechanism.model import Model

Vector3 = Float[Array, "3"]


Scalar = Float[Array, ""]


class Force(eqx.Module):
    """Force of a `System`; concrete forces derive from `BodyForce`, `GeneralizedForce` or `JointForce`.

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
        at_end: Function of the change of v over the step that returns the slip velocities at the end of the step,
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
            ground axes, of a `GeneralizedForce` the generalized force.
        added: Positive semidefinite matrices A, or the diagonal of A of a `GeneralizedForce`; None if the force does not depend on
            a.
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


class GeneralizedForce(Force):
    """Force along the generalized velocity components."""

    @abc.abstractmethod
    def generalized_forces(
        self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"], t: Scalar
    ) -> Float[Array, "nv"]:
        """Generalized force, N m or N by the kinds of joints."""

    def body_forces(self, model: Model, moving: Motion, t: Scalar) -> Float[Array, "nb 6"]:
        """The part of this force that acts at points of bodies, as of a `BodyForce`; the rest, by default all of it, acts within
        the joints."""
        return jnp.zeros_like(moving.velocity)

    def over_step(self, model: Model, moving: Motion, t: Scalar, step: Scalar | float) -> OverStep:
        """Linear law with which implicit integrators evaluate this force at the end of a step of length `step` (s); by default the
        force at the start."""
        return OverStep(self.generalized_forces(model, moving.q, moving.v, t))


class JointForce(GeneralizedForce):
    """Force of springs, friction and other laws in the joints, which has parameters for each joint."""

    def resistance(self, model: Model, q: Float[Array, "nq"], v: Float[Array, "nv"], t: Scalar) -> Resistance | None:
        """Linear law of this force for all lengths of a step; None if implicit integrators evaluate it at the start."""
        return None

    def over_step(self, model: Model, moving: Motion, t: Scalar, step: Scalar | float) -> OverStep:
        """Linear law with which implicit integrators evaluate this force at the end of a step of length `step` (s); by default
        that of `resistance`."""
        law = self.resistance(model, moving.q, moving.v, t)
        if law is None:
            return super().over_step(model, moving, t, step)
        now = self.generalized_forces(model, moving.q, moving.v, t)
        return OverStep(now - step * law.stiffness * moving.v, step * (law.damping + step * law.stiffness))  # (I12)


def on_body(model: Model, body: int, force: Float[Array, "6"]) -> Float[Array, "nb 6"]:
    selected = np.arange(model.nb) == body  # nowhere True for the ground
    return jnp.where(selected[:, None], force[None], 0.0)
