"""Product of exponentials: the kinematics of a tree from the screws of its joints at the reference configuration.

A joint of one degree of freedom displaces all bodies that it carries by expm(X q) with X = [[S(e), v], [0, 0]]. Here e is the
direction of its axis (zero for a prismatic joint), and v is the velocity of the body point at the ground origin per unit of joint
rate. Both vectors are on ground axes at the reference configuration, where all joint coordinates are zero:

    revolute v = P x e,   prismatic e = 0, v the direction,   helical v = P x e + pitch e            (P a point of the axis)

The product of exponentials is an alternative to the placements, velocities and accelerations of `jaxdyn.dynamics.kinematics`: it
uses 4x4 matrices and screws instead of quaternions and motion columns on current axes. Its reference point is the ground origin, so
rounding errors grow with the distance from the ground origin. The equations are in theory.md section (c).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.compute import kernel_function, sweeps
from jaxdyn.compute.arrays import dot, einsum
from jaxdyn.dynamics.doors import kinematic_function
from jaxdyn.dynamics.kinematics import Accelerations, BodyMotion, Coordinates, Velocities
from jaxdyn.mechanism import configuration, tree
from jaxdyn.mechanism.joint import Joint
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial.rotation import Vector3, cross, rodrigues, skew

Matrix44 = Float[Array, "4 4"]
Matrices44 = Float[Array, "nb 4 4"]


class Screws(NamedTuple):
    """Screws and placements at the reference configuration (all joint coordinates zero), on ground axes.

    Attributes:
        axis: Unit vector e of each joint; zero for a prismatic joint.
        moment: Velocity v of the body point at the ground origin per unit rate of each joint, m or 1.
        reference: Placement [[R_i(0), o_i(0)], [0, 1]] of each body.
    """

    axis: Float[Array, "nb 3"]
    moment: Float[Array, "nb 3"]
    reference: Matrices44


@kinematic_function
def screws(model: Model) -> Screws:
    """Screws of all joints and placements of all bodies at the reference configuration.

    The motion column (w; nu) of a joint at q = 0, on the axes and at the origin of its body, gives e = R(0) w and
    v = R(0) nu + o(0) x e. The column must be constant, with |w| = 1 or w = 0.

    Raises:
        ValueError: A joint has several coordinates, or its screw axis is not constant.

    Source: theory.md (C1), (E3).
    """
    _require_screws(model)
    reference = _products(model, jax.vmap(_matrix)(model.placement.rotation, model.placement.translation))
    column = configuration.motion_columns(model, configuration.neutral(model))
    axis = einsum("bij,bj->bi", reference[:, :3, :3], column[:, :3])
    moment = einsum("bij,bj->bi", reference[:, :3, :3], column[:, 3:]) + cross(reference[:, :3, 3], axis)
    return Screws(axis, moment, reference)


def _require_screws(model: Model) -> None:
    for name, kind in zip(model.topology.joint_names, model.topology.joint_classes, strict=True):
        constant = kind.velocity_is_rate and kind.subspace_rate is Joint.subspace_rate
        if not (kind.nq == kind.nv == 1 and constant):
            raise ValueError(
                f"joint {name!r} ({kind.__name__}) is not a screw of one degree of freedom, so it has no matrix exponential; "
                "use jaxdyn.decompose_joints(model), after jaxdyn.release_joints(model) if its motion is prescribed"
            )


def _matrix(rotation: Float[Array, "3 3"], translation: Vector3) -> Matrix44:
    last = np.array([[0, 0, 0, 1]], rotation.dtype)
    return jnp.concatenate([jnp.concatenate([rotation, translation[:, None]], axis=1), last])


def _products(model: Model, local: Matrices44) -> Matrices44:
    """Ordered products of matrices along the path from the root to each body."""
    return sweeps.from_root_to_leaves(model.topology.parents, dot, local, jnp.eye(4, dtype=local.dtype), looped=False)


@kernel_function
def screw_exponential(axis: Vector3, moment: Vector3, angle: Float[Array, ""]) -> Matrix44:
    """Exponential [[A, b], [0, 1]] of [[S(e), v], [0, 0]] q in closed form.

        A = 1 + sin(q) S(e) + (1 - cos q) S(e)^2,   b = ( q 1 + (1 - cos q) S(e) + (q - sin q) S(e)^2 ) v

    Args:
        axis: Unit vector e, or zero for a translation (A = 1, b = q v).
        moment: Velocity v of the body point at the ground origin per unit of rate, on the axes of e.
        angle: Angle q, rad, or displacement q, m, if the axis is zero.

    Source: theory.md (C1), (C2).
    """
    s = skew(axis)
    turned = dot(s, moment)
    b = angle * moment + (1.0 - jnp.cos(angle)) * turned + (angle - jnp.sin(angle)) * dot(s, turned)  # (C2)
    return _matrix(rodrigues(axis, angle), b)  # (C1)


def _exponential_rate(axis: Vector3, moment: Vector3, angle: Float[Array, ""], rate: Float[Array, ""]) -> Vector3:
    """Rate of b. Source: theory.md (C3)."""
    s = skew(axis)
    turned = dot(s, moment)
    return (moment + jnp.sin(angle) * turned + (1.0 - jnp.cos(angle)) * dot(s, turned)) * rate  # (C3)


def _angles(model: Model, q: Coordinates) -> Float[Array, "nb"]:
    """Displacement of each joint along its screw, rad or m."""
    return configuration.difference(model, configuration.neutral(model), q)


def _exponentials(model: Model, joints: Screws, q: Coordinates) -> Matrices44:
    return jax.vmap(screw_exponential)(joints.axis, joints.moment, _angles(model, q))  # (C1)


@kinematic_function
def screw_displacements(model: Model, q: Coordinates) -> Matrices44:
    """Displacements H_i of all bodies from the reference configuration: a point moves from x(0) to H_i x(0).

        H_i = product over the path, starting at the root, of expm(X_k q^k)

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).

    Returns:
        4x4 matrices [[A_{0,i}, h_i], [0, 1]], ground axes, m.

    Raises:
        ValueError: q has the wrong shape, or a joint is not a screw of one degree of freedom.

    Source: theory.md (C4); Brockett 1984.
    """
    return _products(model, _exponentials(model, screws(model), q))  # (C4)


@kinematic_function
def screw_poses(model: Model, q: Coordinates) -> Matrices44:
    """Poses [[R_i, o_i], [0, 1]] of all body frames in the ground, m. The poses equal those of `forward_kinematics`.

    Source: theory.md (C5).
    """
    joints = screws(model)
    displacements = _products(model, _exponentials(model, joints, q))  # (C4)
    return einsum("bij,bjk->bik", displacements, joints.reference)  # (C5)


@kinematic_function
def screw_velocities(model: Model, q: Coordinates, v: Velocities) -> BodyMotion:
    """Angular velocities and center-of-mass velocities of all bodies, ground axes, equal to those of `mass_center_velocities`.

        omega_i = sum over the path of A_{0,par(k)} e_k v^k
        v_i = sum over the path of [ dA_{0,par(k)}/dt b_k + A_{0,par(k)} db_k/dt ] + dA_{0,i}/dt r_i(0)

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).

    Source: theory.md (C3), (C6), (C7) with the center of mass in place of the body origin.
    """
    joints, topology = screws(model), model.topology
    local = _exponentials(model, joints, q)
    shift = local[:, :3, 3]
    shift_rate = jax.vmap(_exponential_rate)(joints.axis, joints.moment, _angles(model, q), v)
    turn = _products(model, local)[:, :3, :3]  # (C4)
    before = jnp.concatenate([jnp.eye(3, dtype=q.dtype)[None], turn])[np.array(topology.parents) + 1]

    own = einsum("bij,bj->bi", before, joints.axis) * v[:, None]
    omega = tree.sum_over_ancestors(topology, own)  # (C6)
    # dA_{0,j}/dt: the sum in (C7) is S(omega_j) A_{0,j}, for A_{0,par(m)} S(e) = S(A_{0,par(m)} e) A_{0,par(m)}.
    spin = jax.vmap(skew)
    before_rate = einsum("bij,bjk->bik", spin(omega - own), before)  # omega of the parent
    turn_rate = einsum("bij,bjk->bik", spin(omega), turn)
    com = jax.vmap(dot)(joints.reference[:, :3, :3], model.com) + joints.reference[:, :3, 3]
    along_path = einsum("bij,bj->bi", before_rate, shift) + einsum("bij,bj->bi", before, shift_rate)
    return BodyMotion(omega, tree.sum_over_ancestors(topology, along_path) + jax.vmap(dot)(turn_rate, com))  # (C7)


@kinematic_function
def screw_accelerations(model: Model, q: Coordinates, v: Velocities, a: Accelerations) -> BodyMotion:
    """Angular accelerations and center-of-mass accelerations of all bodies, on ground axes: time derivatives of (C6), (C7).

    They equal those of `mass_center_accelerations`; gravity is not included.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).
        a: Generalized accelerations (rad/s^2 or m/s^2).

    Source: theory.md (C6), (C7).
    """
    return jax.jvp(lambda q, v: screw_velocities(model, q, v), (q, v), (v, a))[1]
