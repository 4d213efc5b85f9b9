"""Hamilton's canonical equations, from the Hamiltonian as a function of coordinates and generalized momenta.

    p_gamma = dE/dv^gamma,   H(q, p) = p.v - E + V,   v = dH/dp,   dp/dt = Q - dH/dq                 (Hamilton 1834)

The Hamiltonian depends on time only if motions are prescribed. With the velocities T_t, Omega_t that
prescribed motions cause at v = 0, the kinetic energy is E = 1/2 v' M v + b'v + E_t (E19), so

    p = M v + b,   H = 1/2 (p - b)' M^-1 (p - b) - E_t + V,       without prescribed motions H = 1/2 p' M^-1 p + V = E + V.

If velocities are not coordinate rates, dH/dq is the derivative X_gamma(H) along the direction of each velocity component, and the
Lie brackets of these directions (D3) add k^delta_{beta gamma} v^beta p_delta to dp_gamma/dt; theory.md (I8), (I9).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import dot, einsum
from jaxdyn.dynamics import energy, kinematics, metric
from jaxdyn.dynamics.doors import model_function
from jaxdyn.dynamics.energy import Momenta
from jaxdyn.dynamics.inverse import GeneralizedForces
from jaxdyn.dynamics.kinematics import Coordinates, Velocities
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.model import Model
from jaxdyn.spatial import factorizations


@model_function
def hamiltonian(model: Model, q: Coordinates, p: Momenta) -> Float[Array, ""]:
    """Hamiltonian H(q, p) = p.v - E + V, J; it equals the total energy unless motions are prescribed.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        p: Generalized momenta, N m s or N s.

    Returns:
        Hamiltonian; not finite where the mass matrix is singular.

    Raises:
        ValueError: An argument has the wrong shape.

    Source: theory.md (I8), (F2), (E19), (H2); Hamilton 1834.
    """
    carried = kinematics.motion(model, q, jnp.zeros_like(p))
    momenta = energy.body_momenta(carried)
    excess = p - energy.momentum_along_columns(model, carried, momenta)
    factor = factorizations.cholesky_of_lower(metric.lower_mass_matrix(model, carried.placements))
    v = factorizations.cholesky_solve(factor, excess)
    of_time = 0.5 * einsum("bc,bc->", momenta, carried.velocity)  # (E19)
    return 0.5 * dot(excess, v) - of_time + energy.potential_energy(model, q)


class CanonicalRates(NamedTuple):
    """Hamiltonian and the terms of the canonical equations.

    Attributes:
        energy: Hamiltonian H, J.
        velocity: Rate of the configuration v = dH/dp, rad/s or m/s.
        gradient: Derivative X_gamma(H) along the direction of each velocity component (dH/dq if velocities are coordinate rates),
            N m or N.
        bracket: Term k^delta_{beta gamma} v^beta p_delta with the structure coefficients k, N m or N; zero if velocities are
            coordinate rates.
        momentum: Rate of the momenta dp/dt = Q - dH/dq + bracket, N m or N.
    """

    energy: Float[Array, ""]
    velocity: Velocities
    gradient: GeneralizedForces
    bracket: GeneralizedForces
    momentum: GeneralizedForces


@model_function
def canonical_rates(model: Model, q: Coordinates, p: Momenta, tau: GeneralizedForces) -> CanonicalRates:
    """Hamilton's canonical equations v = dH/dp, dp/dt = tau - dH/dq, by automatic differentiation of H.

    Args:
        model: Mechanism.
        q: Generalized coordinates (rad or m).
        p: Generalized momenta, N m s or N s.
        tau: All generalized forces except gravity, which H includes; N m or N.

    Returns:
        `CanonicalRates`; a step dt of the coordinates is `configuration.integrate(model, q, dt * velocity)`.

    Raises:
        ValueError: An argument has the wrong shape.

    Source: theory.md (F2), (I3), (I9); Hamilton 1834.
    """

    def total(step, p):
        return hamiltonian(model, configuration.integrate(model, q, step), p)

    value, (gradient, velocity) = jax.value_and_grad(total, argnums=(0, 1))(jnp.zeros_like(p), p)
    structure = configuration.structure_coefficients(model, q)
    bracket = einsum("bgd,b,d->g", structure, velocity, p)  # (I9)
    return CanonicalRates(value, velocity, gradient, bracket, tau - gradient + bracket)
