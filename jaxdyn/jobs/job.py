"""What all jobs share: arguments, config, run directory, metrics, errors in one line.

A verb of the command line and an experiment script are the same thing: a config class and a function that does the
work. A script is

    JOB = Job("integrator-order", __doc__, Config, run)
    if __name__ == "__main__":
        main(JOB, default_config="configs/integrator_order.toml")
"""

import argparse
import contextlib
import dataclasses
import functools
import inspect
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

import jax

from jaxdyn.io.config import ConfigError, read_config, resolved_toml
from jaxdyn.io.provenance import environment, provenance
from jaxdyn.io.runs import RunDirectory, RunError
from jaxdyn.jobs.hosts import agreed, is_first, join_hosts, quiet
from jaxdyn.mechanism.checks import MechanismError


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
    work: Callable[[Any, RunDirectory], dict[str, Any]]
    inputs: Callable[[Any], Iterable[tuple[str, Path]]] | None = None
    verdict: Callable[[dict[str, Any]], str | None] | None = None


class UnreliableResults(Exception):
    """A job ran to its end, and its own checks refuse the results; the message says why."""


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
        unit = f" ({field.metadata['unit']})" if field.metadata.get("unit") else ""
        default = "required" if field.default is dataclasses.MISSING else f"default {field.default}"
        lines += [f"  {prefix}{field.name}{unit}: {meaning.get(field.name, '')} [{default}]", *inside]
    return "\n".join(lines)


def _tables(annotation: Any) -> list[type]:
    """The config classes of a table, one that may be absent, an array of tables or one of several kinds; none for values."""
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return [annotation]
    inside = [_tables(part) for part in get_args(annotation)]
    return list(dict.fromkeys(table for part in inside for table in part))


def run(
    job: Job,
    config_path: Path | str,
    *,
    out: Path | None = None,
    overrides: Sequence[str] = (),
    smoke: bool = False,
    resume: bool = False,
) -> RunDirectory:
    """Do a job and leave config, environment and metrics in its run directory.

    Args:
        resume: go on with the run in `out`, of the same config, files, versions and device, where it was interrupted; begin it if
            there is none. A run that is complete is left as it is.

    Raises:
        ConfigError, MechanismError, RunError: one line each, see there.
    """
    config = read_config(config_path, job.config, overrides, smoke)
    with contextlib.ExitStack() as stack:
        open_directory = functools.partial(_opened, job, config, out, resume, stack)
        if getattr(config, "devices", None) == "hosts":
            open_directory = functools.partial(_opened_by_first, open_directory, stack)
        directory, complete = open_directory()
        if complete:
            print(f"{directory.root}: the run is complete, nothing is left to do")
            return directory
        start = time.perf_counter()
        try:
            metrics = job.work(config, directory)
        except (ConfigError, MechanismError):
            directory.discard()  # nothing was computed: the corrected command may use the same directory
            raise
        metrics |= {"total_s": time.perf_counter() - start, "arrays": directory.array_names()}
        directory.write_metrics({"job": job.name, "smoke": smoke, **metrics, "environment": environment()})
    return directory


def _opened(
    job: Job, config: Any, out: Path | None, resume: bool, stack: contextlib.ExitStack
) -> tuple[RunDirectory, bool]:
    """The run directory with its config and provenance, locked, and whether the run is complete already."""
    if resume and out is None:
        raise ConfigError("--resume needs --out DIR, the directory of the run to go on with")
    directory = RunDirectory(out) if out is not None and resume else RunDirectory.create(out, job.name)
    stack.enter_context(directory.alone())
    text = resolved_toml(config)
    # What cannot be resumed is not pinned, since that starts the devices, which the job may want to choose.
    started_with = None if job.inputs is None else provenance(text, job.inputs(config))
    if not resume:
        directory.begin(text, started_with)
        return directory, False
    assert started_with is not None  # only jobs with inputs can be resumed
    directory.resume(text, started_with)
    return directory, directory.is_complete()


def _opened_by_first(
    open_directory: Callable[[], tuple[RunDirectory, bool]], stack: contextlib.ExitStack
) -> tuple[RunDirectory, bool]:
    """The same on several hosts: the first one opens the directory, the others are quiet and write where it is thrown away."""
    join_hosts()
    problem, opened = None, None
    if is_first():
        try:
            opened = open_directory()
        except (ConfigError, RunError) as error:
            problem = error
    begins, complete = agreed(problem is None), agreed(opened is not None and opened[1])
    if problem is not None:
        raise problem
    if not begins:
        raise RunError("the first host could not begin, it says why")
    if opened is None:
        stack.enter_context(quiet())
        opened = RunDirectory(Path(stack.enter_context(tempfile.TemporaryDirectory()))), complete
    return opened


def main(job: Job, argv: Sequence[str] | None = None, *, default_config: str | None = None) -> int:
    """Command line of one job; returns the exit status."""
    parser = argparse.ArgumentParser()
    add_arguments(parser, job, default_config=default_config)
    return run_from_arguments(job, parser.parse_intermixed_args(argv), default_config)


def run_from_arguments(job: Job, arguments: argparse.Namespace, default_config: str | None = None) -> int:
    """Run a job from parsed arguments; bad input is one line on standard error and exit status 2."""
    config, overrides = arguments.config, list(arguments.overrides)
    if default_config is not None and "=" in config and not Path(config).exists():
        config, overrides = default_config, [config, *overrides]

    def act() -> None:
        resume = job.inputs is not None and arguments.resume
        directory = run(job, config, out=arguments.out, overrides=overrides, smoke=arguments.smoke, resume=resume)
        print(f"Results are in {directory.root}")
        if job.verdict is None or not is_first():  # only the first host has metrics
            return
        problem = job.verdict(directory.read_metrics())
        if problem:
            raise UnreliableResults(problem)

    resumable = job.inputs is not None
    remedy = "the same command with --resume goes on" if resumable else "nothing but the config was written"
    return exit_status(act, interrupted=f"interrupted; {remedy}")


def exit_status(act: Callable[[], None], *, interrupted: str = "interrupted") -> int:
    """Do what a verb does; what went wrong is one line on standard error.

    Returns:
        0 done, 1 the device gave up, 2 bad input, 3 done with results that are not to be relied on, 130 interrupted.
    """
    try:
        act()
    except (ConfigError, MechanismError, RunError) as error:
        print(f"jaxdyn: {error}", file=sys.stderr)
        return 2
    except UnreliableResults as error:
        print(f"jaxdyn: {error}", file=sys.stderr)
        return 3
    except jax.errors.JaxRuntimeError as error:
        print(f"jaxdyn: the device gave up, make the batch smaller: {str(error).splitlines()[0]}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"jaxdyn: {error.filename or 'input and output'}: {error.strerror or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"jaxdyn: {interrupted}", file=sys.stderr)
        return 130
    return 0
