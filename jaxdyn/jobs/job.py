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
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from jaxdyn.mechanism.quantity import Quantity, meanings, quantity_of

if TYPE_CHECKING:
    from jaxdyn.io.runs import RunDirectory


@dataclasses.dataclass(frozen=True)
class Job:
    """A piece of work with a config.

    Attributes:
        name: Names the verb and the default run directory.
        description: Shown by --help.
        config: The frozen dataclass that describes the config file, or its name "package.module:Class" if its import takes long.
        work: work(config, run_directory) -> metrics, a dictionary of numbers and texts.
        inputs: inputs(config) -> the files that `work` reads, each with what it is. A job that has it can be resumed: in the
            directory of an interrupted run, `work` does only what is missing, provided that these files are the same.
        verdict: verdict(metrics) says why the results of a complete run are unreliable, or None; then the exit status is 3.
    """

    name: str
    description: str
    config: type | str
    work: "Callable[[Any, RunDirectory], dict[str, Any]]"
    inputs: Callable[[Any], Iterable[tuple[str, Path]]] | None = None
    verdict: Callable[[dict[str, Any]], str | None] | None = None

    @property
    def config_class(self) -> type:
        """The class of the config, imported if it is given by its name."""
        return pkgutil.resolve_name(self.config) if isinstance(self.config, str) else self.config


def deferred(name: str) -> Callable[..., Any]:
    """The function of a name "package.module:function", whose module is imported at the first call: verbs are known without JAX."""
    return lambda *arguments: pkgutil.resolve_name(name)(*arguments)


def add_arguments(parser: argparse.ArgumentParser, job: Job, *, default_config: str | None = None) -> None:
    """The arguments that every job has, and its settings in the help."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = job.description
    format_help = parser.format_help

    def with_settings() -> str:
        parser.epilog = f"settings:\n{describe_settings(job.config_class)}"
        return format_help()

    parser.format_help = with_settings  # settings are described only when somebody asks for help
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
    """The settings of a config class, one line each, from its fields and its docstring; tables of several kinds kind by kind."""
    texts, lines = meanings(config), []
    annotations = get_type_hints(config)
    for field in dataclasses.fields(config):
        name, tables = f"{prefix}{field.name}", _tables(annotations[field.name])
        if tables == [annotations[field.name]] and not hasattr(tables[0], "kinds"):
            lines.append(describe_settings(tables[0], f"{name}."))
            continue
        default = field.default if not tables or field.default is dataclasses.MISSING else None
        lines.append(_setting(name, texts.get(field.name, ""), quantity_of(field), default))
        lines += [text for table in tables for text in _describe_table(table, name)]
    return "\n".join(line for line in lines if line)


def _describe_table(table: Any, name: str) -> list[str]:
    """What a table may hold: its settings, under a heading for each kind."""
    if hasattr(table, "kinds"):
        lines = []
        for kind in table.kinds():
            lines.append(f'  {name}.kind = "{kind}": {table.summary(kind)}')
            for key, declared in table.keys(kind).items():
                lines.append("  " + _setting(f"{name}.{key}", declared.meaning, declared.rules, declared.default))
                lines += [describe_settings(inner, f"  {name}.{key}.") for inner in _tables(declared.annotation)]
        return lines
    kinds = get_args(get_type_hints(table).get("kind"))
    if not kinds:
        return [describe_settings(table, f"{name}.")]
    settings = [line for line in describe_settings(table, f"{name}.").splitlines() if f"{name}.kind:" not in line]
    named = " or ".join(f'"{kind}"' for kind in kinds)
    return [f"  {name}.kind = {named}: {first_sentence(table)}", *(f"  {line}" for line in settings)]


def _setting(name: str, meaning: str, rules: Quantity, default: Any) -> str:
    unit = f" ({rules.unit_of(turns=True)})" if rules.unit else ""
    if isinstance(default, tuple) and len(default) == 1:
        default = default[0]
    said = "required" if default is dataclasses.MISSING else f"default {default}"
    return f"  {name}{unit}: {meaning}" + (f" [{said}]" if default is not None else "")


def first_sentence(cls: type) -> str:
    """The first paragraph of the docstring of a class, on one line."""
    return " ".join(inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0].split())


def _tables(annotation: Any) -> list[type]:
    """The config classes of a table, one that may be absent, an array of tables or one of several kinds; none for values."""
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return [annotation]
    inside = [_tables(part) for part in get_args(annotation)]
    return list(dict.fromkeys(table for part in inside for table in part))
