"""Motions in which the forces of the controls do no work in sum; those of least time are brachistochrones of a mechanism.

They are geodesics of the metric M / (E - V) with E the total energy, which is kept: the classical extension of Bernoulli's problem.
The same motions are controlled by forces, `Workless`, or by velocities, `Velocities` with `KeptEnergy`. From rest the former is the
better one: there a velocity of given energy is nearly zero and may point anywhere, so that the latter converges by first order.
"""

import equinox as eqx
from jaxtyping import Array, Float

from jaxdyn.control.problem import AnyState, Controls, Dynamics, MultibodyDynamics, Tangent, Time
from jaxdyn.dynamics.system import State, System, drive_forces, total_energy
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.messages import MechanismError
from jaxdyn.spatial.arrays import dot, floating

Configuration = Float[Array, "nq"]


class Workless(eqx.Module):
    """Power of the controls, W; `Equality(Workless())` keeps it zero."""

    def __call__(self, dynamics: Dynamics, t: Time, x: State, u: Controls) -> Float[Array, "1"]:
        if not isinstance(dynamics, MultibodyDynamics):
            raise MechanismError(
                f"Workless is of mechanisms; use it with MultibodyDynamics, not with {type(dynamics).__name__}"
            )
        return dot(drive_forces(dynamics.system, u), x.v)[None]


class Velocities(Dynamics):
    """Configurations q of a mechanism that move with velocities u = v, whatever the forces.

    Attributes:
        system: mechanism, and forces with potentials; drives are not used.
    """

    system: System

    @property
    def nx(self) -> int:
        return self.system.model.nv

    @property
    def nu(self) -> int:
        return self.system.model.nv

    def rate(self, x: Configuration, u: Controls, t: Time) -> Tangent:
        return u

    def step(self, x: Configuration, u: Controls, t: Time, dt: Time) -> Configuration:
        return self.retract(x, dt * u)

    def retract(self, x: Configuration, step: Tangent) -> Configuration:
        return configuration.integrate(self.system.model, x, step)

    def difference(self, a: Configuration, b: Configuration) -> Tangent:
        return configuration.difference(self.system.model, a, b)


class KeptEnergy(eqx.Module):
    """Kinetic and potential energy less a level, J; `Equality(KeptEnergy(level))` keeps it zero.

    Attributes:
        level: E, J.
    """

    level: Float[Array, ""] = eqx.field(converter=floating)

    def __call__(self, dynamics: Dynamics, t: Time, x: AnyState, u: Controls) -> Float[Array, "1"]:
        if not isinstance(dynamics, Velocities | MultibodyDynamics):
            raise MechanismError(
                f"KeptEnergy is of mechanisms; use it with MultibodyDynamics or Velocities, not with {type(dynamics).__name__}"
            )
        state = State(x, u) if isinstance(dynamics, Velocities) else x
        return (total_energy(dynamics.system, state, t) - self.level)[None]
