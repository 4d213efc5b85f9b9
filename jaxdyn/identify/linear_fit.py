"""Linear least squares with honest error bars: measured forces tau = Y theta + noise.

Rows of a regressor come as (samples, channels, parameters), one channel per joint, since every joint has noise of its own. The
columns have to be independent: `BaseParameters.columns` takes those that are. Everything is a pure function, so that a thousand
repetitions of an experiment are one `jax.vmap`.

Weighted rows are decomposed once (no normal equations, which would square the condition), and not again for each repetition,

    Y / noise = Q R,   z = Q^T tau / noise,   theta = R^-1 z,   cov(theta) = s^2 R^-1 R^-T,
    s^2 = ||tau / noise - Q z||^2 / (rows - parameters).

Source: Golub and Van Loan 2013, section 5.3; weights per joint: Gautier 1997, Swevers et al. 1997.
"""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxdyn.spatial import factorizations
from jaxdyn.spatial.arrays import dot


class Prior(NamedTuple):
    """What is known of the parameters beforehand, like a measurement of each: mean and standard deviation.

    Equal standard deviations about a mean of zero are ridge regression.
    """

    mean: Float[Array, "parameters"]
    std: Float[Array, "parameters"]


class LinearFit(eqx.Module):
    """Result of a linear fit.

    Attributes:
        estimate: Theta, in the units of the columns.
        covariance: of the estimate.
        noise: Standard deviation of the noise of each measured force that was assumed or found, N m or N.
        residual_variance: s^2 of the weighted residuals; 1 where the noise was as assumed.
        condition: of the weighted columns, each divided by its norm, in the Frobenius norm.
        degrees_of_freedom: Number of equations minus number of parameters.
    """

    estimate: Float[Array, "parameters"]
    covariance: Float[Array, "parameters parameters"]
    noise: Float[Array, "samples channels"]
    residual_variance: Float[Array, ""]
    condition: Float[Array, ""]
    degrees_of_freedom: int = eqx.field(static=True)

    @property
    def standard_deviation(self) -> Float[Array, "*batch parameters"]:
        """Standard deviation of each parameter."""
        return jnp.sqrt(jnp.diagonal(self.covariance, axis1=-2, axis2=-1))

    def intervals(
        self, confidence: float = 0.95
    ) -> tuple[Float[Array, "*batch parameters"], Float[Array, "*batch parameters"]]:
        """Lower and upper bounds, by Student's t distribution, that hold each parameter with this probability."""
        from scipy.special import stdtrit  # takes a fifth of a second to import

        quantile = float(stdtrit(self.degrees_of_freedom, 0.5 + 0.5 * confidence))
        half = quantile * self.standard_deviation
        return self.estimate - half, self.estimate + half

    def report(self, names: Sequence[str], units: Sequence[str]) -> str:
        """The estimates with their 95 % intervals as text, one per line; those that may be zero are marked."""
        lower, upper = (np.asarray(bound) for bound in self.intervals())
        lines = []
        for k, (name, unit) in enumerate(zip(names, units, strict=True)):
            remark = "   not significantly different from zero" if lower[k] <= 0 <= upper[k] else ""
            value = f"{float(self.estimate[k]):12.5g} +- {0.5 * float(upper[k] - lower[k]):<9.2g} {unit:<13}"
            lines.append(f"{value} {name}{remark}")
        return "\n".join(lines)


def weighted_least_squares(
    Y: Float[Array, "samples channels parameters"],
    tau: Float[Array, "samples channels"],
    noise: Float[Array, "#samples channels"] | Float[Array, "channels"] | None = None,
    *,
    prior: Prior | None = None,
) -> LinearFit:
    """Parameters that make ((tau - Y theta) / noise)^2, summed over all equations, least.

    Args:
        Y: Regressors, columns independent unless there is a prior.
        tau: Measured forces, N m or N, less `remaining_forces`.
        noise: Standard deviations, up to a common factor that the residuals determine; per channel or per equation. Equal if None.
        prior: One more measurement of each parameter; its standard deviation is relative to `noise`, which has to be given.

    Raises:
        ValueError: There are no more equations than parameters; a prior without noise; or the columns depend on each other, which
            shows where the values are known (not within `jax.jit`, see `LinearFit.condition`).
    """
    if prior is not None and noise is None:
        raise ValueError("a prior weighs against the noise; give the standard deviation of the noise, too")
    _, channels, parameters = Y.shape
    noise = jnp.broadcast_to(jnp.ones(channels, tau.dtype) if noise is None else noise, tau.shape)
    columns, right = (Y / noise[..., None]).reshape(-1, parameters), (tau / noise).ravel()
    if prior is not None:
        columns = jnp.concatenate([columns, jnp.diag(1.0 / prior.std)])
        right = jnp.concatenate([right, prior.mean / prior.std])
    return _fit(columns, right, noise)


def reweighted_least_squares(
    Y: Float[Array, "samples channels parameters"], tau: Float[Array, "samples channels"], *, iterations: int = 10
) -> LinearFit:
    """Least squares with the noise of each channel found from its own residuals, by turns with the parameters.

    The variance of a channel is the sum of its squared residuals over the number of its samples, less its share in the number of
    parameters (the sum of its leverages), so that short records are not taken for quiet ones.

    Args:
        Y: Regressors, columns independent.
        tau: Measured forces, N m or N, less `remaining_forces`.
        iterations: Rounds; the first one starts from equal noise.

    Raises:
        ValueError: As `weighted_least_squares`.
    """
    samples, channels, parameters = Y.shape
    _check_size(samples * channels, parameters)
    rows = jnp.concatenate([Y, tau[..., None]], axis=-1).swapaxes(0, 1)
    _, triangles = jax.vmap(factorizations.qr)(rows)  # one per channel; nothing else enters in the rounds
    smallest = jnp.finfo(tau.dtype).eps * jnp.sqrt(jnp.mean(tau**2, axis=0))  # exact data have no noise at all

    def round_(_, noise):
        weighted = triangles / noise[:, None, None]
        _, R = factorizations.qr(weighted.reshape(-1, parameters + 1))
        inverse = _inverse(R[:parameters, :parameters])
        estimate = dot(inverse, R[:parameters, parameters])
        residuals = dot(triangles, jnp.append(-estimate, 1.0))
        leverage = jnp.sum(dot(weighted[..., :parameters], inverse) ** 2, axis=(1, 2))
        variance = jnp.sum(residuals**2, axis=1) / jnp.maximum(samples - leverage, 1.0)
        return jnp.maximum(jnp.sqrt(variance), smallest)

    noise = jax.lax.fori_loop(0, iterations, round_, jnp.ones(channels, tau.dtype))
    return weighted_least_squares(Y, tau, noise)


def _fit(
    columns: Float[Array, "equations p"], right: Float[Array, "equations"], noise: Float[Array, "samples channels"]
) -> LinearFit:
    """Fit of weighted rows Y / noise to tau / noise."""
    equations, p = columns.shape
    _check_size(equations, p)
    Q, R = factorizations.qr(columns)
    # In the Frobenius norm, because singular values would take one more decomposition.
    size = jnp.linalg.norm(R, axis=0)
    inverse = _inverse(R / size[None]) / size[:, None]
    condition = jnp.linalg.norm(R / size[None]) * jnp.linalg.norm(inverse * size[:, None])
    if not isinstance(condition, Tracer) and not float(condition) * float(jnp.finfo(right.dtype).eps) ** 0.75 < 1.0:
        raise ValueError(
            f"the columns of the regressor are linearly dependent (condition {float(condition):.1e}); fit base parameters, "
            "BaseParameters.columns(Y), or give a prior"
        )
    z = dot(Q.T, right)
    variance = jnp.sum((right - dot(Q, z)) ** 2) / (equations - p)
    return LinearFit(dot(inverse, z), variance * dot(inverse, inverse.T), noise, variance, condition, equations - p)


def _inverse(triangle: Float[Array, "p p"]) -> Float[Array, "p p"]:
    return factorizations.solve_triangular(triangle, jnp.eye(len(triangle), dtype=triangle.dtype), lower=False)


def _check_size(equations: int, parameters: int) -> None:
    if equations <= parameters:
        raise ValueError(
            f"{equations} equations do not determine {parameters} parameters and the noise; give more samples, or a prior"
        )
