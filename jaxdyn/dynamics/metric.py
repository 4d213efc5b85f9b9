"""Metric tensor of the kinetic energy (mass matrix) and its Christoffel symbols, theory.md sections (f) and (g).

All closed forms are sums over subtrees, computed without a loop over bodies; moments are about the reference point of `kinematics`.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, einsum
from jaxdyn.compute.hints import traced_once
from jaxdyn.dynamics import kinematics, response, rotors
from jaxdyn.dynamics.doors import model_function
from jaxdyn.dynamics.kinematics import Coordinates, Placements, Velocities
from jaxdyn.errors import check_name
from jaxdyn.mechanism import configuration, tree
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial import factorizations
from jaxdyn.spatial.inertia import SpatialInertia, symmetric_matrix
from jaxdyn.spatial.rotation import cross
from jaxdyn.spatial.sixvector import cross_motion, motion_to_outer

MassMatrix = Float[Array, "nv nv"]
Symbols = Float[Array, "nv nv nv"]


@model_function
def mass_matrix(
    model: Model, q: Coordinates, *, method: Literal["composite", "closed_form"] = "composite"
) -> MassMatrix:
    """Mass matrix M(q), the covariant metric tensor a_{alpha beta}; kinetic energy 1/2 v' M v.

        a_{alpha beta} = sum over bodies [ m T_alpha . T_beta + Omega_alpha . J Omega_beta ]

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        method: "composite" sums the inertia of subtrees first (F6); "closed_form" is the sum over bodies given above (F1).

    Returns:
        Symmetric matrix; kg m^2, kg m or kg by the kinds of the two coordinates. The diagonal includes the armature.

    Raises:
        ValueError: q has the wrong shape, or there is no such method.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        model = jaxdyn.library.double_pendulum()
        mass = jaxdyn.mass_matrix(model, jnp.array([0.3, -0.5]))
        ```

    Source: theory.md (F1), (F6), (R2); composite bodies: Walker and Orin 1982.
    """
    check_name("method of mass_matrix", method, ("composite", "closed_form"))
    placed = kinematics.placements(model, q)
    if method == "composite":
        return composite_mass_matrix(model, placed)
    partials = kinematics.partials_at(model, placed, placed.com)
    tensor = jax.vmap(symmetric_matrix)(model.inertia)
    on_ground_axes = einsum("bij,bjk,blk->bil", placed.rotation, tensor, placed.rotation)  # (B9)
    matrix = einsum("b,bac,bdc->ad", model.mass, partials.linear, partials.linear)
    matrix = matrix + einsum("bai,bij,bdj->ad", partials.angular, on_ground_axes, partials.angular)  # (F1)
    matrix = matrix + jnp.diag(rotors.reflected_inertia(model))
    return matrix + rotors.coupling_metric(model, placed) if model.rotors.count else matrix  # (R2)


def composite_inertia(model: Model, placed: Placements) -> SpatialInertia:
    """Inertia of the subtree of every body about the reference point of its tree. Source: theory.md (F6)."""
    return jax.tree.map(lambda x: tree.sum_over_descendants(model.topology, x), placed.inertia)


def composite_mass_matrix(model: Model, placed: Placements) -> MassMatrix:
    """Mass matrix from precomputed placements."""
    lower = lower_mass_matrix(model, placed)
    return lower + jnp.tril(lower, -1).T


@traced_once
def lower_mass_matrix(model: Model, placed: Placements, added: Float[Array, "nb 6 6"] | None = None) -> MassMatrix:
    """Lower triangle of the mass matrix, with zeros above the diagonal.

    Args:
        model: Mechanism.
        placed: Placements of the bodies.
        added: Matrices that are added to the inertias of the bodies about the reference point P, ground axes; none if None.
    """
    topology = model.topology
    composite = composite_inertia(model, placed)
    if added is None:
        momentum = jax.vmap(SpatialInertia.momentum)(tree.of_columns(topology, composite), placed.columns)
    else:
        matrices = jax.vmap(lambda body: body.matrix)(composite) + tree.sum_over_descendants(topology, added)
        momentum = einsum("aij,aj->ai", tree.of_columns(topology, matrices), placed.columns)
    momentum, columns = tree.for_pairs(topology, (momentum, placed.columns))
    products = einsum("ac,bc->ab", momentum, columns)  # valid where beta precedes alpha (F6)
    lower = jnp.where(np.tril(topology.column_precedes.T), products, 0.0) + jnp.diag(rotors.reflected_inertia(model))
    return lower + jnp.tril(rotors.coupling_metric(model, placed)) if model.rotors.count else lower  # (R2)


@model_function
def christoffel_first_kind(
    model: Model, q: Coordinates, *, method: Literal["closed_form", "autodiff"] = "closed_form"
) -> Symbols:
    """Christoffel symbols of the first kind, G[alpha, beta, gamma] = Gamma_{alpha beta, gamma}.

        Gamma_{alpha beta, gamma} = 1/2 (d_alpha a_{beta gamma} + d_beta a_{gamma alpha} - d_gamma a_{alpha beta})

    Christoffel symbols exist only if all velocities are rates of coordinates; `connection_first_kind` generalizes them to all
    joints.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        method: "closed_form" (G18), or "autodiff" of the mass matrix (G6).

    Returns:
        Array that is symmetric in the first two indices; units of the mass matrix per rad or m.

    Raises:
        ValueError: q has the wrong shape, there is no such method, or a joint has velocities that are not coordinate rates.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        model = jaxdyn.library.double_pendulum()
        q, v = jnp.array([0.3, -0.5]), jnp.array([1.0, 0.5])
        force = jnp.einsum("abg,a,b->g", jaxdyn.christoffel_first_kind(model, q), v, v)
        ```

    Source: theory.md (G1), (G3), (G6), (G18).
    """
    for name, kind in zip(model.topology.joint_names, model.topology.joint_classes, strict=True):
        if not kind.velocity_is_rate:
            raise ValueError(
                f"joint {name!r} ({kind.__name__}) has velocities that are not coordinate rates, for which the textbook "
                "Christoffel symbols do not exist; use connection_first_kind, or replace the joint with jaxdyn.decompose_joints"
            )
    return connection_first_kind(model, q, method=method)


@model_function
def connection_first_kind(
    model: Model, q: Coordinates, *, method: Literal["closed_form", "autodiff"] = "closed_form"
) -> Symbols:
    """Connection of the metric tensor in the frame of the velocity components, L[alpha, beta, gamma] = L_{alpha beta, gamma}.

        M dv/dt + L_{alpha beta, gamma} v^alpha v^beta = Q_gamma

    The velocity components of spherical, planar and free joints are not coordinate rates (they are quasi-velocities in a
    non-holonomic frame). For them, L is not symmetric in its first two indices, the first of which is the direction of
    differentiation:

        L_{alpha beta, gamma} - L_{beta alpha, gamma} = k^delta_{alpha beta} a_{delta gamma}

    with k from `configuration.structure_coefficients`, and with the metric tensor a without armature. Armature is inertia along its
    velocity component and does not rotate with a body (unlike `Model.rotors`).

    For coordinate rates, k = 0 and L are the Christoffel symbols. A body that rotates about its center of mass has L v v = v x J v.
    The closed form uses planar inertia tensors. Let a be the index whose joint is nearer the root (alpha if both are equal) and b
    the other one; then L_{alpha beta, gamma} = Omega_a . K_{b gamma} with an antisymmetric K (G18), plus one term for columns that
    move in their body.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        method: "closed_form" (G13), (G18), or "autodiff" of the mass matrix by Koszul's formula (G16).

    Returns:
        Array with units of the mass matrix per rad or m.

    Raises:
        ValueError: q has the wrong shape, or there is no such method.

    Example:
        ```python
        import jaxdyn

        model = jaxdyn.library.gyroscope()
        q = jaxdyn.configuration.neutral(model)
        symbols = jaxdyn.connection_first_kind(model, q)
        ```

    Source: theory.md (G13)-(G19), (R4).
    """
    check_name("method of the connection", method, ("closed_form", "autodiff"))
    if method == "autodiff":
        return _koszul_formula(model, q)
    placed = kinematics.placements(model, q)
    precedes = model.topology.column_precedes
    coupling = _coupling_vectors(model, placed)
    products = einsum("ai,bgi->abg", placed.columns[:, :3], coupling)  # valid where alpha precedes beta
    forward = jnp.where(precedes[:, :, None], products, 0.0)
    backward = jnp.where((precedes & ~precedes.T)[:, :, None], products, 0.0)
    symbols = forward + backward.swapaxes(0, 1)  # (G18), (G13)
    moving_columns = configuration.subspace_derivatives(model, q)
    if model.rotors.count:
        symbols = symbols + rotors.coupling_symbols(model, placed, moving_columns)  # (R4)
    if moving_columns is None:
        return symbols
    return symbols + _of_columns_moving_in_bodies(model, placed, moving_columns)


def _koszul_formula(model: Model, q: Coordinates) -> Symbols:
    """The connection from derivatives of the mass matrix and brackets of the velocity directions. Source: theory.md (G6), (G16)."""

    def stepped(step):
        return mass_matrix(model, configuration.integrate(model, q, step))

    da = jax.jacfwd(stepped)(jnp.zeros(model.nv, q.dtype))  # da[b, g, a] = X_a M[b, g]
    metric = 0.5 * (einsum("bga->abg", da) + einsum("gab->abg", da) - da)  # (G6)
    if all(kind.velocity_is_rate for kind, _ in model.topology.groups):
        return metric
    # Armature is inertia along its velocity component only: it adds to the metric but does not rotate with a body.
    bodies = mass_matrix(model, q) - jnp.diag(model.armature)
    k = einsum("abd,dg->abg", configuration.structure_coefficients(model, q), bodies)
    return metric + 0.5 * (k - einsum("bga->abg", k) + einsum("gab->abg", k))  # (G16)


def _of_columns_moving_in_bodies(model: Model, placed: Placements, derivatives: Float[Array, "nv nv 6"]) -> Symbols:
    """Term of the connection for columns that move in their body: the derivative of a column along another one of its joint.

    Source: theory.md (G19).
    """
    topology = model.topology
    body = topology.body_of_column
    changes = jax.vmap(lambda along: _on_ground(model, placed, along))(derivatives)
    comparable = topology.column_precedes | topology.column_precedes.T
    deeper = np.maximum(body[:, None], body[None, :])
    subtree = jax.tree.map(lambda x: x[deeper], composite_inertia(model, placed))
    momenta = jax.vmap(jax.vmap(SpatialInertia.momentum), (0, None))(subtree, placed.columns)  # [alpha, gamma]
    products = einsum("abc,agc->abg", changes, momenta)  # (G19)
    return jnp.where(comparable[:, None, :], products, 0.0)


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
        subtree.mass[..., None] * cross(nu_b, nu_g)
        + cross(nu_b, cross(w_g, h))
        + cross(cross(w_b, h), nu_g)
        + einsum("bgij,bgj->bgi", subtree.planar, cross(w_b, w_g))
    )  # (G18)
    return jnp.where(comparable[..., None], coupling, 0.0)


@model_function
def christoffel_second_kind(model: Model, q: Coordinates) -> Symbols:
    """Christoffel symbols of the second kind, G[alpha, beta, delta] = Gamma^delta_{alpha beta}.

        Gamma^delta_{alpha beta} = a^{delta gamma} Gamma_{alpha beta, gamma}

    The upper index delta is the last index of the array.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).

    Raises:
        ValueError: The errors are those of `christoffel_first_kind`.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        model = jaxdyn.library.double_pendulum()
        symbols = jaxdyn.christoffel_second_kind(model, jnp.array([0.3, -0.5]))
        ```

    Source: theory.md (G5).
    """
    return _raised(model, q, christoffel_first_kind(model, q))


@model_function
def connection_second_kind(model: Model, q: Coordinates) -> Symbols:
    """Connection with its last index raised, L[alpha, beta, delta] = a^{delta gamma} L_{alpha beta, gamma}, for all joints.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).

    Source: theory.md (G5), (G13).
    """
    return _raised(model, q, connection_first_kind(model, q))


def _raised(model: Model, q: Coordinates, first: Symbols) -> Symbols:
    n = model.nv
    solved = factorizations.solve(mass_matrix(model, q), first.reshape(n * n, n).T)  # (G5)
    return solved.T.reshape(n, n, n)


@model_function
def coriolis_matrix(model: Model, q: Coordinates, v: Velocities) -> MassMatrix:
    """Coriolis matrix C[gamma, beta] = L_{alpha beta, gamma} v^alpha: C v is the velocity part of the bias force.

    L is the connection, which equals the Christoffel symbols if all velocities are coordinate rates. For all joints,
    dM/dt = C + C', so dM/dt - 2 C is skew-symmetric. Prescribed motion adds forces that C v does not contain. The computation does
    not form the nv^3 symbols.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).

    Returns:
        Matrix, N m s or N s by the kinds of coordinates.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        model = jaxdyn.library.double_pendulum()
        q, v = jnp.array([0.3, -0.5]), jnp.array([1.0, 0.5])
        force = jaxdyn.coriolis_matrix(model, q, v) @ v
        ```

    Source: theory.md (G7), (G17), (G20), (R8).
    """
    placed = kinematics.placements(model, q)
    topology = model.topology
    columns = placed.columns
    velocity = tree.sum_over_columns(topology, columns * v[:, None])
    rates = jax.vmap(cross_motion)(tree.of_columns(topology, velocity), columns)
    moving_columns = configuration.subspace_derivatives(model, q)
    if moving_columns is not None:
        rates = rates + _on_ground(model, placed, einsum("abc,a->bc", moving_columns, v))
    matrix = response.inertial_response(model, placed, v, velocity, 0.5 * columns, rates)  # (G20)
    if not model.rotors.count:
        return matrix
    return matrix + 0.5 * rotors.response_to_rates(model, placed, velocity)  # (R8)


def _on_ground(model: Model, placed: Placements, in_child: Float[Array, "nv 6"]) -> Float[Array, "nv 6"]:
    """Motion vectors that belong to columns, transformed from child axes to ground axes about the reference point."""
    body = model.topology.body_of_column
    return jax.vmap(motion_to_outer)(placed.rotation[body], placed.offset[body], in_child)


@model_function
def covariant_derivative(model: Model, q: Coordinates, v: Velocities, w: Velocities, w_rate: Velocities) -> Velocities:
    """Covariant derivative, along a path, of a vector field that is given on this path.

        (Dw/dt)^delta = dw^delta/dt + L^delta_{alpha beta} v^alpha w^beta

    The derivative is zero for a vector in parallel transport. For w = v, the derivative is the acceleration caused by forces, M
    Dv/dt = Q.

    Args:
        model: Mechanism.
        q: Point of the path, generalized coordinates (rad or m).
        v: Velocity of the path (rad/s or m/s).
        w: Components of the field at q.
        w_rate: Time derivatives of the components w along the path.

    Source: theory.md (I2), (G14).
    """
    return w_rate + factorizations.solve(mass_matrix(model, q), dot(coriolis_matrix(model, q, v), w))
