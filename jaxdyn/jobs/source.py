"""The mechanism that a command works on: its file, and how to read it."""

import argparse
import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jaxdyn.constraints.assembly import assemble
from jaxdyn.dynamics.system import System
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.system_file import load_system
from jaxdyn.io.xml import IgnoredContent
from jaxdyn.lanes import stored_jit
from jaxdyn.mechanism import configuration

_TRIES = 16  # random starts of a mechanism with loops


def load_source(arguments: argparse.Namespace, path: Path) -> System:
    """The system in a file; what the reader ignores is printed, one line."""
    with said_in_one_line():
        unphysical = "repair" if arguments.repair else "refuse"
        return load_system(path, base=arguments.base, unphysical=unphysical, folder=arguments.folder)


@contextlib.contextmanager
def said_in_one_line() -> Iterator[None]:
    """Print what a reader of mechanisms ignores as notes."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", IgnoredContent)
        yield
    for warning in said:
        print(f"note: {warning.message}")


def random_starts(system: System, keys: PRNGKeyArray, spread: float, source: Path) -> Float[Array, "lanes nq"]:
    """A random configuration for each key; if there are loops, the first of a few that close them.

    Args:
        spread: as in `configuration.random`.
        source: for the message.

    Raises:
        ConfigError: a loop cannot be closed.
    """
    if not system.constraints:
        return stored_jit(jax.vmap(lambda key: configuration.random(system.model, key, spread=spread)))(keys)

    def start(key):
        tries = jax.vmap(lambda k: configuration.random(system.model, k, spread=spread))(jax.random.split(key, _TRIES))
        found = jax.vmap(lambda q: assemble(system, system.at_rest(q)))(tries)
        first = jnp.argmax(found.closed)
        return found.q[first], found.closed[first], jnp.min(found.residual)

    q, closed, residual = stored_jit(jax.vmap(start))(keys)
    if not np.all(closed):
        raise ConfigError(
            f"{source}: its loops close from none of {_TRIES} random starts, {float(np.max(residual)):.2g} m or rad remain; "
            "check the markers and lengths"
        )
    return q
