"""Can a quadruped learn to trot on flat and bumpy ground in five minutes on two processor cores?

Method. A small network is the policy: fifty times per second, it maps the state and a clock to target angles of the twelve joints,
which PD controllers follow. It learns by the short-horizon actor-critic (Xu et al., "Accelerated policy learning with parallel
differentiable simulation", 2022): the cost of a window of a third of a second, and the value that a second network (the critic)
assigns to its end, are differentiated through all contacts with respect to the weights of the policy. The rollout of all robots and
its gradient are one forward and one backward kernel of the lane compiler. Each robot has its own masses, friction and bumps, and a
robot that falls is replaced by another one.

Given are the cost, a clock with the period of the trot, the gains of the PD controllers and a stance, around which the policy
begins with weights near zero. The clock enters the cost: the feet of a diagonal pair should be lifted in the same half of the
period. Learned is everything else: there is no reference motion, no inverse kinematics and no foot placement rule.

Expected. From robots that stand or fall, the policy becomes a trot within some hundred iterations. The final test simulates
robots that were not seen in training, with a sharper onset of contact,
for ten seconds from random states. A robot succeeds if it stays upright,
moves faster than 0.3 m/s, and the contacts of diagonal feet are correlated by more than 0.5.

Run time. Two to five minutes of processor time (two cores share it), of which compilation takes a fifth. An interrupted run
continues with --resume.

    python experiments/quadruped_trot.py [configs/quadruped_trot.toml] [--out DIR] [--resume] [--smoke] [key=value ...]
"""

import dataclasses
import sys
import time
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float
from tqdm import tqdm

import jaxdyn
from jaxdyn import view
from jaxdyn.dynamics import GroundContact, HeightFunction, HeightGrid, JointServo, contact_forces, contact_sphere
from jaxdyn.io import RunDirectory, seed_setting, setting
from jaxdyn.jobs import Job, main
from jaxdyn.spatial import quaternion

LEGS = ("fl", "fr", "rl", "rr")
PHASES = np.array([0.0, 0.5, 0.5, 0.0])  # of the legs: diagonal pairs move together
STANCE = np.array([0.0, 0.65, -1.3] * len(LEGS))  # rad: abduction, flexion, knee
FREE = 6  # velocity components of the trunk
FOOT_RADIUS = 0.02  # m
STIFFNESS, DAMPING = 60.0, 2.0  # of the PD controllers, N m/rad and N m s/rad
LARGEST_TARGET = 0.5  # rad per unit of the output of the policy
HEIGHT = 0.32  # m, of the trunk above the ground
WAVES = 3  # of the bumpy ground
WAVE_LENGTHS = (0.4, 1.2)  # m
DISCOUNT, TRACE = 0.97, 0.95  # per control step; TRACE is the lambda of the targets of the critic
FALLEN = 10.0  # value of a fall; the mean cost of a step of a trot is about one
CRITIC_UNITS, CRITIC_BATCHES = 64, 8
RENEWED = 0.05  # fraction of the robots that are replaced after each window although they did not fall
SPEED_OF_SUCCESS, CORRELATION_OF_SUCCESS, SHARE_OF_SUCCESS = 0.3, 0.5, 0.95
SETTLED = 1.0  # s; speed and contacts are judged after this time


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings.

    Attributes:
        robots: Number of robots that are simulated together.
        iterations: Number of gradient steps.
        window: Number of control steps through which the cost is differentiated.
        units: Number of units of each of the two hidden layers of the policy.
        learning_rate: Learning rate of the policy, which decreases to a tenth along half a period of a cosine.
        rate: Rate of the policy.
        substeps: Number of integrator steps per control step.
        period: Period of the clock.
        speed: Desired speed along x.
        clearance: Desired largest height of a foot above the ground.
        bumps: Largest height of bumps and depth of hollows of the ground, which differs from robot to robot.
        masses: Largest relative deviation of the mass of each body.
        friction: Range of the friction coefficient.
        every: Number of iterations between tests, each of which also writes a checkpoint.
        tested: Number of robots of a test on flat ground, and of one on bumpy ground.
        duration: Duration of a test.
        seed: Seed of all random values.
    """

    robots: int = setting(1024, positive=True)
    iterations: int = setting(800, positive=True)
    window: int = setting(16, positive=True)
    units: int = setting(32, positive=True)
    learning_rate: float = setting(2e-3, positive=True)
    rate: float = setting(50.0, unit="Hz", positive=True)
    substeps: int = setting(5, positive=True)
    period: float = setting(0.5, unit="s", positive=True)
    speed: float = setting(0.5, unit="m/s")
    clearance: float = setting(0.06, unit="m", positive=True)
    bumps: float = setting(0.03, unit="m", minimum=0.0)
    masses: float = setting(0.2, minimum=0.0)
    friction: tuple[float, float] = setting((0.5, 1.0))
    every: int = setting(50, positive=True)
    tested: int = setting(256, positive=True)
    duration: float = setting(10.0, unit="s", positive=True)
    seed: int = seed_setting()

    @property
    def dt(self) -> float:
        return 1.0 / self.rate


class Bumps(eqx.Module):
    """Height of the ground, a sum of waves.

    Attributes:
        amplitude: Amplitude of each wave, m.
        waves: Wave vectors, rad/m.
        phases: Phases, rad.
    """

    amplitude: Float[Array, ""]
    waves: Float[Array, "waves 2"]
    phases: Float[Array, "waves"]

    def __call__(self, xy: Float[Array, "2"]) -> Float[Array, ""]:
        return self.amplitude * jnp.sum(jnp.sin(self.waves[:, 0] * xy[0] + self.waves[:, 1] * xy[1] + self.phases))


class Domain(eqx.Module):
    """Values that differ from robot to robot.

    Attributes:
        masses: Factors of the masses and inertias of the bodies.
        friction: Friction coefficient of the feet.
        ground: Height of the ground.
    """

    masses: Float[Array, "nb"]
    friction: Float[Array, ""]
    ground: Bumps


class Robots(NamedTuple):
    """Robots during training; leading axis of all arrays: robots."""

    domain: Domain
    state: jaxdyn.State
    clock: Float[Array, "robots"]


class Learner(NamedTuple):
    """All that an iteration changes."""

    policy: Any
    critic: Any
    policy_memory: Any
    critic_memory: Any
    robots: Robots


def quadruped(**material: float) -> jaxdyn.System:
    """The quadruped on feet, with PD controllers that hold its stance; the policy adds torques that move their targets."""
    whole = jaxdyn.library.system("quadruped")
    model = whole.model
    feet = [contact_sphere(f"{leg}_foot", radius=FOOT_RADIUS) for leg in LEGS]
    level = Bumps(jnp.zeros(()), jnp.zeros((WAVES, 2)), jnp.zeros(WAVES))
    contact = GroundContact.of(model, feet, HeightFunction(level), **material)
    of_joints = np.arange(model.nv) >= FREE
    stance = jnp.asarray(jaxdyn.configuration.neutral(model)).at[FREE + 1 :].set(STANCE)
    servo = JointServo(STIFFNESS * of_joints, DAMPING * of_joints, stance)
    return jaxdyn.as_dtype(jaxdyn.System(model, (servo, contact), whole.drives), jnp.float32)


def placed(system: jaxdyn.System, domain: Domain) -> jaxdyn.System:
    """The robot with the masses, the friction and the ground of a domain."""
    return eqx.tree_at(
        lambda s: (s.model.mass, s.model.inertia, s.forces[1].material.friction, s.forces[1].surface.function),
        system,
        (
            system.model.mass * domain.masses,
            system.model.inertia * domain.masses[:, None],
            domain.friction,
            domain.ground,
        ),
    )


def observe(config: Config, t: Array, state: jaxdyn.State) -> Float[Array, "36"]:
    """The inputs of the policy: clock, orientation, velocities and angles, scaled to the order of one."""
    angle, rotation = 2.0 * np.pi * t / config.period, quaternion.to_matrix(state.q[3:7])
    return jnp.concatenate(
        [
            jnp.stack([jnp.sin(angle), jnp.cos(angle)]),
            rotation[2],
            rotation[1, :1],
            0.3 * state.v[:3],
            state.v[3:FREE],
            2.0 * (state.q[FREE + 1 :] - STANCE.astype(np.float32)),
            0.1 * state.v[FREE:],
        ]
    )


def costs(
    config: Config, system: jaxdyn.System, ground: Bumps, t: Array, state: jaxdyn.State, u: Array
) -> Float[Array, "terms"]:
    """The cost of a step, by terms."""
    q, v = state.q, state.v
    rotation, feet = quaternion.to_matrix(q[3:7]), contact_forces(system, state)
    velocity = rotation @ v[3:FREE]
    phase = (t / config.period + PHASES.astype(np.float32)) % 1.0
    swings = phase < 0.5
    lift = config.clearance * jnp.where(swings, jnp.sin(2.0 * np.pi * phase), 0.0) ** 2
    slip = jnp.sum(feet.velocity[:, :2] ** 2, axis=1)
    return jnp.stack(
        [
            4.0 * ((velocity[0] - config.speed) ** 2 + velocity[1] ** 2),
            0.5 * velocity[2] ** 2,
            0.1 * jnp.sum(v[:3] ** 2),
            5.0 * (rotation[2, 0] ** 2 + rotation[2, 1] ** 2) + 4.0 * (1.0 - rotation[0, 0]),
            30.0 * (q[2] - ground(q[:2]) - HEIGHT) ** 2,
            2.0 * jnp.sum(jnp.sqrt(1.0 + ((-feet.depth - lift) / 0.03) ** 2) - 1.0),
            0.5 * jnp.sum(jnp.where(swings, 0.0, slip)),
            0.2 * jnp.sum((u / STIFFNESS) ** 2) + 5e-4 * jnp.sum(v[FREE:] ** 2),
            2.0 * jnp.sum(q[FREE + 1 :: 3] ** 2),
        ]
    )


def stands(domain: Domain, q: Float[Array, "nq"]) -> Array:
    """Whether a robot is upright and did not turn around."""
    rotation = quaternion.to_matrix(q[3:7])
    return (q[2] - domain.ground(q[:2]) > 0.18) & (rotation[2, 2] > 0.7) & (rotation[0, 0] > 0.5)


class Study:
    """Training and tests of one config."""

    soft: ClassVar[dict[str, float]] = {"slip_speed": 0.02, "onset": 0.005}  # in training: smoother gradients
    stiff: ClassVar[dict[str, float]] = {"slip_speed": 0.005, "onset": 0.001}

    def __init__(self, config: Config):
        self.config = config
        self.training, self.test = quadruped(**self.soft), quadruped(**self.stiff)
        key_policy, key_critic = jax.random.split(jax.random.key(config.seed))
        inputs, outputs = 12 + 2 * len(STANCE), len(STANCE)
        policy = eqx.nn.MLP(inputs, outputs, config.units, 2, jnp.tanh, dtype=jnp.float32, key=key_policy)
        policy = eqx.tree_at(lambda net: net.layers[-1].weight, policy, replace_fn=lambda weight: 0.1 * weight)
        critic = eqx.nn.MLP(inputs + 1, "scalar", CRITIC_UNITS, 2, jnp.tanh, dtype=jnp.float32, key=key_critic)
        (self.policy, self.policy_rest), (self.critic, self.critic_rest) = (
            eqx.partition(network, eqx.is_array) for network in (policy, critic)
        )
        decreasing = optax.cosine_decay_schedule(config.learning_rate, config.iterations, 0.1)
        self.policy_optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(decreasing, b2=0.99))
        self.critic_optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(2e-3))

    def begin(self) -> Learner:
        return Learner(
            self.policy,
            self.critic,
            self.policy_optimizer.init(self.policy),
            self.critic_optimizer.init(self.critic),
            self.new_robots(jax.random.key(self.config.seed), self.config.robots),
        )

    @eqx.filter_jit
    def new_robots(self, key: Array, count: int, largest_bumps: bool | None = None) -> Robots:
        """Random robots in random states near their stance.

        Args:
            key: Random key.
            count: Number of robots.
            largest_bumps: Whether the ground is flat (False) or as bumpy as possible (True); if None, it is random.
        """
        config, model = self.config, self.training.model
        keys = iter(jax.random.split(key, 12))

        def uniform(lower, upper, *shape):
            return jax.random.uniform(next(keys), (count, *shape), minval=lower, maxval=upper)

        def normal(deviation, *shape):
            return jnp.asarray(deviation) * jax.random.normal(next(keys), (count, *shape))

        length, direction = uniform(*WAVE_LENGTHS, WAVES), uniform(0.0, 2.0 * np.pi, WAVES)
        waves = (2.0 * np.pi / length)[..., None] * jnp.stack([jnp.cos(direction), jnp.sin(direction)], axis=-1)
        share = uniform(0.0, 1.0) if largest_bumps is None else jnp.full(count, float(largest_bumps))
        ground = Bumps(share * config.bumps / WAVES, waves, uniform(0.0, 2.0 * np.pi, WAVES))
        masses = uniform(1.0 - config.masses, 1.0 + config.masses, model.nb)
        domain = Domain(masses, uniform(*config.friction), ground)
        xy, rotation = uniform(-1.0, 1.0, 2), jax.vmap(quaternion.exponential)(normal([0.05, 0.05, 0.15], 3))
        z = jax.vmap(Bumps.__call__)(ground, xy) + HEIGHT + 0.02
        q = jnp.concatenate([xy, z[:, None], rotation, STANCE.astype(np.float32) + normal(0.15, len(STANCE))], axis=1)
        v = normal(0.15, model.nv)
        v = v.at[:, 3].add(uniform(0.0, config.speed))
        return Robots(domain, jaxdyn.State(q, v), uniform(0.0, config.period))

    def controls(self, policy: Any):
        """The policy as controls of a rollout: torques that move the targets of the PD controllers."""
        network = eqx.combine(policy, self.policy_rest)
        return lambda t, state, key: STIFFNESS * LARGEST_TARGET * network(observe(self.config, t, state))

    def value(self, critic: Any, features: Array) -> Array:
        return 3.0 * eqx.combine(critic, self.critic_rest)(features)

    def window(self, policy: Any, robot: Robots):
        """The cost of one robot along a window, by step and term, and the inputs of the critic."""
        config, system = self.config, placed(self.training, robot.domain)

        def save(t, state, u):
            height = state.q[2] - robot.domain.ground(state.q[:2]) - HEIGHT
            return costs(config, system, robot.domain.ground, t, state, u), jnp.append(
                observe(config, t, state), 10.0 * height
            )

        motion = jaxdyn.rollout(
            system,
            robot.state,
            self.controls(policy),
            dt=config.dt,
            steps=config.window,
            substeps=config.substeps,
            save=save,
            t0=robot.clock,
        )
        return *motion.saved, motion.final, motion.healthy

    def loss(self, policy: Any, critic: Any, robots: Robots):
        terms, features, final, healthy = jax.vmap(self.window, (None, 0))(policy, robots)
        cost = jnp.sum(terms[:, 1:], axis=2)
        upright = healthy & jax.vmap(stands)(robots.domain, final.q)
        end = jnp.where(upright, jax.vmap(self.value, (None, 0))(critic, features[:, -1]), FALLEN)
        within = (1.0 - DISCOUNT) * jnp.sum(cost * DISCOUNT ** np.arange(self.config.window, dtype=np.float32), axis=1)
        each = within + DISCOUNT**self.config.window * end
        return jnp.mean(jnp.where(healthy, each, 0.0)), (terms, features, final, upright)

    def targets(self, critic: Any, terms: Array, features: Array, upright: Array) -> Array:
        """The values that the critic should assign, TD(lambda)."""
        values = jax.vmap(jax.vmap(self.value, (None, 0)), (None, 0))(critic, features)
        end = jnp.where(upright, values[:, -1], FALLEN)
        following = jnp.concatenate([values[:, 1:-1], end[:, None]], axis=1)

        def earlier(target, step):
            cost, value = step
            target = (1.0 - DISCOUNT) * cost + DISCOUNT * ((1.0 - TRACE) * value + TRACE * target)
            return target, target

        cost = jnp.sum(terms[:, 1:], axis=2)
        _, targets = jax.lax.scan(earlier, end, (cost.T, following.T), reverse=True)
        return jnp.minimum(targets.T, 2.0 * FALLEN)

    def improve_critic(self, learner: Learner, features: Array, targets: Array, key: Array):
        features, targets = features[:, :-1].reshape(targets.size, -1), targets.reshape(-1)

        def update(carry, chosen):
            critic, memory = carry

            def error(critic):
                return jnp.mean((jax.vmap(self.value, (None, 0))(critic, features[chosen]) - targets[chosen]) ** 2)

            changes, memory = self.critic_optimizer.update(jax.grad(error)(critic), memory)
            return (optax.apply_updates(critic, changes), memory), None

        size = 2 * targets.size // CRITIC_BATCHES  # two passes
        order = jnp.concatenate([jax.random.permutation(k, targets.size) for k in jax.random.split(key)])
        chosen = order[: size * CRITIC_BATCHES].reshape(CRITIC_BATCHES, size)
        return jax.lax.scan(update, (learner.critic, learner.critic_memory), chosen)[0]

    @eqx.filter_jit
    def iterate(self, learner: Learner, key: Array) -> tuple[Learner, dict[str, Array]]:
        """One gradient step of the policy, some of the critic, and the robots at the end of the window."""
        gradient = jax.value_and_grad(self.loss, has_aux=True)
        (_, (terms, features, final, upright)), by_policy = gradient(learner.policy, learner.critic, learner.robots)
        norm = optax.global_norm(by_policy)
        by_policy = jax.tree.map(lambda x: jnp.where(jnp.isfinite(norm), x, 0.0), by_policy)
        changes, policy_memory = self.policy_optimizer.update(by_policy, learner.policy_memory)
        keys = jax.random.split(key, 3)
        targets = self.targets(learner.critic, terms, features, upright)
        critic, critic_memory = self.improve_critic(learner, features, targets, keys[0])
        clock = (learner.robots.clock + self.config.window * self.config.dt) % self.config.period
        stays = upright & (jax.random.uniform(keys[1], upright.shape) > RENEWED)
        robots = jax.tree.map(
            lambda old, new: jnp.where(stays.reshape(-1, *[1] * (old.ndim - 1)), old, new),
            Robots(learner.robots.domain, final, clock),
            self.new_robots(keys[2], len(stays)),
        )
        policy = optax.apply_updates(learner.policy, changes)
        log = {"cost": jnp.mean(terms, (0, 1)), "gradient": norm, "upright": jnp.mean(upright)}
        return Learner(policy, critic, policy_memory, critic_memory, robots), log

    @eqx.filter_jit
    def motions(self, policy: Any, robots: Robots) -> jaxdyn.Trajectory:
        """Long rollouts; the records are states, depths of the feet, and whether the robot is upright."""
        config = self.config

        def simulate(robot):
            system = placed(self.test, robot.domain)
            return jaxdyn.rollout(
                system,
                robot.state,
                self.controls(policy),
                dt=config.dt,
                steps=round(config.duration * config.rate),
                substeps=config.substeps,
                save=lambda t, x, u: (x, contact_forces(system, x).depth, stands(robot.domain, x.q)),
                t0=robot.clock,
            )

        return jax.vmap(simulate)(robots)

    def judged(self, policy: Any, robots: Robots) -> dict[str, float]:
        """Success of a policy, and means over the robots that stay upright."""
        motion = self.motions(policy, robots)
        states, depth, upright = jax.tree.map(np.asarray, motion.saved)
        upright = upright.all(axis=1) & np.asarray(motion.healthy)
        settled = min(round(SETTLED * self.config.rate), depth.shape[1] // 2)
        x = states.q[:, settled:, 0]
        speed = (x[:, -1] - x[:, 0]) * self.config.rate / (x.shape[1] - 1)
        touches = (depth[:, settled:] > 0.0).astype(float)
        touches = touches - touches.mean(axis=1, keepdims=True)
        covariance = np.einsum("nti,ntj->nij", touches, touches)
        deviation = np.sqrt(np.einsum("nii->ni", covariance)) + 1e-9
        correlation = covariance / (deviation[:, :, None] * deviation[:, None, :])
        diagonal = 0.5 * (correlation[:, 0, 3] + correlation[:, 1, 2])
        success = upright & (speed > SPEED_OF_SUCCESS) & (diagonal > CORRELATION_OF_SUCCESS)

        def mean(values):
            return float(values[upright].mean()) if upright.any() else 0.0

        return {
            "success": float(success.mean()),
            "upright": float(upright.mean()),
            "speed": mean(speed),
            "diagonal": mean(diagonal),
            "lateral": mean(0.5 * (correlation[:, 0, 1] + correlation[:, 2, 3])),
            "speed_of_all": float(speed.mean()),
        }

    def tested(self, policy: Any, key: Array) -> dict[str, dict[str, float]]:
        return {
            name: self.judged(policy, self.new_robots(key, self.config.tested, bumpy))
            for name, bumpy in (("flat", False), ("bumpy", True))
        }


class Course:
    """Training with its log, checkpoints and progress bar."""

    def __init__(self, study: Study, directory: RunDirectory):
        self.study, self.directory = study, directory
        self.learner, self.done, self.rows, self.spent = study.begin(), 0, [], 0.0
        if directory.reusable("checkpoint"):
            saved = directory.read_arrays("checkpoint")
            leaves, structure = jax.tree.flatten(self.learner)
            self.learner = jax.tree.unflatten(structure, [jnp.asarray(saved[f"leaf_{k}"]) for k in range(len(leaves))])
            self.done, self.spent, self.rows = int(saved["done"]), float(saved["spent"]), saved["rows"].tolist()

    def save(self) -> None:
        leaves = {f"leaf_{k}": np.asarray(leaf) for k, leaf in enumerate(jax.tree.leaves(self.learner))}
        rows = np.asarray(self.rows)
        self.directory.write_arrays("checkpoint", done=self.done, spent=self.elapsed(), rows=rows, **leaves)

    def elapsed(self) -> float:
        """Processor time since the start of the run, with imports, compilations and tests, in s."""
        return self.spent + time.process_time()

    def run(self) -> None:
        config, key = self.study.config, jax.random.key(self.study.config.seed + 1)
        bar = tqdm(total=config.iterations, initial=self.done, unit="iteration")
        with bar:
            if not self.rows:
                self.test(bar, float("nan"))
            while self.done < config.iterations:
                self.learner, log = self.study.iterate(self.learner, jax.random.fold_in(key, self.done))
                jax.block_until_ready(log)
                self.done += 1
                bar.update()
                if self.done % config.every == 0 or self.done == config.iterations:
                    self.test(bar, float(jnp.sum(log["cost"])))
                    self.save()

    def test(self, bar: tqdm, cost: float) -> None:
        results = self.study.tested(self.learner.policy, jax.random.key(self.study.config.seed + 2))
        flat, bumpy = results["flat"], results["bumpy"]
        row = [self.elapsed(), self.done, cost]
        self.rows.append(row + [results[g][n] for g in results for n in ("speed_of_all", "success", "upright")])
        bar.write(
            f"{row[0]:5.0f} s of processor time, iteration {self.done}, cost {cost:.2f}; success on flat ground "
            f"{100 * flat['success']:.0f} %, on bumps {100 * bumpy['success']:.0f} %; speed {flat['speed_of_all']:.2f} and "
            f"{bumpy['speed_of_all']:.2f} m/s"
        )


def work(config: Config, directory: RunDirectory) -> dict[str, Any]:
    study = Study(config)
    course = Course(study, directory)
    course.run()
    rows = np.asarray(course.rows)
    policy = course.learner.policy
    final = study.tested(policy, jax.random.key(config.seed + 3))
    trots = (rows[:, 4] >= SHARE_OF_SUCCESS) & (rows[:, 7] >= SHARE_OF_SUCCESS)
    lasting = np.logical_and.accumulate(trots[::-1])[::-1]  # in this test and in all later ones
    first, stable = (float(rows[np.argmax(mask), 0]) if mask.any() else None for mask in (trots, lasting))
    steps = config.robots * config.window * config.substeps * (rows[-1, 1] - rows[1, 1])
    rate = steps / (rows[-1, 0] - rows[1, 0]) if len(rows) > 2 else None
    lines = [
        "| ground | success | upright | speed (m/s) | diagonal pairs | left and right |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in final.items():
        lines.append(
            f"| {name} | {100 * row['success']:.1f} % | {100 * row['upright']:.1f} % | {row['speed']:.2f} | "
            f"{row['diagonal']:.2f} | {row['lateral']:.2f} |"
        )
    table = "\n".join(lines)
    print(table)
    print(
        f"Processor time to the first test with a trot on both grounds: {known(first)}; to a lasting trot: {known(stable)}"
    )
    directory.write_text("table.md", table + "\n")
    directory.write_arrays("policy", **{f"weight_{k}": leaf for k, leaf in enumerate(jax.tree.leaves(policy))})
    draw_curve(directory, rows)
    record(study, policy, directory)
    return {
        "final": final,
        "first_trot_processor_s": first,
        "lasting_trot_processor_s": stable,
        "training_processor_s": float(rows[-1, 0]),
        "steps_with_gradient_per_processor_s": rate,
        "curve": rows.tolist(),
    }


def known(seconds: float | None) -> str:
    return "not reached" if seconds is None else f"{seconds:.0f} s"


def record(study: Study, policy: Any, directory: RunDirectory) -> None:
    """The motion of some robots on the same bumpy ground, as a run for `jaxdyn view`, and as an animation."""
    robots = study.new_robots(jax.random.key(study.config.seed + 4), 4, largest_bumps=True)
    same = jax.tree.map(lambda x: jnp.broadcast_to(x[:1], x.shape), robots.domain.ground)
    q = robots.state.q
    side = jnp.linspace(0.0, 1.8, len(q))
    xy = jnp.stack([jnp.zeros(len(q)), side], axis=1)
    z = jax.vmap(Bumps.__call__)(same, xy) + HEIGHT + 0.02
    q = q.at[:, :2].set(xy).at[:, 2].set(z)
    robots = Robots(eqx.tree_at(lambda d: d.ground, robots.domain, same), jaxdyn.State(q, robots.state.v), robots.clock)
    motion = study.motions(policy, robots)
    states = motion.saved[0]
    time_of_records = np.arange(states.q.shape[1]) * study.config.dt
    directory.write_arrays("states", time=time_of_records, q=states.q, v=states.v)
    ground = jax.tree.map(lambda x: x[0], same)
    system = with_grid(study.test, ground)
    directory.write_mechanism(system)
    shown = round(min(3.0, study.config.duration) * study.config.rate) + 1
    view.animate(
        system,
        time_of_records[:shown],
        np.asarray(states.q[:1, :shown]),
        directory.path("trot.gif"),
        fps=20,
        size=400,
        title="Quadruped that learned to trot",
        progress=False,
    )


def with_grid(system: jaxdyn.System, ground: Bumps) -> jaxdyn.System:
    """The system on a grid of heights, which a file can contain."""
    spacing, corner, shape = 0.05, np.array([-1.0, -1.0]), (160, 80)
    x, y = (corner[k] + spacing * np.arange(shape[k]) for k in range(2))
    points = jnp.asarray(np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1), jnp.float32)
    heights = jax.vmap(jax.vmap(ground))(points)
    grid = jaxdyn.as_dtype(HeightGrid(heights, spacing, corner), jnp.float32)
    return eqx.tree_at(lambda s: s.forces[1].surface, system, grid)


def draw_curve(directory: RunDirectory, rows: np.ndarray) -> None:
    """Speed and success over processor time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5.5), layout="constrained")
    speed, success = figure.subplots(2, 1, sharex=True)
    for name, column, color in (("flat ground", 3, "#1f5fa8"), ("bumpy ground", 6, "#c2410c")):
        speed.plot(rows[:, 0], rows[:, column], color=color, marker=".", label=name)
        success.plot(rows[:, 0], 100.0 * rows[:, column + 1], color=color, marker=".")
    speed.axhline(SPEED_OF_SUCCESS, color="0.4", lw=0.8, ls="--")
    success.axhline(100.0 * SHARE_OF_SUCCESS, color="0.4", lw=0.8, ls="--")
    speed.set_ylabel("mean speed (m/s)")
    success.set_ylabel("robots that trot (%)")
    success.set_xlabel("processor time (s)")
    speed.legend(frameon=False)
    for axis in (speed, success):
        axis.grid(alpha=0.3)
    figure.savefig(directory.path("curve.png"), dpi=100)


def verdict(metrics: dict[str, Any]) -> str | None:
    if metrics["smoke"] or min(ground["success"] for ground in metrics["final"].values()) >= SHARE_OF_SUCCESS:
        return None
    return "the policy does not trot reliably; train for more iterations or with another seed"


JOB = Job(
    "quadruped-trot",
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
