"""Linear least squares with realistic confidence intervals: measured forces tau = Y theta + noise.

Regressors have the shape (samples, channels, parameters), with one channel per joint, because the noise differs between joints. The
columns must be independent: `BaseParameters.columns` selects independent ones. All functions are pure, so that many repetitions of
an experiment can be computed by `jax.vmap`.

Weighted rows are decomposed once, without normal equations, which would square the condition number:

    Y / noise = Q R,   z = Q^T tau / noise,   theta = R^-1 z,   cov(theta) = s^2 R^-1 R^-T,
    s^2 = ||tau / noise - Q z||^2 / (rows - parameters).

Blocks of rows are decomposed one after the other, each together with R and z of the rows before it. Thus a large Q is never
formed, and `LinearFit.update` continues a fit with more measurements.

Source: Golub and Van Loan 2013, sections 5.3 and 6.5; weights per joint: Gautier 1997, Swevers et al. 1997.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxdyn.compute import stored_outside_jit
from jaxdyn.compute.arrays import dot, floating
from jaxdyn.mechanism.quantity import plain
from jaxdyn.spatial import factorizations

_BLOCK = 1024  # rows that are decomposed at once; they and their factor Q are in the cache of a processor


class Prior(NamedTuple):
    """Gaussian prior with mean and standard deviation, which acts like an additional measurement of each parameter.

    Equal standard deviations with mean zero correspond to ridge regression.
    """

    mean: Float[Array, "parameters"]
    std: Float[Array, "parameters"]


class LinearFit(eqx.Module):
    """Result of a linear fit.

    Attributes:
        estimate: Estimate of the parameters theta, in their units.
        covariance: Covariance of the estimate.
        noise: Assumed or estimated standard deviation of the noise of each measured force, N m or N.
        residual_variance: Variance s^2 of the weighted residuals; 1 if the noise was as assumed.
        condition: Condition number of the weighted regressor with columns scaled to norm 1, in the Frobenius norm.
        degrees_of_freedom: Number of equations minus number of parameters.
        triangle: Factor R of all weighted regressors.
    """

    estimate: Float[Array, "parameters"]
    covariance: Float[Array, "parameters parameters"]
    noise: Float[Array, "samples channels"]
    residual_variance: Float[Array, ""]
    condition: Float[Array, ""]
    degrees_of_freedom: int = eqx.field(static=True, converter=plain)
    triangle: Float[Array, "parameters parameters"]

    def update(
        self,
        Y: Float[Array, "samples channels parameters"],
        tau: Float[Array, "samples channels"],
        noise: Float[Array, "#samples channels"] | Float[Array, "channels"] | None = None,
    ) -> "LinearFit":
        """Fit of all measurements so far and further ones, in memory that depends on the number of further ones only.

        Args:
            Y: Further regressors.
            tau: Further measured forces, N m or N.
            noise: Their standard deviations, as for `weighted_least_squares`; by default that of the last sample. The result has
                the attribute `noise` of the further measurements.

        Example:
            ```python
            import jax, jax.numpy as jnp
            from jaxdyn import identify

            Y, theta = jax.random.normal(jax.random.key(0), (4, 100, 1, 3)), jnp.array([1.0, 2.0, 3.0])
            fit = identify.weighted_least_squares(Y[0], Y[0] @ theta)
            for part in Y[1:]:
                fit = fit.update(part, part @ theta)
            assert abs(fit.estimate - theta).max() < 1e-5
            ```
        """
        Y, tau = _rows(Y, tau)
        noise = jnp.broadcast_to(self.noise[-1] if noise is None else floating(noise), tau.shape)
        square = self.residual_variance * self.degrees_of_freedom
        # The triangle acts like measurements without residuals.
        before = self.triangle, dot(self.triangle, self.estimate), jnp.ones_like(self.estimate)
        columns, right, std = map(jnp.concatenate, zip(before, _flat(Y, tau, noise), strict=True))
        return _fit(columns, right, std, noise, self.degrees_of_freedom + tau.size, square)

    @property
    def standard_deviation(self) -> Float[Array, "*batch parameters"]:
        """Standard deviation of each parameter."""
        return jnp.sqrt(jnp.diagonal(self.covariance, axis1=-2, axis2=-1))

    def intervals(
        self, *, confidence: float = 0.95
    ) -> tuple[Float[Array, "*batch parameters"], Float[Array, "*batch parameters"]]:
        """Lower and upper bounds, by Student's t distribution, that contain each parameter with the probability `confidence`."""
        from scipy.special import stdtrit  # this import takes 0.2 s

        quantile = float(stdtrit(self.degrees_of_freedom, 0.5 + 0.5 * confidence))
        return _around(self.estimate, self.covariance, jnp.asarray(quantile, self.estimate.dtype))

    def report(self, names: Sequence[str], units: Sequence[str]) -> str:
        """The estimates with their 95 % intervals as text, one per line, with a remark if zero is within the interval."""
        lower, upper = (np.asarray(bound) for bound in self.intervals())
        lines = []
        for k, (name, unit) in enumerate(zip(names, units, strict=True)):
            remark = "   not significantly different from zero" if lower[k] <= 0 <= upper[k] else ""
            value = f"{float(self.estimate[k]):12.5g} +- {0.5 * float(upper[k] - lower[k]):<9.2g} {unit:<13}"
            lines.append(f"{value} {name}{remark}")
        return "\n".join(lines)


@stored_outside_jit
def _around(estimate: Array, covariance: Array, factor: Array) -> tuple[Array, Array]:
    """Estimates minus and plus a multiple of their standard deviations."""
    half = factor * jnp.sqrt(jnp.diagonal(covariance, axis1=-2, axis2=-1))
    return estimate - half, estimate + half


def weighted_least_squares(
    Y: Float[Array, "samples channels parameters"],
    tau: Float[Array, "samples channels"],
    noise: Float[Array, "#samples channels"] | Float[Array, "channels"] | None = None,
    *,
    prior: Prior | None = None,
) -> LinearFit:
    """Parameters that minimize the sum of ((tau - Y theta) / noise)^2 over all equations.

    Args:
        Y: Regressors, with independent columns unless there is a prior.
        tau: Measured forces, N m or N, minus `remaining_forces`.
        noise: Standard deviations per channel or per equation, up to a common factor that the residuals determine; None for equal
            standard deviations.
        prior: Prior of the parameters; it requires `noise`, to which its standard deviations are relative.

    Raises:
        ValueError: There are not more equations than parameters, a prior is given without noise, or the columns are linearly
            dependent (not checked within `jax.jit`; see `LinearFit.condition`).
    """
    if prior is not None and noise is None:
        raise ValueError("a prior requires the standard deviation of the noise; give noise")
    Y, tau = _rows(Y, tau)
    _, channels, parameters = Y.shape
    noise = jnp.broadcast_to(jnp.ones(channels, tau.dtype) if noise is None else floating(noise), tau.shape)
    if prior is None:
        return _fit(Y, tau, noise, noise, tau.size - parameters)
    expected = jnp.eye(parameters, dtype=tau.dtype), floating(prior.mean), floating(prior.std)
    columns, right, std = map(jnp.concatenate, zip(_flat(Y, tau, noise), expected, strict=True))
    return _fit(columns, right, std, noise, tau.size)


def reweighted_least_squares(
    Y: Float[Array, "samples channels parameters"], tau: Float[Array, "samples channels"], *, iterations: int = 10
) -> LinearFit:
    """Least squares in which the noise of each channel is estimated from its residuals, in alternation with the parameters.

    The variance of a channel is the sum of its squared residuals divided by its degrees of freedom (the number of its samples minus
    the sum of its leverages), so that the noise of short records is not underestimated.

    Args:
        Y: Regressors, with independent columns.
        tau: Measured forces, N m or N, minus `remaining_forces`.
        iterations: Number of iterations; the first one assumes that all channels have equal noise.

    Raises:
        ValueError: See `weighted_least_squares`.
    """
    Y, tau = _rows(Y, tau)
    samples, channels, parameters = Y.shape
    _check_size(samples * channels, parameters)
    rows = jnp.concatenate([Y, tau[..., None]], axis=-1).swapaxes(0, 1)
    _, triangles = jax.vmap(factorizations.qr)(rows)  # one per channel; the rounds need no other data
    smallest = jnp.finfo(tau.dtype).eps * jnp.sqrt(jnp.mean(tau**2, axis=0))  # lower bound for exact data without noise

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


def _rows(Y: Any, tau: Any) -> tuple[Float[Array, "samples channels parameters"], Float[Array, "samples channels"]]:
    """Regressors and forces as arrays.

    Raises:
        ValueError: An array has the wrong shape.
    """
    Y, tau = floating(Y), floating(tau)
    if Y.ndim != 3:
        raise ValueError(f"Y has shape {Y.shape}; give the shape (samples, channels, parameters)")
    if tau.shape != Y.shape[:2]:
        raise ValueError(
            f"tau has shape {tau.shape}; give {Y.shape[:2]}, one row per sample of Y and one column per channel"
        )
    return Y, tau


def _flat(Y: Array, tau: Array, noise: Array) -> tuple[Array, Array, Array]:
    """Arrays with one row per equation."""
    return Y.reshape(-1, Y.shape[-1]), tau.ravel(), noise.ravel()


def _fit(
    columns: Float[Array, "*equations p"],
    right: Float[Array, "*equations"],
    std: Float[Array, "*equations"],
    noise: Float[Array, "samples channels"],
    freedom: int,
    square: Float[Array, ""] | float = 0.0,
) -> LinearFit:
    """Fit of rows columns / std to right / std, with the given degrees of freedom.

    Args:
        columns: Regressors.
        right: Measured forces.
        std: Standard deviations of the equations.
        noise: Standard deviations in the result.
        freedom: Degrees of freedom.
        square: Sum of the squared residuals of earlier measurements.
    """
    p = columns.shape[-1]
    _check_size(freedom + p, p)
    R, z, rest = _decomposed(columns, right, std)
    # The Frobenius norm is used because singular values would require another decomposition.
    size = jnp.linalg.norm(R, axis=0)
    inverse = _inverse(R / size[None]) / size[:, None]
    condition = jnp.linalg.norm(R / size[None]) * jnp.linalg.norm(inverse * size[:, None])
    if not isinstance(condition, Tracer) and not float(condition) * float(jnp.finfo(right.dtype).eps) ** 0.75 < 1.0:
        raise ValueError(
            f"the columns of the regressor are linearly dependent (condition {float(condition):.1e}); fit base parameters, "
            "BaseParameters.columns(Y), or give a prior"
        )
    variance = (square + rest) / freedom
    return LinearFit(dot(inverse, z), variance * dot(inverse, inverse.T), noise, variance, condition, freedom, R)


@stored_outside_jit
def _decomposed(
    columns: Float[Array, "*m p"], right: Float[Array, "*m"], std: Float[Array, "*m"]
) -> tuple[Float[Array, "p p"], Float[Array, "p"], Float[Array, ""]]:
    """R, z and the sum of the squared residuals of the rows columns / std and right / std."""
    return _of_blocks(*_flat(columns, right, std))


@jax.custom_jvp
def _of_blocks(columns: Array, right: Array, std: Array) -> tuple[Array, Array, Array]:
    m, p = columns.shape
    length = min(m, _BLOCK)

    def add(index, found):
        R, z, square = found
        start = jnp.minimum(index * length, m - length)
        block, values, scale = (jax.lax.dynamic_slice_in_dim(x, start, length) for x in (columns, right, std))
        # The last block begins with rows of the one before it.
        weights = jnp.where(start + jnp.arange(length) < index * length, 0.0, 1.0 / scale)
        block, values = weights[:, None] * block, weights * values
        B = factorizations.solve_triangular(R, block.T, lower=False, transposed=True)
        small = jnp.sum(B**2) <= p
        many, few = (R, z, square, values, B), (jnp.concatenate([R, block]), jnp.concatenate([z, values]), square)
        return jax.lax.cond(small, lambda: _joined_to_many(*many), lambda: _joined(*few))

    nothing = jnp.zeros((p, p), right.dtype), jnp.zeros(p, right.dtype), jnp.zeros((), right.dtype)
    return jax.lax.fori_loop(0, -(-m // length), add, nothing)


@_of_blocks.defjvp
def _of_blocks_jvp(primals, tangents):
    """Derivatives of the decomposition of all rows at once, since the triangle of the first blocks may be singular."""
    return jax.jvp(lambda columns, right, std: _joined(columns / std[:, None], right / std, 0.0), primals, tangents)


def _joined_to_many(R: Array, z: Array, square: Array, values: Array, B: Array) -> tuple[Array, Array, Array]:
    """`_joined` for R and rows B' R that are not more than the rows before them.

    The matrix 1 + B B' then has a condition near one, so its Cholesky factor is as accurate as a QR decomposition, and five times
    as fast (the Cholesky QR algorithm with a preconditioner, Yamamoto et al. 2015).
    """
    L = factorizations.cholesky(jnp.eye(len(z), dtype=z.dtype) + dot(B, B.T))
    new = factorizations.solve_triangular(L, z + dot(B, values), lower=True)
    y = factorizations.solve_triangular(L, new, lower=True, transposed=True)
    return dot(L.T, R), new, square + jnp.sum((z - y) ** 2) + jnp.sum((values - dot(B.T, y)) ** 2)


def _joined(rows: Array, right: Array, square: Array | float) -> tuple[Array, Array, Array]:
    """R, z and the sum of the squared residuals, to which `square` is added, of rows with unit standard deviation."""
    Q, R = factorizations.qr(rows)
    z = dot(Q.T, right)
    return R, z, square + jnp.sum((right - dot(Q, z)) ** 2)


def _inverse(triangle: Float[Array, "p p"]) -> Float[Array, "p p"]:
    return factorizations.solve_triangular(triangle, jnp.eye(len(triangle), dtype=triangle.dtype), lower=False)


def _check_size(equations: int, parameters: int) -> None:
    if equations <= parameters:
        raise ValueError(
            f"{equations} equations do not determine {parameters} parameters and the noise; give more samples, or a prior"
        )
