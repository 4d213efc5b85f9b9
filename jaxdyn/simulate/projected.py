"""Exact constraints: every step of an integrator is followed by a projection onto the constraints."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool

from jaxdyn.constraints.projection import project_position, project_velocity
from jaxdyn.dynamics.system import State, System
from jaxdyn.simulate.integrators import Control, Integrator, RungeKutta4, Time


class Projected(Integrator):
    """Steps of another integrator, each followed by the projection of position and velocity onto the constraints.

        q <- q (+) M^-1 G' lam with phi = 0,   v <- v + M^-1 G' mu with dphi/dt = 0

    Errors of the constraints stay at rounding for any number of steps, where the stabilization of the bare integrator leaves those
    of its order. The order of accuracy is that of the bare integrator. Derivatives are those of the projections themselves,
    whatever number of iterations they took. Without constraints it is the bare integrator.

    A projection after a step of semi-implicit Euler adds energy at every step, so take a method of higher order, or `Variational`
    if energy matters most. In single precision an angle that grows turn by turn takes its rounding along into the loops.

    Attributes:
        integrator: Makes the steps, with its stabilization of constraints turned off.
        order: That of the integrator.
        iterations: of the projection of position; the step fails if it leaves an error above sqrt(machine epsilon), m or 1.

    Source: theory.md (N14).
    """

    integrator: Integrator = RungeKutta4()
    iterations: int = eqx.field(static=True, default=4)
    order: int = eqx.field(static=True, init=False)

    def __post_init__(self):
        self.order = self.integrator.order

    def __check_init__(self):
        if self.iterations < 1:
            raise ValueError(f"Projected needs at least 1 iteration, not {self.iterations}; the default is 4")

    def step(self, system: System, state: State, control: Control, t: Time, dt: Time) -> tuple[State, Bool[Array, ""]]:
        if not system.constraints:
            return self.integrator.step(system, state, control, t, dt)
        unstabilized = dataclasses.replace(system, stabilization=0.0)
        new, solved = self.integrator.step(unstabilized, state, control, t, dt)
        q, residual = project_position(system, new, t + dt, iterations=self.iterations)
        return State(q, project_velocity(system, State(q, new.v), t + dt)), solved & (
            residual < jnp.finfo(q.dtype).eps ** 0.5
        )
