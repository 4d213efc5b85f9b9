"""The interface of gymnax, by which libraries in pure JAX, rejax for instance, train on an `Env`."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from jaxdyn.envs.environment import Env, EnvState
from jaxdyn.mechanism.messages import check_instance


class Box(NamedTuple):
    """A space of vectors.

    Attributes:
        low, high: Bounds of every component.
        shape: Shape of the vectors.
        dtype: Type of the values.
    """

    low: float
    high: float
    shape: tuple[int, ...]
    dtype: Any


class Params(NamedTuple):
    """Settings that libraries read beside the environment.

    Attributes:
        max_steps_in_episode: Number of steps after which an evaluation ends.
    """

    max_steps_in_episode: int


class GymnaxEnv:
    """An `Env` with the methods of a gymnax environment, for libraries in pure JAX.

        rejax.PPO.create(env=GymnaxEnv(env), num_envs=256, ...)

    Args:
        env: The environment.
        longest: Number of steps after which an evaluation ends if the environment has no time limit.

    Raises:
        TypeError: `env` is not an `Env`.
    """

    def __init__(self, env: Env, *, longest: int = 1000):
        check_instance("env", env, Env, "an Env")
        self.env = env
        self.default_params = Params(env.most_steps or longest)

    def reset(self, key: PRNGKeyArray, params: Any = None) -> tuple[Float[Array, "observations"], EnvState]:
        """Observation and state at the start of an episode.

        Args:
            key: Random key.
            params: Not used.
        """
        state = self.env.reset(key)
        return state.observation, state

    def step(
        self, key: PRNGKeyArray, state: EnvState, action: Float[Array, "*actions"], params: Any = None
    ) -> tuple[Float[Array, "observations"], EnvState, Float[Array, ""], Bool[Array, ""], dict[str, Any]]:
        """Observation, state, reward, whether the episode ended, and why, after a step.

        Args:
            key: Not used; the state has its own key.
            state: State before the step.
            action: Actions within [-1, 1], or one without an axis.
            params: Not used.
        """
        state = self.env.step(state, jnp.reshape(action, (self.env.action_size,)))  # rejax squeezes a single action
        info = {
            "terminated": state.terminated,
            "truncated": state.truncated,
            "final_observation": state.final_observation,
        }
        return state.observation, state, state.reward, state.done, info

    def action_space(self, params: Any = None) -> Box:
        """The space of actions.

        Args:
            params: Not used.
        """
        return Box(-1.0, 1.0, (self.env.action_size,), self.env.system.model.dtype)

    def observation_space(self, params: Any = None) -> Box:
        """The space of observations.

        Args:
            params: Not used.
        """
        return Box(-jnp.inf, jnp.inf, (self.env.observation_size,), self.env.system.model.dtype)
