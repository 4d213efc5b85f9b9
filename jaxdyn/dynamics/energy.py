"""Energy, linear momentum and angular momentum of a mechanism."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, einsum
from jaxdyn.dynamics import inverse, kinematics, metric, rotors
from jaxdyn.dynamics.doors import model_function
from jaxdyn.dynamics.kinematics import Accelerations, Coordinates, Motion, Placements, Velocities
from jaxdyn.mechanism import tree
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial.inertia import SpatialInertia
from jaxdyn.spatial.rotation import cross

Momenta = Float[Array, "nv"]


@model_function
def kinetic_energy(model: Model, q: Coordinates, v: Velocities) -> Float[Array, ""]:
    """Kinetic energy E = 1/2 v' M v of the bodies and rotors, J.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        model = jaxdyn.library.double_pendulum()
        energy = jaxdyn.kinetic_energy(model, jnp.array([0.3, -0.5]), jnp.array([1.0, 0.0]))
        ```

    Source: theory.md (F2), (R1).
    """
    moving = kinematics.motion(model, q, v)
    energy = 0.5 * (einsum("bc,bc->", body_momenta(moving), moving.velocity) + einsum("a,a,a->", model.armature, v, v))
    return energy + rotors.kinetic_energy(model, moving) if model.rotors.count else energy


@model_function
def potential_energy(model: Model, q: Coordinates) -> Float[Array, ""]:
    """Potential energy of gravity V = - sum m_i g . r_i, J; zero if all centers of mass are at the ground origin.

    For a `System`, potential_energy(system, state, t=0.0) also contains that of its forces.

    Args:
        model: Mechanism, or a `System`.
        q: Generalized coordinates (rad or m); for a system, a `State`.

    Example:
        ```python
        import jax, jax.numpy as jnp, jaxdyn

        model = jaxdyn.library.double_pendulum()
        gradient = jax.grad(jaxdyn.potential_energy, argnums=1)(model, jnp.array([0.3, -0.5]))
        ```

    Source: theory.md (H2), (H3).
    """
    placed = kinematics.placements(model, q)
    return -einsum("b,bi,i->", model.mass, placed.reference + placed.com, model.gravity)  # (H2)


@model_function
def momentum(model: Model, q: Coordinates, v: Velocities) -> Float[Array, "3"]:
    """Linear momentum sum m_i v_i, ground axes, kg m/s.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).

    Source: theory.md (M1).
    """
    return einsum("b,bi->i", model.mass, kinematics.mass_center_velocities(model, q, v).linear)  # (M1)


@model_function
def angular_momentum(
    model: Model, q: Coordinates, v: Velocities, *, about: Float[Array, "3"] | None = None
) -> Float[Array, "3"]:
    """Angular momentum sum [ r_i x m_i v_i + J_i omega_i ] about a fixed point, ground axes, kg m^2/s.

    The result includes the rotors in `Model.rotors`, whose axes are known, but not the inertia in `Model.armature`.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).
        about: Position of the fixed point, ground axes, m; the ground origin if None.

    Source: theory.md (M7), (R7).
    """
    moving = kinematics.motion(model, q, v)
    placed = moving.placements
    about = jnp.zeros(3, q.dtype) if about is None else about
    # The momenta are given about the reference point of each tree; the moment of the linear momentum moves them to `about`.
    total = body_momenta(moving)
    of_bodies = jnp.sum(total[:, :3] + cross(placed.reference - about[None], total[:, 3:]), axis=0)
    return of_bodies + rotors.angular_momentum(model, moving) if model.rotors.count else of_bodies


@model_function
def center_of_mass(model: Model, q: Coordinates) -> Float[Array, "3"]:
    """Position of the center of mass of the whole mechanism, ground axes, m.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).

    Source: theory.md (M8).
    """
    return _center(model, kinematics.placements(model, q))


def _center(model: Model, placed: Placements) -> Float[Array, "3"]:
    return dot(model.mass, placed.reference + placed.com) / jnp.sum(model.mass)  # (M8)


@model_function
def subtree_centers(model: Model, q: Coordinates) -> tuple[Float[Array, "nb"], Float[Array, "nb 3"]]:
    """Masses and centers of mass of the subtrees: of every body together with all bodies that it carries.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).

    Returns:
        Masses, kg, and positions, ground axes, m; a subtree without mass has the center of its first body.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        model = jaxdyn.library.double_pendulum()
        mass, center = jaxdyn.dynamics.subtree_centers(model, jnp.array([0.3, -0.5]))
        ```

    Source: theory.md (M8).
    """
    placed = kinematics.placements(model, q)
    mass, moment = (tree.sum_over_descendants(model.topology, x) for x in (model.mass, placed.inertia.first_moment))
    empty = mass[:, None] == 0.0
    center = jnp.where(empty, placed.com, moment / jnp.where(empty, 1.0, mass[:, None]))
    return mass, placed.reference + center  # (M8)


@model_function
def center_of_mass_jacobian(model: Model, q: Coordinates) -> Float[Array, "3 nv"]:
    """Jacobian of the center of mass of the whole mechanism: J v is its velocity (m/s), ground axes.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        model = jaxdyn.library.double_pendulum()
        jacobian = jaxdyn.dynamics.center_of_mass_jacobian(model, jnp.array([0.3, -0.5]))
        ```

    Source: theory.md (M9).
    """
    columns = _momentum_columns(model, kinematics.placements(model, q))
    return columns[:, 3:].T / jnp.sum(model.mass)  # (M9)


@model_function
def centroidal_momentum_matrix(model: Model, q: Coordinates) -> Float[Array, "6 nv"]:
    """Centroidal momentum matrix A: A v = (angular momentum about the center of mass of the mechanism; linear momentum).

    The matrix includes the rotors in `Model.rotors`, as `angular_momentum` does.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).

    Returns:
        Matrix on ground axes, angular part first; kg m^2 and kg m for angles, kg m and kg for displacements.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        model = jaxdyn.library.double_pendulum()
        matrix = jaxdyn.dynamics.centroidal_momentum_matrix(model, jnp.array([0.3, -0.5]))
        ```

    Source: theory.md (M9), (R7); Orin and Goswami 2008.
    """
    placed = kinematics.placements(model, q)
    columns = _momentum_columns(model, placed)
    about = placed.reference[model.topology.body_of_column] - _center(model, placed)[None]
    angular = columns[:, :3] + cross(about, columns[:, 3:])  # (M9)
    if model.rotors.count:
        angular = angular + rotors.momentum_columns(model, placed)  # (R7)
    return jnp.concatenate([angular, columns[:, 3:]], axis=1).T


def _momentum_columns(model: Model, placed: Placements) -> Float[Array, "nv 6"]:
    """Momentum of the bodies about P per unit of each velocity component: that of the subtree which the component moves."""
    subtrees = tree.of_columns(model.topology, metric.composite_inertia(model, placed))
    return jax.vmap(SpatialInertia.momentum)(subtrees, placed.columns)


@model_function
def centroidal_momentum_rate(model: Model, q: Coordinates, v: Velocities, a: Accelerations) -> Float[Array, "6"]:
    """Rate of the centroidal momentum, A a + dA/dt v: the sum of all external forces, gravity included, about the center of mass.

    With a = 0, this is dA/dt v, the rate of the `centroidal_momentum_matrix` times v.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).
        a: Generalized accelerations (rad/s^2 or m/s^2).

    Returns:
        Moment about the center of mass (N m) and force (N), ground axes.

    Example:
        ```python
        import jax.numpy as jnp, jaxdyn

        model = jaxdyn.library.double_pendulum()
        q, v = jnp.array([0.3, -0.5]), jnp.array([1.0, 2.0])
        drift = jaxdyn.dynamics.centroidal_momentum_rate(model, q, v, jnp.zeros(2))
        ```

    Source: theory.md (M10), (R3), (R7).
    """
    moving = kinematics.motion(model, q, v)
    placed = moving.placements
    without_gravity = kinematics.accelerations(model, moving, a) + inverse.gravity_field(model)[None]
    force = inverse.inertial_forces(model, moving, without_gravity)
    about = placed.reference - _center(model, placed)[None]
    moment = jnp.sum(force[:, :3] + cross(about, force[:, 3:]), axis=0)  # (M10)
    if model.rotors.count:
        moment = moment + rotors.angular_momentum_rate(model, moving, a)
    return jnp.concatenate([moment, jnp.sum(force[:, 3:], axis=0)])


@model_function
def generalized_momentum(model: Model, q: Coordinates, v: Velocities) -> Momenta:
    """Generalized momentum p = dE/dv, which is M v without prescribed motion; N m s for angles, N s for displacements.

        p_gamma = sum [ m T_gamma . v_i + Omega_gamma . J omega_i ] + (armature * v)_gamma + (rotors)_gamma

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).

    Raises:
        ValueError: An argument has the wrong shape.

    Source: theory.md (I8), (F2), (E19), (R2).
    """
    moving = kinematics.motion(model, q, v)
    return momentum_along_columns(model, moving, body_momenta(moving)) + rotors.reflected_inertia(model) * v  # (E19)


def momentum_along_columns(model: Model, moving: Motion, momenta: Float[Array, "nb 6"]) -> Momenta:
    """Generalized momentum of bodies with the given momenta, without the inertia of armature and rotors.

    Args:
        model: Mechanism.
        moving: Motion of the model.
        momenta: Momentum of each body (angular momentum about the reference point P; linear momentum), ground axes.
    """
    if not model.rotors.count:
        return inverse.project(model, moving.placements, momenta)
    h = rotors.spin_columns(model, moving.placements)
    projected = inverse.project(model, moving.placements, momenta + rotors.moments(h, moving.v))
    return projected + rotors.along_columns(h, moving.velocity[:, :3])  # (R2)


def body_momenta(moving: Motion) -> Float[Array, "nb 6"]:
    """Momentum of each body (angular momentum about the reference point P; linear momentum), ground axes, kg m^2/s and kg m/s."""
    return jax.vmap(SpatialInertia.momentum)(moving.placements.inertia, moving.velocity)
