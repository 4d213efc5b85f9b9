"""Records of contacts and frames, and the deepest penetration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import System
from jaxdyn.dynamics import GroundContact, contact_forces, contact_sphere
from jaxdyn.simulate import save_contacts_and_frames
from jaxdyn.simulate.diagnostics import deepest_penetration


def ball(**material) -> System:
    builder = jaxdyn.MechanismBuilder("ball")
    builder.add_body("ball", joint=jaxdyn.Free(), mass=1.0, inertia=0.004 * jnp.eye(3))
    builder.add_frame("mark", body="ball", position=(0.1, 0.0, 0.0))
    model = builder.build()
    spheres = contact_sphere("ball", radius=0.1) + contact_sphere("mark", center=(0.0, 0.0, 5.0), radius=0.01)
    return System(model, (GroundContact.of(model, spheres, **material),))


def test_a_ball_that_sinks_is_healthy_and_has_a_deep_penetration():
    soft = ball(stiffness=10.0, damping=0.0)
    start = soft.at_rest(jnp.array([0.0, 0.0, 0.1, 1.0, 0.0, 0.0, 0.0]))
    save = save_contacts_and_frames(soft, "mark")
    trajectory = jaxdyn.rollout(soft, start, dt=2e-3, steps=500, save=save)
    states = trajectory.saved["state"]
    deepest = deepest_penetration(soft, states)
    assert trajectory.healthy
    np.testing.assert_allclose(deepest[0], 0.1 - states.q[:, 2].min(), rtol=1e-9)
    np.testing.assert_allclose(deepest[1], 0.01 - 5.0 - states.q[:, 2].min(), rtol=1e-9)
    forces = jax.vmap(lambda state: contact_forces(soft, state).force)(states)
    np.testing.assert_allclose(trajectory.saved["contact_forces"], forces, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        trajectory.saved["position:mark"], states.q[:, :3] + jnp.array([[0.1, 0.0, 0.0]]), atol=1e-12
    )
    np.testing.assert_allclose(trajectory.saved["velocity:mark"][:, 2], states.v[:, 5], atol=1e-12)


@pytest.mark.parametrize("height", [0.1, 0.1 - 1e-9, 0.099, 0.1 + 1e-9])
def test_the_gradient_of_contact_forces_is_finite_at_touch_down_at_rest_and_at_zero_slip(height):
    system = ball()

    def force(q, v):
        return jnp.sum(contact_forces(system, jaxdyn.State(q, v)).force)

    gradients = jax.grad(force, (0, 1))(jnp.array([0.0, 0.0, height, 1.0, 0.0, 0.0, 0.0]), jnp.zeros(6))
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)
