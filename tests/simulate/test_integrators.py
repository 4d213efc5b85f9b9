"""Integrators: declared order, structure, and derivatives of the implicit step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import double_pendulum, swinging

import jaxdyn
from jaxdyn import ImplicitMidpoint, RungeKutta4, SemiImplicitEuler, State, System, Variational
from jaxdyn.simulate import ExplicitEuler

INTEGRATORS = (ExplicitEuler(), SemiImplicitEuler(), RungeKutta4(), ImplicitMidpoint())


@pytest.mark.parametrize("integrator", INTEGRATORS, ids=lambda i: type(i).__name__)
def test_energy_drift_of_ten_seconds_falls_with_the_declared_order(integrator):
    system = System(double_pendulum())
    # The coarsest step is fine enough for the asymptotic regime, the finest one keeps rounding below the drift.
    coarsest = {1: 4000, 2: 2000, 4: 1000}[integrator.order]

    # All lengths of the step in one program, which goes on for longer than ten seconds with the longer ones.
    @jax.jit
    @jax.vmap
    def run(dt):
        return jaxdyn.rollout(
            system,
            swinging(),
            dt=dt,
            steps=4 * coarsest,
            integrator=integrator,
            save_every=coarsest // 100,
            save=lambda t, state, u: jaxdyn.total_energy(system, state),
        ).saved

    finer = np.array([1, 2, 4])
    records = np.asarray(run(10.0 / (finer * coarsest)))
    energies = [energy[: 100 * k + 1 : k] for energy, k in zip(records, finer, strict=True)]
    errors = [np.max(np.abs(energy - energy[0])) for energy in energies]
    slopes = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    # At least the declared order. Runge-Kutta 4 may do one better: its error of order dt^4 turns the phase, which costs no
    # energy, and over ten seconds the drift of order dt^5 dominates. The state error below has the exact order.
    assert np.all(slopes > integrator.order - 0.3)
    assert np.all(slopes < integrator.order + (1.3 if integrator.order == 4 else 0.3))


@pytest.mark.parametrize("integrator", [*INTEGRATORS, Variational()], ids=lambda i: type(i).__name__)
def test_state_error_falls_with_the_declared_order_under_time_dependent_control(integrator):
    system = System(double_pendulum(), (jaxdyn.JointFriction([0.1, 0.1], [0.0, 0.0], [1.0, 1.0]),))
    values = 0.5 * jnp.sin(jnp.arange(9.0))[:, None] * jnp.array([[1.0, -0.5]])
    # Cubic knots, each interval a whole number of steps: the control is smooth within every step.
    controls = jaxdyn.Knots(values, 0.125, interpolation="cubic")

    # All lengths of the step in one program, which makes too many of the longer ones: each has a record after one second.
    @jax.jit
    @jax.vmap
    def run(dt):
        saved = jaxdyn.rollout(
            system, swinging(), controls, dt=dt, steps=256, integrator=integrator, save_every=64
        ).saved
        return jnp.concatenate([saved.q, saved.v], axis=1)

    reference = jaxdyn.rollout(
        system, swinging(), controls, dt=1 / 4096, steps=4096, integrator=RungeKutta4(), save_every=4096
    ).final
    reference = np.concatenate([reference.q, reference.v])
    steps = np.array([64, 128, 256])
    ends = np.asarray(run(1.0 / steps))[range(3), steps // 64]
    errors = np.max(np.abs(ends - reference), axis=1)
    slopes = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    np.testing.assert_allclose(slopes, integrator.order, atol=0.25)


def test_implicit_midpoint_is_time_reversible():
    system = System(double_pendulum())
    forward = jaxdyn.rollout(system, swinging(), dt=0.02, steps=50, integrator=ImplicitMidpoint(5)).final
    back = jaxdyn.rollout(system, forward, dt=-0.02, steps=50, integrator=ImplicitMidpoint(5)).final
    # 50 steps of a motion that amplifies rounding by less than 1e3.
    np.testing.assert_allclose(
        np.concatenate([back.q, back.v]), np.concatenate([swinging().q, swinging().v]), atol=1e-12
    )


def test_implicit_step_that_is_not_solved_is_reported_and_the_state_kept():
    system = System(double_pendulum(), (jaxdyn.JointSpring([1e4, 1e4], [0.0, 0.0]),))
    trajectory = jax.jit(lambda s: jaxdyn.rollout(system, s, dt=0.5, steps=2, integrator=ImplicitMidpoint(1)))(
        swinging()
    )
    assert trajectory.result == jaxdyn.simulate.RolloutResult.STEP_FAILED
    assert trajectory.steps == 0
    np.testing.assert_array_equal(trajectory.final.q, swinging().q)


def test_implicit_midpoint_is_stable_where_the_explicit_method_explodes():
    stiff = System(double_pendulum(), (jaxdyn.JointFriction([200.0, 200.0], [0.0, 0.0], [1.0, 1.0]),))
    options = {"dt": 0.02, "steps": 100, "save_every": 100}
    implicit = jaxdyn.rollout(stiff, swinging(), integrator=ImplicitMidpoint(), **options)
    explicit = jax.jit(lambda s: jaxdyn.rollout(stiff, s, integrator=RungeKutta4(), **options))(swinging())
    assert implicit.result == jaxdyn.simulate.RolloutResult.SUCCESSFUL
    assert explicit.result == jaxdyn.simulate.RolloutResult.DIVERGED
    assert np.all(np.abs(implicit.final.v) < 1.0)


@pytest.mark.thorough
def test_derivatives_of_the_implicit_step_of_first_and_second_order():
    model = double_pendulum()

    def end(x):
        system = System(model, (jaxdyn.JointSpring(x[4:6], jnp.zeros(2)),))
        state = State(x[:2], x[2:4])
        final = jaxdyn.rollout(system, state, dt=0.02, steps=3, integrator=ImplicitMidpoint(4)).final
        return jnp.sum(final.q * jnp.array([1.0, 2.0])) + jnp.sum(final.v**2)

    # One program for the point and for those ahead and behind, each in a separate sample.
    @jax.jit
    @jax.vmap
    def derivatives(x, direction):
        (value, gradient), (_, second) = jax.jvp(jax.value_and_grad(end), (x,), (direction,))
        return value, gradient, second

    x = np.concatenate([swinging().q, swinging().v, [5.0, 3.0]])
    directions, step = np.eye(6), 1e-4
    values, gradients, seconds = map(
        np.asarray,
        derivatives(
            np.concatenate([x + 0.0 * directions, x + step * directions, x - step * directions]),
            np.tile(directions, (3, 1)),
        ),
    )
    gradient, hessian = gradients[0], seconds[:6]
    central = (values[6:12] - values[12:]) / (2 * step)
    central_second = (gradients[6:12] - gradients[12:]) / (2 * step)
    # Central differences are good to step^2 = 1e-8 times the third derivative (below 100 here).
    np.testing.assert_allclose(gradient, central, atol=1e-6)
    np.testing.assert_allclose(hessian, central_second, atol=1e-5)


def test_the_guide_chooses_by_motion_spinning_vibrating_and_dissipating():
    builder = jaxdyn.MechanismBuilder("top", gravity=(0.0, 0.0, 0.0))
    builder.add_body("top", joint=jaxdyn.Free(), mass=1.0, inertia=(0.01, 0.02, 0.025))
    top = jaxdyn.System(builder.build())
    builder = jaxdyn.MechanismBuilder("wheel", gravity=(0.0, 0.0, 0.0))
    builder.add_body("wheel", joint=jaxdyn.Revolute((0, 0, 1)), mass=1.0, inertia=(1e-4, 1e-4, 1e-4))
    wheel = builder.build()
    spring = jaxdyn.System(wheel, (jaxdyn.JointSpring([100.0], [0.0]),))  # 1000 rad/s
    damped = jaxdyn.System(wheel, (jaxdyn.JointFriction([10.0], [0.5], [5e-6]),))
    spinning = jaxdyn.State(jaxdyn.neutral_state(top).q, jnp.array([5.0, 100.0, 5.0, 0.0, 0.0, 0.0]))
    away, moving = jaxdyn.State(jnp.full(1, 0.01), jnp.zeros(1)), jaxdyn.State(jnp.zeros(1), jnp.full(1, 10.0))

    def share(system, start, integrator, steps):
        run = jaxdyn.rollout(system, start, dt=1e-3, steps=steps, save_every=steps, integrator=integrator, throw=False)
        return float(jaxdyn.total_energy(system, run.final) / jaxdyn.total_energy(system, start))

    default, accurate, midpoint = jaxdyn.SemiImplicitEuler(), jaxdyn.RungeKutta4(), jaxdyn.ImplicitMidpoint()
    assert 2.5 < share(top, spinning, default, 2000) < 3.0
    np.testing.assert_allclose(share(top, spinning, accurate, 2000), 1.0, atol=1e-6)
    np.testing.assert_allclose(share(spring, away, midpoint, 628), 1.0, atol=1e-11)
    assert share(spring, away, accurate, 628) < 1e-3
    assert share(damped, moving, default, 100) < 1e-20
    assert share(damped, moving, midpoint, 100) > 1e-3
