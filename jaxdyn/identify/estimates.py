"""Estimates of parameters with their names, units and covariance, and their places in a plant."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute import kernel_function
from jaxdyn.display import Display, Displayed, known, number_text
from jaxdyn.identify.charts import Chart
from jaxdyn.mechanism.quantity import plain

QUANTILE = 1.959963984540054  # 97.5 % quantile of the normal distribution


@dataclasses.dataclass(frozen=True)
class Address:
    """The place of some values in a plant.

    Attributes:
        paths: Dotted paths of the arrays that contain the values, such as "system.model.mass".
        rows: Indices of the rows of these arrays; None for all rows.
        count: Number of values.
    """

    paths: tuple[str, ...]
    rows: tuple[int, ...] | None
    count: int

    @property
    def leaves(self) -> tuple[tuple[str, ...], ...]:
        """The paths, each as a tuple of its parts."""
        return tuple(tuple(path.split(".")) for path in self.paths)


class Follower(eqx.Module):
    """Values that depend on the values of an address because of a `Tie`.

    Attributes:
        address: Place of the dependent values.
        leader: Index of the address on whose values they depend.
        factor: Derivative of each dependent value with respect to the value on which it depends.
    """

    address: Address = eqx.field(static=True)
    leader: int = eqx.field(static=True, converter=plain)
    factor: Float[Array, "values"]


class HeldOut(eqx.Module):
    """Errors of predictions of training data that are left out, see `jaxdyn.identify.held_out`.

    Attributes:
        times: Times since the start of a prediction; the single time 0 for forces, whose errors do not depend on it.
        deviations: Standard deviations at these times: 95 % of the errors are within 1.96 of them.
    """

    times: Float[Array, "times"]
    deviations: Float[Array, "times channels"]


class Uncertainty(Displayed, eqx.Module):
    """Estimates of a fit and their uncertainty.

    Attributes:
        labels: Name and unit of every value.
        values: Estimates.
        covariance: Covariance of the estimates; variances are infinite for values that neither data nor priors determine, and zero
            at a bound of a chart.
        noise_scale: Ratio of the observed residuals to the assumed noise.
        warnings: Sentences about values that the data determine poorly or not at all.
        determined: Finite covariance of the estimates along the directions that data or priors determine.
        noise: Observed standard deviation of each measurement or force of the fit.
        noise_of: Quantities to which `noise` belongs, "measurements" or "forces"; empty for others.
        addresses: Places of the estimated values in the plant, in the order of `values`.
        followers: Values of the plant that depend on estimated values.
        undetermined: Changes of the values, one column per direction, that neither data nor priors determine.
        held_out: Errors of predictions of training data that are left out; None if they were not computed.
        charts: Chart of each entry of `addresses`, in whose unconstrained parameters `samples` draws.
    """

    labels: tuple[tuple[str, str], ...] = eqx.field(static=True)
    values: Float[Array, "values"]
    covariance: Float[Array, "values values"]
    noise_scale: Float[Array, ""]
    warnings: tuple[str, ...] = eqx.field(static=True)
    determined: Float[Array, "values values"] | None = None
    noise: Float[Array, "channels"] | None = None
    noise_of: str = eqx.field(static=True, default="")
    addresses: tuple[Address, ...] = eqx.field(static=True, default=())
    followers: tuple[Follower, ...] = ()
    undetermined: Float[Array, "values directions"] | None = None
    held_out: HeldOut | None = None
    charts: tuple[Chart, ...] = ()

    def noise_after(self, times: Float[Array | np.ndarray, "*times"]) -> Float[np.ndarray, "*times channels"]:
        """Standard deviations of the errors of predictions that exact estimates would have, some times (s) after their start.

        They are those of left-out training data; without these, they are the observed noise of the fit. After the longest
        prediction of the fit they do not grow further.

        Args:
            times: Times since the start of a prediction, s.
        """
        times = np.asarray(times)
        if self.held_out is None:
            noise = np.zeros(0) if self.noise is None else np.asarray(self.noise)
            return np.broadcast_to(noise, (*times.shape, noise.size))
        columns = np.asarray(self.held_out.deviations).T
        return np.stack([np.interp(times, np.asarray(self.held_out.times), column) for column in columns], axis=-1)

    def without(self, path: str) -> "Uncertainty":
        """The estimates without the estimates of one array of the plant.

        Args:
            path: Dotted path of the array.
        """
        counts = [address.count for address in self.addresses]
        kept = [k for k, address in enumerate(self.addresses) if address.paths != (path,)]
        if len(kept) == len(counts):
            return self
        owner = np.repeat(np.arange(len(counts)), counts)
        rows = np.flatnonzero(np.isin(owner, kept))
        square = np.ix_(rows, rows)
        followers = [
            dataclasses.replace(follower, leader=kept.index(follower.leader))
            for follower in self.followers
            if follower.leader in kept and follower.address.paths != (path,)
        ]
        return dataclasses.replace(
            self,
            labels=tuple(self.labels[k] for k in rows),
            values=self.values[rows],
            covariance=self.covariance[square],
            determined=None if self.determined is None else self.determined[square],
            addresses=tuple(self.addresses[k] for k in kept),
            followers=tuple(followers),
            undetermined=None if self.undetermined is None else self.undetermined[rows],
            charts=tuple(chart for k, chart in enumerate(self.charts) if k in kept),
        )

    @property
    @kernel_function
    def std(self) -> Float[Array, "values"]:
        """Standard deviations of the estimates."""
        return jnp.sqrt(jnp.diagonal(self.covariance))

    @property
    @kernel_function
    def intervals(self) -> Float[Array, "values 2"]:
        """95 % intervals (lower, upper) of the estimates; NaN for values at a bound, which have none."""
        width = jnp.where(self.std > 0.0, QUANTILE * self.std, jnp.nan)
        return jnp.stack([self.values - width, self.values + width], axis=1)

    @property
    @kernel_function
    def correlation(self) -> Float[Array, "values values"]:
        """Correlations of the estimates; 0 for values that are not identified or have zero variance."""
        std = self.std
        known = jnp.isfinite(std) & (std > 0)
        inverse = jnp.where(known, 1.0 / jnp.where(known, std, 1.0), 0.0)
        return jnp.where(known[:, None] & known[None], self.covariance, 0.0) * inverse[:, None] * inverse[None]

    def _display(self) -> Display:
        values, covariance = known(self.values), known(self.covariance)
        rows = {"noise scale": number_text(self.noise_scale)}
        if self.warnings:
            rows["warnings"] = "; ".join(self.warnings)
        if values is not None and covariance is not None:
            std = np.sqrt(np.diagonal(covariance))
            for (name, unit), value, deviation in zip(self.labels, values, std, strict=True):
                rows[name] = f"{value:.6g} ± {deviation:.2g} {unit}"
        return Display(f"Uncertainty({len(self.labels)} values)", rows)
