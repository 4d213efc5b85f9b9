"""Charts (parametrizations, bijectors): maps between unconstrained parameters and physically valid values.

An optimizer changes the unconstrained parameters x; every x results in a valid value. A chart is one-to-one and smooth, so that
every valid value can be reached and the chart does not make the Gauss-Newton problem singular. The values of a chart are a flat
vector, in the order of the rows of the `Parameter`.
"""

import abc
import math
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute import kernel_function
from jaxdyn.compute.arrays import dot, floating, on_device
from jaxdyn.mechanism.quantity import check_settings, plain, quantity
from jaxdyn.spatial import factorizations, quaternion, rotation
from jaxdyn.spatial.inertia import (
    SpatialInertia,
    inertia_from_planar,
    symmetric_entries,
    symmetric_matrix,
)
from jaxdyn.spatial.rotation import cross

Unconstrained = Float[Array, "unconstrained"]
Values = Float[Array, "values"]

# Positions of the six unconstrained parameters above the diagonal of the 4x4 triangular factor.
_ROWS, _COLUMNS = np.triu_indices(4, 1)
# A body is flat if the smallest eigenvalue of its pseudo-inertia, scaled to a unit diagonal, is below this multiple of eps.
_FLAT = 10.0


class Chart(eqx.Module):
    """A smooth one-to-one map from unconstrained parameters to the allowed values of a parameter.

    Attributes:
        kind: Name in configs of a chart for a single array.
        longest_step: Largest change of an unconstrained parameter in one step of a fit; farther away, the linear approximation in
            this parameter does not hold.
    """

    kind: ClassVar[str]
    longest_step: ClassVar[float] = math.inf

    def __check_init__(self):
        check_settings(self)

    def about(self, values: Values) -> "Chart":
        """Return the chart with the given values as its reference; charts without a reference are unchanged."""
        return self

    def size(self, values: int) -> int:
        """Number of unconstrained parameters that correspond to a given number of values."""
        return values

    @abc.abstractmethod
    def validate(self, values: np.ndarray) -> str | None:
        """Reason why the chart does not contain these values, with the remedy; None if it contains them."""

    @abc.abstractmethod
    def value(self, x: Unconstrained) -> Values:
        """The values that correspond to given unconstrained parameters."""

    @abc.abstractmethod
    def unconstrained(self, values: Values) -> Unconstrained:
        """The unconstrained parameters that correspond to given values."""


class Real(Chart):
    """Any values (scaled identity): value = scale x.

    Attributes:
        scale: Typical size of a change of the value; it affects only optimizers without second-order information.
    """

    kind: ClassVar[str] = "real"

    scale: float = eqx.field(static=True, converter=plain, default=1.0, metadata=quantity("1", positive=True))

    def validate(self, values: np.ndarray) -> str | None:
        if not np.all(np.isfinite(values)):
            return f"it starts at {values.tolist()}; start from finite values"
        return None if self.scale > 0 else f"the scale of its chart is {self.scale}; give a positive scale"

    def value(self, x: Unconstrained) -> Values:
        return self.scale * x

    def unconstrained(self, values: Values) -> Unconstrained:
        return values / self.scale


class Positive(Chart):
    """Positive values: value = exp(x)."""

    kind: ClassVar[str] = "positive"
    longest_step: ClassVar[float] = math.log(4.0)

    def validate(self, values: np.ndarray) -> str | None:
        return (
            None
            if np.all((values > 0) & np.isfinite(values))
            else f"it starts at {values.tolist()}; start from positive values"
        )

    def value(self, x: Unconstrained) -> Values:
        return jnp.exp(x)

    def unconstrained(self, values: Values) -> Unconstrained:
        return jnp.log(values)


class Bounded(Chart):
    """Values between two bounds: value = lower + (upper - lower) / (1 + exp(-x)).

    Attributes:
        lower, upper: Bounds, in the unit of the value.
    """

    kind: ClassVar[str] = "bounded"

    lower: Float[Array, "*values"] = eqx.field(converter=floating)
    upper: Float[Array, "*values"] = eqx.field(converter=floating)

    def validate(self, values: np.ndarray) -> str | None:
        lower, upper = np.asarray(self.lower), np.asarray(self.upper)
        if not np.all(lower < upper):
            return f"its bounds are {lower.tolist()} and {upper.tolist()}; give lower < upper"
        if not np.all((lower < values) & (values < upper)):
            return f"it starts at {values.tolist()}; start between the bounds {lower.tolist()} and {upper.tolist()}, not on them"
        return None

    def value(self, x: Unconstrained) -> Values:
        lower, upper = self.lower.astype(x.dtype), self.upper.astype(x.dtype)
        return lower + (upper - lower) * (0.5 + 0.5 * jnp.tanh(0.5 * x))

    def unconstrained(self, values: Values) -> Unconstrained:
        lower, upper = self.lower.astype(values.dtype), self.upper.astype(values.dtype)
        return jnp.log((values - lower) / (upper - values))


class UnitVector(Chart):
    """Unit vectors, with two unconstrained parameters.

    The parameters are the components of the rotation vector that is perpendicular to a reference vector and rotates it to the
    value. The chart is regular except at the direction opposite to the reference.

    Attributes:
        reference: Unit vector whose parameters are zero; a fit uses the initial value.
    """

    kind: ClassVar[str] = "unit_vector"

    reference: Float[Array, "3"] = eqx.field(converter=floating, default=(0.0, 0.0, 1.0))

    def about(self, values: Values) -> "UnitVector":
        return UnitVector(values)

    def size(self, values: int) -> int:
        return 2

    def validate(self, values: np.ndarray) -> str | None:
        if values.shape != (3,) or abs(np.linalg.norm(values) - 1.0) > 1e-6:
            return f"it starts at {values.tolist()}; start from one vector of length 1"
        return None

    def value(self, x: Unconstrained) -> Values:
        reference = self.reference.astype(x.dtype)
        return dot(rotation.exponential(dot(self._across().astype(x.dtype), x)), reference)

    def unconstrained(self, values: Values) -> Unconstrained:
        reference = self.reference.astype(values.dtype)
        turn = jnp.concatenate([(1.0 + dot(reference, values))[None], cross(reference, values)])
        return dot(self._across().astype(values.dtype).T, quaternion.logarithm(turn))

    def _across(self) -> Float[Array, "3 2"]:
        """Two unit vectors that are perpendicular to the reference and to each other."""
        smallest = jnp.argmin(jnp.abs(self.reference))
        first = cross(self.reference, jnp.asarray(np.eye(3), self.reference.dtype)[smallest])
        first = first / jnp.sqrt(dot(first, first))
        return jnp.stack([first, cross(self.reference, first)], axis=1)


class Rotation(Chart):
    """Unit quaternions, with three unconstrained parameters: value = reference exp(x), x a rotation vector on inner axes (rad).

    Attributes:
        reference: Quaternion whose parameters are zero; a fit uses the initial value.
    """

    kind: ClassVar[str] = "rotation"

    reference: Float[Array, "4"] = eqx.field(converter=floating, default=(1.0, 0.0, 0.0, 0.0))

    def about(self, values: Values) -> "Rotation":
        return Rotation(values)

    def size(self, values: int) -> int:
        return 3

    def validate(self, values: np.ndarray) -> str | None:
        if values.shape != (4,) or abs(np.linalg.norm(values) - 1.0) > 1e-6:
            return f"it starts at {values.tolist()}; start from one unit quaternion (w, x, y, z)"
        return None

    def value(self, x: Unconstrained) -> Values:
        return quaternion.multiply(self.reference.astype(x.dtype), quaternion.exponential(x))

    def unconstrained(self, values: Values) -> Unconstrained:
        return quaternion.logarithm(
            quaternion.multiply(quaternion.inverse(self.reference.astype(values.dtype)), values)
        )


class PhysicalInertia(Chart):
    """Mass, center of mass and inertia of a physically valid body, with ten unconstrained parameters: log-Cholesky about a
    reference.

        P = U0 T T' U0',    P0 = U0 U0',    T = upper triangular with diagonal exp(d)

    P is the 4x4 pseudo-inertia about the body origin. P0 is the pseudo-inertia of the reference body, whose ten unconstrained
    parameters are zero. A body is physically valid (some distribution of mass has its ten inertial parameters) if and only if P is
    positive definite, and for each positive definite P there is exactly one T. The unconstrained parameters are dimensionless:
    (d_1, ..., d_4, t_12, t_13, t_14, t_23, t_24, t_34).

    Values are (mass, com, inertia about the center of mass: xx, yy, zz, xy, xz, yz), as in `Model`.

    Attributes:
        factor: Triangular factor U0 of the pseudo-inertia of the reference.

    Source: theory.md (F5); Wensing, Kim and Slotine 2018; Rucker and Wensing 2022.
    """

    factor: Float[Array, "4 4"] = eqx.field(converter=floating, default_factory=lambda: np.eye(4))

    def about(self, values: Values) -> "PhysicalInertia":
        return PhysicalInertia(_upper_factor(_pseudo_inertia(values)))

    def validate(self, values: np.ndarray) -> str | None:
        if values.shape != (10,):
            return f"it has {values.size} values; give mass, com and inertia of one body"
        pseudo = np.asarray(_pseudo_inertia(on_device(values)), np.float64)
        scale = 1.0 / np.sqrt(np.maximum(np.diag(pseudo), np.finfo(np.float64).tiny))
        # With a unit diagonal the smallest eigenvalue does not depend on units, and is a rounding error for flat bodies.
        if not np.linalg.eigvalsh(scale[:, None] * pseudo * scale)[0] > _FLAT * np.finfo(values.dtype).eps:
            return (
                "its mass, com and inertia are not those of a body of finite size; "
                "start from a body that extends in all directions"
            )
        return None

    def value(self, x: Unconstrained) -> Values:
        factor = dot(self.factor.astype(x.dtype), self._triangle(x))
        pseudo = dot(factor, factor.T)
        mass, moment = pseudo[3, 3], pseudo[:3, 3]
        com = moment / mass
        inertia = inertia_from_planar(pseudo[:3, :3] - jnp.outer(moment, com))
        return jnp.concatenate([mass[None], com, symmetric_entries(inertia)])

    def unconstrained(self, values: Values) -> Unconstrained:
        factor = _upper_factor(_pseudo_inertia(values))
        triangle = factorizations.solve(self.factor.astype(values.dtype), factor)
        return jnp.concatenate([jnp.log(jnp.diagonal(triangle)), triangle[_ROWS, _COLUMNS]])

    def divergence_roots(self, x: Unconstrained) -> Unconstrained:
        """Ten values whose sum of squares is the log-det divergence of a body from the reference body.

            D(P, P0) = tr(P0^-1 P) - log det(P0^-1 P) - 4 = sum of t_ij^2 + sum of exp(2 d_i) - 2 d_i - 1

        The divergence does not depend on units and on the frame in which the body is described. Source: Lee, Wensing and Park 2019.
        """
        return jnp.concatenate([_divergence_root(x[:4]), x[4:]])

    def _triangle(self, x: Unconstrained) -> Float[Array, "4 4"]:
        above = jnp.zeros((4, 4), x.dtype).at[_ROWS, _COLUMNS].set(x[4:])
        return above + jnp.diag(jnp.exp(x[:4]))


@kernel_function
def _pseudo_inertia(values: Values) -> Float[Array, "4 4"]:
    return SpatialInertia.of_body(values[0], values[1:4], symmetric_matrix(values[4:])).pseudo_inertia


@kernel_function
def _upper_factor(matrix: Any) -> Array:
    """Upper triangular U with matrix = U U'."""
    return factorizations.upper_factor(matrix)


def _divergence_root(d: Array) -> Array:
    """sign(d) sqrt(exp(2 d) - 2 d - 1), smooth at 0."""
    small = jnp.abs(d) < 0.1
    safe = jnp.where(small, 1.0, d)
    # (exp(2 d) - 2 d - 1) / d^2 = 2 + 4/3 d + 2/3 d^2 + ...
    terms = [2.0 ** (k + 2) / np.prod(np.arange(1.0, k + 3)) for k in range(9)]
    series = jnp.zeros_like(d)
    for term in reversed(terms):
        series = series * jnp.where(small, d, 0.0) + term
    return d * jnp.sqrt(jnp.where(small, series, (jnp.expm1(2.0 * safe) - 2.0 * safe) / safe**2))
