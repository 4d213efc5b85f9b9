"""Does a cart-pole learn to swing up in a minute from gradients through the simulator?

Method. The short-horizon actor-critic (Xu et al., "Accelerated policy learning with parallel differentiable simulation", 2022) on
`jaxdyn.envs.Env`: the rewards of a window, and the value that the critic assigns to its end, are differentiated through all steps
of the environment with respect to the weights of the policy. The windows of all carts and their gradient are one forward and one
backward kernel of the lane compiler. The networks and the training loop are those of train_by_ppo.py, which takes no derivative of
the environment.

Expected. From a cart whose pole hangs down, the policy swings the pole up within the track and balances it there.

Run time. A minute of processor time. An interrupted run continues with --resume.

    python experiments/train_by_gradient.py [configs/train_by_gradient.toml] [--out DIR] [--resume] [--smoke] [key=value ...]
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array
from train_by_ppo import DISCOUNT, Agent, Course, advantages, verdict, window

import jaxdyn
from jaxdyn.envs import Env, EnvState, Moment
from jaxdyn.io import RunDirectory, seed_setting, setting
from jaxdyn.jobs import Job, main

FORCE, TRACK = 10.0, 2.4  # N and m, of the published cart-pole
UPRIGHT = 0.95  # cosine of the angle of a pole that stands


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        carts: Number of environments.
        iterations: Number of gradient steps of the policy.
        window: Number of steps through which the rewards are differentiated.
        units: Number of units of each of the two hidden layers of both networks.
        learning_rate: Learning rate, which decreases to a tenth along half a period of a cosine.
        batches: Number of batches of a window, with each of which the critic is updated once.
        every: Number of iterations between tests, each of which also writes a checkpoint.
        tested: Number of carts of a test.
        duration: Duration of a test; the pole must stand in its last second.
        seed: Seed of all random values.
    """

    carts: int = setting(512, positive=True)
    iterations: int = setting(300, positive=True)
    window: int = setting(24, positive=True)
    units: int = setting(64, positive=True)
    learning_rate: float = setting(5e-3, positive=True)
    batches: int = setting(16, positive=True)
    every: int = setting(25, positive=True)
    tested: int = setting(256, positive=True)
    duration: float = setting(6.0, unit="s", positive=True)
    seed: int = seed_setting()


def swing_up(spread: float) -> Env:
    """The environment: a pole that hangs down from a cart, within an angle `spread` (rad), is swung up and balanced."""
    system = jaxdyn.as_dtype(jaxdyn.library.system("cart_pole"), jnp.float32)

    def start(system: jaxdyn.System, key: Array) -> jaxdyn.State:
        of_angle, of_rest = jax.random.split(key)
        angle = np.pi + spread * jax.random.uniform(of_angle, (), jnp.float32, -1.0, 1.0)
        x, *v = 0.3 * jax.random.normal(of_rest, (3,), jnp.float32)
        return jaxdyn.State(jnp.stack([x, angle]), jnp.stack(v))

    def observe(system: jaxdyn.System, now: Moment) -> Array:
        (x, angle), v = now.state.q, now.state.v
        return jnp.stack([x, jnp.sin(angle), jnp.cos(angle), 0.5 * v[0], 0.3 * v[1]])

    def reward(system: jaxdyn.System, before: Moment, now: Moment) -> Array:
        (x, angle), v = now.state.q, now.state.v
        costs = 0.1 * x**2 + 0.01 * v[0] ** 2 + 0.006 * v[1] ** 2 + 0.01 * now.action[0] ** 2
        return 0.1 * (1.0 + jnp.cos(angle) - costs)

    def act(system: jaxdyn.System, now: Moment, action: Array) -> Array:
        return FORCE * action

    def leaves(system: jaxdyn.System, now: Moment) -> Array:
        return jnp.abs(now.state.q[0]) > TRACK

    return Env(system, start, observe, reward, act, done=leaves, dt=0.05, substeps=5, time_limit=6.0)


class Learner(eqx.Module):
    """All that an iteration changes."""

    agent: Any
    memories: Any
    robots: EnvState


class Study:
    """Training and tests of one config."""

    def __init__(self, config: Config):
        self.config, self.env, self.hanging = config, swing_up(np.pi), swing_up(0.1)
        rate = optax.cosine_decay_schedule(config.learning_rate, config.iterations, 0.1)
        self.optimizers = tuple(
            optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate, b2=0.99)) for rate in (rate, 2e-3)
        )

    def begin(self) -> Learner:
        of_agent, of_robots = jax.random.split(jax.random.key(self.config.seed))
        agent = Agent.of(self.env, self.config.units, of_agent)
        robots = jaxdyn.batched(self.env.reset)(jax.random.split(of_robots, self.config.carts))
        memories = tuple(optimizer.init(eqx.filter(agent, eqx.is_array)) for optimizer in self.optimizers)
        return Learner(agent, memories, robots)

    @eqx.filter_jit
    def iterate(self, learner: Learner, key: Array) -> tuple[Learner, dict[str, Array]]:
        config, (for_policy, for_critic) = self.config, self.optimizers
        arrays, rest = eqx.partition(learner.agent, eqx.is_array)

        def of_one(arrays, robot, key):
            return window(self.env, config.window, eqx.combine(arrays, rest), robot, key)

        keys = jax.random.split(key, config.carts)

        def objective(arrays):
            robots, steps, last = jaxdyn.batched(of_one, (None, 0, 0))(arrays, learner.robots, keys)

            def later(weight, end):  # a new episode is worth as much as the first one
                return jnp.where(end, 1.0, DISCOUNT * weight), weight

            weight, weights = jax.lax.scan(later, jnp.ones(config.carts, jnp.float32), steps.end.T)
            total = jnp.sum(weights.T * steps.reward, axis=1) + weight * last
            return -jnp.mean(total), (robots, steps, last)

        slope, (robots, steps, last) = jax.grad(objective, has_aux=True)(arrays)
        slope = eqx.tree_at(lambda a: a.critic, slope, replace_fn=lambda c: jax.tree.map(jnp.zeros_like, c))
        changes, memory = for_policy.update(slope, learner.memories[0])
        found = steps.observation, steps.value + advantages(steps, last)
        parts = jax.tree.map(lambda x: x.reshape(config.batches, -1, *x.shape[2:]), found)

        def fit(carry, part):
            arrays, memory = carry
            error = jax.grad(lambda a: squared_error(eqx.combine(a, rest), *part))(arrays)
            changes, memory = for_critic.update(error, memory)
            return (optax.apply_updates(arrays, changes), memory), None

        start = optax.apply_updates(arrays, changes), learner.memories[1]
        (arrays, of_critic), _ = jax.lax.scan(fit, start, parts)
        log = {"reward": jnp.mean(steps.reward), "gradient": optax.global_norm(slope)}
        return Learner(eqx.combine(arrays, rest), (memory, of_critic), robots), log

    @eqx.filter_jit
    def motions(self, agent: Agent, key: Array, count: int) -> jaxdyn.State:
        """States (carts, steps) without random actions."""
        arrays, rest = eqx.partition(agent, eqx.is_array)

        def of_one(arrays, key):
            def step(state, _):
                after = self.hanging.step(state, eqx.combine(arrays, rest).actor(state.observation))
                return after, state.moment.state

            steps = round(self.config.duration / self.env.dt)
            return jax.lax.scan(step, self.hanging.reset(key), None, length=steps)[1]

        return jaxdyn.batched(of_one, (None, 0))(arrays, jax.random.split(key, count))

    def tested(self, agent: Agent, key: Array) -> dict[str, float]:
        """Share of the carts whose pole stands during the last second."""
        angle = np.asarray(self.motions(agent, key, self.config.tested).q[:, -round(1.0 / self.env.dt) :, 1])
        return {"success": float(np.mean((np.cos(angle) > UPRIGHT).all(axis=1)))}


def squared_error(agent: Agent, observations: Array, targets: Array) -> Array:
    return jnp.mean((jax.vmap(agent.critic)(observations) - targets) ** 2)


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    study = Study(config)
    course = Course(study, directory)
    course.run()
    final = study.tested(course.learner.agent, jax.random.key(config.seed + 3))
    print(f"success {final['success']:.3f}")
    course.draw("reward", "success")
    course.show(
        study.motions(course.learner.agent, jax.random.key(config.seed + 4), 4), "Cart-pole that learned to swing up"
    )
    return {"final": final, "first_success_processor_s": course.first_success(), "log": course.log}


JOB = Job(
    "train-by-gradient",
    __doc__ or "",
    Config,
    work,
    inputs=lambda config: (),
    verdict=verdict,
    then=("jaxdyn view {run}",),
)

if __name__ == "__main__":
    default = Path(__file__).parents[1] / "configs" / f"{Path(__file__).stem}.toml"
    sys.exit(main(JOB, default_config=str(default)))
