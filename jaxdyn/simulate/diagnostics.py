"""Diagnostics of a simulation: the energy balance."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.dynamics import kinematics
from jaxdyn.dynamics.forces import Force
from jaxdyn.dynamics.system import State, System, applied_forces
from jaxdyn.mechanism import configuration
from jaxdyn.spatial.arrays import dot


def work_of_step(system: System) -> Callable[..., Float[Array, ""]]:
    """Stage cost for `rollout` that sums the work (J) of the controls and of all forces that are not conservative.

        W = sum over steps of (Q_before + Q_after)/2 . (step in tangent coordinates) + V_after - V_before

    V is the energy stored by the forces that are not conservative; of these, only `JointLimits` store energy.

    With the total energy E, E_end - E_start - W is the error of the power balance: zero for constant controls, and of second order
    in dt for friction. Forces that depend on time explicitly are evaluated at the start of the step, which causes an error of first
    order in dt. The work of prescribed motions is not included: see `driving_power`.

    Source: theory.md (G7), dE/dt = Q . v.
    """
    dissipative = System(system.model, tuple(f for f in system.forces if not f.conservative), system.drives)
    storing = [f for f in dissipative.forces if type(f).potential_energy is not Force.potential_energy]

    def stored(t: Float[Array, ""], q: Float[Array, "nq"]) -> Float[Array, ""]:
        model = system.model.at(t)
        placed = kinematics.placements(model, q)
        return sum((force.potential_energy(model, q, placed) for force in storing), jnp.zeros((), q.dtype))

    def work(t: Float[Array, ""], state: State, u: Float[Array, "nu"] | None, after: State) -> Float[Array, ""]:
        step = configuration.difference(system.model, state.q, after.q)
        mean = 0.5 * (applied_forces(dissipative, state, u, t) + applied_forces(dissipative, after, u, t))
        return dot(mean, step) + stored(t, after.q) - stored(t, state.q)

    return work


def power_balance_error(
    energy: Float[Array | np.ndarray, "*batch records"], work: Float[Array | np.ndarray, "*batch"]
) -> Float[Array | np.ndarray, "*batch"]:
    """Error of the power balance: energy gained minus work done, E_end - E_start - W, J."""
    return energy[..., -1] - energy[..., 0] - work
