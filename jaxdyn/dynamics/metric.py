"""The metric tensor of the kinetic energy (mass matrix) and its Christoffel symbols, theory.md sections (f) and (g).

All closed forms are sums over subtrees about the reference point of `kinematics`, so none of them loops over bodies.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.dynamics import kinematics
from jaxdyn.dynamics.kinematics import Coordinates, Placements, Velocities
from jaxdyn.mechanism import configuration, tree
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial.arrays import einsum
from jaxdyn.spatial.inertia import SpatialInertia, symmetric_matrix

MassMatrix = Float[Array, "nv nv"]
Symbols = Float[Array, "nv nv nv"]


def mass_matrix(
    model: Model, q: Coordinates, *, method: Literal["composite", "closed_form"] = "composite"
) -> MassMatrix:
    """Mass matrix M(q), the covariant metric tensor a_{alpha beta}; kinetic energy 1/2 v' M v.

        a_{alpha beta} = sum over bodies [ m T_alpha . T_beta + Omega_alpha . J Omega_beta ]

    Args:
        q: generalized coordinates.
        method: "composite" sums the inertia of subtrees first (F6); "closed_form" is the sum over bodies as printed (F1).

    Returns:
        Symmetric matrix, kg m^2, kg m or kg by the kinds of the two coordinates; armature on the diagonal.

    Raises:
        ValueError: q has the wrong shape, or an unknown method.

    Source: theory.md (F1), (F6); composite bodies: Walker and Orin 1982.
    """
    placed = kinematics.placements(model, q)
    if method == "composite":
        return composite_mass_matrix(model, placed)
    if method != "closed_form":
        raise ValueError(f'unknown method {method!r} of mass_matrix; use "composite" or "closed_form"')
    partials = kinematics.partials_at(model, placed, placed.com)
    tensor = jax.vmap(symmetric_matrix)(model.inertia)
    on_ground_axes = einsum("bij,bjk,blk->bil", placed.rotation, tensor, placed.rotation)  # (B9)
    matrix = einsum("b,bac,bdc->ad", model.mass, partials.linear, partials.linear)
    matrix = matrix + einsum("bai,bij,bdj->ad", partials.angular, on_ground_axes, partials.angular)  # (F1)
    return matrix + jnp.diag(model.armature)


def composite_inertia(model: Model, placed: Placements) -> SpatialInertia:
    """Inertia of the subtree of every body about the reference point of its tree. Source: theory.md (F6)."""
    return jax.tree.map(lambda x: tree.sum_over_descendants(model.topology, x), placed.inertia)


def composite_mass_matrix(model: Model, placed: Placements) -> MassMatrix:
    """Mass matrix from placements already at hand."""
    topology = model.topology
    subtree = jax.tree.map(lambda x: x[topology.body_of_column], composite_inertia(model, placed))
    momentum = jax.vmap(SpatialInertia.momentum)(subtree, placed.columns)
    products = einsum("ac,bc->ab", placed.columns, momentum)  # right wherever alpha precedes beta (F6)
    upper = jnp.where(_above_diagonal(topology.column_precedes), products, 0.0)
    return upper + upper.T + jnp.diag(jnp.diagonal(products) + model.armature)


def _above_diagonal(precedes: np.ndarray) -> np.ndarray:
    return np.triu(precedes, k=1)


def christoffel_first_kind(
    model: Model, q: Coordinates, method: Literal["closed_form", "autodiff"] = "closed_form"
) -> Symbols:
    """Christoffel symbols of the first kind, G[alpha, beta, gamma] = Gamma_{alpha beta, gamma}.

        Gamma_{alpha beta, gamma} = 1/2 (d_alpha a_{beta gamma} + d_beta a_{gamma alpha} - d_gamma a_{alpha beta})

    The closed form uses planar inertia tensors: with a = inf(alpha, beta), b = sup(alpha, beta),
    Gamma_{alpha beta, gamma} = Omega_a . K_{b gamma}, K antisymmetric (G18), from which (G10) to (G12) can be read off.

    Args:
        q: generalized coordinates.
        method: "closed_form" (G18), or "autodiff" of the mass matrix (G6).

    Returns:
        Symmetric in the first two indices; units of the mass matrix per rad or m.

    Raises:
        ValueError: q has the wrong shape, an unknown method, or a joint whose velocities are not coordinate rates.

    Source: theory.md (G1), (G3), (G6), (G18).
    """
    _require_coordinate_rates(model)
    if method == "autodiff":
        configuration.check_coordinates(model, q)
        da = jax.jacfwd(lambda q: mass_matrix(model, q))(q)  # da[b, g, a] = d_a M[b, g]
        return 0.5 * (einsum("bga->abg", da) + einsum("gab->abg", da) - da)  # (G6)
    if method != "closed_form":
        raise ValueError(f'unknown method {method!r} of christoffel_first_kind; use "closed_form" or "autodiff"')
    placed = kinematics.placements(model, q)
    precedes = model.topology.column_precedes
    coupling = _coupling_vectors(model, placed)
    products = einsum("ai,bgi->abg", placed.columns[:, :3], coupling)  # right wherever alpha precedes beta
    forward = jnp.where(precedes[:, :, None], products, 0.0)
    backward = jnp.where(np.triu(precedes, k=1)[:, :, None], products, 0.0)
    return forward + backward.swapaxes(0, 1)  # (G18), (G10)


def _coupling_vectors(model: Model, placed: Placements) -> Float[Array, "nv nv 3"]:
    """K_{b gamma} = sum over bodies [ m T_b x T_gamma + Pi (Omega_b x Omega_gamma) ], zero unless b, gamma are comparable.

    Evaluated about the reference point with the composite inertia of the subtree of sup(b, gamma). Source: theory.md (G18).
    """
    topology = model.topology
    body = topology.body_of_column
    comparable = topology.column_precedes | topology.column_precedes.T
    deeper = np.maximum(body[:, None], body[None, :])
    subtree = jax.tree.map(lambda x: x[deeper], composite_inertia(model, placed))
    w, nu = placed.columns[:, :3], placed.columns[:, 3:]
    w_b, w_g, nu_b, nu_g = w[:, None], w[None], nu[:, None], nu[None]
    h = subtree.first_moment
    coupling = (
        subtree.mass[..., None] * jnp.cross(nu_b, nu_g)
        + jnp.cross(nu_b, jnp.cross(w_g, h))
        + jnp.cross(jnp.cross(w_b, h), nu_g)
        + einsum("bgij,bgj->bgi", subtree.planar, jnp.cross(w_b, w_g))
    )  # (G18)
    return jnp.where(comparable[..., None], coupling, 0.0)


def christoffel_second_kind(
    model: Model, q: Coordinates, method: Literal["closed_form", "autodiff"] = "closed_form"
) -> Symbols:
    """Christoffel symbols of the second kind, G[alpha, beta, delta] = Gamma^delta_{alpha beta}.

        Gamma^delta_{alpha beta} = a^{delta gamma} Gamma_{alpha beta, gamma}

    The upper index is the last. Arguments and errors as for `christoffel_first_kind`. Source: theory.md (G5).
    """
    first = christoffel_first_kind(model, q, method)
    n = model.nv
    solved = jnp.linalg.solve(mass_matrix(model, q), first.reshape(n * n, n).T)  # (G5)
    return solved.T.reshape(n, n, n)


def coriolis_matrix(model: Model, q: Coordinates, v: Velocities) -> MassMatrix:
    """Coriolis matrix C[gamma, alpha] = Gamma_{alpha beta, gamma} v^beta: C v is the velocity part of the bias force.

    dM/dt = C + C', so dM/dt - 2 C is skew-symmetric. N m s, N s by the kinds of coordinates. Source: theory.md (G7).
    """
    configuration.check_velocities(model, v=v)
    return einsum("abg,b->ga", christoffel_first_kind(model, q), v)  # (G7)


def _require_coordinate_rates(model: Model) -> None:
    for index, kind in enumerate(model.topology.joint_classes):
        if not kind.velocity_is_rate:
            raise ValueError(
                f"joint {model.topology.joint_names[index]!r} ({kind.__name__}) has velocities that are no rates of coordinates, "
                "for which the textbook Christoffel symbols do not exist; replace it by one-degree-of-freedom joints"
            )
