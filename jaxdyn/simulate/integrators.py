"""One-step integrators. To add an integrator, define a subclass of `Integrator`; `rollout` supports it without changes.

All methods change coordinates by `configuration.integrate`, so they are valid for joints whose coordinates are on manifolds.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxdyn.dynamics.equations_of_motion import (
    acceleration,
    acceleration_and_multipliers,
    correction_over_step,
    drive_rates,
    drives_over_step,
    instant,
    moved_states,
    resisted_acceleration,
    stabilizing_correction,
)
from jaxdyn.dynamics.system import State, System
from jaxdyn.errors import check_name
from jaxdyn.mechanism import configuration
from jaxdyn.mechanism.messages import check_instance
from jaxdyn.mechanism.quantity import check_settings, plain, quantity
from jaxdyn.simulate.newton import solve_by_newton

Time = Float[Array, ""]
Control = Callable[[Time], Float[Array, "nu"] | None]


class Integrator(eqx.Module):
    """A one-step method.

    Attributes:
        order: Global order of accuracy for smooth forces and controls, as verified by tests.
    """

    order: eqx.AbstractVar[int]

    def __check_init__(self):
        check_settings(self)

    @abc.abstractmethod
    def step(self, system: System, state: State, control: Control, t: Time, dt: Time) -> tuple[State, Bool[Array, ""]]:
        """State at t + dt, and whether the step succeeded (False if an implicit equation was not solved).

        Args:
            system: Mechanism with its forces.
            state: State at t.
            control: Controls as a function of time within the step.
            t: Time at the start of the step, s.
            dt: Length of the step, s.
        """


def check_integrator(integrator: Any, name: str = "integrator") -> None:
    """Raise an error unless an argument is an `Integrator`.

    Args:
        integrator: Argument to check.
        name: Name of the argument, for the message.

    Raises:
        TypeError: The argument is of another type, or a class; the message states the remedy.
    """
    check_instance(name, integrator, Integrator, "an Integrator, RungeKutta4() for instance")


class ExplicitEuler(Integrator):
    """Explicit Euler: v' = v + dt a(q, v), q' = q + dt v.

    The acceleration is evaluated once per step. The method adds energy to every oscillation: use it to compare with results of
    other programs, and otherwise `SemiImplicitEuler`.
    """

    order: ClassVar[int] = 1

    def step(self, system: System, state: State, control: Control, t: Time, dt: Time) -> tuple[State, Bool[Array, ""]]:
        now = instant(system, state, t)
        u = control(t)
        a, _ = acceleration_and_multipliers(system, now, u, correction_over_step(system, now, dt))
        v, z = state.v + dt * a, moved_states(system, state.z, dt, drive_rates(system, state, u))
        return State(configuration.integrate(system.model, state.q, dt * state.v), v, z), jnp.asarray(True)


class SemiImplicitEuler(Integrator):
    """Semi-implicit (symplectic) Euler: v' = v + dt a(q, v), q' = q + dt v'.

    The acceleration is evaluated once per step. The method is for machines that dissipate: it changes the energy of motions without
    friction in proportion to dt, and drives a body that spins fast (measured in the README). Contacts, and forces in joints that
    resist motion, such as friction and servos, are evaluated at the end of the step by one linear solve
    (`acceleration_over_step`), because these forces are stiff in real robots: a wrist with an inertia of 1e-4 kg m^2 and a damping
    of 10 N m s/rad would need explicit steps below 0.02 ms. Derivatives of the step are exact. The axes on which free and planar
    joints have their linear velocity rotate exactly (`jaxdyn.configuration.advance`). States of actuators are exact for controls
    that are constant in the step, for any time constant, and forces use their means, so that the impulse is exact, too, unless a
    state reaches a bound within the step.

    Attributes:
        damping: "implicit", or "explicit" to evaluate all forces at the start of the step, which limits dt to about 2 M/D for the
            inertia M and the damping D.

    Source: theory.md (I12).
    """

    damping: Literal["implicit", "explicit"] = eqx.field(static=True, default="implicit")

    order: ClassVar[int] = 1

    def __check_init__(self):
        check_name("damping of SemiImplicitEuler", self.damping, ("implicit", "explicit"))

    def step(self, system: System, state: State, control: Control, t: Time, dt: Time) -> tuple[State, Bool[Array, ""]]:
        now = instant(system, state, t)
        correction, u = correction_over_step(system, now, dt), control(t)
        mean, z = drives_over_step(system, state, u, dt)
        now = now._replace(state=mean)
        if self.damping == "implicit":
            a = resisted_acceleration(system, now, u, dt, correction)
        else:
            a, _ = acceleration_and_multipliers(system, now, u, correction)
        return State(*configuration.advance(system.model, state.q, state.v, a, dt), z), jnp.asarray(True)


class RungeKutta4(Integrator):
    """Classical Runge-Kutta method of order 4, four evaluations per step.

    The stages are steps in the tangent space at the start of the step (Munthe-Kaas 1998), so the order is 4 for joints on
    manifolds too.
    """

    order: ClassVar[int] = 4

    def step(self, system: System, state: State, control: Control, t: Time, dt: Time) -> tuple[State, Bool[Array, ""]]:
        model, correction = system.model, stabilizing_correction(system, state, t, dt)

        def stage(carry, coefficients):
            """A stage at the fraction c of the step, along the slopes of the stage before it; its weight is b."""
            (rate, a, change), sums = carry
            c, b = coefficients
            step, v, time = c * dt * rate, state.v + c * dt * a, t + c * dt
            q = configuration.integrate(model, state.q, step)
            rate, u = configuration.step_rate(model, state.q, step, v), control(time)
            x = State(q, v, moved_states(system, state.z, c * dt, change))
            slopes = rate, acceleration(system, x, u, time, correction=correction), drive_rates(system, x, u)
            return (slopes, jax.tree.map(lambda total, slope: total + b * slope, sums, slopes)), None

        # A loop, so that one stage is traced, differentiated and compiled. The zeros depend on the state, as the slopes do.
        nothing, dtype = (*2 * (0.0 * state.v,), None if state.z is None else 0.0 * state.z), state.v.dtype
        tableau = jnp.asarray([0.0, 0.5, 0.5, 1.0], dtype), jnp.asarray([1.0, 2.0, 2.0, 1.0], dtype) / 6.0
        (_, (rate, a, change)), _ = jax.lax.scan(stage, (nothing, nothing), tableau)
        q, z = configuration.integrate(model, state.q, dt * rate), moved_states(system, state.z, dt, change)
        return State(q, state.v + dt * a, z), jnp.asarray(True)


class ImplicitMidpoint(Integrator):
    """Implicit midpoint rule: v' = v + dt a(midpoint), q' = q + dt (v + v')/2, midpoint velocity (v + v')/2.

    States of drives are at the midpoint, too.

    The method is symmetric, of order 2, and stable for stiff springs and dampers. The equation of the step is solved by Newton's
    method with a fixed number of iterations; derivatives follow from the implicit function theorem and do not depend on the
    iterations.

    Attributes:
        iterations: Number of Newton iterations per step. The step fails if the last iteration changes v by more than sqrt(machine
            epsilon).
    """

    iterations: int = eqx.field(static=True, converter=plain, default=6, metadata=quantity(minimum=1.0))

    order: ClassVar[int] = 2

    def step(self, system: System, state: State, control: Control, t: Time, dt: Time) -> tuple[State, Bool[Array, ""]]:
        model, correction = system.model, stabilizing_correction(system, state, t, dt)
        middle = t + 0.5 * dt
        u = control(middle)

        start = state.v, state.z

        def packed(v, z):
            return v if z is None else jnp.concatenate([v, z])

        def unpacked(x):
            return (x, None) if state.z is None else tuple(jnp.split(x, [model.nv]))

        def residual(x):
            end = unpacked(x)
            v_middle, z_middle = jax.tree.map(lambda a, b: 0.5 * (a + b), start, end)
            at = State(configuration.integrate(model, state.q, 0.5 * dt * v_middle), v_middle, z_middle)
            change = jax.tree.map(lambda a, b: b - a, start, end)
            slopes = acceleration(system, at, u, middle, correction=correction), drive_rates(system, at, u)
            return packed(*jax.tree.map(lambda x, slope: x - dt * slope, change, slopes))

        # An explicit step would be a better guess for smooth motion, but a very poor one if the forces are stiff.
        x, solved = solve_by_newton(residual, packed(*start), self.iterations)
        v, z = unpacked(x)
        q = configuration.integrate(model, state.q, 0.5 * dt * (state.v + v))
        return State(q, v, moved_states(system, z)), solved
