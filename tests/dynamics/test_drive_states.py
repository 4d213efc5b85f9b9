"""States of drives, lags, integrals and delays, in integrators, rollouts, gradients, files and fits."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.interpolate
import scipy.signal
from recorded import STEP, pendulum, simulated

import jaxdyn
from jaxdyn import State, System, identify
from jaxdyn.control import (
    Collocation,
    ContinuousDynamics,
    ControlProblem,
    Equality,
    MultibodyDynamics,
    MultipleShooting,
    follow,
    rollout_controls,
    solve,
    tracking_gains,
)
from jaxdyn.control.constraint_terms import TargetState
from jaxdyn.control.costs import Deviation, Effort
from jaxdyn.dynamics import Actuator, Actuators, Drives
from jaxdyn.identify.measurement import MeasurementError
from jaxdyn.io import load_system, save_system
from jaxdyn.simulate import Knots, Projected, Variational, rollout_adaptive

MODEL = pendulum()
(JOINT,) = MODEL.topology.joint_names
EVERY = (
    Actuator("lag", {JOINT: (1.5,)}, time_constant=0.2, delay=0.8, control_range=(-2.0, 2.0)),
    Actuator("motor", {JOINT: (1.0,)}, gain=0.5),
    Actuator.position_servo(JOINT, 3.0, 0.2, name="integral", time_constant=1.0, integrates=True),
)
SYSTEM = System(MODEL, drives=Actuators.of(MODEL, EVERY))
CONTROLS = Knots(jnp.array([[1.0, 0.5, 2.0], [-1.5, 0.2, -1.0], [0.5, 1.0, 0.5]]), 0.2, interpolation="cubic")
START = State(jnp.array([0.3]), jnp.array([-0.4]), jnp.array([0.9, 0.6, 0.7, 0.8, 0.5, -0.2]))


def flat(state):
    return np.concatenate(jax.tree.leaves(state))


@pytest.fixture(scope="module")
def exact():
    """End of the motion by a solver of diffrax, which knows the same equation of the states, but none of the steps."""
    times = jnp.array([0.0, 0.4])
    return flat(rollout_adaptive(SYSTEM, START, CONTROLS, times=times, rtol=1e-12, atol=1e-12).final)


@pytest.mark.parametrize(
    ("integrator", "order"),
    [
        (jaxdyn.SemiImplicitEuler(), 1),
        (jaxdyn.simulate.ExplicitEuler(), 1),
        (jaxdyn.RungeKutta4(), 4),
        (jaxdyn.simulate.ImplicitMidpoint(), 2),
        pytest.param(Variational(), 2, marks=pytest.mark.thorough),
    ],
)
def test_states_of_drives_do_not_reduce_the_order(integrator, order, exact):
    errors = []
    for n in (8, 16):
        run = jaxdyn.rollout(SYSTEM, START, CONTROLS, dt=0.4 / n, steps=n, integrator=integrator)
        errors.append(np.abs(flat(run.final) - exact).max())
    assert 2.0 ** (order - 0.4) < errors[0] / errors[1] < 2.0 ** (order + 0.6)


def slider(**options):
    builder = jaxdyn.MechanismBuilder("slider", gravity=(0.0, 0.0, 0.0))
    builder.add_body("mass", joint=jaxdyn.Prismatic((1, 0, 0)), joint_name="x", mass=2.0, inertia=(1, 1, 1))
    model = builder.build()
    return System(model, drives=Actuators.of(model, [Actuator("a", {"x": (1.0,)}, gain=6.0, **options)]))


def test_the_default_step_of_a_lag_is_exact_for_time_constants_of_any_size():
    """Constant controls: z = 1 - exp(-t/T), and the momentum of the mean force gives v = 3 (t - T z)."""
    for T in (1e-9, 0.05, 10.0):
        system, dt = slider(time_constant=T), 0.1
        run = jaxdyn.rollout(system, system.at_rest(jnp.zeros(1)), jnp.ones((4, 1)), dt=dt, steps=4)
        t = dt * np.arange(5)
        np.testing.assert_allclose(run.saved.z[:, 0], -np.expm1(-t / T), rtol=1e-13)
        np.testing.assert_allclose(run.saved.v[:, 0], 3.0 * (t + T * np.expm1(-t / T)), rtol=1e-12, atol=1e-12)


def test_the_default_step_of_a_delay_is_exact_for_delays_of_any_size():
    """Constant controls: the step responses of the Padé approximation R of the delay and, for the momentum of the mean force,
    of 3 R / s, by SciPy. After a long time the velocity is 3 (t - tau)."""

    def motion(tau, dt=0.1, steps=20):
        system = eqx.tree_at(lambda s: s.drives.delay, slider(delay=1.0), tau)
        return jaxdyn.rollout(system, system.at_rest(jnp.zeros(1)), jnp.ones((steps, 1)), dt=dt, steps=steps)

    motion = jax.jit(motion)
    p, q = scipy.interpolate.pade([(-1.0) ** k / math.factorial(k) for k in range(8)], 4, 3)  # of exp(-s)
    for tau in (10.0, 0.3, 2e-3):
        run = motion(jnp.array([tau]))
        for found, denominator in ((run.saved.z[:, 3], q.c), (run.saved.v[:, 0] / (3.0 * tau), [*q.c, 0.0])):
            _, expected = scipy.signal.step((p.c, denominator), T=0.1 / tau * np.arange(21))
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    slope = jax.jit(jax.grad(lambda tau: motion(tau).final.v[0]))
    np.testing.assert_allclose([slope(jnp.array([tau]))[0] for tau in (0.05, 1e-9)], -3.0, rtol=1e-9)
    z, still = jnp.array([0.1, 0.5, -0.3, 0.2]), (MODEL, jnp.zeros(1), jnp.zeros(1))
    move = jax.jit(lambda z, step: slider(delay=0.1).drives.states_over_step(*still, z, jnp.ones(1), step))
    mean, end = move(z, 0.3)
    np.testing.assert_allclose(move(end, -0.3), [mean, z], rtol=1e-7)  # backward in time


def test_means_of_short_steps_have_all_digits():
    """mean = x/2 - x^2/6 + ..., x = step/T; in a step of length zero, nothing changes."""

    def mean(T, step):
        drives = slider(time_constant=1.0).drives
        moved = eqx.tree_at(lambda d: d.time_constant, drives, jnp.asarray([T], jnp.float32))
        zero = jnp.zeros(1, jnp.float32)
        return moved.states_over_step(MODEL, zero, zero, zero, jnp.ones(1, jnp.float32), jnp.float32(step))[0][0]

    for step in (0.0, 1e-3, 4.9, 5.1, 100.0):
        value, slope = jax.value_and_grad(mean)(100.0, step)
        x = step / 100.0
        exact = 1.0 + np.expm1(-x) / x if x > 1e-4 else x / 2 - x**2 / 6
        derivative = -(-np.exp(-x) * x - np.expm1(-x)) / x**2 * x / 100.0 if x > 1e-4 else (x**2 / 3 - x / 2) / 100.0
        np.testing.assert_allclose([value, slope], [exact, derivative], rtol=2e-5)


BOUNDED = slider(time_constant=0.5, integrates=True, state_range=(-1.0, 0.5))
PUSHES, STOPS = jnp.array([[1.0], [1.0], [-1.0]]), [0.0, 0.3, 0.5, 0.2]


@pytest.mark.parametrize("integrator", [jaxdyn.SemiImplicitEuler(), jaxdyn.RungeKutta4()])
def test_an_integral_stops_at_its_bounds_and_leaves_them_at_once(integrator):
    start = BOUNDED.at_rest(jnp.zeros(1))
    run = jaxdyn.rollout(BOUNDED, start, PUSHES, dt=0.15, steps=3, integrator=integrator)
    np.testing.assert_allclose(run.saved.z[:, 0], STOPS, rtol=1e-14)


@pytest.mark.thorough  # because of diffrax
def test_an_integral_stops_at_its_bounds_in_steps_of_adaptive_length():
    held, times = Knots(PUSHES, 0.15, interpolation="zero_order"), jnp.linspace(0.0, 0.45, 4)
    run = rollout_adaptive(BOUNDED, BOUNDED.at_rest(jnp.zeros(1)), held, times=times, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(run.saved.z[:, 0], STOPS, atol=2e-3)  # the knots are 1e-3 of an interval early


def test_gradients_by_time_constants_are_those_of_difference_quotients_in_batches_and_float32():
    def end(T, system=SYSTEM, start=START, controls=CONTROLS):
        changed = eqx.tree_at(lambda s: s.drives.time_constant, system, T)
        return jaxdyn.rollout(changed, start, controls, dt=0.02, steps=20).final.q[0]

    T = jnp.array([[0.2, 1.0], [0.05, 0.4]])
    values, slopes = jax.jit(jax.vmap(jax.value_and_grad(end)))(T)
    plain = jax.jit(jax.vmap(end))
    for k, step in enumerate(1e-6 * np.eye(2)):
        difference = (plain(T + step[None]) - plain(T - step[None])) / 2e-6
        np.testing.assert_allclose(slopes[:, k], difference, rtol=1e-6)
    single = jaxdyn.as_dtype((SYSTEM, START, CONTROLS), jnp.float32)
    rounded = jax.jit(end)(T[0].astype(jnp.float32), *single)
    assert rounded.dtype == jnp.float32
    np.testing.assert_allclose(rounded, values[0], rtol=1e-4)


def test_a_stepper_and_the_tables_of_a_rollout_have_the_states():
    run = jaxdyn.rollout(SYSTEM, START, jnp.ones((3, 3)), dt=0.01, steps=3)
    step, state = jaxdyn.stepper(SYSTEM, 0.01), (START.q, START.v, START.z)
    for _ in range(3):
        q, v, z = step(*state[:2], np.ones(3), 0.0, state[2])
        state = q, v, z
    for ours, theirs in zip(state, jax.tree.leaves(run.final), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    table = run.to_dataframe()
    np.testing.assert_array_equal(table[[f"z_{k}" for k in range(6)]], run.saved.z)
    assert "3: lag, motor, integral; 6 states" in SYSTEM.summary()


@pytest.mark.parametrize("ending", ["toml", "json"])
def test_files_have_the_states_of_actuators(tmp_path, ending):
    act = dataclasses.replace(EVERY[2], state_range=(-0.5, np.inf))
    system = System(MODEL, drives=Actuators.of(MODEL, (*EVERY[:2], act)))
    save_system(system, tmp_path / f"m.{ending}")
    found = load_system(tmp_path / f"m.{ending}").drives
    assert eqx.tree_equal(found, system.drives)
    assert found.descriptions(MODEL) == [*EVERY[:2], act]


def test_a_fit_recovers_a_time_constant_and_a_delay_from_a_recording():
    lagged = System(MODEL, drives=Actuators.of(MODEL, EVERY[:2]))
    truth = identify.Plant(lagged, identify.Sensors([1e-3]))
    recording = simulated(truth, 3.0, 1)
    times = ("time_constant", "delay")
    wrong = eqx.tree_at(
        lambda p: [getattr(p.system.drives, x) for x in times], truth, [jnp.array([0.1]), jnp.array([0.5])]
    )
    parameters = identify.Parameters(wrong, [identify.Parameter(f"system.drives.{x}") for x in times])
    assert tuple(parameters.labels) == (("time_constant [lag]", "s"), ("delay [lag]", "s"))
    # The states at the start of a window follow from the inputs of the lead.
    windows = identify.cut([recording], duration=0.5, interval=STEP, lead=2.0, first=2.0)
    fitted = identify.fit(identify.OutputError(parameters, windows))
    # In windows of one half second, exp(-1 s / 0.2 s) of the error of the first state remains.
    np.testing.assert_allclose(fitted.value.system.drives.time_constant, 0.2, rtol=2e-2)
    np.testing.assert_allclose(fitted.value.system.drives.delay, 0.8, rtol=2e-2)
    still = jnp.zeros(1)  # forces other than those of the drives do not need their states
    other = identify.remaining_forces(lagged, State(still, still, jnp.zeros(5)), still)
    np.testing.assert_array_equal(other, identify.remaining_forces(lagged, State(still, still), still))
    late = identify.cut([recording], duration=0.5, interval=STEP, lead=0.1)
    with pytest.raises(MeasurementError, match=r"a lead of at least 0.95 s, the longest delays and 3 time"):
        identify.OutputError(parameters, late)


def test_what_does_not_fit_drives_with_states_is_refused_with_the_remedy(refusal):
    no_z = State(START.q, START.v)
    for call in (
        lambda: jaxdyn.rollout(SYSTEM, no_z, dt=0.1, steps=1),
        lambda: jaxdyn.acceleration(SYSTEM, no_z),
        lambda: jaxdyn.stepper(SYSTEM, 0.1)(START.q, START.v),
        lambda: rollout_adaptive(SYSTEM, no_z, times=jnp.array([0.0, 1.0])),
    ):
        assert "6 states, but the state has no z; give State(q, v, z), or system.at_rest(q)" in refusal(
            ValueError, call
        )
    assert "z has shape (6,), but the drives" in refusal(ValueError, jaxdyn.acceleration, System(MODEL), START)
    assert "changed(drives=None)" in refusal(ValueError, jaxdyn.inverse_dynamics, SYSTEM, START, jnp.zeros(1))
    assert "give its time_constant" in refusal(ValueError, Actuator, "a", {JOINT: (1.0,)}, integrates=True)
    reverse = refusal(ValueError, Actuator, "a", {JOINT: (1.0,)}, time_constant=1.0, state_range=(1.0, 0.0))
    assert "state_range is [1, 0]; give the lower bound first" in reverse
    plant = identify.Plant(SYSTEM, identify.Sensors([1e-3]))
    recording = identify.Recording("r", np.arange(9.0), np.zeros((9, 1)), None, np.zeros((9, 3)))
    windows = identify.cut([recording], duration=2.0, interval=1.0, lead=4.0)
    assert "some are integrals" in refusal(ValueError, identify.predicted_measurements, plant, windows)
    assert 'use the check "windows"' in refusal(MeasurementError, identify.ValidTimeCheck().figures, plant, [])
    motions = identify.Motions(*3 * (jnp.zeros((9, 1)),), jnp.zeros((9, 3)))
    parameters = identify.Parameters(plant, [identify.Parameter("system.drives.gain")])
    assert "use OutputError" in refusal(
        ValueError, identify.InverseDynamicsError, parameters, motions, noise=jnp.ones(1)
    )


class Winch(Drives):
    """A drum whose speed z follows a control against the pull of the joint: a law of one's own with a state."""

    lag: jax.Array

    @property
    def count(self):
        return 1

    @property
    def state_count(self):
        return 1

    def rates(self, model, q, v, z, u):
        return (u - z - v) / self.lag

    def acting(self, z, u):
        return z

    def forces(self, model, q, v, u):
        return 2.0 * (u - v)


def test_drives_of_ones_own_with_states_are_one_class():
    system, start = System(MODEL, drives=Winch(jnp.asarray(0.3))), State(START.q, START.v, jnp.array([0.5]))
    found = jaxdyn.applied_forces(system, start, jnp.array([9.0]))
    np.testing.assert_allclose(found, 2.0 * (0.5 + 0.4), rtol=1e-14)
    times, u = jnp.array([0.0, 0.4]), Knots(CONTROLS.values[:, :1], 0.2, interpolation="cubic")
    exact = rollout_adaptive(system, start, u, times=times, rtol=1e-10, atol=1e-10).final
    run = jaxdyn.rollout(system, start, u, dt=0.01, steps=40, integrator=jaxdyn.RungeKutta4()).final
    coarse = jaxdyn.rollout(system, start, u, dt=0.01, steps=40).final
    for ours, roughly, theirs in zip(*map(jax.tree.leaves, (run, coarse, exact)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
        np.testing.assert_allclose(roughly, theirs, atol=0.03)


def test_tangent_coordinates_of_a_state_end_with_those_of_drives(refusal):
    dynamics, u = MultibodyDynamics(SYSTEM), jnp.array([0.4, 0.1, -0.3])
    step = jnp.linspace(0.1, 0.8, 8)
    there = dynamics.retract(START, step)
    np.testing.assert_allclose(dynamics.difference(START, there), step, rtol=1e-14)
    a = jaxdyn.acceleration(SYSTEM, START, u)
    rate = dynamics.rate(START, u, jnp.zeros(()))
    np.testing.assert_allclose(rate[np.array([0, 1, -2, -1])], [-0.4, *a, (0.8 - 0.5) / 0.2, -0.3], rtol=1e-12)
    assert dynamics.nx == len(dynamics.units) == 8
    goal = State(jnp.ones(1), jnp.zeros(1))
    np.testing.assert_array_equal(dynamics.difference(goal, START)[2:], 0.0)
    assert TargetState(goal)(dynamics, jnp.zeros(()), START, u).shape == (2,)
    assert TargetState(there)(dynamics, jnp.zeros(()), START, u).shape == (8,)
    assert "6 states, but the state has no z" in refusal(
        ValueError, ControlProblem, dynamics, goal, duration=1.0, steps=8
    )


@pytest.mark.thorough  # because of the compilation of solvers
@pytest.mark.parametrize("solver", [Collocation(), MultipleShooting()])
def test_plans_know_the_states_of_drives(solver):
    """The same problem as a mechanism and as a vector (x, v, z) with dx/dt = v, dv/dt = 3 z, dz/dt = (u - z) / 0.2."""
    system, options = slider(time_constant=0.2), {"duration": 1.0, "steps": 8, "running": (Effort(0.1),)}
    goal, start = State(jnp.ones(1), jnp.zeros(1)), State(jnp.zeros(1), jnp.zeros(1), jnp.array([0.3]))
    stops = Equality(TargetState(goal, of_configuration=False))
    problem = ControlProblem(
        MultibodyDynamics(system), start, final=(Deviation(goal, 50.0),), final_constraints=(stops,), **options
    )
    assert problem.dynamics.nx == 3
    vector = ContinuousDynamics(lambda x, u, t: jnp.stack([x[1], 3.0 * x[2], (u[0] - x[2]) / 0.2]), 3, 1)
    same = ControlProblem(
        vector,
        jnp.array([0.0, 0.0, 0.3]),
        final=(lambda dynamics, t, x, u: 25.0 * ((x[0] - 1.0) ** 2 + x[1] ** 2),),
        final_constraints=(Equality(lambda dynamics, t, x, u: x[1:2]),),
        **options,
    )
    plan, expected = (solve(p, solver, rollout_controls(p, jnp.zeros((8, 1)))).value for p in (problem, same))
    np.testing.assert_allclose(plan.controls, expected.controls, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.concatenate(jax.tree.leaves(plan.states), axis=1), expected.states, atol=1e-6)
    np.testing.assert_array_equal(plan.to_dataframe(problem)["z_0"], plan.states.z[:, 0])
    gains = tracking_gains(problem, plan, jnp.eye(3), jnp.eye(1))
    closed = follow(problem, plan, gains, dataclasses.replace(start, z=jnp.array([0.2])))
    np.testing.assert_allclose(closed.controls[0], plan.controls[0] - 0.1 * gains[0, :, 2], rtol=1e-12)


@pytest.mark.thorough
def test_projections_and_loops_keep_the_states_of_drives():
    loop = jaxdyn.library.system("four_bar")
    joint = loop.model.topology.joint_names[loop.model.topology.body_of_column[0]]
    drives = Actuators.of(loop.model, [Actuator("lag", {joint: (1.0,)}, gain=0.01, time_constant=0.1)])
    system = dataclasses.replace(loop, drives=jaxdyn.as_dtype(drives, loop.model.dtype))
    start = system.at_rest(jaxdyn.assemble(system, jaxdyn.neutral_state(system)).q)
    for integrator in (Projected(), Variational()):
        end = jaxdyn.rollout(system, start, jnp.ones((5, 1), start.q.dtype), dt=0.01, steps=5, integrator=integrator)
        np.testing.assert_allclose(end.final.z, -np.expm1(-0.5), rtol=1e-6)
