"""The verbs of the command line: their help, and the functions that execute them.

This module does not import JAX, so that help and errors in a config or an argument appear without delay.
"""

from typing import Any

from jaxdyn.jobs import arguments
from jaxdyn.jobs.command import Command
from jaxdyn.jobs.job import Job, deferred
from jaxdyn.jobs.settings import describe_parts, wrapped


def _is_double(config: Any) -> bool:
    """Whether the config selects double precision; fits and their evaluation, whose configs do not choose, always have it."""
    return getattr(config, "dtype", "float64") == "float64"


ROLLOUT = Job(
    "rollout",
    "simulate many samples of one mechanism at once",
    "jaxdyn.jobs.rollout_config:RolloutConfig",
    deferred("jaxdyn.jobs.rollout:work"),
    deferred("jaxdyn.jobs.rollout:inputs"),
    shared=True,
    double=_is_double,
    verdict=deferred("jaxdyn.jobs.rollout:verdict"),
    of_mechanism={
        "batch": 256,
        "limits": "enforced",
        "time": {"duration": 2.0, "rate": 1000.0, "substeps": 4, "save_every": 10},
    },
    then=("jaxdyn animate {run}", "jaxdyn view {run}"),
)

IDENTIFY = Job(
    "identify",
    "identify physical parameters of machines from recordings",
    "jaxdyn.jobs.identify_config:IdentifyConfig",
    deferred("jaxdyn.jobs.identify:work"),
    deferred("jaxdyn.jobs.identify_plant:files_of_studies"),
    double=_is_double,
    verdict=deferred("jaxdyn.jobs.identify:verdict"),
    then=("jaxdyn evaluate {run}",),
)

EVALUATE = Job(
    "evaluate",
    "evaluate identified machines on new recordings, without a fit",
    "jaxdyn.jobs.evaluate_config:EvaluateConfig",
    deferred("jaxdyn.jobs.evaluate:work"),
    deferred("jaxdyn.jobs.evaluate:inputs"),
    double=_is_double,
    of_runs="runs",
)

OPTIMIZE = Job(
    "optimize",
    "compute optimal controls of a mechanism, from one initial guess or from many at once",
    "jaxdyn.jobs.optimize_config:OptimizeConfig",
    deferred("jaxdyn.jobs.optimize:work"),
    deferred("jaxdyn.jobs.optimize:inputs"),
    shared=True,
    double=_is_double,
    then=("jaxdyn rollout {run}/replay.toml",),
)


def _tables() -> str:
    """Description of the tables of mechanism files, made only for the help because the classes of forces import JAX."""
    return wrapped(f"tables of forces and constraints in a .toml file:\n\n{describe_parts()}") + "\n"


NEW = Command("new", arguments.NewArguments, deferred("jaxdyn.jobs.new:new"))
SHOW = Command("show", arguments.ShowArguments, deferred("jaxdyn.jobs.show:show"))
CHECK = Command("check", arguments.CheckArguments, deferred("jaxdyn.jobs.check:check"))
CONVERT = Command("convert", arguments.ConvertArguments, deferred("jaxdyn.jobs.convert:convert"), _tables)
ANIMATE = Command("animate", arguments.AnimateArguments, deferred("jaxdyn.jobs.animate:animate"))
VIEW = Command("view", arguments.ViewArguments, deferred("jaxdyn.jobs.view:view"))
