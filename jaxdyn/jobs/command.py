"""Verbs of the command line that are no jobs: they take arguments instead of a config, and leave no run directory."""

import argparse
import contextlib
import dataclasses
from collections.abc import Callable, Iterator

from jaxdyn.io.errors import ConfigError
from jaxdyn.jobs.running import exit_status


@dataclasses.dataclass(frozen=True)
class Command:
    """A verb with arguments of its own.

    Attributes:
        name: The verb.
        description: Shown by --help; its first line also in the list of verbs.
        add_arguments: Declares the arguments on a parser.
        act: Does the work; bad input is a ConfigError, MechanismError or RunError.
    """

    name: str
    description: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    act: Callable[[argparse.Namespace], None]


def add_command(parser: argparse.ArgumentParser, command: Command) -> None:
    """Help text and arguments of a command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = command.description
    command.add_arguments(parser)


def run_command(command: Command, arguments: argparse.Namespace) -> int:
    """Run a command from parsed arguments, in double precision, which files have; returns the exit status."""

    def act() -> None:
        import jax

        from jaxdyn.jobs.progress import compilations_told

        with compilations_told(), jax.enable_x64(True):
            command.act(arguments)

    return exit_status(act)


@contextlib.contextmanager
def needs(extra: str) -> Iterator[None]:
    """Around an import: says in one line which optional packages to install if they are absent.

    Raises:
        ConfigError: A package is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(f'{error.name} is not installed; pip install "jaxdyn[{extra}]"') from None


def positive(text: str) -> float:
    """A positive number, as the type of an argument."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def count(text: str) -> int:
    """A number of things, 0 or more, as the type of an argument."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return value
