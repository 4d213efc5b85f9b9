"""An environment for reinforcement learning: a system, and the functions of a task, see `Env`.

The physics of a step is one control step of `rollout`. The whole step, with the functions of the task, random values and the reset,
is one function of one sample, which the lane compiler compiles like any other.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from jaxdyn.compute import backend, kernel_function
from jaxdyn.compute.arrays import floating_or_none
from jaxdyn.display import known
from jaxdyn.dynamics.system import State, System, check_state, check_system
from jaxdyn.mechanism.configuration import check_key
from jaxdyn.mechanism.messages import check_function, checked_count, described
from jaxdyn.mechanism.quantity import plain
from jaxdyn.simulate.integrators import Integrator, SemiImplicitEuler, check_integrator
from jaxdyn.simulate.trajectory import rollout


class Moment(eqx.Module):
    """An instant of an episode, as the functions of a task see it.

    Attributes:
        t: Time since the start of the episode, s.
        state: Coordinates and velocities.
        action: The last action that the policy chose, within [-1, 1]; zero at the start.
        u: The controls that it led to, N m or N, after delay and filter; zero at the start.
        command: Command of this episode, such as a desired velocity, see `Env`; None if there are no commands.
    """

    t: Float[Array, "*batch"]
    state: State
    action: Float[Array, "*batch actions"]
    u: Float[Array, "*batch nu"]
    command: PyTree


class EnvState(eqx.Module):
    """State of an environment, which `Env.reset` and `Env.step` return.

    After the step that ends an episode, `moment` and `observation` are those of the start of the next one. The last observation of
    the episode that ended is `final_observation`; with it a critic values the end of an episode that was only truncated.

    Attributes:
        moment: Instant of the episode.
        observation: Observation of this instant, with noise.
        reward: Reward of the last step.
        terminated: Whether the last step ended the episode by the condition `done`, or because the simulation failed.
        truncated: Whether it ended the episode by the time limit.
        final_observation: Observation after the last step, before a reset.
        steps: Number of steps of the episode.
        total: Sum of the rewards of the episode.
        episodes: Number of episodes that have ended.
        last_steps: Number of steps of the episode that ended last; 0 if none has ended.
        last_total: Sum of the rewards of the episode that ended last; 0 if none has ended.
        changes: Values of the leaves of the system that `Env.randomize` changed in this episode.
        pending: Actions that are delayed, and the state of the filter.
        key: Random key of the next step.
    """

    moment: Moment
    observation: Float[Array, "*batch observations"]
    reward: Float[Array, "*batch"]
    terminated: Bool[Array, "*batch"]
    truncated: Bool[Array, "*batch"]
    final_observation: Float[Array, "*batch observations"]
    steps: Int[Array, "*batch"]
    total: Float[Array, "*batch"]
    episodes: Int[Array, "*batch"]
    last_steps: Int[Array, "*batch"]
    last_total: Float[Array, "*batch"]
    changes: PyTree
    pending: PyTree
    key: PRNGKeyArray

    @property
    def done(self) -> Bool[Array, "*batch"]:
        """Whether the last step ended an episode."""
        return self.terminated | self.truncated


class Env(eqx.Module):
    """A task of reinforcement learning on a system: `reset(key)` and `step(state, action)`, pure functions of one sample.

    Each function of the task takes the system of the episode first, with the values that `randomize` gave it. A `Moment` has the
    time in the episode, the state, the last action and its controls, and the command.

    Attributes:
        system: Mechanism, forces and drives.
        start: Function start(system, key) that returns the initial `State` of an episode.
        observe: Function observe(system, now) that returns the observation of a `Moment`, a vector.
        reward: Function reward(system, before, now) that returns the reward of the step from one `Moment` to the next, a scalar.
        act: Function act(system, now, action) that returns the controls u (nu,) of a step. Actions are clipped to [-1, 1] before,
            so this function scales them; it may compute a PD control, or the input of a network of an actuator.
        dt: Duration of a step, s, during which the controls are constant.
        done: Function done(system, now) that returns whether the episode ends, for example by a fall; None for never.
        time_limit: Duration after which an episode is truncated, s; infinite for never.
        actions: Number of actions; by default that of the controls.
        substeps: Number of steps of the integrator per step of the environment.
        integrator: One-step method.
        randomize: Function randomize(system, key) that returns the system of an episode. It may change the values of any leaves,
            for example by `equinox.tree_at`; the state stores these leaves alone.
        command: Function command(key) that returns the command of an episode, such as a desired velocity, as any pytree.
        noise: Standard deviation of the normal noise of the observation, one value or one per component.
        delay: Number of steps between the choice of an action and its effect.
        smoothing: Time constant of the first-order low-pass filter of the actions, s; 0 for no filter.

    Raises:
        TypeError: An argument has the wrong type, or a function does not take its arguments.
        ValueError: A value is outside of its range, or a function returns a wrong shape; the message states the remedy.

    Example:
        ```python
        import jax, jax.numpy as jnp, jaxdyn
        from jaxdyn.envs import Env

        env = Env(
            jaxdyn.library.system("cart_pole"),
            start=lambda system, key: system.at_rest(0.1 * jax.random.normal(key, (2,))),
            observe=lambda system, now: jnp.concatenate([now.state.q, now.state.v]),
            reward=lambda system, before, now: jnp.cos(now.state.q[1]),
            act=lambda system, now, action: 10.0 * action,  # N
            dt=0.02,
            time_limit=5.0,
        )
        state = env.reset(jax.random.key(0))
        state = env.step(state, jnp.zeros(1))
        ```
    """

    system: System
    start: Callable[[System, PRNGKeyArray], State]
    observe: Callable[[System, Moment], Float[Array, "observations"]]
    reward: Callable[[System, Moment, Moment], Float[Array, ""]]
    act: Callable[[System, Moment, Float[Array, "actions"]], Float[Array, "nu"]]
    dt: float = eqx.field(static=True, converter=plain, kw_only=True)
    done: Callable[[System, Moment], Bool[Array, ""]] | None = eqx.field(default=None, kw_only=True)
    time_limit: float = eqx.field(static=True, converter=plain, default=float("inf"), kw_only=True)
    actions: int | None = eqx.field(static=True, converter=plain, default=None, kw_only=True)
    substeps: int = eqx.field(static=True, converter=plain, default=1, kw_only=True)
    integrator: Integrator = eqx.field(default=SemiImplicitEuler(), kw_only=True)
    randomize: Callable[[System, PRNGKeyArray], System] | None = eqx.field(default=None, kw_only=True)
    command: Callable[[PRNGKeyArray], PyTree] | None = eqx.field(default=None, kw_only=True)
    noise: Float[Array, "*observations"] | None = eqx.field(converter=floating_or_none, default=None, kw_only=True)
    delay: int = eqx.field(static=True, converter=plain, default=0, kw_only=True)
    smoothing: float = eqx.field(static=True, converter=plain, default=0.0, kw_only=True)

    def __check_init__(self):
        check_system(self.system, "Env")
        check_integrator(self.integrator)
        for name, arguments in _FUNCTIONS.items():
            if getattr(self, name) is not None or name not in _OPTIONAL:
                check_function(f"the function {name} of Env", getattr(self, name), arguments)
        for name, least in (("substeps", 1), ("delay", 0), *([] if self.actions is None else [("actions", 1)])):
            checked_count(name, getattr(self, name), least)
        for name, low in (("dt", 0.0), ("time_limit", self.dt)):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not (value > 0.0 and value >= low):
                raise ValueError(f"{name} is {value!r} s; give a positive duration, and a time_limit of at least dt")
        is_time = isinstance(self.smoothing, int | float) and 0.0 <= self.smoothing < np.inf
        if not np.isfinite(self.dt) or not is_time:
            raise ValueError(f"dt is {self.dt!r} s and smoothing {self.smoothing!r} s; give finite durations")
        found = self._outputs()
        for name, shape, kind in (
            ("observe", found["observe"].shape[:1] or ("observations",), jnp.floating),
            ("reward", (), jnp.floating),
            ("act", (self.system.nu,), jnp.floating),
            ("done", (), jnp.bool_),
        ):
            x = found[name]
            if x.shape != shape or not jnp.issubdtype(x.dtype, kind):
                wanted = f"{'booleans' if kind is jnp.bool_ else 'floats'} of shape {shape}"
                raise ValueError(f"the function {name} of Env returns {x.dtype} of shape {x.shape}; return {wanted}")
        shape, deviations = found["observe"].shape, known(self.noise)
        if self.noise is not None and self.noise.shape not in ((), shape):
            raise ValueError(f"noise has shape {self.noise.shape}; give one value, or one per component, shape {shape}")
        if deviations is not None and not np.all((deviations >= 0.0) & np.isfinite(deviations)):
            raise ValueError(f"noise is {deviations.tolist()}; give finite standard deviations that are not negative")

    def _outputs(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes and types that the functions of the task return."""

        def called(key: PRNGKeyArray) -> dict[str, Any]:
            system, now, _ = self._begin(key)
            outputs = {
                "observe": self.observe(system, now),
                "reward": self.reward(system, now, now),
                "act": self.act(system, now, now.action),
                "done": False if self.done is None else self.done(system, now),
            }
            for name, x in outputs.items():
                if not isinstance(x, jax.Array | np.ndarray | bool | float):
                    raise TypeError(f"the function {name} of Env returns {described(x)}; return an array")
            return outputs

        with backend("xla"):  # nothing is compiled
            return jax.eval_shape(called, jax.random.key(0))

    @property
    def most_steps(self) -> int | None:
        """Number of steps after which an episode is truncated; None without a time limit."""
        if np.isinf(self.time_limit):
            return None
        return int(min(np.ceil(self.time_limit / self.dt - 1e-6), np.iinfo(np.int32).max))  # the type of the counter

    @property
    def action_size(self) -> int:
        """Number of actions."""
        return self.system.nu if self.actions is None else self.actions

    @property
    def observation_size(self) -> int:
        """Number of components of an observation."""
        return self._outputs()["observe"].shape[0]

    def reset(self, key: PRNGKeyArray) -> EnvState:
        """State at the start of an episode, with a system, a command and an initial state that depend on the key.

        Args:
            key: Random key, which also determines the noise and the resets of all later steps.

        Raises:
            TypeError: `key` is not a random key.
        """
        return _reset(self, key)

    def step(self, state: EnvState, action: Float[Array, "actions"]) -> EnvState:
        """State after a step; if the step ends the episode, the start of the next one.

        Args:
            state: State before the step.
            action: Action, which is clipped to [-1, 1].

        Raises:
            TypeError: `state` is not an `EnvState`.
            ValueError: `action` has the wrong shape.
        """
        return _step(self, state, action)

    def system_of(self, state: EnvState) -> System:
        """The system of the episode, with the values that `randomize` gave it.

        Args:
            state: State of the environment.
        """
        return eqx.combine(state.changes, self.system)

    def _begin(self, key: PRNGKeyArray) -> tuple[System, Moment, PyTree]:
        """The system, the first moment, and the changed leaves of an episode."""
        of_system, of_start, of_command = jax.random.split(key, 3)
        system, changes = self.system, jax.tree.map(lambda leaf: None, self.system)
        if self.randomize is not None:
            system = self.randomize(self.system, of_system)
            _check_same(self.system, system)
            changes = jax.tree.map(lambda new, old: None if new is old else new, system, self.system)
        state = self.start(system, of_start)
        check_state(system, state, "the function start of Env")
        t, action, u = (jnp.zeros(shape, state.v.dtype) for shape in ((), self.action_size, system.nu))
        command = None if self.command is None else self.command(of_command)
        return system, Moment(t, state, action, u, command), changes

    def _observed(self, system: System, now: Moment, key: PRNGKeyArray) -> Float[Array, "observations"]:
        exact = self.observe(system, now)
        if self.noise is None:
            return exact
        return exact + self.noise.astype(exact.dtype) * jax.random.normal(key, exact.shape, exact.dtype)

    def _acting(self, pending: tuple, action: Float[Array, "actions"]) -> tuple[Float[Array, "actions"], tuple]:
        """The action that acts now, after delay and filter, and the pending ones after this step."""
        queue, filtered = pending
        if self.delay:
            queue = jnp.concatenate([queue, action[None]])
            action, queue = queue[0], queue[1:]
        if self.smoothing:
            action = filtered = action + np.exp(-self.dt / self.smoothing).astype(action.dtype) * (filtered - action)
        return action, (queue, filtered)


# The functions of `Env` by the name of their field, with the names of their arguments.
_FUNCTIONS = {
    "start": "system, key",
    "observe": "system, now",
    "reward": "system, before, now",
    "act": "system, now, action",
    "done": "system, now",
    "randomize": "system, key",
    "command": "key",
}
_OPTIONAL = ("done", "randomize", "command")


def _check_same(before: System, after: Any) -> None:
    check_system(after, "the function randomize of Env")
    old, new = (
        (jax.tree.structure(x), [jnp.shape(leaf) for leaf in jax.tree.leaves(eqx.filter(x, eqx.is_array_like))])
        for x in (before, after)
    )
    if old != new:
        raise ValueError(
            "the function randomize of Env changes the structure of the system; change values of leaves only"
        )


def _check_reset(args: tuple, options: dict) -> None:
    check_key(args[1])


def _check_step(args: tuple, options: dict) -> None:
    env, state, action = args
    if not isinstance(state, EnvState):
        raise TypeError(f"state is {described(state)}; give the EnvState that reset or step of the environment returns")
    if jnp.shape(action) != (env.action_size,):
        raise ValueError(
            f"action has shape {jnp.shape(action)}; give shape ({env.action_size},), and wrap step in jax.vmap for a batch"
        )


def _reset_by(env: Env, key: PRNGKeyArray) -> EnvState:
    of_episode, of_noise, following = jax.random.split(key, 3)
    system, now, changes = env._begin(of_episode)
    observation, number, zero = (
        env._observed(system, now, of_noise),
        jnp.zeros((), now.t.dtype),
        jnp.zeros((), jnp.int32),
    )
    queue = jnp.zeros((env.delay, env.action_size), now.t.dtype) if env.delay else None
    pending = (queue, now.action if env.smoothing else None)
    false = jnp.zeros((), bool)
    counts = (zero, number, zero, zero, number)
    return EnvState(now, observation, number, false, false, observation, *counts, changes, pending, following)


def _step_by(env: Env, state: EnvState, action: Float[Array, "actions"]) -> EnvState:
    before, of_noise, of_next = state.moment, *jax.random.split(state.key)
    system, dtype = env.system_of(state), before.t.dtype
    action = jnp.clip(jnp.asarray(action, dtype), -1.0, 1.0)
    acting, pending = env._acting(state.pending, action)
    u = env.act(system, before, acting)
    motion = rollout(
        system,
        before.state,
        u[None],
        dt=env.dt,
        steps=1,
        t0=before.t,
        substeps=env.substeps,
        integrator=env.integrator,
        save=lambda t, state, u: None,
    )
    steps = state.steps + 1
    now = Moment(steps.astype(dtype) * env.dt, motion.final, action, u, before.command)
    reward = jnp.asarray(env.reward(system, before, now), dtype)
    fails = ~motion.healthy
    terminated = fails if env.done is None else fails | env.done(system, now)
    over = jnp.asarray(False) if env.most_steps is None else steps >= env.most_steps
    observation, total = env._observed(system, now, of_noise), state.total + reward
    ended, fresh = terminated | over, _reset_by(env, of_next)
    going = (now, observation, steps, total, state.changes, pending)
    begun = (fresh.moment, fresh.observation, fresh.steps, fresh.total, fresh.changes, fresh.pending)
    now, shown, count, gained, changes, pending = jax.tree.map(lambda a, b: jnp.where(ended, a, b), begun, going)
    last = jnp.where(ended, steps, state.last_steps), jnp.where(ended, total, state.last_total)
    return EnvState(
        now, shown, reward, terminated, over & ~terminated, observation, count, gained,
        state.episodes + ended.astype(jnp.int32), *last, changes, pending, fresh.key,
    )  # fmt: skip


_reset_by.__name__, _step_by.__name__ = "reset of an environment", "step of an environment"
_reset, _step = kernel_function(_reset_by, check=_check_reset), kernel_function(_step_by, check=_check_step)
