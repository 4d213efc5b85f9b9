"""Brachistochrones of mechanisms by velocities as controls, which tests compare with those by forces without work.

From rest forces are the better controls: there a velocity of given energy is nearly zero and may point anywhere, so that the search
with velocities converges to first order only.
"""

import equinox as eqx
from jaxtyping import Array, Float

from jaxdyn.compute.arrays import floating
from jaxdyn.control.problem import AnyState, Controls, Dynamics, MultibodyDynamics, Tangent, Time
from jaxdyn.dynamics.equations_of_motion import total_energy
from jaxdyn.dynamics.system import State, System
from jaxdyn.mechanism import configuration

Configuration = Float[Array, "nq"]


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
    """Kinetic and potential energy less a level, J; `Equality(KeptEnergy(level))` makes it zero.

    Attributes:
        level: E, J.
    """

    level: Float[Array, ""] = eqx.field(converter=floating)

    def __call__(self, dynamics: Dynamics, t: Time, x: AnyState, u: Controls) -> Float[Array, "1"]:
        assert isinstance(dynamics, Velocities | MultibodyDynamics)
        state = State(x, u) if isinstance(dynamics, Velocities) else x
        return (total_energy(dynamics.system, state, t) - self.level)[None]
