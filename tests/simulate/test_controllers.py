"""Ready controls: PD control about a configuration, and random sequences."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxdyn
from jaxdyn import JointServo, State, System, library, rollout
from jaxdyn.simulate import PDControl, random_knots

MODEL = library.panda()
MIDDLE = jaxdyn.configuration.random(MODEL, jax.random.key(0), spread=0.0)
AWAY = MIDDLE + 0.1
GAINS = {"stiffness": 30.0 * jnp.ones(MODEL.nv), "damping": 4.0 * jnp.ones(MODEL.nv)}
STATE = State(AWAY, 0.2 * jnp.ones(MODEL.nv))


def at_zero(policy: PDControl) -> jax.Array:
    return policy(jnp.zeros(()), STATE, None)


def test_pd_control_is_the_force_of_a_servo_with_the_same_gains():
    servo = JointServo(target=MIDDLE, **GAINS)
    expected = jaxdyn.applied_forces(System(MODEL, (servo,)), STATE)
    np.testing.assert_allclose(at_zero(PDControl(MODEL, MIDDLE, **GAINS)), expected, rtol=1e-12)
    assert np.all(np.abs(expected) > 1.0)


def test_feedforward_and_gravity_are_added_and_the_sum_is_clipped_at_the_effort_limits():
    bare = at_zero(PDControl(MODEL, MIDDLE, **GAINS))
    more = random_knots(jax.random.key(1), jnp.ones(MODEL.nv), duration=1.0, interval=0.1)
    both = at_zero(PDControl(MODEL, MIDDLE, **GAINS, feedforward=more, compensate_gravity=True))
    np.testing.assert_allclose(both, bare + more.values[0] - jaxdyn.gravity_force(MODEL, AWAY), rtol=1e-12)
    strong = {name: 1e5 * gain for name, gain in GAINS.items()}
    np.testing.assert_array_equal(np.abs(at_zero(PDControl(MODEL, MIDDLE, **strong))), MODEL.limits.effort)


def test_pd_control_with_gravity_compensation_holds_its_target():
    policy = PDControl(MODEL, MIDDLE, **GAINS, compensate_gravity=True)
    start = State(MIDDLE, jnp.zeros(MODEL.nv))
    end = jax.jit(lambda s: rollout(System(MODEL), s, policy, dt=1e-3, steps=200).final)(start)
    np.testing.assert_allclose(end.q, MIDDLE, atol=1e-9)
    free = jax.jit(lambda s: rollout(System(MODEL), s, dt=1e-3, steps=200).final)(start)
    assert np.max(np.abs(free.q - MIDDLE)) > 1e-2


def test_random_knots_have_their_deviation_and_do_not_depend_on_the_duration():
    deviation, draw = jnp.array([0.0, 1.0, 5.0]), {"interval": 0.01}
    long = random_knots(jax.random.key(2), deviation, duration=40.0, **draw)
    short = random_knots(jax.random.key(2), deviation, duration=1.0, **draw)
    np.testing.assert_array_equal(long.values[: len(short.values)], short.values)
    assert float(short.interval) * (len(short.values) - 1) >= 1.0
    np.testing.assert_allclose(
        jnp.std(long.values, axis=0), deviation, rtol=0.06
    )  # 4000 values: 3 deviations are 3.4 %
