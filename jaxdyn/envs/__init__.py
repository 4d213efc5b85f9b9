"""Environments for reinforcement learning, as pure functions of one sample."""

from typing import TYPE_CHECKING

from jaxdyn.lazy import lazy_names

if TYPE_CHECKING:
    from jaxdyn.envs.environment import Env as Env
    from jaxdyn.envs.environment import EnvState as EnvState
    from jaxdyn.envs.environment import Moment as Moment
    from jaxdyn.envs.functional import GymnaxEnv as GymnaxEnv
    from jaxdyn.envs.vector_env import GymnasiumEnv as GymnasiumEnv
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, extras={"vector_env": ("gymnasium", "envs")})
