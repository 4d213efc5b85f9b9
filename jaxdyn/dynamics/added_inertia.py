"""Inertia that an implicit step adds to the equation of motion for forces that act on bodies, theory.md (T8).

An implicit step evaluates a force at its end by a linear law, Q' = Q - A a, whose matrix A multiplies the unknown acceleration. A
is therefore added to the mass matrix of the step. Forces on one body contribute a 6x6 matrix of this body, which is summed over
subtrees like its inertia. Forces between two bodies contribute to the matrix of all velocity components.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot
from jaxdyn.dynamics import inverse, metric
from jaxdyn.dynamics.kinematics import Placements
from jaxdyn.mechanism import tree
from jaxdyn.mechanism.model import Model


class AddedInertia(NamedTuple):
    """Symmetric positive semidefinite matrices A of the law Q' = Q - A a.

    Attributes:
        bodies: Matrix of each body, which converts an acceleration (angular; linear) to (moment; force), ground axes about the
            reference point P. None if all are zero.
        components: Matrix of the velocity components; None if zero.
    """

    bodies: Float[Array, "nb 6 6"] | None
    components: Float[Array, "nv nv"] | None


def total(added: Sequence[AddedInertia]) -> AddedInertia | None:
    """Sum of added inertias; None if there are none."""
    if not added:
        return None
    bodies = [x.bodies for x in added if x.bodies is not None]
    components = [x.components for x in added if x.components is not None]
    return AddedInertia(
        sum(bodies[1:], bodies[0]) if bodies else None, sum(components[1:], components[0]) if components else None
    )


def lower_mass_matrix(model: Model, placed: Placements, added: AddedInertia | None = None) -> Float[Array, "nv nv"]:
    """Lower triangle of M, or of M + A with an added inertia, with zeros above the diagonal.

    Args:
        model: Mechanism.
        placed: Placements of the bodies.
        added: Added inertia; none if None.
    """
    if added is None:
        return metric.lower_mass_matrix(model, placed)
    lower = metric.lower_mass_matrix(model, placed, added.bodies)
    return lower if added.components is None else lower + jnp.tril(added.components)


def force(model: Model, placed: Placements, added: AddedInertia, a: Float[Array, "nv"]) -> Float[Array, "nv"]:
    """Generalized force A a of an acceleration a.

    Args:
        model: Mechanism.
        placed: Placements of the bodies.
        added: Added inertia.
        a: Generalized accelerations (rad/s^2 or m/s^2).
    """
    needed = jnp.zeros_like(a)
    if added.bodies is not None:
        accelerations = tree.sum_over_columns(model.topology, placed.columns * a[:, None])
        needed = inverse.project(model, placed, jax.vmap(dot)(added.bodies, accelerations))
    return needed if added.components is None else needed + dot(added.components, a)
