"""Prescribed motions: coordinates of a driven joint as smooth functions of time, which `joints.Rheonomic` differentiates.

Users can define other motions as subclasses of `PrescribedMotion`. The parameters of a motion are leaves of a pytree, so results
can be differentiated with respect to them.
"""

import abc
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, floating
from jaxdyn.mechanism.quantity import POSITION, VELOCITY, quantity

Time = Float[Array, ""]

_POSITION = quantity(POSITION, along="coordinate")


class PrescribedMotion(eqx.Module):
    """Coordinates q(t) (rad, m) of one joint, twice differentiable.

    Class attributes:
        kind: Name of the kind in mechanism files; None if files cannot contain it.
    """

    kind: ClassVar[str | None] = None

    @abc.abstractmethod
    def __call__(self, t: Time) -> Float[Array, "_"]:
        """Coordinates at time t (s)."""


def _row(x) -> Array:
    """Array of at least one dimension; a scalar becomes a row of one coordinate."""
    return jnp.atleast_1d(floating(x))


class ConstantRate(PrescribedMotion):
    """q(t) = start + rate t.

    Attributes:
        rate: Rate of each coordinate of the joint.
        start: Coordinates at t = 0.
    """

    kind: ClassVar[str] = "constant_rate"

    rate: Float[Array, "*batch n"] = eqx.field(converter=_row, metadata=quantity(VELOCITY, along="coordinate"))
    start: Float[Array, "*batch n"] = eqx.field(converter=_row, default=0.0, metadata=_POSITION)

    def __call__(self, t: Time) -> Float[Array, "n"]:
        return self.start + self.rate * t[None]


class Sinusoid(PrescribedMotion):
    """q(t) = offset + amplitude sin(angular_frequency t + phase).

    Attributes:
        amplitude: Amplitude of each coordinate of the joint.
        angular_frequency: Angular frequency of the oscillation.
        phase: Phase at t = 0.
        offset: Mean coordinates, about which the joint oscillates.
    """

    kind: ClassVar[str] = "sinusoid"

    amplitude: Float[Array, "*batch n"] = eqx.field(converter=_row, metadata=_POSITION)
    angular_frequency: Float[Array, "*batch n"] = eqx.field(
        converter=_row, metadata=quantity("rad/s", along="coordinate")
    )
    phase: Float[Array, "*batch n"] = eqx.field(
        converter=_row, default=0.0, metadata=quantity("rad", along="coordinate")
    )
    offset: Float[Array, "*batch n"] = eqx.field(converter=_row, default=0.0, metadata=_POSITION)

    def __call__(self, t: Time) -> Float[Array, "n"]:
        return self.offset + self.amplitude * jnp.sin(self.angular_frequency * t[None] + self.phase)


class Spline(PrescribedMotion):
    """Natural cubic spline through values at equally spaced times (knots); it is extrapolated linearly outside of the knots.

    Attributes:
        values: Coordinates at the times start, start + interval, ...; one row per knot (two or more), one column per coordinate.
        interval: Time between two knots.
        start: Time of the first knot.
    """

    kind: ClassVar[str] = "spline"

    values: Float[Array, "*batch knots n"] = eqx.field(converter=floating, metadata=_POSITION)
    interval: Float[Array, "*batch"] = eqx.field(converter=floating, metadata=quantity("s", positive=True))
    start: Float[Array, "*batch"] = eqx.field(converter=floating, default=0.0, metadata=quantity("s"))

    def __check_init__(self):
        if self.values.ndim < 2 or self.values.shape[-2] < 2:
            raise ValueError(
                f"the values of a Spline have shape {self.values.shape}; give one row per knot, at least two, "
                "and one column per coordinate"
            )

    def __call__(self, t: Time) -> Float[Array, "n"]:
        last = self.values.shape[0] - 1
        x = (t - self.start) / self.interval
        left = jnp.clip(jnp.floor(x), 0.0, float(last - 1)).astype(int)
        # Curvatures vanish at both ends and outside, where only the linear part remains.
        inside = jnp.clip(x, 0.0, float(last)) - left.astype(x.dtype)
        curvature = dot(_natural_curvatures(last + 1).astype(self.values.dtype), self.values)
        a, b, curve_a, curve_b = self.values[left], self.values[left + 1], curvature[left], curvature[left + 1]
        slope = b - a - (2.0 * curve_a + curve_b) / 6.0
        cubic = a + inside * (slope + inside * (0.5 * curve_a + inside * (curve_b - curve_a) / 6.0))
        end_slope = slope + inside * (curve_a + 0.5 * inside * (curve_b - curve_a))
        return cubic + (x - jnp.clip(x, 0.0, float(last))) * end_slope


def _natural_curvatures(knots: int) -> np.ndarray:
    """(knots, knots) matrix from values to second derivatives at the knots, for unit intervals; they vanish at both ends."""
    second = np.zeros((knots, knots))
    if knots > 2:
        inner = np.arange(1, knots - 1)
        second[inner, inner - 1], second[inner, inner], second[inner, inner + 1] = 1.0, -2.0, 1.0
        system = np.eye(knots)
        system[inner, inner - 1], system[inner, inner], system[inner, inner + 1] = 1 / 6, 2 / 3, 1 / 6
        second = np.linalg.solve(system, second)
    return second
