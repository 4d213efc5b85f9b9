"""Exact constraints: every step of an integrator is followed by a projection onto the constraints."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool

from jaxdyn.constraints.projection import project_position, project_velocity
from jaxdyn.dynamics.system import State, System
from jaxdyn.mechanism.quantity import plain, quantity
from jaxdyn.simulate.integrators import Control, Integrator, RungeKutta4, Time, check_integrator


class Projected(Integrator):
    """Steps of another integrator, each followed by the projection of position and velocity onto the constraints.

        q <- q (+) M^-1 G' lam with phi = 0,   v <- v + M^-1 G' mu with dphi/dt = 0

    Errors of the constraints remain at the level of rounding for any number of steps, whereas stabilization of the constraints
    leaves errors of the same order as those of the integrator. The projection does not change the order of accuracy of the
    integrator. Derivatives are those of exact projections and do not depend on the number of iterations. In a system without
    constraints, the steps of the integrator are not changed.

    A projection after a step of semi-implicit Euler adds energy at every step, so use a method of higher order, or `Variational` if
    energy is most important. In single precision, the rounding error of an angle that grows over many turns causes errors in the
    closure of the loops.

    Attributes:
        integrator: Integrator of the steps; `Projected` turns off the stabilization of constraints in these steps.
        order: Order of accuracy, which is that of `integrator`.
        iterations: Number of iterations of the projection of position; the step fails if the remaining error exceeds
            sqrt(machine epsilon), m or 1.
    Source: theory.md (N14).
    """

    integrator: Integrator = RungeKutta4()
    iterations: int = eqx.field(static=True, converter=plain, default=4, metadata=quantity(minimum=1.0))
    order: int = eqx.field(static=True, init=False)

    def __post_init__(self):
        check_integrator(self.integrator, "the integrator of Projected")
        self.order = self.integrator.order

    def step(self, system: System, state: State, control: Control, t: Time, dt: Time) -> tuple[State, Bool[Array, ""]]:
        if not system.constraints:
            return self.integrator.step(system, state, control, t, dt)
        unstabilized = dataclasses.replace(system, stabilization=0.0)
        new, solved = self.integrator.step(unstabilized, state, control, t, dt)
        q, residual = project_position(system, new, t + dt, iterations=self.iterations)
        solved = solved & (residual < jnp.finfo(q.dtype).eps ** 0.5)
        return State(q, project_velocity(system, State(q, new.v), t + dt), new.z), solved
