"""The verbs of the command line: their help, and the functions that execute them.

This module does not import JAX, so that help and errors in a config or an argument appear without delay.
"""

from typing import Any

from jaxdyn.jobs.commands import arguments
from jaxdyn.jobs.commands.command import Command
from jaxdyn.jobs.job import Job, deferred
from jaxdyn.jobs.settings import wrapped


def _is_double(config: Any) -> bool:
    """Whether the config selects double precision; fits and their evaluation, whose configs do not choose, always have it."""
    return getattr(config, "dtype", "float64") == "float64"


ROLLOUT = Job(
    "rollout",
    "simulate many samples of one mechanism at once",
    "jaxdyn.jobs.rollout.config:RolloutConfig",
    deferred("jaxdyn.jobs.rollout.work:work"),
    deferred("jaxdyn.jobs.rollout.work:inputs"),
    shared=True,
    double=_is_double,
    verdict=deferred("jaxdyn.jobs.rollout.work:verdict"),
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
    "jaxdyn.jobs.identify.config:IdentifyConfig",
    deferred("jaxdyn.jobs.identify.work:work"),
    deferred("jaxdyn.jobs.identify.problem:files_of_studies"),
    double=_is_double,
    verdict=deferred("jaxdyn.jobs.identify.work:verdict"),
    then=("jaxdyn evaluate {run}",),
)

EVALUATE = Job(
    "evaluate",
    "evaluate identified machines on new recordings, without a fit",
    "jaxdyn.jobs.identify.evaluate:EvaluateConfig",
    deferred("jaxdyn.jobs.identify.evaluate:work"),
    deferred("jaxdyn.jobs.identify.evaluate:inputs"),
    double=_is_double,
    of_runs="runs",
)

OPTIMIZE = Job(
    "optimize",
    "compute optimal controls of a mechanism, from one initial guess or from many at once",
    "jaxdyn.jobs.optimize.config:OptimizeConfig",
    deferred("jaxdyn.jobs.optimize.work:work"),
    deferred("jaxdyn.jobs.optimize.work:inputs"),
    shared=True,
    double=_is_double,
    then=("jaxdyn rollout {run}/replay.toml",),
)


def _tables() -> str:
    """Description of the tables of mechanism files, made only for the help because the classes of forces import JAX."""
    from jaxdyn.io.mechanism_parts import BY_JOINT_NAMES, describe_parts

    return (
        wrapped(f"tables of forces and constraints in a .toml file:\n\n{BY_JOINT_NAMES}\n\n{describe_parts()}") + "\n"
    )


NEW = Command("new", arguments.NewArguments, deferred("jaxdyn.jobs.commands.new:new"))
SHOW = Command("show", arguments.ShowArguments, deferred("jaxdyn.jobs.commands.show:show"))
CHECK = Command("check", arguments.CheckArguments, deferred("jaxdyn.jobs.commands.check:check"))
CONVERT = Command("convert", arguments.ConvertArguments, deferred("jaxdyn.jobs.commands.convert:convert"), _tables)
ANIMATE = Command("animate", arguments.AnimateArguments, deferred("jaxdyn.jobs.commands.animate:animate"))
VIEW = Command("view", arguments.ViewArguments, deferred("jaxdyn.jobs.commands.view:view"))
