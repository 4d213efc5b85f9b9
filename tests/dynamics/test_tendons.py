"""Tendons: springs, dampers, dry friction and actuators along joints and lines, against closed forms and other forces."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import Damper, Spring, State, System
from jaxdyn.dynamics import Actuator, Actuators, Tendon, Waypoint, joint_reactions, kinematics
from jaxdyn.dynamics.equations_of_motion import acceleration_over_step, total_potential_energy
from jaxdyn.dynamics.paths import length_around
from jaxdyn.io import ConfigError, load_system, lock_joints, save_system
from jaxdyn.mechanism.model import as_dtype

MODEL = jaxdyn.library.double_pendulum()
CABLE = (
    Waypoint("ground", (0.3, 0.4, 0.2)),
    Waypoint("upper", (0.05, 0.0, -0.3), radius=0.08, axis=(0.1, 1.0, 0.2)),
    Waypoint("upper", (-0.1, 0.1, -0.45)),
    Waypoint("tip", (0.0, 0.1, -0.2)),
    Waypoint("lower", (0.1, 0.0, 0.1), factor=0.5),
    Waypoint("upper", (0.0, 0.0, -0.2), radius=0.05, side=(0.2, 0.1, -0.2)),
    Waypoint("ground", (-0.2, 0.2, -0.1)),
)
BELT = {"shoulder": (1.0,), "elbow": (-2.0,)}
TENDONS = (
    Tendon.of(MODEL, path=CABLE, stiffness=90.0, damping=1.5, rest=(0.2, 0.6), friction=0.7, velocity_scale=0.5),
    Tendon.of(MODEL, BELT, stiffness=20.0, damping=0.3, rest=(-0.1, 0.1)),
)
WINCH = Actuator("winch", path=CABLE, gain=-3.0, stiffness=4.0, damping=0.2)
SYSTEM = System(MODEL, TENDONS, Actuators.of(MODEL, [WINCH, Actuator("belt", BELT)]))


def draw(count, seed=0):
    rng = np.random.default_rng(seed)
    return State(*(jnp.array(rng.normal(size=(count, 2))) for _ in range(2))), jnp.array(rng.normal(size=(count, 2)))


def lengths(q):
    placed = kinematics.placements(MODEL, q)
    return jnp.stack([tendon.path.length(MODEL, q, placed) for tendon in TENDONS])


def test_forces_are_those_of_the_potential_and_dissipate_the_power_of_dampers_and_friction():
    """tau . v = - dV/dt - sum of b rate^2 + c tanh(rate / s) rate, + f rate of the actuators, with rates by autodiff."""

    @jax.jit
    @jax.vmap
    def both(state, u):
        (length, slack), (rate, rate_of_belt) = jax.jvp(lengths, (state.q,), (state.v,))
        rising = jax.jvp(lambda q: total_potential_energy(SYSTEM, State(q, state.v)), (state.q,), (state.v,))[1]
        weight = jaxdyn.gravity_force(MODEL, state.q) @ state.v
        lost = 1.5 * rate**2 + 0.7 * jnp.tanh(rate / 0.5) * rate + 0.3 * rate_of_belt**2
        driven = (-3.0 * u[0] - 4.0 * length - 0.2 * rate) * rate + u[1] * rate_of_belt
        return jaxdyn.applied_forces(SYSTEM, state, u) @ state.v, driven - lost - rising - weight, slack

    found, expected, _ = both(*draw(50))
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_derivatives_of_accelerations_are_those_of_difference_quotients():
    states, u = draw(8, 3)
    tangents = jax.tree.map(jnp.ones_like, eqx.filter(SYSTEM.forces, eqx.is_inexact_array))

    @jax.jit
    def along(h):
        def one(q, v, u):
            forces = jax.tree.map(lambda x, dx: x + h * dx, SYSTEM.forces, tangents)
            return jaxdyn.acceleration(SYSTEM.changed(forces=forces), State(q + h, v - h), u)

        return jax.vmap(one)(states.q, states.v, u)

    _, slope = jax.jvp(along, (jnp.zeros(()),), (jnp.ones(()),))
    np.testing.assert_allclose(slope, (along(1e-6) - along(-1e-6)) / 2e-6, rtol=2e-6, atol=1e-4)


A, B = ("upper", (0.1, 0.1, -0.2)), ("tip", (0.0, 0.2, 0.1))
ENDS, LINE = (*MODEL.locate(*A), *MODEL.locate(*B)), (Waypoint(*A), Waypoint(*B))


def test_a_tendon_and_a_cylinder_between_two_points_are_a_spring_and_a_damper():
    """Accelerations, and loads of the joints, to which lines past several joints do not belong."""
    wanted = System(MODEL, (Spring(*ENDS, 2e4, 0.05), Damper(*ENDS, 30.0)))
    passive = System(MODEL, (Tendon.of(MODEL, path=LINE, stiffness=2e4, damping=30.0, rest=(0.05, 0.05)),))
    cylinder = Actuator("cylinder", path=LINE, stiffness=2e4, damping=30.0, offset=1e3)
    driven = System(MODEL, drives=Actuators.of(MODEL, [cylinder]))
    (states, _), none = draw(6, 4), jnp.zeros(1)

    def of(system, u):
        @jax.jit
        @jax.vmap
        def all_of(state):
            return jaxdyn.acceleration(system, state, u), joint_reactions(system, state, u)

        return all_of(states)

    expected = of(wanted, None)
    for system, u in ((passive, None), (driven, none)):
        found = of(system, u)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-8), found, expected)


@pytest.mark.parametrize("moving", [False, True])
def test_a_step_is_that_of_a_spring_at_rest_and_of_a_damper_in_motion(moving):
    """A tendon leaves out the acceleration across a spring that turns, which is of second order in the step."""
    force = Damper(*ENDS, 300.0) if moving else Spring(*ENDS, 2e4, 0.1)
    law = {"damping": 300.0} if moving else {"stiffness": 2e4, "rest": (0.1, 0.1)}
    systems = [System(MODEL, (part,)) for part in (force, Tendon.of(MODEL, path=LINE, **law))]
    state = State(jnp.array([0.4, 0.9]), jnp.array([3.0, -2.0]) if moving else jnp.zeros(2))
    expected, found = (acceleration_over_step(system, state, None, 0.0, 0.02) for system in systems)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_steps_of_a_stiff_cable_dissipate_the_energy_of_its_stretch():
    line = (Waypoint("ground", (0.5, 0.0, 0.0)), Waypoint("upper", (0.0, 0.1, -0.5)), Waypoint("tip"))
    start = State(jnp.array([0.4, 0.5]), jnp.zeros(2))
    length = Tendon.of(MODEL, path=line).path.length(MODEL, start.q, kinematics.placements(MODEL, start.q))
    cable = Tendon.of(MODEL, path=line, stiffness=1e8, damping=1.0, friction=5.0, rest=(0.0, 0.999 * float(length)))
    system = System(MODEL, (cable,))
    run = jaxdyn.rollout(system, start, dt=1e-3, steps=500)
    energies = jax.vmap(lambda q, v: jaxdyn.total_energy(system, State(q, v)))(run.saved.q, run.saved.v)
    assert energies[0] > 100.0
    assert np.max(np.diff(energies)) < 1e-6 * energies[0]


def test_lengths_around_obstacles_have_unit_gradients_and_known_values():
    r, along = jnp.asarray(0.5), jnp.array([0.0, 0.0, 1.0])
    left, right = jnp.array([-1.0, 0.0, 0.0]), jnp.array([1.0, 0.0, 0.4])
    tangents, arc = 2 * np.sqrt(0.75), np.pi - 2 * np.arccos(0.5)
    expected = np.hypot(tangents + 0.5 * arc, 0.4)
    np.testing.assert_allclose(length_around(left, right, r, along), expected, rtol=1e-15)
    beside = jnp.array([0.0, -2.0, 0.0])
    up = jnp.array([0.0, 0.9, 0.0])
    np.testing.assert_allclose(length_around(left + up, right + up, r, along), np.hypot(2.0, 0.4), rtol=1e-15)
    wide = length_around(left + up, right + up, r, along, beside)
    assert wide > 3.0
    rng = np.random.default_rng(2)
    points = jnp.array(rng.normal(size=(200, 3, 3)))

    @jax.jit
    @jax.vmap
    def slopes(x):
        of = jax.grad(lambda start, axis: length_around(start, x[1], r, axis, x[2]))
        return of(x[0], along), jax.grad(lambda start: length_around(start, x[1], r, None, x[2]))(x[0])

    np.testing.assert_allclose(jnp.linalg.norm(jnp.stack(slopes(points)), axis=-1), 1.0, rtol=1e-12)
    inside = jax.grad(lambda start: length_around(start, right, r, along))(jnp.zeros(3))
    np.testing.assert_allclose(jnp.linalg.norm(inside), 1.0, rtol=1e-12)


@pytest.mark.parametrize("ending", ["toml", "json"])
def test_a_system_keeps_its_tendons_in_files(tmp_path, ending):
    save_system(SYSTEM, tmp_path / f"m.{ending}")
    found = load_system(tmp_path / f"m.{ending}")
    for part, wanted in ((found.forces, SYSTEM.forces), (found.drives, SYSTEM.drives)):
        assert jax.tree.structure(part) == jax.tree.structure(wanted)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-14, atol=1e-14), part, wanted)


def test_tendons_follow_a_locked_joint():
    cables = SYSTEM.changed(forces=TENDONS[:1], drives=None)
    locked = lock_joints(cables, {"elbow": 0.3})
    q = jnp.array([0.2, 0.3])
    np.testing.assert_allclose(
        total_potential_energy(locked, locked.at_rest(q[:1])),
        total_potential_energy(cables, cables.at_rest(q)),
        rtol=1e-12,
    )


FILE = """
name = "m"
source = "invented"
[[tendon]]
stiffness = 5.0
path = [{body = "leg"}, {body = "ground", point = [0, 0, 1], radius = 0.1}, {body = "ground", point = [0, 0, 2]}]
[[body]]
name = "leg"
joint = {kind = "revolute", axis = [0, 1, 0], name = "hip"}
mass = 1.0
inertia = [1, 1, 1]
"""


@pytest.mark.parametrize(
    ("old", "new", "fragment"),
    [
        ('body = "leg"}', 'body = "log"}', "there is no body or frame 'log'"),
        (
            ', {body = "ground", point = [0, 0, 2]}',
            "",
            "a line needs two points, and an obstacle a point before and after",
        ),
        ('{body = "leg"}, ', "", "a line needs two points, and an obstacle a point before and after"),
        (
            "radius = 0.1",
            "radius = 0.1, factor = 2.0",
            "a line needs two points, and an obstacle a point before and after",
        ),
        (
            "radius = 0.1",
            "radius = 0.1, side = [0, 0, 1.05]",
            "side is inside; lines inside of obstacles are not supported",
        ),
        ("radius = 0.1", "axis = [0, 1, 0]", "a point has no axis and no side; give a radius"),
        ("stiffness = 5.0", "rest = [2.0, 1.0]", "rest is [2, 1]; give the smaller length first"),
        ("stiffness = 5.0", "joints = {hop = 1.0}", "there is no joint 'hop' (did you mean 'hip'?)"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_the_remedy(tmp_path, refusal, old, new, fragment):
    assert old in FILE
    (tmp_path / "m.toml").write_text(FILE.replace(old, new, 1))
    assert fragment in refusal((ConfigError, jaxdyn.MechanismError), load_system, tmp_path / "m.toml")


def test_a_changed_copy_is_checked_as_a_new_tendon():
    model = jaxdyn.library.double_pendulum()
    tendon = Tendon.of(model, {"shoulder": (1.0,)}, stiffness=1.0)
    for rest, fragment in (([2.0, 1.0], "smaller length first"), ([1.0], "smallest and the largest length")):
        with pytest.raises(jaxdyn.MechanismError, match=fragment):
            System(model, (dataclasses.replace(tendon, rest=jnp.asarray(rest)),))


@pytest.mark.parametrize(
    ("joint", "fragment"),
    [
        (
            'kind = "revolute", axis = [0, 1, 0], motion = {kind = "constant_rate", rate = 1.0}',
            "the motion of joint 'hip' is prescribed; leave the joint out",
        ),
        ('kind = "spherical"', "joint 'hip' has no coordinates with these rates; give a path of waypoints"),
    ],
)
def test_joints_whose_coordinates_would_be_missing_in_the_length_are_refused(tmp_path, refusal, joint, fragment):
    text = FILE.replace('kind = "revolute", axis = [0, 1, 0]', joint).replace("path", "joints = {hip = 1.0}\npath", 1)
    (tmp_path / "m.toml").write_text(text)
    assert fragment in refusal(ConfigError, load_system, tmp_path / "m.toml")


@pytest.mark.parametrize("part", [(0, 0, 99, -1, -1, -1), (0, -1, 1, -1, -1, -1), (7, 0, 1, -1, -1, -1), (0, 0, 1)])
def test_parts_between_points_that_do_not_exist_are_refused(part):
    """As in a damaged file: such indices would be clipped in silence."""
    path = TENDONS[0].path
    broken = dataclasses.replace(TENDONS[0], path=dataclasses.replace(path, parts=(part, *path.parts[1:])))
    with pytest.raises(jaxdyn.MechanismError, match=r"no such line or point; make the path by Path\.of"):
        System(MODEL, (broken,))


def test_paths_that_belong_to_no_control_are_refused():
    with pytest.raises(jaxdyn.MechanismError, match=r"do not belong to its controls; make it by Actuators\.of"):
        System(MODEL, drives=dataclasses.replace(SYSTEM.drives, pulling=(2,)))


def test_single_precision_is_kept():
    single, state = as_dtype((SYSTEM, State(jnp.ones(2), jnp.ones(2))), jnp.float32)
    found = jax.eval_shape(jaxdyn.acceleration, single, state, jnp.ones(2, jnp.float32))
    assert found.dtype == jnp.float32


def test_a_tendon_without_a_length_is_refused_and_rests_in_the_neutral_configuration():
    with pytest.raises(ValueError, match="it has no length; give joints or a path"):
        Tendon.of(MODEL, stiffness=2.0)
    relaxed = dataclasses.replace(TENDONS[0], rest=Tendon.of(MODEL, path=CABLE).rest)
    np.testing.assert_allclose(jaxdyn.applied_forces(System(MODEL, (relaxed,)), State(jnp.zeros(2), jnp.zeros(2))), 0.0)
