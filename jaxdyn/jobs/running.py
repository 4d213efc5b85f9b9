"""Running of jobs from a command line or from Python, with one-line error messages."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxdyn.errors import UnknownName, suggestion
from jaxdyn.io.config import SMOKE, config_of
from jaxdyn.io.errors import ConfigError, RunError
from jaxdyn.io.robots import robot_file
from jaxdyn.io.tables import Place
from jaxdyn.io.toml import read_toml
from jaxdyn.jobs import interrupts
from jaxdyn.jobs.job import Job, add_arguments
from jaxdyn.jobs.notes import compilations_told, warnings_as_notes, warnings_in_one_line
from jaxdyn.jobs.settings import keys_in_source
from jaxdyn.mechanism.messages import MechanismError

if TYPE_CHECKING:
    from jaxdyn.io.runs.directory import RunDirectory


# Endings of mechanism files; a .toml file may be a mechanism or a config.
_MECHANISM_FILES = (".urdf", ".xacro", ".xml", ".json", ".npz")


def run(
    job: Job,
    config_path: Path | str,
    *,
    out: Path | None = None,
    overrides: Sequence[str] = (),
    smoke: bool = False,
    resume: bool = False,
) -> "RunDirectory":
    """Run a job; config, environment and metrics are written to its run directory.

    Args:
        job: Job to run.
        config_path: Config file, or a run directory for a job that evaluates the results of runs.
        out: Run directory; None for a new directory below runs/.
        overrides: Texts "dotted.key=value" that change values of the config.
        smoke: If true, the table [smoke] of the config applies.
        resume: If true, an interrupted run in `out` is continued. The run must have the same config,
            files, versions and device, and may have other checks and pictures, which are made again if it is complete. If there is
            no run, a new one begins.

    Raises:
        ConfigError, MechanismError, RunError: The job cannot be run; the message has one line.
    """
    with warnings_as_notes(), compilations_told():
        config = (_config if job.of_runs is None else _config_of_runs)(job, Path(config_path), overrides, smoke)
    from jaxdyn.jobs.carry_out import carry_out  # imports JAX, which a config that is refused should not wait for

    return carry_out(job, config, out, smoke, resume)


def _config(job: Job, path: Path, overrides: Sequence[str], smoke: bool) -> Any:
    """The config in a file, or that of a mechanism file."""
    path = robot_file(path)
    is_config = path.suffix.lower() not in _MECHANISM_FILES and not path.is_dir()
    tables = read_toml(path) if is_config else {"body": []}
    if "body" in tables and "mechanism" not in tables:  # no config has a [[body]], and every mechanism has one
        if job.of_mechanism is None:
            raise ConfigError(f"{path}: this is a mechanism file; give a config file whose key `mechanism` names it")
        tables = {"mechanism": path.name, **job.of_mechanism}
    if isinstance(job.config, str):  # of a verb
        _check_keys(job.config, path, tables, overrides)
    return config_of(tables, path, job.config_class, overrides, smoke)


def _check_keys(config: str, path: Path, tables: Mapping[str, Any], overrides: Sequence[str]) -> None:
    """Refuse the config of another verb, and keys that do not exist, before the slow import of a config class.

    Raises:
        ConfigError: The message names the other verb, or the key in a table that may be meant.
    """
    keys, given = keys_in_source(config), [key for key in tables if key != SMOKE]
    for verb in ("rollout", "identify", "optimize") if set(given) - keys.keys() else ():
        if not set(given) - keys_in_source(f"jaxdyn.jobs.{verb}.config:{verb.title()}Config").keys():
            raise ConfigError(f"{path}: this is a config of another verb; run jaxdyn {verb} {path}")
    inner = {name: f"{table}.{name}" for table, names in reversed(keys.items()) for name in names if name not in keys}
    for key in (*given, *(text.partition("=")[0].partition(".")[0].strip() for text in overrides if "=" in text)):
        if key and key not in keys:
            raise Place(path).key(key).error(f"unknown key; {suggestion(key, keys, elsewhere=inner)}")
    for table in keys.keys() & tables.keys():
        for key in tables[table] if keys[table] and isinstance(tables[table], dict) else ():
            if key not in keys[table]:
                raise Place(path).key(table).key(key).error(f"unknown key; {suggestion(key, keys[table])}")


def _config_of_runs(job: Job, path: Path, overrides: Sequence[str], smoke: bool) -> Any:
    """The config of a run in a directory, with this directory and those among the overrides under the key `of_runs`."""
    changes = [word for word in overrides if "=" in word]
    folders = [path, *(Path(word) for word in overrides if "=" not in word)]
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"{folder}: there is no such directory; give a run directory of jaxdyn identify")
    config = path / "config.toml"
    assert job.of_runs is not None  # only then is the first argument a run directory
    runs = {job.of_runs: [str(folder.resolve()) for folder in folders]}
    return config_of(read_toml(config) | runs, config, job.config_class, changes, smoke)


def main(job: Job, argv: Sequence[str] | None = None, *, default_config: str | None = None) -> int:
    """Command-line interface of one job; returns the exit status. By default, `argv` are the arguments of this process."""
    parser = argparse.ArgumentParser()
    add_arguments(parser, job, default_config=default_config)

    def act() -> int:
        return run_from_arguments(job, parser.parse_intermixed_args(argv), default_config)

    return interrupts.own_process(act) if argv is None else act()


def run_from_arguments(job: Job, arguments: argparse.Namespace, default_config: str | None = None) -> int:
    """Run a job with parsed arguments; invalid input results in one line on standard error and exit status 2."""
    config, overrides = arguments.config, list(arguments.overrides)
    resumable = job.inputs is not None
    resume = resumable and arguments.resume
    if resume and arguments.out is not None and (arguments.out / "config.toml").is_file():
        default_config = str(arguments.out / "config.toml")
    if config is None:
        config = default_config
    elif default_config is not None and "=" in config and not Path(config).exists():
        config, overrides = default_config, [config, *overrides]

    def act() -> str | None:
        if config is None:
            raise ConfigError(
                "there is no config; give a config file, or --resume with --out DIR, the directory of a run"
            )
        directory = run(job, config, out=arguments.out, overrides=overrides, smoke=arguments.smoke, resume=resume)
        print(f"Results are in {directory.root}")
        if job.then:
            print("Next:\n\n" + "\n".join(f"  {command.format(run=directory.root)}" for command in job.then))
        from jaxdyn.jobs.hosts import is_first

        if job.verdict is None or not is_first():  # only the first host has metrics
            return None
        return job.verdict(directory.read_metrics())

    remedy = "repeat the command with --resume to continue" if resumable else "nothing but the config was written"
    return exit_status(act, interrupted=f"interrupted; {remedy}")


def exit_status(act: Callable[[], str | None], *, interrupted: str = "interrupted") -> int:
    """Execute a verb and report errors in one line on standard error.

    Args:
        act: Function that executes the verb; returns the reason why its results are unreliable, or None.
        interrupted: Message after an interruption.

    Returns:
        Exit status: 0 success, 1 failure of the device, 2 invalid input, 3 unreliable results, 130 interrupted. A signal ends the
        process of a command (`jaxdyn.jobs.interrupts`) with 130 for Ctrl-C and 143 for SIGTERM.
    """
    interrupts.said_if_interrupted(interrupted)
    try:
        with warnings_in_one_line():
            problem = act()
        status = 3 if problem else 0
    except (ConfigError, MechanismError, RunError, UnknownName) as error:
        status, problem = 2, str(error)
    except OSError as error:
        status, problem = 2, f"{error.filename or 'input and output'}: {error.strerror or error}"
    except KeyboardInterrupt:
        status, problem = 130, interrupted
    except RuntimeError as error:
        jax = sys.modules.get("jax")
        if jax is None or not isinstance(error, jax.errors.JaxRuntimeError):
            raise
        status, problem = 1, f"the computation on the device failed; try a smaller batch: {str(error).splitlines()[0]}"
    if problem and not interrupts.is_ending():
        print(f"jaxdyn: {problem}", file=sys.stderr)
    return status
