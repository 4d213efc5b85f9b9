"""The command `jaxdyn convert`: conversion of a mechanism to another file format."""

from jaxdyn.io.errors import ConfigError
from jaxdyn.io.shapes.visual_files import load_visuals
from jaxdyn.io.system_file import save_system
from jaxdyn.jobs.commands.arguments import ConvertArguments
from jaxdyn.jobs.notes import warnings_as_notes
from jaxdyn.jobs.source import load_source


def convert(arguments: ConvertArguments) -> None:
    """Write a mechanism in another format."""
    if arguments.target.exists() and not arguments.force:
        raise ConfigError(f"{arguments.target}: the file already exists; choose another name or give --force")
    system = load_source(arguments, arguments.source)
    source = f"converted by jaxdyn from {arguments.source.name}"
    drop = [name.strip() for name in (arguments.drop or "").split(",")]
    with warnings_as_notes():
        drawn = arguments.target.suffix.lower() in (".urdf", ".xml")
        visuals = load_visuals(arguments.source, system, folder=arguments.folder) if drawn else ()
        save_system(system, arguments.target, source=source, drop=tuple(filter(None, drop)), visuals=visuals)
    if arguments.target.suffix not in (".json", ".npz") and (system.method, system.stabilization) != ("auto", None):
        print(
            f"method = {system.method} and stabilization = {system.stabilization} are not written, because only archives (.json) "
            "have these settings of the computation"
        )
    model = system.model
    print(
        f"{arguments.target}: {model.name}, {model.nb} bodies, nv = {model.nv}, {len(system.constraints)} constraints"
    )
