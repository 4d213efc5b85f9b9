"""Variational integration: time steps from a discrete action principle, which conserve momentum and bound the energy error."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from jaxdyn.compute.arrays import dot
from jaxdyn.constraints.projection import project_velocity
from jaxdyn.dynamics import constraint_motion, energy, kinematics, metric
from jaxdyn.dynamics.constraint import VelocityConstraint, holonomic
from jaxdyn.dynamics.energy import generalized_momentum
from jaxdyn.dynamics.equations_of_motion import applied_forces, drives_over_step, total_potential_energy
from jaxdyn.dynamics.multipliers import equations_of_motion
from jaxdyn.dynamics.system import State, System
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.model import Model
from jaxdyn.mechanism.quantity import plain, quantity
from jaxdyn.simulate.integrators import Control, Integrator, Time
from jaxdyn.simulate.newton import solve_by_newton
from jaxdyn.spatial import factorizations


class Variational(Integrator):
    """Variational integrator of order 2 from the midpoint approximation of the action, for vector coordinates and for manifolds.

        L_d(q0, q1) = dt L(q_mid, step/dt),   L = E - V                       (discrete Lagrangian)
        p0 + D1 L_d(q0, q1) + dt/2 Q = 0                                      (solved for q1 by Newton's method)
        p1 = D2 L_d(q0, q1) + dt/2 Q,   v1 = M(q1)^-1 p1

    Here step = difference(q0, q1) and q_mid = integrate(q0, step/2), and derivatives are taken in tangent coordinates. E is the
    kinetic and V the potential energy, M the mass matrix and p the generalized momentum (M v if no motion is prescribed). Q are the
    generalized forces of controls and nonconservative force laws, evaluated at the midpoint, with the mean states of drives.

    If Q = 0 the method is symplectic: the energy error stays bounded over long simulations, and momenta that belong to a symmetry
    of the mechanism (linear momentum, or angular momentum about axes fixed in the ground) are conserved to rounding.

    With constraints phi(q) = 0 of Jacobian G, this method is RATTLE: impulses G(q0)' lam in the first equation make q1 satisfy
    phi(q1) = 0, and impulses G(q1)' mu make v1 satisfy G(q1) v1 = 0. RATTLE has the same conservation properties as the method
    without constraints.

    Velocity constraints A(q) v = 0 hold at the middle of the step, where their forces act, and at its end.

    The equations are solved by a fixed number of Newton iterations, and differentiated by the implicit function theorem.

    Attributes:
        iterations: Number of Newton iterations per step. The step fails if the last iteration changes the solution by more than
            sqrt(machine epsilon).

    Source: theory.md (L3), (N17); Marsden and West 2001; on manifolds: Lee, Leok and McClamroch 2007; with constraints:
    Andersen 1983, Leimkuhler and Skeel 1994.
    """

    iterations: int = eqx.field(static=True, converter=plain, default=4, metadata=quantity(minimum=1.0))

    order: ClassVar[int] = 2

    def step(self, system: System, state: State, control: Control, t: Time, dt: Time) -> tuple[State, Bool[Array, ""]]:
        model = system.model
        middle = t + 0.5 * dt
        u = control(middle)
        mean, z_end = drives_over_step(system, state, u, dt)
        conservative = System(model, tuple(f for f in system.forces if f.conservative))
        working = System(model, tuple(f for f in system.forces if not f.conservative), system.drives)

        def action(start, v):
            """Discrete Lagrangian L_d of the step dt v from `start`."""
            q = configuration.integrate(model, start, 0.5 * dt * v)
            kinetic = energy.kinetic_energy(model.at(middle), q, v)
            return dt * (kinetic - total_potential_energy(conservative, State(q, v), middle))

        def by_start(v):
            """D1 L_d: derivative with respect to the start of the step, while its end is fixed."""
            end = configuration.integrate(model, state.q, dt * v)

            def moved(shift):
                start = configuration.integrate(model, state.q, shift)
                return action(start, configuration.difference(model, start, end) / dt)

            return jax.grad(moved)(jnp.zeros_like(v))

        def by_end(v):
            """D2 L_d: derivative with respect to the end of the step, while its start is fixed."""
            end = configuration.integrate(model, state.q, dt * v)

            def moved(shift):
                step = configuration.difference(model, state.q, configuration.integrate(model, end, shift))
                return action(state.q, step / dt)

            return jax.grad(moved)(jnp.zeros_like(v))

        def impulse(v):
            at_middle = State(configuration.integrate(model, state.q, 0.5 * dt * v), v, mean.z)
            return 0.5 * dt * applied_forces(working, at_middle, u, middle)

        start_model, mid_model, end_model = model.at(t), model.at(middle), model.at(t + dt)
        slipless = tuple(c for c in system.constraints if isinstance(c, VelocityConstraint))
        momentum = generalized_momentum(start_model, state.q, state.v)

        def residual(v):
            return momentum + by_start(v) + impulse(v)

        def rolling(v):
            """Jacobian of the velocity constraints at the middle of the step."""
            q = configuration.integrate(model, state.q, 0.5 * dt * v)
            return constraint_motion.jacobian(mid_model, slipless, q, kinematics.placements(mid_model, q))

        half = jnp.zeros_like(state.v)
        if system.constraints:
            v, impulses, solved = self._constrained(
                system.constraints, residual, rolling, start_model, end_model, state, dt
            )
            if slipless:
                half = dot(rolling(v).T, impulses)
        else:
            v, solved = solve_by_newton(residual, state.v, self.iterations)
        q = configuration.integrate(model, state.q, dt * v)
        excess = by_end(v) + impulse(v) + half - generalized_momentum(end_model, q, jnp.zeros_like(v))
        factor = factorizations.cholesky(metric.mass_matrix(end_model, q))
        end = factorizations.cholesky_solve(factor, excess)
        return State(q, project_velocity(system, State(q, end), t + dt), z_end), solved

    def _constrained(
        self, constraints, unbalanced, rolling, start_model: Model, end_model: Model, state: State, dt: Time
    ):
        """Solve unbalanced(v) + G(q0)' impulses = 0 and phi(q1) = 0 for the velocity v of the step and the impulses. Velocity
        constraints act at the middle of the step: rolling(v) v = 0 with the impulses rolling(v)' mu.

        Returns:
            The velocity v, the impulses mu, and whether Newton's method has converged.
        """
        placed, closed = kinematics.placements(start_model, state.q), holonomic(constraints)
        rows = constraint_motion.jacobian(start_model, closed, state.q, placed)
        matrices = jax.lax.stop_gradient(equations_of_motion(start_model, constraints, state.q, placed))
        slipless_from = state.v.size + len(rows)

        def residual(x):
            v, impulses, mu = jnp.split(x, [state.v.size, slipless_from])
            q = configuration.integrate(end_model, state.q, dt * v)
            force = unbalanced(v) + dot(rows.T, impulses)
            errors = [constraint_motion.residuals_at(end_model, closed, q) / dt]
            if mu.size:
                middle = rolling(v)
                force, errors = force + dot(middle.T, mu), [*errors, dot(middle, v)]
            return jnp.concatenate([force, *errors])

        softness = jnp.full_like(matrices.rows[:, 0], matrices.softness)
        x, solved = solve_by_newton(
            residual,
            jnp.concatenate([state.v, jnp.zeros_like(softness)]),
            self.iterations,
            regularization=jnp.concatenate([jnp.zeros_like(state.v), softness]),
            judged=state.v.size,
        )
        return x[: state.v.size], x[slipless_from:], solved
