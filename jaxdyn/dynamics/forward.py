"""Forward dynamics: the accelerations caused by generalized forces."""

import functools
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

import jaxdyn.compute as compute
from jaxdyn.compute import sweeps
from jaxdyn.compute.arrays import dot, einsum, rows_at
from jaxdyn.compute.hints import traced_once
from jaxdyn.dynamics import added_inertia, inverse, kinematics, metric, rotors
from jaxdyn.dynamics.added_inertia import AddedInertia
from jaxdyn.dynamics.doors import model_function
from jaxdyn.dynamics.inverse import GeneralizedForces
from jaxdyn.dynamics.kinematics import Accelerations, Coordinates, Motion, Velocities
from jaxdyn.errors import check_name
from jaxdyn.mechanism import tree
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial import factorizations
from jaxdyn.spatial.directions import directional_derivative, stays

ForwardMethod = Literal["auto", "cholesky", "articulated_body", "contravariant"]

# Operations in scalar programs, counted for chains, trees and legged robots with up to 64 velocity components: of "cholesky" for
# each triple and each pair of components on one path of the tree. "articulated_body" has about 110 for each component, which
# take as long as 85 on a CPU; a kernel for GPUs needs a third more registers with them for an arm of seven hinges.
_PER_TRIPLE, _PER_PAIR, _PER_COMPONENT = 2, 15, 85

# Lower triangle of a symmetric 6x6 matrix row by row, and the position there of each entry of the matrix.
_LOWER = tuple(index.astype(np.int32) for index in np.tril_indices(6))
_ENTRIES = np.array([[max(i, j) * (max(i, j) + 1) // 2 + min(i, j) for j in range(6)] for i in range(6)], np.int32)


@model_function
def forward_dynamics(
    model: Model, q: Coordinates, v: Velocities, tau: GeneralizedForces, *, method: ForwardMethod = "auto"
) -> Accelerations:
    """Generalized accelerations a that solve M a + h = tau, where h includes gravity.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).
        tau: All generalized forces except gravity (N m or N).
        method: "cholesky" factorizes the mass matrix. "articulated_body" is a recursion of linear cost; it requires that each
            rotor is carried by the body of the joint that it drives, by the parent of this body or by the ground. "auto" chooses
            the one of both that takes less time: the recursion from about eight hinges in a row and for legged robots.
            "contravariant" evaluates a^delta = Q^delta - Gamma^delta_{alpha beta} v^alpha v^beta literally and does not support
            prescribed motion.

    Returns:
        Accelerations, rad/s^2 or m/s^2. The values are not finite where the mass matrix is singular.

    Raises:
        ValueError: An argument has the wrong shape, there is no such method, or "articulated_body" does not support a rotor.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        model = jaxdyn.library.double_pendulum()
        q, v, tau = jnp.array([0.3, -0.5]), jnp.array([1.0, 0.0]), jnp.zeros(2)
        a = jaxdyn.forward_dynamics(model, q, v, tau, method="articulated_body")
        ```

    Source: theory.md (I1), (I2), (R6); articulated bodies: Featherstone 1983.
    """
    return accelerations_from(model, kinematics.motion(model, q, v), tau, method)


def accelerations_from(
    model: Model, moving: Motion, tau: GeneralizedForces, method: ForwardMethod, added: AddedInertia | None = None
) -> Accelerations:
    """Forward dynamics from a precomputed motion.

    Args:
        model: Mechanism.
        moving: Motion of this model.
        tau: All generalized forces except gravity (N m or N).
        method: Algorithm, see `forward_dynamics`. If `added` contains forces between bodies, the mass matrix is factorized instead
            of using "articulated_body".
        added: Inertia A of an implicit step, which changes the equation of motion to (M + A) a + h = tau.
    """
    check_method(method)
    if method == "auto":
        method = "articulated_body" if _recursion_is_cheaper(model) else "cholesky"
    if method in ("cholesky", "articulated_body"):
        between_bodies = added is not None and added.components is not None
        return _accelerations("cholesky" if between_bodies else method, model, moving, tau, added)
    q, v = moving.q, moving.v
    inverse.refuse_prescribed_motion(model, 'method="contravariant"')
    mass = metric.mass_matrix(model, q)
    force = factorizations.solve(mass, tau + inverse.gravity_force(model, q))
    a = force - einsum("abd,a,b->d", metric.connection_second_kind(model, q), v, v)  # (I2)
    if added is None:
        return a
    lower = added_inertia.lower_mass_matrix(model, moving.placements, added)
    return factorizations.solve(lower + jnp.tril(lower, -1).T, dot(mass, a))


def check_method(method: Any) -> None:
    """Raise an error unless the argument is the name of an algorithm of `forward_dynamics`.

    Args:
        method: Argument to check.

    Raises:
        UnknownName: There is no such method.
    """
    check_name("method of forward_dynamics", method, get_args(ForwardMethod))


def _recursion_is_cheaper(model: Model) -> bool:
    """Whether "articulated_body" takes less time than "cholesky"."""
    if not rotors.are_beside_joints(model):
        return False
    topology = model.topology
    # Components on the path from the root to each component, including itself.
    above = np.tril(topology.column_precedes.T).sum(axis=1)
    factorization = _PER_TRIPLE * np.sum(above * (above - 1) / 2) + _PER_PAIR * np.sum(above)
    return bool(factorization > _PER_COMPONENT * topology.nv)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _accelerations(
    method: str, model: Model, moving: Motion, tau: GeneralizedForces, added: AddedInertia | None
) -> Accelerations:
    """Accelerations; their derivative is that of the equation of motion, not that of the algorithm that solves it."""
    if method == "articulated_body":
        return _articulated_body(model, moving, tau, added)
    bias = inverse.forces_of_motion(model, moving, jnp.zeros_like(tau))
    factor, lower = _factor(model, moving.placements, added)
    return factorizations.cholesky_solve(factor, tau - bias, lower=lower)


@functools.partial(_accelerations.defjvp, symbolic_zeros=True)
def _accelerations_jvp(method, primals, tangents):
    """(M + A) da = dtau - d(M a + h + A a) at constant a: one derivative of the inverse dynamics, and one solution with the same
    matrix.

    Source: theory.md (I7).
    """
    model, moving, tau, added = primals
    d_model, d_moving, d_tau, d_added = tangents
    # `change_of_forces` derives the other fields of the motion from the model, q and v.
    d_mechanism = (d_model, d_moving.q, d_moving.v)
    # Reverse mode may store this solution instead of computing it again.
    a = compute.keep(_accelerations(method, model, moving, tau, added))
    right = jnp.zeros_like(tau) if stays(d_tau) else d_tau
    if not stays(d_mechanism):
        right = right - inverse.change_of_forces(model, moving, a, (*d_mechanism, SymbolicZero(jax.typeof(a))))
    if added is not None:
        right = right - change_of_added_force(model, moving, added, a, (d_model, d_moving, d_added))
    if method == "articulated_body":
        # At rest and without gravity, the algorithm multiplies by the inverse of M.
        still = eqx.tree_at(lambda m: (m.velocity, m.bias), moving, replace_fn=jnp.zeros_like)
        weightless = eqx.tree_at(lambda m: m.gravity, model, replace_fn=jnp.zeros_like)
        return a, _articulated_body(weightless, still, right, added)
    factor, lower = _factor(model, moving.placements, added)
    return a, factorizations.cholesky_solve(compute.keep_triangle(factor, lower=lower), right, lower=lower)


def change_of_added_force(
    model: Model, moving: Motion, added: AddedInertia, a: Accelerations, tangents: tuple
) -> GeneralizedForces:
    """Derivative of the force A a of an added inertia along a tangent, at constant a.

    Args:
        model: Mechanism.
        moving: Motion of the model.
        added: Added inertia.
        a: Generalized accelerations (rad/s^2 or m/s^2).
        tangents: Tangents of (model, moving, added); symbolic zeros for arguments that do not vary.
    """
    if stays(tangents):
        return jnp.zeros_like(a)

    def force(model, moving, added):
        return added_inertia.force(model, moving.placements, added, a)

    return directional_derivative(force, (model, moving, added), tangents)


def mass_factor(
    model: Model, placed: kinematics.Placements, added: AddedInertia | None = None
) -> Float[Array, "nv nv"]:
    """Upper triangular factor U of the mass matrix M = U U', or of M + A with an added inertia.

    Entries of M that are zero because two joints are on different branches of the tree are zero in U too. A lower factor L of
    M = L L' would fill them. Source: Featherstone 2005, Efficient factorization of the joint-space inertia matrix.
    """
    return factorizations.upper_factor_of_lower(added_inertia.lower_mass_matrix(model, placed, added))


def _factor(
    model: Model, placed: kinematics.Placements, added: AddedInertia | None
) -> tuple[Float[Array, "nv nv"], bool]:
    """Triangular factor F of M = F F', and whether it is lower.

    In a chain no entry of M is zero. Then the lower factor is used, because kernels with it need fewer registers of GPUs.
    """
    before = model.topology.column_precedes
    if np.all(before | before.T):
        return factorizations.cholesky_of_lower(added_inertia.lower_mass_matrix(model, placed, added)), True
    return mass_factor(model, placed, added), False


@traced_once
def _articulated_body(
    model: Model, moving: Motion, tau: GeneralizedForces, added: AddedInertia | None
) -> Accelerations:
    """Articulated-body algorithm. On ground axes about one point, quantities need no transformation between bodies.

    Every joint is padded to the largest number of columns present; padding columns are zero and have unit inertia.
    """
    topology = model.topology
    widest = max(1, *(kind.nv for kind, _ in topology.groups))
    slot = np.full((topology.nb, widest), topology.nv)
    for i, kind in enumerate(topology.joint_classes):
        slot[i, : kind.nv] = topology.v_starts[i] + np.arange(kind.nv)

    def per_body(per_column: Float[Array, "nv *rest"], padding: float) -> Float[Array, "nb widest *rest"]:
        if not np.any(slot == topology.nv):
            return rows_at(per_column, slot)
        return rows_at(jnp.concatenate([per_column, jnp.full_like(per_column[:1], padding)]), slot)

    looped = tree.is_looped(topology)
    # Accelerations are relative to those at zero qdd, which `motion` has already summed along the paths.
    force = inverse.inertial_forces(model, moving, moving.bias)
    columns = per_body(moving.placements.columns, 0.0)
    rotor = per_body(rotors.reflected_inertia(model), 1.0)
    spin, own_spin = None, None
    if model.rotors.count:
        h = rotors.spin_columns(model, moving.placements)
        beside, own = rotors.spin_beside_joints(model, h)
        spin, own_spin = per_body(beside + own, 0.0), per_body(own, 0.0)
        tau = tau - rotors.along_columns(h, moving.bias[:, :3])
        force = force + rotors.moments_of_motion(h, moving.velocity[:, :3], moving.v, jnp.zeros_like(tau))
    effort = per_body(tau, 0.0)
    inertia = tree.of_bodies(topology, lambda body: body.matrix[_LOWER], moving.placements.inertia)
    if added is not None and added.bodies is not None:
        inertia = inertia + added.bodies[:, *_LOWER]

    def toward_root(state, data):
        lower, bias = state
        s, rotor, effort, spin, own_spin = data
        u = dot(lower[_ENTRIES], s.T)
        joint_inertia = dot(s, u) + jnp.diag(rotor)
        if spin is not None:
            coupling = dot(s, own_spin.T)
            joint_inertia, u = joint_inertia + coupling + coupling.T, u + spin.T  # (R6)
        # With the inertia of the joint L L', both messages are products of L^-1 u'.
        factor = factorizations.cholesky_of_lower(joint_inertia)
        inverse = factorizations.solve_triangular(factor, np.eye(widest, dtype=factor.dtype), lower=True)
        half, start = dot(inverse, u.T), dot(inverse, effort - dot(s, bias))
        message = (lower - dot(half.T, half)[_LOWER], bias + dot(start, half))
        return message, (inverse, half, start)

    solved = sweeps.from_leaves_to_root(
        topology.parents, toward_root, (inertia, force), (columns, rotor, effort, spin, own_spin), looped=looped
    )

    def toward_leaves(parent, data):
        (acceleration, _), (s, (inverse, half, start)) = parent, data
        a = dot(start - dot(half, acceleration), inverse)
        return acceleration + dot(a, s), a

    ground = (jnp.zeros(6, tau.dtype), jnp.zeros(widest, tau.dtype))
    _, a = sweeps.from_root_to_leaves(topology.parents, toward_leaves, (columns, solved), ground, looped=looped)
    return rows_at(a.reshape(-1), np.flatnonzero(slot < topology.nv))
