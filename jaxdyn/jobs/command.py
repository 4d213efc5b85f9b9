"""Verbs of the command line that are not jobs: they take arguments instead of a config, and do not write a run directory."""

import argparse
import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator
from typing import Any

from jaxdyn.io.errors import ConfigError
from jaxdyn.jobs.job import HelpFormatter
from jaxdyn.jobs.running import exit_status
from jaxdyn.jobs.settings import wrapped


@dataclasses.dataclass(frozen=True)
class Command:
    """A verb of the command line with its arguments.

    Attributes:
        name: Name of the verb.
        description: Text that --help shows; its first line also appears in the list of verbs.
        add_arguments: Function that declares the arguments on a parser.
        act: Function that does the work; it raises ConfigError, MechanismError or RunError for invalid input.
    """

    name: str
    description: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    act: Callable[[argparse.Namespace], None]


def add_command(parser: argparse.ArgumentParser, command: Command) -> None:
    """Add the help text and the arguments of a command to a parser."""
    parser.formatter_class = HelpFormatter
    parser.description = wrapped(command.description)
    command.add_arguments(parser)


class _FormerOption(argparse.Action):
    """An option under its former name: it is not in the help, sets the option with the new name, and prints a warning."""

    def __call__(self, parser, namespace, values, option_string=None):
        print(
            f"warning: {option_string} is now --{self.dest}; the old name will be removed in the next release",
            file=sys.stderr,
        )
        setattr(namespace, self.dest, values)


def add_former_option(parser: argparse.ArgumentParser, old: str, new: str, **options: Any) -> None:
    """Let a command accept the former name of an option for one release.

    Args:
        parser: Parser of the command.
        old: Former name, such as "--lane".
        new: Name of the option that it sets.
        options: Type and number of the values, as for `add_argument`.
    """
    parser.add_argument(
        old,
        action=_FormerOption,
        dest=new.removeprefix("--"),
        default=argparse.SUPPRESS,
        help=argparse.SUPPRESS,
        **options,
    )


def run_command(command: Command, arguments: argparse.Namespace) -> int:
    """Run a command with parsed arguments, in double precision like the values in mechanism files; returns the exit status."""

    def act() -> None:
        import jax

        from jaxdyn.jobs.progress import compilations_told

        with compilations_told(), jax.enable_x64(True):
            command.act(arguments)

    return exit_status(act)


@contextlib.contextmanager
def needs(extra: str) -> Iterator[None]:
    """Context for an import of optional packages; if one is missing, the error states how to install it.

    Raises:
        ConfigError: A package is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(f'{error.name} is not installed; pip install "jaxdyn[{extra}]"') from None


def positive(text: str) -> float:
    """Convert text to a positive value, for use as the type of an argument."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


def count(text: str) -> int:
    """Convert text to a non-negative integer, for use as the type of an argument."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return value
