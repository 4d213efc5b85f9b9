"""Which equations of the constraints are independent, and how many degrees of freedom they leave.

Nothing has to be chosen for a simulation: all equations are kept there, those that repeat others included (`saddle_point`). This is
for people who want to know, and for minimal coordinates.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxdyn.dynamics import kinematics
from jaxdyn.dynamics.kinematics import Coordinates
from jaxdyn.dynamics.multipliers import equations_of_motion
from jaxdyn.dynamics.saddle_point import SaddlePoint
from jaxdyn.dynamics.system import System, Time
from jaxdyn.spatial import factorizations
from jaxdyn.spatial.arrays import dot


class Mobility(NamedTuple):
    """The constraints at one configuration.

    Attributes:
        independent: for each equation, whether it is one of the largest set of independent ones that was chosen.
        rank: how many these are.
        degrees_of_freedom: velocity components less rank; more than elsewhere at a singular configuration.
        smallest: smallest of the independent sizes relative to the largest; small near a singular configuration.
    """

    independent: Bool[Array, "m"]
    rank: Int[Array, ""]
    degrees_of_freedom: Int[Array, ""]
    smallest: Float[Array, ""]


def mobility(system: System, q: Coordinates, t: Time = 0.0) -> Mobility:
    """Independent equations by pivoting: always the one next that adds most to those before, as long as it adds something.

    Rows of G are measured by kinetic energy, G M^-1 G', and scaled to one size, so that neither units nor the choice of coordinates
    matter. What adds less than sqrt(machine epsilon) counts as nothing.

    Args:
        q: configuration at which the mechanism is assembled.
        t: time, s, for joints with prescribed motion.

    Source: theory.md (n), independent equations.
    """
    if not system.constraints:
        nothing = jnp.zeros(0, bool)
        return Mobility(nothing, jnp.asarray(0), jnp.asarray(system.model.nv), jnp.ones((), q.dtype))
    matrices = _matrices(system, q, t)
    scaled = _scale(matrices)[:, None] * matrices.rows
    sizes, order = _pivots(factorizations.solve_triangular(matrices.mass_factor, scaled.T, lower=True).T)
    counts = sizes > jnp.finfo(q.dtype).eps ** 0.5 * sizes[0]
    rank = jnp.sum(counts)
    # What is chosen when nothing is left may have been chosen before.
    independent = jnp.zeros(len(scaled), int).at[order].add(counts.astype(int)) > 0
    smallest = jnp.min(jnp.where(counts, sizes, sizes[0])) / sizes[0]
    return Mobility(independent, rank, system.model.nv - rank, smallest)


def describe_mobility(system: System, q: Coordinates, t: Time = 0.0) -> str:
    """A table of the constraints, the equations of each and how many of them repeat others, and the degrees of freedom, as text."""
    found = jax.device_get(jax.jit(mobility)(system, q, t))
    model = system.model.at(jnp.asarray(t, q.dtype))
    poses = kinematics.placements(model, q).poses
    lines, start = [], 0
    for constraint in system.constraints:
        count = constraint.residual(model, q, poses).shape[0]
        kept = int(np.sum(found.independent[start : start + count]))
        start += count
        lines.append(f"  {constraint.name}: {count} equations, {kept} independent")
    freedoms = "degree of freedom" if found.degrees_of_freedom == 1 else "degrees of freedom"
    head = f"{start} equations, {found.rank} independent; {found.degrees_of_freedom} {freedoms} of {model.nv} remain"
    return "\n".join([head, *lines])


def independent_velocities(system: System, q: Coordinates, t: Time = 0.0) -> tuple[int, ...]:
    """Numbers of velocity components that tell the whole motion at q and near it: minimal coordinates.

    The others are chosen by pivoting so that they follow from these with the least amplification. Not for code under `jit`: how
    many there are has to be known. Far from q the choice may become singular; choose again there.

    Raises:
        jax.errors.ConcretizationTypeError: called while tracing.

    Source: theory.md (n), (N13).
    """
    model = system.model
    if not system.constraints:
        return tuple(range(model.nv))
    matrices = _matrices(system, q, t)
    inertia = jnp.sum(matrices.mass_factor**2, axis=1)
    sizes, order = _pivots((_scale(matrices)[:, None] * matrices.rows / jnp.sqrt(inertia)[None]).T)
    rank = int(np.sum(np.asarray(sizes > jnp.finfo(q.dtype).eps ** 0.5 * sizes[0])))
    return tuple(sorted(set(range(model.nv)) - {int(i) for i in order[:rank]}))


def _matrices(system: System, q: Coordinates, t: Time) -> SaddlePoint:
    model = system.model.at(jnp.asarray(t, q.dtype))
    return equations_of_motion(model, system.constraints, q, kinematics.placements(model, q))


def _scale(matrices: SaddlePoint) -> Float[Array, "m"]:
    """Factors that make rows alike in kinetic energy, so that lengths and angles weigh the same."""
    sizes = jnp.diagonal(matrices.matrix)
    # A row that vanishes, as those across the plane of a flat mechanism do, must not be blown up to its rounding.
    return 1.0 / jnp.sqrt(sizes + jnp.finfo(sizes.dtype).eps ** 0.5 * jnp.mean(sizes))


def _pivots(vectors: Float[Array, "k n"]) -> tuple[Float[Array, "r"], Int[Array, "r"]]:
    """Sizes of what each vector adds to those before it, the largest always next, and their numbers; r = min(k, n)."""

    def choose(rest, _):
        squares = jnp.sum(rest * rest, axis=1)
        chosen = jnp.argmax(squares)
        size = jnp.sqrt(squares[chosen])
        direction = rest[chosen] / jnp.maximum(size, jnp.finfo(rest.dtype).tiny ** 0.5)
        # Twice, for one subtraction leaves rounding of the size of what was large.
        for _ in range(2):
            rest = rest - dot(rest, direction)[:, None] * direction[None]
        return rest, (size, chosen)

    _, (sizes, order) = jax.lax.scan(choose, vectors, None, length=min(vectors.shape))
    return sizes, order
