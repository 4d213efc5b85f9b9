"""Environments: the laws of a step, of episodes, of everything that is random, and the interfaces of other libraries."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from difference_quotients import check_derivatives

import jaxdyn
from jaxdyn.envs import Env, GymnaxEnv


class Shaker(jaxdyn.JointForce):
    """A force that depends on the time."""

    conservative: ClassVar[bool] = False

    def generalized_forces(self, model, q, v, t):
        return jnp.stack([jnp.sin(20.0 * t), 0.0 * t])


SYSTEM = jaxdyn.library.system("cart_pole").changed(forces=(Shaker(),))
DT, FORCE, LIMIT = 0.02, 40.0, 12
KEYS = jax.random.split(jax.random.key(3), 8)


def start(system, key):
    return system.at_rest(0.4 * jax.random.normal(key, (2,)))


def observe(system, now):
    return jnp.concatenate([now.state.q, now.state.v, now.action])


def reward(system, before, now):
    return jnp.cos(now.state.q[1]) - 1e-3 * (now.u[0] - before.u[0]) ** 2 + now.t


def act(system, now, action):
    return FORCE * action


def leaves(system, now):
    return jnp.abs(now.state.q[0]) > 0.8


def env_with(**options):
    task = {"start": start, "observe": observe, "reward": reward, "act": act}
    return Env(SYSTEM, **(task | {"dt": DT, "substeps": 2, "time_limit": LIMIT * DT} | options))


def episodes(env, keys, actions):
    """All states (robots, steps + 1) for actions (robots, steps, n), by one kernel."""

    def of_one(key, actions):
        def step(state, action):
            after = env.step(state, action)
            return after, after

        first = env.reset(key)
        later = jax.lax.scan(step, first, actions)[1]
        return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, later)

    return jaxdyn.batched(of_one)(keys, actions)


ENV = env_with(done=leaves)
ACTIONS = jax.random.uniform(jax.random.key(4), (8, 40, 1), minval=-1.3, maxval=1.3)


@pytest.fixture(scope="module")
def run():
    return jax.tree.map(np.asarray, eqx.tree_at(lambda s: s.key, episodes(ENV, KEYS, ACTIONS), None))


def test_a_step_is_that_of_a_rollout(run):
    first = jax.tree.map(lambda x: jnp.asarray(x[0, 0]), run.moment.state)
    controls = FORCE * jnp.clip(ACTIONS[0, :5], -1.0, 1.0)
    motion = jaxdyn.rollout(SYSTEM, first, controls, dt=DT, steps=5, substeps=2)
    np.testing.assert_allclose(run.moment.state.q[0, :6], motion.saved.q, rtol=0, atol=1e-12)
    np.testing.assert_allclose(run.moment.t[0, :6], motion.time, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(run.moment.u[0, 1:6], controls)


def test_single_steps_are_those_of_a_batch(run):
    state = ENV.reset(KEYS[2])
    for k in range(4):
        state = ENV.step(state, ACTIONS[2, k])
    np.testing.assert_allclose(state.observation, run.observation[2, 4], rtol=0, atol=1e-12)
    np.testing.assert_allclose(state.total, run.total[2, 4], rtol=1e-12)


def test_episodes_end_begin_again_and_are_counted(run):
    fallen, over = np.asarray(run.terminated), np.asarray(run.truncated)
    assert fallen.any()
    assert over.any()
    assert not (fallen & over).any()
    for k in range(len(KEYS)):
        steps, total, ended, last = 0, 0.0, 0, (0, 0.0)
        for n in range(1, 41):
            steps, total = steps + 1, total + run.reward[k, n]
            assert fallen[k, n] == (abs(run.final_observation[k, n, 0]) > 0.8)
            assert over[k, n] == (steps == LIMIT and not fallen[k, n])
            if fallen[k, n] or over[k, n]:
                ended, last, steps, total = ended + 1, (steps, total), 0, 0.0
                assert run.moment.t[k, n] == 0.0
                assert not run.moment.state.v[k, n].any()  # at rest, as at the start
                assert not np.array_equal(run.observation[k, n], run.observation[k, 0])  # another random start
            else:
                np.testing.assert_array_equal(run.observation[k, n], run.final_observation[k, n])
            assert (run.steps[k, n], run.episodes[k, n], run.last_steps[k, n]) == (steps, ended, last[0])
            np.testing.assert_allclose((run.total[k, n], run.last_total[k, n]), (total, last[1]), atol=1e-12)


def test_a_simulation_that_fails_ends_the_episode():
    env = env_with(act=lambda system, now, action: 1e12 * action, done=leaves)
    state = env.step(env.reset(KEYS[0]), jnp.ones(1))
    assert state.terminated
    assert jnp.isfinite(state.reward)
    assert state.steps == 0


def test_a_step_keeps_the_types_of_a_state():
    """Rewards of another type, and a limit beyond the largest number of steps, are those of a loop, too."""
    single = jaxdyn.as_dtype(SYSTEM.changed(forces=()), jnp.float32)
    env = Env(
        single,
        lambda system, key: system.at_rest(jnp.zeros(2, jnp.float32)),
        lambda system, now: now.state.q,
        lambda system, before, now: 2.0 * now.t.astype(jnp.float64),
        lambda system, now, action: action,
        dt=DT,
        time_limit=1e9,
    )
    first = env.reset(KEYS[0])
    shapes = jax.eval_shape(env.step, first, jnp.zeros(1))
    assert [x.dtype for x in jax.tree.leaves(shapes)] == [x.dtype for x in jax.tree.leaves(first)]


def test_actions_are_delayed_and_filtered():
    smooth = 0.05
    u = episodes(env_with(delay=2, smoothing=smooth), KEYS[:1], ACTIONS[:1, :8]).moment.u[0, 1:, 0]
    expected, value, decay = [], 0.0, np.exp(-DT / smooth)
    for action in [0.0, 0.0, *np.clip(ACTIONS[0, :6, 0], -1.0, 1.0)]:
        value = action + decay * (value - action)
        expected.append(FORCE * value)
    np.testing.assert_allclose(u, expected, rtol=1e-12)


def test_observations_have_the_noise_that_was_asked_for():
    deviations = jnp.array([0.1, 0.2, 0.0, 0.4, 0.5])
    state = jaxdyn.batched(env_with(noise=deviations).reset)(jax.random.split(KEYS[0], 2000))
    noise = state.observation - jax.vmap(lambda now: observe(SYSTEM, now))(state.moment)
    # Six standard errors of a deviation, and of a correlation, from 2000 samples.
    np.testing.assert_allclose(noise.std(axis=0), deviations, rtol=6 / np.sqrt(4000), atol=1e-12)
    assert abs(np.corrcoef(noise[:, 0], noise[:, 1])[0, 1]) < 6 / np.sqrt(2000)
    assert abs(np.corrcoef(noise[:, 0], state.moment.state.q[:, 0])[0, 1]) < 6 / np.sqrt(2000)


def test_leaves_are_random_in_each_episode_and_only_those_are_stored():
    def randomize(system, key):
        return eqx.tree_at(
            lambda s: s.model.mass, system, system.model.mass * jax.random.uniform(key, (2,), minval=0.5)
        )

    env = env_with(randomize=randomize)
    run = episodes(env, KEYS[:4], ACTIONS[:4, : LIMIT + 1])
    assert [x.shape for x in jax.tree.leaves(run.changes)] == [(4, LIMIT + 2, 2)]
    masses = np.asarray(run.changes.model.mass)
    assert len(np.unique(masses[:, (0, -1)])) == 16  # all robots and both episodes differ
    np.testing.assert_array_equal(masses[:, :LIMIT], np.broadcast_to(masses[:, :1], (4, LIMIT, 2)))
    one = jax.tree.map(lambda x: x[1, 0], run)
    motion = jaxdyn.rollout(
        env.system_of(one), one.moment.state, FORCE * jnp.clip(ACTIONS[1, :3], -1, 1), dt=DT, steps=3, substeps=2
    )
    np.testing.assert_allclose(run.moment.state.q[1, 3], motion.final.q, rtol=0, atol=1e-12)


def test_systems_come_from_samples_and_commands_from_a_function():
    """`identify.samples(...).system` has such a leading axis."""
    masses = jnp.linspace(0.5, 2.0, 6).reshape(3, 2)
    machines = jax.vmap(lambda mass: eqx.tree_at(lambda s: s.model.mass, SYSTEM, mass))(masses)

    def randomize(system, key):
        return jax.tree.map(lambda x: x[jax.random.randint(key, (), 0, 3)], machines)

    env = env_with(randomize=randomize, command=lambda key: {"speed": jax.random.uniform(key)})
    state = jaxdyn.batched(env.reset)(jax.random.split(KEYS[1], 64))
    drawn = env.system_of(state).model.mass
    assert {tuple(row) for row in np.asarray(drawn)} == {tuple(row) for row in np.asarray(masses)}
    assert len(np.unique(state.moment.command["speed"])) == 64


def test_gradients_of_a_return_are_those_of_difference_quotients():
    def total(values):
        env = eqx.tree_at(lambda e: e.system.model.mass, env_with(delay=1, smoothing=0.03), values["mass"])

        def step(state, action):
            after = env.step(state, action)
            return after, after.reward

        return jax.lax.scan(step, env.reset(KEYS[0]), values["actions"])[1]

    values = {"mass": SYSTEM.model.mass, "actions": 0.7 * jnp.tanh(ACTIONS[0, :6])}
    check_derivatives(total, values, orders=1, in_lanes=True)


def test_the_interface_of_gymnax():
    env = GymnaxEnv(ENV)
    assert env.default_params.max_steps_in_episode == LIMIT
    assert env.action_space().shape == (1,)
    observation, state = jax.jit(env.reset)(KEYS[0])
    assert observation.shape == env.observation_space().shape
    *found, info = jax.jit(env.step)(KEYS[1], state, jnp.asarray(0.3))  # some libraries squeeze an action
    after = ENV.step(state, jnp.array([0.3]))
    for x, y in zip(found, (after.observation, after, after.reward, after.done), strict=True):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12),
            *(eqx.filter(z, eqx.is_inexact_array) for z in (x, y)),
        )
    assert set(info) == {"terminated", "truncated", "final_observation"}


def test_gymnasium_accepts_the_vector_environment_and_its_wrappers():
    pytest.importorskip("gymnasium")
    from gymnasium.wrappers.vector import RecordEpisodeStatistics

    env = RecordEpisodeStatistics(jaxdyn.envs.GymnasiumEnv(ENV, 3))
    runs = []
    for _ in range(2):
        observations = [env.reset(seed=5)[0]]
        env.action_space.seed(1)
        for _ in range(LIMIT):
            found, rewards, terminated, truncated, info = env.step(env.action_space.sample())
            assert env.observation_space.contains(found)
            assert rewards.shape == terminated.shape == truncated.shape == (3,)
            observations.append(found)
        runs.append(observations)
    np.testing.assert_array_equal(*runs)
    ended = terminated | truncated
    assert ended.any()
    np.testing.assert_array_equal(info["_final_obs"], ended)
    assert all((x is not None) == end for x, end in zip(info["final_obs"], ended, strict=True))
    np.testing.assert_array_equal(info["episode"]["l"][ended], np.asarray(env.unwrapped._state.last_steps)[ended])
    np.testing.assert_allclose(
        info["episode"]["r"][ended], np.asarray(env.unwrapped._state.last_total)[ended], rtol=1e-6
    )
    with pytest.raises(ValueError, match="no option 'reset_mask'"):
        env.unwrapped.reset(options={"reset_mask": ended})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"observe": lambda system: 0}, "the function observe of Env does not take the arguments system, now"),
        ({"observe": lambda system, now: now.t}, "observe of Env returns float64 of shape .*; return floats of shape"),
        ({"reward": lambda system, before, now: now.state.q}, "reward of Env returns float64 of shape"),
        ({"act": lambda system, now, action: now.state.q}, r"act of Env returns .*; return floats of shape \(1,\)"),
        ({"done": lambda system, now: now.t}, "done of Env returns float64 of shape .*; return booleans"),
        ({"start": lambda system, key: key}, "the function start of Env got"),
        ({"randomize": lambda system, key: system.changed(drives=None)}, "randomize of Env changes the structure"),
        ({"randomize": lambda system, key: system.model}, "randomize of Env works on a System"),
        ({"dt": 0.0}, "dt is 0.0 s; give a positive duration"),
        ({"time_limit": 1e-3}, "time_limit is 0.001 s"),
        ({"smoothing": -1.0}, "smoothing -1.0 s; give finite durations"),
        ({"smoothing": None}, "smoothing None s; give finite durations"),
        ({"delay": -1}, "delay is -1; give 0 or more"),
        ({"noise": [0.1, 0.2]}, r"noise has shape \(2,\); give one value, or one per component, shape \(5,\)"),
        ({"noise": -0.1}, "noise is -0.1; give finite standard deviations"),
    ],
)
def test_wrong_arguments_are_named(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        env_with(**options)


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda state: ENV.step(state.moment.state, jnp.zeros(1)), "state is a State; give the EnvState"),
        (lambda state: ENV.step(state, jnp.zeros(2)), r"action has shape \(2,\); give shape \(1,\)"),
        (lambda state: ENV.reset(3), "give a random key"),
        (lambda state: Env(SYSTEM.model, start, observe, reward, act, dt=DT), "Env works on a System"),
        (lambda state: GymnaxEnv(SYSTEM), "env is a System; give an Env"),
    ],
)
def test_wrong_states_actions_and_systems_are_named(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call(ENV.reset(KEYS[0]))
