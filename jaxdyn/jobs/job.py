"""Jobs, and the command-line interface of all jobs. A job has a name, a config class and a function that does the work.

Verbs of the command line and experiment scripts are built in the same way. A script is

    JOB = Job("integrator-order", __doc__, Config, work)
    if __name__ == "__main__":
        main(JOB, default_config="configs/integrator_order.toml")
"""

import argparse
import dataclasses
import functools
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxdyn.jobs.settings import WIDTH, describe_settings, wrapped

if TYPE_CHECKING:
    from jaxdyn.io.runs.directory import RunDirectory


# Help pages have a fixed width, and keep the line breaks of descriptions.
HELP_FORMAT = functools.partial(argparse.RawDescriptionHelpFormatter, width=WIDTH)


@dataclasses.dataclass(frozen=True)
class Job:
    """A unit of work that is described by a config.

    Attributes:
        name: Name of the verb and of the default run directory.
        description: Text that --help shows; the first line also appears in the list of verbs. The help page continues with the
            docstring of the config class after its first paragraph.
        config: Frozen dataclass that describes the config file, or its name "package.module:Class" if its import is slow.
        work: Function work(config, run_directory) that does the work and returns metrics, a dictionary of floats, integers and
            texts.
        inputs: Function inputs(config) that returns the files that `work` reads, each with its role. A job with this function can
            be resumed if the files are unchanged: `work` finds the directory of an interrupted run and computes only the missing
            results.
        shared: Whether several processes may work on a run at once, since `work` computes `Chunks`. In the process that completes
            the run, `work` returns the metrics, and None in the others.
        double: Function double(config): whether `work` computes in double precision. A job without this function chooses the
            precision in `work`.
        verdict: Function verdict(metrics) that returns the reason why the results of a complete run are unreliable, or None. If it
            returns a reason, the exit status is 3.
        of_mechanism: Config values that apply if the user gives a mechanism file instead of a config; None if a config is required.
        of_runs: Key of the config that receives the run directories, for a job that evaluates the results of runs. The arguments of
            the job are run directories instead of a config, and the config of the first run is used.
        then: Commands that use the results. They are printed at the end of a run; {run} stands for the directory of the run.
    """

    name: str
    description: str
    config: type | str
    work: "Callable[[Any, RunDirectory], dict[str, Any] | None]"
    inputs: Callable[[Any], Iterable[tuple[str, Path]]] | None = None
    shared: bool = False
    double: Callable[[Any], bool] | None = None
    verdict: Callable[[dict[str, Any]], str | None] | None = None
    of_mechanism: Mapping[str, Any] | None = None
    of_runs: str | None = None
    then: tuple[str, ...] = ()

    @property
    def config_class(self) -> type:
        """The class of the config, imported if it is given by name."""
        return pkgutil.resolve_name(self.config) if isinstance(self.config, str) else self.config

    @property
    def page(self) -> str:
        """The first part of the help page."""
        _, further = described(self.config_class)
        return f"{self.description}\n\n{further}".rstrip()


def described(cls: type) -> tuple[str, str]:
    """The first paragraph of the docstring of a class, and the further ones before its attributes."""
    text = inspect.cleandoc(cls.__doc__ or "").partition("\n\nAttributes:")[0]
    first, _, further = text.partition("\n\n")
    return first, further


def deferred(name: str) -> Callable[..., Any]:
    """The function with the name "package.module:function"; its module is imported at the call, so that verbs load without JAX."""
    return lambda *arguments: pkgutil.resolve_name(name)(*arguments)


def add_arguments(parser: argparse.ArgumentParser, job: Job, *, default_config: str | None = None) -> None:
    """Add the arguments that every job has to a parser, and the settings of the job to its help."""
    parser.formatter_class = HELP_FORMAT
    format_help = parser.format_help

    def with_settings() -> str:
        parser.description = wrapped(job.page)
        parser.epilog = wrapped(
            f"settings, each with its unit, its bounds and its default:\n\n{describe_settings(job.config_class)}"
        )
        return format_help()

    parser.format_help = with_settings  # settings are described only if help is requested
    text = (
        "config file (TOML)"
        if job.of_runs is None
        else "run directory, and further run directories that are compared with it"
    )
    text += "" if job.of_mechanism is None else ", or a mechanism (a file or the name of a robot) with default settings"
    text += f"; default {default_config}" if default_config else ""
    text += "; with --resume, default is the config of the run in --out" if job.inputs is not None else ""
    # The config is a positional argument like key=value, so a script distinguishes them by the "=".
    parser.add_argument("config", nargs=None if default_config is None and job.inputs is None else "?", help=text)
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="key=value",
        help="change a setting listed below, as in pictures=false; for a key of a table, table.key=value",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="run directory; default runs/<name>-<date>")
    parser.add_argument(
        "--smoke", action="store_true", help="apply the [smoke] table of the config for a short test run"
    )
    if job.inputs is not None:
        text = "continue the interrupted run in --out, or begin it"
        text += "; several processes may do so at once, on any machines" if job.shared else ""
        parser.add_argument("--resume", action="store_true", help=text)
