"""Verbs of the command line that are not jobs: they take arguments instead of a config, and do not write a run directory."""

import argparse
import contextlib
import dataclasses
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from jaxdyn.io.errors import ConfigError
from jaxdyn.jobs.job import HELP_FORMAT, described
from jaxdyn.jobs.running import exit_status
from jaxdyn.jobs.settings import wrapped
from jaxdyn.mechanism.quantity import meanings


@dataclasses.dataclass(frozen=True)
class Command:
    """A verb of the command line with its arguments.

    Attributes:
        name: Name of the verb.
        arguments: Class of the arguments, see `jaxdyn.jobs.commands.arguments`.
        act: Function act(arguments) that does the work; it raises ConfigError, MechanismError or RunError for invalid input.
        details: Function that returns the text at the end of the help page.
    """

    name: str
    arguments: type
    act: Callable[[Any], None]
    details: Callable[[], str] | None = None

    @property
    def description(self) -> str:
        """Text that --help shows: the docstring of the arguments; its first line also appears in the list of verbs."""
        first, further = described(self.arguments)
        return f"{_phrase(first)}\n\n{further}"


def placeholder(metavar: str, *, positional: bool = False) -> dict[str, Any]:
    """Metadata of a field that describes an argument.

    Args:
        metavar: Placeholder of the value in the help.
        positional: If true, an argument with a default is a positional argument, which may be omitted.
    """
    return {"metavar": metavar, "positional": positional}


def add_command(parser: argparse.ArgumentParser, command: Command) -> None:
    """Add the help text and the arguments of a command to a parser."""
    parser.formatter_class = HELP_FORMAT
    parser.description = wrapped(command.description)
    texts, annotations = meanings(command.arguments), get_type_hints(command.arguments)
    own = inspect.get_annotations(command.arguments)  # these precede those of the bases
    for field in sorted(dataclasses.fields(command.arguments), key=lambda field: field.name not in own):
        _add_argument(parser, field, annotations[field.name], _phrase(texts[field.name]))
    if command.details is not None:
        plain_help, details = parser.format_help, command.details
        parser.format_help = lambda: f"{plain_help()}\n{details()}"


def _phrase(sentence: str) -> str:
    """A sentence of a docstring as it appears in a help page, without capital letter and period."""
    return f"{sentence[0].lower()}{sentence[1:].removesuffix('.')}"


def _add_argument(parser: argparse.ArgumentParser, field: dataclasses.Field, annotation: Any, text: str) -> None:
    is_required, declared = field.default is dataclasses.MISSING, field.metadata
    is_positional = is_required or declared.get("positional", False)
    name = field.name if is_positional else f"--{field.name.replace('_', '-')}"
    if annotation is bool:
        parser.add_argument(name, action="store_true", help=text)
        return
    is_optional = get_origin(annotation) in (Union, types.UnionType)
    kind = get_args(annotation)[0] if is_optional else annotation
    options: dict[str, Any] = {"metavar": declared.get("metavar")}
    if get_origin(kind) is Literal:
        options["choices"] = get_args(kind)
    elif get_origin(kind) is tuple:
        options |= {"type": _CONVERTERS[get_args(kind)[0]], "nargs": "+"}
    else:
        options["type"] = _CONVERTERS.get(kind, kind)
    if not is_required:
        options["default"] = field.default
        text += "" if field.default is None else " [%(default)s]"
    if is_positional and not is_required:
        options["nargs"] = "?"
    parser.add_argument(name, help=text, **options)


def run_command(command: Command, given: argparse.Namespace) -> int:
    """Run a command with parsed arguments, in double precision like the values in mechanism files; returns the exit status."""
    arguments = command.arguments(
        **{field.name: getattr(given, field.name) for field in dataclasses.fields(command.arguments)}
    )

    def act() -> None:
        import jax

        from jaxdyn.jobs.notes import compilations_told

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


# Functions that read the text of an argument, by the type of its field; the type itself reads texts of other types.
_CONVERTERS: dict[Any, Callable[[str], Any]] = {int: count, float: positive}
