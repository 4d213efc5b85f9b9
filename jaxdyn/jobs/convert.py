"""The command `jaxdyn convert`: a mechanism from one format to another."""

import argparse
from pathlib import Path

from jaxdyn.io.system_file import save_system
from jaxdyn.io.toml import ConfigError
from jaxdyn.jobs.command import Command
from jaxdyn.jobs.source import FORMATS, add_source_options, load_source


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, metavar="IN", help=f"mechanism file: {FORMATS}")
    parser.add_argument("target", type=Path, metavar="OUT", help="file to write: .toml, .urdf or .json (with .npz)")
    parser.add_argument("--force", action="store_true", help="replace OUT if it exists")
    add_source_options(parser)


def _convert(arguments: argparse.Namespace) -> None:
    if arguments.target.exists() and not arguments.force:
        raise ConfigError(f"{arguments.target}: exists already; choose another name or give --force")
    system = load_source(arguments, arguments.source)
    save_system(system, arguments.target, source=f"converted by jaxdyn from {arguments.source.name}")
    model = system.model
    print(
        f"{arguments.target}: {model.name}, {model.nb} bodies, nv = {model.nv}, {len(system.constraints)} constraints"
    )


COMMAND = Command(
    "convert",
    "convert a mechanism from one format to another\n\n"
    "The ending of each file says its format. What the target format cannot say is refused, never left out.\n\n"
    "  jaxdyn convert robot.urdf robot.toml\n"
    "  jaxdyn convert robot.toml robot.urdf",
    _add_arguments,
    _convert,
)
