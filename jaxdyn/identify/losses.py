"""What an error costs: half its square, or less for outliers."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class Loss(eqx.Module):
    """Cost rho(r^2)/2 of a residual r in units of its standard deviation; rho(s) = s near 0."""

    @abc.abstractmethod
    def rho(self, squared: Float[Array, "..."]) -> Float[Array, "..."]:
        """Twice the cost of residuals, given their squares."""

    @abc.abstractmethod
    def weight(self, squared: Float[Array, "..."]) -> Float[Array, "..."]:
        """rho'(r^2), the weight of a residual in Gauss-Newton steps."""


class Squares(Loss):
    """rho(s) = s: least squares, right for Gaussian noise."""

    def rho(self, squared: Float[Array, "..."]) -> Float[Array, "..."]:
        return squared

    def weight(self, squared: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.ones_like(squared)


class Huber(Loss):
    """rho(s) = s up to k^2, then 2 k sqrt(s) - k^2: outliers pull with constant force.

    Attributes:
        threshold: k, in standard deviations.
    """

    threshold: float = eqx.field(static=True, default=1.345)

    def rho(self, squared: Float[Array, "..."]) -> Float[Array, "..."]:
        k = self.threshold
        far = squared > k**2
        return jnp.where(far, 2.0 * k * jnp.sqrt(jnp.where(far, squared, 1.0)) - k**2, squared)

    def weight(self, squared: Float[Array, "..."]) -> Float[Array, "..."]:
        far = squared > self.threshold**2
        return jnp.where(far, self.threshold / jnp.sqrt(jnp.where(far, squared, 1.0)), 1.0)


class Cauchy(Loss):
    """rho(s) = k^2 log(1 + s/k^2): far outliers hardly pull at all.

    Attributes:
        threshold: k, in standard deviations.
    """

    threshold: float = eqx.field(static=True, default=2.385)

    def rho(self, squared: Float[Array, "..."]) -> Float[Array, "..."]:
        return self.threshold**2 * jnp.log1p(squared / self.threshold**2)

    def weight(self, squared: Float[Array, "..."]) -> Float[Array, "..."]:
        return 1.0 / (1.0 + squared / self.threshold**2)
