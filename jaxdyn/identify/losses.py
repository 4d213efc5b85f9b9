"""Losses of residuals: half their square, or a robust loss that grows more slowly for outliers."""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.mechanism.messages import check_instance
from jaxdyn.mechanism.quantity import check_settings, plain, quantity


class Loss(eqx.Module):
    """Loss rho(r^2)/2 of a residual r in units of its standard deviation; rho(s) = s near 0.

    Attributes:
        kind: Name of the loss in configs.
    """

    kind: ClassVar[str]

    def __check_init__(self):
        check_settings(self)

    @abc.abstractmethod
    def rho(self, squared: Float[Array, "..."]) -> Float[Array, "..."]:
        """Twice the loss of residuals, given their squares."""

    @abc.abstractmethod
    def weight(self, squared: Float[Array, "..."]) -> Float[Array, "..."]:
        """rho'(r^2), the weight of a residual in Gauss-Newton steps."""


def check_loss(loss: Any) -> None:
    """Check that an argument is a loss.

    Raises:
        TypeError: The argument is not a loss; for example, it is the class of a loss instead of an instance.
    """
    check_instance("the loss", loss, Loss, "an instance, such as Huber()")


class Squares(Loss):
    """Least squares, rho(s) = s, which is optimal for Gaussian noise."""

    kind: ClassVar[str] = "squares"

    def rho(self, squared: Float[Array, "..."]) -> Float[Array, "..."]:
        return squared

    def weight(self, squared: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.ones_like(squared)


class Huber(Loss):
    """Huber loss, rho(s) = s up to k^2, then 2 k sqrt(s) - k^2: the influence of outliers is bounded.

    Attributes:
        threshold: Threshold k in standard deviations; smaller residuals have the loss of least squares.
    """

    kind: ClassVar[str] = "huber"

    threshold: float = eqx.field(static=True, converter=plain, default=1.345, metadata=quantity("1", positive=True))

    def rho(self, squared: Float[Array, "..."]) -> Float[Array, "..."]:
        k = self.threshold
        far = squared > k**2
        return jnp.where(far, 2.0 * k * jnp.sqrt(jnp.where(far, squared, 1.0)) - k**2, squared)

    def weight(self, squared: Float[Array, "..."]) -> Float[Array, "..."]:
        far = squared > self.threshold**2
        return jnp.where(far, self.threshold / jnp.sqrt(jnp.where(far, squared, 1.0)), 1.0)


class Cauchy(Loss):
    """Cauchy loss, rho(s) = k^2 log(1 + s/k^2): the influence of distant outliers approaches zero.

    Attributes:
        threshold: Threshold k in standard deviations; much smaller residuals have nearly the loss of least squares.
    """

    kind: ClassVar[str] = "cauchy"

    threshold: float = eqx.field(static=True, converter=plain, default=2.385, metadata=quantity("1", positive=True))

    def rho(self, squared: Float[Array, "..."]) -> Float[Array, "..."]:
        return self.threshold**2 * jnp.log1p(squared / self.threshold**2)

    def weight(self, squared: Float[Array, "..."]) -> Float[Array, "..."]:
        return 1.0 / (1.0 + squared / self.threshold**2)
