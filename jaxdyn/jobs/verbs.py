"""The verbs of the command line `jaxdyn <verb> ...`: their help, and the functions that execute them.

A verb is a job with a config file (`jaxdyn.jobs.job`) or a command with arguments (`jaxdyn.jobs.commands.command`).
This module does not import JAX, so that help and errors in a config or an argument appear without delay.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from jaxdyn.errors import suggestion
from jaxdyn.jobs.commands import arguments
from jaxdyn.jobs.commands.command import Command, add_command, run_command
from jaxdyn.jobs.job import Job, add_arguments, deferred
from jaxdyn.jobs.running import run_from_arguments
from jaxdyn.jobs.settings import describe_parts, wrapped


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
    deferred("jaxdyn.jobs.identify.study:files_of_studies"),
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
    return wrapped(f"tables of forces and constraints in a .toml file:\n\n{describe_parts()}") + "\n"


NEW = Command("new", arguments.NewArguments, deferred("jaxdyn.jobs.commands.new:new"))
SHOW = Command("show", arguments.ShowArguments, deferred("jaxdyn.jobs.commands.show:show"))
CHECK = Command("check", arguments.CheckArguments, deferred("jaxdyn.jobs.commands.check:check"))
CONVERT = Command("convert", arguments.ConvertArguments, deferred("jaxdyn.jobs.commands.convert:convert"), _tables)
ANIMATE = Command("animate", arguments.AnimateArguments, deferred("jaxdyn.jobs.commands.animate:animate"))
VIEW = Command("view", arguments.ViewArguments, deferred("jaxdyn.jobs.commands.view:view"))

_TASKS: dict[str, tuple[Job | Command, ...]] = {
    "simulation, identification and optimization from a config file": (ROLLOUT, IDENTIFY, OPTIMIZE),
    "inspection of results": (EVALUATE, VIEW, ANIMATE),
    "configs and mechanism files": (NEW, SHOW, CHECK, CONVERT),
}
_VERBS = {verb.name: verb for task in _TASKS.values() for verb in task}


class _Version(argparse.Action):
    """Prints the version, which is determined only on request."""

    def __call__(self, parser, namespace, values, option_string=None):
        from jaxdyn.version import __version__

        print(f"jaxdyn {__version__}")
        parser.exit()


def run_verb(argv: Sequence[str] | None) -> int:
    """Run one verb with these arguments, or those of this process; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="jaxdyn",
        usage="jaxdyn [-h] [--version] VERB ...",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"Multibody dynamics in JAX.\n\n{_verbs_by_task()}",
        epilog="`jaxdyn VERB --help` lists the arguments and settings of a verb. An example:\n\n"
        "  jaxdyn rollout configs/panda_rollouts.toml --out runs/first batch=512",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    parsers = parser.add_subparsers(prog="jaxdyn", dest="verb", required=True, metavar="VERB", help=argparse.SUPPRESS)
    for name, verb in _VERBS.items():
        add = add_arguments if isinstance(verb, Job) else add_command
        add(parsers.add_parser(name), verb)  # pyright: ignore[reportArgumentType]
    words = sys.argv[1:] if argv is None else argv
    if words and not words[0].startswith("-") and words[0] not in _VERBS:
        parser.error(f"there is no verb {words[0]!r}; {suggestion(words[0], _VERBS)}")
    arguments, rest = parser.parse_known_args(argv)
    verb = _VERBS[arguments.verb]
    free = isinstance(verb, Job) and [word for word in rest if "=" in word or verb.of_runs]
    overrides = [word for word in free or [] if not word.startswith("-")]
    unknown = [word for word in rest if word not in overrides]
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if isinstance(verb, Command):
        return run_command(verb, arguments)
    arguments.overrides += overrides
    return run_from_arguments(verb, arguments)


def _verbs_by_task() -> str:
    """Description of the verbs, one line for each."""
    lines = []
    for task, offered in _TASKS.items():
        lines += [f"{task}:", *(f"  {verb.name:9} {verb.description.splitlines()[0]}" for verb in offered)]
    return "\n".join(lines)
