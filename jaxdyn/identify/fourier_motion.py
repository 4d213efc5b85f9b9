"""Periodic motions as Fourier series, with exact velocities and accelerations."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot


class FourierMotion(eqx.Module):
    """A periodic motion q(t) = offset + sum over k = 1, 2, ... of sine_k sin(k w t) + cosine_k cos(k w t), for every joint.

    Attributes:
        offset: Mean coordinates, rad or m.
        sine, cosine: Coefficients of the harmonics, rad or m.
        frequency: Angular frequency w, rad/s; the period is 2 pi / w.
    """

    offset: Float[Array, "nv"]
    sine: Float[Array, "nv harmonics"]
    cosine: Float[Array, "nv harmonics"]
    frequency: Float[Array, ""]

    @property
    def period(self) -> Float[Array, ""]:
        """Period of the motion, s."""
        return 2.0 * np.pi / self.frequency

    def __call__(self, t: Float[Array, ""]) -> tuple[Float[Array, "nv"], Float[Array, "nv"], Float[Array, "nv"]]:
        """Coordinates, velocities and accelerations at time t (s)."""
        w = self.frequency * self._orders
        s, c = jnp.sin(w * t), jnp.cos(w * t)
        q = self.offset + dot(self.sine, s) + dot(self.cosine, c)
        v = dot(self.sine, w * c) - dot(self.cosine, w * s)
        return q, v, -dot(self.sine, w**2 * s) - dot(self.cosine, w**2 * c)

    def at_rest(self) -> "FourierMotion":
        """Return the nearest Fourier series that starts and ends each period at rest (v = 0 and a = 0)."""
        k = self._orders
        # v(0) = w sum k sine_k and a(0) = -w^2 sum k^2 cosine_k
        sine = self.sine - jnp.outer(dot(self.sine, k), k / dot(k, k))
        cosine = self.cosine - jnp.outer(dot(self.cosine, k**2), k**2 / dot(k**2, k**2))
        return FourierMotion(self.offset, sine, cosine, self.frequency)

    def scaled(self, factor: Float[Array, ""]) -> "FourierMotion":
        """Return the motion with all amplitudes multiplied by a factor; the mean coordinates are unchanged."""
        return FourierMotion(self.offset, factor * self.sine, factor * self.cosine, self.frequency)

    @property
    def _orders(self) -> Float[Array, "harmonics"]:
        return jnp.arange(1, self.sine.shape[-1] + 1, dtype=self.sine.dtype)
