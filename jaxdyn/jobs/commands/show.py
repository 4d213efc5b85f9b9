"""The command `jaxdyn show`: description of a mechanism file as text and, on request, as pictures."""

from pathlib import Path

import jax

from jaxdyn.compute.announcements import announced_as
from jaxdyn.constraints.independence import describe_mobility
from jaxdyn.jobs.commands.arguments import ShowArguments
from jaxdyn.jobs.commands.command import needs
from jaxdyn.jobs.source import load_source, middle
from jaxdyn.view.tree import tree_text


def show(arguments: ShowArguments) -> None:
    """Print the content of a mechanism file, and draw the mechanism on request."""
    system = load_source(arguments, arguments.file)
    print(system.summary())
    print()
    print(tree_text(system.model))
    if arguments.out is None and not system.constraints:
        return
    start = middle(system, jax.random.split(jax.random.key(0), 1)[0], arguments.file)
    if system.constraints:
        print(f"\n{describe_mobility(system, system.at_rest(start))}")
    if arguments.out is None:
        return
    with needs("pictures"):
        from jaxdyn.view import pictures, plots
    out: Path = arguments.out if arguments.out.suffix else arguments.out.with_suffix(".png")
    with announced_as("the picture"):
        plots.save(pictures.mechanism_picture(system, start), out)
    print(f"\nThe picture is in {out}")
