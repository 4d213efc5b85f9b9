"""Variational integration: the equations of motion of a discrete action, so momentum is conserved and energy does not drift."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from jaxdyn.constraints.projection import project_velocity
from jaxdyn.dynamics import constraint_motion, energy, kinematics, metric
from jaxdyn.dynamics.energy import generalized_momentum
from jaxdyn.dynamics.multipliers import equations_of_motion
from jaxdyn.dynamics.system import State, System, applied_forces, total_potential_energy
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.model import Model
from jaxdyn.simulate.integrators import Control, Integrator, Time
from jaxdyn.simulate.newton import solve_by_newton
from jaxdyn.spatial import factorizations
from jaxdyn.spatial.arrays import dot


class Variational(Integrator):
    """Variational integrator of the midpoint action, on vector coordinates and on the manifolds of ball and free joints alike.

        L_d(q0, q1) = dt L(middle of the step from q0 to q1, step/dt),   L = E - V
        p0 + D1 L_d(q0, q1) + dt/2 Q = 0,   p1 = D2 L_d(q0, q1) + dt/2 Q,   v1 = M(q1)^-1 p1

    with steps and derivatives in tangent coordinates (`configuration.integrate`, `configuration.difference`). Without forces that
    do work it is symplectic: the energy error stays bounded over any number of steps, and momenta that belong to a symmetry of the
    mechanism, linear or about axes fixed in the ground, are conserved to rounding. The other forces and the controls act as Q at
    the middle of the step. With constraints, impulses G(q0)' lam make the end of the step satisfy them, and impulses G(q1)' mu the
    velocity there (the method RATTLE, for any joints), with the same conservation. Newton's method with a fixed number of
    iterations; derivatives go through the implicit function theorem.

    Attributes:
        iterations: Newton iterations per step. The step fails if the last one still moved it by more than sqrt(machine epsilon).

    Source: theory.md (L3), (N17); on manifolds: Marsden and West 2001, Lee, Leok and McClamroch 2007; with
    constraints: Andersen 1983, Leimkuhler and Skeel 1994.
    """

    iterations: int = eqx.field(static=True, default=4)

    order: ClassVar[int] = 2

    def __check_init__(self):
        if self.iterations < 1:
            raise ValueError(f"Variational needs at least 1 iteration, not {self.iterations}; the default is 4")

    def step(self, system: System, state: State, control: Control, t: Time, dt: Time) -> tuple[State, Bool[Array, ""]]:
        model = system.model
        middle = t + 0.5 * dt
        u = control(middle)
        conservative = System(model, tuple(f for f in system.forces if f.conservative))
        working = System(model, tuple(f for f in system.forces if not f.conservative), system.drives)

        def action(start, v):
            """L_d of the step dt v from `start`."""
            q = configuration.integrate(model, start, 0.5 * dt * v)
            kinetic = energy.kinetic_energy(model.at(middle), q, v)
            return dt * (kinetic - total_potential_energy(conservative, State(q, v), middle))

        def by_start(v):
            """D1 L_d: the action changes with the start, and with the step that leads from there to the same end."""
            end = configuration.integrate(model, state.q, dt * v)

            def moved(shift):
                start = configuration.integrate(model, state.q, shift)
                return action(start, configuration.difference(model, start, end) / dt)

            return jax.grad(moved)(jnp.zeros_like(v))

        def by_end(v):
            """D2 L_d."""
            end = configuration.integrate(model, state.q, dt * v)

            def moved(shift):
                step = configuration.difference(model, state.q, configuration.integrate(model, end, shift))
                return action(state.q, step / dt)

            return jax.grad(moved)(jnp.zeros_like(v))

        def impulse(v):
            at_middle = State(configuration.integrate(model, state.q, 0.5 * dt * v), v)
            return 0.5 * dt * applied_forces(working, at_middle, u, middle)

        start_model, end_model = model.at(t), model.at(t + dt)
        momentum = generalized_momentum(start_model, state.q, state.v)

        def residual(v):
            return momentum + by_start(v) + impulse(v)

        if system.constraints:
            v, solved = self._constrained(system.constraints, residual, start_model, end_model, state, dt)
        else:
            v, solved = solve_by_newton(residual, state.v, self.iterations)
        q = configuration.integrate(model, state.q, dt * v)
        excess = by_end(v) + impulse(v) - generalized_momentum(end_model, q, jnp.zeros_like(v))
        factor = factorizations.cholesky(metric.mass_matrix(end_model, q))
        end = factorizations.cholesky_solve(factor, excess)
        return State(q, project_velocity(system, State(q, end), t + dt)), solved

    def _constrained(self, constraints, unbalanced, start_model: Model, end_model: Model, state: State, dt: Time):
        """v of `unbalanced`(v) + G(q0)' impulses = 0 with phi(q1) = 0, and whether it was found."""
        placed = kinematics.placements(start_model, state.q)
        rows = constraint_motion.jacobian(start_model, constraints, state.q, placed)
        matrices = jax.lax.stop_gradient(equations_of_motion(start_model, constraints, state.q, placed))

        def residual(x):
            v, impulses = x[: state.v.size], x[state.v.size :]
            q = configuration.integrate(end_model, state.q, dt * v)
            error = constraint_motion.residuals_at(end_model, constraints, q)
            return jnp.concatenate([unbalanced(v) + dot(rows.T, impulses), error / dt])

        softness = jnp.full_like(rows[:, 0], matrices.softness)
        x, solved = solve_by_newton(
            residual,
            jnp.concatenate([state.v, jnp.zeros_like(softness)]),
            self.iterations,
            regularization=jnp.concatenate([jnp.zeros_like(state.v), softness]),
            judged=state.v.size,
        )
        return x[: state.v.size], solved
