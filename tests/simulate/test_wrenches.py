"""External wrenches of rollouts and accelerations, beside forces that a system contains."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import AppliedForce, System

STEPS, DT = 6, 0.01


def arm() -> tuple[System, jaxdyn.State]:
    """Two bodies with a turned frame on the second one, on a moving base."""
    builder = jaxdyn.MechanismBuilder("arm")
    builder.add_body("base", joint=jaxdyn.Free(), mass=2.0, inertia=(0.2, 0.3, 0.4))
    builder.add_body(
        "rod", parent="base", joint=jaxdyn.Revolute((0, 1, 0)), mass=1.0, com=(0, 0, 0.2), inertia=(0.1, 0.1, 0.01)
    )
    builder.add_frame("hand", body="rod", position=(0.1, 0.2, 0.5), orientation=(0.6, 0.8, 0.0, 0.0))
    system = System(builder.build())
    return system, jaxdyn.State(
        jaxdyn.configuration.random(system.model, jax.random.key(0)), jnp.linspace(-1.0, 1.0, 7)
    )


def pushed(system: System, hand, base) -> System:
    """The same wrenches as forces of the system."""
    forces = (
        AppliedForce(1, jnp.array([0.1, 0.2, 0.5]), hand[3:], hand[:3], False),
        AppliedForce(0, jnp.zeros(3), base[3:], base[:3], False),
    )
    return system.changed(forces=forces)


def test_wrenches_act_as_applied_forces_do():
    system, state = arm()
    hand, base = jax.random.normal(jax.random.key(1), (2, STEPS, 6))
    given = {"hand": hand, "base": base}
    np.testing.assert_allclose(
        jaxdyn.acceleration(system, state, wrenches={"hand": hand[0], "base": base[0], "ground": base[1]}),
        jaxdyn.acceleration(pushed(system, hand[0], base[0]), state),
        rtol=1e-12,
    )
    for integrator in (jaxdyn.SemiImplicitEuler(), jaxdyn.RungeKutta4()):
        options = {"dt": DT, "integrator": integrator}
        run = jaxdyn.rollout(system, state, steps=STEPS, substeps=2, wrenches=given, **options)
        now = state
        for k in range(STEPS):
            now = jaxdyn.rollout(pushed(system, hand[k], base[k]), now, steps=1, substeps=2, **options).final
        np.testing.assert_allclose(run.final.v, now.v, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("backend", ["lanes", "xla"])
def test_batches_and_gradients_of_wrenches(backend):
    system, state = arm()
    batch = jax.random.normal(jax.random.key(2), (3, STEPS, 6))

    def height(hand):
        moved = jaxdyn.rollout(system, state, dt=DT, steps=STEPS, wrenches={"hand": hand}, backend=backend).final
        return moved.q[2] + moved.v[3]

    heights, slopes = jax.jit(jax.vmap(jax.value_and_grad(height)))(batch)
    change = 1e-6 * jax.random.normal(jax.random.key(3), batch.shape)
    after, before = (jax.jit(jax.vmap(height))(batch + sign * change) for sign in (1.0, -1.0))
    np.testing.assert_allclose(0.5 * (after - before), jnp.sum(slopes * change, axis=(1, 2)), rtol=1e-6)
    assert len(set(heights.tolist())) == 3


def test_wrong_wrenches_are_named():
    system, state = arm()
    with pytest.raises(jaxdyn.UnknownName, match="hand"):
        jaxdyn.acceleration(system, state, wrenches={"hund": jnp.zeros(6)})
    with pytest.raises(ValueError, match=r"the wrench of 'hand' has shape \(6,\).*each step: shape \(6, 6\)"):
        jaxdyn.rollout(system, state, dt=DT, steps=STEPS, wrenches={"hand": jnp.zeros(6)})
    with pytest.raises(TypeError, match="wrenches"):
        jaxdyn.acceleration(system, state, wrenches=jnp.zeros(6))
