"""Base parameters: the linear combinations of parameters that motions and forces determine.

The columns of a regressor are linearly dependent for all motions: for example, the mass of a link on a vertical axis does not do
work, and the mass of the next link has the same effect as an inertia of the previous link. Of p parameters theta only the `rank`
combinations beta = K theta affect the forces,

    Y theta = Y[:, independent] beta,   K[:, independent] = 1.

The matrix K follows from the row space of Y, stacked over many motions; the dimension of this space is the rank. A parameter is
identifiable alone if its unit vector lies in the row space, and not identifiable at all if its unit vector is perpendicular to it.
The choice of the independent columns is not unique; here the independent columns are those that do not depend on the columns before
them. Columns are ordered from the ground outward, so the dependent parameters of a body are combined with those of bodies nearer to
the ground, as is common in the literature.

This computation runs once per mechanism on the host in double precision. Source: Gautier and Khalil 1990; Gautier 1991.
"""

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxdyn.compute import per_sample, stored_jit
from jaxdyn.dynamics.system import State, System, checked_system
from jaxdyn.identify.regression import Label, labels, regressor
from jaxdyn.mechanism import configuration

# Singular values on both sides of the rank differ at least by this factor; for exact dependence the ratio is 1e10 or more.
_SMALLEST_GAP = 100.0
# Ratio of accelerations to velocities of random motions, 1/s, chosen so that inertia is as important as gravity.
_ACCELERATION_PER_SPEED = 10.0


@dataclasses.dataclass(frozen=True, eq=False)
class BaseParameters:
    """Identifiable combinations of parameters, from `base_parameters`.

    Attributes:
        labels: Name and unit of each parameter.
        independent: Indices of the independent columns, ascending.
        combination: Matrix K of the base parameters beta = K theta, where theta are all parameters.
        singular_values: Singular values of the regressor with columns of norm 1, descending.
        alone: Whether each parameter is identifiable alone.
        visible: Whether each parameter affects the forces; a parameter that is visible but not `alone` is identifiable in
            combinations only.
    """

    labels: tuple[Label, ...]
    independent: Int[np.ndarray, "rank"]
    combination: Float[np.ndarray, "rank parameters"]
    singular_values: Float[np.ndarray, "values"]
    alone: np.ndarray
    visible: np.ndarray

    @property
    def rank(self) -> int:
        """Number of base parameters."""
        return len(self.independent)

    @property
    def gap(self) -> float:
        """Ratio of the smallest nonzero singular value to the largest one that counts as zero; infinite if there is no such one."""
        s = self.singular_values
        rest = s[self.rank] if self.rank < len(s) else 0.0
        return float(s[self.rank - 1] / rest) if rest > 0 else float("inf")

    @property
    def names(self) -> tuple[str, ...]:
        """Each base parameter as a sum, such as "Jzz(upper) + 0.5 hx(lower)"."""
        return tuple(self._sum(i) for i in range(self.rank))

    @property
    def units(self) -> tuple[str, ...]:
        """Units of the base parameters."""
        return tuple(self.labels[k].unit for k in self.independent)

    def columns(self, Y: Float[Array | np.ndarray, "*rows parameters"]) -> Float[Array | np.ndarray, "*rows rank"]:
        """The columns of a regressor that belong to the base parameters."""
        return Y[..., self.independent]

    def values(self, parameters: Float[Array, "parameters"]) -> Float[Array, "rank"]:
        """Base parameters beta = K theta of given parameters."""
        return jnp.dot(jnp.asarray(self.combination, parameters.dtype), parameters, precision=jax.lax.Precision.HIGHEST)

    def nearest(
        self, values: Float[Array, "rank"], parameters: Float[Array, "parameters"]
    ) -> Float[Array, "parameters"]:
        """Parameters that have the given base parameters, and differ from `parameters` only in the `independent` ones.

        The mechanism then moves according to the base parameters, even if the result is not physically valid for rigid bodies.

        Args:
            values: Base parameters.
            parameters: All parameters.
        """
        return parameters.at[self.independent].add(values - self.values(parameters))

    def report(self) -> str:
        """The base parameters as text, one per line with its unit, and the identifiability of all parameters."""
        width = len(str(self.rank))
        unit_width = max(map(len, self.units))
        lines = [
            f"{self.rank} base parameters of {len(self.labels)} parameters; gap {self.gap:.1e} in the singular values"
        ]
        lines += [
            f"  {i + 1:>{width}}  {unit:<{unit_width}}  {name}"
            for i, (name, unit) in enumerate(zip(self.names, self.units, strict=True))
        ]
        kinds = {
            "identifiable alone": self.alone,
            "only in combination": self.visible & ~self.alone,
            "not at all": ~self.visible,
        }
        for kind, chosen in kinds.items():
            members = ", ".join(label.name for label, is_one in zip(self.labels, chosen, strict=True) if is_one)
            lines.append(f"{kind}: {members or 'none'}")
        return "\n".join(lines)

    def _sum(self, row: int) -> str:
        coefficients = self.combination[row]
        first = self.independent[row]
        text = self.labels[first].name
        for k in np.flatnonzero(coefficients):
            if k != first:
                size = f"{abs(coefficients[k]):.4g}"
                factor = "" if size == "1" else f"{size} "
                text += f" {'-' if coefficients[k] < 0 else '+'} {factor}{self.labels[k].name}"
        return text


def base_parameters(Y: Float[Array | np.ndarray, "*rows parameters"], labels: Sequence[Label]) -> BaseParameters:
    """Base parameters from a regressor that is stacked over motions: rank, independent columns and combinations.

    Columns are divided by their norms. A singular value counts as nonzero if it is at least sqrt(eps) of the largest one, where eps
    is the machine epsilon of the type of Y; a column counts as zero if its norm is below sqrt(eps) of the largest norm. Entries of
    K below eps^(2/3), which are rounding errors, are set to zero.

    Args:
        Y: Rows of `regressor` for many motions, such as `identifying_motions`, or for the motions of an experiment.
        labels: Name and unit of each column.

    Raises:
        ValueError: The number of labels is not that of the columns; the regressor is zero or not finite; or its singular values
            decrease without a gap, so that the rank is not well defined. In this case, give more motions, or motions of larger
            amplitude.

    Source: Gautier 1991.
    """
    eps = float(np.finfo(np.asarray(Y).dtype).eps)
    rows = np.asarray(Y, np.float64).reshape(-1, np.shape(Y)[-1])
    if len(labels) != rows.shape[1]:
        raise ValueError(f"there are {len(labels)} labels for {rows.shape[1]} columns; give one for each")
    if not np.all(np.isfinite(rows)):
        raise ValueError("the regressor has entries that are not finite; remove their motions")
    tolerance = np.sqrt(eps)
    norm = np.linalg.norm(rows, axis=0)
    if not np.any(norm):
        raise ValueError("the regressor is identically zero; provide samples in which the mechanism moves")
    visible = norm > tolerance * norm.max()
    scale = np.where(visible, norm, 1.0)
    triangle = np.linalg.qr(np.where(visible, rows / scale, 0.0), mode="r")
    _, singular, directions = np.linalg.svd(triangle)
    rank = int(np.sum(singular >= tolerance * singular[0]))
    following = singular[rank] if rank < len(singular) else 0.0
    if singular[rank - 1] < _SMALLEST_GAP * following:
        raise ValueError(
            f"the singular values of the regressor show no gap ({singular[rank - 1] / singular[0]:.1e}, "
            f"{following / singular[0]:.1e} of the largest); give more motions, or motions of larger amplitude"
        )
    directions = directions[:rank]
    compressed = singular[:rank, None] * directions  # the regressor, reduced to as many rows as are independent
    independent = _first_independent(compressed, np.flatnonzero(visible), tolerance)
    scaled = np.linalg.solve(compressed[:, independent], compressed)
    scaled[np.abs(scaled) < eps ** (2 / 3)] = 0.0
    scaled[:, independent] = np.eye(rank)
    combination = scaled * scale / scale[independent][:, None]
    alone = visible & (np.sum(directions**2, axis=0) > 1.0 - tolerance)
    return BaseParameters(tuple(labels), independent, combination, singular, alone, visible)


def _first_independent(columns: np.ndarray, candidates: np.ndarray, tolerance: float) -> np.ndarray:
    """Candidates that do not depend on the ones before them (Gram-Schmidt with two orthogonalizations per column)."""
    basis, kept = np.zeros((len(columns), 0)), []
    for k in candidates:
        rest = columns[:, k]
        for _ in range(2):
            rest = rest - basis @ (basis.T @ rest)
        if np.linalg.norm(rest) > tolerance * np.linalg.norm(columns[:, k]):
            kept.append(k)
            basis = np.column_stack([basis, rest / np.linalg.norm(rest)])
    return np.array(kept)


@checked_system
def identifying_motions(
    system: System, key: PRNGKeyArray, *, samples: int
) -> tuple[Float[Array, "samples nq"], Float[Array, "samples nv"], Float[Array, "samples nv"]]:
    """Independent random samples of q, v and a, which excite all parameters that motion can determine.

    Coordinates are drawn within their limits by `configuration.random`. Velocities are uniformly distributed within their limits;
    without limits, they are normally distributed with standard deviation 1 rad/s or m/s. Accelerations are normally distributed
    with standard deviation 10 rad/s^2 or m/s^2.

    Args:
        system: Mechanism with its forces.
        key: Random key of the samples.
        samples: Number of samples.
    """
    model = system.model

    def draw(key):
        of_q, of_v, of_a = jax.random.split(key, 3)
        limit = model.limits.velocity
        bounded = jnp.isfinite(limit)
        within = jnp.where(bounded, limit, 0.0) * jax.random.uniform(of_v, (model.nv,), model.dtype, -1.0, 1.0)
        v = jnp.where(bounded, within, jax.random.normal(of_v, (model.nv,), model.dtype))
        a = _ACCELERATION_PER_SPEED * jax.random.normal(of_a, (model.nv,), model.dtype)
        return configuration.random(model, of_q), v, a

    return jax.vmap(draw)(jax.random.split(key, samples))


@checked_system
def system_base_parameters(system: System, key: PRNGKeyArray, *, samples: int = 200) -> BaseParameters:
    """Structural base parameters of a system: all base parameters that some motion determines.

    Args:
        system: Mechanism with its forces.
        key: Random key of the motions.
        samples: Number of random samples of motion; each sample yields nv equations.

    Raises:
        ValueError: See `base_parameters`.
    """
    return base_parameters(_random_rows(system, key, samples), labels(system))


@stored_jit
def _random_rows(system: System, key: PRNGKeyArray, samples: int) -> Float[Array, "samples nv parameters"]:
    q, v, a = identifying_motions(system, key, samples=samples)
    return jax.vmap(per_sample(functools.partial(regressor, system), name="regressor"))(State(q, v), a)
