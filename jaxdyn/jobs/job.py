"""What a job is: a name, a config class and a function that does the work; and how it appears on a command line.

A verb of the command line and an experiment script are the same thing. A script is

    JOB = Job("integrator-order", __doc__, Config, work)
    if __name__ == "__main__":
        main(JOB, default_config="configs/integrator_order.toml")
"""

import argparse
import dataclasses
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from jaxdyn.mechanism.quantity import quantity_of

if TYPE_CHECKING:
    from jaxdyn.io.runs import RunDirectory


@dataclasses.dataclass(frozen=True)
class Job:
    """A piece of work with a config.

    Attributes:
        name: names the verb and the default run directory.
        description: shown by --help.
        config: frozen dataclass that describes the config file.
        work: work(config, run_directory) -> metrics, a dictionary of numbers and texts.
        inputs: inputs(config) -> the files that `work` reads, each with what it is. A job that has it can be resumed: in the
            directory of an interrupted run, `work` does only what is missing, provided that these files are the same.
        verdict: verdict(metrics) says why the results of a complete run are unreliable, or None; then the exit status is 3.
    """

    name: str
    description: str
    config: type
    work: "Callable[[Any, RunDirectory], dict[str, Any]]"
    inputs: Callable[[Any], Iterable[tuple[str, Path]]] | None = None
    verdict: Callable[[dict[str, Any]], str | None] | None = None


def deferred(name: str) -> Callable[..., Any]:
    """The function of a name "package.module:function", whose module is imported at the first call: verbs are known without JAX."""
    return lambda *arguments: pkgutil.resolve_name(name)(*arguments)


def add_arguments(parser: argparse.ArgumentParser, job: Job, *, default_config: str | None = None) -> None:
    """The arguments that every job has, and its settings in the help."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = job.description
    parser.epilog = f"settings:\n{describe_settings(job.config)}"
    described = "config file (TOML)" + (f"; {default_config} if not given" if default_config else "")
    # The config stays positional beside key=value, so a script tells them apart by the "=".
    parser.add_argument("config", nargs=None if default_config is None else "?", default=default_config, help=described)
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help='change a setting, as in batch=64 or "time.duration=500 ms"'
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="run directory; runs/<name>-<date> if not given")
    parser.add_argument(
        "--smoke", action="store_true", help="apply the [smoke] table of the config: seconds instead of minutes"
    )
    if job.inputs is not None:
        parser.add_argument(
            "--resume", action="store_true", help="go on with the run in --out where it was interrupted, or begin it"
        )


def describe_settings(config: type, prefix: str = "") -> str:
    """The settings of a config class, one line each, from its fields and its docstring; for --help."""
    # Inherited settings are told where they are, and told anew by a class that changes them.
    told = "\n".join(inspect.cleandoc(cls.__doc__ or "") for cls in reversed(config.__mro__))
    texts = dict(re.findall(r"^ {4}([\w, ]+): (.*(?:\n {8}.*)*)", told, re.MULTILINE))
    meaning = {name.strip(): " ".join(text.split()) for names, text in texts.items() for name in names.split(",")}
    lines = []
    for field in dataclasses.fields(config):
        tables = _tables(field.type)
        inside = [describe_settings(table, f"{prefix}{field.name}.") for table in tables]
        if tables == [field.type]:
            lines += inside
            continue
        unit = f" ({quantity_of(field).unit})" if quantity_of(field).unit else ""
        default = "required" if field.default is dataclasses.MISSING else f"default {field.default}"
        lines += [f"  {prefix}{field.name}{unit}: {meaning.get(field.name, '')} [{default}]", *inside]
    return "\n".join(lines)


def _tables(annotation: Any) -> list[type]:
    """The config classes of a table, one that may be absent, an array of tables or one of several kinds; none for values."""
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return [annotation]
    inside = [_tables(part) for part in get_args(annotation)]
    return list(dict.fromkeys(table for part in inside for table in part))
