"""Parameters: the free values of a pytree, with their charts, priors and names.

The pytree is called the subject. It is usually a `Plant`, but any pytree of arrays can be used, such as a `System` or a `Model`.
Values are addressed by a path, such as "system.model.mass", and by names of rows, such as "upper". Invalid choices raise an error
immediately: an unknown path or name, a value that is free twice, or an initial value outside of its chart. Therefore a mistake in a
declaration cannot silently leave a value fixed.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxdyn.compute import kernel_function
from jaxdyn.display import Display, Displayed
from jaxdyn.errors import check_name
from jaxdyn.identify.addresses import (
    INERTIA,
    ParameterError,
    declared_at,
    entry_names,
    gather,
    leaf_at,
    rows_of,
    scatter,
    units_of,
    with_ones,
)
from jaxdyn.identify.charts import Bounded, Chart, PhysicalInertia, Positive, Real, Unconstrained
from jaxdyn.identify.estimates import Address, Follower
from jaxdyn.identify.measurement import Plant
from jaxdyn.mechanism.messages import check_instance, checked_list, described
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import quantities


@dataclasses.dataclass(frozen=True)
class GaussianPrior:
    """Gaussian prior of each value, with mean and standard deviation in the unit of the value.

    Attributes:
        std: Standard deviation; one value, or one per value of the parameter.
        mean: Expected value; None for the value in the subject.
    """

    std: float | Sequence[float]
    mean: float | Sequence[float] | None = None


@dataclasses.dataclass(frozen=True)
class DivergencePrior:
    """Prior that keeps bodies close to the bodies of the subject; the measure is the log-det divergence between pseudo-inertias.

    Attributes:
        weight: Factor of the divergence in the loss. If the loss is a negative log-likelihood, the weight corresponds to a number
            of measurements: a relative error of 10 % in one direction increases the loss by about weight/50.
    """

    weight: float


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A free parameter: selected rows of an array of the subject, with a chart and a prior.

    Attributes:
        path: Dotted path of an array of the subject, such as "system.model.mass" or "system.forces.0.viscous"; several paths for
            charts that combine several arrays, such as `PhysicalInertia`.
        entries: Rows of the array, by name (bodies, joints, coordinates) or index; None for all rows.
        chart: Chart of the values; by default a chart of the values within the bounds that the class of the array declares,
            provided that the initial values are strictly inside these bounds.
        prior: Prior knowledge of the values.
        name: Name in reports; by default the last part of the path.
        unit: Unit of the values in reports; by default the unit that the class of the array declares.
    """

    path: str | tuple[str, ...]
    entries: Sequence[str | int] | None = None
    chart: Chart | None = None
    prior: GaussianPrior | DivergencePrior | None = None
    name: str | None = None
    unit: str | None = None

    def __post_init__(self):
        _check_address(self.path, self.entries)
        priors = "GaussianPrior(std), or DivergencePrior(weight)"
        check_instance(f"the chart of {self.path!r}", self.chart, Chart | None, "an instance, such as Positive()")
        check_instance(f"the prior of {self.path!r}", self.prior, GaussianPrior | DivergencePrior | None, priors)


@dataclasses.dataclass(frozen=True)
class Tie:
    """Values that depend linearly on a free parameter: value = factor * (values of the parameter) + offset.

    Attributes:
        path, entries: Values that depend on the parameter, selected as in `Parameter`.
        to: Name of the free parameter.
        factor, offset: One value each, or one per value of the free parameter.
    """

    path: str
    to: str
    entries: Sequence[str | int] | None = None
    factor: float | Sequence[float] = 1.0
    offset: float | Sequence[float] = 0.0

    def __post_init__(self):
        _check_address(self.path, self.entries)


def _check_address(path: Any, entries: Any) -> None:
    """Check that an argument is a path and that the entries are a sequence."""
    if not isinstance(path, str) and not (isinstance(path, tuple) and all(isinstance(part, str) for part in path)):
        raise TypeError(f'the path of a parameter is {described(path)}; give text such as "system.model.mass"')
    if isinstance(entries, str | int):
        raise TypeError(f"the entries of {path!r} are {entries!r}; give a tuple, ({entries!r},)")


# The values of a body in the order of `PhysicalInertia`: name, and the field of the model that determines the unit.
_INERTIA_VALUES = (
    ("mass", "mass"),
    *((f"com {c}", "com") for c in "xyz"),
    *((f"inertia {c}", "inertia") for c in ("xx", "yy", "zz", "xy", "xz", "yz")),
)


def body_inertia(
    body: str, *, path: str = "system.model", prior: GaussianPrior | DivergencePrior | None = None
) -> Parameter:
    """Mass, center of mass and inertia of a body as a free parameter that is always physically valid.

    Args:
        body: Name of the body.
        path: Path of the model in the subject.
        prior: `DivergencePrior`, or None.
    """
    paths = tuple(f"{path}.{leaf}".removeprefix(".") for leaf in INERTIA)
    return Parameter(paths, (body,), PhysicalInertia(), prior, name=body)


class _Placed(eqx.Module):
    """A parameter with its position in the subject and in the vector of unconstrained parameters."""

    address: Address = eqx.field(static=True)
    chart: Chart
    prior_mean: Float[Array, "values"] | None
    prior_std: Float[Array, "values"] | None
    divergence_weight: Float[Array, ""] | None
    free: tuple[int, int] = eqx.field(static=True)

    def value(self, x: Unconstrained) -> Float[Array, "values"]:
        """The values of this parameter, given all unconstrained parameters."""
        return self.chart.value(self.own(x))

    def deviations(self, x: Unconstrained) -> Float[Array, "values"] | None:
        """Values minus the mean of their Gaussian prior, in its standard deviations; None without such a prior."""
        if self.prior_std is None or self.prior_mean is None:
            return None
        return (self.value(x) - self.prior_mean.astype(x.dtype)) / self.prior_std.astype(x.dtype)

    def own(self, x: Float[Array, "all"]) -> Unconstrained:
        """The unconstrained parameters of this parameter among all unconstrained parameters."""
        return x[self.free[0] : self.free[1]]


class _Following(eqx.Module):
    """Values that follow others by a tie."""

    follower: Follower
    offset: Float[Array, "values"]


class Parameters(Displayed, eqx.Module):
    """The free parameters of a subject as one unconstrained vector x, and the map from x to the subject.

        parameters = Parameters(plant, [body_inertia("upper"), Parameter("system.forces.0.viscous", chart=Positive())])
        parameters.place(parameters.initial)   # the plant itself

    Args:
        subject: Pytree with the fixed parameters and the initial values of the free parameters.
        free: Free parameters.
        ties: Values that depend linearly on free parameters.

    Attributes:
        subject: Pytree with the initial values.
        labels: Name and unit of every value.

    Raises:
        TypeError: An entry of `free` is not a `Parameter`, or an entry of `ties` is not a `Tie`.
        UnknownName: A path or an entry does not exist.
        ParameterError: A chart or a prior is not valid, or a value is declared as free twice.
    """

    subject: PyTree
    labels: tuple[tuple[str, str], ...] = eqx.field(static=True)
    _placed: tuple[_Placed, ...]
    _following: tuple[_Following, ...]

    def __init__(self, subject: PyTree, free: Sequence[Parameter], ties: Sequence[Tie] = ()):
        free = checked_list("free parameters", free, Parameter, 'Parameter("system.model.mass")')
        ties = checked_list("ties", ties, Tie, "Tie(path, to)")
        if isinstance(subject, Plant):  # the estimates and the processing of an earlier fit do not belong to a new one
            subject = subject.bare
        if not free:
            raise ParameterError("nothing is free; declare at least one Parameter")
        names = [_name(parameter) for parameter in free]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ParameterError(f"several parameters are called {sorted(twice)[0]!r}; give each one a different name")
        placed, labels, taken = [], [], {}
        free_count = 0
        for parameter, name in zip(free, names, strict=True):
            paths = parameter.path if isinstance(parameter.path, tuple) else (parameter.path,)
            leaves = tuple(tuple(path.split(".")) for path in paths)
            rows = rows_of(subject, leaves, parameter.entries, name)
            for leaf in leaves:
                _claim(taken, subject, leaf, rows, name)
            values = gather(subject, leaves, rows)
            chart = _chart(parameter, subject, leaves, np.asarray(values))
            wrong = chart.validate(np.asarray(values))
            if wrong is not None:
                raise ParameterError(f"parameter {name!r}: {wrong}")
            chart, size = chart.about(values), chart.size(values.size)
            prior, address = _prior(parameter, values, name), Address(paths, rows, values.size)
            placed.append(_Placed(address, chart, *prior, (free_count, free_count + size)))
            free_count = free_count + size
            labels += _labels(parameter, name, subject, leaves, rows)
        self.subject, self.labels = subject, tuple(labels)
        self._placed = tuple(placed)
        self._following = tuple(_follow(tie, subject, names, placed, taken) for tie in ties)

    def _display(self) -> Display:
        subject = self.subject._display().title if isinstance(self.subject, Displayed) else type(self.subject).__name__
        rows = {"values": ", ".join(f"{name} ({unit})" if unit else name for name, unit in self.labels)}
        rows |= {"ties": str(len(self._following)), "subject": subject}
        return Display(f"Parameters({len(self.labels)} values, {self.size} unconstrained)", rows)

    @property
    def size(self) -> int:
        """Number of unconstrained parameters."""
        return self._placed[-1].free[1]

    @property
    def longest_steps(self) -> Float[np.ndarray, "P"]:
        """Largest change of each unconstrained parameter in one step of a fit, from the charts."""
        return np.concatenate([np.full(p.free[1] - p.free[0], p.chart.longest_step) for p in self._placed])

    def frees(self, path: str) -> bool:
        """Whether some of the values at a path are free, or depend on free values by a tie."""
        places = [*self.addresses, *(follower.address for follower in self.followers)]
        return any(path in place.paths for place in places)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Places of all values in the subject, in the order of `labels`."""
        return tuple(p.address for p in self._placed)

    @property
    def charts(self) -> tuple[Chart, ...]:
        """Chart of each parameter, in the order of `addresses`."""
        return tuple(p.chart for p in self._placed)

    @property
    def followers(self) -> tuple[Follower, ...]:
        """The values that depend on free values by ties."""
        return tuple(f.follower for f in self._following)

    @property
    def without_values(self) -> "Parameters":
        """The parameters with ones for the values of the subject that `place` replaces."""
        subject = self.subject
        for address in (*self.addresses, *(follower.address for follower in self.followers)):
            subject = with_ones(subject, address.leaves, address.rows)
        return eqx.tree_at(lambda parameters: parameters.subject, self, subject)

    @property
    def declared(self) -> PyTree:
        """Priors, charts and ties."""
        return self._placed, self._following

    @property
    def initial(self) -> Unconstrained:
        """The initial guess: the unconstrained parameters of the subject."""
        return self.unconstrained(self.subject)

    @kernel_function
    def unconstrained(self, subject: PyTree) -> Unconstrained:
        """The unconstrained parameters of another subject with the same structure."""
        return jnp.concatenate(
            [p.chart.unconstrained(gather(subject, p.address.leaves, p.address.rows)) for p in self._placed]
        )

    @kernel_function
    def values(self, x: Unconstrained) -> Float[Array, "values"]:
        """All values in their units, in the order of `labels`."""
        return jnp.concatenate([p.value(x) for p in self._placed])

    @kernel_function
    def place(self, x: Unconstrained) -> PyTree:
        """The subject with the values that belong to the unconstrained parameters x."""
        subject = self.subject
        for p in self._placed:
            subject = scatter(subject, p.address.leaves, p.address.rows, p.value(x))
        for f in self._following:
            follower, address = f.follower, f.follower.address
            values = follower.factor.astype(x.dtype) * self._placed[follower.leader].value(x) + f.offset.astype(x.dtype)
            subject = scatter(subject, address.leaves, address.rows, values)
        return subject

    @kernel_function
    def prior_residuals(self, x: Unconstrained) -> Float[Array, "residuals"]:
        """Residuals r of the priors: 1/2 r'r is the negative logarithm of the prior density, up to a constant."""
        rows = []
        for p in self._placed:
            if (deviations := p.deviations(x)) is not None:
                rows.append(deviations)
            if p.divergence_weight is not None and isinstance(p.chart, PhysicalInertia):
                rows.append(jnp.sqrt(2.0 * p.divergence_weight.astype(x.dtype)) * p.chart.divergence_roots(p.own(x)))
        return jnp.concatenate(rows) if rows else jnp.zeros(0, x.dtype)

    @kernel_function
    def prior_deviations(self, x: Unconstrained) -> Float[Array, "values"]:
        """Values minus the means of their Gaussian priors, in standard deviations; 0 for values without one."""
        each = ((p.deviations(x), p.address.count) for p in self._placed)
        return jnp.concatenate([jnp.zeros(count, x.dtype) if own is None else own for own, count in each])


def _name(parameter: Parameter) -> str:
    if parameter.name is not None:
        return parameter.name
    return parameter.path.split(".")[-1] if isinstance(parameter.path, str) else parameter.path[0]


def _claim(
    taken: dict[Any, str], subject: PyTree, leaf: tuple[str, ...], rows: tuple[int, ...] | None, name: str
) -> None:
    """Register values as free; raises an error if one of them is already registered."""
    array = leaf_at(subject, leaf, name)
    every = range(array.shape[0]) if array.ndim else range(1)
    for row in every if rows is None else rows:
        if (leaf, row) in taken:
            raise ParameterError(
                f"parameter {name!r}: row {row} of {'.'.join(leaf)} is already free as {taken[leaf, row]!r}; declare it once"
            )
        taken[leaf, row] = name


def _chart(parameter: Parameter, subject: PyTree, leaves: tuple[tuple[str, ...], ...], values: np.ndarray) -> Chart:
    """The chart of a parameter; by default a chart of the values within the declared bounds."""
    if parameter.chart is not None:
        return parameter.chart
    declared = declared_at(subject, leaves[0])
    if declared.minimum == 0.0 and declared.maximum is None and np.all(values > 0.0):
        return Positive()
    if declared.minimum is not None and declared.maximum is not None:
        bounded = Bounded(declared.minimum, declared.maximum)
        return bounded if bounded.validate(values) is None else Real()
    return Real()


def _prior(parameter: Parameter, values: Array, name: str) -> tuple[Array | None, Array | None, Array | None]:
    prior = parameter.prior
    if prior is None:
        return None, None, None
    if isinstance(prior, DivergencePrior):
        if not isinstance(parameter.chart, PhysicalInertia):
            raise ParameterError(
                f"parameter {name!r}: DivergencePrior applies to bodies only; use GaussianPrior, or body_inertia"
            )
        if not prior.weight >= 0:
            raise ParameterError(f"parameter {name!r}: the weight of its prior is {prior.weight}; give 0 or more")
        return None, None, jnp.asarray(prior.weight, values.dtype) if prior.weight else None
    mean = np.asarray(values) if prior.mean is None else np.asarray(prior.mean, float)
    std = np.asarray(prior.std, float)
    for what, array in (("mean", mean), ("std", std)):
        if array.shape not in ((), values.shape):
            raise ParameterError(
                f"parameter {name!r}: {what} of its prior has {array.size} values; give 1 or {values.size}"
            )
    if not np.all(std > 0):
        raise ParameterError(f"parameter {name!r}: std of its prior is {std.tolist()}; give positive values")
    if not np.all(np.isfinite(mean)):
        raise ParameterError(f"parameter {name!r}: mean of its prior is {mean.tolist()}; give finite values")
    mean, std = (jnp.asarray(np.broadcast_to(x, values.shape), values.dtype) for x in (mean, std))
    return mean, std, None


def _labels(
    parameter: Parameter, name: str, subject: PyTree, leaves: tuple[tuple[str, ...], ...], rows: tuple[int, ...] | None
) -> list[tuple[str, str]]:
    if isinstance(parameter.chart, PhysicalInertia):
        declared = quantities(Model)
        return [(f"{value} [{name}]", declared[field].unit_of(turns=True)) for value, field in _INERTIA_VALUES]
    labels = []
    for leaf in leaves:
        array, unit = leaf_at(subject, leaf, name), units_of(subject, leaf)
        if array.ndim == 0:
            labels.append((name, parameter.unit or unit(0, 0)))
            continue
        known = entry_names(subject, leaf, array.shape[0])
        inner = [""] if array.ndim == 1 else [f" {c}" for c in ("xyz" if array[0].size == 3 else range(array[0].size))]
        labels += [
            (f"{name} [{known[row]}]{part}", parameter.unit or unit(row, k))
            for row in (range(array.shape[0]) if rows is None else rows)
            for k, part in enumerate(inner)
        ]
    return labels


def _follow(tie: Tie, subject: PyTree, names: list[str], placed: list[_Placed], taken: dict[Any, str]) -> _Following:
    leaf, name = tuple(tie.path.split(".")), f"tie of {tie.path}"
    check_name("parameter", tie.to, names, where=name)
    rows = rows_of(subject, (leaf,), tie.entries, name)
    _claim(taken, subject, leaf, rows, name)
    leader = names.index(tie.to)
    count, own = placed[leader].address.count, gather(subject, (leaf,), rows)
    if own.size != count:
        raise ParameterError(f"{name}: it has {own.size} values, but {tie.to!r} has {count}; choose entries that match")
    factor, offset = (jnp.asarray(x, own.dtype) for x in (tie.factor, tie.offset))
    for what, array in (("factor", factor), ("offset", offset)):
        if array.shape not in ((), own.shape) or not np.all(np.isfinite(array)):
            raise ParameterError(f"{name}: its {what} is {array.tolist()}; give 1 finite value or {own.size}")
    factor, offset = (jnp.broadcast_to(x, own.shape) for x in (factor, offset))
    return _Following(Follower(Address((tie.path,), rows, count), leader, factor), offset)
