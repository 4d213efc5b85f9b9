"""An `Env` as a `gymnasium.vector.VectorEnv`, for libraries that train with NumPy or PyTorch, CleanRL for instance."""

from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector.utils import batch_space

from jaxdyn.compute import batched
from jaxdyn.envs.environment import Env, EnvState
from jaxdyn.mechanism.messages import check_instance, checked_count


class GymnasiumEnv(gymnasium.vector.VectorEnv):
    """Several environments of one kind, as one vector environment of gymnasium with NumPy arrays.

    An environment that ends an episode begins the next one in the same step (`AutoresetMode.SAME_STEP`): `final_obs` in the info
    has the last observations of the episodes that ended. Wrappers of gymnasium for this mode apply, `RecordEpisodeStatistics` and
    `NormalizeReward` for instance; those of observations, such as `NormalizeObservation`, refuse it.

    Args:
        env: The environment.
        num_envs: Number of environments.

    Raises:
        TypeError: `env` is not an `Env`, or `num_envs` is not an integer.
        ValueError: `num_envs` is not positive.
    """

    def __init__(self, env: Env, num_envs: int):
        check_instance("env", env, Env, "an Env")
        self.num_envs, self.env = checked_count("num_envs", num_envs), env
        self.metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP, "render_modes": []}
        dtype = np.dtype(env.system.model.dtype)
        self.single_observation_space = Box(-np.inf, np.inf, (env.observation_size,), dtype.type)
        self.single_action_space = Box(-1.0, 1.0, (env.action_size,), dtype.type)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._reset, self._step = batched(env.reset), batched(env.step)
        self._state: EnvState | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Observations (num_envs, observations) at the start of new episodes, and an empty info.

        Args:
            seed: Seed of all random values; None to continue the random values.
            options: None; environments begin new episodes automatically, so there is no mask of those to reset.

        Raises:
            ValueError: There are options.
        """
        if options:
            raise ValueError(f"reset has no option {next(iter(options))!r}; leave it out")
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(2**31))
        state = self._state = self._reset(jax.random.split(jax.random.key(drawn), self.num_envs))
        return np.array(state.observation), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Observations, rewards, terminations, truncations and info after a step of each environment.

        Args:
            actions: Actions (num_envs, actions) within [-1, 1].

        Raises:
            ResetNeeded: `reset` was not called.
        """
        if self._state is None:
            raise gymnasium.error.ResetNeeded("the environments have no state; call reset before step")
        state = self._state = self._step(self._state, np.asarray(actions, self.single_action_space.dtype))
        ended, info = np.asarray(state.done), {}
        if ended.any():
            final = np.full(self.num_envs, None, object)
            for k, observation in zip(np.flatnonzero(ended), np.asarray(state.final_observation)[ended], strict=True):
                final[k] = observation
            info = {"final_obs": final, "_final_obs": ended}
        observation, reward, terminated, truncated = map(
            np.array, (state.observation, state.reward, state.terminated, state.truncated)
        )
        return observation, reward, terminated, truncated, info
