"""The regressor: linear in the parameters, exactly, for every joint; and columns of Pinocchio."""

import jax
import jax.numpy as jnp
import numpy as np
import pinocchio
import pytest
from random_trees import close, random_inertia, random_model, random_motion

import jaxdyn
from jaxdyn import (
    AppliedForce,
    Damper,
    JointFriction,
    JointSpring,
    MechanismBuilder,
    Prismatic,
    Revolute,
    Rheonomic,
    Sinusoid,
    Spherical,
    Spring,
    State,
    System,
    applied_forces,
    inverse_dynamics,
)
from jaxdyn.identify.regression import (
    TorqueOffset,
    inertial_parameters,
    inertial_regressor,
    labels,
    linear_parameters,
    regressor,
    remaining_forces,
    with_inertial_parameters,
    with_linear_parameters,
)
from jaxdyn.spatial.inertia import symmetric_matrix

ALL_JOINTS = random_model(
    np.random.default_rng(3), 8, parents=[-1, 0, 1, 0, -1, 4, 4, 6], kinds="FSUCLHRP", armature=True
)


def motions(model, count: int):
    rng = np.random.default_rng(7)
    return [jnp.stack(x) for x in zip(*(random_motion(rng, model) for _ in range(count)), strict=True)]


def test_inertial_parameters_are_those_of_a_cloud_of_particles():
    rng = np.random.default_rng(0)
    mass = 1.3
    com, inertia = random_inertia(rng, mass, 0.3)
    builder = jaxdyn.MechanismBuilder()
    builder.add_body("body", joint=jaxdyn.Free(), mass=mass, com=com, inertia=inertia)
    (m, *h), tensor = np.split(np.asarray(inertial_parameters(builder.build())[0]), [4])
    np.testing.assert_allclose([m, *h], [mass, *mass * com], rtol=1e-14)
    expected = inertia + mass * (com @ com * np.eye(3) - np.outer(com, com))
    np.testing.assert_allclose(symmetric_matrix(tensor), expected, rtol=1e-13)


def test_inertial_parameters_and_model_are_inverse_to_each_other():
    back = with_inertial_parameters(ALL_JOINTS, inertial_parameters(ALL_JOINTS))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-13, atol=1e-14), back, ALL_JOINTS)
    drawn = jnp.asarray(np.random.default_rng(1).normal(size=(8, 10)))  # no body has them, and they come back
    close(inertial_parameters(with_inertial_parameters(ALL_JOINTS, drawn)), np.asarray(drawn))


def test_body_without_mass_has_no_first_moment():
    numbers = inertial_parameters(ALL_JOINTS)
    massless = with_inertial_parameters(ALL_JOINTS, numbers.at[2, :4].set(0.0))
    assert np.all(np.asarray(massless.com[2]) == 0)
    with pytest.raises(ValueError, match=r"body 'body 2' has zero mass and a first moment; give it a mass"):
        with_inertial_parameters(ALL_JOINTS, numbers.at[2, 0].set(0.0))


def test_regressor_times_parameters_is_inverse_dynamics():
    """All kinds of joints, several roots, rotors."""

    @jax.jit
    def both(model, q, v, a):
        theta = inertial_parameters(model).ravel()
        return jnp.dot(inertial_regressor(model, q, v, a), theta) + model.armature * a, inverse_dynamics(model, q, v, a)

    for q, v, a in zip(*motions(ALL_JOINTS, 3), strict=True):
        linear, recursive = both(ALL_JOINTS, q, v, a)
        close(linear, np.asarray(recursive), scale=100.0)
        assert np.max(np.abs(recursive)) > 1.0


def test_batches_and_derivatives():
    model = random_model(np.random.default_rng(4), 2, parents=[-1, 0], kinds="SP", armature=True)
    q, v, a = motions(model, 3)
    plain = jax.jit(jax.vmap(lambda q, v, a: inertial_regressor(model, q, v, a)))(q, v, a)
    fast = jaxdyn.batched(lambda q, v, a: inertial_regressor(model, q, v, a), backend="lanes")(q, v, a)
    close(fast, np.asarray(plain), scale=100.0)
    theta = inertial_parameters(model).ravel()

    def by_regressor(v):
        return jnp.sum(jnp.sin(jnp.dot(inertial_regressor(model, q[0], v, a[0]), theta) + model.armature * a[0]))

    def by_recursion(v):
        return jnp.sum(jnp.sin(inverse_dynamics(model, q[0], v, a[0])))

    slopes = jax.jit(lambda v: (jax.grad(by_regressor)(v), jax.grad(by_recursion)(v)))(v[0])
    close(slopes[0], np.asarray(slopes[1]), scale=100.0)


def test_seven_joint_arm_has_the_columns_of_pinocchio():
    model = jaxdyn.library.panda()
    pin = pinocchio.Model()
    pin.gravity.linear = np.asarray(model.gravity)
    for i in range(model.nb):
        w, x, y, z = np.asarray(model.placement.quaternion[i])
        placement = pinocchio.SE3(pinocchio.Quaternion(w, x, y, z).matrix(), np.asarray(model.placement.translation[i]))
        axis = np.asarray(model.joint(i).axis)
        joint = pin.addJoint(
            model.topology.parents[i] + 1, pinocchio.JointModelRevoluteUnaligned(axis), placement, str(i)
        )
        inertia = pinocchio.Inertia(
            float(model.mass[i]), np.asarray(model.com[i]), np.asarray(symmetric_matrix(model.inertia[i]))
        )
        pin.appendBodyToJoint(joint, inertia, pinocchio.SE3.Identity())
    ours = jax.jit(inertial_regressor)
    # They count m, h, xx, xy, yy, xz, yz, zz.
    order = np.array([0, 1, 2, 3, 4, 6, 9, 5, 7, 8])
    for q, v, a in zip(*motions(model, 4), strict=True):
        theirs = pinocchio.computeJointTorqueRegressor(pin, pin.createData(), *map(np.asarray, (q, v, a)))
        in_our_order = theirs.reshape(7, 7, 10)[:, :, order].reshape(7, 70)
        np.testing.assert_allclose(ours(model, q, v, a), in_our_order, atol=1e-11)
    # Their numbers of the bodies are ours, in that order.
    dynamic = np.concatenate([inertia.toDynamicParameters()[order] for inertia in pin.inertias[1:]])
    np.testing.assert_allclose(inertial_parameters(model).ravel(), dynamic, atol=1e-13)


def full_system() -> System:
    """A body on a driven crank, by a ball joint, and a slide on it; forces with and without linear coefficients."""
    rng = np.random.default_rng(11)
    builder = MechanismBuilder("full")
    joints = {
        "crank": Rheonomic(Revolute((0, 0, 1)), Sinusoid(0.5, 2.0)),
        "ball": Spherical(),
        "slide": Prismatic((0, 1, 0)),
    }
    parent = "ground"
    for name, joint in joints.items():
        com, inertia = random_inertia(rng, 1.5, 0.3)
        armature = rng.uniform(0.1, 0.2, joint.nv)
        builder.add_body(
            name,
            parent=parent,
            joint=joint,
            joint_name=f"{name} joint",
            mass=1.5,
            com=com,
            inertia=inertia,
            position=(0.3, 0.1, 0.2),
            armature=armature,
        )
        parent = name
    model = builder.build()
    draw = lambda: rng.uniform(0.1, 1.0, model.nv)  # noqa: E731
    forces = (
        JointFriction(draw(), draw(), draw()),
        JointSpring(draw(), jaxdyn.configuration.neutral(model)),
        TorqueOffset(draw()),
        Spring(2, (0.1, 0.2, 0.3), -1, (0.5, 0.0, 0.1), 20.0, 0.4),
        Damper(1, (0.1, 0.0, 0.3), -1, (0.0, 0.4, 0.1), 3.0),
        AppliedForce(1, (0.1, 0.1, 0.1), (1.0, 2.0, 3.0), (0.3, 0.2, 0.1), True),
    )
    return System(model, forces)


def test_regressor_of_a_system_with_friction_springs_offsets_and_prescribed_motion():
    system, t = full_system(), 0.7

    @jax.jit
    def parts(system, q, v, a):
        model = system.model.at(jnp.asarray(t))
        needed = inverse_dynamics(model, q, v, a) - applied_forces(system, State(q, v), t=t)
        state = State(q, v)
        return regressor(system, state, a, t), remaining_forces(system, state, a, t), needed

    q, v, a = random_motion(np.random.default_rng(2), system.model)
    Y, rest, needed = parts(system, q, v, a)
    theta = linear_parameters(system)
    close(jnp.dot(Y, theta) + rest, np.asarray(needed), scale=100.0)
    assert np.max(np.abs(rest)) > 0.1  # of the applied force, which names no linear coefficient
    other = jnp.asarray(np.random.default_rng(8).normal(size=theta.shape))
    changed = with_linear_parameters(system, other)
    close(linear_parameters(changed), np.asarray(other), scale=10.0)
    same_Y, same_rest, needed = parts(changed, q, v, a)
    close(same_Y, np.asarray(Y), scale=100.0)
    close(jnp.dot(Y, other) + same_rest, np.asarray(needed), scale=1000.0)
    with pytest.raises(ValueError, match=r"the system on 'full' has 52: see labels\(system\)"):
        with_linear_parameters(system, theta[1:])


def test_labels_name_every_column_and_its_unit():
    system = full_system()
    named = dict(labels(system))
    assert len(labels(system)) == len(named) == linear_parameters(system).size
    assert [str(label) for label in labels(system)[:2]] == ["m(crank) kg", "hx(crank) kg m"]
    expected = {
        "Jyz(slide)": "kg m^2",
        "armature(ball joint[0])": "kg m^2",
        "armature(slide joint)": "kg",
        "viscous(ball joint[2])": "N m s/rad",
        "coulomb(ball joint[2])": "N m",
        "viscous(slide joint)": "N s/m",
        "stiffness(ball joint[0])": "N m/rad",
        "torque(slide joint)": "N",
        "stiffness(Spring 3)": "N/m",
        "coefficient(Damper 4)": "N s/m",
    }
    assert {name: named[name] for name in expected} == expected
    index = [name for name, _ in labels(system)].index("stiffness(Spring 3)")
    assert linear_parameters(system)[index] == 20.0


def test_labels_of_forces_with_fields_of_one_name_differ():
    friction = JointFriction([1.0], [2.0], [0.1])
    system = System(jaxdyn.library.pendulum(), (friction, TorqueOffset([0.3]), friction))
    assert [name.partition("(")[0] for name, _ in labels(system)[-5:]] == [
        "JointFriction 0 viscous",
        "JointFriction 0 coulomb",
        "torque",
        "JointFriction 2 viscous",
        "JointFriction 2 coulomb",
    ]
    changed = with_linear_parameters(system, linear_parameters(system).at[-2].set(7.0))
    assert changed.forces[2].viscous[0] == 7.0
    assert changed.forces[0].viscous[0] == 1.0


def test_torque_offset_needs_a_number_per_component():
    with pytest.raises(jaxdyn.MechanismError, match="torque has shape"):
        System(jaxdyn.library.pendulum(), (TorqueOffset((1.0, 2.0)),))
