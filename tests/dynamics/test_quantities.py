"""Velocities and accelerations of frames, momenta, subtrees, regressors of energies and impacts against Pinocchio.

One random tree with a free base and five other kinds of joints, in a random motion.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from of_pinocchio import built, pinocchio
from random_trees import close, geared, random_model, random_motion

import jaxdyn
from jaxdyn import configuration, identify
from jaxdyn.dynamics import (
    center_of_mass_jacobian,
    centroidal_momentum_matrix,
    centroidal_momentum_rate,
    constrained_dynamics,
    frame_acceleration,
    frame_jacobian,
    frame_velocity,
    impulse_dynamics,
    subtree_centers,
)

FOOT = "body 4"
AXES = {"mixed": "LOCAL_WORLD_ALIGNED", "local": "LOCAL", "world": "WORLD"}  # ours and those of Pinocchio


@pytest.fixture(scope="module")
def sample():
    rng = np.random.default_rng(0)
    model = random_model(rng, 6, parents=[-1, 0, 1, 1, 3, 0], kinds="FRSPUC", armature=True)
    return model, *random_motion(rng, model)


@pytest.fixture(scope="module")
def theirs(sample):
    """Model, data, order of our velocities among theirs, and the motion in their order."""
    pin, order, coordinates = built(sample[0])
    v, a = (np.asarray(x)[np.argsort(order)] for x in sample[2:])
    return pin, pin.createData(), order, coordinates(np.asarray(sample[1])), v, a


def flipped(six):
    """Linear part first to angular part first, or the reverse."""
    return np.concatenate([np.asarray(six)[3:], np.asarray(six)[:3]])


@jax.jit
def of_frames(model, q, v, a):
    """For each kind of axes: Jacobian, velocity, both accelerations, dJ/dt v by differentiation and as an acceleration."""
    found, moving = {}, configuration.coordinate_rate(model, q, v)
    for axes in AXES:
        jacobian, rate = jax.jvp(lambda q, axes=axes: frame_jacobian(model, q, FOOT, axes=axes), (q,), (moving,))
        kinds = [functools.partial(frame_acceleration, axes=axes, kind=kind) for kind in ("classical", "spatial")]
        motions = [frame_velocity(model, q, v, FOOT, axes=axes), *(kind(model, q, v, a, FOOT) for kind in kinds)]
        drift = kinds[axes != "mixed"](model, q, v, jnp.zeros_like(a), FOOT)
        found[axes] = jacobian, [jnp.concatenate(x) for x in motions], rate @ v, jnp.concatenate(drift)
    return found


def test_frames_move_as_those_of_pinocchio(sample, theirs):
    pin, data, order, *motion = theirs
    foot = pin.getFrameId(FOOT.removeprefix("body "))
    pinocchio.forwardKinematics(pin, data, *motion)
    pinocchio.updateFramePlacements(pin, data)
    functions = "getFrameVelocity", "getFrameClassicalAcceleration", "getFrameAcceleration"
    for axes, (jacobian, motions, rate, drift) in of_frames(*sample).items():
        reference = getattr(pinocchio.ReferenceFrame, AXES[axes])
        close(jacobian, flipped(pinocchio.computeFrameJacobian(pin, data, motion[0], foot, reference))[:, order])
        for function, found in zip(functions, motions, strict=True):
            close(found, flipped(getattr(pinocchio, function)(pin, data, foot, reference).vector))
        close(drift, rate)


def test_named_frames_turn_and_carry_their_axes():
    builder = jaxdyn.MechanismBuilder()
    builder.add_body("arm", joint=jaxdyn.Revolute((0, 0, 1)), mass=1.0, inertia=(1, 1, 1), position=(0.5, 0.0, 0.0))
    builder.add_frame("hand", body="arm", position=(0.0, 2.0, 0.0), orientation=(0.5**0.5, 0.5**0.5, 0.0, 0.0))
    model, (q, v, a) = builder.build(), jnp.array([[0.0], [3.0], [0.0]])
    # The frame is turned by 90 degrees about x: its y axis is the z axis of the ground, its z axis is -y of the ground.
    for axes, expected in {
        "mixed": [(0, 0, 3), (-6, 0, 0), (0, -18, 0)],
        "local": [(0, 3, 0), (-6, 0, 0), (0, 0, 18)],
        "world": [(0, 0, 3), (0, -1.5, 0), (4.5, 0, 0)],
    }.items():
        velocity = frame_velocity(model, q, v, "hand", axes=axes)
        acceleration = frame_acceleration(model, q, v, a, "hand", axes=axes).linear
        np.testing.assert_allclose(np.array([*velocity, acceleration]), expected, atol=1e-12)


@jax.jit
def of_momenta(model, q, v, a):
    moving = configuration.coordinate_rate(model, q, v)
    matrix, rate = jax.jvp(lambda q: centroidal_momentum_matrix(model, q), (q,), (moving,))
    about = jaxdyn.center_of_mass(model, q)
    momentum = jnp.concatenate([jaxdyn.angular_momentum(model, q, v, about=about), jaxdyn.momentum(model, q, v)])
    return (
        (matrix, centroidal_momentum_rate(model, q, v, a)),
        (center_of_mass_jacobian(model, q), subtree_centers(model, q)),
        (matrix @ v - momentum, matrix @ a + rate @ v),
    )


def test_momenta_and_centers_are_those_of_pinocchio(sample, theirs):
    (matrix, rate), (jacobian, subtrees), _ = of_momenta(*sample)
    pin, data, order, q, v, a = theirs
    pinocchio.ccrba(pin, data, q, v)
    close(matrix, flipped(data.Ag)[:, order])
    pinocchio.computeCentroidalMomentumTimeVariation(pin, data, q, v, a)
    close(rate, flipped(data.dhg.vector))
    close(jacobian, pinocchio.jacobianCenterOfMass(pin, data, q)[:, order])
    pinocchio.centerOfMass(pin, data, q, True)
    for i, (mass, center) in enumerate(zip(*subtrees, strict=True)):
        joint = pin.getJointId(str(i))
        close(mass, data.mass[joint])
        close(center, data.oMi[joint].act(data.com[joint]))


def test_rotors_and_a_second_root_have_momentum():
    rng = np.random.default_rng(3)
    tree = random_model(rng, 5, parents=[-1, 0, -1, 2, 2], kinds="FRRUP")
    model = geared(tree, (0, 1), (-1, 2))
    (_, rate), _, (error, by_rates) = of_momenta(model, *random_motion(rng, model))
    close(error, 0.0)
    close(rate, by_rates)


def test_a_subtree_without_mass_has_the_center_of_its_first_body():
    builder = jaxdyn.MechanismBuilder()
    builder.add_body("arm", joint=jaxdyn.Revolute((0, 0, 1)), mass=1.0, com=(0.1, 0.0, 0.0), inertia=(1, 1, 1))
    hinge = jaxdyn.Revolute((0, 0, 1))
    builder.add_body("needle", parent="arm", joint=hinge, position=(2.0, 0.0, 0.0), armature=0.1)
    mass, center = subtree_centers(builder.build(), jnp.zeros(2))
    np.testing.assert_allclose(mass, [1.0, 0.0])
    np.testing.assert_allclose(center, [(0.1, 0.0, 0.0), (2.0, 0.0, 0.0)])


@jax.jit
def of_energies(model, q, v):
    return identify.kinetic_energy_regressor(model, q, v), identify.potential_energy_regressor(model, q)


def test_regressors_of_energies_are_those_of_pinocchio(sample, theirs):
    model, q, v, _ = sample
    pin, data, _, *motion, _ = theirs
    kinetic, potential = of_energies(model, q, v)
    bodies = [pin.getJointId(str(i)) - 1 for i in range(model.nb)]
    entries = [0, 1, 2, 3, 4, 6, 9, 5, 7, 8]  # (xx, xy, yy, xz, yz, zz) to (xx, yy, zz, xy, xz, yz)
    expected = pinocchio.computeKineticEnergyRegressor(pin, data, *motion)
    close(kinetic.reshape(-1, 10), expected.reshape(-1, 10)[np.ix_(bodies, entries)])
    expected = pinocchio.computePotentialEnergyRegressor(pin, data, motion[0])
    close(potential.reshape(-1, 10), expected.reshape(-1, 10)[np.ix_(bodies, entries)])
    parameters = identify.inertial_parameters(model).ravel()
    close(kinetic @ parameters + 0.5 * jnp.sum(model.armature * v**2), jaxdyn.kinetic_energy(model, q, v))
    close(potential @ parameters, jaxdyn.potential_energy(model, q))


def test_jacobians_of_steps_and_differences_are_those_of_pinocchio(sample, theirs):
    model, q, v, _ = sample
    pin, _, order, *motion, _ = theirs
    ours = configuration.integrate_jacobians(model, q, v)
    ours += configuration.difference_jacobians(model, q, configuration.integrate(model, q, v))
    expected = [*pinocchio.dIntegrate(pin, *motion)]
    expected += pinocchio.dDifference(pin, motion[0], pinocchio.integrate(pin, *motion))
    for one, other in zip(ours, expected, strict=True):
        close(one, np.asarray(other)[np.ix_(order, order)])
    for one in configuration.difference_jacobians(model, q, q):  # at zero, where formulas with angles are 0/0
        np.testing.assert_allclose(np.abs(one), np.eye(model.nv), atol=1e-12)


@jax.jit
def of_contact(model, q, v, tau, restitution):
    rows = frame_jacobian(model, q, FOOT)[3:]
    gamma = -frame_acceleration(model, q, v, jnp.zeros_like(v), FOOT).linear
    # Redundant equations: one row again, and a sum of two.
    more, twice = (jnp.concatenate([x, x[:1], x[1:2] + x[2:]]) for x in (rows, gamma))
    return (
        (rows, gamma),
        constrained_dynamics(model, q, v, tau, rows, gamma),
        constrained_dynamics(model, q, v, tau, more, twice)[0],
        impulse_dynamics(model, q, v, rows, restitution=restitution),
        impulse_dynamics(model, q, v, more, restitution=restitution)[0],
    )


def test_contacts_and_impacts_are_those_of_pinocchio(sample, theirs):
    (rows, gamma), (a, force), of_more, (after, impulse), after_more = of_contact(*sample, 0.4)
    pin, data, order, *motion = theirs
    their_rows = np.asarray(rows)[:, np.argsort(order)]
    close(a, pinocchio.forwardDynamics(pin, data, *motion, their_rows, -np.asarray(gamma), 0.0)[order], scale=1e3)
    close(force, data.lambda_c, scale=1e3)
    close(after, pinocchio.impulseDynamics(pin, data, *motion[:2], their_rows, 0.4, 0.0)[order], scale=1e3)
    close(impulse, data.impulse_c, scale=1e3)
    close(of_more, a, scale=1e5)
    close(after_more, after, scale=1e5)
