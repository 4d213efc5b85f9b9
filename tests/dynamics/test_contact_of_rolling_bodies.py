"""Implicit steps of contacts on bodies that turn fast: the velocity of a contact point also changes with the body axes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn.dynamics import GroundContact, SphereContact, contact_forces, contact_sphere

RADIUS, SPEED, FAR = 0.1, 2.0, 1e4


def ball() -> jaxdyn.Model:
    builder = jaxdyn.MechanismBuilder("ball")
    builder.add_body("ball", joint=jaxdyn.Free(), mass=1.0, inertia=0.004 * jnp.eye(3))
    return builder.build()


def on_plane(model):
    return GroundContact.of(model, contact_sphere("ball", radius=RADIUS))


def on_large_sphere(model):
    (small,) = contact_sphere("ball", radius=RADIUS)
    (large,) = contact_sphere("ground", center=(0.0, 0.0, -FAR), radius=FAR)
    return SphereContact.of(model, [(small, large)])


@pytest.mark.parametrize("contact", [on_plane, on_large_sphere])
def test_a_ball_that_rolls_presses_on_the_ground_with_its_weight(contact):
    system = jaxdyn.System(ball(), (contact(ball()),))
    weight = 9.80665
    depth = weight / float(system.forces[0].material.stiffness) + 0.5e-3
    start = jaxdyn.State(
        jnp.array([0.0, 0.0, RADIUS - depth, 1.0, 0.0, 0.0, 0.0]),
        jnp.array([0.0, SPEED / RADIUS, 0.0, SPEED, 0.0, 0.0]),
    )
    end = jaxdyn.rollout(system, start, dt=0.002, steps=100).final
    assert abs(float(contact_forces(system, end).force[0, 2]) / weight - 1.0) < 1e-3


def test_contacts_can_be_built_within_a_compiled_function():
    model = jaxdyn.library.quadruped()
    foot = contact_sphere("fl_foot", center=(0.0, 0.0, 0.01), radius=0.02)
    built = jax.jit(lambda stiffness: GroundContact.of(model, foot, stiffness=stiffness).centers)(1e4)
    np.testing.assert_allclose(built, GroundContact.of(model, foot).centers, rtol=1e-6)
