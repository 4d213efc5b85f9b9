"""Which equations of the constraints are independent, and how many degrees of freedom they leave.

Nothing has to be chosen for a simulation: all equations are kept there, those that repeat others included (`saddle_point`). This is
for people who want to know, and for minimal coordinates.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxdyn.dynamics import constraint_motion, kinematics
from jaxdyn.dynamics.multipliers import equations_of_motion
from jaxdyn.dynamics.system import State, System, Time, checked_system
from jaxdyn.lanes import stored_jit
from jaxdyn.spatial import factorizations
from jaxdyn.spatial.arrays import dot, einsum


class Mobility(NamedTuple):
    """The constraints at one configuration.

    Attributes:
        independent: For each equation, whether it is one of the largest set of independent ones that was chosen.
        rank: How many these are.
        degrees_of_freedom: Velocity components less rank; more than elsewhere at a singular configuration.
        smallest: Smallest of the independent sizes relative to the largest; small near a singular configuration.
    """

    independent: Bool[Array, "m"]
    rank: Int[Array, ""]
    degrees_of_freedom: Int[Array, ""]
    smallest: Float[Array, ""]


@checked_system
def mobility(system: System, state: State, t: Time = 0.0) -> Mobility:
    """Independent equations by pivoting: always the one next that adds most to those before, as long as it adds something.

    Rows of G are measured by kinetic energy, G M^-1 G', and scaled to one size, so that neither units nor the choice of coordinates
    matter. What adds less than sqrt(machine epsilon) counts as nothing.

    Args:
        state: Its configuration satisfies the constraints; v does not matter.
        t: Time, s, for joints with prescribed motion.

    Source: theory.md (n), independent equations.
    """
    q = state.q
    if not system.constraints:
        nothing = jnp.zeros(0, bool)
        return Mobility(nothing, jnp.asarray(0), jnp.asarray(system.model.nv), jnp.ones((), q.dtype))
    mass_factor, scaled = _rows_of_one_size(system, q, t)
    sizes, order = _pivots(factorizations.solve_triangular(mass_factor, scaled.T, lower=True).T)
    counts = sizes > jnp.finfo(q.dtype).eps ** 0.5 * sizes[0]
    rank = jnp.sum(counts)
    # What is chosen when nothing is left may have been chosen before.
    independent = jnp.zeros(len(scaled), int).at[order].add(counts.astype(int)) > 0
    smallest = jnp.min(jnp.where(counts, sizes, sizes[0])) / sizes[0]
    return Mobility(independent, rank, system.model.nv - rank, smallest)


@checked_system
def describe_mobility(system: System, state: State, t: Time = 0.0) -> str:
    """A table of the constraints, the equations of each and how many of them repeat others, and the degrees of freedom, as text."""
    found, q = jax.device_get(stored_jit(mobility)(system, state, t)), state.q
    model = system.model

    def residuals(q):
        poses = kinematics.placements(model, q).poses
        return [constraint.residual(model, q, poses) for constraint in system.constraints]

    lines, start = [], 0
    for constraint, equations in zip(system.constraints, jax.eval_shape(residuals, q), strict=True):
        count = equations.size
        kept = int(np.sum(found.independent[start : start + count]))
        start += count
        lines.append(f"  {constraint.name}: {count} equations, {kept} independent")
    freedoms = "degree of freedom" if found.degrees_of_freedom == 1 else "degrees of freedom"
    head = f"{start} equations, {found.rank} independent; {found.degrees_of_freedom} {freedoms} of {model.nv} remain"
    return "\n".join([head, *lines])


@checked_system
def independent_velocities(system: System, state: State, t: Time = 0.0) -> tuple[int, ...]:
    """Indices of velocity components that determine the whole motion at q and near it: minimal coordinates.

    The others are chosen by pivoting so that they follow from these with the least amplification. Not for code under `jit`: how
    many there are has to be known. Far from q the choice may become singular; choose again there.

    Raises:
        jax.errors.ConcretizationTypeError: Called while tracing.

    Source: theory.md (n), (N13).
    """
    model, q = system.model, state.q
    if not system.constraints:
        return tuple(range(model.nv))
    mass_factor, scaled = _rows_of_one_size(system, q, t)
    inertia = jnp.sum(mass_factor**2, axis=1)
    sizes, order = _pivots((scaled / jnp.sqrt(inertia)[None]).T)
    rank = int(np.sum(np.asarray(sizes > jnp.finfo(q.dtype).eps ** 0.5 * sizes[0])))
    return tuple(sorted(set(range(model.nv)) - {int(i) for i in order[:rank]}))


def _rows_of_one_size(
    system: System, q: kinematics.Coordinates, t: Time
) -> tuple[Float[Array, "n n"], Float[Array, "m n"]]:
    """Factor of M, and the rows of G scaled to be alike in kinetic energy, so that lengths and angles weigh the same.

    A row whose terms cancel, as those across the plane of a flat mechanism do, must not be blown up to its rounding. So each row is
    measured with a small part of its own terms: a part of other rows would be a number of another unit.
    """
    model, constraints = system.model.at(jnp.asarray(t, q.dtype)), system.constraints
    placed = kinematics.placements(model, q)
    matrices = equations_of_motion(model, constraints, q, placed)

    def forces(lam):
        return constraint_motion.forces(model, constraints, q, placed.poses, lam)

    moment, force, own = jax.vmap(forces)(jnp.identity(len(matrices.rows), dtype=q.dtype))
    partials = kinematics.partials_at(model, placed, placed.offset)
    terms = own**2
    for exerted, partial in ((moment, partials.angular), (force, partials.linear)):
        terms = terms + einsum("mbi,bvj->mv", exerted**2, partial**2)
    inertia, limits = jnp.sum(matrices.mass_factor**2, axis=1), jnp.finfo(q.dtype)
    sizes = jnp.diagonal(matrices.matrix) + limits.eps**0.5 * dot(terms, 1.0 / inertia) + limits.tiny
    return matrices.mass_factor, matrices.rows / jnp.sqrt(sizes)[:, None]


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
