"""Independent equations of the constraints, and the remaining degrees of freedom.

A simulation does not need the selection of independent equations: it uses all equations, also redundant ones (`saddle_point`). This
module is used to inspect a mechanism, and to find minimal coordinates.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxdyn.compute import stored_jit, stored_outside_jit
from jaxdyn.compute.arrays import dot, einsum
from jaxdyn.dynamics import constraint_motion, kinematics
from jaxdyn.dynamics.multipliers import equations_of_motion
from jaxdyn.dynamics.system import State, System, Time, checked_system
from jaxdyn.spatial import factorizations


class Mobility(NamedTuple):
    """Rank of the constraints at one configuration.

    Attributes:
        independent: True for each equation in the chosen maximal set of independent equations.
        rank: Number of independent equations.
        degrees_of_freedom: Number of velocity components minus rank, which is larger at a singular configuration than near it.
        smallest: Ratio of the smallest to the largest pivot of the independent equations; it is small near a singular
            configuration.
    """

    independent: Bool[Array, "m"]
    rank: Int[Array, ""]
    degrees_of_freedom: Int[Array, ""]
    smallest: Float[Array, ""]


@checked_system
def mobility(system: System, state: State, t: Time = 0.0) -> Mobility:
    """Select independent equations by pivoting: the next equation is the one with the largest part independent of those selected.

    The rows of the Jacobian G are scaled to equal norm in the metric M^-1 of the kinetic energy, so neither units nor the choice of
    coordinates matter. An independent part below sqrt(machine epsilon) counts as zero.

    Args:
        system: Mechanism with its constraints.
        state: State whose configuration satisfies the constraints; v has no effect.
        t: Time (s), which matters for joints with prescribed motion.

    Source: theory.md (n), independent equations.
    """
    q = state.q
    if not system.constraints:
        nothing = jnp.zeros(0, bool)
        return Mobility(nothing, jnp.asarray(0), jnp.asarray(system.model.nv), jnp.ones((), q.dtype))
    mass_factor, scaled = _rows_of_one_size(system, q, t)
    sizes, order = _pivots(factorizations.solve_triangular(mass_factor, scaled.T, lower=False).T)
    counts = sizes > jnp.finfo(q.dtype).eps ** 0.5 * sizes[0]
    rank = jnp.sum(counts)
    # When no independent part is left, the pivoting may choose an equation for the second time.
    independent = jnp.zeros(len(scaled), int).at[order].add(counts.astype(int)) > 0
    smallest = jnp.min(jnp.where(counts, sizes, sizes[0])) / sizes[0]
    return Mobility(independent, rank, system.model.nv - rank, smallest)


@checked_system
def describe_mobility(system: System, state: State, t: Time = 0.0) -> str:
    """Text that lists the number of all and of independent equations of each constraint, and the remaining degrees of freedom.

    Args:
        system: Mechanism with its constraints.
        state: State whose configuration satisfies the constraints; v has no effect.
        t: Time (s), which matters for joints with prescribed motion.
    """
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
        described = "1 equation" if count == 1 else f"{count} equations"
        lines.append(f"  {constraint.name}: {described}, {kept} independent")
    freedoms = "degree of freedom" if found.degrees_of_freedom == 1 else "degrees of freedom"
    head = f"{start} equations, {found.rank} independent; {found.degrees_of_freedom} {freedoms} of {model.nv} remain"
    return "\n".join([head, *lines])


@checked_system
def independent_velocities(system: System, state: State, t: Time = 0.0) -> tuple[int, ...]:
    """Indices of independent velocity components (minimal coordinates), which determine all velocities at q and near it.

    Pivoting selects the dependent components such that their dependence on the independent components has small coefficients. This
    function cannot run under `jit`, because the length of the result depends on the value of q. Far from q the selected components
    may become dependent; then call this function again.

    Args:
        system: Mechanism with its constraints.
        state: State whose configuration satisfies the constraints; v has no effect.
        t: Time (s), which matters for joints with prescribed motion.

    Raises:
        jax.errors.ConcretizationTypeError: The function is traced.
    Source: theory.md (n), (N13).
    """
    model, q = system.model, state.q
    if not system.constraints:
        return tuple(range(model.nv))
    sizes, order = _dependent_pivots(system, q, t)
    rank = int(np.sum(np.asarray(sizes > jnp.finfo(q.dtype).eps ** 0.5 * sizes[0])))
    return tuple(sorted(set(range(model.nv)) - {int(i) for i in order[:rank]}))


@stored_outside_jit
def _dependent_pivots(system: System, q: kinematics.Coordinates, t: Time) -> tuple[Float[Array, "r"], Int[Array, "r"]]:
    """Sizes of the pivots, and indices of the dependent velocity components, in the order of pivoting."""
    mass_factor, scaled = _rows_of_one_size(system, q, t)
    inertia = jnp.sum(mass_factor**2, axis=1)
    return _pivots((scaled / jnp.sqrt(inertia)[None]).T)


def _rows_of_one_size(
    system: System, q: kinematics.Coordinates, t: Time
) -> tuple[Float[Array, "n n"], Float[Array, "m n"]]:
    """Upper triangular factor U of M = U U', and the rows of G scaled to equal kinetic energy, so that equations of lengths and
    angles have equal weight.

    A row whose terms cancel, such as an equation normal to the plane of a planar mechanism, must not be scaled up to its rounding
    errors. Therefore the size of each row includes a small part of the squares of its terms; terms of other rows may have other
    units.
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
    """Independent part of each vector relative to the previous ones, largest first, and the indices of vectors; r = min(k, n)."""

    def choose(rest, _):
        squares = jnp.sum(rest * rest, axis=1)
        chosen = jnp.argmax(squares)
        size = jnp.sqrt(squares[chosen])
        direction = rest[chosen] / jnp.maximum(size, jnp.finfo(rest.dtype).tiny ** 0.5)
        # Twice, because one subtraction leaves rounding errors of the size of the large components.
        for _ in range(2):
            rest = rest - dot(rest, direction)[:, None] * direction[None]
        return rest, (size, chosen)

    _, (sizes, order) = jax.lax.scan(choose, vectors, None, length=min(vectors.shape))
    return sizes, order
