"""Integrators where coordinates are quaternions and motions are prescribed, and what a variational integrator promises for ever."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import double_pendulum, swinging
from random_trees import random_inertia

import jaxdyn
from jaxdyn import (
    Damper,
    Free,
    ImplicitMidpoint,
    JointFriction,
    Knots,
    MechanismBuilder,
    Prismatic,
    Rheonomic,
    RungeKutta4,
    SemiImplicitEuler,
    Sinusoid,
    Spherical,
    Spring,
    State,
    System,
    Variational,
    configuration,
    rollout,
)
from jaxdyn.simulate import ExplicitEuler, RolloutResult, rollout_adaptive

INTEGRATORS = (ExplicitEuler(), SemiImplicitEuler(), ImplicitMidpoint(), RungeKutta4(), Variational())
_END = 0.5


def _shaken() -> tuple[System, State]:
    """A ball joint on a driven slide, a free body on a spring and a damper, friction."""
    rng = np.random.default_rng(11)
    builder = MechanismBuilder("shaken")
    builder.add_body("cart", joint=Rheonomic(Prismatic((1.0, 0.0, 0.0)), Sinusoid(0.2, 5.0, 0.3)), mass=1.0)
    for name, parent, joint in (("rod", "cart", Spherical()), ("body", "ground", Free())):
        com, inertia = random_inertia(rng, 1.0, 0.3)
        builder.add_body(name, parent=parent, joint=joint, mass=1.0, com=com, inertia=inertia)
    model = builder.build()
    ends = (*model.locate("rod", (0.0, 0.0, -0.5)), *model.locate("body", (0.1, 0.2, 0.0)))
    friction = JointFriction(0.1 * np.arange(1.0, 10.0), np.zeros(9), np.ones(9))
    q = jnp.array([0.9, 0.3, -0.2, 0.1, 0.5, 0.4, -0.6, 0.8, -0.1, 0.3, 0.5])
    v = jnp.array([1.0, -2.0, 0.5, -1.5, 0.7, 1.2, 0.4, -0.3, 0.6])
    return System(model, (Spring(*ends, 20.0, 0.3), Damper(*ends, 1.0), friction)), State(q, v)


@pytest.fixture(scope="module")
def reference():
    system, state = _shaken()
    run = jax.jit(lambda s: rollout_adaptive(system, s, times=jnp.array([0.0, _END]), rtol=1e-13, atol=1e-13))(state)
    assert run.result == RolloutResult.SUCCESSFUL
    return run.final


@pytest.mark.thorough
@pytest.mark.parametrize("integrator", INTEGRATORS, ids=lambda i: type(i).__name__)
def test_error_on_manifolds_falls_with_the_declared_order(integrator, reference):
    system, start = _shaken()

    # All lengths of the step in one program, which makes too many of the longer ones: each has a record at the end.
    @jax.jit
    @jax.vmap
    def run(dt):
        return rollout(system, start, dt=dt, steps=400, save_every=100, integrator=integrator)

    lengths = (100, 200, 400)
    runs, errors = run(_END / np.array(lengths)), []
    for i, steps in enumerate(lengths):
        assert runs.steps[i] >= steps
        end = jax.tree.map(lambda x, i=i, k=steps // 100: x[i, k], runs.saved)
        apart = configuration.difference(system.model, reference.q, end.q)
        errors.append(float(jnp.maximum(jnp.max(jnp.abs(apart)), jnp.max(jnp.abs(end.v - reference.v)))))
    slopes = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    np.testing.assert_allclose(slopes, integrator.order, atol=0.25)
    assert errors[-1] > 1e-11  # nothing of it is the reference's or rounding


@pytest.mark.thorough
def test_variational_free_body_keeps_both_momenta_to_rounding():
    builder = MechanismBuilder("alone", gravity=(0.0, 0.0, 0.0))
    com, inertia = random_inertia(np.random.default_rng(11), 1.0, 0.3)
    builder.add_body("body", joint=Free(), mass=1.0, com=com, inertia=inertia)
    system = System(builder.build())
    start = State(_shaken()[1].q[4:], _shaken()[1].v[3:])
    run = jax.jit(lambda s: rollout(system, s, dt=1e-2, steps=1000, save_every=1000, integrator=Variational()))(start)
    assert run.result == RolloutResult.SUCCESSFUL
    end = run.final
    for measure in (jaxdyn.momentum, jaxdyn.angular_momentum):
        before, after = (measure(system.model, state.q, state.v) for state in (start, end))
        # 1000 steps with some roundings of momenta of order one; the body has gone 5 m by then.
        np.testing.assert_allclose(after, before, atol=1e-10)
        assert np.linalg.norm(before) > 0.1
    assert np.linalg.norm(end.v - start.v) > 0.1  # on the axes of the body everything changes


# --- steps of adaptive length -----------------------------------------------------------------------------------------------------


def _ball() -> tuple[System, State]:
    builder = MechanismBuilder("ball")
    com, inertia = random_inertia(np.random.default_rng(3), 1.0, 0.3)
    builder.add_body("body", joint=Spherical(), mass=1.0, com=com + np.array([0.0, 0.0, -0.5]), inertia=inertia)
    return System(builder.build()), State(jnp.array([0.8, 0.3, -0.4, 0.1]), jnp.array([1.0, -2.0, 3.0]))


@pytest.mark.thorough
def test_adaptive_rollout_agrees_with_short_steps_at_irregular_times_and_differentiates():
    system, state = _ball()
    # Records at uneven times that are steps of the other rollout; smooth controls, a whole number of steps per knot.
    knots = Knots(np.sin(np.arange(15.0)).reshape(5, 3), 0.25, interpolation="cubic")
    at = np.array([0, 1, 130, 135, 700, 1000])
    times = jnp.asarray(at * 1e-3)

    def adaptive(velocity, system):
        return rollout_adaptive(system, State(state.q, velocity), knots, times=times, rtol=1e-10, atol=1e-10)

    run = eqx.filter_jit(adaptive)(state.v, system)
    assert run.result == RolloutResult.SUCCESSFUL
    np.testing.assert_array_equal(run.time, times)
    np.testing.assert_allclose(jnp.linalg.norm(run.saved.q, axis=1), np.ones(6), atol=1e-14)
    fine = jax.jit(lambda s: rollout(system, s, knots, dt=1e-3, steps=1000, integrator=RungeKutta4()))(state)
    apart = jax.vmap(lambda a, b: configuration.difference(system.model, a, b))(run.saved.q, fine.saved.q[at])
    np.testing.assert_allclose(apart, np.zeros((6, 3)), atol=1e-8)
    np.testing.assert_allclose(run.saved.v, fine.saved.v[at], atol=1e-7)
    np.testing.assert_array_equal(run.final.v, run.saved.v[-1])

    def end(x):
        heavier = eqx.tree_at(lambda s: s.model.mass, system, system.model.mass * x[3])
        return jnp.sum(adaptive(x[:3], heavier).final.v * jnp.array([1.0, -2.0, 0.5]))

    x, h = jnp.concatenate([state.v, jnp.ones(1)]), 4e-3
    both = jax.jit(jax.value_and_grad(end))
    _, gradient = both(x)
    values = [[both(x + k * h * e)[0] for k in (-2, -1, 1, 2)] for e in jnp.eye(4)]
    differences = [(f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h) for f in values]
    # Fourth-order differences allow a wide step. The solver takes other steps at each point, so its results jump by up to 1e-8.
    np.testing.assert_allclose(gradient, differences, atol=2e-6, rtol=2e-6)


def test_adaptive_rollout_that_needs_too_many_steps_says_so():
    system, state = _ball()
    run = jax.jit(lambda s: rollout_adaptive(system, s, times=jnp.array([0.0, 0.01, 50.0]), max_steps=8))(state)
    assert run.result == RolloutResult.STEP_FAILED
    assert run.steps <= 8
    assert np.all(np.isfinite(run.saved.v[:2]))
    assert np.all(np.isinf(run.saved.v[2]))


@pytest.mark.usefixtures("as_a_user")
def test_adaptive_rollout_refuses_wrong_shapes_before_it_compiles():
    system, state = _ball()
    times = jnp.array([0.0, 1.0])
    with pytest.raises(ValueError, match=r"controls have shape \(5, 2\); give shape \(knots, 3\)"):
        rollout_adaptive(system, state, Knots(np.zeros((5, 2)), 0.1), times=times)
    with pytest.raises(ValueError, match=r"q has shape \(3,\)"):
        rollout_adaptive(system, State(state.v, state.v), times=times)
    with pytest.raises(ValueError, match=r"shape \(2,\).*shape \(3,\)"):
        rollout_adaptive(system, state, lambda t, state, key: jnp.zeros(2), times=times)


# --- what the variational integrator keeps ----------------------------------------------------------------------------------------


def _symmetric_top() -> tuple[System, State]:
    builder = MechanismBuilder("top")
    builder.add_body("top", joint=Spherical(), mass=1.0, com=(0.0, 0.0, 0.3), inertia=(0.02, 0.02, 0.012))
    return System(builder.build()), State(jnp.array([0.9, 0.4, 0.1, 0.0]), jnp.array([0.5, -0.3, 40.0]))


@pytest.fixture
def steps(exhaustive) -> int:
    return 1_000_000 if exhaustive else 100_000


def _long_run(system, state, dt, steps, save):
    options = {"dt": dt, "steps": steps, "save_every": steps // 1000, "integrator": Variational()}
    run = jax.jit(lambda s: rollout(system, s, save=save, **options))(state)
    assert run.result == RolloutResult.SUCCESSFUL
    return jax.tree.map(np.asarray, run.saved)


def _bounded(energy):
    """The energy error of the last tenth of the records is that of the first tenth."""
    error = np.abs(energy - energy[0])
    assert np.max(error[-100:]) < 1.5 * np.max(error[:100])
    return np.max(error)


def test_variational_top_keeps_its_momenta_to_rounding_and_its_energy_over_very_many_steps(steps):
    system, state = _symmetric_top()

    def save(t, state, u):
        moment = jaxdyn.angular_momentum(system.model, state.q, state.v)
        return jaxdyn.total_energy(system, state), moment[2], state.v[2]

    energy, about_vertical, spin = _long_run(system, state, 1e-3, steps, save)
    # A rounding of 1e-16 per step adds up to 1e-10 at worst, and Newton's method stops within one of the root.
    np.testing.assert_allclose(about_vertical, about_vertical[0], rtol=1e-10)  # the symmetry of gravity
    np.testing.assert_allclose(spin, spin[0], rtol=1e-10)  # the symmetry of the body
    assert _bounded(energy) < 1e-2


def test_variational_double_pendulum_keeps_its_energy_over_very_many_steps(steps):
    system = System(double_pendulum())
    energy = _long_run(system, swinging(), 2e-3, steps, lambda t, state, u: jaxdyn.total_energy(system, state))
    assert _bounded(energy) < 1e-2


@pytest.mark.thorough
def test_derivatives_of_a_variational_step_are_those_of_differences():
    system, state = _ball()

    def end(x):
        changed = eqx.tree_at(lambda s: s.model.mass, system, system.model.mass * x[6])
        start = State(configuration.integrate(system.model, state.q, x[:3]), state.v + x[3:6])
        final = rollout(changed, start, dt=0.05, steps=1, integrator=Variational(6)).final
        return jnp.sum(final.q * jnp.arange(4.0)) + jnp.sum(final.v**2)

    x, h = jnp.concatenate([jnp.zeros(6), jnp.ones(1)]), 1e-5
    both = jax.jit(jax.value_and_grad(end))  # one compilation
    _, gradient = both(x)
    differences = [(both(x + h * e)[0] - both(x - h * e)[0]) / (2 * h) for e in jnp.eye(7)]
    # Rounding 1e-15 / h and h^2 times third derivatives of order 1e2.
    np.testing.assert_allclose(gradient, differences, atol=1e-7, rtol=1e-7)
