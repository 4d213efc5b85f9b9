"""The mechanism that a command works on: its file, and how to read it."""

import argparse
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxdyn.constraints.assembly import Assembly, assemble
from jaxdyn.dynamics.system import System
from jaxdyn.io.system_file import load_system
from jaxdyn.io.toml import ConfigError
from jaxdyn.io.xml import IgnoredContent

FORMATS = ".toml, .urdf, .xml (URDF or MJCF) or .json"


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """Options of how to read a URDF file."""
    parser.add_argument(
        "--base", choices=("fixed", "free"), help="of a URDF file: whether its root link stands or floats"
    )
    parser.add_argument(
        "--repair", action="store_true", help="of a URDF file: make inertias physical that no real body can have"
    )


def load_source(arguments: argparse.Namespace, path: Path) -> System:
    """The system in a file; what the reader ignores is printed, one line."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", IgnoredContent)
        system = load_system(path, base=arguments.base, unphysical="repair" if arguments.repair else "refuse")
    for warning in said:
        print(f"note: {warning.message}")
    return system


def assembled(system: System, q: Float[Array, "*batch nq"], source: Path) -> Float[Array, "*batch nq"]:
    """Configurations that close the loops of a system, near the given ones.

    Raises:
        ConfigError: a loop cannot be closed.
    """
    if not system.constraints:
        return q
    found: Assembly = jax.jit(jnp.vectorize(lambda q: assemble(system, q), signature="(n)->(n),(),(),()"))(q)
    if not np.all(found.closed):
        raise ConfigError(
            f"{source}: its loops cannot be closed from here, {float(np.max(found.residual)):.2g} m or rad remain; "
            "check the markers, or try another --seed"
        )
    return found.q
