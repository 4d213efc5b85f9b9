"""Every config of the project that a command reads can be read: an old key would otherwise be found by the user who starts it."""

from pathlib import Path

import pytest

from jaxdyn.io.config import read_config
from jaxdyn.jobs.verbs import IDENTIFY, OPTIMIZE

CONFIGS = Path(__file__).parents[2] / "configs"
READ = [(path, job) for job in (IDENTIFY, OPTIMIZE) for path in sorted(CONFIGS.glob(f"{job.name}_*.toml"))]


def test_there_are_configs_of_both_commands():
    assert len({job.name for _, job in READ}) == 2


@pytest.mark.parametrize(("path", "job"), READ, ids=lambda value: getattr(value, "stem", ""))
@pytest.mark.parametrize("smoke", [False, True], ids=["whole", "smoke"])
def test_the_config_is_read(path, job, smoke):
    assert isinstance(read_config(path, job.config_class, smoke=smoke), job.config_class)
