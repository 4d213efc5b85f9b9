"""The verbs of the command line `jaxdyn <verb> ...`.

A verb is a job with a config file (`jaxdyn.jobs.job`) or a command with arguments (`jaxdyn.jobs.commands.command`).
"""

import argparse
import sys
from collections.abc import Sequence

from jaxdyn.errors import suggestion
from jaxdyn.jobs import verbs
from jaxdyn.jobs.commands.command import Command, add_command, run_command
from jaxdyn.jobs.job import Job, add_arguments
from jaxdyn.jobs.running import run_from_arguments

_TASKS: dict[str, tuple[Job | Command, ...]] = {
    "simulation, identification and optimization from a config file": (verbs.ROLLOUT, verbs.IDENTIFY, verbs.OPTIMIZE),
    "inspection of results": (verbs.EVALUATE, verbs.VIEW, verbs.ANIMATE),
    "configs and mechanism files": (verbs.NEW, verbs.SHOW, verbs.CHECK, verbs.CONVERT),
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
