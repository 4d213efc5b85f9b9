"""What a `System` refuses at its door, and drives."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import slider_tree, swinging_tree

import jaxdyn
from jaxdyn import AppliedForce, Damper, JointDrives, JointFriction, JointSpring, MechanismError, Spring, State, System

ZERO = (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("part", "fragments"),
    [
        (Spring(3, ZERO, -1, ZERO, 1.0), ["Spring on mechanism 'slider tree'", "no body 3", "use 0 to 2, or -1"]),
        (Spring(0, ZERO, -2, ZERO, 1.0), ["no body -2", "Model.locate"]),
        (Damper(0, ZERO, 7, ZERO, 1.0), ["Damper", "no body 7"]),
        (AppliedForce(-1, ZERO, ZERO, ZERO, True), ["ground", "give the index of a body"]),
        (AppliedForce(5, ZERO, ZERO, ZERO, True), ["AppliedForce", "no body 5"]),
        (JointSpring((1.0, 2.0), (0.0, 0.0, 0.0)), ["JointSpring", "stiffness has shape (2,); give 3 values"]),
        (JointSpring((1.0, 2.0, 3.0), (0.0, 0.0)), ["rest has shape (2,); give 3 values"]),
        (JointFriction((1.0,), ZERO, (1.0, 1.0, 1.0)), ["viscous has shape (1,); give 3 values"]),
        (Spring(0, (0.0, 0.0), -1, ZERO, 1.0), ["point_a has shape (2,); give 3 values"]),
        (JointFriction(ZERO, ZERO, ZERO), ["velocity_scale is [0.0, 0.0, 0.0]; give values that are positive"]),
        (JointDrives((0, 3), (1.0, 1.0)), ["JointDrives", "no velocity component 3; use 0 to 2"]),
        (JointDrives((0, 1), (1.0,)), ["gear has shape (1,); give 2 values"]),
    ],
)
def test_parts_that_do_not_fit_are_refused_by_name(part, fragments):
    with pytest.raises(MechanismError) as refused:
        System(slider_tree(), drives=part) if isinstance(part, JointDrives) else System(slider_tree(), (part,))
    for fragment in fragments:
        assert fragment in str(refused.value)


def test_drives_act_on_their_components_through_their_gears():
    system = System(slider_tree(), drives=JointDrives((2, 0), (3.0, -0.5)))
    tau = jaxdyn.applied_forces(system, swinging_tree(), jnp.array([2.0, 4.0]))
    np.testing.assert_allclose(tau, [-2.0, 0.0, 6.0])
    assert system.nu == 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda s: jaxdyn.acceleration(s, swinging_tree(), jnp.zeros(2)),
            r"control u has shape \(2,\), but .* has 3 controls",
        ),
        (lambda s: jaxdyn.acceleration(s, State(jnp.zeros(3), jnp.zeros(2))), r"v has shape \(2,\), but .* has nv = 3"),
        (lambda s: jaxdyn.mass_matrix(s.model, jnp.zeros((4, 3))), r"for a batch, wrap the function in jax.vmap"),
        (lambda s: jaxdyn.mass_matrix(s.model, [0.0, 0.0, 0.0]), r"q is a list; give an array, jnp.asarray\(q\)"),
        (lambda s: jaxdyn.mass_matrix(s.model, jnp.zeros(3, int)), r"q has the type int64; give floating-point"),
        (
            lambda s: jaxdyn.mass_matrix(s.model, jnp.zeros(3), method="fast"),
            "no method of mass_matrix 'fast'; use one of composite",
        ),
        (
            lambda s: jaxdyn.christoffel_first_kind(s.model, jnp.zeros(3), method="fast"),
            "no method of the connection 'fast'; use one of closed_form",
        ),
        (
            lambda s: jaxdyn.inverse_dynamics(s.model, *[jnp.zeros(3)] * 3, method="fast"),
            "no method of inverse_dynamics 'fast'; use",
        ),
        (
            lambda s: jaxdyn.forward_dynamics(s.model, *[jnp.zeros(3)] * 3, method="fast"),
            "no method of forward_dynamics 'fast'; use",
        ),
        (
            lambda s: jaxdyn.frame_placement(s.model, jnp.zeros(3), "hand"),
            "no body or frame 'hand'; use one of ground, 1, 2, 3",
        ),
    ],
)
def test_wrong_shapes_types_and_methods_are_refused_with_the_remedy(as_a_user, call, message):
    with pytest.raises(ValueError, match=message):
        call(System(slider_tree()))


class _Wind(jaxdyn.BodyForce):
    """A force along x as large as the height of the first body, which the force reads off the mechanism it is given."""

    conservative: ClassVar[bool] = False

    def body_forces(self, model, moving, t):
        height = jaxdyn.forward_kinematics(model, jnp.zeros(model.nq)).translation[0, 2]
        return jnp.zeros((model.nb, 6)).at[1, 3].set(height)


def test_a_force_on_bodies_sees_the_mechanism_at_its_time():
    builder = jaxdyn.MechanismBuilder()
    lift = jaxdyn.Rheonomic(jaxdyn.Prismatic((0, 0, 1)), jaxdyn.ConstantRate(2.0))
    builder.add_body("lift", joint=lift, mass=1.0)
    builder.add_body("cart", parent="lift", joint=jaxdyn.Prismatic((1, 0, 0)), mass=1.0)
    system = jaxdyn.System(builder.build(), (_Wind(),))
    state = jaxdyn.neutral_state(system)
    for t in (0.0, 1.5):
        np.testing.assert_allclose(jaxdyn.applied_forces(system, state, None, t), [2.0 * t])
        found = jaxdyn.joint_reactions(system, state, None, t)
        np.testing.assert_allclose(found["cart_joint"].drive, [0.0], atol=1e-15)
