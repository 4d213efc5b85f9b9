"""Jobs: a name, a config class and a function that does the work, and the command-line interface that they have in common.

Verbs of the command line and experiment scripts are built in the same way. A script is

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
    """A unit of work that is described by a config.

    Attributes:
        name: Name of the verb and of the default run directory.
        description: Text that --help shows.
        config: Frozen dataclass that describes the config file, or its name "package.module:Class" if its import is slow.
        work: Function work(config, run_directory) that does the work and returns metrics, a dictionary of floats, integers and
            texts.
        inputs: Function inputs(config) that returns the files that `work` reads, each with its role. A job with this function can
            be resumed. Then `work` finds the directory of an interrupted run and computes only the missing results, provided that
            these files are unchanged.
        verdict: Function verdict(metrics) that returns the reason why the results of a complete run are unreliable, or None. If
            there is a reason, the exit status is 3.
    """

    name: str
    description: str
    config: type | str
    work: "Callable[[Any, RunDirectory], dict[str, Any]]"
    inputs: Callable[[Any], Iterable[tuple[str, Path]]] | None = None
    verdict: Callable[[dict[str, Any]], str | None] | None = None

    @property
    def config_class(self) -> type:
        """The class of the config, imported if it is given by name."""
        return pkgutil.resolve_name(self.config) if isinstance(self.config, str) else self.config


def deferred(name: str) -> Callable[..., Any]:
    """The function with the name "package.module:function"; its module is imported at the first call, to load verbs without JAX."""
    return lambda *arguments: pkgutil.resolve_name(name)(*arguments)


def add_arguments(parser: argparse.ArgumentParser, job: Job, *, default_config: str | None = None) -> None:
    """Add the arguments that every job has to a parser, and the settings of the job to its help."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = job.description
    format_help = parser.format_help

    def with_settings() -> str:
        parser.epilog = f"settings:\n{describe_settings(job.config_class)}"
        return format_help()

    parser.format_help = with_settings  # settings are described only if help is requested
    described = "config file (TOML)" + (f"; default {default_config}" if default_config else "")
    # The config is a positional argument like key=value, so a script distinguishes them by the "=".
    parser.add_argument("config", nargs=None if default_config is None else "?", default=default_config, help=described)
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help='change a setting, as in batch=64 or "time.duration=500 ms"'
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="run directory; default runs/<name>-<date>")
    parser.add_argument(
        "--smoke", action="store_true", help="apply the [smoke] table of the config for a short test run"
    )
    if job.inputs is not None:
        parser.add_argument("--resume", action="store_true", help="continue the interrupted run in --out, or begin it")


def describe_settings(config: type, prefix: str = "") -> str:
    """Description of the settings of a config class, one line each; tables of several kinds are described kind by kind."""
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
    """Description of the settings of a table, under a heading for each kind."""
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
    """Config classes of an annotation: of a table, an optional table, an array of tables or a union of kinds; empty for values."""
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return [annotation]
    inside = [_tables(part) for part in get_args(annotation)]
    return list(dict.fromkeys(table for part in inside for table in part))
