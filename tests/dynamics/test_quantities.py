"""Velocities and accelerations of frames, momenta, subtrees, regressors of energies and impacts against Pinocchio.

One random tree with a free base and five other kinds of joints, in a random motion.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from of_pinocchio import built, pinocchio
from random_trees import close, geared, random_model, random_motion

import jaxdyn
from jaxdyn import configuration
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

AXES = ("mixed", "local", "world")
FOOT = "body 4"
REFERENCES = dict(zip(AXES, ("LOCAL_WORLD_ALIGNED", "LOCAL", "WORLD"), strict=True))


def drawn(seed: int = 0):
    rng = np.random.default_rng(seed)
    model = random_model(rng, 6, parents=[-1, 0, 1, 1, 3, 0], kinds="FRSPUC", armature=True)
    return model, *random_motion(rng, model)


class Theirs:
    """A model and a motion in the order of Pinocchio, and its results in ours."""

    def __init__(self, model, *motion):
        self.pin, self.order, their = built(model)
        self.data, self.q = self.pin.createData(), their(np.asarray(motion[0]))
        self.v, self.a = (np.asarray(x)[np.argsort(self.order)] for x in motion[1:])

    def columns(self, matrix):
        return np.asarray(matrix)[:, self.order]


def flipped(six):
    """Linear part first to angular part first, or the reverse."""
    return np.concatenate([np.asarray(six)[3:], np.asarray(six)[:3]])


@pytest.fixture(scope="module")
def sample():
    return drawn()


@pytest.fixture(scope="module")
def theirs(sample):
    return Theirs(*sample)


@jax.jit
def of_frames(model, q, v, a):
    """For each kind of axes: Jacobian, velocity, both accelerations, dJ/dt v by differentiation and as an acceleration."""
    found = {}
    for axes, kind in {"mixed": "classical", "local": "spatial", "world": "spatial"}.items():
        jacobian, rate = jax.jvp(
            lambda q, axes=axes: frame_jacobian(model, q, FOOT, axes=axes),
            (q,),
            (configuration.coordinate_rate(model, q, v),),
        )
        motions = [frame_velocity(model, q, v, FOOT, axes=axes)]
        motions += [frame_acceleration(model, q, v, a, FOOT, axes=axes, kind=of) for of in ("classical", "spatial")]
        drift = frame_acceleration(model, q, v, jnp.zeros_like(a), FOOT, axes=axes, kind=kind)
        found[axes] = jacobian, [jnp.concatenate(x) for x in motions], rate @ v, jnp.concatenate(drift)
    return found


def test_frames_move_as_those_of_pinocchio(sample, theirs):
    found = of_frames(*sample)
    pin, data = theirs.pin, theirs.data
    foot = pin.getFrameId(FOOT.removeprefix("body "))
    pinocchio.forwardKinematics(pin, data, theirs.q, theirs.v, theirs.a)
    pinocchio.updateFramePlacements(pin, data)
    functions = "getFrameVelocity", "getFrameClassicalAcceleration", "getFrameAcceleration"
    for axes, name in REFERENCES.items():
        reference = getattr(pinocchio.ReferenceFrame, name)
        jacobian, motions, rate, drift = found[axes]
        close(jacobian, theirs.columns(flipped(pinocchio.computeFrameJacobian(pin, data, theirs.q, foot, reference))))
        for function, motion in zip(functions, motions, strict=True):
            close(motion, flipped(getattr(pinocchio, function)(pin, data, foot, reference).vector))
        close(drift, rate)


def test_named_frames_turn_and_carry_their_axes():
    builder = jaxdyn.MechanismBuilder()
    builder.add_body("arm", joint=jaxdyn.Revolute((0, 0, 1)), mass=1.0, inertia=(1, 1, 1), position=(0.5, 0.0, 0.0))
    builder.add_frame("hand", body="arm", position=(0.0, 2.0, 0.0), orientation=(0.5**0.5, 0.5**0.5, 0.0, 0.0))
    model, (q, v, a) = builder.build(), jnp.array([[0.0], [3.0], [0.0]])

    def parts(axes):
        moving = frame_velocity(model, q, v, "hand", axes=axes)
        return [*moving, frame_acceleration(model, q, v, a, "hand", axes=axes).linear]

    # The frame is turned by 90 degrees about x: its y axis is the z axis of the ground, its z axis is -y of the ground.
    for axes, expected in {
        "mixed": [(0, 0, 3), (-6, 0, 0), (0, -18, 0)],
        "local": [(0, 3, 0), (-6, 0, 0), (0, 0, 18)],
        "world": [(0, 0, 3), (0, -1.5, 0), (4.5, 0, 0)],
    }.items():
        np.testing.assert_allclose(np.array(parts(axes)), expected, atol=1e-12)
        np.testing.assert_allclose(
            frame_jacobian(model, q, "hand", axes=axes) @ v, np.concatenate(expected[:2]), atol=1e-12
        )


@jax.jit
def of_momenta(model, q, v, a):
    matrix, rate = jax.jvp(
        lambda q: centroidal_momentum_matrix(model, q), (q,), (configuration.coordinate_rate(model, q, v),)
    )
    center = jaxdyn.center_of_mass(model, q)
    about_center = jaxdyn.angular_momentum(model, q, v, about=center), jaxdyn.momentum(model, q, v)
    return {
        "matrix": matrix,
        "by matrix": matrix @ v,
        "momentum": jnp.concatenate(about_center),
        "rate": centroidal_momentum_rate(model, q, v, a),
        "by rates": matrix @ a + rate @ v,
        "center": center_of_mass_jacobian(model, q),
        "subtrees": subtree_centers(model, q),
    }


def test_momenta_and_centers_are_those_of_pinocchio(sample, theirs):
    found = of_momenta(*sample)
    pin, data = theirs.pin, theirs.data
    pinocchio.ccrba(pin, data, theirs.q, theirs.v)
    close(found["matrix"], theirs.columns(flipped(data.Ag)))
    pinocchio.computeCentroidalMomentumTimeVariation(pin, data, theirs.q, theirs.v, theirs.a)
    close(found["rate"], flipped(data.dhg.vector))
    close(found["center"], theirs.columns(pinocchio.jacobianCenterOfMass(pin, data, theirs.q)))
    pinocchio.centerOfMass(pin, data, theirs.q, True)
    for i, (mass, center) in enumerate(zip(*found["subtrees"], strict=True)):
        joint = pin.getJointId(str(i))
        close(mass, jnp.asarray(data.mass[joint]))
        close(center, data.oMi[joint].act(data.com[joint]))


def test_rotors_and_a_second_root_have_momentum():
    rng = np.random.default_rng(3)
    tree = random_model(rng, 5, parents=[-1, 0, -1, 2, 2], kinds="FRRUP")
    model = geared(tree, (0, 1), (-1, 2))
    found = of_momenta(model, *random_motion(rng, model))
    close(found["by matrix"], found["momentum"])
    close(found["rate"], found["by rates"])


def test_a_subtree_without_mass_has_the_center_of_its_first_body():
    builder = jaxdyn.MechanismBuilder()
    builder.add_body("arm", joint=jaxdyn.Revolute((0, 0, 1)), mass=1.0, com=(0.1, 0.0, 0.0), inertia=(1, 1, 1))
    hinge = jaxdyn.Revolute((0, 0, 1))
    builder.add_body("needle", parent="arm", joint=hinge, position=(2.0, 0.0, 0.0), armature=0.1)
    mass, center = subtree_centers(builder.build(), jnp.zeros(2))
    np.testing.assert_allclose(mass, [1.0, 0.0])
    np.testing.assert_allclose(center, [(0.1, 0.0, 0.0), (2.0, 0.0, 0.0)])


def test_regressors_of_energies_are_those_of_pinocchio(sample, theirs):
    model, q, v, _ = sample
    found = jax.jit(
        lambda model, q, v: (
            jaxdyn.identify.kinetic_energy_regressor(model, q, v),
            jaxdyn.identify.potential_energy_regressor(model, q),
        )
    )(model, q, v)
    order = [pinocchio_joint - 1 for pinocchio_joint in (theirs.pin.getJointId(str(i)) for i in range(model.nb))]
    entries = [0, 1, 2, 3, 4, 6, 9, 5, 7, 8]  # (xx, xy, yy, xz, yz, zz) to (xx, yy, zz, xy, xz, yz)
    for ours, expected in zip(
        found,
        (
            pinocchio.computeKineticEnergyRegressor(theirs.pin, theirs.data, theirs.q, theirs.v),
            pinocchio.computePotentialEnergyRegressor(theirs.pin, theirs.data, theirs.q),
        ),
        strict=True,
    ):
        close(ours.reshape(-1, 10), np.asarray(expected).reshape(-1, 10)[np.ix_(order, entries)])
    parameters = jaxdyn.identify.inertial_parameters(model).ravel()
    spin = 0.5 * jnp.sum(model.armature * v**2)
    close(found[0] @ parameters + spin, jaxdyn.kinetic_energy(model, q, v))
    close(found[1] @ parameters, jaxdyn.potential_energy(model, q))


def test_jacobians_of_steps_and_differences_are_those_of_pinocchio(sample, theirs):
    model, q, v, _ = sample
    end = configuration.integrate(model, q, v)
    for ours, expected in [
        (configuration.integrate_jacobians(model, q, v), pinocchio.dIntegrate(theirs.pin, theirs.q, theirs.v)),
        (
            configuration.difference_jacobians(model, q, end),
            pinocchio.dDifference(theirs.pin, theirs.q, pinocchio.integrate(theirs.pin, theirs.q, theirs.v)),
        ),
    ]:
        for one, other in zip(ours, expected, strict=True):
            close(one, np.asarray(other)[np.ix_(theirs.order, theirs.order)])
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
    model, q, v, tau = sample
    restitution = 0.4
    (rows, gamma), (a, force), of_more, (after, impulse), after_more = of_contact(model, q, v, tau, restitution)
    pin, data, there = theirs.pin, theirs.data, np.argsort(theirs.order)
    their_rows = np.asarray(rows)[:, there]
    expected = pinocchio.forwardDynamics(pin, data, theirs.q, theirs.v, theirs.a, their_rows, -np.asarray(gamma), 0.0)
    close(a, expected[theirs.order], scale=1e3)
    close(force, data.lambda_c, scale=1e3)
    expected = pinocchio.impulseDynamics(pin, data, theirs.q, theirs.v, their_rows, restitution, 0.0)
    close(after, expected[theirs.order], scale=1e3)
    close(impulse, data.impulse_c, scale=1e3)
    close(of_more, a, scale=1e5)
    close(after_more, after, scale=1e5)
    close(rows @ after, -restitution * rows @ v, scale=1e3)


def test_the_motion_after_a_redundant_impact_has_the_derivative_of_the_independent_one(sample):
    model, q, v, _ = sample

    def changes(repeated):
        def after(rows):
            more = jnp.concatenate([rows, rows[:1] + rows[1:2], rows[2:]]) if repeated else rows
            return impulse_dynamics(model, q, v, more)[0]

        rows = frame_jacobian(model, q, FOOT)[3:]
        return jax.jvp(after, (rows,), (rows**2,))[1]

    independent, redundant = jax.jit(lambda: (changes(False), changes(True)))()
    close(redundant, independent, scale=1e4)


def test_an_elastic_impact_keeps_the_energy_and_a_plastic_one_loses_that_of_the_change(sample):
    model, q, v, _ = sample

    def energies(restitution):
        after, _ = impulse_dynamics(model, q, v, frame_jacobian(model, q, FOOT)[3:], restitution=restitution)
        return jnp.stack([jaxdyn.kinetic_energy(model, q, x) for x in (v, after, after - v)])

    before, elastic, _ = energies(1.0)
    close(elastic, before)
    _, plastic, lost = energies(0.0)
    close(before - plastic, lost)  # Carnot
