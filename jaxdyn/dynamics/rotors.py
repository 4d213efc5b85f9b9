"""Contribution of the spin of geared rotors to the mechanics of the bodies, theory.md section (r).

A rotor with the moment of inertia J about the axis e, fixed in body c, spins at the rate r v, where v is a velocity component. Two
quantities describe the rotor: its inertia J r^2 along the velocity component, like an armature, and the spin column

    h = J r e,   the angular momentum relative to the carrier per rate of the component,

which couples the velocity component with the rotation of the carrier: E = v h.omega_c + 1/2 J r^2 v^2 (R1). A rotor on the ground
has no coupling. All terms are conditional on `model.rotors.count`, so the compiled programs of models without rotors contain no
terms of rotors.
"""

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import einsum
from jaxdyn.dynamics.kinematics import Motion, Placements
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.topology import GROUND
from jaxdyn.spatial.rotation import cross

PerColumn = Float[Array, "nv"]
PerBody3 = Float[Array, "nb 3"]
SpinColumns = Float[Array, "nv nb 3"]


def reflected_inertia(model: Model) -> PerColumn:
    """Inertia along each velocity component: armature plus J r^2 of its rotors; kg m^2 or kg. Source: theory.md (R2)."""
    rotors = model.rotors
    if not rotors.count:
        return model.armature
    along = rotors.driving(model.nv).astype(model.dtype)
    return model.armature + einsum("ra,r->a", along, rotors.inertia * rotors.ratio**2)  # (R2)


def spin_columns(model: Model, placed: Placements) -> SpinColumns:
    """Spin column h of every velocity component and body, ground axes: relative angular momentum per rate; kg m^2 or kg m.

    Source: theory.md (R1).
    """
    rotors = model.rotors
    spin = (rotors.inertia * rotors.ratio)[:, None] * rotors.axis
    carried = rotors.carried(model.nb).astype(model.dtype)
    driving = rotors.driving(model.nv).astype(model.dtype)
    return einsum("ra,rb,bij,rj->abi", driving, carried, placed.rotation, spin)  # (R1)


def moments(h: SpinColumns, rate: PerColumn) -> Float[Array, "nb 6"]:
    """Sum of h times `rate` on each body as (moment; zero force); if `rate` is v, it is the angular momentum relative to the
    carriers."""
    moment = einsum("abi,a->bi", h, rate)
    return jnp.concatenate([moment, jnp.zeros_like(moment)], axis=1)


def along_columns(h: SpinColumns, angular: PerBody3) -> PerColumn:
    """For each velocity component, the product of h with the angular velocities or accelerations of the carriers."""
    return einsum("abi,bi->a", h, angular)


def moments_of_motion(h: SpinColumns, angular_velocity: PerBody3, v: PerColumn, a: PerColumn) -> Float[Array, "nb 6"]:
    """Moment h a + omega x h v, as (moment; zero force), that the rotors of each body require in a motion.

    Args:
        h: Spin columns.
        angular_velocity: Angular velocities of the carriers, ground axes, rad/s.
        v: Generalized velocities.
        a: Generalized accelerations.

    Source: theory.md (R3).
    """
    momentum, rate = moments(h, v), moments(h, a)
    return rate.at[:, :3].add(cross(angular_velocity, momentum[:, :3]))  # (R3)


def are_beside_joints(model: Model) -> bool:
    """Whether each rotor is carried by the ground or by a body adjacent to the joint that it drives."""
    return not any(_distant(model))


def _distant(model: Model) -> Iterator[tuple[str, int, int]]:
    """Name, carrier and driven body of the rotors on bodies that are not adjacent to their joints."""
    topology, rotors = model.topology, model.rotors
    for name, carrier, column in zip(rotors.names, rotors.carriers, rotors.columns, strict=True):
        body = topology.body_of_column[column]
        if carrier not in (body, topology.parents[body], GROUND):
            yield name, carrier, body


def spin_beside_joints(model: Model, h: SpinColumns) -> tuple[Float[Array, "nv 6"], Float[Array, "nv 6"]]:
    """Spin columns (h; 0) of each velocity component on the parent body and on the child body of its joint, for articulated bodies.

    Raises:
        ValueError: A rotor on a body that is not adjacent to its joint couples bodies that are not adjacent.

    Source: theory.md (R6).
    """
    topology = model.topology
    for name, carrier, body in _distant(model):
        raise ValueError(
            f"rotor {name!r} of mechanism {model.name!r} is carried by {topology.body_name(carrier)!r}, which is not adjacent "
            f'to the joint {topology.joint_names[body]!r} that it drives; use method="cholesky"'
        )
    own = np.equal.outer(topology.body_of_column, np.arange(model.nb))
    parent = np.equal.outer(np.array(topology.parents)[topology.body_of_column], np.arange(model.nb))
    padded = jnp.concatenate([h, jnp.zeros_like(h)], axis=2)
    beside, carried = (einsum("ab,abi->ai", side.astype(model.dtype), padded) for side in (parent, own))
    return beside, carried


def coupling_metric(model: Model, placed: Placements) -> Float[Array, "nv nv"]:
    """Contribution of the spin columns to the mass matrix, without reflected inertia. Source: theory.md (R2)."""
    moves = model.topology.column_moves_body.astype(model.dtype)
    half = einsum("abi,gb,gi->ag", spin_columns(model, placed), moves, placed.columns[:, :3])
    return half + half.T  # (R2)


def coupling_symbols(
    model: Model, placed: Placements, moving_columns: Float[Array, "nv nv 6"] | None
) -> Float[Array, "nv nv nv"]:
    """Contribution of the spin columns to the connection, with the indices [alpha, beta, gamma].

    Args:
        model: Mechanism.
        placed: Placements of the bodies.
        moving_columns: Result of `configuration.subspace_derivatives`.

    Source: theory.md (R4).
    """
    topology = model.topology
    h = spin_columns(model, placed)
    moves = topology.column_moves_body.astype(model.dtype)
    w = placed.columns[:, :3]
    products = cross(w[:, None], w[None])
    triple = einsum("gci,abi,ac,bc->abg", h, products, moves, moves)  # h_gamma . (Omega_alpha x Omega_beta)
    rates = jnp.where(topology.column_precedes[:, :, None], triple, 0.0)  # h_gamma . X_alpha Omega_beta
    if moving_columns is not None:
        turned = einsum("bij,abj->abi", placed.rotation[topology.body_of_column], moving_columns[..., :3])
        rates = rates + einsum("gci,abi,bc->abg", h, turned, moves)
    return rates + 0.5 * (einsum("gab->abg", triple) - einsum("bga->abg", triple) - triple)  # (R4)


def response_along_columns(
    model: Model, placed: Placements, velocity: Float[Array, "nb 6"], x: Float[Array, "nv 3"], y: Float[Array, "nv 3"]
) -> Float[Array, "nv nv"]:
    """Matrix [gamma, beta]: change of the generalized force gamma of the rotors when the bodies that the velocity component beta
    moves gain velocity.

    Args:
        model: Mechanism.
        placed: Placements of the bodies.
        velocity: Velocities of the bodies about the reference point P, ground axes.
        x: Gain x_beta of angular velocity for each velocity component, ground axes.
        y: Gain of angular acceleration for each velocity component, which is y_beta + x_beta x omega.

    Source: theory.md (R8).
    """
    h = spin_columns(model, placed)
    moves = model.topology.column_moves_body.astype(model.dtype)
    turned = cross(velocity[None, :, :3], h)
    return einsum("gci,bc,bi->gb", h, moves, y) + einsum("gci,bc,bi->gb", turned, moves, x)


def response_to_rates(model: Model, placed: Placements, velocity: Float[Array, "nb 6"]) -> Float[Array, "nv nv"]:
    """Matrix [gamma, beta]: change of the generalized force gamma with the rate of the rotors of the velocity component beta, which
    exert the moments omega x h on their carriers.

    Args:
        model: Mechanism.
        placed: Placements of the bodies.
        velocity: Velocities of the bodies about the reference point P, ground axes.

    Source: theory.md (R8).
    """
    turned = cross(velocity[None, :, :3], spin_columns(model, placed))
    moves = model.topology.column_moves_body.astype(model.dtype)
    return einsum("bci,gc,gi->gb", turned, moves, placed.columns[:, :3])


def kinetic_energy(model: Model, moving: Motion) -> Float[Array, ""]:
    """Kinetic energy of the spin of rotors, without armature, J. Source: theory.md (R1)."""
    rotors = model.rotors
    momentum = along_columns(spin_columns(model, moving.placements), moving.velocity[:, :3])
    rate = rotors.ratio * moving.v[np.array(rotors.columns)]
    return einsum("a,a->", momentum, moving.v) + 0.5 * einsum("r,r,r->", rotors.inertia, rate, rate)  # (R1)


def momentum_columns(model: Model, placed: Placements) -> Float[Array, "nv 3"]:
    """Angular momentum of the spin of all rotors, also of those on the ground, per unit of each velocity component; ground axes.

    Source: theory.md (R7).
    """
    rotors = model.rotors
    ground = jnp.eye(3, dtype=model.dtype)[None]
    carriers = [model.nb if carrier == GROUND else carrier for carrier in rotors.carriers]
    rotation = jnp.concatenate([placed.rotation, ground])[np.array(carriers)]
    driving = rotors.driving(model.nv).astype(model.dtype)
    return einsum("rij,rj,r,ra->ai", rotation, rotors.axis, rotors.inertia * rotors.ratio, driving)  # (R7)


def angular_momentum(model: Model, moving: Motion) -> Float[Array, "3"]:
    """Angular momentum of the spin of all rotors, also of those on the ground; ground axes, kg m^2/s. Source: theory.md (R7)."""
    return einsum("ai,a->i", momentum_columns(model, moving.placements), moving.v)


def angular_momentum_rate(model: Model, moving: Motion, a: PerColumn) -> Float[Array, "3"]:
    """Rate of `angular_momentum`, N m.

    Args:
        model: Mechanism.
        moving: Motion of the model.
        a: Generalized accelerations.

    Source: theory.md (R3), (R7).
    """
    placed = moving.placements
    carried = moments(spin_columns(model, placed), moving.v)[:, :3]
    turned = jnp.sum(cross(moving.velocity[:, :3], carried), axis=0)
    return einsum("ai,a->i", momentum_columns(model, placed), a) + turned
