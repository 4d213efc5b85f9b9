"""Models of Pinocchio become systems with the same equations of motion."""

import jax
import jax.numpy as jnp
import numpy as np
import pinocchio as pin
import pytest
from random_trees import random_unit

import jaxdyn
from jaxdyn.io import ConfigError, IgnoredContent, PinocchioOrder, system_from_pinocchio

RNG = np.random.default_rng(3)
X, Y = np.eye(3)[:2]


def model_of(*joints) -> pin.Model:
    """A chain with a branch."""
    model = pin.Model()
    model.gravity.linear = RNG.normal(size=3)
    for i, joint in enumerate(joints):
        index = model.addJoint(i if i < len(joints) - 1 else 1, joint, pin.SE3.Random(), f"joint {i}")
        model.appendBodyToJoint(index, pin.Inertia.FromEllipsoid(*RNG.uniform(0.3, 1, 4)), pin.SE3.Random())
        model.addFrame(pin.Frame(f"link {i}", index, pin.SE3.Identity(), pin.FrameType.BODY))
        model.addFrame(pin.Frame(f"tool {i}", index, pin.SE3.Random(), pin.FrameType.OP_FRAME))
    model.armature, model.damping = RNG.uniform(0.1, 0.3, (2, model.nv))
    return model


ONE_TO_ONE = (
    *(
        pin.JointModelFreeFlyer(),
        pin.JointModelRX(),
        pin.JointModelRevoluteUnaligned(random_unit(RNG)),
        pin.JointModelPY(),
    ),
    *(pin.JointModelPrismaticUnaligned(random_unit(RNG)), pin.JointModelHY(0.3), pin.JointModelUniversal(X, Y)),
    *(pin.JointModelHelicalUnaligned(random_unit(RNG), -0.2), pin.JointModelSpherical(), pin.JointModelPlanar()),
    *(pin.JointModelRUBZ(), pin.JointModelRevoluteUnboundedUnaligned()),
)


COMPOSITE = pin.JointModelComposite(pin.JointModelSphericalZYX(), pin.SE3.Random())
COMPOSITE.addJoint(pin.JointModelPX(), pin.SE3.Random())


@pytest.mark.parametrize("joints", [ONE_TO_ONE, (pin.JointModelTranslation(), COMPOSITE, pin.JointModelRY())])
def test_its_equations_of_motion_are_those_of_pinocchio(joints):
    theirs = model_of(*joints)
    model, (friction,) = (system := system_from_pinocchio(theirs)).model, system.forces
    q = jaxdyn.configuration.random(model, jax.random.key(1), spread=0.8)
    order = PinocchioOrder(model, theirs) if joints is ONE_TO_ONE else None  # the coordinates of chains are the same
    units = jnp.eye(model.nv)
    columns = np.asarray(units if order is None else jax.vmap(order.v_to, (None, 0))(q, units)).T
    v, a = RNG.normal(size=(2, model.nv))
    at, data = (np.asarray(q if order is None else order.q_to(q)), columns @ v), theirs.createData()

    @jax.jit
    def ours(q, v, a):
        tau = jaxdyn.inverse_dynamics(model, q, v, a)
        there = jaxdyn.frame_placement(model, q, "tool 1").translation
        return jaxdyn.mass_matrix(model, q), tau, jaxdyn.forward_dynamics(model, q, v, tau), there, friction.viscous

    full, found = pin.crba(theirs, data, at[0]), list(map(np.asarray, ours(q, v, a)))
    pin.framesForwardKinematics(theirs, data, at[0])
    expected = (
        columns.T @ (np.triu(full) + np.triu(full, 1).T) @ columns, columns.T @ pin.rnea(theirs, data, *at, columns @ a), a,
        data.oMf[theirs.getFrameId("tool 1")].translation, theirs.damping @ columns,
    )  # fmt: skip
    for one, other in zip(
        (*found, found[2]), (*expected, columns.T @ pin.aba(theirs, data, *at, columns @ found[1])), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


def test_limits_and_what_is_refused_or_not_used():
    theirs = model_of(pin.JointModelRX(), pin.JointModelPX())
    theirs.addFrame(pin.Frame("ground", 0, pin.SE3.Random(), pin.FrameType.OP_FRAME))
    theirs.lowerPositionLimit, theirs.rotorInertia = np.array([-0.5, 0.0]), np.array([0.1, 0.0])
    theirs.upperPositionLimit[1], theirs.upperEffortLimit[:], theirs.lowerEffortLimit[:] = 0.0, (0.0, 2.0), (0.0, -1.0)
    said = "lowerEffortLimit is not used .*; rotorInertia is not used.*; the effort limits of 0 of joint 'joint 0' are .*; "
    with pytest.warns(IgnoredContent, match=f"{said}the position limits of joint 'joint 1', which do not allow motion"):
        model = system_from_pinocchio(theirs).model
    assert "ground_" in model.topology.frame_names  # "ground" is the fixed world itself
    limits, free = model.limits, np.inf
    np.testing.assert_array_equal(
        [limits.lower, limits.upper, limits.effort, limits.velocity],
        [(-0.5, -free), (free, free), (free, 2.0), (free, free)],
    )
    with pytest.raises(ConfigError, match="joint 'joint 1' is of the kind Ellipsoid, which jaxdyn does not have"):
        system_from_pinocchio(model_of(pin.JointModelRX(), pin.JointModelEllipsoid(1.0, 2.0, 3.0)))
