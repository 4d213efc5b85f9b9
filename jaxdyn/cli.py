"""The command line `jaxdyn <verb> ...`. A verb is a job, which takes a config (`jaxdyn.jobs.job`), or a command, which takes
arguments (`jaxdyn.jobs.command`).
"""

import argparse
from collections.abc import Sequence

from jaxdyn.jobs import animate, check, convert, identify, optimize, rollout, show, view
from jaxdyn.jobs.command import Command, add_command, run_command
from jaxdyn.jobs.job import Job, add_arguments, run_from_arguments

_COMMANDS = (show.COMMAND, check.COMMAND, convert.COMMAND, animate.COMMAND, view.COMMAND)
_JOBS = (rollout.JOB, identify.JOB, optimize.JOB)
_VERBS: dict[str, Job | Command] = {verb.name: verb for verb in (*_COMMANDS, *_JOBS)}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit status: 0 done, 2 bad input."""
    parser = argparse.ArgumentParser(
        prog="jaxdyn",
        description="Multibody dynamics in JAX: batched rollouts, identification and optimal control from config files, and views.",
        epilog="Example: jaxdyn rollout configs/panda_rollouts.toml --out runs/first batch=512",
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, verb in _VERBS.items():
        add = add_arguments if isinstance(verb, Job) else add_command
        add(verbs.add_parser(name, help=verb.description.splitlines()[0]), verb)  # pyright: ignore[reportArgumentType]
    arguments, rest = parser.parse_known_args(argv)
    verb = _VERBS[arguments.verb]
    overrides = [word for word in rest if isinstance(verb, Job) and "=" in word and not word.startswith("-")]
    unknown = [word for word in rest if word not in overrides]
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if isinstance(verb, Command):
        return run_command(verb, arguments)
    arguments.overrides += overrides
    return run_from_arguments(verb, arguments)
