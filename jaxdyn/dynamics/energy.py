"""Energy, linear momentum and angular momentum of a mechanism."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.dynamics import inverse, kinematics, rotors
from jaxdyn.dynamics.doors import model_function
from jaxdyn.dynamics.kinematics import Coordinates, Motion, Velocities
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial.arrays import dot, einsum
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
    momentum = jax.vmap(SpatialInertia.momentum)(moving.placements.inertia, moving.velocity)
    energy = 0.5 * (einsum("bc,bc->", momentum, moving.velocity) + einsum("a,a,a->", model.armature, v, v))
    return energy + rotors.kinetic_energy(model, moving) if model.rotors.count else energy


@model_function
def potential_energy(model: Model, q: Coordinates) -> Float[Array, ""]:
    """Potential energy of gravity V = - sum m_i g . r_i, J; zero if all centers of mass are at the ground origin.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).

    Example:
        ```python
        import jax, jax.numpy as jnp, jaxdyn

        model = jaxdyn.library.double_pendulum()
        gradient = jax.grad(jaxdyn.potential_energy, argnums=1)(model, jnp.array([0.3, -0.5]))
        ```

    Source: theory.md (H2).
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
    return einsum("b,bi->i", model.mass, kinematics.body_velocities(model, q, v).linear)  # (M1)


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
    total = jax.vmap(SpatialInertia.momentum)(placed.inertia, moving.velocity)
    of_bodies = jnp.sum(total[:, :3] + cross(placed.reference - about[None], total[:, 3:]), axis=0)
    return of_bodies + rotors.angular_momentum(model, moving) if model.rotors.count else of_bodies


@model_function
def center_of_mass(model: Model, q: Coordinates) -> Float[Array, "3"]:
    """Position of the center of mass of the whole mechanism, ground axes, m."""
    placed = kinematics.placements(model, q)
    return dot(model.mass, placed.reference + placed.com) / jnp.sum(model.mass)


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
