"""Predefined costs of states, controls and time."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import floating
from jaxdyn.control.cost_terms import CostTerm, LeastSquares, Residuals, multibody
from jaxdyn.control.problem import STATE_FIELD, AnyState, Controls, Dynamics, Time
from jaxdyn.dynamics.system import State
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.quantity import POSITION, quantity

WEIGHTS = quantity(minimum=0.0, broadcast=True)
"""Metadata of weights without a unit, one for each entry or one for all."""


class Deviation(LeastSquares):
    """Quadratic cost 1/2 sum of w_i d_i^2 of the deviation d = difference(target, x) from a target state, in tangent coordinates.

    Attributes:
        target: Target state of the mechanism.
        weights: Weights w of the tangent coordinates: first those of the configuration, then those of the velocities.
    """

    kind: ClassVar[str] = "deviation"

    target: AnyState = eqx.field(metadata=STATE_FIELD)
    weights: Float[Array, "nx"] | Float[Array, ""] = eqx.field(converter=floating, default=1.0, metadata=WEIGHTS)

    def residuals(self, dynamics: Dynamics, t: Time, x: AnyState, u: Controls) -> Residuals:
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

    target: Float[Array, "nq"] = eqx.field(converter=floating, metadata=quantity(POSITION, along="coordinate"))
    weights: Float[Array, "nv"] | Float[Array, ""] = eqx.field(converter=floating, default=1.0, metadata=WEIGHTS)

    def __call__(self, dynamics: Dynamics, t: Time, x: State, u: Controls) -> Float[Array, ""]:
        off = configuration.difference(multibody(dynamics, self).system.model, self.target, x.q)
        return jnp.sum(self.weights * (1.0 - jnp.cos(off)))


class Effort(LeastSquares):
    """Control effort, 1/2 sum of w_i u_i^2.

    Attributes:
        weights: Weights w of the controls.
    """

    kind: ClassVar[str] = "effort"

    weights: Float[Array, "nu"] | Float[Array, ""] = eqx.field(converter=floating, default=1.0, metadata=WEIGHTS)

    def residuals(self, dynamics: Dynamics, t: Time, x: AnyState, u: Controls) -> Residuals:
        return u, jnp.broadcast_to(self.weights, u.shape)


class ElapsedTime(CostTerm):
    """Cost w t, proportional to the time t; as a final cost it penalizes the duration of a problem with free duration.

    Attributes:
        weight: Weight w of the elapsed time.
    """

    kind: ClassVar[str] = "time"

    weight: Float[Array, ""] = eqx.field(converter=floating, default=1.0, metadata=quantity("1/s"))

    def __call__(self, dynamics: Dynamics, t: Time, x: AnyState, u: Controls) -> Float[Array, ""]:
        return self.weight * t
