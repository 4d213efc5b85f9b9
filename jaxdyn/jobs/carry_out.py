"""Execution of a job after its config has been read: run directory and metrics, in one process or several."""

import contextlib
import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from jaxdyn.compute import backend
from jaxdyn.errors import UnknownName
from jaxdyn.io.config import resolved_toml
from jaxdyn.io.errors import ConfigError, RunError
from jaxdyn.io.runs.directory import RunDirectory
from jaxdyn.io.runs.provenance import environment, provenance
from jaxdyn.jobs.hosts import agreed, devices_in_words, is_first, join_hosts, quiet
from jaxdyn.jobs.job import Job
from jaxdyn.jobs.notes import compilations_told
from jaxdyn.mechanism.messages import MechanismError


def carry_out(job: Job, config: Any, out: Path | None, smoke: bool, resume: bool) -> RunDirectory:
    """Execute a job; see `jaxdyn.jobs.running.run` for arguments, result and errors."""
    with compilations_told(), contextlib.ExitStack() as stack:
        if job.double is not None:
            stack.enter_context(jax.enable_x64(job.double(config)))
        stack.enter_context(backend(getattr(config, "backend", None)))
        open_directory = functools.partial(_opened, job, config, out, resume, stack)
        if getattr(config, "devices", None) == "hosts":
            open_directory = functools.partial(_opened_by_first, open_directory, stack)
        directory, complete = open_directory()
        if complete:
            print(f"{directory.root}: the run is already complete")
            return directory
        start = time.perf_counter()
        try:
            metrics = job.work(config, directory)
        except (ConfigError, MechanismError, UnknownName):
            directory.discard()  # nothing was computed, so the corrected command may use the same directory
            raise
        if metrics is None:
            print(f"{directory.root}: another process completed the run")
            return directory
        metrics |= {"total_s": time.perf_counter() - start}
        names = {"arrays": directory.sealed_names(archives=False), "archives": directory.sealed_names(archives=True)}
        directory.write_metrics({"job": job.name, "smoke": smoke, **metrics, **names, "environment": environment()})
    return directory


def _opened(
    job: Job, config: Any, out: Path | None, resume: bool, stack: contextlib.ExitStack
) -> tuple[RunDirectory, bool]:
    """The run directory, in which config and provenance are written, and whether the run is already complete.

    This process holds the claim of the directory, unless other processes may work on the run at the same time.
    """
    if resume and out is None:
        raise ConfigError("--resume requires --out DIR, the directory of the run to continue")
    directory = RunDirectory(out) if out is not None and resume else RunDirectory.create(out, job.name)
    stack.callback(directory.remove_if_empty)
    stack.enter_context(directory.held)
    text = resolved_toml(config)
    # Provenance initializes the devices, which the job may want to choose; so it is not recorded for jobs without --resume.
    started_with = None if job.inputs is None else provenance(text, job.inputs(config))
    directory.alone(waits=job.shared)
    if resume:
        assert started_with is not None  # only jobs with inputs can be resumed
        directory.resume(text, started_with)
    else:
        directory.begin(text, started_with)
    if job.shared:
        directory.held.close()
    return directory, resume and directory.is_complete()


def _opened_by_first(
    open_directory: Callable[[], tuple[RunDirectory, bool]], stack: contextlib.ExitStack
) -> tuple[RunDirectory, bool]:
    """Execute a job on several hosts: the first one opens the run directory; the others print nothing and use a temporary one."""
    join_hosts()
    problem, opened = None, None
    if is_first():
        print(devices_in_words())
        try:
            opened = open_directory()
        except (ConfigError, RunError) as error:
            problem = error
    begins, complete = agreed(problem is None), agreed(opened is not None and opened[1])
    if problem is not None:
        raise problem
    if not begins:
        raise RunError("the first host could not begin; see its error message")
    if opened is None:
        stack.enter_context(quiet())
        opened = RunDirectory(Path(stack.enter_context(tempfile.TemporaryDirectory()))), complete
    return opened
