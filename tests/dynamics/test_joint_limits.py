"""Stops at joint limits, theory.md (H15): values against a scalar closed form, the onset, energy, what joints do there, files."""

import math
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from difference_quotients import check_derivatives
from random_trees import close

from jaxdyn import (
    JointLimits,
    MechanismBuilder,
    MechanismError,
    Planar,
    Prismatic,
    Revolute,
    SemiImplicitEuler,
    State,
    System,
    UnknownName,
    applied_forces,
    as_dtype,
    mass_matrix,
    rollout,
    total_energy,
)
from jaxdyn.compute import Backend
from jaxdyn.dynamics import kinematics
from jaxdyn.io.archive import load_archive, save_archive
from jaxdyn.io.config import ConfigError, read_config
from jaxdyn.io.limits import check_limits
from jaxdyn.io.mechanism_file import load_mechanism, save_mechanism
from jaxdyn.io.mjcf import load_mjcf
from jaxdyn.io.system_file import load_system
from jaxdyn.io.urdf import load_urdf
from jaxdyn.io.urdf_writer import save_urdf
from jaxdyn.io.xml import IgnoredContent
from jaxdyn.jobs.rollout.config import RolloutConfig
from jaxdyn.jobs.rollout.work import _machine
from jaxdyn.simulate.diagnostics import power_balance_error, work_of_step

LOWER, UPPER = -0.8, 0.5
K, D, W = 300.0, 7.0, 0.02
STEP = 1e-3


@pytest.fixture(scope="module")
def model():
    """A heavy arm with limits on both sides, a light slide with one limit, and a link that turns without end."""
    builder = MechanismBuilder("limited")
    turn, slide = Revolute((0, 1, 0)), Prismatic((1, 0, 0))
    arm = {"mass": 4.0, "com": (0, 0, -0.5), "inertia": (0.1, 0.1, 0.01)}
    tip = {"mass": 0.01, "com": (0, 0, 0.01), "inertia": (1e-6, 1e-6, 1e-6)}
    builder.add_body("arm", joint=turn, position_limits=(LOWER, UPPER), effort_limit=40.0, **arm)
    builder.add_body("slide", parent="arm", joint=slide, position_limits=(-np.inf, UPPER), **tip)
    builder.add_body("link", parent="slide", joint=turn, position=(0, 0, -0.1), **tip)
    return builder.build()


@pytest.fixture(scope="module")
def stops():
    return JointLimits([K, 2.0 * K, 0.0], [D, 0.5 * D, 0.0], [W, 3.0 * W, 1.0])


@jax.jit
def force_of(stops, model, q, v):
    return stops.generalized_forces(model, q, v, jnp.zeros(()))


@jax.jit
def stored(stops, model, q):
    return stops.potential_energy(model, q, kinematics.placements(model, q))


def depth_in_effect(x, w):
    z = min(x / w, 1.0)
    return w * (z**3 - z**4 / 2) + max(x - w, 0.0), 3 * z**2 - 2 * z**3


def push(x, speed, k, d, w):
    depth, slope = depth_in_effect(x, w)
    return d * slope * speed + math.hypot(k * depth, d * slope * speed)


@pytest.mark.parametrize("speed", [0.0, 0.7, -0.7])
@pytest.mark.parametrize("x", [0.1 * W, 0.9 * W, 5.0 * W])
def test_force_beyond_a_limit_is_that_of_the_formula_and_points_back(model, stops, x, speed):
    over = force_of(stops, model, jnp.array([UPPER + x, UPPER + x, 9.0]), jnp.array([speed, speed, 1.0]))
    close(over, [-push(x, speed, K, D, W), -push(x, speed, 2.0 * K, 0.5 * D, 3.0 * W), 0.0], scale=K)
    under = force_of(stops, model, jnp.array([LOWER - x, LOWER - x, -9.0]), jnp.array([-speed, speed, 1.0]))
    close(under, [push(x, speed, K, D, W), 0.0, 0.0], scale=K)
    assert over[0] < 0 < under[0]


def test_within_the_limits_there_is_no_force_and_no_derivative_at_any_speed(model, stops):

    def force(numbers):
        stops, limits, q, v = numbers
        return force_of(stops, eqx.tree_at(lambda m: m.limits, model, limits), q, v)

    slopes_of = jax.jit(jax.jacfwd(force))
    for q in ([LOWER, UPPER, 0.0], [0.1, -30.0, 7.0]):
        q, v = jnp.array(q), jnp.array([5.0, -50.0, 3.0])
        slopes = slopes_of((stops, model.limits, q, v))
        for value in (force_of(stops, model, q, v), stored(stops, model, q), *jax.tree.leaves(slopes)):
            assert not np.any(value)


def test_force_and_its_first_derivatives_begin_from_zero(model, stops):
    """Near the limit the slope in x goes with the depth and the rest with its square."""

    slopes_of = jax.jit(jax.jacfwd(force_of, argnums=(2, 3)))

    def slopes(x):
        q, v = jnp.array([UPPER + x, 0.0, 0.0]), jnp.array([0.7, 0.0, 0.0])
        by_q, by_v = slopes_of(stops, model, q, v)
        return np.array([force_of(stops, model, q, v)[0], by_q[0, 0], by_v[0, 0]])

    np.testing.assert_allclose(slopes(1e-4 * W) / slopes(1e-3 * W), (1e-2, 1e-1, 1e-2), rtol=1e-2)


def test_derivatives_are_difference_quotients_beyond_the_limits(model, stops):
    numbers, static = eqx.partition((stops, model.limits.upper), eqx.is_inexact_array)
    v = jnp.array([-0.3, 0.4, 0.0])

    def force(numbers):
        (term, upper), q = eqx.combine(numbers[0], static), numbers[1]
        moved = eqx.tree_at(lambda m: m.limits.upper, model, upper)
        return term.generalized_forces(moved, q, v, jnp.zeros(()))

    finite = eqx.tree_at(lambda x: x[1], numbers, numbers[1].at[2].set(100.0))
    check_derivatives(jax.jit(force), (finite, jnp.array([UPPER + 0.6 * W, UPPER + 5.0 * W, 1.0])), orders=2)


def test_force_at_rest_is_minus_the_gradient_of_the_stored_energy(model, stops):
    for q in ([UPPER + 0.5 * W, UPPER + 9.0 * W, 0.0], [LOWER - 2.0 * W, UPPER + W, 0.0]):
        gradient = jax.jit(jax.grad(stored, argnums=2))(stops, model, jnp.array(q))
        close(force_of(stops, model, jnp.array(q), jnp.zeros(3)), -gradient, scale=K)


def test_motion_takes_energy_out_beyond_what_is_stored_and_the_force_never_pulls(model, stops):
    rng = np.random.default_rng(90)
    depth = rng.uniform(0.0, 5.0 * W, (500, 1)) * np.array([1.0, 1.0, 0.0])
    q, v = jnp.asarray(UPPER + depth), jnp.asarray(rng.normal(0.0, 3.0, (500, 3)))
    over_states = jax.jit(jax.vmap(lambda q, v: stops.generalized_forces(model, q, v, jnp.zeros(()))))
    moving, resting = over_states(q, v), over_states(q, 0.0 * v)
    assert np.all(moving <= 0.0)
    assert np.all((moving - resting) * v <= 1e-12)


def test_resistance_is_the_slope_in_the_velocity_and_not_negative(model, stops):
    q = jnp.array([UPPER + 0.7 * W, UPPER + 4.0 * W, 0.0])
    for speed in (2.0, 0.0, -2.0):
        v = jnp.full(3, speed)
        found = jax.jit(lambda v: stops.resistance(model, q, v, jnp.zeros(())))(v)
        slope = jax.jit(jax.jacfwd(force_of, argnums=3))(stops, model, q, v)
        close(found.damping, -jnp.diagonal(slope))
        assert np.all(found.damping >= 0.0)
        assert np.all(found.stiffness >= 0.0)


def test_derived_numbers_are_those_of_inertia_and_effort(model):
    """The arm's effort limit asks for more than its inertia; the slide has none and takes 100 ms; the link has no limits."""
    inertia = np.diagonal(jax.jit(mass_matrix)(model, jnp.array([0.5 * (LOWER + UPPER), 0.0, 0.0])))
    stops = JointLimits.of(model, time_constant=0.1)
    assert inertia[0] / 0.1**2 < 40.0 / 0.01
    close(stops.width, [0.01, 0.01, 1.0])
    close(stops.stiffness, [40.0 / 0.01, inertia[1] / 0.1**2, 0.0], scale=1e3)
    close(stops.damping, 0.2 * stops.stiffness, scale=1e3)


@pytest.fixture(scope="module")
def pendulum():
    """The arm alone."""
    builder = MechanismBuilder("pendulum")
    arm = {"mass": 4.0, "com": (0, 0, -0.5), "inertia": (0.1, 0.1, 0.01)}
    builder.add_body("arm", joint=Revolute((0, 1, 0)), position_limits=(LOWER, UPPER), effort_limit=40.0, **arm)
    return builder.build()


def stop(stiffness, damping, width):
    return JointLimits([stiffness], [damping], [width])


@jax.jit
def thrown(system, start, speed, step=STEP):
    """Coordinate, speed and energy after each of 500 steps, and the work."""
    run = rollout(
        system,
        State(jnp.asarray(start, float)[None], jnp.asarray(speed, float)[None]),
        dt=step,
        steps=500,
        save=lambda t, s, u: (s.q[0], s.v[0], total_energy(system, s)),
        cost=work_of_step(system),
    )
    return *run.saved, run.cost


@pytest.mark.parametrize("speed", [-6.0, 6.0])
def test_a_pendulum_thrown_at_its_limit_stays_within_the_stated_margin_and_loses_energy(pendulum, speed):
    """At most u T/2 + width beyond, and back with less than a third of its speed; without stops it passes far beyond."""
    derived = JointLimits.of(pendulum)
    q, v, energy, _ = thrown(System(pendulum, (derived,)), 0.0, speed)
    beyond = np.maximum(q - UPPER, LOWER - q)
    at_limit = np.argmax(beyond > 0.0)
    assert 0.0 < np.max(beyond) < abs(v[at_limit]) * 0.01 / 2.0 + 0.01
    without = stop(0.0, 0.0, 1.0)
    assert np.max(np.abs(thrown(System(pendulum, (without,)), 0.0, speed)[0])) > 1.5
    back = at_limit + np.argmax(beyond[at_limit:] < 0.0)
    assert abs(v[back]) < abs(v[at_limit]) / 3.0
    assert energy[-1] < energy[0]


def test_power_balance_counts_what_a_stop_stores_once(pendulum):
    """At the end the pendulum is as deep as it gets, and most of its kinetic energy is stored."""
    system = System(pendulum, (stop(2e4, 20.0, 1e-3),))
    q, _, energy, work = thrown(system, UPPER, 4.0, 2e-5)
    storage = stored(system.forces[0], pendulum, q[-1:])
    assert storage > 0.5 * (energy[0] - energy[-1] + storage)
    assert -work > 0.05 * storage
    assert abs(power_balance_error(energy, work)) < 1e-2 * storage


def test_default_integrator_takes_stops_that_explicit_ones_do_not_take_at_its_step(pendulum):
    hard = System(pendulum, (stop(1e7, 1e5, 1e-3),))
    state = State(jnp.array([UPPER - 0.01]), jnp.array([3.0]))

    def highest(integrator):
        run = jax.jit(lambda: rollout(hard, state, dt=STEP, steps=50, integrator=integrator))()
        return int(run.result), float(jnp.max(run.saved.q))

    result, found = highest(SemiImplicitEuler())
    assert result == 0
    assert UPPER < found < UPPER + 5e-3
    result, found = highest(SemiImplicitEuler(damping="explicit"))
    assert result != 0 or found > UPPER + 0.1


def test_lanes_agree_with_xla_and_gradients_by_stiffness_and_limit_are_difference_quotients(pendulum):
    def reached(numbers, backend: Backend = "xla"):
        stiffness, upper = numbers
        model = eqx.tree_at(lambda m: m.limits.upper, pendulum, upper[None])
        system = System(model, (JointLimits(stiffness[None], jnp.array([40.0]), jnp.array([0.01])),))
        state = State(jnp.array([UPPER - 0.02]), jnp.array([2.0]))
        return rollout(system, state, dt=STEP, steps=40, save_every=40, backend=backend).final.q[0]

    batch = jnp.array([[2e3, UPPER], [1e4, UPPER + 0.01]])
    plain, (values, slopes) = jax.jit(
        lambda x: (jax.vmap(lambda n: reached(n, "lanes"))(x), jax.vmap(jax.value_and_grad(reached))(x))
    )(batch)
    close(plain, values)
    over_batch = jax.jit(jax.vmap(reached))
    for k, step in enumerate((1.0, 1e-5)):
        ends = [over_batch(batch.at[:, k].add(sign * step)) for sign in (1.0, -1.0)]
        np.testing.assert_allclose(slopes[:, k], (ends[0] - ends[1]) / (2.0 * step), rtol=1e-3)


def test_a_load_rests_at_the_stated_depth_beyond_the_width_and_within_it_where_the_effective_depth_carries_it():
    builder = MechanismBuilder("slide", gravity=(0, 0, 0))
    builder.add_body("slide", joint=Prismatic((0, 0, 1)), mass=2.0, position_limits=(-1.0, UPPER))
    model = builder.build()
    stops = JointLimits.of(model)
    system, stiffness, width = System(model, (stops,)), float(stops.stiffness[0]), float(stops.width[0])
    loads = stiffness * width * jnp.array([0.01, 0.2, 0.49, 0.51, 2.0])

    def rest(load):
        start = system.at_rest(jnp.full(1, UPPER))
        return rollout(system, start, lambda t, state, key: load[None], dt=2e-3, steps=4000, save_every=4000).final.q[0]

    depth = np.asarray(jax.jit(jax.vmap(rest))(loads)) - UPPER
    shift = np.asarray(loads) / stiffness
    np.testing.assert_allclose(depth[3:], shift[3:] + width / 2, rtol=1e-6)
    assert np.all(depth[:3] < width)
    assert np.all(depth[:3] < shift[:3] + width / 2)
    z = depth[:3] / width
    np.testing.assert_allclose(width * (z**3 - 0.5 * z**4), shift[:3], rtol=1e-2)


def test_a_drive_at_its_effort_limit_presses_its_joint_by_less_than_one_and_a_half_width(pendulum):
    system, press = System(pendulum, (JointLimits.of(pendulum),)), jnp.full((500, 1), 40.0)
    run = jax.jit(lambda: rollout(system, State(jnp.zeros(1), jnp.zeros(1)), press, dt=STEP, steps=500))()
    assert UPPER < float(run.final.q[0]) < UPPER + 0.015
    assert abs(float(run.final.v[0])) < 0.01


@pytest.mark.parametrize(
    ("stops", "message"),
    [
        (JointLimits([1.0], [1.0] * 3, [1.0] * 3), r"stiffness has shape \(1,\); give 3 values"),
        (JointLimits([-1.0] * 3, [1.0] * 3, [1.0] * 3), "stiffness is .*; give values that are not negative"),
        (JointLimits([1.0] * 3, [1.0] * 3, [0.0] * 3), "width is .*; give values that are positive"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(model, stops, message):
    with pytest.raises(MechanismError, match=message):
        System(model, (stops,))


def test_limits_of_a_planar_joint_are_refused_with_a_remedy():
    builder = MechanismBuilder("puck")
    planar = Planar((0, 0, 1), (1, 0, 0))
    builder.add_body("puck", joint=planar, mass=1.0, inertia=(1, 1, 1), position_limits=(-1.0, 1.0))
    model = builder.build()
    with pytest.raises(MechanismError, match=r"planar joint 'puck_joint' has limits.*several joints"):
        System(model, (JointLimits([1.0] * 3, [1.0] * 3, [1.0] * 3),))


def same_forces(actual, expected):
    assert jax.tree.structure(actual.forces) == jax.tree.structure(expected.forces)
    for a, b in zip(jax.tree.leaves(actual.forces), jax.tree.leaves(expected.forces), strict=True):
        np.testing.assert_array_equal(a, b)


def test_files_give_every_number_back_and_urdf_refuses(model, stops, tmp_path):
    system = System(model, (stops,))
    save_mechanism(system, tmp_path / "limited.toml")
    save_archive(system, tmp_path / "limited")
    same_forces(load_mechanism(tmp_path / "limited.toml"), system)
    same_forces(load_archive(tmp_path / "limited"), system)
    same_forces(load_system(tmp_path / "limited.toml", limits="enforced"), system)  # its own are kept
    with pytest.raises(ConfigError, match="a force of class JointLimits cannot be written as URDF"):
        save_urdf(system, tmp_path / "limited.urdf")


def test_one_argument_of_the_readers_or_an_empty_table_enforces_limits(model, tmp_path):
    derived = System(model, (JointLimits.of(model),))
    save_urdf(System(model), tmp_path / "limited.urdf")
    save_mechanism(System(model), tmp_path / "limited.toml")
    assert load_urdf(tmp_path / "limited.urdf").forces == ()
    same_forces(load_urdf(tmp_path / "limited.urdf", limits="enforced"), derived)
    same_forces(load_system(tmp_path / "limited.toml", limits="enforced"), derived)
    text = (tmp_path / "limited.toml").read_text()
    (tmp_path / "limited.toml").write_text(
        text + '\n[joint_limits]\nwidth = {arm_joint = "3 deg", slide_joint = "2 mm"}\n'
    )
    (read,) = load_mechanism(tmp_path / "limited.toml").forces
    close(read.width, [math.radians(3.0), 0.002, 1.0])
    close(read.stiffness, derived.forces[0].stiffness, scale=1e4)
    with pytest.raises(UnknownName, match="no option limits 'hard'; use one of data, enforced"):
        check_limits("hard", "robot.urdf")


def test_summary_says_what_becomes_of_limits(model, stops):
    assert "limits       2, data only" in System(model).summary()
    assert "limits       2, enforced" in System(model, (stops,)).summary()


def test_mjcf_and_the_job_rollout_enforce_limits_with_one_argument_each(pendulum, tmp_path):
    (tmp_path / "hinge.xml").write_text(
        '<mujoco><worldbody><body><joint axis="0 1 0" range="-30 40"/><geom size="0.1" pos="0 0 -1"/></body></worldbody></mujoco>'
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IgnoredContent)
        assert load_mjcf(tmp_path / "hinge.xml").forces == ()
        (read,) = load_mjcf(tmp_path / "hinge.xml", limits="enforced").forces
    assert isinstance(read, JointLimits)
    save_mechanism(System(pendulum), tmp_path / "pendulum.toml")
    text = f'mechanism = "{tmp_path / "pendulum.toml"}"\nbatch = 1\nlimits = "enforced"\n[time]\nduration = 0.1\nrate = 1000\n'
    (tmp_path / "rollout.toml").write_text(text)
    config = read_config(tmp_path / "rollout.toml", RolloutConfig)
    (enforced,) = _machine(config)[0].forces
    assert isinstance(enforced, JointLimits)


def test_stops_keep_single_precision(pendulum):
    single = as_dtype(System(pendulum, (JointLimits.of(pendulum),)), jnp.float32)
    state = State(jnp.full(1, UPPER + 0.004, jnp.float32), jnp.ones(1, jnp.float32))
    assert applied_forces(single, state).dtype == jnp.float32
