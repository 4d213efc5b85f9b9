"""Reading of the mechanism file that is given to a command."""

import dataclasses
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jaxdyn.compute.announcements import announced_as
from jaxdyn.constraints.assembly import random_closed
from jaxdyn.dynamics.system import System
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.system_file import load_system
from jaxdyn.jobs.commands.arguments import SourceOptions
from jaxdyn.jobs.notes import warnings_as_notes


def load_source(arguments: SourceOptions, path: Path) -> System:
    """Read a system from a mechanism file with the options of a command, and print a note about ignored elements."""
    options: dict[str, Any] = {
        field.name: getattr(arguments, field.name) for field in dataclasses.fields(SourceOptions)
    }
    options["ignore"] = tuple(arguments.ignore.split(",")) if arguments.ignore else ()
    return load(path, **options)


def load(path: Path, *, repair: bool = False, quiet: bool = False, **options: Any) -> System:
    """Read a system from a mechanism file, and print a note about ignored elements.

    Args:
        path: Mechanism file.
        repair: If true, unphysical inertias of a URDF file are corrected.
        quiet: If true, the note is omitted, because the command reads the other elements, too.
        options: Further options of `load_system`.
    """
    with warnings_as_notes(quiet):
        return load_system(path, unphysical="repair" if repair else "refuse", **options)


@announced_as("the closing of the loops")
def random_starts(system: System, keys: PRNGKeyArray, spread: float, source: Path) -> Float[Array, "samples nq"]:
    """A random configuration for each key, in which all loops are closed.

    Args:
        system: The mechanism.
        keys: Random keys, one per configuration.
        spread: Spread of the configurations, see `configuration.random`.
        source: File of the system, for the message.

    Raises:
        ConfigError: A loop cannot be closed.
    """
    starts = []
    for key in keys:  # one program for any number of keys, which compiles faster than a batch
        found = random_closed(system, key, spread=spread, throw=False)
        if not found.closed:
            raise ConfigError(
                f"{source}: its loops cannot be closed from random configurations, the smallest error is "
                f"{float(found.residual):.2g} m or rad; check the markers and lengths"
            )
        starts.append(found.q)
    return jnp.stack(starts)


def middle(system: System, key: PRNGKeyArray, source: Path) -> Float[Array, "nq"]:
    """The configuration in the middle of the joint limits, or neutral without limits.

    With loops it is a random one near it, because straight linkages cannot be closed.

    Args:
        system: The mechanism.
        key: Random key.
        source: File of the system, for the message.

    Raises:
        ConfigError: A loop cannot be closed.
    """
    (q,) = random_starts(system, key[None], 0.5 if system.constraints else 0.0, source)
    return q
