"""Forces in the joints: balance of every single body, ideality, drives, and forces and power of prescribed motions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mixed_mechanisms import driven, every_joint, some_motion
from random_trees import close
from stacked_reactions import stacked

from jaxdyn import (
    AppliedForce,
    Damper,
    JointFriction,
    JointSpring,
    MechanismBuilder,
    Revolute,
    Screw,
    Spring,
    State,
    System,
    acceleration,
    applied_forces,
    configuration,
    driving_forces,
    forward_kinematics,
    inverse_dynamics,
    joint_reactions,
    mass_center_velocities,
    partial_velocities,
    release_joints,
    total_energy,
)
from jaxdyn.dynamics import driving_power, mass_center_accelerations

# Ends of the spring (bodies of different trees) and of the damper (ground), and where the applied force acts.
_SPRING = (2, (0.1, -0.2, 0.3), 5, (0.2, 0.1, 0.0), 40.0, 0.2)
_DAMPER = (-1, (0.3, 0.2, -0.5), 3, (-0.1, 0.1, 0.2), 3.0)
_APPLIED = (6, (0.1, 0.2, -0.1), (3.0, -2.0, 1.0), (0.4, 0.5, -0.6))


def _loaded():
    model = every_joint(armature=True)
    nv, nq = model.nv, model.nq
    friction = JointFriction(jnp.linspace(0.1, 0.5, nv), jnp.linspace(0.2, 0.4, nv), jnp.full(nv, 0.3))
    stiff = JointSpring(jnp.linspace(1.0, 2.0, nv), configuration.random(model, jax.random.key(9), spread=0.2))
    assert stiff.rest.shape == (nq,)
    forces = (Spring(*_SPRING), Damper(*_DAMPER), AppliedForce(*_APPLIED, body_fixed=True), friction, stiff)
    return System(model, forces)


@pytest.fixture(scope="module")
def case():
    """A loaded mechanism in motion, and what the library says about it, as numpy arrays."""
    system = _loaded()
    model = system.model
    state, _, u = some_motion(model, 1)

    @jax.jit
    def all_of_it(system, state, u):
        model = system.model
        a = acceleration(system, state, u)
        return {
            "a": a,
            "placed": forward_kinematics(model, state.q),
            "velocities": mass_center_velocities(model, state.q, state.v),
            "accelerations": mass_center_accelerations(model, state.q, state.v, a),
            "partials": partial_velocities(model, state.q),
            "columns": configuration.motion_columns(model, state.q),
            "reactions": stacked(joint_reactions(system, state, u)),
            "in_joints": applied_forces(System(model, system.forces[3:]), state, u),
        }

    return system, state, jax.tree.map(np.asarray, all_of_it(system, state, u))


def _points(found, body, point):
    """A point of a body and its velocity."""
    if body < 0:
        return np.array(point), np.zeros(3)
    placed, moved = found["placed"], found["velocities"]
    arm = placed.rotation[body] @ (np.array(point) - _COM[body])
    return found["com"][body] + arm, moved.linear[body] + np.cross(moved.angular[body], arm)


_COM = np.asarray(every_joint(armature=True).com)


def _on_bodies(system, found):
    """Forces and moments about the centers of mass of everything that acts on the bodies but gravity and joints, by hand."""
    placed = found["placed"]
    found["com"] = placed.translation + np.einsum("bij,bj->bi", placed.rotation, _COM)
    force, moment = np.zeros((8, 3)), np.zeros((8, 3))

    def add(body, point, f):
        if body >= 0:
            force[body] += f
            moment[body] += np.cross(point - found["com"][body], f)

    for (a, at_a, b, at_b, coefficient, *length), spring in ((_SPRING, True), (_DAMPER, False)):
        (x_a, v_a), (x_b, v_b) = _points(found, a, at_a), _points(found, b, at_b)
        d, size = x_a - x_b, np.linalg.norm(x_a - x_b)
        pull = coefficient * ((size - length[0]) if spring else d @ (v_a - v_b) / size)
        add(a, x_a, -pull * d / size)
        add(b, x_b, pull * d / size)
    body, at, f, couple = _APPLIED
    add(body, _points(found, body, at)[0], placed.rotation[body] @ np.array(f))
    moment[body] += placed.rotation[body] @ np.array(couple)
    return force, moment


def _resultants(system, found, force, moment):
    """Resultant and moment about the center of mass of the forces in a body's own joint and in those that it carries."""
    total, about_com = force.copy(), np.zeros_like(force)
    placed, com = found["placed"], found["com"]
    for i, parent in enumerate(system.model.topology.parents):
        about_com[i] += moment[i] + np.cross(placed.translation[i] - com[i], force[i])
        if parent >= 0:
            total[parent] -= force[i]
            about_com[parent] -= moment[i] + np.cross(placed.translation[i] - com[parent], force[i])
    return total, about_com


def test_newton_and_euler_hold_for_every_single_body(case):  # (M1), (M2)
    system, _, found = case
    model, placed, moved = system.model, found["placed"], found["accelerations"]
    force, moment = _on_bodies(system, found)
    from_joints, about_com = _resultants(system, found, found["reactions"].force, found["reactions"].moment)
    mass, gravity = np.asarray(model.mass), np.asarray(model.gravity)
    np.testing.assert_allclose(mass[:, None] * (moved.linear - gravity), force + from_joints, atol=1e-11)
    for i in range(8):
        xx, yy, zz, xy, xz, yz = np.asarray(model.inertia[i])
        inertia = placed.rotation[i] @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ placed.rotation[i].T
        omega = found["velocities"].angular[i]
        rate = inertia @ moved.angular[i] + np.cross(omega, inertia @ omega)
        np.testing.assert_allclose(rate, moment[i] + about_com[i], atol=1e-11)


def test_drive_is_control_and_forces_in_the_joint_less_the_rotors(case):  # (M5)
    system, _, found = case
    expected = found["in_joints"] - np.asarray(system.model.armature) * found["a"]
    np.testing.assert_allclose(found["reactions"].drive, expected, atol=1e-11)


def test_constraint_reactions_do_no_work_on_the_motion_of_their_joint(case):
    system, _, found = case
    body, r, placed = system.model.topology.body_of_column, found["reactions"], found["placed"]
    moment = np.einsum("bji,bj->bi", placed.rotation, r.constraint_moment)[body]
    force = np.einsum("bji,bj->bi", placed.rotation, r.constraint_force)[body]
    work = np.sum(found["columns"] * np.concatenate([moment, force], axis=1), axis=1)
    np.testing.assert_allclose(work, np.zeros(system.model.nv), atol=1e-12)
    # They are there all the same, but for the free joint, which constrains nothing.
    sizes = np.linalg.norm(np.concatenate([r.constraint_force, r.constraint_moment], axis=1), axis=1)
    np.testing.assert_allclose(sizes[0], 0.0, atol=1e-12)
    assert np.all(sizes[1:] > 0.1)


def test_screw_jack_by_hand():
    pitch, mass, gravity = 0.01, 30.0, 10.0
    builder = MechanismBuilder("jack", (0.0, 0.0, -gravity))
    builder.add_body("nut", joint=Screw((0.0, 0.0, 1.0), pitch), mass=mass, inertia=(0.1, 0.1, 0.2))
    system = System(builder.build())
    state = State(jnp.array([0.7]), jnp.array([0.5]))
    r = stacked(joint_reactions(system, state, a=jnp.zeros(1)))
    close(r.drive, mass * gravity * pitch, scale=10.0)
    close(r.force[0], np.array([0.0, 0.0, mass * gravity]))
    # Nothing turns faster, so the thread takes the torque of the motor and turns it into the force that bears the weight.
    close(r.moment[0], np.zeros(3), scale=10.0)
    close(r.constraint_force, r.force)
    close(r.constraint_moment[0], np.array([0.0, 0.0, -mass * gravity * pitch]), scale=10.0)
    # Released, it runs down: (J + m pitch^2) a = -m g pitch.
    a = -mass * gravity * pitch / (0.2 + mass * pitch**2)
    close(stacked(joint_reactions(system, state)).force[0, 2], mass * (gravity + pitch * a), scale=100.0)


_DRIVEN_DAMPER = (-1, (0.3, 0.2, -0.5), 3, (-0.1, 0.1, 0.2), 3.0)


@pytest.fixture(scope="module")
def prescribed():
    """A mechanism with prescribed motions under load, in motion at a time, and what the library says about it."""
    model = driven()
    friction = JointFriction(jnp.full(model.nv, 0.3), jnp.zeros(model.nv), jnp.ones(model.nv))
    spring = Spring(1, (0.1, 0.2, 0.0), 5, (0.2, 0.1, 0.0), 30.0, 0.2)
    system = System(model, (spring, Damper(*_DRIVEN_DAMPER), friction))
    state, _, u = some_motion(model, 3)
    t = jnp.asarray(0.7)

    @jax.jit
    def all_of_it(system, state, u, t):
        model = system.model.at(t)
        a = acceleration(system, state, u, t)
        free = release_joints(model)
        q, v, full = configuration.to_released(model, state.q, state.v, a)

        def later(h):
            q = configuration.integrate(system.model, state.q, h * state.v)
            return total_energy(system, State(q, state.v + h * a), t + h)

        rest = jnp.zeros_like(state.v)
        return {
            # What every equation needs beyond the forces on the bodies; those in the joints act on the free ones alone.
            "needed": inverse_dynamics(free, q, v, full) - applied_forces(System(free, system.forces[:2]), State(q, v)),
            "in_joints": applied_forces(System(model, system.forces[2:]), state, u),
            "driving": driving_forces(system, state, u, t),
            "power": driving_power(system, state, u, t),
            "reactions": stacked(joint_reactions(system, state, u, t)),
            "rate": jax.jvp(later, (jnp.zeros(()),), (jnp.ones(()),))[1],
            "other": applied_forces(System(system.model, system.forces[1:]), state, u, t) @ state.v,
            "placed": forward_kinematics(model, state.q),
            "moving": mass_center_velocities(model, state.q, state.v),
            "carried": mass_center_velocities(model, state.q, rest),
        }

    return system, all_of_it, (system, state, u, t)


@pytest.mark.thorough
def test_driving_forces_are_the_dropped_equations_of_the_released_mechanism(prescribed):  # (I4)
    _, all_of_it, arguments = prescribed
    found = all_of_it(*arguments)
    columns = {"body 0_joint": slice(0, 1), "body 2_joint": slice(4, 5), "body 4_joint": slice(6, 9)}
    assert found["driving"].keys() == columns.keys()
    for name, force in found["driving"].items():
        close(force, found["needed"][columns[name]], scale=100.0)
    close(found["needed"][np.array([1, 2, 3, 5, 9, 10])], found["in_joints"], scale=100.0)
    # The same from the reactions, where all that acts in a driven joint counts as constraint.
    r, rotation = found["reactions"], found["placed"].rotation
    for body in (0, 2, 4):
        close(r.constraint_force[body], r.force[body], scale=100.0)
        close(r.constraint_moment[body], r.moment[body], scale=100.0)
    close((rotation[0].T @ r.moment[0])[2:], found["driving"]["body 0_joint"], scale=100.0)
    close((rotation[2].T @ r.force[2])[:1], found["driving"]["body 2_joint"], scale=100.0)
    close(rotation[4].T @ r.moment[4], found["driving"]["body 4_joint"], scale=100.0)


def test_driving_power_closes_the_power_balance(prescribed):  # (E19), (G7)
    system, all_of_it, (_, state, u, t) = prescribed
    undamped = eqx.tree_at(lambda s: s.forces[1].coefficient, system, jnp.zeros(()))
    found = all_of_it(undamped, state, u, t)
    close(found["rate"], found["power"] + found["other"], scale=100.0)
    # A damper works on the velocities at v = 0 too, and that is power of no generalized force.
    found = all_of_it(system, state, u, t)
    _, fixed, body, point, coefficient = _DRIVEN_DAMPER
    arm = found["placed"].rotation[body] @ (jnp.asarray(point) - system.model.com[body])
    d = found["placed"].translation[body] + found["placed"].rotation[body] @ jnp.asarray(point) - jnp.asarray(fixed)
    direction = d / jnp.linalg.norm(d)

    def stretching(motion):
        return direction @ (motion.linear[body] + jnp.cross(motion.angular[body], arm))

    on_carried = -coefficient * stretching(found["moving"]) * stretching(found["carried"])
    assert abs(on_carried) > 0.01
    close(found["rate"], found["power"] + found["other"] + on_carried, scale=100.0)


def test_without_prescribed_motion_there_are_no_driving_forces_and_no_power():
    builder = MechanismBuilder("pendulum")
    builder.add_body("rod", joint=Revolute((0.0, 1.0, 0.0)), mass=1.0, com=(0.0, 0.0, -0.5))
    system = System(builder.build())
    state = State(jnp.array([0.4]), jnp.array([0.2]))
    assert driving_power(system, state) == 0.0
    assert driving_forces(system, state) == {}
