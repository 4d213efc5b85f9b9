"""The command line `jaxdyn <verb> config [key=value ...]`. Verbs are jobs; everything they share is in `jaxdyn.jobs.job`."""

import argparse
from collections.abc import Sequence

from jaxdyn.jobs import rollout
from jaxdyn.jobs.job import add_arguments, run_from_arguments

_JOBS = {job.name: job for job in (rollout.JOB,)}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit status: 0 done, 2 bad input."""
    parser = argparse.ArgumentParser(
        prog="jaxdyn",
        description="Differentiable multibody dynamics in JAX: batched rollouts from a config file.",
        epilog="Example: jaxdyn rollout configs/panda_rollouts.toml --out runs/first batch=512",
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for job in _JOBS.values():
        add_arguments(verbs.add_parser(job.name, help=job.description.splitlines()[0]), job)
    arguments, rest = parser.parse_known_args(argv)
    arguments.overrides += [word for word in rest if "=" in word and not word.startswith("-")]
    unknown = [word for word in rest if "=" not in word or word.startswith("-")]
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return run_from_arguments(_JOBS[arguments.verb], arguments)
