"""Lagrange's equations of the second kind, in Hamel's form if velocities are not coordinate rates.

    d/dt dE/dv^gamma - dE/dq^gamma - k^delta_{beta gamma} v^beta dE/dv^delta = Q_gamma

E(q, v) is the kinetic energy; all of its derivatives are computed by automatic differentiation. Source: theory.md (I3), (I9), (J5).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxdyn.compute.arrays import einsum
from jaxdyn.dynamics import energy
from jaxdyn.dynamics.doors import model_function
from jaxdyn.dynamics.inverse import GeneralizedForces
from jaxdyn.dynamics.kinematics import Accelerations, Coordinates, Velocities
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.model import Model


class LagrangeTerms(NamedTuple):
    """Terms of the kinetic energy E(q, v) in the equations of motion, N m or N.

    Attributes:
        momentum_rate: Rate d/dt dE/dv = E_{vv} a + E_{vq} v + E_{vt}.
        gradient: Derivative X_gamma(E) along the direction of each velocity component (dE/dq if velocities are coordinate rates).
        bracket: Term k^delta_{beta gamma} v^beta dE/dv^delta with the structure coefficients k; zero if velocities are
            coordinate rates.
    """

    momentum_rate: GeneralizedForces
    gradient: GeneralizedForces
    bracket: GeneralizedForces


@model_function
def lagrange_terms(model: Model, q: Coordinates, v: Velocities, a: Accelerations) -> LagrangeTerms:
    """Derivatives of the kinetic energy along the motion (q, v, a) of a mechanism, with or without prescribed motion.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).
        a: Generalized accelerations (rad/s^2 or m/s^2).

    Source: theory.md (I3); (I9) for velocities that are not coordinate rates.
    """

    def kinetic(step, v, time):
        return energy.kinetic_energy(model.later(time), configuration.integrate(model, q, step), v)

    derivatives = jax.grad(kinetic, argnums=(0, 1))
    zero, one = jnp.zeros((), v.dtype), jnp.ones((), v.dtype)
    (gradient, momentum), (_, momentum_rate) = jax.jvp(derivatives, (jnp.zeros_like(v), v, zero), (v, a, one))
    structure = configuration.structure_coefficients(model, q)
    bracket = einsum("bgd,b,d->g", structure, v, momentum)  # (I9)
    return LagrangeTerms(momentum_rate, gradient, bracket)


@model_function
def lagrange_forces(model: Model, q: Coordinates, v: Velocities, a: Accelerations) -> GeneralizedForces:
    """Right-hand side of the identity dE_A/da^gamma = d/dt dE/dv^gamma - dE/dq^gamma; N m or N.

    For quasi-velocities, the right-hand side is Hamel's form, which also contains the bracket term of `LagrangeTerms`.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        v: Generalized velocities (rad/s or m/s).
        a: Generalized accelerations (rad/s^2 or m/s^2).

    Source: theory.md (J5).
    """
    terms = lagrange_terms(model, q, v, a)
    return terms.momentum_rate - terms.gradient - terms.bracket  # (J5)
