"""Acceleration energy (Gibbs-Appell): a scalar function of the accelerations whose gradient is the equation of motion.

The acceleration energy of a body is E_A = 1/2 integral |acceleration|^2 dm, J/s^2. The acceleration energy of a mechanism is
quadratic in the accelerations qdd:

    E_A = 1/2 a_{alpha beta} qdd^alpha qdd^beta + c_gamma qdd^gamma + E_A0(q, v)                     (J2)
    dE_A/dqdd^gamma = Q_gamma                                                                        (J4)

The terms of E_A follow from the kinetic energy by (J5), (J6). The velocities may be quasi-velocities. The generalized forces Q
include gravity, so E_A does not. A rotor with the armature I adds 1/2 I a^2 to E_A and 1/2 I v^2 to the kinetic energy. The
equations are in theory.md section (j).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, einsum
from jaxdyn.dynamics import energy, inverse, kinematics, rotors
from jaxdyn.dynamics.doors import model_function
from jaxdyn.dynamics.inverse import GeneralizedForces
from jaxdyn.dynamics.kinematics import Accelerations, Coordinates, Velocities
from jaxdyn.formulations.lagrange import lagrange_forces
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial import factorizations
from jaxdyn.spatial.inertia import symmetric_matrix
from jaxdyn.spatial.rotation import cross


class AccelerationEnergy(NamedTuple):
    """Terms of the acceleration energy of every body and rotor, J/s^2.

    Attributes:
        translational: Term 1/2 m |a_C|^2.
        rotational: Term 1/2 eps . J eps.
        gyroscopic: Term eps . (omega x J omega).
        centripetal: Term 1/2 |omega|^2 (omega . J omega).
        rotors: Term 1/2 I a^2 of every velocity component, and the spin terms of `Model.rotors` that depend on accelerations.
    """

    translational: Float[Array, "nb"]
    rotational: Float[Array, "nb"]
    gyroscopic: Float[Array, "nb"]
    centripetal: Float[Array, "nb"]
    rotors: Float[Array, "nv"]

    @property
    def total(self) -> Float[Array, ""]:
        """Acceleration energy E_A, the sum of all terms."""
        bodies = self.translational + self.rotational + self.gyroscopic + self.centripetal
        return jnp.sum(bodies) + jnp.sum(self.rotors)


@model_function
def acceleration_energy_terms(model: Model, q: Coordinates, v: Velocities, a: Accelerations) -> AccelerationEnergy:
    """Terms of the acceleration energy at (q, v, a), for each body.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).
        a: Generalized accelerations (rad/s^2 or m/s^2).

    Source: theory.md (J1), (R5).
    """
    moving = kinematics.motion(model, q, v)
    acceleration = kinematics.accelerations_of_bodies(model, moving, a)
    # On body axes the inertia tensor is constant.
    w = einsum("bji,bj->bi", moving.placements.rotation, moving.velocity[:, :3])
    eps = einsum("bji,bj->bi", moving.placements.rotation, acceleration.angular)
    tensor = jax.vmap(symmetric_matrix)(model.inertia)
    spin = einsum("bij,bj->bi", tensor, w)
    of_rotors = 0.5 * rotors.reflected_inertia(model) * a**2
    if model.rotors.count:
        h = rotors.spin_columns(model, moving.placements)
        eps_ground, w_ground = acceleration.angular, moving.velocity[:, :3]
        of_rotors = of_rotors + a * rotors.along_columns(h, eps_ground)
        of_rotors = of_rotors + v * rotors.along_columns(h, cross(eps_ground, w_ground))  # (R5)
    square = lambda x, y: einsum("bi,bi->b", x, y)  # noqa: E731
    return AccelerationEnergy(
        0.5 * model.mass * square(acceleration.linear, acceleration.linear),
        0.5 * square(eps, einsum("bij,bj->bi", tensor, eps)),
        square(eps, cross(w, spin)),
        0.5 * square(w, w) * square(w, spin),
        of_rotors,
    )  # (J1)


@model_function
def acceleration_energy(model: Model, q: Coordinates, v: Velocities, a: Accelerations) -> Float[Array, ""]:
    """Acceleration energy E_A (synonym: Gibbs function), J/s^2, summed over bodies and rotors.

        E_A = sum [ 1/2 m |a_C|^2 + 1/2 eps.J eps + eps.(omega x J omega) + 1/2 |omega|^2 (omega.J omega) ] + 1/2 I a^2

    Terms of the spin of `Model.rotors` that depend on velocities alone are omitted: they would require the transverse inertia of
    the rotors, and the equations of motion do not depend on them.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).
        a: Generalized accelerations (rad/s^2 or m/s^2).

    Raises:
        ValueError: An argument has the wrong shape.

    Source: theory.md (J1), (J2), (R5).
    """
    return acceleration_energy_terms(model, q, v, a).total


@model_function
def acceleration_energy_of_velocity(model: Model, q: Coordinates, v: Velocities) -> Float[Array, ""]:
    """Part E_A0(q, v) of the acceleration energy that is independent of accelerations, J/s^2.

    The equations of motion do not depend on this part.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).

    Source: theory.md (J3).
    """
    return acceleration_energy(model, q, v, jnp.zeros_like(v))  # (J3)


@model_function
def gibbs_appell_forces(model: Model, q: Coordinates, v: Velocities, a: Accelerations) -> GeneralizedForces:
    """Generalized forces of the motion (q, v, a) under gravity: tau_gamma = dE_A/da^gamma - (gravity force)_gamma; N m or N.

    The forces equal those of `inverse_dynamics`.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).
        a: Generalized accelerations (rad/s^2 or m/s^2).

    Source: theory.md (J4).
    """
    needed = jax.grad(acceleration_energy, argnums=3)(model, q, v, a)  # (J4)
    return needed - inverse.gravity_force(model, q)


@model_function
def gibbs_appell_accelerations(model: Model, q: Coordinates, v: Velocities, tau: GeneralizedForces) -> Accelerations:
    """Generalized accelerations that minimize E_A - Q.a, where Q is the sum of tau and gravity; rad/s^2 or m/s^2.

    The accelerations equal those of `forward_dynamics`. E_A - Q.a is quadratic in a, and its Hessian is the mass matrix, so one
    Newton step from a = 0 reaches the minimum, where (J4) holds.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).
        tau: All generalized forces except gravity (N m or N).

    Source: theory.md (J4), (J7); Gauss 1829.
    """
    gradient = jax.grad(lambda a: acceleration_energy(model, q, v, a))
    needed, change = jax.linearize(gradient, jnp.zeros_like(v))
    hessian = jax.vmap(change)(jnp.eye(model.nv, dtype=v.dtype))
    missing = tau + inverse.gravity_force(model, q) - needed
    return factorizations.cholesky_solve(factorizations.cholesky(hessian), missing)  # (J4)


@model_function
def acceleration_energy_from_kinetic(model: Model, q: Coordinates, v: Velocities, a: Accelerations) -> Float[Array, ""]:
    """Right-hand side of the identity E_A = 1/2 E_{vv}[a, a] + E_{vq}[a, v] + E_{vt}[a] - E_q[a] + E_A0, J/s^2.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).
        a: Generalized accelerations (rad/s^2 or m/s^2).

    Source: theory.md (J6).
    """
    by_velocity = jax.grad(lambda v: energy.kinetic_energy(model, q, v))
    _, inertia = jax.jvp(by_velocity, (v,), (a,))
    # The forces contain all of E_{vv} a, the energy only half of it.
    linear = lagrange_forces(model, q, v, a) - 0.5 * inertia
    return dot(linear, a) + acceleration_energy_of_velocity(model, q, v)  # (J6)
