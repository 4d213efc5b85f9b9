"""Locked joints: the reduced mechanism moves as the whole one whose joints are at rest there."""

import dataclasses
import tomllib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_trees import close, geared, random_model, random_motion

import jaxdyn
from jaxdyn import Spring, State, System, UnknownName, mechanism
from jaxdyn.constraints import constraint_errors
from jaxdyn.dynamics import Actuator, Actuators, GroundContact, contact_sphere
from jaxdyn.io import ConfigError, load_system, lock_joints, save_system
from jaxdyn.io.mechanism.parts import read_parts
from jaxdyn.io.tables import Place

NAMES = [f"body {i}_joint" for i in range(6)]


def kept(model, bodies) -> tuple[np.ndarray, np.ndarray]:
    """Which coordinates and which velocities stay."""
    topology = model.topology
    return tuple(~np.isin(x, bodies) for x in (topology.body_of_coordinate, topology.body_of_column))


def positions(model, q, bodies):
    return {NAMES[body]: q[model.topology.body_of_coordinate == body] for body in bodies}


def test_a_locked_mechanism_moves_as_the_whole_one_at_rest_there():
    bodies = (0, 3)  # the base, and a spherical joint
    rng = np.random.default_rng(4)
    tree = random_model(rng, 6, parents=[-1, 0, 1, 2, 3, 0], kinds="FRPSRR", armature=True)
    model = geared(tree, (0, 1), (3, 4), (2, 5), (-1, 2))
    of_q, of_v = kept(model, bodies)
    q, v, a = random_motion(rng, model)
    names = "body 0", "body 3", "body 4"

    def mechanics(model, q, v, a):
        frames = [jaxdyn.frame_placement(model, q, name) for name in names]
        placed = jnp.stack([jnp.concatenate([x.rotation.ravel(), x.translation]) for x in frames])
        return jaxdyn.mass_matrix(model, q), jaxdyn.inverse_dynamics(model, q, v, a), placed

    @jax.jit
    def both(model, q, v, a):
        def reduced(q):
            return mechanics(mechanism.lock_joints(model, positions(model, q, bodies)), q[of_q], v[of_v], a[of_v])

        rate = jaxdyn.configuration.coordinate_rate(model, q, v)  # of the locked positions, too
        still = [jnp.where(of_v, x, 0.0) for x in (v, a)]
        whole = jax.jvp(lambda q: mechanics(model, q, *still), (q,), (rate,))
        return jax.jvp(reduced, (q,), (rate,)), whole

    for reduced, (matrix, force, placed) in zip(*both(model, q, v, a), strict=True):  # values, and their derivatives
        close(reduced[0], matrix[np.ix_(of_v, of_v)], scale=10.0)
        close(reduced[1], force[of_v], scale=100.0)
        close(reduced[2], placed, scale=10.0)


def test_locked_joints_without_coordinates_add_no_length_to_an_actuator():
    """The velocities of a free, a spherical and a planar joint are not rates of coordinates."""
    model = random_model(np.random.default_rng(5), 4, parents=[-1, 0, 1, 2], kinds="FSLR")
    arms = {NAMES[body]: (1.0, 2.0, 3.0) for body in (1, 2)} | {NAMES[0]: (1.0,), NAMES[3]: (2.0,)}
    whole = System(model, drives=Actuators.of(model, (Actuator("servo", arms, stiffness=4.0, damping=1.0),)))
    (of_q, of_v), (q, v, _) = kept(model, (0, 1, 2)), random_motion(np.random.default_rng(6), model)
    reduced, u = lock_joints(whole, positions(model, q, (0, 1, 2))), jnp.array([0.7])
    expected = jaxdyn.applied_forces(whole, State(q, jnp.where(of_v, v, 0.0)), u)[of_v]
    close(jaxdyn.applied_forces(reduced, State(q[of_q], v[of_v]), u), expected)


def system() -> System:
    model = random_model(np.random.default_rng(5), 4, parents=[-1, 0, 1, 1], kinds="RRPR", armature=True)
    ones, points = jnp.ones(4), jnp.array([[0.1, 0.2, 0.3], [-0.2, 0.4, 0.1]])
    forces = (
        jaxdyn.JointFriction(0.2 * ones, 0.5 * ones, ones),
        jaxdyn.Spring(1, points[0], 2, points[1], 20.0, 0.3),
        jaxdyn.AppliedForce(1, points[0], jnp.array([1.0, 2.0, 3.0]), jnp.array([0.3, 0.2, 0.1]), True),
        GroundContact.of(model, contact_sphere("body 1", radius=0.5, center=(0.1, 0.0, 0.2))),
    )
    rod = jaxdyn.Distance("rod", 1, points[1], 3, points[0], 0.7)
    return System(model, forces, jaxdyn.JointDrives((3, 1, 0), jnp.array([2.0, 3.0, 4.0])), constraints=(rod,))


def test_forces_drives_and_loops_stay_where_they_are(tmp_path):
    whole = system()
    model, state = whole.model, State(jnp.array([0.3, -0.5, 0.2, 0.4]), jnp.array([0.5, 0.0, -0.4, 0.7]))
    of_q, of_v = kept(model, (1,))
    reduced = lock_joints(whole, positions(model, state.q, (1,)))
    there = State(state.q[of_q], state.v[of_v])
    expected = jaxdyn.applied_forces(whole, state, jnp.array([0.2, 0.0, -0.3]))[of_v]
    close(jaxdyn.applied_forces(reduced, there, jnp.array([0.2, -0.3])), expected, scale=100.0)
    for one, other in zip(constraint_errors(reduced, there), constraint_errors(whole, state), strict=True):
        close(one, other)
    save_system(whole, tmp_path / "whole.toml")
    read = load_system(tmp_path / "whole.toml", lock={NAMES[1]: -0.5}, limits="enforced")
    assert read.model.topology == reduced.model.topology
    assert len(read.forces) == 1 + len(reduced.forces)  # the limits of the joints that are left
    close(read.model.inertia, reduced.model.inertia)


def test_actuators_keep_their_tendons_and_bodies():
    model, state = system().model, State(jnp.array([0.3, -0.5, 0.2, 0.4]), jnp.array([0.5, 0.0, -0.4, 0.7]))
    actuators = (
        Actuator("tendon", {NAMES[1]: (0.5,), NAMES[3]: (2.0,)}, gain=3.0, stiffness=4.0, damping=0.3),
        Actuator("gone", {NAMES[1]: (1.0,)}),
        Actuator("thruster", body="body 1", point=(0.1, 0.2, 0.3), force=(1.0, 0.5, 0.0), torque=(0.0, 0.0, 0.2)),
        Actuator.position_servo(NAMES[2], 5.0, 0.1, force_range=(-0.5, 0.5)),
    )
    whole = System(model, drives=Actuators.of(model, actuators, {NAMES[3]: (-9.0, 9.0)}))
    of_q, of_v = kept(model, (1,))
    reduced = lock_joints(whole, positions(model, state.q, (1,)))
    u, controls = jnp.array([0.7, 0.0, -0.4, 0.9]), np.array([0, 2, 3])
    there = State(state.q[of_q], state.v[of_v])
    close(jaxdyn.applied_forces(reduced, there, u[controls]), jaxdyn.applied_forces(whole, state, u)[of_v])
    assert reduced.drives.control_names(reduced.model) == ("tendon", "thruster", NAMES[2])
    brake = System(model, drives=Actuators.of(model, [dataclasses.replace(actuators[0], controlled_stiffness=1.0)]))
    with pytest.raises(ConfigError, match=f"'tendon': its stiffness depends on the control, and joint '{NAMES[1]}'"):
        lock_joints(brake, positions(model, state.q, (1,)))


@pytest.mark.usefixtures("as_a_user")
def test_what_cannot_be_locked_is_named():
    gear = jaxdyn.Coupling("gear", 2, 1, jnp.array([0.0, 0.4]))
    whole = System(system().model, constraints=(gear,))
    with pytest.raises(ConfigError, match=NAMES[1]):
        lock_joints(whole, {NAMES[1]: 0.3})
    with pytest.raises(UnknownName, match="body 1_joint"):
        mechanism.lock_joints(whole.model, {"body 1": 0.3})
    with pytest.raises(jaxdyn.MechanismError, match="1 coordinates"):
        mechanism.lock_joints(whole.model, {NAMES[1]: [0.3, 0.2]})
    with pytest.raises(jaxdyn.MechanismError, match="all joints"):
        mechanism.lock_joints(whole.model, {NAMES[body]: 0.0 for body in range(4)})


def test_an_unphysical_inertia_is_repaired_on_request():
    given = {"joint": jaxdyn.Revolute((0, 0, 1)), "mass": 2.0, "inertia": (1.0, 1.0, 3.0)}
    builder = jaxdyn.MechanismBuilder()
    with pytest.raises(jaxdyn.MechanismError, match="triangle"):
        builder.add_body("disc", **given)
    builder.add_body("disc", unphysical="repair", **given)
    # The second moments 3/2, 3/2 and -1/2 become 3/2, 3/2 and 0.
    np.testing.assert_allclose(builder.build().inertia[0], [1.5, 1.5, 3.0, 0.0, 0.0, 0.0], atol=1e-12)


TABLES = f"""
tendon = [
    {{joints = {{"{NAMES[1]}" = 0.5, "{NAMES[3]}" = 2}}, stiffness = 3, damping = 1, friction = 0.2, rest = [0, 0.1]}},
    {{joints = {{"{NAMES[1]}" = 0.5}}, stiffness = 3}},
]
gravity_compensation = [{{body = "body 0", share = 0.7}}, {{body = "body 1", share = 0.4}}, {{body = "body 3", share = 1}}]
box_drag = [{{body = "body 1", center = [0, 0.2, 0.3], edges = [[1, 0, 0], [0, 4, 0], [0, 0, 2]], density = 3, viscosity = 1}}]
ellipsoid_drag = [{{body = "body 1", center = [0, 0.2, 0], edges = [[1, 0, 0], [0, 4, 0], [0, 0, 2]], density = 3, viscosity = 1}}]
spring = [{{body_a = "body 0", point_a = [0, 0, 1], body_b = "body 1", point_b = [0, 0, 0], stiffness = 3, free_length = 0.4}}]
ground_contact = [{{points = [{{body = "body 0", radius = 3}}, {{body = "body 2", radius = 3}}]}}]
coupling = [{{name = "gear", driven = "{NAMES[0]}", driver = "{NAMES[1]}", coefficients = [0, -0.6]}}]
rod = [{{name = "rod", body_a = "body 1", point_a = [0, 0, 1], body_b = "body 3", point_b = [0, 0, 0], length = 1}}]
"""


@pytest.mark.parametrize("bodies", [(1,), (0, 1)])
def test_tendons_and_weights_stay_and_what_no_longer_moves_is_gone(bodies):
    model = system().model
    forces, constraints = read_parts(model, tomllib.loads(TABLES), Place(Path("tables")))
    lag = Actuator("lag", {NAMES[1]: (0.5,), NAMES[2]: (2.0,)}, gain=3.0, stiffness=4.0, time_constant=0.1)
    drives = Actuators.of(model, (lag, Actuator("thruster", body="body 0", force=(1.0, 0.5, 0.0))))
    whole = System(model, forces, drives, constraints=constraints if len(bodies) > 1 else constraints[:1])
    q, v, z = jnp.array([0.3, -0.5, 0.2, 0.4]), jnp.array([0.5, 0.6, -0.4, 0.7]), jnp.array([0.7])
    (of_q, of_v), u = kept(model, bodies), jnp.array([0.2, 0.9])
    reduced = lock_joints(whole, positions(model, q, bodies))
    expected = jaxdyn.applied_forces(whole, State(q, jnp.where(of_v, v, 0.0), z), u)[of_v]
    close(jaxdyn.applied_forces(reduced, State(q[of_q], v[of_v], z), u[: reduced.nu]), expected, scale=100.0)
    assert reduced.drives.names == ("lag", "thruster")[: 3 - len(bodies)]
    assert [one.name for one in reduced.constraints] == ["rod"]
    assert not any(isinstance(force, Spring) for force in reduced.forces)
    if len(bodies) > 1:
        with pytest.raises(ConfigError, match=r"constraint 'gear' is violated by 0\.01 at"):
            lock_joints(whole, {NAMES[0]: 0.31, NAMES[1]: -0.5})
