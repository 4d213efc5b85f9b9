"""Residuals of constraints, their Jacobian, and their first and second time derivatives; theory.md section (n).

With phi the stacked residuals and G their Jacobian with respect to velocities,

    phi = 0,   dphi/dt = G v + (terms of prescribed motion) = 0,   d^2 phi/dt^2 = G a + bias = 0

G and the time derivatives of phi are exact derivatives of the residual functions along the known motion of the bodies. Therefore a
constraint defines only its residual, and the kinematics of the tree is not differentiated. A `VelocityConstraint` defines the rate
itself, and its residual is zero.
"""

import dataclasses
import operator
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute.hints import traced_once
from jaxdyn.dynamics import kinematics
from jaxdyn.dynamics.constraint import Constraint, VelocityConstraint
from jaxdyn.dynamics.kinematics import Accelerations, BodyMotion, Coordinates, Motion, Placements, Poses, Velocities
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.topology import GROUND


class ConstraintMotion(NamedTuple):
    """Residuals of constraints and their time derivatives along a motion.

    Attributes:
        residual: Residuals phi.
        rate: First time derivatives dphi/dt.
        acceleration: Second time derivatives d^2 phi/dt^2.
    """

    residual: Float[Array, "m"]
    rate: Float[Array, "m"]
    acceleration: Float[Array, "m"]


def residuals(model: Model, constraints: Sequence[Constraint], q: Coordinates, poses: Poses) -> Float[Array, "m"]:
    """Residuals phi of all constraints, in the order of `constraints`.

    Args:
        model: Mechanism.
        constraints: Constraints to evaluate.
        q: Generalized coordinates.
        poses: Poses of the bodies at q.

    Source: theory.md (N7).
    """

    def of_one(constraint: Constraint, poses: Poses):
        return _residual(constraint, model, q, poses)

    return _stacked(of_one, constraints, q, poses)


def residuals_at(model: Model, constraints: Sequence[Constraint], q: Coordinates) -> Float[Array, "m"]:
    """Residuals phi of all constraints at q; this function also computes the poses of the bodies, which `residuals` takes as an
    argument.

    Args:
        model: Mechanism.
        constraints: Constraints to evaluate.
        q: Generalized coordinates.
    """
    return residuals(model, constraints, q, kinematics.placements(model, q).poses)


def jacobian(
    model: Model, constraints: Sequence[Constraint], q: Coordinates, placed: Placements
) -> Float[Array, "m nv"]:
    """Jacobian G of the residuals with respect to the velocity components.

    Args:
        model: Mechanism.
        constraints: Constraints to evaluate.
        q: Generalized coordinates.
        placed: Placements of the bodies at q.

    Source: theory.md (N4), (N6).
    """
    poses = placed.poses

    def by_component(bodies: BodyMotion, component: Velocities):
        return _rate(model, constraints, q, poses, bodies, component)

    partials = kinematics.partials_at(model, placed, placed.offset)
    moved = BodyMotion(partials.angular, partials.linear)
    return jax.vmap(by_component, in_axes=(1, 0), out_axes=1)(moved, jnp.asarray(np.eye(model.nv), q.dtype))


def motion(
    model: Model, constraints: Sequence[Constraint], q: Coordinates, moving: Motion, a: Accelerations | None = None
) -> ConstraintMotion:
    """Residuals of the constraints and their first and second time derivatives along a motion.

    Args:
        model: Mechanism.
        constraints: Constraints to evaluate.
        q: Generalized coordinates.
        moving: Motion of the bodies at q.
        a: Generalized accelerations; zero if None.

    Source: theory.md (N5), (N7).
    """
    placed = moving.placements
    spatial = moving.bias if a is None else kinematics.accelerations(model, moving, a)
    speeds, accelerations = kinematics.motion_of_origins(moving, spatial)

    def rate(q, poses, bodies, v):
        return _rate(model, constraints, q, poses, bodies, v)

    along = (
        configuration.coordinate_rate(model, q, moving.v),
        kinematics.rate_of_poses(model, placed.poses, speeds),
        accelerations,
        jnp.zeros_like(moving.v) if a is None else a,
    )
    first, second = jax.jvp(rate, (q, placed.poses, speeds, moving.v), along)
    return ConstraintMotion(residuals(model, constraints, q, placed.poses), first, second)


def rates(model: Model, constraints: Sequence[Constraint], q: Coordinates, moving: Motion) -> Float[Array, "m"]:
    """First time derivatives dphi/dt of the residuals along a motion.

    Args:
        model: Mechanism.
        constraints: Constraints to evaluate.
        q: Generalized coordinates.
        moving: Motion of the bodies at q.

    Source: theory.md (N7).
    """
    speeds, _ = kinematics.motion_of_origins(moving, moving.bias)
    return _rate(model, constraints, q, moving.placements.poses, speeds, moving.v)


def forces(
    model: Model, constraints: Sequence[Constraint], q: Coordinates, poses: Poses, lam: Float[Array, "m"]
) -> tuple[Float[Array, "nb 3"], Float[Array, "nb 3"], Velocities]:
    """Constraint forces of given multipliers: moment about the body origin O'_i and force on each body, ground axes, and
    generalized forces.

    The virtual work of these forces is lam . dphi for every displacement of the bodies, also if the joints of the tree do not
    permit it.

    Args:
        model: Mechanism.
        constraints: Constraints that exert the forces.
        q: Generalized coordinates.
        poses: Poses of the bodies at q.
        lam: Multipliers of all equations, in the order of `constraints`.

    Returns:
        Moments (N m), forces (N), and the generalized forces of residuals that depend on coordinates directly (N m or N).

    Source: theory.md (N11).
    """

    def rate(bodies: BodyMotion, v: Velocities):
        return _rate(model, constraints, q, poses, bodies, v)

    nothing = jnp.zeros((model.nb, 3), q.dtype)
    at_rest = BodyMotion(nothing, nothing), jnp.zeros(model.nv, q.dtype)
    (moment, force), generalized = jax.linear_transpose(rate, *at_rest)(lam)
    return moment, force, generalized


@traced_once
def _residual(constraint: Constraint, model: Model, q: Coordinates, poses: Poses):
    return constraint.residual(model, q, poses)


@traced_once
def _velocity_rate(constraint: VelocityConstraint, model: Model, q, poses: Poses, bodies: BodyMotion, v: Velocities):
    return constraint.rate(model, q, poses, bodies, v)


def _rate(model: Model, constraints, q: Coordinates, poses: Poses, bodies: BodyMotion, v: Velocities):
    """dphi/dt for given velocities of the body frames and of the coordinates (v)."""
    q_rate = configuration.coordinate_rate(model, q, v)

    def rate(constraint: Constraint, moving):
        poses, rates, bodies = moving
        if isinstance(constraint, VelocityConstraint):
            return _velocity_rate(constraint, model, q, poses, bodies, v)
        return jax.jvp(lambda q, poses: _residual(constraint, model, q, poses), (q, poses), (q_rate, rates))[1]

    return _stacked(rate, constraints, q, (poses, kinematics.rate_of_poses(model, poses, bodies), bodies))


def _stacked(function: Callable, constraints: Sequence[Constraint], q: Coordinates, placed) -> Float[Array, "m"]:
    """Results of function(constraint, placed) of all constraints, in their order. The leaves of `placed` have an axis of bodies.

    Equal constraints between bodies are evaluated at once, so that they are traced and compiled once.
    """
    groups: dict[Hashable, list[int]] = {}
    for k, constraint in enumerate(constraints):
        groups.setdefault(k if constraint.ends is None else _form(constraint), []).append(k)
    found: dict[int, Float[Array, "_"]] = {}
    for members in groups.values():
        first, ends = constraints[members[0]], constraints[members[0]].ends
        if ends is None or len(members) == 1:
            found |= {k: function(constraints[k], placed) for k in members}
            continue
        bodies = np.array([[getattr(constraints[k], end) for end in ends] for k in members])
        places = {end: GROUND if bodies[0, i] == GROUND else i for i, end in enumerate(ends)}
        leaves = zip(*(jax.tree.leaves(constraints[k]) for k in members), strict=True)
        form = jax.tree.structure(dataclasses.replace(first, **places))
        each = jax.tree.unflatten(form, [jnp.stack(parts) for parts in leaves])
        at_ends = jax.tree.map(operator.itemgetter(bodies), placed)
        found |= zip(members, jax.vmap(function)(each, at_ends), strict=True)
    return jnp.concatenate([jnp.zeros(0, q.dtype), *(found[k] for k in range(len(constraints)))])


def _form(constraint: Constraint) -> Hashable:
    """Key that is equal for constraints that can be evaluated at once: they differ in names, values and bodies only."""
    bodies = {end: min(getattr(constraint, end), 0) for end in constraint.ends or ()}
    alike = dataclasses.replace(constraint, name="", **bodies)
    return jax.tree.structure(alike), *((x.shape, str(x.dtype)) for x in jax.tree.leaves(alike))
