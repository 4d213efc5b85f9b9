"""Does a quadruped learn to walk at a commanded speed by proximal policy optimization, in five minutes on two processor cores?

Method. `jaxdyn.envs.Env` is the quadruped on compliant feet: fifty times per second a policy of two hidden layers moves the targets
of PD controllers about a stance. Masses and friction differ from episode to episode, observations are noisy, and the command is a
speed. The agent learns by proximal policy optimization (Schulman et al. 2017) with generalized advantages (Schulman et al. 2016).
The environments, the policy and its random actions of a whole window are one kernel of the lane compiler; the updates of the
networks are ordinary JAX.

Expected. The robots first learn to stand, then to walk. There is no reference
motion; a clock in the reward asks each diagonal pair of feet to be in the air in its half of the period.

Run time. Five to ten minutes of processor time, which two cores share. An interrupted run continues with --resume.

    python experiments/train_by_ppo.py [configs/train_by_ppo.toml] [--out DIR] [--resume] [--smoke] [key=value ...]
"""

import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float
from tqdm import tqdm

import jaxdyn
from jaxdyn import view
from jaxdyn.dynamics import GroundContact, JointServo, contact_forces, contact_sphere
from jaxdyn.envs import Env, EnvState, Moment
from jaxdyn.io import RunDirectory, seed_setting, setting
from jaxdyn.jobs import Job, main
from jaxdyn.spatial import quaternion

LEGS = ("fl", "fr", "rl", "rr")
STANCE = np.array([0.0, 0.65, -1.3] * len(LEGS), np.float32)  # rad: abduction, flexion, knee
STIFFNESS, DAMPING = 60.0, 2.0  # of the PD controllers, N m/rad and N m s/rad
LARGEST_TARGET = 0.5  # rad from the stance, for an action of one
HEIGHT = 0.32  # m, of the trunk
DISCOUNT, TRACE, CLIP = 0.97, 0.95, 0.2
# A robot walks if it stays upright and reaches this part of its commanded speed; training succeeds if this share of robots walks.
PART_OF_SPEED, SHARE_OF_SUCCESS = 0.7, 0.95
SHOWN = 4.0  # s of the animation
PHASES = np.array([0.0, 0.5, 0.5, 0.0], np.float32)  # of the legs: diagonal pairs move together
PERIOD, CLEARANCE = 0.5, 0.06  # s, and m: largest height of a foot


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        robots: Number of environments.
        iterations: Number of windows, each of which is followed by updates.
        window: Number of steps of a window.
        units: Number of units of each of the two hidden layers of both networks.
        learning_rate: Learning rate, which decreases to a tenth along half a period of a cosine.
        passes: Number of passes over a window.
        batches: Number of batches of a pass.
        entropy: Weight of the entropy of the policy.
        speeds: Range of the commanded speed.
        every: Number of iterations between tests, each of which also writes a checkpoint.
        tested: Number of robots of a test.
        duration: Duration of a test.
        seed: Seed of all random values.
    """

    robots: int = setting(1024, positive=True)
    iterations: int = setting(150, positive=True)
    window: int = setting(24, positive=True)
    units: int = setting(64, positive=True)
    learning_rate: float = setting(1e-3, positive=True)
    passes: int = setting(4, positive=True)
    batches: int = setting(8, positive=True)
    entropy: float = setting(0.002, minimum=0.0)
    speeds: tuple[float, float] = setting((0.3, 0.7), unit="m/s")
    every: int = setting(25, positive=True)
    tested: int = setting(256, positive=True)
    duration: float = setting(10.0, unit="s", positive=True)
    seed: int = seed_setting()


def quadruped(speeds: tuple[float, float]) -> Env:
    """The environment: a quadruped on flat ground that is asked to walk ahead at a speed within a range."""
    whole = jaxdyn.library.system("quadruped")
    model, legs = whole.model, np.arange(whole.model.nv) >= 6
    stance = jnp.asarray(jaxdyn.configuration.neutral(model)).at[2].set(HEIGHT + 0.02).at[7:].set(STANCE)
    feet = [contact_sphere(f"{leg}_foot", radius=0.02) for leg in LEGS]
    parts = JointServo(STIFFNESS * legs, DAMPING * legs, stance), GroundContact.of(model, feet, slip_speed=0.02)
    system = jaxdyn.as_dtype(jaxdyn.System(model, parts, whole.drives), jnp.float32)

    def start(system: jaxdyn.System, key: Array) -> jaxdyn.State:
        of_q, of_v = jax.random.split(key)
        step = jnp.zeros(19, jnp.float32).at[7:].set(0.1 * jax.random.normal(of_q, (12,), jnp.float32))
        return jaxdyn.State(stance.astype(jnp.float32) + step, 0.1 * jax.random.normal(of_v, (18,), jnp.float32))

    def randomize(system: jaxdyn.System, key: Array) -> jaxdyn.System:
        of_masses, of_friction = jax.random.split(key)
        factors = jax.random.uniform(of_masses, (model.nb,), jnp.float32, 0.8, 1.2)
        friction = jax.random.uniform(of_friction, (), jnp.float32, 0.5, 1.0)
        return eqx.tree_at(
            lambda s: (s.model.mass, s.model.inertia, s.forces[1].material.friction),
            system,
            (system.model.mass * factors, system.model.inertia * factors[:, None], friction),
        )

    def observe(system: jaxdyn.System, now: Moment) -> Float[Array, "50"]:
        q, v, rotation = now.state.q, now.state.v, quaternion.to_matrix(now.state.q[3:7])
        angle = 2.0 * np.pi * now.t / PERIOD
        given = jnp.stack([jnp.sin(angle), jnp.cos(angle), now.command, rotation[1, 0]])
        trunk = jnp.concatenate([given, rotation[2], 0.3 * v[:3], v[3:6], 10.0 * (q[2:3] - HEIGHT)])
        return jnp.concatenate([trunk, 2.0 * (q[7:] - STANCE), 0.1 * v[6:], now.action])

    def reward(system: jaxdyn.System, before: Moment, now: Moment) -> Float[Array, ""]:
        q, v, rotation = now.state.q, now.state.v, quaternion.to_matrix(now.state.q[3:7])
        velocity, feet = rotation @ v[3:6], contact_forces(system, now.state)
        phase = (now.t / PERIOD + PHASES) % 1.0
        lift = CLEARANCE * jnp.where(phase < 0.5, jnp.sin(2.0 * np.pi * phase), 0.0) ** 2
        slip = jnp.sum(feet.velocity[:, :2] ** 2, axis=1)
        off = (velocity[0] - now.command) ** 2 + velocity[1] ** 2
        costs = [
            2.0 * off + 0.5 * velocity[2] ** 2 + 0.1 * jnp.sum(v[:3] ** 2),
            5.0 * (rotation[2, 0] ** 2 + rotation[2, 1] ** 2) + 4.0 * (1.0 - rotation[0, 0]),
            30.0 * (q[2] - HEIGHT) ** 2 + jnp.sum(q[7::3] ** 2),
            jnp.sum(jnp.sqrt(1.0 + ((-feet.depth - lift) / 0.03) ** 2) - 1.0),
            0.5 * jnp.sum(jnp.where(phase < 0.5, 0.0, slip)),
            0.05 * jnp.sum((now.action - before.action) ** 2) + 5e-4 * jnp.sum(v[6:] ** 2),
        ]
        return 0.2 * jnp.exp(-off / 0.1) + 0.2 - 0.1 * sum(costs)

    def falls(system: jaxdyn.System, now: Moment) -> Array:
        rotation = quaternion.to_matrix(now.state.q[3:7])
        return (now.state.q[2] < 0.18) | (rotation[2, 2] < 0.7) | (rotation[0, 0] < 0.5)

    return Env(
        system, start, observe, reward,
        act=lambda system, now, action: STIFFNESS * LARGEST_TARGET * action,
        done=falls, randomize=randomize,
        command=lambda key: jax.random.uniform(key, (), jnp.float32, *speeds),
        noise=0.02, dt=0.02, substeps=5, time_limit=10.0,
    )  # fmt: skip


class Agent(eqx.Module):
    """The networks.

    Attributes:
        actor: Network from an observation to the mean of the actions.
        critic: Network from an observation to its value.
        spread: Logarithm of the standard deviation of the actions.
    """

    actor: eqx.nn.MLP
    critic: eqx.nn.MLP
    spread: Float[Array, "actions"]

    @staticmethod
    def of(env: Env, units: int, key: Array) -> "Agent":
        """Random networks; the first actions are near zero."""
        of_actor, of_critic = jax.random.split(key)
        kind, inputs = {"activation": jnp.tanh, "dtype": jnp.float32}, env.observation_size
        actor = eqx.nn.MLP(inputs, env.action_size, units, 2, key=of_actor, **kind)
        actor = eqx.tree_at(lambda net: net.layers[-1].weight, actor, replace_fn=lambda weight: 0.1 * weight)
        critic = eqx.nn.MLP(inputs, "scalar", units, 2, key=of_critic, **kind)
        return Agent(actor, critic, jnp.full(env.action_size, -0.7, jnp.float32))

    def log_density(self, observation: Array, action: Array) -> Float[Array, ""]:
        """Logarithm of the density of an action, but for a constant."""
        return -jnp.sum(0.5 * ((action - self.actor(observation)) * jnp.exp(-self.spread)) ** 2 + self.spread)


class Steps(eqx.Module):
    """Data from which an agent learns; leading axes: robots, steps."""

    observation: Array
    action: Array
    log_density: Array
    value: Array
    reward: Array
    end: Array


def window(env: Env, steps: int, agent: Agent, state: EnvState, key: Array) -> tuple[EnvState, Steps, Array]:
    """The steps of one robot, and the value at their end."""

    def step(state: EnvState, key: Array) -> tuple[EnvState, Steps]:
        seen = state.observation
        action = agent.actor(seen) + jnp.exp(agent.spread) * jax.random.normal(key, agent.spread.shape, jnp.float32)
        after = env.step(state, action)
        # The value of a truncated episode continues from its last observation.
        reward = after.reward + jnp.where(after.truncated, DISCOUNT * agent.critic(after.final_observation), 0.0)
        return after, Steps(seen, action, agent.log_density(seen, action), agent.critic(seen), reward, after.done)

    state, found = jax.lax.scan(step, state, jax.random.split(key, steps))
    return state, found, agent.critic(state.observation)


def advantages(steps: Steps, last: Array) -> Array:
    """Generalized advantages of the actions."""
    following = jnp.concatenate([steps.value[:, 1:], last[:, None]], axis=1)
    errors = steps.reward + DISCOUNT * jnp.where(steps.end, 0.0, following) - steps.value

    def earlier(sum_: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        error, end = step
        sum_ = error + DISCOUNT * TRACE * jnp.where(end, 0.0, sum_)
        return sum_, sum_

    return jax.lax.scan(earlier, jnp.zeros_like(last), (errors.T, steps.end.T), reverse=True)[1].T


def loss(agent: Agent, steps: Steps, advantage: Array, entropy: float) -> Array:
    """The clipped surrogate, the error of the critic and the entropy of the policy."""
    ratio = jnp.exp(jax.vmap(agent.log_density)(steps.observation, steps.action) - steps.log_density)
    scaled = (advantage - jnp.mean(advantage)) / (jnp.std(advantage) + 1e-6)
    surrogate = jnp.mean(jnp.minimum(ratio * scaled, jnp.clip(ratio, 1.0 - CLIP, 1.0 + CLIP) * scaled))
    error = jnp.mean((jax.vmap(agent.critic)(steps.observation) - steps.value - advantage) ** 2)
    return 0.5 * error - surrogate - entropy * jnp.sum(agent.spread)


class Learner(eqx.Module):
    """All that an iteration changes."""

    agent: Any
    memory: Any
    robots: EnvState


class Study:
    """Training and tests of one config."""

    def __init__(self, config: Config):
        self.config, self.env = config, quadruped(config.speeds)
        decreasing = optax.cosine_decay_schedule(
            config.learning_rate, config.iterations * config.passes * config.batches, 0.1
        )
        self.optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(decreasing))

    def begin(self) -> Learner:
        of_agent, of_robots, of_steps = jax.random.split(jax.random.key(self.config.seed), 3)
        agent = Agent.of(self.env, self.config.units, of_agent)
        robots = jaxdyn.batched(self.env.reset)(jax.random.split(of_robots, self.config.robots))
        # Episodes that begin together end together, so some of the first ones are shorter.
        passed = jax.random.randint(of_steps, robots.steps.shape, 0, self.env.most_steps or 1)
        robots = eqx.tree_at(lambda r: r.steps, robots, passed)
        return Learner(agent, self.optimizer.init(eqx.filter(agent, eqx.is_array)), robots)

    @eqx.filter_jit
    def iterate(self, learner: Learner, key: Array) -> tuple[Learner, dict[str, Array]]:
        config, (of_steps, of_order) = self.config, jax.random.split(key)
        arrays, rest = eqx.partition(learner.agent, eqx.is_array)

        def of_one(arrays, robot, key):
            return window(self.env, config.window, eqx.combine(arrays, rest), robot, key)

        keys = jax.random.split(of_steps, config.robots)
        robots, steps, last = jaxdyn.batched(of_one, (None, 0, 0))(arrays, learner.robots, keys)
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (steps, advantages(steps, last)))
        count = config.robots * config.window

        def update(carry, chosen):
            arrays, memory = carry
            some, advantage = jax.tree.map(lambda x: x[chosen], flat)
            slope = jax.grad(lambda a: loss(eqx.combine(a, rest), some, advantage, config.entropy))(arrays)
            changes, memory = self.optimizer.update(slope, memory)
            return (optax.apply_updates(arrays, changes), memory), None

        orders = jax.vmap(lambda key: jax.random.permutation(key, count))(jax.random.split(of_order, config.passes))
        orders = orders.reshape(config.passes * config.batches, -1)
        (arrays, memory), _ = jax.lax.scan(update, (arrays, learner.memory), orders)
        log = {"reward": jnp.mean(steps.reward), "deviation": jnp.exp(jnp.mean(learner.agent.spread))}
        return Learner(eqx.combine(arrays, rest), memory, robots), log

    @eqx.filter_jit
    def motions(self, agent: Agent, key: Array, count: int) -> tuple[jaxdyn.State, Array, Array]:
        """States and falls (robots, steps), and commanded speeds, without random actions."""
        steps = round(self.config.duration / self.env.dt)
        arrays, rest = eqx.partition(agent, eqx.is_array)

        def of_one(arrays, key):
            def step(state, _):
                after = self.env.step(state, eqx.combine(arrays, rest).actor(state.observation))
                return after, (state.moment.state, after.terminated)

            first = self.env.reset(key)
            return *jax.lax.scan(step, first, None, length=steps)[1], first.moment.command

        return jaxdyn.batched(of_one, (None, 0))(arrays, jax.random.split(key, count))

    def tested(self, agent: Agent, key: Array) -> dict[str, float]:
        """Speeds and success of robots that were not seen in training."""
        states, falls, command = jax.tree.map(np.asarray, self.motions(agent, key, self.config.tested))
        upright, x = ~falls.any(axis=1), states.q[:, states.q.shape[1] // 5 :, 0]
        speed = (x[:, -1] - x[:, 0]) / (self.env.dt * (x.shape[1] - 1))
        return {
            "success": float(np.mean(upright & (speed > PART_OF_SPEED * command))),
            "upright": float(np.mean(upright)),
            "speed": float(speed.mean()),
            "speed_error": float(np.abs(speed - command).mean()),
        }


class Course:
    """Training with its log, tests, checkpoints and progress bar.

    Attributes:
        study: Object with a config, and with the methods `begin`, `iterate` and `tested`.
        directory: Directory of the run.
        learner: All that an iteration changes.
        log: Values of each test by name, with the processor time of imports, compilations, training and tests.
    """

    def __init__(self, study: Any, directory: RunDirectory):
        self.study, self.directory = study, directory
        self.learner, self.log, self.spent = study.begin(), {"processor_s": [0.0], "iteration": [0.0]}, 0.0
        if directory.reusable("checkpoint"):
            saved = directory.read_arrays("checkpoint")
            arrays, rest = eqx.partition(self.learner, eqx.is_array)
            leaves, tree = jax.tree.flatten(arrays)
            found = [restored(leaf, saved[f"leaf_{k}"]) for k, leaf in enumerate(leaves)]
            self.learner = eqx.combine(jax.tree.unflatten(tree, found), rest)
            self.log = {name.removeprefix("log_"): x.tolist() for name, x in saved.items() if name.startswith("log_")}
            self.spent = self.log["processor_s"][-1]

    def save(self) -> None:
        leaves = jax.tree.leaves(eqx.filter(self.learner, eqx.is_array))
        arrays = {f"leaf_{k}": jax.random.key_data(x) if is_key(x) else x for k, x in enumerate(leaves)}
        self.directory.write_arrays("checkpoint", **arrays, **{f"log_{k}": np.array(x) for k, x in self.log.items()})
        eqx.tree_serialise_leaves(self.directory.path("agent.eqx"), self.learner.agent)

    def run(self) -> None:
        config, key = self.study.config, jax.random.key(self.study.config.seed + 1)
        done = int(self.log["iteration"][-1])
        with tqdm(total=config.iterations, initial=done, unit="iteration") as bar:
            while done < config.iterations:
                self.learner, log = self.study.iterate(self.learner, jax.random.fold_in(key, done))
                jax.block_until_ready(log)
                done += 1
                bar.update()
                if done % config.every == 0 or done == config.iterations:
                    results = self.study.tested(self.learner.agent, jax.random.key(config.seed + 2))
                    row = {"processor_s": self.spent + time.process_time(), "iteration": done} | log | results
                    bar.write(", ".join(f"{name} {float(value):.3g}" for name, value in row.items()))
                    for name, value in row.items():
                        self.log.setdefault(name, []).append(float(value))
                    self.save()

    def first_success(self) -> float | None:
        """Processor time to the first test in which enough samples succeed, in s; None if there is none."""
        times = self.log["processor_s"][1:]
        return next((t for t, x in zip(times, self.log["success"], strict=True) if x >= SHARE_OF_SUCCESS), None)

    def draw(self, *names: str) -> None:
        """The values of these names over processor time, as curve.png."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8, 2.2 * len(names)), layout="constrained")
        for axis, name in zip(figure.subplots(len(names), 1, sharex=True), names, strict=True):
            axis.plot(self.log["processor_s"][-len(self.log[name]) :], self.log[name], marker=".")
            axis.set_ylabel(name)
            axis.grid(alpha=0.3)
        figure.axes[-1].set_xlabel("processor time (s)")
        view.save(figure, self.directory.path("curve.png"))

    def show(self, states: jaxdyn.State, title: str) -> None:
        """Motions (samples, steps) as a run for `jaxdyn view`, and the first seconds of the first one as motion.gif."""
        env, t = self.study.env, self.study.env.dt * np.arange(states.q.shape[1])
        self.directory.write_arrays("states", time=t, q=states.q, v=states.v)
        self.directory.write_mechanism(env.system)
        q, v = (np.asarray(x[:1, t < SHOWN]) for x in (states.q, states.v))
        path, options = self.directory.path("motion.gif"), {"fps": 20, "size": 400, "progress": False}
        view.animate(env.system, t[t < SHOWN], q, path, v=v, title=title, **options)


def is_key(x: Array) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def restored(leaf: Array, saved: np.ndarray) -> Array:
    return jax.random.wrap_key_data(jnp.asarray(saved)) if is_key(leaf) else jnp.asarray(saved)


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    study = Study(config)
    course = Course(study, directory)
    course.run()
    agent = course.learner.agent
    final = study.tested(agent, jax.random.key(config.seed + 3))
    print(", ".join(f"{name} {value:.3f}" for name, value in final.items()))
    course.draw("reward", "speed_error", "success")
    course.show(study.motions(agent, jax.random.key(config.seed + 4), 4)[0], "Quadruped that learned to walk")
    return {"final": final, "first_success_processor_s": course.first_success(), "log": course.log}


def verdict(metrics: dict[str, Any]) -> str | None:
    if metrics["smoke"] or metrics["final"]["success"] >= SHARE_OF_SUCCESS:
        return None
    return "the policy does not succeed reliably; train for more iterations or with another seed"


JOB = Job(
    "train-by-ppo",
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
