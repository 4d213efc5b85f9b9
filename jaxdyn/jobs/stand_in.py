"""Stands in for `jaxdyn.io.load_system` and `jaxdyn.io.load_run`; to be deleted when those are there."""

from pathlib import Path

import numpy as np

from jaxdyn.dynamics.system import System
from jaxdyn.io.mechanism_file import load_mechanism
from jaxdyn.io.runs import RunError
from jaxdyn.io.toml import ConfigError, read_toml


def load_system(path: Path) -> System:
    return load_mechanism(path)


def load_run(path: Path) -> tuple[System, dict[str, np.ndarray]]:
    if not (path / "states.npz").is_file():
        raise RunError(f"{path}: is no run directory with states.npz; give one that `jaxdyn rollout` left")
    mechanism = read_toml(path / "config.toml").get("mechanism")
    if not isinstance(mechanism, str):
        raise ConfigError(f"{path / 'config.toml'}: names no mechanism; give a run directory of `jaxdyn rollout`")
    with np.load(path / "states.npz", allow_pickle=False) as archive:
        return load_system(Path(mechanism)), dict(archive)
