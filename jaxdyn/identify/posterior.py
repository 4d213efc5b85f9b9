"""Machines drawn from the posterior distribution of a fit: all of them agree with its data and its priors.

Near its maximum, the posterior density of the unconstrained parameters x is a normal density (Laplace approximation). Its
covariance follows from the covariance C of the values by the inverse of the slope of the charts, G = d value/d x:

    x ~ N(x_0, G^-1 C G^-T)

Values are drawn by these x, so that every machine is physically valid: masses are positive, and inertias are those of bodies. If
log(value) has the standard deviation sigma, the 97.5 % quantile of a positive value is exp(2 sigma) times its estimate. Where only
a wide prior determines the value, this tail is far longer than that of the prior.
"""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jaxdyn.compute import stored_jit
from jaxdyn.identify.charts import Positive
from jaxdyn.identify.estimates import Uncertainty
from jaxdyn.identify.measurement import Plant
from jaxdyn.identify.prediction_intervals import root_of_covariance, with_values

_LONGEST = 1.0  # standard deviation of the logarithm of a positive value without a warning


class Posterior(eqx.Module):
    """Distribution of the machines that agree with a fit.

    Attributes:
        plant: Plant with the estimated values, without their uncertainty.
        estimates: Estimates, with the places of the estimated values in the plant.
        center: Unconstrained parameters of the estimates, those of each parameter.
        root: Matrix L, whose product L L' is the covariance of all unconstrained parameters.
    """

    plant: Plant
    estimates: Uncertainty
    center: tuple[Float[Array, "_"], ...]
    root: Float[Array, "P rank"]

    def values(self, key: PRNGKeyArray) -> Float[Array, "values"]:
        """Values of the estimated parameters of one machine, in the order of `Uncertainty.labels`."""
        step = self.root @ jax.random.normal(key, self.root.shape[1:], self.root.dtype)
        steps = jnp.split(step, np.cumsum([len(x) for x in self.center])[:-1])
        parts = zip(self.estimates.charts, self.center, steps, strict=True)
        return jnp.concatenate([chart.value(x + step) for chart, x, step in parts])

    def machine(self, values: Float[Array, "values"]) -> Plant:
        """The machine with these values of the estimated parameters; a machine has no estimates."""
        return with_values(self.plant, self.estimates, values)


def posterior(plant: Plant) -> Posterior:
    """The distribution of the machines that agree with the fit of a plant.

    Args:
        plant: Plant with its estimates.

    Raises:
        ValueError: The plant has no estimates of a fit.
    """
    known = plant.estimates
    if known is None or known.determined is None or not known.charts:
        raise ValueError(
            "the plant has no estimates of a fit; give Plant(..., estimates=uncertainty(problem, unknowns)), or load_plant of a run"
        )
    unknown = [name for (name, _), deviation in zip(known.labels, known.std, strict=True) if np.isinf(deviation)]
    if unknown:
        warnings.warn(
            f"neither the data nor priors determine {', '.join(unknown)}; all samples keep the estimates in the directions that "
            "are not determined, so give priors to these parameters",
            stacklevel=3,
        )
    counts = [address.count for address in known.addresses]
    parts = zip(known.charts, np.split(np.asarray(known.values), np.cumsum(counts)[:-1]), strict=True)
    center, first, root = [], 0, np.asarray(root_of_covariance(known), np.float64)
    rows, wide = [], []
    for chart, values in parts:
        x = chart.unconstrained(jnp.asarray(values))
        G = np.asarray(jax.jacfwd(chart.value)(x), np.float64)
        sizes = np.maximum(np.linalg.norm(G, axis=1, keepdims=True), np.finfo(float).tiny)  # values have several units
        rows.append(np.linalg.pinv(G / sizes) @ (root[first : first + len(values)] / sizes))
        if isinstance(chart, Positive):
            spread = np.linalg.norm(rows[-1], axis=1) > _LONGEST
            wide += [known.labels[first + k][0] for k in np.flatnonzero(spread)]
        center.append(x)
        first += len(values)
    if wide:
        warnings.warn(
            f"the standard deviation sigma of the logarithm of {', '.join(wide)} is larger than {_LONGEST:g}; samples reach "
            "exp(2 sigma) times the estimate, so record motions that determine these values, or give them narrower priors",
            stacklevel=3,
        )
    return Posterior(
        plant._changed(estimates=None), known, tuple(center), jnp.asarray(np.concatenate(rows), known.values.dtype)
    )


def samples(plant: Plant, key: PRNGKeyArray, count: int) -> Plant:
    """Machines that agree with the recordings of a fit, as one plant with a leading axis: draws from the posterior distribution.

    The unconstrained parameters of the charts are normally distributed about the estimates, with the covariance of the fit, so that
    every machine is physically valid. Where the data determine nothing, priors do; where both determine nothing, all samples keep
    the estimates, and a warning names the parameters. An estimate at a bound of its chart stays there. The 97.5 % quantile of a
    positive value is exp(2 sigma) times its estimate, where sigma is the standard deviation of its logarithm; a warning names the
    values whose sigma is larger than 1, because the tail of their true posterior is shorter.

    Args:
        plant: Plant with its estimates, for example from `jaxdyn.io.load_plant`.
        key: Random key.
        count: Number of machines.

    Returns:
        The machines, for `jax.vmap`; they have no estimates. Commands of `Plant.controls` must be `Knots` there.

    Raises:
        ValueError: The plant has no estimates of a fit.

    Source: MacKay 2003, chapter 27.

    Example:
        machines = identify.samples(jaxdyn.io.load_plant("runs/arm"), jax.random.key(0), 100)
        jax.vmap(lambda machine: jaxdyn.rollout(machine.system, start, machine.controls(knots), dt=1e-3, steps=1000))(machines)
    """
    return _drawn(posterior(plant), jax.random.split(key, count))


@stored_jit
def _drawn(distribution: Posterior, keys: Array) -> Plant:
    return jax.vmap(lambda key: distribution.machine(distribution.values(key)))(keys)
