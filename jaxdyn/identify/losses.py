"""Losses of residuals: half their square, or less for outliers."""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.mechanism.messages import described
from jaxdyn.mechanism.quantity import quantity


class Loss(eqx.Module):
    """Cost rho(r^2)/2 of a residual r in units of its standard deviation; rho(s) = s near 0.

    Attributes:
        kind: Name in configs, of concrete classes.
    """

    kind: ClassVar[str]

    @abc.abstractmethod
    def rho(self, squared: Float[Array, "..."]) -> Float[Array, "..."]:
        """Twice the cost of residuals, given their squares."""

    @abc.abstractmethod
    def weight(self, squared: Float[Array, "..."]) -> Float[Array, "..."]:
        """rho'(r^2), the weight of a residual in Gauss-Newton steps."""


def check_loss(loss: Any) -> None:
    """Refuse what is not a loss.

    Raises:
        TypeError: It is something else, such as the class of a loss.
    """
    if not isinstance(loss, Loss):
        name = loss.__name__ if isinstance(loss, type) else "Huber"
        raise TypeError(f"the loss is {described(loss)}; give an instance, such as {name}()")


class Squares(Loss):
    """rho(s) = s: least squares, right for Gaussian noise."""

    kind: ClassVar[str] = "squares"

    def rho(self, squared: Float[Array, "..."]) -> Float[Array, "..."]:
        return squared

    def weight(self, squared: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.ones_like(squared)


class Huber(Loss):
    """rho(s) = s up to k^2, then 2 k sqrt(s) - k^2: outliers pull with constant force.

    Attributes:
        threshold: The loss grows like that of least squares up to this number k of standard deviations.
    """

    kind: ClassVar[str] = "huber"

    threshold: float = eqx.field(static=True, default=1.345, metadata=quantity("1", positive=True))

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
        threshold: The loss grows like that of least squares up to this number k of standard deviations.
    """

    kind: ClassVar[str] = "cauchy"

    threshold: float = eqx.field(static=True, default=2.385, metadata=quantity("1", positive=True))

    def rho(self, squared: Float[Array, "..."]) -> Float[Array, "..."]:
        return self.threshold**2 * jnp.log1p(squared / self.threshold**2)

    def weight(self, squared: Float[Array, "..."]) -> Float[Array, "..."]:
        return 1.0 / (1.0 + squared / self.threshold**2)
